# SPDX-License-Identifier: MIT
"""Random sets of periodic CUDA tasks beside programs that never rest: are the bounds kept?

A set is admitted when the analysis below finds that each task's response fits into its period, and
the daemon accepts a bound on latency for each. Sets that are refused run without a promise: a set
that no schedule can serve has to miss then. May not: know more of the GPU than the daemon promises.
`tests/lab/test_gpu_cases.py` holds the same analysis against core/slice on a model GPU.

Each run draws other sets, unless ADMITTED_SEED names its seed, and keeps them in a file of its own:
GPU-DRIVER-DATE-admitted-TIME.json, written after each set, so that a run which is cut short loses
one set at most. What counts of a set is the time in which all of its tasks ran with their promises
and were warm: of an admitted one alone. The runs of one model and driver, here and in
bench/results, are summed, and then those of all cards. `make gpu CASE=admitted SOAK=540` runs for
540 s.

ADMITTED_SECONDS=4 makes the sets that long. ADMITTED_VISITORS=3 adds three rows of programs of which
each makes a context and ends, one after the other: starts and ends at any moment of a set. The
driver's lock is held then: the daemon's calls take up to 100 ms, most of them below 1. A bound is
longer by LOCK_US for that. Such a run's file is named GPU-DRIVER-DATE-admitted-visitors-TIME.json,
and adds nothing to the hour.

On a machine with several GPUs each one has sets, vGPUs, programs and a file of its own, at the same
time, under one daemon. The names of the files then end with the daemon's name of the GPU.
"""

from __future__ import annotations

import datetime
import itertools
import json
import os
import random
import re
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for_all
from dataclasses import dataclass, field, replace
from math import ceil, inf
from pathlib import Path
from typing import Any

import numpy as np

from harness import ROOT, Setup, gpu_names, rounded, turns_alone
from product import Product, Programs

#: Microseconds. What a launch and its completion cost on the CPU; what a change of contexts on the
#: GPU costs, with saving and restoring; by how much a kernel beside others is longer than alone.
HOST_US, CHANGE_US, LONGER = 300.0, 350.0, 1.1
LATENCY_US = 5000.0
#: A slice of a context that another one waits for: the driver's, and the core's mean.
SLICE_US = 2000.0
#: What may come between two slices of a task: a slice and its saving of each of two programs, for
#: in a change-over of turns two are enabled.
BETWEEN_US = 2 * (SLICE_US + 130.0)
#: How long the jobs of a set with promises are looked at, in a quick run, at least; without.
SECONDS, QUICK_SECONDS, LEAST_SECONDS, PLAIN_SECONDS = 30.0, 3.0, 2.5, 0.75
#: What waiting for the driver's lock adds to a bound beside visitors.
LOCK_US = 10_000.0
#: What to have a set's length and the rows of visitors from.
ASKED_SECONDS, ASKED_VISITORS = "ADMITTED_SECONDS", "ADMITTED_VISITORS"
#: A run of more than so many seconds has sets of so many.
LONG_RUN_SECONDS, LONG_SECONDS = 1000.0, 60.0
AROUND_SECONDS = 1.5  # starting the programs of a set, and ending them
#: Of a program: its context is made, its first launches are slow. A second, and so many jobs.
WARM_SECONDS, WARM_JOBS = 1.0, 10
#: How often the daemon's counts are asked for; how long a program may take to end.
COUNT_SECONDS, MOST_WAIT_SECONDS = 1.0, 120.0
#: How long the daemon may take to see a program on its GPU.
MOST_PLACE_SECONDS = 10.0
#: How many sets of a run may fail, as by a program that does not start, before the run ends.
MOST_FAILURES = 3
HOUR = 3600.0
#: A job that took so long, ns; how much of the daemon's list around it is kept; how long that is.
WORST_NS, AROUND_NS, MOST_EVENTS = 100_000_000, 50_000_000, 600
MOST_TASKS, MOST_HOGS = 5, 3
SETS_BESIDE = 2  # sets that follow each other beside the same hogs
ROUND = 16  # in so many sets one that no schedule serves, and one that the analysis refuses
KERNELS_US = (50, 100, 200, 300, 500, 1000, 1500, 2000, 3000, 4500, 6000, 9000)
PERIODS_US = (10_000, 12_500, 16_000, 20_000, 25_000, 33_000, 40_000, 50_000, 75_000, 100_000)
LONG_US = (9000, 12_000, 15_000)  # of sets that no schedule serves
HOGS_US = (200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000)
LARGER = 1.25  # by how much a kernel of a tight set could not be longer


@dataclass(frozen=True)
class Periodic:
    """A kernel of so many microseconds, released every period."""

    kernel_us: int
    period_us: int

    @property
    def slices(self) -> int:
        """In how many pieces a job may run, where another context waits for the engine."""
        return ceil(LONGER * self.kernel_us / SLICE_US)

    @property
    def work_us(self) -> float:
        """What a job takes of the GPU at most."""
        return LONGER * self.kernel_us + self.slices * CHANGE_US

    @property
    def share(self) -> int:
        """Percent of the GPU that it asks for: a bound holds for a vGPU that keeps to its share."""
        return ceil(130 * self.work_us / self.period_us)

    @property
    def warm(self) -> int:
        """Its first jobs, which do not count."""
        return max(WARM_JOBS, ceil(WARM_SECONDS * 1e6 / self.period_us))


def responses(tasks: list[Periodic]) -> list[float | None]:
    """Bound on each task's time from release to completion; None if it passes the period.

    A job waits for the engine as long as the daemon's bound says, once: that is for work which
    arrives. From then on the others are stopped, or have had their slice. But a queue that is empty
    while its kernel runs looks like one without work, so the others may come back in the middle of
    a kernel; and a bound that slices keep does not stop anyone. So others may come between any two
    slices of the job. The work of tasks with a bound goes in turn, in an order that is not assumed
    to be any: each job of another task that can be there in a job's window delays it once, for all
    of its work.
    """
    found: list[float | None] = []
    for task in tasks:
        own = LATENCY_US + HOST_US + task.work_us + (task.slices - 1) * BETWEEN_US
        response = own
        while response <= task.period_us:
            longer = own
            for other in tasks:
                if other is not task:
                    longer += ceil(response / other.period_us + 1) * other.work_us
            if longer <= response:
                break
            response = longer
        found.append(response if response <= task.period_us else None)
    return found


def admits(tasks: list[Periodic]) -> bool:
    """Does the analysis find a bound for each, and do their shares fit into the GPU?"""
    return None not in responses(tasks) and sum(t.share for t in tasks) <= 100


def draw(rng: random.Random, count: int) -> list[Periodic]:
    """So many tasks."""
    return [Periodic(rng.choice(KERNELS_US), rng.choice(PERIODS_US)) for _ in range(count)]


def draw_admitted(rng: random.Random) -> list[Periodic]:
    """One to five tasks that the analysis admits; half of the sets with kernels that cannot be
    much longer."""
    count = rng.randint(1, MOST_TASKS)
    while not admits(tasks := draw(rng, count)):
        pass
    grows = list(range(len(tasks))) if rng.random() < 0.5 else []
    while grows:
        which = rng.choice(grows)
        larger = Periodic(ceil(LARGER * tasks[which].kernel_us), tasks[which].period_us)
        more = [*tasks[:which], larger, *tasks[which + 1 :]]
        if admits(more):
            tasks = more
        else:
            grows.remove(which)
    return tasks


def draw_refused(rng: random.Random) -> list[Periodic]:
    """One to five tasks that the analysis refuses; their bounds may be kept all the same."""
    count = rng.randint(1, MOST_TASKS)
    while admits(tasks := draw(rng, count)):
        pass
    return tasks


def draw_overload(rng: random.Random) -> list[Periodic]:
    """Two or three tasks whose kernels alone are more than the GPU has time for."""
    while True:
        count = rng.randint(2, 3)
        tasks = [Periodic(rng.choice(LONG_US), rng.choice((20_000, 33_000))) for _ in range(count)]
        if sum(t.kernel_us / t.period_us for t in tasks) > 1.1:
            return tasks


def draw_set(rng: random.Random, number: int) -> tuple[list[Periodic], str]:
    """The set of that number in a run, and who refuses it; empty: the analysis admits it."""
    if number % ROUND == 2:
        return draw_overload(rng), "overload"
    if number % ROUND == 8:
        return draw_refused(rng), "analysis"
    return draw_admitted(rng), ""


def draw_hogs(rng: random.Random) -> list[int]:
    """Lengths of the kernels of one to three programs that never rest."""
    return [rng.choice(HOGS_US) for _ in range(rng.randint(1, MOST_HOGS))]


def stolen_ms() -> float:
    """For how long a hypervisor ran others on this machine's CPUs since boot."""
    with open("/proc/stat", encoding="ascii") as file:
        words = file.readline().split()
    return int(words[8]) * 1e3 / os.sysconf("SC_CLK_TCK") if len(words) > 8 else 0.0


class Over(Exception):  # noqa: N818 -- it is no error
    """The case has ended, by its limit of time or by a signal."""


class Card:
    """One GPU of the machine, with vGPUs, programs and files of its own.

    A vGPU has the name that it would have on a machine with one GPU: here alone the daemon's name
    of the GPU is put behind it.
    """

    def __init__(self, setup: Setup, product: Product, number: int = 0, count: int = 1) -> None:
        self.setup, self.product, self.gpu = setup, product, f"nvidia{number}"
        self.alone = count < 2
        self.env = {} if self.alone else only(number)
        self.over = threading.Event()

    def named(self, vgpu: str) -> str:
        """As the daemon has it."""
        return vgpu if self.alone else f"{vgpu}-{self.gpu}"

    def make_vgpus(self) -> None:
        """For this GPU only: a share of a vGPU without one is taken on each."""
        where = {} if self.alone else {"gpu": self.gpu}
        names = [f"hog{n}" for n in range(MOST_HOGS)] + [f"task{n}" for n in range(MOST_TASKS)]
        for name in names:
            self.product.vgpu(self.named(name), **where)
        self.product.vgpu(self.named("visitors"), **where)

    def vgpu(self, name: str, **values: str) -> None:
        """Gives a vGPU these values."""
        self.product.vgpu(self.named(name), **values)

    def long_waits(self, bound_ns: float) -> dict[str, int]:
        """The daemon's count for each vGPU with a bound."""
        found = self.product.long_waits(bound_ns, self.gpu)
        return {name.removesuffix(f"-{self.gpu}"): n for name, n in found.items()}

    def begin(self, programs: Programs, command: list[str], vgpu: str) -> Any:
        """A program in that vGPU."""
        said = self.setup.work / "rt-said.txt"
        return programs.begin(
            command, None, self.product, self.named(vgpu), said=said, **self.env
        )

    def check_governed(self) -> None:
        """Promises on a GPU that the daemon leaves alone would all be kept by none."""
        found = {g["gpu"]: g.get("policy", "none") for g in self.product.ask("gpu-list")["gpus"]}
        if found.get(self.gpu, "none") == "none":
            raise RuntimeError(f"rtxgd does not govern {self.gpu}: {found}")

    def check_placed(self, pids: list[int]) -> None:
        """Programs that are on another GPU than these promises prove nothing."""
        end = time.monotonic() + MOST_PLACE_SECONDS
        while missing := set(pids) - set(self.product.tasks(self.gpu)):
            if time.monotonic() > end:
                raise RuntimeError(f"not on {self.gpu}: the programs {sorted(missing)}")
            time.sleep(0.1)

    def check_time(self) -> None:
        """Ends the work on this GPU when the case is over."""
        if self.over.is_set():
            raise Over


def only(number: int) -> dict[str, str]:
    """The environment of a program that is to see that GPU alone, as the lever numbers it."""
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": str(number)}


def setups(setup: Setup, models: list[str]) -> dict[int, Setup]:
    """Of each GPU that is of the first one's model, by its number: a folder, lengths of kernels."""
    if len(models) < 2:
        return {0: setup}
    found = {}
    for number in (n for n, model in enumerate(models) if model == models[0]):
        work = setup.work / f"nvidia{number}"
        work.mkdir()
        turns = {1000: turns_alone(setup, 1000, **only(number))}
        found[number] = replace(setup, work=work, turns=turns)
    return found


def first_jobs(tasks: list[Periodic], seconds: float) -> list[int]:
    """How many of each task's first jobs do not count. Seconds: with promises."""
    return [task.warm if seconds else WARM_JOBS for task in tasks]


def begin_tasks(
    programs: Programs,
    card: Card,
    tasks: list[Periodic],
    seconds: float,
) -> list[Any]:
    """Starts the tasks, each in its vGPU; their outputs and processes. Seconds: with promises."""
    started = []
    warm = first_jobs(tasks, seconds)
    # All end at the same time.
    end = max(n * task.period_us for n, task in zip(warm, tasks, strict=True))
    end += 1e6 * (seconds or PLAIN_SECONDS)
    for number, task in enumerate(tasks):
        out = programs.setup.work / f"rt-{time.monotonic_ns()}.txt"
        jobs = ceil(end / task.period_us)
        turns = programs.setup.turns_of(task.kernel_us)
        command = programs.load("rt", turns, task.period_us, 0, jobs, out)
        # The GPU is under test: what else wants the task's CPU waits.
        command = ["nice", "-n", "-20", *command]
        started.append((out, card.begin(programs, command, f"task{number}")))
    return started


def promised(card: Card, tasks: list[Periodic]) -> str:
    """Asks the daemon for each task's bound; what it said if it refused one."""
    for number, task in enumerate(tasks):
        try:
            card.vgpu(f"task{number}", min=f"{task.share}%", latency=f"{LATENCY_US / 1000:g}ms")
        except RuntimeError as refused:
            return str(refused)
    return ""


def plain(card: Card) -> None:
    """No promise to any task."""
    for number in range(MOST_TASKS):
        card.vgpu(f"task{number}", min="0%", latency="default")


def long_waits(card: Card, count: int) -> list[int | None]:
    """The daemon's own count: how often work of each task waited longer than its bound says.

    None of a task without a bound. A wait is from the look into the queues that showed the work to
    when the switch log has it on the engine. The count begins with a program's first launches, the
    bound does not: a load queues twenty kernels before its first job, far ahead of its share.
    """
    found = card.long_waits(LATENCY_US * 1e3)
    return [found.get(f"task{number}") for number in range(count)]


@dataclass(frozen=True)
class Counted:
    """The daemon's counts of long waits at one time."""

    at_ns: int
    waits: list[int | None]

    @classmethod
    def now(cls, card: Card, count: int) -> Counted:
        """What it says now. The time is before the question: what is counted later is not lost."""
        return cls(time.monotonic_ns(), long_waits(card, count))


def wait_for(process: Any, card: Card, count: int) -> list[Counted]:
    """Until it ends; the daemon's counts, each second."""
    seen: list[Counted] = []
    end = time.monotonic() + MOST_WAIT_SECONDS
    while True:
        try:
            process.wait(COUNT_SECONDS)
            return seen
        except subprocess.TimeoutExpired:
            if time.monotonic() > end:
                raise
        card.check_time()
        seen.append(Counted.now(card, count))


def waits_within(
    seen: list[Counted], begin_ns: float, end_ns: float = inf
) -> list[int | None] | None:
    """How many long waits of each task came between the first count after begin and the last
    before end.

    None: there are no two such counts.
    """
    within = [one for one in seen if begin_ns <= one.at_ns <= end_ns]
    if len(within) < 2:
        return None
    pairs = zip(within[-1].waits, within[0].waits, strict=True)
    return [None if now is None or then is None else now - then for now, then in pairs]


def visitors() -> int:
    """How many rows of programs that come and go are asked for."""
    return int(os.environ.get(ASKED_VISITORS, 0))


def visits(card: Card, programs: Programs, seconds: float) -> None:
    """Starts the rows of programs that come and go."""
    for number in range(visitors()):
        out = card.setup.work / f"visitors-{number}.txt"
        card.begin(programs, programs.load("contexts-made", seconds, out), "visitors")


def bounds_of(tasks: list[Periodic]) -> list[float | None]:
    """Those of the analysis, and what visitors add to them."""
    lock = LOCK_US if visitors() else 0.0
    return [bound and bound + lock for bound in responses(tasks)]


class Hogs:
    """Programs that never rest, as long as the block lasts."""

    def __init__(self, card: Card, kernels_us: list[int]) -> None:
        self.card, self.kernels_us, self.programs = card, kernels_us, Programs(card.setup)

    def __enter__(self) -> Hogs:
        self.programs.__enter__()
        # Much longer than the sets beside them: they are ended.
        seconds = 10 * SETS_BESIDE * LONG_SECONDS
        card = self.card
        try:
            for number, kernel_us in enumerate(self.kernels_us):
                vgpu = card.named(f"hog{number}")
                self.programs.busy(kernel_us, seconds, card.product, vgpu, **card.env)
            self.programs.wait_working()
            card.check_placed([process.pid for process in self.programs.processes])
        except BaseException:
            self.programs.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.programs.end()

    def check(self) -> None:
        """A set beside programs that have gone proves nothing."""
        if any(p.poll() is not None for p in self.programs.processes):
            raise RuntimeError("a program that was to keep the GPU busy has ended")


def rtxgd_late(card: Card) -> dict[str, Any]:
    """How often the daemon came late so far, by how much, and the driver's longest call."""
    levers = card.product.ask("metrics").get("levers") or [{}]
    counts = levers[0].get("late", {}).get("counts", [])
    return {"late": counts} | {k: levers[0].get(k) for k in ("late_most_ns", "call_most_ns")}


def rtxgd_late_since(card: Card, before: dict[str, Any]) -> dict[str, Any]:
    """The same of the time since then; what is most is of the daemon's whole life."""
    now = rtxgd_late(card)
    return now | {"late": [n - b for n, b in zip(now["late"], before["late"], strict=True)]}


def events_around(card: Card, jobs: list[tuple[int, int]]) -> list[dict[str, Any]]:
    """What the daemon saw and did while these jobs (ns: from, to) waited for much too long."""
    if not jobs:
        return []
    begin, end = min(a for a, _ in jobs) - AROUND_NS, max(b for _, b in jobs) + AROUND_NS
    events = card.product.ask("timeline")["events"]
    return [e for e in events if e["end_ns"] >= begin and e["start_ns"] <= end][:MOST_EVENTS]


def run_set(
    card: Card,
    tasks: list[Periodic],
    hogs: Hogs,
    seconds: float,
) -> dict[str, Any]:
    """What the tasks' jobs took beside those hogs; the daemon's refusal, if it refused.

    Without seconds no promise is asked for.
    """
    plain(card)
    # Asked beside the programs that it will be beside.
    said = promised(card, tasks) if seconds else ""
    if said:
        plain(card)
        seconds = 0.0
    early = rtxgd_late(card)
    with Programs(card.setup) as programs:
        before = stolen_ms()
        began = time.monotonic()
        started = begin_tasks(programs, card, tasks, seconds)
        counts = [one for _, process in started for one in wait_for(process, card, len(tasks))]
        taken, ran = stolen_ms() - before, time.monotonic() - began
        counts.append(Counted.now(card, len(tasks)))
        late = rtxgd_late_since(card, early)
        hogs.check()
    wrote = zip(first_jobs(tasks, seconds), started, strict=True)
    rows = [np.loadtxt(out, ndmin=2)[warm:] for warm, (out, _) in wrote]
    jobs = [(int(row[0]), int(row[0] + row[1])) for r in rows for row in r if row[1] > WORST_NS]
    return {
        "rtxgd_late": late,
        # Sets without promises are late by nature.
        "events": events_around(card, jobs if seconds else []),
        "hogs_us": hogs.kernels_us,
        "refused": said,
        "stolen_ms": taken,
        "ran_s": ran,
        "waits": waits_within(counts, begin_ns(rows), end_ns(tasks, rows)),
        # A program that ends takes its context down: that is work, too, and no job.
        "waits_with_ends": waits_within(counts, begin_ns(rows)),
        "rows": rows,
    }


def begin_ns(rows: list[np.ndarray]) -> float:
    """From when on all tasks of a set released jobs that count."""
    return float(max(r[0, 0] for r in rows))


def end_ns(tasks: list[Periodic], rows: list[np.ndarray]) -> float:
    """Until when they did: the end of the first task's last period."""
    return float(min(r[-1, 0] + t.period_us * 1e3 for r, t in zip(rows, tasks, strict=True)))


def all_ran_s(tasks: list[Periodic], rows: list[np.ndarray]) -> float:
    """For how long all tasks of a set released jobs that count."""
    return max(0.0, (end_ns(tasks, rows) - begin_ns(rows)) / 1e9)


def counted_s(one: dict[str, Any]) -> float:
    """What a set adds to the hour. Records of earlier runs tell it by their jobs."""
    if one["refused_by"]:
        return 0.0
    tasks = zip(one["jobs"], one["tasks"], strict=True)
    return one.get("measured_s", min(n * period_us / 1e6 for n, (_, period_us) in tasks))


def told(
    tasks: list[Periodic],
    bounds: list[float | None],
    by: str,
    seen: dict[str, Any],
) -> dict[str, Any]:
    """One set, as the record has it. `by` says who refused it; empty: it was admitted."""
    rows = seen["rows"]
    latencies = [r[:, 1] / 1e3 for r in rows]
    over = [
        {
            "task": n,
            "release_ns": int(row[0]),
            "us": row[1] / 1e3,
            "from_first_to_last_us": row[2] / 1e3,
        }
        for n, (r, bound) in enumerate(zip(rows, bounds, strict=True))
        for row in (r if not by and bound is not None else ())
        if row[1] / 1e3 > bound
    ]
    return {
        "tasks": [(t.kernel_us, t.period_us) for t in tasks],
        "hogs_us": seen["hogs_us"],
        "refused_by": by,
        "bounds_us": bounds,
        "max_us": [float(s.max()) for s in latencies],
        "jobs": [int(s.size) for s in latencies],
        "late": [int((s > t.period_us).sum()) for s, t in zip(latencies, tasks, strict=True)],
        "shortest_on_gpu_us": [float(r[:, 2].min() / 1e3) for r in rows],
        "waits_when_warm": seen["waits"],
        "waits_with_ends": seen["waits_with_ends"],
        "stolen_ms": seen["stolen_ms"],
        "rtxgd_late": seen["rtxgd_late"],
        "ran_s": seen["ran_s"],
        "measured_s": all_ran_s(tasks, rows),
        "passed": over,
    } | ({"events": seen["events"]} if seen["events"] else {})


def rtxgd_policy(product: Product) -> str:
    """How the daemon's threads are scheduled."""
    names = {os.SCHED_OTHER: "other", os.SCHED_FIFO: "fifo", os.SCHED_RR: "rr"}
    found = set()
    for pid in product.pids():
        try:
            threads = map(int, os.listdir(f"/proc/{pid}/task"))
            found |= {names.get(os.sched_getscheduler(t), "?") for t in threads}
        except OSError:
            continue
    return ", ".join(sorted(found))


@dataclass
class Run:
    """One run, in a file of its own from its first set on."""

    path: Path
    seed: int
    rtxgd: str
    gpus: list[str]  # that one, and those that had sets at the same time
    failures: list[str] = field(default_factory=list)  # sets that could not be run
    began: float = field(default_factory=lambda: time.monotonic())
    sets: list[dict[str, Any]] = field(default_factory=list)
    last: float = 0.0

    def seconds(self) -> float:
        """From its begin to its last set."""
        return self.last - self.began

    def keep(self, one: dict[str, Any]) -> None:
        """Adds a set to the file."""
        self.sets.append(rounded(one))
        self.last = time.monotonic()
        kept = {"seed": self.seed, "rtxgd": self.rtxgd, "gpus": self.gpus}
        kept |= {"seconds": self.seconds(), "visitors": visitors()}
        text = json.dumps(rounded(kept) | {"sets": self.sets}, indent=1) + "\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_suffix(".new")
        beside.write_text(text, encoding="ascii")
        beside.replace(self.path)


#: A run's file. A machine with several GPUs has their number before the model.
FILE = re.compile(
    r"(?:\d+x)?(?P<machine>.+)-\d{4}-\d\d-\d\d(?:-quick)?-admitted(?:-\d{6}(?:-nvidia\d+)?)?\.json"
)


def one_gpu(name: str) -> str:
    """The results' name for one GPU of the machine."""
    return re.sub(r"^\d+x", "", name)


def new_runs(setup: Setup, rtxgd: str, gpus: list[str]) -> list[Run]:
    """One for each of the GPUs. Their seeds are those that no run before had, if none is asked
    for."""
    asked = os.environ.get("ADMITTED_SEED")
    now = datetime.datetime.now(datetime.UTC).strftime("%H%M%S")
    found = []
    for number, gpu in enumerate(gpus):
        seed = int(asked) + number if asked else random.SystemRandom().randrange(2**31)
        which = f"-{gpu}" if len(gpus) > 1 else ""
        beside = "visitors-" if visitors() else ""
        path = setup.out / f"{one_gpu(setup.name)}-admitted-{beside}{now}{which}.json"
        found.append(Run(path, seed, rtxgd, [gpu, *(other for other in gpus if other != gpu)]))
    return found


def runs_by_machine(setup: Setup) -> dict[str, list[dict[str, Any]]]:
    """The runs of each GPU and driver, of any day, here and in bench/results; short ones too."""
    files = {
        path.name: path
        for folder in (ROOT / "bench" / "results", setup.out)
        if folder.is_dir()
        for path in folder.iterdir()
        if FILE.fullmatch(path.name)
    }
    found: dict[str, list[dict[str, Any]]] = {}
    for name in sorted(files):
        kept = json.loads(files[name].read_text(encoding="ascii"))
        match = FILE.fullmatch(name)
        assert match
        found.setdefault(match["machine"], []).append(as_run(kept))
    return found


def all_runs(setup: Setup) -> list[dict[str, Any]]:
    """Those of this GPU and driver."""
    machine = re.sub(r"-\d{4}-\d\d-\d\d(-quick)?$", "", one_gpu(setup.name))
    return runs_by_machine(setup).get(machine, [])


def as_run(kept: Any) -> dict[str, Any]:
    """A run's file; the first ones were lines of results, and did not say how long they took."""
    if not isinstance(kept, list):
        return kept
    detail = kept[0]["detail"]
    sets = [{"ran_s": counted_s(s)} | s for s in detail["sets"]]
    seconds = sum(s["ran_s"] for s in sets)
    return {"seed": detail["seed"], "seconds": seconds, "sets": sets}


def run_sets(card: Card, run: Run, end: float) -> None:
    """Sets, two beside each draw of hogs, until there is no time for another one."""
    rng, numbers = random.Random(run.seed), itertools.count()
    long = LONG_SECONDS if card.setup.soak_s > LONG_RUN_SECONDS else SECONDS
    most = float(os.environ.get(ASKED_SECONDS, card.setup.seconds(QUICK_SECONDS, long)))

    def left() -> float:
        return min(most, end - time.monotonic() - AROUND_SECONDS - WARM_SECONDS)

    def pair() -> None:
        with Hogs(card, draw_hogs(rng)) as hogs:
            for _ in range(SETS_BESIDE):
                if (seconds := left()) < LEAST_SECONDS:
                    break
                tasks, by = draw_set(rng, next(numbers))
                seen = run_set(card, tasks, hogs, 0.0 if by else seconds)
                said = {"said": seen["refused"]} if seen["refused"] else {}
                by = "daemon" if said else by
                run.keep(told(tasks, bounds_of(tasks), by, seen) | said)
                print(f"    {card.gpu}: {run.sets[-1]}", flush=True)

    with Programs(card.setup) as beside:
        visits(card, beside, end - time.monotonic())
        while left() >= LEAST_SECONDS:
            try:
                card.check_time()
                pair()
            except Over:
                raise
            except Exception as failed:
                # The sets after it count all the same; that it failed is told at the end.
                run.failures.append(f"{card.gpu}: {type(failed).__name__}: {failed}")
                print(f"    {run.failures[-1]}", flush=True)
                if len(run.failures) == MOST_FAILURES:
                    raise
            if len(run.sets) >= 20 and all(s["refused_by"] for s in run.sets):
                raise RuntimeError(f"every set is refused, the last one: {run.sets[-1]}")


def run_cards(cards: list[Card], runs: list[Run], end: float) -> list[BaseException]:
    """Sets on all of the GPUs at the same time; what ended the run of one before its time.

    A program is ended with the thread that started it, so each GPU has one thread for all of its
    programs.
    """
    with ThreadPoolExecutor(len(cards)) as pool:
        pairs = zip(cards, runs, strict=True)
        futures = [pool.submit(run_sets, card, run, end) for card, run in pairs]
        try:
            wait_for_all(futures)
        finally:
            for card in cards:
                card.over.set()
    return [error for future in futures if (error := future.exception())]


def case_admitted(setup: Setup) -> None:
    """Random sets of periodic CUDA tasks beside hogs: admitted ones keep bounds, others miss."""
    end = time.monotonic() + setup.seconds(20, setup.soak_s)
    models = gpu_names()
    places = setups(setup, models)
    with Product(setup) as product:
        cards = [Card(one, product, number, len(models)) for number, one in places.items()]
        runs = new_runs(setup, rtxgd_policy(product), [card.gpu for card in cards])
        for card in cards:
            card.check_governed()
            card.make_vgpus()
        errors = run_cards(cards, runs, end)
    tell(setup, runs)
    if errors:
        raise errors[0]


def tell(setup: Setup, own: list[Run]) -> None:
    """What these runs gave, what all of this model and driver gave, and all of any."""
    sets = [one for run in own for one in run.sets]
    files, seeds = [run.path.name for run in own], [run.seed for run in own]
    judge(setup, sets, seeds=seeds, rtxgd=own[0].rtxgd, files=files)
    failures = [failure for run in own for failure in run.failures]
    title = "sets that could not be run"
    setup.record(title, "sets", None, len(failures), "0", not failures, failures=failures)
    runs = all_runs(setup)
    seconds = sum(r["seconds"] for r in runs)
    title = f" (all {len(runs)} runs, {seconds:.0f} s)"
    all_sets = [s for r in runs for s in r["sets"]]
    judge(setup, all_sets, title, seeds=[r["seed"] for r in runs], seconds=seconds)
    counted, added = sum(map(counted_s, all_sets)), sum(map(counted_s, sets))
    took = sum(run.seconds() for run in own if run.sets)
    setup.record(
        f"time in which admitted sets ran with their promises{title}",
        "s",
        None,
        counted,
        "-",
        None,
        own_s=added,
        own_percent=100 * added / took if took else 0.0,
        hour_percent=100 * counted / HOUR,
    )
    by_machine = {
        machine: sum(counted_s(s) for r in of for s in r["sets"])
        for machine, of in runs_by_machine(setup).items()
    }
    of_all = sum(by_machine.values())
    setup.record(
        "time in which admitted sets ran with their promises, on all models",
        "s",
        None,
        of_all,
        "-",
        None,
        by_machine=by_machine,
        hour_percent=100 * of_all / HOUR,
    )
    print(
        f"    {counted:.0f} s of the hour are there on this model and driver, {of_all:.0f} s on "
        f"all: this run added {added:.0f} s in {took:.0f} s",
        flush=True,
    )


def judge(setup: Setup, sets: list[dict[str, Any]], of: str = "", **detail: Any) -> None:
    """Two lines: jobs of admitted sets that passed their bounds, impossible sets that missed."""
    admitted = [s for s in sets if not s["refused_by"]]
    refused = [s for s in sets if s["refused_by"]]
    impossible = [s for s in refused if s["refused_by"] == "overload"]
    passed = sum(len(s["passed"]) for s in admitted)
    told_of = [s["waits_when_warm"] for s in admitted if s.get("waits_when_warm")]
    waits = [w for w in told_of if None not in w]
    setup.record(
        f"jobs of {len(admitted)} admitted sets that passed their bounds{of}",
        "jobs",
        None,
        passed,
        "0",
        passed == 0 and bool(admitted),
        jobs=sum(sum(s["jobs"]) for s in admitted),
        closest=max(
            (m / b for s in admitted for m, b in zip(s["max_us"], s["bounds_us"], strict=True)),
            default=0.0,
        ),
        late=sum(sum(s["late"]) for s in admitted),
        waits_above_latency=sum(sum(w) for w in waits),
        sets_with_waits_counted=len(waits),
        stolen_ms=sum(s["stolen_ms"] for s in admitted),
        admitted_ran_s=sum(s["ran_s"] for s in admitted),
        measured_s=sum(map(counted_s, admitted)),
        **detail,
    )
    late = sum(any(s["late"]) for s in impossible)
    setup.record(
        f"refused sets that no schedule serves, and that were late{of}",
        "sets",
        None,
        late,
        str(len(impossible)),
        late == len(impossible) and bool(impossible) if impossible else None,
        reason="time was too short for one",
        refused=len(refused),
        refused_late=sum(any(s["late"]) for s in refused),
    )
