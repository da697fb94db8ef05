# SPDX-License-Identifier: MIT
"""Task files: their meaning, and errors that name the wrong line."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtxg import TABLE_III, Interrupts, TaskFileError, examples, load, loads
from rtxg.taskfile import loads_rtapp
from rtxg.units import format_time, parse_time

EXAMPLES = Path(__file__).resolve().parents[2] / "lab" / "examples"

GOOD = """\
name = "good"
[platform]
cpus = 4
clusters = 2
gpus = 2
interrupts = "slih"
lock = "aware"

[overheads]
base = "table-iii"
bh = "40us"

[[task]]
name = "camera"
instance = 2
run = "2ms"
period = 33000      # microseconds, as in rt-app
gpu = { calls = 3, time = "1.5ms", section = "2ms" }

[[task]]
name = "deadline"
policy = "SCHED_DEADLINE"
dl-runtime = 1000
dl-period = "10ms"
dl-deadline = "8ms"
cluster = 1
delay = "250us"
"""


def test_a_good_file():
    problem = loads(GOOD)
    system = problem.taskset
    assert system.name == "good"
    assert (system.platform.cpus_per_cluster, system.platform.gpus_per_cluster) == (2, 1)
    assert problem.interrupts is Interrupts.SLIH
    assert problem.lock == "aware"
    assert problem.overheads.bh == 40
    assert problem.overheads.th == TABLE_III.th
    camera = system["camera-1"]
    assert (camera.cost, camera.period, camera.deadline) == (2000, 33000, 33000)
    assert (camera.gpu_calls, camera.gpu_time, camera.section) == (3, 1500, 2000)
    other = system["deadline"]
    assert (other.cost, other.period, other.deadline, other.cluster, other.offset) == (1000, 10_000, 8000, 1, 250)


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ('run = "2ms"', 'run = "2 fortnights"', 16, "fortnights"),
        ('run = "2ms"', "run = -5", 16, "negative"),
        ('run = "2ms"', "run = true", 16, "not a time"),
        ("dl-runtime = 1000\n", "", 20, "run is missing"),
        ('run = "2ms"', 'runn = "2ms"', 16, "did you mean 'run'"),
        ("cpus = 4", "cpus = 0", 3, "cpus is 0"),
        ("cpus = 4", 'cpus = "four"', 3, "whole number"),
        ("cpus = 4\n", "", 2, "cpus is missing"),
        ("clusters = 2", "clusters = 3", 4, r"CPUs \(4\) and GPUs \(2\) do not divide into 3"),
        ('interrupts = "slih"', 'interrupts = "magic"', 6, "none, slih, pai, klmirqd, rtxg"),
        ('lock = "aware"', 'lock = "mutex"', 7, "mutex"),
        ('base = "table-iii"', 'base = "table-iv"', 10, "table-iv"),
        ('bh = "40us"', 'bhh = "40us"', 11, "did you mean 'bh'"),
        ('bh = "40us"', 'bh = "x"', 11, "overhead bh"),
        ("calls = 3", "calls = 0", 13, "no GPU call"),
        ("calls = 3", "calls = 2.5", 18, "calls is 2.5"),
        ('section = "2ms"', 'section = "1ms"', 13, "at least the GPU time"),
        ('section = "2ms"', 'section = "9ms"', 13, "executes only"),
        ("period = 33000", "period = 0", 13, "above zero"),
        ("cluster = 1", "cluster = 7", 20, "cluster 7 does not exist"),
        ('name = "deadline"', 'name = "camera-0"', 20, "two tasks are named"),
        ('dl-period = "10ms"', 'dl-period = "10ms"\nperiod = "10ms"', 24, "say the same thing"),
        ('policy = "SCHED_DEADLINE"', 'policy = "SCHED_MAGIC"', 22, "SCHED_MAGIC"),
        ("instance = 2", "instance = 2\ninstance = 3", 16, "overwrite"),
        ("[overheads]", "[overhead]", 9, "unknown table"),
        ("gpus = 2\n", "", 12, "the platform has none"),
    ],
)
def test_errors_name_their_line(old, new, line, message):
    text = GOOD.replace(old, new, 1)
    assert text != GOOD
    with pytest.raises(TaskFileError, match=message) as caught:
        loads(text, "file.toml")
    assert str(caught.value).startswith(f"file.toml:{line}: ")


def test_files_without_substance():
    with pytest.raises(TaskFileError, match="no \\[platform\\]"):
        loads("")
    with pytest.raises(TaskFileError, match="no \\[\\[task\\]\\]"):
        loads("[platform]\ncpus = 1\n")
    with pytest.raises(TaskFileError, match="two brackets"):
        loads("[platform]\ncpus = 1\n[task]\nrun = 1\nperiod = 2\n")


@given(st.text(max_size=200))
def test_any_text_gives_an_answer_or_a_task_file_error(text):
    for read in (loads, loads_rtapp):
        try:
            read(text)
        except TaskFileError:
            pass


@given(st.lists(st.sampled_from(GOOD.splitlines()), max_size=30))
def test_shuffled_lines_give_an_answer_or_a_task_file_error(lines):
    try:
        loads("\n".join(lines))
    except TaskFileError:
        pass


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (loads, "name = " + "[" * 100_000, "is nested too deeply"),
        (loads_rtapp, "[" * 100_000, "is nested too deeply"),
        (loads, f"\nsets = {'9' * 5000}", "2: has a number of thousands of digits"),
        (loads_rtapp, f'{{\n"tasks": {"9" * 5000}}}', "2: has a number of thousands of digits"),
    ],
    ids=["deep", "deep rt-app", "endless", "endless rt-app"],
)
def test_what_breaks_a_parser_is_answered(read, text, message):
    """Python's parsers give up on these with errors of their own."""
    with pytest.raises(TaskFileError) as caught:
        read(text, "f")
    assert str(caught.value).startswith("f:") and str(caught.value).endswith(message)


def test_not_text(tmp_path):
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TaskFileError, match="UTF-8"):
        load(path)


@pytest.mark.parametrize("path", sorted(examples().values()), ids=lambda p: p.stem)
def test_examples_load(path):
    assert len(load(path).taskset) > 0


def test_the_workload_of_section_vi():
    system = load(EXAMPLES / "klmirqd-section-vi.toml").taskset
    assert len(system) == 50
    assert sum(t.uses_gpu for t in system) == 10
    assert float(system.utilization) == pytest.approx(2 * 3 / 19.9 + 40 * 5 / 20 + 8 * 3 / 20.1)


scalars = st.one_of(st.none(), st.booleans(), st.integers(-5, 10**20), st.floats(), st.text(max_size=5))
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["run", "timer", "period", "phases", "instance", "cpus", "dl-runtime", "dl-period", "priority", "policy"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=3), values, max_size=3))
def test_any_rtapp_document_gives_an_answer_or_a_task_file_error(tasks):
    try:
        loads_rtapp(json.dumps({"tasks": tasks}))
    except TaskFileError:
        pass


RTAPP = """\
{
    "tasks": {
        "worker": { "instance": 2, "cpus": [0, 3], "loop": -1, "run": 2000, "run1": 500,
                    "timer": { "ref": "unique", "period": 10000 } },
        "dl": { "policy": "SCHED_DEADLINE", "dl-runtime": 3000, "dl-period": 20000, "dl-deadline": 15000,
                "run": 2500, "timer": { "ref": "t2", "period": 20000 } },
        "two": { "phases": { "a": { "run": 100, "timer": { "ref": "u", "period": 5000 } },
                             "b": { "run": 900, "timer": { "ref": "u", "period": 4000 } } } }
    },
    "global": { "duration": 5 }
}
"""


def test_rtapp():
    system = loads_rtapp(RTAPP).taskset
    assert system.platform.cpus == 4
    assert (system["worker-0"].cost, system["worker-0"].period) == (2500, 10_000)
    assert (system["dl"].cost, system["dl"].period, system["dl"].deadline) == (3000, 20_000, 15_000)
    assert (system["two"].cost, system["two"].period) == (900, 4000)


def test_a_policy_for_all_tasks_of_rtapp_is_that_of_those_that_name_none():
    task = '{"run": 1, "priority": 40, "timer": {"period": 9}'
    tasks = f'"a": {task}}}, "b": {task}, "policy": "SCHED_OTHER"}}'
    system = loads_rtapp(
        f'{{"tasks": {{{tasks}}}, "global": {{"default_policy": "SCHED_FIFO"}}}}'
    ).taskset
    assert (system["a"].priority, system["b"].priority) == (40, 0)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('{\n"tasks": {\n"a": { "run": 5 } } }', 3, "no timer"),
        ('{\n"tasks": {\n"a": { "run": "x", "timer": {"period": 1} } } }', 3, "not a time"),
        ('{\n"tasks": {\n"a": 5 } }', 3, "object"),
        ('{\n"tasks": {\n"a": { "run": 5, "timer": {} } } }', 3, "period is missing"),
        ('{\n"tasks": {\n"a": { "run": 5, "timer": {"period": 9}, "cpus": "all" } } }', 3, "cpus is 'all'"),
        ('{\n"tasks": {\n"a": { "run": 5, "timer": {"period": 9}, "priority": "high" } } }', 3, "priority is 'high'"),
        ('{\n"tasks": {,} }', 2, "property name"),
    ],
)
def test_rtapp_errors(text, line, message):
    with pytest.raises(TaskFileError, match=message) as caught:
        loads_rtapp(text, "app.json")
    assert str(caught.value).startswith(f"app.json:{line}: ")


@pytest.mark.parametrize(
    ("text", "value"),
    [("5ms", 5000), ("19.9 ms", 19_900), ("250ns", Fraction(1, 4)), ("1s", 1_000_000), ("7", 7), (7, 7), (0.1, Fraction(1, 10))],
)
def test_times(text, value):
    assert parse_time(text) == value


@pytest.mark.parametrize(
    "text", ["", "ms", "-1ms", "1e999999999s", "1e30", "9" * 50, "1 h", "1e", float("nan"), float("inf"), None, [], True]
)
def test_not_times(text):
    with pytest.raises(ValueError, match=r"time|unit|finite|write|thirty years"):
        parse_time(text)


@pytest.mark.parametrize(("value", "text"), [(19_900, "19.9ms"), (0, "0us"), (Fraction(1, 4), "250ns"), (2_500_000, "2.5s")])
def test_printed_times(value, text):
    assert format_time(value) == text


def test_partitioning_is_chosen_in_the_file():
    text = '[platform]\ncpus = 2\nclusters = 2\npartitioning = "first-fit"\n[[task]]\nrun = 100\nperiod = 1000\ninstance = 3\n'
    assert [t.cluster for t in loads(text).taskset] == [0, 0, 0]
    assert [t.cluster for t in loads(text.replace("first", "worst")).taskset] == [0, 1, 0]
    with pytest.raises(TaskFileError, match=r":4: partitioning is 'magic'; use one of worst-fit, best-fit"):
        loads(text.replace("first-fit", "magic"))


def test_a_bound_that_does_not_fit_is_refused_at_its_line():
    text = '[platform]\ncpus = 2\nbound = "devi-anderson"\n[[task]]\nrun = 100\nperiod = 1000\ndeadline = 900\n'
    with pytest.raises(TaskFileError, match=r":7: deadline: the Devi-Anderson bound"):
        loads(text)
