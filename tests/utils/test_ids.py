"""Client ids of any kind keep their identity, sort, and are looked up as a dict would."""

import datetime
import decimal
import fractions
import itertools

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from skfedhip.utils._ids import (
    as_ids,
    check_same_kind,
    concatenate_ids,
    encode_ids,
    id_bytes,
    lookup_ids,
    object_array,
    sort_ids,
    union_ids,
)

DAYS = np.array(["2024-03-01", "1969-12-31", "2024-03-01", "2025-01-01"], dtype="datetime64[D]")
MOMENTS = DAYS.astype("datetime64[us]").tolist()

KINDS = {
    # input: (ids as given, dtype kind, ids as plain values)
    "list of str": (["b", "a", "b", "ü" * 9], "U", ["b", "a", "b", "ü" * 9]),
    "array of str": (np.array(["b", "a", "b"]), "U", ["b", "a", "b"]),
    "object str": (np.array(["b", "a", "b"], dtype=object), "U", ["b", "a", "b"]),
    "str dtype": (np.array(["b", "a"], dtype=np.dtypes.StringDType()), "U", ["b", "a"]),
    "numpy str": ([np.str_("b"), np.str_("a")], "U", ["b", "a"]),
    "empty str": (["", "a", ""], "U", ["", "a", ""]),
    "list of int": ([3, -1, 3, 10**12], "i", [3, -1, 3, 10**12]),
    "tuple of int": ((3, -1), "i", [3, -1]),
    "small ints": (np.array([3, -1], dtype=np.int8), "i", [3, -1]),
    "unsigned": (np.array([2**64 - 1, 0], dtype=np.uint64), "u", [2**64 - 1, 0]),
    "numpy ints": ([np.int64(3), np.uint8(1), 2], "i", [3, 1, 2]),
    "beyond 64 bits": ([2**70, -(2**80), 0, 2**70], "O", [2**70, -(2**80), 0, 2**70]),
    "beyond int64": ([2**63, 1], "O", [2**63, 1]),
    "floats": ([0.5, -2.0, 1e300], "f", [0.5, -2.0, 1e300]),
    "infinite": ([np.inf, -np.inf], "f", [np.inf, -np.inf]),
    "float32": (np.array([0.5, 3.0], dtype=np.float32), "f", [0.5, 3.0]),
    "ints and floats": ([1, 2.5, np.float32(0.5)], "O", [1, 2.5, 0.5]),
    "bools": (np.array([True, False]), "b", [True, False]),
    "list of bools": ([True, False], "O", [True, False]),
    "mixed": ([1, "1", 2.5, True, "a"], "O", [1, "1", 2.5, True, "a"]),
    "column": (np.array([[3], [1]]), "i", [3, 1]),
    "series of str": (pd.Series(["b", "a"]), "U", ["b", "a"]),
    "series with an index": (pd.Series([5, 4], index=[7, 9]), "i", [5, 4]),
    "nullable ints": (pd.array([5, 4, 5], dtype="Int64"), "i", [5, 4, 5]),
    "nullable series": (pd.Series([5, 4], dtype="Int32"), "i", [5, 4]),
    "nullable bools": (pd.array([True, False], dtype="boolean"), "b", [True, False]),
    "pandas string": (pd.array(["b", "a"], dtype="string"), "U", ["b", "a"]),
    "categorical str": (pd.Categorical(["b", "a", "b"]), "U", ["b", "a", "b"]),
    "categorical int": (pd.Series([5, 4, 5]).astype("category"), "i", [5, 4, 5]),
    "datetime64": (DAYS, "M", MOMENTS),
    "nanoseconds": (DAYS.astype("datetime64[ns]"), "M", MOMENTS),
    "dates": (DAYS.tolist(), "M", MOMENTS),
    "datetimes": (MOMENTS, "M", MOMENTS),
    "numpy dates": (list(DAYS), "M", MOMENTS),
    "bytes": (np.array([b"b", b"a"]), "U", ["b", "a"]),
    "list of bytes": ([b"b", b"a"], "U", ["b", "a"]),
}


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


def test_ids_get_a_dtype_that_says_what_they_are_and_keep_their_values(kind):
    given, dtype_kind, values = kind
    ids = as_ids(given, len(values))
    assert ids.shape == (len(values),)
    assert ids.dtype.kind == dtype_kind
    assert ids.tolist() == values


def test_encoded_ids_are_sorted_distinct_and_say_which_row_has_which(kind):
    ids = as_ids(kind[0], len(kind[2]))
    clients, codes = encode_ids(ids)
    assert_array_equal(clients[codes], ids)
    assert len(clients) == len(set(ids.tolist()))
    assert set(clients.tolist()) == set(ids.tolist())
    again, _ = encode_ids(ids[::-1])
    assert again.tolist() == clients.tolist()
    assert again.dtype == clients.dtype
    if ids.dtype.kind != "O":
        assert clients.tolist() == sorted(set(ids.tolist()))


def test_known_ids_are_found_where_they_are_and_others_nowhere(kind):
    ids = as_ids(kind[0], len(kind[2]))
    clients, codes = encode_ids(ids)
    assert_array_equal(lookup_ids(clients, ids), codes)
    fewer = np.delete(clients, 0)
    expected = [fewer.tolist().index(i) if i in fewer.tolist() else -1 for i in ids.tolist()]
    assert lookup_ids(fewer, ids).tolist() == expected
    assert lookup_ids(clients[:0], ids).tolist() == [-1] * len(ids)
    assert lookup_ids(clients, ids[:0]).tolist() == []


def distinct(name):
    given, _, values = KINDS[name]
    return encode_ids(as_ids(given, len(values)))[0]


@pytest.mark.parametrize("name", KINDS)
def test_unions_and_lookups_across_kinds_are_those_of_sets_and_dicts(name):
    first = distinct(name)
    position = {client: k for k, client in enumerate(first.tolist())}
    for other in KINDS:
        second = distinct(other)
        union = union_ids(first, second).tolist()
        assert set(union) == {*first.tolist(), *second.tolist()}, other
        assert len(union) == len(set(union)), other
        assert union_ids(second, first).tolist() == union, other
        expected = [position.get(client, -1) for client in second.tolist()]
        assert lookup_ids(first, second).tolist() == expected, other
        joined = concatenate_ids([first, second]).tolist()
        assert joined == [*first.tolist(), *second.tolist()], other


def test_mixed_ids_sort_by_value_where_they_compare_and_else_by_kind():
    assert sort_ids({2.5, 1, 10, -3}).tolist() == [-3, 1, 2.5, 10]
    clients = sort_ids({"b", 2.5, "a", 10, True, None}).tolist()
    assert [c for c in clients if c is not None] == [1, 2.5, 10, "a", "b"]
    for order in itertools.permutations(["b", 2, "a", None, 0.5]):
        assert sort_ids(order).tolist() == sort_ids(["b", 2, "a", None, 0.5]).tolist()


def test_object_array_keeps_sequences_as_they_are():
    array = object_array([(1, 2), "ab", [3]])
    assert array.shape == (3,)
    assert array.tolist() == [(1, 2), "ab", [3]]
    assert object_array([]).shape == (0,)


# What ids are equal.


def test_ints_and_floats_of_one_value_are_one_client():
    clients = np.array([-1, 2, 5])
    assert lookup_ids(clients, np.array([5.0, 2.5, -1.0, 1e300])).tolist() == [2, -1, 0, -1]
    assert lookup_ids(np.array([0.5, 2.0]), np.array([2, 0, 1])).tolist() == [1, -1, -1]
    assert lookup_ids(clients, object_array([5.0, "5", 2])).tolist() == [2, -1, 1]
    assert lookup_ids(clients, np.array([2, 3], dtype=np.uint64)).tolist() == [1, -1]


def test_large_ints_are_not_taken_for_the_float_next_to_them():
    assert lookup_ids(np.array([2**53 + 1]), np.array([2.0**53])).tolist() == [-1]
    assert lookup_ids(np.array([2.0**53]), np.array([2**53 + 1])).tolist() == [-1]


def test_dates_of_different_resolution_are_one_client():
    days, seconds = DAYS[[1, 0]], DAYS.astype("datetime64[ns]")
    assert lookup_ids(days, seconds).tolist() == [1, 0, 1, -1]
    assert lookup_ids(seconds[[1, 0]], DAYS).tolist() == [1, 0, 1, -1]


@pytest.mark.parametrize("unit", ["D", "s", "ns"])
def test_a_single_date_is_found_among_dates(unit):
    clients = np.unique(DAYS).astype(f"datetime64[{unit}]")
    for k, client in enumerate(clients):
        assert lookup_ids(clients, as_ids([client], 1)).tolist() == [k]


def test_dates_are_not_the_integers_they_are_stored_as():
    clients = np.unique(DAYS).astype("datetime64[ns]")
    assert lookup_ids(clients, clients.view(np.int64)).tolist() == [-1, -1, -1]


def test_strings_that_differ_in_a_trailing_null_are_two_clients():
    ids = as_ids(["a", "a\0"], 2)
    assert len(encode_ids(ids)[0]) == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (3, 3.0),
        (3, np.int8(3)),
        (3, np.float32(3.0)),
        (0.5, np.float32(0.5)),
        (2**70, float(2**70)),
        (1, True),
        (1, np.True_),
        (3, fractions.Fraction(3)),
        (3, decimal.Decimal(3)),
        ("a", np.str_("a")),
        (0.0, -0.0),
    ],
)
def test_equal_ids_have_equal_bytes(one, other):
    assert one == other
    assert hash(one) == hash(other)
    assert id_bytes(one) == id_bytes(other)


def test_different_ids_have_different_bytes():
    ids = [1, -1, "1", 1.5, "1.5", None, "None", "", "s:1", "n:1", 2**70, datetime.date(2024, 1, 1)]
    assert len({id_bytes(client) for client in ids}) == len(ids)


# What is refused.


@pytest.mark.parametrize(
    "ids",
    [
        [1.0, np.nan],
        ["a", float("nan")],
        np.array([1.0, np.nan], dtype=np.float32),
        np.array(["a", np.nan], dtype=object),
        np.array([1, np.nan + 0j]),
        [1, complex("nan")],
        [1, decimal.Decimal("nan")],
        np.array(["2024-01-01", "NaT"], dtype="datetime64[s]"),
        [np.datetime64("2024-01-01"), np.datetime64("NaT")],
        [datetime.date(2024, 1, 1), pd.NaT],
        pd.Series(pd.to_datetime(["2024-01-01", None])),
        pd.Series(["a", None], dtype="str"),
        pd.array(["a", None], dtype="string"),
        pd.array([1, None], dtype="Int64"),
        pd.Series([1, None], dtype="Int64"),
        pd.Categorical(["a", None]),
        pd.Categorical([1, None]),
        ["a", pd.NA],
    ],
    ids=lambda ids: f"{type(ids).__name__} {getattr(ids, 'dtype', ids)}",
)
def test_a_missing_id_is_an_error_that_names_its_row(ids):
    with pytest.raises(ValueError, match=r"\(NaN\) in row 1"):
        as_ids(ids, 2)
    with pytest.raises(ValueError, match=r"\(NaN\) in row 1"):
        as_ids(ids, 2, allow_none=True)


def test_none_is_no_id_unless_it_is_allowed():
    for ids in (["a", None], np.array(["a", None], dtype=object), [None, 1.5, "b"]):
        row = list(ids).index(None)
        with pytest.raises(ValueError, match=rf"\(None\) in row {row}"):
            as_ids(ids, len(ids))
        assert as_ids(ids, len(ids), allow_none=True).tolist() == list(ids)


@pytest.mark.parametrize("ids", [[1, 2], np.zeros((3, 2)), np.zeros(4), 5, "abc"])
def test_ids_must_be_one_a_row(ids):
    with pytest.raises(ValueError, match="one client id for each of the 3 rows"):
        as_ids(ids, 3)


@pytest.mark.parametrize(
    "ids", [[[1], [2]], [(1, 2), (3, 4)], [{"a": 1}, {}], [{1}, "a"], [np.zeros(2), 1], [[], 1.5]]
)
def test_ids_must_be_hashable_scalars(ids):
    with pytest.raises(TypeError, match="hashable scalar"):
        as_ids(ids, 2)


@pytest.mark.parametrize(
    ("a", "b"),
    [([1, 2], ["1", "2"]), ([0.5], ["a"]), (np.array([True]), ["True"])],
)
def test_numbers_and_their_strings_are_not_the_same_kind(a, b):
    a, b = as_ids(a, len(a)), as_ids(b, len(b))
    for known, given in ((a, b), (b, a)):
        with pytest.raises(ValueError, match="convert one to the type of the other"):
            check_same_kind(known, given)


@pytest.mark.parametrize(
    ("a", "b"),
    [([1], [0.5]), (["a"], ["b"]), ([1, "a"], ["b"]), ([1, "a"], [3]), ([], ["a"]), ([1], [])],
)
def test_ids_that_may_be_compared_are_the_same_kind(a, b):
    check_same_kind(as_ids(a, len(a)), as_ids(b, len(b)))


def test_huge_ints_and_their_strings_are_not_the_same_kind():
    with pytest.raises(ValueError, match="convert one to the type of the other"):
        check_same_kind(as_ids([2**70, 2**71], 2), as_ids([str(2**70)], 1))
