# SPDX-License-Identifier: MIT
"""Debian packages: built twice they are equal, lintian is silent, and a clean Debian 12 installs, upgrades and purges them."""

from __future__ import annotations

import filecmp
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ["librtxg-dev", "librtxg0", "rtxg", "rtxg-dkms", "rtxg-nvidia", "rtxg-opencl"]


def test_the_versions_of_the_tree_are_one() -> None:
    """meson.build, the changelogs, the Python package and the manual pages say the same."""
    version = re.search(r"^  version: '([0-9.]+)'", (ROOT / "meson.build").read_text(), re.M)
    assert version
    number = version.group(1)
    assert (ROOT / "packaging/debian/changelog").read_text().startswith(f"rtxg ({number})")
    assert re.search(rf'^version = "{re.escape(number)}"$', (ROOT / "pyproject.toml").read_text(), re.M)
    assert f"\n## {number} " in (ROOT / "CHANGELOG.md").read_text()
    for page in (ROOT / "man").glob("*.[1-8]"):
        assert f'"rtxg {number}"' in page.read_text().splitlines()[1], page.name


def test_the_library_keeps_its_soversion() -> None:
    """The package is named after it."""
    assert "soversion: '0'" in (ROOT / "lib/meson.build").read_text() and (ROOT / "packaging/debian/librtxg0.install").exists()


def build(out: Path) -> None:
    """packaging/deb, or a skip."""
    done = subprocess.run([ROOT / "packaging/deb", out], capture_output=True, text=True, timeout=3000)
    if done.returncode == 77:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages; lintian has passed. RTXG_DEBS: a folder that has them already."""
    if given := os.environ.get("RTXG_DEBS"):
        return Path(given)
    out = tmp_path_factory.mktemp("deb")
    build(out)
    return out


@pytest.mark.slow
def test_all_packages_are_built(built: Path) -> None:
    """Each of them, and none beside."""
    assert sorted(p.name.split("_")[0] for p in built.glob("*.deb")) == PACKAGES


@pytest.mark.slow
def test_two_builds_are_equal(built: Path, tmp_path: Path) -> None:
    """Byte by byte."""
    build(tmp_path)
    names = [p.name for p in built.glob("*.deb")]
    assert filecmp.cmpfiles(built, tmp_path, names, shallow=False)[0] == names


@pytest.fixture(scope="module")
def chroot(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A Debian 12 that has never seen rtxg."""
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        pytest.skip("debootstrap as root is needed (apt-get install debootstrap)")
    root = tmp_path_factory.mktemp("chroot") / "root"
    done = subprocess.run(["debootstrap", "--variant=minbase", "--include=systemd,ca-certificates", "bookworm", root],
                          capture_output=True, text=True, timeout=1800)
    if done.returncode:
        pytest.skip(f"debootstrap: {done.stdout[-300:]}")
    (root / "debs").mkdir()
    for deb in built.glob("*.deb"):
        shutil.copy(deb, root / "debs")
    (root / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")
    (root / "usr/sbin/policy-rc.d").chmod(0o755)
    subprocess.run(["mount", "--bind", "/proc", root / "proc"], check=True)
    try:
        yield root
    finally:
        subprocess.run(["umount", root / "proc"], check=False)


def inside(root: Path, command: str) -> str:
    """The output of a shell command in the chroot."""
    done = subprocess.run(["chroot", root, "sh", "-ec", command], capture_output=True, text=True, timeout=1200,
                          env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_clean_debian_installs_upgrades_and_purges_them(chroot: Path) -> None:
    """The programs run, the group and the units are there, an upgrade keeps the configuration, a purge leaves nothing."""
    debs = " ".join(f"/debs/{name}_*.deb" for name in ("rtxg", "librtxg0", "rtxg-opencl", "rtxg-nvidia"))
    install = f"apt-get install -y --no-install-recommends {debs}"
    inside(chroot, f"apt-get update; {install} /debs/librtxg-dev_*.deb")
    assert "rtxg 0." in inside(chroot, "rtxg --version") and "[VGPU" not in inside(chroot, "rtxgd --check-config")
    assert inside(chroot, "getent group rtxg").startswith("rtxg:")
    assert "enabled" in inside(chroot, "systemctl is-enabled rtxgd.socket")
    assert "disabled" in inside(chroot, "systemctl is-enabled rtxg-metrics.socket || true")
    inside(chroot, "systemd-analyze verify --man=no /lib/systemd/system/rtxgd.service /lib/systemd/system/rtxg-metrics.service")
    inside(chroot, "test -s /usr/share/bash-completion/completions/rtxg -a -s /usr/share/zsh/vendor-completions/_rtxg")
    # A daemon of the package's own hosts a vGPU. A program of an upgraded machine goes on with it.
    assert "camera" in inside(chroot, "rtxg vgpu create camera --min 40% && rtxg vgpu ls; rtxg host stop")
    inside(chroot, "mkdir -p /etc/rtxg && echo '[VGPU kept]' > /etc/rtxg/rtxg.conf")
    inside(chroot, f"{install} --reinstall && grep -q kept /etc/rtxg/rtxg.conf")
    inside(chroot, "apt-get purge -y rtxg librtxg0 rtxg-opencl rtxg-nvidia librtxg-dev")
    left = inside(chroot, "find / -xdev \\( -path /debs -o -path /proc \\) -prune -o -name '*rtxg*' -print").split()
    # The administrator's files stay, and what apt itself keeps.
    assert [p for p in left if not p.startswith(("/etc/rtxg", "/var/cache", "/var/log", "/tmp", "/run", "/var/lib/dpkg"))] == []
