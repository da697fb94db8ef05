# SPDX-License-Identifier: MIT
"""The analysis of :mod:`rtxg.analysis` for millions of task sets: the same equations in doubles.

One compiled loop over the task sets of a batch, with the fixed point of overheads and tardiness
inside.  It covers what campaigns need (G-EDF clusters, implicit deadlines, compliant vectors, the
closed k-FMLP bounds) and nothing else; the exact path is its oracle in the tests.  May not be used
for a verdict on a single task set: doubles round.
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

_EDGE = 1e-6  # microseconds by which a double may miss the whole number that it stands for


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
def _zero(n, m, cost, use, spill, carriers, s):  # pragma: no cover - compiled
    """Newton's method from the left on sum of the largest g_i(s) + sum S_i - m s."""
    value = np.empty(n)
    total_spill = 0.0
    for i in range(n):
        total_spill += spill[i]
    while True:
        for i in range(n):
            value[i] = cost[i] - spill[i] + use[i] * max(0.0, s - cost[i] / m)
        height = total_spill - m * s
        slope = float(m)
        if carriers >= n:
            for i in range(n):
                height += value[i]
                if s >= cost[i] / m:
                    slope -= use[i]
        elif carriers > 0:
            order = np.argsort(-value)
            for a in range(carriers):
                i = order[a]
                height += value[i]
                if s >= cost[i] / m:
                    slope -= use[i]
        if height <= 1e-7:
            return s
        s += height / slope


@njit(cache=True)
def _cluster(n, m, k, cost, gpu_time, section, period, gpu, eta, o, method, lock, inflate_sections, late):
    # pragma: no cover - compiled
    """Whether one cluster has bounded tardiness; ``late`` holds a lower bound of it on entry (zeros,
    or the answer for smaller overheads) and the fixed point on return."""
    sch, cxs, ipi, rel, th, bh, krel, paisch, pairel, tck, quantum = o
    fixed = np.empty(n)
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
        elif method == 3:
            own += calls * (2 * (sch + cxs) + ipi)
        fixed[i] = own
        least = min(least, period[i])
    extra = np.empty(n)
    inflated = np.empty(n)
    use = np.empty(n)
    spill = np.empty(n)
    blocking = np.zeros(n)
    length = section.copy()
    if k > 0 and not inflate_sections:
        _blocking(n, k, gpu, length, lock, blocking)
    s = 0.0
    while True:
        total = 0.0
        for i in range(n):
            pending = period[i] + late[i]
            hits = 0.0
            if per_hit > 0.0:
                for j in range(n):
                    if gpu[j] and j != i:
                        hits += np.ceil((pending + period[j] + late[j]) / period[j])
            extra[i] = fixed[i] + hits * eta * per_hit + np.ceil(pending / quantum) * tck
        if k > 0 and inflate_sections:
            for i in range(n):
                length[i] = section[i] + extra[i]
            _blocking(n, k, gpu, length, lock, blocking)
        for i in range(n):
            inflated[i] = cost[i] + gpu_time[i] + blocking[i] + extra[i]
            use[i] = inflated[i] / period[i]
            if use[i] > 1.0:
                return False
            total += use[i]
        if total > m:
            return False
        if m == 1:
            return True
        carriers = int(np.ceil(total - 1e-9)) - 1
        for i in range(n):
            spill[i] = max(0.0, inflated[i] * (1.0 - (period[i] - least) / period[i]))
        s = _zero(n, m, inflated, use, spill, carriers, s)
        grown = False
        for i in range(n):
            x = max(0.0, np.ceil(s - inflated[i] / m - 1e-6))
            bound = max(0.0, inflated[i] + x - least)
            if bound > late[i] + 1e-6:
                late[i] = bound
                grown = True
        if not grown:
            return True


@njit(cache=True)
def _run(count, cost, gpu_time, section, period, gpu, clusters, m, k, o, methods, calls, lock, inflate_sections, verdict):
    # pragma: no cover - compiled
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
    for row in range(len(count)):
        n = count[row]
        if n == 0:
            continue
        for i in range(n):
            use[i] = (cost[row, i] + gpu_time[row, i]) / period[row, i]
        _partition(n, clusters, use, gpu[row], home)
        for a in range(len(methods)):
            method = methods[a]
            kept[:] = 0.0
            alive = True
            for b in range(len(calls)):
                if method == 2 and a > 0 and methods[a - 1] == 1:
                    alive = alive and verdict[row, a - 1, b]
                    if alive:
                        for c in range(clusters):
                            for i in range(widest):
                                kept[c, i] = max(kept[c, i], late_slih[b, c, i])
                for c in range(clusters):
                    if not alive:
                        break
                    members = np.nonzero(home[:n] == c)[0]
                    if len(members) == 0:
                        continue
                    alive = _cluster(
                        len(members), m, k,
                        cost[row][members], gpu_time[row][members], section[row][members], period[row][members],
                        gpu[row][members], calls[b], o, method, lock, inflate_sections, kept[c],
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
    inflate_sections: bool = False,
) -> NDArray[np.bool_]:
    """Whether each task set of a batch has bounded tardiness under clustered EDF.

    :param methods: ways of handling interrupts.
    :param calls: GPU invocations of each GPU-using job, ascending.
    :param lock: ``oblivious``, ``aware`` or ``capped``.
    :param inflate_sections: as in :func:`rtxg.analysis.analyze`; the paper does not.
    :returns: array of shape (sets, methods, calls).
    """
    if platform.scheduler != "G-EDF":
        raise ValueError(f"the fast path knows G-EDF clusters only, not {platform.scheduler}; use rtxg.analyze")
    if lock not in _LOCKS:
        raise ValueError(f"lock bound {lock!r} has no fast form; use one of {', '.join(_LOCKS)}")
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
        np.array([_METHODS[methods[a]] for a in order]), np.array(list(calls)), _LOCKS[lock], inflate_sections, verdict,
    )  # fmt: skip
    answer = np.empty_like(verdict)
    answer[:, order] = verdict
    return answer
