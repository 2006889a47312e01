"""Pretraining: it learns, it goes on where it was stopped, and what it writes can be used."""

import csv

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import ViTMAEModel

from skfedhip import pretraining
from skfedhip.feature_extraction import ViTMAETransformer
from skfedhip.pretraining import main, pretrain_vit_mae, small_vit_mae_config


def tiny_config(**changes):
    config = small_vit_mae_config(image_size=8, patch_size=2)
    tiny = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    decoder = {"decoder_hidden_size": 8, "decoder_num_attention_heads": 2}
    for name, value in {**tiny, **decoder, "intermediate_size": 32, **changes}.items():
        setattr(config, name, value)
    return config


@pytest.fixture
def images():
    """Images (64, 8, 8), bytes, each a slope of its own: a patch says much about the others."""
    rng = np.random.default_rng(0)
    levels, slopes = rng.uniform(80, 180, (64, 1, 1)), rng.uniform(-10, 10, (64, 1, 1))
    return np.rint(levels + slopes * np.arange(8) + np.zeros((8, 1))).astype(np.uint8)


def train(images, output_dir, **params):
    settings = {"epochs": 3, "batch_size": 16, "warmup_epochs": 1, "config": tiny_config()}
    return pretrain_vit_mae(images, output_dir=output_dir, **{**settings, **params})


def losses(directory):
    with open(directory / "loss_curve.csv", newline="") as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]


def test_the_loss_falls_below_that_of_a_constant(images, tmp_path):
    made = train(images, tmp_path, epochs=30, lr=1e-2)
    curve = losses(made)
    assert len(curve) == 30
    assert curve[0] > 1  # normalised pixels have a variance of 1
    assert curve[-1] < 0.6


def test_the_checkpoint_is_the_trained_encoder_in_half_precision(images, tmp_path):
    made = train(images, tmp_path)
    state = load_file(made / "training_state.safetensors")
    encoder = ViTMAEModel.from_pretrained(made, dtype=torch.float32)
    for name, weight in encoder.named_parameters():
        torch.testing.assert_close(weight, state[f"model.vit.{name}"], atol=1e-3, rtol=1e-3)
    assert not torch.equal(
        encoder.layers[0].mlp.fc1.weight,
        pretraining.new_model(tiny_config(), 0).vit.layers[0].mlp.fc1.weight,
    )
    assert (made / "model.safetensors").stat().st_size < 2.2 * sum(
        weight.numel() for weight in encoder.parameters()
    ) + 10_000
    features = ViTMAETransformer(made).transform(images)
    assert features.shape == (64, 16)
    assert np.ptp(features, axis=0).max() > 0.1


def test_pixels_are_normalised_by_the_images_own_moments(images, tmp_path):
    transformer = ViTMAETransformer(train(images, tmp_path))
    preprocessing = transformer._plan().preprocessing
    np.testing.assert_allclose(preprocessing.mean, images.mean() / 255, atol=1e-4)
    np.testing.assert_allclose(preprocessing.std, images.std() / 255, atol=1e-4)


def test_positions_and_tokens_are_initialised():
    config = tiny_config()
    model = pretraining.new_model(config, 0)
    assert model.vit.embeddings.cls_token.abs().max() > 0
    positions = model.vit.embeddings.position_embeddings[0]
    assert positions.shape == (17, 16)
    assert not positions[0].any()
    distances = torch.cdist(positions[1:], positions[1:])
    assert distances[~torch.eye(16, dtype=torch.bool)].min() > 0.5  # no two places look alike
    again, other = pretraining.new_model(config, 0), pretraining.new_model(config, 1)
    pairs = zip(model.parameters(), again.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert not torch.equal(model.vit.embeddings.cls_token, other.vit.embeddings.cls_token)


@pytest.mark.parametrize("stopped_at", [1, 2])
def test_an_interrupted_training_ends_with_the_same_numbers(
    images, tmp_path, monkeypatch, stopped_at
):
    whole = train(images, tmp_path / "whole")
    epoch = pretraining._Training.epoch

    def interrupted(self, *args):
        if len(self.losses) == stopped_at:
            raise KeyboardInterrupt
        return epoch(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(pretraining._Training, "epoch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(images, tmp_path / "parts")
    assert len(losses(tmp_path / "parts")) == stopped_at
    parts = train(images, tmp_path / "parts")
    assert losses(parts) == losses(whole)
    for file in ("model.safetensors", "training_state.safetensors"):
        ours, theirs = load_file(parts / file), load_file(whole / file)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_the_global_generators_stay_as_they_are(images, tmp_path):
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002
    train(images, tmp_path / "a", epochs=2)
    drawn = torch.rand(1), np.random.rand()  # noqa: NPY002
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002
    assert drawn == (torch.rand(1), np.random.rand())  # noqa: NPY002


def test_a_directory_of_another_training_is_left_alone(images, tmp_path):
    made = train(images, tmp_path)
    before = (made / "model.safetensors").read_bytes()
    for params in ({"random_state": 1}, {"epochs": 4}, {"config": tiny_config(mask_ratio=0.5)}):
        with pytest.raises(ValueError, match="is of other arguments or images"):
            train(images, tmp_path, **params)
    with pytest.raises(ValueError, match="is of other arguments or images"):
        train(255 - images, tmp_path)
    (made / "training_state.safetensors").write_bytes(b"damaged")
    with pytest.raises(ValueError, match="is damaged"):
        train(images, tmp_path)
    assert (made / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"warmup_epochs": 3}, "warmup_epochs must be from 0 to 2"),
        ({"config": tiny_config(patch_size=3)}, "multiple of patch_size"),
        ({"config": tiny_config(image_size=10)}, "Image 0 has shape"),
        ({"lr": 1e9}, "The loss is nan in epoch"),
    ],
)
def test_wrong_arguments(images, tmp_path, params, message):
    with pytest.raises(ValueError, match=message):
        train(images, tmp_path, **params)


def test_the_command(images, tmp_path, capsys, monkeypatch):
    file = tmp_path / "images.npy"
    np.save(file, np.repeat(images[..., None], 3, axis=-1))
    command = [str(file), str(tmp_path / "made"), "--epochs", "1", "--patch-size", "4"]
    assert main(command) == 0
    assert "use it as ViTMAETransformer" in capsys.readouterr().out
    assert ViTMAETransformer(tmp_path / "made").transform(images).shape == (64, 192)
    for wrong in (["/no/such/directory", "x"], [str(file), str(tmp_path / "made"), "--seed", "2"]):
        with pytest.raises(SystemExit) as left:
            main(wrong)
        assert left.value.code == 2
        assert capsys.readouterr().err.count("error:") == 1
