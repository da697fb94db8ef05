# SPDX-License-Identifier: MIT
"""The Python package as a wheel: the scheduler's core is compiled into it, its examples are in it,
and it works where there is neither this source tree nor a compiler.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT

#: what the tests' own environment has of the packages that the wheel depends on
SITE = next(Path(path) for path in sys.path if path.endswith("site-packages"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

pytestmark = pytest.mark.slow


def in_tree(folder: Path) -> Path:
    """A copy of the files that git knows, so that nothing that was built before is in the wheel."""
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout
    for name in filter(None, names.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What "pip wheel ." makes."""
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--disable-pip-version-check"]
    command += ["--wheel-dir", str(out), str(in_tree(tree))]
    done = subprocess.run(command, capture_output=True, text=True, cwd=out)
    if "No matching distribution" in done.stderr:
        pytest.skip("pip finds no setuptools: is a package index in reach?")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (made,) = out.glob("*.whl")
    shutil.rmtree(tree)
    return made


class Installed:
    """The wheel in a virtual environment of its own. The packages that it depends on are those of
    the tests' environment, where only their folder is looked into: rtxg is not there.
    """

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder
        self.bin = folder / "venv/bin"
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        (self.site,) = (folder / "venv/lib").glob("python*/site-packages")
        (self.site / "dependencies.pth").write_text(f"{SITE}\n")
        pip = [self.bin / "python", "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", wheel], check=True)
        (folder / "empty").mkdir()

    def __call__(self, program: str, *words: str, status: int = 0) -> str:
        """A program of the environment, in an empty folder, where no other program is found."""
        environment = {
            "PATH": str(self.bin),
            "HOME": str(self.folder / "empty"),
            "NUMBA_CACHE_DIR": str(self.folder / "numba"),
            "MPLCONFIGDIR": str(self.folder / "matplotlib"),
            "LC_ALL": "C.UTF-8",
        }
        done = subprocess.run(
            [self.bin / program, *words],
            cwd=self.folder / "empty",
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == status, f"{program} {words}: {done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """An environment with the wheel."""
    return Installed(tmp_path_factory.mktemp("installed"), wheel)


def test_the_wheel_has_the_core_the_examples_and_nothing_of_the_machine(wheel: Path) -> None:
    """Its name has the version; the licence and the types are in it; no test is."""
    assert wheel.name.startswith(f"rtxg-{PROJECT['version']}-")
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        (core,) = [n for n in names if n.startswith("rtxg/core/_rtxg_core.") and n.endswith(".so")]
        assert str(Path.home()).encode() not in file.read(core)
    examples = {f"rtxg/examples/{path.name}" for path in (ROOT / "lab/examples").iterdir()}
    modules = {str(path.relative_to(ROOT / "lab")) for path in (ROOT / "lab/rtxg").rglob("*.py")}
    assert examples | modules | {"rtxg/py.typed"} <= set(names)
    assert [n for n in names if "LICENSE" in n]
    assert {n.split("/")[0] for n in names} == {"rtxg", f"rtxg-{PROJECT['version']}.dist-info"}


def test_an_installed_package_has_its_dependencies(installed: Installed) -> None:
    """Those that it names, in the versions that it names."""
    shown = installed("python", "-m", "pip", "--disable-pip-version-check", "show", "rtxg")
    assert f"Version: {PROJECT['version']}\n" in shown
    assert f"Location: {installed.site}\n" in shown
    names = [word.split(">")[0] for word in PROJECT["dependencies"]]
    assert set(names) == set(shown.split("Requires: ")[1].split("\n")[0].split(", "))


@pytest.mark.parametrize("program", sorted(PROJECT["scripts"]))
def test_its_programs_start(installed: Installed, program: str) -> None:
    """Each has a help."""
    assert "usage: " in installed(program, "--help").lower()


def test_it_judges_and_simulates_its_examples_without_a_compiler(installed: Installed) -> None:
    """The core that it hosts is the one that was compiled into it."""
    where = installed("python", "-c", "import rtxg.core.build as b; print(b.load().__file__)")
    assert Path(where.strip()).is_relative_to(installed.site / "rtxg/core")
    before = sorted(str(path) for path in (installed.site / "rtxg").rglob("*.so"))
    examples = sorted(path.stem for path in (ROOT / "lab/examples").glob("*.toml"))
    listed = installed("python", "-c", "import rtxg; print(*sorted(rtxg.examples()))").split()
    assert set(listed) <= set(examples) and "perception" in listed
    judged = json.loads(installed("rtxg-analyze", "example:perception", "--json"))
    assert judged
    simulated = json.loads(
        installed("rtxg-simulate", "example:perception", "--length", "1s", "--json")
    )
    assert simulated
    assert sorted(str(path) for path in (installed.site / "rtxg").rglob("*.so")) == before
