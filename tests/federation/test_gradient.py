"""Gradient methods over a network equal fits, whoever takes part, is lost, or lies."""

import numpy as np
import pytest
import torch.nn as nn
from _data import IDS, assert_close, client_scores

from skfedhip import (
    DittoClassifier,
    FedAvgClassifier,
    FedCPClassifier,
    FedPerClassifier,
    gradient,
)
from skfedhip.federation._client import Unfit
from skfedhip.federation._server import Server, probe_block
from skfedhip.federation._wire import RefusedMessage, decode_broadcast, encode
from skfedhip.gradient import MLP, FastText
from skfedhip.gradient._updates import ClientModel
from skfedhip.protocol import Schema

from .local import LocalNetwork, conduct, conduct_until_killed, rows_of

CLASSIFIERS = [name for name in gradient.__all__ if name.endswith("Classifier")]


def make(cls, **params):
    """An estimator in float64 with a small network and a few rounds."""
    defaults = {
        "n_rounds": 3,
        "lr": 0.2,
        "batch_size": 8,
        "feature_extractor": MLP((6,)),
        "dtype": "float64",
        "random_state": 0,
        "missing_groups": "global",
    }
    return cls(**{**defaults, **params})


@pytest.fixture(params=CLASSIFIERS)
def cls(request):
    """Every gradient classifier."""
    return getattr(gradient, request.param)


def network_of(estimator, data, **how):
    rows = {client: (X, y) for client, (X, y, _) in rows_of(data).items()}
    return LocalNetwork(estimator, rows, **how)


def fit(estimator, data):
    return estimator.fit(data.X, data.y, groups=data.groups)


def schema_of(data):
    return Schema(data.X.shape[1], np.unique(data.y), data.X.dtype)


def assert_each_client_has_its_model(fitted, clf, X, clients=IDS):
    """What a client made at home is what it has in one fit of everybody."""
    assert set(fitted) == set(clients)
    for client, own in fitted.items():
        k = clf.clients_.tolist().index(client)
        assert own.clients_.tolist() == [client]
        assert own.n_rounds_ == clf.n_rounds_
        for name, array in clf.personal_params_.items():
            assert_close(own.personal_params_[name][0], array[k])
        assert_close(*(client_scores(each, X, client) for each in (own, clf)))


def global_model(conductor):
    server, estimator = conductor.server, conductor.estimator._federated(conductor.schema)
    history = [decode_broadcast(message) for message in server.history_for(None)]
    probe = probe_block(conductor.schema)
    return estimator._finish_globally(probe, history, server.server_state)


@pytest.mark.parametrize("join_ratio", [1.0, (0.3, 0.9)])
def test_a_federation_equals_a_fit(cls, data, join_ratio):
    estimator = make(cls, join_ratio=join_ratio)
    network, clf = network_of(estimator, data), fit(make(cls, join_ratio=join_ratio), data)
    conductor, report = conduct(network, min_clients=6)
    assert (report.lost, report.refused, report.left) == ([], {}, [])
    assert sorted(report.updated) == sorted(IDS)
    assert_each_client_has_its_model(network.fitted, clf, data.X)
    own = global_model(conductor)
    assert own.global_params_.keys() == clf.global_params_.keys()
    assert_close(
        *(each.decision_function(data.X, groups=[None] * len(data.y)) for each in (own, clf))
    )
    # Only the cohort is asked, and each message is what the fit counts of it.
    asked = [(client, r) for client, task, r in network.log if task == "update"]
    method = clf._fitted_method
    assert set(asked) == {
        (c, r) for r in range(3) for c, on in zip(IDS, method.joins(IDS, r), strict=True) if on
    }
    headers = 1200 * 3
    sent = np.array([report.bytes_up[client] for client in clf.clients_.tolist()])
    assert np.all((clf.bytes_up_ <= sent) & (sent <= clf.bytes_up_ + headers))


def test_models_of_half_precision_travel_as_they_are(data):
    clf = make(FedAvgClassifier, dtype="float32")
    network = network_of(clf, data)
    _, report = conduct(network, min_clients=6)
    fit(clf, data)
    assert 3 * 4 * sum(a.size for a in clf.global_params_.values()) < clf.bytes_up_[0]
    assert max(report.bytes_up.values()) < clf.bytes_up_[0] + 3 * 1200
    own = network.fitted[IDS[0]]
    for name, array in clf.global_params_.items():
        assert own.global_params_[name].dtype == array.dtype == np.float32
        np.testing.assert_allclose(own.global_params_[name], array, atol=1e-6)


def convolution(shape):
    """One with batch normalization, whose buffers travel too."""
    layers = nn.Conv2d(shape[0], 2, 3), nn.BatchNorm2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return nn.Sequential(*layers)


NETWORKS = {"images": (convolution, (3, 4, 5)), "tokens": (FastText(9, 4), (5,))}


@pytest.mark.parametrize("kind", NETWORKS)
def test_networks_take_rows_of_their_shape(kind):
    factory, shape = NETWORKS[kind]
    rng, groups = np.random.default_rng(0), np.repeat(["a", "b"], [5, 8])
    X = rng.normal(size=(13, *shape))
    X = rng.integers(0, 9, X.shape) if kind == "tokens" else X
    y = np.arange(13) % 3
    clf = make(FedCPClassifier, n_rounds=2, feature_extractor=factory, lr=0.05)
    network = LocalNetwork(clf, {c: (X[groups == c], y[groups == c]) for c in "ab"})
    conductor, report = conduct(network, min_clients=2)
    assert report.refused == {}
    assert conductor.schema.row_shape == shape
    clf.fit(X, y, groups=groups)
    for client, own in network.fitted.items():
        assert_close(*(client_scores(each, X, client) for each in (own, clf)))


def test_a_network_of_many_layers_travels(data):
    """The names and shapes of its parameters are more than a closed form's whole header."""
    clf = make(FedAvgClassifier, n_rounds=1, feature_extractor=MLP((1,) * 100))
    network = network_of(clf, data.of(40, 41), dtype="float32")
    _, report = conduct(network, min_clients=2)
    assert report.refused == {}
    assert sorted(report.updated) == [40, 41]


# Who is lost, or lies.


@pytest.mark.parametrize("cls", [DittoClassifier, FedCPClassifier])
def test_a_client_that_dies_between_rounds_is_named_and_the_others_go_on(cls, data):
    """The others' last rounds are those of a federation without it that starts where they stand."""
    network = network_of(make(cls), data)
    send = network.send

    def dying(node, task, request):
        if request.get("round") == 1:
            network.kill(41)
        send(node, task, request)

    network.send = dying
    conductor, report = conduct(network, schema=schema_of(data))
    assert report.lost == [41]
    assert set(report.updated) == set(IDS) - {41}
    assert not [c for c, _, round_ in network.log if c == 41 and round_]
    assert conductor.server.roster == [c for c in sorted(IDS) if c != 41]
    rest = make(cls, n_rounds=1).partial_fit(data.X, data.y, groups=data.groups)
    left = data.without(41)
    for _ in range(2):
        rest.partial_fit(left.X, left.y, groups=left.groups)
    others = [c for c in IDS if c != 41]
    assert_each_client_has_its_model(network.fitted, rest, data.X, others)


def test_a_cohort_loses_as_many_as_all_clients_may(data):
    network = network_of(make(FedAvgClassifier, join_ratio=0.5), data)
    network.silent = {client: ["update"] for client in (40, 41)}
    schema = schema_of(data)
    _, report = conduct(network, schema=schema, min_clients=4)
    assert set(report.lost) <= {40, 41}
    assert {40, 41} & {*report.lost}
    network = network_of(make(FedAvgClassifier, join_ratio=0.5), data)
    network.silent = {client: ["update"] for client in IDS[:5]}
    with pytest.raises(RuntimeError, match=r"the updates of \d clients, 2 are needed"):
        conduct(network, schema=schema, min_clients=5)


class Clock:
    """A time that passes by being looked at."""

    now = 0.0

    def monotonic(self):
        self.now += 0.01
        return self.now

    def sleep(self, seconds):
        pass


def test_a_client_that_was_named_is_waited_for_once(data, monkeypatch):
    rows, clock = data.without(12), Clock()
    monkeypatch.setattr("skfedhip.federation._conductor.time", clock)
    network = network_of(make(FedAvgClassifier), rows)
    patience = {"clients": IDS, "min_clients": 5, "round_seconds": 2.0}
    _, report = conduct(network, schema=schema_of(data), **patience)
    assert report.lost == [12]
    assert 2.0 < clock.now < 4.0
    others = set(IDS) - {12}
    assert_each_client_has_its_model(
        network.fitted, fit(make(FedAvgClassifier), rows), data.X, others
    )


def test_a_client_that_comes_back_between_rounds_goes_on_from_what_it_kept(data):
    network = network_of(make(FedPerClassifier, n_rounds=4), data)
    send, gone = network.send, []

    def absent(node, task, request):
        silent = network.clients.get(node) == 41 and request.get("round") == 1
        if silent:
            gone.append(node)
        else:
            send(node, task, request)

    def replies(take=network.replies):
        yield from take()
        if gone and network.log[-1][2] == 2:  # late, it shows that it is there
            yield gone.pop(), {}

    network.send, network.replies = absent, replies
    _, report = conduct(network, schema=schema_of(data))
    assert report.lost == []
    assert set(network.fitted) == set(IDS)
    rounds = [round_ for c, task, round_ in network.log if c == 41 and task == "update"]
    assert rounds[0] == 0
    assert 1 not in rounds
    assert rounds[-1] == 3


@pytest.mark.parametrize("after", [1, 6, 13])
def test_a_killed_server_goes_on_with_the_cohort_that_it_drew(after, data, tmp_path, monkeypatch):
    path, clf = tmp_path / "state", make(FedCPClassifier, n_rounds=4, join_ratio=0.5)
    network = network_of(clf, data)
    conduct_until_killed(
        after, monkeypatch, network, schema=schema_of(data), path=path, min_clients=6
    )
    network.queue.clear()
    _, report = conduct(network, schema=schema_of(data), path=path, min_clients=6)
    assert report.lost == []
    assert_each_client_has_its_model(network.fitted, fit(clf, data), data.X)
    updates = [entry for entry in network.log if entry[1] == "update"]
    assert len(updates) - len(set(updates)) <= 1  # one message may have been on its way


def test_a_client_whose_training_diverges_says_so(data):
    network = network_of(make(FedAvgClassifier, lr=1e200), data)
    with pytest.raises(Unfit, match="training diverged at client"):
        conduct(network, schema=schema_of(data))


def poisons(good):
    nan = {n: np.full_like(array, np.nan) for n, array in good.parameters.items()}
    short = {n: array[:1] for n, array in good.parameters.items()}
    return {
        "a number that is not finite": (nan, good.weight, good.loss),
        "another shape": (short, good.weight, good.loss),
        "a huge weight": (good.parameters, 1e6 * good.weight, good.loss),
        "a negative weight": (good.parameters, -good.weight, good.loss),
        "no rows": (good.parameters, good.weight, 0 * good.loss),
    }


@pytest.mark.parametrize("name", poisons(ClientModel({}, np.ones(()), np.ones(2))))
def test_poison_is_refused(name, data):
    method = make(FedAvgClassifier)._federated(schema_of(data))._fitted_method
    server = Server(method, schema_of(data))
    server.enroll([3, 12])
    own = make(FedAvgClassifier)._federated(schema_of(data))
    rows = data.of(3)
    good, _ = method.client_update(own._client_block(rows.X, rows.y, 3), server.broadcast, None)
    with pytest.raises(RefusedMessage):
        server.receive(3, encode(ClientModel(*poisons(good)[name])))
    server.receive(3, encode(good))
    assert server.members == [3]


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"validation_fraction": 0.2}, "validation_fraction=0.2 takes what all clients have"),
        ({"patience": 3}, "patience=3 takes what all clients have"),
        ({"checkpoint": "file"}, "clients and server keep their own state"),
        ({"random_state": None}, "pass an int"),
        ({"lr": -1.0}, "lr"),
    ],
)
def test_what_takes_all_clients_in_one_place_is_refused(params, match, data):
    with pytest.raises(ValueError, match=match):
        make(FedAvgClassifier, **params)._federated(schema_of(data))


def test_weights_are_refused(data):
    own = make(FedAvgClassifier)._federated(schema_of(data))
    with pytest.raises(ValueError, match="takes no sample_weight"):
        own._client_block(data.X, data.y, 3, data.weight)


@pytest.mark.parametrize("cls", [FedPerClassifier, FedCPClassifier])
def test_what_came_home_is_saved_and_goes_on(cls, data, tmp_path):
    network = network_of(make(cls), data)
    conduct(network, min_clients=6)
    own, rows = network.fitted[40], data.of(40)
    own.save(tmp_path / "model")
    back = cls.load(tmp_path / "model")
    np.testing.assert_array_equal(back.bytes_up_, own.bytes_up_)
    np.testing.assert_array_equal(back.bytes_down_, own.bytes_down_)
    for each in (own, back):
        each.partial_fit(rows.X, rows.y, groups=rows.groups)
    np.testing.assert_array_equal(
        *(each.decision_function(rows.X, groups=rows.groups) for each in (own, back))
    )
