"""FedPer: the feature extractor is shared, the head stays with each client."""

from dataclasses import dataclass

from ._classifier import GradientClassifier
from ._part import PartMethod


@dataclass(frozen=True, kw_only=True)
class FedPer(PartMethod):
    """FedAvg whose heads never come down."""

    personal = ("head.",)


class FedPerClassifier(GradientClassifier):
    """FedPer: clients share a feature extractor, and each has a head of its own.

    Clients train both at once; the server averages the extractors. It also averages the heads, for
    clients that nobody knows, but sends them to none. A client that has been in no cohort trains
    the initial head on the last extractor, for ``local_epochs``, before it answers.

    Parameters
    ----------
    %(parameters)s

    Attributes
    ----------
    %(attributes)s

    See Also
    --------
    FedRepClassifier : Trains the head before the extractor.
    FedCPClassifier : A personal head beside a global one.

    References
    ----------
    Arivazhagan, Aggarwal, Singh, Choudhary, "Federated Learning with Personalization Layers", 2019.

    Examples
    --------
    >>> from skfedhip import FedPerClassifier
    >>> from skfedhip.datasets import make_federated_classification
    >>> X, y, groups = make_federated_classification(random_state=0)
    >>> clf = FedPerClassifier(n_rounds=5, lr=0.05, random_state=0).fit(X, y, groups=groups)
    >>> clf.personal_params_["head.weight"].shape
    (20, 5, 512)
    """

    def __init__(self, **shared):
        super().__init__(**shared)

    def _method(self, **common):
        return FedPer(**common)
