"""The classifiers that tune themselves, beside GridSearchCV and the plain classifiers."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skfedhip import (
    AnaPFLClassifier,
    AnaPFLClassifierCV,
    FederatedStandardScaler,
    FedHiPClassifier,
    FedHiPClassifierCV,
    StatisticsDroppedError,
)
from skfedhip.datasets import make_federated_classification
from skfedhip.exceptions import GridEdgeWarning
from skfedhip.metrics import make_client_scorer
from skfedhip.model_selection import ClientKFold

FEDHIP = {"alphas": [0.0, 1.0, 5.0, 25.0], "betas": [0.1, 1.0, 10.0]}
ANAPFL = {"gammas": [0.1, 1.0], "betas": [0.1, 1.0], "lams": [0.0, 0.5, 1.0]}
RANDOM = {"n_components": 20, "random_state": 0}


@pytest.fixture(scope="module")
def federation():
    return make_federated_classification(6, 240, 8, 3, alpha=0.7, random_state=0)


@pytest.fixture(params=["FedHiP", "AnaPFL"])
def search(request):
    """A search over a small grid."""
    if request.param == "FedHiP":
        return FedHiPClassifierCV(**FEDHIP)
    return AnaPFLClassifierCV(**ANAPFL, **RANDOM)


def plain(search, **params):
    """The plain classifier at a search's best."""
    best = {name: getattr(search, f"{name}_") for name in search._axes}
    if isinstance(search, FedHiPClassifierCV):
        return FedHiPClassifier(**best, local_classes_only=search.local_classes_only_, **params)
    only = search.local_classes_only_
    return AnaPFLClassifier(**best, **RANDOM, local_classes_only=only, **params)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_the_tuned_classifier_is_the_plain_one_at_the_best(search, federation, fit_intercept):
    X, y, groups = federation
    search.set_params(fit_intercept=fit_intercept).fit(X, y, groups=groups)
    clf = plain(search, fit_intercept=fit_intercept).fit(X, y, groups=groups)
    assert_allclose(search.personal_coef_, clf.personal_coef_, rtol=1e-9, atol=1e-12)
    assert_allclose(search.temperature_, clf.temperature_, rtol=1e-9)
    assert_array_equal(search.predict(X, groups=groups), clf.predict(X, groups=groups))
    exported = search.export_client(search.clients_[0])
    own = groups == search.clients_[0]
    assert_array_equal(exported.predict(X[own]), search.predict(X[own], groups=groups[own]))


def test_jobs_blocks_and_row_order_change_nothing(search, federation, monkeypatch):
    X, y, groups = federation
    search.fit(X, y, groups=groups)
    expected = search.cv_results_["mean_test_score"]
    order = np.random.default_rng(0).permutation(len(y))
    for jobs, size in ((2, 2**24), (1, 5000), (2, 5000)):
        monkeypatch.setattr("skfedhip.core._blocks.BLOCK_BYTES", size)
        again = clone(search).set_params(n_jobs=jobs).fit(X[order], y[order], groups=groups[order])
        assert_allclose(again.cv_results_["mean_test_score"], expected, rtol=1e-10)
        assert again.best_score_ == search.best_score_


def test_weight_two_is_the_row_twice_and_zero_the_row_dropped(search, federation):
    X, y, groups = federation
    weight = np.random.default_rng(0).integers(0, 3, len(y))
    twice = np.repeat(np.arange(len(y)), weight)
    search.set_params(scoring="neg_mean_squared_error").fit(
        X, y, groups=groups, sample_weight=weight
    )
    again = clone(search).fit(X[twice], y[twice], groups=groups[twice])
    for key in ("mean_test_score", "std_test_score"):
        assert_allclose(again.cv_results_[key], search.cv_results_[key], rtol=1e-9)


@pytest.mark.parametrize("scaled", [False, True])
def test_grid_search_picks_the_same_optimum_on_the_same_folds(search, federation, scaled):
    X, y, groups = federation
    folds = ClientKFold(3, shuffle=True, random_state=0)
    search.set_params(cv=folds, local_classes_only=False)
    grid = {name: getattr(search, f"{name}s") for name in search._axes}
    if isinstance(search, FedHiPClassifierCV):
        model = FedHiPClassifier()
    else:
        model = AnaPFLClassifier(**RANDOM)
    scorer = make_client_scorer("accuracy")
    if scaled:  # the scaler must not see the held-out rows, so only optima are compared
        model = make_pipeline(StandardScaler(), model)
        step = type(model[-1]).__name__.lower()
        grid = {f"{step}__{name}": values for name, values in grid.items()}
        search = make_pipeline(StandardScaler(), search)
    with config_context(enable_metadata_routing=True):
        outer = GridSearchCV(model, grid, cv=folds, scoring=scorer, n_jobs=2)
        outer.fit(X, y, groups=groups)
        search.fit(X, y, groups=groups)
    inner = search[-1] if scaled else search
    ours, theirs = inner.cv_results_["mean_test_score"], outer.cv_results_["mean_test_score"]
    if not scaled:
        assert_allclose(ours, theirs, rtol=1e-9)
        for i in range(3):
            key = f"split{i}_test_score"
            assert_allclose(inner.cv_results_[key], outer.cv_results_[key], rtol=1e-9)
        assert_array_equal(inner.cv_results_["rank_test_score"] == 1, theirs >= theirs.max())
    assert theirs.max() - theirs[np.argmax(ours)] <= 0.02


def test_group_column_in_a_pipeline(federation):
    X, y, groups = federation
    table = np.column_stack([groups, X])
    model = make_pipeline(
        FederatedStandardScaler(group_column=0), FedHiPClassifierCV(group_column=0)
    )
    assert model.fit(table, y).score(table, y) > 0.7
    assert len(model[-1].clients_) == 6


def test_each_client_takes_the_alpha_that_its_own_scores_prefer(federation):
    X, y, groups = federation
    search = FedHiPClassifierCV(**FEDHIP, alpha_per_client=True, store_cv_results=True)
    search.fit(X, y, groups=groups)
    at = np.flatnonzero(search.betas_ == search.beta_)[0]
    scores = search.client_cv_scores_[:, at]
    assert search.client_cv_scores_.shape == (6, 3, 4)
    assert_array_equal(search.client_alpha_, search.alphas_[scores.argmax(axis=1)])
    for k, alpha in enumerate(search.client_alpha_):
        clf = FedHiPClassifier(alpha, search.beta_).fit(X, y, groups=groups)
        assert_allclose(search.personal_coef_[k], clf.personal_coef_[k], rtol=1e-9, atol=1e-12)
    shared = FedHiPClassifierCV(**FEDHIP).fit(X, y, groups=groups)
    assert_array_equal(shared.client_alpha_, np.full(6, shared.alpha_))
    # the best of each can't be worse on the scores that it was chosen by
    assert scores.max(axis=1).mean() >= shared.best_score_ - 1e-12


def test_ties_go_to_the_simplest(federation):
    X, y, groups = federation
    easy = np.column_stack([np.eye(3)[y] * 10, X * 1e-3])
    search = FedHiPClassifierCV(**FEDHIP).fit(easy, y, groups=groups)
    assert search.best_score_ == 1.0
    assert (search.alpha_, search.beta_, search.local_classes_only_) == (0.0, 10.0, False)


def test_a_best_value_at_the_edge_warns_by_name(federation):
    X, y, groups = federation
    with pytest.warns(GridEdgeWarning, match="best beta, 1e"):
        FedHiPClassifierCV([0.0, 5.0, 1e6], [1e8, 1e9]).fit(X, y, groups=groups)


def test_an_edge_that_is_no_better_than_what_lies_beside_it_is_no_news(federation):
    X, y, groups = federation
    easy = np.column_stack([np.eye(3)[y] * 10, X * 1e-3])
    search = FedHiPClassifierCV([0.0, 1.0], [1.0, 2.0, 3.0]).fit(easy, y, groups=groups)
    assert search.beta_ == 3.0  # the last of equals


def test_the_whole_of_a_private_stream_is_no_edge(federation):
    X, y, groups = federation
    alone = np.column_stack([X, np.where(groups % 2, 1, -1) * y])
    search = AnaPFLClassifierCV([1.0], [1.0], [0.0, 0.5, 1.0], random_state=0, n_components=32)
    assert search.fit(alone, y, groups=groups).lam_ == 1.0


def test_what_travels_is_statistics_and_counts(search, federation):
    X, y, groups = federation
    twice = np.tile(X, (2, 1)), np.tile(y, 2), np.tile(groups, 2)
    search.fit(X, y, groups=groups)
    sizes = [*search.bytes_up_, *search.bytes_down_]
    search.fit(*twice[:2], groups=twice[2])
    assert [*search.bytes_up_, *search.bytes_down_] == sizes


def test_streams_begin_with_a_fit(search, federation):
    X, y, groups = federation
    assert not hasattr(search, "partial_fit")
    with pytest.raises(StatisticsDroppedError, match="call fit first"):
        search.partial_fit(X, y, groups=groups)
    search.set_params(retain_statistics=True)
    half = np.arange(len(y)) % 2 == 0
    search.fit(X[half], y[half], groups=groups[half])
    clf = plain(search).fit(X, y, groups=groups)
    search.partial_fit(X[~half], y[~half], groups=groups[~half])
    assert_allclose(search.personal_coef_, clf.personal_coef_, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"alphas": [1.0, -1.0]}, "alphas must be finite numbers >= 0"),
        ({"betas": []}, "betas must be finite numbers >= 0, at least one"),
        ({"betas": [np.nan]}, "betas must be finite"),
        ({"scoring": "f1"}, "'scoring' parameter"),
        ({"cv": 1}, "'cv' parameter"),
        ({"average": "mean"}, "'average' parameter"),
    ],
)
def test_bad_parameters_are_named(params, words, federation):
    X, y, groups = federation
    with pytest.raises(ValueError, match=words):
        FedHiPClassifierCV(**params).fit(X, y, groups=groups)
