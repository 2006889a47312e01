"""Classifiers trained by stochastic gradient descent, and the networks that they train."""

from ._apfl import APFLClassifier
from ._ditto import DittoClassifier
from ._fedala import FedALAClassifier
from ._fedamp import FedAMPClassifier
from ._fedavg import FedAvgClassifier
from ._fedcp import FedCPClassifier
from ._fedfomo import FedFomoClassifier
from ._fedper import FedPerClassifier
from ._fedphp import FedPHPClassifier
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
    "FedAMPClassifier",
    "FedAvgClassifier",
    "FedCPClassifier",
    "FedFomoClassifier",
    "FedPHPClassifier",
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
