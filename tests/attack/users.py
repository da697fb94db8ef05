# SPDX-License-Identifier: MIT
"""Two ordinary users and a system daemon of the test's own.

The daemon is one that root starts in a folder that is open to all, with `--system`: what it does is
what the service does. The users are two numbers that no account has. An attacker runs as the one in
a process of its own; the other is a client that works, and whose longest wait is measured.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

_spec = importlib.util.spec_from_file_location(
    "daemon_conftest", Path(__file__).resolve().parents[1] / "daemon" / "conftest.py"
)
assert _spec and _spec.loader
base = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(base)

BUILD, Connection, Daemon, wait_for = base.BUILD, base.Connection, base.Daemon, base.wait_for

ATTACKER, VICTIM = 61001, 61002


def become(uid: int) -> None:
    """Be an ordinary user, for good."""
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)


def has_ended(pid: int) -> bool:
    """Its new parent may not have waited for it: in a PID namespace of the tests', they are that."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


class Child:
    """A function that runs as another user in a process of its own, and what it returned."""

    def __init__(self, uid: int, what: Callable[[], Any]) -> None:
        self.end, write_end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                os.setpgid(0, 0)
                become(uid)
                os.write(write_end, json.dumps(what()).encode())
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(write_end)

    def result(self) -> Any:
        """Wait for its end."""
        with os.fdopen(self.end) as file:
            text = file.read()
        self.end = -1
        os.waitpid(self.pid, 0)
        self.pid = 0
        assert text, "the child failed"
        return json.loads(text)

    def runs(self) -> bool:
        """Whether it has returned nothing so far."""
        return not select.select([self.end], [], [], 0)[0]

    def kill(self) -> None:
        """End it, whatever it does."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)  # and what it has forked
            os.waitpid(self.pid, 0)
            self.pid = 0
        if self.end >= 0:
            os.close(self.end)
            self.end = -1


class Stage:
    """The daemon and both users."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.children: list[Child] = []

    def run(self, uid: int, what: Callable[[], Any]) -> Child:
        """Start it as that user."""
        child = Child(uid, what)
        self.children.append(child)
        return child

    def attack(self, what: Callable[[Callable[[], None]], Any], uid: int = ATTACKER) -> Child:
        """Start the attack; go on once it has written to the pipe that it is given."""
        ready, write_end = os.pipe()

        def main() -> Any:
            def go() -> None:
                os.write(write_end, b".")

            return what(go)

        child = self.run(uid, main)
        os.close(write_end)
        assert os.read(ready, 1), "the attack failed"
        os.close(ready)
        return child

    def as_victim(self, what: Callable[[Connection], Any]) -> Any:
        """A function of a fresh connection of the other user."""
        return self.run(VICTIM, lambda: what(Connection(self.daemon.socket))).result()

    def answers(self, count: int = 100) -> None:
        """The other user gets so many answers, one after the other.

        How long they take says nothing. A test looks afterwards whether what could hold them up
        still holds.
        """

        def ask(connection: Connection) -> bool:
            return all(connection.ask("hello")["ok"] for _ in range(count))

        assert self.as_victim(ask)

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Meanwhile the daemon takes nothing of what it is sent."""
        assert self.daemon.process is not None
        self.daemon.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.daemon.process.send_signal(signal.SIGCONT)

    def usage(self, uid: int) -> dict[str, Any]:
        """What `limits` says of a user."""
        users = {u["uid"]: u for u in self.daemon.ask("limits")["users"]}
        return dict(users.get(uid, {}))


@pytest.fixture
def stage() -> Iterator[Stage]:
    """A system daemon that strangers may talk to."""
    if os.geteuid() != 0:
        pytest.skip("only root can become two other users")
    folder = Path(tempfile.mkdtemp(prefix="rtxg-attack-"))
    folder.chmod(0o755)
    daemon = Daemon(folder)
    one = Stage(daemon)
    try:
        yield one
        for child in one.children:
            child.kill()
        if daemon.process is not None:
            daemon.healthy()
    finally:
        for child in one.children:
            child.kill()
        daemon.stop()
        shutil.rmtree(folder)
