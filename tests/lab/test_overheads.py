# SPDX-License-Identifier: MIT
"""Equations (6) to (24) with overheads from which every coefficient can be read off.

sch 1, cxs 2, ipi 4, rel 8, th 16, bh 32, krel 64, paisch 128, pairel 256, tck 512, Q 1000.
The set: A, CPU-only, period 100 000; B, GPU-using, eta 2, period 50 000; C, GPU-using, eta 3, period 30 000.
"""

from __future__ import annotations

from dataclasses import fields, replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_sets import task

from rtxg import NO_OVERHEADS, TABLE_III, Interrupts, Overheads
from rtxg.overheads import inflated, inflation, interfering_interrupts

A = task("A", 10_000, 100_000)
B = task("B", 5_000, 50_000, calls=2, gpu=700)
C = task("C", 3_000, 30_000, calls=3, gpu=900)
ALL = [A, B, C]
ZERO: dict[str, Fraction] = {}

# Interrupts that may strike one job, equation (11).
HITS_A = 3 * 2 + 5 * 3  # ceil(150/50) eta_B + ceil(130/30) eta_C
HITS_B = 3 * 3  # ceil(80/30) eta_C
HITS_C = 2 * 2  # ceil(80/50) eta_B
TICKS_A, TICKS_B = 100 * 512, 50 * 512


def total(who, overheads, interrupts, late=ZERO, blocking=Fraction(0)):
    hits = interfering_interrupts(ALL, late)[who.name]
    return inflated(inflation(who, hits, overheads, interrupts, late.get(who.name, Fraction(0)), blocking))


def test_interfering_interrupts_equation_11():
    assert interfering_interrupts(ALL, ZERO) == {"A": HITS_A, "B": HITS_B, "C": HITS_C}
    assert HITS_A == 21
    # With tardiness: (100 + 7 + 50 + 0)/50 -> 4, (100 + 7 + 30 + 14)/30 -> 6.
    late = {"A": Fraction(7_000), "C": Fraction(14_000)}
    assert interfering_interrupts(ALL, late)["A"] == 4 * 2 + 6 * 3


def test_a_job_is_pending_until_its_deadline_and_its_lateness():
    """Of jobs with a deadline other than the period: D pends for 40 and E for 90 at most."""
    d = task("D", 1_000, 50_000, calls=1, gpu=100, deadline=40_000)
    e = task("E", 1_000, 30_000, calls=1, gpu=100, deadline=90_000)
    # ceil((40 + 90) / 30) of E strike D, and ceil((90 + 40) / 50) of D strike E.
    assert interfering_interrupts([d, e], ZERO) == {"D": 5, "E": 3}


def test_cpu_only_equations_6_and_9(distinct):
    basic = 10_000 + 2 * (1 + 2) + 8 + 4
    assert total(A, distinct, Interrupts.NONE) == basic + TICKS_A


def test_gpu_using_equations_7_8_and_10(distinct):
    # (2 + eta) spans of 2 (sch + cxs) and (2 + eta) releases; s_i and b_i count as execution.
    basic = 5_000 + 700 + 123 + 4 * 2 * 3 + 4 * (8 + 4)
    assert total(B, distinct, Interrupts.NONE, blocking=Fraction(123)) == basic + TICKS_B


def test_standard_linux_equations_12_and_13(distinct):
    assert total(A, distinct, Interrupts.SLIH) == 10_000 + 6 + 12 + HITS_A * (16 + 32) + TICKS_A
    assert total(B, distinct, Interrupts.SLIH) == 5_700 + 24 + 48 + HITS_B * (16 + 32) + TICKS_B


def test_klmirqd_equations_14_to_16(distinct):
    assert total(A, distinct, Interrupts.KLMIRQD) == 10_000 + 6 + 12 + HITS_A * (16 + 64) + TICKS_A
    threads = 2 * (2 * (1 + 2) + 4)
    assert total(B, distinct, Interrupts.KLMIRQD) == 5_700 + 24 + 48 + HITS_B * (16 + 64) + threads + TICKS_B


def test_pai_equations_17_to_23(distinct):
    assert total(A, distinct, Interrupts.PAI) == 10_000 + 6 + 12 + HITS_A * (16 + 256 + 32) + 2 * 128 + TICKS_A
    look, sent = 4 * 2 * 128, 2 * 4
    assert total(B, distinct, Interrupts.PAI) == 5_700 + 24 + 48 + HITS_B * (16 + 256 + 32) + look + sent + TICKS_B


def test_ticks_equation_24(distinct):
    # ceil((50 000 + 1) / 1000) = 51.
    more = total(B, distinct, Interrupts.NONE, {"B": Fraction(1)}) - total(B, distinct, Interrupts.NONE)
    assert more == 512


def test_own_mechanisms(distinct):
    klmirqd = total(B, distinct, Interrupts.KLMIRQD)
    permits, preemptions, slices = 2 * 1024, 2 * (2048 + 4096), 3 * 8192  # 700 us of GPU in slices of 300
    assert total(B, distinct, Interrupts.RTXG) == klmirqd + permits + preemptions + slices
    assert total(A, distinct, Interrupts.RTXG) == total(A, distinct, Interrupts.KLMIRQD)


def test_table_iii():
    expected = {"sch": 0.63, "cxs": 0.36, "ipi": 0.60, "rel": 0.67, "th": 16.44, "bh": 29.90, "krel": 1.39,
                "paisch": 0.13, "pairel": 0.56, "tck": 0.86, "quantum": 1000.0}  # fmt: skip
    assert {name: value for name, value in TABLE_III.as_dict().items() if value} == expected


def test_every_term_names_its_equation(distinct):
    for interrupts in Interrupts:
        for who in ALL:
            terms = inflation(who, 7, distinct, interrupts, Fraction(0), Fraction(5))
            assert all(t.equation for t in terms if t.symbol != "e_i")
            assert len({t.symbol for t in terms}) == len(terms)


def test_klmirqd_equals_standard_linux_when_bottom_halves_cost_no_more_than_their_release(distinct):
    """CPU-only tasks exactly; GPU-using tasks except for the thread of their bottom halves."""
    equal = replace(distinct, bh=distinct.krel)
    assert total(A, equal, Interrupts.KLMIRQD) == total(A, equal, Interrupts.SLIH)
    free_threads = replace(equal, sch=Fraction(0), cxs=Fraction(0), ipi=Fraction(0))
    for who in (B, C):
        assert total(who, free_threads, Interrupts.KLMIRQD) == total(who, free_threads, Interrupts.SLIH)


microseconds = st.fractions(0, 100, max_denominator=100)
overhead_sets = st.builds(
    Overheads, **{f.name: microseconds for f in fields(Overheads) if f.name not in ("quantum", "slice_length")}
)


@settings(max_examples=40)
@given(overhead_sets, st.sampled_from(list(Interrupts)), st.sampled_from([f.name for f in fields(Overheads)[:10]]))
def test_more_overhead_never_inflates_less(overheads, interrupts, which):
    larger = replace(overheads, **{which: getattr(overheads, which) + 1})
    for who in ALL:
        assert total(who, larger, interrupts) >= total(who, overheads, interrupts)


@settings(max_examples=30)
@given(overhead_sets)
def test_pai_costs_at_least_what_standard_linux_costs(overheads):
    for who in ALL:
        assert total(who, overheads, Interrupts.PAI) >= total(who, overheads, Interrupts.SLIH)


def test_no_overheads_add_nothing():
    for interrupts in Interrupts:
        assert total(A, NO_OVERHEADS, interrupts) == A.demand
        assert total(B, NO_OVERHEADS, interrupts) == B.demand


def test_bad_overheads_are_refused():
    with pytest.raises(ValueError, match="schedule"):
        Overheads.from_mapping({"schedule": "1us"})
    with pytest.raises(ValueError, match=r"overhead th.*minutes"):
        Overheads.from_mapping({"th": "3 minutes"})
    with pytest.raises(ValueError, match="quantum"):
        Overheads(quantum=Fraction(0))
    assert Overheads.from_mapping({"slice-switch": "2us"}).slice_switch == 2
