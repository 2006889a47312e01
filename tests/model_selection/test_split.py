"""Folds inside each client: exhaustive, balanced to within one row, found by scikit-learn."""

import pickle
import time
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import GridSearchCV, cross_validate

from skfedhip import FedHiPClassifier
from skfedhip.model_selection import ClientKFold, ClientShuffleSplit


def uneven(seed=0, n=900, n_clients=40, n_classes=6):
    """Clients of very different size, some with one row or two, many without some classes."""
    rng = np.random.default_rng(seed)
    groups = np.sort((n_clients * rng.random(n) ** 3).astype(int))
    groups[-9:] = [100, 101, 102, 102, 103, 103, 103, 104, 104]
    y = rng.integers(0, n_classes, n)
    order = rng.permutation(n)
    return np.zeros((n, 2)), y[order], groups[order]


def splits(splitter, X, y, groups):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(splitter.split(X, y, groups))


def cell_counts(test, *labels):
    """Test rows of each split in each cell of the labels, (n_splits, n_cells); the cells' sizes."""
    _, cells = np.unique(np.column_stack(labels), axis=0, return_inverse=True)
    sizes = np.bincount(cells)
    return np.array([np.bincount(cells[rows], minlength=len(sizes)) for rows in test]), sizes


K_FOLDS = [
    ClientKFold(2),
    ClientKFold(5),
    ClientKFold(5, shuffle=True, random_state=3),
    ClientKFold(13, shuffle=True, random_state=3),
]


@pytest.mark.parametrize("splitter", K_FOLDS, ids=repr)
@pytest.mark.parametrize("seed", range(3))
def test_folds_are_balanced_within_one_row_by_client_and_by_its_classes(splitter, seed):
    X, y, groups = uneven(seed)
    folds = splits(splitter, X, y, groups)
    assert len(folds) == splitter.get_n_splits(X, y, groups) == splitter.n_splits
    for train, test in folds:
        np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(len(y)))
        np.testing.assert_array_equal(np.unique(groups[train]), np.unique(groups))
    tested = np.concatenate([test for _, test in folds])
    alone = (np.bincount(groups) == 1)[groups]
    np.testing.assert_array_equal(np.sort(tested), np.flatnonzero(~alone))
    for labels in ([groups], [groups, y], [np.zeros(len(y))]):
        counts, _ = cell_counts([test for _, test in folds], *labels)
        assert np.max(counts.max(axis=0) - counts.min(axis=0)) <= 1


@pytest.mark.parametrize("n_classes", [2, 3, 4, 5, 10])
@pytest.mark.parametrize("n_splits", [2, 3, 4, 5])
def test_clients_of_equal_make_up_do_not_put_a_class_in_the_same_fold(n_splits, n_classes):
    n_clients = 100
    groups = np.repeat(np.arange(n_clients), n_classes)
    y = np.tile(np.arange(n_classes), n_clients)
    folds = splits(ClientKFold(n_splits), groups[:, None], y, groups)
    counts, _ = cell_counts([test for _, test in folds], y)
    assert np.max(counts.max(axis=0) - counts.min(axis=0)) < 0.5 * n_clients / n_splits


@pytest.mark.parametrize("test_size", [0.1, 0.25, 0.5, 0.9])
@pytest.mark.parametrize("seed", range(3))
def test_shuffle_split_keeps_its_share_within_one_row(test_size, seed):
    X, y, groups = uneven(seed)
    splitter = ClientShuffleSplit(10, test_size=test_size, random_state=seed)
    drawn = splits(splitter, X, y, groups)
    assert len(drawn) == splitter.get_n_splits() == 10
    for train, test in drawn:
        np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(len(y)))
        np.testing.assert_array_equal(np.unique(groups[train]), np.unique(groups))
    test = [test for _, test in drawn]
    counts, sizes = cell_counts(test, groups)
    assert np.abs(counts - test_size * sizes).max() <= 1
    assert np.all(counts[:, sizes > 1] >= 1)
    assert np.all(counts[:, sizes == 1] == 0)
    counts, sizes = cell_counts(test, groups, y)
    # One row more or less may go for the sake of a row on either side.
    assert np.abs(counts - test_size * sizes).max() < 2
    large = np.bincount(groups)[groups] >= 20
    counts, sizes = cell_counts(test, groups * large, y * large)
    assert np.abs(counts - test_size * sizes)[:, 1:].max() <= 1


def test_every_row_is_drawn_as_often():
    groups = np.repeat([0, 1, 2], [4, 10, 30])
    y = np.arange(44) % 3
    splitter = ClientShuffleSplit(4000, test_size=0.3, random_state=0)
    often = np.bincount(np.concatenate([test for _, test in splitter.split(groups, y, groups)]))
    assert np.abs(often / 4000 - 0.3).max() < 0.04  # five standard deviations


def test_the_same_folds_on_every_call_where_the_seed_is_an_int():
    X, y, groups = uneven()
    for splitter in (
        ClientKFold(),
        ClientKFold(shuffle=True, random_state=0),
        ClientShuffleSplit(3, random_state=0),
    ):
        first, second = splits(splitter, X, y, groups), splits(splitter, X, y, groups)
        copy = splits(pickle.loads(pickle.dumps(clone(splitter, safe=False))), X, y, groups)
        for other in (second, copy):
            assert all(np.array_equal(a[1], b[1]) for a, b in zip(first, other, strict=True))
    first, second = splits(ClientShuffleSplit(2, random_state=0), X, y, groups)
    assert not np.array_equal(first[1], second[1])
    one, other = (
        splits(ClientKFold(shuffle=True, random_state=seed), X, y, groups)[0] for seed in (0, 1)
    )
    assert not np.array_equal(one[1], other[1])


@pytest.mark.parametrize("splitter", [ClientKFold, ClientShuffleSplit])
def test_ids_of_any_kind_and_no_classes(splitter):
    X, y, groups = uneven()
    params = {"random_state": 0, **({"shuffle": True} if splitter is ClientKFold else {})}
    expected = splits(splitter(**params), X, y, groups)
    names = np.char.add("client ", np.char.zfill(groups.astype(str), 4))
    for ids in (names, names.tolist(), pd.Series(names), groups / 4, groups.astype(object)):
        for (_, a), (_, b) in zip(expected, splits(splitter(**params), X, y, ids), strict=True):
            np.testing.assert_array_equal(a, b)
    labels = np.array(["cat", "dog", "emu", "fox", "gnu", "hen"])[y]
    for (_, a), (_, b) in zip(expected, splits(splitter(**params), X, labels, groups), strict=True):
        np.testing.assert_array_equal(a, b)
    for train, _ in splits(splitter(**params), X, None, groups):
        np.testing.assert_array_equal(np.unique(groups[train]), np.unique(groups))


@pytest.mark.parametrize("splitter", [ClientKFold, ClientShuffleSplit])
def test_the_id_column_serves_where_no_groups_are_given(splitter):
    X, y, groups = uneven()
    params = {"random_state": 0, **({"shuffle": True} if splitter is ClientKFold else {})}
    expected = splits(splitter(**params), X, y, groups)
    names = np.char.add("c", np.char.zfill(groups.astype(str), 4))
    frame = pd.DataFrame({"a": np.nan, "who": names, "b": "text"})
    array = np.column_stack([X, groups])
    for column, rows in [
        (2, array),
        (-1, array.tolist()),
        ("who", frame),
        (1, frame),
        (1, frame.to_numpy()),
    ]:
        got = splits(splitter(**params, group_column=column), rows, y, None)
        for (_, a), (_, b) in zip(expected, got, strict=True):
            np.testing.assert_array_equal(a, b)
    got = splits(splitter(**params, group_column=0), array, y, groups)
    for (_, a), (_, b) in zip(expected, got, strict=True):
        np.testing.assert_array_equal(a, b)


def test_small_clients_are_told_of_once():
    X, y = np.zeros((9, 1)), np.zeros(9)
    groups = np.array(list("aaaaabbcd"))
    with pytest.warns(UserWarning, match="3 of 4 clients") as caught:
        folds = list(ClientKFold(3).split(X, y, groups))
    assert [str(w.message) for w in caught] == [
        "3 of 4 clients have fewer rows than n_splits=3, for example 'b': not every fold tests "
        "them, and a client with a single row is never tested."
    ]
    assert sum(len(test) for _, test in folds) == 7
    with pytest.warns(UserWarning, match="2 of 4 clients") as caught:
        list(ClientShuffleSplit(3, random_state=0).split(X, y, groups))
    assert [str(w.message) for w in caught] == [
        "2 of 4 clients have a single row, for example 'c': they are never tested."
    ]


def test_parameters_are_checked():
    for wrong in (1, 0, -2):
        with pytest.raises(ValueError, match="n_splits"):
            ClientKFold(wrong)
    for make in (ClientKFold, ClientShuffleSplit):
        with pytest.raises(TypeError, match="n_splits"):
            make(2.0)
    with pytest.raises(ValueError, match="n_splits"):
        ClientShuffleSplit(0)
    with pytest.raises(TypeError, match="shuffle"):
        ClientKFold(shuffle="yes")
    with pytest.raises(ValueError, match="set shuffle=True or leave random_state out"):
        ClientKFold(random_state=0)
    for wrong in (0, 1.0, -0.5, 3):
        with pytest.raises(ValueError, match="test_size"):
            ClientShuffleSplit(test_size=wrong)
    with pytest.raises(TypeError, match="test_size"):
        ClientShuffleSplit(test_size="a quarter")


@pytest.mark.parametrize("splitter", [ClientKFold(3), ClientShuffleSplit()], ids=repr)
@pytest.mark.parametrize(
    ("y", "groups", "match"),
    [
        ([0, 1, 0, 1], None, "needs the client id of each row; pass groups or set group_column"),
        ([0, 1, 0, 1], [0, 0, 1, None], "None"),
        ([0, 1, 0, 1], [0, 0, 1, np.nan], "NaN"),
        ([0, 1, 0, 1], [0, 0, 1], "inconsistent numbers of samples"),
        ([0.1, 1.5, 0.2, 1], [0, 0, 0, 0], "y is continuous"),
        ([0, 1, 0, 1], [0, 1, 2, 3], "two rows"),
    ],
)
def test_what_cannot_be_split_is_refused(splitter, y, groups, match):
    with pytest.raises(ValueError, match=match):
        list(splitter.split(np.zeros((4, 1)), y, groups))


@pytest.mark.parametrize(
    ("column", "X", "match"),
    [
        (2, np.zeros((4, 2)), "group_column=2 of ClientKFold is not a column of X, which has 2"),
        ("who", np.zeros((4, 2)), "X is an array without names"),
        ("who", pd.DataFrame(np.zeros((4, 2)), columns=["a", "b"]), r"which are \['a', 'b'\]"),
        (0, np.zeros(4), "two dimensions"),
    ],
)
def test_a_wrong_id_column_is_named(column, X, match):
    with pytest.raises(ValueError, match=match):
        list(ClientKFold(2, group_column=column).split(X, [0, 1, 0, 1]))


def test_they_show_and_request_like_scikit_learn():
    assert repr(ClientKFold(3, group_column="who")) == (
        "ClientKFold(group_column='who', n_splits=3, random_state=None, shuffle=False)"
    )
    shown = repr(ClientShuffleSplit())
    assert "ClientShuffleSplit(group_column=None, n_splits=1" in shown
    assert "train_size" not in shown
    for splitter in (ClientKFold(), ClientShuffleSplit()):
        assert splitter.get_metadata_routing().consumes("split", ["groups"]) == {"groups"}
        with config_context(enable_metadata_routing=True):
            silent = splitter.set_split_request(groups=False)
        assert silent.get_metadata_routing().consumes("split", ["groups"]) == set()


def test_under_routing_groups_reach_splitter_and_estimator():
    rng = np.random.default_rng(0)
    groups = np.repeat(["a", "b", "c"], 30)
    X, y = rng.normal(size=(90, 4)), rng.integers(0, 2, 90)
    clf = FedHiPClassifier(missing_groups="error")
    with config_context(enable_metadata_routing=True):
        grid = GridSearchCV(clf, {"alpha": [1, 10]}, cv=ClientKFold(3), scoring=_all_rows)
        grid.fit(X, y, groups=groups)
        scores = cross_validate(
            grid, X, y, cv=ClientShuffleSplit(2), scoring=_all_rows, params={"groups": groups}
        )
    assert grid.n_splits_ == 3
    assert np.isfinite(scores["test_score"]).all()


def test_without_routing_the_id_column_or_the_groups_of_the_search_do():
    rng = np.random.default_rng(0)
    groups = np.repeat([0, 1, 2], 30)
    X, y = rng.normal(size=(90, 4)), rng.integers(0, 2, 90)
    grid = GridSearchCV(RidgeClassifier(), {"alpha": [1, 10]}, cv=ClientKFold(3))
    assert grid.fit(X, y, groups=groups).n_splits_ == 3
    clf = FedHiPClassifier(group_column=0, missing_groups="error")
    grid = GridSearchCV(clf, {"alpha": [1, 10]}, cv=ClientKFold(3, group_column=0))
    scores = cross_validate(
        grid, np.column_stack([groups, X]), y, cv=ClientShuffleSplit(2, group_column=0)
    )
    assert np.isfinite(scores["test_score"]).all()


def _all_rows(estimator, X, y):
    return float(len(y))


def test_many_clients_are_split_without_a_loop():
    rng = np.random.default_rng(0)
    groups, y = rng.integers(0, 20_000, 200_000), rng.integers(0, 10, 200_000)
    start = time.perf_counter()
    splits(ClientKFold(2), groups[:, None], y, groups)
    splits(ClientShuffleSplit(2), groups[:, None], y, groups)
    assert time.perf_counter() - start < 5.0  # many times what it takes when idle
