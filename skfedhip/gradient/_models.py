"""The models of a federation at one round, and what they answer."""

from dataclasses import dataclass

import numpy as np
import torch

from ._method import ROWS_AT_ONCE


@dataclass(frozen=True)
class Models:
    """Everybody's parameters after a round.

    Attributes
    ----------
    shared : dict of Tensor
        The global model.
    own : dict of Tensor
        What replaces, or completes, it at each client; stacked in the order of the clients.
    n_round : int
        How many rounds they have been through.
    """

    shared: dict
    own: dict
    n_round: int

    @torch.no_grad()
    def map_clients(self, method, X, codes, answer, width):
        """An answer (n, width) for rows of several clients, -1 for the global model.

        ``answer(mapper, params, x)`` takes a model and rows with client axes of length 1. It is
        computed in the precision of X, whatever that of training was; by a module of the user's
        own, which may know but one, in that of training.
        """
        out = np.empty((len(X), width))
        dtype = method.dtype
        if method.network.layers is not None:
            dtype = getattr(torch, X.dtype.name)
        mapper = method.network.mapper(training=False)
        order = np.argsort(codes, kind="stable")
        clients, starts = np.unique(codes[order], return_index=True)
        for client, rows in zip(clients.tolist(), np.split(order, starts[1:]), strict=True):
            params = self.of_client(method, client, dtype)
            for part in np.array_split(rows, -(-len(rows) // ROWS_AT_ONCE)):
                x = torch.as_tensor(X[part], dtype=dtype, device=method.device)
                out[part] = answer(mapper, params, x[None])[0].cpu().numpy()
        return out

    def of_client(self, method, client, dtype):
        """A client's model with a client axis of 1, on the device; -1 is the global model's."""
        own = {} if client < 0 else {name: tensor[client] for name, tensor in self.own.items()}
        model = method.on_device(method.compose(self.shared, own), one=True)
        return {n: t.to(dtype) if t.is_floating_point() else t for n, t in model.items()}

    def scores(self, method, X, codes):
        """Scores (n, d) of rows by their client's models."""
        return self.map_clients(method, X, codes, method.logits, method.network.n_classes)
