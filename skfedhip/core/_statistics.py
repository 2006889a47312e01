"""Sufficient statistics of ridge regression: they add, subtract and do not care in which order."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from ._design import DesignBlock
from ._sized import Sized


@dataclass(frozen=True)
class RidgeStatistics(Sized):
    """Gram matrix and class sums of weighted rows: all that a global ridge needs of a client.

    With rows F (n, m), one-hot labels Y (n, d) and weights w, they are A = Fᵀ diag(w) F and
    B = Fᵀ diag(w) Y. ``a + b`` are the statistics of the rows of both, ``a - b`` those of a's
    rows without b's. With an intercept, A and B are taken about the weighted mean of the rows,
    and sums shift them to the common mean (Chan, Golub & LeVeque, 1983): no digits are lost where
    the mean is large.

    Attributes
    ----------
    triangle : ndarray of shape (m * (m + 1) / 2,)
        Lower triangle of A, packed by columns; A is symmetric. float64.
    cross : ndarray of shape (d, m)
        Bᵀ.
    class_weights : ndarray of shape (d,)
        Sum of weights per class.
    mean : ndarray of shape (m,) or None
        Weighted mean of the rows that A and B are taken about; None without an intercept.
    """

    triangle: np.ndarray
    cross: np.ndarray
    class_weights: np.ndarray
    mean: np.ndarray | None = None

    @classmethod
    def from_design(cls, design: DesignBlock, *, fit_intercept=False):
        """Statistics of all rows of a block; with an intercept, its first column is √w."""
        mean = None
        if fit_intercept:
            root = design.rows[:, 0]
            mean = root @ design.rows[:, 1:] / max(root @ root, np.finfo(float).tiny)
            design = design.centered(mean)
        rows = design.rows[:, int(fit_intercept) :]
        class_weights = design.class_weights.sum(axis=0)
        return cls(_pack(rows.T @ rows), design.targets.T @ rows, class_weights, mean)

    @property
    def gram(self):
        """A, shape (m, m), unpacked anew at each call; symmetric."""
        return _unpack(self.triangle, self.n_features)

    @property
    def mean_eigenvalue(self):
        """Mean of A's eigenvalues, its trace over m."""
        places = np.arange(self.n_features)
        # Column j of the packed lower triangle begins with the j-th diagonal element.
        starts = places * self.n_features - places * (places - 1) // 2
        return float(self.triangle[starts].mean())

    @property
    def n_features(self):
        return self.cross.shape[1]

    @property
    def weight(self):
        """Sum of all weights."""
        return float(self.class_weights.sum())

    def __add__(self, other):
        return self._combine(other, 1.0)

    def __sub__(self, other):
        return self._combine(other, -1.0)

    def _combine(self, other, sign):
        class_weights = self.class_weights + sign * other.class_weights
        triangle = self.triangle + sign * other.triangle
        cross = self.cross + sign * other.cross
        if self.mean is None:
            return RidgeStatistics(triangle, cross, class_weights)
        if not other.weight:
            return self
        if not self.weight and sign > 0:
            return other
        weight = class_weights.sum()
        gap = other.mean - self.mean
        shift = sign * (other.weight / weight) * gap  # new mean - self.mean
        mean = self.mean + shift
        # Σ w (f - mean)(f - mean)ᵀ = A + W δδᵀ for each part, δ its mean's distance from the new.
        scale = sign * self.weight * other.weight / weight
        triangle += _pack(np.outer(scale * gap, gap))
        cross -= np.outer(self.class_weights, shift)
        cross += sign * np.outer(other.class_weights, gap - shift)
        return RidgeStatistics(triangle, cross, class_weights, mean)


def _pack(symmetric):
    return lapack.dtrttp(symmetric.T, uplo="L")[0]  # .T: Fortran order, so no copy


def _unpack(triangle, n):
    full = np.tril(lapack.dtpttr(n, triangle, uplo="L")[0])
    full += np.tril(full, -1).T
    return full
