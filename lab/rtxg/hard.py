# SPDX-License-Identifier: MIT
"""Hard real-time tests: no job may ever end after its deadline.

All of them are sufficient (a "no" means "not shown"), except QPA and the uniprocessor response
times, which are exact for the model they state.  Costs, periods and deadlines may be in any one
unit, as integers or fractions; the arithmetic is exact.  Suspensions are not modelled here: inflate
the costs first (:mod:`rtxg.overheads`), or use :func:`suspension_aware_response_times`.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, floor

Number = Fraction | int

_MAX_TEST_POINTS = 200_000  # beyond this many, FF-DBF answers "not shown" rather than run for hours


def _usage(costs: Sequence[Number], periods: Sequence[Number]) -> list[Fraction]:
    return [Fraction(c) / t for c, t in zip(costs, periods, strict=True)]


def _density(costs: Sequence[Number], periods: Sequence[Number], deadlines: Sequence[Number]) -> list[Fraction]:
    return [Fraction(c) / min(t, d) for c, t, d in zip(costs, periods, deadlines, strict=True)]


def _is_constrained(periods: Sequence[Number], deadlines: Sequence[Number]) -> bool:
    return all(d <= t for t, d in zip(periods, deadlines, strict=True))


# Global EDF on m processors ----------------------------------------------------------------------


def gfb(costs: Sequence[Number], periods: Sequence[Number], deadlines: Sequence[Number], m: int) -> bool:
    """Density test: sum of densities <= m - (m-1) * largest density.

    Goossens, Funk and Baruah (2003); for constrained deadlines Bertogna, Cirinei and Lipari (2005).
    """
    density = _density(costs, periods, deadlines)
    if not density:
        return True
    return max(density) <= 1 and sum(density, Fraction(0)) <= m - (m - 1) * max(density)


def bak(costs: Sequence[Number], periods: Sequence[Number], deadlines: Sequence[Number], m: int) -> bool:
    """Baker's test (RTSS 2003, in the form of 2005): for every k, with lambda = density of k,
    sum over i of min(1, beta_i) <= m - (m-1) lambda, constrained deadlines."""
    if not _is_constrained(periods, deadlines):
        return False
    usage = _usage(costs, periods)
    for ck, dk in zip(costs, deadlines, strict=True):
        load = Fraction(ck) / dk
        if load > 1:
            return False
        total = Fraction(0)
        for c, t, d, u in zip(costs, periods, deadlines, usage, strict=True):
            beta = u * (1 + Fraction(t - d) / dk)
            if load < u:
                beta += (c - load * t) / dk
            total += min(Fraction(1), beta)
        if total > m - (m - 1) * load:
            return False
    return True


def bcl(costs: Sequence[Number], periods: Sequence[Number], deadlines: Sequence[Number], m: int) -> bool:
    """Bertogna, Cirinei and Lipari (ECRTS 2005): for every k, the interference of the others in a
    window of D_k, each counted up to D_k - C_k, stays below m (D_k - C_k); constrained deadlines."""
    if not _is_constrained(periods, deadlines):
        return False
    n = len(costs)
    for k in range(n):
        slack = 1 - Fraction(costs[k]) / deadlines[k]
        if slack < 0:
            return False
        total, small = Fraction(0), False
        for i in range(n):
            if i == k:
                continue
            jobs = max(0, floor(Fraction(deadlines[k] - deadlines[i]) / periods[i]) + 1)
            work = jobs * costs[i] + min(costs[i], max(0, deadlines[k] - jobs * periods[i]))
            beta = Fraction(work) / deadlines[k]
            total += min(beta, slack)
            small = small or 0 < beta <= slack
        if not (total < m * slack or (small and total == m * slack) or n == 1):
            return False
    return True


def _quantized(
    costs: Sequence[Number], periods: Sequence[Number], deadlines: Sequence[Number]
) -> tuple[list[int], list[int], list[int]]:
    """Whole units, rounded the safe way, for the tests whose proofs need integral time."""
    return [ceil(c) for c in costs], [floor(t) for t in periods], [floor(d) for d in deadlines]


def bcl_iterative(costs: Sequence[Number], periods: Sequence[Number], deadlines: Sequence[Number], m: int) -> bool:
    """BCL with slack, iterated until nothing improves (Bertogna, Cirinei and Lipari, TPDS 2009,
    equations 17 and 18); constrained deadlines, time in whole units."""
    if not _is_constrained(periods, deadlines):
        return False
    c, t, d = _quantized(costs, periods, deadlines)
    n = len(c)
    slack = [0] * n
    improved = True
    while improved:
        improved, feasible = False, True
        for k in range(n):
            limit = d[k] - c[k] + 1
            if limit <= 0:
                return False
            interference = 0
            for i in range(n):
                if i != k:
                    jobs = d[k] // t[i]
                    carried = min(c[i], max(0, d[k] - slack[i] - jobs * t[i]))
                    interference += min(jobs * c[i] + carried, limit)
            bound = d[k] - c[k] - interference // m
            feasible = feasible and bound >= 0
            if bound > slack[k]:
                slack[k], improved = bound, True
        if feasible:
            return True
    return False


def ffdbf_demand(cost: Number, period: Number, deadline: Number, t: Number, speed: Number) -> Fraction:
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


def ffdbf(costs: Sequence[Number], periods: Sequence[Number], deadlines: Sequence[Number], m: int) -> bool:
    """FF-DBF test of Baruah, Bonifaci, Marchetti-Spaccamela and Stiller (2009) for m >= 2.

    Schedulable if some speed sigma, at least the largest density, keeps
    FF-DBF(t, sigma) <= (m - (m-1) sigma) t for all t.  A violation can only lie before
    sum C / (m - (m-1) sigma - U), and only at an end of a job's forced-forward window, so finitely
    many t decide.  Speeds tried: the largest density, then multiples of 1/50.
    """
    if m < 2 or not _is_constrained(periods, deadlines):
        return False
    tasks = list(zip(costs, periods, deadlines, strict=True))
    usage = sum(_usage(costs, periods), Fraction(0))
    densest = max(_density(costs, periods, deadlines), default=Fraction(0))
    if not tasks:
        return True
    if densest > 1 or usage > m:
        return False
    speeds = [densest] + [Fraction(k, 50) for k in range(floor(densest * 50) + 1, 51)]
    for speed in speeds:
        margin = m - (m - 1) * speed - usage
        if margin <= 0:
            break
        horizon = sum(costs, Fraction(0)) / margin
        if sum(horizon / t for t in periods) > _MAX_TEST_POINTS:
            continue
        points = set()
        for c, t, d in tasks:
            window = min(Fraction(c) / speed, Fraction(d))
            for job in range(floor(horizon / t) + 1):
                points.update((job * t + d, job * t + d - window))
        slope = m - (m - 1) * speed
        if all(
            sum((ffdbf_demand(c, t, d, at, speed) for c, t, d in tasks), Fraction(0)) <= slope * at
            for at in sorted(points)
            if at <= horizon
        ):
            return True
    return False


GLOBAL_EDF_TESTS = {"GFB": gfb, "BAK": bak, "BCL": bcl, "BCL-iterative": bcl_iterative, "FF-DBF": ffdbf}


# EDF on one processor ----------------------------------------------------------------------------


def qpa(costs: Sequence[Number], periods: Sequence[Number], deadlines: Sequence[Number]) -> bool:
    """Quick Processor-demand Analysis (Zhang and Burns, 2009): exact for EDF on one processor."""
    tasks = list(zip(costs, periods, deadlines, strict=True))
    if not tasks:
        return True
    usage = sum(_usage(costs, periods), Fraction(0))
    if usage > 1:
        return False
    busy = Fraction(sum(costs))  # the synchronous busy period ends the search
    while True:
        longer = sum((ceil(busy / t) * Fraction(c) for c, t, _ in tasks), Fraction(0))
        if longer == busy:
            break
        busy = longer
    if usage < 1:
        slackness = sum(((t - d) * Fraction(c) / t for c, t, d in tasks), Fraction(0)) / (1 - usage)
        busy = min(busy, max([slackness] + [Fraction(d - t) for _, t, d in tasks]))

    def demand(t: Fraction) -> Fraction:
        return sum((max(0, floor((t - d) / p) + 1) * Fraction(c) for c, p, d in tasks), Fraction(0))

    def latest_deadline_before(t: Fraction) -> Fraction | None:
        found = [(ceil((t - d) / p) - 1) * Fraction(p) + d for _, p, d in tasks if d < t]
        return max(found, default=None)

    least = min(deadlines)
    t = max((floor((busy - d) / p) * Fraction(p) + d for _, p, d in tasks if d <= busy), default=None)
    while t is not None:
        needed = demand(t)
        if needed > t:
            return False
        if needed <= least:
            return True
        t = needed if needed < t else latest_deadline_before(t)
    return True


# Fixed priorities --------------------------------------------------------------------------------


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
    every higher-priority task counted up to R - C + 1, in whole units.
    """
    n = len(costs)
    blocking = list(blocking or [0] * n)
    jitter = list(jitter or [0] * n)
    if m > 1:
        costs, periods, deadlines = _quantized([c + b for c, b in zip(costs, blocking, strict=True)], periods, deadlines)
    bounds: list[Fraction | None] = []
    for k in range(n):
        if None in bounds:
            bounds.append(None)
            continue
        response = Fraction(costs[k] + (blocking[k] if m == 1 else 0))
        while response <= deadlines[k]:
            if m == 1:
                nxt = (
                    costs[k]
                    + blocking[k]
                    + sum((ceil(Fraction(response + jitter[i]) / periods[i]) * Fraction(costs[i]) for i in range(k)), Fraction(0))
                )
            else:
                others = 0
                for i in range(k):
                    window = response + bounds[i] + jitter[i] - costs[i]
                    jobs = floor(window / periods[i])
                    work = jobs * costs[i] + min(costs[i], window - jobs * periods[i])
                    others += min(work, response - costs[k] + 1)
                nxt = Fraction(costs[k] + floor(Fraction(others) / m))
            if nxt <= response:
                break
            response = nxt
        bounds.append(response if response <= deadlines[k] else None)
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
    bounds: list[Fraction | None] = []
    for k in range(len(costs)):
        if None in bounds:
            bounds.append(None)
            continue
        own = Fraction(costs[k]) + gpu_times[k] + epsilon + 3 * epsilon * gpu_calls[k]
        response = own
        while response <= deadlines[k]:
            nxt = own
            for h in range(k):
                same_cpu = cpus[h] == cpus[k]
                update = 2 * epsilon * gpu_calls[h]
                if same_cpu:
                    late = bounds[h] - costs[h] if gpu_calls[h] else 0
                    nxt += ceil((response + late) / Fraction(periods[h])) * (costs[h] + update)
                if gpu_calls[h] and gpu_calls[k]:
                    late = bounds[h] - gpu_times[h]
                    nxt += ceil((response + late) / Fraction(periods[h])) * (gpu_times[h] + (0 if same_cpu else update))
            if nxt <= response:
                break
            response = nxt
        bounds.append(response if response <= deadlines[k] else None)
    return bounds
