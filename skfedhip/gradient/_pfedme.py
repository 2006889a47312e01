"""pFedMe: a global model whose clients' Moreau envelopes are small, and their minimizers."""

from dataclasses import dataclass
from numbers import Integral, Real

from sklearn.utils._param_validation import Interval

from ._classifier import GradientClassifier
from ._engine import Descent
from ._method import GradientMethod
from ._steps import towards

_THETA = "theta."


@dataclass(frozen=True, kw_only=True)
class PFedMe(GradientMethod):
    """Moves w towards θ(w), the minimum near w that a few steps on a batch find."""

    lam: float
    n_steps: int
    inner_lr: float
    beta: float

    alike = True

    def local(self, rows, shared, state, n_round):
        """w is trained and sent up, with the running statistics of θ's layers."""
        both, losses = self.both(rows, shared)
        met = self.network.buffers
        upload = {name: both[f"{_THETA}{name}" if name in met else name] for name in shared}
        return upload, state, losses

    def personal_parameters(self, rows, shared, state, n_round):
        """θ after a round of the client's own from the last w."""
        both, _ = self.both(rows, shared)
        return {name: both[f"{_THETA}{name}"] for name in shared}

    def both(self, rows, shared):
        """w and θ after a round, and the losses at θ."""
        start = {**shared, **{f"{_THETA}{name}": p for name, p in shared.items()}}
        return self.train(rows, start, self.envelope_gradients(), decay=0.0)

    def envelope_gradients(self):
        """λ (w - θ), the gradient of the batch's Moreau envelope at w."""
        inner = self.gradients()
        near = Descent(self.inner_lr, self.lam + self.weight_decay)

        def gradients(params, constants, batch):
            theta = {n.removeprefix(_THETA): p for n, p in params.items() if n.startswith(_THETA)}
            # θ goes on from the batch before: its steps are made here, where the engine keeps it.
            pull = {n: self.lam * params[n] for n in theta if n not in self.network.buffers}
            for _ in range(self.n_steps):
                loss, grads = inner(theta, constants, batch)
                near.step(theta, grads, pull)
            return loss, {name: self.lam * (params[name] - theta[name]) for name in grads}

        return gradients

    def aggregate_means(self, means, weight, broadcast, server_state):
        """(1 - β) w + β times the mean."""
        old, statistics = broadcast.parameters, self.network.buffers
        return towards(means, old, self.beta, statistics), server_state.memory


class PFedMeClassifier(GradientClassifier):
    """Moreau envelopes (pFedMe): a global model, and for each client its loss's minimum near it.

    The loss is Σ_k F_k(w) / K with the Moreau envelopes F_k(w) = min_θ f_k(θ) + λ/2 ‖θ - w‖², whose
    gradient is λ (w - θ_k(w)), θ_k(w) the minimizer. For each batch a client makes K steps

        θ ← θ - α (∇f_k(θ; batch) + λ (θ - w)),

    α being ``inner_lr``, from where the last batch left θ, and then one of w, with η = ``lr``:

        w ← w - η λ (w - θ).

    The server takes (1 - β) w + β times the mean of what came up, participants counting alike. A
    client's model is its θ after a round of its own from the last w, whether it was in a cohort or
    not; unknown clients have w. ``loss_curve_`` is of θ.

    Parameters
    ----------
    lam : float, default=15.0
        Weight λ of the distance, > 0. Both ``inner_lr`` and ``lr`` times λ must be below 2: each
        step is so many times the way from θ to w, or from w to θ; above it training diverges.
    n_steps : int, default=5
        Steps K of θ for each batch.
    inner_lr : float, default=0.01
        Step size α of θ, > 0.
    beta : float, default=1.0
        Step β of the server, > 0; above 1 it goes beyond the mean.
    %(parameters)s

    Attributes
    ----------
    %(attributes)s

    See Also
    --------
    DittoClassifier : The same distance for a second model, beside a global one that is FedAvg's.

    Notes
    -----
    ``weight_decay`` is part of f_k. For one batch and K = 1, w moves as in FedAvg with the step
    size η λ α.

    References
    ----------
    Dinh, Tran, Nguyen, "Personalized Federated Learning with Moreau Envelopes", NeurIPS 2020.

    Examples
    --------
    >>> from skfedhip import PFedMeClassifier
    >>> from skfedhip.datasets import make_federated_classification
    >>> X, y, groups = make_federated_classification(random_state=0)
    >>> clf = PFedMeClassifier(n_rounds=5, lr=0.05, random_state=0).fit(X, y, groups=groups)
    >>> clf.personal_params_["head.weight"].shape
    (20, 5, 512)
    """

    _parameter_constraints = {
        **GradientClassifier._parameter_constraints,
        "lam": [Interval(Real, 0, None, closed="neither")],
        "n_steps": [Interval(Integral, 1, None, closed="left")],
        "inner_lr": [Interval(Real, 0, None, closed="neither")],
        "beta": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(self, lam=15.0, *, n_steps=5, inner_lr=0.01, beta=1.0, **shared):
        super().__init__(**shared)
        self.lam = lam
        self.n_steps = n_steps
        self.inner_lr = inner_lr
        self.beta = beta

    def _method(self, **common):
        return PFedMe(
            lam=float(self.lam),
            n_steps=self.n_steps,
            inner_lr=float(self.inner_lr),
            beta=float(self.beta),
            **common,
        )
