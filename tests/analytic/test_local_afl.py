"""The two ends of the scale, local ridge and one global ridge, equal explicit solutions."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from oracle import (
    assert_models,
    normal_equations,
    one_hot,
    public_scores,
    public_shape,
    random_federation,
    statistics_size,
)
from scipy.linalg import LinAlgWarning

from skfedhip import AFLClassifier, LocalRidgeClassifier
from skfedhip.core import TEMPERATURES, DenseModels, FactoredModels

FEDERATIONS = {
    "unequal": {"counts": [1, 20, 3, 90, 1, 9, 70], "n_features": 8, "n_classes": 4},
    "wide": {"counts": [4, 2, 40, 3, 1, 20], "n_features": 30, "n_classes": 6},
    "one class": {"counts": [4, 9, 2, 7], "n_features": 5, "n_classes": 4, "one_class": True},
    "binary": {"counts": [6, 1, 17, 4], "n_features": 5, "n_classes": 2},
}


@pytest.fixture(params=FEDERATIONS)
def federation(request):
    """X, y, groups and weights."""
    X, y, groups = random_federation(**FEDERATIONS[request.param])
    return X, y, groups, np.random.default_rng(3).uniform(0.1, 3.0, len(y))


def local_oracle(X, y, groups, weight, beta, *, fit_intercept):
    """Each client's ridge (K, d, m) with intercepts (K, d), and their means by weight."""
    Y, models = one_hot(y, y.max() + 1), []
    for client in np.unique(groups):
        own = groups == client
        models.append(
            normal_equations(X[own], Y[own], beta, weight[own], fit_intercept=fit_intercept)
        )
    coefs, intercepts = map(np.array, zip(*models, strict=True))
    totals = np.array([weight[groups == client].sum() for client in np.unique(groups)])
    mean = np.average(coefs, axis=0, weights=totals), np.average(intercepts, 0, weights=totals)
    return coefs, intercepts, mean


@pytest.mark.usefixtures("block_size")
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("beta", [0.3, 50.0])
def test_local_models_equal_normal_equations(federation, fit_intercept, beta):
    X, y, groups, weight = federation
    clf = LocalRidgeClassifier(beta, fit_intercept=fit_intercept)
    clf.fit(X + 1.0, y, groups=groups, sample_weight=weight)
    coefs, intercepts, mean = local_oracle(
        X + 1.0, y, groups, weight, beta, fit_intercept=fit_intercept
    )
    assert_models(clf, coefs, intercepts, X + 1.0, groups)
    # Unknown clients get the mean of the models, by weight.
    assert_allclose(clf.coef_, public_shape(mean[0]), rtol=0, atol=1e-9)
    with_stranger = np.where(np.arange(len(y)) == 0, 10_000, groups)
    scores = clf.decision_function(X + 1.0, groups=with_stranger)[0]
    expected = public_scores((mean[0] @ (X[0] + 1.0) + mean[1])[None])[0]
    assert_allclose(scores, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_models_are_the_same_in_factors_and_dense(fit_intercept, monkeypatch):
    X, y, groups = random_federation(**FEDERATIONS["wide"])
    factored, dense = (
        LocalRidgeClassifier(fit_intercept=fit_intercept) for _ in ("factored", "dense")
    )
    factored.fit(X, y, groups=groups)
    monkeypatch.setattr(
        "skfedhip.analytic._local.factors_are_smaller",
        lambda counts, d, p: np.zeros(len(counts), dtype=bool),
    )
    dense.fit(X, y, groups=groups)
    kinds = [type(factored._models.parts[i]) for i in factored._models.part]
    n_k = np.unique(groups, return_counts=True)[1]
    # n (m + d) numbers against d m, with m = 30 features and d = 6 classes
    assert kinds == [FactoredModels if n * 36 < 180 else DenseModels for n in n_k]
    assert {type(part) for part in dense._models.parts} == {DenseModels}
    for name in ("coef_", "intercept_", "personal_coef_", "personal_intercept_"):
        assert_allclose(getattr(factored, name), getattr(dense, name), rtol=0, atol=1e-11)
    scores = factored.decision_function(X, groups=groups)
    assert_allclose(scores, dense.decision_function(X, groups=groups), rtol=0, atol=1e-11)


@pytest.mark.usefixtures("block_size")
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("beta", [0.0, 1e-14])
def test_local_ridge_without_a_penalty_is_of_minimum_norm(fit_intercept, beta):
    X, y, groups = random_federation([2, 5, 60, 1, 30], n_features=6, n_classes=3)
    clf = LocalRidgeClassifier(beta, fit_intercept=fit_intercept)
    if beta == 0:
        with pytest.warns(LinAlgWarning, match="minimum-norm"):
            clf.fit(X, y, groups=groups)
    else:
        clf.fit(X, y, groups=groups)
    for k, client in enumerate(clf.clients_):
        F_k, Y_k = X[groups == client], one_hot(y, 3)[groups == client]
        mean, share = F_k.mean(axis=0) * fit_intercept, Y_k.mean(axis=0) * fit_intercept
        coef = np.linalg.lstsq(F_k - mean, Y_k - share, rcond=None)[0].T
        scale = np.abs(coef).max() + 1
        assert_allclose(clf.personal_coef_[k], coef, rtol=0, atol=1e-9 * scale)
        own = clf.personal_intercept_[k]
        assert_allclose(own, share - coef @ np.atleast_1d(mean), 0, 1e-9 * scale)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_an_intercept_takes_up_any_offset_of_each_client(fit_intercept):
    X, y, groups = random_federation(**FEDERATIONS["unequal"])
    X = np.round(X * 2**20) / 2**20
    shift = 2.0**13 * (groups % 3)[:, None]  # exact in float64
    here, there = (
        LocalRidgeClassifier(0.1, fit_intercept=fit_intercept)
        .fit(rows, y, groups=groups)
        .decision_function(rows, groups=groups)
        for rows in (X, X + shift)
    )
    gap = np.abs(here - there).max() / np.abs(here).max()
    assert (gap < 1e-9) == fit_intercept


@pytest.mark.usefixtures("block_size")
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_afl_equals_normal_equations_for_every_client(federation, fit_intercept):
    X, y, groups, weight = federation
    clf = AFLClassifier(0.4, fit_intercept=fit_intercept)
    clf.fit(X + 1.0, y, groups=groups, sample_weight=weight)
    n_clients, Y = len(np.unique(groups)), one_hot(y, y.max() + 1)
    coef, intercept = normal_equations(X + 1.0, Y, 0.4, weight, fit_intercept=fit_intercept)
    assert_allclose(clf.coef_, public_shape(coef), rtol=0, atol=1e-9)
    own = public_shape(intercept[:, None])[:, 0]
    assert_allclose(clf.intercept_, own, rtol=0, atol=1e-9)
    assert_array_equal(clf.personal_coef_, np.tile(clf.coef_, (n_clients, 1, 1)))
    assert_array_equal(clf.personal_intercept_, np.tile(clf.intercept_, (n_clients, 1)))
    everybody = (np.array([each] * n_clients) for each in (coef, intercept))
    assert_models(clf, *everybody, X + 1.0, groups)


def test_afl_without_a_penalty_is_of_minimum_norm():
    X, y, groups = random_federation([3, 5, 2], n_features=20, n_classes=3)
    with pytest.warns(LinAlgWarning, match="minimum-norm"):
        clf = AFLClassifier(0.0).fit(X, y, groups=groups)
    coef = np.linalg.lstsq(X, one_hot(y, 3), rcond=None)[0].T
    assert_allclose(clf.coef_, coef, rtol=0, atol=1e-9)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_a_client_sends_its_statistics_or_its_model_and_losses(fit_intercept):
    X, y, groups = random_federation(**FEDERATIONS["unequal"])
    shared, local = (
        classifier(fit_intercept=fit_intercept).fit(X, y, groups=groups)
        for classifier in (AFLClassifier, LocalRidgeClassifier)
    )
    size, model = statistics_size(8, 4, fit_intercept), 4 * (8 + fit_intercept)
    assert shared.bytes_up_.max() == 8 * (size + len(TEMPERATURES))
    assert set(shared.bytes_down_.tolist()) == {8 * (size + 2)}  # with beta, and the temperature
    assert set(local.bytes_up_.tolist()) == {8 * (model + 1 + len(TEMPERATURES))}  # its weight too
    assert set(local.bytes_down_.tolist()) == {8 * (model + 1)}
