# SPDX-License-Identifier: MIT
"""Hard real-time tests: hand-worked cases, and against a brute-force schedule where one exists."""

from __future__ import annotations

import fractions
import itertools
import random
import sys
import tracemalloc
from fractions import Fraction
from math import lcm

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rtxg import hard

# The example of the QPA paper, schedulable; with a ninth task it is not.
QPA_SET = [
    (6000, 31000, 18000),
    (2000, 9800, 9000),
    (1000, 17000, 12000),
    (90, 4200, 3000),
    (8, 96, 78),
    (2, 12, 16),
    (10, 280, 120),
    (26, 660, 160),
]

constrained = st.lists(
    st.tuples(st.integers(1, 6), st.sampled_from([4, 5, 6, 8, 10, 12]), st.integers(0, 6)).map(
        lambda t: (min(t[0], t[1]), t[1], max(min(t[0], t[1]), t[1] - t[2]))
    ),
    min_size=1,
    max_size=5,
)


def split(tasks):
    return [list(column) for column in zip(*tasks, strict=True)]


def misses_synchronously(tasks, m):
    """Unit-by-unit global EDF from a synchronous start over two hyperperiods: does a job miss?"""
    horizon = 2 * lcm(*(t for _, t, _ in tasks))
    jobs = []
    for now in range(horizon):
        jobs += [[now + d, i, c] for i, (c, t, d) in enumerate(tasks) if now % t == 0]
        jobs.sort()
        ready = list({job[1]: job for job in reversed(jobs)}.values())  # of each task its first job
        for job in sorted(ready)[:m]:
            job[2] -= 1
        jobs = [j for j in jobs if j[2]]
        if any(j[0] <= now + 1 for j in jobs):
            return True
    return False


def test_qpa_reference():
    assert hard.qpa(*split(QPA_SET))
    assert not hard.qpa(*split([*QPA_SET, (10, 100, 15)]))
    assert hard.qpa([], [], [])
    assert hard.qpa([5, 5], [10, 10], [10, 10])
    assert not hard.qpa([5, 6], [10, 10], [10, 10])


def test_qpa_gives_up_on_a_busy_period_without_end():
    """A processor that is never idle, and periods whose hyperperiod is above 10^17."""
    periods = [999983, 999979, 999961]
    costs = [Fraction(t, 3) for t in periods]
    assert hard.qpa(costs, periods, periods)
    assert not hard.qpa(costs, periods, [t - 1 for t in periods])


@given(constrained)
def test_qpa_is_exact(tasks):
    assert hard.qpa(*split(tasks)) == (not misses_synchronously(tasks, 1) and sum(Fraction(c, t) for c, t, _ in tasks) <= 1)


@pytest.mark.parametrize("name", hard.GLOBAL_EDF_TESTS)
@settings(max_examples=60)
@given(tasks=constrained, m=st.integers(2, 3))
def test_global_edf_tests_are_sound(name, tasks, m):
    if hard.GLOBAL_EDF_TESTS[name](*split(tasks), m):
        assert not misses_synchronously(tasks, m)


arbitrary = st.lists(
    st.tuples(st.integers(1, 8), st.sampled_from([4, 5, 6, 8, 10]), st.integers(-4, 12)).map(
        lambda t: (min(t[0], t[1]), t[1], max(1, t[1] + t[2]))
    ),
    min_size=2,
    max_size=5,
)


@given(arbitrary)
def test_qpa_is_exact_for_deadlines_beyond_the_period(tasks):
    usage = sum(Fraction(c, t) for c, t, _ in tasks)
    assert hard.qpa(*split(tasks)) == (usage <= 1 and not misses_synchronously(tasks, 1))


@pytest.mark.parametrize("name", ["a CPU each", "GFB", "BAK"])
@settings(max_examples=60)
@given(tasks=arbitrary, m=st.integers(2, 3))
def test_tests_for_any_deadline_are_sound(name, tasks, m):
    if hard.GLOBAL_EDF_TESTS[name](*split(tasks), m):
        assert not misses_synchronously(tasks, m)


@pytest.mark.parametrize("name", hard.GLOBAL_EDF_TESTS)
@settings(max_examples=25)
@given(tasks=constrained, m=st.integers(2, 3))
def test_the_unit_of_time_does_not_matter(name, tasks, m):
    c, t, d = split(tasks)
    test = hard.GLOBAL_EDF_TESTS[name]
    for scale in (1000, Fraction(1, 1_000_000), Fraction(1, 3)):
        assert test(*([v * scale for v in column] for column in (c, t, d)), m) == test(c, t, d, m)


@pytest.mark.parametrize("name", ["BCL", "BCL-iterative", "response times", "BAR"])
@pytest.mark.filterwarnings("error")
def test_a_window_below_a_step_of_the_grid_is_not_shown_to_suffice(name):
    """Ten microseconds beside a year: their step is the year's 2^40th part."""
    year = 31_536_000_000_000
    costs, windows = [year // 2, 6, 5, 4], [year, 9, 10, 9]
    assert not hard.GLOBAL_EDF_TESTS[name](costs, [year, 10, 10, 10], windows, 3)


def test_gfb_by_hand():
    # 0.5 + 0.5 + 0.5 <= 2 - 0.5: exactly met.
    assert hard.gfb([5, 5, 5], [10, 10, 10], [10, 10, 10], 2)
    assert not hard.gfb([5, 5, 6], [10, 10, 10], [10, 10, 10], 2)


def test_gfb_fails_where_dhall_does():
    costs, periods = [1, 1, 10], [5, 5, 10]
    assert not hard.gfb(costs, periods, periods, 2)


def test_bak_by_hand():
    # Two tasks (49, 100) and one (2, 100) on two CPUs.  For the third, lambda is 0.02 and each large one has
    # beta = 0.49 + (49 - 2)/100 = 0.96: 1.92 + 0.02 <= 2 - 0.02.
    assert hard.bak([49, 49, 2], [100, 100, 100], [100, 100, 100], 2)
    # With deadline 50, lambda is 0.04 and the large ones count 1 each: 2 + 0.02 * 1.5 + ... > 2 - 0.04.
    assert not hard.bak([49, 49, 2], [100, 100, 100], [100, 100, 50], 2)


def test_bcl_by_hand():
    # k any of three (4,10): the others fit once each: beta = 0.4, slack = 0.6: 0.8 < 2 * 0.6.
    assert hard.bcl([4, 4, 4], [10, 10, 10], [10, 10, 10], 2)
    # (7,10): slack 0.3; min(0.7, 0.3) twice = 0.6 = 2 * 0.3, with no small beta.
    assert not hard.bcl([7, 7, 7], [10, 10, 10], [10, 10, 10], 2)


def test_bcl_iterative_uses_slack():
    costs, periods = [2, 2, 8], [10, 10, 20]
    assert hard.bcl_iterative(costs, periods, periods, 2)
    assert not hard.bcl_iterative([9, 9, 9], [10, 10, 10], [10, 10, 10], 2)


@pytest.mark.parametrize(
    ("deadline", "t", "demand"),
    [(10000, 5000, 0), (10000, 5001, 1), (10000, 7000, 2000), (10000, 9999, 4999), (10000, 10001, 5000),
     (10000, 14001, 5000), (7000, 1000, 0), (7000, 2001, 1), (7000, 6999, 4999), (7000, 12001, 5001)],
)  # fmt: skip
def test_ffdbf_demand(deadline, t, demand):
    assert hard.ffdbf_demand(5000, 10000, deadline, t, 1) == demand


def test_response_times_by_hand():
    # The textbook set (3,7), (3,12), (5,20): R = 3, 6, 20.
    assert hard.fixed_priority_response_times([3, 3, 5], [7, 12, 20], [7, 12, 20]) == [3, 6, 20]
    assert hard.fixed_priority_response_times([3, 3, 6], [7, 12, 20], [7, 12, 20]) == [3, 6, None]
    # One unit of blocking, one of jitter on the first.
    assert hard.fixed_priority_response_times([1, 2], [4, 8], [4, 8], jitter=[1, 0], blocking=[1, 0]) == [2, 3]


def test_global_response_times_by_hand():
    # Two CPUs: a single higher-priority task delays no other task.
    assert hard.fixed_priority_response_times([5, 5], [10, 10], [10, 10], m=2) == [5, 5]
    bounds = hard.fixed_priority_response_times([5, 5, 5], [10, 10, 10], [10, 10, 10], m=2)
    assert bounds[:2] == [5, 5]
    assert bounds[2] == 10  # waits for both at most five units each, shared by two CPUs, plus carry-in


def test_suspension_aware_by_hand():
    # One task: C + G + eps + 3 eps eta.
    assert hard.suspension_aware_response_times([10], [20], [1], [100], [100], [0], 2) == [10 + 20 + 2 + 6]
    # A second task with no GPU on another CPU suffers nothing but its own epsilon.
    bounds = hard.suspension_aware_response_times([10, 5], [20, 0], [1, 0], [100, 100], [100, 100], [0, 1], 2)
    assert bounds == [38, 7]
    # On the same CPU: jitter 38 - 10 = 28; one job within 5 + 2 + (10 + 2 * 2) = 21 and 21 + 28 <= 100.
    bounds = hard.suspension_aware_response_times([10, 5], [20, 0], [1, 0], [100, 100], [100, 100], [0, 0], 2)
    assert bounds == [38, 21]
    # With a GPU segment on another CPU: own 5 + 7 + 2 + 6 = 20, plus 20 + 4 of GPU interference.
    bounds = hard.suspension_aware_response_times([10, 5], [20, 7], [1, 1], [100, 100], [100, 100], [0, 1], 2)
    assert bounds == [38, 44]


@given(constrained, st.integers(0, 3))
def test_dearer_runlist_updates_never_help(tasks, epsilon):
    costs, periods, deadlines = split(tasks)
    gpu = [c // 2 for c in costs]
    calls = [1 if g else 0 for g in gpu]
    cpu = [c - g for c, g in zip(costs, gpu, strict=True)]
    assume(all(c + g for c, g in zip(cpu, gpu, strict=True)))
    cheap = hard.suspension_aware_response_times(cpu, gpu, calls, periods, deadlines, [0] * len(tasks), epsilon)
    dear = hard.suspension_aware_response_times(cpu, gpu, calls, periods, deadlines, [0] * len(tasks), epsilon + 1)
    for a, b in zip(cheap, dear, strict=True):
        assert b is None or (a is not None and a <= b)


def test_a_response_of_many_tasks_that_creeps_is_given_up_soon(monkeypatch):
    """300 tasks on 8 CPUs, which are not shown to be on time: 100 000 steps were taken before."""
    rng = random.Random(11)
    periods = [rng.randint(3000, 200_000) for _ in range(300)]
    costs = [max(1, int(t * 8 * 0.61 / 300 * rng.uniform(0.3, 1.7))) for t in periods]
    steps, step = itertools.count(), hard._next_response

    def counted(*words):
        next(steps)
        return step(*words)

    monkeypatch.setattr(hard, "_next_response", counted)
    assert hard.edf_response_times(costs, periods, periods, 8) is None
    assert 1000 < next(steps) < 40_000


def test_bar_proves_many_tasks_in_little_memory():
    """All windows at once took 126 MiB; a few at a time took so long that they were given up."""
    rng = random.Random(176)
    periods = [rng.randint(3000, 200_000) for _ in range(300)]
    costs = [max(1, int(t * 2 * 0.9 / 300 * rng.uniform(0.5, 1.5))) for t in periods]
    deadlines = [max(c, int(t * rng.uniform(0.3, 1))) for t, c in zip(periods, costs, strict=True)]
    tracemalloc.start()
    try:
        assert hard.bar(costs, periods, deadlines, 2)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1 << 20


def test_bar_finds_the_window_of_a_long_period_soon(monkeypatch):
    """Periods of 1, 1000 and 1000000 have millions of windows that end with a job: 10 s were taken."""
    monkeypatch.setattr(hard, "MOST_WORK", 2000 * (hard.EACH_STEP + 3))
    periods = [10, 10_000, 10_000_000]
    assert hard.bar([3, 3000, 3_000_000], periods, periods, 2)
    assert hard.bar([9, 9000, 9_000_000], periods, periods, 3)
    assert not hard.bar([9, 9000, 9_000_000], periods, periods, 2)


def test_bar_gives_up_where_next_to_nothing_is_left():
    """Less of two CPUs than a float can tell from nothing: the longest window was infinite."""
    whole = 10**300
    assert not hard.bar([whole - 1, whole // 2, whole // 2], [whole] * 3, [whole] * 3, 2)


def is_passed(tasks, k, t, m):
    """Baruah's condition for one window, as it is printed."""
    ck, _, dk = tasks[k]
    without, carried_in = [], []
    for i, (c, p, d) in enumerate(tasks):
        limit = t - dk if i == k else t - ck + 1
        earlier = ck if i == k else 0
        without.append(min(max(0, (t - d) // p + 1) * c - earlier, limit))
        carried_in.append(min(t // p * c + min(c, t % p) - earlier, limit))
    more = sorted((b - a for a, b in zip(without, carried_in, strict=True)), reverse=True)
    return sum(without) + sum(more[: m - 1]) > m * (t - ck)


@settings(max_examples=150)
@given(tasks=constrained, m=st.integers(1, 3))
def test_bar_passes_over_no_window(tasks, m):
    usage = sum(Fraction(c, t) for c, t, _ in tasks)
    assume(usage < m)
    longest = int(sum((m + 2) * c for c, _, _ in tasks) / (m - usage)) + 12
    passed = any(
        is_passed(tasks, k, t, m) for k in range(len(tasks)) for t in range(tasks[k][2], longest)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hard, "grid", lambda *columns: columns)  # a step is a unit
        assert hard.bar(*split(tasks), m) == (not passed)


def test_response_times_on_one_cpu_add_whole_numbers():
    """Sums of fractions took ten times as long: 1.8 s for one of a thousand sets of 300 tasks."""
    rng = random.Random(859)
    periods = sorted(Fraction(rng.randint(1000, 1_000_000), 7) for _ in range(60))
    costs = [t * Fraction(rng.randint(5, 25), 1000) for t in periods]
    sums = itertools.count()

    def noted(frame, event, _):
        if event == "call" and frame.f_code.co_filename == fractions.__file__:
            next(sums)

    sys.setprofile(noted)
    try:
        found = hard.fixed_priority_response_times(costs, periods, periods)
    finally:
        sys.setprofile(None)
    assert None not in found[:50]
    assert next(sums) < 100 * len(periods)


@settings(max_examples=200)
@given(
    others=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 60), st.integers(0, 30)), max_size=5),
    own=st.integers(0, 30),
    deadline=st.integers(1, 3000),
    unit=st.sampled_from([1, 10**400]),
)
def test_where_the_search_for_a_response_begins_does_not_matter(others, own, deadline, unit):
    """From the job's own time alone, as the recurrence is printed."""
    response = own
    while response <= deadline:
        longer = own - sum(-(response + late) // t * c for late, t, c in others)
        if longer == response:
            break
        response = longer
    found = hard._response(
        own * unit, deadline * unit, [tuple(v * unit for v in other) for other in others]
    )
    assert found == (response * unit if response <= deadline else None)


@pytest.mark.parametrize("cost", [10_000_000, 9_999_999])
def test_a_response_beside_a_cpu_that_is_never_idle_is_soon_found(monkeypatch, cost):
    """Beside 10 us of each 10 us, and a ten-millionth less: a hundred million jobs before the
    deadline.  No more than ten steps are taken."""
    monkeypatch.setattr(hard, "MOST_WORK", 10 * hard.PYTHON_STEP)
    period, deadline = 10_000_000, 10**15
    windows = [period, deadline]
    found = hard.fixed_priority_response_times([cost, 100], windows, windows)
    assert found == [cost, None if cost == period else 100 * period]


@pytest.mark.parametrize("m", [2, 3])
def test_a_response_beside_cpus_that_are_never_idle_is_given_up_soon(monkeypatch, m):
    monkeypatch.setattr(hard, "MOST_WORK", 1_000_000)
    windows = [10] * m + [10**9]
    found = hard.fixed_priority_response_times([10] * m + [1], windows, windows, m)
    assert found == [10] * m + [None]
