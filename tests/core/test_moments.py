"""Moments merge to those of all rows, in any order and at any mean."""

from functools import reduce
from operator import add

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skfedhip.core import Moments


def exact(rows, weight):
    """Sum of weights, mean and centred squares in extended precision."""
    rows, weight = rows.astype(np.longdouble), weight.astype(np.longdouble)
    mean = (weight[:, None] * rows).sum(axis=0) / weight.sum()
    return weight.sum(), mean, (weight[:, None] * (rows - mean) ** 2).sum(axis=0)


def assert_moments(actual, expected, rtol=1e-12):
    weight, mean, squares = (np.asarray(each, dtype=float) for each in expected)
    assert_allclose(actual.weight, weight, rtol=1e-14)
    assert_allclose(actual.mean, mean, rtol=1e-14, atol=1e-14)
    assert_allclose(actual.squares, squares, rtol=rtol)


@pytest.mark.parametrize("offset", [0.0, 1e4, -1e8])
@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 1, 0, 2]])
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_of_parts_are_the_moments_of_all_rows(offset, order, weighted):
    rng = np.random.default_rng(0)
    # Multiples of 1/16, so that all offsets leave the rows' digits as they are.
    rows = np.round(16 * rng.normal(size=(60, 4)) * [1, 10, 100, 5]) / 16 + offset
    weight = rng.uniform(0.5, 2.0, 60) if weighted else np.ones(60)
    bounds = [slice(0, 1), slice(1, 4), slice(4, 40), slice(40, 60)]
    parts = [
        Moments.from_rows(rows[part], weight[part] if weighted else None)
        for part in (bounds[i] for i in order)
    ]
    # Means are known to eps times their size; sums of squares about zero would lose its square.
    rtol = 1e-12 + 10 * np.finfo(float).eps * abs(offset)
    assert_moments(reduce(add, parts), exact(rows, weight), rtol)
    assert_moments(Moments.from_rows(rows, weight), exact(rows, weight))


def test_float32_rows_are_accumulated_in_float64():
    rows = np.random.default_rng(0).normal(1e4, 1, (1000, 3)).astype(np.float32)
    assert_moments(Moments.from_rows(rows), exact(rows, np.ones(1000)))


def test_a_single_row_has_no_spread():
    one = Moments.from_rows(np.array([[1.5, -2.0]]))
    assert one.mean.tolist() == [1.5, -2.0]
    assert one.squares.tolist() == [0.0, 0.0]
