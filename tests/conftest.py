"""Fixtures of several test files."""

import pytest
from _data import federation, variants

from skfedhip.core import _blocks


@pytest.fixture(params=[pytest.param(new, id=name) for name, new in variants()])
def new(request):
    """Factory of one variant of one estimator: ``new(**further_parameters)``."""
    return request.param


@pytest.fixture
def data():
    return federation()


@pytest.fixture
def small_blocks(monkeypatch):
    """Cut work into blocks of a handful of rows, so that there are many, as with large data."""

    def cut(n_bytes=8 * 7 * 6):
        monkeypatch.setattr(_blocks, "BLOCK_BYTES", n_bytes)

    return cut
