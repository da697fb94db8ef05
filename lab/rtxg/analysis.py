# SPDX-License-Identifier: MIT
"""Will this task set make it?  Overhead-aware schedulability of a whole task set.

Costs are inflated with overheads and blocking, and the inflated set is tested cluster by cluster.

First it is asked whether a job can be late at all.  Costs are inflated as if none were; if a hard
test then shows that none is, that is the answer.  (Consider the first job to miss its deadline.
Until then all were on time, so that their costs were at most those that the test was given, and for
these it rules out a miss.)  Only where no test does are bounds on lateness used.  Overheads depend on
how late jobs may be, and lateness on the overheads, so both are then iterated to a fixed point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from html import escape
from math import ceil, inf
from numbers import Real
from typing import TYPE_CHECKING, Any

from . import hard
from .blocking import (
    KFMLP_BOUNDS,
    PARTITIONED_LOCKS,
    Sharer,
    fmlp_plus,
    held_ahead,
    kfmlp_oblivious,
    mpcp,
    omlp_k_exclusion,
)
from .exact import utilization, whole
from .model import Platform, Task, TaskSet
from .overheads import (
    NO_OVERHEADS,
    STOCK_KERNEL,
    Interrupts,
    Overheads,
    Term,
    inflated,
    inflation,
    interfering_interrupts,
    with_own_halves,
)
from .plain import analysis_to_json, frame
from .tardiness import (
    best_tardiness,
    compliant_tardiness,
    devi_anderson_tardiness,
    suspension_aware_tardiness,
)
from .units import format_time, shown

if TYPE_CHECKING:
    import pandas

#: Ways to bound the wait for a GPU.
LOCKS = (*KFMLP_BOUNDS, "omlp", *PARTITIONED_LOCKS)

#: Whether a job that waits for a GPU, or for its work there, counts as executing.  `best`: it does,
#: and where the cluster is refused so, it does not.
SUSPENSIONS = ("best", "oblivious", "aware")

#: A bound of one's own on the wait for a GPU: from the tasks of a cluster, the length of the section of
#: each GPU-using one by name, the cluster's CPUs and its GPUs, to b_i of every task by name.
LockFunction = Callable[[Sequence[Task], Mapping[str, Fraction], int, int], Mapping[str, Fraction]]

#: A hard test of one's own: costs, periods, deadlines (all in one unit) and CPUs.
HardTest = Callable[[Sequence[Fraction], Sequence[Fraction], Sequence[Fraction], int], bool]

#: Tardiness bounds under G-EDF.
BOUNDS = ("best", "compliant", "devi-anderson")

_MAX_ROUNDS = 10_000


@dataclass(frozen=True, slots=True, repr=False)
class TaskResult:
    """What the analysis says about one task; times in microseconds."""

    task: Task
    terms: tuple[Term, ...]  #: summands of the inflated execution time
    blocking: Fraction  #: wait for a GPU, b_i
    tardiness: Fraction | None  #: bound on lateness past the deadline; None: not bounded
    response: Fraction | None  #: bound on release to completion; None: not bounded
    reason: str = ""  #: why the task fails, empty when it does not
    suspension: Fraction = Fraction(0)  #: time off the CPU that the terms do not count as execution

    @property
    def inflated(self) -> Fraction:
        """Inflated execution time e'_i."""
        return inflated(self.terms)

    @property
    def utilization(self) -> Fraction:
        """Inflated utilisation e'_i / p_i."""
        return self.inflated / self.task.period

    @property
    def schedulable(self) -> bool:
        return not self.reason

    @property
    def meets_deadline(self) -> bool:
        """Whether not only lateness is bounded, but zero."""
        return self.schedulable and self.tardiness == 0

    @property
    def verdict(self) -> str:
        """In a few words: on time, bounded (its lateness), or why not."""
        return self.reason or ("on time" if self.meets_deadline else "bounded")

    def __repr__(self) -> str:
        late = "not bounded" if self.tardiness is None else f"at most {format_time(self.tardiness)}"
        return (
            f"<TaskResult of {self.task.name!r}: {self.verdict}; late {late}; inflated to "
            f"{format_time(self.inflated)} of {format_time(self.task.period)}>"
        )


@dataclass(frozen=True, slots=True)
class ClusterResult:
    """What the analysis says about one cluster."""

    index: int
    results: tuple[TaskResult, ...]
    cpus: int
    rounds: int  #: rounds of the fixed-point iteration
    #: Hard real-time tests in the order asked, on costs inflated as if no job were ever late; the
    #: first that says yes is the last one.
    hard_tests: dict[str, bool]
    aware: bool = False  #: suspensions do not count as execution
    stolen: Fraction = Fraction(0)  #: CPUs' worth of interrupts and ticks that the terms do not count

    @property
    def utilization(self) -> Fraction:
        total = utilization([r.inflated for r in self.results], [r.task.period for r in self.results])
        return total + self.stolen

    @property
    def schedulable(self) -> bool:
        return all(r.schedulable for r in self.results)


@dataclass(frozen=True, slots=True, repr=False)
class Analysis:
    """The verdict on a task set, with everything that led to it."""

    taskset: TaskSet
    interrupts: Interrupts
    overheads: Overheads
    lock: str
    clusters: tuple[ClusterResult, ...]

    @property
    def schedulable(self) -> bool:
        """Soft real time: every task's tardiness is bounded.  Under RM: every deadline is met."""
        return all(cluster.schedulable for cluster in self.clusters)

    @property
    def hard(self) -> bool:
        """Hard real time: no deadline is ever missed, as far as the tests can show."""
        return all(any(c.hard_tests.values()) or all(r.meets_deadline for r in c.results) for c in self.clusters if c.results)

    @property
    def results(self) -> tuple[TaskResult, ...]:
        """Every task's result, in the order of the task set."""
        found = {r.task.name: r for c in self.clusters for r in c.results}
        return tuple(found[t.name] for t in self.taskset if t.name in found)

    def __getitem__(self, name: str) -> TaskResult:
        for result in self.results:
            if result.task.name == name:
                return result
        raise KeyError(name)

    def to_json(self) -> dict[str, Any]:
        """The verdict as plain data; times in microseconds."""
        return analysis_to_json(self)

    def to_frame(self) -> pandas.DataFrame:
        """One row a task, as a pandas data frame; times in microseconds."""
        return frame([{k: v for k, v in row.items() if k != "terms"} for row in self.to_json()["tasks"]])

    def __repr__(self) -> str:
        verdict = "not schedulable" if not self.schedulable else "never late" if self.hard else "lateness bounded"
        return f"<Analysis of {self.taskset!r}: {verdict}>"

    def _repr_html_(self) -> str:
        """The verdict as a table, for notebooks."""

        def cell(value: Fraction | None) -> str:
            return "-" if value is None else format_time(value)

        rows = "".join(
            f"<tr><td>{escape(r.task.name)}</td><td>{cell(r.task.period)}</td><td>{cell(r.inflated)}</td>"
            f"<td>{cell(r.blocking)}</td><td>{cell(r.tardiness)}</td><td>{cell(r.response)}</td>"
            f"<td>{escape(r.verdict)}</td></tr>"
            for r in self.results
        )
        head = "".join(f"<th>{h}</th>" for h in ("task", "period", "inflated", "waits", "late by", "response", "verdict"))
        verdict = "schedulable" if self.schedulable else "not schedulable"
        return f"<b>{escape(self.taskset.name)}: {verdict}</b><table><tr>{head}</tr>{rows}</table>"


def blocking_bounds(
    tasks: tuple[Task, ...], sections: dict[str, Fraction], cpus: int, gpus: int, lock: str | LockFunction
) -> dict[str, Fraction]:
    """b_i of every task of one cluster, by name.

    :param sections: length of each GPU-using task's critical section.
    :param lock: one of :data:`LOCKS`, or a :data:`LockFunction`.
    """
    if callable(lock):
        found = lock(tasks, sections, cpus, gpus)
        if not isinstance(found, Mapping):
            raise ValueError(f"the lock's function gives {shown(found)}; it must give b_i of every task by name")
        missing = [t.name for t in tasks if t.name not in found]
        if missing:
            raise ValueError(f"the lock's function gives no bound for {', '.join(missing[:4])}; give every task one")
        for t in tasks:
            wait = found[t.name]
            if not (isinstance(wait, Real) and 0 <= wait < inf):
                raise ValueError(f"the lock's function gives {t.name} the wait {shown(wait)}; it must be a number from 0")
        return {t.name: Fraction(found[t.name]) for t in tasks}
    if lock not in LOCKS:
        raise ValueError(f"lock bound {lock!r} is unknown; use one of {', '.join(LOCKS)}")
    users = [t for t in tasks if t.uses_gpu]
    names = [t.name for t in users]
    # Whole numbers on a common scale: a task has all the others to add and to sort.
    lengths, scale = whole([sections[name] for name in names])
    longest = max(lengths, default=0)
    place = {name: i for i, name in enumerate(names)}
    known: dict[tuple[int | None, int], Fraction] = {}
    bounds = {}
    for task in tasks:
        at = place.get(task.name)
        if at is None and lock != "omlp":
            bounds[task.name] = Fraction(0)
            continue
        # Tasks with sections of the same length wait for the same others.  One's own last section is
        # over when one asks again, and of each other task one request at most is in a queue.
        requests = task.gpu_requests if task.uses_gpu else 0
        key = (None if at is None else lengths[at], requests)
        if key not in known:
            others = lengths if at is None else lengths[:at] + lengths[at + 1 :]
            if lock == "omlp":
                wait = omlp_k_exclusion(others, cpus, gpus, requests=requests)
            elif lock == "oblivious":
                wait = requests * kfmlp_oblivious(others, gpus, longest)
            else:
                wait = requests * KFMLP_BOUNDS[lock](others, gpus)
            known[key] = wait / scale
        bounds[task.name] = known[key]
    return bounds


def analyze(
    taskset: TaskSet,
    *,
    interrupts: Interrupts | str = STOCK_KERNEL,
    overheads: Overheads = NO_OVERHEADS,
    lock: str | LockFunction = "exact",
    bound: str = "best",
    inflate_sections: bool = True,
    hard_tests: Sequence[str] | Mapping[str, HardTest] | None = None,
    suspensions: str = "best",
    progress: Callable[[str], None] = lambda what: None,
) -> Analysis:
    """Analyse a task set on its platform.

    :param interrupts: how GPU interrupts are handled.
    :param overheads: durations to account for.
    :param lock: how the wait for a GPU is bounded: one of :data:`LOCKS`, or a :data:`LockFunction`;
        under P-FP the GPU is taken from the less urgent, or is given out as one of
        :data:`rtxg.blocking.PARTITIONED_LOCKS` says.
    :param bound: tardiness bound, one of :data:`BOUNDS`; Devi and Anderson's is for implicit deadlines.
    :param inflate_sections: count a job's own overheads into its critical section too, its own
        interrupts into a GPU time that is stated shorter (:func:`rtxg.overheads.with_own_halves`), and
        the hand-over of its own bottom halves.  The paper does not, and understates how long a GPU is
        held by that much; only a comparison with its graphs should turn this off.
    :param hard_tests: which of :data:`rtxg.hard.GLOBAL_EDF_TESTS` are asked whether a job can be
        late at all; default: all of them, and an empty list asks none.  A mapping has tests of one's
        own by name, which are asked instead, under G-EDF and on several CPUs.
    :param suspensions: one of :data:`SUSPENSIONS`; suspension-aware analysis is for G-EDF with deadlines
        equal to periods, and not for PAI.
    :param progress: called with what is being worked on, for sets that take long.
    """
    if not isinstance(taskset, TaskSet):
        raise ValueError(f"{shown(taskset)} is no task set; make it with rtxg.TaskSet or rtxg.load")
    if not isinstance(overheads, Overheads):
        raise ValueError(f"overheads is {shown(overheads)}; use Overheads, as rtxg.TABLE_III is")
    interrupts = Interrupts(interrupts)
    _check(taskset, lock, bound, hard_tests, suspensions, interrupts)
    stated = taskset = taskset.partitioned()
    if inflate_sections:
        own = [with_own_halves(t, overheads, interrupts) for t in taskset.tasks]
        taskset = TaskSet(own, taskset.platform, taskset.name)
    if taskset.platform.scheduler == "P-FP":
        named = lock if lock in PARTITIONED_LOCKS else "preemption"
        shared = _analyze_shared_gpu(taskset, interrupts, overheads, named, inflate_sections)
        return Analysis(stated, interrupts, overheads, named, shared)

    def one(index: int) -> ClusterResult:
        if suspensions != "aware":
            found = _analyze_cluster(
                taskset, index, interrupts, overheads, lock, bound, inflate_sections, hard_tests, progress
            )
            tasks = [r.task for r in found.results]
            if suspensions == "oblivious" or found.schedulable or _why_not_aware(taskset.platform, tasks, interrupts):
                return found
        else:
            found = None
        aware = _analyze_suspensions(taskset, index, interrupts, overheads, lock, inflate_sections, progress)
        return aware if found is None or aware.schedulable else found

    clusters = tuple(one(index) for index in range(taskset.platform.clusters))
    named = getattr(lock, "__name__", "a function") if callable(lock) else lock
    return Analysis(stated, interrupts, overheads, named, clusters)


def _check(
    taskset: TaskSet,
    lock: str | LockFunction,
    bound: str,
    hard_tests: Sequence[str] | Mapping[str, HardTest] | None,
    suspensions: str,
    interrupts: Interrupts,
) -> None:
    """Refuse options that do not exist, or do not fit the task set."""
    if lock in PARTITIONED_LOCKS and taskset.platform.scheduler != "P-FP":
        raise ValueError(f"lock {lock!r} is for partitioned fixed priorities (P-FP), not {taskset.platform.scheduler}")
    if not callable(lock) and lock not in LOCKS:
        raise ValueError(f"lock bound {lock!r} is unknown; use one of {', '.join(LOCKS)}")
    if callable(lock) and taskset.platform.scheduler == "P-FP":
        known = ", ".join(PARTITIONED_LOCKS)
        raise ValueError(f"P-FP takes no function as its lock; use one of {known}, or preemption without one")
    if suspensions not in SUSPENSIONS:
        raise ValueError(f"suspensions is {suspensions!r}; use one of {', '.join(SUSPENSIONS)}")
    if suspensions == "aware" and (why := _why_not_aware(taskset.platform, taskset.tasks, interrupts)):
        raise ValueError(f'suspension-aware analysis is not for {why}; use suspensions = "best"')
    if bound not in BOUNDS:
        raise ValueError(f"tardiness bound {bound!r} is unknown; use one of {', '.join(BOUNDS)}")
    for name in hard_tests or ():
        if not isinstance(hard_tests, Mapping) and name not in hard.GLOBAL_EDF_TESTS:
            known = ", ".join(hard.GLOBAL_EDF_TESTS)
            raise ValueError(f"hard test {name!r} is unknown; use one of {known}")
    if bound == "devi-anderson" and taskset.platform.scheduler in ("G-EDF", "G-FL"):
        if taskset.platform.scheduler == "G-FL":
            raise ValueError("the Devi-Anderson bound is for G-EDF, not G-FL; use bound = \"best\"")
        for t in taskset:
            if t.deadline != t.period:
                raise ValueError(
                    f"task {t.name}: deadline {format_time(t.deadline)}, period {format_time(t.period)}: "
                    'the Devi-Anderson bound is for deadlines equal to periods; use bound = "best"'
                )


def _why_not_aware(platform: Platform, tasks: Sequence[Task], interrupts: Interrupts) -> str:
    """What suspension-aware analysis does not cover here; empty where it does."""
    if platform.scheduler != "G-EDF":
        return f"scheduler {platform.scheduler}"
    if interrupts is Interrupts.PAI:
        return "PAI, whose bottom halves wait for their turn on other jobs' stacks"
    if any(t.deadline != t.period for t in tasks):
        return "deadlines that differ from periods"
    return ""


class _Inflator:
    """The inflated costs of one cluster's tasks for any assumption of how late they are."""

    def __init__(
        self,
        tasks: tuple[Task, ...],
        platform: Platform,
        interrupts: Interrupts,
        overheads: Overheads,
        lock: str | LockFunction,
        inflate_sections: bool,
    ) -> None:
        self.tasks, self.platform = tasks, platform
        self.interrupts, self.overheads = interrupts, overheads
        self.lock, self.inflate_sections = lock, inflate_sections
        self._known: dict[tuple[Fraction, ...], dict[str, Fraction]] = {}
        self.sections: dict[str, Fraction] = {}  #: inflated, as last used

    def _blocking(self, sections: dict[str, Fraction]) -> dict[str, Fraction]:
        key = tuple(sections.values())
        if key not in self._known:
            cpus, gpus = self.platform.cpus_per_cluster, self.platform.gpus_per_cluster
            self._known[key] = (
                blocking_bounds(self.tasks, sections, cpus, gpus, self.lock)
                if gpus
                else {t.name: Fraction(0) for t in self.tasks}
            )
        return self._known[key]

    def at(
        self, tardiness: dict[str, Fraction]
    ) -> tuple[dict[str, Fraction], dict[str, list[Term]], list[Fraction]]:
        """Waits for a GPU and terms of every task by name, and the inflated costs in task order."""
        return self._inflate(tardiness, interfering_interrupts(self.tasks, tardiness))

    def without_interrupts(
        self,
    ) -> tuple[dict[str, Fraction], dict[str, list[Term]], list[Fraction]]:
        """The same where no other task's interrupts are charged to a job."""
        return self._inflate({t.name: Fraction(0) for t in self.tasks}, dict.fromkeys((t.name for t in self.tasks), 0))

    def _inflate(
        self, tardiness: dict[str, Fraction], hits: dict[str, int]
    ) -> tuple[dict[str, Fraction], dict[str, list[Term]], list[Fraction]]:
        def summands(t: Task, wait: Fraction) -> list[Term]:
            own = self.inflate_sections
            return inflation(t, hits[t.name], self.overheads, self.interrupts, tardiness[t.name], wait, own)

        sections = {t.name: t.section for t in self.tasks if t.uses_gpu}
        if self.inflate_sections:
            for t in self.tasks:
                if t.uses_gpu:
                    sections[t.name] += inflated(summands(t, Fraction(0))) - t.demand
        self.sections = sections
        blocking = self._blocking(sections)
        terms = {t.name: summands(t, blocking[t.name]) for t in self.tasks}
        for t in self.tasks:
            if not t.uses_gpu and blocking[t.name]:
                meaning = "donating priority to a GPU's holder"
                terms[t.name].insert(1, Term("b_i", "OMLP", meaning, blocking[t.name]))
        return blocking, terms, [inflated(terms[t.name]) for t in self.tasks]


def _analyze_cluster(
    taskset: TaskSet,
    index: int,
    interrupts: Interrupts,
    overheads: Overheads,
    lock: str | LockFunction,
    bound: str,
    inflate_sections: bool,
    hard_tests: Sequence[str] | Mapping[str, HardTest] | None,
    progress: Callable[[str], None],
) -> ClusterResult:
    tasks = taskset.cluster(index)
    platform = taskset.platform
    cpus, scheduler = platform.cpus_per_cluster, platform.scheduler
    inflator = _Inflator(tasks, platform, interrupts, overheads, lock, inflate_sections)
    tardiness = {t.name: Fraction(0) for t in tasks}
    rounds = 0
    asked: dict[str, bool] = {}
    late: list[Fraction] | None
    while True:
        rounds += 1
        progress(f"cluster {index}: round {rounds}")
        blocking, terms, costs = inflator.at(tardiness)
        if rounds == 1:
            asked = _never_late(tasks, costs, cpus, scheduler, hard_tests, progress)
            if any(asked.values()):
                late = list(tardiness.values())
                break
        late = _tardiness(tasks, costs, cpus, scheduler, bound)
        if late is None:
            break
        # Bounds only ever grow: a task that has a bound under an assumed x may be assumed x late.
        # They are rounded up to a nanosecond, or the numbers would grow longer in every round.
        grown = {
            t.name: max(tardiness[t.name], Fraction(ceil(x * 1000), 1000))
            for t, x in zip(tasks, late, strict=True)
        }
        if grown == tardiness or rounds >= _MAX_ROUNDS:
            late = list(grown.values()) if grown == tardiness else None
            break
        tardiness = grown

    responses = _rm_responses(tasks, costs, cpus) if scheduler == "RM" else None
    reasons = _reasons(tasks, costs, cpus, late, scheduler, responses)
    results = tuple(
        TaskResult(
            task=t,
            terms=tuple(terms[t.name]),
            blocking=blocking[t.name],
            tardiness=None if late is None else late[i],
            response=(
                None if late is None else responses[i] if responses is not None else t.deadline + late[i]
            ),
            reason=reasons.get(t.name, ""),
        )
        for i, t in enumerate(tasks)
    )
    return ClusterResult(index, results, cpus, rounds, asked)


def _analyze_suspensions(
    taskset: TaskSet,
    index: int,
    interrupts: Interrupts,
    overheads: Overheads,
    lock: str | LockFunction,
    inflate_sections: bool,
    progress: Callable[[str], None],
) -> ClusterResult:
    """Global EDF where a job that waits for a GPU, or for its work there, leaves its CPU to others.

    A job's costs are inflated with its own overheads only.  Interrupts and ticks are not charged to each
    job that they may strike, but are CPU time that is gone (as in Brandenburg, Leontyev and Anderson, "An
    overview of interrupt accounting techniques for multiprocessor real-time systems", 2010): of a task
    with eta calls, late by x at most, at most eta (t + x) / p + 2 eta interrupts strike within t.

    A holder that runs with the priority of a job that waits for it runs in that job's stead.  So such a
    job may use the CPU for as long as others' sections do, and what is left of its wait is suspension.
    Where a CPU is idle the holder is not kept from running, and the wait is at most what the lock's bound
    says.
    """
    tasks = taskset.cluster(index)
    platform = taskset.platform
    cpus = platform.cpus_per_cluster
    o = overheads
    threads = interrupts in (Interrupts.KLMIRQD, Interrupts.RTXG)
    charged = {Interrupts.NONE: Fraction(0), Interrupts.SLIH: o.th + o.bh}.get(interrupts, o.th + o.krel)
    own = replace(o, tck=Fraction(0))
    inflator = _Inflator(tasks, platform, interrupts, own, lock, inflate_sections)
    blocking, terms, _ = inflator.without_interrupts()
    users = [t for t in tasks if t.uses_gpu]
    on_cpu = {t.name: inflator.sections[t.name] - t.gpu_time / t.gpu_requests for t in users}
    waits = {}
    for t in users:
        others = t.gpu_requests * sum((on_cpu[u.name] for u in users if u is not t), Fraction(0))
        waits[t.name] = min(blocking[t.name], others)
        kept = [term for term in terms[t.name] if term.symbol not in ("s_i", "b_i")]
        if waits[t.name]:
            kept.append(Term("b_i CPU", "", "others' sections on a CPU, run in its stead", waits[t.name]))
        if threads and o.bh:
            kept.append(Term("eta_i bh", "threads", "own bottom halves on the CPU", t.gpu_calls * o.bh))
        terms[t.name] = kept
    costs = [inflated(terms[t.name]) for t in tasks]
    # A wait that others' sections on a CPU are part of is counted whole as waiting.
    pending = [
        c + (t.gpu_time + blocking[t.name] - waits[t.name] if t.uses_gpu else 0)
        for t, c in zip(tasks, costs, strict=True)
    ]
    periods = [t.period for t in tasks]
    stolen = sum((t.gpu_calls * charged / t.period for t in users), cpus * o.tck / o.quantum)
    progress(f"cluster {index}: suspension-aware")
    struck = [t.gpu_calls * charged if t.uses_gpu else Fraction(0) for t in tasks]
    late = suspension_aware_tardiness(
        costs,
        pending,
        periods,
        cpus,
        [t.uses_gpu for t in tasks],
        stolen,
        burst=cpus * o.tck + 2 * sum(struck, Fraction(0)),
        growth=[s / t.period for s, t in zip(struck, tasks, strict=True)],
    )
    if late is not None:
        late = [Fraction(ceil(x * 1000), 1000) for x in late]
    reasons = {}
    if late is None:
        total = utilization(costs, periods) + stolen
        for t, v in zip(tasks, pending, strict=True):
            if v >= t.period:
                reasons[t.name] = f"needs {float(v / t.period):.1%} of its period, suspensions included: not below 100 %"
            elif total > cpus:
                reasons[t.name] = f"its cluster needs {float(total):.2f} CPUs and has {cpus}"
            else:
                reasons[t.name] = "its tardiness is not shown to be bounded"
    results = tuple(
        TaskResult(
            task=t,
            terms=tuple(terms[t.name]),
            blocking=blocking[t.name],
            tardiness=None if late is None else late[i],
            response=None if late is None else t.deadline + late[i],
            reason=reasons.get(t.name, ""),
            suspension=pending[i] - costs[i],
        )
        for i, t in enumerate(tasks)
    )
    return ClusterResult(index, results, cpus, 1, {}, aware=True, stolen=stolen)


def _analyze_shared_gpu(
    taskset: TaskSet, interrupts: Interrupts, overheads: Overheads, lock: str, own_hand_overs: bool
) -> tuple[ClusterResult, ...]:
    """Partitioned fixed priorities and one preemptible GPU: suspensions stay suspensions.

    Without a lock the GPU is taken from the less urgent.  One change of what runs on it costs a permit
    and a suspension or a resumption, whichever takes longer; the remaining overheads inflate the CPU
    time as everywhere.  With a lock of :data:`rtxg.blocking.PARTITIONED_LOCKS` a request is served to its
    end, and what may be waited for is part of the response.  One thing is added: where
    bottom halves run in threads, s_i holds their time, which elsewhere counts as execution; here s_i
    leaves the CPU alone, so that the CPU time of bottom halves must be counted apart.
    """
    epsilon = overheads.permit + max(overheads.suspend, overheads.resume)
    plain = replace(overheads, permit=Fraction(0), suspend=Fraction(0), resume=Fraction(0))
    tasks = tuple(taskset.tasks[i] for i in _by_priority(taskset.tasks))
    hits = interfering_interrupts(tasks, {})
    terms = {
        t.name: inflation(t, hits[t.name], plain, interrupts, own_hand_overs=own_hand_overs)
        for t in tasks
    }
    if interrupts in (Interrupts.KLMIRQD, Interrupts.RTXG) and overheads.bh:
        for t in tasks:
            if t.uses_gpu:
                meaning = "own bottom halves on the CPU"
                terms[t.name].append(Term("eta_i bh", "threads", meaning, t.gpu_calls * overheads.bh))
    costs = [inflated(terms[t.name]) - t.gpu_time for t in tasks]
    deadlines = [min(t.deadline, t.period) for t in tasks]
    waits = [Fraction(0)] * len(tasks)
    if lock == "preemption":
        responses = hard.suspension_aware_response_times(
            costs,
            [t.gpu_time for t in tasks],
            [t.gpu_calls for t in tasks],
            [t.period for t in tasks],
            deadlines,
            [t.cluster for t in tasks],
            epsilon,
        )
    else:
        found = _partitioned_waits(tasks, costs, deadlines, lock)
        if found is None:
            responses = [None] * len(tasks)
        else:
            waits, delays = found
            responses = hard.suspending_response_times(
                costs,
                [t.gpu_time + d for t, d in zip(tasks, delays, strict=True)],
                [t.period for t in tasks],
                deadlines,
                [t.cluster for t in tasks],
                [t.uses_gpu for t in tasks],
            )
    results = {
        t.name: TaskResult(
            task=t,
            terms=tuple(terms[t.name]),
            blocking=wait,
            tardiness=None if r is None else Fraction(0),
            response=r,
            reason="" if r is not None else "may miss its deadline",
        )
        for t, r, wait in zip(tasks, responses, waits, strict=True)
    }
    clusters = []
    for index in range(taskset.platform.clusters):
        members = tuple(results[t.name] for t in taskset.cluster(index))
        verdict = {"suspension-aware response times": all(r.schedulable for r in members)} if members else {}
        clusters.append(ClusterResult(index, members, 1, 1, verdict))
    return tuple(clusters)


def _partitioned_waits(
    tasks: tuple[Task, ...], costs: Sequence[Fraction], deadlines: Sequence[Fraction], lock: str
) -> tuple[list[Fraction], list[Fraction]] | None:
    """Waits for the GPU, and these with what raised priorities take, of tasks listed by priority.

    Responses are taken to be at most the deadlines: consider the first job to miss its own.
    """
    sharers = [
        Sharer(
            cpu=t.cluster,
            rank=rank,
            period=t.period,
            response=deadline,
            requests=t.gpu_requests if t.uses_gpu else 0,
            # As for clusters: a section lasts longer by its owner's own overheads.
            section=t.section + cost - t.cost if t.uses_gpu else Fraction(0),
            arrivals=1 + t.gpu_requests + t.gpu_calls if t.uses_gpu else 1,
        )
        for rank, (t, cost, deadline) in enumerate(zip(tasks, costs, deadlines, strict=True))
    ]
    found = mpcp(sharers) if lock == "mpcp" else fmlp_plus(sharers)
    if found is None:
        return None
    ahead = held_ahead(sharers) if lock == "fmlp+" else [Fraction(0)] * len(tasks)
    waits = [w.remote + a for w, a in zip(found, ahead, strict=True)]
    return waits, [wait + w.local for wait, w in zip(waits, found, strict=True)]


def _by_priority(tasks: tuple[Task, ...]) -> list[int]:
    """Indices from highest to lowest priority: fixed priorities first, then rate-monotonic order."""
    return sorted(range(len(tasks)), key=lambda i: (-tasks[i].priority, tasks[i].period))


def _rm_responses(tasks: tuple[Task, ...], costs: list[Fraction], cpus: int) -> list[Fraction | None]:
    order = _by_priority(tasks)
    bounds = hard.fixed_priority_response_times(
        [costs[i] for i in order],
        [tasks[i].period for i in order],
        [min(tasks[i].deadline, tasks[i].period) for i in order],
        cpus,
    )
    found: list[Fraction | None] = [None] * len(tasks)
    for i, response in zip(order, bounds, strict=True):
        found[i] = response
    return found


def _tardiness(tasks: tuple[Task, ...], costs: list[Fraction], cpus: int, scheduler: str, bound: str) -> list[Fraction] | None:
    periods = [t.period for t in tasks]
    deadlines = [t.deadline for t in tasks]
    if scheduler == "RM":
        responses = _rm_responses(tasks, costs, cpus)
        return None if None in responses else [Fraction(0)] * len(tasks)
    if bound == "devi-anderson":
        return devi_anderson_tardiness(costs, periods, cpus)
    chosen = compliant_tardiness if bound == "compliant" else best_tardiness
    return chosen(costs, periods, deadlines, cpus, scheduler)


def _reasons(
    tasks: tuple[Task, ...],
    costs: list[Fraction],
    cpus: int,
    late: list[Fraction] | None,
    scheduler: str,
    responses: list[Fraction | None] | None,
) -> dict[str, str]:
    """Why each failing task fails, in words that say what to change."""
    if late is not None:
        return {}
    reasons = {}
    total = utilization(costs, [t.period for t in tasks])
    for t, cost, response in zip(tasks, costs, responses or [None] * len(tasks), strict=True):
        if cost > t.period:
            reasons[t.name] = f"needs {float(cost / t.period):.1%} of one CPU: above 100 %"
        elif scheduler == "RM":
            if response is None:
                reasons[t.name] = "may miss its deadline"
        elif total > cpus:
            reasons[t.name] = f"its cluster needs {float(total):.2f} CPUs and has {cpus}"
    for t in tasks:
        reasons.setdefault(t.name, "others overload its cluster" if reasons else "its tardiness grows without bound")
    return reasons


def _never_late(
    tasks: tuple[Task, ...],
    costs: list[Fraction],
    cpus: int,
    scheduler: str,
    names: Sequence[str] | Mapping[str, HardTest] | None,
    progress: Callable[[str], None],
) -> dict[str, bool]:
    """Hard tests by name, in the order asked; the first one that says yes is the last one."""
    if not tasks:
        return {}
    periods = [t.period for t in tasks]
    deadlines = [t.deadline for t in tasks]
    tests: dict[str, Callable[[], bool]]
    if scheduler == "RM":
        tests = {"response times": lambda: None not in _rm_responses(tasks, costs, cpus)}
    elif scheduler == "G-EDF" and cpus == 1:
        tests = {"QPA": lambda: hard.qpa(costs, periods, deadlines)}
    else:
        # Under G-FL, and whatever else keeps no CPU idle, what holds for any such scheduler.
        known = names if isinstance(names, Mapping) else hard.GLOBAL_EDF_TESTS
        chosen = known if scheduler == "G-EDF" else {"a CPU each": hard.one_cpu_each}
        tests = {
            name: (lambda test=test: test(costs, periods, deadlines, cpus))
            for name, test in chosen.items()
            if names is None or isinstance(names, Mapping) or name in names
        }
    asked = {}
    for name, test in tests.items():
        progress(f"test {name} of {len(tasks)} tasks")
        asked[name] = test()
        if asked[name]:
            break
    return asked


def _least(most: int, enough: Callable[[int], bool]) -> int | None:
    """A number from 1 to ``most`` that is enough where the one before it is not, in few questions: the
    least one if more never harms; None if none was found."""
    low, high = 0, 1
    while not enough(min(high, most)):
        if high >= most:
            return None
        low, high = high, 2 * high
    high = min(high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def what_would_fix(
    analysis: Analysis, *, progress: Callable[[str], None] = lambda what: None, **options: object
) -> list[str]:
    """Single changes after which the analysis would succeed, most gentle first.

    Tried by running the analysis again: a GPU more a cluster, CPUs more, less demand of the tasks that
    fail.  Other handling of interrupts is not among them: no kernel under rtxg has it.

    :param progress: called with the change that is being tried, and what is being worked on.
    :param options: passed on to :func:`analyze`, as for the analysis itself.
    """
    if analysis.schedulable:
        return []
    taskset, found = analysis.taskset, []
    lock = "exact" if analysis.lock == "preemption" else analysis.lock
    base = {"interrupts": analysis.interrupts, "overheads": analysis.overheads, "lock": lock, **options}

    def succeeds(what: str, candidate: TaskSet) -> bool:
        told = analyze(candidate, **base, progress=lambda step: progress(f"with {what}: {step}"))
        return told.schedulable

    unassigned = tuple(replace(t, cluster=None) for t in taskset)
    platform = taskset.platform
    fixed = platform.scheduler == "P-FP"  # one GPU, and every task on its own CPU: nothing to add to

    def enlarged(kind: str, extra: int) -> tuple[str, TaskSet]:
        """So many more of a kind a cluster."""
        number = getattr(platform, kind) + extra * platform.clusters
        bigger = replace(platform, **{kind: number})
        return f"{number} {kind.upper()[:-1]}s", TaskSet(unassigned, bigger, taskset.name)

    if any(t.uses_gpu for t in taskset) and not fixed:
        extra = _least(len(taskset), lambda extra: succeeds(*enlarged("gpus", extra)))
        if extra is not None:
            found.append(f"{enlarged('gpus', extra)[0]} instead of {platform.gpus}")
    if platform.clusters > 1 and not fixed:
        one = TaskSet(unassigned, replace(platform, clusters=1), taskset.name)
        if succeeds("one cluster", one):
            found.append("one cluster over all CPUs")
    if not fixed:
        most = 2 * platform.cpus_per_cluster
        extra = _least(most, lambda extra: succeeds(*enlarged("cpus", extra)))
        if extra is not None:
            found.append(f"{enlarged('cpus', extra)[0]} instead of {platform.cpus}")

    def scaled(percent: int) -> TaskSet:
        keep = Fraction(percent, 100)
        failing = {r.task.name for r in analysis.results if not r.schedulable}
        return TaskSet(
            tuple(
                replace(t, cost=t.cost * keep, gpu_time=t.gpu_time * keep, section=t.section * keep) if t.name in failing else t
                for t in taskset
            ),
            platform,
            taskset.name,
        )

    low, high = 0, 100  # low percent of the demand succeeds (0: unknown), high fails
    while high - low > 1:
        middle = (low + high) // 2
        if succeeds(f"{100 - middle} % less demand", scaled(middle)):
            low = middle
        else:
            high = middle
    if low:
        found.append(f"{100 - low} % less demand of the tasks that fail")
    return found
