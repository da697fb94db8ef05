# SPDX-License-Identifier: MIT
"""What only its maker can answer is not asked for in the thread that hands permits over."""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from held import (
    FLUSH,
    GETATTR,
    WRITE,
    WRITEBACK_CACHE,
    asked,
    has_a_held_thread,
    held_file,
    hold_exec,
    hold_memory,
    is_held,
)
from test_attack import many_files
from users import ATTACKER, BUILD, Connection, Stage, become, wait_for


def start(
    stage: Stage,
    silent: int,
    what: Callable[[Connection, int, Callable[[], None]], None],
    flags: int = 0,
) -> int:
    """Run it as the attacker, with a file that is silent; its process."""
    if stage.daemon.process is None:
        stage.daemon.start(mode="--system")
    path, place = stage.daemon.socket, stage.daemon.folder / "held"

    def main(go: Callable[[], None]) -> None:
        try:
            file = held_file(place, silent, flags=flags)
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
    return child.pid


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
    stage.answers()


@pytest.mark.parametrize("hold", [hold_memory, hold_exec])
def test_a_process_that_is_held_up_when_it_is_accepted_delays_no_other_user(
    stage: Stage, hold: Callable[[int], NoReturn]
) -> None:
    """It has connected before; the daemon asks the kernel who and where it is."""
    stage.daemon.start(mode="--system")
    path, place = stage.daemon.socket, stage.daemon.folder / "held"

    def main(go: Callable[[], None]) -> None:
        try:
            file = held_file(place, WRITE)
        except OSError:
            go()
            os._exit(77)
        become(ATTACKER)
        connection = Connection(path)
        connection.socket.set_inheritable(True)
        go()
        hold(file)

    with stage.stopped():
        child = stage.attack(main, uid=0)
        wait_for("it is held", lambda: child.runs() and is_held(child.pid))
    stage.answers()
    assert is_held(child.pid)


def test_a_file_that_does_not_close_holds_up_no_program_of_the_daemons(stage: Stage) -> None:
    """A program that is started closes what it is not to have, and would wait for each of these."""

    def what(connection: Connection, file: int, go: Callable[[], None]) -> None:
        for _ in range(5):
            Connection(stage.daemon.socket).send(b'{"op": "hello"}', (file,))
        go()

    start(stage, FLUSH, what)
    wait_for("they wait", lambda: stage.usage(ATTACKER)["descriptors"]["used"] >= 5)
    reply = stage.as_victim(lambda c: c.open(gpu="phantom"))
    assert reply["error"] == "ENODEV", reply
    assert stage.daemon.ask("limits")["opencl"]["whole"], reply


def test_a_file_that_does_not_close_keeps_no_thread_raised(stage: Stage) -> None:
    """A thread of the daemon's closes it and cannot end."""

    def what(connection: Connection, file: int, go: Callable[[], None]) -> None:
        for _ in range(5):
            Connection(stage.daemon.socket).send(b'{"op": "hello"}', (file,))
        go()

    done = threading.Event()

    def sleeps(priority: int) -> int:
        thread = threading.Thread(target=done.wait)
        thread.start()
        assert thread.native_id
        os.sched_setscheduler(thread.native_id, os.SCHED_FIFO, os.sched_param(priority))
        return thread.native_id

    def acquire(thread: int) -> Connection:
        connection = stage.daemon.task(priority=5)
        request = {"op": "pool-acquire", "pool": "one", "thread": thread}
        connection.send(json.dumps(request).encode())
        return connection

    start(stage, FLUSH, what)
    wait_for("they wait", lambda: stage.usage(ATTACKER)["descriptors"]["used"] >= 5)
    try:
        holder, waiter = sleeps(10), sleeps(60)
        assert stage.daemon.ask("pool-create", pool="one", gpus=["only"])["ok"]
        reply, _ = acquire(holder).receive()
        assert reply and reply["ok"], reply
        acquire(waiter)
        wait_for("it inherits", lambda: os.sched_getparam(holder).sched_priority == 60)
        process = stage.daemon.process
        assert process is not None
        process.send_signal(signal.SIGKILL)
        wait_for("it is set back", lambda: os.sched_getparam(holder).sched_priority == 10)
        assert process.poll() is None, "the file is held"
        stage.daemon.process = None
        for child in stage.children:
            child.kill()
        process.wait(60)
    finally:
        done.set()


def take_and_close(stage: Stage) -> None:
    """A file comes with a request, and is closed."""

    def what(connection: Connection, file: int, go: Callable[[], None]) -> None:
        connection.send(b'{"op": "hello"}', (file,))
        go()

    start(stage, FLUSH, what)


def end_over_unread(stage: Stage) -> None:
    """A connection ends over a file that was not read, and of which something is to be written."""
    place = stage.daemon.folder / "held"

    def what(connection: Connection, file: int, go: Callable[[], None]) -> None:
        connection.send(b"no JSON")
        connection.send(b'{"op": "hello"}', (file,))
        written = os.open(place, os.O_RDWR)
        os.close(file)
        os.write(written, bytes(mmap.PAGESIZE))
        go()

    stage.daemon.start(mode="--system")
    with stage.stopped():
        start(stage, WRITE, what, WRITEBACK_CACHE)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("hold", [take_and_close, end_over_unread])
def test_a_daemon_that_ends_while_a_file_does_not_close_lets_go_of_its_clients(
    stage: Stage, hold: Callable[[Stage], None], number: int
) -> None:
    """They see its end at once, and the next one listens at its socket."""
    hold(stage)
    last = stage.daemon.process
    assert last is not None
    wait_for("a thread is held", asked(stage.daemon.folder / "held").exists)
    task, client = stage.daemon.task(), stage.daemon.connect()
    assert client.ask("hello")["ok"]
    last.send_signal(number)
    for connection in (task, client):
        assert connection.receive() == (None, [])
    wait_for("it is still held", lambda: has_a_held_thread(last.pid))
    stage.daemon.process = None
    stage.daemon.start(mode="--system")
    stage.answers()
    assert has_a_held_thread(last.pid)
    for child in stage.children:
        child.kill()
    last.wait(60)


def test_who_is_refused_for_such_files_takes_few_processes(stage: Stage) -> None:
    """The connections carry more of them, so that another process closes these, and is held up."""
    many_files()
    stage.daemon.start(mode="--system")
    path, place = stage.daemon.socket, stage.daemon.folder / "written"
    (go, write_end), (gone, told) = os.pipe(), os.pipe()

    def main(ready: Callable[[], None]) -> None:
        try:
            flushed = held_file(stage.daemon.folder / "held", FLUSH)
            written = held_file(place, WRITE, flags=WRITEBACK_CACHE)
        except OSError:
            ready()
            os._exit(77)
        become(ATTACKER)
        many_files()
        kept = [Connection(path) for _ in range(80)]
        for connection in kept:
            connection.send(b'{"op": "hello"}', (flushed,))
        ready()
        os.read(go, 1)
        for _ in range(900):
            one = os.open(place, os.O_RDWR)
            kept.append(Connection(path))
            kept[-1].send(b'{"op": "hello"}', (one,))
            os.close(one)
        os.write(written, bytes(mmap.PAGESIZE))
        os.write(told, b".")
        signal.pause()

    child = stage.attack(main, uid=0)
    if os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        pytest.skip("no file system of one's own here")
    (closer,) = wait_for("it begins", lambda: stage.daemon.started(b"--close-descriptors"))
    wait_for("they are too many", lambda: stage.usage(ATTACKER)["descriptors"]["used"] > 64)
    time.sleep(0.3)  # and none has closed for as long as that
    os.close(told)
    with stage.stopped():
        os.write(write_end, b".")
        assert os.read(gone, 1)
    for _ in range(50):  # they come in parts
        with stage.stopped():
            time.sleep(0.01)
        time.sleep(0.0005)
    stage.answers()

    def children() -> list[int]:
        return [int(pid) for pid in Path(f"/proc/{closer}/task/{closer}/children").read_text().split()]

    wait_for("they are closed", lambda: [pid for pid in children() if has_a_held_thread(pid)])
    stage.answers()
    assert len(children()) <= 4, (len(children()), "of one user")

    def ask(ready: Callable[[], None]) -> Any:
        connection = Connection(path)
        connection.send(b'{"op": "hello"}')
        ready()
        closed = select.poll()
        closed.register(connection.socket, 0)
        closed.poll()
        return connection.receive()[0]

    # Who sends none is told why, however many wait.
    with stage.stopped():
        asks = stage.attack(ask)
    reply = asks.result()
    assert reply and reply["error"] == "EBUSY", reply
    stage.answers()


HOLDS = [hold_memory, hold_exec]


def start_held(stage: Stage, hold: Callable[[int], NoReturn]) -> int:
    """A process of the attacker's that is a task, and is held up."""

    def what(connection: Connection, file: int, go: Callable[[], None]) -> None:
        assert connection.open()["ok"]
        held = os.getpid()
        if os.fork() == 0:
            wait_for("the process is held up", lambda: is_held(held))
            go()
            signal.pause()
        hold(file)

    return start(stage, WRITE, what)


@pytest.mark.parametrize("hold", HOLDS)
def test_a_process_that_holds_up_what_is_read_of_it_delays_no_other_user(
    stage: Stage, hold: Callable[[int], NoReturn]
) -> None:
    """It is listed all the same, with what can be told, and every list comes in time."""
    pid = start_held(stage, hold)
    for _ in range(3):
        listed = stage.daemon.ask("task-list")["tasks"]
        assert [(t["pid"], t["uid"]) for t in listed] == [(pid, ATTACKER)]
    stage.answers()
    # The command line of others is told as ever.
    own = stage.daemon.task()
    listed = {t["pid"]: t for t in stage.daemon.ask("task-list")["tasks"]}
    assert "python" in listed[os.getpid()]["command"] and own, listed


@pytest.mark.parametrize(
    "request_",
    [
        {"op": "open"},
        {"op": "open", "vgpu": "of-root"},
        {"op": "place"},
        {"op": "cgroup-bind", "vgpu": "sleepers", "cgroup": "/own"},
        {"op": "set", "vgpu": "sleepers"},
        {"op": "pool-acquire", "pool": "p"},
    ],
    ids=lambda request_: f"{request_['op']} {request_.get('vgpu', '')}".strip(),
)
@pytest.mark.parametrize("hold", HOLDS)
def test_a_request_of_such_a_process_delays_no_other_user(
    stage: Stage, hold: Callable[[int], NoReturn], request_: dict[str, Any]
) -> None:
    """Where it belongs, what is kept of it, why it is refused, and which thread it names."""
    stage.daemon.write_config(
        "[GPU 0]\n[VGPU sleepers]\n[VGPU of-root]\nUsers=root\n[Pool p]\nGPUs=0\n"
        "[Match]\nExec=/usr/bin/sleep\nVGPU=sleepers\n"
    )

    def what(connection: Connection, file: int, go: Callable[[], None]) -> None:
        assert connection.open()["ok"]
        if request_["op"] not in ("set", "pool-acquire"):
            connection = Connection(stage.daemon.socket)
        held = os.getpid()
        if os.fork() == 0:
            wait_for("the process is held up", lambda: is_held(held))
            thread = {"thread": held} if request_["op"] == "pool-acquire" else {}
            connection.send(json.dumps(request_ | thread).encode())
            go()
            signal.pause()
        hold(file)

    start(stage, WRITE, what)
    stage.answers()
    assert stage.daemon.ask("task-list")["ok"]


@pytest.mark.parametrize("hold", HOLDS)
def test_a_task_that_is_moved_while_it_is_held_up_delays_no_other_user(
    stage: Stage, hold: Callable[[int], NoReturn]
) -> None:
    """What is kept for the next daemon has its process's birth. The next one asks for that, too."""
    stage.daemon.write_config("[VGPU sleepers]\n")
    pid = start_held(stage, hold)
    assert stage.daemon.ask("task-set", pid=pid, vgpu="sleepers")["ok"]
    # Where it belongs is kept all the same, and again with its birth, should that be told.
    assert f'"pid":{pid},' in Path(f"{stage.daemon.socket}.state").read_text()
    stage.answers()
    stage.daemon.kill()
    stage.daemon.start(mode="--system")
    stage.answers()
    assert is_held(pid)


@pytest.mark.parametrize("hold", HOLDS)
def test_root_sees_the_programs_that_use_a_gpu_beside_one_that_holds_its_answer_up(
    stage: Stage, hold: Callable[[int], NoReturn]
) -> None:
    """`rtxg ps -u` looks at every process; one that does not answer is counted."""
    start_held(stage, hold)
    done = subprocess.run([BUILD / "cli/rtxg", "ps", "-u"], env=stage.daemon.environment,
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("silent", "hold", "answers"),
    [
        # What it takes is no file of the driver's: EBADF.
        (GETATTR, None, ["0 9", "0 9"]),
        # Its descriptors do not need the lock of its memory.
        (WRITE, hold_memory, ["0 9", "0 9"]),
        # The first call finds it out, and then it is not asked: ETIMEDOUT or what was listed;
        # EBUSY.
        (WRITE, hold_exec, None),
    ],
)
def test_the_lever_waits_for_no_process_that_holds_its_descriptors_up(
    stage: Stage, silent: int, hold: Callable[[int], NoReturn] | None, answers: list[str] | None
) -> None:
    """It looks for the driver's among all of them, and takes one."""
    program = BUILD / "tests/levers/descriptors_of"
    if not program.exists():
        pytest.skip("built without the NVIDIA lever")

    def what(connection: Connection, file: int, go: Callable[[], None]) -> None:
        held = os.getpid()
        if hold and os.fork() == 0:
            wait_for("the process is held up", lambda: is_held(held))
            go()
            signal.pause()
        if hold:
            hold(file)
        go()

    pid = start(stage, silent, what)
    done = subprocess.run([program, str(pid)], capture_output=True, text=True, timeout=30,
                          check=False)
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and len(lines) == 2, (lines, done.stderr)
    if answers:
        assert lines == answers
    else:
        assert all(not line.endswith(" 0") for line in lines), lines


def test_the_lever_keeps_no_file_that_does_not_close(stage: Stage) -> None:
    """A program has put one where a file of the driver's was: it is found out, and not waited for."""
    program = BUILD / "tests/levers/descriptors_of"
    if not program.exists():
        pytest.skip("built without the NVIDIA lever")

    def what(connection: Connection, file: int, go: Callable[[], None]) -> None:
        os.dup2(file, 0)
        go()

    pid = start(stage, FLUSH, what)
    with subprocess.Popen([program, str(pid)], stdout=subprocess.PIPE) as lever:
        assert lever.stdout is not None
        said = b""
        # Its files end with it, though a thread stays that closes what was taken.
        while select.select([lever.stdout], [], [], 60)[0]:
            part = os.read(lever.stdout.fileno(), 4096)
            if not part:
                break
            said += part
        lines = said.decode().splitlines()
        # What ended the process has woken the thread, which may not have had a CPU since.
        wait_for("it is still held", lambda: has_a_held_thread(lever.pid))
        for child in stage.children:
            child.kill()
    assert len(lines) == 2 and not part, lines
    assert all(not line.endswith(" 0") for line in lines), lines
