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


def split_within_clients(y, groups, test_size, seed):
    """Hold out the same part of every client's rows, and of its classes where rows allow.

    The rows are sorted by client, then class, then at random, and every (1 / test_size)-th one of a
    client's run is held out, from a random start. So the number of test rows of a client's class
    is within one of its share.

    Parameters
    ----------
    y : ndarray of shape (n,)
        Class labels.
    groups : ndarray of shape (n,)
        The id of each row's client; each client has at least two rows.
    test_size : float
        Part of a client's rows to hold out, in (0, 1); rounded so that at least one row is held
        out and at least one is not.
    seed : int
        Decides which rows.

    Returns
    -------
    train, test : ndarray of shape (n_train,) and (n_test,)
        Sorted positions of the rows.

    Raises
    ------
    ValueError
        If a client has a single row.
    """
    clients, codes, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    if sizes.min() < 2:
        client = clients.tolist()[np.argmin(sizes)]
        raise ValueError(
            f"client {client!r} has a single row, which can't be both learned from and held out; "
            "give every client at least two."
        )
    rng = np.random.default_rng(seed)
    order = np.lexsort((rng.random(len(codes)), y, codes))
    n_test = np.clip(np.rint(test_size * sizes), 1, sizes - 1).astype(np.intp)
    rank = np.arange(len(codes)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    start, step, around = (np.repeat(a, sizes) for a in (rng.integers(sizes), n_test, sizes))
    # A hand that moves n_test of n_k places a row passes zero n_test times in all.
    held_out = (start + rank * step) % around + step >= around
    return np.sort(order[~held_out]), np.sort(order[held_out])
