#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A system daemon under a flood of two users' messages, and a third user who asks it questions.

usage: hostile.py [--messages N] [--nice N]

Each flooding user sends half of the messages by bench/flood.c: right, wrong, cut, twisted and
random ones, from 32 connections, of which some end in the middle. What the daemon holds (memory,
descriptors) and how long the third user waits for an answer is taken before, meanwhile and after.
Aims: no descriptor more, 4 MB more at most, 99 of 100 answers within 100 ms, and a scheduler that
is whole. Needs root, to be three users.
Writes $RTXG_BENCH_DIR/hostile.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ.get("RTXG_BUILD", TOP / "build/release")).resolve()
USERS, VICTIM = (61001, 61002), 61003
AIM_MS, AIM_KB = 100.0, 4096.0


class Asker:
    """The third user, in a process of its own: asks and says how long each answer took, in
    milliseconds.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def ask(self, times: int, pause_s: float, goes_on=lambda: True) -> list[float]:
        """So many answers, or fewer if it does not go on."""
        took = []
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.settimeout(60)
            os.seteuid(VICTIM)
            try:
                s.connect(str(self.path))
            finally:
                os.seteuid(0)
            while len(took) < times and goes_on():
                began = time.monotonic_ns()
                s.send(b'{"op": "hello"}')
                if not json.loads(s.recv(1 << 17))["ok"]:
                    raise RuntimeError("the daemon refused hello")
                took.append((time.monotonic_ns() - began) / 1e6)
                time.sleep(pause_s)
        return sorted(took)


def scheduler_whole(path: Path) -> bool:
    """Whether every invariant of the scheduler holds, as the daemon's doctor says."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.settimeout(60)
        s.connect(str(path))
        s.send(b'{"op": "doctor"}')
        return any(
            check["check"] == "scheduler" and check["ok"]
            for check in json.loads(s.recv(1 << 17))["checks"]
        )


def held(pid: int) -> dict[str, int]:
    """What the daemon holds: kB, and descriptors."""
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return {
        "rss_kb": int(status["VmRSS"].split()[0]),
        "shmem_kb": int(status["RssShmem"].split()[0]),
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
    }


def cpu_s(pid: int) -> float:
    """Processor time of the daemon."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def summary(took: list[float]) -> dict[str, float]:
    """Of the victim's waits, ms."""
    return {
        "answers": len(took),
        "p50_ms": took[len(took) // 2],
        "p99_ms": took[len(took) * 99 // 100],
        "longest_ms": took[-1],
    }


def entry(
    name: str,
    unit: str,
    after: float,
    before: float,
    figure_name: str,
    figure: float,
    aim: float,
    **more: object,
) -> dict[str, object]:
    """One line of the record."""
    return {
        "name": name,
        "unit": unit,
        "rtxg": after,
        "alternative": before,
        "alternative_name": "before",
        "figure_name": figure_name,
        "figure": figure,
        "aim": aim,
        "met": figure <= aim,
    } | more


def flood(folder: Path, messages: int, nice: int) -> list[dict[str, object]]:
    """The whole run."""
    path = folder / "rtxgd.sock"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RTXG_")}
    with (folder / "log").open("wb") as log:
        daemon = subprocess.Popen(
            [
                BUILD / "daemon/rtxgd",
                "--system",
                "--socket",
                path,
                "--config-root",
                folder / "root",
                "--idle-exit",
                "0",
            ],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    floods: list[subprocess.Popen[str]] = []
    try:
        end = time.monotonic() + 60
        while not path.exists():
            if daemon.poll() is not None or time.monotonic() > end:
                raise RuntimeError((folder / "log").read_text())
            time.sleep(0.05)
        victim = Asker(path)
        victim.ask(50, 0.01)
        before, answers_before = held(daemon.pid), summary(victim.ask(500, 0.01))
        began, used = time.monotonic(), cpu_s(daemon.pid)
        floods += [
            subprocess.Popen(
                [
                    "setpriv",
                    f"--reuid={uid}",
                    f"--regid={uid}",
                    "--clear-groups",
                    "nice",
                    "-n",
                    str(nice),
                    BUILD / "bench/flood",
                    path,
                    str(messages // len(USERS)),
                    str(seed),
                ],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                text=True,
            )
            for seed, uid in enumerate(USERS, 1)
        ]
        answers_meanwhile = summary(
            victim.ask(1 << 62, 0.02, lambda: any(f.poll() is None for f in floods))
        )
        length, used = time.monotonic() - began, cpu_s(daemon.pid) - used
        said = [f.communicate()[0].strip() for f in floods]
        if any(f.returncode for f in floods):
            raise RuntimeError(f"flood failed: {said}")
        time.sleep(2)
        after, answers_after = held(daemon.pid), summary(victim.ask(500, 0.01))
        whole = scheduler_whole(path)
        daemon.send_signal(signal.SIGTERM)
        status = daemon.wait(60)
    finally:
        for child in (*floods, daemon):
            if child.poll() is None:
                child.kill()
                child.wait()
    whole = whole and status == 0
    details = {"messages": messages, "seconds": length, "daemon_cpu": used / length, "floods": said}
    return [
        entry(
            "descriptors of the daemon",
            "descriptors",
            after["descriptors"],
            before["descriptors"],
            "more",
            after["descriptors"] - before["descriptors"],
            0,
            **details,
        ),
        entry(
            "memory of the daemon",
            "kB",
            after["rss_kb"],
            before["rss_kb"],
            "kB more",
            after["rss_kb"] - before["rss_kb"],
            AIM_KB,
            shmem_kb=[before["shmem_kb"], after["shmem_kb"]],
        ),
        entry(
            "wait of another user meanwhile, p99",
            "ms",
            answers_meanwhile["p99_ms"],
            answers_before["p99_ms"],
            "ms",
            answers_meanwhile["p99_ms"],
            AIM_MS,
            first=answers_before,
            meanwhile=answers_meanwhile,
        ),
        entry(
            "wait of another user afterwards, p99",
            "ms",
            answers_after["p99_ms"],
            answers_before["p99_ms"],
            "ms",
            answers_after["p99_ms"],
            AIM_MS,
            last=answers_after,
        ),
        entry(
            "the daemon answers its doctor and leaves with status 0",
            "",
            int(not whole),
            0,
            "failures",
            int(not whole),
            0,
        ),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--messages", type=int, default=100_000, help="in all (default 100000)")
    parser.add_argument("--nice", type=int, default=19, help="of the flooding users (default 19)")
    options = parser.parse_args()
    if os.geteuid() != 0:
        print("hostile: run it as root, which alone can become three other users", file=sys.stderr)
        return 1
    folder = Path(tempfile.mkdtemp(prefix="rtxg-hostile-"))
    folder.chmod(0o755)
    try:
        entries = flood(folder, options.messages, options.nice)
    finally:
        shutil.rmtree(folder)
    for e in entries:
        print(
            f"{e['name']:<56} {e['rtxg']:9.2f} {e['unit']}, before {e['alternative']:9.2f}: {e['figure_name']} {e['figure']:.2f} "
            f"(aim <= {e['aim']:g}: {'met' if e['met'] else 'NOT met'})"
        )
    out = Path(os.environ.get("RTXG_BENCH_DIR", TOP / "build/bench"))
    out.mkdir(parents=True, exist_ok=True)
    (out / "hostile.json").write_text(json.dumps(entries, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
