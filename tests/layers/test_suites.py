# SPDX-License-Identifier: MIT
"""Suites that other people wrote, under the OpenCL layer: each program says the same as without it.

piglit's programs for OpenCL come from Debian's package, which is fetched and unpacked, not installed (two gigabytes of it are for
OpenGL).  CLBlast's test programs are in no package.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_opencl import PATIENCE_S, ROOT, Daemon, environment, opencl_missing

pytestmark = pytest.mark.slow

FOLDER = ROOT / "build/suites"
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
        fetched = subprocess.run(["apt-get", "download", "piglit"], cwd=FOLDER, capture_output=True, text=True, timeout=600, check=False)
        packages = list(FOLDER.glob("piglit_*.deb"))
        if not packages:
            pytest.skip(f"Debian's package piglit is not to be had: {fetched.stderr.strip()[-200:]}")
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", packages[0]], stdout=subprocess.PIPE) as tar:
            subprocess.run(["tar", "x", "--wildcards", "*/piglit/bin/cl-*", "*/piglit/lib/*"], cwd=FOLDER, stdin=tar.stdout, check=False)
        packages[0].unlink()
    return top


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon that must still be well at the end."""
    one = Daemon(tmp_path)
    yield one
    one.stop()


def results(output: str) -> list[str]:
    """What piglit's programs report: a result, and those of their parts."""
    lines = [json.loads(line.removeprefix("PIGLIT: ")) for line in output.splitlines() if line.startswith("PIGLIT: ")]
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
        plain = subprocess.run(command, env=environment(**libraries), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                               errors="replace", timeout=PATIENCE_S, check=False)
        both = [daemon.start(*command, **libraries) for _ in range(2)]
        for child in both:
            output, errors = child.communicate(timeout=PATIENCE_S)
            assert results(output) == results(plain.stdout), (program.name, errors[-400:])
            assert child.returncode == plain.returncode, (program.name, errors[-400:])
        ran += bool(results(plain.stdout))
    assert ran > 40, f"only {ran} programs reported a result"
