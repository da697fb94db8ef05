# SPDX-License-Identifier: MIT
"""Loads end with the run that started them, however that ends."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import latency

from rtxg.lateness import loads
from rtxg.lateness import table as tables

RUN = """
import time
from rtxg.lateness.loads import Load, Running

load = Load("sleeper", "turns/s", {command}, "([0-9]+)", repeats={repeats})
running = Running(load, "{cpu}")
running.__enter__()
print(running.process.pid, flush=True)
time.sleep(600)
"""


def sleeps(leader: int) -> bool:
    """Does a process that the leader started sleep already?"""
    started = Path(f"/proc/{leader}/task/{leader}/children").read_text(encoding="ascii").split()
    return any(Path(f"/proc/{p}/comm").read_text(encoding="ascii") == "sleep\n" for p in started)


SLEEPS, DEAF = ["sleep", "600"], ["sh", "-c", "trap '' TERM; exec sleep 600"]


@pytest.mark.parametrize(("repeats", "command"), [(False, SLEEPS), (True, SLEEPS), (True, DEAF)])
def test_a_load_ends_with_a_run_that_is_killed(repeats: bool, command: list[str]) -> None:
    """SIGKILL leaves no time to stop anything, and a load may lose the signal that tells it."""
    code = RUN.format(command=command, repeats=repeats, cpu=min(os.sched_getaffinity(0)))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout
        leader = int(run.stdout.readline())
        comm = Path(f"/proc/{leader}/comm")
        while comm.read_text(encoding="ascii").strip() not in ("sh", "sleep"):
            time.sleep(0.01)  # it has not been told of its parent's death before
        while command is DEAF and not sleeps(leader):
            time.sleep(0.01)
        run.kill()
    end = time.monotonic() + 60
    while loads.group_lives(leader) and time.monotonic() < end:
        time.sleep(0.05)
    assert not loads.group_lives(leader)


def test_nothing_of_a_load_is_there_after_it() -> None:
    """What a load started may end later than the load itself."""
    slow = "trap '' TERM; echo here; sleep 0.5"
    script = f'sh -c "{slow}" & while :; do sleep 1; done'
    load = loads.Load("late", "turns/s", ["sh", "-c", script], "([0-9]+)", ready="here")
    with loads.Running(load, str(min(os.sched_getaffinity(0)))) as running:
        assert running.process
        assert loads.group_lives(running.process.pid)
    assert not loads.group_lives(running.process.pid)


@pytest.mark.slow
@pytest.mark.skipif(
    not (shutil.which("x11perf") and shutil.which("Xvfb")), reason="x11perf or Xvfb is missing"
)
def test_osadls_graphics_load_prints_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """It draws on an X server of its own, and leaves nothing behind."""
    monkeypatch.delenv("DISPLAY", raising=False)
    load = loads.graphics()
    assert isinstance(load, loads.Load)
    with loads.Running(load, str(min(os.sched_getaffinity(0)))) as running:
        while not re.search(load.pattern, running.said()):
            time.sleep(0.05)
    assert running.rate
    assert running.process
    assert not loads.group_lives(running.process.pid)


def test_a_memory_load_works_when_the_measurement_begins() -> None:
    """The kernel clears its pages before that: locks and page faults would look as the bus does."""
    load = loads.memory(True)
    small = replace(load, command=[*load.command[:-1], "65536"])
    with loads.Running(small, str(min(os.sched_getaffinity(0)))) as running:
        assert running.said() == "filled\n"
    # too much to be filled by then: a load that has copied nothing has no rate
    never = replace(load, command=[*load.command[:-1], str(2 << 30)], ready="")
    with loads.Running(never, str(min(os.sched_getaffinity(0)))) as running:
        pass
    assert running.rate is None


def test_a_load_that_was_stopped_has_the_rate_of_the_time_since_then() -> None:
    """Its memory is filled before a measurement, and it stands still until that begins."""
    command = [*loads.memory(True).command[:-1], "65536"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as load:
        assert load.stdout
        assert load.stdout.readline() == "filled\n"
        began = time.monotonic()
        load.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, load.pid, os.WSTOPPED)
        time.sleep(0.5)
        stopped = time.monotonic() - began
        load.send_signal(signal.SIGCONT)
        ticks = cpu_ticks(load.pid)
        while cpu_ticks(load.pid) < ticks + 3:
            time.sleep(0.01)
        load.terminate()
        said = load.communicate(timeout=60)[0]
        whole = time.monotonic() - began
    found = re.fullmatch(r"(\d+) MB/s in ([\d.]+) s\n", said)
    assert found, said
    assert float(found[2]) <= whole - stopped + 0.001


def cpu_ticks(pid: int) -> int:
    """Of user code."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    return int(stat.rpartition(")")[2].split()[11])


def test_a_measurement_ends_with_a_table_that_is_killed() -> None:
    """Its interrupts are where they were within a moment, not after the minutes of its row."""
    code = "from rtxg.lateness.program import measure; measure(['--user-only', '-D', '600'], 700)"
    with subprocess.Popen([sys.executable, "-c", code]) as run:
        children = Path(f"/proc/{run.pid}/task/{run.pid}/children")
        child, name = 0, ""
        while name != "rtxg-latency\n":  # it is setpriv first
            child = int((children.read_text(encoding="ascii").split() or ["0"])[0])
            comm = Path(f"/proc/{child}/comm")
            name = comm.read_text(encoding="ascii") if child and comm.exists() else ""
            assert run.poll() is None
            time.sleep(0.01)
        run.kill()
    end = time.monotonic() + 60
    while lives(child) and time.monotonic() < end:
        time.sleep(0.05)
    assert not lives(child)


def lives(pid: int) -> bool:
    """Is there such a process that is not a zombie?"""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_an_interrupt_that_does_not_exist_ends_the_table_at_once() -> None:
    """Not row by row, after minutes."""
    done = latency("table", "-D", "300s", "--irq", "no-such-device")
    assert done.returncode == 1
    assert "rtxg latency table: --irq: no interrupt is called 'no-such-device'" in done.stderr
    assert "memory none" not in done.stderr


def test_a_table_that_is_interrupted_keeps_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hours may have been measured. What is missing is named."""
    measured = iter(
        [
            {
                "threads": [
                    {
                        "policy": "other",
                        "observed": {"max_us": 50.0, "avg_us": 9.0, "p999_us": 20.0, "count": 7},
                    }
                ],
                "machine": {"cpus": 1},
                "not_done": [],
            }
        ]
    )

    def measure(_words: list[str], _limit_s: float) -> dict:
        try:
            return next(measured)
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr(tables, "measure", measure)
    monkeypatch.setattr(loads, "graphics", lambda: "none")
    monkeypatch.setattr(loads, "gpu", lambda: "none")
    cpu = min(os.sched_getaffinity(0))
    table = tables.run(cpu, 1.0, 0, 200, [], lambda _text: None)
    assert [row.max_us for row in table.rows] == [50.0]
    assert [text for text in table.left_out if "interrupted" in text] == [
        f"{name}: interrupted before it was measured"
        for name in ("memory L3", "memory above L3", "no load")
    ]
    assert table.verdict().sentences
    with pytest.raises(KeyboardInterrupt):
        tables.run(cpu, 1.0, 0, 200, [], lambda _text: None)


def test_a_load_that_is_interrupted_while_it_begins_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The program goes on without it."""
    load = loads.Load("slow", "turns/s", ["sleep", "600"], "([0-9]+)", ready="never")
    running = loads.Running(load, str(min(os.sched_getaffinity(0))))
    monkeypatch.setattr(running, "_wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        running.__enter__()
    assert running.process
    assert not loads.group_lives(running.process.pid)


def interrupted(*_: object) -> None:
    """As Ctrl-C does."""
    raise KeyboardInterrupt
