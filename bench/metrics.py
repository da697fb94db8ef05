#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a scrape costs with 200 vGPUs and a program in each: processor time of the daemon and of the exporter for one, and how long the
client waits. Aim: 5 ms of processor time together.

    bench/metrics.py [OTHER-BUILD]      beside another build, in turns
"""

from __future__ import annotations

import array
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ.get("RTXG_BUILD", TOP / "build/release"))
OUT = Path(os.environ.get("RTXG_BENCH_DIR", TOP / "build/bench"))
VGPUS, SCRAPES, ROUNDS, AIM_MS = 200, 500, 5, 5.0
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def ask(connection: socket.socket, **request: object) -> dict[str, object]:
    """One request; descriptors that come with the reply are closed."""
    connection.send(json.dumps(request).encode())
    data, ancillary, _, _ = connection.recvmsg(1 << 17, 1024)
    for _, _, raw in ancillary:
        fds = array.array("i")
        fds.frombytes(raw[: len(raw) // 4 * 4])
        for fd in fds:
            os.close(fd)
    reply = json.loads(data)
    assert reply.get("ok"), reply
    return dict(reply)


def connect(path: Path) -> socket.socket:
    """A connection, as soon as the daemon listens."""
    end = time.monotonic() + 30
    while True:
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            s.connect(str(path))
            return s
        except OSError:
            s.close()
            if time.monotonic() > end:
                raise
            time.sleep(0.01)


def used(pid: int) -> float:
    """Processor time of a process, in seconds."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(after_name[11]) + int(after_name[12])) * TICK_S


def scrape(port: int) -> tuple[float, int]:
    """Seconds that a client waited, and bytes."""
    begin = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=60) as s:
        s.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        size = 0
        while piece := s.recv(1 << 20):
            size += len(piece)
    return time.monotonic() - begin, size


class Stand:
    """A daemon with vGPUs and programs, and its exporter."""

    def __init__(self, build: Path) -> None:
        folder = Path(tempfile.mkdtemp())
        path = folder / "rtxgd.sock"
        environment = {k: v for k, v in os.environ.items() if not k.startswith("RTXG_")} | {
            "RTXG_SOCKET": str(path),
            "RTXG_HOST": "daemon",
        }
        command = [
            build / "daemon/rtxgd",
            "--user",
            "--socket",
            path,
            "--idle-exit",
            "0",
            "--config-root",
            folder,
        ]
        self.daemon = subprocess.Popen(command, env=environment)
        self.listener = socket.create_server(("127.0.0.1", 0))
        start = (
            "import os, sys\nos.dup2(int(sys.argv[1]), 3, inheritable=True)\n"
            "os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()))\nos.execv(sys.argv[2], sys.argv[2:])\n"
        )
        self.exporter = subprocess.Popen(
            [
                sys.executable,
                "-c",
                start,
                str(self.listener.fileno()),
                build / "cli/rtxg",
                "metrics",
                "--http",
            ],
            env=environment,
            pass_fds=[self.listener.fileno()],
        )
        self.port = self.listener.getsockname()[1]
        self.tasks: list[socket.socket] = []
        self.idle = 0.0
        self.costs: list[tuple[float, float]] = []
        self.waits: list[float] = []
        self.bytes = 0
        control = connect(path)
        for i in range(VGPUS):
            ask(control, op="vgpu-create", vgpu=f"tenant-{i:03}", min_ppm=4000)
            self.tasks.append(connect(path))
            ask(self.tasks[-1], op="open", vgpu=f"tenant-{i:03}")
        scrape(self.port)

    def rest(self) -> None:
        """What the daemon uses without scrapes, as a part of the time."""
        before, at = used(self.daemon.pid), time.monotonic()
        time.sleep(2)
        self.idle = (used(self.daemon.pid) - before) / (time.monotonic() - at)

    def round(self) -> None:
        """Scrapes, one after the other; milliseconds of processor time for one, of both processes.
        """
        before, began = (used(self.daemon.pid), used(self.exporter.pid)), time.monotonic()
        for _ in range(SCRAPES // ROUNDS):
            wait, self.bytes = scrape(self.port)
            self.waits.append(wait)
        passed = time.monotonic() - began
        one = 1e3 / (SCRAPES // ROUNDS)
        self.costs.append(
            (
                (used(self.daemon.pid) - before[0] - self.idle * passed) * one,
                (used(self.exporter.pid) - before[1]) * one,
            )
        )

    def result(self) -> dict[str, float]:
        """Medians of the rounds."""
        daemon, exporter = (statistics.median(c[i] for c in self.costs) for i in (0, 1))
        return {
            "rtxg": round(statistics.median(sum(c) for c in self.costs), 2),
            "daemon": round(daemon, 2),
            "exporter": round(exporter, 2),
            "wait_median": round(statistics.median(self.waits) * 1e3, 2),
            "wait_least": round(min(self.waits) * 1e3, 2),
            "bytes": self.bytes,
        }

    def end(self) -> None:
        """Both processes."""
        self.exporter.kill()
        self.daemon.terminate()
        self.exporter.wait()
        self.daemon.wait()


def main() -> int:
    """Measure, print and keep. Another build that is named takes turns with this one."""
    stands = []
    try:
        for build in (BUILD, *map(Path, sys.argv[1:])):
            stands.append(Stand(build))
        for stand in stands:
            stand.rest()
        for _ in range(ROUNDS):
            for stand in stands:
                stand.round()
    finally:
        for stand in stands:
            stand.end()
    one, *others = (stand.result() for stand in stands)
    results = [
        {
            "name": f"a scrape with {VGPUS} vGPUs and as many programs",
            "unit": "ms",
            **one,
            "load": round(os.getloadavg()[0], 1),
            "figure_name": "processor time, ms",
            "figure": one["rtxg"],
            "aim": AIM_MS,
            "met": one["rtxg"] < AIM_MS,
        }
        | ({"other_build": others[0]} if others else {})
    ]
    for name, r in (("scrape", one), *(("other build", other) for other in others)):
        print(
            f"{name} with {VGPUS} vGPUs: {r['rtxg']:.2f} ms of processor time (daemon {r['daemon']:.2f}, exporter {r['exporter']:.2f}; "
            f"aim {AIM_MS:g}); a client waited {r['wait_median']} ms in the median, {r['wait_least']} at least; {r['bytes']} bytes"
        )
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "metrics.json").write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
