"""Small ViT-MAEs with weights that move everything: positions, tokens and layers all matter."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import ViTMAEConfig, ViTMAEForPreTraining

RGB_PROCESSOR = {
    "do_normalize": True,
    "do_resize": True,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "size": {"height": 32, "width": 32},
    "resample": 2,
    "image_mean": [0.485, 0.456, 0.406],
    "image_std": [0.229, 0.224, 0.225],
    "image_processor_type": "ViTImageProcessor",
}


def vit_mae(**changes):
    """A model whose weights are all random: transformers leaves the positions at zero."""
    config = {
        "hidden_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "intermediate_size": 48,
        "decoder_hidden_size": 12,
        "decoder_num_hidden_layers": 1,
        "decoder_num_attention_heads": 3,
        "decoder_intermediate_size": 24,
        "image_size": 32,
        "patch_size": 8,
        "num_channels": 3,
    }
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = ViTMAEForPreTraining(ViTMAEConfig(**{**config, **changes}))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(std=0.3)
    return model.eval()


@pytest.fixture(scope="session")
def rgb_model():
    return vit_mae()


@pytest.fixture(scope="session")
def rgb_checkpoint(tmp_path_factory, rgb_model):
    """Directory of a colour model with the image processor of the published ones."""
    directory = tmp_path_factory.mktemp("rgb")
    rgb_model.save_pretrained(directory)
    (directory / "preprocessor_config.json").write_text(json.dumps(RGB_PROCESSOR))
    return directory


@pytest.fixture
def grey_images():
    """Bytes (12, 28, 28)."""
    return np.random.default_rng(0).integers(0, 256, (12, 28, 28), dtype=np.uint8)


@pytest.fixture
def photos():
    """Smooth colour images (6, 45, 60, 3), bytes: on noise, rounding errors of resizing add up."""
    rng = np.random.default_rng(1)
    y, x = np.mgrid[:45, :60] / 10
    phases = rng.uniform(0, 6, (6, 1, 1, 3))
    waves = np.sin(y[..., None] + phases) + np.cos(x[..., None] * 1.7 + 2 * phases)
    return np.rint(255 * (waves + 2) / 4).astype(np.uint8)


@pytest.fixture
def rgb_images():
    return np.random.default_rng(2).integers(0, 256, (5, 32, 32, 3), dtype=np.uint8)


@pytest.fixture
def files(tmp_path, grey_images):
    """Paths of PNG files of the grey images."""
    paths = []
    for number, image in enumerate(grey_images):
        paths.append(str(tmp_path / f"{number}.png"))
        Image.fromarray(image).save(paths[-1])
    return paths
