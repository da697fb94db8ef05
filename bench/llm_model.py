#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Two LLM engines that share a GPU by time, on a model: what any sharing by time can give.

    bench/llm_model.py [--seconds S] [--seeds N]

The engines are those of the case llm: a prompt is read between two decoding steps (PROMPT_MS of
the whole GPU), a step gives each of at most 16 requests a token (STEP_MS, whatever their number: it
reads the weights), a request is over after 48 tokens, and each engine has 45 % of the requests that
it can serve alone. Times are those of an H200. The GPU is divided without any cost of switching:

fluid S            the first engine has the part S of the GPU while both have work, else all
prompts S          all of the GPU while it reads a prompt, the part S while it decodes
prompts, waiting S the same, and all of it as long as another of its prompts waits

The latter two know what no scheduler beside the engine knows. For each: the first engine's time to
the first token and between tokens at the 99th percentile, over those alone, and the tokens of both
over those that were asked for. MPS serves all that are asked for. Worst and best of the seeds.
"""

from __future__ import annotations

import argparse
import random
from collections import deque
from collections.abc import Callable

PROMPT_MS, STEP_MS = 9.6, 4.19
TOKENS, SLOTS = 48, 16
#: requests a second that one engine can serve, when 16 run at a time; and the part that come
CAPACITY = 1e3 * SLOTS / (TOKENS * STEP_MS + SLOTS * PROMPT_MS)
LOAD = 0.45


class Engine:
    """One engine; times in ms."""

    def __init__(self, rate: float, seed: int) -> None:
        self.chance = random.Random(seed)
        self.rate = rate  # requests a second
        self.next_arrival = 0.0
        self.waiting: deque[float] = deque()  # arrivals
        self.running: list[list[float]] = []  # of each request: its last token, and how many
        self.reads, self.left, self.arrived = False, 0.0, 0.0
        self.asked = self.steps = 0
        self.first: list[float] = []
        self.between: list[float] = []

    @property
    def works(self) -> bool:
        """Has it work for the GPU?"""
        return self.left > 0

    def look(self, now: float) -> None:
        """Requests come, and an idle engine begins."""
        while self.next_arrival <= now:
            self.waiting.append(self.next_arrival)
            self.asked += 1
            self.next_arrival += self.chance.expovariate(self.rate) * 1e3
        if not self.works:
            self.begin()

    def begin(self) -> None:
        """A prompt, else a step, else nothing."""
        self.reads = bool(self.waiting) and len(self.running) < SLOTS
        if self.reads:
            self.arrived, self.left = self.waiting.popleft(), PROMPT_MS
        else:
            self.left = STEP_MS if self.running else 0.0

    def finish(self, now: float) -> None:
        """The prompt is read, or the step is done."""
        if self.reads:
            self.first.append(now - self.arrived)
            self.running.append([now, 1])
            self.reads, self.left = False, STEP_MS
            return
        self.steps += 1
        for request in self.running:
            self.between.append(now - request[0])
            request[0] = now
            request[1] += 1
        self.running = [r for r in self.running if r[1] < TOKENS]
        self.left = 0.0

    @property
    def tokens(self) -> int:
        """So many were made."""
        return len(self.first) + len(self.between)


#: the first engine's part of the GPU while both have work
Policy = Callable[[Engine], float]


def run(part: Policy | None, seconds: float, seed: int) -> tuple[Engine, Engine]:
    """Both engines for so long; without a policy the first one alone."""
    one, two = Engine(LOAD * CAPACITY, seed), Engine(LOAD * CAPACITY, seed + 1)
    now = 0.0
    while now < 1e3 * seconds:
        one.look(now)
        if part:
            two.look(now)
        mine = part(one) if part and one.works and two.works else float(one.works)
        parts = ((one, mine), (two, 1 - mine if two.works else 0.0))
        until = [e.left / p for e, p in parts if p > 0]
        until += [e.next_arrival - now for e in (one, two) if e is one or part]
        step = max(min(until), 1e-6)
        now += step
        for engine, p in parts:
            if p > 0:
                engine.left -= p * step
                if engine.left <= 1e-9:
                    engine.finish(now)
    return one, two


def p99(values: list[float]) -> float:
    """The 99th percentile."""
    return sorted(values)[int(len(values) * 0.99)]


def policies() -> dict[str, Policy]:
    """Those of the table, by name."""
    found: dict[str, Policy] = {}
    for s in (0.5, 0.55, 0.6, 0.7, 0.8, 0.9):
        found[f"fluid {s}"] = lambda _, s=s: s
    for s in (0.4, 0.5, 0.6, 0.7):
        found[f"prompts {s}"] = lambda e, s=s: 1.0 if e.reads else s
    for s in (0.3, 0.4, 0.5, 0.7):
        found[f"prompts, waiting {s}"] = lambda e, s=s: 1.0 if e.reads or e.waiting else s
    return found


def measured(part: Policy, seconds: float, seed: int) -> tuple[float, float, float]:
    """First token and between tokens over those alone, and tokens over those asked for."""
    alone, _ = run(None, seconds, seed)
    one, two = run(part, seconds, seed)
    asked = TOKENS * (one.asked + two.asked)
    return (
        p99(one.first) / p99(alone.first),
        p99(one.between) / p99(alone.between),
        (one.tokens + two.tokens) / asked,
    )


def main() -> int:
    """The table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seeds", type=int, default=4)
    args = parser.parse_args()
    if not 5 <= args.seconds <= 3600:
        parser.error(f"--seconds {args.seconds:g}: 5 to 3600")
    if args.seeds < 1:
        parser.error(f"--seeds {args.seeds}: 1 at least")
    print("| sharing | first token | between tokens | tokens of those asked for |")
    print("|---|---|---|---|")
    for name, part in policies().items():
        rows = [measured(part, args.seconds, 10 * n) for n in range(args.seeds)]
        cells = [f"{min(c):.2f} to {max(c):.2f}" for c in zip(*rows, strict=True)]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
