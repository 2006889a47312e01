"""What a server or a client keeps between rounds and restarts, as bytes without pickle."""

import dataclasses
import json
import sys

import numpy as np
import safetensors.numpy

from ..utils._files import header_of, labels_from_json, labels_to_json

_METADATA = "tree"


def pack(value):
    """Nested dicts, lists, tuples, dataclasses, arrays and scalars as bytes.

    Unlike a message this is read by nobody but its writer: classes are named in it, and must be
    imported already where it is read.

    Raises
    ------
    TypeError
        If something in it is of another type.
    """
    arrays = []
    tree = _taken_apart(value, arrays)
    named = {str(i): np.asarray(array, order="C") for i, array in enumerate(arrays)}
    return safetensors.numpy.save(named, metadata={_METADATA: json.dumps(tree)})


def unpack(data):
    """What :func:`pack` was given."""
    return _put_together(header_of(data, _METADATA), safetensors.numpy.load(bytes(data)))


def _taken_apart(value, arrays):
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return {type(value).__name__: [_taken_apart(each, arrays) for each in value]}
    if isinstance(value, dict):
        pairs = [[_taken_apart(part, arrays) for part in pair] for pair in value.items()]
        return {"dict": pairs}
    if dataclasses.is_dataclass(value):
        cls = type(value)
        parts = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
        parts = {name: _taken_apart(part, arrays) for name, part in parts.items()}
        return {"dataclass": [cls.__module__, cls.__qualname__, parts]}
    return _array_apart(value, arrays)


def _array_apart(value, arrays):
    if isinstance(value, np.ndarray) and value.dtype.kind in "OUmM":
        return {"labels": labels_to_json(value)}
    kind = "array"
    if isinstance(value, bytes):
        kind, value = "bytes", np.frombuffer(value, dtype=np.uint8)
    elif type(value).__module__ == "torch":
        kind, value = "tensor", value.detach().cpu().numpy()
    elif not isinstance(value, np.ndarray | np.generic):
        raise TypeError(
            f"a {type(value).__name__} can't be kept between rounds without pickle; keep dicts, "
            "lists, dataclasses, arrays and scalars instead."
        )
    arrays.append(value)
    return {kind: len(arrays) - 1}


def _put_together(tree, arrays):
    if not isinstance(tree, dict):
        return tree
    ((kind, value),) = tree.items()
    return _MAKERS[kind](value, arrays)


def _dataclass(value, arrays):
    module, name, parts = value
    cls = sys.modules[module]
    for part in name.split("."):
        cls = getattr(cls, part)
    if not dataclasses.is_dataclass(cls):
        raise TypeError(f"{module}.{name} is no dataclass; the file is damaged.")
    return cls(**{name: _put_together(part, arrays) for name, part in parts.items()})


def _items(make):
    return lambda value, arrays: make(_put_together(each, arrays) for each in value)


_MAKERS = {
    "list": _items(list),
    "tuple": _items(tuple),
    "dict": lambda value, arrays: {
        _put_together(key, arrays): _put_together(part, arrays) for key, part in value
    },
    "dataclass": _dataclass,
    "labels": lambda value, arrays: labels_from_json(value),
    "array": lambda value, arrays: arrays[str(value)],
    "bytes": lambda value, arrays: arrays[str(value)].tobytes(),
    "tensor": lambda value, arrays: sys.modules["torch"].from_numpy(arrays[str(value)].copy()),
}
