# SPDX-License-Identifier: MIT
"""CPU decisions of the core, held against independent readings of what they should be.

The rules for ranks, placement and budgets are written here again in a line or two of Python each. Admission is compared with
the exact arithmetic of rtxg.hard: a set that the core admits must pass this analysis, which does not use the core.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from random import Random

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from rtxg import hard
from rtxg.core.build import load

core = load()
ffi, lib = core.ffi, core.lib

LOW, HIGH, LEVELS = lib.RTXG_RANK_LOW, lib.RTXG_RANK_HIGH, lib.RTXG_RANK_LEVELS
FP, RM, EDF, DEADLINE = lib.RTXG_ADMIT_FP, lib.RTXG_ADMIT_RM, lib.RTXG_ADMIT_EDF, lib.RTXG_ADMIT_DEADLINE
GLOBAL = -1
PPM = 1_000_000
NO_ROOM = -28
#: task sets in the slow tier
SETS = 100_000

cpu_sets = st.sets(st.integers(0, 130), min_size=1, max_size=5)


class Domain:
    """A set of CPUs, and the memory of its bits."""

    def __init__(self, cpus: set[int] | None) -> None:
        words = max(cpus) // 64 + 1 if cpus else 0
        self.bits = ffi.new("uint64_t[]", [sum(1 << c % 64 for c in cpus or () if c // 64 == w) for w in range(words)] or [0])
        self.value = ffi.new("struct rtxg_cpu_domain *", {"bits": self.bits, "words": words})


# Ranks ---------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 40) | st.integers(1, 10**9), max_size=150))
def test_rate_monotonic_ranks_are_the_order_of_the_periods(periods):
    tasks = ffi.new("struct rtxg_rank_rm[]", [{"period_ns": p} for p in periods])
    lib.rtxg_rank_rm(tasks, len(periods))
    order = sorted(set(periods))
    assert [t.priority for t in tasks] == [max(LOW, HIGH - order.index(p)) for p in periods]


def competitors(domains: dict[int, set[int] | None], start: int) -> set[int]:
    """The jobs that share a CPU with one, or with one that does, and so on."""
    found, rest = {start}, set(domains) - {start}
    while True:
        more = {j for j in rest if any(meet(domains[j], domains[k]) for k in found)}
        if not more:
            return found
        found, rest = found | more, rest - more


def meet(a: set[int] | None, b: set[int] | None) -> bool:
    return a is None or b is None or bool(a & b)


@given(
    st.lists(st.none() | st.sets(st.integers(60, 67), min_size=1, max_size=3), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 119), st.integers(0, 40), st.integers(0, 5)), max_size=250),
)
def test_edf_ranks_follow_the_deadlines_wherever_jobs_share_a_cpu(pool, releases):
    """A release or an end at a time: of two ready jobs that share a CPU the earlier deadline has the higher priority, as
    long as there are enough levels, and every job that got another priority is said to have."""
    cap = 120
    order = ffi.new("struct rtxg_edf_job *[]", cap)
    edf = ffi.new("struct rtxg_edf *", {"jobs": order, "cap": cap})
    kept = [Domain(d) for d in pool]
    jobs = ffi.new("struct rtxg_edf_job[]", cap)
    ready: dict[int, set[int] | None] = {}
    said: dict[int, int] = {}
    for who, deadline, which in releases:
        job = ffi.addressof(jobs, who)
        if who in ready:
            lib.rtxg_edf_remove(edf, job)
            del ready[who], said[who]
            continue
        job.deadline_ns, job.domain = deadline, kept[which % len(pool)].value[0]
        moved = lib.rtxg_edf_insert(edf, job)
        ready[who] = pool[which % len(pool)]
        assert job.ready and job.changed and edf.count == len(ready)
        changed = [j for j in ready if jobs[j].changed]
        assert moved == len(changed) - 1
        for j in changed:
            said[j], jobs[j].changed = jobs[j].priority, False
        assert all(said[j] == jobs[j].priority and LOW <= said[j] <= HIGH for j in ready)
        inside = competitors(ready, who)
        event("more jobs than levels" if len(inside) >= LEVELS else "enough levels")
        for a in inside:
            for b in inside:
                if jobs[a].deadline_ns < jobs[b].deadline_ns and meet(ready[a], ready[b]):
                    assert said[a] > said[b] or (len(inside) >= LEVELS and said[a] >= said[b])
    deadlines = [order[i].deadline_ns for i in range(edf.count)]
    assert deadlines == sorted(deadlines)


# Placement -----------------------------------------------------------------------------------------


def admit_task(policy=RM, cpu=GLOBAL, cpus=1, cost=1, period=10, deadline=None, priority=50, domain=None):
    task = {"policy": policy, "priority": priority, "cpu": cpu, "cpus": cpus, "cost_ns": cost, "period_ns": period}
    task["deadline_ns"] = deadline or period
    if domain is not None:
        task["domain"] = domain.value[0]
    return task


placed = st.tuples(st.integers(0, 130), st.integers(0, 40), st.integers(40, 80))


@given(cpu_sets, st.lists(placed, max_size=20), st.none() | st.integers(0, 130))
def test_worst_fit_takes_the_least_used_cpu_allowed(allowed, tasks, away):
    domain = Domain(allowed)
    array = ffi.new("struct rtxg_admit_task[]", [admit_task(cpu=c, cost=w, period=p) for c, w, p in tasks])
    chosen = lib.rtxg_place_worst_fit(array, len(tasks), domain.value, -1 if away is None else away)
    load = {c: sum(max(1, w * PPM // p) for on, w, p in tasks if on == c) for c in allowed - {away}}
    assert chosen == (min(load, key=lambda c: (load[c], c)) if load else -1)


def admits(tasks: list[dict], cpus: int) -> bool:
    verdict = ffi.new("struct rtxg_admit_verdict *")
    answer = lib.rtxg_cpu_admit(ffi.new("struct rtxg_admit_task[]", tasks), len(tasks), cpus, PPM, verdict)
    assert answer in (0, NO_ROOM) and bool(answer) == bool(verdict.test)
    return not answer


timing = st.integers(4, 60).flatmap(lambda t: st.tuples(st.integers(1, max(1, t // 2)), st.just(t)))


@given(st.lists(timing, min_size=1, max_size=12), st.integers(1, 4))
def test_a_task_is_placed_wherever_any_cpu_takes_it(tasks, cpus):
    """Partitioned rate monotonic, task by task: none is refused that a CPU could take, and each CPU's tasks pass the exact
    test of hard.py."""
    machine = Domain(set(range(cpus)))
    set_: list[dict] = []
    for cost, period in tasks:
        new = admit_task(cpu=0, cost=cost, period=period)
        array = ffi.new("struct rtxg_admit_task[]", [new, *set_])
        verdict = ffi.new("struct rtxg_admit_verdict *")
        answer = lib.rtxg_place_admitted(array, len(set_) + 1, machine.value, cpus, PPM, verdict)
        could = [c for c in range(cpus) if admits([new | {"cpu": c}, *set_], cpus)]
        assert answer == (0 if could else NO_ROOM)
        if not could:
            event("refused")
            continue
        assert array[0].cpu in could
        set_.append(new | {"cpu": array[0].cpu})
        here = sorted((t for t in set_ if t["cpu"] == array[0].cpu), key=lambda t: t["period_ns"])
        args = ([t[k] for t in here] for k in ("cost_ns", "period_ns", "deadline_ns"))
        assert None not in hard.fixed_priority_response_times(*args)


# Admission against hard.py -------------------------------------------------------------------------

constrained = st.integers(4, 100).flatmap(
    lambda t: st.integers(2, t).flatmap(lambda d: st.tuples(st.integers(1, max(1, d // 2)), st.just(t), st.just(d)))
)
sets = st.lists(constrained, min_size=1, max_size=8)


def columns(tasks):
    return tuple(list(column) for column in zip(*tasks, strict=True))


def fixed_priorities_on_one_cpu(tasks):
    mine = admits([admit_task(FP, 0, 1, c, t, d, priority=90 - i) for i, (c, t, d) in enumerate(tasks)], 1)
    costs, periods, deadlines = columns(tasks)
    used = sum(-(-c * PPM // t) for c, t in zip(costs, periods, strict=True))
    exact = None not in hard.fixed_priority_response_times(costs, periods, deadlines)
    assert mine == (exact and used <= PPM)
    return mine


def edf_on_one_cpu(tasks):
    mine = admits([admit_task(EDF, 0, 1, *task) for task in tasks], 1)
    exact = hard.qpa(*columns(tasks))
    assert exact or not mine
    # with deadline = period the test is exact but for the rounding of a millionth a task
    implicit = all(d == t for _, t, d in tasks)
    if implicit and sum(Fraction(c, t) for c, t, _ in tasks) <= 1 - Fraction(len(tasks), PPM):
        assert mine and exact
    return mine


def in_ms(task):
    """The core counts whole nanoseconds, and says of times of a few of them what is true of no longer ones."""
    return tuple(time * 10**6 for time in task)


def global_edf(tasks, m):
    mine = admits([admit_task(EDF, GLOBAL, m, *in_ms(task)) for task in tasks], m)
    costs, periods, deadlines = columns(tasks)
    if mine:
        assert hard.gfb(costs, periods, deadlines, m) or hard.bcl_iterative(costs, periods, deadlines, m)
    else:
        # what rounding by a millionth a task may cost, and no more
        rounded = [c + Fraction(t, PPM) * 4 for c, t in zip(costs, periods, strict=True)]
        assert not hard.gfb(rounded, periods, deadlines, m)
    return mine


def global_fixed_priorities(tasks, m):
    mine = admits([admit_task(FP, GLOBAL, m, *in_ms(task), priority=90 - i) for i, task in enumerate(tasks)], m)
    if mine:
        assert None not in hard.fixed_priority_response_times(*columns(tasks), m=m)
    return mine


@given(sets)
def test_fixed_priorities_on_one_cpu_are_admitted_exactly(tasks):
    event(f"admitted: {fixed_priorities_on_one_cpu(tasks)}")


@given(sets, st.booleans())
def test_edf_on_one_cpu_is_admitted_only_if_the_exact_test_agrees(tasks, implicit):
    event(f"admitted: {edf_on_one_cpu([(c, t, t if implicit else d) for c, t, d in tasks])}")


@given(sets, st.integers(2, 4))
def test_global_edf_is_admitted_as_goossens_or_bertogna_say(tasks, m):
    event(f"admitted: {global_edf(tasks, m)}")


@given(sets, st.integers(2, 4))
def test_global_fixed_priorities_are_admitted_only_if_response_times_fit(tasks, m):
    event(f"admitted: {global_fixed_priorities(tasks, m)}")


def a_set(draw: Random, cpus: int) -> list[tuple[int, int, int]]:
    """A task set whose use is near to what the CPUs have, where admission is undecided."""
    count = draw.randint(cpus, 8)
    shares = [draw.random() for _ in range(count)]
    scale = cpus * draw.uniform(0.3, 1.1) / sum(shares)
    tasks = []
    for share in shares:
        period = draw.choice((10, 20, 40, 50, 100, draw.randint(4, 200)))
        cost = min(period, max(1, round(period * min(1.0, share * scale))))
        tasks.append((cost, period, draw.choice((period, draw.randint(cost, period)))))
    return sorted(tasks, key=lambda task: task[2])


@pytest.mark.slow
def test_admission_agrees_with_the_lab_on_a_hundred_thousand_sets():
    draw = Random(20260721)
    checks = (
        lambda tasks, _: fixed_priorities_on_one_cpu(tasks),
        lambda tasks, _: edf_on_one_cpu(tasks),
        global_edf,
        global_fixed_priorities,
    )
    admitted = [0] * len(checks)
    for number in range(SETS):
        which = number % len(checks)
        cpus = 1 if which < 2 else draw.randint(2, 4)
        admitted[which] += checks[which](a_set(draw, cpus), cpus)
    # both answers are given often enough to say something
    assert all(SETS // 100 < n < SETS // len(checks) - SETS // 100 for n in admitted), admitted


@given(sets, sets, st.sampled_from([FP, RM, EDF, DEADLINE]), st.integers(1, 3), st.integers(1, 3))
def test_clusters_that_share_no_cpu_are_as_separate_machines(first, second, policy, m, n):
    """Two clusters beside each other are admitted if and only if each is on a machine of its size."""
    low, high = Domain(set(range(m))), Domain(set(range(62, 62 + n)))

    def part(tasks, cpus, domain=None):
        return [
            admit_task(policy, GLOBAL, cpus, c, t, d, priority=90 - i, domain=domain) for i, (c, t, d) in enumerate(tasks)
        ]

    periods = {t for _, t, _ in first} | {t for _, t, _ in second}
    assert len(periods) <= LEVELS
    together = admits(part(first, m, low) + part(second, n, high), m + n)
    assert together == (admits(part(first, m), m) and admits(part(second, n), n))


@given(sets, st.sampled_from([FP, RM, EDF, DEADLINE]))
def test_a_cluster_of_one_cpu_is_no_better_than_that_cpu(tasks, policy):
    domain = Domain({3})
    cluster = [admit_task(policy, GLOBAL, 1, *t, priority=90 - i, domain=domain) for i, t in enumerate(tasks)]
    single = [admit_task(policy, 3, 1, *t, priority=90 - i) for i, t in enumerate(tasks)]
    assert admits(single, 4) or not admits(cluster, 4)


# Budgets -------------------------------------------------------------------------------------------


@given(st.integers(1, 1000), st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 4)), max_size=60))
def test_a_budget_never_grants_more_than_its_periods_held(runtime, steps):
    """Runs, then ends of periods: what was used beyond is paid back exactly, what was left over is lost."""
    budget = ffi.new("struct rtxg_budget *")
    lib.rtxg_budget_start(budget, runtime, True)
    left, seen = runtime, Counter()
    for used, periods in steps:
        lib.rtxg_budget_charge(budget, used)
        left -= used
        was = budget.exhausted
        assert lib.rtxg_budget_lasts(budget, 2) == (2**64 - 1 if was else max(0, left) // 2)
        assert lib.rtxg_budget_spent(budget) == (not was and left <= 0)
        out = budget.exhausted
        back = lib.rtxg_budget_replenish(budget, periods)
        left = min(runtime, left + periods * runtime)
        assert budget.left_ns == left
        assert back == (out and left > 0) and budget.exhausted == (out and left <= 0)
        seen[back] += 1
    event(f"came back: {bool(seen[True])}")


@given(st.integers(-(10**9), 10**9), st.integers(0, 2**64 - 1), st.integers(0, 10**9))
def test_time_asleep_is_charged_down_to_the_floor_and_never_gives(left, slept, floor):
    now = lib.rtxg_budget_after_sleep(left, slept, floor)
    assert now == max(left - slept, min(left, floor)) <= left


@given(
    st.sampled_from([lib.RTXG_SERVE_KEPT, lib.RTXG_SERVE_FIXED, lib.RTXG_SERVE_OWNER, lib.RTXG_SERVE_PAI]),
    st.integers(1, lib.RTXG_SERVE_MAX),
    st.booleans(),
    st.lists(st.tuples(st.integers(-1, 139), st.integers(-1, 7)), max_size=6),
)
def test_a_thread_that_serves_is_neither_below_an_owner_nor_above_all(
    mode: int, priority: int, beside: bool, owners: list[tuple[int, int]]
) -> None:
    """The owner's priority is Linux's: 99 - prio of a real-time task, and 1 for one that is none."""
    rule = ffi.new("struct rtxg_serve_rule *", {"mode": mode, "priority": priority, "beside": beside})
    given_owners = ffi.new("struct rtxg_serve_owner[]", [{"prio": p, "cpu": c} for p, c in owners])
    serve = lib.rtxg_serve(rule, given_owners, len(owners))
    wanted = [lib.RTXG_SERVE_MAX if p < 0 else min(lib.RTXG_SERVE_MAX, 99 - p) if p < 99 else 1 for p, _ in owners]
    owned = mode in (lib.RTXG_SERVE_OWNER, lib.RTXG_SERVE_PAI) and owners
    assert serve.kept == (mode == lib.RTXG_SERVE_KEPT)
    assert serve.priority == (max(wanted) if owned else priority)
    assert serve.cpu == (owners[0][1] if owned and not beside else -1)


ORDINARY, FIFO, RR = lib.RTXG_CEILING_ORDINARY, lib.RTXG_CEILING_FIFO, lib.RTXG_CEILING_RR
settings = st.just((ORDINARY, 0)) | st.tuples(st.sampled_from([FIFO, RR]), st.integers(1, 99))


@given(
    settings,
    st.lists(
        st.tuples(st.just("tasks"), st.lists(st.integers(-1, 139), max_size=4))
        | st.tuples(st.just("another"), settings)
        | st.tuples(st.just("refused"), st.integers(0, 2**32 - 1)),
        max_size=20,
    ),
)
def test_a_ceiling_holds_and_what_is_not_ours_stays(own, steps):
    """After each step the thread has the higher of its own priority and the ceiling, at most 97;
    its own is what another has set it to last. A host that is killed after any of them leaves what
    the next one finds."""
    kinds = ("thread", "setting", "setting")
    thread, wanted, found = (ffi.new(f"struct rtxg_ceiling_{t} *") for t in kinds)
    now, ceiling, seen = own, 0, Counter()

    def look(ceiling: int) -> bool:
        found.policy, found.priority = now
        return lib.rtxg_ceiling_look(thread, ceiling, found, wanted)

    for kind, value in steps:
        if kind == "another":
            # Its own priority under its own policy cannot be told from what we have set it to.
            if value != now or not thread.raised.priority:
                own = now = value
        elif kind == "refused":
            look(value)
            continue
        else:
            ceiling = 0
            for prio in value:
                ceiling = lib.rtxg_ceiling_with(ceiling, prio)
            assert ceiling == max((min(97, 99 - p) for p in value if p < 99), default=0)
        if look(ceiling):
            noted = lib.rtxg_ceiling_noted(thread, wanted)
            assert own[1] < noted <= lib.RTXG_SERVE_MAX
            assert lib.rtxg_ceiling_left(own[1], noted, found) == (now[1] > own[1])
            now = wanted.policy, wanted.priority
            found.policy, found.priority = now
            assert lib.rtxg_ceiling_left(own[1], noted, found) == (now[1] > own[1])
            lib.rtxg_ceiling_set(thread, wanted)
        assert now[1] == max(own[1], ceiling)
        assert now[0] == (FIFO if own[0] == ORDINARY and ceiling else own[0])
        assert thread.raised.priority == (now[1] if now != own else 0)
        seen[now != own] += 1
    event(f"raised: {bool(seen[True])}")
    if look(0):
        assert (wanted.policy, wanted.priority) == own
    else:
        assert now == own
