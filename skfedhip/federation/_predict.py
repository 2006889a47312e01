"""A method of a fitted estimator, mapped over the partitions of collections."""

import numpy as np
from dask.delayed import delayed
from sklearn.utils.validation import check_is_fitted

from ._partitions import align, is_array


def map_rows(estimator, name, X, groups):
    """``estimator.name(X, groups=groups)``, lazily, as the kind of collection that X is."""
    check_is_fitted(estimator)
    if groups is None and estimator.group_column is None:
        estimator._on_missing_groups(f"{name} got no client ids")
    given = {"X": X} if groups is None else {"X": X, "groups": groups}
    given = align(given, allow_nd=estimator._allow_nd)
    X, groups = given["X"], given.get("groups")
    d = len(estimator.classes_)
    flat = name == "predict" or (name == "decision_function" and d == 2)
    scorer = _Scorer(name, None if flat else d, _dtype(estimator, name, X))
    model = delayed(_quiet(estimator), traverse=False)
    if isinstance(X, list):
        groups = groups or [None] * len(X)
        return [delayed(scorer)(*each, model) for each in zip(X, groups, strict=True)]
    if is_array(X):
        return _map_array(scorer, X, groups, model)
    return X.map_partitions(scorer, groups, model, meta=scorer.like(X._meta, estimator.classes_))


def _quiet(estimator):
    """What workers need to predict: silent, since a partition's ids may all be unknown."""
    estimator = estimator._light()
    if estimator.missing_groups == "warn":
        estimator.missing_groups = "global"
    return estimator


def _dtype(estimator, name, X):
    if name == "predict":
        return estimator.classes_.dtype
    dtypes = (
        [X.dtype] if is_array(X) else getattr(X, "dtypes", [getattr(estimator, "_dtype", float)])
    )
    return np.dtype("f4" if all(dtype == np.float32 for dtype in dtypes) else "f8")


def _map_array(scorer, X, groups, model):
    import dask.array as da

    out = "i" if scorer.n_columns is None else "ic"
    row = "jklmno"[: X.ndim - 1]
    return da.blockwise(
        scorer,
        out,
        X,
        f"i{row}",
        groups,
        None if groups is None else "i",
        model=model,
        dtype=scorer.dtype,
        new_axes={} if scorer.n_columns is None else {"c": scorer.n_columns},
        concatenate=True,
        align_arrays=False,
        meta=np.empty((0,) * len(out), dtype=scorer.dtype),
    )


class _Scorer:
    """Predicts for one partition.

    Parameters
    ----------
    name : str
        Of the method.
    n_columns : int or None
        None for one number a row.
    dtype : numpy dtype
    """

    def __init__(self, name, n_columns, dtype):
        self.name, self.n_columns, self.dtype = name, n_columns, dtype

    def __call__(self, X, groups, model):
        if len(X):
            out = getattr(model, self.name)(X, groups=groups).astype(self.dtype, copy=False)
        else:
            out = np.empty((0,) if self.n_columns is None else (0, self.n_columns), self.dtype)
        return self._labelled(out, X, model.classes_) if hasattr(X, "columns") else out

    def like(self, meta, classes):
        """An empty answer to an empty partition."""
        out = np.empty((0,) if self.n_columns is None else (0, self.n_columns), self.dtype)
        return self._labelled(out, meta, classes)

    def _labelled(self, out, X, classes):
        import pandas as pd

        if self.n_columns is None:
            return pd.Series(out, index=X.index)
        return pd.DataFrame(out, index=X.index, columns=classes)
