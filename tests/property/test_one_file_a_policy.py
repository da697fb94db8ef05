# SPDX-License-Identifier: MIT
"""A GPU policy is named in its file and in its line of registration, and nowhere else.

What a host, a command or a page of the manual says of policies comes from the core's table. So a new policy is one file.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
POLICIES = re.findall(r"^\tPOLICY\(([A-Z]+), ([a-z]+)\)", (ROOT / "core/launch/policies.h").read_text(), re.MULTILINE)
NAMES = [name for _, name in POLICIES]
#: Words that mean other things too: JSON's null, the task policy and the CPU's fifo, what a credit is.
ALSO_WORDS = {"null", "fifo", "credit"}
FOLDERS = ("core", "daemon", "kmod", "cli", "lib", "layers", "levers", "nvidia", "include")
PAGES = [*sorted((ROOT / "man").iterdir()), *sorted((ROOT / "docs/reference").glob("*.md"))]
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.[ch]") if not path.name.endswith(".mod.c"))


def code_of(path: Path) -> str:
    """A C file without its comments."""
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", path.read_text(), flags=re.S)


def named(text: str) -> set[str]:
    """The policies that a text names as whole words (not "band-wait", not "credit_ns")."""
    return {name for name in NAMES if re.search(rf"(?<![\w-]){name}(?![\w-])", text)}


def test_the_list_is_found() -> None:
    assert len(NAMES) >= 5 and len(SOURCES) > 100 and len(PAGES) > 50


@pytest.mark.parametrize(("word", "name"), POLICIES)
def test_a_policy_is_one_file(word: str, name: str) -> None:
    assert (ROOT / f"core/launch/policy_{name}.c").is_file()
    assert f"launch/policy_{name}.c" in (ROOT / "core/sources").read_text().splitlines()
    for path in SOURCES:
        if path.name in (f"policy_{name}.c", "policies.h"):
            continue
        code = code_of(path)
        for what in (rf"\bRTXG_GPU_{word}\b", rf"\b{name}_policy\b", rf"\bis_{name}\b"):
            assert not re.search(what, code), f"{path.relative_to(ROOT)} names the policy {name}: {what}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_text_of_a_program_names_policies(path: Path) -> None:
    if path.stem in {f"policy_{name}" for name in NAMES}:
        return
    for literal in re.findall(r'"(?:[^"\\\n]|\\.)*"', code_of(path)):
        found = named(literal)
        assert len(found) < 2 and found <= ALSO_WORDS, f"{path.relative_to(ROOT)}: {literal} names {sorted(found)}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_no_reference_page_lists_policies(path: Path) -> None:
    if path.is_file():
        for line in path.read_text().splitlines():
            assert len(found := named(line)) < 3 and found <= ALSO_WORDS, f"{path.name}: {line}"
