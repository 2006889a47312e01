"""
From global to local as alpha grows
===================================

FedHiP counts a client's own rows ``1 + alpha`` times. With ``alpha=0`` every client has the global
model; as alpha grows, each client comes to its own least squares. Clients that resemble each other,
but are not the same, are served best in between.
"""

# %%
# A dial between two models
# -------------------------
# Thirty clients share five classes whose means differ a little from client to client, and have some
# forty training rows each: too few to learn twenty features alone.

import numpy as np

from skfedhip import AFLClassifier, FedHiPClassifier, LocalRidgeClassifier
from skfedhip.datasets import make_federated_classification
from skfedhip.metrics import client_scores
from skfedhip.model_selection import ClientShuffleSplit

X, y, clients = make_federated_classification(
    30, n_samples=6000, client_shift=1.0, alpha=3.0, min_size=80, random_state=0
)
((train, test),) = ClientShuffleSplit(test_size=0.8, random_state=0).split(X, y, clients)


def accuracies(model):
    """Test accuracy of each client."""
    model.set_params(fit_intercept=True).fit(X[train], y[train], groups=clients[train])
    return client_scores(
        y[test], model.predict(X[test], groups=clients[test]), clients[test]
    ).scores


alphas = np.logspace(-2, 5, 22)
curve = np.array([accuracies(FedHiPClassifier(alpha=alpha)) for alpha in alphas])
ends = {
    "one global model": accuracies(AFLClassifier()).mean(),
    "each client's own least squares": accuracies(LocalRidgeClassifier(beta=0.0)).mean(),
}
best = curve.mean(axis=1).argmax()
print(f"FedHiP, alpha {alphas[best]:.3g}: {curve[best].mean():.3f}")
for name, mean in ends.items():
    print(f"{name}: {mean:.3f}")

# %%
# Mean over clients, and the middle half of them
# ----------------------------------------------

import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(6, 3.8), layout="constrained")
axes.fill_between(alphas, *np.quantile(curve, [0.25, 0.75], axis=1), color="C0", alpha=0.2, lw=0)
axes.semilogx(alphas, curve.mean(axis=1), "o-", markersize=4, color="C0", label="FedHiP")
for (name, mean), style in zip(ends.items(), ("--", ":"), strict=True):
    axes.axhline(mean, color="black", linestyle=style, label=name)
axes.set_xlabel("alpha: how many times more a client's own rows count")
axes.set_ylabel("test accuracy of the clients")
axes.set_title("The best model is neither global nor local")
axes.legend()
plt.show()
