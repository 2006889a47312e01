"""FedHiP equals the paper's Algorithm 1, in either form, and its limits are what they should be."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from oracle import (
    DATA,
    algorithm_1,
    assert_models,
    by_client,
    normal_equations,
    one_hot,
    personal_rows,
    public_shape,
    random_federation,
    statistics_size,
)
from scipy.linalg import LinAlgWarning

from skfedhip import AFLClassifier, FedHiPClassifier
from skfedhip.core import (
    TEMPERATURES,
    DenseModels,
    FactoredModels,
    best_temperature,
    temperature_losses,
)

SOLVERS = ["residual", "direct", "auto"]
FEDERATIONS = {
    "few rows": {"counts": [3, 5, 4, 7, 1, 2], "n_features": 12, "n_classes": 3},
    "many rows": {"counts": [30, 25, 41], "n_features": 4, "n_classes": 3},
    "unequal": {"counts": [1, 20, 3, 90, 1, 9, 70], "n_features": 8, "n_classes": 4},
    "one row each": {"counts": [1] * 11, "n_features": 6, "n_classes": 3},
    "factors": {"counts": [4, 2, 30, 3, 1, 70], "n_features": 30, "n_classes": 6},
    "one class": {"counts": [4, 9, 2, 7], "n_features": 5, "n_classes": 4, "one_class": True},
    "binary": {"counts": [6, 1, 17, 4], "n_features": 5, "n_classes": 2},
    "binary one class": {"counts": [5, 8], "n_features": 3, "n_classes": 2, "one_class": True},
    "one client": {"counts": [23], "n_features": 5, "n_classes": 3},
}


@pytest.fixture(params=FEDERATIONS)
def federation(request):
    return random_federation(**FEDERATIONS[request.param], seed=len(request.param))


def stacked_oracle(X, y, groups, alpha, beta):
    """Algorithm 1's global model (d, m) and personal models (K, d, m), as scikit-learn has them."""
    Y = one_hot(y, y.max() + 1)
    G, P = algorithm_1(by_client(X, groups), by_client(Y, groups), alpha, beta)
    return G[-1].T, np.array(P).transpose(0, 2, 1)


def weighted_oracle(X, y, groups, alpha, beta, weight, *, fit_intercept):
    """Personal models (K, d, m) and intercepts (K, d) by augmented normal equations."""
    Y = one_hot(y, y.max() + 1)
    models = [
        normal_equations(
            X, Y, beta, weight * personal_rows(groups, k, alpha), fit_intercept=fit_intercept
        )
        for k in np.unique(groups)
    ]
    return tuple(map(np.array, zip(*models, strict=True)))


@pytest.mark.usefixtures("block_size")
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("alpha", [0.3, 20.0])
def test_equals_algorithm_1(federation, solver, alpha):
    X, y, groups = federation
    clf = FedHiPClassifier(alpha, 0.6, solver=solver).fit(X, y, groups=groups)
    G, P = stacked_oracle(X, y, groups, alpha, 0.6)
    assert_allclose(clf.coef_, public_shape(G), rtol=0, atol=1e-9 * np.abs(G).max())
    assert_models(clf, P, np.zeros(P.shape[:2]), X, groups, rtol=1e-9)


@pytest.mark.usefixtures("block_size")
@pytest.mark.parametrize("solver", SOLVERS)
def test_equals_the_stored_case(solver):
    case = np.load(DATA / "fedhip_small.npz", allow_pickle=False)
    clf = FedHiPClassifier(float(case["alpha"]), float(case["beta"]), solver=solver)
    clf.fit(case["X"], case["y"], groups=case["groups"])
    assert_allclose(clf.coef_.T, case["global_model"], rtol=1e-10, atol=1e-12)
    personal = clf.personal_coef_.transpose(0, 2, 1)
    assert_allclose(personal, case["personal_models"], rtol=1e-10, atol=1e-12)


def test_the_oracle_equals_the_stored_case():
    case = np.load(DATA / "fedhip_small.npz", allow_pickle=False)
    arrays = case["X"], case["y"], case["groups"], case["alpha"], case["beta"]
    G, P = stacked_oracle(*arrays)
    assert_allclose(G.T, case["global_model"], rtol=1e-10, atol=1e-12)
    assert_allclose(P.transpose(0, 2, 1), case["personal_models"], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("classifier", [FedHiPClassifier, AFLClassifier])
def test_a_stream_of_clients_passes_through_the_global_models_of_phase_2(classifier):
    X, y, groups = random_federation(**FEDERATIONS["unequal"])
    F, Y = by_client(X, groups), by_client(one_hot(y, 4), groups)
    G, _ = algorithm_1(F, Y, alpha=1.0, beta=0.8)
    clf = classifier(beta=0.8)
    for k, client in enumerate(np.unique(groups)):
        own = groups == client
        clf.partial_fit(X[own], y[own], groups=groups[own], classes=range(4))
        assert_allclose(clf.coef_, G[k].T, rtol=0, atol=1e-9 * np.abs(G[k]).max())


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_residual_equals_direct(federation, fit_intercept):
    X, y, groups = federation
    residual, direct = (
        FedHiPClassifier(3.0, 0.5, solver=solver, fit_intercept=fit_intercept)
        .fit(X, y, groups=groups)
        .decision_function(X, groups=groups)
        for solver in ("residual", "direct")
    )
    assert_allclose(residual, direct, rtol=0, atol=1e-10 * np.abs(direct).max())


def test_auto_keeps_small_clients_in_factors_and_no_others():
    X, y, groups = random_federation(**FEDERATIONS["factors"])
    clf = FedHiPClassifier().fit(X, y, groups=groups)
    kinds = [type(clf._models.parts[i]) for i in clf._models.part]
    n_k = np.unique(groups, return_counts=True)[1]
    # n (m + d) numbers against d m, with m = 30 features and d = 6 classes
    assert kinds == [FactoredModels if n * 36 < 180 else DenseModels for n in n_k]


def test_a_personal_model_does_not_move_when_others_rows_are_dealt_anew():
    X, y, groups = random_federation(**FEDERATIONS["unequal"])
    client = np.unique(groups)[2]
    own, others = groups == client, np.flatnonzero(groups != client)
    _, P = stacked_oracle(X, y, groups, 4.0, 1.0)
    reference = P[np.searchsorted(np.unique(groups), client)]
    dealings = {
        "shuffled": np.random.default_rng(0).permutation(groups[others]),
        "by class": 100 + y[others],
        "one client": np.full(len(others), 100),
        "one client a row": 100 + np.arange(len(others)),
    }
    for dealing in dealings.values():
        redealt = groups.copy()
        redealt[others] = dealing
        k = np.searchsorted(np.unique(redealt), client)
        _, P = stacked_oracle(X, y, redealt, 4.0, 1.0)
        clf = FedHiPClassifier(4.0, 1.0).fit(X, y, groups=redealt)
        assert_allclose(P[k], reference, rtol=0, atol=1e-9 * np.abs(reference).max())
        assert_allclose(clf.personal_coef_[k], reference, 0, 1e-9 * np.abs(reference).max())
    mine = clf.decision_function(X[own], groups=groups[own])
    assert_allclose(mine, X[own] @ reference.T, rtol=0, atol=1e-8)


def test_alpha_0_is_the_global_model_and_one_client_counts_its_rows_1_plus_alpha_times():
    X, y, groups = random_federation(**FEDERATIONS["unequal"])
    shared = FedHiPClassifier(0.0, 0.7).fit(X, y, groups=groups)
    G, _ = normal_equations(X, one_hot(y, 4), 0.7)
    assert_allclose(shared.personal_coef_, np.broadcast_to(G, (7, 4, 8)), rtol=0, atol=1e-10)
    single = FedHiPClassifier(3.0, 0.7).fit(X, y, groups=np.zeros(len(y), dtype=int))
    P, _ = normal_equations(X, one_hot(y, 4), 0.7, np.full(len(y), 4.0))
    assert_allclose(single.personal_coef_[0], P, rtol=0, atol=1e-10)


def local_limit(root, G, F_k, Y_k):
    """P_k as alpha grows: of all least-squares fits of client k the one nearest to G.

    Distance is measured by A + βI = L Lᵀ, ``root`` L: with V = F_k L⁻ᵀ the correction is the
    minimum-norm solution of V Lᵀ(P - G) = Y_k - F_k G. Also the least eigenvalue of V Vᵀ, but 0.
    """
    V = np.linalg.solve(root, F_k.T).T
    correction, _, rank, singular = np.linalg.lstsq(V, Y_k - F_k @ G, rcond=1e-10)
    return G + np.linalg.solve(root.T, correction), singular[rank - 1] ** 2


@pytest.mark.usefixtures("block_size")
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("alpha", [1e4, 1e8, 1e12])
def test_large_alpha_tends_to_the_clients_own_least_squares(solver, alpha):
    X, y, groups = random_federation([1, 3, 5, 6, 40, 90, 12], n_features=6, n_classes=3, seed=4)
    ids, n_k = np.unique(groups, return_counts=True)
    for client in ids[(n_k == 5) | (n_k == 12)]:
        # The same row twice with different labels, so the kernel matrix is singular.
        first, second = np.flatnonzero(groups == client)[:2]
        X[second], y[second] = X[first], (y[first] + 1) % 3
    Y = one_hot(y, 3)
    G = normal_equations(X, Y, 0.5)[0].T
    root = np.linalg.cholesky(X.T @ X + 0.5 * np.eye(6))
    clf = FedHiPClassifier(alpha, 0.5, solver=solver).fit(X, y, groups=groups)
    assert np.isfinite(clf.personal_coef_).all()
    for P, client in zip(clf.personal_coef_, ids, strict=True):
        F_k, Y_k = X[groups == client], Y[groups == client]
        limit, least = local_limit(root, G, F_k, Y_k)
        moved = np.linalg.norm(root.T @ (limit - G))
        # Each direction of eigenvalue λ is 1 / (1 + αλ) of its way short; 1e-7 is rounding.
        assert np.linalg.norm(root.T @ (P.T - limit)) <= moved * (1 / (1 + alpha * least) + 1e-7)
        if np.linalg.matrix_rank(F_k) == 6:
            own = np.linalg.lstsq(F_k, Y_k, rcond=None)[0]
            assert_allclose(limit, own, rtol=0, atol=1e-9 * np.abs(own).max())


def test_the_distance_to_local_least_squares_falls_as_one_over_alpha():
    X, y, groups = random_federation([60, 50, 70], n_features=4, n_classes=3)
    own = groups == np.unique(groups)[0]
    limit = np.linalg.lstsq(X[own], one_hot(y, 3)[own], rcond=None)[0].T
    gaps = [
        np.abs(FedHiPClassifier(alpha).fit(X, y, groups=groups).personal_coef_[0] - limit).max()
        for alpha in (1e3, 1e4, 1e5)
    ]
    assert gaps[0] > 0
    assert_allclose(np.array(gaps[1:]) / gaps[:-1], 0.1, rtol=0.05)


@pytest.mark.parametrize("alpha", [1.0, 1e8, 1e12])
def test_the_temperature_is_that_of_rows_left_out_for_large_alpha_too(alpha):
    X, y, groups = random_federation([4, 5, 3, 30, 20], n_features=10, n_classes=3, seed=1)
    clf, scores = FedHiPClassifier(alpha, 0.5).fit(X, y, groups=groups), []
    for i in range(len(y)):
        rest = np.arange(len(y)) != i
        again = FedHiPClassifier(alpha, 0.5).fit(X[rest], y[rest], groups=groups[rest])
        scores.append(again.decision_function(X[[i]], groups=groups[[i]])[0])
    losses = temperature_losses(np.array(scores), y)
    assert_allclose(clf.temperature_, best_temperature(losses), rtol=1e-6)


@pytest.mark.usefixtures("block_size")
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_weights_and_intercept_equal_augmented_normal_equations(federation, solver, fit_intercept):
    X, y, groups = federation
    weight = np.random.default_rng(1).uniform(0.1, 3.0, len(y))
    clf = FedHiPClassifier(2.5, 0.4, solver=solver, fit_intercept=fit_intercept)
    clf.fit(X + 3.0, y, groups=groups, sample_weight=weight)
    coefs, intercepts = weighted_oracle(
        X + 3.0, y, groups, 2.5, 0.4, weight, fit_intercept=fit_intercept
    )
    assert_models(clf, coefs, intercepts, X + 3.0, groups, rtol=1e-9)
    assert np.any(clf.personal_intercept_) == fit_intercept


def test_unknown_clients_get_the_global_model_with_its_intercept():
    X, y, groups = random_federation(**FEDERATIONS["unequal"])
    clf = FedHiPClassifier(2.0, 0.4, fit_intercept=True).fit(X, y, groups=groups)
    coef, intercept = normal_equations(X, one_hot(y, 4), 0.4, fit_intercept=True)
    half = np.where(np.arange(len(y)) % 2, groups, 10_000)
    scores = clf.decision_function(X, groups=half)[half == 10_000]
    assert_allclose(scores, X[half == 10_000] @ coef.T + intercept, rtol=0, atol=1e-10)


@pytest.mark.usefixtures("block_size")
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_an_intercept_takes_up_any_common_offset(solver, dtype):
    X, y, groups = random_federation(**FEDERATIONS["unequal"])
    X = np.round(X * 2**9) / 2**9  # so that adding 2**13 is exact, in float32 too
    clf = FedHiPClassifier(5.0, 0.1, solver=solver, fit_intercept=True)
    near = clf.fit(X, y, groups=groups)
    expected = near.personal_coef_, near.decision_function(X, groups=groups)
    far = (X + 2**13).astype(dtype)
    clf.fit(far, y, groups=groups)
    rtol = 1e-9 if dtype == np.float64 else 1e-6
    assert clf.personal_coef_.dtype == dtype
    assert_allclose(clf.personal_coef_, expected[0], rtol=0, atol=rtol * np.abs(expected[0]).max())
    scores = clf.decision_function(far, groups=groups)
    assert scores.dtype == dtype
    assert_allclose(scores, expected[1], rtol=0, atol=rtol * np.abs(expected[1]).max())


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_beta_0_and_fewer_rows_than_features_is_the_minimum_norm_solution(solver, fit_intercept):
    X, y, groups = random_federation([3, 5, 1, 2], n_features=20, n_classes=3)
    clf = FedHiPClassifier(2.0, 0.0, solver=solver, fit_intercept=fit_intercept)
    with pytest.warns(LinAlgWarning, match="minimum-norm"):
        clf.fit(X, y, groups=groups)
    Y = one_hot(y, 3)
    for k, client in enumerate([None, *clf.clients_]):
        root = np.sqrt(personal_rows(groups, client, 2.0))[:, None]
        mean = root.T @ (root * X) / (root.T @ root) * fit_intercept
        share = root.T @ (root * Y) / (root.T @ root) * fit_intercept
        coef = np.linalg.pinv(root * (X - mean)) @ (root * (Y - share))
        actual = clf.coef_ if client is None else clf.personal_coef_[k - 1]
        assert_allclose(actual.T, coef, rtol=0, atol=1e-9 * np.abs(coef).max())


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_vanishing_beta_tends_to_the_minimum_norm_solution(solver):
    X, y, groups = random_federation([3, 5, 1, 2], n_features=20, n_classes=3)
    clf = FedHiPClassifier(2.0, 1e-13, solver=solver).fit(X, y, groups=groups)
    G = np.linalg.pinv(X) @ one_hot(y, 3)
    assert_allclose(clf.coef_.T, G, rtol=0, atol=1e-8 * np.abs(G).max())
    # Every row is interpolated, so there is nothing left for the personal models to correct.
    assert_allclose(clf.personal_coef_, np.tile(G.T, (4, 1, 1)), 0, 1e-8 * np.abs(G).max())


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_a_client_sends_its_statistics_and_then_losses(fit_intercept):
    X, y, groups = random_federation(**FEDERATIONS["unequal"])
    clf = FedHiPClassifier(fit_intercept=fit_intercept).fit(X, y, groups=groups)
    size = statistics_size(8, 4, fit_intercept)
    assert clf.bytes_up_.max() == 8 * (size + len(TEMPERATURES))
    assert set(clf.bytes_down_.tolist()) == {8 * (size + 2)}  # with beta, and the temperature
