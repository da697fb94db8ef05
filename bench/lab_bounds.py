#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Simulate random task sets that need nearly all that the analysis admits, by the million.

How many jobs were late, how near one came to its bound, and whether a bound was passed.

In parts of 100 000 sets, each with a seed of its own. A record keeps the counts of each part, so
that a run goes on where another one ended. Two kinds of sets:

- `cpu`: periodic jobs that need all of 2 to 4 CPUs, without overheads;
- `gpu`: beside them jobs that ask for a GPU under the k-FMLP, with interrupts of 0.4 to 1 ms in
  all, each of which stops a job that runs, on its CPU, for as long as it takes.

Global EDF, each job takes its worst case.  The bounds are those of rtxg.fast, which tests hold
against the exact ones.  Prints a line a part and a kind, and exits with 1 if a bound was passed.

usage: python3 bench/lab_bounds.py [--sets N] [--kinds cpu,gpu] [--keep FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))

import numpy as np
from numba import njit
from records import machine

from rtxg.fast import SCRATCH, _cluster

PART = 100_000
KINDS = ("cpu", "gpu")
PERIODS = np.array([2, 3, 4, 5, 6, 8, 9, 10, 12, 15, 16, 18, 20, 24, 30])
#: Of a set.
MOST_TASKS, MOST_GPUS = 12, 2
NEVER = 1 << 60
#: Phases of a job: before it asks for a GPU, waiting for one, on a CPU with it, on the GPU, until
#: the interrupt is over, and after that. Jobs without a GPU have the first one alone.
BEFORE, WAITING, HOLDING, ON_GPU, STRIKING, AFTER = range(6)


# Jobs without a GPU -------------------------------------------------------------------------------


@njit
def _draw(cpus, count, cost, period, first):
    """A set of ``count`` tasks with a utilisation as near ``cpus`` as whole costs allow."""
    total = 0.0
    for i in range(count):
        period[i] = PERIODS[np.random.randint(len(PERIODS))]
        cost[i] = np.random.randint(1, period[i] + 1)
        first[i] = np.random.randint(period[i]) if np.random.random() < 0.5 else 0
        total += cost[i] / period[i]
    for _ in range(1000):
        i = np.random.randint(count)
        if total > cpus + 1e-12 and cost[i] > 1:
            cost[i] -= 1
            total -= 1 / period[i]
    for _ in range(8 * count):
        i = np.random.randint(count)
        if cost[i] < period[i] and total + 1 / period[i] <= cpus + 1e-12:
            cost[i] += 1
            total += 1 / period[i]


@njit
def _lateness(cpus, count, cost, period, first, horizon, late):
    """Global EDF from time 0 to ``horizon``: each task's greatest lateness, in ``late``."""
    done = np.zeros(count, np.int64)  # jobs that have ended
    spent = np.zeros(count, np.int64)  # of the first one that has not
    key = np.empty(count, np.int64)
    runs = np.empty(cpus, np.int64)
    late[:count] = 0
    now = 0
    while now < horizon:
        step = horizon - now
        for i in range(count):
            release = first[i] + done[i] * period[i]
            if release <= now:
                key[i] = release + period[i]
            else:
                key[i] = -1
                step = min(step, release - now)
        running = 0
        while running < cpus:
            chosen = -1
            for i in range(count):
                if key[i] >= 0 and (chosen < 0 or key[i] < key[chosen]):
                    chosen = i
            if chosen < 0:
                break
            key[chosen] = -1
            runs[running] = chosen
            running += 1
            step = min(step, cost[chosen] - spent[chosen])
        now += step
        for a in range(running):
            i = runs[a]
            spent[i] += step
            if spent[i] == cost[i]:
                late[i] = max(late[i], now - (first[i] + (done[i] + 1) * period[i]))
                spent[i] = 0
                done[i] += 1


@njit
def search_cpu(sets, seed, share):
    """Sets that have a bound, tasks of theirs that were late, those later than ``share`` times their
    bound, and the greatest lateness as a share of that (infinite where a hard test had said never)."""
    np.random.seed(seed)
    cost, period = np.empty(MOST_TASKS, np.int64), np.empty(MOST_TASKS, np.int64)
    first, late = np.empty(MOST_TASKS, np.int64), np.empty(MOST_TASKS, np.int64)
    none, zeros = np.zeros(MOST_TASKS, np.int64), np.zeros(MOST_TASKS)
    scratch, chosen = np.empty((SCRATCH, MOST_TASKS)), np.empty(MOST_TASKS, np.int64)
    o = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1000.0)
    admitted, seen, passed, worst = 0, 0, 0, 0.0
    for _ in range(sets):
        cpus = np.random.randint(2, 5)
        count = np.random.randint(cpus + 1, min(MOST_TASKS, cpus + 5) + 1)
        # Not always all of the processors: hard tests say yes to some of these.
        share_of_cpus = np.random.uniform(0.4, 0.9) if np.random.random() < 0.3 else 1.0
        _draw(cpus * share_of_cpus, count, cost, period, first)
        bound = np.zeros(MOST_TASKS)
        bounded = _cluster(
            count, cpus, 0, cost[:count].astype(np.float64), zeros, zeros,
            period[:count].astype(np.float64),
            none, zeros, 1, o, 0, 2, 2, True, False, bound, scratch, chosen,
        )  # fmt: skip
        if not bounded:
            continue
        admitted += 1
        _lateness(cpus, count, cost, period, first, 1500, late)
        for i in range(count):
            if late[i] > 0:
                seen += 1
                ratio = late[i] / (share * bound[i]) if bound[i] > 0.0 else np.inf
                passed += ratio > 1.0
                worst = max(worst, ratio)
    return admitted, seen, passed, worst


# Jobs with a GPU, and interrupts ------------------------------------------------------------------


@njit
def _shared_lateness(
    cpus, gpus, count, before, inside, on_gpu, after, calls, period, first, strike, victims,
    horizon, late
):  # fmt: skip
    """The same where tasks with ``calls`` ask for a GPU once a job.

    Under it each call is ``inside`` on a CPU, then ``on_gpu``, then an interrupt of length ``strike``
    that stops a job on its CPU, where it stays: the most urgent one that runs (``victims`` 0), any
    (1) or the least urgent (2).  A request joins the queue with the shortest sections ahead, and
    a holder has the earliest deadline of those that wait for it.
    """
    done = np.zeros(count, np.int64)
    phase = np.zeros(count, np.int64)
    left = before[:count].copy()  # of the phase, on a CPU
    calls_left = np.zeros(count, np.int64)
    until = np.full(count, NEVER)  # the end of what is on the GPU, or of the own interrupt
    struck = np.zeros(count, np.int64)  # the job on its CPU is stopped until then
    queue = np.full(count, -1)
    turn = np.zeros(count, np.int64)
    key = np.empty(count, np.int64)
    runs = np.empty(cpus, np.int64)
    turns = 0
    late[:count] = 0
    now = 0
    while now < horizon:
        # Who runs: first those that an interrupt holds on their CPUs, then by deadline.
        step = horizon - now
        running = 0
        for i in range(count):
            release = first[i] + done[i] * period[i]
            key[i] = -1
            if release > now:
                step = min(step, release - now)
            elif phase[i] == ON_GPU or phase[i] == STRIKING:
                step = min(step, until[i] - now)
            elif struck[i] > now:
                runs[running] = i
                running += 1
                step = min(step, struck[i] - now)
            elif phase[i] != WAITING:
                key[i] = release + period[i]
                if phase[i] == HOLDING:
                    for j in range(count):
                        if phase[j] == WAITING and queue[j] == queue[i]:
                            key[i] = min(key[i], first[j] + (done[j] + 1) * period[j])
        stopped = running
        while running < cpus:
            chosen = -1
            for i in range(count):
                if key[i] >= 0 and (chosen < 0 or key[i] < key[chosen]):
                    chosen = i
            if chosen < 0:
                break
            key[chosen] = -1
            runs[running] = chosen
            running += 1
            step = min(step, left[chosen])
        now += step
        # What was on a CPU gets on, and may end its phase.
        for a in range(stopped, running):
            i = runs[a]
            left[i] -= step
            if left[i] > 0:
                continue
            if phase[i] == HOLDING:
                phase[i] = ON_GPU
                until[i] = now + on_gpu[i]
            elif phase[i] == BEFORE and calls[i] > 0:
                least = NEVER
                for q in range(gpus):
                    ahead = 0
                    for j in range(count):
                        if queue[j] == q:
                            ahead += calls[j] * (inside[j] + on_gpu[j] + strike)
                    if ahead < least:
                        least = ahead
                        queue[i] = q
                phase[i] = WAITING
                turns += 1
                turn[i] = turns
            else:
                late[i] = max(late[i], now - (first[i] + (done[i] + 1) * period[i]))
                done[i] += 1
                phase[i] = BEFORE
                left[i] = before[i]
        # Interrupts that are over let their own job go on; those that come strike one that ran.
        for i in range(count):
            if phase[i] == STRIKING and until[i] <= now:
                calls_left[i] -= 1
                if calls_left[i] > 0:
                    phase[i] = HOLDING
                    left[i] = inside[i]
                else:
                    phase[i] = AFTER
                    left[i] = after[i]
                    queue[i] = -1
        for i in range(count):
            if phase[i] == ON_GPU and until[i] <= now:
                phase[i] = STRIKING
                until[i] = now + strike
                victim = -1
                for a in range(running):
                    j = runs[a]
                    on_cpu = phase[j] == BEFORE or phase[j] == HOLDING or phase[j] == AFTER
                    if not on_cpu or first[j] + done[j] * period[j] > now:
                        continue  # its CPU is free now
                    if victim < 0:
                        victim = j
                        continue
                    sooner = (
                        first[j] + (done[j] + 1) * period[j]
                        < first[victim] + (done[victim] + 1) * period[victim]
                    )
                    if (victims == 1 and np.random.random() < 0.5) or (
                        victims != 1 and sooner == (victims == 0)
                    ):
                        victim = j
                if victim >= 0:
                    struck[victim] = max(struck[victim], now) + strike
                    until[i] = struck[victim]
        # A GPU without a holder goes to who has waited longest.
        for q in range(gpus):
            head = -1
            for i in range(count):
                if queue[i] == q and (head < 0 or turn[i] < turn[head]):
                    head = i
            if head >= 0 and phase[head] == WAITING:
                phase[head] = HOLDING
                left[head] = inside[head]
                calls_left[head] = calls[head]


@njit
def _admits(
    cpus, gpus, count, costs, period, users, calls, top, bottom, forget, bound, scratch, chosen
):
    """Whether lateness is bounded, and the bounds.  ``forget``: what the analysis is not told, for
    tests that see it fail: 1 the interrupts, 2 the waits for a GPU."""
    o = (0.0, 0.0, 0.0, 0.0, top, bottom, 0.0, 0.0, 0.0, 0.0, 1e12)
    if forget == 1:
        o = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1e12)
    bound[:] = 0.0
    return _cluster(
        count, cpus, 0 if forget == 2 else gpus, costs[0], costs[1], costs[2],
        period[:count].astype(np.float64),
        users, np.zeros(count), calls, o, 1, 2, 2, True, True, bound, scratch, chosen,
    )  # fmt: skip


@njit
def search_gpu(sets, seed, share, forget):
    """As :func:`search_cpu`, for sets with GPUs and interrupts; time in tenths of a millisecond."""
    np.random.seed(seed)
    before, inside = np.empty(MOST_TASKS, np.int64), np.zeros(MOST_TASKS, np.int64)
    on_gpu, after = np.zeros(MOST_TASKS, np.int64), np.empty(MOST_TASKS, np.int64)
    calls, users = np.zeros(MOST_TASKS, np.int64), np.zeros(MOST_TASKS, np.int64)
    period, first = np.empty(MOST_TASKS, np.int64), np.empty(MOST_TASKS, np.int64)
    late, costs, bound = (
        np.empty(MOST_TASKS, np.int64),
        np.zeros((3, MOST_TASKS)),
        np.zeros(MOST_TASKS),
    )
    scratch, chosen = np.empty((SCRATCH, MOST_TASKS)), np.empty(MOST_TASKS, np.int64)
    admitted, seen, passed, worst = 0, 0, 0, 0.0
    for _ in range(sets):
        cpus, gpus = np.random.randint(1, 5), np.random.randint(1, MOST_GPUS + 1)
        count = np.random.randint(cpus + 1, cpus + 5)
        using = np.random.randint(1, min(4, count - 1) + 1)
        eta = np.random.randint(1, 3)
        top, bottom = np.random.randint(1, 5), np.random.randint(3, 7)
        strike = top + bottom
        for i in range(count):
            period[i] = 10 * PERIODS[np.random.randint(5, len(PERIODS))]  # 8 ms or more
            first[i] = np.random.randint(period[i]) if np.random.random() < 0.5 else 0
            users[i] = i < using
            calls[i] = eta if users[i] else 0
            inside[i] = np.random.randint(1, 6) if users[i] else 0
            on_gpu[i] = 1 + np.random.randint(0, period[i] // 5 + 1) if users[i] else 0
            before[i] = 1
            after[i] = 1 if users[i] else 0
            costs[0, i] = before[i] + after[i] + calls[i] * inside[i]
            costs[1, i] = calls[i] * (on_gpu[i] + strike)
            costs[2, i] = calls[i] * (inside[i] + on_gpu[i] + strike)
        if not _admits(
            cpus,
            gpus,
            count,
            costs,
            period,
            users,
            eta,
            top,
            bottom,
            forget,
            bound,
            scratch,
            chosen,
        ):
            continue
        # Longer jobs, one task after the other, for as long as the analysis says yes.
        start = np.random.randint(count)
        for a in range(count):
            i = (start + a) % count
            step = 1 << np.random.randint(3, 9)
            while step:
                costs[0, i] += step
                if _admits(
                    cpus,
                    gpus,
                    count,
                    costs,
                    period,
                    users,
                    eta,
                    top,
                    bottom,
                    forget,
                    bound,
                    scratch,
                    chosen,
                ):
                    before[i] += step
                else:
                    costs[0, i] -= step
                step //= 2
        if not _admits(
            cpus,
            gpus,
            count,
            costs,
            period,
            users,
            eta,
            top,
            bottom,
            forget,
            bound,
            scratch,
            chosen,
        ):
            continue
        admitted += 1
        _shared_lateness(
            cpus, gpus, count, before, inside, on_gpu, after, calls, period, first, strike,
            np.random.randint(3), 15_000, late,
        )  # fmt: skip
        for i in range(count):
            if late[i] > 0:
                seen += 1
                ratio = late[i] / (share * bound[i]) if bound[i] > 0.0 else np.inf
                passed += ratio > 1.0
                worst = max(worst, ratio)
    return admitted, seen, passed, worst


# Parts --------------------------------------------------------------------------------------------


def run_part(kind: str, number: int) -> dict[str, object]:
    """The counts of one part; the same on every machine."""
    seed = 1_000_000 * (1 + KINDS.index(kind)) + number
    found = search_cpu(PART, seed, 1.0) if kind == "cpu" else search_gpu(PART, seed, 1.0, 0)
    admitted, late, passed, closest = found
    return {
        "sets": PART,
        "with_a_bound": int(admitted),
        "late_tasks": int(late),
        "bounds_passed": int(passed),
        "closest": round(float(closest), 6) if closest != np.inf else "infinite",
    }


def summed(parts: dict[str, dict]) -> dict[str, object]:
    """The counts of all parts."""
    found: dict[str, object] = {
        key: sum(part[key] for part in parts.values())
        for key in ("sets", "with_a_bound", "late_tasks", "bounds_passed")
    }
    found["closest"] = max(
        (float(str(p["closest"]).replace("infinite", "inf")) for p in parts.values()), default=0.0
    )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=1_000_000, help="of each kind (1000000)")
    parser.add_argument("--kinds", default=",".join(KINDS), help="with commas (all)")
    parser.add_argument(
        "--keep", type=Path, metavar="FILE", help="record to go on with, and to write"
    )
    options = parser.parse_args()
    if options.sets < PART or options.sets % PART:
        parser.error(f"--sets {options.sets} are no whole parts; give a multiple of {PART}")
    for kind in options.kinds.split(","):
        if kind not in KINDS:
            parser.error(f"kind {kind} is unknown; there are {', '.join(KINDS)}")
    kept: dict = {"command": "bench/lab_bounds.py", "part": PART, "parts": {}}
    if options.keep and options.keep.exists():
        try:
            kept = json.loads(options.keep.read_text(encoding="utf-8"))
            whole = kept["part"] == PART and isinstance(kept["parts"], dict)
        except (ValueError, KeyError, TypeError):
            whole = False
        if not whole:
            parser.error(f"{options.keep} is no record of parts of {PART} sets; name another file")
    for kind in options.kinds.split(","):
        parts = kept["parts"].setdefault(kind, {})
        for number in range(options.sets // PART):
            if str(number) in parts:
                continue
            parts[str(number)] = run_part(kind, number)
            print(f"{kind}, part {number}: {parts[str(number)]}", flush=True)
            kept |= {"machine": machine(), "date": date.today().isoformat()}
            kept["sums"] = {name: summed(known) for name, known in kept["parts"].items()}
            if options.keep:
                options.keep.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        print(f"{kind}: {summed(parts)}", flush=True)
    return 1 if any(summed(parts)["bounds_passed"] for parts in kept["parts"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
