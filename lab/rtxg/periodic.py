# SPDX-License-Identifier: MIT
"""Periodic jobs under rtxg.ko's CPU scheduling, by librtxg (include/rtxg_cpu.h).

May not: judge.  What the module refuses is raised with its words.
"""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

#: enum rtx_cpu_scheduler
SCHEDULERS = {"rm": 1, "edf": 2, "module-deadline": 3}

_NAMES = ("librtxg.so.0", "librtxg.so")


def _library() -> ctypes.CDLL:
    """librtxg: the one that RTXG_LIBRARY names, the installed one, or that of this source tree.

    :raises OSError: there is none.
    """
    named = os.environ.get("RTXG_LIBRARY")
    built = Path(__file__).resolve().parents[2] / "build" / "release" / "lib"
    for name in (named,) if named else (*_NAMES, *(str(built / n) for n in _NAMES)):
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            why = error
    raise OSError(errno.ENOENT, f"librtxg is not found ({why}): install rtxg, or name the library in RTXG_LIBRARY")


def available() -> bool:
    """Whether the module is loaded and lets this process ask."""
    return os.access("/dev/rtxg", os.R_OK | os.W_OK)


class Jobs:
    """The calling thread's jobs; ends with :meth:`end`, or the thread."""

    def __init__(self, policy: str, period_ns: int, deadline_ns: int, runtime_ns: int, suspension_ns: int,
                 cpus: list[int] | None) -> None:  # fmt: skip
        """
        :param policy: one of :data:`SCHEDULERS`.
        :param runtime_ns: under module-deadline the runtime, time on the GPU counted; else 0.
        :param suspension_ns: longest time that a job sleeps; 0: never.
        :param cpus: those that the thread stays on; None: all.
        :raises OSError: with the words of librtxg.
        """
        self._lib = _library()
        self._lib.rtx_strerror.restype = ctypes.c_char_p
        self._call("init")
        self._call("set_scheduler", SCHEDULERS[policy], 0)
        self._call("set_period", ctypes.c_uint64(period_ns))
        self._call("set_deadline", ctypes.c_uint64(deadline_ns))
        if policy == "module-deadline":
            self._call("set_runtime", ctypes.c_uint64(runtime_ns))
        elif suspension_ns:
            self._call("set_suspension", ctypes.c_uint64(suspension_ns))
        if cpus is not None:
            words = max(cpus) // 64 + 1
            members = (ctypes.c_uint64 * words)()
            for cpu in cpus:
                members[cpu // 64] |= 1 << cpu % 64
            self._call("set_cluster", members, ctypes.c_size_t(words))

    def _call(self, name: str, *arguments: object) -> None:
        error = getattr(self._lib, f"rtx_cpu_{name}")(*arguments)
        if error < 0:
            raise OSError(-error, f"rtx_cpu_{name}: {self._lib.rtx_strerror().decode(errors='replace')}")

    def begin(self, at_ns: int) -> None:
        """Release the first job at that time of CLOCK_MONOTONIC, and wait for it."""
        self._call("run_at", ctypes.c_uint64(at_ns))

    def next(self) -> None:
        """End the job, and wait for the next release."""
        self._call("wait_period", None)

    def waits_for_gpu(self, on: bool) -> None:
        """The thread sleeps for its GPU from now on, or does not."""
        self._call("wait_for_gpu", ctypes.c_bool(on))

    def end(self) -> None:
        """Policy, priority and CPUs become what they were."""
        self._call("exit")
