# SPDX-License-Identifier: MIT
"""A million random task sets that need nearly all of their processors, simulated: no bound is passed.

Compiled, CPU time only, without overheads: periodic jobs under global EDF that always take their
worst case.  The bounds are those of rtxg.fast, which other tests hold against the exact ones.
"""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from rtxg.fast import SCRATCH, _cluster

PERIODS = np.array([2, 3, 4, 5, 6, 8, 9, 10, 12, 15, 16, 18, 20, 24, 30])
NO_OVERHEADS = (0.0,) * 10 + (1000.0,)


@njit
def _draw(cpus, count, cost, period, first):
    """A set of ``count`` tasks with a utilisation as near ``cpus`` as whole costs allow."""
    total = 0.0
    for i in range(count):
        period[i] = PERIODS[np.random.randint(len(PERIODS))]
        cost[i] = np.random.randint(1, period[i] + 1)
        first[i] = np.random.randint(period[i]) if np.random.random() < 0.5 else 0
        total += cost[i] / period[i]
    for _ in range(1000):
        i = np.random.randint(count)
        if total > cpus + 1e-12 and cost[i] > 1:
            cost[i] -= 1
            total -= 1 / period[i]
    for _ in range(8 * count):
        i = np.random.randint(count)
        if cost[i] < period[i] and total + 1 / period[i] <= cpus + 1e-12:
            cost[i] += 1
            total += 1 / period[i]


@njit
def _lateness(cpus, count, cost, period, first, horizon, late):
    """Global EDF from time 0 to ``horizon``: the greatest lateness of each task's jobs, in ``late``."""
    done = np.zeros(count, np.int64)  # jobs that have ended
    spent = np.zeros(count, np.int64)  # of the first one that has not
    key = np.empty(count, np.int64)
    runs = np.empty(cpus, np.int64)
    late[:count] = 0
    now = 0
    while now < horizon:
        step = horizon - now
        for i in range(count):
            release = first[i] + done[i] * period[i]
            if release <= now:
                key[i] = release + period[i]
            else:
                key[i] = -1
                step = min(step, release - now)
            ahead = (now - first[i]) // period[i] + 1 if now >= first[i] else 0
            step = min(step, first[i] + ahead * period[i] - now)
        running = 0
        while running < cpus:
            chosen = -1
            for i in range(count):
                if key[i] >= 0 and (chosen < 0 or key[i] < key[chosen]):
                    chosen = i
            if chosen < 0:
                break
            key[chosen] = -1
            runs[running] = chosen
            running += 1
            step = min(step, cost[chosen] - spent[chosen])
        now += step
        for a in range(running):
            i = runs[a]
            spent[i] += step
            if spent[i] == cost[i]:
                late[i] = max(late[i], now - (first[i] + (done[i] + 1) * period[i]))
                spent[i] = 0
                done[i] += 1


@njit
def _search(sets, seed, share, o):
    """How many sets had a late job, and the greatest lateness as a share of ``share`` times its bound
    (infinite where a hard test had said never)."""
    np.random.seed(seed)
    most = 12
    cost, period, first = (
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
    )
    late = np.empty(most, np.int64)
    none = np.zeros(most, np.int64)
    zeros = np.zeros(most)
    scratch, chosen = np.empty((SCRATCH, most)), np.empty(most, np.int64)
    seen, worst = 0, 0.0
    for _ in range(sets):
        cpus = np.random.randint(2, 5)
        count = np.random.randint(cpus + 1, min(most, cpus + 5) + 1)
        if (
            np.random.random() < 0.3
        ):  # not all of the processors: hard tests say yes to some of these
            _draw(cpus * np.random.uniform(0.4, 0.9), count, cost, period, first)
        else:
            _draw(cpus, count, cost, period, first)
        bound = np.zeros(most)
        bounded = _cluster(
            count, cpus, 0, cost[:count].astype(np.float64), zeros, zeros, period[:count].astype(np.float64),
            none, zeros, 1, o, 0, 2, 2, True, False, bound, scratch, chosen,
        )  # fmt: skip
        if not bounded:
            continue
        _lateness(cpus, count, cost, period, first, 1500, late)
        for i in range(count):
            if late[i] > 0:
                seen += 1
                worst = max(worst, late[i] / (share * bound[i]) if bound[i] > 0.0 else np.inf)
    return seen, worst


@pytest.mark.slow
def test_no_bound_is_passed_by_a_million_sets():
    seen, worst = _search(1_000_000, 2012, 1.0, NO_OVERHEADS)
    assert seen > 500_000
    assert worst <= 1.0


@pytest.mark.slow
def test_some_bound_is_nearly_reached():
    """So that a bound a little lower would be passed by one of a million."""
    seen, worst = _search(20_000, 1, 1.0, NO_OVERHEADS)
    assert seen > 10_000
    assert 0.8 < worst <= 1.0
    assert _search(20_000, 1, 0.8, NO_OVERHEADS)[1] > 1.0
