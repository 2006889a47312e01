"""FedCP equals a known round, a plain loop with automatic differentiation, and its limits."""

import copy

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.preprocessing import scale
from torch import nn
from torch.nn import functional

from skfedhip import FedCPClassifier, FedPerClassifier
from skfedhip.gradient import MLP
from skfedhip.gradient._functional import BANDWIDTHS, MeanDiscrepancy

from . import _plain as plain
from ._cases import assert_equal, load, rows
from ._data import make, small

NAMES = {
    "extractor.0.weight": "fe_W",
    "extractor.0.bias": "fe_b",
    "head.weight": "head_W",
    "head.bias": "head_b",
    "policy.0.weight": "cpn_W",
    "policy.0.bias": "cpn_b",
    "policy.norm.weight": "ln_w",
    "policy.norm.bias": "ln_b",
}


@pytest.fixture(scope="module")
def case():
    return load("fedcp_round1.npz")


@pytest.fixture(scope="module")
def one_round(case):
    """The estimator after the known round."""
    X, y, groups = rows(case)
    clf = FedCPClassifier(
        float(case["lam"]),
        feature_extractor=MLP((int(case["K"]),)),
        init_params={name: case[f"init_{key}"] for name, key in NAMES.items()},
        n_rounds=1,
        lr=float(case["lr"]),
        batch_size=int(case["batch_size"]),
        shuffle=False,
        drop_last=True,
        dtype="float64",
    )
    return clf.fit(X, y, groups=groups)


def test_the_known_round_is_aggregated_alike(case, one_round):
    for name, key in NAMES.items():
        assert_equal(one_round.global_params_[name], case[f"r1_global_{key}"])


@pytest.mark.parametrize("k", [0, 1])
def test_the_known_round_leaves_the_same_clients(case, one_round, k):
    own = one_round.personal_params_
    assert_equal(own["personal_head.weight"][k], case[f"r1_c{k}_next_personal_head_W"])
    assert_equal(own["personal_head.bias"][k], case[f"r1_c{k}_next_personal_head_b"])
    X = case[f"c{k}_X"]
    groups = np.full(len(X), k)
    logits, share = case[f"r1_c{k}_logits"], case[f"r1_c{k}_mask_p"]
    assert_equal(one_round.decision_function(X, groups=groups), logits)
    assert_equal(one_round.policy(X, groups=groups), share)
    assert_equal(one_round.personal_rate_[k], share.mean())


def test_the_known_losses(case, one_round):
    """The loss of a round is that of its steps, clients weighing their rows."""
    lam, losses, sizes = float(case["lam"]), [], case["n_samples"]
    for k in (0, 1):
        steps = case[f"r1_c{k}_step_ce"] + lam * case[f"r1_c{k}_step_mmd"]
        losses.append(steps.mean())
    assert one_round.loss_curve_ == pytest.approx([np.average(losses, weights=sizes)], abs=1e-9)


# A plain loop, client after client.


class Plain(nn.Module):
    """The model of the paper as it is drawn there."""

    def __init__(self, D, p, d, layers, norm, activation):
        super().__init__()
        act = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid}[activation]
        policy = []
        for i in range(layers):
            policy.append(nn.Linear(p, 2 * p if i == layers - 1 else p))
            if i == layers - 1 and norm is not None:
                policy.append(nn.LayerNorm(2 * p) if norm == "layer" else nn.GroupNorm(2, 2 * p))
            policy.append(act())
        self.extractor = nn.Sequential(nn.Linear(D, p), nn.ReLU())
        self.policy = nn.Sequential(*policy)
        self.head, self.personal_head = nn.Linear(p, d), nn.Linear(p, d)
        self.double()

    def forward(self, x, v):
        h = self.extractor(x)
        a = self.policy(h * v).view(len(x), 2, -1).softmax(1)
        return h, self.head(a[:, 1] * h) + self.personal_head(a[:, 0] * h)


def slow_mmd(h, f):
    def kernel(a, b):
        squared = ((a[:, None] - b[None]) ** 2).sum(2)
        return sum(torch.exp(-squared / (2 * b)) for b in BANDWIDTHS)

    return (kernel(h, h) + kernel(f, f) - 2 * kernel(h, f)).mean()


def named(model):
    """Parameters by our names."""
    out = {}
    linears = [m for m in model.policy if isinstance(m, nn.Linear)]
    norms = [m for m in model.policy if isinstance(m, nn.LayerNorm | nn.GroupNorm)]
    parts = {"extractor.0": model.extractor[0], "head": model.head}
    parts |= {f"policy.{i}": m for i, m in enumerate(linears)}
    if norms:
        parts["policy.norm"] = norms[0]
    for name, module in parts.items():
        out |= {f"{name}.weight": module.weight, f"{name}.bias": module.bias}
    return out


def plain_rounds(model, X, y, groups, *, n_rounds, lam, lr, weight_decay, batch_size, epochs):
    """Global model, and personal heads by client, after some rounds in stored order."""
    X, y = torch.from_numpy(X), torch.from_numpy(y)
    heads = {k: copy.deepcopy(model.head) for k in np.unique(groups)}
    for _ in range(n_rounds):
        sent = []
        for k in heads:
            local, own = copy.deepcopy(model), groups == k
            local.personal_head = heads[k]
            v = functional.normalize(heads[k].weight.detach().sum(0), dim=0)
            trained = [*local.extractor.parameters(), *local.policy.parameters()]
            sgd = torch.optim.SGD([*trained, *heads[k].parameters()], lr, weight_decay=weight_decay)
            for _ in range(epochs):
                for x, t in zip(X[own].split(batch_size), y[own].split(batch_size), strict=True):
                    h, logits = local(x, v)
                    loss = functional.cross_entropy(logits, t)
                    loss = loss + lam * slow_mmd(h, model.extractor(x).detach())
                    sgd.zero_grad()
                    loss.backward()
                    sgd.step()
            with torch.no_grad():
                for ours, other in zip(local.head.parameters(), heads[k].parameters(), strict=True):
                    ours.copy_((ours + other) / 2)
            sent.append((own.sum(), named(local)))
        with torch.no_grad():
            for name, tensor in named(model).items():
                tensor.copy_(sum(n * p[name] for n, p in sent) / len(groups))
    return model, heads


@pytest.mark.parametrize(
    ("layers", "norm", "activation"),
    [(1, "layer", "relu"), (2, "layer", "tanh"), (3, "group", "sigmoid"), (1, None, "sigmoid")],
)
def test_rounds_equal_a_plain_loop(layers, norm, activation):
    X, y, groups = small(sizes=(1, 4, 9, 17))
    torch.manual_seed(0)
    model = Plain(X.shape[1], 5, 3, layers, norm, activation)
    how = {"lam": 2.0, "lr": 0.3, "weight_decay": 0.01, "batch_size": 4}
    clf = make(
        FedCPClassifier,
        n_rounds=3,
        local_epochs=2,
        shuffle=False,
        feature_extractor=MLP((5,)),
        init_params={n: t.detach().numpy().copy() for n, t in named(model).items()},
        policy_layers=layers,
        policy_norm=norm,
        policy_activation=activation,
        **how,
    ).fit(X, y, groups=groups)
    model, heads = plain_rounds(model, X, y, groups, n_rounds=3, epochs=2, **how)
    for name, tensor in named(model).items():
        assert_equal(clf.global_params_[name], tensor.detach().numpy())
    for k, head in heads.items():
        model.personal_head = head
        v = functional.normalize(head.weight.detach().sum(0), dim=0)
        logits = model(torch.from_numpy(X), v)[1].detach().numpy()
        assert_equal(clf.decision_function(X, groups=[k] * len(X)), logits)
    model.personal_head = model.head
    v = functional.normalize(model.head.weight.detach().sum(0), dim=0)
    unknown = clf.decision_function(X, groups=[None] * len(X))
    assert_equal(unknown, model(torch.from_numpy(X), v)[1].detach().numpy())


def test_mmd_and_its_gradient():
    rng = np.random.default_rng(0)
    x, y = (torch.from_numpy(rng.normal(size=(2, 6, 4), scale=3)) for _ in range(2))
    weight = torch.zeros(2, 6, dtype=torch.float64)
    weight[0], weight[1, :4] = 1 / 6, 1 / 4  # the second client has only four rows
    value, grad = MeanDiscrepancy(x)(x, y, weight)
    for k, n in enumerate((6, 4)):
        h = x[k, :n].clone().requires_grad_()
        slow = slow_mmd(h, y[k, :n])
        slow.backward()
        assert_equal(value[k], slow.detach())
        assert_equal(grad[k, :n], h.grad)
        assert_equal(grad[k, n:], 0.0)


@pytest.mark.parametrize("offset", [0.0, 30.0, 1000.0])
def test_mmd_keeps_its_digits_far_from_zero(offset):
    rng = np.random.default_rng(0)
    x = torch.from_numpy(offset + 0.3 * rng.normal(size=(1, 10, 64))).float()
    y = x + torch.from_numpy(0.01 * rng.normal(size=(1, 10, 64))).float()
    weight = torch.full((1, 10), 0.1)
    value, grad = MeanDiscrepancy(x)(x, y, weight)
    exact, slope = MeanDiscrepancy(x.double())(x.double(), y.double(), weight.double())
    np.testing.assert_allclose(value, exact, rtol=2e-3)
    assert (grad - slope).norm() < 1e-4 * slope.norm()


# Limits.


def test_without_its_modules_it_is_fedper():
    X, y, groups = small()
    bare = {"conditional_policy": False, "global_head": False}
    ours = make(FedCPClassifier, 0.0, **bare).fit(X, y, groups=groups)
    fedper = make(FedPerClassifier).fit(X, y, groups=groups)
    for ids in (groups, [None] * len(y)):
        assert_equal(ours.decision_function(X, groups=ids), fedper.decision_function(X, groups=ids))


def test_a_policy_that_always_says_half_is_none():
    X, y, groups = small()
    p, how = 5, {"feature_extractor": MLP((5,)), "weight_decay": 0.0}
    blind = {
        "policy.norm.weight": np.zeros(2 * p),
        "policy.norm.bias": -np.ones(2 * p),  # below ReLU's corner, where no gradient passes
    }
    clf = make(FedCPClassifier, init_params=blind, **how).fit(X, y, groups=groups)
    none = make(FedCPClassifier, conditional_policy=False, **how).fit(X, y, groups=groups)
    np.testing.assert_array_equal(clf.policy(X, groups=groups), 0.5)
    np.testing.assert_array_equal(none.policy(X, groups=groups), 0.5)
    assert_equal(clf.decision_function(X, groups=groups), none.decision_function(X, groups=groups))


def test_alignment_keeps_features_where_they_were():
    X, y, groups = small()

    def moved(lam):
        clf = make(FedCPClassifier, lam, n_rounds=1, lr=0.1, batch_size=50)
        clf.fit(X, y, groups=groups)
        start = clf._network.initial(torch.float64)
        x = torch.from_numpy(X)[None]
        mapper = clf._network.mapper(training=False)
        h, h0 = (
            mapper({n: torch.as_tensor(p)[None] for n, p in params.items()}, x)[0]
            for params in (clf.global_params_, start)
        )
        return float((h - h0).norm())

    assert moved(10.0) <= moved(0.0) * (1 + 1e-9)


def test_a_policy_needs_two_heads():
    X, y, groups = small()
    with pytest.raises(ValueError, match="conditional_policy=False too"):
        make(FedCPClassifier, global_head=False).fit(X, y, groups=groups)


def test_personal_rates_of_old_clients_stay_in_a_stream():
    X, y, groups = small()
    clf = make(FedCPClassifier).fit(X, y, groups=groups)
    before, new = clf.personal_rate_.copy(), groups == groups.max()
    clf.partial_fit(X[new], y[new], groups=groups[new])
    np.testing.assert_array_equal(clf.personal_rate_[:-1], before[:-1])
    expected = clf.policy(X[new], groups=groups[new]).mean()
    assert clf.personal_rate_[-1] == pytest.approx(expected, rel=1e-6)


def test_the_history_of_personal_rates_is_of_rows_held_out():
    X, y, groups = small(sizes=(1, 6, 9, 17))
    clf = make(FedCPClassifier, validation_fraction=0.4, model="last").fit(X, y, groups=groups)
    rows, _, codes = clf._hold_out(clf._block(X, y, groups))[1]
    shares = clf.policy(rows, groups=clf.clients_[codes]).mean(1)
    expected = [shares[codes == k].mean() for k in (1, 2, 3)]
    rates = clf.history_["personal_rate"]
    assert rates.shape == (3, 4)
    np.testing.assert_allclose(rates[-1, 1:], expected, rtol=0, atol=1e-12)
    assert np.isnan(rates[:, 0]).all()  # a client of one row holds out none
    assert np.abs(np.diff(rates[:, 1:], axis=0)).min() > 0
    assert "personal_rate" not in make(FedCPClassifier).fit(X, y, groups=groups).history_


@pytest.mark.parametrize(("transform", "least"), [(lambda X: X / 16, 0.25), (scale, 0.7)])
def test_defaults_learn_and_do_not_collapse(transform, least):
    """The loss falls in each round; a client given one class only would be warned of."""
    X, y = load_digits(return_X_y=True)
    X, y, groups = transform(X)[:600], y[:600], np.arange(600) % 4
    clf = FedCPClassifier(n_rounds=10, random_state=0).fit(X, y, groups=groups)
    assert (np.diff(clf.loss_curve_) < 0).all()
    assert clf.score(X, y, groups=groups) > least


def test_a_client_never_met_has_the_global_head():
    clf, (X, _, _) = plain.fitted(FedCPClassifier, join_ratio=0.25)
    for k in plain.cohorts(clf)[1]:
        scores = clf.decision_function(X, groups=[k] * len(X))
        np.testing.assert_array_equal(scores, clf.decision_function(X))
