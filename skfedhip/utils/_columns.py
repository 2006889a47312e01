"""The column of X that holds client ids."""

from numbers import Integral

import numpy as np
from sklearn.utils import _safe_indexing

from ._ids import as_ids


def take_group_column(X, column, owner):
    """Client ids in a column of X, whose other columns may hold anything.

    Parameters
    ----------
    X : array-like of shape (n, m)
        Array, list of rows, or DataFrame.
    column : int or str
        Position, or name of a DataFrame's column.
    owner : str
        Whose ``group_column`` it is, for error messages.

    Returns
    -------
    ndarray of shape (n,)

    Raises
    ------
    ValueError
        If X has no such column, or an id is missing.
    """
    if not hasattr(X, "columns"):
        # A list's ids stay what they are: in one array with floats, large ints would not.
        X = np.asarray(X, dtype=object if isinstance(X, list | tuple) else None)
    check_has_columns(X, column, owner)
    return as_ids(_safe_indexing(X, group_position(X, column, X.shape[1], owner), axis=1), len(X))


def check_has_columns(X, column, owner):
    """Check that X is a table."""
    if len(X.shape) != 2:
        raise ValueError(
            f"group_column={column!r} of {owner} names a column, but X has shape {X.shape}; pass X "
            "with two dimensions, or the clients as groups."
        )


def group_position(X, column, n_columns, owner):
    """Position of the id column that an int, or the name of a DataFrame's column, means."""
    wrong = f"group_column={column!r} of {owner}"
    if isinstance(column, Integral):
        if -n_columns <= column < n_columns:
            return int(column) % n_columns
        raise ValueError(
            f"{wrong} is not a column of X, which has {n_columns}; pass a position between "
            f"{-n_columns} and {n_columns - 1}."
        )
    if not hasattr(X, "columns"):
        raise ValueError(
            f"{wrong} names a column, but X is an array without names; pass a DataFrame or "
            "the column's position, and in a Pipeline, whose steps return arrays, the position or "
            "set_output(transform='pandas')."
        )
    names = list(X.columns)
    if names.count(column) != 1:
        raise ValueError(f"{wrong} must be one of X's columns, which are {names}; check the name.")
    return names.index(column)
