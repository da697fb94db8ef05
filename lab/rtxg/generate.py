# SPDX-License-Identifier: MIT
"""Random task sets, the same ones for the same seed on any machine and any number of workers.

Batches are plain arrays, one row a task set, because campaigns make millions of them; a row turns
into a :class:`~rtxg.model.TaskSet` with :meth:`Batch.taskset`.  Only the uniform doubles of
numpy's PCG64 are drawn and every transformation of them is written out here, and times are rounded
to whole microseconds, so that results do not move with numpy's versions.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from .model import Platform, Task, TaskSet

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Utilizations:
    """Distribution of one task's utilisation, GPU time included.

    ``uniform``: between ``low`` and ``high``.  ``exponential``: with mean ``low``, values above one
    drawn again.  ``bimodal``: uniform in [0.001, 0.5) with probability ``low``, else in [0.5, 0.9].
    """

    kind: str
    low: float
    high: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in ("uniform", "exponential", "bimodal"):
            raise ValueError(f"distribution {self.kind!r} is unknown; use uniform, exponential or bimodal")
        if not 0 < self.low <= self.high <= 1:
            raise ValueError(f"utilisations from {self.low} to {self.high}: need 0 < low <= high <= 1")
        if self.kind != "bimodal" and self.low < 1e-4:  # so many tasks that memory ends
            raise ValueError(f"a utilisation of {self.low:g} is too small; use 0.0001 or more")

    def transform(self, draws: Floats) -> Floats:
        """Uniform draws in [0, 1) to utilisations."""
        if self.kind == "uniform":
            return self.low + (self.high - self.low) * draws
        if self.kind == "exponential":
            # Inverse of the distribution cut off at one, which is what drawing again comes to; in steps
            # of a billionth, because processors differ in the last digit of a logarithm.
            exact = -self.low * np.log1p(-draws * -np.expm1(-1.0 / self.low))
            return np.maximum(np.floor(exact * 1e9 + 0.5) * 1e-9, 1e-4)
        light = draws < self.low
        scaled = np.where(light, draws / self.low, (draws - self.low) / max(1.0 - self.low, 1e-12))
        return np.where(light, 0.001 + 0.499 * scaled, 0.5 + 0.4 * scaled)

    @property
    def mean(self) -> float:
        if self.kind == "uniform":
            return (self.low + self.high) / 2
        if self.kind == "exponential":
            return self.low - 1.0 / np.expm1(1.0 / self.low)
        return self.low * 0.2505 + (1 - self.low) * 0.7


@dataclass(frozen=True, slots=True)
class Recipe:
    """How task sets are made; the defaults are those of the klmirqd paper, sections V and VII.

    :param gpu_tasks: least and greatest share of tasks that use a GPU.
    :param gpu_share: share of such a task's execution time that is spent on the GPU.
    :param section_share: share of it that is spent holding the GPU, at least ``gpu_share``.
    :param periods: least and greatest period, microseconds; uniform, or log-uniform.
    """

    utilizations: Utilizations
    gpu_tasks: tuple[float, float] = (0.0, 0.0)
    gpu_share: float = 0.75
    section_share: float = 0.75
    periods: tuple[int, int] = (15_000, 60_000)
    log_periods: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.gpu_tasks[0] <= self.gpu_tasks[1] <= 1:
            raise ValueError(f"share of GPU-using tasks {self.gpu_tasks}: need 0 <= low <= high <= 1")
        if not 0 <= self.gpu_share <= self.section_share <= 1:
            raise ValueError("need 0 <= gpu_share <= section_share <= 1")
        if not 0 < self.periods[0] <= self.periods[1]:
            raise ValueError(f"periods {self.periods}: need 0 < low <= high")


@dataclass(frozen=True, slots=True)
class Batch:
    """Task sets as arrays of shape (sets, longest set); rows are filled up with zeros.

    ``cost``, ``gpu_time``, ``section`` and ``period`` are whole microseconds as floats; ``uses_gpu``
    is 1 or 0; ``count`` is the number of tasks of each row.
    """

    count: NDArray[np.int64]
    cost: Floats
    gpu_time: Floats
    section: Floats
    period: Floats
    uses_gpu: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.count)

    def utilization(self, speedup: float = 1.0) -> Floats:
        """Effective utilisation of every row, for GPUs ``speedup`` times as fast as a CPU."""
        with np.errstate(invalid="ignore", divide="ignore"):
            each = np.where(self.period > 0, (self.cost + speedup * self.gpu_time) / self.period, 0.0)
        return each.cumsum(axis=1)[:, -1]  # in order: a plain sum's order depends on the processor

    def taskset(self, row: int, platform: Platform, gpu_calls: int = 1) -> TaskSet:
        """One row as a task set, each GPU-using task with ``gpu_calls`` invocations a job."""
        tasks = []
        for i in range(int(self.count[row])):
            gpu = bool(self.uses_gpu[row, i])
            tasks.append(
                Task(
                    name=f"{'gpu' if gpu else 'cpu'}{i}",
                    cost=Fraction(int(self.cost[row, i])),
                    period=Fraction(int(self.period[row, i])),
                    deadline=Fraction(int(self.period[row, i])),
                    gpu_calls=gpu_calls if gpu else 0,
                    gpu_time=Fraction(int(self.gpu_time[row, i])),
                    section=Fraction(int(self.section[row, i])),
                )
            )
        return TaskSet(tuple(tasks), platform, f"generated {row}")


def random_batch(recipe: Recipe, cap: float, sets: int, seed: int | list[int]) -> Batch:
    """Task sets whose utilisation stays just below ``cap``: tasks are added until one more would pass it.

    :param seed: any integers; equal seeds give equal batches.
    """
    if cap <= 0 or sets < 1:
        raise ValueError(f"{sets} sets of utilisation {cap}: both must be above zero")
    draw = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed))).random
    width = int(cap / recipe.utilizations.mean * 1.5) + 8
    use = recipe.utilizations.transform(draw((sets, width)))
    while (total := use.cumsum(axis=1))[:, -1].min() <= cap:
        use = np.hstack([use, recipe.utilizations.transform(draw((sets, width)))])
    count = (total <= cap).sum(axis=1)
    longest = max(1, int(count.max()))
    member = np.arange(longest) < count[:, None]
    use = use[:, :longest]

    low, high = recipe.periods
    spread = draw((sets, longest))
    if recipe.log_periods:
        period = np.floor(low * np.exp(spread * np.log(high / low)) + 0.5)
    else:
        period = np.floor(low + spread * (high - low + 1))
    period = np.minimum(period, high)
    demand = np.maximum(1.0, np.floor(use * period + 0.5))

    share = recipe.gpu_tasks[0] + (recipe.gpu_tasks[1] - recipe.gpu_tasks[0]) * draw(sets)
    users = np.floor(share * count + 0.5)
    # Tasks are drawn independently of each other, so the first ones are as good a choice as any.
    uses_gpu = member & (np.arange(longest) < users[:, None])
    gpu_time = np.where(uses_gpu, np.floor(recipe.gpu_share * demand + 0.5), 0.0)
    section = np.where(uses_gpu, np.maximum(gpu_time, np.floor(recipe.section_share * demand + 0.5)), 0.0)
    cost = np.where(member, demand - gpu_time, 0.0)
    return Batch(count, cost, gpu_time, section, np.where(member, period, 0.0), uses_gpu.astype(np.int64))


def rand_fixed_sum(n: int, total: float, sets: int, seed: int | list[int], low: float = 0.0, high: float = 1.0) -> Floats:
    """Rows of n utilisations in [low, high] that sum to ``total``, uniformly over all such vectors.

    Stafford's algorithm, as Emberson, Stafford and Davis proposed it for task sets (WATERS 2010).

    :returns: array of shape (sets, n).
    """
    if not n * low <= total <= n * high:
        raise ValueError(f"{n} values in [{low}, {high}] cannot sum to {total}")
    if n == 1 or low == high:
        return np.full((sets, n), total / n)
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    target = (total - n * low) / (high - low)
    k = int(max(min(np.floor(target), n - 1), 0))
    target = max(min(target, k + 1), k)
    s1 = target - np.arange(k, k - n, -1.0)
    s2 = np.arange(k + n, k, -1.0) - target
    tiny, huge = np.finfo(float).tiny, np.finfo(float).max
    weight = np.zeros((n, n + 1))
    weight[0, 1] = huge
    chance = np.zeros((n - 1, n))
    for i in range(2, n + 1):
        first = weight[i - 2, 1 : i + 1] * s1[:i] / i
        second = weight[i - 2, :i] * s2[n - i : n] / i
        weight[i - 1, 1 : i + 1] = first + second
        below = weight[i - 1, 1 : i + 1] + tiny
        ascending = s2[n - i : n] > s1[:i]
        chance[i - 2, :i] = np.where(ascending, second / below, 1 - first / below)
    values = np.zeros((n, sets))
    steps, picks = rng.random((n - 1, sets)), rng.random((n - 1, sets))
    left, column = np.full(sets, target), np.full(sets, k + 1)
    shift, scale = np.zeros(sets), np.ones(sets)
    for i in range(n - 1, 0, -1):
        down = picks[n - i - 1] <= chance[i - 1, column - 1]
        root = steps[n - i - 1] ** (1.0 / i)
        shift = shift + (1.0 - root) * scale * left / (i + 1)
        scale = root * scale
        values[n - i - 1] = shift + scale * down
        left = left - down
        column = column - down
    values[n - 1] = shift + scale * left
    for row in range(sets):
        values[:, row] = values[rng.permutation(n), row]
    return (high - low) * values.T + low
