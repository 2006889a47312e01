"""Proximal maps."""

import numpy as np
from scipy.linalg import svd


def shrink_singular_values(matrix, threshold):
    """The proximal map of ``threshold`` times the nuclear norm.

    Parameters
    ----------
    matrix : ndarray of shape (m, n)
    threshold : float
        >= 0.

    Returns
    -------
    left : ndarray of shape (m, r)
        Left singular vectors times what is left of their singular values, decreasing.
    right : ndarray of shape (r, n)
        Right singular vectors; ``left @ right`` is the minimiser of
        ‖Z - matrix‖² / 2 + threshold ‖Z‖_*, and r its rank.
    """
    left, values, right = svd(matrix, full_matrices=False, check_finite=False)
    floor = np.finfo(matrix.dtype).eps * max(matrix.shape) * values.max(initial=0.0)
    kept = values > max(threshold, floor)
    return left[:, kept] * (values[kept] - threshold), right[kept]
