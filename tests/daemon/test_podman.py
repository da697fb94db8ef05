# SPDX-License-Identifier: MIT
"""Containers of podman's own (its runtime, its CDI) with rtxg-cdi-hook: the first process is in its
vGPU, and so is what an exec starts.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import BUILD, ROOT, Daemon, wait_for

HOOK = BUILD / "cdi/rtxg-cdi-hook"
DEVICE = BUILD / "tests/conform/device"
#: where podman looks for devices, besides /etc/cdi
DEVICES = Path("/run/cdi")
#: a program that opens the GPU without a name of a vGPU, and stays
STAYS = ("/bin/device", "-u", "1000", "-s", "-p", "20000")

pytestmark = pytest.mark.slow


class Podman:
    """podman with storage, cgroups and devices of the test's own."""

    def __init__(self, daemon: Daemon) -> None:
        # podman's state lies below a path of at most 50 characters.
        self.daemon, self.folder = daemon, Path(tempfile.mkdtemp(prefix="rtxg-"))
        self.rootfs = self.folder / "rootfs"
        self.kind = f"test-{os.getpid()}.rtxg.io/vgpu"
        self.spec = DEVICES / f"rtxg-test-{os.getpid()}.json"
        (self.rootfs / "bin").mkdir(parents=True)
        shutil.copy(DEVICE, self.rootfs / "bin/device")
        for library in re.findall(
            r"(/\S+) \(0x",
            subprocess.run(["ldd", DEVICE], capture_output=True, text=True, check=True).stdout,
        ):
            place = self.rootfs / ("lib" if "rtxg" in library else os.path.dirname(library)[1:])
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, place)
        self.runtime: str | None = None
        reasons = []
        for runtime in filter(shutil.which, ("crun", "runc")):
            self.runtime = runtime
            done = self("run", "--rm", *self.options(), "/bin/device", "-n", "1")
            if done.returncode == 0:
                return
            reasons.append(f"{runtime}: {done.stderr.strip()[-200:]}")
        self.remove()
        pytest.skip(
            f"podman can start no container here: {'; '.join(reasons) or 'crun or runc is missing'}"
        )

    def __call__(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """A command of podman's; nothing of it touches the containers of this machine."""
        own = (
            "--root",
            self.folder / "root",
            "--runroot",
            self.folder / "run",
            "--tmpdir",
            self.folder / "tmp",
            "--storage-driver",
            "vfs",
            "--events-backend",
            "file",
            "--cgroup-manager",
            "cgroupfs",
            "--runtime",
            str(self.runtime),
        )
        return subprocess.run(
            ["podman", *map(str, own), *map(str, words)],
            capture_output=True,
            text=True,
            timeout=300,
        )

    def options(self, *more: str) -> list[str]:
        """Of run, up to the container's program."""
        return [
            "--network",
            "none",
            "--ulimit",
            "nofile=1024:1024",
            "--ulimit",
            "nproc=1024:1024",
            "--env",
            "LD_LIBRARY_PATH=/lib",
            "--env",
            "RTXG_SOCKET=/rtxg/rtxgd.sock",
            "--volume",
            f"{self.daemon.folder}:/rtxg",
            *more,
            "--rootfs",
            str(self.rootfs),
        ]

    def install(self, text: str) -> None:
        """A specification, with the hook that was built, the test's socket and a kind of the test's
        own.
        """
        spec = json.loads(text)
        spec["kind"] = self.kind
        for device in spec["devices"]:
            for edit in device["containerEdits"]["hooks"]:
                edit["path"] = str(HOOK)
                edit["env"] = [f"RTXG_SOCKET={self.daemon.socket}"]
        DEVICES.mkdir(exist_ok=True)
        self.spec.write_text(json.dumps(spec))

    def start(self, name: str, device: str, *options: str) -> int:
        """A container that stays; its first process."""
        done = self(
            "run",
            "--detach",
            "--name",
            name,
            *self.options("--device", f"{self.kind}={device}", *options),
            *STAYS,
        )
        assert done.returncode == 0, done.stderr
        return self.pid(name)

    def pid(self, name: str) -> int:
        """The first process of a container."""
        return int(self("inspect", "--format", "{{.State.Pid}}", name).stdout)

    def remove(self) -> None:
        """All containers and the devices."""
        self("rm", "--all", "--force", "--time", "0")
        self.spec.unlink(missing_ok=True)
        shutil.rmtree(self.folder)


@pytest.fixture
def podman(running: Daemon) -> Iterator[Podman]:
    """Or a skip with the reason."""
    if os.geteuid() != 0 or not shutil.which("podman"):
        pytest.skip("podman as root is needed (apt-get install podman runc)")
    one = Podman(running)
    yield one
    one.remove()


def vgpus(daemon: Daemon, pid: int) -> list[str]:
    """Where the tasks of a process are, as soon as it has one."""
    return [t["vgpu"] for t in wait_for("it has a task", lambda: daemon.tasks(pid=pid))]


def specification(daemon: Daemon) -> str:
    """What rtxg-cdi-hook --print-spec says."""
    return subprocess.run(
        [HOOK, "--print-spec"],
        env=daemon.environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout


def test_the_first_process_and_an_exec_are_in_the_vgpu_of_the_device(
    running: Daemon, podman: Podman
) -> None:
    """By the specification as rtxg prints it; also after the container and after the daemon were
    started again.
    """
    for name in ("web", "batch"):
        assert running.ask("vgpu-create", vgpu=name, min_ppm=300000)["ok"]
    podman.install(specification(running))
    web, batch = podman.start("web", "web"), podman.start("batch", "batch")
    assert (vgpus(running, web), vgpus(running, batch)) == (["web"], ["batch"])
    assert podman("exec", "--detach", "web", *STAYS).returncode == 0
    wait_for("an exec is there", lambda: len(running.tasks()) == 3)
    assert sorted(t["vgpu"] for t in running.tasks()) == ["batch", "web", "web"]
    running.kill()
    running.start()
    wait_for(
        "all are there again",
        lambda: sorted(t["vgpu"] for t in running.tasks()) == ["batch", "web", "web"],
    )
    assert podman("restart", "--time", "0", "web").returncode == 0
    again = podman.pid("web")
    assert again != web and vgpus(running, again) == ["web"]


def test_a_container_that_cannot_be_taken_in_does_not_start(
    running: Daemon, podman: Podman
) -> None:
    """The message of podman says why; its program has not run; --fail open starts it."""
    assert running.ask("vgpu-create", vgpu="web")["ok"]
    spec = specification(running)
    podman.install(spec)
    assert running.ask("vgpu-remove", vgpu="web")["ok"]
    done = podman("run", *podman.options("--device", f"{podman.kind}=web"), *STAYS)
    assert done.returncode != 0 and "there is no vGPU web" in done.stderr, done.stderr
    assert running.tasks() == []
    podman.install(spec.replace('"--vgpu"', '"--fail", "open", "--vgpu"'))
    assert vgpus(running, podman.start("open", "web")) == ["default"]


def test_a_vgpu_of_its_own_lives_as_long_as_the_container(running: Daemon, podman: Podman) -> None:
    """examples/containers/own.json and the annotation, as the README says."""
    podman.install((ROOT / "examples/containers/own.json").read_text())
    first = podman.start("job", "quarter", "--annotation", "io.rtxg.vgpu=job-17")
    assert vgpus(running, first) == ["job-17"]
    assert running.ask("vgpu-list", vgpu="job-17")["vgpus"][0]["min_ppm"] == 250000
    assert podman("rm", "--force", "--time", "0", "job").returncode == 0
    wait_for("it has gone", lambda: not running.ask("vgpu-list", vgpu="job-17")["ok"])
