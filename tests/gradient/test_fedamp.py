"""FedAMP equals rounds in numpy; its limits are FedAvg and training alone."""

from itertools import combinations

import numpy as np
import pytest

from skfedhip import FedAMPClassifier

from . import _plain as plain
from ._data import make, small


def mixtures(models, attention, sigma):
    """u of each client that has sent a model, as in the paper."""

    def squared(k, j):
        return sum(((models[k][name] - models[j][name]) ** 2).sum() for name in models[k])

    if sigma is None:
        sigma = np.mean([squared(k, j) for k, j in combinations(models, 2)])
    step, out = attention * sigma / (len(models) - 1), {}
    for k, own in models.items():
        slopes = {j: np.exp(-squared(k, j) / sigma) / sigma for j in models if j != k}
        rest = 1 - step * sum(slopes.values())
        out[k] = {
            name: rest * value + step * sum(s * models[j][name] for j, s in slopes.items())
            for name, value in own.items()
        }
    return out


def rounds(clf, data, n_rounds, attention, sigma, lam):
    """The mean model, and those of the clients that were in a cohort."""
    models, mixed, mean = {}, {}, plain.start()
    for n_round in range(n_rounds):
        cohort = np.flatnonzero(clf._fitted_method.joins(np.arange(4), n_round)).tolist()
        sent = {}
        for k in cohort:
            u = mixed.get(k, mean)
            sent[k] = plain.sgd(
                u, *plain.clients(data)[k], extra=lambda name, w, u=u: lam * (w - u[name])
            )
        models |= sent
        mean = plain.average([*sent.values()], [plain.SIZES[k] for k in sent])
        mixed = mixtures(models, attention, sigma) if len(models) > 1 else dict(models)
    return mean, models


@pytest.mark.parametrize(("sigma", "ratio"), [(None, 1.0), (2.0, 1.0), (None, 0.5)])
def test_rounds_equal_numpy(sigma, ratio):
    how = {"sigma": sigma, "lam": 0.7, "join_ratio": ratio, "n_rounds": 4}
    clf, data = plain.fitted(FedAMPClassifier, 0.8, **how)
    mean, models = rounds(clf, data, 4, 0.8, sigma, 0.7)
    plain.assert_models(clf, mean, [models.get(k, mean) for k in range(4)], data[0])


def test_a_client_never_met_has_the_mean():
    clf, data = plain.fitted(FedAMPClassifier, join_ratio=0.25)
    mean, models = rounds(clf, data, 3, 1.0, None, 0.1)
    assert len(models) < 4
    plain.assert_models(clf, mean, [models.get(k, mean) for k in range(4)], data[0])


def test_without_attention_clients_are_alone():
    clf, data = plain.fitted(FedAMPClassifier, 0.0, lam=0.0)
    own = [plain.sgd(plain.start(), *rows, epochs=3) for rows in plain.clients(data)]
    plain.assert_models(clf, plain.average(own), own, data[0])


def test_where_all_attract_alike_it_is_fedavg():
    """With the attention that makes u the mean of all; what clients trained of it is their own."""
    clf, data = plain.fitted(FedAMPClassifier, 0.75, sigma=1e30, lam=0.0)
    w = plain.start()
    for _ in range(3):
        own = [plain.sgd(w, *rows) for rows in plain.clients(data)]
        w = plain.average(own, [1, 1, 1, 1])
    plain.assert_models(clf, plain.average(own), own, data[0])


def test_shares_prefer_the_near():
    X, y, groups = small()
    clf = make(FedAMPClassifier).fit(X, y, groups=groups)
    near = {"head.weight": np.array([[0.0, 0.0], [0.1, 0.0], [5.0, 5.0]]) + 1e6}
    shares = clf._fitted_method.shares(near)
    np.testing.assert_allclose(shares.sum(1), 1.0)
    squared = np.array([0.01, 50.0, 4.9**2 + 25.0])  # as exact as if they were not far from zero
    expected = np.exp(-squared / squared.mean()) / 2
    np.testing.assert_allclose(shares[[0, 0, 1], [1, 2, 2]], expected, rtol=1e-6)
    assert shares.min() >= 0


def test_one_model_goes_each_way():
    clf, _ = plain.fitted(FedAMPClassifier)
    model = sum(value.nbytes for value in plain.start().values())
    assert set(np.atleast_1d(clf.bytes_down_)) == {4 * (model + 8)}  # first, and after 3 rounds
    assert set(np.atleast_1d(clf.bytes_up_)) == {3 * (model + 24)}  # who it is, its rows, its loss
