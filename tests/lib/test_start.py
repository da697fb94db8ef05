# SPDX-License-Identifier: MIT
"""Starting the user's own daemon: the programs that may not."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("RTXG_BUILD", ROOT / "build/release")).resolve()
NOBODY = 65534


@pytest.fixture
def folder() -> Iterator[Path]:
    """bin/starts_host, and beside it a daemon/rtxgd that only says with which rights it was started."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    for name in ("bin", "daemon", "said"):
        (path / name).mkdir(mode=0o755)
    (path / "said").chmod(0o777)
    shutil.copy(BUILD / "tests/lib/starts_host", path / "bin/starts_host")
    (path / "daemon/rtxgd").write_text(f"#!/bin/sh\nid -u >{path}/said/started\n")
    (path / "daemon/rtxgd").chmod(0o755)
    yield path
    shutil.rmtree(path)


def start(folder: Path) -> tuple[int, int, str]:
    """Run it: whether it is secure, what librtxg returned, and its words."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RTXG_")}
    done = subprocess.run([folder / "bin/starts_host"], env=environment | {"XDG_RUNTIME_DIR": str(folder / "said")},
                          capture_output=True, text=True, check=True, timeout=60)
    secure, result, words = done.stdout.split(" ", 2)
    return int(secure), int(result), words


def test_a_set_user_id_program_starts_no_daemon(folder: Path) -> None:
    """A daemon would run with the owner's rights on the caller's environment. Without the bit it starts one."""
    program = folder / "bin/starts_host"
    secure, result, words = start(folder)
    if result == 0:
        pytest.skip("a daemon runs on this machine already")
    assert (secure, result) == (0, -errno.ECONNREFUSED), words
    assert (folder / "said/started").exists(), words

    if os.geteuid() != 0:
        pytest.skip("making a set-user-ID program of another user needs root")
    (folder / "said/started").unlink()
    os.chown(program, NOBODY, NOBODY)
    os.chown(folder / "daemon/rtxgd", NOBODY, NOBODY)
    program.chmod(0o4755)
    secure, result, words = start(folder)
    if not secure:
        pytest.skip(f"{folder} is on a file system without set-user-ID")
    assert result == -errno.ECONNREFUSED
    assert "set-user-ID" in words and "rtxg host start" in words
    assert not (folder / "said/started").exists()
