"""AnaPFL with its penalties and λ tuned by exact leave-one-out."""

from dataclasses import dataclass

import numpy as np

from ..core import anapfl_held_out, anapfl_leave_one_out
from ._anapfl import AnaPFL, AnaPFLClassifier
from ._search import GridSearch
from ._tuned import COMMON_CONSTRAINTS, GRID, TunedClassifier


@dataclass(frozen=True)
class AnaPFLSearch(GridSearch):
    """Scores of the whole grid of γ, β and λ, from one eigendecomposition a fold.

    Attributes
    ----------
    streams : AnaPFL
        Makes the features of both streams.
    """

    streams: AnaPFL | None = None

    def default_axis(self, name, statistics):
        """Penalties around the papers' values, λ from 0 to 1."""
        if name == "gamma":
            return statistics.mean_eigenvalue * np.logspace(-6, 0, 7)
        return np.logspace(-2, 3, 6) if name == "beta" else np.linspace(0, 1, 11)

    def design_width(self, n_features):
        """Columns of a design row."""
        return self.streams.design_width(n_features)

    def shared_design(self, block):
        """The primary stream of a block."""
        return self.streams.shared_design(block)

    def tables(self, block, rotation, mean, grid, held_out=None):
        """Sums of scores (K, γ, β, λ, masks, t)."""
        how = (rotation, grid, self.scoring, self.masks)
        if held_out is None:
            return anapfl_leave_one_out(*self._both(block, mean), *how)
        return anapfl_held_out(self._both(block, mean), self._both(held_out, mean), *how)

    def _both(self, block, mean):
        design = self.streams.design(block)
        refinement = np.ascontiguousarray(design.rows[:, -self.streams.n_components :])
        return self.streams.shared_design(design).centered(mean), refinement


class AnaPFLClassifierCV(TunedClassifier, AnaPFLClassifier):
    """AnaPFL with gamma, beta and lam chosen by exact leave-one-out or k-fold scores.

    Every training row is scored by the two streams that never saw it, for the whole grid and
    without refitting; all lams come from one pass. Clients send statistics, then their mean
    scores; rows never leave them.

    Parameters
    ----------
    gammas : array-like of shape (n_gammas,), default=None
        Values of gamma to try, each >= 0. By default 1e-6 to 1 times the mean eigenvalue of the
        federation's Gram matrix, one a decade.
    betas : array-like of shape (n_betas,), default=None
        Values of beta to try, each >= 0. By default 0.01 to 1,000, one a decade.
    lams : array-like of shape (n_lams,), default=None
        Values of lam to try, each >= 0. By default 0 to 1 in steps of 0.1.
    n_components : int, default=1024
        Random features q of each stream.
    scoring : {"accuracy", "neg_log_loss", "neg_mean_squared_error"}, default="accuracy"
        What to maximise. The log-loss is taken at its best temperature, the squared error over
        one-hot labels and never restricted to a client's own classes.
    average : {"macro", "weighted"}, default="macro"
        Mean over clients, or over rows.
    cv : int, splitter or iterable of splits, default=None
        None for exact leave-one-out; an int for that many folds within each client
        (:class:`skfedhip.model_selection.ClientKFold`); or a splitter.
    local_classes_only : "auto" or bool, default="auto"
        Whether a client's rows may only be given classes that it had at fit; "auto" tries both.
        Their scores are -inf then, which CalibratedClassifierCV, for one, can't take.
    store_cv_results : bool, default=False
        Whether to keep every client's scores.
    activation : {"tanh", "relu", "gelu"} or callable, default="tanh"
        Nonlinearity, from an array of shape (n, q) to one of the same shape.
    shared_refinement : bool, default=False
        Whether one refinement map serves all clients.
    random_state : int, RandomState instance or None, default=None
        Seed of the random features; pass an int for the same features in every fit.
    fit_intercept : bool, default=False
        Whether to fit an unpenalised intercept in the primary stream.
    class_weight : dict or "balanced", default=None
        Weights of classes in fitting, {label: weight}; they don't count in the scores.
    group_column : int or str, default=None
        Column of X that holds the client ids and is not a feature.
    missing_groups : {"warn", "error", "global"}, default="warn"
        What happens when client ids are missing altogether or all unknown.
    retain_statistics : bool, default=False
        Whether to keep what ``partial_fit`` and ``forget_clients`` need later; they go on with
        what was chosen.
    n_jobs : int, default=None
        Blocks of clients that are worked on at the same time.

    Attributes
    ----------
    gamma_, beta_, lam_ : float
        The best of the grid; among equals, the larger gamma, the larger beta, the smaller lam.
    gammas_, betas_, lams_ : ndarray
        The grid, ascending.
    local_classes_only_ : bool
        What was chosen or asked for.
    best_score_ : float
        Score of the best.
    cv_results_ : dict
        As in FedHiPClassifierCV.
    client_cv_scores_ : ndarray of shape (K, n_gammas, n_betas, n_lams)
        Each client's mean scores; with ``store_cv_results``.
    search_temperature_ : float
        The temperature at which the best log-loss was found; with ``scoring="neg_log_loss"``.
    temperature_ : float
        What scores are divided by before the softmax.
    classes_, clients_, coef_, intercept_, personal_coef_, personal_intercept_
        As in AnaPFLClassifier.
    bytes_up_, bytes_down_ : ndarray of shape (K,)
        What each client has sent and received in all rounds, in the order of ``clients_``.
    n_features_in_ : int
        Columns of X at fit.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Column names of X at fit, where it had any.

    Warns
    -----
    GridEdgeWarning
        If the best value of a penalty lies at an edge of its grid, other than 0.

    See Also
    --------
    AnaPFLClassifier : With given penalties.

    Examples
    --------
    >>> from skfedhip import AnaPFLClassifierCV
    >>> from skfedhip.datasets import make_federated_classification
    >>> X, y, groups = make_federated_classification(n_samples=600, random_state=0)
    >>> clf = AnaPFLClassifierCV([0.1, 1, 10], [0.1, 1, 10], n_components=64, random_state=0)
    >>> clf = clf.fit(X, y, groups=groups)
    >>> len(clf.cv_results_["params"])
    99
    """

    _parameter_constraints = {
        **AnaPFLClassifier._parameter_constraints,
        **COMMON_CONSTRAINTS,
        "gammas": GRID,
        "betas": GRID,
        "lams": GRID,
    }
    for _name in ("gamma", "beta", "lam", "privacy"):
        _parameter_constraints.pop(_name)
    _axes = ("gamma", "beta", "lam")
    _highest = {"lam": 1.0}

    def __init__(
        self,
        gammas=None,
        betas=None,
        lams=None,
        n_components=1024,
        *,
        scoring="accuracy",
        average="macro",
        cv=None,
        local_classes_only="auto",
        store_cv_results=False,
        activation="tanh",
        shared_refinement=False,
        random_state=None,
        fit_intercept=False,
        class_weight=None,
        group_column=None,
        missing_groups="warn",
        retain_statistics=False,
        n_jobs=None,
    ):
        self.gammas = gammas
        self.betas = betas
        self.lams = lams
        self.n_components = n_components
        self.scoring = scoring
        self.average = average
        self.cv = cv
        self.local_classes_only = local_classes_only
        self.store_cv_results = store_cv_results
        self.activation = activation
        self.shared_refinement = shared_refinement
        self.random_state = random_state
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.group_column = group_column
        self.missing_groups = missing_groups
        self.retain_statistics = retain_statistics
        self.n_jobs = n_jobs

    def _search(self, **how):
        return AnaPFLSearch(streams=self._method(), **how)

    def _penalties(self):
        return tuple(getattr(self, f"{name}_", 1.0) for name in self._axes)
