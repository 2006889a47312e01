"""Local ridge: every client alone, the other end of the scale from one global model."""

from dataclasses import dataclass, replace
from functools import reduce
from numbers import Real
from operator import add

import numpy as np
from sklearn.utils._param_validation import Interval

from ..core import (
    DenseModels,
    FactoredModels,
    PersonalModels,
    best_temperature,
    complement,
    factors_are_smaller,
    fitted_values,
    kernel_weights,
    minimum_norm_ridge,
    primal_coefs,
    ridge_is_safe,
    weighted_sums,
)
from ..protocol import ClientUpdate
from ..utils._threads import single_blas_thread
from ._classifier import ClosedFormClassifier
from ._method import ClosedFormMethod, GlobalModel


@dataclass(frozen=True)
class ModelSum(ClientUpdate):
    """Sum of clients' coefficients (d, p), each times the sum of its weights, and that sum.

    Beside them, the log-losses of rows left out, where the temperature is asked for.
    """

    coef: np.ndarray
    weight: np.ndarray
    losses: np.ndarray

    def __add__(self, other):
        return ModelSum(
            self.coef + other.coef, self.weight + other.weight, self.losses + other.losses
        )

    def __sub__(self, other):
        return ModelSum(
            self.coef - other.coef, self.weight - other.weight, self.losses - other.losses
        )


@dataclass(frozen=True)
class CalibratedModel(GlobalModel):
    """The mean model, and the temperature."""

    temperature: np.ndarray | None


class _LocalSolver:
    """The ways to a client's own ridge, each from a DesignBlock to (PersonalModels, losses).

    Parameters
    ----------
    beta : float
    shape : tuple of int
        (d, p) of the coefficients.
    losses : callable or None
        From a DesignBlock, the residuals of its rows (n, d) and their complements of leverages
        (n,) to losses that add up; None where they are not asked for.
    """

    def __init__(self, beta, shape, losses):
        self.beta, self.base, self.losses = beta, np.zeros(shape), losses

    def solve(self, design):
        """Each client by the cheapest exact way."""
        d, p = self.base.shape
        safe = ridge_is_safe(design.rows, design.offsets, self.beta)
        small = safe & factors_are_smaller(design.counts, d, p)
        dense = safe & ~small
        forms = (
            (small, self.factored),
            (dense & (design.counts <= p), self.dual),
            (dense & (design.counts > p), self.primal),
            (~safe, self.minimum_norm),
        )
        with single_blas_thread():
            return PersonalModels.by_form(design, forms)

    def factored(self, design):
        """Dual, kept as rows and their weights."""
        weights, residuals, left = self._weights(design)
        rows = np.ascontiguousarray(design.rows)
        part = FactoredModels(self.base, rows, weights, design.offsets)
        return self._solved(design, part, residuals, left)

    def dual(self, design):
        """Clients with fewer rows than columns."""
        weights, residuals, left = self._weights(design)
        part = DenseModels(weighted_sums(design.rows, weights, design.offsets))
        return self._solved(design, part, residuals, left)

    def primal(self, design):
        """Clients with more rows than columns."""
        leverage, targets = self._leverage(design), design.dense_targets()
        shared = self.beta * np.eye(self.base.shape[1])
        coefs = primal_coefs(design.rows, targets, design.offsets, shared=shared, leverage=leverage)
        return self._with_leverage(design, coefs, leverage)

    def minimum_norm(self, design):
        """Clients for whom beta is too small for either."""
        leverage, targets = self._leverage(design), design.dense_targets()
        coefs = minimum_norm_ridge(
            design.rows, targets, design.offsets, self.beta, leverage, design.scale
        )
        return self._with_leverage(design, coefs, leverage)

    def _weights(self, design):
        left, residuals = self._leverage(design), None
        if self.losses:
            residuals = np.empty((design.n_rows, self.base.shape[0]))
        weights = kernel_weights(
            design.rows,
            design.dense_targets(),
            design.offsets,
            shift=self.beta,
            scale=1.0,
            left=left,
            residuals=residuals,
        )
        return weights, residuals, left

    def _leverage(self, design):
        return np.empty(design.n_rows) if self.losses else None

    def _with_leverage(self, design, coefs, leverage):
        residuals = left = None
        if self.losses:
            fitted = fitted_values(design.rows, coefs, design.offsets)
            residuals, left = design.dense_targets() - fitted, complement(leverage)
        return self._solved(design, DenseModels(coefs), residuals, left)

    def _solved(self, design, part, residuals, left):
        lost = self.losses(design, residuals, left) if self.losses else 0.0
        return PersonalModels.from_part(self.base, design, part), lost


def with_means(part, means, shares):
    """Models of rows about ``means`` (K, m) and targets about ``shares`` (K, d), uncentered.

    The intercept of client k, share_k - P_k mean_k, becomes the first column.
    """
    if isinstance(part, DenseModels):
        intercepts = shares - np.einsum("kdm,km->kd", part.coefs, means)
        return DenseModels(np.concatenate([intercepts[:, :, None], part.coefs], axis=2))
    client = np.repeat(np.arange(len(part)), np.diff(part.offsets))
    shift = -np.einsum("nm,nm->n", part.rows, means[client])
    rows = np.insert(np.column_stack([shift, part.rows]), part.offsets[1:], 0.0, axis=0)
    offsets = part.offsets + np.arange(len(part.offsets))
    rows[offsets[1:] - 1, 0] = 1.0
    weights = np.insert(part.weights, part.offsets[1:], shares, axis=0)
    base = np.zeros((part.base.shape[0], rows.shape[1]))
    return FactoredModels(base, rows, weights, offsets)


@dataclass(frozen=True)
class LocalRidge(ClosedFormMethod):
    """P_k = (A_k + βI)⁻¹ B_k; what travels only serves clients that have no model."""

    beta: float = 1.0

    n_rounds = 1

    def client_update(self, block, broadcast, state):
        """The models, summed by weight; the clients keep them."""
        models, losses = self.solve(block, broadcast)
        weights = block.class_weights.sum(axis=1)
        total = sum(w * models.coef(k) for k, w in enumerate(weights))
        return ModelSum(total, weights.sum(), np.asarray(losses)), models

    def aggregate(self, updates, broadcast, server_state):
        """The mean of the local models, each counted by the sum of its weights."""
        total = reduce(add, updates)
        temperature = np.asarray(best_temperature(total.losses)) if self.calibrate else None
        return CalibratedModel(total.coef / total.weight, temperature), total

    def personalize(self, block, broadcast, state):
        """The models that the clients have already; the mean is for all others."""
        models = super().personalize(block, broadcast, state)
        return replace(models, base=broadcast.coef)

    def leaves_out(self, broadcast):
        """The one answer holds them."""
        return self.calibrate

    def client_solution(self, design, broadcast):
        """A client is a federation of its own: its sums."""
        return super().aggregate([self.statistics_update(design)], None, None)[0]

    def losses_apart(self, piece, solution, broadcast):
        """Losses of some of a client's rows, left out of its own ridge."""
        return self.solve_globally(piece, solution)[1]

    def update_apart(self, losses):
        """Losses alone; the coefficients come from the client as a whole."""
        return ModelSum(np.zeros(()), np.zeros(()), losses)

    def solve_block(self, block, broadcast):
        """Personal models of the block's clients, and the losses of their rows left out."""
        if self.is_large(block):
            return self._solve_large(block)
        design = self.design(block)
        if self.fit_intercept:
            return self._solve_with_intercept(design)
        return self._solver(design, self.losses).solve(design)

    def _solver(self, design, losses):
        shape = design.targets.shape[1], design.rows.shape[1]
        return _LocalSolver(self.beta, shape, losses if self.calibrate else None)

    def _solve_large(self, block):
        """One client whose rows do not fit at once: it is a federation of its own."""
        sums = self.client_solution(block, None)
        models, losses = self.solve_globally(block, sums)
        part = DenseModels(models.coef(0)[None])
        return PersonalModels.from_part(models.base, block, part), losses

    def _solve_with_intercept(self, design):
        """Center each client's rows and targets by its own means, and put the means back."""
        root, offsets = design.rows[:, :1], design.offsets
        weight = design.class_weights.sum(axis=1)
        means = np.add.reduceat(root * design.rows[:, 1:], offsets[:-1]) / weight[:, None]
        shares = design.class_weights / weight[:, None]
        client = np.repeat(np.arange(len(weight)), design.counts)
        centered = replace(
            design,
            rows=design.rows[:, 1:] - root * means[client],
            targets=design.dense_targets() - root * shares[client],
            scale=np.sqrt(np.add.reduceat((design.rows[:, 1:] ** 2).sum(axis=1), offsets[:-1])),
        )

        def losses(own, residuals, left):
            # The intercept's own share of the leverage is w over the client's sum of weights.
            own_weight = np.repeat(own.class_weights.sum(axis=1), own.counts)
            left = complement(1 - (left - own.root**2 / own_weight))
            return self.losses(own, residuals, left)

        models, lost = self._solver(centered, losses).solve(centered)
        parts = []
        for i, part in enumerate(models.parts):
            own = np.flatnonzero(models.part == i)
            own = own[np.argsort(models.slot[own])]
            parts.append(with_means(part, means[own], shares[own]))
        base = np.zeros((design.targets.shape[1], design.rows.shape[1]))
        return replace(models, base=base, parts=tuple(parts)), lost


class LocalRidgeClassifier(ClosedFormClassifier):
    """A ridge classifier for each client, from its own rows alone.

    Objective of client k over one-hot labels: ‖Y_k - F_k P‖² + β‖P‖². Nothing is learned from the
    other clients; unknown ones get the mean of all local models, by rows.

    Parameters
    ----------
    beta : float, default=1.0
        Ridge penalty on the sum of squared errors of each client, >= 0. With 0 and a singular
        system the minimum-norm solution is used, with a LinAlgWarning.
    fit_intercept : bool, default=False
        Whether to fit an unpenalised intercept.
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
        unknown row raises.
    retain_statistics : bool, default=False
        Whether ``fit`` keeps what ``partial_fit`` and ``forget_clients`` need later.
    n_jobs : int, default=None
        Blocks of clients that are worked on at the same time.

    Attributes
    ----------
    classes_ : ndarray of shape (d,)
        Class labels.
    clients_ : ndarray of shape (K,)
        Client ids, sorted.
    coef_ : ndarray of shape (d, m), or (1, m) for two classes
        Coefficients of the model for unknown clients.
    intercept_ : ndarray of shape (d,) or (1,)
        Its intercepts.
    personal_coef_ : ndarray of shape (K, d, m) or (K, 1, m)
        Coefficients of the personal models, in the order of ``clients_``; made at each access.
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
    AFLClassifier : One model for all clients.
    FedHiPClassifier : Between the two.

    Examples
    --------
    >>> from skfedhip import LocalRidgeClassifier
    >>> from skfedhip.datasets import make_federated_classification
    >>> X, y, groups = make_federated_classification(random_state=0)
    >>> clf = LocalRidgeClassifier(beta=0.1).fit(X, y, groups=groups)
    >>> clf.personal_coef_.shape
    (20, 5, 20)
    """

    _parameter_constraints = {
        **ClosedFormClassifier._parameter_constraints,
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
        n_jobs=None,
    ):
        self.beta = beta
        self.fit_intercept = fit_intercept
        self.local_classes_only = local_classes_only
        self.class_weight = class_weight
        self.group_column = group_column
        self.missing_groups = missing_groups
        self.retain_statistics = retain_statistics
        self.n_jobs = n_jobs

    def _method(self):
        return LocalRidge(**self._shared_parameters(), beta=float(self.beta))
