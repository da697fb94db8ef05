# SPDX-License-Identifier: MIT
"""A minute's maxima and histograms for months, in SQLite, bounded in size.

Rows of one minute are kept for `keep_minutes` days; older ones are joined to hours, which keep the
maximum, its culprit and the sum of the histograms. The file never grows beyond `most_bytes`: of many
CPUs the minutes of 60 days do not fit, so they are joined earlier, until hours have half of the
rows. Then the oldest hours go. A machine's configuration is a row of its own, and each minute refers
to it.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .program import LatencyError

DAY = 86400
#: of the file, by default
MOST_BYTES = 64 << 20
#: days for which each minute is kept
KEEP_MINUTES_DAYS = 60

#: not joined to an hour yet; that may be of less time, where the recorder was off
MINUTE = "(seconds < 1800 AND end_s % 3600 <> 0)"

SCHEMA = """
CREATE TABLE IF NOT EXISTS machine (
  id TEXT PRIMARY KEY, node TEXT NOT NULL, first_s INTEGER NOT NULL, record TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS span (
  machine TEXT NOT NULL REFERENCES machine(id), thread INTEGER NOT NULL, cpu INTEGER,
  end_s INTEGER NOT NULL, seconds REAL NOT NULL, cycles INTEGER NOT NULL,
  max_us REAL NOT NULL, avg_us REAL NOT NULL, bins TEXT NOT NULL, overflows INTEGER NOT NULL,
  culprit TEXT NOT NULL, record TEXT NOT NULL,
  PRIMARY KEY (machine, thread, end_s)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS span_end ON span(end_s);
"""


@dataclass
class Span:
    """One thread's minute (or hour)."""

    machine: str
    thread: int
    cpu: int | None
    end_s: int
    seconds: float
    cycles: int
    max_us: float
    avg_us: float
    bins: dict[int, int]
    overflows: int
    culprit: str
    record: str


def machine_id(machine: dict) -> str:
    """Changes with the configuration: a new kernel or command line is another machine in plots."""
    text = json.dumps(machine, sort_keys=True)
    names = [machine.get("node", "?"), machine.get("label", "")]
    return f"{' '.join(filter(None, names))}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def spans_of(line: dict, machine: str) -> list[Span]:
    """The rows of one line that `rtxg latency --each` printed."""
    worst = {one["thread"]: one for one in (line.get("worst") or {}).get("own", [])}
    spans = []
    for thread in line["threads"]:
        seen = thread["observed"]
        if not seen["count"]:
            continue
        one = worst.get(thread["thread"], {})
        spans.append(
            Span(
                machine, thread["thread"], thread["cpu"], line["ended_s"], line["seconds"], seen["count"],
                seen["max_us"], seen["avg_us"], {int(k): v for k, v in seen["bins"].items()}, seen["overflows"],
                one.get("culprit", ""), one.get("record", ""),
            )
        )
    return spans


def joined(spans: list[Span], end_s: int) -> Span:
    """Several spans of one thread as one."""
    worst = max(spans, key=lambda s: s.max_us)
    cycles = sum(s.cycles for s in spans)
    bins: dict[int, int] = {}
    for span in spans:
        for bin_, count in span.bins.items():
            bins[bin_] = bins.get(bin_, 0) + count
    return Span(
        worst.machine, worst.thread, worst.cpu, end_s, sum(s.seconds for s in spans), cycles, worst.max_us,
        sum(s.avg_us * s.cycles for s in spans) / max(cycles, 1), bins, sum(s.overflows for s in spans),
        worst.culprit, worst.record,
    )


class Store:
    """One file. Each call is a transaction: a full disk or a crash leaves what was there."""

    def __init__(
        self, path: Path, *, write: bool = False, most_bytes: int = MOST_BYTES, keep_days: int = KEEP_MINUTES_DAYS
    ) -> None:
        """Open or, to write, make it.

        :raises LatencyError: naming the file, and what is wrong with it.
        """
        self.path = path
        self.most_bytes = most_bytes
        self.keep_days = keep_days
        try:
            if write:
                path.parent.mkdir(parents=True, exist_ok=True)
                self.base = sqlite3.connect(path, timeout=10)
                self.base.execute("PRAGMA auto_vacuum=INCREMENTAL")
                self.base.executescript(SCHEMA)
            else:
                if not path.exists():
                    raise LatencyError(f"{path} does not exist; rtxg latency record writes it")
                self.base = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)
                self.base.execute("SELECT 1 FROM span LIMIT 1")
        except (sqlite3.Error, OSError) as error:
            raise LatencyError(f"{path}: {error}") from error

    def close(self) -> None:
        """Give the file back."""
        self.base.close()

    def add_machine(self, machine: dict, now_s: int) -> str:
        """Its identity; stored once."""
        identity = machine_id(machine)
        try:
            with self.base:
                self.base.execute(
                    "INSERT OR IGNORE INTO machine VALUES (?, ?, ?, ?)",
                    (identity, machine.get("node", "?"), now_s, json.dumps(machine)),
                )
        except sqlite3.Error as error:
            raise LatencyError(f"{self.path}: {error}") from error
        return identity

    def add(self, spans: list[Span]) -> None:
        """Store rows, and keep the file bounded.

        :raises LatencyError: where the disk is full, for example; nothing of these rows is stored then.
        """
        try:
            with self.base:
                for span in spans:
                    # ends are whole seconds: of shorter spans several have one
                    there = self._select(
                        "machine = ? AND thread = ? AND end_s = ?",
                        (span.machine, span.thread, span.end_s),
                    )
                    self._insert([joined([*there, span], span.end_s)])
            if spans:
                self._bound(max(s.end_s for s in spans))
        except sqlite3.Error as error:
            raise LatencyError(f"{self.path}: {error}") from error

    def _insert(self, spans: list[Span]) -> None:
        self.base.executemany(
            "INSERT OR REPLACE INTO span VALUES (?,?,?,?,?,?,?,?,?,?,?,?)",
            [
                (s.machine, s.thread, s.cpu, s.end_s, s.seconds, s.cycles, s.max_us, s.avg_us,
                 json.dumps(s.bins, separators=(",", ":")), s.overflows, s.culprit, s.record)
                for s in spans
            ],
        )

    def size(self) -> int:
        """Bytes that the file's pages take."""
        (pages,) = self.base.execute("PRAGMA page_count").fetchone()
        (each,) = self.base.execute("PRAGMA page_size").fetchone()
        return pages * each

    def _bound(self, now_s: int) -> None:
        """Join what is old to hours; drop the oldest where that is not enough."""
        self._join(f"end_s <= ? AND {MINUTE} LIMIT 20000", now_s - self.keep_days * DAY)
        if self.size() > self.most_bytes:
            self._give_back()
        while self.size() > self.most_bytes:
            (all_, minutes) = self.base.execute(
                f"SELECT count(*), total({MINUTE}) FROM span"
            ).fetchone()
            first = f"SELECT end_s FROM span WHERE {MINUTE} ORDER BY end_s LIMIT 1"
            old = f"end_s <= min(?, ({first}) + 4 * 3600) AND {MINUTE}"
            gone = minutes * 2 >= all_ and self._join(old, now_s)
            if not gone:
                with self.base:
                    gone = self.base.execute(
                        "DELETE FROM span WHERE end_s IN "
                        "(SELECT DISTINCT end_s FROM span ORDER BY end_s LIMIT 200)"
                    ).rowcount
            if not gone:
                break
            self._give_back()

    def _give_back(self) -> None:
        """All pages that are free; execute() would take one step of it, which is one page."""
        self.base.executescript("PRAGMA incremental_vacuum")

    def _join(self, which: str, until_s: int) -> int:
        """Make hours of these minutes, of the hours that have ended by then. How many rows less?"""
        groups: dict[tuple[str, int, int], list[Span]] = {}
        gone = 0
        for span in self._select(which, (until_s // 3600 * 3600,)):
            groups.setdefault((span.machine, span.thread, (span.end_s + 3599) // 3600 * 3600), []).append(span)
        with self.base:
            for (machine, thread, hour), spans in groups.items():
                earlier = self._select(
                    "machine = ? AND thread = ? AND end_s = ?", (machine, thread, hour)
                )
                earlier = [s for s in earlier if s not in spans]
                self.base.executemany(
                    "DELETE FROM span WHERE machine = ? AND thread = ? AND end_s = ?",
                    [(machine, thread, s.end_s) for s in spans],
                )
                self._insert([joined([*spans, *earlier], hour)])
                gone += len(spans) + len(earlier) - 1
        return gone

    def _select(self, where: str, values: tuple) -> Iterator[Span]:
        for row in self.base.execute(f"SELECT * FROM span WHERE {where}", values).fetchall():
            *head, bins, overflows, culprit, record = row
            yield Span(*head, {int(k): v for k, v in json.loads(bins).items()}, overflows, culprit, record)

    def spans(self, since_s: int = 0, until_s: int | None = None) -> list[Span]:
        """Rows that ended in that time, oldest first."""
        until = until_s if until_s is not None else int(time.time()) + DAY
        return list(self._select("end_s > ? AND end_s <= ? ORDER BY end_s", (since_s, until)))

    def machines(self) -> dict[str, dict]:
        """Configurations by identity."""
        return {i: json.loads(text) for i, text in self.base.execute("SELECT id, record FROM machine")}
