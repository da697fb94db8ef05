# SPDX-License-Identifier: MIT
"""One's own schedulability experiment: any generator, any one or two axes, any test.

    from rtxg.experiment import Axis, Curve, Experiment, Generator
    found = Experiment(
        x=Axis("utilization", [1, 2, 3, 4]),
        generator=Generator(Platform(4, gpus=2), Recipe(Utilizations("uniform", 0.1, 0.4), (0.3, 0.3))),
        curves={"klmirqd": Curve(interrupts="klmirqd"), "mine": my_test},
    ).run()
    found.plot("mine.png"); found.to_frame()

or one TOML file that says the same, for ``rtxg campaign --file``.  Every point of the grid has random
numbers of its own, so that equal seeds give equal counts, whatever else is asked.

:mod:`rtxg.campaign` has the klmirqd paper's own graphs, by the million sets, on a compiled path; this
module goes through :func:`rtxg.analyze`, at some hundred sets a second.
"""

from __future__ import annotations

import importlib
import json
import math
import sys
import tomllib
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .analysis import BOUNDS, LOCKS, SUSPENSIONS, LockFunction, analyze
from .generate import Recipe, Utilizations, rand_fixed_sum, random_batch
from .model import SCHEDULERS, Platform, Task, TaskSet
from .overheads import NO_OVERHEADS, Interrupts, Overheads
from .plain import frame
from .taskfile import (
    EXPERIMENT,
    TaskFileError,
    _read_overheads,
    _Reader,
    example_experiment,
    parse,
    read_text,
)
from .units import parse_time, shown

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

#: A test of one's own: whether a task set passes at a point of the experiment.
Test = Callable[[TaskSet, Mapping[str, float]], bool]

#: A generator of one's own: a task set for a point, from the random numbers given.
Make = Callable[[Mapping[str, float], np.random.Generator], TaskSet]

_OVERHEADS = tuple(item.name for item in fields(Overheads))
_PLATFORM = ("cpus", "clusters", "gpus")
_RECIPE = ("gpu_share", "section_share", "gpu_tasks")

#: What an axis may vary with the generator and the curves of this module; one's own take anything.
PARAMETERS = ("utilization", "calls", "tasks", *_PLATFORM, *_RECIPE, *_OVERHEADS)

#: Marks of curves, in turn.
_MARKS = "os^Dv"

#: The least value of those that are counted.
_COUNTED = {"calls": 1, "tasks": 1, "cpus": 1, "clusters": 1, "gpus": 0}


@dataclass(frozen=True, slots=True)
class Axis:
    """A parameter and its values.

    ``utilization`` is the cap on the utilisation of generated sets, in CPUs; ``calls`` the GPU calls of
    a job; overheads are microseconds.
    """

    parameter: str
    values: tuple[float, ...]

    def __init__(self, parameter: str, values: Sequence[float]) -> None:
        object.__setattr__(self, "parameter", parameter)
        object.__setattr__(self, "values", tuple(values))
        if not self.values:
            raise ValueError(f"axis {parameter}: has no values")
        for value in self.values:
            if not math.isfinite(value):
                raise ValueError(f"axis {parameter}: {value} is no finite number")


def _check_value(parameter: str, value: float) -> None:
    """Refuse what the generator and the curves of this module would cut off, or could not do."""
    least = _COUNTED.get(parameter)
    if least is not None and (value < least or value != int(value)):
        raise ValueError(f"{parameter} is {value:g}; it must be a whole number of {least} or more")
    if parameter == "utilization" and value <= 0:
        raise ValueError(f"utilization is {value:g}; it must be above 0")
    if parameter in _RECIPE and not 0 <= value <= 1:
        raise ValueError(f"{parameter} is {value:g}; it must be a share from 0 to 1")
    if parameter in _OVERHEADS and (value < 0 or (parameter == "quantum" and not value)):
        raise ValueError(f"{parameter} is {value:g}; no overhead is negative, and no quantum zero")


def _platform_at(platform: Platform, point: Mapping[str, float]) -> Platform:
    """The platform with what the point changes."""
    for parameter, value in point.items():
        _check_value(parameter, value)
    return replace(platform, **{k: int(point[k]) for k in _PLATFORM if k in point})


def _recipe_at(recipe: Recipe, point: Mapping[str, float]) -> Recipe:
    """The recipe with what the point changes."""
    changed: dict[str, Any] = {k: point[k] for k in _RECIPE if k in point}
    if "gpu_tasks" in changed:
        changed["gpu_tasks"] = (changed["gpu_tasks"],) * 2
    if "gpu_share" in changed and "section_share" not in changed:
        changed["section_share"] = max(recipe.section_share, changed["gpu_share"])
    return replace(recipe, **changed)


@dataclass(frozen=True, slots=True)
class Generator:
    """Random task sets of :mod:`rtxg.generate`, whose parameters a point may change.

    It draws tasks up to the point's ``utilization``.  Where ``tasks`` is to vary, use :class:`FixedSum`.
    """

    platform: Platform
    recipe: Recipe
    calls: int = 1

    def __call__(self, point: Mapping[str, float], random: np.random.Generator) -> TaskSet:
        if "tasks" in point:
            raise ValueError(
                "tasks are drawn up to the utilization here; FixedSum takes their number"
            )
        platform, recipe = _platform_at(self.platform, point), _recipe_at(self.recipe, point)
        seed = random.integers(1 << 62, size=2).tolist()
        cap = float(point.get("utilization", platform.cpus))
        return random_batch(recipe, cap, 1, seed).taskset(
            0, platform, int(point.get("calls", self.calls))
        )


@dataclass(frozen=True, slots=True)
class FixedSum:
    """Sets of ``tasks`` tasks whose utilisations sum to the point's ``utilization``, uniformly over
    all such vectors (RandFixedSum).  A point may change the same parameters as with
    :class:`Generator`, and ``tasks``."""

    platform: Platform
    recipe: Recipe
    tasks: int
    calls: int = 1

    def __call__(self, point: Mapping[str, float], random: np.random.Generator) -> TaskSet:
        platform, recipe = _platform_at(self.platform, point), _recipe_at(self.recipe, point)
        count = int(point.get("tasks", self.tasks))
        total = float(point.get("utilization", platform.cpus))
        (use,) = rand_fixed_sum(count, total, 1, random.integers(1 << 62, size=2).tolist())
        low, high = recipe.periods
        users = round(count * float(random.uniform(*recipe.gpu_tasks)))
        tasks = []
        for i, u in enumerate(use):
            spread = float(random.random())
            period = (
                low * (high / low) ** spread if recipe.log_periods else low + spread * (high - low)
            )
            period = Fraction(round(period))
            demand = max(1, round(float(u) * float(period)))
            gpu = round(recipe.gpu_share * demand) if i < users else 0
            section = max(gpu, round(recipe.section_share * demand)) if gpu else 0
            calls = int(point.get("calls", self.calls)) if gpu else 0
            name = f"{'gpu' if gpu else 'cpu'}{i}"
            tasks.append(Task(name, demand - gpu, period, None, calls, Fraction(gpu), Fraction(section)))
        return TaskSet(tuple(tasks), platform)


@dataclass(frozen=True, slots=True)
class Curve:
    """A test by :func:`rtxg.analyze`; a point may change its overheads.

    :param lock: a name, or a function of one's own, see :data:`rtxg.analysis.LockFunction`.
    :param hard: count only sets of which no job is ever late.
    """

    interrupts: Interrupts | str = Interrupts.KLMIRQD
    overheads: Overheads = NO_OVERHEADS
    lock: str | LockFunction = "capped"
    bound: str = "best"
    hard: bool = False
    suspensions: str = "best"

    def __call__(self, taskset: TaskSet, point: Mapping[str, float]) -> bool:
        changed = {k: Fraction(repr(float(point[k]))) for k in _OVERHEADS if k in point}
        found = analyze(
            taskset,
            interrupts=self.interrupts,
            overheads=replace(self.overheads, **changed),
            lock=self.lock,
            bound=self.bound,
            suspensions=self.suspensions,
        )
        return found.schedulable and (found.hard or not self.hard)


@dataclass(frozen=True, slots=True)
class Experiment:
    """A grid of points, task sets at each, and the tests that they are put to.

    :param curves: tests by name.
    :param sets: task sets at each point.
    """

    x: Axis
    generator: Make
    curves: Mapping[str, Test]
    y: Axis | None = None
    sets: int = 100
    seed: int = 1
    name: str = "experiment"

    def __post_init__(self) -> None:
        if self.sets < 1 or self.seed < 0:
            raise ValueError(
                f"{self.sets} sets, seed {self.seed}: at least 1 set, and no negative seed"
            )
        if not self.curves:
            raise ValueError("an experiment without curves has nothing to count")
        if self.y is not None and self.y.parameter == self.x.parameter:
            raise ValueError(f"both axes are {self.x.parameter}")

    def points(self) -> Iterator[tuple[int, int, dict[str, float]]]:
        """Row, column and parameters of every point."""
        for row, y in enumerate(self.y.values if self.y else (0.0,)):
            for column, x in enumerate(self.x.values):
                point = {self.x.parameter: x}
                if self.y is not None:
                    point[self.y.parameter] = y
                yield row, column, point

    def run(
        self, progress: Callable[[str], None] = lambda what: None, workers: int = 1
    ) -> Outcome:
        """Draw and test all sets.

        :param progress: called with the point that is begun or, with several workers, done.
        :param workers: processes that share the sets; the outcome does not depend on their number.
            They are started anew, as a fork beside a thread may wait for ever for a lock that the
            thread had. Generator and tests may be any functions: cloudpickle sends them.
        :raises ValueError: fewer than one worker.
        """
        if workers < 1:
            raise ValueError(f"{workers} workers: at least 1 is needed")
        shape = (len(self.y.values) if self.y else 1, len(self.x.values))
        passed = {name: np.zeros(shape, np.int64) for name in self.curves}
        weight = np.zeros(shape)
        weighted = {name: np.zeros(shape) for name in self.curves}
        step = max(1, min(SETS_A_PIECE, -(-self.sets // workers)))
        pieces = [
            (row, column, point, first, min(first + step, self.sets))
            for row, column, point in self.points()
            for first in range(0, self.sets, step)
        ]
        for (row, column, point, first, _), found in zip(
            pieces, _counted(self, pieces, workers), strict=True
        ):
            if not first:
                progress(f"point {row * shape[1] + column + 1} of {shape[0] * shape[1]}: {point}")
            # Added in the order of the sets: a sum of floats depends on its order.
            for use, verdicts in found:
                weight[row, column] += use
                for name, verdict in zip(self.curves, verdicts, strict=True):
                    passed[name][row, column] += verdict
                    weighted[name][row, column] += use if verdict else 0.0
        return Outcome(self.name, self.x, self.y, self.sets, passed, weight, weighted)

    def piece(
        self, row: int, column: int, point: Mapping[str, float], first: int, last: int
    ) -> list[tuple[float, list[bool]]]:
        """Utilisation and verdicts, curve by curve, of the sets with numbers from ``first`` below ``last``."""
        found = []
        for number in range(first, last):
            random = np.random.Generator(
                np.random.PCG64(np.random.SeedSequence([self.seed, row, column, number]))
            )
            where = ", ".join(f"{name} = {value:g}" for name, value in point.items())
            try:
                taskset = self.generator(point, random)
            except ValueError as error:
                raise ValueError(f"at {where}: {error}") from error
            except Exception as error:  # a function of one's own may do anything
                _note(error, f"at {where}")
                raise
            if not isinstance(taskset, TaskSet):
                raise ValueError(f"the generator gave {shown(taskset)}; it must give a TaskSet")
            verdicts = []
            for name, test in self.curves.items():
                try:
                    verdicts.append(bool(test(taskset, point)))
                except Exception as error:
                    _note(error, f"curve {name!r} at {where}")
                    raise
            found.append((float(taskset.utilization), verdicts))
        return found


def _note(error: Exception, where: str) -> None:
    """Adds to an error of a function of one's own where it was; a worker's has no traceback."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    error.add_note(f"{where} ({place.filename}:{place.lineno})")


#: Sets that a worker draws and tests before it reports.
SETS_A_PIECE = 50

#: In a worker: the experiment that it was sent.
_sent: list[Experiment] = []


def _begin(experiment: Experiment) -> None:
    _sent[:] = [experiment]


def _piece(piece: tuple) -> list[tuple[float, list[bool]]]:
    return _sent[0].piece(*piece)


def _counted(
    experiment: Experiment, pieces: list[tuple], workers: int
) -> Iterator[list[tuple[float, list[bool]]]]:
    """The pieces' results, in order."""
    if workers == 1:
        yield from (experiment.piece(*piece) for piece in pieces)
        return
    # Here, for most programs that load rtxg start no workers.
    from loky import BrokenProcessPool, ProcessPoolExecutor

    pool = ProcessPoolExecutor(workers, initializer=_begin, initargs=(experiment,))
    busy = True
    try:
        yield from pool.map(_piece, pieces)
        busy = False
    except BrokenProcessPool:
        raise OSError(
            "a worker died; with fewer --workers there is more memory for each"
        ) from None
    finally:
        # To kill, loky looks at each process of the machine, and waits where one of these cannot
        # be read. Workers that have nothing left end by themselves.
        pool.shutdown(kill_workers=busy)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How many sets passed each test at each point: arrays of shape (y values, x values)."""

    name: str
    x: Axis
    y: Axis | None
    sets: int
    passed: dict[str, np.ndarray]
    weight: np.ndarray = field(repr=False)  #: sum of the utilisations of the sets
    weighted_passed: dict[str, np.ndarray] = field(repr=False)  #: and of those that passed

    def share(self, curve: str) -> np.ndarray:
        """Share of the sets that passed, 0 to 1."""
        return self.passed[curve] / self.sets

    def confidence(self, curve: str, z: float = 1.96) -> tuple[np.ndarray, np.ndarray]:
        """Wilson's interval about the share; ``z`` = 1.96 for 95 %."""
        share, n = self.share(curve), self.sets
        middle = (share + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
        return np.maximum(0.0, middle - half), np.minimum(1.0, middle + half)

    def weighted(self, curve: str) -> np.ndarray:
        """Weighted schedulability over the x axis, one number a y value: the share of utilisation that
        passed (Bastoni, Brandenburg and Anderson, 2010)."""
        return self.weighted_passed[curve].sum(axis=1) / self.weight.sum(axis=1)

    def rows(self) -> list[dict[str, Any]]:
        """One row for each point and curve."""
        found = []
        for curve in self.passed:
            low, high = self.confidence(curve)
            for row, y in enumerate(self.y.values if self.y else (None,)):
                for column, x in enumerate(self.x.values):
                    entry: dict[str, Any] = {"curve": curve, self.x.parameter: x}
                    if self.y is not None:
                        entry[self.y.parameter] = y
                    entry |= {
                        "sets": self.sets,
                        "passed": int(self.passed[curve][row, column]),
                        "share": float(self.share(curve)[row, column]),
                        "low": float(low[row, column]),
                        "high": float(high[row, column]),
                    }
                    found.append(entry)
        return found

    def to_frame(self) -> pandas.DataFrame:
        """:meth:`rows` as a pandas data frame."""
        return frame(self.rows())

    def to_json(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {
            "name": self.name,
            "rows": self.rows(),
            "weighted": {curve: self.weighted(curve).tolist() for curve in self.passed},
        }

    def plot(self, path: str | Path | None = None) -> Figure:
        """Shares with their 95 % intervals over x; with a second axis, weighted schedulability over y.

        Curves may coincide: those that are drawn first are broad, the last one is narrow upon them.

        :param path: where to write the picture too; its suffix chooses the format.
        """
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6.4, 4), layout="constrained")
        axes = figure.add_subplot()
        for number, curve in enumerate(self.passed):
            left = 1 - (number + 1) / len(self.passed)
            look = {
                "marker": _MARKS[number % len(_MARKS)],
                "markersize": 3 + 4 * left,
                "linewidth": 1.2 + 4 * left,
                "label": curve,
            }
            if self.y is None:
                low, high = self.confidence(curve)
                (drawn,) = axes.plot(self.x.values, 100 * self.share(curve)[0], **look)
                axes.fill_between(
                    self.x.values,
                    100 * low[0],
                    100 * high[0],
                    color=drawn.get_color(),
                    alpha=0.15,
                    linewidth=0,
                )
            else:
                axes.plot(self.y.values, self.weighted(curve), **look)
        if self.y is None:
            axes.set_ylim(-2, 102)
            axes.set_xlabel(self.x.parameter)
            axes.set_ylabel("task sets that pass [%]")
        else:
            axes.set_ylim(-0.02, 1.02)
            axes.set_xlabel(self.y.parameter)
            axes.set_ylabel(f"weighted schedulability over {self.x.parameter}")
        axes.set_title(f"{self.name}: {self.sets} sets a point", fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(fontsize=8, frameon=False)
        if path is not None:
            figure.savefig(path, dpi=120)
        return figure


# From a file -------------------------------------------------------------------------------------


def _function(reader: _Reader, name: str, table: str, index: int, key: str) -> Callable:
    """``module:function``, the module from the folder of the file or from Python's path."""
    module, _, function = str(name).partition(":")
    folder = str(Path(str(reader.path)).resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found = getattr(importlib.import_module(module), function)
    except Exception as error:  # whatever the module does while it is imported
        kind = (
            ""
            if isinstance(error, (ImportError, AttributeError, ValueError))
            else f"{type(error).__name__}: "
        )
        raise reader.error(
            f"{key} is {name!r}: {kind}{error}; write module:function", table, index, key
        ) from None
    if not callable(found):
        raise reader.error(f"{key} is {name!r}, which is no function", table, index, key)
    return found


def _axis(reader: _Reader, values: Any, table: str, free: bool) -> Axis:
    reader.check_keys(values, {"parameter", "values", "from", "to", "step"}, table)
    parameter = str(values.get("parameter", "utilization")).replace("-", "_")
    if not free and parameter not in PARAMETERS:
        raise reader.error(
            f"parameter is {parameter!r}; use one of {', '.join(PARAMETERS)}", table, 0, "parameter"
        )
    listed = values.get("values")
    if listed is None:
        try:
            low, high, step = (float(values[k]) for k in ("from", "to", "step"))
        except (KeyError, TypeError, ValueError):
            raise reader.error(
                "give values = [...], or from, to and step as numbers", table
            ) from None
        if not (step > 0 and high >= low and math.isfinite(high)) or (high - low) / step > 10_000:
            raise reader.error(
                f"from {low:g} to {high:g} by {step:g} is no axis of 1 to 10000 values",
                table,
                0,
                "step",
            )
        listed = [low + step * i for i in range(int((high - low) / step + 1e-9) + 1)]
    if not isinstance(listed, list) or not listed:
        raise reader.error(f"values is {listed!r}; it must be a list", table, 0, "values")
    key = "values" if "values" in values else "from"
    try:
        axis = Axis(
            parameter, [float(parse_time(v)) if isinstance(v, str) else float(v) for v in listed]
        )
        if not free:
            for value in axis.values:
                _check_value(parameter, value)
    except (TypeError, ValueError, OverflowError) as error:
        raise reader.error(f"{key}: {error}", table, 0, key) from None
    return axis


def _numbers(
    reader: _Reader, settings: dict, key: str, default: list[object], count: tuple[int, int]
) -> list[Fraction | float]:
    """A list of so many numbers, or of times with units."""
    listed = settings.get(key, default)
    least, most = count
    if not isinstance(listed, list) or not least <= len(listed) <= most:
        wanted = f"{least}" if least == most else f"{least} or {most}"
        raise reader.error(
            f"{key} is {listed!r}; it must be a list of {wanted}", "generator", 0, key
        )
    try:
        return [parse_time(v) if isinstance(v, str) else float(v) for v in listed]
    except (TypeError, ValueError, OverflowError) as error:
        raise reader.error(f"{key}: {error}", "generator", 0, key) from None


def _generator(reader: _Reader, document: dict) -> tuple[Make, bool]:
    settings = document.get("generator", {})
    reader.check_keys(
        settings,
        {
            "function",
            "utilizations",
            "periods",
            "log-periods",
            "gpu-tasks",
            "gpu-share",
            "section-share",
            "calls",
            "tasks",
        },
        "generator",
    )
    if "function" in settings:
        return _function(reader, settings["function"], "generator", 0, "function"), True
    machine = document.get("platform", {})
    reader.check_keys(machine, {"cpus", "clusters", "gpus", "scheduler"}, "platform")
    try:
        platform = Platform(
            reader.whole(machine, "cpus", 1, 1, 4096, "platform"),
            reader.whole(machine, "clusters", 1, 1, 4096, "platform"),
            reader.whole(machine, "gpus", 0, 0, 1024, "platform"),
            reader.choice(machine, "scheduler", "G-EDF", SCHEDULERS, "platform"),
        )
    except TaskFileError:
        raise
    except ValueError as error:
        raise reader.error(str(error), "platform") from None
    fixed = "tasks" in settings
    if fixed and "utilizations" in settings:
        raise reader.error(
            "tasks says how many there are, and the utilization is spread over them (RandFixedSum); "
            "leave out tasks or utilizations",
            "generator", 0, "tasks",
        )  # fmt: skip
    named = settings.get("utilizations", ["uniform", 0.1, 0.4])
    if not isinstance(named, list) or len(named) not in (2, 3) or not isinstance(named[0], str):
        raise reader.error(
            f'utilizations is {named!r}; write ["uniform", low, high], ["exponential", mean] or '
            '["bimodal", share of light ones]',
            "generator", 0, "utilizations",
        )  # fmt: skip
    bounds = _numbers(reader, {"utilizations": named[1:]}, "utilizations", [], (1, 2))
    periods = _numbers(reader, settings, "periods", ["15ms", "60ms"], (2, 2))
    gpu_tasks = _numbers(reader, settings, "gpu-tasks", [0.0, 0.0], (2, 2))
    shares = {}
    for key, default in (("gpu-share", 0.75), ("section-share", None)):
        value = settings.get(key, shares.get("gpu-share", default))
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise reader.error(
                f"{key} is {value!r}; it must be a number from 0 to 1", "generator", 0, key
            )
        shares[key] = float(value)
    try:
        recipe = Recipe(
            Utilizations(named[0], *(float(n) for n in bounds)),
            (float(gpu_tasks[0]), float(gpu_tasks[1])),
            shares["gpu-share"],
            shares["section-share"],
            (int(periods[0]), int(periods[1])),
            reader.flag(settings, "log-periods", "generator"),
        )
    except TaskFileError:
        raise
    except (ValueError, OverflowError) as error:
        raise reader.error(str(error), "generator") from None
    calls = reader.whole(settings, "calls", 1, 1, 1_000_000, "generator")
    if fixed:
        return FixedSum(
            platform, recipe, reader.whole(settings, "tasks", 1, 1, 100_000, "generator"), calls
        ), False
    return Generator(platform, recipe, calls), False


def load_experiment(path: str | Path) -> Experiment:
    """Read an experiment; ``example:experiment`` is the one in the package, which shows every key.

    :raises TaskFileError: naming file, line, value and remedy.
    """
    if str(path) == EXPERIMENT:
        path = example_experiment()
    elif str(path).startswith("example:"):
        raise TaskFileError(path, None, f"is no experiment; {EXPERIMENT} is the one in the package")
    path = Path(path)
    text = read_text(path)
    document = parse(text, path, tomllib.loads)
    reader = _Reader(path, text)
    known = ("name", "sets", "seed", "platform", "generator", "overheads", "x", "y", "curve")
    for key in document:
        if key not in known:
            raise reader.error(f"unknown key {key!r}; known are {', '.join(known)}", key)
    overheads = _read_overheads(reader, document.get("overheads", {}))
    generator, free = _generator(reader, document)
    if "x" not in document:
        raise TaskFileError(path, None, "has no [x]; say what varies")
    curves: dict[str, Test] = {}
    entries = document.get("curve", [])
    if not isinstance(entries, list) or not entries:
        raise TaskFileError(path, None, "has no [[curve]]; say what is tested")
    for index, entry in enumerate(entries):
        reader.check_keys(
            entry, {"name", "interrupts", "lock", "bound", "hard", "suspensions", "test"}, "curve", index
        )
        name = str(entry.get("name", f"curve {index}"))
        if name in curves:
            raise reader.error(f"two curves are named {name!r}", "curve", index, "name")
        if "test" in entry:
            curves[name] = _function(reader, entry["test"], "curve", index, "test")
            continue
        lock = entry.get("lock", "capped")
        if ":" in str(lock):
            lock = _function(reader, lock, "curve", index, "lock")
        else:
            lock = reader.choice(entry, "lock", "capped", LOCKS, "curve", index)
        curves[name] = Curve(
            reader.choice(
                entry, "interrupts", "klmirqd", tuple(i.value for i in Interrupts), "curve", index
            ),
            overheads,
            lock,
            reader.choice(entry, "bound", "best", BOUNDS, "curve", index),
            reader.flag(entry, "hard", "curve", index),
            reader.choice(entry, "suspensions", "best", SUSPENSIONS, "curve", index),
        )
    x = _axis(reader, document["x"], "x", free)
    y = _axis(reader, document["y"], "y", free) if "y" in document else None
    for table, axis in (("x", x), ("y", y)):
        if axis is not None and axis.parameter == "tasks" and isinstance(generator, Generator):
            raise reader.error(
                "parameter is 'tasks', but tasks are drawn up to the utilization; "
                "say tasks = N in [generator] for RandFixedSum",
                table, 0, "parameter",
            )  # fmt: skip
        if axis is not None and y is not None and x.parameter == y.parameter and table == "y":
            raise reader.error(f"both axes are {axis.parameter!r}", table, 0, "parameter")
    return Experiment(
        x,
        generator,
        curves,
        y,
        reader.whole(document, "sets", 100, 1, 10_000_000, ""),
        reader.whole(document, "seed", 1, 0, 1 << 62, ""),
        str(document.get("name", path.stem)),
    )


def write(outcome: Outcome, folder: Path) -> None:
    """``results.json`` and ``graph.png`` in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(
        json.dumps(outcome.to_json(), indent=1) + "\n", encoding="utf-8"
    )
    outcome.plot(folder / "graph.png")
