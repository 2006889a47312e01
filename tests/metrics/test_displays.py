"""Displays draw what they are given: heights, areas, names; readable at 20 clients and at 100."""

import builtins

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skfedhip import FedHiPClassifier, LocalRidgeClassifier
from skfedhip.metrics import (
    ClientScoreDisplay,
    PartitionDisplay,
    client_scores,
    make_client_scorer,
)

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")
pyplot = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    pyplot.close("all")


def labelled(n_clients, n=4000, n_classes=10, seed=0):
    rng = np.random.default_rng(seed)
    groups = np.concatenate([np.arange(n_clients), rng.integers(0, n_clients, n - n_clients)])
    skill = rng.beta(6, 2, n_clients)
    y = rng.integers(0, n_classes, n)
    y_pred = {
        name: np.where(rng.random(n) < skill[groups] - less, y, (y + 1) % n_classes)
        for name, less in {"local": 0.2, "global": 0.1, "personal": 0.0}.items()
    }
    return y, y_pred, groups


def in_pixels(collection, ax):
    """Centres and diameters of the dots of a scatter plot, in pixels."""
    ax.figure.draw_without_rendering()
    centres = ax.transData.transform(collection.get_offsets())
    return centres, np.sqrt(collection.get_sizes()) * ax.figure.dpi / 72


def assert_apart(texts):
    """No two of the texts overlap."""
    boxes = [t.get_window_extent() for t in texts if t.get_text()]
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[i + 1 :])


@pytest.mark.parametrize("n_clients", [20, 100])
def test_dots_stand_at_the_scores_and_bars_at_the_means(n_clients):
    y, y_pred, groups = labelled(n_clients)
    display = ClientScoreDisplay.from_predictions(y, y_pred, groups, metric="f1_macro")
    assert len(display.points_) == len(display.means_) == 3
    for at, (name, pred) in enumerate(y_pred.items()):
        result = client_scores(y, pred, groups, "f1_macro")
        np.testing.assert_array_equal(display.scores[name].scores, result.scores)
        x, heights = display.points_[at].get_offsets().T
        np.testing.assert_allclose(heights, result.scores)
        assert np.abs(x - at).max() <= 0.5
        (bar,) = display.means_[at].get_segments()
        np.testing.assert_allclose(bar[:, 1], result.scores.mean())
    labels = [label.get_text() for label in display.ax_.get_xticklabels()]
    means = [display.scores[name].scores.mean() for name in y_pred]
    assert labels == [f"{name}\n{mean:.3f}" for name, mean in zip(y_pred, means, strict=True)]
    assert display.ax_.get_ylabel() == "f1 macro of a client"
    assert "mean over clients" in display.ax_.get_xlabel()
    colors = {tuple(points.get_facecolor()[0]) for points in display.points_}
    assert len(colors) == 3


@pytest.mark.parametrize("n_clients", [20, 100, 400])
def test_dots_do_not_cover_each_other(n_clients):
    y, y_pred, groups = labelled(n_clients, n=60 * n_clients)
    display = ClientScoreDisplay.from_predictions(y, y_pred, groups)
    for points in display.points_:
        centres, diameters = in_pixels(points, display.ax_)
        distance = np.linalg.norm(centres[:, None] - centres, axis=2)
        np.fill_diagonal(distance, np.inf)
        assert distance.min() >= diameters[0]


def test_many_clients_of_one_score_stay_in_their_column():
    y, groups = np.zeros(3000, dtype=int), np.arange(3000)
    display = ClientScoreDisplay.from_predictions(y, {"a": y, "b": 1 - y}, groups)
    for at, points in enumerate(display.points_):
        assert np.abs(points.get_offsets()[:, 0] - at).max() <= 0.5
    assert display.ax_.get_ylim()[0] < 0 < 1 < display.ax_.get_ylim()[1]


def test_names_that_are_long_stay_apart():
    y, y_pred, groups = labelled(20)
    names = ["ridge on all rows", "ridge on a client's own rows", "FedAvg with fine-tuning"]
    by_name = dict(zip([*names, "FedHiP", "AnaPFL"], [*y_pred.values()] * 2, strict=False))
    display = ClientScoreDisplay.from_predictions(y, by_name, groups)
    display.figure_.draw_without_rendering()
    angle = np.deg2rad(display.ax_.get_xticklabels()[0].get_rotation())
    anchors = [label.get_window_extent().x1 for label in display.ax_.get_xticklabels()]
    height = display.ax_.get_xticklabels()[3].get_fontsize() * display.figure_.dpi / 72
    assert np.diff(anchors).min() * np.sin(angle) > 2 * height * np.cos(angle)


def test_from_estimator_scores_personal_models_and_others():
    y, _, groups = labelled(5, n=400, n_classes=3)
    X = np.random.default_rng(1).normal(size=(400, 4)) + y[:, None] * (groups[:, None] % 2)
    clf = FedHiPClassifier(missing_groups="error").fit(X, y, groups=groups)
    models = {"FedHiP": clf, "ridge": make_pipeline(StandardScaler(), RidgeClassifier()).fit(X, y)}
    display = ClientScoreDisplay.from_estimator(models, X, y, groups=groups)
    expected = client_scores(y, clf.predict(X, groups=groups), groups)
    np.testing.assert_array_equal(display.scores["FedHiP"].scores, expected.scores)
    expected = client_scores(y, models["ridge"].predict(X), groups)
    np.testing.assert_array_equal(display.scores["ridge"].scores, expected.scores)
    single = ClientScoreDisplay.from_estimator(clf, X, y, groups=groups, scoring="neg_log_loss")
    assert list(single.scores) == ["FedHiPClassifier"]
    assert single.ax_.get_ylabel() == "neg log loss of a client"
    loss = make_client_scorer("neg_log_loss")(clf, X, y, groups=groups)
    assert single.scores["FedHiPClassifier"].scores.mean() == pytest.approx(loss)


def test_from_estimator_reads_the_id_column():
    y, _, groups = labelled(5, n=400, n_classes=3)
    frame = pd.DataFrame({"who": groups, "a": y + groups % 2, "b": 1.0 * y})
    clf = LocalRidgeClassifier(group_column="who").fit(frame, y)
    display = ClientScoreDisplay.from_estimator(clf, frame, y)
    np.testing.assert_array_equal(display.scores["LocalRidgeClassifier"].clients, np.arange(5))
    ridge = RidgeClassifier().fit(frame, y)
    display = ClientScoreDisplay.from_estimator(ridge, frame, y, group_column="who")
    np.testing.assert_array_equal(display.scores["RidgeClassifier"].clients, np.arange(5))


def test_they_draw_into_axes_that_are_given():
    y, y_pred, groups = labelled(20)
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 4))
    scores = ClientScoreDisplay.from_predictions(y, y_pred["local"], groups, ax=left)
    counts = PartitionDisplay.from_labels(y, groups, ax=right)
    assert (scores.ax_, counts.ax_) == (left, right)
    assert scores.figure_ is counts.figure_ is figure
    assert len(pyplot.get_fignums()) == 1
    parts = figure.subfigures(1, 2)
    assert PartitionDisplay.from_labels(y, groups, ax=parts[0].subplots()).figure_ is parts[0]
    assert scores.plot() is scores
    assert scores.ax_ is not left


@pytest.mark.parametrize(("n_clients", "name"), [(20, "hospital {:03d}"), (20, "{}"), (100, "{}")])
def test_bubbles_have_areas_like_the_counts_and_do_not_touch(n_clients, name):
    y, _, groups = labelled(n_clients)
    y = np.where(groups % 3 == 0, y % 4, y)
    ids = np.array([name.format(k) for k in range(n_clients)])
    if name == "{}":
        ids = np.arange(n_clients)
    display = PartitionDisplay.from_labels(y, ids[groups])
    counts = np.array(
        [[np.sum((y == c) & (groups == k)) for k in range(n_clients)] for c in range(10)]
    )
    np.testing.assert_array_equal(display.counts, counts)
    np.testing.assert_array_equal(display.clients, ids)
    column, row = display.bubbles_.get_offsets().astype(int).T
    assert set(zip(row, column, strict=True)) == set(zip(*np.nonzero(counts), strict=True))
    areas = display.bubbles_.get_sizes()
    np.testing.assert_allclose(areas / areas.max(), counts[row, column] / counts.max())
    centres, diameters = in_pixels(display.bubbles_, display.ax_)
    distance = np.linalg.norm(centres[:, None] - centres, axis=2)
    np.fill_diagonal(distance, np.inf)
    assert np.all(distance >= (diameters[:, None] + diameters) / 2)
    assert diameters.max() > 5


@pytest.mark.parametrize("name", ["{}", "hospital {:03d}"])
@pytest.mark.parametrize("n_clients", [3, 20, 100, 1000])
def test_tick_labels_can_be_read(n_clients, name):
    y, _, groups = labelled(n_clients, n_classes=30)
    names = np.array([name.format(k) for k in range(n_clients)])
    display = PartitionDisplay.from_labels(y, names[groups])
    display.figure_.draw_without_rendering()
    for labels in (display.ax_.get_xticklabels(), display.ax_.get_yticklabels()):
        assert_apart(labels)
        assert len(labels) >= 3


def test_the_legend_shows_whole_numbers_of_rows_at_their_sizes():
    y, groups = np.zeros(133, dtype=int), np.repeat([0, 1], [100, 33])
    display = PartitionDisplay.from_labels(y, groups)
    legend = display.ax_.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["7", "25", "100"]
    sizes = np.array([handle.get_markersize() for handle in legend.legend_handles])
    largest = display.bubbles_.get_sizes().max()
    np.testing.assert_allclose(sizes**2, largest * np.array([0.07, 0.25, 1.0]))
    one_each = PartitionDisplay.from_labels([0, 1], ["a", "b"])
    assert [text.get_text() for text in one_each.ax_.get_legend().get_texts()] == ["1"]


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="no rows"):
        PartitionDisplay.from_labels([], [])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        PartitionDisplay.from_labels([0, 1], [0])
    with pytest.raises(ValueError, match="empty dict"):
        ClientScoreDisplay.from_predictions([0], {}, [0])
    with pytest.raises(ValueError, match="score of client 'a' is nan"):
        ClientScoreDisplay.from_predictions([0], [0], ["a"], metric=lambda t, p: np.nan)


def test_without_matplotlib_it_says_what_to_install(monkeypatch):
    plain = builtins.__import__

    def no_matplotlib(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return plain(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_matplotlib)
    with pytest.raises(ImportError, match=r"PartitionDisplay.plot needs .*skfedhip\[plot\]"):
        PartitionDisplay.from_labels([0, 1], [0, 1])
