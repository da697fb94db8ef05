# SPDX-License-Identifier: MIT
"""bench/gpu/peers.py without a GPU: programs stand in for the loads and XSched's server."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "gpu"))

import peers
import harness

# A load that is given the share S does S units of work every millisecond; one that finds BROKEN in its environment fails.
LOAD = f"""#!{sys.executable}
import os, sys, time
a = sys.argv[1:]
if "BROKEN" in os.environ:
    sys.exit("no CUDA-capable device is detected")
if a[0] == "calibrate": print(100000)
elif a[0] == "info": print(132)
elif a[0] == "one": print('{{"p50": 8000, "p99": 9000}}')
elif a[0] == "many": print('{{"each": 2000.0}}')
else:
    share = float(os.environ.get("XSCHED_AUTO_XQUEUE_UTILIZATION", "25"))
    start = time.monotonic()
    with open(a[3], "w", 1) as f:
        while (now := time.monotonic()) < start + float(a[2]):
            f.write(f"{{int(now * 1e9)}} {{int((now - start) * 1e6 * share)}}\\n")
            time.sleep(.005)
"""
SERVER = f"""#!{sys.executable}
import time
print("events receiver started", flush=True)
time.sleep(60)
"""


def program(path: Path, text: str) -> None:
    """Writes an executable."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that looks as if it had a GPU and XSched."""
    for name in ("load", "load-ptds", "launches"):
        program(tmp_path / "bin" / name, LOAD)
    program(tmp_path / "xsched" / "bin" / "xserver", SERVER)
    program(tmp_path / "xsched" / "lib" / "libshimcuda.so", "")
    (tmp_path / "xsched" / "COMMIT").write_text("abc\n")
    monkeypatch.setattr(harness, "identify", lambda: "FAKE-1-today")
    monkeypatch.setattr(harness, "allow_real_time", lambda: None)
    monkeypatch.setattr(harness, "xids", list)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(peers.shutil, "which", lambda _: None)
    return tmp_path


def results(machine: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> dict[str, object]:
    """Run a case and return the written results."""
    where = ["--bin", machine / "bin", "--out", machine / "out", "--xsched", machine / "xsched", "--case", case]
    monkeypatch.setattr(sys, "argv", ["peers.py", *map(str, where)])
    assert peers.main() == 0
    return json.loads((machine / "out" / "FAKE-1-today-peers.json").read_text())


def test_absent_products_are_named_with_the_reason(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An absent product is named, and the other products are measured."""
    found = results(machine, monkeypatch, "alone")
    assert set(found["absent"]) == {"rtxg", "hami", "mps"}
    assert "RTXG_PEER_HAMI" in found["absent"]["hami"]
    assert found["commits"] == {"xsched": "abc"}
    assert all(set(line["values"]) == {"stock", "xsched"} for line in found["results"])


def test_shares_are_those_of_the_work_done(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal parts are 35 points from 60/20/10/10; the parts that were promised are none."""
    found = results(machine, monkeypatch, "shares1ms")
    worst = next(x["values"] for x in found["results"] if x["unit"] == "points")
    assert worst["stock"] == pytest.approx(35, abs=0.5)
    assert worst["xsched"] < 0.5


def test_a_product_that_breaks_its_programs_is_quoted(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program's own words come into the results, and the other products are not disturbed."""
    env = peers.XSched.env
    monkeypatch.setattr(peers.XSched, "env", lambda self, t: {**env(self, t), "BROKEN": "1"})
    found = results(machine, monkeypatch, "shares1ms")
    assert "no CUDA-capable device" in found["absent"]["xsched: shares, 1000 us"]
    assert all(set(line["values"]) == {"stock"} for line in found["results"])
