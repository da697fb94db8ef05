# SPDX-License-Identifier: MIT
"""Task sets in files: TOML of our own, and rt-app's JSON.

A key with the meaning of a key of rt-app has rt-app's name (``run``, ``period``, ``priority``,
``instance``, ``delay``, ``dl-runtime``, ``dl-deadline``, ``dl-period``).  A bare number is a number
of microseconds, as in rt-app.  Every error names the file and the line.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from . import units
from .analysis import BOUNDS, LOCKS, SUSPENSIONS
from .blocking import PARTITIONED_LOCKS
from .model import PARTITIONINGS, SCHEDULERS, Platform, Task, TaskSet
from .overheads import (
    NO_OVERHEADS,
    OVERHEAD_SETS,
    STOCK_KERNEL,
    Interrupts,
    Overheads,
    read_measured,
)
from .units import parse_time, shown, system_error


class TaskFileError(ValueError):
    """A task file that cannot be used; its text begins with file and line."""

    def __init__(self, path: object, line: int | None, message: str) -> None:
        super().__init__(f"{path}:{line}: {message}" if line else f"{path}: {message}")
        self.line = line


@dataclass(frozen=True, slots=True)
class Problem:
    """The question of a task file: a task set and the assumptions."""

    taskset: TaskSet
    interrupts: Interrupts = STOCK_KERNEL
    overheads: Overheads = NO_OVERHEADS
    lock: str = "exact"
    bound: str = "best"
    suspensions: str = "best"
    #: the file, or the command line, says how interrupts are handled
    interrupts_given: bool = False

    @property
    def options(self) -> dict[str, object]:
        """Keyword arguments for :func:`rtxg.analysis.analyze`."""
        return {
            "interrupts": self.interrupts,
            "overheads": self.overheads,
            "lock": self.lock,
            "bound": self.bound,
            "suspensions": self.suspensions,
        }


_PLATFORM_KEYS = {"cpus", "clusters", "gpus", "scheduler", "interrupts", "lock", "bound", "partitioning", "suspensions"}
_TASK_KEYS = {
    "name",
    "run",
    "period",
    "deadline",
    "priority",
    "instance",
    "delay",
    "cluster",
    "gpu",
    "policy",
    "dl-runtime",
    "dl-period",
    "dl-deadline",
}
_GPU_KEYS = {"calls", "time", "section", "requests"}
_POLICIES = {"SCHED_OTHER", "SCHED_FIFO", "SCHED_RR", "SCHED_DEADLINE"}
#: Those of rt-app's files.
_RTAPP_POLICIES = ("SCHED_OTHER", "SCHED_IDLE", "SCHED_RR", "SCHED_FIFO", "SCHED_DEADLINE")


class _Lines:
    """Where each key of a TOML text stands; the standard parser does not say."""

    _HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
    _KEY = re.compile(r"\s*([A-Za-z0-9_.\-\"' ]+?)\s*=")

    def __init__(self, text: str) -> None:
        self._lines: dict[tuple[str, int, str], int] = {}
        counts: dict[str, int] = {}
        table, index = "", 0
        for number, line in enumerate(text.splitlines(), start=1):
            if header := self._HEADER.match(line):
                table = header[2].replace('"', "").replace("'", "").replace(" ", "")
                parent = table.partition(".")[0]
                if header[1] == "[[":
                    counts[table] = counts.get(table, -1) + 1
                index = counts.get(parent, 0)
                self._lines.setdefault((table, index, ""), number)
            elif key := self._KEY.match(line):
                name = key[1].replace('"', "").replace("'", "").replace(" ", "")
                self._lines.setdefault((table, index, name), number)

    def find(self, table: str, index: int, key: str = "") -> int | None:
        """Line of ``key`` in the index-th ``table``; failing that, of the table."""
        path = f"{table}.{key}" if key else table
        for candidate in (
            (table, index, key),
            (table.rpartition(".")[0], index, f"{table.rpartition('.')[2]}.{key}"),
            (table.rpartition(".")[0], index, table.rpartition(".")[2]),
            (path, index, ""),
            (table, index, ""),
            ("", 0, table),
        ):
            if candidate in self._lines:
                return self._lines[candidate]
        return None


class _Reader:
    """Reads values out of parsed TOML and turns wrong values into errors with a line."""

    def __init__(self, path: object, text: str) -> None:
        self.path = path
        self.lines = _Lines(text)

    def error(self, message: str, table: str, index: int = 0, key: str = "") -> TaskFileError:
        return TaskFileError(self.path, self.lines.find(table, index, key), message)

    def check_keys(self, values: object, known: set[str], table: str, index: int = 0) -> None:
        if not isinstance(values, dict):
            raise self.error(f"{table} must be a table", table, index)
        for key in values:
            if key not in known:
                close = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(sorted(known))}"
                raise self.error(f"unknown key {key!r} in [{table}]; {hint}", table, index, key)

    def whole(self, values: dict, key: str, default: int, low: int, high: int, table: str, index: int = 0) -> int:
        value = values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            what = f"{key} is {shown(value)}; it must be a whole number from {low} to {high}"
            raise self.error(what, table, index, key)
        return value

    def flag(self, values: dict, key: str, table: str, index: int = 0) -> bool:
        value = values.get(key, False)
        if not isinstance(value, bool):
            what = f"{key} is {shown(value)}; it must be true or false"
            raise self.error(what, table, index, key)
        return value

    def choice(self, values: dict, key: str, default: str, choices: tuple[str, ...], table: str, index: int = 0) -> str:
        value = values.get(key, default)
        if not isinstance(value, str) or value not in choices:
            what = f"{key} is {shown(value)}; use one of {', '.join(choices)}"
            raise self.error(what, table, index, key)
        return value

    def time(self, values: dict, key: str, default: Fraction | None, table: str, index: int = 0) -> Fraction:
        if key not in values:
            if default is None:
                raise self.error(f'{key} is missing; give it a time such as {key} = "5ms"', table, index)
            return default
        try:
            return parse_time(values[key])
        except ValueError as error:
            raise self.error(f"{key}: {error}", table, index, key) from None


#: The examples, in a source tree and in an installed package.
_EXAMPLES = (Path(__file__).resolve().parent / "examples", Path(__file__).resolve().parents[1] / "examples")


#: The example that is no task file.
EXPERIMENT = "example:experiment"


def example_experiment() -> Path:
    """The file of the example experiment."""
    return next(path for folder in _EXAMPLES for path in folder.glob("experiment.toml"))


def examples() -> dict[str, Path]:
    """The task files that come with the package, by name (``experiment.toml`` beside them is none)."""
    found = {path.stem: path for folder in _EXAMPLES for path in folder.glob("*.toml") if path.stem != "experiment"}
    return dict(sorted(found.items()))


def read_text(path: Path) -> str:
    """The text of a file.

    :raises TaskFileError: it is not UTF-8, or endless.
    :raises OSError: it cannot be read.
    """
    try:
        return units.read_text(path)
    except UnicodeDecodeError as error:
        raise TaskFileError(path, None, f"is not UTF-8 text (byte {error.start})") from None
    except ValueError as error:
        raise TaskFileError(path, None, f"{error}: is it the right file?") from None


def name_of(path: object) -> str:
    """What a task set without a name is called: as its file."""
    return "".join(c if c.isprintable() else "?" for c in getattr(path, "stem", "task set"))


#: The beginning of a number with more digits than Python turns into an integer.
_ENDLESS = re.compile(r"[0-9][0-9_]{4000}")


def parse(text: str, path: object, what: Callable[[str], object]) -> object:
    """TOML or JSON text by the standard library's parser, whose complaints become one of ours.

    :param what: ``tomllib.loads`` or ``json.loads``.
    :raises TaskFileError: naming file and line.
    """
    try:
        return what(text)
    except json.JSONDecodeError as error:
        raise TaskFileError(path, error.lineno, error.msg) from None
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"\(at line (\d+), column \d+\)", str(error))
        line = int(found[1]) if found else (text.count("\n") + 1)
        raise TaskFileError(path, line, re.sub(r" \(at .*\)", "", str(error))) from None
    except RecursionError:
        raise TaskFileError(path, None, "is nested too deeply") from None
    except ValueError:
        line = next((n for n, one in enumerate(text.splitlines(), 1) if _ENDLESS.search(one)), None)
        raise TaskFileError(path, line, "has a number of thousands of digits") from None


def load(path: str | Path) -> Problem:
    """Read a task file: ``.json`` as rt-app's, anything else as TOML; ``example:NAME`` is one of
    :func:`examples`.

    :raises TaskFileError: naming file, line, value and remedy.
    :raises OSError: when the file cannot be read.
    """
    if isinstance(path, str) and path.startswith("example:"):
        name, known = path.removeprefix("example:"), examples()
        if name not in known:
            kind = "there is no such example"
            if path == EXPERIMENT:
                kind = f"is an experiment, for rtxg campaign --file {path}"
            raise TaskFileError(path, None, f"{kind}; there are {', '.join(known)}")
        path = known[name]
    path = Path(path)
    text = read_text(path)
    return loads_rtapp(text, path) if path.suffix == ".json" else loads(text, path)


def loads(text: str, path: object = "<text>") -> Problem:
    """Read a task set from TOML text; ``path`` is named in errors."""
    document = parse(text, path, tomllib.loads)
    reader = _Reader(path, text)
    for key in document:
        if key not in ("name", "platform", "overheads", "task"):
            raise reader.error(f"unknown table {key!r}; known are [platform], [overheads] and [[task]]", key)

    settings = document.get("platform")
    if settings is None:
        raise TaskFileError(path, None, "has no [platform]; say at least how many cpus there are")
    reader.check_keys(settings, _PLATFORM_KEYS, "platform")
    if "cpus" not in settings:
        raise reader.error("cpus is missing; say how many there are", "platform")
    try:
        platform = Platform(
            cpus=reader.whole(settings, "cpus", 0, 1, 4096, "platform"),
            clusters=reader.whole(settings, "clusters", 1, 1, 4096, "platform"),
            gpus=reader.whole(settings, "gpus", 0, 0, 1024, "platform"),
            scheduler=reader.choice(settings, "scheduler", "G-EDF", SCHEDULERS, "platform"),
        )
    except TaskFileError:
        raise
    except ValueError as error:
        raise reader.error(str(error), "platform", 0, "clusters") from None
    interrupts = reader.choice(settings, "interrupts", STOCK_KERNEL.value, tuple(i.value for i in Interrupts), "platform")
    lock = reader.choice(settings, "lock", "exact", LOCKS, "platform")
    bound = reader.choice(settings, "bound", "best", BOUNDS, "platform")
    if lock in PARTITIONED_LOCKS and platform.scheduler != "P-FP":
        raise reader.error(
            f"lock {lock!r} is for partitioned fixed priorities; the scheduler is {platform.scheduler}, use P-FP",
            "platform", 0, "lock",
        )  # fmt: skip
    suspensions = reader.choice(settings, "suspensions", "best", SUSPENSIONS, "platform")
    if suspensions == "aware" and platform.scheduler != "G-EDF":
        raise reader.error(
            f"suspension-aware analysis is for G-EDF; the scheduler is {platform.scheduler}", "platform", 0, "suspensions"
        )
    partitioning = reader.choice(settings, "partitioning", "worst-fit", PARTITIONINGS, "platform")

    overheads = _read_overheads(reader, document.get("overheads", {}))
    entries = document.get("task", [])
    if not isinstance(entries, list):
        raise reader.error("tasks are written [[task]], with two brackets", "task")
    tasks = [task for index, entry in enumerate(entries) for task in _read_task(reader, entry, index)]
    if not tasks:
        raise TaskFileError(path, None, "has no [[task]]")
    name = document.get("name", name_of(path))
    if not isinstance(name, str) or not name.isprintable():
        what = f"name is {shown(name)}; it must be text that can be printed"
        raise reader.error(what, "", 0, "name")
    try:
        taskset = TaskSet(tuple(tasks), platform, name)
    except ValueError as error:
        named = re.search(r"task (\S+?):? |named '(\S+)'", str(error))
        guilty = next((t.line for t in reversed(tasks) if named and t.name in named.groups()), None)
        raise TaskFileError(path, guilty, str(error)) from None
    if bound == "devi-anderson":
        for index, entry in enumerate(entries):
            if "deadline" in entry or "dl-deadline" in entry:
                key = "deadline" if "deadline" in entry else "dl-deadline"
                if reader.time(entry, key, None, "task", index) != next(
                    t.period for t in tasks if t.line == reader.lines.find("task", index)
                ):
                    raise reader.error(
                        f"{key}: the Devi-Anderson bound is for deadlines equal to periods; use bound = \"best\"",
                        "task", index, key,
                    )  # fmt: skip
    return Problem(
        taskset.partitioned(partitioning),
        Interrupts(interrupts),
        overheads,
        lock,
        bound,
        suspensions,
        "interrupts" in settings,
    )


def _read_overheads(reader: _Reader, values: object) -> Overheads:
    names = Overheads.__dataclass_fields__
    reader.check_keys(
        values,
        {"base", "measured", *names, *(name.replace("_", "-") for name in names)},
        "overheads",
    )
    base = reader.choice(values, "base", "none", tuple(OVERHEAD_SETS), "overheads")
    overheads = OVERHEAD_SETS[base]
    if "measured" in values:
        file = values["measured"]
        if not isinstance(file, str) or not file:
            raise reader.error(
                f"measured is {file!r}; name a file that rtxg measure --out wrote",
                "overheads",
                0,
                "measured",
            )
        folder = reader.path.parent if isinstance(reader.path, Path) else Path()
        try:
            overheads = read_measured(folder / file, overheads)
        except (OSError, ValueError) as error:
            what = system_error(error) if isinstance(error, OSError) else error
            raise reader.error(f"measured: {what}", "overheads", 0, "measured") from None
    for key, value in values.items():
        if key not in ("base", "measured"):
            try:
                overheads = Overheads.from_mapping({key: value}, overheads)
            except ValueError as error:
                raise reader.error(str(error), "overheads", 0, key) from None
    return overheads


def _read_task(reader: _Reader, entry: object, index: int) -> list[Task]:
    reader.check_keys(entry, _TASK_KEYS, "task", index)
    name = entry.get("name", f"task{index}")
    if not isinstance(name, str) or not name:
        raise reader.error(f"name is {shown(name)}; it must be text", "task", index, "name")
    policy = reader.choice(entry, "policy", "SCHED_DEADLINE", tuple(sorted(_POLICIES)), "task", index)
    for plain, rtapp in (("run", "dl-runtime"), ("period", "dl-period"), ("deadline", "dl-deadline")):
        if plain in entry and rtapp in entry:
            raise reader.error(f"{plain} and {rtapp} say the same thing; keep one", "task", index, rtapp)
    gpu = entry.get("gpu", {})
    reader.check_keys(gpu, _GPU_KEYS, "task.gpu", index)
    run_key = "dl-runtime" if "dl-runtime" in entry else "run"
    cost = reader.time(entry, run_key, Fraction(0) if gpu else None, "task", index)
    period_key = "dl-period" if "dl-period" in entry else "period"
    period = reader.time(entry, period_key, None, "task", index)
    deadline_key = "dl-deadline" if "dl-deadline" in entry else "deadline"
    deadline = reader.time(entry, deadline_key, period, "task", index)
    gpu_time = reader.time(gpu, "time", Fraction(0), "task.gpu", index)
    requests = reader.whole(gpu, "requests", 1, 1, 1_000_000, "task.gpu", index)
    section = reader.time(gpu, "section", gpu_time / requests, "task.gpu", index)
    calls = reader.whole(gpu, "calls", requests if gpu else 0, 0, 1_000_000, "task.gpu", index)
    priority = reader.whole(entry, "priority", 0, 0, 99, "task", index)
    if priority and policy == "SCHED_OTHER":
        raise reader.error("priority needs policy SCHED_FIFO or SCHED_RR", "task", index, "priority")
    cluster = reader.whole(entry, "cluster", 0, 0, 4095, "task", index) if "cluster" in entry else None
    offset = reader.time(entry, "delay", Fraction(0), "task", index)
    copies = reader.whole(entry, "instance", 1, 1, 100_000, "task", index)
    line = reader.lines.find("task", index)
    names = [name] if copies == 1 else [f"{name}-{i}" for i in range(copies)]
    try:
        return [
            Task(n, cost, period, deadline, calls, gpu_time, section, priority, cluster, offset, line, requests) for n in names
        ]
    except ValueError as error:
        raise TaskFileError(reader.path, line, str(error)) from None


def loads_rtapp(text: str, path: object = "<text>", cpus: int | None = None) -> Problem:
    """Read an rt-app configuration: its CPU time and periods, as one global-EDF problem.

    Of each task the events ``run`` and ``runtime`` are summed and the ``timer`` gives the period; a
    SCHED_DEADLINE task is taken by its ``dl-*`` values.  rt-app knows no GPUs.

    :param cpus: CPUs to assume; default: as many as the highest one named in ``cpus``, else one.
    """
    document = parse(text, path, json.loads)
    entries = document.get("tasks") if isinstance(document, dict) else None
    if not isinstance(entries, dict) or not entries:
        raise TaskFileError(path, None, 'has no "tasks"; is it an rt-app file?')

    def line_of(name: str) -> int | None:
        for number, line in enumerate(text.splitlines(), start=1):
            if f'"{name}"' in line:
                return number
        return None

    usual = document.get("global", {})
    usual = usual.get("default_policy") if isinstance(usual, dict) else None
    tasks, highest = [], 0
    for name, entry in entries.items():
        try:
            found, cpu = _read_rtapp_task(name, entry, line_of(name), usual)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            what = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
            raise TaskFileError(path, line_of(name), f"task {name}: {what}") from None
        tasks += found
        highest = max(highest, cpu)
    try:
        taskset = TaskSet(tuple(tasks), Platform(cpus or highest + 1), name_of(path))
    except ValueError as error:
        raise TaskFileError(path, None, str(error)) from None
    return Problem(taskset)


def _read_rtapp_task(
    name: str, entry: object, line: int | None, usual: object
) -> tuple[list[Task], int]:
    """The instances of one rt-app task, and the highest CPU it names.

    :param usual: the policy of tasks that name none.
    """
    if not isinstance(entry, dict):
        raise ValueError("must be an object")
    policy = entry.get("policy", usual or "SCHED_OTHER")
    if policy not in _RTAPP_POLICIES:
        raise ValueError(f"policy is {shown(policy)}; use one of {', '.join(_RTAPP_POLICIES)}")
    cost, period = _rtapp_demand(entry)
    if "dl-runtime" in entry:
        cost = parse_time(entry["dl-runtime"])
        period = parse_time(entry.get("dl-period", entry.get("dl-deadline", 0)))
    if not period:
        raise ValueError("has no timer with a period and no dl-period: it is not a periodic task")
    deadline = parse_time(entry.get("dl-deadline", period))
    whole = {"instance": (entry.get("instance", 1), 100_000), "priority": (entry.get("priority", 0), 99)}
    for key, (value, most) in whole.items():
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise ValueError(f"{key} is {shown(value)}; it must be a whole number from 0 to {most}")
    copies = whole["instance"][0]
    priority = whole["priority"][0] if policy in ("SCHED_FIFO", "SCHED_RR") else 0
    offset = parse_time(entry.get("delay", 0))
    affinity = entry.get("cpus", [])
    if not isinstance(affinity, list) or not all(
        isinstance(c, int) and not isinstance(c, bool) and 0 <= c < 4096 for c in affinity
    ):
        raise ValueError(f"cpus is {affinity!r}; it must be a list of CPU numbers")
    names = [name] if copies == 1 else [f"{name}-{i}" for i in range(copies)]
    tasks = [Task(n, cost, period, deadline, priority=priority, offset=offset, line=line) for n in names]
    return tasks, max(affinity, default=0)


def _rtapp_demand(events: dict) -> tuple[Fraction, Fraction]:
    """CPU time and timer period of one turn through a list of rt-app events."""
    cost, period = Fraction(0), Fraction(0)
    for key, value in events.items():
        if re.fullmatch(r"run(time)?\d*", key):
            cost += parse_time(value)
        elif re.fullmatch(r"timer\d*", key):
            if not isinstance(value, dict):
                raise ValueError(f"{key} is {shown(value)}; it must be an object with a period")
            period = max(period, parse_time(value["period"]))
        elif key == "phases":
            if not isinstance(value, dict) or not all(isinstance(p, dict) for p in value.values()):
                raise ValueError("phases must be an object, and so must each phase")
            phases = [_rtapp_demand(phase) for phase in value.values()]
            cost = max([cost] + [c for c, _ in phases])
            period = min((p for _, p in phases if p), default=period)
    return cost, period
