"""The scikit-learn shell of every personalized classifier: ids, labels, validation, predict."""

import copy
from abc import ABCMeta, abstractmethod
from contextlib import contextmanager, nullcontext
from numbers import Integral

import numpy as np
from joblib import effective_n_jobs
from joblib.parallel import get_active_backend
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import (
    _safe_indexing,
    assert_all_finite,
    check_array,
    check_consistent_length,
    column_or_1d,
)
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted, validate_data

from .exceptions import MissingGroupsWarning
from .protocol import run_federation
from .utils._columns import check_has_columns, group_position
from .utils._ids import as_ids, check_same_kind, lookup_ids, object_array
from .utils._threads import single_blas_thread
from .utils._warn import warn_user

_DTYPES = [np.float64, np.float32]


class GroupColumnMixin:
    """Takes the client ids out of X where ``group_column`` names them, and validates the rest."""

    _allow_nd = False
    """Whether a row may be more than a vector, such as an image."""

    def _validate_rows(self, X, groups, *, reset, allow_none=False):
        """Check X and ids: (features (n, m), ids (n,) or None)."""
        if self.group_column is None:
            X = validate_data(self, X, dtype=_DTYPES, reset=reset, allow_nd=self._allow_nd)
        else:
            X, column = self._split_group_column(X, reset=reset)
            groups = column if groups is None else groups
        if groups is None:
            return X, None
        return X, as_ids(groups, X.shape[0], allow_none=allow_none)

    def _split_group_column(self, X, *, reset):
        if not hasattr(X, "columns"):
            # A list's ids stay what they are: in one array with floats, large ints would not.
            as_objects = isinstance(X, list | tuple)
            X = np.asarray(X, dtype=object) if as_objects else X
            X = check_array(X, dtype=None, allow_nd=True)
            check_has_columns(X, self.group_column, type(self).__name__)
        validate_data(self, X, skip_check_array=True, reset=reset)
        position = self._group_position(X)
        others = [j for j in range(X.shape[1]) if j != position]
        if not others:
            raise ValueError(
                f"{type(self).__name__} got 1 feature(s), which group_column="
                f"{self.group_column!r} takes as the client id; at least one feature is needed."
            )
        column = _safe_indexing(X, position, axis=1)
        if reset:
            self._warn_of_fractions(column)
        return check_array(_safe_indexing(X, others, axis=1), dtype=_DTYPES), column

    def _warn_of_fractions(self, column):
        ids = np.asarray(column)
        if ids.dtype.kind == "O" and all(isinstance(each, float) for each in ids.tolist()):
            ids = ids.astype(float)
        fractions = ids[ids % 1 > 0] if ids.dtype.kind == "f" else ()
        if len(fractions):
            warn_user(
                f"group_column={self.group_column!r} of {type(self).__name__} holds fractions such "
                f"as {fractions[0]:g}, each of which is a client; check that it is the "
                "column of ids.",
                UserWarning,
            )

    def _group_position(self, X):
        return group_position(X, self.group_column, self.n_features_in_, type(self).__name__)


def parallel_map(n_jobs):
    """A ``map`` over blocks that keeps their order, run by joblib as the caller configured it."""
    if effective_n_jobs(n_jobs) == 1:
        return map

    def mapped(function, *iterables):
        backend, _ = get_active_backend(prefer="threads")
        lazy = getattr(backend, "supports_return_generator", False)
        return_as = "generator" if lazy else "list"
        parallel = Parallel(n_jobs=n_jobs, prefer="threads", return_as=return_as)
        return parallel(delayed(function)(*args) for args in zip(*iterables, strict=False))

    return mapped


def blas_limit(n_jobs):
    """One BLAS thread a job where jobs run side by side."""
    return nullcontext() if effective_n_jobs(n_jobs) == 1 else single_blas_thread()


def run_on_blocks(method, blocks, schema, n_jobs, **how):
    """Run a method on blocks, by joblib where they are in this process."""
    with blas_limit(n_jobs):
        return run_federation(method, blocks, schema, map_blocks=parallel_map(n_jobs), **how)


class PersonalizedClassifier(GroupColumnMixin, ClassifierMixin, BaseEstimator, metaclass=ABCMeta):
    """Base of the classifiers that keep one model a client and one for everybody else.

    A subclass implements ``fit``, ``_client_scores`` and ``_seen_classes``; this class turns ids
    and labels into codes on the way in and scores into predictions on the way out.
    """

    __metadata_request__fit = {"groups": True}
    __metadata_request__partial_fit = {"groups": True}
    __metadata_request__predict = {"groups": True}
    __metadata_request__predict_proba = {"groups": True}
    __metadata_request__predict_log_proba = {"groups": True}
    __metadata_request__decision_function = {"groups": True}
    __metadata_request__score = {"groups": True}

    _parameter_constraints = {
        "local_classes_only": ["boolean"],
        "group_column": [Integral, str, None],
        "missing_groups": [StrOptions({"warn", "error", "global"})],
        "n_jobs": [Integral, None],
    }

    @abstractmethod
    def _client_scores(self, X, codes):
        """Scores (n, d), float64; codes give each row's client, -1 for the global model."""

    @abstractmethod
    def _seen_classes(self):
        """Which classes each client had, bool of shape (K, d)."""

    def _restricts_classes(self):
        """Whether a client's rows may only be given classes that it had."""
        return self.local_classes_only

    def _temperature(self):
        """What scores are divided by before the softmax."""
        return getattr(self, "temperature_", 1.0)

    def _light(self):
        """A copy that has no more than predicting takes."""
        return copy.copy(self)

    @property
    def bytes_up_(self):
        """Bytes that each client has sent, shape (K,), in the order of ``clients_``."""
        return self._traffic()[0]

    @property
    def bytes_down_(self):
        """Bytes that each client has received, shape (K,), in the order of ``clients_``."""
        return self._traffic()[1]

    def _traffic(self):
        check_is_fitted(self)
        return self._bytes

    def _validate_training(self, X, y, groups, *, reset):
        """Features (n, m), labels (n,) and ids (n,); without ids all rows are client None."""
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        X, ids = self._validate_rows(X, groups, reset=reset)
        check_consistent_length(X, y)
        y = self._validate_labels(y)
        if ids is None:
            self._on_missing_groups("fit got no client ids", "all rows are taken as one client")
            ids = object_array([None] * len(y))
        return X, y, ids

    def _validate_labels(self, y):
        """Labels (n,), finite and discrete."""
        y = column_or_1d(y, warn=True)
        assert_all_finite(y, input_name="y")
        kind = type_of_target(y, input_name="y")
        if kind not in {"binary", "multiclass"}:
            raise ValueError(
                f"Unknown label type: {kind}; {type(self).__name__} needs discrete class labels."
            )
        return y

    @contextmanager
    def _all_or_nothing(self):
        """What the estimator was comes back where the body fails or is interrupted."""
        before = self.__dict__.copy()
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _set_classes(self, classes):
        """Fix the classes, of which there must be two."""
        if len(classes) < 2:
            raise ValueError(
                f"{type(self).__name__} needs at least two classes, got "
                f"{'one class' if len(classes) else 'none'}: {classes.tolist()}; check y, or "
                "name all classes in the first partial_fit."
            )
        self.classes_ = classes

    def _check_stream(self, classes, labels):
        """Check a batch's labels, and ``classes`` if given, against those of the stream."""
        if classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(
                f"classes={np.unique(classes)} differ from those of the first partial_fit, which "
                f"were {self.classes_}; leave classes out or pass the same."
            )
        self._check_labels(labels)

    def _check_labels(self, labels):
        unseen = np.setdiff1d(labels, self.classes_)
        if len(unseen):
            raise ValueError(
                f"label {unseen.tolist()[0]!r} is not among the classes, which are "
                f"{self.classes_}; name all classes in the first partial_fit."
            )

    def _check_newcomers_named(self, groups):
        if groups is None and self.group_column is None:
            raise ValueError("personalize needs the ids of the new clients; pass groups.")

    def _check_newcomers(self, client_ids):
        check_same_kind(self.clients_, client_ids)
        known = lookup_ids(self.clients_, client_ids) >= 0
        if known.any():
            old = client_ids.tolist()[np.argmax(known)]
            raise ValueError(
                f"client {old!r} has a model already; use partial_fit to add rows to it, which in "
                "closed form takes retain_statistics=True at fit."
            )

    def _on_missing_groups(self, what, instead="the global model answers"):
        if self.missing_groups == "error":
            raise ValueError(f"{what}; pass groups or set group_column (missing_groups='error').")
        if self.missing_groups == "warn":
            warn_user(
                f"{what}: {instead}; pass groups (through a Pipeline or a search with metadata "
                "routing on), set group_column, or silence this with missing_groups='global'.",
                MissingGroupsWarning,
            )

    def _scores(self, X, groups):
        """Scores (n, d) with -inf for the classes that a client may not predict."""
        check_is_fitted(self)
        X, ids = self._validate_rows(X, groups, reset=False, allow_none=True)
        codes = self._client_codes(ids, len(X))
        scores = self._client_scores(X, codes)
        if self._restricts_classes():
            known = codes >= 0
            allowed = np.vstack([self._seen_classes(), np.ones(scores.shape[1], dtype=bool)])
            scores[known] = np.where(allowed[codes[known]], scores[known], -np.inf)
        return scores.astype(X.dtype, copy=False)

    def _client_codes(self, ids, n_rows):
        if ids is None:
            self._on_missing_groups("predict got no client ids")
            return np.full(n_rows, -1)
        check_same_kind(self.clients_, ids)
        codes = lookup_ids(self.clients_, ids)
        if None in set(ids.tolist() if ids.dtype == object else ()):
            codes[ids == None] = -1  # noqa: E711 - no id, whoever was fitted without one
        unknown = codes < 0
        if unknown.any() and (self.missing_groups == "error" or unknown.all()):
            example = ids.tolist()[np.argmax(unknown)]
            some = "none of the client ids is" if unknown.all() else "not all client ids are"
            self._on_missing_groups(f"{some} known from fit (for example {example!r})")
        return codes

    def decision_function(self, X, *, groups=None):
        """Score each row with its client's personal model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to score; with ``group_column``, including that column.
        groups : array-like of shape (n_samples,), default=None
            Client id of each row. Rows of unknown clients, and rows whose id is None, are scored
            by the global model.

        Returns
        -------
        ndarray of shape (n_samples, n_classes), or (n_samples,) for two classes
            One column a class of ``classes_``, for every client. For two classes, the score of
            ``classes_[1]`` less that of ``classes_[0]``.
        """
        scores = self._scores(X, groups)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict(self, X, *, groups=None):
        """Predict the class of each row with its client's personal model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to classify; with ``group_column``, including that column.
        groups : array-like of shape (n_samples,), default=None
            Client id of each row; unknown clients get the global model.

        Returns
        -------
        ndarray of shape (n_samples,)
            Class labels.
        """
        best = self._scores(X, groups).argmax(axis=1)
        return self.classes_[best]

    def predict_proba(self, X, *, groups=None):
        """Softmax of the scores over ``temperature_``, over all classes of the federation.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to classify; with ``group_column``, including that column.
        groups : array-like of shape (n_samples,), default=None
            Client id of each row; unknown clients get the global model.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities that sum to one in each row, in the order of ``classes_``.
        """
        return softmax(self._scores(X, groups) / self._temperature(), axis=1)

    def predict_log_proba(self, X, *, groups=None):
        """Logarithm of ``predict_proba``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to classify; with ``group_column``, including that column.
        groups : array-like of shape (n_samples,), default=None
            Client id of each row; unknown clients get the global model.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Log-probabilities; -inf for the classes that ``local_classes_only`` rules out.
        """
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X, groups=groups))

    def score(self, X, y, *, groups=None, sample_weight=None):
        """Accuracy of the personal models on all rows together.

        For the mean over clients see :func:`skfedhip.metrics.client_scores`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Test rows; with ``group_column``, including that column.
        y : array-like of shape (n_samples,)
            True labels.
        groups : array-like of shape (n_samples,), default=None
            Client id of each row; unknown clients get the global model.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        float
            Share of rows that are predicted rightly, 0 to 1.
        """
        return accuracy_score(y, self.predict(X, groups=groups), sample_weight=sample_weight)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        # A battery of checks with two features leaves one once the id column is taken out.
        tags.classifier_tags.poor_score = self.group_column is not None
        return tags
