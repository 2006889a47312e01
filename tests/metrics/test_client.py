"""Per-client scores equal scikit-learn's, client by client; their summary equals its definition."""

import json
import time
import warnings

import numpy as np
import pytest
from sklearn import metrics

from skfedhip.metrics import ClientScores, client_scores, client_summary

REFERENCES = {
    "accuracy": metrics.accuracy_score,
    "balanced_accuracy": metrics.balanced_accuracy_score,
    "f1_macro": lambda t, p: metrics.f1_score(t, p, average="macro", zero_division=0),
    "f1_weighted": lambda t, p: metrics.f1_score(t, p, average="weighted", zero_division=0),
    "precision_macro": lambda t, p: metrics.precision_score(t, p, average="macro", zero_division=0),
    "recall_macro": lambda t, p: metrics.recall_score(t, p, average="macro", zero_division=0),
}


def predictions(seed=0, n=300, n_clients=25, n_classes=6):
    """Clients of very different size, many of which lack classes."""
    rng = np.random.default_rng(seed)
    groups = (n_clients * rng.random(n) ** 3).astype(int) - 3
    y = rng.integers(0, n_classes, n)
    y_pred = np.where(rng.random(n) < 0.5, y, rng.integers(0, n_classes, n))
    return y, y_pred, groups


def one_by_one(y, y_pred, groups, metric):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's words on classes that a client lacks
        return [metric(y[groups == k], y_pred[groups == k]) for k in np.unique(groups)]


@pytest.mark.parametrize("metric", REFERENCES)
@pytest.mark.parametrize("seed", range(3))
def test_scores_equal_scikit_learn_client_by_client_and_never_warn(metric, seed):
    y, y_pred, groups = predictions(seed)
    result = client_scores(y, y_pred, groups, metric)
    expected = one_by_one(y, y_pred, groups, REFERENCES[metric])
    np.testing.assert_allclose(result.scores, expected, rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(result.clients, np.unique(groups))
    np.testing.assert_array_equal(result.n_rows, np.unique(groups, return_counts=True)[1])


@pytest.mark.parametrize("metric", REFERENCES)
def test_perfect_is_one_exactly_and_all_wrong_is_zero(metric):
    y, _, groups = predictions()
    assert np.all(client_scores(y, y, groups, metric).scores == 1)
    assert np.all(client_scores(y, y + 1000, groups, metric).scores == 0)


def test_a_callable_gets_the_rows_of_one_client_in_order():
    y, y_pred, groups = predictions()
    result = client_scores(y, y_pred, groups, metrics.matthews_corrcoef)
    np.testing.assert_array_equal(
        result.scores, one_by_one(y, y_pred, groups, metrics.matthews_corrcoef)
    )
    first = client_scores(np.arange(300), y_pred, groups, lambda t, p: t[0])
    np.testing.assert_array_equal(first.scores, np.unique(groups, return_index=True)[1])


def test_a_callable_may_take_probabilities():
    y, _, groups = predictions(n_classes=2)
    proba = np.column_stack([np.full(300, 0.3), np.full(300, 0.7)])
    result = client_scores(y, proba, groups, lambda t, p: metrics.log_loss(t, p, labels=[0, 1]))
    expected = [-np.log(np.where(y[groups == k], 0.7, 0.3)).mean() for k in result.clients]
    np.testing.assert_allclose(result.scores, expected)


@pytest.mark.parametrize(
    "rename",
    [
        lambda g: np.char.add("client ", (g + 50).astype(str)),
        lambda g: g.astype(object),
        lambda g: g * 2**55,
        lambda g: g / 2,
        lambda g: g.tolist(),
    ],
)
def test_renaming_clients_renames_only(rename):
    y, y_pred, groups = predictions()
    plain = client_scores(y, y_pred, groups)
    renamed = client_scores(y, y_pred, rename(groups))
    names = rename(plain.clients)
    assert dict(zip(names, plain.scores, strict=True)) == dict(
        zip(renamed.clients.tolist(), renamed.scores, strict=True)
    )


def test_kinds_of_label_do_not_matter():
    y, y_pred, groups = predictions()
    expected = client_scores(y, y_pred, groups, "f1_macro").scores
    names = np.array([f"class {c}" for c in range(6)])
    for kind in (
        names.__getitem__,
        np.ndarray.tolist,
        lambda a: a.astype(float),
        lambda a: a[:, None],
    ):
        scores = client_scores(kind(y), kind(y_pred), groups, "f1_macro").scores
        np.testing.assert_array_equal(scores, expected)
    mixed = client_scores(names[y], names[y_pred].astype(object), groups, "f1_macro")
    np.testing.assert_array_equal(mixed.scores, expected)


def test_many_clients_are_scored_without_a_loop():
    rng = np.random.default_rng(0)
    y, y_pred = rng.integers(0, 10, (2, 100_000))
    groups = rng.integers(0, 10_000, 100_000)
    start = time.perf_counter()
    client_scores(y, y_pred, groups)
    assert time.perf_counter() - start < 1.0  # a hundred times what it takes when idle


@pytest.mark.parametrize(
    ("y", "y_pred", "groups", "metric", "match"),
    [
        ([], [], [], "accuracy", "no rows"),
        ([0, 1], [0], [1, 1], "accuracy", "inconsistent numbers of samples"),
        ([0, 1], [0, 1], [1, 1, 1], "accuracy", "one client id for each of the 2 rows"),
        ([0, 1], [0, 1], [1.0, np.nan], "accuracy", "NaN"),
        ([0, 1], [0, 1], ["a", None], "accuracy", "None"),
        ([0, np.nan], [0, np.nan], [1, 1], "accuracy", "missing labels"),
        ([0, 1], ["0", "1"], [1, 1], "accuracy", "both be strings or both be numbers"),
        ([0, 1], [0, 1], [1, 1], "auc", "metric must be one of .* got 'auc'"),
        ([0, 1], [0, 1], [1, 1], None, "metric must be one of .* got None"),
    ],
)
def test_what_cannot_be_scored_is_refused(y, y_pred, groups, metric, match):
    with pytest.raises(ValueError, match=match):
        client_scores(y, y_pred, groups, metric)


@pytest.mark.parametrize("n_clients", [1, 2, 9, 10, 19, 20, 105])
def test_summary_equals_its_definition(n_clients):
    rng = np.random.default_rng(n_clients)
    values, n_rows = rng.random(n_clients), rng.integers(1, 50, n_clients)
    summary = client_summary(ClientScores(np.arange(n_clients), values, n_rows))
    mean = sum(values) / n_clients
    worst = sorted(values)[: max(1, n_clients // 10)]
    expected = {
        "mean": mean,
        "weighted_mean": sum(values * n_rows) / sum(n_rows),
        "std": (sum((values - mean) ** 2) / n_clients) ** 0.5,
        "min": min(values),
        "worst_decile": sum(worst) / len(worst),
        "max": max(values),
        "n_clients": n_clients,
    }
    assert summary == pytest.approx(expected)
    assert list(summary) == list(expected)
    assert json.loads(json.dumps(summary)) == summary
    assert {type(value) for value in summary.values()} == {float, int}


def test_weighted_mean_of_accuracy_is_the_accuracy_of_all_rows():
    y, y_pred, groups = predictions()
    summary = client_summary(client_scores(y, y_pred, groups))
    assert summary["weighted_mean"] == pytest.approx(metrics.accuracy_score(y, y_pred))


def test_summary_refuses_no_clients_and_undefined_scores():
    with pytest.raises(ValueError, match="no clients"):
        client_summary(ClientScores(np.array([]), np.array([]), np.array([])))
    scores = client_scores([0, 1], [0, 1], ["a", "b"], lambda t, p: np.nan if t[0] else 1.0)
    with pytest.raises(ValueError, match="client 'b' is nan"):
        client_summary(scores)


@pytest.mark.parametrize("wrong", [np.ones(3), (np.arange(2), np.ones(2)), {"mean": 1.0}, 0.5])
def test_summary_refuses_what_client_scores_does_not_return(wrong):
    with pytest.raises(TypeError, match=r"pass client_scores\(y, predictions, groups\)"):
        client_summary(wrong)
