# SPDX-License-Identifier: MIT
"""Graphs in the form of the papers: schedulability over utilisation, distributions, shares over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .campaign import CALLS, METHODS, READ_FROM_FIGURE_6, Graph
from .overheads import Interrupts

if TYPE_CHECKING:
    from .papers import Shares
    from .simulate import Handling, Trace

#: A schedule's picture names so many tasks by colour, and has rows for so many.
_COLOURED, _ROWS = 20, 60

_HANDLERS = frozenset(("top half", "bottom half", "hand-over", "tick"))

_COLOURS = {Interrupts.KLMIRQD: "#1b6ca8", Interrupts.PAI: "#c8643c", Interrupts.SLIH: "#444444"}
_NAMES = {Interrupts.KLMIRQD: "klmirqd", Interrupts.PAI: "PAI", Interrupts.SLIH: "SLIH"}
_DASHES = {1: "-", 3: "--", 6: ":"}
_MARKS = {1: "o", 3: "s", 6: "^"}
#: SLIH and PAI nearly coincide: the one is a broad pale line, the other a narrow one upon it.
_WIDTHS = {Interrupts.KLMIRQD: 1.2, Interrupts.PAI: 1.2, Interrupts.SLIH: 5.0}
_SHADES = {Interrupts.KLMIRQD: 1.0, Interrupts.PAI: 1.0, Interrupts.SLIH: 0.3}
_DRAWN = (Interrupts.SLIH, Interrupts.PAI, Interrupts.KLMIRQD)


def check_path(path: str | Path) -> None:
    """Refuse a picture that could not be written, before the work that it is to show.

    :raises ValueError: naming the path and the remedy.
    """
    from matplotlib.backend_bases import FigureCanvasBase

    path = Path(path)
    known = FigureCanvasBase.get_supported_filetypes()
    if path.suffix and path.suffix[1:].lower() not in known:
        raise ValueError(f"{path}: pictures have one of the suffixes {', '.join(sorted(known))}")
    if not path.parent.is_dir():
        raise ValueError(f"{path}: there is no folder {path.parent}")


def schedulability(graph: Graph, path: str | Path, number: int | None = None) -> None:
    """Draw one graph as figures 5 and 6 do; the suffix of ``path`` chooses the format.

    Figure 6 shows beside the curves what the paper's text reads off its own at i = 6.

    :param number: the figure's number in the title; default: the one in the paper's appendix.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.add_subplot()
    for method in _DRAWN:
        for calls in CALLS:
            x, share = graph.curve(method, calls)
            axes.plot(
                x,
                100 * share,
                color=_COLOURS[method],
                linestyle=_DASHES[calls] if method is not Interrupts.SLIH else "-",
                marker=_MARKS[calls],
                markersize=5 if method is Interrupts.SLIH else 3,
                linewidth=_WIDTHS[method],
                alpha=_SHADES[method],
                zorder=2 + _DRAWN.index(method),
                label=f"{_NAMES[method]}, i = {calls}",
            )
    axes.axhline(90, color="#bbbbbb", linewidth=0.8, zorder=0)
    if number == 6:
        for method in METHODS:
            read = READ_FROM_FIGURE_6[method]
            found = graph.last_bin(method, 6)
            axes.axvline(read, color=_COLOURS[method], linewidth=0.8, linestyle=(0, (1, 2)), zorder=1)
            if found is not None:
                axes.plot([found], [90], color=_COLOURS[method], marker="|", markersize=14, zorder=6)
        for read in sorted(set(READ_FROM_FIGURE_6.values())):
            text = f"paper: {read:.0f}"
            axes.annotate(text, (read, 102.5), fontsize=7, ha="center", va="bottom", annotation_clip=False)
    axes.set_ylim(-2, 102)
    axes.set_xlim(left=0)
    axes.set_ylabel("schedulable task sets [%]")
    axes.set_xlabel("CPU utilisation" if graph.speedup == 1 else f"effective utilisation [CPUs], R = {graph.speedup}")
    axes.set_title(f"figure {number or graph.number}: {graph.experiment.describe()}", fontsize=9, pad=14)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=7, frameon=False, ncols=1)
    figure.savefig(path, dpi=120)


def schedule(trace: Trace, path: str | Path, start: float = 0.0, stop: float = 50_000.0) -> None:
    """Draw what each CPU and each GPU did between two times (microseconds).

    Below the CPUs there is a row for each GPU that was held, and one for each task with its releases
    (arrows up), deadlines (arrows down) and jobs that missed theirs (crosses). Of more than 60 tasks
    only those have one that missed a deadline, and the picture says how many were left out.
    """
    from matplotlib import colormaps
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    spans = [s for s in trace.spans if s[1] < stop and s[2] > start]
    held = [s for s in trace.held if s[1] < stop and s[2] > start]
    names = sorted(({s[3] for s in spans} | {s[3] for s in held}) - _HANDLERS)
    palette = colormaps["tab20"]
    colours = {name: palette(i % 20) for i, name in enumerate(names)}
    cpus = max((s[0] for s in spans), default=0) + 1
    gpus = max((s[0] for s in held), default=-1) + 1
    jobs = [j for j in trace.jobs if j[1] < stop and j[2] > start]
    missing = {name for name, _, _, missed in jobs if missed}
    tasks = sorted({j[0] for j in jobs} if len(trace.tasks) <= _ROWS else missing)[:_ROWS]
    rows = cpus + gpus + len(tasks)
    figure = Figure(figsize=(10, 0.32 * rows + 1.4), layout="constrained")
    axes = figure.add_subplot()
    # What looks the same is drawn in one piece: matplotlib takes milliseconds for each.
    bars: dict[tuple, list[tuple[float, float]]] = {}
    for cpu, begin, end, what in spans:
        colour = "#222222" if what in _HANDLERS else colours[what]
        bars.setdefault((cpu, colour, False), []).append((begin / 1000, (end - begin) / 1000))
    for gpu, begin, end, what in held:
        key = (cpus + gpu, colours[what], True)
        bars.setdefault(key, []).append((begin / 1000, (end - begin) / 1000))
    for (row, colour, hatched), pieces in bars.items():
        more = {"hatch": "///", "edgecolor": "white"} if hatched else {}
        axes.broken_barh(pieces, (row - 0.4, 0.8), facecolors=colour, **more)
    rows_of = {name: cpus + gpus + i for i, name in enumerate(tasks)}
    marks: dict[tuple[str, str], list[float]] = {}
    for name, release, deadline, missed in jobs:
        if name in rows_of:
            kinds = (("^", release), ("v", deadline), *([("x", deadline)] if missed else []))
            for kind, at in kinds:
                if start <= at <= stop:
                    marks.setdefault((name, kind), []).append(at / 1000)
    for (name, kind), times in sorted(marks.items(), key=lambda item: item[0][1] == "x"):
        colour = colours.get(name, "#888888")
        height = rows_of[name] + {"^": 0.2, "v": -0.2, "x": 0.0}[kind]
        look = {"color": colour, "markersize": 5}
        if kind == "v":
            look["markerfacecolor"] = "white"
        elif kind == "x":
            look = {"color": "#c00000", "markersize": 7, "markeredgewidth": 2}
        # Whole, also at the very edge.
        axes.plot(times, [height] * len(times), clip_on=False, linestyle="", marker=kind, **look)
    axes.set_xlim(start / 1000, stop / 1000)
    labels = [f"CPU {c}" for c in range(cpus)] + [f"GPU {g}" for g in range(gpus)] + tasks
    axes.set_yticks(range(rows), labels, fontsize=8)
    axes.set_ylim(rows - 0.3, -0.7)  # from the top down, without margins
    axes.set_xlabel("ms")
    if left_out := len({j[0] for j in jobs} - set(tasks)):
        late = len(missing - set(tasks))
        axes.set_title(
            f"without the rows of {left_out} tasks, {late} of which missed a deadline", fontsize=8
        )
    shown: list = []
    if len(names) <= _COLOURED:
        shown = [Patch(color=colours[n], label=n) for n in names]
    shown.append(Patch(color="#222222", label="interrupts"))
    kinds = (("^", "#888888", "release"), ("v", "white", "deadline"), ("x", "#c00000", "missed"))
    for mark, face, label in kinds:
        colour = "#c00000" if mark == "x" else "#888888"
        shown.append(
            Line2D(
                [], [], marker=mark, color=colour, markerfacecolor=face, linestyle="", label=label
            )
        )
    axes.legend(
        handles=shown, fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5)
    )
    figure.savefig(path, dpi=120)


def inversions(found: Mapping[Handling, Sequence[float]], path: str | Path) -> None:
    """Figures 3 and 4 of klmirqd side by side: distribution and cumulated length of inversions."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    share, total = figure.subplots(1, 2)
    for handling, lengths in found.items():
        ordered = sorted(lengths)
        count = len(ordered)
        share.step(ordered, [100 * (i + 1) / count for i in range(count)], where="post", label=handling.value)
        cumulated, so_far = [], 0.0
        for length in ordered:
            so_far += length
            cumulated.append(so_far)
        total.step(ordered, cumulated, where="post", label=handling.value)
    for axes, label in ((share, "inversions no longer than x [%]"), (total, "sum of those no longer than x [us]")):
        axes.set_xlabel("length of inversion [us]")
        axes.set_ylabel(label)
        axes.set_xscale("log")  # klmirqd's are a hundredth of the others'
        axes.legend(frameon=False, fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)


def shares(found: Shares, path: str | Path) -> None:
    """Figures 10 and 11 of Linux-RTXG: share of the GPU by second, reservations dotted."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    axes = figure.add_subplot()
    for i, (reserved, line) in enumerate(zip(found.reserved, found.shares, strict=True)):
        (drawn,) = axes.plot([100 * v for v in line], label=f"VGPU{i}")
        axes.axhline(100 * reserved, color=drawn.get_color(), linestyle=":", linewidth=0.8)
    axes.set_ylim(0, 105)
    axes.set_xlabel("time [s]")
    axes.set_ylabel("share of the GPU [%]")
    axes.set_title(found.title, fontsize=9)
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)


def scheduling_cost(times: Mapping[str, Sequence[float]], path: str | Path) -> None:
    """Figure 9 of Linux-RTXG: time until all tasks are done, over the number of tasks."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    axes = figure.add_subplot()
    width = 0.75 / len(times)
    for i, (name, line) in enumerate(times.items()):
        middle = (i - (len(times) - 1) / 2) * width
        axes.bar([n + 1 + middle for n in range(len(line))], line, width=width, label=name)
    axes.set_xlabel("tasks")
    axes.set_ylabel("time of all tasks [ms]")
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
