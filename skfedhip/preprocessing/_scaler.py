"""Standardization from merged per-client moments."""

from dataclasses import dataclass
from functools import reduce
from numbers import Integral
from operator import add

import numpy as np
from sklearn.base import (
    BaseEstimator,
    OneToOneFeatureMixin,
    TransformerMixin,
    _fit_context,
)
from sklearn.utils.validation import check_is_fitted

from ..base import GroupColumnMixin
from ..core import ClientBlock, Moments, rows_per_block
from ..protocol import Broadcast, ClientUpdate, Empty, Schema, run_federation
from ..utils._ids import encode_ids, object_array
from ..utils._weights import check_weight


@dataclass(frozen=True)
class MomentsUpdate(ClientUpdate):
    """Counts, means and squares of clients' rows."""

    moments: Moments

    def __add__(self, other):
        return MomentsUpdate(self.moments + other.moments)


@dataclass(frozen=True)
class MomentsSum(Broadcast):
    """Those of the whole federation."""

    moments: Moments


class MomentsMethod:
    """One round: moments up, their sum down; there is nothing to personalize.

    It is what :class:`FederatedStandardScaler` runs; its verbs are those of
    :class:`skfedhip.protocol.FederatedMethod`.

    Examples
    --------
    >>> import numpy as np
    >>> from skfedhip.core import ClientBlock
    >>> from skfedhip.preprocessing import MomentsMethod
    >>> from skfedhip.protocol import Schema, run_federation
    >>> X = np.array([[0.0], [2.0], [4.0]])
    >>> owner, clients = np.array([0, 0, 1]), np.array(["north", "south"])
    >>> block = ClientBlock.from_arrays(X, np.zeros(3, dtype=int), owner, clients, 1)
    >>> schema = Schema(n_features=1, classes=np.zeros(1), dtype=X.dtype)
    >>> result = run_federation(MomentsMethod(), block.cut(1), schema)
    >>> result.broadcasts[-1].moments.mean
    array([2.])
    """

    n_rounds = 1

    def initialize(self, schema):
        """Nothing to say before the moments are known."""
        return Empty()

    def client_update(self, block, broadcast, state):
        """Sum up the moments of the block's rows."""
        pieces = block.pieces(rows_per_block(block.X.shape[1]))
        parts = (Moments.from_rows(piece.features(), piece.sample_weight) for piece in pieces)
        return MomentsUpdate(reduce(add, parts)), state

    def aggregate(self, updates, broadcast, server_state):
        """The sum of all moments."""
        total = reduce(add, updates)
        return MomentsSum(total.moments), total

    def personalize(self, block, broadcast, state):
        """Every client scales alike."""
        return


class FederatedStandardScaler(
    GroupColumnMixin, OneToOneFeatureMixin, TransformerMixin, BaseEstimator
):
    """Standardize features to mean 0 and variance 1 by statistics that clients can share.

    Each client contributes its count, means and squares; merged, they give what scikit-learn's
    StandardScaler computes from the pooled rows. Unlike that, it knows an id column and passes it
    on as it is.

    Parameters
    ----------
    with_mean : bool, default=True
        Whether to subtract the mean.
    with_std : bool, default=True
        Whether to divide by the standard deviation; a constant feature is divided by 1.
    group_column : int or str, default=None
        Column of X that holds client ids and is passed on unscaled.

    Attributes
    ----------
    mean_ : ndarray of shape (m,)
        Means of the features, the id column left out.
    var_ : ndarray of shape (m,)
        Variances, by the count of rows (or the sum of their weights).
    scale_ : ndarray of shape (m,)
        What features are divided by.
    n_samples_seen_ : float
        Rows at fit, or the sum of their weights.
    bytes_up_, bytes_down_ : ndarray of shape (K,)
        What each client sends and receives, in the order of their sorted ids.
    n_features_in_ : int
        Columns of X at fit.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Column names of X at fit, where it had any.

    Examples
    --------
    >>> import numpy as np
    >>> from skfedhip import FederatedStandardScaler
    >>> X = np.array([[0.0, 7.0], [2.0, 7.0], [4.0, 8.0]])
    >>> FederatedStandardScaler(group_column=1).fit_transform(X)
    array([[-1.22474487,  7.        ],
           [ 0.        ,  7.        ],
           [ 1.22474487,  8.        ]])
    """

    __metadata_request__fit = {"groups": True}

    _parameter_constraints = {
        "with_mean": ["boolean"],
        "with_std": ["boolean"],
        "group_column": [Integral, str, None],
    }

    def __init__(self, *, with_mean=True, with_std=True, group_column=None):
        self.with_mean = with_mean
        self.with_std = with_std
        self.group_column = group_column

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, *, groups=None, sample_weight=None):
        """Merge the clients' moments.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows of all clients; with ``group_column``, including that column.
        y : None
            Ignored.
        groups : array-like of shape (n_samples,), default=None
            Client id of each row. The result does not depend on it, only what would travel.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0.

        Returns
        -------
        self : object
            The fitted scaler.
        """
        X, ids = self._validate_rows(X, groups, reset=True)
        weight = check_weight(sample_weight, X)
        clients, codes = encode_ids(object_array([None] * len(X)) if ids is None else ids)
        block = ClientBlock.from_arrays(
            X, np.zeros(len(X), dtype=np.intp), codes, clients, 1, weight
        )
        blocks = block.cut(rows_per_block(X.shape[1]))
        schema = Schema(X.shape[1], np.zeros(1), X.dtype)
        result = run_federation(MomentsMethod(), blocks, schema)
        self.bytes_up_, self.bytes_down_ = result.bytes_up, result.bytes_down
        total = result.broadcasts[-1].moments
        self.n_samples_seen_ = float(total.weight)
        self.mean_, self.var_ = total.mean, total.squares / total.weight
        if not np.isfinite(self.var_).all():
            raise ValueError(
                f"the variance of column {np.argmin(np.isfinite(self.var_))} overflows; divide X "
                "or sample_weight by a large constant first."
            )
        self.scale_ = np.sqrt(self.var_)
        # A constant feature has a variance of rounding errors only (StandardScaler's own bound).
        eps, n = np.finfo(np.float64).eps, self.n_samples_seen_
        constant = self.var_ <= n * eps * self.var_ + (n * self.mean_ * eps) ** 2
        self.scale_[constant] = 1.0
        return self

    def transform(self, X):
        """Standardize rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows; with ``group_column``, including that column.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Scaled features, and the id column in its place; an object array where numbers can't
            hold the ids.
        """
        return self._map_features(X, lambda rows: (rows - self._shift()) / self._divisor())

    def inverse_transform(self, X):
        """Undo :meth:`transform`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Scaled rows; with ``group_column``, including that column.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Rows as they were.
        """
        return self._map_features(X, lambda rows: rows * self._divisor() + self._shift())

    def _shift(self):
        return self.mean_ if self.with_mean else 0.0

    def _divisor(self):
        return self.scale_ if self.with_std else 1.0

    def _map_features(self, X, function):
        check_is_fitted(self)
        rows, ids = self._validate_rows(X, None, reset=False, allow_none=True)
        scaled = function(rows.astype(np.float64, copy=False)).astype(rows.dtype, copy=False)
        if self.group_column is None:
            return scaled
        return _insert_column(scaled, self._group_position(X), ids)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _insert_column(features, position, ids):
    """Put the id column back; as numbers where no id changes by that."""
    if ids.dtype.kind in "iufb" and np.array_equal(
        ids.astype(features.dtype).astype(ids.dtype), ids
    ):
        return np.insert(features, position, ids, axis=1)
    return np.insert(features.astype(object), position, ids, axis=1)
