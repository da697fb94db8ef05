# SPDX-License-Identifier: MIT
"""The table of what the NVIDIA lever needs from the driver says what the code does, and a driver that differs is named."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools/nvidia-needs"


def tool():
    """The command as a module."""
    spec = spec_from_loader("nvidia_needs", SourceFileLoader("nvidia_needs", str(TOOL)))
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_says_what_the_code_does() -> None:
    """Each value of the lever's own headers stands in the table."""
    out = subprocess.run([sys.executable, TOOL, "--ours"], capture_output=True, text=True, check=False)
    assert out.returncode == 0, out.stdout + out.stderr
    assert " 0 not" in out.stdout


def test_a_driver_that_differs_is_named() -> None:
    """A value that has changed, and a name that has gone, are said with what they are for."""
    needs = tool()
    found = needs.of_ours()
    release = "580.142"
    assert needs.differences(found, release) == []
    names = [row["theirs"] for row in needs.rows()]
    changed, gone = names.index("NV_ESC_RM_SHARE"), names.index("NV01_MEMORY_LOCAL_USER")
    found[changed], found[gone] = 0x99, None
    said = needs.differences(found, release)
    assert len(said) == 2
    assert "NV_ESC_RM_SHARE: 0x99 (580.142: 0x35; for queues)" in said[0]
    assert "NV01_MEMORY_LOCAL_USER: gone" in said[1]


def test_both_releases_of_the_table_are_alike() -> None:
    """The row of a release that differs would need code that knows both."""
    for row in tool().rows():
        assert row["580.142"] == row["595.45.04"], row["theirs"]
