# SPDX-License-Identifier: MIT
"""Suites that other people wrote, under the OpenCL layer: each program says the same as without it.

piglit's programs for OpenCL and CLBlast's tests come from Debian's packages, which are fetched and unpacked, not installed (two
gigabytes of piglit are for OpenGL).  pyopencl and its tests come from PyPI.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_opencl import PATIENCE_S, ROOT, Daemon, environment, opencl_missing

pytestmark = pytest.mark.slow

FOLDER = ROOT / "build/suites"
#: CLBlast's programs that take seconds; each has a hundred to some thousand tests
CLBLAST = (
    "xasum",
    "xaxpy",
    "xcopy",
    "xdot",
    "xnrm2",
    "xscal",
    "xswap",
    "xhad",
    "xger",
    "xomatcopy",
    "xgemv",
    "xtrsv",
)
#: files of pyopencl's tests; the others compute for minutes on a CPU
PYOPENCL = ("test_wrapper.py", "test_enqueue_copy.py", "test_arrays_in_structs.py")
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


@pytest.mark.parametrize("routine", CLBLAST)
def test_clblast(clblast: Path, daemon: Daemon, routine: str) -> None:
    """Each line, down to the result of each test, is that of a run without the layer; two at a time."""
    libraries = FOLDER / "usr/lib/x86_64-linux-gnu"
    settings = {
        "LD_LIBRARY_PATH": f"{libraries}:{libraries / 'blas'}",
        "POCL_CACHE_DIR": str(FOLDER / "pocl"),
    }
    os.makedirs(settings["POCL_CACHE_DIR"], exist_ok=True)
    command = [str(clblast / f"clblast_test_{routine}"), "-platform", "0", "-device", "0"]
    plain = subprocess.run(
        command,
        env=environment(**settings),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert int(re.findall(r"(\d+) test\(s\) passed", plain.stdout)[0]) > 10, plain
    both = [daemon.start(*command, **settings) for _ in range(2)]
    for child in both:
        output, errors = child.communicate(timeout=900)
        assert (child.returncode, output) == (plain.returncode, plain.stdout), errors[-400:]


def outcomes(junit: Path) -> dict[str, str]:
    """pytest's results by test."""
    found = {}
    for case in ElementTree.parse(junit).iter("testcase"):
        children = {child.tag for child in case} & {"failure", "error", "skipped"}
        found[f"{case.get('classname')}::{case.get('name')}"] = (
            children.pop() if children else "passed"
        )
    return found


@pytest.mark.parametrize("file", PYOPENCL)
def test_pyopencl(pyopencl: Path, daemon: Daemon, file: str, tmp_path: Path) -> None:
    """Each test of it has the outcome that it has without the layer; two at a time."""
    settings = {
        "PYTHONPATH": str(pyopencl.parents[1] / "lib"),
        "POCL_CACHE_DIR": str(FOLDER / "pocl"),
        "XDG_CACHE_HOME": str(tmp_path),
    }
    os.makedirs(settings["POCL_CACHE_DIR"], exist_ok=True)

    def command(name: str) -> list[str]:
        return [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-c",
            os.devnull,
            f"--junitxml={tmp_path / name}",
            str(pyopencl / file),
        ]

    plain = subprocess.run(
        command("plain"),
        env=environment(**settings),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert "passed" in plain.stdout, plain.stdout[-2000:] + plain.stderr[-400:]
    both = [daemon.start(*command(name), **settings) for name in ("one", "other")]
    for child in both:
        _, errors = child.communicate(timeout=900)
        assert child.returncode == plain.returncode, errors[-400:]
    wanted = outcomes(tmp_path / "plain")
    assert "passed" in wanted.values()
    assert outcomes(tmp_path / "one") == wanted
    assert outcomes(tmp_path / "other") == wanted
    gpus = json.loads(daemon.rtxg("top", "-b", "-n", "1", "-J").stdout)[
        "gpus"
    ]  # proof that it went through the layer
    assert (
        sum(
            engine["launches"]
            for gpu in gpus
            for vgpu in gpu["vgpus"]
            for engine in vgpu["engines"]
        )
        > 10
    )
