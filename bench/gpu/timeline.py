#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes a Perfetto trace of who held the GPU when, from the text that `rtxg-nvgov ctl timeline FILE` writes.

    timeline.py TEXT TRACE      then open TRACE in ui.perfetto.dev

One track a process for its stays on the engine, one for what the lever did to it (stop, resume, slice). Times: CLOCK_MONOTONIC, ns.
The trace is Perfetto's TrackEvent format; the few fields that are needed are encoded here (protocol buffers: a field is a key,
number << 3 | wire type, then a varint or a length and bytes).
"""

from __future__ import annotations

import sys
from pathlib import Path

SLICE_BEGIN, SLICE_END, INSTANT = 1, 2, 3
CLOCK_MONOTONIC = 3


def varint(value: int) -> bytes:
    """An unsigned number, seven bits a byte."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    """A field with a number in it."""
    return varint(field << 3) + varint(value)


def block(field: int, data: bytes) -> bytes:
    """A field with bytes in it: a string or a message."""
    return varint(field << 3 | 2) + varint(len(data)) + data


def packet(*fields: bytes) -> bytes:
    """One TracePacket of the trace, from our one sequence (10: trusted_packet_sequence_id)."""
    return block(1, b"".join(fields) + number(10, 1))


def track(uuid: int, name: str) -> bytes:
    """Declares a track (60: track_descriptor; 1: uuid, 2: name)."""
    return packet(block(60, number(1, uuid) + block(2, name.encode())))


def event(at_ns: int, kind: int, uuid: int, name: str = "") -> bytes:
    """Something on a track (8: timestamp, 58: clock, 11: track_event; 9: type, 11: track, 23: name)."""
    body = number(9, kind) + number(11, uuid) + (block(23, name.encode()) if name else b"")
    return packet(number(8, at_ns), number(58, CLOCK_MONOTONIC), block(11, body))


def convert(text: str) -> bytes:
    """The whole trace. Lines that are cut off are left out."""
    out: list[bytes] = []
    tracks: dict[tuple[str, str], int] = {}
    names: dict[str, str] = {}

    def uuid(kind: str, pid: str) -> int:
        if (kind, pid) not in tracks:
            tracks[kind, pid] = len(tracks) + 1
            out.append(track(tracks[kind, pid], f"{kind} {names.get(pid, '')} {pid}".replace("  ", " ")))
        return tracks[kind, pid]

    for line in text.splitlines():
        w = line.split()
        if len(w) >= 7 and w[0] == "C":
            names[w[2]] = w[6]
        elif len(w) == 6 and w[0] == "S":
            on = uuid("GPU", w[2])
            out.append(event(int(w[4]), SLICE_BEGIN, on, f"vGPU {w[3]}"))
            out.append(event(int(w[5]), SLICE_END, on))
        elif len(w) == 7 and w[0] == "A":
            label = f"slice {int(w[6]) // 1000} us" if w[5] == "slice" else w[5]
            did = uuid("lever", w[2])
            out.append(event(int(w[3]), SLICE_BEGIN, did, label))
            out.append(event(int(w[3]) + int(w[4]), SLICE_END, did))
    return b"".join(out)


def main(argv: list[str]) -> int:
    """Converts one file; returns the exit status."""
    if len(argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        data = convert(Path(argv[1]).read_text(encoding="utf-8", errors="replace"))
    except OSError as e:
        print(f"timeline.py: {argv[1]}: {e.strerror}", file=sys.stderr)
        return 1
    Path(argv[2]).write_bytes(data)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
