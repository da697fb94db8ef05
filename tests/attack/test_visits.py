# SPDX-License-Identifier: MIT
"""Connections come and go without end, and nobody is charged for that: each costs little."""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from users import BUILD, VICTIM, Connection, Stage, wait_for

VISITS = 50


def start(stage: Stage, mode: str) -> Callable[[], tuple[int, int]]:
    """The daemon; what it has counted (tests/daemon/count_calls.c)."""
    counts, library = stage.daemon.folder / "calls", BUILD / "tests/daemon/libcount_calls.so"
    if not Path(library).exists():
        pytest.skip(f"{library} is not built")
    stage.daemon.environment |= {"LD_PRELOAD": str(library), "RTXG_COUNT_CALLS": str(counts)}
    stage.daemon.start(mode=mode)
    os.chmod(stage.daemon.socket, 0o666)
    return lambda: struct.unpack("QQ", counts.read_bytes())


def visit(stage: Stage) -> None:
    """One connection after the other, each of which has an answer."""

    def main() -> bool:
        for _ in range(VISITS):
            connection = Connection(stage.daemon.socket)
            with contextlib.suppress(BrokenPipeError):  # it is refused: that can still be read
                connection.send(b'{"op": "hello"}')
            assert connection.receive()[0]
            connection.close()
        return True

    assert stage.run(VICTIM, main).result()


def test_a_connection_asks_nothing_of_proc(stage: Stage) -> None:
    """The daemon's own user namespace stays what it is."""
    calls = start(stage, "--system")
    visit(stage)
    before = calls()[0]
    visit(stage)
    assert calls()[0] == before


def test_who_is_refused_was_not_waited_for(stage: Stage) -> None:
    """So no time is taken for the end of that; only for that of sending the refusal, twice.

    Ten times a second the daemon takes the time besides. So a round counts that had little of that.
    """
    calls = start(stage, "--user")
    visit(stage)

    def taken() -> int:
        before = calls()[1]
        visit(stage)
        return calls()[1] - before

    wait_for("two for each", lambda: VISITS <= taken() <= 3 * VISITS)
