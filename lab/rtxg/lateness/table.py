# SPDX-License-Identifier: MIT
"""The cross table of loads: `rtxg latency table`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass

from . import loads
from .program import LatencyError, measure
from .verdict import Row, Verdict, judge


@dataclass
class Table:
    """What was measured on one machine."""

    machine: dict
    seconds: float  #: of each row
    cpu: int
    options: list[str]
    rows: list[Row]
    left_out: list[str]  #: what could not be measured, and why

    def verdict(self) -> Verdict:
        """In words."""
        return judge(self.rows, bool(self.machine.get("virtual")))

    def as_dict(self) -> dict:
        """Plain data."""
        verdict = self.verdict()
        return {
            "format": 1,
            "machine": self.machine,
            "seconds": self.seconds,
            "cpu": self.cpu,
            "options": self.options,
            "rows": [row.as_dict() for row in self.rows],
            "left_out": self.left_out,
            "verdict": {
                "bandwidth": verdict.bandwidth,
                "device": verdict.device,
                "reason": verdict.reason,
                "affinity": verdict.affinity,
                "sentences": list(verdict.sentences),
            },
        }


def title(row: Row) -> str:
    """The loads of a row in words."""
    parts = [row.memory and f"memory {row.memory}", row.device]
    name = " + ".join(filter(None, parts)) or "no load"
    return f"{name}{f', {row.place} core' if row.place else ''}"


def combinations(devices: list[str], places: list[str]) -> list[tuple[str, str, str]]:
    """Memory, device and place of each row: without load first and last, as the two tell the noise."""
    rows = [(memory, "", "") for memory in ("", "L3", "above L3")]
    together = [*devices, "+".join(devices)] if len(devices) > 1 else devices
    rows += [(memory, device, place) for device in together for place in places for memory in ("", "L3", "above L3")]
    return [*rows, ("", "", "")]


def fill(row: Row, result: dict) -> None:
    """Take a run's JSON into a row."""
    thread = result["threads"][0]
    seen = thread["observed"]
    row.real_time = thread["policy"] in ("fifo", "rr")
    row.max_us, row.avg_us, row.p999_us = seen["max_us"], seen["avg_us"], seen["p999_us"]
    row.cycles = seen["count"]
    row.stolen_us = result.get("stolen_us", 0.0)
    worst = (result.get("worst") or {}).get("own") or []
    if worst:
        row.culprit = worst[0]["culprit"]
        row.parts = [{key: part[key] for key in ("kind", "us", "what")} for part in worst[0]["parts"]]


def other_cpus(cpu: int) -> str:
    """The CPUs of this process but that one; that one if it has no other."""
    others = sorted(os.sched_getaffinity(0) - {cpu})
    return ",".join(map(str, others)) or str(cpu)


def run(
    cpu: int, seconds: float, priority: int, interval_us: int, interrupts: list[str], progress: Callable[[str], None]
) -> Table:
    """Measure every combination that is possible here.

    An interrupt of the program ends it with the rows that are whole.

    :param interrupts: names of the device's interrupts; they go to the core of its load meanwhile
    :raises LatencyError: if nothing can be measured.
    """
    for name in interrupts:  # a name that no interrupt has is found before the first row
        measure(["-l", "1", "--user-only", "--irq", f"{name}={cpu}"], 60)
    left_out: list[str] = []
    devices: dict[str, loads.Load] = {}
    for one in (loads.graphics(), loads.gpu()):
        if isinstance(one, str):
            left_out.append(one)
        else:
            devices[one.name] = one
    places = ["same", "other"] if other_cpus(cpu) != str(cpu) else ["same"]
    words = ["-m", "-a", str(cpu), "-p", str(priority), "-i", str(interval_us), "-D", str(seconds), "-h", "10000"]
    rows: list[Row] = []
    machine: dict = {}
    wanted = combinations(list(devices), places)
    for number, (memory, device, place) in enumerate(wanted):
        row = Row(memory, device, place)
        cpus = str(cpu) if place == "same" else other_cpus(cpu)
        more = [word for name in interrupts if device for word in ("--irq", f"{name}={cpus}")]
        progress(f"memory {memory or 'none'}, device {device or 'none'}{f' on the {place} core' if place else ''}")
        try:
            with contextlib.ExitStack() as stack:
                running = []
                if memory:
                    running.append(stack.enter_context(loads.Running(loads.memory(memory == "L3"), str(cpu))))
                running += [
                    stack.enter_context(loads.Running(devices[name], cpus))
                    for name in device.split("+")
                    if name
                ]
                result = measure([*words, *more], seconds + 60)
            row.rates = {r.load.name: f"{r.rate:.0f} {r.load.unit}" for r in running if r.rate is not None}
        except LatencyError as error:
            if not rows:
                raise
            left_out.append(f"{memory or 'no memory load'}, {device or 'no device'}: {error}")
            continue
        except KeyboardInterrupt:
            # hours may have been measured
            if not rows:
                raise
            left_out += [
                f"{title(Row(*one))}: interrupted before it was measured" for one in wanted[number:]
            ]
            break
        fill(row, result)
        rows.append(row)
        machine = result["machine"]
        left_out += [text for text in result["not_done"] if text not in left_out]
    return Table(machine, seconds, cpu, words, rows, left_out)


def as_text(table: Table) -> str:
    """For a terminal: OSADL's columns, the culprit of each row, the verdict."""
    titles = ("MEMORY LOAD", "DEVICE LOAD", "CORE", "MAX us", "AVG us", "P99.9 us", "RATES")
    cells = [
        (
            r.memory or "-",
            r.device or "-",
            r.place or "-",
            f"{r.max_us:.0f}",
            f"{r.avg_us:.1f}",
            f"{r.p999_us:.0f}",
            ", ".join(r.rates.values()) or "-",
        )
        for r in table.rows
    ]
    widths = [max(len(row[i]) for row in [titles, *cells]) for i in range(len(titles))]
    lines = [
        "  ".join(c.rjust(w) if 3 <= i <= 5 else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))).rstrip()
        for row in [titles, *cells]
    ]
    for row in table.rows:
        if row.culprit:
            lines.append(f"latest, {title(row)}: {row.culprit}")
    lines += ["", *table.verdict().sentences]
    lines += [f"Left out: {text}" for text in table.left_out]
    return "\n".join(lines) + "\n"
