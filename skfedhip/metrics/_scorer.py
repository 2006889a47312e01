"""Scorers for model selection that score client by client."""

from inspect import signature
from numbers import Real

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator
from sklearn.utils import column_or_1d
from sklearn.utils.metadata_routing import UNUSED, get_routing_for_object

from ..utils._columns import take_group_column
from ..utils._ids import lookup_ids
from ._client import _METRICS, client_scores, client_summary

_AVERAGES = {"macro": "mean", "weighted": "weighted_mean", "min": "min"}


def make_client_scorer(scoring="accuracy", average="macro", *, group_column=None):
    """Make a scorer that scores every client on its own rows, then averages over clients.

    The result goes where scikit-learn takes ``scoring``: into a grid search, ``cross_validate``
    and the like. Unlike scikit-learn's own scorers it hands the client ids to ``predict``, so that
    a personalized classifier is scored by its personal models, not by its global one.

    Parameters
    ----------
    scoring : str or callable, default="accuracy"
        One of the names that :func:`client_scores` knows, "neg_log_loss", or a function
        ``metric(y_true, y_pred)`` of one client's true and predicted labels that returns a number,
        larger for better.
    average : {"macro", "weighted", "min"} or float, default="macro"
        How one number comes of many:

        - "macro": the mean, each client counts once
        - "weighted": the mean, each row counts once
        - "min": the worst client
        - a float from 0 to 1: this quantile of the clients, 0.5 for the median

    group_column : int or str, default=None
        Column of X that holds the client ids, where there is one and no ``group_column`` of the
        estimator says so. See the notes.

    Returns
    -------
    callable
        ``scorer(estimator, X, y, *, groups=None)``, which returns a float, larger for better. It
        can be pickled and cloned, and has scikit-learn's ``set_score_request``.

    Raises
    ------
    ValueError
        If ``scoring`` or ``average`` is none of the above. When called: if there are no client ids,
        or the score of a client is not finite.

    See Also
    --------
    client_scores : Score the predictions of each client.
    client_summary : Mean, spread and tail of the scores.
    skfedhip.model_selection.ClientKFold : Folds in which every client is tested.

    Notes
    -----
    The ids come, in this order, from

    1. ``groups``: under ``sklearn.set_config(enable_metadata_routing=True)`` the scorer requests
       them by itself. They are handed to the estimator's predictions where it takes them; an
       estimator that does not, such as LogisticRegression, predicts as ever. Of a fitted search,
       ``best_estimator_`` predicts, since searches do not pass groups on;
    2. the column of X that ``group_column`` names;
    3. the column of X that the estimator's own ``group_column`` names. In a Pipeline, the first
       step that has one counts. Where an earlier step moves or drops columns, that may be another
       column of X: then name it here.

    "neg_log_loss" needs ``predict_proba``. Probabilities are clipped as in scikit-learn's
    ``log_loss``, and a label that the estimator has never seen has probability 0.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import GridSearchCV
    >>> from skfedhip import FedHiPClassifier
    >>> from skfedhip.datasets import make_federated_classification
    >>> from skfedhip.metrics import make_client_scorer
    >>> from skfedhip.model_selection import ClientKFold
    >>> X, y, clients = make_federated_classification(random_state=0)
    >>> X = np.column_stack([clients, X])  # column 0 is the client id
    >>> grid = GridSearchCV(
    ...     FedHiPClassifier(group_column=0),
    ...     {"alpha": [0.1, 10]},
    ...     scoring=make_client_scorer(average="min"),
    ...     cv=ClientKFold(3, group_column=0),
    ... )
    >>> grid.fit(X, y).best_params_
    {'alpha': 10}
    """
    if not callable(scoring) and scoring not in (known := [*sorted(_METRICS), "neg_log_loss"]):
        raise ValueError(
            f"scoring must be one of {known} or a function of y_true and y_pred, got {scoring!r}; "
            "pass one of these."
        )
    share = isinstance(average, Real) and not isinstance(average, bool) and 0 <= average <= 1
    if not share and not (isinstance(average, str) and average in _AVERAGES):
        raise ValueError(
            f"average must be one of {list(_AVERAGES)} or a quantile from 0 to 1, got {average!r}; "
            "pass one of these."
        )
    return ClientScorer(scoring, average, group_column)


class ClientScorer(BaseEstimator):
    """What :func:`make_client_scorer` makes.

    An estimator only for what that brings along: parameters that can be cloned, and a request for
    groups that can be set.
    """

    __metadata_request__score = {"groups": True, "estimator": UNUSED}

    def __init__(self, scoring="accuracy", average="macro", group_column=None):
        self.scoring = scoring
        self.average = average
        self.group_column = group_column

    def __call__(self, estimator, X, y, *, groups=None):
        """Score an estimator: the average over clients, a float."""
        return self.score(estimator, X, y, groups=groups)

    def score(self, estimator, X, y, *, groups=None):
        """Score an estimator; under this name scikit-learn looks for a scorer's request."""
        result = score_clients(
            estimator, X, y, groups, scoring=self.scoring, group_column=self.group_column
        )
        summary = client_summary(result)
        if isinstance(self.average, str):
            return summary[_AVERAGES[self.average]]
        return float(np.quantile(result.scores, self.average))

    def _accept_sample_weight(self):
        return False  # asked by scikit-learn's multimetric scoring


def score_clients(estimator, X, y, groups=None, *, scoring="accuracy", group_column=None):
    """Score a fitted estimator on each client's rows: ClientScores."""
    ids = _column_ids(estimator, X, group_column) if groups is None else groups
    if isinstance(scoring, str) and scoring == "neg_log_loss":
        proba = predict_rows(estimator, "predict_proba", X, groups)
        likelihood = _log_likelihood(y, np.asarray(proba), estimator.classes_)
        return client_scores(y, likelihood, ids, lambda _, row_scores: row_scores.mean())
    return client_scores(y, predict_rows(estimator, "predict", X, groups), ids, scoring)


def named(several, name):
    """Things by name: a dict as it is, or a single one under the given name."""
    if isinstance(several, list | tuple) and any(hasattr(each, "predict") for each in several):
        raise TypeError("Several things to score need names; pass a dict from name to each.")
    if not isinstance(several, dict):
        return {name: several}
    if not several:
        raise ValueError("There is nothing to score in an empty dict; pass at least one entry.")
    return several


def predict_rows(estimator, method, X, groups):
    """Call a prediction method, with groups where it, or what a search has found, takes them."""
    if groups is not None:
        found = estimator
        while not takes_groups(found, method) and hasattr(found, "best_estimator_"):
            found = found.best_estimator_
        if takes_groups(found, method):
            return getattr(found, method)(X, groups=groups)
    return getattr(estimator, method)(X)


def takes_groups(estimator, method):
    """Whether a method of the estimator, or of a Pipeline's last step, takes groups."""
    if get_config()["enable_metadata_routing"]:
        try:
            if get_routing_for_object(estimator).consumes(method, ["groups"]):
                return True
        except NotImplementedError:  # a meta-estimator that cannot route, such as AdaBoost
            return False
    else:
        while hasattr(estimator, "steps"):
            estimator = estimator.steps[-1][1]
    return "groups" in signature(getattr(estimator, method)).parameters


def _column_ids(estimator, X, group_column):
    """Client ids (n,) from the column of X that the scorer or else the estimator names."""
    if group_column is not None:
        return take_group_column(X, group_column, "make_client_scorer")
    params = estimator.get_params() if hasattr(estimator, "get_params") else {}
    for name, column in params.items():
        if name.split("__")[-1] == "group_column" and column is not None:
            return take_group_column(X, column, type(estimator).__name__)
    raise ValueError(
        "Scores per client need the client id of each row; set group_column, or pass groups (with "
        "metadata routing enabled, where scikit-learn calls the scorer)."
    )


def _log_likelihood(y, proba, classes):
    """Logarithm of the probability of each row's label, (n,)."""
    codes = lookup_ids(np.asarray(classes), column_or_1d(y))
    own = np.where(codes < 0, 0.0, np.take_along_axis(proba, codes[:, None], axis=1)[:, 0])
    eps = np.finfo(proba.dtype).eps
    return np.log(np.clip(own, eps, 1 - eps))
