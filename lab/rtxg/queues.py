# SPDX-License-Identifier: MIT
"""The k-FMLP among processes: k GPUs, a FIFO queue each, and a holder that inherits priorities.

A request joins the queue with the least work ahead of it, as in klmirqd's appendix A.  Each request
owns a mutex with priority inheritance, and whatever is next in the queue waits for that mutex.  So
the kernel lets a holder run with the most urgent priority of all that wait behind it, also through
several hands and under SCHED_DEADLINE, and the order stays that of arrival.  (A plain semaphore lets
real-time threads overtake each other, and a holder starve.)

May not: outlive its processes.  It lies in memory that they share by fork.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager

#: Room for a pthread_mutex_t (40 bytes on x86-64, 48 on aarch64) without two in a cache line.
_CELL = 64
_PRIO_INHERIT, _PROCESS_SHARED, _ROBUST = 1, 1, 1


class Pool:
    """k GPUs for at most so many tasks at a time, each in a process of its own."""

    def __init__(self, gpus: int, tasks: int) -> None:
        """
        :param gpus: queues, 1 or more.
        :param tasks: processes that may have a request at a time; each has at most one.
        :raises OSError: the C library has no such mutexes.
        """
        self._libc = ctypes.CDLL(None)
        # A place is taken again when as many requests have come after it.  As no more than `tasks` are
        # there at a time, the request right behind it is then through, and waits for it no longer.
        self._places = tasks + 1
        cells = 1 + gpus * self._places
        self._memory = mmap.mmap(-1, cells * _CELL + gpus * 16)
        self._cells = (ctypes.c_char * (cells * _CELL)).from_buffer(self._memory)
        self._tail = (ctypes.c_int64 * gpus).from_buffer(self._memory, cells * _CELL)
        self._ahead = (ctypes.c_double * gpus).from_buffer(self._memory, cells * _CELL + gpus * 8)
        attributes = ctypes.create_string_buffer(_CELL)
        self._call("mutexattr_init", attributes)
        self._call("mutexattr_setprotocol", attributes, _PRIO_INHERIT)
        self._call("mutexattr_setpshared", attributes, _PROCESS_SHARED)
        self._call("mutexattr_setrobust", attributes, _ROBUST)
        for cell in range(cells):
            self._call("mutex_init", self._address(cell), attributes)

    def _address(self, cell: int) -> ctypes.c_void_p:
        return ctypes.c_void_p(ctypes.addressof(self._cells) + cell * _CELL)

    def _call(self, name: str, *arguments: object) -> None:
        error = getattr(self._libc, f"pthread_{name}")(*arguments)
        if error:
            raise OSError(error, f"pthread_{name}: {os.strerror(error)}")

    def _lock(self, cell: int) -> None:
        error = self._libc.pthread_mutex_lock(self._address(cell))
        if error == errno.EOWNERDEAD:  # it died with its request; the queue goes on
            self._call("mutex_consistent", self._address(cell))
        elif error:
            raise OSError(error, f"pthread_mutex_lock: {os.strerror(error)}")

    def _unlock(self, cell: int) -> None:
        self._call("mutex_unlock", self._address(cell))

    @contextmanager
    def one(self, length: float) -> Iterator[int]:
        """Hold one GPU; which one.

        :param length: of the section, in any one unit: by it the queue is chosen.
        """
        self._lock(0)
        queue = min(range(len(self._ahead)), key=lambda q: self._ahead[q])
        ticket = self._tail[queue]
        self._tail[queue] = ticket + 1
        self._ahead[queue] += length
        first = 1 + queue * self._places
        mine, before = first + ticket % self._places, first + (ticket - 1) % self._places
        self._lock(mine)
        self._unlock(0)
        try:
            if ticket:
                self._lock(before)
                self._unlock(before)
            yield queue
        finally:
            self._lock(0)
            self._ahead[queue] -= length
            self._unlock(0)
            self._unlock(mine)
