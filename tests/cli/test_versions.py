# SPDX-License-Identifier: MIT
"""What crosses a boundary says its version, and a peer of another version is told so."""

from __future__ import annotations

import json
import re
import socket
import threading

from conftest import ROOT, Rtxg

UAPI = ROOT / "include/uapi/rtxg"


def number(header: str, name: str) -> int:
    """A constant of a header."""
    found = re.search(rf"^#define {name}\s+(\w+?)u?$", (UAPI / header).read_text(), flags=re.M)
    assert found, f"{header} has no {name}"
    return int(found[1], 0)


def test_the_daemon_says_the_version_that_the_header_has(rtxg: Rtxg) -> None:
    rtxg.ok("host", "show")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(str(rtxg.socket))
        connection.send(b'{"op": "hello"}')
        assert json.loads(connection.recv(65536))["protocol"] == number("control.h", "RTXG_PROTOCOL")


def test_a_daemon_of_another_version_is_named_with_both_versions_and_a_remedy(lone: Rtxg) -> None:
    ours = number("control.h", "RTXG_PROTOCOL")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(lone.socket))
    listener.listen()

    def answer() -> None:
        connection, _ = listener.accept()
        connection.recv(65536)
        connection.send(json.dumps({"ok": True, "op": "hello", "protocol": ours + 1, "socket": str(lone.socket)}).encode())

    thread = threading.Thread(target=answer)
    thread.start()
    said = lone.refused("host", "show", status=1)
    thread.join()
    listener.close()
    assert f"version {ours + 1} " in said and f"version {ours};" in said and "rtxg host stop" in said


def test_structs_of_the_modules_calls_begin_with_their_size() -> None:
    calls = 0
    for header in sorted(UAPI.glob("*.h")):
        code = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)
        for command, struct in re.findall(r"^#define (RTXG_IOC_\w+)\s+_IOW?R?\w*\('x', \w+, struct (\w+)\)", code, flags=re.M):
            body = re.search(rf"struct {struct} \{{\s*(.*?);", code, flags=re.S)
            assert body and body[1] == "__u32 size", f"{command}: {struct}"
            calls += 1
    assert calls > 20


def test_the_page_says_magic_and_version_first() -> None:
    code = re.sub(r"/\*.*?\*/", "", (UAPI / "page.h").read_text(), flags=re.S)
    body = re.search(r"struct rtxg_page \{(.*?)\};", code, flags=re.S)
    assert body and re.findall(r"__u32 (\w+);", body[1])[:3] == ["magic", "version", "size"]
    assert number("page.h", "RTXG_PAGE_VERSION") >= 1
