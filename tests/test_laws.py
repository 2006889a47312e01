"""The laws of the closed-form estimators, for every name in ``skfedhip.analytic.__all__``."""

import copy
import pickle
from functools import reduce
from operator import add

import joblib
import numpy as np
import pandas as pd
import pytest
from _data import (
    CLASSES,
    IDS,
    Federation,
    assert_close,
    assert_same_fits,
    assert_same_models,
    client_scores,
    estimator,
    federation,
    global_scores,
    scores_of_all,
)
from _references import REFERENCES, reference_of_all
from sklearn.base import clone

from skfedhip import analytic
from skfedhip.core import ClientBlock
from skfedhip.protocol import Schema, run_federation

ONE_ROW, ONE_CLASS, TWO_CLASSES = IDS[:3]
FULL_RANK = IDS[3:]

PERSONAL_OFF = {
    "AFLClassifier": {},
    "AnaPFLClassifier": {"lam": 0.0},
    "AnaPFLClassifierCV": {"lams": [0.0]},
    "FedHiPClassifier": {"alpha": 0.0},
    "FedHiPClassifierCV": {"alphas": [0.0]},
}
"""Parameters that leave the global model alone; a local ridge has none."""


def test_every_public_estimator_is_in_the_tables():
    assert set(REFERENCES) == set(analytic.__all__)
    assert {*PERSONAL_OFF, "LocalRidgeClassifier"} == set(analytic.__all__)


# 1. One client equals the plain centralized method; and many equal their normal equations.


def test_one_client_is_the_centralized_method(new, data):
    data = data.renamed(dict.fromkeys(IDS, "only"))
    clf = data.fit(new())
    assert clf.clients_.tolist() == ["only"]
    assert_close(scores_of_all(clf, data.X), reference_of_all(clf, data, data.X))


def test_every_client_solves_its_normal_equations(new, data):
    clf = data.fit(new())
    assert clf.clients_.tolist() == list(IDS)
    assert_close(scores_of_all(clf, data.X), reference_of_all(clf, data, data.X))


def test_two_classes_give_the_difference_of_their_scores(new):
    data = federation(classes=CLASSES[:2])
    clf = data.fit(new())
    assert clf.coef_.shape[0] == clf.personal_coef_.shape[1] == 1
    scores = reference_of_all(clf, data, data.X)
    assert_close(scores_of_all(clf, data.X), scores[..., 1] - scores[..., 0])


def test_coefficients_give_the_scores(new, data):
    clf = data.fit(new())
    if clf.personal_coef_.shape[2] == data.X.shape[1]:  # not in a space of random features
        intercepts = np.vstack([clf.intercept_, clf.personal_intercept_])
        coefs = np.concatenate([clf.coef_[None], clf.personal_coef_])
        scores = np.einsum("nm,kdm->knd", data.X, coefs) + intercepts[:, None]
        assert_close(scores_of_all(clf, data.X), scores)
    for client in IDS:
        alone = clf.export_client(client)
        assert_close(alone.decision_function(data.X), client_scores(clf, data.X, client))


# 2. Orders, jobs and cuts change nothing.


def orders(data):
    rng, codes = np.random.default_rng(0), np.searchsorted(IDS, data.groups)
    yield "rows shuffled", rng.permutation(len(codes))
    yield "clients one after the other", np.argsort(codes, kind="stable")
    yield "clients backwards", np.argsort(-codes, kind="stable")
    yield "clients interleaved", np.argsort(np.argsort(np.argsort(codes)) % 7, kind="stable")


@pytest.mark.parametrize(
    "order", [pytest.param(order, id=name) for name, order in orders(federation())]
)
def test_order_of_rows_and_clients_changes_nothing(new, data, order):
    assert_same_fits(data.rows(order).fit(new()), data.fit(new()), data.X)


@pytest.mark.parametrize("n_bytes", [8 * 7 * 4, 8 * 7 * 70])
def test_cuts_into_blocks_change_nothing(new, data, small_blocks, n_bytes):
    whole = data.fit(new())
    small_blocks(n_bytes)
    cut = data.fit(new())
    assert_same_fits(cut, whole, data.X)


def test_threads_change_nothing(new, data, small_blocks):
    small_blocks()
    clf = data.fit(new(n_jobs=2))
    assert_same_fits(clf, data.fit(new()), data.X, rtol=1e-13)
    assert_same_fits(clf, data.fit(new(n_jobs=2)), data.X, rtol=0.0)  # to the bit


def test_processes_change_nothing(new, data, small_blocks):
    small_blocks()
    alone = data.fit(new())
    with joblib.parallel_config("loky", n_jobs=2):
        assert_same_fits(data.fit(new()), alone, data.X)


# 3. Renaming clients renames answers only.


def test_renaming_clients_renames_answers(new, data):
    names = {client: f"client {k}" for k, client in zip((5, 0, 3, 1, 4, 2), IDS, strict=True)}
    clf, renamed = data.fit(new()), data.renamed(names).fit(new())
    assert renamed.clients_.tolist() == sorted(names.values())
    assert_close(global_scores(renamed, data.X), global_scores(clf, data.X))
    for old, name in names.items():
        answers = client_scores(renamed, data.X, name), client_scores(clf, data.X, old)
        if getattr(clf, "shared_refinement", True):
            assert_close(*answers)
        else:  # these draw by the bytes of their id
            assert np.abs(answers[0] - answers[1]).max() > 1e-4


def test_equal_ids_of_another_type_are_the_same_clients(new, data):
    same = Federation(data.X, data.y, data.groups.astype(float), data.weight)
    assert_same_fits(same.fit(new()), data.fit(new()), data.X)


# 4. What the other clients are called does not matter to a client.


@pytest.mark.parametrize("mine", [ONE_ROW, TWO_CLASSES, IDS[-1]])
def test_redealing_the_others_leaves_a_client_unmoved(fixed, data, mine):
    rng, others = np.random.default_rng(1), data.groups != mine
    groups = data.groups.copy()
    groups[others] = rng.choice([*set(IDS) - {mine}, -1, 0, 50], others.sum())
    groups[np.flatnonzero(others & (data.y == "fox"))] = 99  # who has one class only, now
    redealt = Federation(data.X, data.y, groups, data.weight).fit(fixed())
    clf = data.fit(fixed())
    assert_close(client_scores(redealt, data.X, mine), client_scores(clf, data.X, mine))


# 5. Weights count rows, in both stages.


def test_weight_zero_leaves_a_row_out(new, data):
    out = np.random.default_rng(2).random(len(data.y)) < 0.3
    out |= data.groups == ONE_ROW  # a client without rows is no client
    weighted = new().fit(
        data.X, data.y, groups=data.groups, sample_weight=np.where(out, 0.0, data.weight)
    )
    assert ONE_ROW not in weighted.clients_
    assert_same_fits(weighted, data.rows(~out).fit(new()), data.X)


def test_a_class_of_weight_zero_is_no_class(new, data):
    out = data.y == "dog"
    weighted = new().fit(
        data.X, data.y, groups=data.groups, sample_weight=np.where(out, 0.0, data.weight)
    )
    assert_same_fits(weighted, data.rows(~out).fit(new()), data.X)


def test_weight_two_is_a_row_twice(new, data):
    times = np.random.default_rng(3).integers(1, 4, len(data.y))
    weighted = new().fit(data.X, data.y, groups=data.groups, sample_weight=times)
    repeated = data.rows(np.repeat(np.arange(len(times)), times))
    assert_same_fits(weighted, repeated.fit(new(), sample_weight=None), data.X)


@pytest.mark.parametrize("factor", [{"cat": 2.0, "fox": 0.25}, {"cat": 0.0}, "balanced"])
def test_class_weights_are_weights_of_rows(new, data, factor):
    totals = {label: data.weight[data.y == label].sum() for label in CLASSES}
    by_class = {label: data.weight.sum() / (3 * total) for label, total in totals.items()}
    if factor != "balanced":
        by_class = {label: factor.get(label, 1.0) for label in CLASSES}
    weight = data.weight * np.array([by_class[label] for label in data.y])
    clf = data.fit(new(class_weight=factor))
    assert clf.classes_.tolist() == list(CLASSES)
    data = Federation(data.X, data.y, data.groups, weight).rows(weight > 0)
    assert_close(scores_of_all(clf, data.X), reference_of_all(clf, data, data.X))


# 6. Clients with one row, one class, or classes missing keep the columns of all.


def test_poor_clients_answer_for_all_classes(new, data):
    clf = data.fit(new())
    for client in (ONE_ROW, ONE_CLASS, TWO_CLASSES):
        groups = [client] * len(data.y)
        probabilities = clf.predict_proba(data.X, groups=groups)
        assert probabilities.shape == (len(data.y), len(CLASSES))
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
        assert_close(np.exp(clf.predict_log_proba(data.X, groups=groups)), probabilities)
        best = CLASSES[client_scores(clf, data.X, client).argmax(axis=1)]
        np.testing.assert_array_equal(clf.predict(data.X, groups=groups), best)


def test_local_classes_only_rules_out_the_others(fixed, data):
    clf, free = data.fit(fixed(local_classes_only=True)), data.fit(fixed())
    np.testing.assert_array_equal(global_scores(clf, data.X), global_scores(free, data.X))
    for client in IDS:
        scores = client_scores(clf, data.X, client)
        own = np.isin(CLASSES, data.of(client).y)
        assert np.all(scores[:, ~own] == -np.inf)
        np.testing.assert_array_equal(scores[:, own], client_scores(free, data.X, client)[:, own])
        answers = clf.predict(data.X, groups=[client] * len(data.y))
        assert set(answers) <= set(data.of(client).y)
        np.testing.assert_array_equal(clf.export_client(client).predict(data.X), answers)


def test_all_rows_of_mixed_clients_are_scored_in_their_order(new, data):
    clf = data.fit(new())
    groups = np.where(np.arange(len(data.y)) % 5 == 0, 777, data.groups)  # nobody is 777
    position = {client: 1 + k for k, client in enumerate(IDS)}
    rows = [position.get(client, 0) for client in groups.tolist()]
    expected = scores_of_all(clf, data.X)[rows, np.arange(len(rows))]
    assert_close(clf.decision_function(data.X, groups=groups), expected)
    hits = clf.classes_[expected.argmax(axis=1)] == data.y
    assert clf.score(data.X, data.y, groups=groups) == pytest.approx(hits.mean())
    weighted = clf.score(data.X, data.y, groups=groups, sample_weight=data.weight)
    assert weighted == pytest.approx(np.average(hits, weights=data.weight))


# 7. The estimator is a protocol run.


def one_client_blocks(data, clients=IDS):
    blocks = []
    for client in clients:
        own = data.of(client)
        codes = np.zeros(len(own.y), dtype=int)
        labels = np.searchsorted(CLASSES, own.y)
        blocks.append(
            ClientBlock.from_arrays(
                own.X, labels, codes, np.array([client]), len(CLASSES), own.weight
            )
        )
    return blocks


def schema_of(data):
    return Schema(data.X.shape[1], CLASSES, data.X.dtype)


def with_models(clf, broadcasts, models):
    """The classifier with what a federation outside of it has computed."""
    clf = copy.copy(clf)
    clf._broadcast, clf._models = broadcasts[1], clf._in_order(models)
    clf.temperature_ = float(broadcasts[-1].temperature)
    return clf


def test_estimator_is_a_run_of_one_client_blocks(new, data):
    clf = data.fit(new())
    result = run_federation(clf._fitted_method, one_client_blocks(data), schema_of(data))
    assert_same_fits(with_models(clf, result.broadcasts, result.models), clf, data.X)
    searched = "CV" in type(clf).__name__  # which takes messages of its own before these
    for mine, others in ((result.bytes_up, clf.bytes_up_), (result.bytes_down, clf.bytes_down_)):
        assert np.all(mine < others if searched else mine == others)


@pytest.mark.parametrize("seed", range(2))
def test_messages_may_arrive_in_any_order(new, data, seed):
    rng, clf = np.random.default_rng(seed), data.fit(new())
    method = pickle.loads(pickle.dumps(clf._fitted_method))
    blocks = one_client_blocks(data, rng.permutation(IDS))
    broadcasts, server, states = [method.initialize(schema_of(data))], None, [None] * len(blocks)
    for _ in range(method.n_rounds):
        rounds = zip(blocks, states, strict=True)
        sent = [method.client_update(block, broadcasts[-1], state) for block, state in rounds]
        updates, states = zip(*sent, strict=True)
        arrived = [updates[i] for i in rng.permutation(len(updates))]
        relays = [reduce(add, arrived[:2]), reduce(add, arrived[2:])]
        broadcast, server = method.aggregate(iter(relays), broadcasts[-1], server)
        broadcasts.append(broadcast)
    rounds = zip(blocks, states, strict=True)
    kept = [method.personalize(block, broadcasts[-1], state) for block, state in rounds]
    anew = [method.personalize(block, broadcasts[1], None) for block in blocks]
    for models in (kept, anew):
        assert_same_fits(with_models(clf, broadcasts, models), clf, data.X)


# 8. Personalization off is the global model; all the way up, a client's own least squares.


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("name", PERSONAL_OFF)
def test_without_personalization_all_clients_have_the_global_model(data, name, fit_intercept):
    clf = data.fit(estimator(name, fit_intercept=fit_intercept, **PERSONAL_OFF[name]))
    scores = scores_of_all(clf, data.X)
    for personal in scores[1:]:
        np.testing.assert_array_equal(personal, scores[0])


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("solver", ["auto", "direct", "residual"])
@pytest.mark.parametrize("alpha", [1e6, 1e8, 1e10, 1e13])
def test_fedhip_becomes_local_least_squares(data, alpha, solver, fit_intercept):
    params = {"alpha": alpha, "solver": solver, "fit_intercept": fit_intercept}
    clf = data.fit(estimator("FedHiPClassifier", **params))
    for client in FULL_RANK:
        own, root = data.of(client), np.sqrt(data.of(client).weight)[:, None]
        F, new = (np.hstack([np.ones((len(X), int(fit_intercept))), X]) for X in (own.X, data.X))
        Y = own.y[:, None] == CLASSES
        alone = new @ np.linalg.lstsq(root * F, root * Y)[0]
        assert_close(client_scores(clf, data.X, client), alone, rtol=1e4 / alpha + 1e-8)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("solver", ["auto", "direct", "residual"])
@pytest.mark.parametrize("alpha", [1e6, 1e8, 1e10, 1e13])
def test_fedhip_comes_to_fit_all_rows_of_a_small_client(data, alpha, solver, fit_intercept):
    params = {"alpha": alpha, "solver": solver, "fit_intercept": fit_intercept}
    clf = data.fit(estimator("FedHiPClassifier", **params))
    for client in (ONE_ROW, ONE_CLASS, TWO_CLASSES):
        own = data.of(client)
        scores = client_scores(clf, own.X, client)
        assert_close(scores, own.y[:, None] == CLASSES, rtol=1e4 / alpha + 1e-8)


# 9. What is written down and read back keeps every personal model.


def save_and_load(clf, path):
    clf.save(path / "model.safetensors")
    return type(clf).load(path / "model.safetensors")


def dump_and_load(clf, path):
    joblib.dump(clf, path / "model.joblib")
    return joblib.load(path / "model.joblib")


ROUND_TRIPS = {
    "pickle": lambda clf, path: pickle.loads(pickle.dumps(clf)),
    "joblib": dump_and_load,
    "save": save_and_load,
}


@pytest.mark.parametrize("way", ROUND_TRIPS)
def test_copies_keep_every_model_and_the_stream(new, data, tmp_path, way):
    late, early = data.of(ONE_CLASS), data.without(ONE_CLASS)
    guest = early.of(TWO_CLASSES)
    early = early.without(TWO_CLASSES)
    clf = guest.personalize(early.fit(new(retain_statistics=True)))
    back = ROUND_TRIPS[way](clf, tmp_path)
    assert repr(back) == repr(clf)
    assert_same_fits(back, clf, data.X, rtol=0.0)
    assert_same_models(late.feed(back), late.feed(clf), data.X, rtol=0.0)


KINDS = {
    "strings": (["b", "a", "äö", "", "1", "z" * 30], [2.0, -1.0, 7.0], np.float32),
    "huge ints": ([-1, 0, 2**70, -(2**80), 5, 6], [True, False], np.float64),
    "floats": ([1.5, -0.25, 1e300, 2.0, 3.0, 4.0], [10**12, -4, 0], np.float64),
    "a mix": ([3, "3", 4, "x", 2.5, ""], ["no", "yes"], np.float32),
    "dates": (np.arange("2020-01-01", "2020-01-07", dtype="M8[D]"), [0, 1], np.float64),
    "numpy scalars": ([np.int8(k) for k in range(6)], np.array(["no", "yes"], object), np.float32),
}


@pytest.mark.parametrize("way", ROUND_TRIPS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["AnaPFLClassifier", "FedHiPClassifier"])
def test_copies_keep_ids_labels_and_dtypes_of_any_kind(data, tmp_path, name, kind, way):
    ids, classes, dtype = KINDS[kind]
    codes = np.searchsorted(IDS, data.groups)
    groups = ids[codes] if isinstance(ids, np.ndarray) else [ids[k] for k in codes]
    y = np.array(classes)[np.searchsorted(CLASSES, data.y) % len(classes)]
    X = data.X.astype(dtype)
    clf = estimator(name, fit_intercept=True).fit(X, y, groups=groups)
    plain = ids.astype("M8[us]").tolist() if isinstance(ids, np.ndarray) else ids
    assert set(clf.clients_.tolist()) == set(plain)
    back = ROUND_TRIPS[way](clf, tmp_path)
    assert list(map(type, back.clients_.tolist())) == list(map(type, clf.clients_.tolist()))
    assert back.classes_.dtype == clf.classes_.dtype
    for each in (clf, back):
        scores = each.decision_function(X, groups=groups)
        assert scores.dtype == dtype
        own = client_scores(each, X, plain[5])[codes == 5]
        np.testing.assert_array_equal(scores[codes == 5], own)
    assert_same_models(back, clf, X, rtol=0.0)


@pytest.mark.parametrize("unit", ["D", "us", "ns"])
def test_dates_are_the_same_clients_in_an_array_and_in_a_list(data, unit):
    dates = np.arange("2020-01-01", "2020-01-07", dtype="M8[D]").astype(f"M8[{unit}]")
    groups = dates[np.searchsorted(IDS, data.groups)]
    clf = estimator("FedHiPClassifier", missing_groups="error")
    scores = clf.fit(data.X, data.y, groups=groups).decision_function(data.X, groups=groups)
    for same in (list(groups), pd.Series(groups), pd.Series(groups).tolist()):
        np.testing.assert_array_equal(clf.decision_function(data.X, groups=same), scores)
        again = estimator("FedHiPClassifier").fit(data.X, data.y, groups=same)
        assert again.clients_.tolist() == clf.clients_.tolist()


def test_clone_is_unfitted_and_fits_alike(new, data):
    clf = data.fit(new())
    again = clone(clf)
    assert again.get_params() == clf.get_params()
    assert vars(again).keys() == clf.get_params().keys()
    assert_same_fits(data.fit(again), clf, data.X, rtol=0.0)


# 10. No message carries rows or labels.


def shapes(message):
    """Of all arrays; a root of few rows counts as what it is the root of."""
    if hasattr(message, "factor"):
        message = message + message
    return tuple((name, array.shape) for name, array in message.arrays().items())


def test_messages_have_one_size_whatever_the_rows(new, data):
    other = federation(seed=5, sizes=(2, 3, 4, 30, 50, 100))
    clf, again = data.fit(new()), other.fit(new())
    np.testing.assert_array_equal(clf.bytes_down_, again.bytes_down_)
    assert clf.bytes_up_.max() == again.bytes_up_.max()
    method, sizes = clf._fitted_method, set()
    for block in [*one_client_blocks(data), *one_client_blocks(other)]:
        broadcast, server, state = method.initialize(schema_of(data)), None, None
        size = [shapes(broadcast)]
        for _ in range(method.n_rounds):
            update, state = method.client_update(block, broadcast, state)
            broadcast, server = method.aggregate([update], broadcast, server)
            size += [shapes(update), shapes(broadcast)]
        sizes.add(tuple(size))
    assert len(sizes) == 1


def test_the_root_of_several_rows_shows_none_of_them(new, data):
    method = data.fit(new())._fitted_method
    blocks = one_client_blocks(data, clients=(3, 12))  # of two and of five rows, six features
    for block in blocks:
        update, _ = method.client_update(block, method.initialize(schema_of(data)), None)
        if hasattr(update, "factor"):
            rows = method.shared_design(block).rows[:, int(method.fit_intercept) :]
            sent = np.abs(update.factor.root)
            assert not np.isin(np.abs(rows), sent).any()
            gram = update.statistics.gram
            centered = rows if update.factor.mean is None else None
            if centered is not None:
                assert_close(gram, rows.T @ rows)
