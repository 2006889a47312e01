"""A federation in groups of clients of about equal length."""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch

from ..core import ClientBlock


@dataclass(frozen=True)
class Cut:
    """A block as groups of clients that are trained together, those with most rows first.

    Clients of about equal length stop at about the same step, so that hardly any of a group's
    steps is taken by few of them; and a pool of workers has its longest work first.

    Attributes
    ----------
    blocks : list of ClientBlock
        One a group.
    order : Tensor of shape (K,)
        Where the clients of the groups, one after another, stand in the block.
    """

    blocks: list
    order: torch.Tensor

    @classmethod
    def of(cls, block, n_clients):
        """Cut into groups of ``n_clients``; the rows are copied once, so that no round has to."""
        order = longest_first(block.counts)
        rank = np.argsort(order)
        codes = np.repeat(rank, block.counts)
        rows = np.argsort(codes, kind="stable")
        longest = ClientBlock.from_arrays(
            block.features()[rows],
            block.y[rows],
            codes[rows],
            block.client_ids[order],
            block.n_classes,
        )
        return cls(longest.cut_clients(n_clients), torch.from_numpy(order))

    def split(self, stacked):
        """Tensors of all clients, in the block's order, group by group."""
        bounds = np.cumsum([0, *(len(block.client_ids) for block in self.blocks)])
        ordered = {name: tensor[self.order] for name, tensor in stacked.items()}
        return [
            {name: tensor[first:last] for name, tensor in ordered.items()}
            for first, last in pairwise(bounds)
        ]

    def join(self, parts):
        """The tensors of the groups as one, in the block's order."""
        return joined_in_order(parts, self.order)

    def divided(self, federation):
        """A FederationState of all clients, in the block's order, group by group."""
        order = self.order.numpy()
        return replace(
            federation,
            states=self.split(federation.states[0]),
            bytes_up=federation.bytes_up[order],
            bytes_down=federation.bytes_down[order],
        )

    def joined(self, federation):
        """A FederationState of the groups as one of all clients, in the block's order."""
        back = np.argsort(self.order.numpy())
        return replace(
            federation,
            states=[self.join(federation.states)],
            bytes_up=federation.bytes_up[back],
            bytes_down=federation.bytes_down[back],
        )


def joined_in_order(parts, order):
    """Tensors of several groups of clients as one; ``order`` says where each client stands."""
    back = torch.argsort(order)
    return {name: torch.cat([part[name] for part in parts])[back] for name in parts[0]}


def longest_first(counts):
    """Positions of clients by falling number of rows, equal ones as they stand."""
    return np.argsort(-counts, kind="stable")
