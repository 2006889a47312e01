"""LG-FedAvg equals rounds in numpy, FedAvg for one client, and sends no extractor down."""

import numpy as np

from skfedhip import FedAvgClassifier, LGFedAvgClassifier

from . import _plain as plain
from ._data import make


def rounds(data, cohorts=(range(4),) * 3):
    """The global model, and the clients', after three rounds of those that join."""
    shared, own = plain.start(), [plain.start() for _ in plain.SIZES]
    for cohort in cohorts:
        for k in cohort:
            own[k] = plain.sgd(own[k] | plain.part(shared, "head."), *plain.clients(data)[k])
        shared = plain.average([own[k] for k in cohort], [plain.SIZES[k] for k in cohort])
    return shared, [model | plain.part(shared, "head.") for model in own]


def test_rounds_equal_numpy():
    clf, data = plain.fitted(LGFedAvgClassifier)
    plain.assert_models(clf, *rounds(data), data[0])


def test_a_client_never_met_trains_an_extractor_for_the_head():
    clf, data = plain.fitted(LGFedAvgClassifier, join_ratio=0.25)
    cohorts, never = plain.cohorts(clf)
    shared, own = rounds(data, cohorts)
    for k in never:
        own[k] = plain.sgd(own[k], *plain.clients(data)[k], only="extractor.")
    plain.assert_models(clf, shared, own, data[0])


def test_one_client_is_fedavg():
    _, (X, y, _) = plain.fitted(LGFedAvgClassifier)
    ids = ["only"] * len(y)
    alone, same = (
        make(cls, init_params=plain.start()).fit(X, y, groups=ids)
        for cls in (LGFedAvgClassifier, FedAvgClassifier)
    )
    actual, desired = (clf.decision_function(X, groups=ids) for clf in (alone, same))
    np.testing.assert_allclose(actual, desired, atol=1e-12)


def test_the_head_alone_comes_down():
    clf, _ = plain.fitted(LGFedAvgClassifier)
    head = sum(value.nbytes for value in plain.part(plain.start(), "head.").values())
    assert set(np.atleast_1d(clf.bytes_down_)) == {4 * (head + 8)}  # first, and after 3 rounds
