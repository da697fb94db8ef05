# SPDX-License-Identifier: MIT
"""Hard real-time tests: no job may ever end after its deadline.

All of them are sufficient (a "no" means "not shown"), except QPA and the uniprocessor response
times, which are exact for the model they state.  Costs, periods and deadlines may be in any one
unit, as integers or fractions, and no verdict depends on the unit.  Where a test's proof needs
whole numbers, time is counted on the grid of :func:`rtxg.exact.grid`.  Suspensions are not modelled
here: inflate the costs first (:mod:`rtxg.overheads`), or use
:func:`suspension_aware_response_times`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import floor

import numpy as np
from numpy.typing import NDArray

from .exact import grid, sum_of, utilization, whole

Number = Fraction | int
Whole = NDArray[np.int64]

#: Beyond so many elementary steps a test answers "not shown" rather than run for minutes.
MOST_WORK = 30_000_000

#: What a step of a response costs, whatever the number of tasks: as much as so many of them.
EACH_STEP = 500

#: What a step in Python's whole numbers costs, in the same measure.
PYTHON_STEP = 8

#: Numbers that a step of a test works on at once: few enough to stay in a cache.
_AT_ONCE = 1 << 14

#: A share of the processor is counted in parts of so many.
_GRAIN = 1 << 60

#: Relative distance within which a decision in doubles is taken again in exact arithmetic.
_UNCLEAR = 1e-9


def _usage(costs: Sequence[Number], periods: Sequence[Number]) -> list[Fraction]:
    return [Fraction(c) / t for c, t in zip(costs, periods, strict=True)]


def _is_constrained(periods: Sequence[Number], deadlines: Sequence[Number]) -> bool:
    return all(d <= t for t, d in zip(periods, deadlines, strict=True))


def _arrays(
    costs: Sequence[Number], periods: Sequence[Number], deadlines: Sequence[Number]
) -> tuple[Whole, Whole, Whole] | None:
    """Costs, periods and constrained deadlines in grid steps; None if a job cannot end in time, also
    where only the grid is too coarse: 10 us are less than a step of it beside a year."""
    c, t, d = (np.array(column, np.int64) for column in grid(costs, periods, deadlines))
    return None if np.any(c > d) or np.any(d == 0) else (c, t, d)


def _columns(*columns: Sequence[Number]) -> tuple[list[list[int]], int]:
    """Columns of the same length in whole numbers of 1/scale, and the scale: exact, and Python adds
    and divides them ten times as fast."""
    n = len(columns[0])
    numbers, scale = whole([value for column in columns for value in column])
    return [numbers[i * n : (i + 1) * n] for i in range(len(columns))], scale


def _doubles(values: Sequence[Number]) -> NDArray[np.float64]:
    return np.array([float(v) for v in values])


# Global EDF on m processors ----------------------------------------------------------------------


def one_cpu_each(
    costs: Sequence[Number], periods: Sequence[Number], deadlines: Sequence[Number], m: int
) -> bool:
    """No more tasks than processors, and none that needs longer than its period or deadline: no job
    ever waits.  Holds under any scheduler that leaves no processor idle while a job is ready."""
    return len(costs) <= m and all(
        c <= t and c <= d for c, t, d in zip(costs, periods, deadlines, strict=True)
    )


def gfb(
    costs: Sequence[Number], periods: Sequence[Number], deadlines: Sequence[Number], m: int
) -> bool:
    """Density test: sum of densities <= m - (m-1) * largest density.

    Goossens, Funk and Baruah (2003); for constrained deadlines Bertogna, Cirinei and Lipari (2005).
    """
    if not costs:
        return True
    windows = [min(t, d) for t, d in zip(periods, deadlines, strict=True)]
    densest = max(_usage(costs, windows))
    return densest <= 1 and utilization(costs, windows) <= m - (m - 1) * densest


def bak(
    costs: Sequence[Number], periods: Sequence[Number], deadlines: Sequence[Number], m: int
) -> bool:
    """Baker's test (TPDS 2005), any deadlines: for every k, with lambda the larger of the density
    C_k/D_k and the utilisation of k, sum over i of min(1, beta_i) <= m - (m-1) lambda, where

        beta_i = u_i (1 + max(0, T_i - D_i) / D_k)                 if u_i <= lambda,
                 u_i                                               if C_i/D_i <= lambda < u_i,
                 u_i + (C_i - lambda D_i) / D_k                    otherwise.

    For constrained deadlines the last two cases become u_i (1 + (T_i - D_i)/D_k) + (C_i - lambda
    T_i)/D_k, as in his paper of RTSS 2003.
    """
    n = len(costs)
    if n == 0:
        return True
    constrained = _is_constrained(periods, deadlines)
    if any(c > d or c > t for c, t, d in zip(costs, periods, deadlines, strict=True)):
        return False
    usage = _usage(costs, periods)
    loads = [max(Fraction(c) / d, u) for c, d, u in zip(costs, deadlines, usage, strict=True)]

    def beta(i: int, load: Fraction, dk: Number) -> Fraction:
        c, t, d, u = costs[i], periods[i], deadlines[i], usage[i]
        if u <= load or constrained:
            carried = u * (1 + Fraction(max(0, t - d)) / dk)
            return carried if u <= load else carried + (c - load * t) / dk
        return u if c <= load * d else u + (c - load * d) / dk

    c, t, d, u = (_doubles(v) for v in (costs, periods, deadlines, usage))
    for k in range(n):
        load, dk = float(loads[k]), d[k]
        carried = u * (1 + np.maximum(0.0, t - d) / dk)
        if constrained:
            weight = np.where(u <= load, carried, carried + (c - load * t) / dk)
        else:
            weight = np.where(u <= load, carried, u + np.maximum(0.0, c - load * d) / dk)
        missing = float(np.minimum(1.0, weight).sum()) - (m - (m - 1) * load)
        if missing > _UNCLEAR * m:
            return False
        if missing > -_UNCLEAR * m:
            total = sum((min(Fraction(1), beta(i, loads[k], deadlines[k])) for i in range(n)), Fraction(0))
            if total > m - (m - 1) * loads[k]:
                return False
    return True


def bcl(
    costs: Sequence[Number], periods: Sequence[Number], deadlines: Sequence[Number], m: int
) -> bool:
    """Bertogna, Cirinei and Lipari (ECRTS 2005): for every k, the interference of the others in a
    window of D_k, each counted up to D_k - C_k, stays below m (D_k - C_k); constrained deadlines."""
    n = len(costs)
    if not _is_constrained(periods, deadlines):
        return False
    if n <= 1:
        return all(c <= d for c, d in zip(costs, deadlines, strict=True))
    if (steps := _arrays(costs, periods, deadlines)) is None:
        return False
    c, t, d = steps
    for k in range(n):
        slack = d[k] - c[k]
        jobs = np.maximum(0, (d[k] - d) // t + 1)
        work = jobs * c + np.minimum(c, np.maximum(0, d[k] - jobs * t))
        work[k] = 0
        total = int(np.minimum(work, slack).sum())
        if total > m * slack or (total == m * slack and not np.any((work > 0) & (work <= slack))):
            return False
    return True


def bcl_iterative(
    costs: Sequence[Number], periods: Sequence[Number], deadlines: Sequence[Number], m: int
) -> bool:
    """BCL with slack, iterated until nothing improves (Bertogna, Cirinei and Lipari, TPDS 2009,
    equations 17 and 18); constrained deadlines, time in grid steps."""
    if not _is_constrained(periods, deadlines):
        return False
    if (steps := _arrays(costs, periods, deadlines)) is None:
        return False
    c, t, d = steps
    slack = np.zeros_like(c)
    while True:
        bound = np.empty_like(c)
        for k in range(len(c)):
            jobs = d[k] // t
            work = jobs * c + np.minimum(c, np.maximum(0, d[k] - slack - jobs * t))
            work[k] = 0
            limit = d[k] - c[k] + 1
            bound[k] = d[k] - c[k] - int(np.minimum(work, limit).sum()) // m
        if np.all(bound >= 0):
            return True
        better = np.maximum(slack, bound)
        if np.array_equal(better, slack):
            return False
        slack = better


def _next_response(response: int, cost: int, possible: Whole, m: int) -> int:
    """cost + floor(1/m * sum of min(possible, response - cost + 1)), or what the recurrence creeps
    to from there: while m tasks are at the limit, each step is one longer than the one before, so
    the response is no shorter than cost and the m-th largest of ``possible``."""
    limit = response - cost + 1
    longer = cost + int(np.minimum(possible, limit).sum()) // m
    if longer > response and np.count_nonzero(possible >= limit) >= m:
        longer = max(longer, cost + int(np.partition(possible, len(possible) - m)[len(possible) - m]))
    return longer


def _executed(windows: Whole, costs: Whole, periods: Whole) -> Whole:
    """What each task may execute in a window of that length which begins with a job of its own."""
    jobs, rest = np.divmod(np.maximum(windows, 0), periods)
    jobs *= costs
    jobs += np.minimum(rest, costs)
    return jobs


def edf_response_times(
    costs: Sequence[Number], periods: Sequence[Number], deadlines: Sequence[Number], m: int
) -> list[Fraction] | None:
    """Response-time bounds under global EDF; None if one is not shown to be within its deadline.

    Bertogna and Cirinei, "Response-time analysis for globally scheduled symmetric multiprocessor
    platforms" (RTSS 2007): R_k = C_k + floor(1/m * sum over i of the least of: what i may execute
    in a window of R_k, what it may execute in a window of D_k that ends with a deadline of its own,
    and R_k - C_k + 1).  The slack found for one task tightens what it may carry into the windows of
    the others.  Constrained deadlines, time in grid steps.
    """
    n = len(costs)
    if not _is_constrained(periods, deadlines):
        return None
    if n == 0:
        return []
    if (steps := _arrays(costs, periods, deadlines)) is None:
        return None
    c, t, d = steps
    slack = np.zeros_like(c)
    work_left = MOST_WORK
    while True:
        late = np.zeros(n, bool)
        better = slack.copy()
        for k in range(n):
            jobs = d[k] // t
            by_deadline = jobs * c + np.minimum(c, np.maximum(0, d[k] - slack - jobs * t))
            reach = d - c - slack
            response = int(c[k])
            while True:
                possible = np.minimum(_executed(reach + response, c, t), by_deadline)
                possible[k] = 0
                longer = _next_response(response, int(c[k]), possible, m)
                work_left -= n + EACH_STEP
                if longer <= response or longer > d[k] or work_left < 0:
                    break
                response = longer
            if work_left < 0:
                return None
            late[k] = longer > d[k]
            if not late[k]:
                better[k] = max(slack[k], d[k] - response)
        if not late.any():
            scale = Fraction(max(periods)) / int(t.max())
            return [
                min(Fraction(dk), (int(dk_steps) - int(s)) * scale)
                for dk, dk_steps, s in zip(deadlines, d, better, strict=True)
            ]
        if np.array_equal(better, slack):
            return None
        slack = better


def edf_response_time_test(
    costs: Sequence[Number], periods: Sequence[Number], deadlines: Sequence[Number], m: int
) -> bool:
    """Whether :func:`edf_response_times` bounds every response by its deadline."""
    return edf_response_times(costs, periods, deadlines, m) is not None


def bar(
    costs: Sequence[Number], periods: Sequence[Number], deadlines: Sequence[Number], m: int
) -> bool:
    """Baruah, "Techniques for multiprocessor global schedulability analysis" (RTSS 2007): for every
    k and every A_k >= 0, in the window of t = A_k + D_k that ends with a deadline of k,

        sum over i of I1_i + the m-1 largest of (I2_i - I1_i) <= m (t - C_k),

    I1 the demand without and I2 the work with a job carried in, each up to t - C_k and a grid step,
    because a job that misses has executed less than C_k (for k itself less C_k, up to A_k).  Both
    sides are linear in t between whole grid steps, so that these decide, up to a length that U < m
    makes finite.  The left side never falls as t grows.  So where it is w at some t, it is no more
    at any shorter length, and those are passed over whose right side is w or more: the search goes
    down as QPA's does.  Constrained deadlines.
    """
    n = len(costs)
    if not _is_constrained(periods, deadlines):
        return False
    if n == 0:
        return True
    usage = utilization(costs, periods)
    if usage >= m or (steps := _arrays(costs, periods, deadlines)) is None:
        return False
    c, t, d = steps
    carried = int(np.sort(c)[::-1][: m - 1].sum())
    idle = float(((t - d) * (c / t)).sum())
    work_left = MOST_WORK
    for k in range(n):
        ck, dk = int(c[k]), int(d[k])
        most = Fraction((carried + idle + m * ck) * (1 + _UNCLEAR))
        at = int(most / (m - usage)) + 1
        if at * (n + m) >= 1 << 62:  # sums would not fit into 64 bits
            return False
        while at >= dk:
            work = _bar_work(at, k, c, t, d, m)
            work_left -= n + EACH_STEP
            if work > m * (at - ck) or work_left < 0:
                return False
            at = ck + (work - 1) // m
    return True


def _bar_work(at: int, k: int, c: Whole, t: Whole, d: Whole, m: int) -> int:
    """What the others, and earlier jobs of k, may execute in a window of that length."""
    ck = int(c[k])
    begun, rest = np.divmod(at, t)
    plain = (begun + (rest >= d)) * c  # one more job may have its deadline within
    carry = begun * c + np.minimum(c, rest)
    limit = np.full_like(c, at - ck + 1)  # a late job ran for less than C_k
    limit[k] = at - int(d[k])
    plain[k] -= ck
    carry[k] -= ck
    without = np.minimum(plain, limit)
    extra = np.sort(np.minimum(carry, limit) - without)[::-1]
    return int(without.sum() + extra[: m - 1].sum())


def ffdbf_demand(
    cost: Number, period: Number, deadline: Number, t: Number, speed: Number
) -> Fraction:
    """Forced-forward demand bound of one task in an interval of length t, for processors of speed
    sigma: whole jobs, plus what a job that reaches past the end must have done inside."""
    jobs = floor(Fraction(t) / period)
    rest = t - jobs * period
    demand = Fraction(jobs * cost)
    if rest >= deadline - Fraction(cost) / speed:
        demand += cost
        if rest <= deadline:
            demand -= (deadline - rest) * speed
    return demand


def ffdbf(
    costs: Sequence[Number], periods: Sequence[Number], deadlines: Sequence[Number], m: int
) -> bool:
    """FF-DBF test of Baruah, Bonifaci, Marchetti-Spaccamela and Stiller (2009) for m >= 2.

    Schedulable if some speed sigma, at least the largest density, keeps
    FF-DBF(t, sigma) <= (m - (m-1) sigma) t for all t.  A violation can only lie before
    sum C / (m - (m-1) sigma - U), and only at an end of a job's forced-forward window, so finitely
    many t decide.  Speeds tried: the largest density, then multiples of 1/50.
    """
    if m < 2 or not _is_constrained(periods, deadlines):
        return False
    if not costs:
        return True
    tasks = list(zip(costs, periods, deadlines, strict=True))
    usage = utilization(costs, periods)
    densest = max(_usage(costs, deadlines))
    if densest > 1 or usage > m:
        return False
    work_left = MOST_WORK
    for speed in [densest] + [Fraction(k, 50) for k in range(floor(densest * 50) + 1, 51)]:
        margin = m - (m - 1) * speed - usage
        if margin <= 0:
            break
        horizon = sum(costs, Fraction(0)) / margin
        work_left -= int(2 * len(tasks) * sum(horizon / ti + 1 for _, ti, _ in tasks))
        if work_left < 0:
            return False
        slope = m - (m - 1) * speed
        unclear = _ffdbf_unclear(tasks, speed, slope, horizon)
        if unclear is not None and all(
            sum((ffdbf_demand(ci, ti, di, at, speed) for ci, ti, di in tasks), Fraction(0))
            <= slope * at
            for at in unclear
        ):
            return True
    return False


def _ffdbf_unclear(
    tasks: list[tuple[Number, Number, Number]], speed: Fraction, slope: Fraction, horizon: Fraction
) -> set[Fraction] | None:
    """The ends of forced-forward windows up to the horizon where doubles do not tell whether FF-DBF
    is above slope times t; None if it is, clearly, at one of them."""
    c, t, d = (_doubles(values) for values in zip(*tasks, strict=True))
    begin = (d - c / float(speed)) - 1e-9 * t
    tolerance = _UNCLEAR * len(tasks)
    unclear: set[Fraction] = set()
    each = max(1, _AT_ONCE // len(tasks))
    for ci, ti, di in tasks:
        for end in {di, di - min(Fraction(ci) / speed, Fraction(di))}:
            # All jobs of which that end lies within the horizon.
            count = floor((horizon - end) / ti) + 1
            for first in range(0, count, each):
                jobs = np.arange(first, min(count, first + each))
                near = (jobs * float(ti) + float(end))[:, None]
                # A point at the very end of a job's window must not fall to the wrong side of it.
                whole = np.floor(near / t * (1 + 1e-15) + 1e-12)
                rest = near - whole * t
                last = np.maximum(0.0, c - np.maximum(0.0, d - rest) * float(speed))
                demand = (whole * c + np.where(rest >= begin, last, 0.0)).sum(axis=1)
                missing = demand - float(slope) * near[:, 0]
                near_enough = tolerance * np.maximum(near[:, 0], t.max())
                if np.any(missing > near_enough):
                    return None
                unclear.update(int(job) * ti + end for job in jobs[missing > -near_enough])
    return unclear


#: From the quickest to the slowest: the order in which they are asked.
GLOBAL_EDF_TESTS: dict[str, Callable[..., bool]] = {
    "a CPU each": one_cpu_each,
    "GFB": gfb,
    "BAK": bak,
    "BCL": bcl,
    "BCL-iterative": bcl_iterative,
    "response times": edf_response_time_test,
    "FF-DBF": ffdbf,
    "BAR": bar,
}


# EDF on one processor ----------------------------------------------------------------------------


def qpa(costs: Sequence[Number], periods: Sequence[Number], deadlines: Sequence[Number]) -> bool:
    """Quick Processor-demand Analysis (Zhang and Burns, 2009): exact for EDF on one processor.

    Where the processor is nearly or never idle, the search may be as long as the hyperperiod.
    Beyond ``MOST_WORK`` the answer is "not shown".
    """
    usage = utilization(costs, periods)
    if usage > 1:
        return False
    if all(d >= t for t, d in zip(periods, deadlines, strict=True)):
        return True
    n = len(costs)
    columns, _ = _columns(costs, periods, deadlines)
    tasks = list(zip(*columns, strict=True))
    longest = None
    if usage < 1:
        short = [Fraction((t - d) * c, t) for c, t, d in tasks]
        longest = max([sum_of(short) / (1 - usage)] + [Fraction(d - t) for _, t, d in tasks])
    work_left = MOST_WORK
    busy = sum(c for c, _, _ in tasks)  # the synchronous busy period ends the search
    while longest is None or busy < longest:
        longer = -sum(-busy // t * c for c, t, _ in tasks)
        work_left -= PYTHON_STEP * n
        if longer == busy:
            break
        if work_left < 0:
            return False
        busy = longer
    else:
        busy = floor(longest)

    def latest_deadline_before(end: int) -> int | None:
        return max(((end - 1 - d) // t * t + d for _, t, d in tasks if d < end), default=None)

    least = min(d for _, _, d in tasks)
    at = latest_deadline_before(busy + 1)
    while at is not None:
        needed = sum(((at - d) // t + 1) * c for c, t, d in tasks if d <= at)
        work_left -= PYTHON_STEP * n
        if needed > at or work_left < 0:
            return False
        if needed <= least:
            return True
        at = needed if needed < at else latest_deadline_before(at)
    return True


# Fixed priorities --------------------------------------------------------------------------------


def _response(own: int, deadline: int, others: list[tuple[int, int, int]]) -> int | None:
    """The least R = own + sum of ceil((R + late) / period) cost over ``others``, which are (late,
    period, cost); None if it is above the deadline, or not found within ``MOST_WORK``."""
    # What the others leave of the processor, with room for the error of a sum of doubles.  A response
    # is own / rest at the least: to begin there saves steps as many as the others have jobs until
    # then, where they leave next to nothing.
    rest = 1 - sum(cost / period for _, period, cost in others) * (1 - 1e-12)
    if own and rest <= 0:
        return None
    response = own * _GRAIN // (int(rest * _GRAIN) + 1) if own else 0
    work_left = MOST_WORK
    while response <= deadline and work_left >= 0:
        longer = own - sum(-(response + late) // period * cost for late, period, cost in others)
        work_left -= PYTHON_STEP * len(others)
        if longer <= response:
            return response
        response = longer
    return None


def _bounds(found: list[int], scale: int, n: int) -> list[Fraction | None]:
    """What was found for the first tasks of n, and None for all others."""
    return [Fraction(response, scale) for response in found] + [None] * (n - len(found))


def fixed_priority_response_times(
    costs: Sequence[Number],
    periods: Sequence[Number],
    deadlines: Sequence[Number],
    m: int = 1,
    jitter: Sequence[Number] | None = None,
    blocking: Sequence[Number] | None = None,
) -> list[Fraction | None]:
    """Response-time bounds of tasks listed from highest to lowest priority; None from the first
    task on that may miss its deadline.  Constrained deadlines.

    m = 1: the exact recurrence R = C + B + sum_hp ceil((R + J)/T) C (Joseph and Pandya 1986;
    Audsley and others 1993).  m > 1: Bertogna and Cirinei (RTSS 2007), with the carried-in work of
    every higher-priority task counted up to R - C and a grid step.  Beyond ``MOST_WORK`` the answer is
    None, too.
    """
    n = len(costs)
    blocking = list(blocking or [0] * n)
    jitter = list(jitter or [0] * n)
    if m > 1:
        inflated = [c + b for c, b in zip(costs, blocking, strict=True)]
        return _global_fixed_priority(inflated, periods, deadlines, jitter, m)
    (c, t, d, late, wait), scale = _columns(costs, periods, deadlines, jitter, blocking)
    found: list[int] = []
    for k in range(n):
        others = list(zip(late[:k], t[:k], c[:k], strict=True))
        response = _response(c[k] + wait[k], d[k], others)
        if response is None:
            break
        found.append(response)
    return _bounds(found, scale, n)


def _global_fixed_priority(
    costs: Sequence[Number],
    periods: Sequence[Number],
    deadlines: Sequence[Number],
    jitter: Sequence[Number],
    m: int,
) -> list[Fraction | None]:
    n = len(costs)
    # Jitter is rounded up with the costs; twice the longest time keeps the grid the same.
    up, t, d = grid([*costs, *jitter], [*periods, *periods], [*deadlines, *deadlines])
    c, late = np.array(up[:n], np.int64), np.array(up[n:], np.int64)
    t, d = np.array(t[:n], np.int64), np.array(d[:n], np.int64)
    if not n:
        return []
    longest = int(np.argmax(t))
    step = Fraction(periods[longest]) / int(t[longest])
    bounds: list[Fraction | None] = []
    found = np.zeros(n, np.int64)
    work_left = MOST_WORK
    for k in range(n):
        response = int(c[k])
        reach = found[:k] + late[:k] - c[:k]
        while response <= d[k]:
            work_left -= k + EACH_STEP
            if work_left < 0:
                return bounds + [None] * (n - k)
            possible = _executed(reach + response, c[:k], t[:k])
            longer = _next_response(response, int(c[k]), possible, m)
            if longer <= response:
                break
            response = longer
        if response > d[k]:
            return bounds + [None] * (n - k)
        found[k] = response
        bounds.append(min(response * step, Fraction(deadlines[k])))
    return bounds


def suspension_aware_response_times(
    costs: Sequence[Number],
    gpu_times: Sequence[Number],
    gpu_calls: Sequence[int],
    periods: Sequence[Number],
    deadlines: Sequence[Number],
    cpus: Sequence[int],
    epsilon: Number,
) -> list[Fraction | None]:
    """Response times on partitioned fixed-priority CPUs that share one preemptible GPU.

    Tasks are listed from highest to lowest priority; task i runs on CPU ``cpus[i]`` and suspends
    while its GPU time passes.  A job that starts or ends a GPU segment has the GPU's runlist
    changed so that the most urgent one runs; one such change, with the GPU context switch behind
    it, takes ``epsilon`` (for rtxg: a suspension or a resumption of what another process runs).
    After the analysis of GCAPS (Wang, Liu, Wong and Kim, ECRTS 2024), CPU part of a segment included
    in ``costs``:

        R = C + G + eps + 3 eps eta
            + sum over higher priority, same CPU, of ceil((R + J_h)/T_h) (C_h + 2 eps eta_h)
            + sum over higher priority with GPU of ceil((R + R_h - G_h)/T_h) (G_h + 2 eps eta_h)

    with J_h = R_h - C_h where h suspends and 0 where it does not.  The last sum applies to
    GPU-using tasks; on the same CPU its epsilons are already in the line above.  Answers None from
    the first task on that may miss its deadline.
    """
    n = len(costs)
    columns, scale = _columns(costs, gpu_times, periods, deadlines, [epsilon] * n)
    c, gpu, t, d, eps = columns
    found: list[int] = []
    for k in range(n):
        others = []
        for h in range(k):
            same_cpu = cpus[h] == cpus[k]
            update = 2 * eps[h] * gpu_calls[h]
            if same_cpu:
                others.append((found[h] - c[h] if gpu_calls[h] else 0, t[h], c[h] + update))
            if gpu_calls[h] and gpu_calls[k]:
                others.append((found[h] - gpu[h], t[h], gpu[h] + (0 if same_cpu else update)))
        own = c[k] + gpu[k] + eps[k] + 3 * eps[k] * gpu_calls[k]
        response = _response(own, d[k], others)
        if response is None:
            break
        found.append(response)
    return _bounds(found, scale, n)


def suspending_response_times(
    costs: Sequence[Number],
    delays: Sequence[Number],
    periods: Sequence[Number],
    deadlines: Sequence[Number],
    cpus: Sequence[int],
    suspends: Sequence[bool],
) -> list[Fraction | None]:
    """Response times of tasks that suspend, under fixed priorities on CPUs of their own.

    Tasks are listed from highest to lowest priority.  R = C + S + sum over higher priority on the same
    CPU of ceil((R + J)/T) C, with S all that delays a job off the CPU or by blocking, and J = R - C where
    a task suspends: Chen and others, "Many suspensions, many problems" (2019), section 4.3.  None for a
    task that may miss its deadline, and for all less urgent ones.
    """
    (c, delay, t, d), scale = _columns(costs, delays, periods, deadlines)
    found: list[int] = []
    for k in range(len(costs)):
        others = [
            (found[h] - c[h] if suspends[h] else 0, t[h], c[h])
            for h in range(k)
            if cpus[h] == cpus[k]
        ]
        response = _response(c[k] + delay[k], d[k], others)
        if response is None:
            break
        found.append(response)
    return _bounds(found, scale, len(costs))
