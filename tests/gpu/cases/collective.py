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
    """Two GPUs: training with NCCL in a vGPU with a part of both, beside long kernels on each."""
    if gpu_count() < 2:
        setup.record(TRAIN, "of alone", None, None, "0.45", None, skipped="one GPU here")
        return
    length = setup.seconds(4, 10)
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # as the lever numbers them
    bound = {"latency": "20ms"}
    #: what the training has, what the others have, and the percent of its steps that are due to it
    ways = {
        "shares": ({"min": "50%"}, {"min": "50%"}, 50),
        "a bound of 20 ms": ({"min": "50%"} | bound, {"min": "50%"}, 50),
        "a bound of 20 ms beside another": ({"min": "40%"} | bound, {"min": "30%"} | bound, 40),
    }
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
            for name, (its, of_hogs, _) in ways.items():
                product.start()
                product.vgpu("train", **its)
                product.vgpu("hogs", **of_hogs)
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
    for name, (_, _, due) in ways.items():
        aim = 0.9 * due / 100
        setup.record(
            f"{TRAIN}: steps under {name}, {due} % for {due} %",
            "of alone",
            rates["stock"] / alone,
            rates[name] / alone,
            f"{aim:.2f}",
            rates[name] >= aim * alone,
            steps_a_second=rates,
            share_of_each_gpu=shares[name],
        )


def case_trainings(setup: Setup) -> None:
    """Two GPUs: two trainings with NCCL, each in a vGPU with a bound, beside a hog on one."""
    title = "two NCCL trainings on two GPUs, each with a bound of 30 ms"
    if gpu_count() < 2:
        setup.record(title, "of alone", None, None, "0.36", None, skipped="one GPU here")
        return
    length = setup.seconds(4, 10)
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # as the lever numbers them
    promised = {"first": 40, "second": 30}
    most = 5 * length + 120
    outs = {name: setup.work / f"trainings-{name}.txt" for name in promised}
    stock: dict[str, float] = {}
    rtxg: dict[str, float] = {}

    def measure(rates: dict[str, float]) -> None:
        begin = time.monotonic_ns()
        time.sleep(length)
        end = time.monotonic_ns() - 50_000_000
        rates |= {name: steps_a_second(out, begin, end) for name, out in outs.items()}

    product = Product(setup)
    with Programs(setup) as programs:
        try:
            out = outs["first"]
            programs.begin(python("collective_load.py", 2, most, out), out, **order)
            programs.wait_working()
            begin = time.monotonic_ns()
            time.sleep(length)
            # Both are the same program.
            alone = steps_a_second(out, begin, time.monotonic_ns() - 50_000_000)
            out = outs["second"]
            programs.begin(python("collective_load.py", 2, most, out), out, **order)
            out = setup.work / "hog-trainings.txt"
            programs.begin(programs.load("hog", setup.turns_of(20000), most, out), out, **order)
            programs.wait_working()
            time.sleep(1)
            measure(stock)
            product.start()
            for name, due in promised.items():
                product.vgpu(name, min=f"{due}%", latency="30ms")
            product.vgpu("hogs", min="30%")
            first, second, hog = (p.pid for p in programs.processes)
            members = {"first": family(first), "second": family(second), "hogs": [hog]}
            for vgpu, pids in members.items():
                for pid in pids:
                    product.rtxg("set", "-p", str(pid), "-v", vgpu)
            time.sleep(2)
            measure(rtxg)
            waits = {gpu: product.long_waits(30e6, gpu) for gpu in ("nvidia0", "nvidia1")}
        finally:
            product.__exit__()
    for name, due in promised.items():
        aim = 0.9 * due / 100
        setup.record(
            f"{title}: steps of the one with {due} %",
            "of alone",
            stock[name] / alone,
            rtxg[name] / alone,
            f"{aim:.2f}",
            rtxg[name] >= aim * alone,
            steps_a_second={"alone": alone, "stock": stock, "rtxg": rtxg},
            longer_waits_than_the_bound=waits,
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
