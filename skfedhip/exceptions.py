"""Warnings and errors that a user may want to name."""

__all__ = ["MissingGroupsWarning", "StatisticsDroppedError"]


class MissingGroupsWarning(UserWarning):
    """Client ids are missing altogether, or none of them is known: the global model answers."""


class StatisticsDroppedError(AttributeError, ValueError):
    """``fit`` did not keep the clients' statistics that a method needs.

    An AttributeError, since an estimator without them has no such method, as ``hasattr`` tells.
    """
