"""Counts, means and squares of features: what standardising needs, as numbers that add."""

from dataclasses import dataclass

import numpy as np

from ._sized import Sized


@dataclass(frozen=True)
class Moments(Sized):
    """Weight, mean and centred sum of squares of rows; ``a + b`` are those of the rows of both.

    Attributes
    ----------
    weight : ndarray of shape ()
        Sum of weights.
    mean : ndarray of shape (m,)
    squares : ndarray of shape (m,)
        Σ w (f - mean)².
    """

    weight: np.ndarray
    mean: np.ndarray
    squares: np.ndarray

    @classmethod
    def from_rows(cls, rows, weight=None):
        """Moments of rows (n, m), n > 0, accumulated in float64."""
        rows = rows.astype(np.float64, copy=False)
        weight = np.ones(len(rows)) if weight is None else weight
        total = weight.sum()
        mean = weight @ rows / total
        gap = rows - mean
        # The second term takes out what rounding left in the mean.
        squares = weight @ gap**2 - (weight @ gap) ** 2 / total
        return cls(np.asarray(total), mean + weight @ gap / total, np.maximum(squares, 0.0))

    def __add__(self, other):
        weight = self.weight + other.weight
        gap = other.mean - self.mean
        share = other.weight / weight
        squares = self.squares + other.squares + gap**2 * (self.weight * share)
        return Moments(weight, self.mean + gap * share, squares)
