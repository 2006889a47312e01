"""AnaPFL's second stream: a ridge of each client on what a shared ridge leaves unexplained."""

from dataclasses import dataclass

import numpy as np

from ._leave_one_out import complement, left_out
from ._ridge import lean_batches, take_batch


@dataclass(frozen=True)
class Smoother:
    """What the refinement S = Ψ(ΨᵀΨ + βI)⁻¹Ψᵀ of clients does to their residuals E, row by row.

    With N = Φ(ΣΦᵀΦ + γI)⁻¹Φᵀ the hat matrix of the shared stream.

    Attributes
    ----------
    fitted : ndarray of shape (n, d)
        S E.
    leverage : ndarray of shape (n,)
        Diagonal of S.
    crossed : ndarray of shape (n,)
        Diagonal of S N.
    """

    fitted: np.ndarray
    leverage: np.ndarray
    crossed: np.ndarray


def dual_refinement(rows, residuals, offsets, beta, shared=None):
    """Weights M_k = (Ψ_k Ψ_kᵀ + βI)⁻¹ E_k of clients with few rows, in batches.

    Parameters
    ----------
    rows : ndarray of shape (n, q)
        Ψ.
    residuals : ndarray of shape (n, d)
        E.
    offsets : ndarray of shape (K + 1,)
    beta : float
        Penalty, > 0.
    shared : ndarray of shape (n, r), default=None
        Whitened rows of the shared stream, Φ̃ with N = Φ̃ Φ̃ᵀ.

    Returns
    -------
    weights : ndarray of shape (n, d)
    smoother : Smoother or None
        Where ``shared`` is given.
    """
    weights = np.empty_like(residuals)
    smoother = None
    if shared is not None:
        smoother = Smoother(np.empty_like(residuals), *np.empty((2, len(rows))))
    for _, index, mask in lean_batches(offsets, rows.shape[1]):
        own = index[mask]
        batch = take_batch(rows, index, mask)
        kernel = batch @ batch.transpose(0, 2, 1)
        system = kernel.copy()
        np.einsum("kii->ki", system)[...] += beta
        targets = take_batch(residuals, index, mask)
        if smoother is None:
            weights[own] = np.linalg.solve(system, targets)[mask]
            continue
        inverse = np.linalg.inv(system)
        solved = inverse @ targets
        weights[own] = solved[mask]
        smoother.fitted[own] = (kernel @ solved)[mask]
        smoother.leverage[own] = np.einsum("kij,kij->ki", kernel, inverse)[mask]
        primary = take_batch(shared, index, mask)
        hat = primary @ primary.transpose(0, 2, 1)
        # S = I - β (ΨΨᵀ + βI)⁻¹, so the diagonal of S N takes no third product.
        crossed = np.einsum("kii->ki", hat) - beta * np.einsum("kij,kij->ki", inverse, hat)
        smoother.crossed[own] = crossed[mask]
    return weights, smoother


def refinement_errors(residuals, leverage, smoother, lams, drop=None):
    """How far rows are missed by both streams fitted without them, for every λ: (..., l, n, d).

    Left out of the shared stream, row i is missed by E_i / (1 - g_i) and the others' residuals
    change by N_ji E_i / (1 - g_i); the refinement is left out of a row on these residuals.

    Parameters
    ----------
    residuals : ndarray of shape (..., n, d)
        E, weighted.
    leverage : ndarray of shape (..., n)
        g, the diagonal of N.
    smoother : Smoother
        Of arrays of the same shapes.
    lams : ndarray of shape (l,)
        Weights of the refinement in the scores.
    drop : ndarray of shape (..., n), default=None
        How much of each row is left out; all of it by default.
    """
    missed = left_out(residuals.copy(), complement(leverage), drop)
    change = missed if drop is None else drop[..., None] * missed
    refitted = smoother.fitted + smoother.crossed[..., None] * change
    refined = missed - left_out(missed - refitted, complement(smoother.leverage), drop)
    return missed[..., None, :, :] - lams[:, None, None] * refined[..., None, :, :]
