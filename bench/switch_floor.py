#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the hardware's switch alone costs a latency-critical job, from the records of the GPU cases.

    bench/switch_floor.py [RECORD...]       (bench/results/*.json by default)

A periodic job finds the engine free, and yet its context has to be restored before its kernel
starts. So its latency is that of a job alone, and the restore. The restore is what the driver's log
shows between the end of one stay and the begin of the next (`make gpu CASE=overheads`). A sporadic
job waits for the saving of another context and for what is left of that one's slice as well.

Prints a line for each record of the case latency: medians and 99th percentiles in us, and what a
job would take if nothing but the shortest restore came to the median of a job alone.
"""

from __future__ import annotations

import sys
from typing import Any

from gpu_records import chosen

PERIODIC = "periodic 100 us kernel beside 3 x 20 ms: p99"
SPORADIC = "sporadic 100 us kernel beside 3 x 20 ms: p99"
RESTORE = "overhead: slice_switch"


def row(name: str, found: dict[str, dict[str, Any]], restore: float) -> list[str] | None:
    """What a record says; None if it has not both kinds of jobs, with what they take alone."""
    try:
        periodic = found[PERIODIC]["detail"]
        sporadic = found[SPORADIC]["detail"]
        alone = periodic["latency_alone"]
        values = [
            alone["p50"],
            alone["p50"] + restore,
            periodic["latency_rtxg"]["p50"],
            periodic["latency_rtxg"]["p99"],
            sporadic["latency_rtxg"]["p50"] - periodic["latency_rtxg"]["p50"],
            sporadic["latency_rtxg"]["p50"],
            sporadic["latency_rtxg"]["p99"],
        ]
    except KeyError:
        return None
    return [name, *(f"{v:.0f}" for v in values)]


def main() -> int:
    """The table."""
    records = chosen(__doc__)
    restores = [r[RESTORE]["detail"] for r in records.values() if RESTORE in r]
    if not restores:
        print("no record has the time of a restore: make gpu CASE=overheads", file=sys.stderr)
        return 2
    least = min(r["min"] for r in restores)
    medians = ", ".join(format(r["median"], ".1f") for r in restores)
    print(
        f"restore: {least:.1f} us at least, medians {medians} us, "
        f"{sum(r['samples'] for r in restores)} switches in {len(restores)} runs"
    )
    titles = (
        "run|alone, median|and the restore|periodic, median|periodic, p99"
        "|the two medians' difference|sporadic, median|sporadic, p99"
    )
    print("| " + titles.replace("|", " | ") + " |")
    print("|" + "---|" * (titles.count("|") + 1))
    for name, found in records.items():
        cells = row(name, found, least)
        if cells:
            print("| " + " | ".join(cells) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
