# SPDX-License-Identifier: MIT
"""What the Python package imports is what its metadata say that it needs.

tests/packaging/test_wheel.py lends an installed wheel the packages of the tests' environment, where
a need that no metadata name would not be missed.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: for users; "test" and "reference" are for those who work on the package
EXTRAS = ("cluster", "frames", "simulate")
#: compiles the core in a source tree; a wheel has it compiled
BUILDS = {"setuptools": "rtxg/core/build.py"}


def named(needs: list[str]) -> set[str]:
    """Modules of these requirements; dask[distributed] has two."""
    return {word for need in needs for word in re.findall(r"[a-z]+", need.split(">")[0])}


def imports(tree: ast.AST, always: bool = True) -> Iterator[tuple[str, bool]]:
    """First part of each absolute import, and whether it happens as soon as the module is."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name.partition(".")[0], always) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.partition(".")[0], always
        later = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Try)
        checked = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        yield from imports(node, always and not later and not checked)


def undeclared(folder: Path, project: dict) -> list[str]:
    """Imports of a package that nothing declares, or an extra alone, though all modules need it."""
    needed = named(project["dependencies"])
    extra = named([n for e in EXTRAS for n in project["optional-dependencies"][e]])
    found = []
    for path in sorted((folder / "rtxg").rglob("*.py")):
        for module, always in imports(ast.parse(path.read_text())):
            if module in sys.stdlib_module_names or module in needed | {"rtxg"}:
                continue
            if module in extra and not always:
                continue
            place = str(path.relative_to(folder))
            if BUILDS.get(module) != place:
                found.append(f"{place}: {module}")
    return found


def test_every_import_is_declared() -> None:
    """One at the top of a module by the package itself, one inside a function by an extra, too."""
    assert undeclared(ROOT / "lab", PROJECT) == []


def test_every_need_is_imported() -> None:
    """A need that nothing imports is installed for nothing."""
    used = {
        module
        for path in (ROOT / "lab/rtxg").rglob("*.py")
        for module, _ in imports(ast.parse(path.read_text()))
    }
    needs = PROJECT["dependencies"] + [
        n for e in EXTRAS for n in PROJECT["optional-dependencies"][e]
    ]
    assert {re.match(r"[a-z]+", need)[0] for need in needs} <= used


def test_a_need_that_is_left_out_is_found() -> None:
    """Each of them, and an extra's that is no longer there."""
    for gone in named(PROJECT["dependencies"]):
        rest = [n for n in PROJECT["dependencies"] if not n.startswith(gone)]
        assert undeclared(ROOT / "lab", PROJECT | {"dependencies": rest}), gone
    without = PROJECT["optional-dependencies"] | {"cluster": []}
    assert undeclared(ROOT / "lab", PROJECT | {"optional-dependencies": without})
