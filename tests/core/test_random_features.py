"""Random feature maps: fixed by seed and key, of the variance promised, with known activations."""

from math import erf, tanh

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skfedhip.core import ACTIVATIONS, gaussian_projection, random_features

SCALARS = {
    "tanh": tanh,
    "relu": lambda z: max(z, 0.0),
    "gelu": lambda z: z * 0.5 * (1 + erf(z / 2**0.5)),
}


def test_every_activation_has_a_reference():
    assert set(SCALARS) == set(ACTIVATIONS)


@pytest.mark.parametrize("activation", SCALARS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_features_are_the_activation_of_projected_rows(activation, dtype):
    rng = np.random.default_rng(0)
    X, R = (3 * rng.normal(size=(9, 4))).astype(dtype), rng.normal(size=(4, 7))
    before = X.copy()
    features = random_features(X, R, activation)
    expected = [[SCALARS[activation](float(x.astype(float) @ r)) for r in R.T] for x in X]
    assert features.dtype == np.float64
    assert_allclose(features, expected, rtol=1e-13, atol=1e-14)
    assert_array_equal(X, before)


def test_a_callable_is_applied_to_all_features_of_a_block_at_once():
    X, R = np.arange(6.0).reshape(3, 2), np.eye(2)
    centered = random_features(X, R, lambda z: z - z.mean(axis=1, keepdims=True))
    assert_array_equal(centered, [[-0.5, 0.5]] * 3)


def test_entries_are_gaussian_of_variance_one_over_the_number_of_features():
    m, q = 50, 20_000
    R = np.sqrt(m) * gaussian_projection(m, q, 3, b"primary")
    assert R.shape == (m, q)
    bound = 5 / np.sqrt(R.size)  # five standard deviations of each mean below
    assert abs(R.mean()) < bound
    assert abs((R**2).mean() - 1) < bound * np.sqrt(2)
    assert abs((R**4).mean() - 3) < bound * np.sqrt(96)
    assert abs((R[:, 1:] * R[:, :-1]).mean()) < bound
    assert abs((R[1:] * R[:-1]).mean()) < bound


def test_the_same_seed_and_key_draw_the_same_map_and_any_other_another():
    def draw(seed, *key):
        return gaussian_projection(4, 6, seed, *key)

    first = draw(0, b"refinement", b"n:1")
    draw(7, b"something in between")
    assert_array_equal(draw(0, b"refinement", b"n:1"), first)
    assert_array_equal(draw(np.int64(0), b"refinement", b"n:1"), first)
    others = [
        draw(1, b"refinement", b"n:1"),
        draw(0, b"refinement", b"n:2"),
        draw(0, b"refinement", b"s:1"),
        draw(0, b"refinement"),
        draw(0, b"primary", b"n:1"),
        draw(0),
    ]
    for other in others:
        assert np.all(other != first)
