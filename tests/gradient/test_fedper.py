"""FedPer equals rounds in numpy, and FedAvg for one client."""

import numpy as np

from skfedhip import FedAvgClassifier, FedPerClassifier

from . import _plain as plain
from ._data import make


def test_rounds_equal_numpy():
    clf, data = plain.fitted(FedPerClassifier, local_epochs=2)
    shared, own = plain.start(), [plain.start() for _ in plain.SIZES]
    for _ in range(3):
        extractor = plain.part(shared, "extractor.")
        own = [
            plain.sgd(model | extractor, *rows, epochs=2)
            for model, rows in zip(own, plain.clients(data), strict=True)
        ]
        shared = plain.average(own)
    own = [model | plain.part(shared, "extractor.") for model in own]
    plain.assert_models(clf, shared, own, data[0])


def test_one_client_is_fedavg():
    _, (X, y, _) = plain.fitted(FedPerClassifier)
    alone, same = (
        make(cls, init_params=plain.start()).fit(X, y, groups=["only"] * len(y))
        for cls in (FedPerClassifier, FedAvgClassifier)
    )
    for ids in (["only"] * len(y), [None] * len(y)):
        actual, desired = (c.decision_function(X, groups=ids) for c in (alone, same))
        np.testing.assert_allclose(actual, desired, atol=1e-12)


def test_heads_do_not_come_down():
    clf, _ = plain.fitted(FedPerClassifier)
    fedavg, _ = plain.fitted(FedAvgClassifier)
    head = sum(value.nbytes for value in plain.part(plain.start(), "head.").values())
    # At the start, and after 3 rounds.
    assert set((fedavg.bytes_down_ - clf.bytes_down_).tolist()) == {4 * head}
    np.testing.assert_array_equal(clf.bytes_up_, fedavg.bytes_up_)


def test_a_client_never_met_trains_a_head_for_the_extractor():
    clf, data = plain.fitted(FedPerClassifier, join_ratio=0.25)
    shared = clf.global_params_
    for k in plain.cohorts(clf)[1]:
        start = plain.start() | plain.part(shared, "extractor.")
        model = plain.sgd(start, *plain.clients(data)[k], epochs=1, only="head.")
        scores = clf.decision_function(data[0], groups=[k] * len(data[0]))
        np.testing.assert_allclose(scores, plain.scores(model, data[0]), rtol=0, atol=1e-9)
