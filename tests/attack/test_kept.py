# SPDX-License-Identifier: MIT
"""What the next daemon is to know of a user's tasks is no more than the user may have."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

from users import Connection, Stage

QUOTA = 8


def test_a_user_whose_tasks_come_and_go_after_a_restart_fills_no_table(stage: Stage) -> None:
    """A task that was put somewhere is kept when it goes, for its program may come back with it."""
    stage.daemon.write_config(f"[Daemon]\nTasksPerUser={QUOTA}\n[VGPU other]\n")
    stage.daemon.start(mode="--system")
    assert stage.daemon.ask("vgpu-create", vgpu="made")["ok"]
    stage.daemon.kill()
    stage.daemon.start(mode="--system")
    path = stage.daemon.socket

    def main(go: Callable[[], None]) -> None:
        other = Connection(path)
        for _ in range(4 * QUOTA):
            task = Connection(path)
            reply = task.open()
            assert reply["ok"], reply
            assert other.ask("task-set", task=reply["task"], vgpu="other")["ok"]
            task.close()
        go()
        signal.pause()

    attack = stage.attack(main)
    # It is written with the next change.
    assert stage.daemon.ask("vgpu-create", vgpu="again")["ok"]
    lines = Path(f"{path}.state").read_text().splitlines()
    kept = [line for line in lines if f'"pid":{attack.pid},' in line]
    # Those of tasks that are open stand there, too.
    assert len(kept) <= 2 * QUOTA, lines
