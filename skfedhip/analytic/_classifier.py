"""The shell of the closed-form classifiers: fit, stream, forget, personalize, export, save."""

from abc import abstractmethod
from dataclasses import replace
from numbers import Real

import numpy as np
from sklearn.base import _fit_context
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from ..base import PersonalizedClassifier, run_on_blocks
from ..core import ClientBlock, PersonalModels, RetainedClients, rows_per_block
from ..exceptions import StatisticsDroppedError
from ..protocol import Schema
from ..utils._available import available_while
from ..utils._ids import (
    as_ids,
    check_same_kind,
    concatenate_ids,
    encode_ids,
    lookup_ids,
    union_ids,
)
from ..utils._weights import check_weight
from ._coefficients import CoefficientsMixin
from ._federated import AnalyticFederated
from ._persistence import AnalyticPersistence


def _labels(y, weight):
    """Distinct labels of the rows that count."""
    return np.unique(y if weight is None else y[weight > 0])


def _check_can_stream(estimator):
    estimator._check_can_stream()


def _check_can_forget(estimator):
    if hasattr(estimator, "classes_"):
        estimator._check_can_stream()


class ClosedFormClassifier(
    AnalyticFederated, AnalyticPersistence, CoefficientsMixin, PersonalizedClassifier
):
    """Base of the closed-form classifiers; a subclass names its method and its parameters."""

    _parameter_constraints = {
        **PersonalizedClassifier._parameter_constraints,
        "fit_intercept": ["boolean"],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "retain_statistics": ["boolean"],
    }

    @abstractmethod
    def _method(self):
        """The federated method that the parameters describe."""

    def _shared_parameters(self):
        """What the constructor says that all methods understand."""
        return {
            "fit_intercept": self.fit_intercept,
            "local_classes_only": self._restricts_classes(),
            # The losses that calibrate the temperature would leave unprotected.
            "calibrate": self._privacy() is None,
            "privacy": self._privacy(),
        }

    def _privacy(self):
        """The mechanism that protects what clients send, where there is one."""
        return getattr(self, "privacy", None)

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y, *, groups=None, sample_weight=None):
        """Fit the global model and every client's personal model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows of all clients, in any order; with ``group_column``, including that column.
        y : array-like of shape (n_samples,)
            Class labels.
        groups : array-like of shape (n_samples,), default=None
            Client id of each row: strings, numbers, any hashable scalars.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0; 0 leaves a row out and 2 counts it twice, in both stages.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        with self._all_or_nothing():
            X, y, ids = self._validate_training(X, y, groups, reset=True)
            weight = check_weight(sample_weight, X)
            self._start(X, _labels(y, weight), retain=False)
            self._prepare(X, y, ids)
            block = self._block(X, y, ids, weight)
            self.clients_ = block.client_ids
            blocks = block.cut(self._block_rows(X.shape[1]))
            if self.retain_statistics:
                self._retained = RetainedClients()
                self._retain(blocks)
            self._first_solve(blocks)
        return self

    @available_while(_check_can_stream)
    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X, y, *, classes=None, groups=None, sample_weight=None):
        """Add rows, of old clients or new ones; a stream of batches equals one ``fit``.

        Models are solved anew when they are next asked for. ``temperature_``, which only
        ``predict_proba`` reads, stays as the last ``fit`` left it, or 1: it takes rows that a
        stream no longer has.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to add.
        y : array-like of shape (n_samples,)
            Class labels.
        classes : array-like of shape (n_classes,), default=None
            All labels that will ever come; read in the first call, which otherwise takes the
            labels of its own rows for all there are.
        groups : array-like of shape (n_samples,), default=None
            Client id of each row.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0.

        Returns
        -------
        self : object
            The estimator with the rows added.
        """
        if self.class_weight == "balanced":
            raise ValueError(
                "class_weight='balanced' needs the class counts of all rows, which partial_fit "
                "never sees together; pass a dict of weights, or use fit."
            )
        with self._all_or_nothing():
            first = not hasattr(self, "classes_")
            X, y, ids = self._validate_training(X, y, groups, reset=first)
            weight = check_weight(sample_weight, X)
            labels = _labels(y, weight)
            if first:
                self._start(X, labels if classes is None else np.unique(classes), retain=True)
                self.clients_ = np.empty(0, dtype=ids.dtype)
                self.temperature_ = 1.0
            self._continue(classes, labels)
            block = self._block(X, y, ids, weight)
            check_same_kind(self.clients_, block.client_ids)
            self.clients_ = union_ids(self.clients_, block.client_ids)
            self._retained = self._retained.copy()
            self._retained.guests -= set(block.client_ids.tolist())
            self._retain(block.cut(self._block_rows(X.shape[1])))
            self._models = None
        return self

    @available_while(_check_can_forget)
    def forget_clients(self, ids):
        """Unlearn clients exactly: all models are as if they had never seen them.

        ``temperature_``, one number for the whole federation, stays; ``fit`` renews it.

        Parameters
        ----------
        ids : array-like of client ids
            Clients to forget.

        Returns
        -------
        self : object
            The estimator without them.
        """
        check_is_fitted(self)
        if isinstance(ids, str | bytes) or not np.iterable(ids):
            raise ValueError(f"ids must be a list of client ids, got {ids!r}; pass [{ids!r}].")
        ids = ids if hasattr(ids, "__len__") else list(ids)
        ids = as_ids(ids, len(ids), allow_none=True)
        known = self._client_positions(ids)
        left = np.delete(self.clients_, known)
        if not set(left.tolist()) - self._retained.guests:
            raise ValueError(
                f"forgetting {len(known)} of {len(self.clients_)} clients leaves none to learn "
                "from; fit anew instead."
            )
        with self._all_or_nothing():
            self._retained = self._retained.copy()
            self._retained.remove(set(ids.tolist()))
            self._forget(ids.tolist())
            self.clients_ = left
            self._models = None
        return self

    def personalize(self, X, y, *, groups=None, sample_weight=None):
        """Give new clients personal models, without touching the global one.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows of the new clients.
        y : array-like of shape (n_samples,)
            Class labels, among ``classes_``.
        groups : array-like of shape (n_samples,), default=None
            Client id of each row, none of them fitted before; here ids are not optional.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0.

        Returns
        -------
        self : object
            The estimator with the new clients in ``clients_``.
        """
        check_is_fitted(self)
        self._check_newcomers_named(groups)
        models = self._solved_models()
        with self._all_or_nothing():
            X, y, ids = self._validate_training(X, y, groups, reset=False)
            weight = check_weight(sample_weight, X)
            self._check_labels(_labels(y, weight))
            block = self._block(X, y, ids, weight)
            self._check_newcomers(block.client_ids)
            blocks = block.cut(self._block_rows(X.shape[1]))
            new = self._personal_models(blocks)
            if self._retained is not None:
                self._retained = self._retained.copy()
                self._retain(blocks)
                self._retained.guests |= set(block.client_ids.tolist())
            self.clients_ = union_ids(self.clients_, block.client_ids)
            self._models = self._in_order([models, *new])
            self._bytes = self._count_guests(self._bytes, block.client_ids)
        return self

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        # Without an intercept the boundary of two classes passes through the origin.
        tags.classifier_tags.poor_score |= not self.fit_intercept
        return tags

    def _check_can_stream(self):
        if hasattr(self, "classes_") and self._retained is None:
            raise StatisticsDroppedError(
                "partial_fit and forget_clients need the clients' statistics, which fit dropped; "
                "set retain_statistics=True before fit, or build the model by partial_fit alone."
            )

    def _forget(self, ids):
        """Drop what a subclass knows of these clients."""

    def _prepare(self, X, y, ids):
        """Take what a subclass needs of the training rows as they were given."""

    def _start(self, X, classes, *, retain):
        """Forget all that was fitted and fix what a stream can't change."""
        self._set_classes(classes)
        if self._privacy() is not None and (retain or self.retain_statistics):
            raise ValueError(
                "privacy= covers one release, and streams and forgetting would each make another; "
                "use fit, with retain_statistics=False."
            )
        self._dtype = X.dtype
        self._n_features = X.shape[1]
        self._fitted_method = self._method()
        self._retained = RetainedClients() if retain else None
        self._models = None

    def _continue(self, classes, labels):
        """Check a batch against the stream that it continues."""
        self._check_stream(classes, labels)
        method = self._method()
        if method.design_key != self._fitted_method.design_key:
            raise ValueError(
                "parameters that shape the features, such as fit_intercept, changed in the "
                "middle of a stream; use fit to start anew."
            )
        self._fitted_method = method

    def _block(self, X, y, ids, weight):
        """The rows as one ClientBlock; those of weight 0 are left out."""
        self._check_protected(weight is not None)
        clients, codes = encode_ids(ids)
        # Rows of weight 0 may carry any label: clip what they'd be.
        labels = np.minimum(np.searchsorted(self.classes_, y), len(self.classes_) - 1)
        factor = None if self.class_weight is None else self._class_factors(labels, weight)
        block = ClientBlock.from_arrays(
            X, labels, codes, clients, len(self.classes_), weight, factor
        )
        if not block.n_rows:
            raise ValueError(
                "class_weight and sample_weight together leave no row of positive weight; check "
                "them."
            )
        return block

    def _check_protected(self, weighted):
        """Refuse weights where a mechanism protects the rows."""
        if self._privacy() is not None and (weighted or self.class_weight is not None):
            raise ValueError(
                "privacy= covers rows that count once; leave out sample_weight and class_weight."
            )

    def _class_factors(self, labels, weight):
        """Weight of each class, shape (d,)."""
        if self.class_weight == "balanced":
            totals = np.bincount(labels, weight, len(self.classes_))
            return totals.sum() / (len(totals) * np.where(totals > 0, totals, 1.0))
        known = self.classes_.tolist()
        for label, factor in self.class_weight.items():
            is_weight = isinstance(factor, Real) and 0 <= factor < np.inf
            if label not in known or not is_weight:
                raise ValueError(
                    f"class_weight={{{label!r}: {factor!r}}} must give a finite weight >= 0 to one "
                    f"of the classes, which are {known}."
                )
        return np.array([float(self.class_weight.get(label, 1.0)) for label in known])

    def _block_rows(self, n_features):
        return rows_per_block(self._fitted_method.design_width(n_features))

    def _retain(self, blocks):
        for block in blocks:
            self._retained.add(self._fitted_method.whole_design(block))

    def _first_solve(self, blocks):
        """What ``fit`` does with the blocks of all clients."""
        self._solve(blocks, calibrate=self._fitted_method.calibrate)

    def _solve(self, blocks, guests=(), *, calibrate, known=None):
        """Run the federation on blocks and give the guests their models."""
        schema = Schema(self._n_features, self.classes_, self._dtype)
        method = replace(self._fitted_method, calibrate=calibrate)
        result = run_on_blocks(method, blocks, schema, self.n_jobs, known=known)
        self._broadcast = known or result.broadcasts[1]
        if calibrate:
            self.temperature_ = float(result.broadcasts[-1].temperature)
        elif self._privacy() is not None:
            self.temperature_ = 1.0
        self._models = self._in_order([*result.models, *self._personal_models(guests)])
        late = concatenate_ids([self.clients_[:0], *(block.client_ids for block in guests)])
        self._bytes = self._count_guests((result.bytes_up, result.bytes_down), late)

    def _count_guests(self, traffic, guests):
        """What all clients have sent and received, from that of all but the guests.

        Guests have sent nothing, and received the sums.
        """
        others = np.ones(len(self.clients_), dtype=bool)
        others[lookup_ids(self.clients_, guests)] = False
        up, down = np.zeros((2, len(self.clients_)), dtype=np.int64)
        down[~others] = self._broadcast.nbytes
        up[others], down[others] = traffic
        return up, down

    def _traffic(self):
        self._solved_models()
        return self._bytes

    def _light(self):
        self._solved_models()
        light = super()._light()
        light._retained = None
        return light

    def _personal_models(self, blocks):
        method = replace(self._fitted_method, calibrate=False)
        return [method.personalize(block, self._broadcast, None) for block in blocks]

    def _in_order(self, models):
        """The models of all clients, merged, in the order of ``clients_``."""
        merged = PersonalModels.merge(models)
        position = {client: k for k, client in enumerate(merged.client_ids.tolist())}
        return merged.take(np.array([position[client] for client in self.clients_.tolist()]))

    def _solved_models(self):
        check_is_fitted(self)
        if self._models is None:
            guests = self._retained.guests
            ids = self.clients_.tolist()
            max_rows = self._block_rows(self._n_features)
            blocks, guest_blocks = (
                self._retained.blocks([c for c in ids if (c in guests) == late], max_rows)
                for late in (False, True)
            )
            self._solve(blocks, guest_blocks, calibrate=False)
        return self._models

    def _seen_classes(self):
        return self._solved_models().seen

    def _client_scores(self, X, codes):
        return self._solved_models().scores(X, codes, fit_intercept=bool(self._lead))
