# SPDX-License-Identifier: MIT
"""The queue policies (null, fifo, credit, band), read a second time.

This file states in plain Python what Gdev and the Linux-RTXG release do between virtual GPUs, as a machine that takes the
same events and gives the same actions as the core. It was written without the core's sources, and it is slow and direct on
purpose: lists are searched, credit ticks are applied one by one. test_differential.py plays random event streams to both and
asks for the same actions. It may import nothing of rtxg.

Where the sources leave room, it follows these readings (the core does too, or the tests fail):

* One permit at a time on an engine; under null, one for each vGPU. Credit, busy time and list order are kept for each vGPU
  and engine.
* A permit is one-shot whenever something else waits on the engine (null: in the vGPU), and under band whenever another vGPU
  of the GPU has an open task. Otherwise it is a lease: kept until something else arrives, which revokes it.
* A one-shot permit is charged from its grant to its end. A lease is charged what its holder reports, at most the time since
  the last account, and at least the time since something else first waited. A task that closes or is
  expelled reports nothing more.
* Credit is replenished at fixed times, every period counted from the adding of the GPU; a rule that resets (or clamps)
  follows each addition. It starts at 0.
* Utilisation is over windows laid end to end from the adding of the GPU. A charge falls into the window in which it is made.
* vGPUs stand in the list in the order in which they were added; a vGPU that moves goes to the tail, when a permit of its ends;
  the next is the first in the list that has a waiter.
* band, completion: when the next is another vGPU that has used more than its share, the engine stays free for the band wait:
  a vGPU that arrives takes it at once (the first task in that vGPU's queue launches), else the next gets it. band, arrival: a
  vGPU that held the engine last, has no credit and has used more than its share waits for the band wait if the engine is free
  and another vGPU has open tasks. An engine that is kept free has been let go: it has no last holder, and an arrival
  takes it even from the vGPU that let it go.
* A task may arrive while it holds a one-shot or revoked permit (another thread of it): it queues when that permit ends.
* A permit that has to end by itself (one-shot, or revoked) is taken when it has kept a task waiting for the revocation's timeout
  without a break. The former holder does not wait then either, also if it had arrived again.

Units: nanoseconds, and parts per million of an engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field

PPM = 1_000_000
NEVER = 2**64 - 1
NONE = 2**32 - 1
ENGINES = 3
ONESHOT = 1

EINVAL, ENOENT, EEXIST, EBUSY, ENOSPC, EALREADY, EPERM = 22, 2, 17, 16, 28, 114, 1


class Refused(Exception):  # noqa: N818 - the name of what happens, as in "the core refused"
    """The event was refused; nothing has changed."""

    def __init__(self, errno: int) -> None:
        super().__init__(errno)
        self.errno = errno


@dataclass(frozen=True)
class Act:
    """One action: its kind ("grant", "revoke", "expel") and its task."""

    kind: str
    task: int
    engine: int
    flags: int = 0


@dataclass
class Account:
    """The account of one vGPU on one engine."""

    credit: int = 0
    busy: int = 0
    # Totals, for comparison with the core's statistics.
    total_busy: int = 0


@dataclass
class Vgpu:
    """A virtual GPU."""

    gpu: int
    min_ppm: int
    policy: int
    tasks: set[int] = field(default_factory=set)
    accounts: list[Account] = field(default_factory=lambda: [Account() for _ in range(ENGINES)])


@dataclass
class Permit:
    """A permit in force."""

    task: int
    oneshot: bool
    granted: int
    accounted: int
    contended: int | None = None  # when something else first waited
    revoked: bool = False
    patience: int | None = None  # since when it keeps a task waiting though it has to end
    again: int | None = None  # its holder arrived again, then


@dataclass
class Waiting:
    """A task that waits, with the time of its arrival and a number that orders equals."""

    task: int
    since: int
    number: int


@dataclass
class Engine:
    """An engine of a GPU."""

    order: list[int] = field(default_factory=list)  # vGPUs, head first
    waiting: list[Waiting] = field(default_factory=list)
    permits: dict[int, Permit] = field(default_factory=dict)  # by vGPU under null, else under key -1
    last: int | None = None  # vGPU that held the engine last
    free_until: int | None = None  # band: kept free until then
    free_for: int | None = None  # band: the vGPU that gets it then


@dataclass
class Gpu:
    """A GPU and its parameters."""

    policy: str
    charge_overrun: bool
    period: int
    window: int
    band_wait: int
    revoke_timeout: int
    switch_ppm: int
    origin: int
    ticks: int = 0
    window_number: int = 0
    engines: list[Engine] = field(default_factory=lambda: [Engine() for _ in range(ENGINES)])


@dataclass
class Task:
    """A GPU task."""

    vgpu: int
    priority: int
    deadline: int  # relative; 0 = none


class Reference:
    """The machine. `step` takes what rtxg_core_step takes, by name, and returns the actions without the timer's.

    The armed time stands in `armed` after each step.
    """

    def __init__(self, now: int = 0) -> None:
        self.now = now
        self.gpus: dict[int, Gpu] = {}
        self.vgpus: dict[int, Vgpu] = {}
        self.tasks: dict[int, Task] = {}
        self.numbers = 0
        self.acts: list[Act] = []

    # ---- events ----------------------------------------------------------------------------------------------------

    def step(self, now: int, kind: str, **fields: object) -> list[Act]:
        """Apply one event at `now`; raises Refused."""
        if now < self.now:
            raise Refused(EINVAL)
        self.acts = []
        handler = getattr(self, "on_" + kind)
        handler(now, **fields)
        self.now = now
        self._watch(now)
        return self.acts

    @property
    def armed(self) -> int:
        """The earliest time at which something happens by itself."""
        times = [NEVER]
        for gpu in self.gpus.values():
            for engine in gpu.engines:
                if engine.free_until is not None:
                    times.append(engine.free_until)
                for permit in engine.permits.values():
                    if permit.patience is not None and gpu.revoke_timeout != NEVER:
                        times.append(permit.patience + gpu.revoke_timeout)
        return min(times)

    def on_gpu_add(
        self,
        now: int,
        gpu: int,
        policy: str,
        overrun: int = 0,
        period_ns: int = 0,
        window_ns: int = 0,
        band_wait_ns: int = 0,
        revoke_timeout_ns: int = 0,
        switch_ppm: int = 0,
    ) -> None:
        """A GPU appears. Zeros stand for the defaults."""
        if gpu in self.gpus:
            raise Refused(EEXIST)
        self.gpus[gpu] = Gpu(
            policy=policy,
            charge_overrun=bool(overrun),
            period=period_ns or 30_000_000,
            window=window_ns or 1_000_000_000,
            band_wait=band_wait_ns or 500_000,
            revoke_timeout=revoke_timeout_ns or 2_000_000_000,
            switch_ppm=switch_ppm,
            origin=now,
        )

    def on_vgpu_add(self, now: int, vgpu: int, gpu: int, min_ppm: int = 0, policy: int = 0) -> None:
        """A virtual GPU joins at the tail of every engine's list."""
        if vgpu in self.vgpus:
            raise Refused(EEXIST)
        if gpu not in self.gpus:
            raise Refused(ENOENT)
        self._admit(gpu, None, min_ppm)
        self._catch_up(gpu, now)
        self.vgpus[vgpu] = Vgpu(gpu, min_ppm, policy)
        for engine in self.gpus[gpu].engines:
            engine.order.append(vgpu)

    def on_vgpu_set(self, now: int, vgpu: int, min_ppm: int = 0, policy: int = 0) -> None:
        """A virtual GPU changes its share or the order of its tasks."""
        if vgpu not in self.vgpus:
            raise Refused(ENOENT)
        v = self.vgpus[vgpu]
        self._admit(v.gpu, vgpu, min_ppm)
        self._catch_up(v.gpu, now)
        v.min_ppm, v.policy = min_ppm, policy

    def on_vgpu_remove(self, now: int, vgpu: int) -> None:
        """A virtual GPU without tasks goes."""
        if vgpu not in self.vgpus:
            raise Refused(ENOENT)
        v = self.vgpus[vgpu]
        if v.tasks:
            raise Refused(EBUSY)
        for engine in self.gpus[v.gpu].engines:
            engine.order.remove(vgpu)
            if engine.last == vgpu:
                engine.last = None
        del self.vgpus[vgpu]
        for number, engine in enumerate(self.gpus[v.gpu].engines):
            if engine.free_for == vgpu:
                # It was kept free for one that is gone.
                engine.free_until = engine.free_for = None
                chosen = self._next(engine)
                if chosen is not None:
                    self._give(v.gpu, number, chosen, now)

    def on_open(self, now: int, task: int, vgpu: int, priority: int = 1, deadline_ns: int = 0) -> None:
        """A task opens."""
        if task in self.tasks:
            raise Refused(EEXIST)
        if vgpu not in self.vgpus:
            raise Refused(ENOENT)
        self.tasks[task] = Task(vgpu, priority or 1, deadline_ns)
        self.vgpus[vgpu].tasks.add(task)

    def on_set(self, now: int, task: int, priority: int = 1, deadline_ns: int = 0) -> None:
        """A task changes its parameters; what it waits for is ordered by the new ones, from the same arrival."""
        if task not in self.tasks:
            raise Refused(ENOENT)
        e = self.tasks[task]
        e.priority, e.deadline = priority or 1, deadline_ns

    def on_close(self, now: int, task: int) -> None:
        """A task closes: what it waits for is forgotten, what it holds is charged and given on."""
        if task not in self.tasks:
            raise Refused(ENOENT)
        e = self.tasks[task]
        v = self.vgpus[e.vgpu]
        g = self.gpus[v.gpu]
        self._catch_up(v.gpu, now)
        held = []
        for number, engine in enumerate(g.engines):
            engine.waiting = [w for w in engine.waiting if w.task != task]
            self._drop_empty_wait(engine)
            permit = engine.permits.get(self._key(g, e.vgpu))
            if permit is not None and permit.task == task:
                held.append((number, permit))
        v.tasks.discard(task)
        del self.tasks[task]
        for number, permit in held:
            permit.again = None
            self._end(v.gpu, number, e.vgpu, permit, 0, now)

    def on_move(self, now: int, task: int, vgpu: int) -> None:
        """An idle task goes to another virtual GPU."""
        if task not in self.tasks or vgpu not in self.vgpus:
            raise Refused(ENOENT)
        e = self.tasks[task]
        self._catch_up(self.vgpus[e.vgpu].gpu, now)
        for engine in self.gpus[self.vgpus[e.vgpu].gpu].engines:
            if any(p.task == task for p in engine.permits.values()) or self._find(engine, task):
                raise Refused(EBUSY)
        self.vgpus[e.vgpu].tasks.discard(task)
        self.vgpus[vgpu].tasks.add(task)
        e.vgpu = vgpu

    def on_arrival(self, now: int, task: int, engine: int) -> None:
        """A task wants to launch."""
        if task not in self.tasks:
            raise Refused(ENOENT)
        e = self.tasks[task]
        v = self.vgpus[e.vgpu]
        g = self.gpus[v.gpu]
        en = g.engines[engine]
        key = self._key(g, e.vgpu)
        permit = en.permits.get(key)
        if self._find(en, task):
            raise Refused(EALREADY)
        if permit is not None and permit.task == task:
            if permit.again is not None or not (permit.oneshot or permit.revoked):
                raise Refused(EALREADY)
            permit.again = now
            return
        self._catch_up(v.gpu, now)
        self.numbers += 1
        en.waiting.append(Waiting(task, now, self.numbers))
        if permit is not None:
            if permit.contended is None:
                permit.contended = now
            if not permit.oneshot and not permit.revoked:
                permit.revoked = True
                self.acts.append(Act("revoke", permit.task, engine))
            return
        holds = en.free_until is None and en.last == e.vgpu
        if g.policy == "band" and holds and self._over(g, v, engine, now) and self._others_open(v.gpu, e.vgpu):
            self._keep_free(g, en, e.vgpu, now)
            return
        self._give(v.gpu, engine, e.vgpu, now)

    def on_cancel(self, now: int, task: int, engine: int) -> None:
        """A waiting task does not want to launch any more."""
        if task not in self.tasks:
            raise Refused(ENOENT)
        e = self.tasks[task]
        g = self.gpus[self.vgpus[e.vgpu].gpu]
        en = g.engines[engine]
        if not self._find(en, task):
            permit = en.permits.get(self._key(g, e.vgpu))
            if permit is None or permit.task != task:
                raise Refused(EPERM)
            if permit.again is None:
                raise Refused(EALREADY)
            permit.again = None
            return
        en.waiting = [w for w in en.waiting if w.task != task]
        self._drop_empty_wait(en)

    def on_completion(self, now: int, task: int, engine: int, used_ns: int = 0) -> None:
        """Nothing in flight. A one-shot permit ends; for a lease it is a report."""
        gpu, vgpu, permit = self._permit(task, engine)
        self._catch_up(gpu, now)
        if permit.oneshot or permit.revoked:
            self._end(gpu, engine, vgpu, permit, used_ns, now)
        else:
            self._charge(gpu, engine, vgpu, permit, used_ns, now)

    def on_usage(self, now: int, task: int, engine: int, used_ns: int = 0) -> None:
        """A permit's use so far, also while it is being called back."""
        gpu, vgpu, permit = self._permit(task, engine)
        self._catch_up(gpu, now)
        self._charge(gpu, engine, vgpu, permit, used_ns, now)

    def on_released(self, now: int, task: int, engine: int, used_ns: int = 0) -> None:
        """A permit was taken back."""
        gpu, vgpu, permit = self._permit(task, engine)
        if not permit.revoked:
            raise Refused(EPERM)
        self._catch_up(gpu, now)
        self._end(gpu, engine, vgpu, permit, used_ns, now)

    def on_timer(self, now: int) -> None:
        """Carry out the due events in order of GPU and engine."""
        for number in sorted(self.gpus):
            g = self.gpus[number]
            self._catch_up(number, now)
            for engine, en in enumerate(g.engines):
                for key in sorted(en.permits):
                    permit = en.permits[key]
                    if permit.patience is None or g.revoke_timeout == NEVER:
                        continue
                    if permit.patience + g.revoke_timeout <= now:
                        self.acts.append(Act("expel", permit.task, engine))
                        vgpu = self.tasks[permit.task].vgpu
                        permit.again = None
                        self._end(number, engine, vgpu, permit, 0, now)
                if en.free_until is not None and en.free_until <= now:
                    chosen = en.free_for
                    if not self._queue(en, chosen):
                        chosen = self._next(en)
                    self._give(number, engine, chosen, now)

    # ---- the rules -------------------------------------------------------------------------------------------------

    @staticmethod
    def _key(gpu: Gpu, vgpu: int) -> int:
        return vgpu if gpu.policy == "null" else -1

    def _permit(self, task: int, engine: int) -> tuple[int, int, Permit]:
        if task not in self.tasks:
            raise Refused(ENOENT)
        vgpu = self.tasks[task].vgpu
        gpu = self.vgpus[vgpu].gpu
        g = self.gpus[gpu]
        permit = g.engines[engine].permits.get(self._key(g, vgpu))
        if permit is None or permit.task != task:
            raise Refused(EPERM)
        return gpu, vgpu, permit

    @staticmethod
    def _find(engine: Engine, task: int) -> bool:
        return any(w.task == task for w in engine.waiting)

    def _queue(self, engine: Engine, vgpu: int) -> list[Waiting]:
        """The waiters of one vGPU, first to go first."""
        policy = self.vgpus[vgpu].policy if vgpu in self.vgpus else 0

        def rank(w: Waiting) -> tuple[int, ...]:
            e = self.tasks[w.task]
            if policy == 1:
                return (-e.priority, w.number)
            if policy == 2:
                return (w.since + e.deadline if e.deadline else NEVER, w.number)
            return (w.number,)

        return sorted((w for w in engine.waiting if self.tasks[w.task].vgpu == vgpu), key=rank)

    def _next(self, engine: Engine) -> int | None:
        for vgpu in engine.order:
            if self._queue(engine, vgpu):
                return vgpu
        return None

    def _admit(self, gpu: int, but: int | None, min_ppm: int) -> None:
        total = sum(v.min_ppm for n, v in self.vgpus.items() if v.gpu == gpu and n != but)
        if total + min_ppm + self.gpus[gpu].switch_ppm > PPM:
            raise Refused(ENOSPC)

    def _others_open(self, gpu: int, vgpu: int) -> bool:
        return any(v.gpu == gpu and n != vgpu and v.tasks for n, v in self.vgpus.items())

    def _catch_up(self, gpu: int, now: int) -> None:
        """Apply the ticks and the ends of windows up to `now`, one by one."""
        g = self.gpus[gpu]
        mine = [v for v in self.vgpus.values() if v.gpu == gpu]
        while g.origin + (g.ticks + 1) * g.period <= now:
            g.ticks += 1
            for v in mine:
                for account in v.accounts:
                    account.credit += g.period * v.min_ppm // PPM
                    if abs(account.credit) > g.period:
                        sign = 1 if account.credit > 0 else -1
                        account.credit = sign * g.period if g.charge_overrun else 0
        while g.origin + (g.window_number + 1) * g.window <= now:
            g.window_number += 1
            for v in mine:
                for account in v.accounts:
                    account.busy = 0

    @staticmethod
    def _used(g: Gpu, v: Vgpu, engine: int, now: int) -> int:
        """Utilisation in the current window, parts per million."""
        elapsed = now - (g.origin + g.window_number * g.window)
        busy = v.accounts[engine].busy
        if elapsed == 0:
            return PPM if busy else 0
        return min(PPM, busy * PPM // elapsed)

    def _over(self, g: Gpu, v: Vgpu, engine: int, now: int) -> bool:
        return v.accounts[engine].credit <= 0 and self._used(g, v, engine, now) > v.min_ppm

    def _charge(self, gpu: int, engine: int, vgpu: int, permit: Permit, used: int, now: int) -> bool:
        """Account for the time up to now. Returns whether the vGPU's place is at the tail."""
        g = self.gpus[gpu]
        v = self.vgpus[vgpu]
        if permit.oneshot:
            exec_ns = now - permit.accounted
        else:
            elapsed = now - permit.accounted
            alone = elapsed if permit.contended is None else max(0, permit.contended - permit.accounted)
            # What it reports covers the contended part too, which is charged in any case.
            exec_ns = max(min(used, elapsed), elapsed - alone)
        permit.accounted = now
        account = v.accounts[engine]
        account.credit -= exec_ns
        account.busy += exec_ns
        account.total_busy += exec_ns
        if g.policy == "fifo":
            move = True
        elif g.policy == "credit":
            move = account.credit <= 0
        elif g.policy == "band":
            move = self._over(g, v, engine, now)
        else:
            move = False
        return move

    def _end(self, gpu: int, engine: int, vgpu: int, permit: Permit, used: int, now: int) -> None:
        """A permit ends: charge it, and choose who is next."""
        g = self.gpus[gpu]
        en = g.engines[engine]
        if self._charge(gpu, engine, vgpu, permit, used, now):
            en.order.remove(vgpu)
            en.order.append(vgpu)
        del en.permits[self._key(g, vgpu)]
        en.last = vgpu
        if permit.again is not None:
            self.numbers += 1
            en.waiting.append(Waiting(permit.task, permit.again, self.numbers))
        chosen = (vgpu if self._queue(en, vgpu) else None) if g.policy == "null" else self._next(en)
        if chosen is None:
            return
        if g.policy == "band" and chosen != vgpu:
            n = self.vgpus[chosen]
            if self._used(g, n, engine, now) > n.min_ppm:
                self._keep_free(g, en, chosen, now)
                return
        self._give(gpu, engine, chosen, now)

    def _give(self, gpu: int, engine: int, vgpu: int, now: int) -> None:
        """The vGPU takes the engine; the first of its tasks gets the permit."""
        g = self.gpus[gpu]
        en = g.engines[engine]
        en.free_until = en.free_for = None
        first = self._queue(en, vgpu)[0]
        en.waiting.remove(first)
        rest = self._queue(en, vgpu) if g.policy == "null" else en.waiting
        oneshot = bool(rest) or (g.policy == "band" and self._others_open(gpu, vgpu))
        permit = Permit(first.task, oneshot, granted=now, accounted=now, contended=now if rest else None)
        en.permits[self._key(g, vgpu)] = permit
        self.acts.append(Act("grant", first.task, engine, ONESHOT if oneshot else 0))

    @staticmethod
    def _keep_free(g: Gpu, engine: Engine, vgpu: int, now: int) -> None:
        engine.free_until = now + g.band_wait
        engine.free_for = vgpu
        engine.last = None

    def _watch(self, now: int) -> None:
        """Note since when permits that have to end keep a task waiting."""
        for g in self.gpus.values():
            for engine in g.engines:
                for key, permit in engine.permits.items():
                    waits = bool(self._queue(engine, key) if g.policy == "null" else engine.waiting)
                    if not waits or not (permit.oneshot or permit.revoked):
                        permit.patience = None
                    elif permit.patience is None:
                        permit.patience = now

    @staticmethod
    def _drop_empty_wait(engine: Engine) -> None:
        """No task waits any more: the engine is simply free."""
        if not engine.waiting:
            engine.free_until = engine.free_for = None
