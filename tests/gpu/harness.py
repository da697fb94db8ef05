# SPDX-License-Identifier: MIT
"""The base of the cases on a GPU: the lever's host, the loads, and the measurements.

Shares: the CUDA loads count their completed work (chunks of about 20 us at full speed) every 5 ms.
So a share is a share of completed work, counted by the programs, and does not rest on the lever's
measurements. Iterations of PyTorch are too coarse for that. A PyTorch load's share is the GPU time
in the driver's context-switch log, and the results name the iterations too. The error of a window is
the largest difference, over tenants and over all windows of 1 s (in steps of 50 ms), between a
tenant's share and its due, in percent points.
"""

from __future__ import annotations

import datetime
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
LOADS = ROOT / "bench" / "gpu"
SKIPPED = 77  # exit status where there is nothing to run on
WINDOW_NS = 1_000_000_000
STEP_NS = 50_000_000
#: of a stay that was cut short: restoring and saving, no work (by the hogs' own counts)
SAVE_NS = 130_000.0


class Line(NamedTuple):
    """One line of the results."""

    case: str
    unit: str
    stock: Any
    rtxg: Any
    aim: str = "-"
    met: bool | None = None  # None: there is no aim, or it could not be tried
    detail: dict[str, Any] = {}  # noqa: RUF012


@dataclass
class Setup:
    """The common parts of all cases: programs, calibration, and the place of the results."""

    bin: Path
    out: Path
    work: Path
    turns: dict[int, int] = field(default_factory=dict)  # kernel length in us -> loop turns
    results: list[dict[str, Any]] = field(default_factory=list)
    name: str = "results"
    plots: dict[str, Any] = field(default_factory=dict)

    quick: bool = False  # short forms, of some seconds each
    soak_s: float = 300.0  # how long the soak is
    beside: list[Path] = field(default_factory=list)  # programs of other builds, as `bin`

    def builds(self) -> dict[str, Path]:
        """Where the programs of each build are, by what its lines of the results begin with."""
        return {"": self.bin} | {f"{place.name}, ": place for place in self.beside}

    def seconds(self, quick: float, long: float) -> float:
        """How long to measure."""
        return quick if self.quick else long

    def turns_of(self, us: int) -> int:
        """Turns of the loads' loop for a kernel of that length."""
        if us not in self.turns:
            self.turns[us] = int(self.turns[1000] * us / 1000)
        return self.turns[us]

    def save(self) -> None:
        """Writes what there is so far."""
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / f"{self.name}.json").write_text(json.dumps(self.results, indent=1) + "\n", encoding="ascii")

    def record(self, case: str, unit: str, stock: Any, rtxg: Any, aim: str, met: bool | None, **detail: Any) -> None:
        """Adds one line of the results, and saves."""
        line = {
            "case": case,
            "unit": unit,
            "stock": rounded(stock),
            "rtxg": rounded(rtxg),
            "aim": aim,
            "met": None if met is None else bool(met),
            "detail": {k: rounded(v) for k, v in detail.items()},
            "command": f"make gpu CASE={self.current}",
        }
        self.results.append(line)
        self.save()
        mark = "met" if met else "-" if met is None else "NOT MET"
        print(f"    {case}: stock {line['stock']} rtxg {line['rtxg']} {unit} (aim {aim}) {mark}", flush=True)

    def record_lines(self, *lines: Line) -> None:
        """Adds several lines of the results."""
        for line in lines:
            self.record(*line[:-1], **line.detail)

    current: str = ""

    def program(self, name: str, built: str, of: Path | None = None) -> Path:
        """A program of rtxg's: beside the others, or where it is built; `of` another build."""
        beside = (of or self.bin) / name
        return beside if beside.exists() else ROOT / "build" / "release" / built / name


def rounded(value: Any) -> Any:
    """Numbers as people read them: three digits after the point."""
    if isinstance(value, float | np.floating):
        return round(float(value), 3)
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, list | tuple):
        return [rounded(v) for v in value]
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    return value


class Governor:
    """The lever in its stand-alone host, for as long as the block lasts."""

    def __init__(self, setup: Setup, *options: str, probe: bool = False) -> None:
        self.setup = setup
        self.socket = str(setup.work / f"gov-{time.monotonic_ns()}.sock")
        self.log = setup.work / f"gov-{time.monotonic_ns()}.log"
        self.timeline = setup.work / f"timeline-{time.monotonic_ns()}.txt"
        self.releases = setup.work / f"releases-{time.monotonic_ns()}"
        self.options = list(options) + ([] if probe else ["--no-probe"])
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Governor:
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    self.setup.bin / "rtxg-nvgov",
                    "serve",
                    "--socket",
                    self.socket,
                    "--timeline",
                    self.timeline,
                    "--releases",
                    self.releases,
                    *self.options,
                ],
                stderr=log,
            )
        for _ in range(600):
            if b"ready" in self.log.read_bytes():
                return self
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError(f"rtxg-nvgov does not start: {self.log.read_text()}")

    def __exit__(self, *_: object) -> None:
        assert self.process
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.copy(self.log, self.setup.out / f"last-{self.setup.current}.log")

    def ctl(self, *words: str) -> str:
        """Run one command and return its answer."""
        done = subprocess.run(
            [self.setup.bin / "rtxg-nvgov", "ctl", "--socket", self.socket, *words],
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"rtxg-nvgov ctl {' '.join(words)}: {done.stderr}")
        return done.stdout

    def stats(self) -> dict[str, Any]:
        """Counters of the lever and its vGPUs."""
        return json.loads(self.ctl("stats"))

    def wrap(self, vgpu: int, command: list[str]) -> list[str]:
        """The command, run inside a vGPU."""
        return [str(self.setup.bin / "rtxg-nvgov"), "run", str(vgpu), "--socket", self.socket, "--", *command]


class Loads:
    """Programs that run side by side; killed at the end of the block."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.processes: list[subprocess.Popen[bytes]] = []
        self.outputs: list[Path] = []
        self.go = setup.work / f"go-{time.monotonic_ns()}"

    def __enter__(self) -> Loads:
        return self

    def __exit__(self, *_: object) -> None:
        for p in self.processes:
            if p.poll() is None:
                p.kill()
            p.wait()

    def start(
        self, command: list[str], output: Path | None, gov: Governor | None = None, vgpu: int | None = None, **more: Any
    ) -> subprocess.Popen[bytes]:
        """Starts one, inside a vGPU if gov is given."""
        if gov is not None and vgpu is not None:
            command = gov.wrap(vgpu, command)
        p = subprocess.Popen(command, **more)
        self.processes.append(p)
        if output is not None:
            self.outputs.append(output)
        return p

    def hog(
        self, kernel_us: int, seconds: float, gov: Governor | None = None, vgpu: int | None = None, forks: int = 1
    ) -> Path:
        """A program that keeps the GPU busy with kernels of that length; returns its output."""
        out = self.setup.work / f"hog-{time.monotonic_ns()}.txt"
        command = [str(self.setup.bin / "load"), "hog", str(self.setup.turns[kernel_us]), str(seconds), str(out)]
        self.start(command + ([str(forks)] if forks > 1 else []), None, gov, vgpu)
        self.outputs += [Path(f"{out}.{i}") for i in range(forks)] if forks > 1 else [out]
        return out

    def torch(
        self,
        kind: str,
        seconds: float,
        gov: Governor | None = None,
        vgpu: int | None = None,
        batch: int = 64,
        fifo: int = 0,
    ) -> Path:
        """A PyTorch load; returns its output."""
        out = self.setup.work / f"torch-{time.monotonic_ns()}.txt"
        command = [sys.executable, str(LOADS / "torch_load.py"), kind, str(seconds), str(out), str(batch)]
        if fifo and can_fifo():  # for all of its threads: they inherit it
            policy = ["--cpu-policy", "fifo", "--cpu-priority", str(fifo)]
            command = [str(self.setup.program("rtxg", "cli")), "run", "--no-layer", *policy, "--", *command]
        env = {**os.environ, "OMP_NUM_THREADS": "2", "LOAD_GO": str(self.go)}
        env["RTXG_SOCKET"] = str(self.setup.work / "none")  # the lever has its own host: rtxg run must not start another
        self.start(command, out, gov, vgpu, env=env)
        return out

    def wait_working(self, limit_s: float = 90) -> int:
        """Until every output has two lines; returns CLOCK_MONOTONIC ns."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            if all(o.exists() and o.read_bytes().count(b"\n") >= (1 if "torch" in o.name else 2) for o in self.outputs):
                self.go.touch()
                return time.monotonic_ns()
            if any(p.poll() not in (None, 0) for p in self.processes):
                raise RuntimeError("a load has failed")
            time.sleep(0.05)
        raise RuntimeError("the loads do not get going")

    def wait(self) -> None:
        """Until all have ended."""
        for p in self.processes:
            p.wait(timeout=200)


def progress(path: Path) -> np.ndarray:
    """(n, 2): time in ns, chunks of work done. A line that is still being written is left out."""
    rows = [line.split() for line in path.read_text(encoding="ascii").split("\n")[:-1]]
    return np.array([[float(r[0]), float(r[1])] for r in rows if len(r) == 2])


def work_in(tracks: list[list[np.ndarray]], begin: float, end: float) -> np.ndarray:
    """Work of each tenant (each a list of tracks) between two times."""
    return np.array(
        [
            sum(np.interp(end, t[:, 0], t[:, 1]) - np.interp(begin, t[:, 0], t[:, 1]) for t in tenant)
            for tenant in tracks
        ]
    )


def worst_window(
    tracks: list[list[np.ndarray]], due: list[float], begin: float, end: float
) -> tuple[float, list[float]]:
    """Largest error of a share (points) over windows of 1 s, and the shares over all of it (percent)."""
    worst = max((points for _, points in window_errors(tracks, due, begin, end)), default=0.0)
    w = work_in(tracks, begin, end)
    return worst, list(w / w.sum() * 100)


def window_errors(
    tracks: list[list[np.ndarray]], due: list[float], begin: float, end: float
) -> list[tuple[float, float]]:
    """Of each window of 1 s: its begin, s after begin, and the largest error of a share, points."""
    found = []
    t = begin
    while t + WINDOW_NS <= end:
        w = work_in(tracks, t, t + WINDOW_NS)
        found.append(((t - begin) / 1e9, float(np.abs(w / w.sum() * 100 - np.array(due)).max())))
        t += STEP_NS
    return found


def stays(timeline: Path) -> np.ndarray:
    """(n, 4) of the driver's log: vgpu, pid, start ns, end ns."""
    rows = [line.split() for line in timeline.read_text(encoding="ascii").splitlines() if line.startswith("S ")]
    return np.array([[int(r[3]), int(r[2]), int(r[4]), int(r[5])] for r in rows if len(r) == 6], dtype=np.float64)


def log_tracks(timeline: Path, vgpus: list[int]) -> list[list[np.ndarray]]:
    """Per vGPU the cumulative GPU time, from the log; the saving at the end of long stays taken off."""
    s = stays(timeline)
    tracks = []
    for v in vgpus:
        mine = s[s[:, 0] == v]
        length = mine[:, 3] - mine[:, 2]
        work = np.where(length > 900_000, length - SAVE_NS, length)
        times = np.column_stack([mine[:, 2], mine[:, 3]]).ravel()
        total = np.cumsum(work)
        tracks.append([np.column_stack([times, np.column_stack([total - work, total]).ravel()])])
    return tracks


def percentiles(latency_us: np.ndarray) -> dict[str, float]:
    """p50, p99 and maximum."""
    return {
        "p50": float(np.percentile(latency_us, 50)),
        "p99": float(np.percentile(latency_us, 99, method="higher")),
        "max": float(latency_us.max()),
        "jobs": int(latency_us.size),
    }


def critical(
    setup: Setup,
    jitter_us: int,
    jobs: int,
    gov: Governor | None = None,
    vgpu: int | None = None,
    warm: bool = False,
    skipped: int = 50,
) -> tuple[dict[str, float], int, int]:
    """The 100 us kernel every 10 ms (+ jitter): latencies in us, and when it ran (ns).

    So many jobs are `skipped` before those that count.
    """
    out = setup.work / f"rt-{time.monotonic_ns()}.txt"
    words = ["rt", setup.turns[100], 10000, jitter_us, jobs + skipped, out]
    command = [str(setup.bin / "load"), *map(str, words)]
    env = dict(os.environ)
    if gov and warm:
        library = setup.bin / "librtxg-cuda.so"
        env |= {"CUDA_INJECTION64_PATH": str(library), "RTXG_RELEASES": str(gov.releases)}
    subprocess.run(
        gov.wrap(vgpu, command) if gov and vgpu is not None else command, check=True, stdout=subprocess.DEVNULL, env=env
    )
    rows = np.loadtxt(out, ndmin=2)[skipped:]
    kind = ("warm" if warm else "rtxg") if gov else "stock"
    shutil.copy(out, setup.out / f"raw-{setup.current}-{kind}-{jitter_us}.txt")
    return percentiles(rows[:, 1] / 1e3), int(rows[0, 0]), int(rows[-1, 0])


def standard_vgpus(gov: Governor, shares: list[float]) -> None:
    """vGPUs 1..n with those reservations, 8 critical, 9 critical with a period of 10 ms."""
    for i, share in enumerate(shares):
        gov.ctl("vgpu", str(i + 1), f"min={share}")
    gov.ctl("vgpu", "8", "critical")
    gov.ctl("vgpu", "9", "critical", "period=10000")


def three_hogs(
    setup: Setup, loads: Loads, seconds: float, gov: Governor | None, kernel_us: int = 20000
) -> list[list[np.ndarray]]:
    """Starts three and waits until they work."""
    for i in range(3):
        loads.hog(kernel_us, seconds, gov, i + 1 if gov else None)
    loads.wait_working()
    return []


def rates(loads: Loads, begin: float, end: float) -> float:
    """Chunks of work a second, of all loads together."""
    return float(work_in([[progress(o)] for o in loads.outputs], begin, end).sum() / (end - begin) * 1e9)


@contextmanager
def awake() -> Iterator[None]:
    """The CPUs stay out of their idle states, which make a program that is alone slower than one
    beside others: a chat on an H100 took 3.1 to 3.8 ms for a token with them, and 2.4 ms without."""
    path = Path("/dev/cpu_dma_latency")
    fd = os.open(path, os.O_WRONLY) if path.exists() else -1
    try:
        if fd >= 0:
            os.write(fd, bytes(4))
        yield
    finally:
        if fd >= 0:
            os.close(fd)


def gpu_names() -> list[str]:
    """The models of the NVIDIA GPUs, in the order in which the lever numbers them."""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def gpu_count() -> int:
    """How many NVIDIA GPUs there are."""
    done = subprocess.run(["nvidia-smi", "-L"], check=False, capture_output=True, text=True)
    return sum(line.startswith("GPU ") for line in done.stdout.splitlines())


def identify() -> str | None:
    """GPU-DRIVER-DATE, or None where there is no NVIDIA GPU."""
    if not Path("/dev/nvidiactl").exists() or not shutil.which("nvidia-smi"):
        return None
    q = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
        check=False,
        capture_output=True,
        text=True,
    )
    if q.returncode or not q.stdout.strip():
        return None
    gpu, driver = (x.strip() for x in q.stdout.strip().splitlines()[0].split(","))
    count = f"{gpu_count()}x" if gpu_count() > 1 else ""
    return f"{count}{gpu.replace('NVIDIA ', '').replace(' ', '-')}-{driver}-{datetime.date.today().isoformat()}"


def turns_alone(setup: Setup, us: int, **env: str) -> int:
    """How many turns of the loads' loop make a kernel of that length, alone on the GPU."""
    command = [setup.bin / "load", "calibrate", str(us)]
    more = {**os.environ, **env}
    return int(subprocess.run(command, check=True, capture_output=True, text=True, env=more).stdout)


def calibrate(setup: Setup) -> None:
    """How many turns make which kernel on this GPU."""
    for us in (100, 1000, 20000):
        setup.turns[us] = turns_alone(setup, us)


def can_fifo() -> bool:
    """May a process here be SCHED_FIFO?"""
    return subprocess.run(["chrt", "-f", "1", "true"], check=False, capture_output=True).returncode == 0


def allow_real_time() -> None:
    """Where real-time runtime is given out by cgroups, only the topmost one has it: goes there, if nothing else helps."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        for tasks in ("/sys/fs/cgroup/cpu/tasks", "/sys/fs/cgroup/cpu,cpuacct/tasks", "/sys/fs/cgroup/cgroup.procs"):
            try:
                Path(tasks).write_text(str(os.getpid()), encoding="ascii")
            except OSError:
                continue
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    except PermissionError:
        print("no SCHED_FIFO here (no real-time runtime in this cgroup): the governor runs at nice -20")


def xids() -> list[str]:
    """Lines of the kernel log that report a GPU error."""
    log = subprocess.run(["dmesg"], check=False, capture_output=True, text=True).stdout
    return [line for line in log.splitlines() if "NVRM: Xid" in line]
