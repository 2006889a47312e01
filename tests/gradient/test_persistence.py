"""A loaded gradient classifier is the saved one, and goes on as it would have."""

import json
import pickle
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from _data import CLASSES, IDS, scores_of_all

from skfedhip import AFLClassifier, FedAvgClassifier, FedCPClassifier, FedPerClassifier
from skfedhip.gradient import CNN, MLP, FastText, ResNet18

from ._data import make

WHAT_IS_TOLD = ("n_features_in_", "n_rounds_", "best_round_")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def fit(clf, data):
    return clf.fit(data.X, data.y, groups=data.groups)


def reload(clf, path, **given):
    clf.save(path)
    return type(clf).load(path, **given)


def assert_same(loaded, clf, X):
    """All that is public is equal to the bit, the scores of all clients too."""
    for name in WHAT_IS_TOLD:
        assert getattr(loaded, name) == getattr(clf, name), name
    for name in ("clients_", "classes_", "bytes_up_", "bytes_down_"):
        assert getattr(loaded, name).dtype == getattr(clf, name).dtype
        assert getattr(loaded, name).tolist() == getattr(clf, name).tolist()
    for name in ("global_params_", "personal_params_", "history_"):
        mine, other = getattr(loaded, name), getattr(clf, name)
        assert mine.keys() == other.keys()
        for key, array in other.items():
            assert mine[key].dtype == array.dtype
            np.testing.assert_array_equal(mine[key], array, err_msg=key)
    if isinstance(clf, FedCPClassifier):
        np.testing.assert_array_equal(loaded.personal_rate_, clf.personal_rate_)
    np.testing.assert_array_equal(scores_of_all(loaded, X), scores_of_all(clf, X))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_was_saved_comes_back_to_the_bit_and_goes_on(cls, data, path, dtype):
    how = {"validation_fraction": 0.4, "join_ratio": (0.5, 1.0), "dtype": dtype, "lr": 0.4}
    clf = fit(make(cls, random_state=3, **how), data.of(*IDS[1:]))
    loaded = reload(clf, path)
    assert loaded.get_params() == clf.get_params()
    assert_same(loaded, clf, data.X)
    for each in (loaded, clf):
        each.set_params(model="last")
    assert_same(loaded, clf, data.X)
    guest, late = data.of(IDS[0]), data.of(IDS[2], IDS[5])
    for each in (loaded, clf):
        each.personalize(guest.X, guest.y, groups=guest.groups)
    assert_same(loaded, clf, data.X)
    for each in (loaded, clf):
        fit(each.set_params(warm_start=True), data.of(*IDS[1:]))
    assert_same(loaded, clf, data.X)
    for each in (loaded, clf):
        each.partial_fit(late.X, late.y, groups=late.groups)
    assert_same(reload(loaded, path), clf, data.X)


def images(n_channels=1):
    rng = np.random.default_rng(0)
    y = np.arange(12) % 2
    return rng.normal(size=(12, n_channels, 16, 16)) + y[:, None, None, None], y


@pytest.mark.parametrize(
    ("network", "X"),
    [
        (CNN(8), images()[0]),
        ("auto", images()[0]),
        (ResNet18(2), images(3)[0]),
        (FastText(9, 4), np.arange(60).reshape(12, 5) % 9),
        (MLP(()), images()[0]),
    ],
)
def test_networks_are_in_the_file(network, X, path):
    y, groups = images()[1], np.repeat(["a", "b"], 6)
    how = {"feature_extractor": network, "n_rounds": 1, "lr": 0.01}
    clf = make(FedPerClassifier, **how).fit(X, y, groups=groups)
    loaded = reload(clf, path)
    assert loaded.feature_extractor == network
    for each in (loaded, clf):
        each.partial_fit(X, y, groups=groups[::-1])
    scores = clf.decision_function(X, groups=groups)
    np.testing.assert_array_equal(loaded.decision_function(X, groups=groups), scores)


def tanh(shape, units=5):
    return torch.nn.Sequential(torch.nn.Linear(shape[0], units), torch.nn.Tanh())


def test_a_network_of_the_users_own_is_asked_for(data, path):
    clf = fit(make(FedCPClassifier, feature_extractor=tanh), data)
    with pytest.raises(ValueError, match=r"feature_extractor=.*tanh, which no file can hold; pass"):
        reload(clf, path)
    assert_same(reload(clf, path, feature_extractor=tanh), clf, data.X)
    for other in (MLP((5, 5)), partial(tanh, units=4)):
        with pytest.raises(ValueError, match=r"makes the parameters .* pass the one that was"):
            FedCPClassifier.load(path, feature_extractor=other)


def test_a_networks_subclass_is_the_users_own(data, path):
    class Deeper(MLP):
        def __call__(self, input_shape):
            return torch.nn.Sequential(super().__call__(input_shape), torch.nn.Tanh())

    clf = fit(make(FedAvgClassifier, feature_extractor=Deeper((3,))), data)
    with pytest.raises(ValueError, match="no file can hold"):
        reload(clf, path)


def test_parameters_of_all_kinds_come_back(data, path, tmp_path):
    start = {"head.bias": [0.5, 0.0, -0.5]}
    how = {"init_params": start, "checkpoint": tmp_path / "run", "device": torch.device("cpu")}
    clf = fit(make(FedPerClassifier, random_state=np.int64(2), **how), data.of(*IDS[3:]))
    loaded = reload(clf, path)
    assert loaded.init_params["head.bias"].tolist() == start["head.bias"]
    assert (loaded.checkpoint, loaded.device) == (str(tmp_path / "run"), "cpu")
    late = data.of(*IDS[:3])  # whose heads start from what was given
    for each in (loaded, clf):
        each.partial_fit(late.X, late.y, groups=late.groups)
    assert_same(loaded, clf, data.X)


def test_parameters_set_after_fit_do_not_reach_the_models(data, path):
    clf = fit(make(FedCPClassifier, policy_activation="tanh"), data)
    expected = scores_of_all(clf, data.X)
    changed = {"policy_activation": "relu", "feature_extractor": MLP((3,)), "random_state": 5}
    clf.set_params(**changed, global_head=False, conditional_policy=False)
    loaded = reload(clf, path)
    assert loaded.get_params() == clf.get_params()
    np.testing.assert_array_equal(scores_of_all(loaded, data.X), expected)


def test_names_of_columns_clients_and_classes_come_back(data, path):
    frame = pd.DataFrame(data.X, columns=list("abcdef")).assign(client=data.groups.astype(str))
    clf = make(FedAvgClassifier, group_column="client", local_classes_only=True)
    clf.fit(frame, data.y)
    loaded = reload(clf, path)
    assert loaded.classes_.tolist() == CLASSES.tolist()
    np.testing.assert_array_equal(loaded.feature_names_in_, frame.columns)
    np.testing.assert_array_equal(loaded.decision_function(frame), clf.decision_function(frame))
    alone = make(FedAvgClassifier).fit(data.X, data.y)
    assert reload(alone, path).clients_.tolist() == [None]


def test_nothing_is_pickled(cls, data, path, monkeypatch):
    clf = fit(make(cls, n_rounds=1), data)

    def refuse(*args, **kwargs):
        raise AssertionError("pickle was used")

    for function in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
        monkeypatch.setattr(pickle, function, refuse)
    assert_same(reload(clf, path), clf, data.X)
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    assert set(header.pop("__metadata__")) == {"skfedhip"}
    assert {tensor["dtype"] for tensor in header.values()} <= {"F64", "I64", "U64", "BOOL"}


def test_what_json_cannot_hold_is_refused_before_anything_is_written(data, path):
    clf = fit(make(FedAvgClassifier, random_state=np.random.RandomState(0)), data)
    with pytest.raises(ValueError, match="without pickle"):
        clf.save(path)
    assert not list(path.parent.iterdir())
    with pytest.raises(ValueError, match="not fitted"):
        make(FedAvgClassifier).save(path)


def test_wrong_files_are_named_as_such(data, path, tmp_path):
    run = tmp_path / "run"
    clf = fit(make(FedAvgClassifier, checkpoint=run, checkpoint_every=1), data)
    clf.save(path)
    with pytest.raises(ValueError, match=r"by FedAvgClassifier, not .*with FedAvgClassifier\.load"):
        FedPerClassifier.load(path)
    with pytest.raises(ValueError, match=r"by FedAvgClassifier, not .*with FedAvgClassifier\.load"):
        AFLClassifier.load(path)
    with pytest.raises(ValueError, match="run holds no estimator"):
        FedAvgClassifier.load(run)
    with pytest.raises(ValueError, match="is not a checkpoint; name another file"):
        fit(clf.set_params(checkpoint=path), data)
    content = path.read_bytes()
    for damaged in (content[:-9], b"", content.replace(b"losses", b"lossen")):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="damaged"):
            FedAvgClassifier.load(path)
