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

import argparse
import ctypes
import sys
import time

NO_CHECKPOINTS = 77


def main() -> int:
    """The four steps."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pid", type=int)
    parser.add_argument("seconds", type=float)
    args = parser.parse_args()
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as e:
        print(f"checkpoint.py: no NVIDIA driver here: {e}", file=sys.stderr)
        return NO_CHECKPOINTS
    if not hasattr(cuda, "cuCheckpointProcessLock"):
        print("checkpoint.py: the driver has no checkpoints: release 570 has", file=sys.stderr)
        return NO_CHECKPOINTS
    status = cuda.cuInit(0)
    if status:
        print(f"checkpoint.py: cuInit: status {status}", file=sys.stderr)
        return 1
    for step in ("Lock", "Checkpoint", "Restore", "Unlock"):
        if step == "Restore":
            time.sleep(args.seconds)
        begin = time.monotonic_ns()
        status = getattr(cuda, f"cuCheckpointProcess{step}")(args.pid, None)
        if status:
            print(f"checkpoint.py: {step.lower()} of {args.pid}: status {status}", file=sys.stderr)
            return 1
        print(step.lower(), begin, time.monotonic_ns(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
