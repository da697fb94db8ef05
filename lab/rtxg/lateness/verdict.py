# SPDX-License-Identifier: MIT
"""Is it bandwidth, locking or interrupts? A judgement over the rows of a table of loads.

Pure: the rows come from a measurement here, from a file, or from a paper. The question and the way
to answer it are OSADL's (Emde, 2021): if a memory load beyond the L3 does not make a task late, and
the device does, then bandwidth is not the reason; what the CPU did when the task was latest says
which reason it is.

An answer stands where the evidence bears it. What a load did is at most the maximum of its row, and
at least that without what came from outside the kernel, or from time slices. So "yes" needs a least
that is above all rows without load, and "no" a most that is not. Else it is not decided.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

#: a maximum counts as higher from this factor on, and from so many microseconds more
FACTOR, LEAST_US = 2.0, 10.0
#: with more than this share of the rate within the L3, the bus does not hold a load beyond it
SLOWER = 0.8

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

#: reasons that are none of a load's
FOREIGN = ("outside the kernel", "other tasks, as it has no real-time policy")

#: of the kinds, the ones in which something else than the memory bus keeps the task from the CPU
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
    real_time: bool = True  #: else tasks of the machine had their time slices first

    def as_dict(self) -> dict:
        """Plain data."""
        return asdict(self)

    @property
    def foreign_us(self) -> float:
        """How much of the latest wake-up may be none of a load's."""
        if self.parts:
            return sum(p["us"] for p in self.parts if REASONS.get(p["kind"]) in FOREIGN)
        return min(self.stolen_us, self.max_us) if self.real_time else self.max_us

    @property
    def kernel_us(self) -> float:
        """How much of it something else than the memory bus kept the task from the CPU."""
        return sum(p["us"] for p in self.parts if p["kind"] in NOT_THE_BUS)

    @property
    def least_us(self) -> float:
        """Of the maximum, what is the kernel's and the load's."""
        return max(self.max_us - self.foreign_us, 0.0)


@dataclass(frozen=True)
class Verdict:
    """Sentences with their evidence."""

    bandwidth: bool | None  #: None: not measured, or not decided by what was
    device: bool | None  #: the same
    reason: str  #: "locking", "interrupts", ..., or "" where the device is not to blame
    affinity: bool | None  #: does another core help?
    sentences: tuple[str, ...]


def higher(value: float, base: float) -> bool:
    """Is it beyond chance? Maxima of two runs differ."""
    return value > base * FACTOR and value > base + LEAST_US


def _most(rows: Iterable[Row]) -> Row | None:
    return max(rows, key=lambda row: row.max_us, default=None)


def judge(rows: list[Row], virtual: bool = False) -> Verdict:
    """Compare the rows.

    :param virtual: is it a virtual machine? Its host may take the CPU at any place, without a trace
    :raises ValueError: without a row without load.
    """
    alone = [row for row in rows if not row.memory and not row.device]
    if not alone:
        raise ValueError("no row without load: there is nothing to compare with")
    base = max(row.max_us for row in alone)
    least = min(row.max_us for row in alone)
    both_runs = f"{least:.0f} to {base:.0f}" if base - least >= 1 else f"{base:.0f}"
    same = max(least * FACTOR, least + LEAST_US)
    said = [
        f"Without load the maximum is {both_runs} us; up to {same:.0f} us is no more than that."
    ]
    memory = [row for row in rows if row.memory == "above L3" and not row.device]
    worst_memory = _most(memory)
    bandwidth = None
    if worst_memory:
        within = _most(row for row in rows if row.memory == "L3" and not row.device)
        bandwidth, why = _bandwidth(worst_memory, within, alone)
        if bandwidth and virtual:
            # a switch or a timer's interrupt of 300 us may be the bus, or the host within it
            bandwidth = None
            why = ["In a virtual machine the host looks the same: " + why[0]]
        said.append(
            f"Bandwidth: {_word(bandwidth)}. With a memory load beyond the L3{_rate(worst_memory)} "
            f"the maximum is {worst_memory.max_us:.0f} us."
        )
        said += why
    with_device = [row for row in rows if row.device and not row.memory]
    answers: list[bool | None] = []
    reason, affinity = "", None
    worst = near = None
    for name in dict.fromkeys(row.device for row in with_device):
        mine = [row for row in with_device if row.device == name]
        beside = _most(row for row in mine if row.place != "other")
        far = _most(row for row in mine if row.place == "other")
        one = beside or far
        assert one
        late, why = _later(one, alone)
        where = {"same": " on the same core", "other": " on another core"}.get(one.place, "")
        said.append(
            f"{name}: {_word(late)}. With that load{where}{_rate(one)} the maximum is "
            f"{one.max_us:.0f} us."
        )
        said += _because(one) if late else why
        helps = None
        if beside and far and late:
            there, why = _later(far, alone)
            helps = None if there is None else not there
            said.append(
                {
                    True: "Another core helps",
                    False: "Another core does not help",
                    None: "Whether another core helps is not decided",
                }[helps]
                + f": with the load there the maximum is {far.max_us:.0f} us."
            )
            said += why
        if not worst or one.max_us > worst.max_us:
            worst, near, affinity = one, beside, helps
            reason = _reason(one) if late else ""
        answers.append(late)
    device = True if True in answers else None if None in answers or not answers else False
    both = _most(
        row
        for row in rows
        if near and row.device == near.device and row.memory == "above L3" and row.place != "other"
    )
    if both and near:
        more = higher(both.max_us, near.max_us)
        if not more:
            adds = "memory load does not add to"
        elif higher(both.least_us, near.max_us):
            adds = "memory load adds to"
        else:
            adds = (
                f"{both.foreign_us:.0f} us of them may be none of the loads', so it is not decided "
                "whether memory load adds to"
            )
        said.append(
            f"Both together: {both.max_us:.0f} us{_rate(both)}; {adds} what {near.device} does."
        )
    said += _own_master(rows)
    return Verdict(bandwidth, device, reason, affinity, tuple(said))


def _word(answer: bool | None) -> str:
    return {True: "yes", False: "no", None: "not decided"}[answer]


def _later(row: Row, alone: list[Row]) -> tuple[bool | None, list[str]]:
    """Is it later than without load, by the load?"""
    noise = max(one.max_us for one in alone)
    quiet = min(alone, key=lambda one: one.max_us)
    if higher(row.least_us, noise):
        return True, []
    if not higher(row.max_us, quiet.least_us):
        return False, []
    if higher(row.max_us, noise):
        return None, [_foreign(row)]
    if higher(row.max_us, quiet.max_us):
        return None, [
            f"Runs without load differ by as much: their maxima are {quiet.max_us:.0f} and "
            f"{noise:.0f} us."
        ]
    return None, [f"Without load it is no better. {_foreign(quiet)}"]


def _foreign(row: Row) -> str:
    if not row.parts and not row.real_time:
        return (
            f"Time slices of other tasks may be all of {row.max_us:.0f} us, as the thread had no "
            "real-time policy."
        )
    return (
        f"{row.foreign_us:.0f} us of {row.max_us:.0f} us came from outside the kernel, where the "
        "bus, the firmware and a hypervisor look the same, or from time slices of other tasks."
    )


def _bandwidth(row: Row, within: Row | None, alone: list[Row]) -> tuple[bool | None, list[str]]:
    """Does the memory bus make it late?

    Only if a load of the same work within the L3 does not, and the bus holds the load beyond it,
    and the task stays late without what the CPU did otherwise.
    """
    late, why = _later(row, alone)
    if late is False:
        return False, []
    base = max(one.max_us for one in alone)
    kernel = row.kernel_us
    if row.parts and late and not higher(row.max_us - kernel, base):
        return False, _because(row)
    unlike = _unlike(row, within)
    if within and not higher(row.max_us, within.least_us - within.kernel_us):
        if unlike:
            return None, [unlike]
        return False, [
            f"Within the L3 the same work gives {within.max_us:.0f} us, without the bus."
        ]
    if late is None:
        return None, why
    if not row.parts:
        return None, ["What the CPU did meanwhile is not known: that needs BPF."]
    if not higher(row.least_us - kernel, base):
        return None, [_foreign(row)]
    if not within:
        return None, [
            "No load within the L3 was measured, which does the same work without the bus."
        ]
    if not higher(row.least_us - kernel, within.max_us):
        return None, [f"Within the L3 the same work gives {within.max_us:.0f} us."]
    if unlike:
        return None, [unlike]
    return True, [
        f"Within the L3 the same work{_rate(within)} gives {within.max_us:.0f} us; of the "
        f"{row.max_us:.0f} us, {row.least_us - kernel:.0f} us are none of locks, interrupts, other "
        "tasks or a host."
    ]


def _unlike(row: Row, within: Row | None) -> str:
    """Why the two loads do not differ by the bus; "" if they do."""
    inside = _number(within, "L3") if within else None
    beyond = _number(row, "above L3")
    if inside is None or beyond is None:
        return "The loads' rates are not known: they tell whether the bus holds one beyond the L3."
    if beyond > inside * SLOWER:
        return (
            f"The bus makes no difference to these loads: within the L3 it is {inside:.0f} MB/s, "
            "hardly more."
        )
    return ""


def _number(row: Row, load: str) -> float | None:
    """The rate of one of its loads."""
    words = row.rates.get(load, "").split()
    return float(words[0]) if words else None


def _own_master(rows: list[Row]) -> list[str]:
    """What a host or firmware has in the rows."""
    stolen = sum(row.stolen_us for row in rows)
    known = [row for row in rows if row.parts]
    outside = [row for row in known if _reason(row, ()) == "outside the kernel"]
    evidence = []
    if outside and (stolen or len(outside) * 2 > len(known)):
        evidence.append(
            f"the latest wake-ups of {len(outside)} of {len(known)} rows came from outside the "
            "kernel (hypervisor, firmware, idle states)"
        )
    if stolen:
        evidence.append(f"its host took {stolen / 1e3:.1f} ms")
    if not evidence:
        return []
    return [
        f"This machine is not its own master: {', and '.join(evidence)}. Measure on bare metal "
        "before deciding."
    ]


def _reason(row: Row, without: tuple[str, ...] = ("outside the kernel",)) -> str:
    """By the time that each has in the latest wake-up; `without` only if there is nothing else."""
    sums: dict[str, float] = {}
    for part in row.parts:
        reason = REASONS.get(part["kind"], "")
        if reason:
            sums[reason] = sums.get(reason, 0.0) + part["us"]
    own = {reason: us for reason, us in sums.items() if reason not in without} or sums
    return max(own, key=lambda reason: own[reason]) if own else "not known"


def _because(row: Row) -> list[str]:
    """The reason with its evidence, where what the CPU did is known."""
    if not row.parts:
        return []
    reason = _reason(row)
    of_it = [p for p in row.parts if REASONS.get(p["kind"]) == reason]
    part = max(of_it or row.parts, key=lambda p: p["us"])
    return [
        f'The reason is {reason}: {part["us"]:.0f} us of {row.max_us:.0f} us are "{part["what"]}".'
    ]


def _rate(row: Row) -> str:
    return f" ({', '.join(row.rates.values())})" if row.rates else ""
