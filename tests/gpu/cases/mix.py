# SPDX-License-Identifier: MIT
"""Programs as people run them: JAX, PyTorch, CuPy, and a chat that asks for a bound."""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from harness import Setup, awake
from product import (
    CpuMeter,
    Product,
    Programs,
    Timeline,
    core_idle_ns,
    idle_while_wanted,
    overlap,
    python,
)

BATCH = ("jax", "train", "fft")
KINDS = (*BATCH, "chat")
BOUND_MS = 5
SHARES = {"chat": 30, "jax": 20, "train": 20, "fft": 20}


@dataclass
class Mix:
    """The four programs, which run and pause as they are told."""

    setup: Setup
    programs: Programs
    device: str = "cuda"
    pid: dict[str, int] = field(default_factory=dict)

    def control(self, kind: str) -> Path:
        """The file that tells it."""
        return self.setup.work / f"mix-{kind}.control"

    def out(self, kind: str) -> Path:
        """What it has done."""
        return self.setup.work / f"mix-{kind}.txt"

    def begin(self, product: Product | None) -> None:
        """Starts all four, and waits until they are warm."""
        for kind in KINDS:
            self.tell("pause", kind)
            command = python(
                "framework_load.py",
                kind,
                self.control(kind),
                self.out(kind),
                "--device",
                self.device,
            )
            said = self.setup.work / f"said-{kind}.txt"
            p = self.programs.begin(command, None, product, kind, said=said)
            self.pid[kind] = p.pid
        end = time.monotonic() + 100
        while not all(self.out(k).exists() and self.out(k).stat().st_size for k in KINDS):
            ended = [
                k
                for k, p in zip(KINDS, self.programs.processes, strict=False)
                if p.poll() is not None
            ]
            if ended or time.monotonic() > end:
                raise RuntimeError(f"not warm; ended: {ended}; {self.last_words()}")
            time.sleep(0.05)

    def last_words(self) -> dict[str, str]:
        """The last lines that each has printed."""
        said = {k: self.setup.work / f"said-{k}.txt" for k in KINDS}
        return {k: p.read_text(errors="replace")[-300:] for k, p in said.items() if p.exists()}

    def tell(self, word: str, *kinds: str) -> None:
        """run, pause or quit; each file in one step."""
        for kind in kinds:
            new = self.control(kind).with_suffix(".new")
            new.write_text(word, encoding="ascii")
            new.rename(self.control(kind))

    def rows(self, kind: str) -> np.ndarray:
        """(n, 4): begin ns, end ns, request, token of each piece of work."""
        lines = [x.split() for x in self.out(kind).read_text(encoding="ascii").split("\n")[1:-1]]
        found = [
            [int(a), int(b), *map(int, c.split("."))]
            for a, b, c in (x for x in lines if len(x) == 3)
        ]
        return np.array(found, dtype=np.int64).reshape(-1, 4)

    def measure(self, seconds: float, *kinds: str, idle: bool = False) -> tuple[int, int]:
        """Lets them run for so long; the window, of which the first part is not counted. With
        `idle` the CPUs may go into their idle states."""
        with nullcontext() if idle else awake():
            self.tell("run", *kinds)
            time.sleep(0.5)
            begin = time.monotonic_ns()
            time.sleep(seconds)
            end = time.monotonic_ns()
        return begin, end

    def results(self, begin: int, end: int, *kinds: str) -> dict[str, Any]:
        """Pieces of work a second, and the chat's times for a token."""
        found: dict[str, Any] = {}
        for kind in kinds:
            rows = self.rows(kind)
            if kind == "chat":
                mine = rows[(rows[:, 1] >= begin) & (rows[:, 1] < end)]
                ms = (mine[:, 1] - mine[:, 0]) / 1e6
                if not len(ms):
                    raise RuntimeError("the chat did not get one token out")
                found["tokens"] = len(ms)
                found["p50"], found["p99"] = (float(np.percentile(ms, q)) for q in (50, 99))
                found["max"] = float(ms.max())
                found["chat"] = len(ms) / 8 / (end - begin) * 1e9
                continue
            done = (
                np.interp([begin, end], rows[:, 1], np.arange(len(rows))) if len(rows) else [0, 0]
            )
            found[kind] = float(done[1] - done[0]) / (end - begin) * 1e9
        return found

    def spans(self) -> dict[int, list[tuple[int, int]]]:
        """When each program had work, by pid."""
        return {self.pid[k]: [(int(a), int(b)) for a, b, _, _ in self.rows(k)] for k in KINDS}


def engine_ns(product: Product) -> int:
    """For how long the chat has been on the engine."""
    return int(product.vgpus()["chat"]["busy_ns"])


def needed(mix: Mix, seconds: float) -> float:
    """The part of the time in which the chat makes tokens while it has the engine for itself, in
    percent: it has to be on the engine for so long. Its processor launches small kernels, and a
    slower one takes longer.
    """
    begin, end = mix.measure(seconds, "chat")
    mix.tell("pause", "chat")
    rows = mix.rows("chat")
    mine = rows[(rows[:, 1] >= begin) & (rows[:, 1] < end)]
    return 100 * float((mine[:, 1] - mine[:, 0]).sum()) / (end - begin)


def reserved(need: float) -> int:
    """What a person reserves for it: a fifth more than it takes, in steps of five, and 30 % at
    least. A bound holds within a reservation.
    """
    return max(SHARES["chat"], min(60, 5 * math.ceil(1.2 * need / 5)))


def promise(product: Product, chat: int) -> str:
    """Makes the vGPUs, with so many percent for the chat; how its bound was said."""
    rest = (100 - chat) * SHARES["jax"] // (100 - SHARES["chat"])
    for kind in BATCH:
        product.vgpu(kind, min=f"{rest}%")
    share = f"{chat}%"
    bound: dict[str, str | int] = {"min": share, "latency": f"{BOUND_MS}ms"}
    return product.promise("chat", bound, {"min": share, "priority": 60})


def without_engine(line: Timeline, rows: np.ndarray, pid: int, begin: int, end: int) -> np.ndarray:
    """(n, 2) of the chat's tokens that the log covers: which of its request each is, and for how
    many ns the chat was not on the engine meanwhile.

    What remains of a token's time is the chat's own: its processor launches small kernels.
    """
    begin, end = max(begin, line.begin), min(end, line.known)
    mine = rows[(rows[:, 0] >= begin) & (rows[:, 1] < end)]
    own = overlap(line.stays.get(pid, []), mine[:, 0], mine[:, 1])
    return np.column_stack([mine[:, 3], mine[:, 1] - mine[:, 0] - own])


def governed(product: Product, mix: Mix, seconds: float) -> dict[str, Any]:
    """One stretch under rtxg."""
    counted, on_engine = core_idle_ns(product), engine_ns(product)
    cpu = CpuMeter(product)
    begin, end = mix.measure(seconds, *KINDS)
    used = cpu.percent()
    now, on_engine = core_idle_ns(product), engine_ns(product) - on_engine
    policy = product.gpu()["policy"]
    line = product.timeline()
    tasks = product.tasks()
    mix.tell("pause", *KINDS)
    found = mix.results(begin, end, *KINDS)
    length = end - begin + 500_000_000
    idle = idle_while_wanted(line, mix.spans(), begin, end)
    waited = without_engine(line, mix.rows("chat"), mix.pid["chat"], begin, end)
    names = {pid: kind for kind, pid in mix.pid.items()} | {0: "no program"}
    held = idle.pop("percent_by_pid_on_the_engine")
    idle["by_who_held_it"] = {names.get(p, "another"): v for p, v in held.items()}
    return found | {
        "idle_by_the_core_percent": None if now is None else 100 * (now - (counted or 0)) / length,
        "idle": idle,
        "waited": waited,
        "policy": policy,
        "chat_percent_of_the_engine": 100 * on_engine / length,
        "rtxgd_cpu_percent": used,
        "managed": {k: tasks.get(mix.pid[k], {}).get("managed") for k in KINDS},
        "acts": {k: line.acts.get(mix.pid[k], {}) for k in KINDS},
    }


def over(found: dict[str, Any], alone: dict[str, Any]) -> dict[str, float]:
    """Each rate over what the program has alone."""
    return {k: found[k] / alone[k] for k in KINDS}


def mean(rounds: list[dict[str, Any]], what: str) -> float:
    """Of a figure, over the rounds."""
    return float(np.mean([r[what] for r in rounds]))


def in_turns(builds: list[Path], rounds: int) -> list[list[Path]]:
    """Which builds are measured after each other in each round: in turns, none always first."""
    return [builds if n % 2 == 0 else builds[::-1] for n in range(rounds)]


def case_mix(setup: Setup) -> None:
    """JAX, PyTorch, CuPy and a chat with a bound of 5 ms: tokens, work, idle time."""
    rounds = 1 if setup.quick else 5
    length = setup.seconds(5, 6)
    alone: dict[str, Any] = {}
    chat_alone: list[dict[str, Any]] = []
    stock: list[dict[str, Any]] = []
    builds = [setup.bin, *setup.beside]
    rtxg: dict[Path, list[dict[str, Any]]] = {build: [] for build in builds}
    product = Product(setup)
    with Programs(setup) as programs:
        mix = Mix(setup, programs)
        try:
            product.start()
            promise(product, SHARES["chat"])
            began = time.monotonic()
            mix.begin(product)
            print(f"    all four are warm after {time.monotonic() - began:.1f} s", flush=True)
            need = needed(mix, setup.seconds(2, 4))
            chat = reserved(need)
            said = promise(product, chat)
            print(f"    the chat makes tokens for {need:.1f} % of the time: {said}", flush=True)
            time.sleep(1)
            rtxg[setup.bin].append(governed(product, mix, length))
            product.stop()
            for kind in BATCH:
                window = mix.measure(setup.seconds(1.2, 3), kind)
                mix.tell("pause", kind)
                alone |= mix.results(*window, kind)
                time.sleep(0.2)
            window = mix.measure(setup.seconds(3, 8), "chat", idle=True)
            mix.tell("pause", "chat")
            sleepy = mix.results(*window, "chat")
            for n, turns in enumerate(in_turns(builds, rounds)):
                # A token's time changes with the CPU within the run: alone it is taken each round.
                window = mix.measure(setup.seconds(3, 5), "chat")
                mix.tell("pause", "chat")
                chat_alone.append(mix.results(*window, "chat"))
                time.sleep(0.2)
                for build in turns:
                    if n == 0 and build == setup.bin:
                        continue  # that was the first one
                    product.use(build)
                    product.start()
                    promise(product, chat)
                    rtxg[build].append(governed(product, mix, length))
                    product.stop()
                window = mix.measure(length, *KINDS)
                mix.tell("pause", *KINDS)
                stock.append(mix.results(*window, *KINDS))
                time.sleep(0.2)
        finally:
            mix.tell("quit", *KINDS)
            product.__exit__()
    alone |= {what: mean(chat_alone, what) for what in ("p50", "p99", "chat")}
    detail = {
        "alone": alone,
        "chat_alone_rounds": chat_alone,
        "chat_alone_with_idle_cpus": sleepy,
        "stock_rounds": stock,
        "promise": said,
        "chat_alone_makes_tokens_percent": need,
    }
    for build in builds:
        name = f"mix, {build.name}" if setup.beside else "mix"
        record_build(setup, name, length, stock, rtxg[build], detail)


def record_build(
    setup: Setup,
    name: str,
    length: float,
    stock: list[dict[str, Any]],
    rtxg: list[dict[str, Any]],
    detail: dict[str, Any],
) -> None:
    """The lines of one build."""
    alone = detail["alone"]
    waited = np.concatenate([r.pop("waited") for r in rtxg])
    for q, aim in (("p50", 1.1), ("p99", 1.25)):
        value = mean(rtxg, q) / alone[q]
        setup.record(
            f"{name}: the chat's time for a token: {q} over alone",
            "times",
            mean(stock, q) / alone[q],
            value,
            f"{aim:g}",
            value <= aim,
            **({**detail, "rtxg_rounds": rtxg} if q == "p50" else {}),
        )
    for which, mine, aim in (
        ("first token", waited[:, 0] == 0, f"{BOUND_MS}"),
        ("later tokens", waited[:, 0] > 0, "-"),
    ):
        ms = waited[mine, 1] / 1e6
        late = float(np.percentile(ms, 99)) if len(ms) else None
        setup.record(
            f"{name}: the chat waited for the engine within a request's {which}: p99",
            "ms",
            None,
            late,
            aim,
            None if aim == "-" or late is None else late <= BOUND_MS,
            tokens=len(ms),
            median=float(np.median(ms)) if len(ms) else None,
        )
    sums = {
        name: float(np.mean([sum(over(r, alone).values()) for r in found]))
        for name, found in (("stock", stock), ("rtxg", rtxg))
    }
    value = sums["rtxg"] / sums["stock"]
    setup.record(
        f"{name}: sum over all four of rate / rate alone, over stock's",
        "times",
        1.0,
        value,
        "1.02",
        value >= 1.02,
        sums=sums,
        each_stock=[over(r, alone) for r in stock],
        each_rtxg=[over(r, alone) for r in rtxg],
    )
    by_log = float(np.mean([r["idle"]["idle_percent"] for r in rtxg]))
    covered = min(r["idle"]["seconds"] for r in rtxg) >= length / 2  # the log is a ring
    by_core = [r["idle_by_the_core_percent"] for r in rtxg]
    setup.record(
        f"{name}: engine idle while a stopped program has work, by the switch log and the programs",
        "% of the time",
        None,
        by_log if covered else None,
        "2",
        by_log <= 2 if covered else None,
        each=[r["idle"] for r in rtxg],
        **({} if covered else {"reason": "the log covers less than half of the time"}),
    )
    known = None not in by_core
    setup.record(
        f"{name}: the same by the core's own count",
        "% of the time",
        None,
        float(np.mean(by_core)) if known else None,
        "2",
        float(np.mean(by_core)) <= 2 if known else None,
        each=by_core,
        **({} if known else {"reason": "this product does not count it"}),
    )
