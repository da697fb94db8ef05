# SPDX-License-Identifier: MIT
"""The messages of a hostile or confused client harm no other client."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess

import pytest
from conftest import BUILD, Daemon, wait_for

CLIENT_FLAGS = 64  # where the client's words of the page begin (include/uapi/rtxg/page.h)

BROKEN = [
    b"", b"{", b"null", b"[]", b'"op"', b"\x00", b"\xff\xfe\x00", b'{"op":', b'{"op": "hello"', b'{"op": 1}', b"{}", b'{"op": null}',
    b'{"op": "hello", "op": "hello"}', b'{"op": "hell\x00o"}', b'{"op": "hello\\u0000"}', b'{"op": "\xc3\x28"}',
    b"[" * 5000, b'{"a":' * 1500, b"1e999999", b'{"op": "vgpu-create", "vgpu": "v", "min_ppm": 1000000000000000000000000000000}', b'{"op": "nothing-of-that-name"}', b" " * 16384,
]

WRONG = [
    ("hello", {"extra": 1}), ("vgpu-create", {}), ("vgpu-create", {"vgpu": ""}), ("vgpu-create", {"vgpu": "a b"}),
    ("vgpu-create", {"vgpu": "../x"}), ("vgpu-create", {"vgpu": "x" * 64}), ("vgpu-create", {"vgpu": 7}),
    ("vgpu-create", {"vgpu": "v", "min_ppm": -1}), ("vgpu-create", {"vgpu": "v", "min_ppm": 1000001}),
    ("vgpu-create", {"vgpu": "v", "min_ppm": 0.5}), ("vgpu-create", {"vgpu": "v", "max_ppm": 0}),
    ("vgpu-create", {"vgpu": "v", "min_ppm": 500000, "max_ppm": 400000}), ("vgpu-create", {"vgpu": "v", "period_ns": 1}),
    ("vgpu-create", {"vgpu": "v", "period_ns": 10**14}), ("vgpu-create", {"vgpu": "v", "weight": 0}),
    ("vgpu-create", {"vgpu": "v", "weight": 10001}), ("vgpu-create", {"vgpu": "v", "priority": 100}),
    ("vgpu-create", {"vgpu": "v", "policy": "cbs"}), ("vgpu-create", {"vgpu": "v", "transient": 1}),
    ("vgpu-create", {"vgpu": "v", "gpu": "-x"}), ("vgpu-create", {"vgpu": "default"}), ("vgpu-set", {"vgpu": "absent"}),
    ("vgpu-remove", {"vgpu": "default"}), ("vgpu-remove", {"vgpu": "absent"}), ("vgpu-list", {"vgpu": "absent"}),
    ("gpu-set", {"policy": "fp"}), ("gpu-set", {"overrun": "sometimes"}), ("gpu-set", {"period_ns": 99}),
    ("gpu-set", {"switch_ppm": 1000000}), ("gpu-set", {"gpu": "a/b"}), ("task-set", {}), ("task-set", {"task": 0, "pid": 1}),
    ("task-set", {"task": 0}), ("task-set", {"pid": 999999999}), ("task-set", {"task": -1}), ("task-list", {"task": "0"}),
    ("pool-create", {"pool": "p"}), ("pool-create", {"pool": "p", "gpus": []}), ("pool-create", {"pool": "p", "gpus": [1]}),
    ("pool-create", {"pool": "p", "gpus": ["g"] * 33}), ("pool-remove", {"pool": "absent"}), ("advice", {"pool": "absent"}),
    ("stats", {"gpu": "absent"}), ("stats", {"tasks": "yes"}), ("history", {"since": -1}), ("set", {"priority": 5}),
    ("pool-acquire", {"pool": "p"}), ("pool-release", {"pool": "p"}), ("open", {"vgpu": "absent"}), ("open", {"priority": 0}),
    ("open", {"runtime_ns": 2, "deadline_ns": 1}), ("open", {"takeover": 1}), ("place", {"vgpu": "absent"}), ("place", {"runtime_ns": 1}),
]


@pytest.mark.parametrize("data", BROKEN, ids=range(len(BROKEN)))
def test_broken(running: Daemon, data: bytes) -> None:
    """A message that is no request gets an error, or ends the connection. It never succeeds."""
    connection = running.connect()
    if data:
        reply = connection.raw(data)
        assert reply is None or (reply["ok"] is False and reply["message"])
    assert running.ask("hello")["ok"]


@pytest.mark.parametrize(("op", "members"), WRONG, ids=[f"{op}-{n}" for n, (op, _) in enumerate(WRONG)])
def test_wrong(running: Daemon, op: str, members: dict[str, object]) -> None:
    """A request that cannot be carried out is refused in words, changes nothing, and leaves the connection usable."""
    connection = running.connect()
    before = connection.ask("vgpu-list")["vgpus"], connection.ask("gpu-list")["default"], connection.ask("pool-list")
    reply = connection.ask(op, **members)
    assert reply["ok"] is False
    assert reply["errno"] == getattr(errno, reply["error"])
    assert len(reply["message"]) > 10
    assert (connection.ask("vgpu-list")["vgpus"], connection.ask("gpu-list")["default"], connection.ask("pool-list")) == before


def test_refusal_names_what_is_accepted(running: Daemon) -> None:
    """The message has the value read and the range; admission also has numbers for programs."""
    assert "1000001" in running.ask("vgpu-create", vgpu="v", min_ppm=1000001)["message"]
    assert running.ask("vgpu-create", vgpu="a", min_ppm=600000)["ok"]
    reply = running.ask("vgpu-create", vgpu="b", min_ppm=500000)
    assert (reply["error"], reply["value"], reply["limit"]) == ("ENOSPC", 500000, 400000)
    reply = running.ask("gpu-set", policy="edf")
    assert "cbs" in reply["message"] and "edf" in reply["message"]


def test_longest_and_too_long(running: Daemon) -> None:
    """16384 bytes are read; one more is refused and ends the connection."""
    text = json.dumps({"op": "hello"}).encode()
    reply = running.connect().raw(text + b" " * (16384 - len(text)))
    assert reply and reply["ok"]
    connection = running.connect()
    reply = connection.raw(text + b" " * (16385 - len(text)))
    assert reply and reply["error"] == "EMSGSIZE"
    assert connection.receive()[0] is None
    connection = running.connect()
    reply = connection.raw(b"x" * 150000)
    assert reply and reply["error"] == "EMSGSIZE"


def test_descriptors_not_asked_for(running: Daemon) -> None:
    """The daemon closes such descriptors and the sender's connection."""
    running.healthy()  # it has started wholly
    before = len(os.listdir(f"/proc/{running.process.pid}/fd"))
    for count in (1, 2, 8, 20, 253):
        connection = running.connect()
        reply = connection.raw(b'{"op": "hello"}', tuple([0] * count))
        assert reply and reply["ok"] is False
        assert connection.receive()[0] is None
        connection.close()
    # The one with more than fit is cut off by the kernel; what did fit must not leak either.
    running.connections.clear()
    assert running.ask("hello")["ok"]
    # That connection's own end is seen a moment later.
    wait_for("all are closed", lambda: len(os.listdir(f"/proc/{running.process.pid}/fd")) <= before)


def test_takeover_with_something_else(running: Daemon, tmp_path: object) -> None:
    """A descriptor that is no sealed page is refused: mapping it could be made to crash the daemon."""
    unsealed = os.memfd_create("x", os.MFD_ALLOW_SEALING)
    os.ftruncate(unsealed, 4096)
    read_end, write_end = os.pipe()
    for fd in (unsealed, read_end, os.open("/dev/null", os.O_RDWR)):
        reply = running.connect().raw(b'{"op": "open", "takeover": 1}', (fd,))
        assert reply and reply["error"] == "EINVAL"
        os.close(fd)
    os.close(write_end)


def test_reordered(running: Daemon) -> None:
    """Requests in an order that makes no sense."""
    connection = running.connect()
    assert connection.ask("pool-release", pool="p")["error"] == "ENOTCONN"
    assert connection.open()["ok"]
    assert connection.ask("open")["error"] == "EALREADY"
    assert connection.ask("pool-release", pool="p")["error"] == "EPERM"
    assert running.ask("pool-create", pool="p", gpus=["g"])["ok"]
    assert connection.ask("pool-acquire", pool="p")["gpu"] == "g"
    assert connection.ask("pool-acquire", pool="p")["error"] == "EALREADY"
    assert running.ask("pool-remove", pool="p")["error"] == "EBUSY"
    other = running.task()
    other.send(b'{"op": "pool-acquire", "pool": "p"}')
    assert other.ask("hello")["error"] == "EBUSY"
    other.send(b'{"op": "pool-release", "pool": "p"}')
    assert [other.receive()[0]["error"], other.receive()[0]["ok"]] == ["ECANCELED", True]
    assert connection.ask("pool-release", pool="p")["ok"]
    assert running.ask("vgpu-remove", vgpu="default")["error"] == "EPERM"


def test_does_not_read_replies(running: Daemon) -> None:
    """A client that only talks is cut off; the daemon neither waits for it nor keeps its replies."""
    connection = running.connect()
    connection.socket.settimeout(0.5)
    with pytest.raises(OSError):
        for _ in range(100000):
            connection.send(b'{"op": "limits"}')
            running.healthy() if _ % 5000 == 4999 else None
    assert running.ask("hello")["ok"]


def test_a_task_that_says_so_is_listed_as_managed_in_part(running: Daemon) -> None:
    """A layer writes it into the page that it shares with the daemon; any other word there changes nothing."""
    task, other = running.task(), running.task()
    assert task.page is not None and other.page is not None
    task.page[CLIENT_FLAGS:CLIENT_FLAGS + 4] = (1).to_bytes(4, "little")
    other.page[CLIENT_FLAGS:CLIENT_FLAGS + 64] = b"\xfe" * 64
    assert ["in part" in t.get("remedy", "") for t in running.tasks()] == [True, False]
    done = subprocess.run([BUILD / "cli/rtxg", "ps", "-n", "-o", "uses"], env=running.environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines()[0].startswith("in part: "), done


def test_a_reply_that_is_just_being_read_holds_up_no_request(daemon: Daemon) -> None:
    """The kernel tells that a reply is read a moment before it counts as read, and does not tell again."""
    daemon.environment |= {"LD_PRELOAD": str(BUILD / "tests/daemon/libstill_counted.so")}
    daemon.start()
    connection = daemon.connect()
    for _ in range(2):
        connection.send(b'{"op": "hello"}')
    # One request is answered and the next one is put off by now: requests of one user are served in their order.
    for _ in range(3):
        assert daemon.ask("hello")["ok"]
    connection.socket.settimeout(20)
    for _ in range(2):
        reply, _ = connection.receive()
        assert reply and reply["ok"]
    daemon.healthy()


@pytest.mark.parametrize("seed", range(4))
def test_mutated(running: Daemon, seed: int) -> None:
    """Requests with bytes changed, cut and doubled, on few connections; a task waits for its turn meanwhile."""
    rng = random.Random(seed)
    holder = running.task()
    holder.launch()
    texts = [json.dumps({"op": op} | members).encode() for op, members in WRONG] + [b'{"op": "stats", "tasks": true}', b'{"op": "history"}']
    connection = running.connect()
    for _ in range(1500):
        data = bytearray(rng.choice(texts))
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(data))
            kind = rng.randrange(3)
            if kind == 0:
                data[at] = rng.randrange(256)
            elif kind == 1:
                del data[at : at + rng.randrange(1, 9)]
            else:
                data[at:at] = data[at : at + rng.randrange(1, 40)]
            if not data:
                data = bytearray(b"{")
        if b"shutdown" in data or b"reload" in data:
            continue
        try:
            reply = connection.raw(bytes(data))
        except OSError:
            reply = None
        if reply is None or reply.get("error") in ("EBADMSG", "EMSGSIZE"):
            connection.close()
            connection = running.connect()
    assert [t["engines"][0]["state"] for t in running.tasks() if t["task"] == 0] == ["running"]
    holder.complete()


def test_packets_with_descriptors_that_find_no_room_are_answered_later(daemon: Daemon) -> None:
    """Another thread reads them, and few orders have room on the way to it."""
    daemon.environment |= {"LD_PRELOAD": str(BUILD / "tests/daemon/libsmall_buffers.so")}
    daemon.start()
    connections = [daemon.connect() for _ in range(200)]
    memory = os.memfd_create("page", os.MFD_ALLOW_SEALING)
    try:
        for connection in connections:
            connection.send(b'{"op": "limits"}', (memory,))
        for connection in connections:
            assert connection.receive()[0], "the connection ended"
    finally:
        os.close(memory)
    daemon.healthy()
