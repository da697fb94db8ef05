# SPDX-License-Identifier: MIT
"""The verdict over a table of loads: OSADL's own two tables, and what they could have been."""

from __future__ import annotations

import pytest
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


def test_bandwidth_is_to_blame_where_memory_load_makes_it_late() -> None:
    """The other answer is possible."""
    verdict = judge([Row(max_us=12), Row("above L3", max_us=80), Row(device="CUDA", place="same", max_us=13)])
    assert verdict.bandwidth is True
    assert verdict.device is False
    assert verdict.reason == ""


#: the latest wake-up of 80 us, where 12 us are the maximum without load
LATE = [
    ([("preemption off", 70.0), ("timer", 10.0)], False, "The reason is locking"),
    ([("softirq", 40.0), ("interrupt", 35.0), ("switch", 5.0)], False, "The reason is interrupts"),
    ([("timer", 40.0), ("switch", 20.0), ("preemption off", 20.0)], True, "Bandwidth: yes"),
    ([("stalled", 70.0), ("timer", 10.0)], None, "Bandwidth: not decided"),
    ([("outside", 30.0), ("preemption off", 30.0), ("timer", 20.0)], None, "30 us of them"),
]


@pytest.mark.parametrize(("parts", "bandwidth", "said"), LATE)
def test_bandwidth_is_to_blame_where_nothing_else_held_the_cpu(
    parts: list[tuple[str, float]], bandwidth: bool | None, said: str
) -> None:
    """A lock that the load's own system call holds is none of the bus."""
    each = [{"kind": kind, "us": us, "what": kind} for kind, us in parts]
    late = Row("above L3", max_us=80, parts=each)
    verdict = judge([Row(max_us=12), late])
    assert verdict.bandwidth is bandwidth
    assert said in " ".join(verdict.sentences)


def test_noise_of_the_machine_is_no_reason() -> None:
    """Two runs without load that differ by as much as a load does; and a host that takes the CPU away."""
    outside = [{"kind": "outside", "us": 90.0, "what": "timer late while user code ran"}]
    rows = [
        Row(max_us=12, parts=outside),
        Row(max_us=100, parts=outside, stolen_us=5000),
        Row(device="OpenCL", place="same", max_us=110, parts=outside),
    ]
    verdict = judge(rows)
    assert verdict.device is False
    assert "not its own master" in verdict.sentences[-1]
    assert "5.0 ms" in verdict.sentences[-1]


def test_without_a_row_without_load_there_is_no_verdict() -> None:
    """There is nothing to compare with."""
    with pytest.raises(ValueError, match="without load"):
        judge([Row("L3", max_us=3)])
