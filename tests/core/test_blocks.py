"""Blocks hold every row once, with its client, however they are cut, gathered or compressed."""

import pickle
import sys
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from skfedhip.core import ClientBlock, DesignBlock, compress, group_rows, rows_per_block
from skfedhip.core._design import ragged_arange

from .clients import random_design, runs

N_CLASSES = 4
CODES = {
    "shuffled": np.random.default_rng(1).integers(0, 6, 60),
    "in order": np.repeat(np.arange(6), [1, 9, 30, 2, 8, 10]),
    "absent clients": np.random.default_rng(2).choice([1, 4], 60),
    "one client": np.zeros(60, dtype=int),
    "one row each": np.arange(60)[::-1],
}


@pytest.fixture(params=CODES)
def codes(request):
    return CODES[request.param]


@pytest.fixture(params=["unweighted", "weighted", "class factors", "both"])
def arrays(request, codes):
    """X, y, codes, client ids, weights, a third of them zero, and class factors, one of them zero;
    either or both are None.
    """
    rng = np.random.default_rng(0)
    weight = rng.uniform(0.1, 2.0, 60) * (rng.random(60) > 0.33)
    ids = np.array([f"client {k}" for k in range(codes.max() + 2)])
    X, y = rng.normal(size=(60, 3)), rng.integers(0, N_CLASSES, 60)
    weight = weight if request.param in ("weighted", "both") else None
    factor = np.array([2.0, 0.0, 0.5, 1.0]) if request.param in ("class factors", "both") else None
    return X, y, codes, ids, weight, factor


@pytest.fixture
def block(arrays):
    return make_block(*arrays)


def make_block(X, y, codes, ids, weight, factor):
    return ClientBlock.from_arrays(X, y, codes, ids, N_CLASSES, weight, factor)


def row_weights(y, weight, factor):
    """Weights before and after class factors."""
    weight = np.ones(len(y)) if weight is None else weight
    return weight, weight if factor is None else weight * factor[y]


def client_by_client(arrays):
    """(id, features, labels, weights with class factors) of each client, by a mask each."""
    X, y, codes, ids, weight, factor = arrays
    _, weight = row_weights(y, weight, factor)
    for k, client in enumerate(ids):
        own = (codes == k) & (weight > 0)
        if own.any():
            yield client, X[own], y[own], weight[own]


def weights_of(block):
    return np.ones(block.n_rows) if block.weights is None else block.weights


def test_each_client_is_a_run_of_its_rows_in_their_order(arrays, block):
    expected = list(client_by_client(arrays))
    assert block.client_ids.tolist() == [client for client, *_ in expected]
    features, weight = block.features(), weights_of(block)
    for own, (_, X_k, y_k, w_k) in zip(runs(block.offsets), expected, strict=True):
        assert_array_equal(features[own], X_k)
        assert_array_equal(block.y[own], y_k)
        assert_array_equal(weight[own], w_k)
    assert block.n_rows == len(features) == sum(len(y_k) for _, _, y_k, _ in expected)
    assert block.counts.tolist() == [len(y_k) for _, _, y_k, _ in expected]


def test_class_weights_are_sums_by_client_and_class(arrays, block):
    for sums, (_, _, y_k, w_k) in zip(block.class_weights, client_by_client(arrays), strict=True):
        naive = [w_k[y_k == c].sum() for c in range(N_CLASSES)]
        assert_allclose(sums, naive, rtol=1e-14)


def test_rows_in_order_are_a_view_and_the_array_is_never_copied(block, arrays):
    X, _, codes, _, weight, factor = arrays
    assert block.X is X
    in_order = weight is factor is None and bool(np.all(np.diff(codes) >= 0))
    assert np.shares_memory(block.features(), X) == in_order


@pytest.mark.parametrize("max_rows", [1, 2, 7, 10, 33, 59, 60, 10_000])
def test_cuts_are_whole_clients_exhaustive_and_bounded(block, max_rows):
    cuts = block.cut(max_rows)
    assert_joined(cuts, block)
    assert_array_equal(np.concatenate([cut.client_ids for cut in cuts]), block.client_ids)
    assert_array_equal(np.concatenate([cut.counts for cut in cuts]), block.counts)
    assert_array_equal(np.concatenate([cut.class_weights for cut in cuts]), block.class_weights)
    for cut in cuts:
        assert cut.n_rows <= max_rows or len(cut.client_ids) == 1
    for cut, after in pairwise(cuts):  # and no smaller than need be
        assert cut.n_rows + after.counts[0] > max_rows


@pytest.mark.parametrize("max_rows", [1, 2, 7, 10, 33, 59, 60, 10_000])
def test_pieces_are_exhaustive_and_bounded_and_know_whose_rows_they_hold(block, max_rows):
    pieces = block.pieces(max_rows)
    assert_joined(pieces, block)
    assert max(piece.n_rows for piece in pieces) <= max_rows
    assert len(pieces) == -(-block.n_rows // max_rows)
    for piece in pieces:
        assert_array_equal(piece.client_ids, block.client_ids)
    assert_array_equal(sum(piece.counts for piece in pieces), block.counts)
    total = sum(piece.class_weights for piece in pieces)
    assert_allclose(total, block.class_weights, rtol=1e-14)
    if len(pieces) > 1:  # a piece still knows what its clients have in all
        for piece in pieces:
            assert_array_equal(piece.design().whole, block.class_weights)


def assert_joined(parts, block):
    """The parts, one after another, hold the block's rows."""
    assert_array_equal(np.concatenate([part.features() for part in parts]), block.features())
    assert_array_equal(np.concatenate([part.y for part in parts]), block.y)
    assert_array_equal(np.concatenate([weights_of(part) for part in parts]), weights_of(block))


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_design_is_weighted_least_squares_of_the_rows(arrays, fit_intercept, dtype):
    block = make_block(arrays[0].astype(dtype), *arrays[1:])
    design = block.design(fit_intercept=fit_intercept)
    assert design.rows.dtype == np.float64
    root = np.sqrt(weights_of(block))
    for i, f in enumerate(block.features()):
        row = [1.0, *f] if fit_intercept else f
        assert_allclose(design.rows[i], root[i] * np.array(row, dtype=float), rtol=1e-15)
        one_hot = np.arange(N_CLASSES) == block.y[i]
        assert_array_equal(design.dense_targets()[i], root[i] * one_hot)
    assert_array_equal(design.client_ids, block.client_ids)
    assert_array_equal(design.offsets, block.offsets)
    coef = np.random.default_rng(0).normal(size=(N_CLASSES, design.rows.shape[1]))
    residuals = design.dense_targets() - design.rows @ coef.T
    assert_allclose(design.residuals(coef), residuals, rtol=0, atol=1e-13)


def test_a_design_of_mapped_features(block):
    design = block.design(feature_map=lambda rows: np.hstack([rows, rows**2]), fit_intercept=True)
    features, root = block.features(), np.sqrt(weights_of(block))[:, None]
    expected = root * np.hstack([np.ones_like(root), features, features**2])
    assert_allclose(design.rows, expected, rtol=1e-15)


def test_a_design_leaves_the_callers_rows_alone(arrays):
    before = arrays[0].copy()
    block = make_block(*arrays)
    block.design().centered(None).compressed()
    block.design(fit_intercept=True).centered(np.ones(3))
    assert_array_equal(arrays[0], before)


def test_a_design_knows_what_leaving_a_row_out_takes_away(arrays, block):
    design = block.design()
    weight, total = row_weights(block.y, block.sample_weight, block.class_factor)
    assert_array_equal(design.codes, block.y)
    assert_allclose(design.root, np.sqrt(total), rtol=1e-15)
    drop = np.ones(len(weight)) if design.drop is None else design.drop
    assert_allclose(drop * weight, np.minimum(weight, 1.0), rtol=1e-15)
    assert (design.drop is None) == (arrays[4] is None)
    assert design.sample_weight is block.sample_weight
    one = design.clients(np.array([len(design.client_ids) - 1]))
    own = slice(design.offsets[-2], design.offsets[-1])
    for name in ("codes", "root", "drop", "sample_weight"):
        whole, part = getattr(design, name), getattr(one, name)
        assert part is None if whole is None else np.array_equal(part, whole[own])


@pytest.fixture(params=[False, True], ids=["dense", "sparse"])
def design(request):
    design = random_design([3, 40, 1, 9, 12], 5, fit_intercept=True)
    if not request.param:
        return design
    return DesignBlock(
        design.rows,
        sparse.csr_array(design.targets),
        design.class_weights,
        design.client_ids,
        design.offsets,
    )


@pytest.mark.parametrize("index", [[0], [1, 3], [0, 2, 4], [0, 1, 2, 3, 4]])
def test_chosen_clients_keep_their_rows(design, index):
    chosen = design.clients(np.array(index))
    assert chosen.client_ids.tolist() == [10 * k for k in index]
    for own, k in zip(runs(chosen.offsets), index, strict=True):
        before = runs(design.offsets)[k]
        assert_array_equal(chosen.rows[own], design.rows[before])
        assert_array_equal(chosen.dense_targets()[own], design.dense_targets()[before])
    assert_array_equal(chosen.class_weights, design.class_weights[index])


def test_designs_of_single_clients_concatenate_to_the_whole(design):
    singles = [design.clients(np.array([k])) for k in range(5)]
    assert_same_design(DesignBlock.concatenate(iter(singles)), design)
    assert DesignBlock.concatenate([design]) is design


def test_stacked_rows_of_one_client_are_all_its_rows(design):
    one = design.clients(np.array([1]))
    first, second = (
        DesignBlock(
            one.rows[part],
            one.targets[part],
            one.class_weights * share,
            one.client_ids,
            np.array([0, size]),
        )
        for part, share, size in ((slice(0, 15), 0.25, 15), (slice(15, 40), 0.75, 25))
    )
    assert_same_design(first.stacked(second), one)


def assert_same_design(actual, expected):
    assert_array_equal(actual.rows, expected.rows)
    assert_array_equal(actual.dense_targets(), expected.dense_targets())
    assert_allclose(actual.class_weights, expected.class_weights, rtol=1e-15)
    assert_array_equal(actual.client_ids, expected.client_ids)
    assert_array_equal(actual.offsets, expected.offsets)


def test_centering_moves_the_rows_and_not_the_column_of_ones(design):
    mean = np.arange(1.0, 6.0)
    centered = design.centered(mean)
    assert_array_equal(centered.rows[:, 0], design.rows[:, 0])
    root = design.rows[:, :1]
    assert_allclose(centered.rows[:, 1:] / root, design.rows[:, 1:] / root - mean, atol=1e-13)
    assert design.centered(None) is design


def test_compressed_clients_have_no_more_rows_than_columns_and_the_same_squares(design):
    small = design.compressed()
    assert_array_equal(small.counts, np.minimum(design.counts, 6))
    targets, small_targets = design.dense_targets(), small.dense_targets()
    for few, all_ in zip(runs(small.offsets), runs(design.offsets), strict=True):
        gram = design.rows[all_].T @ design.rows[all_]
        assert_allclose(small.rows[few].T @ small.rows[few], gram, rtol=0, atol=1e-12)
        cross = design.rows[all_].T @ targets[all_]
        assert_allclose(small.rows[few].T @ small_targets[few], cross, rtol=0, atol=1e-12)
    assert_array_equal(small.class_weights, design.class_weights)
    assert small.compressed() is small


@pytest.mark.parametrize("n", [1, 4, 5, 6, 300])
@pytest.mark.parametrize("n_targets", [1, 7])
def test_compress_keeps_products(n, n_targets):
    rng = np.random.default_rng(n)
    rows, targets = rng.normal(size=(n, 5)), rng.normal(size=(n, n_targets))
    few, own = compress(rows, targets)
    assert few.shape == (min(n, 5), 5)
    assert own.shape == (min(n, 5), n_targets)
    assert_allclose(few.T @ few, rows.T @ rows, rtol=0, atol=1e-12 * n)
    assert_allclose(few.T @ own, rows.T @ targets, rtol=0, atol=1e-12 * n)


def test_compress_of_dependent_rows_keeps_products():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(50, 2)) @ rng.normal(size=(2, 6))
    targets = rng.normal(size=(50, 3))
    few, own = compress(rows, targets)
    assert_allclose(few.T @ few, rows.T @ rows, rtol=0, atol=1e-11)
    assert_allclose(few.T @ own, rows.T @ targets, rtol=0, atol=1e-11)


def test_compress_loses_nothing_at_a_large_offset():
    design = random_design([400], 4, fit_intercept=True, offset=1e4)
    few, own = compress(design.rows, design.targets)
    exact = [centered_squares(design.rows, design.targets), centered_squares(few, own)]
    for before, after in zip(*exact, strict=True):
        assert_allclose(after, before, rtol=0, atol=1e-10 * np.abs(before).max())


def centered_squares(rows, targets):
    """Centred Gram matrix and cross products of √w·[1 | f], in extended precision."""
    rows, targets = rows.astype(np.longdouble), targets.astype(np.longdouble)
    root, f = rows[:, :1], rows[:, 1:]
    f = f - root * (root.T @ f) / (root.T @ root)
    return (f.T @ f).astype(float), (f.T @ targets).astype(float)


def test_ragged_arange_and_group_rows_equal_loops():
    starts, counts = np.array([5, 0, 7, 7]), np.array([2, 3, 0, 4])
    naive = [i for s, c in zip(starts, counts, strict=True) for i in range(s, s + c)]
    assert ragged_arange(starts, counts).tolist() == naive
    assert ragged_arange(starts[:0], counts[:0]).tolist() == []
    codes = np.random.default_rng(0).choice([0, 1, 3, 5], 40)
    order, offsets = group_rows(codes, 7)
    for k, own in enumerate(runs(offsets)):
        assert order[own].tolist() == np.flatnonzero(codes == k).tolist()


@pytest.mark.parametrize("width", [0, 1, 512, 10**9])
def test_rows_per_block_are_at_least_one_and_take_a_bounded_amount_of_memory(width):
    rows = rows_per_block(width)
    assert rows >= 1
    assert rows == 1 or 8 * rows * width <= 2**24 < 8 * (rows + 1) * max(width, 1)


def test_a_pickled_block_has_its_own_rows_alone_and_knows_where_they_were(arrays):
    X, y, codes, ids, weight, factor = arrays
    block = ClientBlock.from_arrays(X, y, codes, ids, N_CLASSES, weight, factor)
    for part in [block, *block.cut(7)]:
        other = pickle.loads(pickle.dumps(part))
        assert len(other.X) == part.n_rows
        assert_array_equal(other.features(), part.features())
        assert_array_equal(X[other.positions], part.features())
        assert_array_equal(other.positions, part.positions)
        again = pickle.loads(pickle.dumps(other.select(np.arange(part.n_rows) % 2 == 0)))
        assert_array_equal(again.positions, part.positions[::2])


def test_a_blocks_size_is_that_of_its_arrays(arrays):
    X, y, codes, ids, weight, factor = arrays
    block = ClientBlock.from_arrays(X, y, codes, ids, N_CLASSES, weight, factor)
    assert sys.getsizeof(block) > X.nbytes
    assert sys.getsizeof(block.design()) > block.n_rows * 8 * 3
