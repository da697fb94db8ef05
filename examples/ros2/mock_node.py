# SPDX-License-Identifier: MIT
"""Stands for a node: says who it is, in which vGPU it runs, and with which CPU policy."""

import os
import sys

policy = {os.SCHED_FIFO: "fifo", os.SCHED_OTHER: "other"}.get(os.sched_getscheduler(0), "?")
vgpu, priority = os.environ.get("RTXG_VGPU"), os.environ.get("RTXG_PRIORITY", "-")
# in one piece: several nodes write to one pipe
os.write(
    sys.stdout.fileno(),
    f"{sys.argv[1]}: vGPU {vgpu}, priority {priority}, CPU policy {policy}\n".encode(),
)
