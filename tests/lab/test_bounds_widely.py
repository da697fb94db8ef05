# SPDX-License-Identifier: MIT
"""A million random task sets of each kind of bench/lab_bounds.py, simulated: no bound is passed,
and the search can see one that is."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import lab_bounds

RECORD = max((Path(lab_bounds.__file__).parent / "results").glob("lab-bounds-*.json"))


@pytest.mark.slow
def test_no_bound_is_passed_by_a_million_sets():
    admitted, late, passed, closest = lab_bounds.search_cpu(1_000_000, 2012, 1.0)
    assert admitted > 900_000 and late > 500_000
    assert passed == 0 and closest <= 1.0


@pytest.mark.slow
def test_no_bound_is_passed_by_a_million_sets_with_gpus_and_interrupts():
    admitted, late, passed, closest = lab_bounds.search_gpu(1_000_000, 2012, 1.0, 0)
    assert admitted > 300_000 and late > 1000
    assert passed == 0 and closest <= 1.0


@pytest.mark.slow
def test_some_bound_is_nearly_reached():
    """So that a bound a little lower would be passed by one of a million."""
    _, late, passed, closest = lab_bounds.search_cpu(20_000, 1, 1.0)
    assert late > 10_000
    assert passed == 0 and 0.8 < closest <= 1.0
    assert lab_bounds.search_cpu(20_000, 1, 0.8)[2] > 0


@pytest.mark.slow
@pytest.mark.parametrize(("forgotten", "what"), [(1, "interrupts"), (2, "waits for a GPU")])
def test_what_an_analysis_forgets_is_seen(forgotten, what):
    assert lab_bounds.search_gpu(20_000, 1, 1.0, 0)[2] == 0
    assert lab_bounds.search_gpu(20_000, 1, 1.0, forgotten)[2] > 0, f"{what} were not counted"


@pytest.mark.parametrize("kind", lab_bounds.KINDS)
def test_the_record_has_a_million_sets_and_no_bound_passed(kind):
    kept = json.loads(RECORD.read_text(encoding="utf-8"))
    found = lab_bounds.summed(kept["parts"][kind])
    assert found == kept["sums"][kind]
    assert found["with_a_bound"] >= 1_000_000
    assert found["bounds_passed"] == 0 and found["closest"] <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("kind", lab_bounds.KINDS)
def test_a_part_made_again_is_the_recorded_one(kind):
    kept = json.loads(RECORD.read_text(encoding="utf-8"))
    assert lab_bounds.run_part(kind, 0) == kept["parts"][kind]["0"]


def test_a_record_is_gone_on_with(tmp_path, monkeypatch):
    counts = {"with_a_bound": 9, "late_tasks": 3, "bounds_passed": 0, "closest": 0.5}
    asked = []

    def part(kind, number):
        asked.append((kind, number))
        return {"sets": lab_bounds.PART, **counts, "bounds_passed": int(number == 2)}

    monkeypatch.setattr(lab_bounds, "run_part", part)

    def run(parts):
        command = ["lab_bounds.py", "--kinds", "gpu", "--sets", str(parts * lab_bounds.PART)]
        monkeypatch.setattr(sys, "argv", [*command, "--keep", str(tmp_path / "kept.json")])
        return lab_bounds.main()

    assert (run(2), asked) == (0, [("gpu", 0), ("gpu", 1)])
    assert (run(3), asked[2:]) == (1, [("gpu", 2)])
    kept = json.loads((tmp_path / "kept.json").read_text(encoding="utf-8"))
    assert kept["sums"]["gpu"]["sets"] == 3 * lab_bounds.PART
    assert kept["sums"]["gpu"]["bounds_passed"] == 1
    assert (run(3), asked[3:]) == (1, [])


@pytest.mark.parametrize(
    ("option", "value", "remedy"),
    [
        ("--sets", "2000", "multiple of 100000"),
        ("--sets", "-1", "multiple of 100000"),
        ("--kinds", "tpu", "cpu, gpu"),
        ("--keep", "{folder}/none.json", "another file"),
    ],
)
def test_what_makes_no_search_is_refused(option, value, remedy, tmp_path, monkeypatch, capsys):
    """A search of no set would have found no bound that is passed."""
    (tmp_path / "none.json").write_text("[]")
    value = value.format(folder=tmp_path)
    monkeypatch.setattr(sys, "argv", ["lab_bounds.py", option, value])
    with pytest.raises(SystemExit) as ended:
        lab_bounds.main()
    said = capsys.readouterr().err
    assert ended.value.code == 2 and value in said and remedy in said
