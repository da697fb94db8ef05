# SPDX-License-Identifier: MIT
"""A daemon that takes its time: it may wait for drivers that say which devices there are."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import tempfile
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("RTXG_BUILD", ROOT / "build/release")).resolve()


def answer_seconds() -> int:
    """How long rtxgd may take, as both sides are compiled with it."""
    text = (ROOT / "include/uapi/rtxg/control.h").read_text()
    found = re.search(r"^#define RTXG_ANSWER_SECONDS (\d+)$", text, flags=re.M)
    assert found
    return int(found[1])


def test_a_program_waits_for_longer_than_the_daemon_may_take() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rtxgd.sock"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(str(path))
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            request = json.loads(connection.recv(65536))
            connection.send(
                json.dumps(
                    {"ok": False, "op": request["op"], "errno": 1, "message": "heard"}
                ).encode()
            )

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("RTXG_")
        }
        environment |= {
            "RTXG_HOST": "daemon",
            "RTXG_SOCKET": str(path),
            "LD_PRELOAD": str(BUILD / "tests/lib/libpatience.so"),
        }
        done = subprocess.run(
            [BUILD / "tests/conform/device", "-n", "1"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        listener.close()
    assert done.returncode == 1 and done.stderr.endswith("device: open: heard\n"), done.stderr
    waits = re.findall(r"^patience ([0-9.]+)$", done.stderr, flags=re.M)
    assert waits and max(map(float, waits)) > answer_seconds(), done.stderr
