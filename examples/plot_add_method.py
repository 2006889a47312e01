"""
A method of your own
====================

A method says only how it differs from federated averaging. Here is one: clients share a network,
and each keeps the bias of the last layer, which is what a client's own mix of classes moves first.
It takes the few lines between the markers; ids, searches, checkpoints, newcomers and files come
with the base.
"""

# %%
# The method
# ----------
# ``personal`` names the parameters that stay with a client. All else that a method could state,
# from its loss to what the server does, has a hook of its own in the base class.

# begin method
from dataclasses import dataclass

from skfedhip.gradient._classifier import GradientClassifier
from skfedhip.gradient._method import GradientMethod


@dataclass(frozen=True, kw_only=True)
class FedBias(GradientMethod):
    """FedAvg whose last biases never come down."""

    personal = ("head.bias",)


class FedBiasClassifier(GradientClassifier):
    """Clients share a network but for the bias of its last layer.

    Parameters
    ----------
    %(parameters)s

    Attributes
    ----------
    %(attributes)s
    """

    def __init__(self, **shared):
        super().__init__(**shared)

    def _method(self, **common):
        return FedBias(**common)


# end method

# %%
# It is a scikit-learn estimator
# ------------------------------
# Fifteen clients share scikit-learn's digits, each with its own mix of the ten classes.

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from skfedhip import FedAvgClassifier, FedPerClassifier
from skfedhip.datasets import partition_dirichlet
from skfedhip.metrics import ClientScoreDisplay
from skfedhip.model_selection import ClientShuffleSplit

X, y = load_digits(return_X_y=True)
X /= 16.0
clients = partition_dirichlet(y, 15, 0.3, min_size=20, random_state=0)
((train, test),) = ClientShuffleSplit(test_size=0.4, random_state=0).split(X, y, clients)
models = {
    "FedAvg\n(nothing)": FedAvgClassifier,
    "FedBias\n(last bias)": FedBiasClassifier,
    "FedPer\n(last layer)": FedPerClassifier,
}
for name, classifier in models.items():
    model = classifier(n_rounds=5, lr=0.1, random_state=0)
    models[name] = model.fit(X[train], y[train], groups=clients[train])

# %%
# What a client keeps, and what it gains
# --------------------------------------

display = ClientScoreDisplay.from_estimator(models, X[test], y[test], groups=clients[test])
display.ax_.set_title("Five rounds; in brackets, what is a client's own")
plt.show()
