"""The shell of the gradient classifiers: fit, one more round, checkpoints, models."""

from abc import abstractmethod
from dataclasses import replace
from numbers import Integral, Real

import numpy as np
import torch
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from tqdm import tqdm

from ..base import PersonalizedClassifier, blas_limit, parallel_map
from ..core import ClientBlock
from ..exceptions import SingleClassWarning
from ..feature_extraction._device import resolve_device
from ..protocol import FederationState, Schema, run_federation
from ..utils._ids import check_same_kind, encode_ids, lookup_ids, union_ids
from ..utils._random import draw_seed
from ..utils._warn import warn_user
from ._checkpoint import Checkpoint, configuration_of
from ._cut import Cut
from ._engine import client_generator
from ._monitor import Monitor, models_of
from ._networks import Network
from ._shared import SharedParameters
from ._threads import single_torch_thread

_VALIDATION_ROUND = 2**31 - 1
"""The round whose generators deal out validation rows; none gets as far."""


class GradientClassifier(SharedParameters, PersonalizedClassifier):
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
            saved = None
            if self.checkpoint is not None:
                self._configuration = configuration_of(self, X, y, ids)
                saved = Checkpoint.read(self.checkpoint, self._configuration)
            if goes_on:
                self._check_stream(None, np.unique(y))
                self._check_shape(X)
            else:
                seed = draw_seed(self.random_state) if saved is None else saved.seed
                self._start(X, np.unique(y), seed)
            block = self._block(X, y, ids)
            if goes_on:
                check_same_kind(self.clients_, block.client_ids)
            start = self._start_of(block, saved) if goes_on or saved else None
            self._run(block, start, saved)
            self._learned(block)
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
                self._seen = np.empty((0, len(self.classes_)), dtype=bool)
            self._check_stream(classes, labels)
            self._check_shape(X)
            block = self._block(X, y, ids)
            check_same_kind(self.clients_, block.client_ids)
            start = None if first else self._start_of(block, None)
            self._one_round(block, start)
            self._learned(block)
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
        self._check_shape(X)
        return self._active_models().scores(self._fitted_method, X, codes)

    def _seen_classes(self):
        return self._seen

    def _check_shape(self, X):
        if X.shape[1:] != self._network.input_shape:
            raise ValueError(
                f"X has rows of shape {X.shape[1:]}, but {type(self).__name__} was fitted with "
                f"rows of shape {self._network.input_shape}; reshape X."
            )

    # Fitting.

    def _learned(self, block):
        """Take what a subclass reports of the training rows, once models are there."""

    def _new_seed(self):
        return draw_seed(self.random_state)

    def _start(self, X, classes, seed):
        """Forget all that was fitted."""
        self._set_classes(classes)
        self._seed = seed
        self._network = Network(self.feature_extractor, X.shape[1:], len(classes), seed)
        self._models = {"last": None, "best": None}
        self._losses = []

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
        if len(ratio) != 2 or not 0 <= ratio[0] <= ratio[1] <= 1 or ratio[1] == 0:
            raise ValueError(
                f"join_ratio must be a number in (0, 1] or bounds 0 <= low <= high <= 1, got "
                f"{ratio!r}; pass, for example, (0.5, 1.0)."
            )
        return tuple(map(float, ratio))

    def _schema(self):
        dtype = np.dtype(self.dtype)
        return Schema(int(np.prod(self._network.input_shape)), self.classes_, dtype)

    def _start_of(self, block, saved):
        """Where the clients of a block go on from, as one FederationState of one block."""
        if saved is not None:
            up, down = saved.bytes_sent
            return FederationState(saved.broadcast, saved.server_state, [saved.states], up, down)
        method = self._make_method(self.clients_)
        at = torch.from_numpy(lookup_ids(self.clients_, block.client_ids))
        new = method.states_of(len(at), self._federation.broadcast)
        states = self._federation.states[0]
        for name, tensor in new.items():
            tensor[at >= 0] = states[name][at[at >= 0]]
        return replace(self._federation, states=[new])

    def _run(self, block, start, saved):
        """All rounds of ``fit``."""
        self.clients_ = block.client_ids
        self._seen = block.class_weights > 0
        method = self._make_method(block.client_ids)
        train, held_out = self._hold_out(block)
        cut = Cut.of(train, method.clients_at_once())
        earlier = self._losses if saved is None else saved.losses
        done = 0 if saved is None else len(saved.losses)
        monitor = Monitor(
            method,
            cut,
            held_out,
            parallel_map(self._jobs()),
            tol=self.tol,
            patience=self.patience,
            save=None if self.checkpoint is None else self._save_checkpoint,
            save_every=self.checkpoint_every,
            losses=[*earlier],
            accuracies=[] if saved is None else [*saved.accuracies],
            best=None if saved is None else saved.best,
        )
        left = 0 if saved is not None and monitor.stalled() else max(0, self.n_rounds - done)
        with self._bar(done) as monitor.bar:
            self._federate(replace(method, n_rounds=left), cut, start, monitor)

    def _one_round(self, block, start):
        """The round of ``partial_fit``: clients without rows keep what they have."""
        old, before = self.clients_, self._models["last"]
        states = None if start is None else self._federation.states[0]
        self.clients_ = union_ids(old, block.client_ids)
        at = torch.from_numpy(lookup_ids(self.clients_, block.client_ids))
        method = self._make_method(self.clients_, join_ratio=1.0, n_rounds=1)
        cut = Cut.of(block, method.clients_at_once())
        monitor = Monitor(method, cut, None, map, losses=[*self._losses])
        self._federate(method, cut, start, monitor)
        keep = torch.from_numpy(lookup_ids(self.clients_, old))
        n_clients, last = len(self.clients_), self._models["last"]
        own = _merged(n_clients, keep, {} if before is None else before.own, at, last.own)
        states = _merged(n_clients, keep, states or {}, at, self._federation.states[0])
        self._federation = replace(self._federation, states=[states])
        self._models = {"last": replace(last, own=own), "best": None}
        seen = np.zeros((n_clients, len(self.classes_)), dtype=bool)
        seen[keep.numpy()] = self._seen
        seen[at.numpy()] |= block.class_weights > 0
        self._seen = seen

    def _federate(self, method, cut, start, monitor):
        """Run rounds, and keep where they end."""
        if start is not None:
            start = replace(start, states=cut.split(start.states[0]))
        with self._threads(), blas_limit(self._jobs()):
            result = run_federation(
                method,
                cut.blocks,
                self._schema(),
                map_blocks=parallel_map(self._jobs()),
                start=start,
                after_round=monitor,
            )
        states = cut.join(result.states)
        self.bytes_up_, self.bytes_down_ = result.bytes_up, result.bytes_down
        self._federation = FederationState(
            result.broadcasts[-1],
            result.server_state,
            [states],
            result.bytes_up,
            result.bytes_down,
        )
        self._fitted_method = method
        last = models_of(method, self._federation, cut.join(result.models))
        self._models = {"last": last, "best": monitor.best}
        self._losses = monitor.losses
        self.loss_curve_ = np.array(monitor.losses)
        self.history_ = {"loss": self.loss_curve_}
        if monitor.accuracies:
            self.history_["client_accuracy"] = np.array(monitor.accuracies)
        self.n_rounds_ = int(self._federation.broadcast.n_round)
        self.best_round_ = None if monitor.best is None else monitor.best.n_round

    def _hold_out(self, block):
        """Training rows, and validation rows as (X, class codes, client codes) or None."""
        if self.validation_fraction is None:
            return block, None
        held = np.zeros(block.n_rows, dtype=bool)
        for client, start, n in zip(
            block.client_ids.tolist(), block.offsets, block.counts.tolist(), strict=False
        ):
            rng = client_generator(self._seed, client, _VALIDATION_ROUND)
            n_held = min(n - 1, round(self.validation_fraction * n))
            held[start + rng.choice(n, n_held, replace=False)] = True
        if not held.any():
            raise ValueError(
                f"validation_fraction={self.validation_fraction} of each client's rows leaves no "
                "row to validate on; raise it."
            )
        rows = block.select(held)
        codes = np.repeat(np.arange(len(rows.client_ids)), rows.counts)
        return block.select(~held), (rows.features(), rows.y, codes)

    def _jobs(self):
        """Blocks at a time; networks that draw random numbers are trained one after another."""
        return 1 if self._network.draws else self.n_jobs

    def _threads(self):
        """One thread of torch for steps too small to share, and where blocks run side by side."""
        small = self._network.layers is not None
        return single_torch_thread(small or self._jobs() not in (None, 1))

    def _bar(self, done):
        name, total = type(self).__name__, self.n_rounds
        return tqdm(desc=name, total=total, initial=done, unit="round", disable=not self.verbose)

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

    def _save_checkpoint(self, monitor, state):
        checkpoint = Checkpoint.of(monitor, state, self._seed)
        checkpoint.write(self.checkpoint, self._configuration)


def _merged(n_clients, keep, old, at, new):
    """Stacked parameters of all clients, those at ``at`` replaced or added."""
    out = {}
    for name, tensor in new.items():
        out[name] = tensor.new_zeros(n_clients, *tensor.shape[1:])
        if name in old:
            out[name][keep] = old[name]
        out[name][at] = tensor
    return out
