# SPDX-License-Identifier: MIT
"""Fifty programs start within one second: are they all governed, and is a reservation kept?"""

from __future__ import annotations

import subprocess
import time

from harness import Setup, progress
from product import CpuMeter, Product, Programs, Watch

from .churn import LEFT_ALONE, first_line

PROGRAMS = 50
VGPUS = 10
#: of the program that was there before
RESERVED = 30
#: those that start work for so long, and the whole case is over in 40 s
WORK_S = 6.0


def shares(tracks: list[list[tuple[float, float]]], begin: float, end: float) -> list[float]:
    """The first one's percentage of the work of each second, one every 0.1 s."""
    found = []
    at = begin
    while at + 1e9 <= end:
        done = [
            _between(track, at + 1e9) - _between(track, at) if track else 0.0 for track in tracks
        ]
        if sum(done) > 0:
            found.append(100 * done[0] / sum(done))
        at += 1e8
    return found


def worst_below(tracks: list[list[tuple[float, float]]], begin: float, end: float) -> float:
    """By how many points the first one is below its reservation in its worst second."""
    return max([RESERVED - share for share in shares(tracks, begin, end)], default=-100.0)


def _between(track: list[tuple[float, float]], at: float) -> float:
    """The work that was done by then: none before the first line, all after the last."""
    before = (track[0][0], 0.0)
    for when, work in track:
        if when >= at:
            span = when - before[0]
            part = (at - before[0]) / span if span > 0 and at > before[0] else 0.0
            return before[1] + (work - before[1]) * part
        before = (when, work)
    return before[1]


def case_burst(setup: Setup) -> None:
    """Fifty programs start within one second, beside one that has 30 % reserved."""
    with Product(setup) as product, Programs(setup) as programs:
        product.vgpu("steady", min=f"{RESERVED}%")
        for i in range(VGPUS):
            product.vgpu(f"b{i}", min=f"{(100 - RESERVED) // VGPUS}%")
        steady = programs.busy(2000, WORK_S + 20, product, "steady")
        time.sleep(3)
        begin = time.monotonic_ns()
        with Watch(product, 0.25) as watch:
            cpu = CpuMeter(product)
            outs, started = [], []
            for i in range(PROGRAMS):
                due = begin + i * 1_000_000_000 // PROGRAMS
                time.sleep(max(0, due - time.monotonic_ns()) / 1e9)
                out = setup.work / f"burst-{i}-{time.monotonic_ns()}.txt"
                command = programs.load("hog", setup.turns_of(2000), WORK_S, out)
                started.append(programs.begin(command, None, product, f"b{i % VGPUS}"))
                outs.append(out)
            within = (time.monotonic_ns() - begin) / 1e9
            until = time.monotonic() + 30
            failed = 0
            for p in started:
                try:
                    failed += p.wait(max(0.1, until - time.monotonic())) != 0
                except subprocess.TimeoutExpired:
                    failed += 1
            used = cpu.percent()
        levers = product.ask("metrics").get("levers") or [{}]
        said = product.said()
        firsts = [f for f in map(first_line, outs) if f]
        ends = [float(rows[-1, 0]) for o in outs if len(rows := progress(o))]
        tracks = [[(float(t), float(w)) for t, w in progress(o)] for o in (steady, *outs)]
    pids = {p.pid for p in started}
    lost = {pid for pid, t in watch.seen.items() if t.get("managed") is False}
    lost |= {int(m.group(1)) for m in LEFT_ALONE.finditer(said)}
    # A second in which programs end is theirs that are left.
    below = worst_below(tracks, begin, min(ends)) if ends else None
    setup.record(
        f"{PROGRAMS} programs that start within 1 s: not governed",
        f"of {PROGRAMS}",
        None,
        len(lost & pids),
        "0",
        not lost & pids and not failed and len(firsts) == PROGRAMS,
        failed=failed,
        worked=len(firsts),
        started_within_s=within,
        last_first_work_s=(max(firsts) - begin) / 1e9 if firsts else None,
        rtxgd_cpu_percent=used,
        **{
            name: levers[0].get(name)
            for name in (
                "late_most_ns",
                "call_most_ns",
                "call_most",
                "late",
                "failures",
                "suspends",
                "suspend_ns",
                "resumes",
                "resume_ns",
                "slices",
            )
        },
    )
    setup.record(
        f"the same: worst second of a program with {RESERVED} % reserved",
        "points below",
        None,
        below,
        "5",
        below is not None and below <= 5,
        until_s=(min(ends) - begin) / 1e9 if ends else None,
        by_second=[round(share, 1) for share in shares(tracks, begin, min(ends))[::5]]
        if ends
        else None,
    )
