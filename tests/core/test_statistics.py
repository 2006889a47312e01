"""Statistics add and subtract as sets of rows do, and lose no digits at a large mean."""

from functools import reduce
from operator import add

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skfedhip.core import RidgeStatistics

from .clients import random_design

COUNTS = [1, 20, 3, 60]


@pytest.fixture(params=[False, True], ids=["origin", "mean"])
def fit_intercept(request):
    return request.param


def statistics(design, clients, *, fit_intercept):
    chosen = design.clients(np.array(clients))
    return RidgeStatistics.from_design(chosen, fit_intercept=fit_intercept)


def exact(design, clients, *, fit_intercept):
    """Gram matrix, class sums, class weights and mean in extended precision, row by row."""
    chosen = design.clients(np.array(clients))
    rows, targets = (a.astype(np.longdouble) for a in (chosen.rows, chosen.dense_targets()))
    root = rows[:, :1] if fit_intercept else 0
    mean = root.T @ rows[:, 1:] / (root.T @ root) if fit_intercept else None
    f = rows[:, 1:] - root * mean if fit_intercept else rows
    gram, cross = sum(np.outer(r, r) for r in f), sum(map(np.outer, targets, f))
    weights = sum(t**2 for t in targets)  # √w squared
    return gram, cross, weights, mean[0] if fit_intercept else None


def assert_statistics(actual, expected, rtol=1e-12):
    gram, cross, weights, mean = expected
    scale = np.abs(gram).max()
    assert_allclose(actual.gram, gram.astype(float), rtol=0, atol=rtol * scale)
    assert_allclose(actual.cross, cross.astype(float), rtol=0, atol=rtol * scale)
    assert_allclose(actual.class_weights, weights.astype(float), rtol=rtol)
    assert_allclose(actual.weight, float(weights.sum()), rtol=rtol)
    if mean is None:
        assert actual.mean is None
    else:
        assert_allclose(actual.mean, mean.astype(float), rtol=rtol, atol=rtol)


def test_statistics_are_sums_over_rows(fit_intercept):
    design = random_design(COUNTS, 5, fit_intercept=fit_intercept)
    actual = statistics(design, [0, 1, 2, 3], fit_intercept=fit_intercept)
    assert_statistics(actual, exact(design, [0, 1, 2, 3], fit_intercept=fit_intercept))
    assert actual.n_features == 5


@pytest.mark.parametrize("parts", [([0], [1, 2, 3]), ([0, 3], [1, 2]), ([0], [2])])
def test_a_sum_is_the_statistics_of_the_union(fit_intercept, parts):
    design = random_design(COUNTS, 5, fit_intercept=fit_intercept, offset=3.0)
    a, b = (statistics(design, part, fit_intercept=fit_intercept) for part in parts)
    union = exact(design, sorted(parts[0] + parts[1]), fit_intercept=fit_intercept)
    assert_statistics(a + b, union)
    assert_statistics(b + a, union)


def test_a_difference_is_the_statistics_of_the_rest(fit_intercept):
    design = random_design(COUNTS, 5, fit_intercept=fit_intercept, offset=3.0)
    total, part = (
        statistics(design, clients, fit_intercept=fit_intercept)
        for clients in ([0, 1, 2, 3], [0, 3])
    )
    assert_statistics(total - part, exact(design, [1, 2], fit_intercept=fit_intercept), 1e-11)
    assert_statistics(
        (total - part) + part, exact(design, [0, 1, 2, 3], fit_intercept=fit_intercept), 1e-11
    )


def test_sums_leave_their_parts_alone(fit_intercept):
    design = random_design(COUNTS, 5, fit_intercept=fit_intercept)
    a, b = (statistics(design, part, fit_intercept=fit_intercept) for part in ([0, 1], [2]))
    before = [a.triangle.copy(), a.cross.copy(), b.triangle.copy(), b.cross.copy()]
    _ = a + b, a - b
    after = [a.triangle, a.cross, b.triangle, b.cross]
    for old, new in zip(before, after, strict=True):
        assert_array_equal(old, new)


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]])
def test_many_parts_at_a_large_mean_lose_no_digits(order):
    design = random_design([4, 50, 7, 90], 6, fit_intercept=True, offset=1e4)
    parts = [statistics(design, [k], fit_intercept=True) for k in order]
    expected = exact(design, [0, 1, 2, 3], fit_intercept=True)
    assert_statistics(reduce(add, parts), expected, 1e-11)
    rest = exact(design, sorted(order[1:]), fit_intercept=True)
    assert_statistics(reduce(add, parts) - parts[0], rest, 1e-10)
    # What this guards against: a Gram matrix about zero, centred afterwards.
    root, f = design.rows[:, :1], design.rows[:, 1:]
    mean = expected[3].astype(float)
    late = f.T @ f - np.outer(mean, mean) * (root.T @ root)
    assert np.abs(late - expected[0].astype(float)).max() > 1e-9 * np.abs(expected[0]).max()


@pytest.mark.parametrize("n_features", [1, 2, 5])
def test_the_triangle_is_packed_by_columns_and_the_matrix_symmetric(n_features):
    design = random_design([30], n_features)
    packed = RidgeStatistics.from_design(design)
    gram = design.rows.T @ design.rows
    columns = [gram[j:, j] for j in range(n_features)]
    assert_allclose(packed.triangle, np.concatenate(columns), rtol=1e-13)
    assert_array_equal(packed.gram, packed.gram.T)
    assert packed.triangle.shape == (n_features * (n_features + 1) // 2,)
    packed.gram[:] = 0.0  # a copy each time
    assert_allclose(packed.gram, gram, rtol=1e-13)
