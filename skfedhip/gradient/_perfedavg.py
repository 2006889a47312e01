"""Per-FedAvg: one model that is good after a step of each client's own, first order."""

from dataclasses import dataclass
from numbers import Real

import torch
from sklearn.utils._param_validation import Interval

from ._classifier import GradientClassifier
from ._engine import Batch, Descent, Schedule, train
from ._method import GradientMethod


@dataclass(frozen=True, kw_only=True)
class PerFedAvg(GradientMethod):
    """FedAvg whose steps take their gradient where a step on other rows leads to."""

    inner_lr: float

    alike = True

    def local(self, rows, shared, state, n_round):
        """FedAvg's round with these steps."""
        params, losses = self.train(rows, shared, self.meta_gradients())
        return params, state, losses

    def meta_gradients(self):
        """The gradient of the second half of a batch, after a step on the first."""
        inner, step = self.gradients(), Descent(self.inner_lr)

        def gradients(params, constants, batch):
            first, second = halves(batch)
            _, grads = inner(params, constants, first)
            there = {name: p.clone() if name in grads else p for name, p in params.items()}
            step.step(there, grads, {})
            return inner(there, constants, second)

        return gradients

    def personal_parameters(self, rows, shared, state, n_round):
        """The global model after one step along the gradient of all of a client's rows."""
        schedule = Schedule(1, self.batch_size, shuffle=False)
        share = torch.from_numpy(1 / rows.counts).to(rows.x.device, self.dtype)[:, None]
        fixed = {n: p for n, p in shared.items() if n not in self.network.buffers}
        constants = {**fixed, "share": share}
        descent = Descent(self.inner_lr)
        return train(rows, shared, self.summed_gradients(), schedule, descent, constants)[0]

    def summed_gradients(self):
        """Each row's share of the gradient at ``constants``, so that all batches make one step."""
        inner = self.gradients()

        def gradients(params, constants, batch):
            weight = (batch.weight > 0) * constants["share"]
            return inner({**params, **constants}, {}, batch._replace(weight=weight))

        return gradients


def halves(batch):
    """Every other row of a batch, and the rest; a client's only row is in both."""
    if batch.x.shape[1] == 1:
        return batch, batch
    alone = batch.weight[:, 0] == 1
    first = [each[:, 0::2] for each in batch[:3]]
    rest = [each[:, 1::2].clone() for each in batch[:3]]
    for half, whole in zip(rest, batch[:3], strict=True):
        half[alone, 0] = whole[alone, 0]
    return tuple(Batch(x, y, w / w.sum(1, keepdim=True), None) for x, y, w in (first, rest))


class PerFedAvgClassifier(GradientClassifier):
    """Per-FedAvg: finds one model w from which a single step of a client's own leads far.

    The loss is Σ_k f_k(w - α ∇f_k(w)) / K. In its first-order form a client moves w, in each step,
    by

        w ← w - β ∇f_k(w - α ∇f_k(w; D); D'),

    β being ``lr`` and D, D' the two halves of the step's rows (of a single row both); the second
    derivatives of f_k are left out. The server averages, participants counting alike. A client's
    model is w - α ∇f_k(w), with the gradient of all its rows; so has every client one, whether it
    was in a cohort or not. Unknown clients have w, which is meant to be adapted and not to answer.

    Parameters
    ----------
    inner_lr : float, default=0.05
        Step size α of the adaptation, >= 0.
    %(parameters)s

    Attributes
    ----------
    %(attributes)s

    See Also
    --------
    FedAvgClassifier : With ``fine_tune_epochs``, adapts a model that was not trained for it.

    Notes
    -----
    ``batch_size`` rows make D and D' together. ``weight_decay`` acts on w, in the outer step.

    References
    ----------
    Fallah, Mokhtari, Ozdaglar, "Personalized Federated Learning with Theoretical Guarantees: A
    Model-Agnostic Meta-Learning Approach", NeurIPS 2020; its variant FO.

    Examples
    --------
    >>> from skfedhip import PerFedAvgClassifier
    >>> from skfedhip.datasets import make_federated_classification
    >>> X, y, groups = make_federated_classification(random_state=0)
    >>> clf = PerFedAvgClassifier(n_rounds=5, lr=0.05, random_state=0).fit(X, y, groups=groups)
    >>> clf.predict(X[:3], groups=groups[:3]).shape
    (3,)
    """

    _parameter_constraints = {
        **GradientClassifier._parameter_constraints,
        "inner_lr": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(self, inner_lr=0.05, **shared):
        super().__init__(**shared)
        self.inner_lr = inner_lr

    def _method(self, **common):
        return PerFedAvg(inner_lr=float(self.inner_lr), **common)
