# SPDX-License-Identifier: MIT
"""Campaigns: Table IV, counts that do not depend on workers or on being stopped, graphs."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import numpy as np
import pytest

from rtxg.campaign import (
    ALL_EXPERIMENTS,
    CALLS,
    METHODS,
    SPEEDUPS,
    Experiment,
    Graph,
    Results,
    Settings,
    chunks,
    figure,
    run,
    run_chunk,
)
from rtxg.overheads import Interrupts
from rtxg.plots import schedulability

HEAVY = Experiment(2, 5)


def counts(results, experiment=HEAVY):
    return [(g.x.tolist(), g.tested.tolist(), g.schedulable.tolist()) for g in (results.graph(experiment, r) for r in SPEEDUPS)]


def test_table_iv():
    """First figure of each row of Table IV."""
    firsts = {(0, 1): 95, (1, 1): 105, (2, 1): 115, (0, 4): 125, (2, 4): 145, (0, 8): 155, (2, 16): 205,
              (3, 1): 215, (5, 1): 235, (3, 4): 245, (5, 16): 325}  # fmt: skip
    for (distribution, speedup), number in firsts.items():
        assert Experiment(distribution, 0).figure(speedup) == number
        assert figure(number + 7) == (Experiment(distribution, 7), speedup)
    assert sorted(e.figure(r) for e in ALL_EXPERIMENTS for r in SPEEDUPS) == list(range(95, 335))
    assert figure(5) == (HEAVY, 1)
    assert figure(6) == (HEAVY, 16)
    with pytest.raises(ValueError, match="94"):
        figure(94)


def test_counts_do_not_depend_on_interruption(tmp_path):
    settings = Settings(sets=24, chunk=10, step=6.0)
    work = list(chunks(settings, [HEAVY]))
    whole = Results(tmp_path / "whole.sqlite", settings)
    run(whole, work)
    partly = Results(tmp_path / "partly.sqlite", settings)
    run(partly, work[:5])
    partly.close()
    partly = Results(tmp_path / "partly.sqlite", settings)
    assert partly.done() == set(work[:5])
    seen = []
    run(partly, work[::-1], progress=seen.append)
    assert len(seen) == len(work) - 5
    assert counts(whole) == counts(partly)
    assert sum(counts(whole)[0][1]) == 24 * len(settings.caps)


def test_storing_a_chunk_twice_counts_it_once(tmp_path):
    settings = Settings(sets=20, step=6.0)
    results = Results(tmp_path / "r.sqlite", settings)
    found = run_chunk(settings, next(chunks(settings, [HEAVY])))
    results.add(found)
    before = counts(results)
    results.add(found)
    assert counts(results) == before


def test_other_settings_are_refused(tmp_path):
    Results(tmp_path / "r.sqlite", Settings(sets=20)).close()
    with pytest.raises(ValueError, match="other settings"):
        Results(tmp_path / "r.sqlite", Settings(sets=21))


@pytest.mark.slow
def test_two_dask_workers_count_the_same(tmp_path):
    pytest.importorskip("dask.distributed", reason="Dask is not installed")
    settings = Settings(sets=40, chunk=20, step=4.0)
    work = list(chunks(settings, [HEAVY]))
    alone, shared = (Results(tmp_path / name, settings) for name in ("alone", "shared"))
    run(alone, work)
    run(shared, work, workers=2)
    assert counts(alone) == counts(shared)


def test_workers_that_do_not_start_are_named_in_one_line(tmp_path, monkeypatch):
    """Where there is no /dev/shm, say."""
    distributed = pytest.importorskip("dask.distributed", reason="Dask is not installed")

    def refused(**_):
        raise RuntimeError("Nanny failed to start.") from FileNotFoundError(2, "No such file")

    monkeypatch.setattr(distributed, "LocalCluster", refused)
    settings = Settings(sets=20, chunk=20, step=6.0)
    message = r"2 worker processes do not start \(.*No such file\)"
    with (
        contextlib.closing(Results(tmp_path / "r.sqlite", settings)) as results,
        pytest.raises(OSError, match=message),
    ):
        run(results, list(chunks(settings, [HEAVY])), workers=2)


@pytest.mark.slow
def test_workers_end_silently_while_their_heartbeats_wait(tmp_path, monkeypatch, capfd):
    """A worker reports to the scheduler all the time; here each is sure to do so when it ends."""
    pytest.importorskip("dask.distributed", reason="Dask is not installed")
    from distributed import Scheduler

    waiting, both = set(), threading.Event()

    async def never_answered(address, **said):
        waiting.add(address)
        if len(waiting) == 2:
            both.set()
        await asyncio.Event().wait()

    def begin(scheduler, *words, **options):
        begun(scheduler, *words, **options)
        scheduler.handlers["heartbeat_worker"] = never_answered

    begun = Scheduler.__init__
    monkeypatch.setattr(Scheduler, "__init__", begin)
    settings = Settings(sets=20, chunk=20, step=6.0)
    with contextlib.closing(Results(tmp_path / "r.sqlite", settings)) as results:
        run(results, list(chunks(settings, [HEAVY])), workers=2, progress=lambda sets: both.wait())
    assert len(waiting) == 2
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_workers_of_another_scheduler_count_the_same(tmp_path):
    distributed = pytest.importorskip("dask.distributed", reason="Dask is not installed")
    settings = Settings(sets=40, chunk=20, step=6.0)
    work = list(chunks(settings, [HEAVY]))
    alone, shared = (Results(tmp_path / name, settings) for name in ("alone", "shared"))
    run(alone, work)
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        run(shared, work, scheduler=cluster.scheduler_address)
    assert counts(alone) == counts(shared)


def graph_of(shares, tested=100):
    x = np.arange(len(shares), dtype=float)
    ok = np.zeros((len(shares), len(METHODS), len(CALLS)), int)
    ok[:, 0, 0] = [round(s * tested) for s in shares]
    return Graph(HEAVY, 16, x, np.full(len(shares), tested), ok)


def test_sustained_utilisation_by_hand():
    assert graph_of([1, 1, 0.8, 0]).sustained(Interrupts.KLMIRQD, 1) == pytest.approx(1.5)
    assert graph_of([0.5, 0]).sustained(Interrupts.KLMIRQD, 1) is None
    assert graph_of([1, 1]).sustained(Interrupts.KLMIRQD, 1) is None
    assert graph_of([1, 0], tested=10).curve(Interrupts.KLMIRQD, 1)[0].size == 0


def test_graphs_are_drawn(tmp_path):
    schedulability(graph_of([1, 0.9, 0.2]), tmp_path / "g.svg")
    text = (tmp_path / "g.svg").read_text()
    assert text.count("<path") > 20
    schedulability(graph_of([]), tmp_path / "empty.png")
    assert (tmp_path / "empty.png").stat().st_size > 1000


def test_figure_6_of_the_paper(tmp_path):
    """At 90 % schedulability, i = 6, R = 16 the paper reads 65 CPUs for klmirqd and 55 for the others:
    the last bins that reach it.  klmirqd's curve crosses 90 % at the bin itself, and a bin of these few
    sets is off by a few percent, so its crossing is compared instead."""
    settings = Settings(sets=1500)
    results = Results(tmp_path / "r.sqlite", settings)
    run(results, list(chunks(settings, [HEAVY])))
    graph = results.graph(HEAVY, 16)
    assert graph.sustained(Interrupts.KLMIRQD, 6) == pytest.approx(65, abs=1.25)
    assert graph.last_bin(Interrupts.PAI, 6) == graph.last_bin(Interrupts.SLIH, 6) == 55
    for calls in CALLS:
        assert (graph.schedulable[:, METHODS.index(Interrupts.PAI), CALLS.index(calls)]
                <= graph.schedulable[:, METHODS.index(Interrupts.SLIH), CALLS.index(calls)]).all()  # fmt: skip


def test_bins_are_centred_on_multiples_of_their_width(tmp_path):
    settings = Settings(sets=50, step=6.0)
    results = Results(tmp_path / "r.sqlite", settings)
    run(results, list(chunks(settings, [HEAVY])))
    graph = results.graph(HEAVY, 16)
    assert (graph.x % 2.5 == 0).all()
    assert graph_of([1, 1, 0.8, 0]).last_bin(Interrupts.KLMIRQD, 1) == 1
    assert graph_of([0.5, 0]).last_bin(Interrupts.KLMIRQD, 1) is None
