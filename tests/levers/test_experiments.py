# SPDX-License-Identifier: MIT
"""bench/gpu/experiments.py without a GPU: what is read off the log of context switches."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "gpu"))

import experiments  # noqa: E402

US = 1000.0
RT, HOG = 7, 8
START, END = 6, 7


def test_the_parts_of_a_job_add_up_to_its_latency() -> None:
    """From its release to the end of the other's stay, to its own begin, to the end of its kernel.
    """
    jobs = np.array([[1000 * US, 310 * US, 101 * US], [11000 * US, 290 * US, 101 * US]])
    log = np.array(
        [
            [900 * US, START, HOG],
            [1110 * US, END, HOG],
            [1194 * US, START, RT],
            [1400 * US, END, RT],
            [1484 * US, START, HOG],
            [11090 * US, END, HOG],
            [11174 * US, START, RT],
        ]
    )
    parts = experiments.switch_parts(jobs, log, RT)
    assert parts["leave"] == pytest.approx([110, 90])
    assert parts["restore"] == pytest.approx([84, 84])
    assert parts["rest"] == pytest.approx([116, 116])
    total = parts["leave"] + parts["restore"] + parts["rest"]
    assert total == pytest.approx(parts["latency"])
    assert experiments.spread(parts["leave"])["min"] == pytest.approx(90)


def test_a_job_that_found_its_context_there_has_no_parts() -> None:
    """Nothing was saved for it, or the log does not reach that far."""
    jobs = np.array([[1000 * US, 120 * US, 101 * US], [90000 * US, 310 * US, 101 * US]])
    log = np.array([[500 * US, END, HOG], [584 * US, START, RT], [5000 * US, END, RT]])
    parts = experiments.switch_parts(jobs, log, RT)
    assert parts["leave"].size == 0
    assert experiments.spread(parts["leave"]) == {"jobs": 0}


def rows(text: str) -> list[str]:
    """The lines of a table that are about a run."""
    return [line for line in text.splitlines() if line.startswith("| ") and "-580." in line]


@pytest.mark.parametrize(
    ("program", "document", "said"),
    [
        ("switch_floor.py", "nvidia.md", rows),
        ("llm_bound.py", "results.md", rows),
        ("mix_rounds.py", "results.md", lambda text: text.splitlines()[-3:]),
    ],
)
def test_a_document_holds_what_a_program_prints_from_the_records(
    program: str, document: str, said: Callable[[str], list[str]], tmp_path: Path
) -> None:
    """Each line as it is printed. That no record has the figures, or a file is none, is said."""
    command = [sys.executable, str(ROOT / "bench" / program)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    printed = said(done.stdout)
    assert len(printed) >= 3
    held = [line.strip() for line in (ROOT / "docs" / document).read_text("utf-8").splitlines()]
    assert [line for line in printed if line not in held] == []
    none = tmp_path / "none.json"
    for text, why in (("[]", "no record has"), ("{", "name a record"), (None, "No such file")):
        if text:
            none.write_text(text, encoding="ascii")
        else:
            none.unlink()
        done = subprocess.run([*command, str(none)], check=False, capture_output=True, text=True)
        assert done.returncode == 2
        assert why in done.stderr
