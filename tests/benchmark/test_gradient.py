"""The plain loop of the speed benchmark is FedCP; the table of gradient methods is true."""

import json
from argparse import Namespace

import numpy as np
import pytest

from skfedhip import FedCPClassifier
from skfedhip.benchmark import _gradient
from skfedhip.benchmark.__main__ import main
from skfedhip.benchmark._speed import CNN_ROUND, ROUND, compare_fedcp
from skfedhip.gradient import MLP
from skfedhip.gradient._reference import fedcp_loop


def test_the_loop_gives_the_same_numbers():
    rng = np.random.default_rng(0)
    groups = np.repeat([0, 1, 2], [1, 12, 27])
    X, y = rng.normal(size=(40, 9)), rng.integers(0, 3, 40)
    clf = FedCPClassifier(
        2.0,
        n_rounds=2,
        lr=0.2,
        weight_decay=0.01,
        local_epochs=2,
        shuffle=False,
        dtype="float64",
        feature_extractor=MLP((7,)),
        random_state=0,
    ).fit(X, y, groups=groups)
    shared, heads = fedcp_loop(clf, X, y, groups)
    assert shared.keys() == clf.global_params_.keys()
    for name, array in clf.global_params_.items():
        np.testing.assert_allclose(shared[name], array, rtol=0, atol=1e-9)
    for k, head in heads.items():
        own = clf.personal_params_["personal_head.weight"][k]
        np.testing.assert_allclose(head, own, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("sizes", "images"), [(ROUND, False), (CNN_ROUND, True)])
def test_the_race_is_run(sizes, images):
    result = compare_fedcp(sizes.scaled(10), 1, images, 1.0)
    assert result.ratio == pytest.approx(result.ours / result.rival)
    assert ("CNN" in result.name) == images
    assert "one thread each" in result.note


def test_the_table_of_gradient_methods(capsys, tmp_path):
    path = tmp_path / "out.json"
    argv = "gradient --methods fedper,fedcp-bare --rounds 2 --seeds 2 --clients 4 --dirichlet 1"
    assert main([*argv.split(), "--lrs", "1e30,0.05", "--json", str(path)]) == 0
    out, runs = capsys.readouterr().out, json.loads(path.read_text())["gradient"]
    for name, label in (("fedper", "FedPer"), ("fedcp-bare", "bare")):
        means = [run["mean"] for run in runs[name]]
        assert len(means) == 2
        assert {run["lr"] for run in runs[name]} == {0.05}  # the other one diverges
        assert f"{label:<11} {np.mean(means):.4f} ± {np.std(means, ddof=1):.4f}" in out
    for bare, fedper in zip(runs["fedcp-bare"], runs["fedper"], strict=True):
        assert bare == pytest.approx(fedper, rel=1e-3)  # without its parts FedCP is FedPer


def test_features_in_the_place_of_pixels(tmp_path, monkeypatch, capsys):
    y = np.arange(40) % 2
    images = np.zeros((40, 9, 9), dtype=np.uint8)
    images[y == 1, 4:] = 200
    monkeypatch.setattr(_gradient._data, "load_idx_pooled", lambda d: (images, y))
    argv = ["gradient", "--data-dir", "somewhere", "--cache", str(tmp_path)]
    more = "--methods fedavg --rounds 8 --seeds 1 --clients 2 --dirichlet 10 --lrs 0.5"
    assert main([*argv, *more.split(), "--features", "vit-mae-tiny"]) == 0
    assert "FedAvg      1.0000" in capsys.readouterr().out
    assert list(tmp_path.rglob("*.npy"))
    with pytest.raises(SystemExit):
        main([*argv, "--features", "./none"])
    assert "There is no directory './none'" in capsys.readouterr().err


def test_images_are_for_networks(monkeypatch, capsys):
    y = np.arange(40) % 2
    images = np.zeros((40, 16, 16), dtype=np.uint8)
    images[y == 1, 8:] = 200
    monkeypatch.setattr(_gradient._data, "load_idx_pooled", lambda d: (images, y))
    argv = ["gradient", "--data-dir", "somewhere", "--features", "images"]
    more = "--rounds 8 --seeds 1 --clients 2 --dirichlet 10 --lrs 0.05"
    assert main([*argv, *more.split(), "--methods", "fedavg"]) == 0
    assert "FedAvg      1.0000" in capsys.readouterr().out
    for wrong in (["--methods", "fedavg,local"], ["--methods", "fedavg", "--standardize"]):
        with pytest.raises(SystemExit):
            main([*argv, *wrong])
    errors = capsys.readouterr().err
    assert "images are for networks alone; leave out local, afl" in errors
    assert "--standardize scales rows, not images" in errors


def test_images_have_their_colours_first():
    rng = np.random.default_rng(0)
    grey = rng.integers(0, 256, (3, 4, 5), dtype=np.uint8)
    colour = rng.integers(0, 256, (3, 4, 5, 3), dtype=np.uint8)
    for images, shape in ((grey, (3, 1, 4, 5)), (colour, (3, 3, 4, 5))):
        found = _gradient._data.features(images, "images")
        assert found.shape == shape
        np.testing.assert_allclose(found[2, -1, 1, 3] * 255, images[2, 1, 3].flat[-1], rtol=1e-6)
        rows = _gradient._data.features(images, "pixels")
        np.testing.assert_array_equal(rows, np.moveaxis(found, 1, 3).reshape(3, -1))


def test_clients_given_one_class_are_counted():
    groups = np.repeat(["a", "b", "c"], 2)
    y, predicted = np.array([0, 1, 0, 1, 2, 2]), np.array([1, 1, 1, 0, 2, 2])
    assert _gradient.n_given_one_class(y, predicted, groups) == 1


def test_standardized_features(capsys, monkeypatch):
    """Scales of features that hide the classes are taken out by training rows alone."""
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    X = np.column_stack([1e3 + 0.01 * (y + 0.1 * rng.normal(size=200)), np.zeros(200)])
    monkeypatch.setattr(_gradient._data, "load_digits", lambda: (X, y))
    argv = "gradient --methods fedavg --rounds 3 --seeds 1 --clients 2 --dirichlet 10 --lrs 0.05"
    assert main([*argv.split(), "--standardize"]) == 0
    assert "FedAvg      1.0000" in capsys.readouterr().out
    main(argv.split())
    assert "FedAvg      1.0000" not in capsys.readouterr().out


def test_features_are_made_of_the_rows_that_are_used(monkeypatch):
    images, y, made = np.arange(900), np.arange(900) % 3, []

    def features(images, kind, cache, progress):
        made.append(images)
        return 10.0 * images[:, None]

    monkeypatch.setattr(_gradient._data, "load_digits", lambda: (images, y))
    monkeypatch.setattr(_gradient._data, "features", features)
    how = {"data_dir": None, "features": "pixels", "cache": None, "seeds": 2}
    how |= {"clients": 3, "dirichlet": 10.0, "methods": ["fedavg"], "standardize": False}
    X, labels, rows = _gradient._load(Namespace(rows=100, **how))
    assert 100 < len(made[0]) <= 200
    for seed in range(2):
        chosen = np.random.default_rng(seed).permutation(900)[:100]
        np.testing.assert_array_equal(X[rows[seed], 0], 10 * chosen)
        np.testing.assert_array_equal(labels[rows[seed]], y[chosen])
    X, labels, rows = _gradient._load(Namespace(rows=None, **how))
    np.testing.assert_array_equal(X[rows[1], 0], 10 * images)
