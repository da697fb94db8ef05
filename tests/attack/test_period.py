# SPDX-License-Identifier: MIT
"""The period of a vGPU that others use, too, is no ordinary user's to change."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from users import ATTACKER, BUILD, VICTIM, Connection, Stage, base, wait_for

OWN, OTHER = 10_000_000, 100_000


@pytest.fixture(name="gpu")
def _gpu(stage: Stage) -> Iterator[Any]:
    """A system daemon on a fake GPU; root's program in `shared` has its period."""
    if not (BUILD / base.FAKE).exists():
        pytest.skip("built without the NVIDIA lever (libbpf, clang, bpftool)")
    gpu = base.Gpu(stage.daemon)
    stage.daemon.write_config(
        f"[VGPU shared]\n[VGPU few]\nUsers={ATTACKER} {VICTIM}\n[VGPU own]\nUsers={VICTIM}\n"
    )
    try:
        stage.daemon.start(mode="--system", program=base.FAKE)
        for vgpu in ("shared", "few", "own"):
            pid = gpu.process()
            wait_for("it is governed", lambda pid=pid: len(gpu.of(pid)) == 1)
            reply = stage.daemon.ask("task-set", pid=pid, vgpu=vgpu, period_ns=OWN)
            assert reply["ok"], reply
        yield gpu
    finally:
        for program in gpu.programs:
            program.kill()
            program.wait()


def periods(gpu: Any) -> dict[str, int]:
    """Those of the vGPUs."""
    return {name: vgpu for name, vgpu in (
        (task["vgpu"], task["period_ns"]) for task in gpu.daemon.tasks() if task["vgpu"] != "default"
    )}


def set_period(stage: Stage, uid: int, vgpu: str, **more: int) -> Any:
    """The user puts a process of its own there."""

    def main() -> Any:
        return Connection(stage.daemon.socket).ask("task-set", pid=os.getpid(), vgpu=vgpu, **more)

    return stage.run(uid, main).result()


@pytest.mark.parametrize("vgpu", ["shared", "few"])
def test_a_user_changes_no_period_of_a_vgpu_that_others_may_use(stage: Stage, gpu: Any, vgpu: str) -> None:
    """Nor ends it by naming none. The one in force may be named."""
    reply = set_period(stage, ATTACKER, vgpu, period_ns=OTHER)
    assert (reply["ok"], reply.get("error")) == (False, "EUSERS"), reply
    assert "0.1 ms" in reply["message"] and "Users=" in reply["message"], reply
    assert set_period(stage, ATTACKER, vgpu)["ok"]
    assert set_period(stage, ATTACKER, vgpu, period_ns=OWN)["ok"]
    assert periods(gpu) == {"shared": OWN, "few": OWN, "own": OWN}


def test_the_only_user_of_a_vgpu_and_administrators_change_its_period(stage: Stage, gpu: Any) -> None:
    """As before, also to none."""
    assert set_period(stage, VICTIM, "own", period_ns=OTHER)["ok"]
    assert set_period(stage, ATTACKER, "own", period_ns=OWN)["error"] == "EPERM"
    assert periods(gpu)["own"] == OTHER
    assert set_period(stage, VICTIM, "own")["ok"]
    assert periods(gpu)["own"] == 0
    assert set_period(stage, 0, "shared", period_ns=OTHER)["ok"]
    assert periods(gpu)["shared"] == OTHER


def test_a_program_whose_period_is_refused_is_not_started(stage: Stage, gpu: Any) -> None:
    """It does not go to `default` instead, unless that was said; without a period, or with that in force, it starts."""

    def run(*words: str) -> tuple[int, str, str]:
        def main() -> Any:
            done = subprocess.run(
                [str(BUILD / "cli/rtxg"), "run", "--no-layer", *words, "--", "echo", "ran"],
                env=stage.daemon.environment, cwd="/", capture_output=True, text=True, timeout=60,
                check=False)
            return done.returncode, done.stdout, done.stderr

        status, out, error = stage.run(VICTIM, main).result()
        return status, out, error

    status, out, error = run("-v", "shared", "--period", "100us")
    assert (status, out) == (125, "") and "leave the period out" in error, error
    status, out, error = run("-v", "shared", "--period", "100us", "--fail", "open")
    assert (status, out) == (0, "ran\n") and "UNMANAGED because refused" in error, error
    for words in (["shared"], ["shared", "--period", "10ms"], ["own", "--period", "100us"]):
        assert run("-v", *words) == (0, "ran\n", ""), words
    assert periods(gpu) == {"shared": OWN, "few": OWN, "own": OTHER}


def test_a_program_in_a_container_starts(stage: Stage) -> None:
    """Its process has another number there, which is another user's outside."""
    stage.daemon.start(mode="--system")
    assert stage.daemon.ask("vgpu-create", vgpu="v")["ok"]
    words = ["unshare", "--pid", "--fork", "--mount-proc", "setpriv", f"--reuid={ATTACKER}",
             f"--regid={ATTACKER}", "--clear-groups", str(BUILD / "cli/rtxg"), "run", "--no-layer",
             "-v", "v", "--", "echo", "ran"]
    done = subprocess.run(words, env=stage.daemon.environment, cwd="/", capture_output=True, text=True,
                          timeout=60, check=False)
    if "unshare" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
