# SPDX-License-Identifier: MIT
"""No message loses its value, its limit or its remedy when it is reworded.

Each refusal that the other tests of the command line provoke is provoked here again, and more. A
refusal has to repeat what was typed wrong, and to say what is accepted or what to do.
"""

from __future__ import annotations

import re

import pytest
from conftest import Rtxg
from test_input import REFUSED

#: words by which a message says what is accepted, or what to do
REMEDY = re.compile(
    r"accepted|one of:|did you mean|needs|goes with|Say |[Ss]ay |see '|which |at most|at least|"
    r"or make it|must not|passes|use |load |leave|run as root|missing \w+; say|comes first|"
    r"no program rtxg-|allow|unrecognized option|requires an argument|ask for less|left|"
    r"there is no|change it|'rtxg "
)

#: words by which a host says its limit, where no other command would help
LIMIT = re.compile(r"the limit is \d+|longer than \d+ bytes|it stays")

#: words that the style of messages does not have
DIALECT = re.compile(
    r"\b(whoever|whom|somebody|nobody|everybody|anew|meanwhile|what\?|thereof|wherein)\b", re.I
)

#: refused by a host: arguments, and what the message has to name
BY_HOST: list[tuple[list[str], list[str]]] = [
    (["vgpu", "ls", "nope"], ["nope"]),
    (["vgpu", "rm", "nope"], ["nope"]),
    (["vgpu", "rm", "default"], ["default"]),
    (["vgpu", "set", "nope", "--min", "5%"], ["nope"]),
    (["vgpu", "create", "taken"], ["taken"]),
    (["vgpu", "create", "x", "--policy", "nope"], ["nope", "fifo", "edf"]),
    (["vgpu", "create", "x", "--min", "90%"], ["90"]),
    (["vgpu", "create", "x", "--min", "10%", "--max", "5%"], ["5"]),
    (["vgpu", "create", "x" * 64], ["63"]),
    (["gpu", "set", "card", "--policy", "nope"], ["nope", "cbs"]),
    (["gpu", "set", "card", "--overrun", "nope"], ["nope", "forgive", "charge"]),
    (["pool", "rm", "nope"], ["nope"]),
    (["ps", "-v", "nope"], ["nope"]),
    (["ps", "-g", "nope"], ["nope"]),
    (["gpu", "set", "crad", "--policy", "cbs"], ["crad", "card", "--new"]),
    (["pool", "create", "p", "card", "crad"], ["crad", "card", "--new"]),
    (["vgpu", "create", "v", "-g", "crad"], ["crad", "card", "--new"]),
]


def typed_wrong(arguments: list[str], said: str) -> bool:
    """Whether the message repeats one of the words that were typed, or an option that is missing."""
    return any(word.strip("-") and word.strip("-") in said for word in arguments)


@pytest.mark.parametrize(("arguments", "status", "words"), REFUSED, ids=lambda v: str(v)[:60])
def test_a_refused_command_line_names_value_and_remedy(
    lone: Rtxg, arguments: list[str], status: int, words: list[str]
) -> None:
    """By the command line alone."""
    said = lone.refused(*arguments, status=status)
    first = said.splitlines()[0]
    assert typed_wrong(arguments, said), f"the value is not in: {first}"
    assert REMEDY.search(said), f"no remedy in: {first}"
    assert not DIALECT.search(said), first
    assert "Try 'rtxg" in said or len(first) > 40, f"too short to help: {first}"


@pytest.mark.parametrize(("arguments", "words"), BY_HOST, ids=lambda v: " ".join(v)[:60])
def test_a_refusal_by_the_host_names_value_and_remedy(
    rtxg: Rtxg, arguments: list[str], words: list[str]
) -> None:
    """Told by the command line under its own name."""
    rtxg.ok("vgpu", "create", "taken", "--min", "60%")
    rtxg.ok("gpu", "set", "--new", "card", "--policy", "cbs")
    said = rtxg.refused(*arguments, status=1)
    for word in words:
        assert word in said
    assert said.startswith(f"rtxg {arguments[0]}"), said
    assert REMEDY.search(said) or LIMIT.search(said), f"no remedy and no limit in: {said}"
    assert not DIALECT.search(said), said
    assert "crad" not in [gpu["gpu"] for gpu in rtxg.json("gpu", "ls")], "a typing error made a GPU"
