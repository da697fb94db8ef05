#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The kernel module's costs in instructions: interception (figures 5 to 7 of the Linux-RTXG paper), calls, scheduling, shares.

usage: python3 bench/kmod_costs.py [KERNEL]      6.1 by default; as in tests/vm/run, which needs QEMU

Boots that kernel under QEMU with counted instructions (tests/vm/guest/i_*.c) and prints what the tests measured, as a
table; the numbers also go to build/bench/kmod_costs.json.  Exit status 1 if a test failed, 77 without QEMU.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]

#: title, and (name of the measured value, text) for each row
TABLES = {
    "Cost of an intercepted interrupt, more than without (figure 5)": (
        ("irq_whole_raw", "the whole interrupt without interception"),
        ("irq_driver_handler", "of it the driver's own handler, edu"),
        ("irq_nvme_handler", "for comparison: the handler of nvme"),
        ("irq_intercepted", "interception alone, more"),
        ("irq_with_identification", "with identification, more"),
        ("irq_short_handler_handler_delay_identified_and_woken", "with identification and wake-up, in the top half, more"),
        ("irq_tracepoint", "by tracepoint instead, more"),
    ),
    "From the interrupt to its identification by the driver (figure 6)": (
        ("irq_short_handler_response_identified_raw", "without interception"),
        ("irq_short_handler_response_identified_raw_least", "without interception, least"),
        ("irq_short_handler_response_identified_raw_most", "without interception, most"),
        ("irq_short_handler_response_identified_intercepted", "with interception before it"),
        ("irq_short_handler_response_identified_intercepted_least", "with interception before it, least"),
        ("irq_short_handler_response_identified_intercepted_most", "with interception before it, most"),
        ("irq_short_handler_response_identified_ratio", "ratio (paper: 1.4)"),
    ),
    "From the interrupt to the wake-up (figure 7)": (
        ("irq_short_handler_response_top_half", "top half"),
        ("irq_short_handler_response_top_half_least", "top half, least"),
        ("irq_short_handler_response_top_half_most", "top half, most"),
        ("irq_short_handler_response_after_handler", "after the driver's handler"),
        ("irq_short_handler_response_after_handler_least", "after the driver's handler, least"),
        ("irq_short_handler_response_after_handler_most", "after the driver's handler, most"),
        ("irq_short_handler_response_bottom_half", "the driver's bottom half"),
        ("irq_short_handler_response_bottom_half_least", "the driver's bottom half, least"),
        ("irq_short_handler_response_bottom_half_most", "the driver's bottom half, most"),
        ("irq_short_handler_response_bottom_to_top", "bottom half to top half, short handler"),
        ("irq_long_handler_response_bottom_to_top", "bottom half to top half, handler of 30 us (paper: 5)"),
    ),
    "From our top half to the wake-up, and the driver's own top half, by source": tuple(
        (f"irq_{source}_{what}{end}", f"{source.replace('_', ' ')}: {text}{of}")
        for source in ("edu_compute", "edu_storm", "nvme_completion", "virtio_gpu_control")
        for what, text in (("woken", "to the wake-up"), ("handler", "the driver's top half"))
        for end, of in (("", ""), ("_least", ", least"), ("_most", ", most"))
    ),
    "Calls": (
        ("gpu_launch_instructions", "rtx_gpu_launch"),
        ("gpu_notify_instructions", "rtx_gpu_notify"),
        ("gpu_sync_instructions", "rtx_gpu_sync"),
        ("bare_ioctl_instructions", "a bare ioctl, for comparison"),
        ("ring_ioctl_instructions", "ringing the module"),
        ("gpu_contended_module", "launch and sync that contend, hand-over included: module"),
        ("gpu_contended_daemon", "the same through the daemon"),
        ("gpu_contended_daemon_to_module", "daemon to module"),
    ),
    "A task switch of others, by sched_yield": (
        ("cpu_switch_instructions", "the module is loaded"),
        ("cpu_switch_attached_instructions", "a task is attached to a CPU policy, more"),
        ("cpu_switch_after_instructions", "the last one is detached, more"),
    ),
    "Time of 8 tasks of 10 kernels (figure 9), more than with a mutex": (
        ("gpu_overhead_8_tasks_rtx_one_vgpu_band_to_mutex", "one vGPU, band"),
        ("gpu_overhead_8_tasks_rtx_vgpu_each_cbs_to_mutex", "a vGPU each, cbs"),
        ("gpu_overhead_8_tasks_rtx_one_vgpu_band_to_vanilla", "one vGPU, band, more than with nothing (paper: 10 %)"),
    ),
    "Shares: largest error": (
        ("gpu_share_error_two_cbs", "40/60, cbs"),
        ("gpu_share_error_two_band", "40/60, band (paper: 5)"),
        ("gpu_share_error_four_cbs", "four at 25, cbs"),
        ("gpu_share_error_four_band", "four at 25, band (paper: 9)"),
    ),
    "CPU of a task that never stops, with a budget of 20 %": (
        ("cpu_budget_share_asked_20", "soft, beside an ordinary task"),
        ("cpu_hard_budget_share_asked_20", "hard, alone, over 10 periods that end in its budget"),
    ),
    "Deadlines missed, of 10 (section III.D)": (
        ("deadline_yield_misses_before", "polling with sched_yield"),
        ("deadline_yield_misses_after", "waiting for the interrupt"),
        ("deadline_wakeup_misses_before", "the kernel's wake-up rule"),
        ("deadline_wakeup_misses_after", "charged for the time on the GPU"),
        ("deadline_beside_others_misses", "charged so, with another's kernel before its own"),
    ),
    "The next launch after one of 5 ms, past a thread that computes for 100 ms": (
        ("gpu_next_past_busy_before", "when the holder has run"),
        ("gpu_next_past_busy_after", "from the completion interrupt"),
    ),
    "A FIFO 80 owner sees its kernel of 5 ms, beside a FIFO 60 thread that computes for 100 ms": (
        ("owner_sees_its_kernel_kept", "threads of the driver at 50, as the kernel made them"),
        ("owner_sees_its_kernel_low", "at 2"),
        ("owner_sees_its_kernel_high", "at 95"),
        ("owner_sees_its_kernel_owner", "at their owner's priority"),
    ),
    "A FIFO 60 job of 40 ms, while 20 kernels of a FIFO 10 owner complete": (
        ("job_beside_completions_kept", "threads of the driver at 50"),
        ("job_beside_completions_low", "at 2"),
        ("job_beside_completions_high", "at 95"),
        ("job_beside_completions_owner", "at their owner's priority"),
    ),
    "The FIFO 80 owner, where the driver leaves 1 ms to a tasklet": (
        ("owner_sees_its_tasklet_kept", "tasklets as the kernel runs them"),
        ("owner_sees_its_tasklet_low", "in a thread at 2"),
        ("owner_sees_its_tasklet_high", "at 95"),
        ("owner_sees_its_tasklet_owner", "at its owner's priority"),
        ("owner_sees_its_tasklet_aware", "process-aware"),
    ),
    "The FIFO 60 job, where the driver leaves 1 ms of each completion to a tasklet": (
        ("job_beside_tasklets_kept", "tasklets as the kernel runs them"),
        ("job_beside_tasklets_low", "in a thread at 2"),
        ("job_beside_tasklets_high", "at 95"),
        ("job_beside_tasklets_owner", "at their owner's priority"),
        ("job_beside_tasklets_aware", "process-aware"),
    ),
    "A SCHED_DEADLINE owner sees its kernel of 5 ms, beside another that computes for 200 ms": (
        ("deadline_owner_beside_fifo", "the module, the other is FIFO 90"),
        ("deadline_owner_beside_a_later_deadline", "the module, the other has a later deadline"),
        (
            "deadline_owner_by_chain_beside_a_later_deadline",
            "the driver's thread holds an rt_mutex, the other has a later deadline",
        ),
    ),
    "Priority inversions that rtxg-irq -i measures": (
        ("inversions_of_a_job_kept_sum", "that job, tasklets as the kernel runs them: sum"),
        ("inversions_of_a_job_high_sum", "in a thread at 95: sum"),
        ("inversions_of_a_job_owner_sum", "at their owner's priority: sum"),
        ("inversions_of_a_job_owner_longest", "longest"),
        ("inversions_of_an_owner_low_sum", "the FIFO 80 owner, its driver's thread at 2: sum"),
        ("inversions_of_an_owner_owner_sum", "at its owner's priority: sum"),
        ("inversions_of_an_owner_owner_longest", "longest"),
    ),
}


def main() -> int:
    """Run, print, store."""
    kernel = sys.argv[1] if len(sys.argv) > 1 else "6.1"
    if not shutil.which("qemu-system-x86_64"):
        print("skipped: qemu-system-x86_64 is not installed")
        return 77
    tests = ["i_chain", "i_cpu", "i_deadline", "i_gpu", "i_irq", "i_meter", "i_owner"]
    # where tests/vm/run puts it; what an earlier run left there is not this one's
    part = Path(os.environ.get("RTXG_VM_CACHE", TOP / "build/vm")) / kernel / "result-part.json"
    part.unlink(missing_ok=True)
    done = subprocess.run(
        [TOP / "tests/vm/run", "--slow", kernel, *tests, "--limit", "600"], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode == 2 or not part.exists():
        print(f"bench/kmod_costs: tests/vm/run {kernel} could not run", file=sys.stderr)
        return 1
    result = json.loads(part.read_text())
    values = result["values"]
    for title, rows in TABLES.items():
        print(f"\n{title}\n\n| | {result['release']} |\n| --- | --- |")
        for name, text in rows:
            if name in values:
                entry = values[name]
                print(f"| {text} | {entry['value']:.4g} {entry['unit'].replace('_', ' ')} |")
            else:
                print(f"| {text} | not measured |")
    out = Path(os.environ.get("RTXG_BENCH_DIR", TOP / "build/bench"))
    out.mkdir(parents=True, exist_ok=True)
    (out / "kmod_costs.json").write_text(json.dumps({"kernel": result["release"], "values": values}, indent=1) + "\n")
    for failure in result["failures"]:
        print(f"not ok: {failure}")
    return 0 if result["good"] else 1


if __name__ == "__main__":
    sys.exit(main())
