# SPDX-License-Identifier: MIT
"""`rtxg latency table`, `record` and `report`: the program rtxg-latency-lab."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from . import report as reports
from . import table as tables
from .program import LatencyError, find, measure
from .store import KEEP_MINUTES_DAYS, MOST_BYTES, Store, spans_of

#: where the system's recorder writes; see rtxg-latency.service
SYSTEM_FILE = Path("/var/lib/rtxg/latency.db")


class Parser(argparse.ArgumentParser):
    """Exits with 1 on wrong usage, as `rtxg latency` does: 2 says that a threshold was passed."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(1, f"{self.prog}: {message}\n")


def number(least: float, most: float, kind: type = float):
    """A number of a range, for argparse."""

    def read(text: str):
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not least <= value <= most:
            raise argparse.ArgumentTypeError(f"'{text}' is not accepted; accepted: {least:g} to {most:g}")
        return value

    return read


def label(text: str) -> str:
    """A short name that stands in a legend."""
    if not text.isprintable() or not 0 < len(text.strip()) <= 40:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not accepted; accepted: 1 to 40 printable characters"
        )
    return text.strip()


def duration(text: str) -> float:
    """Seconds of 90s, 10m, 12h, 7d."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if not found or not float(found[1]):
        raise argparse.ArgumentTypeError(f"'{text}' is not accepted; accepted: a number with s, m, h or d, as 7d")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]]


def parser() -> Parser:
    """The three commands."""
    whole = Parser(prog="rtxg latency", description=__doc__)
    commands = whole.add_subparsers(dest="command", required=True)
    one = commands.add_parser(
        "table",
        description="Measure latencies under memory, graphics and GPU loads, alone and "
        "together, and say whether bandwidth, locking or interrupts make them long.",
    )
    one.add_argument("-D", "--duration", type=duration, default=10.0, metavar="TIME", help="of each row (10s; OSADL has 5m)")
    one.add_argument("-a", "--affinity", type=number(0, 4095, int), metavar="CPU", help="the measured CPU (the last one)")
    one.add_argument("-p", "--priority", type=number(0, 99, int), default=99, help="of the measuring thread (99)")
    one.add_argument("-i", "--interval", type=number(20, 1e6, int), default=200, metavar="US", help="its period (200)")
    one.add_argument(
        "--irq",
        action="append",
        default=[],
        metavar="NAME",
        help="interrupts of the device: they go to the core of its load for each row",
    )
    one.add_argument("--json", metavar="FILE", help="also write JSON; - is standard output")
    one = commands.add_parser(
        "record",
        description="Measure without end, and keep each minute's maximum, histogram and culprit "
        "in a file of bounded size.",
    )
    one.add_argument("--db", type=Path, default=SYSTEM_FILE, metavar="FILE", help=f"the file ({SYSTEM_FILE})")
    one.add_argument("--each", type=duration, default=60.0, metavar="TIME", help="length of a span (60s)")
    one.add_argument(
        "--most",
        type=number(1, 1e5),
        default=MOST_BYTES / 1e6,
        metavar="MB",
        help=f"size that the file may have ({MOST_BYTES / 1e6:.0f})",
    )
    one.add_argument(
        "--keep",
        type=number(1, 3650, int),
        default=KEEP_MINUTES_DAYS,
        metavar="DAYS",
        help=f"joins older spans to hours ({KEEP_MINUTES_DAYS})",
    )
    one.add_argument("-D", "--duration", type=duration, metavar="TIME", help="end after it")
    one.add_argument(
        "--label",
        type=label,
        metavar="TEXT",
        help="what runs beside it, as x11perf: reports show it as a machine of its own",
    )
    one.add_argument("options", nargs="*", help="options of rtxg latency, after --")
    one = commands.add_parser("report", description="Show what was recorded.")
    one.add_argument(
        "--db",
        type=Path,
        action="append",
        metavar="FILE",
        help=f"a file of rtxg latency record ({SYSTEM_FILE}); several machines: several times",
    )
    one.add_argument("--since", type=duration, metavar="TIME", help="the last 7d, for example; all by default")
    one.add_argument("--png", type=Path, metavar="FILE", help="write OSADL's plots")
    one.add_argument("--html", type=Path, metavar="FILE", help="write one file with the table and the plots")
    one.add_argument("--json", action="store_true", help="print JSON")
    return whole


def put(path: Path, content: bytes) -> None:
    """Write a file; what was there stays if there is no room for the new one.

    :raises LatencyError: naming it: a disk that is full does not.
    """
    path = path.resolve()  # a link stays one
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # a terminal or a pipe, or a file in a folder that belongs to others
        if path.exists() and not (path.is_file() and os.access(path.parent, os.W_OK)):
            path.write_bytes(content)
            return
        try:
            beside.write_bytes(content)
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise LatencyError(f"{path}: {error.strerror}") from error


def cmd_table(options: argparse.Namespace) -> int:
    """Measure, print, judge."""
    mine = sorted(os.sched_getaffinity(0))
    cpu = mine[-1] if options.affinity is None else options.affinity
    if cpu not in mine:
        raise LatencyError(f"-a: CPU {cpu} does not exist or is not this process's; accepted: {', '.join(map(str, mine))}")
    to_stdout = options.json == "-"
    out = None
    if options.json and not to_stdout:
        out = Path(options.json).open("a")  # noqa: SIM115 - before hours of measuring
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # is answered with what there is, too
    found = tables.run(
        cpu,
        options.duration,
        options.priority,
        options.interval,
        options.irq,
        lambda text: print(text, file=sys.stderr, flush=True),
    )
    text = json.dumps(found.as_dict(), indent=1) + "\n"
    print(text if to_stdout else tables.as_text(found), end="", flush=True)
    if out:
        out.close()
        put(Path(options.json), text.encode())  # last: the disk may be full
    return 0


def cmd_record(options: argparse.Namespace) -> int:
    """Read the lines of the measuring program, store them, until it or this ends."""
    words = options.options or ["-m", "-S", "-p", "90", "-i", "1000"]
    for word in words:
        # abbreviations, too, as getopt takes them
        for own in ("--each", "--help"):
            if own.startswith(name := word.split("=")[0]) and len(name) > 3:
                raise LatencyError(f"{word} is not accepted after --; {own} stands before it")
    store = Store(options.db, write=True, most_bytes=int(options.most * 1e6), keep_days=options.keep)
    first = measure(["-l", "1", "--user-only", "--default-system"], 60)
    # with other options other things are measured
    configuration = first["machine"] | {"options": " ".join(words)}
    if options.label:
        configuration["label"] = options.label
    machine = store.add_machine(configuration, int(time.time()))
    if options.duration:
        words = [*words, "-D", str(options.duration)]
    problem = None
    command = [find("rtxg-latency"), "--each", str(options.each), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        signal.signal(signal.SIGTERM, lambda *_: run.send_signal(signal.SIGTERM))
        signal.signal(signal.SIGINT, lambda *_: None)  # the terminal tells the measuring program too
        assert run.stdout
        for line in run.stdout:
            try:
                store.add(spans_of(json.loads(line), machine))
                problem = None
            except LatencyError as error:
                # a full disk may have room again; what this minute had is lost, and that is said
                if str(error) != problem:
                    problem = str(error)
                    print(f"rtxg latency record: {error}; this span is lost", file=sys.stderr, flush=True)
    store.close()
    if problem:
        return 1
    return run.returncode if run.returncode in (0, 1, 2) else 1


def cmd_report(options: argparse.Namespace) -> int:
    """Show all files together."""
    since = int(time.time() - options.since) if options.since else 0
    spans, machines = [], {}
    for path in options.db or [SYSTEM_FILE]:
        store = Store(path)
        spans += store.spans(since)
        machines |= store.machines()
        store.close()
    if not spans:
        raise LatencyError("nothing was recorded in that time; --since takes a longer one")
    lines = reports.lines_of(spans)
    if options.png:
        put(options.png, reports.draw(lines))
    if options.html:
        title = f"Latency, {reports.period_of(lines)}"
        put(options.html, reports.as_html(lines, machines, title).encode())
    if options.json:
        print(
            json.dumps(
                {
                    "machines": machines,
                    "threads": [
                        {
                            "machine": line.machine,
                            "thread": line.whole.thread,
                            "cpu": line.whole.cpu,
                            "seconds": line.whole.seconds,
                            "cycles": line.whole.cycles,
                            "avg_us": line.whole.avg_us,
                            "max_us": line.whole.max_us,
                            "max_at_s": line.worst.end_s,
                            "culprit": line.worst.culprit,
                            "record": line.worst.record,
                            **line.quantiles,
                            "spans": [[s.end_s, s.max_us] for s in line.spans],
                        }
                        for line in lines
                    ],
                }
            )
        )
    elif not options.png and not options.html:
        print(reports.as_text(lines), end="")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 0 done, 1 not."""
    whole = parser()
    options, unknown = whole.parse_known_args(arguments)
    if unknown:
        after = (
            "; options of rtxg latency stand after --, as in: rtxg latency record -- -a 1 -p 90"
            if options.command == "record"
            else ""
        )
        whole.error(f"{' '.join(unknown)}: no such option of {options.command}{after}")
    try:
        return {"table": cmd_table, "record": cmd_record, "report": cmd_report}[options.command](options)
    except (LatencyError, OSError) as error:
        print(f"rtxg latency {options.command}: {error}", file=sys.stderr)
        return 1


def entry() -> NoReturn:
    """The program rtxg-latency-lab."""
    try:
        sys.exit(main())
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(1)


if __name__ == "__main__":
    entry()
