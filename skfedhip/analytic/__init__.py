"""Closed-form classifiers: one round, no gradients, exact."""

from ._afl import AFLClassifier
from ._anapfl import AnaPFLClassifier
from ._fedhip import FedHiPClassifier
from ._local import LocalRidgeClassifier

__all__ = ["AFLClassifier", "AnaPFLClassifier", "FedHiPClassifier", "LocalRidgeClassifier"]
