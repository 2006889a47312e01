"""Read the CIFAR batches and folders of image files."""

import os
import pickle
from pathlib import Path

import numpy as np
from sklearn.utils import Bunch

_SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"}
_SPLITS = {"train", "training", "val", "valid", "validation", "test", "testing"}
_ANNOTATIONS = "val_annotations.txt"
_SIDE = 32

_BATCHES = {
    10: ([f"data_batch_{number}" for number in range(1, 6)], "test_batch"),
    100: (["train"], "test"),
}
"""Names of the training files and the test file, by the number of classes."""

_ARRAY_PARTS = {
    ("_codecs", "encode"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.numeric", "_frombuffer"),
}
"""All that a pickled array of bytes may call, the last one from protocol 5 on."""


class _ArrayUnpickler(pickle.Unpickler):
    """Reads dicts, lists, strings, numbers and plain arrays; refuses whatever else could run."""

    def find_class(self, module, name):
        module = module.replace("numpy.core", "numpy._core")  # the name before numpy 2
        if (module, name) not in _ARRAY_PARTS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return super().find_class(module, name)


def load_cifar(directory, n_classes=None):
    """Read CIFAR-10 or CIFAR-100 from the files of its authors' Python or binary version.

    The files are ``data_batch_1`` to ``data_batch_5`` and ``test_batch``, or ``train`` and
    ``test``, each as they are or with ``.bin``. Python batches are pickles; they are read by an
    unpickler that knows arrays and plain values alone. Nothing is downloaded.

    Parameters
    ----------
    directory : str or path-like
        Where the files are.
    n_classes : {10, 100} or None, default=None
        Which of the two to read; None reads the one that is there.

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
        If the directory does not hold all files of one version.
    ValueError
        If it holds both CIFAR-10 and CIFAR-100 and ``n_classes`` does not choose, a file is
        damaged, a label is no class, or a pickle holds anything but arrays and plain values.

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
    directory = Path(os.path.expanduser(directory))
    n_classes, read, paths = _find_batches(directory, n_classes)
    parts = [read(path, n_classes) for path in paths]
    images, target = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return Bunch(
        images=images.reshape(-1, 3, _SIDE, _SIDE).transpose(0, 2, 3, 1),
        target=target,
        train_size=sum(len(labels) for _, labels in parts[:-1]),
    )


def _find_batches(directory, n_classes):
    """Number of classes, the reader of a file, and the files, that of test rows last."""
    if n_classes not in (None, *_BATCHES):
        raise ValueError(f"n_classes must be 10, 100 or None, got {n_classes!r}.")
    wanted = _BATCHES if n_classes is None else [n_classes]
    found = {}
    for wanted_classes in wanted:
        train, test = _BATCHES[wanted_classes]
        for ending, read in (("", _read_pickle), (".bin", _read_binary)):
            paths = [directory / f"{name}{ending}" for name in (*train, test)]
            if all(path.is_file() for path in paths):
                found[wanted_classes] = wanted_classes, read, paths
    if len(found) > 1:
        raise ValueError(
            f"{str(directory)!r} holds both CIFAR-10 and CIFAR-100; pass n_classes=10 or 100."
        )
    if not found:
        files = {10: "data_batch_1 to data_batch_5 and test_batch", 100: "train and test"}
        names = ", or ".join(f"{files[n]} (CIFAR-{n})" for n in wanted)
        raise FileNotFoundError(
            f"{str(directory)!r} does not hold all of {names}, with or without .bin; unpack "
            "CIFAR's Python or binary version there."
        )
    return next(iter(found.values()))


def _read_binary(path, n_classes):
    """Pixels (n, 3072) and the last label byte of each record."""
    label_bytes = 1 if n_classes == 10 else 2
    record = label_bytes + 3 * _SIDE**2
    content = np.fromfile(path, dtype=np.uint8)
    if content.size == 0 or content.size % record:
        raise ValueError(
            f"{str(path)!r} has {content.size} bytes, no multiple of {record}; get it anew."
        )
    content = content.reshape(-1, record)
    return content[:, label_bytes:], _check_labels(path, content[:, label_bytes - 1], n_classes)


def _read_pickle(path, n_classes):
    """Pixels (n, 3072) and labels of a batch of the Python version."""
    try:
        with open(path, "rb") as file:
            batch = _ArrayUnpickler(file, encoding="bytes").load()
        batch = {key.decode() if isinstance(key, bytes) else key: batch[key] for key in batch}
        images = np.asarray(batch["data"])
        labels = np.asarray(batch["labels" if n_classes == 10 else "fine_labels"])
    except KeyError as error:
        raise ValueError(f"{str(path)!r} is no batch of CIFAR-{n_classes}: no {error}.") from None
    except Exception as error:  # a damaged pickle may raise anything
        raise ValueError(f"{str(path)!r} is no CIFAR batch: {error}.") from None
    if images.dtype != np.uint8 or images.shape != (labels.size, 3 * _SIDE**2) or not labels.size:
        raise ValueError(
            f"{str(path)!r} is no CIFAR batch: {images.dtype} of {images.shape} for "
            f"{labels.size} labels."
        )
    return images, _check_labels(path, labels, n_classes)


def _check_labels(path, labels, n_classes):
    """The labels as int64."""
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise ValueError(
            f"The labels of {str(path)!r} must be one column of whole numbers, got {labels.dtype} "
            f"of shape {labels.shape}; get it anew."
        )
    if labels.min() < 0 or labels.max() >= n_classes:
        raise ValueError(
            f"The labels of {str(path)!r} must be from 0 to {n_classes - 1} in CIFAR-{n_classes}, "
            f"got {labels.min()} to {labels.max()}; get it anew."
        )
    return labels.astype(np.int64)


def load_image_folder(directory):
    """List image files and their labels, from one folder a class.

    The label of ``DIR/dog/any/depth/1.jpg`` is "dog", as with torchvision's ``ImageFolder``. Links
    are followed; names that start with a dot and files that are no images by their endings are
    passed over, and so are folders without images. A Tiny-ImageNet directory, with ``train`` and
    ``val`` and its ``val_annotations.txt``, is read by both parts, the training files first. Other
    splits are read one by one. Files are listed, not opened.

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
    ValueError
        If all its folders are splits, such as ``train`` and ``val``, or a line of
        ``val_annotations.txt`` does not tell a file and its label.

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
    directory = Path(os.path.expanduser(directory))
    if not directory.is_dir():
        raise FileNotFoundError(f"There is no directory {str(directory)!r}; pass one of images.")
    if (directory / "val" / _ANNOTATIONS).is_file():
        if not (directory / "train").is_dir():
            raise FileNotFoundError(
                f"{str(directory)!r} has Tiny-ImageNet's val but no train; unpack it anew, or pass "
                f"{str(directory / 'val')!r}."
            )
        train = _by_folder(directory / "train")
        pairs = [*train, *_annotated(directory / "val")]
    elif (directory / _ANNOTATIONS).is_file():
        train = pairs = _annotated(directory)
    else:
        train = pairs = _by_folder(directory)
    paths, target = (np.array(column) for column in zip(*pairs, strict=True))
    return Bunch(paths=paths, target=target, train_size=len(train))


def _by_folder(directory):
    """(path, name of the folder under ``directory``) of all images below it, sorted."""
    folders = [path for path in _shown(directory) if path.is_dir()]
    if folders and {folder.name.lower() for folder in folders} <= _SPLITS:
        names = ", ".join(folder.name for folder in folders)
        raise ValueError(
            f"{str(directory)!r} holds splits ({names}) in the place of classes; pass one of them, "
            f"such as {str(folders[0])!r}."
        )
    above = (directory.resolve(),)
    pairs = [(str(path), each.name) for each in folders for path in _images_below(each, above)]
    if not pairs:
        raise FileNotFoundError(
            f"There are no images in folders of {str(directory)!r}; put each class in one."
        )
    return pairs


def _shown(folder):
    """What is in a folder and not hidden, sorted."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _images_below(folder, above):
    """Image files in a folder and its folders; a link back to one of ``above`` is left alone."""
    here = folder.resolve()
    if here in above:
        return
    for path in _shown(folder):
        if path.is_dir():
            yield from _images_below(path, (*above, here))
        elif path.suffix.lower() in _SUFFIXES:
            yield path


def _annotated(directory):
    """(path, label) of Tiny-ImageNet's validation images."""
    annotations = directory / _ANNOTATIONS
    pairs = []
    for number, line in enumerate(annotations.read_bytes().splitlines(), start=1):
        fields = line.decode("utf-8", "replace").strip().split("\t")
        if fields == [""]:
            continue
        if len(fields) < 2:
            raise ValueError(
                f"Line {number} of {str(annotations)!r} must be a file and its label with a tab "
                f"between, got {fields[0]!r}; get it anew."
            )
        pairs.append((str(directory / "images" / fields[0]), fields[1]))
    if not pairs:
        raise ValueError(f"{str(annotations)!r} names no images; get it anew.")
    return pairs
