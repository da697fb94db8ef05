# SPDX-License-Identifier: MIT
"""Files: no circle among those of a folder, and none too long to be read."""

from __future__ import annotations

import ast
import posixpath
import re

import pytest
from sources import circles, in_folders, judge, symbols, text, tracked, without_strings

FOLDERS = (
    "core/launch/",
    "core/slice/",
    "core/cpu/",
    "core/gate/",
    "daemon/",
    "levers/nvidia/",
    "lib/",
    "layers/opencl/",
    "layers/cuda/",
    "cli/",
    "latency/",
)

#: lines that a file may have
C_MOST = 800
PYTHON_MOST = 1000


def report(folder: str, uses: dict[str, set[str]], through: dict[tuple[str, str], str]) -> None:
    """Name each circle, and for each of its edges a symbol."""
    findings = {}
    for group in circles(uses):
        edges = [
            f"{a} -> {b} ({through[a, b]})" for a in group for b in sorted(uses[a]) if b in group
        ]
        findings[f"{folder}: {' '.join(group)}"] = "; ".join(edges)
    judge(f"circles of {folder}", findings)


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_circle_among_the_files_of_a_folder(folder: str) -> None:
    """The symbols of the objects say which file uses which."""
    inside = {s: found for s, found in symbols().items() if s.startswith(folder)}
    assert inside, f"no object is made of a file in {folder}"
    home = {}
    for source, found in inside.items():
        for name in found.defined - {"main"}:
            home[name] = source
    uses: dict[str, set[str]] = {}
    through: dict[tuple[str, str], str] = {}
    for source, found in inside.items():
        short = source.rsplit("/", 1)[-1]
        for name in sorted(found.undefined):
            other = home.get(name)
            if other and other != source:
                uses.setdefault(short, set()).add(other.rsplit("/", 1)[-1])
                through.setdefault((short, other.rsplit("/", 1)[-1]), name)
    report(folder, uses, through)


def test_no_circle_among_the_files_of_the_module() -> None:
    """By the text: Kbuild's objects need a kernel's headers."""
    defined: dict[str, str] = {}
    bodies = {}
    for name in in_folders(("kmod/",), ".c"):
        body = bodies[name] = without_strings(name)
        pattern = r"^(?!static\b)[a-z][\w \t*]*?\**\b(\w+)\((?:[^;{}()]|\([^()]*\))*\)\s*\{"
        for match in re.finditer(pattern, body, re.M):
            defined[match[1]] = name
    uses: dict[str, set[str]] = {}
    through: dict[tuple[str, str], str] = {}
    for name, body in bodies.items():
        own = set(re.findall(r"^static [^;{}=]*?\b(\w+)\(", body, re.M))
        for word in set(re.findall(r"\b\w+\b", body)) - own:
            other = defined.get(word)
            if other and other != name:
                a, b = name.removeprefix("kmod/"), other.removeprefix("kmod/")
                uses.setdefault(a, set()).add(b)
                through.setdefault((a, b), word)
    assert uses
    report("kmod/", uses, through)


def test_no_two_folders_need_each_other() -> None:
    """The headers that a file names say which folder needs which."""
    headers: dict[str, list[str]] = {}
    for name in tracked("*.h"):
        headers.setdefault(name.rsplit("/", 1)[-1], []).append(name)
    uses: dict[tuple[str, str], str] = {}
    for name in tracked("*.c", "*.h"):
        for header in re.findall(r'^#include "([^"]+)"', text(name), re.M):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(name), header))
            found = headers.get(header.rsplit("/", 1)[-1], [])
            if path not in found and len(found) == 1:
                path = found[0]
            if path in found:
                uses.setdefault((name.split("/")[0], path.split("/")[0]), f"{name}: {header}")
    assert ("latency", "bpf") in uses
    judge("folders", {f"{a} {b}": f"{why}; {uses[b, a]}" for (a, b), why in uses.items() if a < b and (b, a) in uses})


def imported(name: str) -> set[str]:
    """The modules that a file of the lab imports anywhere in it, but for types alone."""
    tree = ast.parse(text(name))
    types = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    package = name.removeprefix("lab/").split("/")[:-1]
    found = set()
    for node in ast.walk(tree):
        if node in types:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *(node.module or "").split(".")]).strip(".")
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return found


def test_no_circle_among_the_modules_of_the_lab() -> None:
    """Not by an import inside of a function either: it hides a circle, and does not end it."""
    modules = {
        name.removeprefix("lab/").removesuffix(".py").removesuffix("/__init__").replace("/", "."): name
        for name in in_folders(("lab/rtxg/",), ".py")
    }
    uses = {}
    for module, name in modules.items():
        found = imported(name) & set(modules)
        # what a package has is not the package itself
        uses[module] = {m for m in found if m != module and not any(n.startswith(m + ".") for n in found)}
    assert uses["rtxg.analysis"] >= {"rtxg.hard", "rtxg.model"}
    judge("circles of the lab", {" ".join(group): "they import each other" for group in circles(uses)})


def test_no_file_is_too_long() -> None:
    """A file has one concern; a longer one has its reason beside its name."""
    findings = {}
    for name in tracked("*.c", "*.h", "*.py", "*.S"):
        most = PYTHON_MOST if name.endswith(".py") else C_MOST
        lines = text(name).count("\n")
        if lines > most:
            findings[name] = f"{lines} lines, at most {most} are accepted"
    judge("length", findings)
