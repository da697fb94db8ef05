# SPDX-License-Identifier: MIT
"""Programs that come and go: are they all governed, and what do they cost an urgent one?"""

from __future__ import annotations

import random
import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness import Setup, percentiles, progress
from product import CpuMeter, Product, Programs, Watch

#: what the daemon logs of a process on which it cannot act
LEFT_ALONE = re.compile(r"pid (\d+).*(?:left alone|UNMANAGED|cannot be governed)")

#: exit status of `rtxg run` where it could not start the program
REFUSED = 125


@dataclass
class Life:
    """One program's."""

    pid: int
    begin: int  # CLOCK_MONOTONIC ns
    end: int = 0
    first_work: int = 0  # 0: it was killed before
    killed: bool = False
    status: int | None = None


class Starter(threading.Thread):
    """Starts programs of 1 to 2 s in one vGPU, one after the other, and kills a quarter of them."""

    def __init__(
        self, programs: Programs, product: Product | None, number: int, until: int
    ) -> None:
        super().__init__(daemon=True)
        self.programs, self.product, self.until = programs, product, until
        self.name, self.chance, self.number = f"c{number}", random.Random(number), number
        self.lives: list[Life] = []
        self.error = ""
        self.refused = 0

    def one(self) -> None:
        """One program's life. `rtxg run` refuses to start one while no daemon is there."""
        if self.product:
            self.product.up.wait(20)
        work_s = self.chance.uniform(0.6, 1.4)
        to_be_killed = len(self.lives) % 4 == self.number  # each fourth, not all at once
        patience = self.chance.uniform(0.05, 1.5) if to_be_killed else 20.0
        out = self.programs.setup.work / f"churn-{self.name}-{time.monotonic_ns()}.txt"
        command = self.programs.load(
            "hog", self.programs.setup.turns_of(2000), f"{work_s:.2f}", out
        )
        begin = time.monotonic_ns()
        p = self.programs.begin(command, None, self.product, self.name)
        life = Life(p.pid, begin)
        self.lives.append(life)
        try:
            life.status = p.wait(patience)
        except Exception:  # its time is over
            life.killed = to_be_killed
            p.kill()
            life.status = p.wait(20)
        if life.status == REFUSED:
            self.lives.remove(life)
            self.refused += 1
            return
        life.end = time.monotonic_ns()
        life.first_work = first_line(out)
        out.unlink(missing_ok=True)

    def run(self) -> None:
        try:
            while time.monotonic_ns() < self.until:
                self.one()
        except Exception as e:
            self.error = f"{type(e).__name__}: {e}"


def first_line(path: Path) -> int:
    """When the first work was written down; 0 if none was."""
    try:
        rows = progress(path)
    except (OSError, ValueError, IndexError):
        return 0
    return int(rows[0, 0]) if len(rows) else 0


def inside(at: np.ndarray, spans: list[tuple[int, int]]) -> np.ndarray:
    """Which of the times lie in one of the spans."""
    found = np.zeros(len(at), dtype=bool)
    for a, b in spans:
        found |= (at >= a) & (at <= b)
    return found


def latencies(out: Path, begin: int) -> tuple[np.ndarray, np.ndarray]:
    """Releases (ns) and latencies (us) of the urgent task from a time on."""
    rows = np.loadtxt(out, ndmin=2)
    rows = rows[rows[:, 0] >= begin]
    return rows[:, 0], rows[:, 1] / 1e3


def blame(at: np.ndarray, us: np.ndarray, lives: list[Life]) -> dict[str, int]:
    """The jobs later than 1 ms, by what a program did in the 60 ms before or in the 10 ms after."""
    found = {"late": 0, "first work": 0, "end": 0, "start": 0, "none of these": 0}
    when = {
        "first work": [x.first_work for x in lives if x.first_work],
        "end": [x.end for x in lives],
        "start": [x.begin for x in lives],
    }
    for t in at[us > 1000]:
        found["late"] += 1
        near = [k for k, v in when.items() if any(-10_000_000 < t - e < 60_000_000 for e in v)]
        found[near[0] if near else "none of these"] += 1
    return found


def churned(setup: Setup, seconds: float, product: Product | None) -> dict[str, Any]:
    """The task beside four starters; what came of it."""
    if product:
        product.vgpu("urgent", priority=60)
        for i in range(4):
            product.vgpu(f"c{i}", min="20%")
    with Programs(setup) as programs:
        task, out = programs.sporadic(seconds + 0.5, product, "urgent")
        time.sleep(0.7)
        begin = time.monotonic_ns()
        until = begin + int((seconds - 1) * 1e9)
        starters = [Starter(programs, product, i, until) for i in range(4)]
        watch = Watch(product) if product else None
        cpu = CpuMeter(product) if product else None
        if watch:
            watch.__enter__()
        try:
            for s in starters:
                s.start()
            task.wait(seconds + 40)
            used = cpu.percent() if cpu else None
            for s in starters:
                s.join(40)
        finally:
            if watch:
                watch.__exit__()
        releases, us = latencies(out, begin)
    lives = [life for s in starters for life in s.lives if life.end]
    making = [(x.begin, x.first_work or x.end) for x in lives]
    during = inside(releases, making)
    found = {
        "latency": percentiles(us),
        "while_a_context_is_made": percentiles(us[during]) if during.any() else None,
        "at_other_times": percentiles(us[~during]) if (~during).any() else None,
        "later_than_1_ms_after": blame(releases, us, lives),
        "programs": len(lives),
        "killed": sum(x.killed for x in lives),
        "failed": sum(not x.killed and x.status != 0 for x in lives),
        "first_work_ms": [
            float(x)
            for x in np.percentile(
                [(x.first_work - x.begin) / 1e6 for x in lives if x.first_work] or [0], [50, 100]
            )
        ],
        "refused": sum(s.refused for s in starters),
        "errors": [s.error for s in starters if s.error],
    }
    if product and watch:
        ours = {x.pid for x in lives}
        said = {int(m.group(1)) for m in LEFT_ALONE.finditer(product.said())}
        lost = {pid for pid, t in watch.seen.items() if t.get("managed") is False} | said
        found |= {
            "not_governed": len(lost & ours),
            "seen": len(ours & set(watch.seen)),
            "remedies": sorted({str(watch.seen[p].get("remedy")) for p in lost if p in watch.seen})[
                :3
            ],
            "rtxgd_cpu_percent": used,
            "log": product.said().splitlines()[-6:],
        }
    return found


def making_alone(setup: Setup, seconds: float) -> tuple[dict[str, float], float]:
    """The task beside one process after the other that makes a context (stock driver)."""
    with Programs(setup) as programs:
        out = setup.work / f"made-{time.monotonic_ns()}.txt"
        programs.begin(programs.load("contexts-made", seconds + 1, out), None)
        task, latency = programs.sporadic(seconds, None)
        begin = time.monotonic_ns() + 300_000_000
        task.wait(seconds + 30)
        _, us = latencies(latency, begin)
        made = np.loadtxt(out, ndmin=2)
    return percentiles(us), float(np.median(made[:, 1] - made[:, 0]) / 1e6)


def case_churn(setup: Setup) -> None:
    """Programs of 1 to 2 s start and are killed in four vGPUs, beside a 100 us task."""
    with Programs(setup) as programs:
        task, out = programs.sporadic(setup.seconds(2, 4))
        task.wait(30)
        alone = percentiles(latencies(out, 0)[1][20:])
    made, each_ms = making_alone(setup, setup.seconds(2.5, 6))
    setup.record(
        "100 us kernel beside one process after another that makes a context: p99",
        "us",
        made["p99"],
        None,
        "-",
        None,
        latency=made,
        alone=alone,
        making_takes_ms=each_ms,
    )
    stock = churned(setup, setup.seconds(6, 30), None)
    with Product(setup) as product:
        rtxg = churned(setup, setup.seconds(12, 60), product)
    detail = {"alone": alone, "stock_detail": stock, "rtxg_detail": rtxg}
    setup.record(
        "churn: programs not governed",
        f"of {rtxg['programs']}",
        None,
        rtxg["not_governed"],
        "0",
        rtxg["not_governed"] == 0 and rtxg["programs"] > 0,
        **detail,
    )
    setup.record(
        "churn: sporadic 100 us kernel: p99",
        "us",
        stock["latency"]["p99"],
        rtxg["latency"]["p99"],
        "1000",
        rtxg["latency"]["p99"] <= 1000,
        latency_stock=stock["latency"],
        latency_rtxg=rtxg["latency"],
    )
    quiet = rtxg["at_other_times"]
    setup.record(
        "churn: the same while no context is being made: p99",
        "us",
        (stock["at_other_times"] or {}).get("p99"),
        (quiet or {}).get("p99"),
        "-",
        None,
        at_other_times=quiet,
        while_a_context_is_made=rtxg["while_a_context_is_made"],
    )
    setup.record(
        "churn: from a program's start to its first work: median",
        "ms",
        stock["first_work_ms"][0],
        rtxg["first_work_ms"][0],
        "-",
        None,
    )
    setup.record("churn: CPU of rtxgd", "% of a CPU", None, rtxg["rtxgd_cpu_percent"], "-", None)
