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
    bytes_up, bytes_down : int
        What one client has sent and received so far.
    """

    broadcast: Broadcast
    server_state: Any
    states: list
    bytes_up: int = 0
    bytes_down: int = 0


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
    bytes_up, bytes_down : int
        What one client sends and receives over all rounds, the one that sends most.
    server_state : object
        What the server kept of the last round.
    states : list
        What the clients kept of the last round, block by block.
    """

    broadcasts: tuple
    models: list
    bytes_up: int
    bytes_down: int
    server_state: Any
    states: list


def run_federation(
    method, blocks, schema, *, map_blocks=map, known=None, start=None, after_round=None
):
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
    start : FederationState, default=None
        Where an earlier run stood; ``n_rounds`` more follow, unless they are stopped.
    after_round : callable, default=None
        Called with the FederationState after each round; the run stops where it returns True.

    Returns
    -------
    FederationResult
    """
    if start is None:
        broadcast = known or method.initialize(schema)
        received = 0 if known else broadcast.nbytes
        start = FederationState(broadcast, None, [None] * len(blocks), bytes_down=received)
    broadcast, server_state, states = start.broadcast, start.server_state, start.states
    bytes_up, bytes_down = start.bytes_up, start.bytes_down
    broadcasts = [broadcast]
    for _ in range(method.n_rounds - bool(known)):
        meter = _Meter(blocks, states)
        results = meter.watch(map_blocks(method.client_update, blocks, repeat(broadcast), states))
        broadcast, server_state = method.aggregate(results, broadcast, server_state)
        states = meter.states
        bytes_up += meter.bytes
        bytes_down += broadcast.nbytes
        if after_round is None:
            broadcasts.append(broadcast)
        else:  # of many rounds, all messages would fill the memory
            broadcasts = [broadcast]
            state = FederationState(broadcast, server_state, states, bytes_up, bytes_down)
            if after_round(state):
                break
    models = list(map_blocks(method.personalize, blocks, repeat(broadcast), states))
    return FederationResult(tuple(broadcasts), models, bytes_up, bytes_down, server_state, states)


class _Meter:
    """Passes updates on to the server, keeping states and the size of an update on the way."""

    def __init__(self, blocks, states):
        self.blocks = blocks
        self.states = list(states)
        self.bytes = 0

    def watch(self, results):
        for i, (update, state) in enumerate(results):
            self.states[i] = state
            n_rows = int(self.blocks[i].counts.max(initial=0))
            self.bytes = max(self.bytes, update.nbytes_of(n_rows))
            yield update
