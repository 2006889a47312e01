"""The laws of the gradient classifiers, for every one in ``skfedhip.gradient.__all__``."""

import copy
import pickle
from functools import partial

import joblib
import numpy as np
import pandas as pd
import pytest
from _data import CLASSES, IDS, client_scores, global_scores, scores_of_all
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skfedhip import FedAvgClassifier, gradient
from skfedhip.core import ClientBlock
from skfedhip.gradient import _method
from skfedhip.metrics import make_client_scorer
from skfedhip.protocol import Schema, run_federation

from ._data import make
from .conftest import CLASSIFIERS

ONE_ROW, ONE_CLASS, TWO_CLASSES = IDS[:3]


VARIANTS = [(name, {}) for name in CLASSIFIERS] + [("FedAvgClassifier", {"fine_tune_epochs": 1})]


@pytest.fixture(params=VARIANTS, ids=lambda variant: "-".join([variant[0], *variant[1]]))
def new(request):
    """Factory of every classifier, and of FedAvg with fine-tuning."""
    name, params = request.param
    return partial(make, getattr(gradient, name), **params)


def fit(clf, data):
    return clf.fit(data.X, data.y, groups=data.groups)


def assert_same(actual, desired, X, atol=0.0):
    np.testing.assert_array_equal(actual.clients_, desired.clients_)
    np.testing.assert_array_equal(actual.classes_, desired.classes_)
    for kind in ("global_params_", "personal_params_"):
        mine, other = getattr(actual, kind), getattr(desired, kind)
        assert mine.keys() == other.keys()
        for name, array in other.items():
            np.testing.assert_allclose(mine[name], array, rtol=0, atol=atol, err_msg=name)
    np.testing.assert_allclose(actual.loss_curve_, desired.loss_curve_, rtol=0, atol=atol)
    scores = scores_of_all(actual, X), scores_of_all(desired, X)
    np.testing.assert_allclose(*scores, rtol=0, atol=10 * atol)


# Orders, cuts and jobs change nothing.


def test_the_order_of_clients_changes_nothing(new, data):
    """Rows of a client keep their order, which decides what its shuffles make of them."""
    order = np.argsort(-data.groups, kind="stable")
    assert_same(fit(new(), data.rows(order)), fit(new(), data), data.X)


@pytest.mark.parametrize("n_bytes", [1, 3000])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_how_many_are_trained_together_changes_nothing(new, data, monkeypatch, n_bytes, dtype):
    whole = fit(new(dtype=dtype), data)
    monkeypatch.setitem(_method.BLOCK_BYTES, "cpu", n_bytes)
    atol = 1e-12 if dtype == "float64" else 1e-5
    assert_same(fit(new(dtype=dtype), data), whole, data.X, atol=atol)


def test_threads_change_nothing(new, data, monkeypatch):
    monkeypatch.setitem(_method.BLOCK_BYTES, "cpu", 1)
    assert_same(fit(new(n_jobs=2), data), fit(new(), data), data.X)


def test_fits_repeat_to_the_bit(new, data):
    how = {"dtype": "float32", "join_ratio": (0.3, 0.9)}
    assert_same(fit(new(**how), data), fit(new(**how), data), data.X)
    other = fit(new(**{**how, "random_state": 1}), data)
    assert np.abs(other.loss_curve_ - fit(new(**how), data).loss_curve_).max() > 1e-4


def test_clients_out_of_the_cohort_keep_what_they_have(new, data):
    clf = fit(new(n_rounds=1, join_ratio=0.4), data)
    joins = clf._fitted_method.joins(clf.clients_, 0)
    assert joins.sum() == round(0.4 * len(IDS))
    states = clf._federation.states[0]
    fresh = clf._fitted_method.states_of(len(IDS), clf._fitted_method.initialize(None))
    for name, tensor in states.items():
        np.testing.assert_array_equal(tensor[~joins], fresh[name][~joins])


def test_another_clients_id_changes_no_clients_draws(data):
    """Each client's shuffles hang on its own id: with heads alone to train, it goes unmoved."""
    names = dict(zip(IDS, IDS, strict=True)) | {IDS[0]: 5}
    clf, renamed = (
        fit(make(FedAvgClassifier, n_rounds=1, fine_tune_epochs=1, lr=1e-9), each)
        for each in (data, data.renamed(names))
    )
    gaps = np.abs(scores_of_all(clf, data.X)[2:] - scores_of_all(renamed, data.X)[2:])
    assert gaps.max() < 1e-8


# Poor clients.


def test_poor_clients_answer_for_all_classes(new, data):
    clf = fit(new(), data)
    for client in (ONE_ROW, ONE_CLASS, TWO_CLASSES):
        groups = [client] * len(data.y)
        probabilities = clf.predict_proba(data.X, groups=groups)
        assert probabilities.shape == (len(data.y), len(CLASSES))
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
        best = CLASSES[client_scores(clf, data.X, client).argmax(axis=1)]
        np.testing.assert_array_equal(clf.predict(data.X, groups=groups), best)


def test_local_classes_only(new, data):
    clf, free = fit(new(local_classes_only=True), data), fit(new(), data)
    np.testing.assert_array_equal(global_scores(clf, data.X), global_scores(free, data.X))
    for client in IDS:
        scores, own = client_scores(clf, data.X, client), np.isin(CLASSES, data.of(client).y)
        assert np.all(scores[:, ~own] == -np.inf)
        np.testing.assert_array_equal(scores[:, own], client_scores(free, data.X, client)[:, own])


def test_two_classes_give_one_score(new, data):
    data = data.rows(data.y != "fox")
    clf = fit(new(), data)
    scores = clf.decision_function(data.X, groups=data.groups)
    assert scores.shape == data.y.shape
    answers = clf.predict(data.X, groups=data.groups)
    np.testing.assert_array_equal(answers, clf.classes_[(scores > 0).astype(int)])


# The estimator is a protocol run.


def one_client_blocks(data):
    blocks = []
    for client in IDS:
        own = data.of(client)
        labels = np.searchsorted(CLASSES, own.y)
        codes = np.zeros(len(own.y), dtype=int)
        block = ClientBlock.from_arrays(own.X, labels, codes, np.array([client]), len(CLASSES))
        blocks.append(block)
    return blocks


def test_estimator_is_a_run_of_one_client_blocks(new, data):
    clf = fit(new(join_ratio=0.8), data)
    method = pickle.loads(pickle.dumps(clf._fitted_method))
    schema = Schema(data.X.shape[1], CLASSES, data.X.dtype)
    result = run_federation(method, one_client_blocks(data), schema)
    assert len(result.broadcasts) == method.n_rounds + 1
    np.testing.assert_array_equal(result.bytes_up, clf.bytes_up_)
    np.testing.assert_array_equal(result.bytes_down, clf.bytes_down_)
    for name, array in result.broadcasts[-1].parameters.items():
        np.testing.assert_allclose(array, clf.global_params_[name], rtol=0, atol=1e-12)
    for k, own in enumerate(result.models):
        assert own.keys() == clf.personal_params_.keys()
        for name, tensor in own.items():
            actual = clf.personal_params_[name][k]
            np.testing.assert_allclose(actual, tensor[0], rtol=0, atol=1e-12)


def test_messages_have_one_size_whatever_the_rows(new, data):
    clf, method = fit(new(), data), fit(new(), data)._fitted_method
    first = method.initialize(Schema(6, CLASSES, data.X.dtype))
    shapes = set()
    for block in one_client_blocks(data):
        update, _ = method.client_update(block, first, None)
        shapes.add(tuple((name, array.shape) for name, array in update.arrays().items()))
        assert np.all(clf.bytes_up_ == update.nbytes * clf.n_rounds_)
    assert len(shapes) == 1


# Copies, and ids.


def dump_and_load(clf, path):
    joblib.dump(clf, path / "model.joblib")
    return joblib.load(path / "model.joblib")


@pytest.mark.parametrize("way", ["pickle", "joblib", "copy"])
def test_copies_keep_every_model_and_go_on(new, data, tmp_path, way):
    clf = fit(new(), data)
    ways = {"pickle": lambda c: pickle.loads(pickle.dumps(c)), "copy": copy.deepcopy}
    back = dump_and_load(clf, tmp_path) if way == "joblib" else ways[way](clf)
    assert_same(back, clf, data.X)
    for each in (back, clf):
        each.partial_fit(data.X, data.y, groups=data.groups)
    assert_same(back, clf, data.X)


def test_clone_is_unfitted_and_fits_alike(new, data):
    clf = fit(new(), data)
    again = clone(clf)
    assert again.get_params() == clf.get_params()
    assert vars(again).keys() == clf.get_params().keys()
    assert_same(fit(again, data), clf, data.X)


def test_the_id_column_is_the_groups(new, data):
    table = pd.DataFrame(data.X).assign(who=data.groups).rename(columns=str)
    by_column = new(group_column="who").fit(table, data.y)
    clf = fit(new(), data)
    np.testing.assert_array_equal(
        by_column.decision_function(table), clf.decision_function(data.X, groups=data.groups)
    )
    assert by_column.score(table, data.y) == clf.score(data.X, data.y, groups=data.groups)


def test_a_search_over_a_routed_pipeline(new, data):
    data = data.of(*IDS[3:])
    with config_context(enable_metadata_routing=True):
        clf = new(n_rounds=2)
        grid = {f"{type(clf).__name__.lower()}__lr": [0.01, 0.3]}
        search = GridSearchCV(
            make_pipeline(StandardScaler(), clf), grid, cv=2, scoring=make_client_scorer("accuracy")
        )
        search.fit(data.X, data.y, groups=data.groups)
        assert np.isfinite(search.cv_results_["mean_test_score"]).all()
        best = search.best_estimator_
        assert best[-1].clients_.tolist() == list(IDS[3:])
        answers = best.predict(data.X, groups=data.groups)
    assert answers.shape == data.y.shape
