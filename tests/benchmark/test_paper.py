"""The papers' protocols: a table over seeds that can be interrupted, beside published figures."""

import json
import re

import numpy as np
import pytest
from sklearn.datasets import load_digits

from skfedhip import AFLClassifier
from skfedhip.benchmark import _data, _paper
from skfedhip.benchmark.__main__ import main
from skfedhip.datasets import partition_dirichlet
from skfedhip.metrics import client_scores
from skfedhip.model_selection import ClientShuffleSplit

SMALL = ["--clients", 4, "--dirichlet", "1,5", "--seeds", 2, "--methods", "afl,local"]


@pytest.fixture
def command(tmp_path, capsys, monkeypatch):
    """Runs the command and returns what it prints; counts the cells that are worked on."""
    worked = []

    def counted(estimators, *args, **kwargs):
        worked.extend(estimators)
        return evaluate(estimators, *args, **kwargs)

    evaluate = _paper.evaluate
    monkeypatch.setattr(_paper, "evaluate", counted)

    def run(*argv):
        worked.clear()
        argv = ["paper", "--store", tmp_path / "store", *argv]
        assert main([str(arg) for arg in argv]) == 0
        return capsys.readouterr().out

    run.worked = worked
    return run


@pytest.fixture
def pictures(monkeypatch):
    """A small data set in the place of CIFAR-100."""
    y = np.arange(3000) % 30
    images = np.random.default_rng(0).random((3000, 2, 2)) + np.eye(4)[y % 4].reshape(-1, 2, 2)
    dataset = _data.Dataset("CIFAR-100", lambda directory: (images, y), "")
    monkeypatch.setitem(_data.DATASETS, "cifar100", dataset)
    return ["--dataset", "cifar100", "--data-dir", "somewhere"]


def accuracy(dirichlet, seed):
    """AFL's, in percent, by hand."""
    X, y = load_digits(return_X_y=True)
    groups = partition_dirichlet(y, 4, dirichlet, min_size=2, random_state=seed)
    ((train, test),) = ClientShuffleSplit(test_size=0.25, random_state=seed).split(X, y, groups)
    clf = AFLClassifier().fit(np.float32(X[train] / 16), y[train], groups=groups[train])
    predicted = clf.predict(np.float32(X[test] / 16), groups=groups[test])
    return 100 * client_scores(y[test], predicted, groups[test]).scores.mean()


def test_means_and_deviations_over_seeds(command, tmp_path):
    out = command(*SMALL, "--json", tmp_path / "out.json")
    (line,) = (line for line in out.splitlines() if line.startswith("AFL"))
    for dirichlet, shown in zip((1.0, 5.0), line.split("  ")[-2:], strict=True):
        values = [accuracy(dirichlet, seed) for seed in (0, 1)]
        assert shown.strip() == f"{np.mean(values):.2f} ± {np.std(values, ddof=1):.2f}"
    cells = json.loads((tmp_path / "out.json").read_text())["cells"]
    found = [cell["result"]["mean"] for cell in cells if cell["method"] == "afl"]
    assert found == pytest.approx([accuracy(a, s) / 100 for a in (1.0, 5.0) for s in (0, 1)])
    assert "4 clients      Dirichlet 1    Dirichlet 5" in out
    assert max(map(len, out.splitlines())) <= 80


def test_what_is_done_is_not_done_again(command):
    first = command(*SMALL)
    assert len(command.worked) == 8
    assert command(*SMALL, "--jobs", 2) == first
    assert command.worked == []
    command(*SMALL, "--seeds", 3)
    assert len(command.worked) == 4
    command(*SMALL, "--min-size", 20)
    assert len(command.worked) == 8


def test_an_interrupted_run_goes_on(command, monkeypatch):
    fit, cells = AFLClassifier.fit, []

    def interrupted(self, *args, **kwargs):
        cells.append(self)
        if len(cells) == 3:
            raise KeyboardInterrupt
        return fit(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(AFLClassifier, "fit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            command(*SMALL)
    table = command(*SMALL)
    assert command.worked == ["afl", "local", "afl", "local"]
    assert table == command(*SMALL)


def test_other_parameters_and_other_data_are_other_cells(command, pictures):
    argv = [*pictures, "--clients", 2, "--dirichlet", 5, "--seeds", 1, "--methods", "afl,fedavg"]
    command(*argv, "--rounds", 1)
    command(*argv, "--rounds", 2)
    assert command.worked == ["fedavg"]
    images, y = _data.DATASETS["cifar100"].load("somewhere")
    images[0] += 1
    command(*argv, "--rounds", 2)
    assert command.worked == ["afl", "fedavg"]
    y[0] = 1
    command(*argv, "--rounds", 2)
    assert command.worked == ["afl", "fedavg"]


def test_a_damaged_file_is_named(command, tmp_path, capsys):
    command(*SMALL)
    file = next((tmp_path / "store").iterdir())
    file.write_text("{")
    with pytest.raises(SystemExit):
        command(*SMALL)
    assert f"{str(file)!r} is damaged; delete it" in capsys.readouterr().err
    file.unlink()
    command(*SMALL)
    assert len(command.worked) == 1


def test_published_figures_stand_beside_ours(command, pictures):
    argv = [*pictures, "--seeds", 1, "--methods", "afl,local"]
    lines = command(*argv).splitlines()
    by_label = {line.split()[0]: line.split()[1:] for line in reversed(lines) if line}
    assert by_label["AFL"][1::2] == ["56.63", "56.78", "56.66"]
    assert len(by_label["Local"]) == 3
    assert by_label["AnaPFL"] == ["80.64", "66.96", "62.63"]  # published only
    assert "FedALA                      70.63" in lines
    assert max(map(len, lines)) <= 80
    other = command(*SMALL)
    assert "paper" not in other


def test_published_gains_are_those_of_the_paper():
    published = _paper.PROTOCOLS["anapfl"].published
    for where, gain in (
        (("cifar100", 50, 0.1), 7.75),
        (("cifar100", 100, 0.1), 8.59),
        (("tiny-imagenet", 100, 0.1), 7.41),
        (("imagenet-r", 100, 0.1), 16.71),
    ):
        difference = published[*where, "anapfl"] - published[*where, "fedala"]
        assert difference == pytest.approx(gain)


def test_the_picture_shows_the_table(command, pictures, tmp_path, monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    drawn = []
    monkeypatch.setattr(pyplot, "close", drawn.append)
    argv = [*pictures, "--clients", "20,50", "--seeds", 2, "--methods", "afl,local"]
    out = command(*argv, "--plot", tmp_path / "table.png")
    assert (tmp_path / "table.png").read_bytes()[1:4] == b"PNG"
    (figure,) = drawn
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["AFL", "Local", "AFL, paper"]
    for ax, clients in zip(figure.axes, (20, 50), strict=True):
        block = out[out.index(f"{clients} clients") :].splitlines()
        for bars, label in zip(ax.containers, ("AFL", "Local"), strict=True):
            line = next(line for line in block if line.startswith(label))
            means = [f"{mean:.2f} ±" for mean in bars[0].get_ydata()]
            assert re.findall(r"[\d.]+ ±", line) == means


@pytest.mark.parametrize(("protocol", "n_clients"), [("anapfl", "50"), ("fedcp", "20")])
def test_digits_go_to_as_many_clients_as_they_can(command, protocol, n_clients):
    out = command("--protocol", protocol, "--seeds", 1, "--methods", "afl", "--dirichlet", 1)
    assert f"{n_clients} clients" in out
    assert "100 clients" not in out
