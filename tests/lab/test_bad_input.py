# SPDX-License-Identifier: MIT
"""What can be wrong with files and options: each gets one line with what is wrong, and status 1."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

import rtxg
from rtxg import Platform, Task, TaskSet, export
from rtxg.commands import FAILED, analyze, campaign, measure, run, simulate
from rtxg.taskfile import TaskFileError
from rtxg.units import LONGEST_FILE

GOOD = """\
[platform]
cpus = 2
gpus = 1
[[task]]
name = "a"
run = "2ms"
period = "10ms"
gpu = { calls = 1, time = "1ms" }
"""
EXPERIMENT = (Path(__file__).resolve().parents[2] / "lab/examples/experiment.toml").read_text()

Ask = Callable[..., str]


@pytest.fixture
def ask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    """The one line that a command says when it fails."""

    def asked(module: object, *words: str) -> str:
        with pytest.raises(SystemExit) as ended:
            run(lambda: module.main([word.replace("TMP", str(tmp_path)) for word in words]), "rtxg")
        said = capsys.readouterr().err.strip()
        assert ended.value.code == FAILED, said
        last = said.splitlines()[-1]
        assert len(last) < 500
        return last

    return asked


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"a"', '"\\u001b[31mred"', r":4: task '\x1b[31mred': the name must be text"),
        ('"2ms"', f'"{"9" * 5000}ms"', ":6: run: '99999999"),
        ("gpus = 1", f"gpus = 0x{'f' * 5000}", ":3: gpus is a number of more than 60 digits"),
        ("[platform]", 'name = "\\u0007"\n[platform]', r":1: name is '\x07'; it must be text"),
        ("[platform]", "name = 3\n[platform]", ":1: name is 3; it must be text"),
    ],
)
def test_a_task_file(old: str, new: str, message: str, tmp_path: Path, ask: Ask) -> None:
    (tmp_path / "set.toml").write_text(GOOD.replace(old, new, 1))
    assert message in ask(analyze, "TMP/set.toml")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ('{"phases": [1]}', "phases must be an object"),
        ('{"phases": {"x": {"phases": {"y": 3}}}}', "phases must be an object"),
        ('{"run": 3, "timer": 7}', "timer is 7; it must be an object with a period"),
        ('{"run": 3, "timer": {"period": 1000}, "cpus": [true]}', "must be a list of CPU numbers"),
        ('{"run": 3, "timer": {}}', "period is missing"),
        # Its priority was dropped without a word.
        ('{"run": 3, "timer": {"period": 9}, "policy": "FIFO"}', "policy is 'FIFO'; use one of"),
        ('{"run": 3, "timer": {"period": 9}, "policy": 1}', "policy is 1; use one of SCHED_OTHER"),
    ],
)
def test_a_file_of_rt_app(entry: str, message: str, tmp_path: Path, ask: Ask) -> None:
    (tmp_path / "set.json").write_text(f'{{"tasks": {{"a": {entry}}}}}')
    assert message in ask(analyze, "TMP/set.json")


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    (tmp_path / "set.toml").write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert analyze.main([str(tmp_path / "set.toml")]) == 0


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (analyze, ["TMP/endless"]),
        (analyze, ["TMP/good.toml", "--overheads", "TMP/endless"]),
        (simulate, ["TMP/endless"]),
        (measure, ["--run", "TMP/endless"]),
        (campaign, ["--file", "TMP/endless", "--out", "TMP/out"]),
    ],
)
def test_a_file_without_end_is_not_read_to_its_end(
    module: object, words: list[str], tmp_path: Path, ask: Ask
) -> None:
    (tmp_path / "good.toml").write_text(GOOD)
    with (tmp_path / "endless").open("wb") as file:
        file.truncate(LONGEST_FILE + 1)  # as /dev/zero, and with no block on the disk
    said = ask(module, *words)
    assert "is longer than 64 MiB" in said or "endless: is not JSON" in said


def test_a_file_that_cannot_be_read_is_named(ask: Ask) -> None:
    assert ask(analyze, "/proc/self/mem") == "rtxg: /proc/self/mem: Input/output error"
    assert ask(analyze, "TMP/none.toml").endswith("/none.toml: No such file or directory")


@pytest.mark.parametrize(
    ("module", "words", "message"),
    [
        (analyze, ["TMP/good.toml", "--speedup", "1" + "0" * 400], "--speedup is a number of more"),
        (analyze, ["TMP/good.toml", "--overheads", ""], "--overheads : no such set"),
        (analyze, ["TMP/good.toml", "--overheads", "TMP/none.json"], "has no overheads"),
        (analyze, ["TMP/good.toml", "--explain", ""], "no task ''"),
        (simulate, ["TMP/good.toml", "--sporadic", "1e308"], "--sporadic is 1e+308; it must be"),
        (measure, ["--irq", ""], "--irq : no interrupt"),
        (measure, ["--inversions", "--owner", "-1"], "--owner is -1"),
        (campaign, ["--figure", "6", "--sets", f"1{0:030}", "--out", "TMP/o"], "sets is 1000000"),
        (campaign, ["--figure", "6", "--step", "1e-300", "--out", "TMP/o"], "step is 1e-300"),
        (campaign, ["--figure", "6", "--step", "nan", "--out", "TMP/o"], "step is nan"),
        (campaign, ["--figure", "6", "--cpus", "9999999998", "--out", "TMP/o"], "at most 4096"),
        (campaign, ["--figure", "6", "--out", "TMP/no"], "TMP/no/results.sqlite: file"),
        # Of variables that are not set: the first five were taken for no option, or for a folder.
        (analyze, ["TMP/good.toml", "--explain", "a", "--picture", ""], "--picture: is empty"),
        (simulate, ["TMP/good.toml", "--picture", ""], "--picture: is empty; name a file"),
        (simulate, ["--experiment", "cost", "--out", ""], "--out: is empty; name a file"),
        (campaign, ["--figure", "6", "--sets", "1", "--out", ""], "--out: is empty; name a file"),
        (measure, ["--run", ""], "--run: is empty; name a file, or leave the option out"),
        (measure, ["--no-tracepoints", "--out", ""], "--out: is empty; name a file"),
        (campaign, ["--figure", "6", "--out", "TMP/good.toml"], "there is a file of that name"),
        (campaign, ["--figure", "6", "--out", "TMP/good.toml/o"], "there is a file of that name"),
        (simulate, ["--experiment", "cost", "--out", "TMP/good.toml"], "name a folder"),
    ],
)
def test_an_option(
    module: object, words: list[str], message: str, tmp_path: Path, ask: Ask
) -> None:
    (tmp_path / "good.toml").write_text(GOOD)
    (tmp_path / "none.json").write_text('{"overheads": {}}')
    (tmp_path / "no").mkdir()
    (tmp_path / "no/results.sqlite").write_text("a text and no data base\n" * 100)
    assert message.replace("TMP", str(tmp_path)) in ask(module, *words)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('interrupts = "slih"', 'test = "own:broken"', "0.5 (TMP/own.py:2): KeyError: 'x'"),
        ('interrupts = "slih"', 'test = "os:getpid"', "TypeError: "),
        ('interrupts = "slih"', 'lock = "math:sqrt"', "TypeError: "),
        ('utilizations = ["uniform", 0.1, 0.4]', 'function = "os:getpid"', ": TypeError: "),
        ('["uniform", 0.1, 0.4]', '["exponential", 1e-300]', ":13: a utilisation of 1e-300 is"),
    ],
)  # fmt: skip
def test_an_experiment(
    old: str, new: str, message: str, tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = EXPERIMENT.replace(old, new, 1)
    if "function = " in new:  # then the platform is its own matter
        text = "\n".join(
            line
            for line in text.splitlines()
            if not line.startswith(("periods", "gpu-", "calls", "cpus", "gpus", "[platform]"))
        )
    (tmp_path / "mine.toml").write_text(text)
    (tmp_path / "own.py").write_text("def broken(taskset, point):\n    return {}['x']\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    said = ask(campaign, "--file", "TMP/mine.toml", "--sets", "1", "--out", "TMP/out")
    assert message.replace("TMP", str(tmp_path)) in said
    assert ":13:" in said or " at utilization = 0.5 (/" in said
    if "own:" in new:  # a worker's is told as well
        words = ["--workers", "2", "--sets", "60", "--out", "TMP/out"]
        assert "/own.py:2): KeyError: 'x'" in ask(campaign, "--file", "TMP/mine.toml", *words)
    sys.modules.pop("own", None)


def test_the_example_of_an_experiment_is_found_by_name(tmp_path: Path, ask: Ask) -> None:
    words = ["--file", "example:experiment", "--sets", "1", "--out", str(tmp_path / "out")]
    assert campaign.main(words) == 0
    assert (tmp_path / "out/results.json").exists()
    assert "is an experiment, for rtxg campaign --file" in ask(analyze, "example:experiment")
    words[1] = "example:perception"
    assert "is no experiment; example:experiment is the one" in ask(campaign, *words)


def test_a_name_that_cannot_be_printed_is_refused_from_python() -> None:
    for name in ("", "a\x1b[2J", "a\n", 3):
        with pytest.raises(ValueError, match="can be printed"):
            Task(name, Fraction(1), Fraction(2))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="can be printed"):
        TaskSet((Task.of("a", 1, 2),), Platform(1), "\x07")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('<task id="1" wcet="1" period="3"/>' * 2, "two tasks are named"),
        ('<task id="1" wcet="1" period="3" partition="9"/>', "cluster 9 does not exist"),
        (
            '<task id="1" wcet="5" period="9"><resources>'
            '<requirement res_id="0" max_reads="1" max_writes="1" max_write_length="1"/>'
            "</resources></task>",
            "task 1: a GPU is requested once and to write",
        ),
        (
            '<task id="1" wcet="5" period="9"><resources>'
            + '<requirement res_id="0" max_writes="1" max_write_length="1"/>' * 2
            + "</resources></task>",
            "task 1: a GPU is requested once and to write",
        ),
    ],
)  # fmt: skip
def test_a_file_of_schedcat(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "set.xml"
    path.write_text(f"<taskset>{text}</taskset>")
    with pytest.raises(TaskFileError) as wrong:
        export.read(path, Platform(2, gpus=1))
    assert str(wrong.value).startswith(f"{path}: ")
    assert message in str(wrong.value)


ONE = Task("a", 1, 10)
SET = TaskSet((ONE,), Platform(2))


def waits(lock: object, scheduler: str = "G-EDF") -> rtxg.Analysis:
    """What the lock's bound leads to for one task that uses a GPU."""
    task = Task("g", 1, 10, gpu_calls=1, gpu_time=1)
    return rtxg.analyze(TaskSet((task,), Platform(1, 1, 1, scheduler)), lock=lock)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Platform(2.0), "cpus is 2.0; it must be a whole number from 1"),
        (lambda: Platform(True), "cpus is True; it must be a whole number from 1"),
        (lambda: Platform(2, "1"), "clusters is '1'; it must be a whole number from 1"),
        (lambda: Platform(2, 1, -1), "gpus is -1; it must be a whole number from 0"),
        (lambda: TaskSet((ONE,), 4), "the platform is 4; make it with rtxg.Platform"),
        (lambda: TaskSet(("x",), Platform(2)), "'x' is no task; make it with rtxg.Task"),
        (lambda: rtxg.analyze("x"), "'x' is no task set; make it with rtxg.TaskSet or rtxg.load"),
        (lambda: rtxg.analyze(SET, overheads="x"), "overheads is 'x'; use Overheads"),
        (lambda: rtxg.analyze(SET, interrupts="x"), "interrupts is 'x'; use one of none, slih"),
        # The task of cluster 0.5 was in no cluster, and the set schedulable without it.
        (lambda: Task("a", 99, 10, cluster=0.5), "task a: cluster is 0.5; it must be a whole number"),
        (lambda: Task("a", 1, 10, cluster="0"), "task a: cluster is '0'; it must be a whole number"),
        (lambda: Task("a", 1, 10, cluster=True), "task a: cluster is True; it must be a whole"),
        (lambda: Task("a", 1, 10, priority=100), "task a: priority is 100; it must be from 1 to 99"),
        (lambda: Task("a", 1, 10, priority=-1), "task a: priority is -1; it must be from 1 to 99"),
        (lambda: Task("a", 1, 10, offset=-5), "task a: offset is -5; it must not be negative"),
        (lambda: rtxg.Overheads(th=math.nan), "overhead th is nan; it must be an int or a Fraction"),
        (lambda: rtxg.Overheads(th=1.5), "overhead th is 1.5; it must be an int or a Fraction"),
        (lambda: rtxg.Overheads(bh="5us"), "overhead bh is '5us'; it must be an int or a Fraction"),
        (lambda: waits(lambda *_: 1), "the lock's function gives 1; it must give b_i of every task"),
        (lambda: waits(lambda *_: {"g": -1}), "gives g the wait -1; it must be a number from 0"),
        (lambda: waits(lambda *_: {"g": math.nan}), "gives g the wait nan; it must be a number"),
        (lambda: waits(lambda *_: {"g": "1"}), "gives g the wait '1'; it must be a number"),
        # Preemption was analysed instead.
        (lambda: waits(dict, "P-FP"), "P-FP takes no function as its lock; use one of fmlp+, mpcp"),
        (lambda: waits("mcpc", "P-FP"), "lock bound 'mcpc' is unknown; use one of oblivious"),
    ],
)
def test_from_python_the_value_is_named(call: Callable[[], object], message: str) -> None:
    """These were errors of a line inside of the package, or were found out much later."""
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


def test_a_unit_of_nothing_is_refused() -> None:
    taskset = TaskSet((Task.of("a", 1, 2),), Platform(1))
    for work in (
        lambda: export.to_schedcat(taskset, "0us"),
        lambda: export.from_schedcat("<taskset/>", Platform(1), 0),
    ):
        with pytest.raises(ValueError, match=r"the unit is .*; it must be above 0"):
            work()
