"""
One model for every client, in one fit
======================================

Twenty clients share five classes, but each client's classes look a little different and come in
its own proportions. One global model must compromise, a model for each client alone has few rows
to learn from; FedHiP gives each client a model that learns from all rows and counts its own more.
"""

# %%
# A column of X names the client
# ------------------------------
# The id column works inside every scikit-learn tool: a Pipeline, a grid search, an ensemble.

import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from skfedhip import (
    AFLClassifier,
    FederatedStandardScaler,
    FedHiPClassifier,
    LocalRidgeClassifier,
)
from skfedhip.datasets import make_federated_classification
from skfedhip.metrics import client_scores, client_summary

X, y, clients = make_federated_classification(n_samples=3000, client_shift=1.0, random_state=0)
X = np.column_stack([clients, X])  # column 0 is the client id
X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=0.5, stratify=clients, random_state=0
)

# %%
# Three degrees of sharing
# ------------------------

models = {
    "local": LocalRidgeClassifier(group_column=0, fit_intercept=True),
    "global": AFLClassifier(group_column=0, fit_intercept=True),
    "personal": FedHiPClassifier(alpha=10.0, group_column=0, fit_intercept=True),
}
scores = {}
for name, model in models.items():
    pipeline = make_pipeline(FederatedStandardScaler(group_column=0), model)
    pipeline.fit(X_train, y_train)
    scores[name] = client_scores(y_test, pipeline.predict(X_test), X_test[:, 0])
    print(f"{name:9} mean client accuracy {client_summary(scores[name])['mean']:.3f}")

# %%
# One dot a client
# ----------------

import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
rng = np.random.default_rng(0)
for at, score in enumerate(scores.values()):
    jitter = at + rng.uniform(-0.12, 0.12, len(score.scores))
    axes.plot(jitter, score.scores, "o", alpha=0.6, color=f"C{at}")
    axes.hlines(score.scores.mean(), at - 0.25, at + 0.25, color="black")
axes.set_xticks(range(len(scores)), list(scores))
axes.set_ylabel("test accuracy of a client")
axes.set_title("Personal models learn from all and fit their own client")
plt.show()
