# SPDX-License-Identifier: MIT
"""A user who may be many users, by /etc/subuid, has no more of the daemon for it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_attack import lingering, many_files
from users import ATTACKER, BUILD, VICTIM, Connection, Stage, wait_for

#: ids of the attacker's, of an owner that the file names by number, and of root's containers
FIRST, SECOND, CONTAINERS = 500_000, 700_000, 900_000
FILE = f"""# comments are none of it
attacker:{FIRST}:65536
attacker:{SECOND}:1000
61002:800000:65536
root:{CONTAINERS}:131072
wrong
wrong:1:2:3
wrong:600000:
wrong:4294967295:4
"""


def start(stage: Stage, text: str = FILE) -> Path:
    """The daemon on a machine with such a file; the file."""
    if not Path("/etc/subuid").is_file():
        pytest.skip("no /etc/subuid to be replaced")
    file = stage.daemon.folder / "subuid"
    file.write_text(text)
    script = 'mount --make-rprivate / && mount --bind "$0" /etc/subuid && exec "$@"'
    words = ("unshare", "--mount", "sh", "-c", script, str(file))
    if subprocess.run([*words, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mounts of one's own here")
    stage.daemon.write_config("[Daemon]\nGPUNames=any\n")
    stage.daemon.start(mode="--system", prefix=words)
    return file


def connect(stage: Stage, count: int) -> Callable[[Callable[[], None]], Any]:
    """An attack: so many connections are made and kept; those that ended were refused."""

    def main(go: Callable[[], None]) -> None:
        many_files()
        kept = []
        while len(kept) < count:
            with contextlib.suppress(BlockingIOError):  # the backlog is full for a moment
                kept.append(Connection(stage.daemon.socket))
        with contextlib.suppress(BrokenPipeError):  # it is refused: that can still be read
            kept[-1].send(b'{"op": "hello"}')
        kept[-1].receive()  # an answer, a refusal, or the end
        go()
        signal.pause()

    return main


def test_subordinate_ids_count_as_one_user(stage: Stage) -> None:
    """Without that fourteen of them take all connections that are not kept for administrators."""
    many_files()
    start(stage)
    for number in range(20):
        first = FIRST if number % 2 else SECOND
        stage.attack(connect(stage, 1200 if number < 2 else 20), first + number)
    used = stage.usage(FIRST)
    assert used["owner"] == "attacker"
    assert used["connections"]["used"] == used["connections"]["max"]
    assert stage.usage(SECOND) == {} and stage.usage(FIRST + 1) == {}
    for uid in (VICTIM, ATTACKER, 800_000, FIRST - 1, FIRST + 65536):
        assert stage.run(uid, lambda: Connection(stage.daemon.socket).ask("hello")).result()["ok"]
    listed = subprocess.run([BUILD / "cli/rtxg", "limits", "-u", "-J", "-o", "USER,OWNER"],
                            env=stage.daemon.environment, capture_output=True, text=True,
                            check=True)
    assert '"owner": "attacker"' in listed.stdout, listed


def test_containers_of_root_count_each_by_itself(stage: Stage) -> None:
    """Blocks of 65536 ids of root's ranges."""
    start(stage)
    for uid in (CONTAINERS, CONTAINERS + 65535, CONTAINERS + 65536):
        stage.attack(connect(stage, 3), uid)
    assert stage.usage(CONTAINERS)["connections"]["used"] == 6
    assert stage.usage(CONTAINERS + 65536)["connections"]["used"] == 3
    assert stage.usage(CONTAINERS)["quota"]


def test_subordinate_ids_share_tasks_and_names_of_gpus(stage: Stage) -> None:
    """The quota of names is twelve; each id brings four."""
    start(stage)

    for number in range(6):

        def main(go: Callable[[], None], uid: int = FIRST + number) -> None:
            kept = [Connection(stage.daemon.socket) for _ in range(4)]
            for one, connection in enumerate(kept):
                connection.open(gpu=f"of-{uid}-{one}")
            go()
            signal.pause()

        stage.attack(main, FIRST + number)
    assert stage.usage(FIRST)["gpus"] == {"used": 12, "max": 12}
    names = [gpu["gpu"] for gpu in stage.daemon.ask("gpu-list")["gpus"]]
    assert sum(name.startswith("of-") for name in names) == 12, names
    assert stage.as_victim(lambda c: c.open(gpu="mine"))["ok"]


def test_descriptors_of_many_ids_are_closed_by_one_thread(stage: Stage) -> None:
    """Without that 64 ids keep all threads, and no descriptor of any other user's is closed."""
    start(stage)
    path, ids = stage.daemon.socket, 8

    def main(go: Callable[[], None]) -> None:
        for number in range(ids):
            sender = lingering()
            if os.fork() == 0:
                os.setuid(FIRST + number)
                with contextlib.suppress(OSError):
                    Connection(path).send(b'{"op": "hello"}', (sender.fileno(),))
                os._exit(0)
            os.wait()
            sender.close()
        go()
        signal.pause()

    # It has them when no other process does.
    with stage.stopped():
        stage.attack(main, uid=0)
    wait_for("the daemon holds them", lambda: stage.usage(FIRST).get("descriptors", {}).get("used"))
    assert stage.usage(FIRST + 1) == {}
    assert stage.daemon.process is not None
    tasks = Path(f"/proc/{stage.daemon.process.pid}/task")
    assert len(list(tasks.iterdir())) < ids
    # Another user's are closed meanwhile.
    read, write = os.pipe()
    with os.fdopen(read), os.fdopen(write, "w"):
        stage.as_victim(lambda c: c.send(b'{"op": "hello"}', (write,)))
        wait_for("it is closed", lambda: not stage.usage(VICTIM).get("descriptors", {}).get("used"))


def test_a_change_of_the_file_holds_for_those_who_come_after(stage: Stage) -> None:
    """What was counted goes from the account that it was counted for."""
    file = start(stage, "")
    before = [stage.attack(connect(stage, 2), FIRST + number) for number in range(3)]
    assert stage.usage(FIRST + 1)["connections"]["used"] == 2
    file.write_text(FILE)
    stage.attack(connect(stage, 5), FIRST + 1)
    assert stage.usage(FIRST)["connections"]["used"] == 7
    for child in before:
        child.kill()
    wait_for("they are gone", lambda: not stage.usage(FIRST + 1))
    assert stage.usage(FIRST)["connections"]["used"] == 5


def lend(first: int, number: int) -> Callable[[Callable[[], None]], Any]:
    """An attack as root lends ids for it, in no file: as the number-th of them in a namespace of the attacker's."""
    libc = ctypes.CDLL(None, use_errno=True)

    def main(go: Callable[[], None]) -> None:
        lend_read, lend_write = os.pipe()
        made_read, made_write = os.pipe()
        lent = os.fork()
        if lent == 0:
            os.setgroups([])
            os.setgid(ATTACKER)
            os.setuid(ATTACKER)
            libc.prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: its maps may be written
            if libc.unshare(0x10000000):  # CLONE_NEWUSER
                os.write(made_write, b"-")
                os._exit(77)
            os.write(made_write, b".")
            os.read(lend_read, 1)
            os.setgid(number)
            os.setuid(number)
            KEPT.append(Connection(lend.path))  # type: ignore[attr-defined]
            reply = KEPT[-1].ask("hello")
            os.write(made_write, b"." if reply["you"]["uid"] == first + number else b"-")
            signal.pause()
        if os.read(made_read, 1) != b".":
            os._exit(77)
        for what in ("uid_map", "gid_map"):
            Path(f"/proc/{lent}/{what}").write_text(f"0 {first} 65536")
        os.write(lend_write, b".")
        if os.read(made_read, 1) == b".":
            go()
        signal.pause()

    return main


KEPT: list[Connection] = []


def test_ids_that_are_lent_count_as_the_user_who_made_the_namespace(stage: Stage) -> None:
    """As systemd-nsresourced does it: a range of its own choice, written to the map by root."""
    start(stage)
    lend.path = stage.daemon.socket  # type: ignore[attr-defined]
    try:
        for number in range(3):
            stage.attack(lend(1_600_000_000, number), uid=0)
    except AssertionError:
        pytest.skip("no user namespaces here")
    assert stage.usage(1_600_000_000) == {} and stage.usage(1_600_000_001) == {}
    assert stage.usage(ATTACKER)["connections"]["used"] == 3
