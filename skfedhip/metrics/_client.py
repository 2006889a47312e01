"""Scores of each client, and what they say together."""

from functools import partial
from typing import NamedTuple

import numpy as np
from sklearn.preprocessing import LabelEncoder
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import column_or_1d

from ..core import group_rows
from ..utils._ids import as_ids, encode_ids


class ClientScores(NamedTuple):
    """One score per client; unpacks into its three aligned arrays.

    Parameters
    ----------
    clients : ndarray of shape (K,)
        Ids of the clients that have rows, sorted.
    scores : ndarray of shape (K,)
        Score of each client, float64.
    n_rows : ndarray of shape (K,)
        Number of rows of each client, at least 1.

    See Also
    --------
    client_scores : Makes one from predictions.
    client_summary : Mean, spread and tail of the scores.

    Examples
    --------
    >>> from skfedhip.metrics import client_scores
    >>> clients, scores, n_rows = client_scores([0, 1, 1], [0, 1, 0], ["ann", "bob", "bob"])
    >>> dict(zip(clients.tolist(), scores.tolist()))
    {'ann': 1.0, 'bob': 0.5}
    """

    clients: np.ndarray
    scores: np.ndarray
    n_rows: np.ndarray


def client_scores(y_true, y_pred, groups, metric="accuracy"):
    """Score the predictions of each client on its own rows.

    Parameters
    ----------
    y_true : array-like of shape (n,)
        True labels.
    y_pred : array-like of shape (n,)
        Predicted labels. For a callable ``metric``, whatever it takes, with n rows.
    groups : array-like of shape (n,)
        The id of each row's client, strings or numbers.
    metric : str or callable, default="accuracy"
        One of "accuracy", "balanced_accuracy", "f1_macro", "f1_weighted", "precision_macro" and
        "recall_macro", or a function ``metric(y_true, y_pred)`` of one client's rows that returns a
        number. As in scikit-learn, balanced accuracy is the mean recall over the client's own
        classes, the other means are over the classes among its labels and predictions, and 0 / 0
        counts as 0.

    Returns
    -------
    ClientScores
        Sorted ``clients``, their ``scores`` and ``n_rows``, each of shape (K,). Clients without
        rows do not appear.

    Raises
    ------
    ValueError
        If there are no rows, lengths differ, an id or label is missing, or ``metric`` is unknown.

    See Also
    --------
    client_summary : Mean, spread and tail of the scores.

    Examples
    --------
    >>> from skfedhip.metrics import client_scores
    >>> y_true, y_pred = [0, 1, 1, 2, 2], [0, 1, 1, 2, 0]
    >>> result = client_scores(y_true, y_pred, groups=["b", "b", "a", "a", "a"])
    >>> result.clients, result.scores.round(2), result.n_rows
    (array(['a', 'b'], dtype='<U1'), array([0.67, 1.  ]), array([3, 2]))
    """
    check_consistent_length(y_true, y_pred)
    clients, codes = encode_ids(as_ids(groups, len(y_true)))
    if len(codes) == 0:
        raise ValueError("y_true has no rows, so there is no client to score; pass at least one.")
    if callable(metric):
        scores = _score_each(metric, np.asarray(y_true), np.asarray(y_pred), codes, len(clients))
    elif isinstance(metric, str) and metric in _METRICS:
        scores = _METRICS[metric](*_encode_labels(y_true, y_pred), codes)
    else:
        raise ValueError(
            f"metric must be one of {sorted(_METRICS)} or a function of y_true and y_pred, got "
            f"{metric!r}; pass one of these."
        )
    return ClientScores(clients, scores, np.bincount(codes))


def client_summary(scores):
    """Mean, spread and tail of the clients' scores.

    Parameters
    ----------
    scores : ClientScores
        Result of :func:`client_scores`.

    Returns
    -------
    dict
        Plain numbers, fit for JSON. All floats but the last:

        - "mean": each client counts once
        - "weighted_mean": each row counts once
        - "std": standard deviation across clients, each counts once
        - "min", "max": worst and best client
        - "worst_decile": mean of the K // 10 worst clients, at least one
        - "n_clients": number of clients K, int

    Raises
    ------
    TypeError
        If scores are no :class:`ClientScores`.
    ValueError
        If there are no clients, or a score is not finite.

    See Also
    --------
    client_scores : Score the predictions of each client.

    Examples
    --------
    >>> from skfedhip.metrics import client_scores, client_summary
    >>> summary = client_summary(client_scores([0, 1, 1, 1], [0, 1, 0, 0], [3, 5, 5, 5]))
    >>> summary["mean"], summary["weighted_mean"], summary["worst_decile"]
    (0.666..., 0.5, 0.333...)
    """
    if not isinstance(scores, ClientScores):
        raise TypeError(
            f"scores must be what client_scores returns, got {type(scores).__name__}; pass "
            "client_scores(y, predictions, groups)."
        )
    clients, values, n_rows = scores
    if len(values) == 0:
        raise ValueError("There are no clients to summarise; score at least one row.")
    if not np.isfinite(values).all():
        k = np.flatnonzero(~np.isfinite(values))[0]
        raise ValueError(
            f"The score of client {clients.tolist()[k]!r} is {values[k]}; use a metric that is "
            "defined for every client."
        )
    worst = np.sort(values)[: max(1, len(values) // 10)]
    return {
        "mean": float(np.mean(values)),
        "weighted_mean": float(np.average(values, weights=n_rows)),
        "std": float(np.std(values)),
        "min": float(np.min(values)),
        "worst_decile": float(np.mean(worst)),
        "max": float(np.max(values)),
        "n_clients": len(values),
    }


def _score_each(metric, y_true, y_pred, codes, n_clients):
    order, offsets = group_rows(codes, n_clients)
    runs = np.split(order, offsets[1:-1])
    return np.array([float(metric(y_true[rows], y_pred[rows])) for rows in runs])


def _accuracy(true, pred, codes):
    return np.bincount(codes, true == pred) / np.bincount(codes)


def _mean_over_classes(true, pred, codes, *, ratio, weight):
    """Weighted mean over classes of a ratio, for all clients at once, (K,).

    A cell is a client and a class that occurs among its labels or predictions; there are at most 2n
    of them, however many clients and classes.
    """
    n, n_classes = len(codes), max(true.max(), pred.max()) + 1
    cells, cell = np.unique(
        np.concatenate([codes * n_classes + true, codes * n_classes + pred]), return_inverse=True
    )
    labelled = np.bincount(cell[:n], minlength=len(cells))
    predicted = np.bincount(cell[n:], minlength=len(cells))
    hits = np.bincount(cell[:n][true == pred], minlength=len(cells))
    owner, weights = cells // n_classes, weight(labelled)
    total = np.bincount(owner, weights * ratio(hits, labelled, predicted))
    return total / np.bincount(owner, weights)


def _encode_labels(y_true, y_pred):
    """Codes (n,) of true and of predicted labels, equal where the labels are."""
    pair = [column_or_1d(y_true, input_name="y_true"), column_or_1d(y_pred, input_name="y_pred")]
    if len({y.dtype.kind in "US" for y in pair}) > 1:
        pair = [y.astype(object) for y in pair]  # concatenate would turn numbers into strings
    encoder = LabelEncoder()
    try:
        codes = encoder.fit_transform(np.concatenate(pair))
    except TypeError:
        raise ValueError(
            f"y_true and y_pred must both be strings or both be numbers, got for example "
            f"{pair[0][0]!r} and {pair[1][0]!r}; convert one to the type of the other."
        ) from None
    if any(label is None or label != label for label in encoder.classes_.tolist()):
        raise ValueError("y_true or y_pred has missing labels; score the other rows only.")
    return np.split(codes, 2)


def _divide(hits, total):
    return hits / np.maximum(total, 1)  # without a row there is no hit


def _precision(hits, labelled, predicted):
    return _divide(hits, predicted)


def _recall(hits, labelled, predicted):
    return _divide(hits, labelled)


def _f1(hits, labelled, predicted):
    return _divide(2 * hits, labelled + predicted)


# The weight of a class in a client's mean is a function of its number of true labels there.
_METRICS = {
    "accuracy": _accuracy,
    "balanced_accuracy": partial(_mean_over_classes, ratio=_recall, weight=np.sign),
    "f1_macro": partial(_mean_over_classes, ratio=_f1, weight=np.ones_like),
    "f1_weighted": partial(_mean_over_classes, ratio=_f1, weight=np.asarray),
    "precision_macro": partial(_mean_over_classes, ratio=_precision, weight=np.ones_like),
    "recall_macro": partial(_mean_over_classes, ratio=_recall, weight=np.ones_like),
}
