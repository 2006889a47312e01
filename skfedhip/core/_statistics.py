"""Sufficient statistics of ridge regression: they add, subtract and do not care in which order."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import blas, lapack

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
        rows, mean = _centered_rows(design, fit_intercept)
        return cls.from_root(rows, design.targets, design.class_weights.sum(axis=0), mean)

    @classmethod
    def from_gram(cls, gram, cross, class_weights, mean=None):
        """Statistics whose Gram matrix (m, m) is at hand."""
        return cls(_pack(gram), cross, class_weights, mean)

    @classmethod
    def from_root(cls, rows, targets, class_weights, mean=None):
        """Statistics of anything that has the Gram matrix and class sums of the rows."""
        return cls.from_gram(rows.T @ rows, targets.T @ rows, class_weights, mean)

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

    def check(self, eps):
        """Raise ValueError unless rows exist that have these statistics, to rounding.

        The rows' scatter within classes, A less what the class means account for, must be positive
        semidefinite: then so is A, and no class sum is too large for its weight. Cholesky decides,
        after a shift of m·eps·trace(A), ``eps`` the precision of the numbers.
        """
        if (self.class_weights < 0).any() or not self.weight > 0:
            raise ValueError("the class weights are not those of any rows")
        present = self.class_weights > 0
        if self.cross[~present].any():
            raise ValueError("a class without rows has a sum of rows")
        trace = self.mean_eigenvalue * self.n_features
        _check_centered(self.cross.sum(axis=0), self, trace, eps)
        shift = self.n_features * eps * trace + np.finfo(float).tiny
        means = self.cross[present] / np.sqrt(self.class_weights[present])[:, None]
        scatter = self.gram
        scatter -= means.T @ means
        np.einsum("ii->i", scatter)[...] += shift
        if not np.isfinite(shift) or lapack.dpotrf(scatter.T, lower=1, overwrite_a=1)[1]:
            raise ValueError(
                "the Gram matrix is not positive semidefinite, or the class sums are too large for "
                "it"
            )

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


@dataclass(frozen=True)
class RidgeFactor:
    """The statistics of fewer rows than features as their root: R and QᵀY of √w F = QR.

    Where r rows have m > r features, these are fewer numbers than A and B, which follow exactly:
    A = RᵀR, B = Rᵀ(QᵀY). The rows stay unknown up to a rotation among them; R of a single row is
    that row, up to its sign.

    Attributes
    ----------
    root : ndarray of shape (r * m - r * (r - 1) / 2,)
        Upper trapezoid of R, packed by rows.
    targets : ndarray of shape (r, d)
        QᵀY, Y one-hot times √w.
    class_weights : ndarray of shape (d,)
        Sum of weights per class.
    mean : ndarray of shape (m,) or None
        Weighted mean that the rows are taken about; None without an intercept.
    """

    root: np.ndarray
    targets: np.ndarray
    class_weights: np.ndarray
    mean: np.ndarray | None = None

    @classmethod
    def from_design(cls, design: DesignBlock, *, fit_intercept=False):
        """Root of all rows of a block; with an intercept, its first column is √w."""
        rows, mean = _centered_rows(design, fit_intercept)
        q, root = np.linalg.qr(rows)
        class_weights = design.class_weights.sum(axis=0)
        return cls(root[_trapezoid(*root.shape)], (design.targets.T @ q).T, class_weights, mean)

    @staticmethod
    def size(n_rows, n_features):
        """Numbers in the root of so many rows."""
        return n_rows * n_features - n_rows * (n_rows - 1) // 2

    @property
    def n_features(self):
        r = len(self.targets)
        return (len(self.root) + r * (r - 1) // 2) // max(r, 1)

    @property
    def rows(self):
        """R, shape (r, m)."""
        rows = np.zeros((len(self.targets), self.n_features))
        rows[_trapezoid(*rows.shape)] = self.root
        return rows

    @property
    def weight(self):
        """Sum of all weights."""
        return float(self.class_weights.sum())

    @cached_property
    def statistics(self):
        """A and B, as RidgeStatistics."""
        rows = self.rows
        # Half of what numpy does, which fills in the other triangle too: a server does this a lot.
        triangle = lapack.dtrttp(blas.dsyrk(1.0, rows.T, lower=1), uplo="L")[0]
        return RidgeStatistics(triangle, self.targets.T @ rows, self.class_weights, self.mean)

    def check(self, eps):
        """Raise ValueError unless rows exist that have this root, to rounding.

        A = RᵀR can't but be positive semidefinite, so only the weights are left to check: those of
        the classes are the squares of QᵀY, whose columns are orthogonal as those of Y are.
        """
        gap = self.targets.T @ self.targets - np.diag(self.class_weights)
        bound = 64 * max(len(self.targets), 8) * eps * self.weight
        if (self.class_weights < 0).any() or not self.weight > 0:
            raise ValueError("the class weights are not those of any rows")
        if not np.abs(gap).max() <= bound:
            raise ValueError("the class weights do not add up to the targets")
        trace = self.root @ self.root
        if not np.isfinite(trace):
            raise ValueError("the Gram matrix overflows")
        if self.mean is not None:
            _check_centered(self.targets.sum(axis=1) @ self.rows, self, trace, eps)


def _check_centered(total, statistics, trace, eps):
    """With an intercept the rows are taken about their mean, so their sum (m,) is zero."""
    if statistics.mean is None:
        return
    weight = statistics.weight
    size = np.sqrt(trace * weight) + np.linalg.norm(statistics.mean) * weight
    if not np.linalg.norm(total) <= 64 * len(total) * eps * size:
        raise ValueError("the class sums about the mean do not add up to zero")


def _centered_rows(design, fit_intercept):
    """Rows (n, m) about their weighted mean, and that; with an intercept, column 0 is √w."""
    if not fit_intercept:
        return design.rows, None
    root = design.rows[:, 0]
    mean = root @ design.rows[:, 1:] / max(root @ root, np.finfo(float).tiny)
    return design.centered(mean).rows[:, 1:], mean


def _trapezoid(n_rows, n_columns):
    """Where the upper trapezoid of a matrix is."""
    return ~np.tri(n_rows, n_columns, -1, dtype=bool)


def _pack(symmetric):
    return lapack.dtrttp(symmetric.T, uplo="L")[0]  # .T: Fortran order, so no copy


def _unpack(triangle, n):
    full = np.tril(lapack.dtpttr(n, triangle, uplo="L")[0])
    full += np.tril(full, -1).T
    return full
