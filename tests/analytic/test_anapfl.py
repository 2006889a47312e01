"""AnaPFL equals the explicit formulas of its two streams, whatever the order of the work."""

from math import erf

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from oracle import (
    normal_equations,
    one_hot,
    public_scores,
    public_shape,
    random_federation,
    statistics_size,
)
from sklearn.pipeline import Pipeline

from skfedhip import AFLClassifier, AnaPFLClassifier
from skfedhip.core import TEMPERATURES
from skfedhip.feature_extraction import RandomFeatures

CUT_BYTES = 3000

ACTIVATIONS = {
    "tanh": np.tanh,
    "relu": lambda z: z * (z > 0),
    "gelu": np.vectorize(lambda z: z * (1 + erf(z / 2**0.5)) / 2),
}


def cube(z):
    return z**3


@pytest.fixture(params=["d=3", "d=2"])
def federation(request):
    return random_federation([1, 4, 30, 2, 55, 9], n_features=5, n_classes=int(request.param[-1]))


def make_classifier(**params):
    return AnaPFLClassifier(**{"gamma": 0.3, "beta": 0.7, "n_components": 12, **params})


def maps(clf, client, n_features):
    """R and R' of one client; R alone for None."""
    method = clf._fitted_method
    refinement = None if client is None else method.refinement_map(n_features, client)
    return method.primary_map(n_features), refinement


def explicit_models(clf, X, y, groups, weight=None, *, dual=False):
    """G (d, q), its intercept (d,), and W (K, d, q) of all clients, by solved normal equations.

    ``dual`` takes W_k = Ψᵀ(ΨΨᵀ + βI)⁻¹E in place of (ΨᵀΨ + βI)⁻¹ΨᵀE.
    """
    phi = ACTIVATIONS.get(clf.activation, clf.activation)
    weight = np.ones(len(y)) if weight is None else weight
    Y, m, W = one_hot(y, len(clf.classes_)), X.shape[1], []
    Phi = phi(X @ maps(clf, None, m)[0])
    G, b = normal_equations(Phi, Y, clf.gamma, weight, fit_intercept=clf.fit_intercept)
    E = Y - Phi @ G.T - b
    for client in np.unique(groups):
        own = groups == client
        Psi, E_k, w_k = phi(X[own] @ maps(clf, client, m)[1]), E[own], weight[own]
        if dual:
            root = np.sqrt(w_k)[:, None]
            kernel = (root * Psi) @ (root * Psi).T + clf.beta * np.eye(len(Psi))
            W.append(((root * Psi).T @ np.linalg.solve(kernel, root * E_k)).T)
        else:
            W.append(normal_equations(Psi, E_k, clf.beta, w_k)[0])
    return G, b, np.array(W)


def explicit_scores(clf, models, X, groups):
    """Φ G + λ Ψ W_k, client by client; Φ G for unknown clients."""
    phi, (G, b, W) = ACTIVATIONS.get(clf.activation, clf.activation), models
    scores = phi(X @ maps(clf, None, X.shape[1])[0]) @ G.T + b
    for W_k, client in zip(W, clf.clients_, strict=True):
        own = groups == client
        scores[own] += clf.lam * phi(X[own] @ maps(clf, client, X.shape[1])[1]) @ W_k.T
    return public_scores(scores)


@pytest.mark.usefixtures("block_size")
@pytest.mark.parametrize("activation", [*ACTIVATIONS, cube])
@pytest.mark.parametrize("shared_refinement", [False, True])
def test_scores_equal_the_explicit_formulas(federation, activation, shared_refinement):
    X, y, groups = federation
    clf = make_classifier(activation=activation, shared_refinement=shared_refinement)
    clf.fit(X, y, groups=groups)
    G, _, W = models = explicit_models(clf, X, y, groups)
    assert_allclose(clf.coef_, public_shape(G), rtol=0, atol=1e-9)
    assert_allclose(clf.personal_coef_, public_shape(W), rtol=0, atol=1e-9)
    X_test = np.random.default_rng(5).normal(size=X.shape)
    with_strangers = np.where(np.arange(len(groups)) % 5, groups, 10_000)
    scores = clf.decision_function(X_test, groups=with_strangers)
    assert_allclose(scores, explicit_scores(clf, models, X_test, with_strangers), 0, atol=1e-8)


@pytest.mark.usefixtures("block_size")
@pytest.mark.parametrize("dual", [False, True])
@pytest.mark.parametrize("n_components", [3, 40])
def test_clients_of_any_size_get_the_primal_and_the_dual_solution(federation, n_components, dual):
    X, y, groups = federation
    clf = make_classifier(n_components=n_components).fit(X, y, groups=groups)
    _, _, W = explicit_models(clf, X, y, groups, dual=dual)
    assert_allclose(clf.personal_coef_, public_shape(W), rtol=0, atol=1e-10)


def test_weights_and_the_primary_streams_intercept(federation):
    X, y, groups = federation
    weight = np.random.default_rng(2).uniform(0.2, 2.0, len(y))
    clf = make_classifier(fit_intercept=True, activation="relu")
    clf.fit(X, y, groups=groups, sample_weight=weight)
    _, b, W = models = explicit_models(clf, X, y, groups, weight)
    assert_allclose(clf.intercept_, public_shape(b[:, None])[:, 0], rtol=0, atol=1e-9)
    assert_allclose(clf.personal_intercept_, np.tile(clf.intercept_, (len(W), 1)), rtol=0)
    scores = clf.decision_function(X, groups=groups)
    assert_allclose(scores, explicit_scores(clf, models, X, groups), rtol=0, atol=1e-8)


def test_lam_is_read_at_prediction_alone(federation):
    X, y, groups = federation
    late = make_classifier(lam=0.9, random_state=3).fit(X, y, groups=groups)
    for lam in (0.0, 0.2, 1.0, 7.0):
        early = make_classifier(lam=lam, random_state=3).fit(X, y, groups=groups)
        assert_array_equal(
            late.set_params(lam=lam).decision_function(X, groups=groups),
            early.decision_function(X, groups=groups),
        )
    scores = [
        late.set_params(lam=lam).decision_function(X, groups=groups) for lam in (0.0, 0.5, 1.0)
    ]
    assert_allclose(scores[1], (scores[0] + scores[2]) / 2, rtol=0, atol=1e-12)
    assert np.abs(scores[1] - scores[0]).max() > 1e-3


def test_the_primary_stream_is_random_features_and_a_global_ridge(federation):
    X, y, groups = federation
    clf = make_classifier(lam=0.0, random_state=11).fit(X, y, groups=groups)
    features = RandomFeatures(12, random_state=11).fit_transform(X)
    assert_allclose(features, np.tanh(X @ maps(clf, None, 5)[0]), rtol=0, atol=1e-14)
    primary = AFLClassifier(beta=0.3).fit(features, y, groups=groups)
    assert_allclose(clf.coef_, primary.coef_, rtol=0, atol=1e-10)
    scores = clf.decision_function(X, groups=groups)
    expected = primary.decision_function(features, groups=groups)
    assert_allclose(scores, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("shared_refinement", [False, True])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_maps_depend_on_seed_and_id_alone(small_blocks, n_jobs, shared_refinement):
    small_blocks(CUT_BYTES)
    X, y, groups = random_federation([1, 4, 20, 2, 9], n_features=5, n_classes=3)
    params = {"random_state": 5, "shared_refinement": shared_refinement}
    clf = make_classifier(**params).fit(X, y, groups=groups)
    order = np.random.default_rng(0).permutation(len(y))
    again = make_classifier(n_jobs=n_jobs, **params).fit(X[order], y[order], groups=groups[order])
    scores = clf.decision_function(X, groups=groups)
    assert_allclose(again.decision_function(X, groups=groups), scores, rtol=0, atol=1e-10)
    left = groups != groups[0]
    fewer = make_classifier(**params).fit(X[left], y[left], groups=groups[left])
    for client in fewer.clients_:
        for own, other in zip(maps(clf, client, 5), maps(fewer, client, 5), strict=True):
            assert_array_equal(own, other)
    another = make_classifier(**{**params, "random_state": 6}).fit(X, y, groups=groups)
    assert all(
        (a != b).all()
        for a, b in zip(maps(clf, groups[0], 5), maps(another, groups[0], 5), strict=True)
    )


def test_clients_differ_in_their_maps_unless_the_refinement_is_shared(federation):
    X, y, groups = federation
    apart, shared = (
        make_classifier(shared_refinement=each, random_state=0).fit(X, y, groups=groups)
        for each in (False, True)
    )
    drawn = {client: maps(apart, client, 5)[1] for client in apart.clients_}
    everybody = [*drawn.values(), maps(shared, 0, 5)[1], maps(shared, None, 5)[0]]
    for i, R in enumerate(everybody):
        assert all((other != R).all() for other in everybody[:i])
    for client in shared.clients_:
        assert_array_equal(maps(shared, client, 5)[1], everybody[-2])


def test_float32_stays_float32_and_close(federation):
    X, y, groups = federation
    X32 = X.astype(np.float32)
    narrow = make_classifier(random_state=1).fit(X32, y, groups=groups)
    wide = make_classifier(random_state=1).fit(X32.astype(float), y, groups=groups)
    assert_array_equal(narrow.coef_, wide.coef_.astype(np.float32))
    assert_array_equal(narrow.personal_coef_, wide.personal_coef_.astype(np.float32))
    scores = narrow.decision_function(X32, groups=groups)
    assert scores.dtype == np.float32
    expected = wide.decision_function(X32.astype(float), groups=groups)
    assert_allclose(scores, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("shared_refinement", [False, True])
@pytest.mark.parametrize("local_classes_only", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_an_exported_client_is_a_pipeline_with_the_same_scores(
    federation, shared_refinement, local_classes_only, fit_intercept
):
    X, y, groups = federation
    clf = make_classifier(
        shared_refinement=shared_refinement,
        local_classes_only=local_classes_only,
        fit_intercept=fit_intercept,
    ).fit(X, y, groups=groups)
    clf.set_params(lam=0.8)
    for client in clf.clients_:
        exported, mine = clf.export_client(client), np.full(len(X), client)
        assert isinstance(exported, Pipeline)
        scores = exported.decision_function(X)
        assert_allclose(scores, clf.decision_function(X, groups=mine), rtol=0, atol=1e-10)
        assert_array_equal(exported.predict(X), clf.predict(X, groups=mine))


def test_a_client_sends_statistics_of_the_primary_stream_alone_and_losses(federation):
    X, y, groups = federation
    clf = make_classifier().fit(X, y, groups=groups)
    size = statistics_size(12, len(clf.classes_))
    assert clf.bytes_up_.max() == 8 * (size + len(TEMPERATURES))
    assert set(clf.bytes_down_.tolist()) == {8 * (size + 2)}  # with gamma, and the temperature
