# SPDX-License-Identifier: MIT
"""What was made at run time is there under the next daemon, however the one before ended."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from conftest import BUILD, Connection, Daemon, Reply, wait_for, wait_for_share

CONFIG = "[VGPU steady]\nGPUMin=10%\nGPUWeight=300\n[GPU *]\nPolicy=cbs\n"


def state(daemon: Daemon) -> Path:
    """The file beside the socket."""
    return daemon.folder / "rtxgd.sock.state"


def vgpus(daemon: Daemon) -> dict[str, Reply]:
    """All vGPUs by name, without what changes by itself."""
    found = {v["vgpu"]: v for v in daemon.ask("vgpu-list")["vgpus"]}
    for v in found.values():
        del v["tasks"], v["on"]
    return found


def picture(daemon: Daemon) -> dict[str, Any]:
    """What a restart may not change."""
    gpus = [{k: v for k, v in g.items() if k not in ("tasks", "origin")} for g in daemon.ask("gpu-list")["gpus"]]
    return {
        "vgpus": vgpus(daemon),
        "pools": daemon.ask("pool-list")["pools"],
        "gpus": sorted(gpus, key=lambda g: str(g["gpu"])),
        "default": daemon.ask("gpu-list")["default"],
    }


def state_check(daemon: Daemon) -> Reply:
    """The doctor's line about the file."""
    return next(c for c in daemon.ask("doctor")["checks"] if c["check"] == "state")


def ok(reply: Reply) -> Reply:
    """A reply that is no refusal."""
    assert reply["ok"], reply
    return reply


def make_all(daemon: Daemon) -> None:
    """An object of each kind, and changes of what a file configured."""
    ok(daemon.ask("vgpu-create", vgpu="camera", min_ppm=400000, max_ppm=600000, weight=7, priority=20,
                  period_ns=10_000_000, policy="edf", task_priority=5))
    ok(daemon.ask("vgpu-create", vgpu="bound", gpu="big", min_ppm=333333))
    ok(daemon.ask("vgpu-set", vgpu="steady", min_ppm=50000, weight=None))
    ok(daemon.ask("vgpu-set", vgpu="default", priority=3))
    ok(daemon.ask("gpu-set", gpu="0", policy="band", think_ns=-1, switch_ppm=20000))
    ok(daemon.ask("pool-create", pool="both", gpus=["big", "small"]))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_next_daemon_has_what_was_made_at_run_time(daemon: Daemon, how: int) -> None:
    """vGPUs with all of their parameters, pools, GPUs, and changes of what is configured. Twice, so that what was restored is kept."""
    daemon.write_config(CONFIG)
    daemon.start()
    make_all(daemon)
    before = picture(daemon)
    assert before["vgpus"]["camera"]["source"] == str(state(daemon))
    assert "weight" not in before["vgpus"]["steady"]
    assert state(daemon).stat().st_mode & 0o777 == 0o600
    for _ in range(2):
        daemon.kill(how)
        daemon.start()
        assert picture(daemon) == before
        assert state_check(daemon)["ok"]
    ok(daemon.ask("vgpu-remove", vgpu="camera"))
    ok(daemon.ask("pool-remove", pool="both"))
    daemon.kill(how)
    daemon.start()
    assert "camera" not in vgpus(daemon) and not daemon.ask("pool-list")["pools"]
    # What a file says holds again when the file is read again.
    ok(daemon.ask("reload"))
    daemon.kill(how)
    daemon.start()
    assert (vgpus(daemon)["steady"]["min_ppm"], vgpus(daemon)["steady"]["weight"]) == (100000, 300)
    daemon.healthy()


def test_a_file_that_configures_it_meanwhile_wins(daemon: Daemon) -> None:
    """A vGPU that was made at run time, and then written into a file, has the file's values."""
    daemon.start()
    ok(daemon.ask("vgpu-create", vgpu="camera", min_ppm=400000))
    daemon.kill()
    daemon.write_config("[VGPU camera]\nGPUMin=20%\n")
    daemon.start()
    assert (vgpus(daemon)["camera"]["min_ppm"], vgpus(daemon)["camera"]["origin"]) == (200000, "config")
    daemon.healthy()


def test_what_no_longer_fits_is_named(daemon: Daemon) -> None:
    """A configuration that leaves no room: the daemon starts, and the doctor says what is missing."""
    daemon.start()
    ok(daemon.ask("vgpu-create", vgpu="camera", min_ppm=400000))
    ok(daemon.ask("vgpu-create", vgpu="small", min_ppm=100000))
    daemon.kill()
    daemon.write_config("[VGPU large]\nGPUMin=80%\n")
    daemon.start()
    assert set(vgpus(daemon)) == {"default", "large", "small"}
    check = state_check(daemon)
    assert not check["ok"] and "camera" in check["detail"] and "rtxg vgpu create" in check["remedy"]
    daemon.healthy()


def test_what_was_answered_outlives_a_kill_at_any_moment(daemon: Daemon) -> None:
    """Killed among requests, five times: each vGPU that was acknowledged is there, and none that was not asked for."""
    made: set[str] = set()
    asked: set[str] = set()

    def create(connection: Connection, first: int) -> None:
        for n in range(first, first + 40):
            asked.add(f"v{n}")
            try:
                reply = connection.raw(json.dumps({"op": "vgpu-create", "vgpu": f"v{n}", "min_ppm": 1000}).encode())
            except OSError:
                return
            if not reply:
                return
            assert reply["ok"], reply
            made.add(f"v{n}")

    for turn in range(5):
        daemon.start()
        maker = threading.Thread(target=create, args=(daemon.connect(), 40 * turn))
        enough = len(made) + random.randrange(1, 30)
        maker.start()
        wait_for("some are made", lambda enough=enough, maker=maker: len(made) >= enough or not maker.is_alive())
        daemon.kill()
        maker.join()
    daemon.start()
    there = set(vgpus(daemon)) - {"default"}
    assert made <= there <= asked
    daemon.healthy()


def spoil(path: Path, how: str) -> None:
    """A file that is not what a daemon leaves."""
    text = path.read_text()
    if how == "empty":
        path.write_text("")
    elif how == "garbage":
        path.write_bytes(os.urandom(4096))
    elif how == "zeros":
        path.write_bytes(bytes(4096))
    elif how == "no head":
        path.write_text(text.split("\n", 1)[1])
    elif how == "old format":
        path.write_text(text.replace('{"rtxg-state":1', '{"rtxg-state":0', 1))
    elif how == "new format":
        path.write_text(text.replace('{"rtxg-state":1', '{"rtxg-state":2', 1))
    elif how == "link":
        path.rename(path.with_suffix(".away"))
        path.symlink_to(path.with_suffix(".away"))
    elif how == "two names":
        path.with_suffix(".away").hardlink_to(path)
    elif how == "writable by others":
        path.chmod(0o666)
    elif how == "another user's":
        os.chown(path, 65534, 65534)
    elif how == "a pipe":
        path.unlink()
        os.mkfifo(path, 0o600)
    elif how == "a folder":
        path.unlink()
        path.mkdir()


@pytest.mark.parametrize("how", ["empty", "garbage", "zeros", "no head", "old format", "new format", "link", "two names",
                                 "writable by others", "another user's", "a pipe", "a folder"])
def test_a_file_that_is_not_its_own_is_not_believed(daemon: Daemon, how: str) -> None:
    """The daemon starts without it, the doctor says so, and what is made then is kept again where that is possible."""
    if how == "another user's" and os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    daemon.start()
    ok(daemon.ask("vgpu-create", vgpu="camera", min_ppm=400000))
    daemon.kill()
    spoil(state(daemon), how)
    daemon.start()
    assert set(vgpus(daemon)) == {"default"}
    assert not state_check(daemon)["ok"]
    reply = ok(daemon.ask("vgpu-create", vgpu="again", min_ppm=400000))
    daemon.kill()
    daemon.start()
    if how == "a folder":
        assert "warning" in reply and str(state(daemon)) in reply["warning"]
    else:
        assert "warning" not in reply
        assert set(vgpus(daemon)) == {"default", "again"}
        assert state_check(daemon)["ok"]
    daemon.healthy()


def test_a_file_cut_short_at_any_place_gives_what_is_whole(daemon: Daemon) -> None:
    """Whole lines count, the cut is named, and no cut keeps the daemon from starting."""
    daemon.start()
    for n in range(3):
        ok(daemon.ask("vgpu-create", vgpu=f"v{n}", min_ppm=100000))
    daemon.kill()
    whole = state(daemon).read_bytes()
    ends = [n + 1 for n, byte in enumerate(whole) if byte == 10]
    for at in sorted({*ends[:-1], *(e - 1 for e in ends), 1, *random.sample(range(len(whole)), 4)}):
        state(daemon).write_bytes(whole[:at])
        daemon.start()
        complete = max(0, sum(e <= at for e in ends) - 1)
        assert set(vgpus(daemon)) == {"default", *(f"v{n}" for n in range(complete))}, at
        assert not state_check(daemon)["ok"], at
        daemon.kill()


def test_another_boots_file_is_left_alone(daemon: Daemon) -> None:
    """What was made at run time lasts until the machine is booted; that is no error."""
    daemon.start()
    ok(daemon.ask("vgpu-create", vgpu="camera", min_ppm=400000))
    daemon.kill()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    state(daemon).write_text(state(daemon).read_text().replace(boot, boot[::-1]))
    daemon.start()
    assert set(vgpus(daemon)) == {"default"} and state_check(daemon)["ok"]
    daemon.healthy()


@pytest.mark.parametrize("to_the_end", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_hostile_lines_make_nothing_that_a_request_could_not(daemon: Daemon, to_the_end: bool) -> None:
    """Each line is read as a client's request is: ranges, names and admission hold. What no program claims goes, ten seconds later."""
    daemon.start()
    ok(daemon.ask("vgpu-create", vgpu="camera", min_ppm=400000))
    daemon.kill()
    head, line = state(daemon).read_text().splitlines()
    lines = [
        '{"op":"vgpu","vgpu":"../../etc","min_ppm":1}', '{"op":"vgpu","vgpu":"a","min_ppm":1000001}',
        '{"op":"vgpu","vgpu":"b","gpu":"' + "x" * 100 + '"}', '{"op":"shutdown"}', '{"op":"task","vgpu":"c","pid":1,"began":1,"page":1}',
        '{"op":"vgpu","vgpu":"d","transient":true,"pid":1,"began":7}', '{"op":"pool","pool":"p","gpus":[]}', "[" * 5000,
        '{"op":"gpu","gpu":"0","policy":"fairest"}', '{"op":"vgpu-changed","vgpu":"e"}', line,
    ]
    state(daemon).write_text("\n".join([head.replace('"lines":1', f'"lines":{len(lines)}'), *lines]) + "\n")
    daemon.start()
    assert set(vgpus(daemon)) == {"default", "camera", "d"}
    if to_the_end:
        wait_for("the one whose program has ended goes", lambda: "d" not in vgpus(daemon))
    daemon.healthy()


def test_a_full_disk_is_said_and_loses_nothing_that_was_kept(daemon: Daemon, tmp_path: Path) -> None:
    """The reply warns, the doctor says it, the file from before is whole; with room again all of it is kept."""
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", small], capture_output=True, check=False).returncode:
        pytest.skip("no right to mount")
    try:
        daemon.socket = small / "rtxgd.sock"
        daemon.start()
        ok(daemon.ask("vgpu-create", vgpu="camera", min_ppm=400000))
        whole = (small / "rtxgd.sock.state").read_bytes()
        with (small / "filler").open("wb", buffering=0) as filler:
            try:
                while filler.write(bytes(4096)):
                    pass
            except OSError:
                pass
        reply = ok(daemon.ask("vgpu-create", vgpu="late", min_ppm=100000))
        assert "No space left" in reply["warning"]
        check = state_check(daemon)
        assert not check["ok"] and "No space left" in check["detail"]
        assert [p.name for p in small.iterdir() if "state" in p.name] == ["rtxgd.sock.state"]
        assert (small / "rtxgd.sock.state").read_bytes() == whole
        (small / "filler").unlink()
        assert "warning" not in ok(daemon.ask("vgpu-set", vgpu="late", min_ppm=200000))
        daemon.kill()
        daemon.start()
        assert vgpus(daemon)["late"]["min_ppm"] == 200000 and vgpus(daemon)["camera"]["min_ppm"] == 400000
        daemon.healthy()
        assert daemon.kill(signal.SIGTERM) == 0
    finally:
        subprocess.run(["umount", "-l", small], check=True)


def test_programs_come_back_to_the_vgpus_where_they_were_put(daemon: Daemon) -> None:
    """One in a vGPU made at run time, one that was moved and changed by another client: after two kills, and shares hold."""
    daemon.start()
    ok(daemon.ask("vgpu-create", vgpu="a", min_ppm=300000, max_ppm=300000))
    ok(daemon.ask("vgpu-create", vgpu="b", min_ppm=700000))
    one, two = (daemon.device("-v", "a", "-u", "1000", "-s", "-d", "60") for _ in range(2))
    wait_for("both are there", lambda: len(daemon.tasks()) == 2)
    ok(daemon.ask("task-set", pid=two.pid, vgpu="b", priority=9, deadline_ns=5_000_000))
    for _ in range(2):
        wait_for("it is there", lambda: {t["vgpu"] for t in daemon.tasks(pid=two.pid)} == {"b"})
        daemon.kill()
        daemon.start()
        wait_for("both are back", lambda: len(daemon.tasks()) == 2)
        assert {t["pid"]: t["vgpu"] for t in daemon.tasks()} == {one.pid: "a", two.pid: "b"}
        task = daemon.tasks(pid=two.pid)[0]
        assert (task["priority"], task["deadline_ns"]) == (9, 5_000_000)

    def busy() -> dict[int, int]:
        return {t["pid"]: t["engines"][0]["busy_ns"] for t in daemon.tasks()}

    wait_for_share(one.pid, 0.3, 0.05, busy)
    daemon.healthy()


def take_over(daemon: Daemon, page_fd: int) -> Connection:
    """Hand a page to the daemon that is there now, as librtxg does."""
    connection = daemon.connect()
    reply = connection.raw(b'{"op": "open", "vgpu": "a", "takeover": 1}', (page_fd,))
    assert reply is not None and reply["ok"], reply
    return connection


def test_a_program_that_comes_back_twice_is_where_it_was_put(daemon: Daemon) -> None:
    """On a busy machine the answer comes too late: the program gives up and tries again, before its first try is closed or after."""
    daemon.start()
    for name in ("a", "b"):
        ok(daemon.ask("vgpu-create", vgpu=name, min_ppm=300000))
    task = daemon.task(vgpu="a")
    ok(daemon.ask("task-set", pid=os.getpid(), vgpu="b", priority=9))
    daemon.kill()
    daemon.start()
    first = take_over(daemon, task.page_fd)
    second = take_over(daemon, task.page_fd)
    assert {t["vgpu"] for t in daemon.tasks()} == {"b"}
    for connection in (first, second):
        connection.socket.close()
    wait_for("both are closed", lambda: not daemon.tasks())
    take_over(daemon, task.page_fd)
    assert [(t["vgpu"], t["priority"]) for t in daemon.tasks()] == [("b", 9)]
    daemon.healthy()


@pytest.mark.parametrize("to_the_end", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_vgpu_of_a_run_outlives_the_daemon_and_not_the_program(daemon: Daemon, to_the_end: bool) -> None:
    """`rtxg run --min`: with the program still there it is there, and it goes with the program; one that ended meanwhile leaves none.

    A new daemon waits ten seconds for programs before it lets any go.
    """
    daemon.start()
    environment = daemon.environment
    runs = [subprocess.Popen([BUILD / "cli/rtxg", "run", "--no-layer", "--min", "30%", "--", "sleep", "600"], env=environment)
            for _ in range(2)]
    try:
        names = [f"run-{p.pid}" for p in runs]
        wait_for("both are made", lambda: set(names) <= set(vgpus(daemon)))
        daemon.kill()
        runs[1].kill()
        runs[1].wait()
        daemon.start()
        assert vgpus(daemon)[names[0]]["origin"] == "transient"
        assert vgpus(daemon)[names[0]]["min_ppm"] == 300000
        if not to_the_end:
            return
        wait_for("the other goes", lambda: names[1] not in vgpus(daemon))
        assert vgpus(daemon)[names[0]]["min_ppm"] == 300000
        runs[0].kill()
        runs[0].wait()
        wait_for("it goes", lambda: set(vgpus(daemon)) == {"default"})
        daemon.healthy()
    finally:
        for p in runs:
            p.kill()
            p.wait()


# --- --persist --------------------------------------------------------------------------------------


def rtxg(daemon: Daemon, *words: str) -> subprocess.CompletedProcess[str]:
    """The command-line tool."""
    return subprocess.run([BUILD / "cli/rtxg", *words], env=daemon.environment, capture_output=True, text=True, timeout=60, check=False)


def drop_in(daemon: Daemon, name: str) -> Path:
    """Where --persist writes."""
    return daemon.folder / f"root/etc/rtxg/rtxg.conf.d/50-vgpu-{name}.conf"


def test_persist_writes_a_drop_in_that_means_the_same(daemon: Daemon) -> None:
    """Without the file of the daemon before, the vGPU is there with each of its values; rm removes the drop-in."""
    daemon.write_config("[VGPU steady]\nGPUMin=10%\nGPUWeight=300\nUsers=root 1000\n")
    daemon.start()
    done = rtxg(daemon, "vgpu", "create", "camera", "--min", "33.3333%", "--max", "60%", "--weight", "7", "-p", "20", "--period",
                "12.5ms", "--policy", "edf", "--task-priority", "5", "-g", "big", "--new", "--persist")
    assert (done.returncode, done.stderr) == (0, "")
    assert rtxg(daemon, "vgpu", "set", "steady", "--weight", "default", "--persist").returncode == 0
    before = vgpus(daemon)
    assert before["camera"]["source"] == f"{drop_in(daemon, 'camera')}:2" and before["camera"]["persistent"]
    assert before["camera"]["origin"] == "config"
    daemon.kill()
    assert not state(daemon).exists()
    daemon.start()
    assert vgpus(daemon) == before
    ok(daemon.ask("reload"))
    assert vgpus(daemon) == before
    assert rtxg(daemon, "vgpu", "rm", "camera").returncode == 0
    assert not drop_in(daemon, "camera").exists() and drop_in(daemon, "steady").exists()
    daemon.kill()
    daemon.start()
    assert "camera" not in vgpus(daemon) and "weight" not in vgpus(daemon)["steady"]
    assert vgpus(daemon)["steady"]["users"] == ["root", "1000"]
    daemon.healthy()


def test_persist_that_cannot_write_changes_nothing(daemon: Daemon) -> None:
    """The refusal names the file and the remedy; the vGPU is as it was."""
    daemon.write_config("", name="etc/rtxg/rtxg.conf.d")
    daemon.start()
    done = rtxg(daemon, "vgpu", "create", "camera", "--min", "40%", "--persist")
    assert done.returncode == 1 and str(drop_in(daemon, "camera")) in done.stderr and "leave --persist out" in done.stderr
    assert set(vgpus(daemon)) == {"default"}
    ok(daemon.ask("vgpu-create", vgpu="camera", min_ppm=100000))
    before = vgpus(daemon)
    assert rtxg(daemon, "vgpu", "set", "camera", "--min", "40%", "--persist").returncode == 1
    assert vgpus(daemon) == before
    refused = daemon.ask("vgpu-create", vgpu="x", transient=True, persist=True)
    assert refused["error"] == "EINVAL"
    daemon.healthy()


def test_a_drop_in_that_cannot_be_removed_is_named(daemon: Daemon) -> None:
    """rm says that the vGPU would come back, and what to do."""
    daemon.start()
    assert rtxg(daemon, "vgpu", "create", "camera", "--persist").returncode == 0
    drop_in(daemon, "camera").unlink()
    drop_in(daemon, "camera").mkdir()
    done = rtxg(daemon, "vgpu", "rm", "camera")
    assert done.returncode == 1 and str(drop_in(daemon, "camera")) in done.stderr and "remove that file" in done.stderr
    daemon.healthy()
