"""FedALA equals rounds in numpy, and FedAvg where there is nothing to mix."""

import numpy as np

from skfedhip import FedALAClassifier, FedAvgClassifier
from skfedhip.gradient._engine import client_generator

from . import _plain as plain
from ._data import make

HEAD = ("head.weight", "head.bias")


def mixed(shared, head, mix, X, y, *, lr, epochs):
    """The head to start from and the trained weights of the mixture."""
    mix, gap = dict(mix), {name: shared[name] - head[name] for name in HEAD}
    if any(gap[name].any() for name in HEAD):
        for _ in range(epochs):
            for i in range(0, len(y), plain.BATCH):
                now = {name: head[name] + gap[name] * mix[name] for name in HEAD}
                rows = slice(i, i + plain.BATCH)
                grads = plain.gradient(shared | now, X[rows], y[rows])
                for name in HEAD:
                    mix[name] = np.clip(mix[name] - lr * grads[name] * gap[name], 0, 1)
    return {name: head[name] + gap[name] * mix[name] for name in HEAD}, mix


def sample(clf, k, n_round, X, y, fraction):
    order = client_generator(clf._seed, k, n_round).permutation(len(y))
    chosen = order[: max(1, round(fraction * len(y)))]
    return X[chosen], y[chosen]


def test_rounds_equal_numpy():
    how = {"lr": 3.0, "epochs": 2}
    clf, data = plain.fitted(FedALAClassifier, 3.0, mix_epochs=2, mix_fraction=0.6)
    shared, rows = plain.start(), plain.clients(data)
    heads = [plain.part(shared, "head.") for _ in rows]
    mixes = [{name: np.ones_like(shared[name]) for name in HEAD} for _ in rows]
    for n_round in range(3):
        sent = []
        for k, (X, y) in enumerate(rows):
            chosen = sample(clf, k, n_round, X, y, 0.6)
            head, mixes[k] = mixed(shared, heads[k], mixes[k], *chosen, **how)
            sent.append(plain.sgd(shared | head, X, y))
            heads[k] = plain.part(sent[-1], "head.")
        shared = plain.average(sent)
    own = []
    for k, (X, y) in enumerate(rows):
        chosen = sample(clf, k, 3, X, y, 0.6)
        own.append(shared | mixed(shared, heads[k], mixes[k], *chosen, **how)[0])
    plain.assert_models(clf, shared, own, data[0])
    weights = clf._federation.states[0]["mix_head.weight"]
    assert 0 <= weights.min() < 1 == weights.max()


def test_one_client_is_fedavg():
    _, (X, y, _) = plain.fitted(FedAvgClassifier)
    ours, same = (
        make(cls, init_params=plain.start(), shuffle=False).fit(X, y, groups=["only"] * len(y))
        for cls in (FedALAClassifier, FedAvgClassifier)
    )
    ids = ["only"] * len(y)
    actual, desired = (c.decision_function(X, groups=ids) for c in (ours, same))
    np.testing.assert_allclose(actual, desired, atol=1e-12)


def test_one_round_trains_as_fedavg():
    clf, (X, _, _) = plain.fitted(FedALAClassifier, n_rounds=1)
    fedavg, _ = plain.fitted(FedAvgClassifier, n_rounds=1)
    np.testing.assert_array_equal(clf.decision_function(X), fedavg.decision_function(X))
