# SPDX-License-Identifier: MIT
"""The discovery program in this machine's kernel: what it reads of a channel that a program makes, without a driver."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ.get("RTXG_BUILD", HERE.parents[1] / "build/release"))
WATCH = BUILD / "levers/nvidia/rtxg-channels"
sys.path.insert(0, str(HERE))

import program_of_driver as program  # noqa: E402

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="BPF and a file system of one's own need root"),
    pytest.mark.skipif(not WATCH.exists(), reason=f"{WATCH} is not built"),
    pytest.mark.skipif(not Path("/dev/fuse").exists(), reason="this machine has no FUSE"),
    pytest.mark.skipif(sys.maxsize < 2**32 or os.uname().machine != "x86_64", reason="written for x86-64"),
]


def lines_until(process: subprocess.Popen[bytes], word: str, seconds: float) -> Iterator[str]:
    """What it prints, until a line has the word or the time is over."""
    end, text = time.monotonic() + seconds, b""
    assert process.stdout
    while time.monotonic() < end:
        if not select.select([process.stdout], [], [], 0.2)[0]:
            if process.poll() is not None:
                return
            continue
        got = os.read(process.stdout.fileno(), 4096)
        if not got:
            return
        text += got
        *whole, text = text.split(b"\n")
        for line in whole:
            yield line.decode()
            if word in line.decode():
                return


def run_program(place: Path, release: int) -> tuple[int, str]:
    """Its exit status and what it said. Its file system lasts as long as its process group."""
    with (place / "said").open("w+") as said:
        one = subprocess.Popen([sys.executable, HERE / "program_of_driver.py", place, str(release)], stderr=said, start_new_session=True)
        try:
            return one.wait(60), (place / "said").read_text()
        finally:
            os.killpg(one.pid, signal.SIGKILL)
            one.wait()


def channel_of(watch: subprocess.Popen[bytes], folder: Path, driver: int) -> dict[str, int]:
    """What it tells of a channel that a program makes now on a driver of that release."""
    for attempt in range(60):  # the first ones may come before it watches
        place = folder / f"{driver}-{attempt}"
        place.mkdir(parents=True)
        status, said = run_program(place, driver)
        if "no file system of one's own" in said:
            pytest.skip(said.strip().splitlines()[-1])
        assert status == 0, said
        for line in lines_until(watch, "class 0xc86f", 1):
            found = re.search(r"class 0xc86f engine (\d+) cid (\d+) userd (0x[0-9a-f]+)\+(0x[0-9a-f]+)", line)
            if found:
                assert f"object {program.CHANNEL:#x}" in line
                return dict(zip(("engine", "cid", "userd", "offset"), (int(x, 0) for x in found.groups()), strict=True))
        if watch.poll():
            pytest.skip(watch.stderr.read().decode().strip() if watch.stderr else "it does not watch")
    pytest.fail("no channel was seen")


def channel_seen(folder: Path, driver: int, taken_for: int) -> dict[str, int]:
    """What discovery tells of a channel on a driver of one release, that it takes for one of another."""
    watch = subprocess.Popen([WATCH, "watch", "60", str(taken_for)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        return channel_of(watch, folder, driver)
    finally:
        watch.kill()
        watch.wait()


def test_a_program_that_forks_without_end_leaves_room_for_others(tmp_path: Path) -> None:
    """The records of one user do not fill the ring; what it lost is told with its process."""
    watch = subprocess.Popen([WATCH, "watch", "600", "580"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    flood: subprocess.Popen[bytes] | None = None
    try:
        for attempt in range(60):  # the first ones may come before it watches
            place = tmp_path / f"flood-{attempt}"
            place.mkdir()
            flood = subprocess.Popen(
                [sys.executable, HERE / "program_of_driver.py", place, "580", "61001"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
            assert flood.stdin and flood.stdout and flood.stderr
            if any("class 0x41" in line for line in lines_until(watch, f"object {program.OWN_CLIENT:#x}", 1)):
                break
            if watch.poll() or flood.poll():
                pytest.skip((watch.stderr if watch.poll() else flood.stderr).read().decode().strip().splitlines()[-1])
            os.killpg(flood.pid, signal.SIGKILL)
            flood.communicate()
        assert flood and flood.stdin and flood.stdout
        watch.send_signal(signal.SIGSTOP)
        flood.stdin.write(b"go\n")
        flood.stdin.flush()
        assert flood.stdout.readline() == b"forked\n"
        place = tmp_path / "other"
        place.mkdir()
        status, said = run_program(place, 580)
        assert status == 0, said
        watch.send_signal(signal.SIGCONT)
        seen = list(lines_until(watch, f" lost  pid {flood.pid} ", 120))
        assert any("class 0xc86f" in line for line in seen), len(seen)
        assert f" lost  pid {flood.pid} " in seen[-1], seen[-3:]
        # Where others' records are missing all that is known is looked at again: not for this.
        assert [line for line in seen if " lost  pid 0 " in line and " value 0" in line] == []
        assert sum(" fork " in line for line in seen) > 1000
    finally:
        watch.send_signal(signal.SIGCONT)
        watch.kill()
        watch.communicate()
        if flood:
            os.killpg(flood.pid, signal.SIGKILL)
            flood.communicate()


def test_threads_that_stay_in_a_call_leave_room_for_others(tmp_path: Path) -> None:
    """There were 4096 places for calls, of all users and of any file."""
    watch = subprocess.Popen([WATCH, "watch", "600", "580"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    threads: subprocess.Popen[bytes] | None = None
    try:
        assert channel_of(watch, tmp_path / "before", 580) == TRUE
        threads = subprocess.Popen(
            [sys.executable, HERE / "program_of_driver.py", tmp_path, "threads", "4500"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        assert threads.stdout and threads.stderr
        if threads.stdout.readline() != b"stay\n":
            pytest.skip(threads.stderr.read().decode().strip().splitlines()[-1])
        assert channel_of(watch, tmp_path / "beside", 580) == TRUE
    finally:
        watch.kill()
        watch.communicate()
        if threads:
            os.killpg(threads.pid, signal.SIGKILL)
            threads.communicate()


TRUE = {"engine": program.ENGINE, "cid": program.NUMBER, "userd": program.USERD, "offset": program.OFFSET}


@pytest.mark.parametrize("release", [580, 595, 610, 615])
def test_a_channel_is_read_where_the_release_has_it(tmp_path: Path, release: int) -> None:
    """Its engine, its number, and the memory of its queue."""
    assert channel_seen(tmp_path, release, release) == TRUE


def test_a_release_that_is_not_known_is_read_at_the_wrong_places(tmp_path: Path) -> None:
    """So the release matters, and the daemon's probe has something to find."""
    assert channel_seen(tmp_path, 615, 580) != TRUE
