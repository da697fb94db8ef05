# SPDX-License-Identifier: MIT
"""The lever's life: its probes, the time until it governs a program, and the state after its death."""

from __future__ import annotations

import re
import time

import numpy as np

from harness import Governor, Loads, Setup, progress, standard_vgpus, stays, three_hogs


def case_probes(setup: Setup) -> None:
    """The abilities of this GPU and driver, as the probes found them."""
    with Governor(setup, probe=True) as gov:
        lines = gov.ctl("probes").splitlines()
    works = [line.split()[1] == "yes" for line in lines]
    setup.record(
        "capabilities that the probes found by their effect",
        f"of {len(works)}",
        None,
        sum(works),
        str(len(works)),
        all(works),
        probes=lines,
    )


def case_guardian(setup: Setup) -> None:
    """kill -9 of the daemon while processes are stopped; death of a stopped process; the kernel log."""
    with Loads(setup) as loads:
        gov = Governor(setup)
        gov.__enter__()
        try:
            standard_vgpus(gov, [34, 33, 33])
            three_hogs(setup, loads, 12, gov)
            out = setup.work / "rt-guardian.txt"
            loads.start(
                [str(setup.bin / "load"), "rt", str(setup.turns[100]), "10000", "1000", "300", str(out)], None, gov, 8
            )
            for _ in range(200):
                if gov.ctl("list").count("stopped") >= 2:
                    break
                time.sleep(0.05)
            time.sleep(0.3)
            listed = gov.ctl("list")
            stopped = [int(line.split()[0]) for line in listed.splitlines() if "stopped" in line]
            assert gov.process
            killed = time.monotonic_ns()
            gov.process.kill()
            gov.process.wait()
        finally:
            gov.__exit__()
        time.sleep(1)
        after = []
        for p, o in zip(loads.processes, loads.outputs, strict=False):
            if p.pid not in stopped:
                continue
            rows = progress(o)
            moved = rows[(rows[:, 0] > killed) & (rows[:, 1] > np.interp(killed, rows[:, 0], rows[:, 1]))]
            after.append((moved[0, 0] - killed) / 1e6 if len(moved) else float("inf"))
        said = gov.log.read_text()
        # A restarted daemon adopts what is there; a stopped process can be killed; nothing is left behind.
        with Governor(setup) as again:
            standard_vgpus(again, [34, 33, 33])
            adopted = again.ctl("list").count("adopted")
            pid = loads.processes[0].pid
            again.ctl("vgpu", "5", "max=1")
            again.ctl("assign", str(pid), "5")
            for _ in range(100):
                if re.search(rf"^{pid} .*stopped", again.ctl("list"), re.M):
                    break
                time.sleep(0.02)
            was_stopped = bool(re.search(rf"^{pid} .*stopped", again.ctl("list"), re.M))
            began = time.monotonic()
            loads.processes[0].kill()
            loads.processes[0].wait(timeout=10)
            died_ms = (time.monotonic() - began) * 1e3
            time.sleep(0.2)
            gone = str(pid) not in [line.split()[0] for line in again.ctl("list").splitlines()]
        loads.wait()
    setup.record(
        "kill -9 of the daemon: last of the stopped processes works again",
        "ms",
        None,
        max(after, default=float("inf")),
        "100",
        bool(after) and max(after) <= 100,
        processes=len(after),
        said=[x for x in said.splitlines() if "guardian:" in x],
    )
    setup.record("contexts adopted by a restarted daemon", "of 3", None, adopted, "3", adopted >= 3)
    setup.record(
        "a stopped process can be killed",
        "ms",
        None,
        died_ms,
        "1000",
        was_stopped and gone and died_ms < 1000,
        was_stopped=was_stopped,
        gone=gone,
    )


def case_discovery(setup: Setup) -> None:
    """How soon a new context is governed: from its first stay on the GPU to its place in a vGPU."""
    with Governor(setup) as gov, Loads(setup) as loads:
        standard_vgpus(gov, [34, 33, 33])
        three_hogs(setup, loads, 5, gov)
        loads.wait()
        time.sleep(0.2)
        gov.stats()
        known: dict[int, int] = {}
        for line in gov.timeline.read_text(encoding="ascii").splitlines():
            w = line.split()
            if w[0] == "C" and w[4] == "1":
                known.setdefault(int(w[2]), int(w[5]))
        s = stays(gov.timeline)
        late = [(known[pid] - s[s[:, 1] == pid][0, 2]) / 1e6 for pid in known if (s[:, 1] == pid).any()]
    setup.record(
        "a new context is governed after its first work (negative: before)",
        "ms",
        None,
        max(late),
        "50",
        max(late) <= 50,
        all=late,
    )
