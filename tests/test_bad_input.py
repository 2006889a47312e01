"""What bad input gets: an error that names what is wrong, and an estimator that is as it was."""

import numpy as np
import pandas as pd
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
from safetensors.numpy import load_file, save_file
from scipy import sparse
from scipy.linalg import LinAlgWarning
from sklearn.exceptions import NotFittedError

from skfedhip import AFLClassifier, AnaPFLClassifier, FedHiPClassifier, analytic
from skfedhip.exceptions import MissingGroupsWarning, StatisticsDroppedError

TRAINING = ("fit", "partial_fit", "personalize")
ANSWERS = ("predict", "predict_proba", "predict_log_proba", "decision_function")
LATER = ("partial_fit", "personalize", *ANSWERS, "score")
VERBS = ("fit", *LATER)


@pytest.fixture(params=analytic.__all__)
def name(request):
    return request.param


@pytest.fixture
def clf(name, data):
    """A fitted classifier that can go on; it must still be the same after the test."""
    clf = data.fit(estimator(name, retain_statistics=True))
    scores = scores_of_all(clf, data.X)
    yield clf
    np.testing.assert_array_equal(scores_of_all(clf, data.X), scores)


def arguments(data, verb, **changed):
    """Good arguments of a verb, for clients that are new, but for what is changed."""
    good = {"X": data.X, "groups": data.groups + 5000}
    if verb in (*TRAINING, "score"):
        good["y"] = data.y
    return {**good, **changed}


def first_verbs(name):
    """What an estimator can begin with; those that tune themselves need a fit first."""
    return [verb for verb in ("fit", "partial_fit") if hasattr(estimator(name), verb)]


@pytest.fixture(params=[name for name in analytic.__all__ if len(first_verbs(name)) > 1])
def streaming_name(request):
    return request.param


def refuses(clf, data, verbs, words, error=ValueError, **changed):
    """Every verb raises the error, with the words, for arguments that are good but for some."""
    for verb in verbs:
        with pytest.raises(error, match=words):
            getattr(clf, verb)(**arguments(data, verb, **changed))


def with_value(X, value):
    X = X.copy()
    X[3, 2] = value
    return X


# Rows.


@pytest.mark.parametrize(("value", "words"), [(np.nan, "NaN"), (np.inf, "infinity")])
def test_nan_and_infinity_in_rows(clf, data, value, words):
    refuses(clf, data, VERBS, f"X contains {words}", X=with_value(data.X, value))


def test_another_number_of_features(clf, data):
    words = "X has 4 features, but .* expecting 6 features"
    refuses(clf, data, LATER, words, X=data.X[:, :4])


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csc_matrix])
def test_sparse_rows(clf, data, kind):
    refuses(clf, data, VERBS, "[Ss]parse", TypeError, X=kind(data.X))


def test_sparse_rows_with_a_group_column(name, data):
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        estimator(name, group_column=0).fit(sparse.csr_array(data.X), data.y)


def test_other_column_names(name, data):
    X = pd.DataFrame(data.X, columns=list("abcdef"))
    clf = estimator(name, retain_statistics=True).fit(X, data.y, groups=data.groups)
    refuses(clf, data, LATER, "feature names should match", X=X.rename(columns={"a": "z"}))


def test_not_fitted(name, data):
    refuses(estimator(name), data, [*ANSWERS, "score", "personalize"], name, NotFittedError)
    with pytest.raises(NotFittedError, match=name):
        estimator(name).forget_clients([3])


# Ids.


@pytest.mark.parametrize("value", [np.nan, float("nan"), pd.NA, pd.NaT, np.datetime64("NaT")])
def test_missing_ids(clf, data, value):
    groups = (data.groups + 5000).tolist()
    groups[4] = value
    series = pd.Series(groups, dtype=object)
    for same in (groups, series, series.to_numpy()):
        refuses(clf, data, VERBS, "missing client id .* row 4", groups=same)


@pytest.mark.parametrize("kind", ["float64", "Int64", "Float64", "string", "category", "M8[ns]"])
def test_missing_ids_in_typed_columns(clf, data, kind):
    groups = pd.Series(np.arange(len(data.y)) % 3).astype(kind)
    groups[4] = None
    refuses(clf, data, VERBS, "client id .* row 4", groups=groups)


def test_no_id_for_a_row_is_an_error_in_training(clf, data):
    groups = [None, *data.groups[1:].tolist()]
    refuses(clf, data, TRAINING, r"no client id \(None\) in row 0", groups=groups)


def test_groups_of_another_shape(clf, data):
    words = f"one client id for each of the {len(data.y)} rows"
    for groups in (data.groups[1:], data.groups[0], np.column_stack([data.groups] * 2), []):
        refuses(clf, data, VERBS, words, groups=groups)


@pytest.mark.parametrize("value", [[1], (1, 2), {}, {1}])
def test_ids_that_are_no_scalars(clf, data, value):
    groups = np.empty(len(data.y), dtype=object)
    groups[:] = [value] * len(groups)
    words = f"hashable scalar, got a {type(value).__name__}"
    refuses(clf, data, VERBS, words, TypeError, groups=groups)


def test_numbers_at_fit_and_strings_later(clf, data):
    words = "were numbers at fit and are strings now"
    refuses(clf, data, LATER, words, groups=data.groups.astype(str))


def test_strings_at_fit_and_numbers_later(name, data):
    clf = estimator(name, retain_statistics=True)
    clf.fit(data.X, data.y, groups=data.groups.astype(str))
    refuses(clf, data, LATER, "were strings at fit and are numbers now", groups=data.groups)


def test_strings_among_rows_without_id_are_still_strings(clf, data):
    groups = [None, *data.groups[1:].astype(str).tolist()]
    refuses(clf, data, ANSWERS, "were numbers at fit and are strings now", groups=groups)


@pytest.mark.parametrize("kind", [np.int16, np.float64, object])
def test_equal_numbers_of_another_type_are_fine(clf, data, kind):
    small = data.groups < 1000
    expected = clf.decision_function(data.X[small], groups=data.groups[small])
    actual = clf.decision_function(data.X[small], groups=data.groups[small].astype(kind))
    np.testing.assert_array_equal(actual, expected)


# The id column.


@pytest.mark.parametrize(
    ("column", "form", "words"),
    [
        (6, "array", "group_column=6 .* has 6; pass a position between -6 and 5"),
        (-7, "array", "group_column=-7 .* has 6"),
        (6, "frame", "group_column=6 .* has 6"),
        ("z", "frame", "group_column='z' .* one of X's columns, which are .*'a', 'b'"),
        ("a", "array", "group_column='a' .* array without names"),
    ],
)
def test_group_column_that_is_not_there(name, data, column, form, words):
    X = data.X if form == "array" else pd.DataFrame(data.X, columns=list("abcdef"))
    clf = estimator(name, group_column=column)
    refuses(clf, data, first_verbs(name), words, X=X, groups=None)
    with pytest.raises(NotFittedError):
        clf.predict(X)


def test_group_column_that_is_there_twice(name, data):
    X = pd.DataFrame(data.X, columns=list("abcdee"))
    with pytest.raises(ValueError, match=r"'e'"):
        estimator(name, group_column="e").fit(X, data.y)


def test_group_column_that_has_gone(name, data):
    X = pd.DataFrame(data.X, columns=list("abcdef")).assign(who=data.groups)
    clf = estimator(name, group_column="who", retain_statistics=True).fit(X, data.y)
    words = "feature names.*\n.*\n- who"
    refuses(clf, data, LATER, words, X=X.drop(columns="who"), groups=None)


def test_nothing_but_the_id_column(name, data):
    with pytest.raises(ValueError, match=r"1 feature\(s\).*at least one feature"):
        estimator(name, group_column=0).fit(data.groups[:, None], data.y)


@pytest.mark.parametrize("value", [1.5, ["a"], b"a"])
def test_group_column_of_a_wrong_type(name, data, value):
    with pytest.raises(ValueError, match=r"'group_column' parameter"):
        estimator(name, group_column=value).fit(data.X, data.y)


# Ids that are missing altogether, or unknown.


def test_missing_groups_warn(name, data):
    clf = estimator(name, missing_groups="warn")
    with pytest.warns(MissingGroupsWarning, match="one client.*pass groups") as record:
        clf.fit(data.X, data.y)
    assert record[0].filename == __file__  # the caller's line, not one of ours
    assert clf.clients_.tolist() == [None]
    data.fit(clf)
    expected = global_scores(data.fit(estimator(name)), data.X)
    for groups in (None, [None] * len(data.y), data.groups + 5000):
        for verb in ANSWERS:
            with pytest.warns(MissingGroupsWarning, match="the global model answers") as record:
                answer = getattr(clf, verb)(data.X, groups=groups)
            assert record[0].filename == __file__
        np.testing.assert_array_equal(answer, expected)
    some = data.groups.tolist()  # a few unknown ones are no reason to warn
    some[:3] = [None, 777, None]
    scores = clf.decision_function(data.X, groups=some)
    np.testing.assert_array_equal(scores[:3], expected[:3])
    own = clf.decision_function(data.X, groups=data.groups)
    np.testing.assert_array_equal(scores[3:], own[3:])


def test_missing_groups_error(name, data):
    clf = estimator(name, missing_groups="error")
    refuses(clf, data, first_verbs(name), "got no client ids", groups=None)
    data.fit(clf)
    one_unknown, one_missing = data.groups.tolist(), data.groups.tolist()
    one_unknown[5], one_missing[6] = 777, None
    for groups, words in (
        (None, "got no client ids"),
        (data.groups + 5000, "none of the client ids is known"),
        (one_unknown, "not all client ids are known.*777"),
        (one_missing, "not all client ids are known.*None"),
    ):
        refuses(clf, data, [*ANSWERS, "score"], words, groups=groups)
    assert clf.predict(data.X, groups=data.groups).shape == data.y.shape


def test_missing_groups_global(name, data):
    clf = data.fit(estimator(name, missing_groups="global"))
    expected = global_scores(clf, data.X)
    for groups in (None, data.groups + 5000):
        np.testing.assert_array_equal(clf.decision_function(data.X, groups=groups), expected)
    alone = estimator(name, missing_groups="global").fit(data.X, data.y)
    with pytest.warns(MissingGroupsWarning):
        as_fit = estimator(name, missing_groups="warn").fit(data.X, data.y)
    np.testing.assert_array_equal(alone.personal_coef_, as_fit.personal_coef_)
    np.testing.assert_array_equal(alone.coef_, as_fit.coef_)


def test_rows_without_id_are_nobodys(name, data):
    alone = estimator(name).fit(data.X, data.y)
    named = estimator(name).fit(data.X, data.y, groups=["me"] * len(data.y))
    assert alone.clients_.tolist() == [None]
    expected = named.decision_function(data.X, groups=["somebody else"] * len(data.y))
    for groups in (None, [None] * len(data.y)):
        np.testing.assert_array_equal(alone.decision_function(data.X, groups=groups), expected)


def test_missing_groups_unknown_word(name, data):
    with pytest.raises(ValueError, match=r"'missing_groups' parameter"):
        data.fit(estimator(name, missing_groups="ignore"))


# Labels and classes.


def test_one_class(name, data):
    for y in (np.full(len(data.y), "cat"), np.zeros(len(data.y), dtype=int)):
        words = "at least two classes, got one class"
        refuses(estimator(name), data, first_verbs(name), words, y=y)


def test_one_class_once_the_rows_of_weight_zero_are_gone(name, data):
    weight = (data.y == "cat").astype(float)
    with pytest.raises(ValueError, match=r"at least two classes, got one class"):
        estimator(name).fit(data.X, data.y, groups=data.groups, sample_weight=weight)


def test_unseen_label(clf, data):
    y = np.where(np.arange(len(data.y)) == 7, "owl", data.y)
    words = "label .*'owl'.* is not among the classes.*cat"
    refuses(clf, data, ["partial_fit", "personalize"], words, y=y)


def test_unseen_label_beside_the_classes_of_the_first_call(streaming_name, data):
    with pytest.raises(ValueError, match=r"label .*'fox'"):
        data.feed(estimator(streaming_name), classes=["cat", "dog"])


@pytest.mark.parametrize("classes", [["cat", "dog"], [*CLASSES, "owl"], ["a", "b", "c"], [1, 2]])
def test_classes_that_differ(clf, data, classes):
    with pytest.raises(ValueError, match=r"classes=.*differ from those of the first partial_fit"):
        data.feed(clf, classes=classes)


def test_classes_in_another_order_are_the_same(streaming_name, data):
    clf = data.feed(estimator(streaming_name), classes=["fox", "cat", "dog", "cat"])
    data.feed(clf, classes=["dog", "fox", "cat"])
    assert clf.classes_.tolist() == ["cat", "dog", "fox"]


def bad_at(row, value, n):
    """Ones but for one row."""
    return np.where(np.arange(n) == row, value, 1.0)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda data: data.X[:, 0], "Unknown label type: continuous"),
        (lambda data: None, "requires y to be passed"),
        (lambda data: data.y[1:], "inconsistent numbers of samples"),
        (lambda data: np.column_stack([data.y, data.y]), "1d array"),
        (lambda data: bad_at(3, np.nan, len(data.y)), "NaN"),
        (lambda data: bad_at(3, np.inf, len(data.y)), "infinity"),
    ],
)
def test_labels_that_are_no_classes(clf, data, make, words):
    refuses(clf, data, TRAINING, words, y=make(data))


# Weights.


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (np.zeros, "[Ss]ample.weight.* zero|non-zero"),
        (lambda n: bad_at(3, -1.0, n), "[Nn]egative values in .*sample_weight"),
        (lambda n: bad_at(3, np.nan, n), "sample_weight contains NaN"),
        (lambda n: bad_at(3, np.inf, n), "sample_weight contains infinity"),
        (lambda n: np.ones(n - 1), "sample_weight.*shape"),
        (lambda n: np.ones((n, 2)), "[Ss]ample weights must be 1D"),
    ],
)
def test_weights_that_cannot_be(clf, data, make, words):
    refuses(clf, data, TRAINING, words, sample_weight=make(len(data.y)))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"owl": 2.0}, "class_weight=.*'owl'.*cat"),
        ({"cat": -1.0}, "class_weight=.*'cat': -1.0.*weight >= 0"),
        ({"cat": np.nan}, "class_weight=.*'cat': nan.*weight >= 0"),
        ({"cat": np.inf}, "class_weight=.*'cat': inf.*weight >= 0"),
        ("even", "'class_weight' parameter"),
        (dict.fromkeys(CLASSES.tolist(), 0.0), "class_weight"),
    ],
    ids=str,
)
def test_class_weights_that_cannot_be(name, data, value, words):
    with pytest.raises(ValueError, match=words):
        data.fit(estimator(name, class_weight=value))


def test_balanced_class_weights_in_a_stream(streaming_name, data):
    with pytest.raises(ValueError, match=r"class_weight='balanced'.*partial_fit"):
        data.feed(estimator(streaming_name, class_weight="balanced"))


# Parameters.


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("FedHiPClassifier", {"alpha": -1.0}),
        ("FedHiPClassifier", {"alpha": np.nan}),
        ("FedHiPClassifier", {"beta": -1e-9}),
        ("FedHiPClassifier", {"solver": "cholesky"}),
        ("AFLClassifier", {"beta": -1}),
        ("LocalRidgeClassifier", {"beta": "1"}),
        ("AnaPFLClassifier", {"lam": -0.1}),
        ("AnaPFLClassifier", {"gamma": -0.1}),
        ("AnaPFLClassifier", {"beta": -0.1}),
        ("AnaPFLClassifier", {"n_components": 0}),
        ("AnaPFLClassifier", {"activation": "sine"}),
        ("FedHiPClassifier", {"fit_intercept": "yes"}),
        ("FedHiPClassifierCV", {"scoring": "f1"}),
        ("FedHiPClassifierCV", {"cv": 1}),
        ("AnaPFLClassifierCV", {"average": "micro"}),
    ],
    ids=str,
)
def test_parameters_out_of_range(data, name, params):
    ((parameter, _),) = params.items()
    words = f"'{parameter}' parameter of {name}"
    refuses(estimator(name, **params), data, first_verbs(name), words)


@pytest.mark.parametrize(
    ("name", "grid"),
    [(name, grid) for name, grids in CHOSEN.items() for grid in grids],
)
def test_grids_out_of_range(data, name, grid):
    for values in ([-1.0, 1.0], [], [np.nan], [np.inf, 1.0], ["a"], [[1.0, 2.0]]):
        refuses(estimator(name, **{grid: values}), data, ["fit"], f"{grid}|could not convert|1d")


def wide():
    """Fewer rows in all than features, and others."""
    data = federation(seed=2, sizes=(1, 2, 3, 5, 4, 3), n_features=25)
    return data, np.random.default_rng(0).normal(size=(30, 25))  # rows outside of their span


PENALTIES = [
    ("AFLClassifier", ["beta"], {}),
    ("FedHiPClassifier", ["beta"], {}),
    ("LocalRidgeClassifier", ["beta"], {}),
    ("AnaPFLClassifier", ["beta"], {"lam": 1.0}),
    ("AnaPFLClassifier", ["gamma"], {"n_components": 30}),
]
"""Parameters that penalise a system of which ``wide`` has too few rows, and others that make it."""


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize(("name", "penalties", "further"), PENALTIES)
def test_no_penalty_gives_the_minimum_norm_and_warns(name, penalties, further, fit_intercept):
    (data, X), none = wide(), dict.fromkeys(penalties, 0.0)
    clf = estimator(name, fit_intercept=fit_intercept, **none, **further)
    with pytest.warns(LinAlgWarning, match=f"{penalties[0]}=0.*singular.*minimum-norm"):
        data.fit(clf)
    assert_close(scores_of_all(clf, X), reference_of_all(clf, data, X), rtol=1e-8)
    if penalties == ["beta"]:
        for client in IDS:  # a model with more coefficients than rows fits them all
            own = data.of(client)
            assert_close(client_scores(clf, own.X, client), own.y[:, None] == CLASSES, rtol=1e-8)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("value", [1e-12, 1e-300])
@pytest.mark.parametrize(("name", "penalties", "further"), PENALTIES)
def test_next_to_no_penalty_gives_almost_the_minimum_norm(
    name, penalties, further, value, fit_intercept
):
    (data, X), small = wide(), dict.fromkeys(penalties, value)
    clf = data.fit(estimator(name, fit_intercept=fit_intercept, **small, **further))
    scores = scores_of_all(clf, X)
    assert np.isfinite(scores).all()
    clf.set_params(**dict.fromkeys(penalties, 0.0))  # read by the reference alone
    assert_close(scores, reference_of_all(clf, data, X), rtol=1e-5)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("name", ["AFLClassifier", "FedHiPClassifier", "LocalRidgeClassifier"])
def test_columns_that_repeat_share_their_coefficients(data, name, fit_intercept):
    X = np.hstack([data.X, data.X[:, :2], np.zeros((len(data.y), 1))])
    clf = estimator(name, fit_intercept=fit_intercept, beta=1e-11)
    clf.fit(X, data.y, groups=data.groups, sample_weight=data.weight)
    assert np.isfinite(clf.personal_coef_).all()
    assert_close(clf.personal_coef_[..., 6:8], clf.personal_coef_[..., :2], rtol=1e-5)
    assert not clf.personal_coef_[..., 8].any()


# Clients.


def test_dropped_statistics(name, data):
    clf = data.fit(estimator(name))
    scores = scores_of_all(clf, data.X)
    for act in (lambda: data.feed(clf), lambda: clf.forget_clients([IDS[0]])):
        with pytest.raises(StatisticsDroppedError, match=r"retain_statistics=True"):
            act()
    assert issubclass(StatisticsDroppedError, ValueError)
    assert not hasattr(clf, "partial_fit")
    assert not hasattr(clf, "forget_clients")
    np.testing.assert_array_equal(scores_of_all(clf, data.X), scores)
    able = data.fit(estimator(name, retain_statistics=True))
    assert hasattr(able, "partial_fit")
    assert hasattr(able, "forget_clients")


def test_streams_of_estimators_that_tune_themselves(data):
    for name in CHOSEN:
        with pytest.raises(StatisticsDroppedError, match=f"{name} tunes itself.*call fit first"):
            data.feed(estimator(name))
        assert not hasattr(estimator(name), "partial_fit")


def test_forgetting_unknown_clients(clf):
    for ids, words in (([777], "777"), ([3, -7, "3"], "3"), (["3"], "'3'"), ([3, 4], "4")):
        with pytest.raises(ValueError, match=f"client .*{words}.* is not one of the 6 fitted"):
            clf.forget_clients(ids)


def test_forgetting_everybody(clf):
    with pytest.raises(ValueError, match=r"forgetting 6 of 6 clients leaves none"):
        clf.forget_clients(IDS)


def test_forgetting_all_but_guests(name, data):
    clf = data.without(3).fit(estimator(name, retain_statistics=True))
    data.of(3).personalize(clf)
    scores = scores_of_all(clf, data.X)
    with pytest.raises(ValueError, match=r"forgetting 5 of 6 clients leaves none"):
        clf.forget_clients([client for client in IDS if client != 3])
    np.testing.assert_array_equal(scores_of_all(clf, data.X), scores)


def test_forgetting_one_id_that_is_not_in_a_list(clf):
    for ids in (3, "3", None):
        with pytest.raises((TypeError, ValueError)):
            clf.forget_clients(ids)


def test_forgetting_a_client_twice_in_one_call(name, data):
    clf = data.fit(estimator(name, retain_statistics=True)).forget_clients([3, 3])
    assert clf.clients_.tolist() == [client for client in IDS if client != 3]
    assert scores_of_all(clf, data.X).shape[0] == 6


def test_forgetting_nobody_changes_nothing(name, data):
    clf = data.fit(estimator(name, retain_statistics=True)).forget_clients([])
    assert_same_models(clf, data.fit(estimator(name)), data.X)


def test_personalizing_a_client_that_is_fitted(clf, data):
    groups = np.where(data.groups == IDS[-1], 777, data.groups)
    with pytest.raises(ValueError, match=r"client .*-7.* has a model already; use partial_fit"):
        clf.personalize(data.X, data.y, groups=groups)


def test_personalizing_without_ids(clf, data):
    with pytest.raises(ValueError, match=r"needs the ids of the new clients; pass groups"):
        clf.personalize(data.X, data.y)


def test_exporting_an_unknown_client(clf):
    for client in (777, "3", None):
        with pytest.raises(ValueError, match=f"client {client!r} is not one of the 6 fitted"):
            clf.export_client(client)


# Files.


@pytest.fixture
def path(clf, tmp_path):
    path = tmp_path / "model.safetensors"
    clf.save(path)
    return path


def test_loading_as_another_class(clf, path):
    other = AFLClassifier if isinstance(clf, FedHiPClassifier) else FedHiPClassifier
    with pytest.raises(ValueError, match=f"by {type(clf).__name__}, not by {other.__name__}"):
        other.load(path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1],
        lambda data: data[9:],
        lambda data: b"",
        lambda data: b"no model at all",
        lambda data: bytes(reversed(data)),
    ],
)
def test_loading_a_damaged_file(clf, path, damage):
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged or not written by save"):
        type(clf).load(path)


def test_loading_a_file_of_another_kind(clf, path):
    save_file(load_file(path), path)  # its header is gone
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        type(clf).load(path)


def test_loading_a_file_that_lacks_an_array(clf, path):
    content = path.read_bytes()
    for what in (b'"models.base"', b'"models.slot"'):
        path.write_bytes(content.replace(what, what[:-2] + b'_"'))
        with pytest.raises(ValueError, match=r"model\.safetensors is damaged"):
            type(clf).load(path)


def test_loading_nothing(clf, tmp_path):
    for path in (tmp_path / "nothing", tmp_path):
        with pytest.raises(FileNotFoundError, match=str(path)):
            type(clf).load(path)


def test_a_failed_save_keeps_the_old_file(data, tmp_path):
    path = tmp_path / "model.safetensors"
    good = data.fit(estimator("AnaPFLClassifier"))
    good.save(path)
    bad = data.fit(estimator("AnaPFLClassifier", activation=np.tanh))
    with pytest.raises(ValueError, match=r"tanh.*without pickle"):
        bad.save(path)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    back = AnaPFLClassifier.load(path)
    np.testing.assert_array_equal(scores_of_all(back, data.X), scores_of_all(good, data.X))


def test_saving_what_is_not_fitted(name, tmp_path):
    with pytest.raises(NotFittedError):
        estimator(name).save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_column_of_fractions_is_hardly_one_of_ids(name, data):
    table = np.column_stack([data.X, data.groups])
    with pytest.warns(UserWarning, match="group_column=0 of .* holds fractions such as"):
        getattr(estimator(name, group_column=0), first_verbs(name)[0])(table, data.y)
