"""One temperature for the softmax of scores, from log-losses that clients can add up."""

import numpy as np
from scipy.interpolate import CubicSpline

TEMPERATURES = 4.0 / 2.0 ** np.arange(0.0, 13.0, 0.5)
"""Where losses are taken, from 4 down to 1/1024, two an octave."""

_LEAST = np.finfo(np.float64).eps  # probabilities below it are taken for it, as in log_loss


def temperature_losses(scores, codes, sample_weight=None):
    """Sum of log-losses of softmax(scores / T) for each T of TEMPERATURES.

    Parameters
    ----------
    scores : ndarray of shape (..., n, d)
        -inf for classes that are ruled out.
    codes : ndarray of shape (..., n)
        True classes; one that is ruled out counts as the least probability.
    sample_weight : ndarray of shape (..., n), default=None

    Returns
    -------
    ndarray of shape (..., 26)
    """
    below = scores - scores.max(axis=-1, keepdims=True)
    codes = np.broadcast_to(codes, below.shape[:-1])
    truth = np.take_along_axis(below, codes[..., None], axis=-1)[..., 0]
    losses = np.empty((*below.shape[:-2], len(TEMPERATURES)))
    for first in (0, 1):
        powers = np.exp(below / TEMPERATURES[first])
        for i in range(first, len(TEMPERATURES), 2):
            log_share = truth / TEMPERATURES[i] - np.log(powers.sum(axis=-1))
            np.maximum(log_share, np.log(_LEAST), out=log_share)
            if sample_weight is not None:
                log_share *= sample_weight
            losses[..., i] = -log_share.sum(axis=-1)
            powers *= powers  # exp(z / T) squared is exp(z / (T / 2))
    return losses


def best_temperature(losses):
    """The temperature of least loss, between those at which losses (26,) were taken."""
    if np.ptp(losses) <= 1e-12 * np.abs(losses).max():
        return 1.0  # no row says anything
    places = np.log(TEMPERATURES[::-1])
    curve = CubicSpline(places, losses[::-1])
    candidates = np.concatenate([places[[0, -1]], curve.derivative().roots(extrapolate=False)])
    candidates = candidates[np.isfinite(candidates)]
    return float(np.exp(candidates[np.argmin(curve(candidates))]))
