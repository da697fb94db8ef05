#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draw the README's picture from a record of `make gpu`: stock driver beside rtxg.

usage: picture.py RECORD.json OUT.png

Left: the share of the work that each of four tenants got, as bars beside what was reserved. Right:
the 99th percentile of the time from release to completion of a short kernel, on a logarithmic axis.
Both are read from the record, and the program holds no figure of its own. Exit status 2: the record
lacks a case.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

SHARES = "60/20/10/10 with 1 ms kernels: worst 1 s window"
LATENCY = "sporadic 100 us kernel beside 3 x 20 ms: p99"
RESERVED = (60, 20, 10, 10)
STOCK, RTXG, ALONE, ASKED = "#b0b0b0", "#1f6fb4", "#7fbf7f", "#d62728"


def case(record: list[dict], name: str) -> dict:
    """The record's entry of that name. Raises SystemExit with status 2 if it is not there."""
    for entry in record:
        if entry["case"] == name:
            return entry
    print(
        f"picture.py: the record has no case {name!r}: take one of a whole `make gpu`",
        file=sys.stderr,
    )
    raise SystemExit(2)


def draw(record: list[dict], out: Path) -> None:
    """Both panels into `out`, 1100 x 400 pixels."""
    shares, latency = case(record, SHARES), case(record, LATENCY)
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(11, 4), width_ratios=(3, 2), layout="constrained"
    )

    tenants = range(len(RESERVED))
    for offset, key, colour, label in (
        (-0.2, "stock_shares", STOCK, "stock driver"),
        (0.2, "shares", RTXG, "rtxg"),
    ):
        bars = left.bar(
            [t + offset for t in tenants], shares["detail"][key], 0.38, color=colour, label=label
        )
        left.bar_label(bars, fmt="%.0f", padding=2, fontsize=9)
    for tenant, asked in enumerate(RESERVED):
        left.hlines(
            asked,
            tenant - 0.45,
            tenant + 0.45,
            color=ASKED,
            linestyle="--",
            linewidth=1.5,
            label="reserved" if tenant == 0 else None,
        )
    left.set_xticks(list(tenants), [f"{asked} % reserved" for asked in RESERVED])
    left.set_ylabel("share of the GPU's work (%)")
    left.set_ylim(0, 72)
    left.legend(frameon=False)
    left.set_title(
        "Four busy tenants; off in the worst second: "
        f"stock {shares['stock']:.0f} points, rtxg {shares['rtxg']:.1f}",
        fontsize=11,
    )

    detail = latency["detail"]
    rows = [
        ("alone", detail["latency_alone"]["p99"], ALONE),
        ("stock driver", latency["stock"], STOCK),
        ("rtxg", latency["rtxg"], RTXG),
    ]
    bars = right.barh(
        [name for name, _, _ in rows],
        [us / 1000 for _, us, _ in rows],
        color=[c for _, _, c in rows],
    )
    right.bar_label(
        bars,
        labels=[f"{us / 1000:.2f} ms" if us < 1000 else f"{us / 1000:.1f} ms" for _, us, _ in rows],
        padding=4,
        fontsize=10,
    )
    right.set_xscale("log")
    right.set_xlim(0.05, 40)
    right.invert_yaxis()
    right.set_xlabel("p99 latency (ms)")
    right.xaxis.set_major_formatter("{x:g}")
    right.set_title("0.1 ms kernel beside 20 ms kernels", fontsize=11)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(out, dpi=100)


def main() -> int:
    """Read the two arguments and draw."""
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
