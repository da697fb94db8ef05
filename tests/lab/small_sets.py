# SPDX-License-Identifier: MIT
"""Tasks and task sets in one line each, for the lab's tests."""

from __future__ import annotations

from fractions import Fraction

from rtxg import Platform, Task, TaskSet


def task(name: str, run: int, period: int, calls: int = 0, gpu: int = 0, section: int | None = None, **more: object) -> Task:
    """A task with an implicit deadline, in microseconds."""
    return Task(
        name,
        Fraction(run),
        Fraction(period),
        Fraction(more.pop("deadline", period)),
        calls,
        Fraction(gpu),
        Fraction(gpu if section is None else section),
        **more,
    )


def taskset(*tasks: Task, cpus: int = 2, gpus: int = 1, clusters: int = 1, scheduler: str = "G-EDF") -> TaskSet:
    return TaskSet(tuple(tasks), Platform(cpus, clusters, gpus, scheduler))
