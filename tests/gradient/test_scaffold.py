"""SCAFFOLD equals rounds in numpy; its control variates sum up, and undo the clients' drift."""

import numpy as np

from skfedhip import FedAvgClassifier, SCAFFOLDClassifier

from . import _plain as plain
from ._data import make


def local(x, own, shared, X, y, epochs):
    """y and c_k of a client after a round."""
    model = plain.sgd(x, X, y, epochs=epochs, extra=lambda name, value: shared[name] - own[name])
    steps = epochs * -(-len(y) // plain.BATCH)
    change = {n: (x[n] - model[n]) / (steps * plain.LR) - shared[n] for n in x}
    return model, {name: own[name] + change[name] for name in x}


def rounds(data, joins, server_lr, epochs=1):
    x, rows = plain.start(), plain.clients(data)
    zeros = {name: 0 * value for name, value in x.items()}
    shared, own = zeros, [zeros for _ in rows]
    for joined in joins:
        cohort = np.flatnonzero(joined).tolist()
        done = [local(x, own[k], shared, *rows[k], epochs) for k in cohort]
        mean = plain.average([model for model, _ in done], np.ones(len(done)))
        for k, (_, control) in zip(cohort, done, strict=True):
            own[k] = control
        x = {name: value + server_lr * (mean[name] - value) for name, value in x.items()}
        shared = plain.average(own, np.ones(len(own)))  # of all, in the cohort or not
    return x


def test_rounds_equal_numpy():
    clf, data = plain.fitted(SCAFFOLDClassifier, 0.7, local_epochs=2)
    x = rounds(data, np.ones((3, 4)), 0.7, epochs=2)
    plain.assert_models(clf, x, [x] * 4, data[0])
    assert clf.personal_params_ == {}


def test_clients_out_of_the_cohort_keep_their_control_variates():
    clf, data = plain.fitted(SCAFFOLDClassifier, join_ratio=0.5, n_rounds=6)
    joins = [clf._fitted_method.joins(np.arange(4), n_round) for n_round in range(6)]
    x = rounds(data, joins, 1.0)
    plain.assert_models(clf, x, [x] * 4, data[0])


def test_one_client_is_fedavg():
    _, (X, y, _) = plain.fitted(SCAFFOLDClassifier)
    ids = ["only"] * len(y)
    ours, same = (
        make(cls, init_params=plain.start()).fit(X, y, groups=ids).decision_function(X)
        for cls in (SCAFFOLDClassifier, FedAvgClassifier)
    )
    np.testing.assert_allclose(ours, same, atol=1e-10)


def test_the_first_round_is_fedavgs_and_the_second_is_not():
    rng = np.random.default_rng(0)
    X, y, groups = rng.normal(size=(15, 4)), np.arange(15) % 3, np.arange(15) // 5

    def gap(n_rounds):
        both = [
            make(cls, n_rounds=n_rounds, init_params=plain.start()).fit(X, y, groups=groups)
            for cls in (SCAFFOLDClassifier, FedAvgClassifier)
        ]
        return np.abs(both[0].decision_function(X) - both[1].decision_function(X)).max()

    assert gap(1) < 1e-12
    assert gap(2) > 1e-3


def test_messages_are_twice_as_long():
    clf, _ = plain.fitted(SCAFFOLDClassifier)
    model = sum(value.nbytes for value in plain.start().values())
    assert set(np.atleast_1d(clf.bytes_down_)) == {4 * (2 * model + 8)}  # first, after 3 rounds
    assert set(np.atleast_1d(clf.bytes_up_)) == {3 * (2 * model + 24)}  # the weight and the loss
