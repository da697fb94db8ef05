#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`rtxg latency` beside cyclictest and rtla, in turns on the same CPU: latencies, and what measuring costs.

usage: latency_peers.py [--seconds S] [--rounds N] [--cpus CPU,...] [--before PROGRAM]
                        [--out FILE]

Prints a table with ratios to cyclictest, and writes JSON. A tool that is not here is left out, and
the output says so. Needs root for real-time priority. The aims: the mean, the maximum and the CPU
time of the threads alone are those of cyclictest: 1 lies within the interval.

Each round runs all tools on one CPU, the next round on the next CPU, and each round begins with
another tool. cyclictest runs twice in a round: the ratio of its second run to its first shows what
noise alone makes of a ratio. A ratio is that of two runs of one round. The median of the rounds
counts, with the interval that has the true median with 95 %, from the order of the ratios alone.

cyclictest traces nothing, so a late wake-up has no culprit there. Its users have the kernel trace
beside it then, and it stops the trace at a threshold (-b, with trace-cmd start before). "cyclictest
with ftrace" is that, with the events that `rtxg latency` looks at, in a tracing instance of its own.
--before names an older build of rtxg-latency, which is measured in the same rounds.

cyclictest runs with -N, as it cuts each latency and the mean down to whole microseconds else.

The CPU time of a cycle is that of the tool's process beyond a run of one cycle, which is listed as
START. rtxg latency tells its own from the first cycle to the last: before it BPF programs are
loaded, and after it the kernel's symbols are read where a stack has to be named, which takes 0.1 s
and is in some runs of one cycle and not in others. What BPF programs do in
interrupts is in no process's time. The kernel counts it in a run of its own after the rounds
(kernel.bpf_stats_enabled, which makes each program some 60 ns longer; needs bpftool).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
PROGRAM = Path(os.environ.get("RTXG_LATENCY", TOP / "build/release/latency/rtxg-latency"))
COMMON = ["-m", "-p", "95", "-i", "200"]
NEVER = ["-b", "900000"]  #: a threshold that no wake-up passes


def cpu_seconds() -> float:
    """Of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cyclictest(cpu: int, seconds: int) -> dict[str, float]:
    """Its summary line, in nanoseconds."""
    return summary_line(
        run(["cyclictest", *COMMON, "-N", "-t", "1", "-a", str(cpu), "-D", str(seconds), "-q"])
    )


def summary_line(said: str) -> dict[str, float]:
    """The numbers of cyclictest's line."""
    found = re.search(r"C: *(\d+) Min: *(\d+) Act: *\d+ Avg: *(\d+) Max: *(\d+)", said)
    assert found, said
    cycles, *ns = map(float, found.groups())
    return dict(
        zip(("cycles", "min_us", "avg_us", "max_us"), (cycles, *(n / 1e3 for n in ns)), strict=True)
    )


#: what the BPF programs of rtxg latency are attached to
EVENTS = (
    "sched/sched_switch",
    "sched/sched_waking",
    "sched/sched_pi_setprio",
    "timer/hrtimer_expire_entry",
    "irq/irq_handler_entry",
    "irq/irq_handler_exit",
    "irq/softirq_entry",
    "irq/softirq_exit",
    "irq_vectors",
    "nmi/nmi_handler",
)
INSTANCE = Path("/sys/kernel/tracing/instances/rtxg-peers")


def traced(*end: str, cpu: int = 0) -> str:
    """What cyclictest printed beside a trace of the events that rtxg latency looks at."""
    if not INSTANCE.parent.is_dir():
        raise FileNotFoundError(f"{INSTANCE.parent} is missing")
    INSTANCE.mkdir(exist_ok=True)  # a run that was killed leaves it
    try:
        for event in EVENTS:
            place = INSTANCE / "events" / event / "enable"
            if place.exists():
                place.write_text("1")
        return run(
            ["cyclictest", *COMMON, "-N", "-t", "1", "-a", str(cpu), *NEVER, *end, "-q"]
        )
    finally:
        INSTANCE.rmdir()


def ours(cpu: int, seconds: int, *more: str, program: Path = PROGRAM) -> dict[str, float]:
    """The JSON of rtxg latency."""
    said = run([str(program), *COMMON, "-a", str(cpu), "-D", str(seconds), "-q", "--json", *more])
    result = json.loads(said)
    seen = result["threads"][0]["observed"]
    one = {
        "cycles": seen["count"],
        "min_us": seen["min_us"],
        "avg_us": seen["avg_us"],
        "max_us": seen["max_us"],
    }
    if "cpu_us" in result:  # an older build of --before has none
        one["measuring_s"] = result["cpu_us"] / 1e6
    return one


def rtla(cpu: int, seconds: int) -> dict[str, float]:
    """The thread's latency by the timerlat tracer."""
    said = run(
        [
            "rtla",
            "timerlat",
            "top",
            "-q",
            "-c",
            str(cpu),
            "-p",
            "200",
            "-P",
            "f:95",
            "-d",
            f"{seconds}s",
        ]
    )
    # CPU COUNT | cur min avg max (timer interrupt) | cur min avg max (thread)
    found = re.search(rf"^ *{cpu} +#(\d+) .*\| +\d+ +(\d+) +(\d+) +(\d+) *$", said, re.M)
    if not found:
        raise FileNotFoundError(f"rtla shows no line of CPU {cpu}: {said.strip()[:200]}")
    return dict(
        zip(("cycles", "min_us", "avg_us", "max_us"), map(float, found.groups()), strict=True)
    )


def run(command: list[str]) -> str:
    """What a tool printed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        raise FileNotFoundError(
            f"{command[0]} ended with {done.returncode}: {done.stderr.strip()[:200]}"
        )
    return done.stdout


def start_seconds(command: list[str] | Callable[..., object]) -> float:
    """CPU time of a run of one cycle, the least of three."""
    least = float("inf")
    for _ in range(3):
        before = cpu_seconds()
        if callable(command):
            command("-l", "1")
        else:
            run([*command, *COMMON, "-l", "1", "-q"])
        least = min(least, cpu_seconds() - before)
    return least


def programs(cpu: int, seconds: int) -> dict[str, dict[str, float]]:
    """Of each BPF program of a run: ns of a call, and calls in a cycle. Empty where that cannot be counted."""
    switch = Path("/proc/sys/kernel/bpf_stats_enabled")
    bpftool = shutil.which("bpftool") or shutil.which("bpftool", path="/usr/sbin")
    if not bpftool or not os.access(switch, os.W_OK):
        return {}
    before = switch.read_text()
    others = {one["id"] for one in json.loads(run([bpftool, "-j", "prog", "show"]))}
    switch.write_text("1")
    try:
        with subprocess.Popen(
            [PROGRAM, *COMMON, "-a", str(cpu), "-D", str(seconds + 3), "-q", "--json"],
            stdout=subprocess.PIPE,
        ) as measured:
            time.sleep(seconds + 1)
            seen = json.loads(run([bpftool, "-j", "prog", "show"]))
            measured.wait(60)
    finally:
        switch.write_text(before)
    found = {
        one["name"]: (one["run_time_ns"], one["run_cnt"])
        for one in seen
        if one["id"] not in others and one.get("run_cnt")
    }
    cycles = found.get("timer_fires", (0, 1))[1]
    return {
        name: {"ns": round(ns / count, 1), "calls_per_timer": round(count / cycles, 3)}
        for name, (ns, count) in found.items()
    }


TOOLS = {
    "cyclictest": cyclictest,
    "cyclictest again": cyclictest,
    "rtxg latency --user-only": lambda cpu, seconds: ours(cpu, seconds, "--user-only"),
    "rtxg latency": ours,
    "rtxg latency -b": lambda cpu, seconds: ours(cpu, seconds, *NEVER),
    "cyclictest with ftrace": lambda cpu, seconds: summary_line(
        traced("-D", str(seconds), cpu=cpu)
    ),
    "rtla timerlat": rtla,
}


#: how a tool is started for one cycle
STARTS: dict[str, list[str] | Callable[..., object]] = {
    "cyclictest": ["cyclictest", "-t", "1"],
    "cyclictest again": ["cyclictest", "-t", "1"],
    "rtxg latency --user-only": [str(PROGRAM), "--user-only"],
    "rtxg latency": [str(PROGRAM)],
    "rtxg latency -b": [str(PROGRAM), *NEVER],
    "cyclictest with ftrace": traced,
}
RATIOS = ("avg_ratio", "max_ratio", "cpu_ratio")


def interval(values: list[float]) -> tuple[float, float]:
    """Has the true median with at least 95 %, whatever the distribution; all values if few."""
    ordered, below, drop = sorted(values), 0.0, 0
    while drop < len(ordered) // 2:
        below += math.comb(len(ordered), drop) / 2 ** len(ordered)
        if below > 0.025:
            break
        drop += 1
    drop = max(drop - 1, 0)
    return round(ordered[drop], 3), round(ordered[-1 - drop], 3)


def ratios(runs: list[dict[str, float]], peers: list[dict[str, float]]) -> dict[str, object]:
    """Of two tools, round by round: the median and its interval."""
    found: dict[str, object] = {}
    pairs = list(zip(runs, peers, strict=False))
    for ratio, key in zip(RATIOS, ("avg_us", "max_us", "cpu_us_per_cycle"), strict=True):
        if pairs and all(peer[key] for _, peer in pairs):
            each = [run[key] / peer[key] for run, peer in pairs]
            found[ratio] = round(statistics.median(each), 3)
            found[f"{ratio}_interval"] = interval(each)
    return found


def summarize(results: dict[str, list[dict[str, float]]]) -> dict[str, dict]:
    """Medians over the rounds; ratios are of each round's two runs, which had the same neighbours."""
    summary: dict[str, dict] = {}
    for name, runs in results.items():
        if not runs:
            continue
        summary[name] = one = {
            key: statistics.median(r[key] for r in runs)
            for key in ("avg_us", "max_us", "cpu_percent", "cpu_us_per_cycle")
        }
        one["min_us"] = min(r["min_us"] for r in runs)
        one |= ratios(runs, results["cyclictest"])
    return summary


def main() -> int:
    """Rounds in turn, so that a change of the machine's load hits all tools."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=10, help="of each run (10)")
    parser.add_argument("--rounds", type=int, default=5, help="how many (5)")
    parser.add_argument("--cpus", default="", help="which, as 0,1: rounds in turn on them (all)")
    parser.add_argument("--before", type=Path, help="an older rtxg-latency, in the same rounds")
    parser.add_argument("--out", type=Path, help="write JSON")
    options = parser.parse_args()
    if options.before:
        TOOLS["rtxg latency before"] = lambda cpu, seconds: ours(
            cpu, seconds, program=options.before
        )
        STARTS["rtxg latency before"] = [str(options.before)]
    results: dict[str, list[dict[str, float]]] = {name: [] for name in TOOLS}
    left_out: dict[str, str] = {}
    start: dict[str, float] = {}
    cpus = [int(cpu) for cpu in options.cpus.split(",") if cpu] or sorted(os.sched_getaffinity(0))
    for number in range(options.rounds):
        cpu, names = cpus[number % len(cpus)], list(TOOLS)
        first = number // len(cpus) % len(names)
        for name in names[first:] + names[:first]:
            tool = TOOLS[name]
            if name in left_out:
                continue
            if name.split()[0] in ("cyclictest", "rtla") and not shutil.which(name.split()[0]):
                left_out[name] = "not installed"
                continue
            try:
                if name not in start:
                    start[name] = start_seconds(STARTS[name]) if name in STARTS else 0.0
                before, begin = cpu_seconds(), time.monotonic()
                one = tool(cpu, options.seconds)
            except FileNotFoundError as error:
                left_out[name] = str(error)
                continue
            used = cpu_seconds() - before
            one["cpu"] = cpu
            one["cpu_percent"] = 100 * used / (time.monotonic() - begin)
            measuring = one.pop("measuring_s", max(0.0, used - start[name]))
            one["cpu_us_per_cycle"] = 1e6 * measuring / one["cycles"]
            results[name].append(one)
    summary = summarize(results)
    print(
        f"{'TOOL':26} {'MIN':>6} {'AVG':>7} {'MAX median':>11} {'least..most':>14} {'us/CYCLE':>9} {'START s':>8}"
        f" {'AVG/ct':>18} {'MAX/ct':>18} {'CPU/ct':>18}"
    )
    for name, runs in results.items():
        if not runs:
            print(f"{name:26} left out: {left_out[name]}")
            continue
        one, maxima = summary[name], [r["max_us"] for r in runs]
        cells = [
            f"{one[key]:6.3f} {'{:.2f}..{:.2f}'.format(*one[key + '_interval']):>11}"
            if key in one
            else f"{'-':>18}"
            for key in RATIOS
        ]
        print(
            f"{name:26} {one['min_us']:6.1f} {one['avg_us']:7.1f} {one['max_us']:11.1f} "
            f"{f'{min(maxima):.0f}..{max(maxima):.0f}':>14} {one['cpu_us_per_cycle']:9.2f} {start[name]:8.3f} "
            + " ".join(cells)
        )
    counted = programs(cpus[-1], options.seconds)
    for name, one in counted.items():
        print(
            f"BPF {name:22} {one['ns']:7.0f} ns a call, {one['calls_per_timer']:.2f} calls for each timer"
        )
    if options.out:
        machine = json.loads(
            run([str(PROGRAM), "-q", "--json", "-l", "1", "--user-only", "--default-system"])
        )["machine"]
        record = {
            "bench": "latency_peers",
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "machine": machine,
            "seconds": options.seconds,
            "cpus": cpus,
            "options": COMMON,
            "runs": results,
            "left_out": left_out,
            "start_s": start,
            "summary": summary,
            "programs": counted,
            "load_average": os.getloadavg(),
        }
        options.out.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
