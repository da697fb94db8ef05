# SPDX-License-Identifier: MIT
"""Programs that were stopped again and again compute what they compute alone, bit by bit."""

from __future__ import annotations

import time
from pathlib import Path

from harness import Setup
from product import Product, Programs, python

KINDS = ("cublas", "fft", "train", "decode")


class Calculators:
    """One program of each kind, told what to do by a file each."""

    def __init__(self, setup: Setup, programs: Programs, product: Product) -> None:
        self.programs, self.orders = programs, 0
        self.control = {k: setup.work / f"exact-{k}.control" for k in KINDS}
        self.out = {k: setup.work / f"exact-{k}.txt" for k in KINDS}
        self.said = setup.work / "exact-said.txt"
        for kind in KINDS:
            command = python(
                "exact_load.py", kind, self.control[kind], self.out[kind], "--most", 200
            )
            programs.begin(command, None, product, kind, said=self.said)

    def lines(self, kind: str) -> list[list[str]]:
        """What a program has written."""
        path: Path = self.out[kind]
        text = path.read_text(encoding="ascii") if path.exists() else ""
        return [line.split() for line in text.split("\n")[:-1]]

    def tell(self, kind: str, order: str) -> None:
        """One order, in one step."""
        new = self.control[kind].with_suffix(".new")
        new.write_text(order, encoding="ascii")
        new.rename(self.control[kind])

    def wait(self, kind: str, number: int, limit_s: float) -> list[str]:
        """The line about an order."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            for words in self.lines(kind):
                if words[0] == str(number):
                    return words
            if any(p.poll() not in (None, 0) for p in self.programs.processes):
                said = self.said.read_text(errors="replace")[-500:]
                raise RuntimeError(f"a program has failed while {kind} was waited for: {said}")
            time.sleep(0.01)
        raise RuntimeError(f"{kind} does not come to the end of order {number} in {limit_s:g} s")

    def order(self, kind: str, what: str, limit_s: float) -> list[str]:
        """An order, and the line about it."""
        self.orders += 1
        self.tell(kind, f"{self.orders} {what}")
        return self.wait(kind, self.orders, limit_s)


def stops(product: Product) -> dict[str, tuple[int, int]]:
    """How often each vGPU was stopped so far, and how often it came onto the engine."""
    return {k: (v["expelled"], v["grants"]) for k, v in product.vgpus().items()}


def case_exact(setup: Setup) -> None:
    """Bit for bit: cuBLAS, FFTs, training, decoding, stopped thousands of times, against alone."""
    # what is done first is to be stopped 1000 times, too: 469 times in 6 s on an H200
    alone_s = setup.seconds(0.8, 16)
    with Product(setup) as product, Programs(setup) as programs:
        for kind, share in zip(KINDS, (30, 20, 20, 20), strict=True):
            product.vgpu(kind, min=f"{share}%")
        # Its work comes 200 times a second, and each time the others are stopped for it.
        said = product.promise("urgent", {"latency": "2ms"}, {"priority": 60})
        options = [] if "latency" in said else ["--period", "5ms"]
        calculators = Calculators(setup, programs, product)
        for kind in KINDS:
            calculators.wait(kind, 0, 100)
        first: dict[str, list[str]] = {}
        second: dict[str, list[str]] = {}
        for kind in KINDS:
            first[kind] = calculators.order(kind, f"for {alone_s}", alone_s + 30)
            half = max(1, int(first[kind][1]) // 4)
            again = [calculators.order(kind, f"rounds {half}", 30) for _ in range(2)]
            second[kind] = [again[0][2], again[1][2]]
        before = stops(product)
        task, _ = programs.sporadic(
            600 * alone_s, product, "urgent", *options, period_us=5000, jitter_us=0
        )
        time.sleep(0.7)
        numbers = {}
        for kind in KINDS:
            calculators.orders += 1
            numbers[kind] = calculators.orders
            calculators.tell(kind, f"{calculators.orders} rounds {first[kind][1]}")
        lines = {k: calculators.wait(k, numbers[k], 40 * alone_s + 30) for k in KINDS}
        after = stops(product)
        task.kill()
        acts = {k: after[k][0] - before[k][0] for k in KINDS}
        stays = {k: after[k][1] - before[k][1] for k in KINDS}
        for kind in KINDS:
            calculators.tell(kind, "quit")
    same = {k: lines[k][2] == first[k][2] and lines[k][1] == first[k][1] for k in KINDS}
    # a program whose results differ from run to run when nothing disturbs it proves nothing
    repeats = {k: second[k][0] == second[k][1] for k in KINDS}
    setup.record(
        "programs whose results are bit for bit those of a run alone",
        f"of {len(KINDS)}",
        None,
        sum(same[k] for k in KINDS),
        str(len(KINDS)),
        all(same.values()),
        same=same,
        the_same_twice_when_alone=repeats,
        rounds={k: int(first[k][1]) for k in KINDS},
        seconds_alone={k: (int(first[k][4]) - int(first[k][3])) / 1e9 for k in KINDS},
        seconds_beside={k: (int(lines[k][4]) - int(lines[k][3])) / 1e9 for k in KINDS},
    )
    least = min(acts.values())
    setup.record(
        "the same: times that each was stopped meanwhile, at least",
        "times",
        None,
        least,
        "-" if setup.quick else "1000",
        None if setup.quick else least >= 1000,
        stops=acts,
        came_onto_the_engine=stays,
        the_urgent_one=said,
    )
