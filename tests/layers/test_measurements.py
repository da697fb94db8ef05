# SPDX-License-Identifier: MIT
"""The measurements of bench/ on one of several implementations of OpenCL."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from opencl_overhead import only_icd  # noqa: E402
from shares import build_dir  # noqa: E402

MEASUREMENTS = ("opencl_overhead", "opencl_floor", "opencl_shares")


def seen(what: str) -> list[str]:
    """What the loader of a program that starts now is told to load."""
    folder = subprocess.run(
        ["sh", "-c", 'printf %s "${OCL_ICD_VENDORS-}"'],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert folder, what
    return [p.read_text() for p in sorted(Path(folder).glob("*.icd"))]


def test_programs_see_that_implementation_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OCL_ICD_VENDORS", "/elsewhere")
    library = tmp_path / "libone.so.1"
    library.touch()
    with only_icd(library):
        assert seen("within") == [f"{library}\n"]
    assert os.environ["OCL_ICD_VENDORS"] == "/elsewhere"
    monkeypatch.delenv("OCL_ICD_VENDORS")
    with only_icd(library):
        assert seen("within") == [f"{library}\n"]
    assert "OCL_ICD_VENDORS" not in os.environ
    with only_icd(None):
        assert "OCL_ICD_VENDORS" not in os.environ


@pytest.mark.parametrize("measurement", MEASUREMENTS)
def test_a_library_that_is_not_there_is_named(measurement: str, tmp_path: Path) -> None:
    """Not the loader's answer, which is that there is no platform."""
    if not (build_dir() / "bench/opencl_task").exists():
        pytest.skip("bench/opencl_task was not built: OpenCL's headers are missing")
    done = subprocess.run(
        [sys.executable, ROOT / f"bench/{measurement}.py", "--icd", tmp_path / "libnone.so"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"RTXG_BENCH_DIR": str(tmp_path)},
    )
    assert done.returncode == 1
    assert f"--icd {tmp_path}/libnone.so: there is no such file" in done.stderr
    assert "/etc/OpenCL/vendors" in done.stderr
