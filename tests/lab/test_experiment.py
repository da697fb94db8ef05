# SPDX-License-Identifier: MIT
"""One's own experiments: any axes, generator, test and lock; counts, intervals, files."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from small_sets import task, taskset

from rtxg import TABLE_III, Platform, TaskFileError, TaskSet, analyze, loads
from rtxg.commands import campaign
from rtxg.experiment import Axis, Curve, Experiment, FixedSum, Generator, Outcome, load_experiment
from rtxg.generate import Recipe, Utilizations

EXAMPLE = Path(__file__).resolve().parents[2] / "lab" / "examples" / "experiment.toml"
RECIPE = Recipe(Utilizations("uniform", 0.1, 0.4), (0.5, 0.5))


def light(taskset, point):
    return taskset.utilization <= 1


def two_halves(point, random):
    """A generator of one's own: two tasks of a random share each."""
    use = int(random.integers(1, 10))
    return TaskSet((task("a", use, 10), task("b", int(point["b"]), 10)), Platform(1))


def test_a_grid_of_ones_own():
    found = Experiment(
        x=Axis("b", [1, 5, 9]), generator=two_halves, curves={"light": light, "all": lambda *_: True}, sets=40
    ).run()
    share = found.share("light")[0]
    assert share[0] > share[1] > share[2]
    assert (found.share("all") == 1).all()
    assert [row["passed"] for row in found.rows() if row["curve"] == "all"] == [40, 40, 40]
    again = Experiment(x=Axis("b", [1, 5, 9]), generator=two_halves, curves={"light": light}, sets=40).run()
    assert (again.passed["light"] == found.passed["light"]).all()  # whatever else was asked


def test_a_frame_has_a_row_for_each_curve_and_point():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed (tools/setup check)")
    found = Experiment(
        x=Axis("b", [1, 9]),
        y=Axis("c", [3, 4]),
        generator=two_halves,
        curves={"light": light, "all": lambda *_: True},
        sets=20,
    ).run()
    frame = found.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert len(frame) == 8
    every = frame[frame.curve == "all"]
    assert list(zip(every.b, every.c, every.passed, strict=True)) == [
        (1, 3, 20),
        (9, 3, 20),
        (1, 4, 20),
        (9, 4, 20),
    ]
    light_rows = frame[frame.curve == "light"]
    assert list(light_rows.share) == found.share("light").ravel().tolist()
    assert ((light_rows.low <= light_rows.share) & (light_rows.share <= light_rows.high)).all()


def experiment_of_ones_own(**more):
    """With functions that cannot be sent to another process by name."""
    return Experiment(
        x=Axis("b", [1, 5, 9]), generator=two_halves, curves={"light": lambda t, _: t.utilization <= 1} | more, sets=23
    )


def test_any_number_of_workers_finds_the_same(monkeypatch):
    monkeypatch.setattr("rtxg.experiment.SETS_A_PIECE", 5)
    alone, shared = experiment_of_ones_own().run(), experiment_of_ones_own().run(workers=3)
    assert alone.to_json() == shared.to_json()
    assert 0 < alone.passed["light"].sum() < 69


def test_an_error_in_a_worker_arrives_and_a_worker_that_dies_is_named():
    def wrong(taskset, point):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        experiment_of_ones_own(wrong=wrong).run(workers=2)
    with pytest.raises(OSError, match="a worker died"):
        experiment_of_ones_own(dies=lambda *_: os._exit(3)).run(workers=2)
    with pytest.raises(ValueError, match="0 workers"):
        experiment_of_ones_own().run(workers=0)


SCRIPT = """
import sys, threading
import numpy as np
from rtxg import Platform, Task, TaskSet
from rtxg.experiment import Axis, Experiment

threading.Thread(target=sys.stdin.read, daemon=True).start()


def one(point, random):
    return TaskSet([Task("a", int(random.integers(1, 9)), 10)], Platform(1))


print("begins")
for again in range(3):
    found = Experiment(Axis("b", [1, 2]), one, {"light": lambda t, _: t.utilization < 0.5}, sets=80).run(workers=2)
    print(found.passed["light"].sum())
"""


def test_only_workers_with_work_left_are_killed(monkeypatch):
    """To kill, loky reads of every process of the machine: once it waited there for minutes."""
    import loky

    killed = []
    end = loky.ProcessPoolExecutor.shutdown

    def shutdown(pool, wait=True, kill_workers=False):
        killed.append(kill_workers)
        end(pool, wait, kill_workers)

    monkeypatch.setattr(loky.ProcessPoolExecutor, "shutdown", shutdown)

    def wrong(*_):
        raise ArithmeticError("mine")

    experiment_of_ones_own().run(workers=2)
    with pytest.raises(ArithmeticError):
        experiment_of_ones_own(wrong=wrong).run(workers=2)
    assert killed == [False, True]


def test_workers_start_beside_a_thread_that_waits_for_input(tmp_path):
    """As a program without the usual guard of its main part, too: that runs once."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    program = subprocess.Popen([sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        program.wait(timeout=300)
        told = program.stdout.read().split()
    finally:
        program.kill()
        program.communicate()
    assert told[0] == "begins"
    assert len(told) == 4
    assert len(set(told[1:])) == 1


def test_a_negative_seed_is_refused(capsys, tmp_path):
    for chosen in (["--figure", "6"], ["--file", str(EXAMPLE)]):
        with pytest.raises(SystemExit) as ended:
            campaign.main([*chosen, "--seed", "-1", "--out", str(tmp_path)])
        assert ended.value.code == 1
        assert "--seed is -1; it must be 0 or more" in capsys.readouterr().err


def test_intervals_and_weights_by_hand():
    axis = Axis("x", [1, 2])
    outcome = Outcome(
        "t", axis, None, 100, {"c": np.array([[100, 50]])}, np.array([[100.0, 200.0]]), {"c": np.array([[100.0, 80.0]])}
    )
    low, high = outcome.confidence("c")
    assert (round(high[0, 0], 3), round(low[0, 0], 3)) == (1.0, 0.963)
    assert (round(low[0, 1], 3), round(high[0, 1], 3)) == (0.404, 0.596)
    assert outcome.weighted("c").tolist() == [180 / 300]


@pytest.mark.parametrize("parameter", ["cpus", "calls", "gpu_share", "bh", "gpu_tasks"])
def test_what_a_second_axis_may_vary(parameter):
    values = {"cpus": [2, 4], "calls": [1, 8], "gpu_share": [0.1, 0.9], "bh": [0, 2000], "gpu_tasks": [0.0, 1.0]}[parameter]
    found = Experiment(
        x=Axis("utilization", [1.0, 1.6]),
        y=Axis(parameter, values),
        generator=Generator(Platform(2, gpus=1), RECIPE, calls=2),
        curves={"slih": Curve("slih", suspensions="oblivious")},
        sets=15,
    ).run()
    low, high = found.weighted("slih")
    assert low < high if parameter == "cpus" else low > high


@pytest.mark.parametrize("second", [None, Axis("c", [3, 4])])
def test_curves_that_coincide_are_all_seen(second):
    """Each upon a broader one: the first of two was hidden."""
    found = Experiment(
        x=Axis("b", [1, 5, 9]), y=second, generator=two_halves, curves={n: light for n in "abc"}, sets=4
    ).run()
    (axes,) = found.plot().axes
    lines = axes.lines
    assert [line.get_label() for line in lines] == ["a", "b", "c"]
    for below, above in itertools.pairwise(lines):
        assert list(below.get_ydata()) == list(above.get_ydata())
        assert below.get_linewidth() > above.get_linewidth() + 1
        assert below.get_markersize() > above.get_markersize()
        assert below.get_marker() != above.get_marker()


def test_fixed_sums():
    make = FixedSum(Platform(4, gpus=1), RECIPE, tasks=9)
    made = make({"utilization": 2.5}, np.random.Generator(np.random.PCG64(1)))
    assert len(made) == 9
    assert float(made.utilization) == pytest.approx(2.5, abs=0.001)
    assert sum(t.uses_gpu for t in made) == round(4.5)


def test_a_lock_and_a_test_of_ones_own():
    pair = taskset(task("a", 1000, 10_000, 1, 2000), task("b", 500, 10_000, 1, 3000))

    def no_wait(tasks, sections, cpus, gpus):
        assert (sections, cpus, gpus) == ({"a": 2000, "b": 3000}, 2, 1)
        return {t.name: Fraction(7) for t in tasks}

    found = analyze(pair, interrupts="none", lock=no_wait)
    assert [r.blocking for r in found.results] == [7, 7]
    assert found.lock == "no_wait"
    with pytest.raises(ValueError, match="gives no bound for b"):
        analyze(pair, interrupts="none", lock=lambda *_: {"a": 0})
    asked = analyze(pair, interrupts="none", lock="capped", hard_tests={"never": lambda c, t, d, m: False})
    assert asked.clusters[0].hard_tests == {"never": False}
    assert asked.schedulable


def test_the_example_runs(tmp_path, capsys):
    text = EXAMPLE.read_text().replace("sets = 50", "sets = 3").replace("step = 0.5", "step = 1.5")
    (tmp_path / "e.toml").write_text(text)
    assert campaign.main(["--file", str(tmp_path / "e.toml"), "--out", str(tmp_path / "out")]) == 0
    assert "threads, never late" in capsys.readouterr().out
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert {row["curve"] for row in found["rows"]} == {"standard Linux", "threads", "threads, never late"}
    assert (tmp_path / "out" / "graph.png").stat().st_size > 1000


def test_functions_are_named_in_the_file(tmp_path):
    (tmp_path / "mine_for_rtxg.py").write_text(
        "from rtxg import Platform, Task, TaskSet\n"
        "def make(point, random):\n    return TaskSet((Task('a', int(point['share']), 10),), Platform(1))\n"
        "def test(taskset, point):\n    return taskset['a'].cost < 5\n"
    )
    path = tmp_path / "e.toml"
    text = (
        'sets = 2\n[generator]\nfunction = "mine_for_rtxg:make"\n[x]\nparameter = "share"\nvalues = [1, 9]\n'
        '[[curve]]\nname = "mine"\ntest = "mine_for_rtxg:test"\n'
    )
    path.write_text(text)
    assert load_experiment(path).run().share("mine").tolist() == [[1.0, 0.0]]
    path.write_text(text.replace("mine_for_rtxg:make", "mine_for_rtxg:nothing"))
    with pytest.raises(TaskFileError, match=r"e\.toml:3: function is 'mine_for_rtxg:nothing'"):
        load_experiment(path)


def of_a_fixed_number(tmp_path, more=""):
    """The example with RandFixedSum, as a file."""
    text = EXAMPLE.read_text().replace('utilizations = ["uniform", 0.1, 0.4]', "tasks = 6")
    path = tmp_path / "e.toml"
    path.write_text(text.replace("sets = 50", "sets = 4").replace("step = 0.5", "step = 3") + more)
    return path


def test_a_file_gives_the_number_of_tasks(tmp_path):
    drawn = []
    found = load_experiment(
        of_a_fixed_number(tmp_path, '[y]\nparameter = "tasks"\nvalues = [5, 9]\n')
    )
    for _, _, point in found.points():
        made = found.generator(point, np.random.Generator(np.random.PCG64(1)))
        drawn.append((len(made), round(float(made.utilization), 2), point["utilization"]))
    assert drawn == [(5, 0.5, 0.5), (5, 3.5, 3.5), (9, 0.5, 0.5), (9, 3.5, 3.5)]
    assert (
        len(
            load_experiment(of_a_fixed_number(tmp_path)).generator(
                {"utilization": 2}, np.random.default_rng(1)
            )
        )
        == 6
    )


def test_a_point_changes_sets_of_a_fixed_number():
    make = FixedSum(Platform(4, gpus=1), RECIPE, tasks=8)
    found = [
        make({"utilization": 2, "gpu_tasks": share}, np.random.default_rng(1))
        for share in (0.0, 1.0)
    ]
    assert [sum(t.uses_gpu for t in one) for one in found] == [0, 8]
    half, most = (
        make({"utilization": 2, "gpu_share": share}, np.random.default_rng(1))
        for share in (0.5, 0.9)
    )
    assert sum(t.gpu_time for t in half) < sum(t.gpu_time for t in most)


@pytest.mark.parametrize(
    ("make", "point", "message"),
    [
        (Generator, {"tasks": 5}, "FixedSum takes their number"),
        (Generator, {"cpus": 2.5}, r"cpus is 2\.5; it must be a whole number"),
        (FixedSum, {"utilization": 9}, "cannot sum to 9"),
        (FixedSum, {"calls": 0}, "calls is 0"),
    ],
)
def test_what_a_generator_cannot_do_is_said_with_the_point(make, point, message):
    generator = make(Platform(4, gpus=1), RECIPE, **({"tasks": 5} if make is FixedSum else {}))
    (name,) = point
    one = Experiment(
        x=Axis(name, point.values()), generator=generator, curves={"all": lambda *_: True}, sets=1
    )
    with pytest.raises(ValueError, match=rf"at {name} = [0-9.]+: .*{message}"):
        one.run()


def test_a_generator_that_makes_something_else_is_named():
    with pytest.raises(ValueError, match="the generator gave 5; it must give a TaskSet"):
        Experiment(x=Axis("b", [1]), generator=lambda *_: 5, curves={"light": light}).run()


def test_a_module_that_fails_is_answered_at_its_line(tmp_path):
    (tmp_path / "fails_for_rtxg.py").write_text("raise RuntimeError('not today')\n")
    path = tmp_path / "e.toml"
    path.write_text('[generator]\nfunction = "fails_for_rtxg:make"\n')
    with pytest.raises(
        TaskFileError, match=r"e\.toml:2: .* RuntimeError: not today; write module:function"
    ):
        load_experiment(path)


def test_a_file_names_measured_overheads(tmp_path):
    (tmp_path / "here.json").write_text(json.dumps({"overheads": {"bh": 77, "sch": "2us"}}))
    path = tmp_path / "e.toml"
    text = EXAMPLE.read_text().replace(
        'base = "table-iii"', 'base = "table-iii"\nmeasured = "here.json"'
    )
    path.write_text(text.replace('bh = "60us"\n', ""))
    (curve, *_) = load_experiment(path).curves.values()
    assert (curve.overheads.bh, curve.overheads.sch, curve.overheads.th) == (77, 2, TABLE_III.th)
    path.write_text(text)  # and single values come last
    (curve, *_) = load_experiment(path).curves.values()
    assert (curve.overheads.bh, curve.overheads.sch) == (60, 2)
    problem = loads(
        f'[platform]\ncpus = 1\n[overheads]\nmeasured = "{tmp_path}/here.json"\n[[task]]\nrun = 1\nperiod = 9\n'
    )
    assert problem.overheads.bh == 77
    (tmp_path / "here.json").write_text(json.dumps({"overheads": {"bh": "77 cows"}}))
    with pytest.raises(
        TaskFileError,
        match=r"e\.toml:23: measured: .*here\.json: overhead bh: .* unknown unit 'cows'",
    ):
        load_experiment(path)


def test_options_of_the_figures_are_refused_beside_a_file(tmp_path, capsys):
    path = str(of_a_fixed_number(tmp_path))
    for words in (
        ["--lock", "aware"],
        ["--cpus", "12"],
        ["--overheads", "none"],
        ["--figure", "6"],
        ["--inflate-sections"],
    ):
        with pytest.raises(SystemExit) as ended:
            campaign.main(["--file", path, "--out", str(tmp_path), *words])
        assert ended.value.code == 1
        assert f"{words[0]} is for the figures" in capsys.readouterr().err
    assert (
        campaign.main(["--file", path, "--out", str(tmp_path / "o"), "--sets", "3", "--seed", "9"])
        == 0
    )
    kept = json.loads((tmp_path / "o" / "results.json").read_text())
    assert {row["sets"] for row in kept["rows"]} == {3}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"utilization"', '"magic"', "parameter is 'magic'; use one of utilization"),
        ("step = 0.5", "step = 0", "is no axis of 1 to 10000 values"),
        ("sets = 50", "sets = 0", "sets is 0; it must be a whole number from 1"),
        ('"slih"', '"magic"', "interrupts is 'magic'"),
        ('"uniform", 0.1, 0.4', '"uniform", 0.4, 0.1', "utilisations from 0.4 to 0.1"),
        ('["10ms", "50ms"]', '["10 cows", "50ms"]', "10 cows"),
        ('bh = "60us"', 'bh = "-60us"', "bh"),
        ("calls = 3", "cals = 3", "did you mean 'calls'"),
        (
            'name = "threads"\n',
            'name = "standard Linux"\n',
            "two curves are named 'standard Linux'",
        ),
        ("cpus = 4", "cpus = 4\nclusters = 3", "do not divide"),
        ("hard = true", 'hard = "no"', "47: hard is 'no'; it must be true or false"),
        (
            "calls = 3",
            'calls = 3\nlog-periods = "no"',
            "log-periods is 'no'; it must be true or false",
        ),
        ("to = 4", "to = nan", "is no axis of 1 to 10000 values"),
        ("from = 0.5\nto = 4\nstep = 0.5", "values = [1, inf]", "inf is no finite number"),
        ("from = 0.5\nto = 4\nstep = 0.5", "values = [0]", "utilization is 0; it must be above 0"),
        ('"utilization" ', '"cpus" ', "from: cpus is 0.5; it must be a whole number of 1 or more"),
        ('"utilization" ', '"gpu-share" ', "gpu_share is 1.5; it must be a share from 0 to 1"),
        ('"utilization" ', '"tasks" ', "tasks is 0.5; it must be a whole number of 1 or more"),
        (
            'parameter = "utilization"    # calls, cpus, gpus, gpu_share, tasks, an overhead such as bh\nfrom = 0.5',
            'parameter = "tasks"\nfrom = 2\nto = 4\nstep = 1\n[y]\nparameter = "bh"\nfrom = 1',
            "say tasks = N in [generator] for RandFixedSum",
        ),
        (
            '["uniform", 0.1, 0.4]',
            '["uniform", 0.1, 0.4, 1]',
            "utilizations is ['uniform', 0.1, 0.4, 1]; write",
        ),
        ('["10ms", "50ms"]', '["10ms"]', "periods is ['10ms']; it must be a list of 2"),
        ("[0.5, 0.6]", '"all"', "gpu-tasks is 'all'; it must be a list of 2"),
        (
            "gpu-share = 0.5",
            'gpu-share = "half"',
            "gpu-share is 'half'; it must be a number from 0 to 1",
        ),
        ("calls = 3", "calls = 3\ntasks = 10", "leave out tasks or utilizations"),
        ('base = "table-iii"', 'measured = "nothing.json"', "nothing.json: No such file or"),
        ("seed = 1", "seed = 1\nseed = 2", ":8: Cannot overwrite a value"),
        ("sets = 50", f"sets = {'9' * 5000}", ":6: has a number of thousands of digits"),
        ("sets = 50", f"sets = {'[' * 5000}", ": is nested too deeply"),
    ],
)
def test_bad_files_name_the_line(old, new, message, tmp_path):
    path = tmp_path / "e.toml"
    text = EXAMPLE.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(TaskFileError) as refused:
        load_experiment(path)
    assert message in str(refused.value)
    assert str(refused.value).startswith(f"{path}:")
