# SPDX-License-Identifier: MIT
"""Time with units, exactly.

Inside the package a time is a :class:`~fractions.Fraction` of a microsecond, so that ``19.9ms``
stays 19900 and a third of a millisecond stays a third.  A bare number in a file is a number of
microseconds, as it is in rt-app.
"""

from __future__ import annotations

import re
from fractions import Fraction

#: Microseconds in one unit of each accepted suffix.
MICROSECONDS = {
    "ns": Fraction(1, 1000),
    "us": Fraction(1),
    "µs": Fraction(1),
    "ms": Fraction(1000),
    "s": Fraction(1_000_000),
}

_QUANTITY = re.compile(r"\s*([0-9][0-9_]{0,39}(?:\.[0-9]{1,40})?(?:[eE][-+]?[0-9]{1,2})?)\s*([a-zµ]*)\s*")

#: Longest time accepted, microseconds: some thirty years.
LONGEST = Fraction(10**15)


def parse_time(value: object) -> Fraction:
    """Read a time and return it in microseconds.

    :param value: a number (microseconds) or text such as ``"250ns"``, ``"5 ms"`` or ``"0.5s"``.
    :raises ValueError: when the value is negative, is not a number, or its unit is unknown.
    """
    if isinstance(value, bool):
        raise ValueError(f'{value!r} is not a time: write a number of microseconds or e.g. "5ms"')
    if isinstance(value, (int, Fraction)):
        time = Fraction(value)
    elif isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise ValueError(f"{value!r} is not a finite time")
        time = Fraction(repr(value))
    elif isinstance(value, str):
        match = _QUANTITY.fullmatch(value)
        if not match:
            raise ValueError(f'{value!r} is not a time: write e.g. "5ms", "250us" or "1.5s"')
        number, unit = match.groups()
        if unit and unit not in MICROSECONDS:
            raise ValueError(f"{value!r}: unknown unit {unit!r}; use one of ns, us, ms, s")
        time = Fraction(number.replace("_", "")) * MICROSECONDS[unit or "us"]
    else:
        raise ValueError(f'{value!r} is not a time: write a number of microseconds or e.g. "5ms"')
    if time < 0:
        raise ValueError(f"{value!r} is negative: a time is zero or more")
    if time > LONGEST:
        raise ValueError(f"{value!r} is longer than thirty years: is the unit right?")
    return time


def format_time(microseconds: Fraction | float | int, digits: int = 4) -> str:
    """Print a time in the largest unit that keeps it readable: ``format_time(19900) == "19.9ms"``."""
    value = float(microseconds)
    size = abs(value)
    if size >= 1e6:
        return f"{value / 1e6:.{digits}g}s"
    if size >= 1e3:
        return f"{value / 1e3:.{digits}g}ms"
    if size >= 1 or size == 0:
        return f"{value:.{digits}g}us"
    return f"{value * 1e3:.{digits}g}ns"
