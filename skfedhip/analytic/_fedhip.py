"""FedHiP: each client's ridge on everybody's rows, its own counted α times more."""

from dataclasses import dataclass, replace
from numbers import Real

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from ..core import (
    DenseModels,
    FactoredModels,
    PersonalModels,
    complement,
    factors_are_smaller,
    fitted_values,
    kernel_weights,
    prefers_residual,
    primal_coefs,
    shared_root,
    shift_drowns,
    shift_origin,
    spectral_root,
    weighted_sums,
)
from ..privacy import GaussianMechanism
from ..utils._threads import single_blas_thread
from ._classifier import ClosedFormClassifier
from ._method import ClosedFormMethod


@dataclass(frozen=True)
class FedHiP(ClosedFormMethod):
    """P_k = (A + αA_k + βI)⁻¹ (B + αB_k), as a correction to G = (A + βI)⁻¹ B.

    With A + βI = L Lᵀ, V = F_k L⁻ᵀ and the residuals R = Y_k - F_k G, all forms below equal it:

    * residual: P_k = G + L⁻ᵀ Vᵀ (I/α + V Vᵀ)⁻¹ R, an (n_k, n_k) system;
    * direct: P_k = G + α (A + αA_k + βI)⁻¹ F_kᵀ R, an (m, m) system;
    * whitened: P_k = G + α L⁻ᵀ (I + α VᵀV)⁻¹ Vᵀ R, for large clients where A + βI is singular.
    """

    alpha: float = 1.0
    beta: float = 1.0
    solver: str = "auto"

    def solve_block(self, block, broadcast):
        """Personal models of the block's clients, and the losses of their rows left out."""
        if self.alpha == 0:
            return self.solve_globally(block, broadcast)
        solver = _BlockSolver(self, broadcast)
        dual = self._dual_is_better(block.counts, broadcast)
        if len(block.counts) == 1 and not dual[0]:
            return solver.large(lambda: self.designs(block, self.design))
        design = self.design(block)  # a single client is in a dual system no larger than A
        small = dual & factors_are_smaller(design.counts, *broadcast.coef.shape)
        forms = ((small, solver.factored), (dual & ~small, solver.dense), (~dual, solver.primal))
        return PersonalModels.by_form(design, forms)

    def client_solution(self, design, broadcast):
        """Root and correction of a client's system; with alpha = 0 it has none of its own."""
        return _BlockSolver(self, broadcast).solution([design])[:2] if self.alpha else None

    def losses_apart(self, piece, solution, broadcast):
        """Losses of some of a client's rows, left out of its solution."""
        if solution is None:
            return super().losses_apart(piece, solution, broadcast)
        return _BlockSolver(self, broadcast).losses(self.designs(piece, self.design), *solution)

    def whitens(self, broadcast):
        """Whether clients with more rows than features are solved in whitened coordinates."""
        singular = not broadcast.root.triangular
        return self.solver == "residual" or singular or shift_drowns(1.0, self.alpha)

    def _dual_is_better(self, counts, broadcast):
        """Which clients to solve in an (n_k, n_k) system, bool of shape (K,)."""
        if self.whitens(broadcast):
            return counts <= broadcast.root.root.shape[1]
        if self.solver == "direct":
            return np.zeros(len(counts), dtype=bool)
        d, p = broadcast.coef.shape
        return prefers_residual(counts, p, d)


class _BlockSolver:
    """The forms of FedHiP's solution, each from a DesignBlock to (PersonalModels, losses)."""

    def __init__(self, method, broadcast):
        self.method, self.alpha, self.broadcast = method, method.alpha, broadcast
        self.base = shift_origin(broadcast.coef.copy(), broadcast.mean)
        self.whitens = method.whitens(broadcast)

    def factored(self, design):
        """Dual, the correction kept as n_k rows and their weights."""
        whitened, weights, losses = self._dual(design)
        rows = shift_origin(self.broadcast.root.unwhiten(whitened), self.broadcast.mean)
        part = FactoredModels(self.base, rows, weights, design.offsets)
        return PersonalModels.from_part(self.base, design, part), losses

    def dense(self, design):
        """Dual, the correction made out as coefficients."""
        whitened, weights, losses = self._dual(design)
        with single_blas_thread():
            sums = weighted_sums(whitened, weights, design.offsets)
        coefs = self.broadcast.root.unwhiten(sums.reshape(-1, sums.shape[2]))
        return self._corrected(coefs.reshape(len(sums), *self.base.shape), design), losses

    def _dual(self, design):
        centered = design.centered(self.broadcast.mean)
        residuals = centered.residuals(self.broadcast.coef)
        whitened = self.broadcast.root.whiten(centered.rows)
        left, losses = self.method.row_array(design), 0.0
        with single_blas_thread():
            weights = kernel_weights(
                whitened,
                residuals,
                design.offsets,
                shift=1.0,
                scale=self.alpha,
                twice=1.0,
                left=left,
                residuals=residuals,
            )
            if left is not None:
                losses = self.method.losses(design, residuals, left)
        return whitened, weights, losses

    def primal(self, design):
        """The direct form of clients that are batched where they are small."""
        if self.whitens:
            clients = [design.clients([k]) for k in range(len(design.client_ids))]
            return PersonalModels.merge_solved(
                [self.large(lambda own=own: [own]) for own in clients]
            )
        centered = design.centered(self.broadcast.mean)
        residuals = centered.residuals(self.broadcast.coef)
        leverage, losses = self.method.row_array(design), 0.0
        with single_blas_thread():
            coefs = primal_coefs(
                centered.rows,
                residuals,
                design.offsets,
                shared=self.broadcast.penalized_gram,
                scale=self.alpha,
                leverage=leverage,
            )
            if leverage is not None:
                residuals -= fitted_values(centered.rows, coefs, design.offsets)
                left = complement((1 + self.alpha) * leverage)
                losses = self.method.losses(design, residuals, left)
        return self._corrected(coefs, design), losses

    def large(self, designs):
        """One client of any number of rows, in bounded memory; ``designs()`` iterates over them."""
        root, coef, whole = self.solution(designs())
        losses = 0.0
        if self.method.calibrate:
            losses = self.losses(designs(), root, coef)
        if self.whitens:
            coef = self.broadcast.root.unwhiten(coef)
        return self._corrected(coef[None], whole), losses

    def solution(self, designs):
        """Root of one client's system, its correction (d, r), and its DesignBlock's labels."""
        gram = cross = class_weights = 0.0
        for design in designs:
            rows, residuals = self._coordinates(design)
            gram = gram + rows.T @ rows
            cross = cross + residuals.T @ rows
            class_weights = class_weights + design.class_weights
        root = self._client_root(gram)
        return root, self.alpha * root.solve(cross), replace(design, class_weights=class_weights)

    def losses(self, designs, root, coef):
        """Losses of one client's rows, wherever they are, left out of its :meth:`solution`."""
        losses = 0.0
        for design in designs:
            rows, residuals = self._coordinates(design)
            residuals -= rows @ coef.T
            left = complement((1 + self.alpha) * root.leverage(rows))
            losses = losses + self.method.losses(design, residuals, left)
        return losses

    def _coordinates(self, design):
        """Rows in the coordinates in which a large client is solved, and their residuals."""
        centered = design.centered(self.broadcast.mean)
        residuals = centered.residuals(self.broadcast.coef)
        rows = centered.rows
        return (self.broadcast.root.whiten(rows) if self.whitens else rows), residuals

    def _client_root(self, gram):
        if not self.whitens:
            return shared_root(gram, self.broadcast.penalized_gram, self.alpha)
        if shift_drowns(1.0, self.alpha):
            return spectral_root(gram, self.alpha)
        return shared_root(gram, np.eye(len(gram)), self.alpha)

    def _corrected(self, corrections, design):
        """Models G + correction, from corrections (K, d, p), which are overwritten."""
        coefs = shift_origin(corrections, self.broadcast.mean)
        coefs += self.base
        return PersonalModels.from_part(self.base, design, DenseModels(coefs))


class FedHiPClassifier(ClosedFormClassifier):
    """FedHiP: closed-form personalized ridge classifiers, exact and without gradients.

    Objective of client k over one-hot labels: ‖Y - F P‖² + α‖Y_k - F_k P‖² + β‖P‖², the first
    term over the rows of all clients. Statistics go up, their sum comes down, each client solves
    for its own P_k, which does not move when the other clients' rows are dealt out differently. A
    second round, of losses of rows left out, only fits the temperature of the probabilities.

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
        are -inf, which CalibratedClassifierCV, for one, can't take.
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
        beyond 1e9, is solved in whitened coordinates whatever is asked.
    retain_statistics : bool, default=False
        Whether ``fit`` keeps what ``partial_fit`` and ``forget_clients`` need later: at most
        min(n_k, m) x (m + d) numbers a client, m counting the intercept's column.
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
        Coefficients of the global model, which scores unknown clients.
    intercept_ : ndarray of shape (d,) or (1,)
        Its intercepts.
    personal_coef_ : ndarray of shape (K, d, m) or (K, 1, m)
        Coefficients of the personal models, in the order of ``clients_``; made anew at each
        access, since models of small clients are kept in factors.
    personal_intercept_ : ndarray of shape (K, d) or (K, 1)
        Their intercepts.
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
        "privacy": [GaussianMechanism, None],
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
        privacy=None,
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
        self.privacy = privacy
        self.n_jobs = n_jobs

    def _method(self):
        return FedHiP(
            **self._shared_parameters(),
            alpha=float(self.alpha),
            beta=float(self.beta),
            solver=self.solver,
        )
