# SPDX-License-Identifier: MIT
"""The analysis of whole task sets: verdicts, fixed point, monotonicity, advice."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from math import ceil

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from small_sets import task, taskset

from rtxg import (
    NO_OVERHEADS,
    TABLE_III,
    Interrupts,
    Platform,
    TaskSet,
    analysis,
    analyze,
    what_would_fix,
)
from rtxg.analysis import blocking_bounds
from rtxg.tardiness import compliant_tardiness

MODES = [Interrupts.NONE, Interrupts.SLIH, Interrupts.PAI, Interrupts.KLMIRQD]


@st.composite
def systems(draw, max_tasks=6):
    """A small task set with GPU-using tasks on one or two clusters."""
    tasks = []
    for i in range(draw(st.integers(1, max_tasks))):
        period = draw(st.sampled_from([10_000, 15_000, 20_000, 33_000, 50_000]))
        demand = draw(st.integers(500, int(period * 0.6)))
        if draw(st.booleans()):
            gpu = draw(st.integers(1, demand))
            section = draw(st.integers(gpu, demand))
            tasks.append(task(f"g{i}", demand - gpu, period, draw(st.integers(1, 4)), gpu, section))
        else:
            tasks.append(task(f"c{i}", demand, period))
    clusters = draw(st.integers(1, 2))
    return TaskSet(tuple(tasks), Platform(clusters * draw(st.integers(2, 4)), clusters, clusters * draw(st.integers(1, 2))))


def test_without_overheads_it_is_the_plain_test():
    found = analyze(taskset(task("a", 2, 3), task("b", 2, 3), task("c", 2, 3), gpus=0), interrupts="none")
    assert found.schedulable
    assert [r.tardiness for r in found.results] == [2, 2, 2]
    assert [r.response for r in found.results] == [5, 5, 5]
    assert not found.hard


def test_whether_a_job_can_be_late_is_asked_first():
    """Bounds on lateness are above zero also where nothing is ever late; then they must not be used."""
    four = taskset(*(task(f"t{i}", 1, 1) for i in range(4)), cpus=4, gpus=0)
    found = analyze(four, interrupts="none")
    assert [r.tardiness for r in found.results] == [0] * 4
    assert [r.response for r in found.results] == [1] * 4
    assert found.hard
    assert found.clusters[0].hard_tests == {"a CPU each": True}
    # By lateness alone it is late, and with more tasks than CPUs it really is.
    assert all(r.tardiness > 0 for r in analyze(four, interrupts="none", hard_tests=()).results)


def test_imagined_lateness_is_not_fed_back():
    """A set that is never late, and would be refused if its tardiness bound entered equation (11)."""
    system = taskset(
        *(task(f"g{i}", 8000, 33_000, 6, 6000, 7000) for i in range(4)),
        task("lidar", 20_000, 100_000, 3, 10_000), task("fusion", 20_000, 33_000), task("planner", 60_000, 100_000),
        task("control", 1000, 5000, deadline=4000),
        cpus=8, gpus=3,
    )  # fmt: skip
    found = analyze(system, interrupts="slih", overheads=TABLE_III)
    assert found.schedulable
    assert found.hard
    assert not analyze(system, interrupts="slih", overheads=TABLE_III, hard_tests=()).schedulable


def test_unknown_hard_tests_are_refused():
    with pytest.raises(ValueError, match="hard test 'magic' is unknown; use one of a CPU each, GFB"):
        analyze(taskset(task("a", 1, 10), gpus=0), hard_tests=["magic"])


def test_blocking_counts_as_execution():
    # Two GPU users of one GPU: each waits for the other's section.
    found = analyze(taskset(task("a", 1000, 10_000, 1, 2000), task("b", 500, 10_000, 1, 3000)), interrupts="none")
    assert found["a"].blocking == 3000
    assert found["b"].blocking == 2000
    assert found["a"].inflated == 1000 + 2000 + 3000


def test_sections_are_inflated_unless_asked_not_to(distinct):
    pair = taskset(task("a", 1000, 100_000, 1, 2000), task("b", 500, 100_000, 1, 3000))
    plain = analyze(pair, interrupts="klmirqd", overheads=distinct, inflate_sections=False)
    safe = analyze(pair, interrupts="klmirqd", overheads=distinct)
    assert plain["a"].blocking == 3000
    own = sum(t.value for t in safe["b"].terms if t.symbol not in ("e_i", "s_i", "b_i"))
    assert safe["a"].blocking == 3000 + own


def test_a_call_is_no_shorter_than_its_own_interrupt():
    """The paper counts a call's halves as a part of it. One that is stated shorter runs longer."""
    long = replace(TABLE_III, th=Fraction(400), bh=Fraction(600))
    short = taskset(task("a", 2146, 4000, 2, 94))
    fits = taskset(task("a", 1500, 4000, 2, 94))
    assert not analyze(short, interrupts="slih", overheads=long).schedulable
    assert analyze(short, interrupts="slih", overheads=long, inflate_sections=False)["a"].tardiness == 0
    assert analyze(short, interrupts="none", overheads=long)["a"].tardiness == 0
    found = analyze(fits, interrupts="slih", overheads=long)
    assert found["a"].tardiness == 0
    assert found["a"].task.gpu_time == found["a"].task.section == 2000
    # What others wait for is as long.
    pair = taskset(task("a", 1000, 50_000, 3, 30), task("b", 500, 50_000, 1, 3000))
    assert analyze(pair, interrupts="slih", overheads=long)["b"].blocking > 3000


def test_result_is_a_fixed_point():
    """The bounds found are those that their own inflation gives."""
    system = taskset(
        task("g1", 4000, 20_000, 3, 5000), task("g2", 3000, 15_000, 6, 4000),
        task("c1", 20_000, 30_000), task("c2", 9000, 12_000),
        cpus=3, gpus=2,
    )  # fmt: skip
    found = analyze(system, interrupts="slih", overheads=TABLE_III, bound="compliant")
    assert found.schedulable
    cluster = found.clusters[0]
    assert cluster.rounds > 2
    costs = [r.inflated for r in cluster.results]
    periods = [r.task.period for r in cluster.results]
    exact = compliant_tardiness(costs, periods, periods, 3)
    # Bounds are rounded up to whole nanoseconds.
    assert [ceil(x * 1000) for x in exact] == [r.tardiness * 1000 for r in cluster.results]


def test_reasons_say_what_is_wrong():
    found = analyze(taskset(task("a", 11, 10), task("b", 1, 10), gpus=0), interrupts="none")
    assert not found.schedulable
    assert "110" in found["a"].reason
    assert found["b"].reason
    found = analyze(taskset(*(task(f"t{i}", 9, 10) for i in range(3)), gpus=0), interrupts="none")
    assert "2.70 CPUs and has 2" in found["t0"].reason


def test_terms_sum_to_the_inflated_time():
    found = analyze(taskset(task("a", 1000, 10_000, 1, 2000), task("b", 500, 10_000)), overheads=TABLE_III)
    for result in found.results:
        assert sum(t.value for t in result.terms) == result.inflated


#: Its costs are too high with twice the overheads of Table III, but not if waiting is no part of
#: them.
BARELY = TaskSet(
    (
        task("g0", 499, 10_000, 1, 1, 1),
        task("g1", 499, 10_000, 4, 1, 1),
        task("g2", 1262, 10_000, 4, 1, 1263),
    ),
    Platform(2, 1, 1),
)


@settings(max_examples=25)
@example(BARELY, Interrupts.SLIH)
@given(systems(), st.sampled_from(MODES))
def test_more_overhead_is_never_more_schedulable(system, interrupts):
    doubled = replace(
        TABLE_III, **{n: 2 * getattr(TABLE_III, n) for n in ("sch", "cxs", "ipi", "rel", "th", "bh", "krel", "paisch", "tck")}
    )
    runs = [analyze(system, interrupts=interrupts, overheads=o, lock="capped") for o in (NO_OVERHEADS, TABLE_III, doubled)]
    for cheap, dear in pairwise(runs):
        assert cheap.schedulable or not dear.schedulable
        # What only suspension-aware analysis admits has a smaller cost: waiting is no part of it.
        for one, other in zip(cheap.clusters, dear.clusters, strict=True):
            if dear.schedulable and one.aware == other.aware:
                pairs = zip(one.results, other.results, strict=True)
                assert all(a.inflated <= b.inflated for a, b in pairs)


@settings(max_examples=20)
@given(systems())
def test_standard_linux_is_never_worse_than_pai(system):
    slih = analyze(system, interrupts="slih", overheads=TABLE_III, lock="capped")
    pai = analyze(system, interrupts="pai", overheads=TABLE_III, lock="capped")
    assert slih.schedulable or not pai.schedulable


@settings(max_examples=20)
@given(systems())
def test_tighter_blocking_is_never_less_schedulable(system):
    verdicts = [analyze(system, overheads=TABLE_III, lock=lock).schedulable for lock in ("exact", "capped", "aware", "oblivious")]
    assert verdicts == sorted(verdicts, reverse=True)


@settings(max_examples=20)
@given(systems())
def test_hard_never_claims_more_than_a_deadline_allows(system):
    found = analyze(system, overheads=TABLE_III, lock="capped")
    for cluster in found.clusters:
        if any(cluster.hard_tests.values()):
            assert all(r.inflated <= r.task.deadline for r in cluster.results)


def test_partitioning_is_two_pass_worst_fit():
    system = taskset(
        task("c", 9, 10), task("g1", 1, 10, 1, 4), task("g2", 1, 10, 1, 3), task("d", 1, 10), cpus=4, gpus=2, clusters=2
    ).partitioned()
    assert {t.name: t.cluster for t in system} == {"g1": 0, "g2": 1, "c": 1, "d": 0}


def test_omlp_makes_cpu_only_tasks_wait():
    system = taskset(task("a", 1000, 10_000, 1, 2000), task("b", 500, 10_000), task("c", 10, 10_000, 1, 900), cpus=2, gpus=1)
    sections = {"a": Fraction(2000), "c": Fraction(900)}
    # Queues of two: donating for both, and waiting for one.
    assert blocking_bounds(system.tasks, sections, 2, 1, "omlp") == {"a": 900 + 900, "b": 2900, "c": 2000 + 2000}
    assert analyze(system, interrupts="none", lock="omlp")["b"].inflated == 500 + 2900


def test_rate_monotonic_on_one_cpu_clusters():
    system = taskset(task("a", 3, 7), task("b", 3, 12), task("c", 5, 20), cpus=1, gpus=0, scheduler="RM")
    found = analyze(system, interrupts="none")
    assert [r.response for r in found.results] == [3, 6, 20]
    assert found.hard
    late = analyze(
        taskset(task("a", 3, 7), task("b", 3, 12), task("c", 6, 20), cpus=1, gpus=0, scheduler="RM"), interrupts="none"
    )
    assert not late.schedulable
    assert late["c"].reason == "may miss its deadline"


def test_shared_gpu_uses_suspension_aware_response_times():
    a = task("a", 10, 100, 1, 20, priority=90, cluster=0)
    b = task("b", 5, 100, priority=10, cluster=0)
    found = analyze(
        taskset(a, b, cpus=2, gpus=1, clusters=2, scheduler="P-FP"),
        interrupts="rtxg",
        overheads=replace(NO_OVERHEADS, suspend=Fraction(2), resume=Fraction(1)),
    )
    assert [r.response for r in found.results] == [38, 21]


def test_devi_anderson_needs_implicit_deadlines():
    with pytest.raises(ValueError, match="deadlines equal to periods"):
        analyze(taskset(task("a", 1, 10, deadline=5), gpus=0), bound="devi-anderson")


def test_advice_is_true():
    pair = taskset(task("a", 1001, 10_000, 1, 4000), task("b", 1000, 10_000, 1, 5000), cpus=2, gpus=1)
    found = analyze(pair, interrupts="none")
    assert not found.schedulable
    advice = what_would_fix(found)
    assert "2 GPUs instead of 1" in advice
    bigger = TaskSet(pair.tasks, replace(pair.platform, gpus=2))
    assert analyze(bigger, interrupts="none").schedulable
    assert what_would_fix(analyze(bigger, interrupts="none")) == []


def test_advice_for_a_shared_gpu():
    a = task("a", 1000, 10_000, 1, 5000, priority=90, cluster=0)
    b = task("b", 1000, 10_000, 1, 5000, priority=80, cluster=1)
    found = analyze(taskset(a, b, cpus=2, gpus=1, clusters=2, scheduler="P-FP"), interrupts="none")
    assert not found.schedulable
    (advice,) = what_would_fix(found)
    percent = int(advice.split()[0])
    kept = Fraction(100 - percent, 100)
    lighter = replace(b, cost=b.cost * kept, gpu_time=b.gpu_time * kept, section=b.section * kept)
    assert analyze(taskset(a, lighter, cpus=2, gpus=1, clusters=2, scheduler="P-FP"), interrupts="none").schedulable


def test_notebooks_get_a_table():
    found = analyze(taskset(task("<a>", 11, 10), task("b", 1, 10), gpus=0), interrupts="none")
    text = found._repr_html_()
    assert text.count("<tr>") == 3
    assert "&lt;a&gt;" in text
    assert "not schedulable" in text


def test_advice_asks_few_questions():
    """One for each of 90 GPUs took minutes for sets of 300 tasks."""
    for most in (1, 2, 3, 64, 100):
        for least in (1, 2, 3, 44, 64, 99, 100, 101):
            asked = []

            def enough(number, least=least, asked=asked):
                asked.append(number)
                return number >= least

            assert analysis._least(most, enough) == (least if least <= most else None)
            assert len(asked) == len(set(asked)) <= 2 * most.bit_length()
            assert max(asked) <= most


def test_advice_says_what_it_tries():
    tasks = [task(f"t{i}", 2000, 10_000, 1, 3000) for i in range(3)]
    said = []
    advice = what_would_fix(analyze(taskset(*tasks), interrupts="none"), progress=said.append)
    assert "3 GPUs instead of 1" in advice
    assert "with 2 GPUs: cluster 0: round 1" in said
    assert any(words.startswith("with 50 % less demand: ") for words in said)


def test_a_task_result_shows_in_one_line():
    """A notebook prints it; its terms and fractions were a screenful."""
    tasks = (task("on-time", 10, 100), task("too-much", 200, 100, cluster=1))
    first, second = analyze(TaskSet(tasks, Platform(2, 2))).results
    assert repr(first) == "<TaskResult of 'on-time': on time; late at most 0us; inflated to 10us of 100us>"
    assert repr(second) == (
        "<TaskResult of 'too-much': needs 200.0% of one CPU: above 100 %; late not bounded; "
        "inflated to 200us of 100us>"
    )
    assert "<td>on time</td>" in analyze(TaskSet(tasks[:1], Platform(1)))._repr_html_()
