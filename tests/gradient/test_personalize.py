"""Newcomers get what a round of their own would give them, and nobody else is moved."""

import numpy as np
import pytest
from _data import IDS, client_scores, global_scores

from skfedhip import FedAvgClassifier, FedCPClassifier, FedProxClassifier, FedSLRClassifier

from ._data import make

NEW = (IDS[0], IDS[3])
"""One with a single row, and one with several."""


def fit(clf, data):
    return clf.fit(data.X, data.y, groups=data.groups)


def personalize(clf, data):
    return clf.personalize(data.X, data.y, groups=data.groups)


@pytest.fixture
def old(data):
    return data.without(*NEW)


@pytest.fixture
def new(data):
    return data.of(*NEW)


def states(clf):
    return {name: tensor.numpy() for name, tensor in clf._federation.states[0].items()}


def test_nobody_else_is_moved(cls, data, old, new):
    how = {"validation_fraction": 0.4, "lr": 0.4}
    clf, alone = (fit(make(cls, **how), old) for _ in range(2))
    assert personalize(clf, new) is clf
    assert clf.clients_.tolist() == list(IDS)
    rest = np.flatnonzero(~np.isin(IDS, NEW))
    for model in ("best", "last"):
        for each in (clf, alone):
            each.set_params(model=model)
        np.testing.assert_array_equal(global_scores(clf, data.X), global_scores(alone, data.X))
        for client in alone.clients_:
            expected = client_scores(alone, data.X, client)
            np.testing.assert_array_equal(client_scores(clf, data.X, client), expected)
        for name, array in alone.personal_params_.items():
            np.testing.assert_array_equal(clf.personal_params_[name][rest], array)
    for name, array in alone.history_.items():
        kept = clf.history_[name] if name == "loss" else clf.history_[name][:, rest]
        np.testing.assert_array_equal(kept, array)
    assert (clf.n_rounds_, clf.best_round_) == (alone.n_rounds_, alone.best_round_)
    np.testing.assert_array_equal(clf.bytes_up_[rest], alone.bytes_up_)
    np.testing.assert_array_equal(clf.bytes_down_[rest], alone.bytes_down_)
    late = np.setdiff1d(np.arange(len(IDS)), rest)
    assert not clf.bytes_up_[late].any()
    assert np.all(clf.bytes_down_[late] == clf._federation.broadcast.nbytes)


def test_newcomers_train_as_in_a_round_of_partial_fit(cls, old, new):
    clf, stream = (fit(make(cls), old) for _ in range(2))
    personalize(clf, new)
    stream.partial_fit(new.X, new.y, groups=new.groups)
    mine, theirs = states(clf), states(stream)
    at = np.flatnonzero(np.isin(IDS, NEW))
    assert mine.keys() == theirs.keys()
    summed = clf._fitted_method.summed
    for key, array in theirs.items():
        if key.startswith(summed):
            np.testing.assert_array_equal(mine[key][at], 0.0)
        else:
            np.testing.assert_array_equal(mine[key][at], array[at])
    moved = np.abs(client_scores(clf, new.X, NEW[1]) - global_scores(clf, new.X)).max() > 1e-6
    assert moved == bool(clf.personal_params_)


def test_fine_tuning_is_that_of_the_last_model(old, new):
    """Three epochs from there, which are a round of three epochs of somebody alone."""
    clf = fit(make(FedAvgClassifier, 3, shuffle=False), old)
    start = clf.global_params_
    personalize(clf, new)
    for client in NEW:
        own = new.of(client)
        alone = make(FedAvgClassifier, local_epochs=3, shuffle=False, init_params=start)
        alone.partial_fit(own.X, own.y, groups=own.groups, classes=clf.classes_)
        scores = client_scores(clf, new.X, client)
        np.testing.assert_allclose(scores, global_scores(alone, new.X), rtol=0, atol=1e-12)


@pytest.mark.parametrize("cls", [FedAvgClassifier, FedProxClassifier])
def test_without_personal_parts_newcomers_get_the_global_model(cls, data, old, new):
    clf = personalize(fit(make(cls, local_classes_only=True), old), new)
    scores, known = client_scores(clf, data.X, NEW[1]), set(data.of(NEW[1]).y)
    own = np.isin(clf.classes_, list(known))
    np.testing.assert_array_equal(scores[:, own], global_scores(clf, data.X)[:, own])
    clf.set_params(missing_groups="error").predict(new.X, groups=new.groups)


def test_both_kept_models_are_personalized(old, new):
    """The best round's newcomers are those of a run that ended there."""
    how = {"validation_fraction": 0.4, "random_state": 3, "lr": 0.4}
    clf = fit(make(FedCPClassifier, n_rounds=6, **how), old)
    assert clf.best_round_ < 6
    shorter = fit(make(FedCPClassifier, n_rounds=clf.best_round_, model="last", **how), old)
    for each in (clf, shorter):
        personalize(each, new)
    for name, array in shorter.personal_params_.items():
        np.testing.assert_array_equal(clf.personal_params_[name], array)
    np.testing.assert_array_equal(clf.personal_rate_, shorter.personal_rate_)


def test_a_guest_that_stays_does_not_unbalance_the_server(old, new):
    """FedSLR's server has the sum of all γ: a guest's begins where the server thinks it is."""
    clf = personalize(fit(make(FedSLRClassifier), old), new)
    clf.partial_fit(new.X, new.y, groups=new.groups)
    for name, total in clf._federation.server_state.memory.items():
        if name.startswith("gamma."):
            np.testing.assert_allclose(states(clf)[name].sum(0), total, rtol=0, atol=1e-12)


def test_wrong_newcomers(cls, old, new):
    clf = fit(make(cls), old)
    with pytest.raises(ValueError, match="needs the ids of the new clients"):
        clf.personalize(new.X, new.y)
    with pytest.raises(ValueError, match=f"client {IDS[1]} has a model already"):
        personalize(clf, old)
    with pytest.raises(ValueError, match="'cow' is not among the classes"):
        clf.personalize(new.X, np.full(len(new.y), "cow"), groups=new.groups)
    with pytest.raises(ValueError, match="ids were numbers at fit and are strings"):
        clf.personalize(new.X, new.y, groups=new.groups.astype(str))
    with pytest.raises(ValueError, match="not fitted"):
        personalize(make(cls), new)
    assert clf.clients_.tolist() == [client for client in IDS if client not in NEW]


def test_newcomers_that_diverge_leave_all_as_it_was(old, new):
    clf = fit(make(FedCPClassifier), old)
    before = clf.personal_rate_
    with pytest.raises(FloatingPointError, match=f"client {NEW[1]} in round 4 with lr="):
        personalize(clf.set_params(lr=1e200), new)
    assert clf.personal_rate_ is before
    assert NEW[0] not in clf.clients_
