"""Fixtures of the gradient classifiers' tests."""

import pytest
from _data import federation

from skfedhip import gradient

CLASSIFIERS = [name for name in gradient.__all__ if name.endswith("Classifier")]


@pytest.fixture(params=CLASSIFIERS)
def cls(request):
    """Every gradient classifier."""
    return getattr(gradient, request.param)


@pytest.fixture
def data():
    return federation()
