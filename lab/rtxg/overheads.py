# SPDX-License-Identifier: MIT
"""Overhead accounting: what the operating system adds to the execution time of a job.

Equations (6) to (24) of Elliott and Anderson, "Robust Real-Time Multiprocessor Interrupt Handling
Motivated by GPUs" (ECRTS 2012), appendix B, for three ways of handling a GPU's interrupts, and the
same method carried on to rtxg's own mechanisms.  An inflated execution time is kept as the list of
its terms, each with the equation that it comes from, so that it can be explained as well as summed.

All times are microseconds, exact.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import NoReturn

from .exact import sum_of, whole
from .model import Task
from .units import parse_time, read_text, shown


class Interrupts(Enum):
    """Who executes the bottom half of a GPU interrupt, and at whose priority."""

    NONE = "none"  #: interrupts cost nothing: the plain test
    SLIH = "slih"  #: standard Linux: right after the top half, on top of whatever runs
    PAI = "pai"  #: process-aware interrupts (Zhang and West): by priority, on a borrowed stack
    KLMIRQD = "klmirqd"  #: a thread that runs with the priority of the GPU's owner
    RTXG = "rtxg"  #: a model: klmirqd's threads, plus permits, suspension and slices

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        known = ", ".join(one.value for one in cls)
        raise ValueError(f"interrupts is {shown(value)}; use one of {known}")


#: What a stock kernel does, and so what is assumed unless a file says otherwise.
STOCK_KERNEL = Interrupts.SLIH

#: Ways that no kernel has by itself: a verdict for them is one of a model.
MODELS_ONLY = frozenset((Interrupts.PAI, Interrupts.KLMIRQD, Interrupts.RTXG))


@dataclass(frozen=True, slots=True)
class Overheads:
    """Durations of the operating system's own work, in microseconds (Delta^... in the paper)."""

    sch: Fraction = Fraction(0)  #: one scheduling decision
    cxs: Fraction = Fraction(0)  #: one context switch
    ipi: Fraction = Fraction(0)  #: inter-processor interrupt, sent to received
    rel: Fraction = Fraction(0)  #: queueing a released job
    th: Fraction = Fraction(0)  #: GPU interrupt, top half
    bh: Fraction = Fraction(0)  #: GPU interrupt, bottom half
    krel: Fraction = Fraction(0)  #: handing a bottom half to klmirqd
    paisch: Fraction = Fraction(0)  #: PAI: looking at the queue of bottom halves
    pairel: Fraction = Fraction(0)  #: PAI: queueing a bottom half
    tck: Fraction = Fraction(0)  #: one timer tick
    quantum: Fraction = Fraction(1000)  #: time between ticks, Q
    permit: Fraction = Fraction(0)  #: rtxg: handing a launch permit from one task to the next
    suspend: Fraction = Fraction(0)  #: rtxg: suspending what another process runs on the GPU
    resume: Fraction = Fraction(0)  #: rtxg: resuming it
    slice_switch: Fraction = Fraction(0)  #: rtxg: switching the GPU from one hardware slice to the next
    slice_length: Fraction = Fraction(0)  #: rtxg: length of a hardware slice; 0: not sliced

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, bool) or not isinstance(value, (int, Fraction)):
                raise ValueError(
                    f"overhead {item.name} is {shown(value)}; it must be an int or a Fraction of "
                    'microseconds, or use Overheads.from_mapping with text such as "2.5us"'
                )
            if value < 0:
                raise ValueError(f"overhead {item.name} is negative")
        if self.quantum <= 0:
            raise ValueError("overhead quantum is zero; it is the time between two ticks")

    @classmethod
    def from_mapping(cls, values: Mapping[str, object], base: Overheads | None = None) -> Overheads:
        """Read overheads with units; names not given keep the value of ``base``.

        :raises ValueError: names an overhead that does not exist, or a value that is not a time.
        """
        known = {item.name for item in fields(cls)}
        parsed = {}
        for name, value in values.items():
            key = name.replace("-", "_")
            if key not in known:
                raise ValueError(f"unknown overhead {name!r}; known are {', '.join(sorted(known))}")
            try:
                parsed[key] = parse_time(value)
            except ValueError as error:
                raise ValueError(f"overhead {name}: {error}") from None
        return replace(base or cls(), **parsed)

    def as_dict(self) -> dict[str, float]:
        """Microseconds as floats, for printing and JSON."""
        return {item.name: float(getattr(self, item.name)) for item in fields(self)}


#: No overheads at all.
NO_OVERHEADS = Overheads()

#: Table III of the klmirqd paper: 12-core Xeon X5060, 2.67 GHz, GTX-470 GPUs, LITMUS^RT on Linux 2.6.36.
TABLE_III = Overheads(
    sch=Fraction("0.63"),
    cxs=Fraction("0.36"),
    ipi=Fraction("0.60"),
    rel=Fraction("0.67"),
    th=Fraction("16.44"),
    bh=Fraction("29.90"),
    krel=Fraction("1.39"),
    paisch=Fraction("0.13"),
    pairel=Fraction("0.56"),
    tck=Fraction("0.86"),
    quantum=Fraction(1000),
)

#: Named sets that a task file may start from.
OVERHEAD_SETS = {"none": NO_OVERHEADS, "table-iii": TABLE_III}


def read_measured(path: str | Path, base: Overheads = NO_OVERHEADS) -> Overheads:
    """What a JSON file from ``rtxg measure`` has over ``base``.

    :raises FileNotFoundError: there is no such file.
    :raises ValueError: naming the file, and what is wrong with it.
    """
    remedy = f"use {', '.join(OVERHEAD_SETS)}, or a file that rtxg measure --out wrote"
    try:
        measured = json.loads(read_text(path))
    except RecursionError:
        raise ValueError(f"{path}: is nested too deeply; {remedy}") from None
    except ValueError as error:  # no text, no JSON, too long, or a number of thousands of digits
        where = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise ValueError(f"{path}{where}: is not JSON; {remedy}") from None
    values = measured.get("overheads", measured) if isinstance(measured, dict) else None
    if not isinstance(values, dict) or not values:
        raise ValueError(f"{path}: has no overheads; {remedy}")
    try:
        return Overheads.from_mapping(values, base)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


@dataclass(frozen=True, slots=True)
class Term:
    """One summand of an inflated execution time."""

    symbol: str  #: as in the paper, e.g. "H_i (th + krel)"
    equation: str  #: where it comes from, e.g. "(14)"
    meaning: str  #: what the time is spent on
    value: Fraction  #: microseconds


def with_own_halves(task: Task, overheads: Overheads, interrupts: Interrupts) -> Task:
    """The task whose GPU time has room for its own interrupts: by definition s_i includes them.

    A call takes a top and a bottom half at least, so s_i is eta_i (th + bh) or more; what is missing
    lengthens the sections as well.  A set whose interrupts cost nothing stays as it is.
    """
    least = task.gpu_calls * (overheads.th + overheads.bh)
    missing = least - task.gpu_time
    if interrupts is Interrupts.NONE or not task.uses_gpu or missing <= 0:
        return task
    return replace(task, gpu_time=least, section=task.section + missing / task.gpu_requests)


def interfering_interrupts(
    tasks: Sequence[Task], tardiness: Mapping[str, Fraction]
) -> dict[str, int]:
    """H_i of equation (11) for every task of a cluster: GPU interrupts of other tasks that may strike
    while one of its jobs is pending; the sum over j != i of
    ceil((d_i + x_i + d_j + x_j) / p_j) * eta_j.

    The paper's deadlines are its periods; d + x is how long a job is pending at most.

    :param tasks: the tasks of the cluster; those without GPU calls strike nobody.
    :param tardiness: x of every task by name; a missing name counts as zero.
    """
    pending, _ = whole([t.deadline + tardiness.get(t.name, Fraction(0)) for t in tasks] + [t.period for t in tasks])
    periods = pending[len(tasks) :]
    # Tasks with equal numbers strike, and are struck, alike.
    strikers = Counter(
        (period, span, task.gpu_calls) for task, span, period in zip(tasks, pending, periods, strict=False) if task.uses_gpu
    )
    hits: dict[int, int] = {}
    found = {}
    for task, span, period in zip(tasks, pending, periods, strict=False):
        if span not in hits:
            hits[span] = sum(
                count * calls * -(-(span + other) // every) for (every, other, calls), count in strikers.items()
            )
        found[task.name] = hits[span] - task.gpu_calls * -(-2 * span // period)
    return found


def inflation(
    task: Task,
    hits: int,
    overheads: Overheads,
    interrupts: Interrupts,
    tardiness: Fraction = Fraction(0),
    blocking: Fraction = Fraction(0),
    own_hand_overs: bool = False,
) -> list[Term]:
    """The terms whose sum is the inflated execution time of one job, last the ticks of (24).

    Suspension-oblivious: the wait for a GPU (``blocking``, b_i) and the time on it (s_i) count as
    execution.  For a CPU-only task these are equations (6), (9), then (12), (14) or (17), (19),
    (22); for a GPU-using one (7), (8), (10), then (13), (15), (16) or (18), (20), (21), (23).

    :param hits: H_i, see :func:`interfering_interrupts`.
    :param tardiness: x_i, how late a job of the task may be.
    :param own_hand_overs: charge a job for handing over its own bottom halves, too.  The paper charges
        that to all others: the halves of the own interrupts are in s_i, and what lies between them is not.
    """
    o = overheads
    gpu = task.uses_gpu
    eta = task.gpu_calls
    # Times a job becomes ready: at its release, with each GPU that it gets, and after each call.  There
    # are as many stretches of execution between suspensions.
    wakes = spans = 1 + task.gpu_requests + eta if gpu else 1
    times = "(2 + eta_i)" if task.gpu_requests == 1 else "(1 + r_i + eta_i)"
    terms = [Term("e_i", "", "CPU time of the job itself", task.cost)]

    def add(symbol: str, equation: str, meaning: str, value: Fraction) -> None:
        if value:
            terms.append(Term(symbol, equation, meaning, Fraction(value)))

    if gpu:
        add("s_i", "(8)", "GPU time of the job itself", task.gpu_time)
        add("b_i", "(8)", "waiting for a GPU", blocking)
    factor = f"{times} 2" if gpu else "2"
    add(f"{factor} (sch + cxs)", "(7)" if gpu else "(6)", "scheduling and switching", spans * 2 * (o.sch + o.cxs))
    factor = f"{times} " if gpu else ""
    add(f"{factor}(rel + ipi)", "(10)" if gpu else "(9)", "release and wake-up on another CPU", wakes * (o.rel + o.ipi))

    match interrupts:
        case Interrupts.NONE:
            pass
        case Interrupts.SLIH:
            equation = "(13)" if gpu else "(12)"
            add("H_i th", equation, f"top halves of {hits} interrupts", hits * o.th)
            add("H_i bh", equation, f"bottom halves of {hits} interrupts", hits * o.bh)
        case Interrupts.KLMIRQD | Interrupts.RTXG:
            equation = "(15)" if gpu else "(14)"
            add("H_i th", equation, f"top halves of {hits} interrupts", hits * o.th)
            add("H_i krel", equation, f"handing over {hits} bottom halves", hits * o.krel)
            add(
                "eta_i (2 (sch + cxs) + ipi)",
                "(16)",
                "threads of the own bottom halves",
                eta * (2 * (o.sch + o.cxs) + o.ipi),
            )
            if own_hand_overs:
                add("eta_i krel", "threads", "handing over the own bottom halves", eta * o.krel)
        case Interrupts.PAI:
            add("H_i th", "(18)" if gpu else "(17)", f"top halves of {hits} interrupts", hits * o.th)
            add("H_i pairel", "(18)" if gpu else "(17)", f"queueing {hits} bottom halves", hits * o.pairel)
            factor = f"{times} 2" if gpu else "2"
            add(f"{factor} paisch", "(20)" if gpu else "(19)", "looking for bottom halves", spans * 2 * o.paisch)
            add("eta_i ipi", "(21)", "own bottom halves sent to another CPU", eta * o.ipi)
            if own_hand_overs:
                add("eta_i pairel", "PAI", "queueing the own bottom halves", eta * o.pairel)
            add("H_i bh", "(23)" if gpu else "(22)", f"bottom halves of {hits} interrupts", hits * o.bh)
    if interrupts is Interrupts.RTXG and gpu:
        # A launch passes one permit.  Each of a job's segments suspends at most one other process
        # when it begins and lets one be resumed when it ends.  As with CPU preemptions, the job that
        # preempts is charged.  Under hardware slices the job's GPU time is cut into pieces.
        add("eta_i permit", "rtxg", "handing over launch permits", eta * o.permit)
        add("eta_i (suspend + resume)", "rtxg", "suspending and resuming another process", eta * (o.suspend + o.resume))
        if o.slice_length:
            pieces = ceil(task.gpu_time / o.slice_length)
            add("ceil(s_i / slice) switch", "rtxg", f"{pieces} hardware slices", pieces * o.slice_switch)
    ticks = ceil((task.deadline + tardiness) / o.quantum)
    add("ceil((d_i + x_i) / Q) tck", "(24)", f"{ticks} timer ticks", ticks * o.tck)
    return terms


def inflated(terms: Sequence[Term]) -> Fraction:
    """The inflated execution time, e'_i: the sum of the terms."""
    return sum_of([term.value for term in terms])
