#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a scrape costs with 200 vGPUs and a program in each: processor time of the daemon and of the exporter for one, and how long the
client waits. Aim: 5 ms of processor time together."""

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
VGPUS, SCRAPES, AIM_MS = 200, 200, 5.0
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


def main() -> int:
    """Measure, print and keep."""
    folder = Path(tempfile.mkdtemp())
    path = folder / "rtxgd.sock"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RTXG_")} | {"RTXG_SOCKET": str(path), "RTXG_HOST": "daemon"}
    daemon = subprocess.Popen([BUILD / "daemon/rtxgd", "--user", "--socket", path, "--idle-exit", "0", "--config-root", folder], env=environment)
    listener = socket.create_server(("127.0.0.1", 0))
    start = ("import os, sys\nos.dup2(int(sys.argv[1]), 3, inheritable=True)\n"
             "os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()))\nos.execv(sys.argv[2], sys.argv[2:])\n")
    exporter = subprocess.Popen([sys.executable, "-c", start, str(listener.fileno()), BUILD / "cli/rtxg", "metrics", "--http"],
                                env=environment, pass_fds=[listener.fileno()])
    try:
        control, tasks = connect(path), []
        for i in range(VGPUS):
            ask(control, op="vgpu-create", vgpu=f"tenant-{i:03}", min_ppm=4000)
            tasks.append(connect(path))
            ask(tasks[-1], op="open", vgpu=f"tenant-{i:03}")
        port = listener.getsockname()[1]
        scrape(port)
        idle_from, idle_at = used(daemon.pid), time.monotonic()
        time.sleep(2)
        idle = (used(daemon.pid) - idle_from) / (time.monotonic() - idle_at)
        before, began = (used(daemon.pid), used(exporter.pid)), time.monotonic()
        waits, size = zip(*[scrape(port) for _ in range(SCRAPES)], strict=True)
        passed = time.monotonic() - began
        daemon_ms = (used(daemon.pid) - before[0] - idle * passed) / SCRAPES * 1e3
        exporter_ms = (used(exporter.pid) - before[1]) / SCRAPES * 1e3
    finally:
        exporter.kill()
        daemon.terminate()
        exporter.wait()
        daemon.wait()
    cost = daemon_ms + exporter_ms
    results = [{
        "name": f"a scrape with {VGPUS} vGPUs and as many programs", "unit": "ms", "rtxg": round(cost, 2), "daemon": round(daemon_ms, 2),
        "exporter": round(exporter_ms, 2), "wait_median": round(statistics.median(waits) * 1e3, 2), "wait_least": round(min(waits) * 1e3, 2),
        "bytes": size[-1], "figure_name": "processor time, ms", "figure": round(cost, 2), "aim": AIM_MS, "met": cost < AIM_MS,
    }]
    print(f"scrape with {VGPUS} vGPUs: {cost:.2f} ms of processor time (daemon {daemon_ms:.2f}, exporter {exporter_ms:.2f}; aim {AIM_MS:g}); "
          f"a client waited {results[0]['wait_median']} ms in the median, {results[0]['wait_least']} at least; {size[-1]} bytes")
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "metrics.json").write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
