"""Fit and predict on Dask collections: rows stay where they are, small things travel.

Functions rather than wrappers: what comes back from :func:`fit` is the very estimator that a
scikit-learn user knows, so it predicts, saves, exports and personalizes anywhere, and its
parameters are tuned on a sample in memory and used on the cluster unchanged.
"""

from math import prod

try:
    from dask.delayed import delayed
except ImportError as error:
    raise ImportError(
        "skfedhip.federation.dask needs Dask; install it with pip install 'skfedhip[dask]'."
    ) from error

from ..federated import FederatedMixin
from ._partitions import Reader, bare, cut, describe, merge_labels, take_census
from ._plan import plan_blocks
from ._predict import map_rows

__all__ = ["decision_function", "fit", "predict", "predict_proba"]


def fit(estimator, X, y, *, groups=None, sample_weight=None):
    """Fit an estimator on Dask collections; the same numbers as its own ``fit`` on all rows.

    Each partition is read where it lies and turned into updates, which are added up in a tree;
    clients are personalized by the worker that has their rows. A client may span partitions: of a
    closed form it is then personalized from the root of its Gram matrix, to which each partition
    contributes, or from its rows where these are fewer numbers than the root; a gradient method
    has its rows brought to one worker. Rows that are trained on for many rounds stay with the
    workers meanwhile. The result does not depend on which
    worker did what, and a worker that is lost is made up for by the others.

    Rows are read once for the labels and ids, and for the features once by a gradient method, or
    two or three times in all by a closed form; ``persist`` collections that fit in the cluster's
    memory and are slow to make.

    Parameters
    ----------
    estimator : estimator of :mod:`skfedhip.analytic` or :mod:`skfedhip.gradient`
        Fitted in place; ``n_jobs`` plays no part.
    X : dask.array.Array of shape (n, m), or of images, dask.dataframe.DataFrame, or list of Delayed
        Rows of all clients, in any order; with ``group_column``, including that column. A list
        has one Delayed a partition, each an array or DataFrame. Reading a partition twice must
        give the same rows.
    y : dask.array.Array of shape (n,), dask.dataframe.Series, or list of Delayed
        Class labels, cut as X is.
    groups : as y, default=None
        Client id of each row.
    sample_weight : as y, default=None
        Weights >= 0.

    Returns
    -------
    estimator
        The fitted estimator, in this process, with its personal models.

    Raises
    ------
    TypeError
        If the estimator is none of these, or a collection is not Dask's.
    ValueError
        If partitions do not match; if a parameter takes all rows in one place: ``cv``,
        ``validation_fraction``, ``checkpoint``, ``warm_start``; or if an estimator that tunes or
        trains itself, or clips rows for ``privacy``, has a client whose rows no worker could hold.

    See Also
    --------
    predict : Predict over collections, lazily.

    Notes
    -----
    The scheduler in force is used: the cluster of the current ``distributed.Client`` if there is
    one, else threads of this process. Warnings about a single client's system appear in the
    workers' logs.

    Examples
    --------
    >>> import dask.array as da
    >>> from skfedhip import FedHiPClassifier
    >>> from skfedhip.datasets import make_federated_classification
    >>> from skfedhip.federation import dask as on_dask
    >>> X, y, groups = make_federated_classification(random_state=0)
    >>> X, y, groups = (da.from_array(each, chunks=(500, -1)[: each.ndim])
    ...                 for each in (X, y, groups))
    >>> clf = on_dask.fit(FedHiPClassifier(alpha=5.0), X, y, groups=groups)
    >>> clf.personal_coef_.shape
    (20, 5, 20)
    >>> predicted = on_dask.predict(clf, X, groups=groups)
    >>> float((predicted == y).mean().compute()) > 0.8
    True
    """
    _check_estimator(estimator, sample_weight)
    rows, labels = cut(estimator, X, y, groups, sample_weight)
    if groups is None and estimator.group_column is None:
        instead = "all rows are taken as one client"
        estimator._on_missing_groups("fit got no client ids", instead)
    with estimator._all_or_nothing():
        _fit_partitions(estimator, rows, labels)
    return estimator


def _check_estimator(estimator, sample_weight):
    if not isinstance(estimator, FederatedMixin):
        raise TypeError(
            f"estimator must be a classifier of skfedhip, got {type(estimator).__name__}; others "
            "fit in memory."
        )
    estimator._validate_params()
    estimator._check_apart(sample_weight is not None)


def _fit_partitions(estimator, rows, labels):
    reader = bare(estimator)
    censuses = _take_censuses(reader, labels)
    classes, totals = merge_labels(censuses)
    counted = [pair for pair in zip(rows, censuses, strict=True) if pair[1].counts.size]
    partitions, censuses = zip(*counted, strict=True)
    reader, like = delayed(describe)(reader, partitions[0]).compute()
    for name in ("n_features_in_", "feature_names_in_"):
        vars(estimator).pop(name, None)
        if hasattr(reader, name):
            setattr(estimator, name, getattr(reader, name))
    factor, width, compress_with = estimator._begin_apart(like, classes, totals)
    clients, blocks = plan_blocks(
        Reader(reader, like.dtype, classes, factor),
        prod(like.shape[1:]),
        partitions,
        censuses,
        width=width,
        compress_with=compress_with,
    )
    estimator._fit_apart(clients, blocks)


def _take_censuses(reader, labels):
    shared = delayed(reader, traverse=False)
    counts = [delayed(take_census)(shared, partition) for partition in labels]
    censuses = delayed(list)(counts).compute()
    if not any(census.n_rows for census in censuses):
        raise ValueError("X has no rows; check the partitions.")
    if not any(census.counts.size for census in censuses):
        raise ValueError(
            "sample_weight and class_weight are zero in all rows; give some row a positive weight."
        )
    return censuses


def predict(estimator, X, *, groups=None):
    """Predict the class of each row with its client's personal model, lazily.

    Parameters
    ----------
    estimator : estimator of :mod:`skfedhip.analytic` or :mod:`skfedhip.gradient`
        Fitted, here or in memory.
    X : dask.array.Array of shape (n, m), dask.dataframe.DataFrame, or list of Delayed
        Rows to classify; with ``group_column``, including that column.
    groups : collection cut as X is, default=None
        Client id of each row; unknown clients get the global model, or are an error where
        ``missing_groups`` says so.

    Returns
    -------
    dask.array.Array or dask.dataframe.Series of shape (n,), or list of Delayed
        Class labels, as the kind of collection that X is; a Series has X's index.

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> import pandas as pd
    >>> from skfedhip import AFLClassifier
    >>> from skfedhip.datasets import make_federated_classification
    >>> from skfedhip.federation import dask as on_dask
    >>> X, y, groups = make_federated_classification(random_state=0)
    >>> table = pd.DataFrame(X).add_prefix("x").assign(client=groups)
    >>> clf = AFLClassifier(group_column="client").fit(table, y)
    >>> on_dask.predict(clf, dd.from_pandas(table, npartitions=4)).compute().shape
    (2000,)
    """
    return map_rows(estimator, "predict", X, groups)


def predict_proba(estimator, X, *, groups=None):
    """Predict the probabilities of the classes for each row, lazily.

    Parameters
    ----------
    estimator : estimator of :mod:`skfedhip.analytic` or :mod:`skfedhip.gradient`
        Fitted, here or in memory.
    X : dask.array.Array of shape (n, m), dask.dataframe.DataFrame, or list of Delayed
        Rows to score; with ``group_column``, including that column.
    groups : collection cut as X is, default=None
        Client id of each row; unknown clients get the global model.

    Returns
    -------
    dask.array.Array or dask.dataframe.DataFrame of shape (n, n_classes), or list of Delayed
        A DataFrame has the classes for columns.

    Examples
    --------
    >>> import dask.array as da
    >>> from skfedhip import FedHiPClassifier
    >>> from skfedhip.datasets import make_federated_classification
    >>> from skfedhip.federation import dask as on_dask
    >>> X, y, groups = make_federated_classification(random_state=0)
    >>> clf = FedHiPClassifier().fit(X, y, groups=groups)
    >>> proba = on_dask.predict_proba(clf, da.from_array(X), groups=da.from_array(groups))
    >>> proba.shape
    (2000, 5)
    """
    return map_rows(estimator, "predict_proba", X, groups)


def decision_function(estimator, X, *, groups=None):
    """Score each row with its client's personal model, lazily.

    Parameters
    ----------
    estimator : estimator of :mod:`skfedhip.analytic` or :mod:`skfedhip.gradient`
        Fitted, here or in memory.
    X : dask.array.Array of shape (n, m), dask.dataframe.DataFrame, or list of Delayed
        Rows to score; with ``group_column``, including that column.
    groups : collection cut as X is, default=None
        Client id of each row; unknown clients get the global model.

    Returns
    -------
    dask.array.Array or dask.dataframe.DataFrame of shape (n, n_classes), or list of Delayed
        As the estimator's own; of shape (n,) for two classes.

    Examples
    --------
    >>> import dask.array as da
    >>> from skfedhip import FedHiPClassifier
    >>> from skfedhip.datasets import make_federated_classification
    >>> from skfedhip.federation import dask as on_dask
    >>> X, y, groups = make_federated_classification(random_state=0)
    >>> clf = FedHiPClassifier().fit(X, y, groups=groups)
    >>> on_dask.decision_function(clf, da.from_array(X), groups=da.from_array(groups)).ndim
    2
    """
    return map_rows(estimator, "decision_function", X, groups)
