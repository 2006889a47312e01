"""Partitions are disjoint, exhaustive and what their names say."""

import numpy as np
import pytest
from scipy import stats

from skfedhip.datasets import (
    partition_dirichlet,
    partition_dirichlet_labels,
    partition_iid,
    partition_shards,
)

PARTITIONS = {
    "iid": lambda y, K, seed: partition_iid(y, K, random_state=seed),
    "shards": lambda y, K, seed: partition_shards(y, K, 2, random_state=seed),
    "dirichlet": lambda y, K, seed: partition_dirichlet(y, K, 0.5, random_state=seed),
    "unbalanced": lambda y, K, seed: partition_dirichlet(
        y, K, 0.5, balanced=False, random_state=seed
    ),
    "labels": lambda y, K, seed: partition_dirichlet_labels(y, K, 0.5, random_state=seed),
}


@pytest.fixture(params=PARTITIONS.values(), ids=PARTITIONS.keys())
def partition(request):
    return request.param


def labels(n=1000, n_classes=5, seed=0):
    """Shuffled labels with classes of different size."""
    rng = np.random.default_rng(seed)
    return rng.choice(
        n_classes, n, p=np.arange(1, n_classes + 1) / (n_classes * (n_classes + 1) / 2)
    )


def table(y, groups, n_clients):
    """Rows of each class at each client, counted one by one."""
    classes = np.unique(y)
    return np.array([[np.sum((y == c) & (groups == k)) for k in range(n_clients)] for c in classes])


def test_every_row_goes_to_one_of_exactly_n_clients(partition):
    y = labels()
    groups = partition(y, 8, 0)
    assert groups.shape == y.shape
    assert groups.dtype.kind == "i"
    np.testing.assert_array_equal(np.unique(groups), np.arange(8))
    assert table(y, groups, 8).sum() == len(y)


def test_the_seed_decides_and_the_kind_of_label_does_not(partition):
    y = labels()
    groups = partition(y, 8, 3)
    np.testing.assert_array_equal(groups, partition(y, 8, 3))
    np.testing.assert_array_equal(groups, partition(y, 8, np.random.RandomState(3)))
    assert np.any(groups != partition(y, 8, 4))
    for same in (y.astype(float), np.array(list("vwxyz"))[y], y.astype(object), y.tolist()):
        np.testing.assert_array_equal(groups, partition(same, 8, 3))


def test_global_random_state_is_left_alone(partition):
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    partition(labels(), 8, 0)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_rows_of_a_class_are_shuffled_before_they_are_dealt(partition):
    y = np.repeat(np.arange(5), 200)
    groups = partition(y, 8, 0)
    runs = [np.count_nonzero(np.diff(groups[y == c])) for c in range(5)]
    holders = [len(np.unique(groups[y == c])) for c in range(5)]
    assert any(run > 2 * held for run, held in zip(runs, holders, strict=True))


def test_one_client_gets_everything(partition):
    y = labels(n_classes=2)
    np.testing.assert_array_equal(partition(y, 1, 0), np.zeros(len(y)))


@pytest.mark.parametrize(
    ("y", "match"),
    [
        ([], "no rows"),
        ([1.0, np.nan, 2.0], "missing labels"),
        (np.array(["a", None, "b"], dtype=object), "missing labels"),
        ([0.5, 1.5, 0.5], "continuous value 0.5"),
        ([[0, 1], [1, 0]], "1d array"),
        ([0, 1, 0], "n_clients=4 is more than the 3 rows"),
    ],
)
def test_bad_labels_are_refused(partition, y, match):
    with pytest.raises(ValueError, match=match):
        partition(y, 4, 0)


@pytest.mark.parametrize("n_clients", [0, -1, 2.0, "3", None])
def test_bad_n_clients_is_refused(partition, n_clients):
    with pytest.raises((ValueError, TypeError), match="n_clients"):
        partition(labels(), n_clients, 0)


@pytest.mark.parametrize("n_clients", [1, 3, 7, 100, 203])
def test_iid_is_even_in_size_and_in_every_class(n_clients):
    y = labels(203)
    counts = table(y, partition_iid(y, n_clients, random_state=0), n_clients)
    assert np.ptp(counts.sum(axis=0)) <= 1
    assert np.ptp(counts, axis=1).max() <= 1


@pytest.mark.parametrize(("n_clients", "held"), [(5, 1), (7, 2), (20, 3), (2, 4), (6, 5)])
def test_shards_have_exactly_the_classes_asked_for(n_clients, held):
    y = labels()
    counts = table(y, partition_shards(y, n_clients, held, random_state=0), n_clients)
    np.testing.assert_array_equal((counts > 0).sum(axis=0), held)
    assert np.ptp((counts > 0).sum(axis=1)) <= 1
    for row in counts:
        assert np.ptp(row[row > 0]) <= 1


def test_shards_mix_classes_freely():
    y = np.arange(1000) % 10
    counts = table(y, partition_shards(y, 45, 2, random_state=0), 45)
    pairs = {tuple(np.flatnonzero(column)) for column in counts.T}
    assert len(pairs) > 20


@pytest.mark.parametrize(
    ("n_clients", "held", "match"),
    [
        (2, 2, "2 clients of 2 classes cannot hold all 5"),
        (3, 6, "classes_per_client == 6"),
        (3, 0, "classes_per_client == 0"),
        (20, 3, "Class 0 has 3 rows for 12 clients"),
    ],
)
def test_impossible_shards_are_refused(n_clients, held, match):
    y = np.concatenate([np.zeros(3, dtype=int), np.repeat([1, 2, 3, 4], 50)])
    with pytest.raises(ValueError, match=match):
        partition_shards(y, n_clients, held, random_state=0)


@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize("n_clients", [4, 50])
def test_dirichlet_tends_to_iid(balanced, n_clients):
    y = np.arange(5000) % 5
    groups = partition_dirichlet(y, n_clients, 1e9, balanced=balanced, random_state=0)
    counts = table(y, groups, n_clients)
    assert np.abs(counts - 1000 / n_clients).max() <= 1


def test_dirichlet_without_balance_has_the_moments_of_the_law():
    alpha, n_clients, n_classes = 0.7, 4, 2000
    y = np.repeat(np.arange(n_classes), 50)
    groups = partition_dirichlet(y, n_clients, alpha, balanced=False, random_state=0)
    parts = np.bincount(y * n_clients + groups, minlength=n_classes * n_clients) / 50
    law = stats.beta(alpha, (n_clients - 1) * alpha)
    assert parts.mean() == pytest.approx(law.mean())
    # rounding to 50 rows adds about 1 / (6 * 50**2) to the variance
    assert parts.var() == pytest.approx(law.var(), rel=0.05)


@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize("alpha", [1e-3, 1e-12, 1e-310])
def test_a_tiny_alpha_puts_each_class_at_one_client(alpha, balanced):
    y = np.repeat(np.arange(12), 20)
    groups = partition_dirichlet(y, 6, alpha, min_size=0, balanced=balanced, random_state=0)
    counts = table(y, groups, 6)
    assert counts.sum() == len(y)
    assert np.sum(counts > 0) <= 14  # 12 classes, and a rare one in two parts
    if balanced and alpha < 1e-3:
        np.testing.assert_array_equal(counts.sum(axis=0), 40)


def test_a_full_client_is_closed_for_the_following_classes():
    y = labels(2000, 8)
    counts = table(y, partition_dirichlet(y, 10, 0.2, random_state=0), 10)
    before = np.cumsum(counts, axis=0) - counts
    assert np.all(counts[before >= 200] == 0)
    assert np.any(before >= 200)


@pytest.mark.parametrize("min_size", [0, 1, 10, 40])
def test_min_size_holds(min_size):
    y = labels()
    for seed in range(5):
        groups = partition_dirichlet(y, 8, 1.0, min_size=min_size, random_state=seed)
        assert np.bincount(groups, minlength=8).min() >= min_size


def test_impossible_min_size_fails_at_once_with_the_reason():
    with pytest.raises(
        ValueError, match=r"min_size=11 for 10 clients needs 110 rows, but y has 100"
    ):
        partition_dirichlet(np.arange(100) % 2, 10, 1.0, min_size=11)


def test_a_min_size_out_of_reach_gives_up_and_says_how_near_it_came():
    with pytest.raises(ValueError, match=r"None of 100 draws .* min_size=10 .*best gave 0"):
        partition_dirichlet(np.zeros(100, dtype=int), 10, 1e-3, random_state=0)


def test_dirichlet_labels_gives_equal_sizes():
    y = labels(1003)
    counts = table(y, partition_dirichlet_labels(y, 10, 0.3, random_state=0), 10)
    assert np.ptp(counts.sum(axis=0)) == 1


def test_dirichlet_labels_tends_to_the_class_frequencies_and_to_single_classes():
    y = labels(20000)
    frequencies = np.bincount(y) / len(y)
    counts = table(y, partition_dirichlet_labels(y, 10, 1e9, random_state=0), 10)
    # the last client takes what is left, which gathers the noise of the nine others
    np.testing.assert_allclose(counts / 2000, np.tile(frequencies[:, None], 10), atol=0.08)
    counts = table(y, partition_dirichlet_labels(y, 50, 1e-9, random_state=0), 50)
    assert np.sum(counts > 0) <= 50 + 5  # one class each, and each class runs out once


def test_dirichlet_labels_has_the_moments_of_the_law_at_the_first_client():
    y = np.repeat([0, 1], [3000, 1000])
    parts = [
        np.mean(y[partition_dirichlet_labels(y, 40, 2.0, random_state=seed) == 0])
        for seed in range(200)
    ]
    law = stats.beta(2.0 * 0.25, 2.0 * 0.75)  # alpha times the frequencies
    assert np.mean(parts) == pytest.approx(law.mean(), abs=4 * law.std() / 200**0.5)
    assert np.std(parts) == pytest.approx(law.std(), rel=0.2)


@pytest.mark.parametrize("split", [partition_dirichlet, partition_dirichlet_labels])
@pytest.mark.parametrize("alpha", [0, -1.0, np.inf, np.nan, "a", None])
def test_bad_alpha_is_refused(split, alpha):
    with pytest.raises((ValueError, TypeError), match="alpha"):
        split(labels(), 3, alpha)
