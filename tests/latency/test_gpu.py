# SPDX-License-Identifier: MIT
"""Launches: from the launch of a small kernel to its end, on PoCL where there is no GPU."""

from __future__ import annotations

import ctypes.util
import json
import subprocess
import time

import pytest
from conftest import BUILD, latency, measured

LOAD = BUILD / "latency/rtxg-latency-load"


@pytest.fixture(autouse=True)
def device() -> None:
    """Skips where no OpenCL device takes a kernel."""
    if not ctypes.util.find_library("OpenCL"):
        pytest.skip("libOpenCL is not here")
    done = latency("--gpu=opencl", "-q", "-l", "1")
    if done.returncode and "OpenCL has no device" in done.stderr:
        pytest.skip(done.stderr.strip())


def test_the_parts_of_the_longest_launch_are_the_whole() -> None:
    """And each launch has a begin, an execution and a completion."""
    result = measured("--gpu=opencl", "-l", "40", "-i", "2000")
    seen, gpu = result["threads"][0]["observed"], result["gpu"]
    assert seen["count"] == 40
    assert seen["bin_count"] == 10000, "launches wait for kernels of milliseconds"
    for stage in ("begin", "execution", "completion"):
        assert gpu[stage]["count"] == 40
        assert gpu[stage]["avg_us"] <= gpu[stage]["max_us"]
    assert gpu["worst"]["latency_us"] == pytest.approx(seen["max_us"], abs=0.01)
    parts = gpu["worst"]["parts"]
    assert sum(part["us"] for part in parts) == pytest.approx(gpu["worst"]["latency_us"], abs=0.01)
    assert sum(part["percent"] for part in parts) == pytest.approx(100, abs=0.01)
    assert gpu["name"].startswith("OpenCL: ")


@pytest.mark.parametrize("words", [[], ["--user-only"]], ids=["kernel", "user only"])
def test_each_line_has_the_longest_launch_of_its_time(words: list[str]) -> None:
    """With its parts and the longest of them: what a record of months keeps of it."""
    done = latency("--gpu=opencl", "-q", "-D", "1", "-i", "2000", "--each", "0.3s", *words)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) >= 2
    most = max(line["threads"][0]["observed"]["max_us"] for line in lines)
    for line in lines:
        seen, own = line["threads"][0]["observed"], line["worst"]["own"]
        if seen["count"] < 5:  # a launch that ends while its line is made is in the next one
            continue
        (one,) = own
        assert one["thread"] == 0
        whole = sum(part["us"] for part in one["parts"])
        assert whole == pytest.approx(one["latency_us"], abs=0.01)
        assert one["culprit"] == max(one["parts"], key=lambda part: part["us"])["what"]
        assert one["latency_us"] <= most + 0.01


def test_the_threshold_ends_it() -> None:
    """No launch takes less than a microsecond."""
    result = measured("--gpu=opencl", "-l", "40", "-b", "1", status=2)
    assert result["threads"][0]["observed"]["count"] == 1


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--gpu=vulkan"], ["'vulkan'", "cuda, opencl"]),
        (["--gpu", "-S"], ["one thread", "-S"]),
        (["--gpu", "-t", "2"], ["one thread", "-t"]),
    ],
)
def test_a_wrong_command_line_is_refused(words: list[str], named: list[str]) -> None:
    """With what is accepted."""
    done = latency(*words)
    assert done.returncode == 1
    for name in named:
        assert name in done.stderr


@pytest.mark.parametrize(("words", "unit"), [(["1000000"], "MB/s"), (["opencl"], "launches/s")])
def test_a_load_prints_its_rate_when_it_ends(words: list[str], unit: str) -> None:
    """Memory and GPU."""
    with subprocess.Popen([LOAD, *words], stdout=subprocess.PIPE, text=True) as load:
        assert load.stdout
        assert load.stdout.readline().startswith("OpenCL" if words == ["opencl"] else "filled")
        time.sleep(0.5)
        load.terminate()
        rate, found = load.communicate(timeout=60)[0].split()[:2]
    assert load.returncode == 0
    assert found == unit
    assert float(rate) > 0


@pytest.mark.parametrize("words", [[], ["12"], ["x"], ["1000000", "2"], ["-1"]])
def test_a_wrong_load_is_refused(words: list[str]) -> None:
    """With what is accepted."""
    done = subprocess.run([LOAD, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "accepted" in done.stderr
