"""What methods share whose server keeps every client's last model and answers each alone."""

from dataclasses import dataclass, field, replace
from hashlib import blake2b

import numpy as np

from ..protocol import ClientUpdate
from ..utils._ids import id_bytes
from ._method import GradientMethod, ModelBroadcast
from ._own import own_or, untrained
from ._updates import total_of

_MODEL, KEYS = "model.", "keys"


def key_of(client):
    """A number that names a client in messages and in the server's memory."""
    return int.from_bytes(blake2b(id_bytes(client), digest_size=8).digest(), "little")


def positions(keys, wanted):
    """Where numbers stand among others, -1 for those that do not; shape of ``wanted``."""
    place = {key: i for i, key in enumerate(keys.tolist())}
    return np.array([place.get(key, -1) for key in wanted.tolist()], dtype=np.int64)


def mixed(shares, stacked):
    """Means of stacked arrays (N, ...), weighted by shares (..., N) that add up to one."""
    out = np.tensordot(shares, stacked.astype(float), 1)
    return (np.rint(out) if stacked.dtype.kind in "iu" else out).astype(stacked.dtype)


@dataclass(frozen=True)
class PoolUpdate(ClientUpdate):
    """What clients send up, one after another in the place of sums.

    Attributes
    ----------
    stacks : dict of ndarray
        By name, with a client axis.
    keys : ndarray of shape (K,)
        Who they are.
    counts, losses : ndarray of shape (K,)
        Their numbers of rows, and mean losses.
    """

    stacks: dict
    keys: np.ndarray
    counts: np.ndarray
    losses: np.ndarray

    def __add__(self, other):
        if not other.weight:
            return self
        both = {n: np.concatenate([each, other.stacks[n]]) for n, each in self.stacks.items()}
        names = ("keys", "counts", "losses")
        return PoolUpdate(
            both, *(np.concatenate([getattr(self, n), getattr(other, n)]) for n in names)
        )

    @property
    def weight(self):
        """Sum of the numbers of rows."""
        return self.counts.sum()

    @property
    def loss(self):
        """Sum of the losses of all rows, and how many there are."""
        return np.array([self.losses @ self.counts, self.weight])

    def is_finite(self):
        """Whether all numbers of all clients are."""
        return all(np.isfinite(array).all() for array in (self.losses, *self.stacks.values()))

    @property
    def nbytes(self):
        """Size of one client's message."""
        return sum(array[:1].nbytes for array in self.arrays().values())

    def means(self, dtype_of):
        """The means weighted by rows, of what ``dtype_of`` has by name."""
        shares, stacks = self.counts / self.weight, self.stacks
        return {name: mixed(shares, stacks[name]) for name in stacks if name in dtype_of}


@dataclass(frozen=True)
class PoolBroadcast(ModelBroadcast):
    """Models, and which of them each client gets; who gets none has the shared parameters.

    Attributes
    ----------
    pool : dict of ndarray
        Models by name, first axis N.
    keys : ndarray of shape (K,)
        Clients that have sent something.
    picks : ndarray of shape (K, M)
        Positions in the pool, -1 for nothing.
    """

    pool: dict = field(default_factory=dict)
    keys: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint64))
    picks: np.ndarray = field(default_factory=lambda: np.empty((0, 0), np.int64))

    @property
    def nbytes(self):
        """Size of the models that one client gets: one at least, and at most as many as any."""
        model = sum(array.nbytes for array in self.parameters.values())
        most = (self.picks >= 0).sum(1).max(initial=1)
        return int(most) * model + self.n_round.nbytes

    def picks_of(self, client_ids):
        """Positions in the pool for clients (K, M), all -1 for those that have sent nothing."""
        wanted = np.array([key_of(client) for client in client_ids.tolist()], np.uint64)
        at = positions(self.keys, wanted)
        picks = np.full((len(at), self.picks.shape[1]), -1)
        picks[at >= 0] = self.picks[at[at >= 0]]
        return picks

    def for_client(self, client):
        """Its models alone; the shared parameters in their place for a client without any."""
        keys = np.array([key_of(client)], np.uint64)
        picks = self.picks_of(np.array([client]))
        there = picks >= 0
        if not there.any():
            return PoolBroadcast(self.parameters, self.n_round)
        pool = {name: stacked[picks[there]] for name, stacked in self.pool.items()}
        picks[there] = np.arange(there.sum())
        return PoolBroadcast({}, self.n_round, pool, keys, picks)


@dataclass(frozen=True, kw_only=True)
class PoolMethod(GradientMethod):
    """Clients send whole models, and the server remembers the last of each: O(K P) numbers."""

    def new_state(self, parameters):
        """A client's own model, which is to come of its first round."""
        return untrained(parameters)

    def personal_parameters(self, rows, shared, state, n_round):
        """The model that a client trained last, or the shared parameters."""
        return own_or(state, shared)

    def _summed(self, upload, losses, part):
        keys = np.array([key_of(client) for client in part.client_ids.tolist()], np.uint64)
        stacks = {name: tensor.cpu().numpy() for name, tensor in upload.items()}
        return PoolUpdate(stacks, keys, part.counts.astype(float), losses.cpu().numpy())

    def aggregate(self, updates, broadcast, server_state):
        """The mean model, for those that have sent nothing, and the memory as it is now."""
        total = total_of(updates)
        server_state = server_state or self.new_server_state(broadcast)
        if total.weight:
            memory = self.remembered(total, broadcast, server_state.memory)
            server_state = replace(server_state, memory=memory)
        return super().aggregate([total], broadcast, server_state)

    def remembered(self, total, broadcast, memory):
        """The server's memory with what came up in it."""
        old = memory.get(KEYS, np.empty(0, np.uint64))
        keys = np.union1d(old, total.keys)  # in one order, whoever was first
        out = {KEYS: keys}
        for name in broadcast.parameters:
            sent = total.stacks[name]
            stacked = np.zeros((len(keys), *sent.shape[1:]), sent.dtype)
            if len(old):
                stacked[positions(keys, old)] = memory[f"{_MODEL}{name}"]
            stacked[positions(keys, total.keys)] = sent
            out[f"{_MODEL}{name}"] = stacked
        return out

    @staticmethod
    def models(memory):
        """The last model of each client that has sent one, stacked."""
        # In one order, which sums over parameters hang on, whether read from a file or not.
        return {n.removeprefix(_MODEL): memory[n] for n in sorted(memory) if n.startswith(_MODEL)}
