# SPDX-License-Identifier: MIT
"""A program on several GPUs at once, whose processes wait for each other on the GPU."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from harness import Setup, gpu_count, progress
from product import Product, Programs, python

TRAIN = "NCCL training on two GPUs"


def steps_a_second(out: Path, begin: int, end: int) -> float:
    """Steps of the training in a stretch of time."""
    p = progress(out)
    return float(np.interp(end, p[:, 0], p[:, 1]) - np.interp(begin, p[:, 0], p[:, 1])) / (
        (end - begin) / 1e9
    )


def case_collective(setup: Setup) -> None:
    """Two GPUs: training with NCCL in a vGPU with 50 % of both, beside long kernels on each."""
    if gpu_count() < 2:
        setup.record(TRAIN, "of alone", None, None, "0.45", None, skipped="one GPU here")
        return
    length = setup.seconds(4, 10)
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # as the lever numbers them
    ways = {"shares": {"min": "50%"}, "a bound of 20 ms": {"min": "50%", "latency": "20ms"}}
    rates: dict[str, float] = {}
    shares: dict[str, list[float]] = {}

    def measured(out: Path) -> float:
        begin = time.monotonic_ns()
        time.sleep(length)
        return steps_a_second(out, begin, time.monotonic_ns() - 50_000_000)

    product = Product(setup)
    with Programs(setup) as programs:
        try:
            out = setup.work / "collective.txt"
            most = 3 * length * (2 + len(ways)) + 60
            programs.begin(python("collective_load.py", 2, most, out), out, **order)
            programs.wait_working()
            train = programs.processes[0].pid
            rates["alone"] = measured(out)
            for device in range(2):
                path = setup.work / f"hog-collective-{device}.txt"
                command = programs.load("hog", setup.turns_of(20000), most, path)
                programs.begin(command, path, **order, LOAD_DEVICE=str(device))
            programs.wait_working()
            hogs = [p.pid for p in programs.processes[1:]]
            time.sleep(1)
            rates["stock"] = measured(out)
            for name, values in ways.items():
                product.start()
                product.vgpu("train", **values)
                product.vgpu("hogs", min="50%")
                for vgpu, pids in (("train", family(train)), ("hogs", hogs)):
                    for pid in pids:
                        product.rtxg("set", "-p", str(pid), "-v", vgpu)
                time.sleep(2)
                before = got(product)
                rates[name] = measured(out)
                after = got(product)
                shares[name] = [
                    100 * (after[k] - before[k]) / max(after[(k[0], "")] - before[(k[0], "")], 1)
                    for k in sorted(after)
                    if k[1] == "train"
                ]
                product.stop()
                time.sleep(0.5)
        finally:
            product.__exit__()
    alone = rates["alone"]
    for name in ways:
        setup.record(
            f"{TRAIN}: steps under {name}, 50 % for 50 %",
            "of alone",
            rates["stock"] / alone,
            rates[name] / alone,
            "0.45",
            rates[name] >= 0.45 * alone,
            steps_a_second=rates,
            share_of_each_gpu=shares[name],
        )


def family(pid: int) -> list[int]:
    """A process and its children."""
    kids = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [pid, *map(int, kids)]


def got(product: Product) -> dict[tuple[str, str], int]:
    """Busy ns of each vGPU on each GPU, and under "" of both vGPUs together."""
    busy: dict[tuple[str, str], int] = {}
    for gpu in product.ask("stats")["gpus"]:
        if not gpu["gpu"].startswith("nvidia"):
            continue
        for v in gpu["vgpus"]:
            if v["vgpu"] in ("train", "hogs"):
                ns = v["engines"][0]["busy_ns"]  # compute
                busy[gpu["gpu"], v["vgpu"]] = ns
                busy[gpu["gpu"], ""] = busy.get((gpu["gpu"], ""), 0) + ns
    return busy
