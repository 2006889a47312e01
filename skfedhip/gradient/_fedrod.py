"""FedRoD: a generic head that class balance does not sway, and a personal one on top of it."""

from dataclasses import dataclass
from numbers import Real

import numpy as np
import torch
from sklearn.utils._param_validation import Interval

from ._classifier import GradientClassifier
from ._functional import linear, linear_gradients, softmax_loss
from ._method import GradientMethod

_HEAD = "personal_head"


@dataclass(frozen=True, kw_only=True)
class FedRoD(GradientMethod):
    """Extractor and generic head by balanced softmax; the personal head by plain cross-entropy."""

    gamma: float

    personal = (f"{_HEAD}.",)

    def new_state(self, parameters):
        """The personal head is zero, so that a client starts with the generic model."""
        heads = {n: p for n, p in parameters.items() if n.startswith("head.")}
        return {f"personal_{name}": np.zeros_like(array) for name, array in heads.items()}

    def local(self, rows, shared, state, n_round):
        """All parts at once; all but the personal head is sent up."""
        constants = {"prior": self.log_prior(rows)}
        start = {**shared, **state}
        params, losses = self.train(rows, start, self.both_gradients(), constants=constants)
        return self.shared_of(params), self.of_personal(params), losses

    def log_prior(self, rows):
        """γ log n_kc, shape (K, 1, d), as good as -∞ for a class that a client has not got."""
        n_classes = self.network.n_classes
        clients = torch.arange(len(rows.counts)).repeat_interleave(torch.from_numpy(rows.counts))
        cells = clients.to(rows.y.device) * n_classes + rows.y
        counts = torch.bincount(cells, minlength=len(rows.counts) * n_classes)
        counts = counts.view(-1, 1, n_classes).to(self.dtype)
        # A finite number: rows that only fill up a batch, of such a class too, have weight 0.
        none = torch.finfo(self.dtype).min / 4 if self.gamma else 0.0
        return torch.where(counts > 0, self.gamma * counts.log(), none)

    def both_gradients(self):
        """Balanced softmax in extractor and head, cross-entropy of both heads in the personal."""
        mapper = self.network.mapper(training=True)

        def gradients(params, constants, batch):
            h, pullback = mapper(params, batch.x)
            head = params["head.weight"]
            generic = linear(h, head, params["head.bias"])
            logits = generic + linear(h, params[f"{_HEAD}.weight"], params[f"{_HEAD}.bias"])
            loss, to_personal = softmax_loss(logits, batch.y, batch.weight)
            _, grad = softmax_loss(generic + constants["prior"], batch.y, batch.weight)
            grads = linear_gradients(_HEAD, to_personal, h) | linear_gradients("head", grad, h)
            return loss, grads | pullback(torch.bmm(grad, head))

        return gradients

    def logits(self, mapper, params, x):
        """The generic head's, and the personal one's on top, where there is one."""
        h, _ = mapper(params, x)
        logits = linear(h, params["head.weight"], params["head.bias"])
        if f"{_HEAD}.weight" in params:
            logits += linear(h, params[f"{_HEAD}.weight"], params[f"{_HEAD}.bias"])
        return logits


class FedRoDClassifier(GradientClassifier):
    """FedRoD: a generic model trained by balanced softmax, and a personal head on top of it.

    Scores of client k are g(h) + p_k(h), g the generic head and h the features. Extractor and g are
    trained as if client k had all classes alike, by

        -log( n_ky^γ exp g_y(h) / Σ_c n_kc^γ exp g_c(h) ),

    n_kc being its rows of class c, and averaged by the server, weighted by rows. In the same steps
    p_k is trained by the cross-entropy of g(h) + p_k(h), which moves neither g nor h, and stays
    with the client. ``loss_curve_`` is of the latter.

    Unknown clients are scored by the generic model; p_k starts at zero, so those that have been in
    no cohort are too.

    Parameters
    ----------
    gamma : float, default=1.0
        Exponent γ of the class counts, >= 0. With 0 the generic model is FedAvg's.
    %(parameters)s

    Attributes
    ----------
    %(attributes)s

    See Also
    --------
    FedPerClassifier : A personal head in the place of the generic one.
    FedCPClassifier : Two heads between which the features are split.

    References
    ----------
    Chen, Chao, "On Bridging Generic and Personalized Federated Learning for Image Classification",
    ICLR 2022; its variant with linear personal heads.

    Examples
    --------
    >>> from skfedhip import FedRoDClassifier
    >>> from skfedhip.datasets import make_federated_classification
    >>> X, y, groups = make_federated_classification(random_state=0)
    >>> clf = FedRoDClassifier(n_rounds=5, lr=0.05, random_state=0).fit(X, y, groups=groups)
    >>> clf.personal_params_["personal_head.weight"].shape
    (20, 5, 512)
    """

    _parameter_constraints = {
        **GradientClassifier._parameter_constraints,
        "gamma": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(self, gamma=1.0, **shared):
        super().__init__(**shared)
        self.gamma = gamma

    def _method(self, **common):
        return FedRoD(gamma=float(self.gamma), **common)
