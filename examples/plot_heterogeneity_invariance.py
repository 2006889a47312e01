"""
Heterogeneity invariance: how the others' rows are dealt does not matter
========================================================================

FedHiP's personal model of a client depends on its own rows and on the sum of everybody's
statistics. Dealing the *other* clients' rows out differently, from evenly to one class a client,
leaves that sum as it is, and so the model too: to rounding, not approximately. FedAvg, which
averages what the clients train by gradients, moves each time.
"""

# %%
# One client stays, the others are dealt anew
# -------------------------------------------

import numpy as np
from sklearn.datasets import load_digits
from sklearn.preprocessing import scale

from skfedhip import FedAvgClassifier, FedHiPClassifier
from skfedhip.datasets import partition_dirichlet
from skfedhip.gradient import MLP

X, y = load_digits(return_X_y=True)
X = scale(X)
first = partition_dirichlet(y, 10, alpha=0.5, random_state=0)
own = first == 0
others = np.flatnonzero(~own)


def deal_others(alpha):
    """Ids in which client 0 keeps its rows and nine others share the rest."""
    groups = np.zeros(len(y), dtype=int)
    groups[others] = 1 + partition_dirichlet(y[others], 9, alpha, random_state=1)
    return groups


def personal(groups):
    """FedHiP's model of client 0."""
    return FedHiPClassifier().fit(X, y, groups=groups).personal_coef_[0]


def averaged(groups):
    """FedAvg's network after ten rounds, which start from the same weights."""
    model = FedAvgClassifier(
        n_rounds=10, lr=0.05, feature_extractor=MLP((64,)), random_state=0
    ).fit(X, y, groups=groups)
    return np.concatenate([array.ravel() for array in model.global_params_.values()])


# %%
# How far the models move
# -----------------------

alphas = [0.05, 0.1, 0.3, 1.0, 10.0, 1000.0]
moves = {"FedHiP, client 0": [], "FedAvg": []}
reference = deal_others(1e6)  # nearly IID
for alpha in alphas:
    groups = deal_others(alpha)
    for name, model in zip(moves, (personal, averaged), strict=True):
        before, after = model(reference), model(groups)
        moves[name].append(np.linalg.norm(after - before) / np.linalg.norm(before))
for name, distances in moves.items():
    print(f"{name:25}", " ".join(f"{distance:9.1e}" for distance in distances))

# %%

import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
for (name, distances), marker in zip(moves.items(), "os", strict=True):
    axes.loglog(alphas, np.maximum(distances, 1e-17), f"{marker}-", label=name)
axes.set_xlabel("Dirichlet concentration of the other clients (left: most uneven)")
axes.set_ylabel("relative change of the model")
axes.set_ylim(1e-17, 10)
axes.legend(loc="center right")
axes.set_title("Only rounding moves a FedHiP model")
plt.show()
