"""Labelled images, one function a data set, and their features."""

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from sklearn import datasets as sklearn_datasets

from ..datasets import load_cifar, load_idx, load_image_folder, partition_dirichlet
from ._run import CLOSED_FORM

FASHION_MNIST = "/usr/share/datasets/fashion-mnist"


def load_digits():
    """The handwritten digits that come with scikit-learn.

    Returns
    -------
    images : ndarray of shape (1797, 8, 8)
        Grey values in [0, 1], float64.
    y : ndarray of shape (1797,)
        Labels 0 to 9.
    """
    X, y = sklearn_datasets.load_digits(return_X_y=True)
    return X.reshape(-1, 8, 8) / 16, y


def load_idx_pooled(directory=FASHION_MNIST):
    """Fashion-MNIST or another data set of the MNIST family, all images pooled.

    Personalized federated learning is tested on rows of each client's own, so the division that
    the files come with has no use here.

    Parameters
    ----------
    directory : str or path-like
        Where the four idx files are.

    Returns
    -------
    images : ndarray of shape (n, height, width)
        Grey values, uint8.
    y : ndarray of shape (n,)
        Labels.
    """
    data = load_idx(directory)
    return data.images, data.target


def load_cifar_pooled(directory, n_classes):
    """CIFAR-10 or CIFAR-100, training and test images pooled: (n, 32, 32, 3) bytes and labels."""
    data = load_cifar(directory, n_classes)
    return data.images, data.target


def load_folder_pooled(directory):
    """Paths (n,) and labels (n,) of a folder of image folders, all parts pooled."""
    data = load_image_folder(directory)
    return data.paths, data.target


def load_tiny_imagenet(directory):
    """Paths (n,) and labels (n,) of Tiny-ImageNet, both parts pooled."""
    data = load_image_folder(directory)
    if data.train_size == len(data.target):
        raise ValueError(
            f"{str(directory)!r} is not Tiny-ImageNet, which has train and val with its "
            "val_annotations.txt; run imagenet-r on other folders of images."
        )
    return data.paths, data.target


@dataclass(frozen=True)
class Dataset:
    """A data set of the command line.

    Attributes
    ----------
    title : str
        What it is called in a table.
    load : callable
        From its directory, or nothing where there is none, to images and labels.
    words : str
        What it is, and how long it takes.
    clients : int
        How many clients by default.
    directory : str or None
        Where its files are by default; "" where that has to be said, None where it has no files.
    """

    title: str
    load: object
    words: str
    clients: int = 50
    directory: str | None = ""

    def read(self, directory=None):
        """Images and labels, from a directory where there are files."""
        return self.load() if self.directory is None else self.load(directory)


DATASETS = {
    "digits": Dataset(
        "Digits",
        load_digits,
        "scikit-learn's 1797 handwritten digits: a few seconds",
        clients=20,
        directory=None,
    ),
    "fashion-mnist": Dataset(
        "Fashion-MNIST",
        load_idx_pooled,
        "Fashion-MNIST or another idx data set on disk: a minute or two",
        directory=FASHION_MNIST,
    ),
    "cifar10": Dataset(
        "CIFAR-10",
        partial(load_cifar_pooled, n_classes=10),
        "the Python or binary batches of CIFAR-10 on disk",
    ),
    "cifar100": Dataset(
        "CIFAR-100",
        partial(load_cifar_pooled, n_classes=100),
        "the Python or binary batches of CIFAR-100 on disk",
    ),
    "tiny-imagenet": Dataset(
        "Tiny-ImageNet", load_tiny_imagenet, "Tiny-ImageNet's directory on disk"
    ),
    "imagenet-r": Dataset(
        "ImageNet-R", load_folder_pooled, "ImageNet-R's directory, or any with a folder a class"
    ),
}


_AS_THEY_ARE = ("pixels", "images")
"""Kinds of features that no model makes."""


def deal(y, clients, dirichlet, min_size, seed):
    """The client of each row, by Dirichlet label skew; where that can't be, options are named."""
    try:
        return partition_dirichlet(y, clients, dirichlet, min_size=min_size, random_state=seed)
    except ValueError as error:
        options = f"--clients {clients} --dirichlet {dirichlet:g}"
        raise ValueError(f"no split of the rows with {options}: {error}") from None


def check_features(kind, methods):
    """Raise OSError or ValueError unless :func:`features` knows the kind, and methods take it."""
    if kind == "images" and set(methods) & set(CLOSED_FORM):
        raise ValueError(
            f"--features images are for networks alone; leave out {', '.join(CLOSED_FORM)}."
        )
    if kind not in _AS_THEY_ARE:
        from ..feature_extraction import ViTMAETransformer

        ViTMAETransformer(kind)._plan()


def features(images, kind, cache=None, progress=False):
    """Features of images.

    Parameters
    ----------
    images : ndarray of shape (n, h, w) or (n, h, w, 3), or paths of shape (n,)
        Grey or colour images.
    kind : str
        "pixels", "images", or a model of :class:`skfedhip.feature_extraction.ViTMAETransformer`.
    cache : path-like or None
        Where features of images are kept.
    progress : bool
        Whether to show a bar on stderr.

    Returns
    -------
    ndarray of shape (n, m), or (n, c, h, w) of "images"
        Grey values or colours in [0, 1], or the class tokens of the model, float32.
    """
    if kind not in _AS_THEY_ARE:
        from ..feature_extraction import ViTMAETransformer

        transformer = ViTMAETransformer(kind, cache=cache, verbose=int(progress))
        return transformer.fit_transform(images)
    if images.ndim == 1:
        images = np.moveaxis(_decoded(images), 1, 3)  # colours last, as arrays have them
    pixels = images.astype(np.float32)
    pixels = pixels / 255 if images.dtype == np.uint8 else pixels
    if kind == "pixels":
        return pixels.reshape(len(pixels), -1)
    return pixels[:, None] if pixels.ndim == 3 else np.moveaxis(pixels, 3, 1)


def _decoded(paths):
    """Pixels (n, 3, h, w) of image files of one size."""
    from ..feature_extraction._images import read_all

    read = [np.broadcast_to(image, (3, *image.shape[1:])) for image in read_all(paths, 3)]
    if len({image.shape for image in read}) > 1:
        raise ValueError(
            "The images are of different sizes and have no pixels in common; pass a model's name "
            "or directory as --features."
        )
    return np.stack(read)


def cache_directory():
    """Where features are kept between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "skfedhip"
