"""FedSLR: a low-rank model of all clients, and a sparse correction for each of them."""

from dataclasses import dataclass, field, replace
from numbers import Integral, Real

import numpy as np
from scipy import sparse
from sklearn.utils._param_validation import Interval

from ..core import shrink_singular_values
from ._classifier import GradientClassifier
from ._method import GradientMethod, ModelBroadcast

_SPARSE, _GAMMA, _RANK, _CLIENTS = "sparse.", "gamma.", "rank.", "n_clients"


@dataclass(frozen=True)
class LowRankBroadcast(ModelBroadcast):
    """Shared parameters whose matrices travel as factors where these are smaller."""

    ranks: dict = field(default_factory=dict)

    @property
    def factored(self):
        """Ranks of the matrices whose factors are the smaller form."""
        ranks = {name: int(rank) for name, rank in self.ranks.items()}
        return {
            name: rank
            for name, rank in ranks.items()
            if rank * sum(as_matrix(self.parameters[name]).shape) < self.parameters[name].size
        }

    @property
    def nbytes(self):
        """Size of the message with each matrix as factors or dense, whichever is smaller."""
        total, factored = self.n_round.nbytes, self.factored
        for name, array in self.parameters.items():
            numbers = array.size
            if name in factored:
                numbers = factored[name] * sum(as_matrix(array).shape)
            total += numbers * array.itemsize
        return total

    def arrays_to_send(self):
        """The arrays, with factors and a shape in place of larger matrices."""
        arrays = self.arrays()
        for name, rank in self.factored.items():
            weight = arrays.pop(f"parameters.{name}")
            left, right = shrink_singular_values(as_matrix(weight), 0.0)
            arrays[f"left.{name}"] = left[:, :rank].astype(weight.dtype)
            arrays[f"right.{name}"] = right[:rank].astype(weight.dtype)
            arrays[f"shape.{name}"] = np.array(weight.shape)
        return arrays

    @classmethod
    def from_sent(cls, arrays):
        """The message with its matrices multiplied out."""
        arrays = dict(arrays)
        for name in [n.removeprefix("left.") for n in arrays if n.startswith("left.")]:
            left, right, shape = (
                arrays.pop(f"{part}.{name}") for part in ("left", "right", "shape")
            )
            arrays[f"parameters.{name}"] = from_matrix(left @ right, tuple(shape.tolist()))
        return cls.from_arrays(arrays)


def as_matrix(weight):
    """A weight as a matrix: a convolution's (o, i, s, s) as (o·s, i·s), others by outputs."""
    if weight.ndim == 4:
        o, i, height, width = weight.shape
        return weight.transpose(0, 2, 1, 3).reshape(o * height, i * width)
    return weight.reshape(len(weight), -1) if weight.ndim > 2 else weight


def from_matrix(matrix, shape):
    """A weight of a shape from its :func:`as_matrix`."""
    if len(shape) == 4:
        o, i, height, width = shape
        return matrix.reshape(o, height, i, width).transpose(0, 2, 1, 3)
    return matrix


def is_matrix(array):
    """Whether the nuclear norm is taken of a parameter."""
    return array.ndim in (2, 4)


@dataclass(frozen=True, kw_only=True)
class FedSLR(GradientMethod):
    """Phase I trains w near the round's, the server shrinks it; phase II trains p at w + p."""

    rank_threshold: float
    sparse_threshold: float
    eta_g: float
    lr_decay: float
    sparse_epochs: int

    summed = (_GAMMA,)
    alike = True

    def new_state(self, parameters):
        """γ and p start at zero."""
        return {
            f"{prefix}{name}": np.zeros_like(array)
            for prefix in (_GAMMA, _SPARSE)
            for name, array in parameters.items()
            if name not in self.network.buffers
        }

    def local(self, rows, shared, state, n_round):
        """Both phases, with the round's w as it came down; w is sent up, γ and p are kept."""
        lr = self.lr * self.lr_decay**n_round
        gamma, own = _under(_GAMMA, state), _under(_SPARSE, state)
        trained, _ = self.train(
            rows,
            shared,
            self.gradients(),
            lr=lr,
            decay=self.weight_decay + 1 / self.eta_g,
            pull={name: shared[name] / self.eta_g + gamma[name] for name in gamma},
        )
        gamma = {name: gamma[name] + (shared[name] - trained[name]) / self.eta_g for name in gamma}
        buffers = {name: tensor for name, tensor in shared.items() if name not in own}
        own, losses = self.train(
            rows,
            {**own, **buffers},
            self.sum_gradients(),
            epochs=self.sparse_epochs,
            constants={name: shared[name] for name in own},
            lr=lr,
            shrink=self.sparse_threshold * lr,
        )
        kept = {f"{_GAMMA}{name}": tensor for name, tensor in gamma.items()}
        kept |= {f"{_SPARSE}{name}": own[name] for name in gamma}
        return trained, kept, losses

    def sum_gradients(self):
        """The gradient in p of the loss at w + p."""
        inner = self.gradients()

        def gradients(params, constants, batch):
            total = {name: constants[name] + params[name] for name in constants}
            return inner({**params, **total}, {}, batch)

        return gradients

    def personal_parameters(self, rows, shared, state, n_round):
        """The sparse components."""
        return {name: p for name, p in state.items() if name.startswith(_SPARSE)}

    def compose(self, shared, own):
        """w + p."""
        own = _under(_SPARSE, own)
        return {n: w + own[n].to(w.device) if n in own else w for n, w in shared.items()}

    def message(self, broadcast, server_state):
        """With the ranks beside the parameters; dense before the first round."""
        ranks = _under(_RANK, server_state.memory)
        return LowRankBroadcast(broadcast.parameters, broadcast.n_round, ranks)

    def without(self, server_state, left):
        """Without the γ of the clients that have left."""
        memory = {name: array for name, array in server_state.memory.items() if name != _CLIENTS}
        for name, tensor in left.items():
            if name in memory:
                memory[name] = memory[name] - tensor.double().sum(0).numpy()
        return replace(server_state, memory=memory)

    def aggregate_means(self, means, weight, broadcast, server_state):
        """The proximal step of the server; it remembers the sum of all clients' γ."""
        # Clients that are lost on the way do not come with their γ, which stays in the sum.
        n_clients = max(len(self.roster), int(server_state.memory.get(_CLIENTS, 0)))
        params, memory = {}, {_CLIENTS: np.array(n_clients)}
        for name, mean in means.items():
            params[name] = mean
            if name in self.network.buffers:
                continue
            total = server_state.memory.get(f"{_GAMMA}{name}", 0.0)
            moved = broadcast.parameters[name].astype(float) - mean
            total = total + weight * moved / self.eta_g
            memory[f"{_GAMMA}{name}"] = total
            params[name] = mean - self.eta_g * total / n_clients
            if is_matrix(mean):
                left, right = shrink_singular_values(
                    as_matrix(params[name]), self.rank_threshold * self.eta_g
                )
                params[name] = from_matrix(left @ right, mean.shape)
                memory[f"{_RANK}{name}"] = np.array(left.shape[1])
            params[name] = params[name].astype(mean.dtype)
        return params, memory


def _under(prefix, params):
    return {n.removeprefix(prefix): p for n, p in params.items() if n.startswith(prefix)}


class FedSLRClassifier(GradientClassifier):
    """FedSLR: a low-rank global model w, and for each client a sparse p; its model is w + p.

    In phase I clients train w with a proximal term and a dual variable γ_k that add up, on the
    server, to a proximal gradient step of the mean loss plus λ times the nuclear norm of each
    weight matrix. In phase II each client trains p at the round's w + p, with soft thresholding
    after each step. Only w travels: down as factors, where these are smaller. ``loss_curve_`` is of
    phase II.

    Parameters
    ----------
    rank_threshold : float, default=1e-4
        Weight λ of the nuclear norms, >= 0. A convolution (o, i, s, s) counts as a matrix
        (o·s, i·s); biases and other vectors are left alone.
    sparse_threshold : float, default=1e-3
        Weight μ of the sum of absolute values of p, >= 0.
    eta_g : float, default=10.0
        Step size η of the server, > 0; clients' proximal term weighs 1 / η.
    lr_decay : float, default=0.998
        Factor of ``lr`` from round to round, in (0, 1].
    sparse_epochs : int, default=1
        Passes over a client's rows in phase II; ``local_epochs`` are those of phase I.
    %(parameters)s

    Attributes
    ----------
    rank_ : dict of str to int
        Rank of each weight matrix of the global model.
    sparsity_ : ndarray of shape (K,)
        Share of zeros in each client's p.
    %(attributes)s

    See Also
    --------
    DittoClassifier : A second, dense model for each client, near the global one.

    Notes
    -----
    ``weight_decay`` acts on w in phase I and on p alone in phase II.

    References
    ----------
    Huang, Shen, Sun, Lin, Tao, "Fusion of Global and Local Knowledge for Personalized Federated
    Learning", 2023.

    Examples
    --------
    >>> from skfedhip import FedSLRClassifier
    >>> from skfedhip.datasets import make_federated_classification
    >>> X, y, groups = make_federated_classification(random_state=0)
    >>> clf = FedSLRClassifier(1e-2, n_rounds=3, random_state=0).fit(X, y, groups=groups)
    >>> clf.rank_["head.weight"] <= 5
    True
    """

    _parameter_constraints = {
        **GradientClassifier._parameter_constraints,
        "rank_threshold": [Interval(Real, 0, None, closed="left")],
        "sparse_threshold": [Interval(Real, 0, None, closed="left")],
        "eta_g": [Interval(Real, 0, None, closed="neither")],
        "lr_decay": [Interval(Real, 0, 1, closed="right")],
        "sparse_epochs": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        rank_threshold=1e-4,
        sparse_threshold=1e-3,
        *,
        eta_g=10.0,
        lr_decay=0.998,
        sparse_epochs=1,
        **shared,
    ):
        super().__init__(**shared)
        self.rank_threshold = rank_threshold
        self.sparse_threshold = sparse_threshold
        self.eta_g = eta_g
        self.lr_decay = lr_decay
        self.sparse_epochs = sparse_epochs

    @property
    def rank_(self):
        """Rank of each weight matrix of the global model."""
        return {name: left.shape[1] for name, (left, _) in self._factors().items()}

    @property
    def sparsity_(self):
        """Share of zeros in each client's sparse component."""
        own = self.personal_params_.values()
        zeros = sum((array == 0).reshape(len(array), -1).sum(1) for array in own)
        return zeros / sum(array[0].size for array in own)

    def compress(self):
        """The models in as few numbers as they take.

        Returns
        -------
        shared : dict of str to ndarray or (ndarray, ndarray)
            The global model: for each weight matrix of shape (m, n) its factors (m, r) and (r, n),
            where they are smaller, and all else as it is. A convolution's matrix is
            (o·s, i·s).
        personal : dict from client id to dict of str to csr_array
            The sparse components, likewise as matrices; vectors have one row.
        """
        shared = dict(self.global_params_)
        for name, (left, right) in self._factors().items():
            if left.size + right.size < shared[name].size:
                shared[name] = (left, right)
        own = {n.removeprefix(_SPARSE): p for n, p in self.personal_params_.items()}
        personal = {
            client: {n: sparse.csr_array(np.atleast_2d(as_matrix(p[k]))) for n, p in own.items()}
            for k, client in enumerate(self.clients_.tolist())
        }
        return shared, personal

    def _factors(self):
        """(left, right) of each weight matrix, of which a round leaves the rank exact but for
        rounding."""
        factors = {}
        for name, array in self.global_params_.items():
            if is_matrix(array):
                left, right = shrink_singular_values(as_matrix(array), 0.0)
                factors[name] = (left, right)
        return factors

    def _method(self, **common):
        return FedSLR(
            rank_threshold=float(self.rank_threshold),
            sparse_threshold=float(self.sparse_threshold),
            eta_g=float(self.eta_g),
            lr_decay=float(self.lr_decay),
            sparse_epochs=self.sparse_epochs,
            **common,
        )
