# SPDX-License-Identifier: MIT
"""Configuration files: their meaning, and the messages about wrong ones."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess

import pytest
from conftest import BUILD, Daemon, wait_for

GOOD = """\
# A comment
; another
[Daemon]
FailPolicy=closed
TasksPerUser=10

[GPU *]
Policy=band
PeriodSec=20ms
[GPU big]
Policy=cbs
ThinkSec=infinity
RevokeTimeoutSec=1s 500ms
SwitchCost=2.5%

[VGPU video]
GPU=big
GPUMin=40%
GPUQuota=62.5%
GPUWeight=300
GPUPriority=20
GPUPeriodSec=16.6ms
TaskPolicy=edf
TaskPriority=5
Users=root 1000

[VGPU batch]
  GPUMin = 10%

[Pool both]
GPUs=big small

[Match]
Exec=/*/conform/dev*
VGPU=video
[Match]
User=root
VGPU=batch
"""

WRONG = [
    ("[VGPU a]\nGPUMin=40", 2, "GPUMin=40 ", "percent sign"),
    ("[VGPU a]\nGPUMin=140%", 2, "140%", "100%"),
    ("[VGPU a]\nGPUMin=-1%", 2, "-1%", "0%"),
    ("[VGPU a]\nGPUMin=nan%", 2, "nan%", "0%"),
    ("[VGPU a]\n\nGPUPeriodSec=0", 3, "GPUPeriodSec=0", "100us"),
    ("[VGPU a]\nGPUPeriodSec=5 weeks", 2, "5 weeks", "10s"),
    ("[VGPU a]\nGPUQuota=0%", 2, "GPUQuota=0%", "under a cap of nothing programs would wait for ever"),
    ("[VGPU a]\nGPUQuota=0.00001%", 2, "0.00001%", "0.0001%"),
    ("[VGPU a]\nGPUMin=0x20%", 2, "0x20%", "0% to 100%"),
    ("[VGPU a]\nGPUWeight=0", 2, "GPUWeight=0", "1 to 10000"),
    ("[VGPU a]\nGPUPriority=100", 2, "100", "1 to 99"),
    ("[VGPU a]\nTaskPolicy=cbs", 2, "cbs", "edf"),
    ("[VGPU a]\nGPUMni=40%", 2, "GPUMni", "GPUMin"),
    ("[VGPU default]\nGPU=a", 2, "GPU=a", "programs of all GPUs"),
    ("[Pool p]\nGPUs=" + " ".join(f"g{i}" for i in range(33)), 2, "g32", "1 to 32 names"),
    ("[VGPU]\nGPUMin=40%", 1, "[VGPU]", "name"),
    ("[VGPU a/b]\nGPUMin=40%", 1, "a/b", "control character or a /"),
    ("[VGPUS a]\nGPUMin=40%", 1, "[VGPUS a]", "[VGPU NAME]"),
    ("[GPU 0]\nPolicy=fairest", 2, "fairest", "cbs"),
    ("[GPU 0]\nOverrun=maybe", 2, "maybe", "charge"),
    ("[GPU 0]\nSwitchCost=100%", 2, "100%", "below 100%"),
    ("[GPU 0]\nBandWaitSec=infinity", 2, "infinity", "30ms"),
    ("[Daemon]\nFailPolicy=ajar", 2, "ajar", "closed"),
    ("[Daemon]\nGPUNames=all", 2, "all", "devices and any"),
    ("[Daemon]\nTasksPerUser=0", 2, "TasksPerUser=0", "1 to 4096"),
    ("[Daemon]\nVerbose=1", 2, "Verbose", "FailPolicy"),
    ("[Match]\nExec=x", 1, "VGPU=", ""),
    ("[Match]\nExec=x\nVGPU=absent", 1, "absent", "does not exist"),
    ("[Match]\nProcess=x\nVGPU=default", 2, "Process", "Exec"),
    ("[Pool p]\nGPUs=a/b", 2, "a/b", "names"),
    ("[Pool p]\nGPU=a", 2, "GPU=", "GPUs"),
    ("[VGPU a]\nGPUMin", 2, "GPUMin", "Name=value"),
    ("[VGPU a\nGPUMin=1%", 1, "[VGPU a", "]"),
    ("[VGPU a]\nUsers=" + "x" * 300, 2, "too long", ""),
    ("[VGPU a]\nGPUMin=60%\n[VGPU b]\nGPUMin=50%", 3, "50%", "40%"),
    ("[VGPU a]\nGPUMin=60%\nGPUQuota=50%", 1, "a", ""),
]


def check(daemon: Daemon) -> subprocess.CompletedProcess[str]:
    """rtxgd --check-config on the test's files."""
    return subprocess.run([BUILD / "daemon/rtxgd", "--check-config", "--config-root", daemon.folder / "root"],
                          env=daemon.environment, capture_output=True, text=True, timeout=60, check=False)


NO_CAP = "under a cap of nothing programs would wait for ever"


@pytest.mark.parametrize("value", ["0%", "0ms/10ms", "0.00001%", "1e-9%"])
def test_a_cap_of_nothing_is_refused_alike_wherever_one_is_set(running: Daemon, value: str) -> None:
    """It is no cap at all, which is the opposite, nowhere. What was capped before stays as it was."""
    said = "a cap of nothing, under which programs would wait for ever"
    assert running.ask("vgpu-create", vgpu="v", max_ppm=300000)["ok"]
    state = json.dumps({"ociVersion": "1.0.2", "id": "c" * 64, "status": "creating", "pid": os.getpid(), "bundle": "/b"})
    for program, *words in (("cli/rtxg", "vgpu", "create", "w", "--max", value), ("cli/rtxg", "vgpu", "set", "v", "--max", value),
                            ("cli/rtxg", "run", "--no-layer", "--max", value, "--", "echo", "ran"),
                            ("cdi/rtxg-cdi-hook", "--vgpu", "w", "--max", value)):
        done = subprocess.run([BUILD / program, *words], env=running.environment, capture_output=True, text=True, timeout=60,
                              input=state, check=False)
        assert done.returncode and said in done.stderr and "ran" not in done.stdout, (words, done)
    for op, vgpu in (("vgpu-create", "w"), ("vgpu-set", "v")):
        reply = running.ask(op, vgpu=vgpu, max_ppm=0)
        assert reply["error"] == "EINVAL" and NO_CAP in reply["message"], reply
    assert {v["vgpu"]: v["max_ppm"] for v in running.ask("vgpu-list")["vgpus"]} == {"default": 1000000, "v": 300000}
    assert running.ask("limits")["max_ppm"] == {"min": 1, "max": 1000000, "default": 1000000}


def test_good(daemon: Daemon) -> None:
    """Every key arrives where it belongs."""
    daemon.write_config(GOOD)
    done = check(daemon)
    assert (done.returncode, done.stderr) == (0, "")
    daemon.start()
    assert daemon.ask("hello")["fail_policy"] == "closed"
    assert daemon.ask("limits")["tasks_per_user"] == 10
    gpus = {g["gpu"]: g for g in daemon.ask("gpu-list")["gpus"]}
    assert (gpus["0"]["policy"], gpus["0"]["period_ns"]) == ("band", 20_000_000)
    assert (gpus["big"]["policy"], gpus["big"]["think_ns"], gpus["big"]["revoke_timeout_ns"], gpus["big"]["switch_ppm"]) == (
        "cbs", -1, 1_500_000_000, 25_000)
    vgpus = {v["vgpu"]: v for v in daemon.ask("vgpu-list")["vgpus"]}
    video = vgpus["video"]
    assert (video["gpu"], video["min_ppm"], video["max_ppm"], video["weight"], video["priority"], video["period_ns"]) == (
        "big", 400_000, 625_000, 300, 20, 16_600_000)
    assert (video["policy"], video["task_priority"], video["users"], video["origin"]) == ("edf", 5, ["root", "1000"], "config")
    assert video["source"].endswith(f"rtxg.conf:{GOOD.splitlines().index('[VGPU video]') + 1}")
    assert vgpus["batch"]["min_ppm"] == 100_000
    assert daemon.ask("pool-list")["pools"][0]["gpus"] == ["big", "small"]
    # The first rule whose every condition holds: by the program's name, else by the user.
    program = daemon.device("-g", "big", "-u", "1", "-n", "1", "-q")
    assert wait_for("it is there", lambda: daemon.tasks(pid=program.pid))[0]["vgpu"] == "video"
    if os.geteuid() == 0:
        assert daemon.connect().open()["vgpu"] == "batch"
        # A program that asks before it opens a task elsewhere gets the same answer. Its share is made on that GPU.
        place = daemon.ask("place", gpu="small")
        assert (place["host"], place["gpu"], place["vgpu"]) == ("daemon", "small", "batch")
        assert "small" in [on["gpu"] for on in daemon.ask("vgpu-list", vgpu="batch")["vgpus"][0]["on"]]
    assert daemon.ask("place", gpu="small", vgpu="video")["error"] == "EACCES"  # it is for another GPU
    assert not daemon.tasks(gpu="small")  # asking opens nothing


@pytest.mark.parametrize(("text", "line", "read", "accepted"), WRONG, ids=range(len(WRONG)))
def test_wrong(daemon: Daemon, text: str, line: int, read: str, accepted: str) -> None:
    """A message names file, line, the value and the accepted values. The daemon starts with the rest of the file."""
    path = daemon.write_config(text + "\n[VGPU good]\nGPUMin=5%\n")
    done = check(daemon)
    assert done.returncode == 1
    assert f"{path}:{line}:" in done.stderr
    assert read.strip() in done.stderr and accepted in done.stderr
    daemon.start()
    checks = {c["check"]: c for c in daemon.ask("doctor")["checks"]}
    assert not checks["configuration"]["ok"] and str(path) in checks["configuration"]["detail"]
    assert daemon.ask("vgpu-list", vgpu="good")["vgpus"][0]["min_ppm"] == 50_000
    daemon.healthy()


def test_drop_ins(daemon: Daemon) -> None:
    """Drop-ins come after the main file, in the order of their names; /etc hides a file of the same name in /usr/lib."""
    daemon.write_config("[VGPU v]\nGPUWeight=1\nGPUPriority=1\n")
    daemon.write_config("[VGPU v]\nGPUWeight=2\n", "usr/lib/rtxg/rtxg.conf.d/50-a.conf")
    daemon.write_config("[VGPU v]\nGPUPriority=9\n", "run/rtxg/rtxg.conf.d/90-b.conf")
    daemon.write_config("[VGPU v]\nGPUWeight=3\n", "etc/rtxg/rtxg.conf.d/50-a.conf")
    daemon.write_config("[VGPU v]\nGPUWeight=4\n", "etc/rtxg/rtxg.conf.d/50-a.conf.bak")
    daemon.write_config("[VGPU hidden]\n", "usr/lib/rtxg/rtxg.conf")
    daemon.start()
    vgpus = {v["vgpu"]: v for v in daemon.ask("vgpu-list")["vgpus"]}
    assert set(vgpus) == {"default", "v"}
    assert (vgpus["v"]["weight"], vgpus["v"]["priority"]) == (3, 9)


def test_reload(daemon: Daemon) -> None:
    """A vGPU that changed is changed, one that is gone goes unless it is in use, and room is made before it is asked for."""
    daemon.write_config("[VGPU a]\nGPUMin=60%\n[VGPU b]\nGPUMin=30%\n")
    daemon.start()
    task = daemon.task(vgpu="b")
    daemon.write_config("[VGPU c]\nGPUMin=70%\n")
    messages = " ".join(daemon.ask("reload")["messages"])
    assert "vGPU a" in messages and "b" in messages
    assert {v["vgpu"] for v in daemon.ask("vgpu-list")["vgpus"]} == {"default", "b", "c"}
    task.close()
    daemon.connections.clear()
    assert daemon.process is not None
    wait_for("it is empty", lambda: not daemon.tasks())
    daemon.process.send_signal(signal.SIGHUP)
    wait_for("b is gone", lambda: {v["vgpu"] for v in daemon.ask("vgpu-list")["vgpus"]} == {"default", "c"})
    daemon.healthy()


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes(daemon: Daemon, seed: int) -> None:
    """The reading of any file ends, with status 0 or 1."""
    rng = random.Random(seed)
    text = bytearray(GOOD.encode())
    for _ in range(rng.randrange(1, 60)):
        at = rng.randrange(len(text))
        kind = rng.randrange(4)
        if kind == 0:
            text[at] = rng.randrange(256)
        elif kind == 1:
            del text[at : at + rng.randrange(30)]
        elif kind == 2:
            text[at:at] = rng.randbytes(rng.randrange(300))
        else:
            text[at:at] = text[at : at + rng.randrange(200)]
    daemon.write_config("").write_bytes(bytes(text))
    done = subprocess.run([BUILD / "daemon/rtxgd", "--check-config", "--config-root", daemon.folder / "root"],
                          env=daemon.environment, capture_output=True, timeout=60, check=False)
    assert done.returncode in (0, 1)


def test_bad_arguments(daemon: Daemon) -> None:
    """Options that are wrong are named; status 2."""
    for arguments in (["--idle-exit", "x"], ["--idle-exit", "-1"], ["--socket", ""], ["--socket", "x" * 200], ["extra"], ["--nope"],
                      ["--host", "nowhere"]):
        done = subprocess.run([BUILD / "daemon/rtxgd", *arguments], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2
        assert "rtxgd" in done.stderr


@pytest.mark.skipif(os.path.exists("/dev/rtxg"), reason="the kernel module is loaded here; tests/vm has both")
def test_module_that_is_not_there(daemon: Daemon) -> None:
    """--host module gets the kernel module or an error in words, never a daemon that hosts tasks itself."""
    done = subprocess.run([BUILD / "daemon/rtxgd", "--host", "module", "--socket", daemon.socket], env=daemon.environment,
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "/dev/rtxg" in done.stderr and "load rtxg.ko" in done.stderr
    assert not daemon.socket.exists()


def test_names_hold_to_their_documented_length(running: Daemon) -> None:
    """63 bytes: two names that differ in the last one are two, and each gets what stands under it."""
    gpu, vgpu = "opencl:" + "g" * 55, "v" * 62
    running.write_config(f"[GPU {gpu}1]\nPolicy=fifo\n[GPU {gpu}2]\nPolicy=band\n"
                         f"[VGPU {vgpu}1]\nGPUMin=10%\n[VGPU {vgpu}2]\nGPUMin=20%\n")
    assert running.ask("reload")["messages"] == []
    policies = {g["gpu"]: g["policy"] for g in running.ask("gpu-list")["gpus"]}
    assert (policies[gpu + "1"], policies[gpu + "2"]) == ("fifo", "band")
    shares = {v["vgpu"]: v["min_ppm"] for v in running.ask("vgpu-list")["vgpus"]}
    assert (shares[vgpu + "1"], shares[vgpu + "2"]) == (100_000, 200_000)


def test_a_name_that_is_too_long_is_an_error(daemon: Daemon) -> None:
    """It is not cut."""
    daemon.write_config("[VGPU " + "v" * 64 + "]\nGPUMin=10%\n")
    done = check(daemon)
    assert done.returncode == 1 and ".conf:1:" in done.stderr and "63 bytes" in done.stderr, done.stderr


def test_indented_sections_and_sections_without_a_line(running: Daemon) -> None:
    """As in systemd: blanks before a header and behind it say nothing, and an empty section names its object."""
    running.write_config("  [VGPU a]\n    GPUMin=10%\n    Users=root\n\n\t[ VGPU b ]  # comment\n\tGPUMin=20%\n  [VGPU empty]\n"
                         "  [Match]\n  VGPU=b\n  User=nobody-of-that-name\n")
    assert running.ask("reload")["messages"] == []
    vgpus = {v["vgpu"]: v for v in running.ask("vgpu-list")["vgpus"]}
    assert (vgpus["a"]["min_ppm"], vgpus["a"]["users"], vgpus["b"]["min_ppm"]) == (100_000, ["root"], 200_000)
    assert "empty" in vgpus
    running.write_config("[VGPU a] GPUMin=10%\n")
    assert "behind" in running.ask("reload")["messages"][0]


def test_what_is_removed_from_the_files_holds_no_longer(running: Daemon) -> None:
    """Settings of a GPU, of all GPUs, and of the daemon; pools, but not those of requests."""
    task = running.task(gpu="other")
    path = running.write_config("[GPU *]\nPolicy=fifo\nThinkSec=1ms\n[GPU 0]\nPolicy=band\n[Daemon]\nTasksPerUser=7\n[Pool both]\nGPUs=0 other\n")
    running.ask("reload")
    assert running.ask("pool-create", pool="made", gpus=["0"])["ok"]
    assert {p["pool"] for p in running.ask("pool-list")["pools"]} == {"both", "made"}
    gpus = {g["gpu"]: g for g in running.ask("gpu-list")["gpus"]}
    assert (gpus["0"]["policy"], gpus["other"]["policy"], gpus["0"]["think_ns"]) == ("band", "fifo", 1_000_000)
    path.write_text("[GPU *]\nThinkSec=3ms\n")
    running.ask("reload")
    assert [p["pool"] for p in running.ask("pool-list")["pools"]] == ["made"]
    gpus = {g["gpu"]: g for g in running.ask("gpu-list")["gpus"]}
    assert (gpus["0"]["policy"], gpus["other"]["policy"], gpus["0"]["think_ns"]) == ("cbs", "cbs", 3_000_000)
    path.unlink()
    running.ask("reload")
    reply = running.ask("gpu-list")
    assert {g["think_ns"] for g in reply["gpus"]} == {2_000_000} and reply["default"]["think_ns"] == 2_000_000
    assert running.ask("limits")["tasks_per_user"] == 1024
    assert task


def test_the_default_vgpu_is_as_it_was_when_no_file_names_it_any_more(running: Daemon) -> None:
    """It is always there, so it cannot go as others do."""
    before = running.ask("vgpu-list", vgpu="default")["vgpus"]
    path = running.write_config(
        "[VGPU default]\nGPUQuota=10%\nGPUWeight=7\nGPUMin=5%\nTaskPriority=9\nUsers=root\n"
    )
    running.ask("reload")
    path.unlink()
    reply = running.ask("reload")
    assert running.ask("vgpu-list", vgpu="default")["vgpus"] == before
    assert (
        "GPUQuota=100% (was 10%)" in reply["changes"][0]
        and "GPUWeight=default (was 7)" in reply["changes"][0]
    ), reply


def test_a_vgpu_is_for_the_gpu_that_the_files_name_now(running: Daemon) -> None:
    """It changes over with its reservation, unless programs are in it; then that is said, and all
    stays.
    """
    gpus = "[GPU a]\n[GPU b]\n[VGPU half]\nGPU=b\nGPUMin=50%\n"

    def gpu_of_v() -> tuple[object, int, list[str]]:
        vgpu = running.ask("vgpu-list", vgpu="v")["vgpus"][0]
        return vgpu["gpu"], vgpu["min_ppm"], sorted(on["gpu"] for on in vgpu["on"])

    path = running.write_config(gpus + "[VGPU v]\nGPU=a\nGPUMin=30%\n")
    assert running.ask("reload")["errors"] == 0 and gpu_of_v() == ("a", 300000, ["a"])
    path.write_text(gpus + "[VGPU v]\nGPU=b\nGPUMin=30%\n")
    reply = running.ask("reload")
    assert (
        reply["errors"] == 0
        and reply["changes"] == ["vGPU v: GPU=b (was a)"]
        and gpu_of_v() == ("b", 300000, ["b"])
    )
    # Where it does not fit, it stays where it was.
    path.write_text(gpus + "[VGPU v]\nGPU=a\nGPUMin=40%\n")
    assert running.ask("reload")["errors"] == 0 and gpu_of_v() == ("a", 400000, ["a"])
    path.write_text(gpus + "[VGPU v]\nGPU=b\nGPUMin=60%\n")
    reply = running.ask("reload")
    assert (
        reply["errors"] == 1
        and "60%" in reply["messages"][0]
        and gpu_of_v() == ("a", 400000, ["a"])
    )
    task = running.task(vgpu="v", gpu="a")
    path.write_text(gpus + "[VGPU v]\nGPU=b\nGPUMin=10%\n")
    reply = running.ask("reload")
    assert (
        reply["errors"] == 1
        and "rtxg ps" in reply["messages"][0]
        and gpu_of_v() == ("a", 400000, ["a"])
    )
    task.close()
    running.connections.clear()
    wait_for("it is empty", lambda: not running.tasks())
    path.write_text(gpus + "[VGPU v]\nGPUMin=10%\n")
    reply = running.ask("reload")
    assert reply["errors"] == 0 and "GPU=all (was a)" in reply["changes"][0]
    assert gpu_of_v() == (None, 100000, ["0", "a", "b"])


def test_reload_says_what_changed_and_what_is_wrong(running: Daemon) -> None:
    """Changed values with the old ones, new vGPUs, and refusals; the command's exit status is that of the configuration."""
    def reload() -> tuple[int, str]:
        done = subprocess.run([BUILD / "cli/rtxg", "host", "reload"], env=running.environment, capture_output=True, text=True,
                              timeout=60, check=False)
        return done.returncode, done.stdout

    path = running.write_config("[VGPU a]\nGPUMin=10%\n")
    assert reload() == (0, "vGPU a was made\n")
    path.write_text("[VGPU a]\nGPUMin=20%\nGPUPriority=5\n[GPU 0]\nPolicy=band\n")
    status, said = reload()
    assert status == 0 and "GPUMin=20% (was 10%)" in said and "GPUPriority=5" in said and "Policy=band (was cbs)" in said
    assert reload() == (0, "")
    path.write_text("[VGPU a]\nGPUMin=20%\n[VGPU b]\nGPUMin=90%\n[GPU 0]\nPolicy=band\n")
    status, said = reload()
    assert status == 1 and "90%" in said and "80%" in said and "ppm" not in said.replace("(ppm)", ""), said
