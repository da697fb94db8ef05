# SPDX-License-Identifier: MIT
"""Why a job of a run was late: what its CPUs did meanwhile, what a hypervisor took, and the
kernel's limit of real-time tasks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_sets import task, taskset

from rtxg import analyze, late, replay
from rtxg.commands import measure
from rtxg.late import LateJob, RealTimeLimit, Thief, denied, over_limit
from rtxg.replay import Observed

LIMIT = RealTimeLimit(950_000.0, 1_000_000.0)


def test_time_in_which_the_set_had_all_cpus_is_not_denied():
    others = [[(0.0, 1.0)], [(0.2, 0.5)]]
    assert denied(0.0, 1.0, [], others, 1) == []
    # With two CPUs one of them ran no task of the set outside 0.2 to 0.5.
    assert denied(0.0, 1.0, [], others, 2) == [(0.0, 0.2), (0.5, 1.0)]


def test_time_in_which_the_job_ran_or_slept_is_not_denied():
    assert denied(0.0, 1.0, [(0.1, 0.3), (0.6, 1.5)], [], 4) == [(0.0, 0.1), (0.3, 0.6)]


def test_only_what_lies_between_release_and_end_counts():
    stretches = [(0.0, 0.2), (0.4, 0.6), (0.9, 2.0)]
    assert late.within(stretches, 0.5, 1.0) == [(0.5, 0.6), (0.9, 1.0)]
    assert late.within(stretches, 0.2, 0.4) == []
    assert denied(0.5, 1.0, stretches, [], 1) == [(0.6, 0.9)]


@pytest.mark.parametrize(
    ("gone", "stolen", "longest", "stolen_then", "limit", "cause"),
    [
        (1000, 0, 1000, 0, 50_000, "set"),
        (1000, 30_000, 1000, 0, 50_000, "set"),  # what was stolen did not keep it
        (50_200, 0, 50_100, 0, 50_000, "limit"),
        (50_200, 80_000, 50_100, 11_000, 50_000, "limit"),
        (50_200, 80_000, 50_100, 40_000, 50_000, "stolen"),
        (90_000, 80_000, 10_000, 5000, 50_000, "stolen"),
        (50_200, 20_000, 50_100, 0, 0, "stolen"),
        (30_000, 0, 10_000, 0, 0, "other"),
        (30_000, 0, 10_000, 0, 50_000, "other"),  # the limit takes more at a time
    ],
)
def test_the_cause_of_a_late_job(gone, stolen, longest, stolen_then, limit, cause):
    job = LateJob("a", 100_000, 5000, gone, stolen, longest, stolen_then, limit)
    assert job.cause == cause
    assert job.words()


def test_a_late_job_is_explained_by_its_longest_stretch_without_a_cpu():
    thief = Thief([0])
    thief.seen = [(0.0, 0.0), (1.0, 10_000.0), (2.0, 110_000.0)]
    job = late.explain("a", (0.5, 0.5, 1.5), 0.9, [(0.6, 0.61), (1.2, 1.25)], thief, LIMIT)
    assert (job.response, job.late) == pytest.approx((1e6, 0.1e6))
    assert (job.denied, job.longest) == pytest.approx((60_000, 50_000))
    assert job.stolen == 110_000  # from the reading before to the one after
    assert job.stolen_then == pytest.approx(5000)
    assert job.limit == LIMIT.kept
    whole = late.explain("a", (0.1, 0.5, 1.5), 0.9, [], thief, None)
    assert (whole.denied, whole.longest, whole.cause) == (0, 0, "set")
    assert whole.response == pytest.approx(1e6)


def test_what_a_hypervisor_takes_of_the_cpus_that_are_lent_is_read():
    text = "cpu  1 2 3 4 5 6 7 9 0 0\ncpu0 1 2 3 4 5 6 7 4 0 0\ncpu1 1 2 3 4 5 6 7 5 0 0\nintr 1\n"
    tick = late.stolen_of([0], text) / 4
    assert tick > 0
    assert late.stolen_of([1], text) == 5 * tick
    assert late.stolen_of([0, 1], text) == 9 * tick
    assert late.stolen_of([0], "cpu0 1 2 3 4\n") == 0  # a kernel that does not count it
    assert late.stolen_of([0]) >= 0


def test_what_was_stolen_between_two_times_is_read_from_before_to_after():
    thief = Thief([0])
    thief.seen = [(0.0, 0.0), (1.0, 10_000.0), (2.0, 10_000.0), (3.0, 40_000.0)]
    assert thief.between(0.5, 0.9) == 10_000
    assert thief.between(1.2, 1.8) == 0
    assert thief.between(1.5, 2.5) == 30_000
    assert thief.between(2.5, 9.0) == 30_000
    with thief:
        pass
    assert len(thief.seen) >= 6


def files(folder: Path, runtime: str, period: str = "1000000\n") -> Path:
    (folder / "sched_rt_runtime_us").write_text(runtime)
    (folder / "sched_rt_period_us").write_text(period)
    return folder


def test_the_limit_of_the_machine_is_read(tmp_path):
    assert late.real_time_limit(files(tmp_path, "950000\n")) == LIMIT
    assert late.real_time_limit(files(tmp_path, "-1\n")) is None
    assert late.real_time_limit(files(tmp_path, "1000000\n")) is None
    assert late.real_time_limit(tmp_path / "nothing") is None


def test_a_set_that_never_wants_what_the_limit_keeps_is_not_touched_by_it():
    light = analyze(taskset(task("a", 10_000, 100_000), task("b", 20_000, 200_000), cpus=1))
    certain, most = over_limit(light, LIMIT)
    assert not certain
    assert most <= LIMIT.runtime


def test_two_tasks_of_half_a_cpu_each_may_meet_on_one_of_two():
    half = analyze(taskset(*(task(n, 50_000, 100_000) for n in "abc"), cpus=2))
    certain, most = over_limit(half, LIMIT)
    assert not certain
    assert most == LIMIT.period


def test_a_set_of_more_than_the_limit_is_certain_to_be_struck():
    full = analyze(taskset(task("a", 97_000, 100_000), cpus=1))
    assert over_limit(full, LIMIT) == (True, LIMIT.period)


class Console:
    def __init__(self) -> None:
        self.said: list[str] = []

    def print(self, *words: object) -> None:
        self.said += map(str, words)


FILE = """
[platform]
cpus = 1
scheduler = "RM"
[[task]]
name = "a"
period = "100ms"
run = "{run}ms"
"""


def run_it(tmp_path, monkeypatch, run, *words, observed=(), limit=LIMIT):
    """`rtxg measure --run` of one task under SCHED_FIFO, with what was observed."""
    (tmp_path / "set.toml").write_text(FILE.format(run=run))
    console = Console()
    monkeypatch.setattr(measure, "real_time_limit", lambda: limit)
    monkeypatch.setattr(measure, "replay", lambda *_: ("fifo", list(observed)))
    arguments = ["--run", str(tmp_path / "set.toml"), "--policy", "fifo", *words]
    status = measure.run_and_compare(measure._parser().parse_args(arguments), console)
    return status, "\n".join(console.said)


def test_a_set_that_the_limit_breaks_is_refused_with_the_number(tmp_path, monkeypatch):
    status, said = run_it(tmp_path, monkeypatch, 97)
    assert status == measure.REFUSED
    assert "950ms of each 1s of a CPU, and this task set needs more" in said
    assert "sched_rt_runtime_us=-1" in said
    status, _ = run_it(tmp_path, monkeypatch, 97, "--force")
    assert status == 0
    status, _ = run_it(tmp_path, monkeypatch, 97, limit=None)
    assert status == 0


def test_a_set_that_the_limit_can_break_runs_with_a_warning(tmp_path, monkeypatch, capsys):
    status, _ = run_it(tmp_path, monkeypatch, 90)
    assert status == 0
    said = capsys.readouterr().err
    assert "this task set can want" in said
    assert "50ms later than promised" in said
    status, _ = run_it(tmp_path, monkeypatch, 10)
    assert not capsys.readouterr().err


def test_each_late_job_is_told_with_what_kept_it(tmp_path, monkeypatch):
    jobs = [
        LateJob("a", 130_700, 30_700, 50_300, 0, 50_100, 0, 50_000),
        LateJob("a", 104_000, 4000, 6000, 10_000, 3000, 0, 50_000),
    ]
    seen = Observed("a", [130_700.0, 104_000.0], 30_700.0, 2, jobs)
    status, said = run_it(tmp_path, monkeypatch, 90, observed=[seen])
    assert status == measure.REFUSED
    assert "a: a job was 30.7ms late: it was denied a CPU for 50.3ms, 50.1ms at a time" in said
    assert (
        "a: a job was 4ms late: it was denied a CPU for 6ms; a hypervisor took up to 10ms" in said
    )
    status, said = run_it(tmp_path, monkeypatch, 90, "--json", observed=[seen])


def test_late_jobs_stand_in_the_json_with_their_cause(tmp_path, monkeypatch, capsys):
    seen = Observed("a", [104_000.0], 4000.0, 1, [LateJob("a", 104_000, 4000, 6000, 10_000)])
    run_it(tmp_path, monkeypatch, 10, "--json", observed=[seen])
    told = json.loads(capsys.readouterr().out)
    assert told["late_jobs"] == [
        {"name": "a", "late": 4000, "denied": 6000, "stolen": 10_000, "cause": "stolen"}
    ]


def test_many_late_jobs_are_counted_by_cause(tmp_path, monkeypatch):
    jobs = [LateJob("a", 110_000, 10_000 + n, 0, 0) for n in range(8)]
    seen = Observed("a", [110_000.0] * 8, 10_007.0, 8, jobs)
    _, said = run_it(tmp_path, monkeypatch, 10, observed=[seen])
    assert "of 8 late jobs: 8 by their own set" in said


def test_a_job_that_the_one_before_it_kept_is_explained_with_it():
    """The first job was denied its CPU, the second found it behind: both say so."""
    whole = analyze(taskset(task("a", 50_000, 100_000), cpus=1))
    ran = [(0.09, 0.14), (0.14, 0.22)]
    found = {"a": {"late": [(0.0, 0.14), (0.1, 0.12)], "ran": ran, "slept": []}}
    thief = Thief([0])
    thief.seen = [(0.0, 0.0)]
    first, second = replay._explained(whole, "deadline", found, {0: thief})["a"]
    assert (first.denied, second.denied) == pytest.approx((90_000, 90_000))
    found["a"]["late"][1] = (0.2, 0.12)  # it began after the end of the first
    _, second = replay._explained(whole, "deadline", found, {0: thief})["a"]
    assert second.denied == pytest.approx(100_000)


@pytest.mark.parametrize(("run", "cause"), [(30_000, "stolen"), (90_000, "limit")])
def test_the_limit_is_not_blamed_by_a_set_that_cannot_strike_it(run, cause, monkeypatch):
    """A hypervisor that froze both CPUs for 96 ms was read only much later, on a busy machine."""
    monkeypatch.setattr(replay, "real_time_limit", lambda: LIMIT)
    one = analyze(taskset(task("a", run, 100_000), cpus=1))
    found = {"a": {"late": [(0.0, 0.15)], "ran": [(0.0, 0.02), (0.116, 0.15)], "slept": []}}
    thief = Thief([0])
    thief.seen = [(0.0, 0.0), (0.9, 100_000.0)]
    (job,) = replay._explained(one, "fifo", found, {0: thief})["a"]
    assert job.longest == pytest.approx(96_000)
    assert job.cause == cause
    assert "hypervisor took up to 100ms" in job.words()
