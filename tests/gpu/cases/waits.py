# SPDX-License-Identifier: MIT
"""Figure 8 of Linux-RTXG on the GPU: ways to wait for a kernel, CUDA's own beside FENCE and NOTIFY.

The parts follow each other by what would be missed most, and each writes its lines as soon as it is
done. The case has a time of its own: what has not begun by then is left out, and a line says so.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from harness import ROOT, Setup

#: NOTIFY's wake-up over that of CUDA's blocking event, and FENCE's over that of CUDA's spinning
NOTIFY_AIM, FENCE_AIM = 0.7, 1.2
#: rtx_nvrm_init with a first timeline, us
INIT_AIM_US = 5000.0
BLOCKING, SPINNING = "cuEventSynchronize, blocking event", "cuStreamSynchronize, spinning"
FORESEEN, ASLEEP = "NOTIFY, foreseen", "NOTIFY, foreseen, asleep"
#: rounds in which the ways take turns, and after how many seconds none is begun
ROUNDS, ROUNDS_S = "4", 22
#: when no program of the case is started any more, s; how long one may take, and the last one
TIME_S, MOST_S, LAST_S = 130.0, 45.0, 20.0


class Parts:
    """The parts of the case: one that fails, or for which there is no time, does not take the
    others with it.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup, self.end = setup, time.monotonic() + TIME_S

    def run(self, command: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
        """A program and what it prints."""
        left = self.end - time.monotonic()
        if left < 0:
            raise RuntimeError(f"{command[0]} was not started: {TIME_S:g} s were over")
        try:
            return subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=max(min(left, MOST_S), LAST_S),
                check=False,
                **more,
            )
        except subprocess.TimeoutExpired as e:
            raise RuntimeError(f"{' '.join(command)}: not done in {e.timeout:.0f} s") from e

    def lines(self, name: str, *options: str, **more: Any) -> list[dict[str, Any]]:
        """The lines that a program of bench/gpu printed. Status 1 is for the caller to judge."""
        command = [str(self.setup.program(name, "bench")), *options]
        done = self.run(command, **more)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        broken = [line["error"] for line in lines if "error" in line]
        if done.returncode not in (0, 1) or broken or not lines or "rtxg:" in done.stderr:
            said = broken or done.stderr[-300:]
            raise RuntimeError(f"{' '.join(command)}: status {done.returncode}: {said}")
        return lines

    def part(self, what: str, function: Callable[[Setup, Parts], None]) -> None:
        """Runs one."""
        began = time.monotonic()
        if began > self.end:
            self.setup.record(what, "", None, None, "", None, skipped=f"{TIME_S:g} s were over")
            return
        try:
            function(self.setup, self)
        except TimeoutError:  # the whole case's
            raise
        except Exception as e:
            error = f"{type(e).__name__}: {e}"
            print(f"    {what}: FAILED: {error}", flush=True)
            self.setup.record(what, "", None, None, "", False, error=error)
        print(f"    {what}: {time.monotonic() - began:.1f} s", flush=True)


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


#: an unmodified PyTorch program that asks for each result, as a decoder does, without CUDA graphs
#: and with one; prints ms a step and ms of CPU of each, and how many results differed
TORCH = """
import time, torch
a = torch.rand(4096, 4096, device="cuda") / 4096
right = (a @ a @ a)[0, 0].item()
other = torch.cuda.Stream()
other.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(other):
    a @ a @ a
torch.cuda.current_stream().wait_stream(other)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    product = a @ a @ a

def eager():
    return (a @ a @ a)[0, 0].item()

def replayed():
    product.zero_()
    graph.replay()
    return product[0, 0].item()

wrong = 0
for step_of in (eager, replayed):
    for step in range(-20, 150):
        if step == 0:
            began, cpu = time.monotonic(), time.process_time()
        wrong += step_of() != right
    print((time.monotonic() - began) / 0.15, (time.process_time() - cpu) / 0.15)
print(wrong)
"""


def turned(setup: Setup, waits: str | None) -> dict[str, str]:
    """The environment of a program that knows nothing of rtxg, as rtxg run --waits makes it."""
    if not waits:
        return {}
    return {"CUDA_INJECTION64_PATH": str(setup.bin / "librtxg-cuda.so"), "RTXG_WAITS": waits}


def torch_step(setup: Setup, parts: Parts, waits: str | None) -> dict[str, dict[str, float]]:
    """What a step of TORCH takes, time and CPU time in ms, and how many results were wrong."""
    done = parts.run([sys.executable, "-c", TORCH], env=os.environ | turned(setup, waits))
    if done.returncode or "rtxg:" in done.stderr:
        raise RuntimeError(f"PyTorch: status {done.returncode}: {done.stderr[-600:]}")
    step, cpu, graph_step, graph_cpu, wrong = map(float, done.stdout.split())
    return {
        "eager": {"step_ms": step, "cpu_ms": cpu, "wrong": wrong},
        "graph": {"step_ms": graph_step, "cpu_ms": graph_cpu, "wrong": wrong},
    }


def prepare(setup: Setup, parts: Parts) -> None:
    """Builds examples/cuda_task.cu against the library of this build, and reads PyTorch's files
    once.
    """
    with warm_torch():
        build_example(setup, parts)


@contextmanager
def warm_torch() -> Iterator[None]:
    """PyTorch is imported once until the block has ended, so that it takes no part in what is
    measured.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", "import torch"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
        process.wait(LAST_S)
    finally:
        process.kill()
        process.wait()


def build_example(setup: Setup, parts: Parts) -> None:
    """examples/cuda_task.cu."""
    built = setup.bin / "cuda_task"
    link = setup.bin / "librtxg.so"  # the name that the linker looks for
    link.unlink(missing_ok=True)
    link.symlink_to(setup.program("librtxg.so.0", "lib").resolve())
    command = [
        "nvcc",
        "-O2",
        "-arch=native",
        "-Iinclude",
        "-o",
        str(built),
        "examples/cuda_task.cu",
    ]
    made = parts.run([*command, f"-L{setup.bin}", "-lrtxg"], cwd=ROOT)
    if made.returncode:
        raise RuntimeError(f"{' '.join(command)}: {(made.stderr or made.stdout)[-600:]}")


def example(
    setup: Setup, parts: Parts, way: str, waits: str | None = None, deadline: bool = False
) -> dict[str, float]:
    """Response times of examples/cuda_task.cu, which waits that way; "cuda": what `waits` turns."""
    built = setup.bin / "cuda_task"
    lib = setup.program("librtxg.so.0", "lib")
    jobs = str(int(setup.seconds(50, 100)))
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(lib.parent),
        "RTXG_HOST": "daemon",
        "RTXG_SOCKET": "/nonexistent",
    }
    command = [str(built), way, jobs, "10", "1000"]
    if deadline:
        # -R: CUDA makes threads, and one of SCHED_DEADLINE may make none that is so, too
        budget = ["-T", "500000", "-D", "10000000", "-P", "10000000"]
        command = ["chrt", "-R", "-d", *budget, "0", *command]
    environment |= turned(setup, waits)
    done = parts.run(command, env=environment)
    if done.returncode or "rtxg:" in done.stderr:
        said = done.stderr[-600:]
        raise RuntimeError(f"{' '.join(command)}: status {done.returncode}: {said}")
    found = re.search(r"p50 (\d+) us, p99 (\d+) us, worst (\d+) us, (\d+) us of CPU", done.stdout)
    if not found:
        raise RuntimeError(f"cuda_task {way} printed {done.stdout!r}")
    return dict(
        zip(("p50_us", "p99_us", "worst_us", "cpu_us"), map(float, found.groups()), strict=True)
    )


def figure_8(name: str, *options: str) -> Callable[[Setup, Parts], None]:
    """A part: the ways to wait, beside what the options say."""

    def measure(setup: Setup, parts: Parts) -> None:
        runs = str(int(setup.seconds(40, 50)))
        lines = parts.lines(
            "waits", "--rounds", ROUNDS, "--for", str(ROUNDS_S), "--runs", runs, *options
        )
        opened = [line for line in lines if "init" in line]
        waits = [line for line in lines if "way" in line]
        for line in opened:
            first = line["when"] == "before CUDA"
            setup.record(
                "figure 8: rtx_nvrm_init with a timeline"
                f"{'' if first else ', ' + line['when']}: median",
                "us",
                None,
                line["open_us"]["p50"],
                f"{INIT_AIM_US:g}" if first else "-",
                line["open_us"]["p50"] <= INIT_AIM_US if first else None,
                each=line,
            )
        for what, way, other, figure, aim in RATIOS:
            found = ratio(lines, way, other, figure)
            middle = statistics.median(found.values())
            setup.record(
                f"figure 8, {name}: {what}: median of three lengths of kernel",
                "times",
                1.0,
                middle,
                f"{aim:g}" if aim else "-",
                middle <= aim if aim else None,
                by_kernel_us=found,
                each=waits,
            )

    return measure


#: what is compared: a way, CUDA's beside it, the figure, and the aim. What foresees has none for
#: the thread's CPU time: that is what it buys its wake-up with, in place of the interrupt's.
RATIOS = (
    ("FENCE's wake-up over CUDA's spinning", "FENCE", SPINNING, "wake_us", FENCE_AIM),
    ("NOTIFY's wake-up over CUDA's blocking event", "NOTIFY", BLOCKING, "wake_us", NOTIFY_AIM),
    ("NOTIFY's CPU time over CUDA's blocking event", "NOTIFY", BLOCKING, "cpu_us", 1.0),
    (
        "foreseen NOTIFY's wake-up over CUDA's blocking event",
        FORESEEN,
        BLOCKING,
        "wake_us",
        NOTIFY_AIM,
    ),
    ("foreseen NOTIFY's CPU time over CUDA's blocking event", FORESEEN, BLOCKING, "cpu_us", None),
    (
        "NOTIFY's wake-up, asleep until the end foreseen, over CUDA's blocking event",
        ASLEEP,
        BLOCKING,
        "wake_us",
        NOTIFY_AIM,
    ),
    (
        "NOTIFY's CPU time, asleep until the end foreseen, over CUDA's blocking event",
        ASLEEP,
        BLOCKING,
        "cpu_us",
        None,
    ),
)


def graphs(setup: Setup, parts: Parts) -> None:
    """CUDA graphs: waits behind their launches and inside them, and beside captures; then a program
    that knows nothing of rtxg.
    """
    launches = ["--launches", str(int(setup.seconds(50, 100)))]
    lines = parts.lines("graphs", *launches)
    waits = [line for line in lines if "waits" in line]
    early = sum(line["early"] for line in waits)
    setup.record(
        "CUDA graphs: waits by FENCE and NOTIFY that ended before the work, behind and inside graphs",
        "waits",
        None,
        early,
        "0",
        not early and len(waits) == 9,
        waited=sum(line["waits"] for line in waits),
        each=waits,
    )
    by_part = {line["part"]: line for line in lines}
    beside, captured, constant = (by_part[part] for part in ("beside", "captured", "constant"))
    setup.record(
        "CUDA graphs: captures broken by timelines that another thread opens, signals and closes",
        "captures",
        None,
        beside["broken"],
        "0",
        not beside["broken"] and beside["timelines"] >= beside["captures"],
        each=beside,
    )
    setup.record(
        "CUDA graphs: signals to a stream that is captured are refused, and the graph runs",
        "times",
        None,
        captured["refused"].count(-16),
        "2",
        captured["refused"] == [-16, -16] and captured["ran"],
        captured_number=constant,
    )
    own = parts.lines("graphs", "--plain", *launches)[0]
    other = parts.lines("graphs", "--plain", *launches, env=os.environ | turned(setup, "notify"))[0]
    setup.record(
        "CUDA graphs, program unmodified, --waits notify: CPU a launch",
        "us",
        own["cpu_us"],
        other["cpu_us"],
        "0.5 of CUDA's, none early",
        other["cpu_us"] <= 0.5 * own["cpu_us"] and not own["early"] and not other["early"],
        own=own,
        turned=other,
    )


def steps(setup: Setup, parts: Parts) -> None:
    """The calls of rtx_nvrm_init, each with its time, and those of two more timelines."""
    lines = parts.lines("nvrm_steps", "--runs", "50")
    bound = parts.lines("nvrm_steps", "--runs", "50", "--bind")
    whole, more = (
        {line["phase"]: line for line in found if "runs" in line} for found in (lines, bound)
    )
    for phase, what in STEPS.items():
        setup.record(
            f"{what}: median",
            "us",
            None,
            whole[phase]["p50_us"],
            "-",
            None,
            each=[line for line in lines if line["phase"] == phase],
            with_channels_bound_us=more[phase]["p50_us"],
        )


#: the phases of bench/gpu/nvrm_steps
STEPS = {
    "init": "rtx_nvrm_init with a timeline, call by call",
    "second": "a second timeline",
    "again": "a timeline after the last was closed",
}


def words(setup: Setup, parts: Parts) -> None:
    """Words in memory that the GPU cannot see: an error each that names it."""
    lines = parts.lines("waits", "--words")
    right = [line for line in lines if line["ret"] == line["expected"]]
    setup.record(
        "timelines on words that the GPU cannot be given, and on one that it can: as they should be",
        "words",
        None,
        len(right),
        f"{len(lines)}",
        len(right) == len(lines),
        each=lines,
    )


def pytorch(setup: Setup, parts: Parts) -> None:
    """PyTorch, unmodified: its steps, and those that are launches of a CUDA graph."""
    own, other = torch_step(setup, parts, None), torch_step(setup, parts, "notify")
    for kind, what in (
        ("eager", ".item() in each step"),
        ("graph", "replay() and .item() in each step"),
    ):
        before, after = own[kind], other[kind]
        setup.record(
            f"PyTorch, unmodified, {what}, --waits notify: CPU a step",
            "ms",
            before["cpu_ms"],
            after["cpu_ms"],
            "0.5 of CUDA's, and a step 1.1",
            after["cpu_ms"] <= 0.5 * before["cpu_ms"]
            and after["step_ms"] <= 1.1 * before["step_ms"]
            and not before["wrong"]
            and not after["wrong"],
            own=before,
            turned=after,
        )


def examples(setup: Setup, parts: Parts) -> None:
    """The periodic task of examples/: with FENCE and NOTIFY, and unmodified, under SCHED_DEADLINE
    too.
    """
    ways = {way: example(setup, parts, way) for way in ("cuda", "fence", "notify")}
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
        own = example(setup, parts, "cuda", deadline=deadline) if deadline else ways["cuda"]
        for how in ("notify", "fence"):
            other = example(setup, parts, "cuda", how, deadline)
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


def case_waits(setup: Setup) -> None:
    """Figure 8: what waits for a kernel cost by CUDA, FENCE and NOTIFY, with idle and busy CPUs."""
    parts = Parts(setup)
    if not setup.quick:
        parts.part("examples/cuda_task.cu, build", prepare)
    parts.part("words", words)
    parts.part("steps of rtx_nvrm_init", steps)
    parts.part("figure 8, idle", figure_8("idle", "--init", "30"))
    parts.part("CUDA graphs", graphs)
    parts.part("figure 8, all CPUs busy", figure_8("all CPUs busy", "--load"))
    if setup.quick:
        return
    parts.part("PyTorch", pytorch)
    parts.part("examples/cuda_task.cu", examples)
