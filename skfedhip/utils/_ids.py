"""Client ids: any hashable scalars, checked, sorted and looked up."""

import datetime
import numbers
from contextlib import suppress

import numpy as np

_PLAIN = {str, int, bool, float, type(None)}


def as_ids(ids, n_rows, *, allow_none=False):
    """Client ids as a one-dimensional array whose dtype says what they are.

    Parameters
    ----------
    ids : array-like of shape (n_rows,)
        Strings, numbers, booleans, dates, or a mix; a pandas Series, Categorical or anything that
        numpy can read.
    n_rows : int
    allow_none : bool, default=False
        Whether None may stand for a row that has no client.

    Returns
    -------
    ndarray of shape (n_rows,)
        A numeric, string or datetime array where all ids are of that kind, else an object array.

    Raises
    ------
    ValueError
        If the length is wrong, or an id is NaN (or None, unless allowed).
    TypeError
        If an id is not a hashable scalar.
    """
    # numpy would turn a list of 1 and "a" into strings
    array = object_array(ids) if isinstance(ids, list | tuple) else np.asarray(ids)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or len(array) != n_rows:
        raise ValueError(
            f"groups must hold one client id for each of the {n_rows} rows, got shape "
            f"{array.shape}; pass a one-dimensional array as long as X."
        )
    if array.dtype.kind in "fc" and np.isnan(array).any():
        raise _nan_error(np.flatnonzero(np.isnan(array))[0], allow_none)
    if array.dtype.kind in "mM" and np.isnat(array).any():
        raise _nan_error(np.flatnonzero(np.isnat(array))[0], allow_none)
    if array.dtype.kind == "S":
        return array.astype(np.str_)
    if array.dtype.kind in "mM":
        micro = array.astype(f"{array.dtype.kind}8[us]")
        # Python's own dates have microseconds too: where they are exact, ids compare across types.
        exact = np.array_equal(micro, array)
        return micro if exact else _narrow(object_array(list(array)), allow_none)
    return _narrow(array, allow_none) if array.dtype.kind in "OT" else array


def _nan_error(row, allow_none):
    instead = ", or None (in a column of dtype object) for the global model" if allow_none else ""
    return ValueError(
        f"groups has a missing client id (NaN) in row {row}; give every row an id{instead}."
    )


def _narrow(array, allow_none):
    """A typed array for the ids of an object array, where one type holds them all exactly."""
    values = array.tolist()
    types = set(map(type, values))
    _check_values(values, types, allow_none)
    if types - _PLAIN:
        values = [value if type(value) in _PLAIN else _canonical(value) for value in values]
        types = set(map(type, values))
    if _all(types, str) and not any(value.endswith("\0") for value in values):
        return np.array(values, dtype=np.str_)  # numpy would drop nulls at the end
    if _all(types, numbers.Integral) and not types & {bool, np.timedelta64}:
        try:
            return np.array(values, dtype=np.int64)
        except OverflowError:
            return object_array(values)
    if _all(types, float | np.floating):
        return np.array(values, dtype=np.float64)
    if types == {datetime.datetime} and not any(value.tzinfo for value in values):
        return np.array(values, dtype="datetime64[us]")
    if types == {datetime.timedelta}:
        return np.array(values, dtype="timedelta64[us]")
    return object_array(values)


def _canonical(value):
    """The same id in one form: text as str, and dates as Python's own where that is exact."""
    if isinstance(value, bytes):
        return value.decode()
    for name in ("to_datetime64", "to_timedelta64"):  # pandas' scalars
        if hasattr(value, name) and getattr(value, "tzinfo", None) is None:
            value = getattr(value, name)()
    if isinstance(value, np.datetime64 | np.timedelta64):
        kind = "M8[us]" if isinstance(value, np.datetime64) else "m8[us]"
        micro = value.astype(kind)
        return micro.item() if micro == value else value
    if type(value) is datetime.date:
        return datetime.datetime(value.year, value.month, value.day)
    return value


def _all(types, kinds):
    return bool(types) and all(issubclass(t, kinds) for t in types)


def _check_values(values, types, allow_none):
    for t in types:
        if t.__hash__ is None or issubclass(t, tuple):
            raise TypeError(
                "every client id argument must be a string, a number or another hashable scalar, "
                f"got a {t.__name__}; convert the ids."
            )
    nulls = {t for t in types if t.__name__ in {"NAType", "NaTType"}}
    if nulls or types - {str, bytes, int, bool, type(None)}:
        for row, value in enumerate(values):
            if type(value) in nulls or value != value:
                raise _nan_error(row, allow_none)
    if type(None) in types and not allow_none:
        row = values.index(None)
        raise ValueError(f"groups has no client id (None) in row {row}; give every row an id.")


def encode_ids(ids):
    """Sorted distinct ids and, row by row, which one it is: (clients (K,), codes (n,))."""
    if ids.dtype.kind != "O":
        return np.unique(ids, return_inverse=True)
    clients = sort_ids(set(ids.tolist()))
    return clients, lookup_ids(clients, ids)


def sort_ids(ids):
    """Distinct ids as a sorted array: numbers by value, then others by kind and value."""

    def key(client):
        is_number = isinstance(client, numbers.Real)
        return (not is_number, "" if is_number else type(client).__name__, client)

    ids = [*ids]
    none = [client for client in ids if client is None]
    known = sorted((client for client in ids if client is not None), key=key)
    return _narrow(object_array([*known, *none]), allow_none=True)


def union_ids(a, b):
    """Sorted distinct ids of two sorted arrays."""
    if a.dtype.kind == b.dtype.kind != "O":
        return np.union1d(a, b)
    return sort_ids({*a.tolist(), *b.tolist()})


def concatenate_ids(arrays):
    """Ids one after another; numbers do not become strings beside strings."""
    arrays = list(arrays)
    if len({array.dtype.kind for array in arrays}) == 1:
        return np.concatenate(arrays)
    return object_array([client for array in arrays for client in array.tolist()])


def object_array(values):
    """A one-dimensional object array of the values as they are, whatever they are."""
    return np.fromiter(values, dtype=object, count=len(values))


def lookup_ids(clients, ids):
    """Position of each id among the sorted ``clients``, -1 where it is not one of them."""
    kinds = {clients.dtype.kind, ids.dtype.kind}
    if len(clients) and len(kinds) == 1 and "O" not in kinds:
        at = np.minimum(np.searchsorted(clients, ids), len(clients) - 1)
        return np.where(clients[at] == ids, at, -1)
    if "M" in kinds and "O" not in kinds:
        return np.full(len(ids), -1)  # numpy stores dates as integers, but they are none
    position = {client: k for k, client in enumerate(clients.tolist())}
    return np.fromiter((position.get(i, -1) for i in ids.tolist()), np.intp, len(ids))


def check_same_kind(clients, ids):
    """Refuse strings where the clients were fitted as numbers, and the other way round."""
    known, given = _kind(clients), _kind(ids)
    if known and given and known != given:
        raise ValueError(
            f"client ids were {known} at fit and are {given} now, for example "
            f"{clients.tolist()[0]!r} and {ids.tolist()[0]!r}; "
            "convert one to the type of the other."
        )


def _kind(ids):
    if not len(ids):
        return None
    if ids.dtype.kind in "iufb":
        return "numbers"
    types = set(map(type, ids.tolist())) - {type(None)} if ids.dtype.kind == "O" else set()
    if _all(types, numbers.Number):
        return "numbers"
    return "strings" if ids.dtype.kind == "U" or _all(types, str) else None


def id_bytes(client):
    """The bytes that key a client's own random numbers; equal ids give equal bytes."""
    if isinstance(client, np.generic):
        client = client.item()
    if isinstance(client, numbers.Number):
        with suppress(OverflowError, TypeError, ValueError):  # infinite, complex, not a number
            client = int(client) if client == int(client) else client
    kind = "s" if isinstance(client, str) else "n"
    return f"{kind}:{client}".encode("utf-8", "surrogatepass")
