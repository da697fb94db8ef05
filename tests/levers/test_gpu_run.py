# SPDX-License-Identifier: MIT
"""tests/gpu without a GPU: the command line, its refusals and its exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "gpu"))

import harness  # noqa: E402
import run  # noqa: E402
from cases import CASES, latency, mix  # noqa: E402

without_gpu = pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there is a GPU here")


def command(*words: str, case: str = "") -> subprocess.CompletedProcess[str]:
    """tests/gpu/run, as make gpu starts it."""
    env = {**os.environ, "CASE": case}
    return subprocess.run(
        [ROOT / "tests" / "gpu" / "run", *words],
        env=env,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_list_names_every_case_with_what_it_does() -> None:
    """The list needs no GPU."""
    done = command("--list")
    assert done.returncode == 0
    lines = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
    assert [name for name, _ in lines] == list(CASES)
    assert len(lines) == 44
    assert all(len(what) > 10 for _, what in lines)


def test_a_case_that_does_not_exist_is_refused_with_those_that_do() -> None:
    """By its name, in the environment as by option."""
    for done in (command(case="latency,nope"), command("--case", "latency,nope")):
        assert done.returncode == run.USAGE
        assert "no case 'nope': one of latency, period" in done.stderr
    assert command("--cass").returncode == run.USAGE


def test_the_length_of_long_cases_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As `make gpu CASE=admitted SOAK=540` says it."""
    seen: list[float] = []
    monkeypatch.setattr(run, "identify", lambda: "FAKE-1-today")
    monkeypatch.setattr(run, "run_cases", lambda setup, *_: seen.append(setup.soak_s) or 0)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(sys, "argv", ["run.py", "--out", str(tmp_path)])
    monkeypatch.setenv("SOAK", "540")
    run.main()
    monkeypatch.delenv("SOAK")
    run.main()
    monkeypatch.setenv("SOAK", "long")
    with pytest.raises(SystemExit) as refused:
        run.main()
    assert refused.value.code == run.USAGE
    assert seen == [540, 300]


@without_gpu
def test_without_a_gpu_it_is_skipped_with_the_reason() -> None:
    """Also for one case."""
    for case in ("", "latency"):
        done = command(case=case)
        assert done.returncode == harness.SKIPPED
        assert done.stdout.startswith("skipped: no NVIDIA GPU here (no /dev/nvidiactl")


Start = Callable[..., tuple[int, str, list[dict[str, Any]]]]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Start:
    """Runs the command line with other cases, on a GPU that is not there: status, output, results."""
    monkeypatch.setattr(run, "identify", lambda: "FAKE-1-today")
    monkeypatch.setattr(run, "calibrate", lambda _: None)
    monkeypatch.setattr(run, "allow_real_time", lambda: None)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.delenv("CASE", raising=False)

    def started(
        cases: dict[str, Callable[[harness.Setup], None]], *words: str, xids: int = 0
    ) -> tuple[int, str, list[dict[str, Any]]]:
        found: list[list[str]] = [[], ["NVRM: Xid 79"] * xids]
        monkeypatch.setattr(run, "xids", lambda: found.pop(0))
        monkeypatch.setattr(run, "CASES", cases)
        monkeypatch.setattr(sys, "argv", ["run.py", "--out", str(tmp_path), *words])
        status = run.main()
        results = json.loads((tmp_path / "FAKE-1-today.json").read_text(encoding="ascii"))
        return status, capsys.readouterr().out, results

    return started


def good(setup: harness.Setup) -> None:
    """An aim that is met."""
    setup.record("good", "us", 10, 1, "2", True)


def missed(setup: harness.Setup) -> None:
    """An aim that is not met."""
    setup.record("late", "us", 10, 421.3, "350", False)


def broken(setup: harness.Setup) -> None:
    """A case that does not come to its end."""
    raise RuntimeError("a load has failed")


def untried(setup: harness.Setup) -> None:
    """An aim that cannot be tried here, and a line without one."""
    setup.record("two GPUs", "points", None, None, "1", None, skipped="there is one GPU here")
    setup.record("only told", "us", 5, None, "-", None)


def test_all_aims_met_is_status_0(start: Start) -> None:
    """A case that cannot be tried is a skip with its reason."""
    status, out, results = start({"good": good, "untried": untried})
    assert status == 0
    assert "ok 1 - good: good: 1 us, aim 2\n" in out
    assert "ok 2 - untried: two GPUs # SKIP there is one GPU here\n" in out
    assert "ok 3 - all: Xids in the kernel log after the whole run: 0 , aim 0\n" in out
    assert out.endswith("0 of 3 aims not met\n")
    assert [x["case"] for x in results][:3] == ["good", "two GPUs", "only told"]


def test_an_aim_that_was_missed_is_named_and_is_status_2(start: Start) -> None:
    """With its value and the aim."""
    status, out, _ = start({"missed": missed, "good": good})
    assert status == run.MISSED == 2
    assert "not ok 1 - missed: late: 421.3 us, aim 350\n" in out
    assert out.endswith("1 of 3 aims not met\n")
    assert start({"good": good}, xids=1)[0] == run.MISSED


def test_a_case_that_fails_is_status_1_and_takes_no_other_with_it(start: Start) -> None:
    """The failure is a line of the results as well."""
    status, out, results = start({"broken": broken, "missed": missed, "good": good})
    assert status == run.FAILED == 1
    assert "not ok 1 - broken: broken: RuntimeError: a load has failed\n" in out
    assert "ok 3 - good: good" in out
    assert [x["met"] for x in results] == [False, False, True, True]
    assert results[0]["detail"] == {"error": "RuntimeError: a load has failed"}


def test_a_part_leaves_the_other_cases_lines(start: Start) -> None:
    """And its verdict is about the part alone."""
    cases = {"missed": missed, "good": good}
    assert start(cases)[0] == run.MISSED
    status, out, results = start(cases, "--case", "good")
    assert status == 0
    assert "late" not in out
    assert [x["command"] for x in results] == [
        "make gpu CASE=missed",
        "make gpu CASE=good",
        "make gpu CASE=all",
    ]


class Nothing:
    """Loads and a governor that do nothing."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def __enter__(self) -> Nothing:
        return self

    def __exit__(self, *_: object) -> None: ...

    def __getattr__(self, _: str) -> Callable[..., dict[str, Any]]:
        return lambda *_, **__: {"suspends": 3, "vgpus": []}


def test_the_lines_about_latency(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Seven, each with its aim; the periodic ones are held against what the program has alone."""
    p99 = iter([100.0, 110.0, 7000.0, 360.0, 143.0, 144.0])
    rate = iter([1000.0, 900.0, 990.0, 860.0, 970.0, 854.0, 500.0, 800.0])
    for name in ("Loads", "Governor"):
        monkeypatch.setattr(latency, name, Nothing)
    monkeypatch.setattr(latency, "critical", lambda *_, **__: ({"p99": next(p99)}, 0, 1))
    monkeypatch.setattr(latency, "three_hogs", lambda *_: [])
    monkeypatch.setattr(latency, "rates", lambda *_: next(rate))
    monkeypatch.setattr(latency.time, "sleep", lambda _: None)
    setup = harness.Setup(tmp_path, tmp_path, tmp_path, current="latency")
    latency.case_latency(setup)
    lines = [(x["case"], x["stock"], x["rtxg"], x["aim"], x["met"]) for x in setup.results]
    assert lines == [
        ("100 us kernel every 10 ms alone: p99", 100, None, "-", None),
        ("sporadic 100 us kernel beside 3 x 20 ms: p99", 7000, 360, "350", False),
        ("periodic 100 us kernel beside 3 x 20 ms: p99", 7000, 143, "143.0 (1.3 of alone)", True),
        ("the same with librtxg-cuda.so in the program: p99", 7000, 144, "143.0 (1.3 of alone)", False),
        ("best-effort throughput beside a sporadic critical task", 100, 95.556, "95", True),
        ("best-effort throughput beside a periodic critical task", 100, 94.889, "95", False),
        ("best-effort throughput, no critical task", 100, 98.0, "98", True),
    ]
    assert setup.results[3]["detail"]["throughput_percent_of_stock"] == 88.889
    assert setup.results[-1]["detail"]["stats"] == {"suspends": 3}


class OneBuild(Nothing):
    """A product that says which build is started."""

    started: list[str]
    medians: Iterator[float] = iter(())

    def use(self, build: Path) -> None:
        OneBuild.build = build.name

    def start(self) -> None:
        OneBuild.started.append(OneBuild.build)

    build = ""


class FourPrograms(Nothing):
    """The programs of the mix, whose rates are always the same."""

    def measure(self, *_: object, **__: object) -> tuple[int, int]:
        OneBuild.started.append("stock" if OneBuild.started else "")
        return 0, 1

    def results(self, *_: object) -> dict[str, float]:
        p50 = next(OneBuild.medians, 2.0)
        return {kind: 1.0 for kind in mix.KINDS} | {"p50": p50, "p99": 4.0}


def test_the_mix_measures_several_builds_in_turns(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On the same running programs, none always first, and names each line by its folder. The chat
    alone is measured in each round, too: its time for a token changes within a run."""
    p50 = {"new": 2.0, "old": 2.6}
    monkeypatch.setattr(mix, "Product", OneBuild)
    monkeypatch.setattr(mix, "Programs", Nothing)
    monkeypatch.setattr(mix, "Mix", FourPrograms)
    monkeypatch.setattr(mix, "promise", lambda _, chat: f"--min {chat}%")
    monkeypatch.setattr(mix, "needed", lambda *_: 30.1)
    monkeypatch.setattr(mix.time, "sleep", lambda _: None)
    monkeypatch.setattr(
        mix,
        "governed",
        lambda *_: {kind: 1.0 for kind in mix.KINDS}
        | {"p50": p50[OneBuild.build], "p99": 4.0, "idle": {"idle_percent": 1.0, "seconds": 8}}
        | {"idle_by_the_core_percent": 0.5, "waited": np.array([[0, 1_500_000], [1, 0]])},
    )
    setup = harness.Setup(tmp_path / "new", tmp_path, tmp_path, current="mix")
    setup.beside = [tmp_path / "old"]
    OneBuild.build, OneBuild.started = "new", []
    # JAX, PyTorch, CuPy, the chat with CPUs that may sleep; then each round the chat, and stock.
    rounds = [2.4, 7.0, 1.6, 7.0, 2.0, 7.0, 2.4, 7.0, 1.6, 7.0]
    OneBuild.medians = iter([9.0, 9.0, 9.0, 9.0, *rounds])
    mix.case_mix(setup)
    assert setup.results[0]["stock"] == 3.5
    # A fifth more than the chat takes alone, in steps of five.
    assert setup.results[0]["detail"]["promise"] == "--min 40%"
    assert [mix.reserved(n) for n in (0, 25, 26, 90)] == [30, 30, 35, 60]
    began = [x for x in OneBuild.started if x and x != "stock"]
    assert began == ["new", "old", "old", "new", "new", "old", "old", "new", "new", "old"]
    lines = {x["case"]: (x["rtxg"], x["met"]) for x in setup.results}
    assert lines["mix, new: the chat's time for a token: p50 over alone"] == (1.0, True)
    assert lines["mix, old: the chat's time for a token: p50 over alone"] == (1.3, False)
    waits = "mix, old: the chat waited for the engine within a request's"
    assert lines[f"{waits} first token: p99"] == (1.5, True)
    assert lines[f"{waits} later tokens: p99"] == (0.0, None)
    assert len(lines) == 14
    # One build alone is not named.
    setup.beside, setup.results = [], []
    OneBuild.build, OneBuild.started = "new", []
    mix.case_mix(setup)
    assert setup.results[0]["case"] == "mix: the chat's time for a token: p50 over alone"


def test_a_folder_without_a_build_is_refused(tmp_path: Path) -> None:
    """Before anything is started, with what ought to be there."""
    done = command("--beside", str(tmp_path), "--case", "mix")
    assert done.returncode == run.USAGE
    assert f"--beside {tmp_path}: there is no rtxgd" in done.stderr
