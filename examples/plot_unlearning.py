"""
Unlearning a client
===================

Two of fifteen clients have mixed up their labels. ``forget_clients`` takes them out of the sums
that everybody's model is made of: afterwards the others have the models they would have had without
them, to rounding, and nobody sends anything again.
"""

# %%
# Two clients with wrong labels
# -----------------------------
# ``retain_statistics=True`` keeps what forgetting needs.

from time import perf_counter

import numpy as np
from sklearn.datasets import load_digits

from skfedhip import FedHiPClassifier
from skfedhip.datasets import partition_dirichlet
from skfedhip.model_selection import ClientShuffleSplit

X, y = load_digits(return_X_y=True)
X /= 16
clients = partition_dirichlet(y, 15, 0.5, min_size=40, random_state=0)
bad = np.argsort(np.bincount(clients))[-2:]  # the two largest
is_bad = np.isin(clients, bad)
labels = np.where(is_bad, (y + 1) % 10, y)
((train, test),) = ClientShuffleSplit(test_size=0.5, random_state=0).split(X, y, clients)
seen = test[~is_bad[test]]  # all are judged by the rows of the others


def fitted(rows):
    model = FedHiPClassifier(alpha=1.0, retain_statistics=True)
    return model.fit(X[rows], labels[rows], groups=clients[rows])


# %%
# Forget them
# -----------

model = fitted(train)
predictions = {"with them": model.predict(X[seen], groups=clients[seen])}
start = perf_counter()
model.forget_clients(bad)
predictions["after\nforgetting"] = model.predict(X[seen], groups=clients[seen])
print(f"forgotten in {perf_counter() - start:.3f} s")

never = fitted(train[~is_bad[train]])
predictions["never\nthere"] = never.predict(X[seen], groups=clients[seen])
apart = np.abs(model.personal_coef_ - never.personal_coef_).max()
print(f"largest difference to models that never saw them: {apart:.1e}")

# %%
# The other clients, one dot each
# -------------------------------

import matplotlib.pyplot as plt

from skfedhip.metrics import ClientScoreDisplay

display = ClientScoreDisplay.from_predictions(y[seen], predictions, clients[seen])
display.ax_.set_title("Thirteen clients, and two with wrong labels")
plt.show()
