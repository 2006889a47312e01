"""The shell of the gradient classifiers: fit, one more round, checkpoints, models."""

from abc import abstractmethod
from numbers import Integral, Real

import numpy as np
import torch
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from ..base import PersonalizedClassifier
from ..core import ClientBlock
from ..exceptions import SingleClassWarning
from ..feature_extraction._device import resolve_device
from ..protocol import Schema
from ..utils._ids import check_same_kind, encode_ids, lookup_ids
from ..utils._random import draw_seed
from ..utils._warn import warn_user
from ._federated import GradientFederated
from ._networks import Network
from ._persistence import GradientPersistence
from ._rounds import RoundsMixin
from ._shared import SharedParameters


class GradientClassifier(
    SharedParameters, RoundsMixin, GradientFederated, GradientPersistence, PersonalizedClassifier
):
    """Base of the gradient classifiers; a subclass names its method and its own parameters."""

    _allow_nd = True

    _parameter_constraints = {
        **PersonalizedClassifier._parameter_constraints,
        "n_rounds": [Interval(Integral, 1, None, closed="left")],
        "lr": [Interval(Real, 0, None, closed="neither")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "local_epochs": [Interval(Integral, 1, None, closed="left")],
        "join_ratio": [Interval(Real, 0, 1, closed="right"), tuple, list],
        "feature_extractor": [StrOptions({"auto"}), callable],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "shuffle": ["boolean"],
        "drop_last": ["boolean"],
        "init_params": [dict, None],
        "tol": [Interval(Real, 0, None, closed="left")],
        "patience": [Interval(Integral, 1, None, closed="left"), None],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither"), None],
        "model": [StrOptions({"best", "last"})],
        "warm_start": ["boolean"],
        "checkpoint_every": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
        "device": [str, torch.device],
        "dtype": [StrOptions({"float32", "float64"})],
        "verbose": ["verbose"],
    }

    @abstractmethod
    def _method(self, **common):
        """The federated method that the parameters describe."""

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y, *, groups=None):
        """Train for ``n_rounds`` rounds of communication.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or (n_samples, channels, height, width)
            Rows of all clients, in any order; with ``group_column``, including that column.
        y : array-like of shape (n_samples,)
            Class labels.
        groups : array-like of shape (n_samples,), default=None
            Client id of each row: strings, numbers, any hashable scalars.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        FloatingPointError
            If a client's training diverges; it names the client and the round.
        """
        with self._all_or_nothing():
            goes_on = self.warm_start and hasattr(self, "_models")
            X, y, ids = self._validate_training(X, y, groups, reset=True)
            n_done = len(self._losses) if goes_on else 0
            saved = self._checkpoint_after(n_done, X, y, ids)
            if goes_on and saved is None:
                self._check_stream(None, np.unique(y))
            else:
                seed = self._new_seed() if saved is None else saved.seed
                self._start(X, np.unique(y), seed)
            self._check_rows(X)
            block = self._block(X, y, ids)
            if saved is not None:
                self._take_up(saved, block.client_ids)
            check_same_kind(self.clients_, block.client_ids)
            self._run(block, n_done + self.n_rounds, resumed=saved is not None)
            self._report(block)
            self._warn_of_single_classes(block)
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X, y, *, classes=None, groups=None):
        """One more round of communication, on the rows given; new clients may join.

        Clients without rows here keep what they have. All clients that have rows take part,
        whatever ``join_ratio``; nothing is held out, and nothing goes to ``checkpoint``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or (n_samples, channels, height, width)
            Rows of this round.
        y : array-like of shape (n_samples,)
            Class labels.
        classes : array-like of shape (n_classes,), default=None
            All labels that will ever come; read in the first call, which otherwise takes the
            labels of its own rows for all there are.
        groups : array-like of shape (n_samples,), default=None
            Client id of each row.

        Returns
        -------
        self : object
            The estimator after the round.
        """
        with self._all_or_nothing():
            first = not hasattr(self, "_models")
            X, y, ids = self._validate_training(X, y, groups, reset=first)
            labels = np.unique(y)
            if first:
                self._start(X, labels if classes is None else np.unique(classes), self._new_seed())
                self.clients_ = np.empty(0, dtype=ids.dtype)
            self._check_stream(classes, labels)
            self._check_rows(X)
            block = self._block(X, y, ids)
            check_same_kind(self.clients_, block.client_ids)
            self._one_round(block)
            self._report(block)
        return self

    def personalize(self, X, y, *, groups=None):
        """Give new clients models of their own, without touching the global one or anybody else's.

        They start from what has last come down, and train what is personal as they would in one
        round of ``partial_fit``; what they would send up is dropped. Where the only personal part
        is fine-tuning, that is all they do, and where there is none, as in plain FedAvg and
        FedProx, they get the global model under their name. In a later ``partial_fit`` they take
        part as anybody does, from where they are.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or (n_samples, channels, height, width)
            Rows of the new clients.
        y : array-like of shape (n_samples,)
            Class labels, among ``classes_``.
        groups : array-like of shape (n_samples,), default=None
            Client id of each row, none of them fitted before; here ids are not optional.

        Returns
        -------
        self : object
            The estimator with the new clients in ``clients_``.

        Raises
        ------
        FloatingPointError
            If a client's training diverges; it names the client.
        """
        check_is_fitted(self)
        self._check_newcomers_named(groups)
        with self._all_or_nothing():
            X, y, ids = self._validate_training(X, y, groups, reset=False)
            self._check_labels(np.unique(y))
            self._check_rows(X)
            block = self._block(X, y, ids)
            self._check_newcomers(block.client_ids)
            self._train_newcomers(block)
            self._report(block)
        return self

    # Models.

    @property
    def global_params_(self):
        """Parameters of the global model, a dict of ndarray."""
        return {n: t.cpu().numpy() for n, t in self._active_models().shared.items()}

    @property
    def personal_params_(self):
        """Parameters of the clients' own, a dict of ndarray whose first axis is ``clients_``."""
        return {n: t.cpu().numpy() for n, t in self._active_models().own.items()}

    def _active_models(self):
        check_is_fitted(self)
        best = self._models["best"]
        return best if self.model == "best" and best is not None else self._models["last"]

    def _client_scores(self, X, codes):
        self._check_rows(X)
        return self._active_models().scores(self._fitted_method, X, codes)

    def _seen_classes(self):
        return self._seen

    def _check_rows(self, X):
        if X.shape[1:] != self._network.input_shape:
            raise ValueError(
                f"X has rows of shape {X.shape[1:]}, but {type(self).__name__} was fitted with "
                f"rows of shape {self._network.input_shape}; reshape X."
            )
        if hasattr(self._factory, "check_rows"):
            self._factory.check_rows(X)

    # Fitting.

    def _learned(self, block):
        """What a subclass finds out about clients with rows here, arrays (K,) by name."""
        return {}

    def _report(self, block):
        """Renew what is told of the rounds, and of the clients that have rows here."""
        at = lookup_ids(self.clients_, block.client_ids)
        for name, values in self._learned(block).items():
            told = self._told.get(name, np.full(len(self.clients_), np.nan)).copy()
            told[at] = values
            self._told[name] = told
        self._publish()

    def _new_seed(self):
        return draw_seed(self.random_state)

    def _start(self, X, classes, seed):
        """Forget all that was fitted."""
        self._set_classes(classes)
        self._seed = seed
        self._factory = self.feature_extractor
        self._network = Network(self._factory, X.shape[1:], len(classes), seed)
        self.clients_ = np.empty(0, dtype=object)
        self._seen = np.empty((0, len(classes)), dtype=bool)
        self._federation = None
        self._models = {"last": None, "best": None}
        self._held_out = None
        self._losses, self._history, self._told = [], {}, {}

    def _block(self, X, y, ids):
        """The rows as one ClientBlock, in the order of its clients and in our own precision."""
        clients, codes = encode_ids(ids)
        order = np.argsort(codes, kind="stable")
        X = np.asarray(X[order], dtype=self.dtype)
        labels = np.searchsorted(self.classes_, y[order])
        return ClientBlock.from_arrays(X, labels, codes[order], clients, len(self.classes_))

    def _make_method(self, roster, **changed):
        common = {
            "network": self._network,
            "roster": roster,
            "n_rounds": self.n_rounds,
            "lr": float(self.lr),
            "weight_decay": float(self.weight_decay),
            "batch_size": self.batch_size,
            "local_epochs": self.local_epochs,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
            "join_ratio": self._checked_join_ratio(),
            "seed": self._seed,
            "device": resolve_device(self.device),
            "dtype": getattr(torch, self.dtype),
            "init_params": self.init_params,
        }
        return self._method(**{**common, **changed})

    def _checked_join_ratio(self):
        ratio = self.join_ratio
        if isinstance(ratio, Real):
            return float(ratio)
        numbers = len(ratio) == 2 and all(isinstance(bound, Real) for bound in ratio)
        if not numbers or not 0 <= ratio[0] <= ratio[1] <= 1 or ratio[1] == 0:
            raise ValueError(
                f"join_ratio must be a number in (0, 1] or bounds 0 <= low <= high <= 1, got "
                f"{ratio!r}; pass, for example, (0.5, 1.0)."
            )
        return tuple(map(float, ratio))

    def _schema(self):
        return Schema.of_rows(self._network.input_shape, self.classes_, np.dtype(self.dtype))

    def _warn_of_single_classes(self, block):
        """Say which clients are given one class only, though their training rows have more."""
        codes = np.repeat(np.arange(len(block.client_ids)), block.counts)
        classes = self._client_scores(block.features(), codes).argmax(1)
        answers = np.zeros((len(block.client_ids), len(self.classes_)), dtype=bool)
        answers[codes, classes] = True
        poor = (answers.sum(1) == 1) & (self._seen.sum(1) > 1)
        if poor.any():
            names = block.client_ids[poor].tolist()
            some = ", ".join(map(repr, names[:3])) + (", ..." if len(names) > 3 else "")
            warn_user(
                f"{len(names)} of {len(poor)} clients are predicted to have one class only, though "
                f"they were trained on more: {some}; change lr, or train for more rounds.",
                SingleClassWarning,
            )
