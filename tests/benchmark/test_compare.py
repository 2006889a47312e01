"""``compare`` equals fitting and scoring by hand, whatever the estimators make of groups."""

import builtins

import numpy as np
import pandas as pd
import pytest
from sklearn import get_config
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import AdaBoostClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skfedhip import FedHiPClassifier, LocalRidgeClassifier
from skfedhip.benchmark import compare
from skfedhip.datasets import make_federated_classification
from skfedhip.metrics import client_scores, make_client_scorer
from skfedhip.model_selection import ClientKFold, ClientShuffleSplit


@pytest.fixture(scope="module")
def data():
    X, y, clients = make_federated_classification(
        8, n_samples=800, client_shift=1.0, random_state=0
    )
    return X, y, np.array([f"site {k}" for k in range(8)])[clients]


def strict():
    return FedHiPClassifier(alpha=10.0, missing_groups="error")


def by_hand(fit_predict, data, cv):
    """Mean over folds of the accuracy of each client, by loops."""
    _, y, groups = data
    scores = {client: [] for client in np.unique(groups)}
    for train, test in cv:
        predicted = fit_predict(train, test)
        for client, own in scores.items():
            at = groups[test] == client
            if at.any():
                own.append(np.mean(predicted[at] == y[test][at]))
    return [np.mean(own) if own else np.nan for own in scores.values()]


def test_it_equals_scores_by_hand(data):
    X, y, groups = data
    table = compare({"FedHiP": strict(), "ridge": RidgeClassifier()}, X, y, groups)
    assert isinstance(table, pd.DataFrame)
    assert table.index.name == "client"
    np.testing.assert_array_equal(table.index, np.unique(groups))
    assert list(table.columns) == ["FedHiP", "ridge"]
    cv = list(ClientShuffleSplit(random_state=0).split(X, y, groups))

    def personal(train, test):
        clf = strict().fit(X[train], y[train], groups=groups[train])
        return clf.predict(X[test], groups=groups[test])

    def ridge(train, test):
        return RidgeClassifier().fit(X[train], y[train]).predict(X[test])

    np.testing.assert_allclose(table["FedHiP"], by_hand(personal, data, cv))
    np.testing.assert_allclose(table["ridge"], by_hand(ridge, data, cv))
    table = compare({"ridge": RidgeClassifier()}, X, y, groups, cv=ClientKFold(3))
    cv = list(ClientKFold(3).split(X, y, groups))
    np.testing.assert_allclose(table["ridge"], by_hand(ridge, data, cv))
    for plain in (KFold(4), list(KFold(4).split(X))):
        table = compare(RidgeClassifier(), X, y, groups, cv=plain)
        expected = by_hand(ridge, data, list(KFold(4).split(X)))
        np.testing.assert_allclose(table["RidgeClassifier"], expected)


def test_groups_reach_pipelines_and_searches_and_nobody_else(data):
    X, y, groups = data
    models = {
        "pipeline": make_pipeline(StandardScaler(), strict()),
        "search": GridSearchCV(
            make_pipeline(StandardScaler(), strict()),
            {"fedhipclassifier__alpha": [10.0]},
            cv=ClientKFold(2),
            scoring=make_client_scorer(),
            error_score="raise",
        ),
        "search over ridge": GridSearchCV(RidgeClassifier(), {"alpha": [1.0]}, cv=GroupKFold(2)),
        "ridge": RidgeClassifier(),
        "boosting": AdaBoostClassifier(n_estimators=2, random_state=0),
        "constant": DummyClassifier(),
    }
    table = compare(models, X, y, groups)
    assert not get_config()["enable_metadata_routing"]
    np.testing.assert_array_equal(table["pipeline"], table["search"])
    np.testing.assert_array_equal(table["ridge"], table["search over ridge"])
    assert table.notna().all(axis=None)
    assert not hasattr(models["ridge"], "coef_")  # clones are fitted


def test_group_columns_are_left_to_their_estimators(data):
    X, y, groups = data
    frame = pd.DataFrame(X).rename(columns=str).assign(who=groups)
    models = {"column": FedHiPClassifier(alpha=10.0, missing_groups="error", group_column="who")}
    table = compare(models, frame, pd.Series(y), pd.Series(groups))
    np.testing.assert_allclose(table["column"], compare(strict(), X, y, groups).squeeze())


def test_folds_that_miss_a_client_do_not_count_for_it():
    y = np.array([0, 1] * 6)
    X, groups = np.eye(12), np.repeat(["a", "b", "c"], 4)
    cv = [(np.arange(4, 12), np.arange(4)), (np.arange(8), np.array([0, 1]))]
    cv += [(np.arange(4), np.arange(4, 6))]
    table = compare(DummyClassifier(strategy="constant", constant=1), X, y, groups, cv=cv)
    np.testing.assert_array_equal(table["DummyClassifier"], [0.5, 0.5, np.nan])


def test_any_scoring_of_the_scorer(data):
    X, y, groups = data
    table = compare(LogisticRegression(), X, y, groups, scoring="neg_log_loss")
    assert np.all(table < 0, axis=None)
    table = compare(LocalRidgeClassifier(), X, y, groups, scoring=lambda t, p: len(t))
    ((_, test),) = ClientShuffleSplit(random_state=0).split(X, y, groups)
    np.testing.assert_array_equal(
        table.squeeze(), client_scores(y[test], y[test], groups[test]).n_rows
    )


def test_what_cannot_be_compared_is_refused(data, monkeypatch):
    X, y, groups = data
    with pytest.raises(ValueError, match="empty dict"):
        compare({}, X, y, groups)
    with pytest.raises(ValueError, match="metric must be one of"):
        compare(RidgeClassifier(), X, y, groups, scoring="auc")
    with pytest.raises(ValueError, match="groups must hold one client id for each of the 800 rows"):
        compare(RidgeClassifier(), X, y, groups[1:])
    plain = builtins.__import__

    def no_pandas(name, *args, **kwargs):
        if name == "pandas":
            raise ImportError(name)
        return plain(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_pandas)
    with pytest.raises(ImportError, match=r"compare needs pandas; .*skfedhip\[plot\]"):
        compare(RidgeClassifier(), X, y, groups)


def test_several_estimators_need_names():
    with pytest.raises(TypeError, match="pass a dict from name to each"):
        compare([FedHiPClassifier(), FedHiPClassifier()], np.eye(4), [0, 1, 0, 1], [0, 0, 1, 1])
