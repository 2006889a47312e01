"""Federations over a network equal fits, whoever is lost, lies, comes back, or leaves."""

import gc
import json
import tracemalloc
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest
from _data import IDS, assert_close, federation
from sklearn.base import BaseEstimator

from skfedhip import (
    AFLClassifier,
    AnaPFLClassifier,
    FedHiPClassifier,
    FedHiPClassifierCV,
    LocalRidgeClassifier,
)
from skfedhip.core import ClientBlock
from skfedhip.federation._client import Participant, Unfit
from skfedhip.federation._server import (
    Server,
    probe_block,
    schema_to_json,
    stored_schema,
)
from skfedhip.federation._store import pack, unpack
from skfedhip.federation._wire import decode_broadcast, encode
from skfedhip.protocol import Broadcast, ClientUpdate, Empty, Schema, run_federation

from .local import LocalNetwork, conduct, conduct_until_killed, rows_of

ESTIMATORS = {
    "FedHiP": FedHiPClassifier(2.0),
    "FedHiP intercept": FedHiPClassifier(2.0, 0.3, fit_intercept=True),
    "FedHiP own classes": FedHiPClassifier(local_classes_only=True, class_weight={"cat": 2.0}),
    "AFL": AFLClassifier(),
    "AnaPFL": AnaPFLClassifier(n_components=12, random_state=0, fit_intercept=True),
    "Local": LocalRidgeClassifier(0.5, fit_intercept=True),
}
for each in ESTIMATORS.values():
    each.set_params(missing_groups="global")


def assert_each_client_has_its_model(fitted, clf, X, clients=None):
    """What a client made at home is what it has in one fit of everybody."""
    clients = clf.clients_.tolist() if clients is None else clients
    assert set(clients) <= set(fitted)
    for client in clients:
        own, k = fitted[client], clf.clients_.tolist().index(client)
        assert own.clients_.tolist() == [client]
        assert_close(own.coef_, clf.coef_)
        assert_close(own.personal_coef_[0], clf.personal_coef_[k])
        assert_close(own.personal_intercept_[0], clf.personal_intercept_[k])
        assert own.temperature_ == pytest.approx(clf.temperature_, rel=1e-8)
        mine, theirs = (each.predict_proba(X, groups=[client] * len(X)) for each in (own, clf))
        np.testing.assert_allclose(mine, theirs, atol=1e-8)


@pytest.fixture(params=ESTIMATORS)
def estimator(request):
    return ESTIMATORS[request.param]


def test_a_federation_equals_a_fit(estimator, data):
    network = LocalNetwork(estimator, rows_of(data))
    conductor, report = conduct(network, min_clients=6)
    assert sorted(report.clients) == sorted(report.updated) == sorted(IDS)
    assert (report.lost, report.refused, report.left) == ([], {}, [])
    assert_each_client_has_its_model(network.fitted, data.fit(estimator), data.X)
    # Each was asked once for each round, and for no more.
    rounds = conductor.server.method.n_rounds
    assert Counter(network.log) == Counter(
        (c, task, r)
        for c in IDS
        for task, r in [
            ("hello", None),
            *(("update", r) for r in range(rounds)),
            ("finish", None),
        ]
    )


def test_float32_halves_the_bytes_and_keeps_seven_digits(data):
    clf, half = data.fit(ESTIMATORS["FedHiP"]), "float32"
    networks = [LocalNetwork(ESTIMATORS["FedHiP"], rows_of(data), dtype=d) for d in (None, half)]
    full, small = (conduct(network, min_clients=6)[1].bytes_up for network in networks)
    header = 400 * 2
    assert all(small[c] - header < full[c] / 2 for c in IDS)
    coef = networks[1].fitted[41].personal_coef_
    assert_close(coef[0], clf.personal_coef_[clf.clients_.tolist().index(41)], rtol=1e-5)


def test_the_server_has_the_global_model_alone(estimator, data):
    network = LocalNetwork(estimator, rows_of(data))
    conductor, _ = conduct(network, min_clients=6)
    server = conductor.server
    history = [decode_broadcast(message) for message in server.history_for(None)]
    own = estimator._federated(conductor.schema)
    own._finish_globally(probe_block(conductor.schema), history, server.server_state)
    clf = data.fit(estimator)
    assert len(own.clients_) == 0
    assert_close(own.coef_, clf.coef_)
    np.testing.assert_array_equal(own.predict(data.X), clf.predict(data.X))


# Who is lost, lies or comes back.


def without(clients, data, estimator):
    return data.without(*clients).fit(estimator)


def test_a_silent_client_is_named_and_the_others_go_on(estimator, data):
    network = LocalNetwork(estimator, rows_of(data), silent={12: ["update"]})
    schema = Schema(6, np.unique(data.y), np.dtype(float))
    _, report = conduct(network, schema=schema)
    assert report.lost == [12]
    assert set(report.clients) == set(IDS) - {12}
    rest = without([12], data, estimator)
    assert_each_client_has_its_model(network.fitted, rest, data.X)
    assert 12 not in network.fitted


def test_a_client_that_never_comes_is_named_where_it_was_expected(data):
    rows = rows_of(data)
    del rows[12]
    network = LocalNetwork(ESTIMATORS["AFL"], rows)
    _, report = conduct(network, clients=IDS, min_clients=5)
    assert report.lost == [12]
    rows["guest"] = rows[3]
    network = LocalNetwork(ESTIMATORS["AFL"], rows)
    _, report = conduct(network, clients=IDS, min_clients=5)
    assert report.refused == {"guest": "it is not one of the expected clients"}
    assert set(report.clients) == set(IDS) - {12}


def nan_update(task, reply):
    """Poison in the first float64 of the message's numbers."""
    if task != "update":
        return reply
    data = bytearray(reply["update"])
    start = 8 + int.from_bytes(data[:8], "little")
    data[start : start + 8] = np.array([np.nan]).tobytes()
    return reply | {"update": bytes(data)}


def only_updates(lie):
    return lambda task, reply: lie(reply) if task == "update" else reply


LIES = {
    "a NaN": nan_update,
    "nothing": only_updates(lambda reply: {"client": reply["client"]}),
    "a number": only_updates(lambda reply: reply | {"update": 7}),
    "another name": only_updates(lambda reply: reply | {"client": 3}),
    "an exception": only_updates(lambda reply: RuntimeError("out of memory")),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lying_client_is_named_and_left_out(lie, estimator, data):
    network = LocalNetwork(estimator, rows_of(data), replace={41: LIES[lie]})
    schema = Schema(6, np.unique(data.y), np.dtype(float))
    _, report = conduct(network, schema=schema)
    if lie == "nothing":  # it answers what was not asked, and is lost with it
        assert report.lost == [41]
    else:
        assert list(report.refused) == [41]
    assert set(report.clients) == set(IDS) - {41}
    assert_each_client_has_its_model(network.fitted, without([41], data, estimator), data.X)


def test_a_client_with_other_classes_or_features_is_refused_by_itself(data):
    rows = rows_of(data)
    rows["classes"] = (data.X[:4], np.array(["cat", "dog", "emu", "fox"]))
    rows["features"] = (data.X[:4, :-1], data.y[:4])
    schema = Schema(6, np.unique(data.y), np.dtype(float))
    network = LocalNetwork(ESTIMATORS["FedHiP"], rows)
    send = network.replies

    def replies():  # as the app does it
        queue = network.queue
        network.queue = []
        for item in queue:
            network.queue = [item]
            try:
                yield from list(send())
            except Unfit as error:
                yield item[0], RuntimeError(str(error))
        network.queue = []

    network.replies = replies
    _, report = conduct(network, schema=schema)
    assert set(report.refused) == {"classes", "features"}
    assert "classes" in report.refused["classes"]
    assert "(4, 5)" in report.refused["features"]
    assert_each_client_has_its_model(network.fitted, data.fit(network.estimator), data.X)


def test_classes_and_features_are_agreed_on_where_nobody_gave_them(data):
    rows = rows_of(data)
    rows["odd"] = (data.X[:4, :-1], data.y[:4])
    network = LocalNetwork(ESTIMATORS["AFL"], rows, silent={"odd": ["update"]})
    conductor, report = conduct(network, min_clients=6)
    assert report.lost == ["odd"]
    assert conductor.schema.classes.tolist() == ["cat", "dog", "fox"]
    assert conductor.schema.n_features == 6


def claimed(classes, dtype="<f8"):
    """A schema as text that a stranger may have written."""
    return json.dumps({"shape": [6], "classes": classes, "dtype": dtype})


CLAIMS = {
    "brackets": "[" * 100_000,
    "not a text": 7,
    "dicts for labels": claimed({"dtype": "|O", "values": [{}]}),
    "NaN for a label": claimed({"dtype": "<f8", "values": [np.nan]}),
    "no label": claimed({"dtype": "|O", "values": [None, "cat"]}),
    "rows of text": claimed({"dtype": "<U3", "values": ["cat"]}, dtype="<U3"),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_client_with_a_schema_of_no_rows_is_named(claim, data):
    lie = lambda task, reply: reply | {"schema": CLAIMS[claim]} if task == "hello" else reply  # noqa: E731
    network = LocalNetwork(ESTIMATORS["AFL"], rows_of(data), replace={41: lie})
    conductor, report = conduct(network, min_clients=5)
    assert report.refused == {41: "it did not say which classes and features it has"}
    assert conductor.schema.classes.tolist() == ["cat", "dog", "fox"]
    assert set(report.clients) == set(IDS) - {41}


def test_labels_of_another_kind_than_most_have_are_not_agreed_on(data):
    rows, numbers = rows_of(data), claimed({"dtype": "<i8", "values": [1, 2]})
    lie = lambda task, reply: reply | {"schema": numbers} if task == "hello" else reply  # noqa: E731
    network = LocalNetwork(ESTIMATORS["AFL"], rows, replace={41: lie})
    conductor, _ = conduct(network, min_clients=6)
    assert conductor.schema.classes.tolist() == ["cat", "dog", "fox"]


@pytest.mark.parametrize("moment", ["update", "finish"])
def test_a_client_that_comes_back_is_added_exactly_and_nobody_else_sends_again(
    moment, estimator, data
):
    network = LocalNetwork(estimator, rows_of(data), silent={12: [moment]})
    schema = Schema(6, np.unique(data.y), np.dtype(float))
    back = []

    class Returning(LocalNetwork):
        def nodes(self):
            # When all others have their models, the lost one comes back as a new node.
            if not back and len(self.fitted) == 5:
                self.kill(12)
                self.silent.clear()
                self.join(12)
                back.append(len(self.log))
            return super().nodes()

    network.__class__ = Returning
    _, report = conduct(network, schema=schema, late_seconds=2.0)
    assert set(report.clients) == set(IDS)
    assert report.lost == []
    first = Counter(client for client, task, round_ in network.log if round_ == 0)
    assert first == dict.fromkeys(IDS, 1)
    if moment == "update":
        assert_each_client_has_its_model(network.fitted, data.fit(estimator), data.X)


def test_two_nodes_of_one_client_count_once(data):
    other = federation(seed=3)
    rows = rows_of(data)
    network = LocalNetwork(ESTIMATORS["AFL"], rows)
    network.join(12)  # a second node that says it is 12, with other rows
    impostor = max(node for node, client in network.clients.items() if client == 12)
    shown = rows_of(other)[12]
    send = network.replies

    def replies():
        queue = network.queue
        for item in queue:
            network.queue = [item]
            network.rows = rows | ({12: shown} if item[0] == impostor else {})
            yield from list(send())
        network.queue = []

    network.replies = replies
    _, report = conduct(network, schema=Schema(6, np.unique(data.y), np.dtype(float)))
    assert sorted(report.clients) == sorted(IDS)
    assert "another message of this client" in report.refused[12]
    assert_close(network.fitted[3].coef_, data.fit(ESTIMATORS["AFL"]).coef_)


def test_too_few_clients_end_the_run_and_keep_what_came(data, tmp_path):
    network = LocalNetwork(ESTIMATORS["FedHiP"], rows_of(data.of(3, 12)))
    with pytest.raises(RuntimeError, match="said which classes"):
        conduct(network, min_clients=3)
    schema, path = Schema(6, np.unique(data.y), np.dtype(float)), tmp_path / "state"
    with pytest.raises(RuntimeError, match="the updates of 2 clients, 3 are needed"):
        conduct(network, schema=schema, min_clients=3, path=path)
    again = LocalNetwork(ESTIMATORS["FedHiP"], rows_of(data))
    conduct(again, schema=schema, min_clients=3, path=path)
    assert not [c for c, _, round_ in again.log if round_ == 0 and c in (3, 12)]
    assert_each_client_has_its_model(again.fitted, data.fit(ESTIMATORS["FedHiP"]), data.X)


# The server's memory.


@pytest.mark.parametrize("after", range(1, 9))
def test_a_server_that_is_killed_after_any_message_loses_nothing(
    after, data, tmp_path, monkeypatch
):
    path, estimator = tmp_path / "state", ESTIMATORS["FedHiP intercept"]
    schema = Schema(6, np.unique(data.y), np.dtype(float))
    network = LocalNetwork(estimator, rows_of(data))
    conduct_until_killed(after, monkeypatch, network, schema=schema, path=path)
    assert schema_to_json(stored_schema(path)) == schema_to_json(schema)
    again = LocalNetwork(estimator, rows_of(data))  # the clients have new nodes, without memory
    _, report = conduct(again, schema=stored_schema(path), path=path)
    assert sum(round_ == 0 for _, _, round_ in again.log) == max(6 - after, 0)
    assert_each_client_has_its_model(again.fitted, data.fit(estimator), data.X)
    assert sorted(report.clients) == sorted(IDS)


def test_a_state_of_something_else_is_refused(data, tmp_path):
    path = tmp_path / "state"
    path.write_bytes(b"no state at all")
    method = data.fit(AFLClassifier())._fitted_method
    schema = Schema(6, np.unique(data.y), np.dtype(float))
    for read in (lambda: Server(method, schema, path=path), lambda: stored_schema(path)):
        with pytest.raises(ValueError, match="holds no state"):
            read()
    path.unlink()
    Server(method, schema, path=path).save()
    with pytest.raises(ValueError, match="of a federation with 6 features"):
        Server(method, Schema(7, schema.classes, schema.dtype), path=path)


def test_a_second_server_on_a_state_is_noticed_before_a_client_is_lost(data, tmp_path):
    path, schema = tmp_path / "state", Schema(6, np.unique(data.y), np.dtype(float))
    own = ESTIMATORS["FedHiP"]._federated(schema)
    method = own._fitted_method
    first, second = (Server(method, schema, path=path) for _ in range(2))
    for server, client in ((first, 3), (second, 12), (first, 40)):
        block = own._client_block(*rows_of(data)[client][:2], client)
        message = encode(method.client_update(block, server.broadcast, None)[0])
        if server is first:
            server.receive(client, message)
        else:
            with pytest.raises(RuntimeError, match="another server has written"):
                server.receive(client, message)
    assert Server(method, schema, path=path).members == [3, 40]


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (FedHiPClassifier(2.0, 100.0), "beta 1.0"),
        (FedHiPClassifier(2.0, fit_intercept=True), "fit_intercept False"),
        (AFLClassifier(), "method FedHiP, alpha 2.0"),
    ],
)
def test_a_state_of_another_estimator_is_refused(other, said, data, tmp_path):
    path, schema = tmp_path / "state", Schema(6, np.unique(data.y), np.dtype(float))
    conduct(LocalNetwork(ESTIMATORS["FedHiP"], rows_of(data)), schema=schema, path=path)
    with pytest.raises(ValueError, match=f"of a federation with {said}"):
        conduct(LocalNetwork(other, rows_of(data)), schema=schema, path=path)


@dataclass(frozen=True)
class Notes:
    text: str
    numbers: np.ndarray


def test_a_store_keeps_what_it_is_given():
    value = {
        "a": [1, 2.5, None, True, "x"],
        ("b", 3): (np.arange(3), np.float32(2.0), b"bytes"),
        "c": Notes("n", np.array(["u", "v"])),
        "d": np.array([1, "mixed", None], dtype=object),
        "e": {},
    }
    again = unpack(pack(value))
    assert list(again) == list(value)
    assert again["a"] == value["a"]
    np.testing.assert_array_equal(again["b", 3][0], np.arange(3))
    assert again["b", 3][1:] == (2.0, b"bytes")
    assert isinstance(again["c"], Notes)
    assert again["c"].numbers.tolist() == ["u", "v"]
    assert again["d"].tolist() == [1, "mixed", None]
    with pytest.raises(TypeError, match="a function can't be kept"):
        pack(by_hand)
    torch = pytest.importorskip("torch")
    tensor = torch.arange(4.0).reshape(2, 2)
    assert torch.equal(unpack(pack([tensor]))[0], tensor)


# Unlearning.


@pytest.mark.parametrize("leaving", [[12], [41, -7]])
def test_a_client_that_leaves_is_as_if_it_had_never_been_there(leaving, estimator, data, tmp_path):
    path, schema = tmp_path / "state", Schema(6, np.unique(data.y), np.dtype(float))
    conduct(LocalNetwork(estimator, rows_of(data)), schema=schema, path=path)
    network = LocalNetwork(estimator, rows_of(data))
    _, report = conduct(network, schema=schema, path=path, forget=leaving)
    assert sorted(report.left) == sorted(leaving)
    assert set(report.clients) == set(IDS) - set(leaving)
    assert {c for c, _, round_ in network.log if round_ == 0} == set(leaving)
    rest = without(leaving, data, estimator)
    assert_each_client_has_its_model(network.fitted, rest, data.X)
    assert not set(leaving) & set(network.fitted)
    # It stays away, though it is connected, and the sum is not touched again.
    third = LocalNetwork(estimator, rows_of(data))
    conduct(third, schema=schema, path=path, forget=leaving)
    assert_each_client_has_its_model(third.fitted, rest, data.X)


def test_what_is_subtracted_is_what_was_added(data, tmp_path):
    path, schema = tmp_path / "state", Schema(6, np.unique(data.y), np.dtype(float))
    estimator, rows = ESTIMATORS["FedHiP"], rows_of(data)
    conduct(LocalNetwork(estimator, rows), schema=schema, path=path)
    before = path.read_bytes()
    changed = rows | {12: (rows[12][0] + 1e-9, *rows[12][1:])}
    with pytest.raises(RuntimeError, match="12 can't be forgotten: it is not what"):
        conduct(LocalNetwork(estimator, changed), schema=schema, path=path, forget=[12])
    network = LocalNetwork(estimator, rows_of(data.without(12)))
    with pytest.raises(RuntimeError, match="not connected"):
        conduct(network, schema=schema, path=path, forget=[12])
    assert path.read_bytes() == before


def test_a_client_whose_subtraction_would_spoil_the_others_can_not_leave(data, tmp_path):
    path, schema = tmp_path / "state", Schema(6, np.unique(data.y), np.dtype(float))
    estimator, rows = ESTIMATORS["FedHiP"], rows_of(data)
    rows[12] = 1e6 * rows[12][0], *rows[12][1:]
    conduct(LocalNetwork(estimator, rows), schema=schema, path=path)
    with pytest.raises(RuntimeError, match="12 can't be forgotten: its numbers are so much larger"):
        conduct(LocalNetwork(estimator, rows), schema=schema, path=path, forget=[12])


def test_a_client_that_remembers_another_federation_starts_anew(data):
    estimator, network = ESTIMATORS["FedHiP"], LocalNetwork(ESTIMATORS["FedHiP"], rows_of(data))
    conduct(network, min_clients=6)
    other = federation(seed=4)
    network.rows = rows_of(other)
    conduct(network, min_clients=6)
    assert_each_client_has_its_model(network.fitted, other.fit(estimator), data.X)


def test_a_federation_of_one_can_not_forget_it(data, tmp_path):
    path, schema = tmp_path / "state", Schema(6, np.unique(data.y), np.dtype(float))
    network = LocalNetwork(ESTIMATORS["AFL"], rows_of(data.of(12)))
    conduct(network, schema=schema, path=path)
    with pytest.raises(RuntimeError, match="nobody would be left"):
        conduct(network, schema=schema, path=path, forget=[12])


# Estimators that can't run so.


@pytest.mark.parametrize(
    ("wrong", "error", "match"),
    [
        (FedHiPClassifierCV(), TypeError, "tune it on rows of one place and pass FedHiPClassifier"),
        (AFLClassifier(class_weight="balanced"), ValueError, "class counts of all clients"),
        (AnaPFLClassifier(), ValueError, "pass an int"),
        (FedHiPClassifier(alpha=-1), ValueError, "alpha"),
    ],
)
def test_an_estimator_that_needs_all_rows_says_so(wrong, error, match):
    with pytest.raises(error, match=match):
        wrong._federated(Schema(3, np.arange(2), np.dtype(float)))


# A method of many rounds, with a state at each client and a message for each.


@dataclass(frozen=True)
class Level(Broadcast):
    value: np.ndarray


@dataclass(frozen=True)
class Apart(Level):
    """One client hears something else."""

    def for_client(self, client):
        return Level(self.value + (client == 12))


@dataclass(frozen=True)
class Moved(ClientUpdate):
    """Sums over clients of positions, and how many clients."""

    value: np.ndarray
    count: np.ndarray

    def __add__(self, other):
        return Moved(self.value + other.value, self.count + other.count)


@dataclass
class Drift:
    """Each client moves to its mean, slower every round that it took part in."""

    n_rounds: int = 5
    apart: bool = False
    n_updates: dict = field(default_factory=Counter)

    def initialize(self, schema):
        return Level(np.zeros(schema.n_features))

    def client_update(self, block, broadcast, state):
        kept = state or {"times": 0, "last": np.zeros(1)}
        times = kept["times"] + 1
        value = broadcast.value + (block.features().mean(axis=0) - broadcast.value) / (1 + times)
        self.n_updates[block.client_ids.tolist()[0]] += 1
        return Moved(value, np.ones(())), {"times": times, "last": value}

    def aggregate(self, updates, broadcast, server_state):
        (total,) = updates
        mean = total.value / total.count
        history = [*(server_state or []), float(mean[0])]
        return (Apart if self.apart else Level)(mean), history

    def personalize(self, block, broadcast, state):
        return broadcast.for_client(block.client_ids.tolist()[0]).value, state


class DriftEstimator(BaseEstimator):
    """The least that an estimator needs to run in a federation."""

    def __init__(self, method=None):
        self.method = method

    def _federated(self, schema):
        own = DriftEstimator(self.method)
        own._fitted_method, own._schema = self.method, schema
        return own

    def _client_block(self, X, y, client, sample_weight=None):
        codes = np.searchsorted(self._schema.classes, y)
        owners = np.zeros(len(y), dtype=int)
        return ClientBlock.from_arrays(X, codes, owners, np.array([client]), 3)

    def _finish_federated(self, block, broadcasts, state, traffic):
        self.answer_ = self._fitted_method.personalize(block, broadcasts[-1], state)
        return self


def drift_blocks(data):
    own = DriftEstimator(Drift())._federated(Schema(6, np.unique(data.y), np.dtype(float)))
    return [own._client_block(X, y, client) for client, (X, y, _) in rows_of(data).items()]


def by_hand(blocks, n_rounds, apart=()):
    level, heard, states = np.zeros(6), {}, {}
    for _ in range(n_rounds):
        moved = []
        for block in blocks:
            client = block.client_ids.tolist()[0]
            hears = heard.get(client, level)
            states[client] = states.get(client, 0) + 1
            gap = block.features().mean(axis=0) - hears
            moved.append(hears + gap / (1 + states[client]))
        level = np.mean(moved, axis=0)
        heard = dict.fromkeys(apart, level + 1)
    return level, states


@pytest.mark.parametrize("apart", [False, True])
def test_many_rounds_with_states_equal_a_run_in_this_process(data, apart):
    schema = Schema(6, np.unique(data.y), np.dtype(float))
    network = LocalNetwork(DriftEstimator(Drift(apart=apart)), rows_of(data))
    conductor, report = conduct(network, schema=schema, min_clients=6)
    level, states = by_hand(drift_blocks(data), 5, apart=[12] if apart else [])
    for client, own in network.fitted.items():
        value, state = own.answer_
        np.testing.assert_allclose(value, level + (apart and client == 12), rtol=1e-12)
        assert state["times"] == states[client] == 5
    assert len(conductor.server.server_state) == 5
    assert set(report.updated) == set(IDS)
    if not apart:
        result = run_federation(Aggregating(), drift_blocks(data), schema)
        np.testing.assert_allclose(result.broadcasts[-1].value, level, rtol=1e-12)


class Aggregating(Drift):
    """The same for the loop of one process, which hands over all updates."""

    def aggregate(self, updates, broadcast, server_state):
        updates = list(updates)
        return super().aggregate([sum(updates[1:], updates[0])], broadcast, server_state)


def test_a_client_that_is_lost_for_a_round_goes_on_with_what_it_kept(data):
    schema = Schema(6, np.unique(data.y), np.dtype(float))
    network = LocalNetwork(DriftEstimator(Drift()), rows_of(data))
    # In the second round client 12 says nothing until the time is up.
    send = network.send

    def sometimes(node, task, request):
        if not (request.get("round") == 1 and network.clients[node] == 12):
            send(node, task, request)

    network.send = sometimes
    conductor, report = conduct(network, schema=schema)
    assert conductor.server.finished
    assert set(report.updated) == set(IDS) - {12}
    assert network.fitted[3].answer_[1]["times"] == 5


def test_rounds_that_depend_on_each_other_are_not_opened_again(data, tmp_path):
    schema, path = Schema(6, np.unique(data.y), np.dtype(float)), tmp_path / "state"
    rows = rows_of(data)
    late = {12: rows.pop(12)}
    conduct(LocalNetwork(DriftEstimator(Drift()), rows), schema=schema, path=path)
    network = LocalNetwork(DriftEstimator(Drift()), rows | late)
    conductor, report = conduct(network, schema=schema, path=path, late_seconds=0.1)
    assert report.lost == [12]
    assert not [task for _, task, _ in network.log if task == "update"]
    with pytest.raises(RuntimeError, match="Start anew"):
        conductor.server.reopen()
    with pytest.raises(RuntimeError, match="Start anew"):
        conduct(network, schema=schema, path=path, forget=[3])


@pytest.mark.parametrize("after", [1, 7, 13, 20])
def test_many_rounds_survive_a_killed_server(after, data, tmp_path, monkeypatch):
    path, schema = tmp_path / "state", Schema(6, np.unique(data.y), np.dtype(float))
    network = LocalNetwork(DriftEstimator(Drift()), rows_of(data))
    conduct_until_killed(after, monkeypatch, network, schema=schema, path=path)
    network.queue.clear()
    conductor, _ = conduct(network, schema=schema, path=path)  # the clients remember
    level, _ = by_hand(drift_blocks(data), 5)
    np.testing.assert_allclose(conductor.server.broadcast.value, level, rtol=1e-12)
    assert all(own.answer_[1]["times"] == 5 for own in network.fitted.values())


# One server, many clients.


def test_memory_is_flat_in_the_number_of_clients():
    method = FedHiPClassifier()._federated(Schema(40, np.arange(5), np.dtype(float)))._fitted_method
    server = Server(method, Schema(40, np.arange(5), np.dtype(float)))
    rng = np.random.default_rng(0)
    peaks = []
    for client in range(1000):
        X, y = rng.normal(size=(10, 40)), rng.integers(0, 5, 10)
        block = ClientBlock.from_arrays(X, y, np.zeros(10, int), np.array([client]), 5)
        data = encode(method.client_update(block, server.broadcast, None)[0])
        if client in (100, 900):
            tracemalloc.start()
        server.receive(client, data)
        if client in (199, 999):
            gc.collect()  # what is held, not what waits to be collected
            peaks.append(tracemalloc.get_traced_memory()[0])
            tracemalloc.stop()
    assert len(server.members) == 1000
    # What a hundred clients leave behind: their digests, less than one message of one client.
    assert all(peak < 100 * 400 + 60_000 for peak in peaks)
    assert abs(peaks[1] - peaks[0]) < 20_000


@pytest.mark.parametrize("rows", [None, {"X": 0, "y": 0}, (np.ones((2, 1)),), np.ones((2, 2))])
@pytest.mark.parametrize("task", ["hello", "update"])
def test_rows_that_come_in_another_form(rows, task):
    participant = Participant(FedHiPClassifier(), "here", lambda: rows)
    schema = Schema(n_features=1, classes=np.arange(2), dtype=np.dtype(float))
    request = {"hello": {}, "update": {"schema": schema_to_json(schema), "round": 0}}[task]
    request |= {"broadcasts": [encode(Empty())]} if task == "update" else {}
    with pytest.raises(TypeError, match=r"must come as \(X, y\) or \(X, y, sample_weight\), got"):
        participant.answer(task, request)
