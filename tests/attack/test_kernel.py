# SPDX-License-Identifier: MIT
"""What the kernel does for a user in the thread that hands permits over is little, or paid for."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import resource
import select
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_attack import many_files
from users import ATTACKER, Connection, Stage, base

SYS_FUTEX = 202
WAIT, WAKE, CMP_REQUEUE = 0, 1, 4
EVERY = 0x7FFFFFFF

KEPT: list[select.epoll] = []

_libc = ctypes.CDLL(None, use_errno=True)


def _futex(word: int, op: int, value: int, other: int = 0, to: int = 0, expected: int = 0) -> int:
    return int(_libc.syscall(*[ctypes.c_long(n) for n in (SYS_FUTEX, word, op, value, other, to, expected)]))


def test_a_hand_over_wakes_so_many_waiters_at_most(stage: Stage) -> None:
    """A task's page may have as many waiters as its user has threads; io_uring needs none."""
    stage.daemon.start(mode="--system")
    path, waiters, most = stage.daemon.socket, 600, 256

    def main() -> int:
        connection = Connection(path)
        assert connection.open()["ok"]
        assert connection.page is not None
        page = ctypes.addressof(ctypes.c_char.from_buffer(connection.page))
        permit, elsewhere = page + base.LANES_AT + base.PERMIT, page + 4000
        threading.stack_size(1 << 17)
        for _ in range(waiters):
            threading.Thread(target=_futex, args=(elsewhere, WAIT, 0), daemon=True).start()
        moved = 0
        while moved < waiters:
            moved += _futex(elsewhere, CMP_REQUEUE, 0, EVERY, permit, 0)
            time.sleep(0.01)
        connection.put(base.WANT, 1)
        connection.ring()
        while not connection.granted():
            time.sleep(0.01)
        assert connection.ask("hello")["ok"]  # it has woken those that it wakes
        left = _futex(permit, WAKE, EVERY)
        os.write(1, f"{left} of {waiters} were left\n".encode())
        return waiters - left

    woken = stage.run(ATTACKER, main).result()
    assert 0 < woken <= most


def watch(socket: int, times: int) -> bool:
    """Wait for it so many times; False if a process may not have so many descriptors."""
    many_files()
    waits = select.epoll()
    KEPT.append(waits)
    with contextlib.suppress(OSError):
        for _ in range(times):
            waits.register(os.dup(socket), select.EPOLLIN | select.EPOLLOUT)
        return True
    return False


@pytest.mark.parametrize("op", [b'{"op": "hello"}', b'{"op": "task-list"}'])
def test_a_socket_with_very_many_waiters_costs_its_own_user(stage: Stage, op: bytes) -> None:
    """Each packet wakes all of them, there and back."""
    stage.daemon.start(mode="--system")
    path = stage.daemon.socket
    answers = stage.daemon.folder / "answers"
    answers.touch()
    answers.chmod(0o666)

    def cpu_ns() -> int:
        assert stage.daemon.process is not None
        return int(Path(f"/proc/{stage.daemon.process.pid}/schedstat").read_text().split()[0])

    def main(go: Callable[[], None]) -> Any:
        connection = Connection(path)
        if not watch(connection.socket.fileno(), 10000):
            os._exit(77)
        go()
        for _ in range(3):
            connection.raw(op)
            with answers.open("a") as file:
                file.write(".")
        signal.pause()

    try:
        stage.attack(main)
    except AssertionError:
        pytest.skip("too few descriptors for a process here")
    before, began = cpu_ns(), time.monotonic_ns()
    base.wait_for("it has its answers", lambda: len(answers.read_text()) == 3)
    part = (cpu_ns() - before) / (time.monotonic_ns() - began)
    assert part < 0.06, f"{part:.0%} of a processor"


def main_cpu_ns(stage: Stage) -> int:
    """What the daemon's first thread has had of a processor."""
    assert stage.daemon.process is not None
    return int(Path(f"/proc/{stage.daemon.process.pid}/schedstat").read_text().split()[0])


def part_of_cpu(stage: Stage, seconds: float) -> float:
    """What it takes of one from now on."""
    before, began = main_cpu_ns(stage), time.monotonic_ns()
    time.sleep(seconds)
    return (main_cpu_ns(stage) - before) / (time.monotonic_ns() - began)


def test_a_doorbell_with_very_many_waiters_is_not_closed_in_the_loop(stage: Stage) -> None:
    """The client has closed its own, so that the daemon's close is the last and ends all waiting."""
    stage.daemon.start(mode="--system")
    path = stage.daemon.socket

    def main(go: Callable[[], None]) -> None:
        many_files()
        waits = [select.epoll() for _ in range(20)]
        go()
        while True:
            connection = Connection(path)
            if connection.open()["ok"]:
                copies = [os.dup(connection.doorbell) for _ in range(1000)]
                for one in waits:
                    for copy in copies:
                        one.register(copy, select.EPOLLIN)
                for copy in [*copies, connection.doorbell]:
                    os.close(copy)
                connection.page.close()
                os.close(connection.page_fd)
            connection.socket.close()

    stage.attack(main)
    part = part_of_cpu(stage, 3)
    assert part < 0.06, f"{part:.0%} of a processor"


def test_an_event_with_very_many_busy_waiters_costs_its_own_user(stage: Stage) -> None:
    """To begin and end waiting for it takes a lock that is kept while all are woken."""
    stage.daemon.start(mode="--system")
    path = stage.daemon.socket

    def main(go: Callable[[], None]) -> None:
        if not many_files() and resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 15000:
            os._exit(77)
        connection = Connection(path)
        assert connection.open()["ok"]
        memory = os.memfd_create("fence", os.MFD_ALLOW_SEALING)
        os.ftruncate(memory, 4096)
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        fence = b'{"op": "fence", "lane": 0, "offset": 0}'
        assert (connection.raw(fence, (memory,)) or {})["ok"]
        event = os.eventfd(0, os.EFD_NONBLOCK)
        copies = [os.dup(event) for _ in range(5000)]
        for _ in range(20):
            waits = select.epoll()
            KEPT.append(waits)
            for copy in copies:
                waits.register(copy, select.EPOLLIN | select.EPOLLOUT)

        if os.fork() == 0:
            while True:
                os.eventfd_write(event, 1)
        go()
        while True:
            connection.raw(b'{"op": "fence-event", "lane": 0}', (event,))
            time.sleep(0.001)  # that the other has a processor meanwhile

    stage.attack(main)
    part = part_of_cpu(stage, 3)
    assert part < 0.06, f"{part:.0%} of a processor"


def sets_of(pid: int) -> dict[int, tuple[str, set[int]]]:
    """The epoll sets of a process: what is in them, by number and as it is written there."""
    found = {}
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if os.readlink(entry) == "anon_inode:[eventpoll]":
                text = Path(f"/proc/{pid}/fdinfo/{entry.name}").read_text()
                lines = [line for line in text.splitlines() if line.startswith("tfd:")]
                members = {int(line.split()[1]) for line in lines}
                found[int(entry.name)] = ("\n".join(sorted(lines)), members)
    return found


def test_what_users_do_changes_no_set_that_another_set_waits_for(stage: Stage) -> None:
    """Such a change takes a lock of the whole machine's, which any user may keep busy."""
    stage.daemon.start(mode="--system")
    path = stage.daemon.socket
    assert stage.daemon.process is not None
    pid = stage.daemon.process.pid

    def nested() -> dict[int, str]:
        sets = sets_of(pid)
        return {fd: sets[fd][0] for _, members in sets.values() for fd in members if fd in sets}

    def main(go: Callable[[], None]) -> None:
        for number in range(5):
            Connection(path).open(gpu=f"of-nobody-{number}")
            kept = Connection(path)
            assert kept.open()["ok"]
            assert kept.ask("task-list")["ok"]
            KEPT.append(kept)
        go()
        signal.pause()

    stage.answers(1)  # what is made once has been made
    before = nested()
    assert before, "the event loop is in no set: this test looks at nothing"
    stage.attack(main)
    assert nested() == before


def test_a_user_who_keeps_the_lock_of_nested_sets_busy_delays_no_other(stage: Stage) -> None:
    """The kernel walks through all that such a set leads to, with a lock of the machine's."""
    stage.daemon.start(mode="--system")
    assert stage.daemon.process is not None
    sets, files = 50, 12000
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("only one CPU: the kernel does not give it up meanwhile")
    os.sched_setaffinity(stage.daemon.process.pid, {cpus[-1]})

    def main(go: Callable[[], None]) -> None:
        many_files()
        os.sched_setaffinity(0, {cpus[0]})
        try:
            members = [os.eventfd(0) for _ in range(files)]
        except OSError:
            os._exit(77)
        inner, top = select.epoll(), select.epoll()
        for _ in range(sets):
            middle = select.epoll()
            for fd in members:
                middle.register(fd, select.EPOLLIN)
            inner.register(middle.fileno(), select.EPOLLIN)
            KEPT.append(middle)
        go()
        while True:
            top.register(inner.fileno(), select.EPOLLIN)
            top.unregister(inner.fileno())

    try:
        stage.attack(main)
    except AssertionError:
        pytest.skip("too few descriptors for a process here")

    def ask(connection: Connection) -> int:
        os.sched_setaffinity(0, {cpus[-1]})
        end, count = time.monotonic_ns() + 3_000_000_000, 0
        while time.monotonic_ns() < end:
            count += connection.ask("hello")["ok"]
            time.sleep(0.001)
        return count

    # Each waited for the lock, for tens or hundreds of milliseconds.
    assert stage.as_victim(ask) > 500
