# SPDX-License-Identifier: MIT
"""Limits on GPU memory of vGPUs: by a fake of NVIDIA's management library and by a tree of files as
the kernel's controller dmem has them, and what is said where neither is there. Memory in use,
wherever rtxg shows a vGPU."""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import BUILD, Daemon, Gpu, Reply, wait_for

GIB = 1 << 30
NONE = (1 << 64) - 1
#: a GPU of another vendor, which the gate governs
PCI, REGION = "0000:03:00.0", "drm/0000:03:00.0/vram0"


class Cgroups:
    """A tree of folders and files as the kernel has them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        (root / "dmem.capacity").write_text(
            f"drm/0000:04:00.0/vram0 17179869184\n{REGION} 8589934592\n"
        )

    def make(self, path: str, dmem: bool = True) -> str:
        """A cgroup; its name."""
        (self.root / path[1:]).mkdir(parents=True)
        if dmem:
            (self.root / path[1:] / "dmem.max").write_text(f"{REGION} max\n")
        return path

    def limit(self, path: str) -> str:
        """What a cgroup's file has."""
        return (self.root / path[1:] / "dmem.max").read_text()


def helper(tree: Cgroups, *lines: str, **environment: str) -> list[str]:
    """The answers of rtxg-gpumem."""
    done = subprocess.run(
        [BUILD / "levers/memory/rtxg-gpumem", tree.root],
        input="".join(line + "\n" for line in lines),
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def tree(tmp_path: Path) -> Cgroups:
    """An empty tree."""
    return Cgroups(tmp_path / "cgroup")


def limited(daemon: Daemon, name: str) -> Reply:
    """ "memory_limit" of a vGPU, as soon as the driver was asked."""
    return dict(
        wait_for(
            "the driver was asked",
            lambda: (
                (s := daemon.ask("vgpu-list", vgpu=name)["vgpus"][0].get("memory_limit", {})).get(
                    "state"
                )
                != "trying"
                and s
            ),
        )
    )


# --- the program ----------------------------------------------------------------------------------


def test_the_kernels_controller_limits_a_cgroup(tree: Cgroups) -> None:
    """A limit is written for this GPU's region, and taken back."""
    tree.make("/robot.slice/camera.service")
    folder = tree.root / "robot.slice/camera.service"
    assert helper(tree, f"{PCI} try", f"{PCI} {GIB} /robot.slice/camera.service") == [
        "ok dmem",
        f"ok dmem {folder}",
    ]
    assert tree.limit("/robot.slice/camera.service") == f"{REGION} {GIB}\n"
    assert (
        helper(tree, f"{PCI} {2 * GIB} camera.service", f"{PCI} max /robot.slice/camera.service")
        == [f"ok dmem {folder}"] * 2
    )
    assert tree.limit("/robot.slice/camera.service").split()[1] == "max"


def test_what_cannot_be_limited_says_why_and_what_to_do(tree: Cgroups) -> None:
    """No such cgroup, no files of the controller, no region, two regions, no request."""
    tree.make("/bare", dmem=False)
    answers = helper(
        tree,
        f"{PCI} {GIB} /none",
        f"{PCI} {GIB} none.service",
        f"{PCI} {GIB} /bare",
        "0000:09:00.0 try",
        "x",
        f"{PCI} 0 /bare",
        f"{PCI} 12abc /none",
    )
    assert [a.split()[0] for a in answers] == ["gone", "gone", "no", "no", "no", "no", "gone"]
    assert (
        "+dmem into cgroup.subtree_control" in answers[2]
        and "dmem.capacity names 0000:09:00.0" in answers[3]
    )
    (tree.root / "dmem.capacity").write_text(f"{REGION} 1\ndrm/{PCI}/vram1 1\n")
    assert "2 regions" in helper(tree, f"{PCI} try")[0]
    (tree.root / "dmem.capacity").write_text(f"drm/{PCI}/gtt 1\nnvidia/{PCI}/vidmem 1\n")
    assert helper(tree, f"{PCI} try")[0].startswith("no ")


# --- the daemon, on the NVIDIA lever --------------------------------------------------------------


class Nvml:
    """The fake library, and what it was told."""

    def __init__(self, folder: Path, daemon: Daemon, tree: Cgroups) -> None:
        self.file = folder / "nvml"
        self.file.write_text("")
        library = folder / "library"
        library.mkdir()
        (library / "libnvidia-ml.so.1").symlink_to(BUILD / "tests/levers/libnvidia-ml.so.1")
        daemon.environment |= {
            "LD_LIBRARY_PATH": str(library),
            "RTXG_FAKE_NVML": str(self.file),
            "RTXG_CGROUP_ROOT": str(tree.root),
        }

    def fail(self, how: str) -> None:
        """The next calls answer that."""
        new = self.file.with_suffix(".new")
        new.write_text(how)
        new.rename(self.file.with_suffix(".fail"))

    def limits(self, tree: Cgroups) -> dict[str, int]:
        """The hard limit of each cgroup, as it was set last."""
        lines = [line.split() for line in self.file.read_text().splitlines()]
        return {
            "/" + str(Path(folder).relative_to(tree.root)): int(hard)
            for _, folder, soft, hard in lines
            if soft == "0" and Path(folder) != tree.root
        }


@pytest.fixture
def nvml(tmp_path: Path, gpu: Gpu, tree: Cgroups) -> Nvml:
    """The library, for the daemon's program."""
    return Nvml(tmp_path, gpu.daemon, tree)


def helpers(daemon: Daemon) -> list[int]:
    """The daemon's programs that set limits."""
    return daemon.started(b"rtxg-gpumem")


def memory_limit(daemon: Daemon, name: str) -> Reply:
    """ "memory_limit" of a vGPU as it is now."""
    return dict(daemon.ask("vgpu-list", vgpu=name)["vgpus"][0]["memory_limit"])


def doctor(daemon: Daemon, name: str) -> Reply:
    """One line of the doctor."""
    return next(c for c in daemon.ask("doctor")["checks"] if c["check"] == name)


def tried(daemon: Daemon, gpu: str = "nvidia0") -> None:
    """Waits until the driver has said whether it can limit memory."""
    wait_for("it was tried", lambda: "not tried" not in doctor(daemon, f"memory {gpu}")["detail"])


def test_a_limit_holds_from_its_cgroup_on_and_goes_with_it(
    gpu: Gpu, nvml: Nvml, tree: Cgroups
) -> None:
    """Set for each cgroup that is bound, changed, set again after a restart of the service, taken
    back with the binding, the limit or the vGPU."""
    gpu.start()
    tried(gpu.daemon)
    assert "kept by nvml" in doctor(gpu.daemon, "memory nvidia0")["detail"]
    tree.make("/a")
    assert "memory_bytes" not in gpu.daemon.ask("vgpu-create", vgpu="cam", gpu="nvidia0")["vgpu"]
    made = gpu.daemon.ask("vgpu-set", vgpu="cam", memory_bytes=4 * GIB)["vgpu"]
    assert made["memory_bytes"] == 4 * GIB
    assert (
        limited(gpu.daemon, "cam")["state"] == "refused"
        and "--cgroup" in limited(gpu.daemon, "cam")["why"]
    )
    assert gpu.daemon.ask("cgroup-bind", vgpu="cam", cgroup="/a")["ok"]
    assert limited(gpu.daemon, "cam") == {"state": "held", "why": ""} and nvml.limits(tree) == {
        "/a": 4 * GIB
    }
    assert gpu.daemon.ask("vgpu-set", vgpu="cam", memory_bytes=2 * GIB)["ok"]
    assert limited(gpu.daemon, "cam")["state"] == "held" and nvml.limits(tree) == {"/a": 2 * GIB}
    # A cgroup that comes later; samples are taken while a program uses the GPU.
    assert gpu.daemon.ask("cgroup-bind", vgpu="cam", cgroup="/late")["ok"]
    assert limited(gpu.daemon, "cam")["state"] == "waiting"
    gpu.process()
    tree.make("/late")
    wait_for("it is limited", lambda: nvml.limits(tree).get("/late") == 2 * GIB)
    # The service is started again: another cgroup of the same name.
    (tree.root / "a/dmem.max").unlink()
    (tree.root / "a").rename(tree.root / "old")
    lines = len(nvml.file.read_text().splitlines())
    tree.make("/a")
    wait_for("it is limited again", lambda: len(nvml.file.read_text().splitlines()) == lines + 1)
    assert gpu.daemon.ask("cgroup-unbind", vgpu="cam", cgroup="/late")["ok"]
    wait_for("the limit is taken back", lambda: nvml.limits(tree)["/late"] == NONE)
    assert gpu.daemon.ask("vgpu-set", vgpu="cam", memory_bytes=None)["ok"]
    wait_for("the limit is taken back", lambda: nvml.limits(tree)["/a"] == NONE)
    assert "memory_limit" not in gpu.daemon.ask("vgpu-list", vgpu="cam")["vgpus"][0]
    assert gpu.daemon.ask("vgpu-set", vgpu="cam", memory_bytes=GIB)["ok"]
    wait_for("it is limited", lambda: nvml.limits(tree)["/a"] == GIB)
    assert gpu.daemon.ask("vgpu-remove", vgpu="cam")["ok"]
    wait_for("the limit is taken back", lambda: nvml.limits(tree)["/a"] == NONE)


def test_a_limit_outlives_the_daemon_and_stands_in_the_configuration(
    gpu: Gpu, nvml: Nvml, tree: Cgroups
) -> None:
    """Made at run time, by a file, and by --persist."""
    tree.make("/a")
    tree.make("/b")
    gpu.daemon.write_config("[VGPU filed]\nGPUMemoryMax=1.5G\nCgroup=/b\n")
    gpu.start()
    tried(gpu.daemon)
    wait_for("the file's is limited", lambda: nvml.limits(tree).get("/b") == 3 * GIB // 2)
    assert gpu.daemon.ask("vgpu-create", vgpu="kept", memory_bytes=GIB, cgroup="/a", persist=True)[
        "ok"
    ]
    assert limited(gpu.daemon, "kept")["state"] == "held"
    (written,) = gpu.daemon.folder.rglob("50-vgpu-kept.conf")
    assert f"GPUMemoryMax={GIB}\n" in written.read_text()
    assert gpu.daemon.ask("vgpu-create", vgpu="kept-too", memory_bytes=GIB)["ok"]
    gpu.daemon.kill()
    nvml.file.write_text("")
    gpu.start()
    tried(gpu.daemon)
    wait_for("both are limited again", lambda: nvml.limits(tree) == {"/a": GIB, "/b": 3 * GIB // 2})
    assert gpu.daemon.ask("vgpu-list", vgpu="kept-too")["vgpus"][0]["memory_bytes"] == GIB


@pytest.mark.parametrize(
    ("fault", "says"), [("3", "Not Supported"), ("6", "Not Found"), ("999", "Unknown Error")]
)
def test_a_driver_that_refuses_is_named(
    gpu: Gpu, nvml: Nvml, tree: Cgroups, fault: str, says: str
) -> None:
    """In the list, by the doctor and by the command line: the vGPU is there, and is not limited."""
    tree.make("/a")
    gpu.start()
    tried(gpu.daemon)
    nvml.fail(fault)
    done = subprocess.run(
        [
            BUILD / "cli/rtxg",
            "vgpu",
            "create",
            "cam",
            "-g",
            "nvidia0",
            "--memory",
            "512M",
            "--cgroup",
            "/a",
        ],
        env=gpu.daemon.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "memory of vGPU 'cam' is not limited" in done.stderr and says in done.stderr
    line = doctor(gpu.daemon, "memory of cam")
    assert not line["ok"] and says in line["detail"] and "/a" in line["detail"]
    row = json.loads(gpu.rtxg("vgpu", "ls", "-J", "-o", "VGPU,MEMORY,MEMKEPT", "cam"))["vgpus"][0]
    assert row == {"vgpu": "cam", "memory_limit_bytes": 512 << 20, "memory_limit_state": "refused"}
    nvml.fail("0")
    assert (
        "not limited"
        not in subprocess.run(
            [BUILD / "cli/rtxg", "vgpu", "set", "cam", "--memory", "1G"],
            env=gpu.daemon.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        ).stderr
    )
    assert nvml.limits(tree) == {"/a": GIB}


def test_where_it_cannot_be_limited_a_limit_is_refused_with_the_reason(
    gpu: Gpu, nvml: Nvml, tree: Cgroups
) -> None:
    """The driver was tried at the start. The configuration's is kept as far as it goes, and named
    by the doctor."""
    nvml.fail("3")
    gpu.daemon.write_config("[VGPU filed]\nGPUMemoryMax=1G\n")
    gpu.start()
    tried(gpu.daemon)
    refused = gpu.daemon.ask("vgpu-create", vgpu="cam", gpu="nvidia0", memory_bytes=GIB)
    assert (
        refused["error"] == "EOPNOTSUPP"
        and "memory of GPU nvidia0 cannot be limited" in refused["message"]
        and "Not Supported" in refused["message"]
    )
    assert not gpu.daemon.ask("vgpu-list", vgpu="cam")["ok"]
    assert (
        "Not Supported" in doctor(gpu.daemon, "memory nvidia0")["detail"]
        and not doctor(gpu.daemon, "memory of filed")["ok"]
    )


def test_a_library_that_hangs_holds_no_other_up(gpu: Gpu, nvml: Nvml, tree: Cgroups) -> None:
    """The daemon answers, and ends. What changes meanwhile waits, and is not taken for done."""
    tree.make("/a")
    gpu.start()
    tried(gpu.daemon)
    nvml.fail("hang")
    wanted = {"gpu": "nvidia0", "memory_bytes": GIB}
    assert gpu.daemon.ask("vgpu-create", vgpu="cam", cgroup="/a", **wanted)["ok"]
    wait_for("the program runs", lambda: helpers(gpu.daemon))
    assert gpu.daemon.ask("vgpu-create", vgpu="later", cgroup="/later", **wanted)["ok"]
    assert memory_limit(gpu.daemon, "cam")["state"] == "trying"
    assert memory_limit(gpu.daemon, "later")["state"] == "trying"
    assert gpu.daemon.ask("vgpu-remove", vgpu="cam")["ok"]
    assert gpu.daemon.ask("vgpu-create", vgpu="other", **wanted)["ok"]
    assert memory_limit(gpu.daemon, "other")["state"] == "refused"  # it has no cgroup
    gpu.daemon.stop()


def test_what_a_killed_program_was_asked_is_named_and_asked_again(
    gpu: Gpu, nvml: Nvml, tree: Cgroups
) -> None:
    """A limit that was to be set may be there; one that was to be taken back, too."""
    tree.make("/a")
    gpu.start()
    tried(gpu.daemon)

    def end() -> None:
        for pid in wait_for("the program runs", lambda: helpers(gpu.daemon)):
            os.kill(pid, signal.SIGKILL)

    nvml.fail("hang")
    assert gpu.daemon.ask("vgpu-create", vgpu="cam", memory_bytes=GIB, cgroup="/a")["ok"]
    end()
    state = limited(gpu.daemon, "cam")
    assert state["state"] == "refused" and "gave no answer" in state["why"]
    # Whether it was set is not known, so it is taken back.
    nvml.fail("0")
    assert gpu.daemon.ask("vgpu-set", vgpu="cam", memory_bytes=None)["ok"]
    wait_for("it is taken back", lambda: nvml.limits(tree) == {"/a": NONE})
    assert gpu.daemon.ask("vgpu-set", vgpu="cam", memory_bytes=GIB)["ok"]
    assert limited(gpu.daemon, "cam")["state"] == "held" and nvml.limits(tree) == {"/a": GIB}
    nvml.fail("hang")
    assert gpu.daemon.ask("vgpu-remove", vgpu="cam")["ok"]
    end()
    said = "memory is still limited in cgroup /a"
    wait_for("it is said", lambda: said in gpu.daemon.log.read_text())
    nvml.fail("0")
    assert gpu.daemon.ask("vgpu-create", vgpu="another")["ok"]
    wait_for("it is taken back", lambda: nvml.limits(tree) == {"/a": NONE})


def test_a_limit_on_a_gpu_that_is_being_tried_waits_for_no_driver(
    gpu: Gpu, nvml: Nvml, tree: Cgroups
) -> None:
    """The library hangs from the start. Requests are answered; an answer that comes late counts."""
    tree.make("/a")
    nvml.fail("hang")
    gpu.start()
    wanted = {"gpu": "nvidia0", "memory_bytes": GIB}
    assert gpu.daemon.ask("vgpu-create", vgpu="cam", cgroup="/a", **wanted)["ok"]
    assert memory_limit(gpu.daemon, "cam")["state"] == "trying"
    tried(gpu.daemon)
    limit = memory_limit(gpu.daemon, "cam")
    assert limit["state"] == "refused" and "gave no answer" in limit["why"]
    refused = gpu.daemon.ask("vgpu-create", vgpu="more", **wanted)
    assert refused["error"] == "EOPNOTSUPP" and "gave no answer" in refused["message"]
    nvml.fail("0")
    wait_for("it is limited", lambda: memory_limit(gpu.daemon, "cam")["state"] == "held")
    assert nvml.limits(tree) == {"/a": GIB}


class Tracer:
    """Keeps a process that is killed from ending, as a driver that does not return does."""

    SEIZE, CONTINUE, AT_EXIT = 0x4206, 7, 0x40

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.ptrace = ctypes.CDLL(None, use_errno=True).ptrace
        self.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        if self.ptrace(self.SEIZE, pid, None, self.AT_EXIT):
            pytest.skip("no process can be traced here")

    def wait_until_killed(self) -> None:
        """Until it is about to end, of which the daemon sees nothing."""
        assert os.WIFSTOPPED(os.waitpid(self.pid, 0)[1])

    def let_go(self) -> None:
        """It ends."""
        assert not self.ptrace(self.CONTINUE, self.pid, None, None)


@pytest.mark.slow  # the daemon waits a minute for a driver
def test_no_limit_is_set_while_a_killed_program_is_still_in_the_driver(
    gpu: Gpu, nvml: Nvml, tree: Cgroups
) -> None:
    """An old limit could come after a new one. What waits says so, and is done when it is out."""
    tree.make("/a")
    tree.make("/held")
    gpu.start()
    tried(gpu.daemon)
    assert gpu.daemon.ask("vgpu-create", vgpu="calm", memory_bytes=GIB, cgroup="/held")["ok"]
    assert limited(gpu.daemon, "calm")["state"] == "held"
    nvml.fail("hang")
    assert gpu.daemon.ask("vgpu-create", vgpu="cam", memory_bytes=GIB, cgroup="/a")["ok"]
    (pid,) = wait_for("the program runs", lambda: helpers(gpu.daemon))
    tracer = Tracer(pid)
    tracer.wait_until_killed()
    nvml.fail("0")
    assert gpu.daemon.ask("vgpu-set", vgpu="cam", memory_bytes=2 * GIB)["ok"]
    state = memory_limit(gpu.daemon, "cam")
    assert state["state"] == "refused" and "gave no answer" in state["why"]
    assert memory_limit(gpu.daemon, "calm")["state"] == "held"
    assert helpers(gpu.daemon) == [pid] and nvml.limits(tree) == {"/held": GIB}
    tracer.let_go()
    wait_for("it is limited", lambda: memory_limit(gpu.daemon, "cam")["state"] == "held")
    assert nvml.limits(tree) == {"/held": GIB, "/a": 2 * GIB}


# --- under the gate -------------------------------------------------------------------------------


def test_a_gpu_without_a_place_on_the_bus_cannot_be_limited(running: Daemon) -> None:
    """There is no driver to ask; the sentence says so. Values out of range: with the range."""
    refused = running.ask("vgpu-create", vgpu="cam", memory_bytes=GIB)
    assert refused["error"] == "EOPNOTSUPP" and "PCI" in refused["message"]
    for value in (0, 4096, 1 << 51, "4G", -1):
        refused = running.ask("vgpu-create", vgpu="cam", memory_bytes=value)
        assert refused["error"] == "EINVAL" and "memory_bytes" in refused["message"]
    for text in ("4", "4Q", "-1G", "0", "4GB", "", "1023K"):
        done = subprocess.run(
            [BUILD / "cli/rtxg", "vgpu", "create", "cam", "--memory", text],
            env=running.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 2 and "--memory" in done.stderr and "accepted" in done.stderr


def test_the_gate_limits_a_gpu_of_another_vendor_by_the_kernel(
    daemon: Daemon, tree: Cgroups
) -> None:
    """A GPU that programs open by its place on the PCI bus, as the OpenCL layer does."""
    daemon.environment["RTXG_CGROUP_ROOT"] = str(tree.root)
    tree.make("/a")
    daemon.start()
    assert daemon.ask("gpu-set", gpu=PCI)["ok"]
    assert daemon.ask("vgpu-create", vgpu="cam", gpu=PCI, memory_bytes=GIB, cgroup="/a")["ok"]
    assert limited(daemon, "cam")["state"] == "held" and tree.limit("/a") == f"{REGION} {GIB}\n"
    # A cgroup without files of the controller: said, with what to do.
    tree.make("/bare", dmem=False)
    assert daemon.ask("cgroup-bind", vgpu="cam", cgroup="/bare")["ok"]
    state = limited(daemon, "cam")
    assert state["state"] == "refused" and "/bare" in state["why"] and "+dmem" in state["why"]


def test_a_long_answer_is_read_whole(daemon: Daemon, tmp_path: Path) -> None:
    """A cgroup's folder is in it. What is left of one is not taken for the next."""
    (tmp_path / ("r" * 200) / ("o" * 200)).mkdir(parents=True)
    tree = Cgroups(tmp_path / ("r" * 200) / ("o" * 200) / "cgroup")
    daemon.environment["RTXG_CGROUP_ROOT"] = str(tree.root)
    deep, bare = tree.make(f"/{'a' * 200}/{'b' * 200}"), tree.make("/bare", dmem=False)
    daemon.start()
    assert daemon.ask("gpu-set", gpu=PCI)["ok"]
    for name, cgroup in (("deep", deep), ("bare", bare)):
        assert daemon.ask("vgpu-create", vgpu=name, gpu=PCI, cgroup=cgroup)["ok"]
    # In one go: the first one's answer is before the other's.
    daemon.write_config(f"[VGPU deep]\nGPU={PCI}\nCgroup={deep}\nGPUMemoryMax=1G\n"
                        f"[VGPU bare]\nGPU={PCI}\nCgroup={bare}\nGPUMemoryMax=1G\n")
    changes = daemon.ask("reload")["changes"]
    assert f"vGPU deep: GPUMemoryMax={GIB} (was default)" in changes
    assert limited(daemon, "deep")["state"] == "held"
    assert limited(daemon, "bare")["state"] == "refused"
    assert "+dmem" in memory_limit(daemon, "bare")["why"]


# --- memory in use --------------------------------------------------------------------------------


def test_memory_in_use_is_shown_wherever_a_vgpu_is(gpu: Gpu) -> None:
    """Per vGPU in stats, vgpu-list, top and the report; per program in ps and get."""
    gpu.start()
    tried(gpu.daemon)
    assert gpu.daemon.ask("vgpu-create", vgpu="cam", min_ppm=300000)["ok"]
    first, second, other = gpu.process(), gpu.process(), gpu.process()
    wait_for("all are seen", lambda: gpu.of(first) and gpu.of(second) and gpu.of(other))
    for pid in (first, second):
        assert gpu.daemon.ask("task-set", pid=pid, vgpu="cam")["ok"]
    used = (first + second) * 2**20 + 2 * 4096  # as the fake driver counts it
    (stats,) = gpu.daemon.ask("stats", gpu="nvidia0")["gpus"]
    assert {v["vgpu"]: v["memory"] for v in stats["vgpus"]} == {
        "cam": used,
        "default": other * 2**20 + 4096,
    }
    rows: list[dict[str, Any]] = json.loads(gpu.rtxg("vgpu", "ls", "-J", "-o", "VGPU,MEMUSED"))[
        "vgpus"
    ]
    assert {r["vgpu"]: r["memory_used_bytes"] for r in rows} == {
        "default": other * 2**20 + 4096,
        "cam": used,
    }
    assert (
        json.loads(gpu.rtxg("get", "-J", "-o", "MEM", str(first)))["processes"][0]["memory_bytes"]
        == first * 2**20 + 4096
    )
    shown = gpu.rtxg("top", "-b", "-n", "1", "-t")
    line = next(text for text in shown.splitlines() if text.startswith("  cam "))
    assert " MEM " in shown and re.search(r" [0-9.]+[MGT] +2 yes$", line), line
    assert sum(bool(re.search(r" mem [0-9.]+[KMGT]?", text)) for text in shown.splitlines()) == 3
