# SPDX-License-Identifier: MIT
"""Is it bandwidth, locking or interrupts? A judgement over the rows of a table of loads.

Pure: the rows come from a measurement here, from a file, or from a paper. The question and the way to
answer it are OSADL's (Emde, 2021): if a memory load beyond the L3 does not make a task late, and the
device does, then bandwidth is not the reason; what the CPU did when the task was latest says which
reason it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

#: a maximum counts as higher from this factor on, and from so many microseconds more
FACTOR, LEAST_US = 2.0, 10.0

#: kinds of parts (latency/blame.h) by the reason that they stand for
REASONS = {
    "interrupts off": "locking",
    "preemption off": "locking",
    "interrupt": "interrupts",
    "softirq": "interrupts",
    "nmi": "interrupts",
    "timer": "interrupts",
    "stalled": "outside the kernel",
    "outside": "outside the kernel",
    "idle": "outside the kernel",
    "self": "outside the kernel",
    "higher priority": "tasks of higher priority",
    "time slice": "other tasks, as it has no real-time policy",
}


#: of these, the ones in which something else than the memory bus keeps the task from the CPU
NOT_THE_BUS = (
    "interrupts off",
    "preemption off",
    "interrupt",
    "softirq",
    "nmi",
    "higher priority",
    "time slice",
)


@dataclass
class Row:
    """One combination of loads."""

    memory: str = ""  #: "", "L3" or "above L3"
    device: str = ""  #: "", "graphics", "CUDA", "OpenCL" or several with "+"
    place: str = ""  #: of the device's load: "same", "other" core; "" without
    max_us: float = 0.0
    avg_us: float = 0.0
    p999_us: float = 0.0
    cycles: int = 0
    rates: dict[str, str] = field(default_factory=dict)  #: of each load: "7520 rects/s"
    culprit: str = ""
    parts: list[dict] = field(default_factory=list)  #: of the latest wake-up: kind, us, what
    stolen_us: float = 0.0

    def as_dict(self) -> dict:
        """Plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Verdict:
    """Sentences with their evidence."""

    bandwidth: bool | None  #: None: not measured, or not told from what is outside the kernel
    device: bool | None
    reason: str  #: "locking", "interrupts", ..., or "" where the device is not to blame
    affinity: bool | None  #: does another core help?
    sentences: tuple[str, ...]


def higher(value: float, base: float) -> bool:
    """Is it beyond chance? Maxima of two runs differ."""
    return value > base * FACTOR and value > base + LEAST_US


def _most(rows: Iterable[Row]) -> Row | None:
    return max(rows, key=lambda row: row.max_us, default=None)


def _least_base(rows: list[Row]) -> float:
    """Of several runs without load, the highest: the noise is in it."""
    return max(row.max_us for row in rows)


def judge(rows: list[Row]) -> Verdict:
    """Compare the rows.

    :raises ValueError: without a row without load.
    """
    alone = [row for row in rows if not row.memory and not row.device]
    if not alone:
        raise ValueError("no row without load: there is nothing to compare with")
    base = _least_base(alone)
    said = [f"Without load the maximum is {base:.0f} us."]
    memory = [row for row in rows if row.memory == "above L3" and not row.device]
    worst_memory = _most(memory)
    bandwidth = None
    if worst_memory:
        bandwidth, why = _bandwidth(worst_memory, base)
        said.append(
            f"Bandwidth: {'not decided' if bandwidth is None else 'yes' if bandwidth else 'no'}. "
            f"With a memory load beyond the L3{_rate(worst_memory)} the maximum is "
            f"{worst_memory.max_us:.0f} us."
        )
        said += why
    with_device = [row for row in rows if row.device and not row.memory]
    device, reason, affinity = None, "", None
    worst = near = None
    for name in dict.fromkeys(row.device for row in with_device):
        mine = [row for row in with_device if row.device == name]
        beside = _most(row for row in mine if row.place != "other")
        far = _most(row for row in mine if row.place == "other")
        one = beside or far
        assert one
        late = higher(one.max_us, base)
        where = {"same": " on the same core", "other": " on another core"}.get(one.place, "")
        said.append(
            f"{name}: {'yes' if late else 'no'}. With that load{where}{_rate(one)} the maximum is "
            f"{one.max_us:.0f} us."
        )
        helps = not higher(far.max_us, base) if beside and far and late else None
        if late:
            said += _because(one)
        if helps is not None and far:
            said.append(
                f"Another core {'helps' if helps else 'does not help'}: with the load there the maximum is "
                f"{far.max_us:.0f} us."
            )
        if not worst or one.max_us > worst.max_us:
            worst, near, affinity = one, beside, helps
            reason = _reason(one) if late else ""
        device = bool(device) or late
    both = _most(
        row
        for row in rows
        if near and row.device == near.device and row.memory == "above L3" and row.place != "other"
    )
    if both and near:
        more = higher(both.max_us, near.max_us)
        said.append(
            f"Both together: {both.max_us:.0f} us{_rate(both)}; memory load "
            f"{'adds to' if more else 'does not add to'} what {near.device} does."
        )
    stolen = sum(row.stolen_us for row in rows)
    outside = [row for row in rows if _reason(row) == "outside the kernel"]
    if stolen or len(outside) * 2 > len(rows):
        said.append(
            "This machine is not its own master: the latest wake-ups of "
            f"{len(outside)} of {len(rows)} rows came from outside the kernel (hypervisor, firmware, idle states)"
            f"{f', and its host took {stolen / 1e3:.1f} ms' if stolen else ''}. Measure on bare metal before deciding."
        )
    return Verdict(bandwidth, device, reason, affinity, tuple(said))


def _bandwidth(row: Row, base: float) -> tuple[bool | None, list[str]]:
    """Does the memory bus make it late? Only if it stays late without what the CPU did otherwise."""
    if not higher(row.max_us, base):
        return False, []
    kernel = sum(part["us"] for part in row.parts if part["kind"] in NOT_THE_BUS)
    outside = sum(
        part["us"] for part in row.parts if REASONS.get(part["kind"]) == "outside the kernel"
    )
    if not higher(row.max_us - kernel, base):
        return False, _because(row)
    if not higher(row.max_us - kernel - outside, base):
        return None, [
            f"{outside:.0f} us of them came from outside the kernel, where the bus, the firmware and "
            "a hypervisor look the same."
        ]
    return True, []


def _reason(row: Row) -> str:
    """By the time that each reason has in the latest wake-up."""
    sums: dict[str, float] = {}
    for part in row.parts:
        reason = REASONS.get(part["kind"], "")
        if reason:
            sums[reason] = sums.get(reason, 0.0) + part["us"]
    return max(sums, key=lambda reason: sums[reason]) if sums else "not known"


def _because(row: Row) -> list[str]:
    """The reason with its evidence, where what the CPU did is known."""
    if not row.parts:
        return []
    part = max(row.parts, key=lambda p: p["us"])
    return [
        f'The reason is {_reason(row)}: {part["us"]:.0f} us of {row.max_us:.0f} us are "{part["what"]}".'
    ]


def _rate(row: Row) -> str:
    return f" ({', '.join(row.rates.values())})" if row.rates else ""
