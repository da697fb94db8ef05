# SPDX-License-Identifier: MIT
"""The long-term record: bounded, whole after a crash or on a full disk, and its report."""

from __future__ import annotations

import errno
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import BUILD, ROOT
from rtxg.lateness import __main__ as commands
from rtxg.lateness.program import LatencyError
from rtxg.lateness.report import (
    as_html,
    as_text,
    beyond,
    draw,
    lasted,
    lines_of,
    maxima_of,
    needs_logarithm,
    period_of,
    stamp,
    steps_of,
)
from rtxg.lateness.store import DAY, Span, Store, joined, machine_id, spans_of

MACHINE = {"node": "box", "kernel": "6.1.0-rt", "preemption": "rt", "cpu": "a CPU <b>"}
START = 1_700_000_000 // 3600 * 3600


def span(end_s: int, max_us: float, machine: str = "box-1", thread: int = 0) -> Span:
    """One minute."""
    return Span(machine, thread, thread, end_s, 60.0, 60000, max_us, 5.0, {4: 50000, 9: 9999}, 1, f"late by {max_us}", "r")


def test_what_is_stored_is_read_back(tmp_path: Path) -> None:
    """A line of `rtxg latency --each` becomes one row a thread."""
    line = {
        "ended_s": START, "seconds": 60.0,
        "threads": [
            {"thread": 0, "cpu": 2, "observed": {"count": 3, "max_us": 9.5, "avg_us": 5.0, "bins": {"4": 2, "9": 1}, "overflows": 0}},
            {"thread": 1, "cpu": None, "observed": {"count": 0, "max_us": 0, "avg_us": 0, "bins": {}, "overflows": 0}},
        ],
        "worst": {"own": [{"thread": 0, "culprit": "interrupt nvidia", "record": "1 99 9"}]},
    }
    store = Store(tmp_path / "sub/l.db", write=True)
    machine = store.add_machine(MACHINE, START)
    store.add(spans_of(line, machine))
    store.close()
    store = Store(tmp_path / "sub/l.db")
    (one,) = store.spans()
    assert (one.cpu, one.max_us, one.bins, one.culprit) == (2, 9.5, {4: 2, 9: 1}, "interrupt nvidia")
    assert store.machines() == {machine: MACHINE}


def test_a_new_kernel_is_another_machine() -> None:
    """So that a plot does not mix them."""
    assert machine_id(MACHINE) != machine_id(MACHINE | {"kernel": "6.12"})
    assert machine_id(MACHINE) == machine_id(dict(reversed(MACHINE.items())))


def test_a_label_is_another_machine_and_its_name() -> None:
    """The same machine with and without a load stands twice in a report."""
    names = {machine_id(MACHINE), machine_id(MACHINE | {"label": "x11perf"})}
    assert len(names) == 2
    assert any(name.startswith("box x11perf-") for name in names)


def test_old_minutes_become_hours_that_keep_the_maximum(tmp_path: Path) -> None:
    """Cycles, bins and the worst culprit are those of all minutes."""
    store = Store(tmp_path / "l.db", write=True, keep_days=1)
    store.add([span(START + 60 * i, 10.0 + i) for i in range(1, 121)])
    store.add([span(START + 3 * DAY, 7.0)])
    spans = store.spans()
    assert len(spans) == 3
    assert [s.max_us for s in spans] == [70.0, 130.0, 7.0]
    assert spans[0].cycles == 60 * 60000
    assert spans[0].bins[4] == 60 * 50000
    assert spans[1].culprit == "late by 130.0"
    assert sum(s.cycles for s in spans) == 121 * 60000


def test_the_file_stays_within_its_size(tmp_path: Path) -> None:
    """The oldest rows go."""
    store = Store(tmp_path / "l.db", write=True, most_bytes=300_000, keep_days=3650)
    for block in range(60):
        store.add([span(START + 60 * (block * 100 + i), 9.0) for i in range(100)])
        assert store.size() <= 300_000
    spans = store.spans()
    assert spans[-1].end_s == START + 60 * 5999
    assert 300 < len(spans) < 5999


def test_months_stay_where_the_minutes_of_many_cpus_do_not_fit(tmp_path: Path) -> None:
    """Minutes are joined to hours earlier: a file that drops its oldest minutes holds some days."""
    store = Store(tmp_path / "l.db", write=True, most_bytes=200_000)
    store.base.execute("PRAGMA synchronous=OFF")  # nothing crashes here
    days, cpus = 15, 2
    for hour in range(days * 24):
        store.add(
            [
                span(START + 3600 * hour + 60 * minute, 9.0 + (hour == 5), thread=cpu)
                for minute in range(1, 61, 4)
                for cpu in range(cpus)
            ]
        )
        assert store.size() <= 200_000
    spans = store.spans()
    assert spans[0].end_s <= START + 7200
    assert sum(s.cycles for s in spans) == days * 24 * 15 * cpus * 60000
    assert {s.end_s for s in spans if s.max_us == 10.0} == {START + 6 * 3600}
    minutes = {s.end_s for s in spans if s.seconds == 60.0}
    assert len(minutes) > 150, "the last hours are there by the minute"
    assert max(minutes) == START + days * 24 * 3600 - 180
    store.add([span(START + days * DAY + 60, 9.0)])
    assert store.spans()[-1].seconds == 60.0


@pytest.mark.slow
def test_a_year_stays_within_its_size(tmp_path: Path) -> None:
    """The disk has no more than that at any time; hours have their place, and the last days too."""
    path, most = tmp_path / "l.db", 500_000
    store = Store(path, write=True, most_bytes=most)
    store.base.execute("PRAGMA synchronous=OFF")
    for day in range(365):
        store.add(
            [
                replace(span(START + DAY * day + 1200 * part, 9.0, thread=cpu), seconds=1200.0)
                for part in range(1, 73)
                for cpu in range(2)
            ]
        )
        assert path.stat().st_size <= most
    spans = store.spans()
    days = (spans[-1].end_s - spans[0].end_s) / DAY
    assert spans[-1].end_s == START + 365 * DAY
    assert days > 30
    assert sum(s.seconds == 1200.0 for s in spans) > len(spans) / 3
    assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_no_more_goes_than_has_to(tmp_path: Path) -> None:
    """A file that is too large by a page loses the pages of some hours, and is smaller by them
    then.
    """
    store = Store(tmp_path / "l.db", write=True, most_bytes=300_000, keep_days=3650)
    least, before = 300_000, 0
    for hour in range(120):
        store.add([span(START + 3600 * hour + 60 * minute, 9.0) for minute in range(1, 60)])
        if (now := store.size()) < before:
            least = min(least, now)
            (free,) = store.base.execute("PRAGMA freelist_count").fetchone()
            assert free * 4096 < 20_000
        before = now
    assert 200_000 < least < 300_000


def test_hours_that_were_not_whole_are_joined_once(tmp_path: Path) -> None:
    """A recorder that is on for some minutes a day leaves short hours."""
    store = Store(tmp_path / "l.db", write=True, keep_days=1)
    store.add([span(START + 60, 5.0), span(START + 120, 6.0)])
    store.add([span(START + 3 * DAY, 7.0)])
    (before, _) = store.spans()
    assert (before.end_s, before.seconds) == (START + 3600, 120.0)
    changes = store.base.total_changes
    store.add([span(START + 3 * DAY + 60, 7.0)])
    assert store.base.total_changes == changes + 1


def test_spans_that_end_in_the_same_second_are_one(tmp_path: Path) -> None:
    """A run's last span may be some milliseconds long, and is not to replace the one before it."""
    store = Store(tmp_path / "l.db", write=True)
    store.add([span(START, 50.0)])
    store.add([replace(span(START, 5.0), seconds=0.01, cycles=10, bins={4: 10})])
    store.add([replace(span(START + 1, 6.0), seconds=0.5), replace(span(START + 1, 7.0), seconds=0.5)])
    first, second = store.spans()
    assert (first.max_us, first.cycles, first.bins[4]) == (50.0, 60010, 50010)
    assert (second.max_us, second.seconds, second.cycles) == (7.0, 1.0, 120000)


def test_a_full_disk_loses_one_span_and_says_so(tmp_path: Path) -> None:
    """What was there stays, and the next span is stored when there is room again."""
    store = Store(tmp_path / "l.db", write=True)
    store.add([span(START, 5.0)])
    (pages,) = store.base.execute("PRAGMA page_count").fetchone()
    store.base.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(LatencyError, match=r"l\.db.*full"):
        for i in range(1, 5000):
            store.add([span(START + 60 * i, 6.0)])
    kept = len(store.spans())
    store.base.execute(f"PRAGMA max_page_count={pages + 1000}")
    store.add([span(START + DAY, 7.0)])
    assert len(store.spans()) == kept + 1
    assert sqlite3.connect(tmp_path / "l.db").execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize("content", [None, b"this is no database, but it is long enough to be read as one" * 20])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None, capsys: pytest.CaptureFixture) -> None:
    """It is missing, or something else."""
    path = tmp_path / "x.db"
    if content is not None:
        path.write_bytes(content)
    assert commands.main(["report", "--db", str(path)]) == 1
    assert str(path) in capsys.readouterr().err


def test_joining_weighs_means_by_cycles() -> None:
    """A short span counts less."""
    a, b = span(START, 5.0), span(START + 60, 9.0)
    a.cycles, a.avg_us, b.cycles, b.avg_us = 100, 10.0, 300, 2.0
    assert joined([a, b], START).avg_us == 4.0


def test_the_report_shows_machines_side_by_side(tmp_path: Path) -> None:
    """Table, plots and one HTML file that refers to nothing outside; names cannot break out of it."""
    lines = lines_of([span(START, 5.0), span(START + 60, 50.0), span(START, 20.0, machine="<i>two-2")])
    text = as_text(lines)
    assert "box-1" in text and "two-2" in text and "50" in text and "late by 50.0" in text
    assert draw(lines).startswith(b"\x89PNG")
    page = as_html(lines, {"box-1": MACHINE, "<i>two-2": MACHINE}, "Latency")
    assert "data:image/png;base64," in page
    assert "<code>r</code>" in page, "the record of the worst"
    assert "<th>nvidia" not in page, "no machine has it"
    assert "<i>" not in page and "&lt;b&gt;" in page
    assert "http" not in page and "src=\"/" not in page


def test_files_of_several_times_are_one_report() -> None:
    """However they are named on the command line: a report begins with the oldest span of all."""
    late = [span(START + 86400, 5.0), span(START + 86460, 7.0)]
    early = [span(START, 9.0, machine="two-2"), span(START + 60, 3.0)]
    lines = lines_of([*late, *early])
    assert [s.end_s for s in lines[0].spans] == [START + 60, START + 86400, START + 86460]
    begin, end = period_of(lines).removesuffix(" UTC").split(" to ")
    assert (begin, end) == (stamp(START - 60), stamp(START + 86460))


def test_what_the_plot_has_no_bins_for_is_counted() -> None:
    """A legend with the maximum alone does not say how often."""
    assert beyond(replace(span(START, 5000.0), overflows=12)) == ", +12"
    assert beyond(replace(span(START, 5.0), overflows=0)) == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(8, "8 s"), (600, "10.0 min"), (7200, "2.0 h"), (86400, "24.0 h"), (7 * 86400, "7.0 d")],
)
def test_a_time_has_a_unit_that_shows_it(seconds: float, text: str) -> None:
    """A record of some seconds is not one of 0.0 hours."""
    assert lasted(seconds) == text


def test_bins_without_wake_ups_are_drawn_as_none() -> None:
    """Not as many as the last bin that has some."""
    assert steps_of({4: 50, 5: 9, 8: 1}) == ([4, 5, 6, 8, 9], [50, 9, 0, 1, 0])
    assert steps_of({}) == ([], [])


def test_one_long_latency_does_not_flatten_the_others() -> None:
    """A day's maxima of tens of microseconds, and one of 100 ms."""
    assert needs_logarithm([*(float(40 + n) for n in range(100)), 100000.0])
    assert not needs_logarithm([float(40 + n) for n in range(100)])
    assert not needs_logarithm([])


def test_a_time_without_a_record_is_no_line() -> None:
    """A machine that was off has no maximum then; of several threads the latest counts."""
    ends = [START, START + 60, START + 7200]
    lines = lines_of(
        [span(at, 5.0, thread=t) for t in (0, 1) for at in ends]
        + [span(START + 7260, 50.0, thread=1)]
    )
    days, maxima = maxima_of(lines)
    assert [m for m in maxima if m == m] == [5.0, 5.0, 5.0, 50.0]
    assert maxima[2] != maxima[2]
    assert days == sorted(days)


def run_record(path: Path, *words: str) -> subprocess.Popen[str]:
    """The recorder as a program."""
    return subprocess.Popen(
        [sys.executable, "-m", "rtxg.lateness", "record", "--db", str(path), "--each", "0.2s", *words],
        env=os.environ | {"PYTHONPATH": str(ROOT / "lab"), "RTXG_LATENCY_PROGRAMS": str(BUILD / "latency")},
        stderr=subprocess.PIPE, text=True,
    )


def wait_for_spans(path: Path) -> None:
    """Until two are stored."""
    for _ in range(1200):
        if path.exists():
            try:
                if len(Store(path).spans()) >= 2:
                    return
            except LatencyError:
                pass
        time.sleep(0.05)
    pytest.fail("no two spans were stored")


def lives(pid: int) -> bool:
    """Is there such a process that is not a zombie?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_recorder_that_is_killed_leaves_a_whole_file_and_no_measurement(tmp_path: Path) -> None:
    """The measuring program has no reader any more, and puts its settings back as ever."""
    path = tmp_path / "l.db"
    with run_record(path, "--", "-t", "1", "-i", "1000", "--user-only") as run:
        wait_for_spans(path)
        (child,) = map(int, Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split())
        assert lives(child)
        run.kill()
        run.wait(60)
        for _ in range(1200):
            if not lives(child):
                break
            time.sleep(0.05)
        assert not lives(child)
    assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert len(Store(path).spans()) >= 2


def test_recording_and_reporting_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Spans come in until SIGTERM, and the report counts them."""
    path = tmp_path / "l.db"
    with run_record(
        path, "--label", "x11perf", "--", "-t", "1", "-i", "1000", "--user-only"
    ) as run:
        wait_for_spans(path)
        run.send_signal(signal.SIGTERM)
        assert run.wait(60) == 0
    assert commands.main(["report", "--db", str(path), "--since", "7d", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["threads"][0]["cycles"] >= 2
    assert commands.main(
        ["report", "--db", str(path), "--png", str(tmp_path / "a.png"), "--html", str(tmp_path / "a.html")]
    ) == 0
    assert (tmp_path / "a.png").stat().st_size > 1000
    page = (tmp_path / "a.html").read_text()
    assert "Configuration" in page
    assert "<td>x11perf" in page and "<td>-t 1 -i 1000 --user-only" in page


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["table", "-a", "4000"], ["CPU 4000", "accepted"]),
        (["table", "-D", "x"], ["'x'", "7d"]),
        (["table", "-p", "100"], ["'100'", "0 to 99"]),
        (["record", "--most", "0"], ["'0'", "1 to"]),
        (["record", "--db", "/proc/no/such.db"], ["/proc/no/such.db"]),
        (["record", "-a", "1"], ["-a", "after --"]),
        (["record", "--db", "/dev/null", "--", "--hel"], ["--hel", "--help stands before"]),
        (["record", "--db", "/dev/null", "--", "--each=3"], ["--each=3", "--each stands before"]),
        (["record", "--label", " "], ["' '", "1 to 40"]),
        (["record", "--label", "a\x1b[2J"], ["1 to 40 printable"]),
        (["report", "-a"], ["-a", "report"]),
        (["report", "--since", "0d"], ["'0d'"]),
        (["nothing"], ["nothing"]),
    ],
)
def test_a_wrong_command_line_is_refused(words: list[str], named: list[str], capsys: pytest.CaptureFixture) -> None:
    """Status 1, with what is accepted."""
    try:
        status = commands.main(words)
    except SystemExit as end:
        status = end.code
    said = capsys.readouterr().err
    assert status == 1
    for name in named:
        assert name in said


def test_a_report_that_cannot_be_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a picture is none, and yesterday's is better."""
    there = tmp_path / "report.png"
    commands.put(there, b"yesterday")

    def full(path: Path, content: bytes) -> int:
        with path.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(LatencyError, match=r"report\.png: No space left"):
        commands.put(there, b"today")
    assert there.read_bytes() == b"yesterday"
    assert list(tmp_path.iterdir()) == [there]


def test_a_launch_has_no_record_of_a_wake_up() -> None:
    """Its culprit stands alone."""
    text = as_text(lines_of([replace(span(START, 5.0), record="", culprit="execution")]))
    assert "\nbox-1, thread 0\n  execution\n" in text


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("option", ["--html", "--png"])
def test_a_report_that_finds_a_full_disk_names_its_file(
    tmp_path: Path, option: str, capsys: pytest.CaptureFixture
) -> None:
    """The error of the system has no name in it."""
    store = Store(tmp_path / "a.db", write=True)
    store.add([span(START, 5.0, machine=store.add_machine(MACHINE, START))])
    store.close()
    assert commands.main(["report", "--db", str(tmp_path / "a.db"), option, "/dev/full"]) == 1
    assert "/dev/full: No space left" in capsys.readouterr().err
