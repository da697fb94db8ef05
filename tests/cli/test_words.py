# SPDX-License-Identifier: MIT
"""Plain words: --help and the manual pages name their subjects."""

from __future__ import annotations

import re

import pytest
from conftest import ROOT, Rtxg
from test_input import COMMANDS, SUBCOMMANDS

PRONOUNS = re.compile(
    r"\b(whoever|whomever|whom|somebody|nobody|everybody|anybody|anew|meanwhile|one's|his|her)\b",
    re.I,
)
PAGES = sorted(p.name for p in (ROOT / "man").glob("rtxg*.[15]"))


@pytest.mark.parametrize("command", [(), *[(c,) for c in COMMANDS], *SUBCOMMANDS], ids=" ".join)
def test_help_names_its_subjects(lone: Rtxg, command: tuple[str, ...]) -> None:
    """No pronoun stands for a thing or for a person."""
    assert PRONOUNS.findall(lone.ok(*command, "--help")) == []


@pytest.mark.parametrize("page", PAGES)
def test_pages_name_their_subjects(page: str) -> None:
    """The same in the manual."""
    assert PRONOUNS.findall((ROOT / "man" / page).read_text()) == []
