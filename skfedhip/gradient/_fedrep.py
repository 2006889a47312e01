"""FedRep: each client trains its own head first, then the shared feature extractor."""

from dataclasses import dataclass
from numbers import Integral

from sklearn.utils._param_validation import Interval

from ._classifier import GradientClassifier
from ._part import PartMethod


@dataclass(frozen=True, kw_only=True)
class FedRep(PartMethod):
    """FedPer with the two parts trained one after the other."""

    head_epochs: int

    personal = ("head.",)

    def trained(self, rows, start):
        """The head with the extractor frozen, then the extractor with the head frozen."""
        start = self.with_part_trained(rows, start)
        return self.train(rows, start, self.gradients(("extractor.",)))

    def with_part_trained(self, rows, start):
        """The head alone, for its own number of epochs."""
        return self.train(rows, start, self.gradients(("head.",)), epochs=self.head_epochs)[0]


class FedRepClassifier(GradientClassifier):
    """FedRep: clients share a feature extractor; each trains its head, then the extractor.

    As in FedPer the server averages extractors, and heads for clients that nobody knows alone; a
    client that has been in no cohort trains the initial head before it answers.
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
