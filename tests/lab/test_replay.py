# SPDX-License-Identifier: MIT
"""Task sets that are run for real: GPUs are given in the order of arrival, holders inherit, and
what is
promised is what the policy schedules."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterator

import pytest
from small_sets import task, taskset

from rtxg import Platform, TaskSet, analyze, periodic, replay
from rtxg.queues import Pool


class Process:
    """A forked process that asks for a GPU and holds it until told to give it back."""

    def __init__(
        self, pool: Pool, note: int, name: str, length: float = 1.0, priority: int = 0
    ) -> None:
        self.reader, self.writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self.writer)
                if priority:
                    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
                with pool.one(length) as gpu:
                    os.write(note, f"{name}{gpu}\n".encode())
                    os.read(self.reader, 1)
            finally:
                os._exit(0)
        os.close(self.reader)

    def release(self) -> None:
        os.write(self.writer, b"x")  # that it is closed would not do: later processes have it, too
        os.waitpid(self.pid, 0)
        os.close(self.writer)

    def kill(self) -> None:
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        os.close(self.writer)

    @property
    def priority(self) -> int:
        """As the kernel runs it now: -1 - p for real-time priority p, inherited ones included."""
        with open(f"/proc/{self.pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[15])


def until(true: Callable[[], bool]) -> None:
    """Wait; a hang is ended by whatever runs the tests."""
    while not true():
        time.sleep(0.005)


@pytest.fixture
def notes() -> Iterator[tuple[int, Callable[[], str]]]:
    """A pipe that processes write their names to, and a function that reads the next one."""
    reader, writer = os.pipe()
    with os.fdopen(reader) as file:
        yield writer, lambda: file.readline().strip()
        os.close(writer)


def asked(pool: Pool) -> int:
    """Requests that have joined a queue so far."""
    return sum(pool._tail)


def test_a_gpu_is_given_in_the_order_of_arrival(notes):
    note, next_note = notes
    pool = Pool(1, 4)
    first = Process(pool, note, "a")
    assert next_note() == "a0"
    waiting = []
    for number, name in enumerate("bcd", 2):
        waiting.append(Process(pool, note, name))
        until(lambda number=number: asked(pool) == number)
    for before, after, name in zip([first, *waiting], waiting, "bcd", strict=False):
        before.release()
        assert next_note() == f"{name}0"
        assert after.pid
    waiting[-1].release()
    # A place is taken again and again: more requests than there are places.
    for _ in range(12):
        one = Process(pool, note, "e")
        assert next_note() == "e0"
        one.release()
    assert sum(pool._ahead) == pytest.approx(0)


def test_a_request_joins_the_queue_with_the_least_work(notes):
    note, next_note = notes
    pool = Pool(2, 4)
    long, short = Process(pool, note, "a", 10.0), None
    assert next_note() == "a0"
    short = Process(pool, note, "b", 1.0)
    assert next_note() == "b1"  # the other GPU is free
    third = Process(pool, note, "c", 1.0)
    until(lambda: asked(pool) == 3)
    short.release()
    assert next_note() == "c1"
    long.release()
    third.release()


def test_a_holder_runs_with_the_priority_of_whom_it_keeps_waiting(notes):
    if not replay._may_be_real_time():
        pytest.skip("needs the right to SCHED_FIFO")
    note, next_note = notes
    pool = Pool(1, 3)
    holder = Process(pool, note, "a")
    assert next_note() == "a0"
    assert holder.priority >= 0
    middle = Process(pool, note, "b", priority=10)
    until(lambda: holder.priority == -11)
    urgent = Process(pool, note, "c", priority=20)
    until(lambda: holder.priority == -21)  # through the one between them, which inherits too
    assert middle.priority == -21
    holder.release()
    assert next_note() == "b0"
    middle.release()
    assert next_note() == "c0"
    urgent.release()


def test_a_holder_that_is_killed_gives_its_gpu_back(notes):
    note, next_note = notes
    pool = Pool(1, 2)
    holder = Process(pool, note, "a")
    assert next_note() == "a0"
    waiting = Process(pool, note, "b")
    until(lambda: asked(pool) == 2)
    holder.kill()
    assert next_note() == "b0"
    waiting.release()


def test_several_requests_a_job_are_several_sections():
    twice = task("a", 1000, 60_000, 4, 4000, 2200, gpu_requests=2)
    shared = taskset(twice, task("b", 1000, 60_000, 1, 3000, 3000), cpus=1)
    policy, (one, other) = replay.replay(analyze(shared), 0.3, "other")
    assert policy == "other"
    assert min(one.responses) > 4000 and min(other.responses) > 3000


def test_fixed_priorities_are_analysed_as_such():
    fast = task("fast", 1000, 10_000, deadline=4000)
    plain = taskset(task("slow", 2000, 30_000), fast, task("middle", 1000, 20_000), gpus=0, cpus=1)
    run = replay.as_run(plain, "fifo")
    assert run.platform.scheduler == "RM"
    urgency = sorted(run, key=lambda t: -t.priority)
    assert [t.name for t in urgency] == ["fast", "middle", "slow"]  # by deadline
    assert replay._ranks(run) == {t.name: t.priority for t in run}  # and that is how they run
    assert replay.as_run(plain, "edf") is plain
    fixed = TaskSet(plain.tasks, Platform(1, 1, 0, "RM"))
    assert replay.as_run(fixed, "fifo") is fixed
    equal = TaskSet((task("a", 1, 10_000), task("b", 1, 10_000)), Platform(1, 1, 0, "RM"))
    ranks = replay._ranks(equal)
    assert ranks["a"] > ranks["b"]  # the analysis takes the first of equals as the more urgent
    with pytest.raises(ValueError, match="98 tasks, and SCHED_FIFO has 97"):
        replay._ranks(TaskSet(tuple(task(f"t{i}", 1, 10_000) for i in range(98)), Platform(1)))


def test_what_a_policy_cannot_promise_is_said():
    machine = len(os.sched_getaffinity(0))
    plain = TaskSet((task("a", 1000, 10_000), task("b", 1000, 20_000)), Platform(machine))
    gpu = TaskSet((task("a", 1000, 10_000, 1, 1000, 1000),), Platform(machine, 1, 1))
    assert replay.why_not_promised(plain, "deadline") == ""
    assert "slept for its GPU" in replay.why_not_promised(gpu, "deadline")
    assert replay.why_not_promised(gpu, "module-deadline") == ""
    assert "all CPUs" in replay.why_not_promised(
        TaskSet(plain.tasks, Platform(machine + 1)), "deadline"
    )
    assert "real-time" in replay.why_not_promised(plain, "other")
    fixed = TaskSet(plain.tasks, Platform(machine, 1, 0, "RM"))
    assert (
        replay.why_not_promised(fixed, "rm") == "" and replay.why_not_promised(fixed, "fifo") == ""
    )
    assert "edf is not RM" in replay.why_not_promised(fixed, "edf")
    assert "equal periods" in replay.why_not_promised(
        TaskSet((task("a", 1, 10_000), task("b", 1, 10_000)), Platform(machine, 1, 0, "RM")), "rm"
    )


def test_auto_is_the_policy_that_is_the_scheduler(monkeypatch):
    machine = len(os.sched_getaffinity(0))
    monkeypatch.setattr(replay, "_may_be_real_time", lambda: True)
    plain = TaskSet((task("a", 1000, 10_000), task("b", 1000, 20_000)), Platform(machine))
    gpu = TaskSet((task("a", 1000, 10_000, 1, 1000, 1000),), Platform(machine, 1, 1))
    fixed = TaskSet(plain.tasks, Platform(machine, 1, 0, "RM"))
    for loaded, expected in (
        (True, ("deadline", "edf", "rm")),
        (False, ("deadline", "fifo", "fifo")),
    ):
        monkeypatch.setattr(periodic, "available", lambda loaded=loaded: loaded)
        assert tuple(replay.choose_policy(s) for s in (plain, gpu, fixed)) == expected
    monkeypatch.setattr(replay, "_may_be_real_time", lambda: False)
    assert replay.choose_policy(plain) == "other"


def test_no_job_begins_before_every_task_is_ready():
    """And not before the deadlines of servers that were made before have passed."""
    gate = replay._Gate(2)
    begun, told = os.pipe()
    pids = []
    for _ in range(2):
        pid = os.fork()
        if pid == 0:
            os.write(told, struct.pack("dd", time.monotonic(), gate.wait() or 0.0))
            os._exit(0)
        pids.append(pid)
    gate.open(0.25)
    for pid in pids:
        os.waitpid(pid, 0)
    (ready, begin), (other, same) = (struct.unpack("dd", os.read(begun, 16)) for _ in range(2))
    assert begin == same >= max(ready, other) + 0.25


def test_one_task_that_fails_stops_the_others(monkeypatch):
    def run(result, *rest):
        gate = rest[-2]
        if result.task.name == "a":
            raise ValueError("no")
        assert gate.wait() is None
        return {"error": ""}

    monkeypatch.setattr(replay, "_run_task", run)
    plain = analyze(taskset(task("a", 1000, 10_000), task("b", 1000, 20_000), gpus=0, cpus=1))
    with pytest.raises(OSError, match=r"^task a: no$"):
        replay.replay(plain, 0.05, "other")


def test_without_librtxg_the_remedy_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("RTXG_LIBRARY", str(tmp_path / "none.so"))
    one = analyze(taskset(task("a", 1000, 10_000), gpus=0, cpus=1))
    with pytest.raises(OSError, match=r"task a: .*RTXG_LIBRARY"):
        replay.replay(one, 0.05, "edf")
