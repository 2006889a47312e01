"""Fixtures of several test files."""

from functools import partial

import pytest
from _data import CHOSEN, federation, variants

from skfedhip.core import _blocks


@pytest.fixture(params=[pytest.param(new, id=name) for name, new in variants()])
def new(request):
    """Factory of one variant of one estimator: ``new(**further_parameters)``."""
    return request.param


@pytest.fixture(params=[pytest.param(new, id=name) for name, new in variants()])
def fixed(request):
    """As ``new``, but estimators that tune themselves have nothing to choose."""
    name = request.param.args[0]
    return partial(request.param, **CHOSEN.get(name, {}))


STREAMING = [(name, new) for name, new in variants() if hasattr(new(), "partial_fit")]


@pytest.fixture(params=[pytest.param(new, id=name) for name, new in STREAMING])
def streaming(request):
    """As ``new``, but only for the estimators that learn from a stream alone."""
    return request.param


@pytest.fixture
def data():
    return federation()


@pytest.fixture
def small_blocks(monkeypatch):
    """Cut work into blocks of a handful of rows, so that there are many, as with large data."""

    def cut(n_bytes=8 * 7 * 18):
        monkeypatch.setattr(_blocks, "BLOCK_BYTES", n_bytes)

    return cut
