# SPDX-License-Identifier: MIT
"""Commands of rtxg in documents: they exist, and have the options that stand there."""

from __future__ import annotations

import functools
import re
import subprocess

import pytest
from sources import BUILD, ROOT, tracked

#: programs of their own, whose help is long in coming or stands in a subcommand of theirs
OTHERS = {"analyze", "campaign", "irq", "latency", "measure", "order", "simulate"}
COMMAND = re.compile(r"(?:^    |`)(?:sudo )?rtxg ([^`]+?)(?:`|$)", re.M)
DOCUMENTS = sorted({*tracked("*.md")} - {"CHANGELOG.md"})


@functools.cache
def said(*words: str) -> str:
    """What --help says of a command."""
    command = [BUILD / "cli/rtxg", *words, "--help"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def listed(*words: str) -> set[str]:
    """Subcommands by --help."""
    return set(re.findall(r"^  (\w+) ", said(*words).partition("Commands:\n")[2], re.M))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_in_a_document_exist(document: str) -> None:
    """A stranger types them as they stand there."""
    for found in COMMAND.finditer((ROOT / document).read_text()):
        words = found[1].partition(" -- ")[0].split()
        name = words[0].strip('",.;')
        assert name in listed() | OTHERS, found[0]
        if name in OTHERS:
            continue
        path = (name, words[1]) if len(words) > 1 and words[1] in listed(name) else (name,)
        for option in words:
            if re.fullmatch(r"--[a-z][a-z-]+", option):
                assert option in said(*path), found[0]


def test_commands_are_found() -> None:
    """In the first document that a stranger reads."""
    names = [found[1].split()[0] for found in COMMAND.finditer((ROOT / "README.md").read_text())]
    assert names.count("vgpu") >= 3 and "doctor" in names
