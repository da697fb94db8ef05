# SPDX-License-Identifier: MIT
"""The daemon as a service manager and other users see it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import BUILD, IN_FLIGHT, PATIENCE_S, Connection, Daemon, wait_for

NOBODY = 65534


def test_socket_activation_and_watchdog(daemon: Daemon) -> None:
    """The socket comes from outside and is left there; READY=1, then WATCHDOG=1 again and again, then STOPPING=1."""
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind(str(daemon.folder / "notify"))
    notify.settimeout(PATIENCE_S)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(daemon.socket))
    listener.listen(10)
    script = 'exec 3<&"$FD"; export LISTEN_FDS=1 LISTEN_PID=$$; exec "$@"'
    environment = daemon.environment | {
        "NOTIFY_SOCKET": str(daemon.folder / "notify"), "WATCHDOG_USEC": "200000", "FD": str(listener.fileno()),
    }
    daemon.process = subprocess.Popen(
        ["bash", "-c", script, "bash", BUILD / "daemon/rtxgd", "--config-root", daemon.folder, "--idle-exit", "0"],
        env=environment, pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL)
    assert notify.recv(1000).startswith(b"READY=1")
    assert daemon.ask("hello")["socket"] == str(daemon.socket)
    for _ in range(3):
        assert notify.recv(1000) == b"WATCHDOG=1"
    assert daemon.kill(signal.SIGTERM) == 0
    said = [notify.recv(1000)]
    while said[-1] == b"WATCHDOG=1":
        said.append(notify.recv(1000))
    assert said[-1] == b"STOPPING=1"
    assert daemon.socket.exists()
    notify.close()
    listener.close()


def test_idle_exit(daemon: Daemon) -> None:
    """The daemon ends when idle, but not while a client is connected or while its end would lose an object."""
    daemon.start("--idle-exit", "1")
    too_long_s = 1.7
    assert daemon.process is not None
    connection = daemon.connect()
    assert connection.ask("vgpu-create", vgpu="kept")["ok"]
    with pytest.raises(subprocess.TimeoutExpired):
        daemon.process.wait(too_long_s)
    connection.close()
    daemon.connections.clear()
    with pytest.raises(subprocess.TimeoutExpired):
        daemon.process.wait(too_long_s)
    assert daemon.ask("vgpu-remove", vgpu="kept")["ok"]
    assert daemon.process.wait(PATIENCE_S) == 0
    assert not daemon.socket.exists()


def test_library_starts_one_daemon(daemon: Daemon) -> None:
    """Ten programs that start together with no daemon about share one, which the library started."""
    environment = {k: v for k, v in daemon.environment.items() if k != "RTXG_SOCKET"}
    environment |= {"XDG_RUNTIME_DIR": str(daemon.folder), "RTXG_DAEMON": str(BUILD / "daemon/rtxgd")}
    daemon.folder.chmod(0o700)
    programs = [subprocess.Popen([BUILD / "tests/conform/device", "-u", "100", "-n", "20", "-q"], env=environment, text=True,
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(10)]
    daemon.children += programs
    for program in programs:
        assert program.stdout is not None and program.stdout.readline() == "ready\n"
    daemon.socket = daemon.folder / "rtxg/rtxgd.sock"
    assert len(daemon.tasks()) == 10
    for program in programs:
        out, error = program.communicate("go\n", timeout=PATIENCE_S)
        assert json.loads(out)["launches"] == 20, error
    pid = daemon.ask("hello")["pid"]
    assert daemon.ask("shutdown")["ok"] or wait_for("tasks have ended", lambda: daemon.ask("shutdown")["ok"])
    wait_for("it has ended", lambda: not Path(f"/proc/{pid}").exists())


def test_socket_path_that_is_no_socket(daemon: Daemon) -> None:
    """A file that is in the way of the socket is named and left as it is."""
    daemon.socket.write_text("precious")
    done = subprocess.run([BUILD / "daemon/rtxgd", "--socket", daemon.socket], env=daemon.environment, capture_output=True,
                          text=True, timeout=60, check=False)
    assert done.returncode == 1 and f"{daemon.socket} exists and is not a socket" in done.stderr
    assert daemon.socket.read_text() == "precious"


def test_successors_socket_stays(daemon: Daemon) -> None:
    """A daemon whose socket another one has replaced does not remove that one's when it ends."""
    daemon.start()
    daemon.socket.unlink()
    successor = daemon.folder / "other.sock"
    other = subprocess.Popen([BUILD / "daemon/rtxgd", "--socket", successor, "--config-root", daemon.folder / "root"],
                             env=daemon.environment, stderr=subprocess.DEVNULL, text=True)
    daemon.children.append(other)
    wait_for("the other listens", successor.exists)
    successor.rename(daemon.socket)
    assert daemon.kill(signal.SIGTERM) == 0
    assert daemon.socket.exists()


def test_doctor_tells_the_truth(daemon: Daemon) -> None:
    """The scheduling policy is the one that the kernel has, and remedies name commands that exist."""
    daemon.write_config("[VGPU v]\nWhat=1\n")
    daemon.start()
    checks = {c["check"]: c for c in daemon.ask("doctor")["checks"]}
    assert daemon.process is not None
    policy = os.sched_getscheduler(daemon.process.pid) & ~os.SCHED_RESET_ON_FORK
    name = {os.SCHED_FIFO: "SCHED_FIFO", os.SCHED_RR: "SCHED_RR", os.SCHED_OTHER: "SCHED_OTHER"}[policy]
    assert checks["real-time"]["detail"].endswith(f" {name}")
    assert checks["real-time"]["ok"] == (policy != os.SCHED_OTHER)
    assert '"rtxg host reload"' in checks["configuration"]["remedy"]


# --- other users ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def public(daemon: Daemon) -> Iterator[Daemon]:
    """A daemon whose socket other users can reach."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    daemon.folder = Path(tempfile.mkdtemp(prefix="rtxg-public-"))
    daemon.folder.chmod(0o755)
    daemon.socket = daemon.folder / "rtxgd.sock"
    daemon.log = daemon.folder / "log"
    yield daemon
    daemon.stop()
    shutil.rmtree(daemon.folder)


def as_nobody(daemon: Daemon, what: Callable[[Connection], Any]) -> Any:
    """Run a function in a child of the user `nobody`, on a new connection; the function's result."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.write(write_end, json.dumps(what(Connection(daemon.socket))).encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as file:
        text = file.read()
    os.waitpid(child, 0)
    assert text, "the child failed"
    return json.loads(text)


def test_system_daemon_and_users(public: Daemon) -> None:
    """On the system's daemon any user may look and use. Changes of shared objects, and raised priorities, are refused in words."""
    public.write_config("[VGPU mine]\nUsers=root\n[VGPU ours]\nTaskPriority=10\n[Daemon]\nTasksPerUser=3\n")
    public.start(mode="--system")
    own = public.task()
    assert own.ask("set", priority=90)["ok"]
    for op, members in (("vgpu-create", {"vgpu": "x"}), ("vgpu-set", {"vgpu": "ours", "min_ppm": 1}), ("vgpu-remove", {"vgpu": "ours"}),
                        ("gpu-set", {"policy": "null"}), ("pool-create", {"pool": "p", "gpus": ["0"]}), ("reload", {}), ("shutdown", {})):
        reply = as_nobody(public, lambda c, op=op, members=members: c.ask(op, **members))
        assert (reply["ok"], reply["error"]) == (False, "EPERM") and "rtxg" in reply["message"], (op, reply)
    assert as_nobody(public, lambda c: c.ask("stats"))["ok"]
    hello = as_nobody(public, lambda c: c.ask("hello"))
    assert (hello["scope"], hello["you"]["uid"], hello["you"]["administrator"], hello["you"]["may_raise"]) == ("system", NOBODY, False, False)
    task = public.tasks()[0]["task"]
    assert as_nobody(public, lambda c: c.ask("task-set", task=task, priority=1))["error"] == "EACCES"
    assert as_nobody(public, lambda c: c.open(vgpu="mine"))["error"] == "EACCES"
    assert as_nobody(public, lambda c: c.open(vgpu="ours", priority=11))["error"] == "EPERM"
    replies = as_nobody(public, lambda c: [c.open(vgpu="ours"), c.ask("set", priority=5), c.ask("set", priority=10), c.ask("set", priority=11)])
    assert [r["ok"] for r in replies] == [True, True, True, False]
    assert replies[3]["error"] == "EPERM"

    def four(connection: Connection) -> list[Any]:
        others = [Connection(public.socket) for _ in range(4)]
        return [c.open(vgpu="ours") for c in others]

    wait_for("the last child's task is gone", lambda: len(public.tasks()) == 1)
    assert [r["ok"] for r in as_nobody(public, four)] == [True, True, True, False]
    public.healthy()


def test_a_move_that_is_taken_back_brings_no_priority(public: Daemon) -> None:
    """While a launch holds the task where it is, a move there and back keeps that vGPU's limit."""
    public.write_config("[VGPU hi]\nTaskPriority=50\n[VGPU lo]\nTaskPriority=5\n")
    public.start(mode="--system")

    def turn(connection: Connection) -> list[Any]:
        task = connection.open(vgpu="lo")["task"]
        connection.put(IN_FLIGHT, 1)
        there = connection.ask("task-set", task=task, vgpu="hi", priority=50)
        back = connection.ask("task-set", task=task, vgpu="lo")
        connection.put(IN_FLIGHT, 0)
        connection.ring()
        wait_for("the move", lambda: connection.ask("task-list", task=task)["tasks"][0]["vgpu"] == "lo")
        return [there, back, connection.ask("task-list", task=task)["tasks"][0]["priority"]]

    there, back, priority = as_nobody(public, turn)
    assert there["ok"] and back["ok"]
    assert priority == 5


def test_a_move_carries_no_priority_above_the_new_vgpus(public: Daemon) -> None:
    """A user cannot bring a priority into a vGPU in which a task could not be opened with it; root can."""
    public.write_config("[VGPU hi]\nTaskPriority=50\n[VGPU lo]\nTaskPriority=5\n")
    public.start(mode="--system")

    def moves(connection: Connection) -> list[Any]:
        task = connection.open(vgpu="hi")["task"]
        move = [connection.ask("task-set", task=task, vgpu="lo", priority=6),
                connection.ask("task-set", task=task, vgpu="lo")]
        listed = connection.ask("task-list", task=task)["tasks"][0]
        return [*move, listed, connection.ask("set", priority=6), connection.ask("set", priority=5)]

    refused, moved, listed, above, at = as_nobody(public, moves)
    assert refused["error"] == "EPERM" and "priority 6 is above the 5" in refused["message"]
    assert moved["ok"] and (listed["vgpu"], listed["priority"]) == ("lo", 5)
    assert above["error"] == "EPERM" and at["ok"]
    public.task(vgpu="hi")
    task = public.tasks(vgpu="hi")[0]["task"]
    assert public.ask("task-set", task=task, vgpu="lo")["ok"]
    assert public.tasks(task=task)[0]["priority"] == 50


def test_a_command_line_is_shown_to_its_owner_and_root_only(public: Daemon) -> None:
    """rtxgd reads /proc as root, and does not lend that right to another user."""
    public.start(mode="--system")
    public.task()
    listed = public.tasks()[0]
    own = Path("/proc/self/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode()
    assert listed["command"] == own[:len(listed["command"])] and "pytest" in listed["command"]
    assert listed["exe"] == os.readlink("/proc/self/exe")

    def both(connection: Connection) -> list[Any]:
        assert connection.open()["ok"]
        return list(connection.ask("task-list")["tasks"])

    theirs, mine = sorted(as_nobody(public, both), key=lambda task: task["uid"])
    assert (theirs["uid"], theirs["comm"], theirs["exe"], theirs["command"]) == (0, listed["comm"], "", "")
    # After setuid() the kernel gives the folder in /proc to root: even its owner could not read the path.
    assert (mine["uid"], mine["comm"]) == (NOBODY, listed["comm"])


def test_a_command_line_does_nothing_to_a_terminal(daemon: Daemon) -> None:
    """Controls, marks of direction and bytes that are not UTF-8 come as \\xNN, white space as a space.

    The line has an end, and everything else comes unchanged.
    """
    daemon.start()
    odd = [b"a\x1b[2Jb", "é\u202eç".encode(), b"\xff\xc3", "\x9b".encode(), b"one\n\ttwo", b"l" * 9000]
    script = ("import signal, conftest, pathlib, sys; c = conftest.Connection(pathlib.Path(sys.argv[1])); "
              "print(c.open()['ok'], flush=True); signal.pause()")
    child = subprocess.Popen([sys.executable, "-c", script, daemon.socket, *odd], text=True, stdout=subprocess.PIPE,
                             env=daemon.environment | {"PYTHONPATH": str(Path(__file__).parent)})
    daemon.children.append(child)
    assert child.stdout is not None and child.stdout.readline() == "True\n"
    command = daemon.tasks(pid=child.pid)[0]["command"]
    assert command.startswith(f"{sys.executable} -c {script} {daemon.socket} "), command
    assert r" a\x1b[2Jb é\xe2\x80\xaeç \xff\xc3 \xc2\x9b one  two lll" in command
    assert len(command.encode()) < 2048


def test_user_daemon_and_others(public: Daemon) -> None:
    """A user's own daemon refuses other users, even if they can reach its socket."""
    public.start()
    public.socket.chmod(0o666)
    reply = as_nobody(public, lambda c: c.receive()[0])
    assert (reply["ok"], reply["error"]) == (False, "EACCES")
    public.healthy()


def test_folder_of_somebody_else(daemon: Daemon) -> None:
    """The library does not connect into a folder that others could have made."""
    folder = daemon.folder / "rtxg"
    folder.mkdir()
    folder.chmod(0o777)
    environment = {k: v for k, v in daemon.environment.items() if k != "RTXG_SOCKET"} | {"XDG_RUNTIME_DIR": str(daemon.folder)}
    if Path("/run/rtxg/rtxgd.sock").exists():
        pytest.skip("a system daemon runs here, which comes first")
    done = subprocess.run([BUILD / "tests/conform/device", "-n", "1"], env=environment, capture_output=True, text=True,
                          timeout=60, check=False)
    assert done.returncode == 1
    assert (
        str(folder) in done.stderr
        and "0700" in done.stderr
        and "set XDG_RUNTIME_DIR" in done.stderr
    )
    done = subprocess.run(
        [BUILD / "daemon/rtxgd"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert (
        str(folder) in done.stderr
        and "mode 0777" in done.stderr
        and "set XDG_RUNTIME_DIR" in done.stderr
    )
