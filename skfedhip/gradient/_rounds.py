"""How a gradient classifier runs rounds, and what it keeps of them."""

from dataclasses import replace
from itertools import repeat

import numpy as np
import torch
from tqdm import tqdm

from ..base import blas_limit, parallel_map
from ..protocol import run_federation
from ..utils._ids import lookup_ids, union_ids
from ._checkpoint import Checkpoint, configuration_of, fingerprint, to_numpy
from ._cut import Cut
from ._engine import client_generator
from ._monitor import Monitor, models_of
from ._threads import single_torch_thread

_VALIDATION_ROUND = 2**31 - 1
"""The round whose generators deal out validation rows; none gets as far."""


class RoundsMixin:
    """Rounds of ``fit``, of ``partial_fit`` and of newcomers.

    Between them the estimator keeps, in the order of ``clients_``: ``_federation``, a
    FederationState of one block; ``_models`` of the "last" and the "best" round; ``_losses`` of all
    rounds; ``_history``, arrays (n_rounds, K) by name; ``_told``, arrays (K,) by name; ``_seen``.
    """

    def _watched(self, method):
        """What is measured on rows held out beside accuracy, as Monitor wants it."""
        return {}

    def _run(self, block, n_total, *, resumed):
        """Rounds of all clients of a block, and nobody else, until there were ``n_total``."""
        method = self._make_method(block.client_ids)
        train, held_out = self._hold_out(block)
        cut = Cut.of(train, method.clients_at_once())
        start = self._start_at(block.client_ids, cut, method)
        if start is not None:
            gone = torch.from_numpy(lookup_ids(block.client_ids, self.clients_) < 0)
            left = {n: tensor[gone] for n, tensor in self._federation.states[0].items()}
            start = replace(start, server_state=method.without(start.server_state, left))
        best = self._best_on(block.client_ids, held_out)
        self._regroup(block.client_ids)
        self._told, self._seen = {}, block.class_weights > 0
        monitor = self._monitor(
            method,
            cut,
            held_out,
            parallel_map(self._jobs()),
            best=best,
            watched=self._watched(method),
            patience=self.patience,
            save=None if self.checkpoint is None else self._save_checkpoint,
        )
        n_done = len(self._losses)
        left = 0 if resumed and monitor.stalled() else max(0, n_total - n_done)
        with self._bar(n_done, n_total) as monitor.bar:
            self._federate(replace(method, n_rounds=left), cut, start, monitor)

    def _one_round(self, block):
        """The round of ``partial_fit``: clients without rows keep what they have."""
        before, federation = self._models["last"], self._federation
        roster = union_ids(self.clients_, block.client_ids)
        method = self._make_method(roster, join_ratio=1.0, n_rounds=1)
        cut = Cut.of(block, method.clients_at_once())
        start = self._start_at(block.client_ids, cut, method)
        keep, at = self._enrol(roster, block)
        self._federate(method, cut, start, self._monitor(method, cut, None, map))
        last, states = self._models["last"], self._federation.states[0]
        old = {} if before is None else before.own
        own = _merged(len(roster), keep, old, at, last.own)
        old = {} if federation is None else federation.states[0]
        states = _merged(len(roster), keep, old, at, states)
        parts = [(self._federation, slice(None), at.numpy())]
        if federation is not None:
            parts.insert(0, (federation, slice(None), keep.numpy()))
        traffic = _traffic(len(roster), *parts)
        self._federation = replace(self._federation, states=[states], **traffic)
        self._models = {"last": replace(last, own=own), "best": None}

    def _train_newcomers(self, block):
        """Models of new clients, from a round of their own on each of the models at hand."""
        roster = union_ids(self.clients_, block.client_ids)
        method = self._make_method(roster, join_ratio=1.0, n_rounds=1)
        cut = Cut.of(block, method.clients_at_once())
        keep, at = self._enrol(roster, block)
        old = self._federation.states[0]
        for which, models in self._models.items():
            if models is None:
                continue
            broadcast = replace(
                self._federation.broadcast,
                parameters=method.shared_of(to_numpy(models.shared)),
                n_round=np.array(models.n_round),
            )
            states, own = self._locally(method, cut, broadcast)
            own = _merged(len(roster), keep, models.own, at, own)
            self._models = {**self._models, which: replace(models, own=own)}
            if which == "last":
                states = _merged(len(roster), keep, old, at, states)
                traffic = _traffic(len(roster), (self._federation, slice(None), keep.numpy()))
                self._federation = replace(self._federation, states=[states], **traffic)

    def _locally(self, method, cut, broadcast):
        """What new clients keep of a round, and their own parameters; nothing is sent."""
        fresh = method.states_of(len(cut.order), broadcast)
        blocks, states = cut.blocks, [None] * len(cut.blocks)
        with self._threads(), blas_limit(self._jobs()):
            mapped = parallel_map(self._jobs())
            if fresh:
                results = mapped(method.client_update, blocks, repeat(broadcast), states)
                states = [state for _, state in results]
            own = cut.join(list(mapped(method.personalize, blocks, repeat(broadcast), states)))
        states = cut.join(states) if fresh else {}
        return {n: fresh[n] if n.startswith(method.summed) else t for n, t in states.items()}, own

    def _federate(self, method, cut, start, monitor):
        """Run rounds, and keep where they end, for the clients of a cut."""
        with self._threads(), blas_limit(self._jobs()):
            result = run_federation(
                method,
                cut.blocks,
                self._schema(),
                map_blocks=parallel_map(self._jobs()),
                start=start,
                after_round=monitor,
            )
        self._federation = cut.joined(result.state)
        self._fitted_method = method
        last = models_of(method, self._federation, cut.join(result.models))
        self._models = {"last": last, "best": monitor.best}
        self._losses = monitor.losses
        self._history = {name: np.array(rows) for name, rows in monitor.history.items()}

    def _publish(self):
        """Attributes that tell of all rounds."""
        federation = self._federation
        # The last message came to everybody, and has made their models.
        self._bytes = federation.bytes_up, federation.bytes_down + federation.broadcast.nbytes
        self.loss_curve_ = np.array(self._losses)
        self.history_ = {"loss": self.loss_curve_, **self._history}
        self.n_rounds_ = int(federation.broadcast.n_round)
        best = self._models["best"]
        self.best_round_ = None if best is None else best.n_round

    # Who goes on from where.

    def _start_at(self, client_ids, cut, method):
        """Where the clients of a cut go on from; None before the first round."""
        if self._federation is None:
            return None
        self._check_unchanged(method)
        at = torch.from_numpy(lookup_ids(self.clients_, client_ids))
        new = method.states_of(len(at), self._federation.broadcast)
        states = self._federation.states[0]
        for name, tensor in new.items():
            tensor[at >= 0] = states[name][at[at >= 0]]
        known = np.flatnonzero(at >= 0)
        traffic = _traffic(len(at), (self._federation, at.numpy()[known], known))
        return cut.divided(replace(self._federation, states=[new], **traffic))

    def _check_unchanged(self, method):
        """Refuse to go on with another network than that of the rounds so far."""
        wanted, found = (
            {name: (array.shape, array.dtype.name) for name, array in params.items()}
            for params in (method.shared_of(method.start), self._federation.broadcast.parameters)
        )
        if wanted != found or self.feature_extractor != self._factory:
            raise ValueError(
                "parameters that shape the network, such as feature_extractor, dtype or "
                "policy_layers, changed after fit; set them back, or fit anew."
            )

    def _enrol(self, roster, block):
        """Make the roster that of the estimator; positions of its old clients and the block's."""
        keep, at = lookup_ids(roster, self.clients_), lookup_ids(roster, block.client_ids)
        seen = np.zeros((len(roster), len(self.classes_)), dtype=bool)
        seen[keep] = self._seen
        seen[at] |= block.class_weights > 0
        self._regroup(roster)
        self._seen = seen
        return torch.from_numpy(keep), torch.from_numpy(at)

    def _regroup(self, client_ids):
        """Put what is told of clients in the order of other ones, NaN for those that are new."""
        at = lookup_ids(self.clients_, client_ids)

        def regrouped(values):
            out = np.full((*values.shape[:-1], len(at)), np.nan)
            out[..., at >= 0] = values[..., at[at >= 0]]
            return out

        self._history = {name: regrouped(values) for name, values in self._history.items()}
        self._told = {name: regrouped(values) for name, values in self._told.items()}
        self.clients_ = client_ids

    # Rows held out, and the best round on them.

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

    def _best_on(self, client_ids, held_out):
        """The best models so far, if they were chosen on the same rows of the same clients."""
        before = self._held_out
        self._held_out = None if held_out is None else fingerprint(*held_out)
        same = before == self._held_out and np.array_equal(self.clients_, client_ids)
        return self._models["best"] if same else None

    # Checkpoints.

    def _checkpoint_after(self, n_done, X, y, ids):
        """The checkpoint of these rows, if it is further than ``n_done`` rounds."""
        if self.checkpoint is None:
            return None
        self._configuration = configuration_of(self, X, y, ids)
        saved = Checkpoint.read(self.checkpoint, self._configuration)
        if saved is None or len(saved.losses) <= n_done:
            return None
        if len(saved.losses) > n_done + self.n_rounds:
            raise ValueError(
                f"the checkpoint {self.checkpoint} has {len(saved.losses)} rounds, more than the "
                f"{n_done + self.n_rounds} asked for; raise n_rounds, delete the file, or name "
                "another."
            )
        return saved

    def _save_checkpoint(self, monitor, state):
        state = monitor.cut.joined(state)
        checkpoint = self._checkpoint_of(
            state, state.states[0], monitor.losses, monitor.history, monitor.best
        )
        checkpoint.write(self.checkpoint, self._configuration)

    def _checkpoint_of(self, federation, states, losses, history, best):
        how = {"best": best, "held_out": self._held_out, "seed": self._seed}
        return Checkpoint.of(federation, states, losses, history, **how)

    def _take_up(self, saved, client_ids):
        """Become what wrote the checkpoint."""
        self.clients_ = client_ids
        first = self._make_method(client_ids).initialize(self._schema())
        self._federation = saved.federation(first)
        self._losses, self._history = saved.losses, saved.history
        self._models = {"last": None, "best": saved.best}
        self._held_out = saved.held_out

    # How.

    def _monitor(self, method, cut, held_out, map_blocks, **more):
        return Monitor(
            method,
            cut,
            held_out,
            map_blocks,
            tol=self.tol,
            save_every=self.checkpoint_every,
            losses=[*self._losses],
            history={name: [*rows] for name, rows in self._history.items()},
            **more,
        )

    def _jobs(self):
        """Blocks at a time; networks that draw random numbers are trained one after another."""
        return 1 if self._network.draws else self.n_jobs

    def _threads(self):
        """One thread of torch for steps too small to share, and where blocks run side by side."""
        small = self._network.layers is not None
        return single_torch_thread(small or self._jobs() not in (None, 1))

    def _bar(self, n_done, n_total):
        name, hidden = type(self).__name__, not self.verbose
        return tqdm(desc=name, total=n_total, initial=n_done, unit="round", disable=hidden)


def _traffic(n_clients, *parts):
    """What clients have sent and received: of each part, a federation's clients ``of``, ``at``."""
    out = {name: np.zeros(n_clients, dtype=np.int64) for name in ("bytes_up", "bytes_down")}
    for federation, of, at in parts:
        for name, values in out.items():
            values[at] = getattr(federation, name)[of]
    return out


def _merged(n_clients, keep, old, at, new):
    """Stacked parameters of all clients, those at ``at`` replaced or added."""
    out = {}
    for name, tensor in new.items():
        out[name] = tensor.new_zeros(n_clients, *tensor.shape[1:])
        if name in old:
            out[name][keep] = old[name]
        out[name][at] = tensor
    return out
