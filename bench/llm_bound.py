#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How much two LLM engines can make together where they share a GPU by time, from the records.

    bench/llm_bound.py [RECORD...]          (bench/results/*.json by default)

The first engine is to be served within 1.2 of a card for itself. An engine that has work all the
time, as one with 45 % of the most requests nearly has, and whose tokens come at most 1.2 times as
late, leaves 1 - 1 / 1.2 of the time to the other one. That one makes at most as many tokens in it
as an engine with a full batch. Under MPS both run at one time, so no such limit holds.

Prints a line for each record of the case llm: requests of the first at a time (its tokens a second
times its time between tokens), tokens a second of the first, of the second while the first is
critical, of both under MPS, the most that both can make by time, and that over MPS.
"""

from __future__ import annotations

import sys
from typing import Any

from gpu_records import chosen

CASE = "two LLM engines, the first with a bound: its first token, p50 over dedicated"
TOKENS = 48  # of a request
LATER = 1.2


def most(detail: dict[str, Any]) -> dict[str, float] | None:
    """What the record says of both engines; None: it was not measured under MPS."""
    mps = detail.get("mps")
    if not isinstance(mps, list):
        return None
    alone = detail["dedicated"]
    full = detail["most_requests_per_s"] * TOKENS
    critical = [r[1]["tokens_per_s"] for r in detail["rtxg_rounds"]["critical"] if r[1]]
    both = sum(engine["tokens_per_s"] for engine in mps)
    by_time = alone["tokens_per_s"] + (1 - 1 / LATER) * full
    return {
        "at a time": alone["tokens_per_s"] * alone["between_p50"] / 1000,
        "first": alone["tokens_per_s"],
        "second beside it": sum(critical) / len(critical),
        "both under MPS": both,
        "both by time at most": by_time,
        "of MPS": by_time / both,
    }


def main() -> int:
    """The table."""
    rows: dict[str, dict[str, float]] = {}
    for name, found in chosen(__doc__).items():
        values = most(found[CASE]["detail"]) if CASE in found else None
        if values:
            rows[name] = values
    if not rows:
        print("no record has both engines under MPS: make gpu CASE=llm", file=sys.stderr)
        return 2
    titles = list(next(iter(rows.values())))
    print("| run | " + " | ".join(titles) + " |")
    print("|" + "---|" * (len(titles) + 1))
    for name, values in rows.items():
        cells = (f"{v:.2f}" if v < 10 else f"{v:.0f}" for v in values.values())
        print(f"| {name} | " + " | ".join(cells) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
