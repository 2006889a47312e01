"""Decode image files and PIL images by one rule, and say what is wrong with those that fail."""

import struct

import numpy as np
from PIL import ExifTags, Image, ImageOps

UNREADABLE = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    IndexError,
    EOFError,
    struct.error,
    Image.DecompressionBombError,
)
"""What PIL raises on files that are no images, or damaged ones."""

_GREY_MODES = ("1", "L", "LA")


def decode(item, n_channels):
    """Pixels of a picture.

    It is turned upright as its EXIF data say, if they can be read; transparent pixels are laid on
    white; of an animation the first frame is taken, or the one that a PIL image stands at.

    Parameters
    ----------
    item : str, PIL.Image.Image or None
        Path of a file, or an image.
    n_channels : {1, 3}
        Colour becomes grey for 1; grey remains one channel for 3.

    Returns
    -------
    ndarray of shape (c, h, w)
        Bytes.

    Raises
    ------
    Any of ``UNREADABLE``
        If there is no image, or none of 8 bits a channel.
    """
    if isinstance(item, Image.Image):
        return _pixels(item, n_channels)
    if item is None:
        raise FileNotFoundError
    with Image.open(item) as image:
        return _pixels(image, n_channels)


def reason_of(item, error):
    """What is wrong with a picture, to go after the number of its row."""
    if item is None:
        return "is missing"
    if isinstance(error, FileNotFoundError):
        return f"is missing: there is no file {item!r}"
    where = f" from {item!r}" if isinstance(item, str) else ""
    return f"can't be read{where}: {error}"


def content(item):
    """Parts to hash: the bytes of a file, the pixels of a PIL image; none if it can't be read."""
    try:
        if isinstance(item, Image.Image):
            pixels = decode(item, 3)
            return (f"picture{pixels.shape}".encode(), np.ascontiguousarray(pixels).data)
        if item is None:
            return ()
        with open(item, "rb") as file:
            return (b"file", file.read())
    except UNREADABLE:
        return ()


def _pixels(image, n_channels):
    if image.mode.startswith(("I", "F")):
        raise ValueError(f"it has more than 8 bits a channel (PIL mode {image.mode}); convert it")
    if 0 in image.size:
        raise ValueError(f"it has no pixels (width and height {image.size})")
    image = _upright(image)
    grey = n_channels == 1 or image.mode in _GREY_MODES
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    if image.mode not in _GREY_MODES:
        image = image.convert("RGB")  # from here PIL knows a way to grey, whatever the mode was
    pixels = np.asarray(image.convert("L") if grey else image)
    return pixels[None] if grey else pixels.transpose(2, 0, 1)


def _upright(image):
    image.load()  # pixels that are damaged raise here, EXIF data that are don't matter
    try:
        turned = image.getexif().get(ExifTags.Base.Orientation, 1) != 1
    except UNREADABLE:
        turned = False
    return ImageOps.exif_transpose(image) if turned else image
