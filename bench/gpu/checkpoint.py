#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Takes a CUDA program off its GPU and puts it back, as CRIU does: the driver's own checkpoints.

    checkpoint.py PID SECONDS

Prints "NAME begin end" of each step, the times in CLOCK_MONOTONIC ns: lock (no new work, and what
there is ends), checkpoint (its memory goes to the processor's, its contexts end), restore (SECONDS
later: new contexts) and unlock. Exit status 1, with the driver's status, where a step fails, and 77
where the driver cannot do this: release 570 is the first that can.
"""

from __future__ import annotations

import ctypes
import sys
import time

NO_CHECKPOINTS = 77


def main() -> int:
    """The four steps."""
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    pid, seconds = int(sys.argv[1]), float(sys.argv[2])
    cuda = ctypes.CDLL("libcuda.so.1")
    if not hasattr(cuda, "cuCheckpointProcessLock"):
        print("checkpoint.py: the driver has no checkpoints: release 570 has", file=sys.stderr)
        return NO_CHECKPOINTS
    status = cuda.cuInit(0)
    for step in ("Lock", "Checkpoint", "Restore", "Unlock"):
        if step == "Restore":
            time.sleep(seconds)
        begin = time.monotonic_ns()
        status = status or getattr(cuda, f"cuCheckpointProcess{step}")(pid, None)
        if status:
            print(f"checkpoint.py: {step.lower()} of {pid}: status {status}", file=sys.stderr)
            return 1
        print(step.lower(), begin, time.monotonic_ns(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
