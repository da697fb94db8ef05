# SPDX-License-Identifier: MIT
"""A task that is stopped at any moment, also right after its launch: does the one beside it go on?

Two tasks of one vGPU under policy band, each with jobs of a copy in, a kernel of 1 ms, a copy out
by librtxg. The first is stopped (SIGSTOP) for 50 ms and let go on for 50 ms, again and again: in
half of all stops it has work on the GPU that only it waits for. Completions are told by the program
that waits (wait), by the word that the GPU writes (fence), or by the GPU's interrupt (notify). By
the last two rtxgd sees them without the program.
"""

from __future__ import annotations

import random
import signal
import subprocess
import threading

import numpy as np

from harness import Setup

from .figures import MIB, Tasks, choose, end_gate, gate

JOBS, KERNEL_US, STOP_S = 100, 1000, 0.05
#: how long the second task's jobs may take beside the stopped one, over those beside one that runs
WAYS = {"wait": None, "fence": 1.1, "notify": 1.1}


class Stopper:
    """Stops and continues a process at random moments, until it is told to end."""

    def __init__(self, program: subprocess.Popen[str], rng: random.Random) -> None:
        self.program, self.rng, self.stops, self.over = program, rng, 0, threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        """Stops it. One that has ended is sent nothing."""
        while not self.over.wait(STOP_S * self.rng.uniform(0.5, 1.5)):
            self.program.send_signal(signal.SIGSTOP)
            self.stops += 1
            self.over.wait(STOP_S)
            self.program.send_signal(signal.SIGCONT)

    def end(self) -> int:
        """How often it was stopped; it runs again by then."""
        self.over.set()
        self.thread.join()
        return self.stops


def ms_of_second(pair: list[Tasks], rng: random.Random | None) -> tuple[float, int]:
    """Milliseconds of the second task's jobs, and how often the first was stopped."""
    for task in pair:
        task.tell()  # it makes ready
    stopper = Stopper(pair[0].children[0], rng) if rng else None
    try:
        for task in pair:
            task.start()
        took = float(pair[1].answers()[0])
    finally:
        stops = stopper.end() if stopper else 0
    pair[0].answers()
    return took * 1e3, stops


def case_stopped(setup: Setup) -> None:
    """A task is stopped after its launch: jobs of the other one, told by wait, FENCE, NOTIFY."""
    daemon, env = gate(setup)
    env = {**env, "LOAD_LIBRTXG": str(setup.program("librtxg.so.0", "lib"))}
    rounds, rng = (3 if setup.quick else 9), random.Random(1)
    command = [str(setup.bin / "load"), "jobs", str(setup.turns_of(KERNEL_US)), str(JOBS), str(MIB)]
    try:
        choose(setup, env, "band").check_returncode()
        for way, aim in WAYS.items():
            plain, stopped, stops = [], [], 0
            pair: list[Tasks] = []
            try:
                for _ in range(2):
                    pair.append(Tasks([*command, "rtx", way], 1, env))
                for _ in range(rounds):
                    plain.append(ms_of_second(pair, None)[0])
                    took, count = ms_of_second(pair, rng)
                    stopped.append(took)
                    stops += count
            finally:
                for task in pair:
                    task.end()
            ratio = float(np.median(stopped) / np.median(plain))
            setup.record(
                f"a task is stopped half of the time, completions by {way}: the other one's jobs",
                "of beside one that runs",
                None,
                ratio,
                f"{aim:g}" if aim else "-",
                ratio <= aim if aim else None,
                beside_ms=plain,
                beside_stopped_ms=stopped,
                stops=stops,
                rounds=rounds,
            )
    finally:
        end_gate(daemon)
