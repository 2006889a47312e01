"""The four verbs of a federated method, and the one loop that runs them in process."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Protocol

from ._messages import Broadcast, ClientUpdate, Schema


class FederatedMethod(Protocol):
    """A method states these four verbs on client blocks; every runner drives the same object.

    A block holds the rows of one client (a real federation) or of many (in process). ``state`` is
    what a block's clients keep between rounds and never send.

    Attributes
    ----------
    n_rounds : int
        How often updates go up.

    See Also
    --------
    run_federation : Run a method in this process; its example is a method.

    Examples
    --------
    >>> from skfedhip.preprocessing import MomentsMethod
    >>> [verb for verb in dir(MomentsMethod) if not verb.startswith("_")]
    ['aggregate', 'client_update', 'initialize', 'n_rounds', 'personalize']
    """

    n_rounds: int

    def initialize(self, schema: Schema) -> Broadcast:
        """Make the first message down.

        Parameters
        ----------
        schema : Schema
            What all clients agree on.

        Returns
        -------
        Broadcast
            :class:`Empty` where the first message goes up.
        """

    def client_update(
        self, block: Any, broadcast: Broadcast, state: Any
    ) -> tuple[ClientUpdate, Any]:
        """Do a round of the block's clients.

        Parameters
        ----------
        block : ClientBlock or DesignBlock
            Rows of one client or of many.
        broadcast : Broadcast
            The last message down.
        state : object
            What they kept of the round before; None in the first.

        Returns
        -------
        update : ClientUpdate
            What they send up, as a sum.
        state : object
            What they keep.
        """

    def aggregate(
        self, updates: Iterable[ClientUpdate], broadcast: Broadcast, server_state: Any
    ) -> tuple[Broadcast, Any]:
        """Do a round of the server.

        Parameters
        ----------
        updates : iterable of ClientUpdate
            What came up, to be added as it comes.
        broadcast : Broadcast
            The last message down.
        server_state : object
            What the server kept of the round before; None in the first.

        Returns
        -------
        broadcast : Broadcast
            The next message down.
        server_state : object
            What the server keeps.
        """

    def personalize(self, block: Any, broadcast: Broadcast, state: Any) -> Any:
        """Make the personal models of the block's clients.

        Parameters
        ----------
        block : ClientBlock or DesignBlock
            Rows of one client or of many.
        broadcast : Broadcast
            The last message down.
        state : object
            What the clients kept; None if they have done no round, as newcomers.

        Returns
        -------
        object
            The models, in a form that is the method's own.
        """


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

    Examples
    --------
    >>> from skfedhip.protocol import Empty, FederationState
    >>> FederationState(Empty(), server_state=None, states=[None, None]).bytes_up
    0
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

    Examples
    --------
    >>> from skfedhip.protocol import Empty, FederationResult
    >>> result = FederationResult((Empty(),), ["a model"], 0, 0, None, [None])
    >>> result.models
    ['a model']
    """

    broadcasts: tuple
    models: list
    bytes_up: int
    bytes_down: int
    server_state: Any
    states: list


def run_federation(
    method: FederatedMethod,
    blocks: Sequence,
    schema: Schema,
    *,
    map_blocks: Callable = map,
    known: Broadcast | None = None,
    start: FederationState | None = None,
    after_round: Callable[[FederationState], object] | None = None,
) -> FederationResult:
    """Run a method on client blocks in this process.

    Parameters
    ----------
    method : FederatedMethod
        The four verbs and their number of rounds.
    blocks : sequence of ClientBlock or DesignBlock
        Rows of all clients, each client in one block.
    schema : Schema
        What the clients agree on.
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
        What server and clients are left with.

    Examples
    --------
    The mean of all rows, and for each client how far its own mean is from it:

    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> from skfedhip.core import ClientBlock
    >>> from skfedhip.protocol import Broadcast, ClientUpdate, Empty, Schema, run_federation
    >>> @dataclass(frozen=True)
    ... class Sums(ClientUpdate):
    ...     total: np.ndarray
    ...     n_rows: np.ndarray
    ...     def __add__(self, other):
    ...         return Sums(self.total + other.total, self.n_rows + other.n_rows)
    >>> @dataclass(frozen=True)
    ... class Mean(Broadcast):
    ...     mean: np.ndarray
    >>> class Distances:
    ...     n_rounds = 1
    ...     def initialize(self, schema):
    ...         return Empty()
    ...     def client_update(self, block, broadcast, state):
    ...         return Sums(block.features().sum(axis=0), np.asarray(block.n_rows)), state
    ...     def aggregate(self, updates, broadcast, server_state):
    ...         first, *others = updates
    ...         total = sum(others, start=first)
    ...         return Mean(total.total / total.n_rows), server_state
    ...     def personalize(self, block, broadcast, state):
    ...         return block.features().mean(axis=0) - broadcast.mean
    >>> X = np.array([[0.0], [2.0], [4.0]])
    >>> owner, clients = np.array([0, 0, 1]), np.array(["north", "south"])
    >>> block = ClientBlock.from_arrays(X, np.zeros(3, dtype=int), owner, clients, 1)
    >>> schema = Schema(n_features=1, classes=np.zeros(1), dtype=X.dtype)
    >>> result = run_federation(Distances(), block.cut_clients(1), schema)
    >>> result.models, result.bytes_up
    ([array([-1.]), array([2.])], 16)
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

    def __init__(self, blocks: Sequence, states: list):
        self.blocks = blocks
        self.states = list(states)
        self.bytes = 0

    def watch(self, results: Iterable[tuple[ClientUpdate, Any]]) -> Iterator[ClientUpdate]:
        for i, (update, state) in enumerate(results):
            self.states[i] = state
            n_rows = int(self.blocks[i].counts.max(initial=0))
            self.bytes = max(self.bytes, update.nbytes_of(n_rows))
            yield update
