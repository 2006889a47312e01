"""The byte form of messages: safetensors with a versioned header, checked before it is used."""

import hashlib
import json

import numpy as np
import safetensors.numpy

from ..protocol import Broadcast, ClientUpdate
from ..utils._files import header_of

FORMAT = 1
_HEADER_ROOM = 2**14  # bytes that shapes and metadata of a few arrays may take
_ARRAY_ROOM = 200  # bytes that each array may take more, beside its name, which comes twice
_METADATA = "skfedhip"


class RefusedMessage(ValueError):  # noqa: N818 - what happens to it, not that it is an error
    """A message that is not what it should be; its text is the reason."""


def encode(message, *, dtype=None):
    """A message as bytes.

    Parameters
    ----------
    message : Message
    dtype : {"float32"} or None
        float32 sends float64 arrays in half the bytes, with 7 digits instead of 16.

    Returns
    -------
    bytes
        A safetensors file: the arrays under their names, and in the header the format's version,
        the kind of message and which arrays were narrowed.
    """
    arrays, narrowed = message.arrays_to_send(), []
    for name, array in arrays.items():
        if dtype is not None and array.dtype == np.float64:
            with np.errstate(over="ignore"):
                small = array.astype(dtype)
            if np.isfinite(array).all() and not np.isfinite(small).all():
                raise ValueError(f"{name} has numbers too large for {dtype}; send float64 instead.")
            arrays[name] = small
            narrowed.append(name)
    # Empty() has no arrays, which safetensors is content with.
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    header = {"format": FORMAT, "kind": _kind(type(message)), "narrowed": narrowed}
    return safetensors.numpy.save(arrays, metadata={_METADATA: json.dumps(header)})


def decode_update(data, expected):
    """A client's update, after every check that can be made without its rows.

    Parameters
    ----------
    data : bytes
        Whatever came over the network.
    expected : ClientUpdate
        What the method's client_update makes of any rows.

    Raises
    ------
    RefusedMessage
        If the bytes are too many, are no message of this format and kind, if an array has another
        name, shape or dtype, if a number is not finite, or if no rows have these statistics.
    """
    room = _HEADER_ROOM + sum(_ARRAY_ROOM + 2 * len(name) for name in expected.arrays())
    message, eps = _decode(data, ClientUpdate, expected.max_nbytes, room)
    try:
        with np.errstate(all="ignore"):  # what overflows is no warning, but a reason
            message.check(expected, eps)
    except ValueError as error:
        raise RefusedMessage(str(error)) from error
    return message


def decode_broadcast(data):
    """A message of the server's."""
    return _decode(data, Broadcast, len(data), len(data))[0]


def digest(data):
    """What is remembered of a message that is not kept."""
    return hashlib.sha256(data).hexdigest()


def _decode(data, base, max_nbytes, room):
    """The message and the relative precision of its numbers; its header fits in ``room``."""
    if len(data) > max_nbytes + room:
        raise RefusedMessage(
            f"it is {len(data)} bytes long, more than the {max_nbytes + room} that any client's "
            "can be"
        )
    header, arrays = _parsed(data, room)
    if header.get("format") != FORMAT:
        raise RefusedMessage(f"it is of format {header.get('format')!r}, not {FORMAT}")
    classes = {_kind(cls): cls for cls in _subclasses(base)}
    kind = header.get("kind")
    if not isinstance(kind, str) or kind not in classes:
        raise RefusedMessage(f"it is of kind {kind!r}, which is unknown here")
    narrowed = header.get("narrowed")
    singles = [name for name, array in arrays.items() if array.dtype == np.float32]
    if not isinstance(narrowed, list) or any(name not in singles for name in narrowed):
        raise RefusedMessage("its list of narrowed arrays is wrong")
    arrays |= {name: arrays[name].astype(np.float64) for name in narrowed}
    try:
        message = classes[kind].from_sent(arrays)
    except ValueError as error:
        raise RefusedMessage(str(error)) from error
    return message, float(np.finfo(np.float32 if narrowed else np.float64).eps)


def _parsed(data, room):
    """Header and arrays of bytes that may be anything."""
    try:
        size = int.from_bytes(data[:8], "little")
        if size > room:
            raise ValueError(f"the header of {size} bytes is too long")
        header = header_of(data, _METADATA)
        if not isinstance(header, dict):
            raise TypeError("the header is no object")
        return header, safetensors.numpy.load(bytes(data))
    except Exception as error:  # whatever a parser says of foreign bytes, they are no message
        raise RefusedMessage(f"it can't be read ({type(error).__name__}: {error})") from error


def _subclasses(base):
    for cls in base.__subclasses__():
        yield cls
        yield from _subclasses(cls)


def _kind(cls):
    return f"{cls.__module__}.{cls.__qualname__}"
