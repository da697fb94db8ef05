# SPDX-License-Identifier: MIT
"""Priority inversions of a simulation, in the words of ``rtxg-irq -i``."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rtxg import inversions

TOP = Path(__file__).resolve().parents[2]


def test_a_summary_counts_as_the_live_meter_does() -> None:
    found = inversions.summary([1, 4999, 5000, 16_000_000])
    assert found["count"] == 4 and found["below_5us"] == 2
    assert found["sum_ns"] == 1 + 4999 + 5000 + 16_000_000 and found["longest_ns"] == 16_000_000
    slots = found["slots"]
    assert isinstance(slots, list) and sum(slots) == 4
    assert slots[0] == 1 and slots[12] == 2 and slots[23] == 1


def test_the_words_and_limits_are_those_of_the_live_meter() -> None:
    header = (TOP / "bpf/inversions.h").read_text()
    source = (TOP / "bpf/inversions_run.c").read_text()
    assert int(re.search(r"INV_SLOTS\s+(\d+)", header)[1]) == inversions.SLOTS
    assert int(re.search(r"INV_SHORT\s+(\d+)", header)[1]) == inversions.SHORT_NS
    for word in (*inversions.summary([]), *inversions.KINDS, *inversions.told({}, 1.0, {})):
        assert f'"{word}"' in source, word


def test_time_counts_only_while_a_piece_wrongs() -> None:
    meter, right, wrong = inversions.Meter(), inversions.Piece("a", "waits", False), inversions.Piece("a", "waits", True)
    meter.look(10, {1: right})
    meter.look(20, {1: wrong, 2: right})
    meter.look(35, {1: right, 2: right})
    meter.look(40, {1: wrong})
    meter.look(42, {})
    assert meter.found == {("a", "waits"): [17]}


@pytest.mark.parametrize(("interrupts", "kinds"), [("slih", {"bottom_halves"}), ("klmirqd", set()), ("thread-low", {"waits"})])
def test_a_simulation_tells_who_wrongs(interrupts: str, kinds: set[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rtxg.commands.simulate", "lab/examples/klmirqd-section-vi.toml", "--json",
         "--length", "60ms", "--interrupts", interrupts],
        cwd=TOP, capture_output=True, text=True, check=False,
    )
    if done.returncode not in (0, 2):
        pytest.fail(done.stderr)
    meter = json.loads(done.stdout)["meter"]
    assert meter["source"] == "simulation" and meter["seconds"] == 0.06
    # longer than a top half and a hand-over
    found = {kind for owner in meter["owners"] for kind in inversions.KINDS if owner[kind]["longest_ns"] > 20_000}
    assert found == kinds
