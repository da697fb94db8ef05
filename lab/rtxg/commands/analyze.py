# SPDX-License-Identifier: MIT
"""``rtxg analyze``: will this task set make it?"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..analysis import LOCKS, SUSPENSIONS, Analysis, TaskResult, analyze, what_would_fix
from ..explain import picture, waterfall
from ..latency import judge
from ..overheads import MODELS_ONLY, OVERHEAD_SETS, Interrupts
from ..plain import analysis_to_json
from ..plots import check_path
from ..served import here
from ..units import format_time, parse_time, shown
from . import FAILED, REFUSED, Parser, ProgressLines, file_name, read_problem, run

EPILOG = """\
exit status:
  0  schedulable: every task's tardiness is bounded (every deadline met, with --hard)
  2  not schedulable
  1  the question could not be answered: bad file, wrong usage

example:
  rtxg analyze example:perception --explain camera-0
  rtxg analyze --latency 5ms --beside 3
"""

#: Options for a task set's file, which --latency does not have.
_OF_A_FILE = (
    "interrupts",
    "overheads",
    "lock",
    "suspensions",
    "hard",
    "speedup",
    "explain",
    "picture",
    "no_advice",
)


def _parser() -> Parser:
    parser = Parser(
        prog="rtxg analyze",
        description="Say whether a task set will meet its bounds: bounds on lateness, response and "
        "waiting for GPUs, operating-system overheads included.",
        epilog=EPILOG,
    )
    parser.add_argument("file", nargs="?", help="task set, TOML or rt-app JSON, or example:NAME")
    parser.add_argument(
        "--interrupts",
        choices=[i.value for i in Interrupts],
        help="who runs bottom halves; overrides the file (by default as this machine, see rtxg doctor)",
    )
    parser.add_argument(
        "--overheads",
        metavar="SET",
        help=f"overheads to account for: {', '.join(OVERHEAD_SETS)}, or a JSON file from rtxg measure",
    )
    parser.add_argument("--lock", choices=LOCKS, help="how waiting for a GPU is bounded; overrides the file")
    parser.add_argument(
        "--suspensions",
        choices=SUSPENSIONS,
        help="whether waiting for a GPU counts as using a CPU (best: it does, and where that is refused it does not); "
        "overrides the file",
    )
    parser.add_argument("--hard", action="store_true", help="refuse unless no deadline is ever missed")
    parser.add_argument(
        "--speedup", type=int, default=1, metavar="R", help="also print effective utilisation for a GPU R times a CPU"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--explain", metavar="TASK", help="show each term of one task's inflated execution time; with --json: only this task"
    )
    parser.add_argument(
        "--picture",
        type=file_name,
        metavar="FILE",
        help="with --explain: also draw the waterfall (png, pdf, svg)",
    )
    parser.add_argument("--no-advice", action="store_true", help="do not search for what would make it schedulable")
    parser.add_argument("--latency", metavar="TIME", help="instead of a file: can a vGPU have that bound?")
    parser.add_argument("--beside", type=int, metavar="N", help="with --latency: beside so many other programs (default 1)")
    return parser


def _latency(parser: Parser, arguments: Namespace) -> int:
    """The same model as rtxgd's, without a GPU."""
    if arguments.file:
        parser.error("--latency takes no file: it asks about programs beside which a bound is to be kept")
    for name in _OF_A_FILE:
        if getattr(arguments, name) != parser.get_default(name):
            parser.error(f"--{name.replace('_', '-')} does not go with --latency")
    try:
        time = parse_time(arguments.latency) * 1000
        verdict = judge(int(time), 1 if arguments.beside is None else arguments.beside)
    except ValueError as wrong:
        parser.error(f"--latency: {wrong}")
    if arguments.json:
        json.dump(verdict.as_dict(), sys.stdout, indent=2)
        print()
    else:
        print(verdict.text())
    return 0 if verdict.kept else REFUSED


def _row(result: TaskResult) -> list[str]:
    task = result.task
    if not result.schedulable:
        verdict = "[red]no[/red]"
    else:
        verdict = "[green]on time[/green]" if result.meets_deadline else "[green]bounded[/green]"
    return [
        escape(task.name),
        str(task.cluster),
        format_time(task.period),
        format_time(task.demand),
        format_time(result.inflated),
        f"{float(result.utilization):.1%}",
        format_time(result.blocking) if task.uses_gpu else "",
        "-" if result.tardiness is None else format_time(result.tardiness),
        "-" if result.response is None else format_time(result.response),
        verdict,
    ]


def _reasons(analysis: Analysis) -> list[str]:
    """Why tasks fail, tasks that share a reason on one line."""
    named: dict[str, list[str]] = {}
    for result in analysis.results:
        if not result.schedulable:
            named.setdefault(f"{result.reason} (cluster {result.task.cluster})", []).append(result.task.name)
    return [
        f"{', '.join(names[:4])}{f' and {len(names) - 4} more' if len(names) > 4 else ''}: {reason}"
        for reason, names in named.items()
    ]


def show(
    analysis: Analysis,
    advice: Sequence[str],
    console: Console,
    *,
    hard: bool = False,
    speedup: int = 1,
    assumed: str = "",
) -> None:
    """Print the verdict as a table.

    :param assumed: why this way of handling interrupts was assumed; empty: it was given.
    """
    taskset, platform = analysis.taskset, analysis.taskset.platform
    table = Table(
        title=f"{escape(taskset.name)}: {platform.scheduler}, {platform.clusters} x {platform.cpus_per_cluster} CPUs, "
        f"{platform.gpus} GPUs, interrupts {analysis.interrupts.value}",
        title_justify="left",
    )
    for heading in ("task", "cluster", "period", "demand", "inflated", "of a CPU", "waits", "late by", "response", "verdict"):
        table.add_column(heading, justify="left" if heading in ("task", "verdict") else "right", no_wrap=True)
    for result in analysis.results:
        table.add_row(*_row(result))
    console.print(table)
    for line in _reasons(analysis):
        console.print(f"[red]{escape(line)}[/red]")
    for cluster in analysis.clusters:
        if cluster.results:
            passed = [name for name, ok in cluster.hard_tests.items() if ok]
            hard_line = f"never late by {', '.join(passed)}" if passed else "no test shows that it is never late"
            if cluster.aware:
                hard_line += "; waiting for a GPU does not count as using a CPU"
            console.print(
                f"cluster {cluster.index}: {float(cluster.utilization):.2f} of {cluster.cpus} CPUs with overheads; "
                f"{hard_line}; {cluster.rounds} round{'' if cluster.rounds == 1 else 's'}"
            )
    console.print(
        f"utilisation {float(taskset.utilization):.2f}"
        + (f", effective {float(taskset.effective_utilization(speedup)):.2f} CPUs at R = {speedup}" if speedup != 1 else "")
    )
    if assumed:
        console.print(
            f"note: interrupts = {analysis.interrupts.value} is assumed: {escape(assumed)}"
        )
    elif analysis.interrupts in MODELS_ONLY and any(t.uses_gpu for t in taskset):
        console.print(
            f"note: interrupts = {analysis.interrupts.value} is a model: a kernel by itself handles them as slih, and "
            "rtxg.ko only those that rtxg irq -o names (docs/interrupts.md)"
        )
    if not analysis.schedulable:
        console.print("[bold red]not schedulable[/bold red]")
    elif hard and not analysis.hard:
        console.print("[bold red]not shown to meet every deadline[/bold red]; lateness is bounded")
    else:
        console.print(
            "[bold green]schedulable[/bold green]" + (", every deadline met" if analysis.hard else ", lateness bounded")
        )
    for line in advice:
        console.print(f"  would do: {escape(line)}")


def main(argv: Sequence[str] | None = None) -> int:
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.picture and arguments.explain is None:
        parser.error("--picture needs --explain TASK")
    if arguments.picture:
        check_path(arguments.picture)
    if not 1 <= arguments.speedup <= 1_000_000:
        parser.error(f"--speedup is {shown(arguments.speedup)}; it must be from 1 to 1000000")
    if arguments.latency is not None:
        return _latency(parser, arguments)
    if arguments.beside is not None:
        parser.error("--beside goes with --latency")
    if not arguments.file:
        parser.error("which task set? As in rtxg analyze example:perception")
    problem = read_problem(arguments.file, arguments.interrupts, arguments.lock, arguments.overheads)
    if arguments.suspensions:
        problem = replace(problem, suspensions=arguments.suspensions)
    assumed = ""
    if not problem.interrupts_given and any(t.uses_gpu for t in problem.taskset):
        way, assumed = here()
        problem = replace(problem, interrupts=way)
    progress = ProgressLines("rtxg analyze")
    analysis = analyze(problem.taskset, **problem.options, progress=progress)
    accepted = analysis.hard and analysis.schedulable if arguments.hard else analysis.schedulable
    # A pipe has no width: leave room for the whole table.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    if arguments.explain is not None:
        try:
            result = analysis[arguments.explain]
        except KeyError:
            names = ", ".join(t.name for t in analysis.taskset)
            print(f"rtxg analyze: no task {arguments.explain!r} in {arguments.file}; tasks are {names}", file=sys.stderr)
            return FAILED
        if arguments.picture:
            picture(result, arguments.picture)
        if not arguments.json:
            console.print(waterfall(result), markup=False, soft_wrap=True)
            return 0 if accepted else REFUSED
    advice = [] if arguments.no_advice else what_would_fix(
        analysis, bound=problem.bound, suspensions=problem.suspensions, progress=progress
    )
    if arguments.json:
        told = analysis_to_json(analysis, advice, arguments.speedup, arguments.explain)
        json.dump(told | ({"interrupts_assumed": assumed} if assumed else {}), sys.stdout, indent=2)
        print()
    else:
        show(
            analysis,
            advice,
            console,
            hard=arguments.hard,
            speedup=arguments.speedup,
            assumed=assumed,
        )
    return 0 if accepted else REFUSED


def entry() -> None:
    """Console script ``rtxg-analyze``."""
    run(main, "rtxg analyze")


if __name__ == "__main__":
    entry()
