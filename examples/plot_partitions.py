"""
Ways to deal one data set to clients
====================================

How uneven clients are is decided where a data set is dealt. Here the same 1,797 digits go to twelve
clients in four ways, which leave clients with other classes, and two of them with other sizes.
"""

# %%
# From evenly to two classes a client
# -----------------------------------
# ``partition_dirichlet`` deals each class to clients in Dirichlet proportions, so sizes differ as
# well; ``partition_dirichlet_labels`` fills clients of equal size; ``partition_shards`` gives each
# client a fixed number of classes.

import numpy as np
from sklearn.datasets import load_digits

from skfedhip.datasets import (
    partition_dirichlet,
    partition_dirichlet_labels,
    partition_iid,
    partition_shards,
)

y = load_digits(return_X_y=True)[1]
deals = {
    "partition_iid(y, 12)": partition_iid(y, 12, random_state=0),
    "partition_dirichlet(y, 12, 0.3)": partition_dirichlet(y, 12, 0.3, random_state=0),
    "partition_dirichlet_labels(y, 12, 1)": partition_dirichlet_labels(y, 12, 1.0, random_state=0),
    "partition_shards(y, 12, 2)": partition_shards(y, 12, 2, random_state=0),
}
for name, clients in deals.items():
    sizes = np.bincount(clients)
    classes = [len(np.unique(y[clients == k])) for k in range(12)]
    print(f"{name:37} {sizes.min():3}-{sizes.max():3} rows, {min(classes)}-{max(classes)} classes")

# %%
# The area of a bubble is a number of rows
# ----------------------------------------

import matplotlib.pyplot as plt

from skfedhip.metrics import PartitionDisplay

figure, axes = plt.subplots(2, 2, figsize=(10, 7), layout="constrained")
for ax, (name, clients) in zip(axes.flat, deals.items(), strict=True):
    PartitionDisplay.from_labels(y, clients, ax=ax)
    ax.set_title(name, family="monospace", fontsize="medium")
plt.show()
