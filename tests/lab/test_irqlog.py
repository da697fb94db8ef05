# SPDX-License-Identifier: MIT
"""Priority inversions from the module's log: what is read out of a few events whose meaning is
known.
"""

from __future__ import annotations

import pytest

from rtxg.irqlog import Reader
from rtxg.tracefs import Event

IRQ, OWNER, JOB, THREAD = 31, 100, 200, 300
PRIOS = {0: 120, OWNER: 89, JOB: 39, THREAD: 97}
NAMES = {0: "swapper/0", OWNER: "owner", JOB: "job", THREAD: "irq/31-gpu"}


def switch(time: int, before: int, after: int, state: int = 1, cpu: int = 0) -> Event:
    fields: dict[str, int | str] = {"prev_state": state}
    for word, pid in (("prev", before), ("next", after)):
        fields |= {f"{word}_pid": pid, f"{word}_prio": PRIOS[pid], f"{word}_comm": NAMES[pid]}
    return Event(time, cpu, "sched_switch", fields)


def woken(time: int, pid: int, cpu: int = 0) -> Event:
    fields: dict[str, int | str] = {
        "pid": pid,
        "prio": PRIOS[pid],
        "comm": NAMES[pid],
        "target_cpu": cpu,
    }
    return Event(time, cpu, "sched_wakeup", fields)


def work(time: int, what: str, stage: int, irq: int = IRQ, cpu: int = 0) -> Event:
    return Event(time, cpu, f"rtxg_irq_{what}", {"irq": irq, "stage": stage})


def softirq(time: int, what: str, vector: int = 6) -> Event:
    return Event(time, 0, f"softirq_{what}", {"vec": vector})


def owned(time: int, owner: int = OWNER) -> Event:
    return Event(
        time,
        0,
        "rtxg_irq_owner",
        {"irq": IRQ, "owner": owner, "prio": 89, "priority": 10, "only_cpu": -1},
    )


def found(*events: Event, **how: object) -> dict[tuple[str, str], list[int]]:
    return Reader(**how).read(events).meter.found


#: the owner sleeps, the job runs
BEGIN = (owned(5), switch(10, OWNER, JOB))
#: its top half and a tasklet
INTERRUPT = (
    work(100, "begins", 0),
    work(103, "ends", 0),
    softirq(104, "entry"),
    softirq(154, "exit"),
)


def test_work_on_the_back_of_a_higher_task_is_an_inversion() -> None:
    assert found(*BEGIN, *INTERRUPT) == {("100", "top_halves"): [3], ("100", "bottom_halves"): [50]}


def test_work_on_the_back_of_a_lower_task_is_none() -> None:
    assert found(*BEGIN, *INTERRUPT, owner=JOB) == {}
    assert found(owned(5), switch(10, JOB, 0), *INTERRUPT) == {}


def test_an_owner_that_is_named_counts() -> None:
    assert found(*BEGIN[1:], *INTERRUPT, owner=OWNER)[str(OWNER), "top_halves"] == [3]


def test_without_an_owner_all_real_time_tasks_come_first() -> None:
    assert found(BEGIN[1], *INTERRUPT)["0", "bottom_halves"] == [50]


def test_other_interrupts_and_other_softirqs_are_left_out() -> None:
    assert found(*BEGIN, *INTERRUPT, irqs=frozenset({7})) == {}
    network = (softirq(104, "entry", 3), softirq(154, "exit", 3))
    assert found(*BEGIN, *INTERRUPT[:2], *network) == {("100", "top_halves"): [3]}


def test_a_tasklet_after_a_task_switch_belongs_to_another() -> None:
    assert ("100", "bottom_halves") not in found(
        *BEGIN, *INTERRUPT[:2], switch(103, JOB, 0, 0), *INTERRUPT[2:]
    )


def test_a_thread_that_keeps_a_higher_task_waiting() -> None:
    turn = (
        switch(20, 0, THREAD),
        work(21, "begins", 1),
        woken(30, JOB),
        work(45, "ends", 1),
        switch(46, THREAD, JOB),
    )
    assert found(owned(5), *turn) == {("100", "bottom_halves"): [15]}
    elsewhere = woken(30, JOB, cpu=1)
    assert found(owned(5), *turn[:2], elsewhere, *turn[3:]) == {}


def test_a_thread_that_waits_for_something_lower(monkeypatch: pytest.MonkeyPatch) -> None:
    def seen() -> dict[tuple[str, str], list[int]]:
        return found(
            owned(5), switch(6, 0, OWNER), switch(10, OWNER, JOB), woken(20, THREAD), switch(70, JOB, THREAD, 0),
            work(71, "begins", 3), work(75, "ends", 3), switch(76, THREAD, JOB),
        )  # fmt: skip

    assert (str(OWNER), "waits") not in seen()
    monkeypatch.setitem(PRIOS, OWNER, 19)
    assert seen()[str(OWNER), "waits"] == [50]


def test_an_inherited_priority_counts_from_its_moment() -> None:
    inherits = Event(
        120, 0, "sched_pi_setprio", {"pid": OWNER, "comm": "owner", "oldprio": 89, "newprio": 39}
    )
    assert found(switch(4, 0, OWNER), *BEGIN, *INTERRUPT[:3], inherits, INTERRUPT[3])[
        "100", "bottom_halves"
    ] == [16]


def test_what_is_told_has_the_words_of_the_live_meter() -> None:
    reader = Reader().read((*BEGIN, *INTERRUPT))
    told = reader.told(2.0)
    assert told["source"] == "module" and told["seconds"] == 2.0 and reader.works == 1
    (row,) = told["owners"]
    assert (row["owner"], row["name"], row["prio"]) == (OWNER, "owner", 89)
    assert row["bottom_halves"]["below_5us"] == 1 and row["waits"]["count"] == 0
