# SPDX-License-Identifier: MIT
"""What was recorded, as a table, as OSADL's plots, and as one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import html
import io
import math
import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass

from .store import DAY, Span, joined

#: parts of the configuration that a reader compares machines by
SHOWN = (
    "label",
    "options",
    "kernel",
    "version",
    "preemption",
    "cpu",
    "cpus",
    "virtual",
    "governor",
    "cpuidle",
    "clocksource",
    "command_line",
    "isolated",
    "nvidia",
)


@dataclass
class Line:
    """One machine's thread over the whole time."""

    machine: str
    whole: Span
    spans: list[Span]  #: oldest first
    quantiles: dict[str, float]

    @property
    def worst(self) -> Span:
        """The span with the maximum."""
        return max(self.spans, key=lambda s: s.max_us)


def quantile(bins: dict[int, int], overflows: int, share: float, max_us: float) -> float:
    """The upper edge of the bin that the quantile lies in; the maximum where it lies in the overflows."""
    total = sum(bins.values()) + overflows
    below = 0
    for bin_ in sorted(bins):
        below += bins[bin_]
        if below >= share * total:
            return min(bin_ + 1.0, max_us)
    return max_us


def lines_of(spans: Iterable[Span]) -> list[Line]:
    """By machine and thread."""
    groups: dict[tuple[str, int], list[Span]] = {}
    for span in sorted(spans, key=lambda s: s.end_s):  # of several files
        groups.setdefault((span.machine, span.thread), []).append(span)
    lines = []
    for (machine, _), group in sorted(groups.items()):
        whole = joined(group, group[-1].end_s)
        quantiles = {
            name: quantile(whole.bins, whole.overflows, share, whole.max_us)
            for name, share in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999))
        }
        lines.append(Line(machine, whole, group, quantiles))
    return lines


def stamp(seconds: float) -> str:
    """UTC."""
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(seconds))


def lasted(seconds: float) -> str:
    """In the unit that tells most."""
    for unit, each, least in (("d", DAY, 3 * DAY), ("h", 3600, 2 * 3600), ("min", 60, 100)):
        if seconds >= least:
            return f"{seconds / each:.1f} {unit}"
    return f"{seconds:.0f} s"


def period_of(lines: list[Line]) -> str:
    """From the begin of the first span to the end of the last one."""
    spans = [span for line in lines for span in line.spans]
    begin = min(span.end_s - span.seconds for span in spans)
    return f"{stamp(begin)} to {stamp(max(span.end_s for span in spans))} UTC"


def as_text(lines: list[Line]) -> str:
    """A table, and below it the culprit of each maximum."""
    titles = ("MACHINE", "THREAD", "CPU", "TIME", "CYCLES", "AVG us", "P50", "P99", "P99.9",
              "P99.99", "MAX us", "WHEN (UTC)")
    cells = [
        (line.machine, str(line.whole.thread), "-" if line.whole.cpu is None else str(line.whole.cpu),
         lasted(line.whole.seconds), str(line.whole.cycles), f"{line.whole.avg_us:.1f}",
         *(f"{q:.0f}" for q in line.quantiles.values()), f"{line.whole.max_us:.0f}", stamp(line.worst.end_s))
        for line in lines
    ]
    widths = [max(len(row[i]) for row in [titles, *cells]) for i in range(len(titles))]
    text = "".join(
        "  ".join(c.rjust(w) if 1 <= i <= 10 else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))).rstrip()
        + "\n"
        for row in [titles, *cells]
    )
    for line in lines:
        if line.worst.culprit:
            # a launch on a GPU has a culprit, and no record of a wake-up
            record = f": {line.worst.record}" if line.worst.record else ""
            text += f"\n{line.machine}, thread {line.whole.thread}{record}\n  {line.worst.culprit}\n"
    return text


def steps_of(bins: dict[int, int]) -> tuple[list[int], list[int]]:
    """Edges and counts for a plot of steps: a bin without a wake-up is 0, not the count of the bin before it."""
    edges: list[int] = []
    counts: list[int] = []
    for bin_ in sorted(bins):
        if edges and bin_ > edges[-1] + 1:
            edges.append(edges[-1] + 1)
            counts.append(0)
        edges.append(bin_)
        counts.append(bins[bin_])
    return ([*edges, edges[-1] + 1], [*counts, 0]) if edges else ([], [])


def maxima_of(lines: list[Line]) -> tuple[list[float], list[float]]:
    """Days since 1970 and the maximum of all threads of a machine. NaN where nothing was recorded for some time."""
    worst: dict[int, Span] = {}
    for line in lines:
        for span in line.spans:
            if span.end_s not in worst or span.max_us > worst[span.end_s].max_us:
                worst[span.end_s] = span
    days: list[float] = []
    maxima: list[float] = []
    before = None
    for end_s in sorted(worst):
        begin_s = end_s - worst[end_s].seconds
        if before is not None and begin_s - before > 2 * worst[end_s].seconds:
            days.append(begin_s / DAY)
            maxima.append(math.nan)
        days.append(end_s / DAY)
        maxima.append(worst[end_s].max_us)
        before = end_s
    return days, maxima


def needs_logarithm(maxima: list[float]) -> bool:
    """One maximum far above the others would leave no height for them."""
    seen = [m for m in maxima if m > 0]
    return bool(seen) and max(seen) > 20 * statistics.median(seen)


def beyond(whole: Span) -> str:
    """How many wake-ups were later than the histogram has bins for; the axis explains it."""
    return f", +{whole.overflows}" if whole.overflows else ""


def draw(lines: list[Line]) -> bytes:
    """OSADL's two plots as a PNG: bins of 1 us on a logarithmic axis, and the maximum of each minute.

    That is on a logarithmic axis too where one is far above the others.
    A machine has one colour, and its threads have shades of it.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import dates, pyplot

    machines: dict[str, list[Line]] = {}
    for line in lines:
        machines.setdefault(line.machine, []).append(line)
    rows = max((len(lines) + 2) // 3, len(machines))
    figure, (left, right) = pyplot.subplots(
        1, 2, figsize=(15, 6 + 0.2 * rows), layout="constrained"
    )
    for number, (machine, threads) in enumerate(machines.items()):
        colour = f"C{number % 10}"
        for at, line in enumerate(threads):
            left.step(
                *steps_of(line.whole.bins),
                where="post",
                linewidth=1,
                color=colour,
                alpha=1 - 0.7 * at / len(threads),
                label=f"{machine} thread {line.whole.thread}, max {line.whole.max_us:.0f} us"
                + beyond(line.whole),
            )
        worst = max(line.whole.max_us for line in threads)
        right.plot(
            *maxima_of(threads),
            ".-",
            markersize=3,
            linewidth=0.5,
            color=colour,
            label=f"{machine}, max {worst:.0f} us",
        )
    left.set_yscale("log", nonpositive="clip")
    left.set(
        xlabel="latency, us (bins of 1 us; +N: so many were later than all bins)",
        ylabel="wake-ups",
        title="Latency of all wake-ups",
    )
    left.set_ylim(bottom=0.8)
    left.set_xlim(left=0)
    right.set(
        ylabel="maximum of each span, us", title="The latest wake-up of all threads over time (UTC)"
    )
    if needs_logarithm([s.max_us for line in lines for s in line.spans]):
        right.set_yscale("log")
    else:
        right.set_ylim(bottom=0)
    ticks = dates.AutoDateLocator()
    right.xaxis.set_major_locator(ticks)
    right.xaxis.set_major_formatter(dates.ConciseDateFormatter(ticks))
    for axes, columns in ((left, 2), (right, 1)):
        axes.grid(alpha=0.3)
        # below the plot: inside, it would hide what it explains
        axes.legend(
            fontsize="small",
            loc="upper center",
            bbox_to_anchor=(0.5, -0.16),
            ncols=columns,
            frameon=False,
        )
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=100)
    pyplot.close(figure)
    return out.getvalue()


def as_html(lines: list[Line], machines: dict[str, dict], title: str) -> str:
    """One file: the table, the plots, the culprits, the configurations side by side."""
    names = sorted({line.machine for line in lines})
    picture = base64.b64encode(draw(lines)).decode()
    rows = "".join(
        f"<tr><td class=w>{html.escape(line.machine)}"
        f"<td class=n>{line.whole.thread}"
        f"<td class=n>{'' if line.whole.cpu is None else line.whole.cpu}"
        f"<td class=n>{lasted(line.whole.seconds)}<td class=n>{line.whole.cycles}"
        f"<td class=n>{line.whole.avg_us:.1f}"
        + "".join(f"<td class=n>{q:.0f}" for q in line.quantiles.values())
        + f"<td class=n><b>{line.whole.max_us:.0f}</b><td class=w>{stamp(line.worst.end_s)}"
        for line in lines
    )
    # a table of its own: these are sentences, and the numbers stay one line each
    reasons = "".join(
        f"<tr><td class=w>{html.escape(line.machine)}<td class=n>{line.whole.thread}"
        f"<td class=n>{line.whole.max_us:.0f}<td>{html.escape(line.worst.culprit)}"
        + (f"<br><code>{html.escape(line.worst.record)}</code>" if line.worst.record else "")
        for line in lines
        if line.worst.culprit
    )
    if reasons:
        reasons = (
            "<h2>What made the latest wake-ups late</h2><table><tr><th>machine<th>thread<th>max us"
            f"<th>the longest part of the latency, and its record{reasons}</table>"
        )
    settings = "".join(
        f"<tr><th>{html.escape(key)}" + "".join(f"<td>{html.escape(str(machines.get(n, {}).get(key, '')))}" for n in names)
        for key in SHOWN
        if any(machines.get(n, {}).get(key) not in (None, "") for n in names)
    )
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title><style>
body {{ font-family: sans-serif; margin: 2em; max-width: 1500px }} img {{ width: 100% }}
code {{ font-size: 80%; color: #555 }}
table {{ border-collapse: collapse; margin: 1em 0 }} td, th {{ border: 1px solid #ccc; padding: .3em .6em; text-align: left;
vertical-align: top }} td {{ overflow-wrap: anywhere }}
th {{ background: #f4f4f4; white-space: nowrap }}
.w, .n {{ white-space: nowrap }} .n {{ text-align: right }}</style></head><body>
<h1>{html.escape(title)}</h1>
<table><tr><th>machine<th>thread<th>CPU<th>time<th>cycles<th>mean us<th>p50<th>p99<th>p99.9
<th>p99.99<th>max us<th>when (UTC){rows}</table>
<img alt="histogram of latencies, and the maximum over time" src="data:image/png;base64,{picture}">
{reasons}
<h2>Configuration</h2><table><tr><th>{''.join(f'<th>{html.escape(n)}' for n in names)}{settings}</table>
</body></html>
"""
