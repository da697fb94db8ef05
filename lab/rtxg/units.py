# SPDX-License-Identifier: MIT
"""Time with units, exactly.

Inside the package a time is a :class:`~fractions.Fraction` of a microsecond, so that ``19.9ms``
stays 19900 and a third of a millisecond stays a third.  A bare number in a file is a number of
microseconds, as it is in rt-app.
"""

from __future__ import annotations

import io
import re
from fractions import Fraction
from pathlib import Path

#: Most bytes that are read of a file: a task set of 100 000 tasks has some ten million.
LONGEST_FILE = 1 << 26

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


def read_text(path: str | Path) -> str:
    """The text of a file, with or without a byte order mark, its lines ended by a newline.

    :raises UnicodeDecodeError: it is not UTF-8.
    :raises ValueError: it is longer than :data:`LONGEST_FILE`, as a device is that never ends.
    :raises OSError: it cannot be read; the path is in it.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(LONGEST_FILE + 1)
    except OSError as error:  # that of a read does not name the file
        raise OSError(error.errno, error.strerror, str(path)) from None
    if len(data) > LONGEST_FILE:
        raise ValueError(f"is longer than {LONGEST_FILE >> 20} MiB")
    return io.StringIO(data.decode("utf-8-sig"), newline=None).read()


def shown(value: object) -> str:
    """A value as a message has it: of one with thousands of digits or characters, the beginning."""
    if isinstance(value, int) and abs(value) >= 10**60:
        return "a number of more than 60 digits"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"


def parse_time(value: object) -> Fraction:
    """Read a time and return it in microseconds.

    :param value: a number (microseconds) or text such as ``"250ns"``, ``"5 ms"`` or ``"0.5s"``.
    :raises ValueError: when the value is negative, is not a number, or its unit is unknown.
    """
    if isinstance(value, bool):
        raise ValueError(
            f'{shown(value)} is not a time: write a number of microseconds or e.g. "5ms"'
        )
    if isinstance(value, (int, Fraction)):
        time = Fraction(value)
    elif isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise ValueError(f"{shown(value)} is not a finite time")
        time = Fraction(repr(value))
    elif isinstance(value, str):
        match = _QUANTITY.fullmatch(value)
        if not match:
            raise ValueError(f'{shown(value)} is not a time: write e.g. "5ms", "250us" or "1.5s"')
        number, unit = match.groups()
        if unit and unit not in MICROSECONDS:
            raise ValueError(f"{shown(value)}: unknown unit {unit!r}; use one of ns, us, ms, s")
        time = Fraction(number.replace("_", "")) * MICROSECONDS[unit or "us"]
    else:
        raise ValueError(
            f'{shown(value)} is not a time: write a number of microseconds or e.g. "5ms"'
        )
    if time < 0:
        raise ValueError(f"{shown(value)} is negative: a time is zero or more")
    if time > LONGEST:
        raise ValueError(f"{shown(value)} is longer than thirty years: is the unit right?")
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


def system_error(error: OSError) -> str:
    """What the system said of a file: ``tasks.toml: No such file or directory``."""
    if error.filename is None or not error.strerror:
        return str(error)
    return f"{error.filename}: {error.strerror}"
