# SPDX-License-Identifier: MIT
"""A GPU of OpenCL exists when a device of the machine does, and not because a user says so."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from users import ATTACKER, BUILD, VICTIM, Connection, Stage, has_ended, wait_for

#: a user that no account of a machine is
LISTER = 61099


def listed(stage: Stage) -> dict[str, Any]:
    """What the daemon knows of OpenCL's devices."""
    return dict(stage.daemon.ask("limits")["opencl"])


def names(stage: Stage) -> list[str]:
    """The GPUs that the daemon has."""
    return [gpu["gpu"] for gpu in stage.daemon.ask("gpu-list")["gpus"]]


def with_driver(stage: Stage, driver: Path | None) -> tuple[str, ...]:
    """Words that give a program a machine with that driver alone, or with none."""
    vendors = stage.daemon.folder / "vendors"
    vendors.mkdir(exist_ok=True)
    if driver:
        (vendors / "one.icd").write_text(f"{driver}\n")
    script = 'mount --make-rprivate / && mount --bind "$0" /etc/OpenCL/vendors && exec "$@"'
    return ("unshare", "--mount", "sh", "-c", script, str(vendors))


def put_driver(stage: Stage, how: str) -> tuple[tuple[str, ...], Path]:
    """Words that give a program a machine with an unruly driver alone, and what that notes."""
    folder = stage.daemon.folder
    driver = Path(shutil.copy(BUILD / "tests/daemon/libunruly_driver.so", folder / "driver.so"))
    note = folder / "driver.so.note"
    note.write_text(f"{how}\n")
    note.chmod(0o666)
    words = with_driver(stage, driver)
    if not mountable(words):
        pytest.skip("no mounts of one's own here, or no loader of OpenCL")
    return words, note


def left_over(stage: Stage) -> list[str]:
    """Dead children of the daemon's and its starter's, and what lists devices or was forked there."""
    assert stage.daemon.process is not None
    words, stats, parents = {}, {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        with contextlib.suppress(OSError):
            words[pid] = (folder / "cmdline").read_bytes().split(b"\0")
            stats[pid] = (folder / "stat").read_text()
            parents[pid] = int(stats[pid].rsplit(")", 1)[1].split()[1])
    own = stage.daemon.process.pid
    started = {own} | {pid for pid, parent in parents.items() if parent == own}
    # These stay as long as the daemon.
    stay = (b"--close-descriptors", b"--start-programs")
    return [
        stats[pid]
        for pid, parent in parents.items()
        if b"--list-devices" in words[pid]
        or (parent in started and not any(one in words[pid] for one in stay))
    ]


def mountable(words: tuple[str, ...]) -> bool:
    """Whether the machine permits that, and a loader of OpenCL is there to be led astray."""
    if not Path("/etc/OpenCL/vendors").is_dir():
        return False
    return subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0


def test_a_name_of_no_device_is_refused_with_those_that_are(stage: Stage) -> None:
    """By `open` and by `place`; a list is made once, however many names come."""
    stage.daemon.start(mode="--system")
    path = stage.daemon.socket
    assert listed(stage) == {"names": [], "listed": 0, "whole": False}

    def main(go: Callable[[], None]) -> list[Any]:
        connections = [Connection(path) for _ in range(60)]
        for number, connection in enumerate(connections):
            op = "place" if number % 3 == 2 else "open"
            connection.send(f'{{"op": "{op}", "gpu": "phantom-{number}"}}'.encode())
        go()
        return [connection.receive()[0] for connection in connections]

    replies = stage.attack(main).result()
    assert {reply["error"] for reply in replies} == {"ENODEV"}, replies
    known = listed(stage)
    assert (known["listed"], known["whole"]) == (1, True), known
    for name in known["names"]:
        assert name in replies[0]["message"], replies[0]
    assert "GPUNames=any" in replies[0]["message"]
    assert stage.as_victim(lambda c: c.open())["ok"], "the standard GPU"
    assert names(stage) == ["0"]


def test_the_name_of_a_device_is_taken_at_once(stage: Stage) -> None:
    """The request waits for the list; the layer and the daemon compute the same name."""
    cache = stage.daemon.folder / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    command = [str(BUILD / "demo/nbody"), "--seconds", "1"]
    environment = stage.daemon.environment | {"POCL_CACHE_DIR": str(cache)}

    def run(*words: str) -> Any:
        done = subprocess.run(
            [*words, *command],
            env=environment,
            cwd="/",
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return [done.returncode, done.stderr]

    if not Path(command[0]).exists() or stage.run(VICTIM, run).result()[0]:
        pytest.skip("no device of OpenCL")
    stage.daemon.start(mode="--system")
    managed = (str(BUILD / "cli/rtxg"), "run", "--fail", "closed", "--")
    status, error = stage.run(VICTIM, lambda: run(*managed)).result()
    assert status == 0, error
    known = listed(stage)
    assert known["listed"] <= 1 and "UNMANAGED" not in error
    assert known["listed"] == 0 or set(names(stage)) & set(known["names"]), (known, names(stage))


def test_a_driver_that_takes_its_time_keeps_no_other_waiting(stage: Stage) -> None:
    """It is loaded as the user `nobody`, without the daemon's environment, and what it prints is no name."""
    folder = stage.daemon.folder
    words, note = put_driver(stage, "slow")
    stage.daemon.environment |= {"OCL_ICD_VENDORS": str(folder), "LD_PRELOAD_TEST": "a secret"}
    stage.daemon.start(mode="--system", prefix=words)
    path = stage.daemon.socket

    def main(go: Callable[[], None]) -> list[Any]:
        connections = [Connection(path) for _ in range(20)]
        for connection in connections:
            connection.send(b'{"op": "open", "gpu": "phantom-of-a-driver"}')
        go()
        for connection in connections[10:]:
            connection.socket.close()  # while its request is kept
        return [connection.receive()[0] for connection in connections[:10]]

    attack = stage.attack(main)
    wait_for("the driver begins", lambda: "begins" in note.read_text())
    stage.answers(30)
    assert attack.runs(), "the driver still takes its time"
    (folder / "driver.so.go").touch()
    assert {reply["error"] for reply in attack.result()} == {"ENODEV"}
    lines = note.read_text().splitlines()
    assert lines.count("begins") == 1, lines
    for line in lines:
        key, _, rest = line.partition(":")
        if key in ("Uid", "Gid"):
            assert rest.split() == ["65534"] * 4, line
        if key in ("CapEff", "CapPrm"):
            assert int(rest, 16) == 0, line
        if key == "NoNewPrivs":
            assert rest.strip() == "1", line
    assert not [line for line in lines if line.startswith(("OCL_ICD", "LD_PRELOAD", "RTXG_"))], (
        lines
    )
    assert names(stage) == ["0"]


def test_no_process_of_another_user_ends_the_one_that_lists(stage: Stage) -> None:
    """It is a user of its own where there is an account for that, and in no group of accounts."""
    words, note = put_driver(stage, "slow")
    accounts = stage.daemon.folder / "passwd"
    others = [
        line
        for line in Path("/etc/passwd").read_text().splitlines(keepends=True)
        if not line.startswith("rtxg-devices:")
    ]
    account = f"rtxg-devices:x:{LISTER}:{LISTER}::/:/usr/sbin/nologin\n"
    accounts.write_text("".join(others) + account)
    mount = f'mount --bind "{accounts}" /etc/passwd && exec "$0" "$@"'
    stage.daemon.start(mode="--system", prefix=(*words, "sh", "-c", mount))
    path = stage.daemon.socket
    attack = stage.run(ATTACKER, lambda: Connection(path).open(gpu="phantom-of-a-driver"))
    wait_for("the driver begins", lambda: "begins" in note.read_text())
    ids = [line.split()[1:] for line in note.read_text().splitlines() if line[1:4] == "id:"]
    assert ids == [[str(LISTER)] * 4, ["65534"] * 4], ids

    def end() -> list[str]:
        done = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if b"--list-devices" in (folder / "cmdline").read_bytes():
                    try:
                        os.kill(int(folder.name), signal.SIGKILL)
                        done.append("ended")
                    except PermissionError:
                        done.append("refused")
        return done

    assert set(stage.run(65534, end).result()) == {"refused"}
    (stage.daemon.folder / "driver.so.go").touch()
    assert attack.result()["error"] == "ENODEV"
    assert listed(stage)["whole"]


@pytest.mark.parametrize("how", ["crash", "hang", "child", "close", "none"])
def test_an_unruly_driver_leaves_nothing(stage: Stage, how: str) -> None:
    """No process, no zombie, no folder; the daemon lists again, and its answers do not wait."""
    words, note = put_driver(stage, how)
    folders = set(Path("/tmp").glob("rtxg-devices-*"))
    stage.daemon.start(mode="--system", prefix=words)
    path = stage.daemon.socket
    attack = stage.run(ATTACKER, lambda: Connection(path).open(gpu="phantom-of-a-driver"))
    wait_for("the driver begins", lambda: "begins" in note.read_text())
    stage.answers(30)
    assert how != "hang" or attack.runs()
    assert attack.result()["error"] == "ENODEV"
    known = listed(stage)
    assert (known["names"], known["listed"]) == ([], 1), known
    assert known["whole"] == (how in ("child", "close", "none")), known
    wait_for("nothing is left", lambda: not left_over(stage))
    assert set(Path("/tmp").glob("rtxg-devices-*")) == folders


def test_an_administrator_names_what_opencl_does_not_have(stage: Stage) -> None:
    """By a section, for all users; by GPUNames=any, every name within the quota."""
    stage.daemon.write_config("[GPU of-a-container]\nPolicy=fifo\n")
    stage.daemon.start(mode="--system")
    assert stage.as_victim(lambda c: c.open(gpu="of-a-container"))["ok"]
    assert stage.as_victim(lambda c: c.open(gpu="typo"))["error"] == "ENODEV"
    assert stage.daemon.connect().open(gpu="of-root")["ok"], "root's word is enough"
    stage.daemon.write_config("[Daemon]\nGPUNames=any\n")
    assert stage.daemon.ask("reload")["errors"] == 0
    assert stage.as_victim(lambda c: c.open(gpu="typo"))["ok"]


def test_a_device_of_the_bus_that_does_not_compute_is_no_gpu(stage: Stage) -> None:
    """A disk, a network card: their places are on the bus, too."""
    for device in sorted(Path("/sys/bus/pci/devices").glob("*")):
        if (device / "class").read_text()[:4] in ("0x01", "0x02", "0x06"):
            break
    else:
        pytest.skip("no such device here")
    stage.daemon.start(mode="--system")
    assert stage.as_victim(lambda c: c.open(gpu=device.name))["error"] == "ENODEV"


def test_a_program_that_ends_while_its_request_is_kept_leaves_nothing(stage: Stage) -> None:
    """Nor do those that send a descriptor with it."""
    words = with_driver(stage, None)
    stage.daemon.start(mode="--system", prefix=words if mountable(words) else ())
    path = stage.daemon.socket
    assert stage.daemon.process is not None
    descriptors = Path(f"/proc/{stage.daemon.process.pid}/fd")
    before = len(list(descriptors.iterdir()))

    def main() -> None:
        for _ in range(50):
            if os.fork() == 0:
                fds = (os.memfd_create("page"),)
                text = b'{"op": "open", "gpu": "phantom", "takeover": true}'
                Connection(path).send(text, fds)
                os._exit(0)

    stage.run(ATTACKER, main).result()
    wait_for("no descriptor more", lambda: len(list(descriptors.iterdir())) <= before)
    assert stage.as_victim(lambda c: c.open())["ok"]


def test_a_signal_to_all_of_its_name_ends_the_daemon_alone(stage: Stage) -> None:
    """As `pkill -HUP rtxgd` sends it: the others end when the daemon does."""
    stage.daemon.start(mode="--system")
    assert stage.daemon.process is not None
    own = stage.daemon.process.pid
    (starter,) = map(int, Path(f"/proc/{own}/task/{own}/children").read_text().split())
    (closer,) = wait_for("it begins", lambda: stage.daemon.started(b"--close-descriptors"))
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
        for pid in (starter, closer):
            os.kill(pid, number)
    assert stage.as_victim(lambda c: c.open(gpu="phantom"))["error"] == "ENODEV"
    assert listed(stage)["whole"], "the starter starts programs"
    assert Path(f"/proc/{closer}").exists()
    assert stage.daemon.kill(signal.SIGTERM) == 0
    for pid in (starter, closer):
        wait_for("it ends", lambda pid=pid: has_ended(pid))
    stage.daemon.start(mode="--system")


def test_without_the_process_that_starts_programs_the_daemon_goes_on(stage: Stage) -> None:
    """It says so, and what needs a program is refused."""
    stage.daemon.start(mode="--system")
    assert stage.daemon.process is not None
    own = stage.daemon.process.pid
    (starter,) = map(int, Path(f"/proc/{own}/task/{own}/children").read_text().split())
    assert b"--start-programs" in Path(f"/proc/{starter}/cmdline").read_bytes()
    os.kill(starter, signal.SIGKILL)
    reply = stage.as_victim(lambda c: c.open(gpu="phantom"))
    assert reply["error"] == "ENODEV" and "could not be listed" in reply["message"], reply
    assert "starts programs does not answer" in stage.daemon.log.read_text()
    assert stage.as_victim(lambda c: c.open())["ok"]


def test_a_program_whose_descriptor_has_no_place_does_not_run(stage: Stage) -> None:
    """The daemon would not know of it, and start a second one beside it."""
    words, note = put_driver(stage, "hang")
    stage.daemon.start(mode="--system", prefix=words)
    path = stage.daemon.socket
    assert stage.daemon.process is not None
    own = stage.daemon.process.pid
    go, write_end = os.pipe()

    def main(ready: Callable[[], None]) -> Any:
        connection = Connection(path)
        assert connection.ask("hello")["ok"]
        ready()
        os.read(go, 1)
        return connection.open(gpu="phantom")

    attack = stage.attack(main)
    # For both ends of the pipe that the list comes through, and no more.
    used = {int(one.name) for one in Path(f"/proc/{own}/fd").iterdir()}
    limit = next(n for n in range(1024) if len(set(range(n)) - used) == 2)
    before = resource.prlimit(own, resource.RLIMIT_NOFILE)
    resource.prlimit(own, resource.RLIMIT_NOFILE, (limit, before[1]))
    os.write(write_end, b".")
    reply = attack.result()
    resource.prlimit(own, resource.RLIMIT_NOFILE, before)
    os.close(go)
    os.close(write_end)
    assert reply["error"] == "ENODEV" and "could not be listed" in reply["message"], reply
    assert "cannot be listed: Too many open files" in stage.daemon.log.read_text()
    assert not left_over(stage) and not note.read_text().count("begins")


@pytest.mark.parametrize("files", ["9</dev/null 4</dev/null", "<&-", "<&- >&-"])
def test_programs_do_not_depend_on_what_the_daemon_was_given(stage: Stage, files: str) -> None:
    """More files than the standard ones are not theirs, and of these none need be there."""
    words = ("sh", "-c", f'exec "$0" "$@" {files}')
    stage.daemon.start(mode="--system", prefix=words)
    assert stage.daemon.process is not None
    own = stage.daemon.process.pid
    (starter,) = map(int, Path(f"/proc/{own}/task/{own}/children").read_text().split())
    (closer,) = wait_for("it begins", lambda: stage.daemon.started(b"--close-descriptors"))
    assert stage.as_victim(lambda c: c.open(gpu="phantom"))["error"] == "ENODEV"
    assert listed(stage)["whole"]
    for pid in (starter, closer):
        assert {one.name for one in Path(f"/proc/{pid}/fd").iterdir()} == set("0123")
