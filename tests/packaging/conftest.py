# SPDX-License-Identifier: MIT
"""Packages for the tests of this folder: built once, and again with a newer version, as an
upgrade needs it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/vm"))

from rtxgvm import kernels  # noqa: E402

#: what an upgrade goes to
NEWER = "0.1.0+newer"


def build(out: Path, **environment: str) -> None:
    """packaging/deb, or a skip."""
    done = subprocess.run(
        [ROOT / "packaging/deb", out],
        capture_output=True,
        text=True,
        timeout=1800,
        env=os.environ | environment,
    )
    if done.returncode == 77:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages; lintian has passed. RTXG_DEBS: a folder that has them already."""
    if given := os.environ.get("RTXG_DEBS"):
        return Path(given).resolve()
    out = tmp_path_factory.mktemp("deb")
    build(out)
    return out


@pytest.fixture(scope="session")
def newer(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same packages with a newer version, and nothing else changed."""
    out = tmp_path_factory.mktemp("newer")
    for deb in sorted(built.glob("*.deb")):
        tree = out / "tree"
        subprocess.run(["dpkg-deb", "-R", deb, tree], check=True)
        control = tree / "DEBIAN/control"
        text = (
            control.read_text()
            .replace("Version: 0.1.0\n", f"Version: {NEWER}\n")
            .replace("(= 0.1.0)", f"(= {NEWER})")
        )
        assert NEWER in text, deb.name
        control.write_text(text)
        target = out / deb.name.replace("_0.1.0_", f"_{NEWER}_")
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "-b", tree, target],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        shutil.rmtree(tree)
    return out


def bootstrap(suite: str) -> Path:
    """A minimal Debian that has never seen rtxg, made once and kept in build/vm/packages."""
    if os.geteuid() != 0 or not shutil.which("debootstrap", path=f"{os.environ['PATH']}:/usr/sbin"):
        pytest.skip("debootstrap as root is needed (apt-get install debootstrap)")
    place = kernels.CACHE / "packages"
    place.mkdir(parents=True, exist_ok=True)
    root = place / suite
    with (place / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (root / "made").exists():
            shutil.rmtree(root, ignore_errors=True)
            done = subprocess.run(
                [
                    "debootstrap",
                    "--variant=minbase",
                    "--include=ca-certificates,systemd",
                    suite,
                    root,
                    f"{kernels.MIRROR}/debian",
                ],
                capture_output=True,
                text=True,
                timeout=1800,
            )
            if done.returncode:
                pytest.skip(f"debootstrap {suite}: {done.stdout[-300:]}")
            (root / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")
            (root / "usr/sbin/policy-rc.d").chmod(0o755)
            (root / "made").touch()
    return root


class Chroot:
    """A copy of a minimal Debian, with /proc."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __call__(self, command: str, timeout: int = 1200, fails: bool = False) -> str:
        """The output of a shell command."""
        environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "DEBIAN_FRONTEND": "noninteractive",
            "LC_ALL": "C.UTF-8",
            # A kernel that comes with its headers is not booted here.
            "INITRD": "No",
        }
        done = subprocess.run(
            ["chroot", self.root, "sh", "-ec", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            env=environment,
        )
        assert (done.returncode != 0) is fails, (
            f"{command}: {done.returncode}\n{done.stdout[-6000:]}"
        )
        return done.stdout

    def take(self, folder: Path, name: str) -> None:
        """Puts packages into it, as /NAME."""
        (self.root / name).mkdir()
        for deb in folder.glob("*.deb"):
            shutil.copy(deb, self.root / name)


@contextmanager
def chroot(suite: str, folder: Path) -> Iterator[Chroot]:
    """One that ends with the test."""
    root = folder / suite
    subprocess.run(["cp", "-a", "--reflink=auto", bootstrap(suite), root], check=True)
    for name in ("resolv.conf", "hosts"):
        shutil.copy(Path("/etc") / name, root / "etc" / name)
    # A mirror that has stood still for a while is as good; what it signed is checked all the same.
    (root / "etc/apt/apt.conf.d/99still").write_text('Acquire::Check-Valid-Until "false";\n')
    subprocess.run(["mount", "-t", "proc", "proc", root / "proc"], check=True)
    try:
        yield Chroot(root)
    finally:
        subprocess.run(["umount", root / "proc"], check=True)
        shutil.rmtree(root)


Make = Callable[[str], Chroot]


@pytest.fixture
def make_chroot(tmp_path: Path) -> Iterator[Make]:
    """Makes chroots that end with the test."""
    open_ones = []

    def make(suite: str) -> Chroot:
        context = chroot(suite, tmp_path)
        made = context.__enter__()
        open_ones.append(context)
        return made

    yield make
    for context in open_ones:
        context.__exit__(None, None, None)
