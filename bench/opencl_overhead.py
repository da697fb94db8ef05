#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The OpenCL layer's cost to a program alone on the device: small kernels with the layer and the daemon, and without.

usage: opencl_overhead.py [--rounds N]

Native and managed processes run in turn, so that both see the same machine.  The lower tenth of the times of all chunks (512 launches each)
counts, because only disturbances make a chunk slower.  Aim: at most 2 % more.  Writes $RTXG_BENCH_DIR/opencl_overhead.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

TOP = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP / "demo"))
from shares import POCL, DemoError, Host, build_dir, first_in_line  # noqa: E402

#: what, iterations of the kernel's loop, launches between two clFinish, chunks of 512 launches a process
CASES = [
    ("100 us kernels, each waited for", 1400, 1, 4),
    ("100 us kernels, 64 at a time", 1400, 64, 4),
    ("20 us kernels, 64 at a time", 290, 64, 20),
    ("empty kernels, each waited for", 0, 1, 20),
    ("empty kernels, 64 at a time", 0, 64, 200),
]
AIM = 1.02


def report(file: str, entries: list[dict[str, object]]) -> None:
    """Print the results and write them where bench/run collects them."""
    for e in entries:
        print(f"{e['name']:<36} rtxg {e['rtxg']:9.2f} {e['unit']}, {e['alternative_name']} {e['alternative']:9.2f} {e['unit']}: "
              f"{e['figure_name']} {e['figure']:.3f}" + (f" (aim <= {e['aim']:g}: {'met' if e['met'] else 'NOT met'})" if e["aim"] else ""))
    folder = Path(os.environ.get("RTXG_BENCH_DIR", TOP / "build/bench"))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{file}.json").write_text(json.dumps(entries, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=8, help="processes of each kind (default 8)")
    rounds = parser.parse_args().rounds
    task = build_dir() / "bench/opencl_task"
    if not task.exists():
        print(f"opencl_overhead: {task} is missing: run 'make' first; it needs OpenCL's headers and loader", file=sys.stderr)
        return 1
    entries: list[dict[str, object]] = []
    native_environment = {k: v for k, v in os.environ.items() if not k.startswith(("RTXG_", "OPENCL_LAYERS", "POCL_"))} | POCL
    with Host("cbs") as host:
        for name, iterations, batch, chunks in CASES:
            command = [str(task), "small", str(iterations), str(batch), str(chunks)]
            times: dict[str, list[float]] = {"native": [], "rtxg": []}
            for _ in range(rounds):
                for kind in times:
                    managed = kind == "rtxg"
                    done = subprocess.run([host.rtxg, "run", "--fail", "closed", "--", *command] if managed else command,
                                          env=host.environment if managed else native_environment, stdin=subprocess.DEVNULL,
                                          capture_output=True, text=True, check=False, preexec_fn=first_in_line)
                    if done.returncode:
                        print(f"opencl_overhead: {kind}: {done.stderr.strip()}", file=sys.stderr)
                        return 1
                    times[kind] += [float(line) for line in done.stdout.split()]
            native, rtxg = (float(np.quantile(times[kind], 0.1)) for kind in ("native", "rtxg"))
            # An empty kernel in a full queue takes PoCL a microsecond or two: there is no 2 % of that to keep to.
            aim = AIM if name != CASES[-1][0] else 0
            entries.append({"name": name, "unit": "us a launch", "rtxg": rtxg, "alternative": native, "alternative_name": "native",
                            "figure_name": "ratio", "figure": rtxg / native, "aim": aim, "met": rtxg / native <= aim})
    report("opencl_overhead", entries)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DemoError as error:
        print(f"opencl_overhead: {error}", file=sys.stderr)
        sys.exit(1)
