# SPDX-License-Identifier: MIT
"""Fifty programs start within one second: are they all governed, and is a reservation kept?"""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from harness import Setup, progress, xids
from product import CpuMeter, Product, Programs, Watch

from .churn import LEFT_ALONE

PROGRAMS = 50
VGPUS = 10
#: of the program that was there before
RESERVED = 30
#: those that start work for so long
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


@dataclass
class Burst:
    """What became of the fifty, and of the one that was there before."""

    pids: set[int]
    within_s: float  # all were started
    firsts_s: list[float]  # from the first start to the end of a program's first kernel
    spent_s: dict[str, list[float]]  # on each step, median and longest
    failed: list[str]  # exit status and last words of those that ended with an error
    unfinished: int  # still there 40 s after the last start
    tracks: list[list[tuple[float, float]]]  # of the one before, then of the fifty
    begin: int
    end: int  # the first of them ends
    stopped: list[tuple[int, int]] = field(default_factory=list)  # the one before, by rtxgd
    acts_by_second: dict[str, list[int]] = field(default_factory=dict)  # of rtxgd, by kind

    def by_half_second(self) -> list[float]:
        """The first one's percentage, a second each, two a second."""
        return [round(share, 1) for share in shares(self.tracks, self.begin, self.end)[::5]]

    def stopped_by_half_second(self) -> list[float]:
        """How much of the same seconds rtxgd held it still, in percent."""
        found = []
        for at in range(self.begin, self.end - 1_000_000_000, 500_000_000):
            held = [
                min(b, at + 1_000_000_000) - max(a, at)
                for a, b in self.stopped
                if b > at and a < at + 1_000_000_000
            ]
            found.append(round(sum(held) / 1e7, 1))
        return found


def last_words(path: Path) -> str:
    """The last line that a program wrote to its error output."""
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1][:160] if lines else "nothing said"


#: of LOAD_STEPS, in order
STEPS = ("began", "context", "memory", "worked", "ends", "ended")


def steps_of(path: Path) -> dict[str, int]:
    """When a program came how far (CLOCK_MONOTONIC ns)."""
    found = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        match line.split():
            case ["load:", step, at] if step in STEPS and at.isdecimal():
                found[step] = int(at)
    return found


def spent(programs: list[dict[str, int]]) -> dict[str, list[float]]:
    """The median and the longest time from each step to the next, s."""
    found = {}
    for a, b in pairwise(STEPS):
        times = sorted((p[b] - p[a]) / 1e9 for p in programs if a in p and b in p)
        if times:
            found[f"{a} to {b}"] = [round(times[len(times) // 2], 3), round(times[-1], 3)]
    return found


def burst(setup: Setup, programs: Programs, product: Product | None) -> Burst:
    """Starts one program, and fifty within a second when it works; waits for all of them."""
    steady = programs.busy(2000, WORK_S + 45, product, "steady")
    first = programs.processes[-1].pid
    programs.wait_working()
    time.sleep(1)
    begin = time.monotonic_ns()
    outs, words, started = [], [], []
    for i in range(PROGRAMS):
        due = begin + i * 1_000_000_000 // PROGRAMS
        time.sleep(max(0, due - time.monotonic_ns()) / 1e9)
        outs.append(setup.work / f"burst-{i}-{begin}.txt")
        words.append(setup.work / f"burst-{i}-{begin}-said.txt")
        command = programs.load("hog", setup.turns_of(2000), WORK_S, outs[-1])
        vgpu = f"b{i % VGPUS}" if product else None
        started.append(
            programs.begin(command, None, product, vgpu, said=words[-1], LOAD_STEPS="yes")
        )
    within = (time.monotonic_ns() - begin) / 1e9
    until = time.monotonic() + 40
    failed, unfinished = [], 0
    for p, said in zip(started, words, strict=True):
        try:
            if status := p.wait(max(0.1, until - time.monotonic())):
                failed.append(f"{status}: {last_words(said)}")
        except subprocess.TimeoutExpired:
            unfinished += 1
    line = product.timeline() if product else None
    programs.end()
    ends = [float(rows[-1, 0]) for o in outs if len(rows := progress(o))]
    tracks = [[(float(t), float(w)) for t, w in progress(o)] for o in (steady, *outs)]
    steps = [steps_of(said) for said in words]
    firsts = [(p["worked"] - begin) / 1e9 for p in steps if "worked" in p]
    done = Burst(
        {p.pid for p in started},
        within,
        firsts,
        spent(steps),
        failed,
        unfinished,
        tracks,
        begin,
        # A second in which programs end is theirs that are left.
        int(min(ends, default=begin)),
    )
    if line:
        done.stopped = line.stopped.get(first, [])
        done.acts_by_second = line.by_second(begin)
    return done


def case_burst(setup: Setup) -> None:
    """Fifty programs start within one second, beside one that has 30 % reserved."""
    before = len(xids())
    with Programs(setup) as programs:
        stock = burst(setup, programs, None)
    stock_xids = len(xids()) - before
    with Product(setup) as product, Programs(setup) as programs:
        product.vgpu("steady", min=f"{RESERVED}%")
        for i in range(VGPUS):
            product.vgpu(f"b{i}", min=f"{(100 - RESERVED) // VGPUS}%")
        with Watch(product, 0.25) as watch:
            cpu = CpuMeter(product)
            rtxg = burst(setup, programs, product)
            used = cpu.percent()
        levers = product.ask("metrics").get("levers") or [{}]
        said = product.said()
    lost = {pid for pid, t in watch.seen.items() if t.get("managed") is False}
    lost |= {int(m.group(1)) for m in LEFT_ALONE.finditer(said)}
    lost &= rtxg.pids
    setup.record(
        f"{PROGRAMS} programs that start within 1 s: not governed",
        f"of {PROGRAMS}",
        None,
        len(lost),
        "0",
        not lost and len(rtxg.firsts_s) == PROGRAMS,
        started_within_s=rtxg.within_s,
        rtxgd_cpu_percent=used,
        acts_by_second=rtxg.acts_by_second,
        **{
            name: levers[0].get(name)
            for name in (
                "late_most_ns",
                "call_most_ns",
                "call_most",
                "late",
                "calls",
                "calls_ns",
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
        "the same: ended with an error",
        f"of {PROGRAMS}",
        len(stock.failed),
        len(rtxg.failed),
        "as stock",
        len(rtxg.failed) <= len(stock.failed),
        stock_said=stock.failed[:10],
        rtxg_said=rtxg.failed[:10],
        unfinished=[stock.unfinished, rtxg.unfinished],
        xids=[stock_xids, len(xids()) - before - stock_xids],
    )
    latest = [max(b.firsts_s, default=None) for b in (stock, rtxg)]
    setup.record(
        "the same: until the last one has worked",
        "s",
        latest[0],
        latest[1],
        "1.1 of stock",
        None not in latest and latest[1] <= 1.1 * latest[0],
        stock_spent_s=stock.spent_s,
        rtxg_spent_s=rtxg.spent_s,
        medians_s=[sorted(b.firsts_s)[len(b.firsts_s) // 2] for b in (stock, rtxg) if b.firsts_s],
    )
    below = [worst_below(b.tracks, b.begin, b.end) for b in (stock, rtxg)]
    setup.record(
        f"the same: worst second of a program with {RESERVED} % reserved",
        "points below",
        below[0],
        below[1],
        "5",
        below[1] <= 5,
        until_s=[(b.end - b.begin) / 1e9 for b in (stock, rtxg)],
        stock_by_half_second=stock.by_half_second(),
        by_half_second=rtxg.by_half_second(),
        stopped_by_half_second=rtxg.stopped_by_half_second(),
    )
