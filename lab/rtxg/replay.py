# SPDX-License-Identifier: MIT
"""Run a task set for real, and compare its lateness with the bounds of the analysis.

Every task is a process.  It sleeps until its release and burns its CPU time.  The thread's CPU clock
measures that time, so that a preemption does not count.  Where the task uses a GPU, it takes a GPU of
its cluster's pool and sleeps for the GPU time.  So a run tests this machine's scheduling, wake-ups
and interrupts, not a GPU's speed.  Times in results are microseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import multiprocessing
import os
import platform
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from .analysis import Analysis, TaskResult
from .model import Task, TaskSet

POLICIES = ("auto", "deadline", "fifo", "other")

_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
_SCHED_DEADLINE = 6


#: What a SCHED_DEADLINE reservation has above a job's own time: a share of it, and microseconds.  The
#: kernel charges a reservation for more than the thread's CPU clock counts: switches, interrupts,
#: the start of the job and the call that ends it.  Without a margin a job is throttled just before
#: its end and ends a period later.
MARGIN_SHARE, MARGIN = 0.02, 500.0


@dataclass(slots=True)
class Observed:
    """The results of one task's jobs."""

    task: str
    responses: list[float] = field(default_factory=list)
    max_tardiness: float = 0.0
    missed: int = 0

    @property
    def max_response(self) -> float:
        return max(self.responses, default=0.0)


def choose_policy(taskset: TaskSet) -> str:
    """What ``auto`` stands for: SCHED_DEADLINE where it is global EDF over the machine, else SCHED_FIFO
    in order of deadlines, else, without the right to either, the ordinary policy."""
    if not _may_be_real_time():
        return "other"
    machine = len(os.sched_getaffinity(0))
    p = taskset.platform
    if p.scheduler == "G-EDF" and p.clusters == 1 and p.cpus == machine and platform.machine() in _SCHED_SETATTR:
        return "deadline"
    return "fifo"


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
    if libc.syscall(_SCHED_SETATTR[platform.machine()], 0, attributes, 0) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"SCHED_DEADLINE {runtime}/{deadline}/{period} ns: {os.strerror(number)}")


def reservation(result: TaskResult) -> float:
    """Microseconds of a SCHED_DEADLINE reservation for one job: CPU time only, since suspensions do not
    count, with its overheads and the margin."""
    own = float(result.inflated - result.blocking - result.task.gpu_time)
    return own * (1 + MARGIN_SHARE) + MARGIN


def burn(seconds: float) -> None:
    """Use so much of this thread's CPU time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def _job(task: Task, pool: object) -> None:
    """One job of a task, with the same stretches as in the simulator."""
    inside = float(task.section - task.gpu_time) / 1e6
    outside = float(task.cost) / 1e6 - inside
    if not task.uses_gpu:
        burn(outside)
        return
    burn(outside / 2)
    with pool:
        for _ in range(task.gpu_calls):
            burn(inside / (task.gpu_calls + 1))
            time.sleep(float(task.gpu_time) / task.gpu_calls / 1e6)
        burn(inside / (task.gpu_calls + 1))
    burn(outside / 2)


def _run_task(
    task: Task, rank: int, cpus: Sequence[int], policy: str, runtime: float, pool: object, start: float, end: float
) -> dict:
    if policy != "deadline":  # the kernel takes SCHED_DEADLINE on all CPUs only
        os.sched_setaffinity(0, cpus)
    if policy == "fifo":
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(rank))
    elif policy == "deadline":
        deadline = min(task.deadline, task.period)
        _become_deadline(min(int(runtime * 1000), int(deadline * 1000)), int(deadline * 1000), int(task.period * 1000))
    seen = Observed(task.name)
    period, deadline = float(task.period) / 1e6, float(task.deadline) / 1e6
    release = start + float(task.offset) / 1e6
    while release < end:
        pause = release - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        _job(task, pool)
        response = time.monotonic() - release
        seen.responses.append(response * 1e6)
        seen.max_tardiness = max(seen.max_tardiness, (response - deadline) * 1e6)
        seen.missed += response > deadline
        release += period
    return {"responses": seen.responses, "max_tardiness": max(0.0, seen.max_tardiness), "missed": seen.missed}


def replay(analysis: Analysis, seconds: float, policy: str = "auto") -> tuple[str, list[Observed]]:
    """Run the task set of an analysis.

    :param seconds: how long jobs are released.
    :param policy: one of :data:`POLICIES`.
    :returns: the policy used, and what each task did.
    :raises ValueError: the machine has fewer CPUs than the platform.
    :raises OSError: a task was refused its policy, or died.
    """
    taskset = analysis.taskset
    p = taskset.platform
    machine = sorted(os.sched_getaffinity(0))
    if p.cpus > len(machine):
        raise ValueError(f"the platform has {p.cpus} CPUs and this machine lends {len(machine)}; lower cpus to run it here")
    if policy not in POLICIES:
        raise ValueError(f"policy {policy!r} is unknown; use one of {', '.join(POLICIES)}")
    chosen = choose_policy(taskset) if policy == "auto" else policy
    context = multiprocessing.get_context("fork")
    pools = [context.BoundedSemaphore(max(1, p.gpus_per_cluster)) for _ in range(p.clusters)]
    by_deadline = sorted(taskset, key=lambda t: (-t.priority, t.deadline), reverse=True)
    ranks = {t.name: min(98, 2 + i) for i, t in enumerate(by_deadline)}
    begin = time.monotonic() + 0.2 + 0.01 * len(taskset)
    children = []
    for task in taskset:
        first = (task.cluster or 0) * p.cpus_per_cluster
        cpus = machine[first : first + p.cpus_per_cluster]
        result = analysis[task.name]
        runtime = reservation(result) if chosen == "deadline" else 0.0
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            try:
                answer = _run_task(
                    task, ranks[task.name], cpus, chosen, runtime, pools[task.cluster or 0], begin, begin + seconds
                )
            except BaseException as error:
                answer = {"error": f"{error}"}
            with contextlib.suppress(BaseException), os.fdopen(writer, "w") as out:
                json.dump(answer, out)
            os._exit(0)
        os.close(writer)
        children.append((task, child, reader))
    observed, errors = [], []
    for task, child, reader in children:
        with os.fdopen(reader) as answer:
            text = answer.read()
        os.waitpid(child, 0)
        found = json.loads(text) if text else {"error": "died"}
        if "error" in found:
            errors.append(f"task {task.name}: {found['error']}")
        else:
            observed.append(Observed(task.name, found["responses"], found["max_tardiness"], found["missed"]))
    if errors:
        raise OSError("; ".join(errors))
    return chosen, observed
