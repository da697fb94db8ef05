#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A CUDA program that sleeps until each piece of its work is done: an interrupt each.

usage: sleeper.py SECONDS OUT

Fills memory on the GPU and waits for CUDA's blocking event, again and again. Every 5 ms a line
"CLOCK_MONOTONIC ns, pieces done" goes to OUT, as of the load hog. It needs libcuda alone.
"""

from __future__ import annotations

import ctypes
import sys
import time

WORDS = 64 << 20  # 256 MiB: some 0.1 to 1 ms
BLOCKING = 4  # CU_CTX_SCHED_BLOCKING_SYNC
EVENT = 3  # CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING


def must(cuda: ctypes.CDLL, name: str, *arguments: object) -> None:
    """Calls a function of the driver, and ends if it fails."""
    error = getattr(cuda, name)(*arguments)
    if error:
        sys.exit(f"sleeper.py: {name}: CUDA error {error}")


def main() -> None:
    seconds, path = float(sys.argv[1]), sys.argv[2]
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    memory, event, stream = ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_void_p()
    must(cuda, "cuInit", 0)
    must(cuda, "cuDeviceGet", ctypes.byref(device), 0)
    must(cuda, "cuDevicePrimaryCtxSetFlags_v2", device, BLOCKING)
    must(cuda, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    must(cuda, "cuCtxSetCurrent", context)
    must(cuda, "cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(4 * WORDS))
    must(cuda, "cuStreamCreate", ctypes.byref(stream), 1)
    must(cuda, "cuEventCreate", ctypes.byref(event), EVENT)
    end, shown, done = time.monotonic() + seconds, 0.0, 0
    with open(path, "w", encoding="ascii", buffering=1) as out:
        while time.monotonic() < end:
            must(cuda, "cuMemsetD32Async", memory, done & 0xFF, ctypes.c_size_t(WORDS), stream)
            must(cuda, "cuEventRecord", event, stream)
            must(cuda, "cuEventSynchronize", event)
            done += 1
            if time.monotonic() > shown + 0.005:
                shown = time.monotonic()
                out.write(f"{time.monotonic_ns()} {done}\n")


if __name__ == "__main__":
    main()
