"""SCAFFOLD: clients step along gradients that control variates correct for their drift."""

from dataclasses import dataclass, field, replace
from numbers import Real

import numpy as np
import torch
from sklearn.utils._param_validation import Interval

from ._classifier import GradientClassifier
from ._method import GradientMethod, ModelBroadcast
from ._steps import towards

_CONTROL = "control."


@dataclass(frozen=True)
class ControlBroadcast(ModelBroadcast):
    """The shared parameters, and the mean of all clients' control variates."""

    controls: dict = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SCAFFOLD(GradientMethod):
    """Steps along g - c_k + c; after the round c_k is the mean gradient that the client met."""

    server_lr: float

    alike = True
    summed = (_CONTROL,)

    def new_state(self, parameters):
        """c_k starts at zero."""
        trained = {n: p for n, p in parameters.items() if n not in self.network.buffers}
        return {f"{_CONTROL}{name}": np.zeros_like(array) for name, array in trained.items()}

    def new_server_state(self, broadcast):
        """The server remembers c, the mean of all c_k."""
        memory = self.new_state(broadcast.parameters)
        return replace(super().new_server_state(broadcast), memory=memory)

    def message(self, broadcast, server_state):
        """With c."""
        return ControlBroadcast(broadcast.parameters, broadcast.n_round, server_state.memory)

    def received(self, broadcast, client_ids):
        """The shared parameters and c."""
        return self.on_device({**broadcast.parameters, **broadcast.controls}, one=True)

    def local(self, rows, shared, state, n_round):
        """The trained parameters and the change of c_k are sent up, c_k is kept."""
        shift = {n.removeprefix(_CONTROL): own - shared[n] for n, own in state.items()}
        start = {name: p for name, p in shared.items() if name not in state}
        params, losses = self.train(rows, start, self.gradients(), pull=shift)
        steps = torch.from_numpy(self.schedule().n_steps(rows.counts)).to(rows.x.device, self.dtype)
        kept, changes = {}, {}
        for name, own in shift.items():
            length = self.lr * steps.view(-1, *[1] * (own.ndim - 1))
            control = own + (shared[name] - params[name]) / length
            kept[f"{_CONTROL}{name}"] = control
            changes[f"{_CONTROL}{name}"] = control - state[f"{_CONTROL}{name}"]
        return {**params, **changes}, kept, losses

    def personal_parameters(self, rows, shared, state, n_round):
        """Nothing: all have the global model."""
        return {}

    def aggregate_means(self, means, weight, broadcast, server_state):
        """The server's steps: of the model towards the mean, of c by the cohort's share of all."""
        share = weight / len(self.roster)
        memory = {n: (c + share * means[n]).astype(c.dtype) for n, c in server_state.memory.items()}
        old, statistics = broadcast.parameters, self.network.buffers
        return towards(means, old, self.server_lr, statistics), memory


class SCAFFOLDClassifier(GradientClassifier):
    """SCAFFOLD: FedAvg whose clients are kept from drifting to optima of their own.

    Client k starts at the global model x and, with step size η = ``lr``, makes K_k steps

        y ← y - η (g(y) - c_k + c),

    g(y) being the gradient of a batch, with control variates c_k of its own and c of all. Then
    (option II) c_k becomes c_k - c + (x - y) / (K_k η), the mean of the gradients it met, and y and
    the change of c_k go up. The server moves x by ``server_lr`` times the mean of y - x, and c by
    1/N times the sum of the changes, N being all clients, in the cohort or not; participants count
    alike. All clients have the global model, and messages are twice as long as FedAvg's.

    Parameters
    ----------
    server_lr : float, default=1.0
        Step size of the server, > 0. The first round with 1 is FedAvg's with equal weights.
    %(parameters)s

    Attributes
    ----------
    %(attributes)s

    See Also
    --------
    FedProxClassifier : Holds clients back by their distance from the global model.

    Notes
    -----
    ``weight_decay`` is part of the gradient, and so of the control variates.

    References
    ----------
    Karimireddy, Kale, Mohri, Reddi, Stich, Suresh, "SCAFFOLD: Stochastic Controlled Averaging for
    Federated Learning", ICML 2020.

    Examples
    --------
    >>> from skfedhip import SCAFFOLDClassifier
    >>> from skfedhip.datasets import make_federated_classification
    >>> X, y, groups = make_federated_classification(random_state=0)
    >>> clf = SCAFFOLDClassifier(n_rounds=5, lr=0.05, random_state=0).fit(X, y, groups=groups)
    >>> clf.predict(X[:3], groups=groups[:3]).shape
    (3,)
    """

    _parameter_constraints = {
        **GradientClassifier._parameter_constraints,
        "server_lr": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(self, server_lr=1.0, **shared):
        super().__init__(**shared)
        self.server_lr = server_lr

    def _method(self, **common):
        return SCAFFOLD(server_lr=float(self.server_lr), **common)
