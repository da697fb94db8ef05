# SPDX-License-Identifier: MIT
"""Units and packages on a machine that runs: systemd in a guest, programs attached, an upgrade,
a removal, a purge.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT

BUILD = Path(os.environ.get("RTXG_BUILD", ROOT / "build/release")).resolve()


def judged(*words: str | Path) -> str:
    """What the guest printed; all has passed."""
    command = [ROOT / "tests/vm/systemd/run", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3000)
    print(done.stdout)
    if done.returncode == 2 and re.search(r"needs root|is missing", done.stderr):
        pytest.skip(done.stderr.strip()[:300])
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_units_do_what_they_say() -> None:
    """tests/vm/systemd/check judges, in the guest."""
    assert re.search(r"24 passed, 0 failed, 0 skipped", judged())


@pytest.mark.slow
def test_programs_outlive_upgrade_removal_and_purge(built: Path, newer: Path) -> None:
    """tests/vm/systemd/check-packages judges, in the guest."""
    said = judged("--packages", built, newer, BUILD, "--limit", "2700")
    assert re.search(r"8 passed, 0 failed, 0 skipped", said)
