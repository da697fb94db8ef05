# SPDX-License-Identifier: MIT
"""The machine of permits against pages that lie: arbitrary words at arbitrary times beside honest clients.

The honest half of the protocol stands in `Honest`, after include/uapi/rtxg/page.h. A hostile task
has the same page and writes what hypothesis draws into the client's words of it, rings or does not
ring, and never follows the protocol.
"""

from __future__ import annotations

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rtxg.core.permit import GRANTED, HELD, PAGE_ONESHOT, PAGE_REPORT, REVOKED, Permits

MS = 1_000_000
SEC = 1_000_000_000
PATIENCE = 2 * SEC  # the default of revoke_timeout_ns
WORDS = (
    "in_flight",
    "want",
    "launches",
    "completions",
    "busy_ns",
    "busy_since",
    "device_ns",
    "watch",
)
SHORT = {"in_flight", "want", "watch"}


class Honest:
    """A client that keeps to the protocol: jobs of one kernel, one after the other."""

    def __init__(self, permits: Permits, task: int, kernel: int, period: int = 0) -> None:
        self.period = period  # from the release of a job to the next; 0: the next follows at once
        self.release = 0
        self.permits = permits
        self.task = task
        self.kernel = kernel
        self.page = permits.lane(task)
        self.until: int | None = None  # when its kernel ends
        self.since: int | None = None  # when it began to wait
        self.jobs = 0
        self.ran = 0
        self.longest = 0
        self.rang_at = 0

    def act(self) -> None:
        """What it does now, if anything."""
        page = self.page
        if self.until is not None:
            if self.permits.now >= self.until:
                self.complete()
            return
        if self.permits.now < self.release:
            return
        if self.since is None:
            self.since = self.permits.now
        page.in_flight += 1
        permit = page.permit
        if permit & GRANTED:
            page.busy_since = self.permits.now
            if permit & PAGE_ONESHOT:
                page.permit = permit & ~GRANTED
            page.want = 0
            page.launches += 1
            self.longest = max(self.longest, self.permits.now - self.since)
            self.release = self.since + self.period
            self.since = None
            self.until = self.permits.now + self.kernel
            return
        page.in_flight -= 1
        if not page.want or permit >> 8 != self.rang_at:
            page.want = 1
            self.rang_at = permit >> 8
            self.permits.ring(self.task)

    def complete(self) -> None:
        """The kernel has ended."""
        page = self.page
        page.busy_ns += self.permits.now - page.busy_since
        self.ran += self.permits.now - page.busy_since
        page.busy_since = 0
        page.completions += 1
        page.in_flight -= 1
        self.until = None
        self.jobs += 1
        if not page.permit & GRANTED or page.permit & PAGE_REPORT:
            self.permits.ring(self.task)


class World:
    """Honest clients and hostile pages on one engine, each in a separate vGPU."""

    def __init__(self, policy: str, honest: int, hostile: int, kernel: int) -> None:
        count = honest + hostile
        self.permits = Permits(gpus=1, vgpus=count, tasks=count)
        self.permits.event("gpu_add", gpu=0, policy=policy)
        for task in range(count):
            self.permits.event("vgpu_add", vgpu=task, gpu=0)
            self.permits.open(task, vgpu=task)
        self.honest = [Honest(self.permits, task, kernel) for task in range(honest)]
        self.hostile = range(honest, count)
        self.most = 1

    def check(self) -> None:
        """What holds after every step."""
        self.permits.core.check()
        holders = self.permits.holders()
        assert len(holders) <= self.most, "one permit an engine; two where they come early"
        for client in self.honest:
            if client.page.permit & GRANTED:
                assert self.permits.state(client.task) in (HELD, REVOKED), (
                    "no permit without the core"
                )

    def run(self, length: int) -> None:
        """Time passes, and the honest act."""
        end = self.permits.now + length
        while True:
            for client in self.honest:
                client.act()
            self.check()
            ends = [c.until for c in self.honest if c.until is not None]
            ends += [c.release for c in self.honest if c.release > self.permits.now]
            at = min([end, self.permits.now + MS, *ends])
            if self.permits.now >= end:
                return
            self.permits.run_to(max(at, self.permits.now + 1))

    def scribble(self, task: int, word: str, value: int, ring: bool) -> None:
        """A hostile task writes, and may ring."""
        setattr(self.permits.lane(task), word, value & 0xFFFFFFFF if word in SHORT else value)
        if ring:
            self.permits.ring(task)


VALUES = st.one_of(
    st.sampled_from([0, 1, 2, 2**31, 2**32 - 1, 2**63, 2**64 - 1]),
    st.integers(0, 10 * SEC),
    st.integers(0, 2**64 - 1),
)
STEP = st.tuples(
    st.integers(0, 2),
    st.sampled_from(WORDS),
    VALUES,
    st.booleans(),
    st.sampled_from([0, 0, MS, 7 * MS, 300 * MS]),
)
LIMITS = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


def honest_are_served(world: World) -> None:
    """For a second, each of them."""
    done = [client.jobs for client in world.honest]
    for client in world.honest:
        client.longest = 0
    world.run(SEC)
    for client, before in zip(world.honest, done, strict=True):
        assert client.jobs >= before + 10, "an honest waiter is served"
        assert client.longest < SEC // 4, "and does not wait for those who lie"


@LIMITS
@given(
    st.sampled_from(["cbs", "fifo", "credit", "band"]),
    st.integers(1, 3),
    st.lists(STEP, max_size=40),
)
def test_lies_keep_no_honest_client_from_its_turn(policy: str, hostile: int, steps: list) -> None:
    """Whatever was written, once the liars are silent each costs the others its patience once."""
    world = World(policy, 2, hostile, 5 * MS)
    for which, word, value, ring, pause in steps:
        world.scribble(world.hostile[which % hostile], word, value, ring)
        if pause:
            world.run(pause)
        world.check()
    expelled = sum(world.permits.stats(task).expelled for task in world.hostile)
    world.run(hostile * PATIENCE + SEC)  # the last lies are met
    honest_are_served(world)
    later = sum(world.permits.stats(task).expelled for task in world.hostile)
    assert later - expelled <= 2 * hostile, "a silent page is expelled once for what it holds"


@LIMITS
@given(st.sampled_from(["cbs", "fifo", "credit", "band"]), st.lists(STEP, max_size=40))
def test_what_a_page_claims_is_charged_to_its_own_task(policy: str, steps: list) -> None:
    """An honest client is told no more use than it had, and never loses its permit."""
    world = World(policy, 2, 2, 3 * MS)
    for which, word, value, ring, pause in steps:
        world.scribble(world.hostile[which % 2], word, value, ring)
        if pause:
            world.run(pause)
    world.run(20 * MS)
    for client in world.honest:
        world.permits.count(client.task)
        stats = world.permits.stats(client.task)
        running = world.permits.now - client.page.busy_since if client.page.busy_since else 0
        assert stats.used_ns <= client.ran + running
        assert stats.expelled == 0
    for task in world.hostile:
        world.permits.count(task)
        stats = world.permits.stats(task)
        assert stats.busy_ns <= world.permits.now, "a claim is bounded by the time that has passed"
        assert stats.used_ns <= stats.busy_ns


@LIMITS
@given(st.sampled_from(["cbs", "fifo", "credit", "band"]), st.booleans(), st.integers(1, 4))
def test_a_stopped_program_costs_its_patience_once(
    policy: str, launched: bool, stopped: int
) -> None:
    """It stops with a kernel in flight or on its way to launch, wanting more: one expulsion, however long."""
    world = World(policy, 1, stopped, 5 * MS)
    for task in world.hostile:
        page = world.permits.lane(task)
        page.in_flight = int(launched)
        world.scribble(task, "want", 1, ring=True)
    world.run(stopped * (PATIENCE + SEC))
    before = world.honest[0].jobs
    world.run(2 * SEC)
    assert world.honest[0].jobs - before >= 200
    for task in world.hostile:
        assert world.permits.stats(task).expelled <= 1


@LIMITS
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 5), st.sampled_from([0, MS, 50 * MS])),
        max_size=30,
    )
)
def test_moves_keep_the_counts_and_the_rule_of_one(moves: list) -> None:
    """Tasks are moved about while they wait, hold and compute."""
    world = World("cbs", 3, 1, 4 * MS)
    total: dict[int, int] = {}
    for task, vgpu, pause in moves:
        world.permits.move(task, vgpu % 4)
        if pause:
            world.run(pause)
        world.check()
        for client in world.honest:
            grants = world.permits.stats(client.task).grants
            assert grants >= total.get(client.task, 0), "counters only grow"
            total[client.task] = grants
    world.run(200 * MS)
    jobs = [client.jobs for client in world.honest]
    world.run(200 * MS)
    assert all(client.jobs > before for client, before in zip(world.honest, jobs, strict=True))


EARLY = MS // 2


def crowd(honest: int, hostile: int) -> World:
    """All in one vGPU, whose tasks get permits before the end that is foreseen."""
    world = World("band", 1, 0, 5 * MS)
    world.permits = permits = Permits(gpus=1, vgpus=1, tasks=honest + hostile)
    permits.event("gpu_add", gpu=0, policy="band", ahead_ns=MS, early_ns=EARLY)
    permits.event("vgpu_add", vgpu=0, gpu=0)
    for task in range(honest + hostile):
        permits.open(task, vgpu=0)
    world.honest = [Honest(permits, task, 5 * MS) for task in range(honest)]
    world.hostile = range(honest, honest + hostile)
    world.most = 2
    return world


@LIMITS
@given(st.integers(1, 3), st.lists(STEP, max_size=40))
def test_lies_take_no_turn_where_permits_come_early(hostile: int, steps: list) -> None:
    """As above: two permits at one time at most, and no time that the vGPU does not pay for."""
    world = crowd(2, hostile)
    for which, word, value, ring, pause in steps:
        world.scribble(world.hostile[which % hostile], word, value, ring)
        if pause:
            world.run(pause)
        world.check()
    world.run(hostile * PATIENCE + SEC)
    honest_are_served(world)
    for client in world.honest:
        assert world.permits.stats(client.task).expelled == 0
    charged = 0
    for task in range(2 + hostile):
        world.permits.count(task)
        charged += world.permits.stats(task).busy_ns
    assert charged <= world.permits.now, "no time is charged twice"


@LIMITS
@given(st.integers(1, 3), st.lists(st.tuples(STEP, st.integers(0, 5)), max_size=40))
def test_deaths_and_lies_where_permits_come_early(hostile: int, steps: list) -> None:
    """Tasks that lie and then die, with a permit or without, and so does an honest one: now and
    then, and when two hold of which it is one.
    """
    world = crowd(3, hostile)
    permits = world.permits
    for (which, word, value, ring, pause), dies in steps:
        victim = world.hostile[which % hostile]
        world.scribble(victim, word, value, ring)
        if dies >= 4:
            victim = 2
        for _ in range(200 if dies == 5 else 0):
            if len(permits.holders()) == 2 and permits.state(2) == HELD:
                break
            world.run(MS // 5)
        if dies >= 3:
            permits.close(victim)
            world.check()
            permits.open(victim, vgpu=0)
        if dies >= 4:
            world.honest[2] = Honest(permits, victim, 5 * MS)
        if pause:
            world.run(pause)
        world.check()
    world.run(hostile * PATIENCE + SEC)
    honest_are_served(world)
    assert permits.core.vgpu_view(0, 0, permits.now).stats.busy_ns <= permits.now


def test_permits_come_early() -> None:
    """Two honest programs alone: the second one's kernel is with the device when the first ends."""
    world = crowd(2, 0)
    both = 0
    for _ in range(400):
        world.run(MS // 4)
        both += len(world.permits.holders()) == 2
    assert both >= 20
    assert all(world.permits.stats(client.task).expelled == 0 for client in world.honest)


TURN = 200 * MS  # the revocation's timeout of the worlds below


def besieged(hostile: int, vgpus: int, period: int) -> World:
    """One vGPU with 40 % reserved, and hostile tasks in others that reserve nothing."""
    world = World("cbs", 1, 0, 5 * MS)
    world.permits = permits = Permits(gpus=1, vgpus=1 + vgpus, tasks=1 + hostile)
    permits.event("gpu_add", gpu=0, policy="cbs", revoke_timeout_ns=TURN)
    for vgpu in range(1 + vgpus):
        permits.event("vgpu_add", vgpu=vgpu, gpu=0, min_ppm=0 if vgpu else 400_000)
    for task in range(1 + hostile):
        permits.open(task, vgpu=1 + task % vgpus if task else 0)
    world.honest = [Honest(permits, 0, 5 * MS, period)]
    world.hostile = range(1, 1 + hostile)
    return world


def play(world: World, script: list, length: int) -> None:
    """The adversary does what it has to do again and again."""
    end = world.permits.now + length
    while world.permits.now < end:
        for which, word, value, ring, pause in script:
            world.scribble(world.hostile[which % len(world.hostile)], word, value, ring)
            world.run(pause)


#: what a task does that takes all it can: it waits, launches, and stays in flight
GREEDY = [
    (0, "in_flight", 0, True, 0),
    (0, "want", 1, True, MS),
    (0, "in_flight", 1, False, 0),
    (0, "launches", 1, True, 7 * MS),
]
SIEGE = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(WORDS),
        st.one_of(st.integers(0, 2), VALUES),
        st.booleans(),
        st.sampled_from([0, 0, MS, 7 * MS, TURN - MS, TURN + MS]),
    ),
    min_size=1,
    max_size=10,
).filter(lambda script: any(step[4] for step in script))


@settings(LIMITS, max_examples=15)
@example(hostile=1, vgpus=1, script=GREEDY)
@example(hostile=3, vgpus=3, script=[(n, *step[1:]) for n in range(3) for step in GREEDY])
@given(hostile=st.integers(1, 3), vgpus=st.integers(1, 2), script=SIEGE)
def test_a_job_with_budget_waits_for_one_turn_at_most(
    hostile: int, vgpus: int, script: list
) -> None:
    """Whatever adversaries write, as often as they like: jobs of a reserved vGPU wait for one turn."""
    world = besieged(hostile, vgpus, period=33 * MS)
    play(world, script, 4 * SEC)
    client = world.honest[0]
    waiting = world.permits.now - client.since if client.since is not None else 0
    assert max(client.longest, waiting) <= TURN + 10 * MS
    assert world.permits.stats(0).expelled == 0


@settings(LIMITS, max_examples=15)
@example(hostile=1, vgpus=1, script=GREEDY)
@given(hostile=st.integers(1, 3), vgpus=st.integers(1, 2), script=SIEGE)
def test_a_vgpu_that_always_wants_the_engine_gets_its_reservation(
    hostile: int, vgpus: int, script: list
) -> None:
    """Its share is kept to within one turn over any time, whatever the adversaries write."""
    world = besieged(hostile, vgpus, period=0)
    world.run(SEC)
    before, began = world.honest[0].ran, world.permits.now
    play(world, script, 4 * SEC)
    length = world.permits.now - began
    assert world.honest[0].ran - before >= 0.4 * length - 2 * TURN
