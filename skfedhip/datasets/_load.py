"""Read idx files, and go between lists of clients and one table with ids."""

import gzip
import math
import os
import zlib
from pathlib import Path

import numpy as np
from sklearn.utils import Bunch, _safe_indexing, check_array, indexable
from sklearn.utils.validation import column_or_1d

from ..core import group_rows
from ..utils._ids import as_ids, encode_ids

_ADVICE = (
    "install the Debian package dataset-fashion-mnist, which fills "
    "/usr/share/datasets/fashion-mnist, or pass the directory of your idx files."
)


def load_idx(directory):
    """Read a data set of the MNIST family from its four idx files.

    The files are ``train-images-idx3-ubyte``, ``train-labels-idx1-ubyte`` and the same two with
    ``t10k`` for the test rows, each plain or with ``.gz``. MNIST, Fashion-MNIST, KMNIST and others
    come in this form; Debian's package dataset-fashion-mnist puts Fashion-MNIST into
    ``/usr/share/datasets/fashion-mnist``. Nothing is downloaded.

    Parameters
    ----------
    directory : str or path-like
        Where the four files are.

    Returns
    -------
    Bunch
        Dictionary-like, with these attributes:

        images : ndarray of shape (n, height, width)
            Grey values, uint8, the training rows before the test rows.
        target : ndarray of shape (n,)
            Labels, uint8.
        train_size : int
            Number of training rows.

    Raises
    ------
    FileNotFoundError
        If the directory or one of the files is missing.
    ValueError
        If a file is damaged, or images and labels do not fit.

    Examples
    --------
    An idx file is a magic number that ends in the number of axes, the length of each axis, and the
    bytes of the array. Here are two images of one pixel and their labels.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from skfedhip.datasets import load_idx
    >>> images = bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 50, 60])
    >>> labels = bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9])
    >>> with TemporaryDirectory() as folder:
    ...     for part in ("train", "t10k"):
    ...         _ = Path(folder, f"{part}-images-idx3-ubyte").write_bytes(images)
    ...         _ = Path(folder, f"{part}-labels-idx1-ubyte").write_bytes(labels)
    ...     data = load_idx(folder)
    >>> data.images.shape, data.target.tolist(), data.train_size
    ((4, 1, 1), [7, 9, 7, 9], 2)
    """
    directory = Path(os.path.expanduser(directory))
    if not directory.is_dir():
        raise FileNotFoundError(f"There is no directory {str(directory)!r}; {_ADVICE}")
    parts = [_read_part(directory, part) for part in ("train", "t10k")]
    (train, train_target), (test, test_target) = parts
    if train.shape[1:] != test.shape[1:]:
        raise ValueError(
            f"Training images are of shape {train.shape[1:]} but test images of shape "
            f"{test.shape[1:]} in {str(directory)!r}; put files of one data set together."
        )
    return Bunch(
        images=np.concatenate([train, test]),
        target=np.concatenate([train_target, test_target]),
        train_size=len(train),
    )


def stack_clients(Xs, ys, ids=None):
    """Join the data of clients into one table with an id per row.

    Parameters
    ----------
    Xs : sequence of K array-likes of shape (n_k, ...)
        Features of each client, at least one row, the same shape but for the first axis.
    ys : sequence of K array-likes of shape (n_k,)
        Labels of each client.
    ids : array-like of shape (K,), default=None
        Ids of the clients, all different, strings or numbers. If None, 0 to K - 1.

    Returns
    -------
    X : ndarray of shape (n, ...)
        Features, client after client in the order given.
    y : ndarray of shape (n,)
        Labels.
    groups : ndarray of shape (n,)
        The id of each row's client.

    Raises
    ------
    ValueError
        If a client has no rows, lengths or features do not fit, or an id occurs twice.

    See Also
    --------
    split_clients : The inverse.

    Examples
    --------
    >>> from skfedhip.datasets import stack_clients
    >>> X, y, groups = stack_clients([[[0.0], [1.0]], [[2.0]]], [[0, 1], [1]], ids=["ann", "bob"])
    >>> X.ravel(), y, groups
    (array([0., 1., 2.]), array([0, 1, 1]), array(['ann', 'ann', 'bob'], dtype='<U3'))
    """
    Xs, ys = list(Xs), list(ys)
    ids = np.arange(len(Xs)) if ids is None else ids
    if not len(Xs) == len(ys) == len(ids) > 0:
        raise ValueError(
            f"Xs, ys and ids must be of one length above 0, got {len(Xs)}, {len(ys)} and "
            f"{len(ids)}; pass one of each per client."
        )
    ids = as_ids(ids, len(Xs))
    names, codes = encode_ids(ids)
    if len(names) < len(ids):
        twice = names.tolist()[np.bincount(codes).argmax()]
        raise ValueError(f"The client id {twice!r} occurs twice in ids; give each client its own.")
    pairs = [_check_client(*client) for client in zip(ids.tolist(), Xs, ys, strict=True)]
    Xs, ys = zip(*pairs, strict=True)
    for name, X in zip(ids.tolist(), Xs, strict=True):
        if X.shape[1:] != Xs[0].shape[1:]:
            raise ValueError(
                f"Client {name!r} has features of shape {X.shape[1:]}, but the first client of "
                f"shape {Xs[0].shape[1:]}; give all clients the same features."
            )
    if len({y.dtype.kind in "US" for y in ys}) > 1:
        raise ValueError("Some clients have strings as labels and others not; convert one kind.")
    return np.concatenate(Xs), np.concatenate(ys), np.repeat(ids, [len(y) for y in ys])


def split_clients(X, y, groups):
    """Cut one table with an id per row into the data of each client.

    Parameters
    ----------
    X : {array-like, sparse matrix, DataFrame} of shape (n, ...)
        Features.
    y : array-like of shape (n,)
        Labels.
    groups : array-like of shape (n,)
        The id of each row's client, strings or numbers.

    Returns
    -------
    dict
        From the id of a client to its ``(X_k, y_k)``, in the order of the sorted ids. Rows keep
        their order within a client, and arrays, frames and sparse matrices their types.

    Raises
    ------
    ValueError
        If lengths differ or an id is missing.

    See Also
    --------
    stack_clients : The inverse.

    Examples
    --------
    >>> import numpy as np
    >>> from skfedhip.datasets import split_clients, stack_clients
    >>> X = np.array([[0.0], [1.0], [2.0]])
    >>> clients = split_clients(X, [0, 1, 1], ["bob", "ann", "bob"])
    >>> list(clients)
    ['ann', 'bob']
    >>> clients["bob"]
    (array([[0.], [2.]]), array([0, 1]))

    Back to one table, now sorted by client:

    >>> X, y, groups = stack_clients(*zip(*clients.values()), ids=list(clients))
    >>> groups.tolist()
    ['ann', 'bob', 'bob']
    """
    X, y = (data if hasattr(data, "shape") else np.asarray(data) for data in indexable(X, y))
    ids, codes = encode_ids(as_ids(groups, len(y)))
    order, offsets = group_rows(codes, len(ids))
    runs = np.split(order, offsets[1:-1])
    pairs = ((_safe_indexing(X, rows), _safe_indexing(y, rows)) for rows in runs)
    return dict(zip(ids.tolist(), pairs, strict=False))


def _check_client(name, X, y):
    """Features (n_k, ...) and labels (n_k,) of one client as arrays."""
    y = column_or_1d(y, input_name=f"y of client {name!r}")
    if len(y) == 0:
        raise ValueError(f"Client {name!r} has no labels; leave a client without rows out.")
    X = check_array(
        X,
        dtype=None,
        allow_nd=True,
        ensure_all_finite=False,
        ensure_min_samples=0,
        input_name=f"X of client {name!r}",
    )
    if len(X) != len(y):
        raise ValueError(
            f"Client {name!r} has {len(X)} rows of features but {len(y)} labels; pass one label "
            "per row."
        )
    return X, y


def _read_part(directory, part):
    """Images (n, height, width) and labels (n,) of the training or the test rows."""
    images_path = _find(directory, f"{part}-images-idx3-ubyte")
    labels_path = _find(directory, f"{part}-labels-idx1-ubyte")
    images, labels = _read_idx(images_path, 3), _read_idx(labels_path, 1)
    if len(images) != len(labels):
        raise ValueError(
            f"{str(images_path)!r} has {len(images)} images but {str(labels_path)!r} has "
            f"{len(labels)} labels; put files of one data set together."
        )
    return images, labels


def _find(directory, name):
    for path in (directory / name, directory / f"{name}.gz"):
        if path.is_file():
            return path
    raise FileNotFoundError(f"There is no {name} or {name}.gz in {str(directory)!r}; {_ADVICE}")


def _read_idx(path, n_axes):
    """The uint8 array of one idx file."""
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"{str(path)!r} is not a whole gzip file ({error}); get it anew."
        ) from None
    magic = bytes([0, 0, 8, n_axes])
    if content[:4] != magic:
        raise ValueError(
            f"{str(path)!r} must start with the magic number {magic.hex()} (uint8, {n_axes} axes), "
            f"got {content[:4].hex() or 'nothing'}; pass files in idx format."
        )
    start = 4 + 4 * n_axes
    shape = [int.from_bytes(content[i : i + 4], "big") for i in range(4, start, 4)]
    expected = start + math.prod(shape)
    if len(content) != expected:
        raise ValueError(
            f"{str(path)!r} should have {expected} bytes for shape {tuple(shape)}, got "
            f"{len(content)}; get it anew."
        )
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)
