"""Types of command-line arguments; a wrong one ends in a sentence."""

import argparse
import math
from pathlib import Path

from ._data import cache_directory
from ._run import GROUPS, METHODS


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


def learning_rates(text):
    return [concentration(each) for each in text.split(",")]


def output_file(text):
    path = Path(text).expanduser()
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no directory {str(path.parent)!r}; make it.")
    if path.exists() and not path.is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is not a file; name one to write to.")
    return path


def add_feature_options(option):
    """What images are turned into before anything is fitted."""
    option(
        "--features",
        metavar="KIND",
        default="pixels",
        help=(
            "pixels, or the ViT-MAE whose class tokens are used: vit-mae-tiny, a directory or a "
            "hub's name (default: %(default)s)"
        ),
    )
    option(
        "--cache",
        metavar="DIR",
        default=cache_directory(),
        help="where a model's features are kept between runs (default: %(default)s)",
    )
