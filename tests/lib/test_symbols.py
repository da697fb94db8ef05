# SPDX-License-Identifier: MIT
"""librtxg's names: the declared, exported and documented names are one list, and other names stay inside.

The shared library exports only the names in its version script.  A static library hides nothing, so there the prefix has
to keep the inner names apart from the program's.  The object files also say which file calls which.
"""

from __future__ import annotations

import os
import re
import subprocess
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("RTXG_BUILD", ROOT / "build/release")).resolve()
HEADERS = (ROOT / "include/rtxg.h", ROOT / "include/rtxg_cpu.h", ROOT / "include/rtxg_order.h", ROOT / "include/rtxg_nvrm.h")


def without_comments(header: Path) -> str:
    """A header's code."""
    return re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)


def declared() -> set[str]:
    """The functions that the public headers declare."""
    return {name for header in HEADERS for name in re.findall(r"\b(rtx_\w+)\(", without_comments(header))}


def mapped() -> set[str]:
    """The names in the version script."""
    return set(re.findall(r"^\t\t(\w+);$", (ROOT / "lib/librtxg.map").read_text(), flags=re.M))


def nm(*arguments: str | Path) -> str:
    """The output of nm for a file."""
    return subprocess.run(["nm", *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def exported() -> set[str]:
    """The names that the shared library exports."""
    lines = nm("-D", "--defined-only", BUILD / "lib/librtxg.so").splitlines()
    return {line.split()[-1].split("@")[0] for line in lines if line.split()[-2] in "TDBRW"}


def objects(folder: Path) -> tuple[dict[str, Path], dict[Path, set[str]]]:
    """Of a target's object files: which file defines a global name, and which names a file needs."""
    defined: dict[str, Path] = {}
    needed: dict[Path, set[str]] = {}
    for path in sorted(folder.glob("*.o")):
        for line in nm(path).splitlines():
            kind, name = line.split()[-2:]
            if kind == "U":
                needed.setdefault(path, set()).add(name)
            elif kind.isupper() and kind != "N":
                defined[name] = path
    return defined, needed


def test_declared_exported_and_in_the_version_script_is_the_same_list() -> None:
    assert declared() == mapped()
    assert exported() == mapped()


def test_every_function_has_a_manual_page_that_names_it() -> None:
    for name in sorted(mapped()):
        page = ROOT / f"man/{name}.3"
        assert page.exists(), f"{name} has no manual page"
        text = page.read_text()
        if text.startswith(".so "):
            text = (ROOT / "man" / Path(text.split()[1]).name).read_text()
        assert re.search(rf"\b{name}\b", text.replace("\\-", "-")), f"{page.name} does not name {name}"


def test_a_static_library_defines_no_global_name_without_its_prefix() -> None:
    lines = nm("--defined-only", "--extern-only", BUILD / "lib/librtxg_static.a").splitlines()
    names = {line.split()[-1] for line in lines if len(line.split()) == 3}
    assert names >= mapped()
    # nv_: how one speaks to NVIDIA's driver, which the lever and librtxg share
    others = {name for name in names - mapped() if not name.startswith(("rtx_lib_", "nv_"))}
    assert others == set()


def test_public_macros_and_enumerators_begin_with_rtx() -> None:
    for header in HEADERS:
        code = without_comments(header)
        names = set(re.findall(r"^#define (\w+)", code, flags=re.M))
        names |= set(re.findall(r"^\t([A-Z]\w+)(?: =.*)?,$", code, flags=re.M))
        guard = header.name.upper().replace(".", "_")
        assert {name for name in names if not name.startswith("RTX_")} == {guard}


@pytest.mark.parametrize("target", ["lib/librtxg.so.*.p", "layers/opencl/librtxg-opencl.so*.p"])
def test_no_circle_of_calls_among_files(target: str) -> None:
    folders = list(BUILD.glob(target))
    if not folders:
        pytest.skip(f"{target} is not built here")
    defined, needed = objects(folders[0])
    graph = {path: {defined[name] for name in names if name in defined} - {path} for path, names in needed.items()}
    assert graph, "no object files were read"
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail("circle: " + " -> ".join(path.name.removesuffix(".c.o") for path in error.args[1]))
