# SPDX-License-Identifier: MIT
"""The case `figure9` of tests/gpu without a GPU: its rounds, with a daemon and programs that only
say how long they took."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("RTXG_BUILD", ROOT / "build" / "release"))
sys.path.insert(0, str(ROOT / "tests" / "gpu"))

from cases import figures  # noqa: E402
from harness import Setup  # noqa: E402

#: notes how early permits come from now on
TOOL = """#!/bin/bash
echo "${{@: -1}}" >{told}
exec {rtxg} "$@"
"""
#: prints the seconds of its jobs: fewer with early permits than with the gate alone
LOAD = """#!{python}
import signal, sys
kind = " ".join(sys.argv[5:])
for line in sys.stdin:
    print("ready", flush=True)
    sys.stdin.readline()
    if kind == "{fails}":
        {how}
    early = open("{told}").read().strip()
    gated = {{"0": 0.012, "500us": 0.011, "700us": 0.0105}}[early]
    print({{"vanilla": 0.010, "rtx": gated}}.get(kind, 0.015), flush=True)
"""


def set_up(tmp_path: Path, fails: str = "none", how: str = "pass") -> Setup:
    """Everything that the case asks for; the programs of one kind fail."""
    for name, folder in (("rtxg", "cli"), ("rtxgd", "daemon")):
        if not (BUILD / folder / name).exists():
            pytest.skip(f"{BUILD / folder / name} is not built: run make")
    told = tmp_path / "told"
    texts = {
        "rtxg": TOOL.format(told=told, rtxg=BUILD / "cli" / "rtxg"),
        "load": LOAD.format(told=told, python=sys.executable, fails=fails, how=how),
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    setup = Setup(bin=tmp_path, out=tmp_path, work=tmp_path, turns={1000: 1}, quick=True)
    setup.current = "figure9"
    return setup


def test_each_round_has_each_kind(tmp_path, monkeypatch):
    """Early permits are asked for before the jobs that are to have them, and not before others."""
    monkeypatch.setattr(figures, "COUNTS", (1, 2))
    setup = set_up(tmp_path)
    figures.case_figure9(setup)
    lines = json.loads((tmp_path / "results.json").read_text())
    assert [x["rtxg"] for x in lines] == [1.1, 1.1]
    assert [x["met"] for x in lines] == [False, False]
    assert all(x["detail"]["without_ahead"] == 1.2 for x in lines)
    assert all(x["detail"]["early_alone"] == 1.1 for x in lines)
    assert all(x["detail"]["earliest"] == 1.05 for x in lines)


def test_programs_that_die_end_the_case(tmp_path):
    """The daemon is gone then, and so are the other programs."""
    setup = set_up(tmp_path, "vanilla", "sys.exit(3)")
    with pytest.raises(RuntimeError, match="has ended: status 3"):
        figures.case_figure9(setup)
    assert not setup.results


def test_programs_that_do_not_answer_end_the_case(tmp_path, monkeypatch):
    """A permit that does not come would else keep the machine for good."""
    monkeypatch.setattr(figures, "ANSWER_SECONDS", 3)
    setup = set_up(tmp_path, "vanilla", "signal.pause()")
    with pytest.raises(RuntimeError, match="has not answered in 3 s"):
        figures.case_figure9(setup)
    assert not setup.results
