"""A closed-form method takes its clients in any blocks, also in one that it can't gather whole."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from oracle import random_federation

from skfedhip.analytic._afl import AFL
from skfedhip.analytic._anapfl import AnaPFL
from skfedhip.analytic._fedhip import FedHiP
from skfedhip.analytic._local import LocalRidge
from skfedhip.core import ClientBlock
from skfedhip.protocol import Schema, run_federation

METHODS = {
    "AFL": AFL(),
    "AnaPFL": AnaPFL(n_components=8),
    "FedHiP": FedHiP(),
    "FedHiP direct": FedHiP(solver="direct"),
    "LocalRidge": LocalRidge(),
    "LocalRidge intercept": LocalRidge(fit_intercept=True),
}


@pytest.mark.parametrize("name", METHODS)
def test_one_large_block_of_many_clients_equals_blocks_of_one(name, small_blocks):
    X, y, groups = random_federation([5, 40, 3, 60], n_features=6, n_classes=3)
    ids, codes = np.unique(groups, return_inverse=True)
    block, schema = ClientBlock.from_arrays(X, y, codes, ids, 3), Schema(6, np.arange(3), X.dtype)
    small_blocks(600)
    whole, cut = (
        run_federation(METHODS[name], blocks, schema).models for blocks in ([block], block.cut(1))
    )
    expected = np.concatenate([models.coefs() for models in cut])
    assert_allclose(whole[0].coefs(), expected, rtol=0, atol=1e-10)
