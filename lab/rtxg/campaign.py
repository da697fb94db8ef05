# SPDX-License-Identifier: MIT
"""Schedulability experiments: the 240 graphs of the klmirqd paper's appendix D, and figures 5 and 6.

A campaign draws task sets of ever higher utilisation and counts how many of them are schedulable
under each way of handling interrupts.  The work is cut into chunks.  A chunk's name says what the
chunk draws, and the seed follows from the name.  The counts of a chunk go into an SQLite file at
once.  So a campaign can be stopped and resumed, and gives the same counts, bit for bit, with any
number of workers.

The same task sets serve all four speed-ups R: a speed-up changes how useful a set is (its effective
utilisation, the graph's x-axis), not whether it is schedulable.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from .generate import Recipe, Utilizations, random_batch
from .model import Platform
from .overheads import TABLE_III, Interrupts, Overheads
from .units import shown

#: Distributions of Table IV, in its order.
DISTRIBUTIONS = (
    Utilizations("uniform", 0.01, 0.1),
    Utilizations("uniform", 0.1, 0.4),
    Utilizations("uniform", 0.5, 0.9),
    Utilizations("exponential", 0.1),
    Utilizations("exponential", 0.25),
    Utilizations("exponential", 0.5),
)
#: Speed-ups of a GPU over a CPU, in the order of Table IV.
SPEEDUPS = (1, 4, 8, 16)
#: Width of a bin of the x-axis for each speed-up, in CPUs.  Bins are centred on its multiples.
BIN_WIDTH = {1: 0.5, 4: 1.0, 8: 1.5, 16: 2.5}
#: The curves of a graph.
METHODS = (Interrupts.KLMIRQD, Interrupts.PAI, Interrupts.SLIH)
CALLS = (1, 3, 6)
#: Points of a graph with fewer task sets than this are not drawn.
FEWEST = 30

#: What the paper's text reads off figure 6 at 90 %, i = 6, in effective CPUs.
READ_FROM_FIGURE_6 = {Interrupts.KLMIRQD: 65.0, Interrupts.PAI: 55.0, Interrupts.SLIH: 55.0}

_FIRST_FIGURE = 95
_SHORT = {5: 120, 6: 210}  # figures of the paper's main part that appendix D repeats


@dataclass(frozen=True, slots=True)
class Experiment:
    """One distribution of utilisations and one block of ten percent of GPU-using tasks."""

    distribution: int  #: index into DISTRIBUTIONS
    block: int  #: 0: 0-10 % of tasks use a GPU, ..., 9: 90-100 %

    @property
    def utilizations(self) -> Utilizations:
        return DISTRIBUTIONS[self.distribution]

    def figure(self, speedup: int) -> int:
        """Number of the paper's figure that shows this experiment for one speed-up."""
        kind, which = divmod(self.distribution, 3)
        return _FIRST_FIGURE + ((kind * len(SPEEDUPS) + SPEEDUPS.index(speedup)) * 3 + which) * 10 + self.block

    def describe(self) -> str:
        u = self.utilizations
        spread = f"U({u.low:g}, {u.high:g})" if u.kind == "uniform" else f"exponential, mean {u.low:g}"
        return f"utilisations {spread}; {self.block * 10}-{self.block * 10 + 10} % GPU-using tasks"


ALL_EXPERIMENTS = tuple(Experiment(d, b) for d in range(len(DISTRIBUTIONS)) for b in range(10))


def figure(number: int) -> tuple[Experiment, int]:
    """The experiment and speed-up behind a figure: 5, 6 or 95 to 334.

    :raises ValueError: for any other number.
    """
    index = _SHORT.get(number, number) - _FIRST_FIGURE
    if not 0 <= index < 240:
        raise ValueError(f"figure {number} is no schedulability graph; use 5, 6 or 95 to 334")
    rest, block = divmod(index, 10)
    rest, which = divmod(rest, 3)
    kind, speedup = divmod(rest, len(SPEEDUPS))
    return Experiment(kind * 3 + which, block), SPEEDUPS[speedup]


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that decide the counts of a campaign: equal settings give equal counts."""

    sets: int = 1000  #: task sets for each cap on utilisation
    seed: int = 2012
    step: float = 0.5  #: caps are step, 2 step, ... up to the number of CPUs
    chunk: int = 2000  #: task sets in one chunk of work
    lock: str = "capped"  #: bound on the wait for a GPU: oblivious, aware or capped
    #: Bound on lateness where no hard test says that there is none.  Devi and Anderson's is what
    #: SchedCAT used when the paper was written.
    bound: str = "devi-anderson"
    inflate_sections: bool = False
    gpu_share: float = 0.75
    section_share: float = 0.75
    platform: Platform = field(default_factory=lambda: Platform(cpus=12, clusters=2, gpus=8))
    overheads: Overheads = TABLE_III

    def __post_init__(self) -> None:
        for name, value in (("sets", self.sets), ("chunk", self.chunk)):
            if not 1 <= value <= 10_000_000:
                raise ValueError(f"{name} is {shown(value)}; it must be from 1 to 10000000")
        if self.platform.cpus > 4096 or self.platform.gpus > 1024:
            raise ValueError("a platform has at most 4096 CPUs and 1024 GPUs")
        if not 0.001 <= self.step <= self.platform.cpus:
            raise ValueError(
                f"step is {self.step}; it must be from 0.001 to {self.platform.cpus}, "
                "the number of CPUs"
            )

    @property
    def caps(self) -> list[float]:
        """Caps on the utilisation of generated task sets."""
        return [self.step * i for i in range(1, int(self.platform.cpus / self.step + 1e-9) + 1)]

    def to_json(self) -> str:
        """The settings as text; equal settings give equal text."""
        return json.dumps(asdict(self), sort_keys=True, default=str)


@dataclass(frozen=True, slots=True, order=True)
class Chunk:
    """A piece of work; its name is all that its random numbers depend on."""

    distribution: int
    block: int
    cap: int  #: index into Settings.caps
    part: int


@dataclass(frozen=True, slots=True)
class Counts:
    """What a chunk found: for each (speed-up, bin), sets tested and sets schedulable by curve."""

    chunk: Chunk
    rows: tuple[tuple[int, int, int, tuple[int, ...]], ...]


def chunks(settings: Settings, experiments: Iterable[Experiment] = ALL_EXPERIMENTS) -> Iterator[Chunk]:
    """All work of a campaign."""
    parts = -(-settings.sets // settings.chunk)
    for experiment in experiments:
        for cap in range(len(settings.caps)):
            for part in range(parts):
                yield Chunk(experiment.distribution, experiment.block, cap, part)


def run_chunk(settings: Settings, chunk: Chunk) -> Counts:
    """Draw and test the task sets of one chunk."""
    from .fast import schedulable  # imported where it runs: workers compile it, the front end need not

    recipe = Recipe(
        DISTRIBUTIONS[chunk.distribution],
        (chunk.block / 10, (chunk.block + 1) / 10),
        settings.gpu_share,
        settings.section_share,
    )
    size = min(settings.chunk, settings.sets - chunk.part * settings.chunk)
    seed = [settings.seed, chunk.distribution, chunk.block, chunk.cap, chunk.part]
    batch = random_batch(recipe, settings.caps[chunk.cap], size, seed)
    verdict = schedulable(
        batch,
        settings.platform,
        METHODS,
        CALLS,
        settings.overheads,
        lock=settings.lock,
        bound=settings.bound,
        inflate_sections=settings.inflate_sections,
    ).reshape(size, -1)
    rows = []
    occupied = batch.count > 0
    for speedup in SPEEDUPS:
        place = np.floor(batch.utilization(speedup) / BIN_WIDTH[speedup] + 0.5).astype(int)
        for where in np.unique(place[occupied]):
            member = occupied & (place == where)
            rows.append((speedup, int(where), int(member.sum()), tuple(int(v) for v in verdict[member].sum(axis=0))))
    return Counts(chunk, tuple(rows))


class Results:
    """Counts of a campaign in an SQLite file."""

    def __init__(self, path: str | Path, settings: Settings) -> None:
        """Open or create the file.

        :raises ValueError: when it holds the results of other settings, or is none of ours.
        """
        self.settings = settings
        self._db = sqlite3.connect(path)
        try:
            self._open(path)
        except sqlite3.Error as error:
            self._db.close()
            raise ValueError(f"{path}: {error}; choose another --out") from None

    def _open(self, path: str | Path) -> None:
        settings = self.settings
        self._db.executescript(
            """
            CREATE TABLE IF NOT EXISTS settings (text TEXT NOT NULL);
            CREATE TABLE IF NOT EXISTS chunk (
                distribution INTEGER, block INTEGER, cap INTEGER, part INTEGER,
                PRIMARY KEY (distribution, block, cap, part)) WITHOUT ROWID;
            CREATE TABLE IF NOT EXISTS count (
                distribution INTEGER, block INTEGER, cap INTEGER, part INTEGER,
                speedup INTEGER, bin INTEGER, tested INTEGER, schedulable TEXT);
            CREATE INDEX IF NOT EXISTS by_graph ON count (distribution, block, speedup);
            """
        )
        found = self._db.execute("SELECT text FROM settings").fetchone()
        if found is None:
            with self._db:
                self._db.execute("INSERT INTO settings VALUES (?)", (settings.to_json(),))
        elif found[0] != settings.to_json():
            self._db.close()
            raise ValueError(f"{path} holds results of other settings ({found[0]}); choose another --out")

    def close(self) -> None:
        self._db.close()

    def done(self) -> set[Chunk]:
        """Chunks that are already counted."""
        return {Chunk(*row) for row in self._db.execute("SELECT distribution, block, cap, part FROM chunk")}

    def add(self, counts: Counts) -> None:
        """Store one chunk's counts, all or nothing; a chunk that is there already is left as it is."""
        c = counts.chunk
        key = (c.distribution, c.block, c.cap, c.part)
        with self._db:
            if self._db.execute("INSERT OR IGNORE INTO chunk VALUES (?,?,?,?)", key).rowcount:
                self._db.executemany(
                    "INSERT INTO count VALUES (?,?,?,?,?,?,?,?)",
                    [(*key, speedup, where, tested, json.dumps(ok)) for speedup, where, tested, ok in counts.rows],
                )

    def graph(self, experiment: Experiment, speedup: int) -> Graph:
        """Collect one graph."""
        curves = len(METHODS) * len(CALLS)
        bins: dict[int, np.ndarray] = {}
        for where, tested, ok in self._db.execute(
            "SELECT bin, tested, schedulable FROM count WHERE distribution = ? AND block = ? AND speedup = ?",
            (experiment.distribution, experiment.block, speedup),
        ):
            bins.setdefault(where, np.zeros(curves + 1, np.int64))[:] += [tested, *json.loads(ok)]
        places = sorted(bins)
        table = np.array([bins[p] for p in places]).reshape(len(places), curves + 1)
        x = np.array(places, float) * BIN_WIDTH[speedup]
        return Graph(experiment, speedup, x, table[:, 0], table[:, 1:].reshape(len(places), len(METHODS), len(CALLS)))


@dataclass(frozen=True, slots=True)
class Graph:
    """One graph: share of schedulable task sets over (effective) utilisation.

    :param x: middle of each bin, in CPUs; shape (bins,).
    :param tested: task sets in each bin; shape (bins,).
    :param schedulable: of these, how many are schedulable; shape (bins, methods, calls).
    """

    experiment: Experiment
    speedup: int
    x: np.ndarray
    tested: np.ndarray
    schedulable: np.ndarray

    @property
    def number(self) -> int:
        """The paper's number of the figure."""
        return self.experiment.figure(self.speedup)

    def curve(self, method: Interrupts, calls: int, fewest: int = FEWEST) -> tuple[np.ndarray, np.ndarray]:
        """x and share (0 to 1) of one curve, bins with fewer than ``fewest`` task sets left out."""
        enough = self.tested >= fewest
        hits = self.schedulable[enough, METHODS.index(method), CALLS.index(calls)]
        return self.x[enough], hits / np.maximum(self.tested[enough], 1)

    def last_bin(self, method: Interrupts, calls: int, share: float = 0.9) -> float | None:
        """Middle of the last bin before the curve first falls below ``share``, as one reads a graph;
        None if it starts below or never falls."""
        x, y = self.curve(method, calls)
        below = np.nonzero(y < share)[0]
        return None if len(below) == 0 or below[0] == 0 else float(x[below[0] - 1])

    def sustained(self, method: Interrupts, calls: int, share: float = 0.9) -> float | None:
        """Utilisation up to which at least ``share`` of the task sets are schedulable: where the curve
        first falls below it, between bins by a straight line; None if it starts below or never falls."""
        x, y = self.curve(method, calls)
        below = np.nonzero(y < share)[0]
        if len(below) == 0 or below[0] == 0:
            return None
        i = below[0]
        return float(x[i - 1] + (y[i - 1] - share) / (y[i - 1] - y[i]) * (x[i] - x[i - 1]))


def run(
    results: Results,
    work: Sequence[Chunk],
    *,
    workers: int = 1,
    scheduler: str | None = None,
    progress: Callable[[int], None] = lambda sets: None,
) -> None:
    """Run the chunks that are not done yet.

    Dask runs the workers.  Dask is a plain Python package that also starts from Debian, ssh, Slurm or
    Kubernetes; Ray brings a compiled service.  Chunks are too coarse to need more than Dask.  One
    worker needs neither and runs here.

    :param workers: processes on this machine.
    :param scheduler: address of a Dask scheduler (``tcp://host:8786``), for workers elsewhere.
    :param progress: called with the number of task sets of each chunk as it comes in.
    """
    settings = results.settings
    done = results.done()
    todo = [c for c in work if c not in done]

    def finish(counts: Counts) -> None:
        results.add(counts)
        progress(sum(tested for speedup, _, tested, _ in counts.rows if speedup == 1))

    if workers == 1 and scheduler is None:
        for chunk in todo:
            finish(run_chunk(settings, chunk))
        return
    from dask.distributed import Client, LocalCluster, as_completed

    if scheduler is not None:
        client = Client(scheduler)
        owned = None
    else:
        try:
            owned = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                dashboard_address=None,
                silence_logs=40,
            )
        except RuntimeError as error:
            why = error.__cause__ or error
            raise OSError(
                f"{workers} worker processes do not start ({why}): --workers 1 needs none"
            ) from error
        client = Client(owned)
    try:
        futures = as_completed(client.map(run_chunk, [settings] * len(todo), todo, pure=False), with_results=True)
        for future, counts in futures:
            finish(counts)
            future.release()
        if owned is not None:
            # A worker that ends while it reports to the scheduler would print how that failed.
            client.run(logging.disable, on_error="ignore")
    finally:
        client.close()
        if owned is not None:
            owned.close()
