# SPDX-License-Identifier: MIT
"""Permits that come early, under any events: two at one time at most, and never of two vGPUs."""

from __future__ import annotations

import random

import pytest

from rtxg.core import NEVER, Core, Refused
from rtxg.core.host import MS, SEC, Host

US = 1_000
PAUSES = (0, 0, US, 10 * US, 25 * US, 100 * US, 200 * US, 200 * US, 200 * US)
KINDS = ["arrival"] * 4 + ["busy"] * 3 + ["timer"] * 8 + ["completion"] * 2 + ["cancel", "usage"]
POLICIES = ("fifo", "credit", "band", "cbs", "wfq", "tbs")
TASKS, ALONE = 5, 4  # the last one is in a vGPU of its own


class World:
    """A core, and who has a permit by its actions."""

    def __init__(self, policy: str, ahead_ns: int) -> None:
        self.core = Core(gpus=1, vgpus=2, tasks=TASKS, pools=0)
        self.now = 0
        self.held: set[int] = set()
        self.revoked: set[int] = set()
        self.both = 0
        self.core.step(0, "gpu_add", gpu=0, policy=policy, ahead_ns=ahead_ns, early_ns=25 * US)
        for vgpu in range(2):
            self.core.step(0, "vgpu_add", vgpu=vgpu, gpu=0)
        for task in range(TASKS):
            self.core.step(0, "open", task=task, vgpu=int(task == ALONE))

    def step(self, kind: str, task: int) -> None:
        """An event, which may be refused, and what holds after it."""
        fields = {} if kind == "timer" else {"task": task, "engine": 0, "used_ns": 0}
        if kind == "completion":
            if task not in self.held:
                return
            kind = "released" if task in self.revoked else kind
        elif kind == "close":
            fields = {"task": task}
        try:
            actions = self.core.step(self.now, kind, **fields)
        except Refused:
            return
        self.core.check()
        holders = [self.core.vgpu_view(vgpu, 0, self.now).holder for vgpu in range(2)]
        if kind in ("completion", "released", "close") and task not in holders:
            self.held.discard(task)
            self.revoked.discard(task)
        for action in actions:
            if action.kind == "grant":
                self.held.add(action.task)
            elif action.kind == "revoke":
                self.revoked.add(action.task)
            elif action.kind == "expel":
                self.held.discard(action.task)
                self.revoked.discard(action.task)
        assert len(self.held) <= 2
        if len(self.held) == 2:
            assert ALONE not in self.held, "the two are of one vGPU"
            self.both += 1
        if kind == "close":
            self.core.step(self.now, "open", task=task, vgpu=int(task == ALONE))


@pytest.mark.parametrize("ahead_ns", [0, 50 * US])
@pytest.mark.parametrize("policy", POLICIES)
def test_two_of_one_vgpu_hold_at_most(policy: str, ahead_ns: int) -> None:
    """Arrivals, launches, ends, expulsions and closings in any order."""
    both = 0
    for seed in range(60):
        rng = random.Random(seed)
        world = World(policy, ahead_ns)
        for _ in range(500):
            world.now += rng.choice(PAUSES)
            kind = "close" if rng.random() < 0.01 else rng.choice(KINDS)
            world.step(kind, rng.randrange(TASKS if rng.random() < 0.1 else ALONE))
        both += world.both
    assert both, "a run without an early permit proves nothing"


# In virtual time, with programs that have to be woken ---------------------------------------------

WAKE = 60 * US


def idle_per_use(policy: str, programs: int = 4, **params: int) -> float:
    """Time for which the engine has no work between two uses of 1 ms, though programs wait; ns."""
    host = Host(policy=policy, wake=WAKE, **params)
    vgpu = host.vgpu()
    clients = [host.client(vgpu, kernel=MS, think=200 * US, start=i) for i in range(programs)]
    host.run(SEC // 2)
    begins = [start for start, _ in host.runs[vgpu, 0]]
    assert len(begins) == sum(c.jobs for c in clients) > 300
    ends = [end for _, end in host.runs[vgpu, 0]]
    gaps = [b - e for b, e in zip(begins[1:], ends, strict=False)]
    assert min(gaps) >= 0, "one kernel at a time"
    return sum(gaps[20:]) / len(gaps[20:])


@pytest.mark.parametrize("policy", POLICIES)
def test_the_simulator_knows_alerts_and_early_permits(policy: str) -> None:
    """The same core as in the daemon: without either a program is woken when the engine is free."""
    turns = {"think_ns": NEVER}
    assert idle_per_use(policy, **turns) > 0.8 * WAKE
    assert idle_per_use(policy, ahead_ns=100 * US, **turns) < 0.1 * WAKE
    assert idle_per_use(policy, early_ns=100 * US, **turns) < 0.1 * WAKE
    # one that comes later than it takes to wake up is of half the use
    late = idle_per_use(policy, early_ns=WAKE // 2, **turns)
    assert 0.3 * WAKE < late < 0.7 * WAKE


@pytest.mark.parametrize("policy", POLICIES)
def test_programs_that_die_beside_an_early_permit(policy: str) -> None:
    """With their permit, before they get it, before they have launched: the others go on."""
    with_two = 0
    for seed in range(30):
        rng = random.Random(seed)
        host = Host(policy=policy, wake=lambda rng=rng: rng.randrange(WAKE), early_ns=150 * US)
        vgpu = host.vgpu()
        for i in range(4):
            host.client(vgpu, kernel=MS, think=lambda rng=rng: rng.randrange(400 * US), start=i)
        for _ in range(20):
            host.run(rng.randrange(4 * MS))
            with_two += len(host.holders[0]) == 2
            victims = [c for c in host.clients.values() if c.opened and c.stop]
            if len(host.holders[0]) == 2 and rng.random() < 0.7:
                victims = list(host.holders[0].values())
            host.close(rng.choice(victims))
            host.client(vgpu, kernel=MS, think=200 * US, start=host.now)
        before = {c.task: c.jobs for c in host.clients.values() if c.stop}
        host.run(40 * MS)
        assert all(host.clients[task].jobs > jobs for task, jobs in before.items())
    assert with_two > 20, "a run without two permits proves nothing"
