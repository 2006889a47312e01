"""FedAvg equals rounds in numpy, centralized SGD for one client, and its fine-tuning."""

import numpy as np
import pytest

from skfedhip import FedAvgClassifier

from . import _plain as plain
from ._data import make, small


@pytest.mark.parametrize("fine_tune_epochs", [0, 2])
def test_rounds_equal_numpy(fine_tune_epochs):
    clf, data = plain.fitted(FedAvgClassifier, fine_tune_epochs, local_epochs=2)
    model = plain.start()
    for _ in range(3):
        model = plain.average([plain.sgd(model, *own, epochs=2) for own in plain.clients(data)])
    own = [plain.sgd(model, *own, epochs=fine_tune_epochs) for own in plain.clients(data)]
    plain.assert_models(clf, model, own, data[0])
    assert bool(clf.personal_params_) == bool(fine_tune_epochs)


def test_one_client_is_centralized():
    X, y, _ = small(plain.SIZES)
    how = {"shuffle": False, "init_params": plain.start(), "n_rounds": 2, "local_epochs": 3}
    clf = make(FedAvgClassifier, **how).fit(X, y, groups=["only"] * len(y))
    model = plain.sgd(plain.start(), X, y, epochs=6)
    np.testing.assert_allclose(clf.decision_function(X), plain.scores(model, X), atol=1e-9)


def test_rows_that_do_not_fill_a_batch_can_be_left_out():
    """Batches of 4 take all of 8 and 20 rows, 1 and 3 whole, being too few for one, and 4 of 7."""
    clf, (X, y, groups) = plain.fitted(FedAvgClassifier, drop_last=True, n_rounds=1)
    whole, _ = plain.fitted(FedAvgClassifier, n_rounds=1)
    np.testing.assert_array_equal(clf.decision_function(X), whole.decision_function(X))
    of_seven = np.flatnonzero(groups == 3)[-7:]
    assert set(y[of_seven]) == {0, 1, 2}
    how = {"shuffle": False, "init_params": plain.start(), "n_rounds": 1, "drop_last": True}
    clf = make(FedAvgClassifier, **how).fit(X[of_seven], y[of_seven], groups=[0] * 7)
    model = plain.sgd(plain.start(), X[of_seven[:4]], y[of_seven[:4]])
    np.testing.assert_allclose(clf.decision_function(X), plain.scores(model, X), atol=1e-9)


@pytest.mark.parametrize("ratio", [0.5, (0.25, 0.75), (0.0, 0.01)])
def test_cohorts_alone_are_averaged(ratio):
    clf, data = plain.fitted(FedAvgClassifier, join_ratio=ratio, n_rounds=6)
    model, sizes = plain.start(), set()
    for n_round in range(6):
        joins = clf._fitted_method.joins(np.arange(4), n_round)
        sizes.add(int(joins.sum()))
        cohort = [own for own, joined in zip(plain.clients(data), joins, strict=True) if joined]
        weights = [len(y) for _, y in cohort]
        model = plain.average([plain.sgd(model, *own) for own in cohort], weights)
    plain.assert_models(clf, model, [model] * 4, data[0])
    low, high = ratio if isinstance(ratio, tuple) else (ratio, ratio)
    assert min(sizes) >= max(1, 4 * low)
    assert max(sizes) <= max(1, 4 * high)
    assert len(sizes) > 1 or high - low < 0.1
