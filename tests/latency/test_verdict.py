# SPDX-License-Identifier: MIT
"""The verdict over a table of loads: OSADL's own two tables, and what they could have been."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rtxg.lateness.table import Table, fill
from rtxg.lateness.verdict import Row, judge


def osadl(numbers: list[tuple[float, float]], rates: tuple[str, str]) -> list[Row]:
    """Maxima without and with graphics, without memory load, with one in the L3, with one above it."""
    rows = []
    for memory, (without, with_graphics) in zip(("", "L3", "above L3"), numbers, strict=True):
        rows.append(Row(memory, max_us=without))
        rows.append(Row(memory, "graphics", "same", max_us=with_graphics, rates={"graphics": rates[0]}))
    return rows


#: the printed tables: 12/127, 15/131, 19/133 us and 24/58, 23/61, 25/57 us
SYSTEM_1 = osadl([(12, 127), (15, 131), (19, 133)], ("7520 rects/s", "8902 MB/s"))
SYSTEM_2 = osadl([(24, 58), (23, 61), (25, 57)], ("21000 rects/s", "12684 MB/s"))

HELD = {"kind": "interrupts off", "us": 87.0, "what": "interrupts held off: irq/45-nvkm 489 in gf100_mc_intr_unarm"}


@pytest.mark.parametrize("rows", [SYSTEM_1, SYSTEM_2], ids=["system 1", "system 2"])
def test_osadls_tables_give_osadls_conclusion(rows: list[Row]) -> None:
    """Not bandwidth; the graphics driver; and the two together are no worse than that driver alone."""
    verdict = judge(rows)
    assert verdict.bandwidth is False
    assert verdict.device is True
    assert verdict.affinity is None, "no other core was measured"
    text = " ".join(verdict.sentences)
    assert "Bandwidth: no" in text
    assert "graphics: yes" in text
    assert "does not add" in text
    assert "rects/s" in text


def test_the_culprit_of_the_latest_wake_up_is_the_reason() -> None:
    """Locking and interrupts are told apart by what the CPU did."""
    rows = [Row(max_us=12), Row(device="graphics", place="same", max_us=112, parts=[HELD])]
    verdict = judge(rows)
    assert verdict.reason == "locking"
    assert "gf100_mc_intr_unarm" in " ".join(verdict.sentences)
    rows[1].parts = [{"kind": "interrupt", "us": 100.0, "what": "interrupt nvidia"}, HELD]
    assert judge(rows).reason == "interrupts"


def test_time_slices_are_those_of_other_tasks() -> None:
    """Without a real-time policy the measuring thread waits for its turn: no lock is to blame."""
    slices = {"kind": "time slice", "us": 3900.0, "what": "time slice of a task: memory 99"}
    rows = [Row(max_us=12), Row(device="CUDA", place="same", max_us=4000, parts=[slices, HELD])]
    verdict = judge(rows)
    assert verdict.reason == "other tasks, as it has no real-time policy"
    assert verdict.reason in " ".join(verdict.sentences)


def test_memory_and_device_together_are_those_of_one_device() -> None:
    """What another device does beside a memory load says nothing about this one."""
    rows = [
        Row(max_us=12),
        Row(device="graphics", place="same", max_us=13),
        Row(device="CUDA", place="same", max_us=112),
        Row("above L3", "graphics", "same", max_us=721),
        Row("above L3", "CUDA", "same", max_us=115),
    ]
    text = " ".join(judge(rows).sentences)
    assert "Both together: 115 us; memory load does not add to what CUDA does." in text


def test_each_device_has_its_sentence() -> None:
    """Where one of two devices makes the task late, the other one is not called to blame, nor left out."""
    rows = [
        Row(max_us=12),
        Row(device="graphics", place="same", max_us=14),
        Row(device="CUDA", place="same", max_us=112, parts=[HELD]),
    ]
    for order in (rows, [rows[0], rows[2], rows[1]]):
        verdict = judge(order)
        text = " ".join(verdict.sentences)
        assert "graphics: no" in text
        assert "CUDA: yes" in text
        assert verdict.device is True
        assert verdict.reason == "locking"


@pytest.mark.parametrize(("far", "helps"), [(13, True), (110, False)])
def test_affinity_helps_where_the_other_core_is_as_good_as_no_load(far: float, helps: bool) -> None:
    """OSADL's answer was maybe."""
    rows = [
        Row(max_us=12),
        Row(device="CUDA", place="same", max_us=112),
        Row(device="CUDA", place="other", max_us=far),
    ]
    assert judge(rows).affinity is helps


#: the memory load within the L3, which makes nothing late, and the rate of the one beyond it
WITHIN = Row("L3", max_us=14, rates={"L3": "12000 MB/s"})
BEYOND = {"above L3": "7000 MB/s"}


def beyond(max_us: float, *parts: tuple[str, float]) -> Row:
    """A row of the load beyond the L3, with these parts of its latest wake-up."""
    each = [{"kind": kind, "us": us, "what": kind} for kind, us in parts]
    return Row("above L3", max_us=max_us, parts=each, rates=BEYOND)


BUS = (("timer", 40.0), ("switch", 40.0))


def test_bandwidth_is_to_blame_where_memory_load_makes_it_late() -> None:
    """The other answer is possible."""
    rows = [Row(max_us=12), WITHIN, beyond(80, *BUS), Row(device="CUDA", place="same", max_us=13)]
    verdict = judge(rows)
    assert verdict.bandwidth is True
    assert verdict.device is False
    assert verdict.reason == ""
    assert "(12000 MB/s) gives 14 us; of the 80 us, 80 us are none of locks" in verdict.sentences[2]


@pytest.mark.parametrize(("virtual", "bandwidth"), [(False, True), (True, None)])
def test_a_virtual_machine_never_blames_the_bus(virtual: bool, bandwidth: bool | None) -> None:
    """QEMU has none, and another host takes the CPU where a bus would hold it."""
    rows = [Row(max_us=12), WITHIN, beyond(80, *BUS), Row(max_us=12)]
    table = Table({"virtual": virtual}, 1.0, 0, [], rows, [])
    assert table.verdict().bandwidth is bandwidth
    text = " ".join(table.verdict().sentences)
    assert ("In a virtual machine the host looks the same: Within the L3" in text) == virtual
    assert table.as_dict()["verdict"]["bandwidth"] is bandwidth


#: the latest wake-up of 80 us, where 12 us are the maximum without load
LATE = [
    ([("preemption off", 70.0), ("timer", 10.0)], False, "The reason is locking"),
    ([("softirq", 40.0), ("interrupt", 35.0), ("switch", 5.0)], False, "The reason is interrupts"),
    ([("timer", 40.0), ("switch", 20.0), ("preemption off", 20.0)], True, "Bandwidth: yes"),
    ([("stalled", 70.0), ("timer", 10.0)], None, "Bandwidth: not decided"),
    ([("outside", 30.0), ("preemption off", 30.0), ("timer", 20.0)], None, "30 us of 80 us came"),
    ([("time slice", 70.0), ("timer", 10.0)], None, "time slices of other tasks"),
    ([], None, "needs BPF"),
]


@pytest.mark.parametrize(("parts", "bandwidth", "said"), LATE)
def test_bandwidth_is_to_blame_where_nothing_else_held_the_cpu(
    parts: list[tuple[str, float]], bandwidth: bool | None, said: str
) -> None:
    """A lock that the load's own system call holds is none of the bus."""
    verdict = judge([Row(max_us=12), WITHIN, beyond(80, *parts)])
    assert verdict.bandwidth is bandwidth
    assert said in " ".join(verdict.sentences)


#: what the load within the L3 gave, where that beyond it gave 80 us and the bus may be to blame
COMPARED = [
    (None, BEYOND, None, "No load within the L3"),
    # as late without the bus: the work of the load is it
    (replace(WITHIN, max_us=75), BEYOND, False, "gives 75 us, without the bus"),
    # also late, but by a task, which tells nothing of this load's 50 us
    (
        replace(WITHIN, max_us=75, parts=[{"kind": "higher priority", "us": 70.0, "what": "t"}]),
        BEYOND,
        None,
        "the same work gives 75 us",
    ),
    # an emulator and a cache that other machines share: as fast beyond the L3 as within it
    (WITHIN, {"above L3": "11000 MB/s"}, None, "hardly more"),
    (replace(WITHIN, max_us=75), {"above L3": "11000 MB/s"}, None, "hardly more"),
    (WITHIN, {}, None, "rates are not known"),
    (replace(WITHIN, rates={}), BEYOND, None, "rates are not known"),
    # 30 us of it are its own, so 40 us by the bus are twice that within the L3 no more
    (replace(WITHIN, max_us=30), BEYOND, None, "the same work gives 30 us"),
]


@pytest.mark.parametrize(("within", "rates", "bandwidth", "said"), COMPARED)
def test_bandwidth_needs_a_load_that_differs_by_the_bus_alone(
    within: Row | None, rates: dict[str, str], bandwidth: bool | None, said: str
) -> None:
    """Where no memory bus is, or the load did not reach it, no answer names it."""
    late = replace(beyond(80, ("timer", 50.0), ("preemption off", 30.0)), rates=rates)
    verdict = judge([Row(max_us=12), *filter(None, [within]), late])
    assert verdict.bandwidth is bandwidth
    assert said in " ".join(verdict.sentences)


def test_noise_of_the_machine_is_no_reason() -> None:
    """Two runs without load that differ by as much as a load does; and a host that takes the CPU away."""
    outside = [{"kind": "outside", "us": 90.0, "what": "timer late while user code ran"}]
    rows = [
        Row(max_us=12),
        Row(max_us=100, parts=outside, stolen_us=5000),
        Row(device="OpenCL", place="same", max_us=110, parts=outside),
    ]
    verdict = judge(rows)
    assert verdict.device is None
    assert verdict.sentences[0] == (
        "Without load the maximum is 12 to 100 us; up to 24 us is no more than that."
    )
    differ = "Runs without load differ by as much: their maxima are 12 and 100 us."
    assert differ in verdict.sentences
    assert "not its own master" in verdict.sentences[-1]
    assert "2 of 2 rows" in verdict.sentences[-1]
    assert "5.0 ms" in verdict.sentences[-1]


#: rows without load, a row with one, and what may be said of it
BOUNDS = [
    # the host is in both; a load's 300 us would be hidden behind the 800 us
    ([Row(max_us=800, parts=[{"kind": "outside", "us": 780.0, "what": "o"}])], 297.0, [HELD], None),
    # but 25 us are not even late beside what the kernel had without load
    ([Row(max_us=800, parts=[{"kind": "outside", "us": 780.0, "what": "o"}])], 25.0, [HELD], False),
    # later than all runs without load, but by the host
    ([Row(max_us=20)], 300.0, [{"kind": "idle", "us": 290.0, "what": "i"}], None),
    # by both: what is left without the host is later
    ([Row(max_us=20)], 300.0, [{"kind": "idle", "us": 190.0, "what": "i"}, HELD], True),
    # no BPF, and no real-time policy: time slices of milliseconds hide all
    ([Row(max_us=8800, real_time=False)], 11900.0, [], None),
    ([Row(max_us=800, real_time=False)], 11900.0, [], None),
    # no BPF, and the host took 5 ms meanwhile
    ([Row(max_us=20)], 300.0, [], None),
]


@pytest.mark.parametrize(("alone", "max_us", "parts", "device"), BOUNDS)
def test_an_answer_stands_where_what_is_no_loads_cannot_change_it(
    alone: list[Row], max_us: float, parts: list[dict], device: bool | None
) -> None:
    """Neither yes nor no is said of what a host, firmware or time slices may have done."""
    row = Row(device="CUDA", place="same", max_us=max_us, parts=parts, real_time=alone[0].real_time)
    row.stolen_us = 5000.0 if not parts else 0.0
    verdict = judge([*alone, row])
    assert verdict.device is device
    text = " ".join(verdict.sentences)
    assert f"CUDA: {({True: 'yes', False: 'no', None: 'not decided'})[device]}" in text
    if device:
        assert "The reason is locking: 87 us of 300 us" in text, "and not the host's longer part"
    assert "0 of " not in text, "rows whose parts are not known are none that came from elsewhere"


def test_memory_adds_to_a_device_only_by_what_is_the_machines_own() -> None:
    """The host's part of a row with both loads is none of the memory load's."""
    outside = [{"kind": "outside", "us": 700.0, "what": "o"}]
    rows = [
        Row(max_us=12),
        Row(device="CUDA", place="same", max_us=112, parts=[HELD]),
        Row("above L3", "CUDA", "same", max_us=721, parts=outside),
    ]
    text = " ".join(judge(rows).sentences)
    assert "721 us; 700 us of them may be none of the loads', so it is not decided" in text
    rows[2].parts = [HELD]
    text = " ".join(judge(rows).sentences)
    assert "Both together: 721 us; memory load adds to what CUDA does." in text


def test_a_row_tells_whether_its_thread_had_a_real_time_policy() -> None:
    """As the run says, which may have been refused it."""
    for policy, real_time in (("fifo", True), ("rr", True), ("other", False)):
        row = Row()
        seen = {"max_us": 9.0, "avg_us": 5.0, "p999_us": 8.0, "count": 7}
        fill(row, {"threads": [{"policy": policy, "observed": seen}]})
        assert row.real_time is real_time


RESULTS = Path(__file__).resolve().parents[2] / "bench/results"

#: what docs/latency.md says of each recorded table: bandwidth, and the devices
RECORDED = [
    ("latency-h100-2026-11-22.json", [None, False, False, False]),
    ("latency-h200-2026-11-23.json", [None, False, False, False]),
    ("latency-table-2cpu-2026-11-22.json", [None, None, None, None]),
]


def answers(table: dict) -> list[bool | None]:
    """Of its verdict, in the order of its sentences."""
    text = "\n".join(judge([Row(**row) for row in table["rows"]]).sentences)
    words = re.findall(r"^[\w+]+: (yes|no|not decided)\.", text, re.M)
    return [{"yes": True, "no": False}.get(word) for word in words]


@pytest.mark.parametrize(("name", "expected"), RECORDED)
def test_recorded_tables_have_the_verdicts_that_the_page_tells(
    name: str, expected: list[bool | None]
) -> None:
    """Where two runs without load differ by 3 ms, no answer stands on 400 us."""
    record = json.loads((RESULTS / name).read_text(encoding="ascii"))
    assert answers(record["table"]) == expected


@pytest.mark.parametrize(
    ("date", "kernel", "expected"),
    [
        ("2026-11-23", "6.1", [False, True]),  # "bandwidth: yes" when it was made
        ("2026-11-25", "6.1", [False, True]),
        ("2026-11-25", "6.12-rt", [False, False]),
    ],
)
def test_recorded_tables_of_an_emulator_blame_no_bus(
    date: str, kernel: str, expected: list[bool | None]
) -> None:
    """QEMU has none."""
    record = json.loads((RESULTS / f"latency-vm-table-{date}.json").read_text(encoding="ascii"))
    assert answers(record["kernels"][kernel]["table"]) == expected


def test_without_a_row_without_load_there_is_no_verdict() -> None:
    """There is nothing to compare with."""
    with pytest.raises(ValueError, match="without load"):
        judge([Row("L3", max_us=3)])
