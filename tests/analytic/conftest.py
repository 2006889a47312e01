"""Fixtures of the closed-form estimators' tests."""

import pytest


@pytest.fixture(params=["whole", "cut"])
def block_size(request, small_blocks):
    """Run a test with the usual blocks, and with blocks of a few rows that split large clients.

    A module whose designs are wide sets CUT_BYTES, so that a few rows fit.
    """
    if request.param == "cut":
        small_blocks(getattr(request.module, "CUT_BYTES", 600))
