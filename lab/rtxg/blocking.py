# SPDX-License-Identifier: MIT
"""How long a job may wait for one of k GPUs.

The k-FMLP (klmirqd paper, appendix A) keeps a FIFO queue a GPU; a request joins the queue with the
least work ahead of it.  Four bounds on that wait are given, from the loosest to the exact one:

    oblivious (theorem 2)  >=  aware (theorem 1)  >=  capped  >=  exact (0-1 program)

Sections, ``l``, are in any one unit; ``k`` is the number of GPUs in the pool.  A bound for task i
needs the sections of the *other* GPU-using tasks of its cluster only.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil

import numpy as np

from .exact import whole

Number = Fraction | int


def kfmlp_oblivious(others: Sequence[Number], k: int, longest: Number | None = None) -> Fraction:
    """Theorem 2: max{l} * |T^R without T_i| / k, for an implementation that is not told lengths.

    :param longest: the longest section of *all* tasks, the own one included; default: of the others.
    """
    if not others:
        return Fraction(0)
    return Fraction(max(others) if longest is None else longest) * len(others) / k


def kfmlp_aware(others: Sequence[Number], k: int) -> Fraction:
    """Theorem 1: (sum of the other sections) / k."""
    return sum((Fraction(length) for length in others), Fraction(0)) / k


def kfmlp_capped(others: Sequence[Number], k: int) -> Fraction:
    """The least, over t = 0..k-1, of (sum of all but the t longest sections) / (k - t).

    However requests are spread, the t longest lie in at most t queues, so that k - t queues hold
    nothing but the rest, and the shortest of these no more than the average.  t = 0 is theorem 1;
    with fewer than k others it says what theorem 1 does not: there is no wait.
    """
    lengths = sorted(others, reverse=True)
    rest = Fraction(sum(lengths))
    best = rest / k
    for t in range(1, k):
        if t > len(lengths):
            break
        rest -= lengths[t - 1]
        best = min(best, rest / (k - t))
    return best


def kfmlp_exact(others: Sequence[Number], k: int) -> Fraction:
    """The 0-1 program of equation (3), solved with HiGHS: the greatest possible length of the
    shortest queue.

    The solver works in floating point; its assignment is evaluated again in exact arithmetic.  It
    searches a number of nodes that does not depend on the machine's speed.  Up to
    :data:`EXACT_REQUESTS` others that is enough in nearly all cases; where it is not, and beyond, the
    bound that it has proven is used, and beyond :data:`SEARCHED_REQUESTS` :func:`kfmlp_capped`.  The
    answer is safe and never above :func:`kfmlp_capped`.
    """
    if len(others) > SEARCHED_REQUESTS:
        return kfmlp_capped(others, k)
    return _shortest_queue(tuple(sorted(map(Fraction, others), reverse=True)), k)


@contextlib.contextmanager
def _quiet_stdout() -> Iterator[None]:
    """Keep the solver from printing: HiGHS sometimes writes a line of debugging to file descriptor 1,
    in the middle of a command's output."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


#: Up to so many other requests the 0-1 program is solved to optimality, or for so many nodes.
EXACT_REQUESTS, _EXACT_NODES = 12, 3000

#: Up to so many, the bound proven within so many nodes is used.
SEARCHED_REQUESTS, _SEARCHED_NODES = 24, 200


#: So many requests of two queues are shared out again in all ways.
_SHARED_OUT = 10


def _even_queues(lengths: Sequence[Fraction], k: int) -> Fraction:
    """The shortest queue of a good assignment, often the best: each request, the longest first, goes to
    the shortest queue; then the shortest queue and another one share their requests again, or where
    these are many the shortest of them, for as long as that makes the shorter of the two longer."""
    sizes, scale = whole(lengths)
    queues: list[list[int]] = [[] for _ in range(k)]
    for size in sorted(sizes, reverse=True):
        min(queues, key=sum).append(size)
    improved = True
    while improved:
        queues.sort(key=sum)
        improved = any(_share_evenly(queues[0], queue) for queue in reversed(queues[1:]))
    return Fraction(min(map(sum, queues)), scale)


def _share_evenly(short: list[int], long: list[int]) -> bool:
    """Make the shorter of two queues as long as can be; whether it is longer than it was."""
    before, total = sum(short), sum(short) + sum(long)
    free = sorted(short + long)[:_SHARED_OUT]
    held = [short.copy(), long.copy()]
    for size in free:
        held[size not in held[0]].remove(size)
    given = {0: 0}  # what the first queue may get of them, by its sum: a bit for each
    for at, size in enumerate(free):
        bit = 1 << at
        given |= {s + size: mine | bit for s, mine in given.items() if s + size not in given}
    base = sum(held[0])
    # The shorter queue is the first one below half of what both have, the second one above.
    half = total - 2 * base
    below = max((s for s in given if 2 * s < half), default=None)
    above = min((s for s in given if 2 * s >= half), default=None)
    best = below if above is None or (below is not None and below > half - above) else above
    if min(base + best, total - base - best) <= before:
        return False
    mine = given[best]
    short[:] = held[0] + [size for at, size in enumerate(free) if mine >> at & 1]
    long[:] = held[1] + [size for at, size in enumerate(free) if not mine >> at & 1]
    return True


@lru_cache(maxsize=4096)
def _shortest_queue(lengths: tuple[Fraction, ...], k: int) -> Fraction:
    if len(lengths) < k:
        return Fraction(0)
    if k == 1:
        return sum(lengths, Fraction(0))
    upper = kfmlp_capped(lengths, k)
    known = _even_queues(lengths, k)
    exact = len(lengths) <= EXACT_REQUESTS
    if known == upper:
        return upper
    if not exact and upper - known <= upper / 100:
        return upper
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import lil_array

    n = len(lengths)
    longest = lengths[0]  # all is measured by it, so that the unit does not matter
    weights = np.array([float(length / longest) for length in lengths])
    # Variables: x[queue, request] for every pair, then b.
    columns = n * k + 1
    rows = lil_array((k + n, columns))
    highest = np.append(np.ones(columns - 1), float(upper / longest) * (1 + 1e-9))
    for queue in range(k):
        rows[queue, queue * n : (queue + 1) * n] = weights
        rows[queue, columns - 1] = -1.0
        highest[queue * n : queue * n + queue] = 0.0  # queues are alike: request r lies in one of 0..r
    for request in range(n):
        for queue in range(k):
            rows[k + request, queue * n + request] = 1.0
    with _quiet_stdout():
        result = milp(
            c=np.append(np.zeros(columns - 1), -1.0),
            constraints=LinearConstraint(
                rows.tocsr(), np.append(np.zeros(k), np.ones(n)), np.append(np.full(k, np.inf), np.ones(n))
            ),
            bounds=Bounds(np.append(np.zeros(columns - 1), float(known / longest) * (1 - 1e-9)), highest),
            integrality=np.append(np.ones(columns - 1), 0),
            options={
                "node_limit": _EXACT_NODES if exact else _SEARCHED_NODES,
                "mip_rel_gap": 0.0 if exact else 1e-2,
            },
        )
    if exact and result.status == 0:
        assigned = np.round(result.x[:-1]).reshape(k, n)
        return max(
            known,
            min(sum((length for length, x in zip(lengths, row, strict=True) if x), Fraction(0)) for row in assigned),
        )
    proven = getattr(result, "mip_dual_bound", None)
    if proven is None:
        return upper
    return min(upper, longest * Fraction(ceil(-proven * (1 + 1e-9) * 2**40), 2**40))


def omlp_k_exclusion(
    others: Sequence[Number], cpus: int, k: int, *, requests: int
) -> Fraction:
    """Suspension-oblivious blocking under the clustered k-exclusion OMLP, for comparison.

    Brandenburg and Anderson, "Real-time resource-sharing under clustered scheduling" (EMSOFT 2011):
    a job may have to donate its priority once, until a request that waits behind ceil(m/k) - 1
    others and its own section are through, whether it uses a GPU or not; each of a job's ``requests``
    also waits for up to ceil(m/k) - 1.  Requests that wait together are of different tasks, so the
    longest ones of the *other* tasks count, each once a request, as in SchedCAT.
    """
    span = ceil(Fraction(cpus, k))
    lengths = sorted((Fraction(length) for length in others), reverse=True)
    donated = sum(lengths[:span], Fraction(0))
    return donated + requests * sum(lengths[: span - 1], Fraction(0))


#: k-FMLP bounds by name; each takes (sections of the others, k).
KFMLP_BOUNDS: dict[str, Callable[[Sequence[Number], int], Fraction]] = {
    "oblivious": kfmlp_oblivious,
    "aware": kfmlp_aware,
    "capped": kfmlp_capped,
    "exact": kfmlp_exact,
}


# One GPU as a mutex under partitioned fixed priorities ---------------------------------------------


@dataclass(frozen=True, slots=True)
class Sharer:
    """A task that may ask for the GPU that tasks on several CPUs share; times in any one unit.

    :param cpu: the CPU that it runs on.
    :param rank: its place among the priorities, 0 the most urgent; equals come after each other.
    :param response: bound on its response time.
    :param requests: requests of one job; 0: it never asks.
    :param section: length of its longest critical section.
    :param arrivals: times at which one job becomes ready; default: at its release and after each
        request.
    """

    cpu: int
    rank: int
    period: Number
    response: Number
    requests: int
    section: Number
    arrivals: int | None = None

    @property
    def ready(self) -> int:
        return 1 + self.requests if self.arrivals is None else self.arrivals


@dataclass(frozen=True, slots=True)
class Waits:
    """What one job may lose to a lock."""

    remote: Fraction  #: waiting while requests of other CPUs are served
    local: Fraction  #: while less urgent tasks of its own CPU run with raised priority


def fmlp_plus(sharers: Sequence[Sharer]) -> list[Waits]:
    """The partitioned FMLP+ with preemptive sections, suspension-aware.

    Brandenburg, "Scheduling and Locking in Multiprocessor Real-Time Operating Systems" (dissertation,
    2011), section 6.4: requests are served in the order of their times, and a holder runs before all
    that hold nothing.  Of each task on another CPU at most as many requests delay a job as the job
    issues, and as that CPU has in flight; of each less urgent task on its own CPU at most one
    for each time at which the job becomes ready.  Requests of more urgent tasks on the own CPU are
    their execution there, and so interference; where they hold the GPU without running,
    :func:`held_ahead` counts them.
    """
    sections, scale = whole([Fraction(one.section) for one in sharers])
    users: dict[int, list[int]] = {}  # of each CPU
    for at, one in enumerate(sharers):
        if one.requests:
            users.setdefault(one.cpu, []).append(at)
    found = []
    for at, (one, flying) in enumerate(zip(sharers, _in_flight(sharers), strict=True)):
        direct = [min(flying[i], one.requests) if i != at else 0 for i in range(len(sharers))]
        remote = local = 0
        for cpu, there in users.items():
            if cpu != one.cpu:
                most = min(sum(direct[i] for i in there), one.requests)
                remote += sum(sections[i] * min(flying[i], most) for i in there)
        times = min(one.ready, sum(direct) + 1 + one.ready - (1 + one.requests))
        for i in users.get(one.cpu, ()):
            if i != at and sharers[i].rank >= one.rank:
                local += sections[i] * min(flying[i], times)
        found.append(Waits(Fraction(remote, scale), Fraction(local, scale)))
    return found


def _in_flight(sharers: Sequence[Sharer]) -> Iterator[list[int]]:
    """For one task after the other: how many requests of each task are in flight at most while one
    of its jobs responds, of ceil((R + R_i) / T_i) jobs. In whole numbers: sets of 300 tasks have
    90 000 pairs."""
    times = [
        (*Fraction(one.response).as_integer_ratio(), *Fraction(one.period).as_integer_ratio())
        for one in sharers
    ]
    for above, below, _, _ in times:
        yield [
            one.requests * -(-(above * b + a * below) * d // (below * b * c)) if one.requests else 0
            for one, (a, b, c, d) in zip(sharers, times, strict=True)
        ]


def held_ahead(sharers: Sequence[Sharer]) -> list[Fraction]:
    """Of more urgent tasks on the same CPU under the FMLP+: one of their requests for each of a job's,
    as far as they hold the GPU in that time."""
    sections, scale = whole([Fraction(one.section) for one in sharers])
    found = []
    for one, flying in zip(sharers, _in_flight(sharers), strict=True):
        held = sum(
            section * min(count, one.requests)
            for other, section, count in zip(sharers, sections, flying, strict=True)
            if other is not one and other.cpu == one.cpu and other.rank < one.rank
        )
        found.append(Fraction(held, scale))
    return found


def mpcp(sharers: Sequence[Sharer]) -> list[Waits] | None:
    """The Multiprocessor Priority Ceiling Protocol, suspension-based; None where a wait grows beyond
    the job's period and response.

    Lakshmanan, de Niz and Rajkumar, "Coordinated task scheduling, allocation and synchronization on
    multiprocessors" (RTSS 2009), equations 1 to 3, for one resource: requests are served by priority,
    and a holder runs above all priorities.  The response of a section is its length and one section of
    each other task on its CPU; a request waits for one of the less urgent tasks and, within its wait B,
    for ceil(B / T) + 1 jobs of each more urgent one.
    """
    responses = [
        Fraction(one.section) + sum(o.section for o in sharers if o is not one and o.cpu == one.cpu and o.requests)
        for one in sharers
    ]
    found = []
    for one in sharers:
        others = [(o, r) for o, r in zip(sharers, responses, strict=True) if o is not one and o.requests]
        lower = max((r for o, r in others if o.rank >= one.rank), default=Fraction(0))
        wait, longer = Fraction(-1), lower if one.requests else Fraction(0)
        while one.requests and longer != wait:
            wait = longer
            if wait > max(one.response, one.period):
                return None
            longer = lower + sum(
                ((ceil(wait / o.period) + 1) * r * o.requests for o, r in others if o.rank < one.rank),
                Fraction(0),
            )
        local = sum(
            (Fraction(o.section) for o in sharers if o is not one and o.cpu == one.cpu and o.rank >= one.rank and o.requests),
            Fraction(0),
        )
        found.append(Waits(one.requests * longer, local * one.ready))
    return found


#: Bounds for one GPU that is given out and not taken back, under P-FP.
PARTITIONED_LOCKS = ("fmlp+", "mpcp")
