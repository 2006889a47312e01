"""What clients of a closed-form method send up first: statistics, in one of three forms."""

from dataclasses import dataclass

import numpy as np

from ..core import RidgeFactor, RidgeStatistics
from ..protocol import ClientUpdate


class StatisticsUpdate(ClientUpdate):
    """Statistics of clients' rows in one of two exact forms; either adds to either.

    A client sends the smaller: A and B, or with fewer rows than features their root.
    """

    def __add__(self, other):
        return RidgeUpdate(self.statistics + other.statistics)

    def __sub__(self, other):
        return RidgeUpdate(self.statistics - other.statistics)

    @property
    def form(self):
        """Whichever of the two forms it is in."""
        raise NotImplementedError

    def nbytes_of(self, n_rows):
        """Size of the smaller form for clients of so many rows."""
        m, d = self.form.n_features, len(self.form.class_weights)
        r = np.minimum(n_rows, m)
        shared = d + (0 if self.form.mean is None else m)
        return 8 * (RidgeFactor.size(r, m) + r * d + shared)

    @property
    def max_nbytes(self):
        """Size of A and B."""
        return self.nbytes_of(self.form.n_features)

    def check(self, expected, eps):
        """Check shapes, in either form, and that rows exist that have these statistics."""
        if isinstance(expected, StatisticsUpdate):
            expected = self._in_this_form(expected.form)
        self.check_like(expected)
        self.form.check(eps)


@dataclass(frozen=True)
class RidgeUpdate(StatisticsUpdate):
    """Gram matrix and class sums of clients' rows."""

    statistics: RidgeStatistics

    @property
    def form(self):
        """The statistics."""
        return self.statistics

    def _in_this_form(self, like):
        m, d = like.n_features, len(like.class_weights)
        triangle, cross = np.zeros(m * (m + 1) // 2), np.zeros((d, m))
        return RidgeUpdate(RidgeStatistics(triangle, cross, like.class_weights, like.mean))


@dataclass(frozen=True)
class FactorUpdate(StatisticsUpdate):
    """The root of one client's Gram matrix and class sums."""

    factor: RidgeFactor

    @property
    def statistics(self):
        """Gram matrix and class sums, made anew."""
        return self.factor.statistics

    @property
    def form(self):
        """The root."""
        return self.factor

    def _in_this_form(self, like):
        r, m, d = len(np.atleast_1d(self.factor.targets)), like.n_features, len(like.class_weights)
        if not 0 < r < m:
            raise ValueError(f"a root of {r} rows with {m} features is not the smaller form")
        root, targets = np.zeros(RidgeFactor.size(r, m)), np.zeros((r, d))
        return FactorUpdate(RidgeFactor(root, targets, like.class_weights, like.mean))


@dataclass(frozen=True)
class NoisyUpdate(ClientUpdate):
    """Statistics with noise in them: no rows need exist that have them.

    Attributes
    ----------
    statistics : RidgeStatistics
        Of clipped rows, not about a mean.
    n_draws : ndarray of shape ()
        How many clients' noise is in it.
    """

    statistics: RidgeStatistics
    n_draws: np.ndarray

    def __add__(self, other):
        return NoisyUpdate(self.statistics + other.statistics, self.n_draws + other.n_draws)

    def __sub__(self, other):
        return NoisyUpdate(self.statistics - other.statistics, self.n_draws - other.n_draws)

    def check(self, expected, eps):
        """Check shapes, and that it is one client's."""
        self.check_like(expected)
        if self.n_draws != 1:
            raise ValueError(f"it counts as {self.n_draws} clients")
