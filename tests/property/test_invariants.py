# SPDX-License-Identifier: MIT
"""Rules that hold for every policy and every behaviour of clients, in virtual time.

Random tenants, kernels, thinking times, deaths, hung programs and changes of parameters run through the host of
lab/rtxg/core/host.py, which checks the core's own structures and "one permit an engine" after every event. Here the runs are
judged afterwards: no engine idle while a client waits, charges against work done, caps, replay.
"""

from __future__ import annotations

import random

from effort import quick
from hypothesis import given, settings
from hypothesis import strategies as st
from rtxg.core import GPU_POLICIES, NEVER, PPM, Core, Refused, ffi, lib
from rtxg.core.host import MS, SEC, US, Host

# The core's own list: a policy that is added there runs here.
POLICIES = tuple(GPU_POLICIES)
ARBITRATED = tuple(name for name in POLICIES if name != "null")
CONSERVING = tuple(
    name for name in ARBITRATED if lib.rtxg_gpu_policy_conserving(GPU_POLICIES[name], ffi.new("struct rtxg_vgpu_params *"))
)
THINK = (0, 0, 20 * US, 90 * US, 400 * US, 3 * MS, 40 * MS)
KERNEL = (5 * US, 200 * US, MS, 2_345_678, 9 * MS, 70 * MS)
THINK_NS = MS  # how long an engine may be kept free for a vGPU that was just busy
THINKERS = tuple(name for name in POLICIES if lib.rtxg_gpu_policy_reads(GPU_POLICIES[name]) & lib.RTXG_READS_THINK)
BAND_WAIT = 500 * US
# Kernels of 5 us make a hundred times the events of those of a millisecond. In the quick tier such a run ends early, or a few
# of them take all the time.
MOST_EVENTS = None if settings.get_current_profile_name() == "full" else 8_000


def times(rng: random.Random, choices: tuple[int, ...]):
    """A constant, or a random time around one of the choices."""
    mean = rng.choice(choices)
    if mean == 0 or rng.random() < 0.5:
        return mean
    # Twice the shape of an exponential, cut: the longest is known, for the bounds below.
    return lambda: max(1, min(3 * mean, int(rng.expovariate(1 / mean))))


def longest(choice) -> int:
    """The longest time that `times` may draw, from 2000 draws of its cut."""
    return choice if isinstance(choice, int) else max(choice() for _ in range(2000))


def build(policy: str, seed: int, soft: bool = False, change: bool = True, **params) -> Host:
    """A host with random tenants."""
    rng = random.Random(seed)
    host = Host(policy=policy, record=True, **params)
    left = PPM
    for _ in range(rng.randint(1, 5)):
        low = rng.choice((0, 10_000, 100_000, 200_000, 300_000, 500_000))
        low = min(low, left)
        left -= low
        high = PPM if soft else rng.choice((PPM, PPM, low or PPM, min(PPM, low + 200_000)))
        vgpu = host.vgpu(
            min_ppm=low,
            max_ppm=high,
            weight=rng.choice((0, 1, 100, 10_000)),
            priority=rng.choice((0, 1, 1, 50)),
            period_ns=rng.choice((0, MS, 10 * MS, 100 * MS)),
            policy=rng.randint(0, 2),
        )
        for _ in range(rng.choice((1, 1, 2, 5))):
            client = host.client(
                vgpu,
                kernel=times(rng, KERNEL),
                think=times(rng, THINK),
                engine=rng.choice((0, 0, 0, 1, 2)),
                start=rng.choice((0, 0, 30 * MS, 200 * MS)),
                stop=rng.choice((NEVER, NEVER, 300 * MS)),
                priority=rng.randint(0, 99),
                deadline_ns=rng.choice((0, MS, 50 * MS)),
            )
            if change and rng.random() < 0.15:
                host.at(client.start + rng.randrange(1, 400 * MS), lambda c=client: host.close(c))
    return host


def replays(host: Host) -> None:
    """The recorded events give the recorded actions again."""
    assert host.log is not None
    again = Core(gpus=1, vgpus=64, tasks=256, pools=0, now=host.start)
    for time, kind, fields, actions in host.log:
        assert again.step(time, kind, **fields) == actions, f"at {time}: {kind} {fields}"


@quick(80)
@given(st.sampled_from(POLICIES), st.integers(0, 2**32))
def test_same_events_same_actions(policy, seed):
    host = build(policy, seed).run(400 * MS, MOST_EVENTS)
    replays(host)


@quick(90)
@given(st.sampled_from(CONSERVING), st.integers(0, 2**32))
def test_conserving_policies_without_anticipation_or_caps_never_idle_while_a_task_waits(policy, seed):
    host = build(policy, seed, soft=True, think_ns=NEVER).run(600 * MS, MOST_EVENTS)
    for engine in range(3):
        assert host.idle_spans(engine) == [], f"engine {engine}"


@quick(60)
@given(st.integers(0, 2**32))
def test_band_idles_no_longer_than_its_wait(seed):
    host = build("band", seed).run(600 * MS, MOST_EVENTS)
    for engine in range(3):
        for start, end, _, _ in host.idle[engine]:
            # Each arrival during a wait takes the engine, so a span has one set of waiters.
            assert end - start <= BAND_WAIT, f"engine {engine} stood still from {start} to {end}"


@quick(70)
@given(st.sampled_from(CONSERVING), st.integers(0, 2**32))
def test_conserving_policies_without_caps_idle_no_longer_than_their_patience(policy, seed):
    host = build(policy, seed, soft=True, think_ns=THINK_NS).run(600 * MS, MOST_EVENTS)
    for engine in range(3):
        for start, end in host.idle_spans(engine):
            # No task stops launching while nothing runs, so waits for several do not add up.
            assert end - start <= THINK_NS, f"engine {engine} stood still from {start} to {end}"


@quick(90)
@given(st.sampled_from(ARBITRATED), st.integers(0, 2**32))
def test_charges_add_up_to_busy_time_and_those_of_tasks_to_their_vgpu(policy, seed):
    host = build(policy, seed, change=False).run(500 * MS, MOST_EVENTS)
    for engine in range(3):
        charged = 0
        for vgpu in host.vgpu_params:
            stats = host.core.vgpu_view(vgpu, engine, host.now).stats
            parts = [host.core.task_stats(c.task, engine) for c in host.clients.values() if c.vgpu == vgpu and c.opened]
            for name in ("busy_ns", "used_ns", "wait_ns", "grants", "completions", "overruns", "expelled"):
                assert getattr(stats, name) == sum(getattr(p, name) for p in parts), f"vGPU {vgpu}: {name}"
            reported = sum(c.reported for c in host.clients.values() if c.vgpu == vgpu and c.engine == engine)
            charged += stats.busy_ns
            assert stats.used_ns == reported, f"vGPU {vgpu} engine {engine}: believed use"
            if policy in THINKERS:
                # One that thinks while others wait pays for the pause too.
                assert stats.busy_ns >= reported, f"vGPU {vgpu} engine {engine}"
            else:
                assert stats.busy_ns == reported, f"vGPU {vgpu} engine {engine}"
        assert charged <= host.now - host.start, f"engine {engine} was charged for more time than there was"


@quick(80)
@given(st.integers(0, 2**32))
def test_a_cap_is_passed_by_one_kernel_at_most(seed):
    """In any run of whole periods: cap x time, and one kernel.

    The cap never delays a reservation. So a vGPU with a reservation may pass the cap by more: by its budget, by the kernel that
    overruns the budget, and by the time that it may catch up after waits (its part of eight periods and of the two longest
    kernels).
    """
    rng = random.Random(seed)
    host = Host(policy="cbs")
    period = rng.choice((5 * MS, 30 * MS))
    cap = rng.choice((50_000, 200_000, 350_000))
    kernel = times(rng, (50 * US, MS, 4 * MS, 20 * MS))
    low = rng.choice((0, 30_000, cap))
    capped = host.vgpu(min_ppm=low, max_ppm=cap, period_ns=period)
    for _ in range(rng.choice((1, 3))):
        host.client(capped, kernel=kernel, think=rng.choice((0, 100 * US)))
    most = longest(kernel)
    longest_any = most
    if rng.random() < 0.6:
        other = host.vgpu(min_ppm=rng.choice((0, 300_000)), period_ns=rng.choice((MS, 20 * MS)))
        kernel = times(rng, (100 * US, 3 * MS))
        host.client(other, kernel=kernel, think=times(rng, (0, 50 * US, 5 * MS)))
        longest_any = max(longest_any, longest(kernel))
    if low:
        most += (9 * period + 2 * longest_any) * low // PPM + (most if low < cap else 0)
    host.run(SEC)
    quantum = period * cap // PPM
    # By differences of cumulative service: for every end, the start that makes the excess largest.
    service = 0
    least = 0
    for n, share in enumerate(host.shares(period)[capped], 1):
        service += round(share * period)
        excess = service - n * quantum
        assert excess - least <= most + n, f"period {n}: {excess - least} ns over the cap, {most} allowed"
        least = min(least, excess)


@given(st.sampled_from(ARBITRATED), st.integers(0, 2**32))
@quick(80)
def test_hung_programs_lose_their_permit_and_nobody_else_does(policy, seed):
    rng = random.Random(seed)
    host = Host(policy=policy, revoke_timeout_ns=50 * MS)
    good, bad = host.vgpu(min_ppm=400_000), host.vgpu(min_ppm=400_000)
    honest = [host.client(good, kernel=MS, think=times(rng, (0, 80 * US)), start=rng.choice((0, 7 * MS))) for _ in range(2)]
    hung = [host.client(bad, kernel=MS, start=rng.choice((0, 10 * MS)), hang=True) for _ in range(3)]
    host.run(SEC)
    assert sorted(host.expelled) == sorted(c.task for c in hung), "each hung program once, no other"
    # Three time-outs are lost; the rest of the second is theirs.
    assert sum(c.done for c in honest) >= SEC - 3 * 50 * MS - 10 * MS - 100 * MS


# ---- hostile events ----------------------------------------------------------------------------------------------------

KINDS = (
    "gpu_add", "gpu_set", "gpu_remove", "vgpu_add", "vgpu_set", "vgpu_remove", "open", "set", "move", "close", "arrival",
    "arrival", "arrival", "arrival", "cancel", "busy", "completion", "completion", "completion", "released", "released",
    "usage", "timer", "timer", "pool_add", "pool_remove", "pool_request", "pool_release", "none",
)  # fmt: skip


def hostile_event(rng: random.Random) -> tuple[str, dict[str, int | str]]:
    """An event of any kind with fields that are small, at a border, or absurd."""

    def number(limit: int) -> int:
        return rng.choice(
            (rng.randrange(limit), rng.randrange(limit), rng.randrange(limit), limit, 2**32 - 1)[: rng.choice((3, 5))]
        )

    def time() -> int:
        return rng.choice((0, 1, 99_999, 100_000, 30 * MS, 10 * SEC, 10 * SEC + 1, 2**62, 2**63, NEVER - 1, NEVER))

    def ppm() -> int:
        return rng.choice((0, 1, 250_000, 500_000, 999_999, PPM, PPM + 1, 2**32 - 1))

    kind = rng.choice(KINDS)
    fields: dict[str, int | str] = {}
    if kind in ("gpu_add", "gpu_set"):
        fields = {
            "gpu": number(2),
            "policy": rng.randrange(len(POLICIES) + 1),
            "overrun": rng.randrange(3),
            "period_ns": time(),
            "window_ns": time(),
            "band_wait_ns": time(),
            "think_ns": time(),
            "revoke_timeout_ns": time(),
            "switch_ppm": ppm() if rng.random() < 0.3 else 0,
            "ahead_ns": rng.choice((0, 0, 50_000, 1_000_001)),
            "early_ns": rng.choice((0, 0, 50_000, 1_000_001)),
        }
        if rng.random() < 0.6:
            fields |= {"period_ns": 0, "window_ns": 0}
    elif kind in ("vgpu_add", "vgpu_set"):
        fields = {
            "vgpu": number(4),
            "min_ppm": ppm() if rng.random() < 0.5 else rng.choice((0, 100_000, 200_000)),
            "max_ppm": ppm() if rng.random() < 0.5 else 0,
            "weight": rng.choice((0, 1, 10_000, 10_001)),
            "priority": rng.choice((0, 1, 99, 100)),
            "period_ns": time() if rng.random() < 0.3 else 0,
            "policy": rng.randrange(4),
        }
        if kind == "vgpu_add":
            fields["gpu"] = number(2)
    elif kind in ("open", "set"):
        fields = {"task": number(6), "priority": rng.choice((0, 5, 99, 100)), "deadline_ns": time(), "runtime_ns": 0}
        if kind == "open":
            fields["vgpu"] = number(4)
    elif kind == "move":
        fields = {"task": number(6), "vgpu": number(4)}
    elif kind.startswith("pool"):
        fields = {"pool": number(2), "task": number(6), "priority": rng.choice((0, 3, 99, 100)), "used_ns": time()}
        fields["gpu_mask"] = rng.choice((0, 1, 2, 3, 4, NEVER))
    elif kind in ("vgpu_remove", "gpu_remove"):
        fields = {"vgpu": number(4), "gpu": number(2)}
    elif kind not in ("timer", "none"):
        fields = {"task": number(6), "engine": number(3), "used_ns": time()}
    return kind, fields


def views(core: Core, now: int) -> list[object]:
    """All that can be asked of a core."""
    out: list[object] = []
    for vgpu in range(4):
        for engine in range(3):
            try:
                out.append(core.vgpu_view(vgpu, engine, now))
            except Refused as refused:
                out.append(refused.errno)
    out += [core.idle_holder(g, e) for g in range(2) for e in range(3)]
    out += [core.device_advice(p) for p in range(2)]
    return out


@given(st.integers(0, 2**32))
@quick(100)
def test_refused_events_change_nothing(seed):
    """Two cores: one hears every event, the other only the accepted ones. Both give the same actions."""
    rng = random.Random(seed)
    cores = [Core(gpus=2, vgpus=4, tasks=6, pools=2) for _ in range(2)]
    for core in cores:
        for gpu in range(2):
            core.step(0, "gpu_add", gpu=gpu, policy=seed % len(POLICIES))
        for vgpu in range(4):
            core.step(0, "vgpu_add", vgpu=vgpu, gpu=vgpu // 3, min_ppm=200_000)
        for task in range(6):
            core.step(0, "open", task=task, vgpu=task % 4)
    now = 0
    refused = 0
    for _ in range(250):
        kind, fields = hostile_event(rng)
        later = now + rng.choice((0, 0, 1, 300 * US, 2 * MS, 40 * MS))
        if rng.random() < 0.05 and now:
            later = rng.randrange(now)  # time runs backwards
        try:
            actions = cores[0].step(later, kind, **fields)
        except Refused as refusal:
            assert refusal.what, f"{kind} {fields} was refused without a reason"
            refused += 1
        else:
            assert later >= now, "time ran backwards, and the core went along"
            now = later
            assert cores[1].step(now, kind, **fields) == actions, f"{kind} {fields} at {now}"
        cores[0].check()
        assert views(cores[0], now) == views(cores[1], now)
    assert refused, "a stream without a refused event proves nothing"


@given(st.integers(0, 2**32), st.integers(0, len(POLICIES) - 1))
def test_hostile_streams_never_break_the_rules(seed, policy):
    """One permit an engine, and no grant without a request, under any events in any order."""
    rng = random.Random(seed)
    core = Core(gpus=2, vgpus=4, tasks=6, pools=2)
    for gpu in range(2):
        core.step(0, "gpu_add", gpu=gpu, policy=policy)
    now = 0
    holders: dict[tuple[int, int], set[int]] = {}
    wants: set[tuple[int, int]] = set()
    policies = {0: policy, 1: policy}
    was_null = dict.fromkeys((0, 1), policy == 0)
    most = dict.fromkeys((0, 1), 1)  # two where permits may come early
    for _ in range(400):
        kind, fields = hostile_event(rng)
        if kind == "timer" or rng.random() < 0.4:
            now += rng.choice((0, 1, 300 * US, 2 * MS, 40 * MS, 2 * SEC))
        task, engine = fields.get("task", 0), fields.get("engine", 0)
        try:
            actions = core.step(now, kind, **fields)
        except Refused:
            actions = []
        else:
            if kind in ("gpu_add", "gpu_set"):
                assert fields["gpu"] < 2, f"{kind} {fields} was accepted"
                policies[fields["gpu"]] = fields["policy"]
                was_null[fields["gpu"]] |= fields["policy"] == 0
                most[fields["gpu"]] = 2 if fields["early_ns"] else most[fields["gpu"]]
            if kind == "arrival":
                wants.add((task, engine))
            elif kind == "cancel":
                wants.discard((task, engine))
            elif kind in ("completion", "released", "close"):
                for (_, number), held in holders.items():
                    # A lease outlives its completions; the core's own view says whether it is still held.
                    if (kind == "close" or number == engine) and task in held and not holds(core, task, number, now):
                        held.discard(task)
                if kind == "close":
                    wants -= {(task, e) for e in range(3)}
        core.check()
        for action in actions:
            if action.kind not in ("grant", "revoke", "expel"):
                continue
            held = holders.setdefault((action.gpu, action.engine), set())
            if action.kind == "grant":
                if action.task not in held:
                    assert (action.task, action.engine) in wants, f"{action} at {now}: a grant without a request"
                    wants.discard((action.task, action.engine))
                held.add(action.task)
            elif action.kind == "revoke":
                assert action.task in held, f"{action} at {now}: it holds nothing"
            elif action.kind == "expel":
                held.discard(action.task)
        for (gpu, engine), held in holders.items():
            if policies[gpu] != 0 and not was_null[gpu]:
                assert len(held) <= most[gpu], f"at {now}: {held} hold engine {engine} of GPU {gpu}"


def holds(core: Core, task: int, engine: int, now: int) -> bool:
    """Whether a vGPU says that this task is its holder."""
    for vgpu in range(4):
        try:
            if core.vgpu_view(vgpu, engine, now).holder == task:
                return True
        except Refused:
            continue
    return False
