# SPDX-License-Identifier: MIT
"""The model: sporadic tasks that use CPUs and a pool of GPUs.

A task T_i releases a job at least every ``period`` (p_i).  A job executes ``cost`` (e_i) on a CPU
and, when it uses a GPU, holds one GPU of its cluster's pool for a critical section of length
``section`` (l_i), in which it invokes the GPU ``gpu_calls`` (eta_i) times and waits for it
``gpu_time`` (s_i) in total.  The names in brackets are those of Elliott and Anderson, "Robust
Real-Time Multiprocessor Interrupt Handling Motivated by GPUs" (ECRTS 2012), section VII.

All times are exact fractions of a microsecond.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction

#: Within a cluster: global EDF, global fair lateness, fixed priorities (rate monotonic unless given).
#: P-FP: fixed priorities on single CPUs that share one GPU, which the most urgent task preempts.
SCHEDULERS = ("G-EDF", "G-FL", "RM", "P-FP")


@dataclass(frozen=True, slots=True)
class Task:
    """One sporadic task; times in microseconds.

    :param cost: CPU time of one job, e_i; without the time spent waiting for the GPU.
    :param period: least time between two releases, p_i.
    :param deadline: relative deadline, d_i.
    :param gpu_calls: GPU invocations of one job, eta_i; each ends with one interrupt.
    :param gpu_time: time the GPU works for one job, s_i, its top and bottom halves included.
    :param section: length of the critical section in which one job holds its GPU, l_i, as if it
        were never preempted: GPU time plus the CPU time spent while holding.
    :param priority: fixed priority, 1..99, higher is more urgent; 0: take it from the period.
    :param cluster: index of the cluster the task is assigned to; None: not assigned yet.
    :param offset: release of the first job; only simulation uses it.
    """

    name: str
    cost: Fraction
    period: Fraction
    deadline: Fraction
    gpu_calls: int = 0
    gpu_time: Fraction = Fraction(0)
    section: Fraction = Fraction(0)
    priority: int = 0
    cluster: int | None = None
    offset: Fraction = Fraction(0)
    line: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.period <= 0:
            raise ValueError(f"task {self.name}: period is {self.period}; it must be above zero")
        if self.deadline <= 0:
            raise ValueError(f"task {self.name}: deadline is {self.deadline}; it must be above zero")
        if self.cost < 0 or self.gpu_time < 0:
            raise ValueError(f"task {self.name}: an execution time is negative")
        if self.cost + self.gpu_time == 0:
            raise ValueError(f"task {self.name}: has neither CPU nor GPU time; give it 'run'")
        if self.gpu_calls < 0:
            raise ValueError(f"task {self.name}: gpu calls is {self.gpu_calls}; use zero or more")
        if self.gpu_calls == 0 and (self.gpu_time or self.section):
            raise ValueError(f"task {self.name}: has GPU time but no GPU call; set gpu calls to 1 or more")
        if self.gpu_calls and self.section < self.gpu_time:
            raise ValueError(
                f"task {self.name}: holds its GPU for {self.section} us but uses it for "
                f"{self.gpu_time} us; the section must be at least the GPU time"
            )
        if self.section > self.cost + self.gpu_time:
            raise ValueError(
                f"task {self.name}: holds its GPU for {self.section} us but executes only {self.cost + self.gpu_time} us in all"
            )

    @property
    def uses_gpu(self) -> bool:
        """Whether the task is GPU-using (T_i in T^R)."""
        return self.gpu_calls > 0

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
        if self.cpus < 1 or self.clusters < 1 or self.gpus < 0:
            raise ValueError(
                f"platform of {self.cpus} CPUs, {self.clusters} clusters and {self.gpus} GPUs: "
                "there must be at least one CPU and one cluster"
            )
        if self.scheduler == "P-FP":
            if self.clusters != self.cpus or self.gpus > 1:
                raise ValueError(
                    f"P-FP is for single CPUs that share one GPU; it got {self.cpus} CPUs in "
                    f"{self.clusters} clusters and {self.gpus} GPUs; set clusters = cpus and gpus = 1"
                )
        elif self.cpus % self.clusters or self.gpus % self.clusters:
            raise ValueError(f"{self.cpus} CPUs and {self.gpus} GPUs do not divide into {self.clusters} equal clusters")
        if self.scheduler not in SCHEDULERS:
            raise ValueError(f"scheduler {self.scheduler!r} is unknown; use one of {', '.join(SCHEDULERS)}")

    @property
    def cpus_per_cluster(self) -> int:
        return self.cpus // self.clusters

    @property
    def gpus_per_cluster(self) -> int:
        """GPUs of one cluster's pool; under P-FP the one that all share."""
        return self.gpus if self.scheduler == "P-FP" else self.gpus // self.clusters


@dataclass(frozen=True, slots=True)
class TaskSet:
    """Tasks and the platform they run on."""

    tasks: tuple[Task, ...]
    platform: Platform
    name: str = "task set"

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for task in self.tasks:
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

    def partitioned(self) -> TaskSet:
        """Assign every task that has no cluster yet.

        Two-pass worst fit, as section V of the klmirqd paper: first the GPU-using tasks, then the
        CPU-only ones, each to the cluster with the least utilisation so far, largest task first.
        """
        load = [sum((t.utilization for t in self.cluster(c)), Fraction(0)) for c in range(self.platform.clusters)]
        home: dict[str, int] = {}
        for uses_gpu in (True, False):
            waiting = [t for t in self.tasks if t.cluster is None and t.uses_gpu == uses_gpu]
            for task in sorted(waiting, key=lambda t: -t.utilization):
                chosen = min(range(len(load)), key=lambda c: load[c])
                home[task.name] = chosen
                load[chosen] += task.utilization
        tasks = tuple(replace(t, cluster=home[t.name]) if t.name in home else t for t in self.tasks)
        return TaskSet(tasks, self.platform, self.name)
