#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""An LLM engine of the GPU benchmarks: it knows nothing of rtxg, and its weights are random.

    llm_engine.py CONTROL OUT [--device cuda|cpu] [--most SECONDS] [--seed N]

A decoding transformer of about 2.8 billion weights with continuous batching, as engines do it: at
most 16 requests at a time, a waiting request's prompt (512 tokens) is read between two decoding
steps, and each step gives every running request one token (a CUDA graph, where that works). A
request is over after 48 tokens.

The file CONTROL gives orders: `N rate R` serves requests that come at random, R a second on
average; `N rate 0` serves as many as it can, 16 at a time; `N stop` drops all; `quit` ends the
program. N is the order's number. A line goes to OUT for each request that is over or dropped:
"N ARRIVAL T1 T2 ...", CLOCK_MONOTONIC ns of its arrival and of each of its tokens. The first line
is "ready graph" or "ready eager".
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import deque
from pathlib import Path
from typing import TextIO

import torch

from control import Control
from decoder import Decoder

PROMPT, TOKENS, SLOTS = 512, 48, 16


class Engine:
    """The model, the requests that run, and those that wait."""

    def __init__(self, device: str, seed: int, out: TextIO) -> None:
        cpu = device == "cpu"
        more = {"width": 64, "layers": 2} if cpu else {"width": 2560, "layers": 36}
        self.prompt_length = 16 if cpu else PROMPT
        room = self.prompt_length + TOKENS + 16
        self.model = Decoder(slots=SLOTS, room=room, device=device, seed=seed, **more)
        self.device, self.out, self.seed = device, out, seed
        self.chance = random.Random(seed)
        self.prompt = torch.arange(self.prompt_length, device=device)
        self.running: dict[int, list[int]] = {}  # slot: arrival and times of its tokens
        self.waiting: deque[int] = deque()  # arrivals
        self.order, self.rate, self.next_arrival = "0", -1.0, 0
        for _ in range(2):
            self.model.prefill(self.prompt, 0)
            self.model.step()
        self.graph = self.model.captured()

    def obey(self, order: str) -> None:
        """A new order: what was there is dropped. Requests come as in every order of that rate."""
        self.chance = random.Random(self.seed)
        for times in (*self.running.values(), *([arrival] for arrival in self.waiting)):
            self.report(times)
        self.running.clear()
        self.waiting.clear()
        number, what, *value = order.split()
        self.order, self.rate = number, float(value[0]) if what == "rate" else -1.0
        self.next_arrival = time.monotonic_ns()

    def report(self, times: list[int]) -> None:
        """A request is over."""
        print(self.order, *times, file=self.out)

    def arrivals(self) -> None:
        """Requests that have come by now."""
        now = time.monotonic_ns()
        if self.rate == 0:
            while len(self.running) + len(self.waiting) < SLOTS:
                self.waiting.append(now)
        while self.rate > 0 and self.next_arrival <= now:
            self.waiting.append(self.next_arrival)
            self.next_arrival += int(self.chance.expovariate(self.rate) * 1e9)

    def admit(self) -> None:
        """Reads the prompt of the request that waits longest, if there is room for it."""
        free = next((s for s in range(SLOTS) if s not in self.running), None)
        if free is None or not self.waiting:
            return
        times = [self.waiting.popleft()]
        self.model.prefill(self.prompt, free)
        self.model.tokens[free].item()
        times.append(time.monotonic_ns())
        self.running[free] = times

    def step(self) -> None:
        """One token for each request that runs."""
        if self.graph:
            self.graph.replay()
        else:
            self.model.step()
        self.model.tokens.tolist()
        now = time.monotonic_ns()
        for slot, times in list(self.running.items()):
            times.append(now)
            if len(times) > TOKENS:
                self.report(times)
                del self.running[slot]

    def turn(self) -> None:
        """What there is to do now; sleeps a little if that is nothing."""
        self.arrivals()
        self.admit()
        if self.running:
            self.step()
        else:
            time.sleep(0.0002)


def main() -> int:
    """Runs the engine."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("control", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--most", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    control = Control(args.control, args.most)
    with args.out.open("w", encoding="ascii", buffering=1) as out:
        engine = Engine(args.device, args.seed, out)
        print("ready", "graph" if engine.graph else "eager", file=out)
        order = ""
        while (word := control.word()) != "quit":
            if word not in (order, "pause"):
                order = word
                engine.obey(order)
            engine.turn()
    return 0


if __name__ == "__main__":
    sys.exit(main())
