# SPDX-License-Identifier: MIT
"""Shares of the GPU time, for loads of different kinds."""

from __future__ import annotations

import time
from typing import Any

from harness import (
    Governor,
    Loads,
    Setup,
    log_tracks,
    progress,
    rates,
    standard_vgpus,
    worst_window,
)


def shares_of_hogs(setup: Setup, kernel_us: int, seconds: float = 10) -> None:
    """60/20/10/10 with kernels of one length, and the same load on the stock driver."""
    due = [60.0, 20.0, 10.0, 10.0]
    with Loads(setup) as loads:
        for _ in due:
            loads.hog(kernel_us, 5.5)
        t0 = loads.wait_working() + 500_000_000
        loads.wait()
        t1 = t0 + 2_500_000_000
        stock_rate = rates(loads, t0, t1)
        stock_worst, stock_shares = worst_window([[progress(o)] for o in loads.outputs], due, t0, t1)
    with Governor(setup) as gov:
        standard_vgpus(gov, due)
        with Loads(setup) as loads:
            for i in range(4):
                loads.hog(kernel_us, seconds, gov, i + 1)
            t0 = loads.wait_working() + 1_000_000_000
            loads.wait()
            tracks = [[progress(o)] for o in loads.outputs]
            t1 = min(t[0][-1, 0] for t in tracks) - 200_000_000
            worst, shares = worst_window(tracks, due, t0, t1)
            rate = rates(loads, t0, t1)
            gov.stats()  # and so the timeline is written out
            by_log, log_shares = worst_window(log_tracks(gov.timeline, [1, 2, 3, 4]), due, t0, t1)
    setup.record(
        f"60/20/10/10 with {kernel_us / 1000:g} ms kernels: worst 1 s window",
        "points",
        stock_worst,
        worst,
        "1",
        worst <= 1,
        shares=shares,
        stock_shares=stock_shares,
        by_log=by_log,
        log_shares=log_shares,
    )
    setup.record(
        f"60/20/10/10 with {kernel_us / 1000:g} ms kernels: throughput",
        "% of stock",
        100.0,
        100 * rate / stock_rate,
        "98",
        rate >= 0.98 * stock_rate,
    )


def case_shares1ms(setup: Setup) -> None:
    """60/20/10/10 with 1 ms kernels."""
    shares_of_hogs(setup, 1000)


def case_shares20ms(setup: Setup) -> None:
    """60/20/10/10 with 20 ms kernels."""
    shares_of_hogs(setup, 20000)


def shares_of(setup: Setup, title: str, kinds: list[str], seconds: float = 9) -> None:
    """60/20/10/10 with PyTorch or mixed loads, by the driver's log."""
    due = [60.0, 20.0, 10.0, 10.0]
    iterations: dict[str, list[float]] = {}
    errors: dict[str, Any] = {}
    for mode in ("stock", "rtxg"):
        with Governor(setup) as gov, Loads(setup) as loads:
            standard_vgpus(gov, due)
            if mode == "stock":
                gov.ctl("off")  # the log goes on, nothing is acted on
            length = seconds if mode == "rtxg" else 4.5
            for i, kind in enumerate(kinds):
                if kind.startswith("hog"):
                    loads.hog(int(kind[3:]), length + 12, gov, i + 1)
                else:
                    loads.torch(kind, length, gov, i + 1)
            t0 = loads.wait_working() + 1_000_000_000
            ends = [o for o in loads.outputs if "torch" in o.name]
            for p, o in zip(loads.processes, loads.outputs, strict=True):
                if o in ends:
                    p.wait(timeout=100)
                    break
            t1 = min(progress(o)[-1, 0] for o in ends) - 300_000_000
            time.sleep(0.1)
        tracks = log_tracks(gov.timeline, [1, 2, 3, 4])
        errors[mode] = worst_window(tracks, due, t0, t1)
        counts = []
        for kind, o in zip(kinds, loads.outputs, strict=True):
            rows = progress(o)
            inside = rows[(rows[:, 0] >= t0) & (rows[:, 0] < t1)]
            counts.append(
                float(inside[-1, 1] - inside[0, 1] if kind.startswith("hog") else len(inside)) / (t1 - t0) * 1e9
            )
        iterations[mode] = counts
    setup.record(
        f"60/20/10/10 with {title}: worst 1 s window",
        "points",
        errors["stock"][0],
        errors["rtxg"][0],
        "1",
        errors["rtxg"][0] <= 1,
        shares=errors["rtxg"][1],
        stock_shares=errors["stock"][1],
        iterations_per_s=iterations["rtxg"],
        stock_iterations_per_s=iterations["stock"],
        loads=kinds,
    )


def case_eager(setup: Setup) -> None:
    """60/20/10/10, PyTorch ResNet-50 launched kernel by kernel."""
    shares_of(setup, "ResNet-50 eager", ["eager"] * 4)


def case_graph(setup: Setup) -> None:
    """60/20/10/10, PyTorch ResNet-50 as CUDA graphs."""
    shares_of(setup, "ResNet-50 as CUDA graphs", ["graph"] * 4)


def case_kinds(setup: Setup) -> None:
    """60/20/10/10, four different loads."""
    shares_of(setup, "a mix (eager, graph, 1 ms, 20 ms)", ["eager", "graph", "hog1000", "hog20000"])


def case_forks(setup: Setup) -> None:
    """The tenant with 40 % forks four processes."""
    worst: dict[str, float] = {}
    shares: dict[str, list[float]] = {}
    for mode in ("stock", "rtxg"):
        with Governor(setup) as gov, Loads(setup) as loads:
            gov.ctl("vgpu", "1", "min=40")
            gov.ctl("vgpu", "2", "min=60")
            if mode == "stock":
                gov.ctl("off")
            loads.hog(20000, 10 if mode == "rtxg" else 6, gov, 1, forks=4)
            loads.hog(20000, 10 if mode == "rtxg" else 6, gov, 2)
            t0 = loads.wait_working() + 1_000_000_000
            loads.wait()
            t = [[progress(o) for o in loads.outputs[:4]], [progress(loads.outputs[4])]]
            t1 = min(x[-1, 0] for tenant in t for x in tenant) - 200_000_000
            worst[mode], shares[mode] = worst_window(t, [40.0, 60.0], t0, t1)
    setup.record(
        "the tenant with 40 % forks four processes: worst 1 s window",
        "points",
        worst["stock"],
        worst["rtxg"],
        "1",
        worst["rtxg"] <= 1,
        shares=shares["rtxg"],
        stock_shares=shares["stock"],
    )


def case_many(setup: Setup) -> None:
    """The tenant with 40 % is one process with 80 contexts (640 channels, ten calls to stop them)."""
    with Governor(setup) as gov, Loads(setup) as loads:
        gov.ctl("vgpu", "1", "min=40")
        gov.ctl("vgpu", "2", "min=60")
        out = setup.work / "hog-contexts.txt"
        loads.start(
            [str(setup.bin / "load"), "contexts", "80", str(setup.turns[1000]), "8", str(out)], out, gov, 1
        )
        loads.wait_working()
        loads.hog(1000, 5, gov, 2)
        t0 = loads.wait_working() + 1_000_000_000
        time.sleep(0.5)
        listed = gov.ctl("list").splitlines()
        for p in loads.processes:
            p.wait(timeout=60)
        tracks = [[progress(o)] for o in loads.outputs]
        t1 = min(t[0][-1, 0] for t in tracks) - 200_000_000
        worst, shares = worst_window(tracks, [40.0, 60.0], t0, t1)
        stats = gov.stats()
    setup.record(
        "the tenant with 40 % has 80 contexts in one process: worst 1 s window",
        "points",
        None,
        worst,
        "1",
        worst <= 1,
        shares=shares,
        listed=listed,
        suspend_us=stats["suspend_us"],
        resume_us=stats["resume_us"],
        failures=stats["failures"],
    )


def case_caps(setup: Setup) -> None:
    """A program alone with a cap of 30 %, and whose time goes where when a tenant falls idle."""
    with Governor(setup) as gov, Loads(setup) as loads:
        gov.ctl("vgpu", "1", "max=30")
        loads.hog(20000, 10, gov, 1)
        t0 = loads.wait_working() + 500_000_000
        time.sleep(3.5)
        t1 = time.monotonic_ns()
        gov.ctl("off")
        time.sleep(0.3)
        t2 = time.monotonic_ns()
        loads.wait()
        free = rates(loads, t2, t2 + 1_500_000_000)
        capped = 100 * rates(loads, t0, t1) / free
    setup.record("cap of 30 % on a program alone", "% of its speed", 100.0, capped, "30 +- 1", abs(capped - 30) <= 1)
    with Governor(setup) as gov, Loads(setup) as loads:
        standard_vgpus(gov, [60.0, 20.0, 20.0])
        for i, seconds in enumerate((5, 12, 12)):
            loads.hog(20000, seconds, gov, i + 1)
        loads.wait_working()
        loads.processes[0].wait()
        t0 = time.monotonic_ns() + 200_000_000
        loads.wait()
        tracks = [[progress(o)] for o in loads.outputs[1:]]
        t1 = min(t[0][-1, 0] for t in tracks) - 200_000_000
        worst, shares = worst_window(tracks, [50.0, 50.0], t0, t1)
    setup.record(
        "60/20/20, the first ends: the others' shares of all, worst 1 s window",
        "points",
        None,
        worst,
        "1",
        worst <= 1,
        shares=shares,
    )
