# SPDX-License-Identifier: MIT
"""`rtxg latency` as a program, from the present build."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("RTXG_BUILD", ROOT / "build/release")).resolve()
sys.path.insert(0, str(ROOT / "lab"))
PROGRAM = BUILD / "latency/rtxg-latency"


def latency(*words: str, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run it to its end; `before` is a program that starts it."""
    return subprocess.run(
        [*before, str(PROGRAM), *words], capture_output=True, text=True, check=False, timeout=120
    )


def measured(*words: str, status: int = 0, before: tuple[str, ...] = ()) -> dict:
    """The JSON of a run that ends with this status."""
    done = latency("-q", "--json", *words, before=before)
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)
