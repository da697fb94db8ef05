# SPDX-License-Identifier: MIT
"""Suites that other people wrote, under the OpenCL layer: each program says the same as without it.

piglit's programs for OpenCL and CLBlast's tests come from Debian's packages, which are fetched and unpacked, not installed (two
gigabytes of piglit are for OpenGL).  pyopencl and its tests come from PyPI.

PoCL compiles the kernels of each program, which takes minutes for some until its cache in
build/suites has them.  So programs have a limit without the layer, and what one has said by then is
what it has to say under the layer.  Each test prints what it compared (pytest -rP).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_opencl import PATIENCE_S, ROOT, Daemon, environment, opencl_missing

pytestmark = pytest.mark.slow

FOLDER = ROOT / "build/suites"
#: seconds that a program has without the layer: what it has said by then is compared
LIMIT_S = 60
#: tests that a program has passed at least, by then or later
ENOUGH = 10
#: seconds until a program that says less under the layer is taken to hang
HANGS_S = 900
#: all of CLBlast's programs; each has some tens to some thousand tests
CLBLAST = (
    *(
        "xamax",
        "xasum",
        "xaxpy",
        "xaxpybatched",
        "xcol2im",
        "xconvgemm",
        "xcopy",
        "xdot",
        "xdotc",
        "xdotu",
    ),
    *(
        "xgbmv",
        "xgemm",
        "xgemmbatched",
        "xgemmstridedbatched",
        "xgemv",
        "xger",
        "xgerc",
        "xgeru",
        "xhad",
        "xhbmv",
    ),
    *("xhemm", "xhemv", "xher", "xher2", "xher2k", "xherk", "xhpmv", "xhpr", "xhpr2", "xim2col"),
    *("xnrm2", "xomatcopy", "xsbmv", "xscal", "xspmv", "xspr", "xspr2", "xswap", "xsymm", "xsymv"),
    *("xsyr", "xsyr2", "xsyr2k", "xsyrk", "xtbmv", "xtpmv", "xtrmm", "xtrmv", "xtrsm", "xtrsv"),
)
#: all files of pyopencl's tests
PYOPENCL = (
    "test_wrapper.py",
    "test_enqueue_copy.py",
    "test_arrays_in_structs.py",
    "test_clmath.py",
    "test_clrandom.py",
    "test_algorithm.py",
    "test_array.py",
)
#: needs a display; needs a script to run
LEFT_OUT = {"cl-interop-egl_khr_cl_event2", "cl-program-tester"}


@pytest.fixture(scope="module")
def piglit() -> Path:
    """The folder of piglit's programs."""
    if why := opencl_missing():
        pytest.skip(why)
    top = FOLDER / "usr/lib/x86_64-linux-gnu/piglit"
    if not (top / "bin/cl-api-get-platform-ids").exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        fetched = subprocess.run(
            ["apt-get", "download", "piglit"],
            cwd=FOLDER,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        packages = list(FOLDER.glob("piglit_*.deb"))
        if not packages:
            pytest.skip(
                f"Debian's package piglit is not to be had: {fetched.stderr.strip()[-200:]}"
            )
        with subprocess.Popen(
            ["dpkg-deb", "--fsys-tarfile", packages[0]], stdout=subprocess.PIPE
        ) as tar:
            subprocess.run(
                ["tar", "x", "--wildcards", "*/piglit/bin/cl-*", "*/piglit/lib/*"],
                cwd=FOLDER,
                stdin=tar.stdout,
                check=False,
            )
        packages[0].unlink()
    return top


def unpacked(package: str, there: Path, *patterns: str) -> None:
    """Fetch a Debian package and unpack parts of it below FOLDER."""
    if there.exists():
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    fetched = subprocess.run(
        ["apt-get", "download", package],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    packages = list(FOLDER.glob(f"{package}_*.deb"))
    if not packages:
        pytest.skip(f"Debian's package {package} is not to be had: {fetched.stderr.strip()[-200:]}")
    with subprocess.Popen(
        ["dpkg-deb", "--fsys-tarfile", packages[0]], stdout=subprocess.PIPE
    ) as tar:
        subprocess.run(
            ["tar", "x", "--wildcards", *patterns], cwd=FOLDER, stdin=tar.stdout, check=False
        )
    packages[0].unlink()


@pytest.fixture(scope="module")
def clblast() -> Path:
    """The folder of CLBlast's test programs."""
    if why := opencl_missing():
        pytest.skip(why)
    libraries = FOLDER / "usr/lib/x86_64-linux-gnu"
    unpacked("clblast-tests", FOLDER / "usr/bin/clblast_test_xdot", "*/bin/clblast_test_*")
    unpacked("libclblast1", libraries / "libclblast.so.1", "*/libclblast.so*")
    unpacked("libblas3", libraries / "blas/libblas.so.3", "*/libblas.so*")
    return FOLDER / "usr/bin"


@pytest.fixture(scope="module")
def pyopencl() -> Path:
    """The folder of pyopencl's tests; beside it the package."""
    if why := opencl_missing():
        pytest.skip(why)
    top = FOLDER / "pyopencl"
    if not list(top.glob("pyopencl-*/test")):
        top.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "-q"]
        for command in (
            [*pip, "install", "--target", top / "lib", "pyopencl", "mako", "pytest"],
            [*pip, "download", "--no-deps", "--no-binary", "pyopencl", "-d", top, "pyopencl"],
        ):
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=900,
                check=False,
                stdin=subprocess.DEVNULL,
            )
            if done.returncode:
                pytest.skip(f"pyopencl is not to be had from PyPI: {done.stderr.strip()[-200:]}")
        for archive in top.glob("pyopencl-*.tar.gz"):
            subprocess.run(["tar", "xzf", archive], cwd=top, check=True)
    return next(top.glob("pyopencl-*/test"))


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon that must still be well at the end."""
    one = Daemon(tmp_path)
    yield one
    one.stop()


def results(output: str) -> list[str]:
    """What piglit's programs report: a result, and those of their parts."""
    lines = [
        json.loads(line.removeprefix("PIGLIT: "))
        for line in output.splitlines()
        if line.startswith("PIGLIT: ")
    ]
    return [re.sub(r"0x[0-9a-f]+", "0x", json.dumps(line, sort_keys=True)) for line in lines]


def test_piglit(piglit: Path, daemon: Daemon) -> None:
    """Alone without the layer, then two at a time under it."""
    libraries = {"LD_LIBRARY_PATH": str(piglit / "lib"), "POCL_CACHE_DIR": str(FOLDER / "pocl")}
    os.makedirs(libraries["POCL_CACHE_DIR"], exist_ok=True)
    programs = [p for p in sorted((piglit / "bin").glob("cl-*")) if p.name not in LEFT_OUT]
    assert len(programs) > 40
    ran = 0
    for program in programs:
        command = [str(program), "-auto"]
        plain = subprocess.run(
            command,
            env=environment(**libraries),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE_S,
            check=False,
        )
        both = [daemon.start(*command, **libraries) for _ in range(2)]
        for child in both:
            output, errors = child.communicate(timeout=PATIENCE_S)
            assert results(output) == results(plain.stdout), (program.name, errors[-400:])
            assert child.returncode == plain.returncode, (program.name, errors[-400:])
        ran += bool(results(plain.stdout))
    assert ran > 40, f"only {ran} programs reported a result"


def whole_lines(said: Path) -> list[str]:
    """The lines of a program's output so far, without one that it is writing."""
    return said.read_text(errors="replace").splitlines(keepends=True)[
        : said.read_bytes().count(b"\n")
    ]


def passed(lines: list[str]) -> int:
    """CLBlast's tests that these lines say have passed."""
    return sum(int(n) for n in re.findall(r": (\d+) passed /", "".join(lines)))


def run_for(command: list[str], settings: dict[str, str], said: Path) -> int | None:
    """Run a program without the layer, its output into a file; its status, or None if its time was
    over.
    """
    began = time.monotonic()
    with (
        said.open("wb") as out,
        subprocess.Popen(
            command,
            env=environment(**settings),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.DEVNULL,
        ) as child,
    ):
        # On a busy machine its time is over when there is something to compare.
        while time.monotonic() < began + LIMIT_S or passed(whole_lines(said)) <= ENOUGH:
            try:
                return child.wait(1)
            except subprocess.TimeoutExpired:
                assert time.monotonic() < began + HANGS_S, f"{command} says nothing"
        child.kill()
    return None


def test_clblast_has_no_other_programs(clblast: Path) -> None:
    found = {p.name.removeprefix("clblast_test_") for p in clblast.glob("clblast_test_*")}
    assert found == set(CLBLAST)


@pytest.mark.parametrize("routine", CLBLAST)
def test_clblast(clblast: Path, daemon: Daemon, routine: str, tmp_path: Path) -> None:
    """Each line, down to the result of each test, is that of a run without the layer; two at a time."""
    libraries = FOLDER / "usr/lib/x86_64-linux-gnu"
    settings = {
        "LD_LIBRARY_PATH": f"{libraries}:{libraries / 'blas'}",
        "POCL_CACHE_DIR": str(FOLDER / "pocl"),
        "POCL_MAX_PTHREAD_COUNT": "1",
    }
    os.makedirs(settings["POCL_CACHE_DIR"], exist_ok=True)
    # Lines are written as they are made, so that those of a program that is stopped count.
    command = [
        "stdbuf",
        "-oL",
        str(clblast / f"clblast_test_{routine}"),
        "-platform",
        "0",
        "-device",
        "0",
    ]
    plain = tmp_path / "plain"
    status = run_for(command, settings, plain)
    wanted = whole_lines(plain)
    tests = passed(wanted)
    assert tests > ENOUGH, "".join(wanted)
    both = {
        name: daemon.start(*command, **settings, said=tmp_path / name) for name in ("one", "other")
    }
    end = time.monotonic() + HANGS_S
    for name, child in both.items():
        said = tmp_path / name
        while child.poll() is None and time.monotonic() < end:
            if status is None and len(whole_lines(said)) >= len(wanted):
                break
            time.sleep(0.2)
    for name, child in both.items():
        if status is None:
            child.kill()
            assert whole_lines(tmp_path / name)[: len(wanted)] == wanted
        else:
            assert child.poll() == status, f"{name} hangs or fails: {child.poll()}"
            assert whole_lines(tmp_path / name) == wanted
    print(
        f"clblast {routine}: {tests} tests passed alike{' until the limit of time' if status is None else ''}"
    )


def outcomes(junit: Path) -> dict[str, str]:
    """pytest's results by test."""
    found = {}
    for case in ElementTree.parse(junit).iter("testcase"):
        children = {child.tag for child in case} & {"failure", "error", "skipped"}
        found[f"{case.get('classname')}::{case.get('name')}"] = (
            children.pop() if children else "passed"
        )
    return found


def test_pyopencl_has_no_other_tests(pyopencl: Path) -> None:
    assert {p.name for p in pyopencl.glob("test_*.py")} == set(PYOPENCL)


@pytest.mark.parametrize("file", PYOPENCL)
def test_pyopencl(pyopencl: Path, daemon: Daemon, file: str, tmp_path: Path) -> None:
    """Each test of it has the outcome that it has without the layer; two at a time."""
    settings = {
        "PYTHONPATH": f"{pyopencl.parents[1] / 'lib'}:{ROOT / 'tests/layers'}",
        "POCL_CACHE_DIR": str(FOLDER / "pocl"),
        "POCL_MAX_PTHREAD_COUNT": "1",
        "XDG_CACHE_HOME": str(tmp_path),
        "RTXG_SUITE_RAN": str(tmp_path / "ran"),
        "PYTHONHASHSEED": "0",
    }
    os.makedirs(settings["POCL_CACHE_DIR"], exist_ok=True)

    def command(name: str) -> list[str]:
        options = ["-p", "no:cacheprovider", "-p", "part_of_suite", "-c", os.devnull]
        return [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            *options,
            f"--junitxml={tmp_path / name}",
            str(pyopencl / file),
        ]

    plain = subprocess.run(
        command("plain"),
        env=environment(**settings) | {"RTXG_SUITE_LIMIT_S": str(LIMIT_S)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=False,
    )
    wanted = outcomes(tmp_path / "plain")
    assert "passed" in wanted.values(), plain.stdout[-2000:] + plain.stderr[-400:]
    both = {name: daemon.start(*command(name), **settings) for name in ("one", "other")}
    for name, child in both.items():
        output, errors = child.communicate(timeout=2 * HANGS_S)
        assert outcomes(tmp_path / name) == wanted, output[-2000:] + errors[-400:]
    gpus = json.loads(daemon.rtxg("top", "-b", "-n", "1", "-J").stdout)["gpus"]
    launches = [e["launches"] for gpu in gpus for vgpu in gpu["vgpus"] for e in vgpu["engines"]]
    assert sum(launches) > 0  # proof that it went through the layer
    counts = ", ".join(
        f"{list(wanted.values()).count(w)} {w}" for w in sorted(set(wanted.values()))
    )
    part = " until the limit of time" if "time is over" in plain.stdout else ""
    print(f"pyopencl {file}: {counts} alike{part}")
