#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a slow processor costs the case mix, from the records of the GPU cases.

    bench/mix_rounds.py [RECORD...]       (bench/results/*.json by default)

The chat launches small kernels one after another, and the others are stopped until its
tokens are done. So the longer its processor takes for a token, the longer the others wait for an
engine that has little to do.

Prints a line for each record of at least three rounds: for each round the chat's median time for a
token under rtxg in ms, and the sum over all four programs of rate / rate alone over the mean of the
stock driver's rounds. Below it: Pearson's correlation of the two over all rounds, and the means of
the rounds whose tokens took less time than the median round's, and of the others.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"
TOKEN = ": the chat's time for a token: p50 over alone"
SUM = ": sum over all four of rate / rate alone, over stock's"
LEAST_ROUNDS = 3


def rounds(path: Path) -> dict[str, list[tuple[float, float]]]:
    """(median time for a token in ms, sum over stock's) of each round, by the build's name."""
    found = json.loads(path.read_text(encoding="ascii"))
    if not isinstance(found, list):
        return {}
    tokens: dict[str, list[float]] = {}
    sums: dict[str, list[float]] = {}
    for line in found:
        case = line.get("case", "") if isinstance(line, dict) else ""
        detail = line.get("detail") if case else {}
        if case.endswith(SUM) and "each_rtxg" in detail:
            stock = statistics.fmean(sum(r.values()) for r in detail["each_stock"])
            of_stock = [sum(r.values()) / stock for r in detail["each_rtxg"]]
            sums[case.removesuffix(SUM)] = of_stock
        elif case.endswith(TOKEN) and "rtxg_rounds" in detail:
            tokens[case.removesuffix(TOKEN)] = [r["p50"] for r in detail["rtxg_rounds"]]
    return {b: list(zip(tokens[b], sums[b], strict=True)) for b in tokens if b in sums}


def main() -> int:
    """The lines."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("records", nargs="*", type=Path, default=sorted(RESULTS.glob("*.json")))
    args = parser.parse_args()
    every: list[tuple[float, float]] = []
    for path in args.records:
        for build, found in rounds(path).items():
            if len(found) >= LEAST_ROUNDS:
                every += found
                print(f"{path.stem}, {build}: " + ", ".join(f"{t:.1f} ms {s:.2f}" for t, s in found))
    if len(every) < LEAST_ROUNDS:
        print("no record has three rounds of mix: make gpu CASE=mix", file=sys.stderr)
        return 2
    middle = statistics.median(t for t, _ in every)
    quick = [s for t, s in every if t < middle]
    slow = [s for t, s in every if t >= middle]
    together = statistics.correlation(*zip(*every, strict=True))
    print(f"{len(every)} rounds: correlation {together:.2f}")
    print(
        f"{statistics.fmean(quick):.3f} in the {len(quick)} rounds with tokens below {middle:.1f} ms, "
        f"{statistics.fmean(slow):.3f} in the {len(slow)} others"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
