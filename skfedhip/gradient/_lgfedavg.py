"""LG-FedAvg: each client has a feature extractor of its own, and the head is shared."""

from dataclasses import dataclass

from ._classifier import GradientClassifier
from ._part import PartMethod


@dataclass(frozen=True, kw_only=True)
class LGFedAvg(PartMethod):
    """FedAvg whose extractors never come down."""

    personal = ("extractor.",)


class LGFedAvgClassifier(GradientClassifier):
    """LG-FedAvg: clients share a head, and each has a feature extractor of its own.

    Client k's model is h(f_k(x)), and min over h and all f_k of Σ_k n_k/n L_k(h ∘ f_k) is sought as
    in FedAvg: clients train both parts at once, and the server averages the heads h, weighted by
    rows. It also averages the extractors, for clients that nobody knows, but sends them to none; as
    they have drifted apart, that model is a poor one.

    A client that has been in no cohort trains the initial extractor under the last head, for
    ``local_epochs``, before it answers.

    Parameters
    ----------
    %(parameters)s

    Attributes
    ----------
    %(attributes)s

    See Also
    --------
    FedPerClassifier : The other way round: a shared extractor, and heads of one's own.

    References
    ----------
    Liang, Liu, Ziyin, Allen, Auerbach, Brent, Salakhutdinov, Morency, "Think Locally, Act Globally:
    Federated Learning with Local and Global Representations", 2020.

    Examples
    --------
    >>> from skfedhip import LGFedAvgClassifier
    >>> from skfedhip.datasets import make_federated_classification
    >>> X, y, groups = make_federated_classification(random_state=0)
    >>> clf = LGFedAvgClassifier(n_rounds=5, lr=0.05, random_state=0).fit(X, y, groups=groups)
    >>> sorted(clf.personal_params_)
    ['extractor.0.bias', 'extractor.0.weight']
    """

    def __init__(self, **shared):
        super().__init__(**shared)

    def _method(self, **common):
        return LGFedAvg(**common)
