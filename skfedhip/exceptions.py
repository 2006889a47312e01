"""Warnings and errors that a user may want to name."""

__all__ = [
    "GridEdgeWarning",
    "MissingGroupsWarning",
    "SingleClassWarning",
    "StatisticsDroppedError",
]


class GridEdgeWarning(UserWarning):
    """The best parameter lies at the edge of its grid: a better one may lie beyond."""


class MissingGroupsWarning(UserWarning):
    """Client ids are missing altogether, or none of them is known: the global model answers."""


class SingleClassWarning(UserWarning):
    """A client that was trained on several classes is predicted to have one only."""


class StatisticsDroppedError(AttributeError, ValueError):
    """``fit`` did not keep the clients' statistics that a method needs.

    An AttributeError, since an estimator without them has no such method, as ``hasattr`` tells.
    """
