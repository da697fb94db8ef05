# SPDX-License-Identifier: MIT
"""What kept a late job of a run from its CPUs (:mod:`rtxg.replay`): tasks of its own set, a
hypervisor, or the kernel's limit of real-time tasks.

While a job is ready and does not run, work-conserving schedulers let tasks of its set run on all
CPUs of its cluster.  So time in which a job waited for a CPU beside fewer tasks than CPUs was taken
by something outside the set.  Where all processes note when they ran, that time is known.  Times
are seconds of CLOCK_MONOTONIC, in results microseconds.  May not: judge whether a bound holds.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from .analysis import Analysis
from .units import format_time

#: A pause in a busy loop of more than so much is one in which the thread did not run, seconds.
GAP = 0.0005
#: Stretches that a process keeps: the last ones.
KEPT = 20_000
#: What is denied all the time, microseconds: switches, interrupts, the loop itself.
NOISE = 2000.0
#: How often the time stolen is read, seconds, and how late the kernel adds to it.
EVERY, TICK = 0.02, 0.01

Stretch = tuple[float, float]


class Stretches:
    """When this thread ran, by its own busy loop, and when it slept by its own will: the last
    stretches, from begin to end."""

    def __init__(self) -> None:
        self.ran: deque[Stretch] = deque(maxlen=KEPT)
        self.sleeps: deque[Stretch] = deque(maxlen=KEPT)

    def slept(self, since: float) -> None:
        """It slept, or waited for a lock, from then until now."""
        self.sleeps.append((since, time.monotonic()))

    def burn(self, end: float) -> None:
        """Compute until this thread's CPU clock shows ``end`` seconds."""
        begin = last = time.monotonic()
        while time.thread_time() < end:
            now = time.monotonic()
            if now - last > GAP:
                self.ran.append((begin, last))
                begin = now
            last = now
        self.ran.append((begin, last))


@dataclass(frozen=True, slots=True)
class LateJob:
    """A job that ended after its deadline."""

    task: str
    response: float  #: microseconds
    late: float  #: by how much it passed its deadline
    #: for how long it, or late jobs right before it, waited for a CPU that ran no task of the set
    denied: float
    stolen: float  #: what a hypervisor took of its cluster's CPUs meanwhile, at most
    longest: float = 0.0  #: of what it was denied, the longest stretch
    stolen_then: float = 0.0  #: what a hypervisor took in that
    limit: float = 0.0  #: what the limit of real-time tasks takes at a time; 0: it takes nothing

    @property
    def cause(self) -> str:
        """set, limit, stolen or other.  The limit takes all that it takes in one stretch."""
        if self.denied <= NOISE:
            return "set"
        if self.limit and self.longest - self.stolen_then > self.limit / 2:
            return "limit"
        return "stolen" if self.stolen else "other"

    def words(self) -> str:
        """The cause in a sentence."""
        denied, stolen = format_time(self.denied), format_time(self.stolen)
        if self.cause == "set":
            return "the tasks of its set had its CPUs all along"
        if self.cause == "stolen":
            return f"it was denied a CPU for {denied}; a hypervisor took up to {stolen} meanwhile"
        if self.cause == "limit":
            also = f"; a hypervisor took up to {stolen} meanwhile" if self.stolen else ""
            longest = format_time(self.longest)
            limit = f"{longest} at a time by the limit of real-time tasks"
            return f"it was denied a CPU for {denied}, {limit}{also}"
        return f"it was denied a CPU for {denied}, by interrupts or by programs outside its set"


def within(stretches: Sequence[Stretch], begin: float, end: float) -> list[Stretch]:
    """The parts of stretches, which are in order, between two times."""
    first = bisect_right(stretches, begin, key=lambda s: s[1])
    last = bisect_left(stretches, end, key=lambda s: s[0])
    return [(max(b, begin), min(e, end)) for b, e in stretches[first:last]]


def denied(
    begin: float, end: float, own: Sequence[Stretch], others: Iterable[Sequence[Stretch]], cpus: int
) -> list[Stretch]:
    """The stretches between two times in which a job did not run, and fewer others than CPUs did.

    :param own: when the job ran, or slept by its own will.
    :param others: when each of the other tasks of its cluster ran.
    """
    changes = [(begin, 0, 0), (end, 0, 0)]
    for b, e in within(own, begin, end):
        changes += [(b, 1, 0), (e, -1, 0)]
    for other in others:
        for b, e in within(other, begin, end):
            changes += [(b, 0, 1), (e, 0, -1)]
    changes.sort()
    found: list[Stretch] = []
    mine, theirs, last = 0, 0, begin
    for at, change, beside in changes:
        if mine <= 0 and theirs < cpus and at > last:
            if found and found[-1][1] == last:
                found[-1] = (found[-1][0], at)
            else:
                found.append((last, at))
        mine, theirs, last = mine + change, theirs + beside, at
    return found


def explain(
    task: str,
    times: tuple[float, float, float],
    deadline: float,
    lost: Sequence[Stretch],
    thief: Thief,
    limit: RealTimeLimit | None,
) -> LateJob:
    """What is to be said of a late job.

    :param times: since when it or late jobs right before it were there; its release; its end.
    :param deadline: seconds from its release.
    :param lost: the stretches in which it, or they, were denied a CPU.
    :param limit: the kernel's limit of real-time tasks, if the job was one.
    """
    since, release, ended = times
    begin, end = max(lost, key=lambda s: s[1] - s[0], default=(since, since))
    return LateJob(
        task,
        (ended - release) * 1e6,
        (ended - release - deadline) * 1e6,
        sum(e - b for b, e in lost) * 1e6,
        thief.between(since, ended),
        (end - begin) * 1e6,
        thief.at(end) - thief.at(begin),
        limit.kept if limit else 0.0,
    )


def stolen_of(cpus: Iterable[int], text: str | None = None) -> float:
    """Microseconds since boot in which a hypervisor ran others on these CPUs (/proc/stat)."""
    if text is None:
        text = Path("/proc/stat").read_text(encoding="ascii")
    wanted = {f"cpu{cpu}" for cpu in cpus}
    ticks = sum(
        int(words[8])
        for line in text.splitlines()
        if (words := line.split()) and words[0] in wanted and len(words) > 8
    )
    return ticks * 1e6 / os.sysconf("SC_CLK_TCK")


class Thief:
    """Reads now and then what a hypervisor took, as long as the block lasts."""

    def __init__(self, cpus: Iterable[int]) -> None:
        self._cpus = tuple(cpus)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self.seen: list[tuple[float, float]] = []  # when, microseconds since boot

    def _look(self) -> None:
        self.seen.append((time.monotonic(), stolen_of(self._cpus)))

    def _read(self) -> None:
        while not self._end.wait(EVERY):
            self._look()

    def __enter__(self) -> Thief:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self._look()

    def between(self, begin: float, end: float) -> float:
        """Microseconds taken between two times, at most: from reading before to reading after."""
        first = bisect_right(self.seen, begin, key=lambda s: s[0]) - 1
        last = bisect_left(self.seen, end + TICK, key=lambda s: s[0])
        return self.seen[min(last, len(self.seen) - 1)][1] - self.seen[max(first, 0)][1]

    def at(self, when: float) -> float:
        """Microseconds taken since boot at that time, as if evenly between two readings."""
        after = bisect_left(self.seen, when, key=lambda s: s[0])
        if after in (0, len(self.seen)):
            return self.seen[min(after, len(self.seen) - 1)][1]
        (t, low), (u, high) = self.seen[after - 1 : after + 1]
        return low + (high - low) * (when - t) / (u - t)


@dataclass(frozen=True, slots=True)
class RealTimeLimit:
    """The kernel keeps a part of each CPU's time from real-time tasks; microseconds."""

    runtime: float
    period: float

    @property
    def kept(self) -> float:
        """What a period has for others."""
        return self.period - self.runtime


def real_time_limit(root: Path = Path("/proc/sys/kernel")) -> RealTimeLimit | None:
    """The limit of this machine; None: there is none."""
    try:
        runtime = float((root / "sched_rt_runtime_us").read_text(encoding="ascii"))
        period = float((root / "sched_rt_period_us").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return RealTimeLimit(runtime, period) if 0 <= runtime < period else None


def demand(analysis: Analysis, cluster: int | None, length: float) -> float:
    """Most microseconds of CPU time that tasks of a cluster can want in so long a stretch."""
    wanted = 0.0
    for result in analysis.results:
        task = result.task
        if (task.cluster or 0) != (cluster or 0):
            continue
        own = float(result.inflated - result.blocking - task.gpu_time)
        pending = float(task.deadline + (result.tardiness or 0))
        wanted += min(ceil((length + pending) / float(task.period)) * own, length)
    return wanted


def over_limit(analysis: Analysis, limit: RealTimeLimit) -> tuple[bool, float]:
    """Whether the limit is certain to strike a task set, and what one CPU can want in a period.

    It cannot strike where that is at most the limit's runtime: no more work comes than it lets
    through.  It is certain to strike where a cluster's utilisation leaves its CPUs less than the
    limit keeps.
    """
    p = analysis.taskset.platform
    certain, most = False, 0.0
    for cluster in range(p.clusters):
        most = max(most, min(demand(analysis, cluster, limit.period), limit.period))
        mine = [t for t in analysis.taskset if (t.cluster or 0) == cluster]
        load = float(sum(t.cost / t.period for t in mine)) / p.cpus_per_cluster
        certain = certain or load > limit.runtime / limit.period
    return certain, most
