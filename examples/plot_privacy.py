"""
Accuracy against epsilon
========================

``GaussianMechanism`` adds noise to what leaves a client, once, so that no single row can be told
from it beyond a stated epsilon. A federation pays for that with accuracy; clients that stay alone
pay nothing, and gain nothing.
"""

# %%
# Rows of norm 1
# --------------
# Rows are clipped to norm 1, so that is what they are scaled to, without looking at the others.

import numpy as np
from sklearn.preprocessing import normalize

from skfedhip import FedHiPClassifier, LocalRidgeClassifier
from skfedhip.datasets import make_federated_classification
from skfedhip.metrics import client_scores
from skfedhip.model_selection import ClientShuffleSplit
from skfedhip.privacy import GaussianMechanism

X, y, clients = make_federated_classification(
    100, n_samples=12_000, n_features=15, client_shift=0.7, alpha=3.0, random_state=0
)
X = normalize(X)
((train, test),) = ClientShuffleSplit(test_size=0.5, random_state=0).split(X, y, clients)


def accuracy(model):
    model.fit(X[train], y[train], groups=clients[train])
    predicted = model.predict(X[test], groups=clients[test])
    return client_scores(y[test], predicted, clients[test]).scores.mean()


epsilons = [0.1, 0.3, 1.0, 3.0, 10.0]
curves = {
    where: [
        [
            accuracy(
                FedHiPClassifier(
                    alpha=20.0,
                    privacy=GaussianMechanism(epsilon, 1e-6, where=where, random_state=s),
                )
            )
            for s in range(5)
        ]
        for epsilon in epsilons
    ]
    for where in ("server", "client")
}
exact = accuracy(FedHiPClassifier(alpha=20.0))
alone = accuracy(LocalRidgeClassifier())
for where, values in curves.items():
    print(f"noise at the {where}:", " ".join(f"{mean:.3f}" for mean in np.mean(values, axis=1)))
print(f"no noise: {exact:.3f}, alone: {alone:.3f}")

# %%
# Who adds the noise
# ------------------
# A server that all trust adds it once; where nobody is trusted each client adds its own, and the
# variance of a hundred reaches the sum. Below the dotted line clients had better stay alone. Bars
# are the range over five draws of the noise.

import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(6, 3.8), layout="constrained")
for (where, values), marker in zip(curves.items(), "os", strict=True):
    mean, low, high = (f(values, axis=1) for f in (np.mean, np.min, np.max))
    label = f"FedHiP, noise at the {where}"
    axes.errorbar(
        epsilons, mean, (mean - low, high - mean), fmt=f"{marker}-", capsize=3, label=label
    )
axes.axhline(exact, color="black", linestyle="--", label="FedHiP without noise")
axes.axhline(alone, color="black", linestyle=":", label="each client alone")
axes.set_xscale("log")
axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
axes.set_xlabel("epsilon (left: more private), delta 1e-6")
axes.set_ylabel("mean test accuracy of the clients")
axes.set_title("What privacy costs")
axes.legend()
plt.show()
