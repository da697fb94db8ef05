# SPDX-License-Identifier: MIT
"""The model: sporadic tasks that use CPUs and a pool of GPUs.

A task T_i releases a job at least every ``period`` (p_i).  A job executes ``cost`` (e_i) on a CPU
and, when it uses a GPU, holds one GPU of its cluster's pool for a critical section of length
``section`` (l_i), in which it invokes the GPU ``gpu_calls`` (eta_i) times and waits for it
``gpu_time`` (s_i) in total.  The names in brackets are those of Elliott and Anderson, "Robust
Real-Time Multiprocessor Interrupt Handling Motivated by GPUs" (ECRTS 2012), section VII.

All times are exact fractions of a microsecond.  :meth:`Task.of` takes times with units.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from numbers import Integral

from .units import parse_time, shown

#: Within a cluster: global EDF, global fair lateness, fixed priorities (rate monotonic unless given).
#: P-FP: fixed priorities on single CPUs that share one GPU, which the most urgent task preempts.
SCHEDULERS = ("G-EDF", "G-FL", "RM", "P-FP")


#: How tasks without a cluster are assigned, see :meth:`TaskSet.partitioned`.
PARTITIONINGS = ("worst-fit", "best-fit", "first-fit", "next-fit")

_TIMES = ("cost", "period", "deadline", "gpu_time", "section", "offset")


@dataclass(frozen=True, slots=True)
class Task:
    """One sporadic task; times in microseconds, as whole numbers or fractions.

    Floating point numbers and text are refused: a float is hardly ever the number meant, and then
    verdicts are off at their edges.  :meth:`Task.of` reads ``"2.5ms"``, exactly.

    :param cost: CPU time of one job, e_i; without the time spent waiting for the GPU.
    :param period: least time between two releases, p_i.
    :param deadline: relative deadline, d_i; default: the period.
    :param gpu_calls: GPU invocations of one job, eta_i; each ends with one interrupt.
    :param gpu_time: time the GPU works for one job, s_i, its top and bottom halves included.
    :param section: length of the critical section in which one job holds its GPU, l_i, as if it
        were never preempted: GPU time plus the CPU time spent while holding; default: the GPU time.
        With several requests, the length of each of them; default: an equal part of the GPU time.
    :param gpu_requests: how often a job asks for a GPU, with the same share of the invocations and
        of the GPU time each time.
    :param priority: fixed priority, 1..99, higher is more urgent; 0: take it from the period.
    :param cluster: index of the cluster the task is assigned to; None: not assigned yet.
    :param offset: release of the first job; only simulation uses it.
    """

    name: str
    cost: Fraction
    period: Fraction
    deadline: Fraction = None  # type: ignore[assignment]
    gpu_calls: int = 0
    gpu_time: Fraction = Fraction(0)
    section: Fraction = None  # type: ignore[assignment]
    priority: int = 0
    cluster: int | None = None
    offset: Fraction = Fraction(0)
    line: int | None = field(default=None, compare=False)
    gpu_requests: int = 1

    @classmethod
    def of(
        cls,
        name: str,
        run: object,
        period: object,
        deadline: object = None,
        *,
        gpu_time: object = 0,
        gpu_calls: int | None = None,
        gpu_requests: int = 1,
        section: object = None,
        offset: object = 0,
        priority: int = 0,
        cluster: int | None = None,
    ) -> Task:
        """A task from times with units, as in a task file: ``Task.of("camera", "8ms", "33ms")``.

        A bare number is a number of microseconds.

        :param run: CPU time of one job, e_i.
        :param gpu_calls: default: 1 if there is GPU time.
        :raises ValueError: naming the task, the value and what is accepted.
        """
        given = {"run": run, "period": period, "deadline": deadline, "gpu_time": gpu_time}
        given |= {"section": section, "offset": offset}
        times: dict[str, Fraction | None] = {}
        for key, value in given.items():
            try:
                times[key] = None if value is None else parse_time(value)
            except ValueError as error:
                raise ValueError(f"task {name}: {key}: {error}") from None
        calls = gpu_calls if gpu_calls is not None else int(times["gpu_time"] != 0)
        return cls(
            name,
            times["run"],
            times["period"],
            times["deadline"],
            calls,
            times["gpu_time"],
            times["section"],
            priority,
            cluster,
            times["offset"],
            gpu_requests=gpu_requests,
        )

    def _settle(self) -> None:
        """Fill in what follows from the rest, and refuse what is no exact time."""
        if not isinstance(self.name, str) or not self.name or not self.name.isprintable():
            raise ValueError(f"task {shown(self.name)}: the name must be text that can be printed")
        if self.deadline is None:
            object.__setattr__(self, "deadline", self.period)
        if isinstance(self.cluster, Integral) and not isinstance(self.cluster, bool):
            object.__setattr__(self, "cluster", int(self.cluster))
        for key in ("gpu_calls", "priority", "gpu_requests", "cluster"):
            value = getattr(self, key)
            if key == "cluster" and value is None:
                continue
            # A task in cluster 0.5 would be in none, and so in no verdict.
            if isinstance(value, bool) or not isinstance(value, int):
                raise ValueError(
                    f"task {self.name}: {key} is {shown(value)}; it must be a whole number"
                )
        if self.gpu_requests < 1:
            raise ValueError(f"task {self.name}: gpu requests is {self.gpu_requests}; use one or more")
        if self.section is None:
            whole = isinstance(self.gpu_time, (int, Fraction)) and not isinstance(self.gpu_time, bool)
            object.__setattr__(self, "section", Fraction(self.gpu_time) / self.gpu_requests if whole else 0)
        for key in _TIMES:
            value = getattr(self, key)
            if isinstance(value, bool) or not isinstance(value, (int, Fraction)):
                raise ValueError(
                    f"task {self.name}: {key} is {shown(value)}, a {type(value).__name__}; "
                    "it must be an int or a Fraction "
                    f'of microseconds, or use Task.of with text such as "2.5ms"'
                )
            object.__setattr__(self, key, Fraction(value))

    def __post_init__(self) -> None:
        self._settle()
        if self.period <= 0:
            raise ValueError(f"task {self.name}: period is {self.period}; it must be above zero")
        if self.deadline <= 0:
            raise ValueError(f"task {self.name}: deadline is {self.deadline}; it must be above zero")
        if self.offset < 0:
            raise ValueError(f"task {self.name}: offset is {self.offset}; it must not be negative")
        if not 0 <= self.priority <= 99:
            raise ValueError(
                f"task {self.name}: priority is {shown(self.priority)}; it must be from 1 to 99, or 0"
            )
        if self.cost < 0 or self.gpu_time < 0:
            raise ValueError(f"task {self.name}: an execution time is negative")
        if self.cost + self.gpu_time == 0:
            raise ValueError(f"task {self.name}: has neither CPU nor GPU time; give it 'run'")
        if self.gpu_calls < 0:
            raise ValueError(f"task {self.name}: gpu calls is {self.gpu_calls}; use zero or more")
        if self.gpu_calls == 0 and (self.gpu_time or self.section):
            raise ValueError(f"task {self.name}: has GPU time but no GPU call; set gpu calls to 1 or more")
        if self.gpu_requests > 1 and (not self.gpu_calls or self.gpu_calls % self.gpu_requests):
            raise ValueError(
                f"task {self.name}: asks for a GPU {self.gpu_requests} times and calls it {self.gpu_calls} times; "
                "the calls must be a multiple of the requests"
            )
        if self.gpu_calls and self.held < self.gpu_time:
            raise ValueError(
                f"task {self.name}: holds its GPU for {self.held} us but uses it for "
                f"{self.gpu_time} us; the section must be at least the GPU time"
            )
        if self.held > self.demand:
            raise ValueError(
                f"task {self.name}: holds its GPU for {self.held} us but executes only {self.demand} us in all"
            )

    @property
    def uses_gpu(self) -> bool:
        """Whether the task is GPU-using (T_i in T^R)."""
        return self.gpu_calls > 0

    @property
    def held(self) -> Fraction:
        """How long a job holds GPUs in all."""
        return self.gpu_requests * self.section

    @property
    def demand(self) -> Fraction:
        """CPU and GPU time of one job, e_i + s_i, as suspension-oblivious analysis counts it."""
        return self.cost + self.gpu_time

    @property
    def utilization(self) -> Fraction:
        """(e_i + s_i) / p_i."""
        return self.demand / self.period

    def effective_utilization(self, speedup: int | Fraction = 1) -> Fraction:
        """Utilisation after every unit of GPU time is turned into ``speedup`` (R) units of CPU time."""
        return (self.cost + speedup * self.gpu_time) / self.period


@dataclass(frozen=True, slots=True)
class Platform:
    """m CPUs in equal clusters, each with its own pool of GPUs."""

    cpus: int
    clusters: int = 1
    gpus: int = 0
    scheduler: str = "G-EDF"

    def __post_init__(self) -> None:
        for what, least in (("cpus", 1), ("clusters", 1), ("gpus", 0)):
            value = getattr(self, what)
            whole = isinstance(value, Integral) and not isinstance(value, bool)
            if not whole or value < least:
                need = f"it must be a whole number from {least}"
                raise ValueError(f"{what} is {shown(value)}; {need}")
        if self.scheduler == "P-FP":
            if self.clusters != self.cpus or self.gpus > 1:
                raise ValueError(
                    f"P-FP is for single CPUs that share one GPU; it got {self.cpus} CPUs in "
                    f"{self.clusters} clusters and {self.gpus} GPUs; set clusters = cpus and gpus = 1"
                )
        elif self.cpus % self.clusters or self.gpus % self.clusters:
            raise ValueError(
                f"CPUs ({self.cpus}) and GPUs ({self.gpus}) do not divide into {self.clusters} "
                "equal clusters"
            )
        if self.scheduler not in SCHEDULERS:
            raise ValueError(f"scheduler {self.scheduler!r} is unknown; use one of {', '.join(SCHEDULERS)}")

    @property
    def cpus_per_cluster(self) -> int:
        return self.cpus // self.clusters

    @property
    def gpus_per_cluster(self) -> int:
        """GPUs of one cluster's pool; under P-FP the one that all share."""
        return self.gpus if self.scheduler == "P-FP" else self.gpus // self.clusters


@dataclass(frozen=True, slots=True, repr=False)
class TaskSet:
    """Tasks and the platform they run on."""

    tasks: tuple[Task, ...]
    platform: Platform
    name: str = "task set"

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isprintable():
            raise ValueError(f"the name is {shown(self.name)}; it must be text that can be printed")
        if not isinstance(self.platform, Platform):
            raise ValueError(f"the platform is {shown(self.platform)}; make it with rtxg.Platform")
        seen: set[str] = set()
        for task in self.tasks:
            if not isinstance(task, Task):
                raise ValueError(f"{shown(task)} is no task; make it with rtxg.Task or Task.of")
            if task.name in seen:
                raise ValueError(f"two tasks are named {task.name!r}; names must differ")
            seen.add(task.name)
            if task.cluster is not None and not 0 <= task.cluster < self.platform.clusters:
                raise ValueError(
                    f"task {task.name}: cluster {task.cluster} does not exist; there are {self.platform.clusters}, counted from 0"
                )
            if task.uses_gpu and not self.platform.gpus:
                raise ValueError(f"task {task.name} uses a GPU but the platform has none; set gpus")

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, name: str) -> Task:
        for task in self.tasks:
            if task.name == name:
                return task
        raise KeyError(name)

    @property
    def utilization(self) -> Fraction:
        """Sum of (e_i + s_i) / p_i."""
        return sum((task.utilization for task in self.tasks), Fraction(0))

    def effective_utilization(self, speedup: int | Fraction = 1) -> Fraction:
        """Utilisation in CPUs that would do the same work, for a GPU-to-CPU speed-up of ``speedup``."""
        return sum((task.effective_utilization(speedup) for task in self.tasks), Fraction(0))

    def cluster(self, index: int) -> tuple[Task, ...]:
        """The tasks assigned to one cluster."""
        return tuple(task for task in self.tasks if task.cluster == index)

    def __repr__(self) -> str:
        p = self.platform
        return (
            f"<TaskSet {self.name!r}: {len(self)} tasks, utilisation {float(self.utilization):.2f}, {p.scheduler} on "
            f"{p.clusters} x {p.cpus_per_cluster} CPUs, {p.gpus} GPUs>"
        )

    def partitioned(self, how: str = "worst-fit") -> TaskSet:
        """Assign every task that has no cluster yet, largest task first.

        Worst fit has two passes, as section V of the klmirqd paper: first the GPU-using tasks, then
        the CPU-only ones, each to the cluster with the least utilisation so far.  Best fit takes the
        fullest cluster that has room, first fit the first one, next fit the one of the task before
        or else the next one that has room.  What fits nowhere goes to the emptiest cluster, where the
        analysis will refuse it.

        :param how: one of :data:`PARTITIONINGS`.
        """
        if how not in PARTITIONINGS:
            raise ValueError(f"partitioning {how!r} is unknown; use one of {', '.join(PARTITIONINGS)}")
        load = [
            sum((t.utilization for t in self.cluster(c)), Fraction(0)) for c in range(self.platform.clusters)
        ]
        room = self.platform.cpus_per_cluster
        home: dict[str, int] = {}
        last = 0
        for wanted in ((True,), (False,)) if how == "worst-fit" else ((True, False),):
            waiting = [t for t in self.tasks if t.cluster is None and t.uses_gpu in wanted]
            for task in sorted(waiting, key=lambda t: -t.utilization):
                fits = [c for c in range(len(load)) if load[c] + task.utilization <= room]
                if how == "worst-fit" or not fits:
                    chosen = min(range(len(load)), key=lambda c: load[c])
                elif how == "best-fit":
                    chosen = max(fits, key=lambda c: load[c])
                elif how == "first-fit":
                    chosen = fits[0]
                else:
                    chosen = min(fits, key=lambda c: (c - last) % len(load))
                home[task.name] = last = chosen
                load[chosen] += task.utilization
        tasks = tuple(replace(t, cluster=home[t.name]) if t.name in home else t for t in self.tasks)
        return TaskSet(tasks, self.platform, self.name)
