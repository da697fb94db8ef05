# SPDX-License-Identifier: MIT
"""Graphs in the form of the papers: schedulability over utilisation, distributions, shares over time."""

from __future__ import annotations

from pathlib import Path

from .campaign import CALLS, METHODS, Graph
from .overheads import Interrupts

_COLOURS = {Interrupts.KLMIRQD: "#1b6ca8", Interrupts.PAI: "#c8643c", Interrupts.SLIH: "#444444"}
_NAMES = {Interrupts.KLMIRQD: "klmirqd", Interrupts.PAI: "PAI", Interrupts.SLIH: "SLIH"}
_DASHES = {1: "-", 3: "--", 6: ":"}
_MARKS = {1: "o", 3: "s", 6: "^"}


def schedulability(graph: Graph, path: str | Path) -> None:
    """Draw one graph as figures 5 and 6 do; the suffix of ``path`` chooses the format."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.add_subplot()
    for method in METHODS:
        for calls in CALLS:
            x, share = graph.curve(method, calls)
            axes.plot(
                x,
                100 * share,
                color=_COLOURS[method],
                linestyle=_DASHES[calls],
                marker=_MARKS[calls],
                markersize=3,
                linewidth=1.2,
                label=f"{_NAMES[method]}, i = {calls}",
            )
    axes.axhline(90, color="#bbbbbb", linewidth=0.8, zorder=0)
    axes.set_ylim(-2, 102)
    axes.set_xlim(left=0)
    axes.set_ylabel("schedulable task sets [%]")
    axes.set_xlabel("CPU utilisation" if graph.speedup == 1 else f"effective utilisation [CPUs], R = {graph.speedup}")
    axes.set_title(f"figure {graph.number}: {graph.experiment.describe()}", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=7, frameon=False, ncols=1)
    figure.savefig(path, dpi=120)
