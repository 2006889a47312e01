"""FedRep: each client trains its own head first, then the shared feature extractor."""

from dataclasses import dataclass
from numbers import Integral

from sklearn.utils._param_validation import Interval

from ._classifier import GradientClassifier
from ._method import GradientMethod


@dataclass(frozen=True, kw_only=True)
class FedRep(GradientMethod):
    """FedPer with the two parts trained one after the other."""

    head_epochs: int

    personal = ("head.",)

    def local(self, rows, shared, state, n_round):
        """The head with the extractor frozen, then the extractor with the head frozen."""
        start, head_alone = {**shared, **state}, self.gradients(("head.",))
        params, _ = self.train(rows, start, head_alone, epochs=self.head_epochs)
        params, losses = self.train(rows, params, self.gradients(("extractor.",)))
        return params, self.of_personal(params), losses


class FedRepClassifier(GradientClassifier):
    """FedRep: clients share a feature extractor; each trains its head, then the extractor.

    As in FedPer the server averages extractors, and heads for clients that nobody knows alone.
    ``loss_curve_`` is that of the extractor's training.

    Parameters
    ----------
    head_epochs : int, default=5
        Passes over a client's rows for the head; ``local_epochs`` are those for the extractor.
    %(parameters)s

    Attributes
    ----------
    %(attributes)s

    See Also
    --------
    FedPerClassifier : Trains both at once.

    References
    ----------
    Collins, Hassani, Mokhtari, Shakkottai, "Exploiting Shared Representations for Personalized
    Federated Learning", ICML 2021.

    Examples
    --------
    >>> from skfedhip import FedRepClassifier
    >>> from skfedhip.datasets import make_federated_classification
    >>> X, y, groups = make_federated_classification(random_state=0)
    >>> clf = FedRepClassifier(n_rounds=5, lr=0.05, random_state=0).fit(X, y, groups=groups)
    >>> clf.personal_params_["head.weight"].shape
    (20, 5, 512)
    """

    _parameter_constraints = {
        **GradientClassifier._parameter_constraints,
        "head_epochs": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(self, head_epochs=5, **shared):
        super().__init__(**shared)
        self.head_epochs = head_epochs

    def _method(self, **common):
        return FedRep(head_epochs=self.head_epochs, **common)
