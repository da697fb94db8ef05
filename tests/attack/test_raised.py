# SPDX-License-Identifier: MIT
"""A thread that rtxgd has raised keeps no priority that is not its own, whatever it does."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from users import Connection, Stage, has_ended, wait_for

OWN, PASSED = 10, 60


def has(thread: int) -> tuple[int, int]:
    """Its policy and priority."""
    return os.sched_getscheduler(thread), os.sched_getparam(thread).sched_priority


RAISED = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, PASSED
SET_BACK = os.SCHED_FIFO, OWN


class Holder:
    """A process of the attacker's, whose second thread holds the GPU of the pool.

    Told to, that thread executes a program, or ends. The connection is closed with it, or stays.
    """

    def __init__(self, stage: Stage, keep: bool, executes: bool, sets: int = 0) -> None:
        told, thread = os.pipe(), os.pipe()
        path = stage.daemon.socket

        def main(go: Callable[[], None]) -> None:
            connection = Connection(path)
            assert connection.open()["ok"]
            connection.socket.set_inheritable(keep)

            def hold() -> None:
                os.write(thread[1], str(threading.get_native_id()).encode())
                os.read(told[0], 1)  # it has its priority
                reply = connection.ask("pool-acquire", pool="one", thread=threading.get_native_id())
                assert reply["ok"], reply
                go()
                os.read(told[0], 1)
                if sets:
                    os.sched_setparam(0, os.sched_param(sets))
                if executes:
                    os.execv("/bin/sleep", ["sleep", "600"])

            threading.Thread(target=hold).start()
            signal.pause()

        def give() -> None:
            self.thread = int(os.read(thread[0], 16))
            try:
                os.sched_setscheduler(self.thread, os.SCHED_FIFO, os.sched_param(OWN))
            except PermissionError:
                self.thread = 0
            os.write(told[1], b".")

        giver = threading.Thread(target=give)
        giver.start()
        self.pid = stage.attack(main).pid
        giver.join()
        self.told = told[1]
        if not self.thread:
            pytest.skip("no right to a real-time priority")

    def tell(self) -> None:
        """It does what it is to do."""
        os.write(self.told, b".")


@contextmanager
def waits(stage: Stage) -> Iterator[None]:
    """A thread of root's, of a high priority, waits for the GPU meanwhile."""
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    assert thread.native_id
    try:
        os.sched_setscheduler(thread.native_id, os.SCHED_FIFO, os.sched_param(PASSED))
        connection = stage.daemon.task(priority=5)
        request = {"op": "pool-acquire", "pool": "one", "thread": thread.native_id}
        connection.send(json.dumps(request).encode())
        yield
    finally:
        done.set()
        thread.join()


def begin(stage: Stage, keep: bool = False, executes: bool = True, sets: int = 0) -> Holder:
    """The daemon, and the holder."""
    stage.daemon.start(mode="--system")
    assert stage.daemon.ask("pool-create", pool="one", gpus=["only"])["ok"]
    return Holder(stage, keep, executes, sets)


def executed(pid: int) -> bool:
    """The process is the program that its second thread has executed."""
    return Path(f"/proc/{pid}/comm").read_text() == "sleep\n"


@pytest.mark.parametrize("sets", [0, PASSED - 1, OWN - 1], ids=["as it is", "higher", "lower"])
def test_a_raised_thread_that_executes_a_program_is_set_back(stage: Stage, sets: int) -> None:
    """It goes on as the first thread of its process, and under that one's number."""
    holder = begin(stage, sets=sets)
    with waits(stage):
        wait_for("it inherits", lambda: has(holder.thread) == RAISED)
        holder.tell()
        wait_for("it has executed a program", lambda: executed(holder.pid))
        after = (os.SCHED_FIFO, min(sets or OWN, OWN))
        wait_for("it is set back", lambda: has(holder.pid) == after)


def test_so_is_one_that_keeps_the_connection(stage: Stage) -> None:
    """It may go on with the GPU, but its program is not the thread that the daemon was told of."""
    holder = begin(stage, keep=True)
    with waits(stage):
        wait_for("it inherits", lambda: has(holder.thread) == RAISED)
        holder.tell()
        wait_for("it has executed a program", lambda: executed(holder.pid))
        assert stage.daemon.ask("task-list", pid=holder.pid)["tasks"]
        # The next change in the pool.
        stage.daemon.connections.pop().close()
        wait_for("it is set back", lambda: has(holder.pid) == SET_BACK)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["ended", "killed"])
def test_so_is_one_when_the_daemon_ends(stage: Stage, number: int) -> None:
    """In order, or by the guard."""
    holder = begin(stage, keep=True)
    with waits(stage):
        wait_for("it inherits", lambda: has(holder.thread) == RAISED)
        holder.tell()
        wait_for("it has executed a program", lambda: executed(holder.pid))
        assert has(holder.pid) == RAISED
        stage.daemon.kill(number)
        stage.daemon.process = None
        wait_for("it is set back", lambda: has(holder.pid) == SET_BACK)


def test_so_is_one_by_the_next_daemon(stage: Stage) -> None:
    """The guard was killed, too."""
    holder = begin(stage, keep=True)
    with waits(stage):
        wait_for("it inherits", lambda: has(holder.thread) == RAISED)
        (guard,) = stage.daemon.guards()
        os.kill(guard, signal.SIGKILL)
        wait_for("it is dead", lambda: not stage.daemon.guards())
        stage.daemon.kill()
        holder.tell()
        wait_for("it has executed a program", lambda: executed(holder.pid))
        assert has(holder.pid) == RAISED
        stage.daemon.start(mode="--system")
        assert has(holder.pid) == SET_BACK


@pytest.mark.parametrize("number", [0, signal.SIGKILL], ids=["goes on", "killed"])
@pytest.mark.parametrize("first", [RAISED, (os.SCHED_FIFO, 30)], ids=["like it", "lower"])
def test_the_first_thread_keeps_what_is_its_own_when_a_raised_one_ends(
    stage: Stage, number: int, first: tuple[int, int]
) -> None:
    """Its priority is as high by a right of its own."""
    holder = begin(stage, executes=False)
    os.sched_setscheduler(holder.pid, first[0], os.sched_param(first[1]))
    with waits(stage):
        wait_for("it inherits", lambda: has(holder.thread) == RAISED)
        guards = stage.daemon.guards()
        holder.tell()
        wait_for("it has ended", lambda: not Path(f"/proc/{holder.pid}/task/{holder.thread}").exists())
        if number:
            stage.daemon.kill(number)
            stage.daemon.process = None
            wait_for("the guard has ended", lambda: all(has_ended(g) for g in guards))
        else:
            # The next change in the pool, which is known before any other request is answered.
            stage.daemon.connections.pop().close()
            wait_for("it is seen", lambda: len(stage.daemon.tasks()) == 1)
        assert has(holder.pid) == first
