# SPDX-License-Identifier: MIT
"""The reader of guests' reports must see each fault: a test harness that cannot fail shows nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from rtxgvm import guest, kernels, ktap  # noqa: E402

GOOD = """KTAP version 1
1..1
# start t_irq
    KTAP version 1
    1..3
    # value irq_cost 12.5 instructions
    ok 1 first
    ok 2 - second
    ok 3 third # SKIP no such device
ok 1 - t_irq
# rtxg-vm: end
"""


def test_good_run() -> None:
    report = ktap.read_console(GOOD)
    assert (report.passed, report.failed, report.skipped, report.finished) == (2, 0, 1, True)
    assert report.values == {"irq_cost": (12.5, "instructions")}
    assert report.good


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    ok 2 - second\n", "    not ok 2 - second\n"),
        ("    ok 2 - second\n", ""),  # the program broke off
        ("    1..3\n", ""),  # it never began
        ("ok 1 - t_irq\n", "not ok 1 - t_irq\n"),  # it died after its last result
        ("# rtxg-vm: end\n", ""),  # the guest hung or panicked
        ("    ok 1 first\n    ok 2 - second\n", ""),
    ],
)
def test_bad_runs(old: str, new: str) -> None:
    assert old in GOOD
    assert not ktap.read_console(GOOD.replace(old, new)).good


def test_skips_have_their_reason() -> None:
    assert ktap.read_console(GOOD).skips == ["t_irq: third: no such device"]
    assert ktap.read_console(GOOD.replace("# SKIP no such device", "# SKIP")).skips == ["t_irq: third: no reason given"]


def test_a_program_of_slow_cases_alone_is_no_skip() -> None:
    report = ktap.read_console(GOOD.replace("# rtxg-vm: end", "# start t_y\n    1..0 # slow\nok 2 - t_y\n# rtxg-vm: end"))
    assert report.good and report.skipped == 1


def test_the_stopwatch_says_what_the_report_reads() -> None:
    watch = guest.Stopwatch("2 CPUs")
    console = ""
    for line in GOOD.splitlines():
        console += "".join(f"{text}\n" for text in (line, watch.after(line)) if text is not None)
    report = ktap.read_console(console)
    assert report.good
    assert list(report.seconds) == ["boot (2 CPUs)", "t_irq: first", "t_irq: second", "t_irq: third", "t_irq"]


def test_everything_skipped_is_not_good() -> None:
    report = ktap.read_console("    1..0 # SKIP nothing to test with\nok 1 - t_x\n# rtxg-vm: end\n")
    assert report.skips == ["nothing to test with"]
    assert not report.good


@pytest.mark.parametrize(
    "line",
    [
        "[   12.3] BUG: kernel NULL pointer dereference, address: 0000000000000008",
        "[   12.3] WARNING: CPU: 0 PID: 1 at kernel/irq/manage.c:123 free_irq+0x1/0x2",
        "[   12.3] BUG: sleeping function called from invalid context at kernel/locking/rtmutex.c:46",
        "[   12.3] BUG: scheduling while atomic: t_irq/77/0x00010001",
        "[   12.3] WARNING: possible circular locking dependency detected",
        "[   12.3] rcu: INFO: rcu_preempt self-detected stall on CPU",
        "[   12.3] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
        "[   12.3] INFO: task t_cpu:88 blocked for more than 120 seconds.",
        "[   12.3] watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [t_gpu:99]",
        "[   12.3] BUG kmalloc-64 (Tainted: G           OE     ): Poison overwritten",
        "[   12.3] Oops: int3: 0000 [#1] SMP NOPTI",
        "[   12.3] Kernel panic - not syncing: Fatal exception in interrupt",
        "[   12.3] refcount_t: underflow; use-after-free.",
        "[   12.3] irq 25: nobody cared (try booting with the \"irqpoll\" option)",
        "[   12.3] BUG: KASAN: slab-out-of-bounds in out_of_bounds+0x3d/0x50 [rtxg_provoke]",
        "[   12.3] UBSAN: shift-out-of-bounds in rtxg_provoke.c:42:11",
        "[   12.3] BUG: KCSAN: data-race in irq_wait [rtxg] / try_to_wake_up",
        "[   12.3] WARNING: suspicious RCU usage",
        "[   12.3] WARNING: inconsistent lock state",
        "[   12.3] [ BUG: Invalid wait context ]",
        "[   12.3] INFO: trying to register non-static key.",
        "[   12.3] turning off the locking correctness validator.",
        "[   12.3] ODEBUG: free active (active state 0) object type: timer_list hint: ignored+0x0/0x20",
        "[   12.3] list_add double add: new=ffffffffa0003240, prev=ffffffffa0003240, next=ffffffffa0002180.",
        "[   12.3] BUG: workqueue lockup - pool cpus=0 node=0 flags=0x0 nice=0 stuck for 33s!",
        "[   12.3] general protection fault, probably for non-canonical address 0x6b6b6b6b6b6b6b6b",
    ],
)
def test_dirty_log(line: str) -> None:
    assert ktap.search_log(f"[    0.0] Linux version 6.1\n{line}\n") == [line]


@pytest.mark.parametrize(
    "line",
    [
        "[    3.1] rtxg: loading out-of-tree module taints kernel.",
        "[    3.1] rtxg: module verification failed: signature and/or required key missing - tainting kernel",
        "[    3.1] rtxg: CPU 1 goes, task 77 moves to CPU 0",
        "[    3.1] BUG: KCSAN: data-race in tick_nohz_next_event / tick_sched_do_timer",
        "kcsan: non-strict mode configured - use CONFIG_KCSAN_STRICT=y to see all data races",
    ],
)
def test_clean_log(line: str) -> None:
    assert not ktap.search_log(line)


RULE = "[   80.1] " + "=" * 66
WAIT = "drm_atomic_helper_wait_for_vblanks"
FLIP = f"""{RULE}
[   80.1] BUG: KASAN: slab-use-after-free in {WAIT}+0x1f3/0x5b0 [drm_kms_helper]
[   80.1] Read of size 1 at addr ffff8880065d5009 by task kworker/u8:3/45
[   80.1] CPU: 1 UID: 0 PID: 45 Comm: kworker/u8:3 Tainted: G  O  6.12.95-rtxg-debug #1
[   80.1] Workqueue: events_unbound commit_work [drm_kms_helper]
[   80.1] Call Trace:
[   80.1]  <TASK>
[   80.1]  {WAIT}+0x1f3/0x5b0 [drm_kms_helper]
[   80.1]  </TASK>
[   80.1] Freed by task 46:
[   80.1]  commit_work+0x12/0x20 [drm_kms_helper]
{RULE}
[   80.2] virtio-gpu goes on
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("slab-use", "slab-use"),
        ("slab-use", "use"),
        ("for_vblanks+0x1f3/0x5b0", "for_vblanks.part.0+0x112/0x470"),
    ],
)
def test_the_flip_of_stock_kernels_is_not_ours(old: str, new: str) -> None:
    assert old in FLIP and not ktap.search_log(FLIP.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # another fault, another function of that module, one of a driver
        ("slab-use-after-free", "slab-out-of-bounds"),
        (f"KASAN: slab-use-after-free in {WAIT}", "KASAN: slab-use-after-free in drm_x"),
        ("0x5b0 [drm_kms_helper]", "0x5b0 [virtio_gpu]"),
        # one of our modules touched it
        ("commit_work+0x12/0x20 [drm_kms_helper]", "irq_free+0x12/0x20 [rtxg]"),
        ("Comm: kworker/u8:3", "Comm: rtxg-irq/7"),
        # it has no end
        (f"{RULE}\n[   80.2]", "[   80.2]"),
    ],
)
def test_a_report_like_the_flip_may_be_ours(old: str, new: str) -> None:
    assert old in FLIP
    found = ktap.search_log(FLIP.replace(old, new))
    assert len(found) == 2 and "KASAN" in found[0] and "Call Trace" in found[1]


@pytest.mark.parametrize("where", ["Workqueue: ", "Freed by task", "virtio-gpu goes on"])
def test_the_flip_hides_no_other_trouble(where: str) -> None:
    other = "[   80.1] BUG: sleeping function called from invalid context at kernel/mutex.c:1"
    lines = FLIP.splitlines()
    lines.insert(next(n for n, line in enumerate(lines) if where in line), other)
    assert ktap.search_log("\n".join(lines)) == [other]


def provoked(sections: dict[str, str]) -> str:
    return "Linux version\n" + "".join(f"rtxg-vm: provoke {n}\n{t}\n" for n, t in sections.items()) + "rtxg-vm: provoke end\n"


FOUND = {
    "rcu-unlocked": "WARNING: suspicious RCU usage",
    "lock-order": "WARNING: possible circular locking dependency detected",
    "use-after-free": "BUG: KASAN: slab-use-after-free in use_after_free+0x37/0x50",
    "out-of-bounds": "BUG: KASAN: slab-out-of-bounds in out_of_bounds+0x3d/0x50",
    "shift": "UBSAN: shift-out-of-bounds in rtxg_provoke.c:42:11",
    "sleep-in-atomic": "BUG: scheduling while atomic: insmod/77/0x00000002",
    "free-active": "ODEBUG: free active (active state 0) object type: timer_list",
    "list-twice": "list_add double add: new=ffffffffa0003240",
}


def test_provoked_all_found() -> None:
    assert set(FOUND) == set(ktap.PROVOKED)
    assert not ktap.search_provoked(provoked(FOUND))


def test_a_provoked_race_is_told_from_one_of_the_kernel() -> None:
    race = "BUG: KCSAN: data-race in {} / provoke"
    ours, other = race.format("data_race [rtxg_provoke]"), race.format("timekeeping_advance")
    assert not ktap.search_provoked(provoked({"data-race": ours}), ktap.PROVOKED_RACES)
    assert ktap.search_provoked(provoked({"data-race": other}), ktap.PROVOKED_RACES)


@pytest.mark.parametrize("name", FOUND)
def test_provoked_not_found(name: str) -> None:
    """A mistake not made, one that no check saw, and one that another check saw: the report tells them apart."""
    assert [w.split(":")[0] for w in ktap.search_provoked(provoked({n: t for n, t in FOUND.items() if n != name}))] == [name]
    assert [w.split(":")[0] for w in ktap.search_provoked(provoked(FOUND | {name: ""}))] == [name]
    assert [w.split(":")[0] for w in ktap.search_provoked(provoked(FOUND | {name: "BUG: unable to handle page fault"}))] == [name]


def test_every_kernel_stands_in_a_tier() -> None:
    """One that no tier names is built by nothing, and what it would find is not found."""
    tiers = (kernels.REPOSITORY / "tools/check").read_text()
    assert [name for name in kernels.SERIES if f'"{name}"' not in tiers] == []
