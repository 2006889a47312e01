"""FedHiP with its penalties tuned by exact leave-one-out, for about the price of a few fits."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ..core import PersonalModels, fedhip_held_out, fedhip_leave_one_out
from ._fedhip import FedHiP, FedHiPClassifier
from ._search import GridSearch
from ._tuned import COMMON_CONSTRAINTS, GRID, TunedClassifier


@dataclass(frozen=True)
class FedHiPSearch(GridSearch):
    """Scores of the whole grid of β and α, from one eigendecomposition a fold."""

    def default_axis(self, name, statistics):
        """α from 0 and 0.1 to 10,000; β from 1e-6 to 10 mean eigenvalues of the Gram matrix."""
        if name == "alpha":
            return np.concatenate([[0.0], np.logspace(-1, 4, 11)])
        return statistics.mean_eigenvalue * np.logspace(-6, 1, 15)

    def tables(self, block, rotation, mean, grid, held_out=None):
        """Sums of scores (K, β, α, masks, t)."""
        betas, alphas = grid
        design = self.design(block).centered(mean)
        if held_out is None:
            return fedhip_leave_one_out(design, rotation, alphas, betas, self.scoring, self.masks)
        unseen = self.design(held_out).centered(mean)
        return fedhip_held_out(design, unseen, rotation, alphas, betas, self.scoring, self.masks)


@dataclass(frozen=True)
class FedHiPOfEach(FedHiP):
    """FedHiP in which clients may have an α of their own."""

    client_alpha: dict | None = None

    def to_json(self):
        """The fields, without the clients' own alphas, which the classifier writes."""
        values = super().to_json()
        values.pop("client_alpha")
        return values

    def solve_block(self, block, broadcast):
        """Personal models of the block's clients, those of the same α together."""
        if not self.client_alpha:
            return super().solve_block(block, broadcast)
        ids = block.client_ids.tolist()
        alphas = np.array([self.client_alpha.get(client, self.alpha) for client in ids])
        forms = []
        for alpha in np.unique(alphas):
            shared = replace(self, alpha=float(alpha), client_alpha=None)
            forms.append((alphas == alpha, partial(shared.solve, broadcast=broadcast)))
        return PersonalModels.by_form(block, forms)


class FedHiPClassifierCV(TunedClassifier):
    """FedHiP with alpha and beta chosen by exact leave-one-out or k-fold scores.

    Every training row is scored by the models that never saw it, neither globally nor as one of
    its client's rows, for the whole grid and without refitting: one eigendecomposition of the
    federation's Gram matrix and one of each client's kernel for each beta give all of it. Clients
    send statistics, then their mean scores; rows never leave them.

    Parameters
    ----------
    alphas : array-like of shape (n_alphas,), default=None
        Values of alpha to try, each >= 0. By default 0 and 0.1 to 10,000, two a decade.
    betas : array-like of shape (n_betas,), default=None
        Values of beta to try, each >= 0. By default 1e-6 to 10 times the mean eigenvalue of the
        federation's Gram matrix, two a decade.
    scoring : {"accuracy", "neg_log_loss", "neg_mean_squared_error"}, default="accuracy"
        What to maximise. The log-loss is taken at its best temperature, the squared error over
        one-hot labels and never restricted to a client's own classes.
    average : {"macro", "weighted"}, default="macro"
        Mean over clients, or over rows.
    cv : int, splitter or iterable of splits, default=None
        None for exact leave-one-out; an int for that many folds within each client
        (:class:`skfedhip.model_selection.ClientKFold`); or a splitter.
    alpha_per_client : bool, default=False
        Whether each client takes the alpha that its own scores prefer.
    local_classes_only : "auto" or bool, default="auto"
        Whether a client's rows may only be given classes that it had at fit; "auto" tries both.
        Their scores are -inf then, which CalibratedClassifierCV, for one, can't take.
    store_cv_results : bool, default=False
        Whether to keep every client's scores.
    fit_intercept : bool, default=False
        Whether to fit an unpenalised intercept for each client.
    class_weight : dict or "balanced", default=None
        Weights of classes in fitting, {label: weight}; they don't count in the scores.
    group_column : int or str, default=None
        Column of X that holds the client ids and is not a feature.
    missing_groups : {"warn", "error", "global"}, default="warn"
        What happens when client ids are missing altogether or all unknown.
    solver : {"auto", "residual", "direct"}, default="auto"
        As in FedHiPClassifier, for the final fit.
    retain_statistics : bool, default=False
        Whether to keep what ``partial_fit`` and ``forget_clients`` need later; they go on with
        the chosen alpha and beta.
    n_jobs : int, default=None
        Blocks of clients that are worked on at the same time.

    Attributes
    ----------
    alpha_, beta_ : float
        The best of the grid; among equals, the larger beta and then the smaller alpha.
    local_classes_only_ : bool
        What was chosen or asked for.
    best_score_ : float
        Score of the best.
    cv_results_ : dict
        With GridSearchCV's keys: ``params``, ``param_alpha``, ``param_beta``,
        ``split{i}_test_score``, ``mean_test_score``, ``rank_test_score`` and ``std_test_score``,
        which is across clients for leave-one-out and across splits for folds. Scores are those
        of ``local_classes_only_``.
    client_alpha_ : ndarray of shape (K,)
        The alpha of each client in ``clients_``; newcomers have ``alpha_``.
    client_cv_scores_ : ndarray of shape (K, n_betas, n_alphas)
        Each client's mean scores; with ``store_cv_results``.
    alphas_, betas_ : ndarray
        The grid, ascending.
    search_temperature_ : float
        The temperature at which the best log-loss was found; with ``scoring="neg_log_loss"``.
    temperature_ : float
        What scores are divided by before the softmax.
    classes_, clients_, coef_, intercept_, personal_coef_, personal_intercept_
        As in FedHiPClassifier.
    bytes_up_, bytes_down_ : ndarray of shape (K,)
        What each client has sent and received in all rounds, in the order of ``clients_``.
    n_features_in_ : int
        Columns of X at fit.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Column names of X at fit, where it had any.

    Warns
    -----
    GridEdgeWarning
        If the best alpha or beta lies at an edge of the grid, other than 0.

    See Also
    --------
    FedHiPClassifier : With given alpha and beta.

    Examples
    --------
    >>> from skfedhip import FedHiPClassifierCV
    >>> from skfedhip.datasets import make_federated_classification
    >>> X, y, groups = make_federated_classification(random_state=0)
    >>> clf = FedHiPClassifierCV(fit_intercept=True).fit(X, y, groups=groups)
    >>> bool(clf.alpha_ > 0), len(clf.cv_results_["params"])
    (True, 180)
    """

    _parameter_constraints = {
        **FedHiPClassifier._parameter_constraints,
        **COMMON_CONSTRAINTS,
        "alphas": GRID,
        "betas": GRID,
        "alpha_per_client": ["boolean"],
    }
    for _name in ("alpha", "beta", "privacy"):
        _parameter_constraints.pop(_name)
    _axes = ("beta", "alpha")

    def __init__(
        self,
        alphas=None,
        betas=None,
        *,
        scoring="accuracy",
        average="macro",
        cv=None,
        alpha_per_client=False,
        local_classes_only="auto",
        store_cv_results=False,
        fit_intercept=False,
        class_weight=None,
        group_column=None,
        missing_groups="warn",
        solver="auto",
        retain_statistics=False,
        n_jobs=None,
    ):
        self.alphas = alphas
        self.betas = betas
        self.scoring = scoring
        self.average = average
        self.cv = cv
        self.alpha_per_client = alpha_per_client
        self.local_classes_only = local_classes_only
        self.store_cv_results = store_cv_results
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.group_column = group_column
        self.missing_groups = missing_groups
        self.solver = solver
        self.retain_statistics = retain_statistics
        self.n_jobs = n_jobs

    def _search(self, **how):
        return FedHiPSearch(free=1 if self.alpha_per_client else None, **how)

    def _start(self, X, classes, *, retain):
        self._own_alphas = {}
        super()._start(X, classes, retain=retain)

    def _method(self):
        return FedHiPOfEach(
            **self._shared_parameters(),
            alpha=getattr(self, "alpha_", 1.0),
            beta=getattr(self, "beta_", 1.0),
            solver=self.solver,
            client_alpha=self._own_alphas,
        )

    def _adopt(self, choices):
        if self.alpha_per_client:
            own = self.alphas_[choices.own]
            self._own_alphas = dict(zip(self.clients_.tolist(), own.tolist(), strict=True))

    def _forget(self, ids):
        own = self._own_alphas.items()
        self._own_alphas = {client: alpha for client, alpha in own if client not in ids}
        self._fitted_method = self._method()

    @property
    def client_alpha_(self):
        """The alpha of each client, shape (K,); newcomers have the shared one."""
        return np.array([self._own_alphas.get(c, self.alpha_) for c in self.clients_.tolist()])

    def _tuning_to_arrays(self):
        arrays, values = super()._tuning_to_arrays()
        return arrays | {"client_alpha": self.client_alpha_}, values

    def _tuning_from_arrays(self, arrays, values):
        own = arrays.pop("client_alpha").tolist()
        self._own_alphas = dict(zip(self.clients_.tolist(), own, strict=True))
        super()._tuning_from_arrays(arrays, values)
