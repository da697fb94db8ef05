# SPDX-License-Identifier: MIT
"""A file that a program serves itself (FUSE), and of which it does not answer one question.

The mount is in a namespace of the process's own. When its process group ends, so does the file.
A process that has written to such a file through a mapping is held up where the kernel writes it
back: while it maps something else there, and while it executes a program.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import mmap
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

GETATTR, OPEN, READ, WRITE, FLUSH, INIT, IOCTL = 3, 14, 15, 16, 25, 26, 39
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 1 << 18
#: in the answer to INIT: what is written stays in the kernel for a while
WRITEBACK_CACHE = 1 << 16

_libc = ctypes.CDLL(ctypes.util.find_library("c"), use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]


def _check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), "no file system of one's own")


def asked(place: Path) -> Path:
    """What is there once the question has come that is not answered."""
    return place.with_suffix(".asked")


def _serve(
    device: int, place: Path, silent: int, ioctl: Callable[[bytes], bytes] | None, flags: int
) -> None:
    while True:
        try:
            request = os.read(device, 1 << 17)
        except OSError:
            return
        _, opcode, unique = struct.unpack_from("IIQ", request)
        error, body = 0, b""
        if opcode == silent:
            asked(place).touch()
            continue
        if opcode == INIT:
            body = struct.pack("IIIIHHIIHHI7I", 7, 31, 4096, flags, 1, 1, 4096, 1, 1, 0, 0, *[0] * 7)
        elif opcode == READ:
            body = bytes(mmap.PAGESIZE)
        elif opcode == GETATTR:
            # What it says holds for ever.
            attributes = struct.pack(
                "6Q10I", 1, 4096, 8, 0, 0, 0, *[0] * 3, 0o100666, 1, 0, 0, 0, 512, 0
            )
            body = struct.pack("QII", 1 << 30, 0, 0) + attributes
        elif opcode == OPEN:
            body = struct.pack("QII", 1, 0, 0)
        elif opcode == IOCTL and ioctl:
            body = bytes(16) + ioctl(request[40 + 32 :])  # what is behind the two headers
        else:
            error = -38
        os.write(device, struct.pack("IiQ", 16 + len(body), error, unique) + body)


def held_file(
    place: Path, silent: int, ioctl: Callable[[bytes], bytes] | None = None, flags: int = 0
) -> int:
    """Open such a file, as root; OSError where the machine has none.

    ioctl: what an ioctl gives back for what it is given, as many bytes; it succeeds.
    flags: in the answer to INIT.
    """
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    _check(_libc.unshare(CLONE_NEWNS))
    _check(_libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))
    place.touch()
    options = f"fd={device},rootmode=100666,user_id=0,group_id=0,allow_other"
    _check(_libc.mount(b"held", bytes(place), b"fuse", 0, options.encode()))
    # Not a thread: a process that ends waits for the answer to its last close.
    if os.fork() == 0:
        _serve(device, place, silent, ioctl, flags)
        os._exit(0)
    os.close(device)
    return os.open(place, os.O_RDWR | os.O_CLOEXEC)


def _write_through(file: int) -> int:
    """Write to a page of it that is mapped; the address."""
    os.fstat(file)  # how long it is
    shared, both = mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE
    address = _libc.mmap(None, mmap.PAGESIZE, both, shared, file, 0)
    ctypes.memset(address, 1, 1)
    return int(address)


def hold_memory(file: int) -> NoReturn:
    """Wait in mmap(2), with the lock of this process's memory, for the answer to a write."""
    address = _write_through(file)
    fixed = 0x10 | mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    _libc.mmap(address, mmap.PAGESIZE, mmap.PROT_READ, fixed, -1, 0)
    os._exit(1)


def hold_exec(file: int) -> NoReturn:
    """Wait in execve(2), with the lock of this process's credentials, for the answer to a write."""
    _write_through(file)
    os.execv("/bin/true", ["true"])


def is_held(pid: int) -> bool:
    """Is it waiting there?"""
    return "State:\tD" in Path(f"/proc/{pid}/status").read_text()


def has_a_held_thread(pid: int) -> bool:
    """Is one of its threads?"""
    return any("State:\tD" in one.read_text() for one in Path(f"/proc/{pid}/task").glob("*/status"))
