"""FedProx: FedAvg with a term that keeps clients near the global model."""

from dataclasses import dataclass
from numbers import Real

from sklearn.utils._param_validation import Interval

from ._classifier import GradientClassifier
from ._method import GradientMethod, pulled_to


@dataclass(frozen=True, kw_only=True)
class FedProx(GradientMethod):
    """Adds μ/2 ‖w - w_t‖² to the local loss."""

    mu: float

    def local(self, rows, shared, state, n_round):
        """FedAvg's round with the proximal term."""
        near = pulled_to(shared, self.mu, self.weight_decay)
        params, losses = self.train(rows, shared, self.gradients(), **near)
        return params, state, losses


class FedProxClassifier(GradientClassifier):
    """FedProx: FedAvg whose clients add μ/2 ‖w - w_t‖² to their loss, w_t the round's model.

    All clients have the global model.

    Parameters
    ----------
    mu : float, default=0.1
        Weight μ of the proximal term, >= 0. With 0 it is FedAvg.
    %(parameters)s

    Attributes
    ----------
    %(attributes)s

    See Also
    --------
    DittoClassifier : The same term for a second model, which stays with the client.

    References
    ----------
    Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, "Federated Optimization in Heterogeneous Networks",
    MLSys 2020.

    Examples
    --------
    >>> from skfedhip import FedProxClassifier
    >>> from skfedhip.datasets import make_federated_classification
    >>> X, y, groups = make_federated_classification(random_state=0)
    >>> clf = FedProxClassifier(n_rounds=5, lr=0.05, random_state=0).fit(X, y, groups=groups)
    >>> clf.predict(X[:3], groups=groups[:3]).shape
    (3,)
    """

    _parameter_constraints = {
        **GradientClassifier._parameter_constraints,
        "mu": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(self, mu=0.1, **shared):
        super().__init__(**shared)
        self.mu = mu

    def _method(self, **common):
        return FedProx(mu=float(self.mu), **common)
