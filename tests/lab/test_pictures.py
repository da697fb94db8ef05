# SPDX-License-Identifier: MIT
"""What the pictures show, read from the drawing instead of from its pixels."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rtxg import Task, plots

pytest.importorskip("rtxg.core", reason="the scheduler core could not be compiled")

from rtxg.simulate import TaskTrace, Trace

TASK = Task("any", 1, 9000, 9000)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Draws a schedule of so many tasks; the third one misses its second deadline."""
    figures: list[Figure] = []
    save = Figure.savefig

    def keep(figure: Figure, *words: object, **more: object) -> None:
        figures.append(figure)
        save(figure, *words, **more)

    monkeypatch.setattr(Figure, "savefig", keep)

    def draw(count: int) -> Axes:
        trace = Trace(tasks={f"t{i:03}": TaskTrace(TASK) for i in range(count)})
        for i, name in enumerate(trace.tasks):
            trace.spans.append((i % 2, 100.0 * i, 100.0 * i + 90, name))
            trace.jobs += [(name, 0.0, 9e3, False), (name, 9e3, 18e3, i == 2)]
        trace.held.append((1, 200.0, 400.0, "t002"))
        plots.schedule(trace, tmp_path / "schedule.png", 0.0, 50e3)
        (axes,) = figures.pop().axes
        return axes

    return draw


def marks(axes: Axes, kind: str) -> int:
    """How many of that mark there are."""
    return sum(len(line.get_xdata()) for line in axes.lines if line.get_marker() == kind)


@pytest.mark.parametrize("count", [3, 20, 38, 60])
def test_a_schedule_has_gpus_releases_deadlines_and_misses(drawn, count: int) -> None:
    axes = drawn(count)
    rows = [label.get_text() for label in axes.get_yticklabels()]
    assert rows[:4] == ["CPU 0", "CPU 1", "GPU 0", "GPU 1"]
    assert rows[4:] == [f"t{i:03}" for i in range(count)]
    assert (marks(axes, "^"), marks(axes, "v"), marks(axes, "x")) == (2 * count, 2 * count, 1)
    named = [text.get_text() for text in axes.get_legend().get_texts()]
    assert named[-4:] == ["interrupts", "release", "deadline", "missed"]
    assert axes.get_title() == ""


def test_a_schedule_of_very_many_tasks_shows_those_that_missed(drawn) -> None:
    axes = drawn(61)
    rows = [label.get_text() for label in axes.get_yticklabels()]
    assert rows[4:] == ["t002"]
    assert marks(axes, "x") == 1
    assert axes.get_title() == "without the rows of 60 tasks, 0 of which missed a deadline"


def test_the_pieces_of_a_schedule_are_few(drawn) -> None:
    """As many as colours on each CPU: one for each of 42 000 spans took seven minutes."""
    axes = drawn(400)
    assert len(axes.collections) <= 2 * 20 + 1
    assert sum(len(piece.get_paths()) for piece in axes.collections) == 400 + 1
