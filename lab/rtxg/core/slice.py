# SPDX-License-Identifier: MIT
"""The compiled core of time slices (core/slice), from Python.

A thin wrapper, as `rtxg.core.Core` is for launches: events go in by name, actions come out as
tuples, refusals are exceptions. It holds no policy.

    core = SliceCore(tenants=4, contexts=16)
    core.step(0, "tenant_set", tenant=0, min_ppm=400_000)
    core.step(0, "add", context=0, tenant=0)
    core.step(10, "start", context=0, at_ns=10)       # [SliceAction(kind='arm', ...)]

Units: nanoseconds, parts per million. See core/slice/rtxg_slice.h, which is the reference for every
event and field.
"""

from __future__ import annotations

import errno as _errno
from typing import NamedTuple

from . import ffi, lib

EVENTS = {
    name.removeprefix("RTXG_SLICE_EV_").lower(): getattr(lib, name)
    for name in dir(lib)
    if name.startswith("RTXG_SLICE_EV_")
}
ACTIONS = {
    lib.RTXG_SLICE_SET: "set",
    lib.RTXG_SLICE_SUSPEND: "suspend",
    lib.RTXG_SLICE_RESUME: "resume",
    lib.RTXG_SLICE_ARM: "arm",
}
CRITICAL_PRIORITY = lib.RTXG_SLICE_CRITICAL_PRIORITY
CAN_SLICE = lib.RTXG_SLICE_CAN_SLICE
CAN_SUSPEND = lib.RTXG_SLICE_CAN_SUSPEND
CAN_LEAVE = lib.RTXG_SLICE_CAN_LEAVE
CAN_DEMAND = lib.RTXG_SLICE_CAN_DEMAND
LOAD = lib.RTXG_SLICE_LOAD
WORK, NO_WORK = lib.RTXG_SLICE_WORK, lib.RTXG_SLICE_NO_WORK
QUEUED, FOLLOWED = lib.RTXG_SLICE_QUEUED, lib.RTXG_SLICE_FOLLOWED
FINAL = lib.RTXG_SLICE_FINAL
FAILED = {
    "set": lib.RTXG_SLICE_SET,
    "suspend": lib.RTXG_SLICE_SUSPEND,
    "resume": lib.RTXG_SLICE_RESUME,
}
MECHANISMS = {
    lib.RTXG_SLICE_BY_NOTHING: "none",
    lib.RTXG_SLICE_BY_SLICES: "slices",
    lib.RTXG_SLICE_BY_ARRIVAL: "arrival",
    lib.RTXG_SLICE_BY_TURNS: "turns",
}
MODES = {
    lib.RTXG_SLICE_MODE_SPREAD: "spread",
    lib.RTXG_SLICE_MODE_BATCH: "batch",
    lib.RTXG_SLICE_MODE_ARRIVAL: "arrival",
    lib.RTXG_SLICE_MODE_TURNS: "turns",
}
ROOM = 16


class SliceAction(NamedTuple):
    """One action, as struct rtxg_slice_action."""

    kind: str
    context: int
    ns: int


class Admission(NamedTuple):
    """Can a bound on latency be kept, as struct rtxg_slice_admission; `errno` is 0 if it can."""

    errno: int
    mechanism: str
    best_mechanism: str
    bound_ns: int
    best_ns: int
    contexts: int
    loads: int
    beside: int
    critical: int
    reserved_ppm: int
    breaks: int


class SliceRefused(Exception):  # noqa: N818 - the name of what happens, as Refused
    """The core refused an event. `errno` is positive."""

    def __init__(self, errno: int) -> None:
        super().__init__(_errno.errorcode.get(errno, str(errno)))
        self.errno = errno


class SliceCore:
    """One GPU's core of time slices. Parameters as struct rtxg_slice_params."""

    def __init__(
        self,
        tenants: int,
        contexts: int,
        now: int = 0,
        can: int = CAN_SLICE | CAN_SUSPEND,
        **params: int,
    ) -> None:
        """`tenants` and `contexts` are limits. Raises ValueError out of range."""
        size = lib.rtxg_slice_size(tenants, contexts)
        self._memory = ffi.new("char[]", max(size, 1))
        chosen = ffi.new("struct rtxg_slice_params *", {"can": can, **params})
        self._core = lib.rtxg_slice_init(self._memory, size, tenants, contexts, chosen, now)
        if self._core == ffi.NULL:
            raise ValueError(f"{tenants} tenants, {contexts} contexts: 1 to 4096 are accepted")
        self._event = ffi.new("struct rtxg_slice_event *")
        self._actions = ffi.new("struct rtxg_slice_action[]", ROOM)

    def step(
        self,
        now: int,
        kind: str,
        tenant: int = 0,
        context: int = 0,
        at_ns: int = 0,
        value: int = 0,
        **params: int,
    ) -> list[SliceAction]:
        """One event, `params` as struct rtxg_slice_tenant; all actions. Raises SliceRefused."""
        event = self._event
        ffi.buffer(event)[:] = bytes(ffi.sizeof("struct rtxg_slice_event"))
        event.type, event.tenant, event.context, event.at_ns = EVENTS[kind], tenant, context, at_ns
        event.value = value
        for name, value in params.items():
            setattr(event.tenant_params, name, value)
        found: list[SliceAction] = []
        count = lib.rtxg_slice_step(self._core, now, event, self._actions, ROOM)
        if count < 0:
            raise SliceRefused(-count)
        while True:
            found += [SliceAction(ACTIONS[a.type], a.context, a.ns) for a in self._actions[0:count]]
            if count < ROOM:
                return found
            count = lib.rtxg_slice_step(self._core, now, ffi.NULL, self._actions, ROOM)

    def check(self) -> str | None:
        """The invariant that does not hold, or None."""
        wrong = lib.rtxg_slice_check(self._core)
        return None if wrong == ffi.NULL else ffi.string(wrong).decode()

    def turns(self) -> bool:
        """Are turns taken?"""
        return bool(lib.rtxg_slice_turns(self._core))

    def calm_at(self, now: int, due: int) -> int:
        """When work that is not urgent may be done."""
        return int(lib.rtxg_slice_calm_at(self._core, now, due))

    def look_ns(self, context: int) -> int | None:
        """How often the queues of this context are to be looked into; None: not at all."""
        ns = int(lib.rtxg_slice_look_ns(self._core, context))
        return None if ns == lib.RTXG_SLICE_NEVER else ns

    def admit(self, tenant: int, **params: int) -> Admission:
        """Can a tenant have these parameters? Raises SliceRefused if they are out of range."""
        wanted = ffi.new("struct rtxg_slice_tenant *", params)
        found = ffi.new("struct rtxg_slice_admission *")
        errno = -lib.rtxg_slice_admit(self._core, tenant, wanted, found)
        if errno == _errno.EINVAL:
            raise SliceRefused(errno)
        names = Admission._fields[1:]
        values = {name: int(getattr(found, name)) for name in names}
        for name in ("mechanism", "best_mechanism"):
            values[name] = MECHANISMS[values[name]]
        return Admission(errno, **values)

    def mode(self) -> str:
        """How the GPU is shared now."""
        view = ffi.new("struct rtxg_slice_gpu_view *")
        lib.rtxg_slice_gpu_view(self._core, view)
        return MODES[view.mode]
