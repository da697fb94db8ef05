#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a slow processor costs the case mix, from the records of the GPU cases.

    bench/mix_rounds.py [RECORD...]       (bench/results/*.json by default)

The chat launches small kernels one after another, and the others are stopped until its tokens are
done. So the longer its processor takes for a token, the longer the others wait for an engine that
has little to do.

Prints a line for each record of at least three rounds: for each round the chat's median time for a
token under rtxg in ms, and the sum over all four programs of rate / rate alone over the mean of the
stock driver's rounds. Below it: Pearson's correlation of the two over all rounds. Then, for the
rounds whose tokens took less time than the median round's, and for the others: the sum's mean, and
in how many rounds it met its aim.
"""

from __future__ import annotations

import statistics
import sys
from typing import Any

from gpu_records import chosen

TOKEN = ": the chat's time for a token: p50 over alone"
SUM = ": sum over all four of rate / rate alone, over stock's"
AIM = 1.02
LEAST_ROUNDS = 3


def rounds(found: dict[str, dict[str, Any]]) -> dict[str, list[tuple[float, float]]]:
    """(median time for a token in ms, sum over stock's) of each round of a record, by the build's
    name."""
    each: dict[str, list[tuple[float, float]]] = {}
    for case, line in found.items():
        build = case.removesuffix(SUM)
        sums = line.get("detail") or {}
        tokens = found.get(build + TOKEN, {}).get("detail") or {}
        if case != build and "each_rtxg" in sums and "rtxg_rounds" in tokens:
            stock = statistics.fmean(sum(r.values()) for r in sums["each_stock"])
            both = zip(tokens["rtxg_rounds"], sums["each_rtxg"], strict=True)
            each[build] = [(token["p50"], sum(r.values()) / stock) for token, r in both]
    return each


def of(sums: list[float]) -> str:
    """What is said of one half of the rounds."""
    met = sum(s >= AIM for s in sums)
    return f"{statistics.fmean(sums):.3f}, {AIM} or more in {met} of {len(sums)}"


def main() -> int:
    """The lines."""
    every: list[tuple[float, float]] = []
    for name, found in chosen(__doc__).items():
        for build, pairs in rounds(found).items():
            if len(pairs) >= LEAST_ROUNDS:
                every += pairs
                print(f"{name}, {build}: " + ", ".join(f"{t:.1f} ms {s:.2f}" for t, s in pairs))
    if not every:
        print("no record has three rounds of mix: make gpu CASE=mix", file=sys.stderr)
        return 2
    middle = statistics.median(t for t, _ in every)
    together = statistics.correlation(*zip(*every, strict=True))
    print(f"{len(every)} rounds: correlation {together:.2f}")
    print(f"tokens below {middle:.1f} ms: {of([s for t, s in every if t < middle])}")
    print(f"the others: {of([s for t, s in every if t >= middle])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
