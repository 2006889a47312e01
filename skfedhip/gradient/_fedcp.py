"""FedCP: each row's features are split between a frozen global head and a personal one."""

from dataclasses import dataclass, replace
from numbers import Integral, Real

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch.nn.functional import normalize

from ..utils._ids import lookup_ids
from ._classifier import GradientClassifier
from ._functional import MeanDiscrepancy, linear, linear_gradients, softmax_loss
from ._method import GradientMethod, with_init_params
from ._own import JOINED, unless_new
from ._policy import Policy


@dataclass(frozen=True, kw_only=True)
class FedCP(GradientMethod):
    """Features h go to the heads as s ⊙ h and (1 - s) ⊙ h, s from the policy network."""

    lam: float
    policy: Policy
    conditional: bool = True
    global_head: bool = True

    personal = ("personal_head.",)

    def initial(self):
        """Of extractor, global head and policy."""
        params = {n: t.numpy() for n, t in self.network.initial(self.dtype).items()}
        if self.conditional:
            policy = self.policy.initial(self.seed, self.dtype)
            params |= {name: tensor.numpy() for name, tensor in policy.items()}
        return with_init_params(params, self.init_params)

    def new_state(self, parameters):
        """The personal head starts as the global one."""
        return own_heads(parameters) | {JOINED: np.zeros((), dtype=np.int64)}

    def local(self, rows, shared, state, n_round):
        """Extractor, policy and personal head are trained, and the mean of both heads sent up."""
        head = {n: p for n, p in shared.items() if n.startswith("head.")}
        start = {n: p for n, p in shared.items() if n not in head} | self.of_personal(state)
        constants = {n: p if self.global_head else torch.zeros_like(p) for n, p in head.items()}
        constants["context"] = self.context(state["personal_head.weight"])
        if self.lam:
            mapper = self.network.mapper(training=False)
            rows = replace(rows, frozen=self.features(mapper, shared, rows.x))
        params, losses = self.train(rows, start, self.split_gradients(rows), constants=constants)
        own = self.of_personal(params)
        upload = {n: p for n, p in params.items() if n not in own}
        for name, common in head.items():
            trained = own[f"personal_{name}"]
            upload[name] = (common + trained) / 2 if self.global_head else trained
        return upload, own | {JOINED: state[JOINED] + 1}, losses

    def personal_parameters(self, rows, shared, state, n_round):
        """The personal head; the global one of a client that has been in no cohort."""
        return unless_new(self.of_personal(state), state[JOINED], lambda: own_heads(shared))

    @staticmethod
    def context(weight):
        """v / ‖v‖ with v the sum over classes of the personal head's rows, shape (K, 1, p)."""
        return normalize(weight.sum(1, keepdim=True), dim=2, eps=1e-12)

    def split(self, params, h, context):
        """The share of the features that the personal head gets (a, B, p), or the same of all."""
        if self.conditional:
            return self.policy(params, h * context)
        return h.new_tensor(0.5 if self.global_head else 1.0), None

    def split_gradients(self, rows):
        """Cross-entropy of both heads together and, times λ, the distance to frozen features."""
        mapper, discrepancy = self.network.mapper(training=True), MeanDiscrepancy(rows.x)

        def gradients(params, constants, batch):
            h, pullback = mapper(params, batch.x)
            share, policy_pullback = self.split(params, h, constants["context"])
            ours = share * h
            own_head, head = params["personal_head.weight"], constants["head.weight"]
            logits = linear(ours, own_head, params["personal_head.bias"])
            logits += linear(h - ours, head, constants["head.bias"])
            loss, grad = softmax_loss(logits, batch.y, batch.weight)
            grads = linear_gradients("personal_head", grad, ours)
            to_others = torch.bmm(grad, head)
            gap = torch.bmm(grad, own_head).sub_(to_others)
            to_h = torch.addcmul(to_others, share, gap)
            if self.conditional:
                own, to_context = policy_pullback(gap.mul_(h))
                grads |= own
                to_h.addcmul_(to_context, constants["context"])
            if self.lam:
                distance, slope = discrepancy(h, batch.frozen, batch.weight)
                loss.add_(distance, alpha=self.lam)
                to_h.add_(slope, alpha=self.lam)
            return loss, {**grads, **pullback(to_h)}

        return gradients

    def logits(self, mapper, params, x):
        """Both heads together; without a personal head the global one stands in both places."""
        h, _ = mapper(params, x)
        ours, share = self.heads(params, h)
        logits = linear(share * h, ours["weight"], ours["bias"])
        if self.global_head:
            logits += linear((1 - share) * h, params["head.weight"], params["head.bias"])
        return logits

    def heads(self, params, h):
        """The head in the personal place, and the share of the features h that it gets."""
        prefix = "personal_head" if "personal_head.weight" in params else "head"
        ours = {name: params[f"{prefix}.{name}"] for name in ("weight", "bias")}
        return ours, self.split(params, h, self.context(ours["weight"]))[0]

    def shares(self, mapper, params, x):
        """The personal head's shares (1, n, p) of rows by one model."""
        h, _ = mapper(params, x)
        return torch.ones_like(h) * self.heads(params, h)[1]

    def rates(self, mapper, params, x):
        """Their means (1, n, 1) over features."""
        return self.shares(mapper, params, x).mean(-1, keepdim=True)


def own_heads(parameters):
    """The global head under the names of a personal one."""
    return {f"personal_{n}": p for n, p in parameters.items() if n.startswith("head.")}


class FedCPClassifier(GradientClassifier):
    """FedCP: a policy splits each row's features between a global and a personal head.

    A client has a feature extractor, a policy network and a personal head, which it trains, and
    the round's extractor and head of the federation, which are frozen. For features h of a row, the
    policy reads h ⊙ v/‖v‖, v the sum over classes of the rows of the personal head's weights, and
    gives a share s in (0, 1) for each feature; scores are W(h - s ⊙ h) + W_k(s ⊙ h). The loss is
    cross-entropy plus λ times the squared maximum mean discrepancy between a batch's features and
    those of the frozen extractor. The server averages extractors, policies and (W + W_k) / 2,
    weighted by rows. An unknown client, or one that has been in no cohort, is scored with the
    global head in both places.

    Parameters
    ----------
    lam : float, default=1.0
        Weight λ of the alignment with the frozen extractor's features, >= 0.
    policy_layers : int, default=1
        Linear layers of the policy network; those before the last are p by p.
    policy_norm : {"layer", "group", None}, default="layer"
        Normalization of its output: as a whole, or the two halves apart.
    policy_activation : {"relu", "tanh", "sigmoid"}, default="relu"
        What follows each of its layers.
    conditional_policy : bool, default=True
        Whether there is a policy; without, each head gets half of every feature.
    global_head : bool, default=True
        Whether there is a frozen global head; without, which takes ``conditional_policy=False``,
        the personal head gets the features whole.
    %(parameters)s

    Attributes
    ----------
    personal_rate_ : ndarray of shape (K,)
        Mean share that each client's personal head gets of the features of its rows in ``fit``,
        those held out among them (the paper's personalization identification rate).
    %(attributes)s

    See Also
    --------
    FedPerClassifier : A personal head alone.
    FedRepClassifier : A personal head, trained before the extractor.

    References
    ----------
    Zhang, Hua, Wang, Song, Xue, Ma, Guan, "FedCP: Separating Feature Information for Personalized
    Federated Learning via Conditional Policy", KDD 2023.

    Examples
    --------
    >>> from skfedhip import FedCPClassifier
    >>> from skfedhip.datasets import make_federated_classification
    >>> X, y, groups = make_federated_classification(random_state=0)
    >>> clf = FedCPClassifier(n_rounds=5, lr=0.05, random_state=0).fit(X, y, groups=groups)
    >>> clf.policy(X[:3], groups=groups[:3]).shape
    (3, 512)
    """

    _parameter_constraints = {
        **GradientClassifier._parameter_constraints,
        "lam": [Interval(Real, 0, None, closed="left")],
        "policy_layers": [Interval(Integral, 1, None, closed="left")],
        "policy_norm": [StrOptions({"layer", "group"}), None],
        "policy_activation": [StrOptions({"relu", "tanh", "sigmoid"})],
        "conditional_policy": ["boolean"],
        "global_head": ["boolean"],
    }

    _history_doc = '"client_accuracy", and "personal_rate", the mean share there'

    def __init__(
        self,
        lam=1.0,
        *,
        policy_layers=1,
        policy_norm="layer",
        policy_activation="relu",
        conditional_policy=True,
        global_head=True,
        **shared,
    ):
        super().__init__(**shared)
        self.lam = lam
        self.policy_layers = policy_layers
        self.policy_norm = policy_norm
        self.policy_activation = policy_activation
        self.conditional_policy = conditional_policy
        self.global_head = global_head

    def policy(self, X, *, groups=None):
        """Find the shares of each row's features that go to its client's personal head.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or (n_samples, channels, height, width)
            Rows; with ``group_column``, including that column.
        groups : array-like of shape (n_samples,), default=None
            Client id of each row; unknown clients get the global model.

        Returns
        -------
        ndarray of shape (n_samples, p)
            Numbers in (0, 1); what is left goes to the global head.
        """
        check_is_fitted(self)
        X, ids = self._validate_rows(X, groups, reset=False, allow_none=True)
        self._check_rows(X)
        return self._shares(X, self._client_codes(ids, len(X)))

    def _shares(self, X, codes):
        method = self._fitted_method
        width = self._network.n_features
        return self._active_models().map_clients(method, X, codes, method.shares, width)

    @property
    def personal_rate_(self):
        """Mean share that each client's personal head gets."""
        check_is_fitted(self)
        return self._told["personal_rate"]

    def _learned(self, block):
        method = self._fitted_method
        codes = np.repeat(lookup_ids(self.clients_, block.client_ids), block.counts)
        rates = self._active_models().map_clients(method, block.features(), codes, method.rates, 1)
        return {"personal_rate": np.add.reduceat(rates[:, 0], block.offsets[:-1]) / block.counts}

    def _watched(self, method):
        return {"personal_rate": method.rates}

    def _method(self, **common):
        if self.conditional_policy and not self.global_head:
            raise ValueError(
                "global_head=False leaves the policy nothing to split features between; pass "
                "conditional_policy=False too."
            )
        policy = Policy(
            self._network.n_features,
            self.policy_layers,
            self.policy_norm,
            self.policy_activation,
        )
        return FedCP(
            lam=float(self.lam),
            policy=policy,
            conditional=self.conditional_policy,
            global_head=self.global_head,
            **common,
        )
