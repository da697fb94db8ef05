# SPDX-License-Identifier: MIT
"""The lists show the objects and every change to them."""

from __future__ import annotations

import csv
import ctypes.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Rtxg, wait_for

from rtxg.core import GPU_POLICIES


def test_vgpu_create_list_set_remove(rtxg: Rtxg) -> None:
    """A life of one vGPU."""
    assert rtxg.ok("vgpu", "create", "camera", "--min", "40%", "--max", "60%", "--weight", "200", "--priority", "5",
                   "--period", "10ms", "--policy", "edf") == ""
    camera = next(v for v in rtxg.json("vgpu", "ls") if v["vgpu"] == "camera")
    assert camera == {"vgpu": "camera", "gpu": "all", "min": 0.4, "max": 0.6, "weight": 200, "priority": 5,
                      "period_seconds": 0.01, "latency_seconds": None, "policy": "edf", "work_conserving": True, "tasks": 0}
    rtxg.ok("vgpu", "set", "camera", "--min", "37.5%", "--max", "37.5%")
    camera = rtxg.json("vgpu", "ls", "camera")[0]
    assert (camera["min"], camera["max"], camera["weight"]) == (0.375, 0.375, 200)
    assert camera["work_conserving"] is False, "max = min: exactly that share, and it is shown"
    rtxg.ok("vgpu", "set", "camera", "--max", "8ms/20ms")
    camera = rtxg.json("vgpu", "ls", "camera")[0]
    assert (camera["max"], camera["period_seconds"]) == (0.4, 0.02)
    rtxg.ok("vgpu", "rm", "camera")
    assert "camera" not in [v["vgpu"] for v in rtxg.json("vgpu", "ls")]


def test_a_weight_that_was_not_given_is_listed_as_such(rtxg: Rtxg) -> None:
    """A dash for people, null in JSON; a weight of 100 that was given is a 100."""
    rtxg.ok("vgpu", "create", "silent")
    rtxg.ok("vgpu", "create", "hundred", "--weight", "100")
    weights = {v["vgpu"]: v["weight"] for v in rtxg.json("vgpu", "ls")}
    assert weights["silent"] is None
    assert weights["hundred"] == 100
    assert rtxg.ok("vgpu", "ls", "-n", "-o", "WEIGHT", "silent").split() == ["-"]


def test_vgpu_errors_of_the_host(rtxg: Rtxg) -> None:
    """Over-reservation, doubles, unknown names."""
    rtxg.ok("vgpu", "create", "a", "--min", "70%")
    said = rtxg.refused("vgpu", "create", "b", "--min", "40%", status=1)
    assert "40%; the limit is 30%" in said, "as typed"
    assert "b" not in [v["vgpu"] for v in rtxg.json("vgpu", "ls")]
    assert "'a'" in (said := rtxg.refused("vgpu", "create", "a", status=1)) or '"a"' in said or " a " in said
    assert "nosuch" in rtxg.refused("vgpu", "set", "nosuch", "--min", "1%", status=1)
    assert "nosuch" in rtxg.refused("vgpu", "rm", "nosuch", status=1)
    assert "nosuch" in rtxg.refused("vgpu", "ls", "nosuch", status=1)
    rtxg.refused("vgpu", "rm", "default", status=1)
    said = rtxg.refused("vgpu", "set", "a", "--policy", "rm", status=1)
    assert "rm" in said
    assert "edf" in said
    rtxg.refused("vgpu", "set", "a", "--min", "50%", "--max", "40%", status=1)
    assert rtxg.json("vgpu", "ls", "a")[0]["min"] == 0.7, "a refused change changes nothing"


def test_limits_show_what_is_left(rtxg: Rtxg) -> None:
    """Reserved and free move against each other; a refusal and `limits` agree."""
    before = rtxg.json("limits")[0]
    rtxg.ok("vgpu", "create", "a", "--min", "30%")
    after = rtxg.json("limits")[0]
    assert after["reserved"] == pytest.approx(before["reserved"] + 0.3)
    assert after["free"] == pytest.approx(before["free"] - 0.3)
    rtxg.ok("vgpu", "create", "b", "--min", f"{after['free'] * 100:.4f}%")
    rtxg.refused("vgpu", "create", "c", "--min", "0.1%", status=1)
    ranges = {r["value"]: r for r in rtxg.json("limits", "-m")}
    assert (ranges["weight"]["min"], ranges["weight"]["max"]) == (1, 10000)
    assert ranges["cpu-priority (fifo)"]["max"] == 99


def test_gpu_set(rtxg: Rtxg) -> None:
    """Policies and their parameters; a refusal of an unknown one names the accepted ones."""
    text = rtxg.ok("gpu", "set", "--help")
    for policy in GPU_POLICIES:
        rtxg.ok("gpu", "set", "0", "--policy", policy)
        assert rtxg.json("gpu", "ls")[0]["policy"] == policy
        assert re.search(rf"^ +{policy} +\S", text, re.MULTILINE), f"{policy} is not in --help"
    rtxg.ok("gpu", "set", "--all", "--policy", "band", "--overrun", "charge", "--band-wait", "250us", "--think", "never")
    gpu = rtxg.json("gpu", "ls", "-o", "policy,overrun,bandwait,think")[0]
    assert gpu == {"policy": "band", "overrun": "charge", "band_wait_seconds": 0.00025, "think_seconds": -1}
    said = rtxg.refused("gpu", "set", "0", "--policy", "sedf", status=1)
    assert "sedf" in said
    for policy in GPU_POLICIES:
        assert policy in said


def test_pool(rtxg: Rtxg) -> None:
    """A pool of two GPUs; advice names one of them; doubles and unknown names are refused."""
    rtxg.ok("gpu", "set", "--new", "second", "--policy", "cbs")
    rtxg.ok("pool", "create", "all", "0", "second")
    pool = rtxg.json("pool", "ls")[0]
    assert (pool["pool"], pool["gpus"], pool["tasks"]) == ("all", "0,second", 0)
    assert pool["advice"] in ("0", "second")
    assert "all" in rtxg.refused("pool", "create", "all", "0", status=1)
    rtxg.ok("pool", "rm", "all")
    assert rtxg.json("pool", "ls") == []
    assert "all" in rtxg.refused("pool", "rm", "all", status=1)


def test_columns(rtxg: Rtxg) -> None:
    """-o chooses and orders, + adds, -n leaves the headings out."""
    rtxg.ok("vgpu", "create", "camera", "--min", "40%")
    assert rtxg.ok("vgpu", "ls", "-n", "-o", "min,vgpu", "camera").split() == ["40.0%", "camera"]
    assert rtxg.ok("vgpu", "ls", "camera", "-o", "VGPU,MAX").split() == ["VGPU", "MAX", "camera", "max"]
    plain, more = rtxg.json("vgpu", "ls", "camera")[0], rtxg.json("vgpu", "ls", "camera", "-o", "+ORIGIN")[0]
    assert list(more) == [*plain, "origin"]


def test_ps_and_set_and_get(rtxg: Rtxg) -> None:
    """A task is listed, moved, reprioritised, and gone when it ends."""
    rtxg.ok("vgpu", "create", "camera", "--min", "40%")
    assert rtxg.json("ps", "-m") == []
    child = rtxg.client()
    assert child.stdin
    assert child.stdout
    child.stdin.write("launch\nlaunch\n")
    child.stdin.flush()
    assert [child.stdout.readline() for _ in range(2)] == ["done\n"] * 2
    task = wait_for("two launches", 
                    lambda: next((t for t in rtxg.json("ps", "-m", "-o", "+MANAGED") if t["launches"] == 2), None))
    assert (task["pid"], task["vgpu"], task["managed"]) == (child.pid, "default", True)
    rtxg.ok("set", "-p", str(child.pid), "-v", "camera", "--priority", "9", "-P", "20ms")
    task = rtxg.json("get", str(child.pid), "-o", "+PERIOD")[0]
    assert (task["vgpu"], task["priority"], task["period_seconds"]) == ("camera", 9, 0.02)
    assert rtxg.ok("set", "-p", str(child.pid)) == rtxg.ok("get", str(child.pid)), "get by leaving the value out"
    assert [t["pid"] for t in rtxg.json("ps", "-v", "camera")] == [child.pid]
    assert "vGPU" in rtxg.refused("set", "-p", str(child.pid), "-v", "nosuch", status=1)
    rtxg.refused("vgpu", "rm", "camera", status=1)
    child.communicate("")
    wait_for("the task is gone", lambda: rtxg.json("ps", "-m") == [])
    assert str(child.pid) in rtxg.refused("set", "-p", str(child.pid), "--priority", "3", status=1)
    assert str(child.pid) in rtxg.refused("get", str(child.pid), status=1)


def test_a_fair_process_has_no_cpu_runtime(rtxg: Rtxg) -> None:
    """New kernels tell the scheduler's slice where a deadline task has its runtime."""
    row = rtxg.json("get", str(os.getpid()), "-o", "CPUPOLICY,CPURUNTIME")[0]
    assert os.sched_getscheduler(0) != os.SCHED_OTHER or row["cpu_runtime_seconds"] is None, row


def test_set_the_cpu_side_of_every_thread(rtxg: Rtxg) -> None:
    """A process without any GPU task can be given CPU scheduling; asked for its GPU side, the error says that it has none."""
    code = "import threading, sys; e = threading.Event(); threading.Thread(target=e.wait).start(); print('up', flush=True)"
    child = subprocess.Popen([sys.executable, "-c", code + "; sys.stdin.read(); e.set()"], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)
    rtxg.children.append(child)
    assert child.stdout
    assert child.stdout.readline() == "up\n"
    cpu = min(os.sched_getaffinity(0))
    rtxg.ok("set", "-p", str(child.pid), "--cpu-policy", "batch", "-c", str(cpu))
    threads = [int(t) for t in os.listdir(f"/proc/{child.pid}/task")]
    assert len(threads) == 2
    assert {os.sched_getscheduler(t) for t in threads} == {os.SCHED_BATCH}
    assert {tuple(os.sched_getaffinity(t)) for t in threads} == {(cpu,)}
    row = rtxg.json("get", str(child.pid))[0]
    assert (row["vgpu"], row["cpu_policy"], row["affinity"]) == ("-", "batch", str(cpu))
    assert str(child.pid) in rtxg.refused("set", "-p", str(child.pid), "--priority", "5", status=1)
    child.communicate("")


def test_unmanaged_is_listed(rtxg: Rtxg) -> None:
    """A process with OpenCL mapped and no task is UNMANAGED in ps and top, with the library that gave it away."""
    if not ctypes.util.find_library("OpenCL"):
        pytest.skip("libOpenCL is not installed")
    code = "import ctypes, sys; ctypes.CDLL('libOpenCL.so.1'); print('up', flush=True); sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    rtxg.children.append(child)
    assert child.stdout
    assert child.stdout.readline() == "up\n"
    row = next(r for r in rtxg.json("ps", "-u", "-o", "PID,VGPU,USES,MANAGED") if r["pid"] == child.pid)
    assert row == {"pid": child.pid, "vgpu": "UNMANAGED", "uses": "libOpenCL", "managed": False}
    assert f"UNMANAGED: {child.pid} " in (text := rtxg.ok("top", "-b", "-n", "1")) or f" {child.pid} " in text
    assert child.pid in [u["pid"] for u in json.loads(rtxg.ok("top", "-J", "-n", "1"))["unmanaged"]]
    child.communicate("")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's processes are believed to be rtxg's own")
def test_what_governs_is_not_unmanaged(rtxg: Rtxg) -> None:
    """The guardian has the GPU open and is not listed. Another user's process is listed under any name."""
    if not ctypes.util.find_library("OpenCL"):
        pytest.skip("libOpenCL is not installed")
    code = (
        "import ctypes, os, sys; ctypes.CDLL('libOpenCL.so.1'); open('/proc/self/comm', 'w').write('rtxg-guardian');"
        "os.setuid(int(sys.argv[1])); print('up', flush=True); sys.stdin.read()"
    )
    listed = {}
    for uid in (0, 65534):
        child = subprocess.Popen(
            [sys.executable, "-c", code, str(uid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        rtxg.children.append(child)
        assert child.stdout
        assert child.stdout.readline() == "up\n"
        listed[uid] = child.pid in [r["pid"] for r in rtxg.json("ps", "-u", "-o", "PID,VGPU")]
        child.communicate("")
    assert listed == {0: False, 65534: True}


def test_a_crowd_is_listed_whole(rtxg: Rtxg) -> None:
    """An answer longer than a packet."""
    for i in range(150):
        rtxg.ok("vgpu", "create", f"vgpu-{i:03}-{'x' * 40}")
    names = [v["vgpu"] for v in rtxg.json("vgpu", "ls")]
    assert len([n for n in names if n.startswith("vgpu-")]) == 150


def test_top_in_a_pipe(rtxg: Rtxg) -> None:
    """No escape sequences, as many pictures as asked for, reservation and work conservation in words."""
    rtxg.ok("vgpu", "create", "hard", "--min", "30%", "--max", "30%")
    rtxg.ok("vgpu", "create", "soft", "--min", "20%")
    child = rtxg.client()
    text = rtxg.ok("top", "-n", "2", "-d", "100ms", "-t")
    assert "\x1b" not in text
    assert text.count("rtxg top") == 2
    hard = next(line for line in text.splitlines() if line.split()[:1] == ["hard"])
    assert hard.split()[1:4] == ["compute", "30.0%", "30.0%"]
    assert hard.split()[-1] == "no", "work-conserving or not is visible where a share is shown"
    soft = next(line for line in text.splitlines() if line.split()[:1] == ["soft"])
    assert soft.split()[-1] == "yes"
    assert hard.count("|") == 2, "the mark of the reservation, in both bars"
    assert f" {child.pid} " in text
    child.communicate("")


def test_top_sorts(rtxg: Rtxg) -> None:
    """By name, by reservation, and as they were made; equal ones stay in the order in which they were made."""
    for name, share in (("b", "20%"), ("c", "30%"), ("a", "20%")):
        rtxg.ok("vgpu", "create", name, "--min", share)

    def order(*words: str) -> str:
        lines = rtxg.ok("top", "-n", "1", *words).splitlines()
        return "".join(line.split()[0] for line in lines if line.split() and line.split()[0] in "abc")

    assert (order(), order("--sort", "name"), order("-s", "reserved"), order("-s", "used")) == ("bca", "abc", "cba", "bca")


def test_top_json(rtxg: Rtxg) -> None:
    """One object a line, with the daemon's own numbers."""
    rtxg.ok("vgpu", "create", "a", "--min", "30%")
    lines = rtxg.ok("top", "-J", "-n", "3", "-d", "50ms").splitlines()
    assert len(lines) == 3
    for line in lines:
        gpu = json.loads(line)["gpus"][0]
        a = next(v for v in gpu["vgpus"] if v["vgpu"] == "a")
        assert a["min_ppm"] == 300000
        assert {"used_1s_ppm", "used_10s_ppm"} <= set(a["engines"][0])


def test_top_on_a_terminal(rtxg: Rtxg) -> None:
    """top redraws in place, ends by q, and restores the terminal."""
    import fcntl
    import pty
    import struct
    import termios

    rtxg.ok("vgpu", "create", "a", "--min", "30%")
    try:
        master, slave = pty.openpty()
    except OSError as error:
        pytest.skip(f"no pseudo-terminals here (is /dev/pts mounted?): {error}")
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    before = termios.tcgetattr(slave)
    child = subprocess.Popen([rtxg.program, "top", "-d", "50ms"], env=rtxg.environment, stdin=slave, stdout=slave, stderr=slave)
    rtxg.children.append(child)  # type: ignore[arg-type]
    seen = b""
    while seen.count(b"rtxg top") < 3:
        seen += os.read(master, 65536)
    os.write(master, b"q")
    assert child.wait(30) == 0
    os.close(os.dup(slave))
    os.set_blocking(master, False)
    try:
        while data := os.read(master, 65536):
            seen += data
    except BlockingIOError:
        pass
    assert b"\x1b[?1049h" in seen
    assert seen.rindex(b"\x1b[?1049l") > seen.rindex(b"rtxg top"), "the screen from before is back"
    for row in seen.split(b"\r\n")[:-1]:
        visible = row.split(b"\x1b[H")[-1]
        assert len(__import__("re").sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", visible).decode()) <= 100, "a line is cut, not wrapped"
    assert termios.tcgetattr(slave) == before
    os.close(master)
    os.close(slave)


def test_history(rtxg: Rtxg) -> None:
    """CSV and JSON with the same columns; no slot is busier than it is long."""
    child = rtxg.client()
    assert child.stdin
    assert child.stdout
    child.stdin.write("launch\n" * 50)
    child.stdin.flush()
    for _ in range(50):
        child.stdout.readline()

    def rows() -> list[dict[str, str]]:
        return [r for r in csv.DictReader(rtxg.ok("history").splitlines()) if r["vgpu"] == "default"]

    wait_for("charged time", lambda: sum(float(r["busy"]) for r in rows()) > 0)
    first = rows()[0]
    assert first["engine"] == "compute"
    assert all(float(r["busy"]) <= float(r["seconds"]) * 1.001 for r in rows())
    line = json.loads(rtxg.ok("history", "-J").splitlines()[0])
    assert set(line) == set(first)
    child.communicate("")


def test_host_commands(rtxg: Rtxg) -> None:
    """show, reload, stop; stop refuses while a task is open, unless forced."""
    host = rtxg.json("host", "show")[0]
    assert rtxg.daemon
    assert host["pid"] == rtxg.daemon.pid
    assert host["socket"] == str(rtxg.socket)
    rtxg.ok("host", "start")
    assert rtxg.json("host", "show")[0]["pid"] == host["pid"], "one that runs is not started again"
    assert rtxg("host", "reload").returncode == 0
    child = rtxg.client()
    rtxg.refused("host", "stop", status=1)
    rtxg.ok("host", "stop", "-f")
    assert rtxg.daemon.wait(30) == 0
    child.kill()


def test_doctor(rtxg: Rtxg) -> None:
    """Each check has a result, a failed check has a remedy, and the exit status follows."""
    done = rtxg("doctor", "-J")
    checks = {c["check"]: c for c in json.loads(done.stdout)["checks"]}
    assert checks["host"]["result"] == "ok"
    assert str(rtxg.socket) in checks["host"]["detail"]
    assert {"opencl", "cpu fifo", "cpu deadline", "nvidia", "kernel module", "interrupts"} <= set(
        checks
    )
    governor = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    set_to = governor.read_text().strip() if governor.exists() else ""
    assert checks["cpu clock"]["result"] == {"": "absent", "performance": "ok"}.get(
        set_to, "advice"
    )
    for check in checks.values():
        assert check["result"] in ("ok", "no", "advice", "absent")
        assert check["detail"]
        if check["result"] in ("no", "advice"):
            assert check["remedy"]
    assert done.returncode == (1 if any(c["result"] == "no" for c in checks.values()) else 0)
    broken = rtxg("doctor", RTXG_OPENCL_LAYER="/no/layer.so")
    assert broken.returncode == 1
    assert "/no/layer.so" in broken.stdout
