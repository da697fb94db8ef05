# SPDX-License-Identifier: MIT
"""Priority inversions in the words of ``rtxg-irq -i``, so that a simulation and a live kernel compare.

A piece of an interrupt's work is done for its owner.  An inversion of the first kind is time in which
such a piece runs while a job that comes before the owner is ready and kept from that CPU by it: by a
top half, or by a bottom half.  One of the second kind is time in which a bottom half is ready while
something that comes after its owner runs (Elliott and Anderson 2012, section V).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

#: of a histogram: slot n counts lengths of 2**n .. 2**(n+1)-1 ns
SLOTS = 32
#: what the paper calls short
SHORT_NS = 5000
#: the kinds, in the order of ``rtxg-irq``
KINDS = ("top_halves", "bottom_halves", "waits")


@dataclass(frozen=True, slots=True)
class Piece:
    """Something of an interrupt at one moment."""

    owner: str
    kind: str  #: one of :data:`KINDS`
    wrongs: bool  #: a job is kept waiting by it, or it by one, against the order of their priorities


@dataclass(slots=True)
class Meter:
    """Sums the time for which each piece wrongs or is wronged. Times are whole nanoseconds."""

    #: lengths by owner and kind, of pieces that have ended
    found: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    _open: dict[Hashable, tuple[Piece, int]] = field(default_factory=dict)
    _since: int = 0

    def look(self, now: int, pieces: Mapping[Hashable, Piece]) -> None:
        """From now on these pieces are there, until the next look.

        :param pieces: each under a key that is its own for as long as it lasts.
        """
        passed, self._since = now - self._since, now
        for key, (piece, length) in list(self._open.items()):
            length += passed * piece.wrongs
            if key in pieces:
                self._open[key] = (pieces[key], length)
                continue
            del self._open[key]
            if length:
                self.found.setdefault((piece.owner, piece.kind), []).append(length)
        for key, piece in pieces.items():
            self._open.setdefault(key, (piece, 0))


def summary(lengths: Sequence[int]) -> dict[str, object]:
    """What ``rtxg-irq -i -J`` says of one owner's inversions of one kind; lengths in nanoseconds.

    >>> summary([1000, 7500])["below_5us"]
    1
    """
    slots = [0] * SLOTS
    for length in lengths:
        slots[min(SLOTS - 1, max(0, length.bit_length() - 1))] += 1
    return {
        "count": len(lengths),
        "sum_ns": sum(lengths),
        "longest_ns": max(lengths, default=0),
        "below_5us": sum(length < SHORT_NS for length in lengths),
        "slots": slots,
    }


def told(
    found: Mapping[tuple[str, str], Sequence[int]], seconds: float, priorities: Mapping[str, int | None]
) -> dict[str, object]:
    """The whole of it, as ``rtxg-irq -i -J`` prints it.

    :param priorities: of every task that may be an owner, 1..99 as in SCHED_FIFO; None: it has deadlines instead.
    """
    numbers = {name: number for number, name in enumerate(priorities, 1)}
    return {
        "seconds": seconds,
        "source": "simulation",
        "owners": [
            {
                "owner": numbers[owner],
                "name": owner,
                # as Linux counts: the smaller, the higher
                "prio": None if priorities[owner] is None else 99 - priorities[owner],
                **{kind: summary(found.get((owner, kind), ())) for kind in KINDS},
            }
            for owner in sorted({owner for owner, _ in found}, key=numbers.__getitem__)
        ],
    }
