# SPDX-License-Identifier: MIT
"""How a benchmark tells a program that is warm what to do: a small file that the program looks at.

So one process can be measured alone, under the stock driver and under rtxg, and what differs from
start to start (autotuning, addresses) falls out.
"""

from __future__ import annotations

import time
from pathlib import Path


class Control:
    """What the file says; looked at between two pieces of work."""

    def __init__(self, path: Path, most_s: float) -> None:
        self.path, self.end = path, time.monotonic() + most_s

    def word(self) -> str:
        """run, pause, quit, or a program's own; quit when its longest time is over."""
        if time.monotonic() > self.end:
            return "quit"
        try:
            return self.path.read_text(encoding="ascii").strip() or "pause"
        except OSError:
            return "pause"

    def may_run(self) -> bool:
        """Waits while it says pause; False when it says anything but run then."""
        while (word := self.word()) == "pause":
            time.sleep(0.002)
        return word == "run"

    def next_order(self, last: str) -> str:
        """Waits until it says something else than `last`."""
        while (word := self.word()) in (last, "pause"):
            time.sleep(0.002)
        return word
