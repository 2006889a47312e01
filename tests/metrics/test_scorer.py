"""Client scorers: the right average of the right scores, with groups handed to predict."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn import metrics as sklearn_metrics
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import AdaBoostClassifier
from sklearn.experimental import enable_halving_search_cv  # noqa: F401 - makes it importable
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skfedhip import FederatedStandardScaler, FedHiPClassifier, LocalRidgeClassifier
from skfedhip.exceptions import MissingGroupsWarning
from skfedhip.metrics import client_scores, client_summary, make_client_scorer
from skfedhip.model_selection import ClientKFold, ClientShuffleSplit

GROUPS = np.repeat(["ann", "bob", "cyd"], [12, 24, 60])


def concepts(seed=0):
    """Clients whose labels follow from opposite features, so that the global model is useless."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(len(GROUPS), 6))
    sign = np.where(GROUPS == "bob", -1.0, 1.0)
    y = np.array(["no", "yes"])[(sign * X[:, 0] + 0.3 * rng.normal(size=len(X)) > 0).astype(int)]
    y[::7] = "odd"
    return X, y


def with_ids(X):
    """The rows with a numeric id column at the end."""
    return np.column_stack([X, np.unique(GROUPS, return_inverse=True)[1]])


def one_by_one(score, average, *arrays):
    values = [score(*(a[group == GROUPS] for a in arrays)) for group in ("ann", "bob", "cyd")]
    if isinstance(average, float):
        return np.quantile(values, average)
    weights = {"weighted": [12, 24, 60], "macro": [1, 1, 1], "min": np.equal(values, min(values))}
    return np.average(values, weights=weights[average])


def strict(**params):
    """A classifier that refuses to predict without ids, so that losing them does not go unseen."""
    return FedHiPClassifier(alpha=10.0, missing_groups="error", **params)


@pytest.fixture
def routing():
    with config_context(enable_metadata_routing=True):
        yield


@pytest.mark.parametrize("average", ["macro", "weighted", "min", 0.0, 0.25, 0.5, 1.0])
@pytest.mark.parametrize(
    ("scoring", "reference"),
    [
        ("accuracy", sklearn_metrics.accuracy_score),
        ("balanced_accuracy", sklearn_metrics.balanced_accuracy_score),
        ("f1_macro", lambda t, p: sklearn_metrics.f1_score(t, p, average="macro")),
        (sklearn_metrics.matthews_corrcoef, sklearn_metrics.matthews_corrcoef),
    ],
)
def test_it_averages_the_scores_of_each_client(scoring, reference, average):
    X, y = concepts()
    clf = strict().fit(X, y, groups=GROUPS)
    score = make_client_scorer(scoring, average)(clf, X, y, groups=GROUPS)
    assert type(score) is float
    predicted = clf.predict(X, groups=GROUPS)
    assert score == pytest.approx(one_by_one(reference, average, y, predicted))


@pytest.mark.parametrize("average", ["macro", "weighted", "min", 0.3])
def test_log_loss_reads_the_personal_probabilities(average):
    X, y = concepts()
    clf = strict().fit(X, y, groups=GROUPS)
    score = make_client_scorer("neg_log_loss", average)(clf, X, y, groups=GROUPS)
    proba = clf.predict_proba(X, groups=GROUPS)

    def reference(y, proba):
        return -sklearn_metrics.log_loss(y, proba, labels=clf.classes_)

    assert score == pytest.approx(one_by_one(reference, average, y, proba))


def test_a_label_that_was_never_seen_is_impossible_not_an_error():
    X, y = concepts()
    clf = LogisticRegression().fit(X[y != "odd"], y[y != "odd"])
    score = make_client_scorer("neg_log_loss")(clf, X[:7], y[:7], groups=GROUPS[:7])
    own = clf.predict_proba(X[:7])[np.arange(1, 7), (y[1:7] == "yes").astype(int)]
    assert score == pytest.approx((np.log(np.finfo(float).eps) + np.log(own).sum()) / 7)


def test_absent_classes_of_a_client_cost_a_finite_loss():
    X, y = concepts()
    y[GROUPS == "ann"] = "no"
    clf = strict(local_classes_only=True).fit(X, y, groups=GROUPS)
    labels = np.where(GROUPS == "ann", "yes", y)
    assert np.isfinite(make_client_scorer("neg_log_loss")(clf, X, labels, groups=GROUPS))


class NoClients(ClassifierMixin, BaseEstimator):
    """Predicts the first class; its predict would fail if it got groups."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[0])


@pytest.mark.parametrize("routed", [False, True])
@pytest.mark.parametrize(
    "clf",
    [
        LogisticRegression(),
        make_pipeline(StandardScaler(), RidgeClassifier()),
        AdaBoostClassifier(n_estimators=2),
        GridSearchCV(RidgeClassifier(), {"alpha": [1.0]}, cv=2),
        NoClients(),
    ],
    ids=lambda clf: type(clf).__name__,
)
def test_estimators_that_know_no_clients_are_scored_client_by_client(clf, routed):
    X, y = concepts()
    clf = clone(clf).fit(X, y)
    with config_context(enable_metadata_routing=routed):
        score = make_client_scorer()(clf, X, y, groups=GROUPS)
    expected = client_scores(y, clf.predict(X), GROUPS)
    assert score == pytest.approx(client_summary(expected)["mean"])


def test_pipelines_hand_groups_on_with_and_without_routing(routing):
    X, y = concepts()
    pipe = make_pipeline(StandardScaler(), strict()).fit(X, y, groups=GROUPS)
    scorer = make_client_scorer()
    routed = scorer(pipe, X, y, groups=GROUPS)
    with config_context(enable_metadata_routing=False):
        plain = scorer(pipe, X, y, groups=GROUPS)
    scaled = pipe[0].transform(X)
    expected = client_scores(y, pipe[1].predict(scaled, groups=GROUPS), GROUPS)
    assert routed == plain == client_summary(expected)["mean"]
    assert routed > 0.7


def test_groups_reach_predict_in_a_grid_search(routing):
    X, y = concepts()
    scorer = make_client_scorer()
    grid = GridSearchCV(strict(), {"alpha": [0.01, 10.0]}, scoring=scorer, cv=ClientKFold(3))
    grid.fit(X, y, groups=GROUPS)
    by_hand = []
    for train, test in ClientKFold(3).split(X, y, GROUPS):
        clf = strict().fit(X[train], y[train], groups=GROUPS[train])
        scores = client_scores(y[test], clf.predict(X[test], groups=GROUPS[test]), GROUPS[test])
        by_hand.append(scores.scores.mean())
    assert grid.cv_results_["mean_test_score"][1] == pytest.approx(np.mean(by_hand))
    assert grid.best_params_ == {"alpha": 10.0}
    assert grid.score(X, y, groups=GROUPS) == scorer(grid, X, y, groups=GROUPS) > 0.7


def test_several_scorers_at_once_nested_over_a_pipeline_in_two_processes(routing):
    X, y = concepts()
    scoring = {
        "mean": make_client_scorer(),
        "worst": make_client_scorer(average="min"),
        "loss": make_client_scorer("neg_log_loss", 0.25),
    }
    pipe = make_pipeline(StandardScaler(), strict())
    params = {"fedhipclassifier__alpha": [0.1, 10.0]}
    grid = GridSearchCV(pipe, params, scoring=scoring, refit="mean", cv=ClientKFold(2))
    result = cross_validate(
        grid,
        X,
        y,
        cv=ClientShuffleSplit(2, random_state=0),
        scoring=scoring,
        params={"groups": GROUPS},
        n_jobs=2,
        return_estimator=True,
        error_score="raise",
    )
    (_, test), *_ = ClientShuffleSplit(2, random_state=0).split(X, y, GROUPS)
    best = result["estimator"][0].best_estimator_
    predicted = best.predict(X[test], groups=GROUPS[test])
    scores = client_scores(y[test], predicted, GROUPS[test]).scores
    assert result["test_mean"][0] == pytest.approx(scores.mean())
    assert result["test_worst"][0] == scores.min()
    assert np.all(result["test_loss"] < 0)


def test_a_plain_scorer_beside_it_does_not_lend_it_global_predictions(routing):
    X, y = concepts()
    clf = FedHiPClassifier(alpha=10.0, missing_groups="global")
    both = {"plain": "accuracy", "client": make_client_scorer(), "more": "balanced_accuracy"}
    params = {"groups": GROUPS}
    splitter = ClientShuffleSplit(random_state=0)
    result = cross_validate(clf, X, y, cv=splitter, scoring=both, params=params)
    ((train, test),) = splitter.split(X, y, GROUPS)
    clf.fit(X[train], y[train], groups=GROUPS[train])
    personal = client_scores(y[test], clf.predict(X[test], groups=GROUPS[test]), GROUPS[test])
    assert result["test_client"] == client_summary(personal)["mean"]
    assert result["test_plain"] == np.mean(clf.predict(X[test]) == y[test])
    assert result["test_plain"] != client_summary(personal)["weighted_mean"]


def test_halving_search(routing):
    X, y = concepts()
    search = HalvingGridSearchCV(
        FedHiPClassifier(missing_groups="global"),
        {"alpha": [0.01, 10.0]},
        scoring=make_client_scorer(),
        cv=ClientKFold(2),
        random_state=0,
        error_score="raise",
    )
    assert search.fit(X, y, groups=GROUPS).best_score_ > 0.5


def test_without_routing_the_estimators_id_column_does():
    X, y = concepts()
    rows, codes = with_ids(X), with_ids(X)[:, -1]
    splitter = ClientShuffleSplit(2, random_state=0, group_column=-1)
    pipe = make_pipeline(FederatedStandardScaler(group_column=-1), strict(group_column=-1))
    grid = GridSearchCV(
        pipe,
        {"fedhipclassifier__alpha": [0.1, 10.0]},
        scoring={"a": make_client_scorer(), "b": "accuracy"},
        refit="a",
        cv=ClientKFold(2, group_column=-1),
    )
    scorer = make_client_scorer(average="weighted")
    scoring = {"client": scorer, "all": "accuracy"}
    result = cross_validate(
        grid, rows, y, cv=splitter, scoring=scoring, error_score="raise", n_jobs=2
    )
    np.testing.assert_allclose(result["test_client"], result["test_all"])
    clf = clone(pipe).fit(rows, y)
    expected = client_summary(client_scores(y, clf.predict(rows), codes))["weighted_mean"]
    assert scorer(clf, rows, y) == expected
    with config_context(enable_metadata_routing=True):
        assert scorer(clf, rows, y) == expected


def test_a_column_by_name_and_one_that_a_pipeline_moves():
    X, y = concepts()
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(who=GROUPS)
    clf = strict(group_column="who").fit(frame, y)
    expected = client_summary(client_scores(y, clf.predict(frame), GROUPS))["mean"]
    assert make_client_scorer()(clf, frame, y) == expected
    moved = make_pipeline(
        make_column_transformer(("passthrough", ["who"]), remainder="passthrough"),
        strict(group_column=0),
    ).fit(frame, y)
    assert make_client_scorer(group_column="who")(moved, frame, y) == expected
    dropped = make_pipeline(
        make_column_transformer(("drop", ["who"]), remainder="passthrough"), RidgeClassifier()
    ).fit(frame, y)
    expected = client_summary(client_scores(y, dropped.predict(frame), GROUPS))["mean"]
    assert make_client_scorer(group_column="who")(dropped, frame, y) == expected


def test_the_first_step_with_an_id_column_names_it():
    X, y = concepts()
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(who=GROUPS)[["who", *"abcdef"]]
    pipe = make_pipeline(FederatedStandardScaler(group_column="who"), strict(group_column=0))
    pipe.fit(frame, y)
    expected = client_summary(client_scores(y, pipe.predict(frame), GROUPS))["mean"]
    assert make_client_scorer()(pipe, frame, y) == expected


def test_groups_win_over_the_column():
    X, y = concepts()
    rows = with_ids(X)
    clf = strict(group_column=-1).fit(rows, y)
    other = rows[::-1, -1]
    scores = client_scores(y, clf.predict(rows, groups=other), other)
    scorer = make_client_scorer(group_column=0)
    assert scorer(clf, rows, y, groups=other) == client_summary(scores)["mean"]


def test_no_ids_at_all_is_an_error_that_says_what_to_do():
    X, y = concepts()
    clf = LocalRidgeClassifier().fit(X, y, groups=GROUPS)
    with pytest.raises(ValueError, match="set group_column, or pass groups"):
        make_client_scorer()(clf, X, y)
    with pytest.raises(ValueError, match="group_column=9 of make_client_scorer"):
        make_client_scorer(group_column=9)(clf, X, y)


def test_a_score_that_is_not_finite_is_an_error():
    X, y = concepts()
    clf = RidgeClassifier().fit(X, y)
    with pytest.raises(ValueError, match="score of client 'ann' is nan"):
        make_client_scorer(lambda t, p: np.nan)(clf, X, y, groups=GROUPS)


def test_only_what_requests_groups_gets_them(routing):
    scorer = make_client_scorer()
    assert scorer.get_metadata_routing().consumes("score", ["groups", "estimator"]) == {"groups"}
    renamed = make_client_scorer().set_score_request(groups="site")
    X, y = concepts()
    scores = cross_val_score(
        RidgeClassifier(), X, y, cv=2, scoring=renamed, params={"site": GROUPS}
    )
    assert np.isfinite(scores).all()
    assert clone(renamed).get_metadata_routing().consumes("score", ["site"]) == {"site"}


def test_meta_estimators_that_lose_groups_do_not_do_so_silently(routing):
    X, y = concepts()
    clf = FedHiPClassifier().fit(X, y, groups=GROUPS)
    lossy = NoRoute(clf).fit(X, y)
    with pytest.warns(MissingGroupsWarning):
        make_client_scorer()(lossy, X, y, groups=GROUPS)


class NoRoute(ClassifierMixin, BaseEstimator):
    """A meta-estimator that passes no groups on."""

    def __init__(self, estimator):
        self.estimator = estimator

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return self.estimator.predict(X)


@pytest.mark.parametrize(
    "scorer",
    [
        make_client_scorer(),
        make_client_scorer("f1_macro", 0.1, group_column="who"),
        make_client_scorer(sklearn_metrics.cohen_kappa_score, "min"),
    ],
    ids=["accuracy", "f1_macro", "a function"],
)
def test_it_is_pickled_and_cloned(scorer):
    for copy in (clone(scorer), pickle.loads(pickle.dumps(scorer))):
        assert copy.get_params() == scorer.get_params()
        assert repr(copy) == repr(scorer)
    grid = clone(GridSearchCV(RidgeClassifier(), {"alpha": [1.0]}, scoring=scorer))
    assert repr(grid.scoring) == repr(scorer)
    assert "ClientScorer(" in repr(grid)


def test_sample_weight_of_a_search_is_not_for_the_scorer():
    X, y = concepts()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        grid = GridSearchCV(
            LocalRidgeClassifier(group_column=-1),
            {"beta": [1.0]},
            scoring={"a": make_client_scorer(), "b": make_client_scorer(average="min")},
            refit="a",
            cv=ClientKFold(2, group_column=-1),
        ).fit(with_ids(X), y, sample_weight=np.ones(len(y)))
    assert all("does not support sample_weight" in str(w.message) for w in caught)
    assert np.isfinite(grid.best_score_)


@pytest.mark.parametrize("scoring", ["roc_auc", None, 3, ["accuracy"]])
def test_unknown_scoring_is_refused(scoring):
    with pytest.raises(ValueError, match=r"scoring must be one of .*'neg_log_loss'"):
        make_client_scorer(scoring)


@pytest.mark.parametrize("average", ["mean", -0.1, 1.5, np.nan, True, None])
def test_unknown_average_is_refused(average):
    with pytest.raises(ValueError, match=r"average must be one of .* or a quantile from 0 to 1"):
        make_client_scorer(average=average)
