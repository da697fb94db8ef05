#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The six prototypes of thread order beside ours and the two in user space: execution overhead in counted instructions.

    bench/order_prototypes.py [KERNEL] [--rounds N] [--programs NAME,...] [--no-sweep]

The prototypes are in rtxg.ko, so they are measured where it can be loaded by anybody: in QEMU, with one CPU whose clock counts
instructions (4 ns each). The programs are those of order_overhead.py, plain and with the flags of `rtxg order flags`, unchanged;
overhead is (T - T_plain) / T_plain in percent, of medians.

What that leaves out: a miss of the cache, a locked instruction and the way into the kernel cost what any instruction costs, and
threads never run at the same time. Hosts that enter the kernel often, and those that share lines of the cache, look cheaper here
than they are; a host that waits by looking has nobody who works meanwhile, and looks far dearer.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from order_overhead import BUILD, CASES, HOSTS, ORDERS, SHARES, TOP, share_order

NAME = "i_order_programs"
PLAIN = "plain"

SCRIPT = """#!/bin/busybox sh
# run NAME COMMAND...: what a program says it took, as a value of this name
export LD_LIBRARY_PATH=/tests:/lib
[ -d /sys/module/rtxg ] || insmod /modules/rtxg.ko || exit 1
mkdir -p /tmp
cd /tmp || exit 1
status=0
run() {
	name=$1
	shift
	if "$@" >/tmp/out 2>/tmp/err && ns=$(sed -n 's/^threads took \\([0-9]*\\) ns$/\\1/p' /tmp/err) && [ "$ns" ]; then
		echo "# value $name $ns ns"
	else
		echo "# $name: $(cat /tmp/err)"
		status=1
	fi
}
"""
END = """
[ $status = 0 ] && word=ok || word="not ok"
printf '    KTAP version 1\\n    1..1\\n    %s 1 - all programs ended\\n' "$word"
exit $status
"""


def script(cases: dict[str, list[str]], rounds: int) -> str:
    """The guest's program: all commands take turns."""
    lines = []
    for number in range(rounds):
        for program, orders in cases.items():
            lines.append(f"run {program}/{PLAIN}/{number} /tests/w_{program}-plain")
            for order in orders:
                for host in HOSTS:
                    # a thread that looks without end takes a time slice for each step on one CPU: so one round, and no sweep
                    if host != "shared" or (number == 0 and program != "share"):
                        lines.append(f"run {order}/{host}/{number} /tests/w_rtxg order run --host {host} "
                                     f"/tests/{order}.order -- /tests/w_{program}")
    return SCRIPT + "\n".join(lines) + END


def needed(library: Path) -> list[Path]:
    """The shared libraries that it needs."""
    done = subprocess.run(["ldd", library], capture_output=True, text=True, check=True)
    return [Path(w) for line in done.stdout.splitlines() for w in line.split() if w.startswith("/")]


def medians(values: dict[str, dict[str, float]]) -> dict[tuple[str, str], float]:
    """By order (or program) and host."""
    times: dict[tuple[str, str], list[float]] = {}
    for name, entry in values.items():
        if name.count("/") == 2:
            order, host, _ = name.split("/")
            times.setdefault((order, host), []).append(entry["value"])
    return {key: statistics.median(list_) for key, list_ in times.items()}


def table(cases: dict[str, list[str]], found: dict[tuple[str, str], float]) -> tuple[dict[str, dict[str, float]], list[str]]:
    """Overheads by order and host, printed; and where ours is not below prototype 6."""
    over: dict[str, dict[str, float]] = {}
    above = []
    print("\n| order | plain | " + " | ".join(HOSTS) + " |\n" + "|---" * (len(HOSTS) + 2) + "|")
    for program, orders in cases.items():
        plain = found[program, PLAIN]
        for order in orders:
            over[order] = {h: (found[order, h] - plain) / plain * 100 for h in HOSTS if (order, h) in found}
            row = " | ".join(f"{over[order][h]:.0f}" if h in over[order] else "-" for h in HOSTS)
            print(f"| {order} | {plain / 1000:.0f} us | {row} |")
            if over[order].get("futex", 0) >= over[order].get("proto-6", 0):
                above.append(f"{order}: ours {over[order].get('futex')} %, prototype 6 {over[order].get('proto-6')} %")
    return over, above


def main() -> int:
    """Pack, boot, count, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("kernel", nargs="?", default="6.1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--programs", default=",".join(CASES))
    parser.add_argument("--no-sweep", action="store_true")
    options = parser.parse_args()
    if not shutil.which("qemu-system-x86_64"):
        print("skipped: qemu-system-x86_64 is not installed")
        return 77
    cases = {p: list(CASES[p]) for p in options.programs.split(",") if p}
    if not options.no_sweep:
        cases["share"] = [f"share-{s}" for s in SHARES]
    part = Path(os.environ.get("RTXG_VM_CACHE", TOP / "build/vm")) / options.kernel / "result-part.json"
    part.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        library = BUILD / "layers/order/librtxg_order.so"
        files = {library.name: library, **{p.name: p for p in needed(library)}}
        for program, orders in cases.items():
            files |= {f"w_{program}": BUILD / "bench/order" / program, f"w_{program}-plain": BUILD / "bench/order" / f"{program}-plain"}
            for order in orders:
                files[f"{order}.order"] = (share_order(int(order.split("-")[1]), Path(folder)) if program == "share"
                                           else ORDERS / f"{order}.order")
        guest = Path(folder) / NAME
        guest.write_text(script(cases, options.rounds))
        command = [TOP / "tests/vm/run", options.kernel, NAME, "--limit", "3000", "--append", "slub_debug=- page_poison=0",
                   "--add", f"{NAME}={guest}", *(w for n, f in files.items() for w in ("--add", f"{n}={f}"))]
        done = subprocess.run(command, stdout=sys.stderr, check=False)
    if done.returncode == 2 or not part.exists():
        print(f"bench/order_prototypes: tests/vm/run {options.kernel} could not run", file=sys.stderr)
        return 1
    result = json.loads(part.read_text())
    found = medians(result["values"])
    over, above = table(cases, found)
    for line in above:
        print(f"not below prototype 6: {line}")
    out = Path(os.environ.get("RTXG_BENCH_DIR", TOP / "build/bench"))
    out.mkdir(parents=True, exist_ok=True)
    (out / "order_prototypes.json").write_text(json.dumps({
        "kernel": result["release"], "rounds": options.rounds, "unit": "overhead, percent of the plain time",
        "plain_ns": {p: found[p, PLAIN] for p in cases}, "overhead": over}, indent=1) + "\n")
    return 0 if result["good"] else 1


if __name__ == "__main__":
    sys.exit(main())
