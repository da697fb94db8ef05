# SPDX-License-Identifier: MIT
"""Stands for a node: says who it is, in which vGPU it runs, and with which CPU policy."""

import os
import sys

print(f"{sys.argv[1]}: vGPU {os.environ.get('RTXG_VGPU')}, priority {os.environ.get('RTXG_PRIORITY', '-')}, CPU policy "
      f"{ {os.SCHED_FIFO: 'fifo', os.SCHED_OTHER: 'other'}.get(os.sched_getscheduler(0), '?')}", flush=True)
