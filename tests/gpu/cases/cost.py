# SPDX-License-Identifier: MIT
"""The lever's costs: a program alone, copies, and the time to stop and to resume."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

import numpy as np

from harness import Governor, Loads, Setup, progress, rates, three_hogs, work_in


def case_copies(setup: Setup) -> None:
    """A copying tenant beside a computing tenant: copies over PCIe cost the other nothing; copies within the GPU count as computing."""
    found: dict[str, Any] = {}
    with Governor(setup) as gov, Loads(setup) as loads:
        gov.ctl("vgpu", "1", "min=70")
        gov.ctl("vgpu", "2", "min=30")
        hog = loads.hog(1000, 21, gov, 1)
        loads.wait_working()
        t0 = time.monotonic_ns() + 300_000_000
        time.sleep(1.5)
        alone = work_in([[progress(hog)]], t0, time.monotonic_ns() - 2e7)[0] / (time.monotonic_ns() - 2e7 - t0)
        for kind in ("in", "out", "device"):
            out = setup.work / f"copy-{kind}.txt"
            with Loads(setup) as more:
                more.start([str(setup.bin / "load"), "copy", kind, "16", "9", str(out)], out, gov, 2)
                more.wait_working()
                t0 = time.monotonic_ns() + 300_000_000
                time.sleep(1.8)
                t1 = time.monotonic_ns() - 20_000_000
                hogs = 100 * float(work_in([[progress(hog)]], t0, t1)[0] / (t1 - t0) / alone)
                mib = float(work_in([[progress(out)]], t0, t1)[0] / (t1 - t0) * 1e9)
                found[kind] = {"computing tenant, % of its speed alone": hogs, "MiB/s": mib}
    for kind, aim in (("in", 97.0), ("out", 97.0), ("device", None)):
        setup.record(
            f"70/30, the second only copies ({kind}): what the computing tenant keeps",
            "% of its speed alone",
            None,
            found[kind]["computing tenant, % of its speed alone"],
            f"{aim:g}" if aim else "-",
            found[kind]["computing tenant, % of its speed alone"] >= aim if aim else None,
            mib_per_s=found[kind]["MiB/s"],
        )


def case_alone(setup: Setup) -> None:
    """A program alone, under rtxg and without, in turns on one running program."""
    with Governor(setup) as gov, Loads(setup) as loads:
        gov.ctl("vgpu", "1", "min=50")
        loads.hog(1000, 21, gov, 1)
        loads.wait_working()
        time.sleep(1)
        marks: list[tuple[str, int, int]] = []
        for _ in range(4):
            for mode in ("off", "on"):
                gov.ctl(mode)
                time.sleep(0.2)
                a = time.monotonic_ns()
                time.sleep(1.8)
                marks.append((mode, a, time.monotonic_ns()))
        loads.wait()
        r = {m: [rates(loads, a, b) for n, a, b in marks if n == m] for m in ("off", "on")}
    off, on = float(np.mean(r["off"])), float(np.mean(r["on"]))
    setup.record(
        "a program alone: slowdown under rtxg",
        "%",
        0.0,
        100 * (off - on) / off,
        "0.5",
        (off - on) / off <= 0.005,
        rounds_off=r["off"],
        rounds_on=r["on"],
    )


def case_actions(setup: Setup) -> None:
    """Time to suspend and resume one process and three, of contexts that were adopted."""
    with Loads(setup) as loads:
        three_hogs(setup, loads, 14, None)
        for n in (1, 3):
            pids = [str(p.pid) for p in loads.processes[:n]]
            done = subprocess.run(
                [setup.bin / "rtxg-channels", "together", *pids], check=True, capture_output=True, text=True
            )
            v = json.loads(done.stdout.strip().splitlines()[-1])
            limit = {1: (700, 400), 3: (750, 400)}[n]
            for what, lim in (("suspend", limit[0]), ("resume", limit[1])):
                t = np.array(v[f"{what}_us"])
                setup.record(
                    f"{what} {n} process{'es' if n > 1 else ''}: median",
                    "us",
                    None,
                    float(np.median(t)),
                    f"{lim}",
                    bool(np.median(t) <= lim),
                    p10=float(np.percentile(t, 10)),
                    p90=float(np.percentile(t, 90)),
                    channels=v["channels"],
                )
