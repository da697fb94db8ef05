# SPDX-License-Identifier: MIT
"""Permits that come early, under any events: two at one time at most, and never of two vGPUs."""

from __future__ import annotations

import random

import pytest

from rtxg.core import Core, Refused

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
