# SPDX-License-Identifier: MIT
"""The command line: one module a subcommand; each only reads options and prints."""

from __future__ import annotations

import argparse
import sqlite3
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from .. import __version__
from ..overheads import OVERHEAD_SETS, Interrupts, Overheads, read_measured
from ..taskfile import Problem, load
from ..units import system_error

#: Exit status of a verdict "not schedulable" or "bound violated".
REFUSED = 2
#: Exit status when a command could not do its work.
FAILED = 1


class Parser(argparse.ArgumentParser):
    """Exits with 1 on wrong usage, because 2 is a verdict."""

    def __init__(self, **options: object) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **options)
        self.add_argument("--version", action="version", version=f"%(prog)s {__version__}")

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(FAILED, f"{self.prog}: {message}\n")


def file_name(text: str) -> str:
    """An option's value that names a file. The empty one of a shell's variable that is not set
    would be taken for the folder here, or for no option at all."""
    if not text:
        raise argparse.ArgumentTypeError("is empty; name a file, or leave the option out")
    return text


def path_name(text: str) -> Path:
    """The same as a path, of a file or folder."""
    return Path(file_name(text))


def make_folder(out: Path) -> None:
    """The folder that ``--out`` names."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ValueError(f"--out {out}: there is a file of that name; name a folder") from None


def read_problem(path: str, interrupts: str | None = None, lock: str | None = None, overheads: str | None = None) -> Problem:
    """A task file with what the command line overrides.

    :param overheads: a named set, or a JSON file from ``rtxg measure``; what it does not have keeps
        the value of the task file.
    """
    problem = load(path)
    if interrupts:
        problem = replace(problem, interrupts=Interrupts(interrupts), interrupts_given=True)
    if lock:
        problem = replace(problem, lock=lock)
    if overheads is not None:
        problem = replace(problem, overheads=read_overheads(overheads, problem.overheads))
    return problem


def read_overheads(named: str, base: Overheads) -> Overheads:
    """A named set, or what a JSON file from ``rtxg measure`` has over ``base``.

    :raises ValueError: naming the file, and what is wrong with it.
    """
    if named in OVERHEAD_SETS:
        return OVERHEAD_SETS[named]
    try:
        if not named:
            raise FileNotFoundError
        return read_measured(named, base)
    except FileNotFoundError:
        known = ", ".join(OVERHEAD_SETS)
        raise ValueError(
            f"--overheads {named}: no such set and no such file; use {known}, or a file that rtxg measure --out wrote"
        ) from None


class ProgressLines:
    """Says on stderr what is being worked on, every few seconds of work that takes long."""

    def __init__(self, name: str, every: float = 3.0) -> None:
        self._name, self._every = name, every
        self._started = self._said = time.monotonic()

    def __call__(self, what: str) -> None:
        now = time.monotonic()
        if now - self._said >= self._every:
            self._said = now
            print(f"{self._name}: {now - self._started:.0f} s: {what}", file=sys.stderr)


#: The extra of pyproject.toml that has a module.
_EXTRAS = {"dask": "cluster", "distributed": "cluster", "cffi": "simulate", "pandas": "frames"}


def _missing(error: ImportError) -> str:
    """What is missing, and how to get it."""
    module = (error.name or "").partition(".")[0]
    if module in _EXTRAS:
        return f"this needs the Python package {module}: pip install 'rtxg[{_EXTRAS[module]}]'"
    return f"{error}: pip install rtxg has it" if isinstance(error, ModuleNotFoundError) else str(error)


def run(main: Callable[[], int], name: str) -> NoReturn:
    """Run a command and turn what a user can cause into one line on stderr."""
    try:
        status = main()
    except KeyboardInterrupt:
        status = 130
    except BrokenPipeError:
        sys.stderr.close()
        status = FAILED
    except ImportError as error:
        print(f"{name}: {_missing(error)}", file=sys.stderr)
        status = FAILED
    except sqlite3.Error as error:
        print(f"{name}: the file of results: {error}", file=sys.stderr)
        status = FAILED
    except OSError as error:
        print(f"{name}: {system_error(error)}", file=sys.stderr)
        status = FAILED
    except ValueError as error:
        print(f"{name}: {error}", file=sys.stderr)
        status = FAILED
    sys.exit(status)
