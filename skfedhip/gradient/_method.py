"""The four verbs of gradient methods, and what of them a method may state differently."""

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch

from ..core import ClientBlock
from ..protocol import Broadcast
from ._cut import longest_first
from ._engine import Descent, Generators, Rows, Schedule, train
from ._functional import linear, linear_gradients, softmax_loss
from ._networks import Network
from ._updates import ClientModel, ModelUpdate, total_of

BLOCK_BYTES = {"cpu": 2**24, "cuda": 2**32}
"""Parameters that are trained together: about a processor's cache, and much of a GPU's memory."""

SUMMED_AT_ONCE = 2**15
"""Numbers of a client that are added to the other clients' at a time."""

PLANNED = 2**22
"""Rows that clients trained together are to meet, all counted as the longest."""

ROWS_AT_ONCE = 4096
"""Rows that are mapped to features at a time where nothing is trained."""


@dataclass(frozen=True)
class ModelBroadcast(Broadcast):
    """The shared parameters, and the number of rounds that they have been through."""

    parameters: dict
    n_round: np.ndarray


@dataclass(frozen=True)
class ServerState:
    """What the server keeps of a round, and never sends down.

    Attributes
    ----------
    averages : dict of ndarray
        Means of parameters that stay with the clients, for clients that nobody knows.
    loss : float
        Mean training loss of the rows of the round's cohort.
    memory : dict of ndarray
        What the method itself remembers.
    """

    averages: dict
    loss: float = np.nan
    memory: dict = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class GradientMethod:
    """FedAvg, and the base of all others: what they state differently are its attributes and hooks.

    Attributes
    ----------
    network : Network
    roster : ndarray of shape (K,) or None
        Ids of all clients, from which cohorts are drawn; None at a client of a network, which takes
        part when it is asked.
    n_rounds : int
    lr, weight_decay : float
    batch_size, local_epochs : int
    shuffle, drop_last : bool
    join_ratio : float or (float, float)
        Share of the clients in a round's cohort, or bounds from which it is drawn each round.
    seed : int
    device, dtype : torch device and dtype
    init_params : dict of ndarray
        Initial parameters, in place of those that the network draws.
    """

    network: Network
    roster: np.ndarray | None
    n_rounds: int
    lr: float
    weight_decay: float
    batch_size: int
    local_epochs: int
    shuffle: bool
    drop_last: bool
    join_ratio: float | tuple
    seed: int
    device: torch.device
    dtype: torch.dtype
    init_params: dict

    personal = ()
    """Prefixes of the parameters that stay with a client; all others go down to it."""

    summed = ()
    """Prefixes of what clients keep and the server knows the sum of; a guest's begins anew."""

    alike = False
    """Whether clients count alike in the averages; else they count as many as their rows."""

    # Hooks.

    def initial(self):
        """Initial parameters, a dict of arrays of one model."""
        params = {n: t.numpy() for n, t in self.network.initial(self.dtype).items()}
        return with_init_params(params, self.init_params)

    def new_state(self, parameters):
        """What a client has before its first round, from what has come down; of one client."""
        return self.of_personal(self.start)

    def local(self, rows, shared, state, n_round):
        """A client's round, for all clients of a chunk.

        Parameters
        ----------
        rows : Rows
        shared : dict of Tensor
            What :meth:`received` takes from the message down.
        state : dict of Tensor
            What the clients kept.
        n_round : int

        Returns
        -------
        upload : dict of Tensor
            What they send up; the server averages it.
        state : dict of Tensor
            What they keep.
        losses : Tensor of shape (K,)
        """
        params, losses = self.train(rows, {**shared, **state}, self.gradients())
        return params, self.of_personal(params), losses

    def personal_parameters(self, rows, shared, state, n_round):
        """What replaces, or completes, shared parameters in a client's own model."""
        return state

    def aggregate_means(self, means, weight, broadcast, server_state):
        """Shared parameters and the server's memory, from the means of what came up.

        ``weight`` is the sum of the clients' weights.
        """
        return means, server_state.memory

    def without(self, server_state, left):
        """What the server keeps once clients have left; ``left`` is what they kept, stacked."""
        return server_state

    def message(self, broadcast, server_state):
        """The message down from one that has nothing but shared parameters."""
        return broadcast

    def received(self, broadcast, client_ids):
        """What came down to some clients, with a client axis, of length 1 if the same for all."""
        return self.on_device(broadcast.parameters, one=True)

    def compose(self, shared, own):
        """A model from the shared parameters and a client's own, without client axes."""
        return {**shared, **own}

    def logits(self, mapper, params, x):
        """Scores (1, n, d) of rows (1, n, ...) by one model."""
        return linear(mapper(params, x)[0], params["head.weight"], params["head.bias"])

    # What hooks are made of.

    def of_personal(self, params):
        """The parameters that stay with a client."""
        return {name: p for name, p in params.items() if name.startswith(self.personal)}

    def gradients(self, trained=("extractor.", "head.")):
        """Cross-entropy of the network, as the engine wants it, in some of the parameters."""
        mapper = self.network.mapper(training=True)

        def gradients(params, constants, batch):
            h, pullback = mapper(params, batch.x)
            head = params["head.weight"]
            logits = linear(h, head, params["head.bias"])
            loss, grad = softmax_loss(logits, batch.y, batch.weight)
            grads = linear_gradients("head", grad, h) if "head." in trained else {}
            if "extractor." in trained:
                grads |= pullback(torch.bmm(grad, head))
            return loss, grads

        return gradients

    def train(self, rows, params, gradients, *, epochs=None, constants=None, **descent):
        """The engine, with the parameters of the method unless told otherwise."""
        descent = Descent(**{"lr": self.lr, "decay": self.weight_decay, **descent})
        return train(rows, params, gradients, self.schedule(epochs), descent, constants)

    def schedule(self, epochs=None):
        """Which rows a client takes in which step; of a round, unless told otherwise."""
        epochs = self.local_epochs if epochs is None else epochs
        return Schedule(epochs, self.batch_size, self.shuffle, self.drop_last)

    def features(self, mapper, params, x):
        """Features (n, p) of rows (n, ...) by one model (client axis of length 1)."""
        parts = [mapper(params, part[None])[0][0] for part in x.split(ROWS_AT_ONCE)]
        return torch.cat(parts)

    # The verbs.

    def initialize(self, schema):
        """Initial parameters."""
        first = ModelBroadcast(self.shared_of(self.start), np.zeros((), dtype=np.int64))
        return self.message(first, self.new_server_state(first))

    def shared_of(self, params):
        """The parameters that go down."""
        return {n: p for n, p in params.items() if not n.startswith(self.personal)}

    @torch.no_grad()
    def client_update(self, block, broadcast, state):
        """Train the block's clients that are in the cohort; the others' state stays."""
        n_round = int(broadcast.n_round)
        if state is None:
            state = self.states_of(len(block.client_ids), broadcast)
        joins = self.joins(block.client_ids, n_round)
        updates, state = [self._nothing()], {n: tensor.clone() for n, tensor in state.items()}
        for index in self._chunks(block, joins):
            part = block.clients(index)
            rows = self.rows_of(part, n_round)
            shared = self.received(broadcast, part.client_ids)
            own = self.on_device({n: tensor[index] for n, tensor in state.items()})
            with self._seeded(rows):
                upload, new, losses = self.local(rows, shared, own, n_round)
            update = self._summed(upload, losses, part)
            if not update.is_finite():
                met = {**upload, "loss": losses}
                self._name_diverged(met, part.client_ids, f"in round {n_round + 1}")
            updates.append(update)
            for name, tensor in new.items():
                state[name][index] = tensor.cpu()
        return total_of(updates), state

    def aggregate(self, updates, broadcast, server_state):
        """Average what came up; where nobody joined, all stays as it was."""
        server_state = server_state or self.new_server_state(broadcast)
        total = total_of(updates)
        n_round = broadcast.n_round + 1
        if not total.weight:
            return replace(broadcast, n_round=n_round), replace(server_state, loss=np.nan)
        known = {**server_state.memory, **broadcast.parameters, **server_state.averages}
        means, weight = total.means(known), float(total.weight)
        params, memory = self.aggregate_means(means, weight, broadcast, server_state)
        loss = float(total.loss[0] / total.loss[1])
        state = ServerState(self.of_personal(params), loss, memory)
        broadcast = replace(broadcast, parameters=self.shared_of(params), n_round=n_round)
        return self.message(broadcast, state), state

    def new_server_state(self, broadcast):
        """What the server has before the first round."""
        return ServerState(self.of_personal(self.start))

    @torch.no_grad()
    def personalize(self, block, broadcast, state):
        """Parameters of their own of the block's clients, stacked: a dict of tensors."""
        n_round = int(broadcast.n_round)
        if state is None:
            state = self.states_of(len(block.client_ids), broadcast)
        n_clients, personal = len(block.client_ids), {}
        for index in self._chunks(block, np.ones(n_clients, dtype=bool)):
            part = block.clients(index)
            rows = self.rows_of(part, n_round)
            shared = self.received(broadcast, part.client_ids)
            own = self.on_device({n: tensor[index] for n, tensor in state.items()})
            with self._seeded(rows):
                own = self.personal_parameters(rows, shared, own, n_round)
            if not all(tensor.isfinite().all() for tensor in own.values()):
                self._name_diverged(own, part.client_ids, f"after round {n_round}")
            for name, tensor in own.items():
                if name not in personal:
                    personal[name] = tensor.new_empty(n_clients, *tensor.shape[1:], device="cpu")
                personal[name][index] = tensor.cpu()
        return personal

    # Pieces of the verbs.

    def states_of(self, n_clients, broadcast):
        """The states of clients before their first round, stacked."""
        parameters = broadcast.parameters
        if self.roster is None:  # a client that is drawn late starts as if it had heard all
            parameters = self.shared_of(self.initial())
        one = {n: torch.as_tensor(p) for n, p in self.new_state(parameters).items()}
        return {n: p.expand(n_clients, *p.shape).clone() for n, p in one.items()}

    def cohort(self, client_ids, broadcast):
        """Which of the clients take part in the round that a message begins."""
        return self.joins(client_ids, int(broadcast.n_round))

    def among(self, client_ids):
        """The method with these clients for a roster."""
        return replace(self, roster=client_ids)

    def update_like(self, schema, broadcast):
        """An update of the shape that any client's has, from steps too short to diverge."""
        d, dtype = schema.n_classes, np.dtype(schema.dtype)
        X = np.zeros((d, *schema.row_shape), dtype)  # token ids as well
        nobody = np.array([None], dtype=object)
        block = ClientBlock.from_arrays(X, np.arange(d), np.zeros(d, dtype=np.intp), nobody, d)
        return replace(self, roster=None, lr=1e-12).client_update(block, broadcast, None)[0]

    def joins(self, client_ids, n_round):
        """Which of the clients are in a round's cohort, bool of shape (K,); never nobody at all."""
        ratio = self.join_ratio
        if ratio == 1.0 or self.roster is None:
            return np.ones(len(client_ids), dtype=bool)
        rng = np.random.default_rng([self.seed, n_round])
        if isinstance(ratio, tuple | list):
            ratio = rng.uniform(*ratio)
        n_joined = max(1, round(ratio * len(self.roster)))
        cohort = rng.choice(len(self.roster), n_joined, replace=False)
        joined = {self.roster[k] for k in cohort.tolist()}
        return np.array([client in joined for client in client_ids])

    def rows_of(self, block, n_round):
        """The block's rows as tensors, with fresh generators."""
        x = torch.as_tensor(_writable(block.features()), dtype=self.dtype, device=self.device)
        y = torch.as_tensor(block.y, dtype=torch.int64, device=self.device)
        return Rows(x, y, block.offsets, Generators(self.seed, block.client_ids.tolist(), n_round))

    def on_device(self, params, *, one=False):
        """Parameters as tensors where they are computed with; ``one``: with a client axis of 1."""
        tensors = {n: torch.as_tensor(_writable(p), device=self.device) for n, p in params.items()}
        return {n: t[None] if one else t for n, t in tensors.items()}

    def clients_at_once(self):
        """How many clients are trained together."""
        if not self.network.stackable or (
            self.network.layers is None and self.device.type == "cpu"
        ):
            return 1
        block_bytes = BLOCK_BYTES.get(self.device.type, BLOCK_BYTES["cuda"])
        return max(1, block_bytes // self._model_bytes)

    @cached_property
    def start(self):
        """Initial parameters, drawn once; read, never written."""
        return self.initial()

    @cached_property
    def _model_bytes(self):
        return sum(array.nbytes for array in self.start.values())

    def _chunks(self, block, chosen):
        """Positions of the chosen clients that are trained together, the longest first.

        Their steps are planned ahead, as many for each as for the longest: these are bounded too.
        """
        order = longest_first(block.counts)
        index, chunks, at_once = order[chosen[order]], [], self.clients_at_once()
        while len(index):
            planned = self.local_epochs * int(block.counts[index[0]])
            size = min(at_once, max(1, PLANNED // planned))
            chunks.append(index[:size])
            index = index[size:]
        return chunks

    @contextmanager
    def _seeded(self, rows):
        """Torch's own draws, of dropout, hang on the client as well while the caller is inside."""
        if not self.network.draws:
            yield
            return
        with torch.random.fork_rng():
            torch.manual_seed(int(rows.generators[0].integers(2**63 - 1)))
            yield

    def _nothing(self):
        itemsize = np.asarray(torch.empty(0, dtype=self.dtype).element_size())
        return ModelUpdate({}, np.zeros(()), np.zeros(2), itemsize)

    def _summed(self, upload, losses, part):
        """One update for all clients of a chunk, added up in their order."""
        counts = part.counts
        weights = np.ones(len(counts)) if self.alike else counts.astype(float)
        loss = np.array([float(losses.cpu().numpy() @ counts), float(counts.sum())])
        if len(counts) == 1:
            own = {name: stacked[0].cpu().numpy() for name, stacked in upload.items()}
            return ClientModel(own, weights.sum(), loss)
        sums = {name: _weighted_sum(weights, stacked) for name, stacked in upload.items()}
        return replace(self._nothing(), sums=sums, weight=weights.sum(), loss=loss)

    def _name_diverged(self, tensors, client_ids, when):
        """Raise, for the first of the clients with a number in its tensors that is not finite."""
        flat = [tensor.reshape(len(client_ids), -1) for tensor in tensors.values()]
        finite = torch.stack([each.isfinite().all(1) for each in flat]).all(0)
        client = client_ids.tolist()[int(finite.cpu().numpy().argmin())]
        raise FloatingPointError(
            f"training diverged at client {client!r} {when} with lr={self.lr:g}: its loss or "
            "parameters are not finite; lower the step sizes, lr first, or scale the features."
        )


def _writable(array):
    """An array that torch takes without a warning, a copy only where it must be."""
    return np.require(array, requirements="W") if isinstance(array, np.ndarray) else array


def _weighted_sum(weights, stacked):
    """In float64, of so many numbers at a time that they stay in the processor's cache."""
    weights = torch.from_numpy(weights).to(stacked.device)
    flat = stacked.reshape(len(stacked), -1)
    total = weights.new_empty(flat.shape[1])
    for part, out in zip(flat.split(SUMMED_AT_ONCE, 1), total.split(SUMMED_AT_ONCE), strict=True):
        torch.mv(part.double().mT, weights, out=out)
    return total.view(stacked.shape[1:]).cpu().numpy()


def pulled_to(target, strength, weight_decay):
    """Keywords of :meth:`GradientMethod.train` that add strength/2 ‖w - target‖² to the loss."""
    floats = {n: t for n, t in target.items() if t.is_floating_point()}
    pull = {name: strength * tensor for name, tensor in floats.items()} if strength else {}
    return {"decay": weight_decay + strength, "pull": pull}


def with_init_params(params, given):
    """Initial parameters with some of them given by name."""
    for name, value in (given or {}).items():
        if name not in params:
            raise ValueError(
                f"init_params names {name!r}, but the parameters are {sorted(params)}; use those "
                "names."
            )
        value = np.asarray(value)
        if value.shape != params[name].shape or not np.isfinite(value).all():
            raise ValueError(
                f"init_params[{name!r}] must be finite and of shape {params[name].shape}, got "
                f"shape {value.shape}; give it the shape of the parameter."
            )
        params[name] = value.astype(params[name].dtype)
    return params
