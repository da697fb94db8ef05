# SPDX-License-Identifier: MIT
"""Completions for bash and zsh: they know each command and each option of --help."""

from __future__ import annotations

import os
import pty
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("RTXG_BUILD", ROOT / "build/release")).resolve()
RTXG = BUILD / "cli/rtxg"
FOLDER = ROOT / "packaging/completions"
GROUPS = ("vgpu", "gpu", "pool", "host", "order")


def help_of(*words: str) -> str:
    """What rtxg WORDS --help prints."""
    return subprocess.run([RTXG, *words, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout


def commands_of(*words: str) -> list[str]:
    """The commands that a help lists."""
    parts = re.findall(r"^Commands[^\n]*:\n((?:  .*\n)+)", help_of(*words), re.M)
    return [command for part in parts for command in re.findall(r"^  ([a-z-]+)", part, re.M)]


def options_of(*words: str) -> set[str]:
    """The options that a help lists."""
    found = [re.match(r" +(--?[A-Za-z][A-Za-z-]*)(?:, (--[a-z][a-z-]*))?", line) for line in help_of(*words).splitlines()]
    return {o for m in found if m for o in m.groups() if o}


BUILTIN = commands_of()[: commands_of().index("doctor") + 1] if RTXG.exists() else []
PATHS = [(), *[(c,) for c in BUILTIN], *[(g, s) for g in GROUPS for s in (commands_of(g) if RTXG.exists() else [])]]


def bash(words: tuple[str, ...], current: str) -> set[str]:
    """What bash offers for the word after these."""
    line = ["rtxg", *words, current]
    quoted = " ".join(f"'{w}'" for w in line)
    script = f"""source {FOLDER}/rtxg.bash; COMP_WORDS=({quoted}); COMP_CWORD={len(line) - 1}; _rtxg
printf '%s\\n' "${{COMPREPLY[@]}}\""""
    environment = {**os.environ, "RTXG_COMPLETE": str(RTXG), "RTXG_SOCKET": "/nonexistent/s"}
    done = subprocess.run(["bash", "--norc", "-c", script], env=environment, capture_output=True, text=True, timeout=60,
                          check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("words", PATHS, ids=" ".join)
def test_bash_offers_each_option_of_the_help(words: tuple[str, ...]) -> None:
    """And no other."""
    assert bash(words, "-") == (options_of(*words) if words else set())


@pytest.mark.parametrize("words", [(), *[(g,) for g in GROUPS]], ids=" ".join)
def test_bash_offers_each_command(words: tuple[str, ...]) -> None:
    """Of rtxg, and of its groups."""
    assert set(commands_of(*words)) <= bash(words, "")


def test_bash_offers_programs_behind_two_dashes() -> None:
    """They are not rtxg's words."""
    assert "bash" in bash(("run", "-v", "x", "--"), "bas")
    assert "--vgpu" not in bash(("run", "--"), "--v")


@pytest.mark.parametrize("words", PATHS, ids=" ".join)
def test_zsh_knows_each_option_of_the_help(words: tuple[str, ...]) -> None:
    """The function that finds them gives the same as bash's, each with a text."""
    zsh = shutil.which("zsh")
    if not zsh:
        pytest.skip("zsh is not installed")
    script = f"source {FOLDER}/_rtxg; _rtxg_words {' '.join(words)}"
    environment = {**os.environ, "RTXG_COMPLETE": str(RTXG)}
    done = subprocess.run([zsh, "-f", "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=True)
    found = dict(line.split(":", 1) for line in done.stdout.splitlines())
    assert {w for w in found if w.startswith("-")} == (options_of(*words) if words else set())
    assert all(found.values()) and set(commands_of(*words)) <= set(found)


SHELLS = {
    "bash": (
        ["bash", "--norc", "--noprofile", "-i"],
        f"PS1=; bind 'set bell-style none'; . {FOLDER}/rtxg.bash",
    ),
    "zsh": (
        ["zsh", "-f", "-i"],
        f"PS1=; unsetopt beep prompt_sp; fpath=({FOLDER} $fpath); autoload compinit; compinit -u -D",
    ),
}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_terminal_completes_commands_and_options(shell: str) -> None:
    """A shell at a terminal finds the completion by itself, and writes the rest of the word."""
    command, setup = SHELLS[shell]
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    pid, terminal = pty.fork()
    if not pid:
        os.environ.update(RTXG_COMPLETE=str(RTXG), RTXG_SOCKET="/nonexistent/s", TERM="dumb")
        os.execvp(command[0], command)
    seen = ""

    def wait_for(text: str) -> None:
        nonlocal seen
        while text not in seen:
            seen += os.read(terminal, 4096).decode(errors="replace")

    try:
        # The terminal shows what is typed: the word that tells the end is made by the shell.
        os.write(terminal, f"{setup}; echo begin''ning\n".encode())
        wait_for("beginning")
        for typed, completed in (
            ("vg", "vgpu "),
            ("vgpu cre", "vgpu create "),
            ("run --cpu-pol", "run --cpu-policy "),
        ):
            os.write(terminal, f"rtxg {typed}\t".encode())
            wait_for(f"rtxg {completed}")
            os.write(terminal, b"\x15")  # ^U: an empty line again
    finally:
        os.close(terminal)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
