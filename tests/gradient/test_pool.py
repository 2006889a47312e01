"""Messages for each client alone: its part is all that it needs, and what is said to travel."""

from dataclasses import replace

import numpy as np
import pytest

from skfedhip import FedAMPClassifier, FedFomoClassifier
from skfedhip.gradient._pool import PoolBroadcast, PoolUpdate, key_of
from skfedhip.protocol import Schema, run_federation

from ._data import make, small


def federation(cls):
    """A method after three rounds of all clients but the last, its blocks, and where it stands."""
    X, y, groups = small()
    clf = make(cls).fit(X, y, groups=groups)
    blocks = clf._block(X, y, groups).cut_clients(1)
    known, schema = blocks[:-1], Schema(4, clf.classes_, X.dtype)
    states = []
    run_federation(
        replace(clf._fitted_method, n_rounds=3),
        known,
        schema,
        after_round=lambda state: states.append(state) and None,
    )
    return clf._fitted_method, blocks, [*states[-1].states, None], states[-1].broadcast


@pytest.mark.parametrize("cls", [FedAMPClassifier, FedFomoClassifier])
def test_a_clients_part_is_all_that_it_needs(cls):
    method, blocks, states, broadcast = federation(cls)
    for block, state in zip(blocks, states, strict=True):
        (client,) = block.client_ids.tolist()
        part = PoolBroadcast.from_arrays(broadcast.for_client(client).arrays())
        models = [*part.parameters.values(), *part.pool.values()]
        assert sum(array.nbytes for array in models) + 8 <= broadcast.nbytes
        assert bool(part.pool) == (state is not None)
        whole = method.client_update(block, broadcast, state)
        own = method.client_update(block, part, state)
        for mine, other in zip(own, whole, strict=True):
            mine, other = (x if isinstance(x, dict) else x.arrays() for x in (mine, other))
            assert mine.keys() == other.keys()
            for name, array in other.items():
                np.testing.assert_array_equal(mine[name], array)
        for name, tensor in method.personalize(block, broadcast, whole[1]).items():
            np.testing.assert_array_equal(method.personalize(block, part, whole[1])[name], tensor)


def test_nobody_gets_what_strangers_get():
    _, _, _, broadcast = federation(FedAMPClassifier)
    part = broadcast.for_client(None)
    assert part.parameters is broadcast.parameters
    assert part.pool == {}


def test_updates_add_in_any_grouping():
    rng = np.random.default_rng(0)
    one, two, three = (
        PoolUpdate(
            {"w": rng.normal(size=(1, 2, 3)), "n": np.array([n])},
            np.array([key_of(n)], np.uint64),
            np.array([float(n)]),
            np.array([0.5 * n]),
        )
        for n in (1, 2, 3)
    )
    total = (one + two) + three
    for name, array in total.arrays().items():
        np.testing.assert_array_equal(array, (one + (two + three)).arrays()[name])
    assert (total.weight, total.loss.tolist()) == (6, [7.0, 6.0])
    assert total.nbytes == one.nbytes
    means = total.means({"w": None, "n": None})
    stacks = [each.stacks["w"][0] for each in (one, two, three)]
    np.testing.assert_allclose(means["w"], np.average(stacks, axis=0, weights=[1, 2, 3]))
    assert means["n"].dtype.kind == "i"
    assert means["n"] == round((1 + 4 + 9) / 6)
    assert total.is_finite()
    total.stacks["w"][1, 0, 0] = np.inf
    assert not total.is_finite()
