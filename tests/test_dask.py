"""Dask runs what memory runs: on two worker processes, whatever the cuts, whoever dies."""

import os
import signal
from dataclasses import replace
from functools import reduce
from operator import add

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from _data import IDS, assert_close, assert_same_fits, estimator, federation
from dask.delayed import delayed
from distributed import Client, LocalCluster

from skfedhip.federation import dask as on_dask

LOOPBACK = {
    "host": "127.0.0.1",
    "n_workers": 2,
    "threads_per_worker": 1,
    "processes": True,
    "dashboard_address": None,
}


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(**LOOPBACK, memory_limit="1 GiB") as cluster, Client(cluster) as client:
        yield client


def arrays(data, cuts):
    """Dask arrays of a federation with partitions of these sizes."""
    chunks = (tuple(cuts),)
    X = da.from_array(data.X, chunks=(*chunks, -1))
    return [X, *(da.from_array(e, chunks=chunks) for e in (data.y, data.groups, data.weight))]


def fit_on_dask(clf, data, cuts, **weights):
    X, y, groups, weight = arrays(data, cuts)
    weights = weights or {"sample_weight": weight}
    return on_dask.fit(clf, X, y, groups=groups, **weights)


@pytest.fixture(scope="module")
def wide():
    """Clients that span partitions: some smaller than their Gram matrix, some larger."""
    return federation(sizes=(1, 2, 5, 12, 200, 600))


CUTS = {"one partition": (820,), "many": (100, 20, 300, 0, 400), "few": (400, 420)}


@pytest.mark.parametrize("cuts", [pytest.param(c, id=name) for name, c in CUTS.items()])
def test_fit_equals_fit_in_memory(cluster, new, wide, cuts):
    clf = fit_on_dask(new(retain_statistics=True), wide, cuts)
    assert_same_fits(clf, wide.fit(new()), wide.X[:20])
