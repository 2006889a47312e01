"""Bring images into the shape that a checkpoint was trained on, in batches and on the device."""

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

_MODES = {2: "bilinear", 3: "bicubic"}
"""PIL's numbers of the resampling filters."""

_RESIZE_BYTES = ("cpu",)
"""Devices on which torch resizes bytes."""

_NORMAL = {1: ((0.5,), (0.5,)), 3: ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))}
"""Mean and deviation by the number of channels, ImageNet's for colour."""

_DONE = {"do_resize", "do_rescale"}
_CHOICES = {"do_normalize", "do_convert_rgb"}
"""Of what an image processor may be told to do: always done here, and left to it; no more is."""


@dataclass(frozen=True)
class Preprocessing:
    """What the image processor of a checkpoint does to an image.

    Attributes
    ----------
    size : tuple of int
        Height and width that images are resized to.
    mode : {"bilinear", "bicubic"}
        How they are resized.
    mean, std : tuple of float
        What is subtracted from each channel of an image in [0, 1], and what it is divided by.
    """

    size: tuple
    mode: str
    mean: tuple
    std: tuple

    @classmethod
    def from_processor(cls, processor, config):
        """Read the dictionaries of ``preprocessor_config.json`` and ``config.json``.

        Without the former, images are resized to the model's own size and normalised by
        ImageNet's mean and deviation, as the published ViT-MAEs are, or to [-1, 1] if grey.

        Raises
        ------
        ValueError
            If the processor does anything else than to resize, to rescale and to normalise.
        """
        processor = {name: value for name, value in processor.items() if value is not None}
        resample = processor.get("resample", 2)
        if resample not in list(_MODES):
            raise _refusal("resample", resample, "2 or 3")
        for step in (name for name in processor if name.startswith("do_")):
            if step not in _CHOICES and bool(processor[step]) != (step in _DONE):
                raise _refusal(step, processor[step], step in _DONE)
        n_channels = config["num_channels"]
        if n_channels not in _NORMAL:
            raise ValueError(f"The model must take images of 1 or 3 channels, got {n_channels}.")
        mean, std = _NORMAL[n_channels]
        (factor,) = _numbers(processor, "rescale_factor", 1 / 255, 1, positive=True)
        if processor.get("do_normalize", True):
            mean = _numbers(processor, "image_mean", mean, n_channels)
            std = _numbers(processor, "image_std", std, n_channels, positive=True)
        else:
            mean, std = (0.0,) * n_channels, (1.0,) * n_channels
        mean, std = (tuple(value / (255 * factor) for value in values) for values in (mean, std))
        return cls(_sides(processor.get("size", config["image_size"])), _MODES[resample], mean, std)

    def __call__(self, images, device):
        """Pixel values of images.

        Parameters
        ----------
        images : list of ndarray of shape (1 or 3, h, w)
            Bytes, or float32 from 0 to 1.
        device : torch.device
            Where to.

        Returns
        -------
        Tensor of shape (b, c, height, width)
            Normalised, float32.
        """
        out = None
        for rows in _by_shape(images):
            batch = torch.from_numpy(np.stack([images[row] for row in rows]))
            if device.type == "cuda":
                batch = batch.pin_memory()
            pixels = self._normalised(batch.to(device, non_blocking=True))
            if len(rows) == len(images):
                return pixels
            if out is None:
                out = pixels.new_empty((len(images), *pixels.shape[1:]))
            out[torch.as_tensor(rows, device=device)] = pixels
        return out

    def _normalised(self, batch):
        if batch.shape[-2:] != self.size:
            batch = _resize(batch, self.size, self.mode)
        mean, std = (
            torch.tensor(values, device=batch.device)[:, None, None]
            for values in (self.mean, self.std)
        )
        if batch.dtype == torch.uint8:
            # one product and one sum a pixel
            return batch.to(torch.float32).mul(1 / (255 * std)).sub_(mean / std)
        return batch.sub(mean).div_(std)


def _refusal(name, value, wanted):
    return ValueError(
        f"The checkpoint's image processor has {name}={value!r}, where {wanted} is needed: other "
        "ways to prepare images are not carried out; mend its preprocessor_config.json."
    )


def _numbers(processor, name, default, n, positive=False):
    """n finite floats of a processor; one stands for all."""
    try:
        numbers = np.broadcast_to(np.asarray(processor.get(name, default), dtype=float), n)
    except (TypeError, ValueError):
        numbers = np.array(np.nan)
    if not np.isfinite(numbers).all() or (positive and numbers.min() <= 0):
        wanted = f"{n} numbers" if n > 1 else "a number"
        raise _refusal(name, processor[name], wanted + " above 0" * positive)
    return tuple(numbers.tolist())


def _sides(size):
    """Height and width of the ``size`` of a processor."""
    sides = (size.get("height"), size.get("width")) if isinstance(size, dict) else size
    sides = (sides, sides) if isinstance(sides, int) else sides
    whole = isinstance(sides, tuple | list) and all(isinstance(s, int) and s > 0 for s in sides)
    if not whole or len(sides) != 2:
        raise _refusal("size", size, "a height and a width")
    return tuple(sides)


def _by_shape(images):
    """Rows of the images of each shape and dtype."""
    shapes = {}
    for row, image in enumerate(images):
        shapes.setdefault((image.shape, image.dtype), []).append(row)
    return list(shapes.values())


def _resize(batch, size, mode):
    """Resize as PIL does: antialiased, on bytes and rounded to bytes.

    Where torch can't resize bytes, its floats are rounded, which is at most two levels off.
    """
    if batch.dtype != torch.uint8:
        batch = batch.mul(255).round_().to(torch.uint8)
    if batch.device.type not in _RESIZE_BYTES:
        batch = batch.to(torch.float32)
    levels = functional.interpolate(batch, size=size, mode=mode, antialias=True)
    return levels if levels.dtype == torch.uint8 else levels.round_().clamp_(0, 255).byte()
