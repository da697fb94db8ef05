# SPDX-License-Identifier: MIT
"""What only its maker can answer is not asked for in the thread that hands permits over."""

from __future__ import annotations

import fcntl
import mmap
import os
import signal
from collections.abc import Callable

import pytest
from held import GETATTR, held_file
from users import ATTACKER, Connection, Stage, become

#: no answer may take longer, on a busy machine too; without an answer it was for ever
LONGEST_S = 3.0


def start(
    stage: Stage, silent: int, what: Callable[[Connection, int, Callable[[], None]], None]
) -> None:
    """Run it as the attacker, with a file that is silent."""
    stage.daemon.start(mode="--system")
    path, place = stage.daemon.socket, stage.daemon.folder / "held"

    def main(go: Callable[[], None]) -> None:
        try:
            file = held_file(place, silent)
        except OSError:
            go()
            os._exit(77)
        become(ATTACKER)
        connection = Connection(path)
        what(connection, file, go)
        signal.pause()

    child = stage.attack(main, uid=0)
    if os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        pytest.skip("no file system of one's own here")


@pytest.mark.parametrize(
    "request_",
    [
        b'{"op": "open", "takeover": 1}',
        b'{"op": "fence-event", "lane": 0}',
        b'{"op": "fence", "lane": 0, "offset": 0}',
    ],
)
def test_a_file_that_does_not_say_what_it_is_delays_no_other_user(
    stage: Stage, request_: bytes
) -> None:
    """As a page, as an event, as a fence."""

    def what(connection: Connection, file: int, go: Callable[[], None]) -> None:
        if b"fence" in request_:
            word = os.memfd_create("fence", os.MFD_ALLOW_SEALING)
            os.ftruncate(word, mmap.PAGESIZE)
            fcntl.fcntl(word, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            assert connection.open()["ok"]
            reply = connection.raw(b'{"op": "fence", "lane": 0, "offset": 0}', (word,))
            assert reply and reply["ok"], reply
        connection.send(request_, (file,))
        go()

    start(stage, GETATTR, what)
    assert stage.longest_reply(1) < LONGEST_S
