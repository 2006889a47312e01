"""The numerical core: functions of arrays, numpy and scipy only."""

from ._blocks import ClientBlock, DesignBlock, compress, group_rows, rows_per_block
from ._models import (
    DenseModels,
    FactoredModels,
    PersonalModels,
    affine,
    factors_are_smaller,
    map_client_rows,
    shift_origin,
)
from ._moments import Moments
from ._random_features import ACTIVATIONS, gaussian_projection, random_features
from ._retained import RetainedClients
from ._ridge import (
    RidgeRoot,
    kernel_weights,
    minimum_norm_ridge,
    prefers_residual,
    primal_coefs,
    primal_ridge,
    ridge_is_safe,
    ridge_root,
    solve_shared,
    weighted_sums,
)
from ._statistics import RidgeStatistics

__all__ = [
    "ACTIVATIONS",
    "ClientBlock",
    "DenseModels",
    "DesignBlock",
    "FactoredModels",
    "Moments",
    "PersonalModels",
    "RetainedClients",
    "RidgeRoot",
    "RidgeStatistics",
    "affine",
    "compress",
    "factors_are_smaller",
    "gaussian_projection",
    "group_rows",
    "kernel_weights",
    "map_client_rows",
    "minimum_norm_ridge",
    "prefers_residual",
    "primal_coefs",
    "primal_ridge",
    "random_features",
    "ridge_is_safe",
    "ridge_root",
    "rows_per_block",
    "shift_origin",
    "solve_shared",
    "weighted_sums",
]
