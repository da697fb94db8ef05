# SPDX-License-Identifier: MIT
"""Figures 9, 10 and 11 of Linux-RTXG on the card: the cost of scheduling, and shares."""

from __future__ import annotations

import os
import select
import subprocess
import time
from typing import Any

import numpy as np

from harness import Setup, progress, worst_window
from product import Product, Programs, dies_with_us

#: the paper's jobs: ten a task, each a copy in, a kernel, a copy out; so many tasks at one time
JOBS, MIB = 10, 1
COUNTS = (1, 2, 4, 8)
#: how long before a hand-over the next task is woken, and gets its permit; and as early as helps
AHEAD, EARLY, EARLIEST = "200us", "500us", "700us"
#: how long jobs may take at most
ANSWER_SECONDS = 120.0


class Tasks:
    """Programs that do their jobs at the same time, again and again."""

    def __init__(self, command: list[str], count: int, env: dict[str, str]) -> None:
        self.name = command[0]
        self.children = [
            subprocess.Popen(
                command,
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                preexec_fn=dies_with_us,
            )
            for _ in range(count)
        ]

    def start(self) -> None:
        """A line to each: it makes ready, or does its jobs."""
        for c in self.children:
            assert c.stdin
            c.stdin.write("go\n")
            c.stdin.flush()

    def answers(self) -> list[str]:
        """What each answers when it is done."""
        answers = []
        for c in self.children:
            assert c.stdout
            if not select.select([c.stdout], [], [], ANSWER_SECONDS)[0]:
                raise RuntimeError(f"{self.name} has not answered in {ANSWER_SECONDS:g} s")
            answers.append(c.stdout.readline())
            if not answers[-1]:
                raise RuntimeError(f"{self.name} has ended: status {c.wait(10)}")
        return answers

    def tell(self) -> list[str]:
        """A line to each, and what each answers."""
        self.start()
        return self.answers()

    def ms_a_job(self) -> float:
        """Milliseconds that a job took, on average over the tasks."""
        self.tell()  # they make ready
        return float(np.mean([float(x) for x in self.tell()])) / JOBS * 1e3

    def end(self) -> None:
        """No more jobs."""
        for c in self.children:
            if c.poll() is None:
                c.kill()
            c.wait()


def choose(
    setup: Setup, env: dict[str, str], policy: str, ahead: str = "0", early: str = "0"
) -> subprocess.CompletedProcess[str]:
    """Gives the gate a policy; how long before a hand-over the next task is woken, and launches."""
    tool = setup.program("rtxg", "cli")
    return subprocess.run(
        [tool, "gpu", "set", "--all", "--policy", policy, "--ahead", ahead, "--early", early],
        env=env,
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
    )


def gate(setup: Setup) -> tuple[subprocess.Popen[bytes], dict[str, str]]:
    """A daemon with the policy band, as in the paper, and the environment of its programs."""
    socket = setup.work / "gate.sock"
    env = {**os.environ, "RTXG_SOCKET": str(socket), "RTXG_LOG": "1"}
    root = setup.work / "gate-root"
    for part in ("etc/rtxg", "run/rtxg", "usr/lib/rtxg"):
        (root / part).mkdir(parents=True, exist_ok=True)
    log = (setup.work / "gate.log").open("wb")
    with log:
        daemon = subprocess.Popen(
            [setup.program("rtxgd", "daemon"), "--user", "--socket", socket, "--config-root", root],
            env=env,
            stderr=log,
            preexec_fn=dies_with_us,
        )
    for _ in range(400):
        done = choose(setup, env, "band")
        if not done.returncode:
            return daemon, env
        if daemon.poll() is not None:
            break
        time.sleep(0.05)
    daemon.kill()
    raise RuntimeError(f"the gate does not start: {done.stderr}")


def end_gate(daemon: subprocess.Popen[bytes]) -> None:
    """Ends rtxgd; one that does not end is killed."""
    daemon.terminate()
    try:
        daemon.wait(10)
    except subprocess.TimeoutExpired:
        daemon.kill()


def case_figure9(setup: Setup) -> None:
    """Vanilla, mutex, rtx by librtxg: 1 to 8 tasks of copy, kernel, copy (Linux-RTXG, figure 9)."""
    library = setup.program("librtxg.so.0", "lib")
    jobs = [str(setup.bin / "load"), "jobs", str(setup.turns_of(1000)), str(JOBS), str(MIB)]
    daemon, env = gate(setup)
    env = {**env, "LOAD_LIBRTXG": str(library)}
    programs = {
        "vanilla": [*jobs, "vanilla"],
        "mutex": [*jobs, "mutex", str(setup.work / "lock")],
        "rtx": [*jobs, "rtx"],
        # completions are told by the word that the GPU writes, or by its interrupt
        "fence": [*jobs, "rtx", "fence"],
        "notify": [*jobs, "rtx", "notify"],
    }
    # Whose jobs, and what the gate is told before: its policy, --ahead and --early.
    kinds = {
        "vanilla": ("vanilla", "band", "0", "0"),
        "mutex": ("mutex", "band", "0", "0"),
        "rtx": ("rtx", "band", "0", "0"),
        # the next task and rtxgd stand ready for hand-overs that are foreseen
        "ahead": ("rtx", "band", AHEAD, "0"),
        # and the next task has launched by then
        "early": ("rtx", "band", AHEAD, EARLY),
        "earliest": ("rtx", "band", AHEAD, EARLIEST),
        # it has, and no CPU stands ready
        "alone": ("rtx", "band", "0", EARLY),
        "fence": ("fence", "band", AHEAD, EARLY),
        "notify": ("notify", "band", AHEAD, EARLY),
        # one launch at a time in a vGPU and nothing else: the cost of handing the engine on
        "null": ("rtx", "null", "0", "0"),
    }
    rounds = 3 if setup.quick else 9
    found: dict[int, dict[str, float]] = {}
    try:
        for tasks in COUNTS:
            times: dict[str, list[float]] = {k: [] for k in kinds}
            groups: dict[str, Tasks] = {}
            try:
                for name, command in programs.items():
                    groups[name] = Tasks(command, tasks, env)
                for _ in range(rounds):
                    for kind, (name, *told) in kinds.items():
                        choose(setup, env, *told).check_returncode()
                        times[kind].append(groups[name].ms_a_job())
            finally:
                for group in groups.values():
                    group.end()
            found[tasks] = {k: float(np.median(v)) for k, v in times.items()}
            print(f"    {tasks} tasks: {found[tasks]} ms a job", flush=True)
    finally:
        end_gate(daemon)
    for tasks, ms in found.items():
        aim = 1.02 if tasks <= 4 else 1.05
        setup.record(
            f"figure 9, {tasks} task{'s' if tasks > 1 else ''}: a job with librtxg and "
            f"--ahead {AHEAD} --early {EARLY} over vanilla",
            "times",
            1.0,
            ms["early"] / ms["vanilla"],
            f"{aim:g}",
            ms["early"] <= aim * ms["vanilla"],
            ms_a_job=ms,
            without_ahead=ms["rtx"] / ms["vanilla"],
            without_early=ms["ahead"] / ms["vanilla"],
            earliest=ms["earliest"] / ms["vanilla"],
            early_alone=ms["alone"] / ms["vanilla"],
            fence=ms["fence"] / ms["vanilla"],
            notify=ms["notify"] / ms["vanilla"],
            mutex=ms["mutex"] / ms["vanilla"],
            policy_null=ms["null"] / ms["vanilla"],
            rounds=rounds,
        )


def two_tasks(setup: Setup, product: Product | None, delay_s: float, length: float) -> list[Any]:
    """The first with 1.2 times the work of the second, which begins delay_s later; their work."""
    with Programs(setup) as programs:
        vgpus = ("f0", "f1") if product else (None, None)
        programs.busy(12000, delay_s + length + 1, product, vgpus[0])
        programs.wait_working()
        first = int(progress(programs.outputs[0])[0, 0])
        # Its context is made ahead of time, and it begins to the millisecond.
        begin = {"LOAD_BEGIN_NS": str(first + int(delay_s * 1e9))}
        time.sleep(max(0.0, delay_s - 3))
        programs.busy(10000, length, product, vgpus[1], **begin)
        programs.wait_working()
        programs.wait()
        return [[progress(o)] for o in programs.outputs]


def case_figure10(setup: Setup) -> None:
    """40/60: 1.2 times the work, the second begins 5 s later (Linux-RTXG, figure 10)."""
    delay_s, length = 5.0, setup.seconds(4, 10)
    tracks = {"stock": two_tasks(setup, None, delay_s, length)}
    with Product(setup) as product:
        product.vgpu("f0", min="40%")
        product.vgpu("f1", min="60%")
        tracks["rtxg"] = two_tasks(setup, product, delay_s, length)
    late_s = {m: (t[1][0][0, 0] - t[0][0][0, 0]) / 1e9 for m, t in tracks.items()}
    results = {
        m: worst_window(
            t,
            [40.0, 60.0],
            t[1][0][0, 0] + 200_000_000,
            min(x[0][-1, 0] for x in t) - 200_000_000,
        )
        for m, t in tracks.items()
    }
    setup.plots["figure10"] = tracks
    setup.plots["figure10_late_s"] = late_s
    worst = results["rtxg"][0]
    setup.record(
        "40/60, 1.2 times the work, second 5 s later: worst 1 s window",
        "points",
        results["stock"][0],
        worst,
        "1",
        worst <= 1,
        shares=results["rtxg"][1],
        stock_shares=results["stock"][1],
        second_later_s=late_s,
        paper_points=[3, 5],
    )


def case_figure11(setup: Setup) -> None:
    """Four equal tasks in four equal vGPUs (Linux-RTXG, figure 11)."""
    due = [25.0] * 4
    length = setup.seconds(5, 15)
    product = Product(setup)
    with Programs(setup) as programs:
        try:
            product.start()
            for i in range(4):
                product.vgpu(f"f{i}", min="25%")
                programs.busy(10000, 2 * length + 25, product, f"f{i}")
            programs.wait_working()
            time.sleep(1.5)
            spans: dict[str, tuple[int, int]] = {}
            for mode in ("rtxg", "stock"):
                begin = time.monotonic_ns()
                time.sleep(length)
                spans[mode] = begin, time.monotonic_ns() - 30_000_000
                if mode == "rtxg":
                    product.stop()
                    time.sleep(0.5)
            tracks = [[progress(o)] for o in programs.outputs]
        finally:
            product.__exit__()
    results = {m: worst_window(tracks, due, *span) for m, span in spans.items()}
    setup.plots["figure11"] = {
        m: [[t[(t[:, 0] >= span[0]) & (t[:, 0] <= span[1])] for t in x] for x in tracks]
        for m, span in spans.items()
    }
    worst = results["rtxg"][0]
    setup.record(
        "figure 11, four equal tasks: worst 1 s window",
        "points",
        results["stock"][0],
        worst,
        "1",
        worst <= 1,
        shares=results["rtxg"][1],
        stock_shares=results["stock"][1],
        paper_points=9,
    )
