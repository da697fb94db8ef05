# SPDX-License-Identifier: MIT
"""Figures in documents: each stands in a record under bench/results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_tables_of_results_are_those_of_the_records() -> None:
    """docs/results.md and docs/latency.md hold what bench/records.py writes from the records."""
    done = subprocess.run(
        [sys.executable, ROOT / "bench" / "records.py", "tables", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
