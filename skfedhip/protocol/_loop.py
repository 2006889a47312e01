"""The four verbs of a federated method, and the one loop that runs them."""

from dataclasses import dataclass
from itertools import repeat
from typing import Any, Protocol

import numpy as np

from ._messages import Broadcast, ClientUpdate, Schema


class FederatedMethod(Protocol):
    """A method states these four verbs on client blocks; every runner drives the same object.

    A block holds the rows of one client (a real federation) or of many (in process). ``state`` is
    what a block's clients keep between rounds and never send.

    A method may state three things more, where the default does not do:

    * ``cohort(client_ids, broadcast)``: which of the clients take part in the round that a message
      begins, bool of shape (K,); by default all;
    * ``among(client_ids)``: the method when it knows all clients, which a server with a network
      learns only then;
    * ``update_like(schema, broadcast)``: an update of the shape that any client's has; by default a
      server makes one of random rows.
    """

    n_rounds: int

    def initialize(self, schema: Schema) -> Broadcast:
        """The first message down."""

    def client_update(self, block, broadcast, state) -> tuple[ClientUpdate, Any]:
        """What the block's clients send up, and what they keep."""

    def aggregate(self, updates, broadcast, server_state) -> tuple[Broadcast, Any]:
        """The next message down, and what the server keeps, from an iterable of updates."""

    def personalize(self, block, broadcast, state) -> Any:
        """The personal models of the block's clients."""


@dataclass(frozen=True)
class FederationState:
    """Where a run stands between two rounds: all that it takes to go on.

    Attributes
    ----------
    broadcast : Broadcast
        The last message down.
    server_state : object
        What the server keeps.
    states : list
        What the clients keep, block by block.
    bytes_up, bytes_down : ndarray of shape (K,)
        What each client has sent and received so far, block by block; the last message down, which
        begins the next round, has yet to be received.
    """

    broadcast: Broadcast
    server_state: Any
    states: list
    bytes_up: np.ndarray
    bytes_down: np.ndarray


@dataclass(frozen=True)
class FederationResult:
    """What a run leaves behind.

    Attributes
    ----------
    broadcasts : tuple of Broadcast
        All messages down, from the one of ``initialize`` to the last; with ``after_round``, the
        last alone.
    models : list
        What ``personalize`` returned, block by block.
    bytes_up, bytes_down : ndarray of shape (K,)
        What each client sends and receives over all rounds, block by block.
    state : FederationState
        Where the run stands.
    """

    broadcasts: tuple
    models: list
    bytes_up: np.ndarray
    bytes_down: np.ndarray
    state: FederationState


class BlocksHere:
    """Blocks in this process, and a map over them.

    Whatever has these attributes and methods can stand for it: blocks on the workers of a cluster.

    Parameters
    ----------
    blocks : sequence of ClientBlock or DesignBlock
    mapped : callable
        Like the builtin ``map``.

    Attributes
    ----------
    client_ids : list
        Of all clients.
    counts : ndarray of shape (K,)
        Their rows.
    """

    def __init__(self, blocks, mapped):
        self.blocks, self.mapped = blocks, mapped
        self.client_ids = [client for block in blocks for client in block.client_ids.tolist()]
        self.counts = np.concatenate([block.counts for block in blocks])

    def __len__(self):
        return len(self.blocks)

    def update(self, method, broadcast, states):
        """Updates with the slice of all clients that they are of; ``states`` are replaced."""
        answers = self.mapped(method.client_update, self.blocks, repeat(broadcast), [*states])
        stop = 0
        for i, (update, state) in enumerate(answers):
            states[i] = state
            start, stop = stop, stop + len(self.blocks[i].client_ids)
            yield slice(start, stop), update

    def personalize(self, method, broadcast, states):
        """What the method's ``personalize`` returns, block by block."""
        return list(self.mapped(method.personalize, self.blocks, repeat(broadcast), states))


def run_federation(
    method, blocks, schema, *, map_blocks=map, known=None, start=None, after_round=None
):
    """Run a method on client blocks.

    Parameters
    ----------
    method : FederatedMethod
    blocks : sequence of ClientBlock or DesignBlock
        Or blocks that are elsewhere and know how to update and to personalize themselves.
    schema : Schema
    map_blocks : callable, default=map
        Like the builtin ``map``; a parallel one must keep the order, so that sums repeat to the
        bit.
    known : Broadcast, default=None
        What the clients have from an earlier run; it stands for the first round's message down.
    start : FederationState, default=None
        Where an earlier run stood; ``n_rounds`` more follow, unless they are stopped.
    after_round : callable, default=None
        Called with the FederationState after each round; the run stops where it returns True.

    Returns
    -------
    FederationResult
    """
    place = blocks if hasattr(blocks, "personalize") else BlocksHere(blocks, map_blocks)
    if start is None:
        nothing = np.zeros(len(place.client_ids), dtype=np.int64)
        first = known or method.initialize(schema)
        start = FederationState(first, None, [None] * len(place), nothing, nothing)
    state, broadcasts = start, [start.broadcast]
    for _ in range(method.n_rounds - bool(known)):
        state = _next_round(method, place, state, known)
        if after_round is None:
            broadcasts.append(state.broadcast)
        else:  # of many rounds, all messages would fill the memory
            broadcasts = [state.broadcast]
            if after_round(state):
                break
    last = state.broadcast
    models = place.personalize(method, last, state.states)
    bytes_down = state.bytes_down + (0 if last is known else last.nbytes)
    return FederationResult(tuple(broadcasts), models, state.bytes_up, bytes_down, state)


def _next_round(method, place, state, known):
    """Where the federation stands one round later."""
    broadcast, states = state.broadcast, [*state.states]
    cohort = np.ones(len(place.client_ids), dtype=bool)
    if hasattr(method, "cohort"):
        cohort = method.cohort(place.client_ids, broadcast)
    sent = np.zeros(len(cohort), dtype=np.int64)

    def received():
        for clients, update in place.update(method, broadcast, states):
            sent[clients] = update.nbytes_of(place.counts[clients])
            yield update

    last, server_state = method.aggregate(received(), broadcast, state.server_state)
    heard = 0 if broadcast is known else broadcast.nbytes
    return FederationState(
        last,
        server_state,
        states,
        state.bytes_up + sent * cohort,
        state.bytes_down + heard * cohort,
    )
