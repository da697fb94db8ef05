# SPDX-License-Identifier: MIT
"""The command line: one module a subcommand; each only reads options and prints."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import NoReturn

from .. import __version__

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


def run(main: Callable[[], int], name: str) -> NoReturn:
    """Run a command and turn what a user can cause into one line on stderr."""
    try:
        status = main()
    except KeyboardInterrupt:
        status = 130
    except BrokenPipeError:
        sys.stderr.close()
        status = FAILED
    except (OSError, ValueError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        status = FAILED
    sys.exit(status)
