# SPDX-License-Identifier: MIT
"""tools/commit-msg refuses messages against the rule of CONTRIBUTING.md, and names the accepted form."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools/commit-msg"
REASON = "\n\nThe reason stands here.\n"
WHO = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_CONFIG_GLOBAL": "/dev/null",
}


class Repository:
    """A temporary repository, with the tool and its base in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "tools").mkdir(parents=True)
        (folder / "tools/commit-msg").write_bytes(TOOL.read_bytes())
        (folder / "tools/commit-msg").chmod(0o755)
        self.git("init", "-q", "-b", "main")
        self.commit("no rule yet", 1)
        self.base = self.git("rev-parse", "HEAD").strip()
        (folder / "tools/commit-base").write_text(f"base {self.base} the first\n")

    def git(self, *words: str) -> str:
        """Run git there."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")} | WHO
        done = subprocess.run(
            ["git", *words],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def change(self, lines: int) -> None:
        """Add a file of so many lines, ready to be committed."""
        name = f"file-{len(list(self.folder.iterdir()))}"
        (self.folder / name).write_text("line\n" * lines)
        self.git("add", name)

    def commit(self, message: str, lines: int) -> str:
        """Commit a change without any hook."""
        self.change(lines)
        self.git("commit", "-q", "--no-verify", "-m", message)
        return self.git("rev-parse", "--short=7", "HEAD").strip()

    def tool(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the tool there."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
        return subprocess.run(
            [self.folder / "tools/commit-msg", *words],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
        )

    def judge(self, message: str, lines: int = 30) -> subprocess.CompletedProcess[str]:
        """As the hook: a message for a change of so many lines."""
        self.change(lines)
        file = self.folder / ".git/COMMIT_EDITMSG"
        file.write_text(message)
        return self.tool(str(file))


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A temporary repository."""
    return Repository(tmp_path / "r")


@pytest.mark.parametrize(
    "message",
    [
        "cli: name the unknown GPU" + REASON,
        "core/launch: move the lane protocol to one file" + REASON,
        "cli, rtxgd: say which values are accepted" + REASON,
        ".ci: run the style tier first" + REASON,
        "kmod: pass the priority on" + REASON,
        "lib: reprocess what was lost" + REASON,
        "core: embed the counters in one struct" + REASON,
        'Revert "cli: name the unknown GPU"' + REASON,
        "cli: name the unknown GPU\n\n" + "https://example.org/" + "x" * 100 + "\n",
        "cli: name the unknown GPU"
        + REASON
        + "# a comment of git\n# ------ >8 ------\n"
        + "diff " * 40
        + "\n",
        "cli: " + "x" * 67 + REASON,
    ],
)
def test_a_good_message_passes(repository: Repository, message: str) -> None:
    """Without a word."""
    done = repository.judge(message)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("cli: " + "x" * 68 + REASON, ["73 columns", "at most 72"]),
        ("cli: name it; rename that" + REASON, ["semicolon", "second commit"]),
        ("cli: named the unknown GPU" + REASON, ["'named'", "past tense", "imperative"]),
        ("cli: naming the unknown GPU" + REASON, ["'naming'", "-ing form"]),
        ("cli: names the unknown GPU" + REASON, ["'names'", "-s form"]),
        ("cli: the GPU is named" + REASON, ["'the'", "description"]),
        ("core: what is unknown is named" + REASON, ["'what'"]),
        ("cli: 3 fixes" + REASON, ["'3'", "verb"]),
        ("name the unknown GPU" + REASON, ["area: verb"]),
        ("cli: name the unknown GPU." + REASON, ["full stop"]),
        ("cli: name the unknown GPU\nat once" + REASON, ["'at once'", "empty line"]),
        ("cli: name the unknown GPU\n", ["no body", "30 lines", "20"]),
        ("cli: name the unknown GPU\n\nSigned-off-by: a <a@example.org>\n", ["no body"]),
        ("cli: name the unknown GPU\n\n" + "word " * 25 + "\n", ["line 3", "at most 100"]),
    ],
)
def test_a_bad_message_is_refused_with_what_is_accepted(
    repository: Repository, message: str, words: list[str]
) -> None:
    """The value, the limit, and where the message is kept."""
    done = repository.judge(message)
    assert done.returncode == 1
    for word in [*words, "CONTRIBUTING.md", "COMMIT_EDITMSG"]:
        assert word in done.stderr


@pytest.mark.parametrize(("lines", "status"), [(19, 0), (20, 1)])
def test_a_small_change_needs_no_body(repository: Repository, lines: int, status: int) -> None:
    """Fewer than 20 lines."""
    assert repository.judge("cli: name the unknown GPU\n", lines).returncode == status


def test_a_fixup_passes_the_hook_but_may_not_land(repository: Repository) -> None:
    """A fixup has to be squashed before it lands."""
    assert repository.judge("fixup! cli: name the unknown GPU\n").returncode == 0
    repository.commit("fixup! cli: name the unknown GPU", 1)
    done = repository.tool("--new")
    assert done.returncode == 1
    assert "autosquash" in done.stdout


def test_only_commits_after_the_base_are_checked(repository: Repository) -> None:
    """Each fault names its commit; an exception is let pass."""
    repository.commit("cli: name the unknown GPU", 1)
    assert repository.tool("--new").returncode == 0
    bad = repository.commit("the GPU is named", 30)
    done = repository.tool("--new")
    assert done.returncode == 1
    assert all(line.startswith(bad) for line in done.stdout.splitlines())
    assert len(done.stdout.splitlines()) == 2, "its subject, and its body"
    whole = repository.git("rev-parse", "HEAD").strip()
    with (repository.folder / "tools/commit-base").open("a") as file:
        file.write(f"except {whole} there before\n")
    assert repository.tool("--new").returncode == 0


@pytest.mark.parametrize(("depth", "status"), [(2, 77), (3, 0), (None, 0)])
def test_a_clone_is_checked_if_it_reaches_the_base(
    repository: Repository, depth: int | None, status: int
) -> None:
    """A shallow clone without the base is skipped, with the reason."""
    for number in range(2):
        repository.commit(f"cli: name GPU {number}", 1)
    clone = repository.folder.parent / "clone"
    how = [] if depth is None else ["--depth", str(depth)]
    repository.git("clone", "-q", *how, f"file://{repository.folder}", str(clone))
    done = subprocess.run([TOOL, "--help"], capture_output=True, text=True, check=True)
    assert "77" in done.stdout
    (clone / "tools").mkdir()
    for name in ("commit-msg", "commit-base"):
        (clone / "tools" / name).write_bytes((repository.folder / "tools" / name).read_bytes())
    (clone / "tools/commit-msg").chmod(0o755)
    done = subprocess.run(
        [clone / "tools/commit-msg", "--new"], cwd=clone, capture_output=True, text=True
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert ("shallow" in done.stdout) == (status == 77)


def test_without_a_repository_the_check_is_skipped(repository: Repository, tmp_path: Path) -> None:
    """As in a release's archive."""
    plain = tmp_path / "plain/tools"
    plain.mkdir(parents=True)
    for name in ("commit-msg", "commit-base"):
        (plain / name).write_bytes((repository.folder / "tools" / name).read_bytes())
    (plain / "commit-msg").chmod(0o755)
    environment = os.environ | {"GIT_CEILING_DIRECTORIES": str(tmp_path)}
    command = [plain / "commit-msg", "--new"]
    done = subprocess.run(command, cwd=plain, env=environment, capture_output=True, text=True)
    assert done.returncode == 77
    assert "no git repository" in done.stdout


def test_the_commits_of_this_repository_hold() -> None:
    """The same that the style tier checks."""
    done = subprocess.run([TOOL, "--new"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode == 77:
        pytest.skip(done.stdout.strip())
    assert (done.returncode, done.stdout) == (0, "")
