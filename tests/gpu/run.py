#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run the NVIDIA lever's cases on a machine with an NVIDIA GPU, the stock driver beside rtxg.

    tests/gpu/run.py [--bin DIR] [--beside DIR] [--out DIR] [--case NAME[,NAME...]] [--quick]
    tests/gpu/run.py --list

It needs root, the driver, and in --bin (default build/gpu): rtxg-nvgov, rtxg-guardian,
rtxg-nvprobe, rtxg-channels, load and hackload. Results go to OUT (default bench/results):
GPU-DRIVER-DATE.json, a list of {case, unit, stock, rtxg, aim, met, detail, command}, and plots
beside it. Each case is written as soon as it is done, and has a limit of time. harness.py and
product.py describe the measurements. The cases are in cases/. --quick asks a case for its short
form, if it has one (15 to 60 s, for a first look); the results then go to
GPU-DRIVER-DATE-quick.json. `make gpu CASE=... QUICK=1` says the same.

The output ends with one line of TAP for each aim. Exit status: 0 all aims were met; 1 a case could
not be run to its end; 2 all cases ran, and some aims were missed; 64 wrong usage; 77 there is no
NVIDIA GPU here, or no root.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from cases import CASES
from harness import ROOT, SKIPPED, Setup, allow_real_time, calibrate, identify, xids
from plot import plot

FAILED, MISSED, USAGE = 1, 2, 64
#: no case may take longer, s; a soak says itself how long it is
QUICK_LIMIT_S, LIMIT_S = 120, 400


class Parser(argparse.ArgumentParser):
    """argparse's own status for wrong usage, 2, would say that an aim was not met."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"{self.prog}: {message}\n")


def about(case: str) -> str:
    """A case's purpose in one line."""
    return (CASES[case].__doc__ or "").splitlines()[0]


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Ends what takes too long: its programs are killed by the blocks that started them."""

    def late(*_: object) -> None:
        raise TimeoutError(f"not done in {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def warm_imports() -> subprocess.Popen[bytes]:
    """Reads the frameworks' files once, so that the first program to import them is not late."""
    code = "import torch, torchvision, cupy, jax"
    return subprocess.Popen(
        ["nice", sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def run_case(setup: Setup, case: str) -> None:
    """Runs one. If it fails, that is a line of the results: it must not take the others with it."""
    setup.current = case
    began = time.monotonic()
    print(f"{case}: {about(case)}", flush=True)
    try:
        with limit(QUICK_LIMIT_S if setup.quick else LIMIT_S + setup.soak_s):
            CASES[case](setup)
    except Exception as e:
        error = f"{type(e).__name__}: {e}"
        print(f"    FAILED: {error}", flush=True)
        setup.record(case, "", None, None, "", False, error=error)
    print(f"    {time.monotonic() - began:.1f} s", flush=True)
    try:
        plot(setup)
    except Exception as e:
        print(f"    no plot: {e}", flush=True)
    setup.plots.clear()


def verdict(lines: list[dict[str, Any]]) -> int:
    """Says of each aim whether it was met; returns the exit status."""
    status = 0
    aims = [x for x in lines if x["aim"] != "-"]
    for number, line in enumerate(aims, 1):
        detail = line["detail"]
        name = f"{number} - {line['command'].rpartition('=')[2]}: {line['case']}"
        if line["met"] is None:
            print(f"ok {name} # SKIP {detail.get('skipped') or detail.get('reason') or 'not tried'}")
        elif "error" in detail:
            print(f"not ok {name}: {detail['error']}")
            status = FAILED
        else:
            print(
                f"{'ok' if line['met'] else 'not ok'} {name}: "
                f"{line['rtxg']} {line['unit']}, aim {line['aim']}"
            )
            status = status or (0 if line["met"] else MISSED)
    missed = sum(line["met"] is False for line in aims)
    print(f"{missed} of {len(aims)} aims not met")
    return status


@contextmanager
def held_open() -> Iterator[None]:
    """The driver keeps a GPU initialised while it is open: else each program waits for that."""
    nodes = [os.open(n, os.O_RDWR) for n in map(str, Path("/dev").glob("nvidia[0-9]*"))]
    try:
        yield
    finally:
        for fd in nodes:
            os.close(fd)


def run_cases(setup: Setup, chosen: list[str], part: bool) -> int:
    """Runs them all; with part, lines that other cases have in the results of today stay there."""
    setup.out.mkdir(parents=True, exist_ok=True)
    results = setup.out / f"{setup.name}.json"
    if part and results.exists():
        old = json.loads(results.read_text(encoding="ascii"))
        fresh = [*chosen, "all"]
        setup.results = [x for x in old if x["command"].rpartition("=")[2] not in fresh]
    kept = len(setup.results)
    calibrate(setup)
    allow_real_time()
    before = len(xids())
    warm = warm_imports() if {"mix", "exact", "llm", "figure12"} & set(chosen) else None
    for case in chosen:
        run_case(setup, case)
    if warm and warm.poll() is None:
        warm.kill()
    setup.current = "all"
    found = xids()[before:]
    title = "Xids in the kernel log after the whole run"
    setup.record(title, "", None, len(found), "0", not found, lines=found)
    return verdict(setup.results[kept:])


def main() -> int:
    """The command line."""
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, default=ROOT / "build" / "gpu")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--case", default=os.environ.get("CASE", ""))
    parser.add_argument("--quick", action="store_true", default=bool(os.environ.get("QUICK")))
    soak = os.environ.get("SOAK") or 300  # argparse converts a text, and refuses what is no number
    what = "seconds of the cases soak and admitted (300; in the environment SOAK)"
    parser.add_argument("--soak", type=float, default=soak, help=what)
    what = "programs of another build, measured in turns with those of --bin (mix)"
    parser.add_argument("--beside", type=Path, action="append", default=[], help=what)
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if args.list:
        for case in CASES:
            print(f"{case:12} {about(case)}")
        return 0
    chosen = [c for c in args.case.split(",") if c] or list(CASES)
    for c in chosen:
        if c not in CASES:
            parser.error(f"no case '{c}': one of {', '.join(CASES)}")
    for folder in args.beside:
        if not (folder / "rtxgd").exists():
            parser.error(f"--beside {folder}: there is no rtxgd: name a folder with its programs")
    name = identify()
    if not name:
        print("skipped: no NVIDIA GPU here (no /dev/nvidiactl, or nvidia-smi does not answer)")
        return SKIPPED
    if os.geteuid() != 0:
        print("skipped: the NVIDIA lever needs root")
        return SKIPPED
    with tempfile.TemporaryDirectory(prefix="rtxg-gpu-") as work:
        setup = Setup(args.bin.resolve(), args.out.resolve(), Path(work), name=name)
        setup.quick, setup.soak_s = args.quick, args.soak
        setup.beside = [folder.resolve() for folder in args.beside]
        if args.quick:
            setup.name += "-quick"
        with held_open():
            return run_cases(setup, chosen, bool(args.case))


if __name__ == "__main__":
    sys.exit(main())
