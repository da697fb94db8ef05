# SPDX-License-Identifier: MIT
"""The records of the GPU cases, for the programs that print figures from several of them."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"


def lines(path: Path) -> dict[str, dict[str, Any]]:
    """The lines of a record by their case; none if it is of another form.

    OSError: it cannot be read. ValueError: it is no JSON.
    """
    found = json.loads(path.read_text(encoding="ascii"))
    if not isinstance(found, list):
        return {}
    return {x["case"]: x for x in found if isinstance(x, dict) and "case" in x}


def chosen(about: str | None) -> dict[str, dict[str, dict[str, Any]]]:
    """The lines of each record that the command line names, by the record's name.

    All of bench/results if it names none. A file that is no record ends the program with status 2.
    """
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("records", nargs="*", type=Path, default=sorted(RESULTS.glob("*.json")))
    found = {}
    for path in parser.parse_args().records:
        try:
            found[path.stem] = lines(path)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            print(f"{path}: {why}: name a record of make gpu", file=sys.stderr)
            sys.exit(2)
    return found
