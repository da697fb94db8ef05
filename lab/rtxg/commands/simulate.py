# SPDX-License-Identifier: MIT
"""``rtxg simulate``: run a task set in virtual time and hold it against its bounds."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .. import inversions, papers, plots
from ..analysis import Analysis, analyze
from ..simulate import Handling, Options, Trace, simulate
from ..taskfile import load
from ..units import format_time, parse_time
from . import REFUSED, Parser, ProgressLines, make_folder, path_name, run

EPILOG = """\
exit status:
  0  no bound was passed (nothing was promised, if the analysis refused the task set)
  2  a job was later than its bound
  1  it could not be simulated: bad file, wrong usage, or no compiled scheduler core

experiments of the papers:
  table-2      who misses deadlines under which interrupt handling (klmirqd, Table II)
  inversions   how long priority inversions are (klmirqd, figures 3 and 4)
  cost         cost of scheduling launches (Linux-RTXG, figure 9)
  two-vgpus    shares of two virtual GPUs, FIFO and BAND and CBS (Linux-RTXG, figure 10)
  four-vgpus   shares of four (Linux-RTXG, figure 11)

examples:
  rtxg simulate example:perception --interrupts klmirqd --picture schedule.png
  rtxg simulate --experiment two-vgpus --out build/shares
"""
#: Options that an experiment of the papers, which is what it is, cannot heed; table-2 has a seed.
_OF_A_FILE = (
    "length",
    "interrupts",
    "execution",
    "sporadic",
    "random_offsets",
    "asynchronous",
    "json",
    "picture",
    "picture_length",
)
EXPERIMENTS = ("table-2", "inversions", "cost", "two-vgpus", "four-vgpus")


def _parser() -> Parser:
    parser = Parser(
        prog="rtxg simulate",
        description="Run a task set in virtual time, on the scheduler core that the daemon and the kernel module run, "
        "and compare the lateness seen with the bound promised.",
        epilog=EPILOG,
    )
    parser.add_argument("file", nargs="?", help="task set, TOML or rt-app JSON, or example:NAME")
    parser.add_argument("--length", default="10s", metavar="TIME", help="simulated time (10s)")
    parser.add_argument("--interrupts", choices=[h.value for h in Handling], help="who runs bottom halves; overrides the file")
    parser.add_argument("--seed", type=int, default=1, help="seed of all that is random (1)")
    parser.add_argument(
        "--execution", type=float, default=1.0, metavar="SHARE", help="least share of its worst case a job runs (1)"
    )
    parser.add_argument("--sporadic", type=float, default=0.0, metavar="SHARE", help="most extra time between releases (0)")
    parser.add_argument("--random-offsets", action="store_true", help="first releases at random times")
    parser.add_argument("--asynchronous", action="store_true", help="jobs queue GPU work and wait at the end only")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--picture",
        type=path_name,
        metavar="FILE",
        help="draw what the CPUs did (png, pdf, svg)",
    )
    parser.add_argument("--picture-length", default="60ms", metavar="TIME", help="how much of it to draw (60ms)")
    parser.add_argument("--experiment", choices=EXPERIMENTS, help="an experiment of the papers instead of a file")
    parser.add_argument(
        "--out",
        type=path_name,
        default=Path("."),
        metavar="DIR",
        help="folder for an experiment's graphs (.)",
    )
    return parser


def broken_bounds(analysis: Analysis, trace: Trace) -> list[str]:
    """Names of the tasks that were later than the analysis promised: later than their bound, or late
    at all where a hard test says never (there the bound is zero)."""
    return [
        r.task.name for r in analysis.results if r.tardiness is not None and trace.tasks[r.task.name].max_tardiness > r.tardiness
    ]


def _to_json(analysis: Analysis, trace: Trace, broken: Sequence[str], seconds: float) -> dict:
    return {
        "schedulable": analysis.schedulable,
        "events": trace.events,
        "inversions": len(trace.inversions),
        "meter": inversions.told(trace.metered, seconds, {r.task.name: r.task.priority or None for r in analysis.results}),
        "later_than_promised": list(broken),
        "tasks": [
            {
                "name": r.task.name,
                "released": seen.released,
                "completed": seen.completed,
                "missed": seen.missed,
                "mean_response": float(seen.mean_response),
                "max_response": float(seen.max_response),
                "max_tardiness": float(seen.max_tardiness),
                "tardiness_bound": None if r.tardiness is None else float(r.tardiness),
            }
            for r in analysis.results
            for seen in (trace.tasks[r.task.name],)
        ],
    }


def _show(analysis: Analysis, trace: Trace, broken: Sequence[str], console: Console, length: str) -> None:
    table = Table(title=f"{escape(analysis.taskset.name)}: {length} of virtual time", title_justify="left")
    for heading in ("task", "jobs", "missed", "mean response", "max response", "late by", "bound"):
        table.add_column(heading, justify="left" if heading == "task" else "right", no_wrap=True)
    for r in analysis.results:
        seen = trace.tasks[r.task.name]
        late = format_time(seen.max_tardiness)
        table.add_row(
            escape(r.task.name),
            str(seen.released),
            str(seen.missed),
            format_time(seen.mean_response),
            format_time(seen.max_response),
            f"[red]{late}[/red]" if r.task.name in broken else late,
            "-" if r.tardiness is None else format_time(r.tardiness),
        )
    console.print(table)
    console.print(
        f"{trace.events} events; {len(trace.inversions)} priority inversions by interrupts, {sum(trace.inversions):.0f} us in all"
    )
    if broken:
        console.print(f"[bold red]later than promised: {escape(', '.join(broken))}[/bold red]")
    elif analysis.schedulable:
        console.print("[bold green]within every bound[/bold green]")
    else:
        console.print("the analysis refuses this task set, so nothing was promised")


def _experiment(
    name: str, out: Path, seed: int, console: Console, progress: Callable[[str], None]
) -> None:
    make_folder(out)
    if name == "table-2":
        table = Table(title="klmirqd, Table II: deadlines missed and mean response as share of the period", title_justify="left")
        for heading in (
            "column",
            "scheduler",
            "bottom halves",
            "CPU-only missed",
            "GPU missed",
            "CPU-only response",
            "GPU response",
        ):
            table.add_column(heading, justify="right")
        for row in papers.table_ii(seed=seed, progress=progress):
            shares = (row.cpu_missed, row.gpu_missed, row.cpu_response, row.gpu_response)
            table.add_row(row.column, row.scheduler, row.handling.value, *(f"{s:.1%}" for s in shares))
        console.print(table)
    elif name == "inversions":
        found = papers.inversions(progress=progress)
        for handling, lengths in found.items():
            ordered = sorted(lengths)
            console.print(
                f"{handling.value:8s} {len(ordered):6d} inversions, 90 % within {ordered[len(ordered) * 9 // 10]:.1f} us, "
                f"{sum(ordered):.0f} us in all"
            )
        plots.inversions(found, out / "inversions.png")
        console.print(f"graph in {out / 'inversions.png'}")
    elif name == "cost":
        times = papers.scheduling_cost(progress=progress)
        for label, line in times.items():
            console.print(f"{label:8s} " + " ".join(f"{t:7.1f}" for t in line) + " ms for 1, 2, ... tasks")
        plots.scheduling_cost(times, out / "cost.png")
        console.print(f"graph in {out / 'cost.png'}")
    else:
        make = papers.two_vgpus if name == "two-vgpus" else papers.four_vgpus
        for policy in ("fifo", "band", "cbs"):
            progress(f"policy {policy}")
            found = make(policy)
            settled = [line[len(line) // 2 :] for line in found.shares]
            console.print(
                f"{found.title}: " + ", ".join(f"{100 * sum(s) / len(s):.1f} % of {100 * r:.0f} % reserved" for s, r in
                                              zip(settled, found.reserved, strict=True))
            )  # fmt: skip
            plots.shares(found, out / f"{name}-{policy}.png")
        console.print(f"graphs in {out}")


def _time(parser: Parser, arguments: Namespace, name: str) -> Fraction:
    """The time, above zero, that an option gives."""
    option = f"--{name.replace('_', '-')}"
    try:
        time = parse_time(getattr(arguments, name))
    except ValueError as error:
        parser.error(f"{option}: {error}")
    if not time:
        parser.error(f"{option} is {getattr(arguments, name)}; it must be above 0")
    return time


def main(argv: Sequence[str] | None = None) -> int:
    parser = _parser()
    arguments = parser.parse_args(argv)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    progress = ProgressLines("rtxg simulate")
    if arguments.experiment:
        given = [
            name for name in _OF_A_FILE if getattr(arguments, name) != parser.get_default(name)
        ]
        if arguments.experiment != "table-2" and arguments.seed != parser.get_default("seed"):
            given.append("seed")
        if given:
            parser.error(
                f"--experiment {arguments.experiment} takes no --{given[0].replace('_', '-')}"
            )
        if arguments.file is not None:
            parser.error(f"{arguments.file} or --experiment {arguments.experiment}: one of them")
        _experiment(arguments.experiment, arguments.out, arguments.seed, console, progress)
        return 0
    if arguments.file is None:
        parser.error("name a task set, or an --experiment")
    shown = _time(parser, arguments, "picture_length")
    if arguments.picture:
        plots.check_path(arguments.picture)
    length = _time(parser, arguments, "length")
    try:
        options = Options(
            length,
            seed=arguments.seed,
            execution=arguments.execution,
            sporadic=arguments.sporadic,
            random_offsets=arguments.random_offsets,
            asynchronous=arguments.asynchronous,
            meter=arguments.json,
        )
    except ValueError as error:
        parser.error(f"--{error}")
    problem = load(arguments.file)
    handling = Handling(arguments.interrupts) if arguments.interrupts else Handling.of(problem.interrupts)
    promised = {**problem.options}
    if handling in (Handling.THREAD_LOW, Handling.THREAD_HIGH):
        print("rtxg simulate: threads of fixed priority have no analysis; bounds shown are klmirqd's", file=sys.stderr)
        promised["interrupts"] = "klmirqd"
    elif arguments.interrupts:
        promised["interrupts"] = handling.value
    analysis = analyze(problem.taskset, **promised, progress=progress)
    trace = simulate(
        analysis.taskset,
        options,
        handling=handling,
        overheads=problem.overheads,
        lock=problem.lock,
        progress=progress,
    )
    broken = [] if handling in (Handling.THREAD_LOW, Handling.THREAD_HIGH) else broken_bounds(analysis, trace)
    if arguments.picture:
        plots.schedule(trace, arguments.picture, 0.0, float(shown))
    if arguments.json:
        json.dump(_to_json(analysis, trace, broken, float(options.length) / 1e6), sys.stdout, indent=2)
        print()
    else:
        _show(analysis, trace, broken, console, arguments.length)
    return REFUSED if broken else 0


def entry() -> None:
    """Console script ``rtxg-simulate``."""
    run(main, "rtxg simulate")


if __name__ == "__main__":
    entry()
