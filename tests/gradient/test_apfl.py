"""APFL equals rounds in numpy; at the ends of its mixture it is FedAvg, and training alone."""

import numpy as np
import pytest

from skfedhip import APFLClassifier

from . import _plain as plain

ALIKE = [1, 1, 1, 1]


def mixed(w, v, alpha):
    return {name: alpha * v[name] + (1 - alpha) * w[name] for name in w}


def local(w, v, alpha, X, y, adaptive):
    """w, v and α of a client after a round."""
    for i in range(0, len(y), plain.BATCH):
        X_i, y_i = X[i : i + plain.BATCH], y[i : i + plain.BATCH]
        to_w, to_mix = (plain.gradient(m, X_i, y_i) for m in (w, mixed(w, v, alpha)))
        slope = sum(((v[name] - w[name]) * grad).sum() for name, grad in to_mix.items())
        w = {n: p - plain.LR * (to_w[n] + plain.DECAY * p) for n, p in w.items()}
        v = {n: p - plain.LR * (alpha * to_mix[n] + plain.DECAY * p) for n, p in v.items()}
        if adaptive:
            alpha = np.clip(alpha - plain.LR * slope, 0, 1)
    return w, v, alpha


def rounds(data, alpha, adaptive):
    w, rows = plain.start(), plain.clients(data)
    own = [(plain.start(), alpha) for _ in rows]
    for _ in range(3):
        pairs = zip(own, rows, strict=True)
        done = [local(w, v, a, *each, adaptive) for (v, a), each in pairs]
        w, own = plain.average([each[0] for each in done], ALIKE), [each[1:] for each in done]
    return w, own


@pytest.mark.parametrize(("alpha", "adaptive"), [(0.5, True), (0.98, True), (0.3, False)])
def test_rounds_equal_numpy(alpha, adaptive):
    clf, data = plain.fitted(APFLClassifier, alpha, adaptive=adaptive)
    w, own = rounds(data, alpha, adaptive)
    plain.assert_models(clf, w, [mixed(w, *each) for each in own], data[0])
    np.testing.assert_allclose(clf.alpha_, [each[1] for each in own], atol=1e-12)
    assert np.all(np.abs(clf.alpha_ - alpha) > 1e-3) == adaptive
    assert (clf.alpha_.max() == 1.0) == (alpha == 0.98)  # where the bound is met


def test_nothing_of_ones_own_is_the_global_model():
    clf, data = plain.fitted(APFLClassifier, 0.0, adaptive=False)
    w = plain.start()
    for _ in range(3):
        w = plain.average([plain.sgd(w, *own) for own in plain.clients(data)], ALIKE)
    plain.assert_models(clf, w, [w] * 4, data[0])


def test_nothing_of_the_global_model_is_training_alone():
    clf, data = plain.fitted(APFLClassifier, 1.0, adaptive=False)
    own = [plain.sgd(plain.start(), *rows, epochs=3) for rows in plain.clients(data)]
    plain.assert_models(clf, clf.global_params_, own, data[0])


def test_a_client_never_met_has_the_global_model():
    clf, (X, _, _) = plain.fitted(APFLClassifier, join_ratio=0.25)
    joined = np.any([clf._fitted_method.joins(np.arange(4), r) for r in range(3)], axis=0)
    assert not joined.all()
    for k in range(4):
        gap = clf.decision_function(X, groups=[k] * len(X)) - clf.decision_function(X)
        assert (np.abs(gap).max() > 1e-6) == joined[k]
