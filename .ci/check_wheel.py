"""Run where only the wheel is installed: it is imported, and has what belongs in it."""

import sys
from importlib.metadata import version
from importlib.resources import files

import numpy as np

import skfedhip
from skfedhip.feature_extraction import ViTMAETransformer

assert skfedhip.__file__.startswith(sys.prefix), skfedhip.__file__
assert skfedhip.__version__ == version("skfedhip")
assert files("skfedhip").joinpath("py.typed").is_file()
images = np.zeros((2, 28, 28), dtype=np.uint8)
assert ViTMAETransformer().fit_transform(images).shape == (2, 192)  # the checkpoint on board
