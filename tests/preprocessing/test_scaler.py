"""FederatedStandardScaler is scikit-learn's StandardScaler on the pooled rows."""

import pickle
from functools import reduce
from operator import add

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

from skfedhip import FederatedStandardScaler
from skfedhip.core import ClientBlock
from skfedhip.preprocessing import MomentsMethod
from skfedhip.protocol import Schema, run_federation


def rows(mean=0.0, seed=0, dtype=np.float64):
    """Features of very different scales, one of them constant, of clients with 1 to 60 rows."""
    rng = np.random.default_rng(seed)
    groups = np.repeat([3, -8, 11, 5], [1, 9, 30, 60])
    X = (mean + rng.normal(size=(100, 5)) * [1, 1e-3, 50, 1, 0] + groups[:, None]).astype(dtype)
    X[:, 4] = mean + 0.1
    order = rng.permutation(len(X))
    return X[order], groups[order], rng.uniform(0.5, 2.0, len(X))


@pytest.mark.parametrize("mean", [0.0, -7.0, 1e6])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_bytes", [1, 8 * 5 * 7, 2**24])
def test_equals_standard_scaler_on_the_pooled_rows(small_blocks, mean, weighted, n_bytes):
    small_blocks(n_bytes)
    X, groups, weight = rows(mean)
    weight = weight if weighted else None
    scaler = FederatedStandardScaler().fit(X, groups=groups, sample_weight=weight)
    # scikit-learn is given the rows about their mean, where it loses nothing, and no constant
    center = X.mean(axis=0)
    varied = (X - center)[:, :4]
    pooled = StandardScaler().fit(varied, sample_weight=weight)
    assert_allclose(scaler.mean_[:4], pooled.mean_ + center[:4], rtol=1e-13, atol=1e-13)
    loss = 1e-10 if mean == 1e6 else 1e-12  # what rounding at 1e6 leaves of a deviation of 1e-3
    assert_allclose(scaler.var_[:4], pooled.var_, rtol=loss)
    assert_allclose(scaler.scale_[:4], pooled.scale_, rtol=loss)
    assert_allclose(scaler.transform(X)[:, :4], pooled.transform(varied), rtol=0, atol=1e-7)
    assert scaler.scale_[4] == 1.0
    assert_allclose(scaler.transform(X)[:, 4], 0.0, atol=1e-9)
    assert_allclose(scaler.inverse_transform(scaler.transform(X)), X, rtol=1e-14, atol=1e-12)


@pytest.mark.parametrize("with_mean", [False, True])
@pytest.mark.parametrize("with_std", [False, True])
def test_parts_can_be_left_out(with_mean, with_std):
    X, groups, _ = rows(2.0)
    params = {"with_mean": with_mean, "with_std": with_std}
    scaler = FederatedStandardScaler(**params).fit(X, groups=groups)
    pooled = StandardScaler(**params).fit(X)
    assert_allclose(scaler.transform(X), pooled.transform(X), rtol=1e-10, atol=1e-10)
    assert_allclose(scaler.inverse_transform(X), pooled.inverse_transform(X), rtol=1e-10)


def test_the_clients_do_not_matter():
    X, groups, weight = rows()
    scalers = [
        FederatedStandardScaler().fit(X, sample_weight=weight, groups=ids)
        for ids in (None, groups, groups[::-1], np.arange(len(X)))
    ]
    for scaler in scalers[1:]:
        assert_allclose(scaler.mean_, scalers[0].mean_, rtol=1e-12, atol=1e-14)
        assert_allclose(scaler.scale_, scalers[0].scale_, rtol=1e-12)


def test_weights_count_rows():
    X, groups, _ = rows()
    times = np.random.default_rng(1).integers(0, 4, len(X))
    times[groups == 5] = 0
    weighted = FederatedStandardScaler().fit(X, groups=groups, sample_weight=times)
    repeated = FederatedStandardScaler().fit(np.repeat(X, times, axis=0))
    assert_allclose(weighted.mean_, repeated.mean_, rtol=1e-12)
    assert_allclose(weighted.var_, repeated.var_, rtol=1e-12)
    assert weighted.n_samples_seen_ == repeated.n_samples_seen_ == times.sum()


@pytest.mark.parametrize("seed", range(3))
def test_updates_merge_in_any_order(seed):
    X, groups, weight = rows(1e4)
    method, schema, blocks = MomentsMethod(), Schema(5, np.zeros(1), X.dtype), []
    for client in np.random.default_rng(seed).permutation(np.unique(groups)):
        own = groups == client
        zeros = np.zeros(own.sum(), dtype=int)
        blocks.append(
            ClientBlock.from_arrays(X[own], zeros, zeros, np.array([client]), 1, weight[own])
        )
    hello = method.initialize(schema)
    updates = [method.client_update(block, hello, None)[0] for block in blocks]
    assert len({tuple(a.shape for a in u.arrays().values()) for u in updates}) == 1  # no rows
    relays = [reduce(add, updates[:2]), reduce(add, updates[2:])]
    scaler = FederatedStandardScaler().fit(X, groups=groups, sample_weight=weight)
    result = run_federation(method, blocks, schema)
    np.testing.assert_array_equal(result.bytes_up, scaler.bytes_up_)
    np.testing.assert_array_equal(result.bytes_down, scaler.bytes_down_)
    for answer in (method.aggregate(iter(relays), hello, None)[0], result.broadcasts[-1]):
        assert_allclose(answer.moments.mean, scaler.mean_, rtol=1e-13)
        var = answer.moments.squares / answer.moments.weight
        assert_allclose(var, scaler.var_, rtol=1e-10, atol=1e-20)


def test_float32_is_summed_in_float64_and_given_back():
    X, groups, _ = rows(1e4, dtype=np.float32)
    scaler = FederatedStandardScaler().fit(X, groups=groups)
    pooled = StandardScaler().fit(X.astype(np.float64))
    assert_allclose(scaler.mean_, pooled.mean_, rtol=1e-12)
    assert_allclose(scaler.scale_, pooled.scale_, rtol=1e-6)
    assert scaler.transform(X).dtype == scaler.inverse_transform(X).dtype == np.float32
    expected = (X - pooled.mean_) / pooled.scale_
    assert_allclose(scaler.transform(X), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("column", [0, 2, -1, "who"])
def test_an_id_column_is_passed_on_as_it_is(column):
    X, groups, weight = rows()
    names = [f"f{j}" for j in range(5)]
    at = 1 if column == "who" else column % 6
    whole = np.insert(X, at, groups, axis=1)
    if column == "who":
        whole = pd.DataFrame(whole, columns=np.insert(np.array(names, object), at, "who"))
    scaler = FederatedStandardScaler(group_column=column).fit(whole, sample_weight=weight)
    plain = FederatedStandardScaler().fit(X, groups=groups, sample_weight=weight)
    expected = np.insert(plain.transform(X), at, groups, axis=1)
    assert_array_equal(scaler.transform(whole), expected)
    back = scaler.inverse_transform(pd.DataFrame(expected, columns=getattr(whole, "columns", None)))
    assert_allclose(back, np.asarray(whole), atol=1e-12)
    assert scaler.n_features_in_ == len(scaler.get_feature_names_out()) == 6


@pytest.mark.parametrize("ids", [["a", "b"], [2**53 + 1, 2**53], [16777217, 16777216]])
def test_no_id_is_changed_by_a_dtype_that_cannot_hold_it(ids):
    X, groups, _ = rows(dtype=np.float32)
    who = np.array(ids)[groups % 2]
    whole = pd.DataFrame(X).assign(who=who).rename(columns=str)
    out = FederatedStandardScaler(group_column="who").fit_transform(whole)
    assert out[:, 5].tolist() == who.tolist()
    rescaled = FederatedStandardScaler().fit_transform(X)
    assert_array_equal(out[:, :5].astype(np.float32), rescaled)


def test_pandas_output_keeps_names_and_index():
    X, groups, _ = rows()
    whole = pd.DataFrame(X, columns=list("abcde"), index=np.arange(100) + 7).assign(who=groups)
    out = (
        FederatedStandardScaler(group_column="who")
        .set_output(transform="pandas")
        .fit_transform(whole)
    )
    assert out.columns.tolist() == whole.columns.tolist()
    assert out.index.tolist() == whole.index.tolist()
    assert_allclose(out[list("abcde")], FederatedStandardScaler().fit_transform(X))
    assert out["who"].tolist() == groups.tolist()


def test_pickle_and_clone():
    X, groups, _ = rows()
    scaler = FederatedStandardScaler().fit(X, groups=groups)
    assert_array_equal(pickle.loads(pickle.dumps(scaler)).transform(X), scaler.transform(X))
    assert not hasattr(clone(scaler), "mean_")


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"sample_weight": np.zeros(100)}, "at least one non-zero|zero in all rows"),
        ({"sample_weight": -np.ones(100)}, "[Nn]egative"),
        ({"groups": np.arange(99)}, "groups must hold one client id"),
        ({"groups": np.full(100, np.nan)}, "missing client id"),
    ],
)
def test_bad_input_is_named(params, words):
    X, *_ = rows()
    with pytest.raises(ValueError, match=words):
        FederatedStandardScaler().fit(X, **params)
