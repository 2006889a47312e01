"""Classifiers trained by stochastic gradient descent, and the networks that they train."""

from ._ditto import DittoClassifier
from ._fedala import FedALAClassifier
from ._fedavg import FedAvgClassifier
from ._fedcp import FedCPClassifier
from ._fedper import FedPerClassifier
from ._fedprox import FedProxClassifier
from ._fedrep import FedRepClassifier
from ._fedslr import FedSLRClassifier
from ._networks import CNN, MLP, FastText, ResNet18

__all__ = [
    "CNN",
    "MLP",
    "DittoClassifier",
    "FastText",
    "FedALAClassifier",
    "FedAvgClassifier",
    "FedCPClassifier",
    "FedPerClassifier",
    "FedProxClassifier",
    "FedRepClassifier",
    "FedSLRClassifier",
    "ResNet18",
]
