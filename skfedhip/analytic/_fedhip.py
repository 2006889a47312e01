"""FedHiP: each client's ridge on everybody's rows, its own counted α times more."""

from dataclasses import dataclass
from functools import partial
from numbers import Real

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from ..core import (
    DenseModels,
    FactoredModels,
    PersonalModels,
    factors_are_smaller,
    kernel_weights,
    prefers_residual,
    primal_coefs,
    shift_origin,
    solve_shared,
    weighted_sums,
)
from ..utils._threads import single_blas_thread
from ._classifier import ClosedFormClassifier
from ._method import ClosedFormMethod, RidgeSum

_DIRECT_ALPHA = 1e8  # beyond it, α times a client's Gram matrix drowns the federation's


@dataclass(frozen=True)
class FedHiP(ClosedFormMethod):
    """P_k = (A + αA_k + βI)⁻¹ (B + αB_k), as a correction to G = (A + βI)⁻¹ B.

    With A + βI = L Lᵀ, V = F_k L⁻ᵀ and the residuals R = Y_k - F_k G, both forms below equal it:

    * residual: P_k = G + L⁻ᵀ Vᵀ (I/α + V Vᵀ)⁻¹ R, an (n_k, n_k) system;
    * direct: P_k = G + α (A + αA_k + βI)⁻¹ F_kᵀ R, an (m, m) system.
    """

    alpha: float = 1.0
    beta: float = 1.0
    solver: str = "auto"

    def broadcast_sum(self, statistics):
        """The sums; G and the root that all clients share are computed once in this process."""
        broadcast = RidgeSum(statistics, np.asarray(self.beta, dtype=float))
        broadcast.coef  # noqa: B018 - here, before jobs would each compute it
        return broadcast

    def personalize(self, block, broadcast, state):
        """Personal models of the block's clients."""
        base = shift_origin(broadcast.coef.copy(), broadcast.mean)
        if self.alpha == 0:
            return PersonalModels.shared(base, block)
        residual = self._takes_residual_form(block.counts, broadcast)
        if len(block.counts) == 1 and not residual[0]:
            return self._direct_by_pieces(block, broadcast, base)
        design = self.whole_design(block).centered(broadcast.mean)
        small = residual & factors_are_smaller(design.counts, *base.shape)
        forms = (
            (small, self._residual_factored),
            (residual & ~small, self._residual_dense),
            (~residual, self._direct),
        )
        return PersonalModels.by_form(
            design, [(mask, partial(form, broadcast, base)) for mask, form in forms]
        )

    def _takes_residual_form(self, counts, broadcast):
        if not broadcast.root.triangular or self.alpha > _DIRECT_ALPHA:
            return np.ones(len(counts), dtype=bool)
        if self.solver == "auto":
            d, p = broadcast.coef.shape
            return prefers_residual(counts, p, d)
        return np.full(len(counts), self.solver == "residual")

    def _dual(self, broadcast, design):
        """Whitened rows of the clients and their weights in the correction."""
        design = design.compressed()
        residuals = design.residuals(broadcast.coef)
        whitened = broadcast.root.whiten(design.rows)
        with single_blas_thread():
            weights = kernel_weights(whitened, residuals, design.offsets, shift=1, scale=self.alpha)
        return design, whitened, weights

    def _residual_factored(self, broadcast, base, design):
        design, whitened, weights = self._dual(broadcast, design)
        rows = shift_origin(broadcast.root.unwhiten(whitened), broadcast.mean)
        return PersonalModels.from_part(
            base, design, FactoredModels(base, rows, weights, design.offsets)
        )

    def _residual_dense(self, broadcast, base, design):
        design, whitened, weights = self._dual(broadcast, design)
        with single_blas_thread():
            sums = weighted_sums(whitened, weights, design.offsets)
        coefs = broadcast.root.unwhiten(sums.reshape(-1, sums.shape[2]))
        coefs = coefs.reshape(len(sums), *base.shape)
        return self._dense(coefs, broadcast, base, design)

    def _direct(self, broadcast, base, design):
        residuals = design.residuals(broadcast.coef)
        with single_blas_thread():
            coefs = primal_coefs(
                design.rows,
                residuals,
                design.offsets,
                penalty=broadcast.penalized_gram,
                scale=self.alpha,
            )
        return self._dense(coefs, broadcast, base, design)

    def _direct_by_pieces(self, block, broadcast, base):
        """One client of any number of rows, in bounded memory."""
        gram = cross = 0.0
        for design in self.designs(block, self.design):
            centered = design.centered(broadcast.mean)
            gram = gram + centered.rows.T @ centered.rows
            cross = cross + centered.residuals(broadcast.coef).T @ centered.rows
        coef = solve_shared(gram, cross, broadcast.penalized_gram, self.alpha)
        return self._dense(coef[None], broadcast, base, block)

    @staticmethod
    def _dense(corrections, broadcast, base, design):
        coefs = shift_origin(corrections, broadcast.mean)
        coefs += base
        return PersonalModels.from_part(base, design, DenseModels(coefs))


class FedHiPClassifier(ClosedFormClassifier):
    """FedHiP: closed-form personalized ridge classifiers, exact in one round.

    Objective of client k over one-hot labels: ‖Y - F P‖² + α‖Y_k - F_k P‖² + β‖P‖², the first
    term over the rows of all clients. Statistics go up, their sum comes down, each client solves
    for its own P_k. It does not move when the other clients' rows are dealt out differently.

    Parameters
    ----------
    alpha : float, default=1.0
        How many times more a client's own rows count in its model, >= 0. With 0 every client has
        the global model; as it grows, models become the clients' own least squares.
    beta : float, default=1.0
        Ridge penalty on the sum of squared errors, >= 0. With 0 and a singular system the
        minimum-norm solution is used, with a LinAlgWarning.
    fit_intercept : bool, default=False
        Whether to fit an unpenalised intercept for each client.
    local_classes_only : bool, default=False
        Whether a client's rows may only be given classes that it had at fit: scores of the others
        are -inf.
    class_weight : dict or "balanced", default=None
        Weights of classes, {label: weight}; "balanced" uses the class counts of the federation.
    group_column : int or str, default=None
        Column of X that holds the client ids and is not a feature: a position, or the name of a
        DataFrame's column. ``groups``, where given, wins.
    missing_groups : {"warn", "error", "global"}, default="warn"
        What happens when client ids are missing altogether or all unknown; with "error" any
        unknown row raises. Without ids ``fit`` takes all rows as one client, and ``predict`` uses
        the global model.
    solver : {"auto", "residual", "direct"}, default="auto"
        Which of two exact forms to solve: "residual" takes an (n_k, n_k) system, "direct" an
        (m, m) one; "auto" counts flops, client by client. A singular federation, or an alpha
        beyond 1e8, is solved in the residual form whatever is asked.
    retain_statistics : bool, default=False
        Whether ``fit`` keeps what ``partial_fit`` and ``forget_clients`` need later: at most
        min(n_k, m) x (m + d) numbers a client, m counting the intercept's column.
    n_jobs : int, default=None
        Blocks of clients that are worked on at the same time.

    Attributes
    ----------
    classes_ : ndarray of shape (d,)
        Class labels.
    clients_ : ndarray of shape (K,)
        Client ids, sorted.
    coef_ : ndarray of shape (d, m), or (1, m) for two classes
        Coefficients of the global model, which scores unknown clients.
    intercept_ : ndarray of shape (d,) or (1,)
        Its intercepts.
    personal_coef_ : ndarray of shape (K, d, m) or (K, 1, m)
        Coefficients of the personal models, in the order of ``clients_``; made anew at each
        access, since models of small clients are kept in factors.
    personal_intercept_ : ndarray of shape (K, d) or (K, 1)
        Their intercepts.
    bytes_up_, bytes_down_ : int
        What one client sends and receives.
    n_features_in_ : int
        Columns of X at fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Column names of X at fit, where it had any.

    See Also
    --------
    AFLClassifier : The global model alone.
    LocalRidgeClassifier : Each client alone.
    AnaPFLClassifier : A private correction in a second feature space.

    References
    ----------
    "FedHiP: Heterogeneity-Invariant Personalized Federated Learning Through Closed-Form
    Solutions", 2025.

    Examples
    --------
    >>> from skfedhip import FedHiPClassifier
    >>> from skfedhip.datasets import make_federated_classification
    >>> X, y, groups = make_federated_classification(random_state=0)
    >>> clf = FedHiPClassifier(alpha=5.0).fit(X, y, groups=groups)
    >>> clf.personal_coef_.shape
    (20, 5, 20)
    >>> clf.predict(X[:3], groups=groups[:3]).shape
    (3,)
    """

    _parameter_constraints = {
        **ClosedFormClassifier._parameter_constraints,
        "alpha": [Interval(Real, 0, None, closed="left")],
        "beta": [Interval(Real, 0, None, closed="left")],
        "solver": [StrOptions({"auto", "residual", "direct"})],
    }

    def __init__(
        self,
        alpha=1.0,
        beta=1.0,
        *,
        fit_intercept=False,
        local_classes_only=False,
        class_weight=None,
        group_column=None,
        missing_groups="warn",
        solver="auto",
        retain_statistics=False,
        n_jobs=None,
    ):
        self.alpha = alpha
        self.beta = beta
        self.fit_intercept = fit_intercept
        self.local_classes_only = local_classes_only
        self.class_weight = class_weight
        self.group_column = group_column
        self.missing_groups = missing_groups
        self.solver = solver
        self.retain_statistics = retain_statistics
        self.n_jobs = n_jobs

    def _method(self):
        return FedHiP(
            fit_intercept=self.fit_intercept,
            alpha=float(self.alpha),
            beta=float(self.beta),
            solver=self.solver,
        )
