"""Documentation is run, and lists every public name."""

import doctest
import importlib
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest

import skfedhip

ROOT = Path(__file__).parents[1]


def public_names():
    modules = [name for name in skfedhip._MODULES if name != "analytic"]
    own = list(skfedhip._HOMES)
    for module in modules:
        room = importlib.import_module(f"skfedhip.{module}")
        for name in room.__all__:
            if name not in skfedhip._HOMES:
                inner = getattr(getattr(room, name), "__all__", None)  # of a public module
                own += (
                    [f"{module}.{name}.{each}" for each in inner] if inner else [f"{module}.{name}"]
                )
    return sorted(own)


def test_api_page_lists_every_public_name_once():
    text = (ROOT / "docs" / "api.rst").read_text()
    listed = re.findall(r"^   ([A-Za-z][\w.]*)$", text, re.MULTILINE)
    assert sorted(listed) == public_names()


def test_classifiers_are_at_the_top():
    for room in ("analytic", "gradient"):
        public = importlib.import_module(f"skfedhip.{room}").__all__
        assert {name for name in public if "Classifier" in name} <= set(skfedhip.__all__)


@pytest.mark.parametrize("page", sorted(p.name for p in (ROOT / "docs").glob("*.rst")))
def test_pages_run(page):
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    failed, _ = doctest.testfile(str(ROOT / "docs" / page), False, optionflags=flags)
    assert failed == 0


def test_readme_code_runs(capsys):
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[1]
    assert len(code.splitlines()) <= 14
    exec(code, {})
    assert 0.6 < float(capsys.readouterr().out) <= 1


@pytest.mark.parametrize("example", sorted(p.name for p in (ROOT / "examples").glob("*.py")))
def test_examples_run(example, monkeypatch, tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    pyplot = importlib.import_module("matplotlib.pyplot")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    shown = []
    monkeypatch.setattr(pyplot, "show", lambda: shown.append(pyplot.gcf()))
    namespace = {"__name__": "__main__"}
    exec(compile((ROOT / "examples" / example).read_text(), example, "exec"), namespace)
    assert shown
    assert all(figure.axes for figure in shown)
    assert not any(path.name.startswith("tmp") for path in tmp_path.iterdir())  # tidied up
    pyplot.close("all")
    if "invariance" in example:
        moves = namespace["moves"]
        assert np.max(moves["FedHiP, client 0"]) < 1e-12 < 0.05
        assert np.min(moves["average of local models"]) > 0.05
