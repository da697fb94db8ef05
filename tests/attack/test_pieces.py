# SPDX-License-Identifier: MIT
"""A request about very many tasks holds up no other user's, for it is served in pieces."""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Callable
from typing import Any

import pytest
from users import ATTACKER, Connection, Stage, wait_for

TASKS = 600


def many_files() -> None:
    """As many descriptors as the system lets a program have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def many_tasks(path: Any) -> list[Connection]:
    """Tasks of this process, each with its connection."""
    many_files()
    tasks = [Connection(path) for _ in range(TASKS)]
    for task in tasks:
        assert task.open(vgpu="one")["ok"]
        # Descriptors are dear.
        os.close(task.doorbell)
        os.close(task.page_fd)
    return tasks


def start(stage: Stage) -> None:
    """The daemon, and where tasks can be."""
    many_files()
    stage.daemon.write_config("[VGPU one]\n[VGPU other]\n")
    stage.daemon.start(mode="--system")


CHANGE = {"op": "task-set", "vgpu": "other", "period_ns": 10_000_000}
LIST, STATS = {"op": "task-list"}, {"op": "stats", "tasks": True}


@pytest.mark.parametrize("asked", [CHANGE, LIST, STATS], ids=["change", "list", "statistics"])
def test_a_request_about_very_many_tasks_lets_requests_of_others_pass(
    stage: Stage, asked: dict[str, Any]
) -> None:
    """They are served between its pieces. It is one request, and has one answer of all tasks."""
    start(stage)
    path = stage.daemon.socket
    told, sent, answer = os.pipe(), os.pipe(), os.pipe()

    def main(go: Callable[[], None]) -> None:
        tasks, connection = many_tasks(path), Connection(path)
        assert connection.ask("hello")["ok"]
        go()
        os.read(told[0], 1)
        request = asked | ({"pid": os.getpid()} if asked is CHANGE else {})
        connection.send(json.dumps(request).encode())
        os.write(sent[1], b".")
        reply, _ = connection.receive()
        assert reply and reply["ok"], reply
        rows = [(task["vgpu"], task["period_ns"]) for task in reply["tasks"]]
        os.write(answer[1], json.dumps(rows).encode())
        signal.pause()
        assert tasks

    stage.attack(main)
    connections = [stage.daemon.connect() for _ in range(200)]

    def use(connection: Connection) -> tuple[int, int]:
        reply, _ = connection.receive()
        assert reply
        (user,) = (user for user in reply["users"] if user["uid"] == ATTACKER)
        return user["requests"], user["cost_ns"]

    connections[0].send(b'{"op": "limits"}')
    requests, cost = use(connections[0])
    # All wait when the daemon goes on, so that their order is the daemon's to choose.
    with stage.stopped():
        os.write(told[1], b".")
        os.read(sent[0], 1)
        for connection in connections:
            connection.send(b'{"op": "limits"}')
    seen = [use(connection) for connection in connections]
    rows = json.loads(os.read(answer[0], 1 << 16))
    expected = [asked.get("vgpu", "one"), asked.get("period_ns", 0)]
    assert rows == [expected] * TASKS, len(rows)
    assert any(one[0] == requests and one[1] > cost for one in seen), (requests, cost, seen)
    assert max(seen)[0] <= requests + 1


@pytest.mark.parametrize("asked", [CHANGE, LIST, STATS], ids=["change", "list", "statistics"])
def test_who_leaves_amid_such_a_request_leaves_nothing_behind(
    stage: Stage, asked: dict[str, Any]
) -> None:
    """Of a change some tasks have been changed then. No answer arrives."""
    start(stage)
    path = stage.daemon.socket

    def main(go: Callable[[], None]) -> None:
        tasks = many_tasks(path)
        for _ in range(5):
            connection = Connection(path)
            request = asked | ({"pid": os.getpid()} if asked is CHANGE else {})
            connection.send(json.dumps(request).encode())
            connection.close()
        go()
        signal.pause()
        assert tasks

    attack = stage.attack(main)

    def used() -> int:
        return int(stage.usage(ATTACKER)["connections"]["used"])

    wait_for("they are gone", lambda: used() == TASKS)
    os.kill(attack.pid, signal.SIGKILL)
    wait_for("so are the tasks", lambda: not stage.daemon.tasks())
    stage.answers()


def test_a_change_that_is_refused_amid_the_tasks_says_so(stage: Stage) -> None:
    """A task waits for a GPU of a pool, and cannot be moved; those before it have been."""
    start(stage)
    assert stage.daemon.ask("pool-create", pool="one", gpus=["only"])["ok"]

    def main(connection: Connection) -> Any:
        tasks = many_tasks(stage.daemon.socket)
        assert tasks[-1].ask("pool-acquire", pool="one")["ok"]
        reply = connection.ask("task-set", pid=os.getpid(), vgpu="other")
        listed = connection.ask("task-list")["tasks"]
        after = connection.ask("task-set", pid=os.getpid(), period_ns=10_000_000)
        return reply["error"], [task["vgpu"] for task in listed], len(after["tasks"])

    error, listed, after = stage.as_victim(main)
    assert (error, after) == ("EBUSY", TASKS)
    assert listed == ["other"] * (TASKS - 1) + ["one"]
