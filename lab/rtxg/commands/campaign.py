# SPDX-License-Identifier: MIT
"""``rtxg campaign``: schedulability experiments with graphs."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from ..analysis import BOUNDS
from ..campaign import ALL_EXPERIMENTS, CALLS, METHODS, SPEEDUPS, Results, Settings, chunks, figure, run
from ..experiment import load_experiment, write
from ..model import Platform
from ..overheads import NO_OVERHEADS, OVERHEAD_SETS, Interrupts
from ..plots import schedulability
from ..units import shown
from . import Parser, ProgressLines, make_folder, path_name, read_overheads
from . import run as run_command

EPILOG = """\
figures:
  5, 6        the main part of the klmirqd paper: 50-60 % GPU-using tasks, U(0.5, 0.9), R = 1 and 16
  95 to 334   its appendix D (Table IV); without --figure, all 240

The results are in OUT/results.sqlite and the graphs beside it.  Stop it at any time: the same command
goes on where it stopped.  Equal settings and seed give equal counts with any number of workers.

examples:
  rtxg campaign --file example:experiment --out build/mine
  rtxg campaign --figure 6 --sets 8000 --out build/figure-6
"""

#: What the options of the figures are if they are not given.  An experiment of one's own has
#: its own file for all but the first two.
FIGURE_DEFAULTS = {
    "sets": 1000,
    "seed": 2012,
    "figure": None,
    "scheduler": None,
    "format": "png",
    "lock": "capped",
    "bound": "devi-anderson",
    "overheads": "table-iii",
    "step": 0.5,
    "cpus": 12,
    "clusters": 2,
    "gpus": 8,
    "inflate_sections": False,
}
_WITH_FILE = ("sets", "seed")

_SHORT_NAMES = {Interrupts.KLMIRQD: "k", Interrupts.PAI: "p", Interrupts.SLIH: "s"}


def _parser() -> Parser:
    parser = Parser(
        prog="rtxg campaign",
        description="Count how many random task sets are schedulable under each way of handling GPU interrupts.",
        epilog=EPILOG,
    )
    parser.add_argument(
        "--file",
        type=path_name,
        metavar="FILE",
        help="an experiment of one's own, TOML (as example:experiment), instead of the figures",
    )
    parser.add_argument("--figure", type=int, action="append", metavar="N", help="only this figure; may be repeated")
    parser.add_argument(
        "--sets",
        type=int,
        metavar="N",
        help="task sets for each cap on utilisation (1000), or each point",
    )
    parser.add_argument("--seed", type=int, help="seed of all random numbers (2012, or the file's)")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes on this machine (1)")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="use the workers of this Dask scheduler, e.g. tcp://host:8786")
    parser.add_argument(
        "--out",
        type=path_name,
        required=True,
        metavar="DIR",
        help="folder for results and graphs",
    )
    parser.add_argument(
        "--format", choices=("png", "pdf", "svg"), help="format of the graphs (png)"
    )
    parser.add_argument(
        "--lock",
        choices=("oblivious", "aware", "capped"),
        help="bound on waiting for a GPU (capped)",
    )
    parser.add_argument(
        "--bound",
        choices=BOUNDS,
        help="bound on lateness where no hard test says that there is none (devi-anderson)",
    )
    parser.add_argument(
        "--overheads",
        metavar="SET",
        help=f"{', '.join(OVERHEAD_SETS)}, or a JSON file from rtxg measure (table-iii)",
    )
    parser.add_argument("--step", type=float, help="distance of the caps on utilisation (0.5)")
    parser.add_argument("--cpus", type=int, help="of the platform (12)")
    parser.add_argument("--clusters", type=int, help="of the platform (2)")
    parser.add_argument("--gpus", type=int, help="of the platform (8)")
    parser.add_argument(
        "--inflate-sections",
        action="store_true",
        default=None,
        help="count overheads inside critical sections too; the paper does not",
    )
    return parser


def _own(file: Path, out: Path, workers: int, changed: dict[str, int]) -> int:
    """An experiment of one's own: shares with their intervals, results.json and graph.png.

    :param changed: number of sets and seed, where they are not the file's.
    """
    experiment = replace(load_experiment(file), **changed)
    make_folder(out)
    try:
        outcome = experiment.run(ProgressLines("rtxg campaign"), workers)
    except Exception as error:  # from a function of one's own
        if not (notes := getattr(error, "__notes__", [])):
            raise
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        raise ValueError(f"{notes[-1]}: {kind}{error}") from None
    write(outcome, out)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    axis = experiment.x.parameter if experiment.y is None else experiment.y.parameter
    table = Table(title=f"{experiment.name}: {experiment.sets} sets a point", title_justify="left")
    table.add_column(axis, justify="right")
    for name in experiment.curves:
        table.add_column(escape(name), justify="right")
    if experiment.y is None:
        bounds = {name: outcome.confidence(name) for name in experiment.curves}
        for column, value in enumerate(experiment.x.values):
            cells = [
                f"{outcome.share(name)[0, column]:.0%} ({low[0, column]:.0%}-{high[0, column]:.0%})"
                for name, (low, high) in bounds.items()
            ]
            table.add_row(f"{value:g}", *cells)
        console.print(table)
        console.print("share of the sets that pass, and its 95 % interval")
    else:
        for row, value in enumerate(experiment.y.values):
            table.add_row(f"{value:g}", *(f"{outcome.weighted(name)[row]:.3f}" for name in experiment.curves))
        console.print(table)
        console.print(f"weighted schedulability over {experiment.x.parameter}")
    console.print(f"results.json and graph.png in {out}")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.workers < 1:
        parser.error(f"--workers is {arguments.workers}; it must be 1 or more")
    if arguments.seed is not None and arguments.seed < 0:
        parser.error(f"--seed is {shown(arguments.seed)}; it must be 0 or more")
    given = {
        name: value for name in FIGURE_DEFAULTS if (value := getattr(arguments, name)) is not None
    }
    if arguments.file:
        if alien := [name for name in given if name not in _WITH_FILE]:
            option = alien[0].replace("_", "-")
            parser.error(
                f"--{option} is for the figures; {arguments.file} says it for an experiment of one's own"
            )
        if arguments.sets is not None and not 1 <= arguments.sets <= 10_000_000:
            parser.error(f"--sets is {shown(arguments.sets)}; it must be from 1 to 10000000")
        return _own(arguments.file, arguments.out, arguments.workers, given)
    for name, value in (FIGURE_DEFAULTS | given).items():
        setattr(arguments, name, value)
    numbers = arguments.figure or [e.figure(r) for e in ALL_EXPERIMENTS for r in SPEEDUPS]
    graphs = [(number, *figure(number)) for number in dict.fromkeys(numbers)]
    experiments = list(dict.fromkeys(e for _, e, _ in graphs))
    settings = Settings(
        sets=arguments.sets,
        seed=arguments.seed,
        step=arguments.step,
        lock=arguments.lock,
        bound=arguments.bound,
        inflate_sections=arguments.inflate_sections,
        platform=Platform(arguments.cpus, arguments.clusters, arguments.gpus),
        overheads=read_overheads(arguments.overheads, NO_OVERHEADS),
    )
    make_folder(arguments.out)
    console = Console(highlight=False)
    results = Results(arguments.out / "results.sqlite", settings)
    try:
        work = list(chunks(settings, experiments))
        finished = results.done()
        left = [c for c in work if c not in finished]
        started, tested, ready = time.monotonic(), 0, len(work) - len(left)
        columns = (
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            TextColumn("left"), TimeRemainingColumn(),
        )  # fmt: skip
        with Progress(*columns, console=console) as bar:
            task = bar.add_task("chunks", total=len(work), completed=len(work) - len(left))

            lines = ProgressLines("rtxg campaign")

            def advance(sets: int) -> None:
                nonlocal tested, ready
                tested += sets
                ready += 1
                bar.advance(task)
                if not console.is_terminal:  # where the bar is drawn once, at the end
                    lines(f"{ready} of {len(work)} chunks")

            run(results, left, workers=arguments.workers, scheduler=arguments.scheduler, progress=advance)
        spent = time.monotonic() - started
        if tested:
            verdicts = len(METHODS) * len(CALLS)
            console.print(
                f"{tested} task sets under {verdicts} curves each in {spent:.1f} s: "
                f"{tested / spent:.0f} task sets/s with {arguments.workers} worker(s), compilation included"
            )
        table = Table(
            title="CPUs sustained at 90 % schedulability, between bins by a straight line", title_justify="left"
        )
        table.add_column("figure", justify="right", no_wrap=True)
        table.add_column("R", justify="right", no_wrap=True)
        for method in METHODS:
            for calls in CALLS:
                table.add_column(f"{_SHORT_NAMES[method]} {calls}", justify="right", no_wrap=True)
        for number, experiment, speedup in graphs:
            graph = results.graph(experiment, speedup)
            schedulability(graph, arguments.out / f"figure-{number}.{arguments.format}", number)
            cells = [graph.sustained(method, calls) for method in METHODS for calls in CALLS]
            table.add_row(str(number), str(speedup), *("-" if v is None else f"{v:.1f}" for v in cells))
        if len(graphs) <= 40:
            console.print(table)
            console.print("k: klmirqd, p: PAI, s: standard Linux (SLIH), each with 1, 3, 6 interrupts a job")
        console.print(f"graphs in {arguments.out}")
    finally:
        results.close()
    return 0


def entry() -> None:
    """Console script ``rtxg-campaign``."""
    run_command(main, "rtxg campaign")


if __name__ == "__main__":
    entry()
