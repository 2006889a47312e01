"""Bring images into the shape that a checkpoint was trained on, in batches and on the device."""

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

_MODES = {2: "bilinear", 3: "bicubic"}
"""PIL's numbers of the resampling filters."""

_RESIZE_BYTES = ("cpu",)
"""Devices on which torch resizes bytes."""

_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_GREY = ((0.5,), (0.5,))


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
        """
        size = processor.get("size", config["image_size"])
        if isinstance(size, dict):
            size = (size.get("height"), size.get("width"))
        elif isinstance(size, int):
            size = (size, size)
        resample = processor.get("resample", 2)
        if None in tuple(size) or resample not in _MODES:
            raise ValueError(
                "The checkpoint's image processor must resize to a height and a width by the "
                f"filter 2 or 3, got size {processor.get('size')} and resample {resample}."
            )
        mean, std = _GREY if config["num_channels"] == 1 else _IMAGENET
        scale = 255 * processor.get("rescale_factor", 1 / 255)
        if not processor.get("do_normalize", True):
            mean, std = (0.0,), (1.0,)
        else:
            mean, std = processor.get("image_mean", mean), processor.get("image_std", std)
        mean, std = (tuple(float(value) / scale for value in values) for values in (mean, std))
        return cls(tuple(size), _MODES[resample], mean, std)

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
