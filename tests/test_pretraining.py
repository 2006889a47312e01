"""Pretraining: it learns, it goes on where it was stopped, and what it writes can be used."""

import csv
import json
import os
import threading

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import ViTMAEModel
from transformers.utils import logging as transformers_logging

from skfedhip.feature_extraction import ViTMAETransformer
from skfedhip.feature_extraction._backbone import quiet_transformers
from skfedhip.pretraining import pretrain_vit_mae, small_vit_mae_config
from skfedhip.pretraining.__main__ import main
from skfedhip.pretraining._model import new_model
from skfedhip.pretraining._training import RESULTS, STATE, Training


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
        new_model(tiny_config(), 0).vit.layers[0].mlp.fc1.weight,
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
    model = new_model(config, 0)
    assert model.vit.embeddings.cls_token.abs().max() > 0
    positions = model.vit.embeddings.position_embeddings[0]
    assert positions.shape == (17, 16)
    assert not positions[0].any()
    distances = torch.cdist(positions[1:], positions[1:])
    assert distances[~torch.eye(16, dtype=torch.bool)].min() > 0.5  # no two places look alike
    again, other = new_model(config, 0), new_model(config, 1)
    pairs = zip(model.parameters(), again.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert not torch.equal(model.vit.embeddings.cls_token, other.vit.embeddings.cls_token)


@pytest.mark.parametrize("stopped_at", [0, 1, 2])
def test_an_interrupted_training_ends_with_the_same_numbers(
    images, tmp_path, monkeypatch, stopped_at
):
    whole = train(images, tmp_path / "whole")
    epoch = Training.epoch

    def interrupted(self, *args):
        if len(self.losses) == stopped_at:
            raise KeyboardInterrupt
        return epoch(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "epoch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(images, tmp_path / "parts")
    if stopped_at:
        assert len(losses(tmp_path / "parts")) == stopped_at
    parts = train(images, tmp_path / "parts")
    assert losses(parts) == losses(whole)
    for file in ("model.safetensors", "training_state.safetensors"):
        ours, theirs = load_file(parts / file), load_file(whole / file)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_results_are_whole_or_as_they_were(images, tmp_path, monkeypatch):
    made = train(images, tmp_path, epochs=1, warmup_epochs=0)
    before = {path.name: path.read_bytes() for path in made.iterdir()}
    (made / "config.json").unlink()

    def interrupted(file):
        raise KeyboardInterrupt

    monkeypatch.setattr("skfedhip.pretraining._training.csv.writer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(images, tmp_path, epochs=1, warmup_epochs=0)
    del before["config.json"]  # not even this one, which was next
    assert {path.name: path.read_bytes() for path in made.iterdir()} == before


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
    for others in (images[::-1], images.transpose(0, 2, 1), images[:32].repeat(2, axis=0)):
        with pytest.raises(ValueError, match="is of other arguments or images"):
            train(others, tmp_path)  # of the same moments, or nearly
    assert (made / "model.safetensors").read_bytes() == before


def test_a_damaged_or_foreign_state_is_refused(images, tmp_path):
    made = train(images, tmp_path)
    tensors = load_file(made / STATE)
    with_metadata = (made / STATE).read_bytes()
    save_file(tensors, made / STATE)
    with pytest.raises(ValueError, match="was not written by pretrain_vit_mae"):
        train(images, tmp_path)
    header = json.loads(with_metadata[8 : 8 + int.from_bytes(with_metadata[:8], "little")])
    metadata = header["__metadata__"]
    for wrong in ({"model.vit.embeddings.cls_token": torch.zeros(1, 1, 7)}, {}):
        partial = {**tensors, **wrong} if wrong else {}
        save_file(partial, made / STATE, metadata)
        with pytest.raises(ValueError, match="is damaged"):
            train(images, tmp_path)
    save_file(tensors, made / STATE, {**metadata, "losses": "["})
    with pytest.raises(ValueError, match="is damaged"):
        train(images, tmp_path)
    (made / STATE).write_bytes(b"damaged")
    with pytest.raises(ValueError, match="is damaged"):
        train(images, tmp_path)


@pytest.mark.parametrize("name", RESULTS)
def test_another_model_is_not_overwritten(images, tmp_path, name):
    (tmp_path / name).write_text("of somebody else")
    with pytest.raises(ValueError, match=f"holds {name} without {STATE}, so another model"):
        train(images, tmp_path)
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [(name, "of somebody else")]


def test_a_training_that_failed_at_once_leaves_the_directory_free(images, tmp_path):
    with pytest.raises(ValueError, match="The loss is nan in epoch"):
        train(images, tmp_path, lr=1e30)
    assert len(losses(train(images, tmp_path))) == 3


@pytest.mark.parametrize("name", RESULTS)
def test_a_finished_training_writes_again_what_is_missing(images, tmp_path, monkeypatch, name):
    made = train(images, tmp_path)
    before = {file: (made / file).read_bytes() for file in RESULTS}
    (made / name).unlink()
    monkeypatch.setattr(Training, "epoch", lambda self, bar: pytest.fail("nothing is left to do"))
    train(images, tmp_path)
    assert {file: (made / file).read_bytes() for file in RESULTS} == before


def test_numbers_of_numpy_are_numbers(images, tmp_path):
    plain = train(images, tmp_path / "plain", lr=0.125, weight_decay=0.5)
    numpys = {"epochs": np.int64(3), "batch_size": np.uint8(16), "warmup_epochs": np.int8(1)}
    numpys |= {"lr": np.float32(0.125), "weight_decay": np.float64(0.5), "flip": np.True_}
    train(images, tmp_path / "numpy", random_state=np.int32(0), **numpys)
    assert losses(tmp_path / "numpy") == losses(plain)
    train(images, plain, **numpys)  # the same training: it is finished, and nothing is refused
    config = small_vit_mae_config(np.int64(8), np.int8(1), np.int64(2))
    assert (config.image_size, config.num_channels, config.patch_size) == (8, 1, 2)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"epochs": 0}, "epochs must be a whole number, at least 1, got 0"),
        ({"epochs": 2.0}, "epochs must be a whole number, at least 1, got 2.0"),
        ({"batch_size": 0}, "batch_size must be a whole number, at least 1"),
        ({"batch_size": True}, "batch_size must be a whole number, at least 1, got True"),
        ({"warmup_epochs": 3}, "warmup_epochs must be a whole number, from 0 to 2, got 3"),
        ({"lr": 0}, "lr must be a finite number, above 0, got 0"),
        ({"lr": np.nan}, "lr must be a finite number, above 0, got nan"),
        ({"lr": "1"}, "lr must be a finite number, above 0, got '1'"),
        ({"weight_decay": -1}, "weight_decay must be a finite number, at least 0, got -1"),
        ({"weight_decay": np.inf}, "weight_decay must be a finite number, at least 0, got inf"),
        ({"random_state": None}, "random_state must be a whole number, from 0 to 4294967295"),
        ({"random_state": -1}, "random_state must be a whole number, from 0 to 4294967295"),
        ({"device": "nonsense"}, "There is no device 'nonsense'"),
        ({"config": tiny_config(patch_size=3)}, "multiple of patch_size, got 8 and 3"),
        ({"config": tiny_config(patch_size=0)}, "config.patch_size must be a whole number, at le"),
        ({"config": tiny_config(patch_size=-7)}, "config.patch_size must be a whole number, at l"),
        ({"config": tiny_config(hidden_size=10)}, "config.hidden_size must be a multiple of 4"),
        ({"config": tiny_config(num_attention_heads=3)}, "of the 3 heads, got 16"),
        ({"config": tiny_config(decoder_hidden_size=6)}, "config.decoder_hidden_size must be a mu"),
        ({"config": tiny_config(decoder_num_attention_heads=3)}, "of the 3 heads, got 8"),
        ({"config": tiny_config(num_hidden_layers=0)}, "config.num_hidden_layers must be a whole"),
        ({"config": tiny_config(num_channels=2)}, "config.num_channels must be 1 or 3, got 2"),
        ({"config": tiny_config(mask_ratio=0.0)}, "config.mask_ratio must hide some of the 16 pa"),
        ({"config": tiny_config(mask_ratio=1.0)}, "leave some to be seen, got 1, which leaves 0"),
        ({"config": tiny_config(mask_ratio=1.5)}, "leave some to be seen, got 1.5, which leaves"),
        ({"config": tiny_config(mask_ratio=0.95)}, "leave some to be seen, got 0.95, which leav"),
        ({"config": tiny_config(hidden_dropout_prob=0.1)}, "config.hidden_dropout_prob must be 0"),
        ({"config": tiny_config(layer_norm_eps=-1.0)}, "config.layer_norm_eps must be a finite"),
        ({"config": tiny_config(hidden_act="magic")}, "config.hidden_act must be one of gelu, "),
        ({"config": tiny_config(image_size=10)}, "Image 0 has shape"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_written(images, tmp_path, params, message):
    with pytest.raises(ValueError, match=message):
        train(images, tmp_path / "made", **params)
    assert not (tmp_path / "made").exists()


def test_a_configuration_is_one_of_transformers(images, tmp_path):
    with pytest.raises(TypeError, match=r"must be a transformers\.ViTMAEConfig, got dict"):
        train(images, tmp_path, config={"hidden_size": 16})
    with pytest.raises(ValueError, match="patch_size must be a whole number, at least 1, got 0"):
        small_vit_mae_config(patch_size=0)


@pytest.mark.parametrize("where", ["/proc/skfedhip", "{}/a file", "{}/a file/deeper"])
def test_a_directory_that_cannot_be_written_is_refused_first(tmp_path, where):
    (tmp_path / "a file").touch()
    with pytest.raises(OSError, match="No files can be written in"):
        train("no images, but nobody looks", where.format(tmp_path))


def test_silence_is_of_one_thread_at_a_time():
    level, inside = transformers_logging.get_verbosity(), threading.Event()

    def other():
        with quiet_transformers():
            inside.set()

    thread = threading.Thread(target=other)
    with quiet_transformers():
        thread.start()
        assert not inside.wait(0.1)
    thread.join()
    assert inside.is_set()
    assert transformers_logging.get_verbosity() == level


def fail(capsys, *command):
    """The one line that an error prints."""
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in command])
    err = capsys.readouterr().err
    assert left.value.code == 2
    assert err.count("error:") == 1
    return err


def test_the_command(images, tmp_path, capsys):
    file, made = tmp_path / "images.npy", tmp_path / "made"
    np.save(file, np.repeat(images[..., None], 3, axis=-1))
    command = [str(file), str(made), "--epochs", "1", "--patch-size", "4"]
    assert main(command) == 0
    assert "use it as ViTMAETransformer" in capsys.readouterr().out
    assert ViTMAETransformer(made).transform(images).shape == (64, 192)
    assert "is of other arguments" in fail(capsys, file, made, "--epochs", 1, "--patch-size", 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--seed -1", "random_state must be a whole number, from 0"),
        ("--epochs 0", "epochs must be a whole number, at least 1, got 0"),
        ("--epochs two", "invalid int value: 'two'"),
        ("--batch-size 0", "batch_size must be a whole number"),
        ("--lr 0", "lr must be a finite number, above 0"),
        ("--patch-size -7", "patch_size must be a whole number, at least 1, got -7"),
        ("--patch-size 3", "must be a multiple of patch_size, got 8 and 3"),
        ("--threads -1", f"--threads must be a whole number, from 1 to {os.cpu_count()}, got -1"),
        ("--threads 0", "--threads must be a whole number, from 1"),
        ("--device nonsense", "There is no device 'nonsense'"),
    ],
)
def test_wrong_options_of_the_command(images, tmp_path, capsys, options, message):
    np.save(tmp_path / "images.npy", images)
    command = [tmp_path / "images.npy", tmp_path / "made", "--patch-size", 2, *options.split()]
    assert message in fail(capsys, *command)
    assert not (tmp_path / "made").exists()


def write_broken(path, images):
    """Files that are no images, each in its own way; the words that its error has."""
    with open(path / "several.npz", "wb") as file:
        np.savez(file, images=images)
    (path / "empty.npy").touch()
    (path / "picture.npy").write_bytes(b"\x89PNG")
    np.save(path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.save(path / "number.npy", np.array(3))
    np.save(path / "flat.npy", images.reshape(64, 64))
    np.save(path / "none.npy", images[:0])
    np.save(path / "nan.npy", np.full((2, 8, 8), np.nan))
    np.save(path / "complex.npy", images.astype(complex))
    np.save(path / "wide.npy", np.zeros((2, 8, 9), np.uint8))
    return {
        "several.npz": "is an .npz file of several arrays",
        "empty.npy": "is neither a directory of idx files nor an .npy file",
        "picture.npy": "is neither a directory of idx files nor an .npy file",
        "objects.npy": "is neither a directory of idx files nor an .npy file",
        "number.npy": "X has shape (1,)",
        "flat.npy": "rows of numbers",
        "none.npy": "X holds no images",
        "nan.npy": "Image 0 has NaN or infinite pixels",
        "complex.npy": "dtype complex128",
        "wide.npy": "Image 0 has shape (1, 8, 9)",
        "missing.npy": "There is no file or directory",
        ".": "There is no train-images-idx3-ubyte",
    }


def test_files_that_are_no_images(images, tmp_path, capsys):
    for name, words in write_broken(tmp_path, images).items():
        assert words in fail(capsys, tmp_path / name, tmp_path / "made", "--patch-size", 2)
    assert not (tmp_path / "made").exists()
