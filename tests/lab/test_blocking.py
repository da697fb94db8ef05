# SPDX-License-Identifier: MIT
"""Waiting for one of k GPUs: theorems, the 0-1 program and the order between them."""

from __future__ import annotations

import fractions
import random
import sys
from fractions import Fraction
from itertools import combinations, count, product

from hypothesis import given, settings
from hypothesis import strategies as st

from rtxg import blocking
from rtxg.blocking import (
    Sharer,
    fmlp_plus,
    held_ahead,
    kfmlp_aware,
    kfmlp_capped,
    kfmlp_exact,
    kfmlp_oblivious,
    omlp_k_exclusion,
)


def brute_force(lengths, k):
    """The shortest queue at its longest, over all assignments."""
    best = 0
    for assignment in product(range(k), repeat=len(lengths)):
        queues = [0] * k
        for length, queue in zip(lengths, assignment, strict=True):
            queues[queue] += length
        best = max(best, min(queues))
    return best


def test_by_hand():
    others = [6, 4, 2]
    assert kfmlp_aware(others, 2) == 6
    assert kfmlp_oblivious(others, 2) == 9
    assert kfmlp_oblivious(others, 2, longest=10) == 15
    assert kfmlp_exact(others, 2) == 6  # 6 | 4 + 2
    assert kfmlp_exact([6, 4, 1], 2) == 5
    assert kfmlp_capped([6, 4, 1], 2) == 5  # min(11/2, (4 + 1)/1)
    assert kfmlp_capped([10, 1, 1], 2) == 2
    assert kfmlp_aware([10, 1, 1], 2) == 6


def test_nobody_waits_while_gpus_are_left():
    assert kfmlp_exact([5, 7], 3) == 0
    assert kfmlp_capped([5, 7], 3) == 0
    assert kfmlp_exact([], 1) == kfmlp_capped([], 1) == kfmlp_aware([], 1) == kfmlp_oblivious([], 1) == 0


def test_one_gpu_is_a_mutex():
    assert kfmlp_exact([3, 4, 5], 1) == kfmlp_capped([3, 4, 5], 1) == kfmlp_aware([3, 4, 5], 1) == 12


@settings(max_examples=40)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=7), st.integers(1, 3))
def test_exact_is_exact(lengths, k):
    assert kfmlp_exact(lengths, k) == brute_force(lengths, k)


@settings(max_examples=40)
@given(st.lists(st.integers(1, 30_000), min_size=1, max_size=20), st.integers(1, 5))
def test_bounds_are_ordered(lengths, k):
    exact = kfmlp_exact(lengths, k)
    assert exact <= kfmlp_capped(lengths, k) <= kfmlp_aware(lengths, k) <= kfmlp_oblivious(lengths, k)


def test_fractions_stay_exact():
    third = Fraction(1, 3)
    assert kfmlp_exact([third, third], 2) == third
    assert kfmlp_aware([third, third], 2) == third


def test_omlp_by_hand():
    # Six CPUs, four GPUs: queues of two. One may donate for a request and the one before it.
    assert omlp_k_exclusion([10, 7, 3], 6, 4, requests=False) == 10 + 7
    assert omlp_k_exclusion([10, 7, 3], 6, 4, requests=True) == 10 + 7 + 10
    assert omlp_k_exclusion([10, 7, 3], 4, 4, requests=True) == 10
    assert omlp_k_exclusion([10, 7, 3], 5, 1, requests=True) == 2 * 20  # no more than there are


def test_the_unit_of_time_does_not_matter():
    lengths = [7, 9, 23, 31, 5, 12, 18, 2, 40, 11, 3, 8, 29, 17]
    for k in (2, 3, 4):
        found = kfmlp_exact(lengths, k)
        for scale in (1000, Fraction(1, 1_000_000)):
            assert kfmlp_exact([length * scale for length in lengths], k) == found * scale


def test_the_search_is_counted_in_nodes(monkeypatch):
    """A clock in the solver would make verdicts depend on what else the machine does."""
    import scipy.optimize

    options = []
    right = scipy.optimize.milp
    monkeypatch.setattr(scipy.optimize, "milp", lambda **how: options.append(dict(how["options"])) or right(**how))
    kfmlp_exact([6_001, 4_003, 1_009, 977, 5_003], 3)
    assert options
    assert "time_limit" not in options[0]
    assert options[0]["node_limit"] > 0


def test_many_requests_are_quick():
    lengths = list(range(1000, 1300))
    assert kfmlp_exact(lengths, 7) == kfmlp_capped(lengths, 7)


def test_requests_that_spread_evenly_need_no_solver(monkeypatch):
    """Each task of a set has others of its own: so many searches were most of a verdict's time."""
    import scipy.optimize

    monkeypatch.setattr(scipy.optimize, "milp", None)
    rng = random.Random(142)
    for requests in (14, 20, 24):
        for k in (2, 3, 4):
            lengths = [rng.randint(500, 6000) for _ in range(requests)]
            assert kfmlp_exact(lengths, k) == kfmlp_capped(lengths, k)


@settings(max_examples=200)
@given(
    st.lists(st.integers(1, 60), max_size=6), st.lists(st.integers(1, 60), min_size=1, max_size=7)
)
def test_two_queues_share_their_shortest_requests_as_evenly_as_can_be(short, long):
    """Of all ways to give the ten shortest to one or the other, the best; nothing is lost."""
    if sum(short) > sum(long):
        short, long = long, short
    both, free = sorted(short + long), sorted(short + long)[: blocking._SHARED_OUT]
    kept = list(short)
    for size in free:
        if size in kept:
            kept.remove(size)
    best = max(
        min(sum(kept) + sum(mine), sum(both) - sum(kept) - sum(mine))
        for size in range(len(free) + 1)
        for mine in combinations(free, size)
    )
    before, first, second = sum(short), list(short), list(long)
    assert blocking._share_evenly(first, second) == (best > before)
    assert sorted(first + second) == both
    assert min(sum(first), sum(second)) == max(best, before)


def test_requests_in_flight_are_counted_in_whole_numbers():
    """Fractions took ten times as long: 1.2 s for sets of 300 tasks under the FMLP+."""
    rng = random.Random(20030)
    sharers = [
        Sharer(
            cpu=rng.randrange(8),
            rank=rank,
            period=Fraction(rng.randint(1000, 1_000_000), 7),
            response=Fraction(rng.randint(1000, 900_000), 11),
            requests=rank % 3,
            section=Fraction(rng.randint(10, 900), 3) if rank % 3 else 0,
        )
        for rank in range(60)
    ]
    sums = count()

    def noted(frame, event, _):
        if event == "call" and frame.f_code.co_filename == fractions.__file__:
            next(sums)

    sys.setprofile(noted)
    try:
        waits, ahead = fmlp_plus(sharers), held_ahead(sharers)
    finally:
        sys.setprofile(None)
    assert next(sums) < 100 * len(sharers)
    assert sum(wait.remote > 0 for wait in waits) == 40
    assert any(ahead)
