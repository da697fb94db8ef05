# SPDX-License-Identifier: MIT
"""Two GPUs."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from harness import Governor, Loads, Setup, gpu_count, progress, window_errors, worst_window


def case_multi(setup: Setup) -> None:
    """Two GPUs: 40/60 on one and 80/20 on the other at once, a process on both; a restarted daemon adopts all."""
    if gpu_count() < 2:
        setup.record("two GPUs, shares of their own on each", "points", None, None, "1", None, skipped="there is one GPU here")
        return
    order = {**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # as the lever numbers them

    def hog(loads: Loads, device: int, seconds: float, gov: Governor, vgpu: int) -> Path:
        out = setup.work / f"hog-multi-{time.monotonic_ns()}.txt"
        command = [str(setup.bin / "load"), "hog", str(setup.turns[20000]), str(seconds), str(out)]
        loads.start(command, out, gov, vgpu, env={**order, "LOAD_DEVICE": str(device)})
        return out

    def vgpus(gov: Governor) -> None:
        for device, shares in ((0, (40, 60)), (1, (80, 20))):
            for i, share in enumerate(shares):
                gov.ctl("vgpu", str(i + 1), f"gpu={device}", f"min={share}")

    first = Governor(setup)
    with Loads(setup) as loads:
        with first as gov:
            vgpus(gov)
            both = setup.work / "hog-both.txt"
            command = [str(setup.bin / "load"), "both", str(setup.turns[20000]), "22", str(both)]
            loads.start(command, None, gov, 1, env=order)
            loads.outputs += [Path(f"{both}.{i}") for i in range(2)]
            for device in (0, 1):
                hog(loads, device, 22, gov, 2)
            t0 = loads.wait_working() + 1_000_000_000
            time.sleep(7)
            t1 = time.monotonic_ns() - 200_000_000
            listed = gov.ctl("list").splitlines()
            stats = gov.stats()
        with Governor(setup) as again:
            adopted = again.ctl("list").splitlines()
            vgpus(again)
            for p, v in zip(loads.processes, (1, 2, 2), strict=True):
                again.ctl("assign", str(p.pid), str(v))
            t2 = time.monotonic_ns() + 1_000_000_000
            loads.wait()
            adoption = [line for line in again.log.read_text().splitlines() if "adopted" in line]
        o = [progress(x) for x in loads.outputs]
        t3 = min(t[-1, 0] for t in o) - 200_000_000
        result: dict[str, Any] = {}
        worst_at: dict[str, tuple[float, float] | None] = {}
        for name, begin, end in (("", t0, t1), (" after a restart", t2, t3)):
            for device, due in ((0, [40.0, 60.0]), (1, [80.0, 20.0])):
                tracks = [[o[device]], [o[2 + device]]]
                result[f"GPU {device}{name}"] = worst_window(tracks, due, begin, end)
                errors = window_errors(tracks, due, begin, end)
                worst_at[f"GPU {device}{name}"] = max(errors, key=lambda e: e[1], default=None)
    worst = max(v[0] for k, v in result.items() if "restart" not in k)
    worst_after = max(v[0] for k, v in result.items() if "restart" in k)
    setup.record(
        "two GPUs, 40/60 on one and 80/20 on the other, a process on both: worst 1 s window",
        "points",
        None,
        worst,
        "1",
        worst <= 1,
        shares={k: v[1] for k, v in result.items()},
        worst={k: v[0] for k, v in result.items()},
        listed=listed,
        log_lost=stats["log_lost"],
    )
    setup.record(
        "two GPUs, the same by a restarted daemon: worst 1 s window",
        "points",
        None,
        worst_after,
        "1",
        worst_after <= 1,
        adopted=adopted,
        adoption=adoption,
        seconds_and_worst={k: v for k, v in worst_at.items() if "restart" in k},
    )
