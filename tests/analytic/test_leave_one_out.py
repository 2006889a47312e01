"""Leave-one-out scores, temperatures and searches against refitting without each row."""

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skfedhip import (
    AFLClassifier,
    AnaPFLClassifier,
    AnaPFLClassifierCV,
    FedHiPClassifier,
    FedHiPClassifierCV,
    LocalRidgeClassifier,
)
from skfedhip.core import (
    DesignBlock,
    Rotation,
    best_temperature,
    classes_left,
    kernel_spectrum,
    leave_one_out_errors,
    scores_from_errors,
    temperature_losses,
)
from skfedhip.metrics import client_scores
from skfedhip.model_selection import ClientKFold

CASE = Path(__file__).parents[1] / "data" / "fedhip_small.npz"

ESTIMATORS = {
    "FedHiP": FedHiPClassifier(2.0, 0.5),
    "FedHiP direct": FedHiPClassifier(2.0, 0.5, solver="direct"),
    "FedHiP residual": FedHiPClassifier(2.0, 0.5, solver="residual"),
    "FedHiP global": FedHiPClassifier(0.0, 0.5),
    "AFL": AFLClassifier(0.5),
    "Local": LocalRidgeClassifier(0.5),
    "AnaPFL": AnaPFLClassifier(0.3, 0.5, 0.4, n_components=7, random_state=0),
    "AnaPFL wide": AnaPFLClassifier(0.3, 0.5, 0.4, n_components=30, random_state=0),
}


@pytest.fixture(params=["all ones", "uneven"])
def federation(request):
    """X, y, groups and weights of six clients, one of a single row."""
    rng = np.random.default_rng(0)
    n = 22
    X, y, groups = rng.standard_normal((n, 5)) + 0.5, rng.integers(0, 3, n), rng.integers(0, 5, n)
    groups[0] = 5
    weight = np.ones(n)
    if request.param == "uneven":
        weight = rng.integers(0, 3, n) * rng.uniform(0.5, 1.5, n)
        weight[0] = 1.5
    return X, y, groups, weight


def without_each_row(clf, X, y, groups, weight):
    """Scores (n, d) of each row by the estimator fitted without one unit of it."""
    rows = []
    for i in range(len(y)):
        left = weight.copy()
        left[i] -= min(weight[i], 1.0)
        again = type(clf)(**{**clf.get_params(), "missing_groups": "global"})
        again.partial_fit(X, y, groups=groups, sample_weight=left, classes=np.unique(y))
        scores = again._scores(X[[i]], groups[[i]])[0]
        if isinstance(clf, LocalRidgeClassifier) and groups[i] not in again.clients_:
            scores = np.zeros(len(scores))  # nothing is known of it, and nothing shared
        rows.append(scores)
    return np.array(rows)


@pytest.mark.parametrize("local_classes_only", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_temperature_is_the_best_of_rows_left_out(
    name, fit_intercept, local_classes_only, federation, monkeypatch
):
    X, y, groups, weight = federation
    clf = ESTIMATORS[name].set_params(
        fit_intercept=fit_intercept, local_classes_only=local_classes_only
    )
    scores = without_each_row(clf, X, y, groups, weight)
    expected = best_temperature(temperature_losses(scores, y, weight))
    for block_bytes in (2**24, 8 * 5 * 5):  # the smaller cuts clients into pieces
        monkeypatch.setattr("skfedhip.core._blocks.BLOCK_BYTES", block_bytes)
        clf.fit(X, y, groups=groups, sample_weight=weight)
        assert_allclose(clf.temperature_, expected, rtol=1e-6)


def mean_score(scores, y, groups, weight, scoring, average):
    """Mean over clients, or over rows, of scores (n, d) of rows left out."""
    truth = np.eye(scores.shape[1])[y]
    rows = scores.argmax(axis=1) == y
    if scoring == "neg_mean_squared_error":
        rows = -np.mean((scores - truth) ** 2, axis=1)
    kept = weight > 0
    if average == "weighted":
        return np.average(rows[kept], weights=weight[kept])
    of = [kept & (groups == k) for k in np.unique(groups[kept])]
    return np.mean([np.average(rows[own], weights=weight[own]) for own in of])


@pytest.mark.filterwarnings("ignore::skfedhip.GridEdgeWarning")
@pytest.mark.parametrize(
    ("scoring", "average", "local_classes_only"),
    [
        ("accuracy", "macro", False),
        ("accuracy", "weighted", True),
        ("neg_mean_squared_error", "macro", True),
    ],
)
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_grids_are_scored_as_by_refitting(
    fit_intercept, local_classes_only, scoring, average, federation
):
    X, y, groups, weight = federation
    how = {"fit_intercept": fit_intercept, "local_classes_only": local_classes_only}
    searches = (
        (FedHiPClassifierCV([0.0, 3.0], [0.1, 2.0], scoring=scoring, average=average, **how), {}),
        (
            AnaPFLClassifierCV(
                [0.2, 1.0],
                [0.3],
                [0.0, 0.5],
                9,
                scoring=scoring,
                average=average,
                random_state=0,
                **how,
            ),
            {"n_components": 9, "random_state": 0},
        ),
    )
    if scoring == "neg_mean_squared_error":
        how["local_classes_only"] = False  # the squared error is taken unmasked
    for search, fixed in searches:
        search.fit(X, y, groups=groups, sample_weight=weight)
        plain = FedHiPClassifier if isinstance(search, FedHiPClassifierCV) else AnaPFLClassifier
        results = search.cv_results_
        for params, score in zip(results["params"], results["mean_test_score"], strict=True):
            scores = without_each_row(plain(**params, **fixed, **how), X, y, groups, weight)
            expected = mean_score(scores, y, groups, weight, scoring, average)
            assert_allclose(score, expected, rtol=1e-8, err_msg=str(params))
        assert_allclose(search.best_score_, results["mean_test_score"].max(), rtol=1e-12)
        assert results["rank_test_score"][np.argmax(results["mean_test_score"])] == 1


def test_scores_of_rows_left_out_in_a_known_case():
    with np.load(CASE, allow_pickle=False) as case:
        X, y, groups = case["X"], case["y"], case["groups"]
        alpha, beta, expected = float(case["alpha"]), float(case["beta"]), case["loo_scores"]
    gram, labels = X.T @ X, np.eye(3)[y]
    rotation = Rotation(*np.linalg.eigh(gram)[::-1], None, 0)
    rotation = Rotation(rotation.vectors, rotation.values, (X.T @ labels).T @ rotation.vectors, 0)
    scaled = X @ rotation.vectors * np.sqrt(rotation.gains(beta))
    residuals = labels - X @ rotation.vectors @ rotation.coef(beta).T
    for k in np.unique(groups):
        own = groups == k
        spectrum = kernel_spectrum(scaled[own])
        projected = spectrum[0].T @ residuals[own]
        (errors,) = leave_one_out_errors(spectrum, projected, residuals[own], np.array([alpha]))
        assert_allclose(scores_from_errors(errors, labels[own]), expected[own], atol=1e-10)


@pytest.mark.filterwarnings("ignore::skfedhip.GridEdgeWarning")
@pytest.mark.filterwarnings("ignore:.*fewer rows than n_splits:UserWarning")
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_folds_are_scored_as_by_refitting(fit_intercept, federation):
    X, y, groups, _ = federation
    folds = ClientKFold(3, shuffle=True, random_state=0)
    how = {"fit_intercept": fit_intercept, "local_classes_only": False}
    fixed = {"n_components": 9, "random_state": 0}
    searches = (
        (FedHiPClassifierCV([0.0, 3.0], [0.1, 2.0], cv=folds, **how), FedHiPClassifier, {}),
        (
            AnaPFLClassifierCV([0.2, 1.0], [0.3], [0.0, 0.5], cv=folds, **fixed, **how),
            AnaPFLClassifier,
            fixed,
        ),
    )
    for search, plain, kept in searches:
        results = search.fit(X, y, groups=groups).cv_results_
        for i, (train, test) in enumerate(folds.split(X, y, groups)):
            for params, score in zip(
                results["params"], results[f"split{i}_test_score"], strict=True
            ):
                clf = plain(**params, **kept, **how)
                clf.fit(X[train], y[train], groups=groups[train])
                predicted = clf.predict(X[test], groups=groups[test])
                scores = client_scores(y[test], predicted, groups[test]).scores
                assert_allclose(score, scores.mean(), rtol=1e-12)


@pytest.mark.filterwarnings("ignore::skfedhip.GridEdgeWarning")
def test_a_row_that_alone_decides_its_fit_scores_nothing_and_is_never_nan():
    X = np.zeros((8, 4))
    X[:6, :2] = np.random.default_rng(0).standard_normal((6, 2))
    X[6, 2] = X[7, 3] = 1.0  # nobody else has these features
    y, groups = np.array([0, 1] * 4), np.array([0, 0, 0, 1, 1, 1, 0, 1])
    clf = FedHiPClassifier(1.0, 1e-300).fit(X, y, groups=groups)
    assert np.isfinite(clf.temperature_)
    search = FedHiPClassifierCV([0.0, 1.0], [1e-300, 1.0]).fit(X, y, groups=groups)
    assert np.all(np.isfinite(search.cv_results_["mean_test_score"]))


def test_classes_left_without_the_row():
    design = DesignBlock(
        rows=np.zeros((4, 1)),
        targets=np.zeros((4, 3)),
        class_weights=np.array([[2.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
        client_ids=np.array([0, 1]),
        offsets=np.array([0, 3, 4]),
        codes=np.array([0, 0, 1, 2]),
        root=np.ones(4),
    )
    expected = [[True, True, False], [True, True, False], [True, False, False], [True] * 3]
    assert classes_left(design).tolist() == expected


def test_temperature_losses_equal_the_log_loss():
    rng = np.random.default_rng(0)
    scores, codes, weight = rng.normal(size=(50, 4)), rng.integers(0, 4, 50), rng.uniform(size=50)
    from sklearn.metrics import log_loss

    from skfedhip.core import TEMPERATURES

    losses = temperature_losses(scores, codes, weight)
    for temperature, loss in zip(TEMPERATURES, losses, strict=True):
        odds = np.exp((scores - scores.max(axis=1, keepdims=True)) / temperature)
        shares = odds / odds.sum(axis=1, keepdims=True)
        expected = log_loss(codes, shares, sample_weight=weight, labels=range(4))
        assert_allclose(loss / weight.sum(), expected, rtol=1e-9)
    assert best_temperature(np.full(26, 3.0)) == 1.0


def test_probabilities_are_calibrated_on_digits():
    """A lower log-loss and calibration error than temperature 1, and no certain predictions."""
    from sklearn.datasets import load_digits
    from sklearn.metrics import log_loss

    from skfedhip.datasets import partition_dirichlet
    from skfedhip.model_selection import ClientShuffleSplit

    X, y = load_digits(return_X_y=True)
    groups = partition_dirichlet(y, 20, 0.5, random_state=0)
    ((train, test),) = ClientShuffleSplit(random_state=0).split(X, y, groups)
    for name, clf in ESTIMATORS.items():
        clf = clf.set_params(fit_intercept=True, local_classes_only=False)
        if name.startswith("AnaPFL"):
            clf = clf.set_params(n_components=100)
        clf.fit(X[train] / 16, y[train], groups=groups[train])
        calibrated = clf.predict_proba(X[test] / 16, groups=groups[test])
        clf.temperature_ = 1.0
        plain = clf.predict_proba(X[test] / 16, groups=groups[test])
        assert log_loss(y[test], calibrated) < 0.7 * log_loss(y[test], plain)
        assert calibration_error(calibrated, y[test]) < 0.5 * calibration_error(plain, y[test])
        assert calibrated.min() > 0.0
        assert calibrated.max() < 1.0


def calibration_error(proba, y):
    """Mean gap between confidence and accuracy in ten bins of confidence, by rows."""
    confidence, right = proba.max(axis=1), proba.argmax(axis=1) == y
    bins = np.minimum((confidence * 10).astype(int), 9)
    gaps = [abs(confidence[bins == b].sum() - right[bins == b].sum()) for b in np.unique(bins)]
    return sum(gaps) / len(y)
