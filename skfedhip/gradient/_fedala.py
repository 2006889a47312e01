"""FedALA: a client's head starts each round as a mixture, learnt by it, of the old and the new."""

from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
import torch
from sklearn.utils._param_validation import Interval

from ._classifier import GradientClassifier
from ._engine import Rows
from ._functional import Outer, linear, softmax_loss
from ._method import GradientMethod

_MIX = ("head.weight", "head.bias")


@dataclass(frozen=True, kw_only=True)
class FedALA(GradientMethod):
    """A head is local + (global - local) ⊙ M, elementwise, with M in [0, 1] trained on own rows."""

    mix_lr: float
    mix_fraction: float
    mix_epochs: int

    def new_state(self, parameters):
        """The client's head is the global one, and M is one."""
        head = {f"own_{name}": parameters[name] for name in _MIX}
        return head | {f"mix_{name}": np.ones_like(parameters[name]) for name in _MIX}

    def local(self, rows, shared, state, n_round):
        """FedAvg's round from the mixed head; the client keeps the trained head and M."""
        head, mix = self.mixed(rows, shared, state, n_round)
        params, losses = self.train(rows, {**shared, **head}, self.gradients())
        own = {f"own_{name}": params[name] for name in _MIX}
        return params, own | mix, losses

    def personal_parameters(self, rows, shared, state, n_round):
        """The head mixed anew."""
        return self.mixed(rows, shared, state, n_round)[0]

    def mixed(self, rows, shared, state, n_round):
        """The head to start from, and M (with its prefix), trained unless the heads are equal."""
        constants = {f"own_{name}": state[f"own_{name}"] for name in _MIX}
        constants |= {f"gap_{name}": shared[name] - state[f"own_{name}"] for name in _MIX}
        mix = {f"mix_{name}": state[f"mix_{name}"] for name in _MIX}
        if any(constants[f"gap_{name}"].any() for name in _MIX):
            sampled = self._sample(rows, shared)
            mix, _ = self.train(
                sampled,
                mix,
                _mix_gradients,
                epochs=self.mix_epochs,
                constants=constants,
                lr=self.mix_lr,
                decay=0.0,
                limits=(0.0, 1.0),
            )
        return _heads(mix, constants), mix

    def _sample(self, rows, shared):
        """Features, by the round's extractor, of a random part of each client's rows."""
        chosen = [
            start + rows.generators[k].permutation(n)[: max(1, round(self.mix_fraction * n))]
            for k, (start, n) in enumerate(zip(rows.offsets[:-1], rows.counts, strict=True))
        ]
        offsets = np.cumsum([0, *map(len, chosen)])
        index = torch.from_numpy(np.concatenate(chosen)).to(rows.x.device)
        h = self.features(self.network.mapper(training=False), shared, rows.x[index])
        return Rows(h, rows.y[index], offsets, rows.generators)


def _heads(mix, constants):
    return {n: constants[f"own_{n}"] + constants[f"gap_{n}"] * mix[f"mix_{n}"] for n in _MIX}


def _mix_gradients(params, constants, batch):
    """Cross-entropy of the mixed head on features, in M."""
    head = _heads(params, constants)
    logits = linear(batch.x, head["head.weight"], head["head.bias"])
    loss, grad = softmax_loss(logits, batch.y, batch.weight)
    to_weight = Outer(grad, batch.x).dense() * constants["gap_head.weight"]
    to_bias = grad.sum(1) * constants["gap_head.bias"]
    return loss, {"mix_head.weight": to_weight, "mix_head.bias": to_bias}


class FedALAClassifier(GradientClassifier):
    """FedALA: before each round a client mixes its head with the global one, element by element.

    The head that a client starts from is θ_k + (θ - θ_k) ⊙ M, θ_k what it had after its last round,
    θ what came down and M its own weights in [0, 1], trained on part of its rows; the feature
    extractor is taken as it came down. Then it trains all of it, as in FedAvg. Its model after the
    last round is the last global one with the head mixed once more.

    Parameters
    ----------
    mix_lr : float, default=1.0
        Step size of the training of M, > 0.
    mix_fraction : float, default=0.8
        Share of a client's rows that M is trained on, in (0, 1], drawn anew each round.
    mix_epochs : int, default=1
        Passes over them.
    %(parameters)s

    Attributes
    ----------
    %(attributes)s

    See Also
    --------
    FedAvgClassifier : With ``fine_tune_epochs``, adapts the last global model alone.

    References
    ----------
    Zhang, Hua, Wang, Song, Xue, Ma, Guan, "FedALA: Adaptive Local Aggregation for Personalized
    Federated Learning", AAAI 2023.

    Examples
    --------
    >>> from skfedhip import FedALAClassifier
    >>> from skfedhip.datasets import make_federated_classification
    >>> X, y, groups = make_federated_classification(random_state=0)
    >>> clf = FedALAClassifier(n_rounds=5, lr=0.05, random_state=0).fit(X, y, groups=groups)
    >>> clf.personal_params_["head.weight"].shape
    (20, 5, 512)
    """

    _parameter_constraints = {
        **GradientClassifier._parameter_constraints,
        "mix_lr": [Interval(Real, 0, None, closed="neither")],
        "mix_fraction": [Interval(Real, 0, 1, closed="right")],
        "mix_epochs": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(self, mix_lr=1.0, *, mix_fraction=0.8, mix_epochs=1, **shared):
        super().__init__(**shared)
        self.mix_lr = mix_lr
        self.mix_fraction = mix_fraction
        self.mix_epochs = mix_epochs

    def _method(self, **common):
        return FedALA(
            mix_lr=float(self.mix_lr),
            mix_fraction=float(self.mix_fraction),
            mix_epochs=self.mix_epochs,
            **common,
        )
