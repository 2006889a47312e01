"""The command ``python -m skfedhip.pretraining``."""

import argparse
import os
import sys
from pathlib import Path

import numpy as np
import torch

from ..datasets import load_idx
from ..feature_extraction._images import read_all
from . import pretrain_vit_mae, small_vit_mae_config
from ._checks import whole_number


def main(argv=None):
    """Pretrain on an idx data set's training images or on a file of images.

    Returns
    -------
    int
        0; errors of the user's leave with SystemExit of code 2 and one sentence on stderr.
    """
    parser = _parser()
    args = parser.parse_args(argv)
    try:
        made = _run(args)
    except (OSError, TypeError, ValueError) as error:
        parser.exit(2, f"{parser.prog}: error: {error}\n")
    print(f"The checkpoint is in {str(made)!r}; use it as ViTMAETransformer({str(made)!r}).")
    return 0


def _run(args):
    if args.threads is not None:
        torch.set_num_threads(whole_number("--threads", args.threads, 1, os.cpu_count()))
    images = _read_images(args.images)
    channels, height, _ = read_all(np.atleast_1d(images)[:1], 3)[0].shape
    return pretrain_vit_mae(
        images,
        small_vit_mae_config(height, channels, args.patch_size),
        output_dir=args.output_dir,
        epochs=args.epochs,
        batch_size=args.batch_size,
        lr=args.lr,
        warmup_epochs=max(0, min(2, args.epochs - 1)),
        random_state=args.seed,
        device=args.device,
        verbose=1,
    )


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
    option("--threads", type=int, help="threads of the CPU, at most one a core")
    return parser


def _read_images(path):
    """Training images of an idx data set, or the array of an .npy file."""
    if Path(path).expanduser().is_dir():
        data = load_idx(path)
        return data.images[: data.train_size]
    try:
        images = np.load(Path(path).expanduser(), mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise FileNotFoundError(f"There is no file or directory {path!r}.") from None
    except (EOFError, ValueError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise ValueError(
            f"{path!r} is neither a directory of idx files nor an .npy file of images ({reason})."
        ) from None
    if not isinstance(images, np.ndarray):
        images.close()
        raise ValueError(
            f"{path!r} is an .npz file of several arrays; write the images with numpy.save."
        )
    return images


if __name__ == "__main__":
    sys.exit(main())
