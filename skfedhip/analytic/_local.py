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
    factors_are_smaller,
    kernel_weights,
    minimum_norm_ridge,
    primal_ridge,
    ridge_is_safe,
    weighted_sums,
)
from ..protocol import ClientUpdate
from ..utils._threads import single_blas_thread
from ._classifier import ClosedFormClassifier
from ._method import ClosedFormMethod, GlobalModel


@dataclass(frozen=True)
class ModelSum(ClientUpdate):
    """Sum of clients' coefficients (d, p), each times the sum of its weights, and that sum."""

    coef: np.ndarray
    weight: np.ndarray

    def __add__(self, other):
        return ModelSum(self.coef + other.coef, self.weight + other.weight)


def local_models(design, beta):
    """Each client's own ridge on a DesignBlock without an intercept, as PersonalModels.

    The dual for clients with fewer rows than columns, the primal for the others, and singular
    values where β is too small for either.
    """
    d, p = design.targets.shape[1], design.rows.shape[1]
    base = np.zeros((d, p))

    def factored(own):
        rows, targets = np.ascontiguousarray(own.rows), own.dense_targets()
        weights = kernel_weights(rows, targets, own.offsets, shift=beta, scale=1.0)
        part = FactoredModels(base, rows, weights, own.offsets)
        return PersonalModels.from_part(base, own, part)

    def dual(own):
        weights = kernel_weights(own.rows, own.dense_targets(), own.offsets, shift=beta, scale=1.0)
        return dense(own, weighted_sums(own.rows, weights, own.offsets))

    def primal(own):
        return dense(own, primal_ridge(own.rows, own.dense_targets(), own.offsets, beta))

    def spectral(own):
        return dense(own, minimum_norm_ridge(own.rows, own.dense_targets(), own.offsets, beta))

    def dense(own, coefs):
        return PersonalModels.from_part(base, own, DenseModels(coefs))

    safe = ridge_is_safe(design.rows, design.offsets, beta)
    small = safe & factors_are_smaller(design.counts, d, p)
    few = safe & ~small & (design.counts <= p)
    forms = ((small, factored), (few, dual), (safe & ~small & ~few, primal), (~safe, spectral))
    with single_blas_thread():
        return PersonalModels.by_form(design, forms)


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

    def client_update(self, block, broadcast, state):
        """The models, summed by weight; the clients keep them."""
        design = self.whole_design(block)
        if self.fit_intercept:
            models = self._with_intercept(design)
        else:
            models = local_models(design, self.beta)
        weights = design.class_weights.sum(axis=1)
        total = sum(w * models.coef(k) for k, w in enumerate(weights))
        return ModelSum(total, np.asarray(weights.sum())), models

    def aggregate(self, updates, broadcast, server_state):
        """The mean of the local models, each counted by the sum of its weights."""
        total = reduce(add, updates)
        return GlobalModel(total.coef / total.weight), total

    def personalize(self, block, broadcast, state):
        """The models that the clients have already."""
        if state is None:
            _, state = self.client_update(block, broadcast, None)
        return replace(state, base=broadcast.coef)

    def _with_intercept(self, design):
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
        )
        models = local_models(centered, self.beta)
        parts = []
        for i, part in enumerate(models.parts):
            own = np.flatnonzero(models.part == i)
            own = own[np.argsort(models.slot[own])]
            parts.append(with_means(part, means[own], shares[own]))
        base = np.zeros((design.targets.shape[1], design.rows.shape[1]))
        return replace(models, base=base, parts=tuple(parts))


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
        are -inf.
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
    bytes_up_, bytes_down_ : int
        What one client sends and receives.
    n_features_in_ : int
        Columns of X at fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
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
        return LocalRidge(fit_intercept=self.fit_intercept, beta=float(self.beta))
