# SPDX-License-Identifier: MIT
"""The case `stopped` of tests/gpu without a GPU: a program that only says how long its jobs took is
stopped and continued, and the other one is asked how long its own took."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("RTXG_BUILD", ROOT / "build" / "release"))
sys.path.insert(0, str(ROOT / "tests" / "gpu"))

from cases import stopped  # noqa: E402
from harness import Setup  # noqa: E402

#: Prints the seconds of its jobs. Each second time one of the pair is stopped: the jobs end when
#: one has been let go on.
LOAD = """#!{python}
import signal, sys, time
from pathlib import Path
way, continued = sys.argv[-1], Path("{work}/continued-" + sys.argv[-1])
signal.signal(signal.SIGCONT, lambda *_: continued.touch())
for round, line in enumerate(sys.stdin):
    print("ready", flush=True)
    if not sys.stdin.readline():
        break
    if round % 2 == 0:
        print(0.1, flush=True)
        continue
    {how}
    while not continued.exists():
        time.sleep(0.01)
    print({{"wait": 0.2, "fence": 0.1, "notify": 0.12}}[way], flush=True)
"""


def set_up(tmp_path: Path, how: str = "pass") -> Setup:
    """Everything that the case asks for; beside a stopped one the programs do that."""
    for name, folder in (("rtxg", "cli"), ("rtxgd", "daemon")):
        if not (BUILD / folder / name).exists():
            pytest.skip(f"{BUILD / folder / name} is not built: run make")
        (tmp_path / name).symlink_to(BUILD / folder / name)
    load = tmp_path / "load"
    load.write_text(LOAD.format(python=sys.executable, work=tmp_path, how=how))
    load.chmod(0o755)
    setup = Setup(bin=tmp_path, out=tmp_path, work=tmp_path, turns={1000: 1}, quick=True)
    setup.current = "stopped"
    return setup


def test_one_is_stopped_and_the_other_is_timed(tmp_path):
    """Without a stop 100 ms: twice as long has no aim, and a fifth more is no success."""
    setup = set_up(tmp_path)
    stopped.case_stopped(setup)
    lines = json.loads((tmp_path / "results.json").read_text())
    assert [(x["rtxg"], x["aim"], x["met"]) for x in lines] == [
        (2.0, "-", None),
        (1.0, "1.1", True),
        (1.2, "1.1", False),
    ]
    assert all(x["detail"]["stops"] > 0 for x in lines)


def test_one_that_dies_ends_the_case(tmp_path):
    """The daemon, the other program and the thread that stops are gone then."""
    setup = set_up(tmp_path, "sys.exit(3)")
    with pytest.raises(RuntimeError, match="has ended: status 3"):
        stopped.case_stopped(setup)
    assert not setup.results


def test_a_stop_ends_with_the_program_running(tmp_path):
    """However the measurement ends, no program is left stopped: its end would be waited for in vain."""
    setup = set_up(tmp_path, "sys.exit(3)")
    pair = [
        stopped.Tasks([str(setup.bin / "load"), way], 1, dict(os.environ))
        for way in ("wait", "fence")
    ]
    try:
        stopped.ms_of_second(pair, None)
        with pytest.raises(RuntimeError, match="has ended: status 3"):
            stopped.ms_of_second(pair, stopped.random.Random(1))
        assert all(t.children[0].wait(60) == 3 for t in pair)
    finally:
        for task in pair:
            task.end()
