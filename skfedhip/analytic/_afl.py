"""AFL: one global ridge, the closed form without personalization."""

from dataclasses import dataclass
from numbers import Real

from sklearn.utils._param_validation import Interval

from ..privacy import GaussianMechanism
from ._classifier import ClosedFormClassifier
from ._method import ClosedFormMethod


@dataclass(frozen=True)
class AFL(ClosedFormMethod):
    """The global ridge G = (A + βI)⁻¹ B for every client."""

    beta: float = 1.0

    def solve_block(self, block, broadcast):
        """Every client's model is the global one."""
        return self.solve_globally(block, broadcast)


class AFLClassifier(ClosedFormClassifier):
    """Analytic federated learning: one global ridge classifier, exact and without gradients.

    Objective over the rows of all clients, Y one-hot: ‖Y - F G‖² + β‖G‖². Each client sends
    FᵀF and FᵀY; their sums give the same G as all rows in one place. There are no personal
    models; with ``local_classes_only`` each client still predicts among its own classes.

    Parameters
    ----------
    beta : float, default=1.0
        Ridge penalty on the sum of squared errors, >= 0. With 0 and a singular system the
        minimum-norm solution is used, with a LinAlgWarning.
    fit_intercept : bool, default=False
        Whether to fit an unpenalised intercept.
    local_classes_only : bool, default=False
        Whether a client's rows may only be given classes that it had at fit: scores of the others
        are -inf, which CalibratedClassifierCV, for one, can't take.
    class_weight : dict or "balanced", default=None
        Weights of classes, {label: weight}; "balanced" uses the class counts of the federation.
    group_column : int or str, default=None
        Column of X that holds the client ids and is not a feature.
    missing_groups : {"warn", "error", "global"}, default="warn"
        What happens when client ids are missing altogether or all unknown.
    retain_statistics : bool, default=False
        Whether ``fit`` keeps what ``partial_fit`` and ``forget_clients`` need later.
    privacy : GaussianMechanism or None, default=None
        What protects the statistics that leave a client (``skfedhip.privacy``). There is no
        temperature then, and weights, streams and forgetting are refused.
    n_jobs : int, default=None
        Blocks of clients that are worked on at the same time.

    Attributes
    ----------
    classes_ : ndarray of shape (d,)
        Class labels.
    clients_ : ndarray of shape (K,)
        Client ids, sorted.
    coef_ : ndarray of shape (d, m), or (1, m) for two classes
        Global coefficients.
    intercept_ : ndarray of shape (d,) or (1,)
        Global intercepts.
    personal_coef_ : ndarray of shape (K, d, m) or (K, 1, m)
        The global coefficients, once a client.
    personal_intercept_ : ndarray of shape (K, d) or (K, 1)
        The global intercepts, once a client.
    temperature_ : float
        What scores are divided by before the softmax of ``predict_proba``: the best for the rows
        of ``fit``, each scored by models that never saw it; 1 where there was no ``fit``.
    bytes_up_, bytes_down_ : ndarray of shape (K,)
        What each client has sent and received, in the order of ``clients_``.
    n_features_in_ : int
        Columns of X at fit.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Column names of X at fit, where it had any.

    See Also
    --------
    FedHiPClassifier : Adds a personal model for each client.
    LocalRidgeClassifier : Shares nothing.

    References
    ----------
    He et al., "AFL: A Single-Round Analytic Approach for Federated Learning with Pre-trained
    Models", CVPR 2025.

    Examples
    --------
    >>> from skfedhip import AFLClassifier
    >>> from skfedhip.datasets import make_federated_classification
    >>> X, y, groups = make_federated_classification(random_state=0)
    >>> clf = AFLClassifier().fit(X, y, groups=groups)
    >>> clf.coef_.shape
    (5, 20)
    """

    _parameter_constraints = {
        **ClosedFormClassifier._parameter_constraints,
        "privacy": [GaussianMechanism, None],
        "beta": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(
        self,
        beta=1.0,
        *,
        fit_intercept=False,
        local_classes_only=False,
        class_weight=None,
        group_column=None,
        missing_groups="warn",
        retain_statistics=False,
        privacy=None,
        n_jobs=None,
    ):
        self.beta = beta
        self.fit_intercept = fit_intercept
        self.local_classes_only = local_classes_only
        self.class_weight = class_weight
        self.group_column = group_column
        self.missing_groups = missing_groups
        self.retain_statistics = retain_statistics
        self.privacy = privacy
        self.n_jobs = n_jobs

    def _method(self):
        return AFL(**self._shared_parameters(), beta=float(self.beta))
