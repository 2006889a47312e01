"""Read the CIFAR batches and folders of image files."""

import pickle
from pathlib import Path

import numpy as np
from sklearn.utils import Bunch

_SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"}
_SIDE = 32

_ARRAY_PARTS = {
    ("_codecs", "encode"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "_reconstruct"),
}
"""All that a pickled array of bytes may call."""


class _ArrayUnpickler(pickle.Unpickler):
    """Reads dicts, lists, strings, numbers and plain arrays; refuses whatever else could run."""

    def find_class(self, module, name):
        if (module, name) not in _ARRAY_PARTS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def load_cifar(directory):
    """Read CIFAR-10 or CIFAR-100 from the files of its authors' Python or binary version.

    The files are ``data_batch_1`` to ``data_batch_5`` and ``test_batch``, or ``train`` and
    ``test``, each as they are or with ``.bin``. Python batches are pickles; they are read by an
    unpickler that knows arrays and plain values alone. Nothing is downloaded.

    Parameters
    ----------
    directory : str or path-like
        Where the files are.

    Returns
    -------
    Bunch
        Dictionary-like, with these attributes:

        images : ndarray of shape (n, 32, 32, 3)
            Colours, uint8, the training rows before the test rows.
        target : ndarray of shape (n,)
            Labels, of CIFAR-100 the fine ones, int64.
        train_size : int
            Number of training rows.

    Raises
    ------
    FileNotFoundError
        If the directory does not hold the files of one version.
    ValueError
        If a file is damaged, or a pickle holds anything but arrays and plain values.

    Examples
    --------
    Two images and their labels in the binary form: a label, then red, green and blue.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from skfedhip.datasets import load_cifar
    >>> names = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
    >>> with TemporaryDirectory() as folder:
    ...     for name in names:
    ...         _ = Path(folder, name).write_bytes(bytes([7]) + bytes(3072))
    ...     data = load_cifar(folder)
    >>> data.images.shape, data.target.tolist(), data.train_size
    ((6, 32, 32, 3), [7, 7, 7, 7, 7, 7], 5)
    """
    directory = Path(directory).expanduser()
    ten = [f"data_batch_{number}" for number in range(1, 6)]
    for train, test, label_bytes in ((ten, "test_batch", 1), (["train"], "test", 2)):
        for ending, read in ((".bin", _read_binary), ("", _read_pickle)):
            paths = [directory / f"{name}{ending}" for name in (*train, test)]
            if all(path.is_file() for path in paths):
                parts = [read(path, label_bytes) for path in paths]
                images, target = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
                images = images.reshape(-1, 3, _SIDE, _SIDE).transpose(0, 2, 3, 1)
                train_size = sum(len(labels) for _, labels in parts[:-1])
                return Bunch(images=images, target=target, train_size=train_size)
    raise FileNotFoundError(
        f"{str(directory)!r} holds neither data_batch_1 to data_batch_5 and test_batch, nor train "
        "and test, with or without .bin; unpack CIFAR's Python or binary version there."
    )


def _read_binary(path, label_bytes):
    """Pixels (n, 3072) and the last label byte of each record."""
    record = label_bytes + 3 * _SIDE**2
    content = np.fromfile(path, dtype=np.uint8)
    if content.size == 0 or content.size % record:
        raise ValueError(
            f"{str(path)!r} has {content.size} bytes, no multiple of {record}; get it anew."
        )
    content = content.reshape(-1, record)
    return content[:, label_bytes:], content[:, label_bytes - 1].astype(np.int64)


def _read_pickle(path, label_bytes):
    """Pixels (n, 3072) and labels of a batch of the Python version."""
    key = b"labels" if label_bytes == 1 else b"fine_labels"
    try:
        with open(path, "rb") as file:
            batch = _ArrayUnpickler(file, encoding="bytes").load()
        images, labels = np.asarray(batch[b"data"]), np.asarray(batch[key], dtype=np.int64)
        whole = images.dtype == np.uint8 and images.shape == (len(labels), 3 * _SIDE**2)
    except Exception as error:  # a damaged pickle may raise anything
        raise ValueError(f"{str(path)!r} is no CIFAR batch: {error}.") from None
    if not whole:
        raise ValueError(f"{str(path)!r} is no CIFAR batch: {images.dtype} of {images.shape}.")
    return images, labels


def load_image_folder(directory):
    """List image files and their labels, from one folder a class.

    The label of ``DIR/dog/any/depth/1.jpg`` is "dog". A Tiny-ImageNet directory, with ``train``
    and ``val`` and its ``val_annotations.txt``, is read by both parts, the training files first.
    Files are listed, not opened.

    Parameters
    ----------
    directory : str or path-like
        Where the folders are.

    Returns
    -------
    Bunch
        Dictionary-like, with these attributes:

        paths : ndarray of shape (n,)
            Names of the files, in order, strings.
        target : ndarray of shape (n,)
            Labels, strings.
        train_size : int
            Number of training files; n where the directory does not tell.

    Raises
    ------
    FileNotFoundError
        If there is no such directory, or no image in its folders.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from skfedhip.datasets import load_image_folder
    >>> with TemporaryDirectory() as folder:
    ...     for name in ("cat/1.png", "cat/2.png", "dog/1.png"):
    ...         path = Path(folder, name)
    ...         path.parent.mkdir(exist_ok=True)
    ...         path.touch()
    ...     load_image_folder(folder).target.tolist()
    ['cat', 'cat', 'dog']
    """
    directory = Path(directory).expanduser()
    if not directory.is_dir():
        raise FileNotFoundError(f"There is no directory {str(directory)!r}; pass one of images.")
    annotations = directory / "val" / "val_annotations.txt"
    if annotations.is_file():
        train = _by_folder(directory / "train")
        pairs = [*train, *_annotated(annotations)]
    else:
        train = pairs = _by_folder(directory)
    if not pairs:
        raise FileNotFoundError(
            f"There are no images in folders of {str(directory)!r}; put each class in one."
        )
    paths, target = (np.array(column) for column in zip(*pairs, strict=True))
    return Bunch(paths=paths, target=target, train_size=len(train))


def _by_folder(directory):
    """(path, name of the folder under ``directory``) of all images below it, sorted."""
    return [
        (str(path), path.relative_to(directory).parts[0])
        for folder in sorted(directory.iterdir())
        if folder.is_dir()
        for path in sorted(folder.rglob("*"))
        if path.suffix.lower() in _SUFFIXES
    ]


def _annotated(annotations):
    """(path, label) of Tiny-ImageNet's validation images."""
    lines = [line.split("\t") for line in annotations.read_text(encoding="utf-8").splitlines()]
    return [(str(annotations.parent / "images" / name), label) for name, label, *_ in lines]
