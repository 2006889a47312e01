"""What clients keep is bounded, is theirs alone, and has the squares of all their rows."""

from itertools import pairwise

import pytest
from numpy.testing import assert_allclose

from skfedhip.core import DesignBlock, RetainedClients

from .clients import random_design, runs

P = 5  # columns of a design


def batches(n_batches=6):
    """Blocks of the same six clients, of sizes from one row to more than there are columns."""
    return [random_design([1, 2, 3, 4, 12, 1], P, seed=seed) for seed in range(n_batches)]


def fill(blocks):
    retained = RetainedClients()
    for block in blocks:
        retained.add(block)
    return retained


def squares(blocks, client):
    """rowsᵀrows, rowsᵀtargets and class weights of one client over many blocks."""
    gram = cross = weights = 0.0
    for block in blocks:
        k = block.client_ids.tolist().index(client)
        own = runs(block.offsets)[k]
        rows, targets = block.rows[own], block.dense_targets()[own]
        gram, cross = gram + rows.T @ rows, cross + rows.T @ targets
        weights = weights + block.class_weights[k]
    return gram, cross, weights


def assert_squares(actual, expected):
    for own, other in zip(actual, expected, strict=True):
        assert_allclose(own, other, rtol=0, atol=1e-11)


def test_a_client_keeps_a_bounded_number_of_rows_with_the_squares_of_all():
    blocks = batches()
    for n in range(1, len(blocks) + 1):
        retained = fill(blocks[:n])
        for k, client in enumerate(range(0, 60, 10)):
            kept = retained.clients[client]
            n_k = sum(block.counts[k] for block in blocks[:n])
            assert kept.n_rows == min(n_k, P)
            assert kept.rows.shape == (min(n_k, P), P)
            assert kept.targets.shape == (min(n_k, P), 3)
            assert_squares(squares([kept], client), squares(blocks[:n], client))


def test_a_client_keeps_no_other_clients_rows_alive():
    retained = fill([random_design([1, 2, 200], P)])
    for kept in retained.clients.values():
        for array in (kept.rows, kept.targets, kept.class_weights):
            owner = array if array.base is None else array.base
            assert owner.size <= 2 * P * (P + 3)


def test_a_removed_client_is_gone_and_the_others_are_as_they_were():
    blocks = batches()
    retained = fill(blocks)
    retained.guests |= {10, 20}
    retained.remove({10, 40})
    assert sorted(retained.clients) == [0, 20, 30, 50]
    assert retained.guests == {20}
    for client in retained.clients:
        assert_squares(squares([retained.clients[client]], client), squares(blocks, client))


def test_a_copy_changes_alone():
    blocks = batches(2)
    retained = fill(blocks[:1])
    copy = retained.copy()
    copy.add(blocks[1])
    copy.remove({0})
    copy.guests.add(30)
    assert sorted(retained.clients) == [0, 10, 20, 30, 40, 50]
    assert not retained.guests
    for client in retained.clients:
        assert_squares(squares([retained.clients[client]], client), squares(blocks[:1], client))


@pytest.mark.parametrize("order", [[0, 10, 20, 30, 40, 50], [50, 0, 40, 20], [30], []])
@pytest.mark.parametrize("max_rows", [1, 4, 7, 1000])
def test_blocks_hold_the_clients_in_the_order_given_and_few_rows(order, max_rows):
    batch = batches(2)
    blocks = fill(batch).blocks(order, max_rows)
    assert [client for block in blocks for client in block.client_ids.tolist()] == order
    for block in blocks:
        assert isinstance(block, DesignBlock)
        assert block.n_rows <= max_rows or len(block.client_ids) == 1
        for client in block.client_ids.tolist():
            assert_squares(squares([block], client), squares(batch, client))
    for block, after in pairwise(blocks):  # and no smaller than need be
        assert block.n_rows + after.counts[0] > max_rows
