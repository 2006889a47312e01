"""Blocks of clients on a Dask cluster, as the protocol's loop asks for them."""

from dataclasses import dataclass, replace
from functools import reduce
from itertools import repeat
from operator import add

import dask
import numpy as np
from dask.delayed import Delayed, delayed

from ..analytic._method import ClosedFormMethod
from ..core import ClientBlock, RetainedClients
from ..utils._ids import concatenate_ids, encode_ids
from ..utils._threads import single_blas_thread

_FAN_IN = 8
_FEDERATION_MAY_BE_LARGE = {"distributed.admin.large-graph-warning-threshold": "4 GiB"}


@dataclass
class Source:
    """Some clients, and where their rows are.

    Attributes
    ----------
    blocks : Delayed
        A list of the clients' blocks.
    kept : bool
        Whether the cluster keeps the blocks between rounds; otherwise they are read anew.
    pieces : list of (Delayed, ndarray), or None
        Where the blocks are DesignBlocks, made of rows that lie in several partitions: the
        partitions' blocks, and which of their clients these are.
    """

    blocks: Delayed
    kept: bool = False
    pieces: list | None = None


class ClusterBlocks:
    """The blocks of a federation, each on some worker.

    Everything is a task made of others, up to the reading of the partitions and the messages
    down, which the graph itself holds: what a worker takes with it when it dies is made again.

    Parameters
    ----------
    sources : list of Source
    client_ids : list
        Of all clients, sorted.
    counts : ndarray of shape (K,)
        Their rows.
    """

    def __init__(self, sources, client_ids, counts):
        self.sources, self.client_ids, self.counts = sources, client_ids, counts

    def __len__(self):
        return len(self.sources)

    def update(self, method, broadcast, states):
        """One update, the sum of all; ``states`` are replaced by new ones, which stay there."""
        message = _message(method, broadcast)
        updates, new_states, kept = [], [], []
        for source, state in zip(self.sources, states, strict=True):
            sent = message
            if source.pieces is not None:
                updates += _updates_apart(method, broadcast, message, source)
                sent = _message(replace(method, calibrate=False), broadcast)
            update, state = delayed(update_blocks, nout=2)(sent, source.blocks, state)
            updates.append(update)
            new_states.append(state)
            if source.kept or not _rereads(method):
                kept.append(source)
        blocks = [source.blocks for source in kept]
        with dask.config.set(_FEDERATION_MAY_BE_LARGE):
            total, states[:], blocks = dask.persist(tree(add_all, updates), new_states, blocks)
            for source, each in zip(kept, blocks, strict=True):
                source.blocks = each
            yield slice(None), total.compute()

    def personalize(self, method, broadcast, states):
        """What the method's ``personalize`` returns, block by block."""
        message = _message(method, broadcast)
        solved = _rereads(method) and method.n_rounds > 1
        models = [
            delayed(personalize_blocks)(message, None if solved else s.blocks, state)
            for s, state in zip(self.sources, states, strict=True)
        ]
        with dask.config.set(_FEDERATION_MAY_BE_LARGE):
            return [model for each in dask.compute(*models) for model in each]

    def map(self, function):
        """``function(block)`` of all blocks, a list in their order."""
        parts = [delayed(apply_to_blocks)(function, source.blocks) for source in self.sources]
        return [answer for each in dask.compute(*parts) for answer in each]

    @staticmethod
    def fetch(states):
        """What clients keep, brought here, block by block."""
        return [state for each in dask.compute(*states) for state in each]

    def retained(self, method):
        """What all clients keep of their rows, as :class:`skfedhip.core.RetainedClients`."""
        parts = [delayed(retain)(method, source.blocks) for source in self.sources]
        return tree(merge_retained, parts).compute()


def _rereads(method):
    """Whether a method has so few rounds that its rows are better read again than kept.

    After the second its clients have solved for their models when the last message comes.
    """
    return isinstance(method, ClosedFormMethod)


def _message(method, broadcast):
    return delayed((method, broadcast), traverse=False)


def _updates_apart(method, broadcast, message, source):
    """What the rows of clients in several places add to a round, from where they are."""
    if not method.leaves_out(broadcast):
        return []
    solutions = delayed(solve_clients)(message, source.blocks)
    return [delayed(lose_apart)(message, block, index, solutions) for block, index in source.pieces]


def tree(merge, parts):
    """Merge lazy parts a few at a time, neighbours first, so that the order never changes."""
    while len(parts) > 1:
        groups = [parts[i : i + _FAN_IN] for i in range(0, len(parts), _FAN_IN)]
        parts = [delayed(merge)(group) for group in groups]
    return parts[0]


# What follows runs on the workers.


def add_all(updates):
    return reduce(add, updates)


def update_blocks(message, blocks, states):
    """The sum of the blocks' updates, and a list of what their clients keep."""
    method, broadcast = message
    with single_blas_thread():
        answers = [
            method.client_update(block, broadcast, state)
            for block, state in zip(blocks, states or repeat(None), strict=False)
        ]
    updates, states = zip(*answers, strict=True)
    return reduce(add, updates), list(states)


def personalize_blocks(message, blocks, states):
    method, broadcast = message
    with single_blas_thread():
        return [
            method.personalize(block, broadcast, state)
            for block, state in zip(blocks or repeat(None), states, strict=False)
        ]


def apply_to_blocks(function, blocks):
    with single_blas_thread():
        return [function(block) for block in blocks]


def solve_clients(message, blocks):
    """From client id to its solution and its class weights (1, d)."""
    method, broadcast = message
    out = {}
    with single_blas_thread():
        for block in blocks:
            for k, client in enumerate(block.client_ids.tolist()):
                own = block.clients([k])
                out[client] = method.client_solution(own, broadcast), own.class_weights
    return out


def lose_apart(message, block, index, solutions):
    """The update of the losses of some clients' rows in a partition."""
    method, broadcast = message
    losses = 0.0
    with single_blas_thread():
        for k in index:
            piece = block.clients([k])
            solution, whole = solutions[piece.client_ids.tolist()[0]]
            piece = replace(piece, whole=whole)
            losses = losses + method.losses_apart(piece, solution, broadcast)
    return method.update_apart(losses)


def local_blocks(block, index, max_rows):
    """The blocks of clients whose rows are all in this partition."""
    return block.clients(index).cut(max_rows)


def take_rows(block, index):
    """A partition's rows of some clients, to be moved."""
    piece = block.clients(index).detached()
    return replace(piece, X=piece.X.copy(), origin=None) if piece.X.base is not None else piece


def gather_rows(pieces, max_rows):
    """The blocks of clients whose rows came from several partitions."""
    clients, codes = encode_ids(concatenate_ids(piece.client_ids for piece in pieces))
    first, weight = pieces[0], None
    if first.sample_weight is not None:
        weight = np.concatenate([piece.sample_weight for piece in pieces])
    block = ClientBlock.from_arrays(
        np.concatenate([piece.features() for piece in pieces]),
        np.concatenate([piece.y for piece in pieces]),
        np.repeat(codes, np.concatenate([piece.counts for piece in pieces])),
        clients,
        first.n_classes,
        weight,
        first.class_factor,
    )
    return block.cut(max_rows)


def take_roots(method, block, index, max_rows):
    """What a partition's rows of some clients come to: the roots of their Gram matrices."""
    return retain(method, local_blocks(block, index, max_rows))


def retain(method, blocks):
    retained = RetainedClients()
    with single_blas_thread():
        for block in blocks:
            retained.add(method.whole_design(block))
    return retained


def merge_retained(parts):
    merged = RetainedClients()
    with single_blas_thread():
        for part in parts:
            for design in part.clients.values():
                merged.add(design)
    return merged


def root_blocks(retained, max_rows):
    """DesignBlocks of clients whose rows are in several partitions."""
    return retained.blocks(list(retained.clients), max_rows)
