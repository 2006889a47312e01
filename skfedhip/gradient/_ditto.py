"""Ditto: beside FedAvg each client trains a model of its own, near the global one."""

from dataclasses import dataclass
from numbers import Integral, Real

from sklearn.utils._param_validation import Interval

from ._classifier import GradientClassifier
from ._method import GradientMethod, pulled_to
from ._own import JOINED, own_or, trained, untrained


@dataclass(frozen=True, kw_only=True)
class Ditto(GradientMethod):
    """FedAvg, and training of a personal model v with λ/2 ‖v - w_t‖² added to its loss."""

    lam: float
    personal_epochs: int

    def new_state(self, parameters):
        """The personal model starts as the global one of a client's first round."""
        return untrained(parameters)

    def local(self, rows, shared, state, n_round):
        """The global model is trained and sent up; the personal one is trained and kept."""
        upload, _ = self.train(rows, shared, self.gradients())
        near = pulled_to(shared, self.lam, self.weight_decay)
        epochs = self.personal_epochs
        own, losses = self.train(
            rows, own_or(state, shared), self.gradients(), epochs=epochs, **near
        )
        return upload, trained(own, state[JOINED]), losses

    def personal_parameters(self, rows, shared, state, n_round):
        """The personal model in place of the global one."""
        return own_or(state, shared)


class DittoClassifier(GradientClassifier):
    """Ditto: FedAvg, and for each client a model v of its own that is kept near the global one.

    In each round a client first trains the global model w_t, which the server averages, then v,
    with λ/2 ‖v - w_t‖² added to its loss. v starts as the global model of the client's first round,
    and so a client that has been in no cohort has the global model. ``loss_curve_`` is of the
    personal models.

    Parameters
    ----------
    lam : float, default=0.1
        Weight λ of the proximal term, >= 0. With 0 clients learn alone.
    personal_epochs : int, default=1
        Passes over a client's rows for v; ``local_epochs`` are those for the global model.
    %(parameters)s

    Attributes
    ----------
    %(attributes)s

    See Also
    --------
    FedSLRClassifier : A sparse correction in place of a second model.

    References
    ----------
    Li, Hu, Beirami, Smith, "Ditto: Fair and Robust Federated Learning Through Personalization",
    ICML 2021.

    Examples
    --------
    >>> from skfedhip import DittoClassifier
    >>> from skfedhip.datasets import make_federated_classification
    >>> X, y, groups = make_federated_classification(random_state=0)
    >>> clf = DittoClassifier(n_rounds=5, lr=0.05, random_state=0).fit(X, y, groups=groups)
    >>> clf.personal_params_["extractor.0.weight"].shape
    (20, 512, 20)
    """

    _parameter_constraints = {
        **GradientClassifier._parameter_constraints,
        "lam": [Interval(Real, 0, None, closed="left")],
        "personal_epochs": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(self, lam=0.1, *, personal_epochs=1, **shared):
        super().__init__(**shared)
        self.lam = lam
        self.personal_epochs = personal_epochs

    def _method(self, **common):
        return Ditto(lam=float(self.lam), personal_epochs=self.personal_epochs, **common)
