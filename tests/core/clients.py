"""Rows of clients of very unequal sizes, and a DesignBlock made of them."""

from itertools import pairwise

import numpy as np

from skfedhip.core import DesignBlock

COUNTS = [0, 1, 2, 3, 0, 64, 65, 1, 7, 200, 8, 9, 10, 0]
"""Rows a client: none, one, around the bound below which clients are solved in batches, more."""


def offsets_of(counts):
    return np.concatenate([[0], np.cumsum(counts)])


def runs(offsets):
    """One slice a client."""
    return [slice(start, stop) for start, stop in pairwise(offsets)]


def random_design(counts, n_features, n_classes=3, seed=0, *, fit_intercept=False, offset=0.0):
    """Weighted rows √w·[1 | f] and targets √w·y of clients 0, 10, 20..."""
    rng = np.random.default_rng(seed)
    offsets, n = offsets_of(counts), sum(counts)
    root = np.sqrt(rng.uniform(0.2, 2.0, n))[:, None]
    rows = np.hstack([np.ones((n, int(fit_intercept))), rng.normal(offset, 1, (n, n_features))])
    targets = root * np.eye(n_classes)[rng.integers(0, n_classes, n)]
    class_weights = [(root[own] * targets[own]).sum(axis=0) for own in runs(offsets)]
    ids = 10 * np.arange(len(counts))
    return DesignBlock(root * rows, targets, np.array(class_weights), ids, offsets)
