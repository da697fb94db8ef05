# SPDX-License-Identifier: MIT
"""CPUs, GPUs, interrupts and bottom halves in virtual time.

A cluster of CPUs runs jobs by global EDF, global fair lateness or fixed priorities.  A GPU-using job
asks the compiled scheduler core for a GPU of the pool (the k-FMLP as it runs in the daemon and in
the kernel module), works on it and gives it back; every GPU call ends with an interrupt whose top
half strikes some CPU and whose bottom half is executed as the chosen handling says.  Jobs that are
interrupted keep their CPU, as interrupted stacks do.

Time is a whole number of nanoseconds and jumps from one happening to the next.  Equal seeds give
equal runs.

Which GPU of a pool a job gets, and when, is the core's decision.  So is the priority that a holder
inherits under fixed priorities (RM).  Three things are models of this module, and not the core:

- Under G-EDF and G-FL a holder inherits the earliest deadline among those it keeps waiting.  The
  core knows priorities 1..99 and no deadlines of CPU jobs; its queues are followed here.
- Under P-FP with a lock (`_LockedGpu`) requests wait in a queue of this module.
- Under P-FP without one (`_SharedGpu`) one GPU works on the most urgent segment under way, and takes it from the
  others at a cost.  That is the GPU of the analysis in `rtxg.analysis`: a lever that suspends.  The
  core, whose permits are never taken while a launch is in flight, has no part in it.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from math import ceil, floor

from .inversions import Meter, Piece
from .model import Task, TaskSet
from .overheads import NO_OVERHEADS, Interrupts, Overheads
from .units import format_time

#: Instants between two words on how far a simulation is.
PROGRESS_EVERY = 1000

#: A key beyond those of all jobs, whose first part is a time in nanoseconds or a priority.
_BEYOND = 1 << 62


class Handling(Enum):
    """Who executes bottom halves in a simulation."""

    NONE = "none"  #: interrupts take no CPU time; a call ends when the GPU is done
    SLIH = "slih"  #: right after the top half, on the CPU it struck
    PAI = "pai"  #: by the owner's priority, on top of the job with the least priority, to the end
    KLMIRQD = "klmirqd"  #: a thread with the owner's priority, never at the same time as the owner
    THREAD_LOW = "thread-low"  #: PREEMPT_RT: one thread a GPU, below all tasks
    THREAD_HIGH = "thread-high"  #: PREEMPT_RT: one thread a GPU, above all tasks

    @classmethod
    def of(cls, interrupts: Interrupts) -> Handling:
        """The handling that an analysis assumed.

        `rtxg` models the interrupt threads of klmirqd, as rtxg.ko runs them (docs/interrupts.md).
        """
        return cls.KLMIRQD if interrupts is Interrupts.RTXG else cls(interrupts.value)


@dataclass(frozen=True, slots=True)
class Options:
    """How a simulation is run.

    :param length: simulated time, microseconds.
    :param seed: of all that is random.
    :param execution: least share of its worst case that a job executes, 1: always the worst case.
    :param sporadic: greatest extra time between releases, as a share of the period; 0: periodic.
    :param random_offsets: first releases at random times within a period, not at the tasks' offsets.
    :param asynchronous: a job queues all its GPU calls at the start of its section and goes on with
        the section's CPU part while the GPU works, as programs do that wait at the end only.
    :param strikes: the CPU of each cluster that its GPUs' interrupts strike; None: they go round.
    :param shift_releases: a late job moves its successors' releases to its own completion, as in
        the measurements of section VI of the klmirqd paper.
    :param bottom_half: draws the length of a bottom half in microseconds; None: always as in the
        overheads.
    :param whole_halves: klmirqd's threads go on to the end of a bottom half, as tasklets do on kernels
        without PREEMPT_RT.
    :param meter: also measure inversions as the live meter does, which takes its time.
    """

    length: Fraction
    seed: int = 1
    execution: float = 1.0
    sporadic: float = 0.0
    random_offsets: bool = False
    asynchronous: bool = False
    shift_releases: bool = False
    strikes: int | None = None
    bottom_half: Callable[[random.Random], float] | None = None
    whole_halves: bool = False
    meter: bool = False

    def __post_init__(self) -> None:
        if self.length <= 0:
            raise ValueError(f"length is {self.length}; it must be above 0")
        if self.seed < 0:
            raise ValueError(
                f"seed is {self.seed}; it must be 0 or more"
            )  # Python draws for -1 as for 1
        if not 0 < self.execution <= 1:
            raise ValueError(f"execution is {self.execution}; it must be above 0 and at most 1")
        if not 0 <= self.sporadic <= 1000:
            raise ValueError(f"sporadic is {self.sporadic}; it must be from 0 to 1000 periods")


@dataclass(slots=True)
class TaskTrace:
    """The results of one task's jobs; times in microseconds."""

    task: Task
    released: int = 0
    completed: int = 0
    missed: int = 0  #: completed late, or not completed by a deadline within the simulated time
    max_response: Fraction = Fraction(0)
    total_response: Fraction = Fraction(0)
    max_tardiness: Fraction = Fraction(0)

    @property
    def mean_response(self) -> Fraction:
        return self.total_response / self.completed if self.completed else Fraction(0)

    @property
    def missed_share(self) -> float:
        return self.missed / self.released if self.released else 0.0


@dataclass(slots=True)
class Trace:
    """The results of a simulation."""

    tasks: dict[str, TaskTrace] = field(default_factory=dict)
    #: Lengths, in microseconds, of spans in which a bottom half (or its hand-over) kept a job from a
    #: CPU that the job was entitled to, on behalf of an owner that was not entitled or ran elsewhere.
    inversions: list[float] = field(default_factory=list)
    #: Inversions of all kinds, in nanoseconds by (owner, kind), as the live meter defines them.
    metered: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    #: (CPU, start, end, what) in microseconds: jobs by task name, handlers as "top half" and so on.
    spans: list[tuple[int, float, float, str]] = field(default_factory=list)
    #: (GPU, start, end, task) in microseconds: while a job held a GPU.
    held: list[tuple[int, float, float, str]] = field(default_factory=list)
    #: (task, release, deadline, missed) in microseconds, of every job that ended or missed.
    jobs: list[tuple[str, float, float, bool]] = field(default_factory=list)
    events: int = 0


@dataclass(slots=True, eq=False)
class _Job:
    """A released job, or the bottom-half thread of a GPU (then ``task`` is None)."""

    key: tuple
    index: int
    task: Task | None = None
    release: int = 0
    deadline: int = 0
    segments: deque = field(default_factory=deque)
    remaining: int = 0  # CPU time left of the current segment
    bottom: int = 0  # CPU time left of bottom halves executed in the owner's stead
    stall: int = 0  # switching cost to be paid before going on
    ready: bool = False  # may execute its current segment
    gpu: int | None = None  # holds or waits for this one
    holds: bool = False
    held_since: int = 0
    inherits: int = 0  # priority, while it holds; the core says so
    calls: int = 0  # GPU calls whose end it has not seen
    gpu_free: int = 0  # when the GPU is through with the calls queued so far
    waiting: bool = False  # executes nothing until its calls have ended
    cpu: int | None = None
    halves: deque = field(default_factory=deque)  # of a thread: (length, owner)

    @property
    def runnable(self) -> bool:
        return self.ready or self.bottom > 0

    def half_under_way(self) -> tuple[int, bool]:
        """Of the bottom half that is its next: the CPU time left, and whether it has begun."""
        left = self.bottom
        for length in reversed(self.halves):
            if left <= length:
                return left, left < length
            left -= length
        return left, False


@dataclass(slots=True)
class _Cpu:
    number: int
    job: _Job | None = None
    handlers: deque = field(default_factory=deque)  # (length, what, owner, then), the first one runs
    handler_end: int | None = None
    since: int = 0
    version: int = 0
    inverted: tuple[int, str] | None = None


def _ns(microseconds: Fraction | float) -> int:
    return ceil(Fraction(microseconds) * 1000)


class _Cluster:
    """One cluster and its GPUs."""

    def __init__(
        self,
        tasks: Sequence[Task],
        cpus: int,
        gpus: int,
        scheduler: str,
        handling: Handling,
        overheads: Overheads,
        options: Options,
    ) -> None:
        self.tasks, self.scheduler, self.handling, self.options = tasks, scheduler, handling, options
        self.random = random.Random(options.seed)
        self.now = 0
        self.end = floor(options.length * 1000)
        o = overheads
        self.top_half, self.bottom_half = _ns(o.th), _ns(o.bh)
        self.switch = _ns(o.sch + o.cxs + (o.paisch if handling is Handling.PAI else 0))
        self.wake_latency = _ns(o.rel + o.ipi)
        self.hand_over = _ns(o.pairel if handling is Handling.PAI else o.krel)
        self.tick, self.quantum = _ns(o.tck), _ns(o.quantum)
        self.cpus = [_Cpu(c) for c in range(cpus)]
        self.points = self._priority_points(cpus)
        self.trace = Trace({t.name: TaskTrace(t) for t in tasks})
        self.current: list[_Job | None] = [None] * len(tasks)  # the job of each task that may execute
        self.backlog: list[deque[_Job]] = [deque() for _ in tasks]
        self.queues: list[list[_Job]] = [[] for _ in range(gpus)]
        beyond = -_BEYOND if handling is Handling.THREAD_HIGH else _BEYOND
        self.threads = [_Job((beyond, g), len(tasks) + g) for g in range(gpus)]
        self.deferred: list[tuple[tuple, int, int, _Job]] = []  # PAI's queue of bottom halves
        self.meter = Meter()
        # The core knows priorities from 1 to 99: the tasks' order stands for theirs.  Where there are
        # more tasks, some share a number, and its holder is taken for the most urgent of them.
        order = sorted(range(len(tasks)), key=self._fixed_key)
        self.numbers = {i: 99 - rank * 99 // len(tasks) for rank, i in enumerate(order)}
        self.keys = {self.numbers[i]: self._fixed_key(i) for i in reversed(order)}
        self._heap: list = []
        self._sequence = 0
        self._next_cpu = 0
        self.core = None
        if any(t.uses_gpu for t in tasks) and scheduler != "P-FP":
            from .core import Core

            self.core = Core(gpus=gpus, vgpus=1, tasks=len(tasks), pools=1)
            for gpu in range(gpus):
                self.core.step(0, "gpu_add", gpu=gpu, policy="fifo")
            self.core.step(0, "vgpu_add", vgpu=0, gpu=0)
            self.core.step(0, "pool_add", pool=0, gpu_mask=(1 << gpus) - 1)
            for i, t in enumerate(tasks):
                if t.uses_gpu:
                    self.core.step(0, "open", task=i, vgpu=0)

    def _fixed_key(self, index: int) -> tuple:
        """What orders tasks of fixed priority, the most urgent first."""
        return -self.tasks[index].priority, self.tasks[index].period, index

    def _priority_points(self, cpus: int) -> list[int] | list[Fraction]:
        if self.scheduler == "G-FL":
            return [_ns(t.deadline) - Fraction(cpus - 1, cpus) * t.cost * 1000 for t in self.tasks]
        return [_ns(t.deadline) for t in self.tasks]

    # Events ------------------------------------------------------------------------------------------

    def at(self, time: int, what: Callable[..., None], *arguments: object) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (time, self._sequence, what, arguments))

    def run(self, progress: Callable[[str], None] = lambda what: None) -> Trace:
        """Simulate to the end.

        :param progress: called now and then with how far it is.
        """
        instants = 0
        for i, t in enumerate(self.tasks):
            first = self.random.randrange(_ns(t.period)) if self.options.random_offsets else _ns(t.offset)
            self.at(first, self._release, i, first)
        if self.tick:
            self.at(self.quantum, self._tick)
        while self._heap and self._heap[0][0] <= self.end:
            time = self._heap[0][0]
            self._advance(time)
            while self._finish_stretches():  # what ends now ends before anything else begins
                pass
            while self._heap and self._heap[0][0] == time:
                _, _, what, arguments = heapq.heappop(self._heap)
                what(*arguments)
                self.trace.events += 1
            self._schedule()
            if self.options.meter:
                self.meter.look(self.now, self._pieces())
            instants += 1
            if instants % PROGRESS_EVERY == 0:
                done, whole = format_time(self.now / 1000), format_time(self.end / 1000)
                progress(f"{done} of {whole} of virtual time, {self.trace.events} events")
        self._advance(self.end)
        self.meter.look(self.end, {})
        self.trace.metered = self.meter.found
        for jobs in [*([j] for j in self.current if j), *self.backlog]:
            for job in jobs:
                if job.deadline <= self.end:
                    self.trace.tasks[job.task.name].missed += 1
                    self._note(job, True)
                    self._late(job, self.end)
        return self.trace

    def _note(self, job: _Job, missed: bool) -> None:
        self.trace.jobs.append((job.task.name, job.release / 1000, job.deadline / 1000, missed))

    def _late(self, job: _Job, at: int) -> None:
        seen = self.trace.tasks[job.task.name]
        seen.max_tardiness = max(seen.max_tardiness, Fraction(max(0, at - job.deadline), 1000))

    def _advance(self, time: int) -> None:
        """Let every CPU execute until ``time``."""
        for cpu in self.cpus:
            job = cpu.job
            if job is not None and cpu.handler_end is None:
                passed = time - cpu.since
                if passed:
                    self.trace.spans.append(
                        (cpu.number, cpu.since / 1000, time / 1000, job.task.name if job.task else "bottom half")
                    )
                    paid = min(passed, job.stall)
                    job.stall -= paid
                    passed -= paid
                    paid = min(passed, job.bottom)
                    job.bottom -= paid
                    job.remaining -= passed - paid
            cpu.since = time
        self.now = time

    # Jobs --------------------------------------------------------------------------------------------

    def _release(self, index: int, time: int) -> None:
        task, options = self.tasks[index], self.options
        deadline = time + _ns(task.deadline)
        if self.scheduler in ("RM", "P-FP"):
            key = self._fixed_key(index)
        else:
            key = (time + self.points[index], index)
        job = _Job(key, index, task, time, deadline, self._segments(task))
        self.trace.tasks[task.name].released += 1
        if self.current[index] is None:
            self._begin(job)
        else:
            self.backlog[index].append(job)
        extra = self.random.random() * options.sporadic
        following = time + _ns(task.period) + int(extra * _ns(task.period))
        if not options.shift_releases:
            self.at(following, self._release, index, following)

    def _segments(self, task: Task) -> deque:
        """The stretches of one job: ("cpu", ns), ("lock",), ("gpu", ns), ("wait",), ("unlock",)."""
        share = Fraction(1)
        if self.options.execution < 1:
            share = Fraction(self.options.execution + (1 - self.options.execution) * self.random.random())
        if not task.uses_gpu:
            return deque([("cpu", floor(task.cost * share * 1000))])
        inside = floor((task.held - task.gpu_time) * share * 1000)
        outside = floor(task.cost * share * 1000) - inside
        # s_i counts the interrupt's own handling; what is left of it is the GPU's work.
        handling = 0 if self.handling is Handling.NONE else self.top_half + self.bottom_half
        work = max(0, floor(task.gpu_time * share * 1000 / task.gpu_calls) - handling)
        requests, calls = task.gpu_requests, task.gpu_calls // task.gpu_requests

        def part(whole: int, number: int, parts: int) -> int:
            return whole * (number + 1) // parts - whole * number // parts

        segments: deque = deque()
        for request in range(requests):
            held = part(inside, request, requests)
            segments += [("cpu", part(outside, request, requests + 1)), ("lock",)]
            if self.options.asynchronous:
                segments += [("gpu", work)] * calls + [("cpu", held), ("wait",)]
            else:
                for call in range(calls):
                    segments += [("cpu", part(held, call, calls + 1)), ("gpu", work), ("wait",)]
                segments.append(("cpu", part(held, calls, calls + 1)))
            segments.append(("unlock",))
        segments.append(("cpu", part(outside, requests, requests + 1)))
        return segments

    def _begin(self, job: _Job) -> None:
        self.current[job.index] = job
        self._wake(job)

    def _wake(self, job: _Job) -> None:
        if self.wake_latency:
            self.at(self.now + self.wake_latency, self._ready, job)
        else:
            self._ready(job)

    def _ready(self, job: _Job) -> None:
        job.ready = True
        if job.remaining == 0:
            self._next_segment(job)

    def _next_segment(self, job: _Job) -> None:
        """Go on to the next stretch of CPU time; segments without CPU time happen now."""
        while job.segments:
            kind, *value = job.segments.popleft()
            if kind == "cpu":
                if value[0]:
                    job.remaining = value[0]
                    return
            elif kind == "lock":
                self._request(job)
                if not job.holds:
                    job.ready = False
                    return
            elif kind == "gpu":
                job.calls += 1
                self._call_gpu(job, value[0])
            elif kind == "wait":
                if job.calls:
                    job.waiting, job.ready = True, False
                    return
            else:
                self._give_back(job)
        self._complete(job)

    def _complete(self, job: _Job) -> None:
        job.ready = False
        response = Fraction(self.now - job.release, 1000)
        seen = self.trace.tasks[job.task.name]
        seen.completed += 1
        seen.max_response = max(seen.max_response, response)
        seen.total_response += response
        seen.missed += self.now > job.deadline
        self._note(job, self.now > job.deadline)
        self._late(job, self.now)
        index = job.index
        self.current[index] = None
        if self.options.shift_releases:
            following = max(self.now, job.release + _ns(job.task.period))
            self.at(following, self._release, index, following)
        elif self.backlog[index]:
            self._begin(self.backlog[index].popleft())

    # GPUs --------------------------------------------------------------------------------------------

    def _request(self, job: _Job) -> None:
        # The core appends the job to the queue that it advises. A holder inherits from its own queue.
        job.gpu = self.core.device_advice(0)
        self.queues[job.gpu].append(job)
        number, section = self.numbers[job.index], _ns(job.task.section)
        for action in self.core.step(
            self.now, "pool_request", pool=0, task=job.index, priority=number, used_ns=section
        ):
            self._granted(action)

    def _call_gpu(self, job: _Job, work: int) -> None:
        job.gpu_free = max(self.now, job.gpu_free) + work
        self.at(job.gpu_free, self._gpu_done, job)

    def _give_back(self, job: _Job) -> None:
        job.holds = False
        self.trace.held.append((job.gpu, job.held_since / 1000, self.now / 1000, job.task.name))
        self.queues[job.gpu].remove(job)
        job.gpu = None
        for action in self.core.step(self.now, "pool_release", pool=0, task=job.index):
            self._granted(action)

    def _granted(self, action: object) -> None:
        """Carry out an action of the core."""
        if action.kind not in ("pool_grant", "pool_inherit"):
            return
        job = self.current[action.task]
        if action.kind == "pool_inherit":
            job.inherits = action.priority
            return
        if job.gpu != action.gpu:  # moved over from another queue
            self.queues[job.gpu].remove(job)
            self.queues[action.gpu].append(job)
            job.gpu = action.gpu
        job.holds, job.held_since = True, self.now
        if not job.ready:
            self._wake(job)

    def effective(self, job: _Job) -> tuple:
        """A job's key, with what a GPU's holder inherits from those who wait for it."""
        if job.holds and self.scheduler == "RM":
            return min(job.key, self.keys[job.inherits]) if job.inherits else job.key  # the core says so
        if job.holds and len(self.queues[job.gpu]) > 1:
            return min(waiter.key for waiter in self.queues[job.gpu])
        return job.key

    def _gpu_done(self, job: _Job) -> None:
        if self.handling is Handling.NONE:
            self._call_ended(job)
            return
        if self.options.strikes is not None:
            self._next_cpu = self.options.strikes % len(self.cpus)
        cpu = self.cpus[self._next_cpu]  # any CPU may be struck
        self._next_cpu = (self._next_cpu + 1) % len(self.cpus)
        self._interrupt(cpu, self.top_half, "top half", job, self._top_half_done)

    def _call_ended(self, job: _Job) -> None:
        job.calls -= 1
        if job.waiting and job.calls == 0:
            job.waiting = False
            self._wake(job)

    # Interrupts --------------------------------------------------------------------------------------

    def _interrupt(
        self, cpu: _Cpu, length: int, what: str, owner: _Job | None, then: Callable | None, *, first: bool = False
    ) -> None:
        entry = (length, what, owner, then)
        if first:
            cpu.handlers.appendleft(entry)
        else:
            cpu.handlers.append(entry)
        if cpu.handler_end is None:
            self._handle(cpu)

    def _handle(self, cpu: _Cpu) -> None:
        length, what, owner, _ = cpu.handlers[0]
        cpu.handler_end = self.now + length
        cpu.version += 1
        if what != "top half" and owner is not None and self._is_inversion(cpu, owner):
            cpu.inverted = (self.now, what)
        self.at(cpu.handler_end, self._handler_done, cpu)

    def _handler_done(self, cpu: _Cpu) -> None:
        length, what, owner, then = cpu.handlers.popleft()
        if length:
            self.trace.spans.append((cpu.number, (self.now - length) / 1000, self.now / 1000, what))
        if cpu.inverted:
            if length:
                self.trace.inversions.append((self.now - cpu.inverted[0]) / 1000)
            cpu.inverted = None
        cpu.handler_end = None
        if then is not None:
            then(cpu, owner)
        if cpu.handler_end is None and cpu.handlers:
            self._handle(cpu)

    def _is_inversion(self, cpu: _Cpu, owner: _Job) -> bool:
        """Whether what runs for ``owner`` on a CPU wrongs the job that has this CPU."""
        victim = cpu.job
        if victim is None or victim is owner:
            return False
        return owner.cpu is not None or self.effective(owner) > self.effective(victim)

    def _pieces(self) -> dict[tuple, Piece]:
        """What the meter is to know of this moment: all that is done, or waits to be done, for an owner."""
        pieces: dict[tuple, Piece] = {}
        for cpu in self.cpus:
            if cpu.handlers:
                _, what, owner, _ = cpu.handlers[0]
                if owner is not None:
                    kind = "top_halves" if what == "top half" else "bottom_halves"
                    wrongs = self._kept_waiting(cpu, owner, cpu.job)
                    pieces["handler", cpu.number, cpu.handler_end] = Piece(owner.task.name, kind, wrongs)
            elif cpu.job is not None and cpu.job.halves:
                owner = cpu.job if cpu.job.task is not None else cpu.job.halves[0][1]
                wrongs = self._kept_waiting(cpu, owner, None)
                pieces["runs", cpu.number] = Piece(owner.task.name, "bottom_halves", wrongs)
        for job in [*(j for j in self.current if j is not None), *self.threads]:
            if job.halves and job.cpu is None:
                owner = job if job.task is not None else job.halves[0][1]
                pieces["waits", job.index] = Piece(owner.task.name, "waits", self._lower_runs(job, owner))
        for _, number, _, owner in self.deferred:
            pieces["deferred", number] = Piece(owner.task.name, "waits", self._lower_runs(owner, owner))
        return pieces

    def _kept_waiting(self, cpu: _Cpu, owner: _Job, interrupted: _Job | None) -> bool:
        """Whether a job that comes before ``owner`` would run on this CPU, if it were not for the owner's work."""
        return any(
            job is not owner and (job is interrupted or job.cpu is None) and self.effective(job) < self.effective(owner)
            for job in self.current
            if job is not None and job.runnable and self._may_run(job, cpu)
        )

    def _lower_runs(self, waiting: _Job, owner: _Job) -> bool:
        """Whether something that comes after ``owner`` runs where ``waiting`` would."""
        return any(
            cpu.job is not None and cpu.job.task is not None and self.effective(cpu.job) > self.effective(owner)
            for cpu in self.cpus
            if not cpu.handlers and self._may_run(waiting, cpu)
        )

    def _may_run(self, job: _Job, cpu: _Cpu) -> bool:
        return True

    def _draw_bottom_half(self) -> int:
        drawn = self.options.bottom_half
        return self.bottom_half if drawn is None else max(0, round(drawn(self.random) * 1000))

    def _top_half_done(self, cpu: _Cpu, owner: _Job) -> None:
        length = self._draw_bottom_half()
        if self.handling is Handling.SLIH:
            self._interrupt(cpu, length, "bottom half", owner, lambda _, job: self._call_ended(job), first=True)
            return

        def handed_over(_: _Cpu, job: _Job) -> None:
            if self.handling is Handling.KLMIRQD:
                job.halves.append(length)
                job.bottom += length
                if not length:
                    self._bottom_halves_done(job)
            elif self.handling is Handling.PAI:
                self._sequence += 1
                heapq.heappush(self.deferred, (self.effective(job), self._sequence, length, job))
            else:
                thread = self.threads[job.gpu]
                thread.halves.append((length, job))
                if len(thread.halves) == 1:
                    thread.remaining, thread.ready = length, True

        self._interrupt(cpu, self.hand_over, "hand-over", owner, handed_over, first=True)

    def _bottom_halves_done(self, job: _Job) -> None:
        for _ in range(len(job.halves)):
            job.halves.popleft()
            self._call_ended(job)

    def _tick(self) -> None:
        for cpu in self.cpus:
            self._interrupt(cpu, self.tick, "tick", None, None)
        self.at(self.now + self.quantum, self._tick)

    # Scheduling --------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        """Give the CPUs to the entitled, and say when the next of them ends a stretch."""
        while self._finish_stretches():
            pass
        self._assign()
        if self.deferred:
            self._run_deferred()
        for cpu in self.cpus:
            job = cpu.job
            if job is not None and cpu.handler_end is None:
                cpu.version += 1
                length = job.bottom or job.remaining
                if self.options.whole_halves and job.task is not None and job.bottom:
                    length = job.half_under_way()[0]
                self.at(self.now + job.stall + length, self._stretch, cpu, cpu.version)

    def _assign(self) -> None:
        """Put the most urgent runnable jobs on the CPUs, moving as few as possible."""
        candidates = [j for j in self.current if j is not None and j.runnable] + [t for t in self.threads if t.runnable]
        candidates.sort(key=self.effective)
        entitled = candidates[: len(self.cpus)]
        chosen = {id(j) for j in entitled}
        for cpu in self.cpus:
            # An interrupted job's stack stays where it is until the handler is done.
            if cpu.job is not None and cpu.handler_end is None and id(cpu.job) not in chosen:
                if not self._in_half(cpu.job):
                    self._take_off(cpu)
        homeless = [j for j in entitled if j.cpu is None]
        for cpu in self.cpus:
            if not homeless:
                break
            if cpu.job is None and cpu.handler_end is None:
                self._put_on(cpu, homeless.pop(0))
        if homeless:
            # Those left belong on a CPU that is being interrupted and idle below the handler.
            for cpu in self.cpus:
                if homeless and cpu.job is None:
                    self._put_on(cpu, homeless.pop(0))

    def _in_half(self, job: _Job) -> bool:
        """Whether a job is in a bottom half that is not left before its end."""
        return self.options.whole_halves and job.task is not None and job.bottom > 0 and job.half_under_way()[1]

    def _stretch(self, cpu: _Cpu, version: int) -> None:
        """A CPU may have come to the end of a stretch; :meth:`_schedule`, which follows, looks."""

    def _finish_stretches(self) -> bool:
        """Carry out what ends now; True while something may have ended in consequence."""
        for cpu in self.cpus:
            job = cpu.job
            if job is None or cpu.handler_end is not None or job.stall:
                continue
            if job.halves and job.task is not None and job.bottom == 0:
                self._bottom_halves_done(job)
                if not job.runnable:
                    self._take_off(cpu)
                return True
            if job.bottom == 0 and job.ready and job.remaining == 0:
                if job.task is None:
                    _, owner = job.halves.popleft()
                    job.ready = bool(job.halves)
                    job.remaining = job.halves[0][0] if job.halves else 0
                    self._call_ended(owner)
                else:
                    self._next_segment(job)
                if not job.runnable:
                    self._take_off(cpu)
                return True
            if not job.runnable:
                self._take_off(cpu)
                return True
        return False

    def _run_deferred(self) -> None:
        """PAI: start deferred bottom halves that outrank what is scheduled, on the least urgent CPU."""
        while self.deferred:
            free = [c for c in self.cpus if c.handler_end is None]
            if not free:
                return
            least = max(free, key=lambda c: (c.job is None, self.effective(c.job) if c.job else ()))
            key, _, length, owner = self.deferred[0]
            if least.job is not None and self.effective(least.job) < key:
                return
            heapq.heappop(self.deferred)
            self._interrupt(least, length, "bottom half", owner, lambda _, job: self._call_ended(job))

    def _take_off(self, cpu: _Cpu) -> None:
        cpu.job.cpu = None
        cpu.job = None
        cpu.version += 1

    def _put_on(self, cpu: _Cpu, job: _Job) -> None:
        cpu.job, job.cpu = job, cpu.number
        job.stall = self.switch
        cpu.since = self.now


class _SingleCpus(_Cluster):
    """CPUs with fixed priorities, each with tasks of its own; a task's cluster is its CPU."""

    def _may_run(self, job: _Job, cpu: _Cpu) -> bool:
        return job.task is None or job.task.cluster == cpu.number

    def _assign(self) -> None:
        candidates = sorted((j for j in self.current if j is not None and j.runnable), key=self.effective)
        for cpu in self.cpus:
            mine = next((j for j in candidates if j.task.cluster == cpu.number), None)
            if mine is cpu.job:
                continue
            if cpu.job is not None and cpu.handler_end is None:
                self._take_off(cpu)
            if cpu.job is None and mine is not None:
                self._put_on(cpu, mine)


class _LockedGpu(_SingleCpus):
    """Single CPUs that share one GPU, given out for a whole section: a holder runs before all others.

    Under the FMLP+ the requests are served in the order of their times, under the MPCP by priority.
    """

    by_priority = False

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self.holder: _Job | None = None

    def effective(self, job: _Job) -> tuple:
        return (-_BEYOND,) if job.holds else job.key

    def _request(self, job: _Job) -> None:
        job.gpu = 0
        self.queues[0].append(job)
        self._serve()

    def _serve(self) -> None:
        if self.holder is None and self.queues[0]:
            job = min(self.queues[0], key=lambda j: j.key) if self.by_priority else self.queues[0][0]
            self.queues[0].remove(job)
            self.holder, job.holds, job.held_since = job, True, self.now
            if not job.ready:
                self._wake(job)

    def _give_back(self, job: _Job) -> None:
        self.trace.held.append((0, job.held_since / 1000, self.now / 1000, job.task.name))
        self.holder, job.holds, job.gpu = None, False, None
        self._serve()


class _CeilingGpu(_LockedGpu):
    by_priority = True


class _SharedGpu(_SingleCpus):
    """Single CPUs with fixed priorities that share one GPU, which the most urgent task takes from others.

    A job spends ``epsilon`` of CPU time on switching the GPU before it begins a segment there, and
    again after it ends one (rtxg: another process is suspended, or resumed).  The GPU then works on
    the most urgent of the segments under way.  The other segments stand still.
    """

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        o = arguments[5]
        self.epsilon = _ns(o.permit + max(o.suspend, o.resume))
        self.active: dict[int, tuple[_Job, int]] = {}  # by task: job and GPU time left
        self.on_gpu: _Job | None = None
        self.gpu_since = 0
        self.gpu_version = 0

    def _segments(self, task: Task) -> deque:
        plain = super()._segments(task)
        segments: deque = deque()
        for segment in plain:
            if segment[0] == "gpu":
                segments += [("cpu", self.epsilon), segment]
            elif segment[0] == "wait":
                segments += [segment, ("cpu", self.epsilon)]
            elif segment[0] == "cpu":
                segments.append(segment)
        return segments

    def _call_gpu(self, job: _Job, work: int) -> None:
        self.active[job.index] = (job, work)
        self._switch_gpu()

    def _switch_gpu(self, ended: _Job | None = None) -> None:
        """Account for the work done, and give the GPU to the most urgent segment."""
        if self.on_gpu is not None and self.on_gpu.index in self.active:
            job, left = self.active[self.on_gpu.index]
            self.active[job.index] = (job, left - (self.now - self.gpu_since))
        if self.on_gpu is not None and self.now > self.gpu_since:
            self.trace.held.append((0, self.gpu_since / 1000, self.now / 1000, self.on_gpu.task.name))
        if ended is not None:
            del self.active[ended.index]
        self.gpu_since = self.now
        self.gpu_version += 1
        self.on_gpu = min((j for j, _ in self.active.values()), key=lambda j: j.key, default=None)
        if self.on_gpu is not None:
            self.at(self.now + self.active[self.on_gpu.index][1], self._segment_done, self.gpu_version)

    def _segment_done(self, version: int) -> None:
        if version == self.gpu_version:
            job = self.on_gpu
            self.active[job.index] = (job, 0)
            self._switch_gpu(ended=job)
            self._gpu_done(job)


def simulate(
    taskset: TaskSet,
    options: Options,
    *,
    handling: Handling | Interrupts | str = Handling.KLMIRQD,
    overheads: Overheads = NO_OVERHEADS,
    lock: str = "preemption",
    progress: Callable[[str], None] = lambda what: None,
) -> Trace:
    """Run a task set in virtual time.

    Clusters share nothing and are simulated one after the other; the CPUs of cluster c are numbered
    from c times the CPUs of a cluster.

    :param handling: who executes bottom halves.
    :param lock: under P-FP, how the GPU is shared: ``fmlp+``, ``mpcp``, or else by preemption.
    :param progress: called now and then with how far it is.
    :raises ImportError: GPU-using tasks, and no compiled core; its text has the remedy.
    """
    handling = Handling.of(handling) if isinstance(handling, Interrupts) else Handling(handling)
    if taskset.platform.scheduler == "P-FP":
        if options.asynchronous:
            raise ValueError("with P-FP a task waits for its GPU segments: run it without asynchronous calls")
        if handling in (Handling.PAI, Handling.THREAD_LOW, Handling.THREAD_HIGH):
            raise ValueError(f"{handling.value} bottom halves are not modelled for P-FP; use none, slih or klmirqd")
        taskset = taskset.partitioned()
        kind = {"fmlp+": _LockedGpu, "mpcp": _CeilingGpu}.get(lock, _SharedGpu)
        one = kind(taskset.tasks, taskset.platform.cpus, 1, "P-FP", handling, overheads, options)
        return one.run(progress)
    taskset = taskset.partitioned()
    platform = taskset.platform
    whole = Trace()
    for index in range(platform.clusters):
        tasks = taskset.cluster(index)
        if not tasks:
            continue
        cluster = _Cluster(
            tasks, platform.cpus_per_cluster, platform.gpus_per_cluster, platform.scheduler, handling, overheads, options
        )
        clusters = f"cluster {index} of {platform.clusters}: " if platform.clusters > 1 else ""
        found = cluster.run(lambda what, clusters=clusters: progress(clusters + what))
        whole.tasks.update(found.tasks)
        whole.inversions += found.inversions
        whole.metered.update(found.metered)  # a task is in one cluster
        whole.jobs += found.jobs
        pool = index * platform.gpus_per_cluster
        whole.held += [(pool + gpu, start, end, what) for gpu, start, end, what in found.held]
        first = index * platform.cpus_per_cluster
        whole.spans += [(first + cpu, start, end, what) for cpu, start, end, what in found.spans]
        whole.events += found.events
    return whole
