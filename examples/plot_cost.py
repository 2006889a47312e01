"""
Accuracy, and what it costs in bytes and seconds
================================================

A closed form sends its statistics once; a network's weights travel every round. Every fitted
estimator knows what each client sent and received, in ``bytes_up_`` and ``bytes_down_``.
"""

# %%
# The same rows for all
# ---------------------

from time import perf_counter

from sklearn.datasets import load_digits

import skfedhip
from skfedhip.datasets import partition_dirichlet
from skfedhip.gradient import MLP
from skfedhip.metrics import client_scores
from skfedhip.model_selection import ClientShuffleSplit

X, y = load_digits(return_X_y=True)
X /= 16
clients = partition_dirichlet(y, 15, 0.3, min_size=20, random_state=0)
((train, test),) = ClientShuffleSplit(test_size=0.5, random_state=0).split(X, y, clients)
models = {
    "AFL": skfedhip.AFLClassifier(),
    "FedHiP": skfedhip.FedHiPClassifierCV(),
    "AnaPFL": skfedhip.AnaPFLClassifier(n_components=256, random_state=0),
}
for name in ("FedAvg", "FedPer", "FedSLR", "FedCP"):
    models[name] = getattr(skfedhip, f"{name}Classifier")(
        n_rounds=30, lr=0.3, feature_extractor=MLP((64,)), random_state=0
    )
costs = {}
for name, model in models.items():
    start = perf_counter()
    model.fit(X[train], y[train], groups=clients[train])
    seconds = perf_counter() - start
    predicted = model.predict(X[test], groups=clients[test])
    accuracy = client_scores(y[test], predicted, clients[test]).scores.mean()
    kilobytes = (model.bytes_up_ + model.bytes_down_).mean() / 1e3
    costs[name] = kilobytes, seconds, accuracy
    print(f"{name:7} {kilobytes:8.0f} kB a client, {seconds:5.2f} s, accuracy {accuracy:.3f}")

# %%
# Up and to the left is better
# ----------------------------

import matplotlib.pyplot as plt

figure, axes = plt.subplots(1, 2, figsize=(9.5, 4), sharey=True, layout="constrained")
closed_form = ("AFL", "FedHiP", "AnaPFL")
for name, (kilobytes, seconds, accuracy) in costs.items():
    marker, color = ("o", "C0") if name in closed_form else ("s", "C1")
    for ax, cost in zip(axes, (kilobytes, seconds), strict=True):
        ax.plot(cost, accuracy, marker, color=color)
        ax.annotate(name, (cost, accuracy), xytext=(7, -3), textcoords="offset points")
axes[0].set(xscale="log", xlabel="kilobytes that a client sends and receives, mean")
axes[1].set(xscale="log", xlabel="seconds of fit, all clients together")
axes[0].set_ylabel("mean test accuracy of the clients")
for ax in axes:
    ax.grid(color="0.9")
    ax.margins(0.25, 0.15)
axes[0].plot([], [], "o", color="C0", label="closed form")
axes[0].plot([], [], "s", color="C1", label="30 rounds of gradients")
figure.legend(loc="outside lower center", ncols=2, frameon=False)
plt.show()
