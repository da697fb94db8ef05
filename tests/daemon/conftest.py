# SPDX-License-Identifier: MIT
"""`rtxgd` under test: one daemon a test, and a client that may send any bytes, as a hostile one would."""

from __future__ import annotations

import array
import contextlib
import json
import mmap
import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("RTXG_BUILD", ROOT / "build/release")).resolve()
#: the daemon on a fake NVIDIA driver
FAKE = "tests/levers/fake_rtxgd"

#: how long we wait for something that happens at once unless it never does
PATIENCE_S = 60.0

# The shared page (include/uapi/rtxg/page.h): offsets in bytes.
LANES_AT, LANE_SIZE = 128, 128
PERMIT, IN_FLIGHT, WANT, LAUNCHES, COMPLETIONS, BUSY_NS, BUSY_SINCE, DEVICE_NS = 0, 64, 68, 72, 80, 88, 96, 104
GRANTED, ONESHOT, REPORT = 1, 2, 4

Reply = dict[str, Any]


def wait_for(what: str, condition: Callable[[], Any]) -> Any:
    """Call condition until it is true; its value."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.005)
    pytest.fail(f"{what}: not within {PATIENCE_S:.0f} s")


def _children(pid: int) -> list[int]:
    """Those that its first thread has."""
    try:
        return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def wait_for_share(who: Any, part: float, within: float, busy: Callable[[], dict[Any, int]], work_ns: int = 2 * 10**9) -> None:
    """Wait until one of the programs has had a part (0 to 1) of some work; a window in which the machine starved one is no answer."""
    seen = []
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        before = busy()
        wait_for("some work", lambda before=before: sum(busy().values()) > sum(before.values()) + work_ns)
        done = {name: ns - before.get(name, 0) for name, ns in busy().items()}
        seen.append(round(done[who] / sum(done.values()), 3))
        if abs(seen[-1] - part) <= within:
            return
    pytest.fail(f"{who} had {seen} of the work in one window after another, not {part}")


class Connection:
    """One raw connection to the daemon."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(str(path))
        self.page: mmap.mmap | None = None
        self.page_fd = self.doorbell = -1

    def send(self, data: bytes, fds: tuple[int, ...] = ()) -> None:
        """One packet, with descriptors."""
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.socket.sendmsg([data], ancillary)

    def receive(self) -> tuple[Reply | None, list[int]]:
        """One reply and its descriptors; None at the end of the connection."""
        try:
            data, ancillary, _, _ = self.socket.recvmsg(1 << 17, 1024)
        except (ConnectionResetError, BrokenPipeError):
            return None, []
        fds = array.array("i")
        for _, _, raw in ancillary:
            fds.frombytes(raw[: len(raw) // 4 * 4])
        if not data:
            return None, []
        reply = json.loads(data)
        if "memfd" in reply:
            reply = json.loads(os.pread(fds[0], reply["memfd"], 0))
            os.close(fds[0])
            return reply, []
        return reply, list(fds)

    def raw(self, data: bytes, fds: tuple[int, ...] = ()) -> Reply | None:
        """Send bytes; the reply."""
        self.send(data, fds)
        return self.receive()[0]

    def ask(self, op: str, **members: Any) -> Reply:
        """Send a request and return the reply, also a refusal."""
        reply = self.raw(json.dumps({"op": op} | members).encode())
        assert reply is not None, f"{op}: the connection ended"
        return reply

    def open(self, **members: Any) -> Reply:
        """Become a task: the page is mapped."""
        try:
            self.send(json.dumps({"op": "open"} | members).encode())
        except BrokenPipeError:
            pass  # turned away; why can still be read
        reply, fds = self.receive()
        assert reply is not None
        if reply["ok"]:
            self.page_fd, self.doorbell = fds
            self.page = mmap.mmap(self.page_fd, 4096)
        return reply

    def ring(self) -> None:
        """The doorbell."""
        os.write(self.doorbell, struct.pack("Q", 1))

    def get(self, word: int, engine: int = 0, form: str = "I") -> int:
        """A word of a lane."""
        assert self.page is not None
        return int(struct.unpack_from(form, self.page, LANES_AT + engine * LANE_SIZE + word)[0])

    def put(self, word: int, value: int, engine: int = 0, form: str = "I") -> None:
        """Write a word of a lane."""
        assert self.page is not None
        struct.pack_into(form, self.page, LANES_AT + engine * LANE_SIZE + word, value)

    def granted(self, engine: int = 0) -> bool:
        """Whether the host has given a permit."""
        return bool(self.get(PERMIT, engine) & GRANTED)

    def launch(self, engine: int = 0) -> None:
        """As librtxg would: wait for the permit and count a launch."""
        self.put(WANT, 1, engine)
        self.ring()
        wait_for("a permit", lambda: self.granted(engine))
        self.put(IN_FLIGHT, 1, engine)
        if self.get(PERMIT, engine) & ONESHOT:
            self.put(PERMIT, self.get(PERMIT, engine) & ~GRANTED, engine)
        self.put(LAUNCHES, self.get(LAUNCHES, engine, "Q") + 1, engine, "Q")
        self.put(WANT, 0, engine)

    def complete(self, engine: int = 0) -> None:
        """The launch is over."""
        self.put(COMPLETIONS, self.get(COMPLETIONS, engine, "Q") + 1, engine, "Q")
        self.put(IN_FLIGHT, 0, engine)
        self.ring()

    def close(self) -> None:
        """End the connection."""
        self.socket.close()
        if self.page is not None:
            self.page.close()
            os.close(self.page_fd)
            os.close(self.doorbell)
            self.page = None


class Daemon:
    """One rtxgd, its folder, and the processes that a test started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "rtxgd.sock"
        self.log = folder / "rtxgd.log"
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("RTXG_")}
        self.environment |= {"RTXG_SOCKET": str(self.socket), "RTXG_HOST": "daemon", "HOME": str(folder), "LC_ALL": "C.UTF-8"}
        self.process: subprocess.Popen[bytes] | None = None
        self.children: list[subprocess.Popen[str]] = []
        self.connections: list[Connection] = []

    def write_config(self, text: str, name: str = "etc/rtxg/rtxg.conf") -> Path:
        """A configuration file below the test's own root."""
        path = self.folder / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def start(self, *arguments: str, prefix: tuple[str, ...] = (), mode: str = "--user",
              program: str = "daemon/rtxgd") -> None:
        """Start it and wait until it answers."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*prefix, BUILD / program, mode, "--socket", self.socket, "--config-root", self.folder / "root",
                 "--idle-exit", "0", *arguments],
                env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

        def answers() -> bool:
            assert self.process is not None and self.process.poll() is None, self.log.read_text()
            try:
                connection = self.connect(keep=False)
            except OSError:
                return False
            # It listens before it has read its files, and answers after.
            reply = connection.raw(b'{"op": "hello"}')
            connection.close()
            return reply is not None

        wait_for("the daemon answers", answers)

    def kill(self, number: int = signal.SIGKILL) -> int:
        """End it; its exit status."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def started(self, word: bytes) -> list[int]:
        """Programs with that word that the daemon's starter has begun; no dead ones."""
        assert self.process is not None
        found = []
        for starter in _children(self.process.pid):
            for pid in _children(starter):
                with contextlib.suppress(OSError):
                    if word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                        found.append(pid)
        return found

    def guards(self) -> list[int]:
        """Processes that set back what the daemon has raised, when it ends."""
        return self.started(b"--guard-priorities")

    def connect(self, keep: bool = True) -> Connection:
        """A raw connection."""
        connection = Connection(self.socket)
        if keep:
            self.connections.append(connection)
        return connection

    def ask(self, op: str, **members: Any) -> Reply:
        """One request on a new connection."""
        connection = self.connect(keep=False)
        try:
            return connection.ask(op, **members)
        finally:
            connection.close()

    def task(self, **members: Any) -> Connection:
        """A task of this process, by raw protocol."""
        connection = self.connect()
        reply = connection.open(**members)
        assert reply["ok"], reply
        return connection

    def device(self, *arguments: str) -> subprocess.Popen[str]:
        """A program that uses the engine through librtxg (tests/conform/device.c)."""
        child = subprocess.Popen([BUILD / "tests/conform/device", *arguments], env=self.environment, stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.children.append(child)
        return child

    @contextmanager
    def critical(self, priority: int) -> Iterator[subprocess.Popen[str]]:
        """A program that uses the GPU and has a real-time thread."""
        program = self.device("-u", "1000", "-s", "-d", "120")
        try:
            wait_for("it is there", lambda: any(t["pid"] == program.pid for t in self.tasks()))
            try:
                os.sched_setscheduler(program.pid, os.SCHED_FIFO, os.sched_param(priority))
            except PermissionError:
                pytest.skip("no right to a real-time priority")
            yield program
        finally:
            program.kill()
            program.wait()

    def tasks(self, **members: Any) -> list[Reply]:
        """The daemon's list of tasks."""
        return list(self.ask("task-list", **members)["tasks"])

    def healthy(self) -> None:
        """Check that the daemon lives and answers, and that every invariant of its scheduler holds."""
        assert self.process is not None and self.process.poll() is None, self.log.read_text()
        checks = {c["check"]: c for c in self.ask("doctor")["checks"]}
        assert checks["scheduler"]["ok"], checks["scheduler"]

    def stop(self) -> None:
        """End the processes that this test started, by their ids."""
        for connection in self.connections:
            connection.close()
        for child in [*self.children, *([self.process] if self.process else [])]:
            if child.poll() is None:
                child.send_signal(signal.SIGCONT)
                child.kill() if child is not self.process else child.terminate()
                try:
                    child.wait(10)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()
            for stream in (child.stdin, child.stdout, child.stderr):
                if stream:
                    stream.close()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon that the test starts itself."""
    if not (BUILD / "daemon/rtxgd").exists():
        pytest.skip(f"{BUILD}/daemon/rtxgd is not built")
    one = Daemon(tmp_path)
    try:
        yield one
    finally:
        one.stop()


@pytest.fixture
def running(daemon: Daemon) -> Iterator[Daemon]:
    """A daemon that runs, and must be healthy to the end, then leave in peace when asked to."""
    daemon.start()
    yield daemon
    daemon.healthy()
    for connection in daemon.connections:
        connection.close()
    assert daemon.kill(signal.SIGTERM) == 0, daemon.log.read_text()


class Gpu:
    """The daemon on its fake GPU, and processes that seem to use it."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.file = daemon.folder / "processes"
        self.file.write_text("")
        self.lines: list[str] = []
        self.programs: list[subprocess.Popen[bytes]] = []
        daemon.environment |= {"RTXG_FAKE_NVIDIA": str(self.file)}

    def start(self, *arguments: str, **environment: str) -> None:
        """Start the daemon."""
        self.daemon.environment |= environment
        self.daemon.start(*arguments, program=FAKE)

    def process(self, kind: str = "hog", gpu: int = 0, pid: int | None = None) -> int:
        """A process with a context, as the driver shows it; its pid."""
        if pid is None:
            self.programs.append(subprocess.Popen(["sleep", "600"]))
            pid = self.programs[-1].pid
            comm = Path(f"/proc/{pid}/comm")
            wait_for("it runs", lambda: comm.read_text() == "sleep\n")
        self.lines.append(f"{pid} {gpu} {kind}")
        new = self.file.with_suffix(".new")
        new.write_text("\n".join(self.lines) + "\n")
        new.rename(self.file)
        return pid

    def rtxg(self, *words: str | Path) -> str:
        """The command-line tool's output."""
        done = subprocess.run([BUILD / "cli/rtxg", *words], env=self.daemon.environment,
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def of(self, pid: int) -> list[Reply]:
        """The daemon's list entries for a process."""
        return self.daemon.tasks(pid=pid)

    def stats(self, gpu: str = "nvidia0") -> dict[str, Any]:
        """Compute engine of each vGPU of a GPU, by name; "tasks" of the vGPU added."""
        one = self.daemon.ask("stats", gpu=gpu)["gpus"]
        assert [g["gpu"] for g in one] == [gpu]
        return {v["vgpu"]: v["engines"][0] | {"tasks": v["tasks"]} for v in one[0]["vgpus"]}


@pytest.fixture
def gpu(daemon: Daemon) -> Iterator[Gpu]:
    """A daemon on a fake GPU, that the test starts itself."""
    if not (BUILD / FAKE).exists():
        pytest.skip("built without the NVIDIA lever (libbpf, clang, bpftool)")
    one = Gpu(daemon)
    try:
        yield one
    finally:
        for program in one.programs:
            program.kill()
            program.wait()
