# SPDX-License-Identifier: MIT
"""Against results of SchedCAT (commit 86211bc, its native tests), kept as numbers in schedcat.json.

``edf``: processors, (cost, period, deadline) of each task, and one digit a test: GFB, BAK, BCL,
BCL-iterative, response times, BAR, LA.  ``edf_beyond_bcl``: sets of which only the last three say yes.
``locks``: (period, response, CPU, rank, requests, section) of each task, then remote and local blocking
under the FMLP+ and the MPCP (null: no bound).  ``omlp``: processors, GPUs, tasks, blocking.

SchedCAT counts time in whole units, so that rounding down helps it; rtxg gives the same verdict in any
unit.  So where a test rounds, rtxg says yes to no more sets, and to a hundredth fewer.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rtxg import hard
from rtxg.blocking import Sharer, Waits, fmlp_plus, mpcp, omlp_k_exclusion

KEPT = json.loads((Path(__file__).parent / "schedcat.json").read_text(encoding="utf-8"))
TESTS = ("GFB", "BAK", "BCL", "BCL-iterative", "response times", "BAR")


@pytest.mark.parametrize("name", TESTS)
def test_hard_tests_agree(name):
    equal = differ = 0
    for m, tasks, digits in KEPT["edf"]:
        mine = hard.GLOBAL_EDF_TESTS[name](*zip(*tasks, strict=True), m)
        theirs = digits[TESTS.index(name)] == "1"
        equal += mine == theirs
        differ += mine != theirs
        if name in ("GFB", "BAK", "BCL"):
            assert mine == theirs, tasks
        elif name == "BAR":  # SchedCAT gives up after a second
            assert mine or not theirs, tasks
        else:
            assert theirs or not mine, tasks
    assert equal > 100 and differ <= len(KEPT["edf"]) // 8


def test_what_only_its_sharper_tests_prove_is_proven():
    """Response times and BAR, which earlier tests of rtxg fell short of."""
    assert len(KEPT["edf_beyond_bcl"]) == 69
    for m, tasks, digits in KEPT["edf_beyond_bcl"]:
        columns = list(zip(*tasks, strict=True))
        assert digits[:4] == "0000"
        assert not any(hard.GLOBAL_EDF_TESTS[name](*columns, m) for name in TESTS[:4])
        assert any(hard.GLOBAL_EDF_TESTS[name](*columns, m) for name in TESTS[4:]), tasks


def test_partitioned_locks_agree():
    converged = 0
    for tasks, fifo, ceiling in KEPT["locks"]:
        sharers = [
            Sharer(cpu, rank, period, response, requests, section if requests else 0)
            for period, response, cpu, rank, requests, section in tasks
        ]
        assert fmlp_plus(sharers) == [Waits(*waits) for waits in fifo]
        found = mpcp(sharers)
        assert found == (None if ceiling is None else [Waits(*waits) for waits in ceiling])
        converged += found is not None
    assert converged > 40


def test_k_exclusion_agrees():
    """A job donates before it asks itself, so that its own section does not delay what it donates for:
    there rtxg is lower by that section at most."""
    equal = 0
    for cpus, gpus, tasks, theirs in KEPT["omlp"]:
        for i, (*_, requests, section) in enumerate(tasks):
            others = [task[5] for j, task in enumerate(tasks) if j != i and task[4]]
            mine = omlp_k_exclusion(others, cpus, gpus, requests=requests)
            assert theirs[i] - (section if requests else 0) <= mine <= theirs[i]
            equal += mine == theirs[i]
    assert equal > 100
