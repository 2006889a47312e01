"""What a closed-form method sends and sums up where a mechanism protects it."""

from functools import reduce
from operator import add

import numpy as np

from ..core import RidgeStatistics
from ._updates import NoisyUpdate, RidgeUpdate


def private_update(method, block):
    """What the block's clients send: statistics of clipped rows, with each client's noise."""
    mechanism, lead = method.privacy, int(method.fit_intercept)
    parts = []
    for design in method.designs(block, method.shared_design):
        rows = mechanism.clip(design.rows[:, lead:])
        weights = design.class_weights.sum(axis=0)
        parts.append(RidgeStatistics.from_root(rows, design.targets, weights))
    total = reduce(add, parts)
    if mechanism.where == "server":
        return RidgeUpdate(total)
    clients = block.client_ids.tolist()
    for client in clients:
        total = total + _noise(mechanism, total, client)
    return NoisyUpdate(total, np.asarray(float(len(clients))))


def private_sums(method, total):
    """Statistics that anybody may see, repaired, and about their mean where there is one."""
    mechanism, statistics, n_draws = method.privacy, total.statistics, 1
    if mechanism.where == "server":
        statistics = statistics + _noise(mechanism, statistics, "server")
    else:
        n_draws = int(total.n_draws)
    if method.fit_intercept:
        statistics = _about_mean(statistics)
    return mechanism.repaired(statistics, n_draws)


def _noise(mechanism, like, owner):
    return mechanism.noise(like.n_features, len(like.class_weights), owner)


def _about_mean(statistics):
    """Centre noisy sums by the mean that they give."""
    counts = np.maximum(statistics.class_weights, 0.0)
    weight = max(counts.sum(), 1.0)
    mean = statistics.cross.sum(axis=0) / weight
    gram = statistics.gram - weight * np.outer(mean, mean)
    cross = statistics.cross - np.outer(counts, mean)
    return RidgeStatistics.from_gram(gram, cross, counts, mean)
