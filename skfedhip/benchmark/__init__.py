"""Compare the methods on real data, from a terminal: ``python -m skfedhip.benchmark --help``.

From Python, :func:`compare` scores any classifiers client by client.
"""

__all__ = ["compare"]


def __getattr__(name):
    if name == "compare":
        from ._compare import compare

        return compare
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
