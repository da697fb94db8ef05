# SPDX-License-Identifier: MIT
"""Constrained thread order, held against an independent reading of what an order means.

Here an order is a dict: (thread, number) -> {other thread: clock}. Happens-before is computed with sets, over single accesses.
The core has tables, walks and lists instead.
"""

from __future__ import annotations

import itertools

from hypothesis import assume, event, given
from hypothesis import strategies as st
from rtxg.core.build import load

core = load()
ffi, lib = core.ffi, core.lib

EINVAL, EBADFD, EPIPE, EBUSY, ENXIO, ENOSPC = 22, 77, 32, 16, 6, 28
Order = dict[tuple[int, int], dict[int, int]]


class Loaded:
    """An order in the core, from entries in the order of a file."""

    def __init__(self, threads: int, entries: list[tuple[int, int, dict[int, int]]], accesses: list[int] | None = None) -> None:
        rows, needs = [], []
        for mark, (thread, number, wanted) in enumerate(entries, 1):
            rows.append({"thread": thread, "number": number, "first": len(needs), "count": len(wanted), "mark": mark})
            needs += [{"thread": t, "clock": c} for t, c in wanted.items()]
        self.shape = ffi.new("struct rtxg_order_shape *", {"threads": threads, "entries": len(rows), "needs": len(needs)})
        size = lib.rtxg_order_size(self.shape)
        assert size
        self.memory = ffi.new("uint64_t[]", size // 8 + 1)
        self.order = ffi.new("struct rtxg_order *")
        lib.rtxg_order_place(self.order, self.shape, self.memory)
        self.fault = ffi.new("struct rtxg_order_fault *")
        self.made = ffi.new("uint32_t[]", accesses) if accesses else ffi.NULL
        self.error = lib.rtxg_order_load(
            self.order, ffi.new("struct rtxg_order_entry[]", rows or 1), ffi.new("struct rtxg_order_need[]", needs or 1),
            self.made, self.fault)

    def relaxed(self) -> list[tuple[int, int, dict[int, int]]]:
        """The entries that the core leaves over."""
        words = ffi.new("uint32_t[]", lib.rtxg_order_relax_words(self.shape))
        entries = ffi.new("struct rtxg_order_entry[]", self.shape.entries or 1)
        needs = ffi.new("struct rtxg_order_need[]", self.shape.needs or 1)
        count = ffi.new("uint32_t *")
        left = lib.rtxg_order_relax(self.order, words, entries, count, needs)
        rows = [(e.thread, e.number, {needs[e.first + i].thread: needs[e.first + i].clock for i in range(e.count)})
                for e in entries[0:count[0]]]
        assert sum(len(r[2]) for r in rows) == left
        return rows


class Run:
    """The machine over a loaded order."""

    def __init__(self, loaded: Loaded, stride: int = 1) -> None:
        self.loaded, self.threads, self.stride = loaded, loaded.shape.threads, stride
        self.state = ffi.new("struct rtxg_order_thread[]", self.threads)
        self.clocks = ffi.new("uint32_t[]", self.threads * stride)
        self.run = ffi.new("struct rtxg_order_run *")
        self.actions = ffi.new("struct rtxg_order_action[]", self.threads)
        lib.rtxg_order_begin(self.run, loaded.order, self.state, self.clocks, stride)

    def step(self, what: str, thread: int) -> list[tuple[str, int]] | int:
        """Actions, or a negative errno."""
        done = lib.rtxg_order_step(self.run, getattr(lib, "RTXG_ORDER_" + what), thread, self.actions, self.threads)
        if done < 0:
            return done
        names = {lib.RTXG_ORDER_GO: "go", lib.RTXG_ORDER_BREAK: "break"}
        return [(names[a.type], a.thread) for a in self.actions[0:done]]

    def clock(self, thread: int) -> int:
        """Accesses completed."""
        return self.clocks[thread * self.stride]


def before(order: Order, lengths: list[int]) -> dict[tuple[int, int], set[tuple[int, int]]] | None:
    """For each access all that come before it, by transitive closure; None: there is a circle."""
    edges = {}
    for t, n in enumerate(lengths):
        for k in range(n):
            edges[t, k] = ({(t, k - 1)} if k else set()) | {
                (j, c - 1) for j, c in order.get((t, k), {}).items()}
    closed: dict[tuple[int, int], set[tuple[int, int]]] = {}
    while len(closed) < len(edges):
        ready = [a for a in edges if a not in closed and edges[a] <= closed.keys()]
        if not ready:
            return None
        for a in ready:
            closed[a] = edges[a] | set().union(*(closed[b] for b in edges[a]))
    return closed


@st.composite
def any_orders(draw):
    """Entries in the order of a file, most of which can be followed."""
    threads = draw(st.integers(2, 4))
    lengths = [draw(st.integers(1, 6)) for _ in range(threads)]
    accesses = [(t, k) for t in range(threads) for k in range(lengths[t])]
    chosen = draw(st.lists(st.sampled_from(accesses), unique=True, max_size=8))
    order: Order = {}
    for t, k in sorted(chosen):
        others = draw(st.sets(st.sampled_from([j for j in range(threads) if j != t]), max_size=2))
        order[t, k] = {j: draw(st.integers(1, lengths[j])) for j in sorted(others)}
    return threads, lengths, order


@st.composite
def runs(draw):
    """A run: (thread, place, write) in the order in which it happened."""
    threads = draw(st.integers(2, 4))
    return threads, draw(st.lists(st.tuples(st.integers(0, threads - 1), st.integers(0, 2), st.booleans()), max_size=24))


def entries_of(order: Order) -> list[tuple[int, int, dict[int, int]]]:
    return [(t, k, needs) for (t, k), needs in sorted(order.items())]


@given(any_orders())
def test_an_order_is_taken_exactly_if_it_can_be_followed(case):
    threads, lengths, order = case
    loaded = Loaded(threads, entries_of(order), lengths)
    closed = before(order, lengths)
    event("circle" if closed is None else "taken")
    if closed is not None:
        assert not loaded.error and loaded.fault.kind == lib.RTXG_ORDER_FAULT_NONE
        return
    # What is named is a circle: each step's need is an access at or behind the next step's.
    fault = loaded.fault
    assert loaded.error == -EINVAL and fault.kind == lib.RTXG_ORDER_FAULT_CYCLE
    assert 2 <= fault.cycle == fault.shown <= threads
    steps = list(fault.steps[0:fault.shown])
    for here, there in zip(steps, steps[1:] + steps[:1], strict=True):
        assert order[here.thread, here.number][here.need.thread] == here.need.clock
        assert here.need.thread == there.thread and here.need.clock > there.number
        assert entries_of(order)[here.mark - 1][:2] == (here.thread, here.number)


@given(any_orders(), st.data())
def test_a_run_follows_its_order_and_always_ends(case, data):
    """Whoever may go by the order may go, nobody else does, and as long as each thread goes on all of them end."""
    threads, lengths, order = case
    assume(before(order, lengths) is not None)
    run = Run(Loaded(threads, entries_of(order), lengths), data.draw(st.sampled_from([1, 3])))
    assert all(run.step("JOIN", t) == [] for t in range(threads))
    inside: set[int] = set()
    waiting: set[int] = set()
    clock = [0] * threads

    def may(t: int) -> bool:
        return all(clock[j] >= c for j, c in order.get((t, clock[t]), {}).items())

    while any(clock[t] < lengths[t] for t in range(threads)):
        able = [t for t in range(threads) if t in inside or (t not in waiting and clock[t] < lengths[t])]
        assert able, "all threads wait"
        t = data.draw(st.sampled_from(able))
        if t not in inside:
            went = run.step("BEFORE", t)
            assert went == ([("go", t)] if may(t) else [])
            (inside if went else waiting).add(t)
            continue
        inside.remove(t)
        clock[t] += 1
        woken = {w for w in waiting if may(w)}
        assert sorted(run.step("AFTER", t)) == sorted(("go", w) for w in woken)
        waiting -= woken
        inside |= woken
        assert [run.clock(i) for i in range(threads)] == clock
    assert all(run.step("LEAVE", t) == [] for t in range(threads)) and not run.run.broken.kind


@given(any_orders(), st.data())
def test_nobody_waits_for_a_thread_that_has_ended(case, data):
    """Threads die wherever they are. As long as the order is whole, each that waits can still be let go by one that lives."""
    threads, lengths, order = case
    assume(before(order, lengths) is not None)
    run = Run(Loaded(threads, entries_of(order), lengths))
    alive = set(range(threads))
    for t in alive:
        run.step("JOIN", t)
    for _ in range(60):
        if not alive:
            break
        t = data.draw(st.sampled_from(sorted(alive)))
        state = run.state[t].state
        if data.draw(st.integers(0, 5)) == 0 or (state == lib.RTXG_ORDER_FREE and run.clock(t) == lengths[t]):
            run.step("LEAVE", t)
            alive.remove(t)
        elif state == lib.RTXG_ORDER_FREE:
            run.step("BEFORE", t)
        elif state == lib.RTXG_ORDER_INSIDE:
            run.step("AFTER", t)
        waiting = [w for w in alive if run.state[w].state == lib.RTXG_ORDER_WAITING]
        broken = run.run.broken
        if broken.kind:
            event("broken")
            assert not waiting
            need = broken.step.need
            assert order[broken.step.thread, broken.step.number][need.thread] == need.clock
            assert broken.clock < need.clock and broken.ended and need.thread not in alive
            assert run.step("BEFORE", broken.step.thread) == -EPIPE
            return
        for w in waiting:
            assert all(run.clock(j) >= c or j in alive for j, c in order[w, run.clock(w)].items())


@given(any_orders())
def test_giving_up_lets_everybody_go(case):
    threads, lengths, order = case
    assume(before(order, lengths) is not None)
    run = Run(Loaded(threads, entries_of(order), lengths))
    for t in range(threads):
        run.step("JOIN", t)
        run.step("BEFORE", t)
    waiting = [t for t in range(threads) if run.state[t].state == lib.RTXG_ORDER_WAITING]
    assume(waiting)
    assert run.step("GIVE_UP", waiting[0]) == [("break", waiting[0])]
    assert run.run.broken.kind == lib.RTXG_ORDER_BREAK_STALLED
    assert all(run.state[t].state == lib.RTXG_ORDER_INSIDE for t in waiting)
    assert all(run.step("AFTER", t) == [] and run.step("BEFORE", t) == -EPIPE for t in waiting)


def derive(threads: int, run: list[tuple[int, int, bool]]) -> tuple[Order, list[int]]:
    """The order of a run by the core, and how many accesses each thread made."""
    made = [0] * threads
    rows = []
    for mark, (t, place, write) in enumerate(run):
        rows.append({"thread": t, "number": made[t], "place": place, "write": write, "mark": mark})
        made[t] += 1
    entries = ffi.new("struct rtxg_order_entry[]", len(run) + 1)
    needs = ffi.new("struct rtxg_order_need[]", 2 * len(run) + 1)
    counts = ffi.new("uint32_t[]", [len(run), 2 * len(run)])
    assert not lib.rtxg_order_derive(
        ffi.new("struct rtxg_order_access[]", rows or 1), len(run), threads, ffi.new("struct rtxg_order_place_state[]", 3), 3,
        ffi.new("uint32_t[]", len(run) + 1), entries, counts, needs, counts + 1)
    order = {}
    for e in entries[0:counts[0]]:
        assert run[e.mark][0] == e.thread and (e.thread, e.number) not in order
        order[e.thread, e.number] = {needs[e.first + i].thread: needs[e.first + i].clock for i in range(e.count)}
    return order, made


@given(runs())
def test_a_derived_order_keeps_each_pair_that_conflicts_and_only_those(case):
    """Two accesses to a place of which one is a write come in the order in which they came; accesses that no chain of such
    pairs joins are free."""
    threads, run = case
    order, made = derive(threads, run)
    closed = before(order, made)
    assert closed is not None
    names, count = [], [0] * threads
    for t, place, write in run:
        names.append(((t, count[t]), place, write))
        count[t] += 1
    happened: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for i, (a, place, write) in enumerate(names):
        earlier = [b for b, p, w in names[:i] if b[0] == a[0] or (p == place and (write or w))]
        happened[a] = set(earlier).union(*(happened[b] for b in earlier))
    assert closed == happened


@given(runs(), st.data())
def test_what_follows_a_record_that_was_cut_short_comes_after_all_of_it(case, data):
    """The next access of a thread that had not ended; threads that had have none."""
    threads, run = case
    order, made = derive(threads, run)
    cut = data.draw(st.lists(st.integers(0, 1), min_size=threads, max_size=threads))
    entries = ffi.new("struct rtxg_order_entry[]", threads + 1)
    needs = ffi.new("struct rtxg_order_need[]", threads * threads + 1)
    counts = ffi.new("uint32_t[]", 2)
    words = ffi.new("uint32_t[]", made), ffi.new("uint32_t[]", cut)
    room = sum(bool(cut[t]) and any(m for j, m in enumerate(made) if j != t) for t in range(threads))
    if room:
        assert lib.rtxg_order_derive_ends(*words, threads, 9, entries, counts, room - 1, needs, counts + 1,
                                          threads * threads) == -ENOSPC
        counts[0] = counts[1] = 0
    assert not lib.rtxg_order_derive_ends(*words, threads, 9, entries, counts, room, needs, counts + 1, threads * threads)
    ends = {(e.thread, e.number): {needs[e.first + i].thread: needs[e.first + i].clock for i in range(e.count)}
            for e in entries[0:counts[0]]}
    assert ends == {(t, made[t]): {j: m for j, m in enumerate(made) if m and j != t}
                    for t in range(threads) if cut[t] and any(m for j, m in enumerate(made) if j != t)}
    lengths = [m + c for m, c in zip(made, cut, strict=True)]
    closed = before({**order, **ends}, lengths)
    assert closed is not None
    for t in range(threads):
        if cut[t]:
            assert closed[t, made[t]] >= {(j, k) for j in range(threads) for k in range(made[j])}


@given(any_orders())
def test_relaxing_keeps_what_is_allowed_and_nothing_more_can_go(case):
    threads, lengths, order = case
    assume(before(order, lengths) is not None)
    small: Order = {(t, k): needs for t, k, needs in Loaded(threads, entries_of(order), lengths).relaxed()}
    event(f"{sum(map(len, order.values()))} -> {sum(map(len, small.values()))}")
    closed = before(order, lengths)
    assert before(small, lengths) == closed
    for access, needs in small.items():
        assert needs
        for other in needs:
            less = {a: {j: c for j, c in n.items() if (a, j) != (access, other)} for a, n in small.items()}
            assert before(less, lengths) != closed


def test_what_is_wrong_with_an_order_is_named():
    """Each kind of fault, with the entry (by its mark), and the value or the other entry."""
    def fault(entries, accesses=None, threads=2):
        loaded = Loaded(threads, entries, accesses)
        assert loaded.error == -EINVAL
        return loaded.fault.kind, loaded.fault.steps[0].mark, loaded.fault.other, loaded.fault.limit

    many = lib.RTXG_ORDER_MANY
    assert fault([(0, 1, {1: 1}), (2, 0, {})]) == (lib.RTXG_ORDER_FAULT_RANGE, 2, 0, 1)
    assert fault([(0, 1, {2: 1})]) == (lib.RTXG_ORDER_FAULT_RANGE, 1, 0, 1)
    assert fault([(0, 1, {1: 0})]) == (lib.RTXG_ORDER_FAULT_RANGE, 1, 0, many - 1)
    assert fault([(0, 1, {1: many})]) == (lib.RTXG_ORDER_FAULT_RANGE, 1, 0, many - 1)
    assert fault([(0, many - 1, {1: 1})]) == (lib.RTXG_ORDER_FAULT_RANGE, 1, 0, many - 2)
    assert fault([(0, 1, {0: 1})]) == (lib.RTXG_ORDER_FAULT_ITSELF, 1, 0, 0)
    assert fault([(0, 5, {1: 1}), (1, 0, {}), (0, 2, {1: 1})]) == (lib.RTXG_ORDER_FAULT_OVERTAKEN, 3, 1, 0)
    assert fault([(0, 5, {1: 1}), (1, 0, {}), (0, 5, {1: 2})]) == (lib.RTXG_ORDER_FAULT_TWICE, 3, 1, 0)
    assert fault([(0, 5, {1: 1})], [5, 5]) == (lib.RTXG_ORDER_FAULT_BEYOND, 1, 0, 5)
    assert fault([(0, 4, {1: 6})], [5, 5]) == (lib.RTXG_ORDER_FAULT_NEVER, 1, 0, 5)
    assert fault([(0, 4, {1: 3}), (1, 2, {0: 5})]) == (lib.RTXG_ORDER_FAULT_CYCLE, 1, 0, 0)
    assert not Loaded(2, [(0, 4, {1: 3}), (1, 3, {0: 5})], [5, 5]).error


def test_shapes_and_events_out_of_range_are_refused():
    sizes = [(0, 0, 0), (lib.RTXG_ORDER_THREADS_MAX + 1, 0, 0), (1, lib.RTXG_ORDER_ENTRIES_MAX + 1, 0),
             (1, 0, lib.RTXG_ORDER_NEEDS_MAX + 1)]
    assert not any(lib.rtxg_order_size(ffi.new("struct rtxg_order_shape *", s)) for s in sizes)
    run = Run(Loaded(2, []))
    assert run.step("BEFORE", 0) == -EBADFD and run.step("AFTER", 0) == -EBADFD and run.step("GIVE_UP", 0) == -EBADFD
    assert run.step("JOIN", 2) == -ENXIO
    assert run.step("JOIN", 0) == [] and run.step("JOIN", 0) == -EBUSY
    assert run.step("BEFORE", 0) == [("go", 0)] and run.step("BEFORE", 0) == -EBADFD
    assert run.step("LEAVE", 0) == [] and run.step("LEAVE", 0) == -EBADFD and run.step("JOIN", 0) == -EBUSY


def test_a_circle_of_all_threads_is_named_as_far_as_there_is_room():
    threads = lib.RTXG_ORDER_THREADS_MAX
    fault = Loaded(threads, [(t, 0, {(t + 1) % threads: 1}) for t in range(threads)]).fault
    assert fault.kind == lib.RTXG_ORDER_FAULT_CYCLE
    assert (fault.cycle, fault.shown) == (threads, lib.RTXG_ORDER_CYCLE_SHOWN)


def test_needs_may_not_be_shared_by_entries():
    """A small order that claims the same needs many times would take long to walk."""
    shape = ffi.new("struct rtxg_order_shape *", (4, 2, 2))
    memory = ffi.new("uint64_t[]", lib.rtxg_order_size(shape) // 8 + 1)
    order, fault = ffi.new("struct rtxg_order *"), ffi.new("struct rtxg_order_fault *")
    lib.rtxg_order_place(order, shape, memory)
    needs = ffi.new("struct rtxg_order_need[]", [(1, 1), (2, 1)])
    for first, count in itertools.product((0, 1), (1, 2)):
        entries = ffi.new("struct rtxg_order_entry[]", [(0, 0, 0, 2), (0, 1, first, count)])
        assert lib.rtxg_order_load(order, entries, needs, ffi.NULL, fault) == -EINVAL
        assert fault.kind == lib.RTXG_ORDER_FAULT_RANGE
