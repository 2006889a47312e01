"""Ridge solvers equal explicit inverses, client by client, also where a system is singular."""

import warnings
from contextlib import nullcontext

import numpy as np
import pytest
from _data import assert_close
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import LinAlgWarning

from skfedhip.core import (
    fitted_values,
    kernel_weights,
    minimum_norm_ridge,
    minimum_norm_root,
    prefers_residual,
    primal_coefs,
    ridge_is_safe,
    ridge_root,
    shared_root,
    spectral_root,
    weighted_sums,
)
from skfedhip.core._ridge import padded_batches

from .clients import COUNTS, offsets_of, runs

ORDERS = {
    "mixed": COUNTS,
    "equal": [5] * 8,
    "rising": sorted(COUNTS),
    "one large": [300],
    "one row": [1],
    "all large": [70, 66, 90],
    "nobody": [0, 0],
}


def gram_of(m, rank=None, seed=0):
    """A Gram matrix (m, m) of eigenvalues around 1; of lower rank where asked for."""
    rank = m if rank is None else rank
    factor = np.random.default_rng(seed).normal(size=(2 * m + 3, rank)) / np.sqrt(m)
    mix = np.linalg.qr(np.random.default_rng(seed + 1).normal(size=(m, m)))[0][:rank]
    return mix.T @ factor.T @ factor @ mix


def clients(counts, width, n_targets=3, seed=0):
    rng = np.random.default_rng(seed)
    n = sum(counts)
    return rng.normal(size=(n, width)), rng.normal(size=(n, n_targets)), offsets_of(counts)


@pytest.fixture(params=ORDERS)
def counts(request):
    return ORDERS[request.param]


# The root that all clients share.


@pytest.mark.parametrize("m", [1, 2, 191, 192, 193, 400])  # around panels of 192 columns
@pytest.mark.parametrize("weight", [None, 7.0])
def test_the_root_of_a_sound_system_is_triangular_and_squares_to_the_inverse(m, weight):
    gram = gram_of(m)
    expected = np.linalg.inv(gram + 0.3 * np.eye(m))
    root = ridge_root(gram.copy(), 0.3, weight=weight)
    assert root.triangular
    assert_array_equal(root.root, np.triu(root.root))
    assert_root(root, bordered(expected, weight))


@pytest.mark.parametrize(("m", "rank"), [(1, 0), (2, 1), (40, 39), (40, 0), (60, 10)])
@pytest.mark.parametrize("weight", [None, 7.0])
@pytest.mark.parametrize("size", [1.0, 1e-12, 1e12])
def test_the_root_of_a_singular_system_squares_to_the_pseudoinverse(m, rank, weight, size):
    gram = size * gram_of(m, rank)
    expected = np.linalg.pinv(gram, hermitian=True, rcond=1e-10)
    with pytest.warns(LinAlgWarning, match=rf"singular \(rank {rank} of {m}\)"):
        root = ridge_root(gram.copy(), 0.0, weight=weight)
    assert not root.triangular
    assert_root(root, bordered(expected, weight))


def test_a_tiny_penalty_on_a_singular_system_gives_minimum_norm_without_a_warning():
    gram = gram_of(30, 12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        root = ridge_root(gram.copy(), 1e-14)
    assert not root.triangular
    assert_root(root, np.linalg.pinv(gram, hermitian=True, rcond=1e-10))


def test_a_sound_system_without_a_penalty_needs_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        root = ridge_root(gram_of(20), 0.0)
    assert_root(root, np.linalg.inv(gram_of(20)))


def test_an_ill_conditioned_system_of_full_rank_keeps_all_its_directions():
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(12, 12)))[0]
    values = np.logspace(0, -12, 12)
    root = ridge_root((basis * values) @ basis.T, 0.0)
    assert root.root.shape == (12, 12)
    inverse = (basis / values) @ basis.T
    assert_allclose(root.root @ root.root.T, inverse, rtol=0, atol=1e-3 * np.abs(inverse).max())


def bordered(inverse, weight):
    """diag(1 / weight, inverse), the intercept's column first."""
    if weight is None:
        return inverse
    out = np.zeros((len(inverse) + 1, len(inverse) + 1))
    out[0, 0], out[1:, 1:] = 1 / weight, inverse
    return out


def assert_root(root, inverse):
    """W Wᵀ is the inverse, and whiten, unwhiten and solve multiply by W, Wᵀ and both."""
    scale = np.abs(inverse).max()
    assert_allclose(root.root @ root.root.T, inverse, rtol=0, atol=1e-9 * scale)
    rng = np.random.default_rng(3)
    rows, coef = (rng.normal(size=(5, size)) for size in root.root.shape)
    atol = 1e-12 * max(np.abs(rows @ root.root).max(initial=0), np.sqrt(scale))
    assert_allclose(root.whiten(rows), rows @ root.root, rtol=0, atol=atol)
    assert_allclose(root.unwhiten(coef), coef @ root.root.T, rtol=0, atol=10 * atol)
    assert_allclose(root.solve(rows), rows @ inverse, rtol=0, atol=1e-8 * scale)
    leverage = np.einsum("ij,jk,ik->i", rows, inverse, rows)
    assert_allclose(root.leverage(rows), leverage, rtol=0, atol=1e-8 * scale * len(inverse))


def test_the_solution_is_ridge_regression():
    rng = np.random.default_rng(0)
    F, Y = rng.normal(size=(50, 9)), rng.normal(size=(50, 3))
    coef = ridge_root(F.T @ F, 2.0).solve(Y.T @ F)
    stacked = np.vstack([F, np.sqrt(2.0) * np.eye(9)])
    expected = np.linalg.lstsq(stacked, np.vstack([Y, np.zeros((9, 3))]), rcond=None)[0]
    assert_allclose(coef, expected.T, rtol=0, atol=1e-12)


# Batches of clients of similar size.


@pytest.mark.parametrize("max_rows", [0, 1, 8, 64, 1000])
def test_batches_hold_every_small_client_once_with_little_padding(counts, max_rows):
    offsets, seen, padding = offsets_of(counts), [], 0
    for which, index, mask in padded_batches(offsets, max_rows):
        for k, own, real in zip(which, index, mask, strict=True):
            assert own[real].tolist() == list(range(offsets[k], offsets[k + 1]))
            assert real.tolist() == sorted(real.tolist(), reverse=True)
            assert np.all(own[~real] == offsets[k])
        assert mask.shape[1] <= max(1.25 * mask.sum(axis=1).min(), 4)
        seen += which.tolist()
        padding += (~mask).sum()
    assert sorted(seen) == [k for k, n in enumerate(counts) if 0 < n <= max_rows]
    assert padding <= 3 * len(seen) + 0.25 * sum(counts)


# Every client's own system.


def smoother_diagonal(rows, system):
    """Leverages: the diagonal of rows system⁻¹ rowsᵀ."""
    return np.einsum("ij,ij->i", rows @ np.linalg.inv(system), rows)


@pytest.mark.parametrize("width", [3, 70])
@pytest.mark.parametrize(("shift", "scale"), [(1.0, 0.4), (1.0, 300.0), (0.3, 1.0), (50.0, 1.0)])
@pytest.mark.parametrize("twice", [None, 0.0, 1.0])
def test_kernel_weights_solve_each_clients_dual_system(counts, width, shift, scale, twice):
    rows, targets, offsets = clients(counts, width)
    rows = rows / np.linalg.norm(rows)  # H <= 1, as in whitened coordinates
    before = rows.copy(), targets.copy()
    asked = {}
    if twice is not None:
        left, residuals = np.full(len(rows), np.nan), np.full(targets.shape, np.nan)
        asked = {"twice": twice, "left": left, "residuals": residuals}
    weights = kernel_weights(rows, targets, offsets, shift=shift, scale=scale, **asked)
    assert weights.shape == targets.shape
    for own in runs(offsets):
        F, T = rows[own], targets[own]
        kernel, identity = F @ F.T, np.eye(len(F))
        inverse = np.linalg.inv(shift * identity + scale * kernel)
        assert_close(weights[own], inverse @ (scale * T), 1e-9)
        if asked:
            diagonal = np.diag((shift * identity - twice * kernel) @ inverse)
            assert_allclose(left[own], np.maximum(diagonal, 0.0), rtol=0, atol=1e-9)
            assert_allclose(residuals[own], T - kernel @ weights[own], rtol=0, atol=1e-9)
    assert_array_equal(rows, before[0])
    assert_array_equal(targets, before[1])


@pytest.mark.parametrize("width", [3, 70])
@pytest.mark.parametrize(("shift", "scale"), [(1.0, 1e12), (1e-14, 1.0), (1.0, 1e300)])
def test_a_vanishing_shift_gives_the_minimum_norm_solution(width, shift, scale):
    counts = [n for n in COUNTS if n]
    rows, targets, offsets = clients(counts, width)
    rows[3] = rows[4]  # the same row twice: a singular kernel whatever the width
    left, residuals = np.empty(len(rows)), np.empty(targets.shape)
    weights = kernel_weights(
        rows, targets, offsets, shift=shift, scale=scale, left=left, residuals=residuals
    )
    for own in runs(offsets):
        F, inverse = rows[own], np.linalg.pinv(rows[own], rcond=1e-10)
        coef = weights[own].T @ F
        assert_close(coef.T, inverse @ targets[own], 1e-6)
        assert_allclose(left[own], 1 - np.diag(F @ inverse), atol=1e-6)
        assert_allclose(residuals[own], targets[own] - F @ coef.T, atol=1e-6)


def test_weighted_sums_are_products_client_by_client(counts):
    rows, weights, offsets = clients(counts, 5)
    sums = weighted_sums(rows, weights, offsets)
    assert sums.shape == (len(counts), 3, 5)
    for k, own in enumerate(runs(offsets)):
        assert_allclose(sums[k], weights[own].T @ rows[own], rtol=0, atol=1e-12)


def test_fitted_values_are_products_client_by_client(counts):
    rows, _, offsets = clients(counts, 5)
    coefs = np.random.default_rng(1).normal(size=(len(counts), 3, 5))
    fitted = fitted_values(rows, coefs, offsets)
    for coef, own in zip(coefs, runs(offsets), strict=True):
        assert_allclose(fitted[own], rows[own] @ coef.T, rtol=0, atol=1e-12)


@pytest.mark.parametrize("width", [3, 64, 65])
@pytest.mark.parametrize("scale", [0.4, 1e4])
@pytest.mark.parametrize("with_leverage", [False, True])
def test_primal_coefs_solve_each_clients_primal_system(counts, width, scale, with_leverage):
    rows, targets, offsets = clients(counts, width)
    shared = gram_of(width) + np.eye(width)
    before = shared.copy()
    leverage = np.full(len(rows), np.nan) if with_leverage else None
    coefs = primal_coefs(rows, targets, offsets, shared=shared, scale=scale, leverage=leverage)
    assert coefs.shape == (len(counts), 3, width)
    for k, own in enumerate(runs(offsets)):
        system = shared + scale * rows[own].T @ rows[own]
        expected = np.linalg.solve(system, scale * rows[own].T @ targets[own])
        assert_close(coefs[k].T, expected, 1e-9)
        if with_leverage:
            assert_close(leverage[own], smoother_diagonal(rows[own], system), 1e-9)
    assert_array_equal(shared, before)


@pytest.mark.parametrize("width", [3, 70])
def test_primal_equals_dual(counts, width):
    rows, targets, offsets = clients(counts, width)
    primal = primal_coefs(rows, targets, offsets, shared=0.7 * np.eye(width))
    weights = kernel_weights(rows, targets, offsets, shift=0.7, scale=1.0)
    assert_allclose(primal, weighted_sums(rows, weights, offsets), rtol=0, atol=1e-10)


@pytest.mark.parametrize("scale", [0.5, 1e3])
def test_a_clients_roots_square_to_the_inverse_of_its_system(scale):
    gram, shared = gram_of(30), gram_of(30, seed=5) + np.eye(30)
    root = shared_root(gram.copy(), shared, scale)
    assert root.triangular
    assert_root(root, np.linalg.inv(shared + scale * gram))
    flat = gram_of(30, 12)
    projector = flat @ np.linalg.pinv(flat, hermitian=True, rcond=1e-10)
    root = spectral_root(flat, scale)
    assert_root(root, projector @ np.linalg.inv(np.eye(30) + scale * flat))


@pytest.mark.parametrize("n", [4, 9, 40])
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_a_minimum_norm_root_squares_to_the_inverse_on_the_range_of_the_rows(n, beta):
    rows = clients([n], 9)[0]
    projector = np.linalg.pinv(rows) @ rows
    inverse = np.linalg.pinv(rows.T @ rows + beta * projector, hermitian=True, rcond=1e-10)
    one_of_many = pytest.warns(LinAlgWarning, match=f"rank {n} of 9")
    with one_of_many if beta == 0 and n < 9 else nullcontext():
        assert_root(minimum_norm_root(rows, beta), inverse)


@pytest.mark.parametrize("width", [3, 70])
def test_minimum_norm_ridge_without_a_penalty_is_lstsq(width):
    counts = [n for n in COUNTS if n]
    rows, targets, offsets = clients(counts, width)
    leverage = np.empty(len(rows))
    with pytest.warns(LinAlgWarning, match="minimum-norm"):
        coefs = minimum_norm_ridge(rows, targets, offsets, 0.0, leverage)
    for coef, own in zip(coefs, runs(offsets), strict=True):
        expected = np.linalg.lstsq(rows[own], targets[own], rcond=None)[0]
        assert_close(coef.T, expected, 1e-10)
        assert_close(leverage[own], np.diag(rows[own] @ np.linalg.pinv(rows[own])), 1e-10)


@pytest.mark.parametrize("beta", [1e-3, 2.0])
def test_minimum_norm_ridge_with_a_penalty_is_ridge(counts, beta):
    rows, targets, offsets = clients(counts, 6)
    coefs = minimum_norm_ridge(rows, targets, offsets, beta)
    expected = primal_coefs(rows, targets, offsets, shared=beta * np.eye(6))
    assert_close(coefs, expected, 1e-9)


def test_minimum_norm_ridge_warns_only_where_the_solution_is_not_unique():
    rows, targets, offsets = clients([40, 30], 5)
    rows[offsets[1] :, 2] = 0.0  # a feature that the second client does not have
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        minimum_norm_ridge(rows[:40], targets[:40], offsets[:2], 0.0)
        minimum_norm_ridge(rows, targets, offsets, 1e-13)
    with pytest.warns(LinAlgWarning, match="a client's system is singular"):
        coefs = minimum_norm_ridge(rows, targets, offsets, 0.0)
    assert np.abs(coefs[1, :, 2]).max() < 1e-15


def test_a_penalty_is_safe_where_it_exceeds_a_billionth_of_the_squares():
    rows, _, offsets = clients([2, 50, 1], 4)
    rows[offsets[1] : offsets[2]] *= 1e5
    squares = [np.sum(rows[own] ** 2) for own in runs(offsets)]
    for beta in (0.0, 1e-12, 1e-9, 1e-8, 1.0, 1e4):
        expected = [beta > 1e-9 * square for square in squares]
        assert ridge_is_safe(rows, offsets, beta).tolist() == expected
    assert not ridge_is_safe(rows, offsets, 0.0).any()


@pytest.mark.parametrize("width", [1, 5, 64, 1024])
@pytest.mark.parametrize("n_classes", [2, 10, 500])
def test_small_clients_prefer_the_residual_form_and_large_ones_do_not(width, n_classes):
    chosen = prefers_residual(np.arange(1, 8 * (width + n_classes)), width, n_classes)
    assert np.all(chosen[1:] <= chosen[:-1])  # once the direct form wins it wins for good
    assert not chosen[-1]
    if width >= 64:
        assert chosen[: width // 4].all()
