"""FedProx equals rounds in numpy, and FedAvg where its term weighs nothing."""

import numpy as np

from skfedhip import FedAvgClassifier, FedProxClassifier

from . import _plain as plain


def test_rounds_equal_numpy():
    clf, data = plain.fitted(FedProxClassifier, 0.7, local_epochs=2)
    model = plain.start()
    for _ in range(3):
        now = model
        model = plain.average(
            [
                plain.sgd(now, *own, epochs=2, extra=lambda name, w, t=now: 0.7 * (w - t[name]))
                for own in plain.clients(data)
            ]
        )
    plain.assert_models(clf, model, [model] * 4, data[0])


def test_without_the_term_it_is_fedavg():
    clf, (X, _, _) = plain.fitted(FedProxClassifier, 0.0)
    fedavg, _ = plain.fitted(FedAvgClassifier)
    np.testing.assert_array_equal(clf.decision_function(X), fedavg.decision_function(X))


def test_the_default_is_not_fedavg():
    clf, (X, _, _) = plain.fitted(FedProxClassifier)
    fedavg, _ = plain.fitted(FedAvgClassifier)
    assert np.abs(clf.decision_function(X) - fedavg.decision_function(X)).max() > 1e-4


def test_a_strong_term_holds_clients_back():
    def moved(mu):
        clf, _ = plain.fitted(FedProxClassifier, mu, n_rounds=1, weight_decay=0.0)
        gaps = [value - plain.start()[name] for name, value in clf.global_params_.items()]
        return sum((gap**2).sum() for gap in gaps)

    assert moved(4.0) < moved(1.0) < moved(0.0)
