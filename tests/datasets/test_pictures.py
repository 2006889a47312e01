"""CIFAR batches and image folders: read as they are, refused by name, and no pickle runs code."""

import os
import pickle

import numpy as np
import pytest

from skfedhip.datasets import load_cifar, load_image_folder

TEN = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
HUNDRED = ["train", "test"]


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def write(path, images, labels, *, binary, names):
    """One batch: labels with red, green and blue planes, or a pickle as Python 2 wrote it."""
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    coarse = np.zeros_like(labels)
    if binary:
        columns = [labels] if names == TEN else [coarse, labels]
        content = np.column_stack([*columns, planes]).astype(np.uint8).tobytes()
    else:
        keys = (
            {b"labels": labels}
            if names == TEN
            else {b"fine_labels": labels, b"coarse_labels": coarse}
        )
        content = pickle.dumps(
            {b"data": planes, b"filenames": [b"a.png"] * len(labels)}
            | {key: value.tolist() for key, value in keys.items()},
            protocol=2,
        )
    path.with_suffix(".bin" if binary else "").write_bytes(content)


@pytest.mark.parametrize("names", [TEN, HUNDRED], ids=["cifar10", "cifar100"])
@pytest.mark.parametrize("binary", [True, False])
def test_batches_are_read(tmp_path, rng, names, binary):
    images = rng.integers(0, 256, (3 * len(names), 32, 32, 3), dtype=np.uint8)
    labels = rng.integers(0, 10, len(images))
    for part, name in enumerate(names):
        rows = slice(3 * part, 3 * part + 3)
        write(tmp_path / name, images[rows], labels[rows], binary=binary, names=names)
    data = load_cifar(str(tmp_path))
    np.testing.assert_array_equal(data.images, images)
    np.testing.assert_array_equal(data.target, labels)
    assert data.train_size == len(images) - 3


class Trap:
    def __reduce__(self):
        return os.mkdir, ("trapped",)


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps({b"data": Trap(), b"fine_labels": [1]}),
        pickle.dumps({b"data": np.zeros((1, 3072)), b"fine_labels": [1]}),
        pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"fine_labels": [1]}),
        pickle.dumps({b"data": np.zeros((1, 3072), np.uint8)}),
        pickle.dumps([1, 2]),
        b"no pickle",
        b"",
    ],
)
def test_a_pickle_of_anything_else_is_refused(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    for name in HUNDRED:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=r"train' is no CIFAR batch: "):
        load_cifar(tmp_path)
    assert not (tmp_path / "trapped").exists()


def test_damaged_and_missing_batches(tmp_path):
    with pytest.raises(FileNotFoundError, match="unpack CIFAR"):
        load_cifar(tmp_path)
    for name in HUNDRED:
        (tmp_path / f"{name}.bin").write_bytes(bytes(3075))
    with pytest.raises(ValueError, match=r"train.bin' has 3075 bytes, no multiple of 3074"):
        load_cifar(tmp_path)


def test_folders_are_classes(tmp_path):
    files = ["b/2.JPG", "b/deep/1.png", "a/3.jpeg", "a/notes.txt", "loose.png"]
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    data = load_image_folder(tmp_path)
    assert data.paths.tolist() == [str(tmp_path / name) for name in (files[2], files[0], files[1])]
    assert data.target.tolist() == ["a", "b", "b"]
    assert data.train_size == 3


def test_tiny_imagenet(tmp_path):
    for name in ("train/n01/images/n01_0.JPEG", "train/n02/images/n02_0.JPEG", "val/images/v.JPEG"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "val" / "val_annotations.txt").write_text("v.JPEG\tn02\t0\t0\t9\t9\n")
    data = load_image_folder(tmp_path)
    assert data.target.tolist() == ["n01", "n02", "n02"]
    assert data.paths[-1] == str(tmp_path / "val" / "images" / "v.JPEG")
    assert data.train_size == 2


def test_no_folder_or_no_images(tmp_path):
    with pytest.raises(FileNotFoundError, match="no directory"):
        load_image_folder(tmp_path / "none")
    (tmp_path / "a").mkdir()
    with pytest.raises(FileNotFoundError, match="no images in folders"):
        load_image_folder(tmp_path)
