# SPDX-License-Identifier: MIT
"""What the daemon costs: CPU of rtxgd and its guardian, mode by mode."""

from __future__ import annotations

import time

from harness import Setup
from product import CpuMeter, Product, Programs


def case_cheap(setup: Setup) -> None:
    """CPU of rtxgd: nothing to decide, shares, a bound, a critical task and ten others."""
    length = setup.seconds(2.5, 8)
    modes: dict[str, tuple[list[float], str]] = {}  # percent of a CPU, the GPU's policy
    with Product(setup) as product:
        for i, share in enumerate((40, 20, 10, 10)):
            product.vgpu(f"s{i}", min=f"{share}%")
        product.vgpu("ten")
        bound = product.knows("--latency", "vgpu", "create")
        if bound:
            product.vgpu("soon", min="10%", latency="5ms")
        product.vgpu("urgent", priority=60)

        def measure(name: str, settle: float = 1.5) -> None:
            time.sleep(settle)
            cpu = CpuMeter(product)
            time.sleep(length)
            modes[name] = (cpu.parts(), product.gpu()["policy"])

        measure("no program", 0.5)
        with Programs(setup) as one:
            one.busy(20000, 60, product, "s0")
            one.wait_working()
            measure("one program alone")
            for i in (1, 2, 3):
                one.busy(20000, 60, product, f"s{i}")
            one.wait_working()
            measure("four programs, shares")
            if bound:
                one.sporadic(length + 20, product, "soon", period_us=50000, jitter_us=50000)
                measure("the same and one with a bound of 5 ms")
            one.end()
        with Programs(setup) as ten:
            for _ in range(10):
                ten.busy(20000, 60, product, "ten")
            ten.wait_working()
            measure("ten programs in one vGPU")
            ten.sporadic(length + 20, product, "urgent")
            measure("a critical task and ten programs")
            ten.end()
    for name, (parts, policy) in modes.items():
        percent = sum(parts)
        aim = {
            "no program": 0.5,
            "one program alone": 0.5,
            "a critical task and ten programs": 3.0,
        }.get(name)
        setup.record(
            f"CPU of rtxgd: {name}",
            "% of a CPU",
            None,
            percent,
            f"{aim:g}" if aim else "-",
            percent <= aim if aim else None,
            policy=policy,
            daemon_and_guardian=parts,
        )
