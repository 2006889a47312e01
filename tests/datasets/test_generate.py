"""The synthetic federation is what its formula says, and personal models gain as promised."""

import numpy as np
import pytest

from skfedhip.datasets import make_federated_classification


def ridge_predict(X, y, X_test, n_classes):
    """Ridge regression on one-hot labels by the normal equations."""
    A = np.column_stack([np.ones(len(X)), X])
    coef = np.linalg.solve(A.T @ A + np.eye(A.shape[1]), A.T @ np.eye(n_classes)[y])
    return (np.column_stack([np.ones(len(X_test)), X_test]) @ coef).argmax(axis=1)


def accuracies(client_shift, alpha, seed):
    """Test accuracy of (one model for all, one model per client)."""
    X, y, groups = make_federated_classification(
        n_clients=10,
        n_samples=2000,
        n_features=10,
        alpha=alpha,
        client_shift=client_shift,
        random_state=seed,
    )
    train = np.random.default_rng(seed).random(len(y)) < 0.5
    test = ~train
    shared = ridge_predict(X[train], y[train], X[test], 5) == y[test]
    own = np.empty(len(y), dtype=bool)
    for k in range(10):
        here, there = train & (groups == k), test & (groups == k)
        own[there] = ridge_predict(X[here], y[here], X[there], 5) == y[there]
    return shared.mean(), own[test].mean()


@pytest.mark.parametrize("seed", range(3))
def test_personal_models_win_with_shift_and_lose_without(seed):
    shared, own = accuracies(client_shift=4.0, alpha=100.0, seed=seed)
    assert own > shared + 0.1
    shared, own = accuracies(client_shift=0.0, alpha=100.0, seed=seed)
    assert own < shared


def test_the_gain_grows_with_the_shift():
    gains = []
    for shift in (0.0, 2.0, 6.0):
        shared, own = np.mean([accuracies(shift, 100.0, seed) for seed in range(3)], axis=0)
        gains.append(own - shared)
    assert gains[0] < gains[1] < gains[2]


def test_shapes_and_balance():
    X, y, groups = make_federated_classification(7, 501, 3, 4, random_state=0)
    assert X.shape == (501, 3)
    assert X.dtype == np.float64
    assert np.ptp(np.bincount(y, minlength=4)) <= 1
    assert np.bincount(groups, minlength=7).min() >= 10
    assert groups.max() == 6


def test_without_shift_labels_and_clients_leave_unit_noise():
    X, y, groups = make_federated_classification(
        4, 20000, 5, 3, alpha=10.0, client_shift=0.0, random_state=0
    )
    cells = y * 4 + groups
    size = np.bincount(cells)
    means = np.array([X[cells == cell].mean(axis=0) for cell in range(12)])
    by_class = np.array([X[y == c].mean(axis=0) for c in range(3)])
    z = (means - np.repeat(by_class, 4, axis=0)) * np.sqrt(size)[:, None]
    assert np.abs(z).max() < 5
    np.testing.assert_allclose((X - by_class[y]).std(axis=0), 1, atol=0.03)


def test_lengths_of_separation_and_shift():
    n_features, n_classes, n_clients = 400, 5, 10
    X, y, groups = make_federated_classification(
        n_clients,
        20000,
        n_features,
        n_classes,
        alpha=100.0,
        class_sep=30.0,
        client_shift=20.0,
        random_state=0,
    )
    means = np.array(
        [[X[(y == c) & (groups == k)].mean(axis=0) for k in range(n_clients)] for c in range(5)]
    )
    centres = means.mean(axis=1)
    moves = means - centres[:, None]
    shift = np.sqrt((moves**2).sum(axis=-1).mean() * n_clients / (n_clients - 1))
    assert shift == pytest.approx(20.0, rel=0.1)
    gaps = np.sqrt(((centres[:, None] - centres) ** 2).sum(axis=-1))[np.triu_indices(5, 1)]
    # the centres still move by the mean of ten moves each
    assert np.sqrt((gaps**2).mean()) == pytest.approx(np.sqrt(30**2 + 2 * 20**2 / 10), rel=0.1)


def test_the_seed_decides():
    first = make_federated_classification(random_state=0)
    for a, b in zip(first, make_federated_classification(random_state=0), strict=True):
        np.testing.assert_array_equal(a, b)
    assert np.any(first[0] != make_federated_classification(random_state=1)[0])


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"n_clients": 0}, "n_clients"),
        ({"n_classes": 1}, "n_classes"),
        ({"n_features": 0}, "n_features"),
        ({"n_samples": 3, "n_classes": 4}, "n_classes"),
        ({"client_shift": -1.0}, "client_shift"),
        ({"class_sep": np.inf}, "class_sep"),
        ({"alpha": 0.0}, "alpha"),
        ({"n_samples": 100}, "min_size=10 for 20 clients needs 200 rows"),
    ],
)
def test_bad_parameters_are_refused(params, match):
    with pytest.raises(ValueError, match=match):
        make_federated_classification(**params)
