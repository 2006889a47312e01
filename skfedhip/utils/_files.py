"""Named arrays and a JSON header in one safetensors file, written atomically, without pickles."""

import json
import os
import tempfile
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save


def write_tensors(path, header, tensors):
    """Write arrays and a header; the file is whole or as it was.

    Parameters
    ----------
    path : str or path-like
    header : dict
        Of what JSON can hold, and numpy scalars.
    tensors : dict of ndarray

    Raises
    ------
    ValueError
        If the header holds anything else, such as a callable.
    """
    tensors = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    write_atomically(path, save(tensors, metadata={"skfedhip": _to_json(header)}))


def read_tensors(path, file_format):
    """Read what :func:`write_tensors` wrote with this ``format`` in its header.

    Returns
    -------
    header : dict
    tensors : dict of ndarray

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is damaged or of another format.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path} is not a file; pass a path that save wrote.")
    try:
        with safe_open(path, framework="np") as file:
            header = json.loads((file.metadata() or {}).get("skfedhip", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is damaged or not written by save: {error}.") from error
    if header.get("format") != file_format:
        raise ValueError(
            f"{path} is of format {header.get('format')}, this version reads {file_format}; save "
            "it anew with the version that wrote it."
        )
    return header, tensors


def header_of(data, key):
    """The JSON that a safetensors file, here its bytes, has under a key of its metadata.

    Whoever reads bytes of strangers bounds the header's length, the first eight bytes, before.
    """
    size = int.from_bytes(data[:8], "little")
    return json.loads(json.loads(data[8 : 8 + size])["__metadata__"][key])


def labels_to_json(labels):
    """Class labels or ids as JSON; dates as the integers they are stored as."""
    if labels.dtype.kind in "mM":
        return {"dtype": labels.dtype.str, "values": labels.view(np.int64).tolist()}
    return {"dtype": labels.dtype.str, "values": labels.tolist()}


def labels_from_json(stored):
    """What :func:`labels_to_json` took apart."""
    dtype = np.dtype(stored["dtype"])
    if dtype.kind in "mM":
        return np.array(stored["values"], dtype=np.int64).view(dtype)
    return np.array([*stored["values"], None], dtype=object)[:-1].astype(dtype)


def prefixed(prefix, arrays):
    """The arrays with a prefix and a dot before their names."""
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def only_of(prefix, arrays):
    """The arrays under a prefix, without it."""
    start = f"{prefix}."
    return {n.removeprefix(start): array for n, array in arrays.items() if n.startswith(start)}


def _to_json(header):
    def plain(value):
        if isinstance(value, np.generic) and not isinstance(value, np.datetime64 | np.timedelta64):
            return value.item()
        raise ValueError(
            f"{value!r} can't be written without pickle; use numbers, strings and names instead."
        )

    return json.dumps(header, default=plain)


def check_writable(directory):
    """OSError in one sentence unless files can be made in a directory, or it can be made."""
    directory = Path(directory)
    try:
        at = next(path for path in (directory, *directory.absolute().parents) if path.exists())
        with tempfile.TemporaryFile(dir=at):
            pass
    except OSError as error:
        raise OSError(
            f"No files can be written in {str(directory)!r} ({error.strerror}); name another "
            "directory."
        ) from None


def write_atomically(path, data):
    """Write bytes; whoever reads, even after a crash, finds the old content or the new."""
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {str(path.parent)!r}; make it first.")
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
