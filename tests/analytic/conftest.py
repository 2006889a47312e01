"""Fixtures of the closed-form estimators' tests."""

import pytest


@pytest.fixture(params=["whole", "cut"])
def block_size(request, small_blocks):
    """Run a test with the usual blocks, and with blocks of a few rows that split large clients."""
    if request.param == "cut":
        small_blocks(600)
