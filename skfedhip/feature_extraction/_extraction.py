"""Run images through an encoder, batch by batch."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b

import numpy as np
import torch

_CPU_TOKENS = 4096
_GPU_SHARE = 0.5
_LIVE_COPIES = 8
"""Activations of the widest layer that are alive at a time, generously."""


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
            size = (image_size, image_size) if np.isscalar(image_size) else tuple(image_size)
            preprocessing = replace(preprocessing, size=size)
        size, patch = preprocessing.size, config["patch_size"]
        if len(size) != 2 or any(side < patch or side % patch for side in size):
            raise ValueError(
                f"image_size must be multiples of the patch size, {patch}, got {image_size}."
            )
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


def resolve_device(name):
    """torch.device of a name, "auto" being the GPU if there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise ValueError(f"There is no device {str(name)!r} here ({reason}); pass 'cpu'.") from None


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
        read, problems = images.read(rows, self.encoder.config.num_channels)
        used = rows[[row not in problems for row in rows.tolist()]] if problems else rows
        pixels = self.preprocessing(read, self._device).to(self.encoder.dtype) if read else None
        return used, pixels, problems

    @torch.inference_mode()
    def _forward(self, pixels):
        """Pooled features (b, p) on the device."""
        if pixels is None:
            return torch.empty(0, self.encoder.config.hidden_size)
        try:
            return self._pooled(pixels)
        except torch.OutOfMemoryError:
            if len(pixels) == 1:
                raise
        torch.cuda.empty_cache()
        return torch.cat([self._forward(half) for half in pixels.tensor_split(2)])

    def _pooled(self, pixels):
        config = self.encoder.config
        own_size = pixels.shape[-2:] == (config.image_size, config.image_size)
        tokens = self.encoder(pixels, interpolate_pos_encoding=not own_size).last_hidden_state
        return tokens[:, 0] if self.pooling == "cls" else tokens[:, 1:].mean(dim=1)


def _fetched(rows, features, problems):
    return rows, features.to(torch.float32).cpu().numpy(), problems
