"""FedRep equals rounds in numpy: the head first, then the extractor."""

import numpy as np

from skfedhip import FedPerClassifier, FedRepClassifier

from . import _plain as plain


def test_rounds_equal_numpy():
    clf, data = plain.fitted(FedRepClassifier, 3, local_epochs=2)
    shared, own = plain.start(), [plain.start() for _ in plain.SIZES]
    for _ in range(3):
        extractor = plain.part(shared, "extractor.")
        for k, rows in enumerate(plain.clients(data)):
            model = plain.sgd(own[k] | extractor, *rows, epochs=3, only="head.")
            own[k] = plain.sgd(model, *rows, epochs=2, only="extractor.")
        shared = plain.average(own)
    own = [model | plain.part(shared, "extractor.") for model in own]
    plain.assert_models(clf, shared, own, data[0])


def test_it_is_not_fedper():
    clf, (X, _, groups) = plain.fitted(FedRepClassifier, 1)
    fedper, _ = plain.fitted(FedPerClassifier)
    gap = clf.decision_function(X, groups=groups) - fedper.decision_function(X, groups=groups)
    assert np.abs(gap).max() > 1e-4


def test_a_client_never_met_trains_a_head_for_the_extractor():
    clf, data = plain.fitted(FedRepClassifier, 3, join_ratio=0.25)
    shared = clf.global_params_
    for k in plain.cohorts(clf)[1]:
        start = plain.start() | plain.part(shared, "extractor.")
        model = plain.sgd(start, *plain.clients(data)[k], epochs=3, only="head.")
        scores = clf.decision_function(data[0], groups=[k] * len(data[0]))
        np.testing.assert_allclose(scores, plain.scores(model, data[0]), rtol=0, atol=1e-9)
