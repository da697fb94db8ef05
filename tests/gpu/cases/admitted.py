# SPDX-License-Identifier: MIT
"""Random sets of periodic CUDA tasks beside programs that never leave the GPU alone: are the bounds kept?

A set is admitted when the daemon accepts a bound on latency for each of its tasks, and each task's
response time then fits into its period. May not: know more of the GPU than the daemon promises.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from harness import Setup
from product import Product, Programs

#: Microseconds. What a launch and its completion cost on the CPU; what a change of contexts on the GPU
#: costs, with saving and restoring; by how much a kernel beside others is longer than alone.
HOST_US, CHANGE_US, LONGER = 300.0, 350.0, 1.1
LATENCY_US = 5000.0
SECONDS = 6.0
WARM_JOBS = 20  # of a program: its context is made, its first launches are slow


@dataclass(frozen=True)
class Periodic:
    """A kernel of so many microseconds, released every period."""

    kernel_us: int
    period_us: int

    @property
    def work_us(self) -> float:
        """What a job takes of the GPU at most."""
        return LONGER * self.kernel_us + CHANGE_US


def responses(tasks: list[Periodic]) -> list[float | None]:
    """Bound on each task's time from release to completion; None if it passes the period.

    The work of tasks with a bound on latency goes in turn, in an order that is not assumed to be any:
    so each job of another task that can be there in a job's window delays it once, for all of its work.
    """
    found: list[float | None] = []
    for task in tasks:
        own = LATENCY_US + HOST_US + task.work_us
        response = own
        while response <= task.period_us:
            longer = own + sum(
                ceil((response + other.period_us) / other.period_us) * other.work_us
                for other in tasks
                if other is not task
            )
            if longer <= response:
                break
            response = longer
        found.append(response if response <= task.period_us else None)
    return found


def draw(rng: random.Random) -> list[Periodic]:
    """One to three tasks."""
    return [
        Periodic(rng.choice((100, 300, 1000, 3000, 6000)), rng.choice((20_000, 33_000, 50_000, 100_000)))
        for _ in range(rng.randint(1, 3))
    ]


def run_set(
    setup: Setup, product: Product, tasks: list[Periodic], rng: random.Random
) -> list[np.ndarray] | str:
    """Latencies of the tasks' jobs in microseconds, beside one to three hogs; or the daemon's refusal."""
    with Programs(setup) as programs:
        for number in range(rng.randint(1, 3)):
            programs.busy(rng.choice((1000, 20000)), 60, product, f"hog{number}")
        programs.wait_working()
        # Asked beside the programs that it will be beside.
        for number, task in enumerate(tasks):
            try:
                # A bound holds for a vGPU that keeps to its share.
                share = ceil(130 * task.work_us / task.period_us)
                product.vgpu(f"task{number}", min=f"{share}%", latency=f"{LATENCY_US / 1000:g}ms")
            except RuntimeError as refused:
                return str(refused)
        outs, processes = [], []
        for number, task in enumerate(tasks):
            out = setup.work / f"rt-{time.monotonic_ns()}.txt"
            jobs = WARM_JOBS + int(SECONDS * 1e6 / task.period_us)
            turns = setup.turns_of(task.kernel_us)
            command = programs.load("rt", turns, task.period_us, 0, jobs, out)
            said = setup.work / "rt-said.txt"
            processes.append(programs.begin(command, None, product, f"task{number}", said=said))
            outs.append(out)
        for process in processes:
            process.wait(60)
        programs.end()
    return [np.loadtxt(out, ndmin=2)[WARM_JOBS:, 1] / 1e3 for out in outs]


def case_admitted(setup: Setup) -> None:
    """Random sets of periodic CUDA tasks beside hogs: those admitted keep their bounds, others miss."""
    rng = random.Random(2026)
    end = time.monotonic() + setup.seconds(20, setup.soak_s)
    sets: list[dict[str, Any]] = []
    by_daemon: list[str] = []
    with Product(setup) as product:
        for number in range(3):
            product.vgpu(f"hog{number}")
        for number in range(3):
            product.vgpu(f"task{number}")
        while time.monotonic() < end:
            tasks = draw(rng)
            for number in range(3):
                product.vgpu(f"task{number}", min="0%", latency="default")
            bounds = responses(tasks)
            seen = run_set(setup, product, tasks, rng)
            if isinstance(seen, str):
                by_daemon.append(seen)
                if len(by_daemon) > 20:
                    raise RuntimeError(f"the daemon refuses every set: {seen}")
                continue
            sets.append(
                {
                    "tasks": [(t.kernel_us, t.period_us) for t in tasks],
                    "admitted": None not in bounds,
                    "bounds_us": bounds,
                    "max_us": [float(s.max()) for s in seen],
                    "jobs": [int(s.size) for s in seen],
                    "passed": [int((s > b).sum()) if b is not None else 0 for s, b in zip(seen, bounds, strict=True)],
                    "late": [int((s > t.period_us).sum()) for s, t in zip(seen, tasks, strict=True)],
                }
            )
            print(f"    {sets[-1]}", flush=True)
    admitted = [s for s in sets if s["admitted"]]
    refused = [s for s in sets if not s["admitted"]]
    jobs = sum(sum(s["jobs"]) for s in admitted)
    setup.record(
        f"jobs of {len(admitted)} admitted sets that passed their bounds",
        "jobs",
        None,
        sum(sum(s["passed"]) for s in admitted),
        "0",
        sum(sum(s["passed"]) for s in admitted) == 0 and jobs > 0,
        jobs=jobs,
        closest=max((m / b for s in admitted for m, b in zip(s["max_us"], s["bounds_us"], strict=True)), default=0.0),
        refused_sets=len(refused),
        refused_that_were_late=sum(any(s["late"]) for s in refused),
        refused_by_the_daemon=by_daemon[:5],
        sets=sets,
    )
