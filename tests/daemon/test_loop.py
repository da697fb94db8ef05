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


def test_requests_about_all_tasks_hand_permits_over_meanwhile(daemon: Daemon) -> None:
    """Where each task belongs, and a file of all that were put somewhere: any user can ask for
    both, and /proc is slow.
    """
    count = daemon.folder / "waits"
    daemon.environment |= {
        "LD_PRELOAD": str(BUILD / "tests/daemon/libcount_waits.so"),
        "RTXG_COUNT_WAITS": str(count),
    }
    daemon.start()
    tasks = [daemon.task() for _ in range(300)]
    connection = daemon.connect()

    def waits(*requests: dict[str, object]) -> int:
        before = struct.unpack("Q", count.read_bytes())[0]
        for request in requests:
            assert connection.ask(**request)["ok"]  # type: ignore[arg-type]
        return int(struct.unpack("Q", count.read_bytes())[0]) - before

    # The test above allows six for a request that is answered without a look at all tasks.
    bind = [{"op": "cgroup-bind", "vgpu": "default", "cgroup": f"/absent/{i}"} for i in range(20)]
    assert waits(*bind) > 8 * len(bind)
    for task in daemon.tasks():
        assert connection.ask("task-set", task=task["task"], priority=1)["ok"]
    change = [{"op": "task-set", "task": 0, "runtime_ns": 1 + i} for i in range(20)]
    assert waits(*change) > 8 * len(change)
    assert tasks
    daemon.healthy()
