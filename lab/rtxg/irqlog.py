# SPDX-License-Identifier: MIT
"""Priority inversions from the log of rtxg.ko: what it says of interrupts, beside the scheduler's events.

The module says when work of an interrupt begins and ends, and who its owner is; the kernel says what
runs and what is ready.  :mod:`rtxg.inversions` has the meter, which is the simulator's too.
``rtxg-irq -i`` finds the same by BPF while it happens, and shares nothing with this.
May not: change anything but the private trace instance that it records with.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from .inversions import KINDS, Meter, Piece, summary
from .tracefs import Event, Recording

#: tracepoints that the log is made of
EVENTS = (
    "rtxg/rtxg_irq_begins", "rtxg/rtxg_irq_ends", "rtxg/rtxg_irq_owner",
    "sched/sched_switch", "sched/sched_wakeup", "sched/sched_wakeup_new", "sched/sched_pi_setprio",
    "irq/softirq_entry", "irq/softirq_exit",
)  # fmt: skip

#: as Linux counts: smaller is higher, real-time tasks are below 100
_REAL_TIME = 100
_ORDINARY = 120
_TOP = 0  #: a stage of the module's; others are threads
_TASKLETS = (0, 6)  #: vectors of softirqs
_ASLEEP = 0xFF  #: bits of prev_state; 0: it was preempted


@dataclass(slots=True)
class _Cpu:
    pid: int = 0
    prio: int = _ORDINARY
    turn: int = 0  #: counts task switches
    top: int | None = None  #: interrupt whose top half runs
    soft: int | None = None  #: interrupt whose tasklets run
    follows: int | None = None  #: whose softirq follows, if one does


@dataclass(slots=True)
class Reader:
    """Reads events in the order of their times.

    :param irqs: interrupts that are meant; None: all that the module was attached to.
    :param owner: the thread that owns them; None: the one that the module names.
    """

    irqs: frozenset[int] | None = None
    owner: int | None = None
    meter: Meter = field(default_factory=Meter)
    names: dict[int, str] = field(default_factory=dict)
    prios: dict[int, int] = field(default_factory=dict)
    works: int = 0  #: pieces of work that began
    _cpus: dict[int, _Cpu] = field(default_factory=dict)
    _ready: dict[int, tuple[int, int]] = field(default_factory=dict)  # thread -> (CPU, count of its waits)
    _threads: dict[int, int] = field(default_factory=dict)  # thread -> interrupt
    _working: set[int] = field(default_factory=set)
    _owners: dict[int, int] = field(default_factory=dict)  # interrupt -> thread
    _waits: int = 0

    def read(self, events: Sequence[Event]) -> Reader:
        """Take all events of a recording."""
        self._find_threads(events)
        for event in events:
            self._take(event)
            self.meter.look(event.time, self._pieces())
        if events:
            self.meter.look(events[-1].time, {})
        return self

    def told(self, seconds: float) -> dict[str, object]:
        """What ``rtxg-irq -i -J`` says, by this source."""
        return {
            "seconds": seconds,
            "source": "module",
            "owners": [
                {
                    "owner": int(owner),
                    "name": self.names.get(int(owner), ""),
                    "prio": self.prios.get(int(owner), _ORDINARY),
                    **{kind: summary(self.meter.found.get((owner, kind), ())) for kind in KINDS},
                }
                for owner in sorted({owner for owner, _ in self.meter.found}, key=int)
            ],
        }

    def _means(self, irq: int) -> bool:
        return self.irqs is None or irq in self.irqs

    def _find_threads(self, events: Iterable[Event]) -> None:
        """Threads that do work of an interrupt: they are known before their first turn."""
        runs: dict[int, int] = {}
        for e in events:
            if e.name == "sched_switch":
                runs[e.cpu] = int(e.fields["next_pid"])
            elif e.name == "rtxg_irq_begins" and e.fields["stage"] != _TOP and self._means(int(e.fields["irq"])):
                if runs.get(e.cpu):
                    self._threads[runs[e.cpu]] = int(e.fields["irq"])

    def _note(self, pid: int, prio: int, name: object) -> None:
        self.prios[pid] = prio
        self.names[pid] = str(name)

    def _becomes_ready(self, pid: int, cpu: int) -> None:
        self._waits += 1
        self._ready[pid] = (cpu, self._waits)

    def _take(self, e: Event) -> None:
        cpu = self._cpus.setdefault(e.cpu, _Cpu())
        f = e.fields
        match e.name:
            case "sched_switch":
                before, after = int(f["prev_pid"]), int(f["next_pid"])
                self._note(before, int(f["prev_prio"]), f["prev_comm"])
                self._note(after, int(f["next_prio"]), f["next_comm"])
                self._ready.pop(after, None)
                if before and not int(f["prev_state"]) & _ASLEEP:
                    self._becomes_ready(before, e.cpu)
                cpu.pid, cpu.prio, cpu.follows = after, int(f["next_prio"]), None
                cpu.turn += 1
            case "sched_wakeup" | "sched_wakeup_new":
                pid = int(f["pid"])
                self._note(pid, int(f["prio"]), f["comm"])
                # one that is woken before it has left its CPU goes on there
                if all(c.pid != pid for c in self._cpus.values()):
                    self._becomes_ready(pid, int(f["target_cpu"]))
            case "sched_pi_setprio":
                self.prios[int(f["pid"])] = int(f["newprio"])
            case "rtxg_irq_owner":
                self._owners[int(f["irq"])] = int(f["owner"])
            case "rtxg_irq_begins" if self._means(int(f["irq"])):
                self.works += 1
                if f["stage"] == _TOP:
                    cpu.top = int(f["irq"])
                else:
                    self._working.add(cpu.pid)
            case "rtxg_irq_ends" if self._means(int(f["irq"])):
                if f["stage"] == _TOP:
                    cpu.top, cpu.follows = None, int(f["irq"])
                else:
                    self._working.discard(cpu.pid)
            case "softirq_entry" if f["vec"] in _TASKLETS:
                cpu.soft, cpu.follows = cpu.follows, None
            case "softirq_exit" if f["vec"] in _TASKLETS:
                cpu.soft = None

    def _owner(self, irq: int) -> tuple[str, int]:
        """The owner's number and its priority; an unknown one comes after all real-time tasks."""
        owner = self.owner if self.owner is not None else self._owners.get(irq, 0)
        return str(owner), self.prios.get(owner, _ORDINARY) if owner else _ORDINARY

    def _kept_waiting(self, cpu: int, prio: int) -> bool:
        """Whether a real-time task above this priority is ready on a CPU; work of interrupts is none."""
        return any(
            where == cpu and pid not in self._threads and self.prios[pid] < min(prio, _REAL_TIME)
            for pid, (where, _) in self._ready.items()
        )

    def _pieces(self) -> dict[Hashable, Piece]:
        pieces: dict[Hashable, Piece] = {}
        for number, cpu in self._cpus.items():
            for key, irq, kind in (("top", cpu.top, "top_halves"), ("soft", cpu.soft, "bottom_halves")):
                if irq is not None:
                    owner, prio = self._owner(irq)
                    wrongs = cpu.prio < min(prio, _REAL_TIME) or self._kept_waiting(number, prio)
                    pieces[key, number] = Piece(owner, kind, wrongs)
            if cpu.pid in self._working and cpu.pid in self._threads:
                owner, prio = self._owner(self._threads[cpu.pid])
                pieces["thread", number, cpu.turn] = Piece(owner, "bottom_halves", self._kept_waiting(number, prio))
        for pid, irq in self._threads.items():
            if pid in self._ready:
                where, count = self._ready[pid]
                owner, prio = self._owner(irq)
                runs = self._cpus.get(where, _Cpu())
                pieces["waits", pid, count] = Piece(owner, "waits", runs.pid != 0 and runs.prio > prio)
        return pieces


def record(
    seconds: float,
    irqs: frozenset[int] | None = None,
    owner: int | None = None,
    progress: Callable[[str], None] = lambda what: None,
) -> tuple[Reader, int]:
    """Watch this machine; what was found, and how many events were lost.

    :param progress: called now and then with how far it is.
    :raises Unavailable: tracepoints cannot be read here.
    """
    with Recording(EVENTS) as recording:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.2))
            recording.collect()
            progress(f"{seconds - left:.0f} of {seconds:g} s watched")
    return Reader(irqs, owner).read(recording.events), recording.lost
