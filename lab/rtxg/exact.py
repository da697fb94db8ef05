# SPDX-License-Identifier: MIT
"""Exact numbers that stay fast: times on a common grid of whole numbers, and sums of fractions.

The tests of :mod:`rtxg.hard` and the bounds of :mod:`rtxg.blocking` are the same in any unit, so
they may count in whole grid steps, which Python adds a hundred times as fast as fractions.  The grid
follows from the proportions of the values and not from their unit: seconds and microseconds give the
same grid and so the same verdict.

May not: decide anything about tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import gcd, lcm

Number = Fraction | int

#: Steps of the grid in the longest time: at least as many, so that rounding to steps means nothing.
_FINEST = 1 << 24
#: And at most as many, so that sums of thousands of them fit into 64 bits.
_COARSEST = 1 << 40


def sum_of(values: Sequence[Number]) -> Fraction:
    """The sum of fractions, pair by pair: denominators stay short for longer than from the left."""
    left = [Fraction(value) for value in values]
    while len(left) > 1:
        left = [
            left[i] + left[i + 1] if i + 1 < len(left) else left[i] for i in range(0, len(left), 2)
        ]
    return left[0] if left else Fraction(0)


def utilization(costs: Sequence[Number], periods: Sequence[Number]) -> Fraction:
    """Sum of cost / period; costs of equal periods are added first."""
    by_period: dict[Number, Number] = {}
    for cost, period in zip(costs, periods, strict=True):
        by_period[period] = by_period.get(period, 0) + cost
    return sum_of([Fraction(cost) / period for period, cost in by_period.items()])


def whole(values: Sequence[Number]) -> tuple[list[int], int]:
    """The values as whole numbers of 1/scale, exactly; and the scale."""
    scale = lcm(*(value.denominator for value in values))
    return [value.numerator * (scale // value.denominator) for value in values], scale


def rounded_up(values: Sequence[Number]) -> list[Fraction]:
    """The values or, where their common denominator is above 2^40, the next multiples of 2^-40, so that
    sums of hundreds of them stay short."""
    if lcm(*(value.denominator for value in values)) <= _COARSEST:
        return [Fraction(value) for value in values]
    return [
        Fraction(-(-value.numerator * _COARSEST // value.denominator), _COARSEST)
        for value in values
    ]


def grid(
    costs: Sequence[Number], periods: Sequence[Number], deadlines: Sequence[Number]
) -> tuple[list[int], list[int], list[int]]:
    """Costs, periods and deadlines in whole grid steps.

    Exact where the values have a common measure that is not too fine; otherwise costs are rounded up
    and periods and deadlines down, by less than 2^-40 of the longest time.
    """
    numbers, _ = whole([*costs, *periods, *deadlines])
    n = len(costs)
    longest = max(numbers, default=0)
    if not longest:
        return numbers[:n], numbers[n : 2 * n], numbers[2 * n :]
    common = gcd(*numbers)
    if longest // common <= _COARSEST:
        factor = -(-_FINEST * common // longest)
        steps = [number // common * factor for number in numbers]
        return steps[:n], steps[n : 2 * n], steps[2 * n :]
    up = [-(-number * _COARSEST // longest) for number in numbers[:n]]
    down = [number * _COARSEST // longest for number in numbers[n:]]
    return up, down[:n], down[n:]
