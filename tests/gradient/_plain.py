"""Federated rounds of a small network in numpy, client after client and step after step.

A model is a dict of "extractor.0.*" and "head.*", as the estimators name them. Rows are taken in
stored order.
"""

import numpy as np
from scipy.special import softmax

from skfedhip.gradient import MLP

from ._data import make, small

SIZES = (1, 3, 8, 20)
LR, DECAY, BATCH = 0.2, 0.01, 4  # what ``make`` gives the estimators


def start(seed=0):
    """Initial parameters: 4 features, 6 hidden units, 3 classes."""
    rng = np.random.default_rng(seed)
    shapes = {"extractor.0.weight": (6, 4), "extractor.0.bias": (6,)}
    shapes |= {"head.weight": (3, 6), "head.bias": (3,)}
    return {name: rng.normal(size=shape) / 2 for name, shape in shapes.items()}


def fitted(cls, *args, **params):
    """An estimator on the small federation in stored order, and the federation."""
    X, y, groups = small(SIZES)
    init = {**start(), **params.pop("init_params", {})}
    how = {"shuffle": False, "init_params": init, "feature_extractor": MLP((6,))}
    return make(cls, *args, **how, **params).fit(X, y, groups=groups), (X, y, groups)


def scores(model, X):
    return hidden(model, X) @ model["head.weight"].T + model["head.bias"]


def hidden(model, X):
    return np.maximum(X @ model["extractor.0.weight"].T + model["extractor.0.bias"], 0)


def gradient(model, X, y):
    """Of the mean cross-entropy, by name."""
    h = hidden(model, X)
    error = (softmax(scores(model, X), axis=1) - np.eye(3)[y]) / len(y)
    below = (error @ model["head.weight"]) * (h > 0)
    return {
        "extractor.0.weight": below.T @ X,
        "extractor.0.bias": below.sum(0),
        "head.weight": error.T @ h,
        "head.bias": error.sum(0),
    }


def sgd(model, X, y, *, epochs=1, extra=lambda name, value: 0.0, only=""):
    """A trained copy; ``extra`` gives a term of the gradient from a parameter's name and value."""
    model = dict(model)
    for _ in range(epochs):
        for i in range(0, len(y), BATCH):
            grads = gradient(model, X[i : i + BATCH], y[i : i + BATCH])
            for name, grad in grads.items():
                if name.startswith(only):
                    step = grad + DECAY * model[name] + extra(name, model[name])
                    model[name] = model[name] - LR * step
    return model


def average(models, weights=SIZES):
    return {
        name: np.average([model[name] for model in models], axis=0, weights=weights)
        for name in models[0]
    }


def clients(data):
    """(X, y) of each client."""
    X, y, groups = data
    return [(X[groups == k], y[groups == k]) for k in range(len(SIZES))]


def part(model, prefix):
    return {name: value for name, value in model.items() if name.startswith(prefix)}


def cohorts(clf):
    """The clients of each of three rounds, and those of none."""
    joins = np.array([clf._fitted_method.joins(np.arange(len(SIZES)), n) for n in range(3)])
    never = np.flatnonzero(~joins.any(axis=0))
    assert len(never) > 0
    return [np.flatnonzero(row) for row in joins], never


def assert_models(clf, shared, own, X):
    """The estimator scores rows by the global model and by each client's, as these do."""
    for client, model in [(None, shared), *enumerate(own)]:
        actual = clf.decision_function(X, groups=[client] * len(X))
        np.testing.assert_allclose(actual, scores(model, X), rtol=0, atol=1e-9)
