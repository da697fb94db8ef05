# SPDX-License-Identifier: MIT
"""Task sets and verdicts in other forms, and the constructors that refuse what is not exact."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from small_sets import task, taskset

from rtxg import Platform, Task, TaskFileError, TaskSet, analyze, examples, load
from rtxg.export import from_schedcat, from_simso, read, to_schedcat, to_simso

SYSTEM = taskset(
    task("a", 2000, 10_000), task("b", 3000, 15_000, deadline=12_000), task("c", 500, 20_000, 1, 900, 1000), cpus=2, gpus=1
)


def test_times_with_units():
    camera = Task.of("camera", "8ms", "33ms", gpu_time="6ms", gpu_calls=6, section="7ms")
    assert camera == task("camera", 8000, 33_000, 6, 6000, 7000)
    assert Task.of("t", "0.1ms", "1ms").cost == 100
    assert Task.of("t", 2.5, 10).cost == Fraction(5, 2)
    assert Task("t", 3, 10).deadline == 10
    assert Task("t", 3, 10, gpu_calls=1, gpu_time=4).section == 4
    with pytest.raises(ValueError, match="task t: period: '5 minutes'"):
        Task.of("t", 1, "5 minutes")


@pytest.mark.parametrize("value", [0.5, math.nan, "5ms", np.float64(2), np.int64(2), None, True])
def test_what_is_no_exact_time_is_refused(value):
    with pytest.raises(ValueError, match=r"task t: cost is .*must be an int or a Fraction"):
        Task("t", value, 10)


def test_whole_numbers_are_whole():
    with pytest.raises(ValueError, match=r"gpu_calls is 1\.5"):
        Task("t", 1, 10, gpu_calls=1.5, gpu_time=1)


def test_schedcat_round_trip(tmp_path):
    text = to_schedcat(SYSTEM)
    assert 'wcet="1400"' in text  # CPU and GPU time of c
    back = from_schedcat(text, SYSTEM.platform)
    assert [(t.demand, t.period, t.deadline, t.section, t.gpu_calls) for t in back] == [
        (t.demand, t.period, t.deadline, t.section, t.gpu_calls) for t in SYSTEM
    ]
    path = tmp_path / "set.xml"
    path.write_text(text)
    assert [t.period for t in read(path, SYSTEM.platform)] == [10_000, 15_000, 20_000]
    assert from_schedcat(to_schedcat(SYSTEM, "10us"), SYSTEM.platform, "10us")["t1"].cost == 2000
    with pytest.raises(ValueError, match=r"task a: .* finer unit"):
        to_schedcat(taskset(Task("a", Fraction(1, 3), 10), gpus=0))


def test_several_requests_go_to_schedcat_and_back():
    system = taskset(task("a", 500, 20_000, 3, 900, 400, gpu_requests=3), gpus=1)
    text = to_schedcat(system)
    assert 'max_writes="3"' in text and 'max_write_length="400"' in text
    (back,) = from_schedcat(text, system.platform)
    assert (back.gpu_requests, back.section, back.held, back.demand) == (3, 400, 1200, 1400)


def test_what_simso_cannot_say_is_refused():
    with pytest.raises(ValueError, match="task a has priority 5; SimSo's RM goes by periods"):
        to_simso(TaskSet((Task("a", 1, 10, priority=5),), Platform(1, scheduler="RM")))
    with pytest.raises(ValueError, match="task a: cost is 1/3000 ms, which no decimal number"):
        to_simso(TaskSet((Task("a", Fraction(1, 3), 10),), Platform(1)))


def test_a_file_that_is_no_text_is_named(tmp_path):
    path = tmp_path / "set.xml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(TaskFileError, match=r"set\.xml: is not UTF-8 text"):
        read(path)


def test_simso_round_trip(tmp_path):
    plain = TaskSet((task("a", 2000, 10_000, offset=Fraction(500)), task("b", 3125, 15_000, deadline=12_000)), Platform(3))
    back = from_simso(to_simso(plain))
    assert back.tasks == plain.tasks
    assert back.platform == plain.platform
    with pytest.raises(ValueError, match="task c uses a GPU"):
        to_simso(SYSTEM)


def test_simso_reads_what_is_written(tmp_path):
    configuration = pytest.importorskip(
        "simso.configuration", reason="SimSo is not installed, or not for this Python", exc_type=ImportError
    )
    path = tmp_path / "set.xml"
    path.write_text(to_simso(taskset(task("a", 2000, 10_000), task("b", 3000, 15_000), gpus=0)))
    found = configuration.Configuration(str(path))
    assert [(t.name, t.period, t.wcet) for t in found.task_info_list] == [("a", 10.0, 2.0), ("b", 15.0, 3.0)]
    assert len(found.proc_info_list) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<taskset><task id='1' wcet='x' period='3'/></taskset>", "task 1: wcet is 'x', no number"),
        ("<taskset><task id='1' period='3'/></taskset>", "task 1: wcet is missing"),
        ("<taskset><task id='1' wcet='-1' period='3'/></taskset>", "must not be negative"),
        (
            "<taskset><task id='1' wcet='1' period='0'/></taskset>",
            "period is 0; it must be above zero",
        ),
        (
            "<taskset><task id='1' wcet='1e999999999' period='3'/></taskset>",
            "wcet is '1e999999999', no number",
        ),
        (
            f"<taskset><task id='1' wcet='{'9' * 9999}' period='3'/></taskset>",
            "wcet is '9{40}', no number",
        ),
        (
            "<taskset><task id='1' wcet='1' period='3' partition='x'/></taskset>",
            "partition is 'x', no number",
        ),
        (
            "<taskset><task id='1' wcet='9' period='10'><resources><requirement max_writes='1.5'/></resources></task></taskset>",
            r"max_writes is 1\.5; it must be a whole number",
        ),
        ("<testpoint/>", "begins with <testpoint>"),
        ("<taskset>", ":1: is not XML"),
        ("<!DOCTYPE a [<!ENTITY b 'c'>]><taskset/>", "has a document type"),
        (
            "<taskset><task id='1' wcet='9' period='10'><resources><requirement res_id='2'/></resources></task></taskset>",
            "task 1 requests resource 2",
        ),
    ],
)
def test_bad_files_are_answered(text, message):
    with pytest.raises(TaskFileError, match=message):
        from_schedcat(text, Platform(2, 1, 1), path="bad.xml")


def test_frames_and_plain_data():
    found = analyze(SYSTEM, interrupts="none")
    assert [row["name"] for row in found.to_json()["tasks"]] == ["a", "b", "c"]
    assert repr(found) == (
        "<Analysis of <TaskSet 'task set': 3 tasks, utilisation 0.47, G-EDF on 1 x 2 CPUs, 1 GPUs>: never late>"
    )
    pandas = pytest.importorskip("pandas", reason="pandas is not installed (tools/setup check)")
    frame = found.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["inflated"]) == [2000, 3000, 1400]


def test_without_pandas_the_remedy_is_named(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pip install 'rtxg\[frames\]'"):
        analyze(SYSTEM, interrupts="none").to_frame()


def test_examples_come_with_the_package():
    assert {"perception", "two-cpus", "shared-gpu", "klmirqd-section-vi"} <= set(examples())
    assert load("example:perception").taskset.name == "perception"
    with pytest.raises(TaskFileError, match=r"there is no such example; there are .*perception"):
        load("example:nothing")


@pytest.mark.parametrize(
    ("how", "homes"),
    [
        ("worst-fit", [0, 1, 1, 0]),
        ("best-fit", [0, 1, 0, 1]),
        ("first-fit", [0, 1, 0, 1]),
        ("next-fit", [0, 1, 1, 0]),
    ],
)
def test_partitionings_by_hand(how, homes):
    # In this order: 0.6, 0.5, 0.3, 0.3 of a CPU, on single CPUs.
    system = taskset(task("a", 6, 10), task("b", 5, 10), task("c", 3, 10), task("d", 3, 10), cpus=2, gpus=0, clusters=2)
    assert [t.cluster for t in system.partitioned(how)] == homes
    with pytest.raises(ValueError, match="partitioning 'magic' is unknown"):
        system.partitioned("magic")
