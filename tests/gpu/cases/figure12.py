# SPDX-License-Identifier: MIT
"""Four detectors with and without a CPU load, in the paper's six ways (Linux-RTXG, figure 12)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from harness import Setup, can_fifo, progress
from product import Product, Programs, python

DUE = [60, 20, 10, 10]


class Way(NamedTuple):
    """One of the six: how GPU and CPU are scheduled, and is there a CPU load?"""

    letter: str  # of the paper's figure
    name: str
    gpu: str  # null, priority, shares
    fifo: bool
    load: bool


#: in the order in which they are measured; each half is under one state of the daemon
WAYS = (
    Way("c", "shares", "shares", False, False),
    Way("d", "shares, CPU load", "shares", False, True),
    Way("f", "shares and FIFO, CPU load", "shares", True, True),
    Way("b", "priority", "priority", False, False),
    Way("a", "null", "null", False, False),
    Way("e", "null, CPU load", "null", False, True),
)


class Claim(NamedTuple):
    """What the paper says of one of the six, and what was seen of it."""

    letter: str
    what: str
    number: float
    unit: str
    aim: str  # "-": the paper tells of a fault, not of an aim
    met: bool | None


def ratio(part: list[float], whole: list[float]) -> float:
    """The first detector's rate in the one, percent of that in the other."""
    return 100 * part[0] / whole[0] if whole[0] else 0.0


def claims(frames: dict[str, list[float]]) -> list[Claim]:
    """Compare frames a second, by letter and detector, with the paper's words.

    The paper has pictures without numbers: without scheduling all four are alike; GPU priorities
    alone change little; reservations order them; a CPU load takes frames with and without
    reservations, and none where the CPU is scheduled, too.
    """
    a, b, c, d, e, f = (frames[letter] for letter in "abcdef")
    spread = 100 * (max(a) - min(a)) / float(np.mean(a)) if any(a) else 100.0
    error = max(
        abs(100 * x / sum(c) - due) if any(c) else 100.0 for x, due in zip(c, DUE, strict=True)
    )
    ahead, kept = ratio(b, a), ratio(f, c)
    return [
        Claim("a", "nothing scheduled: spread of the four", spread, "%", "<= 10", spread <= 10),
        Claim("b", "GPU priorities: the first, of (a)", ahead, "%", ">= 90", ahead >= 90),
        Claim("c", "reservations: share error", error, "points", "<= 9", error <= 9),
        Claim("d", "reservations, CPU load: kept of (c)", ratio(d, c), "%", "-", None),
        Claim("e", "nothing scheduled, CPU load: kept of (a)", ratio(e, a), "%", "-", None),
        Claim("f", "CPU scheduled, too, CPU load: kept of (c)", kept, "%", ">= 95", kept >= 95),
    ]


def record_claims(setup: Setup, frames: dict[str, list[float]]) -> None:
    """A line for each of the six but the last, which the case's own line has."""
    for claim in claims({way.letter: frames[way.name] for way in WAYS}):
        if claim.letter == "f":
            continue
        stock = claim.letter in "ae"
        setup.record(
            f"figure 12 ({claim.letter}): {claim.what}",
            claim.unit,
            claim.number if stock else None,
            None if stock else claim.number,
            claim.aim,
            claim.met,
        )


def threads(pid: int) -> dict[int, tuple[str, str, int, float]]:
    """Threads of a process: name, CPU policy, priority, and ms that each has waited for a CPU."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            stat = (task / "stat").read_text(encoding="utf-8", errors="replace")
            name, rest = (
                stat[stat.index("(") + 1 : stat.rindex(")")],
                stat[stat.rindex(")") + 2 :].split(),
            )
            waited = float((task / "schedstat").read_text(encoding="ascii").split()[1]) / 1e6
        except OSError:  # it has ended
            continue
        policy = {0: "other", 1: "fifo", 2: "rr", 3: "batch", 6: "deadline"}.get(
            int(rest[38]), rest[38]
        )
        found[int(task.name)] = name, policy, int(rest[37]), waited
    return found


def late_threads(
    before: dict[int, tuple[str, str, int, float]], after: dict[int, tuple[str, str, int, float]]
) -> list[str]:
    """The five threads that waited longest for a CPU in between."""
    waits = [(v[3] - before[t][3] if t in before else v[3], *v[:3]) for t, v in after.items()]
    return [
        f"{name} ({policy} {level}): {ms:.1f} ms"
        for ms, name, policy, level in sorted(waits, reverse=True)[:5]
    ]


class Detectors:
    """The four programs, which run through all of it."""

    def __init__(self, setup: Setup, programs: Programs, product: Product) -> None:
        self.setup, self.programs, self.product = setup, programs, product
        self.spans: dict[str, list[tuple[int, int]]] = {}
        self.detail: dict[str, list[dict[str, Any]]] = {}
        self.pids: list[int] = []

    def begin(self, seconds: float) -> None:
        """Starts them and waits until they work."""
        for i in range(4):
            out = self.setup.work / f"torch-detect-{i}.txt"
            command = python("torch_load.py", "detect", seconds, out)
            said = self.setup.work / "detect-said.txt"
            p = self.programs.begin(command, out, self.product, f"d{i}", said=said)
            self.pids.append(p.pid)
        self.programs.wait_working()
        time.sleep(1)

    def arrange(self, way: Way) -> None:
        """The GPU's and the CPUs' side of a way."""
        for i, (pid, share) in enumerate(zip(self.pids, DUE, strict=True)):
            if way.gpu == "shares":
                self.product.vgpu(f"d{i}", min=f"{share}%", priority=1)
            elif way.gpu == "priority":  # fixed priorities: the first comes before all others
                self.product.vgpu(f"d{i}", min="0%", priority=60 if not i else 1)
            words = ["fifo", "--cpu-priority", "10"] if way.fifo and can_fifo() else ["other"]
            if way.gpu != "null":
                self.product.rtxg("set", "-p", str(pid), "--cpu-policy", *words)

    def measure(self, way: Way, settle_s: float, length_s: float) -> None:
        """One stretch."""
        hack = None
        if way.load:
            hack = self.programs.start([str(self.setup.bin / "hackload"), "4", "60"], None)
        try:
            time.sleep(settle_s)
            watched = [self.pids[0], *self.product.pids()[:1]]
            before, begin = [threads(p) for p in watched], time.monotonic_ns()
            time.sleep(length_s)
            end, after = time.monotonic_ns(), [threads(p) for p in watched]
        finally:
            if hack:
                hack.kill()
                hack.wait(20)
        self.spans.setdefault(way.name, []).append((begin, end))
        waited = [late_threads(a, b) for a, b in zip(before, after, strict=True)]
        self.detail.setdefault(way.name, []).append(
            {
                "policies_of_the_first": sorted({f"{p} {n}" for _, p, n, _ in after[0].values()}),
                "waited_for_a_cpu_first": waited[0],
                "waited_for_a_cpu_rtxgd": waited[1] if len(waited) > 1 else None,
            }
        )

    def frames(self) -> dict[str, list[float]]:
        """Frames a second of each, in each way; and what is drawn."""
        rows = [progress(o) for o in self.programs.outputs]
        found: dict[str, list[float]] = {}
        self.setup.plots["figure12"] = {}
        for name, spans in self.spans.items():
            each = [
                [
                    float(np.diff(np.interp(s, r[:, 0], np.arange(len(r))))[0])
                    / (s[1] - s[0])
                    * 1e9
                    for r in rows
                ]
                for s in spans
            ]
            found[name] = [float(np.mean(column)) for column in zip(*each, strict=True)]
            inside = [
                np.any([(r[:, 0] >= a) & (r[:, 0] < b) for a, b in spans], axis=0) for r in rows
            ]
            self.setup.plots["figure12"][name] = [
                r[i][:, 1] for r, i in zip(rows, inside, strict=True)
            ]
        return found


def case_figure12(setup: Setup) -> None:
    """Four detectors in six ways, with and without a CPU load (Linux-RTXG, figure 12)."""
    settle_s, length_s = 0.7, setup.seconds(2, 3.5)
    rounds = 1 if setup.quick else 2
    product = Product(setup)
    with Programs(setup) as programs:
        detectors = Detectors(setup, programs, product)
        try:
            product.start()
            for i, share in enumerate(DUE):
                product.vgpu(f"d{i}", min=f"{share}%")
            detectors.begin(rounds * 6 * (settle_s + length_s + 1) + 20)
            for n in range(rounds):
                if n:
                    product.start()
                for way in WAYS:
                    if way.gpu == "null":
                        if product.process:
                            detectors.arrange(Way("", "", "", False, False))
                        product.stop()
                    else:
                        detectors.arrange(way)
                    detectors.measure(way, settle_s, length_s)
        finally:
            product.__exit__()
        frames = detectors.frames()
    record_claims(setup, frames)
    module = Path("/dev/rtxg").exists()
    kept = [
        b / a if a else 0.0
        for a, b in zip(frames["shares"], frames["shares and FIFO, CPU load"], strict=True)
    ]
    lost = [
        b / a if a else 0.0 for a, b in zip(frames["null"], frames["null, CPU load"], strict=True)
    ]
    limit = Path("/proc/sys/kernel/sched_rt_runtime_us")
    setup.record(
        "four detectors 60/20/10/10: frame rate kept under a CPU load, first one",
        "%",
        100 * lost[0],
        100 * kept[0],
        "95",
        kept[0] >= 0.95,
        frames_per_s=frames,
        kept=kept,
        stock_kept=lost,
        cpu_policy="SCHED_FIFO 10"
        if can_fifo()
        else "SCHED_OTHER: no real-time runtime in this cgroup",
        module="loaded, not measured here"
        if module
        else "not loaded: its rate-monotonic policy could not run",
        sched_rt_runtime_us=int(limit.read_text(encoding="ascii")) if limit.exists() else None,
        windows=detectors.detail,
    )
