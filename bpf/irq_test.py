#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""rtxg-irq against what the kernel itself counts.

usage: irq_test.py PATH-OF-RTXG-IRQ      exit status 0 passed, 1 failed, 77 skipped (not allowed to load BPF programs)
"""

from __future__ import annotations

import json
import subprocess
import sys


def counts() -> dict[int, tuple[int, str]]:
    """Number of each driver's interrupt since boot, and the rest of its line."""
    found = {}
    with open("/proc/interrupts", encoding="utf-8", errors="replace") as lines:
        cpus = len(next(lines).split())
        for line in lines:
            number, _, rest = line.partition(":")
            if number.strip().isdigit():
                words = rest.split()
                found[int(number)] = (sum(int(w) for w in words[:cpus]), rest)
    return found


def fail(text: str) -> None:
    """Say what is wrong and end."""
    print(f"not ok: {text}")
    sys.exit(1)


def names(program: str) -> None:
    """A thread chooses its own name: it is text that does nothing to a terminal, in both forms."""
    code = "import sys; open('/proc/self/comm', 'wb').write(bytes.fromhex(sys.argv[1])); print(); input()"
    for name, shown in (
        (b"a\x1b[2J\xc2\x9b\xc3\xa9\xff", "a?[2J?\u00e9?"),
        (b"\xe2\x80\xaeturned\n\x7f", "?turned??"),
        (b") R 1 \"\\ \xc3", ') R 1 "\\ ?'),
    ):
        with subprocess.Popen(
            [sys.executable, "-c", code, name.hex()], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as named:
            assert named.stdout is not None
            named.stdout.readline()
            words = [program, "-i", "-p", str(named.pid), "-d", "0.1"]
            done = subprocess.run([*words, "-J"], capture_output=True, check=False)
            rows = json.loads(done.stdout.decode())["owners"]
            if [(row["owner"], row["name"]) for row in rows] != [(named.pid, shown)]:
                fail(f"a thread called {name!r} is shown as {rows}: {done.stderr!r}")
            done = subprocess.run(words, capture_output=True, check=False)
            line = done.stdout.decode().splitlines()[1]
            if not line.split(None, 1)[1].startswith(shown):
                fail(f"a thread called {name!r} is shown as {line!r}")
            named.communicate(b"\n")


def reached(number: int, entry: dict[str, int | None]) -> None:
    """What was woken, by kind: with what threads of the kernel woke in turn, no less than `ran`."""
    kinds = ("programs", "threads", "workers")
    if sum(entry[f"ran_{kind}"] for kind in kinds) < entry["ran"]:
        each = [entry[f"ran_{kind}"] for kind in kinds]
        fail(f"irq {number}: {entry['ran']} ran, of all kinds {each}")
    for kind in kinds:
        count, total = entry[f"ran_{kind}"], entry[f"ran_{kind}_ns"]
        least, most = entry[f"ran_{kind}_min_ns"], entry[f"ran_{kind}_max_ns"]
        if (least is None) != (count == 0):
            fail(f"irq {number}: {kind}: {count}, of which the least is {least} ns")
        if count and not least * count <= total <= most * count:
            fail(f"irq {number}: {kind}: {count} in {total} ns, of {least} to {most}")


def main() -> int:
    """Compare one run with /proc/interrupts; then the command line's errors."""
    program = sys.argv[1]
    before = counts()
    done = subprocess.run([program, "-d", "3", "-J"], capture_output=True, text=True, check=False)
    after = counts()
    if done.returncode == 77:
        print(f"skipped: {done.stderr.strip()}")
        return 77
    if done.returncode:
        fail(f"status {done.returncode}: {done.stderr.strip()}")
    report = json.loads(done.stdout)
    for entry in report["interrupts"]:
        number = entry["irq"]
        # Of a line that drivers share each one's handler is called. The kernel's count began earlier
        # and ended later, and it counts an interrupt before it calls the handler.
        handlers = after[number][1].count(",") + 1
        counted = (after[number][0] - before[number][0]) * handlers
        if not 0 < entry["entries"] <= counted:
            fail(f"irq {number}: {entry['entries']} seen, the kernel counted {counted}")
        if entry["name"] and entry["name"] not in after[number][1]:
            fail(f"irq {number}: called {entry['name']}, /proc/interrupts says {after[number][1].strip()}")
        # no more than one handler runs when the end of handlers is not counted any more
        if sum(entry["handler_slots"]) not in (entry["entries"], entry["entries"] - 1):
            fail(f"irq {number}: {entry['entries']} entries, {sum(entry['handler_slots'])} in the histogram")
        if sum(entry["latency_slots"]) != entry["ran"] or entry["ran"] > entry["woken"]:
            fail(f"irq {number}: {entry['woken']} woken, {entry['ran']} ran, {sum(entry['latency_slots'])} in the histogram")
        if sum(entry["fence_slots"]) != entry["fence_waits"] or entry["fence_emits"] > entry["fences"]:
            fail(f"irq {number}: {entry['fence_waits']} waits for fences, {sum(entry['fence_slots'])} in the histogram")
        if entry["handler_max_ns"] * entry["entries"] < entry["handler_ns"]:
            fail(f"irq {number}: the longest handler is shorter than the mean")
        ended = sum(entry["handler_slots"])
        least = entry["handler_min_ns"]
        if (least is None) != (ended == 0) or (ended and least * ended > entry["handler_ns"]):
            fail(f"irq {number}: the shortest handler is longer than the mean")
        reached(number, entry)
    fences = report["fences"]
    if fences is not None and fences["attributed"] != sum(entry["fences"] for entry in report["interrupts"]):
        fail(f"{fences['attributed']} fences attributed in all, not the sum over interrupts")
    if report["source"] != "bpf":
        fail(f"the source is {report['source']}")
    seen = {entry["irq"] for entry in report["interrupts"]}
    for arguments, status in ((["-d", "x"], 2), (["-z"], 2), (["no-such-interrupt"], 1), (["-m", "no-such-interrupt"], 1)):
        bad = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
        if bad.returncode != status or not bad.stderr:
            fail(f"{arguments}: status {bad.returncode}, said \"{bad.stderr.strip()}\"")
    names(program)
    if not seen:
        print("skipped: no driver's interrupt came in 3 seconds")
        return 77
    print(f"ok: {len(seen)} interrupts agree with /proc/interrupts")
    return 0


if __name__ == "__main__":
    sys.exit(main())
