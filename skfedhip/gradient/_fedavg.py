"""FedAvg: one model, averaged over the clients, and fine-tuned by each of them if asked to."""

from dataclasses import dataclass
from numbers import Integral

from sklearn.utils._param_validation import Interval

from ._classifier import GradientClassifier
from ._method import GradientMethod


@dataclass(frozen=True, kw_only=True)
class FedAvg(GradientMethod):
    """The base method, with fine-tuning of the last model."""

    fine_tune_epochs: int = 0

    def personal_parameters(self, rows, shared, state, n_round):
        """The global model after some epochs on the client's own rows."""
        if not self.fine_tune_epochs:
            return state
        return self.train(rows, shared, self.gradients(), epochs=self.fine_tune_epochs)[0]


class FedAvgClassifier(GradientClassifier):
    """FedAvg: clients train copies of one model, and the server averages them.

    With ``fine_tune_epochs`` each client then trains the last model on its own rows (FedAvg+FT).

    Parameters
    ----------
    fine_tune_epochs : int, default=0
        Passes over a client's rows after the last round, which make its own model. With 0 all
        clients have the global one.
    %(parameters)s

    Attributes
    ----------
    %(attributes)s

    See Also
    --------
    FedProxClassifier : Keeps the clients' models near the global one.
    DittoClassifier : A second model for each client.

    References
    ----------
    McMahan, Moore, Ramage, Hampson, Agüera y Arcas, "Communication-Efficient Learning of Deep
    Networks from Decentralized Data", AISTATS 2017.

    Examples
    --------
    >>> from skfedhip import FedAvgClassifier
    >>> from skfedhip.datasets import make_federated_classification
    >>> X, y, groups = make_federated_classification(random_state=0)
    >>> clf = FedAvgClassifier(n_rounds=5, lr=0.05, random_state=0).fit(X, y, groups=groups)
    >>> clf.predict(X[:3], groups=groups[:3]).shape
    (3,)
    """

    _parameter_constraints = {
        **GradientClassifier._parameter_constraints,
        "fine_tune_epochs": [Interval(Integral, 0, None, closed="left")],
    }

    def __init__(self, fine_tune_epochs=0, **shared):
        super().__init__(**shared)
        self.fine_tune_epochs = fine_tune_epochs

    def _method(self, **common):
        return FedAvg(fine_tune_epochs=self.fine_tune_epochs, **common)
