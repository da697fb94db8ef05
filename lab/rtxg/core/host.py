# SPDX-License-Identifier: MIT
"""A host of the core in virtual time: clients that think and launch kernels, and a careful observer.

`Host` does what the daemon does, without processes: it turns what its clients do into events and carries the actions out. A
client thinks, wants to launch, launches when it has a permit, and its kernel runs for its time; time jumps from one happening
to the next. The observer notes when kernels ran and when an engine stood still while a client waited. With `strict` it
checks after every event that the core's structures hold and that there is one permit an engine;
with `early_ns` two of one virtual GPU, whose kernels run one after the other. Who waits for a
permit may have to be woken first (`wake`); with `ahead_ns` it is awake when the core foresaw the
end of what ran before.

    host = Host(policy="cbs", wake=50 * US, ahead_ns=100 * US)
    a = host.vgpu(min_ppm=400_000)
    b = host.vgpu(min_ppm=600_000)
    host.client(a, kernel=1 * MS, think=200 * US)
    host.client(b, kernel=1 * MS)
    host.run(10 * SEC)
    host.shares(1 * SEC)[a]        # the share of each window of one second

It holds no scheduling policy. Units: nanoseconds, parts per million.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import NEVER, NONE, ONESHOT, REPORT, Action, Core

US = 1_000
MS = 1_000_000
SEC = 1_000_000_000

#: Events after which only their engine, and those of the actions, can look different.
_OF_ONE_ENGINE = {"arrival", "cancel", "busy", "completion", "released", "usage"}

Times = int | Callable[[], int]
"""A time, or a function that draws one."""


def _draw(times: Times) -> int:
    return times if isinstance(times, int) else times()


@dataclass
class Client:
    """One task and what it does. Kernels and thinking alternate; `depth` launches may be in flight at once."""

    task: int
    vgpu: int
    engine: int
    kernel: Times
    think: Times
    start: int
    stop: int
    hang: bool = False  # never gives a permit back, never completes

    opened: bool = False
    permit: int | None = None  # flags of the permit held
    running: bool = False  # a kernel is on the engine, or in its queue
    on_way: bool = False  # has its permit, and is being woken to launch
    ready_from: int = 0  # alerted, and awake from then
    ready_until: int = 0  # to then
    consumed: bool = False  # a one-shot permit was used
    revoking: bool = False
    wants: bool = False  # an arrival is outstanding
    reported: int = 0  # part of `done` that was reported
    done: int = 0  # time of completed kernels
    started: int = 0  # of the kernel that runs
    ends: int = 0  # and its end
    length: int = 0
    jobs: int = 0
    generation: int = 0
    waits: list[int] = field(default_factory=list)  # from wanting to launching
    since: int = 0


class Violation(AssertionError):  # noqa: N818 - it is one
    """The core broke a rule that the observer watches."""


class Host:
    """Drives one core with one GPU."""

    def __init__(
        self,
        policy: str = "cbs",
        strict: bool = True,
        start: int = 0,
        vgpus: int = 64,
        tasks: int = 256,
        record: bool = False,
        wake: Times = 0,
        **gpu_params: Any,
    ) -> None:
        """`gpu_params` as struct rtxg_gpu_params. `record` keeps events and actions in `log`;
        `wake` is how long it takes from a permit that was waited for to the launch.
        """
        self.wake = wake
        self.policy = policy
        self.strict = strict
        self.now = start
        self.start = start
        self.core = Core(gpus=1, vgpus=vgpus, tasks=tasks, pools=0, now=start)
        self.gpu_params = {"policy": policy, **gpu_params}
        self.log: list[tuple[int, str, dict[str, Any], list[Action]]] | None = [] if record else None
        self.clients: dict[int, Client] = {}
        self.vgpu_params: dict[int, dict[str, Any]] = {}
        self.holders: dict[int, dict[int, Client]] = {engine: {} for engine in range(3)}
        self.waiting: dict[int, dict[int, Client]] = {engine: {} for engine in range(3)}
        self.armed = NEVER
        self.steps = 0
        self.expelled: list[int] = []
        # (start, end) of kernels, by vGPU and engine.
        self.runs: dict[tuple[int, int], list[tuple[int, int]]] = {}
        # Spans in which nothing ran on an engine though a client waited: (start, end, waiting vGPUs, holder or None).
        self.idle: dict[int, list[tuple[int, int, frozenset[int], int | None]]] = {e: [] for e in range(3)}
        self._idle_since: dict[int, tuple[int, frozenset[int], int | None] | None] = {e: None for e in range(3)}
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._end = start
        self.event("gpu_add", gpu=0, **self.gpu_params)

    # ---- building ----------------------------------------------------------------------------------------------------

    def vgpu(self, **params: Any) -> int:
        """Add a virtual GPU (struct rtxg_vgpu_params); its number. Raises Refused when admission fails."""
        number = len(self.vgpu_params)
        self.event("vgpu_add", vgpu=number, gpu=0, **params)
        self.vgpu_params[number] = params
        for engine in range(3):
            self.runs[number, engine] = []
        return number

    def client(
        self,
        vgpu: int,
        kernel: Times,
        think: Times = 0,
        engine: int = 0,
        start: int = 0,
        stop: int = NEVER,
        hang: bool = False,
        **task: Any,
    ) -> Client:
        """Open a task that launches `kernel` long work after thinking for `think`, from `start` to `stop`.

        Times count from the host's start. `task` as struct rtxg_task_params.
        """
        number = len(self.clients)
        client = Client(number, vgpu, engine, kernel, think, self.start + start, stop, hang)
        self.clients[number] = client

        def begin() -> None:
            client.opened = True
            self.event("open", task=number, vgpu=vgpu, **task)
            self._want(client)

        self.at(client.start, begin)
        return client

    def at(self, time: int, what: Callable[[], None]) -> None:
        """Call `what` at a time."""
        self._sequence += 1
        heapq.heappush(self._queue, (time, self._sequence, what))

    def close(self, client: Client) -> None:
        """The client's process dies: its kernel vanishes with it."""
        self._forget(client)
        client.generation += 1
        client.stop = 0
        if client.running:
            self._ran(client, self.now)
            client.running = False
        self.event("close", task=client.task)

    # ---- running -----------------------------------------------------------------------------------------------------

    def run(self, length: int, events: int | None = None) -> Host:
        """Go on for `length`, or until the core has had so many events."""
        end = self._end = self.now + length
        last = None if events is None else self.steps + events
        while last is None or self.steps < last:
            due = self._queue[0][0] if self._queue else NEVER
            time = min(due, self.armed)
            if time > end:
                break
            if time < self.now:
                raise Violation(f"the core armed its timer for {time}, in the past of {self.now}")
            self.now = time
            # What happens in the world at this instant is known to a host before its timer goes off.
            if due <= self.armed:
                heapq.heappop(self._queue)[2]()
            else:
                self._timer()
        else:
            end = self.now
        self.now = end
        for engine in range(3):
            self._observe(engine)
        return self

    def event(self, kind: str, **fields: Any) -> list[Action]:
        """Give the core one event and carry its actions out."""
        actions = self.core.step(self.now, kind, **fields)
        self.steps += 1
        if self.log is not None:
            self.log.append((self.now, kind, dict(fields), actions))
        if self.strict:
            self.core.check()
        after: list[Callable[[], None]] = []
        for action in actions:
            self._act(action, after)
        if self.policy != "null":
            for engine, holders in self.holders.items():
                if len(holders) > 1 and not self._two_by_right(holders):
                    raise Violation(f"at {self.now}: {len(holders)} permits on engine {engine}: {sorted(holders)}")
        if kind in _OF_ONE_ENGINE:
            touched = {fields["engine"], *[action.engine for action in actions if action.kind != "arm_timer"]}
        else:
            touched = {0, 1, 2}
        for engine in touched:
            self._observe(engine)
        for what in after:
            what()
        return actions

    def _two_by_right(self, holders: dict[int, Client]) -> bool:
        """One has its permit early: both are of one virtual GPU."""
        early = self.gpu_params.get("early_ns", 0) > 0
        return early and len(holders) == 2 and len({h.vgpu for h in holders.values()}) == 1

    def _timer(self) -> None:
        self.armed = NEVER
        for engine in range(3):
            task = self.core.idle_holder(0, engine)
            if task != NONE:
                holder = self.clients[task]
                if holder.permit is None:
                    raise Violation(f"at {self.now}: idle holder {task} of engine {engine} holds nothing")
                if holder.running:
                    self.event("busy", task=task, engine=engine)
            task = self.core.unseen_launch(0, engine)
            if task != NONE and self.clients[task].running:
                self.event("busy", task=task, engine=engine)
        self.event("timer")

    def _act(self, action: Action, after: list[Callable[[], None]]) -> None:
        if action.kind == "arm_timer":
            self.armed = action.at_ns
            return
        client = self.clients[action.task]
        holders = self.holders[action.engine]
        if action.kind == "alert":
            client.ready_from = self.now + _draw(self.wake)
            client.ready_until = action.at_ns
        elif action.kind == "grant":
            if client.task in holders:
                client.permit = action.flags
                if action.flags & REPORT and not client.running and not client.on_way:
                    after.append(lambda: self._report(client))
                return
            if not client.wants:
                raise Violation(f"at {self.now}: task {client.task} was granted what it did not ask for")
            client.permit = action.flags
            client.consumed = client.revoking = False
            holders[client.task] = client
            del self.waiting[action.engine][client.task]
            client.wants = False
            self._wake(client)
        elif action.kind == "revoke":
            if client.task not in holders or client.revoking:
                raise Violation(f"at {self.now}: revoke of task {client.task}, which holds nothing revocable")
            client.revoking = True
            # One that is on its way launches once all the same, and gives its permit back then.
            if not client.running and not client.hang and not client.on_way:
                after.append(lambda: self._release(client))
        elif action.kind == "expel":
            if client.task not in holders:
                raise Violation(f"at {self.now}: expel of task {client.task}, which holds nothing")
            self.expelled.append(client.task)
            # It waits for nothing either, until its kernel has ended.
            self._forget(client)
        else:
            raise Violation(f"at {self.now}: unknown action {action}")

    # ---- clients -----------------------------------------------------------------------------------------------------

    def _want(self, client: Client) -> None:
        if self.now >= client.stop:
            return
        client.since = self.now
        mine = client.permit is not None and not client.revoking
        if mine and not (client.permit & ONESHOT and client.consumed):
            self._launch(client)
            self._observe(client.engine)
            return
        client.wants = True
        self.waiting[client.engine][client.task] = client
        self.event("arrival", task=client.task, engine=client.engine)

    def _wake(self, client: Client) -> None:
        """It has the permit that it waited for, and launches as soon as it is awake."""
        awake = client.ready_from if self.now < client.ready_until else self.now + _draw(self.wake)
        if awake <= self.now:
            self._launch(client)
            return
        client.on_way = True
        generation, grants = client.generation, len(client.waits)

        def launch() -> None:
            if (client.generation, len(client.waits)) != (generation, grants):
                return
            if client.on_way:
                client.on_way = False
                self._launch(client)
                self._observe(client.engine)
            elif not client.wants:  # its permit has been taken by force
                self._want(client)

        self.at(awake, launch)

    def _launch(self, client: Client) -> None:
        client.consumed = True
        client.running = True
        client.waits.append(self.now - client.since)
        # What was launched before, under the permit beside this one, runs first.
        others = [h for h in self.holders[client.engine].values() if h is not client and h.running]
        beside = self.policy != "null" and bool(others)
        client.started = max(self.now, *[h.ends for h in others]) if beside else self.now
        client.length = _draw(client.kernel)
        client.ends = NEVER if client.hang else client.started + client.length
        generation = client.generation
        if client.ends < NEVER:
            self.at(client.ends, lambda: self._complete(client, generation))

    def _run_on(self, client: Client) -> None:
        """Kernel after kernel under a lease, as long as nothing else happens in the world and the core hears of nothing."""
        quiet = min(self._queue[0][0] if self._queue else NEVER, self.armed, self._end + 1, client.stop)
        runs = self.runs[client.vgpu, client.engine]
        end, length = self.now, _draw(client.kernel)
        while end + length < quiet:
            runs.append((end, end + length))
            client.waits.append(0)
            client.done += length
            client.jobs += 1
            end += length
            length = _draw(client.kernel)
        # The kernel that something happens in.
        self.now = client.since = client.started = end
        client.length, client.consumed, client.running = length, True, True
        client.ends = end + length
        client.waits.append(0)
        generation = client.generation
        self.at(end + length, lambda: self._complete(client, generation))

    def _complete(self, client: Client, generation: int) -> None:
        if generation != client.generation:
            return
        self._ran(client, self.now)
        client.running = False
        client.done += self.now - client.started
        client.jobs += 1
        generation = client.generation
        think = _draw(client.think)
        if think == 0 and client.permit is not None and not client.revoking and not client.permit & ONESHOT:
            # The next launch is in the queue before this one ends: nothing falls to zero in flight.
            if client.permit & REPORT:
                self._report(client)
            if client.permit == 0 and client.think == 0 and not client.revoking and self.now < client.stop:
                self._run_on(client)
                return
            if client.permit is not None and not client.revoking:
                self._want(client)
                return
        if client.permit is not None:
            if client.revoking:
                self._release(client)
            elif client.permit & ONESHOT:
                used, client.reported = client.done - client.reported, client.done
                self._forget(client)
                self.event("completion", task=client.task, engine=client.engine, used_ns=used)
            elif client.permit & REPORT:
                self._report(client)
        if think:
            self.at(self.now + think, lambda: self._want(client) if generation == client.generation else None)
        else:
            self._want(client)
        self._observe(client.engine)

    def _report(self, client: Client) -> None:
        if client.permit is None or client.running or client.on_way or client.revoking:
            return
        used, client.reported = client.done - client.reported, client.done
        self.event("completion", task=client.task, engine=client.engine, used_ns=used)

    def _release(self, client: Client) -> None:
        if client.permit is None or not client.revoking or client.running or client.on_way:
            return
        used, client.reported = client.done - client.reported, client.done
        self._forget(client)
        self.event("released", task=client.task, engine=client.engine, used_ns=used)

    def _forget(self, client: Client) -> None:
        self.holders[client.engine].pop(client.task, None)
        self.waiting[client.engine].pop(client.task, None)
        client.permit = None
        client.revoking = client.consumed = client.wants = client.on_way = False

    # ---- the observer ------------------------------------------------------------------------------------------------

    def _ran(self, client: Client, end: int) -> None:
        if end > client.started:
            self.runs[client.vgpu, client.engine].append((client.started, end))

    def _observe(self, engine: int) -> None:
        """Note when an engine stands still though a client waits."""
        waiting = self.waiting[engine]
        holders = self.holders[engine]
        still = bool(waiting) and not any(h.running for h in holders.values())
        now: tuple[frozenset[int], int | None] | None = None
        if still:
            holder = next(iter(holders), None)
            now = (frozenset(w.vgpu for w in waiting.values()), holder)
        before = self._idle_since[engine]
        if before is not None and (now is None or before[1:] != now):
            if self.now > before[0]:
                self.idle[engine].append((before[0], self.now, before[1], before[2]))
            before = None
        if now is not None and before is None:
            self._idle_since[engine] = (self.now, *now)
        elif now is None:
            self._idle_since[engine] = None

    def idle_spans(self, engine: int = 0) -> list[tuple[int, int]]:
        """Joined spans in which nothing ran though a client waited the whole time."""
        spans: list[tuple[int, int]] = []
        for start, end, _, _ in self.idle[engine]:
            if spans and spans[-1][1] == start:
                spans[-1] = (spans[-1][0], end)
            else:
                spans.append((start, end))
        return spans

    def ran(self, vgpu: int, start: int, end: int, engine: int = 0) -> int:
        """Time for which kernels of a vGPU ran in [start, end)."""
        total = sum(max(0, min(e, end) - max(s, start)) for s, e in self.runs[vgpu, engine])
        for client in self.clients.values():
            if client.vgpu == vgpu and client.engine == engine and client.running:
                total += max(0, min(self.now, end) - max(client.started, start))
        return total

    def shares(self, window: int, step: int | None = None, engine: int = 0, after: int = 0) -> dict[int, list[float]]:
        """For each vGPU the share (0..1) of each window of `window` ns, every `step` ns (default: end to end), from `after`."""
        step = step or window
        out: dict[int, list[float]] = {}
        begin = self.start + after
        for vgpu in self.vgpu_params:
            # Cumulative service at the kernels' edges, then differences by interpolation.
            runs = sorted(self.runs[vgpu, engine])
            for client in self.clients.values():
                if client.vgpu == vgpu and client.engine == engine and client.running:
                    runs.append((client.started, self.now))
            points = [begin + i * step for i in range((self.now - window - begin) // step + 1)]
            starts = _service(runs, points)
            ends = _service(runs, [p + window for p in points])
            out[vgpu] = [(b - a) / window for a, b in zip(starts, ends, strict=True)]
        return out


def _service(runs: list[tuple[int, int]], points: list[int]) -> list[int]:
    """Time run before each of the (ascending) points."""
    out = []
    total = 0
    i = 0
    for point in points:
        while i < len(runs) and runs[i][1] <= point:
            total += runs[i][1] - runs[i][0]
            i += 1
        extra = 0
        j = i
        while j < len(runs) and runs[j][0] < point:
            extra += min(runs[j][1], point) - runs[j][0]
            j += 1
        out.append(total + extra)
    return out
