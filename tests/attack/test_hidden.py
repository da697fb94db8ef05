# SPDX-License-Identifier: MIT
"""Where the machine hides the processes of others (hidepid), rtxgd tells no more of them than /proc does."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from users import BUILD, VICTIM, Connection, Stage, base

#: a number that no process has: one more than the most
NONE = 1 << 22


def start(stage: Stage, option: str = "hidepid=2", program: str = "daemon/rtxgd") -> None:
    """A daemon that sees such a /proc."""
    script = f'mount --make-rprivate / && mount -t proc -o {option} proc /proc && exec "$@"'
    words = ("unshare", "--mount", "sh", "-c", script, "sh")
    if subprocess.run([*words, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mounts of one's own here")
    stage.daemon.start(mode="--system", prefix=words, program=program)
    assert stage.daemon.ask("vgpu-create", vgpu="open", min_ppm=100000)["ok"]


def work(stage: Stage) -> int:
    """The other user has a task, and one that was refused; its process."""

    def main(go: Callable[[], None]) -> None:
        connection = Connection(stage.daemon.socket)
        assert connection.open()["ok"]
        if os.fork() == 0:
            assert not Connection(stage.daemon.socket).open(vgpu="none")["ok"]
            go()
        signal.pause()

    return stage.attack(main, VICTIM).pid


def replies(stage: Stage, pid: int) -> dict[str, Any]:
    """What a stranger is told of a process, with 0 for its number."""

    def main() -> dict[str, Any]:
        connection = Connection(stage.daemon.socket)
        told = {
            "bind": connection.ask("cgroup-bind", vgpu="open", pid=pid),
            "set": connection.ask("task-set", pid=pid, vgpu="open"),
            "priority": connection.ask("task-set", pid=pid, priority=3),
            "list": connection.ask("task-list", pid=pid),
            "lists": connection.ask("task-list"),
            "stats": connection.ask("stats", tasks=True)["tasks"],
            "doctor": [c for c in connection.ask("doctor")["checks"] if "process " in c["check"]],
            "metrics": connection.ask("metrics")["processes"],
        }
        return dict(json.loads(re.sub(rf"\b{pid}\b", "0", json.dumps(told))))

    return dict(stage.run(61003, main).result())


def test_a_stranger_is_told_of_a_hidden_process_as_of_none(stage: Stage) -> None:
    """Neither that it is there, nor its cgroup; root, and its own user, see it."""
    start(stage)
    pid = work(stage)
    told = replies(stage, pid)
    assert told == replies(stage, NONE)
    assert (told["bind"]["error"], told["set"]["error"]) == ("ESRCH", "ESRCH")
    assert told["lists"]["tasks"] == told["lists"]["refused"] == told["metrics"] == []
    assert [t["pid"] for t in stage.daemon.tasks()] == [pid]
    assert stage.as_victim(lambda c: [t["pid"] for t in c.ask("task-list")["tasks"]]) == [pid]
    assert len(stage.daemon.ask("task-list")["refused"]) == 1


def test_who_is_in_the_group_of_proc_sees_all(stage: Stage) -> None:
    """As the mount option gid says."""
    start(stage, "hidepid=invisible,gid=61003")
    pid = work(stage)
    assert [t["pid"] for t in replies(stage, pid)["lists"]["tasks"]] == [0]
    assert replies(stage, pid)["set"]["error"] == "EACCES"


def test_where_nothing_is_hidden_tasks_are_open_to_all(stage: Stage) -> None:
    """As ever."""
    start(stage, "hidepid=0")
    told = replies(stage, work(stage))
    assert len(told["lists"]["tasks"]) == len(told["lists"]["refused"]) == 1
    assert len(told["metrics"]) == 1 and told["priority"]["error"] == "EACCES"


def test_programs_on_nvidia_are_hidden_too(stage: Stage) -> None:
    """They never asked for a task."""
    if not (BUILD / base.FAKE).exists():
        pytest.skip("built without the NVIDIA lever")
    gpu = base.Gpu(stage.daemon)
    start(stage, program=base.FAKE)
    pid, alien = gpu.process(), gpu.process("alien")
    try:
        base.wait_for("both are known", lambda: gpu.of(pid) and gpu.of(alien))
        checks = {check["check"] for check in stage.daemon.ask("doctor")["checks"]}
        assert f"process {alien}" in checks
        base.wait_for("it came", lambda: stage.daemon.ask("timeline")["events"])
        assert replies(stage, pid) == replies(stage, alien) == replies(stage, NONE)

        def events(connection: Connection) -> list[tuple[int, str]]:
            came = connection.ask("timeline")["events"]
            return [(event["pid"], event.get("comm", "")) for event in came]

        seen = stage.as_victim(events)  # as JSON has it
        assert seen and all(event == [0, ""] for event in seen), seen
        assert pid in {event["pid"] for event in stage.daemon.ask("timeline")["events"]}
    finally:
        for program in gpu.programs:
            program.kill()
            program.wait()
