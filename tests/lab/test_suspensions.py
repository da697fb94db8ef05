# SPDX-License-Identifier: MIT
"""Waiting that does not count as execution, and several requests a job: by hand and in simulation."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
from small_sets import task, taskset

import rtxg
from rtxg import NO_OVERHEADS, Interrupts, Overheads, Platform, TaskSet, analyze
from rtxg.tardiness import suspension_aware_tardiness

pytest.importorskip(
    "rtxg.core",
    reason="the scheduler core could not be compiled (cffi and a C compiler are needed)",
)
from rtxg.simulate import Options, simulate

SOME = Overheads(
    sch=Fraction(5),
    cxs=Fraction(4),
    ipi=Fraction(3),
    rel=Fraction(6),
    th=Fraction(20),
    bh=Fraction(40),
    krel=Fraction(8),
    tck=Fraction(5),
)


def test_the_bound_by_hand():
    # One CPU: A executes 1 of 4 and suspends for 1, B executes 1 of 4.  x_A = (L + 2) / (1/2), and L is
    # x_A / 4 + 1: L = 4, x_A = 12, x_B = (4 + 1) / (3/4).
    assert suspension_aware_tardiness([1, 1], [2, 1], [4, 4], 1, [True, False]) == [
        12,
        Fraction(20, 3),
    ]
    # A tenth of the CPU for interrupts, two units at once: x_A = (L + 2 + 2 + 2) / (4/10), and as before
    # L = x_A / 4 + 1.
    (bound, _) = suspension_aware_tardiness(
        [1, 1], [2, 1], [4, 4], 1, [True, False], Fraction(1, 10), 2
    )
    waiting = Fraction(19, 4) / (1 - Fraction(10, 16))
    assert bound == (waiting + 6) * Fraction(10, 4)
    # The same burst of two where one of it comes with the lateness itself.
    (whole,) = suspension_aware_tardiness([1], [2], [4], 1, [True], 0, 2)
    (grows,) = suspension_aware_tardiness([1], [2], [4], 1, [True], 0, 1, [1 / whole])
    assert grows == whole


def test_what_has_no_bound_gets_none():
    assert suspension_aware_tardiness([3, 3], [3, 3], [4, 4], 1, [False, False]) is None  # 1.5 of 1
    assert suspension_aware_tardiness([1], [4], [4], 1, [True]) is None  # never less behind
    # Six that suspend for half of their time are behind for more than one CPU gives back.
    assert suspension_aware_tardiness([1] * 6, [5] * 6, [6] * 6, 1, [True] * 6) is None
    assert suspension_aware_tardiness([], [], [], 2, []) == []


def test_section_vi_is_admitted_and_stays_within_its_bounds():
    """The paper ran it at 11.5 of 12 CPUs; with waiting as execution it needs 6.3 of 6 in a cluster."""
    problem = rtxg.load("example:klmirqd-section-vi")
    refused = analyze(problem.taskset, **problem.options | {"suspensions": "oblivious"})
    assert not refused.schedulable
    found = analyze(problem.taskset, **problem.options)
    assert found.schedulable and all(c.aware for c in found.clusters)
    assert all(5.5 < c.utilization < 5.6 for c in found.clusters)
    trace = simulate(
        found.taskset,
        Options(Fraction(300_000)),
        handling=found.interrupts,
        overheads=found.overheads,
    )
    for result in found.results:
        assert trace.tasks[result.task.name].max_tardiness <= result.tardiness < 30_000


def suspending_set(seed: int, least: int = 90) -> TaskSet:
    """CPU tasks that leave little of the CPUs, and tasks that are mostly on GPUs."""
    rng = random.Random(seed)
    cpus, gpus = rng.choice(((1, 1), (2, 1), (2, 2), (3, 2)))
    tasks = []
    for i in range(rng.randint(1, 4)):
        period = rng.choice((4000, 5000, 6000, 10_000))
        requests = rng.choice((1, 1, 2))
        gpu = requests * rng.randint(300, period // 10)
        held = rng.choice((0, 0, 100)) * requests
        run = rng.randint(100, period // 8) + held
        section = (gpu + held) // requests
        tasks.append(
            task(f"gpu{i}", run, period, requests, gpu, section, gpu_requests=requests)
        )
    left = cpus * Fraction(rng.randint(least, least + 7), 100) - sum(t.cost / t.period for t in tasks)
    while left > Fraction(1, 20):
        period = rng.choice((4000, 5000, 8000, 12_000, 20_000))
        share = min(left, Fraction(rng.randint(10, 90), 100))
        tasks.append(task(f"cpu{len(tasks)}", max(1, int(share * period)), period))
        left -= share
    return TaskSet(tuple(tasks), Platform(cpus, 1, gpus))


@pytest.mark.parametrize("interrupts", [Interrupts.NONE, Interrupts.SLIH, Interrupts.KLMIRQD])
def test_no_job_is_later_than_its_suspension_aware_bound(interrupts, seeds=25):
    admitted = late = 0
    for seed in range(seeds):
        overheads = NO_OVERHEADS if interrupts is Interrupts.NONE else SOME
        found = analyze(
            suspending_set(seed, 90 if interrupts is Interrupts.NONE else 70),
            interrupts=interrupts,
            overheads=overheads,
            suspensions="aware",
        )
        if not found.schedulable:
            continue
        admitted += 1
        options = Options(Fraction(120_000), seed=seed, random_offsets=seed % 2 == 1)
        trace = simulate(found.taskset, options, handling=interrupts, overheads=overheads)
        for result in found.results:
            seen = trace.tasks[result.task.name].max_tardiness
            late += seen > 0
            assert seen <= result.tardiness, f"seed {seed}: {result.task} of {found.taskset}"
    assert admitted >= seeds // 8
    assert late or interrupts is not Interrupts.NONE, "no job was late at all: nothing was tested"


@pytest.mark.slow
@pytest.mark.parametrize("interrupts", [Interrupts.NONE, Interrupts.SLIH, Interrupts.KLMIRQD])
def test_no_job_is_later_than_its_suspension_aware_bound_widely(interrupts):
    test_no_job_is_later_than_its_suspension_aware_bound(interrupts, 600)


def test_awareness_is_refused_where_it_is_not_shown():
    gpu = task("gpu", 1000, 10_000, 1, 500)
    for system, how in (
        (taskset(gpu, scheduler="G-FL"), {}),
        (taskset(gpu), {"interrupts": "pai"}),
        (taskset(task("gpu", 1000, 10_000, 1, 500, deadline=9000)), {}),
    ):
        with pytest.raises(ValueError, match="suspension-aware analysis is not for"):
            analyze(system, suspensions="aware", **how)
        assert analyze(system, **how).schedulable  # best asks only where it may


# Several requests ----------------------------------------------------------------------------------


def test_each_request_waits():
    three = task("three", 3000, 30_000, 3, 3000, 1000, gpu_requests=3)
    other = task("other", 1000, 30_000, 1, 2000)
    found = analyze(taskset(three, other), interrupts="none")
    assert found["three"].blocking == 3 * 2000
    assert found["other"].blocking == 1000  # one of the other's sections, not all
    assert three.held == 3000
    donated = analyze(taskset(three, other), interrupts="none", lock="omlp")
    assert donated["three"].blocking == 2000 + 3 * 2000
    spans = Overheads(sch=Fraction(1))
    term = analyze(taskset(three, other), interrupts="none", overheads=spans)["three"].terms[3]
    assert (term.symbol, term.value) == ("(1 + r_i + eta_i) 2 (sch + cxs)", 7 * 2)


def test_requests_divide_a_jobs_gpu_time():
    """Two jobs with two requests each alternate on the one GPU, as first-in first-out has it."""
    a = task("a", 40, 10_000, 2, 2000, 1000, gpu_requests=2)
    b = task("b", 40, 10_000, 2, 2000, 1000, gpu_requests=2)
    trace = simulate(taskset(a, b), Options(Fraction(9000)), handling="none")
    assert [name for _, _, _, name in trace.held] == ["a", "b", "a", "b"]


@pytest.mark.parametrize(
    ("how", "complaint"),
    [
        ({"gpu_requests": 0}, "gpu requests is 0"),
        ({"gpu_requests": 2}, "multiple of the requests"),
        ({"gpu_requests": 1.0}, "must be a whole number"),
    ],
)
def test_impossible_requests_are_refused(how, complaint):
    with pytest.raises(ValueError, match=complaint):
        task("t", 1000, 10_000, 3, 3000, **how)


# One GPU that is given out and not taken back ----------------------------------------------------------


def partitioned(*tasks, cpus: int = 2) -> TaskSet:
    return TaskSet(tuple(tasks), Platform(cpus, cpus, 1, "P-FP"))


def test_partitioned_locks_by_hand():
    high = task("high", 1000, 10_000, 1, 1000, cluster=0)
    low = task("low", 1000, 20_000, 1, 3000, cluster=0)
    far = task("far", 1000, 40_000, 1, 2000, cluster=1)
    system = partitioned(high, low, far)
    # FIFO: high waits for one request of far.  It becomes ready three times, and 2 jobs of low may be
    # there meanwhile, each of which may run with raised priority.
    found = analyze(system, interrupts="none", lock="fmlp+")
    assert found["high"].blocking == 2000
    assert found["high"].response == 1000 + 1000 + 2000 + 2 * 3000
    # far waits for both of the other CPU, each once.
    assert found["far"].blocking == 1000 + 3000
    assert found["far"].response == 3000 + 4000
    # By priority high waits for one less urgent section, at most as long as low's and the other one of
    # its CPU.  Each of three times low's may delay it with raised priority, and that is too much.
    found = analyze(system, interrupts="none", lock="mpcp")
    assert found["high"].blocking == 3000 + 1000
    assert not found.schedulable
    relaxed = partitioned(task("high", 1000, 15_000, 1, 1000, cluster=0), low, far)
    found = analyze(relaxed, interrupts="none", lock="mpcp")
    assert found["high"].response == 1000 + 1000 + 4000 + 3 * 3000


@pytest.mark.parametrize("lock", ["fmlp+", "mpcp"])
def test_no_job_misses_under_a_partitioned_lock(lock):
    admitted, close = 0, 0.0
    for seed in range(120):
        rng = random.Random(seed)
        cpus = rng.choice((1, 2, 3))
        tasks = []
        for i in range(rng.randint(2, 6)):
            period = rng.choice((5000, 8000, 10_000, 20_000, 40_000))
            calls = rng.choice((0, 1, 1, 2))
            gpu = calls * rng.randint(50, period // 12)
            inside = rng.choice((0, 0, 60)) if calls else 0
            requests = calls if calls and rng.random() < 0.3 else 1
            run = rng.randint(60, period // 4) + inside * requests
            section = (gpu // requests + inside) if calls else None
            cpu = rng.randrange(cpus)
            offset = Fraction(rng.choice((0, rng.randint(0, 2000))))
            more = {"cluster": cpu, "gpu_requests": requests, "offset": offset}
            tasks.append(task(f"t{i}", run, period, calls, gpu, section, **more))
        found = analyze(partitioned(*tasks, cpus=cpus), interrupts="none", lock=lock)
        if not found.schedulable:
            continue
        admitted += 1
        trace = simulate(found.taskset, Options(Fraction(100_000)), handling="none", lock=lock)
        for result in found.results:
            seen = trace.tasks[result.task.name]
            assert not seen.missed, f"seed {seed}: {result.task}"
            assert seen.max_response <= result.response, f"seed {seed}: {result.task}"
            close = max(close, float(seen.max_response / result.response))
    assert admitted > 25 and close > 0.9


@pytest.mark.parametrize("lock", ["fmlp+", "mpcp"])
def test_a_wait_that_is_not_counted_is_seen(lock, monkeypatch):
    """So that the property above can fail."""
    victim = task("victim", 20, 5000, 1, 100, cluster=0, offset=Fraction(5))
    holder = task("holder", 10, 100_000, 1, 4950, cluster=1)
    system = partitioned(victim, holder)
    assert not analyze(system, interrupts="none", lock=lock).schedulable
    monkeypatch.setattr(
        "rtxg.analysis._partitioned_waits",
        lambda tasks, *_: ([Fraction(0)] * len(tasks), [Fraction(0)] * len(tasks)),
    )
    assert analyze(system, interrupts="none", lock=lock).schedulable
    trace = simulate(system, Options(Fraction(100_000)), handling="none", lock=lock)
    assert trace.tasks["victim"].missed


def test_the_ceiling_protocol_serves_by_priority():
    """Three ask while one holds: the FMLP+ serves them as they came, the MPCP as urgent as they are."""
    tasks = [task("first", 10, 50_000, 1, 1000, cluster=0)]
    tasks += [
        task(f"t{i}", 10, 40_000 - 1000 * i, 1, 1000, cluster=i, offset=Fraction(100 * i))
        for i in (1, 2, 3)
    ]
    order = {
        lock: [
            name
            for *_, name in simulate(
                partitioned(*tasks, cpus=4), Options(Fraction(20_000)), handling="none", lock=lock
            ).held
        ]
        for lock in ("fmlp+", "mpcp")
    }
    assert order["fmlp+"] == ["first", "t1", "t2", "t3"]
    assert order["mpcp"] == ["first", "t3", "t2", "t1"]


def test_partitioned_locks_are_for_partitions():
    with pytest.raises(ValueError, match="P-FP"):
        analyze(taskset(task("a", 1, 10)), lock="mpcp")
