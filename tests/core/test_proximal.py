"""Proximal maps are the minimisers that they say they are."""

import numpy as np
import pytest

from skfedhip.core import shrink_singular_values


def objective(Z, M, threshold):
    return ((Z - M) ** 2).sum() / 2 + threshold * np.linalg.norm(Z, "nuc")


@pytest.mark.parametrize("shape", [(4, 4), (3, 7), (6, 2)])
@pytest.mark.parametrize("threshold", [0.0, 0.5, 2.0])
def test_no_matrix_nearby_is_better(shape, threshold):
    rng = np.random.default_rng(0)
    M = rng.normal(size=shape)
    left, right = shrink_singular_values(M, threshold)
    best = left @ right
    assert left.shape[1] == np.linalg.matrix_rank(best)
    for step in (1e-4, 1e-2, 1.0):
        for _ in range(20):
            other = best + step * rng.normal(size=shape)
            assert objective(other, M, threshold) >= objective(best, M, threshold) - 1e-12


def test_zero_keeps_and_much_empties():
    M = np.random.default_rng(0).normal(size=(3, 5))
    left, right = shrink_singular_values(M, 0.0)
    np.testing.assert_allclose(left @ right, M, atol=1e-14)
    left, right = shrink_singular_values(M, 100.0)
    assert left.shape == (3, 0)
    np.testing.assert_array_equal(left @ right, 0.0)


def test_rounding_makes_no_rank():
    rng = np.random.default_rng(0)
    M = rng.normal(size=(8, 2)) @ rng.normal(size=(2, 9))
    assert shrink_singular_values(M, 0.0)[0].shape == (8, 2)
