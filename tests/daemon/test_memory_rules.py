# SPDX-License-Identifier: MIT
"""Limits on GPU memory of many cgroups, and of files that are read again: see test_memory.py."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from conftest import BUILD, Daemon, Gpu, wait_for
from test_memory import GIB, PCI, REGION, Cgroups, Nvml, doctor, memory_limit, tried


@pytest.fixture(name="tree")
def a_tree(tmp_path: Path) -> Cgroups:
    """An empty tree."""
    return Cgroups(tmp_path / "cgroup")


@pytest.fixture(name="nvml")
def a_library(tmp_path: Path, gpu: Gpu, tree: Cgroups) -> Nvml:
    """The library, for the daemon's program."""
    return Nvml(tmp_path, gpu.daemon, tree)


def test_a_change_costs_no_more_for_each_cgroup_the_more_there_are(
    daemon: Daemon,
    tree: Cgroups,
) -> None:
    """Every user may bind some, and with each change all of them are compared with what is set."""
    many, allowed = 1000, 100
    count = daemon.folder / "compares"
    daemon.environment |= {
        "RTXG_CGROUP_ROOT": str(tree.root),
        "LD_PRELOAD": str(BUILD / "tests/daemon/libcount_compares.so"),
        "RTXG_COUNT_COMPARES": str(count),
    }
    names = [tree.make(f"/many/{i}") for i in range(many)]
    cgroups = "".join(f"Cgroup={name}\n" for name in names)
    daemon.write_config(f"[GPU {PCI}]\n[VGPU cam]\nGPU={PCI}\n{cgroups}")
    daemon.start()
    tried(daemon, PCI)
    for size in (GIB, 2 * GIB):
        line = f"{REGION} {size}\n"
        before = struct.unpack("Q", count.read_bytes())[0]
        assert daemon.ask("vgpu-set", vgpu="cam", memory_bytes=size)["ok"]
        wait_for("all are limited", lambda line=line: tree.limit(names[-1]) == line)
        wait_for("it is known", lambda: memory_limit(daemon, "cam")["state"] == "held")
        assert {tree.limit(name) for name in names} == {line}
    assert struct.unpack("Q", count.read_bytes())[0] - before < allowed * many
    # Those that go are found by their names, too.
    assert daemon.ask("cgroup-unbind", vgpu="cam", cgroup=names[500])["ok"]
    wait_for("it is taken back", lambda: tree.limit(names[500]).split()[1] == "max")
    assert daemon.ask("vgpu-set", vgpu="cam", memory_bytes=GIB)["ok"]
    wait_for("the others are limited", lambda: tree.limit(names[-1]) == f"{REGION} {GIB}\n")
    limits = [tree.limit(name).split()[1] for name in names]
    assert limits.count("max") == 1
    assert limits[500] == "max"


def test_the_same_files_have_the_same_verdict_when_they_are_read_again(
    gpu: Gpu,
    nvml: Nvml,
) -> None:
    """Where no driver limits memory they are kept as far as they go. Requests are refused."""
    nvml.fail("3")
    gpu.daemon.write_config("[VGPU filed]\nGPUMemoryMax=1G\n")
    gpu.start()
    tried(gpu.daemon)
    assert not doctor(gpu.daemon, "memory of filed")["ok"]
    refused = gpu.daemon.ask("vgpu-set", vgpu="filed", memory_bytes=2 * GIB)
    assert refused["error"] == "EOPNOTSUPP"
    refused = gpu.daemon.ask("vgpu-create", vgpu="asked", memory_bytes=2 * GIB)
    assert refused["error"] == "EOPNOTSUPP"
    assert not gpu.daemon.ask("vgpu-list", vgpu="asked")["ok"]
    filed = "[VGPU filed]\nGPUMemoryMax=2G\nGPUMin=20%\n"
    gpu.daemon.write_config(f"{filed}[VGPU new]\nGPUMemoryMax=1G\nGPUMin=10%\n")
    reply = gpu.daemon.ask("reload")
    assert reply["errors"] == 0, reply
    said = [m for m in reply["messages"] if "GPUMemoryMax=" in m and "cannot be limited" in m]
    assert len(said) == 2, reply
    now = {v["vgpu"]: v for v in gpu.daemon.ask("vgpu-list")["vgpus"]}
    gpu.daemon.stop()
    gpu.start()
    later = {v["vgpu"]: v for v in gpu.daemon.ask("vgpu-list")["vgpus"]}
    for name, memory, share in (("filed", 2 * GIB, 200000), ("new", GIB, 100000)):
        assert now[name]["memory_bytes"] == later[name]["memory_bytes"] == memory
        assert now[name]["min_ppm"] == later[name]["min_ppm"] == share
