"""A loaded classifier is the saved one, goes on as it would have, and its file holds no pickle."""

import json
import os
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from _data import (
    CLASSES,
    IDS,
    assert_same_models,
    client_scores,
    estimator,
    federation,
    variants,
)
from numpy.testing import assert_allclose, assert_array_equal
from safetensors import safe_open

from skfedhip import AFLClassifier, FedHiPClassifier, analytic
from skfedhip.utils._ids import object_array

DAYS = np.arange("2024-01-01", "2024-01-07", dtype="datetime64[D]")
CLIENT_NAMES = {
    "int": np.array(IDS),
    "huge int": object_array([2**70, -(2**80), 0, 1, 2, 3]),
    "uint64": np.array([2**64 - 1, 2**63, 0, 1, 2, 3], dtype=np.uint64),
    "float": np.array([0.1, -2.5, 1e300, 3.0, 1 / 3, -0.0]),
    "bool": np.array([True, False, True, False, True, False]),
    "string": np.array(["Zürich", "b", "", "a longer name", "ß", "0"]),
    "mixed": object_array([1, "1", 2.5, "b", -7, 2**70]),
    "mixed with numpy": object_array([np.float32(3.0), "1", np.int8(2), "b", np.str_("c"), 0.5]),
    "days": DAYS,
    "nanoseconds": DAYS.astype("datetime64[ns]"),
    "hours": np.arange(6).astype("timedelta64[h]"),
    "pandas dates": pd.Series(pd.to_datetime(DAYS)),
    "categorical": pd.Categorical(["u", "v", "w", "x", "y", "z"]),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


@pytest.fixture(params=[name for name in analytic.__all__ if not name.endswith("CV")])
def name(request):
    return request.param


@pytest.fixture(params=[pytest.param(new, id=name) for name, new in variants() if "CV" not in name])
def new(request):
    """Factory of one variant of one estimator; those that tune themselves have their own test."""
    return request.param


def reload(clf, path):
    clf.save(path)
    return type(clf).load(path)


def assert_same_to_the_bit(loaded, clf, X):
    """All that is public is equal, the scores of all clients too; types and dtypes included."""
    assert type(loaded) is type(clf)
    assert loaded.get_params() == clf.get_params()
    arrays = ("clients_", "classes_", "coef_", "personal_coef_", "bytes_up_", "bytes_down_")
    for attribute in arrays:
        own, other = getattr(loaded, attribute), getattr(clf, attribute)
        assert own.dtype == other.dtype
        assert_array_equal(own, other)
    for attribute in ("n_features_in_", "temperature_"):
        assert getattr(loaded, attribute) == getattr(clf, attribute)
    assert_same_models(loaded, clf, X, rtol=0)


@pytest.mark.parametrize("retain_statistics", [False, True])
def test_what_was_saved_comes_back_to_the_bit(new, data, path, retain_statistics):
    clf = data.fit(new(retain_statistics=retain_statistics))
    loaded = reload(clf, path)
    assert_same_to_the_bit(loaded, clf, data.X)
    assert hasattr(loaded, "partial_fit") == retain_statistics
    assert not hasattr(loaded, "feature_names_in_")


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_and_two_classes_come_back(name, path, dtype, n_classes):
    data = federation(classes=CLASSES[:n_classes])
    data = replace(data, X=data.X.astype(dtype))
    clf = data.fit(estimator(name, local_classes_only=True))
    loaded = reload(clf, path)
    assert loaded.decision_function(data.X, groups=data.groups).dtype == dtype
    assert_same_to_the_bit(loaded, clf, data.X)


@pytest.fixture(params=CLIENT_NAMES)
def renamed(request, data):
    """The federation with ids of another kind."""
    names = np.asarray(CLIENT_NAMES[request.param])
    return replace(data, groups=names[np.searchsorted(IDS, data.groups)])


@pytest.mark.parametrize("name", ["AnaPFLClassifier", "FedHiPClassifier"])
def test_ids_of_any_kind_come_back(name, renamed, path):
    clf = renamed.fit(estimator(name))
    loaded = reload(clf, path)
    assert loaded.clients_.dtype == clf.clients_.dtype
    scores = clf.decision_function(renamed.X, groups=renamed.groups)
    assert_array_equal(loaded.decision_function(renamed.X, groups=renamed.groups), scores)


def test_a_model_without_ids_comes_back(name, data, path):
    clf = estimator(name).fit(data.X, data.y)
    loaded = reload(clf, path)
    assert loaded.clients_.tolist() == [None]
    assert_array_equal(loaded.personal_coef_, clf.personal_coef_)
    exported = loaded.export_client(None).decision_function(data.X)
    assert_allclose(exported, clf.export_client(None).decision_function(data.X), rtol=0)


@pytest.mark.parametrize(
    "classes",
    [
        np.array([False, True]),
        np.array([-1, 5, 10**12]),
        np.array([-1.0, 2.0]),
        object_array(["a", "b", "c"]),
        np.array(["", "ä", "long label"]),
    ],
    ids=lambda classes: f"{classes.dtype}",
)
def test_labels_of_any_kind_come_back(name, path, classes):
    data = federation(classes=classes)
    clf = data.fit(estimator(name))
    loaded = reload(clf, path)
    predicted = loaded.predict(data.X, groups=data.groups)
    assert_array_equal(predicted, clf.predict(data.X, groups=data.groups))
    assert predicted.dtype == clf.predict(data.X, groups=data.groups).dtype
    assert loaded.classes_.tolist() == clf.classes_.tolist()


@pytest.mark.parametrize("key", [str, np.str_])
def test_class_weights_come_back_and_still_count(name, data, path, key):
    class_weight = {key("cat"): 2.0, key("fox"): np.float64(0.5)}
    clf = data.of(*IDS[3:]).fit(estimator(name, class_weight=class_weight, retain_statistics=True))
    loaded = reload(clf, path)
    assert loaded.class_weight == class_weight
    for each in (clf, loaded):
        data.of(*IDS[:3]).feed(each)
    assert_same_to_the_bit(loaded, clf, data.X)


def test_column_names_and_the_group_column_come_back(name, data, path):
    frame = pd.DataFrame(data.X, columns=list("abcdef")).assign(client=data.groups)
    clf = estimator(name, group_column="client").fit(frame, data.y)
    loaded = reload(clf, path)
    assert_array_equal(loaded.feature_names_in_, frame.columns)
    assert_array_equal(loaded.decision_function(frame), clf.decision_function(frame))
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame.rename(columns={"a": "z"}))


# What follows the save follows the load.


def test_a_stream_goes_on_after_a_load_as_if_uninterrupted(new, data, path):
    interrupted, steady = new(), new()
    rng = np.random.default_rng(0)
    for batch in data.batches(rng.integers(0, 5, len(data.y))):
        for clf in (interrupted, steady):
            batch.feed(clf, classes=CLASSES)
        interrupted = reload(interrupted, path)
    assert_same_models(interrupted, steady, data.X)
    for clf in (interrupted, steady):
        clf.forget_clients(IDS[2:4])
    assert_same_models(reload(interrupted, path), steady, data.X)


@pytest.mark.parametrize("retain_statistics", [False, True])
def test_new_clients_can_be_personalized_after_a_load(new, data, path, retain_statistics):
    clf = data.of(*IDS[1:4]).fit(new(retain_statistics=retain_statistics))
    loaded = reload(clf, path)
    for each in (clf, loaded):
        data.of(IDS[0], *IDS[4:]).personalize(each)
    assert_same_models(loaded, clf, data.X)


def test_guests_stay_guests_after_a_load(new, data, path):
    clf = data.of(*IDS[2:]).fit(new(retain_statistics=True))
    shared = clf.coef_
    loaded = reload(data.of(*IDS[:2]).personalize(clf), path)
    assert_same_to_the_bit(loaded, clf, data.X)
    assert_array_equal(loaded.coef_, shared)
    # The guest's own rows make it a member; the other guest still does not count.
    member = data.of(IDS[1])
    for each in (clf, loaded):
        member.feed(each)
    assert np.abs(loaded.coef_ - shared).max() > 1e-6
    assert_same_models(loaded, clf, data.X)
    loaded.forget_clients(IDS[:1])
    assert_allclose(loaded.coef_, clf.coef_, rtol=0, atol=1e-10)


@pytest.mark.parametrize("changed", [{"fit_intercept": True}, {"beta": 99.0}])
def test_parameters_set_after_fit_do_not_reach_the_fitted_model(name, data, path, changed):
    clf = data.of(*IDS[1:]).fit(estimator(name))
    expected = clf.decision_function(data.X, groups=data.groups)
    clf.set_params(**changed)
    loaded = reload(clf, path)
    assert_array_equal(loaded.decision_function(data.X, groups=data.groups), expected)
    for each in (clf, loaded):
        data.of(IDS[0]).personalize(each)
    assert_same_models(loaded, clf, data.X)


def test_other_random_features_set_after_fit_do_not_reach_the_fitted_model(data, path):
    clf = data.fit(estimator("AnaPFLClassifier"))
    expected = clf.decision_function(data.X, groups=data.groups)
    clf.set_params(n_components=7, activation="relu", shared_refinement=True, random_state=9)
    loaded = reload(clf, path)
    assert_array_equal(loaded.decision_function(data.X, groups=data.groups), expected)


def test_a_new_seed_is_drawn_only_by_fit(data, path):
    clf = data.fit(estimator("AnaPFLClassifier", random_state=None))
    loaded = reload(clf, path)
    assert_same_to_the_bit(loaded, clf, data.X)


SEARCHES = {
    "FedHiPClassifierCV": {"alphas": [0.1, 1.0, 10.0], "betas": [0.5, 2.0]},
    "AnaPFLClassifierCV": {
        "gammas": [0.1, 1.0],
        "betas": np.array([0.5, 2.0]),
        "lams": [0.2, 0.5],
        "n_components": 12,
        "random_state": 0,
    },
}
CHOSEN = ("alpha_", "beta_", "gamma_", "lam_", "best_score_", "local_classes_only_")


@pytest.mark.filterwarnings("ignore::skfedhip.exceptions.GridEdgeWarning")
@pytest.mark.parametrize("name", [name for name in analytic.__all__ if name.endswith("CV")])
@pytest.mark.parametrize("further", [{}, {"fit_intercept": True, "local_classes_only": True}])
def test_what_a_search_chose_comes_back_and_goes_on(name, further, data, path):
    clf = estimator(name, retain_statistics=True, **SEARCHES[name], **further)
    data.of(*IDS[2:]).fit(clf)
    loaded = reload(clf, path)
    for attribute in CHOSEN:
        assert getattr(loaded, attribute, None) == getattr(clf, attribute, None)
    assert_same_models(loaded, clf, data.X, rtol=0)
    for each in (clf, loaded):
        data.of(*IDS[:2]).feed(each)
    assert_same_models(loaded, clf, data.X)


# The file.


def test_every_byte_is_json_or_a_number(new, data, path):
    data.fit(new(retain_statistics=True)).save(path)
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    metadata = header.pop("__metadata__")
    assert set(metadata) == {"skfedhip"}
    assert isinstance(json.loads(metadata["skfedhip"]), dict)
    assert {tensor["dtype"] for tensor in header.values()} <= {"F64", "I64", "BOOL"}
    spans = sorted(tensor["data_offsets"] for tensor in header.values())
    assert [start for start, _ in spans] == [0, *(stop for _, stop in spans[:-1])]
    assert 8 + length + spans[-1][1] == len(content)


def test_nothing_is_pickled_or_unpickled(new, data, path, monkeypatch):
    clf = data.fit(new(retain_statistics=True))

    def refuse(*args, **kwargs):
        raise AssertionError("pickle was used")

    for function in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
        monkeypatch.setattr(pickle, function, refuse)
    assert_array_equal(reload(clf, path).coef_, clf.coef_)


def test_safetensors_alone_reads_the_models(data, path):
    clf = data.fit(AFLClassifier(fit_intercept=True))
    clf.save(path)
    with safe_open(path, framework="np") as file:
        coef = file.get_tensor("models.base")
    assert_array_equal(coef, np.column_stack([clf.intercept_, clf.coef_]))


def failing_halfway(handle, mode):
    file = os.fdopen(handle, mode)

    class Half:
        def __enter__(self):
            return self

        def __exit__(self, *error):
            file.close()

        def write(self, data):
            file.write(data[: len(data) // 2])
            raise OSError("no space left on device")

    return Half()


@pytest.mark.parametrize("step", ["fdopen", "replace"])
def test_a_failure_in_the_middle_leaves_the_old_file_and_no_other(data, path, step, monkeypatch):
    data.fit(AFLClassifier(2.0)).save(path)
    before = path.read_bytes()
    after = data.fit(AFLClassifier(3.0))

    class FailingOS:
        def __getattr__(self, function):
            return getattr(os, function)

        def replace(self, *paths):
            raise OSError("no space left on device")

        if step == "fdopen":
            fdopen = staticmethod(failing_halfway)

    monkeypatch.setattr("skfedhip.utils._files.os", FailingOS())
    with pytest.raises(OSError, match="no space left"):
        after.save(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
    monkeypatch.undo()
    after.save(str(path))
    assert AFLClassifier.load(str(path)).beta == 3.0


def test_a_save_into_the_working_directory(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    clf = data.fit(AFLClassifier())
    assert_array_equal(reload(clf, "model").coef_, clf.coef_)
    assert [file.name for file in Path().iterdir()] == ["model"]


def test_an_unfitted_estimator_is_not_saved(name, path):
    with pytest.raises(ValueError, match="not fitted"):
        estimator(name).save(path)
    assert not path.exists()


def test_a_folder_that_is_not_there_is_named(data, tmp_path):
    clf = data.fit(estimator("AFLClassifier"))
    with pytest.raises(FileNotFoundError, match=r"There is no folder '.*nowhere'; make it"):
        clf.save(tmp_path / "nowhere" / "model.safetensors")


def test_what_json_cannot_hold_is_refused_before_anything_is_written(data, path):
    clf = data.fit(estimator("AnaPFLClassifier", activation=np.cos))
    with pytest.raises(ValueError, match="without pickle"):
        clf.save(path)
    assert not list(path.parent.iterdir())


def test_wrong_files_are_named_as_such(data, path):
    clf = data.fit(AFLClassifier())
    with pytest.raises(FileNotFoundError, match="is not a file"):
        AFLClassifier.load(path)
    clf.save(path)
    with pytest.raises(ValueError, match=r"load it with AFLClassifier\.load"):
        FedHiPClassifier.load(path)
    content = path.read_bytes()
    for damaged in (content[:-9], content[:20], b"", b"\x80\x04pickle", content[9:]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="damaged"):
            AFLClassifier.load(path)
    path.write_bytes(content.replace(b'\\"format\\": 1', b'\\"format\\": 7'))
    with pytest.raises(ValueError, match="format 7"):
        AFLClassifier.load(path)


# Clients of their own.


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("local_classes_only", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_an_exported_client_scores_as_in_the_federation(
    name, n_classes, local_classes_only, fit_intercept
):
    data = federation(classes=CLASSES[:n_classes])
    clf = estimator(name, local_classes_only=local_classes_only, fit_intercept=fit_intercept)
    data.fit(clf)
    for client in IDS:
        exported, groups = clf.export_client(client), [client] * len(data.X)
        scores = exported.decision_function(data.X)
        assert_allclose(scores, client_scores(clf, data.X, client), rtol=0, atol=1e-9)
        assert_array_equal(exported.predict(data.X), clf.predict(data.X, groups=groups))
        assert_array_equal(exported.classes_, clf.classes_)
    if local_classes_only:  # the second client has the first class alone
        assert set(clf.export_client(IDS[1]).predict(data.X)) == {CLASSES[0]}


def test_clients_of_any_kind_can_be_exported_and_forgotten(renamed):
    clf = renamed.fit(estimator("FedHiPClassifier", retain_statistics=True))
    for client in clf.clients_:
        groups = renamed.groups[renamed.groups == client][:1]
        scores = clf.decision_function(renamed.X[:1], groups=groups)
        exported = clf.export_client(client).decision_function(renamed.X[:1])
        assert_allclose(exported, scores, rtol=0, atol=1e-10)
    left = clf.clients_[1:]
    clf.forget_clients(clf.clients_[:1])
    assert_array_equal(clf.clients_, left)
    rest = renamed.rows(np.isin(renamed.groups, left)).fit(estimator("FedHiPClassifier"))
    assert_same_models(clf, rest, renamed.X)


def test_an_unknown_client_is_not_exported(name, data):
    with pytest.raises(ValueError, match="'nobody' is not one of the 6 fitted clients"):
        data.fit(estimator(name)).export_client("nobody")
