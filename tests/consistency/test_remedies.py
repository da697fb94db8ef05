# SPDX-License-Identifier: MIT
"""Remedies in messages name commands that exist."""

from __future__ import annotations

import functools
import re
import subprocess

from sources import BUILD, ROOT, code, in_folders, judge, tracked

FOLDERS = ("cli/", "daemon/", "lib/", "layers/", "levers/", "nvidia/", "kmod/", "core/", "include/", "demo/", "latency/")


@functools.cache
def table() -> dict[str, set[str]]:
    """Commands of rtxg by its own --help, with their subcommands."""

    def listed(*words: str) -> set[str]:
        command = [BUILD / "cli/rtxg", *words, "--help"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        part = said.partition("Commands:\n")[2].partition("\n\n")[0]
        return set(re.findall(r"^  (\w+) ", part, re.M))

    return {name: listed(name) for name in listed()}


def external() -> set[str]:
    """Programs rtxg-NAME that the project installs."""
    pages = {name.split("/")[-1] for name in tracked("man/rtxg-*.[18]")}
    return {page.removeprefix("rtxg-").rsplit(".", 1)[0] for page in pages} | {"help"}


def strings(name: str) -> list[tuple[int, str]]:
    """The C strings of a file with their lines; adjacent ones are one."""
    pattern = r'"(?:\\.|[^"\\\n])*"(?:\s*"(?:\\.|[^"\\\n])*")*'
    found = []
    for match in re.finditer(pattern, code(name)):
        parts = re.findall(r'"((?:\\.|[^"\\\n])*)"', match[0])
        found.append((code(name).count("\n", 0, match.start()) + 1, "".join(parts)))
    return found


def test_the_table_has_the_commands() -> None:
    """Otherwise the other test would find nothing wrong."""
    assert {"create", "ls", "set", "rm"} == table()["vgpu"]
    assert {"run", "top", "doctor"} <= set(table())


def test_remedies_name_commands_that_exist() -> None:
    """'rtxg WORD WORD' in quotes or backticks, or after a colon or at the start of a message."""
    findings = {}
    pattern = r"(?:['`]|^|[:;>] |\\n +|\bor )rtxg ([a-z]+)\b(?![:=])(?: ([a-z]+)\b)?"
    for name in in_folders(FOLDERS, ".c", ".h"):
        for line, string in strings(name):
            for first, second in re.findall(pattern, string):
                if first in ("run", "help") or (first in external() and not table().get(first)):
                    continue
                if first not in table():
                    findings[f"{name}: rtxg {first}"] = f"line {line}: there is no such command"
                elif table()[first] and second and second not in table()[first]:
                    accepted = ", ".join(sorted(table()[first]))
                    findings[f"{name}: rtxg {first} {second}"] = f"line {line}: {accepted} exist"
    judge("remedies", findings)


def test_pages_and_documents_name_commands_that_exist() -> None:
    """`rtxg WORD WORD` in backticks in documents."""
    findings = {}
    for name in tracked("*.md", "man/*.[1-8]"):
        body = (ROOT / name).read_text().replace("\\-", "-")
        for match in re.finditer(
            r"(?:`|^ {4}|\$ )rtxg ([a-z]+)\b(?![:=])(?: ([a-z]+)\b)?", body, re.M
        ):
            first, second = match[1], match[2]
            line = body.count("\n", 0, match.start()) + 1
            if first not in table() and first not in external():
                findings[f"{name}: rtxg {first}"] = f"line {line}: there is no such command"
            elif table().get(first) and second and second not in table()[first]:
                findings[f"{name}: rtxg {first} {second}"] = f"line {line}: no such command"
    judge("documents", findings)
