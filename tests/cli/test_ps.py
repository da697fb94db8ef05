# SPDX-License-Identifier: MIT
"""`rtxg ps` of what a host answers: command lines, GPU memory, and cells without a value."""

from __future__ import annotations

import ctypes.util
import fcntl
import json
import os
import pty
import socket
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from conftest import Rtxg

ENGINE = {"engine": "compute", "state": "running", "launches": 7, "busy_ns": 5_000_000}
LONG = "/usr/bin/python3 /srv/camera/detect.py --model " + "x" * 300

GATED = {
    "pid": 101, "uid": 0, "comm": "python3", "exe": "/usr/bin/python3", "command": LONG,
    "vgpu": "camera", "gpu": "0", "priority": 1, "task": 1, "engines": [ENGINE],
}  # fmt: skip
LEVER = GATED | {
    "pid": 102, "command": "train --epochs 3", "lever": "nvidia", "managed": True,
    "gpu": "nvidia0", "memory": 800 << 20, "engines": [ENGINE | {"launches": 0}],
}  # fmt: skip
OLD = {key: value for key, value in LEVER.items() if key != "command"} | {
    "pid": 103,
    "memory": None,
    "mps": True,
}


@contextmanager
def host(rtxg: Rtxg, tasks: list[dict[str, Any]]) -> Iterator[None]:
    """A host that answers each request with these tasks."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(rtxg.socket))
    listener.listen()

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                connection.send(json.dumps({"ok": True, "tasks": tasks}).encode())

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def cells(text: str) -> dict[str, dict[str, str]]:
    """The rows of a list without blanks in its cells, by PID."""
    head, *rows = (line.split() for line in text.splitlines())
    return {row[0]: dict(zip(head, row, strict=True)) for row in rows}


def test_no_cell_is_blank(lone: Rtxg) -> None:
    """A dash stands where the lever sees nothing, or nothing is to be said."""
    with host(lone, [GATED, LEVER, OLD]):
        rows = cells(lone.ok("ps", "-m", "-o", "PID,MEM,LAUNCHES,USES"))
    assert rows["101"] == {"PID": "101", "MEM": "-", "LAUNCHES": "7", "USES": "-"}
    assert rows["102"] == {"PID": "102", "MEM": "800M", "LAUNCHES": "-", "USES": "-"}
    assert rows["103"] == {"PID": "103", "MEM": "-", "LAUNCHES": "-", "USES": "mps"}


def test_json_has_bytes_and_null(lone: Rtxg) -> None:
    """A dash is for people."""
    with host(lone, [GATED, LEVER]):
        gated, lever = lone.json("ps", "-m", "-o", "MEM,LAUNCHES,COMMAND,COMM")
    assert (gated["memory_bytes"], gated["launches"]) == (None, 7)
    assert (lever["memory_bytes"], lever["launches"]) == (800 << 20, None)
    assert (lever["command"], lever["comm"]) == ("train --epochs 3", "python3")
    assert gated["command"] == LONG, "nothing is cut for a program that reads"


def test_a_host_that_names_no_command_line_shows_the_name(lone: Rtxg) -> None:
    """As where the process is another user's."""
    with host(lone, [OLD, GATED | {"command": ""}]):
        rows = lone.json("ps", "-m", "-o", "COMMAND")
    assert rows == [{"command": "python3"}] * 2


def test_a_long_command_line_is_cut_where_the_terminal_ends(lone: Rtxg) -> None:
    """A row stays one line, and a pipe gets all of it."""
    with host(lone, [GATED, LEVER]):
        assert LONG in lone.ok("ps", "-m")
        try:
            master, slave = pty.openpty()
        except OSError as error:
            pytest.skip(f"no pseudo-terminals here (is /dev/pts mounted?): {error}")
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 110, 0, 0))
        command = [lone.program, "ps", "-m"]
        subprocess.run(command, env=lone.environment, stdin=slave, stdout=slave, check=True)
        os.close(slave)
        seen = b""
        try:
            while data := os.read(master, 65536):
                seen += data
        except OSError:
            pass  # the terminal's other end is closed: all was read
        os.close(master)
    lines = seen.decode().splitlines()
    assert len(lines) == 3
    assert all(len(line) <= 110 for line in lines), lines
    assert "/usr/bin/python3 /s" in lines[1]


def test_an_unknown_gpu_is_an_error(rtxg: Rtxg) -> None:
    """An empty list would say that the GPU idles."""
    rtxg.ok("gpu", "set", "--new", "card", "--policy", "cbs")
    assert rtxg.ok("ps", "-g", "card") == ""
    said = rtxg.refused("ps", "-g", "crad", status=1)
    for word in ("'crad'", "did you mean 'card'", "rtxg gpu ls"):
        assert word in said


def test_a_name_that_is_not_utf8_hides_no_process(rtxg: Rtxg) -> None:
    """ps and top list the process, the JSON can be read, and the terminal gets no control character."""
    if not ctypes.util.find_library("OpenCL"):
        pytest.skip("libOpenCL is not installed")
    code = """
import ctypes, sys
ctypes.CDLL('libOpenCL.so.1')
ctypes.CDLL(None).prctl(15, b'a\\xff\\xc2\\x9bz\\x1b', 0, 0, 0)
print('up', flush=True)
sys.stdin.read()
"""
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    rtxg.children.append(child)
    assert child.stdout
    assert child.stdout.readline() == "up\n"
    rows = {row["pid"]: row for row in rtxg.json("ps", "-u", "-o", "PID,COMM,COMMAND")}
    assert rows[child.pid]["comm"] == "a??z?"
    assert rows[child.pid]["command"].startswith(sys.executable)
    top = json.loads(rtxg.ok("top", "-J", "-n", "1"))
    assert {"a??z?"} == {u["command"] for u in top["unmanaged"] if u["pid"] == child.pid}
    text = rtxg.ok("top", "-b", "-n", "1")
    assert "\x1b" not in text and "\x9b" not in text
    child.communicate("")
