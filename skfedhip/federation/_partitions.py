"""Dask collections as lists of partitions, and one partition as a block of clients."""

from dataclasses import dataclass

import numpy as np
from dask.delayed import Delayed, delayed
from sklearn.base import clone
from sklearn.utils.validation import _check_sample_weight, check_consistent_length

from ..core import ClientBlock
from ..utils._columns import group_position, take_group_column
from ..utils._ids import as_ids, concatenate_ids, encode_ids, object_array


def cut(estimator, X, y, groups, sample_weight):
    """Partitions of collections that lie side by side, lazy: dicts with X, and ones without.

    Ids that ``group_column`` names are taken out of X, so that they can be read without the rest.

    Returns
    -------
    rows, labels : list of Delayed
        One dict a partition, from the names of the arguments that are given to their parts; in
        ``labels`` there is no X.
    """
    if groups is None and estimator.group_column is not None:
        groups = _group_column(estimator, X)
    named = {"X": X, "y": y, "groups": groups, "sample_weight": sample_weight}
    given = {name: each for name, each in named.items() if each is not None}
    given = align(given, allow_nd=estimator._allow_nd)
    rows = _packed(given)
    labels = _packed({name: each for name, each in given.items() if name != "X"})
    if len(labels) != len(rows):  # few columns of small files were fused into fewer partitions
        labels = rows
    return rows, labels


def _packed(given):
    """The collections partition by partition, as Delayed dicts."""
    if all(hasattr(each, "map_partitions") and not is_array(each) for each in given.values()):
        return _packed_frames(given)
    lists = {name: _as_delayed(each) for name, each in given.items()}
    first, *others = lists
    for name in others:
        _check_as_many(first, len(lists[first]), name, len(lists[name]))
    return [
        delayed(_pack)(*parts, names=list(lists)) for parts in zip(*lists.values(), strict=True)
    ]


def _packed_frames(given):
    """Frames that come of one source are packed in the task that reads it, once."""
    import dask.dataframe as dd

    first, *others = given
    for name in others:
        _check_as_many(first, given[first].npartitions, name, given[name].npartitions)
    packed = dd.map_partitions(
        _pack,
        *given.values(),
        names=list(given),
        meta=("packed", object),
        align_dataframes=False,
        enforce_metadata=False,
    )
    return packed.to_delayed(optimize_graph=True)


def _pack(*parts, names):
    return dict(zip(names, parts, strict=True))


def _check_as_many(name, n, other, n_other):
    if n != n_other:
        raise ValueError(
            f"{name} has {n} partitions and {other} has {n_other}; cut both alike, for example by "
            "taking both from one DataFrame."
        )


def _check_lazy(name, each):
    is_list = isinstance(each, list | tuple) and each and all(isinstance(p, Delayed) for p in each)
    if not is_list and not hasattr(each, "to_delayed"):
        raise TypeError(
            f"{name} must be a Dask array, DataFrame or Series, or a list of Delayed objects, one "
            f"a partition, got {type(each).__name__}; for data in memory call the estimator itself."
        )


def _group_column(estimator, X):
    """The ids in a column of X, as lazy as X."""
    column, owner = estimator.group_column, type(estimator).__name__
    if isinstance(X, list | tuple):
        return [delayed(take_group_column)(part, column, owner) for part in X]
    at = group_position(X, column, X.shape[1], owner)
    return X[X.columns[at]] if hasattr(X, "columns") else X[:, at]


def is_array(each):
    """Whether it is a Dask array."""
    return hasattr(each, "chunks") and hasattr(each, "rechunk")


def align(given, *, allow_nd=False):
    """Collections checked; arrays cut by rows alone, in the same places where these are known."""
    for name, each in given.items():
        _check_lazy(name, each)
    X = given["X"]
    if not is_array(X):
        return given
    if len(X.shape) != 2 and not allow_nd:
        raise ValueError(f"X must have two dimensions, got shape {X.shape}; one row a sample.")
    if max(X.numblocks[1:], default=1) > 1:
        given = {**given, "X": X.rechunk(dict.fromkeys(range(1, X.ndim), -1))}
    rows = X.chunks[0]
    for name, each in given.items():
        if is_array(each) and each.chunks[0] != rows and not np.isnan([*rows, *each.shape]).any():
            if sum(rows) != each.shape[0]:
                raise ValueError(f"X has {sum(rows)} rows, {name} has {each.shape[0]}.")
            given[name] = each.rechunk({0: rows})
    return given


def _as_delayed(collection):
    if isinstance(collection, list | tuple):
        return list(collection)
    return np.ravel(collection.to_delayed(optimize_graph=False)).tolist()


@dataclass(frozen=True)
class Census:
    """Who and what is in a partition.

    Attributes
    ----------
    n_rows : int
    labels : ndarray of shape (d,)
        Of rows of positive weight.
    totals : ndarray of shape (d,)
        Sum of weights of each label.
    clients : ndarray of shape (K,)
        Ids with rows that are fitted, sorted.
    counts : ndarray of shape (K,)
        Their rows.
    """

    n_rows: int
    labels: np.ndarray
    totals: np.ndarray
    clients: np.ndarray
    counts: np.ndarray


def take_census(estimator, partition):
    """Count a partition, which need not have X."""
    if not len(partition["y"]):
        return Census(0, *[np.empty(0)] * 4)
    y = estimator._validate_labels(partition["y"])
    ids, weight = _ids(partition, y), _weights(partition, y)
    kept = np.ones(len(y), dtype=bool) if weight is None else weight > 0
    labels, codes = np.unique(y[kept], return_inverse=True)
    totals = np.bincount(codes, None if weight is None else weight[kept], len(labels))
    if isinstance(getattr(estimator, "class_weight", None), dict):
        kept &= ~np.isin(y, [c for c, factor in estimator.class_weight.items() if factor == 0])
    clients, codes = encode_ids(ids[kept])
    return Census(len(y), labels, totals.astype(float), clients, np.bincount(codes))


def merge_labels(parts):
    """Distinct labels of all partitions, and the sum of weights of each."""
    parts = [part for part in parts if len(part.labels)]
    kinds = {part.labels.dtype.kind in "iufb" for part in parts}
    if len(kinds) > 1:
        raise ValueError("y has numbers in some partitions and strings in others; convert them.")
    if not parts:
        return np.empty(0), np.empty(0)
    labels, codes = np.unique(np.concatenate([p.labels for p in parts]), return_inverse=True)
    return labels, np.bincount(codes, np.concatenate([p.totals for p in parts]), len(labels))


def encode_clients(parts):
    """Distinct ids of all partitions, sorted, and which one each of the partitions' ids is."""
    return encode_ids(concatenate_ids(part.clients for part in parts))


def describe(estimator, partition):
    """The estimator with what it knows of X's columns, and an empty array like X."""
    X, _ = estimator._validate_rows(partition["X"], partition.get("groups"), reset=True)
    return estimator, X[:0]


def bare(estimator):
    """What a partition is read with: the parameters alone, silent about missing ids."""
    return clone(estimator).set_params(missing_groups="global")


@dataclass(frozen=True)
class Reader:
    """Reads partitions as blocks of clients.

    Attributes
    ----------
    estimator : PersonalizedClassifier
        Its parameters, and what it knows of X's columns.
    dtype : numpy dtype
        Of the features.
    classes : ndarray of shape (d,)
    class_factor : ndarray of shape (d,) or None
    """

    estimator: object
    dtype: np.dtype
    classes: np.ndarray
    class_factor: np.ndarray | None

    def read(self, counts, partition):
        """One partition as a ClientBlock of clients with so many rows."""
        X, y, ids = (partition.get(name) for name in ("X", "y", "groups"))
        X, y, ids = self.estimator._validate_training(X, y, ids, reset=False)
        if X.dtype != self.dtype:
            raise ValueError(
                f"X is {self.dtype} in its first partition and {X.dtype} in another; convert it."
            )
        weight = _weights(partition, X)
        clients, codes = encode_ids(ids)
        labels = np.minimum(np.searchsorted(self.classes, y), len(self.classes) - 1)
        block = ClientBlock.from_arrays(
            X, labels, codes, clients, len(self.classes), weight, self.class_factor
        )
        same_labels = np.array_equal(self.classes[block.y], y[block.row_index])
        if not (same_labels and np.array_equal(block.counts, counts)):
            raise ValueError(
                "a partition did not read the same twice; give what makes it a fixed seed, or "
                "persist it."
            )
        return block


def _ids(partition, y):
    groups = partition.get("groups")
    return object_array([None] * len(y)) if groups is None else as_ids(groups, len(y))


def _weights(partition, X):
    weight = partition.get("sample_weight")
    if weight is None:
        return None
    check_consistent_length(X, weight)
    if not np.any(weight):
        return np.zeros(len(X))  # of one partition, that is no error
    return _check_sample_weight(weight, X, dtype=np.float64, ensure_non_negative=True)
