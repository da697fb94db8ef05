# SPDX-License-Identifier: MIT
"""The 240 graphs of the klmirqd paper are made anew, and agree with the record of them."""

from __future__ import annotations

import json
import lzma
import subprocess
import sys
from math import sqrt
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RECORD = max((ROOT / "bench" / "results").glob("klmirqd-graphs-*.json.xz"))


def figures(path: Path) -> dict[int, dict]:
    with lzma.open(path) as file:
        return {f["figure"]: f for f in json.load(file)["figures"]}


@pytest.mark.slow
def test_the_graphs_agree_with_their_record(tmp_path):
    """With a hundredth of the task sets: each count within five standard deviations of the recorded share."""
    made = tmp_path / "graphs.json.xz"
    command = [sys.executable, str(ROOT / "bench/lab_graphs.py"), "--sets", "100", "--out", str(tmp_path)]
    command += ["--record", str(made), "--picture", str(tmp_path / "six.png")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    again, recorded = figures(made), figures(RECORD)
    assert len(again) == 240 and again.keys() == recorded.keys()
    compared = 0
    for number, figure in again.items():
        kept = recorded[number]
        where = {x: i for i, x in enumerate(kept["x"])}
        for i, x in enumerate(figure["x"]):
            if x not in where or not figure["tested"][i]:
                continue
            n, whole = figure["tested"][i], kept["tested"][where[x]]
            for mine, theirs in zip(figure["schedulable"][i], kept["schedulable"][where[x]], strict=True):
                for found, expected in zip(mine, theirs, strict=True):
                    p = expected / whole
                    spread = 5 * sqrt(n * p * (1 - p)) + 2
                    assert abs(found - n * p) <= spread, f"figure {number}, {x} CPUs: {found} of {n}, recorded {p:.3f}"
                    compared += 1
    assert compared > 10_000
