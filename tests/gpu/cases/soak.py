# SPDX-License-Identifier: MIT
"""A long run in which everything happens at once: nothing may break, stay stopped or grow."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

from harness import Setup, progress, xids
from product import Product, Programs, Timeline, descendants

from .churn import Starter

#: a program that does not work again after so long was left stopped
STOPPED_MS = 100.0


def size(pid: int) -> dict[str, int]:
    """What a process holds: KiB of memory, descriptors."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
        found = re.search(r"VmRSS:\s+(\d+)", status)
        return {
            "rss_kib": int(found.group(1)) if found else 0,
            "fds": len(os.listdir(f"/proc/{pid}/fd")),
        }
    except OSError:
        return {}


def works_again_ms(out: Path, death: int) -> float:
    """From a death to the next progress of a program; NaN if it had ended by then."""
    rows = progress(out)
    after = rows[rows[:, 0] > death]
    if len(rows) < 2 or not len(after) or rows[0, 0] > death:
        return float("nan")
    had = np.interp(death, rows[:, 0], rows[:, 1])
    moved = after[after[:, 1] > had + 1]
    return float((moved[0, 0] - death) / 1e6) if len(moved) else float("inf")


def stopped_over_ms(line: Timeline, death: int) -> float:
    """The longest that a process which was stopped at a death stayed so."""
    spans = [s for of_one in line.stopped.values() for s in of_one if s[0] <= death < s[1]]
    return max(((end - death) / 1e6 for _, end in spans), default=0.0)


class Soak:
    """What happens, at random, and when."""

    def __init__(self, setup: Setup, product: Product, programs: Programs) -> None:
        self.setup, self.product, self.programs = setup, product, programs
        self.chance = random.Random(11)
        self.deaths: list[int] = []  # of the daemon
        self.stopped_ms: list[float] = []  # after each death of the guardian
        self.counts: dict[str, int] = {}
        self.errors: list[str] = []
        self.long_lived: list[tuple[int, Path]] = []  # pid and output

    def vgpus(self) -> None:
        """All of them; those that a daemon before this one had stay as they are."""
        for i in range(4):
            self.product.vgpu(f"c{i}", min="15%")
        self.product.vgpu("hold", min="20%")
        self.product.vgpu("urgent", priority=60)

    def kill_daemon(self) -> None:
        """kill -9; another one after 2 s at most, as a service manager does."""
        self.deaths.append(time.monotonic_ns())
        self.product.kill()
        time.sleep(self.chance.choice((0.1, 1.2)))
        self.product.start()
        self.vgpus()

    def kill_guardian(self) -> None:
        """kill -9."""
        assert self.product.process
        for pid in descendants(self.product.process.pid):
            name = Path(f"/proc/{pid}/comm").read_text(encoding="ascii").strip()
            if name.startswith("rtxg-guard"):
                death = time.monotonic_ns()
                os.kill(pid, signal.SIGKILL)
                time.sleep(0.5)
                self.stopped_ms.append(stopped_over_ms(self.product.timeline(), death))
                return
        raise RuntimeError("no guardian is there")

    def move(self) -> None:
        """A running program goes to another vGPU."""
        pid, _ = self.chance.choice(self.long_lived)
        there = f"c{self.chance.randrange(4)}" if self.chance.random() < 0.7 else "hold"
        self.product.rtxg("set", "-p", str(pid), "-v", there)

    def change(self) -> None:
        """Other limits for a vGPU."""
        name, low = f"c{self.chance.randrange(4)}", self.chance.choice((5, 10, 15))
        high = self.chance.choice(("max", f"{low + 10}%"))
        self.product.rtxg("vgpu", "set", "--min", f"{low}%", "--max", high, name)

    def something(self) -> None:
        """One thing that happens."""
        kinds = (
            self.kill_daemon,
            self.kill_guardian,
            self.move,
            self.move,
            self.change,
            self.change,
        )
        what = self.chance.choice(kinds)
        name = what.__name__
        self.counts[name] = self.counts.get(name, 0) + 1
        try:
            what()
        except (RuntimeError, OSError) as e:
            self.errors.append(f"{name}: {e}")
            if not self.product.process or self.product.process.poll() is not None:
                self.product.start()
                self.vgpus()

    def still(self) -> dict[str, float]:
        """After the deaths of each kind: the longest that a program stood still or was stopped.

        Without a daemon all programs run, so the next progress tells. The daemon outlives its
        guardian, lets all go, and may stop them again as soon as another guardian watches: there
        the list of what it did tells.
        """
        found: dict[str, float] = {}
        again = [works_again_ms(out, at) for at in self.deaths for _, out in self.long_lived]
        again = [ms for ms in again if not np.isnan(ms)]
        if again:
            found["rtxgd"] = max(again)
        if self.stopped_ms:
            found["guardian"] = max(self.stopped_ms)
        return found


def case_soak(setup: Setup) -> None:
    """Churn, deaths of rtxgd and its guardian, moves, other limits: nothing breaks or grows."""
    seconds = 25.0 if setup.quick else setup.soak_s
    before = len(xids())
    product = Product(setup)
    sizes: list[dict[str, Any]] = []
    with Programs(setup) as programs:
        soak = Soak(setup, product, programs)
        try:
            product.start()
            soak.vgpus()
            assert product.process
            sizes.append(size(product.process.pid) | {"when": "started"})
            for _ in range(2):
                out = programs.busy(2000, seconds + 60, product, "hold")
                soak.long_lived.append((programs.processes[-1].pid, out))
            programs.wait_working()
            end = time.monotonic_ns() + int(seconds * 1e9)
            starters = [Starter(programs, product, i, end - 2_000_000_000) for i in range(4)]
            programs.sporadic(seconds, product, "urgent")
            for s in starters:
                s.start()
            while time.monotonic_ns() < end - 3_000_000_000:
                time.sleep(soak.chance.uniform(0.5, 1.5))
                soak.something()
            for s in starters:
                s.join(40)
            # One that starts now, with nothing but the two programs, and after churn without deaths
            product.stop()
            product.start()
            soak.vgpus()
            assert product.process
            time.sleep(1)
            sizes.append(size(product.process.pid) | {"when": "started again"})
            until = time.monotonic_ns() + int(max(4.0, seconds / 5) * 1e9)
            again = [Starter(programs, product, i, until) for i in range(4)]
            for s in again:
                s.start()
            for s in again:
                s.join(seconds + 40)
            time.sleep(1)
            sizes.append(size(product.process.pid) | {"when": "after churn"})
            still = soak.still()
            policy, tasks = product.gpu()["policy"], product.tasks()
            unmanaged = [p for p, t in tasks.items() if t.get("managed") is False]
        finally:
            product.__exit__()
    lives = [x for s in (*starters, *again) for x in s.lives]
    failed = [x.status for x in lives if not x.killed and x.status not in (0, None)]
    errors = [s.error for s in (*starters, *again) if s.error]
    title = f"soak of {seconds:g} s" if setup.quick else "soak"
    found = xids()[before:]
    setup.record(
        f"{title}: Xids",
        "",
        None,
        len(found),
        "0",
        not found,
        lines=found[:5],
        seconds=seconds,
        happened=soak.counts,
        programs=len(lives),
        killed=sum(x.killed for x in lives),
        policy=policy,
    )
    worst = max(still.values(), default=float("nan"))
    setup.record(
        f"{title}: longest that a program was held still after a death",
        "ms",
        None,
        worst if still else None,
        f"{STOPPED_MS:g}",
        worst <= STOPPED_MS if still else None,
        by=still,
        **({} if still else {"reason": "nothing died in this run"}),
    )
    setup.record(
        f"{title}: programs that failed, and commands that were refused",
        "",
        None,
        len(failed) + len(soak.errors) + len(errors),
        "0",
        not (failed or soak.errors or errors),
        status=failed[:5],
        errors=[*soak.errors, *errors][:5],
        started_while_no_daemon_was_there=sum(s.refused for s in (*starters, *again)),
        unmanaged_at_the_end=unmanaged,
    )
    grown = {k: sizes[-1].get(k, 0) - sizes[-2].get(k, 0) for k in ("rss_kib", "fds")}
    setup.record(
        f"{title}: growth of rtxgd by churn: memory",
        "KiB",
        None,
        grown["rss_kib"],
        "1024",
        grown["rss_kib"] <= 1024 and grown["fds"] <= 0,
        sizes=sizes,
        descriptors=grown["fds"],
    )
