# SPDX-License-Identifier: MIT
"""The overheads that `rtxg analyze` reckons with, as `rtxg measure` sees them beside a busy GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness import ROOT, Setup
from product import Product, Programs, python

#: a daemon and two programs without a GPU: the hand-over of a permit from one to the other
HANDOVER = "handover"
TRACEFS = Path("/sys/kernel/tracing")


def interrupts(text: str) -> int:
    """How often the GPU's driver was interrupted, of what /proc/interrupts says."""
    return sum(
        int(word)
        for line in text.splitlines()
        if "nvidia" in line
        for word in line.split()[1 : text.splitlines()[0].count("CPU") + 1]
    )


def seen_by_interrupts() -> int:
    """The same now."""
    with open("/proc/interrupts", encoding="ascii", errors="replace") as file:
        return interrupts(file.read())


def permit_us(setup: Setup) -> float | None:
    """The hand-over of a permit as bench/handover measures it; None: it is not built."""
    bench = setup.program(HANDOVER, "bench")
    if not bench.exists():
        return None
    with tempfile.TemporaryDirectory() as scratch:
        env = {
            **os.environ,
            "XDG_RUNTIME_DIR": scratch,
            "RTXG_BENCH_DIR": scratch,
            "RTXG_DAEMON": str(setup.program("rtxgd", "daemon")),
            "PATH": f"{setup.program('rtxg', 'cli').parent}:{os.environ.get('PATH', '')}",
        }
        subprocess.run([bench], env=env, check=True, timeout=60)
        subprocess.run([setup.program("rtxg", "cli"), "host", "stop"], env=env, check=False)
        with open(f"{scratch}/{HANDOVER}.json", encoding="utf-8") as file:
            return float(json.load(file)[0]["rtxg"])


def measured(setup: Setup, product: Product, seconds: float) -> dict[str, Any]:
    """What `rtxg measure` finds."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "lab"), "RTXG_SOCKET": str(product.socket)}
    command = [sys.executable, "-m", "rtxg.commands.measure", "--irq", "nvidia", "--json"]
    done = subprocess.run(
        [*command, "--seconds", f"{seconds:g}"],
        env=env,
        check=False,
        capture_output=True,
        text=True,
        timeout=60 + seconds,
    )
    if done.returncode:
        raise RuntimeError(f"rtxg measure: {done.stderr[-600:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@contextmanager
def tracepoints() -> Iterator[None]:
    """The kernel's tracepoints for a while, on a machine where tracefs is not mounted."""
    if TRACEFS.joinpath("events").exists():
        yield
        return
    mount = ["mount", "-t", "tracefs", "nodev", TRACEFS]
    mounted = subprocess.run(mount, check=False, capture_output=True).returncode == 0
    try:
        yield
    finally:
        if mounted:
            subprocess.run(["umount", TRACEFS], check=False, capture_output=True)


def case_overheads(setup: Setup) -> None:
    """Overheads of this machine: kernel, GPU's interrupts, permit, and the lever's acts."""
    with Product(setup) as product, Programs(setup) as programs, tracepoints():
        for name, values in (
            ("hog0", {"min": "30%"}),
            ("hog1", {"min": "20%"}),
            ("sleeper", {"min": "10%"}),
            ("soon", {"min": "10%"}),
        ):
            product.vgpu(name, **values)
        programs.busy(20_000, 90, product, "hog0")
        programs.busy(1000, 90, product, "hog1")
        out = setup.work / f"sleeper-{time.monotonic_ns()}.txt"
        programs.begin(python("sleeper.py", 90, out), out, product, "sleeper")
        programs.wait_working()
        product.vgpu("soon", min="10%", latency="5ms")
        programs.sporadic(80, product, "soon", period_us=20_000)
        time.sleep(3)
        raised = seen_by_interrupts()
        found = measured(setup, product, setup.seconds(5, 10))
        raised = seen_by_interrupts() - raised
        programs.end()
    permit = permit_us(setup)
    if permit is not None:
        found["overheads"]["permit"] = permit
        found["unseen"].pop("permit", None)
        found["distributions"]["permit"] = {"median": permit, "source": "median of bench/handover"}
    for name, value in found["overheads"].items():
        how = found["distributions"][name]
        setup.record(f"overhead: {name}", "us", value, None, "-", None, **how)
    lacking = sorted(set(found["unseen"]) - {"paisch", "pairel", "krel"})
    setup.record(
        "overheads that could not be seen",
        "",
        None,
        len(lacking),
        "0",
        not lacking,
        unseen=found["unseen"],
        notes=found["notes"],
        interrupts=raised,
        measured=found,
    )
