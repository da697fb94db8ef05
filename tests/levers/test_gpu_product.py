# SPDX-License-Identifier: MIT
"""tests/gpu/product.py without a GPU: what is read off the switch log, and the limits of a case."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "gpu"))

import harness  # noqa: E402
import run  # noqa: E402
from cases import burst, churn  # noqa: E402
from product import Programs, Timeline, idle_while_wanted, overlap, windows_right  # noqa: E402

MS = 1_000_000


def stay(pid: int, begin_ms: float, end_ms: float) -> dict[str, object]:
    """An event of the daemon's timeline."""
    return act("stay", pid, begin_ms, end_ms)


def act(kind: str, pid: int, begin_ms: float, end_ms: float) -> dict[str, object]:
    """The same of another kind."""
    times = {"start_ns": int(begin_ms * MS), "end_ns": int(end_ms * MS)}
    return {"kind": kind, "gpu": "nvidia0", "pid": pid} | times


def test_a_stop_lasts_until_the_resume_or_the_end_of_the_process() -> None:
    """A second stop of a stopped process is the same stop; an open one lasts to the last event."""
    line = Timeline.of(
        [
            act("stop", 1, 1, 2),
            act("stop", 1, 3, 4),
            act("resume", 1, 10, 11),
            act("stop", 2, 5, 6),
            act("went", 2, 8, 8),
            act("stop", 3, 12, 13),
            stay(4, 14, 20),
            {**stay(4, 0, 99), "gpu": "nvidia1"},
        ]
    )
    assert line.stopped == {1: [(2 * MS, 10 * MS)], 2: [(6 * MS, 8 * MS)], 3: [(13 * MS, 20 * MS)]}
    assert line.acts[1] == {"stop": 2, "resume": 1}
    assert (line.begin, line.end) == (1 * MS, 20 * MS)


def test_idle_is_what_a_stopped_program_could_have_used() -> None:
    """The log says busy for as long as a context stays; the programs know better."""
    line = Timeline.of(
        [
            stay(1, 0, 50),
            stay(2, 50.2, 100),
            act("stop", 2, 0, 0),
            act("resume", 2, 50, 50.1),
        ]
    )
    works = {1: [(0, 30 * MS)], 2: [(10 * MS, 100 * MS)]}
    found = idle_while_wanted(line, works, 0, 100 * MS)
    # From 30 to 50 ms the first has nothing to do and the second is stopped.
    assert found["idle_percent"] == pytest.approx(20)
    assert found["percent_by_pid_on_the_engine"] == {1: pytest.approx(20)}
    # Nobody waits in vain while the stopped program has no work either.
    none = idle_while_wanted(line, {**works, 2: [(60 * MS, 100 * MS)]}, 0, 100 * MS)
    assert none["idle_percent"] == 0
    # A program that says nothing of its work is taken to work.
    assert idle_while_wanted(line, {2: works[2]}, 0, 100 * MS)["idle_percent"] == 0


def test_what_is_on_the_engine_now_is_not_idleness() -> None:
    """A stay is told when it ends, so the time after the last one that ended is not looked at."""
    line = Timeline.of([stay(1, 0, 40), act("stop", 2, 0, 0), act("resume", 2, 99, 100)])
    works = {1: [(0, 100 * MS)], 2: [(0, 100 * MS)]}
    found = idle_while_wanted(line, works, 0, 100 * MS)
    assert found["idle_percent"] == 0
    assert found["seconds"] == pytest.approx(0.04)


def test_a_switch_is_not_idleness() -> None:
    """It is told apart, up to 300 us."""
    line = Timeline.of(
        [stay(1, 0, 10), stay(1, 10.2, 20), stay(1, 21, 30), act("stop", 2, 0, 0), stay(3, 30, 30)]
    )
    works = {1: [(0, 30 * MS)], 2: [(0, 30 * MS)]}
    found = idle_while_wanted(line, works, 0, 30 * MS)
    assert found["switching_percent"] == pytest.approx(100 * 0.2 / 30)
    assert found["idle_percent"] == pytest.approx(100 * 1.0 / 30)


def test_a_time_is_covered_by_what_lies_in_it() -> None:
    """Spans before, within, around and behind it; and none at all."""
    begin = np.array([0, 5, 12, 15, 30, 50])
    end = np.array([10, 8, 14, 45, 30, 60])
    found = overlap([(40, 50), (10, 20), (2, 6)], begin, end)
    assert list(found) == [4, 1, 2, 5 + 5, 0, 0]
    assert list(overlap([], begin, end)) == [0] * 6


def test_shares_are_right_from_the_first_window_after_which_none_is_wrong() -> None:
    """A window that is right by chance between two wrong ones does not count."""
    at = np.arange(0, 6_000_000_001, 5_000_000, dtype=np.float64)
    first = np.column_stack([at, np.where(at < 2e9, at, 2e9 + (at - 2e9) * 0.6)])
    second = np.column_stack([at, np.where(at < 2e9, 0, (at - 2e9) * 0.4)])
    late = windows_right([[first], [second]], [60.0, 40.0], 0, 6_000_000_000, 1.0)
    assert late == pytest.approx(2.0, abs=0.06)
    assert windows_right([[first], [second]], [10.0, 90.0], 0, 6_000_000_000, 1.0) is None


def test_a_case_that_takes_too_long_is_ended_and_its_programs_with_it(tmp_path: Path) -> None:
    """The programs are killed by the block that started them."""
    programs = Programs(harness.Setup(tmp_path, tmp_path, tmp_path))
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"0\.2 s"), run.limit(0.2), programs:
        programs.begin(["sleep", "600"], None)
        time.sleep(600)
    assert time.monotonic() - began < 60
    assert programs.processes[0].poll() is not None


def test_programs_that_could_not_be_governed_are_counted_by_the_words_of_the_log() -> None:
    """As the lever words them, now and before."""
    lines = [
        "could not set the slice of pid 4711 (load): x, driver status 0x40 y; it is left alone",
        "rtxgd: nvidia: pid 4712 is UNMANAGED: more than 512 processes on one GPU",
        "rtxgd: nvidia: pid 4713 (load) cannot be governed: the driver refused",
        "rtxgd: nvidia: could not stop pid 4714 (load): tried again in 2 ms",
    ]
    found = [int(m.group(1)) for m in churn.LEFT_ALONE.finditer("\n".join(lines))]
    assert found == [4711, 4712, 4713]


def test_no_program_outlives_a_harness_that_is_killed(tmp_path: Path) -> None:
    """Killed with -9, so that no block comes to its end."""
    code = f"""
import sys
sys.path.insert(0, {str(ROOT / "tests" / "gpu")!r})
from pathlib import Path
from harness import Setup
from product import Programs
here = Path({str(tmp_path)!r})
p = Programs(Setup(here, here, here)).begin(["sleep", "600"], None)
print(p.pid, flush=True)
p.wait()
"""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout
    pid = int(child.stdout.readline())
    child.kill()
    child.wait(60)
    end = time.monotonic() + 60
    while Path(f"/proc/{pid}/stat").exists() and time.monotonic() < end:
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.01)
    else:
        assert not Path(f"/proc/{pid}").exists()


def test_a_burst_is_judged_by_its_worst_second() -> None:
    """A program that has not begun has done nothing, and one that has ended does no more."""
    steady = [(0.0, 0.0), (2e9, 60.0), (3e9, 80.0), (5e9, 140.0)]
    late = [(1e9, 0.0), (2e9, 70.0), (5e9, 280.0)]
    assert burst.worst_below([steady, late], 1e9, 2e9) == pytest.approx(0)
    assert burst.worst_below([steady, late], 0, 5e9) == pytest.approx(30 - 100 * 20 / 90)
    assert burst.worst_below([[], late], 1e9, 5e9) == pytest.approx(30)


def test_acts_are_counted_in_each_second() -> None:
    """From a moment on; what ended before is left out, and a second without any counts 0."""
    ends = (("stop", 9), ("stop", 10), ("resume", 10), ("stop", 12), ("came", 11))
    line = Timeline.of([act(kind, 2, at * 1000 - 5, at * 1000) for kind, at in ends])
    assert line.by_second(10_000 * MS) == {"stop": [1, 0, 1], "resume": [1], "came": [0, 1]}
    assert Timeline.of([]).by_second(0) == {}
