# SPDX-License-Identifier: MIT
"""The daemon is killed and started again under its clients, which stay where they were."""

from __future__ import annotations

import json
import signal
import subprocess
import time

import pytest
from conftest import BUILD, Daemon, wait_for


def test_open(daemon: Daemon) -> None:
    """FailPolicy=open: without a daemon the program goes on unmanaged; with one again it is managed as before."""
    daemon.write_config("[VGPU video]\nGPUMin=30%\n")
    daemon.start()
    program = daemon.device("-v", "video", "-P", "7", "-u", "1000", "-s", "-d", "30", "-l", str(daemon.folder / "log"))
    wait_for("it works", lambda: any(t["engines"][0]["launches"] > 5 for t in daemon.tasks()))
    daemon.kill()
    lines = len((daemon.folder / "log").read_bytes().splitlines())
    # It is buffered; a few hundred launches more are a few pages of it.
    wait_for("it goes on", lambda: len((daemon.folder / "log").read_bytes().splitlines()) > lines + 300)
    daemon.start()
    task = wait_for("it is back", daemon.tasks)[0]
    assert (task["pid"], task["vgpu"], task["priority"]) == (program.pid, "video", 7)
    before = task["engines"][0]["busy_ns"]
    wait_for("it is accounted", lambda: daemon.tasks()[0]["engines"][0]["busy_ns"] > before + 10_000_000)
    # Managed again means that it waits for others again.
    other = daemon.task()
    other.launch()
    launches = daemon.tasks(pid=program.pid)[0]["engines"][0]["launches"]
    time.sleep(0.2)
    assert daemon.tasks(pid=program.pid)[0]["engines"][0]["launches"] <= launches + 1
    other.complete()
    other.close()
    daemon.connections.clear()
    daemon.healthy()
    program.kill()


def test_closed(daemon: Daemon) -> None:
    """FailPolicy=closed: without a daemon launches wait, and go on when it is back."""
    daemon.write_config("[Daemon]\nFailPolicy=closed\n")
    daemon.start()
    program = daemon.device("-u", "100", "-s", "-n", "3000", "-p", "1000")
    wait_for("it works", lambda: any(t["engines"][0]["launches"] > 5 for t in daemon.tasks()))
    daemon.kill()
    # It looks every 200 ms of use whether the daemon lives; long after that it must stand still.
    time.sleep(1.5)
    before = time.clock_gettime_ns(time.CLOCK_PROCESS_CPUTIME_ID)
    assert before >= 0 and program.poll() is None
    first = _cpu_ticks(program.pid)
    time.sleep(1.0)
    assert program.poll() is None and _cpu_ticks(program.pid) - first <= 3
    daemon.start()
    out, error = program.communicate(timeout=60)
    assert json.loads(out)["launches"] == 3000, error
    daemon.healthy()


def _cpu_ticks(pid: int) -> int:
    """Processor time of a process, in ticks of 10 ms."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def test_killed_while_one_waits(daemon: Daemon) -> None:
    """A waiter is not left asleep for ever by a daemon that was killed."""
    daemon.start()
    holder = daemon.task()
    holder.launch()
    waiter = daemon.device("-u", "10", "-n", "5")
    wait_for("it waits", lambda: any(t["engines"][0]["state"] == "waiting" for t in daemon.tasks()))
    daemon.kill()
    assert json.loads(waiter.communicate(timeout=60)[0])["launches"] == 5


def test_many_come_back(daemon: Daemon) -> None:
    """Several programs, two restarts; shares are kept by the last daemon as by the first."""
    daemon.write_config("[VGPU a]\nGPUMin=40%\n[VGPU b]\nGPUMin=60%\n")
    daemon.start()
    programs = [daemon.device("-v", v, "-u", "1000", "-s", "-d", "8") for v in "ab"]
    for _ in range(2):
        wait_for("both are there", lambda: len(daemon.tasks()) == 2)
        daemon.kill()
        daemon.start()
    wait_for("both are there", lambda: len(daemon.tasks()) == 2)
    for program in programs:
        assert program.wait(60) == 0
    history = daemon.ask("history")
    series = {s["vgpu"]: s for s in history["series"] if s["engine"] == "compute"}
    # Slots in which both were there all the time.
    full = [n for n in range(len(history["times_ns"]) - 1)
            if all(s["backlogged_ns"][n] > 0.9 * (history["times_ns"][n + 1] - history["times_ns"][n]) for s in series.values())]
    busy = {v: sum(series[v]["busy_ns"][n] for n in full) for v in "ab"}
    assert len(full) > 10
    assert busy["a"] / (busy["a"] + busy["b"]) == pytest.approx(0.4, abs=0.05)
    daemon.healthy()


def test_terminated_politely(daemon: Daemon) -> None:
    """SIGTERM ends it with status 0 and takes its socket away; a second daemon on the same socket is refused before."""
    daemon.start()
    again = subprocess.run([BUILD / "daemon/rtxgd", "--socket", daemon.socket], env=daemon.environment, capture_output=True,
                           text=True, timeout=60, check=False)
    assert (again.returncode, "another rtxgd listens" in again.stderr) == (1, True)
    assert daemon.kill(signal.SIGTERM) == 0
    assert not daemon.socket.exists()
