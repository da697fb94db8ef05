# SPDX-License-Identifier: MIT
"""The core of time slices under random tenants, contexts and logs, in virtual time.

Two worlds. In the first, events come in any order, true or not: the core's structures hold after
each, every action fits the state, and nothing stays suspended. In the second, a model GPU runs what
the core lets it run: tenants that want the GPU get their shares, and no tenant more than its cap.
"""

from __future__ import annotations

import random

import pytest
from effort import quick
from hypothesis import event, given, settings
from hypothesis import strategies as st
from rtxg.core import NEVER, PPM
from rtxg.core.slice import (
    CAN_DEMAND,
    CAN_LEAVE,
    CAN_SLICE,
    CAN_SUSPEND,
    CRITICAL_PRIORITY,
    EVENTS,
    FOLLOWED,
    QUEUED,
    SliceCore,
    SliceRefused,
)

US, MS, SEC = 1_000, 1_000_000, 1_000_000_000
TENANTS, CONTEXTS = 5, 8
SLICE_MAX = 4 * MS
CAN = (
    CAN_SUSPEND,
    CAN_SLICE | CAN_SUSPEND,
    CAN_SLICE | CAN_SUSPEND | CAN_LEAVE,
    CAN_SLICE | CAN_SUSPEND | CAN_LEAVE | CAN_DEMAND,
)
# A run of the model GPU takes a fifth of a second.
FEW = settings.get_profile(settings.get_current_profile_name()).max_examples // 5

tenant_params = st.fixed_dictionaries(
    {
        "min_ppm": st.sampled_from((0, 1, 100_000, 400_000, 1_000_000)),
        "max_ppm": st.sampled_from((0, 0, 100_000, 500_000, 1_000_000, 1_000_001)),
        "weight": st.sampled_from((0, 0, 1, 100, 300, 10_000, 10_001)),
        "priority": st.sampled_from((0, 1, CRITICAL_PRIORITY - 1, CRITICAL_PRIORITY, 99, 100)),
        "period_ns": st.sampled_from((0, 1, MS, 10 * MS, 100 * MS, 20 * SEC)),
        "latency_ns": st.sampled_from((0, 0, 1, 500 * US, 5 * MS, 50 * MS)),
        "quantum_ns": st.sampled_from((0, 0, 1, 20 * MS)),
    }
)
events = st.tuples(
    st.sampled_from([*EVENTS, *["start"] * 12, *["end"] * 4, *["timer"] * 6]),
    st.integers(0, TENANTS),
    st.integers(0, CONTEXTS),
    st.sampled_from((0, 1, 50 * US, MS, 3 * MS, 30 * MS)),  # so much later than the event before
    st.sampled_from((0, 0, 100 * US, 3 * MS)),  # so much before it happened
    tenant_params,
    st.sampled_from((0, 1, 0, 1, QUEUED, *(FOLLOWED | v for v in (0, 1, QUEUED)))),
)


def value_of(kind: str, value: int) -> int:
    """What an event of that kind may have of it."""
    return value if kind == "demand" else value & 1 if kind in ("add", "govern") else 0



class World:
    """The result of the actions: the contexts that exist and those that are stopped."""

    def __init__(self, core: SliceCore) -> None:
        self.core = core
        self.now = 0
        self.timer = NEVER
        self.contexts: set[int] = set()
        self.stopped: set[int] = set()
        self.slices: dict[int, int] = {}
        self.stops = 0

    def step(self, kind: str, **fields: int) -> bool:
        """Feeds one event and checks everything; False if it was refused."""
        context = fields.get("context", 0)
        try:
            actions = self.core.step(self.now, kind, **fields)
        except SliceRefused:
            assert self.core.check() is None
            return False
        if kind == "add":
            self.contexts.add(context)
        elif kind == "remove":
            self.contexts.discard(context)
            self.stopped.discard(context)
        elif kind == "timer":
            self.timer = NEVER
        early: set[int] = set()
        for act in actions:
            if act.kind == "arm":
                self.timer = act.ns
                continue
            assert act.context in self.contexts, act
            if act.kind == "suspend":
                assert act.context not in self.stopped, act
                self.stopped.add(act.context)
                self.stops += 1
            elif act.kind == "resume":
                self.stopped.remove(act.context)
            else:
                assert US <= act.ns <= SLICE_MAX, act
                early |= {act.context} & self.stopped
                self.slices[act.context] = act.ns
        assert not early & self.stopped, "a slice is set of one that stays stopped"
        assert self.core.check() is None
        assert not self.stopped or self.timer != NEVER, "stopped, and no look at it is planned"
        return True


@quick(30)
@given(st.sampled_from(CAN), st.lists(events, min_size=100, max_size=300))
def test_whatever_the_log_says_nothing_stays_suspended(can, sequence):
    """Invariants hold after each event in any order. When all contexts are idle at the end, none stays stopped."""
    world = World(SliceCore(TENANTS, CONTEXTS, can=can))
    for number in range(3):
        world.step("tenant_set", tenant=number, min_ppm=100_000, priority=1)
        world.step("add", context=number, tenant=number)
    for kind, tenant, context, later, before, params, value in sequence:
        world.now += later
        fields = {"tenant": tenant, "context": context, "at_ns": max(0, world.now - before)}
        fields["value"] = value_of(kind, value)
        world.step(kind, **fields, **(params if kind == "tenant_set" else {}))
    event(f"{min(world.stops, 3)} stops or more")
    world.step("other", at_ns=world.now)
    silent = world.now
    while world.stopped:
        world.now = max(world.now, world.timer)
        assert world.now < silent + 300 * SEC, f"{world.stopped} are suspended for ever"
        assert world.step("timer")


@given(st.lists(events, max_size=120))
def test_the_same_events_give_the_same_actions(sequence):
    """The core has no clock, and no memory except the caller's."""
    one, two = SliceCore(TENANTS, CONTEXTS), SliceCore(TENANTS, CONTEXTS)
    now = 0
    for kind, tenant, context, later, before, params, value in sequence:
        now += later
        fields = {"tenant": tenant, "context": context, "at_ns": max(0, now - before)}
        fields["value"] = value_of(kind, value)
        fields |= params if kind == "tenant_set" else {}
        try:
            actions = one.step(now, kind, **fields)
        except SliceRefused as refused:
            with pytest.raises(SliceRefused) as again:
                two.step(now, kind, **fields)
            assert again.value.args == refused.args
        else:
            assert two.step(now, kind, **fields) == actions


@given(
    st.integers(0, 20 * MS),
    st.integers(0, 200 * MS),
    st.sampled_from((MS, 8 * MS, 10 * MS, 50 * MS)),
)
def test_work_that_is_not_urgent_is_put_off_but_not_for_ever(phase, waited, period):
    """The work keeps clear of the release where it can, and is done after 100 ms in any case."""
    core = SliceCore(2, 2)
    now = SEC
    core.step(now, "tenant_set", tenant=0, priority=CRITICAL_PRIORITY, period_ns=period)
    release = now + phase
    core.step(now, "release", tenant=0, at_ns=release)
    at = core.calm_at(now, now - waited)
    assert now <= at <= max(now, now - waited + 100 * MS)
    if period > 8 * MS and waited == 0:
        assert not (at < release < at + 4 * MS) and not (at - MS < release <= at)


class Gpu:
    """A GPU that gives contexts that always have work their slices in turn, as an H200 does."""

    SWITCH, SAVE = 84 * US, 95 * US

    def __init__(
        self, can: int, tenants: dict[int, dict[str, int]], contexts: dict[int, int]
    ) -> None:
        self.world = World(SliceCore(TENANTS, CONTEXTS, can=can))
        self.tenant_of = contexts
        self.work = dict.fromkeys(tenants, 0)
        for tenant, params in tenants.items():
            assert self.world.step("tenant_set", tenant=tenant, **params)
        for context, tenant in contexts.items():
            assert self.world.step("add", context=context, tenant=tenant)
        self.last = -1
        self.now = 0

    def run(self, duration: int) -> dict[int, int]:
        """The work of each tenant in that time. The log is read when the core wants to look."""
        world, log = self.world, list[tuple[int, str, int]]()
        before, until = dict(self.work), self.now + duration
        while self.now < until:
            free = [c for c in self.tenant_of if c not in world.stopped]
            if free:
                context = min(free, key=lambda c: (c <= self.last, c))
                contended = len(free) > 1
                stay = world.slices.get(context, 2 * MS)
                log.append((self.now, "start", context))
                self.work[self.tenant_of[context]] += stay
                self.now += stay + (self.SAVE if contended else 0)
                log.append((self.now, "end", context))
                self.now += self.SWITCH if contended else 0
                self.last = context
            else:
                self.now = max(self.now, world.timer)
            if self.now >= world.timer:
                world.now = self.now
                for at, kind, one in log:
                    world.step(kind, context=one, at_ns=at)
                log.clear()
                world.step("timer")
                if free and context in world.stopped:  # its last stay was cut short
                    self.work[self.tenant_of[context]] -= self.SAVE
        return {tenant: work - before[tenant] for tenant, work in self.work.items()}


def random_tenants(rng: random.Random) -> tuple[dict[int, dict[str, int]], dict[int, int]]:
    """Best-effort tenants that together reserve at most the whole, and contexts of each."""
    tenants: dict[int, dict[str, int]] = {}
    contexts: dict[int, int] = {}
    left = PPM
    for tenant in range(rng.randint(2, 4)):
        low = min(left, rng.choice((0, 100_000, 200_000, 300_000)))
        left -= low
        weight = rng.choice((0, 0, 50, 100, 300))
        tenants[tenant] = {"min_ppm": low, "weight": weight, "priority": 1}
        for _ in range(rng.choice((1, 1, 2))):
            contexts[len(contexts)] = tenant
    return tenants, contexts


def expected_shares(tenants: dict[int, dict[str, int]]) -> dict[int, float]:
    """The rule of rtxg_slice.h, read a second time: reservations first, then weights."""
    weights = {t: p["weight"] or p["min_ppm"] / 2000 or 100 for t, p in tenants.items()}
    left = 1 - sum(p["min_ppm"] for p in tenants.values()) / PPM
    return {
        t: p["min_ppm"] / PPM + left * weights[t] / sum(weights.values())
        for t, p in tenants.items()
    }


@settings(max_examples=FEW)
@given(st.sampled_from(CAN), st.integers(0, 2**32))
def test_all_that_want_the_gpu_get_their_shares(can, seed):
    """Within two points over two seconds, however many contexts a tenant has."""
    tenants, contexts = random_tenants(random.Random(seed))
    gpu = Gpu(can, tenants, contexts)
    gpu.run(SEC)
    work = gpu.run(2 * SEC)
    for tenant, share in expected_shares(tenants).items():
        got = work[tenant] / sum(work.values())
        assert abs(got - share) < 0.02, f"tenant {tenant} got {got:.3f}, its share is {share:.3f}"


@settings(max_examples=FEW)
@given(st.sampled_from(CAN), st.integers(0, 2**32))
def test_a_cap_holds_and_takes_nothing_from_reservations(can, seed):
    """No capped tenant gets a point more than its cap, no tenant two less than its reservation."""
    rng = random.Random(seed)
    tenants, contexts = random_tenants(rng)
    for params in tenants.values():
        if rng.random() < 0.5:
            params["max_ppm"] = min(PPM, max(100_000, params["min_ppm"] + rng.choice((0, 100_000))))
    gpu = Gpu(can, tenants, contexts)
    gpu.run(SEC)
    work = gpu.run(2 * SEC)
    for tenant, params in tenants.items():
        got = work[tenant] / (2 * SEC)
        cap = params.get("max_ppm", 0) or PPM
        assert got <= cap / PPM + 0.01, f"tenant {tenant} got {got:.3f}, its cap is {cap / PPM}"
        part = work[tenant] / sum(work.values())
        assert part >= params["min_ppm"] / PPM - 0.02 or got >= cap / PPM - 0.02, (
            f"tenant {tenant} got {part:.3f} of the work, its reservation is {params['min_ppm']}"
        )
