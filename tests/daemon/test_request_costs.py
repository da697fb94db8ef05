# SPDX-License-Identifier: MIT
"""bench/request_costs.py in its short form: what it says has been asked, and beside what."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import BUILD, ROOT

FLOODS = ["task-set", "lists", "connections", "descriptors", "waiters", "sets"]
#: descriptors of a process; the flood of sets has most
FILES = 13000


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The program."""
    if not (BUILD / "bench/requester").exists():
        pytest.skip(f"{BUILD}/bench/requester is not built")
    command = [sys.executable, ROOT / "bench/request_costs.py", "--quick", *words]
    environment = os.environ | {"RTXG_BENCH_DIR": str(folder), "RTXG_BUILD": str(BUILD)}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=600, check=False
    )


def record(folder: Path, *words: str) -> list[dict[str, Any]]:
    """What it writes."""
    done = run(folder, *words)
    assert done.returncode == 0, done.stderr
    return list(json.loads((folder / "request_costs.json").read_text()))


def test_costs_are_those_of_requests_that_were_answered(tmp_path: Path) -> None:
    """Each is beside its alternative, and nothing costs nothing."""
    entries = record(tmp_path, "--floods", "")
    assert len(entries) == 6
    for one in entries:
        assert one["rtxg"] > 0 and one["alternative"] > 0, one
        assert one["least"] <= one["figure"] <= one["most"], one
        assert one["met"] == (not one["aim"] or one["figure"] <= one["aim"])
    plain, descriptor = (one for one in entries[:4] if one["name"].endswith("round trip"))
    assert plain["requests"] == descriptor["requests"] == 200
    beside = [one["alternative_name"] for one in entries]
    assert beside == ["a bare server"] * 4 + ["a plain request"] * 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become two other users")
@pytest.mark.parametrize("kind", FLOODS)
def test_another_user_is_measured_while_the_flood_goes_on(tmp_path: Path, kind: str) -> None:
    """All of its requests are answered, before and meanwhile, and the flood has had a round."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < FILES:
        pytest.skip(f"a process may have fewer than {FILES} descriptors here")
    longest, ratio = record(tmp_path, "--floods", kind)[6:]
    assert longest["rounds"] >= 1
    for when in ("quiet", "meanwhile"):
        for one in longest[when].values():
            assert one["answers"] == 20
            assert 0 < one["p50_ms"] <= one["p99_ms"] <= one["longest_ms"]
    assert longest["figure"] == longest["meanwhile"]["rtxg"]["longest_ms"]
    assert longest["alternative"] == longest["meanwhile"]["bare"]["longest_ms"]
    assert ratio["figure"] == longest["figure"] / longest["quiet"]["rtxg"]["p99_ms"]


def test_a_flood_that_it_does_not_know_is_refused(tmp_path: Path) -> None:
    """The known ones are named."""
    done = run(tmp_path, "--floods", "task-set,nothing")
    assert done.returncode == 2
    assert '"nothing"' in done.stderr and all(kind in done.stderr for kind in FLOODS)
