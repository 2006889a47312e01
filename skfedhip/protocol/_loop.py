"""The four verbs of a federated method, and the one loop that runs them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
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
    bytes_up, bytes_down : ndarray of shape (K,)
        What each client has sent and received so far, block by block; the last message down, which
        begins the next round, has yet to be received.

    Examples
    --------
    >>> import numpy as np
    >>> from skfedhip.protocol import Empty, FederationState
    >>> nothing = np.zeros(2, dtype=np.int64)
    >>> FederationState(Empty(), None, [None, None], nothing, nothing).bytes_up
    array([0, 0])
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

    Examples
    --------
    >>> import numpy as np
    >>> from skfedhip.protocol import Empty, FederationResult, FederationState
    >>> sent, received = np.array([8, 8]), np.array([0, 0])
    >>> state = FederationState(Empty(), None, [None], sent, received)
    >>> FederationResult((Empty(),), ["a model"], sent, received, state).models
    ['a model']
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

    def __init__(self, blocks: Sequence, mapped: Callable):
        self.blocks, self.mapped = blocks, mapped
        self.client_ids = [client for block in blocks for client in block.client_ids.tolist()]
        self.counts = np.concatenate([block.counts for block in blocks])

    def __len__(self) -> int:
        return len(self.blocks)

    def update(
        self, method: FederatedMethod, broadcast: Broadcast, states: list
    ) -> Iterator[tuple[slice, ClientUpdate]]:
        """Updates with the slice of all clients that they are of; ``states`` are replaced."""
        answers = self.mapped(method.client_update, self.blocks, repeat(broadcast), [*states])
        stop = 0
        for i, (update, state) in enumerate(answers):
            states[i] = state
            start, stop = stop, stop + len(self.blocks[i].client_ids)
            yield slice(start, stop), update

    def personalize(self, method: FederatedMethod, broadcast: Broadcast, states: list) -> list:
        """What the method's ``personalize`` returns, block by block."""
        return list(self.mapped(method.personalize, self.blocks, repeat(broadcast), states))


def run_federation(
    method: FederatedMethod,
    blocks: Any,
    schema: Schema,
    *,
    map_blocks: Callable = map,
    known: Broadcast | None = None,
    start: FederationState | None = None,
    after_round: Callable[[FederationState], object] | None = None,
) -> FederationResult:
    """Run a method on client blocks.

    Parameters
    ----------
    method : FederatedMethod
        The four verbs and their number of rounds.
    blocks : sequence of ClientBlock or DesignBlock
        Rows of all clients, each client in one block; or blocks that are elsewhere and know how to
        update and to personalize themselves.
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
    ([array([-1.]), array([2.])], array([16, 16]))
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


def _next_round(
    method: FederatedMethod, place: Any, state: FederationState, known: Broadcast | None
) -> FederationState:
    """Where the federation stands one round later."""
    broadcast, states = state.broadcast, [*state.states]
    cohort = np.ones(len(place.client_ids), dtype=bool)
    if hasattr(method, "cohort"):
        cohort = method.cohort(place.client_ids, broadcast)
    sent = np.zeros(len(cohort), dtype=np.int64)

    def received() -> Iterator[ClientUpdate]:
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
