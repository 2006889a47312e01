"""The four verbs of a federated method, and the one loop that runs them in process."""

from dataclasses import dataclass
from functools import partial
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
    broadcast : Broadcast
        The last message down: all that a new client needs.
    models : list
        What ``personalize`` returned, block by block.
    bytes_up, bytes_down : int
        What one client sends and receives over all rounds.
    """

    broadcast: Broadcast
    models: list
    bytes_up: int
    bytes_down: int


def run_federation(method, blocks, schema, *, map_blocks=map):
    """Run a method on client blocks in this process.

    Parameters
    ----------
    method : FederatedMethod
    blocks : sequence of ClientBlock or DesignBlock
    schema : Schema
    map_blocks : callable, default=map
        Like the builtin ``map``; a parallel one must keep the order, so that sums repeat to the
        bit.

    Returns
    -------
    FederationResult
    """
    broadcast, server_state = method.initialize(schema), None
    states = [None] * len(blocks)
    bytes_up, bytes_down = 0, broadcast.nbytes
    for _ in range(method.n_rounds):
        update = partial(_update_block, method, broadcast)
        meter = _Meter(states)
        results = meter.watch(map_blocks(update, blocks, states))
        broadcast, server_state = method.aggregate(results, broadcast, server_state)
        states = meter.states
        bytes_up += meter.bytes
        bytes_down += broadcast.nbytes
    models = list(map_blocks(method.personalize, blocks, repeat(broadcast), states))
    return FederationResult(broadcast, models, bytes_up, bytes_down)


def _update_block(method, broadcast, block, state):
    return method.client_update(block, broadcast, state)


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
