"""Dask runs what memory runs: on two worker processes, whatever the cuts, whoever dies."""

import os
import signal
import sys
from dataclasses import dataclass
from functools import reduce
from operator import add

import dask
import dask.array as da
import dask.dataframe as dd
import joblib
import numpy as np
import pandas as pd
import psutil
import pytest
from _data import SETTINGS, assert_close, assert_same_fits, estimator, federation
from dask.delayed import delayed
from distributed import Client, LocalCluster
from distributed.diagnostics import MemorySampler

import skfedhip
from skfedhip import (
    FedCPClassifier,
    FederatedStandardScaler,
    FedHiPClassifier,
    FedHiPClassifierCV,
    FedPerClassifier,
)
from skfedhip.core import ClientBlock
from skfedhip.exceptions import MissingGroupsWarning
from skfedhip.federation import dask as on_dask
from skfedhip.federation._partitions import Reader, bare, cut, describe, take_census
from skfedhip.federation._plan import plan_blocks
from skfedhip.gradient import MLP
from skfedhip.privacy import GaussianMechanism
from skfedhip.protocol import Broadcast, ClientUpdate, Schema, run_federation

SIZES = (1, 2, 5, 12, 200, 600)
CUTS = {
    "one partition": (820,),
    "many, some empty": (100, 0, 300, 20, 400),
    "a client's row or two": (2,) * 10 + (800,),
}
ONE, MANY, TINY = CUTS.values()


@pytest.fixture(scope="module")
def cluster():
    with two_workers("1 GiB") as cluster, Client(cluster) as client:
        yield client


def two_workers(memory_limit):
    return LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        memory_limit=memory_limit,
    )


@pytest.fixture(scope="module")
def data():
    """Clients of any size; most rows of most clients are spread over the partitions."""
    return federation(sizes=SIZES)


def cut_arrays(cuts, *arrays):
    """Dask arrays with partitions of these sizes."""
    chunks = tuple(cuts)
    return [da.from_array(each, chunks=(chunks, -1)[: each.ndim]) for each in arrays]


def fit_on_dask(clf, data, cuts, **weights):
    X, y, groups, weight = cut_arrays(cuts, data.X, data.y, data.groups, data.weight)
    return on_dask.fit(clf, X, y, groups=groups, **(weights or {"sample_weight": weight}))


# Equal to memory.


def test_every_estimator_fits_as_in_memory(cluster, new, data):
    clf, same = fit_on_dask(new(), data, MANY), data.fit(new())
    assert_same_fits(clf, same, data.X[:20])
    np.testing.assert_array_equal(clf.bytes_up_, same.bytes_up_)
    np.testing.assert_array_equal(clf.bytes_down_, same.bytes_down_)


@pytest.mark.parametrize("cuts", [pytest.param(c, id=name) for name, c in CUTS.items()])
@pytest.mark.parametrize("name", ["AnaPFLClassifier", "FedHiPClassifier", "LocalRidgeClassifier"])
def test_cuts_change_nothing(cluster, name, cuts, data):
    params = {"fit_intercept": True, "local_classes_only": True}
    clf = fit_on_dask(estimator(name, **params), data, cuts)
    ours, theirs = clf, data.fit(estimator(name, **params))
    assert_close(ours.personal_coef_, theirs.personal_coef_)
    assert_close(ours.temperature_, theirs.temperature_)
    np.testing.assert_array_equal(
        ours.predict(data.X, groups=data.groups), theirs.predict(data.X, groups=data.groups)
    )


@pytest.mark.parametrize("class_weight", ["balanced", {"cat": 0.0, "dog": 3.0}])
def test_class_weights_count_the_whole_federation(cluster, data, class_weight):
    def new():
        return estimator("FedHiPClassifier", class_weight=class_weight, local_classes_only=True)

    data = data.rows(np.argsort(data.y))  # the first partitions hold nothing but cats
    assert_same_fits(fit_on_dask(new(), data, MANY), data.fit(new()), data.X[:20])


def test_rows_of_weight_0_are_absent_even_if_they_are_a_whole_partition(cluster, data):
    weight = data.weight.copy()
    weight[:110] = 0.0
    (lazy,) = cut_arrays(MANY, weight)
    clf = fit_on_dask(estimator("FedHiPClassifier"), data, MANY, sample_weight=lazy)
    alike = data.fit(estimator("FedHiPClassifier"), sample_weight=weight)
    assert_same_fits(clf, alike, data.X[:20])


def test_a_singular_client_alone_is_solved_with_minimum_norm(cluster):
    data = federation(sizes=(3, 2, 5, 12, 200, 60), n_features=8)
    data.X[:, 7] = data.X[:, 6]  # every client is singular
    new = lambda: estimator("LocalRidgeClassifier", beta=1e-13)  # noqa: E731
    clf = fit_on_dask(new(), data, (140, 142))
    assert_same_fits(clf, data.fit(new()), data.X[:20], rtol=1e-6)


def test_what_is_retained_streams_on_and_can_be_forgotten(cluster, data):
    new = lambda: estimator("FedHiPClassifier", retain_statistics=True)  # noqa: E731
    clf, other = fit_on_dask(new(), data, MANY), data.fit(new())
    client = data.groups[0]
    more = federation(seed=1)
    for each in (clf, other):
        more.feed(each.forget_clients([client]))
    assert_same_fits(clf, other, data.X[:20])


def test_fit_leaves_a_fitted_estimator_alone_where_it_fails(cluster, data):
    clf = data.fit(estimator("FedHiPClassifier"))
    before = clf.personal_coef_
    bad = data.X.copy()
    bad[700, 2] = np.nan
    X, y, groups = cut_arrays(MANY, bad, data.y, data.groups)
    with pytest.raises(ValueError, match="NaN"):
        on_dask.fit(clf, X, y, groups=groups)
    np.testing.assert_array_equal(clf.personal_coef_, before)


@pytest.mark.parametrize("where", ["client", "server"])
def test_a_private_fit_is_as_private_as_in_memory(where, data):
    """Rows are clipped, and each client's noise is drawn once, wherever its rows lie."""
    mechanism = GaussianMechanism(1.0, 1e-5, clip_norm=2.0, where=where, random_state=0)
    new = lambda **how: estimator("FedHiPClassifier", privacy=mechanism, **how)  # noqa: E731
    X, y, groups, weight = cut_arrays(MANY, data.X, data.y, data.groups, data.weight)
    with dask.config.set(scheduler="sync"):
        clf = on_dask.fit(new(), X, y, groups=groups)
    assert_same_fits(clf, new().fit(data.X, data.y, groups=data.groups), data.X[:20], 1e-8)
    with pytest.raises(ValueError, match="leave out sample_weight"):
        on_dask.fit(new(), X, y, groups=groups, sample_weight=weight)
    with pytest.raises(ValueError, match="leave out sample_weight and class_weight"):
        on_dask.fit(new(class_weight={"cat": 2.0}), X, y, groups=groups)


# Collections.


@pytest.fixture
def table(data):
    names = np.array(["ann", "bob", "cyd", "dan", "eve", "fay"])
    codes = np.unique(data.groups, return_inverse=True)[1]
    table = pd.DataFrame(data.X.astype(np.float32)).add_prefix("x")
    return table.assign(client=names[codes], label=data.y, weight=data.weight)


def test_dataframes(cluster, table):
    lazy = dd.from_pandas(table, npartitions=5)
    features = [*table.columns[:6], "client"]
    new = lambda: estimator("FedHiPClassifier", group_column="client")  # noqa: E731
    clf = on_dask.fit(new(), lazy[features], lazy["label"], sample_weight=lazy["weight"])
    same = new().fit(table[features], table["label"], sample_weight=table["weight"])
    np.testing.assert_array_equal(clf.clients_, same.clients_)
    np.testing.assert_array_equal(clf.feature_names_in_, same.feature_names_in_)
    assert_close(clf.personal_coef_, same.personal_coef_, 1e-6)  # float32
    assert_close(clf.temperature_, same.temperature_)
    assert clf.coef_.dtype == np.float32
    assert clf.clients_.dtype == same.clients_.dtype

    predicted = on_dask.predict(clf, lazy[features]).compute()
    expected = pd.Series(same.predict(table[features]), index=table.index)
    pd.testing.assert_series_equal(predicted, expected)
    proba = on_dask.predict_proba(clf, lazy[features])
    assert list(proba.columns) == list(clf.classes_)
    assert_close(proba.compute(), same.predict_proba(table[features]), 1e-6)


def test_frames_of_one_source_are_read_once_a_pass(table, tmp_path):
    """Once for labels and ids, and once each for the sums and for the clients' models."""
    source = dd.from_map(read_and_count, range(3), table=table, folder=str(tmp_path))
    with dask.config.set(scheduler="sync"):
        (tmp_path / "0").unlink(missing_ok=True)  # what finding out the columns has left
        on_dask.fit(estimator("FedHiPClassifier"), source[["x0", "x1"]], source["label"],
                    groups=source["client"])  # fmt: skip
    reads = [(tmp_path / str(i)).read_text().count("\n") for i in range(3)]
    assert reads == [4, 3, 3]  # the first also says what the features are like


def read_and_count(i, table, folder):
    with open(os.path.join(folder, str(i)), "a") as file:
        file.write("\n")
    return table.iloc[i::3]


def test_lists_of_delayed_blocks(cluster, data):
    cut_at = np.cumsum(MANY)[:-1]
    parts = zip(*(np.split(each, cut_at) for each in (data.X, data.y, data.groups)), strict=True)
    lists = zip(*([delayed(each) for each in part] for part in parts), strict=True)
    X, y, groups = map(list, lists)
    clf = on_dask.fit(estimator("AFLClassifier"), X, y, groups=groups)
    same = data.fit(estimator("AFLClassifier"), sample_weight=None)
    assert_same_fits(clf, same, data.X[:20])
    predicted = on_dask.predict(clf, X, groups=groups)
    np.testing.assert_array_equal(
        np.concatenate(dask.compute(*predicted)), same.predict(data.X, groups=data.groups)
    )


@pytest.mark.parametrize("classes", [("a", "b"), ("a", "b", "c")])
def test_predictions_of_arrays_are_lazy_arrays(cluster, classes):
    data = federation(classes=np.array(classes))
    clf = data.fit(estimator("FedHiPClassifier"))
    X, groups = cut_arrays((50, 0, 60), data.X, data.groups)
    for name in on_dask.__all__:
        if name != "fit":
            lazy = getattr(on_dask, name)(clf, X, groups=groups)
            expected = getattr(clf, name)(data.X, groups=data.groups)
            assert lazy.shape == expected.shape
            assert lazy.dtype == expected.dtype
            assert lazy.chunks[0] == (50, 0, 60)
            if name == "predict":
                np.testing.assert_array_equal(lazy.compute(), expected)
            else:
                assert_close(lazy.compute(), expected)


def test_columns_in_chunks_and_rows_cut_elsewhere_are_cut_alike(data):
    X = da.from_array(data.X, chunks=(200, 2))
    y, groups = da.from_array(data.y, chunks=90), da.from_array(data.groups, chunks=820)
    clf = on_dask.fit(estimator("AFLClassifier"), X, y, groups=groups)
    same = data.fit(estimator("AFLClassifier"), sample_weight=None)
    assert_same_fits(clf, same, data.X[:20])
    assert on_dask.predict(clf, X, groups=groups).compute().shape == (820,)


def test_without_ids_all_rows_are_one_client_and_a_warning_says_so(data):
    X, y = cut_arrays(MANY, data.X, data.y)
    with pytest.warns(MissingGroupsWarning, match="fit got no client ids"):
        clf = on_dask.fit(FedHiPClassifier(), X, y)
    assert clf.clients_.tolist() == [None]
    with pytest.warns(MissingGroupsWarning, match="predict got no client ids"):
        on_dask.predict(clf, X)


# What travels.


def test_of_a_large_client_only_roots_leave_a_partition_and_small_ones_gather_their_rows(data):
    clf = data.fit(estimator("FedHiPClassifier"))
    blocks = planned(data, MANY, compress_with=clf._fitted_method)
    moved, roots = (
        [
            source.blocks.compute()
            for source in blocks.sources
            if source.kept and bool(source.pieces) == apart
        ]
        for apart in (False, True)
    )
    d, m = len(clf.classes_), data.X.shape[1]
    for block in (block for each in moved for block in each):
        assert isinstance(block, ClientBlock)
        assert np.all(block.counts * m <= m * (m + d))
        assert len(block.X) == block.n_rows
    for block in (block for each in roots for block in each):
        assert np.all(block.counts == m)
    assert {c for each in roots for b in each for c in b.client_ids} >= set(clf.clients_[4:])


def planned(data, cuts, **how):
    X, y, groups = cut_arrays(cuts, data.X, data.y, data.groups)
    reader = bare(estimator("FedHiPClassifier"))
    rows, labels = cut(reader, X, y, groups, None)
    censuses = dask.compute(*(delayed(take_census)(reader, each) for each in labels))
    rows, censuses = zip(*(p for p in zip(rows, censuses, strict=True) if p[1].n_rows), strict=True)
    reader, like = delayed(describe)(reader, rows[0]).compute()
    reader = Reader(reader, like.dtype, np.unique(data.y), None)
    m = data.X.shape[1]
    return plan_blocks(reader, m, rows, censuses, width=m, **how)[1]


@dataclass(frozen=True)
class Mean(Broadcast):
    vector: np.ndarray


@dataclass(frozen=True)
class Gradients(ClientUpdate):
    vector: np.ndarray
    weight: np.ndarray

    def __add__(self, other):
        return Gradients(self.vector + other.vector, self.weight + other.weight)


class ManyRounds:
    """A mean that clients pull at, each by a memory of its own that never leaves it."""

    n_rounds = 7

    def initialize(self, schema):
        return Mean(np.zeros(schema.n_features))

    def client_update(self, block, broadcast, state):
        memory = (
            np.zeros((len(block.client_ids), len(broadcast.vector))) if state is None else state
        )
        means = np.add.reduceat(block.features(), block.offsets[:-1]) / block.counts[:, None]
        memory = np.tanh(memory + 0.5 * (means - broadcast.vector))
        return Gradients(block.counts @ memory, np.asarray(float(block.n_rows))), memory

    def aggregate(self, updates, broadcast, server_state):
        total = reduce(add, updates)
        step = (server_state or 1.0) * 0.9
        return Mean(broadcast.vector + step * total.vector / total.weight), step

    def personalize(self, block, broadcast, state):
        assert block is not None  # many rounds: the rows are kept where they are
        return dict(zip(block.client_ids.tolist(), state + broadcast.vector, strict=True))


def test_any_method_of_many_rounds_runs_with_its_clients_states_on_the_workers(cluster, data):
    schema = Schema(data.X.shape[1], np.unique(data.y), data.X.dtype)
    here = ClientBlock.from_arrays(
        data.X, np.zeros(len(data.y), int), *np.unique(data.groups, return_inverse=True)[::-1], 1
    )
    expected = run_federation(ManyRounds(), here.cut(100), schema)
    result = run_federation(ManyRounds(), planned(data, MANY), schema)
    assert_close(result.broadcasts[-1].vector, expected.broadcasts[-1].vector)
    assert result.state.server_state == expected.state.server_state
    np.testing.assert_array_equal(result.bytes_up, expected.bytes_up)
    np.testing.assert_array_equal(result.bytes_down, expected.bytes_down)
    models, same = ({k: v for e in r.models for k, v in e.items()} for r in (result, expected))
    assert models.keys() == same.keys()
    for client, model in same.items():
        assert_close(models[client], model)


# Gradient methods.


def small_network(cls, **params):
    """A gradient classifier in float64 with a small network and a few rounds."""
    how = {"n_rounds": 3, "lr": 0.1, "dtype": "float64", "random_state": 0}
    return cls(**{**how, "feature_extractor": MLP((6,)), "missing_groups": "global", **params})


def assert_same_networks(clf, same):
    np.testing.assert_array_equal(clf.clients_, same.clients_)
    np.testing.assert_array_equal(clf._seen, same._seen)
    for name, array in same.global_params_.items():
        assert_close(clf.global_params_[name], array)
    for name, array in same.personal_params_.items():
        assert_close(clf.personal_params_[name], array)
    assert_close(clf.loss_curve_, same.loss_curve_)
    np.testing.assert_array_equal(clf.bytes_up_, same.bytes_up_)
    np.testing.assert_array_equal(clf.bytes_down_, same.bytes_down_)


def test_a_gradient_method_trains_as_in_memory(cluster, data):
    new = lambda: small_network(FedCPClassifier, join_ratio=0.5)  # noqa: E731
    X, y, groups = cut_arrays(MANY, data.X, data.y, data.groups)
    clf = on_dask.fit(new(), X, y, groups=groups)
    same = new().fit(data.X, data.y, groups=data.groups)
    assert_same_networks(clf, same)
    assert_close(clf.personal_rate_, same.personal_rate_)
    lazy = on_dask.predict(clf, X, groups=groups)
    expected = same.predict(data.X, groups=data.groups)
    np.testing.assert_array_equal(lazy.compute(), expected)
    for each in (clf, same):
        each.partial_fit(data.X, data.y, groups=data.groups)
    assert_same_networks(clf, same)


def test_images_train_and_are_predicted_with_patience():
    rng = np.random.default_rng(0)
    X, y, groups = rng.normal(size=(40, 2, 3, 4)), rng.integers(0, 3, 40), rng.integers(0, 4, 40)
    new = lambda: small_network(FedPerClassifier, n_rounds=30, patience=2, tol=0.1)  # noqa: E731
    same = new().fit(X, y, groups=groups)
    assert same.n_rounds_ < 30
    lazy = da.from_array(X, chunks=((10, 12, 18), 1, 3, 4))
    cuts = [da.from_array(each, chunks=((10, 12, 18),)) for each in (y, groups)]
    with dask.config.set(scheduler="sync"):
        clf = on_dask.fit(new(), lazy, cuts[0], groups=cuts[1])
        assert_same_networks(clf, same)
        for name in ("predict", "predict_proba"):
            answer = getattr(on_dask, name)(clf, lazy, groups=cuts[1])
            expected = getattr(same, name)(X, groups=groups)
            assert answer.shape == expected.shape
            if name == "predict":
                np.testing.assert_array_equal(answer.compute(), expected)
            else:
                assert_close(answer.compute(), expected)


# A worker that dies, and memory that is short.


def read_or_die(i, folder, fatal):
    """Rows of a partition; the first worker that reads the fatal one for the third time dies."""
    path = os.path.join(folder, str(i))
    with open(path, "a") as file:
        file.write("\n")
    with open(path) as file:
        if i == fatal and len(file.readlines()) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
    rng = np.random.default_rng(i)
    X = rng.normal(size=(300, 6))
    groups = np.where(rng.random(300) < 0.5, rng.integers(0, 4, 300), 10 + i)
    return X, (X[:, :3] + rng.normal(size=(300, 3))).argmax(axis=1), groups


def test_a_worker_killed_in_the_second_round_changes_nothing(cluster, tmp_path):
    pids = cluster.run(os.getpid)
    parts = [delayed(read_or_die, nout=3)(i, str(tmp_path), 5) for i in range(8)]
    X, y, groups = map(list, zip(*parts, strict=True))
    clf = on_dask.fit(estimator("FedHiPClassifier"), X, y, groups=groups)
    cluster.wait_for_workers(2, timeout=60)
    assert set(cluster.run(os.getpid).values()) != set(pids.values())
    parts = [read_or_die(i, str(tmp_path), None) for i in range(8)]
    X, y, groups = (np.concatenate(each) for each in zip(*parts, strict=True))
    same = estimator("FedHiPClassifier").fit(X, y, groups=groups)
    assert_same_fits(clf, same, X[:20])


def many_rows(i):
    """4 MB of rows."""
    rng = np.random.default_rng(i)
    X = rng.random((2**10, 512))
    return X, X[:, :3].argmax(axis=1), np.full(len(X), i)


def growth_of_memory(client):
    """How many bytes two workers take at most, beyond what they have, to fit 201 MB of rows."""
    parts = [delayed(many_rows, nout=3)(i) for i in range(48)]
    X, y, groups = map(list, zip(*parts, strict=True))
    on_dask.fit(estimator("FedHiPClassifier"), X[:2], y[:2], groups=groups[:2])  # imports
    sampler, before = MemorySampler(), sum(client.run(resident_bytes).values())
    with sampler.sample("fit", client=client, measure="process", interval=0.05):
        on_dask.fit(estimator("FedHiPClassifier"), X, y, groups=groups)
    return sampler.to_pandas()["fit"].max() - before


def resident_bytes():
    return psutil.Process().memory_info().rss


def test_workers_never_hold_more_than_a_part_of_the_rows(cluster, monkeypatch):
    rows = 48 * 2**10 * 512 * 8
    assert growth_of_memory(cluster) < rows / 2
    # Were the rows kept between rounds, or gathered, it would be seen.
    monkeypatch.setattr("skfedhip.federation._cluster._rereads", lambda method: False)
    assert growth_of_memory(cluster) > 0.75 * rows


# joblib.


def test_n_jobs_run_on_the_cluster_through_joblib(cluster, new, data, small_blocks):
    expected = data.fit(new())
    small_blocks(n_bytes=8 * 18 * 100)
    with joblib.parallel_config(backend="dask"):
        clf = data.fit(new(n_jobs=2))
    assert_same_fits(clf, expected, data.X[:20])


def test_folds_too(cluster, data, small_blocks):
    data = data.of(*np.unique(data.groups)[2:])
    new = lambda **how: FedHiPClassifierCV([1.0, 5.0], [0.1, 1.0], cv=3, **how)  # noqa: E731
    expected = data.fit(new())
    small_blocks(n_bytes=8 * 18 * 30)
    with joblib.parallel_config(backend="dask"):
        clf = data.fit(new(n_jobs=2))
    assert_same_fits(clf, expected, data.X[:20])


# What is refused.


@pytest.mark.parametrize(
    ("clf", "error", "message"),
    [
        (FedHiPClassifierCV(cv=3), ValueError, "cv=3 deals all rows into folds"),
        (FedHiPClassifier(alpha=-1.0), ValueError, "alpha"),
        (FederatedStandardScaler(), TypeError, "FederatedStandardScaler"),
        (FedPerClassifier(validation_fraction=0.2), ValueError, "validation_fraction=0.2 takes"),
        (FedPerClassifier(checkpoint="file"), ValueError, "persist the collections"),
        (FedPerClassifier(warm_start=True), ValueError, "warm_start=True goes on in memory"),
    ],
)
def test_estimators_that_cannot_be_fitted_exactly_are_refused(data, clf, error, message):
    X, y, groups = cut_arrays(MANY, data.X, data.y, data.groups)
    with pytest.raises(error, match=message):
        on_dask.fit(clf, X, y, groups=groups)


def test_a_client_too_large_to_be_tuned_is_named(cluster, data, monkeypatch):
    monkeypatch.setattr("skfedhip.federation._plan._memory_limit", lambda: 20_000)
    with pytest.raises(ValueError, match=r"client 10+ has 600 rows"):
        fit_on_dask(estimator("FedHiPClassifierCV"), data, MANY)


def test_collections_that_do_not_match_are_refused(data):
    X, y, groups = cut_arrays(MANY, data.X, data.y, data.groups)
    clf = estimator("AFLClassifier")
    with pytest.raises(TypeError, match="y must be a Dask array"):
        on_dask.fit(clf, X, data.y, groups=groups)
    with pytest.raises(ValueError, match="X has 820 rows, y has 800"):
        on_dask.fit(clf, X, y[:800], groups=groups)
    with pytest.raises(ValueError, match="X has 5 partitions and groups has 2"):
        on_dask.fit(clf, X, y, groups=[delayed(data.groups)] * 2)
    with pytest.raises(ValueError, match="takes no sample_weight"):
        on_dask.fit(FedPerClassifier(), X, y, groups=groups, sample_weight=y)
    mixed = [delayed(np.array([0, 1])), delayed(np.array(["a", "b"]))]
    with pytest.raises(ValueError, match="numbers in some partitions and strings"):
        on_dask.fit(clf, [delayed(data.X[:2])] * 2, mixed, groups=mixed[:1] * 2)
    with pytest.raises(ValueError, match="zero in all rows"):
        on_dask.fit(clf, X, y, groups=groups, sample_weight=da.zeros(820, chunks=(MANY,)))
    with pytest.raises(ValueError, match="X has no rows"):
        on_dask.fit(clf, X[:0], y[:0], groups=groups[:0])


def test_partitions_that_differ_are_refused():
    X = [delayed(np.zeros((4, 2), dtype)) for dtype in (np.float32, np.float64)]
    y = [delayed(np.array([0, 1, 0, 1]))] * 2
    with pytest.raises(ValueError, match="float32 in its first partition and float64"):
        on_dask.fit(estimator("AFLClassifier"), X, y, groups=y)
    X[0] = delayed(np.zeros((4, 3)))
    with pytest.raises(ValueError, match="2 features, but AFLClassifier is expecting 3"):
        on_dask.fit(estimator("AFLClassifier"), X, y, groups=y)


def test_a_partition_that_is_drawn_anew_is_noticed():
    rng = np.random.default_rng(0)
    draw = delayed(lambda: rng.integers(0, 2, 8), pure=False)
    X = [delayed(np.ones)((8, 2))] * 2
    y, groups = [draw(), draw()], [draw(), draw()]
    with dask.config.set(scheduler="sync"), pytest.raises(ValueError, match="the same twice"):
        on_dask.fit(estimator("AFLClassifier"), X, y, groups=groups)


def test_settings_are_of_estimators_that_exist():
    assert set(SETTINGS) <= set(skfedhip.__all__)
    assert sys.getsizeof(ClientBlock(np.zeros((9, 9)), slice(0, 0), *[None] * 5)) > 9 * 9 * 8
