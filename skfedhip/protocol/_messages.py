"""What travels: frozen dataclasses of named arrays, and nothing else."""

import dataclasses
from dataclasses import dataclass

import numpy as np

from ..core import Sized


@dataclass(frozen=True)
class Schema:
    """What all clients agree on before the first round.

    Attributes
    ----------
    n_features : int
        m.
    classes : ndarray of shape (d,)
        The global class set, sorted; class codes are positions in it.
    dtype : numpy dtype
        Of the features and so of the coefficients.
    """

    n_features: int
    classes: np.ndarray
    dtype: np.dtype

    @property
    def n_classes(self):
        return len(self.classes)


class Message(Sized):
    """Base of everything that travels; a subclass is a frozen dataclass of arrays.

    A field may also be None, a dataclass of arrays itself, or a tuple of such.
    """

    def arrays(self):
        """The message as a flat dict from name to ndarray."""
        return _named_arrays(self)

    @property
    def nbytes(self):
        """Size of all arrays in bytes."""
        return sum(array.nbytes for array in self.arrays().values())


class ClientUpdate(Message):
    """What clients send up. Updates of several clients add: ``a + b`` is the update of both."""

    def __add__(self, other):
        raise NotImplementedError


class Broadcast(Message):
    """What the server sends down."""


@dataclass(frozen=True)
class Empty(Broadcast):
    """Nothing to say."""


def _named_arrays(instance, prefix=""):
    out = {}
    for field in dataclasses.fields(instance):
        value, name = getattr(instance, field.name), prefix + field.name
        if isinstance(value, tuple):
            for i, each in enumerate(value):
                out |= _named_arrays(each, f"{name}.{i}.")
        elif dataclasses.is_dataclass(value):
            out |= _named_arrays(value, f"{name}.")
        elif value is not None:
            out[name] = np.asarray(value)
    return out
