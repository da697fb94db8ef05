#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The 240 graphs of the klmirqd paper's appendix D, and its figure 6, as one compressed record.

Runs what is left of the campaign (some fifteen core-minutes at 10 000 task sets a point; it may be
stopped and started again), then writes the counts of every bin and what each curve sustains at 90 %.

usage: python3 bench/lab_graphs.py [--sets N] [--out DIR] [--record FILE] [--picture FILE]
"""

import argparse
import json
import lzma
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))

from rtxg.campaign import (
    ALL_EXPERIMENTS,
    CALLS,
    METHODS,
    SPEEDUPS,
    Experiment,
    Results,
    Settings,
    chunks,
    run,
)
from rtxg.plots import schedulability


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=10_000)
    parser.add_argument("--out", type=Path, default=Path("build/graphs"))
    parser.add_argument("--record", type=Path, default=Path("build/graphs/klmirqd-graphs.json.xz"))
    parser.add_argument("--picture", type=Path, default=Path("build/graphs/klmirqd-figure6.png"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    settings = Settings(sets=options.sets)
    results = Results(options.out / "results.sqlite", settings)
    run(results, list(chunks(settings)))
    figures = []
    for experiment in ALL_EXPERIMENTS:
        for speedup in SPEEDUPS:
            graph = results.graph(experiment, speedup)
            sustained = {m.value: [graph.sustained(m, c) for c in CALLS] for m in METHODS}
            figures.append(
                {
                    "figure": graph.number,
                    "what": experiment.describe(),
                    "speedup": speedup,
                    "x": graph.x.tolist(),
                    "tested": graph.tested.tolist(),
                    "schedulable": graph.schedulable.tolist(),
                    "sustained_90": sustained,
                }
            )
    six = results.graph(Experiment(2, 5), 16)
    read = {m.value: [six.last_bin(m, c) for c in CALLS] for m in METHODS}
    record = {
        "settings": json.loads(settings.to_json()),
        "curves": {"methods": [m.value for m in METHODS], "calls": list(CALLS)},
        "figure_6_last_bin_at_90": read,
        "figures": sorted(figures, key=lambda f: f["figure"]),
    }
    options.record.write_bytes(lzma.compress(json.dumps(record, separators=(",", ":")).encode()))
    schedulability(six, options.picture, 6)
    print(f"{sum(sum(f['tested']) for f in figures) // len(SPEEDUPS)} task sets in {len(figures)} graphs")
    print(f"figure 6 at 90 %, by interrupts a job {list(CALLS)}: {read}")
    for one, other in (("klmirqd", "slih"), ("slih", "pai")):
        gaps = [
            f["sustained_90"][one][2] - f["sustained_90"][other][2]
            for f in figures
            if None not in (f["sustained_90"][one][2], f["sustained_90"][other][2])
        ]
        print(f"{one} over {other} at i = 6: {min(gaps):.2f} to {max(gaps):.2f} CPUs in {len(gaps)} graphs")
    results.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
