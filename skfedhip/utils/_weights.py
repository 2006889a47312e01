"""Sample weights, checked once for all estimators."""

import numpy as np
from sklearn.utils.validation import _check_sample_weight


def check_weight(sample_weight, X):
    """Weights as float64 of shape (n_samples,), or None for none given.

    Raises
    ------
    ValueError
        If they are negative, not finite, of the wrong length, or all zero.
    """
    if sample_weight is None:
        return None
    weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not weight.any():
        raise ValueError("sample_weight is zero in all rows; give some row a positive weight.")
    return weight
