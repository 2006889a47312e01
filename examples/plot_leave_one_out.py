"""
The surface that leave-one-out sees
===================================

``FedHiPClassifierCV`` scores every row by models that never saw it, for a whole grid of alpha and
beta, and refits nothing. ``GridSearchCV`` finds the same surface by refitting at every point.
"""

# %%
# One fit against many
# --------------------
# The search of scikit-learn tries 25 points on five folds within each client; ours 961 points on
# as many folds as there are rows.

from time import perf_counter

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV

from skfedhip import FedHiPClassifier, FedHiPClassifierCV
from skfedhip.datasets import partition_dirichlet
from skfedhip.metrics import make_client_scorer
from skfedhip.model_selection import ClientKFold

X, y = load_digits(return_X_y=True)
office = partition_dirichlet(y, 15, 0.5, min_size=20, random_state=0)
table = np.column_stack([office, X / 16])  # column 0 is the client

alphas, betas = np.logspace(-2, 4, 31), np.logspace(-2, 3, 31)
start = perf_counter()
ours = FedHiPClassifierCV(alphas, betas, local_classes_only=False, group_column=0).fit(table, y)
print(f"leave-one-out, {len(alphas) * len(betas)} points: {perf_counter() - start:.1f} s")
surface = ours.cv_results_["mean_test_score"].reshape(
    [len(np.unique(ours.cv_results_[f"param_{name}"])) for name in ("alpha", "beta")]
)

start = perf_counter()
search = GridSearchCV(
    FedHiPClassifier(group_column=0),
    {"alpha": alphas[3:31:6], "beta": betas[3:31:6]},
    cv=ClientKFold(5, group_column=0),
    scoring=make_client_scorer(),
    refit=False,
).fit(table, y)
theirs = search.cv_results_
print(f"GridSearchCV, {len(theirs['params'])} points: {perf_counter() - start:.1f} s")
apart = np.abs(theirs["mean_test_score"] - surface[3:31:6, 3:31:6].ravel()).max()
print(f"largest difference between the two: {apart:.3f}")

# %%
# Dots that melt into the surface
# -------------------------------
# Dots have the colour of GridSearchCV's score on the scale of the surface.

import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
colors = axes.contourf(alphas, betas, surface.T, levels=20, cmap="cividis")
axes.scatter(
    np.asarray(theirs["param_alpha"], float),
    np.asarray(theirs["param_beta"], float),
    c=theirs["mean_test_score"],
    norm=colors.norm,
    cmap="cividis",
    s=90,
    edgecolors="black",
    linewidths=0.8,
    label="GridSearchCV",
)
axes.plot(ours.alpha_, ours.beta_, "*", color="black", markersize=15, label="best leave-one-out")
axes.set(xscale="log", yscale="log", xlabel="alpha", ylabel="beta")
axes.set_title("Mean accuracy of the clients on rows left out")
axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, frameon=False)
figure.colorbar(colors, label="accuracy")
plt.show()
