# SPDX-License-Identifier: MIT
"""The host's half of the shared page, from Python: core/launch/permit.c as the daemon and the module run it.

`Permits` gives the machine what a host gives it (memory, a timer, wake-ups) and hands out the
pages, which a test may write as a client does. Time is virtual: `run_to` fires the timer when it is
due.

    permits = Permits(gpus=1, vgpus=2, tasks=4)
    permits.event("gpu_add", gpu=0, policy="cbs")
    permits.event("vgpu_add", vgpu=0, gpu=0)
    task = permits.open(0, vgpu=0)
    page = permits.lane(0)              # the client's words: page.want, page.in_flight, ...
    page.want = 1
    permits.ring(0)                     # page.permit carries GRANTED

It holds no policy. Units: nanoseconds.
"""

from __future__ import annotations

from typing import Any

from . import ENGINES, NEVER, Core, Refused, Stats, ffi, lib

FREE, WAITING, HELD, REVOKED = (
    lib.PERMIT_FREE,
    lib.PERMIT_WAITING,
    lib.PERMIT_HELD,
    lib.PERMIT_REVOKED,
)
GRANTED = lib.RTXG_PERMIT_GRANTED
PAGE_ONESHOT = lib.RTXG_PERMIT_ONESHOT
PAGE_REPORT = lib.RTXG_PERMIT_REPORT


class Permits:
    """One machine of permits over one core."""

    def __init__(
        self, gpus: int = 1, vgpus: int = 8, tasks: int = 16, pools: int = 0, now: int = 1
    ) -> None:
        """Limits as struct rtxg_limits."""
        self.now = now
        self.armed = NEVER
        self.wakes: list[tuple[int, int]] = []
        self.pool_grants: list[int] = []
        self.moves: list[int] = []
        self.core = Core(gpus, vgpus, tasks, pools, now)
        self.tasks: dict[int, Any] = {}
        self.pages: dict[int, Any] = {}
        self.accounts = [
            ffi.new("struct permit_account *", {"vgpu": vgpu}) for vgpu in range(vgpus)
        ]
        self._ops = ffi.new("struct permit_ops *")
        self._kept = [
            ffi.callback(
                "void(void *, struct permit_task *, uint32_t)",
                lambda _, task, engine: self.wakes.append((task.id, engine)),
            ),
            ffi.callback("void(void *, uint64_t)", self._arm),
            ffi.callback(
                "void(void *, struct permit_task *)",
                lambda _, task: self.pool_grants.append(task.id),
            ),
            ffi.callback(
                "void(void *, struct permit_task *, struct permit_account *)",
                lambda _, task, left: self.moves.append(task.id),
            ),
        ]
        ops = self._ops
        ops.wake, ops.arm, ops.pool_granted, ops.moved = self._kept
        limits = ffi.new(
            "struct rtxg_limits *", {"gpus": gpus, "vgpus": vgpus, "tasks": tasks, "pools": pools}
        )
        self._table = ffi.new("struct permit_task *[]", tasks)
        self.machine = ffi.new("struct permit_machine *")
        lib.permit_init(self.machine, self.core._core, limits, self._table, ops, ffi.NULL)

    def _arm(self, _: Any, at_ns: int) -> None:
        self.armed = at_ns

    def _checked(self, error: int) -> None:
        if error:
            refusal = self.machine.refusal
            what = ffi.string(refusal.what).decode() if refusal.what != ffi.NULL else None
            raise Refused(-error, what, refusal.value, refusal.limit)

    def event(self, kind: str, **fields: Any) -> None:
        """An event about objects. Raises Refused."""
        self._checked(lib.permit_event(self.machine, self.now, self.core.event(kind, **fields)))

    def open(self, number: int, vgpu: int, **params: Any) -> Any:
        """A task with a page of zeros. Raises Refused."""
        page = self.pages[number] = ffi.new("struct rtxg_page *")
        task = self.tasks[number] = ffi.new("struct permit_task *")
        task.id, task.page, task.account = number, page, self.accounts[vgpu]
        for name, value in params.items():
            setattr(task.params, name, value)
        self._checked(lib.permit_open(self.machine, self.now, task))
        return task

    def close(self, number: int) -> None:
        """The task goes."""
        lib.permit_close(self.machine, self.now, self.tasks.pop(number))
        del self.pages[number]

    def move(self, number: int, vgpu: int) -> None:
        """To another vGPU, once nothing of it is in flight."""
        lib.permit_move(self.machine, self.now, self.tasks[number], self.accounts[vgpu])

    def ring(self, number: int) -> None:
        """The client rings."""
        lib.permit_ring(self.machine, self.now, self.tasks[number])

    def count(self, number: int) -> None:
        """Charges what the task used up to now."""
        lib.permit_count(self.machine, self.now, self.tasks[number])

    def run_to(self, at: int) -> None:
        """Time passes; the timer fires when it is due."""
        while self.armed <= at:
            self.now = max(self.now, self.armed)
            self.armed = NEVER
            lib.permit_timer(self.machine, self.now)
        self.now = at

    def lane(self, number: int, engine: int = 0) -> Any:
        """The words of a task's page for one engine."""
        return self.pages[number].lanes[engine]

    def state(self, number: int, engine: int = 0) -> int:
        """FREE, WAITING, HELD or REVOKED."""
        return self.tasks[number].lanes[engine].state

    def stats(self, number: int, engine: int = 0) -> Stats:
        """What the core counted of the task, under all the accounts that it was in."""
        stats = ffi.new("struct rtxg_stats *")
        lib.permit_lane_stats(self.machine, self.tasks[number], engine, stats)
        return Core._stats(stats)

    def holders(self, engine: int = 0) -> list[int]:
        """The tasks that have a permit, as the machine remembers it."""
        return [n for n in self.tasks if self.state(n, engine) in (HELD, REVOKED)]


__all__ = [
    "ENGINES",
    "FREE",
    "GRANTED",
    "HELD",
    "PAGE_ONESHOT",
    "PAGE_REPORT",
    "REVOKED",
    "WAITING",
    "Permits",
]
