# SPDX-License-Identifier: MIT
"""The case `figure12` of tests/gpu without a GPU, and bench/figure12.py, which shows it beside the module's."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "gpu"))

from cases import figure12  # noqa: E402
from harness import Setup  # noqa: E402

#: frames a second of the four in each way, as a card had them
RATES = {
    "shares": [45.0, 15.0, 7.5, 7.5],
    "shares, CPU load": [6.0, 6.0, 5.0, 5.0],
    "shares and FIFO, CPU load": [44.0, 14.0, 7.0, 7.0],
    "priority": [50.0, 1.0, 1.0, 1.0],
    "null": [20.0, 20.5, 19.5, 20.0],
    "null, CPU load": [6.0, 6.0, 6.0, 6.0],
}
LETTERS = {way.letter: RATES[way.name] for way in figure12.WAYS}


class Clock:
    """Time that goes on only where the case waits; the detectors work meanwhile."""

    now = 1_000_000_000

    @classmethod
    def monotonic_ns(cls) -> int:
        return cls.now

    @classmethod
    def sleep(cls, seconds: float) -> None:
        Machine.work(seconds)
        cls.now += int(seconds * 1e9)


class Machine:
    """What is set, and frames that come accordingly."""

    said: ClassVar[list[str]] = []  # of `rtxg set`
    vgpus: ClassVar[dict[str, dict[str, Any]]] = {}
    up = False  # the daemon
    loads = 0  # that run now
    outputs: ClassVar[list[Path]] = []
    fifo: ClassVar[set[str]] = set()  # pids
    due: ClassVar[list[float]] = []  # time of each one's next frame

    @classmethod
    def way(cls) -> str:
        """What the machine is in now, by what was asked of it."""
        load = ", CPU load" if cls.loads else ""
        if not cls.up:
            return f"null{load}"
        if cls.vgpus["d0"].get("priority", 1) > 1:
            return f"priority{load}"
        return f"shares{' and FIFO' if cls.fifo else ''}{load}"

    @classmethod
    def work(cls, seconds: float) -> None:
        """Each writes its frames: the time of the end, and how long it took in ms."""
        rates = RATES.get(cls.way(), [1.0] * 4)
        end = Clock.now + seconds * 1e9
        for i, out in enumerate(cls.outputs):
            with out.open("a") as file:
                while cls.due[i] < end:
                    cls.due[i] = max(cls.due[i], Clock.now) + 1e9 / rates[i]
                    file.write(f"{cls.due[i]:.0f} {1e3 / rates[i]}\n")


class Product:
    """The daemon, as the case uses it."""

    def __init__(self, setup: Setup) -> None:
        self.process: object | None = None

    def start(self) -> None:
        assert not Machine.up
        Machine.up, self.process = True, self

    def stop(self) -> None:
        Machine.up, self.process = False, None

    def __exit__(self, *_: object) -> None:
        self.stop()

    def vgpu(self, name: str, **values: Any) -> None:
        assert Machine.up
        Machine.vgpus.setdefault(name, {}).update(values)

    def rtxg(self, *words: str) -> str:
        assert Machine.up
        assert words[:2] == ("set", "-p")
        assert words[3] == "--cpu-policy"
        Machine.said.append(" ".join(words))
        (Machine.fifo.add if words[4] == "fifo" else Machine.fifo.discard)(words[2])
        return ""

    def pids(self) -> list[int]:
        return [99] if Machine.up else []


class Programs:
    """The detectors and the load, as the case starts them."""

    def __init__(self, setup: Setup) -> None:
        self.outputs = Machine.outputs

    def __enter__(self) -> Programs:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin(self, command: list[str], out: Path, *_: object, said: Path) -> SimpleNamespace:
        assert command[1].endswith("torch_load.py")
        assert command[2] == "detect"
        out.write_text("")
        Machine.outputs.append(out)
        Machine.due.append(Clock.now)
        return SimpleNamespace(pid=100 + len(Machine.outputs))

    def wait_working(self) -> None:
        pass

    def start(self, command: list[str], _: None) -> Any:
        assert command[0].endswith("hackload")
        Machine.loads += 1
        return SimpleNamespace(kill=self.end_load, wait=lambda _: None)

    def end_load(self) -> None:
        Machine.loads -= 1


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Setup]:
    """A machine with a GPU that is not there."""
    for name, fresh in {"said": [], "vgpus": {}, "up": False, "loads": 0, "outputs": [], "fifo": set(), "due": []}.items():
        monkeypatch.setattr(Machine, name, fresh)
    monkeypatch.setattr(Clock, "now", 1_000_000_000)
    monkeypatch.setattr(figure12, "time", Clock)
    monkeypatch.setattr(figure12, "Product", Product)
    monkeypatch.setattr(figure12, "Programs", Programs)
    monkeypatch.setattr(figure12, "can_fifo", lambda: True)
    count = itertools.count()
    monkeypatch.setattr(figure12, "threads", lambda pid: {pid: ("t", "other", 0, float(next(count)))})
    made = Setup(tmp_path, tmp_path, tmp_path, {1000: 1000})
    made.current = "figure12"
    yield made
    assert Machine.loads == 0
    assert not Machine.up


@pytest.mark.parametrize("quick", [True, False])
def test_the_case_measures_each_way_under_what_belongs_to_it(setup: Setup, quick: bool) -> None:
    """What it found of each is what the machine did in it."""
    setup.quick = quick
    figure12.case_figure12(setup)
    own = setup.results[-1]
    assert own["case"].startswith("four detectors 60/20/10/10: frame rate kept")
    for name, rates in RATES.items():
        assert own["detail"]["frames_per_s"][name] == pytest.approx(rates, rel=0.15), name
    assert own["met"]
    assert len(own["detail"]["windows"]["null"]) == (1 if quick else 2)
    assert sum("fifo --cpu-priority 10" in words for words in Machine.said) == 4 * (1 if quick else 2)
    assert set(setup.plots["figure12"]) == set(RATES)


def test_the_case_says_of_each_of_the_six_whether_it_is_as_in_the_paper(setup: Setup) -> None:
    """A line for each: (a) to (e), and the case's own of (f)."""
    setup.quick = True
    figure12.case_figure12(setup)
    letters = [line["case"][11] for line in setup.results if line["case"].startswith("figure 12 (")]
    assert letters == list("abcde")
    for line in setup.results[:-1]:
        assert (line["stock"] is None) != (line["rtxg"] is None)
        assert (line["met"] is None) == (line["aim"] == "-")


@pytest.mark.parametrize(
    ("letter", "rates"),
    [
        ("a", [20.0, 20.0, 20.0, 15.0]),
        ("b", [17.0, 19.0, 19.0, 19.0]),
        ("c", [25.0, 25.0, 25.0, 25.0]),
        ("f", [20.0, 14.0, 7.0, 7.0]),
    ],
)
def test_what_is_not_as_in_the_paper_misses_its_aim(letter: str, rates: list[float]) -> None:
    """Each of those that have an aim, and none else."""
    assert all(claim.met is not False for claim in figure12.claims(LETTERS))
    missed = [c.letter for c in figure12.claims(LETTERS | {letter: rates}) if c.met is False]
    assert missed == [letter]


def test_detectors_that_stood_still_are_no_success() -> None:
    """Nothing is divided by zero, and nothing counts as met."""
    found = figure12.claims({letter: [0.0] * 4 for letter in "abcdef"})
    assert [claim.met for claim in found] == [False, False, False, None, None, False]


# ---- bench/figure12.py


def side_by_side(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """The command."""
    return subprocess.run([sys.executable, ROOT / "bench/figure12.py", *words], capture_output=True, text=True, check=False)


@pytest.fixture
def records(tmp_path: Path) -> tuple[Path, Path]:
    """One of a card, one of QEMU."""
    card, vm = tmp_path / "card.json", tmp_path / "result.json"
    card.write_text(json.dumps([{"case": "other", "detail": {}}, {"detail": {"frames_per_s": RATES}}]))
    values = {f"figure12_{letter}_detector_{i}": {"value": x, "unit": "frames_per_s"}
              for letter, rates in LETTERS.items() for i, x in enumerate(rates)}
    vm.write_text(json.dumps({"kernel": "6.1", "values": values}))
    return card, vm


def test_both_are_shown_side_by_side(records: tuple[Path, Path]) -> None:
    """Six lines of each, in the paper's order."""
    card, vm = records
    done = side_by_side("--card", card, "--vm", vm)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("  (")]
    assert [line[3] for line in lines] == list("abcdef") * 2
    assert "rate-monotonic" in done.stdout
    assert " 97.8 %  >= 95 met" in lines[5]


def test_an_aim_that_is_missed_is_the_exit_status(records: tuple[Path, Path]) -> None:
    """Of the card or of QEMU."""
    card, vm = records
    vm.write_text(vm.read_text().replace('"figure12_f_detector_0": {"value": 44.0', '"figure12_f_detector_0": {"value": 4.0'))
    done = side_by_side("--card", card, "--vm", vm)
    assert done.returncode == 1
    assert "NOT MET" in done.stdout


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"values": {"figure12_a_detector_0": {"value": 1}}}'])
def test_a_record_without_the_six_is_refused(records: tuple[Path, Path], text: str) -> None:
    """By its name."""
    card, vm = records
    vm.write_text(text)
    done = side_by_side("--card", card, "--vm", vm)
    assert done.returncode == 2
    assert str(vm) in done.stderr
