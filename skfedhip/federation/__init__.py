"""Runners outside this process; each is imported when first used, and needs its own extra."""

from importlib import import_module

__all__ = ["dask", "flower"]


def __getattr__(name):
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
