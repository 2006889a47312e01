"""FedRoD equals rounds in numpy; without the prior its generic model is FedAvg's."""

import numpy as np
import pytest
from scipy.special import softmax

from skfedhip import FedAvgClassifier, FedRoDClassifier

from . import _plain as plain
from ._data import make

HEAD = "personal_head."


def answers(model, h):
    return sum(h @ model[f"{p}weight"].T + model[f"{p}bias"] for p in ("head.", HEAD))


def trained(model, X, y, gamma):
    """Extractor and generic head by balanced softmax, the personal head by cross-entropy."""
    model, one_hot = dict(model), np.eye(3)
    with np.errstate(divide="ignore"):
        prior = np.log(np.bincount(y, minlength=3) ** gamma)
    for i in range(0, len(y), plain.BATCH):
        rows, target = X[i : i + plain.BATCH], one_hot[y[i : i + plain.BATCH]]
        h = plain.hidden(model, rows)
        balanced = softmax(plain.scores(model, rows) + prior, axis=1)
        error = (balanced - target) / len(rows)
        own = (softmax(answers(model, h), axis=1) - target) / len(rows)
        below = (error @ model["head.weight"]) * (h > 0)
        steps = {"extractor.0.weight": below.T @ rows, "extractor.0.bias": below.sum(0)}
        for prefix, each in (("head.", error), (HEAD, own)):
            steps |= {f"{prefix}weight": each.T @ h, f"{prefix}bias": each.sum(0)}
        for name, step in steps.items():
            model[name] = model[name] - plain.LR * (step + plain.DECAY * model[name])
    return model


@pytest.mark.parametrize("gamma", [1.0, 0.5])
def test_rounds_equal_numpy(gamma):
    clf, data = plain.fitted(FedRoDClassifier, gamma)
    shared = plain.start()
    empty = {name.replace("head.", HEAD): 0 * p for name, p in plain.part(shared, "head.").items()}
    heads = [empty for _ in plain.SIZES]
    for _ in range(3):
        pairs = zip(heads, plain.clients(data), strict=True)
        sent = [trained(shared | head, *rows, gamma) for head, rows in pairs]
        heads = [plain.part(model, HEAD) for model in sent]
        everything = plain.average(sent)
        shared = {name: everything[name] for name in shared}
    names = [*plain.part(shared, "head.")]
    merged = [
        shared | {name: shared[name] + head[f"personal_{name}"] for name in names} for head in heads
    ]
    plain.assert_models(clf, shared, merged, data[0])


def test_without_the_prior_the_generic_model_is_fedavgs():
    clf, (X, _, groups) = plain.fitted(FedRoDClassifier, 0.0)
    fedavg, _ = plain.fitted(FedAvgClassifier)
    np.testing.assert_allclose(clf.decision_function(X), fedavg.decision_function(X), atol=1e-12)
    with_prior, _ = plain.fitted(FedRoDClassifier)
    assert np.abs(with_prior.decision_function(X) - fedavg.decision_function(X)).max() > 1e-3
    personal = clf.decision_function(X, groups=groups)
    assert np.abs(personal - fedavg.decision_function(X)).max() > 1e-3


def test_a_balanced_client_has_no_prior():
    """With as many rows of each class the prior is a constant, which softmax does not see."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 4)), np.arange(12) % 3
    ids = ["only"] * 12
    how = {"init_params": plain.start()}
    clf, fedavg = (
        make(cls, **how).fit(X, y, groups=ids) for cls in (FedRoDClassifier, FedAvgClassifier)
    )
    np.testing.assert_allclose(clf.decision_function(X), fedavg.decision_function(X), atol=1e-12)


def test_a_client_never_met_has_the_generic_model():
    clf, (X, _, _) = plain.fitted(FedRoDClassifier, join_ratio=0.25)
    joined = np.any([clf._fitted_method.joins(np.arange(4), r) for r in range(3)], axis=0)
    assert not joined.all()
    for k in range(4):
        gap = clf.decision_function(X, groups=[k] * len(X)) - clf.decision_function(X)
        assert (np.abs(gap).max() > 1e-3) == joined[k]
