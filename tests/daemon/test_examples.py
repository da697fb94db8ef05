# SPDX-License-Identifier: MIT
"""The integrations under examples/: what can run without the other program runs, against a daemon and real cgroups."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
from conftest import BUILD, ROOT, Daemon, wait_for
from test_cdi_hook import container, state
from test_cgroup import Tree, device, tree, vgpu_of  # noqa: F401 - a fixture

EXAMPLES = ROOT / "examples"
FOLDERS = ("containers", "jupyterhub", "llm", "order", "ros2", "slurm", "systemd")


def environment(daemon: Daemon, **other: str) -> dict[str, str]:
    """Of a program that finds rtxg in PATH."""
    return daemon.environment | {"PATH": f"{BUILD / 'cli'}:{os.environ['PATH']}"} | other


def vgpus(daemon: Daemon) -> dict[str, dict[str, object]]:
    """All but the default one, by name."""
    return {v["vgpu"]: v for v in daemon.ask("vgpu-list")["vgpus"] if v["vgpu"] != "default"}


def test_the_list_of_examples_names_each_folder() -> None:
    """And no other."""
    listed = re.findall(r"^\| \[(\w+)\]\(\1\) \|", (EXAMPLES / "README.md").read_text(), re.M)
    assert (
        sorted(listed)
        == sorted(FOLDERS)
        == sorted(f.name for f in EXAMPLES.iterdir() if f.is_dir())
    )


@pytest.mark.parametrize("name", FOLDERS)
def test_a_readme_has_one_screen(name: str) -> None:
    """And names no file that is not there."""
    text = (EXAMPLES / name / "README.md").read_text()
    assert len(text.splitlines()) <= 40
    for file in (EXAMPLES / name).iterdir():
        assert file.name == "README.md" or file.name in text or file.name in "".join(
            f.read_text() for f in (EXAMPLES / name).iterdir() if f.is_file()), f"{file.name} is not mentioned"


def test_a_service_gets_the_vgpu_of_its_unit(daemon: Daemon, tree: Tree) -> None:  # noqa: F811
    """The configuration as it stands, and a cgroup of that unit's name."""
    daemon.write_config((EXAMPLES / "systemd/camera.conf").read_text())
    daemon.start()
    camera = vgpus(daemon)["camera"]
    assert (camera["min_ppm"], camera["max_ppm"], camera["cgroups"]) == (400000, 600000, ["camera.service"])
    tree.make("/system.slice/camera.service")
    assert vgpu_of(daemon, device(daemon, tree, "/system.slice/camera.service").pid) == "camera"


def test_a_container_gets_the_vgpu_of_its_device(running: Daemon, tree: Tree) -> None:  # noqa: F811
    """The hook with the arguments that the specification has."""
    spec = json.loads((EXAMPLES / "containers/own.json").read_text())
    edit = spec["devices"][0]["containerEdits"]["hooks"][0]
    assert edit["path"] == "/usr/libexec/rtxg/rtxg-cdi-hook"
    pid = container(running, tree, "/ctr")
    done = subprocess.run([BUILD / "cdi/rtxg-cdi-hook", *edit["args"][1:]], input=state(pid, annotations={"io.rtxg.vgpu": "job-17"}), text=True,
                          env=running.environment, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert vgpus(running)["job-17"]["min_ppm"] == 250000
    assert vgpu_of(running, device(running, tree, "/ctr").pid) == "job-17"


def test_a_slurm_job_gets_its_shards(running: Daemon, tree: Tree) -> None:  # noqa: F811
    """Prolog twice, a step, epilog twice; a job that does not fit fails its prolog with the reason,
    and so does one that Slurm does not know; a number that is none is refused. What `scontrol show
    job` prints is that of Slurm 22.05 and of 24.05.
    """
    tree.make("/job_4242/step_0")
    tools = running.folder / "tools"
    tools.mkdir()

    def run(script: str, job: str, tres: str | None = "") -> subprocess.CompletedProcess[str]:
        record = (
            f"JobId={job} JobName=x\n   NodeList=n\n   {tres}\n   OverSubscribe=OK"
            if tres is not None
            else ""
        )
        (tools / "record").write_text(record)
        (tools / "scontrol").write_text(
            f"#!/bin/sh\n[ -s {tools}/record ] || {{ echo Invalid job id specified >&2; exit 1; }}\ncat {tools}/record\n"
        )
        (tools / "scontrol").chmod(0o755)
        own = environment(running, SLURM_JOB_ID=job, RTXG_CGROUP=f"{tree.name}/job_ID")
        return subprocess.run(
            [EXAMPLES / f"slurm/rtxg-{script}"],
            capture_output=True,
            text=True,
            timeout=60,
            env=own | {"PATH": f"{tools}:{own['PATH']}"},
        )

    for _ in range(2):
        done = run("prolog", "4242", "TresPerNode=gres:shard:30")
        assert done.returncode == 0, done.stderr
    made = vgpus(running)["slurm-4242"]
    assert (made["min_ppm"], made["cgroups"]) == (300000, [f"{tree.name}/job_4242"])
    step = device(running, tree, "/job_4242/step_0")
    assert vgpu_of(running, step.pid) == "slurm-4242"
    done = run("prolog", "4243", "TresPerNode=gres/shard:a100:80")
    assert done.returncode != 0 and "70%" in done.stderr
    done = run("prolog", "4243", None)
    assert done.returncode != 0 and "Invalid job id" in done.stderr
    assert run("prolog", "4244").returncode == 0 and vgpus(running)["slurm-4244"]["min_ppm"] == 0
    step.kill()
    step.wait()
    wait_for("its task has gone", lambda: not running.tasks())
    for job in ("4242", "4242", "4244"):
        assert run("epilog", job).returncode == 0
    assert vgpus(running) == {}
    assert "a number is accepted" in run("prolog", "42;rm").stderr


def test_ros_nodes_start_with_their_prefix(running: Daemon) -> None:
    """Mock nodes; without the layer, which a node of CUDA does not need."""
    for name in ("perception", "mapping"):
        assert running.ask("vgpu-create", vgpu=name)["ok"]
    assert running.ask("vgpu-set", vgpu="perception", task_priority=50)["ok"]
    if os.geteuid() != 0:
        pytest.skip("a CPU policy needs root")
    done = subprocess.run([sys.executable, EXAMPLES / "ros2/robot.launch.py"], capture_output=True, text=True, timeout=120,
                          env=environment(running, RTXG_MOCK="1", RTXG_MOCK_RUN="--no-layer"))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["mapping: vGPU mapping, priority -, CPU policy other",
                                                "perception: vGPU perception, priority 50, CPU policy fifo"]


def test_a_user_of_the_hub_gets_a_share_and_loses_it(running: Daemon, monkeypatch: pytest.MonkeyPatch,
                                                     caplog: pytest.LogCaptureFixture) -> None:
    """By the user's group; a share that does not fit is left out, and that is said; a second server of the user finds its vGPU."""
    for name, value in environment(running).items():
        monkeypatch.setenv(name, value)
    hooks: dict[str, object] = {}
    exec((EXAMPLES / "jupyterhub/rtxg_hooks.py").read_text(), hooks)

    def spawner(name: str, *groups: str) -> SimpleNamespace:
        user = SimpleNamespace(name=name, id=7, groups=[SimpleNamespace(name=g) for g in groups])
        return SimpleNamespace(
            user=user, unit_name=f"jupyter-{name}-singleuser", log=logging.getLogger("hub")
        )

    start, stop = hooks["rtxg_pre_spawn"], hooks["rtxg_post_stop"]
    start(spawner("ann lee", "staff"))  # type: ignore[operator]
    made = vgpus(running)["jupyter-ann_lee-7"]
    assert (made["min_ppm"], made["cgroups"]) == (
        300000,
        [r"jupyter-ann\x20lee-singleuser.service"],
    )
    start(spawner("ann lee", "staff"))  # type: ignore[operator]
    assert vgpus(running)["jupyter-ann_lee-7"]["min_ppm"] == 300000
    assert running.ask("vgpu-create", vgpu="most", min_ppm=700000)["ok"]
    start(spawner("bob", "guests", "students"))  # type: ignore[operator]
    assert vgpus(running)["jupyter-bob"]["min_ppm"] == 0 and "limit is 0%" in caplog.text
    for name in ("ann lee", "bob"):
        stop(spawner(name))  # type: ignore[operator]
    assert list(vgpus(running)) == ["most"]


def test_two_engines_have_their_vgpus_while_they_run(running: Daemon) -> None:
    """Programs that stand for the engines; the vGPUs go when one ends; a command that is missing is asked for."""
    script = EXAMPLES / "llm/two-engines"
    done = subprocess.run([script], env=environment(running), capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "CHAT=" in done.stderr
    marks = running.folder / "marks"
    (running.folder / "engine").write_text(f"#!/bin/sh\necho $1 $RTXG_VGPU >> {marks}\nexec sleep $2\n")
    (running.folder / "engine").chmod(0o755)
    engines = subprocess.Popen([script], env=environment(running, BOUND="", CHAT=f"{running.folder}/engine chat 600",
                                                         BATCH=f"{running.folder}/engine batch 600"))
    running.children.append(engines)  # type: ignore[arg-type]
    wait_for("both run", lambda: marks.exists() and sorted(marks.read_text().splitlines()) == ["batch batch", "chat chat"])
    assert {n: v["min_ppm"] for n, v in vgpus(running).items()} == {"chat": 300000, "batch": 0}
    engines.terminate()
    engines.wait(60)
    wait_for("the vGPUs have gone", lambda: vgpus(running) == {})
