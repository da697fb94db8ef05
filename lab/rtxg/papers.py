# SPDX-License-Identifier: MIT
"""Experiments of the papers that rtxg starts from, run again in virtual time.

    Table II, figures 3 and 4 of klmirqd (Elliott and Anderson, ECRTS 2012): who misses deadlines, and
    how long priority inversions are, under which handling of interrupts;
    figures 9, 10 and 11 of Linux-RTXG: cost of scheduling launches, and shares of virtual GPUs over time.

Each function returns plain numbers; :mod:`rtxg.plots` draws them.  What is reproduced are shapes: the
machines of the papers are modelled by their published overheads, not measured again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from random import Random

from .generate import Recipe, Utilizations, random_batch
from .model import Platform, Task, TaskSet
from .overheads import TABLE_III
from .simulate import Handling, Options, Trace, simulate

SECOND = Fraction(1_000_000)


def section_vi_workload(scheduler: str = "RM") -> TaskSet:
    """The 50 tasks of klmirqd's section VI, pathological for interrupt threads of fixed priority."""

    def ms(text: str) -> Fraction:
        return Fraction(text) * 1000

    tasks = []
    for name, copies, run, gpu, period in (
        ("gpu-urgent", 2, "2", "1", "19.9"),
        ("cpu-only", 40, "5", "0", "20"),
        ("gpu-relaxed", 8, "2", "1", "20.1"),
    ):
        for i in range(copies):
            tasks.append(Task(f"{name}-{i}", ms(run), ms(period), ms(period), int(gpu), ms(gpu), ms(gpu)))
    return TaskSet(tuple(tasks), Platform(12, 2, 8, scheduler), "klmirqd section VI")


@dataclass(frozen=True, slots=True)
class HandlingRow:
    """One column of Table II: shares of deadlines missed and mean responses as shares of the period."""

    column: str
    scheduler: str
    handling: Handling
    cpu_missed: float
    gpu_missed: float
    cpu_response: float
    gpu_response: float


#: The columns of Table II that differ in the model: (a) to (h) but (c), whose kernel differs from (d)'s.
TABLE_II = (
    ("a", "RM", Handling.THREAD_LOW),
    ("b", "RM", Handling.THREAD_HIGH),
    ("d", "RM", Handling.SLIH),
    ("e", "RM", Handling.KLMIRQD),
    ("f", "RM", Handling.PAI),
    ("g", "G-EDF", Handling.KLMIRQD),
    ("h", "G-EDF", Handling.PAI),
)


def table_ii(
    length: Fraction = 4 * SECOND,
    seed: int = 1,
    progress: Callable[[str], None] = lambda what: None,
) -> list[HandlingRow]:
    """Section VI's workload under each handling; the paper ran it for 60 s, 25 times.

    :param progress: called now and then with how far it is.
    """
    rows = []
    for column, scheduler, handling in TABLE_II:
        trace = simulate(
            section_vi_workload(scheduler),
            Options(length, seed=seed, shift_releases=True),
            handling=handling,
            overheads=TABLE_III,
            progress=lambda what, column=column: progress(f"column {column}: {what}"),
        )

        def means(gpu: bool, trace: Trace = trace) -> tuple[float, float]:
            seen = [t for t in trace.tasks.values() if t.task.uses_gpu == gpu]
            missed = sum(t.missed_share for t in seen) / len(seen)
            return missed, float(sum(t.mean_response / t.task.period for t in seen) / len(seen))

        cpu, gpu = means(False), means(True)
        rows.append(HandlingRow(column, scheduler, handling, cpu[0], gpu[0], cpu[1], gpu[1]))
    return rows


def inversions(
    utilization: float = 11.2,
    length: Fraction = 4 * SECOND,
    seed: int = 5,
    calls: int = 6,
    progress: Callable[[str], None] = lambda what: None,
) -> dict[Handling, list[float]]:
    """Lengths of priority inversions, microseconds, for a task set made as in section V (figures 3, 4).

    Bottom halves vary exponentially about Table III's mean, as in a driver without sources.  GPU calls
    are asynchronous, so that a bottom half may run beside its owner.
    """
    recipe = Recipe(Utilizations("exponential", 0.5), (0.2, 0.3), gpu_share=0.64, section_share=0.8)
    batch = random_batch(recipe, utilization, 1, seed)
    taskset = batch.taskset(0, Platform(12, 2, 8), calls)

    def bottom_half(random: Random) -> float:
        return random.expovariate(1 / float(TABLE_III.bh))

    options = Options(length, seed=seed, execution=0.9, asynchronous=True, random_offsets=True, bottom_half=bottom_half)
    return {
        handling: simulate(
            taskset,
            options,
            handling=handling,
            overheads=TABLE_III,
            progress=lambda what, handling=handling: progress(f"{handling.value}: {what}"),
        ).inversions
        for handling in (Handling.KLMIRQD, Handling.PAI, Handling.SLIH)
    }


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of a GPU over time, one list a virtual GPU, one number a second."""

    title: str
    reserved: tuple[float, ...]
    shares: tuple[tuple[float, ...], ...]


def two_vgpus(policy: str, seconds: int = 30) -> Shares:
    """Figure 10: 40 % and 60 % reserved; the first launches 1.2 times the other's work and starts first."""
    from .core.host import MS, SEC, US, Host

    host = Host(policy=policy, strict=False)
    first, second = host.vgpu(min_ppm=400_000), host.vgpu(min_ppm=600_000)
    host.client(first, kernel=12 * MS // 10, think=100 * US)
    host.client(second, kernel=1 * MS, think=100 * US, start=5 * SEC)
    host.run(seconds * SEC)
    shares = host.shares(SEC)
    return Shares(f"two virtual GPUs, {policy}", (0.4, 0.6), (tuple(shares[first]), tuple(shares[second])))


def four_vgpus(policy: str, seconds: int = 30) -> Shares:
    """Figure 11: four equal tasks, 25 % reserved for each, started one after the other."""
    from .core.host import MS, SEC, US, Host

    host = Host(policy=policy, strict=False)
    vgpus = [host.vgpu(min_ppm=250_000) for _ in range(4)]
    for i, vgpu in enumerate(vgpus):
        host.client(vgpu, kernel=5 * MS, think=500 * US, start=i * SEC)
    host.run(seconds * SEC)
    shares = host.shares(SEC)
    return Shares(f"four virtual GPUs, {policy}", (0.25,) * 4, tuple(tuple(shares[v]) for v in vgpus))


def scheduling_cost(
    most: int = 8, jobs: int = 100, progress: Callable[[str], None] = lambda what: None
) -> dict[str, list[float]]:
    """Figure 9: time until n tasks have done their jobs, n = 1 to ``most``, in ms.

    A job copies for 0.2 ms and computes for 1 ms.  ``vanilla``: the GPU takes launches in turn;
    ``mutex``: a job keeps all others out, copies included; ``rtxg``: BAND with one virtual GPU a task,
    reserving an equal part for each, each launch dearer by the published cost of a notification (3.5 us)
    and two context switches.

    The others are BAND with all tasks in one virtual GPU, where the host and the next task are
    woken at each hand-over, for 100 us together. ``woken``: when the engine is free; ``ahead``:
    they stand ready for ends that are foreseen (``--ahead 200us``); ``early``: the next one has
    launched by then (``--early 200us``).
    """
    from .core.host import MS, US, Host

    cost = 3500 + 2 * round(float(TABLE_III.sch + TABLE_III.cxs) * 1000)
    copy, compute = 200 * US, 1 * MS
    found: dict[str, list[float]] = {}
    own = dict[str, int]()
    wakes = {"wake": 100 * US}
    for name, policy, kernel, think, params in (
        ("vanilla", "fifo", compute, copy, own),
        ("mutex", "fifo", compute + copy, 0, own),
        ("rtxg", "band", compute + cost, copy, own),
        ("woken", "band", compute + cost, copy, wakes),
        ("ahead", "band", compute + cost, copy, wakes | {"ahead_ns": 200 * US}),
        ("early", "band", compute + cost, copy, wakes | {"early_ns": 200 * US}),
    ):
        times = []
        for tasks in range(1, most + 1):
            progress(f"{name}, {tasks} of {most} tasks")
            host = Host(policy=policy, strict=False, **params)
            clients = []
            for i in range(tasks):
                if params is own or i == 0:
                    vgpu = host.vgpu(min_ppm=1_000_000 // (tasks if params is own else 1))
                clients.append(host.client(vgpu, kernel=kernel, think=think))
            while any(c.jobs < jobs for c in clients):
                for c in clients:
                    if c.jobs >= jobs:
                        c.stop = 0
                host.run(100 * US)
            times.append(host.now / MS)
        found[name] = times
    return found
