#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What an interrupt of a GPU takes, and how long after it what it woke ran, as far as BPF sees it.

usage: irq_times.py [--seconds S] [--others N] [--irq NAME] [--json FILE]
       irq_times.py --dry --irq NAME [...]    without a GPU, by any interrupt: the loads sleep

The times of Linux-RTXG's figures 5 to 7 on a real machine: the driver's top half, and from its
entry until a program, a thread of the kernel or a worker of a workqueue ran that was woken because
of it. N PyTorch programs wait for small kernels by blocking events, and rtxg-irq looks on. Printed
and written for each interrupt of that name: how often, least, mean and most, and the mean against
that of the top half. Fewer than 1000 of a kind are said to be few. Needs root.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from irq_place import TOP, Others, machine

IRQ = Path(os.environ.get("RTXG_IRQ", TOP / "build/release/bpf/rtxg-irq"))
ENOUGH = 1000
KINDS = ("programs", "threads", "workers")


def times(count: int, total: int, least: int | None, most: int) -> dict[str, float] | None:
    """One kind of time, in microseconds; None if there was none."""
    if not count or least is None:
        return None
    return {
        "count": count,
        "least_us": least / 1e3,
        "mean_us": total / count / 1e3,
        "most_us": most / 1e3,
    }


def rows(seen: dict) -> list[dict[str, object]]:
    """What rtxg-irq -J said, as this program shows it."""
    found = []
    for entry in seen["interrupts"]:
        kinds = {
            "top half": times(
                sum(entry["handler_slots"]),
                entry["handler_ns"],
                entry["handler_min_ns"],
                entry["handler_max_ns"],
            )
        }
        for kind in KINDS:
            name = f"ran_{kind}"
            kinds[kind] = times(
                entry[name], entry[f"{name}_ns"], entry[f"{name}_min_ns"], entry[f"{name}_max_ns"]
            )
        found.append(
            {
                "irq": entry["irq"],
                "name": entry["name"],
                "per_s": round(entry["entries"] / seen["seconds"], 1),
                "softirqs": entry["softirqs"],
                "times": kinds,
            }
        )
    return sorted(found, key=lambda row: -row["per_s"])


def show(row: dict) -> None:
    """One interrupt, a line for each kind of time."""
    print(
        f"{row['name']} ({row['irq']}): {row['per_s']} a second, "
        f"{row['softirqs']} runs of softirqs followed"
    )
    top = row["times"]["top half"]
    for kind, what in row["times"].items():
        if what is None:
            print(f"  {kind:9} none")
            continue
        few = "" if what["count"] >= ENOUGH else f", few (below {ENOUGH})"
        ratio = f"{what['mean_us'] / top['mean_us']:6.2f} of a top half" if top else ""
        print(
            f"  {kind:9} {what['count']:7}: least {what['least_us']:8.1f} us, "
            f"mean {what['mean_us']:8.1f}, most {what['most_us']:9.1f};  {ratio}{few}"
        )


def main() -> int:
    """Looks on once; the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--others", type=int, default=1)
    parser.add_argument("--irq", default="nvidia")
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    others = Others(options.others, sorted(os.sched_getaffinity(0)), options.dry)
    try:
        done = subprocess.run(
            [IRQ, "-d", str(options.seconds), "-J", options.irq],
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        others.close()
    if done.returncode:
        print(f"irq_times.py: {done.stderr.strip()}", file=sys.stderr)
        return done.returncode
    seen = json.loads(done.stdout)
    record = {
        "machine": machine(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "command": "bench/gpu/irq_times.py " + " ".join(sys.argv[1:]),
        "others": options.others,
        "seconds": seen["seconds"],
        "interrupts": rows(seen),
    }
    for row in record["interrupts"]:
        show(row)
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    if not record["interrupts"]:
        print(f"irq_times.py: no interrupt of '{options.irq}' came", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
