"""Frozen maps from what clients hold to the features that classifiers are fitted on."""

from ._random_features import RandomFeatures

__all__ = ["RandomFeatures"]
