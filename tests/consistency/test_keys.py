# SPDX-License-Identifier: MIT
"""The keys that rtxgd reads from its files are those that the documents name."""

from __future__ import annotations

import re

import pytest
from sources import ROOT

SOURCE = (ROOT / "daemon/config_parse.c").read_text()
KEYS = set(re.findall(r'(?:\{ "|strcmp\(key, ")([A-Z][A-Za-z]+)"', SOURCE))


def test_keys_are_found() -> None:
    """Some of each kind: of a table, and of a comparison."""
    assert {"GPUMin", "GPUMemoryMax", "ThinkSec", "Users", "Cgroup", "IdleExitSec"} <= KEYS


@pytest.mark.parametrize("document", ["man/rtxg.conf.5", "docs/how-to/system-daemon.md"])
def test_a_document_names_every_key_and_no_other(document: str) -> None:
    """A user looks there for what a file may hold."""
    text = (ROOT / document).read_text()
    named = set(re.findall(r"\b([A-Z][A-Za-z]+)=", text))
    if document.startswith("man/"):
        # .BR GPUMin= , and without the sign where several stand in a line
        missing = {key for key in KEYS if not re.search(rf"\b{key}\b", text)}
    else:
        missing = KEYS - named
        assert named <= KEYS, named - KEYS
    assert not missing
