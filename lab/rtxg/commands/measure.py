# SPDX-License-Identifier: MIT
"""``rtxg measure``: this machine's overheads, for ``rtxg analyze --overheads``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .. import irqlog
from ..analysis import Analysis, analyze
from ..inversions import KINDS
from ..late import over_limit, real_time_limit, stolen_of
from ..measure import Measurement, find_interrupts, measure
from ..overheads import TABLE_III
from ..replay import LIMITED, POLICIES, as_run, choose_policy, replay, why_not_promised
from ..tracefs import Unavailable
from ..units import format_time, shown
from . import REFUSED, Parser, ProgressLines, file_name, path_name, read_problem, run

EPILOG = """\
exit status:
  0  measured; with --run, every task stayed within its bound
  2  with --run: the analysis refuses the task set, or a task was later than its bound
  1  wrong usage, or it could not be run

Run it as root to see what only the kernel's tracepoints show; without root it measures what it can
and says what it could not see.  Load the device meanwhile, or its interrupts will not come.

--inversions wants rtxg.ko attached to the interrupt meanwhile, by rtxg irq -M or another program.

examples:
  rtxg measure --irq nvidia --out here.json
  rtxg analyze taskset.toml --overheads here.json
  rtxg measure --inversions --irq nvidia --seconds 60 --json
  rtxg measure --run taskset.toml --overheads here.json --seconds 10
"""


SHOWN = {"deadline": "SCHED_DEADLINE", "fifo": "SCHED_FIFO", "other": "SCHED_OTHER"} | {
    name: f"rtxg.ko's {name}" for name in ("edf", "rm", "module-deadline")
}


#: Late jobs that are told one by one.
SHOWN_LATE = 5
CAUSES = {
    "set": "their own set",
    "stolen": "stolen CPU time",
    "limit": "the limit of real-time tasks",
    "other": "what is outside the set",
}


def _parser() -> Parser:
    parser = Parser(
        prog="rtxg measure",
        description="Measure what scheduling, switching, inter-processor interrupts, timers, ticks and the halves of an "
        "interrupt cost on this machine: its own Table III.",
        epilog=EPILOG,
    )
    parser.add_argument(
        "--irq", default="nvidia", metavar="NAME", help="interrupt: a number or part of a name in /proc/interrupts"
    )
    parser.add_argument("--seconds", type=float, default=3.0, metavar="S", help="how long to watch (3)")
    parser.add_argument("--no-tracepoints", action="store_true", help="use only what needs no privilege")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--out", type=path_name, metavar="FILE", help="also write the JSON to a file"
    )
    parser.add_argument(
        "--inversions", action="store_true", help="priority inversions of the interrupt, from the log of rtxg.ko (root)"
    )
    parser.add_argument(
        "--owner", type=int, metavar="PID", help="with --inversions: the interrupt's owner is this thread, not the module's"
    )
    parser.add_argument(
        "--run",
        type=file_name,
        metavar="FILE",
        help="run this task set instead, and hold it against its bounds",
    )
    parser.add_argument("--overheads", metavar="SET", help="with --run: overheads to analyse with (as rtxg analyze)")
    parser.add_argument("--policy", default="auto", choices=POLICIES, help="with --run: scheduling policy (auto)")
    parser.add_argument("--force", action="store_true", help="with --run: run it though the analysis refuses it")
    return parser


def limited(analysis: Analysis, policy: str) -> tuple[bool, str]:
    """Whether the kernel's limit of real-time tasks is certain to break the promise, and what is to
    be said of it; empty if it cannot strike."""
    limit = real_time_limit() if policy in LIMITED else None
    if not limit:
        return False, ""
    certain, most = over_limit(analysis, limit)
    if most <= limit.runtime:
        return False, ""
    share = f"{format_time(limit.runtime)} of each {format_time(limit.period)}"
    will = "needs more" if certain else f"can want {format_time(most)}"
    return certain, (
        f"the kernel lets real-time tasks have {share} of a CPU, and this task set {will}: "
        f"jobs may be {format_time(limit.kept)} later than promised; "
        "sysctl kernel.sched_rt_runtime_us=-1 lifts the limit"
    )


def run_and_compare(arguments: argparse.Namespace, console: Console) -> int:
    """Admit or refuse a task set, run it, and compare what was observed with what was promised."""
    problem = read_problem(arguments.run, overheads=arguments.overheads)
    policy = choose_policy(problem.taskset) if arguments.policy == "auto" else arguments.policy
    # What is run is what is analysed: under SCHED_FIFO that is not EDF.
    taskset = as_run(problem.taskset, policy)
    progress = ProgressLines("rtxg measure")
    analysis = analyze(taskset, **problem.options, progress=progress)
    if not analysis.schedulable and not arguments.force:
        failing = ", ".join(r.task.name for r in analysis.results if not r.schedulable)
        changed = f" by fixed priorities, as {policy} schedules" if taskset is not problem.taskset else ""
        console.print(
            f"refused{changed}: {escape(failing)}; see rtxg analyze {escape(arguments.run)}, or run it with --force"
        )
        return REFUSED
    weak = why_not_promised(analysis.taskset, policy)
    certain, warning = limited(analysis, policy)
    if certain and not arguments.force:
        console.print(f"refused: {escape(warning)}, or run it with --force")
        return REFUSED
    if warning:
        print(f"rtxg measure: {warning}", file=sys.stderr)
    lent = os.sched_getaffinity(0)
    before = stolen_of(lent)
    policy, observed = replay(analysis, arguments.seconds, policy, progress)
    taken = stolen_of(lent) - before
    broken = []
    rows = []
    late_jobs = []
    for seen in observed:
        bound = analysis[seen.task].tardiness
        if bound is not None and seen.max_tardiness > bound:
            broken.append(seen.task)
            late_jobs += [job for job in seen.late if job.late > bound]
        rows.append(
            {
                "name": seen.task,
                "jobs": len(seen.responses),
                "missed": seen.missed,
                "max_response": seen.max_response,
                "max_tardiness": seen.max_tardiness,
                "tardiness_bound": None if bound is None else float(bound),
            }
        )
    told = {
        "policy": policy,
        "not_promised": weak,
        "warning": warning,
        "stolen": taken,
        "later_than_promised": broken,
        "late_jobs": [
            {"name": job.task, "late": job.late, "cause": job.cause}
            | {"denied": job.denied, "stolen": job.stolen}
            for job in late_jobs
        ],
        "tasks": rows,
    }
    text = json.dumps(told, indent=2)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")
    if arguments.json:
        print(text)
        return REFUSED if broken else 0
    table = Table(
        title=f"{escape(analysis.taskset.name)}: {arguments.seconds:g} s under {SHOWN.get(policy, policy)}", title_justify="left"
    )
    for heading in ("task", "jobs", "missed", "max response", "late by", "bound"):
        table.add_column(heading, justify="left" if heading == "task" else "right")
    for row in rows:
        late = format_time(row["max_tardiness"])
        bound = row["tardiness_bound"]
        table.add_row(
            escape(row["name"]),
            str(row["jobs"]),
            str(row["missed"]),
            format_time(row["max_response"]),
            f"[red]{late}[/red]" if row["name"] in broken else late,
            "-" if bound is None else format_time(bound),
        )
    console.print(table)
    if policy == "other":
        weak += ", as asked with --policy" if arguments.policy == "other" else ", which needs root or RLIMIT_RTPRIO"
    if taken:
        console.print(f"meanwhile a hypervisor took {format_time(taken)} of these CPUs' time, which no analysis knows")
    for job in sorted(late_jobs, key=lambda j: -j.late)[:SHOWN_LATE]:
        console.print(f"{escape(job.task)}: a job was {format_time(job.late)} late: {job.words()}")
    if len(late_jobs) > SHOWN_LATE:
        causes = Counter(job.cause for job in late_jobs)
        counts = ", ".join(f"{count} by {CAUSES[cause]}" for cause, count in causes.most_common())
        console.print(f"of {len(late_jobs)} late jobs: {counts}")
    if weak:
        console.print(f"bounds were not to be expected to hold: {escape(weak)}")
    console.print(
        f"[bold red]later than promised: {escape(', '.join(broken))}[/bold red]"
        if broken
        else "[bold green]within every bound[/bold green]"
    )
    return REFUSED if broken else 0


def show_inversions(arguments: argparse.Namespace, console: Console) -> int:
    """Watch the module's log, and print what ``rtxg-irq -i`` prints."""
    irqs = frozenset(find_interrupts(arguments.irq))
    try:
        reader, lost = irqlog.record(
            arguments.seconds, irqs, arguments.owner, ProgressLines("rtxg measure")
        )
    except Unavailable as error:
        print(f"rtxg measure: {error}", file=sys.stderr)
        return 1
    if lost:
        print(f"rtxg measure: {lost} events were lost: the sums are too small", file=sys.stderr)
    if not reader.works:
        print(
            f"rtxg measure: rtxg.ko saw no interrupt of {arguments.irq}: attach it (rtxg irq -M MAP -o kept), and load "
            "the device",
            file=sys.stderr,
        )
        return 1
    told = reader.told(arguments.seconds)
    text = json.dumps(told)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")
    if arguments.json:
        print(text)
        return 0
    table = Table(title=f"priority inversions by {escape(arguments.irq)}, {arguments.seconds:g} s", title_justify="left")
    for heading in ("owner", "name", "inversions", "count", "sum", "longest", "below 5 us"):
        table.add_column(heading, justify="left" if heading in ("name", "inversions") else "right")
    for row in told["owners"]:
        for kind in KINDS:
            found = row[kind]
            if found["count"]:
                share = f"{found['below_5us'] / found['count']:.1%}"
                times = (format_time(found[key] / 1000) for key in ("sum_ns", "longest_ns"))
                table.add_row(str(row["owner"]), escape(row["name"]), kind, str(found["count"]), *times, share)
    console.print(table)
    return 0


def show(found: Measurement, console: Console) -> None:
    """Print the table, with the paper's values beside ours."""
    paper = TABLE_III.as_dict()
    table = Table(title="overheads of this machine, microseconds", title_justify="left")
    for heading in ("overhead", "value", "q1", "median", "q3", "p99", "max", "samples", "Table III", "seen by"):
        table.add_column(heading, justify="left" if heading in ("overhead", "seen by") else "right")
    for name, d in found.seen.items():
        numbers = (d.value, d.quantile(0.25), d.quantile(0.5), d.quantile(0.75), d.quantile(0.99), max(d.samples))
        reference = f"{paper[name]:.2f}" if paper.get(name) else ""
        table.add_row(name, *(f"{n:.2f}" for n in numbers), str(len(d.samples)), reference, escape(d.source))
    console.print(table)
    for name, why in found.unseen.items():
        console.print(f"not seen: {name}: {escape(why)}")
    for note in found.notes:
        console.print(f"note: {escape(note)}")


def main(argv: Sequence[str] | None = None) -> int:
    parser = _parser()
    arguments = parser.parse_args(argv)
    if not 0 < arguments.seconds <= 3600:
        parser.error(f"--seconds is {arguments.seconds}; it must be above 0 and at most 3600")
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    # Before the work, which may take an hour: what has no place to go is not worth it.
    if arguments.out and not (arguments.out.parent.is_dir() and not arguments.out.is_dir()):
        parser.error(f"--out {arguments.out}: no file can be written there")
    if arguments.run:
        if arguments.inversions:
            parser.error("--inversions and --run do not go together")
        for name in ("irq", "no_tracepoints", "owner"):
            if getattr(arguments, name) != parser.get_default(name):
                parser.error(f"--{name.replace('_', '-')} does not go with --run")
        return run_and_compare(arguments, console)
    if arguments.owner is not None and not arguments.inversions:
        parser.error("--owner goes with --inversions")
    if arguments.owner is not None and not 0 < arguments.owner < 1 << 31:
        parser.error(f"--owner is {shown(arguments.owner)}; it must be the number of a thread")
    own_policy = arguments.policy != parser.get_default("policy")
    if arguments.overheads is not None or arguments.force or own_policy:
        parser.error("--overheads, --policy and --force go with --run")
    if arguments.inversions and arguments.no_tracepoints:
        parser.error("--inversions are seen by tracepoints: leave out --no-tracepoints")
    own_irq = arguments.irq != parser.get_default("irq")
    if not arguments.irq or (own_irq and not find_interrupts(arguments.irq)):
        parser.error(f"--irq {arguments.irq}: no interrupt in /proc/interrupts has that number or name")
    if arguments.inversions:
        return show_inversions(arguments, console)
    found = measure(
        arguments.seconds,
        arguments.irq,
        tracepoints=not arguments.no_tracepoints,
        progress=ProgressLines("rtxg measure"),
    )
    text = json.dumps(found.to_json(), indent=2)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")
    if arguments.json:
        print(text)
    else:
        show(found, console)
    return 0


def entry() -> None:
    """Console script ``rtxg-measure``."""
    run(main, "rtxg measure")


if __name__ == "__main__":
    entry()
