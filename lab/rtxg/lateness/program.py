# SPDX-License-Identifier: MIT
"""Finds and runs the program that measures."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path


class LatencyError(RuntimeError):
    """Something could not be measured or read: the message says what, and what to do."""


def find(name: str) -> str:
    """A program of ours: where RTXG_LATENCY_PROGRAMS says, beside a build, or in PATH.

    :raises LatencyError: if it is not there.
    """
    folder = os.environ.get("RTXG_LATENCY_PROGRAMS")
    places = [Path(folder)] if folder else []
    for above in Path(__file__).resolve().parents:
        places.append(above / "build/release/latency")
    for place in places:
        if os.access(place / name, os.X_OK):
            return str(place / name)
    found = shutil.which(name)
    if not found:
        raise LatencyError(f"{name} is not in PATH; install rtxg, or name its folder in RTXG_LATENCY_PROGRAMS")
    return found


def measure(words: list[str], limit_s: float) -> dict:
    """The JSON of one run.

    :param words: options of `rtxg latency`
    :param limit_s: seconds after which it counts as hung
    :raises LatencyError: if it ends with another status than 0 and 2.
    """
    # A table that is killed cannot end it: the kernel tells it, or it would measure on for the
    # minutes of its row, with its interrupts moved.
    command = ["setpriv", "--pdeathsig", "TERM", find("rtxg-latency"), "-q", "--json", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit_s)
    except subprocess.TimeoutExpired as error:
        raise LatencyError(f"rtxg latency did not end within {limit_s:.0f} s") from error
    if done.returncode not in (0, 2):
        reason = done.stderr.strip().removeprefix("rtxg latency: ")
        raise LatencyError(reason or f"rtxg latency ended with status {done.returncode}")
    return json.loads(done.stdout)
