"""What the features of a ViT-MAE are worth: a ridge on them beside a ridge on pixels.

The data set's own training rows fit, its own test rows score, and each ridge has the penalty that
leave-one-out on the training rows prefers. The untrained encoder has the same architecture.
"""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from sklearn.linear_model import RidgeClassifierCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ..datasets import load_idx
from . import _data
from ._arguments import output_file, path, whole_number
from ._table import write_json


def measure(model, data, rows=None):
    """Test accuracy of a ridge on pixels and on features.

    Parameters
    ----------
    model : str
        Of :class:`skfedhip.feature_extraction.ViTMAETransformer`.
    data : Bunch
        From :func:`skfedhip.datasets.load_idx`.
    rows : int or None
        Use the first so many training rows and no more.

    Returns
    -------
    dict of str to float
    """
    size = data.train_size if rows is None else min(rows, data.train_size)
    train, test = slice(size), slice(data.train_size, None)

    if len(np.unique(data.target[train])) < 2:
        raise ValueError(f"The first {size} training rows are of one class; use more rows.")

    def accuracy(features):
        ridge = make_pipeline(StandardScaler(), RidgeClassifierCV(np.logspace(-1, 4, 11)))
        ridge.fit(features(data.images[train]), data.target[train])
        return float(ridge.score(features(data.images[test]), data.target[test]))

    with TemporaryDirectory() as untrained:
        _write_untrained(model, untrained)  # first of all: it finds out if there is such a model
        out = {"pixels": accuracy(lambda images: _data.features(images, "pixels"))}
        for name, directory in ((model, model), ("untrained", untrained)):
            for pooling in ("cls", "mean"):
                out[f"{name}, {pooling}"] = accuracy(_transformer(directory, pooling).transform)
    return out


def _transformer(model, pooling):
    from ..feature_extraction import ViTMAETransformer

    return ViTMAETransformer(model, pooling=pooling)


def _write_untrained(model, directory):
    """A checkpoint of the same architecture with the weights that pretraining starts from."""
    from transformers import ViTMAEConfig

    from ..feature_extraction._backbone import quiet_transformers
    from ..pretraining._model import new_model

    checkpoint = _transformer(model, "cls")._plan().checkpoint
    with quiet_transformers():
        new_model(ViTMAEConfig(**checkpoint.config), 0).vit.save_pretrained(directory)
    processor = checkpoint.directory / "preprocessor_config.json"
    if processor.exists():
        shutil.copy(processor, Path(directory))


def add_arguments(parser):
    """Command-line options of ``probe``."""
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        type=path,
        default=_data.FASHION_MNIST,
        help="directory of the four idx files (default: %(default)s)",
    )
    parser.add_argument(
        "--model",
        default="vit-mae-tiny",
        help="of ViTMAETransformer, by name or directory (default: %(default)s)",
    )
    parser.add_argument(
        "--rows", metavar="N", type=whole_number(1), help="use so many training rows, not all"
    )
    parser.add_argument(
        "--json", metavar="FILE", type=output_file, help="write the accuracies to this file too"
    )


def run(args):
    """Measure and print."""
    accuracies = measure(args.model, load_idx(args.data_dir), args.rows)
    print("Accuracy of a ridge on the test rows")
    for name, accuracy in accuracies.items():
        print(f"  {name:24}{accuracy:8.4f}{accuracy - accuracies['pixels']:+10.4f}")
    if args.json is not None:
        write_json(args.json, {"probe": accuracies})
