# SPDX-License-Identifier: MIT
"""`rtxg` under test: each test starts its own daemon on a private socket."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("RTXG_BUILD", ROOT / "build/release")).resolve()
CLIENT = Path(__file__).with_name("client.py")

#: how long we wait for something that happens at once unless it never does
PATIENCE_S = 30.0


def wait_for(what: str, condition: Any) -> Any:
    """Call condition until it is true; its value."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.02)
    pytest.fail(f"{what}: not within {PATIENCE_S:.0f} s")


class Rtxg:
    """The command line, bound to one socket."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "rtxgd.sock"
        self.program = BUILD / "cli/rtxg"
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("RTXG_", "OPENCL_LAYERS"))}
        self.environment |= {
            "RTXG_SOCKET": str(self.socket), "LC_ALL": "C.UTF-8", "HOME": str(folder), "POCL_CACHE_DIR": str(folder / "pocl"),
        }
        self.daemon: subprocess.Popen[bytes] | None = None
        self.children: list[subprocess.Popen[str]] = []

    def start_daemon(self) -> None:
        """Start rtxgd and wait until it answers."""
        with (self.folder / "rtxgd.log").open("ab") as log:
            command = [BUILD / "daemon/rtxgd", "--user", "--socket", self.socket, "--config-root", self.folder / "root",
                       "--idle-exit", "0"]
            self.daemon = subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_for("the daemon answers", lambda: self("host", "show").returncode == 0)

    def stop(self) -> None:
        """End whatever this test started, by its id."""
        for child in [*self.children, *([self.daemon] if self.daemon else [])]:
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
                try:
                    child.wait(5)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()

    def __call__(self, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self.program, *arguments], env=self.environment | environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=PATIENCE_S * 2, check=False)

    def ok(self, *arguments: str | Path, **environment: str) -> str:
        """Run it; it must succeed and say nothing on stderr. Its stdout."""
        done = self(*arguments, **environment)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    def refused(self, *arguments: str | Path, status: int, **environment: str) -> str:
        """Run it; it must end with this status and print nothing but an error. Its stderr."""
        done = self(*arguments, **environment)
        assert done.returncode == status, done
        assert done.stdout == "", done
        assert done.stderr.startswith("rtxg"), done
        return done.stderr

    def json(self, *arguments: str) -> Any:
        """Run it with -J; the one list in its answer."""
        answer = json.loads(self.ok(*arguments, "-J"))
        assert len(answer) == 1
        return next(iter(answer.values()))

    def client(self, *arguments: str, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        """A program that uses librtxg (see client.py), once it has opened its task; `before` goes in front of it."""
        child = subprocess.Popen([*before, sys.executable, str(CLIENT), *arguments], env=self.environment | {
            "RTXG_LIBRARY": str(BUILD / "lib/librtxg.so.0")}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.children.append(child)
        assert child.stdout
        assert child.stdout.readline() == "open\n"
        return child


@pytest.fixture
def lone(tmp_path: Path) -> Iterator[Rtxg]:
    """rtxg without a daemon."""
    if not (BUILD / "cli/rtxg").exists():
        pytest.fail(f"{BUILD}/cli/rtxg is not built; run tools/build")
    rtxg = Rtxg(tmp_path)
    yield rtxg
    rtxg.stop()


@pytest.fixture
def rtxg(lone: Rtxg) -> Rtxg:
    """rtxg with a private daemon."""
    lone.start_daemon()
    return lone
