#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""rtxg beside other products that share out one NVIDIA GPU: the same programs, the same card, one run.

    bench/gpu/peers.py [--bin DIR] [--out DIR] [--xsched DIR] [--hami DIR] [--case NAME,...] [--seconds N] [--list]

Compared are the stock driver's time slicing, rtxg (the lever in its own host), XSched, HAMi-core and NVIDIA MPS. Nothing is
downloaded and nothing of another product lies in this repository: build them yourself (docs/how-to/compare.md) and name where they are,

    --xsched DIR   or RTXG_PEER_XSCHED: an installation of XSched, with bin/xserver and lib/libshimcuda.so
    --hami DIR     or RTXG_PEER_HAMI: a directory with libvgpu.so
    MPS            nvidia-cuda-mps-control on the PATH

A product that is absent or does not work is named with its own error text, and the others are measured. The files COMMIT and
NOTES in a product's directory (the build, and remarks about it) go into the results. --bin (build/gpu) holds rtxg-nvgov, rtxg-guardian
and the loads: load, load-ptds (load.cu compiled with --default-stream per-thread, because XSched does not schedule the legacy
default stream) and launches; loads that are missing are built with nvcc. It needs root, as the lever does. The results go to
OUT/GPU-DRIVER-DATE-peers.json, each case as soon as it is done; --seconds says after how long no further case is begun. Without a
GPU: exit status 77.

tests/gpu/harness.py, which this program uses, describes the measurements.
"""

from __future__ import annotations

import argparse
import ctypes.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "gpu"))

import harness  # noqa: E402

DUE = [60.0, 20.0, 10.0, 10.0]
PORT = 50917  # of XSched's server


class UnavailableError(Exception):
    """A product that is not here or does not do this; the text says why."""


def driver_library() -> str:
    """Path of the driver's own libcuda.so.1."""
    places = [Path(p) for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p]
    places += [Path("/usr/lib/x86_64-linux-gnu"), Path("/usr/lib64"), Path("/usr/local/nvidia/lib64")]
    for place in places:
        if (place / "libcuda.so.1").exists():
            return str(place / "libcuda.so.1")
    listed = subprocess.run(["ldconfig", "-p"], check=False, capture_output=True, text=True).stdout
    for line in listed.splitlines():
        if "libcuda.so.1 " in line and "=>" in line:
            return line.split("=>")[1].strip()
    return ctypes.util.find_library("cuda") or "libcuda.so.1"


def tail(path: Path, lines: int = 3) -> str:
    """The last lines of a log, in one."""
    if not path.exists():
        return ""
    return " / ".join(x.strip() for x in path.read_text(errors="replace").splitlines()[-lines:] if x.strip())


@dataclass
class Tenant:
    """One program and its promised share."""

    share: float
    critical: bool = False
    vgpu: int = 1
    cap: bool = False  # not more than that share, also where no other program wants the GPU


class Peer:
    """The stock driver: nothing is promised, nothing is set."""

    name = "stock"
    load = "load"
    one_by_one = False  # must the programs be started one after the other?
    kill = True  # may a program be killed at the end of a case?

    def __init__(self, setup: harness.Setup, home: Path | None) -> None:
        self.setup = setup
        self.home = home
        self.options: dict[str, str] = {}  # of this case

    def check(self) -> None:
        """Raises UnavailableError where the product is not here."""

    def told(self, name: str) -> str | None:
        """What the file COMMIT or NOTES beside the product says of it."""
        file = self.home / name if self.home else None
        return file.read_text(encoding="ascii").strip() if file and file.exists() else None

    @contextmanager
    def session(self, tenants: list[Tenant], latency: bool) -> Iterator[None]:
        """Its server, for the time of a case."""
        yield

    def command(self, command: list[str], tenant: Tenant) -> list[str]:
        """How the program is started."""
        return command

    def env(self, tenant: Tenant) -> dict[str, str]:
        """With what environment."""
        return {}

    def ready(self, log: Path) -> bool:
        """With one_by_one: has this program come far enough for the next?"""
        return True


def rtxg_promise(tenant: Tenant) -> str:
    """The tenant as the lever's host wants it said."""
    return "critical" if tenant.critical else f"{'max' if tenant.cap else 'min'}={tenant.share:g}"


class Rtxg(Peer):
    """rtxg: the NVIDIA lever in its stand-alone host."""

    name = "rtxg"
    gov: harness.Governor | None = None

    def check(self) -> None:
        if not (self.setup.bin / "rtxg-nvgov").exists():
            raise UnavailableError(f"{self.setup.bin}/rtxg-nvgov is missing: make gpu builds it")

    @contextmanager
    def session(self, tenants: list[Tenant], latency: bool) -> Iterator[None]:
        with harness.Governor(self.setup) as gov:
            for t in tenants:
                gov.ctl("vgpu", str(t.vgpu), rtxg_promise(t))
            self.gov = gov
            try:
                yield
            finally:
                self.gov = None

    def command(self, command: list[str], tenant: Tenant) -> list[str]:
        assert self.gov
        return self.gov.wrap(tenant.vgpu, command)


class XSched(Peer):
    """XSched: its shim in the place of the driver's library, its server beside."""

    name = "xsched"
    load = "load-ptds"

    def check(self) -> None:
        if not self.home:
            raise UnavailableError("not named (--xsched or RTXG_PEER_XSCHED)")
        for part in ("bin/xserver", "lib/libshimcuda.so"):
            if not (self.home / part).exists():
                raise UnavailableError(f"{self.home / part} is missing")

    def loader_path(self) -> str:
        """The shim under the driver's name comes first, the driver stays reachable."""
        assert self.home
        links = self.setup.work / "xsched"
        links.mkdir(exist_ok=True)
        for name in ("libcuda.so.1", "libcuda.so"):
            if not (links / name).exists():
                (links / name).symlink_to(self.home.resolve() / "lib" / "libshimcuda.so")
        return f"{links}:{self.home.resolve() / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}"

    @contextmanager
    def session(self, tenants: list[Tenant], latency: bool) -> Iterator[None]:
        assert self.home
        log = self.setup.work / f"xserver-{time.monotonic_ns()}.log"
        policy = "HPF" if latency else "PUP"
        with log.open("wb") as out:
            server = subprocess.Popen(
                [self.home / "bin" / "xserver", policy, str(PORT)],
                stdout=out,
                stderr=out,
                env={**os.environ, "LD_LIBRARY_PATH": self.loader_path()},
            )
        try:
            for _ in range(100):
                if b"receiver started" in log.read_bytes():
                    break
                if server.poll() is not None:
                    raise UnavailableError(f"xserver ends at once: {tail(log)}")
                time.sleep(0.05)
            yield
        finally:
            server.kill()
            server.wait()
            shutil.copy(log, self.setup.out / "last-xserver.log")

    def env(self, tenant: Tenant) -> dict[str, str]:
        return {
            "LD_LIBRARY_PATH": self.loader_path(),
            "XSCHED_CUDA_LIB": driver_library(),
            "CUXTRA_CUDA_LIB": driver_library(),
            "XSCHED_SCHEDULER": "GLB",
            "XSCHED_AUTO_XQUEUE": "ON",
            "XSCHED_AUTO_XQUEUE_LEVEL": "1",
            "XSCHED_AUTO_XQUEUE_PRIORITY": "1" if tenant.critical else "0",
            "XSCHED_AUTO_XQUEUE_UTILIZATION": f"{tenant.share:g}",
            **self.options,
        }


class Hami(Peer):
    """HAMi-core: preloaded, a cap for each program; it has no server and no notion of latency."""

    name = "hami"
    one_by_one = True  # it finds its own pid by comparing the driver's list before and after

    def check(self) -> None:
        if not self.home:
            raise UnavailableError("not named (--hami or RTXG_PEER_HAMI)")
        if not (self.home / "libvgpu.so").exists():
            raise UnavailableError(f"{self.home}/libvgpu.so is missing")

    @contextmanager
    def session(self, tenants: list[Tenant], latency: bool) -> Iterator[None]:
        Path("/tmp/vgpulock").mkdir(exist_ok=True)
        yield

    def env(self, tenant: Tenant) -> dict[str, str]:
        assert self.home
        library = str(self.home.resolve() / "libvgpu.so")
        cache = self.setup.work / f"hami-{time.monotonic_ns()}.cache"
        return {
            "LD_PRELOAD": library,
            "CUDA_REDIRECT": library,
            "CUDA_DEVICE_SM_LIMIT": f"{tenant.share:g}",
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(cache),
            "LD_LIBRARY_PATH": f"{os.environ.get('LD_LIBRARY_PATH', '')}:{Path(driver_library()).parent}",
            **self.options,
        }

    def ready(self, log: Path) -> bool:
        return b"Initialized" in log.read_bytes()


class Mps(Peer):
    """NVIDIA MPS; shares are shares of the multiprocessors (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE)."""

    name = "mps"
    kill = False  # a client that is killed faults the server's context, and with it the others

    def check(self) -> None:
        if not shutil.which("nvidia-cuda-mps-control"):
            raise UnavailableError("nvidia-cuda-mps-control is not installed")

    def pipes(self) -> dict[str, str]:
        """Where its daemon is."""
        return {
            "CUDA_MPS_PIPE_DIRECTORY": str(self.setup.work / "mps"),
            "CUDA_MPS_LOG_DIRECTORY": str(self.setup.work / "mpslog"),
        }

    @contextmanager
    def session(self, tenants: list[Tenant], latency: bool) -> Iterator[None]:
        env = {**os.environ, **self.pipes()}
        for d in self.pipes().values():
            Path(d).mkdir(exist_ok=True)
        subprocess.run(["nvidia-cuda-mps-control", "-d"], env=env, check=True)
        try:
            yield
        finally:
            subprocess.run(["nvidia-cuda-mps-control"], input=b"quit\n", env=env, check=False, timeout=20)

    def env(self, tenant: Tenant) -> dict[str, str]:
        limit = {} if tenant.critical else {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": f"{tenant.share:g}"}
        return {**self.pipes(), **limit}


PEERS: tuple[type[Peer], ...] = (Peer, Rtxg, XSched, Hami, Mps)


@dataclass
class Bench:
    """The results, and what every case needs."""

    setup: harness.Setup
    peers: list[Peer]
    head: dict[str, Any]
    lines: list[dict[str, Any]] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)
    end: float = 0.0
    own_turns: int = 0  # of a kernel of 1 ms in launches.cu, which does not count its work

    def save(self) -> None:
        """Writes what there is so far."""
        text = json.dumps({**self.head, "absent": self.absent, "results": self.lines}, indent=1)
        (self.setup.out / f"{self.setup.name}-peers.json").write_text(text + "\n", encoding="ascii")

    def add(self, case: str, unit: str, peer: Peer, value: Any, note: str = "", **detail: Any) -> None:
        """One measured value of one product."""
        line = next((x for x in self.lines if x["case"] == case), None)
        if line is None:
            line = {"case": case, "unit": unit, "values": {}, "detail": {}, "command": self.head["command"]}
            self.lines.append(line)
        key = f"{peer.name}{' ' + note if note else ''}"
        line["values"][key] = harness.rounded(value)
        line["detail"][key] = {k: harness.rounded(v) for k, v in {**detail, "settings": dict(peer.options)}.items() if v}
        self.save()
        print(f"    {case}: {key} {harness.rounded(value)} {unit}", flush=True)

    def each(self, names: list[str], what: str, fn: Callable[[Peer], None]) -> None:
        """fn for each of these products; what goes wrong with one is written down in its own words."""
        for peer in self.peers:
            if peer.name not in names or peer.name in self.absent:
                continue
            if time.monotonic() > self.end:
                self.absent[f"{peer.name}: {what}"] = "not run: out of time"
                self.save()
                continue
            began = time.monotonic()
            peer.options = {}
            try:
                fn(peer)
            except Exception as e:  # one product must not take the others with it
                self.absent[f"{peer.name}: {what}"] = f"{type(e).__name__}: {e}"
                print(f"    {peer.name}: {what}: {type(e).__name__}: {e}", flush=True)
                self.save()
            print(f"    ({peer.name}, {what}: {time.monotonic() - began:.1f} s)", flush=True)


class Side(harness.Loads):
    """Programs that run side by side under one product."""

    def __init__(self, peer: Peer) -> None:
        super().__init__(peer.setup)
        self.peer = peer
        self.logs: list[Path] = []
        self.weights: dict[float, float] = {}

    def program(self, arguments: list[str], tenant: Tenant, output: Path | None, binary: str = "") -> Path:
        """Starts one; returns where it writes its errors."""
        peer, setup = self.peer, self.setup
        log = setup.work / f"log-{time.monotonic_ns()}.txt"
        program = [] if binary == "python" else [str(setup.bin / (binary or peer.load))]
        env = {**os.environ, "OMP_NUM_THREADS": "2", "LOAD_GO": str(self.go), **peer.env(tenant)}
        with log.open("wb") as err:
            self.start(peer.command([*program, *arguments], tenant), output, env=env, stderr=err, stdout=err)
        self.logs.append(log)
        if peer.one_by_one:
            end = time.monotonic() + 15
            while not peer.ready(log) and time.monotonic() < end and self.processes[-1].poll() is None:
                time.sleep(0.02)
        return log

    def python(self, script: list[str], tenant: Tenant, output: Path) -> None:
        """Starts a Python program."""
        self.program(script, tenant, output, binary="python")

    def busy(self, kernel_us: int, seconds: float, tenant: Tenant, binary: str = "") -> Path:
        """A program that keeps the GPU busy."""
        out = self.setup.work / f"hog-{time.monotonic_ns()}.txt"
        self.program(["hog", str(self.setup.turns[kernel_us]), str(seconds), str(out)], tenant, out, binary)
        return out

    def working(self) -> int:
        """Until all of them do work; ns."""
        try:
            return self.wait_working(40)
        except RuntimeError as e:
            said = [f"exit status {p.poll()}: {tail(log)}" for p, log in zip(self.processes, self.logs, strict=True)]
            raise RuntimeError(f"{e}; {' | '.join(sorted(set(said)))[:600]}") from None

    def __exit__(self, *what: object) -> None:
        if not self.peer.kill:
            for p in self.processes:
                try:
                    p.wait(20)
                except subprocess.TimeoutExpired:
                    p.kill()
        super().__exit__(*what)

    def weight(self, tenant: Tenant) -> float:
        """What the work that a program counts is worth: a client of MPS sees only its multiprocessors, and counts in those."""
        if self.peer.name != "mps":
            return 1.0
        if tenant.share not in self.weights:
            done = subprocess.run(
                [self.setup.bin / "launches", "info"],
                env={**os.environ, **self.peer.env(tenant)},
                check=True,
                capture_output=True,
                timeout=30,
            )
            self.weights[tenant.share] = float(done.stdout) / self.setup.plots["multiprocessors"]
        return self.weights[tenant.share]

    def tracks(self, tenants: list[Tenant]) -> list[list[np.ndarray]]:
        """The work of each tenant so far, in units of the whole GPU."""
        found = [harness.progress(o) for o in self.outputs]
        return [[t * np.array([1.0, self.weight(x)])] for t, x in zip(found, tenants, strict=True)]

    def run_until(self, end_ns: int) -> None:
        """Waits until all have written down what they did by then."""
        while time.monotonic_ns() < end_ns + 100_000_000:
            time.sleep(0.02)


def percentiles(latency_us: np.ndarray) -> dict[str, float]:
    """The distribution as it goes into the results."""
    at = {f"p{q}": float(np.percentile(latency_us, q, method="higher")) for q in (1, 10, 50, 90, 99)}
    return {**at, "max": float(latency_us.max()), "jobs": int(latency_us.size)}


def sporadic(side: Side, tenant: Tenant, jobs: int) -> tuple[dict[str, float], int, int]:
    """The 100 us kernel every 10 to 11 ms; its latencies, and when it ran."""
    setup = side.setup
    out = setup.work / f"rt-{time.monotonic_ns()}.txt"
    arguments = ["rt", str(setup.turns[100]), "10000", "1000", str(jobs + 20), str(out)]
    log = side.program(arguments, tenant, None)
    process = side.processes[-1]
    try:
        process.wait(25)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"the critical program does not end; {tail(log)}") from None
    if process.returncode:
        raise RuntimeError(f"the critical program failed ({process.returncode}): {tail(log)}")
    rows = np.loadtxt(out, ndmin=2)[20:]
    return percentiles(rows[:, 1] / 1e3), int(rows[0, 0]), int(rows[-1, 0])


JOBS = 200  # of the critical program


def case_alone_latency(bench: Bench) -> None:
    """The 100 us kernel every 10 ms, alone on the card."""

    def measure(peer: Peer) -> None:
        tenant = Tenant(100, critical=True, vgpu=8)
        with peer.session([tenant], True), Side(peer) as side:
            v, _, _ = sporadic(side, tenant, JOBS)
            bench.add("100 us kernel every 10 ms, alone: p99", "us", peer, v["p99"], latency=v)

    bench.each(["stock"], "alone_latency", measure)


def latency_beside(bench: Bench, peer: Peer, note: str, seconds: float) -> None:
    """One product's sporadic task beside three programs with 20 ms kernels."""
    hogs = [Tenant(25, vgpu=i + 1) for i in range(3)]
    critical = Tenant(100, critical=True, vgpu=8)
    with peer.session([*hogs, critical], True), Side(peer) as side:
        for t in hogs:
            side.weight(t)
            side.busy(20000, seconds, t)
        side.working()
        time.sleep(0.3)
        v, a, b = sporadic(side, critical, 80 if peer.name == "mps" else JOBS)
        rate = float(harness.work_in(side.tracks(hogs), a, b).sum() / (b - a) * 1e9)
    case = "sporadic 100 us kernel beside 3 x 20 ms"
    bench.add(f"{case}: p50", "us", peer, v["p50"], note)
    bench.add(f"{case}: p99", "us", peer, v["p99"], note, latency=v)
    if peer.name == "stock":
        bench.setup.plots["busy"] = rate
    base = bench.setup.plots.get("busy")
    bench.add(f"{case}: best-effort work", "% of stock", peer, 100 * rate / base if base else None, note, rate=rate)


def case_latency(bench: Bench) -> None:
    """A sporadic 100 us kernel beside three programs with 20 ms kernels."""

    def measure(peer: Peer) -> None:
        if peer.name == "xsched":
            for note, options in (
                ("level 1", {"XSCHED_AUTO_XQUEUE_THRESHOLD": "1", "XSCHED_AUTO_XQUEUE_BATCH_SIZE": "1"}),
                (
                    "level 3 TSG",
                    {
                        "XSCHED_AUTO_XQUEUE_LEVEL": "3",
                        "XSCHED_CUDA_LV3_IMPL": "TSG",
                        "XSCHED_AUTO_XQUEUE_THRESHOLD": "4",
                        "XSCHED_AUTO_XQUEUE_BATCH_SIZE": "2",
                    },
                ),
            ):
                peer.options = options
                try:
                    latency_beside(bench, peer, note, 16)
                except RuntimeError as e:
                    bench.absent[f"xsched: latency, {note}"] = str(e)
                    print(f"    xsched: latency, {note}: {e}", flush=True)
            return
        latency_beside(bench, peer, "", 10 if peer.name == "mps" else 16)

    bench.each(["stock", "rtxg", "xsched", "mps"], "latency", measure)


def case_levels(bench: Bench) -> None:
    """Which of XSched's preemption levels work on this card."""

    def measure(peer: Peer) -> None:
        tenant = Tenant(100)
        kinds = {
            "level 2": {"XSCHED_AUTO_XQUEUE_LEVEL": "2"},
            "level 3 TRAP": {"XSCHED_AUTO_XQUEUE_LEVEL": "3", "XSCHED_CUDA_LV3_IMPL": "TRAP"},
        }
        with peer.session([tenant], True), Side(peer) as side:
            for options in kinds.values():
                peer.options = options
                side.busy(1000, 1, tenant)
            for (note, options), p, log in zip(kinds.items(), side.processes, side.logs, strict=True):
                peer.options = options
                try:
                    said = f"exit status {p.wait(12)}"
                except subprocess.TimeoutExpired:
                    said = "does not end"
                words = [x for x in log.read_text(errors="replace").splitlines() if "[XSCHED INFO" not in x]
                wrong = [x.split("] ", 1)[-1].split(" @ ")[0] for x in words][:4]
                bench.add("XSched's own words at this level", "", peer, said, note, warnings=wrong)
                print("        " + " / ".join(wrong))

    bench.each(["xsched"], "levels", measure)


def shares(bench: Bench, kernel_us: int) -> None:
    """60/20/10/10 under every product."""
    case = f"60/20/10/10 with {kernel_us / 1000:g} ms kernels"

    def measure(peer: Peer) -> None:
        tenants = [Tenant(d, vgpu=i + 1) for i, d in enumerate(DUE)]
        if peer.name == "xsched":  # a turn has to hold some kernels of the smallest tenant
            peer.options = {
                "XSCHED_AUTO_XQUEUE_TIMESLICE": "100000" if kernel_us > 5000 else "20000",
                "XSCHED_AUTO_XQUEUE_THRESHOLD": "2",
                "XSCHED_AUTO_XQUEUE_BATCH_SIZE": "1",
            }
        settle, length = {"hami": (3.0, 5.0)}.get(peer.name, (0.8, 3.2))
        with peer.session(tenants, False), Side(peer) as side:
            weights = [side.weight(t) for t in tenants]
            for t in tenants:
                side.busy(kernel_us, 9 if peer.name == "mps" else 40, t)
            t0 = side.working() + int(settle * 1e9)
            t1 = t0 + int(length * 1e9)
            side.run_until(t1)
            tracks = side.tracks(tenants)
        worst, got = harness.worst_window(tracks, DUE, t0, t1)
        rate = float(harness.work_in(tracks, t0, t1).sum() / length)
        if peer.name == "stock":
            bench.setup.plots[case] = rate
        base = bench.setup.plots.get(case)
        bench.add(f"{case}: worst 1 s window", "points", peer, worst, shares=got, parts_of_the_gpu=weights)
        bench.add(f"{case}: work", "% of stock", peer, 100 * rate / base if base else None, rate=rate)

    bench.each(["stock", "rtxg", "xsched", "hami", "mps"], f"shares, {kernel_us} us", measure)


def case_shares20ms(bench: Bench) -> None:
    """60/20/10/10 with 20 ms kernels."""
    shares(bench, 20000)


def case_shares1ms(bench: Bench) -> None:
    """60/20/10/10 with 1 ms kernels."""
    shares(bench, 1000)


def case_alone(bench: Bench) -> None:
    """A program alone: what a launch costs."""
    kinds = {
        "empty kernels, each waited for": ("one", "0", "20000"),
        "empty kernels, enqueued": ("many", "0", "50000"),
        "100 us kernels, each waited for": ("one", "", "5000"),
        "100 us kernels, enqueued": ("many", "", "5000"),
    }

    def measure(peer: Peer) -> None:
        tenant = Tenant(100)
        with peer.session([tenant], False):
            for title, (how, turns, jobs) in kinds.items():
                command = [str(bench.setup.bin / "launches"), how, turns or str(bench.own_turns // 10), jobs]
                done = subprocess.run(
                    peer.command(command, tenant),
                    env={**os.environ, **peer.env(tenant)},
                    check=False,
                    capture_output=True,
                    text=True,
                    timeout=30,
                )
                if done.returncode:
                    raise RuntimeError(f"{title}: {done.stderr.strip()[-300:]}")
                v = json.loads([x for x in done.stdout.splitlines() if x.startswith("{")][-1])
                value = v.get("p50", v.get("each")) / 1e3
                case = f"alone, {title}"
                if peer.name == "stock":
                    bench.setup.plots[case] = value
                base = bench.setup.plots.get(case)
                more = 100 * (value / base - 1) if base else None
                bench.add(case, "us a kernel", peer, value, slower_percent=more, ns=v)

    bench.each(["stock", "rtxg", "xsched", "hami", "mps"], "alone", measure)


def two(bench: Bench, title: str, names: list[str], start: Callable[[Side, Tenant], None]) -> None:
    """80/20 for two programs of a kind that a product may not govern: the first one's share."""

    def measure(peer: Peer) -> None:
        tenants = [Tenant(80, vgpu=1), Tenant(20, vgpu=2)]
        if peer.name == "xsched":
            peer.options = {
                "XSCHED_AUTO_XQUEUE_TIMESLICE": "50000",
                "XSCHED_AUTO_XQUEUE_THRESHOLD": "2",
                "XSCHED_AUTO_XQUEUE_BATCH_SIZE": "1",
            }
        settle, length = (3.0, 3.0) if peer.name == "hami" else (0.8, 2.0)
        with peer.session(tenants, False), Side(peer) as side:
            for t in tenants:
                start(side, t)
            t0 = side.working() + int(settle * 1e9)
            t1 = t0 + int(length * 1e9)
            side.run_until(t1)
            work = harness.work_in([[harness.progress(o)] for o in side.outputs], t0, t1)
        bench.add(f"80/20, {title}: share of the first", "%", peer, 100 * work[0] / work.sum(), rates=list(work / length))

    bench.each(names, title, measure)


def case_governed(bench: Bench) -> None:
    """Programs that a product may not see: CUDA graphs, the legacy default stream."""

    def graph(side: Side, tenant: Tenant) -> None:
        out = side.setup.work / f"hog-{time.monotonic_ns()}.txt"
        side.program(["graph", str(bench.own_turns), "30", str(out)], tenant, out, "launches")

    def legacy(side: Side, tenant: Tenant) -> None:
        side.busy(1000, 30, tenant, "load")

    two(bench, "CUDA graphs", ["stock", "rtxg", "xsched", "hami"], graph)
    two(bench, "legacy default stream", ["rtxg", "xsched", "hami"], legacy)


def case_one_tenant(bench: Bench) -> None:
    """A program alone: held to a cap of 30 %; and with a share of 60 %, does it get what no other program wants?"""

    def measure(peer: Peer, tenant: Tenant, case: str, settle: float, length: float) -> None:
        with peer.session([tenant], False), Side(peer) as side:
            side.weight(tenant)
            side.busy(1000, settle + length + 1.5, tenant)
            t0 = side.working() + int(settle * 1e9)
            t1 = t0 + int(length * 1e9)
            side.run_until(t1)
            tracks = side.tracks([tenant])
            rate = float(harness.work_in(tracks, t0, t1).sum() / length)
            said = [x for x in side.logs[0].read_text(errors="replace").splitlines() if "userutil" in x][-30::6]
        if peer.name == "stock":
            bench.setup.plots["free"] = rate
            return
        free = bench.setup.plots["free"]
        seconds = [t0 + i * harness.WINDOW_NS for i in range(int(length))]
        each = [100 * float(harness.work_in(tracks, t, t + harness.WINDOW_NS).sum()) / free for t in seconds]
        bench.add(case, "% of its speed", peer, 100 * rate / free, each_second=each, said=said)

    def cap(peer: Peer) -> None:
        if peer.name == "hami":
            peer.options = {"LIBCUDA_LOG_LEVEL": "3"}
        settle, length = (6.0, 6.0) if peer.name == "hami" else (1.0, 3.0)
        measure(peer, Tenant(30, cap=True), "cap of 30 % on a program with 1 ms kernels, alone", settle, length)

    def idle(peer: Peer) -> None:
        case = "share of 60 % while nobody else wants the GPU, 1 ms kernels"
        measure(peer, Tenant(60), case, 1.0, 2.0)

    bench.each(["stock", "rtxg", "hami", "mps"], "cap", cap)
    bench.each(["rtxg", "xsched", "mps"], "idle", idle)


def case_torch(bench: Bench) -> None:
    """80/20 for two PyTorch programs, ResNet-50 launched kernel by kernel."""

    def measure(peer: Peer) -> None:
        tenants = [Tenant(80, vgpu=1), Tenant(20, vgpu=2)]
        if peer.name == "xsched":
            peer.options = {"XSCHED_AUTO_XQUEUE_TIMESLICE": "50000"}
        with peer.session(tenants, False), Side(peer) as side:
            for t in tenants:
                out = bench.setup.work / f"torch-{time.monotonic_ns()}.txt"
                script = [sys.executable, str(harness.LOADS / "torch_load.py"), "eager", "8", str(out)]
                side.python(script, t, out)
            t0 = side.working() + 1_500_000_000
            t1 = t0 + 4 * harness.WINDOW_NS
            side.run_until(t1)
            rows = [harness.progress(o)[:, 0] for o in side.outputs]
        done = [int(((r >= t0) & (r < t1)).sum()) for r in rows]
        bench.add("80/20, PyTorch eager: share of the first", "%", peer, 100 * done[0] / sum(done), iterations=done)

    bench.each(["stock", "rtxg", "xsched", "hami"], "torch", measure)


CASES: dict[str, Callable[[Bench], None]] = {name[5:]: fn for name, fn in list(globals().items()) if name.startswith("case_")}


def build_loads(bin_dir: Path) -> None:
    """The loads that are missing, with nvcc."""
    wanted = {
        "load": ("load.cu", []),
        "load-ptds": ("load.cu", ["--default-stream", "per-thread"]),
        "launches": ("launches.cu", []),
    }
    for name, (source, more) in wanted.items():
        if not (bin_dir / name).exists():
            if not shutil.which("nvcc"):
                raise SystemExit(f"peers.py: {bin_dir / name} is missing and there is no nvcc to build it")
            bin_dir.mkdir(parents=True, exist_ok=True)
            command = ["nvcc", "-O2", "-arch=native", *more, "-o", str(bin_dir / name), str(HERE / source)]
            subprocess.run(command, check=True)


def table(bench: Bench) -> None:
    """The measurements as a table in Markdown."""
    columns: list[str] = []
    for line in bench.lines:
        columns += [c for c in line["values"] if c not in columns]
    print(f"\n| case | unit | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 2)}")
    for line in bench.lines:
        cells = [str(line["values"].get(c, "")) for c in columns]
        print(f"| {line['case']} | {line['unit']} | {' | '.join(cells)} |")
    for what, why in bench.absent.items():
        print(f"not measured: {what}: {why}")


def main() -> int:
    """Runs the cases asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, default=ROOT / "build" / "gpu")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--xsched", type=Path, default=os.environ.get("RTXG_PEER_XSCHED"))
    parser.add_argument("--hami", type=Path, default=os.environ.get("RTXG_PEER_HAMI"))
    parser.add_argument("--case", default=os.environ.get("CASE", ""))
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    end = time.monotonic() + args.seconds
    if args.list:
        for name, fn in CASES.items():
            print(f"{name:14} {(fn.__doc__ or '').splitlines()[0]}")
        return 0
    chosen = [c for c in args.case.split(",") if c] or list(CASES)
    for c in chosen:
        if c not in CASES:
            print(f"peers.py: no case '{c}': one of {', '.join(CASES)}", file=sys.stderr)
            return 2
    name = harness.identify()
    if not name:
        print("skipped: no NVIDIA GPU here (no /dev/nvidiactl, or nvidia-smi does not answer)")
        return harness.SKIPPED
    if os.geteuid() != 0:
        print("skipped: the NVIDIA lever needs root")
        return harness.SKIPPED
    build_loads(args.bin)
    with tempfile.TemporaryDirectory(prefix="rtxg-peers-") as work:
        setup = harness.Setup(args.bin.resolve(), args.out.resolve(), Path(work), name=name, current="peers")
        setup.out.mkdir(parents=True, exist_ok=True)
        # The driver keeps the GPU initialised while a program has it open: without this every program waits for that first.
        nodes = [os.open(n, os.O_RDWR) for n in ("/dev/nvidia0",) if os.path.exists(n)]
        done = subprocess.run([setup.bin / "load", "calibrate", "1000"], check=True, capture_output=True, text=True)
        for us in (100, 1000, 20000):
            setup.turns[us] = int(done.stdout) * us // 1000
        probe = 1_000_000
        done = subprocess.run([setup.bin / "launches", "many", str(probe), "200"], check=True, capture_output=True)
        own_turns = int(probe * 1e6 / json.loads(done.stdout)["each"])
        found = subprocess.run([setup.bin / "launches", "info"], check=True, capture_output=True, text=True)
        harness.allow_real_time()
        before = len(harness.xids())
        homes = {"xsched": args.xsched, "hami": args.hami, "rtxg": setup.bin}
        peers = [P(setup, homes.get(P.name)) for P in PEERS]
        head = {
            "machine": name,
            "command": f"bench/gpu/peers.py --xsched DIR --hami DIR{f' --case {args.case}' if args.case else ''}",
            "commits": {p.name: p.told("COMMIT") for p in peers if p.told("COMMIT")},
            "notes": {p.name: p.told("NOTES") for p in peers if p.told("NOTES")},
            "multiprocessors": int(found.stdout),
        }
        setup.plots["multiprocessors"] = head["multiprocessors"]
        bench = Bench(setup, peers, head, end=end, own_turns=own_turns)
        for peer in peers:
            try:
                peer.check()
            except UnavailableError as e:
                bench.absent[peer.name] = str(e)
        for c in chosen:
            print(f"{c}: {(CASES[c].__doc__ or '').splitlines()[0]}", flush=True)
            CASES[c](bench)
        lines = harness.xids()[before:]
        bench.head["xids"] = lines
        bench.save()
        table(bench)
        print(f"Xids in the kernel log meanwhile: {len(lines)}")
        for fd in nodes:
            os.close(fd)
    return 0


if __name__ == "__main__":
    sys.exit(main())
