"""Modules of the user's own are trained and asked as they are, whatever they do inside."""

import functools
import tracemalloc

import numpy as np
import pytest
import torch
from torch import nn

from skfedhip.gradient import MLP, APFLClassifier, FedAvgClassifier, FedCPClassifier

RNG = np.random.default_rng(0)
X, Y, GROUPS = RNG.normal(size=(60, 6)), np.arange(60) % 3, np.arange(60) // 12
HOW = {"n_rounds": 3, "lr": 0.1, "random_state": 0}


def fitted(factory, cls=FedAvgClassifier, X=X, **how):
    return cls(feature_extractor=factory, **{**HOW, **how}).fit(X, Y, groups=GROUPS)


def same_layer_twice(shape):
    act = nn.ReLU()
    return nn.Sequential(nn.Linear(6, 5), act, nn.Linear(5, 5), act)


class Halved(nn.Sequential):
    def forward(self, x):
        return 0.5 * super().forward(x)


def hooked(shape):
    module = nn.Sequential(nn.Linear(6, 5), nn.ReLU())
    module[0].register_forward_hook(lambda module, inputs, output: 0.5 * output)
    return module


@pytest.mark.parametrize(
    "factory",
    [same_layer_twice, lambda shape: Halved(nn.Linear(6, 5), nn.ReLU()), hooked],
    ids=["twice", "subclass", "hook"],
)
def test_predictions_are_those_of_the_module(factory):
    clf = fitted(factory)
    module = factory((6,))
    own = {n.removeprefix("extractor."): torch.from_numpy(a) for n, a in clf.global_params_.items()}
    module.load_state_dict({n: t for n, t in own.items() if not n.startswith("head.")})
    with torch.no_grad():
        h = module(torch.tensor(X, dtype=torch.float32))
        scores = h @ own["head.weight"].T + own["head.bias"]
    np.testing.assert_allclose(clf.decision_function(X, groups=GROUPS), scores, atol=1e-5)


def test_a_layer_twice_is_trained_as_two_layers_are():
    twice = fitted(same_layer_twice, dtype="float64")
    apart = fitted(MLP((5, 5)), dtype="float64")
    np.testing.assert_allclose(twice.loss_curve_, apart.loss_curve_, rtol=1e-9)


def tied(shape):
    first, second = nn.Linear(6, 6), nn.Linear(6, 6)
    second.weight = first.weight
    return nn.Sequential(first, nn.ReLU(), second)


def one_layer_twice(shape):
    layer = nn.Linear(6, 6)
    return nn.Sequential(layer, nn.ReLU(), layer)


@pytest.mark.parametrize("factory", [tied, one_layer_twice])
def test_parameters_under_two_names_are_refused(factory):
    with pytest.raises(ValueError, match=r"names '0.weight' and '2.weight'; give each layer"):
        fitted(factory)


class Drawing(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 5)

    def forward(self, x):
        return nn.functional.dropout(self.layer(x), 0.5, self.training)


def test_what_a_module_draws_hangs_on_the_seed_alone():
    before = torch.get_rng_state()
    first, again = (fitted(lambda shape: Drawing()) for _ in range(2))
    np.testing.assert_array_equal(first.loss_curve_, again.loss_curve_)
    assert torch.equal(torch.get_rng_state(), before)
    other = fitted(lambda shape: Drawing(), random_state=1)
    assert not np.array_equal(first.loss_curve_, other.loss_curve_)


class Scaling(nn.Module):
    def __init__(self, in_place):
        super().__init__()
        self.layer, self.in_place = nn.Linear(6, 5), in_place

    def forward(self, x):
        x = x.sub_(5).div_(3) if self.in_place else (x - 5) / 3
        return torch.relu(self.layer(x))


@pytest.mark.parametrize("cls", [FedCPClassifier, APFLClassifier])
def test_a_module_may_change_its_input(cls):
    curves = [fitted(lambda shape, i=i: Scaling(i), cls, 3 * X + 5).loss_curve_ for i in (0, 1)]
    np.testing.assert_array_equal(*curves)


class InOnePrecision(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.basis = nn.Linear(6, 5), torch.eye(6)

    def forward(self, x):
        return self.layer(x.float() @ self.basis)


def test_a_module_of_one_precision_is_asked_in_that_of_training():
    clf = fitted(lambda shape: InOnePrecision())
    assert clf.predict(X.astype(float), groups=GROUPS).shape == (60,)


class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 5)
        self.register_buffer("shift", torch.arange(6.0), persistent=False)

    def forward(self, x):
        return self.layer(x + self.shift)


def test_a_buffer_that_no_state_has_is_the_modules():
    shifted = X + np.arange(6.0)
    plain = fitted(lambda shape: nn.Sequential(nn.Linear(6, 5)), X=shifted, dtype="float64")
    ours = fitted(lambda shape: Positions(), dtype="float64")
    np.testing.assert_allclose(ours.loss_curve_, plain.loss_curve_, rtol=1e-6)


def test_what_returns_no_tensor_is_refused():
    class Pair(nn.Linear):
        def forward(self, x):
            return super().forward(x), x

    with pytest.raises(ValueError, match="one tensor, got tuple"):
        fitted(lambda shape: Pair(6, 5))


@pytest.mark.parametrize("sizes", ["64", 64.0, None, True, -3, (8, 0), [8.5]])
def test_numbers_of_units_are_whole(sizes):
    with pytest.raises(ValueError, match="hidden_layer_sizes must be whole numbers"):
        MLP(sizes)


def make(shape, width, activation):
    return nn.Sequential(nn.Linear(6, width), activation())


def test_a_checkpoint_is_of_one_network(tmp_path):
    path, partial = tmp_path / "run", functools.partial
    how = {"checkpoint": path, "checkpoint_every": 1}
    fitted(lambda shape: make(shape, 5, nn.Tanh), n_rounds=2, **how)
    for width, activation in ((8, nn.Tanh), (5, nn.ReLU)):
        with pytest.raises(ValueError, match="of another configuration: network was"):
            fitted(lambda shape, w=width, a=activation: make(shape, w, a), **how)
    path.unlink()
    fitted(partial(make, width=5, activation=nn.Tanh), n_rounds=2, **how)
    resumed = fitted(partial(make, width=5, activation=nn.Tanh), n_rounds=4, **how)
    unbroken = fitted(partial(make, width=5, activation=nn.Tanh), n_rounds=4)
    np.testing.assert_array_equal(resumed.loss_curve_, unbroken.loss_curve_)
    with pytest.raises(ValueError, match="has 4 rounds, more than the 2 asked for"):
        fitted(partial(make, width=5, activation=nn.Tanh), n_rounds=2, **how)


@pytest.mark.parametrize(
    ("cls", "changed"),
    [
        (FedAvgClassifier, {"dtype": "float64"}),
        (FedAvgClassifier, {"feature_extractor": MLP(7)}),
        (FedCPClassifier, {"policy_layers": 2}),
    ],
    ids=["dtype", "extractor", "policy"],
)
@pytest.mark.parametrize("verb", ["fit", "partial_fit"])
def test_a_network_does_not_change_on_the_way(cls, changed, verb):
    clf = fitted(MLP(5), cls, warm_start=True).set_params(**changed)
    with pytest.raises(ValueError, match=r"shape the network.*changed after fit"):
        getattr(clf, verb)(X, Y, groups=GROUPS)


def test_a_model_of_a_device_that_is_not_here_is_loaded(tmp_path):
    clf = fitted(MLP(5)).set_params(device="cuda:99")
    clf.save(tmp_path / "model")
    with pytest.warns(UserWarning, match="no device 'cuda:99' here"):
        again = FedAvgClassifier.load(tmp_path / "model")
    assert again.device == "auto"
    np.testing.assert_array_equal(again.predict(X, groups=GROUPS), clf.predict(X, groups=GROUPS))


def test_one_long_client_does_not_fill_the_memory_with_the_steps_of_short_ones():
    rng = np.random.default_rng(0)
    groups = np.concatenate([np.zeros(20_000, dtype=int), np.arange(1, 1000)])
    X, y = rng.normal(size=(len(groups), 3)).astype(np.float32), groups % 2
    y[:20_000] = np.arange(20_000) % 2
    clf = FedAvgClassifier(n_rounds=1, batch_size=10**6, feature_extractor=MLP(()))
    tracemalloc.start()
    clf.fit(X, y, groups=groups)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200 * 2**20
