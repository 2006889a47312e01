"""
More rows than memory: a federation on Dask
===========================================

A chain of shops keeps one file a month; every shop has rows in every file, and all months together
are more than fits in memory. Dask reads a month at a time on whatever workers there are, and the
result is the model that one fit on all rows would give.
"""

# %%
# Months, read when they are needed
# ---------------------------------
# ``read_month`` stands for reading a file. Nothing is read yet.

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client, LocalCluster

from skfedhip import AFLClassifier, FedHiPClassifier
from skfedhip.federation import dask as on_dask
from skfedhip.metrics import client_scores

n_shops, n_features = 12, 20
rng = np.random.default_rng(0)
tastes = rng.normal(size=(n_features, 3)) + 1.5 * rng.normal(size=(n_shops, n_features, 3))
features = [f"x{i}" for i in range(n_features)]


def read_month(month):
    rng = np.random.default_rng(month)
    shop = rng.integers(0, n_shops, 1000)
    X = rng.normal(size=(1000, n_features))
    bought = np.einsum("nm,nmd->nd", X, tastes[shop]) + rng.gumbel(scale=3.0, size=(1000, 3))
    table = pd.DataFrame(X, columns=features)
    return table.assign(shop=[f"shop {s:02d}" for s in shop], bought=bought.argmax(axis=1))


train = dd.from_map(read_month, range(8))
test = dd.from_map(read_month, range(100, 102))

# %%
# Fit on the cluster
# ------------------
# The estimator is the ordinary one, and so is what comes back: it can predict, save and export
# without Dask. Every shop spans all partitions, so its rows stay where they are, and statistics
# travel in their place.

cluster = LocalCluster(n_workers=2, processes=False, dashboard_address=None)
client = Client(cluster)
columns = [*features, "shop"]
models = {
    "one global model": AFLClassifier(group_column="shop", fit_intercept=True),
    "personal models": FedHiPClassifier(alpha=20.0, group_column="shop", fit_intercept=True),
}
scores = {}
for name, model in models.items():
    on_dask.fit(model, train[columns], train["bought"])
    answers = test[["shop", "bought"]].assign(predicted=on_dask.predict(model, test[columns]))
    answers = answers.compute()
    scores[name] = client_scores(answers["bought"], answers["predicted"], answers["shop"])
    print(f"{name:16} mean shop accuracy {scores[name].scores.mean():.3f}")
client.close()
cluster.close()

# %%
# Shop by shop
# ------------

import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
for name, score in scores.items():
    axes.plot(score.scores, "o", label=name)
axes.set_xticks(range(n_shops), [f"{s:02d}" for s in range(n_shops)])
axes.set_xlabel("shop")
axes.set_ylabel("test accuracy")
axes.set_title("Fitted on months that were never in memory together")
figure.legend(loc="outside lower center", ncols=2)
plt.show()
