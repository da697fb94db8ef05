# SPDX-License-Identifier: MIT
"""Tardiness bounds for global EDF and global fair-lateness scheduling, in exact arithmetic.

Soft real time: a task set is schedulable when no task asks for more than one CPU, all together ask
for no more than m, and then every job ends within a bounded time of its deadline.  Two bounds are
given, the classic one of Devi and Anderson and the tighter one by compliant vectors.

These are bounds on how late a job may be *if it can be late*.  They are above zero for nearly any
task set, also for those of which no job is ever late.  Whether a job can be late is the question of
:mod:`rtxg.hard`; :func:`rtxg.analysis.analyze` asks it first.

Every function takes costs, periods and deadlines in any one unit and answers in that unit: nothing
is rounded.  SchedCAT rounds x_i up to whole units, so that its numbers are those of
:func:`compliant_vector` rounded up.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from heapq import nlargest
from math import ceil

from .exact import rounded_up, sum_of, utilization

Number = Fraction | int


def is_feasible(costs: Sequence[Number], periods: Sequence[Number], m: int) -> bool:
    """Conditions (4) and (5): e_i <= p_i for every task, and the utilisations sum to at most m."""
    return (
        all(c <= p for c, p in zip(costs, periods, strict=True))
        and utilization(costs, periods) <= m
    )


def priority_points(
    costs: Sequence[Number], deadlines: Sequence[Number], m: int, scheduler: str = "G-EDF"
) -> list[Fraction]:
    """Relative priority point Y_i of each task: its deadline under G-EDF; under G-FL (Erickson,
    Anderson and Ward, "Fair lateness scheduling", 2014) earlier by (m-1)/m * C_i."""
    if scheduler == "G-EDF":
        return [Fraction(d) for d in deadlines]
    if scheduler == "G-FL":
        return [d - Fraction(m - 1, m) * c for c, d in zip(costs, deadlines, strict=True)]
    raise ValueError(f"no tardiness bound for scheduler {scheduler!r}; use G-EDF or G-FL")


def compliant_vector(
    costs: Sequence[Number],
    periods: Sequence[Number],
    deadlines: Sequence[Number],
    m: int,
    scheduler: str = "G-EDF",
) -> list[Fraction] | None:
    """Response-time bound R_i of each task by the least compliant vector; None if there is none.

    Erickson, Guan and Baruah, "Tardiness bounds for global EDF with deadlines different from
    periods" (2010), for any priority points: with Y' = Y - min Y, S_i = max(0, C_i (1 - Y'_i / T_i))
    and g_i(s) = C_i - S_i + u_i * max(0, s - C_i / m), the response-time bound is
    Y'_i + C_i + x_i, x_i = max(0, s - C_i/m), where s is the zero of
    G(s) + sum S_i - m s, G(s) the sum of the ceil(U) - 1 largest g_i(s).  x_i is kept at zero or
    above, as compliance demands of it.
    """
    n = len(costs)
    if not is_feasible(costs, periods, m):
        return None
    if n == 0:
        return []
    if (
        m == 1
        and scheduler == "G-EDF"
        and all(d >= p for d, p in zip(deadlines, periods, strict=True))
    ):
        return [Fraction(d) for d in deadlines]  # EDF is optimal on one processor
    costs = [Fraction(c) for c in costs]
    points = priority_points(costs, deadlines, m, scheduler)
    least = min(points)
    shifted = [y - least for y in points]
    usage = [c / t for c, t in zip(costs, periods, strict=True)]
    spill = [max(Fraction(0), c - u * y) for c, u, y in zip(costs, usage, shifted, strict=True)]
    carriers = ceil(utilization(costs, periods)) - 1
    s = _zero(costs, usage, spill, carriers, m)
    return [y + c + max(Fraction(0), s - c / m) for y, c in zip(shifted, costs, strict=True)]


def _zero(
    costs: Sequence[Fraction],
    usage: Sequence[Fraction],
    spill: Sequence[Fraction],
    carriers: int,
    m: int,
) -> Fraction:
    """The zero of G(s) + sum S_i - m s, exactly.

    That function is convex, piecewise linear and falling with a slope below zero, so Newton's method
    from the left reaches the zero in finitely many steps.  Doubles find the last piece; from there
    one exact step ends on the zero, and a second one sees that it does.
    """
    base = [c - sp for c, sp in zip(costs, spill, strict=True)]
    knee = [c / m for c in costs]
    total_spill = sum_of(spill)

    def step(s: Fraction) -> Fraction:
        """How far Newton's method goes on from s; not above zero at the zero and to its right."""
        # Value and right-hand slope of each g_i at s; ties go to the steeper one.
        pieces = [
            (b + u * (s - k), u) if s >= k else (b, Fraction(0))
            for b, u, k in zip(base, usage, knee, strict=True)
        ]
        chosen = nlargest(carriers, pieces)
        value = sum_of([g for g, _ in chosen]) + total_spill - m * s
        return value / (m - sum_of([slope for _, slope in chosen])) if value > 0 else Fraction(0)

    near = _zero_in_doubles(
        [float(b) for b in base],
        [float(u) for u in usage],
        [float(k) for k in knee],
        float(total_spill),
        carriers,
        m,
    )
    s = Fraction(near) * (1 - Fraction(1, 10**9))
    gained = step(s)
    if not gained:  # not to the left of the zero after all
        s = Fraction(0)
        gained = step(s)
    while gained:
        s += gained
        gained = step(s)
    return s


def _zero_in_doubles(
    base: list[float], usage: list[float], knee: list[float], total: float, carriers: int, m: int
) -> float:
    s = 0.0
    for _ in range(1000):
        chosen = nlargest(
            carriers,
            [
                (b + u * (s - k), u) if s >= k else (b, 0.0)
                for b, u, k in zip(base, usage, knee, strict=True)
            ],
        )
        value = sum(g for g, _ in chosen) + total - m * s
        slope = m - sum(u for _, u in chosen)
        if value <= 1e-12 * m * s or slope <= 0:
            break
        s += value / slope
    return s


def compliant_tardiness(
    costs: Sequence[Number],
    periods: Sequence[Number],
    deadlines: Sequence[Number],
    m: int,
    scheduler: str = "G-EDF",
) -> list[Fraction] | None:
    """Tardiness bound max(0, R_i - D_i) of each task by compliant vectors; None if not bounded."""
    responses = compliant_vector(costs, periods, deadlines, m, scheduler)
    if responses is None:
        return None
    return [max(Fraction(0), r - d) for r, d in zip(responses, deadlines, strict=True)]


def devi_anderson_tardiness(
    costs: Sequence[Number], periods: Sequence[Number], m: int
) -> list[Fraction] | None:
    """Tardiness bound of each task under G-EDF with implicit deadlines; None if not bounded.

    Devi and Anderson, "Tardiness bounds under global EDF scheduling on a multiprocessor" (2008):
    with L = ceil(U) - 1, every job ends within
    C_i + (sum of the L largest C - C_min) / (m - sum of the L-1 largest u) of its deadline.
    """
    if not is_feasible(costs, periods, m):
        return None
    if not costs:
        return []
    if m == 1:
        return [Fraction(0)] * len(costs)
    usage = sorted((Fraction(c) / p for c, p in zip(costs, periods, strict=True)), reverse=True)
    carriers = ceil(utilization(costs, periods)) - 1
    remaining = m - sum_of(usage[: max(0, carriers - 1)])
    if remaining <= 0:
        return None
    longest = sum_of(sorted(costs, reverse=True)[:carriers])
    x = max(Fraction(0), (longest - min(costs)) / remaining)
    return [c + x for c in costs]


def best_tardiness(
    costs: Sequence[Number],
    periods: Sequence[Number],
    deadlines: Sequence[Number],
    m: int,
    scheduler: str = "G-EDF",
) -> list[Fraction] | None:
    """The tighter of both bounds for each task; None if tardiness is not bounded.

    Compliant vectors are nearly always tighter.  Where the processors are almost full they may be
    looser by a little, because their carriers count ceil(U)-1 utilisations and Devi and Anderson's
    denominator one fewer; both are theorems, so the lesser of the two holds for each task.
    """
    bounds = compliant_tardiness(costs, periods, deadlines, m, scheduler)
    implicit = all(d == p for d, p in zip(deadlines, periods, strict=True))
    if bounds is None or scheduler != "G-EDF" or not implicit:
        return bounds
    older = devi_anderson_tardiness(costs, periods, m)
    return bounds if older is None else [min(a, b) for a, b in zip(bounds, older, strict=True)]


def suspension_aware_tardiness(
    costs: Sequence[Number],
    pending: Sequence[Number],
    periods: Sequence[Number],
    m: int,
    suspends: Sequence[bool],
    stolen: Number = 0,
    burst: Number = 0,
    growth: Sequence[Number] | None = None,
) -> list[Fraction] | None:
    """Tardiness bound of each task under G-EDF where tasks suspend; None if none is found.
    Implicit deadlines.

    The argument is Devi and Anderson's (2008), with suspensions as in Liu and Anderson, "Task scheduling
    with self-suspensions in soft real-time multiprocessor systems" (RTSS 2009): where a CPU is left
    idle, at most m - 1 tasks that are ready have work of the jobs considered, and those that suspend may
    have some too.  With x_i the bound, E_i the CPU time, V_i the time of a job that nothing delays, and
    u_i = E_i / T_i:

    - A task is behind a fluid schedule by u_i x_i + E_i at most.  So at the last such instant before the
      deadline of the job considered all are behind by at most L, the sum of that over all tasks that
      suspend and the m - 1 others where it is largest.  From then on all CPUs are busy, and with
      U + ``stolen`` <= m they fall behind by ``burst`` more at most.
    - After the deadline all CPUs are busy for (L + burst) / m at most.  At any other instant the task's
      oldest job gets on, by its execution or its suspension, unless an interrupt holds it up; of such
      jobs there are at most x_k / T_k + 1.

    So x_k = (L + burst) / m + (x_k / T_k + 1) V_k + stolen x_k + burst is a bound, and the least
    solution is found, rounded up by 2^-40 of the longest period at most: the right side is convex in L.

    :param costs: CPU time of a job, with all that others make it wait for and that runs on a CPU.
    :param pending: V_i, CPU time, suspensions and waiting of a job.
    :param suspends: which tasks suspend.
    :param stolen: CPUs' worth of interrupts in the long run.
    :param burst: what interrupts take beyond that in any interval.
    :param growth: how much ``burst`` grows with each task's x_i, since a late job's calls may strike
        too; default: not at all.
    """
    if not costs:
        return []
    if utilization(costs, periods) + stolen > m:
        return None
    # Everything is measured by the longest period and, where numbers would grow long, rounded up.
    unit = max(periods)
    stolen, burst = rounded_up([Fraction(stolen)]) + rounded_up([Fraction(burst) / unit])
    usage = rounded_up([Fraction(c) / p for c, p in zip(costs, periods, strict=True)])
    costs = rounded_up([Fraction(c) / unit for c in costs])
    taken = rounded_up([Fraction(v) / p for v, p in zip(pending, periods, strict=True)])
    pending = rounded_up([Fraction(v) / unit for v in pending])
    room = [1 - t - stolen for t in taken]
    if any(r <= 0 for r in room):
        return None
    # The burst is itself linear in L, as the x_i are that it grows with.
    both = 1 + Fraction(1, m)
    shares = [] if growth is None else rounded_up([g / r for g, r in zip(growth, room, strict=True)])
    kept = 1 - both * sum_of(shares)
    if kept <= 0:
        return None
    more = [s * v for s, v in zip(shares, pending, strict=False)]
    first, rise = rounded_up([(burst + sum_of(more)) / kept, sum_of(shares) / m / kept])
    # x_i = slope_i L + start_i, and so what i is behind by is u_i slope_i L + u_i start_i + E_i.
    slopes = rounded_up([(Fraction(1, m) + both * rise) / r for r in room])
    starts = rounded_up([(both * first + v) / r for v, r in zip(pending, room, strict=True)])
    behind = list(
        zip(
            rounded_up([u * slope for u, slope in zip(usage, slopes, strict=True)]),
            rounded_up([u * s + c for u, s, c in zip(usage, starts, costs, strict=True)]),
            strict=True,
        )
    )
    always = [b for b, s in zip(behind, suspends, strict=True) if s]
    others = [b for b, s in zip(behind, suspends, strict=True) if not s]
    total = Fraction(0)
    while True:
        at = total
        chosen = always + nlargest(m - 1, others, key=lambda b: (b[0] * at + b[1], b[0]))
        slope, start = sum_of([b[0] for b in chosen]), sum_of([b[1] for b in chosen])
        if slope * total + start <= total:
            return [(a * total + b) * unit for a, b in zip(slopes, starts, strict=True)]
        if slope >= 1:
            return None
        (total,) = rounded_up([start / (1 - slope)])
