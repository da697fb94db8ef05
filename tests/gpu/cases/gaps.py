# SPDX-License-Identifier: MIT
"""Shares beside a critical task, of programs that do not keep their queues filled."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness import Setup, percentiles
from product import Product, Programs, Timeline, overlap, python

MINS = {"first": 50, "second": 30}
DUE = 100 * MINS["first"] / sum(MINS.values())
#: the windows, s after the critical task has come: at first, and later
FIRST, LATER = (0.3, 2.3), 3.3
#: the bound of the vGPU with the larger share, where it has one, ms
BOUND_MS = 25


@dataclass
class First:
    """The program with the larger share."""

    pid: int
    out: Path

    def steps(self, begin: int, end: int) -> float:
        """Of a training, a second; 0 of another program."""
        lines = (x.split() for x in self.out.read_text(encoding="ascii").split("\n")[1:-1])
        ends = [int(x[1]) for x in lines if len(x) == 3]
        if not ends:
            return 0.0
        done = np.interp([begin, end], ends, np.arange(len(ends)))
        return float(done[1] - done[0]) / (end - begin) * 1e9

    def steps_for(self, seconds: float) -> float:
        """The same of the time that begins now."""
        begin = time.monotonic_ns()
        time.sleep(seconds)
        end = time.monotonic_ns()
        time.sleep(0.2)
        return self.steps(begin, end)


@contextmanager
def first_program(setup: Setup, kind: str) -> Iterator[First]:
    """The program with the larger share, as long as the block lasts."""
    control, out = setup.work / f"gaps-{kind}.control", setup.work / f"gaps-{kind}.txt"
    control.write_text("run", encoding="ascii")
    with Programs(setup) as programs:
        if kind == "training":
            command, env = python("framework_load.py", "train", control, out), {}
        else:
            turns = setup.turns_of(20000)
            command, env = programs.load("hog", turns, 300, out), {"LOAD_DEPTH": "1"}
        said = setup.work / f"gaps-{kind}.said"
        p = programs.begin(command, None, None, said=said, **env)
        end = time.monotonic() + 90
        while not (out.exists() and out.stat().st_size):
            if p.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{kind} does not work: {said.read_text()[-300:]}")
            time.sleep(0.05)
        yield First(p.pid, out)


def on_engine(line: Timeline, pid: int, begin: int, end: int) -> int:
    """For how many ns of the window the process was on the engine, by the driver's log."""
    if begin < line.begin or end > line.known:
        raise RuntimeError("the switch log does not cover the window")
    ns = int(overlap(line.stays.get(pid, []), np.array([begin]), np.array([end]))[0])
    if not ns:
        raise RuntimeError(f"process {pid} was not on the engine")
    return ns


def beside_a_task(
    product: Product, first: First, second: int, length: float, bound: bool
) -> dict[str, Any]:
    """One build, from the moment that the critical task has come: for how long both programs were
    on the engine at first and later, the steps of a training, the task's latency, and, where the
    vGPU with the larger share has a bound, how many waits were longer."""
    setup = product.setup
    product.start()
    try:
        for vgpu, pid in (("first", first.pid), ("second", second)):
            limits = {"latency": f"{BOUND_MS}ms"} if bound and vgpu == "first" else {}
            product.vgpu(vgpu, min=f"{MINS[vgpu]}%", **limits)
            product.rtxg("set", "-p", str(pid), "-v", vgpu)
        product.vgpu("urgent", priority=60)
        time.sleep(1)
        with Programs(setup) as programs:
            task, out = programs.sporadic(LATER + length + 3, product, "urgent")
            while not (out.exists() and out.stat().st_size) and task.poll() is None:
                time.sleep(0.01)
            came = time.monotonic_ns()
            time.sleep(LATER + length + 0.5)
            line = product.timeline()
            waits = product.long_waits(1e6 * BOUND_MS).get("first", 0) if bound else 0
            task.wait(60)
        jobs = np.loadtxt(out, ndmin=2)
        found: dict[str, Any] = {"longer_waits_than_the_bound": waits} if bound else {}
        for name, (a, b) in (("at first", FIRST), ("later", (LATER, LATER + length))):
            window = came + int(1e9 * a), came + int(1e9 * b)
            mine = on_engine(line, first.pid, *window)
            both = mine + on_engine(line, second, *window)
            found[name] = {
                "part": 100 * mine / both,
                "both_on_engine": 100 * both / (window[1] - window[0]),
                "seconds_on_engine_a_second": mine / (window[1] - window[0]),
                "steps_per_s": first.steps(*window),
            }
            late = jobs[(jobs[:, 0] >= window[0]) & (jobs[:, 0] < window[1])]
            found[name]["latency"] = percentiles(late[:, 1] / 1e3)
        return found
    finally:
        product.stop()


def allowed(found: dict[str, Any], alone: float) -> float:
    """The steps that the training's share allows: those of alone, or fewer if these need more of
    the engine than the share."""
    if not found["steps_per_s"]:
        return alone
    step = found["seconds_on_engine_a_second"] / found["steps_per_s"]
    return min(alone, DUE / 100 / step)


def case_gaps(setup: Setup) -> None:
    """Shares beside a critical task: of kernels that are each waited for, also with a bound on
    latency, and of a training."""
    length, rounds = setup.seconds(4, 8), 1 if setup.quick else 2
    builds = [setup.bin, *setup.beside]
    product = Product(setup)
    try:
        for kind in ("kernels", "training", "bound"):
            found: dict[Path, list[dict[str, Any]]] = {build: [] for build in builds}
            with first_program(setup, kind) as first, Programs(setup) as programs:
                alone = first.steps_for(setup.seconds(2, 4)) if kind == "training" else 0
                out = setup.work / f"gaps-second-{kind}.txt"
                command = programs.load("hog", setup.turns_of(20000), 300, out)
                second = programs.begin(command, out).pid
                programs.wait_working()
                stock = first.steps_for(setup.seconds(2, 4)) if kind == "training" else 0
                for n in range(rounds):
                    for build in builds if n % 2 == 0 else builds[::-1]:
                        product.use(build)
                        found[build].append(
                            beside_a_task(product, first, second, length, kind == "bound")
                        )
            for build in builds:
                name = f", {build.name}" if setup.beside else ""
                if kind == "kernels":
                    record_share(setup, name, found[build])
                elif kind == "training":
                    record_steps(setup, name, found[build], alone, stock)
                else:
                    record_bound(setup, name, found[build])
    finally:
        product.__exit__()


def record_share(setup: Setup, name: str, found: list[dict[str, Any]]) -> None:
    """Of the program that always has work."""
    for when in ("at first", "later"):
        value = float(np.mean([f[when]["part"] for f in found]))
        judged = when == "later"
        setup.record(
            f"{DUE:.1f} % beside a critical task, kernels of 20 ms each waited for{name}: {when}",
            "% of both",
            None,
            value,
            f"{DUE:.1f} +- 1.5" if judged else "-",
            abs(value - DUE) <= 1.5 if judged else None,
            rounds=[f[when] for f in found],
        )


def record_steps(
    setup: Setup, name: str, found: list[dict[str, Any]], alone: float, stock: float
) -> None:
    """Of the training, which has nothing to do for a part of the time."""
    for when in ("at first", "later"):
        value = float(np.mean([f[when]["steps_per_s"] for f in found]))
        most = float(np.mean([allowed(f[when], alone) for f in found]))
        judged = when == "later"
        setup.record(
            f"{DUE:.1f} % beside a critical task, training{name}: steps {when}",
            "of what it may have",
            stock / most,
            value / most,
            "0.85" if judged else "-",
            value / most >= 0.85 if judged else None,
            rounds=[f[when] for f in found],
            steps_per_s={"alone": alone, "stock, without the task": stock, "most": most},
        )


def record_bound(setup: Setup, name: str, found: list[dict[str, Any]]) -> None:
    """Of the program that always has work, in a vGPU with a bound on latency."""
    title = f"{DUE:.1f} % and a bound of {BOUND_MS} ms beside a critical task{name}"
    later = [f["later"] for f in found]
    part = float(np.mean([x["part"] for x in later]))
    both = float(np.mean([x["both_on_engine"] for x in later]))
    waits = sum(f["longer_waits_than_the_bound"] for f in found)
    setup.record(
        f"{title}: its part",
        "% of both",
        None,
        part,
        f"{DUE:.1f} +- 3",
        abs(part - DUE) <= 3,
        rounds=later,
    )
    setup.record(f"{title}: both on the engine", "% of the time", None, both, "85", both >= 85)
    setup.record(f"{title}: waits longer than the bound", "", None, waits, "0", not waits)
