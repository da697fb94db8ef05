# SPDX-License-Identifier: MIT
"""The house: which folder takes what from which, and what the core may need from outside.

A folder takes another's functions where an object of the one needs a symbol that only the other's
objects define. docs/explanation/architecture.md draws the same.
"""

from __future__ import annotations

import re

from sources import in_folders, judge, symbols, without_strings
from test_names import GIVEN

#: each folder of programs, and whose functions it may take
MAY_TAKE = {
    "core/": (),
    "nvidia/": (),
    "lib/": ("core/", "nvidia/"),
    "cli/": ("core/", "lib/"),
    "layers/": ("core/", "lib/"),
    # commands of their own, which read and print as the command line does; whose a user id is
    "bpf/": ("cli/", "lib/"),
    "cdi/": ("cli/", "lib/"),
    "latency/": ("cli/", "nvidia/", "levers/"),
    "levers/": ("core/", "nvidia/", "lib/", "bpf/"),
    "daemon/": ("core/", "lib/", "levers/"),
    "man/": ("core/",),
}

#: what a compiler makes of copies and comparisons
COMPILERS = {"memcpy", "memmove", "memset", "memcmp", "strcmp", "strlen", "__stack_chk_fail"}


def folder_of(source: str) -> str | None:
    """The folder of MAY_TAKE that a source is in; None: of tests, benchmarks and examples."""
    return next((folder for folder in MAY_TAKE if source.startswith(folder)), None)


def homes() -> dict[str, set[str]]:
    """The sources that define each symbol."""
    found: dict[str, set[str]] = {}
    for source, of in symbols().items():
        if folder_of(source):
            for name in of.defined - {"main"}:
                if not GIVEN.fullmatch(f"{source}: {name}"):
                    found.setdefault(name, set()).add(source)
    return found


def test_a_folder_takes_only_what_stands_below_it() -> None:
    """Two folders that take from each other cannot be read, tested or moved one by one."""
    home = homes()
    findings: dict[str, str] = {}
    taken = 0
    for source, of in symbols().items():
        folder = folder_of(source)
        if folder is None:
            continue
        for name in sorted(of.undefined):
            others = {folder_of(other) for other in home.get(name, ())}
            if not others or folder in others:
                continue
            taken += 1
            if not others & set(MAY_TAKE[folder]):
                accepted = ", ".join(MAY_TAKE[folder]) or "nothing"
                where = ", ".join(sorted(home[name]))
                findings[f"{source} takes {where}"] = f"{name}; {accepted} is accepted"
    assert taken > 100
    judge("house", findings)


def test_the_order_of_the_folders_has_no_circle() -> None:
    """The table above is an order."""
    left = dict(MAY_TAKE)
    while ready := [f for f, takes in left.items() if not set(takes) & set(left)]:
        for folder in ready:
            del left[folder]
    assert not left, f"these take from each other: {', '.join(left)}"


def test_the_core_needs_nothing_from_outside() -> None:
    """No system call, no allocation, no clock: what is not the core's comes from the compiler."""
    home = homes()
    findings = {}
    for source, of in symbols().items():
        if source.startswith("core/"):
            for name in of.undefined - COMPILERS:
                if not any(other.startswith("core/") for other in home.get(name, ())):
                    findings[f"{source}: {name}"] = "is not of the core"
    judge("core", findings)


def test_the_core_asks_no_host_for_the_time() -> None:
    """Time is an argument: the same events at the same times give the same actions."""
    findings = {}
    headers = in_folders(("core/",), ".h")
    for header in headers:
        for match in re.finditer(r"\(\*(\w*(?:now|time|clock)\w*)\)\(", without_strings(header)):
            findings[f"{header}: {match[1]}"] = "a function of the host's that tells the time"
    assert len(headers) > 20
    judge("clocks", findings)
