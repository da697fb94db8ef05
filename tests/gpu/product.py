# SPDX-License-Identifier: MIT
"""The product as people use it: `rtxgd --system` with the NVIDIA lever, and `rtxg`.

May not: reach into the daemon. All that is asked of it goes through `rtxg` or the control protocol
(docs/reference/protocol.md), and the programs are started with `rtxg run`.
"""

from __future__ import annotations

import array
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from harness import LOADS, STEP_NS, WINDOW_NS, Loads, Setup, work_in

#: how long the daemon may take to try what the card can do
START_S = 40.0
Reply = dict[str, Any]


#: Looked up here: a child of one of several threads is to find it, and not to load anything.
PRCTL = ctypes.CDLL(None, use_errno=True).prctl


def dies_with_us() -> None:
    """In a child, before it becomes its program: it is not to outlive the thread that started it,
    so nor the harness, even killed."""
    PRCTL(1, signal.SIGKILL)


def ask(path: Path | str, op: str, **members: Any) -> Reply:
    """One request to the daemon at that socket, and its reply."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.settimeout(10)
        s.connect(str(path))
        s.send(json.dumps({"op": op} | members).encode())
        data, ancillary, _, _ = s.recvmsg(1 << 17, 1024)
    fds = array.array("i")
    for _, _, raw in ancillary:
        fds.frombytes(raw[: len(raw) // 4 * 4])
    try:
        reply: Reply = json.loads(data)
        if "memfd" in reply:
            reply = json.loads(os.pread(fds[0], reply["memfd"], 0))
    finally:
        for fd in fds:
            os.close(fd)
    if not reply.get("ok"):
        raise RuntimeError(f"rtxgd: {op}: {reply.get('message', reply)}")
    return reply


def cpu_ns(pid: int) -> int:
    """CPU time of all threads of a process, in ns; 0 if it is gone."""
    total = 0
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            total += int((task / "schedstat").read_text(encoding="ascii").split()[0])
    except (OSError, IndexError, ValueError):
        pass
    return total


def descendants(pid: int) -> list[int]:
    """The processes that one has started, and theirs."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(text[text.rindex(")") + 2 :].split()[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


@dataclass
class Timeline:
    """What the lever saw and did: the last 65536 events."""

    begin: int  # CLOCK_MONOTONIC ns of the oldest and the newest event
    end: int
    #: a stay is told when it ends: what is on the engine after this is not known yet
    known: int = 0
    stays: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # by pid
    stopped: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # by pid
    acts: dict[int, dict[str, int]] = field(default_factory=dict)  # by pid: kind -> how often
    ends: dict[str, list[int]] = field(default_factory=dict)  # of acts, by kind, in order

    @classmethod
    def of(cls, events: list[Reply], gpu: str = "nvidia0") -> Timeline:
        """The daemon's list, sorted by what is asked of it here."""
        mine = [e for e in events if e["gpu"] == gpu]
        times = [e["end_ns"] for e in mine] or [0]
        stays = [e["end_ns"] for e in mine if e["kind"] == "stay"]
        line = cls(min((e["start_ns"] for e in mine), default=0), max(times), max(stays, default=0))
        since: dict[int, int] = {}
        for e in sorted(mine, key=lambda e: e["end_ns"]):
            pid, kind = e["pid"], e["kind"]
            if kind == "stay":
                line.stays.setdefault(pid, []).append((e["start_ns"], e["end_ns"]))
                continue
            acts = line.acts.setdefault(pid, {})
            acts[kind] = acts.get(kind, 0) + 1
            line.ends.setdefault(kind, []).append(e["end_ns"])
            if kind == "stop":
                since.setdefault(pid, e["end_ns"])
            elif kind in ("resume", "went") and pid in since:
                line.stopped.setdefault(pid, []).append((since.pop(pid), e["start_ns"]))
        for pid, at in since.items():
            line.stopped.setdefault(pid, []).append((at, line.end))
        return line


    def by_second(self, begin: int) -> dict[str, list[int]]:
        """How many acts of each kind ended in each second from `begin` on."""
        found = {}
        for kind, ends in self.ends.items():
            seconds = [(at - begin) // 1_000_000_000 for at in ends if at >= begin]
            found[kind] = [seconds.count(n) for n in range(max(seconds, default=-1) + 1)]
        return found


def long_waits(metrics: Reply, gpu: str, bound_ns: float) -> dict[str, int]:
    """The daemon's count of waits above a bound, by vGPU; of those that have a bound on that GPU.

    `metrics` is the reply of that name. Waits are counted by limits: those above the least limit
    that is not below the bound count.
    """
    found: dict[str, int] = {}
    for row in metrics["vgpus"]:
        cells = dict(zip(metrics["vgpu_columns"], row.split("/"), strict=True))
        if cells["gpu"] != gpu or cells["more"] == "-":
            continue
        waits = metrics["more"][int(cells["more"])].get("waits")
        if waits:
            above = zip(waits["counts"][1:], waits["limits_ns"], strict=True)
            found[cells["vgpu"]] = sum(n for n, at in above if at >= bound_ns)
    return found


class Product:
    """`rtxgd --system`, as long as the block lasts. It can be ended and started meanwhile."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        # Of the configuration and of what outlives a daemon: none of the machine's own, and none
        # of a case before this one.
        self.root = setup.work / f"root-{time.monotonic_ns()}"
        for part in ("etc/rtxg", "run/rtxg", "usr/lib/rtxg"):
            (self.root / part).mkdir(parents=True, exist_ok=True)
        self.socket = self.root / "rtxgd.sock"
        self.log = setup.work / f"rtxgd-{time.monotonic_ns()}.log"
        self.use(setup.bin)
        self.process: subprocess.Popen[bytes] | None = None
        self.starts: list[float] = []  # how long each start took, s
        self.up = threading.Event()  # it governs

    def use(self, build: Path) -> None:
        """The programs that are started from now on: those of the build in this folder."""
        setup = self.setup
        self.rtxgd = setup.program("rtxgd", "daemon", build)
        self.tool = setup.program("rtxg", "cli", build)
        levers = setup.program("rtxg-guardian", "levers/nvidia", build).parent
        self.env = {
            **os.environ,
            "RTXG_SOCKET": str(self.socket),
            "PATH": f"{build}:{levers}:{os.environ.get('PATH', '')}",
        }
        if (build / "lib").exists():
            libs = f"{build / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}"
            self.env["LD_LIBRARY_PATH"] = libs

    def start(self) -> Product:
        """Starts it, and returns when it governs the GPU."""
        began = time.monotonic()
        self.socket.unlink(missing_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [self.rtxgd, "--system", "--socket", self.socket, "--config-root", self.root],
                env=self.env,
                stdout=log,
                stderr=log,
                preexec_fn=dies_with_us,
            )
        why = "no answer"
        while time.monotonic() < began + START_S and self.process.poll() is None:
            try:
                gpus = {g["gpu"]: g for g in ask(self.socket, "gpu-list")["gpus"]}
            except (OSError, ValueError, RuntimeError) as e:
                why = str(e)
                time.sleep(0.02)
                continue
            if gpus.get("nvidia0", {}).get("policy", "none") != "none":
                self.starts.append(time.monotonic() - began)
                self.up.set()
                return self
            why = "it does not govern nvidia0"
            break
        said = self.said()
        self.kill()
        raise RuntimeError(f"rtxgd does not start: {why}; {said[-600:]}")

    def stop(self) -> None:
        """Ends it as a service manager does: nothing stays stopped or sliced."""
        self.up.clear()
        if not self.process:
            return
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                print("    rtxgd did not end within 15 s of SIGTERM: killed", flush=True)
                self.process.kill()
                self.process.wait(15)
        self.process = None

    def kill(self) -> None:
        """kill -9."""
        self.up.clear()
        if self.process:
            self.process.kill()
            self.process.wait(15)
        self.process = None

    def __enter__(self) -> Product:
        return self.start()

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            if self.log.exists():
                shutil.copy(self.log, self.setup.out / f"last-{self.setup.current}.log")

    def said(self) -> str:
        """What it has logged so far."""
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def rtxg(self, *words: str, check: bool = True) -> str:
        """The command-line tool's output."""
        done = subprocess.run(
            [self.tool, *words],
            env=self.env,
            check=False,
            capture_output=True,
            text=True,
            timeout=30,
        )
        if done.returncode and check:
            raise RuntimeError(f"rtxg {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def knows(self, option: str, *command: str) -> bool:
        """Does this product have that option? (Its help says so.)"""
        return option in self.rtxg(*command, "--help", check=False)

    def vgpu(self, name: str, **values: str | int | None) -> None:
        """Makes a vGPU, or gives it these values if a daemon before this one had it."""
        words = [f"--{k.replace('_', '-')}={v}" for k, v in values.items() if v is not None]
        there = {v["vgpu"] for v in ask(self.socket, "vgpu-list")["vgpus"]}
        if name not in there:
            self.rtxg("vgpu", "create", *words, name)
        elif words:
            self.rtxg("vgpu", "set", *words, name)

    def promise(self, name: str, *ways: dict[str, str | int]) -> str:
        """Gives a vGPU the first of these promises that this product can make here; says which.

        A bound is refused where it could not be kept; what was said then is printed.
        """
        for values in ways:
            said = " ".join(f"--{k} {v}" for k, v in values.items())
            if "latency" in values and not self.knows("--latency", "vgpu", "create"):
                continue
            try:
                self.vgpu(name, **values)
                return said
            except RuntimeError as e:
                print(f"    {said}: refused: {e}", flush=True)
        raise RuntimeError(f"no promise for {name} was accepted")

    def run(self, vgpu: str, command: list[str], *options: str) -> list[str]:
        """A command as it is started in a vGPU. The pid becomes the program's."""
        return [str(self.tool), "run", "--no-layer", *options, "-v", vgpu, "--", *command]

    def ask(self, op: str, **members: Any) -> Reply:
        """One request to it."""
        return ask(self.socket, op, **members)

    def tasks(self, gpu: str = "nvidia0") -> dict[int, Reply]:
        """The processes that the lever knows of on that GPU, by pid."""
        listed = self.ask("task-list", gpu=gpu)["tasks"]
        return {t["pid"]: t for t in listed if t.get("lever") == "nvidia"}

    def gpu(self) -> Reply:
        """The first GPU's counters."""
        return next(g for g in self.ask("stats")["gpus"] if g["gpu"] == "nvidia0")

    def vgpus(self) -> dict[str, Reply]:
        """Counters of the compute engine of each vGPU of the first GPU, by name."""
        return {v["vgpu"]: v["engines"][0] for v in self.gpu()["vgpus"]}

    def long_waits(self, bound_ns: float, gpu: str = "nvidia0") -> dict[str, int]:
        """How often work of each vGPU with a bound waited for longer than that on that GPU."""
        return long_waits(self.ask("metrics"), gpu, bound_ns)

    def timeline(self) -> Timeline:
        """What it saw and did. To be asked after a measurement: a long list holds the daemon up."""
        return Timeline.of(self.ask("timeline")["events"])

    def pids(self) -> list[int]:
        """The daemon, its guardian and what else it needs beside it."""
        if not self.process:
            return []
        return [self.process.pid, *descendants(self.process.pid)]


class Programs(Loads):
    """Programs that run side by side, each in a vGPU if a product is given; killed at the end."""

    def begin(
        self,
        command: list[str],
        output: Path | None,
        product: Product | None = None,
        vgpu: str | None = None,
        *options: str,
        said: Path | None = None,
        **env: str,
    ) -> subprocess.Popen[bytes]:
        """Starts one; what it prints goes to `said`."""
        more = {**(product.env if product else os.environ), "OMP_NUM_THREADS": "2", **env}
        if product and vgpu:
            command = product.run(vgpu, command, *options)
        if not said:
            return self.start(command, output, env=more, preexec_fn=dies_with_us)
        with said.open("ab") as file:
            return self.start(
                command, output, env=more, stdout=file, stderr=file, preexec_fn=dies_with_us
            )

    def load(self, *words: str | float) -> list[str]:
        """The command of a CUDA load."""
        return [str(self.setup.bin / "load"), *map(str, words)]

    def busy(
        self,
        kernel_us: int,
        seconds: float,
        product: Product | None = None,
        vgpu: str | None = None,
        **env: str,
    ) -> Path:
        """A program that keeps the GPU busy; its output."""
        out = self.setup.work / f"hog-{time.monotonic_ns()}.txt"
        command = self.load("hog", self.setup.turns_of(kernel_us), seconds, out)
        self.begin(command, out, product, vgpu, **env)
        return out

    def sporadic(
        self,
        seconds: float,
        product: Product | None = None,
        vgpu: str | None = None,
        *options: str,
        period_us: int = 10000,
        jitter_us: int = 1000,
    ) -> tuple[subprocess.Popen[bytes], Path]:
        """Starts the 100 us kernel every 10 to 11 ms; the process and its output."""
        out = self.setup.work / f"rt-{time.monotonic_ns()}.txt"
        jobs = max(20, int(seconds * 1e6 / (period_us + jitter_us / 2)))
        turns = self.setup.turns_of(100)
        command = self.load("rt", turns, period_us, jitter_us, jobs, out)
        said = self.setup.work / "rt-said.txt"
        return self.begin(command, None, product, vgpu, *options, said=said), out

    def end(self) -> None:
        """Ends all that still run."""
        for p in self.processes:
            if p.poll() is None:
                p.kill()
        for p in self.processes:
            p.wait(20)


@contextmanager
def daemon_and_programs(setup: Setup) -> Iterator[tuple[Product, Programs]]:
    """Both; programs that are held still go on in the end, however that comes."""
    product = Product(setup)
    with Programs(setup) as programs:
        try:
            product.start()
            yield product, programs
        finally:
            for pid in [p.pid for p in programs.processes if p.poll() is None]:
                os.kill(pid, signal.SIGCONT)
            product.__exit__()


def python(name: str, *words: str | Path | float) -> list[str]:
    """The command of a load that is a Python program."""
    return [sys.executable, str(LOADS / name), *map(str, words)]


class CpuMeter:
    """CPU that the daemon and its own processes used in a stretch of time, percent of one CPU."""

    def __init__(self, product: Product) -> None:
        self.pids = product.pids()
        self.began, self.before = time.monotonic_ns(), [cpu_ns(p) for p in self.pids]

    def percent(self) -> float:
        """Since it was made, all together."""
        return sum(self.parts())

    def parts(self) -> list[float]:
        """The daemon first."""
        length = max(time.monotonic_ns() - self.began, 1)
        used = [cpu_ns(p) - b for p, b in zip(self.pids, self.before, strict=True)]
        return [100.0 * u / length for u in used]


class Watch:
    """Looks again and again, from a thread, at which processes the daemon says it cannot govern."""

    def __init__(self, product: Product, every_s: float = 0.5) -> None:
        self.product, self.every_s = product, every_s
        self.seen: dict[int, Reply] = {}  # the last that was said of each pid
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self.look, daemon=True)

    def look(self) -> None:
        while not self.ends.wait(self.every_s):
            try:
                self.seen |= self.product.tasks()
            except (OSError, RuntimeError, ValueError):
                continue  # it is being started again

    def __enter__(self) -> Watch:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ends.set()
        self.thread.join(15)


def flips(spans: list[tuple[int, int]], begin: int, end: int) -> list[tuple[int, int]]:
    """Spans of time as (when, +1 or -1), cut to the window."""
    cut = [(max(a, begin), min(b, end)) for a, b in spans if b > begin and a < end]
    return [x for a, b in cut if b > a for x in ((a, 1), (b, -1))]


def idle_while_wanted(
    line: Timeline, works: dict[int, list[tuple[int, int]]], begin: int, end: int
) -> dict[str, Any]:
    """How long nothing was done on the GPU while a stopped process had work, in percent.

    The switch log says which process is on the engine, and the programs say when they had work
    outstanding (`works`, by pid). Nothing is done while the process on the engine has none, or
    no process is there. A gap of less than 300 us between two stays is the switch itself, and is
    told apart. A process that says nothing of its work counts as working while on the engine.
    """
    begin, end = max(begin, line.begin), min(end, line.known)
    changes: list[tuple[int, int, str, int]] = []  # when, pid, what, by how much
    for kind, spans_of in (("on", line.stays), ("stopped", line.stopped), ("work", works)):
        for pid, spans in spans_of.items():
            changes += [(at, pid, kind, by) for at, by in flips(spans, begin, end)]
    changes.sort()
    state: dict[tuple[int, str], int] = {}
    useful = waiting = 0
    idle = switching = 0
    since: int | None = None
    holder = 0
    there: dict[int, int] = {}  # idle ns by who was on the engine; 0: no process
    for at, pid, kind, by in changes:
        before = (
            bool(state.get((pid, "on")) and (pid not in works or state.get((pid, "work")))),
            bool(state.get((pid, "stopped")) and state.get((pid, "work"))),
        )
        state[pid, kind] = state.get((pid, kind), 0) + by
        after = (
            bool(state.get((pid, "on")) and (pid not in works or state.get((pid, "work")))),
            bool(state.get((pid, "stopped")) and state.get((pid, "work"))),
        )
        was = not useful and waiting > 0
        useful += after[0] - before[0]
        waiting += after[1] - before[1]
        now = not useful and waiting > 0
        if now and not was:
            since = at
            holder = next((p for (p, k), n in state.items() if k == "on" and n), 0)
        elif was and not now and since is not None:
            if at - since < 300_000:
                switching += at - since
            else:
                idle += at - since
                there[holder] = there.get(holder, 0) + at - since
            since = None
    if since is not None:
        idle += end - since
        there[holder] = there.get(holder, 0) + end - since
    length = max(end - begin, 1)
    by_pid = {pid: 100 * ns / length for pid, ns in there.items()}
    return {
        "percent_by_pid_on_the_engine": by_pid,
        "idle_percent": 100 * idle / length,
        "switching_percent": 100 * switching / length,
        "seconds": length / 1e9,
    }


def overlap(spans: list[tuple[int, int]], begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """How much of each of the times from `begin` to `end` the spans cover; all in ns.

    The spans do not overlap each other.
    """
    if not spans:
        return np.zeros(len(begin), dtype=np.int64)
    from_, to = np.array(sorted(spans), dtype=np.int64).T
    before = np.concatenate([[0], np.cumsum(to - from_)])

    def covered(until: np.ndarray) -> np.ndarray:
        """Up to then."""
        last = np.searchsorted(from_, until, side="right") - 1
        there = np.clip(last, 0, None)
        part = np.clip(np.minimum(until, to[there]) - from_[there], 0, None)
        return np.where(last < 0, 0, before[there] + part)

    return covered(end) - covered(begin)


def core_idle_ns(product: Product) -> int | None:
    """The core's own count of that time, or None where the product does not tell."""
    gpu = product.gpu()
    return next((v for k, v in gpu.items() if "idle" in k and k.endswith("_ns")), None)


def windows_right(
    tracks: list[list[np.ndarray]], due: list[float], begin: int, end: int, most: float
) -> float | None:
    """Seconds from begin until the first of the windows of 1 s that are all right from there on."""
    late: float | None = None
    t = end - WINDOW_NS
    while t >= begin:
        w = work_in(tracks, t, t + WINDOW_NS)
        if w.sum() <= 0 or np.abs(w / w.sum() * 100 - np.array(due)).max() > most:
            break
        late = (t - begin) / 1e9
        t -= STEP_NS
    return late
