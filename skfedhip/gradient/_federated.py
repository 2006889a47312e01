"""A gradient classifier whose clients are in different places."""

from math import prod

import numpy as np
import torch

from ..federated import FederatedMixin
from ..protocol import FederationState, run_federation
from ..utils._ids import concatenate_ids, lookup_ids
from ._cut import joined_in_order
from ._method import ServerState
from ._monitor import models_of


class GradientFederated(FederatedMixin):
    """The two ends of a federation of a gradient classifier."""

    def _check_apart(self, weighted):
        self._refuse_weights(weighted)
        instead = "find n_rounds on rows of one place"
        self._refuse_apart("validation_fraction", instead)
        self._refuse_apart("checkpoint", "persist the collections")
        if self.warm_start:
            raise ValueError("warm_start=True goes on in memory alone; pass False to start anew.")

    def _begin_apart(self, like, classes, totals):
        self._start(like, classes, self._new_seed())
        return None, prod(like.shape[1:]), None

    def _fit_apart(self, clients, blocks):
        method = self._make_method(clients)
        self._regroup(clients)
        monitor = self._monitor(method, None, None, map, patience=self.patience)
        with self._bar(0, self.n_rounds) as monitor.bar:
            result = run_federation(method, blocks, self._schema(), after_round=monitor)
        owners, seen = zip(*blocks.map(classes_of_clients), strict=True)
        order = lookup_ids(clients, concatenate_ids(owners))
        back = np.argsort(order)
        states, own = (
            joined_in_order(parts, torch.from_numpy(order))
            for parts in (blocks.fetch(result.state.states), result.models)
        )
        self._fitted_method, self._losses = method, monitor.losses
        self._seen = np.concatenate(seen)[back]
        traffic = result.bytes_up, result.bytes_down
        self._end_at(result.state.broadcast, result.state.server_state, states, own, traffic)
        self._tell_apart(blocks, back)
        self._publish()

    def _tell_apart(self, blocks, order):
        """What :meth:`_learned` finds out of clients, where their rows are."""
        names = self._watched(self._fitted_method)
        if names:
            found = blocks.map(self._light()._learned)
            self._told = {name: np.concatenate([f[name] for f in found])[order] for name in names}

    def _light(self):
        light = super()._light()
        light._federation, light._history = None, {}
        return light

    def _begin(self, schema):
        rows = np.empty((0, *schema.row_shape), self.dtype)
        self._start(rows, schema.classes, self._new_seed())
        self._fitted_method = self._make_method(None)

    def _check_federated(self):
        super()._check_federated()
        for name, instead in (
            ("validation_fraction", "find n_rounds on rows of one place"),
            ("patience", "find n_rounds on rows of one place"),
            ("checkpoint", "clients and server keep their own state between rounds"),
        ):
            self._refuse_apart(name, instead)

    def _refuse_apart(self, name, instead):
        """Refuse a parameter that takes all clients in one place."""
        value = getattr(self, name)
        if value is not None:
            raise ValueError(
                f"{name}={value!r} takes what all clients have in one place; pass None, and "
                f"{instead}."
            )

    def _refuse_weights(self, weighted):
        if weighted:
            raise ValueError(
                f"{type(self).__name__} takes no sample_weight; give rows and labels alone."
            )

    def _client_block(self, X, y, client, sample_weight=None):
        """The rows of one client."""
        self._refuse_weights(sample_weight is not None)
        X, y, ids = self._validate_training(np.asarray(X), y, [client] * len(X), reset=False)
        self._check_labels(np.unique(y))
        self._check_rows(X)
        return self._block(X, y, ids)

    def _finish_federated(self, block, broadcasts, state, traffic):
        """The estimator fitted, with the one client's personal model.

        What the server averages and sends to nobody, for clients that nobody knows, is the client's
        own here.
        """
        method, last = self._fitted_method, broadcasts[-1]
        own = method.personalize(block, last, state)
        missing = method.initial().keys() - last.parameters.keys()
        server_state = ServerState({name: own[name][0].numpy() for name in missing})
        state = method.states_of(1, last) if state is None else state
        self.clients_, self._seen = block.client_ids, block.class_weights > 0
        self._end_at(last, server_state, state, own, traffic)
        self._report(block)
        return self

    def _finish_globally(self, block, broadcasts, server_state):
        """The estimator fitted, with the global model alone."""
        method, last = self._fitted_method, broadcasts[-1]
        nothing = np.zeros((2, 0), dtype=np.int64)
        self._end_at(last, server_state, method.states_of(0, last), {}, nothing)
        self._told = {name: np.empty(0) for name in self._watched(method)}
        self._publish()
        return self

    def _end_at(self, last, server_state, states, own, traffic):
        """Become what has been through rounds elsewhere; ``traffic`` has the last message in it."""
        up, down = traffic
        self._federation = FederationState(last, server_state, [states], up, down - last.nbytes)
        models = models_of(self._fitted_method, self._federation, own)
        self._models = {"last": models, "best": None}
        if not self._losses:  # where they are known at all, it is the last
            self._losses = [np.nan] * (models.n_round - 1) + [server_state.loss]


def classes_of_clients(block):
    """Clients of a block, and which classes each has."""
    return block.client_ids, block.class_weights > 0
