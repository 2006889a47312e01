"""Numbers and configurations, checked before any work."""

import copy
import math
from numbers import Integral, Real

from transformers import ViTMAEConfig
from transformers.activations import ACT2FN

_SIZES = (
    "image_size",
    "patch_size",
    "num_channels",
    *(
        f"{part}{name}"
        for part in ("", "decoder_")
        for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    ),
)


def whole_number(name, value, low, high=math.inf):
    """The value as an int; ValueError unless it is one from ``low`` to ``high``."""
    if not isinstance(value, Integral) or isinstance(value, bool) or not low <= value <= high:
        bounds = f"at least {low}" if high == math.inf else f"from {low} to {high}"
        raise ValueError(f"{name} must be a whole number, {bounds}, got {value!r}.")
    return int(value)


def finite_number(name, value, *, positive=False):
    """The value as a float; ValueError unless it is finite and at least 0, or above it."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not 0 <= value < math.inf or (positive and value == 0):
        bounds = "above 0" if positive else "at least 0"
        raise ValueError(f"{name} must be a finite number, {bounds}, got {value!r}.")
    return float(value)


def checked_config(config):
    """A copy of a configuration with plain numbers; TypeError or ValueError if it can't be trained.

    Dropout is refused since its random numbers would not be the same after an interruption.
    """
    if not isinstance(config, ViTMAEConfig):
        raise TypeError(
            f"config must be a transformers.ViTMAEConfig, got {type(config).__name__}; "
            "small_vit_mae_config makes one."
        )
    config = copy.deepcopy(config)
    for name in _SIZES:
        setattr(config, name, whole_number(f"config.{name}", getattr(config, name), 1))
    for name in ("initializer_range", "layer_norm_eps"):
        setattr(config, name, finite_number(f"config.{name}", getattr(config, name)))
    if config.num_channels not in (1, 3):
        raise ValueError(f"config.num_channels must be 1 or 3, got {config.num_channels}.")
    for part in ("", "decoder_"):
        width, heads = (
            getattr(config, f"{part}{n}") for n in ("hidden_size", "num_attention_heads")
        )
        if width % 4 or width % heads:
            raise ValueError(
                f"config.{part}hidden_size must be a multiple of 4, for the positions, and of the "
                f"{heads} heads, got {width}."
            )
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        if getattr(config, name) != 0:
            raise ValueError(f"config.{name} must be 0, got {getattr(config, name)!r}.")
    if config.hidden_act not in ACT2FN:
        raise ValueError(
            f"config.hidden_act must be one of {', '.join(ACT2FN)}, got {config.hidden_act!r}."
        )
    _check_patches(config)
    return config


def _check_patches(config):
    side, patch = config.image_size, config.patch_size
    if side % patch:
        raise ValueError(
            f"config.image_size must be a multiple of patch_size, got {side} and {patch}."
        )
    n_patches = (side // patch) ** 2
    config.mask_ratio = finite_number("config.mask_ratio", config.mask_ratio)
    n_seen = int(n_patches * (1 - config.mask_ratio))  # as transformers rounds it
    if not 0 < n_seen < n_patches:
        raise ValueError(
            f"config.mask_ratio must hide some of the {n_patches} patches and leave some to be "
            f"seen, got {config.mask_ratio:g}, which leaves {max(n_seen, 0)}."
        )
