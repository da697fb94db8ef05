# SPDX-License-Identifier: MIT
"""demo/shares.py: how long a job takes is found on a busy machine too, where a program sees several completions at one moment."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

DEMO = Path(__file__).resolve().parents[2] / "demo" / "shares.py"
SPEC = importlib.util.spec_from_file_location("demo_shares_fit", DEMO)
assert SPEC and SPEC.loader
shares = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = shares
SPEC.loader.exec_module(shares)

JOB = 0.004


def test_the_programs_queue_as_many_jobs_as_is_believed() -> None:
    """The constant is that of the C programs."""
    assert f"#define AHEAD {shares.AHEAD} " in (DEMO.parent / "host.h").read_text()


def test_quiet_machine() -> None:
    """Evenly spaced completions: their distance, and a few long ones change nothing."""
    steps = np.full(100, JOB)
    steps[::7] *= 5
    assert shares.length_of_job(np.cumsum(steps)) == pytest.approx(JOB)


@pytest.mark.parametrize("seen_at_once", [2, 3, 4, 5])
def test_completions_seen_at_one_moment(seen_at_once: int) -> None:
    """A program that is always late sees all of its queue at once: microseconds between completions are no jobs."""
    ends = np.arange(1, 61) * JOB
    seen = np.ceil(np.arange(1, 61) / seen_at_once) * seen_at_once * JOB + np.arange(60) % seen_at_once * 1e-6
    assert np.all(seen >= ends - 1e-9)
    assert 0.7 * JOB < shares.length_of_job(seen) < 1.4 * JOB


def test_late_for_longer_than_the_queue_lasts() -> None:
    """The device idles, then four completions are seen at once, again and again."""
    seen = np.repeat(np.arange(1, 16), 4) * 10 * JOB + np.tile(np.arange(4), 15) * 1e-6
    assert 0.7 * JOB < shares.length_of_job(seen) < 3 * JOB


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_jobs_is_said(count: int) -> None:
    """Not a number from nothing."""
    with pytest.raises(shares.DemoError, match="too busy"):
        shares.length_of_job(np.arange(count, dtype=float))


def test_busy_moment_while_jobs_were_measured_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second measurement shortens a job that looked long, and never makes one longer."""
    asked = []

    def alone(program: str, work: int, jobs: int) -> float:
        asked.append((program, work))
        return JOB

    monkeypatch.setattr(shares, "alone", alone)
    long = shares.Load("a", "nbody", 40, "v0", 0.5, job_s=1.6 * JOB)
    twin = shares.Load("b", "nbody", 40, "v1", 0.5, job_s=1.6 * JOB)
    short = shares.Load("c", "mandelbrot", 9, "v2", 0.5, job_s=0.9 * JOB)
    sleeper = shares.Load("d", "nbody", 7, "v3", 0.5, job_s=JOB, idle=True)
    shares.measure_again([long, twin, short, sleeper])
    assert [load.job_s for load in (long, twin, short)] == [JOB, JOB, 0.9 * JOB]
    assert asked == [("nbody", 40), ("mandelbrot", 9)]
