# SPDX-License-Identifier: MIT
"""`rtxg run --strict`: an exit status that says whether what was promised was kept."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from conftest import BUILD, Daemon, wait_for

DEVICE = BUILD / "tests/conform/device"


def start(daemon: Daemon, *words: str | Path) -> subprocess.Popen[str]:
    """`rtxg run --strict` with these words."""
    child = subprocess.Popen([BUILD / "cli/rtxg", "run", "--strict", "--no-layer", *words], env=daemon.environment,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    daemon.children.append(child)
    return child


def run(daemon: Daemon, *words: str | Path) -> tuple[int, str]:
    """Exit status and what stands on standard error."""
    child = start(daemon, *words)
    _, error = child.communicate(timeout=120)
    return child.returncode, error


def test_a_program_that_gets_its_share_ends_as_it_does(running: Daemon) -> None:
    """Status 0 stays 0, 7 stays 7, a signal stays that signal, and nothing is said."""
    assert run(running, "--min", "30%", "--", DEVICE, "-u", "1000", "-s", "-n", "300") == (0, "")
    assert run(running, "--min", "30%", "--", "sh", "-c", "exit 7") == (7, "")
    assert run(running, "--min", "30%", "--", "sh", "-c", "kill -USR2 $$") == (-signal.SIGUSR2, "")
    status, error = run(running, "--min", "30%", "--", "./no-such-program")
    assert status == 127 and "no-such-program" in error


def test_a_broken_share_is_named_and_changes_the_status(running: Daemon) -> None:
    """Another program's launch of three seconds cannot be taken back under the gate: a share of 60 % is not kept meanwhile."""
    hog = running.device("-g", "0", "-u", "3000000", "-s", "-n", "1")
    wait_for("it holds the engine", lambda: any(t["engines"][0]["in_flight"] for t in running.tasks(pid=hog.pid)))
    status, error = run(running, "--min", "60%", "--", DEVICE, "-g", "0", "-u", "1000", "-s", "-n", "50")
    assert status == 123, error
    assert "its share was not kept for" in error and "GPU 0" in error
    # A program that fails by itself is told apart.
    hog = running.device("-g", "0", "-u", "3000000", "-s", "-n", "1")
    wait_for("it holds the engine", lambda: any(t["engines"][0]["in_flight"] for t in running.tasks(pid=hog.pid)))
    status, error = run(running, "--min", "60%", "--", "sh", "-c", f"{DEVICE} -g 0 -u 1000 -s -n 50; exit 5")
    assert status == 5 and "its share was not kept for" in error


def test_signals_are_passed_on(running: Daemon) -> None:
    """A service manager that ends rtxg ends the program, and not rtxg alone."""
    child = start(running, "--min", "30%", "--", "sh", "-c", "trap 'exit 3' TERM; echo ready; while :; do sleep 0.1; done")
    assert child.stdout and child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGTERM)
    assert child.wait(60) == 3


def test_it_needs_a_promise_and_a_host(running: Daemon) -> None:
    """Without a vGPU nothing is promised; without a host nothing is measured."""
    status, error = run(running, "--", "true")
    assert status == 125 and "--strict goes with -v" in error
    running.environment |= {"RTXG_SOCKET": "/nonexistent/socket"}
    assert run(running, "--min", "30%", "--", "true")[0] == 125
