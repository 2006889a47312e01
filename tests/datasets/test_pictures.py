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
    n_classes = 10 if names == TEN else 100
    for data in (load_cifar(str(tmp_path)), load_cifar(tmp_path, n_classes)):
        np.testing.assert_array_equal(data.images, images)
        np.testing.assert_array_equal(data.target, labels)
        assert data.target.dtype == np.int64
        assert data.train_size == len(images) - 3
    with pytest.raises(FileNotFoundError, match=rf"does not hold all of .*CIFAR-{110 - n_classes}"):
        load_cifar(tmp_path, 110 - n_classes)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("text", [str, str.encode])
def test_every_protocol_of_pickles_is_read(tmp_path, rng, protocol, text):
    pixels = rng.integers(0, 256, (4, 3072), dtype=np.uint8)
    labels = np.array([0, 99, 5, 5])
    batch = {text("data"): pixels, text("fine_labels"): labels}
    for name in HUNDRED:
        (tmp_path / name).write_bytes(pickle.dumps(batch, protocol=protocol))
    data = load_cifar(tmp_path)
    np.testing.assert_array_equal(data.images[:4].transpose(0, 3, 1, 2).reshape(4, -1), pixels)
    np.testing.assert_array_equal(data.target, [*labels, *labels])


def test_the_two_data_sets_are_not_mixed_up(tmp_path):
    for name in [*TEN, *HUNDRED]:
        size = 3073 if name in TEN else 3074
        (tmp_path / f"{name}.bin").write_bytes(bytes([1, 2]) + bytes(size - 2))
    with pytest.raises(ValueError, match="holds both CIFAR-10 and CIFAR-100; pass n_classes"):
        load_cifar(tmp_path)
    assert load_cifar(tmp_path, 10).target.tolist() == [1] * 6
    assert load_cifar(tmp_path, 100).target.tolist() == [2] * 2
    with pytest.raises(ValueError, match="n_classes must be 10, 100 or None, got 20"):
        load_cifar(tmp_path, 20)


@pytest.mark.parametrize(
    ("labels", "match"),
    [
        ([0, 100], r"train' must be from 0 to 99 in CIFAR-100, got 0 to 100"),
        ([-1, 0], r"train' must be from 0 to 99 in CIFAR-100, got -1 to 0"),
        ([0.5, 1], r"train' must be one column of whole numbers, got float64"),
        (["a", "b"], r"train' must be one column of whole numbers, got <U1"),
        ([[0], [1]], r"train' must be one column of whole numbers, got int64 of shape \(2, 1\)"),
        ([], r"train' is no CIFAR batch: uint8 of \(0, 3072\) for 0 labels"),
    ],
)
def test_labels_are_classes(tmp_path, labels, match):
    batch = {b"data": np.zeros((len(labels), 3072), np.uint8), b"fine_labels": labels}
    for name in HUNDRED:
        (tmp_path / name).write_bytes(pickle.dumps(batch))
    with pytest.raises(ValueError, match=match):
        load_cifar(tmp_path)


def test_label_bytes_are_classes(tmp_path):
    for name in TEN:
        (tmp_path / f"{name}.bin").write_bytes(bytes([10]) + bytes(3072))
    with pytest.raises(ValueError, match=r"data_batch_1.bin' must be from 0 to 9"):
        load_cifar(tmp_path)


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
    with pytest.raises(ValueError, match=r"train' is no (CIFAR batch|batch of CIFAR-100): "):
        load_cifar(tmp_path)
    assert not (tmp_path / "trapped").exists()


def test_damaged_and_missing_batches(tmp_path):
    with pytest.raises(FileNotFoundError, match="unpack CIFAR"):
        load_cifar(tmp_path)
    for name in HUNDRED:
        (tmp_path / f"{name}.bin").write_bytes(bytes(3075))
    with pytest.raises(ValueError, match=r"train.bin' has 3075 bytes, no multiple of 3074"):
        load_cifar(tmp_path)


def make_files(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_folders_are_classes(tmp_path):
    files = ["b/2.JPG", "b/deep/1.png", "a/3.jpeg", "a/notes.txt", "loose.png"]
    make_files(tmp_path, *files)
    data = load_image_folder(tmp_path)
    assert data.paths.tolist() == [str(tmp_path / name) for name in (files[2], files[0], files[1])]
    assert data.target.tolist() == ["a", "b", "b"]
    assert data.train_size == 3


def test_what_is_hidden_or_no_image_is_passed_over(tmp_path):
    make_files(tmp_path, "a/1.png", ".cache/2.png", "a/.3.png", "a/.trash/4.png", "a/Thumbs.db")
    make_files(tmp_path, "__MACOSX/a/._1.png", "album.png/5.png", "a/6.png/7.jpg")
    (tmp_path / "empty").mkdir()
    data = load_image_folder(tmp_path)
    names = ["a/1.png", "a/6.png/7.jpg", "album.png/5.png"]
    assert data.paths.tolist() == [str(tmp_path / name) for name in names]
    assert data.target.tolist() == ["a", "a", "album.png"]


def test_links_are_followed_but_not_in_a_circle(tmp_path):
    make_files(tmp_path, "elsewhere/deep/1.png", "images/a/own.png")
    for link, target in (("b", "elsewhere"), ("a/more", "elsewhere/deep"), ("a/circle", "images")):
        (tmp_path / "images" / link).symlink_to(tmp_path / target, target_is_directory=True)
    (tmp_path / "images" / "a" / "here").symlink_to(tmp_path / "images" / "a")
    data = load_image_folder(tmp_path / "images")
    names = ["a/more/1.png", "a/own.png", "b/deep/1.png"]
    assert data.paths.tolist() == [str(tmp_path / "images" / name) for name in names]


@pytest.mark.parametrize("splits", [["train", "val"], ["test", "Train", "valid"], ["train"]])
def test_splits_are_no_classes(tmp_path, splits):
    make_files(tmp_path, *(f"{split}/cat/1.png" for split in splits), "README.md", ".git/1.png")
    with pytest.raises(ValueError, match=r"holds splits \(.*\) in the place of classes; pass one"):
        load_image_folder(tmp_path)
    assert load_image_folder(tmp_path / splits[0]).target.tolist() == ["cat"]
    make_files(tmp_path, "plane/1.png")  # then they are vehicles
    assert "plane" in load_image_folder(tmp_path).target


@pytest.fixture
def tiny_imagenet(tmp_path):
    make_files(tmp_path, "train/n01/images/n01_0.JPEG", "train/n02/images/n02_0.JPEG")
    make_files(tmp_path, "train/n01/n01_boxes.txt", "val/images/v.JPEG", "test/images/t.JPEG")
    (tmp_path / "val" / "val_annotations.txt").write_text("v.JPEG\tn02\t0\t0\t9\t9\n\n \n")
    return tmp_path


def test_tiny_imagenet(tiny_imagenet):
    data = load_image_folder(tiny_imagenet)
    assert data.target.tolist() == ["n01", "n02", "n02"]
    assert data.paths[-1] == str(tiny_imagenet / "val" / "images" / "v.JPEG")
    assert data.train_size == 2
    part = load_image_folder(tiny_imagenet / "val")
    assert (part.paths.tolist(), part.target.tolist()) == ([data.paths[-1]], ["n02"])


def test_a_damaged_tiny_imagenet(tiny_imagenet):
    annotations = tiny_imagenet / "val" / "val_annotations.txt"
    annotations.write_bytes(b"v.JPEG\tn02\n\nv.JPEG n02\n")
    with pytest.raises(ValueError, match=r"Line 3 of .*val_annotations.txt' must be a file and"):
        load_image_folder(tiny_imagenet)
    annotations.write_bytes(b"\n")
    with pytest.raises(ValueError, match="names no images"):
        load_image_folder(tiny_imagenet)
    (tiny_imagenet / "train").rename(tiny_imagenet / "gone")
    with pytest.raises(FileNotFoundError, match="val but no train; unpack it anew"):
        load_image_folder(tiny_imagenet)


def test_no_folder_or_no_images(tmp_path):
    with pytest.raises(FileNotFoundError, match="no directory"):
        load_image_folder(tmp_path / "none")
    (tmp_path / "a").mkdir()
    with pytest.raises(FileNotFoundError, match="no images in folders"):
        load_image_folder(tmp_path)
