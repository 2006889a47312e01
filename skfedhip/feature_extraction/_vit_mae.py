"""Images to features by the frozen encoder of a ViT-MAE."""

import os
from functools import partial
from numbers import Integral
from pathlib import Path

import numpy as np
import torch
from joblib import Memory
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    _fit_context,
    clone,
)
from sklearn.utils._param_validation import Interval, StrOptions
from tqdm import tqdm

from ._backbone import find_checkpoint, module_checkpoint
from ._extraction import Plan
from ._feature_cache import FeatureCache
from ._images import as_images


class ViTMAETransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Features of images from the frozen encoder of a masked autoencoder, ViT-MAE.

    The encoder sees all patches of an image: nothing is masked, nothing is random, nothing is
    trained. Images are resized and normalised as the checkpoint's image processor says. The
    weights are loaded once a process, when ``transform`` first needs them, and are shared by all
    transformers of one configuration; ``clone`` and ``pickle`` carry the configuration alone.

    Images may be

    * arrays (n, h, w), (n, h, w, c) or (n, c, h, w) with c of 1 or 3; the last axis is taken for
      the channels where it can be. Whole numbers must be from 0 to 255, floats from 0 to 1;
    * rows (n, h * w * c), with ``image_shape``;
    * paths of image files and PIL images, as a list, an array, or one column of a DataFrame; None,
      NaN and pandas' NA are missing images.

    Colour becomes grey for models of one channel, grey becomes colour for those of three. Files and
    PIL images are turned upright as their EXIF data say, and transparent pixels are laid on white;
    of an animation the first frame counts, or the one that a PIL image stands at. More than 8 bits
    a channel are refused in them.

    Parameters
    ----------
    model : str, path-like or torch.nn.Module, default="vit-mae-tiny"
        Which checkpoint: "vit-mae-tiny", a small one for grey images that ships with skfedhip; a
        directory that ``save_pretrained`` or :func:`skfedhip.pretraining.pretrain_vit_mae` wrote;
        a model on the Hugging Face hub, such as "facebook/vit-mae-base"; or a ``ViTMAEModel`` or
        ``ViTMAEForPreTraining``, whose weights then travel with pickles; it is copied when it is
        first used and whenever its weights have changed. Only safetensors are read, never pickled
        weights, and no code comes with a model. Image processors that do anything else than to
        resize to a height and a width, to rescale and to normalise are refused.
    pooling : {"cls", "mean"}, default="cls"
        Features are the class token, or the mean of the patches' tokens.
    layer : int, default=-1
        Which of the encoder's layers to stop after, as an index into the list of layers. The
        encoder's final LayerNorm follows in any case.
    image_size : int, tuple of two int or None, default=None
        Pixels, (height, width), that images are resized to, multiples of the patch size; position
        embeddings are interpolated. None is the checkpoint's own size.
    image_shape : tuple of int or None, default=None
        Shape of one image, where images come as flattened rows: (h, w), (h, w, c) or (c, h, w).
        Arrays of images must be of this shape, if it is given.
    device : str, default="auto"
        Where to compute, as torch names it; "auto" is "cuda" where there is a GPU, else "cpu".
    dtype : {"auto", "float32", "bfloat16", "float16"}, default="auto"
        Precision of the encoder; "auto" is bfloat16 on a GPU, else float32. Features are float32.
    batch_size : int or "auto", default="auto"
        Images that the encoder sees at a time; "auto" goes by free memory on a GPU. A batch that
        does not fit is halved. Whatever the number, images before resizing fill some 64 MB at most,
        or are one.
    revision : str or None, default=None
        Branch, tag or commit of a model on the hub.
    local_files_only : bool, default=False
        Whether to use a hub's model only if it was downloaded before.
    cache : str, path-like, joblib.Memory or None, default=None
        Directory that keeps features by the content of the image and by all that they depend on,
        so that a grid search computes them once, and an image that comes twice. Safe to interrupt
        and to share by processes; a call adds a file, and many small ones are merged. On a disk
        that is full the features come with a warning and are not kept. The features are in
        ``skfedhip-features`` below the directory, which nothing empties, or below that of a Memory,
        whose ``clear`` removes them too.
    errors : {"raise", "nan"}, default="raise"
        Images that are missing, damaged or have NaN or infinite pixels raise ValueError with their
        row, or get features NaN. Pixels out of range raise in any case: they are no damage of one
        image, but a wrong scale of all.
    verbose : int, default=0
        Above 0, a progress bar with images per second on stderr.

    See Also
    --------
    skfedhip.pretraining.pretrain_vit_mae : Make a checkpoint from unlabelled images.

    Notes
    -----
    With the same images, batch size and device two calls give the same bits; with another batch
    size features differ by rounding. On bytes, preprocessing differs from the checkpoint's own
    image processor by at most two levels of 255 (PIL and torch round differently when resizing).

    References
    ----------
    K. He, X. Chen, S. Xie, Y. Li, P. Dollár, R. Girshick, "Masked Autoencoders Are Scalable Vision
    Learners", CVPR 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from skfedhip.feature_extraction import ViTMAETransformer
    >>> images = np.random.default_rng(0).integers(0, 256, (5, 28, 28), dtype=np.uint8)
    >>> ViTMAETransformer().fit_transform(images).shape
    (5, 192)
    """

    _parameter_constraints = {
        "model": [str, os.PathLike, torch.nn.Module],
        "pooling": [StrOptions({"cls", "mean"})],
        "layer": [Integral],
        "image_size": [Interval(Integral, 1, None, closed="left"), tuple, list, None],
        "image_shape": [tuple, list, None],
        "device": [str, torch.device],
        "dtype": [StrOptions({"auto", "float32", "bfloat16", "float16"})],
        "batch_size": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "revision": [str, None],
        "local_files_only": ["boolean"],
        "cache": [str, os.PathLike, Memory, None],
        "errors": [StrOptions({"raise", "nan"})],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        model="vit-mae-tiny",
        *,
        pooling="cls",
        layer=-1,
        image_size=None,
        image_shape=None,
        device="auto",
        dtype="auto",
        batch_size="auto",
        revision=None,
        local_files_only=False,
        cache=None,
        errors="raise",
        verbose=0,
    ):
        self.model = model
        self.pooling = pooling
        self.layer = layer
        self.image_size = image_size
        self.image_shape = image_shape
        self.device = device
        self.dtype = dtype
        self.batch_size = batch_size
        self.revision = revision
        self.local_files_only = local_files_only
        self.cache = cache
        self.errors = errors
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None):
        """Check the parameters, the checkpoint and the shape of X; nothing is learned.

        Parameters
        ----------
        X : array-like, DataFrame with one column, or list
            Images; see above.
        y : None
            Ignored.

        Returns
        -------
        self : object
            The transformer, which may be used without ``fit`` as well.

        Raises
        ------
        OSError
            If there is no such checkpoint, or the hub can't be reached.
        ValueError
            If the checkpoint is no ViT-MAE, or X holds no images.
        """
        as_images(X, self.image_shape)
        self._cache_directory()
        self._plan()
        return self

    def transform(self, X):
        """Map images to features.

        Parameters
        ----------
        X : array-like, DataFrame with one column, or list
            The n images; see above.

        Returns
        -------
        ndarray of shape (n, p)
            Features, float32; p is the width of the encoder.

        Raises
        ------
        OSError
            If there is no such checkpoint, the hub can't be reached, or there can be no directory
            where the cache should be.
        ValueError
            If X is empty or not images, if pixels are out of range, or, with ``errors="raise"``,
            if an image can't be read; or if the encoder's features are not finite.
        """
        self._validate_params()
        images = as_images(X, self.image_shape)
        plan = self._plan()
        features = np.full((len(images), plan.n_features), np.nan, dtype=np.float32)
        directory = self._cache_directory()
        if directory is None:
            for rows, values in self._features(images, plan, np.arange(len(images))):
                features[rows] = values
        else:
            cache = FeatureCache(directory / plan.digest(), plan.n_features)
            digests = images.digests(np.arange(len(images)))
            cache.complete(digests, features, partial(self._features, images, plan))
        return features

    def _features(self, images, plan, rows):
        """Yield rows and their features, batch by batch; see to images that can't be read."""
        if self.errors == "raise":
            _raise_for(images.missing(rows))
        extraction = plan.extraction()
        size = self.batch_size if self.batch_size != "auto" else extraction.batch_size()
        with tqdm(total=len(rows), unit="image", disable=not self.verbose) as bar:
            for done, values, problems in extraction.run(images, rows, size):
                if self.errors == "raise":
                    _raise_for(problems)
                bar.update(len(done) + len(problems))
                yield done, values

    def _plan(self):
        """What is to be computed, and with what; reads configurations, not weights."""
        if isinstance(self.model, torch.nn.Module):
            checkpoint = module_checkpoint(self.model)
        else:
            checkpoint = find_checkpoint(self.model, self.revision, self.local_files_only)
        return Plan.of(
            checkpoint, self.pooling, self.layer, self.image_size, self.device, self.dtype
        )

    def _cache_directory(self):
        """Path or None."""
        location = self.cache
        if isinstance(location, Memory):  # where its own clear() and reduce_size() reach
            store = location.store_backend
            location = None if store is None else store.location
        if location is None:
            return None
        if not os.fsdecode(location):
            raise ValueError("cache is an empty path; pass a directory or None.")
        return Path(os.path.expanduser(os.fsdecode(location))) / "skfedhip-features"

    @property
    def _n_features_out(self):
        return self._plan().n_features

    def __sklearn_clone__(self):
        # a module is shared: it is never written to, and a copy may be a gigabyte
        params = self.get_params(deep=False)
        model = params.pop("model")
        return type(self)(model, **{name: clone(p, safe=False) for name, p in params.items()})

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.input_tags.string = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


def _raise_for(problems):
    """ValueError that names the first image that can't be used, and how many others."""
    if problems:
        row, reason = next(iter(problems.items()))
        others = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise ValueError(
            f"Image {row} of X {reason}{others}; mend what is wrong, or pass errors='nan'."
        )
