#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The OpenCL layer's cost: small kernels with the layer and the daemon, and without; alone on the
device, and two programs beside each other.

usage: opencl_overhead.py [--pairs N] [--rounds N] [--before BUILD] [--icd LIBRARY]

A native and a managed process live at the same time and take turns of a few milliseconds, so that
both see the same machine.  What counts is the median of the ratios of neighbouring turns, over
several pairs of processes, with the interval that holds the true one in 95 of 100 cases (bootstrap
over pairs and turns).  Each process places its memory by lot.  Two native processes are compared in
the same way: their ratio says how far the machine can be trusted.  Aim: at most 2 % more.

Two programs launch empty kernels and wait for each, under the layer, in one vGPU and in two.  They
have the device in turn, so a launch takes each half of the time that both need together.  What it
takes more than native and alone, in the turn beside it, is the cost of sharing.  Aim: at most 5 us.
Two native programs beside each other say what the implementation and the device take for it.

Processes are left alone for SETTLE_S before they are measured: threads of an implementation that
look for the end of a program's first commands may use a processor for a while.

With --before, only empty kernels that are waited for are measured: natively, with an older build
and with this one, in turn, each build with a daemon of its own; alone, and two programs beside each
other.

--icd names the OpenCL implementation (libpocl.so.2, libnvidia-opencl.so.1); else it is the first
one that the machine's loader finds.

Writes $RTXG_BENCH_DIR/opencl_overhead.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import permutations
from pathlib import Path

import numpy as np

TOP = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP / "demo"))
from shares import POCL, DemoError, Host, build_dir, first_in_line  # noqa: E402

#: what, iterations of the kernel's loop, launches between two clFinish, launches in a turn
CASES = [
    ("100 us kernels, each waited for", 1400, 1, 32),
    ("100 us kernels, 64 at a time", 1400, 64, 64),
    ("20 us kernels, 64 at a time", 290, 64, 128),
    ("empty kernels, each waited for", 0, 1, 128),
    ("empty kernels, 64 at a time", 0, 64, 512),
]
TRUST = ("empty kernels, each waited for, native twice", 0, 1, 128)
AIM = 1.02
#: microseconds; launches in a turn of two programs: each has the device many times
AIM_SHARED_US, SHARED_LAUNCHES = 5.0, 1024
#: seconds from the start of processes to their first turn that counts
SETTLE_S = 1.0
TWO = "empty kernels, two programs"
SHARED = (("one vGPU", ("one", "one")), ("two vGPUs", ("one", "other")))

#: what `rtxg run` has the loader take
LAYER = "librtxg-opencl.so"

#: what was measured on, as programs say
devices: set[str] = set()

#: a command, its environment, and what starts each of several processes
Words = list[str]
Kind = tuple[Words, dict[str, str]] | tuple[Words, dict[str, str], list[Words]]


def report(file: str, entries: list[dict[str, object]]) -> None:
    """Print the results and write them where bench/run collects them."""
    for e in entries:
        if devices:
            e["device"] = ", ".join(sorted(devices))
        print(
            f"{e['name']:<36} rtxg {e['rtxg']:9.2f} {e['unit']}, "
            f"{e['alternative_name']} {e['alternative']:9.2f} {e['unit']}: "
            f"{e['figure_name']} {e['figure']:.3f}"
            + (f" [{e['low']:.3f} to {e['high']:.3f}]" if "low" in e else "")
            + (f" (aim <= {e['aim']:g}: {'met' if e['met'] else 'NOT met'})" if e["aim"] else "")
        )
    folder = Path(os.environ.get("RTXG_BENCH_DIR", TOP / "build/bench"))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{file}.json").write_text(json.dumps(entries, indent=1) + "\n")


@contextmanager
def only_icd(library: Path | None) -> Iterator[None]:
    """Programs that are started meanwhile find this implementation of OpenCL, and no other."""
    if library is None:
        yield
        return
    if not library.is_file():
        raise DemoError(
            f"--icd {library}: there is no such file; the library of an OpenCL implementation is "
            "expected, which the files of /etc/OpenCL/vendors name"
        )
    earlier = os.environ.get("OCL_ICD_VENDORS")
    with tempfile.TemporaryDirectory(prefix="rtxg-icd-") as folder:
        (Path(folder) / "only.icd").write_text(f"{library.resolve()}\n")
        os.environ["OCL_ICD_VENDORS"] = folder
        try:
            yield
        finally:
            del os.environ["OCL_ICD_VENDORS"]
            if earlier is not None:
                os.environ["OCL_ICD_VENDORS"] = earlier


class Turns:
    """A process that launches when it is told to."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=first_in_line,
        )
        self.on = self.line("ready").removeprefix("ready ")
        if command[0].endswith("/rtxg") or "OPENCL_LAYERS" in environment:
            self.check_layers(environment.get("OPENCL_LAYERS", LAYER).split(":"))

    def check_layers(self, expected: list[str]) -> None:
        """They are in the process: not every loader of OpenCL knows layers."""
        there = Path(f"/proc/{self.process.pid}/maps").read_text(encoding="utf-8")
        for name in (Path(layer).name for layer in expected):
            if name not in there:
                raise DemoError(
                    f"{name} is not in the program: the machine's libOpenCL.so.1 takes no layers; "
                    "ocl-icd 2.3 or the Khronos loader is needed"
                )

    def line(self, expected: str = "") -> str:
        """What it says next."""
        line = self.process.stdout.readline().strip()
        if not line or not line.startswith(expected):
            raise DemoError(f"{self.process.args}: {line} {self.process.communicate()[1].strip()}")
        return line

    def begin(self) -> None:
        """It launches from here."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end_of_turn(self) -> tuple[float, float]:
        """Microseconds of a launch, by the clock and of CPU time."""
        wall, cpu = self.line().split()
        return float(wall), float(cpu)

    def turn(self) -> tuple[float, float]:
        """One turn by itself."""
        self.begin()
        return self.end_of_turn()

    def end(self) -> None:
        """It ends with its stdin."""
        self.process.communicate()


class Beside:
    """Processes that launch at the same time, each in its vGPU: a launch takes its part of the time
    that all need together."""

    def __init__(self, command: Words, environment: dict[str, str], starters: list[Words]) -> None:
        self.all = [Turns([*starter, *command], environment) for starter in starters]
        self.on = self.all[0].on

    def turn(self) -> tuple[float, float]:
        """As a process alone."""
        for one in self.all:
            one.begin()
        wall, cpu = np.mean([one.end_of_turn() for one in self.all], axis=0)
        return float(wall) / len(self.all), float(cpu)

    def end(self) -> None:
        """They end with their stdin."""
        for one in self.all:
            one.end()


def beside(host: Host, command: list[str]) -> list[Kind]:
    """Two programs under a daemon, in one vGPU and in two."""
    for vgpu in ("one", "other"):
        host.command("vgpu", "create", vgpu)
    run = [host.rtxg, "run", "--fail", "closed", "-v"]
    starters = [[[*run, vgpu, "--"] for vgpu in vgpus] for _, vgpus in SHARED]
    return [(command, host.environment, each) for each in starters]


def alternate(kinds: list[Kind], pairs: int, rounds: int) -> np.ndarray:
    """All kinds in turn, in each order alike often, because a turn depends on which was before it:
    [pair, kind, round, clock or CPU], microseconds.
    """
    orders = list(permutations(range(len(kinds))))
    times = np.empty((pairs, len(kinds), rounds, 2))
    for pair in range(pairs):
        tasks = [Turns(*kind) if len(kind) == 2 else Beside(*kind) for kind in kinds]
        devices.update(task.on for task in tasks)
        time.sleep(SETTLE_S)
        for task in tasks:
            task.turn()
        for index in range(rounds):
            for kind in orders[(pair + index) % len(orders)]:
                times[pair, kind, index] = tasks[kind].turn()
        for task in tasks:
            task.end()
    return times


def interval(ratios: np.ndarray) -> tuple[float, float]:
    """In which the true median of [pair, round] lies in 95 of 100 cases."""
    draw = np.random.default_rng(1)
    pairs, rounds = ratios.shape
    medians = []
    for _ in range(2000):
        chosen = ratios[draw.integers(0, pairs, pairs)]
        at = draw.integers(0, rounds, (pairs, rounds))
        medians.append(np.median(np.take_along_axis(chosen, at, axis=1)))
    low, high = np.quantile(medians, [0.025, 0.975])
    return float(low), float(high)


def compared(
    name: str,
    times: np.ndarray,
    aim: float,
    against: str = "native",
) -> dict[str, object]:
    """One line of the results: kind 1 against kind 0."""
    return line(name, times, aim, against, "ratio", times[:, 1] / times[:, 0])


def cost(
    name: str,
    times: np.ndarray,
    against: str = "native alone",
    aim: float = AIM_SHARED_US,
) -> dict[str, object]:
    """The same for a difference in microseconds."""
    return line(name, times, aim, against, "difference, us", times[:, 1] - times[:, 0])


def line(
    name: str,
    times: np.ndarray,
    aim: float,
    against: str,
    figure_name: str,
    figures: np.ndarray,
) -> dict[str, object]:
    """The median of the figures of wall-clock and CPU time, and the interval of the first."""
    figure = float(np.median(figures[..., 0]))
    low, high = interval(figures[..., 0])
    return {
        "name": name,
        "unit": "us a launch",
        "rtxg": float(np.median(times[:, 1, :, 0])),
        "alternative": float(np.median(times[:, 0, :, 0])),
        "alternative_name": against,
        "figure_name": figure_name,
        "figure": figure,
        "low": low,
        "high": high,
        "cpu": float(np.median(figures[..., 1])),
        "aim": aim,
        "met": not aim or figure <= aim,
    }


def against_before(before: Path, pairs: int, rounds: int) -> list[dict[str, object]]:
    """Empty kernels that are waited for, under an older build and under this one."""
    name, iterations, batch, launches = CASES[3]
    command = [str(build_dir() / "bench/opencl_task"), "turns", str(iterations), str(batch)]
    command.append(str(launches))
    plain = ("RTXG_", "OPENCL_LAYERS", "POCL_")
    kinds = [(command, {k: v for k, v in os.environ.items() if not k.startswith(plain)} | POCL)]
    shared = [*command[:-1], str(SHARED_LAUNCHES)]
    two: list[Kind] = [(shared, kinds[0][1]), (shared, kinds[0][1], [[], []])]
    with ExitStack() as stack:
        for build in (before.resolve(), build_dir()):
            os.environ["RTXG_BUILD"] = str(build)
            host = stack.enter_context(Host("cbs"))
            run = [host.rtxg, "run", "--fail", "closed", "--", *command]
            kinds.append((run, host.environment))
            two += beside(host, shared)
        times = alternate(kinds, pairs, rounds)
        times_two = alternate(two, pairs, rounds)
    entries = [
        compared(f"{name}, before", times[:, [0, 1]], AIM),
        compared(name, times[:, [0, 2]], AIM),
        compared(f"{name}, by the change", times[:, [1, 2]], 0, "before"),
    ]
    entries.append(cost(f"{TWO}, native", times_two[:, [0, 1]], aim=0))
    for i, (where, _) in enumerate(SHARED):
        name = f"{TWO}, {where}"
        entries += [
            cost(f"{name}, before", times_two[:, [0, 2 + i]]),
            cost(name, times_two[:, [0, 4 + i]]),
            cost(f"{name}, beside native", times_two[:, [1, 4 + i]], "two native", 0),
            cost(f"{name}, by the change", times_two[:, [2 + i, 4 + i]], "before", 0),
        ]
    return entries


def against_native(pairs: int, rounds: int) -> list[dict[str, object]]:
    """All cases, and two programs beside each other."""
    task = build_dir() / "bench/opencl_task"
    entries = []
    ours = ("RTXG_", "OPENCL_LAYERS", "POCL_")
    native_environment = {k: v for k, v in os.environ.items() if not k.startswith(ours)} | POCL
    with Host("cbs") as host:
        for name, iterations, batch, launches in [*CASES, TRUST]:
            command = [str(task), "turns", str(iterations), str(batch), str(launches)]
            native = (command, native_environment)
            managed = ([host.rtxg, "run", "--fail", "closed", "--", *command], host.environment)
            # An empty kernel in a full queue takes PoCL a microsecond or two, and 2 % of that are
            # nothing to keep to.
            entries.append(
                compared(
                    name,
                    alternate(
                        [native, native if name == TRUST[0] else managed],
                        pairs,
                        rounds,
                    ),
                    AIM if name not in (TRUST[0], CASES[-1][0]) else 0,
                )
            )
        command = [str(task), "turns", "0", "1", str(SHARED_LAUNCHES)]
        kinds: list[Kind] = [
            (command, native_environment),
            (command, native_environment, [[], []]),
            *beside(host, command),
        ]
        times = alternate(kinds, pairs, rounds)
        entries.append(cost(f"{TWO}, native", times[:, [0, 1]], aim=0))
        for i, (where, _) in enumerate(SHARED):
            entries.append(cost(f"{TWO}, {where}", times[:, [0, 2 + i]]))
            entries.append(
                cost(f"{TWO}, {where}, beside native", times[:, [1, 2 + i]], "two native", 0)
            )
    return entries


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--pairs", type=int, default=12, help="of processes (default 12)")
    parser.add_argument("--rounds", type=int, default=40, help="turns of each process (default 40)")
    parser.add_argument("--before", type=Path, metavar="BUILD", help="compare with this build")
    parser.add_argument("--icd", type=Path, metavar="LIBRARY", help="this OpenCL implementation")
    options = parser.parse_args()
    task = build_dir() / "bench/opencl_task"
    if not task.exists():
        print(
            f"opencl_overhead: {task} is missing: run 'make' first; it needs OpenCL's headers",
            file=sys.stderr,
        )
        return 1
    with only_icd(options.icd):
        if options.before:
            entries = against_before(options.before, options.pairs, options.rounds)
        else:
            entries = against_native(options.pairs, options.rounds)
    report("opencl_overhead", entries)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DemoError as error:
        print(f"opencl_overhead: {error}", file=sys.stderr)
        sys.exit(1)
