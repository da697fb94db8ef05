# SPDX-License-Identifier: MIT
"""Shares under cbs, in virtual time: what a reservation, a weight, a priority and a cap are worth.

The bound of a reservation. A vGPU that always has work gets, in every window of length L,

    min x L  -  ( 3 x min x T  +  2 x K
                  +  sum over the other vGPUs of (their budget + their longest kernel) )

T its period, K its longest kernel. 3 T: a window may begin right after one budget and end right
before another, and what another lent by its pauses is paid ahead with one budget at most. 2 K: a
kernel is not stopped, so a server overruns its budget by up to a kernel, and a launch out of
left-over time may run into another
vGPU's reservation; both are charged back. The sum: between a completion and the next arrival of a synchronous program
another server may go first, with the budget that it has and one kernel more, and then not again before it has paid. It does
not grow with L: that is the guarantee.
"""

from __future__ import annotations

import itertools
import random

import pytest
from effort import quick
from hypothesis import given
from hypothesis import strategies as st
from rtxg.core import PPM, Core, Refused
from rtxg.core.host import MS, SEC, US, Host
from test_invariants import MOST_EVENTS, THINK, times


def deficit(host: Host, vgpu: int, low: int, begin: int) -> float:
    """The most that any window from `begin` on lacks of min x length, ns."""
    runs = sorted(host.runs[vgpu, 0])
    runs += [(c.started, host.now) for c in host.clients.values() if c.vgpu == vgpu and c.running]
    worst = 0.0
    service = 0
    least = low * begin / PPM
    for start, end in [*runs, (host.now, host.now)]:
        start = max(start, begin)
        end = max(end, start)
        worst = max(worst, low * start / PPM - service - least)
        service += end - start
        least = min(least, low * end / PPM - service)
    return worst


@quick(40)
@given(st.integers(0, 2**32), st.booleans())
def test_every_backlogged_vgpu_gets_its_min_in_every_window(seed, caps):
    rng = random.Random(seed)
    host = Host(policy="cbs", strict=False)
    left = PPM - rng.choice((0, 0, 20_000))
    tenants = []
    for i in range(rng.randint(2, 5)):
        low = min(left, rng.choice((50_000, 100_000, 200_000, 300_000, 500_000)))
        left -= low
        period = rng.choice((5 * MS, 30 * MS, 30 * MS, 100 * MS))
        most = rng.choice((100 * US, MS, 5 * MS, 20 * MS, 80 * MS))
        high = rng.choice((PPM, PPM, low or PPM)) if caps else PPM
        vgpu = host.vgpu(min_ppm=low, max_ppm=high, period_ns=period, priority=rng.choice((1, 1, 50)))
        think = 0 if i == 0 or rng.random() < 0.4 else times(rng, THINK)
        kernel = most if rng.random() < 0.5 else (lambda most=most: rng.randrange(1, most + 1))
        start = rng.choice((0, 13 * MS, 200 * MS))
        for _ in range(rng.choice((1, 1, 4))):
            host.client(vgpu, kernel=kernel, think=think, start=start)
        tenants.append((vgpu, low, period, most, think, start))
    host.run(2 * SEC)
    for vgpu, low, period, most, think, start in tenants:
        if think != 0 or not low:
            continue
        others = sum(t[3] + t[2] * t[1] // PPM for t in tenants if t[0] != vgpu)
        bound = 3 * low * period // PPM + 2 * most + others
        lacks = deficit(host, vgpu, low, start)
        assert lacks <= bound, f"vGPU {vgpu} with {low} ppm lacks {lacks / 1e6} ms, the bound is {bound / 1e6} ms"


@quick(12)
@given(st.integers(0, 2**32))
def test_one_that_pauses_as_it_likes_takes_no_more_than_it_pays_for(seed):
    """A client that the engine is kept free for, again and again, with next to no work of its own.

    The other has no reservation and always has work. What it gets is at least half of what is not
    reserved, for its weight is the same, however the first pauses: each wait is charged to the one
    that is waited for.
    """
    rng = random.Random(seed)
    host = Host(policy="cbs", strict=False)
    low = rng.choice((0, 100_000, 300_000, 500_000))
    # With a cap it holds no permit while it pauses.
    teaser, worker = host.vgpu(min_ppm=low, max_ppm=rng.choice((PPM, 900_000))), host.vgpu()
    pauses = [
        rng.choice((14, 30, 60, 120, 490, 990, 1900)) * US for _ in range(rng.choice((1, 2, 5)))
    ]
    for _ in range(rng.choice((1, 1, 3))):
        host.client(
            teaser, kernel=rng.choice((US, 20 * US, 200 * US)), think=lambda: rng.choice(pauses)
        )
    kernel = rng.choice((500 * US, MS, 5 * MS))
    host.client(worker, kernel=kernel)
    host.run(SEC, MOST_EVENTS)
    lacks = deficit(host, worker, (PPM - low) // 2, 0)
    bound = 30 * MS + 2 * kernel
    assert lacks <= bound, f"it lacks {lacks / 1e6} ms, the bound is {bound / 1e6} ms"


def worst_error(host: Host, wanted: dict[int, float], after: int = SEC) -> float:
    """The largest distance of any window of 1 s, every 50 ms, from the wanted share, in points."""
    shares = host.shares(SEC, step=50 * MS, after=after)
    return max(abs(100 * s - wanted[v]) for v in wanted for s in shares[v])


def tenants(policy: str, mins: list[int], kernels: list[int], thinks: list[int], **more) -> Host:
    """One program in each vGPU."""
    host = Host(policy=policy, **more)
    for low, kernel, think in zip(mins, kernels, thinks, strict=True):
        host.client(host.vgpu(min_ppm=low), kernel=kernel, think=think)
    return host


# name, shares in percent, kernels, thinking times. The thinking of the program with the largest share costs GPU time that no
# other program may use without breaking a reservation. So the shares add up to a little less than 100 %.
CASES = [
    ("40/60, the first with 1.2 times the work", [40, 60], [1200 * US, MS], [0, 0]),
    ("40/60 synchronous, thinking 50 us", [39, 58], [1200 * US, MS], [50 * US, 50 * US]),
    ("40/60 synchronous, thinking 200 us", [36, 54], [1200 * US, MS], [200 * US, 200 * US]),
    ("60/20/10/10", [60, 20, 10, 10], [MS, 800 * US, 1200 * US, 500 * US], [0, 0, 0, 0]),
    ("60/20/10/10 synchronous", [58, 19, 10, 10], [MS, 800 * US, 1200 * US, 500 * US], [50 * US] * 4),
    ("4 x 25", [25] * 4, [MS] * 4, [0] * 4),
    ("4 x 25 synchronous, unlike kernels", [25] * 4, [700 * US, 1400 * US, 2100 * US, 2800 * US], [50 * US] * 4),
]


@pytest.mark.parametrize(("name", "shares", "kernels", "thinks"), CASES, ids=[c[0] for c in CASES])
def test_no_second_is_more_than_a_point_off(name, shares, kernels, thinks, record_property, capsys):
    wanted = {i: float(s) for i, s in enumerate(shares)}
    errors = {}
    for policy in ("cbs", "band", "credit", "fifo"):
        host = tenants(policy, [s * 10_000 for s in shares], kernels, thinks).run(10 * SEC)
        # Reservations that leave room are minima: only what lacks counts there.
        if sum(shares) == 100:
            errors[policy] = worst_error(host, wanted)
        else:
            got = host.shares(SEC, step=50 * MS, after=SEC)
            errors[policy] = max(0.0, *(wanted[v] - 100 * min(got[v]) for v in wanted))
    for policy, error in errors.items():
        record_property(policy, round(error, 2))
    with capsys.disabled():
        print(f"\n{name}: worst 1 s, points off: " + ", ".join(f"{p} {e:.2f}" for p, e in errors.items()), end=" ")
    assert errors["cbs"] <= 1.0


def test_a_share_is_kept_by_a_program_whose_pauses_are_long_now_and_then():
    """Four launches in quick succession, then a pause of 30 ms: the mean of its pauses is long, and
    most are short.

    While it has work it is to get 70 %, but for one kernel of the other when it comes back. The
    short pauses are charged, and so is the beginning of the long one (70.3 us: a class of pauses
    and an eighth). Were the engine given away in each pause, there would be a kernel of the other
    before every launch. The window may cut a frame: that is one kernel's share of it.
    """
    host = Host(policy="cbs", strict=False)
    frame = itertools.cycle([40 * US] * 3 + [30 * MS])
    host.client(host.vgpu(min_ppm=700_000), kernel=4 * MS, think=lambda: next(frame))
    host.client(host.vgpu(min_ppm=300_000), kernel=12 * MS)
    host.run(10 * SEC)
    charged = 4 * 4 + 3 * 0.040 + 0.0703
    assert host.shares(9 * SEC, after=SEC)[0][0] >= 16 / (charged / 0.7 + 30 + 12) - 0.004 / 8


@pytest.mark.parametrize("seed", range(4))
def test_pauses_of_one_are_no_present_to_another_with_a_reservation(seed):
    """70 and 30 reserved; the first pauses for 5 ms after every fourth launch, the second never.

    Were the pauses free, the second would have them, and 30 % of the time that is left: 63 % would
    remain for the first.  Nor may the second lack any of what is reserved for it.
    """
    rng = random.Random(seed)
    host = Host(policy="cbs", strict=False)
    first, second = host.vgpu(min_ppm=700_000), host.vgpu(min_ppm=300_000)
    host.client(
        first,
        kernel=lambda: rng.randrange(MS, 8 * MS),
        think=lambda: 5 * MS if rng.random() < 0.25 else 0,
    )
    host.client(second, kernel=lambda: rng.randrange(MS, 2 * MS))
    host.run(10 * SEC)
    ran = host.ran(first, SEC, 10 * SEC), host.ran(second, SEC, 10 * SEC)
    assert ran[1] >= 0.3 * 9 * SEC - 2 * MS
    assert ran[0] / sum(ran) >= 0.67


def test_who_borrowed_for_long_is_not_shut_out_for_long():
    """The first pauses again and again for 5 s, and the second has the engine for most of that
    time.  Then the first pauses no more: the second pays for what it borrowed with one budget at
    most.
    """
    host = Host(policy="cbs", strict=False)
    period = 30 * MS
    first = host.vgpu(min_ppm=700_000, period_ns=period)
    second = host.vgpu(min_ppm=300_000, period_ns=period)
    host.client(first, kernel=MS, think=25 * MS, stop=5 * SEC)
    host.client(first, kernel=MS, start=5 * SEC)
    host.client(second, kernel=MS)
    host.run(10 * SEC)
    assert host.ran(second, SEC, 5 * SEC) >= 0.8 * 4 * SEC
    bound = 3 * 3 * period // 10 + 2 * MS + 7 * period // 10 + MS
    assert deficit(host, second, 300_000, 4 * SEC) <= bound


@pytest.mark.parametrize(
    ("lends", "reserved"), [(10_000, 300_000), (10_000, 600_000), (700_000, 300_000)]
)
def test_what_is_paid_for_is_not_taken_off_what_is_left_over(lends, reserved):
    """One pauses nearly all the time.  Of the others, the one with a reservation has it, and half
    of what is left over as the one without any: it does not pay for the pauses twice.
    """
    host = Host(policy="cbs", strict=False)
    lender, server, other = host.vgpu(min_ppm=lends), host.vgpu(min_ppm=reserved), host.vgpu()
    host.client(lender, kernel=10 * US, think=20 * MS)
    for vgpu in (server, other):
        host.client(vgpu, kernel=MS)
    host.run(5 * SEC)
    ran = host.ran(server, SEC, 5 * SEC), host.ran(other, SEC, 5 * SEC)
    left = sum(ran) - reserved * 4 * SEC // PPM
    assert abs(ran[1] - left / 2) <= 20 * MS


def test_kernels_longer_than_the_period_are_charged_back():
    """Kernels of 100 and 80 ms in periods of 30 ms: a second holds a dozen of them, so it is exact to a kernel, ten to a point."""
    host = tenants("cbs", [400_000, 600_000], [100 * MS, 80 * MS], [0, 0]).run(60 * SEC)
    assert worst_error(host, {0: 40, 1: 60}) <= 10.0
    for vgpu, wanted in ((0, 40), (1, 60)):
        for share in host.shares(10 * SEC, after=SEC)[vgpu]:
            assert abs(100 * share - wanted) <= 1.0


def test_a_late_starter_gets_its_share_at_once():
    """The first carries 1.2 times the work; the second starts 5 s later. Alone, the first has it all; then 40/60."""
    host = Host(policy="cbs")
    first, second = host.vgpu(min_ppm=400_000), host.vgpu(min_ppm=600_000)
    host.client(first, kernel=1200 * US)
    host.client(second, kernel=MS, start=5 * SEC)
    host.run(15 * SEC)
    assert host.shares(5 * SEC)[first][0] > 0.999
    assert worst_error(host, {first: 40, second: 60}, after=5 * SEC) <= 1.0


def test_an_idle_reservation_is_shared_out_by_weight():
    """40 and 30 reserved and busy, 30 reserved and idle: it goes to the busy ones as their weights say, one to two."""
    host = Host(policy="cbs")
    a = host.vgpu(min_ppm=400_000, weight=100)
    b = host.vgpu(min_ppm=300_000, weight=200)
    host.vgpu(min_ppm=300_000)
    host.client(a, kernel=MS)
    host.client(b, kernel=MS)
    host.run(10 * SEC)
    assert worst_error(host, {a: 50, b: 50}) <= 1.5


@quick(40)
@given(st.lists(st.sampled_from([1, 50, 100, 200, 300, 1000]), min_size=2, max_size=5))
def test_weights_share_what_is_left_over(weights):
    host = Host(policy="cbs", strict=False)
    vgpus = [host.vgpu(weight=w) for w in weights]
    for vgpu in vgpus:
        for _ in range(2):
            host.client(vgpu, kernel=MS)
    host.run(3 * SEC)
    for vgpu, weight in zip(vgpus, weights, strict=True):
        share = 100 * host.ran(vgpu, SEC, 3 * SEC) / (2 * SEC)
        assert abs(share - 100 * weight / sum(weights)) <= 1.5, f"weights {weights}: vGPU {vgpu} got {share}"


@pytest.mark.parametrize("asleep", [100 * MS, 2 * SEC])
def test_who_slept_has_saved_up_nothing(asleep):
    """Of what is left over: a vGPU that comes back, or comes late, gets what its weight says and
    not what it missed.
    """
    host = Host(policy="cbs", strict=False)
    awake, sleeper = host.vgpu(weight=100), host.vgpu(weight=100)
    back = SEC // 2 + asleep
    for _ in range(2):
        host.client(awake, kernel=MS)
        host.client(sleeper, kernel=MS, stop=SEC // 2)
        host.client(sleeper, kernel=MS, start=back)
    host.run(back + SEC)
    share = host.ran(sleeper, back, back + SEC) / SEC
    assert abs(share - 0.5) <= 0.015, share


def test_a_nap_before_the_budget_is_used_up_gives_no_new_one():
    """A vGPU that naps again and again has one budget in each period, and no other each time that it wakes up."""
    host = Host(policy="cbs", strict=False)
    napper = host.vgpu(min_ppm=500_000, period_ns=100 * MS, weight=1)
    other = host.vgpu(weight=10_000)
    naps = itertools.cycle([0] * 39 + [10 * MS])
    host.client(napper, kernel=MS, think=lambda: next(naps))
    for _ in range(2):
        host.client(other, kernel=MS)
    host.run(5 * SEC)
    share = host.ran(napper, SEC, 5 * SEC) / (4 * SEC)
    assert abs(share - 0.5) <= 0.02, share


def test_who_slept_has_saved_up_no_cap():
    """After two seconds of sleep a vGPU may use what its cap gives from then on, and one budget of the cap at most."""
    host = Host(policy="cbs", strict=False)
    period = 30 * MS
    capped = host.vgpu(max_ppm=200_000, period_ns=period)
    host.client(capped, kernel=MS, stop=SEC // 2)
    back = 2 * SEC + SEC // 2
    host.client(capped, kernel=MS, start=back)
    host.run(back + SEC // 2)
    ran = host.ran(capped, back, back + SEC // 2)
    assert ran <= (SEC // 2 + 2 * period) // 5 + MS, f"{ran / MS} ms"
    assert ran >= (SEC // 2 - 2 * period) // 5, f"{ran / MS} ms"


def test_priority_goes_before_weight_in_what_is_left_over():
    host = Host(policy="cbs")
    low = host.vgpu(weight=10_000, priority=1)
    high = host.vgpu(weight=1, priority=2)
    reserved = host.vgpu(min_ppm=200_000, priority=1)
    for vgpu in (low, high, reserved):
        for _ in range(2):
            host.client(vgpu, kernel=MS)
    host.run(5 * SEC)
    assert host.ran(reserved, SEC, 5 * SEC) >= 0.195 * 4 * SEC, "a reservation goes before any priority"
    assert host.ran(high, SEC, 5 * SEC) >= 0.78 * 4 * SEC
    assert host.ran(low, SEC, 5 * SEC) <= 0.01 * 4 * SEC


@pytest.mark.parametrize("policy", ["fifo", "credit", "band", "cbs"])
def test_eight_programs_get_what_one_gets(policy):
    """A tenant that forks does not win share."""
    host = Host(policy=policy)
    one, eight = host.vgpu(min_ppm=500_000), host.vgpu(min_ppm=500_000)
    host.client(one, kernel=MS, think=0)
    for _ in range(8):
        host.client(eight, kernel=MS, think=0)
    host.run(6 * SEC)
    assert worst_error(host, {one: 50, eight: 50}) <= 1.0


@quick(60)
@given(st.integers(0, 2**32))
def test_nobody_starves_under_soft_servers(seed):
    """Every program with a reservation goes on beside any other programs: no gap longer than a few periods and kernels."""
    rng = random.Random(seed)
    host = Host(policy="cbs", strict=False)
    clients = []
    for low in (500_000, 300_000, 100_000, 50_000):
        vgpu = host.vgpu(min_ppm=low, priority=rng.choice((1, 99)), weight=rng.choice((1, 10_000)))
        for _ in range(rng.choice((1, 3))):
            clients.append((low, host.client(vgpu, kernel=times(rng, (MS, 5 * MS)), think=times(rng, (0, 100 * US, 5 * MS)))))
    host.run(4 * SEC)
    for low, client in clients:
        # A kernel of 15 ms at most, three programs in the tenant: its turn comes round in 3 x 15 ms / min, and the bound above.
        gap = 3 * 15 * MS * PPM // low + 4 * 30 * MS + 8 * 15 * MS * PPM // low
        waits = [*client.waits, *([host.now - client.since] if client.wants else [])]
        assert max(waits) <= gap, f"task {client.task} with {low} ppm waited for {max(waits) / 1e6} ms"


def test_admission_never_promises_more_than_there_is():
    core = Core()
    core.step(0, "gpu_add", gpu=0, policy="cbs", switch_ppm=20_000)
    core.step(0, "vgpu_add", vgpu=0, gpu=0, min_ppm=600_000)
    with pytest.raises(Refused) as refusal:
        core.step(0, "vgpu_add", vgpu=1, gpu=0, min_ppm=400_000)
    assert refusal.value.errno == 28
    assert (refusal.value.value, refusal.value.limit) == (400_000, 380_000)
    assert refusal.value.what and "reserv" in refusal.value.what
    core.step(0, "vgpu_add", vgpu=1, gpu=0, min_ppm=380_000)
    # A share that was taken back may be given again; a share still held may not. A vGPU's own share does not block its change.
    core.step(0, "vgpu_set", vgpu=0, min_ppm=620_000 - 20_000)
    with pytest.raises(Refused):
        core.step(0, "vgpu_set", vgpu=0, min_ppm=600_001)
    with pytest.raises(Refused) as refusal:
        core.step(0, "gpu_set", gpu=0, policy="cbs", switch_ppm=20_001)
    assert refusal.value.errno == 28
    core.check()


@given(st.integers(0, 2**32))
def test_admitted_shares_never_add_up_to_more(seed):
    rng = random.Random(seed)
    core = Core(gpus=2, vgpus=8)
    costs = [rng.choice((0, 10_000, 333_333)) for _ in range(2)]
    for gpu, cost in enumerate(costs):
        core.step(0, "gpu_add", gpu=gpu, policy="cbs", switch_ppm=cost)
    held: dict[int, tuple[int, int]] = {}
    for _ in range(60):
        vgpu, share = rng.randrange(8), rng.choice((0, 1, 200_000, 333_333, 666_667, PPM))
        kind = rng.choice(("vgpu_add", "vgpu_set", "vgpu_remove"))
        gpu = held[vgpu][0] if kind == "vgpu_set" and vgpu in held else rng.randrange(2)
        room = PPM - costs[gpu] - sum(s for n, (g, s) in held.items() if g == gpu and n != vgpu)
        exists = vgpu in held
        fits = (kind == "vgpu_add") != exists and (kind == "vgpu_remove" or share <= room)
        fields = {"vgpu": vgpu}
        if kind != "vgpu_remove":
            fields["min_ppm"] = share
        if kind == "vgpu_add":
            fields["gpu"] = gpu
        try:
            core.step(0, kind, **fields)
            accepted = True
        except Refused:
            accepted = False
        assert accepted == fits, f"{kind} {fields}: room {room}, exists {exists}"
        if accepted and kind == "vgpu_remove":
            del held[vgpu]
        elif accepted:
            held[vgpu] = (gpu, share)
        core.check()
