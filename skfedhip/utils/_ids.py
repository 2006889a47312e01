"""Client ids: any hashable scalars, checked, sorted and looked up."""

import numbers

import numpy as np


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
        raise _nan_error(np.flatnonzero(np.isnan(array))[0])
    if array.dtype.kind in "mM" and np.isnat(array).any():
        raise _nan_error(np.flatnonzero(np.isnat(array))[0])
    if array.dtype.kind == "S":
        return array.astype(np.str_)
    return _narrow(array, allow_none) if array.dtype.kind in "OT" else array


def _nan_error(row):
    return ValueError(f"groups has a missing client id (NaN) in row {row}; give every row an id.")


def _narrow(array, allow_none):
    """A typed array for the ids of an object array, where one type holds them all exactly."""
    values = array.tolist()
    types = set(map(type, values))
    _check_values(values, types, allow_none)
    for dtype, kinds in (
        (np.str_, str),
        (np.int64, numbers.Integral),
        (np.float64, float | np.floating),
    ):
        if types and all(issubclass(t, kinds) and t is not bool for t in types):
            try:
                return np.array(values, dtype=dtype)
            except OverflowError:  # an int beyond 64 bits
                break
    return object_array(values)


def _check_values(values, types, allow_none):
    nulls = {t for t in types if t.__name__ in {"NAType", "NaTType"}}
    if nulls or any(issubclass(t, float | np.floating) for t in types):
        for row, value in enumerate(values):
            if type(value) in nulls or value != value:
                raise _nan_error(row)
    if type(None) in types and not allow_none:
        row = values.index(None)
        raise ValueError(f"groups has no client id (None) in row {row}; give every row an id.")
    for t in types:
        if t.__hash__ is None or issubclass(t, tuple):
            raise TypeError(
                "every client id argument must be a string, a number or another hashable scalar, "
                f"got a {t.__name__}; convert the ids."
            )


def encode_ids(ids):
    """Sorted distinct ids and, row by row, which one it is: (clients (K,), codes (n,))."""
    if ids.dtype.kind != "O":
        return np.unique(ids, return_inverse=True)
    clients = sort_ids(set(ids.tolist()))
    return clients, lookup_ids(clients, ids)


def sort_ids(ids):
    """Distinct ids as a sorted array: by value, ids of different kinds by kind."""
    ids = list(ids)
    try:
        ids = sorted(ids)
    except TypeError:
        ids = sorted(ids, key=lambda i: (not isinstance(i, numbers.Number), type(i).__name__, i))
    return _narrow(object_array(ids), allow_none=True)


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
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


def lookup_ids(clients, ids):
    """Position of each id among the sorted ``clients``, -1 where it is not one of them."""
    kinds = {clients.dtype.kind, ids.dtype.kind}
    if len(clients) and (len(kinds) == 1 or kinds <= set("if")) and "O" not in kinds:
        at = np.minimum(np.searchsorted(clients, ids), len(clients) - 1)
        return np.where(clients[at] == ids, at, -1)
    position = {client: k for k, client in enumerate(clients.tolist())}
    return np.fromiter((position.get(i, -1) for i in ids.tolist()), np.intp, len(ids))


def check_same_kind(clients, ids):
    """Refuse strings where the clients were fitted as numbers, and the other way round."""
    known, given = _kind(clients), _kind(ids)
    if known and given and known != given:
        raise ValueError(
            f"client ids were {known} at fit and are {given} now, for example "
            f"{clients[0]!r} and {ids[0]!r}; convert one to the type of the other."
        )


def _kind(ids):
    if ids.dtype.kind in "iufb" and len(ids):
        return "numbers"
    return "strings" if ids.dtype.kind == "U" and len(ids) else None


def id_bytes(client):
    """The bytes that key a client's own random numbers; equal ids give equal bytes."""
    if isinstance(client, numbers.Integral) or (isinstance(client, float) and client.is_integer()):
        client = int(client)
    return f"{'s' if isinstance(client, str) else 'n'}:{client}".encode()
