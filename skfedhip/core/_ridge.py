"""Ridge solvers: one factorisation for all clients, then a small system for each.

Coefficients are stored as scikit-learn stores them, (d, p): one row a class.
"""

import itertools
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgWarning, lapack

from ..utils._threads import few_blas_threads
from ..utils._warn import warn_user
from ._sized import Sized

SINGULAR = 1e-9
"""Reciprocal condition number below which a Cholesky solution is not trusted."""

_ROUNDING = 1e-10  # share of its terms below which a difference is rounding
_PANEL = 192  # columns a matrix product at a time, where half of the root is zero
_BATCH_ROWS = 64  # clients with at most so many rows are solved in batches


@dataclass(frozen=True)
class RidgeRoot(Sized):
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

    def leverage(self, rows):
        """Diagonal of rows (A + penalty)⁻¹ rowsᵀ, shape (n,)."""
        whitened = self.whiten(rows)
        return np.einsum("ij,ij->i", whitened, whitened)

    def solve(self, cross):
        """``cross @ (A + penalty)⁻¹``, shape (d, p): ridge coefficients of class sums (d, p)."""
        return self.unwhiten(self.whiten(cross))


def _panels(width):
    return [(start, min(start + _PANEL, width)) for start in range(0, width, _PANEL)]


def ridge_root(gram, beta, *, weight=None, name="beta"):
    """Factor A + βI once; with an intercept, the block matrix diag(weight, A + βI).

    Parameters
    ----------
    gram : ndarray of shape (m, m)
        A; overwritten.
    beta : float
        Penalty, >= 0.
    weight : float, default=None
        Sum of weights, where the rows begin with an intercept column.
    name : str, default="beta"
        What the penalty is called in a warning.

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
        root, triangular = _eigen_root(gram, beta, name), False
    if weight is None:
        return RidgeRoot(root, triangular)
    bordered = np.zeros((m + 1, root.shape[1] + 1))
    bordered[0, 0] = 1 / np.sqrt(weight)
    bordered[1:, 1:] = root
    return RidgeRoot(bordered, triangular)


def _eigen_root(gram, beta, name):
    values, vectors = np.linalg.eigh(gram)
    kept = values > len(gram) * np.finfo(float).eps * max(values[-1], np.finfo(float).tiny)
    if beta == 0 and not kept.all():
        _warn_singular(name, "the Gram matrix", kept.sum(), len(gram))
    return vectors[:, kept] / np.sqrt(values[kept] + beta)


def prefers_residual(counts, width, n_classes):
    """Whether the residual form takes fewer flops than the direct form, client by client.

    The residual form costs n²p + n³/3 + 2n²d + p²d flops a client of n rows once its rows are
    whitened, the direct form (n + p/3) p² + 2p²d.
    """
    n, p, d = np.asarray(counts, dtype=float), width, n_classes
    return n * n * (p + n / 3 + 2 * d) + p * p * d < (n + p / 3) * p * p + 2 * p * p * d


def shift_drowns(shift, scale):
    """Whether shift·I + scale·H, H ≤ I, needs its null directions left out by hand."""
    return scale * SINGULAR > shift


def kernel_weights(rows, targets, offsets, *, shift, scale, twice=0.0, left=None, residuals=None):
    """Dual ridge of every client: M_k = (shift·I + scale·H_k)⁻¹ scale·T_k with H_k = rows rowsᵀ.

    Parameters
    ----------
    rows : ndarray of shape (n, r)
    targets : ndarray of shape (n, d)
    offsets : ndarray of shape (K + 1,)
        Client k owns rows offsets[k]:offsets[k + 1].
    shift, scale : float
        (1, α) for FedHiP's correction in whitened coordinates, (β, 1) for a local ridge.
    twice : float, default=0.0
        How many times a row counts outside ``scale``: 1 for FedHiP, where it counts globally too.
    left : ndarray of shape (n,), default=None
        Filled with the complements of the leverages (twice + scale) H (shift + scale H)⁻¹, that is
        the diagonals of (shift - twice·H_k) (shift·I + scale·H_k)⁻¹.
    residuals : ndarray of shape (n, d), default=None
        Filled, beside ``left``, with T_k - H_k M_k.

    Returns
    -------
    ndarray of shape (n, d)
        The ridge coefficients of client k are M_kᵀ rows_k.
    """
    out = np.empty_like(targets)
    terms = (shift, scale, twice, left is not None)
    solve = _solve_spectral if shift_drowns(shift, scale) else _solve_shifted
    batch_rows = _BATCH_ROWS if solve is _solve_shifted else 0
    for _, index, mask in padded_batches(offsets, batch_rows):
        batch = take_batch(rows, index, mask)
        kernel = batch @ batch.transpose(0, 2, 1)
        solved = _solve_shifted(kernel, take_batch(targets, index, mask), *terms)
        for array, values in zip((out, left, residuals), solved, strict=False):
            array[index[mask]] = values[mask]
    for k in np.flatnonzero(np.diff(offsets) > batch_rows):
        own = slice(offsets[k], offsets[k + 1])
        solved = solve(rows[own] @ rows[own].T, targets[own], *terms)
        for array, values in zip((out, left, residuals), solved, strict=False):
            array[own] = values
    return out


def weighted_sums(rows, weights, offsets):
    """M_kᵀ rows_k of every client, shape (K, d, r), from rows (n, r) and weights (n, d)."""
    out = np.zeros((len(offsets) - 1, weights.shape[1], rows.shape[1]))
    counts = np.diff(offsets)
    for clients, index, mask in padded_batches(offsets, _BATCH_ROWS):
        batch = take_batch(weights, index, mask).transpose(0, 2, 1) @ take_batch(rows, index, mask)
        out[clients] = batch
    for k in np.flatnonzero(counts > _BATCH_ROWS):
        own = slice(offsets[k], offsets[k + 1])
        np.matmul(weights[own].T, rows[own], out=out[k])
    return out


def fitted_values(rows, coefs, offsets):
    """rows_k C_kᵀ of every client, shape (n, d), from coefficients (K, d, r)."""
    out = np.empty((len(rows), coefs.shape[1]))
    for k, (start, stop) in enumerate(itertools.pairwise(offsets)):
        np.matmul(rows[start:stop], coefs[k].T, out=out[start:stop])
    return out


def primal_coefs(rows, targets, offsets, *, shared, scale=1.0, leverage=None):
    """Primal ridge of every client: (shared + scale·FᵀF)⁻¹ scale·FᵀT, coefficients (K, d, p).

    Parameters
    ----------
    rows : ndarray of shape (n, p)
    targets : ndarray of shape (n, d)
    offsets : ndarray of shape (K + 1,)
    shared : ndarray of shape (p, p)
        Positive-definite matrix that all clients have in common: a penalised Gram matrix, or a
        penalty alone.
    scale : float, default=1.0
    leverage : ndarray of shape (n,), default=None
        Filled with the diagonals of F (shared + scale·FᵀF)⁻¹ Fᵀ.
    """
    out = np.zeros((len(offsets) - 1, targets.shape[1], rows.shape[1]))
    batch_rows = _BATCH_ROWS if rows.shape[1] <= _BATCH_ROWS else 0
    for clients, index, mask in padded_batches(offsets, batch_rows):
        batch = take_batch(rows, index, mask)
        inverse = np.linalg.inv(scale * (batch.transpose(0, 2, 1) @ batch) + shared)
        cross = scale * (take_batch(targets, index, mask).transpose(0, 2, 1) @ batch)
        out[clients] = cross @ inverse
        if leverage is not None:
            leverage[index[mask]] = np.einsum("kqp,kqp->kq", batch @ inverse, batch)[mask]
    for k in np.flatnonzero(np.diff(offsets) > batch_rows):
        own = slice(offsets[k], offsets[k + 1])
        root = shared_root(rows[own].T @ rows[own], shared, scale)
        out[k] = scale * root.solve(targets[own].T @ rows[own])
        if leverage is not None:
            leverage[own] = root.leverage(rows[own])
    return out


def shared_root(gram, shared, scale):
    """Root of (shared + scale·gram)⁻¹, from a positive-definite ``shared``; overwrites ``gram``."""
    gram *= scale
    gram += shared
    # numpy's Cholesky lets other threads run; scipy's dtrtri does not, but it is half the work.
    factor = np.linalg.cholesky(gram)
    return RidgeRoot(lapack.dtrtri(factor.T, lower=0)[0], True)


def spectral_root(gram, scale):
    """Root of (I + scale·gram)⁻¹ on the range of ``gram``, where scale drowns the identity."""
    values, vectors = np.linalg.eigh(gram)
    kept = values > len(gram) * np.finfo(float).eps * max(values[-1], 0.0)
    return RidgeRoot(vectors[:, kept] / np.sqrt(1 + scale * values[kept]), False)


def ridge_is_safe(rows, offsets, beta):
    """Whether β keeps each client's own system well-conditioned, bool of shape (K,)."""
    squares = np.add.reduceat(np.einsum("ij,ij->i", rows, rows), offsets[:-1])
    return beta > SINGULAR * squares


def minimum_norm_ridge(rows, targets, offsets, beta, leverage=None, norms=None):
    """Every client's own ridge by singular values, (K, d, p); of minimum norm where singular.

    Parameters
    ----------
    rows : ndarray of shape (n, p)
    targets : ndarray of shape (n, d)
    offsets : ndarray of shape (K + 1,)
    beta : float
        Penalty, >= 0.
    leverage : ndarray of shape (n,), default=None
        Filled with the diagonals of F (FᵀF + βI)⁺ Fᵀ.
    norms : ndarray of shape (K,), default=None
        Norms of the clients' rows before they were centered: smaller singular values than their
        rounding are none.

    Warns
    -----
    scipy.linalg.LinAlgWarning
        If beta is 0 and some client's system is singular.
    """
    out = np.empty((len(offsets) - 1, targets.shape[1], rows.shape[1]))
    for k, (start, stop) in enumerate(itertools.pairwise(offsets)):
        norm = 0.0 if norms is None else norms[k]
        root = minimum_norm_root(rows[start:stop], beta, norm)
        out[k] = root.solve(targets[start:stop].T @ rows[start:stop])
        if leverage is not None:
            leverage[start:stop] = root.leverage(rows[start:stop])
    return out


def minimum_norm_root(rows, beta, norm=0.0):
    """Root of (rowsᵀrows + βI)⁻¹ on the range of the rows, by singular values.

    ``norm`` is that of the rows before they were centered, if they were. A singular system
    without a penalty warns (LinAlgWarning).
    """
    _, s, vt = np.linalg.svd(rows, full_matrices=False)
    kept = s > max(rows.shape) * np.finfo(float).eps * s.max(initial=norm)
    if beta == 0 and kept.sum() < rows.shape[1]:
        _warn_singular("beta", "a client's system", kept.sum(), rows.shape[1])
    return RidgeRoot(vt[kept].T / np.sqrt(s[kept] ** 2 + beta), False)


def _warn_singular(penalty, what, rank, size):
    warn_user(
        f"{penalty}=0 and {what} is singular (rank {rank} of {size}): the minimum-norm solution is "
        f"used; set {penalty} > 0 for a unique one.",
        LinAlgWarning,
    )


def _solve_shifted(kernel, targets, shift, scale, twice, with_left):
    """(shift + scale·H)⁻¹ scale·T; if asked, with ``left`` and residuals. H may be a stack."""
    system = scale * kernel
    np.einsum("...ii->...i", system)[...] += shift
    if not with_left:
        solve = np.linalg.solve if kernel.ndim == 3 else _solve_spd
        return (solve(system, scale * targets),)
    inverse = np.linalg.inv(system)
    left = shift * np.einsum("...ii->...i", inverse)
    if twice:
        left = left - twice * np.einsum("...ij,...ij->...i", kernel, inverse)
    solved = inverse @ targets
    return scale * solved, np.maximum(left, 0.0), shift * solved


def _solve_spectral(kernel, targets, shift, scale, twice, with_left):
    """The same by eigenvectors, without the directions in which H is zero to rounding."""
    values, vectors = np.linalg.eigh(kernel)
    kept = values > len(kernel) * np.finfo(float).eps * values[-1]
    values = np.where(kept, values, 0.0)
    gain, projected = 1 / (shift + scale * values), vectors.T @ targets
    solved = (vectors * (gain * kept)) @ (scale * projected)
    if not with_left:
        return (solved,)
    share = shift - twice * values
    left = vectors**2 @ (np.where(share > _ROUNDING * shift, share, 0.0) * gain)
    return solved, left, (vectors * (shift * gain)) @ projected


def _solve_spd(system, targets):
    # As in shared_root, the larger half of the work lets other threads run.
    return lapack.dpotrs(np.linalg.cholesky(system).T, targets, lower=0)[0]


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
        # A quarter of padding costs small systems less than more calls, but not large ones.
        most = max(sizes[start] * 1.25, 4) if sizes[start] <= _BATCH_ROWS else sizes[start] * 1.02
        stop = int(np.searchsorted(sizes, most, side="right"))
        chosen = order[start:stop]
        column = np.arange(sizes[stop - 1])
        mask = column < counts[chosen][:, None]
        yield chosen, offsets[:-1][chosen][:, None] + np.where(mask, column, 0), mask
        start = stop


def lean_batches(offsets, width):
    """Padded batches of all clients of a size, whose products with ``width`` columns are small.

    The body of the loop has one BLAS thread where more of them would not help.
    """
    for clients, index, mask in padded_batches(offsets, np.inf):
        with few_blas_threads(index.shape[1] ** 2 * width):
            yield clients, index, mask


def take_batch(array, index, mask):
    """Rows of a padded batch, zero where there is none; a view where the batch is contiguous."""
    if mask.all():
        first, n = index[0, 0], index.size
        if index[-1, -1] == first + n - 1 and np.all(np.diff(index[:, 0]) == index.shape[1]):
            return array[first : first + n].reshape(*index.shape, -1)
        return array[index]
    taken = array[index]
    taken[~mask] = 0.0
    return taken
