#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""CPU seconds that one verdict of rtxg.analyze takes, for sets of 20, 160 and 300 tasks on 24 CPUs and 8
GPUs, without overheads and with those of Table III.  Each line: tasks, utilisation, interrupts, what
was found, seconds.

usage: python3 bench/lab_exact.py
"""

import random
import sys
import time
from fractions import Fraction
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))

from rtxg import NO_OVERHEADS, TABLE_III, Platform, Task, TaskSet, analyze


def draw(count: int, utilization: int) -> TaskSet:
    """Every fourth task uses a GPU for half of its time."""
    rng = random.Random(3)
    tasks = []
    for i in range(count):
        period = rng.randint(15_000, 60_000)
        cost = max(50, int(period * utilization * rng.uniform(0.5, 1.5) / count))
        gpu = cost // 2 if i % 4 == 0 else 0
        tasks.append(
            Task(f"t{i}", Fraction(cost - gpu), Fraction(period), gpu_calls=int(gpu > 0), gpu_time=Fraction(gpu))
        )
    return TaskSet(tuple(tasks), Platform(24, 1, 8))


def main() -> int:
    for count in (20, 160, 300):
        for utilization in (12, 20, 23):
            system = draw(count, utilization)
            for interrupts, overheads in (("none", NO_OVERHEADS), ("klmirqd", TABLE_III)):
                started = time.process_time()
                found = analyze(system, interrupts=interrupts, overheads=overheads, lock="capped")
                spent = time.process_time() - started
                verdict = "refused" if not found.schedulable else "never late" if found.hard else "bounded"
                print(f"{count:4d} {utilization:3d} {interrupts:8s} {verdict:10s} {spent:6.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
