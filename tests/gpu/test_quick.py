# SPDX-License-Identifier: MIT
"""How long the short forms of cases are, by the lengths that they ask for. No GPU is needed."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from cases import latency
from harness import Setup

SETUP_S = 1.5  # until a program has its context, and works


class Rehearsal:
    """The time that a case takes if each of its programs takes what it was told to take."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ends: list[float] = []
        self.short: list[str] = []  #: measurements that outlast the load beside them

    def critical(
        self, setup: Setup, jitter_us: int, jobs: int, *_: Any
    ) -> tuple[dict[str, float], int, int]:
        """A period of 10 ms, and half of the jitter more; 50 jobs are not counted."""
        began = self.now + SETUP_S
        self.now = began + (jobs + 50) * (0.010 + jitter_us / 2e6)
        if self.ends and self.now > min(self.ends):
            self.short.append(
                f"{jobs} jobs end at {self.now:.1f} s, a load at {min(self.ends):.1f} s"
            )
        return (
            {"p50": 1.0, "p99": 1.0, "max": 1.0, "jobs": jobs},
            int(began * 1e9),
            int(self.now * 1e9),
        )

    def three_hogs(self, setup: Setup, loads: Any, seconds: float, gov: Any) -> None:
        """They begin as soon as they have contexts."""
        self.now += SETUP_S
        self.ends = [self.now + seconds]

    def wait(self) -> None:
        """Until the loads have ended."""
        self.now = max([self.now, *self.ends])
        self.ends = []

    def sleep(self, seconds: float) -> None:
        """Nothing but waiting."""
        self.now += seconds

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def stats(self) -> dict[str, Any]:
        """Of the lever."""
        return {}


@pytest.mark.parametrize(("quick", "limit_s"), [(True, 50), (False, 100)])
def test_the_case_latency_ends_within_its_form(
    quick: bool, limit_s: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The short form is for a first look, and its loads outlast what is measured beside them."""
    run = Rehearsal()
    monkeypatch.setattr(latency, "critical", run.critical)
    monkeypatch.setattr(latency, "three_hogs", run.three_hogs)
    monkeypatch.setattr(latency, "Loads", lambda setup: run)
    monkeypatch.setattr(latency, "Governor", lambda setup: run)
    monkeypatch.setattr(latency, "standard_vgpus", lambda gov, shares: None)
    monkeypatch.setattr(latency, "rates", lambda loads, begin, end: 1.0)
    clock = SimpleNamespace(sleep=run.sleep, monotonic_ns=lambda: int(run.now * 1e9))
    monkeypatch.setattr(latency, "time", clock)
    setup = Setup(tmp_path, tmp_path, tmp_path, quick=quick)
    setup.current = "latency"
    latency.case_latency(setup)
    assert run.now < limit_s
    assert not run.short
    assert len(setup.results) == 7
