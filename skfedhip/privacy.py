"""Noise for what leaves a client, calibrated to a stated (epsilon, delta)."""

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from numbers import Integral, Real

import numpy as np

from .core import RidgeStatistics
from .utils._ids import id_bytes

__all__ = ["GaussianMechanism"]

# How the budget is divided: these squares add up to one. Counts are large numbers, so that much
# noise does them little harm.
_SHARES = {"gram": np.sqrt(0.49), "cross": np.sqrt(0.49), "counts": np.sqrt(0.02)}


@dataclass(frozen=True)
class GaussianMechanism:
    """Gaussian noise on the statistics of a closed-form classifier.

    Every feature row is scaled down to norm ``clip_norm`` where it is longer. One row then moves
    the Gram matrix by at most clip_norm², the class sums by clip_norm and the class counts by 1;
    noise is added to all three in proportion, once. What is released is (epsilon, delta)
    differentially private for every single row of every client: it hides whether the row was
    there at all. The noise is found by ``dp_accounting``.

    Parameters
    ----------
    epsilon : float
        Privacy loss, > 0; smaller hides more.
    delta : float
        Chance, 0 < delta < 1, with which the loss may be larger; choose it well below one over
        the number of rows.
    clip_norm : float, default=1.0
        Largest norm of a row that statistics are made of, > 0. Choose it without looking at the
        rows: scale them to norm 1 and leave it at 1.
    where : {"client", "server"}, default="client"
        Who adds the noise. At each client nobody else need be trusted, but the noise adds up; at a
        server that all trust it is added once to the sum, and what clients send it is bare.
    random_state : int or None, default=None
        None draws noise that nobody knows. An int makes it repeat, in tests and tables: whoever
        knows it can take the noise off again.

    Notes
    -----
    Not covered: which clients take part; all rows of a client together (k rows of one client are
    covered by about k times epsilon); personal models, which are made of the client's own exact
    rows and stay with it, so don't publish them; parameters that were chosen by looking at the
    rows; attacks on the low-order bits of floating-point noise; fits repeated on the same rows,
    of which each spends (epsilon, delta) anew. Weights of rows and classes are refused.

    References
    ----------
    Balle & Wang, "Improving the Gaussian Mechanism for Differential Privacy: Analytical
    Calibration and Optimal Denoising", ICML 2018.

    Examples
    --------
    >>> from sklearn.preprocessing import normalize
    >>> from skfedhip import FedHiPClassifier
    >>> from skfedhip.datasets import make_federated_classification
    >>> from skfedhip.privacy import GaussianMechanism
    >>> X, y, groups = make_federated_classification(random_state=0)
    >>> mechanism = GaussianMechanism(epsilon=3.0, delta=1e-5)
    >>> round(mechanism.noise_multiplier, 3)
    1.391
    >>> clf = FedHiPClassifier(privacy=mechanism).fit(normalize(X), y, groups=groups)
    """

    epsilon: float
    delta: float
    clip_norm: float = 1.0
    where: str = "client"
    random_state: int | None = None

    def __post_init__(self):
        # Of the last, the square is what a row moves.
        bounds = {"epsilon": (0, np.inf), "delta": (0, 1), "clip_norm": (1e-150, 1e150)}
        for name, (lower, upper) in bounds.items():
            value = getattr(self, name)
            if not isinstance(value, Real) or not lower < value < upper:
                raise ValueError(
                    f"{name} must be a number between {lower:g} and {upper:g}, got {value!r}."
                )
        if self.where not in ("client", "server"):
            raise ValueError(f"where must be 'client' or 'server', got {self.where!r}.")
        seed = 0 if self.random_state is None else self.random_state
        if not isinstance(seed, Integral) or seed < 0:
            raise ValueError(
                f"random_state must be an int >= 0 or None, got {self.random_state!r}."
            )

    @cached_property
    def noise_multiplier(self):
        """Standard deviation of the noise for what one row moves by at most 1."""
        try:
            import dp_accounting
        except ImportError as error:
            raise ImportError(
                "GaussianMechanism is calibrated by dp-accounting; pip install 'skfedhip[privacy]'."
            ) from error
        return dp_accounting.get_sigma_gaussian(self.epsilon, self.delta)

    @property
    def scales(self):
        """Standard deviations of the noise of one Gram entry, class sum and count."""
        moves = {"gram": self.clip_norm**2, "cross": self.clip_norm, "counts": 1.0}
        return {name: self.noise_multiplier * moves[name] / _SHARES[name] for name in moves}

    def clip(self, rows):
        """Scale rows down to ``clip_norm`` where they are longer.

        Parameters
        ----------
        rows : ndarray of shape (n, m)
            Feature rows.

        Returns
        -------
        ndarray of shape (n, m)
            Rows of norm ``clip_norm`` at most.
        """
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        return rows * np.minimum(1.0, self.clip_norm / np.maximum(norms, self.clip_norm / 2))

    def noise(self, n_features, n_classes, owner):
        """One draw of the noise, as RidgeStatistics to be added.

        Parameters
        ----------
        n_features, n_classes : int
            The sizes m and d of the statistics.
        owner : hashable
            Whose noise it is: with a ``random_state``, the same owner draws the same again.

        Returns
        -------
        RidgeStatistics
            The noise of a Gram matrix, class sums and counts.
        """
        scales, rng = self.scales, self._generator(owner)
        return RidgeStatistics(
            scales["gram"] * rng.standard_normal(n_features * (n_features + 1) // 2),
            scales["cross"] * rng.standard_normal((n_classes, n_features)),
            scales["counts"] * rng.standard_normal(n_classes),
        )

    def repaired(self, statistics, n_draws):
        """Noisy sums as something that rows could have given, at no cost to privacy.

        Negative counts become 0, and eigenvalues of the Gram matrix below the noise's own size,
        ``sqrt(n_draws * m)`` times that of an entry, are raised to it.

        Parameters
        ----------
        statistics : RidgeStatistics
            Not about a mean, or about the noisy one.
        n_draws : int
            How many draws of noise are in it.

        Returns
        -------
        RidgeStatistics
            Statistics with a positive definite Gram matrix and counts >= 0.
        """
        values, vectors = np.linalg.eigh(statistics.gram)
        floor = self.scales["gram"] * np.sqrt(n_draws * len(values))
        gram = (vectors * np.maximum(values, floor)) @ vectors.T
        counts = np.maximum(statistics.class_weights, 0.0)
        return RidgeStatistics.from_gram(gram, statistics.cross, counts, statistics.mean)

    def _generator(self, owner):
        if self.random_state is None:
            return np.random.default_rng()
        words = np.frombuffer(sha256(id_bytes(owner)).digest(), dtype="<u4").tolist()
        return np.random.default_rng([int(self.random_state), *words])
