# SPDX-License-Identifier: MIT
"""The device says by itself that launches have completed: a hand-over does not wait for the
program that launched.
"""

from __future__ import annotations

import ctypes
import fcntl
import itertools
import json
import os
import re
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import (
    BUILD,
    GRANTED,
    IN_FLIGHT,
    LANES_AT,
    LAUNCHES,
    PERMIT,
    WANT,
    Connection,
    Daemon,
    wait_for,
)

PROGRAM = BUILD / "tests/lib/stops_after_launch"
SYS_PIDFD_GETFD = 438
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW

#: a bit of the permit: not granted, but likely to be soon
READY = 16

#: more words of a lane (include/uapi/rtxg/page.h)
CLIENT = {
    "in_flight": IN_FLIGHT,
    "want": WANT,
    "launches": LAUNCHES,
    "busy_ns": 88,
    "busy_since": 96,
    "fenced": 116,
    "fence": 120,
}
WIDE = ("launches", "busy_ns", "busy_since", "fence")


class Word:
    """Memory that a device could write, and its interrupt."""

    def __init__(self, seals: int = SEALS, size: int = 4096) -> None:
        self.memory = os.memfd_create("words", os.MFD_ALLOW_SEALING)
        os.ftruncate(self.memory, size)
        fcntl.fcntl(self.memory, fcntl.F_ADD_SEALS, seals)
        self.event = os.eventfd(0, os.EFD_NONBLOCK)

    def reach(self, value: int, offset: int = 0) -> None:
        """The device writes, then raises its interrupt."""
        os.pwrite(self.memory, struct.pack("I", value), offset)
        os.eventfd_write(self.event, 1)


def read(task: Connection, at: int) -> int:
    """A word of the task's page."""
    assert task.page is not None
    return int(struct.unpack_from("I", task.page, LANES_AT + at)[0])


def write(task: Connection, **words: int) -> None:
    """Words of the task's page."""
    assert task.page is not None
    for name, value in words.items():
        size = "Q" if name in WIDE else "I"
        struct.pack_into(size, task.page, LANES_AT + CLIENT[name], value)


def fence(task: Connection, word: Word, lane: int = 0, offset: int = 0) -> None:
    """Tell the daemon of the word and of its interrupt."""
    for request, fd in (
        (b'{"op": "fence", "lane": %d, "offset": %d}' % (lane, offset), word.memory),
        (b'{"op": "fence-event", "lane": %d}' % lane, word.event),
    ):
        reply = task.raw(request, (fd,))
        assert reply and reply["ok"], reply


def wants(task: Connection) -> None:
    """The task asks for a permit, as a launch does."""
    write(task, want=1)
    task.ring()


def has(task: Connection) -> bool:
    """Whether the task may launch."""
    return bool(read(task, PERMIT) & GRANTED)


def launches_one(task: Connection, **words: int) -> int:
    """As librtxg does, which says since when the task uses the engine; which launch it is."""
    launches = read(task, LAUNCHES) + 1
    write(task, busy_since=time.monotonic_ns(), in_flight=1, want=0, launches=launches, **words)
    return launches


def completes(task: Connection) -> None:
    """As librtxg does: how long a use was is known of a lease by what the task says alone."""
    assert task.page is not None
    at = LANES_AT + CLIENT["busy_ns"]
    busy, since = struct.unpack_from("QQ", task.page, at)
    write(task, busy_ns=busy + time.monotonic_ns() - since, busy_since=0, fenced=0, in_flight=0)


def states(daemon: Daemon) -> list[str]:
    """What each task does on the first engine, in the order of their numbers."""
    return [t["engines"][0]["state"] for t in sorted(daemon.tasks(), key=lambda t: t["task"])]


@pytest.fixture
def pair(running: Daemon) -> tuple[Connection, Connection]:
    """A task with a launch in flight that no one takes its permit from, and one that waits."""
    assert running.ask("gpu-set", revoke_timeout_ns=-1)["ok"]
    holder, other = running.task(), running.task()
    wants(holder)
    wait_for("it may launch", lambda: has(holder))
    write(holder, in_flight=1, want=0, launches=1)
    wants(other)
    wait_for("the other waits", lambda: states(running) == ["revoked", "waiting"])
    return holder, other


@pytest.mark.parametrize("offset", [0, 4092])
def test_the_next_task_starts_though_the_holder_never_runs_again(
    running: Daemon, pair: tuple[Connection, Connection], offset: int
) -> None:
    """The holder's page says to the end that a launch is in flight."""
    holder, other = pair
    word = Word()
    fence(holder, word, offset=offset)
    write(holder, fence=2, fenced=1)
    word.reach(1, offset)
    assert states(running) == ["revoked", "waiting"], "the launch had not completed"
    word.reach(2, offset)
    wait_for("the other may launch", lambda: has(other))
    assert not has(holder)
    assert read(holder, IN_FLIGHT) == 1


@pytest.mark.parametrize("early", [0, 100_000])
def test_programs_that_are_alerted_launch_as_often_as_they_want(
    running: Daemon, early: int
) -> None:
    """Three programs with librtxg in turn, each woken ahead of most of its permits."""
    assert running.ask("gpu-set", policy="fifo", ahead_ns=100_000, early_ns=early)["ok"]
    programs = [running.device("-s", "-u", "2000", "-n", "40") for _ in range(3)]
    for program in programs:
        out, said = program.communicate(timeout=120)
        assert program.returncode == 0, said
        assert json.loads(out)["launches"] == 40
    running.healthy()


@pytest.mark.slow
def test_a_word_is_seen_without_interrupt_where_the_end_was_foreseen(running: Daemon) -> None:
    """Two tasks launch in turn, each for as long as ever; the daemon stands ready at the end."""
    assert running.ask("gpu-set", policy="fifo", ahead_ns=1_000_000, revoke_timeout_ns=-1)["ok"]
    tasks, words = [running.task(), running.task()], [Word(), Word()]
    for task, word in zip(tasks, words, strict=True):
        fence(task, word)
        wants(task)
    seen = False
    for turn in itertools.count():
        assert turn < 2000, "the word was never seen without an interrupt"
        wait_for("one may launch", lambda: any(map(has, tasks)))
        mine = 0 if has(tasks[0]) else 1
        holder, other, word = tasks[mine], tasks[1 - mine], words[mine]
        launches = launches_one(holder, fence=read(holder, LAUNCHES) + 1, fenced=1)
        end = time.monotonic() + 0.02
        # a process that sleeps has the CPU sooner, on a busy machine
        time.sleep(0.017)
        while time.monotonic() < end and not read(other, PERMIT) & READY:
            pass
        if read(other, PERMIT) & READY:
            os.pwrite(word.memory, struct.pack("I", launches), 0)
            while time.monotonic() < end + 0.005 and not seen:
                seen = has(other)
        if seen:
            break
        time.sleep(max(0.0, end - time.monotonic()))
        os.pwrite(word.memory, struct.pack("I", launches), 0)
        completes(holder)
        wants(holder)
    assert not has(holder)
    running.healthy()


@pytest.mark.slow
@pytest.mark.parametrize("early", [0, 1_000_000])
def test_the_next_task_has_its_permit_before_the_end(running: Daemon, early: int) -> None:
    """Two tasks launch in turn, each for as long as ever: if it is asked for, and not otherwise."""
    settings = {"ahead_ns": 1_000_000, "early_ns": early, "revoke_timeout_ns": -1}
    assert running.ask("gpu-set", policy="fifo", **settings)["ok"]
    assert running.ask("gpu-list")["gpus"][0]["early_ns"] == early
    tasks = [running.task(), running.task()]
    for task in tasks:
        wants(task)
    wait_for("one may launch", lambda: any(map(has, tasks)))
    mine, seen = 0 if has(tasks[0]) else 1, False
    for _ in range(2000 if early else 20):
        holder, other = tasks[mine], tasks[1 - mine]
        wait_for("it may launch", lambda task=holder: has(task))
        launches_one(holder)
        end = time.monotonic() + 0.02
        while time.monotonic() < end:
            seen = seen or has(other)
        completes(holder)
        holder.ring()
        if seen:
            break
        wants(holder)
        mine = 1 - mine
    assert seen == bool(early)
    running.healthy()


def test_a_launch_that_no_fence_covers_is_waited_for(
    running: Daemon, pair: tuple[Connection, Connection]
) -> None:
    """Two launches in flight, one of them with a fence."""
    holder, other = pair
    word = Word()
    fence(holder, word)
    write(holder, in_flight=2, launches=2, fence=1, fenced=1)
    word.reach(1)
    assert states(running) == ["revoked", "waiting"]
    write(holder, in_flight=1)
    holder.ring()
    wait_for("the other may launch", lambda: has(other))


def test_a_new_word_replaces_the_one_before(
    running: Daemon, pair: tuple[Connection, Connection]
) -> None:
    """And nothing of the old one is kept."""
    holder, other = pair
    assert running.process is not None
    files = Path(f"/proc/{running.process.pid}/fd")
    before = len(list(files.iterdir()))
    old, new = Word(), Word()
    fence(holder, old)
    for _ in range(20):
        fence(holder, new)
    # one event more; the memory needs no descriptor
    wait_for("descriptors are closed", lambda: len(list(files.iterdir())) <= before + 1)
    write(holder, fence=1, fenced=1)
    old.reach(1)
    assert states(running) == ["revoked", "waiting"]
    new.reach(1)
    wait_for("the other may launch", lambda: has(other))


def test_a_task_that_has_gone_leaves_nothing(
    running: Daemon, pair: tuple[Connection, Connection]
) -> None:
    """Its event is readable still, in this process."""
    holder, other = pair
    assert running.process is not None
    word = Word()
    fence(holder, word)
    holder.close()
    wait_for("the other may launch", lambda: has(other))
    for value in range(100):
        word.reach(value)
    maps = Path(f"/proc/{running.process.pid}/maps")
    wait_for("its memory is given back", lambda: "/memfd:words" not in maps.read_text())


def refused_memory() -> list[Callable[[], int]]:
    """Descriptors that are no memory for words."""
    return [
        lambda: Word(seals=0).memory,
        lambda: Word(seals=fcntl.F_SEAL_SHRINK).memory,
        lambda: Word(size=8192).memory,
        lambda: os.open("/dev/zero", os.O_RDWR),
        lambda: os.open("/etc/passwd", os.O_RDONLY),
    ]


@pytest.mark.parametrize("make", refused_memory())
def test_other_memory_is_refused(running: Daemon, make: Callable[[], int]) -> None:
    """The daemon could be made to crash by it."""
    fd = make()
    reply = running.task().raw(b'{"op": "fence", "lane": 0, "offset": 0}', (fd,))
    assert reply and reply["error"] == "EINVAL", reply
    assert "memfd" in reply["message"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: os.pipe()[0],
        lambda: socket.socketpair()[0].detach(),
        lambda: os.open("/dev/null", os.O_RDWR),
        lambda: os.open("/", os.O_RDONLY),
    ],
)
def test_other_events_are_refused(running: Daemon, make: Callable[[], int]) -> None:
    """Asking whether such a file is readable could take as long as its owner likes."""
    task = running.task()
    fence(task, Word())
    reply = task.raw(b'{"op": "fence-event", "lane": 0}', (make(),))
    assert reply and reply["error"] == "EINVAL", reply
    assert "eventfd" in reply["message"]


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (b'{"op": "fence", "lane": 0, "offset": 2}', "EINVAL"),
        (b'{"op": "fence", "lane": 0, "offset": 4096}', "EINVAL"),
        (b'{"op": "fence", "lane": 3, "offset": 0}', "EINVAL"),
        (b'{"op": "fence", "lane": 0}', "EINVAL"),
        (b'{"op": "fence-event", "lane": 1}', "ENOENT"),
    ],
)
def test_wrong_requests_name_what_is_wrong(running: Daemon, request_: bytes, error: str) -> None:
    """And the connection lives on."""
    task = running.task()
    word = Word()
    reply = task.raw(request_, (word.memory,))
    assert reply and reply["error"] == error, reply
    assert task.raw(b'{"op": "fence", "lane": 0, "offset": 0}')["error"] == "EINVAL"  # type: ignore[index]
    assert task.ask("hello")["ok"]


# With librtxg -------------------------------------------------------------------------------------


def steal(pid: int, link: str) -> list[int]:
    """Copies of the descriptors of a process whose links are as told."""
    libc = ctypes.CDLL(None, use_errno=True)
    found = []
    pidfd = os.pidfd_open(pid)
    for path in sorted(Path(f"/proc/{pid}/fd").iterdir(), key=lambda p: int(p.name)):
        if os.readlink(path).startswith(link):
            fd = libc.syscall(SYS_PIDFD_GETFD, pidfd, int(path.name), 0)
            if fd < 0:
                pytest.skip(f"this machine forbids pidfd_getfd: {os.strerror(ctypes.get_errno())}")
            found.append(fd)
    os.close(pidfd)
    return found


def launcher(daemon: Daemon, *arguments: str) -> subprocess.Popen[str]:
    """A program with librtxg that stops itself after each launch; see
    tests/lib/stops_after_launch.c.
    """
    program = subprocess.Popen(
        [PROGRAM, *arguments],
        env=daemon.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    daemon.children.append(program)
    return program


def stopped(program: subprocess.Popen[str]) -> bool:
    """Whether it has stopped itself."""
    if program.poll() is not None:
        pytest.fail(f"it ended with {program.returncode}: {program.communicate()}")
    return bool(
        re.search(r"^State:\tT", Path(f"/proc/{program.pid}/status").read_text(), re.MULTILINE)
    )


def waits(daemon: Daemon, program: subprocess.Popen[str]) -> bool:
    """Whether it waits for its permit, or has ended already."""
    states = [t["engines"][0]["state"] for t in daemon.tasks(pid=program.pid)]
    return states == ["waiting"] or program.poll() is not None


@pytest.mark.skipif(not PROGRAM.exists(), reason="built without cmocka")
@pytest.mark.parametrize(
    ("how", "words", "values"),
    [("notify", "shared", (1, 2)), ("fence", "shared", (1, 2)), ("notify", "anew", (3, 2, 1))],
)
def test_a_stopped_program_delays_no_hand_over(
    running: Daemon, how: str, words: str, values: tuple[int, ...]
) -> None:
    """A program with librtxg is stopped right after its launch, again and again; its GPU is played
    by this process. One that opens its GPU anew has other words, which may be where the last ones
    were.
    """
    assert running.ask("gpu-set", revoke_timeout_ns=-1)["ok"]
    program = launcher(running, how, words, str(len(values)))
    for value in values:
        wait_for("it has stopped", lambda: stopped(program))
        (memory,) = steal(program.pid, "/memfd:rtxg-words")
        other = running.device("-u", "10", "-n", "1")
        wait_for("the other waits", lambda other=other: waits(running, other))
        assert other.poll() is None, "it has launched beside the one that is stopped"
        os.pwrite(memory, struct.pack("I", value), 0)
        for event in steal(program.pid, "anon_inode:[eventfd]"):
            os.eventfd_write(event, 1)
            os.close(event)
        assert other.wait(60) == 0
        assert stopped(program)
        program.send_signal(signal.SIGCONT)
        assert program.stdout is not None
        assert program.stdout.readline() == f"synced {value}\n"
        os.close(memory)
    assert program.wait(60) == 0


@pytest.mark.skipif(not PROGRAM.exists(), reason="built without cmocka")
def test_after_a_restart_the_next_daemon_is_told(daemon: Daemon) -> None:
    """Some launches later the program has found the next daemon, and it knows of the word as the
    one before did.
    """
    daemon.start()
    program = launcher(daemon, "notify", "shared", "1000000")
    wait_for("it has stopped", lambda: stopped(program))
    (memory,) = steal(program.pid, "/memfd:rtxg-words")
    daemon.kill()
    daemon.start()
    assert daemon.process is not None and program.stdout is not None
    maps = Path(f"/proc/{daemon.process.pid}/maps")
    values = itertools.count(1)

    def comes_back() -> bool:
        assert program.stdout is not None
        value = next(values)
        os.pwrite(memory, struct.pack("I", value), 0)
        program.send_signal(signal.SIGCONT)
        assert program.stdout.readline() == f"synced {value}\n"
        wait_for("it has stopped again", lambda: stopped(program))
        return bool(daemon.tasks(pid=program.pid))

    wait_for("it is back", comes_back)
    assert "/memfd:rtxg-words" in maps.read_text()


@pytest.mark.skipif(not PROGRAM.exists(), reason="built without cmocka")
def test_a_word_of_the_programs_own_is_waited_for_as_before(running: Daemon) -> None:
    """No host can see it, and nothing fails for that."""
    program = launcher(running, "notify", "own", "1")
    wait_for("it has stopped", lambda: stopped(program))
    assert running.process is not None
    assert "memfd:rtxg-words" not in Path(f"/proc/{running.process.pid}/maps").read_text()
