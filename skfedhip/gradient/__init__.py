"""Classifiers trained by stochastic gradient descent, and the networks that they train."""

from ._fedavg import FedAvgClassifier
from ._networks import CNN, MLP, FastText, ResNet18

__all__ = ["CNN", "MLP", "FastText", "FedAvgClassifier", "ResNet18"]
