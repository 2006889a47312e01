"""A training run: its epochs, what it writes after each, and how it goes on after a stop."""

import copy
import csv
import json
import os
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from ..feature_extraction._backbone import quiet_transformers
from ._model import new_model

STATE = "training_state.safetensors"
_CURVE = "loss_curve.csv"
_PROCESSOR = "preprocessor_config.json"
RESULTS = ("config.json", _PROCESSOR, "model.safetensors", _CURVE)
"""What a training leaves behind for others, beside its state."""

_BETAS = (0.9, 0.95)


@dataclass(frozen=True)
class Schedule:
    """How long, how fast and with what randomness to train."""

    epochs: int
    batch_size: int
    lr: float
    weight_decay: float
    warmup_epochs: int
    flip: bool
    seed: int

    def lr_at(self, progress):
        """Learning rate after ``progress`` epochs: linear warm-up, then half a cosine to 0."""
        if progress < self.warmup_epochs:
            return self.lr * progress / self.warmup_epochs
        done = (progress - self.warmup_epochs) / (self.epochs - self.warmup_epochs)
        return self.lr * 0.5 * (1 + np.cos(np.pi * done))


class Training:
    """A model, its optimizer and the losses so far.

    Parameters
    ----------
    levels : torch.Tensor of shape (n, c, h, w)
        All images, bytes.
    config : ViTMAEConfig
        Architecture.
    schedule : Schedule
    device : torch.device
        Where to compute.
    """

    def __init__(self, levels, config, schedule, device):
        self.levels, self.config, self.schedule = levels, config, schedule
        self.moments = _moments(levels)
        self._digest = _digest_of(levels)
        self.model = new_model(config, schedule.seed).to(device).train()
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            trained, lr=schedule.lr, betas=_BETAS, weight_decay=schedule.weight_decay
        )
        self.losses = []

    def epoch(self, bar):
        """Train on every image once; the mean loss."""
        schedule, model, levels = self.schedule, self.model, self.levels
        rng = np.random.default_rng([schedule.seed, len(self.losses)])
        order = rng.permutation(len(levels))
        n_patches = model.vit.embeddings.patch_embeddings.num_patches
        mean, std = (torch.tensor(m, device=model.device)[:, None, None] for m in self.moments)
        total = 0.0
        for start in range(0, len(order), schedule.batch_size):
            rows = order[start : start + schedule.batch_size]
            pixels = levels[torch.from_numpy(rows)].to(model.device)
            pixels = (pixels.to(torch.float32) / 255 - mean) / std
            if schedule.flip:
                mirrored = torch.from_numpy(rng.random(len(rows)) < 0.5).to(model.device)
                pixels = torch.where(mirrored[:, None, None, None], pixels.flip(-1), pixels)
            noise = torch.from_numpy(rng.random((len(rows), n_patches), dtype=np.float32))
            for group in self.optimizer.param_groups:
                done = (start + len(rows)) / len(order)
                group["lr"] = schedule.lr_at(len(self.losses) + done)
            loss = model(pixels, noise=noise.to(model.device)).loss
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            total += float(loss.detach()) * len(rows)
            bar.update(len(rows))
        return total / len(order)

    def save_results(self, directory):
        """Write the encoder and the loss curve; each file is whole or as it was."""
        encoder = copy.deepcopy(self.model.vit).to("cpu", torch.float16)
        with TemporaryDirectory(dir=directory) as made:
            made = Path(made)
            with quiet_transformers():
                encoder.save_pretrained(made)
            processor = json.dumps(self._processor(), indent=2)
            (made / _PROCESSOR).write_text(processor + "\n", encoding="utf-8")
            with open(made / _CURVE, "w", newline="", encoding="utf-8") as file:
                table = csv.writer(file)
                table.writerow(["epoch", "loss"])
                table.writerows(
                    (epoch + 1, f"{loss:.6f}") for epoch, loss in enumerate(self.losses)
                )
            for name in RESULTS:
                os.replace(made / name, directory / name)

    def save_state(self, directory):
        """Write all that is needed to go on; the file is whole or as it was."""
        unfinished = directory / f"{STATE}.part"
        metadata = {"training": self._identity(), "losses": json.dumps(self.losses)}
        save_file(self._tensors(), unfinished, metadata)
        os.replace(unfinished, directory / STATE)

    def resume(self, directory):
        """Go on from a state that was saved, if there is one with an epoch behind it."""
        path = directory / STATE
        if not path.exists():
            return
        metadata, tensors = _read_state(path)
        try:
            losses = json.loads(metadata["losses"])
        except ValueError as error:
            raise _damaged(path, error) from None
        if not losses:
            return
        if metadata["training"] != self._identity():
            raise ValueError(
                f"{str(path)!r} is of other arguments or images; name another output_dir."
            )
        try:
            self._restore(tensors)
        except (KeyError, RuntimeError) as error:
            raise _damaged(path, error) from None
        self.losses = losses

    def _restore(self, tensors):
        """Take over weights and moments of the optimizer; the inverse of ``_tensors``."""
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(tensors[f"model.{name}"])
                if parameter.requires_grad:
                    self.optimizer.state[parameter] = {
                        "step": tensors[f"step.{name}"],
                        "exp_avg": tensors[f"exp_avg.{name}"].to(parameter.device),
                        "exp_avg_sq": tensors[f"exp_avg_sq.{name}"].to(parameter.device),
                    }

    def _tensors(self):
        """Weights and moments of the optimizer, by name."""
        tensors = {}
        for name, parameter in self.model.named_parameters():
            tensors[f"model.{name}"] = parameter.detach().cpu().contiguous()
            for kind, value in self.optimizer.state.get(parameter, {}).items():
                tensors[f"{kind}.{name}"] = value.detach().cpu().contiguous()
        return tensors

    def _identity(self):
        """All that the numbers depend on, as JSON; the images by their number and digest."""
        ignored = ("transformers_version", "dtype", "torch_dtype", "_name_or_path")
        config = {k: v for k, v in self.config.to_dict().items() if k not in ignored}
        images = {"n": len(self.levels), "digest": self._digest}
        return json.dumps({"config": config, "schedule": asdict(self.schedule), "images": images})

    def _processor(self):
        """``preprocessor_config.json``."""
        side, (mean, std) = self.config.image_size, self.moments
        return {
            "image_processor_type": "ViTImageProcessor",
            "do_resize": True,
            "size": {"height": side, "width": side},
            "resample": 2,
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": mean,
            "image_std": std,
        }


def _read_state(path):
    """Metadata and tensors of a state; ValueError if it is damaged or somebody else's."""
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise _damaged(path, error) from None
    if not {"training", "losses"} <= metadata.keys():
        raise ValueError(
            f"{str(path)!r} was not written by pretrain_vit_mae; name another output_dir."
        )
    return metadata, tensors


def _damaged(path, error):
    return ValueError(f"{str(path)!r} is damaged ({error}); remove its directory to start anew.")


def _digest_of(levels):
    """Hexadecimal digest of the bytes of all images, without a copy of more than one."""
    digest = blake2b(digest_size=16)
    for image in levels.numpy():
        digest.update(np.ascontiguousarray(image))
    return digest.hexdigest()


def _moments(levels):
    """Mean and standard deviation of each channel of images in [0, 1], two lists."""
    means, deviations = [], []
    for channel in levels.unbind(1):
        share = torch.bincount(channel.flatten().int(), minlength=256).double() / channel.numel()
        values = torch.arange(256, dtype=torch.float64) / 255
        mean = float(share @ values)
        deviation = float(share @ (values - mean) ** 2) ** 0.5
        means.append(round(mean, 4))
        deviations.append(round(max(deviation, 1 / 255), 4))
    return means, deviations
