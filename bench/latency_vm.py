#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`rtxg latency` beside cyclictest and rtla in QEMU, where time is the number of instructions.

usage: latency_vm.py [KERNEL...] [--seconds S] [--rounds N]

Each kernel (6.1 and 6.12-rt by default) boots with one CPU. All tools measure it in turns,
without load and beside a load. What measuring costs is the time in which the CPU is not idle, so
it holds what interrupts and kernel threads do for a tool.

An instruction takes 4 ns, and nothing outside the guest takes time. So two runs differ little,
and a maximum has a cause in the guest's kernel. A CPU of 250 million instructions a second is
slow: look at the tools beside one another.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ.get("RTXG_BUILD", TOP / "build/release"))
KERNELS = ("6.1", "6.12-rt")
PEERS = "i_latency_peers"
INTERVAL_US = 200
#: name, and command with the seconds in it; rtla's tracer is in rt kernels alone
TOOLS = {
    "nothing": "sleep {s}",
    "cyclictest": "/tests/w_cyclictest -m -p 95 -i 200 -t 1 -a 0 -D {s} -q",
    "rtxg latency --user-only": "/tests/w_rtxg_latency -m -p 95 -i 200 -t 1 -a 0 -D {s} -q --user-only --json",
    "rtxg latency": "/tests/w_rtxg_latency -m -p 95 -i 200 -t 1 -a 0 -D {s} -q --json",
    "rtla timerlat": "/tests/w_rtla timerlat top -q -c 0 -p 200 -P f:95 -d {s}s",
}
BESIDE = {"": "", "memory": "/tests/w_rtxg_latency_load 1000000"}

HEAD = """#!/bin/busybox sh
export LD_LIBRARY_PATH=/tests:/lib
mkdir -p /tmp
cd /tmp || exit 1
"""
#: the guest measures no busy time by itself: a clock and the idle time of its CPU before and after
PEER = """
peer() { # NAME LOAD COMMAND-OF-LOAD COMMAND...
	name=$1 of=$2 load=$3
	shift 3
	[ -z "$load" ] || { $load >/tmp/load & pid=$!; sleep 1; }
	read -r up idle </proc/uptime
	"$@" >/tmp/out 2>/tmp/err
	echo "# peer $?|$up $idle $(cat /proc/uptime)|$of|$name"
	[ -z "$load" ] || { kill "$pid"; wait "$pid"; }
	sed 's/^/# out /' /tmp/out
	sed 's/^/# err /' /tmp/err
}
"""
END = """
printf '    KTAP version 1\\n    1..1\\n    ok 1 - all were measured\\n'
"""


def words(text: str) -> str:
    """A name as one word of the guest's shell."""
    return "'" + text + "'"


def peers_script(seconds: int, rounds: int) -> str:
    """All tools in turn, so many times, without and beside the load."""
    lines = [
        f"peer {words(name)} {words(load)} {words(of)} {command.format(s=seconds)}"
        for _ in range(rounds)
        for load, of in BESIDE.items()
        for name, command in TOOLS.items()
        if not (load and name == "nothing")
    ]
    return HEAD + PEER + "\n".join(lines) + END


def needed(program: Path) -> list[Path]:
    """The shared libraries that it needs."""
    done = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
    return [Path(w) for line in done.stdout.splitlines() for w in line.split() if w.startswith("/")]


def boot(kernel: str, name: str, script: str, programs: dict[str, Path]) -> str:
    """What the guest said.

    :raises RuntimeError: if it did not end.
    """
    files = {n: p for n, p in programs.items() if p.exists()}
    for program in list(files.values()):
        files |= {
            library.name: library
            for library in needed(program)
            if not library.name.startswith("ld-")
        }
    with tempfile.TemporaryDirectory() as folder:
        guest = Path(folder) / name
        guest.write_text(script)
        command = [
            TOP / "tests/vm/run",
            kernel,
            name,
            "--limit",
            "1500",
            "--append",
            "slub_debug=- page_poison=0",
            "--add",
            f"{name}={guest}",
            *(w for n, f in files.items() for w in ("--add", f"{n}={f}")),
        ]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if "# rtxg-vm: end" not in done.stdout:
        raise RuntimeError(
            f"tests/vm/run {kernel} did not end: {(done.stdout + done.stderr)[-1500:]}"
        )
    return done.stdout


def seen_by(name: str, said: str) -> dict[str, float] | None:
    """Cycles and latencies from what a tool printed; None if it printed none."""
    if name.startswith("rtxg"):
        try:
            seen = json.loads(said)["threads"][0]["observed"]
        except (json.JSONDecodeError, KeyError):
            return None
        return {
            "cycles": seen["count"],
            "min_us": seen["min_us"],
            "avg_us": seen["avg_us"],
            "max_us": seen["max_us"],
        }
    pattern = r"C: *(\d+) Min: *(\d+) Act: *\d+ Avg: *(\d+) Max: *(\d+)"
    if name == "rtla timerlat":
        # CPU COUNT | cur min avg max (timer interrupt) | cur min avg max (thread)
        pattern = r"^ *0 +#(\d+) .*\| +\d+ +(\d+) +(\d+) +(\d+) *$"
    found = re.search(pattern, said, re.M)
    return (
        dict(zip(("cycles", "min_us", "avg_us", "max_us"), map(float, found.groups()), strict=True))
        if found
        else None
    )


def read_peers(console: str) -> tuple[dict[str, dict[str, list[dict]]], dict[str, str]]:
    """Runs by load and tool; and what was left out, with the tool's own words."""
    runs: dict[str, dict[str, list[dict]]] = {load: {} for load in BESIDE}
    left_out: dict[str, str] = {}
    for block in re.split(r"^# peer ", console, flags=re.M)[1:]:
        head, *lines = block.splitlines()
        status, times, load, name = head.split("|")
        up, idle, up_end, idle_end = map(float, times.split())
        said = "\n".join(line[6:] for line in lines if line.startswith("# out "))
        one = {"busy_percent": round(100 * (1 - (idle_end - idle) / (up_end - up)), 3)}
        if name != "nothing":
            seen = seen_by(name, said)
            if status != "0" or not seen:
                error = " ".join(line[6:] for line in lines if line.startswith("# err "))
                left_out[name] = f"status {status}: {error or said}"[:300]
                continue
            one |= seen
        runs[load].setdefault(name, []).append(one)
    return runs, left_out


def show_peers(
    kernel: str, runs: dict[str, dict[str, list[dict]]], left_out: dict[str, str]
) -> None:
    """A table in Markdown."""
    print(
        f"\n{kernel}\n\n| tool | beside | cycles | min us | mean us | max us, median of the runs (least to most) | CPU busy, % |"
    )
    print("|---" * 7 + "|")
    for load, tools in runs.items():
        for name, ones in tools.items():
            busy = f"{statistics.median(o['busy_percent'] for o in ones):.2f}" if not load else "-"
            if name == "nothing":
                print(f"| {name} | - | - | - | - | - | {busy} |")
                continue
            most = [o["max_us"] for o in ones]
            print(
                f"| {name} | {load or '-'} | {ones[0]['cycles']:.0f} | {min(o['min_us'] for o in ones):.1f} | "
                f"{statistics.mean(o['avg_us'] for o in ones):.1f} | {statistics.median(most):.0f} "
                f"({min(most):.0f} to {max(most):.0f}) | {busy} |"
            )
    for name, reason in left_out.items():
        print(f"\n{name} was left out: {reason}")


def main() -> int:
    """Boot, read, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kernels", nargs="*", default=KERNELS, metavar="KERNEL")
    parser.add_argument(
        "--seconds", type=int, default=2, help="of the guest's time for each run (2)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="of the tools in turn (3)")
    options = parser.parse_args()
    if not shutil.which("qemu-system-x86_64"):
        print("skipped: qemu-system-x86_64 is not installed")
        return 77
    programs = {"w_rtxg_latency_load": BUILD / "latency/rtxg-latency-load"}
    programs |= {f"w_{n}": Path(shutil.which(n) or "/nonexistent") for n in ("cyclictest", "rtla")}
    record: dict[str, dict] = {}
    for kernel in options.kernels:
        found = record.setdefault(kernel, {})
        runs, left_out = read_peers(
            boot(kernel, PEERS, peers_script(options.seconds, options.rounds), programs)
        )
        show_peers(kernel, runs, left_out)
        found["peers"] = {"runs": runs, "left_out": left_out}
    out = Path(os.environ.get("RTXG_BENCH_DIR", TOP / "build/bench"))
    out.mkdir(parents=True, exist_ok=True)
    (out / "latency_vm.json").write_text(
        json.dumps(
            {
                "bench": "latency_vm",
                "date": time.strftime("%Y-%m-%d", time.gmtime()),
                "seconds": options.seconds,
                "interval_us": INTERVAL_US,
                "kernels": record,
            },
            indent=1,
        )
        + "\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
