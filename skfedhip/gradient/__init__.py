"""Classifiers trained by stochastic gradient descent, and the networks that they train."""

from ._fedavg import FedAvgClassifier
from ._fedcp import FedCPClassifier
from ._fedper import FedPerClassifier
from ._networks import CNN, MLP, FastText, ResNet18

__all__ = ["CNN", "MLP", "FastText", "FedAvgClassifier", "FedCPClassifier", "FedPerClassifier", "ResNet18"]
