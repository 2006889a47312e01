"""Known rounds, computed by another implementation in float64, as inputs and expected arrays."""

from pathlib import Path

import numpy as np

DATA = Path(__file__).parents[1] / "data"


def load(name):
    with np.load(DATA / name) as file:
        return dict(file)


def rows(case):
    """X, y and groups of all clients."""
    clients = range(int(case["num_clients"]))
    X = np.concatenate([case[f"c{k}_X"] for k in clients])
    y = np.concatenate([case[f"c{k}_y"] for k in clients])
    return X, y, np.repeat(list(clients), case["n_samples"])


def assert_equal(actual, desired):
    np.testing.assert_allclose(actual, desired, rtol=0, atol=1e-9)
