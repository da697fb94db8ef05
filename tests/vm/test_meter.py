# SPDX-License-Identifier: MIT
"""Three meters of priority inversions, held against each other: BPF's, the module's log, and the
simulator's.

The guest's time is counted in instructions, so that all three see the same in each run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from rtxgvm import meters  # noqa: E402

from rtxg.inversions import KINDS, told  # noqa: E402
from rtxg.model import Platform, Task, TaskSet  # noqa: E402
from rtxg.overheads import Overheads  # noqa: E402
from rtxg.simulate import Handling, Options, simulate  # noqa: E402

pytestmark = pytest.mark.slow

#: of one inversion, ns: what BPF sees of a thread before and after the module does, and of a
#: handler
EACH = 30_000
HANDLING = {
    "kept": Handling.SLIH, "high": Handling.THREAD_HIGH, "low": Handling.THREAD_LOW,
    "owner": Handling.KLMIRQD, "aware": Handling.PAI,
}  # fmt: skip


@pytest.fixture(scope="module")
def live() -> dict[str, meters.Run]:
    if not shutil.which("qemu-system-x86_64"):
        pytest.skip("qemu-system-x86_64 is not installed")
    done = subprocess.run(
        [HERE / "run", "--slow", "6.1", "i_meter"], capture_output=True, text=True, check=False
    )
    found = meters.runs(done.stdout)
    if "SKIP rtxg-irq" in done.stdout:
        pytest.skip("rtxg-irq was not built")
    assert done.returncode == 0 and set(found) == {
        *(f"job_{name}" for name in ("kept", "high", "owner", "aware")), "owner_low", "owner_owner"
    }, done.stdout[-4000:] + done.stderr  # fmt: skip
    if os.environ.get("RTXG_METER_LOG"):
        Path(os.environ["RTXG_METER_LOG"]).write_text(done.stdout)
    return found


def one(document: dict, owner: int, kind: str) -> dict:
    """The owner's inversions of one kind; an owner without any is not listed."""
    rows = [row for row in document["owners"] if row["owner"] == owner]
    assert len(rows) == len(document["owners"]) <= 1
    return rows[0][kind] if rows else {"count": 0, "sum_ns": 0, "longest_ns": 0}


def simulated(name: str) -> dict:
    """The same two threads in the simulator; the owner is number 1."""
    who, _, how = name.partition("_")
    if who == "job":
        calls, kernel, bottom, owner, busy, work = 12, 3000, 1000, 10, 60, 40_000
    else:
        # the driver's thread sleeps, and does next to nothing
        calls, kernel, bottom, owner, busy, work = 1, 5000, 10, 80, 60, 100_000
    gpu_time = Fraction(calls * (kernel + bottom + 5))
    tasks = [
        Task(
            "owner",
            Fraction(100),
            Fraction(1_000_000),
            gpu_calls=calls,
            gpu_time=gpu_time,
            priority=owner,
        ),
        Task("busy", Fraction(work), Fraction(1_000_000), priority=busy, offset=Fraction(1000)),
    ]
    platform = Platform(cpus=1, clusters=1, gpus=1, scheduler="RM")
    trace = simulate(
        TaskSet(tuple(tasks), platform, name), Options(Fraction(500_000), asynchronous=True, meter=True),
        handling=HANDLING[how], overheads=Overheads(th=Fraction(5), bh=Fraction(bottom)),
    )  # fmt: skip
    return told(trace.metered, 0.5, {"owner": owner, "busy": busy})


NAMES = ("job_kept", "job_high", "job_owner", "job_aware", "owner_low", "owner_owner")


@pytest.mark.parametrize("name", NAMES)
def test_bpf_and_the_modules_log_agree(live: dict[str, meters.Run], name: str) -> None:
    run = live[name]
    log = run.log()
    assert set(log) == set(run.bpf)
    for kind in KINDS:
        bpf, logged = one(run.bpf, run.owner, kind), one(log, run.owner, kind)
        assert logged["count"] == bpf["count"], kind
        assert abs(logged["sum_ns"] - bpf["sum_ns"]) <= EACH * bpf["count"], kind
        assert abs(logged["longest_ns"] - bpf["longest_ns"]) <= EACH, kind


@pytest.mark.parametrize("name", NAMES)
def test_the_simulator_says_what_the_live_kernel_does(
    live: dict[str, meters.Run], name: str
) -> None:
    run = live[name]
    model, log = simulated(name), run.log()
    for kind in ("bottom_halves", "waits"):
        expected, seen = one(model, 1, kind), one(log, run.owner, kind)
        # what the model has no time for: a switch, a hand-over, a tick
        slack = EACH * max(1, seen["count"])
        assert abs(seen["sum_ns"] - expected["sum_ns"]) <= 0.03 * expected["sum_ns"] + slack, (
            kind,
            expected,
            seen,
        )
        if expected["sum_ns"]:
            assert seen["count"] == expected["count"], kind
