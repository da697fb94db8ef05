#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What following an order costs: execution overhead of each host over the plain program.

    bench/order_overhead.py [--hosts NAME,...] [--cpus N,...] [--rounds N] [--sweep]

The programs under bench/order know nothing of rtxg. Each is built twice, as it stands and with the
flags of `rtxg order flags`, and says itself how long its threads took from the first start to the
last end. Overhead is (T - T_plain) / T_plain in percent, of medians; the plain program and all
hosts take turns, so that a machine that slows down slows all of them.

--cpus repeats all of it on so many CPUs. --sweep measures share.c instead, over the share of
accesses that an order restricts. The prototypes proto-1 to proto-6 need rtxg.ko and are left out
where it is not loaded.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ.get("RTXG_BUILD", TOP / "build/release"))
ORDERS = TOP / "bench/order"
HOSTS = ["futex", "opt", "shared", *(f"proto-{n}" for n in range(1, 7))]
CASES = {
    "fibonacci": ("fibonacci-1", "fibonacci-2", "fibonacci-3"),
    "last_zero": ("last_zero-1", "last_zero-2", "last_zero-3", "last_zero-4"),
    "indexer": ("indexer-1", "indexer-2"),
    "philosophers": ("philosophers-1", "philosophers-2", "philosophers-3"),
}
#: the aim of ours on Fibonacci's orders, percent
AIM = 30
SHARES = (0, 1, 2, 5, 10, 20, 50, 100)


def threads_ns(command: list[str | Path], cpus: str) -> float:
    """One run on these CPUs; what the program says on stderr."""
    done = subprocess.run(
        ["taskset", "-c", cpus, *command], capture_output=True, text=True, check=False
    )
    took = re.search(r"threads took (\d+) ns", done.stderr)
    if done.returncode or not took:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return float(took[1])


def measure(program: str, orders: dict[str, Path], hosts: list[str], cpus: str, rounds: int) -> dict:
    """Medians in nanoseconds: (order, host), ("plain", "") and ("built", ""), the library idle."""
    built = BUILD / "bench/order" / program
    commands: dict[tuple[str, str], list[str | Path]] = {
        ("plain", ""): [f"{built}-plain"],
        ("built", ""): [built],
    }
    for name, order in orders.items():
        for host in hosts:
            commands[name, host] = [
                BUILD / "cli/rtxg", "order", "run", "--host", host, order, "--", built,
            ]
    times: dict[tuple[str, str], list[float]] = {key: [] for key in commands}
    for number in range(rounds):
        for key, command in commands.items():
            # Threads that look without end need a time slice for each step where CPUs are few.
            if key[1] == "shared" and number >= max(3, rounds // 8):
                continue
            times[key].append(threads_ns(command, cpus))
    return {key: statistics.median(values) for key, values in times.items()}


def report(name: str, host: str, took: float, plain: float, aim: float) -> None:
    """One line, and one entry of the benchmark's file."""
    overhead = (took - plain) / plain * 100
    met = overhead <= aim
    said = f" (aim <= {aim:g} %: {'met' if met else 'NOT met'})" if aim else ""
    print(f"{name:24} {host:8} {took / 1000:9.1f} us, plain {plain / 1000:8.1f} us: "
          f"overhead {overhead:8.1f} %{said}", flush=True)
    folder = os.environ.get("RTXG_BENCH_DIR")
    if not folder:
        return
    path = Path(folder) / "order_overhead.json"
    entries = json.loads(path.read_text()) if path.exists() else []
    entries.append({
        "name": f"{name}, {host}", "unit": "ns", "rtxg": took, "alternative": plain,
        "alternative_name": "plain", "figure_name": "overhead, percent", "figure": overhead,
        "aim": aim, "met": met,
    })
    path.write_text(json.dumps(entries, indent=1) + "\n")


def share_order(share: int, folder: Path) -> Path:
    """An order that restricts this percentage of the accesses of share.c: each such access waits for
    the same access of the thread before, thread 1's for nobody."""
    threads, accesses = 4, 2000
    lines = []
    for number in range(accesses):
        if share and number * share // 100 != (number - 1) * share // 100:
            for thread in range(1, threads):
                clocks = [0] * threads
                clocks[thread], clocks[thread - 1] = number, number + 1
                lines.append(f"({thread + 1},[{':'.join(map(str, clocks))}])")
    path = folder / f"share-{share}.order"
    head = "variables counts\nothers free\n"
    head += "".join(f"thread {t + 1} main.{t + 1}\n" for t in range(threads))
    path.write_text(head + "{\n" + ",\n".join(lines) + "\n}\n")
    return path


def main() -> int:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--hosts", default="", help="comma-separated (all that work)")
    parser.add_argument("--cpus", default="", help="numbers of CPUs, comma-separated (all)")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--programs", default=",".join(CASES))
    options = parser.parse_args()
    usable = sorted(os.sched_getaffinity(0))
    hosts = options.hosts.split(",") if options.hosts else [
        h for h in HOSTS if not h.startswith("proto") or os.access("/dev/rtxg", os.R_OK | os.W_OK)
    ]
    counts = [int(n) for n in options.cpus.split(",")] if options.cpus else [len(usable)]
    with tempfile.TemporaryDirectory() as folder:
        for count in counts:
            if count > len(usable):
                print(f"{count} CPUs: this machine has {len(usable)}", file=sys.stderr)
                continue
            cpus = ",".join(map(str, usable[:count]))
            where = f", {count} CPUs" if options.cpus else ""
            cases = {"share": ()} if options.sweep else {p: CASES[p] for p in options.programs.split(",")}
            for program, names in cases.items():
                orders = {name: ORDERS / f"{name}.order" for name in names}
                if options.sweep:
                    orders = {f"share {s} %": share_order(s, Path(folder)) for s in SHARES}
                medians = measure(program, orders, hosts, cpus, options.rounds)
                plain = medians.pop(("plain", ""))
                report(f"{program}, no order{where}", "idle", medians.pop(("built", "")), plain, 0)
                for (name, host), took in medians.items():
                    aim = AIM if host == "futex" and program == "fibonacci" else 0
                    report(name + where, host, took, plain, aim)
    return 0


if __name__ == "__main__":
    sys.exit(main())
