# SPDX-License-Identifier: MIT
"""Task sets in other forms: SchedCAT's and SimSo's files.

SchedCAT's files hold whole numbers of a unit that they do not name, microseconds unless said
otherwise; SimSo's hold milliseconds.  What a format cannot say is refused on the way out, with the
task's name, and never dropped.  SchedCAT's is an exception: it has no interrupts, priorities and
first releases, so that these are not in its files.
"""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree

from .model import Platform, Task, TaskSet
from .taskfile import TaskFileError, name_of, read_text
from .units import parse_time

# SchedCAT ----------------------------------------------------------------------------------------


def _unit(unit: object) -> Fraction:
    step = parse_time(unit)
    if not step:
        raise ValueError(f"the unit is {unit!r}; it must be above 0")
    return step


def _whole(task: Task, value: Fraction, unit: Fraction, what: str) -> str:
    count = value / unit
    if count.denominator != 1:
        raise ValueError(
            f"task {task.name}: {what} is {value} us, no whole number of the file's unit of {unit} us; choose a finer unit"
        )
    return str(count.numerator)


def to_schedcat(taskset: TaskSet, unit: object = "1us") -> str:
    """The task set as SchedCAT reads it (``schedcat.model.serialize``).

    A job's CPU and GPU time together are its cost, as suspension-oblivious analysis has it; the GPU
    is resource 0, each request of which is as long as the section.

    :param unit: what one step of the file's numbers stands for.
    :raises ValueError: a time is no whole number of units.
    """
    step = _unit(unit)
    root = ElementTree.Element("taskset")
    ElementTree.SubElement(
        root, "properties", utilization=str(float(taskset.utilization)), count=str(len(taskset))
    )
    for number, t in enumerate(taskset, start=1):
        node = ElementTree.SubElement(
            root,
            "task",
            id=str(number),
            period=_whole(t, t.period, step, "period"),
            wcet=_whole(t, t.demand, step, "CPU and GPU time"),
        )
        if t.deadline != t.period:
            node.set("deadline", _whole(t, t.deadline, step, "deadline"))
        if t.cluster is not None:
            node.set("partition", str(t.cluster))
        if t.uses_gpu:
            resources = ElementTree.SubElement(node, "resources")
            length = _whole(t, t.section, step, "section")
            ElementTree.SubElement(
                resources,
                "requirement",
                res_id="0",
                max_reads="0",
                max_writes=str(t.gpu_requests),
                max_read_length="0",
                max_write_length=length,
            )
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _parse_xml(text: str, path: object) -> ElementTree.Element:
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise TaskFileError(path, None, "has a document type; task sets need none")
    try:
        return ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise TaskFileError(path, error.position[0], f"is not XML: {error}") from None


_NUMBER = re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,40})?([eE][-+]?[0-9]{1,2})?")


def _count(
    node: ElementTree.Element, key: str, path: object, which: str, default: str | None = None
) -> int:
    """A whole number."""
    value = _number(node, key, path, which, default)
    if value.denominator != 1:
        raise TaskFileError(
            path, None, f"{which}: {key} is {node.get(key)}; it must be a whole number"
        )
    return value.numerator


def _number(
    node: ElementTree.Element, key: str, path: object, which: str, default: str | None = None
) -> Fraction:
    text = node.get(key, default)
    if text is None:
        raise TaskFileError(path, None, f"{which}: {key} is missing")
    if not _NUMBER.fullmatch(text):  # nor one whose digits would fill the memory
        raise TaskFileError(path, None, f"{which}: {key} is {text[:40]!r}, no number")
    value = Fraction(text)
    if value < 0:
        raise TaskFileError(path, None, f"{which}: {key} is {text}; it must not be negative")
    return value


def from_schedcat(
    text: str, platform: Platform, unit: object = "1us", path: object = "<text>"
) -> TaskSet:
    """A task set that SchedCAT wrote.  Requests of resource 0 become the section that holds a GPU.

    :param platform: SchedCAT's files say nothing of it.
    :param unit: what one step of the file's numbers stands for.
    :raises TaskFileError: naming the file, the task and the value.
    """
    step = _unit(unit)
    root = _parse_xml(text, path)
    if root.tag != "taskset":
        raise TaskFileError(
            path, None, f"begins with <{root.tag}>; a task set of SchedCAT begins with <taskset>"
        )
    tasks = []
    for index, node in enumerate(root.findall("task")):
        which = f"task {node.get('id', index)}"
        cost = _number(node, "wcet", path, which) * step
        period = _number(node, "period", path, which) * step
        deadline = _number(node, "deadline", path, which, node.get("period")) * step
        partition = (
            None if node.get("partition") is None else _count(node, "partition", path, which)
        )
        section, requests = Fraction(0), 0
        for request in node.findall("resources/requirement"):
            reads = _count(request, "max_reads", path, which, "0")
            if request.get("res_id", "0") == "0":
                if reads or requests:
                    what = "a GPU is requested once and to write; reading it is unknown"
                    raise TaskFileError(path, None, f"{which}: {what}")
                requests = _count(request, "max_writes", path, which, "1")
                section = _number(request, "max_write_length", path, which, "1") * step
            elif reads or _count(request, "max_writes", path, which, "1"):
                raise TaskFileError(
                    path,
                    None,
                    f"{which} requests resource {request.get('res_id')}; only resource 0, the GPU, is known",
                )
        held = requests * section
        try:
            tasks.append(
                Task(
                    f"t{node.get('id', index)}",
                    cost - held,
                    period,
                    deadline,
                    requests,
                    held,
                    section if requests else Fraction(0),
                    cluster=partition,
                    gpu_requests=max(1, requests),
                )
            )
        except ValueError as error:
            raise TaskFileError(path, None, str(error)) from None
    try:
        return TaskSet(tuple(tasks), platform, name_of(path))
    except ValueError as error:
        raise TaskFileError(path, None, str(error)) from None


# SimSo -------------------------------------------------------------------------------------------

_SIMSO_SCHEDULERS = {"G-EDF": "simso.schedulers.EDF", "RM": "simso.schedulers.RM"}


def to_simso(taskset: TaskSet, length: object = "1s") -> str:
    """The task set as a configuration of SimSo: periodic, always the worst case, no job aborted.

    :param length: how long SimSo is to simulate.
    :raises ValueError: a task uses a GPU or has a priority of its own, a time is no float of
        milliseconds, there is more than one cluster, or the scheduler is none of SimSo's.
    """
    p = taskset.platform
    if p.scheduler not in _SIMSO_SCHEDULERS or p.clusters != 1:
        raise ValueError(
            f"{p.scheduler} on {p.clusters} clusters: SimSo's files take {' or '.join(_SIMSO_SCHEDULERS)} on one cluster"
        )
    cycles_per_ms = 1_000_000

    def ms(task: Task, what: str) -> str:
        value = getattr(task, what) / 1000
        text = repr(float(value))
        if Fraction(text) != value:
            raise ValueError(
                f"task {task.name}: {what} is {value} ms, which no decimal number of SimSo's files is"
            )
        return text

    duration = int(parse_time(length) / 1000 * cycles_per_ms)
    root = ElementTree.Element(
        "simulation", duration=str(duration), cycles_per_ms=str(cycles_per_ms), etm="wcet"
    )
    ElementTree.SubElement(
        root,
        "sched",
        {"class": _SIMSO_SCHEDULERS[p.scheduler]},
        overhead="0",
        overhead_activate="0",
        overhead_terminate="0",
    )
    ElementTree.SubElement(root, "caches", memory_access_time="100")
    processors = ElementTree.SubElement(root, "processors")
    for number in range(p.cpus):
        ElementTree.SubElement(
            processors,
            "processor",
            name=f"CPU {number}",
            id=str(number + 1),
            cl_overhead="0",
            cs_overhead="0",
            speed="1.0",
        )
    tasks = ElementTree.SubElement(root, "tasks")
    for number, t in enumerate(taskset, start=1):
        if t.uses_gpu:
            raise ValueError(f"task {t.name} uses a GPU; SimSo's files know no GPUs")
        if t.priority:
            raise ValueError(f"task {t.name} has priority {t.priority}; SimSo's RM goes by periods")
        ElementTree.SubElement(
            tasks,
            "task",
            name=t.name,
            id=str(number),
            task_type="Periodic",
            abort_on_miss="no",
            period=ms(t, "period"),
            activationDate=ms(t, "offset"),
            instructions="1000",
            mix="0.5",
            WCET=ms(t, "cost"),
            ACET=ms(t, "cost"),
            deadline=ms(t, "deadline"),
            base_cpi="1.0",
        )
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def from_simso(text: str, path: object = "<text>") -> TaskSet:
    """A task set of a SimSo configuration: its periodic tasks and its processors.

    :raises TaskFileError: naming the file, the task and the value.
    """
    root = _parse_xml(text, path)
    if root.tag != "simulation":
        raise TaskFileError(
            path,
            None,
            f"begins with <{root.tag}>; a configuration of SimSo begins with <simulation>",
        )
    named = root.find("sched")
    scheduler = (named.get("class", "") if named is not None else "").rpartition(".")[2]
    known = {value.rpartition(".")[2]: key for key, value in _SIMSO_SCHEDULERS.items()} | {
        "EDF_mono": "G-EDF",
        "RM_mono": "RM",
    }
    if scheduler not in known:
        raise TaskFileError(path, None, f"scheduler is {scheduler!r}; known are {', '.join(known)}")
    cpus = len(root.findall("processors/processor"))
    tasks = []
    for node in root.findall("tasks/task"):
        name = node.get("name", f"task {node.get('id')}")
        which = f"task {name}"
        if node.get("task_type", "Periodic") not in ("Periodic", "Sporadic"):
            raise TaskFileError(
                path,
                None,
                f"{which} is {node.get('task_type')}; only periodic and sporadic tasks are known",
            )
        cost, period, deadline, offset = (
            _number(node, key, path, which, default) * 1000
            for key, default in (
                ("WCET", None),
                ("period", None),
                ("deadline", node.get("period")),
                ("activationDate", "0"),
            )
        )
        try:
            tasks.append(Task(name, cost, period, deadline, offset=offset))
        except ValueError as error:
            raise TaskFileError(path, None, str(error)) from None
    try:
        return TaskSet(
            tuple(tasks),
            Platform(cpus, scheduler=known[scheduler]),
            name_of(path),
        )
    except ValueError as error:
        raise TaskFileError(path, None, str(error)) from None


def read(path: str | Path, platform: Platform | None = None) -> TaskSet:
    """A task set of SchedCAT (needs ``platform``) or SimSo, told apart by its first tag."""
    path = Path(path)
    text = read_text(path)
    if _parse_xml(text, path).tag == "simulation":
        return from_simso(text, path)
    if platform is None:
        raise TaskFileError(path, None, "says nothing of CPUs; give a platform")
    return from_schedcat(text, platform, path=path)
