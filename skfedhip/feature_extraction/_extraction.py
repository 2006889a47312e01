"""Run images through an encoder, batch by batch."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from numbers import Integral

import numpy as np
import torch

from .._version import __version__
from ._device import resolve_device

_CPU_TOKENS = 4096
_GPU_SHARE = 0.5
_LIVE_COPIES = 8
"""Activations of the widest layer that are alive at a time, generously."""

_READ_BYTES = 2**26
"""Pixels, before they are resized, that are held at a time: photographs may be large."""


@dataclass(frozen=True)
class Plan:
    """All that features depend on besides the images.

    Attributes
    ----------
    checkpoint : Checkpoint or ModuleCheckpoint
        Where the weights are.
    preprocessing : Preprocessing
        What brings images to the encoder's size.
    pooling : {"cls", "mean"}
        The class token, or the mean of the patches' tokens.
    n_layers : int
        Layers of the encoder that are run.
    device : torch.device
        Where.
    dtype : torch.dtype
        Precision of the weights.
    """

    checkpoint: object
    preprocessing: object
    pooling: str
    n_layers: int
    device: torch.device
    dtype: torch.dtype

    @classmethod
    def of(cls, checkpoint, pooling, layer, image_size, device, dtype):
        """Resolve the parameters of :class:`ViTMAETransformer` against a checkpoint.

        Raises
        ------
        ValueError
            If the checkpoint has no such layer, can't take the image size, or there is no such
            device.
        """
        config, preprocessing = checkpoint.config, checkpoint.preprocessing
        depth = config["num_hidden_layers"]
        if not -depth <= layer < depth:
            raise ValueError(f"layer must be from {-depth} to {depth - 1}, got {layer}.")
        if image_size is not None:
            size = (image_size,) * 2 if isinstance(image_size, Integral) else tuple(image_size)
            preprocessing = replace(preprocessing, size=size)
        _check_size(preprocessing.size, config["patch_size"], image_size)
        device = resolve_device(device)
        if dtype == "auto":
            dtype = "bfloat16" if device.type == "cuda" else "float32"
        return cls(
            checkpoint, preprocessing, pooling, layer % depth + 1, device, getattr(torch, dtype)
        )

    @property
    def n_features(self):
        """Width of the encoder."""
        return self.checkpoint.config["hidden_size"]

    def digest(self):
        """Hexadecimal digest of all that is above."""
        parts = {
            "skfedhip": __version__,  # which decodes and resizes as this version does
            "weights": self.checkpoint.digest(),
            "config": self.checkpoint.config,
            "preprocessing": asdict(self.preprocessing),
            "pooling": self.pooling,
            "n_layers": self.n_layers,
            "device": self.device.type,
            "dtype": str(self.dtype),
        }
        text = json.dumps(parts, sort_keys=True, default=str)
        return blake2b(text.encode(), digest_size=16).hexdigest()

    def extraction(self):
        """The encoder, loaded, with what stands before and after it."""
        encoder = self.checkpoint.encoder(self.n_layers, self.dtype, self.device)
        return Extraction(encoder, self.preprocessing, self.pooling)


def _check_size(size, patch, image_size):
    """ValueError unless two whole numbers of patches make up the size."""
    sides = all(isinstance(side, Integral) and side > 0 for side in size)
    if sides and len(size) == 2 and not any(side % patch for side in size):
        return
    if image_size is None:
        raise ValueError(
            f"The checkpoint's images of {size} are no multiples of its patch size, {patch}; pass "
            "image_size."
        )
    raise ValueError(
        f"image_size must be one or two multiples of the patch size, {patch}, got {image_size!r}."
    )


@dataclass(frozen=True)
class Extraction:
    """An encoder and all that stands before and after it.

    Attributes
    ----------
    encoder : ViTModel
        In evaluation mode.
    preprocessing : Preprocessing
        What brings images to the encoder's size.
    pooling : {"cls", "mean"}
        The class token, or the mean of the patches' tokens.
    """

    encoder: torch.nn.Module
    preprocessing: object
    pooling: str

    @property
    def _device(self):
        return next(self.encoder.parameters()).device

    def batch_size(self):
        """Images a batch: a fixed number of tokens on a CPU, by free memory on a GPU."""
        config, size = self.encoder.config, self.preprocessing.size
        tokens = 1 + size[0] * size[1] // config.patch_size**2
        if self._device.type != "cuda":
            return max(1, _CPU_TOKENS // tokens)
        free, _ = torch.cuda.mem_get_info(self._device)
        image = tokens * config.intermediate_size * self.encoder.dtype.itemsize * _LIVE_COPIES
        return 2 ** int(np.log2(max(1, min(_GPU_SHARE * free / image, 4096))))

    def run(self, images, rows, batch_size):
        """Features of some images.

        While one batch is on the device, the next is read in a thread of its own, and the last
        one's features come back. A batch that is too large for the device is halved.

        Parameters
        ----------
        images : ArrayImages or PictureImages
            All images.
        rows : ndarray of shape (n,)
            Which of them.
        batch_size : int
            Most images at a time.

        Yields
        ------
        rows : ndarray of shape (b,)
            Images of this batch that could be read.
        features : ndarray of shape (b, p)
            Theirs, float32.
        problems : dict of int to str
            By row, what is wrong with the batch's others.

        Raises
        ------
        ValueError
            If features are not finite.
        """
        batches = [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]
        with ThreadPoolExecutor(1) as reader:
            read = reader.submit(self._read, images, batches[0]) if batches else None
            waiting = None
            for following in [*batches[1:], None]:
                used, pixels, problems = read.result()
                if following is not None:
                    read = reader.submit(self._read, images, following)
                features = self._forward(pixels)
                if waiting is not None:
                    yield _fetched(*waiting)
                waiting = used, features, problems
            if waiting is not None:
                yield _fetched(*waiting)

    def _read(self, images, rows):
        parts, problems, left = [], {}, rows
        while len(left):
            read, failed = images.read(left, self.encoder.config.num_channels, _READ_BYTES)
            problems.update(failed)
            left = left[len(read) + len(failed) :]
            if read:
                parts.append(_in_parts(self._prepared, read))
        used = rows[[row not in problems for row in rows.tolist()]] if problems else rows
        pixels = torch.cat(parts) if len(parts) > 1 else next(iter(parts), None)
        return used, pixels, problems

    def _prepared(self, images):
        return self.preprocessing(images, self._device).to(self.encoder.dtype)

    @torch.inference_mode()
    def _forward(self, pixels):
        """Pooled features (b, p) on the device."""
        if pixels is None:
            return torch.empty(0, self.encoder.config.hidden_size)
        return _in_parts(self._pooled, pixels)

    def _pooled(self, pixels):
        config = self.encoder.config
        own_size = pixels.shape[-2:] == (config.image_size, config.image_size)
        tokens = self.encoder(pixels, interpolate_pos_encoding=not own_size).last_hidden_state
        return tokens[:, 0] if self.pooling == "cls" else tokens[:, 1:].mean(dim=1)


def _in_parts(function, batch):
    """A function of a batch, of its halves where the device has no room for the whole."""
    try:
        return function(batch)
    except torch.OutOfMemoryError:
        if len(batch) == 1:
            raise
    torch.cuda.empty_cache()
    middle = len(batch) // 2
    return torch.cat([_in_parts(function, half) for half in (batch[:middle], batch[middle:])])


def _fetched(rows, features, problems):
    """What ``run`` yields; NaN would pass for an image that can't be read."""
    features = features.to(torch.float32).cpu().numpy()
    finite = np.isfinite(features).all(axis=1)
    if not finite.all():
        raise ValueError(
            f"The features of image {rows[~finite][0]} of X are not finite, since the weights are "
            "damaged or too large for the dtype; pass dtype='float32' or another model."
        )
    return rows, features, problems
