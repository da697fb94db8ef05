# SPDX-License-Identifier: MIT
"""The cases `admitted` and `overheads` of tests/gpu without a GPU: the analysis of the one against
core/slice on a model GPU, and what both do with what they see."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
MODEL = Path(os.environ.get("RTXG_BUILD", ROOT / "build" / "release")) / "bench" / "analysis_model"
sys.path.insert(0, str(ROOT / "tests" / "gpu"))

import product  # noqa: E402
from cases import admitted, overheads  # noqa: E402
from cases.admitted import Periodic, responses  # noqa: E402
from harness import Setup  # noqa: E402

modelling = pytest.mark.skipif(not MODEL.exists(), reason=f"{MODEL} is not built: run make")


class Seen(NamedTuple):
    """Of one task on the model GPU."""

    jobs: int
    longest_us: float  # response
    longest_wait_us: float
    waits: int
    counted: int  # by the core
    above: int  # those that it saw above the bound


def modelled(
    tasks: list[Periodic],
    hogs: list[int],
    seed: int,
    late_us: int = 0,
    promise: bool = True,
    visitors: str = "0,0",
    seconds: int = 6,
) -> list[Seen] | None:
    """What was seen of each task in so many modelled seconds; None: the core refuses it.

    Visitors: how many rows of programs that come and go, and the driver's longest call, us.
    """
    latency = str(int(admitted.LATENCY_US) if promise else 0)
    words = [f"{t.kernel_us}:{t.period_us}:{min(100, t.share)}" for t in tasks]
    rows = ["--visitors", visitors, str(seed), str(1000 * seconds), latency, str(late_us)]
    command = [MODEL, *rows, ",".join(map(str, hogs)), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 3:
        return None
    assert not done.returncode, done.stderr
    return [Seen(*map(int, line.split())) for line in done.stdout.splitlines()]


def sets_hold(seeds: range) -> tuple[int, int]:
    """Random sets on the model GPU, with a host that is on time and with one that is late now and
    then; the admitted ones, and their jobs."""
    count = jobs = 0
    for seed in seeds:
        rng = random.Random(seed)
        tasks, hogs = admitted.draw_admitted(rng), admitted.draw_hogs(rng)
        bounds = responses(tasks)
        seen = modelled(tasks, hogs, seed, late_us=3000 * (seed % 2))
        if seen is None:
            continue
        for one, bound in zip(seen, bounds, strict=True):
            assert bound is not None
            assert one.longest_us <= bound, (seed, tasks, hogs, bounds, seen)
            jobs += one.jobs
        count += 1
    return count, jobs


@modelling
def test_no_job_of_an_admitted_set_passes_its_bound_on_the_model_gpu() -> None:
    count, jobs = sets_hold(range(24))
    assert count > 10
    assert jobs > 1000


@modelling
def test_programs_that_come_and_go_beside_a_set_take_its_bounds_from_no_task() -> None:
    """The driver's lock is held then, so calls take up to 30 ms, and one of 400 up to 120. What the
    daemon's delay is must not be taken for work of a task: it would be too far ahead of its share,
    and wait for a second."""
    assert beside_visitors(range(1180, 1200)) > 20_000


@modelling
@pytest.mark.slow
def test_the_same_of_many_sets() -> None:
    assert beside_visitors(range(1000, 1640)) > 600_000


def beside_visitors(seeds: range) -> int:
    """Random sets on the model GPU beside programs that come and go; their jobs."""
    call_us, jobs = 30_000, 0
    for seed in seeds:
        rng = random.Random(seed)
        tasks, hogs = admitted.draw_admitted(rng), admitted.draw_hogs(rng)
        seen = modelled(tasks, hogs, seed, visitors=f"3,{call_us}", seconds=12)
        if seen is None:
            continue
        for one, bound in zip(seen, responses(tasks), strict=True):
            assert bound is not None
            assert one.longest_us <= bound + call_us, (seed, tasks, hogs, bound, seen)
            jobs += one.jobs
    return jobs


@modelling
@pytest.mark.slow
def test_no_job_of_a_thousand_admitted_sets_passes_its_bound_on_the_model_gpu() -> None:
    count, jobs = sets_hold(range(100, 1400))
    assert count > 900
    assert jobs > 100_000


@modelling
def test_what_comes_between_two_slices_of_a_kernel_is_needed_in_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bound that slices keep stops no other: a kernel of 20 ms waits again after its slices."""
    tasks = [Periodic(20_000, 100_000)]
    longest = 0.0
    for seed in range(6):
        seen = modelled(tasks, [1000], seed, late_us=3000)
        assert seen is not None
        longest = max(longest, seen[0].longest_us)
    assert longest <= responses(tasks)[0]
    monkeypatch.setattr(admitted, "BETWEEN_US", 0.0)
    assert longest > responses(tasks)[0]


@modelling
def test_sets_drawn_as_overloads_are_refused_and_late_on_the_model_gpu() -> None:
    for seed in range(4):
        tasks = admitted.draw_overload(random.Random(seed))
        assert None in responses(tasks)
        seen = modelled(tasks, [1000], seed, promise=False)
        assert seen is not None
        assert any(s.longest_us > t.period_us for s, t in zip(seen, tasks, strict=True))


@modelling
def test_the_cores_count_of_waits_is_that_of_the_model_gpu() -> None:
    """Short jobs beside long kernels: while the host stops those, jobs come and go unseen."""
    tasks = [Periodic(*t) for t in ((50, 10_000), (50, 50_000), (100, 12_500), (50, 10_000))]
    for seed in range(6):
        seen = modelled(tasks, [10_000, 10_000, 200], seed, late_us=3000 * (seed % 2))
        assert seen is not None
        for one in seen:
            assert one.longest_wait_us < admitted.LATENCY_US
            assert one.above == 0
            assert 0.99 * one.waits <= one.counted <= one.waits


#: what is seen of a set besides its jobs
SEEN: dict[str, Any] = {
    "hogs_us": [1000],
    "refused": "",
    "stolen_ms": 0.0,
    "rtxgd_late": {},
    "events": [],
}


def one(
    kernel_us: int,
    period_us: int,
    latencies: list[float],
) -> tuple[list[Periodic], dict[str, Any]]:
    """A set of one task, and what was seen of it."""
    times = [(i * period_us, us, kernel_us) for i, us in enumerate(latencies)]
    rows = np.array(times) * 1e3
    seen = SEEN | {"waits": [0], "waits_with_ends": [1], "rows": [rows]}
    return [Periodic(kernel_us, period_us)], seen | {"ran_s": 6.5}


def test_a_job_above_its_bound_is_counted_and_kept_with_its_time(tmp_path: Path) -> None:
    setup = Setup(tmp_path, tmp_path, tmp_path)
    tasks, seen = one(1000, 20_000, [2000.0, 7000.0])
    kept = admitted.told(tasks, responses(tasks), "", seen)
    on_gpu = {"from_first_to_last_us": 1000.0}
    assert kept["passed"] == [{"task": 0, "release_ns": 20_000_000, "us": 7000.0} | on_gpu]
    tasks, seen = one(15_000, 20_000, [21_000.0])
    missed = admitted.told(tasks, responses(tasks), "overload", seen)
    assert missed["late"] == [1]
    assert not missed["passed"]
    admitted.judge(setup, [kept, missed])
    assert [(line["rtxg"], line["met"]) for line in setup.results] == [(1, False), (1, True)]


def test_visitors_add_to_bounds_and_nothing_to_the_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = [Periodic(1000, 20_000), Periodic(15_000, 20_000)]
    setup = Setup(tmp_path, tmp_path, tmp_path, name="H100-580.1-2026-11-26")
    bound = responses(tasks[:1])[0]
    assert bound is not None
    assert admitted.bounds_of(tasks[:1]) == [bound]
    assert admitted.FILE.fullmatch(admitted.new_runs(setup, "fifo", ["nvidia0"])[0].path.name)
    monkeypatch.setenv(admitted.ASKED_VISITORS, "2")
    assert admitted.bounds_of(tasks[:1]) == [bound + admitted.LOCK_US]
    assert admitted.bounds_of(tasks)[1] is None
    run = admitted.new_runs(setup, "fifo", ["nvidia0"])[0]
    assert "-admitted-visitors-" in run.path.name
    assert not admitted.FILE.fullmatch(run.path.name)
    begun: list[list[str]] = []
    one = card(Daemon(False))
    programs = SimpleNamespace(load=lambda *words: [*map(str, words)])
    monkeypatch.setattr(one, "begin", lambda _, command, vgpu: begun.append([vgpu, *command]))
    admitted.visits(one, programs, 5.0)
    assert [b[:3] for b in begun] == [["visitors", "contexts-made", "5.0"]] * 2


def test_what_rtxgd_did_around_a_very_late_job_is_kept() -> None:
    """And by how much it came late itself in that time: a bound may be passed for that."""
    late = iter([[5, 1], [9, 2]])
    lists = {
        "metrics": lambda: {"levers": [{"late": {"counts": next(late)}, "late_most_ns": 7}]},
        "timeline": lambda: {
            "events": [
                {"kind": kind, "start_ns": at * 1_000_000, "end_ns": (at + 1) * 1_000_000}
                for kind, at in (("before", 100), ("stop", 960), ("resume", 1200), ("after", 1500))
            ]
        },
    }
    card = SimpleNamespace(product=SimpleNamespace(ask=lambda op: lists[op]()))
    before = admitted.rtxgd_late(card)
    assert admitted.rtxgd_late_since(card, before)["late"] == [4, 1]
    kept = admitted.events_around(card, [(1_000_000_000, 1_200_000_000)])
    assert [e["kind"] for e in kept] == ["stop", "resume"]
    assert admitted.events_around(card, []) == []
    tasks, seen = one(1000, 20_000, [300_000.0])
    told = admitted.told(tasks, responses(tasks), "", seen | {"events": kept})
    assert told["events"] == kept


def test_an_impossible_set_that_was_not_late_misses_the_aim(tmp_path: Path) -> None:
    setup = Setup(tmp_path, tmp_path, tmp_path)
    tasks, seen = one(15_000, 20_000, [19_000.0])
    admitted.judge(setup, [admitted.told(tasks, responses(tasks), "overload", seen)])
    assert [line["met"] for line in setup.results] == [False, False]


class Daemon:
    """Answers as a Product does; keeps what it was asked."""

    def __init__(self, refuses: bool) -> None:
        self.refuses, self.asked = refuses, []

    def vgpu(self, name: str, **values: str) -> None:
        self.asked.append((name, values))
        if self.refuses and values.get("latency") not in (None, "default"):
            raise RuntimeError("refused")


def card(daemon: Any, number: int = 0, count: int = 1) -> admitted.Card:
    """A GPU of a machine with so many."""
    return admitted.Card(Setup(Path(), Path(), Path()), daemon, number, count)


def test_each_task_asks_for_its_bound_and_its_share() -> None:
    tasks = [Periodic(1000, 20_000), Periodic(300, 33_000)]
    daemon = Daemon(False)
    assert admitted.promised(card(daemon), tasks) == ""
    assert daemon.asked == [
        ("task0", {"min": "10%", "latency": "5ms"}),
        ("task1", {"min": "3%", "latency": "5ms"}),
    ]
    assert admitted.promised(card(Daemon(True)), tasks) == "refused"


class Plain(Daemon):
    """As long as a block lasts; its programs write what a load writes."""

    def __init__(self, *_: object) -> None:
        super().__init__(False)
        self.socket = "none"

    def __enter__(self) -> Plain:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def long_waits(self, bound_ns: float, gpu: str = "nvidia0") -> dict[str, int]:
        waits = {"limits_ns": [1_000_000, 5_000_000], "counts": [3, 1, 2]}
        metrics = {
            "vgpu_columns": ["gpu", "vgpu", "more"],
            "vgpus": ["0/task0/-", "nvidia0/default/0", f"{gpu}/task0/1"],
            "more": [{"broken": []}, {"waits": waits}],
        }
        return product.long_waits(metrics, gpu, bound_ns)

    def ask(self, op: str) -> dict[str, Any]:
        if op == "metrics":
            return {"levers": []}
        assert op == "gpu-list"
        governed = [{"gpu": f"nvidia{n}", "policy": "slice"} for n in range(2)]
        return {"gpus": [{"gpu": "0"}, *governed]}

    def tasks(self, gpu: str) -> dict[int, Any]:
        """Programs are where their environment says."""
        return {one.pid: one for one in Writes.hogs if f"nvidia{one.number}" == gpu}

    def pids(self) -> list[int]:
        return [os.getpid()]


class Hog(NamedTuple):
    """A program that never rests, as it was started."""

    pid: int
    number: int  # of the GPU that it sees
    vgpu: str
    kernel_us: int
    thread: int


class Writes:
    """Programs whose jobs take the time of their kernels, and 34 ms where those are too long."""

    hogs: ClassVar[list[Hog]] = []  # those that were started
    tasks: ClassVar[list[tuple[int, str]]] = []  # the GPU and the vGPU of each
    ended = 0  # blocks of programs
    ends: ClassVar[int | None] = None  # the exit status that hogs have

    def __init__(self, setup: Setup) -> None:
        self.setup, self.processes, self.pid = setup, [], 0

    def poll(self) -> int | None:
        return Writes.ends

    @staticmethod
    def sees(env: dict[str, str]) -> int:
        """CUDA's order is by speed if it is not told."""
        if not env:
            return 0
        assert env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
        return int(env["CUDA_VISIBLE_DEVICES"])

    def busy(self, kernel_us: int, _: float, __: Any, vgpu: str, **env: str) -> None:
        pid, thread = len(Writes.hogs) + 1, threading.get_ident()
        Writes.hogs.append(Hog(pid, self.sees(env), vgpu, kernel_us, thread))
        self.processes.append(self.started(pid))

    def started(self, pid: int) -> Writes:
        one = Writes(self.setup)
        one.pid = pid
        return one

    def end(self) -> None:
        Writes.ended += 1

    def __enter__(self) -> Writes:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def load(self, *words: str | float) -> list[str]:
        return [str(w) for w in words]

    def begin(self, command: list[str], *words: Any, said: Path | None = None, **env: str) -> Any:
        if "rt" in command:
            _, _, vgpu = words
            Writes.tasks.append((self.sees(env), vgpu))
            turns, period, _, jobs, out = command[command.index("rt") + 1 :]
            took = float(turns) * 1e3 if float(turns) < 9000 else 34e6
            lines = (f"{i * int(period) * 1000} {took} {took}" for i in range(int(jobs)))
            Path(out).write_text("\n".join(lines) + "\n")
        return self

    def wait(self, *_: object, **__: object) -> None:
        pass

    sporadic = wait_working = wait


Ran = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ran:
    """Runs the case at that time of the day with a clock that ticks when it is asked."""
    monkeypatch.setattr(admitted, "Product", Plain)
    monkeypatch.setattr(admitted, "Programs", Writes)
    monkeypatch.setattr(Writes, "hogs", [])
    monkeypatch.setattr(Writes, "tasks", [])
    monkeypatch.setattr(Writes, "ended", 0)
    monkeypatch.delenv("ADMITTED_SEED", raising=False)
    ticks = itertools.count()
    clock = SimpleNamespace(monotonic=ticks.__next__, monotonic_ns=ticks.__next__)
    monkeypatch.setattr(admitted, "time", clock)

    def run(
        at: str,
        name: str = "H200-580-2026-11-23",
        soak_s: float = 200,
        models: tuple[str, ...] = ("H200",),
    ) -> list[dict[str, Any]]:
        monkeypatch.setattr(admitted, "gpu_names", lambda: list(models))
        now = SimpleNamespace(strftime=lambda _: at)
        moment = SimpleNamespace(now=lambda _: now)
        monkeypatch.setattr(admitted, "datetime", SimpleNamespace(datetime=moment, UTC=None))
        work = tmp_path / f"work-{at}"
        work.mkdir()
        setup = Setup(tmp_path, tmp_path, work, {1000: 1000}, name=name, soak_s=soak_s)
        admitted.case_admitted(setup)
        return setup.results

    return run


def test_the_case_admitted_counts_jobs_and_misses_until_its_time_is_over(
    ran: Ran,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("ADMITTED_SEED", "2026")
    kept, missed, *_, hour, _ = ran("060000", soak_s=400)
    assert (kept["rtxg"], kept["met"]) == (0, True)
    assert kept["detail"]["jobs"] > 1000
    assert kept["detail"]["rtxgd"] == "other"
    assert kept["detail"]["seeds"] == [2026]
    assert kept["detail"]["admitted_ran_s"] > 0
    assert kept["detail"]["measured_s"] > 100
    assert (str(missed["rtxg"]), missed["met"]) == (missed["aim"], True)
    assert missed["rtxg"] > 1
    assert hour["rtxg"] == hour["detail"]["own_s"] == kept["detail"]["measured_s"]
    assert hour["detail"]["hour_percent"] == pytest.approx(hour["rtxg"] / 36, abs=1e-2)
    assert " s of the hour are there " in capsys.readouterr().out


def test_runs_of_admitted_have_other_sets_and_are_summed(ran: Ran, tmp_path: Path) -> None:
    ran("050000", "H100-580-2026-11-23")  # of another GPU: not in the sum
    before, *_ = ran("060000", "H200-580-2026-11-22-quick")
    own, missed, failed, both, both_missed, hour, on_all = ran("061000")
    files = sorted(tmp_path.glob("H200-580-*-admitted-*.json"))
    assert [f.name[-11:-5] for f in files] == ["060000", "061000"]
    first, second = (json.loads(f.read_text(encoding="ascii")) for f in files)
    assert [s["tasks"] for s in first["sets"]] != [s["tasks"] for s in second["sets"]]
    assert both["detail"]["seeds"] == [first["seed"], second["seed"]]
    assert both["detail"]["jobs"] == before["detail"]["jobs"] + own["detail"]["jobs"]
    assert both["detail"]["seconds"] == first["seconds"] + second["seconds"] > 60
    assert both["case"].endswith(f"(all 2 runs, {both['detail']['seconds']:.0f} s)")
    assert both_missed["rtxg"] > missed["rtxg"] > 0
    assert hour["rtxg"] == both["detail"]["measured_s"] > hour["detail"]["own_s"] > 0
    assert (failed["rtxg"], failed["met"]) == (0, True)
    machines = on_all["detail"]["by_machine"]
    assert machines["H200-580"] == hour["rtxg"]
    assert machines["H100-580"] > 0
    assert on_all["rtxg"] == pytest.approx(sum(machines.values()), abs=1e-2)


def test_two_sets_follow_each_other_beside_the_same_hogs(ran: Ran, tmp_path: Path) -> None:
    ran("060000")
    (path,) = tmp_path.glob("*-admitted-060000.json")
    hogs = [s["hogs_us"] for s in json.loads(path.read_text(encoding="ascii"))["sets"]]
    pairs = [hogs[at : at + 2] for at in range(0, len(hogs), 2)]
    assert len(pairs) > 3
    assert all(pair[0] == pair[-1] for pair in pairs)
    assert len({tuple(pair[0]) for pair in pairs}) > 2
    # All were ended, and the time may have been over when the last ones had started.
    beside = [us for pair in pairs for us in pair[0]]
    assert [hog.kernel_us for hog in Writes.hogs][: len(beside)] == beside
    assert Writes.ended - len(pairs) in (0, 1)


def test_a_set_beside_hogs_that_have_ended_does_not_count(
    ran: Ran,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Writes, "ends", 1)
    with pytest.raises(RuntimeError, match="was to keep the GPU busy has ended"):
        ran("060000")
    assert not list(tmp_path.glob("*-admitted-*.json"))


TWO = ("H200", "H200")


def test_two_gpus_have_sets_of_their_own_at_the_same_time(
    ran: Ran,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admitted, "turns_alone", lambda *_, **env: 900 + Writes.sees(env))
    before, *_ = ran("050000")
    Writes.hogs.clear()
    Writes.tasks.clear()
    *_, hour, _ = ran("060000", "2xH200-580-2026-11-24", models=TWO)
    files = sorted(tmp_path.glob("H200-580-2026-11-24-admitted-060000-*.json"))
    assert [f.name[-12:-5] for f in files] == ["nvidia0", "nvidia1"]
    first, second = (json.loads(f.read_text(encoding="ascii")) for f in files)
    assert (first["gpus"], second["gpus"]) == (["nvidia0", "nvidia1"], ["nvidia1", "nvidia0"])
    assert [s["tasks"] for s in first["sets"]] != [s["tasks"] for s in second["sets"]]
    # Each program is on its GPU, in a vGPU of it; a thread that ends takes its programs along.
    for number, run in enumerate((first, second)):
        mine = [hog for hog in Writes.hogs if hog.number == number]
        assert len(mine) >= sum(len(s["hogs_us"]) for s in run["sets"][::2])
        assert {hog.vgpu[:3] + hog.vgpu[4:] for hog in mine} == {f"hog-nvidia{number}"}
        assert len({hog.thread for hog in mine}) == 1
        tasks = [vgpu for at, vgpu in Writes.tasks if at == number]
        assert len(tasks) >= sum(len(s["tasks"]) for s in run["sets"])
        assert all(vgpu.endswith(f"-nvidia{number}") for vgpu in tasks)
        assert all(s["waits_when_warm"] is None or len(s["tasks"]) for s in run["sets"])
    assert len({hog.thread for hog in Writes.hogs}) == 2
    both = sum(admitted.counted_s(s) for run in (first, second) for s in run["sets"])
    assert hour["detail"]["own_s"] == pytest.approx(both, abs=1e-2)
    # The sum is of the model: with the run on a machine that had one.
    assert hour["rtxg"] == pytest.approx(before["detail"]["measured_s"] + both, abs=1e-2)


def test_kernels_of_each_of_two_gpus_have_that_gpus_length(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admitted, "turns_alone", lambda *_, **env: 900 + Writes.sees(env))
    setup = Setup(tmp_path, tmp_path, tmp_path, {1000: 1000})
    assert admitted.setups(setup, ["H200"]) == {0: setup}
    found = admitted.setups(setup, ["H200", "A2", "H200"])
    assert {number: one.turns_of(1000) for number, one in found.items()} == {0: 900, 2: 902}
    assert all(one.work.is_dir() for one in found.values())
    assert found[2].results is setup.results


def test_vgpus_and_waits_of_one_of_two_gpus_are_that_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = Daemon(False)
    here = card(daemon, 1, 2)
    here.make_vgpus()
    assert {values["gpu"] for _, values in daemon.asked} == {"nvidia1"}
    assert ("task4-nvidia1", {"gpu": "nvidia1"}) in daemon.asked
    daemon.asked.clear()
    assert admitted.promised(here, [Periodic(1000, 20_000)]) == ""
    assert daemon.asked == [("task0-nvidia1", {"min": "10%", "latency": "5ms"})]
    counts = {"task0-nvidia1": 3, "task1-nvidia1": 0}
    daemon.long_waits = lambda _, gpu: counts if gpu == "nvidia1" else {"task0-nvidia0": 7}
    assert admitted.long_waits(here, 3) == [3, 0, None]
    with pytest.raises(RuntimeError, match="does not govern nvidia2"):
        card(Plain(), 2, 3).check_governed()
    with pytest.raises(RuntimeError, match=r"not on nvidia1: the programs \[7\]"):
        ticks = itertools.count(0, 6)
        clock = SimpleNamespace(monotonic=ticks.__next__, sleep=lambda _: None)
        monkeypatch.setattr(admitted, "time", clock)
        card(Plain(), 1, 2).check_placed([7])


def test_a_gpu_whose_sets_fail_does_not_take_the_other_ones_along(
    ran: Ran,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admitted, "turns_alone", lambda *_, **__: 1000)
    run_set = admitted.run_set

    def breaks(card: admitted.Card, *words: Any) -> dict[str, Any]:
        if card.gpu == "nvidia0":
            raise RuntimeError("a load has failed")
        return run_set(card, *words)

    monkeypatch.setattr(admitted, "run_set", breaks)
    with pytest.raises(RuntimeError, match="a load has failed"):
        ran("060000", "2xH200-580-2026-11-24", models=TWO)
    (kept,) = tmp_path.glob("*-admitted-060000-*.json")
    assert kept.name.endswith("-nvidia1.json")
    assert len(json.loads(kept.read_text(encoding="ascii"))["sets"]) > 3
    results = json.loads((tmp_path / "2xH200-580-2026-11-24.json").read_text(encoding="ascii"))
    (failed,) = (line for line in results if line["case"] == "sets that could not be run")
    assert (failed["rtxg"], failed["met"]) == (admitted.MOST_FAILURES, False)
    assert failed["detail"]["failures"][0] == "nvidia0: RuntimeError: a load has failed"


def test_a_set_that_cannot_be_run_is_told_and_the_run_goes_on(
    ran: Ran,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_set, count = admitted.run_set, itertools.count()

    def breaks(*words: Any) -> dict[str, Any]:
        if next(count) == 1:
            raise RuntimeError("a load has failed")
        return run_set(*words)

    monkeypatch.setattr(admitted, "run_set", breaks)
    kept, _, failed, *_ = ran("060000")
    assert kept["detail"]["measured_s"] > 30
    assert (failed["rtxg"], failed["met"]) == (1, False)


def test_the_end_of_the_case_ends_the_sets_of_every_gpu(tmp_path: Path) -> None:
    """A limit of time is told to the main thread; the threads of the GPUs go on without it."""
    cards = [card(Plain(), number, 2) for number in range(2)]
    for one in cards:
        one.over.set()
    runs = [admitted.Run(tmp_path / f"{n}.json", n, "other", [f"nvidia{n}"]) for n in range(2)]
    errors = admitted.run_cards(cards, runs, float("inf"))
    assert [type(error) for error in errors] == [admitted.Over, admitted.Over]

    def wait(_: float) -> None:
        raise subprocess.TimeoutExpired("load", 1.0)

    with pytest.raises(admitted.Over):
        admitted.wait_for(SimpleNamespace(wait=wait), cards[0], 1)


def test_a_long_run_has_longer_sets(ran: Ran, tmp_path: Path) -> None:
    for at, soak_s in (("060000", 900), ("070000", 1150)):
        ran(at, soak_s=soak_s)
    lengths = []
    for path in sorted(tmp_path.glob("*-admitted-0*.json")):
        sets = json.loads(path.read_text(encoding="ascii"))["sets"]
        lengths.append(max(s["measured_s"] for s in sets))
    assert lengths == [pytest.approx(30, abs=1), pytest.approx(60, abs=1)]


def test_what_counts_of_a_set_is_the_time_in_which_all_of_its_tasks_ran() -> None:
    tasks = [Periodic(100, 10_000), Periodic(100, 50_000)]
    rows = [
        np.array([[at * 1e9, 1e6, 1e5] for at in np.arange(begin, end, t.period_us / 1e6)])
        for t, begin, end in zip(tasks, (1.0, 2.0), (9.0, 12.0), strict=True)
    ]
    assert admitted.all_ran_s(tasks, rows) == pytest.approx(7.0)
    seen = SEEN | {"waits": [0, 0], "waits_with_ends": [0, 1], "rows": rows, "ran_s": 12.0}
    kept = admitted.told(tasks, responses(tasks), "", seen)
    assert admitted.counted_s(kept) == pytest.approx(7.0)
    # As the first records had it: by the jobs of the task that ran for the shortest time.
    del kept["measured_s"]
    assert kept["jobs"] == [800, 200]
    assert admitted.counted_s(kept) == pytest.approx(8.0)
    assert admitted.counted_s(kept | {"refused_by": "daemon"}) == 0


def test_records_without_a_length_of_the_run_are_summed_too(tmp_path: Path) -> None:
    tasks, seen = one(1000, 20_000, [2000.0] * 300)
    kept = admitted.told(tasks, responses(tasks), "", seen)
    del kept["ran_s"], kept["measured_s"]
    old = [{"case": "jobs", "detail": {"seed": 2026, "sets": [kept]}}]
    path = tmp_path / "H200-580-2026-11-22-admitted.json"
    path.write_text(json.dumps(old), encoding="ascii")
    setup = Setup(tmp_path, tmp_path, tmp_path, name="H200-580-2026-11-23")
    (run,) = admitted.all_runs(setup)
    assert (run["seed"], run["seconds"]) == (2026, 6.0)
    admitted.judge(setup, run["sets"])
    assert setup.results[0]["detail"]["measured_s"] == 6.0


def test_half_of_the_sets_have_kernels_that_cannot_be_much_longer() -> None:
    tight, counts = 0, set()
    for seed in range(60):
        tasks = admitted.draw_admitted(random.Random(seed))
        assert admitted.admits(tasks)
        assert sum(t.share for t in tasks) <= 100
        counts.add(len(tasks))
        longer = [Periodic(int(1.25 * t.kernel_us) + 1, t.period_us) for t in tasks]
        larger = ([*tasks[:n], more, *tasks[n + 1 :]] for n, more in enumerate(longer))
        tight += not any(map(admitted.admits, larger))
    assert counts == {1, 2, 3, 4, 5}
    assert 20 < tight < 40


def test_each_round_of_sets_has_one_of_each_kind_that_is_refused() -> None:
    rng = random.Random(1)
    kinds = [admitted.draw_set(rng, number) for number in range(2 * admitted.ROUND)]
    assert [by for _, by in kinds].count("overload") == 2
    assert [by for _, by in kinds].count("analysis") == 2
    assert all(admitted.admits(tasks) == (not by) for tasks, by in kinds)


def test_a_run_of_admitted_that_is_cut_short_keeps_its_sets(
    ran: Ran,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_set, count = admitted.run_set, itertools.count()

    def breaks(*words: Any) -> dict[str, Any]:
        if next(count) >= 2:
            raise TimeoutError("not done in time")
        return run_set(*words)

    monkeypatch.setattr(admitted, "run_set", breaks)
    with pytest.raises(TimeoutError):
        ran("060000")
    (kept,) = tmp_path.glob("*-admitted-060000.json")
    assert len(json.loads(kept.read_text(encoding="ascii"))["sets"]) == 2


def test_the_daemons_waits_above_its_bound_are_counted() -> None:
    assert admitted.long_waits(card(Plain()), 2) == [2, None]


class Grows(Plain):
    """Its counts grow with each question: from 5 on."""

    def __init__(self) -> None:
        super().__init__()
        self.next = itertools.count(5)

    def long_waits(self, *_: Any) -> dict[str, int]:
        return {"task0": next(self.next), "task1": 7}


def test_waits_are_counted_from_when_all_tasks_are_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count(10)
    clock = SimpleNamespace(monotonic=lambda: 0.0, monotonic_ns=lambda: next(seconds) * 10**9)
    monkeypatch.setattr(admitted, "time", clock)
    daemon = card(Grows())
    ended = iter([False, False, False, True])

    def wait(_: float) -> None:
        if not next(ended):
            raise subprocess.TimeoutExpired("load", 1.0)

    seen = admitted.wait_for(SimpleNamespace(wait=wait), daemon, 3)
    seen.append(admitted.Counted.now(daemon, 3))
    assert [one.at_ns // 10**9 for one in seen] == [10, 11, 12, 13]
    assert admitted.waits_within(seen, 10.5e9) == [2, 0, None]
    assert admitted.waits_within(seen, 0.0) == [3, 0, None]
    # Warm after the last question but one: it is not known.
    assert admitted.waits_within(seen, 12.5e9) is None
    # What is counted after the first task's last job is not of the jobs.
    assert admitted.waits_within(seen, 10.5e9, 12.5e9) == [1, 0, None]
    assert admitted.waits_within(seen, 10.5e9, 11.5e9) is None


def test_a_program_that_does_not_end_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticks = itertools.count(0, 50)
    clock = SimpleNamespace(monotonic=ticks.__next__, monotonic_ns=lambda: 0)
    monkeypatch.setattr(admitted, "time", clock)

    def wait(_: float) -> None:
        raise subprocess.TimeoutExpired("load", 1.0)

    with pytest.raises(subprocess.TimeoutExpired):
        admitted.wait_for(SimpleNamespace(wait=wait), card(Plain()), 1)


class Takes(Writes):
    """Takes as long as programs took in a run of 388 s on an H200, where 80 % counted.

    There a pair of sets began 0.7 s after the one before; tasks started within 0.3 s and 0.2 s
    more for each but the first; sets without promises took four times as long as their jobs' times.
    """

    clock: ClassVar[list[float]] = [0.0]
    tasks: ClassVar[int] = 0

    def wait_working(self) -> None:
        Takes.clock[0] += 0.7

    def begin(self, command: list[str], *words: Any, **__: Any) -> Takes:
        super().begin(command, *words)
        Takes.tasks += 1
        _, period, _, jobs, _ = command[command.index("rt") + 1 :]
        seconds = int(jobs) * int(period) / 1e6
        self.ends_at = Takes.clock[0] + 0.1 + 0.2 * Takes.tasks + seconds
        self.ends_at += 3 * seconds if seconds < 3 else 0.0
        return self

    def wait(self, *_: Any) -> None:
        Takes.tasks = 0
        Takes.clock[0] = max(Takes.clock[0], self.ends_at)


def test_most_of_the_time_of_a_long_run_counts(
    ran: Ran,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, ticks = Takes.clock, itertools.count()
    monkeypatch.setattr(
        admitted,
        "time",
        SimpleNamespace(monotonic=lambda: clock[0], monotonic_ns=ticks.__next__),
    )
    monkeypatch.setattr(admitted, "Programs", Takes)
    for seed in ("1", "2", "3"):
        monkeypatch.setenv("ADMITTED_SEED", seed)
        hour = ran(f"06000{seed}", soak_s=510)[-2]
        assert hour["detail"]["own_percent"] > 88


def test_interrupts_of_the_gpu_are_summed_over_the_cpus() -> None:
    text = (
        "           CPU0       CPU1\n"
        " 40:        100         20   PCI-MSI 65536-edge      nvme0q1\n"
        " 42:       1000        200   PCI-MSI 131072-edge      nvidia\n"
        " 43:          3          4   PCI-MSI 131073-edge      nvidia\n"
    )
    assert overheads.interrupts(text) == 1207


def test_the_case_overheads_keeps_each_value_and_names_what_is_missing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = {
        "overheads": {"sch": 0.2},
        "distributions": {"sch": {"median": 0.2}},
        "unseen": {"permit": "elsewhere", "krel": "no thread", "th": "no interrupt"},
        "notes": [],
    }
    monkeypatch.setattr(overheads, "Product", Plain)
    monkeypatch.setattr(overheads, "Programs", Writes)
    monkeypatch.setattr(overheads, "measured", lambda *_: found)
    monkeypatch.setattr(overheads, "permit_us", lambda _: 14.0)
    clock = SimpleNamespace(monotonic_ns=lambda: 1, sleep=lambda _: None)
    monkeypatch.setattr(overheads, "time", clock)
    setup = Setup(tmp_path, tmp_path, tmp_path)
    overheads.case_overheads(setup)
    values = {line["case"]: line["stock"] for line in setup.results}
    assert values["overhead: sch"] == 0.2
    assert values["overhead: permit"] == 14.0
    assert setup.results[-1]["rtxg"] == 1
    assert setup.results[-1]["detail"]["unseen"] == {"krel": "no thread", "th": "no interrupt"}
