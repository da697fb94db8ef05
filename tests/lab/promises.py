# SPDX-License-Identifier: MIT
"""What the analysis promises, held against the simulator where there is no room left.

A random task set is rarely near its bounds, so that a wrong bound passes unseen.  Here are sets that
are: some in which a job comes within 5 % of its tardiness bound, and scenarios that ask the analysis
for the most that it still admits and simulate just that.  test_mutations.py breaks the analysis in
many ways and sees each fall to one of these.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from small_sets import task

from rtxg import NO_OVERHEADS, Interrupts, Overheads, Platform, TaskSet, analysis
from rtxg.simulate import Options, simulate


class BrokenPromiseError(AssertionError):
    """A job was later than the analysis said it could be."""


def hold_to_its_promise(
    system: TaskSet, options: Options, interrupts: Interrupts, overheads: Overheads, **how: object
) -> float:
    """Analyse, simulate, compare; the greatest share of its tardiness bound that a job was late."""
    found = analysis.analyze(system, interrupts=interrupts, overheads=overheads, **how)
    if not found.schedulable:
        return 0.0
    trace = simulate(found.taskset, options, handling=interrupts, overheads=overheads)
    closest = 0.0
    for result in found.results:
        seen = trace.tasks[result.task.name]
        if seen.max_tardiness > result.tardiness:
            late, bound = float(seen.max_tardiness), float(result.tardiness)
            raise BrokenPromiseError(f"{result.task} is late by {late} us, bound {bound}")
        if result.tardiness:
            closest = max(closest, float(seen.max_tardiness / result.tardiness))
    for cluster in found.clusters:
        if any(cluster.hard_tests.values()):
            late = [r.task.name for r in cluster.results if trace.tasks[r.task.name].missed]
            if late:
                raise BrokenPromiseError(f"{late} missed though {cluster.hard_tests} says never")
    return closest


# Within 5 % of the bound ---------------------------------------------------------------------------

#: Processors, (cost, period, first release) in ms.  A processor less than all would be too few: found
#: by climbing towards the greatest share of the bound among sets that need all of them.
TIGHT = (
    (2, ((1, 2, 0), (8, 16, 0), (30, 30, 22))),
    (2, ((1, 4, 0), (6, 24, 8), (1, 2, 0), (30, 30, 8))),
    (2, ((2, 6, 0), (3, 9, 0), (1, 6, 0), (1, 6, 0), (30, 30, 24))),
    (2, ((12, 30, 0), (3, 9, 0), (1, 3, 0), (28, 30, 0))),
    (2, ((2, 5, 0), (6, 15, 0), (3, 9, 6), (26, 30, 0))),
)


def tight_sets_stay_within_their_bounds() -> None:
    """And come within 5 % of them, or a bound that is too low could not be seen here."""
    for cpus, tasks in TIGHT:
        system = TaskSet(
            tuple(
                task(f"t{i}", c * 1000, t * 1000, offset=Fraction(o * 1000))
                for i, (c, t, o) in enumerate(tasks)
            ),
            Platform(cpus),
        )
        closest = hold_to_its_promise(
            system, Options(Fraction(1_500_000)), Interrupts.NONE, NO_OVERHEADS
        )
        assert closest > 0.95, f"{tasks} comes to {closest} of its bound only"


# The most that is admitted ---------------------------------------------------------------------------


def most_admitted(
    make: Callable[[int], TaskSet],
    low: int,
    high: int,
    interrupts: Interrupts,
    overheads: Overheads,
) -> TaskSet:
    """The set with the greatest number of microseconds for which no job is ever late, so they say."""

    def admitted(value: int) -> bool:
        made = make(value)
        if any(t.demand > t.period for t in made):
            return False
        return analysis.analyze(made, interrupts=interrupts, overheads=overheads).hard

    assert admitted(low), "nothing is admitted"
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if admitted(middle) else (low, middle)
    return make(low)


def _simulate_the_most(
    make: Callable[[int], TaskSet],
    low: int,
    high: int,
    interrupts: Interrupts,
    overheads: Overheads,
    **how: object,
) -> float:
    """The greatest response of the task ``victim`` as a share of its deadline; no job may miss."""
    system = most_admitted(make, low, high, interrupts, overheads)
    trace = simulate(
        system, Options(Fraction(600_000), **how), handling=interrupts, overheads=overheads
    )
    missed = [name for name, seen in trace.tasks.items() if seen.missed]
    if missed:
        raise BrokenPromiseError(f"{missed} missed in {system.tasks}")
    victim = trace.tasks["victim"]
    return float(victim.max_response / victim.task.deadline)


def struck_victim(
    interrupts: Interrupts = Interrupts.SLIH,
    top: int = 100,
    bottom: int = 300,
    every: int = 2000,
    calls: int = 1,
) -> float:
    """A long job on the CPU that every interrupt of a busy GPU strikes."""
    overheads = Overheads(th=Fraction(top), bh=Fraction(bottom), krel=Fraction(bottom))
    gpu = task("gpu", 50, every, calls, calls * (top + bottom))

    def make(cost: int) -> TaskSet:
        victim = task("victim", cost, 100_000)
        return TaskSet((victim, gpu), Platform(2, 1, 1))

    return _simulate_the_most(make, 1, 100_000, interrupts, overheads, strikes=1)


def ticked_victim(tick: int = 100, quantum: int = 1000) -> float:
    """A long job under a heavy timer tick."""
    overheads = Overheads(tck=Fraction(tick), quantum=Fraction(quantum))

    def make(cost: int) -> TaskSet:
        return TaskSet((task("victim", cost, 50_000),), Platform(1))

    return _simulate_the_most(make, 1, 50_000, Interrupts.NONE, overheads)


def victim_behind_a_holder(
    length: int = 10_000, overheads: Overheads = NO_OVERHEADS, calls: int = 1
) -> float:
    """A short job that asks for the one GPU right after another job got it for as long as admitted."""

    def make(section: int) -> TaskSet:
        holder = task("holder", 10, 300_000, calls, section)
        victim = task("victim", 10, length, 1, 100, offset=Fraction(5 + 2 * int(overheads.rel)))
        return TaskSet((victim, holder), Platform(2, 1, 1))

    return _simulate_the_most(make, calls, 2 * length, Interrupts.NONE, overheads)


def victim_behind_a_holder_that_wakes_slowly() -> float:
    """The holder's own overheads lengthen its section: its job becomes ready late after each call."""
    return victim_behind_a_holder(20_000, Overheads(rel=Fraction(400)), 6)


def gpu_time_is_time() -> float:
    """One task whose job is nearly all on the GPU."""

    def make(gpu: int) -> TaskSet:
        return TaskSet((task("victim", 10, 10_000, 1, gpu),), Platform(1, 1, 1))

    return _simulate_the_most(make, 1, 20_000, Interrupts.NONE, NO_OVERHEADS)


def handed_over(interrupts: Interrupts = Interrupts.KLMIRQD) -> float:
    """One task whose bottom halves are handed over to a thread, or queued, four times a job."""
    overheads = Overheads(th=Fraction(10), bh=Fraction(30), krel=Fraction(300), pairel=Fraction(300))

    def make(gpu: int) -> TaskSet:
        return TaskSet((task("victim", 10, 10_000, 4, gpu),), Platform(1, 1, 1))

    return _simulate_the_most(make, 160, 20_000, interrupts, overheads)


def queued_bottom_halves_take_time() -> float:
    """The same under PAI."""
    return handed_over(Interrupts.PAI)


#: Scenarios of the most that is admitted, and the share of its deadline that the victim comes to.
MOST: tuple[tuple[Callable[[], float], float], ...] = (
    (struck_victim, 0.97),
    (ticked_victim, 0.97),
    (victim_behind_a_holder, 0.99),
    (victim_behind_a_holder_that_wakes_slowly, 0.7),
    (gpu_time_is_time, 0.99),
    (handed_over, 0.99),
    (queued_bottom_halves_take_time, 0.99),
)


def the_most_that_is_admitted_is_on_time() -> None:
    """And comes close to its deadlines, or nothing would be seen."""
    for scenario, least in MOST:
        share = scenario()
        assert share > least, f"{scenario.__name__}: only {share} of the deadline"


# Certainly late --------------------------------------------------------------------------------------


def what_is_certainly_late_is_bounded() -> None:
    """Jobs longer than their deadlines: the overheads that strike them while late must be counted."""
    ticks = Overheads(tck=Fraction(100), quantum=Fraction(1000))
    alone = TaskSet((task("victim", 20_000, 100_000, deadline=2000),), Platform(1))
    closest = hold_to_its_promise(alone, Options(Fraction(400_000)), Interrupts.NONE, ticks)
    assert closest > 0.95, closest
    strikes = Overheads(th=Fraction(50), bh=Fraction(150))
    struck = TaskSet(
        (
            task("victim", 20_000, 100_000, deadline=2000),
            task("gpu", 50, 1000, 1, 200),
        ),
        Platform(2, 1, 1),
    )
    closest = hold_to_its_promise(
        struck, Options(Fraction(400_000), strikes=1), Interrupts.SLIH, strikes
    )
    assert closest > 0.8, closest


CHECKS: tuple[Callable[[], None], ...] = (
    tight_sets_stay_within_their_bounds,
    the_most_that_is_admitted_is_on_time,
    what_is_certainly_late_is_bounded,
)
