# SPDX-License-Identifier: MIT
"""`rtxg run` becomes the program: its PID, exit status, signals, environment and CPU scheduling."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import BUILD, Rtxg, wait_for

LAYER = BUILD / "layers/opencl/librtxg-opencl.so"
CUDA_LAYER = BUILD / "layers/cuda/librtxg-cuda.so"
PRINT = [sys.executable, "-c"]


def show(expression: str) -> list[str]:
    """A program that prints a Python expression."""
    return [*PRINT, f"import os; print({expression})"]


@pytest.mark.parametrize("status", [0, 1, 3, 125, 255])
def test_exit_status_is_the_programs(rtxg: Rtxg, status: int) -> None:
    """The exit status of rtxg run is the program's, for each status."""
    assert rtxg("run", "--no-layer", "--", "sh", "-c", f"exit {status}").returncode == status


def test_not_found_and_not_executable(rtxg: Rtxg) -> None:
    """127 and 126, as env has them."""
    assert "/no/such/program" in rtxg.refused("run", "--no-layer", "/no/such/program", status=127)
    plain = rtxg.folder / "plain"
    plain.write_text("text")
    assert str(plain) in rtxg.refused("run", "--no-layer", plain, status=126)


def test_nothing_is_left_between(rtxg: Rtxg) -> None:
    """The program has the PID that rtxg had, and a signal goes to it."""
    child = subprocess.Popen([rtxg.program, "run", "--no-layer", "--", "sh", "-c", "echo $$; exec sleep 600"],
                             env=rtxg.environment, stdout=subprocess.PIPE, text=True)
    rtxg.children.append(child)
    assert child.stdout
    assert int(child.stdout.readline()) == child.pid
    child.send_signal(signal.SIGTERM)
    assert child.wait(30) == -signal.SIGTERM


def test_words_after_the_command_are_its_own(rtxg: Rtxg) -> None:
    """Options of the program are not taken, with and without --."""
    assert rtxg.ok("run", "--no-layer", "echo", "-v", "--min", "x") == "-v --min x\n"
    assert rtxg.ok("run", "--no-layer", "--", "echo", "--", "-p") == "-- -p\n"


def test_waits_of_cuda_programs(rtxg: Rtxg) -> None:
    """CUDA's driver library is told to load ours, if no other one is asked for already."""
    program = show("os.environ['CUDA_INJECTION64_PATH'], os.environ['RTXG_WAITS']")
    run = ("run", "--no-layer", "--waits")
    ours = {"CUDA_INJECTION64_PATH": str(CUDA_LAYER)}
    another = {"CUDA_INJECTION64_PATH": "/opt/profiler.so"}
    assert rtxg.ok(*run, "notify", "--", *program) == f"{CUDA_LAYER} notify\n"
    assert rtxg.ok(*run, "fence", "--", *program, **ours) == f"{CUDA_LAYER} fence\n"
    said = rtxg.refused(*run, "fence", "--", "true", status=125, **another)
    assert "'/opt/profiler.so' already" in said
    said = rtxg.refused(*run, "spin", "--", "true", status=125)
    assert "accepted: notify, fence" in said
    said = rtxg.refused(*run, "notify", "--", "true", status=125, RTXG_CUDA_LAYER="/none.so")
    assert "/none.so" in said


def test_environment(rtxg: Rtxg) -> None:
    """The variables that librtxg reads are set. An option that was not given is absent, even if an outer run set it."""
    rtxg.ok("vgpu", "create", "camera", "--min", "40%")
    names = ["RTXG_VGPU", "RTXG_PRIORITY", "RTXG_RUNTIME_NS", "RTXG_DEADLINE_NS", "RTXG_PERIOD_NS", "RTXG_FAIL"]
    program = show(f"[os.environ.get(n) for n in {names}]")
    got = rtxg.ok("run", "--no-layer", "-v", "camera", "-p", "7", "-T", "3ms", "-D", "8ms", "-P", "0.01s", "--fail", "closed",
                  "--", *program)
    assert got.strip() == str(["camera", "7", "3000000", "8000000", "10000000", "closed"])
    got = rtxg.ok("run", "--no-layer", "--", *program, RTXG_PRIORITY="9")
    assert got.strip() == str([None] * 6)


def test_layer_comes_first_and_once(rtxg: Rtxg) -> None:
    """OPENCL_LAYERS keeps its earlier entries; a run inside a run adds nothing."""
    if not LAYER.exists():
        pytest.fail(f"{LAYER} is not built")
    program = show("os.environ['OPENCL_LAYERS']")
    assert rtxg.ok("run", "--", *program).strip() == str(LAYER)
    assert rtxg.ok("run", "--", *program, OPENCL_LAYERS="/x/other.so").strip() == f"{LAYER}:/x/other.so"
    assert rtxg.ok("run", "--", rtxg.program, "run", "--", *program).strip() == str(LAYER)


def test_missing_layer_is_said(rtxg: Rtxg) -> None:
    """An OpenCL program would silently run unmanaged otherwise."""
    said = rtxg.refused("run", "true", status=125, RTXG_OPENCL_LAYER="/no/layer.so")
    assert "/no/layer.so" in said
    assert "--no-layer" in said


def test_affinity(rtxg: Rtxg) -> None:
    """The program has the affinity. The error for an absent CPU names the CPUs that are online."""
    cpu = min(os.sched_getaffinity(0))
    assert rtxg.ok("run", "--no-layer", "-c", str(cpu), "--", *show("os.sched_getaffinity(0)")).strip() == f"{{{cpu}}}"
    said = rtxg.refused("run", "--no-layer", "-c", "1000", "true", status=125)
    assert "1000" in said
    assert "online" in said


def permitted(policy: int) -> bool:
    """Whether this machine lets us have a CPU policy at all."""
    child = os.fork()
    if child == 0:
        try:
            os.sched_setscheduler(0, policy, os.sched_param(1))
            os._exit(0)
        except OSError:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(("name", "policy"), [("fifo", os.SCHED_FIFO), ("rr", os.SCHED_RR)])
def test_cpu_policy(rtxg: Rtxg, name: str, policy: int) -> None:
    """The program and its children have the policy."""
    if not permitted(policy):
        pytest.skip(f"this machine does not permit {name} (RLIMIT_RTPRIO or CAP_SYS_NICE)")
    program = show("(os.sched_getscheduler(0), os.sched_getparam(0).sched_priority)")
    got = rtxg.ok("run", "--no-layer", "--cpu-policy", name, "--cpu-priority", "12", "--", *program)
    assert got.strip() == f"({policy}, 12)"


def test_deadline_task_can_create_threads(rtxg: Rtxg) -> None:
    """SCHED_DEADLINE forbids fork and threads unless it is reset in them, and every GPU program has threads."""
    if os.geteuid() != 0:
        pytest.skip("SCHED_DEADLINE needs CAP_SYS_NICE")
    code = "import os, threading; t = threading.Thread(target=lambda: print(os.sched_getscheduler(0))); t.start(); t.join()"
    code += "; print(os.sched_getscheduler(0) & 0xffff)"
    done = rtxg("run", "--no-layer", "--cpu-policy", "deadline", "--cpu-runtime", "1ms", "--period", "100ms", "--", *PRINT, code)
    if done.returncode == 125 and "affinity" in done.stderr:
        pytest.skip(f"the kernel refuses it to this process: {done.stderr.strip()}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n6\n", "")


def test_a_deadline_task_sleeps_for_its_fence_and_does_not_yield_its_budget(rtxg: Rtxg) -> None:
    """Yielding gives the rest of the runtime away; the policy that `rtxg run` sets carries RESET_ON_FORK."""
    fence = str(BUILD / "tests/conform/fence")
    assert rtxg.ok("run", "--no-layer", "--", fence) == "policy 0 yields 5 sleeps 0\n"
    if os.geteuid() != 0:
        pytest.skip("SCHED_DEADLINE needs CAP_SYS_NICE")
    done = rtxg("run", "--no-layer", "--cpu-policy", "deadline", "--cpu-runtime", "1ms", "--period", "100ms", "--", fence)
    if done.returncode == 125 and "affinity" in done.stderr:
        pytest.skip(f"the kernel refuses it to this process: {done.stderr.strip()}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "policy 0x40000006 yields 0 sleeps 5\n", "")


def test_refused_policy_names_the_rule(rtxg: Rtxg) -> None:
    """Without privilege: which limit, its value, and the remedy."""
    if os.geteuid() != 0:
        pytest.skip("needs root to give its privilege away")
    done = subprocess.run(["setpriv", "--inh-caps=-all", "--bounding-set=-all", "prlimit",
                           "--rtprio=0:0", rtxg.program, "run", "--no-layer", "--cpu-policy", "fifo", "--cpu-priority", "5",
                           "true"], env=rtxg.environment | {"RTXG_SOCKET": "/nonexistent/s"}, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 125
    assert "RLIMIT_RTPRIO is 0" in done.stderr
    assert "limits.d" in done.stderr


def test_unknown_vgpu_is_said_before_the_program_starts(rtxg: Rtxg) -> None:
    """With what there is, and the nearest."""
    rtxg.ok("vgpu", "create", "camera", "--min", "10%")
    said = rtxg.refused("run", "--no-layer", "-v", "camrea", "--", "touch", rtxg.folder / "ran", status=125)
    for word in ("'camrea'", "'camera'", "default", "vgpu create"):
        assert word in said
    assert not (rtxg.folder / "ran").exists()


def test_no_host(lone: Rtxg) -> None:
    """Open: the program runs and it is said once; closed, or with a promise to keep: it does not run."""
    lone.environment["RTXG_DAEMON"] = "/no/rtxgd"
    lone.environment["RTXG_SOCKET"] = str(lone.folder / "absent")
    done = lone("run", "--no-layer", "echo", "ran")
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert done.stderr.count("UNMANAGED") == 1
    lone.refused("run", "--no-layer", "--fail", "closed", "echo", "ran", status=125)
    lone.refused("run", "--no-layer", "--min", "40%", "echo", "ran", status=125)
    lone.refused("run", "--no-layer", "-v", "default", "echo", "ran", status=125)
    for command in (("vgpu", "ls"), ("top", "-b", "-n", "1")):
        assert "rtxgd --socket starts one there" in lone.refused(*command, status=1)


def test_starts_the_users_own_daemon(lone: Rtxg, tmp_path: Path) -> None:
    """Without a socket named, run finds no host and starts one under XDG_RUNTIME_DIR."""
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    del lone.environment["RTXG_SOCKET"]
    lone.environment["XDG_RUNTIME_DIR"] = str(runtime)
    assert "'rtxg vgpu create' start one" in lone.refused("vgpu", "ls", status=1)
    assert lone.ok("run", "--no-layer", "echo", "ran") == "ran\n"
    try:
        host = lone.json("host", "show")[0]
        assert host["socket"].startswith(str(runtime))
        assert host["scope"] == "user"
    finally:
        lone.ok("host", "stop", "-f")
    wait_for("the daemon ends", lambda: not Path(f"/proc/{host['pid']}/exe").exists())


def test_vgpu_for_one_run(rtxg: Rtxg) -> None:
    """--min makes a vGPU that is there for the program and gone with it."""
    child = rtxg.client(before=(str(rtxg.program), "run", "--no-layer", "--min", "35%", "--weight", "7", "--"))
    task = rtxg.json("ps", "-m", "-o", "PID,VGPU")[0]
    assert (task["pid"], task["vgpu"]) == (child.pid, f"run-{child.pid}")
    made = next(v for v in rtxg.json("vgpu", "ls", "-o", "+ORIGIN") if v["vgpu"] == task["vgpu"])
    assert (made["min"], made["weight"], made["origin"], made["tasks"]) == (0.35, 7, "transient", 1)
    child.communicate("")
    assert child.returncode == 0
    wait_for("the vGPU goes", lambda: task["vgpu"] not in [v["vgpu"] for v in rtxg.json("vgpu", "ls")])


def test_vgpu_for_one_run_is_admitted_or_refused(rtxg: Rtxg) -> None:
    """A share that is not free is refused."""
    rtxg.ok("vgpu", "create", "camera", "--min", "70%")
    said = rtxg.refused("run", "--no-layer", "--min", "40%", "--", "touch", rtxg.folder / "ran", status=125)
    assert "40" in said
    assert not (rtxg.folder / "ran").exists()
    said = rtxg.refused("run", "--no-layer", "-v", "camera", "--min", "10%", "true", status=125)
    assert "vgpu set camera" in said
