#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""CPU seconds that one verdict of rtxg.analyze takes.

First for sets of 20, 160 and 300 tasks on 24 CPUs and 8 GPUs, without overheads and with those of
Table III: tasks, utilisation, interrupts, what was found, seconds.  Then for random sets of 300
tasks, of each scheduler, number of clusters, kind of period, of deadline, of interrupts and of lock:
how many took above one second, and the slowest.  A first set warms up the solver.

usage: python3 bench/lab_exact.py [--random N] [--first SEED] [--keep FILE]
"""

import argparse
import json
import random
import sys
import time
from datetime import date
from fractions import Fraction
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))

from records import machine

from rtxg import NO_OVERHEADS, TABLE_III, Analysis, Platform, Task, TaskSet, analyze


def draw(count: int, utilization: int) -> TaskSet:
    """Every fourth task uses a GPU for half of its time."""
    rng = random.Random(3)
    tasks = []
    for i in range(count):
        period = rng.randint(15_000, 60_000)
        cost = max(50, int(period * utilization * rng.uniform(0.5, 1.5) / count))
        gpu = cost // 2 if i % 4 == 0 else 0
        tasks.append(
            Task(
                f"t{i}",
                Fraction(cost - gpu),
                Fraction(period),
                gpu_calls=int(gpu > 0),
                gpu_time=Fraction(gpu),
            )
        )
    return TaskSet(tuple(tasks), Platform(24, 1, 8))


def random_task(rng: random.Random, name: str, share: float, gpu: bool, kinds: dict) -> Task:
    """One that needs that share of a CPU, or half as much again, or half as much."""
    period = Fraction(rng.randint(*kinds["periods"]))
    fine = Fraction(rng.randint(0, 999), 1000) if kinds["times"] == "fractions" else Fraction(0)
    if kinds["times"] == "milliseconds":
        period = Fraction(max(1000, period // 1000 * 1000))
    period += fine
    cost = max(20, int(period * Fraction(share * rng.uniform(0.5, 1.5)))) + fine
    deadline = period
    if kinds["deadlines"] == "constrained":
        deadline = max(cost, Fraction(int(period * Fraction(rng.uniform(0.3, 1)))))
    elif kinds["deadlines"] == "arbitrary":
        deadline = Fraction(int(period * Fraction(rng.uniform(0.5, 2))))
    on_gpu = cost // 2 if gpu and rng.random() < 0.3 else Fraction(0)
    calls = rng.choice((1, 3)) if on_gpu else 0
    return Task(name, cost - on_gpu, period, deadline, gpu_calls=calls, gpu_time=on_gpu)


def random_set(seed: int, count: int = 300) -> tuple[TaskSet, dict, dict]:
    """A set, how it is analysed, and what it is."""
    rng = random.Random(seed)
    scheduler = rng.choice(("G-EDF", "G-EDF", "G-EDF", "G-FL", "RM", "P-FP"))
    clusters, each = rng.choice((1, 1, 2, 4)), rng.choice((1, 2, 4, 8, 16, 24))
    gpus = clusters * rng.choice((0, 1, 2, 4))
    if scheduler == "P-FP":
        clusters, each, gpus = 8, 1, 1
    kinds = {
        "scheduler": scheduler,
        "clusters": clusters,
        "cpus": clusters * each,
        "gpus": gpus,
        "load": round(rng.uniform(0.3, 1), 3),
        "periods": rng.choice(((15_000, 60_000), (3000, 200_000), (1000, 1_000_000))),
        "times": rng.choice(("microseconds", "milliseconds", "fractions")),
        "deadlines": rng.choice(("implicit", "implicit", "constrained", "arbitrary")),
        "interrupts": rng.choice(("none", "slih", "pai", "klmirqd", "rtxg")),
        "lock": rng.choice(
            ("exact", "fmlp+", "mpcp")
            if scheduler == "P-FP"
            else ("capped", "exact", "aware", "oblivious", "omlp")
        ),
    }
    share = kinds["load"] * clusters * each / count
    tasks = [random_task(rng, f"t{i}", share, gpus > 0, kinds) for i in range(count)]
    overheads = NO_OVERHEADS if kinds["interrupts"] == "none" else TABLE_III
    how = {"interrupts": kinds["interrupts"], "overheads": overheads, "lock": kinds["lock"]}
    return TaskSet(tuple(tasks), Platform(clusters * each, clusters, gpus, scheduler)), how, kinds


def timed(system: TaskSet, how: dict) -> tuple[Analysis, float]:
    """The verdict, and the CPU seconds that it took."""
    started = time.process_time()
    found = analyze(system, **how)
    return found, time.process_time() - started


def verdict(found: Analysis) -> str:
    return "refused" if not found.schedulable else "never late" if found.hard else "bounded"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--random", type=int, default=100, metavar="N", help="random sets (100)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="of the first one (0)")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="write what was found as JSON")
    options = parser.parse_args()
    regular, slow, took = [], [], []
    for count in (20, 160, 300):
        for utilization in (12, 20, 23):
            system = draw(count, utilization)
            for interrupts, overheads in (("none", NO_OVERHEADS), ("klmirqd", TABLE_III)):
                how = {"interrupts": interrupts, "overheads": overheads, "lock": "capped"}
                found, spent = timed(system, how)
                said = verdict(found)
                print(f"{count:4d} {utilization:3d} {interrupts:8s} {said:10s} {spent:6.2f} s")
                regular.append([count, utilization, interrupts, said, round(spent, 3)])
    for seed in range(options.first, options.first + options.random):
        system, how, kinds = random_set(seed)
        found, spent = timed(system, how)
        took.append(spent)
        if spent > 1:
            slow.append(kinds | {"seed": seed, "found": verdict(found), "seconds": round(spent, 2)})
            print(f"seed {seed}: {spent:.2f} s, {verdict(found)}: {kinds}", flush=True)
    if took:
        took.sort()
        print(f"{len(took)} random sets of 300 tasks: {len(slow)} took more than 1 s")
        print(f"median {took[len(took) // 2]:.3f} s, slowest {took[-1]:.2f} s")
    if options.keep:
        record = {
            "machine": machine(),
            "date": date.today().isoformat(),
            "command": "bench/lab_exact.py",
            "columns": ["tasks", "utilization", "interrupts", "verdict", "cpu seconds"],
            "regular": regular,
            "random_sets_of_300_tasks": {
                "sets": len(took),
                "first_seed": options.first,
                "median": round(took[len(took) // 2], 3) if took else None,
                "slowest": round(took[-1], 3) if took else None,
                "above_one_second": slow,
            },
        }
        options.keep.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
