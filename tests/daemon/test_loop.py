# SPDX-License-Identifier: MIT
"""The daemon's loop: what waking up costs."""

from __future__ import annotations

import struct

from conftest import BUILD, Daemon

REQUESTS = 200


def test_a_request_costs_few_waits(daemon: Daemon) -> None:
    """An event that comes alone is asked for once by each of the two epoll instances, and not again and again until a bound is reached."""
    count = daemon.folder / "waits"
    daemon.environment |= {"LD_PRELOAD": str(BUILD / "tests/daemon/libcount_waits.so"), "RTXG_COUNT_WAITS": str(count)}
    daemon.start()
    connection = daemon.connect()
    before = struct.unpack("Q", count.read_bytes())[0]
    for _ in range(REQUESTS):
        assert connection.ask("vgpu-list")["ok"]
    waits = struct.unpack("Q", count.read_bytes())[0] - before
    assert REQUESTS <= waits <= 6 * REQUESTS
    daemon.healthy()
