"""Scores of held-out rows for whole grids of penalties, client by client, without refitting."""

import numpy as np

from ._calibration import TEMPERATURES, temperature_losses
from ._leave_one_out import (
    classes_left,
    held_out_errors,
    kernel_spectrum,
    leave_one_out_errors,
    scores_from_errors,
)
from ._refinement import Smoother, refinement_errors
from ._ridge import lean_batches, take_batch

_CHUNK = 2**22  # numbers of one temporary of rows x classes x grid points


class RowLabels:
    """What scoring needs to know of rows that are held out, and the scoring itself.

    Parameters
    ----------
    codes : ndarray of shape (..., n)
    n_classes : int
    root : ndarray of shape (..., n)
        Roots of the fitting weights.
    weight : ndarray of shape (..., n)
        What each row counts in the score.
    allowed : ndarray of shape (..., n, d) or None
        Classes that the row's client may predict; None where that is not asked for.
    """

    def __init__(self, codes, n_classes, root, weight, allowed):
        self.codes, self.root, self.weight, self.allowed = codes, root, weight, allowed
        self.one_hot = (codes[..., None] == np.arange(n_classes)).astype(float)

    def totals(self, errors, scoring, masks):
        """Weighted sums of the rows' scores from weighted errors, which are overwritten.

        Parameters
        ----------
        errors : ndarray of shape (..., g, n, d)
            For g grid points.
        scoring : {"accuracy", "neg_mean_squared_error", "neg_log_loss"}
        masks : tuple of bool
            Whether scores are restricted to the client's own classes.

        Returns
        -------
        ndarray of shape (..., g, len(masks), t)
            t is 1, or the number of temperatures for the log-loss.
        """
        errors /= self.root[..., None, :, None]
        scores = scores_from_errors(errors, self.one_hot[..., None, :, :])
        out = []
        for mask in masks:
            masked = scores
            if mask and scoring != "neg_mean_squared_error":
                masked = np.where(self.allowed[..., None, :, :], scores, -np.inf)
            out.append(self._total(masked, scoring))
        return np.stack(out, axis=-2)

    def _total(self, scores, scoring):
        codes, weight = self.codes[..., None, :], self.weight[..., None, :]
        if scoring == "neg_log_loss":
            return -temperature_losses(scores, codes, weight)
        if scoring == "accuracy":
            rows = scores.argmax(axis=-1) == codes
        else:
            rows = -np.mean((scores - self.one_hot[..., None, :, :]) ** 2, axis=-1)
        return (rows * weight).sum(axis=-1)[..., None]


def leave_one_out_labels(design, masked):
    """Labels, weights and allowed classes of a DesignBlock's rows as arrays for batches."""
    weight = np.ones(len(design.rows)) if design.sample_weight is None else design.sample_weight
    allowed = classes_left(design) if masked else None
    return design.codes, design.root, weight, allowed


def batched_labels(labels, n_classes, index, mask):
    """RowLabels of a padded batch of clients."""
    codes, root, weight, allowed = labels
    padded = np.where(mask, weight[index], 0.0)
    return RowLabels(
        codes[index], n_classes, root[index], padded, None if allowed is None else allowed[index]
    )


def fedhip_leave_one_out(design, rotation, alphas, betas, scoring, masks):
    """Sums of leave-one-out scores of every client, for every α and β.

    Parameters
    ----------
    design : DesignBlock
        Centered rows.
    rotation : Rotation
    alphas : ndarray of shape (a,)
    betas : ndarray of shape (b,)
    scoring, masks
        As in :meth:`RowLabels.totals`.

    Returns
    -------
    ndarray of shape (K, b, a, len(masks), t)
    """
    targets, d = design.dense_targets(), design.targets.shape[1]
    labels = leave_one_out_labels(design, any(masks))
    rotated = design.rows @ rotation.vectors
    tables: list = []
    for beta in betas:
        residuals = targets - rotated @ rotation.coef(beta).T
        scaled = rotated * np.sqrt(rotation.gains(beta))
        table = None
        for clients, index, mask in lean_batches(design.offsets, rotated.shape[1]):
            vectors, values = kernel_spectrum(take_batch(scaled, index, mask))
            batch = take_batch(residuals, index, mask)
            projected = vectors.swapaxes(-1, -2) @ batch
            total = 0.0
            for rows in _row_chunks(index, len(alphas) * d):
                errors = leave_one_out_errors(
                    (vectors[:, rows], values),
                    projected,
                    batch[:, rows],
                    alphas,
                    None if design.drop is None else design.drop[index[:, rows]],
                )
                own = batched_labels(labels, d, index[:, rows], mask[:, rows])
                total = total + own.totals(errors, scoring, masks)
            table = _filled(table, clients, total, len(design.client_ids))
        tables.append(table)
    return np.stack(tables, axis=1)


def _filled(table, clients, total, n_clients):
    """The table (K, ...) with the totals of some clients in it, made at the first of them."""
    if table is None:
        table = np.zeros((n_clients, *total.shape[1:]))
    table[clients] = total
    return table


def _row_chunks(index, width):
    """Slices of the rows of a batch whose temporaries stay small."""
    n_clients, n = index.shape
    step = max(1, _CHUNK // (n_clients * width))
    return [slice(start, min(start + step, n)) for start in range(0, n, step)]


def fedhip_held_out(train, test, rotation, alphas, betas, scoring, masks):
    """Sums of the scores of held-out rows of every client, for every α and β.

    Parameters
    ----------
    train, test : DesignBlock
        Centered rows of the same clients; one may have none in either.
    rotation : Rotation
        Of the training rows of the federation.
    alphas, betas, scoring, masks
        As in :func:`fedhip_leave_one_out`.

    Returns
    -------
    ndarray of shape (K, b, a, len(masks), t)
    """
    z_train, z_test = train.rows @ rotation.vectors, test.rows @ rotation.vectors
    tables = []
    for beta in betas:
        scale, coef = np.sqrt(rotation.gains(beta)), rotation.coef(beta)
        seen = train.targets - z_train @ coef.T
        unseen = test.targets - z_test @ coef.T

        def errors(own, out, scale=scale, seen=seen, unseen=unseen):
            if not alphas.any():  # nobody personalizes
                return np.repeat(unseen[None, out], len(alphas), axis=0)
            rows = z_train[own] * scale
            spectrum = kernel_spectrum(rows)
            kernel = (z_test[out] * scale) @ rows.T
            projected = spectrum[0].T @ seen[own]
            return held_out_errors(spectrum, projected, kernel, unseen[out], alphas)

        tables.append(held_out_totals(train, test, errors, len(alphas), scoring, masks))
    return np.stack(tables, axis=1)


def held_out_totals(train, test, errors, n_points, scoring, masks):
    """Sums of the scores of every client's held-out rows, (K, g, len(masks), t).

    ``errors`` maps the slices of a client's training and held-out rows to errors (g, n_out, d),
    for g = ``n_points``.
    """
    d = test.targets.shape[1]
    weight = np.ones(len(test.rows)) if test.sample_weight is None else test.sample_weight
    width = len(TEMPERATURES) if scoring == "neg_log_loss" else 1
    table = np.zeros((len(test.client_ids), n_points, len(masks), width))
    for k in np.flatnonzero(test.counts):
        own = slice(train.offsets[k], train.offsets[k + 1])
        out = slice(test.offsets[k], test.offsets[k + 1])
        allowed = np.broadcast_to(train.class_weights[k] > 0, (out.stop - out.start, d))
        if not allowed.any():
            allowed = ~allowed
        labels = RowLabels(test.codes[out], d, test.root[out], weight[out], allowed)
        table[k] = labels.totals(errors(own, out), scoring, masks)
    return table


def anapfl_leave_one_out(primary, refinement, rotation, grid, scoring, masks):
    """Sums of leave-one-out scores of every client, for every γ, β and λ.

    Parameters
    ----------
    primary : DesignBlock
        Centered rows of the shared stream.
    refinement : ndarray of shape (n, q)
        Rows of the refinement stream.
    rotation : Rotation
        Of the shared stream.
    grid : tuple of ndarray
        Gammas (c,), betas (b,) and lams (l,).
    scoring, masks
        As in :meth:`RowLabels.totals`.

    Returns
    -------
    ndarray of shape (K, c, b, l, len(masks), t)
    """
    gammas, betas, lams = grid
    targets, d = primary.dense_targets(), primary.targets.shape[1]
    labels = leave_one_out_labels(primary, any(masks))
    rotated = primary.rows @ rotation.vectors
    table = None
    for clients, index, mask in lean_batches(primary.offsets, refinement.shape[1]):
        own_labels = batched_labels(labels, d, index, mask)
        spectrum = kernel_spectrum(take_batch(refinement, index, mask))
        drop = None if primary.drop is None else primary.drop[index]
        z, y = take_batch(rotated, index, mask), take_batch(targets, index, mask)
        totals = [
            refinement_totals(
                (z * np.sqrt(rotation.gains(gamma)), y - z @ rotation.coef(gamma).T),
                spectrum,
                (betas, lams),
                drop,
                lambda errors, own=own_labels: own.totals(errors, scoring, masks),
            )
            for gamma in gammas
        ]
        total = np.stack(totals, axis=1)
        table = _filled(table, clients, total, len(primary.client_ids))
    return table


def refinement_totals(shared, spectrum, grid, drop, total):
    """Totals (B, b, l, ...) of a batch of clients at one γ, from errors (B, l, n, d)."""
    (scaled, residuals), (vectors, values), (betas, lams) = shared, spectrum, grid
    leverage = np.einsum("...nr,...nr->...n", scaled, scaled)
    hat_vectors = scaled @ (scaled.swapaxes(-1, -2) @ vectors)  # N U
    projected = vectors.swapaxes(-1, -2) @ residuals
    totals = []
    for beta in betas:
        shrink = _shrink(values, beta)[..., None]
        smoother = Smoother(
            vectors @ (shrink * projected),
            ((vectors * vectors) @ shrink)[..., 0],
            ((vectors * hat_vectors) @ shrink)[..., 0],
        )
        totals.append(total(refinement_errors(residuals, leverage, smoother, lams, drop)))
    return np.stack(totals, axis=1)


def _shrink(values, beta):
    """D / (D + β), 0 where D is."""
    total = values + beta
    return np.divide(values, total, out=np.zeros_like(values), where=total > 0)


def anapfl_held_out(train, test, rotation, grid, scoring, masks):
    """Sums of the scores of held-out rows of every client, for every γ, β and λ.

    Parameters
    ----------
    train, test : tuple of DesignBlock and ndarray
        The shared stream's centered rows and the refinement's rows (n, q), of the same clients.
    rotation, grid, scoring, masks
        As in :func:`anapfl_leave_one_out`.

    Returns
    -------
    ndarray of shape (K, c, b, l, len(masks), t)
    """
    (primary, refinement), (unseen, unseen_refinement) = train, test
    gammas, betas, lams = grid
    z_train, z_test = primary.rows @ rotation.vectors, unseen.rows @ rotation.vectors

    def errors(own, out):
        vectors, values = kernel_spectrum(refinement[own])
        kernel = (unseen_refinement[out] @ refinement[own].T) @ vectors
        missed = []
        for gamma in gammas:
            coef = rotation.coef(gamma).T
            projected = vectors.T @ (primary.targets[own] - z_train[own] @ coef)
            left = unseen.targets[out] - z_test[out] @ coef
            for beta in betas:
                total = values + beta
                gain = np.divide(1.0, total, out=np.zeros_like(total), where=values > 0)
                missed.append(left - lams[:, None, None] * (kernel @ (gain[:, None] * projected)))
        return np.concatenate(missed)

    n_points = len(gammas) * len(betas) * len(lams)
    table = held_out_totals(primary, unseen, errors, n_points, scoring, masks)
    return table.reshape(len(table), len(gammas), len(betas), len(lams), *table.shape[2:])
