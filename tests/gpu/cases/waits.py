# SPDX-License-Identifier: MIT
"""Figure 8 of Linux-RTXG on the GPU: ways to wait for a kernel, CUDA's own beside FENCE and NOTIFY."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
from typing import Any

from harness import Setup

#: NOTIFY's wake-up over that of CUDA's blocking event, and FENCE's over that of CUDA's spinning
NOTIFY_AIM, FENCE_AIM = 0.7, 1.2
#: rtx_nvrm_init with a first timeline, us
INIT_AIM_US = 5000.0
BLOCKING, SPINNING = "cuEventSynchronize, blocking event", "cuStreamSynchronize, spinning"
FORESEEN, ASLEEP = "NOTIFY, foreseen", "NOTIFY, foreseen, asleep"
#: rounds in which the ways take turns
ROUNDS = "4"


def run(setup: Setup, *options: str) -> list[dict[str, Any]]:
    """The lines that bench/gpu/waits printed."""
    command = [str(setup.program("waits", "bench")), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    broken = [line["error"] for line in lines if "error" in line]
    if done.returncode or broken:
        raise RuntimeError(f"{' '.join(command)}: status {done.returncode}: {broken or done.stderr[-300:]}")
    return lines


def of(lines: list[dict[str, Any]], way: str) -> dict[int, dict[str, Any]]:
    """What one way gave, by the kernel's length in us."""
    return {line["kernel_us"]: line for line in lines if line.get("way") == way}


def ratio(lines: list[dict[str, Any]], way: str, other: str, figure: str) -> dict[int, float]:
    """A way's figure over another's, by the kernel's length."""

    def value(line: dict[str, Any]) -> float:
        found = line[figure]
        return float(found["p50"] if isinstance(found, dict) else found)

    here, there = of(lines, way), of(lines, other)
    return {us: value(here[us]) / max(value(there[us]), 0.1) for us in here}


#: an unmodified PyTorch program that asks for each result, as a decoder does; prints ms a step, and
#: ms of CPU
TORCH = """
import time, torch
a = torch.rand(4096, 4096, device="cuda")
for step in range(-20, 200):
    if step == 0:
        began, cpu = time.monotonic(), time.process_time()
    (a @ a @ a)[0, 0].item()
print((time.monotonic() - began) * 5, (time.process_time() - cpu) * 5)
"""


def turned(setup: Setup, waits: str | None) -> dict[str, str]:
    """The environment of a program that knows nothing of rtxg, as rtxg run --waits makes it."""
    if not waits:
        return {}
    return {"CUDA_INJECTION64_PATH": str(setup.bin / "librtxg-cuda.so"), "RTXG_WAITS": waits}


def torch_step(setup: Setup, waits: str | None) -> dict[str, float]:
    """What a step of TORCH takes: time and CPU time, ms."""
    done = subprocess.run(
        [sys.executable, "-c", TORCH],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env=os.environ | turned(setup, waits),
    )
    if "rtxg:" in done.stderr:
        raise RuntimeError(done.stderr)
    step, cpu = map(float, done.stdout.split())
    return {"step_ms": step, "cpu_ms": cpu}


def example(
    setup: Setup, way: str, waits: str | None = None, deadline: bool = False
) -> dict[str, float]:
    """Response times of examples/cuda_task.cu, which waits that way; "cuda": what `waits` turns."""
    built = setup.bin / "cuda_task"
    lib = setup.program("librtxg.so.0", "lib")
    if not built.exists():
        link = setup.bin / "librtxg.so"  # the name that the linker looks for
        link.unlink(missing_ok=True)
        link.symlink_to(lib.resolve())
        command = ["nvcc", "-O2", "-arch=native", "-Iinclude", "-o", str(built), "examples/cuda_task.cu"]
        command += [f"-L{setup.bin}", "-lrtxg"]
        made = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
        if made.returncode:
            raise RuntimeError(f"{' '.join(command)}: {(made.stderr or made.stdout)[-600:]}")
    jobs = str(int(setup.seconds(150, 500)))
    environment = {**os.environ, "LD_LIBRARY_PATH": str(lib.parent), "RTXG_HOST": "daemon", "RTXG_SOCKET": "/nonexistent"}
    command = [str(built), way, jobs, "10", "1000"]
    if deadline:
        # -R: CUDA makes threads, and one of SCHED_DEADLINE may make none that is so, too
        budget = ["-T", "500000", "-D", "10000000", "-P", "10000000"]
        command = ["chrt", "-R", "-d", *budget, "0", *command]
    environment |= turned(setup, waits)
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=environment, check=False
    )
    if done.returncode or "rtxg:" in done.stderr:
        said = done.stderr[-600:]
        raise RuntimeError(f"{' '.join(command)}: status {done.returncode}: {said}")
    found = re.search(r"p50 (\d+) us, p99 (\d+) us, worst (\d+) us, (\d+) us of CPU", done.stdout)
    if not found:
        raise RuntimeError(f"cuda_task {way} printed {done.stdout!r}")
    return dict(zip(("p50_us", "p99_us", "worst_us", "cpu_us"), map(float, found.groups()), strict=True))


def case_waits(setup: Setup) -> None:
    """Figure 8: what it costs to wait for a kernel by CUDA's ways, by FENCE and by NOTIFY, idle and with all CPUs busy."""
    runs = str(int(setup.seconds(40, 80)))
    idle = run(setup, "--init", "50", "--rounds", ROUNDS, "--runs", runs)
    busy = run(setup, "--load", "--rounds", ROUNDS, "--runs", runs)
    for opened in (line for line in idle if "init" in line):
        first = opened["when"] == "before CUDA"
        setup.record(
            "figure 8: rtx_nvrm_init with a timeline"
            f"{'' if first else ', ' + opened['when']}: median",
            "us",
            None,
            opened["open_us"]["p50"],
            f"{INIT_AIM_US:g}" if first else "-",
            opened["open_us"]["p50"] <= INIT_AIM_US if first else None,
            each=opened,
        )
    for name, lines in (("idle", idle), ("all CPUs busy", busy)):
        fence = ratio(lines, "FENCE", SPINNING, "wake_us")
        notify = ratio(lines, "NOTIFY", BLOCKING, "wake_us")
        cpu = ratio(lines, "NOTIFY", BLOCKING, "cpu_us")
        foreseen = ratio(lines, FORESEEN, BLOCKING, "wake_us")
        foreseen_cpu = ratio(lines, FORESEEN, BLOCKING, "cpu_us")
        asleep = ratio(lines, ASLEEP, BLOCKING, "wake_us")
        asleep_cpu = ratio(lines, ASLEEP, BLOCKING, "cpu_us")
        waits = [line for line in lines if "way" in line]
        for what, found, aim in (
            ("FENCE's wake-up over CUDA's spinning", fence, FENCE_AIM),
            ("NOTIFY's wake-up over CUDA's blocking event", notify, NOTIFY_AIM),
            ("NOTIFY's CPU time over CUDA's blocking event", cpu, 1.0),
            ("foreseen NOTIFY's wake-up over CUDA's blocking event", foreseen, NOTIFY_AIM),
            ("foreseen NOTIFY's CPU time over CUDA's blocking event", foreseen_cpu, 1.0),
            (
                "NOTIFY's wake-up, asleep until the end foreseen, over CUDA's blocking event",
                asleep,
                NOTIFY_AIM,
            ),
            (
                "NOTIFY's CPU time, asleep until the end foreseen, over CUDA's blocking event",
                asleep_cpu,
                1.0,
            ),
        ):
            middle = statistics.median(found.values())
            setup.record(
                f"figure 8, {name}: {what}: median of three lengths of kernel",
                "times",
                1.0,
                middle,
                f"{aim:g}",
                middle <= aim,
                by_kernel_us=found,
                each=waits,
            )
    if setup.quick:
        return
    ways = {way: example(setup, way) for way in ("cuda", "fence", "notify")}
    for way in ("fence", "notify"):
        setup.record(
            f"examples/cuda_task.cu, 1 ms kernel every 10 ms, {way}: p50 of the response",
            "us",
            ways["cuda"]["p50_us"],
            ways[way]["p50_us"],
            "-",
            None,
            each=ways,
        )
    for deadline in (False, True):
        class_ = ", SCHED_DEADLINE with 0.5 ms of 10" if deadline else ""
        own = example(setup, "cuda", deadline=deadline)
        for how in ("notify", "fence"):
            other = example(setup, "cuda", how, deadline)
            # FENCE looks at the word all the while, but for SCHED_DEADLINE
            aim = 0.5 if how == "notify" or deadline else None
            setup.record(
                f"CUDA program, unmodified{class_}, --waits {how}: CPU a job",
                "us",
                own["cpu_us"],
                other["cpu_us"],
                f"{aim:g} of CUDA's" if aim else "-",
                other["cpu_us"] <= aim * own["cpu_us"] if aim else None,
                own=own,
                turned=other,
            )
    own_step, other_step = torch_step(setup, None), torch_step(setup, "notify")
    setup.record(
        "PyTorch, unmodified, .item() in each step, --waits notify: CPU a step",
        "ms",
        own_step["cpu_ms"],
        other_step["cpu_ms"],
        "0.5 of CUDA's, and a step 1.1",
        other_step["cpu_ms"] <= 0.5 * own_step["cpu_ms"]
        and other_step["step_ms"] <= 1.1 * own_step["step_ms"],
        own=own_step,
        turned=other_step,
    )
