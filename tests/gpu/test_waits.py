# SPDX-License-Identifier: MIT
"""The case `waits` with programs that are not there: no part that fails, or is late, takes the
others with it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from cases import waits
from harness import Setup
from run import FAILED, MISSED, verdict

WAYS = (waits.SPINNING, "FENCE", waits.BLOCKING, "NOTIFY", waits.FORESEEN, waits.ASLEEP)


def figure(wake: float, cpu: float) -> list[dict[str, Any]]:
    """What bench/gpu/waits prints, the same of each way."""
    ways = [
        {"way": way, "kernel_us": us, "wake_us": {"p50": wake}, "cpu_us": cpu}
        for way in WAYS
        for us in (100, 1000, 5000)
    ]
    opened = {"init": 50, "when": "before CUDA", "open_us": {"p50": 4000.0}}
    return [opened, *ways]


def graph(early: int = 0, broken: int = 0, refused: int = -16) -> list[dict[str, Any]]:
    """What bench/gpu/graphs prints."""
    parts = [
        {"part": part, "how": how, "launches": 50, "early": early, "inside": 0, "waits": 50}
        for how in ("fence", "notify", "notify, foreseen")
        for part in ("behind", "node", "counted")
    ]
    return [
        *parts,
        {"part": "constant", "launches": 50, "capture_error": 0, "there_before": 49},
        {"part": "captured", "refused": [refused, refused], "ran": True},
        {"part": "beside", "captures": 20, "broken": broken, "timelines": 41},
    ]


def steps() -> list[dict[str, Any]]:
    """What bench/gpu/nvrm_steps prints."""
    return [
        line
        for phase in ("init", "second", "again")
        for line in (
            {"phase": phase, "step": 0, "call": "open nvidiactl", "p50_us": 5.0},
            {"phase": phase, "runs": 50, "p50_us": 4000.0},
        )
    ]


def program(setup: Setup, name: str, lines: list[dict[str, Any]], status: int = 0) -> None:
    """A program that prints these lines. One that knows nothing of rtxg uses less CPU with its
    waits turned.
    """
    path = setup.bin / name
    path.write_text(
        f"#!{sys.executable}\n"
        "import json, os, sys\n"
        "cpu = 10.0 if os.environ.get('RTXG_WAITS') else 1000.0\n"
        "plain = [{'part': 'plain', 'early': 0, 'cpu_us': cpu}]\n"
        "word = [{'word': 'unmapped', 'ret': -14, 'expected': -14, 'said': ''}]\n"
        f"lines = json.loads({json.dumps(json.dumps(lines))})\n"
        "lines = plain if '--plain' in sys.argv else word if '--words' in sys.argv else lines\n"
        "for line in lines: print(json.dumps(line))\n"
        f"sys.exit({status})\n",
        encoding="ascii",
    )
    path.chmod(0o755)


@pytest.fixture(name="setup")
def fixture_setup(tmp_path: Path) -> Setup:
    """The short form: neither PyTorch nor a compiler is needed."""
    setup = Setup(tmp_path, tmp_path, tmp_path, quick=True)
    setup.current = "waits"
    program(setup, "waits", figure(1.0, 1.0))
    program(setup, "graphs", graph())
    program(setup, "nvrm_steps", steps())
    return setup


def saved(setup: Setup) -> list[dict[str, Any]]:
    """The lines that a killed case would have left, too."""
    lines: list[dict[str, Any]] = json.loads(
        (setup.out / "results.json").read_text(encoding="ascii")
    )
    return lines


def test_each_part_leaves_its_lines(setup: Setup) -> None:
    """Seven comparisons and rtx_nvrm_init, from both runs of a program; words; three of its calls;
    four of graphs.
    """
    waits.case_waits(setup)
    assert len(saved(setup)) == 2 * (7 + 1) + 1 + 3 + 4
    met = {line["case"]: line["met"] for line in saved(setup)}
    assert met["CUDA graphs, program unmodified, --waits notify: CPU a launch"] is True
    assert not met[
        "figure 8, idle: NOTIFY's wake-up over CUDA's blocking event: median of three lengths of kernel"
    ]
    assert verdict(saved(setup)) == MISSED


def test_a_program_that_dies_takes_no_other_part_with_it(setup: Setup) -> None:
    """As one that is killed for its time."""
    program(setup, "waits", figure(1.0, 1.0)[:4], status=137)
    waits.case_waits(setup)
    lines = saved(setup)
    broken = [line for line in lines if "status 137" in line["detail"].get("error", "")]
    assert [line["case"] for line in broken] == [
        "words",
        "figure 8, idle",
        "figure 8, all CPUs busy",
    ]
    assert len(lines) == 3 + 3 + 4
    assert verdict(lines) == FAILED


@pytest.mark.parametrize(
    ("printed", "case"),
    [
        (graph(early=1), "waits by FENCE and NOTIFY that ended before the work"),
        (graph(broken=1), "captures broken"),
        (graph(refused=0), "signals to a stream that is captured"),
    ],
)
def test_a_wrong_result_is_an_aim_that_was_missed(
    setup: Setup, printed: list[dict[str, Any]], case: str
) -> None:
    """The program's status says so, too, and its lines count all the same."""
    program(setup, "graphs", printed, status=1)
    waits.case_waits(setup)
    missed = [line["case"] for line in saved(setup) if "graphs" in line["case"] and not line["met"]]
    assert len(missed) == (1 if case in missed[0] else 0)


def test_what_is_not_begun_in_time_is_said(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is started any more, and nothing is called missed."""
    monkeypatch.setattr(waits, "TIME_S", -1.0)
    waits.case_waits(setup)
    assert [line["detail"]["skipped"] for line in saved(setup)] == ["-1 s were over"] * 5
    assert verdict(saved(setup)) == 0


def test_a_program_that_stands_still_is_ended(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When its own time is over, so that the others have theirs."""
    (setup.bin / "waits").write_text("#!/bin/sh\nexec sleep 1000\n", encoding="ascii")
    monkeypatch.setattr(waits, "MOST_S", 1.0)
    monkeypatch.setattr(waits, "LAST_S", 0.5)
    waits.case_waits(setup)
    errors = [line["detail"].get("error", "") for line in saved(setup)]
    assert [i for i, error in enumerate(errors) if "not done in 1 s" in error] == [0, 4, 9]
    assert len(saved(setup)) == 3 + 3 + 4
