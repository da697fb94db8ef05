# SPDX-License-Identifier: MIT
"""The analysis of :mod:`rtxg.analysis` for millions of task sets: the same equations in doubles.

One compiled loop over the task sets of a batch.  As in the exact path, hard tests are asked first,
and only where none says yes are overheads and tardiness iterated to a fixed point.  It covers what
campaigns need (G-EDF clusters, implicit deadlines, the closed k-FMLP bounds) and nothing else; the
exact path with the same hard tests is its oracle in the tests.  May not be used for a verdict on a
single task set: doubles round.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray

from .generate import Batch
from .model import Platform
from .overheads import Interrupts, Overheads

# How the compiled code knows what the exact path calls by name.
_METHODS = {Interrupts.NONE: 0, Interrupts.SLIH: 1, Interrupts.PAI: 2, Interrupts.KLMIRQD: 3}
_LOCKS = {"oblivious": 0, "aware": 1, "capped": 2}
_BOUNDS = {"compliant": 0, "devi-anderson": 1, "best": 2}

#: The tests of :data:`rtxg.hard.GLOBAL_EDF_TESTS` that are asked here; the others have no fast form.
#: (With deadlines equal to periods BCL is the first round of its iterated form.)
HARD_TESTS = ("a CPU each", "GFB", "BCL-iterative")

#: Rows of numbers that one cluster's analysis needs.
SCRATCH = 12


@njit(cache=True)
def _partition(n, clusters, use, gpu, home):  # pragma: no cover - compiled
    """Two-pass worst fit, GPU-using tasks first, largest first: as TaskSet.partitioned."""
    order = np.argsort(-use[:n], kind="mergesort")
    load = np.zeros(clusters)
    for wanted in (1, 0):
        for a in range(n):
            i = order[a]
            if gpu[i] == wanted:
                chosen = 0
                for c in range(1, clusters):
                    if load[c] < load[chosen]:
                        chosen = c
                home[i] = chosen
                load[chosen] += use[i]


@njit(cache=True)
def _blocking(n, k, gpu, section, lock, blocking):  # pragma: no cover - compiled
    """Closed k-FMLP bounds; see rtxg.blocking."""
    users = 0
    total = 0.0
    for i in range(n):
        if gpu[i]:
            users += 1
            total += section[i]
    ranked = np.empty(users)
    at = 0
    for i in range(n):
        if gpu[i]:
            ranked[at] = section[i]
            at += 1
    ranked = -np.sort(-ranked)
    for i in range(n):
        blocking[i] = 0.0
        if not gpu[i] or users < 2:
            continue
        if lock == 0:
            blocking[i] = ranked[0] * (users - 1) / k
            continue
        rest = total - section[i]
        best = rest / k
        if lock == 2:
            skipped = False
            at = 0
            for t in range(1, k):
                if t > users - 1:
                    break
                if not skipped and ranked[at] == section[i]:
                    skipped = True
                    at += 1
                rest -= ranked[at]
                at += 1
                if t == users - 1:
                    rest = 0.0
                best = min(best, rest / (k - t))
        blocking[i] = best


@njit(cache=True)
def _largest(value, n, wanted, chosen):  # pragma: no cover - compiled
    """Indices of the ``wanted`` largest values, largest first, into ``chosen``; ``wanted`` <= n.

    One carrier a processor but one: few, so that insertion beats sorting by far.
    """
    kept = 0
    for i in range(n):
        if kept == wanted and value[i] <= value[chosen[kept - 1]]:
            continue
        at = kept if kept < wanted else kept - 1
        while at > 0 and value[chosen[at - 1]] < value[i]:
            chosen[at] = chosen[at - 1]
            at -= 1
        chosen[at] = i
        if kept < wanted:
            kept += 1


@njit(cache=True)
def _zero(n, m, cost, use, spill, carriers, s, value, chosen):  # pragma: no cover - compiled
    """Newton's method from the left on sum of the largest g_i(s) + sum S_i - m s."""
    total_spill = 0.0
    for i in range(n):
        total_spill += spill[i]
    carriers = min(carriers, n)
    while True:
        for i in range(n):
            value[i] = cost[i] - spill[i] + use[i] * max(0.0, s - cost[i] / m)
        height = total_spill - m * s
        slope = float(m)
        if carriers > 0:
            _largest(value, n, carriers, chosen)
            for a in range(carriers):
                i = chosen[a]
                height += value[i]
                if s >= cost[i] / m:
                    slope -= use[i]
        if height <= 1e-7:
            return s
        s += height / slope


@njit(cache=True)
def _devi_anderson(n, m, cost, use, carriers, chosen):  # pragma: no cover - compiled
    """The x of Devi and Anderson's bound; infinity if it bounds nothing."""
    carriers = min(carriers, n)
    longest = 0.0
    shortest = cost[0]
    for i in range(n):
        shortest = min(shortest, cost[i])
    if carriers > 0:
        _largest(cost, n, carriers, chosen)
        for a in range(carriers):
            longest += cost[chosen[a]]
    remaining = float(m)
    if carriers > 1:
        _largest(use, n, carriers - 1, chosen)
        for a in range(carriers - 1):
            remaining -= use[chosen[a]]
    if remaining <= 1e-12:
        return np.inf
    return max(0.0, (longest - shortest) / remaining)


@njit(cache=True)
def _bcl(n, m, k, cost, period, rate, slack):  # pragma: no cover - compiled
    """What BCL finds that task k has left of its period while others have so much slack; below zero if
    it may be late."""
    free = period[k] - cost[k]
    interference = 0.0
    capped = 0
    for i in range(n):
        if i != k:
            jobs = np.floor(period[k] * rate[i] + 1e-9)
            work = jobs * cost[i] + min(cost[i], max(0.0, period[k] - slack[i] - jobs * period[i]))
            capped += work > free
            interference += min(work, free)
    # The limit is a grid step above what is free: m or more at the limit are too many.
    if capped >= m:
        return -np.inf
    left = free - interference / m
    return max(left, 0.0) if left >= -1e-9 * period[k] else left


@njit(cache=True)
def _never_late(n, m, cost, use, period, rate, total, slack, better):  # pragma: no cover - compiled
    """The tests named in HARD_TESTS, in that order, for deadlines equal to periods and costs of at
    most the period; see rtxg.hard."""
    if n <= m:
        return True
    densest = 0.0
    for i in range(n):
        densest = max(densest, use[i])
    if total <= m - (m - 1) * densest + 1e-12:
        return True
    if m == 1:
        return total <= 1.0 + 1e-12
    for i in range(n):
        slack[i] = 0.0
    first = True
    while True:
        passed = True
        for k in range(n):
            better[k] = _bcl(n, m, k, cost, period, rate, slack)
            passed = passed and better[k] >= 0.0
        if passed:
            return True
        if first:
            # A task that would fail beside others that end as early as they can fails in each round.
            first = False
            for i in range(n):
                slack[i] = period[i] - cost[i]
            for k in range(n):
                if better[k] < 0.0 and _bcl(n, m, k, cost, period, rate, slack) < 0.0:
                    return False
            for i in range(n):
                slack[i] = 0.0
        improved = False
        for k in range(n):
            if better[k] > slack[k] + 1e-9 * period[k]:
                slack[k] = better[k]
                improved = True
        if not improved:
            return False


@njit(cache=True)
def _cluster(
    n, m, k, cost, gpu_time, section, period, gpu, waits, eta, o, method, lock, bound, hard_first, inflate_sections, late,
    scratch, chosen,
):  # fmt: skip  # pragma: no cover - compiled
    """Whether one cluster has bounded tardiness; ``late`` holds a lower bound of it on entry (zeros,
    or the answer for smaller overheads) and the fixed point on return.  Where hard tests show that
    no job is late, ``late`` stays as it is.

    ``waits`` are the waits for a GPU where sections are not inflated, by :func:`_blocking`; ``scratch``
    is SCRATCH rows of n numbers or more, ``chosen`` n or m indices: memory that is not asked for a
    million times."""
    sch, cxs, ipi, rel, th, bh, krel, paisch, pairel, tck, quantum = o
    fixed, rate, reach, extra, inflated = scratch[0], scratch[1], scratch[2], scratch[3], scratch[4]
    use, spill, value, assumed, length = scratch[5], scratch[6], scratch[7], scratch[8], scratch[9]
    blocking, inverse = scratch[10], scratch[11]
    per_hit = 0.0
    if method == 1:
        per_hit = th + bh
    elif method == 2:
        per_hit = th + pairel + bh
    elif method == 3:
        per_hit = th + krel
    least = np.inf
    for i in range(n):
        calls = eta if gpu[i] else 0
        spans = 2 + calls if gpu[i] else 1
        own = spans * (2 * (sch + cxs) + rel + ipi)
        if method == 2:
            own += spans * 2 * paisch + calls * ipi
            if inflate_sections:
                own += calls * pairel
        elif method == 3:
            own += calls * (2 * (sch + cxs) + ipi)
            if inflate_sections:
                own += calls * krel
        fixed[i] = own
        least = min(least, period[i])
    users = 0  # rate and reach are theirs alone: 1 / p_j, and (p_j + x_j) / p_j
    for i in range(n):
        inverse[i] = 1.0 / period[i]
        if gpu[i]:
            rate[users] = inverse[i]
            users += 1
        assumed[i] = 0.0
        blocking[i] = waits[i]
    s = 0.0
    first = hard_first
    if not hard_first:
        for i in range(n):
            assumed[i] = late[i]
    while True:
        total = 0.0
        at = 0
        for j in range(n):
            if gpu[j]:
                reach[at] = (period[j] + assumed[j]) * rate[at] - 1e-9
                at += 1
        for i in range(n):
            pending = period[i] + assumed[i]
            hits = 0.0
            if per_hit > 0.0:
                for j in range(users):
                    hits += np.ceil(pending * rate[j] + reach[j])
                if gpu[i]:
                    hits -= np.ceil(2.0 * pending / period[i] - 1e-9)
            extra[i] = fixed[i] + hits * eta * per_hit + np.ceil(pending / quantum - 1e-9) * tck
        if k > 0 and inflate_sections:
            for i in range(n):
                length[i] = section[i] + extra[i]
            _blocking(n, k, gpu, length, lock, blocking)
        feasible = True
        for i in range(n):
            inflated[i] = cost[i] + gpu_time[i] + blocking[i] + extra[i]
            use[i] = inflated[i] / period[i]
            if use[i] > 1.0:
                feasible = False
            total += use[i]
        # With lateness assumed costs only grow: what is too much without it is too much.
        if not feasible or total > m:
            return False
        if first:
            first = False
            if _never_late(n, m, inflated, use, period, inverse, total, spill, value):
                return True
            known = False
            for i in range(n):
                assumed[i] = late[i]
                if late[i] > 0.0:
                    known = True
            if known:
                continue
        carriers = int(np.ceil(total - 1e-9)) - 1
        x_older = np.inf
        if bound != 0:
            x_older = _devi_anderson(n, m, inflated, use, carriers, chosen)
            if bound == 1 and x_older == np.inf:
                return False
        if bound != 1:
            for i in range(n):
                spill[i] = max(0.0, inflated[i] * (1.0 - (period[i] - least) / period[i]))
            s = _zero(n, m, inflated, use, spill, carriers, s, value, chosen)
        grown = False
        for i in range(n):
            later = np.inf
            if bound != 1:
                later = max(0.0, inflated[i] + max(0.0, s - inflated[i] / m) - least)
            if bound != 0:
                later = min(later, inflated[i] + x_older)
            if later > assumed[i] + 1e-3:
                assumed[i] = later
                grown = True
        if not grown:
            for i in range(n):
                late[i] = assumed[i]
            return True


@njit(cache=True)
def _run(
    count, cost, gpu_time, section, period, gpu, clusters, m, k, o, methods, calls, lock, bound, hard_first,
    inflate_sections, verdict,
):  # fmt: skip  # pragma: no cover - compiled
    """Every task set under every method and number of calls.

    Methods come in an order in which PAI, if present, follows SLIH: what fails under SLIH fails
    under PAI, whose overheads are SLIH's and more, and what fails with fewer calls fails with more.
    A fixed point for smaller overheads is where the search for a larger one may start.
    """
    widest = cost.shape[1]
    home = np.zeros(widest, np.int64)
    use = np.empty(widest)
    kept = np.zeros((clusters, widest))
    late_slih = np.zeros((len(calls), clusters, widest))
    scratch = np.empty((SCRATCH, widest))
    chosen = np.empty(max(widest, m), np.int64)
    size = np.zeros(clusters, np.int64)
    stated = np.empty((clusters, 2, widest))  # GPU time and section as given
    own = np.empty((clusters, 5, widest))  # cost, GPU time, section, period, wait of each cluster's tasks
    users = np.zeros((clusters, widest), np.int64)
    for row in range(len(count)):
        n = count[row]
        if n == 0:
            continue
        for i in range(n):
            use[i] = (cost[row, i] + gpu_time[row, i]) / period[row, i]
        _partition(n, clusters, use, gpu[row], home)
        size[:] = 0
        for i in range(n):
            c = home[i]
            at = size[c]
            own[c, 0, at] = cost[row, i]
            own[c, 1, at] = gpu_time[row, i]
            own[c, 2, at] = section[row, i]
            stated[c, 0, at] = gpu_time[row, i]
            stated[c, 1, at] = section[row, i]
            own[c, 3, at] = period[row, i]
            own[c, 4, at] = 0.0
            users[c, at] = gpu[row, i]
            size[c] = at + 1
        if k > 0 and not inflate_sections:
            for c in range(clusters):
                _blocking(size[c], k, users[c], own[c, 2], lock, own[c, 4])
        for a in range(len(methods)):
            method = methods[a]
            kept[:] = 0.0
            alive = True
            for b in range(len(calls)):
                if method == 2 and a > 0 and methods[a - 1] == 1:
                    alive = alive and verdict[row, a - 1, b]
                    if alive:
                        for c in range(clusters):
                            for i in range(size[c]):
                                kept[c, i] = max(kept[c, i], late_slih[b, c, i])
                for c in range(clusters):
                    if not alive:
                        break
                    if size[c] == 0:
                        continue
                    if inflate_sections:
                        # A call takes its own halves at least: with_own_halves().
                        least = calls[b] * (o[4] + o[5]) if method > 0 else 0.0
                        for i in range(size[c]):
                            missing = least - stated[c, 0, i] if users[c, i] else 0.0
                            missing = max(0.0, missing)
                            own[c, 1, i] = stated[c, 0, i] + missing
                            own[c, 2, i] = stated[c, 1, i] + missing
                    alive = _cluster(
                        size[c], m, k, own[c, 0], own[c, 1], own[c, 2], own[c, 3], users[c], own[c, 4], calls[b], o,
                        method, lock, bound, hard_first, inflate_sections, kept[c], scratch, chosen,
                    )  # fmt: skip
                if method == 1:
                    late_slih[b] = kept
                verdict[row, a, b] = alive
                if not alive:
                    break


def schedulable(
    batch: Batch,
    platform: Platform,
    methods: Sequence[Interrupts],
    calls: Sequence[int],
    overheads: Overheads,
    *,
    lock: str = "capped",
    bound: str = "best",
    hard_first: bool = True,
    inflate_sections: bool = False,
) -> NDArray[np.bool_]:
    """Whether each task set of a batch has bounded tardiness under clustered EDF.

    :param methods: ways of handling interrupts.
    :param calls: GPU invocations of each GPU-using job, ascending.
    :param lock: ``oblivious``, ``aware`` or ``capped``.
    :param bound: tardiness bound: ``compliant``, ``devi-anderson`` or ``best`` (the lesser of the two).
    :param hard_first: ask :data:`HARD_TESTS` first whether a job can be late at all.
    :param inflate_sections: as in :func:`rtxg.analysis.analyze`, with the calls' own halves and their
        hand-over; the paper does not.
    :returns: array of shape (sets, methods, calls).
    """
    if platform.scheduler != "G-EDF":
        raise ValueError(f"the fast path knows G-EDF clusters only, not {platform.scheduler}; use rtxg.analyze")
    if lock not in _LOCKS:
        raise ValueError(f"lock bound {lock!r} has no fast form; use one of {', '.join(_LOCKS)}")
    if bound not in _BOUNDS:
        raise ValueError(f"tardiness bound {bound!r} is unknown; use one of {', '.join(_BOUNDS)}")
    unknown = [m.value for m in methods if m not in _METHODS]
    if unknown:
        raise ValueError(f"interrupt handling {unknown[0]!r} has no fast form; use rtxg.analyze")
    if list(calls) != sorted(calls) or any(c < 1 for c in calls):
        raise ValueError(f"numbers of GPU calls {list(calls)} must be 1 or more and ascending")
    o = overheads
    values = tuple(float(v) for v in (o.sch, o.cxs, o.ipi, o.rel, o.th, o.bh, o.krel, o.paisch, o.pairel, o.tck, o.quantum))
    # SLIH right before PAI lets the one help the other; answers go back to the caller's order.
    order = sorted(range(len(methods)), key=lambda a: _METHODS[methods[a]])
    verdict = np.zeros((len(batch), len(methods), len(calls)), np.bool_)
    _run(
        batch.count, batch.cost, batch.gpu_time, batch.section, batch.period, batch.uses_gpu,
        platform.clusters, platform.cpus_per_cluster, platform.gpus_per_cluster, values,
        np.array([_METHODS[methods[a]] for a in order]), np.array(list(calls)), _LOCKS[lock],
        _BOUNDS[bound], hard_first, inflate_sections, verdict,
    )  # fmt: skip
    answer = np.empty_like(verdict)
    answer[:, order] = verdict
    return answer
