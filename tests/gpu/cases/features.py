# SPDX-License-Identifier: MIT
"""What CUDA has beside plain kernels: right results, shares, and deaths that harm no other one."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np

from harness import Setup, progress
from product import Product, Programs, daemon_and_programs, python

from .apis import Speaker, wait_for_work

#: what bench/gpu/features.cu can do in one process
KINDS = (
    "managed",
    "cooperative",
    "persistent",
    "child",
    "streams",
    "graph",
    "copies",
    "green",
    "oversubscribed",
)
#: alone, a round of these takes two or three times as long in one run as in the next
UNSTEADY = ("oversubscribed",)
MINE, ITS = 30, 70  # percent reserved for such a program, and for the one beside it
LOST = 5  # percent points of its speed alone that change-overs may cost
PAUSE_MS = 100  # a program that has work makes progress that soon after the other was killed
AWAY_S = 2  # so long a program is off its GPU
NO_CHECKPOINTS = 77  # of bench/gpu/checkpoint.py, where the driver has none

#: promises for the one of two that wait for each other; the first of them has half of the GPU
WAYS: tuple[tuple[str, dict[str, str | int]], ...] = (
    ("in one vGPU of 50 %", {}),
    ("in two of 25 %", {"min": "25%"}),
    ("in two of 25 %, one with a bound of 5 ms", {"min": "25%", "latency": "5ms"}),
    ("one of them critical", {"priority": 60}),
    ("one of them critical, every 10 ms", {"priority": 60, "period": "10ms"}),
)
PAIR_AIM = 45  # percent of its speed alone, in one vGPU of 50 %
PAIR_PAUSE_MS = 500


def measured(seconds: float, *speakers: Speaker) -> list[float]:
    """Their rates, from some time from now on."""
    time.sleep(0.8)
    start = time.monotonic_ns()
    time.sleep(seconds)
    end = time.monotonic_ns() - 30_000_000
    return [s.rate(start, end) for s in speakers]


class Rival(Speaker):
    """A program that always has work; it is held still while nothing is measured beside it."""

    def __init__(self, setup: Setup, programs: Programs, product: Product, life: float) -> None:
        out = setup.work / f"rival-{time.monotonic_ns()}.txt"
        command = programs.load("hog", setup.turns_of(1000), life, out)
        hog = programs.begin(command, None, product, "rival")
        super().__init__("rival", [hog.pid], [out])
        wait_for_work(self, hog, setup.work / "none")

    def pause_ms(self, since: int) -> float:
        """The longest for which it has made no progress since then."""
        rows = progress(self.outputs[0])
        moved = rows[np.flatnonzero(np.diff(rows[:, 1], prepend=-1) > 0), 0]
        moved = np.concatenate([[since], moved[moved > since], [time.monotonic_ns()]])
        return float(np.diff(moved).max() / 1e6)


class Scene:
    """A rival, and beside it one program after the other that uses a feature."""

    def __init__(self, setup: Setup, programs: Programs, product: Product, runs: int) -> None:
        self.setup, self.programs, self.product = setup, programs, product
        self.length = setup.seconds(1.5, 4)
        self.life = runs * setup.seconds(12, 22)
        product.vgpu("rival", min=f"{ITS}%")
        self.rival = Rival(setup, programs, product, self.life)
        self.rival_alone = measured(self.length, self.rival)[0]
        self.rival.let(False)

    def begin(self, kind: str, governed: bool) -> tuple[Speaker, subprocess.Popen[bytes], Path]:
        """Starts a program, in the vGPU of its name if it is to be governed."""
        # one file for each run: what another run has said is not this one's
        stem = f"features-{kind}-{time.monotonic_ns()}"
        out, said = self.setup.work / f"{stem}.txt", self.setup.work / f"{stem}-said.txt"
        command = [str(self.setup.bin / "features"), kind, str(self.life), str(out)]
        product, vgpu = (self.product, kind) if governed else (None, None)
        p = self.programs.begin(command, None, product, vgpu, said=said)
        speaker = Speaker(kind, [p.pid], [out])
        wait_for_work(speaker, p, said)
        return speaker, p, said

    def beside(self, speaker: Speaker, alone: float) -> list[float]:
        """What it and the rival keep of their speeds alone, percent."""
        mine, its = measured(self.length, speaker, self.rival)
        return [100 * mine / alone, 100 * its / self.rival_alone]

    def with_stock(self, kind: str) -> list[float]:
        """The same with the driver's own sharing."""
        speaker, p, _ = self.begin(kind, False)
        if speaker.why_not:
            return []
        alone = measured(self.length, speaker)[0]
        self.rival.let(True)
        kept = self.beside(speaker, alone)
        self.rival.let(False)
        p.terminate()
        p.wait(20)
        return kept

    def governed(self, kind: str) -> dict[str, Any]:
        """With rtxg; then beside urgent work, too; then it is killed among it all."""
        product = self.product
        product.vgpu(kind, min=f"{MINE}%")
        speaker, p, said = self.begin(kind, True)
        if speaker.why_not:
            product.vgpu(kind, min="0%")
            return {"skipped": speaker.why_not}
        alone = measured(self.length, speaker)[0]
        self.rival.let(True)
        kept = self.beside(speaker, alone)
        before = product.vgpus()[kind]
        task, _ = self.programs.sporadic(
            self.length + 3, product, "urgent", period_us=5000, jitter_us=3000
        )
        beside_urgent = self.beside(speaker, alone)
        after = product.vgpus()[kind]
        right = p.poll() is None
        listed = [t for t in product.tasks().values() if t["pid"] == p.pid]
        killed = time.monotonic_ns()
        p.kill()
        p.wait(20)
        died_ms = (time.monotonic_ns() - killed) / 1e6
        time.sleep(1)
        pause = self.rival.pause_ms(killed)
        task.kill()
        self.rival.let(False)
        product.vgpu(kind, min="0%")
        return {
            "kept": kept,
            "beside_urgent_work": beside_urgent,
            "rounds_a_second_alone": alone,
            "right": right,
            "said": said.read_text(errors="replace")[-300:],
            "stops": after["expelled"] - before["expelled"],
            "stays": after["grants"] - before["grants"],
            "died_ms": died_ms,
            "pause_ms": pause,
            "listed": [
                {k: t.get(k) for k in ("comm", "vgpu", "managed", "channels", "remedy")}
                for t in listed
            ],
        }


def case_features(setup: Setup) -> None:
    """Managed memory, grid barriers, endless kernels, child kernels, graphs: right, with 30 %."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    stock: dict[str, list[float]] = {}
    builds = setup.builds()
    with daemon_and_programs(setup) as (product, programs):
        scene = Scene(setup, programs, product, (1 + len(builds)) * len(KINDS))
        for build, place in builds.items():
            if build:
                product.stop()
                product.use(place)
                product.start()
                product.vgpu("rival", min=f"{ITS}%")
            product.promise("urgent", {"priority": 60})
            for kind in KINDS:
                found[build, kind] = scene.governed(kind)
        product.stop()
        for kind in KINDS:
            stock[kind] = scene.with_stock(kind)
    for (build, kind), got in found.items():
        name = f"{build}{kind}: speed kept with {MINE} % beside a CUDA program with {ITS} %"
        if "skipped" in got:
            why = got["skipped"]
            setup.record(name, "% of alone", None, None, f"{MINE - LOST}", None, skipped=why)
            continue
        mine, its = got.pop("kept")
        by_stock = stock[kind] or [None, None]
        # Copies that go on beside kernels do so less in turns, and less yet under the stock driver.
        least = min(MINE - LOST, by_stock[0] or MINE)
        met = mine >= least and its >= ITS - LOST
        unsteady = kind in UNSTEADY
        setup.record(
            name,
            "% of alone",
            by_stock[0],
            mine,
            "-" if unsteady else f"{least:.0f}, the other {ITS - LOST}",
            None if unsteady else met,
            the_other=its,
            the_other_with_stock=by_stock[1],
            **got,
        )
    ran = [got for got in found.values() if "skipped" not in got]
    setup.record(
        "such programs whose every result was right, stopped at any moment",
        f"of {len(ran)}",
        None,
        sum(got["right"] for got in ran),
        str(len(ran)),
        all(got["right"] for got in ran) if ran else None,
    )
    setup.record(
        "longest that a program had no progress after such a one was killed",
        "ms",
        None,
        max((got["pause_ms"] for got in ran), default=None),
        str(PAUSE_MS),
        all(got["pause_ms"] <= PAUSE_MS for got in ran) if ran else None,
    )


class Pair:
    """Two processes that wait for each other's work on the GPU; no product: none is governed."""

    def __init__(
        self,
        setup: Setup,
        programs: Programs,
        product: Product | None,
        second: str = "",
        *options: str,
    ) -> None:
        stem = f"pair-{time.monotonic_ns()}"
        path = setup.work / f"{stem}.pipe"
        said = setup.work / f"{stem}-said.txt"
        self.processes, outs = [], []
        for side, vgpu, more in (("produce", "first", ()), ("consume", second, options)):
            out = setup.work / f"{stem}-{side}.txt"
            command = [str(setup.bin / "features"), side, "100", str(out), str(path)]
            p = programs.begin(command, None, product, vgpu if product else None, *more, said=said)
            self.processes.append(p)
            outs.append(out)
        self.speaker = Speaker("pair", [p.pid for p in self.processes], [outs[1]])
        wait_for_work(self.speaker, self.processes[1], said)
        if self.speaker.why_not:
            raise RuntimeError(self.speaker.why_not)

    def end(self) -> float:
        """Ends both; the longest between two rounds, ms."""
        for p in self.processes:
            p.terminate()
        statuses = [p.wait(20) for p in self.processes]
        if any(statuses):
            raise RuntimeError(f"two processes that wait for each other ended with {statuses}")
        return float(np.diff(progress(self.speaker.outputs[0])[:, 0]).max() / 1e6)


def pair_kept(
    setup: Setup, programs: Programs, product: Product, rival: Rival, alone: tuple[float, float]
) -> dict[str, tuple[float, float, float]]:
    """For each way: what the pair and the rival keep of their speeds alone; the longest pause."""
    found = {}
    for number, (name, values) in enumerate(WAYS):
        second = f"second{number}" if values else "first"
        product.vgpu("first", min="25%" if values else "50%")
        options = [f"--period={values['period']}"] if "period" in values else []
        if values:
            product.vgpu(second, **{k: v for k, v in values.items() if k != "period"})
        pair = Pair(setup, programs, product, second, *options)
        rival.let(True)
        mine, its = measured(setup.seconds(1.5, 4), pair.speaker, rival)
        found[name] = (100 * mine / alone[0], 100 * its / alone[1], pair.end())
        rival.let(False)
        if values.get("min"):
            product.vgpu(second, min="0%")
    return found


def case_pair(setup: Setup) -> None:
    """Two processes that wait for each other on the GPU, and a third: none is stopped for ever."""
    length = setup.seconds(1.5, 4)
    if not (setup.bin / "features").exists():
        name = "two processes that wait for each other: speed kept"
        why = "bench/gpu/features.cu could not be built: an older CUDA has not all of it"
        setup.record(name, "% of alone", None, None, str(PAIR_AIM), None, skipped=why)
        return
    found: dict[str, dict[str, tuple[float, float, float]]] = {}
    with daemon_and_programs(setup) as (product, programs):
        product.vgpu("rival", min="50%")
        product.vgpu("first", min="50%")
        rival = Rival(setup, programs, product, 300)
        its_alone = measured(length, rival)[0]
        rival.let(False)
        pair = Pair(setup, programs, product, "first")
        alone = (measured(length, pair.speaker)[0], its_alone)
        pair.end()
        for build, place in setup.builds().items():
            if build:
                product.stop()
                product.use(place)
                product.start()
                product.vgpu("rival", min="50%")
            found[build] = pair_kept(setup, programs, product, rival, alone)
        product.stop()
        pair = Pair(setup, programs, None)
        rival.let(True)
        mine, its = measured(length, pair.speaker, rival)
        stock = (100 * mine / alone[0], 100 * its / alone[1], pair.end())
    for build, ways in found.items():
        for name, (mine, its, pause) in ways.items():
            first = name == WAYS[0][0]
            setup.record(
                f"{build}two processes that wait for each other, {name}: speed kept",
                "% of alone",
                stock[0],
                mine,
                str(PAIR_AIM) if first else "-",
                mine >= PAIR_AIM if first else None,
                the_other=its,
                the_other_with_stock=stock[1],
                pause_ms=pause,
                pause_ms_with_stock=stock[2],
            )
        setup.record(
            f"{build}the same: longest that neither made progress",
            "ms",
            stock[2],
            max(pause for _, _, pause in ways.values()),
            str(PAIR_PAUSE_MS),
            all(pause <= PAIR_PAUSE_MS for _, _, pause in ways.values()),
        )


def case_checkpoint(setup: Setup) -> None:
    """A program that is taken off the GPU by the driver, and put back: its share is right again."""
    name = "a program that was checkpointed and restored: share of the last 2 s"
    outs, pids = {}, {}

    def share_of_moved(seconds: float) -> float:
        """Percent of the work from now on."""
        start = time.monotonic_ns()
        time.sleep(seconds)
        end = time.monotonic_ns() - 30_000_000
        work = {}
        for vgpu, out in outs.items():
            rows = progress(out)
            work[vgpu] = np.diff(np.interp([start, end], rows[:, 0], rows[:, 1]))[0]
        return float(100 * work["moved"] / sum(work.values()))

    said = setup.work / "checkpoint-said.txt"
    with Product(setup) as product, Programs(setup) as programs:
        for vgpu, due in (("rival", ITS), ("moved", MINE)):
            product.vgpu(vgpu, min=f"{due}%")
            outs[vgpu] = setup.work / f"checkpoint-{vgpu}.txt"
            command = programs.load("hog", setup.turns_of(1000), 60, outs[vgpu])
            pids[vgpu] = programs.begin(command, outs[vgpu], product, vgpu).pid
        programs.wait_working()
        time.sleep(1)
        before = share_of_moved(setup.seconds(1.5, 4))
        with said.open("wb") as file:
            command = python("checkpoint.py", pids["moved"], AWAY_S)
            mover = subprocess.Popen(command, stdout=file, stderr=file)
        away = share_of_moved(AWAY_S / 2)
        status = mover.wait(60)
        after = [share_of_moved(0.5) for _ in range(8)]
    last = float(np.mean(after[-4:]))
    words = said.read_text(errors="replace").strip()
    if status == NO_CHECKPOINTS:
        setup.record(name, "% of the work", None, None, f"{MINE} +- 1.5", None, skipped=words)
        return
    setup.record(
        name,
        "% of the work",
        None,
        last,
        f"{MINE} +- 1.5",
        status == 0 and abs(last - MINE) <= 1.5,
        before=before,
        from_its_order_on=away,
        after=after,
        status=status,
        steps=words,
    )
