#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Do two real programs that synchronise often keep their shares: OpenCV's UMat at 70 % and 30 %.

usage: opencl_shares.py [--seconds N] [--rounds N] [--think TIME] [--cpu real-time|normal|nice]...
                        [--icd LIBRARY]

Each program filters a picture and reads the result back, again and again, and counts its pictures.
The share by pictures is their own measure; the share by charge is the daemon's.  What a program is
owed is its share of the time for which it had work: where it pauses for long, others go on, and its
share of all pictures is smaller.  Aim: at most 3 points off.

Does the charge tell the truth?  The device says by OpenCL's profiling how long each command ran;
the share of that time is compared with the share of the charge.  Aim: at most 3 points apart.

With several --cpu, rounds of each take turns.  Under real-time no other program takes the
processors from the device; what the others are further off is that.

--icd is as in opencl_overhead.py; without it OpenCV takes the first device that is a processor.

Needs OpenCV with OpenCL.  Writes $RTXG_BENCH_DIR/opencl_shares.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP / "bench"))
sys.path.insert(0, str(TOP / "demo"))
from opencl_overhead import only_icd, report  # noqa: E402
from shares import DemoError, Host, first_in_line  # noqa: E402

#: how the kernel schedules the programs' threads, which here are the device's too
CPU = {"real-time": first_in_line, "normal": None, "nice": lambda: os.nice(5)}

PROGRAM = """
import sys, time
import cv2
import numpy as np

cv2.ocl.setUseOpenCL(True)
if not cv2.ocl.useOpenCL():
    sys.exit(1)
picture = cv2.UMat((np.random.default_rng(7).random((480, 640)) * 255).astype(np.uint8))

def frame(picture):
    small = cv2.resize(cv2.GaussianBlur(picture, (5, 5), 1.5), (320, 240))
    _, mask = cv2.threshold(small, 120, 255, cv2.THRESH_BINARY)
    picture = cv2.resize(cv2.add(small, cv2.bitwise_not(mask)), (640, 480))
    picture.get()
    return picture

for _ in range(5):
    picture = frame(picture)
print("ready", flush=True)
sys.stdin.readline()
end, count = time.monotonic() + float(sys.argv[1]), 0
while time.monotonic() < end:
    picture = frame(picture)
    count += 1
print(count, flush=True)
"""
SHARES = {"seventy": 0.7, "thirty": 0.3}
AIM_POINTS = 3.0


def counters(host: Host) -> dict[str, dict[str, float]]:
    """Of each vGPU on the compute engine, in seconds: what it received, for how long it wanted it,
    and how long its commands ran by the device's own clock.
    """
    found: dict[str, dict[str, float]] = {"received": {}, "wanted": {}, "device": {}}
    for gpu in json.loads(host.command("top", "-b", "-n", "1", "-J").stdout)["gpus"]:
        for vgpu in gpu["vgpus"]:
            for engine in vgpu["engines"]:
                if vgpu["vgpu"] in SHARES and engine["engine"] == "compute":
                    found["device"][vgpu["vgpu"]] = engine["device_ns"] / 1e9
    for line in host.command("metrics").stdout.splitlines():
        name, _, rest = line.partition("{")
        for kind in ("received", "wanted"):
            if name == f"rtxg_vgpu_{kind}_seconds_total" and 'engine="compute"' in rest:
                value = float(rest.split()[-1])
                found[kind] |= {vgpu: value for vgpu in SHARES if f'vgpu="{vgpu}"' in rest}
    return found


def one_round(host: Host, cpu: str, seconds: float, device: str, cache: Path) -> tuple[float, ...]:
    """The larger share, by pictures, by charge, by charge of the time for which it had work, and by
    the device's clock, in percent.
    """
    settings = {
        "OPENCV_OPENCL_DEVICE": device,
        # Two programs at once write into it, and PoCL ends one that reads half a kernel.
        "OPENCV_OPENCL_CACHE_ENABLE": "false",
        "POCL_WORK_GROUP_METHOD": "auto",
        "POCL_CACHE_DIR": str(cache),
        "RTXG_OPENCL_PROFILING": "yes",
    }
    programs = {
        vgpu: subprocess.Popen(
            [
                host.rtxg,
                "run",
                "--fail",
                "closed",
                "-v",
                vgpu,
                "--",
                sys.executable,
                "-c",
                PROGRAM,
                str(seconds),
            ],
            env=host.environment | settings,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=CPU[cpu],
        )
        for vgpu in SHARES
    }
    host.children += programs.values()
    for program in programs.values():
        if program.stdout.readline().strip() != "ready":
            raise DemoError(
                "OpenCV is missing (pip install 'opencv-python-headless<5'), or finds no device of "
                "OpenCL (clinfo lists them; --icd names another implementation)"
            )
    before = counters(host)
    for program in programs.values():
        program.stdin.write("\n")
        program.stdin.flush()
    time.sleep(seconds * 0.9)
    after = counters(host)

    def passed(kind: str) -> dict[str, float]:
        return {vgpu: after[kind][vgpu] - before[kind].get(vgpu, 0) for vgpu in SHARES}

    charged, wanted, device = passed("received"), passed("wanted"), passed("device")
    pictures = {vgpu: int(program.communicate()[0]) for vgpu, program in programs.items()}
    return (
        100 * pictures["seventy"] / sum(pictures.values()),
        100 * charged["seventy"] / sum(charged.values()),
        100 * charged["seventy"] / wanted["seventy"],
        100 * device["seventy"] / sum(device.values()),
    )


def judged(name: str, rounds: list[tuple[float, ...]]) -> list[dict[str, object]]:
    """What the rounds say against what is reserved: the median, and how far off rounds were."""
    entries: list[dict[str, object]] = []
    for index, by in enumerate(("pictures", "charge", "charge while it had work")):
        got = sorted(r[index] for r in rounds)
        median = got[len(got) // 2]
        offs = [max(0.0, 70 - one) if index == 2 else abs(one - 70) for one in got]
        off = offs[len(got) // 2]
        entries.append(
            {
                "name": f"{name}, by {by}",
                "unit": "%",
                "rtxg": median,
                "alternative": 70.0,
                "alternative_name": "reserved",
                "figure_name": "points off",
                "figure": off,
                "low": min(offs),
                "high": max(offs),
                "rounds": [round(r[index], 2) for r in rounds],
                "aim": AIM_POINTS,
                "met": off <= AIM_POINTS,
            }
        )
    apart = sorted(rounds, key=lambda r: abs(r[1] - r[3]))[len(rounds) // 2]
    entries.append(
        {
            "name": f"{name}, charge and device",
            "unit": "%",
            "rtxg": apart[1],
            "alternative": apart[3],
            "alternative_name": "by the device's clock",
            "figure_name": "points apart",
            "figure": abs(apart[1] - apart[3]),
            "aim": AIM_POINTS,
            "met": abs(apart[1] - apart[3]) <= AIM_POINTS,
        }
    )
    return entries


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=8, help="of each round (default 8)")
    parser.add_argument("--rounds", type=int, default=3, help="the median counts (default 3)")
    parser.add_argument("--think", help="as of rtxg gpu set (default: the daemon's)")
    parser.add_argument(
        "--cpu",
        choices=CPU,
        action="append",
        help="how the kernel schedules the programs; may be given again (default real-time)",
    )
    parser.add_argument("--icd", type=Path, metavar="LIBRARY", help="this OpenCL implementation")
    options = parser.parse_args()
    # Of OpenCV's, PLATFORM:TYPE:DEVICE; whatever the only implementation has.
    device = "::" if options.icd else ":CPU:"
    kinds = options.cpu or ["real-time"]
    with only_icd(options.icd), Host("cbs", options.think) as host:
        cache = host.folder / "pocl"
        cache.mkdir()
        for vgpu, share in SHARES.items():
            host.command("vgpu", "create", vgpu, "--min", f"{share:.0%}")
        rounds: dict[str, list[tuple[float, ...]]] = {cpu: [] for cpu in kinds}
        for _ in range(options.rounds):
            for cpu, got in rounds.items():
                got.append(one_round(host, cpu, options.seconds, device, cache))
    entries: list[dict[str, object]] = []
    for cpu, got in rounds.items():
        entries += judged(f"OpenCV UMat at 70/30, {cpu}", got)
    report("opencl_shares", entries)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DemoError as error:
        print(f"opencl_shares: {error}", file=sys.stderr)
        sys.exit(1)
