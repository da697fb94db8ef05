#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The demonstration: figure 10 of the Linux-RTXG paper on this machine.

Two OpenCL programs that know nothing of rtxg share one device. The first has 1.2 times the work a job and the reservation of 40 %, the second
starts later and has 60 %. First under FIFO: shares follow the workload. Then under reservation: shares follow 40/60.

Usage: demo.py [--seconds N] [--output DIR].  SECONDS in the environment is the default of --seconds, the length of each run.
Writes DIR/result.json and DIR/shares.png; exit status 0 if both runs were made, 1 if not, 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

sys.path.insert(0, str(Path(__file__).resolve().parent))
import shares  # noqa: E402
from shares import DemoError, Host, Load, Slots  # noqa: E402

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

#: milliseconds that a job of the second program takes alone; the first's takes 1.2 times that
JOB_MS, FACTOR = 5.0, 1.2
RUNS = {"fifo": ("fifo", "FIFO: one launch at a time, in turn"), "reserve": ("cbs", "Reservation: 40 % and 60 %")}
COLOURS = {"vgpu0": "#1f77b4", "vgpu1": "#d62728"}
BAR = 50


def bar(share: float, reservation: float) -> Text:
    """A bar of BAR characters for 100 %; | marks the reservation."""
    filled, mark = round(min(share, 1.0) * BAR), round(reservation * BAR)
    text = Text()
    for i in range(BAR + 1):
        text.append("|" if i == mark else ("█" if i < filled else "·"), style="bold" if i == mark else ("green" if i < filled else "dim"))
    return text


class Display:
    """The shares of the last second: redrawn in a terminal, a line a second elsewhere."""

    def __init__(self, console: Console, title: str, loads: list[Load], seconds: float) -> None:
        self.console, self.title, self.loads, self.seconds = console, title, loads, seconds
        self.live = Live(console=console, refresh_per_second=8) if console.is_terminal else None
        self.next_line = 1.0

    def __enter__(self) -> Display:
        if self.live:
            self.live.__enter__()
        else:
            self.console.print(f"{self.title}")
        return self

    def __exit__(self, *error: Any) -> None:
        if self.live:
            self.live.__exit__(*error)

    def current(self, host: Host) -> list[float]:
        """Shares over the last full second of the history."""
        newest = max((s["time"] + s["seconds"] for s in host.slots[-20:]), default=0.0)
        return [host.history(load.vgpu).between(newest - 1.0, newest) if newest else 0.0 for load in self.loads]

    def tick(self, now: float, host: Host) -> None:
        """Show where we are."""
        if self.live:
            table = Table(title=f"{self.title}   {min(now, self.seconds):4.1f} of {self.seconds:g} s", title_justify="left", box=None)
            table.add_column("program")
            table.add_column("vGPU")
            table.add_column("reserved", justify="right")
            table.add_column("used, last 1 s", justify="right")
            table.add_column("")
            for load, share in zip(self.loads, self.current(host), strict=True):
                table.add_row(load.name, load.vgpu, f"{load.min_share:.0%}", f"{share:6.1%}", bar(share, load.min_share))
            self.live.update(table)
        elif now >= self.next_line:
            self.next_line += 1.0
            used = "   ".join(f"{load.name} {share:6.1%} (reserved {load.min_share:.0%})"
                              for load, share in zip(self.loads, self.current(host), strict=True))
            self.console.print(f"  {now:5.1f} s   {used}", highlight=False)


def figure(path: Path, results: dict[str, Any], runs: dict[str, tuple[list[Load], dict[str, Slots], float]]) -> None:
    """Utilisation over time, one panel a run, in the manner of figure 10 of the Linux-RTXG paper."""
    picture, axes = plt.subplots(1, len(runs), figsize=(11, 4), sharey=True, layout="constrained")
    for axis, (run, (loads, slots, seconds)) in zip(axes, runs.items(), strict=True):
        origin = min(float(history.borders[0]) for history in slots.values())
        for load in loads:
            history = slots[load.vgpu]
            at = np.arange(0.0, seconds - 0.5, 0.1)
            used = [history.between(origin + t, origin + t + 0.5) / 0.5 * 100 for t in at]
            axis.plot(at + 0.5, used, color=COLOURS[load.vgpu], label=f"{load.vgpu}: {load.name}, {load.min_share:.0%} reserved")
            if run == "reserve":
                axis.axhline(load.min_share * 100, color=COLOURS[load.vgpu], linestyle="--", linewidth=0.8)
        axis.set_title(RUNS[run][1], fontsize=10)
        axis.set_xlabel("time (s)")
        axis.set_xlim(0, seconds)
        axis.set_ylim(0, 105)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("utilisation of the device (%), over 0.5 s")
    axes[0].legend(loc="upper right", fontsize=8)
    picture.suptitle(f"Two OpenCL programs on {results['device']}", fontsize=11)
    picture.savefig(path, dpi=130)
    plt.close(picture)


def device_name() -> str:
    """What OpenCL calls the device, by clinfo; for titles only."""
    try:
        text = subprocess.run(["clinfo", "--raw"], capture_output=True, text=True, check=False, timeout=30).stdout
    except (OSError, subprocess.TimeoutExpired):
        return "an OpenCL device"
    for line in text.splitlines():
        if "CL_DEVICE_NAME" in line:
            return line.split("CL_DEVICE_NAME", 1)[1].strip()
    return "an OpenCL device"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    text = os.environ.get("SECONDS") or "20"
    parser.add_argument("--seconds", default=text, help="length of each of the two runs (at least 6)")
    parser.add_argument("--output", type=Path, default=shares.ROOT / "build/demo")
    options = parser.parse_args()
    try:
        seconds = float(options.seconds)
        if not 6 <= seconds <= 3600:
            raise ValueError
    except ValueError:
        print(f"demo: SECONDS={options.seconds}: a number from 6 to 3600 expected", file=sys.stderr)
        return 2
    options.output.mkdir(parents=True, exist_ok=True)
    console = Console() if sys.stdout.isatty() else Console(width=110)

    console.print("Measuring how long a job of each program takes alone ...")
    work = shares.fit_work("mandelbrot", JOB_MS * FACTOR / 1e3)
    other = shares.fit_work("nbody", work[1] / FACTOR)
    for name, (_, job_s) in (("mandelbrot", work), ("nbody", other)):
        console.print(f"  {name}: {job_s * 1e3:.2f} ms a job", highlight=False)

    results: dict[str, Any] = {"device": device_name(), "seconds": seconds, "second_starts_s": seconds / 4}
    runs: dict[str, tuple[list[Load], dict[str, Slots], float]] = {}
    for run, (policy, title) in RUNS.items():
        loads = [
            Load("mandelbrot", "mandelbrot", work[0], "vgpu0", 0.4, job_s=work[1]),
            Load("nbody", "nbody", other[0], "vgpu1", 0.6, start_s=seconds / 4, job_s=other[1]),
        ]
        with Display(console, title, loads, seconds) as display:
            slots = shares.run(policy, loads, seconds, tick=display.tick)
        runs[run] = (loads, slots, seconds)
        results[run] = {"policy": policy} | shares.summarise(loads, slots)

    table = Table(title="While both programs ran", title_justify="left")
    for column in ("run", "program", "vGPU", "reserved", "share (rtxg)", "share (own work)", "worst 1 s: points off", "jobs"):
        table.add_column(column, justify="left" if column in ("run", "program", "vGPU") else "right")
    for run in RUNS:
        for row in results[run]["programs"]:
            table.add_row(run, row["program"], row["vgpu"], f"{row['reservation']:.0%}", f"{row['share']:.1%}", f"{row['share_by_work']:.1%}",
                          f"{row['worst_window_error_points']:.1f}", str(row["jobs"]))
    console.print(table)
    figure(options.output / "shares.png", results, runs)
    (options.output / "result.json").write_text(json.dumps(results, indent=2) + "\n")
    console.print(f"The picture is {options.output / 'shares.png'}, the numbers are in {options.output / 'result.json'}.", highlight=False)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
