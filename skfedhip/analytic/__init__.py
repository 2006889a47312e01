"""Closed-form classifiers: few rounds, no gradients, exact."""

from ._afl import AFLClassifier
from ._anapfl import AnaPFLClassifier
from ._anapfl_cv import AnaPFLClassifierCV
from ._fedhip import FedHiPClassifier
from ._fedhip_cv import FedHiPClassifierCV
from ._local import LocalRidgeClassifier

__all__ = [
    "AFLClassifier",
    "AnaPFLClassifier",
    "AnaPFLClassifierCV",
    "FedHiPClassifier",
    "FedHiPClassifierCV",
    "LocalRidgeClassifier",
]
