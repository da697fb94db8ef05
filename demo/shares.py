# SPDX-License-Identifier: MIT
"""Runs OpenCL programs side by side under a private daemon and prints the share of the device that each program got.

Two independent measures:

- rtxg's charges: the history of the host, in slots of 100 ms;
- the programs' completed work: each program writes down the end of each job; the time of a job alone is measured first.

The demonstration (demo.py) and bench/shares use this file. May not: schedule anything.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

ROOT = Path(__file__).resolve().parents[1]

#: PoCL's "device" is a set of threads. One thread makes it a device as a GPU is: one kernel at a time runs, on one core, and the other core is left to
#: the programs' host side and to the daemon. Otherwise every program would bring as many worker threads as there are cores, and Linux would share the
#: cores among the workers under any GPU policy. The thread is not tied to a core: its last steps for a kernel (telling the
#: program) would have to share that core with the next program's kernel.
POCL = {"POCL_MAX_PTHREAD_COUNT": "1"}

#: For programs that run without rtxg beside each other: all their workers on one core, or they would have two devices.
POCL_ONE_CORE = POCL | {"POCL_AFFINITY": "1"}

#: jobs that the programs queue (AHEAD in host.h)
AHEAD = 4

#: the windows of which the worst counts, and how far apart they begin, seconds
WINDOW_S, STEP_S = 1.0, 0.1


def first_in_line() -> None:
    """In a child before it becomes the program: real-time for its CPU side, as in the paper's measurements, where that is allowed.

    A program that waits for a CPU does not ask for the GPU, and its share goes to other programs. Here a CPU plays the device. On a busy
    machine the picture would otherwise show the machine's other work.
    """
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        return
    with contextlib.suppress(OSError):
        os.nice(-15)


class DemoError(RuntimeError):
    """Something that the user should read."""


def build_dir() -> Path:
    """The build tree whose programs are run: $RTXG_BUILD, else build/release."""
    return Path(os.environ.get("RTXG_BUILD", ROOT / "build/release")).resolve()


@dataclass
class Load:
    """A program and how it is to be run."""

    name: str
    program: str  # in the build tree's demo/
    work: int  # its --work
    vgpu: str
    min_share: float  # reservation, 0..1
    start_s: float = 0.0  # after the first one
    priority: int = 1
    max_share: float | None = None
    idle: bool = False  # opens the device, then does nothing
    job_s: float = 0.0  # how long a job takes alone
    jobs: np.ndarray = field(default_factory=lambda: np.empty(0))  # when each was done, CLOCK_MONOTONIC seconds
    output: str = ""


@dataclass
class Slots:
    """The host's history of one vGPU's compute engine: borders (seconds, N+1) and what was charged in each slot (seconds, N)."""

    borders: np.ndarray
    busy: np.ndarray
    device: np.ndarray

    def between(self, begin: float, end: float) -> float:
        """Seconds charged in [begin, end]; a slot on the border counts in proportion."""
        if not len(self.busy):
            return 0.0
        total = np.concatenate([[0.0], np.cumsum(self.busy)])
        at = np.interp([begin, end], self.borders, total)
        return float(at[1] - at[0])


class Host:
    """A daemon for this measurement alone, with its socket in a temporary folder."""

    def __init__(self, gpu_policy: str, think: str | None = None) -> None:
        self.build = build_dir()
        for needed in ("cli/rtxg", "daemon/rtxgd", "layers/opencl/librtxg-opencl.so", "demo/mandelbrot", "demo/nbody"):
            if not (self.build / needed).exists():
                raise DemoError(f"{self.build / needed} is missing: run 'make' first (or set RTXG_BUILD to a build tree)")
        self.folder = Path(tempfile.mkdtemp(prefix="rtxg-"))
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("RTXG_", "OPENCL_LAYERS", "POCL_"))}
        self.environment |= POCL | {"RTXG_SOCKET": str(self.folder / "rtxgd.sock")}
        self.rtxg = str(self.build / "cli/rtxg")
        self.children: list[subprocess.Popen[Any]] = []
        self.slots: list[dict[str, Any]] = []
        log = (self.folder / "rtxgd.log").open("wb")
        self.daemon = subprocess.Popen([self.build / "daemon/rtxgd", "--socket", str(self.folder / "rtxgd.sock"), "--idle-exit", "0"], env=self.environment,
                                       stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=first_in_line)
        for _ in range(500):
            if self.command("host", "show", check=False).returncode == 0:
                break
            if self.daemon.poll() is not None:
                raise DemoError(f"rtxgd ended: {(self.folder / 'rtxgd.log').read_text()}")
            time.sleep(0.01)
        self.command("gpu", "set", "--all", "--policy", gpu_policy, *(["--think", think] if think else []))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for child in [*self.children, self.daemon]:
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
                try:
                    child.wait(5)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def command(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run `rtxg`."""
        done = subprocess.run([self.rtxg, *arguments], env=self.environment, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, check=False)
        if check and done.returncode:
            raise DemoError(f"rtxg {' '.join(arguments)}: {done.stderr.strip()}")
        return done

    def follow(self) -> None:
        """Collect the history in the background, and keep it in self.slots."""
        child = subprocess.Popen([self.rtxg, "history", "--follow", "-J"], env=self.environment, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.children.append(child)

        def read() -> None:
            assert child.stdout
            for line in child.stdout:
                slot = json.loads(line)
                if slot["engine"] == "compute":
                    self.slots.append(slot)

        threading.Thread(target=read, daemon=True).start()

    def history(self, vgpu: str) -> Slots:
        """What has been collected of a vGPU."""
        rows = sorted((s for s in self.slots if s["vgpu"] == vgpu), key=lambda s: s["time"])
        if not rows:
            return Slots(np.array([0.0, 0.0]), np.zeros(1), np.zeros(1))
        # A slot in which nothing was charged may be left out of the history: then the borders have a gap, which counts as 0.
        borders, busy, device = [rows[0]["time"]], [], []
        for row in rows:
            if row["time"] > borders[-1] + 1e-4:
                borders.append(row["time"])
                busy.append(0.0)
                device.append(0.0)
            borders.append(row["time"] + row["seconds"])
            busy.append(row["busy"])
            device.append(row["device"])
        return Slots(np.array(borders), np.array(busy), np.array(device))

    def start(self, load: Load, seconds: float) -> subprocess.Popen[str]:
        """Start a program in its vGPU."""
        log = self.folder / f"{load.name}.log"
        child = subprocess.Popen(
            [self.rtxg, "run", "-v", load.vgpu, "--fail", "closed", "--", str(self.build / "demo" / load.program), "--work", str(load.work),
             *(["--idle"] if load.idle else []), "--seconds", str(max(1, round(seconds))), "--log", str(log)],
            env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            preexec_fn=first_in_line)
        self.children.append(child)
        return child


def length_of_job(times: np.ndarray) -> float:
    """Seconds that a job takes, from when each was seen to be complete: the lower tenth of many, because only disturbances make one longer.

    But a program that was kept from running sees all the jobs that it had queued at one moment, microseconds apart. Where that makes the
    lower tenth, many jobs in a row are asked how long they took at the least: such a moment hides only a few of them.
    """
    times = times[len(times) // 5:]
    if len(times) < 2:
        raise DemoError("a program was too slow to be measured: it completed no two jobs in time; the machine is too busy")
    row = min(4 * AHEAD, len(times) - 1)
    least = float((times[row:] - times[:-row]).min()) / row
    single = float(np.quantile(np.diff(times), 0.1))
    return single if single > least / 2 else least


def alone(program: str, work: int, jobs: int = 150) -> float:
    """Seconds that a job takes when nothing else runs and no rtxg manages the job."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("RTXG_", "OPENCL_LAYERS", "POCL_"))} | POCL
    with tempfile.NamedTemporaryFile() as log:
        command = [build_dir() / "demo" / program, "--work", str(work), "--jobs", str(jobs), "--seconds", "60", "--log", log.name]
        try:
            subprocess.run(command, env=environment, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, preexec_fn=first_in_line, timeout=150)
        except subprocess.TimeoutExpired:
            raise DemoError(f"{program} --work {work} --jobs {jobs} did not end in 150 s: the machine is too busy to measure on") from None
        return length_of_job(np.atleast_1d(np.loadtxt(log.name)))


def fit_work(program: str, job_s: float) -> tuple[int, float]:
    """The --work with which a job takes about job_s alone, and how long it then takes."""
    work = 40
    took = alone(program, work, 60)
    for _ in range(2):
        work = max(1, round(work * job_s / took))
        took = alone(program, work, 100)
    return work, took


def run(gpu_policy: str, loads: Sequence[Load], seconds: float, think: str | None = None,
        tick: Callable[[float, Host], None] | None = None) -> dict[str, Slots]:
    """Run the programs for so long; fills in their jobs, and returns what the host charged each vGPU.

    tick(seconds since the start, host) is called about ten times a second.
    """
    with Host(gpu_policy, think) as host:
        for load in loads:
            extra = [] if load.max_share is None else ["--max", f"{load.max_share * 100:g}%"]
            host.command("vgpu", "create", load.vgpu, "--min", f"{load.min_share * 100:g}%", "-p", str(load.priority), *extra)
        host.follow()
        begin = time.monotonic()
        waiting = sorted(loads, key=lambda load: load.start_s)
        running: list[tuple[Load, subprocess.Popen[str]]] = []
        while (now := time.monotonic() - begin) < seconds or any(child.poll() is None for _, child in running):
            while waiting and waiting[0].start_s <= now:
                load = waiting.pop(0)
                running.append((load, host.start(load, seconds - load.start_s)))
            if now > seconds + 30:  # a loaded machine takes seconds to start a program
                raise DemoError("a program did not end in time: " + ", ".join(load.name for load, c in running if c.poll() is None))
            if tick:
                tick(now, host)
            time.sleep(0.1)
        for load, child in running:
            _, load.output = child.communicate()
            if child.returncode:
                raise DemoError(f"{load.name} ended with status {child.returncode}: {load.output.strip()}")
            load.jobs = np.atleast_1d(np.loadtxt(host.folder / f"{load.name}.log"))
        time.sleep(0.3)  # the last slots
        slots = {load.vgpu: host.history(load.vgpu) for load in loads}
    measure_again(loads)
    return slots


def measure_again(loads: Sequence[Load]) -> None:
    """Shorten each load's job_s to what a job takes alone now, if that is less.

    A machine that was busy while jobs were measured made them look long, and a busy time is longer than the measurement. The
    least of two measurements that lie a run apart is nearer to the truth.
    """
    now: dict[tuple[str, int], float] = {}
    for load in loads:
        kind = (load.program, load.work)
        if load.job_s and not load.idle:
            if kind not in now:
                now[kind] = alone(load.program, load.work, 100)
            load.job_s = min(load.job_s, now[kind])


def contended(loads: Sequence[Load]) -> tuple[float, float]:
    """From when to when all of the programs (that are not idle) kept completing jobs."""
    active = [load.jobs for load in loads if not load.idle]
    return max(float(jobs[0]) for jobs in active), min(float(jobs[-1]) for jobs in active)


def work_shares(loads: Sequence[Load], begin: float, end: float) -> list[float]:
    """Each program's part of all the work that was completed in between. A job under way at a border counts in proportion."""
    done = []
    for load in loads:
        if load.idle or len(load.jobs) < 2:
            done.append(0.0)
            continue
        count = np.interp([begin, end], load.jobs, np.arange(len(load.jobs), dtype=float))
        done.append(float(count[1] - count[0]) * load.job_s)
    total = sum(done)
    return [d / total if total else 0.0 for d in done]


def summarise(loads: Sequence[Load], slots: dict[str, Slots], expected: Sequence[float] | None = None,
              window_s: float = WINDOW_S, settle_s: float = 0.0) -> dict[str, Any]:
    """Shares over the whole contended time, and the worst window, by both measures.

    expected: what each should get; the reservations if not given. settle_s: how much of the beginning is left out. Errors are in points
    (percent of the device's time).
    """
    begin, end = contended(loads)
    begin += settle_s
    targets = list(expected) if expected is not None else [load.min_share for load in loads]
    starts = np.arange(begin, end - window_s, STEP_S)
    if not len(starts):
        raise DemoError(f"the programs ran together for {end - begin:.2f} s only; give them more SECONDS")
    work = np.array([work_shares(loads, s, s + window_s) for s in starts])
    whole_work = work_shares(loads, begin, end)
    programs = []
    for i, (load, target) in enumerate(zip(loads, targets, strict=True)):
        history = slots[load.vgpu]
        used = np.array([history.between(s, s + window_s) / window_s for s in starts])
        programs.append({
            "program": load.name,
            "vgpu": load.vgpu,
            "reservation": load.min_share,
            "expected": target,
            "share": history.between(begin, end) / (end - begin),
            "worst_window_error_points": float(np.max(np.abs(used - target))) * 100,
            "share_by_work": whole_work[i],
            "worst_window_error_points_by_work": float(np.max(np.abs(work[:, i] - target))) * 100,
            "jobs": len(load.jobs),
            "job_ms_alone": load.job_s * 1e3,
        })
    return {"contended_seconds": end - begin, "left_out_seconds": settle_s, "window_seconds": window_s, "programs": programs}
