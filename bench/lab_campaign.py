#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How many task sets a second one core analyses: generation and nine verdicts (three ways of handling
interrupts, three numbers of GPU calls) for each of the six distributions of Table IV, over caps from 1
to 12 CPUs.  CPU time of one process is counted, without compilation.  Prints one line a distribution, and what the whole campaign of
240 graphs at 10 000 task sets a point would take at that speed.

usage: python3 bench/lab_campaign.py [task sets for each cap]
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))

from rtxg.campaign import ALL_EXPERIMENTS, DISTRIBUTIONS, Experiment, Settings, chunks, run_chunk


def main() -> int:
    sets = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    settings = Settings(sets=sets)
    run_chunk(Settings(sets=2), next(chunks(Settings(sets=2))))
    seconds_per_set = []
    for index, utilizations in enumerate(DISTRIBUTIONS):
        tested, started = 0, time.process_time()
        for block in (0, 5, 9):
            for chunk in chunks(settings, [Experiment(index, block)]):
                run_chunk(settings, chunk)
                tested += sets
        spent = time.process_time() - started
        seconds_per_set.append(spent / tested)
        name = f"{utilizations.kind}({utilizations.low:g}, {utilizations.high:g})"
        print(f"{name:24s} {tested / spent:9.0f} task sets/s/core  {9 * tested / spent:9.0f} verdicts/s/core")
    points = len(ALL_EXPERIMENTS) // len(DISTRIBUTIONS) * len(settings.caps)
    whole = sum(points * 10_000 * s for s in seconds_per_set)
    print(f"whole campaign, {points * len(DISTRIBUTIONS) * 10_000} task sets: {whole / 60:.1f} core-minutes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
