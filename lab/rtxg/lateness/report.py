# SPDX-License-Identifier: MIT
"""What was recorded, as a table, as OSADL's plots, and as one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import html
import io
import time
from collections.abc import Iterable
from dataclasses import dataclass

from .store import Span, joined

#: parts of the configuration that a reader compares machines by
SHOWN = ("kernel", "version", "preemption", "cpu", "cpus", "virtual", "governor", "cpuidle", "clocksource", "command_line",
         "isolated", "nvidia")


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
    for span in spans:
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


def as_text(lines: list[Line]) -> str:
    """A table, and below it the culprit of each maximum."""
    titles = ("MACHINE", "THREAD", "CPU", "HOURS", "CYCLES", "AVG us", "P50", "P99", "P99.9", "P99.99", "MAX us", "WHEN (UTC)")
    cells = [
        (line.machine, str(line.whole.thread), "-" if line.whole.cpu is None else str(line.whole.cpu),
         f"{line.whole.seconds / 3600:.1f}", str(line.whole.cycles), f"{line.whole.avg_us:.1f}",
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
            text += f"\n{line.machine}, thread {line.whole.thread}: {line.worst.record}\n  {line.worst.culprit}\n"
    return text


def _name(line: Line) -> str:
    return f"{line.machine} thread {line.whole.thread}, max {line.whole.max_us:.0f} us"


def draw(lines: list[Line]) -> bytes:
    """OSADL's two plots as a PNG: bins of 1 us on a logarithmic axis, and the maximum of each minute."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(15, 6), layout="constrained")
    for line in lines:
        bins = sorted(line.whole.bins)
        left.step(bins, [line.whole.bins[b] for b in bins], where="post", label=_name(line), linewidth=1)
        right.plot(
            [s.end_s / 86400 for s in line.spans], [s.max_us for s in line.spans], ".-", markersize=3, linewidth=0.5,
            label=_name(line),
        )
    left.set(yscale="log", xlabel="latency, us (bins of 1 us)", ylabel="wake-ups", title="Latency of all wake-ups")
    left.set_ylim(bottom=0.8)
    left.set_xlim(left=0)
    right.set(ylabel="maximum of each span, us", title="The latest wake-up over time")
    right.set_ylim(bottom=0)
    right.xaxis_date()
    right.tick_params(axis="x", rotation=30)
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=100)
    pyplot.close(figure)
    return out.getvalue()


def as_html(lines: list[Line], machines: dict[str, dict], title: str) -> str:
    """One file: the table, the plots, the culprits, the configurations side by side."""
    names = sorted({line.machine for line in lines})
    picture = base64.b64encode(draw(lines)).decode()
    rows = "".join(
        f"<tr><td>{html.escape(line.machine)}<td>{line.whole.thread}<td>{'' if line.whole.cpu is None else line.whole.cpu}"
        f"<td>{line.whole.seconds / 3600:.1f}<td>{line.whole.cycles}<td>{line.whole.avg_us:.1f}"
        + "".join(f"<td>{q:.0f}" for q in line.quantiles.values())
        + f"<td><b>{line.whole.max_us:.0f}</b><td>{stamp(line.worst.end_s)}<td>{html.escape(line.worst.culprit)}"
        for line in lines
    )
    settings = "".join(
        f"<tr><th>{html.escape(key)}" + "".join(f"<td>{html.escape(str(machines.get(n, {}).get(key, '')))}" for n in names)
        for key in SHOWN
    )
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title><style>
body {{ font-family: sans-serif; margin: 2em; max-width: 1500px }} img {{ width: 100% }}
table {{ border-collapse: collapse; margin: 1em 0 }} td, th {{ border: 1px solid #ccc; padding: .3em .6em; text-align: left;
vertical-align: top }} th {{ background: #f4f4f4 }}</style></head><body>
<h1>{html.escape(title)}</h1>
<table><tr><th>machine<th>thread<th>CPU<th>hours<th>cycles<th>mean us<th>p50<th>p99<th>p99.9<th>p99.99<th>max us<th>when
(UTC)<th>what made it late{rows}</table>
<img alt="histogram of latencies, and the maximum over time" src="data:image/png;base64,{picture}">
<h2>Configuration</h2><table><tr><th>{''.join(f'<th>{html.escape(n)}' for n in names)}{settings}</table>
</body></html>
"""
