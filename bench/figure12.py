#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Figure 12 of the Linux-RTXG paper side by side: four detectors in six ways, on a GPU and with the kernel module.

usage: figure12.py [--card RECORD] [--vm RESULT] [--run KERNEL]

On a GPU the daemon and its NVIDIA lever schedule, and the CPU has SCHED_FIFO in (f): `make gpu CASE=figure12`.  The module
cannot be built for the kernels of the GPU machines that were lent, so its rate-monotonic policy runs in QEMU, on the tests'
accelerator: `tests/vm/run KERNEL i_figure12`, which --run does first (a minute; instructions are counted, so what else the
machine does changes little).  Without the options the newest records under bench/results are taken.  Exit status: 0 all aims
are met, 1 one is not, 2 a record is missing or wrong usage.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP / "tests" / "gpu"))

from cases.figure12 import WAYS, Claim, claims  # noqa: E402

RESULTS = TOP / "bench" / "results"
NAMES = {way.letter: way.name for way in WAYS}
Frames = dict[str, list[float]]


class MissingError(Exception):
    """There is no such record."""


def card_frames(record: Any) -> list[tuple[str, Frames]]:
    """What a record of the GPU's cases has: frames a second by letter; empty: it has not all six."""
    lines = record if isinstance(record, list) else []
    for line in lines:
        found = line.get("detail", {}).get("frames_per_s", {}) if isinstance(line, dict) else {}
        if set(NAMES.values()) <= set(found):
            return [("", {letter: found[name] for letter, name in NAMES.items()})]
    return []


def vm_frames(record: Any) -> list[tuple[str, Frames]]:
    """The same of a result of tests/vm/run, or of each kernel in a record of some."""
    every = []
    results = record.get("kernels", [record]) if isinstance(record, dict) else []
    for result in results:
        values = result.get("values", {})
        found = {
            letter: [values.get(f"figure12_{letter}_detector_{i}", {}).get("value") for i in range(4)]
            for letter in NAMES
        }
        if all(isinstance(x, int | float) for each in found.values() for x in each):
            every.append((f" {result.get('kernel', '')}", found))
    return every


def read(path: Path, of: Any) -> list[tuple[str, Frames]]:
    """What one record has."""
    try:
        frames: list[tuple[str, Frames]] = of(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as e:
        raise MissingError(f"{path}: {e}") from e
    if not frames:
        raise MissingError(f"{path} has not all six ways of figure 12")
    return frames


def newest(pattern: str, of: Any, how: str) -> tuple[Path, list[tuple[str, Frames]]]:
    """The newest record that has all six, by the day in its name."""
    def day(path: Path) -> str:
        found = re.search(r"\d{4}-\d\d-\d\d", path.name)
        return found[0] if found else ""

    for path in sorted(RESULTS.glob(pattern), key=lambda p: (day(p), p.name), reverse=True):
        try:
            return path, read(path, of)
        except MissingError:
            continue
    raise MissingError(f"no record under {RESULTS} has it: {how}")


def show(title: str, source: Path, frames: Frames) -> bool:
    """Print one table; are its aims met?"""
    print(f"{title} ({source.name})")
    print(f"      {'frames a second of 60/20/10/10 %':34} {'compared with the paper':42} {'seen':>12}  aim")
    found: list[Claim] = claims(frames)
    for claim in found:
        rates = " ".join(f"{x:6.1f}" for x in frames[claim.letter])
        mark = "" if claim.met is None else " met" if claim.met else " NOT MET"
        seen = f"{claim.number:.1f} {claim.unit}"
        print(f"  ({claim.letter}) {rates:34} {claim.what:42} {seen:>12}  {claim.aim}{mark}")
    return all(claim.met is not False for claim in found)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--card", type=Path, metavar="RECORD", help="of make gpu CASE=figure12")
    parser.add_argument("--vm", type=Path, metavar="RESULT", help="build/vm/KERNEL/result.json")
    parser.add_argument("--run", metavar="KERNEL", help="run it in QEMU first, as 6.1")
    args = parser.parse_args()
    if args.run:
        if subprocess.run([TOP / "tests/vm/run", args.run, "i_figure12"], check=False).returncode == 2:
            return 2
        results = (TOP / "build" / "vm" / args.run).glob("result*.json")
        args.vm = args.vm or max(results, key=lambda p: p.stat().st_mtime)
    try:
        card = (args.card, read(args.card, card_frames)) if args.card else newest(
            "*H[12]00*.json", card_frames, "make gpu CASE=figure12")
        vm = (args.vm, read(args.vm, vm_frames)) if args.vm else newest(
            "kernels-*.json", vm_frames, "bench/figure12.py --run 6.1")
    except MissingError as e:
        print(f"figure12.py: {e}", file=sys.stderr)
        return 2
    met = []
    for title, (source, every) in (
        ("On a GPU: the daemon and SCHED_FIFO", card),
        ("In QEMU: the module and its rate-monotonic policy,", vm),
    ):
        for name, frames in every:
            met.append(show(title + name.rstrip(), source, frames))
            print()
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
