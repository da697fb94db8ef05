# SPDX-License-Identifier: MIT
"""Limits on GPU memory of many cgroups: see test_memory.py."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from conftest import BUILD, Daemon, wait_for
from test_memory import GIB, PCI, REGION, Cgroups, memory_limit, tried


@pytest.fixture(name="tree")
def a_tree(tmp_path: Path) -> Cgroups:
    """An empty tree."""
    return Cgroups(tmp_path / "cgroup")


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
