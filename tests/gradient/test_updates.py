"""Sums of what clients send up."""

import copy
from functools import reduce
from operator import add

import numpy as np
import pytest

from skfedhip.gradient._updates import ClientModel, ModelUpdate, total_of


def client_model(rng, n_rows):
    parameters = {
        "w": np.asfortranarray(rng.normal(size=(5, 3)).astype(np.float32)),
        "b": rng.normal(size=3).astype(np.float32),
        "n": np.array(n_rows),
    }
    return ClientModel(parameters, np.float64(n_rows), np.array([0.5 * n_rows, n_rows]))


def nobody():
    return ModelUpdate({}, np.zeros(()), np.zeros(2), np.array(4))


@pytest.fixture
def messages():
    rng = np.random.default_rng(0)
    models = [client_model(rng, n_rows) for n_rows in (3, 1, 40, 2)]
    return [nobody(), models[0], models[1], nobody(), models[2].summed, models[3], nobody()]


def test_a_total_is_the_sum_of_the_messages_one_by_one(messages):
    total, expected = total_of(iter(messages)), reduce(add, messages)
    assert total.weight == expected.weight == 46
    np.testing.assert_array_equal(total.loss, expected.loss)
    for name, array in expected.sums.items():
        assert total.sums[name].dtype == np.float64
        np.testing.assert_allclose(total.sums[name], array, rtol=1e-15)


def test_a_total_leaves_the_messages_as_they_are(messages):
    before = copy.deepcopy(messages)
    total_of(messages), total_of([messages[4], messages[5], messages[4]])
    for now, then in zip(messages, before, strict=True):
        np.testing.assert_equal(now.arrays(), then.arrays())


def test_a_total_of_one_or_of_nobody(messages):
    assert total_of([nobody(), messages[1], nobody()]) is messages[1]
    assert not total_of([nobody(), nobody()]).weight
