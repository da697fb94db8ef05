# SPDX-License-Identifier: MIT
"""The measuring threads: what they count is consistent, and wrong input gets a clear answer."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import PROGRAM, latency, measured

FEW = ("-i", "1000", "-l", "30")


def test_each_cycle_is_in_the_histogram() -> None:
    """Counts, minimum, mean and maximum agree with the bins."""
    result = measured("-t", "2", *FEW, "-d", "0")
    assert len(result["threads"]) == 2
    for thread in result["threads"]:
        seen = thread["observed"]
        assert seen["count"] == 30
        assert sum(seen["bins"].values()) + seen["overflows"] == 30
        assert seen["min_us"] <= seen["avg_us"] <= seen["max_us"]
        assert int(min(seen["bins"], key=int)) == int(seen["min_us"])
        assert seen["p50_us"] <= seen["p99_us"] <= seen["max_us"]
        assert thread["corrected"]["count"] >= 30
    assert result["machine"]["kernel"] == os.uname().release
    assert result["broke"] is False


def cycles_of(pid: int) -> int:
    """How often its measuring thread has slept."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().startswith("rtxg-late/"):  # the main thread is rtxg-latency
            found = re.search(r"^voluntary.*\t(\d+)", (task / "status").read_text(), re.M)
            return int(found[1]) if found else 0
    return 0


def test_lost_cycles_are_in_the_corrected_histogram() -> None:
    """A stopped program wakes late; the cycles that it slept over were late too."""
    with subprocess.Popen(
        [PROGRAM, "-q", "--json", "-i", "1000"], stdout=subprocess.PIPE, text=True
    ) as run:
        for _ in range(600):
            if cycles_of(run.pid) > 100:
                break
            time.sleep(0.05)
        run.send_signal(signal.SIGSTOP)
        time.sleep(0.3)
        run.send_signal(signal.SIGCONT)
        time.sleep(0.1)
        run.send_signal(signal.SIGINT)
        text = run.communicate(timeout=60)[0]
    thread = json.loads(text)["threads"][0]
    assert thread["observed"]["max_us"] >= 100000
    assert thread["missed"] >= 100
    assert thread["corrected"]["count"] >= thread["observed"]["count"] + 100


def test_lines_are_those_of_cyclictest() -> None:
    """Programs that read cyclictest's output read this one."""
    done = latency("-q", *FEW, "-h", "5000")
    assert done.returncode == 0
    line = r"T: 0 \( *\d+\) P: 0 I:1000 C: *30 Min: *(\d+) Act: *\d+ Avg: *\d+ Max: *(\d+)\n"
    assert re.match(line, done.stdout)
    rows = re.findall(r"^(\d{6}) (\d{6})$", done.stdout, re.M)
    assert len(rows) == 5000
    assert "# Total: 00030\n" in done.stdout
    assert "# Histogram Overflows: 0" in done.stdout


@pytest.mark.parametrize(("limit", "status"), [("1", 2), ("3599999999", 0)])
def test_a_threshold_is_always_or_never_passed(limit: str, status: int) -> None:
    """Each wake-up takes longer than 1 us; none takes an hour."""
    result = measured(*FEW, "-b", limit, status=status)
    assert result["broke"] == (status == 2)
    assert result["threads"][0]["observed"]["count"] == (1 if status == 2 else 30)


def test_no_loops_are_without_end() -> None:
    """As with cyclictest: -l0 is its default, and stands in many command lines."""
    result = measured("-l0", "-i", "1000", "-D", "0.2")
    assert result["threads"][0]["observed"]["count"] > 1


def test_osadls_own_command_line_is_taken() -> None:
    """Letter by letter, with a limit of 1 us that each wake-up passes, and CPU 0 in place of $core."""
    done = latency("-m", "-n", "-t1", "-a0", "-p99", "-i200", "-fb1", "-q")
    assert done.returncode == 2, done.stderr
    assert re.match(r"T: 0 \( *\d+\) P:.* I:200 C: *1 ", done.stdout)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["-a", "4000"], ["-a", "4000"]),
        (["-a", "1000"], ["CPU 1000", "accepted: 0"]),
        (["-p", "100"], ["-p", "'100'", "0 to 99"]),
        (["-p", "5", "--policy", "batch"], ["priority 5", "fifo or rr"]),
        (["--policy", "fifo"], ["-p 1"]),
        (["--policy", "round"], ["'round'", "fifo, rr, other"]),
        (["-i", "1"], ["-i", "'1'", "20"]),
        (["-D", "-4"], ["-D", "'-4'", "10m"]),
        (["-D", "5x"], ["'5x'"]),
        (["-b", "0"], ["-b", "'0'"]),
        (["-h", "0"], ["-h", "'0'"]),
        (["-t", "0"], ["-t", "'0'"]),
        (["-t", "x"], ["-t", "'x'"]),
        (["-a", ","], ["-a", "','"]),
        (["-l", "x"], ["-l", "'x'"]),
        (["-i", "5000000", "-D", "1"], ["-D: 1 s", "first wake-up", "5 s of -i"]),
        (["--laptop", "--latency", "5"], ["--latency", "--laptop"]),
        (["--default-system", "--governor", "performance"], ["--default-system", "--governor"]),
        (["--irq", "nvme"], ["--irq", "'nvme'", "NAME=CPUS"]),
        (["--irq", "nvme=x"], ["--irq", "'x'"]),
        (["--irq", "nvme=1000"], ["--irq", "CPU 1000", "accepted: 0"]),
        (["-S", "-t", "3"], ["-S", "-t 3"]),
        (["-t3", "-S"], ["-S", "-t 3"]),
        (["--each", "1", "--json"], ["--each", "--json=FILE"]),
        (["--irq", "no such device=0", "-l", "1"], ["'no such device'", "/proc/interrupts"]),
        (["--json=/nonexistent/file"], ["/nonexistent/file"]),
        (["word"], ["'word'"]),
        (["--what"], ["--what"]),
    ],
)
def test_a_wrong_command_line_is_refused(words: list[str], named: list[str]) -> None:
    """Status 1, as 2 says that the threshold was passed; the value and what is accepted are said."""
    done = latency(*words)
    assert done.returncode == 1
    assert done.stdout == ""
    for name in named:
        assert name in done.stderr


def test_without_privilege_it_measures_and_says_what_it_could_not_do() -> None:
    """A user without a limit of real-time priority gets the policy other."""
    if os.getuid() == 0:
        probe = subprocess.run(
            ["setpriv", "--reuid", "65534", "--clear-groups", "test", "-x", PROGRAM], check=False
        )
        if probe.returncode:
            pytest.skip(f"another user may not run {PROGRAM}")
        before = ("prlimit", "--rtprio=0", "setpriv", "--reuid", "65534", "--clear-groups")
    else:
        before = ("prlimit", "--rtprio=0")
    result = measured("-p", "80", "-m", *FEW, before=before)
    assert result["threads"][0]["observed"]["count"] == 30
    assert result["threads"][0]["policy"] == "other"
    assert any("fifo" in text and "80" in text for text in result["not_done"])
    if os.getuid() == 0:  # else this user may have what BPF and a file of root's need
        assert "kernel" not in result and "worst" not in result
        for word in ("culprit", "/dev/cpu_dma_latency"):
            assert any(word in text for text in result["not_done"])


def test_a_full_disk_is_an_error() -> None:
    """Status 1, and the file's name."""
    done = latency("-q", *FEW, "--json=/dev/full")
    assert done.returncode == 1
    assert "/dev/full: No space left" in done.stderr
    with Path("/dev/full").open("w") as full:
        run = subprocess.run([PROGRAM, "-q", *FEW], stdout=full, stderr=subprocess.PIPE, check=False)
    assert run.returncode == 1
    assert b"No space left" in run.stderr


def settable_interrupt() -> tuple[Path, str] | None:
    """An interrupt whose CPUs may be changed, with another list than it has."""
    for entry in sorted(Path("/proc/irq").glob("[0-9]*/smp_affinity_list")):
        number = entry.parent.name
        if not re.search(rf"^ *{number}:", Path("/proc/interrupts").read_text(), re.M):
            continue
        before = entry.read_text().strip()
        wanted = "0" if before != "0" else "1"
        try:
            entry.write_text(wanted)
            changed = entry.read_text().strip() == wanted
            entry.write_text(before)
        except OSError:
            continue
        if changed:
            return entry, wanted
    return None


def test_what_the_host_took_is_said(tmp_path: Path) -> None:
    """A virtual machine's latencies are its host's too: a reader of the lines sees that as one of the JSON does."""
    file = tmp_path / "latency.json"
    done = latency("-q", "-i", "1000", "-D", "0.2", f"--json={file}")
    assert done.returncode == 0
    taken = json.loads(file.read_text(encoding="ascii"))["stolen_us"] > 0
    assert ("# The host of this virtual machine took" in done.stdout) == taken


def test_the_cost_of_measuring_is_told() -> None:
    """CPU time from the first cycle to the last: not that of loading BPF programs or naming stacks.
    """
    least, before = measured("-i", "1000", "-l", "1"), os.times()
    many = measured("-i", "200", "-l", "2000")
    after = os.times()
    used = after.children_user + after.children_system
    used -= before.children_user + before.children_system
    assert 0 < least["cpu_us"] < many["cpu_us"] < used * 1e6 + 20000


#: machines differ in what may be set: files in place of the kernel's, in a name space of the test's own
STAND_INS = """
cd "$1"
mkdir cpus cpus/cpu0 cpus/cpu0/cpufreq
cp /sys/devices/system/cpu/online /sys/devices/system/cpu/possible cpus/ 2>/dev/null
echo "schedutil performance" >cpus/cpu0/cpufreq/scaling_available_governors
echo schedutil >cpus/cpu0/cpufreq/scaling_governor
echo 0 >affinity
echo " 7:  0  0  stand-in" >interrupts
mkdir -p irq/7 && cp affinity irq/7/smp_affinity_list
mount --bind cpus /sys/devices/system/cpu && mount --bind irq /proc/irq &&
	mount --bind interrupts /proc/interrupts || exit 77
"$2" -q --user-only --governor performance --irq stand-in=1 >/dev/null &
echo $!
wait
sleep 60
"""


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_all_settings_are_as_before_however_the_run_ends(
    end: signal.Signals, tmp_path: Path
) -> None:
    """The governor and the interrupts, on a machine that lets neither be set, too."""
    if os.getuid() or not Path("/sys/devices/system/cpu/cpu1").exists():
        pytest.skip(
            "files can stand in for the kernel's where the test is root's, on two CPUs or more"
        )
    governor = tmp_path / "cpus/cpu0/cpufreq/scaling_governor"
    affinity = tmp_path / "irq/7/smp_affinity_list"

    def become(now: tuple[str, str]) -> bool:
        for _ in range(600):
            if (governor.read_text().strip()[:9], affinity.read_text().strip()) == now:
                return True
            time.sleep(0.05)
        return False

    script = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        STAND_INS,
        "sh",
        tmp_path,
        PROGRAM,
    ]
    with subprocess.Popen(script, stdout=subprocess.PIPE, text=True) as space:
        try:
            assert space.stdout
            pid = space.stdout.readline()
            if not pid:
                pytest.skip("no file can be mounted over another here")
            assert become(("performan", "1")), "the run has not changed them"
            os.kill(int(pid), end)
            # a plain file keeps the end of what was longer
            assert become(("schedutil", "0"))
        finally:
            space.kill()


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_affinity_is_as_before_however_the_run_ends(end: signal.Signals) -> None:
    """Also when it is killed."""
    found = settable_interrupt()
    if not found:
        pytest.skip("no interrupt of this machine can be sent to another CPU")
    file, wanted = found
    before = file.read_text()
    with subprocess.Popen(
        [PROGRAM, "-q", "--irq", f"{file.parent.name}={wanted}"], stdout=subprocess.DEVNULL
    ) as run:
        for _ in range(600):
            if file.read_text().strip() == wanted:
                break
            time.sleep(0.05)
        assert file.read_text().strip() == wanted
        run.send_signal(end)
        run.wait(60)
    for _ in range(600):
        if file.read_text() == before:
            break
        time.sleep(0.05)
    assert file.read_text() == before
    assert run.returncode == (-end if end == signal.SIGKILL else 0)
