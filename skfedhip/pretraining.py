"""Pretrain a small ViT-MAE on unlabelled images: ``python -m skfedhip.pretraining``.

The encoder sees a quarter of an image's patches, a small decoder draws the others, and their
squared error is minimised (He et al., "Masked Autoencoders Are Scalable Vision Learners",
CVPR 2022). No labels are used.
"""

import argparse
import copy
import csv
import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from tqdm import tqdm
from transformers import ViTMAEConfig, ViTMAEForPreTraining

from .datasets import load_idx
from .feature_extraction._backbone import quiet_transformers
from .feature_extraction._device import resolve_device
from .feature_extraction._images import as_images, read_all

__all__ = ["pretrain_vit_mae", "small_vit_mae_config"]

_STATE = "training_state.safetensors"
_CURVE = "loss_curve.csv"
_BETAS = (0.9, 0.95)


def small_vit_mae_config(image_size=28, num_channels=1, patch_size=7):
    """Configuration of a ViT-MAE that a CPU can pretrain: 4 layers, 192 wide, 1.8 M weights.

    Parameters
    ----------
    image_size : int, default=28
        Height and width of an image, a multiple of the patch size.
    num_channels : {1, 3}, default=1
        1 for grey images, 3 for colour.
    patch_size : int, default=7
        Height and width of a patch.

    Returns
    -------
    transformers.ViTMAEConfig
        Any of its attributes may be changed.

    Examples
    --------
    >>> from skfedhip.pretraining import small_vit_mae_config
    >>> small_vit_mae_config(image_size=32, num_channels=3, patch_size=8).hidden_size
    192
    """
    return ViTMAEConfig(
        image_size=image_size,
        num_channels=num_channels,
        patch_size=patch_size,
        hidden_size=192,
        num_hidden_layers=4,
        num_attention_heads=6,
        intermediate_size=768,
        decoder_hidden_size=96,
        decoder_num_hidden_layers=1,
        decoder_num_attention_heads=3,
        decoder_intermediate_size=384,
        mask_ratio=0.75,
    )


@dataclass(frozen=True)
class _Schedule:
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


def pretrain_vit_mae(
    images,
    config=None,
    *,
    output_dir,
    epochs=40,
    batch_size=128,
    lr=1e-3,
    weight_decay=0.05,
    warmup_epochs=2,
    flip=True,
    random_state=0,
    device="auto",
    verbose=0,
):
    """Pretrain a ViT-MAE by reconstruction alone, without labels.

    After each epoch the directory holds a usable encoder (``config.json``,
    ``preprocessor_config.json``, ``model.safetensors`` in half precision), the loss of each epoch
    (``loss_curve.csv``), and all that is needed to go on (``training_state.safetensors``). A call
    with the same arguments goes on where the last one was interrupted and ends with the same
    numbers as one that was not.

    Parameters
    ----------
    images : array-like or list
        n images, as :class:`skfedhip.feature_extraction.ViTMAETransformer` takes them, all of the
        size of the configuration.
    config : transformers.ViTMAEConfig or None, default=None
        Architecture; None is :func:`small_vit_mae_config`, for grey images of 28 x 28.
    output_dir : str or path-like
        Where the checkpoint goes; made if need be.
    epochs : int, default=40
        Passes over the images.
    batch_size : int, default=128
        Images a step.
    lr : float, default=1e-3
        Highest learning rate, of AdamW; it rises for ``warmup_epochs`` and falls as a cosine.
    weight_decay : float, default=0.05
        Of AdamW.
    warmup_epochs : int, default=2
        Epochs of rising learning rate, fewer than ``epochs``.
    flip : bool, default=True
        Whether to mirror half of the images, left to right, anew in each epoch.
    random_state : int, default=0
        Seed of the initial weights, the order of images and the masks.
    device : str, default="auto"
        Where to train; "auto" is a GPU if there is one.
    verbose : int, default=0
        Above 0, a progress bar on stderr.

    Returns
    -------
    pathlib.Path
        ``output_dir``, to be given to ``ViTMAETransformer(model=...)``.

    Raises
    ------
    ValueError
        If images and configuration don't fit, the loss diverges, or ``output_dir`` holds a
        training with other arguments.

    Examples
    --------
    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> from skfedhip.feature_extraction import ViTMAETransformer
    >>> from skfedhip.pretraining import pretrain_vit_mae
    >>> images = np.random.default_rng(0).integers(0, 256, (8, 28, 28), dtype=np.uint8)
    >>> with TemporaryDirectory() as directory:
    ...     made = pretrain_vit_mae(images, output_dir=directory, epochs=1, warmup_epochs=0)
    ...     ViTMAETransformer(made).transform(images).shape
    (8, 192)
    """
    config = small_vit_mae_config() if config is None else copy.deepcopy(config)
    for name, value in (("epochs", epochs), ("batch_size", batch_size)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}.")
    if config.image_size % config.patch_size:
        raise ValueError(
            f"image_size must be a multiple of patch_size, got {config.image_size} and "
            f"{config.patch_size}."
        )
    if not 0 <= warmup_epochs < epochs:
        raise ValueError(f"warmup_epochs must be from 0 to {epochs - 1}, got {warmup_epochs}.")
    schedule = _Schedule(epochs, batch_size, lr, weight_decay, warmup_epochs, flip, random_state)
    levels = _levels(images, config)
    mean, std = _moments(levels)
    training = _Training(config, schedule, (mean, std), resolve_device(device))
    output_dir = Path(output_dir)
    output_dir.mkdir(parents=True, exist_ok=True)
    training.resume(output_dir / _STATE)
    with tqdm(
        total=epochs * len(levels),
        initial=len(training.losses) * len(levels),
        unit="image",
        disable=not verbose,
    ) as bar:
        while len(training.losses) < epochs:
            training.losses.append(training.epoch(levels, bar))
            if not np.isfinite(training.losses[-1]):
                raise ValueError(
                    f"The loss is {training.losses[-1]} in epoch {len(training.losses)}; lower lr."
                )
            bar.set_postfix(loss=f"{training.losses[-1]:.4f}")
            training.save(output_dir)
    return output_dir


def _levels(images, config):
    """Bytes (n, c, h, w) of all images."""
    read = read_all(images, config.num_channels)
    size = (config.num_channels, config.image_size, config.image_size)
    for row, image in enumerate(read):
        if image.shape != size:
            raise ValueError(
                f"Image {row} has shape {image.shape}, the configuration {size}; resize the images."
            )
    levels = np.stack(read)
    if levels.dtype != np.uint8:
        levels = np.rint(levels * 255).astype(np.uint8)
    return torch.from_numpy(levels)


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


class _Training:
    """A model, its optimizer and the losses so far."""

    def __init__(self, config, schedule, moments, device):
        self.config, self.schedule, self.moments = config, schedule, moments
        self.model = new_model(config, schedule.seed).to(device).train()
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            trained, lr=schedule.lr, betas=_BETAS, weight_decay=schedule.weight_decay
        )
        self.losses = []

    def epoch(self, levels, bar):
        """Train on every image once; the mean loss."""
        schedule, model = self.schedule, self.model
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

    def save(self, output_dir):
        """Write the encoder, the loss curve and the state, the state last and in one step."""
        encoder = copy.deepcopy(self.model.vit).to("cpu", torch.float16)
        with quiet_transformers():
            encoder.save_pretrained(output_dir)
        processor = json.dumps(self._processor(), indent=2)
        (output_dir / "preprocessor_config.json").write_text(processor + "\n", encoding="utf-8")
        with open(output_dir / _CURVE, "w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(["epoch", "loss"])
            table.writerows((epoch + 1, f"{loss:.6f}") for epoch, loss in enumerate(self.losses))
        unfinished = output_dir / f"{_STATE}.part"
        save_file(
            self._tensors(),
            unfinished,
            {"training": json.dumps(self._identity()), "losses": json.dumps(self.losses)},
        )
        os.replace(unfinished, output_dir / _STATE)

    def resume(self, path):
        """Go on from a state that was saved, if there is one."""
        if not path.exists():
            return
        try:
            with safe_open(path, "pt") as file:
                metadata = file.metadata()
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise ValueError(
                f"{str(path)!r} is damaged ({error}); remove it to start anew."
            ) from None
        if metadata["training"] != json.dumps(self._identity()):
            raise ValueError(
                f"{str(path)!r} is of other arguments or images; name another output_dir."
            )
        self.losses = json.loads(metadata["losses"])
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
        """All that the numbers depend on; the images stand in by their moments."""
        ignored = ("transformers_version", "dtype", "torch_dtype", "_name_or_path")
        config = {k: v for k, v in self.config.to_dict().items() if k not in ignored}
        return {"config": config, "schedule": asdict(self.schedule), "moments": self.moments}

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


def new_model(config, seed):
    """A model with the initial values of the paper, position embeddings included."""
    config._attn_implementation = "eager"  # on few patches faster than sdpa, by a seventh
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = ViTMAEForPreTraining(config)
        embeddings, decoder = model.vit.embeddings, model.decoder
        # transformers leaves positions and tokens at zero when it builds from a configuration
        side = config.image_size // config.patch_size
        with torch.no_grad():
            embeddings.position_embeddings.copy_(_sin_cos_positions(side, config.hidden_size))
            decoder.decoder_pos_embed.copy_(_sin_cos_positions(side, config.decoder_hidden_size))
            torch.nn.init.normal_(embeddings.cls_token, std=config.initializer_range)
            torch.nn.init.normal_(decoder.mask_token, std=config.initializer_range)
            for module in model.modules():
                if isinstance(module, torch.nn.Linear):
                    torch.nn.init.xavier_uniform_(module.weight)
                    torch.nn.init.zeros_(module.bias)
            projection = embeddings.patch_embeddings.projection.weight
            torch.nn.init.xavier_uniform_(projection.view(len(projection), -1))
    return model


def _sin_cos_positions(side, width):
    """Fixed position embeddings (1, side * side + 1, width) of a grid; the class token's is 0."""
    frequencies = 10_000.0 ** (-np.arange(width // 4) / (width // 4))
    angles = np.arange(side)[:, None] * frequencies
    waves = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)  # (side, width / 2)
    grid = np.concatenate([np.repeat(waves, side, axis=0), np.tile(waves, (side, 1))], axis=1)
    positions = np.concatenate([np.zeros((1, width)), grid])
    return torch.from_numpy(positions[None].astype(np.float32))


def main(argv=None):
    """The command: pretrain on an idx data set's training images or on a file of images.

    Returns
    -------
    int
        0; errors of the user's leave with SystemExit of code 2 and one sentence on stderr.
    """
    parser = _parser()
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads or torch.get_num_threads())
    try:
        images = _read_images(args.images)
        channels, height, _ = as_images(images).read(np.arange(1), 3)[0][0].shape
        made = pretrain_vit_mae(
            images,
            small_vit_mae_config(height, channels, args.patch_size),
            output_dir=args.output_dir,
            epochs=args.epochs,
            batch_size=args.batch_size,
            lr=args.lr,
            warmup_epochs=min(2, args.epochs - 1),
            random_state=args.seed,
            device=args.device,
            verbose=1,
        )
    except (OSError, ValueError) as error:
        parser.exit(2, f"{parser.prog}: error: {error}\n")
    print(f"The checkpoint is in {str(made)!r}; use it as ViTMAETransformer({str(made)!r}).")
    return 0


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m skfedhip.pretraining",
        description=(
            "Pretrain a small ViT-MAE on unlabelled images. The same command goes on where it "
            "was stopped. An hour or two for Fashion-MNIST on one core."
        ),
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    option = parser.add_argument
    option(
        "images",
        help="directory of an idx data set, whose training images are used, or .npy file of images",
    )
    option("output_dir", help="directory that the checkpoint goes to")
    option("--epochs", type=int, default=40, help="passes over the images")
    option("--batch-size", type=int, default=128, help="images a step")
    option("--lr", type=float, default=1e-3, help="highest learning rate")
    option("--patch-size", type=int, default=7, help="height and width of a patch")
    option("--seed", type=int, default=0, help="of weights, order and masks")
    option("--device", default="auto", help="where to train, as torch names it")
    option("--threads", type=int, help="threads of the CPU")
    return parser


def _read_images(path):
    if Path(path).is_dir():
        data = load_idx(path)
        return data.images[: data.train_size]
    return np.load(path, mmap_mode="r", allow_pickle=False)


if __name__ == "__main__":
    sys.exit(main())
