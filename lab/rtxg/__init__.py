# SPDX-License-Identifier: MIT
"""rtxg: schedulability analysis and simulation of CPUs that share GPUs.

    >>> import rtxg
    >>> problem = rtxg.loads('''
    ... [platform]
    ... cpus = 2
    ... [[task]]
    ... name = "control"
    ... run = "2ms"
    ... period = "3ms"
    ... instance = 3
    ... ''')
    >>> rtxg.analyze(problem.taskset, **problem.options).schedulable
    True

Start with :func:`load`, or :meth:`Task.of` and :class:`TaskSet`, and :func:`analyze`; :mod:`rtxg.tardiness`, :mod:`rtxg.hard` and
:mod:`rtxg.blocking` hold the tests and bounds on plain numbers.
"""

from .analysis import Analysis, TaskResult, analyze, what_would_fix
from .model import Platform, Task, TaskSet
from .overheads import NO_OVERHEADS, TABLE_III, Interrupts, Overheads
from .taskfile import Problem, TaskFileError, examples, load, loads

__all__ = [
    "NO_OVERHEADS",
    "TABLE_III",
    "Analysis",
    "Interrupts",
    "Overheads",
    "Platform",
    "Problem",
    "Task",
    "TaskFileError",
    "TaskResult",
    "TaskSet",
    "analyze",
    "examples",
    "load",
    "loads",
    "what_would_fix",
]

__version__ = "0.1.0"
