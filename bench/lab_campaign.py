#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How many task sets a second one core analyses: generation and nine verdicts (three ways of
handling interrupts, three numbers of GPU calls) for each of the six distributions of Table IV, over
caps from 1 to 12 CPUs.  CPU time of one process is counted, without compilation.  Prints one line a
distribution, and what the whole campaign of 240 graphs at 10 000 task sets a point would take at
that speed.

With --against, the same sets are given to another source tree of rtxg, chunk by chunk in turn, so
that what else the machine does strikes both alike.  Three columns then: the other tree as it is;
this tree with the question that the other one answers (no hard tests first, bounds by compliant
vectors alone); and this tree as it is.

usage: python3 bench/lab_campaign.py [task sets for each cap] [--against TREE] [--rounds N]
       [--keep FILE]

Exit status 1 if the two trees' verdicts on the same question differ for more than one set in
10 000.
"""

import argparse
import hashlib
import inspect
import json
import statistics
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
BLOCKS = (0, 5, 9)
CAPS = 24
GRAPHS_OF_A_DISTRIBUTION = 10  # blocks of GPU-using tasks; the four speed-ups share their sets


def work(tree: Path) -> int:
    """Answer requests of one line each with CPU seconds and packed verdicts, in this process."""
    sys.path.insert(0, str(tree / "lab"))
    from rtxg.campaign import CALLS, DISTRIBUTIONS, METHODS, Settings
    from rtxg.fast import schedulable
    from rtxg.generate import Recipe, random_batch

    settings = Settings()
    known = inspect.signature(schedulable).parameters
    usual = {"bound": getattr(settings, "bound", None), "hard_first": True}
    for line in sys.stdin:
        asked = json.loads(line)
        options = {k: v for k, v in (asked["options"] or usual).items() if k in known}
        block = asked["block"]
        started = time.process_time()
        recipe = Recipe(
            DISTRIBUTIONS[asked["distribution"]], (block / 10, (block + 1) / 10), 0.75, 0.75
        )
        batch = random_batch(
            recipe, settings.caps[asked["cap"]], asked["sets"], [2012, *asked["seed"]]
        )
        verdict = schedulable(
            batch, settings.platform, METHODS, CALLS, settings.overheads, lock="capped", **options
        )
        spent = time.process_time() - started
        sets = hashlib.sha256(batch.cost.tobytes() + batch.period.tobytes()).hexdigest()
        flat = verdict.reshape(len(verdict), -1)
        print(
            json.dumps({"seconds": spent, "sets": sets, "verdicts": flat.astype(int).tolist()}),
            flush=True,
        )
    return 0


class Worker:
    """A process with one tree's code."""

    def __init__(self, tree: Path, options: dict | None) -> None:
        self.options = options
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--work", str(tree)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, distribution: int, block: int, cap: int, sets: int, seed: list[int]) -> dict:
        """CPU seconds, a name for the sets, and their verdicts."""
        asked = {
            "distribution": distribution,
            "block": block,
            "cap": cap,
            "sets": sets,
            "seed": seed,
        }
        self.process.stdin.write(json.dumps({**asked, "options": self.options}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self) -> None:
        """No more questions."""
        self.process.stdin.close()
        self.process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "sets", nargs="?", type=int, default=200, help="task sets for each cap (200)"
    )
    parser.add_argument(
        "--against", type=Path, metavar="TREE", help="source tree of another version"
    )
    parser.add_argument(
        "--rounds", type=int, default=1, help="rounds over all caps, each with its own sets (1)"
    )
    parser.add_argument("--keep", type=Path, metavar="FILE", help="write what was found as JSON")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        return work(options.work)
    sys.path.insert(0, str(TOP / "lab"))
    from rtxg.campaign import DISTRIBUTIONS

    workers = {"now": Worker(TOP, None)}
    if options.against:
        workers = {
            "before": Worker(options.against.resolve(), None),
            "same question": Worker(TOP, {"bound": "compliant", "hard_first": False}),
            **workers,
        }
    for worker in workers.values():
        worker.ask(2, 5, 10, 2, [0, 0])  # compiles
    rows, differing, compared = [], 0, 0
    for index, utilizations in enumerate(DISTRIBUTIONS):
        spent: dict[str, list[float]] = {name: [0.0] * options.rounds for name in workers}
        for turn in range(options.rounds):
            for block in BLOCKS:
                for cap in range(CAPS):
                    seed = [index, block, cap, turn]
                    found = {}
                    # Who begins changes, so that neither is always the one with a cold cache.
                    names = list(workers) if (cap + turn) % 2 else list(workers)[::-1]
                    for name in names:
                        found[name] = workers[name].ask(index, block, cap, options.sets, seed)
                        spent[name][turn] += found[name]["seconds"]
                    if options.against:
                        one, other = found["before"], found["same question"]
                        if one["sets"] != other["sets"]:
                            parser.error(
                                "the two trees draw different sets: they cannot be compared"
                            )
                        compared += options.sets
                        differing += sum(
                            a != b for a, b in zip(one["verdicts"], other["verdicts"], strict=True)
                        )
        tested = options.sets * len(BLOCKS) * CAPS
        rates = {name: [tested / s for s in seconds] for name, seconds in spent.items()}
        name = f"{utilizations.kind}({utilizations.low:g}, {utilizations.high:g})"
        row = {
            "distribution": name,
            "sets_a_second": {n: statistics.median(r) for n, r in rates.items()},
        }
        if options.against:
            row["ratio"] = {
                n: statistics.median(a / b for a, b in zip(rates[n], rates["before"], strict=True))
                for n in ("same question", "now")
            }
            row["ratio_of_rounds"] = {
                n: [a / b for a, b in zip(rates[n], rates["before"], strict=True)]
                for n in ("same question", "now")
            }
        rows.append(row)
        said = "  ".join(f"{n} {r:7.0f}" for n, r in row["sets_a_second"].items())
        said += "".join(f"  {n} x {r:.2f}" for n, r in row.get("ratio", {}).items())
        print(f"{name:22s} task sets/s/core: {said}", flush=True)
    for worker in workers.values():
        worker.end()
    points = GRAPHS_OF_A_DISTRIBUTION * CAPS * 10_000
    whole = {n: sum(points / r["sets_a_second"][n] for r in rows) / 60 for n in workers}
    print(f"whole campaign, {points * len(DISTRIBUTIONS)} task sets, core-minutes: {whole}")
    if options.against:
        print(f"{differing} of {compared} sets have other verdicts on the same question")
    if options.keep:
        git = ["git", "log", "-1", "--format=%h %ad", "--date=short"]
        commits = {
            name: subprocess.run(
                git, cwd=tree, capture_output=True, text=True, check=True
            ).stdout.strip()
            for name, tree in (("now", TOP), ("before", options.against)) if tree
        }  # fmt: skip
        record = {
            "date": date.today().isoformat(),
            "command": "bench/lab_campaign.py",
            "commits": commits,
            "sets_a_cap": options.sets,
            "rounds": options.rounds,
            "core_minutes_of_the_whole_campaign": whole,
            "other_verdicts_on_the_same_question": differing,
            "sets_compared": compared,
            "distributions": rows,
        }
        options.keep.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return int(differing * 10_000 > compared)


if __name__ == "__main__":
    sys.exit(main())
