# SPDX-License-Identifier: MIT
"""bench/gpu/timeline.py: text in, packets out, decoded here by the rules of protocol buffers."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "gpu"))

import timeline


def fields(data: bytes) -> list[tuple[int, int | bytes]]:
    """Field numbers with their values."""
    at, out = 0, []

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            out.append((key >> 3, varint()))
        else:
            assert key & 7 == 2
            size = varint()
            out.append((key >> 3, data[at : at + size]))
            at += size
    return out


TEXT = """C 0 494 4 1 39000000000 load
S 0 494 4 39403814426 39405814426
A 0 494 39456739343 4593368 slice 1333644
A 0 494 39476739343 600000 stop 0
S 0 494 4 394058
"""


def test_stays_and_actions_become_slices() -> None:
    packets = [dict(fields(p)) for n, p in fields(timeline.convert(TEXT)) if n == 1]
    assert all(p[10] == 1 for p in packets)
    tracks = {t[1]: t[2].decode() for t in (dict(fields(p[60])) for p in packets if 60 in p)}
    assert tracks == {1: "GPU load 494", 2: "lever load 494"}
    events = [(p[8], dict(fields(p[11]))) for p in packets if 11 in p]
    assert [(at, e[9], e[11], e.get(23, b"").decode()) for at, e in events] == [
        (39403814426, 1, 1, "vGPU 4"),
        (39405814426, 2, 1, ""),
        (39456739343, 1, 2, "slice 1333 us"),
        (39461332711, 2, 2, ""),
        (39476739343, 1, 2, "stop"),
        (39477339343, 2, 2, ""),
    ]


def test_says_what_is_wrong(tmp_path: Path, capsys) -> None:
    assert timeline.main(["timeline.py"]) == 2
    assert timeline.main(["timeline.py", str(tmp_path / "none"), str(tmp_path / "out")]) == 1
    assert "none" in capsys.readouterr().err
