#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What requests to rtxgd cost, and how long one of another user waits while a user floods it.

usage: request_costs.py [--quick] [--floods KIND,...]

A plain request (hello) and one with a descriptor (fence) are sent one after the other, in turns to
rtxgd and to a server that does nothing but send a packet back (bench/requester.c). Figures are
ratios of the medians of what both took.

Then one user floods a system daemon in several ways, and another asks rtxgd and that server in
turns. Figures are the longest wait, in ms and over the 99th of 100 waits without the flood, which
is measured just before each. The server's longest in the same time says what of it was the machine.
That part needs root, to be two users.
Writes $RTXG_BENCH_DIR/request_costs.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ.get("RTXG_BUILD", TOP / "build/release")).resolve()
REQUESTER = BUILD / "bench/requester"
ATTACKER, VICTIM = 61001, 61002
BLOCK = 50
FLOODS = {
    "task-set": "task-set of 1000 tasks",
    "lists": "lists of 1000 tasks over 32 connections",
    "connections": "connections that come and go",
    "descriptors": "packets with a descriptor over 32 connections",
    "waiters": "packets for which 100000 waiters are woken",
    "sets": "changes of sets of epoll in sets",
}
SERVERS = ("rtxg", "bare")
AIMS = {"plain": 4.0, "descriptor": 8.0}
AIM_MS = 100.0

Entry = dict[str, object]


class Servers:
    """A rtxgd and a bare server beside it, under one scheduling policy at the start."""

    def __init__(self, folder: Path, mode: str) -> None:
        self.folder = folder
        self.sockets = [folder / "rtxgd.sock", folder / "bare.sock"]
        config = folder / "root/etc/rtxg/rtxg.conf"
        config.parent.mkdir(parents=True)
        config.write_text("[VGPU one]\n[VGPU other]\n")
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("RTXG_")}
        words = [BUILD / "daemon/rtxgd", mode, "--host", "daemon", "--socket", self.sockets[0]]
        words += ["--config-root", folder / "root", "--idle-exit", "0"]
        self.log = folder / "log"
        with self.log.open("wb") as log:
            common = {"env": self.environment, "stdin": subprocess.DEVNULL, "stderr": log}
            self.processes = [
                subprocess.Popen([*map(str, words)], stdout=log, **common),
                subprocess.Popen([REQUESTER, "answer", self.sockets[1]], stdout=log, **common),
            ]
        end = time.monotonic() + 60
        while not self.listen():
            if time.monotonic() > end or any(p.poll() is not None for p in self.processes):
                raise RuntimeError(self.log.read_text())
            time.sleep(0.01)
        for path in self.sockets:
            path.chmod(0o666)
        ours, bare = (process.pid for process in self.processes)
        self.policy = os.sched_getscheduler(ours) & ~os.SCHED_RESET_ON_FORK
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(bare, self.policy, os.sched_getparam(ours))

    def listen(self) -> bool:
        """Whether both answer."""
        with contextlib.suppress(OSError):
            return all(bool(self.ask("hello", path)["ok"]) for path in self.sockets)
        return False

    def ask(self, op: str, path: Path | None = None) -> dict[str, object]:
        """A request of this program's own."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.settimeout(60)
            s.connect(str(path or self.sockets[0]))
            s.send(json.dumps({"op": op}).encode())
            return dict(json.loads(s.recv(1 << 17)))

    def cpu_ns(self) -> list[int]:
        """What both have had of processors, all threads that there are and were."""
        return [time.clock_gettime_ns((~process.pid << 3) | 2) for process in self.processes]

    def end(self) -> int:
        """Both; the exit status of rtxgd."""
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        return self.processes[0].returncode


@contextlib.contextmanager
def servers(mode: str) -> Iterator[Servers]:
    """Both, in a folder of their own that other users see."""
    folder = Path(tempfile.mkdtemp(prefix="rtxg-requests-"))
    folder.chmod(0o755)
    try:
        both = Servers(folder, mode)
        try:
            yield both
        finally:
            status = both.end()
        if status:
            raise RuntimeError(f"rtxgd ended with status {status}: {both.log.read_text()}")
    finally:
        shutil.rmtree(folder)


def as_user(uid: int, *words: object) -> list[str]:
    """The words of a command, as an ordinary user; as this one if it has no choice."""
    user = [f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    return [*(["setpriv", *user] if uid != os.getuid() else []), *map(str, words)]


def waits(
    both: Servers,
    uid: int,
    words: tuple[object, ...],
    begins: Callable[[], None] = lambda: None,
) -> list[list[int]]:
    """How long the answers took, in nanoseconds and sorted, of rtxgd and of the bare server.

    words: what is asked, how often in all, in a block, and the pause in microseconds.
    """
    kind, times, block, pause_us = words
    command = as_user(uid, REQUESTER, "ask", kind, times, block, pause_us, *both.sockets)
    with subprocess.Popen(
        command, env=both.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as asker:
        assert asker.stdout
        first = asker.stdout.readline()
        if first == "begins\n":
            begins()
        said = asker.communicate()[0]
    if asker.returncode:
        raise RuntimeError(f"{first}{said}{both.log.read_text()}")
    took: list[list[int]] = [[], []]
    for line in said.splitlines():
        which, ns = line.split()
        took[int(which)].append(int(ns))
    if [len(one) for one in took] != [times, times]:
        raise RuntimeError(f"{times} requests had {[len(one) for one in took]} answers")
    return [sorted(one) for one in took]


def entry(
    name: str, unit: str, rtxg: float, alternative: float, alternative_name: str, **more: object
) -> Entry:
    """One line of the record; the figure is the ratio if none is given."""
    one = {
        "name": name,
        "unit": unit,
        "rtxg": rtxg,
        "alternative": alternative,
        "alternative_name": alternative_name,
        "figure_name": "ratio",
        "figure": rtxg / alternative,
        "aim": 0.0,
    } | more
    return one | {"met": not one["aim"] or one["figure"] <= one["aim"]}


def costs(rounds: int, times: int) -> list[Entry]:
    """Of a plain request and of one with a descriptor."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    with servers("--user") as both:
        for kind in AIMS:
            found[kind] = {"round trip": [], "processor time of the server": []}
        for _ in range(rounds):
            for kind, seen in found.items():
                before = both.cpu_ns()
                took = waits(both, os.getuid(), (kind, times, BLOCK, 0))
                used = [(b - a) / times / 1e3 for a, b in zip(before, both.cpu_ns(), strict=True)]
                ours, bare = (statistics.median(one) / 1e3 for one in took)
                seen["round trip"].append((ours, bare))
                seen["processor time of the server"].append((used[0], used[1]))
        policy = both.policy
    entries = []
    names = {"plain": "a plain request", "descriptor": "one with a descriptor"}
    for kind, seen in found.items():
        for what, pairs in seen.items():
            ratios = sorted(a / b for a, b in pairs)
            entries.append(
                entry(
                    f"{names[kind]}: {what}",
                    "us",
                    statistics.median(a for a, _ in pairs),
                    statistics.median(b for _, b in pairs),
                    "a bare server",
                    figure=statistics.median(ratios),
                    least=ratios[0],
                    most=ratios[-1],
                    aim=AIMS[kind],
                    requests=rounds * times,
                    policy=policy,
                )
            )
    for what in found["plain"]:
        plain, descriptor = ([a for a, _ in found[kind][what]] for kind in names)
        ratios = sorted(b / a for a, b in zip(plain, descriptor, strict=True))
        entries.append(
            entry(
                f"one with a descriptor: {what}",
                "us",
                statistics.median(descriptor),
                statistics.median(plain),
                "a plain request",
                figure=statistics.median(ratios),
                figure_name="ratio to a plain one",
                least=ratios[0],
                most=ratios[-1],
            )
        )
    return entries


def summary(took: list[int]) -> dict[str, float]:
    """Of waits, in ms."""
    return {
        "answers": len(took),
        "p50_ms": took[len(took) // 2] / 1e6,
        "p99_ms": took[len(took) * 99 // 100] / 1e6,
        "longest_ms": took[-1] / 1e6,
    }


def beside(both: Servers, kind: str, times: int) -> list[Entry]:
    """The waits of another user beside one flood."""

    def asked(begins: Callable[[], None] = lambda: None) -> dict[str, dict[str, float]]:
        took = waits(both, VICTIM, ("plain", times, 1, 1000), begins)
        return {name: summary(one) for name, one in zip(SERVERS, took, strict=True)}

    def begin() -> None:
        assert flood.stdin
        flood.stdin.write("\n")
        flood.stdin.flush()

    quiet = asked()
    words = as_user(ATTACKER, REQUESTER, "flood", kind, both.sockets[0])
    flood = subprocess.Popen(
        words,
        env=both.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert flood.stdout
        if flood.stdout.readline() != "begins\n":
            raise RuntimeError(f"the flood of {kind} has failed: {both.log.read_text()}")
        began, used = time.monotonic(), both.cpu_ns()[0]
        meanwhile = asked(begin)
        seconds, used = time.monotonic() - began, both.cpu_ns()[0] - used
        runs = flood.poll() is None
        flood.send_signal(signal.SIGTERM)
        said = flood.stdout.readline()
        status = flood.wait(600)
    finally:
        if flood.poll() is None:
            flood.kill()
            flood.wait()
        for stream in (flood.stdin, flood.stdout):
            assert stream
            stream.close()
    if status or not runs or int(said) < 1:
        raise RuntimeError(f"the flood of {kind} ended early: {both.log.read_text()}")
    ours, bare = (meanwhile[name]["longest_ms"] for name in SERVERS)
    before = quiet["rtxg"]["p99_ms"]
    name = f"another user's request beside {FLOODS[kind]}"
    details = {
        "quiet": quiet,
        "meanwhile": meanwhile,
        "rounds": int(said),
        "seconds": seconds,
        "daemon_cpu": used / 1e9 / seconds,
    }
    longest = {"figure_name": "longest, ms", "figure": ours, "aim": AIM_MS}
    return [
        entry(name, "ms", ours, bare, "a bare server", **longest, **details),
        entry(name, "ms", ours, before, "p99 before", figure_name="over p99 before"),
    ]


def healthy(both: Servers) -> None:
    """Every invariant of the scheduler holds, as the doctor says."""
    checks = {check["check"]: check for check in both.ask("doctor")["checks"]}
    if not checks["scheduler"]["ok"]:
        raise RuntimeError(checks["scheduler"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="few requests: figures say little")
    parser.add_argument(
        "--floods", default=",".join(FLOODS), metavar="KIND,...", help="these (default: all)"
    )
    options = parser.parse_args()
    kinds = [kind for kind in options.floods.split(",") if kind]
    for kind in kinds:
        if kind not in FLOODS:
            parser.error(f'there is no flood "{kind}"; known: {", ".join(FLOODS)}')
    entries = costs(2, 100) if options.quick else costs(20, 1000)
    if os.geteuid() != 0:
        print("request_costs: no floods: only root can become two other users", file=sys.stderr)
        kinds = []
    if kinds:
        with servers("--system") as both:
            for kind in kinds:
                entries += beside(both, kind, 20 if options.quick else 1500)
            healthy(both)
    for e in entries:
        aim = f" (aim <= {e['aim']:g}: {'met' if e['met'] else 'NOT met'})" if e["aim"] else ""
        print(
            f"{e['name']:<76} {e['rtxg']:8.2f} {e['unit']}, {e['alternative_name']} "
            f"{e['alternative']:7.2f}: {e['figure_name']} {e['figure']:.2f}{aim}"
        )
    out = Path(os.environ.get("RTXG_BENCH_DIR", TOP / "build/bench"))
    out.mkdir(parents=True, exist_ok=True)
    (out / "request_costs.json").write_text(json.dumps(entries, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
