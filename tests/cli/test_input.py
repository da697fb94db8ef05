# SPDX-License-Identifier: MIT
"""Bad input: the error names the argument, what was read and what is accepted; the exit status is chrt's and env's."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT, Rtxg

COMMANDS = ["run", "set", "get", "ps", "top", "vgpu", "gpu", "pool", "host", "history", "metrics",
            "report", "limits", "doctor", "latency"]
SUBCOMMANDS = [("vgpu", "create"), ("vgpu", "ls"), ("vgpu", "set"), ("vgpu", "rm"), ("gpu", "ls"), ("gpu", "set"),
               ("pool", "create"), ("pool", "ls"), ("pool", "rm"),
               ("host", "show"), ("host", "start"), ("host", "stop"), ("host", "reload")]


#: wrong command lines: arguments, exit status, what the message has to name
REFUSED: list[tuple[list[str], int, list[str]]] = [
    (["tpo"], 2, ["'tpo'", "'top'"]),
    (["anlyze"], 2, ["'anlyze'", "'analyze'"]),
    (["nothing-like-it"], 2, ["'nothing-like-it'", "rtxg-nothing-like-it"]),
    (["vgpu"], 2, ["missing command", "create, ls, set, rm"]),
    (["pool"], 2, ["missing command", "create, ls, rm"]),
    (["--verison"], 2, ["'--verison'"]),
    (["vgpu", "crate"], 2, ["'crate'", "create, ls, set, rm"]),
    (["vgpu", "create"], 2, ["missing name"]),
    (["vgpu", "create", "a", "b"], 2, ["'b'"]),
    (["vgpu", "create", "x", "--min", "140%"], 2, ["--min", "'140%'", "0% to 100%"]),
    (["vgpu", "create", "x", "--min", "-5"], 2, ["--min", "'-5'"]),
    (["vgpu", "create", "x", "--min", "nan"], 2, ["--min", "'nan'"]),
    (["vgpu", "create", "x", "--min", "0x10"], 2, ["--min", "'0x10'"]),
    (["vgpu", "create", "x", "--min", "40 %"], 2, ["--min", "'40 %'"]),
    (["vgpu", "create", "x", "--max", "6ms/0ms"], 2, ["--max", "'6ms/0ms'", "period"]),
    (["vgpu", "create", "x", "--max", "7ms/6ms"], 2, ["--max", "'7ms/6ms'"]),
    (["vgpu", "create", "x", "--period", "0ms"], 2, ["--period", "'0ms'", "100us to 10s"]),
    (["vgpu", "create", "x", "--period", "10"], 2, ["--period", "'10'", "ms"]),
    (["vgpu", "create", "x", "--period", "1h"], 2, ["--period", "'1h'"]),
    (["vgpu", "create", "x", "--weight", "0"], 2, ["--weight", "'0'", "1 to 10000"]),
    (["vgpu", "create", "x", "--priority", "100"], 2, ["--priority", "'100'", "1 to 99"]),
    (["vgpu", "create", "x", "--mni", "4"], 2, ["--mni"]),
    (["vgpu", "create", "a\udcff"], 2, ["'a?'", "UTF-8"]),
    (["pool", "rm", "a\x1b[2J"], 2, ["'a?[2J'", "UTF-8"]),
    (["vgpu", "set", "x"], 2, ["nothing to change"]),
    (["vgpu", "ls", "-o", "NAME,MIN"], 2, ["'NAME'", "VGPU", "WEIGHT"]),
    (["gpu", "set", "--policy", "band"], 2, ["which GPU", "--all"]),
    (["gpu", "set", "0"], 2, ["nothing to change"]),
    (["gpu", "set", "0", "--band-wait", "0us"], 2, ["--band-wait", "'0us'"]),
    (["pool", "create", "p"], 2, ["GPU"]),
    (["pool", "rm"], 2, ["missing name"]),
    (["set", "--priority", "5"], 2, ["-p PID"]),
    (["set", "-p", "0", "--priority", "5"], 2, ["--pid", "'0'"]),
    (["set", "-p", "1", "--priority", "five"], 2, ["--priority", "'five'"]),
    (["get"], 2, ["PID"]),
    (["get", "12x"], 2, ["PID", "'12x'"]),
    (["top", "-n", "0"], 2, ["--iterations", "'0'"]),
    (["report", "-d", "90s"], 2, ["--duration", "'90s'", "60s"]),
    (["top", "--sort", "size"], 2, ["--sort", "'size'", "missing"]),
    (["top", "-d", "1ms"], 2, ["--delay", "'1ms'", "50ms"]),
    (["ps", "x"], 2, ["'x'"]),
    (["limits", "-o", "x"], 2, ["'x'", "RESERVED"]),
    (["run"], 125, ["which program"]),
    (["run", "--period", "0s", "true"], 125, ["--period", "'0s'"]),
    (["run", "--runtime", "5ms", "--period", "4ms", "true"], 125, ["--runtime 5ms", "4ms"]),
    (["run", "-p", "0", "true"], 125, ["--priority", "'0'"]),
    (["run", "--affinity", "3-1", "true"], 125, ["--affinity", "'3-1'"]),
    (["run", "--affinity", "0,,1", "true"], 125, ["--affinity", "'0,,1'"]),
    (["run", "--affinity", "99999", "true"], 125, ["--affinity", "'99999'"]),
    (["run", "--cpu-policy", "fair", "true"], 125, ["--cpu-policy", "'fair'", "fifo"]),
    (["run", "--cpu-policy", "fifo", "true"], 125, ["--cpu-priority"]),
    (["run", "--cpu-priority", "5", "true"], 125, ["--cpu-policy"]),
    (["run", "--cpu-policy", "deadline", "--period", "10ms", "true"], 125, ["--cpu-runtime"]),
    (["run", "--cpu-policy", "deadline", "--cpu-runtime", "20ms", "--period", "10ms", "true"], 125, ["--cpu-runtime 20ms"]),
    (["run", "--cpu-policy", "deadline", "--cpu-runtime", "1ms", "--period", "10ms", "-c", "0", "true"], 125, ["cpuset"]),
    (["run", "--fail", "ajar", "true"], 125, ["--fail", "'ajar'", "open"]),
    (["run", "--gpu", "0", "true"], 125, ["--gpu", "--min"]),
    (["run", "--vgup", "x", "true"], 125, ["--vgup"]),
]


@pytest.mark.parametrize(("arguments", "status", "words"), REFUSED)
def test_refused(lone: Rtxg, arguments: list[str], status: int, words: list[str]) -> None:
    """No host is needed to see that these are wrong."""
    said = lone.refused(*arguments, status=status)
    for word in words:
        assert word in said
    assert not lone.socket.exists(), "a wrong command line must not start a daemon"


@pytest.mark.parametrize("command", [*[(c,) for c in COMMANDS], *SUBCOMMANDS], ids=" ".join)
def test_help(lone: Rtxg, command: tuple[str, ...]) -> None:
    """--help goes to stdout, names the command, and what it says of options getopt knows: each is in the manual page."""
    text = lone.ok(*command, "--help")
    assert text.startswith(f"Usage: rtxg {' '.join(command)}")
    page = (ROOT / f"man/rtxg-{command[0]}.1").read_text().replace("\\-", "-")
    for option in set(re.findall(r"--[a-z][a-z-]+", text)):
        assert option in page, f"{option} is not in rtxg-{command[0]}(1)"


def test_help_lists_every_command(lone: Rtxg) -> None:
    """rtxg --help, rtxg help NAME, rtxg --version."""
    text = lone.ok("--help")
    for command in COMMANDS:
        assert re.search(rf"^  {command} ", text, re.MULTILINE)
    assert lone.ok("help", "run") == lone.ok("run", "--help")
    assert re.fullmatch(r"rtxg \d+\.\d+\.\d+\n", lone.ok("--version"))
    done = lone()
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.parametrize("typed", ["nope", "gut", "xy"])
def test_a_short_word_with_two_slips_is_another_word(lone: Rtxg, typed: str) -> None:
    """`rtxg help nope` does not mean top."""
    meant = {"gut": "'get'"}.get(typed)
    for words in ([typed], ["help", typed]):
        said = lone.refused(*words, status=2)
        assert f"'{typed}'" in said
        assert ("did you mean" in said) == (meant is not None)
        assert meant is None or meant in said


def test_host_without_a_command_shows_it(rtxg: Rtxg) -> None:
    """As `rtxg host show`; the documents say it so."""
    assert rtxg.ok("host").split()[:2] == ["HOST", "SCOPE"]


def test_unknown_name_runs_the_program_of_that_name(lone: Rtxg) -> None:
    """rtxg NAME becomes rtxg-NAME, found in PATH, with its arguments and its exit status."""
    program = lone.folder / "rtxg-greet"
    program.write_text('#!/bin/sh\necho "$# $2"\nexit 42\n')
    program.chmod(0o755)
    done = lone("greet", "a", "b c", PATH=f"{lone.folder}:{os.environ['PATH']}")
    assert (done.returncode, done.stdout) == (42, "2 b c\n")


@pytest.mark.parametrize(
    ("name", "remedy"), [("analyze", "pip install ."), ("latency", "install rtxg whole")]
)
def test_a_program_that_is_not_installed(lone: Rtxg, name: str, remedy: str) -> None:
    """Help lists it; without it, what to install is said. The program alone is in its folder."""
    if any(Path(prefix, f"libexec/rtxg/rtxg-{name}").exists() for prefix in ("/usr", "/usr/local")):
        pytest.skip(f"rtxg-{name} is installed on this machine")
    alone = lone.folder / "alone"
    alone.mkdir()
    shutil.copy(lone.program, alone / "rtxg")
    places = {"PATH": str(alone), "LD_LIBRARY_PATH": str(lone.program.parents[1] / "lib")}
    done = subprocess.run([alone / "rtxg", name], capture_output=True, text=True, check=False,
                          env=lone.environment | places)
    assert done.returncode == 2
    assert remedy in done.stderr
    assert "did you mean" not in done.stderr


def test_a_name_with_a_slash_is_no_program(lone: Rtxg) -> None:
    """It would walk out of the folders that are searched."""
    folder = lone.folder / "rtxg-x"
    folder.mkdir()
    program = folder / "y"
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    lone.refused("x/y", status=2, PATH=str(lone.folder))


@pytest.mark.parametrize("arguments", [["vgpu", "ls"], ["vgpu", "rm", "x"], ["gpu", "ls"], ["limits"], ["history"],
                                       ["top", "-n", "1"], ["host", "show"], ["host", "stop"]], ids=" ".join)
def test_without_a_host(lone: Rtxg, arguments: list[str]) -> None:
    """What only looks does not start a daemon: it says that there is none, where it looked, and what starts one."""
    said = lone.refused(*arguments, status=1)
    assert str(lone.socket) in said
    assert "rtxg run" in said


def test_output_that_cannot_be_written(rtxg: Rtxg) -> None:
    """A full disk is an error, not a short list."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([rtxg.program, "vgpu", "ls"], env=rtxg.environment, stdout=full, stderr=subprocess.PIPE,
                              text=True, check=False)
    assert done.returncode == 1
    assert "No space left" in done.stderr
