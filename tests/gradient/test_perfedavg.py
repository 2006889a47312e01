"""Per-FedAvg equals rounds in numpy, and FedAvg where its inner step has no length."""

import numpy as np

from skfedhip import FedAvgClassifier, PerFedAvgClassifier

from . import _plain as plain


def stepped(model, grads, lr):
    return {name: value - lr * grads[name] for name, value in model.items()}


def trained(model, X, y, alpha):
    """Steps along the gradient at the end of a step on every other row."""
    for i in range(0, len(y), plain.BATCH):
        rows = np.arange(i, min(i + plain.BATCH, len(y)))
        first, second = (rows[::2], rows[1::2]) if len(rows) > 1 else (rows, rows)
        there = stepped(model, plain.gradient(model, X[first], y[first]), alpha)
        grads = plain.gradient(there, X[second], y[second])
        decayed = {name: grad + plain.DECAY * model[name] for name, grad in grads.items()}
        model = stepped(model, decayed, plain.LR)
    return model


def test_rounds_equal_numpy():
    clf, data = plain.fitted(PerFedAvgClassifier, 0.3)
    model, rows = plain.start(), plain.clients(data)
    for _ in range(3):
        model = plain.average([trained(model, *own, 0.3) for own in rows], [1, 1, 1, 1])
    own = [stepped(model, plain.gradient(model, *each), 0.3) for each in rows]
    plain.assert_models(clf, model, own, data[0])


def test_without_an_inner_step_it_is_fedavg():
    """With batches of one row there is nothing to halve; clients of equal size count alike."""
    rng = np.random.default_rng(0)
    X, y, groups = rng.normal(size=(15, 4)), np.arange(15) % 3, np.arange(15) // 5
    how = {"batch_size": 1, "init_params": plain.start(), "shuffle": True}
    clf, fedavg = (
        plain.make(cls, *args, **how).fit(X, y, groups=groups)
        for cls, args in ((PerFedAvgClassifier, [0.0]), (FedAvgClassifier, []))
    )
    for ids in (groups, [None] * 15):
        actual, desired = (each.decision_function(X, groups=ids) for each in (clf, fedavg))
        np.testing.assert_allclose(actual, desired, atol=1e-12)


def test_the_default_steps():
    clf, (X, _, groups) = plain.fitted(PerFedAvgClassifier)
    still, _ = plain.fitted(PerFedAvgClassifier, 0.0)
    assert np.abs(clf.decision_function(X) - still.decision_function(X)).max() > 1e-4
    gap = clf.decision_function(X, groups=groups) - clf.decision_function(X)
    assert np.abs(gap).max() > 1e-3


def test_every_client_is_adapted_whatever_the_cohorts():
    clf, data = plain.fitted(PerFedAvgClassifier, join_ratio=0.25)
    shared = clf.global_params_
    own = [stepped(shared, plain.gradient(shared, *rows), 0.05) for rows in plain.clients(data)]
    plain.assert_models(clf, shared, own, data[0])
