# SPDX-License-Identifier: MIT
"""The core against the independent reading of the policies: same events, same actions, for null, fifo, credit and band.

Hypothesis writes a program of small instructions. Each instruction becomes an event that fits (or, at times, does not fit) the
state that both have reached. After each event the actions must be equal, engine by engine and in order. Refusals, the armed
time, credit, busy time and utilisation must be equal too. May not: read the core's memory, or know how the core decides.
"""

from __future__ import annotations

from collections import defaultdict

import reference_policies as reference
from effort import quick
from hypothesis import given
from hypothesis import strategies as st
from rtxg.core import NEVER, Core, Refused

US = 1_000
MS = 1_000_000

POLICIES = ("null", "fifo", "credit", "band")
SHARES = (0, 1, 1_000, 50_000, 100_000, 250_000, 333_333, 400_000, 600_000, 1_000_000)
# Steps of time: zero, odd, around the waits and periods, longer than windows.
DELAYS = (0, 0, 1, 7_919, 50 * US, 200 * US, 500 * US, MS, 3 * MS, 11 * MS, 30 * MS, 47 * MS, 260 * MS, 1_100 * MS)

instruction = st.tuples(
    st.integers(0, 99),  # what
    st.sampled_from(DELAYS),
    st.integers(0, 7),  # which
    st.integers(0, 7),
    st.integers(0, 3_000_000),
)
gpu_shape = st.fixed_dictionaries(
    {
        "policy": st.sampled_from(POLICIES),
        "overrun": st.sampled_from([0, 1]),
        "period_ns": st.sampled_from([0, 100 * US, MS, 30 * MS, 7_000_001]),
        "window_ns": st.sampled_from([0, 10 * MS, 250 * MS, 1_000 * MS, 333_333_333]),
        "band_wait_ns": st.sampled_from([0, 100 * US, 500 * US, 5 * MS]),
        "revoke_timeout_ns": st.sampled_from([0, 3 * MS, 40 * MS, NEVER]),
        "switch_ppm": st.sampled_from([0, 10_000]),
    }
)


class Pair:
    """The core and its reference, fed alike."""

    def __init__(self, shapes: list[dict[str, object]]) -> None:
        self.core = Core(gpus=2, vgpus=6, tasks=8, pools=0)
        self.ref = reference.Reference()
        self.now = 0
        self.armed = NEVER
        self.seen: dict[str, int] = defaultdict(int)
        for number, shape in enumerate(shapes):
            self.step("gpu_add", gpu=number, **shape)

    def step(self, kind: str, **fields: object) -> bool:
        """Give one event to both and compare all visible state. Returns whether the event was accepted."""
        context = f"{kind} {fields} at {self.now}"
        try:
            expected = self.ref.step(self.now, kind, **fields)
            error = 0
        except reference.Refused as refused:
            expected, error = [], refused.errno
        try:
            actions = self.core.step(self.now, kind, **fields)
            got = 0
        except Refused as refused:
            actions, got = [], refused.errno
            assert refused.what, f"refused without a reason: {context}"
        assert got == error, f"{context}: core says {got}, reference {error}"
        self.core.check()
        by_engine: dict[int, list[tuple[str, int, int]]] = defaultdict(list)
        for action in actions:
            if action.kind == "arm_timer":
                self.armed = action.at_ns
            else:
                by_engine[action.engine].append((action.kind, action.task, action.flags))
        wanted: dict[int, list[tuple[str, int, int]]] = defaultdict(list)
        for act in expected:
            wanted[act.engine].append((act.kind, act.task, act.flags))
        # Two GPUs have engines of the same number, and vGPUs under null know nothing of each other: what matters is the order
        # on each.
        for table in (by_engine, wanted):
            for engine in table:
                table[engine].sort(key=lambda a: self._side(a[1]))
        assert by_engine == wanted, f"{context}: core {dict(by_engine)}, reference {dict(wanted)}"
        assert self.armed == self.ref.armed, f"{context}: core arms {self.armed}, reference {self.ref.armed}"
        for act in expected:
            self.seen[f"{self.ref.gpus[self._side(act.task)[0]].policy} {act.kind} {act.flags}"] += 1
        if error == 0:
            self._compare_accounts(context)
        else:
            self.seen["refused"] += 1
        if any(en.free_until is not None for g in self.ref.gpus.values() for en in g.engines):
            self.seen["kept free"] += 1
        return error == 0

    def _side(self, task: int) -> tuple[int, int]:
        vgpu = self.ref.tasks[task].vgpu
        gpu = self.ref.vgpus[vgpu].gpu
        return gpu, vgpu if self.ref.gpus[gpu].policy == "null" else 0

    def _compare_accounts(self, context: str) -> None:
        for number, vgpu in self.ref.vgpus.items():
            self.ref._catch_up(vgpu.gpu, self.now)
            gpu = self.ref.gpus[vgpu.gpu]
            for engine in range(3):
                view = self.core.vgpu_view(number, engine, self.now)
                account = vgpu.accounts[engine]
                where = f"{context}: vGPU {number} engine {engine}"
                # Only policies that decide on a credit keep one.
                credit = account.credit if gpu.policy in ("credit", "band") else 0
                assert view.credit_ns == credit, f"{where}: credit {view.credit_ns}, reference {credit}"
                assert view.stats.busy_ns == account.total_busy, f"{where}: busy time"
                assert view.used_ppm == self.ref._used(gpu, vgpu, engine, self.now), f"{where}: utilisation"
                assert view.tasks == len(vgpu.tasks), f"{where}: tasks"
                assert view.waiting == len(self.ref._queue(gpu.engines[engine], number)), f"{where}: waiters"

    def advance(self, delay: int) -> None:
        """Let time pass, with every timer that falls due on the way."""
        target = self.now + delay
        while self.armed <= target:
            self.now = max(self.now, self.armed)
            self.armed = NEVER
            self.step("timer")
        self.now = target

    def play(self, what: int, delay: int, a: int, b: int, amount: int) -> None:
        """Carry out one instruction."""
        self.advance(delay)
        task = a
        engine = 0 if b < 5 else b - 5
        holders = [
            (p, number) for g in self.ref.gpus.values() for number, en in enumerate(g.engines) for p in en.permits.values()
        ]
        if what < 34:
            self.step("arrival", task=task, engine=engine)
        elif what < 68 and holders:
            # What a well-behaved holder does next.
            permit, engine = holders[a % len(holders)]
            if permit.revoked:
                self.step("released", task=permit.task, engine=engine, used_ns=amount)
            elif permit.oneshot or b < 4:
                self.step("completion", task=permit.task, engine=engine, used_ns=amount)
            else:
                self.step("usage", task=permit.task, engine=engine, used_ns=amount)
        elif what < 76:
            self.step("open", task=task, vgpu=b % 6, priority=1 + amount % 5, deadline_ns=(amount % 4) * MS)
        elif what < 79:
            self.step("close", task=task)
        elif what < 83:
            self.step("cancel", task=task, engine=engine)
        elif what < 86:
            self.step("vgpu_add", vgpu=a % 6, gpu=b % 2, min_ppm=SHARES[amount % len(SHARES)], policy=amount % 3)
        elif what < 88:
            self.step("vgpu_set", vgpu=a % 6, min_ppm=SHARES[amount % len(SHARES)], policy=amount % 3)
        elif what < 89:
            self.step("vgpu_remove", vgpu=a % 6)
        elif what < 92:
            self.step("set", task=task, priority=1 + amount % 5, deadline_ns=(amount % 4) * MS)
        elif what < 94:
            self.step("move", task=task, vgpu=b % 6)
        else:
            # And what a confused one does.
            kind = ("completion", "released", "usage", "completion", "released", "timer")[what - 94]
            self.step(kind, **({} if kind == "timer" else {"task": task, "engine": engine, "used_ns": amount}))


@quick(60)
@given(
    st.lists(gpu_shape, min_size=2, max_size=2),
    st.lists(st.sampled_from(SHARES), min_size=6, max_size=6),
    st.lists(st.integers(0, 2), min_size=6, max_size=6),
    st.lists(instruction, min_size=20, max_size=200),
)
def test_same_events_same_actions_as_the_reference(shapes, shares, orders, program):
    pair = Pair(shapes)
    for vgpu in range(6):
        # Most of them on the first GPU: there is the contention.
        pair.step("vgpu_add", vgpu=vgpu, gpu=int(vgpu >= 4), min_ppm=shares[vgpu] // 3, policy=orders[vgpu])
    for task in range(8):
        pair.step("open", task=task, vgpu=task % 6, priority=1 + task % 3, deadline_ns=task * MS // 2)
    for one in program:
        pair.play(*one)


def busy_program(seed: int, length: int) -> list[tuple[int, int, int, int, int]]:
    """A long program in which engines are contended most of the time."""
    import random

    rng = random.Random(seed)
    return [
        (
            rng.choice((rng.randrange(68), rng.randrange(68), rng.randrange(68), rng.randrange(100))),
            rng.choice(DELAYS[:11]),
            rng.randrange(8),
            rng.randrange(8),
            rng.randrange(3_000_000),
        )
        for _ in range(length)
    ]


@quick(75)
@given(st.sampled_from(POLICIES), st.integers(0, 2**32), st.sampled_from([0, 1]))
def test_long_contention_gives_the_same_actions(policy, seed, overrun):
    shape = {"policy": policy, "overrun": overrun, "revoke_timeout_ns": NEVER, "window_ns": 100 * MS}
    pair = Pair([shape, {"policy": "fifo"}])
    for vgpu, share in enumerate((400_000, 300_000, 200_000, 100_000)):
        pair.step("vgpu_add", vgpu=vgpu, gpu=0, min_ppm=share, policy=seed % 3)
    for task in range(8):
        pair.step("open", task=task, vgpu=task % 4, priority=1 + task % 3, deadline_ns=task * MS // 2)
    for one in busy_program(seed, 400):
        pair.play(*one)


def test_the_comparison_reaches_every_rule():
    """The programs above are of no use unless they make every kind of thing happen."""
    seen: dict[str, int] = defaultdict(int)
    for policy in POLICIES:
        for seed in range(12):
            pair = Pair([{"policy": policy, "revoke_timeout_ns": 40 * MS, "window_ns": 100 * MS}, {"policy": "fifo"}])
            for vgpu, share in enumerate((400_000, 300_000, 200_000, 100_000)):
                pair.step("vgpu_add", vgpu=vgpu, gpu=0, min_ppm=share)
            for task in range(8):
                # Every third time one vGPU is alone: only then does band give leases.
                pair.step("open", task=task, vgpu=task % 4 if seed % 3 else 0)
            for one in busy_program(seed, 300):
                pair.play(*one)
            for what, times in pair.seen.items():
                seen[what] += times
    for policy in POLICIES:
        for what in ("grant 0", "grant 1", "revoke 0", "expel 0"):
            assert seen[f"{policy} {what}"] > 5, f"{policy} {what} seen {seen[f'{policy} {what}']} times"
    assert seen["kept free"] > 50
    assert seen["refused"] > 50
