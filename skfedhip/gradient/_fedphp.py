"""FedPHP: each client keeps a moving average of its models, from which the next one learns."""

from dataclasses import dataclass
from numbers import Integral, Real

import torch
from sklearn.utils._param_validation import Interval, StrOptions

from ._classifier import GradientClassifier
from ._functional import MeanDiscrepancy, linear, linear_gradients, softmax_loss
from ._method import GradientMethod
from ._own import JOINED, own_or, trained, untrained

_TEMPERATURE = 4.0
"""By which the scores of the private model are divided where they are taught."""


@dataclass(frozen=True, kw_only=True)
class FedPHP(GradientMethod):
    """FedAvg whose clients learn from their private model, and then move it on."""

    lam: float
    mu: float
    ramp: int
    transfer: str

    def new_state(self, parameters):
        """The private model starts as the global one of a client's first round."""
        return untrained(parameters)

    def local(self, rows, shared, state, n_round):
        """FedAvg's round with the transfer; the private model inherits what came of it."""
        private = own_or(state, shared)
        params, losses = self.train(rows, shared, self.transfer_gradients(rows), constants=private)
        mu = self.mu * (state[JOINED].to(self.dtype) / self.ramp).clamp(max=1.0)
        kept = dict(params)
        for name, tensor in params.items():
            if tensor.is_floating_point():
                share = mu.view(-1, *[1] * (tensor.ndim - 1))
                kept[name] = tensor + share * (private[name] - tensor)
        return params, trained(kept, state[JOINED]), losses

    def transfer_gradients(self, rows):
        """(1 - λ) times cross-entropy and λ times the distance to the private model's answers."""
        mapper, still = (self.network.mapper(training=on) for on in (True, False))
        discrepancy = MeanDiscrepancy(rows.x)

        def gradients(params, constants, batch):
            h, pullback = mapper(params, batch.x)
            head = params["head.weight"]
            logits = linear(h, head, params["head.bias"])
            loss, grad = softmax_loss(logits, batch.y, batch.weight)
            frozen, _ = still(constants, batch.x)
            if self.transfer == "mmd":
                distance, to_h = discrepancy(h, frozen, batch.weight)
                grad *= 1 - self.lam
                to_h = self.lam * to_h + torch.bmm(grad, head)
            else:
                teacher = linear(frozen, constants["head.weight"], constants["head.bias"])
                distance, slope = _distillation(logits, teacher, batch.weight)
                grad = (1 - self.lam) * grad + self.lam * slope
                to_h = torch.bmm(grad, head)
            loss = (1 - self.lam) * loss + self.lam * distance
            return loss, linear_gradients("head", grad, h) | pullback(to_h)

        return gradients

    def personal_parameters(self, rows, shared, state, n_round):
        """The private model."""
        return own_or(state, shared)


def _distillation(logits, teacher, weight):
    """Cross-entropy to a teacher's softened answers, and its gradient in the logits."""
    target = (teacher / _TEMPERATURE).softmax(-1)
    log_p = logits.log_softmax(-1)
    loss = -((target * log_p).sum(-1) * weight).sum(1)
    return loss, (log_p.exp() - target) * weight[..., None]


class FedPHPClassifier(GradientClassifier):
    """FedPHP: each client's model is a moving average of what it trained, and teaches the next one.

    In a round client k trains the global model w by (1 - λ) times cross-entropy plus λ times a
    distance between its answers and those of the private model p_k. Then w, as it came out, is sent
    up, the server averages, weighted by rows, and

        p_k ← μ_k p_k + (1 - μ_k) w,   μ_k = μ min(1, t_k / T),

    t_k being the rounds that k was in before and T ``ramp``, so that early models are soon
    forgotten and late ones inherited. p_k starts as the global model of the client's first round; a
    client that has been in no cohort has the global model.

    Parameters
    ----------
    lam : float, default=0.1
        Weight λ of the transfer, in [0, 1). With 0 the global model is FedAvg's.
    mu : float, default=0.9
        Share μ of the private model that is inherited in the end, in [0, 1). With 0 a client has
        the model that it trained last.
    ramp : int, default=20
        Rounds T of a client's own until then. The paper takes all that it may expect; with a number
        a run that goes on is the same as a longer one.
    transfer : {"mmd", "kd"}, default="mmd"
        The distance: the squared maximum mean discrepancy of a batch's features, with kernels as in
        :class:`FedCPClassifier`, or distillation, the cross-entropy to the private model's
        probabilities at temperature 4.
    %(parameters)s

    Attributes
    ----------
    %(attributes)s

    See Also
    --------
    DittoClassifier : A second model that is trained, in place of an average.

    References
    ----------
    Li, Zhan, Shao, Li, Song, "FedPHP: Federated Personalization with Inherited Private Models",
    ECML PKDD 2021.

    Examples
    --------
    >>> from skfedhip import FedPHPClassifier
    >>> from skfedhip.datasets import make_federated_classification
    >>> X, y, groups = make_federated_classification(random_state=0)
    >>> clf = FedPHPClassifier(n_rounds=5, lr=0.05, random_state=0).fit(X, y, groups=groups)
    >>> clf.personal_params_["head.weight"].shape
    (20, 5, 512)
    """

    _parameter_constraints = {
        **GradientClassifier._parameter_constraints,
        "lam": [Interval(Real, 0, 1, closed="left")],
        "mu": [Interval(Real, 0, 1, closed="left")],
        "ramp": [Interval(Integral, 1, None, closed="left")],
        "transfer": [StrOptions({"mmd", "kd"})],
    }

    def __init__(self, lam=0.1, *, mu=0.9, ramp=20, transfer="mmd", **shared):
        super().__init__(**shared)
        self.lam = lam
        self.mu = mu
        self.ramp = ramp
        self.transfer = transfer

    def _method(self, **common):
        return FedPHP(
            lam=float(self.lam),
            mu=float(self.mu),
            ramp=self.ramp,
            transfer=self.transfer,
            **common,
        )
