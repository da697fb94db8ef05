# SPDX-License-Identifier: MIT
"""Run a task set for real, and compare its lateness with the bounds of the analysis.

Every task is a process.  It sleeps until its release and burns its CPU time.  The thread's CPU
clock measures that time, so that a preemption does not count.  Where the task uses a GPU, it takes
a GPU of its cluster's pool, in the order of arrival and with inheritance (:mod:`rtxg.queues`), and
sleeps for the GPU time.  So a run tests this machine's scheduling, wake-ups, locks and interrupts,
not a GPU's speed.  Times in results are microseconds.

What is promised depends on who schedules: SCHED_FIFO and the module's `rm` are fixed priorities,
SCHED_DEADLINE and the module's `edf` are EDF.  :func:`as_run` is the task set that a policy runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import platform
import select
import struct
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from . import periodic
from .analysis import Analysis, TaskResult
from .late import (
    LateJob,
    Stretches,
    Thief,
    denied,
    explain,
    over_limit,
    real_time_limit,
)
from .model import Task, TaskSet
from .queues import Pool

#: The module's own are `edf`, `rm` and `module-deadline`, which corrects SCHED_DEADLINE for
#: sleeping jobs.
POLICIES = ("auto", "deadline", "fifo", "edf", "rm", "module-deadline", "other")

#: SCHED_FIFO's, without the lowest, which is for others, and the highest.
MOST_PRIORITIES = 97

#: Policies under which a task has one priority.
_FIXED = ("fifo", "rm")

#: Policies that are SCHED_FIFO's priorities to the kernel, whose limit of real-time tasks holds.
LIMITED = ("fifo", "rm", "edf")

#: Late jobs of a task that are explained: the last ones.
KEPT_LATE = 1000

_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
_SCHED_DEADLINE = 6


#: What a SCHED_DEADLINE reservation has above a job's own time: a share of it, and microseconds.
#: The kernel charges a reservation for more than the thread's CPU clock counts: switches,
#: interrupts, the start of the job and the call that ends it.  Without a margin a job is throttled
#: just before its end and ends a period later.
MARGIN_SHARE, MARGIN = 0.02, 500.0


@dataclass(slots=True)
class Observed:
    """The results of one task's jobs."""

    task: str
    responses: list[float] = field(default_factory=list)
    max_tardiness: float = 0.0
    missed: int = 0
    late: list[LateJob] = field(default_factory=list)  #: of the jobs that missed, the last ones

    @property
    def max_response(self) -> float:
        return max(self.responses, default=0.0)


def choose_policy(taskset: TaskSet) -> str:
    """What ``auto`` stands for: the policy that is the platform's scheduler.

    Fixed priorities: the module's `rm` where that is the order, else SCHED_FIFO.  EDF:
    SCHED_DEADLINE over the whole machine where no job sleeps for a GPU, else the module's `edf`,
    and without the module SCHED_FIFO.  Without the right to any of them, the ordinary policy.
    """
    if not _may_be_real_time():
        return "other"
    machine = len(os.sched_getaffinity(0))
    p = taskset.platform
    if p.scheduler in ("RM", "P-FP"):
        return "rm" if periodic.available() and not why_not_promised(taskset, "rm") else "fifo"
    sleeps = any(t.uses_gpu for t in taskset)
    if (
        p.clusters == 1
        and p.cpus == machine
        and not sleeps
        and platform.machine() in _SCHED_SETATTR
    ):
        return "deadline"
    return "edf" if periodic.available() else "fifo"


def as_run(taskset: TaskSet, policy: str) -> TaskSet:
    """The task set as that policy schedules it: what is to be analysed to know what is promised.

    :param policy: one of :data:`POLICIES`, not auto.
    """
    p = taskset.platform
    if policy in _FIXED and p.scheduler in ("G-EDF", "G-FL"):
        tasks = taskset.tasks
        if policy == "fifo":  # in order of deadlines, the priorities that :func:`replay` gives
            ranks = _ranks(taskset)
            tasks = tuple(replace(t, priority=ranks[t.name]) for t in tasks)
        return TaskSet(tasks, replace(p, scheduler="RM"), taskset.name)
    return taskset


def why_not_promised(taskset: TaskSet, policy: str) -> str:
    """Why bounds need not hold under that policy; empty where they are to hold."""
    p = taskset.platform
    if policy == "other":
        return "without real-time priority"
    if policy == "deadline" and any(t.uses_gpu for t in taskset):
        return (
            "SCHED_DEADLINE postpones the deadline of a job that slept for its GPU "
            "(use edf with rtxg.ko)"
        )
    if policy in ("deadline", "module-deadline") and (
        p.clusters > 1 or p.cpus != len(os.sched_getaffinity(0))
    ):
        return "SCHED_DEADLINE is EDF over all CPUs of the machine, not in clusters"
    if policy in ("deadline", "edf", "module-deadline") and p.scheduler in ("RM", "P-FP"):
        return f"{policy} is not {p.scheduler}"
    if policy == "rm" and any(t.priority or t.deadline != t.period for t in taskset):
        return "rm goes by periods, and the file has priorities or deadlines of its own"
    if policy == "rm" and len({(t.cluster, t.period) for t in taskset}) < len(taskset):
        return (
            "rm gives equal periods one priority, and the analysis counts one of two as more urgent"
        )
    if p.scheduler == "G-FL":
        return "nothing here schedules by G-FL"
    return ""


def _ranks(taskset: TaskSet) -> dict[str, int]:
    """SCHED_FIFO priorities by name, all different: as the file says, then by period where the
    platform has fixed priorities and by deadline elsewhere, and of equals the first one is the most
    urgent.

    :raises ValueError: more tasks than priorities.
    """
    if len(taskset) > MOST_PRIORITIES:
        raise ValueError(
            f"{len(taskset)} tasks, and SCHED_FIFO has {MOST_PRIORITIES} priorities for them; "
            "use edf, or fewer"
        )
    fixed = taskset.platform.scheduler in ("RM", "P-FP")

    def urgency(at: int) -> tuple:
        t = taskset.tasks[at]
        return t.priority, -(t.period if fixed else t.deadline), -at

    return {
        taskset.tasks[at].name: 2 + i
        for i, at in enumerate(sorted(range(len(taskset)), key=urgency))
    }


def _may_be_real_time() -> bool:
    """Whether a child may take SCHED_FIFO."""
    child = os.fork()
    if child == 0:
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _become_deadline(runtime: int, deadline: int, period: int) -> None:
    """sched_setattr(2) with SCHED_DEADLINE, nanoseconds; raises OSError."""
    # size, policy, flags, nice, priority, runtime, deadline, period (struct sched_attr, version 0)
    attributes = struct.pack("<IIQiIQQQ", 48, _SCHED_DEADLINE, 0, 0, 0, runtime, deadline, period)
    libc = ctypes.CDLL(None, use_errno=True)
    # The kernel takes back what a task had only at the end of its period, also when it has ended.
    until = time.monotonic() + 1 + period / 1e9
    while libc.syscall(_SCHED_SETATTR[platform.machine()], 0, attributes, 0) < 0:
        number = ctypes.get_errno()
        if number != errno.EBUSY or time.monotonic() > until:
            raise OSError(
                number, f"SCHED_DEADLINE {runtime}/{deadline}/{period} ns: {os.strerror(number)}"
            )
        time.sleep(0.02)


def reservation(result: TaskResult) -> float:
    """Microseconds of a SCHED_DEADLINE reservation for one job: CPU time only, since suspensions do
    not count, with its overheads and the margin."""
    own = float(result.inflated - result.blocking - result.task.gpu_time)
    return own * (1 + MARGIN_SHARE) + MARGIN


class _Gate:
    """Lets processes begin at one moment, when each of them is ready."""

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._ready, self._go = os.pipe(), os.pipe()

    def wait(self) -> float | None:
        """In a process: it is ready.  When to begin (time.monotonic); None: another one failed."""
        os.write(self._ready[1], b"r")
        os.close(self._ready[1])
        (begin,) = struct.unpack("d", os.read(self._go[0], 8))
        return begin or None

    def open(self, pause: float) -> None:
        """In their parent: begin so many seconds after all of them are ready, or not at all."""
        os.close(self._ready[1])
        ready = 0
        while ready < self._processes and (more := os.read(self._ready[0], self._processes)):
            ready += len(more)
        begin = time.monotonic() + pause if ready == self._processes else 0.0
        os.write(self._go[1], struct.pack("d", begin) * self._processes)
        for fd in (self._ready[0], *self._go):
            os.close(fd)


def _job(
    task: Task, pool: Pool | None, jobs: periodic.Jobs | None, before: float, track: Stretches
) -> float:
    """One job of a task, with the same stretches as in the simulator; what the thread's CPU clock
    then shows.

    :param before: what it showed at the end of the job before.  All that the thread has used since
        is part of the job's cost: else its own calls would be work that the analysis does not know.
    """
    inside = float(task.held - task.gpu_time) / 1e6
    outside = float(task.cost) / 1e6 - inside
    used = before

    def burn(seconds: float) -> None:
        nonlocal used
        used += seconds
        track.burn(used)

    if pool is None:
        burn(outside)
        return max(used, time.thread_time())
    requests, calls = task.gpu_requests, task.gpu_calls // task.gpu_requests
    for _ in range(requests):
        burn(outside / (requests + 1))
        asked = time.monotonic()
        with pool.one(float(task.section)):
            track.slept(asked)
            for _ in range(calls):
                burn(inside / requests / (calls + 1))
                if jobs:
                    jobs.waits_for_gpu(True)
                began = time.monotonic()
                time.sleep(float(task.gpu_time) / task.gpu_calls / 1e6)
                track.slept(began)
                if jobs:
                    jobs.waits_for_gpu(False)
            burn(inside / requests / (calls + 1))
    burn(outside / (requests + 1))
    return max(used, time.thread_time())


def _run_task(
    result: TaskResult,
    rank: int,
    cpus: list[int],
    policy: str,
    pool: Pool | None,
    gate: _Gate,
    seconds: float,
) -> dict:
    task = result.task
    deadline_us = min(task.deadline, task.period)
    jobs = None
    if policy in periodic.SCHEDULERS:
        # What a job has of its CPU and GPU together: the module charges a sleep for the GPU.
        runtime = min(
            reservation(result) + float(task.gpu_time + result.blocking), float(deadline_us)
        )
        cluster = None if policy == "module-deadline" else cpus
        jobs = periodic.Jobs(
            policy,
            int(task.period * 1000),
            int(deadline_us * 1000),
            int(runtime * 1000),
            0,
            cluster,
        )
    elif policy != "deadline":  # the kernel takes SCHED_DEADLINE on all CPUs only
        os.sched_setaffinity(0, cpus)
    if policy == "fifo":
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(rank))
    elif policy == "deadline":
        runtime = min(reservation(result), float(deadline_us))
        _become_deadline(int(runtime * 1000), int(deadline_us * 1000), int(task.period * 1000))
    seen = Observed(task.name)
    period, deadline = float(task.period) / 1e6, float(task.deadline) / 1e6
    start = gate.wait()
    if start is None:
        return {"error": ""}  # another task says why
    release, end = start + float(task.offset) / 1e6, start + seconds
    if jobs:
        jobs.begin(int(release * 1e9))
    track, late = Stretches(), deque(maxlen=KEPT_LATE)
    used = time.thread_time()
    while release < end:
        pause = release - time.monotonic()
        if pause > 0 and not jobs:
            time.sleep(pause)
        used = _job(task, pool, jobs if policy == "module-deadline" else None, used, track)
        response = time.monotonic() - release
        seen.responses.append(response * 1e6)
        seen.max_tardiness = max(seen.max_tardiness, (response - deadline) * 1e6)
        if response > deadline:
            seen.missed += 1
            late.append((release, response))
        release += period
        if jobs and release < end:
            jobs.next()
    return {
        "responses": seen.responses,
        "max_tardiness": max(0.0, seen.max_tardiness),
        "missed": seen.missed,
        "late": list(late),
        "ran": list(track.ran),
        "slept": list(track.sleeps),
    }


def _explained(
    analysis: Analysis, policy: str, found: dict[str, dict], thieves: dict[int, Thief]
) -> dict[str, list[LateJob]]:
    """By task: what kept each late job from its CPUs."""
    limit = real_time_limit() if policy in LIMITED else None
    if limit and over_limit(analysis, limit)[1] <= limit.runtime:
        limit = None  # the set cannot strike it: what took its CPUs is outside of it
    cpus = analysis.taskset.platform.cpus_per_cluster
    explained: dict[str, list[LateJob]] = {}
    for name, one in found.items():
        task = analysis[name].task
        own = sorted(map(tuple, one["ran"] + one["slept"]))
        others = [
            ran["ran"]
            for other, ran in found.items()
            if other != name and analysis[other].task.cluster == task.cluster
        ]
        explained[name], since, ended = [], 0.0, 0.0
        for release, response in one["late"]:
            # What kept the job before it until after its release kept it, too.
            since = since if ended > release else release
            ended = release + response
            lost = denied(since, ended, own, others, cpus)
            thief = thieves[task.cluster or 0]
            deadline = float(task.deadline) / 1e6
            explained[name].append(
                explain(name, (since, release, ended), deadline, lost, thief, limit)
            )
    return explained


def replay(
    analysis: Analysis,
    seconds: float,
    policy: str = "auto",
    progress: Callable[[str], None] = lambda what: None,
) -> tuple[str, list[Observed]]:
    """Run the task set of an analysis.

    :param seconds: how long jobs are released.
    :param policy: one of :data:`POLICIES`.
    :param progress: called once a second with how far it is.
    :returns: the policy used, and what each task did.
    :raises ValueError: the machine has fewer CPUs than the platform.
    :raises OSError: a task was refused its policy, or died.
    """
    taskset = analysis.taskset
    p = taskset.platform
    machine = sorted(os.sched_getaffinity(0))
    if p.cpus > len(machine):
        raise ValueError(
            f"the platform has {p.cpus} CPUs and this machine lends {len(machine)}; "
            "lower cpus to run it here"
        )
    if policy not in POLICIES:
        raise ValueError(f"policy {policy!r} is unknown; use one of {', '.join(POLICIES)}")
    chosen = choose_policy(taskset) if policy == "auto" else policy
    # Under P-FP all share one GPU, elsewhere a cluster has its own.
    users = sum(t.uses_gpu for t in taskset)
    shared = p.scheduler == "P-FP"
    pools = (
        [Pool(max(1, p.gpus_per_cluster), users) for _ in range(1 if shared else p.clusters)]
        if users
        else []
    )
    ranks = _ranks(taskset) if chosen == "fifo" else dict.fromkeys((t.name for t in taskset), 0)
    children = []
    gate = _Gate(len(taskset))
    for task in taskset:
        first = (task.cluster or 0) * p.cpus_per_cluster
        cpus = machine[first : first + p.cpus_per_cluster]
        pool = pools[0 if shared else task.cluster or 0] if task.uses_gpu else None
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            try:
                answer = _run_task(
                    analysis[task.name], ranks[task.name], cpus, chosen, pool, gate, seconds
                )
            except BaseException as error:
                answer = {"error": f"{error}"}
            with contextlib.suppress(BaseException), os.fdopen(writer, "w") as out:
                json.dump(answer, out)
            os._exit(0)
        os.close(writer)
        children.append((task, child, reader))
    # A SCHED_DEADLINE server that woke before its first deadline would keep that deadline, and the
    # budget that is left, and serve each job in the middle of a period: all of them have passed
    # when jobs begin.
    gate.open(0.05 + float(max(t.period for t in taskset)) / 1e6)
    found, errors = {}, []
    with contextlib.ExitStack() as stack:
        thieves = {
            at: stack.enter_context(Thief(machine[at * p.cpus_per_cluster :][: p.cpus_per_cluster]))
            for at in range(p.clusters)
        }
        began = time.monotonic()
        for task, child, reader in children:
            answered = select.poll()
            answered.register(reader)
            while not answered.poll(1000):
                passed = min(seconds, time.monotonic() - began)
                progress(f"{passed:.0f} of {seconds:g} s run under {chosen}")
            with os.fdopen(reader) as answer:
                text = answer.read()
            os.waitpid(child, 0)
            one = json.loads(text) if text else {"error": "died"}
            if "error" in one:
                errors += [f"task {task.name}: {one['error']}"] if one["error"] else []
            else:
                found[task.name] = one
    if errors:
        raise OSError("; ".join(errors))
    explained = _explained(analysis, chosen, found, thieves)
    return chosen, [
        Observed(name, one["responses"], one["max_tardiness"], one["missed"], explained[name])
        for name, one in found.items()
    ]
