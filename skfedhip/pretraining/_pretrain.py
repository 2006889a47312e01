"""Pretraining from arguments to a checkpoint."""

import os
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from ..feature_extraction._device import resolve_device
from ..feature_extraction._images import read_all
from ..utils._files import check_writable
from ._checks import checked_config, finite_number, whole_number
from ._model import small_vit_mae_config
from ._training import RESULTS, STATE, Schedule, Training


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
    with the same arguments and images goes on where the last one was interrupted and ends with the
    same numbers as one that was not.

    Parameters
    ----------
    images : array-like or list
        The n images, as :class:`skfedhip.feature_extraction.ViTMAETransformer` takes them, all of
        the size of the configuration.
    config : transformers.ViTMAEConfig or None, default=None
        Architecture; None is :func:`small_vit_mae_config`, for grey images of 28 x 28.
    output_dir : str or path-like
        Where the checkpoint goes; made if need be. A model that is there already and was not made
        by this function is not overwritten.
    epochs : int, default=40
        Passes over the images, at least 1.
    batch_size : int, default=128
        Images a step, at least 1.
    lr : float, default=1e-3
        Highest learning rate, of AdamW, above 0; it rises for ``warmup_epochs`` and falls as a
        cosine.
    weight_decay : float, default=0.05
        Of AdamW, at least 0.
    warmup_epochs : int, default=2
        Epochs of rising learning rate, fewer than ``epochs``.
    flip : bool, default=True
        Whether to mirror half of the images, left to right, anew in each epoch.
    random_state : int, default=0
        Seed of the initial weights, the order of images and the masks, from 0 to 2**32 - 1; a
        number, since a call that goes on needs the same one.
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
    TypeError
        If ``config`` is no ``ViTMAEConfig``.
    ValueError
        If an argument is out of its range, images and configuration don't fit, the loss diverges,
        or ``output_dir`` holds a training with other arguments, or another model.
    OSError
        If ``output_dir`` can't be written to.

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
    config = checked_config(small_vit_mae_config() if config is None else config)
    epochs = whole_number("epochs", epochs, 1)
    schedule = Schedule(
        epochs,
        whole_number("batch_size", batch_size, 1),
        finite_number("lr", lr, positive=True),
        finite_number("weight_decay", weight_decay),
        whole_number("warmup_epochs", warmup_epochs, 0, epochs - 1),
        bool(flip),
        whole_number("random_state", random_state, 0, 2**32 - 1),
    )
    device = resolve_device(device)
    output_dir = _checked_directory(output_dir)
    training = Training(_levels(images, config), config, schedule, device)
    training.resume(output_dir)
    output_dir.mkdir(parents=True, exist_ok=True)
    _train(training, output_dir, verbose)
    if not _is_whole(output_dir):
        training.save_results(output_dir)
    return output_dir


def _checked_directory(path):
    """The directory, where it can be written to and holds nothing of somebody else's."""
    directory = Path(os.path.expanduser(path))
    results = [name for name in RESULTS if (directory / name).exists()]
    if results and not (directory / STATE).exists():
        raise ValueError(
            f"{str(directory)!r} holds {results[0]} without {STATE}, so another model is there; "
            "name another output_dir."
        )
    if not _is_whole(directory):
        check_writable(directory)
    return directory


def _is_whole(directory):
    return all((directory / name).exists() for name in (*RESULTS, STATE))


def _train(training, output_dir, verbose):
    """Train the epochs that are left, and save after each."""
    epochs, n_images = training.schedule.epochs, len(training.levels)
    if not training.losses:
        training.save_state(output_dir)  # from here on the directory is known as ours
    with tqdm(
        total=epochs * n_images,
        initial=len(training.losses) * n_images,
        unit="image",
        disable=not verbose,
    ) as bar:
        while len(training.losses) < epochs:
            training.losses.append(training.epoch(bar))
            if not np.isfinite(training.losses[-1]):
                raise ValueError(
                    f"The loss is {training.losses[-1]} in epoch {len(training.losses)}; lower lr."
                )
            bar.set_postfix(loss=f"{training.losses[-1]:.4f}")
            training.save_results(output_dir)
            training.save_state(output_dir)


def _levels(images, config):
    """Bytes (n, c, h, w) of all images."""
    read = read_all(images, config.num_channels)
    size = (config.num_channels, config.image_size, config.image_size)
    for row, image in enumerate(read):
        if image.shape != size:
            raise ValueError(
                f"Image {row} has shape {image.shape}, the configuration {size}; resize the images."
            )
    return torch.from_numpy(np.stack([_as_bytes(image) for image in read]))


def _as_bytes(image):
    return image if image.dtype == np.uint8 else np.rint(image * 255).astype(np.uint8)
