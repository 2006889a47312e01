"""AnaPFL: a shared ridge on random features, and a private one on what it leaves unexplained."""

from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral, Real

import numpy as np
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from ..core import (
    ACTIVATIONS,
    DenseModels,
    DesignBlock,
    FactoredModels,
    PersonalModels,
    Smoother,
    affine,
    dual_refinement,
    factors_are_smaller,
    gaussian_projection,
    map_client_rows,
    minimum_norm_root,
    random_features,
    refinement_errors,
    ridge_is_safe,
    ridge_root,
    shift_origin,
    weighted_sums,
)
from ..feature_extraction import RandomFeatures
from ..privacy import GaussianMechanism
from ..utils._ids import id_bytes
from ..utils._random import draw_seed
from ..utils._threads import single_blas_thread
from ._classifier import ClosedFormClassifier
from ._method import ClosedFormMethod


@dataclass(frozen=True)
class AnaPFL(ClosedFormMethod):
    """G = (ΣΦ_kᵀΦ_k + γI)⁻¹ ΣΦ_kᵀY_k for all; W_k = (Ψ_kᵀΨ_k + βI)⁻¹ Ψ_kᵀ(Y_k - Φ_k G) at home.

    Φ = φ(F R) with one R for all clients, Ψ = φ(F R') with another, of each client's own unless
    the refinement is shared. A design row is [√w | √w Φ | √w Ψ], the first with an intercept.
    """

    gamma: float = 1e-2
    beta: float = 1.0
    lam: float = 0.5
    n_components: int = 1024
    activation: object = "tanh"
    shared_refinement: bool = False
    seed: int = 0

    @property
    def design_key(self):
        """What the columns of a design depend on."""
        maps = (self.n_components, self.activation, self.shared_refinement, self.seed)
        return (*super().design_key, *maps)

    def design_width(self, n_features):
        """Columns of a design row: both streams', and the intercept's."""
        return 2 * self.n_components + self.fit_intercept

    def primary_map(self, n_features):
        """R of shape (m, q), the same for all clients."""
        return gaussian_projection(n_features, self.n_components, self.seed, b"primary")

    def refinement_map(self, n_features, client):
        """R' of shape (m, q), fixed by the client's id unless the refinement is shared."""
        key = () if self.shared_refinement else (id_bytes(client),)
        return gaussian_projection(n_features, self.n_components, self.seed, b"refinement", *key)

    def features(self, rows, projection):
        """One stream's features, shape (n, q)."""
        return random_features(rows, projection, self.activation)

    def design(self, block):
        """Both streams of a block."""
        if isinstance(block, DesignBlock):
            return block
        m, q = block.X.shape[1], self.n_components

        def both(rows):
            rows = rows.astype(np.float64, copy=False)
            out = np.empty((len(rows), 2 * q))
            out[:, :q] = self.features(rows, self.primary_map(m))
            for client, start, stop in self._refined_runs(block):
                own = self.features(rows[start:stop], self.refinement_map(m, client))
                out[start:stop, q:] = own
            return out

        return block.design(fit_intercept=self.fit_intercept, feature_map=both)

    def shared_design(self, block):
        """The primary stream of a block."""
        if isinstance(block, DesignBlock):
            return replace(block, rows=block.rows[:, : -self.n_components])
        projection = self.primary_map(block.X.shape[1])
        return block.design(
            fit_intercept=self.fit_intercept,
            feature_map=lambda rows: self.features(rows, projection),
        )

    def _refined_runs(self, block):
        """Runs of rows that one refinement map serves."""
        if self.shared_refinement:
            return [(None, 0, block.n_rows)]
        runs = zip(block.client_ids.tolist(), block.offsets[:-1], block.offsets[1:], strict=True)
        return [run for run in runs if run[1] < run[2]]

    penalty_name = "gamma"

    @property
    def global_penalty(self):
        """Penalty of the primary stream."""
        return self.gamma

    def solve_block(self, block, broadcast):
        """Refinement models of the block's clients, and the losses of their rows left out."""
        if self.is_large(block):
            return self._solve_large(partial(self._pieces, block, broadcast), ridge_root)
        design = self.design(block)
        q = self.n_components
        safe = ridge_is_safe(design.rows[:, -q:], design.offsets, self.beta)
        few = safe & (design.counts <= q)
        small = few & factors_are_smaller(design.counts, len(broadcast.coef), q)
        dual = partial(self._solve_dual, broadcast)
        forms = (
            (small, partial(dual, factored=True)),
            (few & ~small, dual),
            (safe & ~few, partial(self._solve_each, broadcast, ridge_root)),
            (~safe, partial(self._solve_each, broadcast, None)),
        )
        with single_blas_thread():
            return PersonalModels.by_form(design, forms)

    def _pieces(self, block, broadcast):
        """A large block by pieces: (design, streams)."""
        for design in self.designs(block, self.design):
            yield design, self._streams(design, broadcast)

    def _streams(self, design, broadcast):
        """Residuals E (n, d), Ψ (n, q), and Φ whitened (n, r) where rows are to be left out."""
        primary = self.shared_design(design).centered(broadcast.mean)
        whitened = broadcast.root.whiten(primary.rows) if self.calibrate else None
        refinement = np.ascontiguousarray(design.rows[:, -self.n_components :])
        return primary.residuals(broadcast.coef), refinement, whitened

    def _solve_dual(self, broadcast, design, factored=False):
        """Clients with at most q rows."""
        residuals, rows, shared = self._streams(design, broadcast)
        weights, smoother = dual_refinement(rows, residuals, design.offsets, self.beta, shared)
        losses = 0.0
        if self.calibrate:
            losses = self._refinement_losses(design, residuals, shared, smoother)
        base = np.zeros((len(broadcast.coef), self.n_components))
        if factored:
            part = FactoredModels(base, rows, weights, design.offsets)
        else:
            part = DenseModels(weighted_sums(rows, weights, design.offsets))
        return PersonalModels.from_part(base, design, part), losses

    def _solve_each(self, broadcast, root_of_gram, design):
        """Clients one by one, from their Gram matrices or, where these are singular, their rows."""
        solved = []
        for k in range(len(design.client_ids)):
            own = design.clients([k])
            whole = [(own, self._streams(own, broadcast))]
            solved.append(self._solve_large(lambda whole=whole: whole, root_of_gram))
        return PersonalModels.merge_solved(solved)

    def _solve_large(self, pieces, root_of_gram):
        """One client of any number of rows, in bounded memory; ``pieces()`` iterates over them."""
        *solution, whole = self._solution(pieces(), root_of_gram)
        losses = self._losses_of_pieces(pieces(), *solution) if self.calibrate else 0.0
        coef = solution[1]
        return PersonalModels.from_part(np.zeros_like(coef), whole, DenseModels(coef[None])), losses

    def _solution(self, pieces, root_of_gram):
        """Root of one client's system, its coefficients, what mixes the streams, and its labels."""
        gram = cross = mixed = class_weights = 0.0
        for design, (residuals, rows, shared) in pieces:
            gram = gram + rows.T @ rows
            cross = cross + residuals.T @ rows
            mixed = mixed + (rows.T @ shared if self.calibrate else 0.0)
            class_weights = class_weights + design.class_weights
        root = root_of_gram(gram, self.beta) if root_of_gram else minimum_norm_root(rows, self.beta)
        whole = replace(design, class_weights=class_weights)
        return root, root.solve(cross), root.root.T @ mixed if self.calibrate else None, whole

    def _losses_of_pieces(self, pieces, root, coef, mixed):
        """Losses of one client's rows, wherever they are, left out of its :meth:`_solution`."""
        losses = 0.0
        for design, (residuals, rows, shared) in pieces:
            white = root.whiten(rows)
            smoother = Smoother(
                rows @ coef.T,
                np.einsum("ij,ij->i", white, white),
                np.einsum("ij,ij->i", white @ mixed, shared),
            )
            losses = losses + self._refinement_losses(design, residuals, shared, smoother)
        return losses

    def client_solution(self, design, broadcast):
        """Root, coefficients and mixing of a client's refinement."""
        refinement = design.rows[:, -self.n_components :]
        safe = ridge_is_safe(refinement, design.offsets, self.beta)[0]
        whole = [(design, self._streams(design, broadcast))]
        return self._solution(whole, ridge_root if safe else None)[:3]

    def losses_apart(self, piece, solution, broadcast):
        """Losses of some of a client's rows, left out of both streams."""
        return self._losses_of_pieces(self._pieces(piece, broadcast), *solution)

    def _refinement_losses(self, design, residuals, shared, smoother):
        leverage = np.einsum("ij,ij->i", shared, shared)
        lams = np.array([self.lam])
        (errors,) = refinement_errors(residuals, leverage, smoother, lams, design.drop)
        return self.losses_of_errors(design, errors)


class AnaPFLClassifier(ClosedFormClassifier):
    """AnaPFL: a shared analytic stream and a private residual-refinement stream.

    The primary stream is one ridge for all clients on random features Φ = φ(F R), the refinement
    stream each client's own ridge on what that leaves unexplained, in random features Ψ of
    another draw. Scores are Φ G + λ Ψ W_k.

    Parameters
    ----------
    gamma : float, default=1e-2
        Ridge penalty of the primary stream, >= 0.
    beta : float, default=1.0
        Ridge penalty of each client's refinement, >= 0.
    lam : float, default=0.5
        Weight λ of the refinement in the scores, >= 0. It is read at prediction alone:
        ``set_params(lam=...)`` needs no refit.
    n_components : int, default=1024
        Random features q of each stream.
    activation : {"tanh", "relu", "gelu"} or callable, default="tanh"
        Nonlinearity φ, from an array of shape (n, q) to one of the same shape.
    shared_refinement : bool, default=False
        Whether one refinement map serves all clients. Otherwise each client has its own, drawn
        anew from the seed and its id wherever it is needed, which takes time in proportion to
        n_features x n_components a client.
    random_state : int, RandomState instance or None, default=None
        Seed of the random features; pass an int for the same features in every fit.
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
    privacy : GaussianMechanism or None, default=None
        What protects the statistics that leave a client (``skfedhip.privacy``). There is no
        temperature then, and weights, streams and forgetting are refused.
    n_jobs : int, default=None
        Blocks of clients that are worked on at the same time.

    Attributes
    ----------
    coef_ : ndarray of shape (d, q), or (1, q) for two classes
        Coefficients of the primary stream, over its random features.
    intercept_ : ndarray of shape (d,) or (1,)
        Its intercepts; the refinement has none.
    personal_coef_ : ndarray of shape (K, d, q) or (K, 1, q)
        Coefficients of each client's refinement, over its own random features.
    personal_intercept_ : ndarray of shape (K, d) or (K, 1)
        Intercepts of the personal models, the global ones.
    classes_ : ndarray of shape (d,)
        Class labels.
    clients_ : ndarray of shape (K,)
        Client ids, sorted.
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
    FedHiPClassifier : Personalizes in the feature space itself.
    skfedhip.feature_extraction.RandomFeatures : The map of one stream, as a transformer.

    References
    ----------
    "AnaPFL: When Closed-Form Solutions Meet Generalization and Personalization in Personalized
    Federated Learning", ECCV 2026.

    Examples
    --------
    >>> from skfedhip import AnaPFLClassifier
    >>> from skfedhip.datasets import make_federated_classification
    >>> X, y, groups = make_federated_classification(random_state=0)
    >>> clf = AnaPFLClassifier(n_components=64, random_state=0).fit(X, y, groups=groups)
    >>> clf.set_params(lam=0.2).predict(X[:3], groups=groups[:3]).shape
    (3,)
    """

    _parameter_constraints = {
        **ClosedFormClassifier._parameter_constraints,
        "privacy": [GaussianMechanism, None],
        "gamma": [Interval(Real, 0, None, closed="left")],
        "beta": [Interval(Real, 0, None, closed="left")],
        "lam": [Interval(Real, 0, None, closed="left")],
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "activation": [StrOptions(set(ACTIVATIONS)), callable],
        "shared_refinement": ["boolean"],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        gamma=1e-2,
        beta=1.0,
        lam=0.5,
        n_components=1024,
        *,
        activation="tanh",
        shared_refinement=False,
        random_state=None,
        fit_intercept=False,
        local_classes_only=False,
        class_weight=None,
        group_column=None,
        missing_groups="warn",
        retain_statistics=False,
        privacy=None,
        n_jobs=None,
    ):
        self.gamma = gamma
        self.beta = beta
        self.lam = lam
        self.n_components = n_components
        self.activation = activation
        self.shared_refinement = shared_refinement
        self.random_state = random_state
        self.fit_intercept = fit_intercept
        self.local_classes_only = local_classes_only
        self.class_weight = class_weight
        self.group_column = group_column
        self.missing_groups = missing_groups
        self.retain_statistics = retain_statistics
        self.privacy = privacy
        self.n_jobs = n_jobs

    def _start(self, X, classes, *, retain):
        self._seed = draw_seed(self.random_state)
        super()._start(X, classes, retain=retain)

    def _penalties(self):
        """Gamma, beta and lam, as given."""
        return float(self.gamma), float(self.beta), float(self.lam)

    def _method(self):
        gamma, beta, lam = self._penalties()
        return AnaPFL(
            **self._shared_parameters(),
            gamma=gamma,
            beta=beta,
            lam=lam,
            n_components=self.n_components,
            activation=self.activation,
            shared_refinement=self.shared_refinement,
            seed=self._seed,
        )

    def _client_scores(self, X, codes):
        method, refinement = self._fitted_method, self._solved_models()
        coef, lead = self._global_coef(), int(method.fit_intercept)
        primary_map, lam = method.primary_map(X.shape[1]), self._penalties()[2]
        clients = self.clients_.tolist()

        def score(client, rows):
            out = affine(method.features(rows, primary_map), coef, lead)
            if client >= 0 and lam:
                projection = method.refinement_map(X.shape[1], clients[client])
                features = method.features(rows, projection)
                out += lam * refinement.client_scores(client, features)
            return out

        return map_client_rows(score, X, codes, len(coef))

    def _global_coef(self):
        self._solved_models()
        return shift_origin(self._broadcast.coef.copy(), self._broadcast.mean)

    def _personal_coefs(self):
        # The refinement has no intercept of its own: the shared one counts.
        lead = int(self._fitted_method.fit_intercept)
        models = self._solved_models()
        intercepts = np.broadcast_to(
            self._global_coef()[:, :lead], (len(models), len(self.classes_), lead)
        )
        return np.concatenate([intercepts, models.coefs()], axis=2)

    def export_client(self, client):
        """One client's model as a fitted Pipeline that needs no groups.

        Parameters
        ----------
        client : hashable scalar
            One of ``clients_``.

        Returns
        -------
        Pipeline
            Both streams' RandomFeatures side by side and a RidgeClassifier on them, with the
            present weight λ; it takes the features without any id column.
        """
        check_is_fitted(self)
        k = self._client_position(client)
        method, m = self._fitted_method, self._n_features
        streams = {
            "primary": method.primary_map(m),
            "refinement": method.refinement_map(m, self.clients_.tolist()[k]),
        }
        union = FeatureUnion(
            [
                (name, RandomFeatures.from_components(R, method.activation))
                for name, R in streams.items()
            ]
        )
        lam = self._penalties()[2]
        coef = np.hstack([self._global_coef(), lam * self._solved_models().coef(k)])
        return make_pipeline(union, self._linear_classifier(coef, k))
