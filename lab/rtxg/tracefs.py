# SPDX-License-Identifier: MIT
"""Kernel tracepoints with nanosecond stamps: a private tracefs instance and its ring buffer, decoded.

The text of tracefs has microseconds only, too coarse for a context switch.  So the binary pages of
``trace_pipe_raw`` are read and decoded by the kernel's own description of each event
(``events/*/*/format``).  The instance is removed in every case.  May not: change anything outside
the instance.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

MOUNT_POINTS = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))


class Unavailable(OSError):  # noqa: N818 - a state of the machine
    """Tracepoints cannot be read here; the text says why and what would help."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event: nanoseconds on the trace clock, CPU, name and fields."""

    time: int
    cpu: int
    name: str
    fields: dict[str, int | str]


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    offset: int
    size: int
    signed: bool
    kind: str  # "number", "text" or "dynamic"


_FIELD = re.compile(r"\tfield:(.+?)\s*(\w+)(\[[^\]]*\])?;\toffset:(\d+);\tsize:(\d+);\tsigned:(\d);")


def parse_format(text: str) -> tuple[int, list[_Field]]:
    """An event's number and fields from its format file; the common fields are left out."""
    number = int(re.search(r"^ID: (\d+)$", text, re.M)[1])
    fields = []
    for kind, name, array, offset, size, signed in _FIELD.findall(text):
        if not name.startswith("common_"):
            shape = "dynamic" if "__data_loc" in kind else "text" if array and "char" in kind else "number"
            fields.append(_Field(name, int(offset), int(size), signed == "1", shape))
    return number, fields


def _decode(record: bytes, fields: Sequence[_Field]) -> dict[str, int | str]:
    values: dict[str, int | str] = {}
    for f in fields:
        raw = record[f.offset : f.offset + f.size]
        if f.kind == "number" and f.size in (1, 2, 4, 8):
            values[f.name] = int.from_bytes(raw, "little", signed=f.signed)
        elif f.kind == "dynamic" and len(raw) == 4:
            where = int.from_bytes(raw, "little")
            values[f.name] = record[where & 0xFFFF : (where & 0xFFFF) + (where >> 16)].split(b"\0")[0].decode(errors="replace")
        elif f.kind == "text":
            values[f.name] = raw.split(b"\0")[0].decode(errors="replace")
    return values


def decode_page(page: bytes, cpu: int, formats: dict[int, tuple[str, list[_Field]]]) -> Iterator[Event]:
    """The events of one page of the ring buffer, as Linux's ring_buffer.c lays it out.

    A page begins with the time of its first event and the bytes in use; each event with 5 bits of
    type or length and 27 bits of time since the one before.
    """
    if len(page) < 16:
        return
    time, used = struct.unpack_from("<QQ", page)
    end = min(len(page), 16 + (used & 0xFFFFF))
    at = 16
    while at + 4 <= end:
        (head,) = struct.unpack_from("<I", page, at)
        kind, delta = head & 31, head >> 5
        at += 4
        if kind == 29:  # padding: to the end of the page, or a discarded event
            if delta == 0 or at + 4 > end:
                return
            at += struct.unpack_from("<I", page, at)[0]
            time += delta
            continue
        if kind in (30, 31):  # time that does not fit 27 bits: an addition, or absolute
            if at + 4 > end:
                return
            high = struct.unpack_from("<I", page, at)[0]
            at += 4
            full = (high << 27) + delta
            time = time + full if kind == 30 else (time & ~((1 << 59) - 1)) | full
            continue
        time += delta
        if kind == 0:
            if at + 4 > end:
                return
            length = struct.unpack_from("<I", page, at)[0] - 4
            at += 4
        else:
            length = kind * 4
        record = page[at : at + length]
        at += length
        if len(record) < 8 or len(record) < length:
            return
        known = formats.get(int.from_bytes(record[:2], "little"))
        if known:
            yield Event(time, cpu, known[0], _decode(record, known[1]))


def find_tracefs() -> Path:
    """Where tracefs is mounted and may be used.

    :raises Unavailable: it is not mounted, or not for us.
    """
    for root in MOUNT_POINTS:
        if (root / "events").is_dir() and os.access(root / "instances", os.W_OK):
            return root
    if os.geteuid() != 0:
        raise Unavailable("tracefs needs root: run rtxg measure as root to see it")
    raise Unavailable("tracefs is not mounted: mount -t tracefs nodev /sys/kernel/tracing")


class Recording:
    """Records chosen events in a private tracing instance.

    with Recording(["sched/sched_switch"]) as recording:
        ...
        recording.collect()       # now and then, before the buffer is full
    recording.events              # sorted by time
    """

    def __init__(self, events: Sequence[str], root: Path | None = None, buffer_kb: int = 4096) -> None:
        """:param events: ``group/name``; those that this kernel lacks are listed in ``missing``."""
        self.root = root or find_tracefs()
        self.wanted = list(events)
        self.buffer_kb = buffer_kb
        self.missing: list[str] = []
        self.events: list[Event] = []
        self.lost = 0
        self._formats: dict[int, tuple[str, list[_Field]]] = {}
        self._pipes: list[tuple[int, int]] = []
        self._pages: list[tuple[int, bytes]] = []
        self._instance = self.root / "instances" / f"rtxg-measure-{os.getpid()}"

    def __enter__(self) -> Recording:
        try:
            self._instance.mkdir()
        except OSError as error:
            raise Unavailable(f"no trace instance: {error.strerror} ({self._instance})") from None
        try:
            (self._instance / "tracing_on").write_text("0")
            (self._instance / "trace_clock").write_text("mono")
            (self._instance / "buffer_size_kb").write_text(str(self.buffer_kb))
            for name in self.wanted:
                folder = self._instance / "events" / name
                if not folder.is_dir():
                    self.missing.append(name)
                    continue
                number, fields = parse_format((folder / "format").read_text())
                self._formats[number] = (name.rpartition("/")[2], fields)
                (folder / "enable").write_text("1")
            for folder in sorted((self._instance / "per_cpu").glob("cpu*")):
                pipe = os.open(folder / "trace_pipe_raw", os.O_RDONLY | os.O_NONBLOCK)
                self._pipes.append((int(folder.name[3:]), pipe))
            (self._instance / "tracing_on").write_text("1")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            (self._instance / "tracing_on").write_text("0")
            self.collect()
            for folder in (self._instance / "per_cpu").glob("cpu*"):
                found = re.search(r"^overrun: (\d+)$", (folder / "stats").read_text(), re.M)
                self.lost += int(found[1]) if found else 0
            for cpu, page in self._pages:
                self.events.extend(decode_page(page, cpu, self._formats))
            self._pages.clear()
            self.events.sort(key=lambda e: e.time)
        finally:
            self.close()

    def collect(self) -> None:
        """Read what the buffers hold.  It is decoded when the recording has ended: on a slow CPU events
        come as fast as they are decoded, and reading would have no end."""
        for cpu, pipe in self._pipes:
            while True:
                try:
                    page = os.read(pipe, os.sysconf("SC_PAGE_SIZE"))
                except BlockingIOError:
                    break
                if not page:
                    break
                self._pages.append((cpu, page))

    def close(self) -> None:
        """Remove the instance."""
        for _, pipe in self._pipes:
            os.close(pipe)
        self._pipes.clear()
        if self._instance.is_dir():
            (self._instance / "tracing_on").write_text("0")
            self._instance.rmdir()


def kernel_symbols(names: Sequence[str]) -> dict[int, str]:
    """Addresses of kernel functions, for events that name functions by address; empty if hidden."""
    found = {}
    try:
        with open("/proc/kallsyms", encoding="utf-8") as lines:
            for line in lines:
                address, _, name = line.split()[:3]
                if name in names and int(address, 16):
                    found[int(address, 16)] = name
    except OSError:
        pass
    return found
