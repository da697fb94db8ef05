# SPDX-License-Identifier: MIT
"""Programs that compute on their CPUs for a millisecond after each short kernel, several at once.

The engine has nothing to do for most of a turn of such a program. What they do together under rtxg
is set against what the same running programs do on the stock driver.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from harness import Setup, progress, work_in
from product import Product, Programs

#: the name, how many that pause, their kernels in us, and whether one that always has work is there
SETS = (
    ("four with kernels of 0.2 ms", 4, 200, False),
    ("eight with kernels of 0.06 ms", 8, 60, False),
    ("three with kernels of 0.2 ms and one that always has work", 3, 200, True),
)
PAUSE_US = 1000
#: of their work on the stock driver, where none always has work
LEAST = 0.9
#: until it has been seen who can run beside whom, s
SETTLES = 4


def start(setup: Setup, programs: Programs, pausing: int, kernel_us: int, hog: bool) -> list[int]:
    """Starts them, each with a longer pause than the one before; their pids."""
    pids = []
    for i in range(pausing + hog):
        out = setup.work / f"pauses-{time.monotonic_ns()}.txt"
        us = kernel_us if i < pausing else 2000
        env = {"LOAD_PAUSE_US": str(PAUSE_US + i * PAUSE_US // 7)} if i < pausing else {}
        command = programs.load("hog", setup.turns_of(us), 300, out)
        pids.append(programs.begin(command, out, **env).pid)
    programs.wait_working()
    return pids


def rates(outputs: list[Path], seconds: float) -> np.ndarray:
    """Work of each in the time that begins now, a second."""
    begin = time.monotonic_ns()
    time.sleep(seconds)
    end = time.monotonic_ns()
    time.sleep(0.1)
    return np.asarray(work_in([[progress(o)] for o in outputs], begin, end)) / (end - begin) * 1e9


def under_rtxg(
    setup: Setup, build: Path, pids: list[int], outputs: list[Path], length: float
) -> np.ndarray:
    """The same with each in a vGPU that has an equal part."""
    product = Product(setup)
    product.use(build)
    with product:
        for i, pid in enumerate(pids):
            product.vgpu(f"pauses{i}", min=f"{90 // len(pids)}%")
            product.rtxg("set", "-p", str(pid), "-v", f"pauses{i}")
        time.sleep(SETTLES)
        return rates(outputs, length)


def case_pauses(setup: Setup) -> None:
    """Several programs that compute on their CPUs after each short kernel: work, over stock's."""
    length = setup.seconds(2, 4)
    for name, pausing, kernel_us, hog in SETS:
        with Programs(setup) as programs:
            pids = start(setup, programs, pausing, kernel_us, hog)
            stock = rates(programs.outputs, length)
            for build in [setup.bin, *setup.beside]:
                found = under_rtxg(setup, build, pids, programs.outputs, length)
                record(setup, name + (f", {build.name}" if setup.beside else ""), stock, found, hog)


def record(setup: Setup, name: str, stock: np.ndarray, found: np.ndarray, hog: bool) -> None:
    """The work of those that pause, and that of the one that always has work."""
    each: dict[str, Any] = {"each_stock": stock.tolist(), "each_rtxg": found.tolist()}
    value = float((found / stock)[: len(stock) - hog].mean())
    least = 1.0 if hog else LEAST
    setup.record(f"{name}: their work", "of stock's", 1, value, f"{least}", value >= least, **each)
    if hog:
        value = float(found[-1] / stock[-1])
        setup.record(f"{name}: the work of that one", "of stock's", 1, value, "-", None)
