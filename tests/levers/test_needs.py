# SPDX-License-Identifier: MIT
"""The table of what is needed from the NVIDIA driver says what the code does, and a driver that differs is named."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools/nvidia-needs"

#: what the headers name that is not the driver's
OWN = {"RM_IOC", "NVRM_RELEASE_OLDEST", "NV_CHANNEL_MOVED", "NV_USERD_END", "DISCOVER_USERS", "DISCOVER_WAITING"} | {
    "DISCOVER_UNWATCHED",
    "DISCOVER_WATCHED",
    "DISCOVER_MAY_WATCH",
    "DISCOVER_PREFIXES",
    "DISCOVER_BLOCK",
}


def load():
    """The command as a module."""
    spec = spec_from_loader("nvidia_needs", SourceFileLoader("nvidia_needs", str(TOOL)))
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


needs = load()


def test_the_table_says_what_the_code_does() -> None:
    """Each value of the headers stands in the table, for each release that it has."""
    out = subprocess.run([sys.executable, TOOL, "--ours"], capture_output=True, text=True, check=False)
    assert out.returncode == 0, out.stdout + out.stderr
    assert len(needs.releases()) == 3
    assert out.stdout.count(" 0 not") == len(needs.releases())


def test_a_value_that_differs_from_the_table_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A header that was changed without the table fails, and so does a table that was changed alone."""
    text = (ROOT / "nvidia/rm_abi.h").read_text()
    assert "#define NV_ESC_RM_SHARE	     0x35" in text
    (tmp_path / "rm_abi.h").write_text(text.replace("#define NV_ESC_RM_SHARE	     0x35", "#define NV_ESC_RM_SHARE 0x36"))
    monkeypatch.setattr(needs, "OUR_FOLDERS", (tmp_path, *needs.OUR_FOLDERS))
    needs.of_ours.cache_clear()
    said = needs.compare_ours("580.142")
    needs.of_ours.cache_clear()
    assert said == ["escape NV_ESC_RM_SHARE: 0x35 (rtxg: 0x36; for queues)"]


def defined() -> set[str]:
    """Every number and structure of the driver's that the headers have."""
    found = set()
    for path in ("nvidia/rm_abi.h", "lib/nvrm_abi.h", "bpf/discover.h"):
        text = (ROOT / path).read_text()
        found |= set(re.findall(r"^#define (\w+)[( \t][^\n]", text, re.M)) - OWN
        if path != "bpf/discover.h":
            found |= set(re.findall(r"^struct (\w+) \{", text, re.M))
    return found | set(re.findall(r"^#define (RM_\w+)", needs.CALLS.read_text(), re.M))


def test_each_number_and_structure_stands_in_the_table() -> None:
    """What is added to the headers is added to the table."""
    words = set(re.findall(r"\w+", " ".join(row["ours"] for row in needs.rows())))
    assert len(defined()) > 150
    assert sorted(defined() - words) == []


def test_a_driver_that_differs_is_named() -> None:
    """A value that has changed, and a name that has gone, are said with what they are for."""
    ours = needs.of_ours(580)
    found = list(ours)
    assert needs.differences(found, ours) == []
    names = [row["theirs"] for row in needs.rows()]
    changed, gone = names.index("NV_ESC_RM_SHARE"), names.index("NV01_MEMORY_LOCAL_USER")
    found[changed], found[gone] = 0x99, None
    said = needs.differences(found, ours)
    assert len(said) == 2
    assert "NV_ESC_RM_SHARE: 0x99 (rtxg: 0x35; for queues)" in said[0]
    assert "NV01_MEMORY_LOCAL_USER: gone" in said[1]


@pytest.mark.parametrize(("grown", "alike"), [(8, True), (1024, False), (-1, False)])
def test_parameters_may_grow(grown: int, alike: bool) -> None:
    """A driver's longer parameters fit as long as there is room for them; shorter ones do not."""
    ours = needs.of_ours(580)
    found = list(ours)
    row = [r["what"] for r in needs.rows()].index("parameters")
    found[row] += grown
    assert (needs.differences(found, ours) == []) == alike
    assert int(re.search(r"RM_PARAMETERS_MAX (\d+)", (ROOT / "nvidia/rm.h").read_text())[1]) == needs.ROOM


def test_what_has_moved_is_read_where_it_is() -> None:
    """The fields of a channel that release 610 moved are the only ones that the table has at two places."""
    moved = [row["theirs"] for row in needs.rows() if row["what"] == "offset" and row["615.71.09"] not in ("", row["580.142"])]
    assert len(moved) == 7
    assert all("NV_CHANNEL_ALLOC_PARAMS" in name for name in moved)


def test_a_checkout_without_a_number_is_the_oldest(tmp_path: Path) -> None:
    """Where version.mk is missing the oldest release is taken."""
    assert needs.release_of(tmp_path) == ""
    assert needs.major("") == 0
    (tmp_path / "version.mk").write_text("NVIDIA_VERSION = 615.71.09\n")
    assert needs.major(needs.release_of(tmp_path)) == 615


def test_each_control_that_can_be_asked_is_asked() -> None:
    """The running driver is asked for all that the lever issues on objects of its own."""
    text = (ROOT / "levers/nvidia/needs.c").read_text()
    asked = dict(re.findall(r'NEED\(OF_\w+, (\w+),\s+"(\w+)"', text))
    own = {
        row["ours"]: row["theirs"]
        for row in needs.rows()
        if row["what"] == "control" and row["for"] != "experiments" and row["ours"].startswith(("NV0000", "NV2080", "NV90CD"))
    }
    assert asked == own
