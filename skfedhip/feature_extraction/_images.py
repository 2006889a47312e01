"""What users call images, as one kind of thing: a sequence that is read by rows."""

import os
from hashlib import blake2b
from numbers import Integral

import numpy as np
from PIL import Image

from ._pictures import UNREADABLE, content, decode, reason_of

_CHANNELS = (1, 3)
_LUMA = np.array([19595, 38470, 7471], dtype=np.uint32)
"""ITU-R 601-2 weights of red, green and blue in units of 2**-16, as PIL turns colour to grey."""

_PICTURES = str | os.PathLike | Image.Image
_NUMBER = int | float | np.integer | np.floating | np.bool


def as_images(X, image_shape=None):
    """Wrap arrays, paths or PIL images as a sequence of images.

    Parameters
    ----------
    X : array-like, DataFrame with one column, Series or list
        Arrays (n, h, w), (n, h, w, c) or (n, c, h, w); rows (n, h * w * c) with ``image_shape``;
        or paths and PIL images, where None and NaN mean a missing one.
    image_shape : tuple of int or None
        Shape of one image of flattened rows.

    Returns
    -------
    ArrayImages or PictureImages
        A sequence with ``len``, ``read`` and ``digests``.

    Raises
    ------
    ValueError
        If X is empty or of a shape that images don't have.
    TypeError
        If X holds neither numbers, nor paths and PIL images.
    """
    _check_image_shape(image_shape)
    found = _numbers_or_pictures(X)
    if isinstance(found, np.ndarray):
        return ArrayImages(_channels_first(found, image_shape))
    if image_shape is not None:
        raise ValueError(
            f"image_shape={image_shape!r} is for rows of numbers, but X holds paths or PIL "
            "images; leave it out."
        )
    return PictureImages(found)


def read_all(X, n_channels):
    """All images of X at once, a list of arrays (c, h, w); ValueError names one that is broken."""
    images = as_images(X)
    read, problems = images.read(np.arange(len(images)), n_channels)
    if problems:
        row, reason = next(iter(problems.items()))
        raise ValueError(f"Image {row} {reason}; leave it out.")
    return read


# What X is.


def _numbers_or_pictures(X):
    """An array of numbers, or a list of paths, PIL images and None."""
    if isinstance(X, _PICTURES):
        raise _one_thing(X)
    items = X if isinstance(X, list | tuple) else _column(X)
    if len(items) == 0:
        raise ValueError("Found array with 0 sample(s): X holds no images; pass one at least.")
    if isinstance(items, np.ndarray):
        return items
    n_pictures = sum(isinstance(item, _PICTURES) for item in items)
    n_missing = sum(map(_is_missing, items))
    if n_pictures + n_missing == len(items):
        return [_as_picture(item) for item in items]
    if n_pictures + n_missing == 0:
        return _stacked(items)
    names = ", ".join(sorted({type(item).__name__ for item in items}))
    raise TypeError(
        "X must hold numbers in all rows, or paths and PIL images in all rows, "
        f"got {names}; convert one to the other."
    )


def _one_thing(X):
    if isinstance(X, str | os.PathLike) and os.path.isdir(X):
        return TypeError(
            f"X must be a sequence of images, got the folder {os.fspath(X)!r}; list its files, or "
            "load it by skfedhip.datasets.load_image_folder."
        )
    return TypeError(f"X must be a sequence of images, got one {type(X).__name__}; list it.")


def _column(X):
    """An array of numbers, or the items of an array that has one column of other things."""
    _refuse_masks([X])
    array = _array_of(X)
    if array.ndim == 0:
        raise _one_thing(X)
    is_column = array.shape[1:] in ((), (1,))
    if array.dtype.kind in "buif":
        no_picture = is_column and array.dtype.kind == "f" and np.isnan(array).all()
        return [None] * len(array) if no_picture else array
    if array.dtype.kind not in "OUT":
        raise TypeError(f"X must hold numbers, paths or PIL images, got dtype {array.dtype}.")
    return array.ravel().tolist() if is_column else _numbers_of_objects(array)


def _array_of(X):
    try:
        return np.asarray(X)
    except (RuntimeError, TypeError) as error:  # such as tensors on a GPU or in bfloat16
        reason = str(error).rstrip(".")
        raise TypeError(f"X can't be turned into an array ({reason}); convert it.") from None


def _numbers_of_objects(array):
    """Array of the numbers that an array holds as objects; what is missing is NaN."""
    values = array.ravel().tolist()
    if _others(values):
        values = [np.nan if _is_missing(value) else value for value in values]
    if names := _others(values):
        raise TypeError(
            "X must hold numbers, or one column of paths and PIL images, got shape "
            f"{array.shape} with {', '.join(names)}."
        )
    return np.array(values).reshape(array.shape)


def _others(values):
    """Names of the types that are no numbers."""
    return sorted(kind.__name__ for kind in set(map(type, values)) if not issubclass(kind, _NUMBER))


def _stacked(items):
    """What a list of arrays, or of lists, holds."""
    _refuse_masks(items)
    kinds = {item.dtype.kind for item in items if isinstance(item, np.ndarray)}
    if "f" in kinds and len(kinds) > 1:
        raise ValueError("Some arrays of X are of whole numbers and some of floats; convert them.")
    try:
        array = _array_of(items)
    except ValueError:
        raise ValueError(
            "The arrays of X have different shapes; resize them to one, or pass PIL images."
        ) from None
    if array.dtype.kind == "O" and array.ndim == 1:
        raise TypeError(f"X must hold numbers, paths or PIL images, got {type(items[0]).__name__}.")
    return _numbers_or_pictures(array)


def _refuse_masks(arrays):
    if any(isinstance(array, np.ma.MaskedArray) for array in arrays):
        raise TypeError("X is masked, and masks are not read; fill it, for example with NaN.")


def _is_missing(item):
    """Whether it is None, NaN or pandas' NA."""
    return (
        item is None
        or type(item).__name__ == "NAType"
        or (isinstance(item, float | np.floating) and item != item)
    )


def _as_picture(item):
    """A path as str, a PIL image as it is, None where there is neither."""
    if _is_missing(item):
        return None
    return item if isinstance(item, Image.Image) else str(os.fsdecode(item))


def _check_image_shape(image_shape):
    if image_shape is None:
        return
    sides = all(isinstance(side, Integral) and side > 0 for side in image_shape)
    if not sides or bool in map(type, image_shape) or len(image_shape) not in (2, 3):
        raise ValueError(
            "image_shape must be whole numbers (h, w), (h, w, c) or (c, h, w), got "
            f"{image_shape!r}."
        )


def _channels_first(X, image_shape):
    """View (n, c, h, w) of an array of images."""
    if X.ndim == 2 and image_shape is None:
        raise ValueError(
            f"X has shape {X.shape}, which is rows of numbers; pass image_shape, the shape of "
            "one image, or images of shape (n, h, w), (n, h, w, c) or (n, c, h, w)."
        )
    if X.ndim == 2:
        if X.shape[1] != np.prod(image_shape):
            raise ValueError(
                f"Rows of {X.shape[1]} numbers are no images of image_shape {tuple(image_shape)}."
            )
        X = X.reshape(len(X), *image_shape)
    elif image_shape is not None and X.shape[1:] != tuple(image_shape):
        raise ValueError(
            f"X has shape {X.shape}, and image_shape={image_shape!r} says another; leave "
            "image_shape out where X is not rows of numbers."
        )
    if X.ndim == 3:
        X = X[:, None]
    elif X.ndim == 4 and X.shape[-1] in _CHANNELS:
        X = X.transpose(0, 3, 1, 2)
    if X.ndim != 4 or X.shape[1] not in _CHANNELS or 0 in X.shape:
        raise ValueError(
            f"X has shape {X.shape}; images are (n, h, w), (n, h, w, c) or (n, c, h, w) with 1 or "
            "3 channels c, the last axis being taken for channels where it can be."
        )
    return X


# Reading.


class ArrayImages:
    """Images of one shape in an array.

    Parameters
    ----------
    array : ndarray of shape (n, c, h, w)
        Whole numbers from 0 to 255, or floats from 0 to 1.
    """

    def __init__(self, array):
        self.array = array

    def __len__(self):
        return len(self.array)

    def read(self, rows, n_channels, max_bytes=None):
        """Images of some rows.

        Parameters
        ----------
        rows : ndarray of shape (b,)
            Which images.
        n_channels : {1, 3}
            Colour becomes grey for 1; grey remains one channel for 3.
        max_bytes : int or None
            Stop after the image that makes them as large as this together; what was read is the
            first rows.

        Returns
        -------
        images : list of ndarray of shape (c, h, w)
            The images that can be used, uint8 or float32.
        problems : dict of int to str
            By row, what is wrong with the others.

        Raises
        ------
        ValueError
            If values are outside of the range of images.
        """
        if max_bytes is not None:
            rows = rows[: -(-max_bytes // self.array[0].nbytes)]
        images = self.array[rows]
        problems = {}
        if images.dtype.kind == "f":
            broken = ~np.isfinite(images).all(axis=(1, 2, 3))
            problems = {int(row): "has NaN or infinite pixels" for row in rows[broken]}
            rows, images = rows[~broken], images[~broken].astype(np.float32, copy=False)
            _check_range(rows, images, 1)
        elif images.dtype.kind == "b":
            images = images.astype(np.float32)
        else:
            _check_range(rows, images, 255)
            images = images.astype(np.uint8, copy=False)
        if n_channels == 1 and images.shape[1] == 3:
            images = _grey(images)
        return list(images), problems

    def missing(self, rows):
        """By row, which of some images are not there at all: none."""
        return {}

    def digests(self, rows):
        """Digest of the content of each row, a list of bytes."""
        kind = f"{self.array.dtype.str}{self.array.shape[1:]}".encode()
        images = (self.array[row] for row in rows)  # one copy at a time
        return _digests((kind, np.ascontiguousarray(image).data) for image in images)


def _check_range(rows, images, high):
    slack = 0 if images.dtype.kind in "ui" else 1e-5  # of resizing in floats
    if not images.size or (images.min() >= -slack and images.max() <= high + slack):
        return
    low, top = images.min(axis=(1, 2, 3)), images.max(axis=(1, 2, 3))
    first = np.flatnonzero((low < -slack) | (top > high + slack))[0]
    raise ValueError(
        f"Image {rows[first]} of X has pixels from {low[first]:g} to {top[first]:g} "
        f"({images.dtype}), but whole numbers must be from 0 to 255 and floats from 0 to 1; "
        "rescale X."
    )


def _grey(images):
    """Grey (b, 1, h, w) of colour (b, 3, h, w), with PIL's rounding on bytes."""
    if images.dtype == np.uint8:
        levels = np.einsum("bchw,c->bhw", images, _LUMA, dtype=np.uint32)
        return ((levels + (1 << 15)) >> 16).astype(np.uint8)[:, None]
    weights = (_LUMA / _LUMA.sum()).astype(np.float32)
    return np.einsum("bchw,c->bhw", images, weights)[:, None]


class PictureImages:
    """Images in files or in memory, of any shapes, decoded by PIL when they are read.

    Parameters
    ----------
    items : list of str, PIL.Image.Image or None
        Paths, PIL images, or None where an image is missing.
    """

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def read(self, rows, n_channels, max_bytes=None):
        """Decode the images of some rows, uint8; see :meth:`ArrayImages.read`."""
        images, problems, size = [], {}, 0
        for row in rows.tolist():
            try:
                images.append(decode(self.items[row], n_channels))
                size += images[-1].nbytes
            except UNREADABLE as error:
                problems[row] = reason_of(self.items[row], error)
            if max_bytes is not None and size >= max_bytes:
                break
        return images, problems

    def missing(self, rows):
        """By row, which of some images are not there at all, before any is decoded."""
        problems = {}
        for row in rows.tolist():
            item = self.items[row]
            if item is None or (isinstance(item, str) and not os.path.exists(item)):
                problems[row] = reason_of(item, FileNotFoundError())
        return problems

    def digests(self, rows):
        """Digest of the content of each row, a list of bytes, empty where there is none."""
        return _digests(content(self.items[row]) for row in rows.tolist())


def _digests(contents):
    """One digest an image; an image without content has an empty one."""
    out = []
    for parts in contents:
        digest = blake2b(digest_size=16)
        for part in parts:
            digest.update(part)
        out.append(digest.digest() if parts else b"")
    return out
