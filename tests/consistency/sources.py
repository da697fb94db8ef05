# SPDX-License-Identifier: MIT
"""The input of the consistency tests: tracked sources, and the symbols of the objects made of them.

Findings are compared with tests/consistency/allowed, one line for each that is known, with its
reason. A finding that is not there fails, and so does a line that is no longer true.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("RTXG_BUILD", ROOT / "build/release")).resolve()
ALLOWED = Path(__file__).with_name("allowed")


@functools.cache
def tracked(*patterns: str) -> tuple[str, ...]:
    """Files of the repository, also those not yet committed; without git, all that match."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "--", *patterns]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        found = (p.relative_to(ROOT) for pattern in patterns for p in ROOT.rglob(pattern))
        return tuple(sorted(str(p) for p in found if p.parts[0] != "build"))
    return tuple(sorted(n for n in set(done.stdout.split("\n")) if n and (ROOT / n).is_file()))


def in_folders(folders: Iterable[str], *endings: str) -> list[str]:
    """Tracked files with such an ending under these folders."""
    return [n for n in tracked(*(f"*{e}" for e in endings)) if n.startswith(tuple(folders))]


@functools.cache
def text(name: str) -> str:
    """A file."""
    return (ROOT / name).read_text(errors="replace")


@functools.cache
def code(name: str) -> str:
    """A C file without comments; line numbers are kept, strings too."""
    pattern = r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"'

    def blank(match: re.Match[str]) -> str:
        return match[0] if match[0].startswith('"') else "\n" * match[0].count("\n")

    return re.sub(pattern, blank, text(name), flags=re.DOTALL)


def without_strings(name: str) -> str:
    """A C file without comments and strings."""
    return re.sub(r'"(?:\\.|[^"\\\n])*"', '""', code(name))


@dataclass
class Symbols:
    """Global symbols of one source file, over all programs that it is compiled for."""

    defined: set[str] = field(default_factory=set)
    undefined: set[str] = field(default_factory=set)


@functools.cache
def symbols() -> dict[str, Symbols]:
    """By source file, of the objects that the present build makes."""
    commands = BUILD / "compile_commands.json"
    if not commands.exists():
        pytest.fail(f"{commands} does not exist; run tools/build")
    objects: dict[str, str] = {}
    for entry in json.loads(commands.read_text()):
        folder = Path(entry["directory"])
        source = (folder / entry["file"]).resolve()
        output = folder / entry["output"]
        if source.is_relative_to(ROOT) and output.exists():
            objects[str(output)] = str(source.relative_to(ROOT))
    found: dict[str, Symbols] = {}
    done = subprocess.run(
        ["nm", "-A", "-g", "-P", *objects], capture_output=True, text=True, check=True
    )
    for line in done.stdout.splitlines():
        path, rest = line.split(": ", 1)
        name, kind, *_ = rest.split()
        entry = found.setdefault(objects[path], Symbols())
        if kind in "UwV":
            entry.undefined.add(name)
        else:
            entry.defined.add(name)
    return found


def allowed(check: str) -> dict[str, str]:
    """Known findings of a check, with their reasons."""
    known = {}
    for number, line in enumerate(ALLOWED.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = [part.strip() for part in line.split("|")]
        assert len(parts) == 3, f"{ALLOWED}:{number}: 'check | finding | reason' is accepted"
        assert all(parts), f"{ALLOWED}:{number}: each of check, finding and reason is needed"
        if parts[0] == check:
            known[parts[1]] = parts[2]
    return known


def judge(check: str, findings: dict[str, str]) -> None:
    """Compare findings (each with its explanation) with those that are known."""
    known = allowed(check)
    new = [f"{what}: {why}" for what, why in sorted(findings.items()) if what not in known]
    old = [what for what in known if what not in findings]
    said = [*new, *(f"{what}: true no longer: remove it from {ALLOWED.name}" for what in old)]
    assert not said, f"{check}:\n  " + "\n  ".join(said)


def circles(uses: dict[str, set[str]]) -> list[list[str]]:
    """Groups of more than one file that reach each other (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(uses.get(node, set())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = []
            while True:
                group.append(stack.pop())
                if group[-1] == node:
                    break
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(uses):
        if node not in index:
            visit(node)
    return found
