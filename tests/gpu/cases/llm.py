# SPDX-License-Identifier: MIT
"""Two LLM engines on one card, one of them prioritized: rtxg, the stock driver, MPS, a card."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness import Setup, awake
from product import CpuMeter, Product, Programs, python

#: requests a second of each engine, of what it can serve when it has the card for itself
LOAD = 0.45
NAMES = ("first", "second")


@dataclass
class Engine:
    """One engine, told what to do by a file."""

    name: str
    control: Path
    out: Path
    said: Path
    pid: int = 0
    orders: int = 0

    def tell(self, what: str) -> str:
        """An order; its number."""
        self.orders += 1
        new = self.control.with_suffix(".new")
        new.write_text(what if what == "quit" else f"{self.orders} {what}", encoding="ascii")
        new.rename(self.control)
        return str(self.orders)

    def ready(self) -> str:
        """Its first line, when it is there."""
        text = self.out.read_text(encoding="ascii") if self.out.exists() else ""
        return text.split("\n")[0] if "\n" in text else ""

    def requests(self, number: str) -> list[np.ndarray]:
        """Arrival and tokens of each request of an order, ns."""
        lines = self.out.read_text(encoding="ascii").split("\n")[1:-1]
        words = [line.split() for line in lines]
        return [np.array(w[1:], dtype=np.int64) for w in words if w[0] == number]


def served(requests: list[np.ndarray], begin: int, end: int) -> dict[str, Any]:
    """Time to the first token and between tokens (ms), and tokens a second, of a window."""
    first = [(r[1] - r[0]) / 1e6 for r in requests if len(r) > 1 and begin <= r[0] < end]
    between: list[float] = []
    tokens = 0
    for r in requests:
        inside = (r[2:] >= begin) & (r[2:] < end)
        between += list(np.diff(r[1:])[inside] / 1e6) if len(r) > 2 else []
        tokens += int(((r[1:] >= begin) & (r[1:] < end)).sum())
    found: dict[str, Any] = {
        "requests": len(first),
        "without_a_token": sum(len(r) == 1 and begin <= r[0] < end for r in requests),
        "tokens_per_s": tokens / (end - begin) * 1e9,
    }
    for name, values in (("ttft", first), ("between", between)):
        for q in (50, 99):
            found[f"{name}_p{q}"] = float(np.percentile(values, q)) if values else None
    return found


class Engines:
    """Both."""

    def __init__(self, setup: Setup, programs: Programs, kind: str) -> None:
        self.setup, self.programs = setup, programs
        w = setup.work
        self.all = [
            Engine(n, w / f"{kind}-{n}.control", w / f"{kind}-{n}.txt", w / f"{kind}-{n}.said")
            for n in NAMES
        ]

    def begin(
        self, product: Product | None, second: dict[str, str] | None = None, **env: str
    ) -> None:
        """Starts both and waits until they are warm; `second`: what the second one's has more."""
        running = []
        for i, e in enumerate(self.all):
            command = python("llm_engine.py", e.control, e.out, "--seed", i + 1)
            more = env | (second or {}) if i else env
            p = self.programs.begin(command, None, product, e.name, said=e.said, **more)
            e.pid = p.pid
            running.append(p)
        end = time.monotonic() + 80
        while not all(e.ready() for e in self.all):
            if any(p.poll() is not None for p in running) or time.monotonic() > end:
                words = [e.said.read_text(errors="replace")[-300:] for e in self.all]
                raise RuntimeError(f"an engine is not ready: {words}")
            time.sleep(0.05)

    def serve(self, rates: list[float], seconds: float) -> list[dict[str, Any] | None]:
        """Both at these rates for so long (a negative rate: none)."""
        numbers = [
            e.tell(f"rate {r:.2f}" if r >= 0 else "stop")
            for e, r in zip(self.all, rates, strict=True)
        ]
        with awake():
            time.sleep(0.8)
            begin = time.monotonic_ns()
            time.sleep(seconds)
            end = time.monotonic_ns()
        for e in self.all:
            e.tell("stop")
        time.sleep(0.3)
        return [
            served(e.requests(n), begin, end) if r >= 0 else None
            for e, n, r in zip(self.all, numbers, rates, strict=True)
        ]

    def quit(self) -> None:
        """Ends both by themselves."""
        for e in self.all:
            e.tell("quit")
        for p in self.programs.processes:
            try:
                p.wait(15)
            except subprocess.TimeoutExpired:
                p.kill()


@contextmanager
def mps_server(setup: Setup) -> Iterator[dict[str, str]]:
    """MPS for a while; the environment of its clients."""
    control = shutil.which("nvidia-cuda-mps-control")
    if not control:
        raise FileNotFoundError("nvidia-cuda-mps-control is not installed")
    env = {
        "CUDA_MPS_PIPE_DIRECTORY": str(setup.work / "llm-mps"),
        "CUDA_MPS_LOG_DIRECTORY": str(setup.work / "llm-mpslog"),
    }
    for place in env.values():
        Path(place).mkdir(exist_ok=True)
    subprocess.run([control, "-d"], env={**os.environ, **env}, check=True, timeout=20)
    try:
        yield env
    finally:
        more = {**os.environ, **env}
        subprocess.run([control], input=b"quit -t 2\n", env=more, check=False, timeout=20)


#: two ways to say that an engine comes first, and the vGPU that it is in then
WAYS = {"with a bound": "first", "critical": "urgent"}


def promise(product: Product) -> dict[str, str]:
    """The first engine comes first; how that was said, for each of the ways."""
    product.vgpu("second", min="30%")
    bounds: list[dict[str, str | int]] = [{"min": "70%", "latency": t} for t in ("4ms", "10ms")]
    return {
        "with a bound": product.promise("first", *bounds, {"min": "70%"}),
        "critical": product.promise("urgent", {"priority": 60}),
    }


#: ways to say to MPS that the first engine comes first: what the second one's environment says
MPS_WAYS: dict[str, dict[str, str]] = {
    "the second below": {"CUDA_MPS_CLIENT_PRIORITY": "1"},
    "the second below, with 30 % of the threads": {
        "CUDA_MPS_CLIENT_PRIORITY": "1",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30",
    },
}


def under_mps(
    setup: Setup, rate: float, length: float, second: dict[str, str] | None = None
) -> list[dict[str, Any] | None]:
    """Both engines as clients of MPS."""
    with mps_server(setup) as env, Programs(setup) as programs:
        engines = Engines(setup, programs, f"mps-{time.monotonic_ns()}")  # files of their own
        try:
            engines.begin(None, second, **env)
            return engines.serve([rate, rate], length)
        finally:
            engines.quit()  # a client that is killed takes the server with it


def record_mps(
    setup: Setup, rate: float, length: float, alone: dict[str, Any], base: float
) -> None:
    """What MPS can do for an engine that comes first, to compare: no figure of rtxg's."""
    for way, environment in MPS_WAYS.items():
        try:
            found = under_mps(setup, rate, length, environment)
        except Exception as e:  # the other figures stand without it
            print(f"    under MPS, {way}: {type(e).__name__}: {e}", flush=True)
            continue
        for name, words in (("ttft", "first token"), ("between", "time between tokens")):
            setup.record(
                f"two LLM engines under MPS, {way}: {words} of the first, p99 over dedicated",
                "times",
                over([found], f"{name}_p99", alone),
                None,
                "-",
                None,
                engines=found,
            )
        setup.record(
            f"two LLM engines under MPS, {way}: tokens a second of both, over those of equals",
            "times",
            total(found) / base,
            None,
            "-",
            None,
        )


def over(
    rounds: list[list[dict[str, Any] | None]], key: str, alone: dict[str, Any]
) -> float | None:
    """A figure of the prioritized engine over what it is with a card for itself; None: unknown."""
    values = [r[0][key] if r and r[0] else None for r in rounds]
    if not values or None in values or not alone[key]:
        return None
    return float(np.mean([v for v in values if v is not None])) / alone[key]


def total(found: list[dict[str, Any] | None]) -> float:
    """Tokens a second of both."""
    return sum(f["tokens_per_s"] for f in found if f)


def case_llm(setup: Setup) -> None:
    """Two LLM engines at equal load, one prioritized: first token, tokens, throughput."""
    length, rounds = setup.seconds(4, 8), 1 if setup.quick else 3
    stock: list[list[Any]] = []
    rtxg: dict[str, list[list[Any]]] = {way: [] for way in WAYS}
    cpu: dict[str, list[float]] = {way: [] for way in WAYS}
    product = Product(setup)
    with Programs(setup) as programs:
        engines = Engines(setup, programs, "llm")
        try:
            product.start()
            said = promise(product)
            engines.begin(product)
            most = engines.serve([0, -1], setup.seconds(2, 4))[0]
            assert most
            capacity = most["tokens_per_s"] / 48  # tokens of a request
            if capacity <= 0:
                raise RuntimeError("an engine that is alone gives no token")
            rate = LOAD * capacity
            print(
                f"    {capacity:.1f} requests a second at most, {engines.all[0].ready()}",
                flush=True,
            )
            for n in range(rounds):
                if n:
                    product.start()
                    promise(product)
                for way, vgpu in WAYS.items():
                    product.rtxg("set", "-p", str(engines.all[0].pid), "-v", vgpu)
                    meter = CpuMeter(product)
                    rtxg[way].append(engines.serve([rate, rate], length))
                    cpu[way].append(meter.percent())
                product.stop()
                if not n:
                    alone = engines.serve([rate, -1], length)[0]
                stock.append(engines.serve([rate, rate], length))
        finally:
            engines.quit()
            product.__exit__()
    assert alone
    why, mps = "", None
    try:
        mps = under_mps(setup, rate, length)
    except Exception as e:  # the other figures stand without it
        why = f"{type(e).__name__}: {e}"
    detail = {
        "promise": said,
        "most_requests_per_s": capacity,
        "rate_of_each": rate,
        "dedicated": alone,
        "stock_rounds": stock,
        "rtxg_rounds": rtxg,
        "mps": mps or why,
        "rtxgd_cpu_percent": cpu,
    }
    for way, found in rtxg.items():
        for name, words in (("ttft", "first token"), ("between", "time between tokens")):
            for q in (50, 99):
                key = f"{name}_p{q}"
                value = over(found, key, alone)
                late = q == 99 and (value is None or value > 1.2)
                setup.record(
                    f"two LLM engines, the first {way}: its {words}, p{q} over dedicated",
                    "times",
                    over(stock, key, alone),
                    value,
                    "1.2" if q == 99 else "-",
                    not late if q == 99 else None,
                    mps_over_dedicated=over([mps], key, alone) if mps else None,
                    **detail,
                )
                detail = {}
        sums = {
            "stock": float(np.mean([total(r) for r in stock])),
            "rtxg": float(np.mean([total(r) for r in found])),
            "mps": total(mps) if mps else None,
        }
        base = sums["mps"] or sums["stock"]
        if not base:
            raise RuntimeError("both engines together gave no token")
        setup.record(
            f"two LLM engines, the first {way}: tokens a second of both, over those under "
            + ("MPS" if mps else "the stock driver"),
            "times",
            sums["stock"] / base,
            sums["rtxg"] / base,
            "1",
            sums["rtxg"] >= base,
            tokens_per_s=sums,
        )
    if mps:
        record_mps(setup, rate, length, alone, total(mps))
