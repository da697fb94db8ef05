#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the NVIDIA lever's cases on a machine with an NVIDIA GPU, the stock driver beside rtxg, and records what was measured.

    tests/gpu/run.py [--bin DIR] [--out DIR] [--case NAME[,NAME...]] [--list]

It needs root, the driver, and in --bin (default build/gpu): rtxg-nvgov, rtxg-guardian, rtxg-nvprobe, rtxg-channels, load and
hackload. Without a GPU it says so and exits 77. Results go to OUT (default bench/results): GPU-DRIVER-DATE.json, a list of
{case, unit, stock, rtxg, aim, met, detail, command}; plots beside it. Each case is written as soon as it is done.

How shares are measured: the CUDA loads count the work that they have done (chunks of about 20 us at full speed) every 5 ms, so
a share is a share of work done, from the programs' own side, and does not rest on what the lever measures. For PyTorch, whose
iterations are too coarse for that, it is the GPU time in the driver's context-switch log; the iterations are given beside it.
The error of a window is the largest difference, over tenants and over all windows of 1 s (in steps of 50 ms), between a tenant's
share and its due, in percent points.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LOADS = ROOT / "bench" / "gpu"
SKIPPED = 77
WINDOW_NS = 1_000_000_000
STEP_NS = 50_000_000


@dataclass
class Setup:
    """What every case needs: programs, calibration, where results go."""

    bin: Path
    out: Path
    work: Path
    turns: dict[int, int] = field(default_factory=dict)  # kernel length in us -> loop turns
    results: list[dict[str, Any]] = field(default_factory=list)
    name: str = "results"
    plots: dict[str, Any] = field(default_factory=dict)

    def save(self) -> None:
        """Writes what there is so far."""
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / f"{self.name}.json").write_text(json.dumps(self.results, indent=1) + "\n", encoding="ascii")

    def record(self, case: str, unit: str, stock: Any, rtxg: Any, aim: str, met: bool | None, **detail: Any) -> None:
        """Adds one line of the results, and saves."""
        line = {
            "case": case,
            "unit": unit,
            "stock": rounded(stock),
            "rtxg": rounded(rtxg),
            "aim": aim,
            "met": None if met is None else bool(met),
            "detail": {k: rounded(v) for k, v in detail.items()},
            "command": f"make gpu CASE={self.current}",
        }
        self.results.append(line)
        self.save()
        mark = "met" if met else "-" if met is None else "NOT MET"
        print(f"    {case}: stock {line['stock']} rtxg {line['rtxg']} {unit} (aim {aim}) {mark}", flush=True)

    current: str = ""

    def program(self, name: str, built: str) -> Path:
        """A program of rtxg's: beside the others, or where it is built."""
        beside = self.bin / name
        return beside if beside.exists() else ROOT / "build" / "release" / built / name


def rounded(value: Any) -> Any:
    """Numbers as people read them: three digits after the point."""
    if isinstance(value, float | np.floating):
        return round(float(value), 3)
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, list | tuple):
        return [rounded(v) for v in value]
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    return value


class Governor:
    """The lever in its stand-alone host, for as long as the block lasts."""

    def __init__(self, setup: Setup, *options: str, probe: bool = False) -> None:
        self.setup = setup
        self.socket = str(setup.work / f"gov-{time.monotonic_ns()}.sock")
        self.log = setup.work / f"gov-{time.monotonic_ns()}.log"
        self.timeline = setup.work / f"timeline-{time.monotonic_ns()}.txt"
        self.releases = setup.work / f"releases-{time.monotonic_ns()}"
        self.options = list(options) + ([] if probe else ["--no-probe"])
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Governor:
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    self.setup.bin / "rtxg-nvgov",
                    "serve",
                    "--socket",
                    self.socket,
                    "--timeline",
                    self.timeline,
                    "--releases",
                    self.releases,
                    *self.options,
                ],
                stderr=log,
            )
        for _ in range(600):
            if b"ready" in self.log.read_bytes():
                return self
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError(f"rtxg-nvgov does not start: {self.log.read_text()}")

    def __exit__(self, *_: object) -> None:
        assert self.process
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.copy(self.log, self.setup.out / f"last-{self.setup.current}.log")

    def ctl(self, *words: str) -> str:
        """One command; what it answered."""
        done = subprocess.run(
            [self.setup.bin / "rtxg-nvgov", "ctl", "--socket", self.socket, *words],
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"rtxg-nvgov ctl {' '.join(words)}: {done.stderr}")
        return done.stdout

    def stats(self) -> dict[str, Any]:
        """Counters of the lever and its vGPUs."""
        return json.loads(self.ctl("stats"))

    def wrap(self, vgpu: int, command: list[str]) -> list[str]:
        """The command, run inside a vGPU."""
        return [str(self.setup.bin / "rtxg-nvgov"), "run", str(vgpu), "--socket", self.socket, "--", *command]


class Loads:
    """Programs that run side by side; killed at the end of the block."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.processes: list[subprocess.Popen[bytes]] = []
        self.outputs: list[Path] = []
        self.go = setup.work / f"go-{time.monotonic_ns()}"

    def __enter__(self) -> Loads:
        return self

    def __exit__(self, *_: object) -> None:
        for p in self.processes:
            if p.poll() is None:
                p.kill()
            p.wait()

    def start(
        self, command: list[str], output: Path | None, gov: Governor | None = None, vgpu: int | None = None, **more: Any
    ) -> subprocess.Popen[bytes]:
        """Starts one, inside a vGPU if gov is given."""
        if gov is not None and vgpu is not None:
            command = gov.wrap(vgpu, command)
        p = subprocess.Popen(command, **more)
        self.processes.append(p)
        if output is not None:
            self.outputs.append(output)
        return p

    def hog(
        self, kernel_us: int, seconds: float, gov: Governor | None = None, vgpu: int | None = None, forks: int = 1
    ) -> Path:
        """A program that keeps the GPU busy with kernels of that length; returns its output."""
        out = self.setup.work / f"hog-{time.monotonic_ns()}.txt"
        command = [str(self.setup.bin / "load"), "hog", str(self.setup.turns[kernel_us]), str(seconds), str(out)]
        self.start(command + ([str(forks)] if forks > 1 else []), None, gov, vgpu)
        self.outputs += [Path(f"{out}.{i}") for i in range(forks)] if forks > 1 else [out]
        return out

    def torch(
        self,
        kind: str,
        seconds: float,
        gov: Governor | None = None,
        vgpu: int | None = None,
        batch: int = 64,
        fifo: int = 0,
    ) -> Path:
        """A PyTorch load; returns its output."""
        out = self.setup.work / f"torch-{time.monotonic_ns()}.txt"
        command = [sys.executable, str(LOADS / "torch_load.py"), kind, str(seconds), str(out), str(batch)]
        if fifo and can_fifo():  # for all of its threads: they inherit it
            policy = ["--cpu-policy", "fifo", "--cpu-priority", str(fifo)]
            command = [str(self.setup.program("rtxg", "cli")), "run", "--no-layer", *policy, "--", *command]
        env = {**os.environ, "OMP_NUM_THREADS": "2", "LOAD_GO": str(self.go)}
        env["RTXG_SOCKET"] = str(self.setup.work / "none")  # the lever has its own host: rtxg run must not start another
        self.start(command, out, gov, vgpu, env=env)
        return out

    def wait_working(self, limit_s: float = 90) -> int:
        """Until every output has two lines; returns CLOCK_MONOTONIC ns."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            if all(o.exists() and o.read_bytes().count(b"\n") >= (1 if "torch" in o.name else 2) for o in self.outputs):
                self.go.touch()
                return time.monotonic_ns()
            if any(p.poll() not in (None, 0) for p in self.processes):
                raise RuntimeError("a load has failed")
            time.sleep(0.05)
        raise RuntimeError("the loads do not get going")

    def wait(self) -> None:
        """Until all have ended."""
        for p in self.processes:
            p.wait(timeout=200)


def progress(path: Path) -> np.ndarray:
    """(n, 2): time in ns, chunks of work done. A line that is still being written is left out."""
    rows = [line.split() for line in path.read_text(encoding="ascii").split("\n")[:-1]]
    return np.array([[float(r[0]), float(r[1])] for r in rows if len(r) == 2])


def work_in(tracks: list[list[np.ndarray]], begin: float, end: float) -> np.ndarray:
    """Work of each tenant (each a list of tracks) between two times."""
    return np.array(
        [
            sum(np.interp(end, t[:, 0], t[:, 1]) - np.interp(begin, t[:, 0], t[:, 1]) for t in tenant)
            for tenant in tracks
        ]
    )


def worst_window(
    tracks: list[list[np.ndarray]], due: list[float], begin: float, end: float
) -> tuple[float, list[float]]:
    """Largest error of a share (points) over windows of 1 s, and the shares over all of it (percent)."""
    worst = 0.0
    t = begin
    while t + WINDOW_NS <= end:
        w = work_in(tracks, t, t + WINDOW_NS)
        worst = max(worst, float(np.abs(w / w.sum() * 100 - np.array(due)).max()))
        t += STEP_NS
    w = work_in(tracks, begin, end)
    return worst, list(w / w.sum() * 100)


def stays(timeline: Path) -> np.ndarray:
    """(n, 4) of the driver's log: vgpu, pid, start ns, end ns."""
    rows = [line.split() for line in timeline.read_text(encoding="ascii").splitlines() if line.startswith("S ")]
    return np.array([[int(r[3]), int(r[2]), int(r[4]), int(r[5])] for r in rows if len(r) == 6], dtype=np.float64)


SAVE_NS = 130_000.0  # of a stay that was cut short: restoring and saving, no work (what the hogs' own counts say)


def log_tracks(timeline: Path, vgpus: list[int]) -> list[list[np.ndarray]]:
    """Per vGPU the cumulative GPU time, from the log; the saving at the end of long stays taken off."""
    s = stays(timeline)
    tracks = []
    for v in vgpus:
        mine = s[s[:, 0] == v]
        length = mine[:, 3] - mine[:, 2]
        work = np.where(length > 900_000, length - SAVE_NS, length)
        times = np.column_stack([mine[:, 2], mine[:, 3]]).ravel()
        total = np.cumsum(work)
        tracks.append([np.column_stack([times, np.column_stack([total - work, total]).ravel()])])
    return tracks


def percentiles(latency_us: np.ndarray) -> dict[str, float]:
    """p50, p99 and maximum."""
    return {
        "p50": float(np.percentile(latency_us, 50)),
        "p99": float(np.percentile(latency_us, 99, method="higher")),
        "max": float(latency_us.max()),
        "jobs": int(latency_us.size),
    }


def critical(
    setup: Setup, jitter_us: int, jobs: int, gov: Governor | None = None, vgpu: int | None = None, warm: bool = False
) -> tuple[dict[str, float], int, int]:
    """The 100 us kernel every 10 ms (+ jitter); latencies in us and when it ran (ns). The first 50 jobs are not counted."""
    out = setup.work / f"rt-{time.monotonic_ns()}.txt"
    command = [str(setup.bin / "load"), "rt", str(setup.turns[100]), "10000", str(jitter_us), str(jobs + 50), str(out)]
    env = dict(os.environ)
    if gov and warm:
        library = setup.bin / "librtxg-warm.so"
        env |= {"CUDA_INJECTION64_PATH": str(library), "RTXG_RELEASES": str(gov.releases)}
    subprocess.run(
        gov.wrap(vgpu, command) if gov and vgpu is not None else command, check=True, stdout=subprocess.DEVNULL, env=env
    )
    rows = np.loadtxt(out, ndmin=2)[50:]
    kind = ("warm" if warm else "rtxg") if gov else "stock"
    shutil.copy(out, setup.out / f"raw-{setup.current}-{kind}-{jitter_us}.txt")
    return percentiles(rows[:, 1] / 1e3), int(rows[0, 0]), int(rows[-1, 0])


def standard_vgpus(gov: Governor, shares: list[float]) -> None:
    """vGPUs 1..n with those reservations, 8 critical, 9 critical with a period of 10 ms."""
    for i, share in enumerate(shares):
        gov.ctl("vgpu", str(i + 1), f"min={share}")
    gov.ctl("vgpu", "8", "critical")
    gov.ctl("vgpu", "9", "critical", "period=10000")


def three_hogs(
    setup: Setup, loads: Loads, seconds: float, gov: Governor | None, kernel_us: int = 20000
) -> list[list[np.ndarray]]:
    """Starts three and waits until they work."""
    for i in range(3):
        loads.hog(kernel_us, seconds, gov, i + 1 if gov else None)
    loads.wait_working()
    return []


def rates(loads: Loads, begin: float, end: float) -> float:
    """Chunks of work a second, of all loads together."""
    return float(work_in([[progress(o)] for o in loads.outputs], begin, end).sum() / (end - begin) * 1e9)


def case_latency(setup: Setup) -> None:
    """A 100 us kernel every 10 ms beside three processes with 20 ms kernels."""
    alone, _, _ = critical(setup, 1000, 400)
    alone_periodic, _, _ = critical(setup, 0, 400)
    with Loads(setup) as loads:
        three_hogs(setup, loads, 14, None)
        t0 = time.monotonic_ns()
        time.sleep(2)
        t1 = time.monotonic_ns()
        stock, a, b = critical(setup, 1000, 400)
        loads.wait()
        stock_quiet, stock_busy = rates(loads, t0, t1), rates(loads, a, b)
    values: dict[str, Any] = {}
    with Governor(setup) as gov:
        standard_vgpus(gov, [34, 33, 33])
        for name, jitter, vgpu in (("sporadic", 1000, 8), ("periodic", 0, 9), ("warmed", 0, 9)):
            with Loads(setup) as loads:
                three_hogs(setup, loads, 16, gov)
                time.sleep(0.5)
                t0 = time.monotonic_ns()
                time.sleep(2.5)
                t1 = time.monotonic_ns()
                latency, a, b = critical(setup, jitter, 400 if jitter else 600, gov, vgpu, name == "warmed")
                loads.wait()
                values[name] = (latency, rates(loads, t0, t1), rates(loads, a, b))
        stats = gov.stats()
    sporadic, periodic = values["sporadic"], values["periodic"]
    setup.record(
        "100 us kernel every 10 ms alone: p99",
        "us",
        alone["p99"],
        None,
        "-",
        None,
        sporadic=alone,
        periodic=alone_periodic,
    )
    setup.record(
        "sporadic 100 us kernel beside 3 x 20 ms: p99",
        "us",
        stock["p99"],
        sporadic[0]["p99"],
        "350",
        sporadic[0]["p99"] <= 350,
        latency_stock=stock,
        latency_rtxg=sporadic[0],
        latency_alone=alone,
    )
    setup.record(
        "periodic 100 us kernel beside 3 x 20 ms: p99",
        "us",
        stock["p99"],
        periodic[0]["p99"],
        f"{1.3 * alone_periodic['p99']:.1f} (1.3 of alone)",
        periodic[0]["p99"] <= 1.3 * alone_periodic["p99"],
        latency_stock=stock,
        latency_rtxg=periodic[0],
        latency_alone=alone_periodic,
    )
    warmed = values["warmed"]
    setup.record(
        "the same with librtxg-warm.so in the program: p99",
        "us",
        stock["p99"],
        warmed[0]["p99"],
        f"{1.3 * alone_periodic['p99']:.1f} (1.3 of alone)",
        warmed[0]["p99"] <= 1.3 * alone_periodic["p99"],
        latency_stock=stock,
        latency_rtxg=warmed[0],
        latency_alone=alone_periodic,
        throughput_percent_of_stock=100 * warmed[2] / stock_busy,
    )
    setup.record(
        "best-effort throughput beside a sporadic critical task",
        "% of stock",
        100.0,
        100 * sporadic[2] / stock_busy,
        "95",
        sporadic[2] >= 0.95 * stock_busy,
    )
    setup.record(
        "best-effort throughput beside a periodic critical task",
        "% of stock",
        100.0,
        100 * periodic[2] / stock_busy,
        "95",
        periodic[2] >= 0.95 * stock_busy,
    )
    quiet = (sporadic[1] + periodic[1]) / 2
    setup.record(
        "best-effort throughput, no critical task",
        "% of stock",
        100.0,
        100 * quiet / stock_quiet,
        "98",
        quiet >= 0.98 * stock_quiet,
        stats={k: v for k, v in stats.items() if k != "vgpus"},
    )


def shares_of_hogs(setup: Setup, kernel_us: int, seconds: float = 10) -> None:
    """60/20/10/10 with kernels of one length, and the same load on the stock driver."""
    due = [60.0, 20.0, 10.0, 10.0]
    with Loads(setup) as loads:
        for _ in due:
            loads.hog(kernel_us, 5.5)
        t0 = loads.wait_working() + 500_000_000
        loads.wait()
        t1 = t0 + 2_500_000_000
        stock_rate = rates(loads, t0, t1)
        stock_worst, stock_shares = worst_window([[progress(o)] for o in loads.outputs], due, t0, t1)
    with Governor(setup) as gov:
        standard_vgpus(gov, due)
        with Loads(setup) as loads:
            for i in range(4):
                loads.hog(kernel_us, seconds, gov, i + 1)
            t0 = loads.wait_working() + 1_000_000_000
            loads.wait()
            tracks = [[progress(o)] for o in loads.outputs]
            t1 = min(t[0][-1, 0] for t in tracks) - 200_000_000
            worst, shares = worst_window(tracks, due, t0, t1)
            rate = rates(loads, t0, t1)
            gov.stats()  # and so the timeline is written out
            by_log, log_shares = worst_window(log_tracks(gov.timeline, [1, 2, 3, 4]), due, t0, t1)
    setup.record(
        f"60/20/10/10 with {kernel_us / 1000:g} ms kernels: worst 1 s window",
        "points",
        stock_worst,
        worst,
        "1",
        worst <= 1,
        shares=shares,
        stock_shares=stock_shares,
        by_log=by_log,
        log_shares=log_shares,
    )
    setup.record(
        f"60/20/10/10 with {kernel_us / 1000:g} ms kernels: throughput",
        "% of stock",
        100.0,
        100 * rate / stock_rate,
        "98",
        rate >= 0.98 * stock_rate,
    )


def case_shares1ms(setup: Setup) -> None:
    """60/20/10/10 with 1 ms kernels."""
    shares_of_hogs(setup, 1000)


def case_shares20ms(setup: Setup) -> None:
    """60/20/10/10 with 20 ms kernels."""
    shares_of_hogs(setup, 20000)


def shares_of(setup: Setup, title: str, kinds: list[str], seconds: float = 9) -> None:
    """60/20/10/10 with PyTorch or mixed loads, by the driver's log."""
    due = [60.0, 20.0, 10.0, 10.0]
    iterations: dict[str, list[float]] = {}
    errors: dict[str, Any] = {}
    for mode in ("stock", "rtxg"):
        with Governor(setup) as gov, Loads(setup) as loads:
            standard_vgpus(gov, due)
            if mode == "stock":
                gov.ctl("off")  # the log goes on, nothing is acted on
            length = seconds if mode == "rtxg" else 4.5
            for i, kind in enumerate(kinds):
                if kind.startswith("hog"):
                    loads.hog(int(kind[3:]), length + 12, gov, i + 1)
                else:
                    loads.torch(kind, length, gov, i + 1)
            t0 = loads.wait_working() + 1_000_000_000
            ends = [o for o in loads.outputs if "torch" in o.name]
            for p, o in zip(loads.processes, loads.outputs, strict=True):
                if o in ends:
                    p.wait(timeout=100)
                    break
            t1 = min(progress(o)[-1, 0] for o in ends) - 300_000_000
            time.sleep(0.1)
        tracks = log_tracks(gov.timeline, [1, 2, 3, 4])
        errors[mode] = worst_window(tracks, due, t0, t1)
        counts = []
        for kind, o in zip(kinds, loads.outputs, strict=True):
            rows = progress(o)
            inside = rows[(rows[:, 0] >= t0) & (rows[:, 0] < t1)]
            counts.append(
                float(inside[-1, 1] - inside[0, 1] if kind.startswith("hog") else len(inside)) / (t1 - t0) * 1e9
            )
        iterations[mode] = counts
    setup.record(
        f"60/20/10/10 with {title}: worst 1 s window",
        "points",
        errors["stock"][0],
        errors["rtxg"][0],
        "1",
        errors["rtxg"][0] <= 1,
        shares=errors["rtxg"][1],
        stock_shares=errors["stock"][1],
        iterations_per_s=iterations["rtxg"],
        stock_iterations_per_s=iterations["stock"],
        loads=kinds,
    )


def case_eager(setup: Setup) -> None:
    """60/20/10/10, PyTorch ResNet-50 launched kernel by kernel."""
    shares_of(setup, "ResNet-50 eager", ["eager"] * 4)


def case_graph(setup: Setup) -> None:
    """60/20/10/10, PyTorch ResNet-50 as CUDA graphs."""
    shares_of(setup, "ResNet-50 as CUDA graphs", ["graph"] * 4)


def case_mix(setup: Setup) -> None:
    """60/20/10/10, four different loads."""
    shares_of(setup, "a mix (eager, graph, 1 ms, 20 ms)", ["eager", "graph", "hog1000", "hog20000"])


def case_figure10(setup: Setup) -> None:
    """40/60, the first has 1.2 times the work and the second starts 5 s later (Linux-RTXG, figure 10)."""
    tracks: dict[str, Any] = {}
    worst: dict[str, float] = {}
    for mode in ("stock", "rtxg"):
        with Governor(setup) as gov, Loads(setup) as loads:
            gov.ctl("vgpu", "1", "min=40")
            gov.ctl("vgpu", "2", "min=60")
            if mode == "stock":
                gov.ctl("off")
            setup.turns[12000] = int(setup.turns[1000] * 12)
            setup.turns[10000] = int(setup.turns[1000] * 10)
            loads.hog(12000, 15, gov, 1)
            loads.wait_working()
            time.sleep(max(0.0, 5 - 2.7))  # a CUDA program needs about 2.7 s to its first kernel
            loads.hog(10000, 9, gov, 2)
            t0 = loads.wait_working()
            loads.wait()
            t = [[progress(o)] for o in loads.outputs]
            begin, end = t0 + 200_000_000, min(x[0][-1, 0] for x in t) - 200_000_000
            worst[mode], shares = worst_window(t, [40.0, 60.0], begin, end)
            tracks[mode] = t
            if mode == "rtxg":
                settled = shares
    setup.plots["figure10"] = tracks
    setup.record(
        "40/60, 1.2 times the work, second 5 s later: worst 1 s window",
        "points",
        worst["stock"],
        worst["rtxg"],
        "1",
        worst["rtxg"] <= 1,
        shares=settled,
        paper_points=[3, 5],
    )


def case_forks(setup: Setup) -> None:
    """The tenant with 40 % forks four processes."""
    worst: dict[str, float] = {}
    shares: dict[str, list[float]] = {}
    for mode in ("stock", "rtxg"):
        with Governor(setup) as gov, Loads(setup) as loads:
            gov.ctl("vgpu", "1", "min=40")
            gov.ctl("vgpu", "2", "min=60")
            if mode == "stock":
                gov.ctl("off")
            loads.hog(20000, 10 if mode == "rtxg" else 6, gov, 1, forks=4)
            loads.hog(20000, 10 if mode == "rtxg" else 6, gov, 2)
            t0 = loads.wait_working() + 1_000_000_000
            loads.wait()
            t = [[progress(o) for o in loads.outputs[:4]], [progress(loads.outputs[4])]]
            t1 = min(x[-1, 0] for tenant in t for x in tenant) - 200_000_000
            worst[mode], shares[mode] = worst_window(t, [40.0, 60.0], t0, t1)
    setup.record(
        "the tenant with 40 % forks four processes: worst 1 s window",
        "points",
        worst["stock"],
        worst["rtxg"],
        "1",
        worst["rtxg"] <= 1,
        shares=shares["rtxg"],
        stock_shares=shares["stock"],
    )


def case_many(setup: Setup) -> None:
    """The tenant with 40 % is one process with 80 contexts (640 channels, ten calls to stop them)."""
    with Governor(setup) as gov, Loads(setup) as loads:
        gov.ctl("vgpu", "1", "min=40")
        gov.ctl("vgpu", "2", "min=60")
        out = setup.work / "hog-contexts.txt"
        loads.start(
            [str(setup.bin / "load"), "contexts", "80", str(setup.turns[1000]), "8", str(out)], out, gov, 1
        )
        loads.wait_working()
        loads.hog(1000, 5, gov, 2)
        t0 = loads.wait_working() + 1_000_000_000
        time.sleep(0.5)
        listed = gov.ctl("list").splitlines()
        for p in loads.processes:
            p.wait(timeout=60)
        tracks = [[progress(o)] for o in loads.outputs]
        t1 = min(t[0][-1, 0] for t in tracks) - 200_000_000
        worst, shares = worst_window(tracks, [40.0, 60.0], t0, t1)
        stats = gov.stats()
    setup.record(
        "the tenant with 40 % has 80 contexts in one process: worst 1 s window",
        "points",
        None,
        worst,
        "1",
        worst <= 1,
        shares=shares,
        listed=listed,
        suspend_us=stats["suspend_us"],
        resume_us=stats["resume_us"],
        failures=stats["failures"],
    )


def gpu_count() -> int:
    """How many NVIDIA GPUs there are."""
    done = subprocess.run(["nvidia-smi", "-L"], check=False, capture_output=True, text=True)
    return sum(line.startswith("GPU ") for line in done.stdout.splitlines())


def case_multi(setup: Setup) -> None:
    """Two GPUs: 40/60 on one and 80/20 on the other at once, a process on both; a daemon that starts anew adopts all."""
    if gpu_count() < 2:
        setup.record("two GPUs, shares of their own on each", "points", None, None, "1", None, skipped="there is one GPU here")
        return
    order = {**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # as the lever numbers them

    def hog(loads: Loads, device: int, seconds: float, gov: Governor, vgpu: int) -> Path:
        out = setup.work / f"hog-multi-{time.monotonic_ns()}.txt"
        command = [str(setup.bin / "load"), "hog", str(setup.turns[20000]), str(seconds), str(out)]
        loads.start(command, out, gov, vgpu, env={**order, "LOAD_DEVICE": str(device)})
        return out

    def vgpus(gov: Governor) -> None:
        for device, shares in ((0, (40, 60)), (1, (80, 20))):
            for i, share in enumerate(shares):
                gov.ctl("vgpu", str(i + 1), f"gpu={device}", f"min={share}")

    first = Governor(setup)
    with Loads(setup) as loads:
        with first as gov:
            vgpus(gov)
            both = setup.work / "hog-both.txt"
            command = [str(setup.bin / "load"), "both", str(setup.turns[20000]), "22", str(both)]
            loads.start(command, None, gov, 1, env=order)
            loads.outputs += [Path(f"{both}.{i}") for i in range(2)]
            for device in (0, 1):
                hog(loads, device, 22, gov, 2)
            t0 = loads.wait_working() + 1_000_000_000
            time.sleep(7)
            t1 = time.monotonic_ns() - 200_000_000
            listed = gov.ctl("list").splitlines()
            stats = gov.stats()
        with Governor(setup) as again:
            adopted = again.ctl("list").splitlines()
            vgpus(again)
            for p, v in zip(loads.processes, (1, 2, 2), strict=True):
                again.ctl("assign", str(p.pid), str(v))
            t2 = time.monotonic_ns() + 1_000_000_000
            loads.wait()
            adoption = [line for line in again.log.read_text().splitlines() if "adopted" in line]
        o = [progress(x) for x in loads.outputs]
        t3 = min(t[-1, 0] for t in o) - 200_000_000
        result: dict[str, Any] = {}
        for name, begin, end in (("", t0, t1), (" after a restart", t2, t3)):
            for device, due in ((0, [40.0, 60.0]), (1, [80.0, 20.0])):
                result[f"GPU {device}{name}"] = worst_window([[o[device]], [o[2 + device]]], due, begin, end)
    worst = max(v[0] for k, v in result.items() if "restart" not in k)
    worst_after = max(v[0] for k, v in result.items() if "restart" in k)
    setup.record(
        "two GPUs, 40/60 on one and 80/20 on the other, a process on both: worst 1 s window",
        "points",
        None,
        worst,
        "1",
        worst <= 1,
        shares={k: v[1] for k, v in result.items()},
        worst={k: v[0] for k, v in result.items()},
        listed=listed,
        log_lost=stats["log_lost"],
    )
    setup.record(
        "two GPUs, the same by a daemon that started anew: worst 1 s window",
        "points",
        None,
        worst_after,
        "1",
        worst_after <= 1,
        adopted=adopted,
        adoption=adoption,
    )


def case_copies(setup: Setup) -> None:
    """A tenant that copies beside one that computes: copies over PCIe cost it nothing; copies within the GPU are computing."""
    found: dict[str, Any] = {}
    with Governor(setup) as gov, Loads(setup) as loads:
        gov.ctl("vgpu", "1", "min=70")
        gov.ctl("vgpu", "2", "min=30")
        hog = loads.hog(1000, 21, gov, 1)
        loads.wait_working()
        t0 = time.monotonic_ns() + 300_000_000
        time.sleep(1.5)
        alone = work_in([[progress(hog)]], t0, time.monotonic_ns() - 2e7)[0] / (time.monotonic_ns() - 2e7 - t0)
        for kind in ("in", "out", "device"):
            out = setup.work / f"copy-{kind}.txt"
            with Loads(setup) as more:
                more.start([str(setup.bin / "load"), "copy", kind, "16", "9", str(out)], out, gov, 2)
                more.wait_working()
                t0 = time.monotonic_ns() + 300_000_000
                time.sleep(1.8)
                t1 = time.monotonic_ns() - 20_000_000
                hogs = 100 * float(work_in([[progress(hog)]], t0, t1)[0] / (t1 - t0) / alone)
                mib = float(work_in([[progress(out)]], t0, t1)[0] / (t1 - t0) * 1e9)
                found[kind] = {"computing tenant, % of its speed alone": hogs, "MiB/s": mib}
    for kind, aim in (("in", 97.0), ("out", 97.0), ("device", None)):
        setup.record(
            f"70/30, the second only copies ({kind}): what the computing tenant keeps",
            "% of its speed alone",
            None,
            found[kind]["computing tenant, % of its speed alone"],
            f"{aim:g}" if aim else "-",
            found[kind]["computing tenant, % of its speed alone"] >= aim if aim else None,
            mib_per_s=found[kind]["MiB/s"],
        )


def case_alone(setup: Setup) -> None:
    """A program alone, under rtxg and without, in turns on one running program."""
    with Governor(setup) as gov, Loads(setup) as loads:
        gov.ctl("vgpu", "1", "min=50")
        loads.hog(1000, 21, gov, 1)
        loads.wait_working()
        time.sleep(1)
        marks: list[tuple[str, int, int]] = []
        for _ in range(4):
            for mode in ("off", "on"):
                gov.ctl(mode)
                time.sleep(0.2)
                a = time.monotonic_ns()
                time.sleep(1.8)
                marks.append((mode, a, time.monotonic_ns()))
        loads.wait()
        r = {m: [rates(loads, a, b) for n, a, b in marks if n == m] for m in ("off", "on")}
    off, on = float(np.mean(r["off"])), float(np.mean(r["on"]))
    setup.record(
        "a program alone: slowdown under rtxg",
        "%",
        0.0,
        100 * (off - on) / off,
        "0.5",
        (off - on) / off <= 0.005,
        rounds_off=r["off"],
        rounds_on=r["on"],
    )


def case_caps(setup: Setup) -> None:
    """A program alone with a cap of 30 %, and whose time goes where when a tenant falls idle."""
    with Governor(setup) as gov, Loads(setup) as loads:
        gov.ctl("vgpu", "1", "max=30")
        loads.hog(20000, 10, gov, 1)
        t0 = loads.wait_working() + 500_000_000
        time.sleep(3.5)
        t1 = time.monotonic_ns()
        gov.ctl("off")
        time.sleep(0.3)
        t2 = time.monotonic_ns()
        loads.wait()
        free = rates(loads, t2, t2 + 1_500_000_000)
        capped = 100 * rates(loads, t0, t1) / free
    setup.record("cap of 30 % on a program alone", "% of its speed", 100.0, capped, "30 +- 1", abs(capped - 30) <= 1)
    with Governor(setup) as gov, Loads(setup) as loads:
        standard_vgpus(gov, [60.0, 20.0, 20.0])
        for i, seconds in enumerate((5, 12, 12)):
            loads.hog(20000, seconds, gov, i + 1)
        loads.wait_working()
        loads.processes[0].wait()
        t0 = time.monotonic_ns() + 200_000_000
        loads.wait()
        tracks = [[progress(o)] for o in loads.outputs[1:]]
        t1 = min(t[0][-1, 0] for t in tracks) - 200_000_000
        worst, shares = worst_window(tracks, [50.0, 50.0], t0, t1)
    setup.record(
        "60/20/20, the first ends: the others' shares of all, worst 1 s window",
        "points",
        None,
        worst,
        "1",
        worst <= 1,
        shares=shares,
    )


def case_daemon(setup: Setup) -> None:
    """rtxgd, "rtxg vgpu create", "rtxg run" and "rtxg set -p" by hand: 60/20/20."""
    programs = {n: setup.program(n, built) for n, built in (("rtxgd", "daemon"), ("rtxg", "cli"))}
    socket = setup.work / "rtxgd.sock"
    env = {**os.environ, "RTXG_SOCKET": str(socket), "PATH": f"{setup.bin}:{os.environ['PATH']}"}
    if (setup.bin / "lib").exists():
        env["LD_LIBRARY_PATH"] = f"{setup.bin / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    log = setup.out / "last-rtxgd.log"

    def rtxg(*words: str) -> str:
        done = subprocess.run([programs["rtxg"], *words], env=env, check=False, capture_output=True, text=True)
        if done.returncode and words[0] != "doctor":
            raise RuntimeError(f"rtxg {' '.join(words)}: {done.stderr}")
        return done.stdout

    with log.open("wb") as f:
        daemon = subprocess.Popen([programs["rtxgd"], "--system", "--socket", socket], env=env, stderr=f)
    try:
        for _ in range(600):
            if socket.exists() or daemon.poll() is not None:
                break
            time.sleep(0.05)
        time.sleep(1)
        for name, share in (("a", "60%"), ("b", "20%"), ("c", "20%")):
            rtxg("vgpu", "create", name, "--min", share)
        with Loads(setup) as loads:
            hog = [str(setup.bin / "load"), "hog", str(setup.turns[20000]), "11"]
            for name in ("a", "b"):
                out = setup.work / f"hog-daemon-{name}.txt"
                loads.start(
                    [str(programs["rtxg"]), "run", "--no-layer", "-v", name, "--", *hog, str(out)], out, env=env
                )
            out = setup.work / "hog-daemon-c.txt"
            stranger = loads.start([*hog, str(out)], out)
            loads.wait_working()
            rtxg("set", "-p", str(stranger.pid), "-v", "c")
            t0 = time.monotonic_ns() + 1_000_000_000
            doctor = [line for line in rtxg("doctor").splitlines() if "nvidia" in line]
            loads.wait()
            tracks = [[progress(o)] for o in loads.outputs]
            t1 = min(t[0][-1, 0] for t in tracks) - 200_000_000
            worst, shares = worst_window(tracks, [60.0, 20.0, 20.0], t0, t1)
    finally:
        daemon.terminate()
        daemon.wait(10)
    setup.record(
        "60/20/20 by rtxgd, rtxg run and rtxg set -p: worst 1 s window",
        "points",
        None,
        worst,
        "1",
        worst <= 1,
        shares=shares,
        doctor=doctor,
    )


def case_probes(setup: Setup) -> None:
    """What this GPU and driver allow, tried out."""
    with Governor(setup, probe=True) as gov:
        lines = gov.ctl("probes").splitlines()
    works = [line.split()[1] == "yes" for line in lines]
    setup.record(
        "capabilities that the probes found by their effect", "of 5", None, sum(works), "5", all(works), probes=lines
    )


def case_actions(setup: Setup) -> None:
    """Time to suspend and resume one process and three, of contexts that were adopted."""
    with Loads(setup) as loads:
        three_hogs(setup, loads, 14, None)
        for n in (1, 3):
            pids = [str(p.pid) for p in loads.processes[:n]]
            done = subprocess.run(
                [setup.bin / "rtxg-channels", "together", *pids], check=True, capture_output=True, text=True
            )
            v = json.loads(done.stdout.strip().splitlines()[-1])
            limit = {1: (700, 400), 3: (750, 400)}[n]
            for what, lim in (("suspend", limit[0]), ("resume", limit[1])):
                t = np.array(v[f"{what}_us"])
                setup.record(
                    f"{what} {n} process{'es' if n > 1 else ''}: median",
                    "us",
                    None,
                    float(np.median(t)),
                    f"{lim}",
                    bool(np.median(t) <= lim),
                    p10=float(np.percentile(t, 10)),
                    p90=float(np.percentile(t, 90)),
                    channels=v["channels"],
                )


def case_guardian(setup: Setup) -> None:
    """kill -9 of the daemon while processes are stopped; death of a stopped process; the kernel log."""
    with Loads(setup) as loads:
        gov = Governor(setup)
        gov.__enter__()
        try:
            standard_vgpus(gov, [34, 33, 33])
            three_hogs(setup, loads, 12, gov)
            out = setup.work / "rt-guardian.txt"
            loads.start(
                [str(setup.bin / "load"), "rt", str(setup.turns[100]), "10000", "1000", "300", str(out)], None, gov, 8
            )
            for _ in range(200):
                if gov.ctl("list").count("stopped") >= 2:
                    break
                time.sleep(0.05)
            time.sleep(0.3)
            listed = gov.ctl("list")
            stopped = [int(line.split()[0]) for line in listed.splitlines() if "stopped" in line]
            assert gov.process
            killed = time.monotonic_ns()
            gov.process.kill()
            gov.process.wait()
        finally:
            gov.__exit__()
        time.sleep(1)
        after = []
        for p, o in zip(loads.processes, loads.outputs, strict=False):
            if p.pid not in stopped:
                continue
            rows = progress(o)
            moved = rows[(rows[:, 0] > killed) & (rows[:, 1] > np.interp(killed, rows[:, 0], rows[:, 1]))]
            after.append((moved[0, 0] - killed) / 1e6 if len(moved) else float("inf"))
        said = gov.log.read_text()
        # A restarted daemon adopts what is there; a stopped process can be killed; nothing is left behind.
        with Governor(setup) as again:
            standard_vgpus(again, [34, 33, 33])
            adopted = again.ctl("list").count("adopted")
            pid = loads.processes[0].pid
            again.ctl("vgpu", "5", "max=1")
            again.ctl("assign", str(pid), "5")
            for _ in range(100):
                if re.search(rf"^{pid} .*stopped", again.ctl("list"), re.M):
                    break
                time.sleep(0.02)
            was_stopped = bool(re.search(rf"^{pid} .*stopped", again.ctl("list"), re.M))
            began = time.monotonic()
            loads.processes[0].kill()
            loads.processes[0].wait(timeout=10)
            died_ms = (time.monotonic() - began) * 1e3
            time.sleep(0.2)
            gone = str(pid) not in [line.split()[0] for line in again.ctl("list").splitlines()]
        loads.wait()
    setup.record(
        "kill -9 of the daemon: last of the stopped processes works again",
        "ms",
        None,
        max(after, default=float("inf")),
        "100",
        bool(after) and max(after) <= 100,
        processes=len(after),
        said=[x for x in said.splitlines() if "guardian:" in x],
    )
    setup.record("contexts adopted by a restarted daemon", "of 3", None, adopted, "3", adopted >= 3)
    setup.record(
        "a stopped process can be killed",
        "ms",
        None,
        died_ms,
        "1000",
        was_stopped and gone and died_ms < 1000,
        was_stopped=was_stopped,
        gone=gone,
    )


def case_discovery(setup: Setup) -> None:
    """How soon a new context is governed: from its first stay on the GPU to its place in a vGPU."""
    with Governor(setup) as gov, Loads(setup) as loads:
        standard_vgpus(gov, [34, 33, 33])
        three_hogs(setup, loads, 5, gov)
        loads.wait()
        time.sleep(0.2)
        gov.stats()
        known: dict[int, int] = {}
        for line in gov.timeline.read_text(encoding="ascii").splitlines():
            w = line.split()
            if w[0] == "C" and w[4] == "1":
                known.setdefault(int(w[2]), int(w[5]))
        s = stays(gov.timeline)
        late = [(known[pid] - s[s[:, 1] == pid][0, 2]) / 1e6 for pid in known if (s[:, 1] == pid).any()]
    setup.record(
        "a new context is governed after its first work (negative: before)",
        "ms",
        None,
        max(late),
        "50",
        max(late) <= 50,
        all=late,
    )


def threads(pid: int) -> dict[int, tuple[str, str, int, float]]:
    """Threads of a process: name, CPU policy, priority, and the milliseconds that it has waited for a CPU."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            stat = (task / "stat").read_text(encoding="utf-8", errors="replace")
            name, rest = stat[stat.index("(") + 1 : stat.rindex(")")], stat[stat.rindex(")") + 2 :].split()
            waited = float((task / "schedstat").read_text(encoding="ascii").split()[1]) / 1e6
        except OSError:  # it has ended
            continue
        policy = {0: "other", 1: "fifo", 2: "rr", 3: "batch", 6: "deadline"}.get(int(rest[38]), rest[38])
        found[int(task.name)] = name, policy, int(rest[37]), waited
    return found


def late_threads(
    before: dict[int, tuple[str, str, int, float]], after: dict[int, tuple[str, str, int, float]]
) -> list[str]:
    """The five threads that waited longest for a CPU in between."""
    waits = [(v[3] - before[t][3] if t in before else v[3], *v[:3]) for t, v in after.items()]
    return [f"{name} ({policy} {level}): {ms:.1f} ms" for ms, name, policy, level in sorted(waits, reverse=True)[:5]]


def case_figure12(setup: Setup) -> None:
    """Four detectors 60/20/10/10, with and without a CPU load in turn, CPU side FIFO (Linux-RTXG, figure 12)."""
    due = [60.0, 20.0, 10.0, 10.0]
    settle_s, window_s, rounds = 0.7, 3.5, 2
    frames: dict[str, list[float]] = {}
    spread: dict[str, list[list[float]]] = {}
    detail: dict[str, list[dict[str, Any]]] = {}
    # The same programs with and without the load, twice in turn: what differs from start to start falls out.
    for mode, fifo in (("stock", 0), ("rtxg", 10)):
        with Governor(setup) as gov, Loads(setup) as loads:
            standard_vgpus(gov, due)
            if not fifo:
                gov.ctl("off")
            assert gov.process
            for i in range(4):
                loads.torch("detect", 2 * rounds * (settle_s + window_s) + 3, gov, i + 1, fifo=fifo)
            loads.wait_working()
            time.sleep(1)
            windows: list[tuple[str, int, int]] = []
            for _ in range(rounds):
                for name in (mode, f"{mode}, CPU load"):
                    hack = None
                    if name != mode:
                        hack = loads.start([str(setup.bin / "hackload"), "4", "60"], None)
                    time.sleep(settle_s)
                    pids = [loads.processes[0].pid, gov.process.pid]
                    before, work = [threads(p) for p in pids], gov.stats()["vgpus"]
                    t0 = time.monotonic_ns()
                    time.sleep(window_s)
                    windows.append((name, t0, time.monotonic_ns()))
                    after, done = [threads(p) for p in pids], gov.stats()["vgpus"]
                    used = [b["work_ns"] - a["work_ns"] for a, b in zip(work, done, strict=True) if 1 <= a["vgpu"] <= 4]
                    detail.setdefault(name, []).append(
                        {
                            "gpu_time_percent": [100 * u / max(sum(used), 1) for u in used],
                            "gpu_busy_percent": sum(used) / window_s / 1e7,
                            "policies_of_the_first": sorted({f"{p} {n}" for _, p, n, _ in after[0].values()}),
                            "waited_for_a_cpu_first": late_threads(before[0], after[0]),
                            "waited_for_a_cpu_lever": late_threads(before[1], after[1]),
                        }
                    )
                    if hack:
                        hack.kill()
                        hack.wait()
            for p in loads.processes[:4]:
                p.wait(timeout=120)
            rows = [progress(o) for o in loads.outputs]
        for name, t0, t1 in windows:
            counts = [np.interp([t0, t1], r[:, 0], np.arange(len(r))) for r in rows]
            spread.setdefault(name, []).append([float(c[1] - c[0]) / (t1 - t0) * 1e9 for c in counts])
        for name in (mode, f"{mode}, CPU load"):
            frames[name] = [float(np.mean(column)) for column in zip(*spread[name], strict=True)]
            inside = [np.any([(r[:, 0] >= a) & (r[:, 0] < b) for n, a, b in windows if n == name], axis=0) for r in rows]
            setup.plots.setdefault("figure12", {})[name] = [r[i][:, 1] for r, i in zip(rows, inside, strict=True)]
    kept = [b / a if a else 0.0 for a, b in zip(frames["rtxg"], frames["rtxg, CPU load"], strict=True)]
    lost = [b / a if a else 0.0 for a, b in zip(frames["stock"], frames["stock, CPU load"], strict=True)]
    limit = Path("/proc/sys/kernel/sched_rt_runtime_us")
    setup.record(
        "four detectors 60/20/10/10: frame rate kept under a CPU load, first one",
        "%",
        100 * lost[0],
        100 * kept[0],
        "95",
        kept[0] >= 0.95,
        frames_per_s=frames,
        frames_per_s_of_each_window=spread,
        kept=kept,
        stock_kept=lost,
        cpu_policy="SCHED_FIFO 10" if can_fifo() else "SCHED_OTHER: no real-time runtime in this cgroup",
        sched_rt_runtime_us=int(limit.read_text(encoding="ascii")) if limit.exists() else None,
        windows=detail,
    )


def case_mps(setup: Setup) -> None:
    """The same latency case under MPS, default and with thread percentages."""
    control = shutil.which("nvidia-cuda-mps-control")
    if not control:
        setup.record(
            "sporadic 100 us kernel beside 3 x 20 ms under MPS: p99",
            "us",
            None,
            None,
            "-",
            None,
            reason="nvidia-cuda-mps-control is not installed",
        )
        return
    for title, percent in (("default", None), ("hogs at 25 % of threads", "25")):
        env = {"CUDA_MPS_PIPE_DIRECTORY": str(setup.work / "mps"), "CUDA_MPS_LOG_DIRECTORY": str(setup.work / "mpslog")}
        for d in env.values():
            Path(d).mkdir(exist_ok=True)
        subprocess.run([control, "-d"], env={**os.environ, **env}, check=True)
        try:
            with Loads(setup) as loads:
                for _ in range(3):
                    out = setup.work / f"hog-{time.monotonic_ns()}.txt"
                    more = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": percent} if percent else {}
                    loads.start(
                        [str(setup.bin / "load"), "hog", str(setup.turns[20000]), "9", str(out)],
                        out,
                        env={**os.environ, **env, **more},
                    )
                loads.wait_working()
                out = setup.work / "rt-mps.txt"
                subprocess.run(
                    [setup.bin / "load", "rt", str(setup.turns[100]), "10000", "1000", "100", str(out)],
                    env={**os.environ, **env},
                    check=True,
                    stdout=subprocess.DEVNULL,
                    timeout=60,
                )
                v = percentiles(np.loadtxt(out, ndmin=2)[10:, 1] / 1e3)
                loads.wait()  # killed clients would fault the server's context
        finally:
            subprocess.run([control], input=b"quit\n", env={**os.environ, **env}, check=False)
        setup.record(
            f"sporadic 100 us kernel beside 3 x 20 ms under MPS, {title}: p99", "us", v["p99"], None, "-", None, mps=v
        )


CASES: dict[str, Callable[[Setup], None]] = {
    name[5:]: fn for name, fn in list(globals().items()) if name.startswith("case_")
}


def plot(setup: Setup) -> None:
    """Pictures beside the results, where matplotlib is."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        print("matplotlib is not installed: no plots")
        return
    if "figure10" in setup.plots:
        fig, axes = plt.subplots(1, 2, figsize=(10, 3.5), sharey=True)
        for ax, mode in zip(axes, ("stock", "rtxg"), strict=True):
            t = setup.plots["figure10"][mode]
            start = t[0][0][0, 0]
            grid = np.arange(start + 2.5e8, t[0][0][-1, 0] - 2.5e8, 1e8)
            work = np.array([[work_in([tenant], g - 2.5e8, g + 2.5e8)[0] for g in grid] for tenant in t])
            alone = work.sum(axis=0)
            for i, label in enumerate(("vGPU0, 40 %, 1.2 times the work", "vGPU1, 60 %, starts 5 s later")):
                ax.plot((grid - start) / 1e9, 100 * work[i] / np.maximum(alone, 1), label=label)
            for y in (40, 60):
                ax.axhline(y, color="grey", lw=0.5)
            ax.set_title(mode)
            ax.set_xlabel("time (s)")
        axes[0].set_ylabel("share of the work done (%), over 0.5 s")
        axes[1].legend()
        fig.tight_layout()
        fig.savefig(setup.out / f"{setup.name}-figure10.png", dpi=110)
    if "figure12" in setup.plots:
        data = setup.plots["figure12"]
        fig, axes = plt.subplots(1, len(data), figsize=(3 * len(data), 3.5), sharey=True)
        for ax, (name, rows) in zip(axes, data.items(), strict=True):
            ax.boxplot(rows, showfliers=False, tick_labels=["60", "20", "10", "10"])
            ax.set_title(name)
            ax.set_xlabel("vGPU (%)")
        axes[0].set_ylabel("time for a frame (ms)")
        fig.tight_layout()
        fig.savefig(setup.out / f"{setup.name}-figure12.png", dpi=110)


def identify() -> str | None:
    """GPU-DRIVER-DATE, or None where there is no NVIDIA GPU."""
    if not Path("/dev/nvidiactl").exists() or not shutil.which("nvidia-smi"):
        return None
    q = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
        check=False,
        capture_output=True,
        text=True,
    )
    if q.returncode or not q.stdout.strip():
        return None
    gpu, driver = (x.strip() for x in q.stdout.strip().splitlines()[0].split(","))
    count = f"{gpu_count()}x" if gpu_count() > 1 else ""
    return f"{count}{gpu.replace('NVIDIA ', '').replace(' ', '-')}-{driver}-{datetime.date.today().isoformat()}"


def calibrate(setup: Setup) -> None:
    """How many turns of the loads' loop make which kernel on this GPU."""
    for us in (100, 1000, 20000):
        command = [setup.bin / "load", "calibrate", str(us)]
        setup.turns[us] = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def can_fifo() -> bool:
    """May a process here be SCHED_FIFO?"""
    return subprocess.run(["chrt", "-f", "1", "true"], check=False, capture_output=True).returncode == 0


def allow_real_time() -> None:
    """Where real-time runtime is given out by cgroups, only the topmost one has it: goes there, if nothing else helps."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        for tasks in ("/sys/fs/cgroup/cpu/tasks", "/sys/fs/cgroup/cpu,cpuacct/tasks", "/sys/fs/cgroup/cgroup.procs"):
            try:
                Path(tasks).write_text(str(os.getpid()), encoding="ascii")
            except OSError:
                continue
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    except PermissionError:
        print("no SCHED_FIFO here (no real-time runtime in this cgroup): the governor runs at nice -20")


def xids() -> list[str]:
    """Lines of the kernel log that report a GPU error."""
    log = subprocess.run(["dmesg"], check=False, capture_output=True, text=True).stdout
    return [line for line in log.splitlines() if "NVRM: Xid" in line]


def main() -> int:
    """Runs the cases asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, default=ROOT / "build" / "gpu")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--case", default=os.environ.get("CASE", ""))
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if args.list:
        for name, fn in CASES.items():
            print(f"{name:12} {(fn.__doc__ or '').splitlines()[0]}")
        return 0
    name = identify()
    if not name:
        print("skipped: no NVIDIA GPU here (no /dev/nvidiactl, or nvidia-smi does not answer)")
        return SKIPPED
    if os.geteuid() != 0:
        print("skipped: the NVIDIA lever needs root")
        return SKIPPED
    chosen = [c for c in args.case.split(",") if c] or list(CASES)
    for c in chosen:
        if c not in CASES:
            print(f"run.py: no case '{c}': one of {', '.join(CASES)}", file=sys.stderr)
            return 2
    failed = 0
    with tempfile.TemporaryDirectory(prefix="rtxg-gpu-") as work:
        setup = Setup(args.bin.resolve(), args.out.resolve(), Path(work), name=name)
        setup.out.mkdir(parents=True, exist_ok=True)
        if args.case and (setup.out / f"{name}.json").exists():  # a part: the other cases' lines stay
            old = json.loads((setup.out / f"{name}.json").read_text(encoding="ascii"))
            setup.results = [x for x in old if x["command"].rpartition("=")[2] not in [*chosen, "all"]]
        calibrate(setup)
        allow_real_time()
        before = len(xids())
        for c in chosen:
            setup.current = c
            began = time.monotonic()
            print(f"{c}: {(CASES[c].__doc__ or '').splitlines()[0]}", flush=True)
            try:
                CASES[c](setup)
            except Exception as e:  # one case must not take the others with it
                failed += 1
                print(f"    FAILED: {type(e).__name__}: {e}", flush=True)
                setup.results.append(
                    {
                        "case": c,
                        "unit": "",
                        "stock": None,
                        "rtxg": None,
                        "aim": "",
                        "met": False,
                        "detail": {"error": f"{type(e).__name__}: {e}"},
                        "command": f"make gpu CASE={c}",
                    }
                )
                setup.save()
            print(f"    {time.monotonic() - began:.1f} s", flush=True)
            try:
                plot(setup)
            except Exception as e:
                print(f"    no plot: {e}", flush=True)
            setup.plots.clear() if c not in ("figure10", "figure12") else None
        setup.current = "all"
        found = xids()[before:]
        setup.record("Xids in the kernel log after the whole run", "", None, len(found), "0", not found, lines=found)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
