"""Ditto equals rounds in numpy; its global model is FedAvg's, and without its term it is alone."""

import numpy as np

from skfedhip import DittoClassifier, FedAvgClassifier

from . import _plain as plain


def test_rounds_equal_numpy():
    clf, data = plain.fitted(DittoClassifier, 0.7, personal_epochs=2)
    model, own = plain.start(), [plain.start() for _ in plain.SIZES]
    for _ in range(3):
        now = model
        own = [
            plain.sgd(v, *rows, epochs=2, extra=lambda name, w, t=now: 0.7 * (w - t[name]))
            for v, rows in zip(own, plain.clients(data), strict=True)
        ]
        model = plain.average([plain.sgd(now, *rows) for rows in plain.clients(data)])
    plain.assert_models(clf, model, own, data[0])


def test_the_global_model_is_fedavgs():
    clf, (X, _, _) = plain.fitted(DittoClassifier)
    fedavg, _ = plain.fitted(FedAvgClassifier)
    np.testing.assert_array_equal(clf.decision_function(X), fedavg.decision_function(X))


def test_without_the_term_clients_are_alone():
    clf, data = plain.fitted(DittoClassifier, 0.0)
    own = [plain.sgd(plain.start(), *rows, epochs=3) for rows in plain.clients(data)]
    for k, model in enumerate(own):
        actual = clf.decision_function(data[0], groups=[k] * len(data[0]))
        np.testing.assert_allclose(actual, plain.scores(model, data[0]), atol=1e-9)


def test_the_default_is_not_alone():
    clf, (X, _, groups) = plain.fitted(DittoClassifier)
    alone, _ = plain.fitted(DittoClassifier, 0.0)
    gap = clf.decision_function(X, groups=groups) - alone.decision_function(X, groups=groups)
    assert np.abs(gap).max() > 1e-4


def test_a_client_starts_from_the_global_model_that_it_meets_first():
    clf, data = plain.fitted(DittoClassifier, 0.7, join_ratio=0.25)
    cohorts, _ = plain.cohorts(clf)
    model, own, rows = plain.start(), {}, plain.clients(data)
    for cohort in cohorts:
        now = model
        for k in cohort:
            v = own.get(k, now)
            own[k] = plain.sgd(v, *rows[k], extra=lambda name, w, t=now: 0.7 * (w - t[name]))
        model = plain.average(
            [plain.sgd(now, *rows[k]) for k in cohort], [len(rows[k][1]) for k in cohort]
        )
    plain.assert_models(clf, model, [own.get(k, model) for k in range(4)], data[0])
