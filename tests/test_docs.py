"""Documentation is run, and lists every public name."""

import ast
import configparser
import dataclasses
import doctest
import importlib
import inspect
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest

import skfedhip
from skfedhip.protocol import FederatedMethod

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


def public(name):
    """The object of a public name, and its own public members by dotted name."""
    obj = skfedhip
    for part in name.split("."):
        obj = getattr(obj, part)
    members = inspect.getmembers(obj) if inspect.isclass(obj) else []
    own = {f"{name}.{each}": member for each, member in members if not each.startswith("_")}
    return obj, {each: member for each, member in own.items() if is_ours(member)}


def is_ours(member):
    function = member.fget if isinstance(member, property) else inspect.unwrap(member)
    return str(getattr(function, "__module__", "")).startswith("skfedhip")


def not_asked_of(name, obj, member):
    """Codes of numpydoc that a docstring may ignore."""
    made = dataclasses.is_dataclass(obj) or obj is FederatedMethod
    if name == member:
        is_warning = inspect.isclass(obj) and issubclass(obj, Exception)
        # Attributes say what a class holds whose constructor is made for it.
        return {"EX01"} if is_warning else {"PR01"} if made else set()
    if hasattr(FederatedMethod, member.rpartition(".")[2]) and obj is not FederatedMethod:
        return {"EX01", "PR01", "RT01"}  # the verbs are described once
    return {"EX01"}


@pytest.mark.parametrize("name", public_names())
def test_docstrings_are_numpydoc(name):
    validate = pytest.importorskip("numpydoc.validate").validate
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    everything, *ignored = config["numpydoc_validation"]["checks"].split(", ")
    assert everything == "all"
    obj, members = public(name)
    for member in [name, *members]:
        allowed = {*ignored, *not_asked_of(name, obj, member)}
        errors = validate(f"skfedhip.{member}")["errors"]
        assert [each for each in errors if each[0] not in allowed] == [], member


@pytest.mark.parametrize("page", sorted(p.name for p in (ROOT / "docs").glob("*.rst")))
def test_pages_run(page):
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    failed, _ = doctest.testfile(str(ROOT / "docs" / page), False, optionflags=flags)
    assert failed == 0


def test_pages_name_code_that_exists():
    named = set()
    for page in (ROOT / "docs").glob("*.rst"):
        pattern = r"``((?:skfedhip|tests|examples)/[\w/]+\.py)(?:::([\w.]+))?``"
        named |= set(re.findall(pattern, page.read_text()))
    assert len(named) > 80
    for path, name in sorted(named):
        node = ast.parse((ROOT / path).read_text())
        for part in filter(None, name.split(".")):
            inside = {each.name: each for each in node.body if hasattr(each, "name")}
            assert part in inside, f"{path}::{name}"
            node = inside[part]


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
    if "ablation" in example:
        accuracy = namespace["accuracy"]
        assert accuracy["without policy"].mean() < accuracy["FedCP"].mean() - 0.01
        assert accuracy["without alignment"].mean() > accuracy["FedCP"].mean()
