"""Classifiers trained by stochastic gradient descent, and the networks that they train."""

from ._apfl import APFLClassifier
from ._ditto import DittoClassifier
from ._fedala import FedALAClassifier
from ._fedavg import FedAvgClassifier
from ._fedcp import FedCPClassifier
from ._fedper import FedPerClassifier
from ._fedprox import FedProxClassifier
from ._fedrep import FedRepClassifier
from ._fedrod import FedRoDClassifier
from ._fedslr import FedSLRClassifier
from ._lgfedavg import LGFedAvgClassifier
from ._networks import CNN, MLP, FastText, ResNet18
from ._perfedavg import PerFedAvgClassifier
from ._pfedme import PFedMeClassifier
from ._scaffold import SCAFFOLDClassifier

__all__ = [
    "CNN",
    "MLP",
    "APFLClassifier",
    "DittoClassifier",
    "FastText",
    "FedALAClassifier",
    "FedAvgClassifier",
    "FedCPClassifier",
    "FedPerClassifier",
    "FedProxClassifier",
    "FedRepClassifier",
    "FedRoDClassifier",
    "FedSLRClassifier",
    "LGFedAvgClassifier",
    "PFedMeClassifier",
    "PerFedAvgClassifier",
    "ResNet18",
    "SCAFFOLDClassifier",
]
