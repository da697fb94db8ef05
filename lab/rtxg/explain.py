# SPDX-License-Identifier: MIT
"""One task's inflated execution time, term by term, as a waterfall in text and as a picture."""

from __future__ import annotations

from pathlib import Path

from .analysis import TaskResult
from .units import format_time


def waterfall(result: TaskResult, width: int = 40) -> str:
    """The terms as lines of text, each bar starting where the one above ends.

    :param width: characters for the longest bar; one job's inflated execution time fills it.
    """
    task = result.task
    total = result.inflated
    symbols = max(len(term.symbol) for term in result.terms)
    lines = [f"{task.name}: period {format_time(task.period)}, deadline {format_time(task.deadline)}"]
    reached = 0
    for term in result.terms:
        start = round(float(reached / total) * width)
        reached += term.value
        stop = max(start + 1, round(float(reached / total) * width))
        bar = " " * start + "█" * (stop - start)
        lines.append(_line(term.symbol, term.equation, format_time(term.value), f"{bar:<{width}}", term.meaning, symbols))
    share = f"{float(result.utilization):.1%} of a CPU"
    lines.append(_line("inflated", "", format_time(total), "=" * width, share, symbols))
    if result.tardiness is None:
        lines.append(f"  no bound: {result.reason}")
    else:
        lines.append(
            f"  late by at most {format_time(result.tardiness)}; "
            + (f"done within {format_time(result.response)} of release" if result.response is not None else "")
        )
    return "\n".join(lines)


def _line(symbol: str, equation: str, time: str, bar: str, meaning: str, symbols: int) -> str:
    return f"  {symbol:<{symbols}}  {equation:>5}  {time:>9}  |{bar}| {meaning}"


def picture(result: TaskResult, path: str | Path) -> None:
    """Draw the waterfall; the file's suffix chooses the format.

    :raises ValueError: when matplotlib does not know the suffix.
    :raises OSError: when the file cannot be written.
    """
    from matplotlib.figure import Figure

    terms = result.terms
    figure = Figure(figsize=(8, 0.45 * len(terms) + 1.6), layout="constrained")
    axes = figure.add_subplot()
    reached = 0.0
    for row, term in enumerate(terms):
        value = float(term.value) / 1000
        own = term.symbol in ("e_i", "s_i")
        colour = "#4878a8" if own else "#c8643c"
        # An outline keeps terms of a microsecond visible beside those of milliseconds.
        axes.barh(row, value, left=reached, color=colour, edgecolor=colour, linewidth=1.0, height=0.7)
        axes.annotate(
            format_time(term.value),
            (reached + value, row),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            ha="left",
            fontsize=8,
            annotation_clip=False,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
        )
        reached += value
    axes.axvline(float(result.task.period) / 1000, color="black", linestyle=":", linewidth=1)
    axes.annotate(
        "period", (float(result.task.period) / 1000, 1.0), xycoords=("data", "axes fraction"), fontsize=8, ha="right", va="bottom"
    )
    axes.set_yticks(range(len(terms)), [f"{t.symbol} {t.equation}".strip() for t in terms], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel("ms")
    axes.set_title(f"{result.task.name}: inflated execution time {format_time(result.inflated)}", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)
