#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`rtxg latency` beside cyclictest and rtla, in turns on the same CPU: latencies, and what measuring costs.

usage: latency_peers.py [--seconds S] [--rounds N] [--cpu CPU] [--out FILE]

Prints a table and writes JSON. A tool that is not here is left out, and the output says so. Needs
root for real-time priority. The aims: the median of the maxima is that of cyclictest within the
spread of the rounds, and so is the CPU time.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
PROGRAM = Path(os.environ.get("RTXG_LATENCY", TOP / "build/release/latency/rtxg-latency"))
COMMON = ["-m", "-p", "95", "-i", "200"]


def cpu_seconds() -> float:
    """Of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cyclictest(cpu: int, seconds: int) -> dict[str, float]:
    """Its summary line."""
    said = run(["cyclictest", *COMMON, "-t", "1", "-a", str(cpu), "-D", str(seconds), "-q"])
    found = re.search(r"C: *(\d+) Min: *(\d+) Act: *\d+ Avg: *(\d+) Max: *(\d+)", said)
    assert found, said
    return dict(zip(("cycles", "min_us", "avg_us", "max_us"), map(float, found.groups()), strict=True))


def ours(cpu: int, seconds: int, *more: str) -> dict[str, float]:
    """The JSON of rtxg latency."""
    said = run([str(PROGRAM), *COMMON, "-a", str(cpu), "-D", str(seconds), "-q", "--json", *more])
    seen = json.loads(said)["threads"][0]["observed"]
    return {"cycles": seen["count"], "min_us": seen["min_us"], "avg_us": seen["avg_us"], "max_us": seen["max_us"]}


def rtla(cpu: int, seconds: int) -> dict[str, float]:
    """The thread's latency by the timerlat tracer."""
    said = run(["rtla", "timerlat", "top", "-q", "-c", str(cpu), "-p", "200", "-P", "f:95", "-d", f"{seconds}s"])
    # CPU COUNT | cur min avg max (timer interrupt) | cur min avg max (thread)
    found = re.search(rf"^ *{cpu} +#(\d+) .*\| +\d+ +(\d+) +(\d+) +(\d+) *$", said, re.M)
    if not found:
        raise FileNotFoundError(f"rtla shows no line of CPU {cpu}: {said.strip()[:200]}")
    return dict(zip(("cycles", "min_us", "avg_us", "max_us"), map(float, found.groups()), strict=True))


def run(command: list[str]) -> str:
    """What a tool printed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        raise FileNotFoundError(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()[:200]}")
    return done.stdout


TOOLS = {
    "cyclictest": cyclictest,
    "rtxg latency --user-only": lambda cpu, seconds: ours(cpu, seconds, "--user-only"),
    "rtxg latency": ours,
    "rtla timerlat": rtla,
}


def main() -> int:
    """Rounds in turn, so that a change of the machine's load hits all tools."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=10, help="of each run (10)")
    parser.add_argument("--rounds", type=int, default=5, help="how many (5)")
    parser.add_argument("--cpu", type=int, default=max(os.sched_getaffinity(0)), help="which (the last)")
    parser.add_argument("--out", type=Path, help="write JSON")
    options = parser.parse_args()
    results: dict[str, list[dict[str, float]]] = {name: [] for name in TOOLS}
    left_out: dict[str, str] = {}
    for _ in range(options.rounds):
        for name, tool in TOOLS.items():
            if name in left_out:
                continue
            if name.split()[0] in ("cyclictest", "rtla") and not shutil.which(name.split()[0]):
                left_out[name] = "not installed"
                continue
            before, begin = cpu_seconds(), time.monotonic()
            try:
                one = tool(options.cpu, options.seconds)
            except FileNotFoundError as error:
                left_out[name] = str(error)
                continue
            one["cpu_percent"] = 100 * (cpu_seconds() - before) / (time.monotonic() - begin)
            results[name].append(one)
    print(f"{'TOOL':26} {'MIN':>7} {'AVG':>7} {'MAX median':>11} {'MAX least..most':>18} {'CPU %':>6}")
    for name, runs in results.items():
        if not runs:
            print(f"{name:26} left out: {left_out[name]}")
            continue
        maxima = [r["max_us"] for r in runs]
        print(
            f"{name:26} {min(r['min_us'] for r in runs):7.1f} {statistics.mean(r['avg_us'] for r in runs):7.1f} "
            f"{statistics.median(maxima):11.1f} {f'{min(maxima):.0f}..{max(maxima):.0f}':>18} "
            f"{statistics.median(r['cpu_percent'] for r in runs):6.2f}"
        )
    if options.out:
        machine = json.loads(run([str(PROGRAM), "-q", "--json", "-l", "1", "--user-only", "--default-system"]))["machine"]
        record = {
            "bench": "latency_peers", "date": time.strftime("%Y-%m-%d", time.gmtime()), "machine": machine,
            "seconds": options.seconds, "options": COMMON, "runs": results, "left_out": left_out,
            "load_average": os.getloadavg(),
        }
        options.out.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
