"""Per-client scores of any classifiers, on the same folds."""

import numpy as np
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import check_cv
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.validation import _num_samples

from ..metrics._scorer import named, score_clients, takes_groups
from ..model_selection import ClientShuffleSplit
from ..utils._ids import as_ids, encode_ids, lookup_ids


def compare(estimators, X, y, groups, cv=None, scoring="accuracy"):
    """Score classifiers client by client, all on the same folds.

    Each estimator is cloned and fitted on the training rows of each fold, and scored on the test
    rows of each client. Estimators that take ``groups``, also inside Pipelines and searches, get
    the ids at fit and at prediction; all others do without. Metadata routing is on meanwhile, so
    nobody needs to turn it on.

    Parameters
    ----------
    estimators : dict of str to estimator, or estimator
        Unfitted classifiers by name, personalized ones or any of scikit-learn's.
    X : array-like of shape (n_samples, n_features)
        Rows of all clients. All estimators get the same X: where it has a column of ids, each of
        them must know it, by its ``group_column`` or by a first step that drops it.
    y : array-like of shape (n_samples,)
        Class labels.
    groups : array-like of shape (n_samples,)
        Client id of each row: strings, numbers, any hashable scalars.
    cv : int, splitter or iterable, default=None
        Cuts the rows into training and test rows, the same for all estimators: whatever
        scikit-learn takes as ``cv``. None holds out a quarter of each client's rows once, by
        ``ClientShuffleSplit(random_state=0)``.
    scoring : str or callable, default="accuracy"
        As in :func:`skfedhip.metrics.make_client_scorer`.

    Returns
    -------
    pandas.DataFrame of shape (n_clients, n_estimators)
        One row a client, in sorted order, and one column an estimator: the mean of the client's
        scores over the folds that test it, each fold counted once. NaN for a client that no fold
        tests.

    Raises
    ------
    ValueError
        If ``estimators`` is empty, an id is missing, or ``scoring`` is unknown.
    ImportError
        If pandas is not installed.

    See Also
    --------
    skfedhip.metrics.ClientScoreDisplay : A plot of such scores.
    skfedhip.model_selection.ClientKFold : Folds that test every row once.

    Examples
    --------
    >>> from sklearn.linear_model import RidgeClassifier
    >>> from skfedhip import FedHiPClassifier
    >>> from skfedhip.benchmark import compare
    >>> from skfedhip.datasets import make_federated_classification
    >>> X, y, clients = make_federated_classification(
    ...     n_samples=3000, client_shift=1.0, random_state=0
    ... )
    >>> models = {
    ...     "global": RidgeClassifier(),
    ...     "FedHiP": FedHiPClassifier(alpha=10.0, fit_intercept=True),
    ... }
    >>> compare(models, X, y, clients).mean().round(2).to_dict()
    {'global': 0.81, 'FedHiP': 0.85}
    """
    try:
        from pandas import DataFrame, Index
    except ImportError as error:
        raise ImportError(
            "compare needs pandas; install it with pip install 'skfedhip[plot]'."
        ) from error
    estimators = named(estimators, type(estimators).__name__)
    X, y = indexable(X, y)
    ids = as_ids(groups, _num_samples(X))
    clients, _ = encode_ids(ids)
    totals = {name: np.zeros(len(clients)) for name in estimators}
    n_folds = np.zeros(len(clients))
    with config_context(enable_metadata_routing=True):
        for train, test in _folds(cv, X, y, ids):
            n_folds[lookup_ids(clients, encode_ids(ids[test])[0])] += 1
            for name, estimator in estimators.items():
                result = _fit_and_score(clone(estimator), X, y, ids, train, test, scoring)
                totals[name][lookup_ids(clients, result.clients)] += result.scores
    n_folds[n_folds == 0] = np.nan
    means = {name: total / n_folds for name, total in totals.items()}
    return DataFrame(means, index=Index(clients, name="client"))


def _folds(cv, X, y, ids):
    cv = check_cv(ClientShuffleSplit(random_state=0) if cv is None else cv, y, classifier=True)
    routed = hasattr(cv, "get_metadata_routing")
    if not routed or get_routing_for_object(cv).consumes("split", ["groups"]):
        return cv.split(X, y, groups=ids)
    return cv.split(X, y)


def _fit_and_score(estimator, X, y, ids, train, test, scoring):
    X_train, y_train = _safe_indexing(X, train), _safe_indexing(y, train)
    params = {"groups": ids[train]} if takes_groups(estimator, "fit") else {}
    estimator.fit(X_train, y_train, **params)
    X_test, y_test = _safe_indexing(X, test), _safe_indexing(y, test)
    return score_clients(estimator, X_test, y_test, ids[test], scoring=scoring)
