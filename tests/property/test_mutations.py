# SPDX-License-Identifier: MIT
"""The properties can fail: each way of breaking weights, budgets and caps falls to one of them.

A mutation changes one line of core/launch/policy_cbs.c.  The core is compiled with it, and one test
runs with the examples that the quick tier draws.  It has to fail.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CBS = "core/launch/policy_cbs.c"

WEIGHTS = "test_cbs.py::test_weights_share_what_is_left_over"
SLEEPERS = "test_cbs.py::test_who_slept_has_saved_up_nothing"
PRIORITY = "test_cbs.py::test_priority_goes_before_weight_in_what_is_left_over"
POINTS = "test_cbs.py::test_no_second_is_more_than_a_point_off"
IDLE = "test_cbs.py::test_an_idle_reservation_is_shared_out_by_weight"
NAPS = "test_cbs.py::test_a_nap_before_the_budget_is_used_up_gives_no_new_one"
SAVERS = "test_cbs.py::test_who_slept_has_saved_up_no_cap"
CAPS = "test_invariants.py::test_a_cap_is_passed_by_one_kernel_at_most"

#: what is broken: a line before and after, and the test that is to notice
MUTATIONS = {
    "weights do not count": ("spare * RTXG_WEIGHT_DEFAULT / params->weight", "spare", WEIGHTS),
    "weights count the wrong way round": (
        "spare * RTXG_WEIGHT_DEFAULT / params->weight",
        "spare * params->weight / RTXG_WEIGHT_DEFAULT",
        WEIGHTS,
    ),
    "what is left over costs nothing": (
        "books->vtime += spare",
        "books->vtime += 0 * spare",
        WEIGHTS,
    ),
    "a vGPU saves up virtual time while it sleeps": (
        "catch_up(account);\n\tif (!account->vgpu",
        "if (!account->vgpu",
        SLEEPERS,
    ),
    "virtual time goes before priority": (
        "RTXG_PRIORITY_MAX - account->vgpu->params.priority, books->vtime",
        "0, books->vtime",
        PRIORITY,
    ),
    "one budget too many": (
        "(uint64_t)-books->budget / full + 1;",
        "(uint64_t)-books->budget / full + 2;",
        POINTS,
    ),
    "a budget without a later deadline": (
        "add_time(books->deadline, budgets > LARGE / period ? LARGE : budgets * period);",
        "books->deadline;",
        POINTS,
    ),
    "a budget may be touched before it is due": (
        "books->eligible_ns = books->deadline > period ? books->deadline - period : 0;",
        "books->eligible_ns = 0;",
        POINTS,
    ),
    "an overrun is forgiven": (
        "books->budget += (int64_t)(budgets * full);",
        "books->budget = (int64_t)full;",
        POINTS,
    ),
    "half a budget": (
        "return max_u64(1, params->period_ns * books_of(account)->min_ppm / RTXG_PPM);",
        "return max_u64(1, params->period_ns * books_of(account)->min_ppm / RTXG_PPM / 2);",
        POINTS,
    ),
    "what is left over is charged to the budget": (
        "books->budget -= (int64_t)min_u64(contended - spare, LARGE);",
        "books->budget -= (int64_t)min_u64(contended, LARGE);",
        IDLE,
    ),
    "each wake-up gives a new budget": (
        "if ((uint64_t)books->budget <",
        "if (0 && (uint64_t)books->budget <",
        NAPS,
    ),
    "a cap is saved up": (
        "if (books->cap_budget > (int64_t)limit)",
        "if (0 && books->cap_budget > (int64_t)limit)",
        SAVERS,
    ),
    "a cap comes back twice": (
        "ticks > LARGE / full ? LARGE : ticks * full",
        "ticks > LARGE / full ? LARGE : 2 * ticks * full",
        CAPS,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_each_mutation_is_caught(name: str, tmp_path: Path) -> None:
    """By the test that is named, with as many examples as the quick tier draws."""
    before, after, test = MUTATIONS[name]
    shutil.copytree(ROOT / "core", tmp_path / "core")
    shutil.copytree(ROOT / "include", tmp_path / "include")
    text = (tmp_path / CBS).read_text()
    assert text.count(before) == 1, f"{CBS} has changed: the mutation is none"
    (tmp_path / CBS).write_text(text.replace(before, after))
    environment = os.environ | {
        "RTXG_SOURCE": str(tmp_path),
        "RTXG_CORE_BUILD": str(tmp_path / "built"),
        "RTXG_TIER": "unshrunk",
    }
    options = ["-q", "-x", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(Path(__file__).parent / test)],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    said = done.stdout[-2000:] + done.stderr[-2000:]
    assert done.returncode == 1 and "1 failed" in done.stdout, said
