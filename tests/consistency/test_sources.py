# SPDX-License-Identifier: MIT
"""The consistency tests can fail: their own helpers find what they look for."""

from __future__ import annotations

from pathlib import Path

import pytest
import sources


def test_a_circle_is_found_and_a_chain_is_not() -> None:
    """Two files, three files, and a tail that leads into a circle."""
    assert sources.circles({"a": {"b"}, "b": {"c"}}) == []
    assert sources.circles({"a": {"b"}, "b": {"a"}}) == [["a", "b"]]
    assert sources.circles({"x": {"a"}, "a": {"b"}, "b": {"c"}, "c": {"a"}}) == [["a", "b", "c"]]


def test_what_is_new_fails_and_what_is_true_no_longer_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of known findings neither grows nor goes stale unseen."""
    known = tmp_path / "allowed"
    known.write_text("# comment\nlength | old.c | a reason\n")
    monkeypatch.setattr(sources, "ALLOWED", known)
    sources.judge("length", {"old.c": "900 lines"})
    with pytest.raises(AssertionError, match=r"new\.c: 901 lines"):
        sources.judge("length", {"old.c": "900 lines", "new.c": "901 lines"})
    with pytest.raises(AssertionError, match=r"old\.c: true no longer"):
        sources.judge("length", {})
    known.write_text("length | old.c |\n")
    with pytest.raises(AssertionError, match="reason"):
        sources.judge("length", {})


def test_symbols_are_those_of_the_present_build() -> None:
    """main of the command line is there, and asks for what another file defines."""
    found = sources.symbols()
    assert "main" in found["cli/main.c"].defined
    assert "message_usage" in found["cli/main.c"].undefined
    assert "message_usage" in found["cli/message.c"].defined
