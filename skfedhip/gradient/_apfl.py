"""APFL: each client mixes the global model with one of its own, and learns how much of each."""

from dataclasses import dataclass
from numbers import Real

import numpy as np
import torch
from sklearn.utils._param_validation import Interval

from ._classifier import GradientClassifier
from ._functional import Outer
from ._method import GradientMethod
from ._own import JOINED, own_or, trained, untrained

_OWN, _ALPHA = "own.", "alpha"


@dataclass(frozen=True, kw_only=True)
class APFL(GradientMethod):
    """Beside w, sent up, a client trains v where it counts: in α v + (1 - α) w."""

    alpha: float
    adaptive: bool

    alike = True

    def new_state(self, parameters):
        """v starts as the global model of a client's first round, and α as it is given."""
        dtype = torch.empty(0, dtype=self.dtype).numpy().dtype
        return untrained(parameters) | {_ALPHA: np.full((), self.alpha, dtype)}

    def local(self, rows, shared, state, n_round):
        """Step after step, w, v and α."""
        own = own_or(state, shared)
        start = {**shared, **{f"{_OWN}{n}": p for n, p in own.items()}, _ALPHA: state[_ALPHA]}
        params, losses = self.train(rows, start, self.mixed_gradients())
        upload = {name: params[name] for name in shared}
        kept = trained({name: params[f"{_OWN}{name}"] for name in shared}, state[JOINED])
        return upload, kept | {_ALPHA: params[_ALPHA].clamp(0.0, 1.0)}, losses

    def mixed_gradients(self):
        """Of the loss at w in w, and of that at the mixture in v and α."""
        inner = self.gradients()

        def gradients(params, constants, batch):
            own = {n.removeprefix(_OWN): p for n, p in params.items() if n.startswith(_OWN)}
            shared = {name: params[name] for name in own}
            alpha = params[_ALPHA]
            _, grads = inner(shared, constants, batch)
            loss, to_mixture = inner(self.mixture(shared, own, alpha), constants, batch)
            for name, grad in to_mixture.items():
                grads[f"{_OWN}{name}"] = _scaled(grad, alpha)
            if self.adaptive:
                slope = sum(_product(own[n] - shared[n], g) for n, g in to_mixture.items())
                grads[_ALPHA] = self._within_bounds(alpha, slope)
            return loss, grads

        return gradients

    def _within_bounds(self, alpha, slope):
        """The gradient that leads the engine to the projection of α - η slope onto [0, 1]."""
        target = (alpha - self.lr * slope).clamp(0.0, 1.0)
        return (alpha - target) / self.lr - self.weight_decay * alpha

    def mixture(self, shared, own, alpha):
        """α v + (1 - α) w; running statistics are those of v, which meets the mixture's rows."""
        mixed = dict(own)
        for name in own.keys() - self.network.buffers:
            share = alpha.view(*alpha.shape, *[1] * (own[name].ndim - alpha.ndim))
            mixed[name] = shared[name] + share * (own[name] - shared[name])
        return mixed

    def personal_parameters(self, rows, shared, state, n_round):
        """v and α."""
        own = {f"{_OWN}{name}": tensor for name, tensor in own_or(state, shared).items()}
        return own | {_ALPHA: state[_ALPHA]}

    def compose(self, shared, own):
        """The mixture with the last global model."""
        if not own:
            return shared
        own = {name: tensor.to(self.device) for name, tensor in own.items()}
        alpha = own.pop(_ALPHA)
        own = {name.removeprefix(_OWN): tensor for name, tensor in own.items()}
        return self.mixture(shared, own, alpha)


def _scaled(grad, factor):
    """A gradient times a number for each client."""
    if isinstance(grad, Outer):
        return Outer(grad.left * factor[:, None, None], grad.right)
    return grad * factor.view(-1, *[1] * (grad.ndim - 1))


def _product(direction, grad):
    """Scalar product of a direction with a gradient, for each client."""
    if isinstance(grad, Outer):
        return (torch.bmm(grad.right, direction.mT) * grad.left).sum((1, 2))
    return (direction * grad).flatten(1).sum(1)


class APFLClassifier(GradientClassifier):
    """APFL: a client's model is α_k v_k + (1 - α_k) w, with w the global model and v_k its own.

    In each step, with one batch and step size η = ``lr``, a client moves all three:

        w ← w - η ∇f_k(w),   v_k ← v_k - η α_k ∇f_k(m),   α_k ← α_k - η <v_k - w, ∇f_k(m)>,

    with m = α_k v_k + (1 - α_k) w before the step, and α_k kept within [0, 1]. Of w the server
    takes the mean, participants counting alike; v_k and α_k stay with the client. v_k starts as the
    global model of the client's first round, and so a client that has been in no cohort has the
    global model. ``loss_curve_`` is that of m.

    Parameters
    ----------
    alpha : float, default=0.5
        Share α_k of the own model to start with, in [0, 1].
    adaptive : bool, default=True
        Whether α_k is learnt. Without, ``alpha=0`` is FedAvg with equal weights, and ``alpha=1``
        lets each client learn alone.
    %(parameters)s

    Attributes
    ----------
    alpha_ : ndarray of shape (K,)
        Each client's α_k.
    %(attributes)s

    See Also
    --------
    DittoClassifier : A model of the client's own near the global one, in place of a mixture.

    References
    ----------
    Deng, Kamani, Mahdavi, "Adaptive Personalized Federated Learning", 2020.

    Examples
    --------
    >>> from skfedhip import APFLClassifier
    >>> from skfedhip.datasets import make_federated_classification
    >>> X, y, groups = make_federated_classification(random_state=0)
    >>> clf = APFLClassifier(n_rounds=5, lr=0.05, random_state=0).fit(X, y, groups=groups)
    >>> clf.alpha_.shape
    (20,)
    """

    _parameter_constraints = {
        **GradientClassifier._parameter_constraints,
        "alpha": [Interval(Real, 0, 1, closed="both")],
        "adaptive": ["boolean"],
    }

    def __init__(self, alpha=0.5, *, adaptive=True, **shared):
        super().__init__(**shared)
        self.alpha = alpha
        self.adaptive = adaptive

    @property
    def alpha_(self):
        """Share of its own model in each client's."""
        return self.personal_params_[_ALPHA]

    def _method(self, **common):
        return APFL(alpha=float(self.alpha), adaptive=self.adaptive, **common)
