"""Streams, forgetting, guests, precision and failures: more laws, for every public estimator."""

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from _data import (
    CHOSEN,
    CLASSES,
    IDS,
    assert_close,
    assert_same_models,
    client_scores,
    estimator,
    federation,
    global_scores,
    scores_of_all,
)
from _references import reference_of_all

from skfedhip import analytic
from skfedhip.exceptions import StatisticsDroppedError

ONE_ROW, ONE_CLASS, TWO_CLASSES, SMALL, MIDDLE, LARGE = IDS

# A stream of partial_fit is one fit.

CUTS = {
    "batches of many clients": lambda data, rng: rng.integers(0, 4, len(data.y)),
    "clients": lambda data, rng: data.groups,
    "batches of one client": lambda data, rng: data.groups * 4 + rng.integers(0, 4, len(data.y)),
    "classes": lambda data, rng: data.y,
    "rows": lambda data, rng: np.arange(len(data.y)),
}


def stream(clf, batches):
    for k, batch in enumerate(batches):
        batch.feed(clf, classes=None if k else CLASSES)
    return clf


@pytest.mark.parametrize("cut", CUTS)
def test_a_stream_is_one_fit(streaming, data, cut):
    rng = np.random.default_rng(0)
    batches = data.batches(CUTS[cut](data, rng))
    clf = stream(streaming(), [batches[i] for i in rng.permutation(len(batches))])
    assert_same_models(clf, data.fit(streaming()), data.X)


def test_a_stream_may_be_asked_at_any_time(streaming, data):
    clf, so_far = streaming(), None
    for batch in data.batches(np.random.default_rng(1).integers(0, 3, len(data.y))):
        batch.feed(clf, classes=CLASSES)
        so_far = batch if so_far is None else so_far.and_(batch)
        assert_close(scores_of_all(clf, data.X), reference_of_all(clf, so_far, data.X))


def test_a_stream_goes_on_from_a_fit_that_retained(fixed, data, small_blocks):
    small_blocks()
    early, late = data.batches(np.random.default_rng(2).integers(0, 2, len(data.y)))
    clf = late.feed(early.fit(fixed(retain_statistics=True)))
    assert_same_models(clf, data.fit(fixed()), data.X)


def test_rows_of_weight_zero_do_nothing_in_a_stream(streaming, data):
    clf = data.feed(streaming())
    nothing = replace(data.of(LARGE).renamed({LARGE: 777}), weight=np.full(60, 0.0))
    some = replace(data, weight=np.where(data.groups == MIDDLE, data.weight, 0.0))
    some.feed(nothing.and_(some).feed(clf))
    twice = data.and_(data.of(MIDDLE)).and_(data.of(MIDDLE))
    assert_same_models(clf, twice.fit(streaming()), data.X)


@pytest.mark.parametrize("cut", ["clients", "classes"])
def test_class_weights_count_in_a_stream(streaming, data, cut):
    params = {"class_weight": {"cat": 0.25, "fox": 2.0}}
    clf = stream(streaming(**params), data.batches(CUTS[cut](data, None)))
    assert_same_models(clf, data.fit(streaming(**params)), data.X)


def test_fit_starts_anew_after_a_stream(streaming, data):
    other = federation(seed=9, classes=np.array(["one", "two"]), n_features=4)
    clf = data.fit(other.feed(streaming()))
    assert clf.n_features_in_ == 6
    assert_same_models(clf, data.fit(streaming()), data.X, rtol=0.0)
    with pytest.raises(StatisticsDroppedError, match="retain_statistics"):
        data.feed(clf)


def test_a_stream_follows_parameters_that_only_solve(data):
    early, late = data.batches(data.groups < SMALL)
    clf = early.feed(estimator("FedHiPClassifier"), classes=CLASSES)
    late.feed(clf.set_params(alpha=7.0, beta=0.1))
    assert_same_models(clf, data.fit(estimator("FedHiPClassifier", alpha=7.0, beta=0.1)), data.X)


def test_a_stream_refuses_parameters_that_shape_its_rows(fixed, data):
    clf = data.fit(fixed(retain_statistics=True))
    before = scores_of_all(clf, data.X)
    clf.set_params(fit_intercept=not clf.fit_intercept)
    with pytest.raises(ValueError, match="fit_intercept"):
        data.feed(clf)
    np.testing.assert_array_equal(scores_of_all(clf, data.X), before)


# Forgetting clients is never having seen them.


@pytest.mark.parametrize(
    ("gone", "streamed"),
    [((ONE_ROW,), True), ((LARGE,), False), ((ONE_CLASS, TWO_CLASSES, MIDDLE), True)],
)
def test_forgotten_clients_were_never_seen(fixed, data, gone, streamed):
    clf = fixed(retain_statistics=True)
    clf = data.feed(clf) if streamed and hasattr(clf, "partial_fit") else data.fit(clf)
    assert clf.forget_clients(gone) is clf
    assert_same_models(clf, data.without(*gone).fit(fixed()), data.X)
    forgotten = client_scores(clf, data.X, gone[0])
    np.testing.assert_array_equal(forgotten, global_scores(clf, data.X))
    assert_same_models(data.of(*gone).feed(clf), data.fit(fixed()), data.X)  # and back again


# Guests: a personal model without a part in the global one.


@pytest.mark.parametrize("come", [(ONE_ROW,), (LARGE,), (ONE_CLASS, TWO_CLASSES, MIDDLE)])
def test_guests_get_what_the_formula_says_and_move_nobody(fixed, data, small_blocks, come):
    small_blocks()
    members, guests = data.without(*come), data.of(*come)
    clf = members.fit(fixed())
    before, old = scores_of_all(clf, data.X), clf.clients_
    assert guests.personalize(clf) is clf
    assert clf.clients_.tolist() == list(IDS)
    expected = reference_of_all(clf, members, data.X, guests)
    assert_close(scores_of_all(clf, data.X), expected)
    unmoved = [0, *(1 + np.searchsorted(clf.clients_, old))]
    np.testing.assert_array_equal(scores_of_all(clf, data.X)[unmoved], before)


def test_guests_stay_guests_until_their_rows_come_in_a_stream(fixed, data):
    guests, late = data.of(ONE_CLASS, MIDDLE), data.of(TWO_CLASSES)
    early = data.without(ONE_CLASS, MIDDLE, TWO_CLASSES)
    clf = guests.personalize(early.fit(fixed(retain_statistics=True)))
    late.feed(clf)
    expected = reference_of_all(clf, early.and_(late), data.X, guests)
    assert_close(scores_of_all(clf, data.X), expected)
    clf.forget_clients([ONE_CLASS, SMALL])
    members, guests = early.and_(late).without(SMALL), data.of(MIDDLE)
    assert_close(scores_of_all(clf, data.X), reference_of_all(clf, members, data.X, guests))
    guests.feed(clf)  # no guest any more: both its batches count for all
    members = members.and_(guests).and_(guests)
    assert_close(scores_of_all(clf, data.X), reference_of_all(clf, members, data.X))


def test_tuned_alphas_stay_with_their_clients(data):
    clf = estimator("FedHiPClassifierCV", alpha_per_client=True, retain_statistics=True)
    members, guests, late = data.without(ONE_CLASS, MIDDLE), data.of(MIDDLE), data.of(ONE_CLASS)
    members.fit(clf)
    alphas = dict(zip(clf.clients_.tolist(), clf.client_alpha_.tolist(), strict=True))
    assert len(set(alphas.values())) > 1
    other = next(client for client, alpha in alphas.items() if alpha != clf.alpha_)

    def check(members, guests):
        known = [client for client in IDS if client in clf.clients_]
        assert clf.client_alpha_.tolist() == [alphas[client] for client in known]
        assert_close(scores_of_all(clf, data.X), reference_of_all(clf, members, data.X, guests))

    alphas[MIDDLE] = alphas[ONE_CLASS] = clf.alpha_  # newcomers have what is best for all
    guests.personalize(clf)
    check(members, guests)
    late.feed(clf)
    check(members.and_(late), guests)
    clf.forget_clients([other])
    check(members.and_(late).without(other), guests)
    alphas[other] = clf.alpha_  # of a client that is forgotten nothing is left
    data.of(other).feed(clf)
    check(members.and_(late), guests)


# What is retained is bounded, however the rows came.


def retained_within_bounds(clf, data):
    counts = Counter(data.groups.tolist())
    width = clf._fitted_method.design_width(data.X.shape[1])
    assert set(clf._retained.clients) == set(counts)
    for client, kept in clf._retained.clients.items():
        assert kept.rows.size + kept.targets.size <= min(counts[client], width) * (
            width + len(CLASSES)
        )
        for array in (kept.rows, kept.targets):  # and no view keeps a larger array alive
            assert array.base is None or array.base.nbytes <= array.nbytes
    return True


@pytest.mark.parametrize("cut", ["batches of one client", "rows"])
def test_retained_numbers_are_bounded(streaming, cut):
    data = federation(seed=4, sizes=(1, 2, 4, 6, 12, 40))
    batches = data.batches(CUTS[cut](data, np.random.default_rng(3)))
    assert retained_within_bounds(stream(streaming(), batches), data)


@pytest.mark.parametrize("n_bytes", [8 * 7 * 9, 2**24])
def test_retained_numbers_of_a_fit_and_of_guests_are_bounded(fixed, small_blocks, n_bytes):
    small_blocks(n_bytes)
    data = federation(seed=5, sizes=(1, 2, 5, 12, 30, 90))
    clf = data.without(LARGE, SMALL).fit(fixed(retain_statistics=True))
    assert retained_within_bounds(data.of(LARGE, SMALL).personalize(clf), data)


# Precision.


def shifted(data, mean, dtype):
    """The federation's rows about a mean, as they are stored in a dtype."""
    return replace(data, X=(data.X + mean).astype(dtype))


def test_float32_in_float32_out_as_accurate_as_float64(fixed, data):
    low = shifted(data, 10.0, np.float32)
    high = replace(low, X=low.X.astype(np.float64))
    clf, expected = low.fit(fixed()), high.fit(fixed())
    assert_same_models(clf, expected, high.X, rtol=1e-6)
    assert_close(scores_of_all(clf, low.X), scores_of_all(expected, high.X), rtol=1e-6)
    for name in ("coef_", "intercept_", "personal_coef_", "personal_intercept_"):
        assert getattr(clf, name).dtype == np.float32
    assert scores_of_all(clf, low.X).dtype == np.float32
    assert clf.predict_proba(low.X, groups=low.groups).dtype == np.float32
    assert expected.coef_.dtype == scores_of_all(expected, high.X).dtype == np.float64


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("way", ["fit", "small blocks", "stream"])
@pytest.mark.parametrize("name", analytic.__all__)
def test_intercepts_lose_nothing_far_from_zero(data, small_blocks, name, way, dtype):
    low = shifted(data, 1e4, dtype)
    high = replace(low, X=low.X.astype(np.float64))
    # tanh is flat out there
    further = {"activation": "relu"} if name.startswith("AnaPFL") else {}
    clf = estimator(name, fit_intercept=True, **CHOSEN.get(name, {}), **further)
    if way == "small blocks":
        small_blocks()
    if way == "stream" and hasattr(clf, "partial_fit"):
        stream(clf, low.batches(np.arange(len(low.y)) % 17))
    else:
        low.fit(clf)
    assert_close(scores_of_all(clf, low.X), reference_of_all(clf, high, high.X), rtol=1e-6)


# A call that fails leaves the estimator as it was.


def failing_calls(data):
    """Arguments of clients that are new, of which one is bad."""
    nan, text = data.X.copy(), data.X.astype(object)
    nan[3, 1], text[3, 1] = np.nan, "a word"
    good = {"X": data.X, "y": data.y, "groups": data.groups + 5000}
    for bad in (
        {"y": data.X[:, 0]},
        {"y": data.y[:-1]},
        {"X": nan},
        {"X": text},
        {"groups": data.groups[:-1] + 5000},
        {"sample_weight": -data.weight},
        {"sample_weight": data.weight[:-1]},
        {"sample_weight": 0 * data.weight},
    ):
        yield {**good, **bad}


def assert_untouched(clf, before):
    """Every attribute is the very object that it was."""
    assert vars(clf).keys() == before.keys()
    for name, value in before.items():
        assert vars(clf)[name] is value


@pytest.mark.parametrize("verb", ["fit", "partial_fit", "personalize"])
@pytest.mark.parametrize("name", analytic.__all__)
def test_bad_input_leaves_the_estimator_as_it_was(data, name, verb):
    fitted, fresh = data.fit(estimator(name, retain_statistics=True)), estimator(name)
    scores = scores_of_all(fitted, data.X)
    starts = verb != "personalize" and hasattr(fresh, verb)
    for clf in (fitted, fresh) if starts else (fitted,):
        before = vars(clf).copy()
        for call in failing_calls(data):
            with pytest.raises((ValueError, TypeError)):
                getattr(clf, verb)(**call)
            assert_untouched(clf, before)
    np.testing.assert_array_equal(scores_of_all(fitted, data.X), scores)


def interrupted(monkeypatch, clf, verb, act):
    """Press Ctrl-C when a verb of the estimator's method is called for the second time."""
    method, calls = type(clf._fitted_method), itertools.count()
    original = getattr(method, verb)

    def impatient(*args):
        if next(calls) == 1:
            raise KeyboardInterrupt
        return original(*args)

    with monkeypatch.context() as patch:
        patch.setattr(method, verb, impatient)
        with pytest.raises(KeyboardInterrupt):
            act()


@pytest.mark.parametrize(
    ("act", "verb", "n_jobs"),
    [
        ("fit", "client_update", 1),
        ("fit", "client_update", 2),
        ("fit", "personalize", 1),
        ("fit", "personalize", 2),
        ("fit", "whole_design", 1),
        ("feed", "whole_design", 1),
        ("personalize", "personalize", 1),
        ("personalize", "whole_design", 1),
    ],
)
@pytest.mark.parametrize("name", analytic.__all__)
def test_an_interruption_leaves_the_estimator_as_it_was(
    data, small_blocks, monkeypatch, name, act, verb, n_jobs
):
    small_blocks()
    members, guests = data.without(SMALL, MIDDLE), data.of(SMALL, MIDDLE)
    clf = members.fit(estimator(name, retain_statistics=True, n_jobs=n_jobs))
    scores, before = scores_of_all(clf, data.X), vars(clf).copy()
    more = guests if act == "personalize" else data
    interrupted(monkeypatch, clf, verb, lambda: getattr(more, act)(clf))
    assert_untouched(clf, before)
    np.testing.assert_array_equal(scores_of_all(clf, data.X), scores)
    # nor did what the call had begun share anything with it
    expected = guests.feed(members.fit(estimator(name, retain_statistics=True)))
    assert_same_models(guests.feed(clf), expected, data.X)


def test_an_interrupted_answer_can_be_asked_for_again(streaming, data, small_blocks, monkeypatch):
    small_blocks()
    clf = stream(streaming(), [data])
    interrupted(monkeypatch, clf, "client_update", lambda: clf.predict(data.X, groups=data.groups))
    assert_same_models(clf, data.fit(streaming()), data.X)
