"""
Every method, client by client
==============================

A mean over rows hides who is served badly. Here every method is fitted on the same rows of fifteen
clients, and each client is one dot.
"""

# %%
# Fifteen clients that see digits in different proportions
# --------------------------------------------------------

from sklearn.datasets import load_digits

import skfedhip
from skfedhip.datasets import partition_dirichlet
from skfedhip.gradient import MLP
from skfedhip.model_selection import ClientShuffleSplit

X, y = load_digits(return_X_y=True)
X /= 16
clients = partition_dirichlet(y, 15, 0.3, min_size=20, random_state=0)
((train, test),) = ClientShuffleSplit(test_size=0.5, random_state=0).split(X, y, clients)

# %%
# Closed forms and gradients
# --------------------------
# The closed forms are fitted at once, the others in sixty rounds, all with one step size: each
# would do better with its own, so this is no contest between them.

closed_form = {
    "Local": skfedhip.LocalRidgeClassifier(),
    "AFL": skfedhip.AFLClassifier(),
    "FedHiP": skfedhip.FedHiPClassifierCV(),
    "AnaPFL": skfedhip.AnaPFLClassifierCV(n_components=256, random_state=0),
}
by_rounds = {
    name.removesuffix("Classifier"): getattr(skfedhip, name)(
        n_rounds=60, lr=0.1, feature_extractor=MLP((64,)), random_state=0
    )
    for name in skfedhip.gradient.__all__
    if name.endswith("Classifier")
}
for model in [*closed_form.values(), *by_rounds.values()]:
    model.fit(X[train], y[train], groups=clients[train])

# %%
# One dot a client
# ----------------

import matplotlib.pyplot as plt

from skfedhip.metrics import ClientScoreDisplay

figure, axes = plt.subplots(figsize=(14, 5), layout="constrained")
display = ClientScoreDisplay.from_estimator(
    closed_form | by_rounds, X[test], y[test], groups=clients[test], ax=axes
)
axes.axvline(len(closed_form) - 0.5, color="0.5", linestyle="--")
axes.tick_params(axis="x", rotation=40)
axes.set_title("Closed forms, and networks after sixty rounds")
plt.show()
