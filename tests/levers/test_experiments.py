# SPDX-License-Identifier: MIT
"""bench/gpu/experiments.py without a GPU: what is read off the log of context switches."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "gpu"))

import experiments

US = 1000.0
RT, HOG = 7, 8
START, END = 6, 7


def test_the_parts_of_a_job_add_up_to_its_latency() -> None:
    """From its release to the end of the other's stay, to its own begin, to the end of its kernel."""
    jobs = np.array([[1000 * US, 310 * US, 101 * US], [11000 * US, 290 * US, 101 * US]])
    log = np.array(
        [
            [900 * US, START, HOG],
            [1110 * US, END, HOG],
            [1194 * US, START, RT],
            [1400 * US, END, RT],
            [1484 * US, START, HOG],
            [11090 * US, END, HOG],
            [11174 * US, START, RT],
        ]
    )
    parts = experiments.switch_parts(jobs, log, RT)
    assert parts["leave"] == pytest.approx([110, 90])
    assert parts["restore"] == pytest.approx([84, 84])
    assert parts["rest"] == pytest.approx([116, 116])
    total = parts["leave"] + parts["restore"] + parts["rest"]
    assert total == pytest.approx(parts["latency"])
    assert experiments.spread(parts["leave"])["min"] == pytest.approx(90)


def test_a_job_that_found_its_context_there_has_no_parts() -> None:
    """Nothing was saved for it, or the log does not reach that far."""
    jobs = np.array([[1000 * US, 120 * US, 101 * US], [90000 * US, 310 * US, 101 * US]])
    log = np.array([[500 * US, END, HOG], [584 * US, START, RT], [5000 * US, END, RT]])
    parts = experiments.switch_parts(jobs, log, RT)
    assert parts["leave"].size == 0
    assert experiments.spread(parts["leave"]) == {"jobs": 0}
