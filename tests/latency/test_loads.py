# SPDX-License-Identifier: MIT
"""Loads end with the run that started them, however that ends."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

RUN = """
import time
from rtxg.lateness.loads import Load, Running

load = Load("sleeper", "turns/s", ["sleep", "{sleep}"], "([0-9]+)", repeats={repeats})
running = Running(load, "{cpu}")
running.__enter__()
print(running.process.pid, flush=True)
time.sleep(600)
"""


def group_lives(leader: int) -> bool:
    """Is there a process of that group that is not a zombie?"""
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            stat = Path(f"/proc/{entry}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            continue
        fields = stat.rpartition(")")[2].split()
        if int(fields[2]) == leader and fields[0] != "Z":
            return True
    return False


@pytest.mark.parametrize("repeats", [False, True])
def test_a_load_ends_with_a_run_that_is_killed(repeats: bool) -> None:
    """SIGKILL leaves no time to stop anything."""
    code = RUN.format(sleep=600, repeats=repeats, cpu=min(os.sched_getaffinity(0)))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout
        leader = int(run.stdout.readline())
        comm = Path(f"/proc/{leader}/comm")
        while comm.read_text(encoding="ascii").strip() not in ("sh", "sleep"):
            time.sleep(0.01)  # it has not been told of its parent's death before
        run.kill()
    end = time.monotonic() + 60
    while group_lives(leader) and time.monotonic() < end:
        time.sleep(0.05)
    assert not group_lives(leader)
