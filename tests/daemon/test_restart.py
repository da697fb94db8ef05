# SPDX-License-Identifier: MIT
"""The daemon is killed and started again under its clients, which stay where they were."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import BUILD, Daemon, wait_for, wait_for_share


def test_open(daemon: Daemon) -> None:
    """FailPolicy=open: without a daemon the program goes on unmanaged; with one again it is managed as before."""
    daemon.write_config("[VGPU video]\nGPUMin=30%\n")
    daemon.start()
    program = daemon.device("-v", "video", "-P", "7", "-u", "1000", "-s", "-d", "30", "-l", str(daemon.folder / "log"))
    wait_for("it works", lambda: any(t["engines"][0]["launches"] > 5 for t in daemon.tasks()))
    daemon.kill()
    lines = len((daemon.folder / "log").read_bytes().splitlines())
    # It is buffered; a few hundred launches more are a few pages of it.
    wait_for("it goes on", lambda: len((daemon.folder / "log").read_bytes().splitlines()) > lines + 300)
    daemon.start()
    task = wait_for("it is back", daemon.tasks)[0]
    assert (task["pid"], task["vgpu"], task["priority"]) == (program.pid, "video", 7)
    before = task["engines"][0]["busy_ns"]
    wait_for("it is accounted", lambda: daemon.tasks()[0]["engines"][0]["busy_ns"] > before + 10_000_000)
    # Managed again means that it waits for others again.
    other = daemon.task()
    other.launch()

    def engine() -> dict[str, object]:
        return dict(daemon.tasks(pid=program.pid)[0]["engines"][0])

    waits = wait_for("it waits", lambda: (e := engine())["state"] == "waiting" and e)
    assert (engine()["state"], engine()["launches"]) == ("waiting", waits["launches"])
    other.complete()
    wait_for("it goes on", lambda: engine()["launches"] > waits["launches"])
    other.close()
    daemon.connections.clear()
    daemon.healthy()
    program.kill()


def test_open_with_work_always_in_flight(daemon: Daemon) -> None:
    """A program whose launches overlap never begins from nothing; it notices both ends of an outage all the same."""
    daemon.start()
    log = daemon.folder / "log"
    program = daemon.device("-k", "-u", "1000", "-s", "-d", "600", "-l", str(log))
    wait_for("it works", lambda: any(t["engines"][0]["launches"] > 5 for t in daemon.tasks()))
    for _ in range(2):
        daemon.kill()
        lines = len(log.read_bytes().splitlines())
        # The outage lasts longer than the program takes to notice.
        wait_for(
            "it goes on", lambda lines=lines: len(log.read_bytes().splitlines()) > lines + 1500
        )
        daemon.start()
        wait_for("it is back", lambda: [t["pid"] for t in daemon.tasks()] == [program.pid])
    daemon.healthy()
    program.kill()


def test_closed(daemon: Daemon) -> None:
    """FailPolicy=closed: without a daemon launches wait, and go on when it is back."""
    daemon.write_config("[Daemon]\nFailPolicy=closed\n")
    daemon.start()
    program = daemon.device("-u", "100", "-s", "-n", "1500", "-p", "1000")
    wait_for("it works", lambda: any(t["engines"][0]["launches"] > 5 for t in daemon.tasks()))
    daemon.kill()

    def stands_still() -> bool:
        first = _cpu_ticks(program.pid)
        time.sleep(0.5)
        return _cpu_ticks(program.pid) - first <= 3

    # It looks every 200 ms of use whether the daemon lives.
    wait_for("it stands still", stands_still)
    assert program.poll() is None
    daemon.start()
    out, error = program.communicate(timeout=60)
    assert json.loads(out)["launches"] == 1500, error
    daemon.healthy()


def _cpu_ticks(pid: int) -> int:
    """Processor time of a process, in ticks of 10 ms."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def test_killed_while_one_waits(daemon: Daemon) -> None:
    """A waiter is not left asleep for ever by a daemon that was killed."""
    daemon.start()
    holder = daemon.task()
    holder.launch()
    waiter = daemon.device("-u", "10", "-n", "5")
    wait_for("it waits", lambda: any(t["engines"][0]["state"] == "waiting" for t in daemon.tasks()))
    daemon.kill()
    assert json.loads(waiter.communicate(timeout=60)[0])["launches"] == 5


def test_many_come_back(daemon: Daemon) -> None:
    """Several programs, two restarts; shares are kept by the last daemon as by the first."""
    daemon.write_config("[VGPU a]\nGPUMin=40%\n[VGPU b]\nGPUMin=60%\n")
    daemon.start()
    programs = {v: daemon.device("-v", v, "-u", "1000", "-s", "-d", "120") for v in "ab"}
    for _ in range(2):
        wait_for("both are there", lambda: len(daemon.tasks()) == 2)
        daemon.kill()
        daemon.start()
    wait_for("both are there", lambda: len(daemon.tasks()) == 2)

    def busy() -> dict[str, int]:
        return {v: daemon.tasks(pid=p.pid)[0]["engines"][0]["busy_ns"] for v, p in programs.items()}

    wait_for_share("a", 0.4, 0.05, busy, work_ns=10**9)
    daemon.healthy()


@pytest.mark.slow
def test_a_task_that_comes_late_is_where_it_was(daemon: Daemon) -> None:
    """Longer than all others are waited for: its process was stopped, and lives. One that ended is not waited for."""
    daemon.start()
    for name in ("kept", "other"):
        assert daemon.ask("vgpu-create", vgpu=name)["ok"]
    programs = [daemon.device("-u", "1000", "-s", "-d", "600") for _ in range(2)]
    wait_for("both are there", lambda: len(daemon.tasks()) == 2)
    for program, vgpu in zip(programs, ("kept", "other"), strict=True):
        assert daemon.ask("task-set", pid=program.pid, vgpu=vgpu)["ok"]
        program.send_signal(signal.SIGSTOP)
    daemon.kill()
    daemon.start()
    state = Path(f"{daemon.socket}.state")
    assert all(f'"pid":{program.pid},' in state.read_text() for program in programs)
    programs[1].kill()
    programs[1].wait()
    wait_for("it is not waited for", lambda: f'"pid":{programs[1].pid},' not in state.read_text())
    assert f'"pid":{programs[0].pid},' in state.read_text()
    programs[0].send_signal(signal.SIGCONT)
    task = wait_for("it is back", lambda: daemon.tasks(pid=programs[0].pid))[0]
    assert task["vgpu"] == "kept"
    daemon.healthy()


def test_terminated_politely(daemon: Daemon) -> None:
    """SIGTERM ends it with status 0 and takes its socket away; a second daemon on the same socket is refused before."""
    daemon.start()
    again = subprocess.run([BUILD / "daemon/rtxgd", "--socket", daemon.socket], env=daemon.environment, capture_output=True,
                           text=True, timeout=60, check=False)
    assert (again.returncode, "another rtxgd listens" in again.stderr) == (1, True)
    assert daemon.kill(signal.SIGTERM) == 0
    assert not daemon.socket.exists()


@contextmanager
def _real_time_thread(priority: int) -> Iterator[int]:
    """A thread of this process under SCHED_FIFO, that sleeps."""
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    assert thread.native_id is not None
    try:
        try:
            os.sched_setscheduler(thread.native_id, os.SCHED_FIFO, os.sched_param(priority))
        except PermissionError:
            pytest.skip("no right to a real-time priority")
        yield thread.native_id
    finally:
        done.set()
        thread.join()


def _priority(thread: int) -> int:
    return os.sched_getparam(thread).sched_priority


@contextmanager
def _raised(daemon: Daemon, thread: int) -> Iterator[None]:
    """The thread of priority 10 holds the GPU of a pool, and a thread of priority 60 waits for it."""
    if not daemon.ask("pool-list")["pools"]:  # the daemon before may have left it
        assert daemon.ask("pool-create", pool="one", gpus=["only"])["ok"]
    assert daemon.task(priority=5).ask("pool-acquire", pool="one", thread=thread)["ok"]
    assert _priority(thread) == 10
    with _real_time_thread(60) as waiter:
        request = {"op": "pool-acquire", "pool": "one", "thread": waiter}
        daemon.task(priority=5).send(json.dumps(request).encode())
        wait_for("it inherits", lambda: _priority(thread) == 60)
        yield


def test_a_thread_that_could_not_be_raised_is_raised_later(daemon: Daemon) -> None:
    """Nothing could set it back at first, as a link has the journal's name.

    No other request comes.
    """
    daemon.start()
    journal = daemon.folder / f"{os.path.basename(daemon.socket)}.raised"
    journal.symlink_to("nowhere")

    def inheritance() -> bool:
        (row,) = [c for c in daemon.ask("doctor")["checks"] if c["check"] == "inheritance"]
        return bool(row["ok"])

    with _real_time_thread(10) as thread:
        assert daemon.ask("pool-create", pool="one", gpus=["only"])["ok"]
        holder = daemon.task(priority=5)
        assert holder.ask("pool-acquire", pool="one", thread=thread)["ok"]
        with _real_time_thread(60) as waiter:
            request = {"op": "pool-acquire", "pool": "one", "thread": waiter}
            daemon.task(priority=5).send(json.dumps(request).encode())
            wait_for("it cannot be raised", lambda: not inheritance())
            assert _priority(thread) == 10
            journal.unlink()
            wait_for("it is raised", lambda: _priority(thread) == 60)
            wait_for("the doctor has nothing to say", inheritance)
            holder.close()
            wait_for("it is set back", lambda: _priority(thread) == 10)


def _kill_guard(daemon: Daemon) -> None:
    (guard,) = daemon.guards()
    os.kill(guard, signal.SIGKILL)
    wait_for("it is dead", lambda: not Path(f"/proc/{guard}").exists())


def _idle(pid: int) -> bool:
    """It waits or is dead, and has no child that runs."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return not children and Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] in "SZ"


def _leave(daemon: Daemon) -> None:
    for connection in daemon.connections:
        connection.close()
    daemon.connections.clear()


def test_a_thread_is_set_back_when_the_daemon_is_killed(daemon: Daemon) -> None:
    """Nobody starts another daemon. What is asked to end all processes of the service spares the guard until it has done that."""
    daemon.start()
    with _real_time_thread(10) as thread, _raised(daemon, thread):
        (guard,) = daemon.guards()
        os.kill(guard, signal.SIGTERM)
        daemon.kill()
        _leave(daemon)
        wait_for("it is set back", lambda: _priority(thread) == 10)
        wait_for("it can fork as before", lambda: os.sched_getscheduler(thread) == os.SCHED_FIFO)
        wait_for("the guard leaves", lambda: not os.path.exists(f"/proc/{guard}"))


def test_a_guard_that_was_killed_is_started_again(daemon: Daemon) -> None:
    """With the next thread that is raised; and a daemon that leaves in order leaves none."""
    daemon.start()
    with _real_time_thread(10) as thread:
        with _raised(daemon, thread):
            _kill_guard(daemon)
            _leave(daemon)
            wait_for("it is set back", lambda: _priority(thread) == 10)
        with _raised(daemon, thread):
            (guard,) = daemon.guards()
            assert daemon.kill(signal.SIGTERM) == 0
            wait_for("it leaves", lambda: not os.path.exists(f"/proc/{guard}"))
            assert _priority(thread) == 10


def test_a_guard_that_begins_late_takes_nothing_back(daemon: Daemon) -> None:
    """What starts it was held up, and is used again: the daemon had given up."""
    daemon.start()
    assert daemon.process is not None
    own = daemon.process.pid
    (starter,) = map(int, Path(f"/proc/{own}/task/{own}/children").read_text().split())
    journal = daemon.folder / f"{os.path.basename(daemon.socket)}.raised"
    with _real_time_thread(10) as thread:
        os.kill(starter, signal.SIGSTOP)
        try:
            with _raised(daemon, thread):
                os.kill(starter, signal.SIGCONT)
                wait_for("it waits again", lambda: _idle(starter))
                assert _priority(thread) == 60
                assert journal.read_text().strip()
                _leave(daemon)
                wait_for("it is set back", lambda: _priority(thread) == 10)
        finally:
            os.kill(starter, signal.SIGCONT)
        with _raised(daemon, thread):
            assert daemon.guards()


@pytest.mark.parametrize(
    ("changed", "after"), [(None, 10), (33, 10), (4, 4)], ids=["as it was", "higher", "lower"]
)
def test_a_thread_that_a_killed_daemon_left_raised_is_set_back(
    daemon: Daemon, changed: int | None, after: int
) -> None:
    """The guard was killed too: the next daemon takes away what it inherited, and what it could only set while raised."""
    daemon.start()
    with _real_time_thread(10) as thread:
        with _raised(daemon, thread):
            _kill_guard(daemon)
            daemon.kill()
            _leave(daemon)
            assert _priority(thread) == 60
            assert os.sched_getscheduler(thread) == os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
        if changed:
            os.sched_setparam(thread, os.sched_param(changed))
        daemon.start()
        # It sets threads back before it answers any request.
        daemon.healthy()
        assert _priority(thread) == after
        assert os.sched_getscheduler(thread) == os.SCHED_FIFO
        assert not list(daemon.folder.glob("*.raised"))


def test_no_journal_of_priorities_outlives_its_use(daemon: Daemon) -> None:
    """A thread that was set back by the daemon is left alone by the next one; one that leaves in order leaves no journal."""
    daemon.start()
    with _real_time_thread(10) as thread:
        with _raised(daemon, thread):
            daemon.connections[0].close()
            wait_for("it is set back", lambda: _priority(thread) == 10)
            os.sched_setparam(thread, os.sched_param(60))
            daemon.kill()
            _leave(daemon)
        daemon.start()
        assert _priority(thread) == 60
        os.sched_setparam(thread, os.sched_param(10))
        with _raised(daemon, thread):
            assert daemon.kill(signal.SIGTERM) == 0
            assert _priority(thread) == 10
            assert not list(daemon.folder.glob("*.raised"))


def test_a_thread_of_another_process_passes_nothing_on(daemon: Daemon) -> None:
    """A client names a thread with a high priority that is none of its own."""
    daemon.start()
    with _real_time_thread(10) as thread:
        assert daemon.ask("pool-create", pool="one", gpus=["only"])["ok"]
        assert daemon.task(priority=5).ask("pool-acquire", pool="one", thread=thread)["ok"]
        with subprocess.Popen(["sleep", "60"]) as other:
            os.sched_setscheduler(other.pid, os.SCHED_FIFO, os.sched_param(80))
            request = {"op": "pool-acquire", "pool": "one", "thread": other.pid}
            daemon.task(priority=99).send(json.dumps(request).encode())
            wait_for("it waits", lambda: sum("pool" in task for task in daemon.tasks()) == 2)
            assert _priority(thread) == 10
            other.kill()
        daemon.healthy()


def test_a_journal_that_is_garbage_or_a_link_changes_nothing(daemon: Daemon) -> None:
    """Lines that are none, threads that began at another time, and files that are links change nothing."""
    with _real_time_thread(50) as thread:
        journal = daemon.folder / f"{os.path.basename(daemon.socket)}.raised"
        journal.write_bytes(b"\0" * 80 + f"{os.getpid()} {thread} 1 10 10 50".ljust(79).encode() + b"\n" + b"x" * 80 + b"-1")
        daemon.start()
        assert _priority(thread) == 50
        assert not journal.exists()
        daemon.kill()
        target = daemon.folder / "target"
        target.write_text("kept")
        journal.symlink_to(target)
        daemon.start()
        assert target.read_text() == "kept" and journal.is_symlink()
        daemon.healthy()
