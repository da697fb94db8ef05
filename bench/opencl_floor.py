#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What of the OpenCL layer's cost is the layer's own: empty kernels that are each waited for, under
layers that do ever more.

usage: opencl_floor.py [--pairs N] [--rounds N] [--icd LIBRARY]

Natively; under a layer that only forwards the two calls; under one that also takes a permit of
librtxg's for each launch, by the shortest way (floor_layer.c); and under rtxg's.  All live at the
same time and take turns of a few milliseconds, in every order alike often, as in
opencl_overhead.py.  Each is compared with the native turn beside it.

Last, the layer's own time on a processor whose caches hold nothing else: over a layer whose
launches and waits return at once.

--icd is as in opencl_overhead.py.

Writes $RTXG_BENCH_DIR/opencl_floor.json.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
from opencl_overhead import AIM, alternate, compared, only_icd, report

TOP = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP / "demo"))
from shares import DemoError, Host, build_dir, first_in_line  # noqa: E402

#: launches in a turn; chunks of 512 launches that return at once
LAUNCHES, CHUNKS = 128, 2000


def chunk_us(command: list[str], environment: dict[str, str]) -> float:
    """Microseconds a launch: the median of the chunks."""
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=first_in_line,
    )
    return float(np.median([float(line) for line in done.stdout.split()]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--pairs", type=int, default=12, help="processes of a kind (default 12)")
    parser.add_argument("--rounds", type=int, default=48, help="turns of each (default 48)")
    parser.add_argument("--icd", type=Path, metavar="LIBRARY", help="this OpenCL implementation")
    options = parser.parse_args()
    task, floor = build_dir() / "bench/opencl_task", build_dir() / "bench/libfloor_layer.so"
    layer = build_dir() / "layers/opencl/librtxg-opencl.so"
    for needed in (task, floor, layer):
        if not needed.exists():
            raise DemoError(f"{needed} is missing: run 'make' first; it needs OpenCL's headers")
    turns = [str(task), "turns", "0", "1", str(LAUNCHES)]
    small = [str(task), "small", "0", "1", str(CHUNKS)]
    with only_icd(options.icd), Host("cbs") as host:
        ours = host.environment | {"RTXG_FAIL": "closed"}
        kinds = [
            (turns, ours),
            (turns, ours | {"OPENCL_LAYERS": str(floor), "RTXG_FLOOR": "forward"}),
            (turns, ours | {"OPENCL_LAYERS": str(floor), "RTXG_FLOOR": "permit"}),
            (turns, ours | {"OPENCL_LAYERS": str(layer)}),
        ]
        times = alternate(kinds, options.pairs, options.rounds)
        names = ("a layer that forwards", "a layer that takes permits", "the layer")
        entries = [
            compared(f"empty kernels, {name}", times[:, [0, kind]], AIM if kind == 3 else 0)
            for kind, name in enumerate(names, 1)
        ]
        entries.append(
            compared("empty kernels, the layer's own", times[:, [2, 3]], 0, "with permits")
        )
        alone = ours | {"RTXG_FLOOR": "nothing", "OPENCL_LAYERS": str(floor)}
        below = chunk_us(small, alone)
        above = chunk_us(small, alone | {"OPENCL_LAYERS": f"{floor}:{layer}"})
    entries.append(
        {
            "name": "launch and wait that return at once",
            "unit": "us a launch",
            "rtxg": above,
            "alternative": below,
            "alternative_name": "without",
            "figure_name": "difference, us",
            "figure": above - below,
            "aim": 0,
            "met": True,
        }
    )
    report("opencl_floor", entries)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DemoError as error:
        print(f"opencl_floor: {error}", file=sys.stderr)
        sys.exit(1)
