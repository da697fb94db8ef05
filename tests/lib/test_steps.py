# SPDX-License-Identifier: MIT
"""bench/gpu/nvrm_steps on a driver that is not there: each call of the set-up has its line."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("RTXG_BUILD", ROOT / "build/release")).resolve()
PROGRAM = BUILD / "tests/lib/fake_nvrm_steps"

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="the build has no cmocka")

#: what librtxg leaves out
BIND = "control 0xa06f0104"


def calls(*options: str) -> tuple[dict[str, list[str]], list[dict[str, Any]]]:
    """The calls of each phase in their order, and the phases' last lines."""
    done = subprocess.run(
        [PROGRAM, "--runs", "3", *options], capture_output=True, text=True, check=True, timeout=60
    )
    assert not done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    found: dict[str, list[str]] = {}
    for line in lines:
        if "step" in line:
            assert line["step"] == len(found.setdefault(line["phase"], []))
            assert 0 <= line["p50_us"] <= line["p90_us"]
            found[line["phase"]].append(line["call"])
    return found, [line for line in lines if "runs" in line]


def test_each_call_has_its_line() -> None:
    """Of the set-up, a second timeline, and one that needs a new group of channels."""
    found, whole = calls()
    assert [line["phase"] for line in whole] == ["init", "second", "again"]
    assert found["init"][0] == "open nvidiactl"
    assert found["second"][:2] == ["escape 0x27", "escape 0x57"]
    assert found["again"][:2] == ["escape 0x29", "alloc class 0xa06c"]
    for line in whole:
        assert line["calls"] == len(found[line["phase"]])
        assert line["in_calls_us"] <= line["p50_us"] + line["p90_us"]
        assert not line["bind"]


def test_a_bound_channel_takes_one_call_more() -> None:
    """So that a card tells what leaving it out saves."""
    without, _ = calls()
    bound, whole = calls("--bind")
    assert all(line["bind"] for line in whole)
    for phase, names in bound.items():
        assert names.count(BIND) == 1
        assert [name for name in names if name != BIND] == without[phase]


def test_a_bare_channel_takes_no_group() -> None:
    """Its own start is asked for, and each timeline takes the same calls."""
    found, whole = calls("--bare")
    assert all(line["bare"] for line in whole)
    names = [name for phase in found.values() for name in phase]
    assert "alloc class 0xa06c" not in names
    assert names.count("control 0xa06f0103") == 3
    assert found["again"] == found["second"][2:]
