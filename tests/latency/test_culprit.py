# SPDX-License-Identifier: MIT
"""What made a wake-up late: from traces in text, and from the kernel where BPF is allowed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import PROGRAM, latency, measured

HERE = Path(__file__).resolve().parent


def explained(*words: str) -> dict:
    """The JSON of `explain`."""
    done = latency("explain", "-J", *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_trace_that_osadl_printed_is_explained_as_printed() -> None:
    """312 us from run to run, 112 us of them late, irq/45-nvkm in gf100_mc_intr_unarm."""
    result = explained("-i", "200", str(HERE / "osadl.txt"))
    assert result["observed_us"] == 312
    assert result["latency_us"] == 112
    assert result["cpu"] == 5
    assert "irq/45-nvkm" in result["culprit"]
    assert "gf100_mc_intr_unarm" in result["culprit"]
    assert result["before"]["command"] == "irq/45-nvkm"
    assert sum(part["us"] for part in result["parts"]) == pytest.approx(112)
    assert sum(part["percent"] for part in result["parts"]) == pytest.approx(100)


def test_a_trace_of_timerlat_is_explained_without_an_interval(tmp_path: Path) -> None:
    """Its thread says how late it was; the latest wake-up counts, and the timer's share is said."""
    line = "{task:>16}-{pid} [001] d.h..   100.{us:06}: {what}\n"
    trace = tmp_path / "timerlat_trace.txt"
    trace.write_text(
        "".join(
            line.format(task=task, pid=pid, us=us, what=what)
            for task, pid, us, what in (
                ("cc1", 77, 1071, "#7     context    irq timer_latency      70000 ns"),
                (
                    "cc1",
                    77,
                    1078,
                    "irq_noise: local_timer:236 start 100.001070000 duration 7000 ns",
                ),
                ("cc1", 77, 1121, "thread_noise: cc1:77 start 100.001071000 duration 15000 ns"),
                ("timerlat/1", 900, 1123, "#7     context thread timer_latency    122000 ns"),
                ("cc1", 77, 2002, "#8     context    irq timer_latency       1000 ns"),
                ("timerlat/1", 900, 2006, "#8     context thread timer_latency      5000 ns"),
            )
        )
    )
    result = explained(str(trace))
    assert (result["latency_us"], result["timer_us"], result["cpu"]) == (122, 70, 1)
    assert "(70,50) timerlat/1 <- 77 ? cc1" in result["record"]
    assert result["culprit"] == "interrupts held off: cc1 77"
    assert sum(part["us"] for part in result["parts"]) == pytest.approx(122)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["osadl.txt"], ["-i"]),
        (["-i", "x", "osadl.txt"], ["-i", "'x'"]),
        (["-i", "200", "no-such-file"], ["no-such-file"]),
        (["-i", "200", "test_culprit.py"], ["no line of a trace", "TASK-PID"]),
        (["-i", "200", "-t", "nothing", "osadl.txt"], ["nothing", "-t"]),
        (["-i", "5000", "osadl.txt"], ["5000 us", "not late"]),
        (["-i", "200", "-t", "489", "osadl.txt"], ["489", "record for longer"]),
        (["-i", "200", "osadl.txt", "more"], ["'more'"]),
    ],
)
def test_a_trace_that_cannot_be_explained_is_refused(words: list[str], named: list[str]) -> None:
    """With what is missing."""
    done = subprocess.run(
        [PROGRAM, "explain", *words], cwd=HERE, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    for name in named:
        assert name in done.stderr


def test_names_in_a_trace_cannot_reach_the_terminal() -> None:
    """A task may call itself anything."""
    text = (HERE / "osadl.txt").read_text().replace("irq/45-nvkm", "\033[2Jkm")
    done = subprocess.run(
        [PROGRAM, "explain", "-i", "200"], input=text, capture_output=True, text=True, check=False
    )
    assert "\033" not in done.stdout + done.stderr


def with_kernel(*words: str, status: int | None = 0) -> dict:
    """A run in which the kernel's side was measured, or a skip."""
    done = latency("-q", "--json", *words)
    assert status is None or done.returncode == status, done.stderr
    result = json.loads(done.stdout)
    if "kernel" not in result:
        assert "verifier" not in str(result["not_done"])  # that would be our fault
        pytest.skip(f"no BPF here: {result['not_done']}")
    return result


def test_the_parts_are_the_whole_latency() -> None:
    """Of each thread's latest wake-up; and it is the one that the thread counted."""
    result = with_kernel("-S", "-i", "1000", "-l", "200", "-p", "50")
    assert {one["thread"] for one in result["worst"]["own"]} == {
        thread["thread"] for thread in result["threads"]
    }
    for one in result["worst"]["own"]:
        assert sum(part["us"] for part in one["parts"]) == pytest.approx(
            one["latency_us"], abs=0.01
        )
        assert sum(part["percent"] for part in one["parts"]) == pytest.approx(100)
        seen = result["threads"][one["thread"]]["observed"]
        assert one["latency_us"] <= seen["max_us"] + 0.01
        assert one["command"].startswith("rtxg-late") or one["command"] == ""
        assert one["culprit"] == one["parts"][0]["what"]


def test_a_latest_wake_up_without_a_recording_has_the_next_one_beside_it(tmp_path: Path) -> None:
    """Threads that are late at once share the recorders of their CPU, and the cause of all is one.
    """
    with_kernel("-l", "1")
    file, cpu = tmp_path / "run.json", str(min(os.sched_getaffinity(0)))
    many = ("-t", "16", "-a", cpu, "-i", "500", "-p", "50", "-l", "200", "-q", f"--json={file}")
    for _ in range(200):
        done = latency(*many)
        own = json.loads(file.read_text())["worst"]["own"]
        worst = max(own, key=lambda one: one["latency_us"])
        known = [one for one in own if [p["kind"] for p in one["parts"]] != ["unseen"]]
        if worst not in known and known:
            break
    else:
        pytest.skip("each latest wake-up had a recording")
    known = max(known, key=lambda one: one["latency_us"])
    _, first, second = re.split("^# The latest wake-up", done.stdout, flags=re.M)
    assert first.startswith(", on CPU") and "not seen" in first
    assert second.startswith(" that could be recorded, on CPU")
    assert f"Culprit: {known['culprit']}\n" in second


def test_the_kernel_counts_what_the_threads_count() -> None:
    """Each wake-up by a timer once; the switch comes before the thread reads the clock."""
    result = with_kernel("-i", "1000", "-l", "100", "-a", "0")
    own = result["kernel"]["own"]
    seen = result["threads"][0]["observed"]
    for kind in ("timer", "wakeup", "total"):
        assert own[kind]["count"] == sum(own[kind]["bins"].values()) + own[kind]["overflows"]
    # a cycle that the thread did not sleep in has no timer; the thread's last switch away, with
    # which its last cycle is counted, may come after that is read
    late = own["switch"]["count"] - own["total"]["count"]
    assert own["switch"]["count"] > 0 and late <= 1
    assert own["total"]["count"] <= own["wakeup"]["count"]
    assert late == 1 or own["total"]["min_us"] <= seen["min_us"]
    assert own["timer"]["max_us"] <= own["total"]["max_us"]
    assert [cpu["cpu"] for cpu in result["kernel"]["cpus"]] == [0]


def test_each_thread_of_a_cpu_is_counted() -> None:
    """Where one gives the CPU to the next as well: all wait for the same times here."""
    result = with_kernel("-t", "4", "-a", "0", "-i", "2000", "-l", "100", "-p", "50")
    own = result["kernel"]["own"]
    # the threads count the switches; the last one away from each may come after that is read
    assert own["switch"]["count"] > 0
    assert own["total"]["count"] >= own["switch"]["count"] - 4


def test_a_timer_on_a_cpu_that_is_not_watched_counts(tmp_path: Path) -> None:
    """The thread is moved to another CPU than that of -a, and its timers with it."""
    other = sorted(os.sched_getaffinity(0))[1:]
    if not other:
        pytest.skip("one CPU alone")
    words = ["-q", "--json", "-a", "0", "-i", "5000", "-l", "200"]
    with (
        (tmp_path / "out").open("w+") as out,
        subprocess.Popen([PROGRAM, *words], stdout=out) as program,
    ):
        moved = False
        while not moved and program.poll() is None:
            for task in Path(f"/proc/{program.pid}/task").iterdir():
                with contextlib.suppress(OSError):
                    # it has bound itself to one CPU when it is in its sleep between two cycles
                    name, cpus = (task / "comm").read_text(), os.sched_getaffinity(int(task.name))
                    if name.startswith("rtxg-late/") and cpus == {0}:
                        os.sched_setaffinity(int(task.name), {other[-1]})
                        moved = True
        assert program.wait(60) == 0
        out.seek(0)
        result = json.load(out)
    if "kernel" not in result:
        pytest.skip(f"no BPF here: {result['not_done']}")
    own = result["kernel"]["own"]
    assert moved
    # a cycle that the thread did not sleep in has no timer
    assert own["total"]["count"] >= own["wakeup"]["count"] - 20


def test_the_threshold_keeps_the_wake_up_that_passed_it() -> None:
    """Status 2 with its record."""
    result = with_kernel("-i", "1000", "-b", "1", "-a", "0", status=2)
    (one,) = result["worst"]["own"]
    assert one["latency_us"] == pytest.approx(result["threads"][0]["observed"]["max_us"], abs=0.01)
    assert one["parts"]


def test_other_real_time_tasks_are_measured_while_it_runs() -> None:
    """Each CPU counts their wake-ups, and the latest one has its record."""
    probe = subprocess.run(["chrt", "-f", "30", "true"], check=False, capture_output=True)
    if probe.returncode:
        pytest.skip("a real-time priority is refused here")
    task = [
        str(PROGRAM),
        "-q",
        "--user-only",
        "--default-system",
        "-a",
        "0",
        "-p",
        "30",
        "-i",
        "1000",
    ]
    with subprocess.Popen(task, stdout=subprocess.DEVNULL) as other:
        try:
            result = with_kernel("--every-task", "-i", "2000", "-l", "100", "-a", "0", "-p", "40")
            while not any(one["priority"] == 30 for one in result["worst"]["others"]):
                result = with_kernel(
                    "--every-task", "-i", "2000", "-l", "100", "-a", "0", "-p", "40"
                )
        finally:
            other.terminate()
    assert result["kernel"]["others"]["total"]["count"] > 0
    (one,) = (one for one in result["worst"]["others"] if one["priority"] == 30)
    assert one["command"].startswith("rtxg-late/")
    assert sum(part["percent"] for part in one["parts"]) == pytest.approx(100)
    assert one["record"].split()[1] == "30"


def measuring(pid: int) -> bool:
    """A thread of that process measures."""
    with contextlib.suppress(FileNotFoundError):
        return any(
            comm.read_text().startswith("rtxg-late/")
            for comm in Path(f"/proc/{pid}/task").glob("*/comm")
        )
    return False


def spin(cpu: int, steps: list[tuple[int, float]]) -> None:
    """Occupy a CPU: so many seconds with each of these priorities."""
    code = (
        "import os, time\n"
        f"os.sched_setaffinity(0, {{{cpu}}})\n"
        f"for priority, seconds in {steps!r}:\n"
        "    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))\n"
        "    end = time.monotonic() + seconds\n"
        "    while time.monotonic() < end:\n"
        "        pass\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_latest_of_two_wake_ups_is_kept_before_the_first_is_copied(threads: int) -> None:
    """The main thread shares the CPU with a task that lets measuring threads run, but not it."""
    probe = subprocess.run(["chrt", "-f", "60", "true"], check=False, capture_output=True)
    if probe.returncode:
        pytest.skip("a real-time priority is refused here")
    with_kernel("-l", "5")
    cpu = max(os.sched_getaffinity(0))
    words = ["-q", "--json", "-a", str(cpu), "-t", str(threads), "-p", "50", "-i", "1000"]
    with subprocess.Popen([PROGRAM, *words], stdout=subprocess.PIPE, text=True) as run:
        try:
            while not measuring(run.pid):
                assert run.poll() is None
                time.sleep(0.02)
            os.sched_setaffinity(run.pid, {cpu})  # of the main thread alone
            time.sleep(0.3)
            spin(cpu, [(40, 0.02), (60, 0.02), (40, 0.02), (60, 0.04), (40, 0.02)])
        finally:
            run.terminate()
        result = json.loads(run.communicate(timeout=60)[0])
    assert result["kernel"]["untaken"] == 0
    assert len(result["worst"]["own"]) == threads
    for one in result["worst"]["own"]:
        seen = result["threads"][one["thread"]]["observed"]
        assert seen["max_us"] > 30000
        assert one["latency_us"] == pytest.approx(seen["max_us"], abs=0.01)
        assert sum(part["percent"] for part in one["parts"]) == pytest.approx(100)
        assert sum(part["us"] for part in one["parts"] if part["kind"] == "unseen") < 1000
        assert one["parts"][0]["kind"] == "higher priority"
        assert one["parts"][0]["name"].startswith("python")


def hand_over(cpu: int, times: int) -> None:
    """Occupy a CPU with two tasks that wake each other so often."""
    code = (
        "import os\n"
        f"os.sched_setaffinity(0, {{{cpu}}})\n"
        "there, back = os.pipe(), os.pipe()\n"
        "child = os.fork()\n"
        "mine = (there[0], back[1]) if not child else (back[0], there[1])\n"
        "for one in (*there, *back):\n"
        "    if one not in mine:\n"
        "        os.close(one)\n"
        "with open('/proc/self/comm', 'w') as comm:\n"
        "    comm.write('pong' if not child else 'ping')\n"
        "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(60))\n"
        f"for _ in range({times}):\n"
        "    if child:\n"
        "        os.write(mine[1], b'x')\n"
        "    os.read(mine[0], 1)\n"
        "    if not child:\n"
        "        os.write(mine[1], b'x')\n"
        "os.wait() if child else os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_latency_with_more_events_than_a_recorder_has_is_explained_as_a_whole() -> None:
    """Two tasks of a higher priority switch thousands of times while the thread waits."""
    probe = subprocess.run(["chrt", "-f", "60", "true"], check=False, capture_output=True)
    if probe.returncode:
        pytest.skip("a real-time priority is refused here")
    with_kernel("-l", "5")
    cpu = max(os.sched_getaffinity(0))
    words = ["-q", "--json", "-a", str(cpu), "-p", "50", "-i", "1000"]
    with subprocess.Popen([PROGRAM, *words], stdout=subprocess.PIPE, text=True) as run:
        try:
            while not measuring(run.pid):
                assert run.poll() is None
                time.sleep(0.02)
            hand_over(cpu, 6000)
        finally:
            run.terminate()
        result = json.loads(run.communicate(timeout=60)[0])
    (one,) = result["worst"]["own"]
    assert one["latency_us"] == pytest.approx(result["threads"][0]["observed"]["max_us"], abs=0.01)
    assert sum(part["us"] for part in one["parts"]) == pytest.approx(one["latency_us"], abs=0.01)
    assert sum(part["percent"] for part in one["parts"]) == pytest.approx(100)
    shares = {
        part["name"]: part["percent"] for part in one["parts"] if part["kind"] == "higher priority"
    }
    assert {"ping", "pong"} <= set(shares)
    assert sum(part["percent"] for part in one["parts"] if part["kind"] == "unseen") < 2


def test_without_bpf_the_threads_measure_alone() -> None:
    """On demand, and nothing is missing from what they count."""
    result = measured("--user-only", "-l", "20")
    assert "kernel" not in result
    assert result["threads"][0]["observed"]["count"] == 20
    done = latency("--user-only", "--every-task")
    assert done.returncode == 1
    assert "--user-only" in done.stderr


def programs_of(pid: int) -> int:
    """BPF programs and attachments that a process holds. It opens and closes files meanwhile."""
    count = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += "bpf" in os.readlink(entry)
    return count


def test_nothing_stays_attached_when_the_run_is_killed() -> None:
    """All that BPF has is held by open files of the process."""
    with_kernel("-l", "5")
    with subprocess.Popen([PROGRAM, "-q", "-a", "0"], stdout=subprocess.DEVNULL) as run:
        try:
            for _ in range(600):
                if programs_of(run.pid) > 10:
                    break
                time.sleep(0.05)
            assert programs_of(run.pid) > 10
            pins = set(Path("/sys/fs/bpf").glob("*")) if Path("/sys/fs/bpf").is_dir() else set()
        finally:
            run.kill()  # the end of the block waits for it
        run.wait(60)
        assert not any("latency" in pin.name for pin in pins)


def test_each_line_counts_its_own_time() -> None:
    """The counts of the lines add up to those of the run, and each has its own maximum."""
    with subprocess.Popen(
        [PROGRAM, "--each", "0.2", "-l", "600", "-i", "1000"], stdout=subprocess.PIPE, text=True
    ) as run:
        text = run.communicate(timeout=120)[0]
    lines = [json.loads(line) for line in text.splitlines()]
    assert run.returncode == 0
    assert len(lines) >= 2
    counts = [line["threads"][0]["observed"] for line in lines]
    assert sum(count["count"] for count in counts) == 600
    for count in counts:
        if count["count"]:
            assert count["min_us"] <= count["max_us"]
            assert count["bins"] == {} or int(max(count["bins"], key=int)) <= count["max_us"]


@pytest.mark.parametrize(
    ("words", "needed", "ends"),
    [
        ([], False, False),
        (["-b", "1000000"], False, True),
        (["-t", "2"], False, True),
        (["--every-task"], True, True),
    ],
)
def test_no_program_runs_where_it_is_not_needed(
    words: list[str], needed: bool, ends: bool
) -> None:
    """A measuring thread's timer tells of its wake-up, and the first timer of its interrupt.

    The end of that interrupt is seen where the wake-up that passes a threshold is the last, and
    where a CPU has several threads.
    """
    known = any(
        line.split()[2] == "hrtimer_wakeup" and int(line.split()[0], 16)
        for line in Path("/proc/kallsyms").read_text().splitlines()
    )
    with subprocess.Popen(
        [PROGRAM, "-q", "-a", "0", "-D", "100", *words], stdout=subprocess.DEVNULL
    ) as program:
        try:
            while not measuring(program.pid) and program.poll() is None:
                time.sleep(0.01)
            assert program.poll() is None, "it does not measure"
            open_files = Path(f"/proc/{program.pid}/fdinfo").iterdir()
            text = "".join(one.read_text() for one in open_files)
        finally:
            program.terminate()
    at = {line.split()[1] for line in text.splitlines() if line.startswith("tp_name:")}
    if not known or not at:
        pytest.skip("no BPF here, or the kernel's functions are not named")
    assert {"hrtimer_expire_entry", "sched_switch"} <= at
    assert ("sched_waking" in at) == needed
    assert "local_timer_entry" not in at
    if os.uname().machine == "x86_64":
        assert ("local_timer_exit" in at) == ends
