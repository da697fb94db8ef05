# SPDX-License-Identifier: MIT
"""The lists of the Debian packages and what is installed say the same; its users can be made.

dh_install and dh_missing say so too, where packages are built: that is slow, and seldom done.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEBIAN = ROOT / "packaging/debian"
BUILD = Path(os.environ.get("RTXG_BUILD", ROOT / "build/release"))


def lines(path: Path) -> list[str]:
    """Without comments and empty ones."""
    return [line for line in path.read_text().splitlines() if line and not line.startswith("#")]


def by_meson() -> set[str]:
    """Paths below the root, as Debian has them."""
    done = subprocess.run(
        ["meson", "introspect", BUILD, "--installed"], capture_output=True, text=True, check=True
    )
    options = subprocess.run(
        ["meson", "introspect", BUILD, "--buildoptions"],
        capture_output=True,
        text=True,
        check=True,
    )
    (prefix,) = (one["value"] for one in json.loads(options.stdout) if one["name"] == "prefix")
    paths = {
        f"usr/{path.removeprefix(prefix).lstrip('/')}" for path in json.loads(done.stdout).values()
    }
    # packaging/debian/rules moves them
    return {path.removeprefix("usr/") if "/systemd/system/" in path else path for path in paths}


def by_rules() -> set[str]:
    """What packaging/debian/rules installs beside that."""
    return {
        words[-1].removeprefix("debian/tmp/")
        for line in lines(DEBIAN / "rules")
        if (words := line.split())[0] == "install"
    }


def examples() -> set[str]:
    """What dh_installexamples takes from the sources."""
    return {f"*/{line}" for path in DEBIAN.glob("*.examples") for line in lines(path)}


def listed() -> set[str]:
    """Patterns of all packages."""
    return {line.split()[0] for path in DEBIAN.glob("*.install") for line in lines(path)}


def matches(path: str, pattern: str) -> bool:
    """A pattern that names a folder is all that is in it."""
    return fnmatch(path, pattern) or fnmatch(path, f"{pattern}/*")


@pytest.fixture(scope="module")
def installed() -> set[str]:
    return by_meson() | by_rules()


@pytest.mark.parametrize("pattern", sorted(listed()))
def test_what_a_package_lists_is_installed(pattern: str, installed: set[str]) -> None:
    assert any(matches(path, pattern) for path in installed), sorted(installed)


def test_what_is_installed_is_in_a_package(installed: set[str]) -> None:
    known = listed() | examples() | set(lines(DEBIAN / "not-installed"))
    lost = [path for path in installed if not any(matches(path, pattern) for pattern in known)]
    assert not lost


@pytest.mark.skipif(not shutil.which("systemd-sysusers"), reason="systemd-sysusers is not here")
def test_its_users_can_be_made(tmp_path: Path) -> None:
    """One that systemd refuses leaves the package unconfigured."""
    (tmp_path / "etc").mkdir()
    file = ROOT / "daemon/systemd/rtxg.sysusers.conf"
    done = subprocess.run(
        ["systemd-sysusers", f"--root={tmp_path}", file], capture_output=True, text=True
    )
    assert done.returncode == 0 and "not a valid" not in done.stderr, done.stderr
    assert "rtxg-devices:" in (tmp_path / "etc/passwd").read_text()
    assert "rtxg:" in (tmp_path / "etc/group").read_text()
