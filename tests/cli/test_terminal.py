# SPDX-License-Identifier: MIT
"""`rtxg top` on a terminal: Ctrl-Z, the last picture, what is below the edge, a long name, keys,
colours.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator

import pytest
from conftest import PATIENCE_S, Rtxg, wait_for

ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"
ESCAPE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A pseudo-terminal with a program on it."""

    def __init__(self, rtxg: Rtxg, rows: int, columns: int, *arguments: str) -> None:
        try:
            self.master, self.slave = pty.openpty()
        except OSError as error:
            pytest.skip(f"no pseudo-terminals here (is /dev/pts mounted?): {error}")
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.seen = b""
        self.child = subprocess.Popen(
            [rtxg.program, "top", *arguments],
            env=rtxg.environment,
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            # A group of its own, with its parent in another: the kernel stops no process of a group
            # that is orphaned, as that of a test runner in a session of its own is.
            process_group=0,
        )
        rtxg.children.append(self.child)  # type: ignore[arg-type]

    def read(self, wait_s: float = 0.05) -> None:
        """Read the available output."""
        if select.select([self.master], [], [], wait_s)[0]:
            self.seen += os.read(self.master, 65536)

    def until(self, what: str, pattern: bytes, count: int = 1) -> None:
        """Read until it was seen so many times."""
        end = time.monotonic() + PATIENCE_S
        while self.seen.count(pattern) < count:
            if time.monotonic() > end:
                pytest.fail(f"{what}: {self.seen[-2000:]!r}")
            self.read()

    def finish(self) -> None:
        """Read until the program has ended."""
        end = time.monotonic() + PATIENCE_S
        while self.child.poll() is None and time.monotonic() < end:
            self.read()
        while select.select([self.master], [], [], 0.05)[0]:
            self.read()
        assert self.child.returncode == 0

    def state(self) -> str:
        """T: stopped."""
        with open(f"/proc/{self.child.pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0]

    def lines(self) -> list[str]:
        """The last picture."""
        last = self.seen[self.seen.rindex(b"rtxg top") :]
        return [ESCAPE.sub(b"", line).decode().rstrip() for line in last.split(b"\n")]


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    """Closed at the end."""
    made: list[Terminal] = []
    yield made
    for terminal in made:
        os.close(terminal.master)
        os.close(terminal.slave)


def test_a_stop_gives_the_terminal_back_until_it_goes_on(
    rtxg: Rtxg, terminals: list[Terminal]
) -> None:
    """As after Ctrl-Z and fg."""
    terminals.append(terminal := Terminal(rtxg, 24, 100, "-d", "50ms"))
    terminal.until("a picture", b"rtxg top")
    before = termios.tcgetattr(terminal.slave)[3]
    assert not before & termios.ECHO
    terminal.child.send_signal(signal.SIGTSTP)
    wait_for("it stops", lambda: terminal.state() == "T")
    terminal.until("the screen of before", LEAVE)
    assert termios.tcgetattr(terminal.slave)[3] & termios.ICANON
    assert termios.tcgetattr(terminal.slave)[3] & termios.ECHO
    terminal.child.send_signal(signal.SIGCONT)
    terminal.until("its own screen", ENTER, 2)
    pictures = terminal.seen.count(b"rtxg top")
    terminal.until("a new picture", b"rtxg top", pictures + 1)
    assert termios.tcgetattr(terminal.slave)[3] == before
    os.write(terminal.master, b"q")
    terminal.finish()


def test_the_last_of_n_pictures_stays(rtxg: Rtxg, terminals: list[Terminal]) -> None:
    """`rtxg top -n 1` leaves its picture on the terminal."""
    rtxg.ok("vgpu", "create", "camera", "--min", "30%")
    rtxg.ok("gpu", "set", "--new", "card", "--policy", "cbs")
    terminals.append(terminal := Terminal(rtxg, 24, 100, "-n", "1", "-g", "card"))
    terminal.finish()
    after = terminal.seen[terminal.seen.rindex(LEAVE) :]
    assert b"rtxg top" in after
    assert b"camera" in after


def test_lines_below_the_edge_are_counted(rtxg: Rtxg, terminals: list[Terminal]) -> None:
    """top says how many lines it left out."""
    rtxg.ok("gpu", "set", "--new", "card", "--policy", "cbs")
    for number in range(12):
        rtxg.ok("vgpu", "create", f"v{number}", "--min", "1%")
    terminals.append(terminal := Terminal(rtxg, 8, 100, "-n", "1", "-g", "card"))
    terminal.finish()
    lines = terminal.lines()
    assert len(lines) == 8
    # a title, a GPU, its headings, twelve vGPUs, an empty line: seven fit
    assert re.fullmatch(r"\d+ more lines below", lines[7])
    assert int(lines[7].split()[0]) >= 12 + 4 - 7


def test_a_narrow_terminal_cuts_no_number(rtxg: Rtxg, terminals: list[Terminal]) -> None:
    """At 80 columns: the headings are whole, and so is what a program did."""
    rtxg.ok("vgpu", "create", "perception", "--min", "30%")
    rtxg.environment["RTXG_VGPU"] = "perception"
    rtxg.client()
    terminals.append(terminal := Terminal(rtxg, 24, 80, "-n", "1", "-t"))
    terminal.finish()
    text = "\n".join(terminal.lines())
    assert re.search(r" TASKS$", text, re.M)
    assert re.search(r" \d+ launches$", text, re.M)


def test_a_long_gpu_name_leaves_room_for_the_policy(rtxg: Rtxg, terminals: list[Terminal]) -> None:
    """At 80 columns."""
    name = "opencl:" + "x" * 56
    rtxg.ok("gpu", "set", "--new", name, "--policy", "cbs")
    terminals.append(terminal := Terminal(rtxg, 24, 80, "-n", "1", "-g", name))
    terminal.finish()
    line = next(line for line in terminal.lines() if line.startswith("GPU "))
    assert "x~  policy cbs" in line
    assert "reserved" in line
    assert len(line) <= 80


class Keys:
    """`rtxg top` that waits for keys: a minute between two pictures."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        terminal.until("a picture", b"\x1b[J")

    def press(self, keys: bytes) -> list[str]:
        """The picture that comes then: one for each key, so none is on its way when this returns.
        """
        for key in [keys] if keys[:1] == b"\x1b" else [bytes([k]) for k in keys]:
            ends = self.terminal.seen.count(b"\x1b[J")
            os.write(self.terminal.master, key)
            self.terminal.until("another picture", b"\x1b[J", ends + 1)
        return self.terminal.lines()

    @staticmethod
    def order(lines: list[str]) -> str:
        """The vGPUs from top to bottom, by their first letters."""
        return "".join(line[2] for line in lines if re.match(r"  [a-z]", line))


def test_keys_sort_scroll_show_tasks_and_help(rtxg: Rtxg, terminals: list[Terminal]) -> None:
    """As nvitop has them: a picture comes with each key, long before the next is due."""
    rtxg.ok("gpu", "set", "--new", "card", "--policy", "cbs")
    for name, share in (("cat", "1%"), ("ant", "3%"), ("bee", "2%"), ("dog", "0.5%")):
        rtxg.ok("vgpu", "create", name, "--min", share)
    terminals.append(terminal := Terminal(rtxg, 6, 120, "-d", "1min", "-g", "card"))
    keys = Keys(terminal)
    assert (
        keys.order(terminal.lines()) == "ca"
    )  # a title, a GPU, its headings; the last line counts what is below
    assert terminal.lines()[-1].endswith(" more lines below")
    # At the end programs that use a GPU on this machine may have a line, UNMANAGED.
    for press, order in (
        (b"\x1b[B", "cab"),
        (b"j", "cabd"),
        (b"\x1b[A", "cab"),
        (b"k", "ca"),
        (b"k", "ca"),
        (b"\x1b[6~", "bd"),
        (b"\x1b[5~", "ca"),
        (b"G", "bd"),
        (b"\x1b[B", "bd"),
        (b"\x1b[H", "ca"),
        (b"\x1b[F", "bd"),
        (b"g", "ca"),
    ):
        seen = keys.order(keys.press(press))
        assert seen == order or (order == "bd" and seen == "abd"), press
    # One after the other: by what is used (nothing), reserved; the letters behind o; reversed.
    for press, head, order in (
        (b"s", "by used", "ca"),
        (b".", "by reserved", "ab"),
        (b",", "by used", "ca"),
        (b"oa", "", "ab"),
        (b"r", "by name, reversed", "dc"),
        (b"/", "by name", "ab"),
        (b"or", "by reserved", "ab"),
        (b"om", "by memory", "ca"),
        (b"o!", "by memory", "ca"),
        (b"on", "", "ca"),
    ):
        lines = keys.press(press)
        assert keys.order(lines) == order and head in lines[0], (press, lines)
    assert any("shows or hides a line for each program" in line for line in keys.press(b"h"))
    assert keys.order(keys.press(b"?")) == "ca"
    os.write(terminal.master, b"q")
    terminal.finish()


def test_colours_say_what_gets_less_than_it_reserved(rtxg: Rtxg, terminals: list[Terminal]) -> None:
    """A bar is green; with NO_COLOR nothing is coloured, and the bar is there."""
    rtxg.ok("gpu", "set", "--new", "card", "--policy", "cbs")
    rtxg.ok("vgpu", "create", "camera", "--min", "30%")
    terminals.append(terminal := Terminal(rtxg, 24, 120, "-n", "1", "-g", "card"))
    terminal.finish()
    assert (
        b"\x1b[32m" in terminal.seen
        and b"\x1b[7m" in terminal.seen
        and b"\x1b[31m" not in terminal.seen
    )
    rtxg.environment["NO_COLOR"] = "1"
    terminals.append(terminal := Terminal(rtxg, 24, 120, "-n", "1", "-g", "card"))
    terminal.finish()
    assert not re.search(rb"\x1b\[(?:3[0-7]|[127])m", terminal.seen) and "|" in "".join(
        terminal.lines()
    )
