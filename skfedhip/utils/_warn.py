"""Warnings that point at the user's own line."""

import sys
import warnings

_OURS = ("skfedhip", "sklearn", "joblib")


def warn_user(message, category):
    """Warn as if from the innermost caller outside this package and scikit-learn."""
    frame, level = sys._getframe(1), 2
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] in _OURS:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
