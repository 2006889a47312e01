"""Fixed random feature maps: φ(F R) with Gaussian R and a nonlinear φ."""

import hashlib

import numpy as np
from scipy.special import erf

ACTIVATIONS = {
    "tanh": lambda z: np.tanh(z, out=z),
    "relu": lambda z: np.maximum(z, 0.0, out=z),
    "gelu": lambda z: z * 0.5 * (1.0 + erf(z / np.sqrt(2.0))),
}


def gaussian_projection(n_features, n_components, seed, *key):
    """R of shape (m, q) with entries of variance 1/m, fixed by the seed and the key.

    Parameters
    ----------
    n_features, n_components : int
        m and q.
    seed : int
        >= 0.
    *key : bytes
        Names the stream: the same key draws the same matrix whatever else was drawn before.
    """
    digest = hashlib.sha256(b"\0".join(key)).digest()
    words = np.frombuffer(digest, dtype="<u4").tolist()
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([int(seed), *words])))
    return generator.standard_normal((n_features, n_components)) / np.sqrt(n_features)


def random_features(X, projection, activation):
    """φ(X R) in float64, shape (n, q).

    Parameters
    ----------
    X : ndarray of shape (n, m)
    projection : ndarray of shape (m, q)
    activation : {"tanh", "relu", "gelu"} or callable
        A callable takes and returns an array of shape (n, q).
    """
    apply = activation if callable(activation) else ACTIVATIONS[activation]
    return apply(X.astype(np.float64, copy=False) @ projection)
