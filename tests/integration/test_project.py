"""The project itself: public names, direction of imports, documents that run, examples that run."""

from __future__ import annotations

import ast
import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import fedvi
from documents import run_blocks

ROOT = Path(__file__).parents[2]


SOURCE = ROOT / "src" / "fedvi"


MODULES = sorted(module.name for module in pkgutil.walk_packages(fedvi.__path__, "fedvi."))


PACKAGES = [
    importlib.import_module(".".join(["fedvi", *stub.parent.relative_to(SOURCE).parts]))
    for stub in sorted(SOURCE.rglob("__init__.pyi"))
]


LAYERS = [
    {
        "checks",
        "compiling",
        "config",
        "console",
        "errors",
        "files",
        "lazy",
        "logs",
        "numerics",
        "pytree",
        "sqlite",
        "web",
    },
    {"families"},
    {"models"},
    {"privacy"},
    {"tables"},
    {"inference"},
    {"datasets"},
    {"simulation", "federation"},
    {"fitting", "sklearn"},
    {"audit"},
    {"experiments"},
    {"reports"},
    {"federation.demo"},
    {"cli", "__main__"},
]
"""Lowest first: a module may import from its own layer and from those below."""


def layer_of(module: str) -> int:
    parts = module.split(".")[1:]
    names = {parts[0], ".".join(parts[:2])}
    return max(index for index, layer in enumerate(LAYERS) if names & layer)


def imports_of(path: Path) -> set[str]:
    """Return the fedvi modules that a file imports, those for type checkers included."""
    tree = ast.parse(path.read_text())
    names = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    return {name for name in names if name.startswith("fedvi.")}


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_downwards(path: Path) -> None:
    parts = ["fedvi", *path.relative_to(SOURCE).with_suffix("").parts]
    if parts[-1] == "__init__" and len(parts) == 2:
        return  # the package itself may import everything
    own = layer_of(".".join(parts))
    assert all(layer_of(name) <= own for name in imports_of(path))


def test_public_names_are_documented_and_complete() -> None:
    for package in PACKAGES:
        for name in vars(package)["__all__"]:
            assert getattr(package, name).__doc__, name
        assert set(vars(package)["__all__"]) <= set(dir(package))
        with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
            _ = getattr(package, "nonsense")  # noqa: B009
    assert len(vars(fedvi)["__all__"]) <= 16


@pytest.mark.parametrize("package", PACKAGES, ids=lambda each: each.__name__)
def test_no_module_takes_the_place_of_a_name_that_is_imported_late(package: ModuleType) -> None:
    """Importing `package.name` would put the module where the name belongs."""
    modules = {each.name for each in pkgutil.iter_modules(package.__path__)}
    assert not modules & set(vars(package)["__all__"])


@pytest.mark.parametrize("module", MODULES)
def test_docstring_examples_are_true(module: str) -> None:
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    assert doctest.testmod(importlib.import_module(module), optionflags=flags).failed == 0


def test_the_readme_runs_and_prints_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_blocks(ROOT / "README.md", tmp_path, monkeypatch)


DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_documents_name_files_and_headings_that_exist(document: Path) -> None:
    text = document.read_text()
    for place, heading in re.findall(r"\]\((?!http)([^)#\s]*)#?([^)\s]*)\)", text):
        target = document.parent / place if place else document
        assert target.exists(), place
        titles = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE) if heading else []
        slugs = [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]
        assert not heading or heading in slugs, f"{place}#{heading}"
    if document.name != "CHANGELOG.md":  # which speaks of the past
        for name in re.findall(r"`([a-z_]+(?:/[a-z_]+)+\.py)`", text):
            assert any((folder / name).exists() for folder in (ROOT, SOURCE, SOURCE.parent)), name


def test_importing_fedvi_needs_no_plotting_or_accounting() -> None:
    code = (
        "import fedvi, sys; print([name for name in ('matplotlib', 'dp_accounting', 'pandas') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_project_names_no_machine() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    texts = [ROOT / name for name in tracked if Path(name).suffix in {".py", ".md", ".toml", ""} and name != "LICENSE"]
    for path in texts:
        if path.is_file() and path != Path(__file__):
            assert not re.search(r"(^|[\s\"'(])/(home|root|tmp|work|Users)/", path.read_text(), re.MULTILINE), path


def test_jax_comes_through_one_door() -> None:
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        imported = {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
        imported |= {str(node.module) for node in tree.body if isinstance(node, ast.ImportFrom)}
        assert not any(name.split(".")[0] == "jax" for name in imported), path


def test_a_class_that_a_user_asks_for_can_be_compiled() -> None:
    code = "import fedvi, sys; assert 'jax' not in sys.modules; from fedvi import Gaussian; import jax; "
    code += "print(jax.jit(lambda q: q.mean.sum())(Gaussian.standard(3)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "0.0\n"


def test_the_table_of_claims_names_tests_that_exist_and_every_file_of_tests() -> None:
    tests = ROOT / "tests"
    claimed = set(re.findall(r"`([a-z0-9]+(?:_[a-z0-9]+)+)`", (tests / "README.md").read_text()))
    names = {
        path: set(re.findall(r"^def test_(\w+)", path.read_text(), re.MULTILINE)) for path in tests.glob("*/test_*.py")
    }
    assert claimed - set().union(*names.values()) == set()
    assert {path.name for path, found in names.items() if not found & claimed} == set()
