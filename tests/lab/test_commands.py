# SPDX-License-Identifier: MIT
"""The command line: verdicts as exit statuses, tables, JSON, errors on stderr."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rtxg.commands import ProgressLines, analyze, campaign, measure, simulate

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "lab" / "examples"

TIGHT = """
[platform]
cpus = 2
gpus = 1
interrupts = "slih"
[overheads]
bh = "3ms"
[[task]]
name = "a"
run = "1ms"
period = "20ms"
gpu = { calls = 1, time = "2ms" }
[[task]]
name = "b"
run = "8ms"
period = "20ms"
gpu = { calls = 1, time = "2ms" }
"""


@pytest.fixture
def tight(tmp_path):
    path = tmp_path / "tight.toml"
    path.write_text(TIGHT)
    return str(path)


def command(module, *arguments):
    """Run a command as its own process."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "lab")}
    return subprocess.run(
        [sys.executable, "-m", f"rtxg.commands.{module}", *arguments],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )


def test_schedulable_is_0_and_not_is_2(tight, capsys):
    assert analyze.main([tight, "--interrupts", "klmirqd"]) == 0
    out = capsys.readouterr().out
    assert "schedulable" in out
    assert "bounded" in out or "on time" in out
    assert analyze.main([tight]) == 2
    out = capsys.readouterr().out
    assert "not schedulable" in out
    assert "would do: " in out
    assert "klmirqd" not in out  # nothing that no kernel here does is advised


def test_what_no_kernel_does_is_called_a_model(tight, capsys):
    assert analyze.main([tight, "--interrupts", "klmirqd"]) == 0
    assert "note: interrupts = klmirqd is a model" in capsys.readouterr().out
    assert analyze.main([tight, "--interrupts", "none"]) == 0
    assert "is a model" not in capsys.readouterr().out


def test_an_interrupt_that_does_not_exist_is_refused():
    result = command("measure", "--irq", "nosuchirq", "--seconds", "0.1")
    assert result.returncode == 1
    assert "--irq nosuchirq: no interrupt in /proc/interrupts" in result.stderr


def test_json_agrees_with_the_exit_status(tight, capsys):
    for interrupts, status in (("klmirqd", 0), ("slih", 2)):
        assert analyze.main([tight, "--json", "--interrupts", interrupts, "--speedup", "16"]) == status
        found = json.loads(capsys.readouterr().out)
        assert found["schedulable"] == (status == 0)
        assert [t["name"] for t in found["tasks"]] == ["a", "b"]
        for one in found["tasks"]:
            assert sum(term["value"] for term in one["terms"]) == pytest.approx(one["inflated"])
        assert found["effective_utilization"] == pytest.approx((1 + 16 * 2 + 8 + 16 * 2) / 20)


def test_hard_asks_for_more(tmp_path, capsys):
    path = tmp_path / "soft.toml"
    path.write_text("[platform]\ncpus = 2\n[[task]]\nrun = 2000\nperiod = 3000\ninstance = 3\n")
    assert analyze.main([str(path)]) == 0
    assert analyze.main([str(path), "--hard"]) == 2
    assert "not shown to meet every deadline" in capsys.readouterr().out


def test_explain_shows_every_term(tight, tmp_path, capsys):
    picture = tmp_path / "waterfall.svg"
    assert analyze.main([tight, "--explain", "a", "--interrupts", "klmirqd", "--picture", str(picture)]) == 0
    out = capsys.readouterr().out
    for symbol in ("e_i", "s_i", "b_i", "inflated"):
        assert symbol in out
    assert picture.read_text().startswith("<?xml")
    assert analyze.main([tight, "--explain", "nobody"]) == 1
    assert "tasks are a, b" in capsys.readouterr().err


def test_json_explains_one_task(tight, capsys):
    assert analyze.main([tight, "--json", "--explain", "a", "--interrupts", "klmirqd"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["tasks"]
    assert found["name"] == "a"
    assert [t["symbol"] for t in found["terms"]][:2] == ["e_i", "s_i"]


def test_long_work_says_how_far_it_is(capsys):
    progress = ProgressLines("rtxg analyze", every=0.0)
    progress("cluster 0: round 1")
    assert "rtxg analyze: 0 s: cluster 0: round 1" in capsys.readouterr().err


def test_a_simulation_says_how_far_it_is(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(ProgressLines.__init__, "__defaults__", (0.0,))
    path = tmp_path / "two.toml"
    path.write_text(
        "[platform]\ncpus = 2\nclusters = 2\n"
        "[[task]]\nrun = 200\nperiod = 1000\ncluster = 0\n"
        "[[task]]\nrun = 200\nperiod = 1000\ncluster = 1\n"
    )
    assert simulate.main([str(path), "--length", "2s"]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "of virtual time" in line]
    assert said
    assert said[0].startswith("rtxg simulate: 0 s: cluster 0 of 2: ")
    assert " of 2s of virtual time, " in said[0]
    assert any("cluster 1 of 2" in line for line in said)


def test_a_measurement_and_a_run_say_how_far_they_are(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(ProgressLines.__init__, "__defaults__", (0.0,))
    assert measure.main(["--no-tracepoints", "--seconds", "0.1"]) == 0
    assert "s: a busy loop is watched for 0.1 s" in capsys.readouterr().err
    path = tmp_path / "one.toml"
    path.write_text("[platform]\ncpus = 1\n[[task]]\nrun = 500\nperiod = 50000\n")
    out = tmp_path / "run.json"
    status = measure.main(
        ["--run", str(path), "--policy", "other", "--seconds", "2.2", "--out", str(out)]
    )
    assert status in (0, 2)  # nothing is promised under this policy
    said = capsys.readouterr().err
    assert "1 of 2.2 s run under other" in said
    assert json.loads(out.read_text())["policy"] == "other"


def test_a_campaign_in_a_pipe_says_how_far_it_is(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(ProgressLines.__init__, "__defaults__", (0.0,))
    words = [
        "--figure",
        "6",
        "--sets",
        "20",
        "--step",
        "6",
        "--format",
        "svg",
        "--out",
        str(tmp_path),
    ]
    assert campaign.main(words) == 0
    said = capsys.readouterr().err
    assert (
        said.startswith("rtxg campaign: ") and "1 of 2 chunks" in said and "2 of 2 chunks" in said
    ), said


@pytest.mark.parametrize(
    ("module", "words", "message"),
    [
        ("simulate", ["--length", "0"], "--length is 0; it must be above 0"),
        ("simulate", ["--length", "x"], "--length: 'x' is not a time"),
        ("simulate", ["--seed", "-1"], "--seed is -1; it must be 0 or more"),
        ("simulate", ["--sporadic", "nan"], "--sporadic is nan; it must be from 0 to 1000 periods"),
        ("simulate", ["--sporadic", "inf"], "--sporadic is inf; it must be from 0 to 1000 periods"),
        ("simulate", ["--execution", "nan"], "--execution is nan; it must be above 0"),
        ("simulate", ["--picture-length", "0"], "--picture-length is 0; it must be above 0"),
        ("simulate", ["--experiment", "cost"], "--experiment cost: one of them"),
        (
            "measure",
            ["--no-tracepoints", "--seconds", "0.1", "--out", "/nonexistent/x.json"],
            "--out /nonexistent/x.json",
        ),
        (
            "measure",
            ["--no-tracepoints", "--seconds", "0.1", "--out", "/tmp"],
            "--out /tmp: no file can be written there",
        ),
        ("measure", ["--policy", "fifo"], "--policy and --force go with --run"),
        ("measure", ["--inversions", "--no-tracepoints"], "leave out --no-tracepoints"),
        (
            "measure",
            ["--run", "{tight}", "--no-tracepoints"],
            "--no-tracepoints does not go with --run",
        ),
    ],
)
def test_an_option_that_makes_no_sense_is_answered(module, words, message, tight, capsys):
    command = {"simulate": simulate, "measure": measure}[module]
    words = [word.replace("{tight}", tight) for word in words]
    with pytest.raises(SystemExit) as ended:
        command.main([tight, *words] if module == "simulate" else words)
    assert ended.value.code == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["--json"], ["--length", "1s"], ["--picture", "x.png"], ["--seed", "3"]]
)
def test_options_that_an_experiment_cannot_heed_are_refused(words, capsys):
    with pytest.raises(SystemExit):
        simulate.main(["--experiment", "cost", *words])
    assert f"--experiment cost takes no {words[0]}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["--hard"],
        ["--overheads", "none"],
        ["--explain", "a"],
        ["--interrupts", "slih"],
        ["--lock", "aware"],
        ["--suspensions", "best"],
        ["--speedup", "2"],
        ["--no-advice"],
    ],
)
def test_options_that_a_latency_cannot_heed_are_refused(words, capsys):
    """They were dropped without a word."""
    with pytest.raises(SystemExit) as ended:
        analyze.main(["--latency", "5ms", *words])
    assert ended.value.code == 1
    assert f"{words[0]} does not go with --latency" in capsys.readouterr().err


@pytest.mark.parametrize("module", [analyze, simulate])
@pytest.mark.parametrize(
    ("name", "message"),
    [("x.xyz", "pictures have one of the suffixes .*png"), ("nowhere/x.png", "there is no folder")],
)
def test_a_picture_that_cannot_be_written_is_refused_before_the_work(
    module, name, message, tight, tmp_path, monkeypatch
):
    monkeypatch.setattr(
        module,
        "analyze" if module is analyze else "simulate",
        lambda *_, **__: pytest.fail("it worked"),
    )
    words = ["--explain", "a"] if module is analyze else []
    with pytest.raises(ValueError, match=message):
        module.main([tight, *words, "--picture", str(tmp_path / name)])


def test_three_thousand_tasks_get_an_answer(tmp_path, capsys):
    path = tmp_path / "many.toml"
    lines = ["[platform]", "cpus = 300", "gpus = 100"]
    for i in range(3000):
        lines += ["[[task]]", f'name = "t{i}"', f"run = {900 + i % 700}", f"period = {20_000 + 13 * i}"]
    path.write_text("\n".join(lines))
    assert analyze.main([str(path), "--hard", "--no-advice"]) == 0
    assert "every deadline met" in capsys.readouterr().out


def test_measured_overheads_are_read(tight, tmp_path, capsys):
    measured = tmp_path / "measured.json"
    measured.write_text(json.dumps({"overheads": {"bh": 1, "th": "2us"}}))
    assert analyze.main([tight, "--json", "--overheads", str(measured)]) == 0
    assert json.loads(capsys.readouterr().out)["overheads"]["bh"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["/nonexistent.toml"], "No such file"),
        (["{tight}", "--interrupts", "magic"], "magic"),
        (["{tight}", "--picture", "x.png"], "--explain"),
        (["{tight}", "--speedup", "0"], "--speedup is 0"),
        ([], "file"),
        (["{tight}", "--overheads", "{tight}"], "tight.toml:2: is not JSON; use none, table-iii, or a file"),
        (["{tight}", "--overheads", "/etc"], "/etc: Is a directory"),
        (["{tight}", "--overheads", "nothing"], "--overheads nothing: no such set and no such file"),
    ],
)
def test_wrong_usage_is_1_with_one_message(arguments, message, tight):
    result = command("analyze", *(a.replace("{tight}", tight) for a in arguments))
    assert result.returncode == 1
    assert message in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "is nested too deeply; use none, table-iii, or a file"),
        (f'{{"th": {"9" * 5000}}}', "is not JSON; use none, table-iii, or a file"),
        ("\x80", "is not JSON"),
        ("[]", "has no overheads"),
        ('{"thh": 1}', "unknown overhead 'thh'"),
    ],
)
def test_measured_overheads_that_are_none_are_answered(text, message, tight, tmp_path):
    path = tmp_path / "here.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=f"^{path}: {message}"):
        analyze.main([tight, "--overheads", str(path)])


#: Runs a command as if only the packages were installed that `pip install .` brings.
PLAIN = """
import importlib.machinery, sys

class Without(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        gone = {"cffi", "_cffi_backend", "dask", "distributed", "pandas", "setuptools"}
        return None if name.partition(".")[0] in gone else super().find_spec(name, path, target)

sys.meta_path[:] = [Without if f is importlib.machinery.PathFinder else f for f in sys.meta_path]
from importlib import import_module
module = import_module("rtxg.commands." + sys.argv.pop(1))
module.entry()
"""


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (
            ["analyze", "example:perception", "--hard", "--interrupts", "slih"],
            0,
            "every deadline met",
        ),
        (
            ["analyze", "--latency", "5ms"],
            1,
            "rtxg analyze: simulation needs the Python package cffi: pip install",
        ),
        (
            ["simulate", "example:two-cpus"],
            1,
            "rtxg simulate: simulation needs the Python package cffi: pip install",
        ),
        (
            ["campaign", "--figure", "6", "--sets", "9", "--step", "6", "--out", "o"],
            0,
            "graphs in o",
        ),
        (
            [
                "campaign",
                "--figure",
                "6",
                "--sets",
                "9",
                "--step",
                "6",
                "--workers",
                "2",
                "--out",
                "p",
            ],
            1,
            "pip install 'rtxg[cluster]'",
        ),
        (["measure", "--no-tracepoints", "--seconds", "0.1"], 0, "overheads of this machine"),
        *(
            (["--help", module][::-1], 0, "usage: rtxg")
            for module in ("analyze", "campaign", "measure", "simulate")
        ),
    ],
    ids=lambda value: "-".join(value[:2]) if isinstance(value, list) else "",
)
def test_what_a_plain_installation_can_do(words, status, message, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "lab")}
    done = subprocess.run(
        [sys.executable, "-c", PLAIN, *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert message in done.stdout + done.stderr, done.stderr
    assert done.returncode == status
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("module", ["analyze", "campaign", "measure", "simulate"])
def test_help_for_a_stranger(module):
    result = command(module, "--help")
    assert result.returncode == 0
    assert "example" in result.stdout
    assert f"usage: rtxg {module}" in result.stdout


def test_examples_give_verdicts(capsys):
    for interrupts in ("slih", "klmirqd"):
        assert analyze.main([str(EXAMPLES / "perception.toml"), "--hard", "--interrupts", interrupts]) == 0
        assert "every deadline met" in capsys.readouterr().out
    assert analyze.main([str(EXAMPLES / "shared-gpu.toml"), "--hard"]) == 0
    capsys.readouterr()


def test_campaign_writes_graphs_and_resumes(tmp_path, capsys):
    arguments = ["--figure", "6", "--sets", "20", "--step", "3", "--out", str(tmp_path / "out")]
    assert campaign.main(arguments) == 0
    assert (tmp_path / "out" / "figure-6.png").stat().st_size > 1000
    assert "task sets/s" in capsys.readouterr().out
    assert campaign.main(arguments) == 0
    assert "task sets/s" not in capsys.readouterr().out  # nothing was left to do


def test_a_bound_on_latency_is_judged_as_the_daemon_does(capsys):
    """The exit status says yes or no, and the best that is named is kept."""
    assert analyze.main(["--latency", "5ms", "--beside", "3", "--json"]) == 0
    kept = json.loads(capsys.readouterr().out)
    assert kept["kept"] and 0 < kept["bound"] <= 5000 and kept["mechanism"] in ("slices", "arrival")
    assert analyze.main(["--latency", "100us", "--beside", "3", "--json"]) == 2
    refused = json.loads(capsys.readouterr().out)
    assert not refused["kept"] and refused["bound"] is None and refused["best"] > 100
    assert analyze.main(["--latency", f"{refused['best']}us", "--beside", "3"]) == 0
    assert "by turns" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["--latency", "5 weeks"],
        ["--latency", "0"],
        ["--latency", "11s"],
        ["--latency", "5ms", "--beside", "0"],
        ["--beside", "2"],
        [],
        ["file", "--latency", "5ms"],
    ],
)
def test_a_question_about_a_bound_that_makes_no_sense_is_1(words, capsys):
    with pytest.raises(SystemExit) as ended:
        analyze.main(words)
    assert ended.value.code == 1
    assert "rtxg analyze" in capsys.readouterr().err
