"""Preprocessing against the image processor of transformers, which resizes by PIL."""

import json
import re

import numpy as np
import pytest
import torch
from transformers import AutoImageProcessor

from skfedhip.feature_extraction import _preprocessing
from skfedhip.feature_extraction._preprocessing import Preprocessing

CPU = torch.device("cpu")
CONFIG = {"image_size": 32, "num_channels": 3}
NORMALISED = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}


def channels_first(images):
    return list(images.transpose(0, 3, 1, 2))


def reference(directory, processor, images):
    """Pixel values (n, 3, h, w) of transformers' own processor."""
    settings = {"image_processor_type": "ViTImageProcessor", **processor}
    (directory / "preprocessor_config.json").write_text(json.dumps(settings))
    own = AutoImageProcessor.from_pretrained(directory, backend="pil")
    return own(list(images), return_tensors="np")["pixel_values"]


@pytest.mark.parametrize("resizes_bytes", [True, False])
@pytest.mark.parametrize("resample", [2, 3])
@pytest.mark.parametrize("size", [(32, 32), (45, 60), (96, 64), (20, 31)])
def test_pixels_are_the_processors(tmp_path, photos, monkeypatch, size, resample, resizes_bytes):
    processor = {"size": {"height": size[0], "width": size[1]}, "resample": resample, **NORMALISED}
    if not resizes_bytes:
        monkeypatch.setattr(_preprocessing, "_RESIZE_BYTES", ())
    pixels = Preprocessing.from_processor(processor, CONFIG)(channels_first(photos), CPU)
    std = np.array(NORMALISED["image_std"])[:, None, None]
    levels = 255 * std * np.abs(pixels.numpy() - reference(tmp_path, processor, photos))
    assert levels.max() < 2.001
    assert levels.mean() < 0.25


def test_floats_are_resized_as_the_bytes_they_stand_for(photos):
    prepare = Preprocessing.from_processor({}, CONFIG)
    floats = [(photo / np.float32(255)) for photo in channels_first(photos)]
    torch.testing.assert_close(prepare(floats, CPU), prepare(channels_first(photos), CPU))


@pytest.mark.parametrize(
    ("processor", "config", "expected"),
    [
        ({}, CONFIG, ((32, 32), "bilinear", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))),
        (
            {"size": 64, "resample": 3, **NORMALISED},
            CONFIG,
            ((64, 64), "bicubic", *map(tuple, NORMALISED.values())),
        ),
        ({}, {"image_size": 28, "num_channels": 1}, ((28, 28), "bilinear", (0.5,), (0.5,))),
        ({"do_normalize": False}, CONFIG, ((32, 32), "bilinear", (0.0,) * 3, (1.0,) * 3)),
        (
            {"size": None, "do_pad": None, "crop_size": 9},
            {"image_size": 28, "num_channels": 1},
            ((28, 28), "bilinear", (0.5,), (0.5,)),
        ),
        (
            {"rescale_factor": 1 / 510, "image_mean": 0.25, "image_std": [0.5]},
            CONFIG,
            ((32, 32), "bilinear", (0.5,) * 3, (1.0,) * 3),
        ),
    ],
)
def test_settings_of_a_checkpoint(processor, config, expected):
    assert Preprocessing.from_processor(processor, config) == Preprocessing(*expected)


@pytest.mark.parametrize(
    ("processor", "wanted"),
    [
        ({"size": {"shortest_edge": 224}}, "a height and a width"),
        ({"size": [32, 32, 32]}, "a height and a width"),
        ({"size": "32"}, "a height and a width"),
        ({"size": 0}, "a height and a width"),
        ({"resample": 1}, "2 or 3"),
        ({"resample": [2]}, "2 or 3"),
        ({"do_resize": False}, "True"),
        ({"do_rescale": False}, "True"),
        ({"do_center_crop": True}, "False"),
        ({"do_pad": True}, "False"),
        ({"do_flip_channel_order": True}, "False"),
        ({"do_grayscale": 1}, "False"),
        ({"rescale_factor": 0}, "a number above 0"),
        ({"rescale_factor": "1/255"}, "a number above 0"),
        ({"image_std": [0.2, 0.0, 0.2]}, "3 numbers above 0"),
        ({"image_std": [0.2, 0.2]}, "3 numbers above 0"),
        ({"image_mean": ["a", "b", "c"]}, "3 numbers"),
        ({"image_mean": float("nan")}, "3 numbers"),
    ],
)
def test_settings_that_are_not_carried_out_are_refused(processor, wanted):
    ((name, value),) = processor.items()
    with pytest.raises(ValueError, match=re.escape(f"has {name}={value!r}, where {wanted} is")):
        Preprocessing.from_processor(processor, CONFIG)


def test_models_take_grey_or_colour():
    with pytest.raises(ValueError, match="1 or 3 channels, got 4"):
        Preprocessing.from_processor({}, {"image_size": 32, "num_channels": 4})
