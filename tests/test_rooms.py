"""Imports go downwards only, heavy libraries stay in their rooms, and no module is too long."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import skfedhip

PACKAGE = Path(skfedhip.__file__).parent

ROOMS = [
    {"_version", "exceptions"},
    {"utils"},
    {"core"},
    {"protocol"},
    {"datasets", "metrics", "model_selection", "privacy"},
    {"base", "feature_extraction", "federated", "persistence"},
    {"preprocessing", "pretraining"},
    {"gradient", "analytic"},
    {"federation"},
    {"benchmark"},
    {""},  # the lobby, skfedhip itself
]
"""From the bottom to the top; a room imports from lower ones, never from one at its own height."""

HEIGHT = {room: height for height, rooms in enumerate(ROOMS) for room in rooms}

MAY_IMPORT = {
    "core": {"numpy", "scipy", "core", "utils", *sys.stdlib_module_names},
    "protocol": {"numpy", "protocol", "core", *sys.stdlib_module_names},
}
"""All that the modules of two rooms may import."""

ONLY_IN = {
    "torch": {"gradient", "feature_extraction", "pretraining"},
    "transformers": {"feature_extraction", "pretraining"},
    "flwr": {"federation"},
    "dask": {"federation"},
    "matplotlib": set(),
    "pandas": set(),
}
"""Libraries and the rooms whose modules may import them as they load."""

ONLY_IN_AT_ALL = ("torch", "transformers", "flwr", "dask")
"""Those that the other rooms may not import inside functions either, but for the benchmark, which
races against them.
"""

MAX_MODULE_LINES = 450
MAX_FUNCTION_LINES = 60


def dotted(path):
    """Module name of a file, relative to the package: "core._ridge"."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module):
    return module.split(".")[0]


MODULES = {
    dotted(path): (dotted(path), path, ast.parse(path.read_text()))
    for path in sorted(PACKAGE.rglob("*.py"))
}
"""Name, file and syntax tree of each module."""


def each_module(*, of=None):
    """Parametrize a test by the modules, or by those of some rooms."""
    chosen = [name for name in MODULES if of is None or room_of(name) in of]
    params = [pytest.param(MODULES[name], id=name or "skfedhip") for name in chosen]
    return pytest.mark.parametrize("module", params)


def imports(name, path, tree):
    """(dotted name from the root, whether it happens as the module loads) of every import."""
    package = ["skfedhip", *filter(None, name.split("."))]
    if path.name != "__init__.py":
        package = package[:-1]
    lazy = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = [*base, *([node.module] if node.module else [])]
            targets = [".".join([*base, alias.name]) for alias in node.names]
        else:
            continue
        for target in targets:
            yield target, id(node) not in lazy


def test_every_room_has_a_height():
    assert {room_of(name) for name in MODULES} <= set(HEIGHT)


@each_module()
def test_rooms_import_from_lower_rooms_only(module):
    here = room_of(module[0])
    for target, _ in imports(*module):
        if target.startswith("skfedhip."):
            name = room_of(target.removeprefix("skfedhip."))
            room = skfedhip._HOMES.get(name, name)  # a public name is in the room it comes from
            assert room == here or HEIGHT[room] < HEIGHT[here], f"{module[0]} imports {target}"


def test_the_lobby_imports_only_its_version():
    loaded = {target for target, _ in imports(*MODULES[""])}
    assert loaded == {"importlib.import_module", "skfedhip._version.__version__"}


@each_module(of={"core", "protocol"})
def test_core_and_protocol_know_little(module):
    name = module[0]
    for target, _ in imports(*module):
        if target.startswith("skfedhip."):
            target = target.removeprefix("skfedhip.")
        assert room_of(target) in MAY_IMPORT[room_of(name)], f"{name} imports {target}"


@each_module()
def test_heavy_libraries_stay_in_their_rooms(module):
    name = module[0]
    for target, at_load in imports(*module):
        library = room_of(target)
        at_all = library in ONLY_IN_AT_ALL and room_of(name) != "benchmark"
        if library in ONLY_IN and (at_load or at_all):
            assert room_of(name) in ONLY_IN[library], f"{name} imports {target}"


@each_module()
def test_modules_and_functions_are_short(module):
    name, path, tree = module
    assert len(path.read_text().splitlines()) <= MAX_MODULE_LINES, name
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            lines = body[-1].end_lineno - body[0].lineno + 1 if body else 0
            assert lines <= MAX_FUNCTION_LINES, f"{name}: {node.name} has {lines} lines"


def test_the_checks_above_see_what_they_forbid(tmp_path):
    """A module that breaks every rule, so that a reader that finds nothing would be noticed."""
    path = tmp_path / "_bad.py"
    path.write_text(
        "import torch.nn as nn\n"
        "from ..analytic import AFLClassifier\n"
        "from .. import base\n"
        "from . import _blocks\n"
        "def f():\n    import pandas\n"
        "if True:\n    from sklearn import base\n"
    )
    found = set(imports("core._bad", path, ast.parse(path.read_text())))
    assert found == {
        ("torch.nn", True),
        ("skfedhip.analytic.AFLClassifier", True),
        ("skfedhip.base", True),
        ("skfedhip.core._blocks", True),
        ("sklearn.base", True),
        ("pandas", False),
    }
    lobby_of_core = imports(
        "core", PACKAGE / "core" / "__init__.py", ast.parse("from ._a import b")
    )
    assert list(lobby_of_core) == [("skfedhip.core._a.b", True)]


# Public names.


def test_public_names_resolve():
    assert len(set(skfedhip.__all__)) == len(skfedhip.__all__)
    for name in skfedhip.__all__:
        assert getattr(skfedhip, name) is not None
    assert set(skfedhip.__all__) <= set(dir(skfedhip))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = skfedhip.nothing


def has_list(tree):
    names = {ast.unparse(t) for n in tree.body if isinstance(n, ast.Assign) for t in n.targets}
    return "__all__" in names


@pytest.mark.parametrize("name", [name for name, _, tree in MODULES.values() if has_list(tree)])
def test_every_modules_list_of_names_is_true(name):
    loaded = importlib.import_module(f"skfedhip.{name}".rstrip("."))
    assert sorted(set(loaded.__all__)) == sorted(loaded.__all__)
    for public in loaded.__all__:
        assert hasattr(loaded, public), public


def test_every_public_room_has_a_list_of_names():
    rooms = [name for name in skfedhip.__all__ if hasattr(getattr(skfedhip, name), "__path__")]
    assert rooms
    for room in rooms:
        assert getattr(skfedhip, room).__all__, room


def loaded_by(statement):
    """Top-level libraries that a fresh interpreter has loaded after a statement."""
    code = f"import sys\n{statement}\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


@pytest.mark.parametrize(
    ("statement", "forbidden"),
    [
        ("import skfedhip", {"torch", "sklearn", "scipy", "numpy", "joblib", "pandas"}),
        (
            "import skfedhip.core, skfedhip.protocol",
            {"torch", "sklearn", "joblib", "pandas", "threadpoolctl"},
        ),
        (
            "from skfedhip import FedHiPClassifier",
            {"torch", "transformers", "matplotlib", "flwr", "dask"},
        ),
    ],
)
def test_an_import_loads_nothing_that_it_does_not_need(statement, forbidden):
    assert not loaded_by(statement) & forbidden
