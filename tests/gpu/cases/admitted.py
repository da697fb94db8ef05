# SPDX-License-Identifier: MIT
"""Random sets of periodic CUDA tasks beside programs that never rest: are the bounds kept?

A set is admitted when the analysis below finds that each task's response fits into its period, and
the daemon accepts a bound on latency for each. Sets that are refused run without a promise: a set
that no schedule can serve has to miss then. May not: know more of the GPU than the daemon promises.
`tests/lab/test_gpu_cases.py` holds the same analysis against core/slice on a model GPU.

Each run draws other sets, unless ADMITTED_SEED names its seed, and keeps them in a file of its own:
GPU-DRIVER-DATE-admitted-TIME.json, written after each set, so that a run which is cut short loses
one set at most. The runs of one GPU and driver, here and in bench/results, are summed. What counts
of a set is the time in which all of its tasks ran with their promises and were warm: of an admitted
one alone. `make gpu CASE=admitted SOAK=540` runs for 540 s.
"""

from __future__ import annotations

import datetime
import itertools
import json
import os
import random
import re
import subprocess
import time
from dataclasses import dataclass, field
from math import ceil, inf
from pathlib import Path
from typing import Any

import numpy as np

from harness import ROOT, Setup, rounded
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
AROUND_SECONDS = 1.5  # starting the programs of a set, and ending them
#: Of a program: its context is made, its first launches are slow. A second, and so many jobs.
WARM_SECONDS, WARM_JOBS = 1.0, 10
#: How often the daemon's counts are asked for; how long a program may take to end.
COUNT_SECONDS, MOST_WAIT_SECONDS = 1.0, 120.0
HOUR = 3600.0
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


def begin_tasks(
    programs: Programs,
    product: Product,
    tasks: list[Periodic],
    seconds: float,
) -> list[Any]:
    """Starts the tasks, each in its vGPU; their outputs and processes."""
    started = []
    for number, task in enumerate(tasks):
        out = programs.setup.work / f"rt-{time.monotonic_ns()}.txt"
        # All end at the same time.
        end = max(other.warm * other.period_us for other in tasks) + seconds * 1e6
        jobs = ceil(end / task.period_us)
        turns = programs.setup.turns_of(task.kernel_us)
        command = programs.load("rt", turns, task.period_us, 0, jobs, out)
        # The GPU is under test: what else wants the task's CPU waits.
        command = ["nice", "-n", "-20", *command]
        said = programs.setup.work / "rt-said.txt"
        started.append((out, programs.begin(command, None, product, f"task{number}", said=said)))
    return started


def promised(product: Product, tasks: list[Periodic]) -> str:
    """Asks the daemon for each task's bound; what it said if it refused one."""
    for number, task in enumerate(tasks):
        try:
            product.vgpu(f"task{number}", min=f"{task.share}%", latency=f"{LATENCY_US / 1000:g}ms")
        except RuntimeError as refused:
            return str(refused)
    return ""


def plain(product: Product) -> None:
    """No promise to any task."""
    for number in range(MOST_TASKS):
        product.vgpu(f"task{number}", min="0%", latency="default")


def long_waits(product: Product, count: int) -> list[int | None]:
    """The daemon's own count: how often work of each task waited longer than its bound says.

    None of a task without a bound. A wait is from the look into the queues that showed the work to
    when the switch log has it on the engine. The count begins with a program's first launches, the
    bound does not: a load queues twenty kernels before its first job, far ahead of its share.
    """
    found = product.long_waits(LATENCY_US * 1e3)
    return [found.get(f"task{number}") for number in range(count)]


@dataclass(frozen=True)
class Counted:
    """The daemon's counts of long waits at one time."""

    at_ns: int
    waits: list[int | None]

    @classmethod
    def now(cls, product: Product, count: int) -> Counted:
        """What it says now. The time is before the question: what is counted later is not lost."""
        return cls(time.monotonic_ns(), long_waits(product, count))


def wait_for(process: Any, product: Product, count: int) -> list[Counted]:
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
        seen.append(Counted.now(product, count))


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


class Hogs:
    """Programs that never rest, as long as the block lasts."""

    def __init__(self, setup: Setup, product: Product, kernels_us: list[int]) -> None:
        self.kernels_us, self.programs = kernels_us, Programs(setup)
        # Much longer than the sets beside them: they are ended.
        seconds = 10 * SETS_BESIDE * SECONDS
        for number, kernel_us in enumerate(kernels_us):
            self.programs.busy(kernel_us, seconds, product, f"hog{number}")

    def __enter__(self) -> Hogs:
        self.programs.__enter__()
        try:
            self.programs.wait_working()
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


def run_set(
    setup: Setup,
    product: Product,
    tasks: list[Periodic],
    hogs: Hogs,
    seconds: float,
) -> dict[str, Any]:
    """What the tasks' jobs took beside those hogs; the daemon's refusal, if it refused.

    Without seconds no promise is asked for.
    """
    plain(product)
    # Asked beside the programs that it will be beside.
    said = promised(product, tasks) if seconds else ""
    if said:
        plain(product)
    with Programs(setup) as programs:
        before = stolen_ms()
        began = time.monotonic()
        seconds = PLAIN_SECONDS if said or not seconds else seconds
        started = begin_tasks(programs, product, tasks, seconds)
        counts = [one for _, process in started for one in wait_for(process, product, len(tasks))]
        taken, ran = stolen_ms() - before, time.monotonic() - began
        counts.append(Counted.now(product, len(tasks)))
        hogs.check()
    wrote = zip(tasks, started, strict=True)
    rows = [np.loadtxt(out, ndmin=2)[task.warm :] for task, (out, _) in wrote]
    return {
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
        "ran_s": seen["ran_s"],
        "measured_s": all_ran_s(tasks, rows),
        "passed": over,
    }


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
        kept = {"seed": self.seed, "rtxgd": self.rtxgd, "seconds": self.seconds()}
        text = json.dumps(rounded(kept) | {"sets": self.sets}, indent=1) + "\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_suffix(".new")
        beside.write_text(text, encoding="ascii")
        beside.replace(self.path)


def new_run(setup: Setup, rtxgd: str) -> Run:
    """A seed that no run before had, if none is asked for."""
    asked = os.environ.get("ADMITTED_SEED")
    seed = int(asked) if asked else random.SystemRandom().randrange(2**31)
    now = datetime.datetime.now(datetime.UTC).strftime("%H%M%S")
    return Run(setup.out / f"{setup.name}-admitted-{now}.json", seed, rtxgd)


def all_runs(setup: Setup) -> list[dict[str, Any]]:
    """The runs of this GPU and driver, of any day, here and in bench/results; short ones too."""
    machine = re.sub(r"-\d{4}-\d\d-\d\d(-quick)?$", "", setup.name)
    name = re.compile(re.escape(machine) + r"-\d{4}-\d\d-\d\d(-quick)?-admitted(-\d{6})?\.json")
    files = {
        path.name: path
        for folder in (ROOT / "bench" / "results", setup.out)
        if folder.is_dir()
        for path in folder.iterdir()
        if name.fullmatch(path.name)
    }
    return [as_run(json.loads(files[n].read_text(encoding="ascii"))) for n in sorted(files)]


def as_run(kept: Any) -> dict[str, Any]:
    """A run's file; the first ones were lines of results, and did not say how long they took."""
    if not isinstance(kept, list):
        return kept
    detail = kept[0]["detail"]
    sets = [{"ran_s": counted_s(s)} | s for s in detail["sets"]]
    seconds = sum(s["ran_s"] for s in sets)
    return {"seed": detail["seed"], "seconds": seconds, "sets": sets}


def run_sets(setup: Setup, product: Product, run: Run, end: float) -> None:
    """Sets, two beside each draw of hogs, until there is no time for another one."""
    rng, numbers = random.Random(run.seed), itertools.count()

    def left() -> float:
        most = setup.seconds(QUICK_SECONDS, SECONDS)
        return min(most, end - time.monotonic() - AROUND_SECONDS - WARM_SECONDS)

    while left() >= LEAST_SECONDS:
        with Hogs(setup, product, draw_hogs(rng)) as hogs:
            for _ in range(SETS_BESIDE):
                if (seconds := left()) < LEAST_SECONDS:
                    break
                tasks, by = draw_set(rng, next(numbers))
                seen = run_set(setup, product, tasks, hogs, 0.0 if by else seconds)
                said = {"said": seen["refused"]} if seen["refused"] else {}
                by = "daemon" if said else by
                run.keep(told(tasks, responses(tasks), by, seen) | said)
                print(f"    {run.sets[-1]}", flush=True)
                if len(run.sets) == 20 and all(s["refused_by"] for s in run.sets):
                    raise RuntimeError(f"every set is refused, the last one: {run.sets[-1]}")


def case_admitted(setup: Setup) -> None:
    """Random sets of periodic CUDA tasks beside hogs: admitted ones keep bounds, others miss."""
    end = time.monotonic() + setup.seconds(20, setup.soak_s)
    with Product(setup) as product:
        run = new_run(setup, rtxgd_policy(product))
        for number in range(MOST_HOGS):
            product.vgpu(f"hog{number}")
        for number in range(MOST_TASKS):
            product.vgpu(f"task{number}")
        run_sets(setup, product, run, end)
    judge(setup, run.sets, seed=run.seed, rtxgd=run.rtxgd, file=run.path.name)
    runs = all_runs(setup)
    seconds = sum(r["seconds"] for r in runs)
    title = f" (all {len(runs)} runs, {seconds:.0f} s)"
    sets = [s for r in runs for s in r["sets"]]
    judge(setup, sets, title, seeds=[r["seed"] for r in runs], seconds=seconds)
    counted = sum(map(counted_s, sets))
    own = sum(map(counted_s, run.sets))
    setup.record(
        f"time in which admitted sets ran with their promises{title}",
        "s",
        None,
        counted,
        "-",
        None,
        own_s=own,
        own_percent=100 * own / run.seconds(),
        hour_percent=100 * counted / HOUR,
    )
    print(
        f"    {counted:.0f} s of the hour are there ({100 * counted / HOUR:.1f} %): this run added "
        f"{own:.0f} s in {run.seconds():.0f} s",
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
