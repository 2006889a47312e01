"""Exact leave-one-out scores for a whole grid, from one eigendecomposition of A.

For FedHiP; the global ridge is alpha = 0.

With A = QΛQᵀ, every β only rescales the rotated rows Z_k = F_k Q: the kernel of client k is
H_k(β) = Z_k (Λ + βI)⁻¹ Z_kᵀ. With its eigenvectors U and eigenvalues D, every α is a few products:

    residuals   Y_k - F_k P_k = R - U [αD / (1 + αD)] Uᵀ R,        R = Y_k - F_k G(β),
    leverage    h = (1 + α) diag(U [D / (1 + αD)] Uᵀ),
    complement  1 - h = diag(U [(1 - D) / (1 + αD)] Uᵀ), which keeps its digits where h nears 1,

and a row that is left out, once globally and α times locally, is missed by residual / (1 - h).
Arrays may be stacks of clients: a leading axis in front of the shapes given.
"""

from dataclasses import dataclass

import numpy as np

from ..utils._threads import few_blas_threads
from ._sized import Sized

_EIGH = 5
"""Multiplications of an eigendecomposition, beside the cube of its size."""

_CERTAIN = 1e-10  # 1 - leverage below which, by subtraction, it is rounding


@dataclass(frozen=True)
class Rotation(Sized):
    """The federation's sums in the eigenbasis of its Gram matrix.

    Attributes
    ----------
    vectors : ndarray of shape (p, r)
        Q on the range of A; with an intercept, its column and row come first.
    values : ndarray of shape (r,)
        Λ, the sum of weights first where there is an intercept.
    cross : ndarray of shape (d, r)
        Class sums, rotated.
    lead : int
        1 with an intercept, which no penalty touches.
    """

    vectors: np.ndarray
    values: np.ndarray
    cross: np.ndarray
    lead: int

    @classmethod
    def from_statistics(cls, statistics):
        """Rotate RidgeStatistics; directions in which A is zero to rounding are left out."""
        with few_blas_threads(_EIGH * len(statistics.gram) ** 3):
            values, vectors = np.linalg.eigh(statistics.gram)
        kept = values > len(values) * np.finfo(float).eps * max(values[-1], 0.0)
        values, vectors = values[kept], vectors[:, kept]
        cross = statistics.cross @ vectors
        if statistics.mean is None:
            return cls(vectors, values, cross, 0)
        bordered = np.zeros((len(vectors) + 1, len(values) + 1))
        bordered[0, 0] = 1.0
        bordered[1:, 1:] = vectors
        values = np.concatenate([[statistics.weight], values])
        cross = np.column_stack([statistics.class_weights, cross])
        return cls(bordered, values, cross, 1)

    def gains(self, penalty):
        """1 / (Λ + penalty), shape (r,)."""
        penalized = self.values.copy()
        penalized[self.lead :] += penalty
        return 1 / penalized

    def coef(self, penalty):
        """Rotated global model, shape (d, r)."""
        return self.cross * self.gains(penalty)


def kernel_spectrum(rows):
    """Eigenvectors U (n, q) and eigenvalues D (q,) of rows rowsᵀ, by the smaller system.

    Parameters
    ----------
    rows : ndarray of shape (n, r)
    """
    n, r = rows.shape[-2:]
    transposed = rows.swapaxes(-1, -2)
    kernel = rows @ transposed if n <= r else transposed @ rows
    with few_blas_threads(_EIGH * min(n, r) ** 3):
        values, vectors = np.linalg.eigh(kernel)
    if values.shape[-1]:
        floor = min(n, r) * np.finfo(float).eps * values[..., -1:]
        values = np.where(values > floor, values, 0.0)
    if n <= r:
        return vectors, values
    scale = np.divide(1.0, np.sqrt(values), out=np.zeros_like(values), where=values > 0)
    return (rows @ vectors) * scale[..., None, :], values


def leave_one_out_errors(spectrum, projected, residuals, alphas, drop=None):
    """How far each row is missed by the model that never saw it, for every α.

    Parameters
    ----------
    spectrum : tuple of ndarray
        U (n, q), of these rows, and D (q,) of the client's kernel.
    projected : ndarray of shape (q, d)
        Uᵀ R of all rows of the client.
    residuals : ndarray of shape (n, d)
        R, weighted targets less the global model's.
    alphas : ndarray of shape (a,)
    drop : ndarray of shape (n,), default=None
        How much of each row is left out; all of it by default.

    Returns
    -------
    ndarray of shape (a, n, d)
    """
    vectors, values = spectrum
    squares = vectors * vectors
    outside = complement(squares.sum(axis=-1))[..., None, :]  # of a thin U
    values, alphas = values[..., None, :], alphas[:, None]
    shrink = 1 / (1 + alphas * values)  # (a, q)
    correction = (alphas * values * shrink)[..., None] * projected[..., None, :, :]
    missed = residuals[..., None, :, :] - vectors[..., None, :, :] @ correction
    left = (complement(values) * shrink) @ squares.swapaxes(-1, -2) + outside  # (a, n)
    return left_out(missed, left, None if drop is None else drop[..., None, :])


def left_out(residuals, left, drop=None):
    """Residuals (..., n, d) of rows that are left out, in place.

    Parameters
    ----------
    residuals : ndarray of shape (..., n, d)
        With the rows in.
    left : ndarray of shape (..., n)
        1 - leverage. Where it is 0, a row alone decides its own fit and nothing is known of it
        without itself: it is NaN here, and :func:`scores_from_errors` gives it scores of 0.
    drop : ndarray of shape (..., n), default=None
        How much of each row is left out; all of it by default.
    """
    if drop is not None:
        left = (1 - drop) + drop * left
    residuals /= np.where(left > 0, left, np.nan)[..., None]
    return residuals


def complement(leverage):
    """1 - leverage, 0 where that is rounding."""
    left = 1 - leverage
    return np.where(left > _CERTAIN, left, 0.0)


def held_out_errors(spectrum, projected, kernel, residuals, alphas):
    """How far rows that took no part are missed, for every α: (a, n_out, d).

    Parameters
    ----------
    spectrum : tuple of ndarray
        U (n, q) and D (q,) of the kernel of the client's training rows.
    projected : ndarray of shape (q, d)
        Uᵀ R of the training rows.
    kernel : ndarray of shape (n_out, n)
        Kernel between held-out rows and training rows.
    residuals : ndarray of shape (n_out, d)
        R of the held-out rows.
    alphas : ndarray of shape (a,)
    """
    vectors, values = spectrum
    gain = alphas[:, None] / (1 + np.outer(alphas, values))
    return residuals - (kernel @ vectors) @ (gain[:, :, None] * projected)


def scores_from_errors(errors, targets):
    """Scores y - error of rows, y one-hot, shape (..., n, d), in place of the errors.

    Parameters
    ----------
    errors : ndarray of shape (..., n, d)
        In units of y; NaN where nothing is known of a row: its scores are 0.
    targets : ndarray of shape (..., n, d)
        One-hot labels.
    """
    unknown = np.isnan(errors)
    scores = np.subtract(targets, errors, out=errors)
    scores[unknown] = 0.0
    return scores


def classes_left(design):
    """Which classes each row's client has without the row, bool of shape (n, d)."""
    client = np.repeat(np.arange(len(design.client_ids)), design.counts)
    whole = design.class_weights if design.whole is None else design.whole
    left = whole[client]
    taken = design.root**2 * (1.0 if design.drop is None else design.drop)
    every = np.arange(len(client))
    total = left[every, design.codes]
    left[every, design.codes] -= taken
    # What is left of a class whose only row goes is zero or rounding.
    left[every, design.codes] *= left[every, design.codes] > 1e-12 * total
    allowed = left > 0
    # A client whose only row goes has no class left: all are as good.
    return allowed | ~allowed.any(axis=1, keepdims=True)
