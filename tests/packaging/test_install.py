# SPDX-License-Identifier: MIT
"""The Python package as a user gets it: "pip install" into a fresh environment, with what it
depends on from the package index, for each Python that it is for and that this machine has.

`test_wheel.py` holds what is in the wheel. Here nothing is lent by the tests' own environment.
"""

from __future__ import annotations

import functools
import json
import subprocess
from pathlib import Path

import pytest
from test_wheel import in_tree

#: packages that each step of the installation needs, and nothing else may have brought
STEPS = {"": ("cffi", "dask"), "simulate": ("dask",), "cluster": ()}
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
#: prints whether it can make an environment and compile an extension
USABLE = """
import ensurepip, os, sys, sysconfig, venv
header = os.path.join(sysconfig.get_path("include"), "Python.h")
print("%d.%d" % sys.version_info[:2], "" if os.path.exists(header) else "no " + header)
"""

pytestmark = pytest.mark.slow


def pythons(version: str) -> list[str]:
    """Where a Python of that version may be: on the PATH, of pyenv, of uv."""
    name = f"python{version}"
    kept = [Path.home() / ".pyenv/versions", Path.home() / ".local/share/uv/python"]
    return [name, *(str(p) for folder in kept for p in sorted(folder.glob(f"*/bin/{name}")))]


def usable(version: str) -> str:
    """One that can make an environment, or a skip."""
    reason = "it is not installed"
    for python in pythons(version):
        try:
            done = subprocess.run([python, "-c", USABLE], capture_output=True, text=True)
        except OSError:
            continue
        found, _, lacks = done.stdout.strip().partition(" ")
        if found == version and not lacks:
            return python
        reason = lacks or done.stderr.strip().split("\n")[-1] or reason
    pytest.skip(f"no Python {version} to install for: {reason}")


@functools.cache
def no_index(folder: Path, python: Path) -> str:
    """Why no package comes from an index here; empty: one came."""
    command = [python, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
    command += ["--timeout", "20", "--retries", "1", "--dest", folder, "toolz"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stderr.strip().split("\n")[-1] if done.returncode else ""


class Environment:
    """A fresh one, and the source tree that is installed into it."""

    def __init__(self, folder: Path, version: str) -> None:
        self.folder, self.bin = folder, folder / "venv/bin"
        subprocess.run([usable(version), "-m", "venv", folder / "venv"], check=True)
        if reason := no_index(folder, self.bin / "python"):
            pytest.skip(f"no package index in reach: {reason}")
        (folder / "tree").mkdir()
        (folder / "empty").mkdir()
        in_tree(folder / "tree")

    def install(self, extra: str) -> None:
        """`pip install '.[EXTRA]'` in the source tree."""
        what = f".[{extra}]" if extra else "."
        pip = [self.bin / "python", "-m", "pip", "--disable-pip-version-check", "install"]
        tree = self.folder / "tree"
        done = subprocess.run([*pip, "--quiet", what], cwd=tree, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]

    def run(self, program: str, *words: str, status: int = 0) -> str:
        """One of its programs, where neither the tree nor a compiler is; what it printed."""
        done = subprocess.run(
            [self.bin / program, *words],
            cwd=self.folder / "empty",
            env={"PATH": str(self.bin), "HOME": str(self.folder / "empty"), "LC_ALL": "C.UTF-8"},
            capture_output=True,
            text=True,
        )
        said = done.stdout + done.stderr
        assert done.returncode == status, f"{program} {words}: {said}"
        assert "Traceback" not in said, said
        return said if status else done.stdout  # without how far it is

    def lacks(self, package: str) -> bool:
        """Is that package not there?"""
        command = [self.bin / "python", "-c", f"import {package}"]
        return subprocess.run(command, capture_output=True).returncode != 0


def simulates(made: Environment) -> None:
    """All examples that are task sets, from the wheel."""
    listed = made.run("python", "-c", "import rtxg; print(*rtxg.examples())").split()
    assert {"perception", "two-cpus", "shared-gpu", "klmirqd-section-vi"} <= set(listed)
    for name in set(listed) - {"experiment", "notebook"}:
        words = (f"example:{name}", "--length", "200ms", "--json")
        json.loads(made.run("rtxg-simulate", *words))


@pytest.mark.parametrize("version", VERSIONS)
def test_each_extra_brings_what_it_is_for(version: str, tmp_path: Path) -> None:
    """And without it the remedy is named."""
    made = Environment(tmp_path, version)
    campaign = ("--figure", "6", "--sets", "4", "--step", "12", "--out")
    for extra, absent in STEPS.items():
        made.install(extra)
        assert [p for p in absent if not made.lacks(p)] == []
        if not extra:
            judged = json.loads(made.run("rtxg-analyze", "example:perception", "--json"))
            assert judged["schedulable"]
            words = ("example:perception", "--length", "200ms")
            assert "rtxg[simulate]" in made.run("rtxg-simulate", *words, status=1)
            made.run("rtxg-campaign", *campaign, "one")
            said = made.run("rtxg-campaign", *campaign, "two", "--workers", "2", status=1)
            assert "rtxg[cluster]" in said
            made.run("rtxg-campaign", "--file", "example:experiment", "--sets", "4", "--out", "own")
        elif extra == "simulate":
            simulates(made)
        else:
            made.run("rtxg-campaign", *campaign, "two", "--workers", "2")
    own = [path.name for path in (tmp_path / "empty/own").iterdir()]
    assert any(name.endswith(".png") for name in own)
    # Nothing was compiled where it is installed.
    (core,) = (tmp_path / "venv/lib").glob("python*/site-packages/rtxg/core/*.so")
    assert "_rtxg_core" in core.name
