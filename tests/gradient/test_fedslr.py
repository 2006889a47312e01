"""FedSLR equals a known round and rounds in numpy; its ranks, factors and limits."""

import numpy as np
import pytest
from scipy.special import softmax
from torch import nn

from skfedhip import FedSLRClassifier
from skfedhip.federation._wire import decode_broadcast, encode
from skfedhip.gradient import CNN, MLP
from skfedhip.gradient._fedslr import LowRankBroadcast, as_matrix, from_matrix

from . import _plain as plain
from ._cases import assert_equal, load, rows
from ._data import make, small


@pytest.fixture(scope="module")
def case():
    return load("fedslr_round1.npz")


@pytest.fixture(scope="module")
def one_round(case):
    X, y, groups = rows(case)
    clf = FedSLRClassifier(
        float(case["rank_threshold"]),
        float(case["sparse_threshold"]),
        eta_g=1 / float(case["alpha"]),
        feature_extractor=MLP(()),
        init_params={"head.weight": case["init_W"], "head.bias": case["init_b"]},
        n_rounds=1,
        lr=float(case["lr"]),
        lr_decay=float(case["lr_decay"]),
        weight_decay=float(case["weight_decay"]),
        batch_size=100,
        shuffle=False,
        dtype="float64",
        missing_groups="global",
    )
    return clf.fit(X, y, groups=groups)


def test_the_known_round_is_aggregated_alike(case, one_round):
    assert_equal(one_round.global_params_["head.weight"], case["r1_global_W"])
    assert_equal(one_round.global_params_["head.bias"], case["r1_global_b"])
    kept = int((case["r1_singular_values_after"] > 0).sum())
    assert one_round.rank_ == {"head.weight": kept}
    losses = [float(case[f"r1_c{k}_ce_personal"]) for k in range(3)]
    mean = np.average(losses, weights=case["n_samples"])
    assert one_round.loss_curve_ == pytest.approx([mean], abs=1e-9)


@pytest.mark.parametrize("k", [0, 1, 2])
def test_the_known_round_leaves_the_same_clients(case, one_round, k):
    states = one_round._federation.states[0]
    for part, key in (("weight", "W"), ("bias", "b")):
        assert_equal(states[f"gamma.head.{part}"][k], case[f"r1_c{k}_mu_{key}"])
        sparse = one_round.personal_params_[f"sparse.head.{part}"][k]
        assert_equal(sparse, case[f"r1_c{k}_p_{key}"])
    X = case[f"c{k}_X"]
    for client, key in ((k, "personal"), (None, "global")):
        scores = one_round.decision_function(X, groups=[client] * len(X))
        assert_equal(scores, case[f"r1_c{k}_logits_{key}"])


def in_numpy(X, y, groups, W, *, n_rounds, lam, mu, eta, lr, lr_decay, decay, joined):
    """Rounds of the linear model without bias gradients' help: parameters (d, m + 1) at once.

    ``joined[t]`` are the clients of round t; one full-batch step in each phase.
    """
    X, Y = np.column_stack([X, np.ones(len(X))]), np.eye(len(W))[y]
    clients = np.unique(groups)
    gamma, p = ({k: np.zeros_like(W) for k in clients} for _ in range(2))

    def gradient(k, M):
        own = groups == k
        return (softmax(X[own] @ M.T, axis=1) - Y[own]).T @ X[own] / own.sum()

    for t in range(n_rounds):
        step, sent = lr * lr_decay**t, []
        for k in joined[t]:
            local = W - step * (gradient(k, W) + decay * W - gamma[k])
            gamma[k] = gamma[k] + (W - local) / eta
            moved = p[k] - step * (gradient(k, W + p[k]) + decay * p[k])
            p[k] = np.sign(moved) * np.maximum(np.abs(moved) - mu * step, 0)
            sent.append(local)
        Z = np.mean(sent, axis=0) - eta * np.mean([gamma[k] for k in clients], axis=0)
        U, s, Vt = np.linalg.svd(Z[:, :-1], full_matrices=False)
        W = np.column_stack([U * np.maximum(s - lam * eta, 0) @ Vt, Z[:, -1]])
    return W, p


@pytest.mark.parametrize("join_ratio", [1.0, 0.5])
def test_rounds_equal_numpy(join_ratio):
    X, y, groups = small()
    W = np.random.default_rng(0).normal(size=(3, 5)) / 3
    clf = make(
        FedSLRClassifier,
        0.02,
        0.05,
        eta_g=3.0,
        lr_decay=0.9,
        n_rounds=4,
        batch_size=100,
        join_ratio=join_ratio,
        feature_extractor=MLP(()),
        init_params={"head.weight": W[:, :-1], "head.bias": W[:, -1]},
    ).fit(X, y, groups=groups)
    cohorts = [np.flatnonzero(clf._fitted_method.joins(np.arange(4), t)) for t in range(4)]
    assert {len(cohort) for cohort in cohorts} == {4 * join_ratio}
    how = {"lam": 0.02, "mu": 0.05, "eta": 3.0, "lr": 0.2, "lr_decay": 0.9, "decay": 0.01}
    W, p = in_numpy(X, y, groups, W, n_rounds=4, joined=cohorts, **how)
    assert_equal(clf.global_params_["head.weight"], W[:, :-1])
    assert_equal(clf.global_params_["head.bias"], W[:, -1])
    for k in range(4):
        assert_equal(clf.personal_params_["sparse.head.weight"][k], p[k][:, :-1])
        assert_equal(clf.personal_params_["sparse.head.bias"][k], p[k][:, -1])
    zeros = [(p[k] == 0).mean() for k in range(4)]
    np.testing.assert_allclose(clf.sparsity_, zeros, atol=1e-12)


def test_a_large_threshold_leaves_the_global_model():
    X, y, groups = small()
    clf = make(FedSLRClassifier, 0.0, 100.0).fit(X, y, groups=groups)
    np.testing.assert_array_equal(clf.sparsity_, 1.0)
    ours, common = (clf.decision_function(X, groups=ids) for ids in (groups, [None] * len(y)))
    assert_equal(ours, common)


def test_factors_and_sparse_parts_give_the_models_back():
    X, y, groups = small(n_features=12)
    images = X.reshape(-1, 1, 3, 4).repeat(6, 2).repeat(5, 3)
    how = {"n_rounds": 1, "feature_extractor": CNN(4)}
    clf = make(FedSLRClassifier, 0.1, 0.01, **how).fit(images, y, groups=groups)
    shared, personal = clf.compress()
    assert any(isinstance(value, tuple) for value in shared.values())
    for name, array in clf.global_params_.items():
        value = shared[name]
        if isinstance(value, tuple):
            assert value[0].shape[1] == clf.rank_[name]
            value = from_matrix(value[0] @ value[1], array.shape)
        np.testing.assert_allclose(value, array, atol=1e-10)
        for k in range(4):
            own = clf.personal_params_[f"sparse.{name}"][k]
            matrix = personal[k][name].toarray()
            np.testing.assert_array_equal(matrix, np.atleast_2d(as_matrix(own)))


def test_factors_make_the_way_down_shorter():
    X, y, groups = small(n_features=30)
    low, full = (
        make(FedSLRClassifier, lam, n_rounds=2, feature_extractor=MLP((30,))).fit(
            X, y, groups=groups
        )
        for lam in (0.05, 0.0)
    )
    np.testing.assert_array_equal(low.bytes_up_, full.bytes_up_)
    dense = sum(array.nbytes for array in full.global_params_.values()) + 8
    assert set(full.bytes_down_.tolist()) == {3 * dense}
    sizes = {"extractor.0.weight": (30, 30), "head.weight": (3, 30)}
    saved = sum(max(0, m * n - low.rank_[name] * (m + n)) for name, (m, n) in sizes.items())
    assert 0 < 8 * saved <= (full.bytes_down_ - low.bytes_down_).min()


@pytest.mark.parametrize("images", [False, True])
def test_factors_are_what_travels(images):
    rng, rank = np.random.default_rng(0), 2
    shape = (6, 5, 3, 3) if images else (18, 15)
    matrix = rng.normal(size=(18, rank)) @ rng.normal(size=(rank, 15))
    weight = from_matrix(matrix, shape)
    parameters = {"w": weight, "b": rng.normal(size=6)}
    sent = LowRankBroadcast(parameters, np.array(3), {"w": np.array(rank)})
    data = encode(sent)
    header = 8 + int.from_bytes(data[:8], "little")
    few = 8 * (len(shape) + 1)  # the shape, and the rank
    assert len(data) - header == sent.nbytes + few < 8 * weight.size
    arrived = decode_broadcast(data)
    assert arrived.parameters["w"].shape == shape
    for name, array in parameters.items():
        np.testing.assert_allclose(arrived.parameters[name], array, rtol=0, atol=1e-13)
    dense = LowRankBroadcast(parameters, np.array(3), {"w": np.array(15)})
    np.testing.assert_array_equal(decode_broadcast(encode(dense)).parameters["w"], weight)


def test_a_convolution_as_a_matrix():
    weight = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    matrix = as_matrix(weight)
    assert matrix.shape == (8, 15)
    assert matrix[1 * 4 + 2, 2 * 5 + 3] == weight[1, 2, 2, 3]
    np.testing.assert_array_equal(from_matrix(matrix, weight.shape), weight)


def test_other_weights_are_compressed_with_a_row_an_output():
    def network(shape):
        convolution = nn.Conv1d(1, 2, 3)
        return nn.Sequential(nn.Unflatten(1, (1, *shape)), convolution, nn.Flatten())

    X, y, groups = small()
    clf = make(FedSLRClassifier, n_rounds=1, feature_extractor=network).fit(X, y, groups=groups)
    _, personal = clf.compress()
    name = "extractor.1.weight"
    own = clf.personal_params_[f"sparse.{name}"]
    assert own.shape == (4, 2, 1, 3)
    for k in range(4):
        np.testing.assert_array_equal(personal[k][name].toarray(), own[k].reshape(2, 3))


def gammas(clf):
    """What the server has of all clients' γ, and what they have themselves."""
    states, memory = clf._federation.states[0], clf._federation.server_state.memory
    names = [name for name in states if name.startswith("gamma.")]
    return [(memory[name], states[name].double().sum(0).numpy()) for name in names]


def test_clients_that_leave_take_their_part_of_the_server_along():
    clf, (X, y, groups) = plain.fitted(FedSLRClassifier, warm_start=True, n_rounds=3)
    for stay in ([0, 1], [0, 1, 2, 3], [3]):
        rows = np.isin(groups, stay)
        clf.fit(X[rows], y[rows], groups=groups[rows])
        for server, clients in gammas(clf):
            np.testing.assert_allclose(server, clients, atol=1e-12)
        assert clf._federation.server_state.memory["n_clients"] == len(stay)


def test_clients_without_rows_stay_part_of_the_server():
    clf, (X, y, groups) = plain.fitted(FedSLRClassifier, n_rounds=3)
    rows = groups == 3
    clf.partial_fit(X[rows], y[rows], groups=groups[rows])
    assert clf._federation.server_state.memory["n_clients"] == 4
    for server, clients in gammas(clf):
        np.testing.assert_allclose(server, clients, atol=1e-12)
