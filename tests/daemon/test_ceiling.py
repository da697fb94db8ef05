# SPDX-License-Identifier: MIT
"""Kernel threads of a driver at the priority of the programs that wait for them (CeilingThreads=).

They are real threads of this machine's kernel, which sleep for as long as memory lasts; the tests need root for them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import BUILD, Daemon, wait_for

#: reclaims the memory of a program that is killed for memory, and has nothing to do else
NAME = "oom_reaper"

PROGRAM = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
assert libc.prctl(15, sys.argv[1].encode(), 0, 0, 0) == 0
print("ready", flush=True)
sys.stdin.read()
"""


def _kernel_thread(name: str) -> int:
    try:
        children = Path("/proc/2/task/2/children").read_text().split()
    except OSError:
        children = []
    for pid in map(int, children):
        try:
            if Path(f"/proc/{pid}/comm").read_text().strip() == name:
                return pid
        except OSError:
            continue
    pytest.skip(f"the kernel's thread {name} is not to be seen here")


@pytest.fixture(name="thread")
def _thread() -> Iterator[int]:
    """An ordinary thread of the kernel's; as it was, afterwards."""
    thread = _kernel_thread(NAME)
    if _has(thread) != (os.SCHED_OTHER, 0):
        pytest.skip(f"{NAME} is no ordinary thread here")
    try:
        os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
    except PermissionError:
        pytest.skip("no right to set a kernel thread's priority")
    yield thread
    try:
        wait_for("it is set back", lambda: _has(thread) == (os.SCHED_OTHER, 0))
    finally:
        os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))


def _has(thread: int) -> tuple[int, int]:
    return os.sched_getscheduler(thread), os.sched_getparam(thread).sched_priority


def _start(daemon: Daemon, names: str = NAME) -> None:
    daemon.write_config(f"[Daemon]\nCeilingThreads={names}\n")
    daemon.start()


def test_raised_while_a_critical_program_is_there(daemon: Daemon, thread: int) -> None:
    """To the highest of those who are there, for as long as they are."""
    _start(daemon)
    with daemon.critical(30):
        wait_for("it is raised", lambda: _has(thread) == (os.SCHED_FIFO, 30))
        with daemon.critical(99):
            wait_for(
                "it is raised higher, below the kernel's own",
                lambda: _has(thread) == (os.SCHED_FIFO, 97),
            )
        wait_for("it is lowered", lambda: _has(thread) == (os.SCHED_FIFO, 30))
    wait_for("it is set back", lambda: _has(thread) == (os.SCHED_OTHER, 0))
    daemon.healthy()


def test_not_for_an_ordinary_program(daemon: Daemon, thread: int) -> None:
    """Nor where the configuration names no thread, or another."""
    _start(daemon, "no_such_thread")
    daemon.write_config(f"[Daemon]\nCeilingThreads={NAME}\n")
    assert daemon.ask("reload")["ok"]
    program = daemon.device("-u", "1000", "-s", "-d", "120")
    wait_for("it works", lambda: any(t["engines"][0]["launches"] > 200 for t in daemon.tasks()))
    assert _has(thread) == (os.SCHED_OTHER, 0)
    program.kill()
    daemon.write_config("[Daemon]\nCeilingThreads=\n")
    assert daemon.ask("reload")["ok"]
    with daemon.critical(30):
        before = daemon.tasks()[0]["engines"][0]["launches"]
        wait_for("it works", lambda: daemon.tasks()[0]["engines"][0]["launches"] > before + 200)
        assert _has(thread) == (os.SCHED_OTHER, 0)


def test_a_program_of_that_name_is_not_raised(daemon: Daemon, thread: int) -> None:
    """Any program may call itself as a thread of the kernel's."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, NAME],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as imposter:
        assert imposter.stdout is not None and imposter.stdout.readline() == "ready\n"
        assert Path(f"/proc/{imposter.pid}/comm").read_text().strip() == NAME
        _start(daemon)
        with daemon.critical(30):
            wait_for("the kernel's is raised", lambda: _has(thread) == (os.SCHED_FIFO, 30))
            assert _has(imposter.pid) == (os.SCHED_OTHER, 0)
        imposter.kill()


def test_no_worker_is_raised(daemon: Daemon, thread: int) -> None:
    """Even where a pattern names all: a worker runs whatever driver's work is next."""
    workers = [int(pid) for pid in Path("/proc/2/task/2/children").read_text().split()]
    workers = [pid for pid in workers if _name(pid).startswith("kworker/")]
    others = {pid: _has(pid) for pid in workers}
    _start(daemon, f"kworker/* {NAME}")
    with daemon.critical(5):
        wait_for("the other is raised", lambda: _has(thread) == (os.SCHED_FIFO, 5))
        for pid, before in others.items():
            if _name(pid).startswith("kworker/"):
                assert _has(pid) == before


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_set_back_when_the_daemon_ends(daemon: Daemon, thread: int, number: int) -> None:
    """In order, or by the guard."""
    _start(daemon)
    with daemon.critical(30):
        wait_for("it is raised", lambda: _has(thread) == (os.SCHED_FIFO, 30))
        daemon.kill(number)
        wait_for("it is set back", lambda: _has(thread) == (os.SCHED_OTHER, 0))


def test_what_another_has_set_stays(daemon: Daemon, thread: int) -> None:
    """An administrator's chrt, while it is raised."""
    _start(daemon)
    try:
        with daemon.critical(30):
            wait_for("it is raised", lambda: _has(thread) == (os.SCHED_FIFO, 30))
            os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(40))
        wait_for("the program is gone", lambda: not daemon.tasks())
        assert daemon.kill(signal.SIGTERM) == 0
        assert _has(thread) == (os.SCHED_FIFO, 40)
    finally:
        os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))


def test_what_could_not_be_raised_is_raised_later(daemon: Daemon, thread: int) -> None:
    """Nothing could set it back at first, as a link has the journal's name.

    The ceiling stays the same.
    """
    _start(daemon)
    journal = Path(f"{daemon.socket}.raised")
    journal.symlink_to("nowhere")
    with daemon.critical(30):
        wait_for("it cannot be raised", lambda: not _doctor(daemon)["ok"])
        assert _has(thread) == (os.SCHED_OTHER, 0)
        journal.unlink()
        wait_for("it is raised", lambda: _has(thread) == (os.SCHED_FIFO, 30))
        wait_for("the doctor has nothing to say", lambda: _doctor(daemon)["ok"])


def test_its_own_real_time_priority_comes_back(daemon: Daemon, thread: int) -> None:
    """As that of a driver's interrupt thread: it is never below it."""
    os.sched_setscheduler(thread, os.SCHED_RR, os.sched_param(20))
    try:
        _start(daemon)
        with daemon.critical(10) as program:
            wait_for("the daemon knows both", lambda: "(10)" in _doctor(daemon)["detail"])
            assert _has(thread) == (os.SCHED_RR, 20)
            os.sched_setscheduler(program.pid, os.SCHED_FIFO, os.sched_param(30))
            wait_for("it is raised", lambda: _has(thread) == (os.SCHED_RR, 30))
        wait_for("it is set back", lambda: _has(thread) == (os.SCHED_RR, 20))
    finally:
        os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))


def test_what_another_has_set_stays_when_the_daemon_is_killed(daemon: Daemon, thread: int) -> None:
    """The guard keeps it too, for a thread that was real-time before."""
    os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(20))
    try:
        _start(daemon)
        with daemon.critical(30):
            wait_for("it is raised", lambda: _has(thread) == (os.SCHED_FIFO, 30))
            guard = _guard(daemon)
            os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(40))
            daemon.kill(signal.SIGKILL)
            wait_for("the guard has ended", lambda: not guard.exists())
        assert _has(thread) == (os.SCHED_FIFO, 40)
    finally:
        os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))


def _guard(daemon: Daemon) -> Path:
    """In /proc."""
    (pid,) = daemon.guards()
    return Path(f"/proc/{pid}")



def test_for_a_deadline_program(daemon: Daemon, thread: int) -> None:
    """It comes before all fixed priorities, so the ceiling is the highest there is."""
    _start(daemon)
    with daemon.critical(30) as program:
        wait_for("it is raised", lambda: _has(thread) == (os.SCHED_FIFO, 30))
        done = subprocess.run(
            ["chrt", "-d", "-T", "1000000", "-P", "100000000", "-p", "0", str(program.pid)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"no right to SCHED_DEADLINE: {done.stderr}")
        wait_for("it is raised higher", lambda: _has(thread) == (os.SCHED_FIFO, 97))


def _doctor(daemon: Daemon) -> dict[str, Any]:
    (row,) = [c for c in daemon.ask("doctor")["checks"] if c["check"] == "ceilings"]
    return row


def test_the_doctor_tells(daemon: Daemon, thread: int) -> None:
    """How many are named and raised; a name that fits none is worth a word."""
    _start(daemon)
    with daemon.critical(30):
        wait_for("it is raised", lambda: _has(thread) == (os.SCHED_FIFO, 30))
        row = _doctor(daemon)
        assert row["ok"] and "1 kernel threads are named" in row["detail"] and "(30)" in row["detail"], row
    daemon.write_config("[Daemon]\nCeilingThreads=no_such_thread\n")
    assert daemon.ask("reload")["ok"]
    row = _doctor(daemon)
    assert not row["ok"], row


@pytest.mark.parametrize("names", ["x" * 32, " ".join("abcdefghi")], ids=["too long", "too many"])
def test_bad_names(daemon: Daemon, names: str) -> None:
    """The line is wrong, and said to be."""
    path = daemon.write_config(f"[Daemon]\nCeilingThreads={names}\n")
    done = subprocess.run(
        [BUILD / "daemon/rtxgd", "--check-config", "--config-root", daemon.folder / "root"],
        env=daemon.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1 and f"{path}:2: CeilingThreads=" in done.stderr, done.stderr
