#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What ceilings of kernel threads would cost for each wait, rather than for as long as a program has a task.

usage: python3 bench/ceiling_waits.py [--rounds N] [--keep LABEL]
       needs root: it sets a kernel thread that sleeps (oom_reaper), and sets it back

Measured, as processor time, so that a busy machine matters little:
  set    a kernel thread is given a real-time priority, and set back
  tell   one process tells another, which sleeps, that a wait begins or ends

From the record of an H200's interrupts (bench/results/irq-times-h200-2026-11-23.json): how many waits a
second three programs have, and how many of their interrupts let a thread of the kernel or a worker
run.  Prints what the ceilings of 1, 4 and 16 threads would take of a CPU if each wait raised them and
set them back.  Writes build/bench/ceiling_waits.json, and with --keep bench/results/LABEL.json.  Exit
status 77 where no kernel thread may be set.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
RECORD = TOP / "bench/results/irq-times-h200-2026-11-23.json"
NAME = "oom_reaper"
THREADS = (1, 4, 16)
CALLS = 2000


def kernel_thread() -> int | None:
    """The thread that is set: an ordinary one of the kernel's, which sleeps."""
    try:
        children = Path("/proc/2/task/2/children").read_text().split()
    except OSError:
        return None
    for pid in map(int, children):
        if Path(f"/proc/{pid}/comm").read_text().strip() == NAME:
            return pid
    return None


def floor_ns() -> float:
    """A system call that does nothing, with what Python adds to any."""
    began = time.thread_time_ns()
    for _ in range(CALLS):
        os.getppid()
    return (time.thread_time_ns() - began) / CALLS


def set_ns(thread: int) -> float:
    """Raising the thread and setting it back."""
    high, low = os.sched_param(90), os.sched_param(0)
    began = time.thread_time_ns()
    for _ in range(CALLS):
        os.sched_setscheduler(thread, os.SCHED_FIFO, high)
        os.sched_setscheduler(thread, os.SCHED_OTHER, low)
    return (time.thread_time_ns() - began) / CALLS


def tell_ns() -> float:
    """One message to a process that sleeps until it comes: what both take. The answer is the next
    message.
    """
    there, back = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        for _ in range(CALLS):
            os.read(there[0], 8)
            os.write(back[1], b"12345678")
        os.write(back[1], str(time.process_time_ns()).encode().rjust(24))
        os._exit(0)
    began = time.thread_time_ns()
    for _ in range(CALLS):
        os.write(there[1], b"12345678")
        os.read(back[0], 8)
    mine = time.thread_time_ns() - began
    others = int(os.read(back[0], 24))
    os.waitpid(child, 0)
    for end in (*there, *back):
        os.close(end)
    # the child's own start is in its time: a process of Python's that was forked has little of it
    return (mine + others) / CALLS / 2


def measure(thread: int, rounds: int) -> dict[str, float]:
    floors, sets, tells = [], [], []
    for _ in range(rounds):
        floors.append(floor_ns())
        sets.append(set_ns(thread))
        tells.append(tell_ns())
    floor = statistics.median(floors)
    return {
        "floor_ns": floor,
        "set_and_back_ns": statistics.median(sets) - 2 * floor,
        "tell_ns": statistics.median(tells),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15, help="the median of so many (default 15)")
    parser.add_argument("--keep", metavar="LABEL", help="also write bench/results/LABEL.json")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: give 1 or more")
    thread = kernel_thread()
    if thread is None:
        print(f"skipped: the kernel's thread {NAME} is not to be seen here")
        return 77
    if os.sched_getscheduler(thread) != os.SCHED_OTHER:
        print(f"skipped: {NAME} is no ordinary thread here")
        return 77
    try:
        found = measure(thread, options.rounds)
    except PermissionError:
        print("skipped: no right to set a kernel thread's priority; run it as root")
        return 77
    finally:
        if os.sched_getscheduler(thread) != os.SCHED_OTHER:
            os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))

    record = json.loads(RECORD.read_text())
    nvidia = record["interrupts"][0]
    waits = nvidia["per_s"]
    ran = sum(nvidia["times"][kind]["count"] for kind in ("threads", "workers"))
    interrupts = nvidia["times"]["top half"]["count"]
    shares = {
        str(n): waits * (n * found["set_and_back_ns"] + 2 * found["tell_ns"]) / 1e9 for n in THREADS
    }
    result = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": {"kernel": platform.release(), "cpus": os.cpu_count()},
        "rounds": options.rounds,
        **found,
        "waits_per_s": waits,
        "interrupts": interrupts,
        "let_a_thread_run": ran,
        "share_of_a_cpu": shares,
    }
    print("| processor time | |\n|---|---|")
    print(f"| a kernel thread raised and set back | {found['set_and_back_ns'] / 1e3:.2f} us |")
    print(f"| one message to a process that sleeps | {found['tell_ns'] / 1e3:.2f} us |")
    print(
        f"\n{waits:.0f} waits a second; of {interrupts} interrupts {ran} let a thread or worker run\n"
    )
    print("| threads with a ceiling | of a CPU, if each wait raises them |\n|---|---|")
    for n in THREADS:
        print(f"| {n} | {shares[str(n)]:.1%} |")
    out = Path(os.environ.get("RTXG_BENCH_DIR", TOP / "build/bench"))
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(result, indent=1) + "\n"
    (out / "ceiling_waits.json").write_text(text)
    if options.keep:
        (TOP / f"bench/results/{options.keep}.json").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
