# SPDX-License-Identifier: MIT
"""The compiled scheduler core, from Python.

The same source files that run in the daemon and in the kernel module, driven with virtual time. `Core` is a thin wrapper:
events go in by name, actions come out as tuples, refusals are exceptions. It holds no policy.

    core = Core(gpus=1, vgpus=4, tasks=16)
    core.step(0, "gpu_add", gpu=0, policy="cbs")
    core.step(0, "vgpu_add", vgpu=0, gpu=0, min_ppm=400_000)
    core.step(0, "open", task=0, vgpu=0)
    core.step(0, "arrival", task=0, engine=0)      # [Action(kind='grant', task=0, ...)]

Units: nanoseconds, parts per million. See core/launch/rtxg_core.h, which is the reference for every event and field.
"""

from __future__ import annotations

import errno as _errno
from typing import Any, NamedTuple

from . import build as _build

_module = _build.load()
ffi = _module.ffi
lib = _module.lib

PPM = 1_000_000
NEVER = 2**64 - 1
NONE = 2**32 - 1
ENGINES = 3
ONESHOT = lib.RTXG_GRANT_ONESHOT
REPORT = lib.RTXG_GRANT_REPORT


def _names(prefix: str, last: str) -> dict[str, int]:
    return {
        name[len(prefix) :].lower(): getattr(lib, name)
        for name in dir(lib)
        if name.startswith(prefix) and name != last and isinstance(getattr(lib, name), int)
    }


EVENTS = _names("RTXG_EV_", "RTXG_EV_TYPES")
ACTIONS = {number: name for name, number in _names("RTXG_ACT_", "").items()}


def _gpu_policies() -> dict[str, int]:
    """The core's own list of policies between vGPUs: name and number."""
    names: dict[str, int] = {}
    while (name := lib.rtxg_gpu_policy_name(len(names))) != ffi.NULL:
        names[ffi.string(name).decode()] = len(names)
    return names


GPU_POLICIES = _gpu_policies()
TASK_POLICIES = _names("RTXG_TASK_", "RTXG_TASK_POLICIES")
OVERRUNS = _names("RTXG_OVERRUN_", "")
ENGINE_NAMES = _names("RTXG_ENGINE_", "")

# Which member of the event's union an event fills in, and how its words are read.
_PARAMS = {
    "gpu_add": "gpu_params",
    "gpu_set": "gpu_params",
    "vgpu_add": "vgpu_params",
    "vgpu_set": "vgpu_params",
    "open": "task_params",
    "set": "task_params",
}
_WORDS = {"gpu_params": GPU_POLICIES, "vgpu_params": TASK_POLICIES}
_PLAIN = {"type", "gpu", "vgpu", "task", "engine", "pool", "used_ns", "gpu_mask"}
_FAST = {"arrival", "cancel", "busy", "completion", "released", "usage", "timer", "none", "close"}


class Action(NamedTuple):
    """One action. Fields that do not belong to its kind are as the core left them."""

    kind: str
    task: int
    engine: int
    flags: int
    gpu: int
    pool: int
    priority: int
    at_ns: int  # arm_timer: the time


class Stats(NamedTuple):
    """Counters that only grow (nanoseconds and numbers), as struct rtxg_stats."""

    busy_ns: int
    used_ns: int
    wait_ns: int
    grants: int
    completions: int
    overruns: int
    expelled: int
    throttled: int


class View(NamedTuple):
    """What the core says of one vGPU on one engine, as struct rtxg_account_view."""

    stats: Stats
    credit_ns: int
    deadline_ns: int
    used_ppm: int
    waiting: int
    holder: int
    tasks: int


class Refused(Exception):  # noqa: N818 - the name of what happens, as in "the core refused"
    """The core refused an event. `errno` is positive; `what`, `value`, `limit` are the core's own explanation."""

    def __init__(self, errno: int, what: str | None, value: int, limit: int) -> None:
        name = _errno.errorcode.get(errno, str(errno))
        super().__init__(f"{name}: {what} (asked {value}, limit {limit})")
        self.errno = errno
        self.what = what
        self.value = value
        self.limit = limit


class Core:
    """One scheduler in its own memory."""

    def __init__(self, gpus: int = 1, vgpus: int = 16, tasks: int = 64, pools: int = 1, now: int = 0) -> None:
        """Limits as struct rtxg_limits; `now` is the start of all periods and windows. Raises ValueError out of range."""
        limits = ffi.new("struct rtxg_limits *", {"gpus": gpus, "vgpus": vgpus, "tasks": tasks, "pools": pools})
        size = lib.rtxg_core_size(limits)
        if size == 0:
            raise ValueError(f"limits out of range: {gpus} GPUs, {vgpus} vGPUs, {tasks} tasks, {pools} pools")
        # cffi gives 16-byte alignment for large arrays of a 16-byte type only by malloc's grace: take room to align.
        self._memory = ffi.new("unsigned char[]", size + 16)
        address = int(ffi.cast("uintptr_t", self._memory))
        self._base = self._memory + (-address % 16)
        self._size = size
        self._core = lib.rtxg_core_init(self._base, size, limits, now)
        if self._core == ffi.NULL:
            raise MemoryError("rtxg_core_init refused its memory")
        self._event = ffi.new("struct rtxg_event *")
        self._actions = ffi.new("struct rtxg_action[64]")
        self._none = ffi.new("struct rtxg_event *")
        self.refusals = 0

    def step(self, now: int, kind: str, **fields: Any) -> list[Action]:
        """Apply one event and return all its actions. Raises Refused, and then nothing has changed.

        `kind` is the event's name in lower case ("arrival"); the fields are those of the event and of the parameters that
        belong to it. `policy` and `overrun` may be words.
        """
        if kind in _FAST:
            count = lib.rtxg_python_step(
                self._core,
                now,
                EVENTS[kind],
                fields.get("task", 0),
                fields.get("engine", 0),
                fields.get("used_ns", 0),
                self._actions,
                64,
            )
        else:
            count = lib.rtxg_core_step(self._core, now, self.event(kind, **fields), self._actions, 64)
        return self._collect(now, count)

    def event(self, kind: str, **fields: Any) -> Any:
        """Fill in the event structure (valid until the next call)."""
        event = self._event
        ffi.memmove(event, self._none, ffi.sizeof("struct rtxg_event"))
        event.type = EVENTS[kind]
        member = _PARAMS.get(kind)
        params = getattr(event, member) if member else None
        for name, value in fields.items():
            if isinstance(value, str):
                value = (OVERRUNS if name == "overrun" else _WORDS[member or ""])[value]
            if name in _PLAIN or params is None:
                setattr(event, name, value)
            else:
                setattr(params, name, value)
        return event

    def raw_step(self, now: int, event: bytes) -> list[Action]:
        """Apply an event given as bytes (cut or padded with zeros to its size): for hostile streams and recordings."""
        size = ffi.sizeof("struct rtxg_event")
        ffi.memmove(self._event, event[:size].ljust(size, b"\0"), size)
        return self._collect(now, lib.rtxg_core_step(self._core, now, self._event, self._actions, 64))

    def _collect(self, now: int, count: int) -> list[Action]:
        if count < 0:
            self.refusals += 1
            refusal = lib.rtxg_core_refusal(self._core)
            what = ffi.string(refusal.what).decode() if refusal.what != ffi.NULL else None
            raise Refused(-count, what, refusal.value, refusal.limit)
        out = [self._action(self._actions[i]) for i in range(count)]
        while count == 64:
            count = lib.rtxg_core_step(self._core, now, self._none, self._actions, 64)
            if count < 0:
                raise AssertionError(f"the core refused to hand out its remaining actions: {count}")
            out.extend(self._action(self._actions[i]) for i in range(count))
        return out

    @staticmethod
    def _action(a: Any) -> Action:
        return Action(ACTIONS.get(a.type, f"?{a.type}"), a.task, a.engine, a.flags, a.gpu, a.pool, a.priority, a.at_ns)

    def vgpu_view(self, vgpu: int, engine: int, now: int) -> View:
        """The core's account of a vGPU on an engine. Raises Refused."""
        view = ffi.new("struct rtxg_account_view *")
        rc = lib.rtxg_core_vgpu_view(self._core, vgpu, engine, now, view)
        if rc < 0:
            raise Refused(-rc, "vgpu_view", vgpu, 0)
        return View(
            self._stats(view.stats),
            view.credit_ns,
            view.deadline_ns,
            view.used_ppm,
            view.waiting,
            view.holder,
            view.tasks,
        )

    def task_stats(self, task: int, engine: int) -> Stats:
        """A task's counters on an engine. Raises Refused."""
        stats = ffi.new("struct rtxg_stats *")
        rc = lib.rtxg_core_task_stats(self._core, task, engine, stats)
        if rc < 0:
            raise Refused(-rc, "task_stats", task, 0)
        return self._stats(stats)

    @staticmethod
    def _stats(s: Any) -> Stats:
        return Stats(s.busy_ns, s.used_ns, s.wait_ns, s.grants, s.completions, s.overruns, s.expelled, s.throttled)

    def idle_holder(self, gpu: int, engine: int) -> int:
        """The task with an idle permit, or NONE."""
        return lib.rtxg_core_idle_holder(self._core, gpu, engine)

    def unseen_launch(self, gpu: int, engine: int) -> int:
        """The task of whose launch the core wants to know, for early permits, or NONE."""
        return lib.rtxg_core_unseen_launch(self._core, gpu, engine)

    def device_advice(self, pool: int) -> int:
        """The GPU that a request to the pool would get first, or NONE."""
        return lib.rtxg_core_device_advice(self._core, pool)

    def check(self) -> None:
        """Walk every structure; raises AssertionError with the invariant that does not hold."""
        broken = lib.rtxg_core_check(self._core)
        if broken != ffi.NULL:
            raise AssertionError("rtxg_core_check: " + ffi.string(broken).decode())
