"""Ridge solvers: one factorisation for all clients, then a small system for each.

Coefficients are stored as scikit-learn stores them, (d, p): one row a class.
"""

import itertools
import warnings
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgWarning, lapack

SINGULAR = 1e-9
"""Reciprocal condition number below which a Cholesky solution is not trusted."""

_PANEL = 192  # columns a matrix product at a time, where half of the root is zero
_BATCH_ROWS = 64  # clients with at most so many rows are solved in batches


@dataclass(frozen=True)
class RidgeRoot:
    """W (p, r) with W Wᵀ = (A + penalty)⁻¹: turns a ridge penalty into plain length.

    Attributes
    ----------
    root : ndarray of shape (p, r)
        L⁻ᵀ, upper triangular, where A + penalty = L Lᵀ; or Q Λ^(-1/2) of its eigenvectors on the
        range of A where the system is (nearly) singular. Then solutions are of minimum norm.
    triangular : bool
    """

    root: np.ndarray
    triangular: bool

    def whiten(self, rows):
        """``rows @ root``, shape (n, r): rows in the coordinates where the penalised Gram is I."""
        if not self.triangular:
            return rows @ self.root
        out = np.empty_like(rows)
        for start, stop in _panels(len(self.root)):
            np.matmul(rows[:, :stop], self.root[:stop, start:stop], out=out[:, start:stop])
        return out

    def unwhiten(self, coef):
        """``coef @ rootᵀ``, shape (k, p): coefficients back in the coordinates of the features."""
        if not self.triangular:
            return coef @ self.root.T
        out = np.empty_like(coef)
        for start, stop in _panels(len(self.root)):
            np.matmul(coef[:, start:], self.root[start:stop, start:].T, out=out[:, start:stop])
        return out

    def solve(self, cross):
        """``cross @ (A + penalty)⁻¹``, shape (d, p): ridge coefficients of class sums (d, p)."""
        return self.unwhiten(self.whiten(cross))


def _panels(width):
    return [(start, min(start + _PANEL, width)) for start in range(0, width, _PANEL)]


def ridge_root(gram, beta, *, weight=None):
    """Factor A + βI once; with an intercept, the block matrix diag(weight, A + βI).

    Parameters
    ----------
    gram : ndarray of shape (m, m)
        A; overwritten.
    beta : float
        Penalty, >= 0.
    weight : float, default=None
        Sum of weights, where the rows begin with an intercept column.

    Returns
    -------
    RidgeRoot
        From a Cholesky factor, or from eigenvectors where 1 / cond < 1e-9. Directions in which A
        is zero to rounding are then left out, so that answers have minimum norm.

    Warns
    -----
    scipy.linalg.LinAlgWarning
        If beta is 0 and A is singular: the minimum-norm solution is one of many.
    """
    m = len(gram)
    scale = np.abs(gram).sum(axis=0).max() + beta
    diagonal = np.einsum("ii->i", gram)
    diagonal += beta
    factor, failed = lapack.dpotrf(gram.T, lower=1, clean=1)
    if not failed and lapack.dpocon(factor, scale, uplo="L")[0] >= SINGULAR:
        root, triangular = lapack.dtrtri(factor, lower=1, overwrite_c=1)[0].T, True
    else:
        diagonal -= beta
        root, triangular = _eigen_root(gram, beta), False
    if weight is None:
        return RidgeRoot(root, triangular)
    bordered = np.zeros((m + 1, root.shape[1] + 1))
    bordered[0, 0] = 1 / np.sqrt(weight)
    bordered[1:, 1:] = root
    return RidgeRoot(bordered, triangular)


def _eigen_root(gram, beta):
    values, vectors = np.linalg.eigh(gram)
    kept = values > len(gram) * np.finfo(float).eps * max(values[-1], np.finfo(float).tiny)
    if beta == 0 and not kept.all():
        warnings.warn(
            f"beta=0 and the Gram matrix is singular (rank {kept.sum()} of {len(gram)}): the "
            "minimum-norm solution is used; set beta > 0 for a unique one.",
            LinAlgWarning,
            stacklevel=2,
        )
    return vectors[:, kept] / np.sqrt(values[kept] + beta)


def prefers_residual(counts, width, n_classes):
    """Whether the residual form takes fewer flops than the direct form, client by client.

    The residual form costs n²p + n³/3 + 2n²d + p²d flops a client of n rows once its rows are
    whitened, the direct form (n + p/3) p² + 2p²d.
    """
    n, p, d = np.asarray(counts, dtype=float), width, n_classes
    return n * n * (p + n / 3 + 2 * d) + p * p * d < (n + p / 3) * p * p + 2 * p * p * d


def kernel_weights(rows, targets, offsets, *, shift, scale):
    """Dual ridge of every client: M_k = (shift·I + scale·H_k)⁻¹ scale·T_k with H_k = rows rowsᵀ.

    Parameters
    ----------
    rows : ndarray of shape (n, r)
    targets : ndarray of shape (n, d)
    offsets : ndarray of shape (K + 1,)
        Client k owns rows offsets[k]:offsets[k + 1].
    shift, scale : float
        (1, α) for FedHiP's correction in whitened coordinates, (β, 1) for a local ridge.

    Returns
    -------
    ndarray of shape (n, d)
        The ridge coefficients of client k are M_kᵀ rows_k.
    """
    out = np.empty_like(targets)
    # Where the shift drowns in rounding, null directions of H must be left out by hand.
    solve = _solve_shifted if scale <= shift / SINGULAR else _solve_spectral
    batch_rows = _BATCH_ROWS if solve is _solve_shifted else 0
    for _, index, mask in padded_batches(offsets, batch_rows):
        batch = _take(rows, index, mask)
        system = batch @ batch.transpose(0, 2, 1)
        system *= scale
        np.einsum("kii->ki", system)[:] += shift
        solved = np.linalg.solve(system, scale * _take(targets, index, mask))
        out[index[mask]] = solved[mask]
    for k in np.flatnonzero(np.diff(offsets) > batch_rows):
        own = slice(offsets[k], offsets[k + 1])
        out[own] = solve(rows[own] @ rows[own].T, shift, scale, targets[own])
    return out


def weighted_sums(rows, weights, offsets):
    """M_kᵀ rows_k of every client, shape (K, d, r), from rows (n, r) and weights (n, d)."""
    out = np.zeros((len(offsets) - 1, weights.shape[1], rows.shape[1]))
    counts = np.diff(offsets)
    for clients, index, mask in padded_batches(offsets, _BATCH_ROWS):
        batch = _take(weights, index, mask).transpose(0, 2, 1) @ _take(rows, index, mask)
        out[clients] = batch
    for k in np.flatnonzero(counts > _BATCH_ROWS):
        own = slice(offsets[k], offsets[k + 1])
        np.matmul(weights[own].T, rows[own], out=out[k])
    return out


def primal_coefs(rows, targets, offsets, *, penalty, scale=1.0):
    """Primal ridge of every client: (penalty + scale·FᵀF)⁻¹ scale·FᵀT, as coefficients (K, d, p).

    Parameters
    ----------
    rows : ndarray of shape (n, p)
    targets : ndarray of shape (n, d)
    offsets : ndarray of shape (K + 1,)
    penalty : ndarray of shape (p, p) or (p,)
        Penalised Gram matrix that all clients share, or the diagonal of a penalty.
    scale : float, default=1.0
    """
    out = np.zeros((len(offsets) - 1, targets.shape[1], rows.shape[1]))
    shared = penalty if penalty.ndim == 2 else np.diag(penalty)
    batch_rows = _BATCH_ROWS if rows.shape[1] <= _BATCH_ROWS else 0
    for clients, index, mask in padded_batches(offsets, batch_rows):
        batch = _take(rows, index, mask)
        system = batch.transpose(0, 2, 1) @ batch
        system *= scale
        system += shared
        cross = scale * (batch.transpose(0, 2, 1) @ _take(targets, index, mask))
        out[clients] = np.linalg.solve(system, cross).transpose(0, 2, 1)
    for k in np.flatnonzero(np.diff(offsets) > batch_rows):
        own = slice(offsets[k], offsets[k + 1])
        out[k] = solve_shared(rows[own].T @ rows[own], targets[own].T @ rows[own], shared, scale)
    return out


def solve_shared(gram, cross, shared, scale):
    """scale · cross (shared + scale · gram)⁻¹, shape (d, p); ``gram`` is overwritten."""
    gram *= scale
    gram += shared
    return scale * _solve_spd(gram, cross.T).T


def ridge_is_safe(rows, offsets, beta):
    """Whether β keeps each client's own system well-conditioned, bool of shape (K,)."""
    squares = np.add.reduceat(np.einsum("ij,ij->i", rows, rows), offsets[:-1])
    return beta > SINGULAR * squares


def primal_ridge(rows, targets, offsets, beta):
    """Every client's own ridge in its (p, p) system, coefficients of shape (K, d, p)."""
    return primal_coefs(rows, targets, offsets, penalty=np.full(rows.shape[1], float(beta)))


def minimum_norm_ridge(rows, targets, offsets, beta):
    """Every client's own ridge by singular values, (K, d, p); of minimum norm where singular.

    Warns
    -----
    scipy.linalg.LinAlgWarning
        If beta is 0 and some client's system is singular.
    """
    deficient = False
    out = np.empty((len(offsets) - 1, targets.shape[1], rows.shape[1]))
    for k, (start, stop) in enumerate(itertools.pairwise(offsets)):
        u, s, vt = np.linalg.svd(rows[start:stop], full_matrices=False)
        kept = s > max(rows.shape[1], stop - start) * np.finfo(float).eps * s.max(initial=0.0)
        deficient |= kept.sum() < rows.shape[1]
        gain = s[kept] / (s[kept] ** 2 + beta)
        out[k] = ((targets[start:stop].T @ u[:, kept]) * gain) @ vt[kept]
    if deficient and beta == 0:
        warnings.warn(
            "beta=0 and a client's system is singular: its minimum-norm solution is used; set "
            "beta > 0 for a unique one.",
            LinAlgWarning,
            stacklevel=2,
        )
    return out


def _solve_shifted(kernel, shift, scale, targets):
    kernel *= scale
    np.einsum("ii->i", kernel)[:] += shift
    return _solve_spd(kernel, scale * targets)


def _solve_spectral(kernel, shift, scale, targets):
    values, vectors = np.linalg.eigh(kernel)
    kept = values > len(kernel) * np.finfo(float).eps * values[-1]
    gain = scale / (shift + scale * values[kept])
    return (vectors[:, kept] * gain) @ (vectors[:, kept].T @ targets)


def _solve_spd(system, targets):
    # numpy's Cholesky lets other threads run; scipy's dpotrs does not, but its work is small.
    factor = np.linalg.cholesky(system)
    return lapack.dpotrs(factor.T, targets, lower=0)[0]


def padded_batches(offsets, max_rows):
    """Group clients of similar size, so that a batched routine solves many in one call.

    Yields
    ------
    clients : ndarray of shape (B,)
        Which clients.
    index : ndarray of shape (B, q)
        Their row positions; column j is each client's j-th row.
    mask : ndarray of shape (B, q)
        False where a client has fewer than q rows (its index then repeats its first row).
    """
    counts = np.diff(offsets)
    order = np.argsort(counts, kind="stable")
    order = order[(counts[order] > 0) & (counts[order] <= max_rows)]
    sizes = counts[order]
    start = 0
    while start < len(order):
        # At most a quarter of padding: it costs less than more, smaller batches.
        stop = int(np.searchsorted(sizes, max(sizes[start] * 1.25, 4), side="right"))
        chosen = order[start:stop]
        column = np.arange(sizes[stop - 1])
        mask = column < counts[chosen][:, None]
        yield chosen, offsets[:-1][chosen][:, None] + np.where(mask, column, 0), mask
        start = stop


def _take(array, index, mask):
    """Rows of a padded batch, zero where there is none; a view where the batch is contiguous."""
    if mask.all():
        first, n = index[0, 0], index.size
        if index[-1, -1] == first + n - 1 and np.all(np.diff(index[:, 0]) == index.shape[1]):
            return array[first : first + n].reshape(*index.shape, -1)
        return array[index]
    taken = array[index]
    taken[~mask] = 0.0
    return taken
