# SPDX-License-Identifier: MIT
"""Tardiness bounds for global EDF and global fair-lateness scheduling, in exact arithmetic.

Soft real time: a task set is schedulable when no task asks for more than one CPU, all together ask
for no more than m, and then every job ends within a bounded time of its deadline.  Two bounds are
given, the classic one of Devi and Anderson and the tighter one by compliant vectors.

Every function takes costs, periods and deadlines in any one unit and answers in that unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, floor

Number = Fraction | int


def is_feasible(costs: Sequence[Number], periods: Sequence[Number], m: int) -> bool:
    """Conditions (4) and (5): e_i <= p_i for every task, and the utilisations sum to at most m."""
    return all(c <= p for c, p in zip(costs, periods, strict=True)) and (
        sum((Fraction(c) / p for c, p in zip(costs, periods, strict=True)), Fraction(0)) <= m
    )


def priority_points(costs: Sequence[Number], deadlines: Sequence[Number], m: int, scheduler: str = "G-EDF") -> list:
    """Relative priority point Y_i of each task: its deadline under G-EDF; under G-FL (Erickson,
    Anderson and Ward, "Fair lateness scheduling", 2014) earlier by floor((m-1)/m * C_i)."""
    if scheduler == "G-EDF":
        return list(deadlines)
    if scheduler == "G-FL":
        return [d - floor(Fraction(m - 1, m) * c) for c, d in zip(costs, deadlines, strict=True)]
    raise ValueError(f"no tardiness bound for scheduler {scheduler!r}; use G-EDF or G-FL")


def _top(values: list[tuple[Fraction, Fraction]], count: int) -> list[tuple[Fraction, Fraction]]:
    return sorted(values, reverse=True)[:count]


def compliant_vector(
    costs: Sequence[Number],
    periods: Sequence[Number],
    deadlines: Sequence[Number],
    m: int,
    scheduler: str = "G-EDF",
) -> list[Fraction] | None:
    """Response-time bound R_i of each task by the least compliant vector; None if there is none.

    Erickson, Guan and Baruah, "Tardiness bounds for global EDF with deadlines different from
    periods" (OPODIS 2010).  With priority points Y'_i shifted so that the least is zero,

        S_i = max(0, C_i (1 - Y'_i / T_i)),   g_i(s) = u_i x_i(s) + C_i - S_i,
        x_i(s) = max(0, s - C_i / m),

    s is the zero of (sum of the ceil(U)-1 largest g_i(s)) + sum S_i - m s, and
    R_i = Y'_i + C_i + ceil(x_i).  That function is convex, piecewise linear and falling with a
    slope below zero, so Newton's method from the left reaches the zero in finitely many steps, and
    exactly.  x_i is kept at zero or above, as compliance demands of it.
    """
    n = len(costs)
    if not is_feasible(costs, periods, m):
        return None
    if n == 0:
        return []
    if m == 1 and scheduler == "G-EDF" and all(d >= p for d, p in zip(deadlines, periods, strict=True)):
        return [Fraction(d) for d in deadlines]  # EDF is optimal on one processor
    costs = [Fraction(c) for c in costs]
    periods = [Fraction(p) for p in periods]
    points = priority_points(costs, deadlines, m, scheduler)
    least = min(points)
    shifted = [Fraction(y - least) for y in points]
    usage = [c / t for c, t in zip(costs, periods, strict=True)]
    spill = [max(Fraction(0), c * (1 - y / t)) for c, y, t in zip(costs, shifted, periods, strict=True)]
    total_spill = sum(spill, Fraction(0))
    carriers = ceil(sum(usage, Fraction(0))) - 1

    s = Fraction(0)
    while True:
        # Value and right-hand slope of each g_i at s; ties go to the steeper one.
        pieces = []
        for c, u, sp in zip(costs, usage, spill, strict=True):
            late = s >= c / m
            pieces.append((u * (s - c / m) + c - sp if late else c - sp, u if late else Fraction(0)))
        chosen = _top(pieces, carriers)
        value = sum((g for g, _ in chosen), Fraction(0)) + total_spill - m * s
        if value <= 0:
            break
        s += value / (m - sum((slope for _, slope in chosen), Fraction(0)))
    return [y + c + max(0, ceil(s - c / m)) for y, c in zip(shifted, costs, strict=True)]


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


def devi_anderson_tardiness(costs: Sequence[Number], periods: Sequence[Number], m: int) -> list[Fraction] | None:
    """Tardiness bound of each task under G-EDF with implicit deadlines; None if not bounded.

    Devi and Anderson, "Tardiness bounds under global EDF scheduling on a multiprocessor" (2008):
    with L = ceil(U) - 1, every job ends within
    C_i + ceil((sum of the L largest C - C_min) / (m - sum of the L-1 largest u)) of its deadline.
    """
    if not is_feasible(costs, periods, m):
        return None
    if not costs:
        return []
    if m == 1:
        return [Fraction(0)] * len(costs)
    usage = sorted((Fraction(c) / p for c, p in zip(costs, periods, strict=True)), reverse=True)
    carriers = ceil(sum(usage, Fraction(0))) - 1
    remaining = m - sum(usage[: max(0, carriers - 1)], Fraction(0))
    if remaining <= 0:
        return None
    longest = sum(sorted(costs, reverse=True)[:carriers])
    x = max(0, ceil(Fraction(longest - min(costs)) / remaining))
    return [Fraction(c) + x for c in costs]


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
    if bounds is None or scheduler != "G-EDF" or any(d != p for d, p in zip(deadlines, periods, strict=True)):
        return bounds
    older = devi_anderson_tardiness(costs, periods, m)
    return bounds if older is None else [min(a, b) for a, b in zip(bounds, older, strict=True)]
