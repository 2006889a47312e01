"""pFedMe equals rounds in numpy, and FedAvg with one inner step on one batch."""

import numpy as np

from skfedhip import FedAvgClassifier, PFedMeClassifier

from . import _plain as plain

LAM, ALPHA, STEPS = 3.0, 0.05, 2


def local(w, X, y):
    """w and θ of a client after a round."""
    theta = dict(w)
    for i in range(0, len(y), plain.BATCH):
        rows = slice(i, i + plain.BATCH)
        for _ in range(STEPS):
            grads = plain.gradient(theta, X[rows], y[rows])
            for name, grad in grads.items():
                pull = plain.DECAY * theta[name] + LAM * (theta[name] - w[name])
                theta[name] = theta[name] - ALPHA * (grad + pull)
        w = {name: value - plain.LR * LAM * (value - theta[name]) for name, value in w.items()}
    return w, theta


def test_rounds_equal_numpy():
    how = {"n_steps": STEPS, "inner_lr": ALPHA, "beta": 0.7}
    clf, data = plain.fitted(PFedMeClassifier, LAM, **how)
    w, rows = plain.start(), plain.clients(data)
    for _ in range(3):
        mean = plain.average([local(w, *own)[0] for own in rows], [1, 1, 1, 1])
        w = {name: 0.3 * value + 0.7 * mean[name] for name, value in w.items()}
    plain.assert_models(clf, w, [local(w, *own)[1] for own in rows], data[0])


def test_one_inner_step_on_one_batch_is_fedavg():
    rng = np.random.default_rng(0)
    X, y, groups = rng.normal(size=(15, 4)), np.arange(15) % 3, np.arange(15) // 5
    how = {"batch_size": 5, "init_params": plain.start()}
    clf = plain.make(PFedMeClassifier, 2.0, n_steps=1, inner_lr=0.5, lr=0.3, **how)
    fedavg = plain.make(FedAvgClassifier, lr=0.3, **how)  # 0.3 · 2 · 0.5
    actual, desired = (c.fit(X, y, groups=groups).decision_function(X) for c in (clf, fedavg))
    np.testing.assert_allclose(actual, desired, atol=1e-12)


def test_a_strong_envelope_holds_clients_at_the_global_model():
    def distance(lam):
        how = {"inner_lr": 0.01, "lr": 0.01}
        clf, (X, _, groups) = plain.fitted(PFedMeClassifier, lam, **how)
        gap = clf.decision_function(X, groups=groups) - clf.decision_function(X)
        return np.abs(gap).max()

    assert distance(90.0) < distance(15.0) < distance(1.0)


def test_the_default_moves_both():
    clf, (X, _, groups) = plain.fitted(PFedMeClassifier, lr=0.05)
    before = plain.scores(plain.start(), X)
    assert np.abs(clf.decision_function(X) - before).max() > 1e-2
    gap = clf.decision_function(X, groups=groups) - clf.decision_function(X)
    assert np.abs(gap).max() > 1e-2
