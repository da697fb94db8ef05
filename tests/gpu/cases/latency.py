# SPDX-License-Identifier: MIT
"""How soon a latency-critical program gets the GPU."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from harness import (
    Governor,
    Line,
    Loads,
    Setup,
    critical,
    percentiles,
    rates,
    standard_vgpus,
    three_hogs,
)


class Measured(NamedTuple):
    """The latency of one kind of latency-critical program, and its cost to the other programs."""

    latency: dict[str, float]
    quiet: float  # work of the others, a second, before it
    busy: float  # and beside it


def late(
    case: str,
    stock: dict[str, float],
    rtxg: Measured,
    alone: dict[str, float],
    aim: str,
    limit: float,
    **detail: Any,
) -> Line:
    """A line about p99, which is to be no higher than the limit."""
    p99 = rtxg.latency["p99"]
    detail = {
        "latency_stock": stock,
        "latency_rtxg": rtxg.latency,
        "latency_alone": alone,
        **detail,
    }
    return Line(case, "us", stock["p99"], p99, aim, p99 <= limit, detail)


def kept(when: str, part: float, percent: int, **detail: Any) -> Line:
    """A line about the throughput of best-effort programs, as a part of the stock driver's."""
    case = f"best-effort throughput{when}"
    return Line(case, "% of stock", 100.0, 100 * part, f"{percent}", 100 * part >= percent, detail)


class Plan(NamedTuple):
    """How long the parts of the case are: jobs that count, and seconds that programs run."""

    jobs: int
    periodic_jobs: int
    quiet_s: float  # only the other programs run
    stock_s: float  # the life of the other programs
    rtxg_s: float

    @classmethod
    def of(cls, setup: Setup) -> Plan:
        """The long form took 76 s on an H200, also where its short form was asked for."""
        return cls(150, 150, 0.8, 6, 6) if setup.quick else cls(400, 600, 2.5, 14.5, 16)


def case_latency(setup: Setup) -> None:
    """A 100 us kernel every 10 ms beside three processes with 20 ms kernels."""
    plan = Plan.of(setup)
    alone, _, _ = critical(setup, 1000, plan.jobs)
    alone_periodic, _, _ = critical(setup, 0, plan.jobs)
    with Loads(setup) as loads:
        three_hogs(setup, loads, plan.stock_s, None)
        t0 = time.monotonic_ns()
        time.sleep(plan.quiet_s)
        t1 = time.monotonic_ns()
        stock, a, b = critical(setup, 1000, plan.jobs)
        loads.wait()
        stock_quiet, stock_busy = rates(loads, t0, t1), rates(loads, a, b)
    of_alone = alone_periodic, f"{1.3 * alone_periodic['p99']:.1f} (1.3 of alone)", 1.3 * alone_periodic["p99"]
    values: dict[str, Measured] = {}
    with Governor(setup) as gov:
        standard_vgpus(gov, [34, 33, 33])
        for name, jitter, vgpu in (("sporadic", 1000, 8), ("periodic", 0, 9), ("warmed", 0, 9)):
            with Loads(setup) as loads:
                three_hogs(setup, loads, plan.rtxg_s, gov)
                time.sleep(0.5)
                t0 = time.monotonic_ns()
                time.sleep(plan.quiet_s)
                t1 = time.monotonic_ns()
                jobs = plan.jobs if jitter else plan.periodic_jobs
                latency, a, b = critical(setup, jitter, jobs, gov, vgpu, name == "warmed")
                loads.wait()
                values[name] = Measured(latency, rates(loads, t0, t1), rates(loads, a, b))
        stats = gov.stats()
    sporadic, periodic, warmed = values["sporadic"], values["periodic"], values["warmed"]
    quiet = (sporadic.quiet + periodic.quiet) / 2
    setup.record_lines(
        Line(
            "100 us kernel every 10 ms alone: p99",
            "us",
            alone["p99"],
            None,
            detail={"sporadic": alone, "periodic": alone_periodic},
        ),
        late("sporadic 100 us kernel beside 3 x 20 ms: p99", stock, sporadic, alone, "350", 350),
        late("periodic 100 us kernel beside 3 x 20 ms: p99", stock, periodic, *of_alone),
        late(
            "the same with librtxg-cuda.so in the program: p99",
            stock,
            warmed,
            *of_alone,
            throughput_percent_of_stock=100 * warmed.busy / stock_busy,
        ),
        kept(" beside a sporadic critical task", sporadic.busy / stock_busy, 95),
        kept(" beside a periodic critical task", periodic.busy / stock_busy, 95),
        kept(
            ", no critical task",
            quiet / stock_quiet,
            98,
            stats={k: v for k, v in stats.items() if k != "vgpus"},
        ),
    )


#: periods that a kernel's vGPU is told, us, of one that comes every 10 ms
TOLD_US = (10000, 9985, 9900, 10100)
LEARNING = 150  # jobs that do not count
#: so much later than with the right period the 99th percentile may be
AS_RIGHT = 1.15


def told(setup: Setup, build: Path, period_us: int, warm: bool) -> dict[str, float]:
    """Latencies of the kernel beside three others, where its vGPU has that period."""
    with Governor(dataclasses.replace(setup, bin=build)) as gov, Loads(setup) as loads:
        standard_vgpus(gov, [34, 33, 33])
        gov.ctl("vgpu", "9", "critical", f"period={period_us}")
        jobs = 150 if setup.quick else 400
        three_hogs(setup, loads, 0.01 * (jobs + LEARNING) + 3, gov)
        return critical(setup, 0, jobs, gov, 9, warm, skipped=LEARNING)[0]


def case_period(setup: Setup) -> None:
    """The 100 us kernel every 10 ms, where a wrong period was told: as with the right one."""
    found = {
        (build, period, warm): told(setup, place, period, warm)
        for build, place in setup.builds().items()
        for warm in (False, True)
        for period in TOLD_US
    }
    for (build, period, warm), latency in found.items():
        right = found[build, TOLD_US[0], warm]["p99"]
        how = " with librtxg-cuda.so" if warm else ""
        wrong = period != TOLD_US[0]
        setup.record(
            f"{build}100 us kernel every 10 ms, told {period / 1000:g} ms{how}: p99",
            "us",
            None,
            latency["p99"],
            f"{AS_RIGHT * right:.0f}" if wrong else "-",
            latency["p99"] <= AS_RIGHT * right if wrong else None,
            latency=latency,
        )


def case_mps(setup: Setup) -> None:
    """The same latency case under MPS, default and with thread percentages."""
    control = shutil.which("nvidia-cuda-mps-control")
    if not control:
        setup.record(
            "sporadic 100 us kernel beside 3 x 20 ms under MPS: p99",
            "us",
            None,
            None,
            "-",
            None,
            reason="nvidia-cuda-mps-control is not installed",
        )
        return
    for title, percent in (("default", None), ("hogs at 25 % of threads", "25")):
        env = {"CUDA_MPS_PIPE_DIRECTORY": str(setup.work / "mps"), "CUDA_MPS_LOG_DIRECTORY": str(setup.work / "mpslog")}
        for d in env.values():
            Path(d).mkdir(exist_ok=True)
        subprocess.run([control, "-d"], env={**os.environ, **env}, check=True)
        try:
            with Loads(setup) as loads:
                for _ in range(3):
                    out = setup.work / f"hog-{time.monotonic_ns()}.txt"
                    more = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": percent} if percent else {}
                    loads.start(
                        [str(setup.bin / "load"), "hog", str(setup.turns[20000]), "9", str(out)],
                        out,
                        env={**os.environ, **env, **more},
                    )
                loads.wait_working()
                out = setup.work / "rt-mps.txt"
                subprocess.run(
                    [setup.bin / "load", "rt", str(setup.turns[100]), "10000", "1000", "100", str(out)],
                    env={**os.environ, **env},
                    check=True,
                    stdout=subprocess.DEVNULL,
                    timeout=60,
                )
                v = percentiles(np.loadtxt(out, ndmin=2)[10:, 1] / 1e3)
                loads.wait()  # killed clients would fault the server's context
        finally:
            subprocess.run([control], input=b"quit\n", env={**os.environ, **env}, check=False)
        setup.record(
            f"sporadic 100 us kernel beside 3 x 20 ms under MPS, {title}: p99", "us", v["p99"], None, "-", None, mps=v
        )
