# SPDX-License-Identifier: MIT
"""What `rtxg analyze` assumes of this machine's interrupts, where nothing else says it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rtxg import served
from rtxg.commands import analyze
from rtxg.overheads import Interrupts

TABLE = (
    "           CPU0       CPU1\n"
    " 40:        100         20   PCI-MSI 65536-edge      virtio-gpu\n"
    " 42:       1000        200   PCI-MSI 131072-edge      nvidia\n"
    " 43:          3          4   PCI-MSI 131073-edge      nvidia\n"
)
NO_NVIDIA = "".join(TABLE.splitlines(keepends=True)[:2])


def machine(folder: Path, says: str | None, table: str = TABLE) -> tuple[Path, Path]:
    """A machine whose module says that; None: there is none."""
    if says is not None:
        (folder / "irq_threads").write_text(f"{says}\n")
    (folder / "interrupts").write_text(table)
    return folder / "irq_threads", folder / "interrupts"


@pytest.mark.parametrize(
    ("says", "table", "way", "why"),
    [
        (None, TABLE, Interrupts.SLIH, "is not loaded here"),
        ("", TABLE, Interrupts.SLIH, "serves no interrupt"),
        ("42:owner 43:owner", TABLE, Interrupts.KLMIRQD, "42 (nvidia), 43 (nvidia) at their owner"),
        ("43:pai 42:pai 40:fixed", TABLE, Interrupts.PAI, "process-aware"),
        ("42:owner", TABLE, Interrupts.SLIH, "not serve all of interrupts 42 (nvidia), 43"),
        ("42:owner 43:pai", TABLE, Interrupts.SLIH, "not serve all"),
        ("42:fixed 43:fixed", TABLE, Interrupts.SLIH, "not serve all"),
        ("40:owner", TABLE, Interrupts.SLIH, "not serve all of interrupts 42"),
        ("40:owner", NO_NVIDIA, Interrupts.KLMIRQD, "40 (virtio-gpu) at their owner"),
        ("41:owner", NO_NVIDIA, Interrupts.SLIH, "not serve all"),
    ],
)
def test_what_the_module_serves_is_assumed(tmp_path, says, table, way, why):
    found, because = served.here(*machine(tmp_path, says, table))
    assert found is way
    assert why in because


FILE = "[platform]\ncpus = 2\ngpus = 1\n{more}\n[[task]]\nrun = 900\nperiod = 20000\n{gpu}\n"
GPU = "gpu = { calls = 1, time = 1000, section = 1000 }"


def run(tmp_path, capsys, monkeypatch, *words, more="", gpu=GPU):
    path = tmp_path / "set.toml"
    path.write_text(FILE.format(more=more, gpu=gpu))
    monkeypatch.setattr(analyze, "here", lambda: (Interrupts.KLMIRQD, "it is so"))
    assert analyze.main([str(path), *words]) == 0
    return capsys.readouterr().out


def test_the_machine_is_asked_where_nothing_says_it(tmp_path, capsys, monkeypatch):
    out = run(tmp_path, capsys, monkeypatch)
    assert "interrupts klmirqd" in out
    assert "note: interrupts = klmirqd is assumed: it is so" in out
    told = json.loads(run(tmp_path, capsys, monkeypatch, "--json"))
    assert (told["interrupts"], told["interrupts_assumed"]) == ("klmirqd", "it is so")


@pytest.mark.parametrize(
    ("words", "more", "gpu", "interrupts"),
    [
        (["--interrupts", "slih"], "", GPU, "slih"),
        ([], 'interrupts = "pai"', GPU, "pai"),
        ([], "", "", "slih"),  # no task has such interrupts
    ],
)
def test_what_is_given_is_taken(tmp_path, capsys, monkeypatch, words, more, gpu, interrupts):
    told = json.loads(run(tmp_path, capsys, monkeypatch, *words, "--json", more=more, gpu=gpu))
    assert told["interrupts"] == interrupts
    assert "interrupts_assumed" not in told
