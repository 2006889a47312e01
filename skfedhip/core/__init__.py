"""The numerical core: functions of arrays, numpy and scipy only."""

from ._blocks import ClientBlock, rows_per_block
from ._calibration import TEMPERATURES, best_temperature, temperature_losses
from ._design import DesignBlock, compress, group_rows
from ._grid import (
    anapfl_held_out,
    anapfl_leave_one_out,
    fedhip_held_out,
    fedhip_leave_one_out,
)
from ._leave_one_out import (
    Rotation,
    classes_left,
    complement,
    held_out_errors,
    kernel_spectrum,
    leave_one_out_errors,
    left_out,
    scores_from_errors,
)
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
from ._proximal import shrink_singular_values
from ._random_features import ACTIVATIONS, gaussian_projection, random_features
from ._refinement import Smoother, dual_refinement, refinement_errors
from ._retained import RetainedClients
from ._ridge import (
    RidgeRoot,
    fitted_values,
    kernel_weights,
    minimum_norm_ridge,
    minimum_norm_root,
    prefers_residual,
    primal_coefs,
    ridge_is_safe,
    ridge_root,
    shared_root,
    shift_drowns,
    spectral_root,
    weighted_sums,
)
from ._sized import Sized
from ._statistics import RidgeFactor, RidgeStatistics

__all__ = [
    "ACTIVATIONS",
    "TEMPERATURES",
    "ClientBlock",
    "DenseModels",
    "DesignBlock",
    "FactoredModels",
    "Moments",
    "PersonalModels",
    "RetainedClients",
    "RidgeFactor",
    "RidgeRoot",
    "RidgeStatistics",
    "Rotation",
    "Sized",
    "Smoother",
    "affine",
    "anapfl_held_out",
    "anapfl_leave_one_out",
    "best_temperature",
    "classes_left",
    "complement",
    "compress",
    "dual_refinement",
    "factors_are_smaller",
    "fedhip_held_out",
    "fedhip_leave_one_out",
    "fitted_values",
    "gaussian_projection",
    "group_rows",
    "held_out_errors",
    "kernel_spectrum",
    "kernel_weights",
    "leave_one_out_errors",
    "left_out",
    "map_client_rows",
    "minimum_norm_ridge",
    "minimum_norm_root",
    "prefers_residual",
    "primal_coefs",
    "random_features",
    "refinement_errors",
    "ridge_is_safe",
    "ridge_root",
    "rows_per_block",
    "scores_from_errors",
    "shared_root",
    "shift_drowns",
    "shift_origin",
    "shrink_singular_values",
    "spectral_root",
    "temperature_losses",
    "weighted_sums",
]
