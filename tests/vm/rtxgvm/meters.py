# SPDX-License-Identifier: MIT
"""What i_meter said: for each of its runs the owner, what rtxg-irq -i found, and the module's log.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
import tarfile
from dataclasses import dataclass

from rtxg.irqlog import Reader
from rtxg.tracefs import Event, decode_page, parse_format

PAGE = 4096


@dataclass
class Run:
    """One run: two threads, an interrupt that works for one of them, and two meters that looked at
    it.
    """

    owner: int
    bpf: dict
    events: list[Event]

    def log(self) -> dict:
        """What the module's log says of it."""
        span = (self.events[-1].time - self.events[0].time) / 1e9
        return Reader(owner=self.owner).read(self.events).told(span)


def _events(text: str) -> list[Event]:
    formats, pages = {}, b""
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(base64.b64decode(text)))) as archive:
        for member in archive:
            data = archive.extractfile(member)
            if data is None:
                continue
            if member.name.endswith(".format"):
                number, fields = parse_format(data.read().decode())
                formats[number] = (member.name.rpartition("/")[2].removesuffix(".format"), fields)
            else:
                pages = data.read()
    return [
        e
        for at in range(0, len(pages), PAGE)
        for e in decode_page(pages[at : at + PAGE], 0, formats)
    ]


def runs(console: str) -> dict[str, Run]:
    """The runs of a console by name."""
    owners = {
        name: int(pid) for name, pid in re.findall(r"^\s+# owner (\w+) (\d+)$", console, re.M)
    }
    found = {
        name: json.loads(text)
        for name, text in re.findall(r"^\s+# meter (\w+) (\{.*\})$", console, re.M)
    }
    logs: dict[str, str] = {}
    for name, line in re.findall(r"^\s+# log (\w+) (\S+)$", console, re.M):
        logs[name] = logs.get(name, "") + line
    return {name: Run(owners[name], found[name], _events(logs[name])) for name in found}
