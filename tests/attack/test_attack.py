# SPDX-License-Identifier: MIT
"""What one ordinary user does to a system daemon harms no other user: attacks that did, each as it was found."""

from __future__ import annotations

import array
import contextlib
import ctypes
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from users import ATTACKER, BUILD, VICTIM, Connection, Stage, wait_for


def many_files() -> None:
    """As many descriptors as the system lets a program have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def lingering() -> socket.socket:
    """A socket whose last close takes an hour: unsent data that its peer does not read."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    listener.bind(("127.0.0.1", 0))
    listener.listen(1)
    sender = socket.socket()
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    sender.connect(listener.getsockname())
    sender.setblocking(False)
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))
    with contextlib.suppress(BlockingIOError):
        while True:
            sender.send(b"x" * 65536)
    lingering.kept.append(listener)  # type: ignore[attr-defined]
    return sender


lingering.kept = []  # type: ignore[attr-defined]


def test_descriptors_that_take_long_to_close_delay_no_other_user(stage: Stage) -> None:
    """Asked for or not, taken over or left unread in the socket when the connection ends."""
    stage.daemon.start(mode="--system")
    path = stage.daemon.socket

    def main(go: Callable[[], None]) -> None:
        for request in (b'{"op": "hello"}', b'{"op": "open", "takeover": 1}', b""):
            for _ in range(3):
                with lingering() as sender:
                    Connection(path).send(request, (sender.fileno(),))
        # A connection that ends over messages that were never read.
        with lingering() as sender:
            connection = Connection(path)
            for _ in range(3):
                connection.send(b'{"op": "hello"}', (sender.fileno(),))
            connection.close()
        go()
        signal.pause()

    # It has them when no other process does.
    with stage.stopped():
        stage.attack(main)
    wait_for("the daemon holds them", lambda: stage.usage(ATTACKER)["descriptors"]["used"] > 0)
    stage.answers()
    assert stage.usage(ATTACKER)["descriptors"]["used"] > 0


def test_who_floods_the_daemon_with_such_descriptors_is_not_served(stage: Stage) -> None:
    """Its descriptors are bounded, and its quota says so; others are served."""
    stage.daemon.start(mode="--system")
    path = stage.daemon.socket

    def main(go: Callable[[], None]) -> None:
        many_files()
        for _ in range(40):
            # A socket for each message: the first that is taken holds, and no other ends that.
            sender = lingering()
            try:
                Connection(path).send(b'{"op": "hello"}', (sender.fileno(),) * 200)
            except OSError:  # the last close is not to be here
                lingering.kept.append(sender)  # type: ignore[attr-defined]
            else:
                sender.close()
        go()
        signal.pause()

    with stage.stopped():
        stage.attack(main)
    def held() -> int:
        return int(stage.usage(ATTACKER).get("descriptors", {}).get("used", 0))

    wait_for("the daemon holds them", held)
    stage.answers()
    assert held()
    assert len(os.listdir(f"/proc/{stage.daemon.process.pid}/fd")) < 600


def test_who_is_refused_for_such_descriptors_takes_no_others_by_connecting(stage: Stage) -> None:
    """Each connection that is refused waited behind them to be closed, until no descriptor was left."""
    many_files()
    stage.daemon.start(mode="--system")
    path = stage.daemon.socket

    def main(go: Callable[[], None]) -> None:
        many_files()
        for _ in range(80):
            with lingering() as sender:
                Connection(path).send(b'{"op": "hello"}', (sender.fileno(),))
        go()
        signal.pause()

    def connect(go: Callable[[], None]) -> None:
        count, end = 0, time.monotonic() + 20
        while count < 25000 and time.monotonic() < end:
            with contextlib.suppress(OSError):  # the backlog is full for a moment
                Connection(path).close()
                count += 1
        go()
        signal.pause()

    with stage.stopped():
        stage.attack(main)
    wait_for("they are too many", lambda: stage.usage(ATTACKER)["descriptors"]["used"] > 64)
    stage.attack(connect)
    assert stage.as_victim(lambda c: c.ask("hello"))["ok"]
    # Connections to the user's quota, each with the descriptor of its process.
    assert len(os.listdir(f"/proc/{stage.daemon.process.pid}/fd")) < 2 * 1152 + 1000
    assert stage.usage(ATTACKER)["descriptors"]["used"] > 64


def test_idle_connections_of_one_user_leave_room_for_others_and_for_root(stage: Stage) -> None:
    """A quota, and a part that only administrators get."""
    many_files()
    stage.daemon.start(mode="--system")
    path = stage.daemon.socket

    def main(go: Callable[[], None]) -> int:
        many_files()
        kept, refused = [], ""
        while len(kept) < 2000:
            with contextlib.suppress(BlockingIOError):  # the backlog is full for a moment
                kept.append(Connection(path))
        for connection in kept[-10:]:
            reply = connection.receive()[0]
            refused = reply["message"] if reply and not reply["ok"] else refused
        assert "one user has at most" in refused, refused
        go()
        signal.pause()
        return 0

    stage.attack(main)
    assert stage.daemon.ask("stats")["ok"]
    assert stage.as_victim(lambda c: c.open())["ok"]
    used = stage.usage(ATTACKER)["connections"]
    assert used["used"] == used["max"]
    checks = {check["check"]: check for check in stage.daemon.ask("doctor")["checks"]}
    line = checks[f"user {ATTACKER}"]
    assert not line["ok"] and f"{used['used']} of {used['max']} connections" in line["detail"], line


def test_replies_that_are_not_read_take_bounded_memory(stage: Stage) -> None:
    """One unread reply a connection, and a bound for all connections of a user; descriptors stay to be had."""
    many_files()
    stage.daemon.start(mode="--system")
    path = stage.daemon.socket
    tasks = [stage.daemon.task() for _ in range(200)]

    def main(go: Callable[[], None]) -> None:
        connections = [Connection(path) for _ in range(100)]
        for connection in connections:
            connection.socket.setblocking(False)
        end = time.monotonic() + 2
        while time.monotonic() < end:
            for connection in connections:
                with contextlib.suppress(OSError):
                    connection.send(b'{"op": "stats", "tasks": true}')
        go()
        signal.pause()

    stage.attack(main)
    usage = stage.usage(ATTACKER)
    assert usage["unread_bytes"]["used"] <= usage["unread_bytes"]["max"] + (1 << 20)
    status = Path(f"/proc/{stage.daemon.process.pid}/status").read_text()
    shmem = int(status.split("RssShmem:")[1].split()[0])
    assert shmem < 40_000, f"{shmem} kB"
    assert stage.as_victim(lambda c: c.open())["ok"]
    assert tasks


def test_requests_of_one_user_delay_no_hand_over_of_another(stage: Stage) -> None:
    """A user's requests cost that user: they take part of a processor, and one is served between two looks at the doorbells."""
    stage.daemon.start(mode="--system")
    path = stage.daemon.socket
    tasks = [stage.daemon.task() for _ in range(300)]

    def main(go: Callable[[], None]) -> None:
        connections = [Connection(path) for _ in range(4)]
        go()
        while True:
            for connection in connections:
                connection.send(b'{"op": "task-list"}')
            for connection in connections:
                connection.receive()

    began = time.monotonic_ns()
    stage.attack(main)

    def cost_ns() -> int:
        return int(stage.usage(ATTACKER)["cost_ns"])

    stage.answers(300)
    wait_for("they have cost much", lambda: cost_ns() > 500_000_000)
    # A quarter of the time, what is had in advance, and one request.
    cost, wall = cost_ns(), time.monotonic_ns() - began
    assert cost < wall / 4 + 50_000_000 + 200_000_000, (cost, wall)
    assert tasks


def test_a_daemon_that_is_flooded_is_no_real_time_hog(stage: Stage) -> None:
    """With no task open, too: connections without end, made by a user, run it under the common policy."""
    stage.daemon.start(mode="--system")
    path = stage.daemon.socket
    pid = stage.daemon.process.pid

    def policy() -> int:
        return os.sched_getscheduler(pid) & ~0x40000000

    if policy() != os.SCHED_FIFO:
        pytest.skip("the daemon may not have real-time priority here")

    def main(go: Callable[[], None]) -> None:
        go()
        while True:
            with contextlib.suppress(OSError), contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) as s:
                s.connect(str(path))

    attacks = [stage.attack(main) for _ in range(2)]
    def used() -> int:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])

    began, urgent = time.monotonic_ns(), 0
    while time.monotonic_ns() < began + 3_000_000_000:
        before, fifo = used(), policy() == os.SCHED_FIFO
        time.sleep(0.02)
        if fifo and policy() == os.SCHED_FIFO:
            urgent += used() - before
    part = urgent / (time.monotonic_ns() - began)
    assert part < 0.4, f"{part:.0%} of a processor at real-time priority"
    for child in attacks:
        child.kill()
    wait_for("it is real-time again", lambda: policy() == os.SCHED_FIFO)


def test_invented_gpu_names_of_one_user_leave_room_for_others(stage: Stage) -> None:
    """A quota of names; `place` makes none; what is counted of others stays."""
    stage.daemon.write_config("[Daemon]\nGPUNames=any\n")
    stage.daemon.start(mode="--system")
    path = stage.daemon.socket
    assert stage.as_victim(lambda c: c.open(gpu="mine"))["ok"]

    def main(go: Callable[[], None]) -> None:
        kept, refused = [], None
        for number in range(40):
            connection = Connection(path)
            reply = connection.open(gpu=f"phantom-{number}")
            kept.append(connection)
            refused = refused or (None if reply["ok"] else reply["message"])
        assert refused and "one user" in refused, refused
        for number in range(100):
            Connection(path).ask("place", gpu=f"placed-{number}")
        go()
        signal.pause()

    stage.attack(main)
    names = [g["gpu"] for g in stage.daemon.ask("gpu-list")["gpus"]]
    assert "mine" in names and not [n for n in names if n.startswith("placed")]
    assert stage.as_victim(lambda c: c.open(gpu="another"))["ok"]
    assert stage.daemon.ask("vgpu-create", vgpu="v", gpu="of-root")["ok"]
    reply = stage.as_victim(lambda c: c.open(gpu="ffff:ff:1f.7"))
    assert reply["error"] == "ENODEV", reply


@pytest.mark.slow
def test_tasks_of_many_users_leave_room_for_the_next_one(stage: Stage) -> None:
    """No user takes more than is left: the fifth still gets tasks, and root has a reserve."""
    many_files()
    stage.daemon.start(mode="--system")
    path = stage.daemon.socket

    def main(go: Callable[[], None]) -> Any:
        many_files()
        kept = []
        for _ in range(1100):
            connection = Connection(path)
            kept.append(connection)
            with contextlib.suppress(OSError):
                connection.send(b'{"op": "open"}')
            reply, fds = connection.receive()
            for fd in fds:
                os.close(fd)
            if reply is None or not reply["ok"]:
                break
        go()
        signal.pause()

    for number in range(4):
        stage.attack(main, ATTACKER + 10 + number)
    assert stage.as_victim(lambda c: c.open())["ok"]
    assert stage.daemon.ask("limits")["tasks"]["used"] > 3000
    for _ in range(100):
        stage.daemon.task()


def test_an_inherited_connection_has_no_more_rights_when_its_process_becomes_another_program(stage: Stage) -> None:
    """The process that connected executes a set-user-ID program; its child asks on the socket for a priority."""
    stage.daemon.start(mode="--system")
    path = stage.daemon.socket

    def main(go: Callable[[], None]) -> Any:
        connection = Connection(path)
        assert connection.open()["ok"]
        connection.socket.set_inheritable(True)
        result, write_end = os.pipe()
        parent = os.fork()
        if parent == 0:
            # The child of the one that connected.
            os.close(result)
            connection_pid = os.getppid()
            for _ in range(500):
                with contextlib.suppress(OSError):
                    if "CapEff:\t0000000000000000" not in Path(f"/proc/{connection_pid}/status").read_text():
                        break
                time.sleep(0.01)
            answers = [connection.ask("hello")["you"]["may_raise"], connection.ask("set", priority=50)]
            os.write(write_end, json.dumps(answers).encode())
            os._exit(0)
        os.close(write_end)
        if os.fork() == 0:
            text = os.read(result, 65536)
            (stage.daemon.folder / "out").write_bytes(text)
            os._exit(0)
        go()
        terminal, _ = os.openpty()
        os.dup2(terminal, 0)
        os.execvp("su", ["su", "-c", "true"])

    out = stage.daemon.folder / "out"
    out.touch()
    out.chmod(0o666)
    stage.attack(main)
    wait_for("the child has asked", lambda: out.read_text())
    may_raise, reply = json.loads(out.read_text())
    assert (may_raise, reply.get("error")) == (False, "EPERM")


def test_a_message_without_bytes_is_answered(stage: Stage) -> None:
    """It is no request, and not the end."""
    stage.daemon.start(mode="--system")

    def empty(connection: Connection) -> Any:
        connection.socket.sendmsg([b""], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0]))])
        return connection.receive()[0]

    assert stage.as_victim(empty)["error"] == "EBADMSG"


def run_as(stage: Stage, *arguments: str) -> Any:
    """`rtxg run` as the other user; its exit status and what it said."""

    def main() -> Any:
        command = [str(BUILD / "cli/rtxg"), *arguments]
        done = subprocess.run(command, env=stage.daemon.environment, cwd="/", capture_output=True,
                              text=True, timeout=60, check=False)
        return [done.returncode, done.stdout, done.stderr]

    return stage.run(VICTIM, main).result()


def test_a_program_that_is_refused_is_not_started(stage: Stage) -> None:
    """A vGPU of others, a priority, a GPU that the vGPU is not for: 125, and UNMANAGED only if that was said."""
    stage.daemon.write_config("[VGPU camera]\nUsers=root\n[VGPU mine]\n[VGPU matched]\nUsers=root\n")
    stage.daemon.start(mode="--system")
    run = ("run", "--no-layer")
    for refused in (("-v", "camera"), ("-p", "50"), ("-v", "mine", "-p", "50"), ("-v", "absent")):
        status, out, error = run_as(stage, *run, *refused, "--", "echo", "ran")
        assert (status, out) == (125, ""), (refused, error)
        status, out, error = run_as(stage, *run, "--fail", "open", *refused, "--", "echo", "ran")
        assert (status, out) == (0, "ran\n"), (refused, error)
        assert "UNMANAGED because refused" in error
    assert run_as(stage, *run, "-v", "mine", "--", "echo", "ran") == [0, "ran\n", ""]


def test_a_process_that_was_refused_is_listed_with_the_reason(stage: Stage) -> None:
    """By the daemon, while it runs and until it has a task; a flood of one user's leaves another's."""
    stage.daemon.write_config("[VGPU camera]\nUsers=root\n")
    stage.daemon.start(mode="--system")
    path = stage.daemon.socket

    def refused(go: Callable[[], None]) -> None:
        for _ in range(30):
            if os.fork() == 0:
                break
        assert Connection(path).open(vgpu="camera")["error"] == "EACCES"
        go()
        signal.pause()

    victim = stage.attack(refused, VICTIM)
    wait_for("it is listed", lambda: stage.daemon.ask("task-list")["refused"])
    stage.attack(refused)
    wait_for("they are listed", lambda: len(stage.daemon.ask("task-list")["refused"]) == 16)
    listed = stage.daemon.ask("task-list")["refused"]
    assert sum(r["uid"] == VICTIM for r in listed) == 8
    assert all("camera" in r["message"] and r["error"] == "EACCES" for r in listed)
    assert victim


ODD = [b"\xff\xfe", b"\x1b[2J", "\x9b2J".encode(), "\u202eabc".encode(), "\u061cabc".encode()]


@pytest.mark.parametrize("name", ODD)
def test_no_name_hides_a_process_or_commands_a_terminal(stage: Stage, name: bytes) -> None:
    """The name of a process may be any bytes: each list and JSON has it, and none as it is."""
    stage.daemon.start(mode="--system")
    path = stage.daemon.socket

    def main(go: Callable[[], None]) -> None:
        connection = Connection(path)
        ctypes.CDLL(None).prctl(15, name, 0, 0, 0)  # PR_SET_NAME
        assert connection.open()["ok"]
        go()
        signal.pause()

    stage.attack(main)
    comm = stage.daemon.ask("task-list")["tasks"][0]["comm"]
    assert "\\x" in comm and comm.isprintable(), repr(comm)
    for command in (["ps"], ["ps", "-J"], ["top", "-J", "-n", "1"], ["history"], ["history", "-J"]):
        done = subprocess.run([BUILD / "cli/rtxg", *command], env=stage.daemon.environment, capture_output=True,
                              timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        assert name not in done.stdout, command
        done.stdout.decode()


@pytest.mark.parametrize("name", ODD[2:])
def test_a_gpu_has_no_such_name(stage: Stage, name: bytes) -> None:
    """A name that a user's task gives to a GPU reaches every terminal."""
    stage.daemon.start(mode="--system")
    reply = stage.as_victim(lambda c: c.open(gpu="g" + name.decode()))
    assert reply["error"] == "EINVAL" and reply["message"].isprintable(), reply
