# SPDX-License-Identifier: MIT
"""Can a bound on latency be kept? The core of time slices says so (core/slice/admit.c), the same
source that rtxgd asks on a machine with a GPU: here beside programs that are only thought of, with
the costs of acting that the core assumes where no probe has measured them.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .units import format_time

if TYPE_CHECKING:
    from .core.slice import Admission

#: what keeps a bound, in words
WORDS = {
    "slices": "proportional slices: one of each of the others comes before its work",
    "arrival": "arrival: the driver has to stop the others when its work comes",
    "turns": "turns: a short slice, a save and a restore come before its work",
    "none": "nothing",
}
#: other programs that can be reckoned with
BESIDE_MAX = 512


@dataclass(frozen=True)
class Verdict:
    """The core's answer about a bound of `latency_ns` beside programs, each in a vGPU of its own."""

    latency_ns: int
    beside: int
    admission: Admission

    @property
    def kept(self) -> bool:
        """Would rtxgd admit it?"""
        return self.admission.errno == 0

    def as_dict(self) -> dict[str, object]:
        """Plain data; times in microseconds."""
        a = self.admission
        return {
            "latency": self.latency_ns / 1000,
            "beside": self.beside,
            "kept": self.kept,
            "mechanism": a.mechanism if self.kept else None,
            "bound": a.bound_ns / 1000 if self.kept else None,
            "best_mechanism": a.best_mechanism,
            "best": a.best_ns / 1000,
        }

    def text(self) -> str:
        """A sentence or two for people."""
        a, others = self.admission, f"{self.beside} other program{'s' if self.beside != 1 else ''}"
        asked, best = format_time(self.latency_ns / 1000), format_time(a.best_ns / 1000)
        if self.kept:
            bound = format_time(a.bound_ns / 1000)
            return f"kept: {bound} for the {asked} asked for, beside {others}, by {WORDS[a.mechanism]}"
        if a.errno == errno.ERANGE:
            return f"not kept: {best} is the best beside {others}, by {WORDS[a.best_mechanism]}"
        return f"not kept: {errno.errorcode.get(a.errno, a.errno)}"


def judge(latency_ns: int, beside: int, *, queues: bool = True) -> Verdict:
    """Ask the core. `queues`: the lever can look into the programs' queues.

    Raises ValueError out of range, with what is accepted, and ImportError without a compiled core.
    """
    # Here and not above: rtxg analyze imports this file, and asks about task sets without a core.
    from .core.slice import CAN_DEMAND, CAN_SLICE, CAN_SUSPEND, SliceCore

    if not 1 <= beside <= BESIDE_MAX:
        raise ValueError(f"beside {beside} programs: 1 to {BESIDE_MAX} are accepted")
    if not 100_000 <= latency_ns <= 10**10:
        raise ValueError(f"a latency of {format_time(latency_ns / 1000)}: 100us to 10s are accepted")
    can = CAN_SLICE | CAN_SUSPEND | (CAN_DEMAND if queues else 0)
    core = SliceCore(tenants=beside + 1, contexts=beside + 1, can=can)
    for n in range(beside):
        core.step(0, "tenant_set", tenant=n)
        core.step(0, "add", context=n, tenant=n)
    return Verdict(latency_ns, beside, core.admit(beside, latency_ns=latency_ns))
