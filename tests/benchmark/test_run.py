"""The benchmark command: one split, one table, the same numbers in JSON, errors in one sentence."""

import json
import re
import shlex
import struct
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits

from skfedhip import AFLClassifier, LocalRidgeClassifier
from skfedhip.benchmark import _backbone, _data, _gradient, _privacy, _probe, _table, _tuning
from skfedhip.benchmark.__main__ import main
from skfedhip.benchmark._run import CLOSED_FORM, GROUPS, METHODS, evaluate
from skfedhip.datasets import partition_dirichlet
from skfedhip.model_selection import ClientShuffleSplit


def run(capsys, *argv):
    assert main([str(arg) for arg in argv]) == 0
    return capsys.readouterr().out


def run_json(capsys, path, *argv):
    out = run(capsys, *argv, "--json", path)
    return out, json.loads(path.read_text())


def fail(capsys, *argv):
    """The one line that an error prints."""
    with pytest.raises(SystemExit) as end:
        main([str(arg) for arg in argv])
    captured = capsys.readouterr()
    assert end.value.code == 2
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "Traceback" not in captured.err
    return captured.err


def table_rows(out):
    """The cells of each method's row, by its label."""
    body = out.split("\n" + "-" * 77 + "\n")[1]
    return {line.split()[0]: re.split(r"\s{2,}", line)[1:] for line in body.splitlines()}


@pytest.fixture
def idx_folder(tmp_path):
    """A small data set of the MNIST family whose 4 classes are easy to tell apart."""
    rng = np.random.default_rng(0)
    for part, n in (("train", 160), ("t10k", 40)):
        y = rng.permutation(np.arange(n) % 4)
        images = rng.integers(0, 100, (n, 4, 4))
        images[np.arange(n), y, y] += 150
        for name, array in ((f"{part}-images-idx3", images), (f"{part}-labels-idx1", y)):
            head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}i", *array.shape)
            (tmp_path / f"{name}-ubyte").write_bytes(head + array.astype(np.uint8).tobytes())
    return tmp_path


def test_digits_prints_what_json_holds(capsys, tmp_path):
    out, content = run_json(capsys, tmp_path / "out.json", "digits", "--seed", 3)
    assert {
        "dataset": "Digits",
        "clients": 20,
        "dirichlet": 0.1,
        "seed": 3,
        "rows": 1797,
        "features": 64,
        "classes": 10,
    }.items() <= content["configuration"].items()
    assert set(content["versions"]) == {"python", "skfedhip", "numpy", "scipy", "scikit-learn"}
    rows, results = table_rows(out), content["results"]
    assert list(rows) == [METHODS[name].label for name in CLOSED_FORM]
    assert [r["method"] for r in results] == CLOSED_FORM
    keys = ("mean", "weighted_mean", "std", "worst_decile")
    for cells, record in zip(rows.values(), results, strict=True):
        assert cells[:4] == [f"{record[key]:.4f}" for key in keys]
        assert cells[4] == _table.human_seconds(record["fit_seconds"])
        assert cells[5:] == [_table.human_bytes(record[f"bytes_{way}"]) for way in ("up", "down")]
        assert record["worst_decile"] <= record["mean"] <= record["max"] <= 1
    assert max(map(len, out.splitlines())) <= 80
    for part in ("20 clients", "alpha 0.1", "seed 3", "1,797 rows", "64 features", "10 classes"):
        assert part in out
    assert "Parameters, tuned in the CV methods alone" in out
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_numbers_are_those_of_the_estimators(capsys, tmp_path):
    argv = ("digits", "--clients", 6, "--dirichlet", 1, "--methods", "afl,local", "--seed", 1)
    _, content = run_json(capsys, tmp_path / "out.json", *argv)
    X, y = load_digits(return_X_y=True)
    groups = partition_dirichlet(y, 6, 1.0, random_state=1)
    ((train, test),) = ClientShuffleSplit(test_size=0.25, random_state=1).split(X, y, groups)
    for clf, record in zip(
        (AFLClassifier(), LocalRidgeClassifier()), content["results"], strict=True
    ):
        clf.fit(X[train] / 16, y[train], groups=groups[train])
        hits = clf.predict(X[test] / 16, groups=groups[test]) == y[test]
        scores = [hits[groups[test] == k].mean() for k in range(6)]
        assert record["estimator"] == type(clf).__name__
        assert record["mean"] == pytest.approx(np.mean(scores), rel=1e-12)
        assert record["std"] == pytest.approx(np.std(scores), rel=1e-12)
        assert record["weighted_mean"] == pytest.approx(hits.mean(), rel=1e-12)
        assert record["worst_decile"] == min(scores)
        assert record["bytes_up"] == clf.bytes_up_.max()
        assert record["bytes_down"] == clf.bytes_down_.max()


def test_methods_run_once_in_the_order_given(capsys):
    out = run(capsys, "digits", "--methods", "fedhip, local,fedhip")
    assert list(table_rows(out)) == ["FedHiP", "Local"]
    assert "AnaPFL" not in out


def test_gradient_methods_take_rounds_and_step_size(capsys, tmp_path):
    argv = ("digits", "--clients", 3, "--methods", "afl,fedper,fedcp", "--rounds", 2, "--lr", 0.03)
    _, content = run_json(capsys, tmp_path / "out.json", *argv)
    afl, *others = (record["parameters"] for record in content["results"])
    assert "lr" not in afl
    assert [(p["n_rounds"], p["lr"], p["random_state"]) for p in others] == [(2, 0.03, 0)] * 2


def test_groups_of_methods_are_all_of_them():
    assert {name for group in GROUPS.values() for name in group} == set(METHODS)
    for name in METHODS:
        assert METHODS[name].make(3, 1).fit  # the parameters are known
    labels = [method.label for method in METHODS.values()]
    assert len(set(labels)) == len(labels)
    assert max(map(len, labels)) <= 10


def test_jobs_change_nothing_but_time(capsys, tmp_path):
    def once(jobs):
        argv = ("digits", "--clients", 8, "--jobs", jobs)
        _, content = run_json(capsys, tmp_path / "out.json", *argv)
        for record in content["results"]:
            del record["fit_seconds"], record["parameters"]["n_jobs"]
        assert content["configuration"].pop("jobs") == jobs
        return content

    assert once(1) == once(2)


def test_fashion_mnist_pools_the_idx_files(capsys, idx_folder, tmp_path):
    argv = ("fashion-mnist", "--data-dir", idx_folder, "--clients", 10, "--dirichlet", 1)
    out, content = run_json(capsys, tmp_path / "out.json", *argv)
    assert content["configuration"]["rows"] == 200
    assert content["configuration"]["features"] == 16
    assert content["configuration"]["classes"] == 4
    assert "Fashion-MNIST: 10 clients" in out
    assert all(record["weighted_mean"] > 0.8 for record in content["results"])


def test_missing_directory_says_what_to_do(capsys, tmp_path):
    message = fail(capsys, "fashion-mnist", "--data-dir", tmp_path / "nowhere")
    assert re.search(r"no directory .*nowhere.*install .*dataset-fashion-mnist.* pass ", message)


def test_damaged_file_is_named(capsys, idx_folder):
    (idx_folder / "t10k-labels-idx1-ubyte").write_bytes(b"no idx")
    assert "t10k-labels" in fail(capsys, "fashion-mnist", "--data-dir", idx_folder)


def test_privacy_sets_noise_beside_none(capsys, idx_folder, tmp_path):
    argv = ["privacy", "--data-dir", idx_folder, "--clients", 4, "--features", 8, "--seeds", 1]
    out, content = run_json(capsys, tmp_path / "out.json", *argv, "--epsilons", "0.5,inf")
    noisy, exact = np.array(content["accuracy"])[:, :, 0]
    assert content["columns"][0] == "AFL, noise at the server"
    assert exact[0] == exact[1]  # without noise it is the same who adds it
    assert (noisy <= exact).all()
    for value in (*noisy, *exact, *content["local"]):
        assert f"{value:.4f}" in out


@pytest.mark.parametrize(
    ("argv", "match"),
    [
        ("", "digits,fashion-mnist"),
        ("privacy --epsilons 1,-1", "--epsilons: must be numbers above 0, or inf, got '1,-1'"),
        ("privacy --data-dir /no/such", "/no/such"),
        ("letters", "invalid choice: 'letters'"),
        ("digits --clients 0", "--clients: must be at least 1, got 0"),
        ("digits --clients two", "--clients: must be a whole number, got 'two'"),
        ("digits --dirichlet -0.5", "--dirichlet: must be a finite number above 0, got '-0.5'"),
        ("digits --dirichlet nan", "--dirichlet: must be a finite number above 0, got 'nan'"),
        ("digits --seed -1", "--seed: must be from 0 to 4294967295, got -1"),
        ("digits --jobs 0", "--jobs: must be at least 1, or -1"),
        ("digits --methods local,magic", "'magic'; choose among local, afl, fedhip, anapfl"),
        ("digits --methods=", "no method ''; choose among"),
        ("digits --clients 500", "--clients 500 --dirichlet 0.1: .*needs 5000 rows"),
        ("digits --clients 2000", "--clients 2000 .*more than the 1797 rows"),
        ("digits --clients 150 --dirichlet 0.001", "--dirichlet 0.001: None of 100 draws"),
        ("digits --json /no/such/folder/out.json", "no directory '/no/such/folder'"),
        ("digits --json /", "'/' is not a file"),
        ("digits --json ''", "--json: is an empty path; name one"),
        ("digits --json /proc/out.json", "No files can be written in '/proc'"),
        ("digits --json ~nobody-of-this-name/a", "there is no such home directory"),
        (f"digits --json {'a' * 300}", "File name too long"),
        ("digits --plot /no/such/folder/out.png", "no directory '/no/such/folder'"),
        ("digits --plot out.xyz", "'out.xyz' must end in one of .*, .png, "),
        ("digits --plot out", "'out' must end in one of "),
        ("digits --cache=", "--cache: is an empty path; name one"),
        ("digits --cache /proc/features", "--cache: No files can be written in '/proc/features'"),
        ("digits --features ./none", "There is no directory './none'"),
        ("digits --lr 0", "--lr: must be a finite number above 0, got '0'"),
        ("digits --lr 1e39", r"--lr: must be at most 3.40282e\+38, got '1e39'"),
        ("digits --rounds 0", "--rounds: must be at least 1, got 0"),
        ("fashion-mnist --data-dir ~nobody-of-this-name", "there is no such home directory"),
        ("cifar10", "required: --data-dir"),
        ("cifar10 --data-dir /no/such", "'/no/such' does not hold all of data_batch_1"),
        ("cifar100 --data-dir /no/such", r"'/no/such' does not hold all of train and test \(CIFAR"),
        ("tiny-imagenet --data-dir /no/such", "no directory '/no/such'"),
        ("imagenet-r --data-dir /no/such", "no directory '/no/such'"),
        ("gradient --data-dir /no/such", "no directory '/no/such'"),
        ("gradient --features ./none", "There is no directory './none'"),
        ("gradient --methods magic", "there is no method 'magic'"),
        ("gradient --lrs 0.1,x", "--lrs: must be a finite number above 0, got 'x'"),
        ("gradient --rows 5", "--rows: must be at least 100, got 5"),
        ("gradient --clients 500", "needs 5000 rows"),
        ("gradient --json /no/such/out.json", "no directory '/no/such'"),
        ("speed --repeats 0", "--repeats: must be at least 1, got 0"),
        ("speed --scale half", "--scale: must be a whole number, got 'half'"),
        ("speed --json /no/such/out.json", "no directory '/no/such'"),
        ("backbone --images 0", "--images: must be at least 1, got 0"),
        ("backbone --model ./none", "There is no directory './none'"),
        ("backbone --model base-sized --device nonsense", "There is no device 'nonsense'"),
        ("backbone --json /no/such/out.json", "no directory '/no/such'"),
        ("probe --rows 0", "--rows: must be at least 1, got 0"),
        ("probe --json /no/such/out.json", "no directory '/no/such'"),
        ("tuning --data-dir /no/such", "no directory '/no/such'"),
        ("tuning --seeds 0", "--seeds: must be at least 1, got 0"),
        ("tuning --json /no/such/out.json", "no directory '/no/such'"),
        ("privacy --json /no/such/out.json", "no directory '/no/such'"),
        ("paper --dataset cifar100", "cifar100 is read from files; pass their directory as --data"),
        ("paper --dataset letters", "invalid choice: 'letters'"),
        ("paper --dataset fashion-mnist --data-dir /no/such", "no directory '/no/such'"),
        ("paper --features ./none", "There is no directory './none'"),
        ("paper --protocol mine", "invalid choice: 'mine'"),
        ("paper --clients 10,x", "--clients: must be a whole number, got 'x'"),
        ("paper --dirichlet 0.1,0", "--dirichlet: must be a finite number above 0, got '0'"),
        ("paper --min-size 1", "--min-size: must be at least 2, got 1"),
        ("paper --clients 10,900", "--clients 900 --dirichlet 0.1: "),
        ("paper --store /proc/cells", "No files can be written in '/proc/cells'"),
        ("privacy --clients 0", "--clients: must be at least 1, got 0"),
    ],
)
def test_errors_are_one_sentence(capsys, argv, match):
    assert re.search(match, fail(capsys, *shlex.split(argv)))


@pytest.mark.parametrize("command", [[], ["digits"], ["fashion-mnist"], ["speed"], ["privacy"]])
def test_help_names_every_option(capsys, command):
    with pytest.raises(SystemExit) as end:
        main([*command, "--help"])
    assert end.value.code == 0
    out = capsys.readouterr().out
    assert "python -m skfedhip.benchmark" in out
    if command in (["digits"], ["fashion-mnist"]):
        for option in ("--clients", "--dirichlet", "--seed", "--methods", "--jobs", "--json"):
            assert option in out


def test_a_failed_write_leaves_the_old_file(capsys, tmp_path, monkeypatch):
    path = tmp_path / "out.json"
    path.write_text("old")

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_table.os, "replace", full)
    with pytest.raises(SystemExit) as end:
        main(["digits", "--methods", "afl", "--json", str(path)])
    captured = capsys.readouterr()
    assert end.value.code == 2
    assert "AFL" in captured.out  # the table is not lost
    assert re.search(r"can't write .*out\.json.*No space left", captured.err)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["out.json"]


def test_json_goes_through_a_link(tmp_path):
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    link.symlink_to(real)
    _table.write_json(link, {"a": np.float64(0.5), "b": np.True_})
    assert link.is_symlink()
    content = json.loads(real.read_text())
    assert (content["a"], content["b"]) == (0.5, True)


def test_command_loads_no_torch():
    code = (
        "import sys; from skfedhip.benchmark.__main__ import main\n"
        "main(['digits', '--methods', 'afl', '--clients', '3'])\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # no progress bar where stderr is no terminal


def test_evaluate_takes_any_ids_and_keeps_order():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 3)), np.arange(60) % 3
    groups = np.repeat(["bob", "ann", "eve"], 20)
    results = evaluate({"second": AFLClassifier(), "first": AFLClassifier(beta=2.0)}, X, y, groups)
    assert [result.name for result in results] == ["second", "first"]
    assert results[1].parameters["beta"] == 2.0
    assert results[0].scores.clients.tolist() == ["ann", "bob", "eve"]
    assert results[0].scores.n_rows.tolist() == [5, 5, 5]


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (99_960, "100 kB"), (999_600, "1.00 MB")],
)
def test_bytes_have_three_digits(size, text):
    assert _table.human_bytes(size) == text


def test_features_of_a_model_are_kept(capsys, idx_folder, tmp_path, monkeypatch):
    command = ["fashion-mnist", "--data-dir", idx_folder, "--clients", 4, "--dirichlet", 1]
    command += ["--features", "vit-mae-tiny", "--cache", tmp_path / "cache", "--methods", "local"]
    out, content = run_json(capsys, tmp_path / "a.json", *command)
    assert "192 features (vit-mae-tiny)" in out
    assert content["configuration"]["features_from"] == "vit-mae-tiny"
    (kept,) = (tmp_path / "cache").rglob("*.npy")
    assert kept.stat().st_size > 200 * 192 * 4
    _, again = run_json(capsys, tmp_path / "b.json", *command)
    assert again["results"][0]["mean"] == content["results"][0]["mean"]
    assert len(list((tmp_path / "cache").rglob("*.npy"))) == 1
    assert "no-such-model" in fail(capsys, *command, "--features", "./no-such-model")


@pytest.fixture
def picture_folder(tmp_path):
    """Sixteen red and sixteen blue images, each of 8 x 8 with noise."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for name, channel in (("red", 0), ("blue", 2)):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for number in range(16):
            pixels = rng.integers(0, 100, (8, 8, 3), dtype=np.uint8)
            pixels[..., channel] += 100
            Image.fromarray(pixels).save(tmp_path / "pictures" / name / f"{number}.png")
    return tmp_path / "pictures"


def test_other_folders_are_not_tiny_imagenet(capsys, picture_folder):
    message = fail(capsys, "tiny-imagenet", "--data-dir", picture_folder)
    assert re.search("is not Tiny-ImageNet, .* run imagenet-r on other folders", message)


def test_folders_of_pictures(capsys, picture_folder, tmp_path):
    command = ["imagenet-r", "--data-dir", picture_folder, "--clients", 2, "--dirichlet", 5]
    command += ["--min-size", 4, "--methods", "afl"]
    _, content = run_json(capsys, tmp_path / "a.json", *command)
    assert content["configuration"]["features"] == 192
    assert content["results"][0]["mean"] == 1
    from PIL import Image

    Image.new("RGB", (9, 9)).save(picture_folder / "red" / "odd.png")
    assert "different sizes" in fail(capsys, *command)
    (picture_folder / "red" / "odd.png").write_text("no image")
    assert "odd.png" in fail(capsys, *command)
    assert "no directory" in fail(capsys, *command, "--data-dir", picture_folder / "none")


def test_cifar(capsys, tmp_path):
    rng = np.random.default_rng(0)
    for name in [*(f"data_batch_{part}.bin" for part in range(1, 6)), "test_batch.bin"]:
        records = rng.integers(0, 200, (20, 3073), dtype=np.uint8)
        records[:, 0] = np.arange(20) % 2
        records[::2, 1:1025] += 50
        (tmp_path / name).write_bytes(records.tobytes())
    command = ["cifar10", "--data-dir", tmp_path, "--clients", 3, "--dirichlet", 5]
    _, content = run_json(capsys, tmp_path / "a.json", *command, "--methods", "afl")
    assert content["configuration"]["features"] == 3072
    assert content["results"][0]["mean"] > 0.9
    command[0] = "cifar100"
    assert "does not hold all of train and test (CIFAR-100)" in fail(capsys, *command)


def test_probe_and_backbone(capsys, idx_folder, tmp_path):
    for command in (
        ["probe", "--data-dir", idx_folder, "--rows", 60],
        ["backbone", "--images", 20, "--repeats", 1],
    ):
        out, content = run_json(capsys, tmp_path / "out.json", *command)
        assert len(out.splitlines()) > 3
        (numbers,) = (content[name] for name in ("probe", "backbone") if name in content)
        assert numbers.pop("device", "cpu") == "cpu"
        assert min(numbers.values()) > 0
    assert "vit-mae-tiny on cpu, images per second" in out
    assert "no directory" in fail(capsys, "probe", "--data-dir", tmp_path / "none")
    assert "There is no device" in fail(capsys, "backbone", "--device", "nonsense")


@pytest.mark.parametrize(("n_images", "timed"), [(20, 20), (60, 50)])
def test_the_loop_is_divided_by_what_it_went_over(monkeypatch, n_images, timed):
    looped = []
    monkeypatch.setattr(
        _backbone,
        "_seconds_one_by_one",
        lambda plan, extraction, images: looped.append(images) or 2,
    )
    monkeypatch.setattr(_backbone, "_matrix_rate", lambda plan: 1.0)
    assert _backbone.measure("vit-mae-tiny", "cpu", n_images, 1).loop == timed / 2
    assert len(looped[0]) == timed


def test_what_can_be_wrong_is_found_before_the_work(capsys, idx_folder, monkeypatch):
    def work(*args, **kwargs):
        pytest.fail("this is work")

    data = ["--data-dir", idx_folder]
    with monkeypatch.context() as patch:
        patch.setattr(_data, "load_idx", work)
        for command in ("fashion-mnist", "gradient"):
            assert "no directory './none'" in fail(capsys, command, *data, "--features", "./none")
    with monkeypatch.context() as patch:
        patch.setattr(_data, "features", work)
        assert "no split of the rows" in fail(capsys, "fashion-mnist", *data, "--clients", 99)
    monkeypatch.setattr(_probe.RidgeClassifierCV, "fit", work)
    assert "no directory './none'" in fail(capsys, "probe", *data, "--model", "./none")
    assert "training rows are of one class" in fail(capsys, "probe", *data, "--rows", 1)
    monkeypatch.setattr(_gradient, "measure", work)
    assert "needs 5000 rows" in fail(capsys, "gradient", "--clients", 500)
    monkeypatch.setattr(_tuning, "measure", work)
    assert "None of 100 draws" in fail(capsys, "tuning", *data, "--seeds", 1)
    monkeypatch.setattr(_privacy, "_accuracy", work)
    assert "needs 500 rows" in fail(capsys, "privacy", *data, "--features", 4)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (FloatingPointError("It\ndiverges."), "error: It diverges."),
        (MemoryError(), "error: There is not enough memory."),
        (ValueError("Too few."), "error: Too few."),
    ],
)
def test_errors_of_the_work_are_one_sentence(capsys, monkeypatch, error, words):
    def fails(*args, **kwargs):
        raise error

    monkeypatch.setattr(AFLClassifier, "fit", fails)
    assert fail(capsys, "digits", "--methods", "afl").endswith(f"{words}\n")
