# SPDX-License-Identifier: MIT
"""Older programs with a newer rtxg: what they were linked with, and what they speak, stays."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT

BUILD = Path(os.environ.get("RTXG_BUILD", ROOT / "build/release")).resolve()

#: The oldest commit whose library and programs have to work. It may move when RTXG_PROTOCOL,
#: RTXG_PAGE_VERSION or the soversion is raised, and at no other time.
OLDEST = "055d073"


def shown(path: str) -> str:
    """A file of that commit."""
    return subprocess.run(
        ["git", "show", f"{OLDEST}:{path}"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """librtxg.so.0 of that commit, and the stand-in for a GPU program that was compiled with its
    header.
    """
    folder = tmp_path_factory.mktemp("older")
    archive = subprocess.run(
        ["git", "archive", OLDEST, "lib", "include", "tests/conform"], cwd=ROOT, capture_output=True
    )
    if archive.returncode:
        pytest.skip(f"the repository has no commit {OLDEST}: a shallow clone?")
    subprocess.run(["tar", "x"], cwd=folder, input=archive.stdout, check=True)
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-w", "-Iinclude", "-Iinclude/uapi"]
    library = [
        "-fPIC",
        "-shared",
        "-Wl,-soname,librtxg.so.0",
        "-Wl,--version-script,lib/librtxg.map",
        "-o",
        "librtxg.so.0",
    ]
    sources = sorted(str(path.relative_to(folder)) for path in (folder / "lib").glob("*.c"))
    subprocess.run(
        ["gcc", *flags, *library, *sources, "-ljansson", "-lpthread"], cwd=folder, check=True
    )
    subprocess.run(
        ["gcc", *flags, "-o", "device", "tests/conform/device.c", "-L.", "-l:librtxg.so.0"],
        cwd=folder,
        check=True,
    )
    return folder


@pytest.fixture
def host(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of the programs of a daemon of this tree."""
    path = tmp_path / "rtxgd.sock"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RTXG_")}
    environment |= {"RTXG_SOCKET": str(path), "RTXG_HOST": "daemon"}
    command = [
        BUILD / "daemon/rtxgd",
        "--user",
        "--socket",
        path,
        "--idle-exit",
        "0",
        "--config-root",
        tmp_path,
    ]
    daemon = subprocess.Popen(command, env=environment)
    try:
        end = time.monotonic() + 60
        while not path.exists():
            assert daemon.poll() is None and time.monotonic() < end
            time.sleep(0.05)
        yield environment
    finally:
        daemon.terminate()
        daemon.wait(30)


def test_numbers_of_the_boundary_are_those_of_the_oldest_client() -> None:
    """An older peer would misread another one; then OLDEST moves."""
    if subprocess.run(["git", "cat-file", "-e", OLDEST], cwd=ROOT, capture_output=True).returncode:
        pytest.skip(f"the repository has no commit {OLDEST}: a shallow clone?")
    for header, name in (("control.h", "RTXG_PROTOCOL"), ("page.h", "RTXG_PAGE_VERSION")):
        pattern = re.compile(rf"^#define {name}\s+(\w+?)u?$", re.M)
        before = pattern.findall(shown(f"include/uapi/rtxg/{header}"))
        assert pattern.findall((ROOT / f"include/uapi/rtxg/{header}").read_text()) == (
            before or ["1"]
        ), name
    soversion = re.compile(r"soversion: '(\d+)'")
    assert soversion.findall((ROOT / "lib/meson.build").read_text()) == soversion.findall(
        shown("lib/meson.build")
    )
    kept = set(re.findall(r"^\t\t(\w+);$", shown("lib/librtxg.map"), re.M))
    assert len(kept) > 20 and kept <= set(
        re.findall(r"^\t\t(\w+);$", (ROOT / "lib/librtxg.map").read_text(), re.M)
    )


HEADERS = ("uapi/rtxg/*.h", "rtxg*.h")

#: What was called otherwise. C takes a member's member as a name, too.
RENAMED = {
    "rtxg_host_open.entity": "task",
    "rtxg_host_stats.busy_ns": "stats.busy_ns",
    "rtxg_host_stats.used_ns": "stats.used_ns",
    "rtxg_host_stats.wait_ns": "stats.wait_ns",
    "rtxg_host_stats.grants": "stats.grants",
    "rtxg_host_stats.completions": "stats.completions",
    "rtxg_host_stats.overruns": "stats.overruns",
    "rtxg_host_stats.expelled": "stats.expelled",
    "rtxg_host_stats.throttled": "stats.throttled",
}


def headers(include: Path) -> dict[str, str]:
    """What crosses a boundary, by path, without comments."""
    found = [path for pattern in HEADERS for path in sorted(include.glob(pattern))]
    return {str(f): re.sub(r"/\*.*?\*/|//[^\n]*", "", f.read_text(), flags=re.S) for f in found}


def members(include: Path) -> list[tuple[str, str]]:
    """Structs and their members. What is reserved has no meaning as yet, and an array without a
    length has no size.
    """
    found = []
    for code in headers(include).values():
        for struct, body in re.findall(r"^struct (\w+) \{(.*?)^\}", code, flags=re.S | re.M):
            found.append((struct, ""))
            for member in re.findall(r"(\w+)(?:\[[^\]]+\])*\s*[;,]", body):
                if "reserved" not in member:
                    found.append((struct, member))
    return found


def constants(include: Path) -> list[str]:
    """Enumerators, and macros that are numbers."""
    found = []
    for code in headers(include).values():
        found += re.findall(r"^#define (RTXG?_[A-Z0-9_]+)[ \t]+\(?-?[0-9(].*$", code, flags=re.M)
        for body in re.findall(r"^enum \w+ \{(.*?)\}", code, flags=re.S | re.M):
            found += re.findall(r"^\s*(RTXG?_\w+)", body, flags=re.M)
    return [name for name in found if not name.endswith("_ALL")]  # grows with what it masks


def numbers(include: Path, folder: Path, renamed: dict[str, str]) -> dict[str, list[int]]:
    """Of each name of the oldest client, what the compiler says: the size of a struct, offset and
    size of a member, the value of a constant.
    """
    lines = [f'#include "{path}"' for path in headers(include)]
    lines += ["#include <stddef.h>", "#include <stdio.h>", "int main(void)", "{"]
    for struct, member in members(folder / "include"):
        if member:
            now = renamed.get(f"{struct}.{member}", member)
            values = f"offsetof(struct {struct}, {now}), sizeof(((struct {struct} *)0)->{now})"
            lines.append(f'printf("{struct}.{member} %zu %zu\\n", {values});')
        else:
            lines.append(f'printf("{struct} %zu\\n", sizeof(struct {struct}));')
    known = set(constants(include))
    for name in constants(folder / "include"):
        # The library's own numbers were called as the boundary's were.
        now = name if name in known else name.replace("RTXG_", "RTX_", 1)
        lines.append(f'printf("{name} %lld\\n", (long long)({now}));')
    (folder / "numbers.c").write_text("\n".join([*lines, "return 0;", "}", ""]))
    flags = ["-w", "-D_GNU_SOURCE", f"-I{include}", f"-I{include}/uapi"]
    done = subprocess.run(
        ["gcc", *flags, "-o", "numbers", "numbers.c"], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, f"what the oldest client uses is not there: {done.stderr[:3000]}"
    said = subprocess.run([folder / "numbers"], capture_output=True, text=True, check=True).stdout
    return {line.split()[0]: [int(n) for n in line.split()[1:]] for line in said.splitlines()}


def test_structs_and_numbers_of_the_boundary_are_where_the_oldest_client_has_them(
    tmp_path: Path,
) -> None:
    """A struct may grow at its end and into what was reserved; a number keeps its meaning."""
    archive = subprocess.run(
        ["git", "archive", OLDEST, "include"], cwd=ROOT, capture_output=True, check=False
    )
    if archive.returncode:
        pytest.skip(f"the repository has no commit {OLDEST}: a shallow clone?")
    subprocess.run(["tar", "x"], cwd=tmp_path, input=archive.stdout, check=True)
    before = numbers(tmp_path / "include", tmp_path, {})
    now = numbers(ROOT / "include", tmp_path, RENAMED)
    assert len(before) > 250 and before.keys() == now.keys()
    structs = {name for name, values in before.items() if len(values) == 1 and name[0] == "r"}
    assert [f"{n}: {before[n]} -> {now[n]}" for n in sorted(structs) if now[n] < before[n]] == []
    others = before.keys() - structs
    assert [f"{n}: {before[n]} -> {now[n]}" for n in sorted(others) if now[n] != before[n]] == []


@pytest.mark.slow
@pytest.mark.parametrize("library", ["older", "this tree's"])
def test_an_older_program_works_with_this_daemon(
    older: Path, host: dict[str, str], library: str
) -> None:
    """With the library of its time, and with this one: it is in its vGPU, launches, and says at
    its end what it did.
    """
    place = older if library == "older" else BUILD / "lib"
    subprocess.run(
        [BUILD / "cli/rtxg", "vgpu", "create", "camera", "--min", "40%"],
        env=host,
        check=True,
        timeout=60,
    )
    done = subprocess.run(
        [older / "device", "-v", "camera", "-u", "200", "-s", "-n", "300"],
        capture_output=True,
        text=True,
        timeout=120,
        env=host | {"LD_LIBRARY_PATH": str(place)},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["launches"] == 300
