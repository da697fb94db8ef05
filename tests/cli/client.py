# SPDX-License-Identifier: MIT
"""A GPU task without a GPU: opens a task with librtxg and launches when told.

Says "open" when it is open, then reads words from stdin: "launch" (a launch with its completion, answered "done"), "hold" (a
launch without completion, answered "held"), "complete" (answered "done").  Ends at the end of stdin.
"""

from __future__ import annotations

import ctypes
import os
import sys

lib = ctypes.CDLL(os.environ["RTXG_LIBRARY"])
lib.rtx_strerror.restype = ctypes.c_char_p
COMPUTE = 0


def check(status: int) -> None:
    """Stop with librtxg's own words."""
    if status:
        sys.exit(f"client: {lib.rtx_strerror().decode()} ({status})")


def main() -> None:
    """Do as stdin says."""
    handle = ctypes.c_void_p()
    check(lib.rtx_gpu_open(ctypes.byref(handle), None))
    print("open", flush=True)
    for line in sys.stdin:
        match line.strip():
            case "launch":
                check(lib.rtx_gpu_launch(handle, COMPUTE))
                check(lib.rtx_gpu_complete(handle, COMPUTE, ctypes.c_uint64(1000)))
                print("done", flush=True)
            case "hold":
                check(lib.rtx_gpu_launch(handle, COMPUTE))
                print("held", flush=True)
            case "complete":
                check(lib.rtx_gpu_complete(handle, COMPUTE, ctypes.c_uint64(1000)))
                print("done", flush=True)
    check(lib.rtx_gpu_close(handle))


if __name__ == "__main__":
    main()
