"""The four verbs of a federated method, and the one loop that runs them in process."""

from dataclasses import dataclass
from itertools import repeat
from typing import Any, Protocol

from ._messages import Broadcast, ClientUpdate, Schema


class FederatedMethod(Protocol):
    """A method states these four verbs on client blocks; every runner drives the same object.

    A block holds the rows of one client (a real federation) or of many (in process). ``state`` is
    what a block's clients keep between rounds and never send.
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
class FederationResult:
    """What a run leaves behind.

    Attributes
    ----------
    broadcasts : tuple of Broadcast
        All messages down, from the one of ``initialize`` to the last.
    models : list
        What ``personalize`` returned, block by block.
    bytes_up, bytes_down : int
        What one client sends and receives over all rounds.
    server_state : object
        What the server kept of the last round.
    """

    broadcasts: tuple
    models: list
    bytes_up: int
    bytes_down: int
    server_state: Any


def run_federation(method, blocks, schema, *, map_blocks=map, known=None):
    """Run a method on client blocks in this process.

    Parameters
    ----------
    method : FederatedMethod
    blocks : sequence of ClientBlock or DesignBlock
    schema : Schema
    map_blocks : callable, default=map
        Like the builtin ``map``; a parallel one must keep the order, so that sums repeat to the
        bit.
    known : Broadcast, default=None
        What the clients have from an earlier run; it stands for the first round's message down.

    Returns
    -------
    FederationResult
    """
    broadcast, server_state = known or method.initialize(schema), None
    broadcasts = [broadcast]
    states = [None] * len(blocks)
    bytes_up, bytes_down = 0, 0 if known else broadcast.nbytes
    for _ in range(method.n_rounds - bool(known)):
        meter = _Meter(states)
        results = meter.watch(map_blocks(method.client_update, blocks, repeat(broadcast), states))
        broadcast, server_state = method.aggregate(results, broadcast, server_state)
        broadcasts.append(broadcast)
        states = meter.states
        bytes_up += meter.bytes
        bytes_down += broadcast.nbytes
    models = list(map_blocks(method.personalize, blocks, repeat(broadcast), states))
    return FederationResult(tuple(broadcasts), models, bytes_up, bytes_down, server_state)


class _Meter:
    """Passes updates on to the server, keeping states and the size of an update on the way."""

    def __init__(self, states):
        self.states = list(states)
        self.bytes = 0

    def watch(self, results):
        for i, (update, state) in enumerate(results):
            self.states[i] = state
            self.bytes = max(self.bytes, update.nbytes)
            yield update
