# SPDX-License-Identifier: MIT
"""Clients that die, stop, or write garbage into their page; a daemon that runs out of descriptors. No client harms another."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import time
from pathlib import Path

import pytest
from conftest import (
    BUSY_NS, BUSY_SINCE, COMPLETIONS, DEVICE_NS, IN_FLIGHT, LAUNCHES, PERMIT, WANT, Daemon, wait_for,
)


def test_killed_while_holding(running: Daemon) -> None:
    """The permit goes on at once: by the process's death, not by the time after which a permit is taken."""
    assert running.ask("gpu-set", revoke_timeout_ns=-1)["ok"]
    victim = running.device("-u", "100000000", "-s", "-n", "1")
    wait_for("it holds", lambda: any(t["engines"][0]["state"] == "running" for t in running.tasks(pid=victim.pid)))
    other = running.device("-u", "10", "-n", "1")
    wait_for("the other waits", lambda: any(t["engines"][0]["state"] == "waiting" for t in running.tasks(pid=other.pid)))
    victim.kill()
    assert json.loads(other.communicate(timeout=60)[0])["launches"] == 1


def test_stopped_while_holding(running: Daemon) -> None:
    """A stopped program loses its permit after the revoke timeout; continued, it takes its place like any other."""
    assert running.ask("gpu-set", revoke_timeout_ns=50_000_000)["ok"]
    victim = running.device("-u", "2000", "-s", "-n", "400")
    wait_for("it works", lambda: any(t["engines"][0]["launches"] > 3 for t in running.tasks(pid=victim.pid)))
    # Stopped in the middle of a launch: between launches there would be nothing to take.
    for _ in range(1000):
        victim.send_signal(signal.SIGSTOP)
        time.sleep(0.01)
        if [t["engines"][0]["state"] for t in running.tasks(pid=victim.pid)] == ["running"]:
            break
        victim.send_signal(signal.SIGCONT)
    else:
        pytest.fail("never stopped during a launch")
    other = running.device("-u", "100", "-n", "20")
    assert json.loads(other.communicate(timeout=60)[0])["launches"] == 20
    assert running.tasks(pid=victim.pid)[0]["engines"][0]["expelled"] == 1
    victim.send_signal(signal.SIGCONT)
    out, error = victim.communicate(timeout=60)
    assert json.loads(out)["launches"] == 400, error


def test_killed_while_waiting(running: Daemon) -> None:
    """A dead waiter is not served."""
    holder = running.task()
    holder.launch()
    waiters = [running.device("-u", "10", "-n", "1") for _ in range(3)]
    wait_for("all wait", lambda: sum(t["engines"][0]["state"] == "waiting" for t in running.tasks()) == 3)
    waiters[0].kill()
    waiters[1].kill()
    wait_for("they are gone", lambda: len(running.tasks()) == 2)
    holder.complete()
    assert json.loads(waiters[2].communicate(timeout=60)[0])["launches"] == 1


def test_garbage_in_the_page(running: Daemon) -> None:
    """Random words in one client's page, with rings: another program still gets the engine, alone, for all its launches."""
    assert running.ask("gpu-set", revoke_timeout_ns=20_000_000)["ok"]
    vandal = running.task()
    assert vandal.page is not None
    work = running.device("-u", "200", "-s", "-n", "300")
    rng = random.Random(1)
    words = [IN_FLIGHT, WANT, LAUNCHES, COMPLETIONS, BUSY_NS, BUSY_SINCE, DEVICE_NS, PERMIT]
    while work.poll() is None:
        for _ in range(20):
            engine, word = rng.randrange(3), rng.choice(words)
            value = rng.choice([0, 1, 2, 2**31, 2**32 - 1, rng.getrandbits(32)])
            vandal.put(word, value, engine)
            if rng.randrange(4) == 0:
                vandal.ring()
        if rng.randrange(50) == 0:
            vandal.page[:] = rng.randbytes(4096)
            running.healthy()
    out, error = work.communicate(timeout=60)
    assert json.loads(out)["launches"] == 300, error
    # What it claimed of itself is bounded by the time that passed.
    stats = running.ask("stats", tasks=True)
    for vgpu in stats["gpus"][0]["vgpus"]:
        for engine in vgpu["engines"]:
            assert engine["used_1s_ppm"] <= 1_000_000 and engine["device_1s_ppm"] <= 1_000_000


def test_the_page_cannot_be_cut(running: Daemon) -> None:
    """Truncating the memory under the daemon would kill it: the seals forbid that."""
    task = running.task()
    for size in (0, 100, 8192):
        with pytest.raises(PermissionError):
            os.ftruncate(task.page_fd, size)
    task.ring()


def test_claims_too_little(running: Daemon) -> None:
    """Saying that nothing was used does not make it free: the daemon goes by its own clock while others wait."""
    assert running.ask("vgpu-create", vgpu="liar", min_ppm=300000)["ok"]
    assert running.ask("vgpu-create", vgpu="honest", min_ppm=700000)["ok"]
    liar = running.task(vgpu="liar")

    def busy() -> dict[str, int]:
        series = running.ask("history")["series"]
        return {s["vgpu"]: sum(s["busy_ns"]) for s in series if s["engine"] == "compute"}

    def share_of_liar() -> float:
        """Of two seconds beside the honest one."""
        before = busy()
        honest = running.device("-v", "honest", "-u", "1000", "-s", "-d", "2")
        wait_for("the honest one is there", lambda: len(running.tasks(vgpu="honest")) == 1)
        launches = 0
        while honest.poll() is None:
            liar.put(WANT, 1)
            liar.ring()
            while not liar.granted() and honest.poll() is None:
                time.sleep(0.0002)
            if honest.poll() is not None:
                break
            # One launch that occupies it for 1 ms, without any trace of it in busy_ns.
            liar.put(IN_FLIGHT, 1)
            liar.put(PERMIT, liar.get(PERMIT) & ~1)
            liar.put(LAUNCHES, liar.get(LAUNCHES, 0, "Q") + 1, 0, "Q")
            liar.put(WANT, 0)
            time.sleep(0.001)
            liar.complete()
            launches += 1
        done = {name: ns - before.get(name, 0) for name, ns in busy().items()}
        assert launches > 10
        assert done["liar"] > launches * 1_000_000
        return done["liar"] / (done["liar"] + done["honest"])

    # If it were free, each of the two would have one launch after the other. Two seconds in which
    # the machine starved the honest one are no answer.
    shares: list[float] = []
    while not shares or shares[-1] >= 0.36:
        shares.append(share_of_liar())
        assert len(shares) < 12, shares


def test_floods_the_doorbell(running: Daemon) -> None:
    """Rings without need are harmless."""
    flood = running.task()
    work = running.device("-u", "100", "-s", "-n", "200")
    while work.poll() is None:
        for _ in range(200):
            flood.ring()
    assert json.loads(work.communicate(timeout=60)[0])["launches"] == 200
    os.set_blocking(flood.doorbell, False)
    with pytest.raises(BlockingIOError):
        for _ in range(3):
            os.write(flood.doorbell, (2**64 - 2).to_bytes(8, "little"))


def test_out_of_descriptors(daemon: Daemon) -> None:
    """The daemon refuses newcomers with the reason, serves its present clients, and recovers when they leave."""
    daemon.start(prefix=("prlimit", "--nofile=64:64"))
    first = daemon.task()
    refusals = 0
    for _ in range(60):
        connection = daemon.connect()
        reply = connection.open()
        if not reply["ok"]:
            assert reply["error"] in ("EMFILE", "ENFILE"), reply
            refusals += 1
    assert refusals > 10
    first.launch()
    first.complete()
    for connection in daemon.connections[1:]:
        connection.close()
    del daemon.connections[1:]
    wait_for("there is room again", lambda: daemon.connect().open()["ok"])
    daemon.healthy()


def test_a_thousand_clients(running: Daemon) -> None:
    """A thousand tasks at once, all of which get their turn."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 8192:
        pytest.skip(f"only {hard} descriptors are allowed here, 8192 are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    tasks = [running.task() for _ in range(1000)]
    assert len(running.tasks()) == 1000
    for task in tasks:
        task.put(WANT, 1)
        task.ring()
    served = 0
    while served < 1000:
        ready = [t for t in tasks if t.get(WANT) and t.granted()]
        assert len(ready) <= 1
        for task in ready:
            task.launch()
            task.complete()
            served += 1
    engines = [t["engines"][0] for t in running.tasks()]
    assert [e["launches"] for e in engines] == [1] * 1000
    # No task waited behind the last holder, so the last holder need not have reported its completion.
    assert sum(e["completions"] for e in engines) >= 999


@pytest.mark.slow
def test_limit_of_tasks(running: Daemon) -> None:
    """The 4097th task is refused."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 20000:
        pytest.skip(f"only {hard} descriptors are allowed here, 20000 are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for _ in range(4096):
        running.task()
    reply = running.connect().open()
    assert (reply["error"], "4096" in reply["message"]) == ("ENOSPC", True)


def test_many_gpus_and_vgpus(running: Daemon) -> None:
    """Names that only a task once used give way; what was asked for by an administrator stays; the rest is refused in words."""
    for number in range(40):  # more than there is room for
        task = running.task(gpu=f"passing-{number}")
        task.close()
        running.connections.remove(task)
        wait_for("it is gone", lambda: not running.tasks())
    for number in range(255):
        assert running.ask("vgpu-create", vgpu=f"v{number}")["ok"]
    assert running.ask("vgpu-create", vgpu="one-more")["error"] == "ENOSPC"
    for number in range(255):
        assert running.ask("vgpu-remove", vgpu=f"v{number}")["ok"]


def test_transient_vgpu(running: Daemon) -> None:
    """A transient vGPU goes with the process that made it, and not before its last task."""
    child = os.fork()
    if child == 0:
        ok = running.connect().ask("vgpu-create", vgpu="passing", min_ppm=100000, transient=True)["ok"]
        signal.pause() if ok else None
        os._exit(0)
    wait_for("it is there", lambda: running.ask("vgpu-list", vgpu="passing")["ok"])
    task = running.task(vgpu="passing")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    task.launch()
    assert running.ask("vgpu-list", vgpu="passing")["ok"]
    task.complete()
    task.close()
    running.connections.remove(task)
    wait_for("it is gone", lambda: not running.ask("vgpu-list", vgpu="passing")["ok"])


def creator_of_passing(running: Daemon) -> int:
    """A process that has made the transient vGPU "passing", which reserves 30 %, and lives on."""
    child = os.fork()
    if child == 0:
        running.connect().ask("vgpu-create", vgpu="passing", min_ppm=300_000, transient=True)
        signal.pause()
        os._exit(0)
    wait_for("it is there", lambda: running.ask("vgpu-list", vgpu="passing")["ok"])
    return child


def test_transient_vgpu_goes_when_its_last_task_is_moved_away(running: Daemon) -> None:
    """With its creator dead, the last task may end or leave: either way nothing stays reserved."""
    child = creator_of_passing(running)
    task = running.task(vgpu="passing")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    number = running.tasks()[0]["task"]
    task.launch()
    assert running.ask("task-set", task=number, vgpu="default")["ok"]
    assert running.ask("vgpu-list", vgpu="passing")["ok"]
    task.complete()
    wait_for("it is gone", lambda: not running.ask("vgpu-list", vgpu="passing")["ok"])
    assert running.tasks()[0]["vgpu"] == "default"
    assert running.ask("limits")["devices"][0]["reserved_ppm"] == 0
    running.healthy()


@pytest.mark.parametrize("then", ["default", "other"])
def test_transient_vgpu_goes_when_a_task_on_its_way_turns_off(running: Daemon, then: str) -> None:
    """Its creator has ended while a task was on its way there, which is then sent elsewhere."""
    assert running.ask("vgpu-create", vgpu="other")["ok"]
    child = creator_of_passing(running)
    task = running.task()
    number = running.tasks()[0]["task"]
    task.launch()
    assert running.ask("task-set", task=number, vgpu="passing")["ok"]
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    # It stays for the task; by the next answer rtxgd knows that its creator has ended.
    assert running.ask("vgpu-list", vgpu="passing")["ok"]
    assert running.tasks()[0]["moving_to"] == "passing"
    assert running.ask("task-set", task=number, vgpu=then)["ok"]
    wait_for("it is gone", lambda: not running.ask("vgpu-list", vgpu="passing")["ok"])
    task.complete()
    wait_for("the task has moved", lambda: running.tasks()[0]["vgpu"] == then)
    assert running.ask("limits")["devices"][0]["reserved_ppm"] == 0
    running.healthy()


def test_a_move_that_is_taken_back_changes_the_task_as_a_whole(running: Daemon) -> None:
    """Its vGPU would go with its last task, which has completed and said nothing of it."""
    child = os.fork()
    if child == 0:
        running.connect().ask("vgpu-create", vgpu="passing", transient=True)
        signal.pause()
        os._exit(0)
    wait_for("it is there", lambda: running.ask("vgpu-list", vgpu="passing")["ok"])
    task = running.task(vgpu="passing", priority=9)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    number = running.tasks()[0]["task"]
    task.launch()
    assert running.ask("task-set", task=number, vgpu="default")["ok"]
    waiting = running.task(priority=5)
    waiting.put(WANT, 1)
    waiting.ring()
    assert running.tasks()[0]["vgpu"] == "passing"
    # The daemon sees it when it looks at the page again, in the middle of this change at the latest.
    task.put(IN_FLIGHT, 0)
    reply = running.ask("task-set", task=number, vgpu="passing", priority=1)
    after = {t["task"]: t for t in running.tasks()}[number]
    assert reply["ok"], (reply, after["vgpu"], after["priority"])
    assert (after["vgpu"], after["priority"]) == ("passing", 1)
    task.close()
    running.connections.remove(task)
    wait_for("it is gone", lambda: not running.ask("vgpu-list", vgpu="passing")["ok"])
    running.healthy()


def test_accounts_add_up(running: Daemon) -> None:
    """History's slots add up to the counters, which cover the programs' own busy time and together no more than all time.

    How much more than its own busy time a program is charged for depends on how soon the CPUs let it launch.
    """
    assert running.ask("vgpu-create", vgpu="a", min_ppm=400000)["ok"]
    assert running.ask("vgpu-create", vgpu="b", min_ppm=600000)["ok"]
    began = time.monotonic_ns()
    programs = {v: running.device("-v", v, "-u", "1000", "-s", "-d", "1") for v in "ab"}
    own = {v: json.loads(p.communicate(timeout=60)[0])["busy_ns"] for v, p in programs.items()}
    wall, all_charged = time.monotonic_ns() - began, 0
    wait_for("the last sample", lambda: running.ask("history")["next"] == (time.sleep(0.3) or running.ask("history")["next"]))
    series = {s["vgpu"]: s for s in running.ask("history")["series"] if s["engine"] == "compute"}
    for vgpu in running.ask("stats")["gpus"][0]["vgpus"]:
        if vgpu["vgpu"] not in own:
            continue
        charged = vgpu["engines"][0]["busy_ns"]
        assert sum(series[vgpu["vgpu"]]["busy_ns"]) == charged
        assert own[vgpu["vgpu"]] * 0.9 < charged
        all_charged += charged
    assert all_charged <= wall


def test_a_limit_of_the_program_that_started_it_is_none_of_the_daemons(daemon: Daemon) -> None:
    """What the shell had limited for its own programs; a task's page is a file, too."""
    daemon.start(prefix=("prlimit", "--fsize=1024:", "--nofile=64:", "--cpu=1000:"))
    assert daemon.process is not None
    limits = Path(f"/proc/{daemon.process.pid}/limits").read_text()
    own = {line[:26].strip(): line[26:].split()[:2] for line in limits.splitlines()}
    for name in ("Max file size", "Max open files", "Max cpu time"):
        assert own[name][0] == own[name][1], limits
    daemon.task()
    daemon.healthy()


def test_a_daemon_that_may_write_no_file_says_so(daemon: Daemon) -> None:
    """It does not end by the signal that comes with it."""
    daemon.start(prefix=("prlimit", "--fsize=1024"))
    reply = daemon.connect().open()
    assert reply["error"] == "EFBIG" and "ulimit -f" in reply["message"], reply
    daemon.healthy()
