# SPDX-License-Identifier: MIT
"""Tardiness bounds against reference vectors, hand-worked numbers and each other."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rtxg.tardiness import (
    best_tardiness,
    compliant_tardiness,
    compliant_vector,
    devi_anderson_tardiness,
    is_feasible,
    priority_points,
)

# (C, T) pairs, CPUs, bounds; computed with SchedCAT, which rounds x_i up to whole units.
REFERENCE = [
    (((2, 3), (2, 3), (2, 3)), 2, (2, 2, 2), (2, 2, 2)),
    (((5, 10), (6, 10), (7, 10)), 2, (5, 5, 6), (6, 7, 8)),
    (
        ((3, 10), (8, 20), (15, 30), (9, 12), (20, 40), (5, 7)),
        4,
        (17, 21, 26, 22, 30, 19),
        (20, 25, 32, 26, 37, 22),
    ),
]

pairs = st.tuples(st.integers(1, 100), st.integers(1, 100)).map(lambda p: (min(p), max(p)))
sets = st.lists(pairs, min_size=1, max_size=12)


@pytest.mark.parametrize(("tasks", "m", "compliant", "devi_anderson"), REFERENCE)
def test_reference_vectors(tasks, m, compliant, devi_anderson):
    costs, periods = zip(*tasks, strict=True)
    assert tuple(map(ceil, compliant_tardiness(costs, periods, periods, m))) == compliant
    assert tuple(map(ceil, devi_anderson_tardiness(costs, periods, m))) == devi_anderson


def test_devi_anderson_by_hand():
    # U = 1.8, one carrier: x = ceil((7 - 5) / (2 - 0)) = 1.
    assert devi_anderson_tardiness([5, 6, 7], [10, 10, 10], 2) == [6, 7, 8]


def test_compliant_vector_by_hand():
    # Equal periods: Y' = 0, S = C, g_i(s) = u_i (s - C_i/2) for s above C_i/2.  With tasks (5,10), (6,10),
    # (7,10) on two CPUs G(s) + 18 = 2 s; the largest g is the one of (7,10): 0.7 s - 2.45 at s = 11.96.
    s = (Fraction(18) - Fraction(7, 10) * Fraction(7, 2)) / (2 - Fraction(7, 10))
    expected = [5 + s - Fraction(5, 2), 6 + s - 3, 7 + s - Fraction(7, 2)]
    assert compliant_vector([5, 6, 7], [10, 10, 10], [10, 10, 10], 2) == expected


def test_conditions_4_and_5():
    assert is_feasible([10], [10], 1)
    assert not is_feasible([11], [10], 4)
    assert not is_feasible([6, 6, 9], [10, 10, 10], 2)
    assert compliant_tardiness([6, 6, 9], [10, 10, 10], [10, 10, 10], 2) is None
    assert devi_anderson_tardiness([6, 6, 9], [10, 10, 10], 2) is None


def test_one_processor_has_no_tardiness():
    assert compliant_tardiness([5, 5], [10, 10], [10, 10], 1) == [0, 0]
    assert compliant_vector([5, 5], [10, 10], [10, 10], 1) == [10, 10]


def test_fair_lateness_points():
    assert priority_points([7, 8], [20, 30], 4, "G-FL") == [20 - Fraction(21, 4), 30 - 6]
    with pytest.raises(ValueError, match="RM"):
        priority_points([1], [2], 2, "RM")


@given(sets, st.integers(2, 6))
def test_best_bound_is_never_looser_than_either(tasks, m):
    costs, periods = zip(*tasks, strict=True)
    assume(is_feasible(costs, periods, m))
    older = devi_anderson_tardiness(costs, periods, m)
    newer = compliant_tardiness(costs, periods, periods, m)
    best = best_tardiness(costs, periods, periods, m)
    assert older is not None
    assert best == [min(a, b) for a, b in zip(older, newer, strict=True)]


def test_full_processors_favour_the_older_bound():
    assert devi_anderson_tardiness([1] * 4, [1] * 4, 4) == [2] * 4
    assert compliant_tardiness([1] * 4, [1] * 4, [1] * 4, 4) == [3] * 4
    assert best_tardiness([1] * 4, [1] * 4, [1] * 4, 4) == [2] * 4


@given(sets, st.integers(2, 6))
def test_bound_satisfies_its_definition(tasks, m):
    """The vector found is compliant: x_i >= (G(x) + S - C_i) / m for the x behind the bound."""
    costs, periods = zip(*tasks, strict=True)
    assume(is_feasible(costs, periods, m))
    least = min(periods)
    shifted = [t - least for t in periods]
    responses = compliant_vector(costs, periods, periods, m)
    x = [r - y - c for r, y, c in zip(responses, shifted, costs, strict=True)]
    spill = [max(Fraction(0), c * (1 - Fraction(y, t))) for c, y, t in zip(costs, shifted, periods, strict=True)]
    g = sorted((Fraction(c, t) * v + c - sp for c, t, v, sp in zip(costs, periods, x, spill, strict=True)), reverse=True)
    carriers = -(-sum(Fraction(c, t) for c, t in tasks) // 1) - 1
    demand = sum(g[: int(carriers)], Fraction(0)) + sum(spill, Fraction(0))
    assert all(v >= 0 and m * v >= demand - c for v, c in zip(x, costs, strict=True))


@given(sets, st.integers(2, 6), st.data())
def test_less_demand_is_never_later(tasks, m, data):
    costs, periods = zip(*tasks, strict=True)
    assume(is_feasible(costs, periods, m))
    which = data.draw(st.integers(0, len(tasks) - 1))
    lighter = list(costs)
    lighter[which] = data.draw(st.integers(1, costs[which]))
    before = compliant_tardiness(costs, periods, periods, m)
    after = compliant_tardiness(lighter, periods, periods, m)
    assert all(a <= b for a, b in zip(after, before, strict=True))


@given(sets, st.integers(2, 4), st.sampled_from(["G-EDF", "G-FL"]))
def test_the_unit_of_time_does_not_matter(tasks, m, scheduler):
    costs, periods = zip(*tasks, strict=True)
    assume(is_feasible(costs, periods, m))
    for scale in (1000, Fraction(1, 1_000_000)):
        c, t = [v * scale for v in costs], [v * scale for v in periods]
        assert compliant_tardiness(c, t, t, m, scheduler) == [
            x * scale for x in compliant_tardiness(costs, periods, periods, m, scheduler)
        ]
        assert devi_anderson_tardiness(c, t, m) == [x * scale for x in devi_anderson_tardiness(costs, periods, m)]
