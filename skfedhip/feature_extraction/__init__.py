"""Frozen maps from what clients hold to the features that classifiers are fitted on."""

from importlib import import_module

from ._random_features import RandomFeatures

__all__ = ["RandomFeatures", "ViTMAETransformer"]


def __getattr__(name):
    # torch and transformers take seconds to import, and only this class needs them
    if name == "ViTMAETransformer":
        return import_module("._vit_mae", __name__).ViTMAETransformer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
