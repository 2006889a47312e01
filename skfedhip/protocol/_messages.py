"""What travels: frozen dataclasses of named arrays, and nothing else."""

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any, Self

import numpy as np

from ..core import Sized


@dataclass(frozen=True)
class Schema:
    """What all clients agree on before the first round.

    Attributes
    ----------
    n_features : int
        m, the numbers in a row.
    classes : ndarray of shape (d,)
        The global class set, sorted; class codes are positions in it.
    dtype : numpy dtype
        Of the features and so of the coefficients.
    image_shape : tuple of int, default=()
        Shape of a row that is no vector: (channels, height, width).

    Examples
    --------
    >>> import numpy as np
    >>> from skfedhip.protocol import Schema
    >>> schema = Schema(n_features=4, classes=np.array(["cat", "dog"]), dtype=np.dtype("float64"))
    >>> schema.n_classes
    2
    """

    n_features: int
    classes: np.ndarray
    dtype: np.dtype
    image_shape: tuple = ()

    @classmethod
    def of_rows(cls, shape: Sequence[int], classes: np.ndarray, dtype: Any) -> Self:
        """Make the schema of rows of a shape.

        Parameters
        ----------
        shape : sequence of int
            Of a row: (m,), or (channels, height, width).
        classes : ndarray of shape (d,)
            The global class set, sorted.
        dtype : numpy dtype
            Of the features.

        Returns
        -------
        Schema
            With the number of features that a row has.
        """
        shape = tuple(map(int, shape))
        return cls(prod(shape), classes, dtype, shape if len(shape) > 1 else ())

    @property
    def n_classes(self) -> int:
        """Size d of the global class set."""
        return len(self.classes)

    @property
    def row_shape(self) -> tuple:
        """Shape of a row, (m,) where it is a vector."""
        return self.image_shape or (self.n_features,)


class Message(Sized):
    """Base of everything that travels; a subclass is a frozen dataclass of arrays.

    A field may also be None, a dataclass of arrays itself, a tuple of such, or a dict of arrays; it
    is then annotated so (``Moments``, ``tuple[Moments, ...]``, ``dict``, ``np.ndarray | None``), by
    which :meth:`from_arrays` puts it together again.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> from skfedhip.protocol import Message
    >>> @dataclass(frozen=True)
    ... class Mean(Message):
    ...     mean: np.ndarray
    >>> message = Mean(np.array([1.0, 2.0]))
    >>> message.arrays()
    {'mean': array([1., 2.])}
    >>> Mean.from_arrays(message.arrays()), message.nbytes
    (Mean(mean=array([1., 2.])), 16)
    """

    def arrays(self) -> dict[str, np.ndarray]:
        """Name all arrays.

        Returns
        -------
        dict of str to ndarray
            The message as a flat dict, parts of parts by dotted names.
        """
        return _named_arrays(self)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """Put together again what :meth:`arrays` took apart.

        Parameters
        ----------
        arrays : dict
            From name to ndarray.

        Returns
        -------
        Message
            A message of this class.

        Raises
        ------
        ValueError
            If names are missing, or are not those of the message.
        """
        left = dict(arrays)
        message = _assembled(cls, left, "")
        if left:
            raise ValueError(f"{cls.__name__} has no array {min(left)!r}")
        return message

    def arrays_to_send(self) -> dict[str, np.ndarray]:
        """Name what travels; a message that has a smaller form than its arrays gives that.

        Returns
        -------
        dict of str to ndarray
            By default :meth:`arrays`.
        """
        return self.arrays()

    @classmethod
    def from_sent(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """Put together again what :meth:`arrays_to_send` gave.

        Parameters
        ----------
        arrays : dict
            From name to ndarray.

        Returns
        -------
        Message
            A message of this class.
        """
        return cls.from_arrays(arrays)

    @property
    def nbytes(self) -> int:
        """Size in bytes of what travels."""
        return sum(array.nbytes for array in self.arrays().values())

    def check_like(self, expected: "Message") -> None:
        """Raise ValueError unless this has the arrays of another message, all finite.

        Parameters
        ----------
        expected : Message
            Whose type, names, shapes and dtypes this must have; its numbers don't matter.
        """
        if type(self) is not type(expected):
            raise ValueError(f"got a {type(self).__name__}, expected a {type(expected).__name__}")
        mine, wanted = self.arrays(), expected.arrays()
        if mine.keys() != wanted.keys():
            raise ValueError(f"got the arrays {sorted(mine)}, expected {sorted(wanted)}")
        for name, array in mine.items():
            other = wanted[name]
            if array.shape != other.shape or array.dtype != other.dtype:
                raise ValueError(
                    f"{name} has shape {array.shape} and dtype {array.dtype}, expected "
                    f"{other.shape} and {other.dtype}"
                )
            if array.dtype.kind in "fc" and not np.isfinite(array).all():
                raise ValueError(f"{name} has numbers that are not finite")


class ClientUpdate(Message):
    """What clients send up. Updates of several clients add: ``a + b`` is the update of both.

    Where a client can leave exactly, ``a - b`` is the update of those of a without those of b.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> from skfedhip.protocol import ClientUpdate
    >>> @dataclass(frozen=True)
    ... class Rows(ClientUpdate):
    ...     n: np.ndarray
    ...     def __add__(self, other):
    ...         return Rows(self.n + other.n)
    >>> Rows(np.array([3])) + Rows(np.array([4]))
    Rows(n=array([7]))
    """

    def __add__(self, other: Self) -> "ClientUpdate":
        raise NotImplementedError

    def nbytes_of(self, n_rows: Any) -> Any:
        """Count what clients send each, where this sums up what they send.

        Parameters
        ----------
        n_rows : ndarray of shape (K,)
            Rows of each client.

        Returns
        -------
        int or ndarray of shape (K,)
            Bytes of each client's message.
        """
        return self.nbytes

    @property
    def max_nbytes(self) -> int:
        """The most that any client sends in this update's place."""
        return self.nbytes

    def check(self, expected: "ClientUpdate", eps: float) -> None:
        """Raise ValueError unless a client can have sent this.

        Parameters
        ----------
        expected : ClientUpdate
            What this method's client_update makes of any rows.
        eps : float
            Relative precision of the numbers.
        """
        self.check_like(expected)


class Broadcast(Message):
    """What the server sends down.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> from skfedhip.protocol import Broadcast
    >>> @dataclass(frozen=True)
    ... class Model(Broadcast):
    ...     coef: np.ndarray
    >>> Model(np.zeros((3, 5))).nbytes
    120
    """

    def for_client(self, client: Any) -> "Broadcast":
        """Take what of it goes to one client: all, unless it is made for each.

        Parameters
        ----------
        client : client id or None
            Who it goes to; None is nobody that is known.

        Returns
        -------
        Broadcast
            The message to that client.
        """
        return self


@dataclass(frozen=True)
class Empty(Broadcast):
    """Nothing to say.

    Examples
    --------
    >>> from skfedhip.protocol import Empty
    >>> Empty().nbytes
    0
    """


_hints = cache(typing.get_type_hints)


def _assembled(cls: Any, left: dict[str, np.ndarray], prefix: str) -> Any:
    """An instance of a dataclass from the arrays of its prefix, which are taken out of ``left``."""
    hints, values = _hints(cls), dict[str, Any]()
    for field in dataclasses.fields(cls):
        name, hint = prefix + field.name, hints[field.name]
        kinds = typing.get_args(hint) or (hint,)
        inner = next((kind for kind in kinds if dataclasses.is_dataclass(kind)), None)
        if typing.get_origin(hint) is tuple:
            parts: list = []
            while any(each.startswith(f"{name}.{len(parts)}.") for each in left):
                parts.append(_assembled(inner, left, f"{name}.{len(parts)}."))
            values[field.name] = tuple(parts)
        elif inner and any(each.startswith(f"{name}.") for each in left):
            values[field.name] = _assembled(inner, left, f"{name}.")
        elif hint is dict:
            inside = [each for each in left if each.startswith(f"{name}.")]
            values[field.name] = {n.removeprefix(f"{name}."): left.pop(n) for n in inside}
        elif name in left:
            values[field.name] = left.pop(name)
        elif type(None) in typing.get_args(hint):
            values[field.name] = None
        else:
            raise ValueError(f"{cls.__name__} lacks the array {name!r}")
    return cls(**values)


def _named_arrays(instance: Any, prefix: str = "") -> dict[str, np.ndarray]:
    out: dict[str, np.ndarray] = {}
    for field in dataclasses.fields(instance):
        value, name = getattr(instance, field.name), prefix + field.name
        if isinstance(value, tuple):
            for i, each in enumerate(value):
                out |= _named_arrays(each, f"{name}.{i}.")
        elif isinstance(value, dict):
            out |= {f"{name}.{key}": np.asarray(array) for key, array in value.items()}
        elif dataclasses.is_dataclass(value):
            out |= _named_arrays(value, f"{name}.")
        elif value is not None:
            out[name] = np.asarray(value)
    return out
