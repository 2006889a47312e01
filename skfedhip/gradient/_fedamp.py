"""FedAMP: the server hands each client a mixture of models in which those like its own count."""

from dataclasses import dataclass
from numbers import Real

import numpy as np
import torch
from sklearn.utils._param_validation import Interval

from ._classifier import GradientClassifier
from ._method import pulled_to
from ._own import JOINED, trained, where
from ._pool import KEYS, PoolBroadcast, PoolMethod, mixed


@dataclass(frozen=True, kw_only=True)
class FedAMP(PoolMethod):
    """Clients train near what the server made for them, and send up what comes of it."""

    attention: float
    sigma: float | None
    lam: float

    def message(self, broadcast, server_state):
        """With a mixture u_k for each client that has sent a model."""
        models = self.models(server_state.memory)
        if not models:
            return PoolBroadcast(broadcast.parameters, broadcast.n_round)
        shares = self.shares(models)
        mixtures = {name: mixed(shares, stacked) for name, stacked in models.items()}
        keys, picks = server_state.memory[KEYS], np.arange(len(shares))[:, None]
        return PoolBroadcast(broadcast.parameters, broadcast.n_round, mixtures, keys, picks)

    def shares(self, models):
        """What each model counts in each mixture, (N, N); rows add up to one."""
        floats = [p for n, p in models.items() if n not in self.network.buffers]
        distances = sum(_squared_distances(stacked) for stacked in floats)
        n_models, others = len(distances), ~np.eye(len(distances), dtype=bool)
        sigma = self.sigma
        if sigma is None:
            sigma = distances[others].mean() if n_models > 1 else 0.0
        relative = distances / sigma if sigma else np.zeros_like(distances)
        shares = others * np.exp(-relative) * self.attention / max(1, n_models - 1)
        return shares + np.diag(1 - shares.sum(1))

    def received(self, broadcast, client_ids):
        """u_k, and for clients that have sent nothing the shared parameters."""
        shared = self.on_device(broadcast.parameters, one=True)
        first = broadcast.picks_of(client_ids).max(1, initial=-1)
        if not (first >= 0).any():
            return shared
        mixtures = self.on_device({n: p[first] for n, p in broadcast.pool.items()})
        if (first >= 0).all():
            return mixtures
        return where(torch.from_numpy(first >= 0).to(self.device), mixtures, shared)

    def local(self, rows, shared, state, n_round):
        """Training from u_k, near it."""
        near = pulled_to(shared, self.lam, self.weight_decay)
        params, losses = self.train(rows, shared, self.gradients(), **near)
        return params, trained(params, state[JOINED]), losses


def _squared_distances(stacked):
    """Between each two of N arrays, (N, N)."""
    flat = stacked.reshape(len(stacked), -1).astype(float)
    flat -= flat.mean(0)  # products of what all have in common would take the digits
    gram = flat @ flat.T
    norms = np.diagonal(gram)
    return np.maximum(norms[:, None] + norms - 2 * gram, 0.0)


class FedAMPClassifier(GradientClassifier):
    """FedAMP: each client's model attracts those of others, the more the nearer they are.

    The loss is Σ_k f_k(w_k) + λ' Σ_{k<j} A(‖w_k - w_j‖²) with A(x) = 1 - exp(-x/σ), which levels
    off for models that are far apart. Of the models w_k that it has, the server makes for each
    client

        u_k = (1 - Σ_{j≠k} ξ_kj) w_k + Σ_{j≠k} ξ_kj w_j,   ξ_kj = a A'(‖w_k - w_j‖²),

    and the client trains, from u_k, f_k(w) + λ/2 ‖w - u_k‖². The step a, α_k in the paper, is
    ``attention`` σ/(N - 1) for N models, so that u_k is always a mean, and λ, λ'/α_k in the paper,
    is ``lam``.

    Clients have no model in common: a client that has been in no cohort, or that nobody knows, has
    the mean of the models that were sent last, weighted by rows, and starts from it.

    Parameters
    ----------
    attention : float, default=1.0
        What others count together in u_k where all models are equal, in [0, 1]. With 0 each client
        learns alone.
    sigma : float, default=None
        Scale σ of the squared distances, > 0. None takes their mean, anew in each round. As σ grows
        and with ``attention=(N - 1) / N`` and ``lam=0`` it is FedAvg with equal weights.
    lam : float, default=0.1
        Weight λ of the distance from u_k, >= 0.
    %(parameters)s

    Attributes
    ----------
    %(attributes)s

    See Also
    --------
    FedFomoClassifier : Clients mix others' models themselves, by what these are worth to them.

    Notes
    -----
    One model goes up and one comes down in each round, as in FedAvg. The server has the models of
    all K clients, O(K P) numbers, and compares them in O(K² P) time a round; in this process so
    does ``fit``.

    References
    ----------
    Huang, Chu, Zhou, Wang, Liu, Pei, Zhang, "Personalized Cross-Silo Federated Learning on Non-IID
    Data", AAAI 2021.

    Examples
    --------
    >>> from skfedhip import FedAMPClassifier
    >>> from skfedhip.datasets import make_federated_classification
    >>> X, y, groups = make_federated_classification(random_state=0)
    >>> clf = FedAMPClassifier(n_rounds=5, lr=0.05, random_state=0).fit(X, y, groups=groups)
    >>> clf.personal_params_["head.weight"].shape
    (20, 5, 512)
    """

    _parameter_constraints = {
        **GradientClassifier._parameter_constraints,
        "attention": [Interval(Real, 0, 1, closed="both")],
        "sigma": [Interval(Real, 0, None, closed="neither"), None],
        "lam": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(self, attention=1.0, *, sigma=None, lam=0.1, **shared):
        super().__init__(**shared)
        self.attention = attention
        self.sigma = sigma
        self.lam = lam

    def _method(self, **common):
        sigma = None if self.sigma is None else float(self.sigma)
        return FedAMP(attention=float(self.attention), sigma=sigma, lam=float(self.lam), **common)
