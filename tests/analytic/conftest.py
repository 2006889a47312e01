"""Fixtures of the closed-form estimators' tests."""

import pytest

from skfedhip.core import _blocks


@pytest.fixture(params=["whole", "cut"])
def block_size(request, monkeypatch):
    """Run a test with the usual blocks, and with blocks of a few rows that split large clients."""
    if request.param == "cut":
        monkeypatch.setattr(_blocks, "BLOCK_BYTES", 600)
    return request.param
