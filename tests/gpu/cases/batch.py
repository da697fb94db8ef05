# SPDX-License-Identifier: MIT
"""Batch work: shares and throughput where no program needs the GPU soon."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from harness import Setup, progress, work_in, worst_window
from product import CpuMeter, Product, Programs

DUE = [60.0, 20.0, 10.0, 10.0]


def make_vgpus(product: Product) -> None:
    """One for each tenant."""
    for i, share in enumerate(DUE):
        product.vgpu(f"b{i}", min=f"{share:g}%")


def rate(programs: Programs, begin: int, end: int) -> float:
    """Work of all tenants, a second."""
    tracks = [[progress(o)] for o in programs.outputs]
    return float(work_in(tracks, begin, end).sum() / (end - begin) * 1e9)


def shares_now(programs: Programs, begin: int, end: int) -> tuple[float, list[float]]:
    """Worst window and shares."""
    return worst_window([[progress(o)] for o in programs.outputs], DUE, begin, end)


def saturated(setup: Setup, kernel_us: int) -> None:
    """The same four programs under rtxg and under the stock driver, in turn."""
    rounds = 1 if setup.quick else 3
    stock_s, rtxg_s = setup.seconds(2.5, 5), setup.seconds(5, 10)
    found: dict[str, list[Any]] = {"rtxg": [], "stock": [], "worst": [], "shares": [], "cpu": []}
    acts: dict[str, int] = {}
    product = Product(setup)
    with Programs(setup) as programs:
        try:
            product.start()
            make_vgpus(product)
            for i in range(4):
                programs.busy(kernel_us, rounds * (stock_s + rtxg_s + 12) + 10, product, f"b{i}")
            programs.wait_working()
            for n in range(rounds):
                if n:
                    product.start()
                    make_vgpus(product)
                time.sleep(1.5)
                begin, cpu = time.monotonic_ns(), CpuMeter(product)
                time.sleep(rtxg_s)
                end, used = time.monotonic_ns() - 30_000_000, cpu.percent()
                worst, shares = shares_now(programs, begin, end)
                found["rtxg"].append(rate(programs, begin, end))
                found["worst"].append(worst)
                found["shares"].append(shares)
                found["cpu"].append(used)
                acts = {k: v["expelled"] for k, v in product.vgpus().items()}
                product.stop()
                time.sleep(0.7)
                begin = time.monotonic_ns()
                time.sleep(stock_s)
                end = time.monotonic_ns() - 30_000_000
                found["stock"].append(rate(programs, begin, end))
            stock_worst, stock_shares = shares_now(programs, begin, end)
        finally:
            product.__exit__()
    name = f"batch: 60/20/10/10 at saturation, {kernel_us / 1000:g} ms kernels"
    worst = max(found["worst"])
    setup.record(
        f"{name}: worst 1 s window",
        "points",
        stock_worst,
        worst,
        "1",
        worst <= 1,
        each=found["worst"],
        shares=found["shares"],
        stock_shares=stock_shares,
        stops=acts,
    )
    work = 100 * float(np.mean(found["rtxg"]) / np.mean(found["stock"]))
    setup.record(
        f"{name}: work",
        "% of stock",
        100.0,
        work,
        "105",
        work >= 105,
        rates_rtxg=found["rtxg"],
        rates_stock=found["stock"],
        rtxgd_cpu_percent=found["cpu"],
    )


def case_batch(setup: Setup) -> None:
    """60/20/10/10 at saturation without a latency class: shares, and work over stock's."""
    for kernel_us in (20000,) if setup.quick else (20000, 1000):
        saturated(setup, kernel_us)
