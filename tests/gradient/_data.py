"""A small federation of unequal clients, and estimators that are quick on it."""

import numpy as np

from skfedhip.gradient import MLP


def small(sizes=(1, 3, 8, 20), n_features=4, n_classes=3, seed=0):
    """X, y and groups; clients have some classes more than others, the first has one row."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    y = (rng.integers(0, n_classes, len(groups)) + (rng.random(len(groups)) < 0.5) * groups) % 3
    X = rng.normal(size=(len(groups), n_features)) + rng.normal(size=(n_classes, n_features))[y]
    return X, y, groups


def make(cls, *args, **params):
    """An estimator in float64 with a small network and a few rounds."""
    defaults = {
        "n_rounds": 3,
        "lr": 0.2,
        "batch_size": 4,
        "weight_decay": 0.01,
        "feature_extractor": MLP((6,)),
        "dtype": "float64",
        "random_state": 0,
        "missing_groups": "global",
    }
    return cls(*args, **{**defaults, **params})
