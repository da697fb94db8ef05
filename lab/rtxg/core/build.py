# SPDX-License-Identifier: MIT
"""Loads the scheduler core as a Python extension (cffi, API mode).

A wheel has it compiled: ``setup.py`` asks this module for the extension, and nothing is compiled or
written where the package is installed. In a source tree it is compiled when it is first used, into
build/, and cached under a hash of all sources and flags: a changed core is compiled again, an
unchanged one is loaded at once.

The interface is read from the core's own public headers: a second copy of the interface could fall
out of step.

Environment:
    RTXG_SOURCE         root of a source tree, whose core is used instead of a wheel's
    RTXG_CORE_BUILD     folder for the compiled extension; default: build/core-python in the source tree
    RTXG_CORE_CFLAGS    further compiler flags, e.g. "-fsanitize=undefined -fno-sanitize-recover"

May not: hold any scheduling policy, or change what the core computes.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import importlib.util
import os
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

CFLAGS = ["-std=gnu11", "-O2", "-g", "-fno-strict-aliasing", "-Wall"]

#: The core's public headers, each after those that it includes.
HEADERS = (
    "../include/uapi/rtxg/stats.h",
    "launch/rtxg_core.h",
    "slice/rtxg_slice.h",
    "cpu/rtxg_cpu_budget.h",
    "cpu/rtxg_cpu_domain.h",
    "cpu/rtxg_cpu_rank.h",
    "cpu/rtxg_cpu_admit.h",
    "cpu/rtxg_cpu_place.h",
    "cpu/rtxg_cpu_serve.h",
    "cpu/rtxg_cpu_ceiling.h",
    "cpu/rtxg_cpu_inherit.h",
    "../include/uapi/rtxg/page.h",
    "launch/burst.h",
    "launch/permit.h",
    "../include/uapi/rtxg/order.h",
    "order/rtxg_order_core.h",
)


def _included_as(header: str) -> str:
    return header.partition("/uapi/")[2] or Path(header).name


# One call for each event instead of a dozen attribute writes: Python's share of a step falls to about a microsecond.
HELPER_DECLARATION = """
int rtxg_python_step(struct rtxg_core *core, uint64_t now, uint32_t type, uint32_t task, uint32_t engine, uint64_t used_ns,
                     struct rtxg_action *actions, unsigned int cap);
"""

HELPER = """
#include <string.h>
""" + "".join(f'#include "{_included_as(header)}"\n' for header in HEADERS) + """
static int rtxg_python_step(struct rtxg_core *core, uint64_t now, uint32_t type, uint32_t task, uint32_t engine,
                            uint64_t used_ns, struct rtxg_action *actions, unsigned int cap)
{
    struct rtxg_event event;

    memset(&event, 0, sizeof(event));
    event.type = type;
    event.task = task;
    event.engine = engine;
    event.used_ns = used_ns;
    return rtxg_core_step(core, now, &event, actions, cap);
}
"""


#: Name of the extension that a wheel has.
IN_WHEEL = "rtxg.core._rtxg_core"


def source_root() -> Path | None:
    """The root of the source tree, the folder that holds core/launch/rtxg_core.h; None where the
    package is installed. Raises FileNotFoundError if RTXG_SOURCE names something else."""
    named = os.environ.get("RTXG_SOURCE")
    # This file is lab/rtxg/core/build.py of a source tree.
    root = Path(named) if named else Path(__file__).resolve().parents[3]
    if (root / "core" / "launch" / "rtxg_core.h").is_file():
        return root
    if named:
        raise FileNotFoundError(
            f"RTXG_SOURCE is {named}, and core/launch/rtxg_core.h is not there: "
            "name the root of rtxg's source tree, or unset it"
        )
    return None


def _sources(root: Path) -> list[Path]:
    core = root / "core"
    lines = (core / "sources").read_text().split("\n")
    return [core / line for line in lines if line and line[0] != "#"]


def _includes(root: Path) -> list[str]:
    folders = [*sorted((root / "core").iterdir()), root / "include" / "uapi"]
    return [str(folder) for folder in folders if folder.is_dir()]


def _builder(name: str, root: Path, sources: list[str], includes: list[str], flags: list[str]) -> Any:
    """The extension, described to cffi."""
    import cffi

    builder = cffi.FFI()
    builder.cdef("typedef unsigned int __u32; typedef unsigned long long __u64;")
    text = "".join(declarations((root / "core" / header).read_text()) for header in HEADERS)
    builder.cdef(text + HELPER_DECLARATION)
    builder.set_source(
        name,
        HELPER,
        sources=sources,
        include_dirs=includes,
        extra_compile_args=flags,
        extra_link_args=[flag for flag in flags if flag.startswith("-fsanitize")],
    )
    return builder


def extension(root: Path, scratch: Path) -> Any:
    """The extension of a wheel, for setuptools.

    :param root: the source tree.
    :param scratch: folder for cffi's C file.
    """
    sources = [str(path.relative_to(root)) for path in _sources(root)]
    builder = _builder(IN_WHEEL, root, sources, _includes(root), CFLAGS)
    found = builder.distutils_extension(tmpdir=str(scratch))
    found.optional = True  # without a compiler there is a package all the same, which says so
    return found


def declarations(header: str) -> str:
    """What cffi needs of a header: its types, prototypes and integer constants."""
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    text = re.sub(r"^static inline .*?^}$", "", text, flags=re.S | re.M)
    text = text.replace("\\\n", " ")
    constants = []
    lines = []
    # Lengths that are macros: cffi asks the compiler for them, too.
    macros = {"RTXG_PAGE_LANES", "RTXG_ORDER_CYCLE_SHOWN", *re.findall(r"#define\s+(RTXG_\w+)\s+\S", text)}
    text = re.sub(r"\[(RTXG_\w+)\]", lambda name: "[...]" if name[1] in macros else name[0], text)
    text = re.sub(r"_Static_assert\(.*?\);", "", text, flags=re.S)
    for line in text.splitlines():
        match = re.match(r"#define\s+(RTXG_\w+)\s+\S", line)
        if match:
            # The compiler knows the value; cffi asks it. Constants of 64 bits with the top bit set do not pass "#define".
            constants.append(f"#define {match.group(1)} ...")
        elif not line.startswith("#"):
            lines.append(line)
    return "\n".join(constants) + "\n" + "\n".join(lines) + "\n"


def load() -> ModuleType:
    """The compiled core as a module with `ffi` and `lib`.

    Raises ImportError, with the remedy, where cffi, a compiler or Python's headers are missing.
    """
    if importlib.util.find_spec("_cffi_backend") is None:
        raise ImportError("simulation needs the Python package cffi: pip install 'rtxg[simulate]'")
    root = source_root()
    if root is None:
        try:
            return importlib.import_module(IN_WHEEL)
        except ModuleNotFoundError:
            raise ImportError(
                "this installation has no compiled scheduler core, because there was no C compiler or no Python.h "
                "when it was built: install them (Debian: gcc python3-dev), then pip install --force-reinstall rtxg, "
                "or set RTXG_SOURCE to the root of rtxg's source tree"
            ) from None
    core = root / "core"
    sources = _sources(root)
    flags = CFLAGS + shlex.split(os.environ.get("RTXG_CORE_CFLAGS", ""))
    digest = hashlib.sha256()
    headers = {*core.glob("*/*.h"), *(core / header for header in HEADERS)}
    for path in [*sources, *sorted(headers), Path(__file__)]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    digest.update(repr((flags, sys.version_info[:2], sys.platform)).encode())
    name = "_rtxg_core_" + digest.hexdigest()[:16]

    folder = Path(os.environ.get("RTXG_CORE_BUILD") or root / "build" / "core-python")
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob(name + ".*so")):
        with open(folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not list(folder.glob(name + ".*so")):
                _compile(name, root, sources, flags, folder)
    (binary,) = folder.glob(name + ".*so")
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, binary)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[name] = module
    return module


def _compile(name: str, root: Path, sources: list[Path], flags: list[str], folder: Path) -> None:
    if importlib.util.find_spec("setuptools") is None:
        raise ImportError(
            "compiling the scheduler core of a source tree needs the Python package setuptools: pip install setuptools"
        )
    core = root / "core"
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        # Objects are put beside their sources: copies, folder by folder, keep the tree clean.
        copied = Path(shutil.copytree(core, Path(scratch) / "core"))
        copies = [str(copied / path.relative_to(core)) for path in sources]
        builder = _builder(name, root, copies, _includes(root), flags)
        built = Path(_run_compiler(builder, scratch))
        old = sorted(folder.glob("_rtxg_core_*.so"), key=lambda path: path.stat().st_mtime)
        for path in old[:-7]:
            path.unlink(missing_ok=True)
        os.replace(built, folder / built.name)


def _run_compiler(builder: Any, scratch: str) -> str:
    import cffi

    try:
        return builder.compile(tmpdir=scratch)
    except cffi.VerificationError as error:
        raise ImportError(
            f"the scheduler core could not be compiled ({error}): "
            "it needs a C compiler and Python's headers (Debian: gcc python3-dev)"
        ) from None
