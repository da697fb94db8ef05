# SPDX-License-Identifier: MIT
"""tools/check ends with all that it started: what stays would run beside the next one's tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

CHECK = Path(__file__).resolve().parents[2] / "tools/check"

#: tools/check with two tiers that do not end by themselves, one of each kind, and logs elsewhere
RUNNER = """
import importlib.machinery, importlib.util, pathlib, sys
loader = importlib.machinery.SourceFileLoader("check", sys.argv[1])
spec = importlib.util.spec_from_loader("check", loader)
check = importlib.util.module_from_spec(spec)
sys.modules["check"] = check
loader.exec_module(check)
check.LOGS = pathlib.Path(sys.argv[2])

def forever(tier):
    pid = check.LOGS / f"{tier.name}.pid"
    command = 'echo $$ > "$0".new; mv "$0".new "$0"; sleep 1000 & wait'
    return check.Tally(passed=tier.run(["sh", "-c", command, str(pid)])[0] == 0)

check.all_tiers = lambda: [(name, forever, 900, False) for name in ("asan", "vm")]
sys.argv[1:] = sys.argv[3:]
sys.exit(check.main())
"""


def session_lives(leader: int) -> bool:
    """Whether a process of the session runs."""
    done = subprocess.run(["ps", "-s", str(leader), "-o", "stat="], capture_output=True, text=True, check=False)
    return any(not state.startswith("Z") for state in done.stdout.split())


@pytest.mark.parametrize("tiers", [["asan", "vm"], ["vm"]])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_tiers_that_run(tmp_path: Path, number: signal.Signals, tiers: list[str]) -> None:
    words = [] if len(tiers) == 2 else ["--tier", *tiers]
    files = [tmp_path / f"{name}.pid" for name in tiers]
    process = subprocess.Popen([sys.executable, "-c", RUNNER, CHECK, tmp_path, *words], stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
    leaders = []
    try:
        while not all(file.exists() for file in files):
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        leaders = [int(file.read_text()) for file in files]
        assert all(session_lives(leader) for leader in leaders)
        end = time.monotonic() + 60  # a killed process takes a moment; what was not killed sleeps longer
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
        assert (process.returncode, said) == (130, "\ntools/check: interrupted\n")
        while any(session_lives(leader) for leader in leaders):
            assert time.monotonic() < end, "processes of a tier live on"
            time.sleep(0.01)
    finally:
        process.kill()
        for leader in leaders:
            if session_lives(leader):
                os.killpg(leader, signal.SIGKILL)
