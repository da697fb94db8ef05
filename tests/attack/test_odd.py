# SPDX-License-Identifier: MIT
"""Descriptors that no honest program sends: each is refused, is closed, and delays no other user."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import itertools
import mmap
import os
import resource
import select
import signal
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from users import ATTACKER, Connection, Stage, become, wait_for

SEALED = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
PAGE = mmap.PAGESIZE
#: numbers of calls, the same on all machines but memfd_secret's
SYS = {"io_uring_setup": 425, "pidfd_open": 434, "memfd_secret": 447, "bpf": 321,
       "userfaultfd": 323, "perf_event_open": 298, "fanotify_init": 300, "signalfd4": 289,
       "timerfd_create": 283, "inotify_init1": 294}

_libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: Any) -> int:
    """A system call; OSError where the machine has none, or forbids it."""
    result = int(_libc.syscall(SYS[name], *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result


def memory(size: int, seals: int = SEALED, flags: int = 0) -> int:
    """A memfd."""
    fd = os.memfd_create("odd", os.MFD_ALLOW_SEALING | flags)
    os.ftruncate(fd, size)
    if seals:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def read_only() -> int:
    """A page that may not be written through this descriptor."""
    return os.open(f"/proc/self/fd/{memory(PAGE)}", os.O_RDONLY)


def path_only(of: int) -> int:
    """A descriptor that tells where it leads, and no more."""
    return os.open(f"/proc/self/fd/{of}", os.O_PATH)


def loop_of_epolls() -> int:
    """Sets that wait for each other, as deep as the kernel permits."""
    sets = [select.epoll() for _ in range(5)]
    for one, other in itertools.pairwise(sets):
        one.register(other.fileno(), select.EPOLLIN)
    with contextlib.suppress(OSError):
        sets[-1].register(sets[0].fileno(), select.EPOLLIN)
    KEPT.extend(sets)
    return sets[0].fileno()


def cycle_of_sockets() -> int:
    """A socket in whose own queue it lies, with others."""
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(50)]
    for (one, _), (_, other) in zip(pairs, pairs[1:] + pairs[:1], strict=True):
        for _ in range(3):
            socket.send_fds(one, [b"x"], [one.fileno(), other.fileno()])
    KEPT.extend(pairs)
    return pairs[0][1].fileno()


def map_of_bpf() -> int:
    """An array of BPF's: by root, for the user may have been handed one."""
    attributes = struct.pack("IIII", 2, 4, PAGE, 1) + bytes(112)
    return call("bpf", 0, ctypes.c_char_p(attributes), len(attributes))


def perf() -> int:
    """An event of the kernel's meter."""
    attributes = struct.pack("IIQ", 1, 128, 0) + bytes(112)
    return call("perf_event_open", ctypes.c_char_p(attributes), 0, -1, -1, 0)


def io_uring() -> int:
    """Rings, with a request in them that never ends."""
    return call("io_uring_setup", 8, ctypes.create_string_buffer(120))


KEPT: list[Any] = []
ODD: dict[str, Callable[[], int]] = {
    "memfd that is not sealed": lambda: memory(PAGE, 0),
    "memfd sealed against growing only": lambda: memory(PAGE, fcntl.F_SEAL_GROW),
    "memfd that is sealed against writing": lambda: memory(PAGE, SEALED | fcntl.F_SEAL_WRITE),
    "memfd that is too short": lambda: memory(PAGE // 2),
    "memfd that is empty": lambda: memory(0),
    "memfd of 4 PiB": lambda: memory(1 << 52),
    "memfd of huge pages": lambda: memory(2 << 20, SEALED, os.MFD_HUGETLB),
    "memfd that is read only": read_only,
    "memfd by its path": lambda: path_only(memory(PAGE)),
    "memfd that is secret": lambda: call("memfd_secret", 0),
    "file": lambda: os.open("/tmp", os.O_TMPFILE | os.O_RDWR),
    "file of /dev/shm": lambda: os.open("/dev/shm", os.O_TMPFILE | os.O_RDWR),
    "folder": lambda: os.open("/", os.O_RDONLY),
    "device": lambda: os.open("/dev/zero", os.O_RDWR),
    "memory of a process": lambda: os.open("/proc/self/mem", os.O_RDWR),
    "pidfd": lambda: call("pidfd_open", os.getpid(), 0),
    "userfaultfd": lambda: call("userfaultfd", 0),
    "io_uring": io_uring,
    "map of BPF": map_of_bpf,
    "perf": perf,
    "fanotify": lambda: call("fanotify_init", 0, 0),
    "inotify": lambda: call("inotify_init1", 0),
    "timerfd": lambda: call("timerfd_create", 1, 0),
    "signalfd": lambda: call("signalfd4", -1, ctypes.create_string_buffer(8), 8, 0),
    "epolls in a loop": loop_of_epolls,
    "sockets in sockets": cycle_of_sockets,
    "event by its path": lambda: path_only(os.eventfd(0)),
    "pipe": lambda: os.pipe()[0],
    "terminal": lambda: os.openpty()[1],
}


@pytest.mark.parametrize("what", ODD)
def test_an_odd_descriptor_is_refused(stage: Stage, what: str) -> None:
    """As the page of a task, as the memory of a fence, as an event, and unasked."""
    stage.daemon.start(mode="--system")
    path = stage.daemon.socket
    assert stage.daemon.process is not None
    descriptors = Path(f"/proc/{stage.daemon.process.pid}/fd")

    def main() -> Any:
        try:
            fd = ODD[what]()
        except OSError as error:
            become(ATTACKER)
            return [str(error)]
        # The file of another owner is not refused for that.
        become(ATTACKER)
        task = Connection(path)
        assert task.open()["ok"]
        word = memory(PAGE)
        try:
            Connection(path).send(b'{"op": "hello"}', (fd,))
        except OSError as error:  # some the kernel lets no process hand over
            return [str(error)]
        answers = []
        for _ in range(20):
            for request, connection in (
                (b'{"op": "open", "takeover": 1}', Connection(path)),
                (b'{"op": "fence", "lane": 0, "offset": 0}', task),
                (b'{"op": "fence-event", "lane": 0}', task),
                (b'{"op": "hello"}', Connection(path)),
            ):
                if b"event" in request:
                    reply = task.raw(b'{"op": "fence", "lane": 0, "offset": 0}', (word,))
                    assert reply and reply["ok"], reply
                reply = connection.raw(request, (fd,))
                assert reply
                answers.append([request.decode(), reply["ok"], reply.get("message", "")])
        return answers

    before = len(list(descriptors.iterdir()))
    answers = stage.run(0, main).result()
    if len(answers) == 1:
        pytest.skip(f"not here: {answers[0]}")
    # A word that is only read may be sealed against writing, or come through such a descriptor.
    for request, ok, message in answers:
        may = '"fence"' in request and what in READABLE
        assert ok == may, (request, message)
        assert ok or (message.isprintable() and message), request
    wait_for("all are closed", lambda: len(list(descriptors.iterdir())) <= before)
    stage.answers()
    assert stage.as_victim(lambda c: c.open())["ok"]


READABLE = {"memfd that is sealed against writing", "memfd that is read only"}


def test_a_page_that_is_emptied_all_the_time_delays_no_other_user(stage: Stage) -> None:
    """Seals forbid to cut it, and not to punch holes into it: each look of the daemon's maps it again."""
    stage.daemon.start(mode="--system")
    path = stage.daemon.socket

    def main(go: Callable[[], None]) -> None:
        fd = memory(PAGE)
        connections = [Connection(path) for _ in range(8)]
        for connection in connections:
            reply = connection.raw(b'{"op": "open", "takeover": 1}', (fd,))
            assert reply and reply["ok"], reply
        # Those that could still write to it may not any more, but for those that have it mapped.
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, 0x10)  # F_SEAL_FUTURE_WRITE

        def punch() -> None:
            while True:
                _libc.fallocate(fd, 3, ctypes.c_long(0), ctypes.c_long(1 << 40))

        for _ in range(4):
            threading.Thread(target=punch, daemon=True).start()
        go()
        signal.pause()

    stage.attack(main)
    stage.answers()

    def work(connection: Connection) -> bool:
        assert connection.open()["ok"]
        for _ in range(50):
            connection.launch()
            connection.complete()
        return True

    assert stage.as_victim(work)
    stage.daemon.healthy()


def test_sockets_in_flight_delay_no_other_user(stage: Stage) -> None:
    """As many as a user may have on their way, in circles: the kernel looks for such by itself."""
    stage.daemon.start(mode="--system")

    def main(go: Callable[[], None]) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        with contextlib.suppress(OSError):
            for _ in range(30000):  # the kernel takes some away meanwhile
                one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
                socket.send_fds(one, [b"x"], [other.fileno()])
                socket.send_fds(other, [b"x"], [one.fileno()])
                one.close()
                other.close()
        go()
        while True:
            pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
            with contextlib.suppress(OSError):
                socket.send_fds(pair[0], [b"x"], [pair[1].fileno()])

    stage.attack(main)
    stage.answers()
    assert stage.as_victim(lambda c: c.open())["ok"]
