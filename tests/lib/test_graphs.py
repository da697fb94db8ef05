# SPDX-License-Identifier: MIT
"""bench/gpu/graphs and bench/gpu/waits on a CUDA and a driver that are not there: what they do on a
card runs to its end, and a refusal is told with the call and the driver's status.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("RTXG_BUILD", ROOT / "build/release")).resolve()
PROGRAMS = BUILD / "tests/lib/graphs"

pytestmark = pytest.mark.skipif(
    not (PROGRAMS / "graphs_on_fakes").exists(), reason="the build has no cmocka"
)


def run(program: str, *options: str, refuses: str = "") -> tuple[int, list[dict[str, Any]]]:
    """The exit status and the lines of a program."""
    environment = os.environ | {"LD_LIBRARY_PATH": str(PROGRAMS)}
    if refuses:
        environment["FAKE_REFUSES"] = refuses
    done = subprocess.run(
        [PROGRAMS / f"{program}_on_fakes", *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=environment,
    )
    assert not done.stderr
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def test_waits_for_graphs_end_behind_their_work() -> None:
    """Each part opens timelines and closes all of them, so that the next needs a new group."""
    status, lines = run("graphs", "--launches", "5")
    assert not status, lines
    waits = [line for line in lines if "waits" in line]
    assert len(waits) == 9
    assert all(not line["early"] and line["waits"] == 5 for line in waits)
    by_part = {line["part"]: line for line in lines}
    assert by_part["captured"] == {"part": "captured", "refused": [-16, -16], "ran": True}
    assert by_part["constant"]["there_before"] == 4
    assert not by_part["beside"]["broken"]
    assert by_part["beside"]["timelines"] >= by_part["beside"]["captures"] == 5


def test_a_program_without_rtxg_launches_graphs() -> None:
    """The waits that librtxg-cuda.so would turn."""
    status, lines = run("graphs", "--plain", "--launches", "5")
    assert not status
    assert [line["part"] for line in lines] == ["plain"]
    assert not lines[0]["early"]


def test_what_is_refused_is_named() -> None:
    """14 calls open the GPU, two give it a word, and the next opens a second group of channels."""
    status, lines = run("graphs", "--launches", "5", refuses="17:0x40")
    assert status == 1
    assert "rtx_nvrm_timeline" in lines[-1]["error"]
    assert "opening a group of channels" in lines[-1]["error"]
    assert "status 0x40, INVALID_STATE, to its call 0xa06c" in lines[-1]["error"]


def test_words_that_the_gpu_cannot_have_are_refused() -> None:
    """And the last one is not."""
    status, lines = run("waits", "--words")
    assert not status
    assert [line["ret"] for line in lines] == [-14] * 5 + [-22, 0]
    assert all(line["ret"] == line["expected"] for line in lines)


def test_ways_to_wait_are_measured() -> None:
    """Of each way and length of kernel a line, and the channel opened at five moments."""
    status, lines = run("waits", "--runs", "10", "--rounds", "1", "--init", "5", "--only", "NOTIFY")
    assert not status
    waits = [line for line in lines if "way" in line]
    assert len(waits) == 4 * 3
    assert all(line["runs"] == 10 for line in waits)
    assert [line["when"] for line in lines if "init" in line] == [
        "before CUDA",
        "with CUDA",
        "with contexts",
        "beside another handle",
        "after all kernels",
    ]
