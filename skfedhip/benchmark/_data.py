"""Labelled data, one function a data set, and the split of each client's rows."""

import numpy as np
from sklearn import datasets as sklearn_datasets

from ..datasets import load_idx


def load_digits():
    """The handwritten digits that come with scikit-learn.

    Returns
    -------
    X : ndarray of shape (1797, 64)
        Grey values in [0, 1], float64.
    y : ndarray of shape (1797,)
        Labels 0 to 9.
    """
    X, y = sklearn_datasets.load_digits(return_X_y=True)
    return X / 16, y


def load_fashion_mnist(directory):
    """A data set of the MNIST family, its training and test images pooled.

    Personalized federated learning is tested on rows of each client's own, so the division that
    the files come with has no use here.

    Parameters
    ----------
    directory : str or path-like
        Where the four idx files are.

    Returns
    -------
    X : ndarray of shape (n, height * width)
        Grey values in [0, 1], float32.
    y : ndarray of shape (n,)
        Labels.
    """
    data = load_idx(directory)
    X = data.images.reshape(len(data.images), -1).astype(np.float32)
    X /= 255
    return X, data.target
