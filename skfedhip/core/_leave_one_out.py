"""Exact leave-one-out scores of FedHiP for a whole grid, from one eigendecomposition of A.

With A = QΛQᵀ, every β only rescales the rotated rows Z_k = F_k Q: the kernel of client k is
H_k(β) = Z_k (Λ + βI)⁻¹ Z_kᵀ. With its eigenvectors U and eigenvalues D, every α is a few products:

    residuals  Y_k - F_k P_k = R - U [αD / (1 + αD)] Uᵀ R,        R = Y_k - F_k G(β),
    leverage   h = (1 + α) diag(U [D / (1 + αD)] Uᵀ),

and a row that is left out, once globally and α times locally, is missed by residual / (1 - h).
"""

from dataclasses import dataclass

import numpy as np

_CERTAIN = 1e-10  # 1 - leverage below which a row alone decides its own fit


@dataclass(frozen=True)
class Rotation:
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
        1 with an intercept, which no β touches.
    """

    vectors: np.ndarray
    values: np.ndarray
    cross: np.ndarray
    lead: int

    @classmethod
    def from_statistics(cls, statistics):
        """Rotate RidgeStatistics; directions in which A is zero to rounding are left out."""
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

    def gains(self, beta):
        """1 / (Λ + β), shape (r,)."""
        penalized = self.values + beta
        penalized[: self.lead] -= beta
        return 1 / penalized

    def coef(self, beta):
        """Rotated global model G(β), shape (d, r)."""
        return self.cross * self.gains(beta)


def kernel_spectrum(rows):
    """Eigenvectors U (n, q) and eigenvalues D (q,) of rows rowsᵀ, by the smaller system.

    Parameters
    ----------
    rows : ndarray of shape (n, r)
    """
    n, r = rows.shape
    if n <= r:
        values, vectors = np.linalg.eigh(rows @ rows.T)
        return vectors, np.maximum(values, 0.0)
    values, vectors = np.linalg.eigh(rows.T @ rows)
    kept = values > r * np.finfo(float).eps * max(values[-1], 0.0)
    return (rows @ vectors[:, kept]) / np.sqrt(values[kept]), values[kept]


def leave_one_out_errors(spectrum, residuals, alphas, drop):
    """How far each row is missed by the model that never saw it, for every α.

    Parameters
    ----------
    spectrum : tuple of ndarray
        U (n, q) and D (q,) of the client's kernel.
    residuals : ndarray of shape (n, d)
        R, weighted targets less the global model's.
    alphas : ndarray of shape (a,)
    drop : ndarray of shape (n,) or float
        min(w, 1) / w of each row: how much of a row is left out.

    Returns
    -------
    ndarray of shape (a, n, d)
        Weighted residuals; a row that alone decides its own fit is missed by its whole target,
        which the caller restores: it is NaN here.
    """
    vectors, values = spectrum
    shrink = 1 / (1 + np.outer(alphas, values))  # (a, q)
    correction = (alphas[:, None] * values * shrink)[:, :, None] * (vectors.T @ residuals)
    missed = residuals - vectors @ correction
    leverage = ((1 + alphas)[:, None] * values * shrink) @ (vectors * vectors).T  # (a, n)
    left = 1 - drop * leverage
    missed /= np.where(left > _CERTAIN, left, np.nan)[:, :, None]
    return missed


def held_out_errors(spectrum, kernel, residuals, held_out_residuals, alphas):
    """How far rows that took no part are missed, for every α.

    Parameters
    ----------
    spectrum : tuple of ndarray
        U (n, q) and D (q,) of the kernel of the client's training rows.
    kernel : ndarray of shape (n_out, n)
        Kernel between held-out rows and training rows.
    residuals : ndarray of shape (n, d)
    held_out_residuals : ndarray of shape (n_out, d)
    alphas : ndarray of shape (a,)

    Returns
    -------
    ndarray of shape (a, n_out, d)
    """
    vectors, values = spectrum
    gain = alphas[:, None] / (1 + np.outer(alphas, values))
    return held_out_residuals - (kernel @ vectors) @ (gain[:, :, None] * (vectors.T @ residuals))


def scores_from_errors(errors, codes, root=None):
    """Scores y - error, y one-hot: (a, n, d), made in place of the errors.

    Parameters
    ----------
    errors : ndarray of shape (a, n, d)
        Weighted by ``root``, NaN where nothing is known of a row without itself: its score is 0.
    codes : ndarray of shape (n,)
        Classes of the rows.
    root : ndarray of shape (n,), default=None
        Roots of the weights.
    """
    if root is not None:
        errors /= root[:, None]
    unknown = np.isnan(errors)
    scores = np.negative(errors, out=errors)
    scores[:, np.arange(len(codes)), codes] += 1.0
    scores[unknown] = 0.0
    return scores
