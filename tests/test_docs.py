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


def stays_put(found):
    """FedHiP's personal model stands still where FedAvg moves, the more the more uneven."""
    ours, theirs = found["moves"].values()
    return max(ours) < 1e-12 and min(theirs) > 1e-3 and theirs[0] > 0.05


def best_in_between(found):
    """The ends of the curve are the global and the local model, and its top is above both."""
    means, ends = found["curve"].mean(axis=1), list(found["ends"].values())
    return np.allclose(means[[0, -1]], ends, atol=0.01) and means.max() > max(ends) + 0.02


def noise_costs(found):
    """Less epsilon is less accuracy, and many noises are worse than one."""
    server, client = (np.mean(found["curves"][where], axis=1) for where in ("server", "client"))
    return (np.diff(client) > 0).all() and (server[:-1] > client[:-1]).all()


def alignment_needs_the_policy(found):
    """Without the policy accuracy falls, and without the alignment it rises."""
    means = {name: values.mean() for name, values in found["accuracy"].items()}
    return means["without policy"] < means["FedCP"] - 0.01 < means["without alignment"] - 0.01


CLAIMS = {
    "plot_heterogeneity_invariance.py": stays_put,
    "plot_global_to_local.py": best_in_between,
    "plot_leave_one_out.py": lambda found: found["apart"] < 0.02,
    "plot_unlearning.py": lambda found: found["apart"] < 1e-12,
    "plot_privacy.py": noise_costs,
    "plot_fedcp_ablation.py": alignment_needs_the_policy,
    "plot_fedcp_policy.py": lambda found: (found["rates"][-1] > found["rates"][0]).all(),
    "plot_cost.py": lambda found: (
        max(found["costs"][name][0] for name in found["closed_form"])
        < min(cost[0] for name, cost in found["costs"].items() if name not in found["closed_form"])
    ),
}
"""What the pictures of some examples are to show, of the names that they leave."""


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
    assert CLAIMS.get(example, lambda found: True)(namespace)
