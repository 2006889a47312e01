"""Faults that were found by trying to break the package, each with the right value."""

import datetime

import joblib
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.model_selection import KFold

from skfedhip import (
    AnaPFLClassifierCV,
    FederatedStandardScaler,
    FedHiPClassifier,
    FedHiPClassifierCV,
    LocalRidgeClassifier,
)
from skfedhip.datasets import make_federated_classification


@pytest.fixture(scope="module")
def federation():
    return make_federated_classification(6, 120, 5, 3, random_state=0)


@pytest.mark.filterwarnings("ignore::scipy.linalg.LinAlgWarning")
def test_an_offset_leaves_a_minimum_norm_local_ridge_as_it_is():
    rng = np.random.default_rng(0)
    X, test = rng.normal(size=(2, 30, 20))
    y, groups = np.arange(30) % 2, np.arange(30) // 6
    clf = LocalRidgeClassifier(beta=0, fit_intercept=True)
    expected = clf.fit(X, y, groups=groups).decision_function(test, groups=groups)
    for offset in (1e2, 1e4, 1e6):
        moved = clf.fit(X + offset, y, groups=groups)
        scores = moved.decision_function(test + offset, groups=groups)
        assert_allclose(scores, expected, atol=1e-7)


def test_one_row_without_id_leaves_the_others_their_clients(federation):
    X, y, groups = federation
    days = [datetime.date(2020, 1, 1 + int(k)) for k in groups]
    for ids in (days, [str(k).encode() for k in groups], np.array(days, "M8[ns]").tolist()):
        clf = FedHiPClassifier(alpha=10).fit(X, y, groups=ids)
        some = clf.decision_function(X, groups=[None, *ids[1:]])
        assert_array_equal(some[1:], clf.decision_function(X, groups=ids)[1:])


def test_an_id_is_the_same_whatever_else_is_in_the_batch(federation):
    X, y, groups = federation
    mixed = [7 if k % 2 else datetime.date(2020, 1, 1) for k in groups]
    clf = FedHiPClassifier(retain_statistics=True).fit(X, y, groups=mixed)
    own = np.flatnonzero(groups % 2 == 0)
    clf.partial_fit(X[own], y[own], groups=[mixed[i] for i in own])
    assert len(clf.clients_) == 2
    clf.forget_clients([datetime.date(2020, 1, 1)])
    assert clf.clients_.tolist() == [7]


def test_nanoseconds_are_not_cut_off(federation):
    X, y, groups = federation
    stamps = [pd.Timestamp(2020, 1, 1) + pd.Timedelta(int(k), "ns") for k in groups]
    for ids in (stamps, pd.Series(stamps)):
        assert len(FedHiPClassifier().fit(X, y, groups=ids).clients_) == 6
    spans = groups.astype("m8[D]").astype("m8[ns]")
    clf = FedHiPClassifier(missing_groups="error").fit(X, y, groups=spans)
    clf.predict(X, groups=[datetime.timedelta(days=int(k)) for k in groups])


def test_a_penalty_beyond_all_scales_does_not_swallow_the_intercept(federation):
    X, y, groups = federation
    how = {"fit_intercept": True, "scoring": "neg_mean_squared_error"}
    score = [
        FedHiPClassifierCV([1.0], [beta], **how).fit(X, y, groups=groups).best_score_
        for beta in (1e15, 1e25)
    ]
    assert_allclose(*score, rtol=1e-9)
    FedHiPClassifierCV(fit_intercept=True).fit(X * 1e9, y, groups=groups)


@pytest.mark.filterwarnings("ignore::scipy.linalg.LinAlgWarning")
def test_a_search_without_penalty_scores_folds_as_refitting_does(federation):
    X, y, groups = federation
    X, y, groups = np.repeat(X[:30], 2, axis=0), np.arange(60) % 3, np.repeat(groups[:30], 2)
    fixed = {"n_components": 20, "random_state": 0}
    split = [(np.arange(0, 60, 2), np.arange(1, 60, 2))]
    scores = [
        AnaPFLClassifierCV(
            [1.0], [beta], [1.0], cv=split, scoring="neg_mean_squared_error", **fixed
        )
        .fit(X, y, groups=groups)
        .best_score_
        for beta in (0.0, 1e-9)
    ]
    assert_allclose(*scores, rtol=1e-4)


def test_a_refit_forgets_the_last_search(federation):
    X, y, groups = federation
    search = FedHiPClassifierCV(scoring="neg_log_loss", store_cv_results=True)
    search.fit(X, y, groups=groups)
    search.set_params(scoring="accuracy", store_cv_results=False).fit(X, y, groups=groups)
    assert not hasattr(search, "search_temperature_")
    assert not hasattr(search, "client_cv_scores_")


def test_splits_of_any_kind_and_none_that_are_empty(federation):
    X, y, groups = federation
    FedHiPClassifierCV(cv=KFold(3).split(X)).fit(X, y, groups=groups)
    for cv in ([], [(np.arange(len(X)), np.array([], int))], [([], np.arange(len(X)))]):
        with pytest.raises(ValueError, match=r"no splits|no training rows or no test rows"):
            FedHiPClassifierCV(cv=cv).fit(X, y, groups=groups)


def test_rows_without_id_pass_the_scaler(federation):
    X, _, groups = federation
    table = np.column_stack([groups.astype(object), X.astype(object)])
    scaler = FederatedStandardScaler(group_column=0).fit(table)
    table[0, 0] = None
    assert scaler.transform(table)[0, 0] is None


def test_jobs_run_on_a_backend_that_returns_lists(federation):
    X, y, groups = federation
    with joblib.parallel_config(backend="multiprocessing"):
        clf = FedHiPClassifier(n_jobs=2).fit(X, y, groups=groups)
    again = FedHiPClassifier().fit(X, y, groups=groups)
    assert_allclose(clf.personal_coef_, again.personal_coef_)


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda clf, X, y, g: clf.partial_fit(X, y, groups=g, classes=[]), "two classes, got none"),
        (lambda clf, X, y, g: clf.set_params(class_weight={0: "a"}).fit(X, y, groups=g), "weight"),
        (lambda clf, X, y, g: clf.fit(X, y, groups=g).forget_clients(3), "list of client ids"),
        (lambda clf, X, y, g: clf.fit(X, y, groups=g).forget_clients("ab"), "list of client ids"),
    ],
)
def test_small_slips_are_named(federation, act, words):
    with pytest.raises(ValueError, match=words):
        act(FedHiPClassifier(retain_statistics=True), *federation)
