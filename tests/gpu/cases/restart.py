# SPDX-License-Identifier: MIT
"""kill -9 of the daemon: vGPUs that were made at run time, and the shares of running programs."""

from __future__ import annotations

import time

from harness import Setup, progress
from product import Product, Programs, windows_right

DUE = [50.0, 30.0, 20.0]


def case_restart(setup: Setup) -> None:
    """kill -9 of rtxgd and another start: which vGPUs are there, and when are the shares right?"""
    after = setup.seconds(6, 10)
    product = Product(setup)
    with Programs(setup) as programs:
        try:
            product.start()
            for i, share in enumerate(DUE):
                product.vgpu(f"r{i}", min=f"{share:g}%")
            for i in range(3):
                programs.busy(20000, 3 * after + 40, product, f"r{i}")
            programs.wait_working()
            time.sleep(2.5)
            before = {v["vgpu"]: v["min_ppm"] for v in product.ask("vgpu-list")["vgpus"]}
            killed = time.monotonic_ns()
            product.kill()
            time.sleep(0.1)  # as a service manager waits before it starts a service again
            product.start()
            started = time.monotonic_ns()
            there = {v["vgpu"]: v["min_ppm"] for v in product.ask("vgpu-list")["vgpus"]}
            kept = [v for v in before if there.get(v) == before[v]]
            time.sleep(after)
            end = time.monotonic_ns() - 30_000_000
            tasks = product.tasks()
            where = [tasks.get(p.pid, {}).get("vgpu") for p in programs.processes]
            tracks = [[progress(o)] for o in programs.outputs]
        finally:
            product.__exit__()
    setup.record(
        "kill -9 of rtxgd: vGPUs made at run time that are there after its next start",
        f"of {len(before)}",
        None,
        len(kept),
        str(len(before)),
        len(kept) == len(before),
        before=before,
        after=there,
        where=where,
    )
    late = windows_right(tracks, DUE, killed, end, 1.5)
    setup.record(
        "kill -9 of rtxgd: from its death to shares that are right for good (1.5 points)",
        "s",
        None,
        late,
        "2",
        late is not None and late <= 2,
        start_took_s=(started - killed) / 1e9,
        after_the_start_s=None if late is None else late - (started - killed) / 1e9,
    )
