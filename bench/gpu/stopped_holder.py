#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Does a GPU task go on while the one beside it is stopped at any moment, also right after a launch?

usage: stopped_holder.py --bin DIR [--turns N] [--rounds N] [--json FILE]

Two tasks of one vGPU under policy band, each with jobs of a copy in, a kernel of 1 ms, a copy out
by librtxg. The first is stopped (SIGSTOP) for 50 ms and let go on for 50 ms, again and again: in
half of all stops it has work on the GPU that only it waits for. Completions are told by the program
that waits (wait), by the word that the GPU writes (fence), or by the GPU's interrupt (notify); by
the last two rtxgd sees them without the program. Printed for each: how long the second task's jobs
take beside the stopped one, over those beside one that is not stopped. DIR has rtxgd, rtxg, load
(bench/gpu/load.cu) and lib/librtxg.so.0. Needs an NVIDIA GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

JOBS, KERNEL_US, STOP_S = 100, 1000, 0.05


def ready(program: subprocess.Popen[str]) -> None:
    """Lets it make ready, and waits until it is."""
    assert program.stdin and program.stdout
    program.stdin.write("go\n")
    program.stdin.flush()
    if program.stdout.readline() != "ready\n":
        raise RuntimeError(f"load has ended: status {program.wait(10)}")


def go(program: subprocess.Popen[str]) -> None:
    """Lets its jobs begin."""
    assert program.stdin
    program.stdin.write("go\n")
    program.stdin.flush()


def seconds(program: subprocess.Popen[str]) -> float:
    """How long they took; waits for their end."""
    assert program.stdout
    return float(program.stdout.readline())


class Stopper:
    """Stops and continues a process at random moments, until it is told to end."""

    def __init__(self, pid: int, rng: random.Random) -> None:
        self.pid, self.rng, self.stops, self.over = pid, rng, 0, threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        """Stops it."""
        while not self.over.wait(STOP_S * self.rng.uniform(0.5, 1.5)):
            os.kill(self.pid, signal.SIGSTOP)
            self.stops += 1
            self.over.wait(STOP_S)
            os.kill(self.pid, signal.SIGCONT)

    def end(self) -> int:
        """How often it was stopped."""
        self.over.set()
        self.thread.join()
        return self.stops


def one(pair: list[subprocess.Popen[str]], rng: random.Random | None) -> tuple[float, int]:
    """Seconds of the second program's jobs, and how often the first was stopped."""
    for program in pair:
        ready(program)
    stopper = Stopper(pair[0].pid, rng) if rng else None
    for program in pair:
        go(program)
    took = seconds(pair[1])
    stops = stopper.end() if stopper else 0
    seconds(pair[0])
    return took, stops


def main() -> int:
    """Measures all three ways."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--turns", type=int, help="of load for a kernel of 1 ms (default: found)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    turns = args.turns or int(
        subprocess.check_output([args.bin / "load", "calibrate", str(KERNEL_US)], text=True)
    )
    work = Path(tempfile.mkdtemp(prefix="rtxg-stopped-"))
    for part in ("etc/rtxg", "run/rtxg", "usr/lib/rtxg"):
        (work / part).mkdir(parents=True)
    env = {**os.environ, "RTXG_SOCKET": str(work / "s")}
    env["LOAD_LIBRTXG"] = str(args.bin / "lib" / "librtxg.so.0")
    daemon = subprocess.Popen(
        [args.bin / "rtxgd", "--user", "--socket", work / "s", "--config-root", work], env=env
    )
    tool = [args.bin / "rtxg", "gpu", "set", "--all", "--policy", "band"]
    for _ in range(400):
        if not subprocess.run(tool, env=env, capture_output=True, check=False).returncode:
            break
        time.sleep(0.05)
    found, rng = [], random.Random(1)
    try:
        for how in ("wait", "fence", "notify"):
            command = [args.bin / "load", "jobs", str(turns), str(JOBS), "1", "rtx", how]
            pair = [
                subprocess.Popen(
                    command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
                for _ in range(2)
            ]
            plain, stopped, stops = [], [], 0
            try:
                for _ in range(args.rounds):
                    plain.append(one(pair, None)[0])
                    took, count = one(pair, rng)
                    stopped.append(took)
                    stops += count
            finally:
                for program in pair:
                    program.kill()
                    program.wait()
            row = {
                "how": how,
                "beside_ms": statistics.median(plain) * 1e3,
                "beside_stopped_ms": statistics.median(stopped) * 1e3,
                "ratio": statistics.median(stopped) / statistics.median(plain),
                "stops": stops,
            }
            found.append(row)
            print(
                f"{how:7} {row['beside_ms']:8.1f} ms, beside the stopped one "
                f"{row['beside_stopped_ms']:8.1f} ms: {row['ratio']:.2f} times ({stops} stops)",
                flush=True,
            )
    finally:
        daemon.terminate()
        daemon.wait(10)
    if args.json:
        args.json.write_text(json.dumps({"jobs": JOBS, "rounds": args.rounds, "rows": found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
