"""
What FedCP's policy gives to the personal head
==============================================

FedCP's policy splits each row's features between the global head and the client's own. How much
the own head gets changes from round to round, and from row to row.
"""

# %%
# Forty rounds on skewed digits
# ------------------------------
# With rows held out, ``history_["personal_rate"]`` has the mean share of each client's personal
# head after every round: the paper's personalization identification rate.

import numpy as np
from sklearn.datasets import load_digits

from skfedhip import FedCPClassifier
from skfedhip.datasets import partition_dirichlet
from skfedhip.gradient import MLP

X, y = load_digits(return_X_y=True)
X /= 16
clients = partition_dirichlet(y, 8, 0.3, min_size=60, random_state=0)
clf = FedCPClassifier(
    n_rounds=40,
    lr=0.05,
    validation_fraction=0.25,
    feature_extractor=MLP((64,)),
    random_state=0,
)
clf.fit(X, y, groups=clients)
rates = clf.history_["personal_rate"]
shares = clf.policy(X, groups=clients)
for client in clf.clients_:
    own = shares[clients == client]
    print(f"client {client}: mean share {own.mean():.2f}, from {own.min():.2f} to {own.max():.2f}")

# %%
# Over the rounds, and over rows and features
# -------------------------------------------
# On the right a band is as wide as there are shares of that size: one for each row and feature.

import matplotlib.pyplot as plt

figure, (curve, spread) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
rounds = np.arange(1, len(rates) + 1)
curve.plot(rounds, rates, color="C0", alpha=0.35, linewidth=1)
curve.plot(rounds, rates.mean(axis=1), color="black", linewidth=2, label="mean over clients")
curve.plot([], [], color="C0", alpha=0.5, linewidth=1, label="one client")
curve.axhline(0.5, color="0.5", linestyle=":", label="half and half")
curve.set_xlabel("round")
curve.set_ylabel("mean share of the personal head")
curve.set_title("Personal rate of held-out rows")
curve.legend()
spread.violinplot(
    [shares[clients == k].ravel() for k in clf.clients_], clf.clients_, widths=0.9, showmeans=True
)
spread.axhline(0.5, color="0.5", linestyle=":")
spread.set_xticks(clf.clients_)
spread.set_xlabel("client")
spread.set_ylabel("share of a feature")
spread.set_title("The policy after the last round")
plt.show()
