# SPDX-License-Identifier: MIT
"""Loads beside a measurement, each with the rate of its work: memory, graphics, GPU."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from .program import LatencyError, find


@dataclass(frozen=True)
class Load:
    """A program that works until SIGTERM, or is started again until then."""

    name: str
    unit: str
    command: list[str]
    #: finds the rates in what it printed, last ones last
    pattern: str
    #: what has to be on its output before it counts as started
    ready: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    #: ends by itself: is started again, and the rates' mean counts
    repeats: bool = False


def l3_bytes() -> int:
    """Bytes of the last cache; 32 MiB where the machine does not say."""
    try:
        size = os.sysconf("SC_LEVEL3_CACHE_SIZE")
    except (OSError, ValueError):
        size = 0
    return size if size > 0 else 32 << 20


def memory(fits: bool) -> Load:
    """Random data of a quarter of the L3, or of four times as much as it."""
    most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4
    size = l3_bytes() // 4 if fits else min(4 * l3_bytes(), most)
    command = [find("rtxg-latency-load"), str(size)]
    # the kernel gives it each page before that, which is none of the bus
    return Load("L3" if fits else "above L3", "MB/s", command, r"(\d+) MB/s", ready="filled")


def gpu() -> Load | str:
    """CUDA, or OpenCL, whichever works here; or why there is none."""
    program = find("rtxg-latency-load")
    why = []
    for api, name in (("cuda", "CUDA"), ("opencl", "OpenCL")):
        with subprocess.Popen(
            [program, api], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as trial:
            assert trial.stdout and trial.stderr
            first = trial.stdout.readline()  # its device's name, or nothing
            trial.terminate()
            if first.startswith(name):
                return Load(name, "launches/s", [program, api], r"(\d+) launches/s", ready=name)
            why.append(trial.stderr.read().strip())
    return f"no GPU load: {'; '.join(why)}"


#: an X server in memory and its client, on the same CPUs; the client may be first
XVFB = """
trap 'trap "" TERM; kill 0' TERM
n=$((100 + $$ % 900))
Xvfb ":$n" -screen 0 1920x1080x24 -nolisten tcp >/dev/null 2>&1 &
export DISPLAY=":$n"
i=0
until "$@"; do
  i=$((i + 1))
  [ "$i" -lt 100 ] || exit 1
  sleep 0.1
done
while "$@"; do :; done
"""


def graphics() -> Load | str:
    """OSADL's x11perf on the display of DISPLAY, or on an Xvfb of its own; or why there is none."""
    # a number of rectangles spares the 12 s in which x11perf finds one
    client = ["x11perf", "-sync", "-rect500", "-repeat", "1", "-reps", "5000"]
    if not shutil.which("x11perf"):
        return "no graphics load: x11perf is missing; apt-get install x11-apps"
    if not os.environ.get("DISPLAY"):
        if not shutil.which("Xvfb"):
            return "no graphics load: DISPLAY names no X server, and Xvfb is missing; apt-get install xvfb"
        client = ["sh", "-c", XVFB, "sh", *client]
    return Load("graphics", "rects/s", client, r"\(\s*([\d.]+)/sec\)", repeats=True)


#: a command again and again, which is told to end with its shell; twice, for one that the shell has
#: just forked still has the shell's handler, and loses the signal; what is there yet is then killed
AGAIN = """
trap 'trap "" TERM; kill 0; sleep 0.3; kill 0; sleep 0.3; kill -KILL 0' TERM
while :; do "$@" & wait $! || exit; done
"""


def group_lives(leader: int) -> bool:
    """Is there a process of that group that is not a zombie?"""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            continue
        fields = stat.rpartition(")")[2].split()
        if int(fields[2]) == leader and fields[0] != "Z":
            return True
    return False


class Running:
    """A load that works, on these CPUs; ends with the block."""

    def __init__(self, load: Load, cpus: str) -> None:
        self.load = load
        self.cpus = cpus
        self.out: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process: subprocess.Popen[str] | None = None
        self.rate: float | None = None

    def _command(self) -> list[str]:
        # A run that is killed cannot stop its loads: the kernel tells them.
        place = ["setpriv", "--pdeathsig", "TERM", "taskset", "-c", self.cpus]
        if self.load.repeats:
            return [*place, "sh", "-c", AGAIN, "sh", *self.load.command]
        return [*place, *self.load.command]

    def said(self) -> str:
        """What it has printed so far."""
        self.out.seek(0)
        return self.out.read()

    def __enter__(self) -> Running:
        self.process = subprocess.Popen(
            self._command(),
            stdin=subprocess.DEVNULL,
            stdout=self.out,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | dict(self.load.environment),
            start_new_session=True,
        )
        try:
            self._wait(lambda: self.load.ready in self.said(), 120, "did not begin")
        except KeyboardInterrupt:
            self._stop()
            raise
        return self

    def _wait(self, done: Callable[[], bool], limit_s: float, problem: str) -> None:
        assert self.process
        end = time.monotonic() + limit_s
        while not done():
            if self.process.poll() is not None or time.monotonic() > end:
                text = self.said().strip()[-300:]
                self._stop()
                raise LatencyError(f"the load {self.load.name} {problem}: {text}")
            time.sleep(0.05)

    def _stop(self) -> None:
        assert self.process
        try:
            os.killpg(self.process.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        # an X server ends after the shell that started it, and would be a load of the next row
        end = time.monotonic() + 10
        while group_lives(self.process.pid):
            if time.monotonic() > end:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.process.pid, signal.SIGKILL)
            time.sleep(0.02)

    def __exit__(self, kind: object, *_: object) -> None:
        assert self.process
        died = self.process.poll() is not None
        if self.load.repeats and not died and kind is None:
            # a rate stands there only when a round has ended
            self._wait(
                lambda: re.search(self.load.pattern, self.said()) is not None,
                120,
                "printed no rate",
            )
        self._stop()
        rates = [float(r) for r in re.findall(self.load.pattern, self.said())]
        if rates:
            self.rate = sum(rates) / len(rates)
        text = self.said().strip()[-300:]
        self.out.close()
        if died and kind is None:
            raise LatencyError(f"the load {self.load.name} ended by itself: {text}")
