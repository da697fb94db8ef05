# SPDX-License-Identifier: MIT
"""The OpenCL layer: programs behave under it as they do without it.

The program `semantics` tries the calls that a layer could get wrong, and prints the results without times and addresses.  The tests
run it natively, under the layer with a stand-in for librtxg (which grants, revokes at random, refuses, or dies), and under the layer with
the real daemon, two programs at a time.  The outputs have to be the same.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("RTXG_BUILD", ROOT / "build/release")).resolve()
LAYER = BUILD / "layers/opencl/librtxg-opencl.so"
SEMANTICS = BUILD / "tests/layers/semantics"
DOUBLE = BUILD / "tests/layers/librtxg_double.so"

#: seconds after which a program is taken to hang; generous, because nothing here depends on being fast
PATIENCE_S = 120

CASES = [
    "in_order",
    "out_of_order",
    "user_event",
    "queued",
    "unwaited",
    "failed_before",
    "later_frees_earlier",
    "blocking",
    "profiling",
    "errors",
    "failed_calls",
    "failed_behind",
    "odd_lists",
    "markers",
    "marker_lists",
    "marker_beside",
    "threads",
    "contexts",
    "finished_meanwhile",
    "callbacks",
    "native_kernels",
    "held_behind",
    "failed_early",
    "early_release",
    "released_by_two",
    "copies",
    "svm",
    "sub_devices",
    "ends_without_releasing",
    "returns_without_releasing",
    "forks",
]


def environment(**more: str | Path) -> dict[str, str]:
    """Ours without anything of rtxg, and with `more`."""
    bare = {k: v for k, v in os.environ.items() if not k.startswith(("RTXG_", "OPENCL_LAYERS", "LD_PRELOAD"))}
    return bare | {k: str(v) for k, v in more.items()}


def program(*command: str | Path, **more: str | Path) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return subprocess.run(command, env=environment(**more), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S,
                          check=False)


@functools.cache
def opencl_missing() -> str:
    """Why there is no OpenCL to test with; empty if there is."""
    if not SEMANTICS.exists():
        return "the OpenCL headers and loader were not there when the tests were built"
    done = program(SEMANTICS, "contexts")
    return "" if done.returncode == 0 else f"no usable OpenCL platform: {done.stdout.strip()} {done.stderr.strip()}"


@pytest.fixture(autouse=True)
def needs_opencl() -> None:
    """Skip without a device."""
    if why := opencl_missing():
        pytest.skip(why)


@functools.cache
def native(case: str) -> tuple[int, str]:
    """The output of a case without the layer."""
    done = program(SEMANTICS, case)
    assert done.stderr == "" or case == "forks", done
    return done.returncode, done.stdout


def doubled(mode: str, *command: str | Path, **more: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a program under the layer with the stand-in for librtxg."""
    return program(*command, OPENCL_LAYERS=LAYER, LD_PRELOAD=DOUBLE, RTXG_DOUBLE=mode, **more)


def test_all_cases_are_named() -> None:
    assert program(SEMANTICS, "--list").stdout.split() == CASES


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("mode", ["grant", "random"])
def test_same_under_the_layer(case: str, mode: str) -> None:
    done = doubled(mode, SEMANTICS, case)
    assert (done.returncode, done.stdout) == native(case)
    assert done.stderr == ""


def test_a_program_does_not_see_that_its_queues_are_profiled() -> None:
    cases = ["in_order", "out_of_order", "profiling", "errors", "early_release"]
    done = doubled("random", SEMANTICS, *cases, RTXG_OPENCL_PROFILING="yes")
    assert done.stdout == "".join(native(case)[1] for case in sorted(cases, key=CASES.index))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("seed", range(2, 7))
def test_same_however_permits_come_and_go(seed: int) -> None:
    cases = ["out_of_order", "threads", "native_kernels", "held_behind", "markers", "later_frees_earlier"]
    done = doubled("random", SEMANTICS, *cases, RTXG_DOUBLE_SEED=str(seed))
    assert done.stdout == "".join(native(case)[1] for case in sorted(cases, key=CASES.index))
    assert (done.returncode, done.stderr) == (0, "")


def test_every_launch_is_completed_and_none_twice() -> None:
    done = doubled("random", SEMANTICS, "in_order", "out_of_order", "threads", "blocking", RTXG_DOUBLE_REPORT="1")
    words = done.stderr.split()
    counts = {name: int(words[words.index(name) + 1]) for name in ("launches", "completions", "revocations", "misuse", "outstanding")}
    assert counts["launches"] > 50, done.stderr
    assert counts["revocations"] > 5, done.stderr
    assert counts["misuse"] == 0, done.stderr
    # A launch whose completion was not looked at yet may be outstanding when the program ends.
    assert counts["launches"] == counts["completions"] + counts["outstanding"], done.stderr


@pytest.mark.parametrize("seed", [1, 2])
def test_completions_are_noticed_where_the_platform_cannot_tell_of_them(seed: int) -> None:
    """The layer would wait for a permit for ever, with a launch outstanding that has ended."""
    cases = ["in_order", "unwaited", "threads", "early_release"]
    deaf = BUILD / "tests/layers/libdeaf_layer.so"
    done = program(
        SEMANTICS,
        *cases,
        OPENCL_LAYERS=f"{deaf}:{LAYER}",
        LD_PRELOAD=DOUBLE,
        RTXG_DOUBLE="random",
        RTXG_DOUBLE_SEED=str(seed),
    )
    assert done.stdout == "".join(native(case)[1] for case in sorted(cases, key=CASES.index))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_marker_that_comes_too_late_is_not_kept() -> None:
    """The layer kept the marker's event, and with it the queue, until the next command."""
    slow = BUILD / "tests/layers/libslow_marker_layer.so"
    case = "finished_meanwhile"
    done = program(SEMANTICS, case, OPENCL_LAYERS=f"{slow}:{LAYER}", LD_PRELOAD=DOUBLE, RTXG_DOUBLE="grant")
    assert (done.returncode, done.stdout, done.stderr) == (*native(case), "")


def test_a_command_that_comes_while_a_marker_is_put_does_not_go_before_it() -> None:
    """A command that goes in first is what the marker waits for, and so does what is behind it."""
    slow = BUILD / "tests/layers/libslow_marker_layer.so"
    case = "marker_beside"
    layers = {"OPENCL_LAYERS": f"{slow}:{LAYER}", "SLOW_MARKERS": "late"}
    done = program(SEMANTICS, case, LD_PRELOAD=DOUBLE, RTXG_DOUBLE="grant", **layers)
    assert (done.returncode, done.stdout, done.stderr) == (*native(case), "")


def test_a_permit_is_looked_for_again_after_a_command_that_failed() -> None:
    """The layer had waited for a permit, found nothing to wait for, and still took it for missed."""
    done = doubled("late", SEMANTICS, "failed_before")
    assert (done.returncode, done.stdout) == native("failed_before")


def test_librtxg_is_told_of_every_blocking_wait() -> None:
    """So that a SCHED_DEADLINE thread is charged for the time in which its GPU works (misuse: begun or ended twice)."""
    done = doubled("grant", SEMANTICS, "blocking", "threads", RTXG_DOUBLE_REPORT="1")
    words = done.stderr.split()
    assert (int(words[words.index("misuse") + 1]), int(words[words.index("waits") + 1]) > 0) == (0, True), done.stderr


def test_the_engine_is_not_reported_idle_between_two_commands_that_are_queued() -> None:
    """The host would take the moment between them for a pause of the program, and give the engine to others."""
    done = doubled("late", SEMANTICS, "queued", RTXG_DOUBLE_REPORT="1")
    words = done.stderr.split()
    assert (int(words[words.index("launches") + 1]), int(words[words.index("from_idle") + 1])) == (12, 1), done.stderr


@pytest.mark.parametrize("policy", ["open", "closed"])
def test_no_host(policy: str) -> None:
    done = doubled("refuse", SEMANTICS, "in_order", "copies", RTXG_FAIL=policy)
    said = [line for line in done.stderr.splitlines() if line.startswith("rtxg:")]
    assert len(said) == 1, done.stderr
    assert "the test double refuses device opencl:" in said[0]
    if policy == "open":
        assert "UNMANAGED" in said[0]
        assert (done.returncode, done.stdout) == (0, native("in_order")[1] + native("copies")[1])
    else:
        assert done.returncode == 1
        assert done.stdout == "in_order: line 90: err = -5\n" or "err = -5" in done.stdout


@pytest.mark.parametrize("policy", [None, "open"])
def test_a_program_that_the_host_refuses_runs_only_if_that_was_said(policy: str | None) -> None:
    done = doubled("forbid", SEMANTICS, "in_order", **({"RTXG_FAIL": policy} if policy else {}))
    said = [line for line in done.stderr.splitlines() if line.startswith("rtxg:")]
    assert len(said) == 1, done.stderr
    assert ("UNMANAGED because refused" in said[0]) == (policy == "open")
    assert done.returncode == (0 if policy else 1)


def test_host_dies_and_the_policy_is_closed() -> None:
    done = doubled("dies", SEMANTICS, "in_order", RTXG_DOUBLE_LAUNCHES="3")
    assert done.returncode == 1  # its commands fail; it does not hang
    assert "no permit for opencl:" in done.stderr
    assert done.stderr.count("rtxg:") == 1, done.stderr


@pytest.mark.parametrize(("name", "value"), [("RTXG_OPENCL_AHEAD_US", "4ms"), ("RTXG_OPENCL_PROFILING", "perhaps")])
def test_bad_setting_is_named(name: str, value: str) -> None:
    done = doubled("grant", SEMANTICS, "in_order", **{name: value})
    assert f"{name}={value}" in done.stderr
    assert done.stdout == native("in_order")[1]


class Daemon:
    """The real host, on a private socket."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "rtxgd.sock"
        folder.chmod(0o700)
        self.log = folder / "rtxgd.log"
        self.process = subprocess.Popen([BUILD / "daemon/rtxgd", "--socket", self.socket, "--idle-exit", "0"], env=environment(),
                                        stdin=subprocess.DEVNULL, stdout=self.log.open("wb"), stderr=subprocess.STDOUT)
        end = time.monotonic() + PATIENCE_S
        while self.rtxg("host", "show").returncode:
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < end
            time.sleep(0.02)

    def rtxg(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return program(BUILD / "cli/rtxg", *arguments, RTXG_SOCKET=self.socket)

    def start(self, *command: str | Path, said: Path | None = None, **more: str | Path) -> subprocess.Popen[str]:
        """A program under `rtxg run`; what it says goes into a pipe, or into a file."""
        out = said.open("wb") if said else None
        return subprocess.Popen([BUILD / "cli/rtxg", "run", "--fail", "closed", "--", *command],
                                env=environment(RTXG_SOCKET=self.socket, **more), stdin=subprocess.DEVNULL, stdout=out or subprocess.PIPE,
                                stderr=subprocess.DEVNULL if out else subprocess.PIPE, text=True)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE_S) == 0, self.log.read_text()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon that must still be well at the end."""
    one = Daemon(tmp_path)
    yield one
    one.stop()


#: these end their process, take long, or set up for themselves
ALONE = ["released_by_two", "ends_without_releasing", "returns_without_releasing", "forks"]


@pytest.mark.parametrize("policy", ["cbs", "fifo", "band"])
@pytest.mark.parametrize("apart", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_same_with_the_daemon_two_at_a_time(daemon: Daemon, policy: str, apart: bool) -> None:
    """All cases in one process, or each in a process that begins with it."""
    assert daemon.rtxg("gpu", "set", "--all", "--policy", policy).returncode == 0
    together = [case for case in CASES if case not in ALONE]
    for cases in ([[case] for case in CASES] if apart else [together, *([case] for case in ALONE)]):
        both = [daemon.start(SEMANTICS, *cases) for _ in range(2)]
        for child in both:
            output, errors = child.communicate(timeout=PATIENCE_S)
            assert (child.returncode, output) == (native(cases[-1])[0], "".join(native(case)[1] for case in cases)), cases
            assert errors == "", cases


CLPEAK = shutil.which("clpeak")


@pytest.mark.slow
@pytest.mark.skipif(not CLPEAK, reason="clpeak is not installed (Debian package clpeak)")
@pytest.mark.parametrize("parts", [["--kernel-latency", "--transfer-bandwidth"], ["--compute-sp"]])
def test_clpeak(daemon: Daemon, parts: list[str]) -> None:
    """A third party's program, unmodified: its lines are the same except for the numbers."""
    command = [str(CLPEAK), *parts]

    def labels(text: str) -> list[str]:
        return [line.split(":")[0].strip() for line in text.splitlines()]

    plain = program(*command)
    assert plain.returncode == 0, plain
    both = [daemon.start(*command) for _ in range(2)]
    for child in both:
        output, errors = child.communicate(timeout=PATIENCE_S * 4)
        assert child.returncode == 0, errors
        assert labels(output) == labels(plain.stdout)
        assert [line for line in errors.splitlines() if line.startswith("rtxg")] == []


def opencv_missing() -> str:
    """Why OpenCV cannot be used with OpenCL; empty if it can."""
    done = subprocess.run([sys.executable, "-c", "import cv2; cv2.HOGDescriptor; print(cv2.ocl.haveOpenCL())"], capture_output=True, text=True,
                          check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        return "python3-opencv or opencv-python-headless < 5 is not installed: " + (done.stderr.strip().splitlines() or [""])[-1]
    return "" if done.stdout.strip() == "True" else "this OpenCV was built without OpenCL"


@pytest.mark.parametrize("pipeline", ["filters", pytest.param("hog", marks=pytest.mark.slow)])
def test_opencv(daemon: Daemon, pipeline: str, tmp_path: Path) -> None:
    """OpenCV through UMat: its people detector (HOG), and a pipeline of filters; unmodified, equal results."""
    if why := opencv_missing():
        pytest.skip(why)
    settings = {
        "OPENCV_OPENCL_DEVICE": os.environ.get("OPENCV_OPENCL_DEVICE", ":CPU:"),
        # PoCL compiles OpenCV's kernels again for each size, which takes half a minute. All runs share the cache.
        "POCL_WORK_GROUP_METHOD": "auto",
        "POCL_CACHE_DIR": tmp_path / "pocl",
    }
    (tmp_path / "pocl").mkdir()
    command = [sys.executable, ROOT / "tests/layers/opencv_program.py", pipeline]
    plain = subprocess.run(command, env=environment(**settings), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900, check=False)
    assert plain.returncode == 0, plain
    assert "device: " in plain.stdout
    both = [daemon.start(*command, **settings) for _ in range(2)]
    for child in both:
        output, errors = child.communicate(timeout=900)
        assert (child.returncode, output) == (0, plain.stdout), errors
    launches = daemon.rtxg("top", "-b", "-n", "1", "-J")  # proof that it went through the layer
    vgpus = [v for gpu in json.loads(launches.stdout)["gpus"] for v in gpu["vgpus"]]
    assert sum(v["engines"][0]["launches"] for v in vgpus) > 10, launches.stdout


EXTENSIONS = BUILD / "tests/layers/extensions"
PLATFORM = BUILD / "tests/layers/libextension_layer.so"
#: what a case prints, and how many permits it needs at least
EXTENSION_CASES = {
    "queue": ("10 commands\n", 1),
    "command_buffer": ("filled with 7\n", 20),
    "usm": ("copied 9\ncopied 16843009\n", 2),
    "arm_svm": ("copied 500\n", 1),
    "semaphores": ("permit held while it waits: 0\n0 behind the semaphore, 1 beside it\n20 behind the semaphore\n"
                   "without a semaphore: refused\n77 behind the refused call\n", 20),
    "sync_object": ("permit held while it waits: 0\n3 behind the event\n", 1),
}


@pytest.mark.parametrize("mode", ["grant", "random"])
@pytest.mark.parametrize("case", EXTENSION_CASES)
def test_commands_of_extensions_are_gated(case: str, mode: str) -> None:
    """A command that the layer does not see would run ungated, while `rtxg ps` shows the program as managed."""
    output, permits = EXTENSION_CASES[case]
    plain = program(EXTENSIONS, case, OPENCL_LAYERS=PLATFORM)
    if plain.stdout == "no extension\n":
        pytest.skip("this OpenCL does not have the extension")
    assert (plain.returncode, plain.stdout) == (0, output)
    # The loader puts the last layer in front.
    done = program(EXTENSIONS, case, OPENCL_LAYERS=f"{PLATFORM}:{LAYER}", LD_PRELOAD=DOUBLE, RTXG_DOUBLE=mode, RTXG_DOUBLE_REPORT="1")
    assert (done.returncode, done.stdout) == (0, output), done
    words = done.stderr.split()
    assert int(words[words.index("launches") + 1]) >= permits, done.stderr


def test_a_program_that_enqueues_what_the_layer_does_not_know_is_managed_in_part() -> None:
    """It is said once, by the call's name, and told to the host."""
    plain = program(EXTENSIONS, "unheard_of", OPENCL_LAYERS=PLATFORM)
    assert (plain.returncode, plain.stdout, plain.stderr) == (0, "enqueued\n", "")
    done = program(EXTENSIONS, "unheard_of", OPENCL_LAYERS=f"{PLATFORM}:{LAYER}", LD_PRELOAD=DOUBLE, RTXG_DOUBLE="grant")
    assert (done.returncode, done.stdout) == (0, plain.stdout), done
    said = done.stderr.splitlines()
    assert "ungated" in said
    assert [line for line in said if "managed in part" in line and "clEnqueueUnheardOfTEST" in line] == [
        line for line in said if line.startswith("rtxg:")]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_command_with_a_list_without_a_count_waits_for_its_permit(seed: int) -> None:
    """An implementation that takes such a list does so under the layer, and not without a permit."""
    plain = program(SEMANTICS, "native_kernels", OPENCL_LAYERS=PLATFORM)
    done = program(
        SEMANTICS,
        "native_kernels",
        OPENCL_LAYERS=f"{PLATFORM}:{LAYER}",
        LD_PRELOAD=DOUBLE,
        RTXG_DOUBLE="random",
        RTXG_DOUBLE_SEED=str(seed),
    )
    assert done.stdout == plain.stdout
    assert "x 400" in plain.stdout
    assert "without a permit 0" in plain.stdout


def test_user_events_that_are_never_set_are_freed() -> None:
    """The layer knows an event by its address, and keeps it alive for that: no longer than the program does."""
    assert program(EXTENSIONS, "user_events").stdout == "1 reference\nmemory grew: no\n"
    assert doubled("grant", EXTENSIONS, "user_events").stdout == "1 reference\nmemory grew: no\n"
