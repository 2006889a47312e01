"""idx files are read or refused by name; tables and lists of clients are each other's inverse."""

import gzip
import struct

import numpy as np
import pytest
from scipy import sparse

from skfedhip.datasets import load_idx, split_clients, stack_clients

TRAIN = "train-images-idx3-ubyte"


def idx(array):
    """The bytes of an idx file, written the slow way."""
    head = bytes([0, 0, 8, array.ndim]) + b"".join(struct.pack(">i", n) for n in array.shape)
    return head + bytes(array.ravel().tolist())


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    out = {}
    for part, n in (("train", 5), ("t10k", 3)):
        out[f"{part}-images-idx3-ubyte"] = rng.integers(0, 256, (n, 4, 6))
        out[f"{part}-labels-idx1-ubyte"] = rng.integers(0, 10, n)
    return out


@pytest.fixture
def folder(tmp_path, arrays):
    for name, array in arrays.items():
        (tmp_path / name).write_bytes(idx(array))
    return tmp_path


@pytest.mark.parametrize("zipped", [(), (TRAIN,), "all"])
def test_load_returns_what_was_written(folder, arrays, zipped):
    for name in arrays if zipped == "all" else zipped:
        content = (folder / name).read_bytes()
        (folder / name).unlink()
        (folder / f"{name}.gz").write_bytes(gzip.compress(content))
    data = load_idx(str(folder))
    assert data.train_size == 5
    assert data.images.dtype == np.uint8
    for part, rows in (("train", slice(5)), ("t10k", slice(5, None))):
        np.testing.assert_array_equal(data.images[rows], arrays[f"{part}-images-idx3-ubyte"])
        np.testing.assert_array_equal(data.target[rows], arrays[f"{part}-labels-idx1-ubyte"])
    data.images[0] = 0  # the arrays are the caller's


def test_missing_directory_or_file_says_what_to_do(folder):
    with pytest.raises(FileNotFoundError, match=r"no directory .*nowhere.*dataset-fashion-mnist"):
        load_idx(folder / "nowhere")
    (folder / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(FileNotFoundError, match=r"no t10k-labels-idx1-ubyte .*install .*pass "):
        load_idx(folder)


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (lambda b: b"", "magic number 00000803 .* got nothing"),
        (lambda b: b"\x00\x00\x08\x01" + b[4:], "magic number 00000803 .* got 00000801"),
        (lambda b: b"\x89PNG" + b[4:], "magic number"),
        (lambda b: b[:10], "should have"),
        (lambda b: b[:-1], r"should have 136 bytes for shape \(5, 4, 6\), got 135"),
        (lambda b: b + b"\x00", "got 137"),
        (lambda b: b[:4] + b"\xff" * 12 + b[16:], "should have"),
    ],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_a_damaged_file_is_named(folder, damage, match, zipped):
    content = damage((folder / TRAIN).read_bytes())
    (folder / TRAIN).unlink()
    path = folder / (TRAIN + ".gz" * zipped)
    path.write_bytes(gzip.compress(content) if zipped else content)
    with pytest.raises(ValueError, match=f"{path.name}.* {match}"):
        load_idx(folder)


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-9], lambda b: b"no" + b, lambda b: b[:12] + b"?" * 9]
)
def test_a_damaged_gzip_file_is_named(folder, damage):
    content = gzip.compress((folder / TRAIN).read_bytes())
    (folder / TRAIN).unlink()
    (folder / f"{TRAIN}.gz").write_bytes(damage(content))
    with pytest.raises(ValueError, match=f"{TRAIN}.gz' is not a whole gzip file"):
        load_idx(folder)


def test_parts_must_fit(folder):
    (folder / "t10k-labels-idx1-ubyte").write_bytes(idx(np.arange(4)))
    with pytest.raises(ValueError, match=r"t10k-images.* has 3 images but .*t10k-labels.* has 4"):
        load_idx(folder)
    (folder / "t10k-labels-idx1-ubyte").write_bytes(idx(np.arange(3)))
    (folder / "t10k-images-idx3-ubyte").write_bytes(idx(np.zeros((3, 2, 2), dtype=int)))
    with pytest.raises(ValueError, match=r"\(4, 6\) but test images of shape \(2, 2\)"):
        load_idx(folder)


def federation(ids):
    rng = np.random.default_rng(0)
    sizes = [3, 1, 4][: len(ids)]
    Xs = [rng.standard_normal((n, 2)).astype(np.float32) for n in sizes]
    return Xs, [rng.integers(0, 3, n) for n in sizes]


@pytest.mark.parametrize(
    "ids", [["b", "a", "c"], [-7, 2**62 + 1, 0], [0.5, 2.0, -1.0], [1, "b", 2], np.array([3, 1, 2])]
)
def test_split_inverts_stack(ids):
    Xs, ys = federation(ids)
    X, y, groups = stack_clients(Xs, ys, ids)
    assert X.dtype == np.float32
    clients = split_clients(X, y, groups)
    assert len(clients) == 3
    for name, X_k, y_k in zip(ids, Xs, ys, strict=True):
        np.testing.assert_array_equal(clients[name][0], X_k)
        np.testing.assert_array_equal(clients[name][1], y_k)


def test_stack_inverts_split_up_to_a_stable_sort_by_client():
    rng = np.random.default_rng(0)
    groups = rng.choice(["u", "v", "w"], 30)
    X, y = np.arange(60).reshape(30, 2), np.arange(30)
    clients = split_clients(X, y, groups)
    assert list(clients) == ["u", "v", "w"]
    order = np.argsort(groups, kind="stable")
    back = stack_clients(*zip(*clients.values(), strict=True), ids=list(clients))
    for a, b in zip(back, (X[order], y[order], groups[order]), strict=True):
        np.testing.assert_array_equal(a, b)


def test_ids_count_up_by_default():
    _, _, groups = stack_clients(*federation("abc"))
    np.testing.assert_array_equal(groups, [0, 0, 0, 1, 2, 2, 2, 2])


def test_images_stack_and_sparse_rows_split():
    X, _, _ = stack_clients([np.zeros((2, 4, 4)), np.ones((1, 4, 4))], [[0, 1], [1]])
    assert X.shape == (3, 4, 4)
    clients = split_clients(sparse.csr_array(np.eye(3)), [0, 1, 2], [5, 4, 5])
    np.testing.assert_array_equal(clients[5][0].toarray(), np.eye(3)[[0, 2]])


@pytest.mark.parametrize(
    ("Xs", "ys", "ids", "match"),
    [
        ([], [], None, "of one length above 0, got 0, 0 and 0"),
        ([[[1.0]]], [[0], [1]], None, "of one length above 0, got 1, 2 and 1"),
        ([[[1.0]]], [[0]], ["a", "b"], "of one length above 0, got 1, 1 and 2"),
        ([[[1.0]], [[1.0]]], [[0], [1, 0]], ["a", "b"], "Client 'b' has 1 rows .* but 2 labels"),
        ([[[1.0]], np.empty((0, 1))], [[0], [1]], ["a", "b"], "Client 'b' has 0 rows .* 1 labels"),
        ([[[1.0]], [[1.0, 2.0]]], [[0], [1]], ["a", "b"], r"Client 'b' .* shape \(2,\)"),
        ([[[1.0]], []], [[0], []], ["a", "b"], "Client 'b' has no labels"),
        ([[[1.0]], [[1.0]]], [[0], [1]], ["a", "a"], "id 'a' occurs twice"),
        ([[[1.0]], [[1.0]]], [[0], [1]], ["a", None], "None"),
        ([[[1.0]], [[1.0]]], [[0], [1]], [1.0, np.nan], "NaN"),
        ([[[1.0]], [[1.0]]], [[0], ["x"]], None, "strings as labels and others not"),
        ([[1.0]], [[0]], ["a"], "Expected 2D array"),
    ],
)
def test_lists_that_do_not_fit_are_refused(Xs, ys, ids, match):
    with pytest.raises(ValueError, match=match):
        stack_clients(Xs, ys, ids)


@pytest.mark.parametrize(
    ("y", "groups", "match"),
    [
        ([0], [1, 2], "inconsistent numbers of samples"),
        ([0, 1], [1, 2, 3], "one client id for each of the 2 rows"),
        ([0, 1], [1.0, np.nan], "NaN"),
    ],
)
def test_tables_that_do_not_fit_are_refused(y, groups, match):
    with pytest.raises(ValueError, match=match):
        split_clients(np.zeros((2, 1)), y, groups)
