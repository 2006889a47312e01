"""Random features as a transformer."""

from numbers import Integral

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    _fit_context,
)
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from ..core import ACTIVATIONS, gaussian_projection, random_features
from ..utils._random import draw_seed


class RandomFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Fixed random features φ(X R), R Gaussian with variance 1 / n_features.

    The map depends on the seed and the number of features alone, so clients that share a seed
    share the map. It is the primary stream of :class:`skfedhip.AnaPFLClassifier` with the same
    ``random_state``.

    Parameters
    ----------
    n_components : int, default=1024
        Random features q.
    activation : {"tanh", "relu", "gelu"} or callable, default="tanh"
        Nonlinearity φ, from an array of shape (n, q) to one of the same shape.
    random_state : int, RandomState instance or None, default=None
        Seed of R; pass an int for the same map in every fit.

    Attributes
    ----------
    components_ : ndarray of shape (n_features, q)
        R.
    n_features_in_ : int
        Columns of X at fit.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Column names of X at fit, where it had any.

    Examples
    --------
    >>> import numpy as np
    >>> from skfedhip.feature_extraction import RandomFeatures
    >>> RandomFeatures(n_components=8, random_state=0).fit_transform(np.eye(3)).shape
    (3, 8)
    """

    _parameter_constraints = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "activation": [StrOptions(set(ACTIVATIONS)), callable],
        "random_state": ["random_state"],
    }

    def __init__(self, n_components=1024, *, activation="tanh", random_state=None):
        self.n_components = n_components
        self.activation = activation
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None):
        """Draw the map for the number of features of X.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Only its number of columns is read.
        y : None
            Ignored.

        Returns
        -------
        self : object
            The fitted transformer.
        """
        X = validate_data(self, X, dtype=[np.float64, np.float32])
        seed = draw_seed(self.random_state)
        self.components_ = gaussian_projection(X.shape[1], self.n_components, seed, b"primary")
        return self

    @classmethod
    def from_components(cls, components, activation="tanh"):
        """A fitted transformer with a given map.

        Parameters
        ----------
        components : ndarray of shape (n_features, q)
            R.
        activation : {"tanh", "relu", "gelu"} or callable, default="tanh"
            Nonlinearity φ.

        Returns
        -------
        RandomFeatures
            Fitted; a clone of it draws a map of its own.
        """
        features = cls(components.shape[1], activation=activation)
        features.components_ = components
        features.n_features_in_ = len(components)
        return features

    def transform(self, X):
        """Map rows to random features.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to map.

        Returns
        -------
        ndarray of shape (n_samples, q)
            Features, in the floating dtype of X.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return random_features(X, self.components_, self.activation).astype(X.dtype, copy=False)

    @property
    def _n_features_out(self):
        return self.components_.shape[1]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
