"""FedPHP equals rounds in numpy; without transfer or inheritance it is FedAvg and its clients."""

import numpy as np
import pytest
from scipy.special import softmax

from skfedhip import FedAvgClassifier, FedPHPClassifier
from skfedhip.gradient._functional import BANDWIDTHS

from . import _plain as plain


def mmd_gradient(h, frozen):
    """Of the squared mean discrepancy in h, pair by pair."""
    grad, n = np.zeros_like(h), len(h)
    for i in range(n):
        for sign, others in ((1, h), (-1, frozen)):
            gaps = h[i] - others
            for b in BANDWIDTHS:
                kernel = np.exp(-(gaps**2).sum(1) / (2 * b))
                grad[i] -= sign * 2 / n**2 * (kernel[:, None] * gaps).sum(0) / b
    return grad


def trained(model, private, X, y, lam, transfer):
    for i in range(0, len(y), plain.BATCH):
        rows, target = X[i : i + plain.BATCH], np.eye(3)[y[i : i + plain.BATCH]]
        h, frozen = plain.hidden(model, rows), plain.hidden(private, rows)
        answers = softmax(plain.scores(model, rows), axis=1)
        error = (1 - lam) * (answers - target) / len(rows)
        if transfer == "kd":
            taught = softmax(plain.scores(private, rows) / 4, axis=1)
            error += lam * (answers - taught) / len(rows)
        to_h = error @ model["head.weight"]
        if transfer == "mmd":
            to_h += lam * mmd_gradient(h, frozen)
        below = to_h * (h > 0)
        grads = {"extractor.0.weight": below.T @ rows, "extractor.0.bias": below.sum(0)}
        grads |= {"head.weight": error.T @ h, "head.bias": error.sum(0)}
        model = {
            name: value - plain.LR * (grads[name] + plain.DECAY * value)
            for name, value in model.items()
        }
    return model


@pytest.mark.parametrize("transfer", ["mmd", "kd"])
def test_rounds_equal_numpy(transfer):
    how = {"mu": 0.8, "ramp": 2, "transfer": transfer, "n_rounds": 5, "join_ratio": 0.75}
    clf, data = plain.fitted(FedPHPClassifier, 0.6, **how)
    w, rows = plain.start(), plain.clients(data)
    private, times = [None] * 4, [0] * 4
    for n_round in range(5):
        cohort = np.flatnonzero(clf._fitted_method.joins(np.arange(4), n_round)).tolist()
        sent = []
        for k in cohort:
            old = w if private[k] is None else private[k]
            model = trained(w, old, *rows[k], 0.6, transfer)
            mu = 0.8 * min(1, times[k] / 2)
            private[k] = {name: mu * old[name] + (1 - mu) * model[name] for name in w}
            times[k] += 1
            sent.append(model)
        w = plain.average(sent, [plain.SIZES[k] for k in cohort])
    assert max(times) > 2
    assert min(times) < max(times)
    plain.assert_models(clf, w, [w if own is None else own for own in private], data[0])


@pytest.mark.parametrize("transfer", ["mmd", "kd"])
def test_without_transfer_and_inheritance(transfer):
    """The global model is FedAvg's, and a client's the one that it trained last."""
    clf, data = plain.fitted(FedPHPClassifier, 0.0, mu=0.0, transfer=transfer)
    before, _ = plain.fitted(FedAvgClassifier, n_rounds=2)
    fedavg, _ = plain.fitted(FedAvgClassifier)
    last = [plain.sgd(before.global_params_, *rows) for rows in plain.clients(data)]
    plain.assert_models(clf, fedavg.global_params_, last, data[0])


def test_the_default_transfers_and_inherits():
    clf, (X, _, groups) = plain.fitted(FedPHPClassifier)
    fedavg, _ = plain.fitted(FedAvgClassifier)
    assert np.abs(clf.decision_function(X) - fedavg.decision_function(X)).max() > 1e-3
    forgetful, _ = plain.fitted(FedPHPClassifier, mu=0.0)
    gap = clf.decision_function(X, groups=groups) - forgetful.decision_function(X, groups=groups)
    assert np.abs(gap).max() > 1e-3
