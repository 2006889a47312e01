"""Types of command-line arguments; a wrong one ends in a sentence."""

import argparse
import math
from pathlib import Path

import numpy as np

from ..utils._files import check_writable
from ._data import cache_directory
from ._run import GROUPS, METHODS

_LARGEST = float(np.finfo(np.float32).max)
"""Networks are trained in single precision."""


def whole_number(low, high=math.inf):
    def convert(text):
        value = _int(text)
        if not low <= value <= high:
            bounds = f"at least {low}" if high == math.inf else f"from {low} to {high}"
            raise argparse.ArgumentTypeError(f"must be {bounds}, got {text}.")
        return value

    return convert


def n_jobs(text):
    value = _int(text)
    if value == 0:
        raise argparse.ArgumentTypeError("must be at least 1, or -1 for one a core, got 0.")
    return value


def _int(text):
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}.") from None


def concentration(text):
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a finite number above 0, got {text!r}.")
    return value


def positive_numbers(text):
    """Numbers above 0, separated by commas; inf is one."""
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = [math.nan]
    if not all(value > 0 for value in values):
        raise argparse.ArgumentTypeError(f"must be numbers above 0, or inf, got {text!r}.")
    return values


def method_names(text):
    words = [name.strip() for name in text.split(",")]
    names = list(dict.fromkeys(name for word in words for name in GROUPS.get(word, [word])))
    for name in names:
        if name not in METHODS:
            raise argparse.ArgumentTypeError(
                f"there is no method {name!r}; choose among {', '.join(METHODS)}, or name one of "
                f"the groups {', '.join(GROUPS)}."
            )
    return names


def step_size(text):
    value = concentration(text)
    if value > _LARGEST:
        raise argparse.ArgumentTypeError(f"must be at most {_LARGEST:g}, got {text!r}.")
    return value


def several(convert):
    """The type of values of one type that commas separate, each value once."""

    def convert_all(text):
        return list(dict.fromkeys(convert(each) for each in text.split(",")))

    return convert_all


def path(text):
    if not text:
        raise argparse.ArgumentTypeError("is an empty path; name one.")
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise argparse.ArgumentTypeError(f"there is no such home directory: {text!r}.") from None


def output_file(text):
    file = path(text)
    try:
        folder = file.resolve().parent  # a link is written through
        if not folder.is_dir():
            raise argparse.ArgumentTypeError(f"there is no directory {str(folder)!r}; make it.")
        if file.exists() and not file.is_file():
            raise argparse.ArgumentTypeError(f"{text!r} is not a file; name one to write to.")
        check_writable(folder)
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise argparse.ArgumentTypeError(str(error)) from None
    return file


def picture_file(text):
    file = output_file(text)
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError:
        raise argparse.ArgumentTypeError(
            "pictures need matplotlib; pip install 'skfedhip[plot]'."
        ) from None
    kinds = FigureCanvasBase.get_supported_filetypes()
    if file.suffix[1:].lower() not in kinds:
        raise argparse.ArgumentTypeError(
            f"{text!r} must end in one of .{', .'.join(kinds)}, as matplotlib knows them."
        )
    return file


def new_folder(text):
    folder = path(text)
    try:
        check_writable(folder)
    except OSError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return folder


def add_feature_options(option):
    """What images are turned into before anything is fitted."""
    option(
        "--features",
        metavar="KIND",
        default="pixels",
        help=(
            "pixels, images (for networks: a CNN), or the ViT-MAE whose class tokens are used: "
            "vit-mae-tiny, a directory or a hub's name (default: %(default)s)"
        ),
    )
    option(
        "--cache",
        metavar="DIR",
        type=new_folder,
        default=cache_directory(),
        help="where a model's features are kept between runs (default: %(default)s)",
    )
