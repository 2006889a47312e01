"""What users call images, as one kind of thing: a sequence that is read by rows."""

from hashlib import blake2b
from pathlib import Path

import numpy as np
from PIL import Image

_CHANNELS = (1, 3)
_LUMA = np.array([19595, 38470, 7471], dtype=np.uint32)
"""ITU-R 601-2 weights of red, green and blue in units of 2**-16, as PIL turns colour to grey."""

_UNREADABLE = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)
"""What PIL raises on files that are no images, or damaged ones."""


def as_images(X, image_shape=None):
    """Wrap arrays, paths or PIL images as a sequence of images.

    Parameters
    ----------
    X : array-like, DataFrame with one column, Series or list
        Arrays (n, h, w), (n, h, w, c) or (n, c, h, w); rows (n, h * w * c) with ``image_shape``;
        paths, where None and NaN mean a missing one; or PIL images.
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
        If X holds neither numbers, nor paths, nor PIL images.
    """
    if isinstance(X, str | Path | Image.Image):
        raise TypeError(f"X must be a sequence of images, got one {type(X).__name__}; list it.")
    array = _as_array(X)
    if array.ndim and not len(array):
        raise ValueError("Found array with 0 sample(s): X holds no images; pass one at least.")
    if array.dtype.kind in "buif":
        return ArrayImages(_channels_first(array, image_shape))
    if array.dtype.kind not in "OUT":
        raise TypeError(f"X must hold numbers, paths or PIL images, got dtype {array.dtype}.")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(f"Paths and PIL images must be one column, got shape {array.shape}.")
    return PictureImages(array.tolist())


def read_all(X, n_channels):
    """All images of X at once, a list of arrays (c, h, w); ValueError names one that is broken."""
    images = as_images(X)
    read, problems = images.read(np.arange(len(images)), n_channels)
    if problems:
        row, reason = next(iter(problems.items()))
        raise ValueError(f"Image {row} {reason}; leave it out.")
    return read


def _as_array(X):
    """X as an array of numbers, or of objects: PIL images are not turned into pixels."""
    if isinstance(X, list | tuple) and X and isinstance(X[0], Image.Image | Path | str):
        array = np.empty(len(X), dtype=object)
        for row, item in enumerate(X):  # all at once, numpy would decode every PIL image
            array[row] = item
        return array
    try:
        array = np.asarray(X)
        pixels = array.dtype == object and array.ndim == 1 and array.size > 0
        pixels = pixels and isinstance(array[0], np.ndarray)
        return np.stack(array) if pixels else array
    except ValueError:
        raise ValueError(
            "The arrays of X have different shapes; resize them to one, or pass PIL images."
        ) from None


def _channels_first(X, image_shape):
    """View (n, c, h, w) of an array of images."""
    if X.ndim == 2:
        if image_shape is None:
            raise ValueError(
                f"X has shape {X.shape}, which is rows of numbers; pass image_shape, the shape of "
                "one image, or images of shape (n, h, w), (n, h, w, c) or (n, c, h, w)."
            )
        if X.shape[1] != np.prod(image_shape):
            raise ValueError(
                f"Rows of {X.shape[1]} numbers are no images of image_shape {tuple(image_shape)}."
            )
        X = X.reshape(len(X), *image_shape)
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

    def read(self, rows, n_channels):
        """Images of some rows.

        Parameters
        ----------
        rows : ndarray of shape (b,)
            Which images.
        n_channels : {1, 3}
            Colour becomes grey for 1; grey remains one channel for 3.

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
        images = self.array[rows]
        problems = {}
        if images.dtype.kind == "f":
            broken = ~np.isfinite(images).all(axis=(1, 2, 3))
            problems = {int(row): "has NaN or infinite pixels" for row in rows[broken]}
            images = images[~broken].astype(np.float32, copy=False)
            _check_range(images, 1)
        elif images.dtype.kind == "b":
            images = images.astype(np.float32)
        else:
            _check_range(images, 255)
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


def _check_range(images, high):
    slack = 0 if images.dtype.kind in "ui" else 1e-5  # of resizing in floats
    if images.size and not (images.min() >= -slack and images.max() <= high + slack):
        raise ValueError(
            "Pixels must be whole numbers from 0 to 255 or floats from 0 to 1, got "
            f"{images.dtype} from {images.min():g} to {images.max():g}; rescale them."
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
    items : list
        Paths, PIL images, or None or NaN where an image is missing.
    """

    def __init__(self, items):
        items = [None if _is_missing(item) else item for item in items]
        strange = {type(i) for i in items if not isinstance(i, str | Path | Image.Image | None)}
        if strange:
            names = ", ".join(sorted(kind.__name__ for kind in strange))
            raise TypeError(f"X must hold numbers, paths or PIL images, got {names}.")
        self.items = items

    def __len__(self):
        return len(self.items)

    def read(self, rows, n_channels):
        """Decode the images of some rows, uint8; see :meth:`ArrayImages.read`."""
        images, problems = [], {}
        for row in rows.tolist():
            try:
                images.append(_decode(self.items[row], n_channels))
            except _UNREADABLE as error:
                problems[row] = _reason(self.items[row], error)
        return images, problems

    def missing(self, rows):
        """By row, which of some images are not there at all, before any is decoded."""
        problems = {}
        for row in rows.tolist():
            item = self.items[row]
            if isinstance(item, str | Path) and not Path(item).exists():
                problems[row] = _reason(item, FileNotFoundError())
        return problems

    def digests(self, rows):
        """Digest of the content of each row, a list of bytes, empty where there is none."""
        return _digests(_content(self.items[row]) for row in rows.tolist())


def _is_missing(item):
    """Whether it is None, NaN or pandas' NA."""
    return (
        item is None
        or type(item).__name__ == "NAType"
        or (isinstance(item, float) and item != item)
    )


def _decode(item, n_channels):
    """Array (c, h, w) of a path or PIL image, uint8."""
    if isinstance(item, Image.Image):
        return _pixels(item, n_channels)
    if not isinstance(item, str | Path):
        raise ValueError("is missing")
    with Image.open(item) as image:
        return _pixels(image, n_channels)


def _pixels(image, n_channels):
    if image.mode.startswith(("I", "F")):
        raise ValueError(f"has pixels of more than 8 bits (PIL mode {image.mode}); convert it")
    if "transparency" in image.info:
        image = image.convert("RGBA")
    grey = n_channels == 1 or image.mode in ("1", "L", "LA")
    pixels = np.asarray(image.convert("L" if grey else "RGB"))
    return pixels[None] if grey else pixels.transpose(2, 0, 1)


def _content(item):
    """Parts to hash, or nothing where there is nothing to read."""
    if isinstance(item, Image.Image):
        return (f"{item.mode}{item.size}".encode(), item.tobytes())
    try:
        return (b"file", Path(item).read_bytes())
    except (OSError, TypeError):
        return ()


def _digests(contents):
    """One digest an image; an image without content has an empty one."""
    out = []
    for parts in contents:
        digest = blake2b(digest_size=16)
        for part in parts:
            digest.update(part)
        out.append(digest.digest() if parts else b"")
    return out


def _reason(item, error):
    """What is wrong with a picture, to go after the number of its row."""
    if isinstance(error, FileNotFoundError):
        return f"is missing: there is no file {str(item)!r}"
    if isinstance(item, str | Path):
        return f"can't be read from {str(item)!r}: {error}"
    return str(error)
