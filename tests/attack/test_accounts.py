# SPDX-License-Identifier: MIT
"""Places for vGPUs on GPUs are for all users: one takes a part of them."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from users import ATTACKER, VICTIM, Connection, Stage

VGPUS, GPUS = 150, 10


def start(stage: Stage) -> None:
    """More vGPUs on GPUs than there are places."""
    text = "".join(f"[VGPU v{i}]\n" for i in range(VGPUS))
    text += "".join(f"[GPU g{i}]\n" for i in range(GPUS))
    stage.daemon.write_config(text)
    stage.daemon.start(mode="--system")


def places(stage: Stage) -> int:
    """How many are taken."""
    return sum(len(vgpu["on"]) for vgpu in stage.daemon.ask("vgpu-list")["vgpus"])


def combinations() -> list[dict[str, Any]]:
    """Every vGPU on every GPU."""
    return [{"vgpu": f"v{v}", "gpu": f"g{g}"} for v in range(VGPUS) for g in range(GPUS)]


def ask_everywhere(connection: Connection) -> bool:
    """Whether a task could be in every place."""
    return all(connection.ask("place", **where)["ok"] for where in combinations())


def open_everywhere(path: Any) -> tuple[int, str]:
    """Open a task, and close it, in all places that there are; how many, and why there were no more."""
    for count, where in enumerate(combinations()):
        task = Connection(path)
        reply = task.open(**where)
        task.close()
        if not reply["ok"]:
            assert reply["error"] == "ENOSPC", reply
            return count, str(reply["message"])
    return len(combinations()), ""


def test_who_asks_where_a_task_would_belong_takes_no_place(stage: Stage) -> None:
    """For all vGPUs on all GPUs, which are more than there are places."""
    start(stage)
    before = places(stage)
    assert stage.run(ATTACKER, lambda: ask_everywhere(Connection(stage.daemon.socket))).result()
    assert places(stage) == before
    assert stage.as_victim(lambda c: c.open(vgpu="v149", gpu="g9"))["ok"]


def test_tasks_of_one_user_leave_places_to_others_and_to_administrators(stage: Stage) -> None:
    """By opening tasks, and by moving one. What is there already takes none."""
    start(stage)
    path, before = stage.daemon.socket, places(stage)

    def attack() -> Any:
        opened, why = open_everywhere(path)
        task = Connection(path)
        assert task.open(vgpu="v0", gpu="g0")["ok"]
        moved = task.ask("task-set", task=task.ask("task-list")["tasks"][0]["task"], vgpu="v149")
        asked = Connection(path).ask("place", vgpu="v149", gpu="g9")
        return opened, why, moved["error"], asked["error"]

    opened, why, moved, asked = stage.run(ATTACKER, attack).result()
    taken = places(stage) - before
    assert "one user" in why and taken == stage.usage(ATTACKER)["accounts"]["used"] == 256
    assert opened >= taken
    assert (moved, asked) == ("ENOSPC", "ENOSPC")
    # Others take theirs, each no more than is left for those after it.
    for uid in (VICTIM, *range(70000, 70008)):
        assert stage.run(uid, lambda: open_everywhere(path)[0]).result() > 0
    free = 1024 - places(stage)
    assert free >= 128
    for where in combinations()[-free:]:
        assert stage.daemon.task(**where)


def test_what_is_reserved_on_every_gpu_counts_for_no_user_who_names_one(stage: Stage) -> None:
    """It is there from the start. The user has places left, and takes those of his own tasks."""
    reserved = 20
    vgpus = "".join(f"[VGPU r{i}]\nGPUMin=2%\n" for i in range(reserved))
    stage.daemon.write_config(f"[Daemon]\nGPUNames=any\n{vgpus}[VGPU own]\n")
    stage.daemon.start(mode="--system")
    before = places(stage)
    task = stage.attack(lambda go: hold(stage, go))
    assert places(stage) - before == reserved + 1
    assert stage.usage(ATTACKER)["accounts"]["used"] == 1
    task.kill()


def hold(stage: Stage, go: Callable[[], None]) -> None:
    """A task on a GPU that no task has named before."""
    connection = Connection(stage.daemon.socket)
    reply = connection.open(vgpu="own", gpu="new")
    assert reply["ok"], reply
    go()
    signal.pause()
