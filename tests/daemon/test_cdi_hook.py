# SPDX-License-Identifier: MIT
"""rtxg-cdi-hook: a container's cgroup is bound before its first program runs; what a runtime might send by mistake is refused by name."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from conftest import BUILD, Daemon, wait_for
from test_cgroup import Tree, device, moves, tree, vgpu_of  # noqa: F401 - a fixture

HOOK = BUILD / "cdi/rtxg-cdi-hook"


def state(pid: int | None = None, **other: object) -> str:
    """The OCI state of a container."""
    return json.dumps({"ociVersion": "1.0.2", "id": "c" * 64, "status": "creating", "bundle": "/b"} | ({"pid": pid} if pid else {}) | other)


def hook(daemon: Daemon, text: str | bytes, *words: str) -> subprocess.CompletedProcess[bytes]:
    """Call it as a runtime does."""
    return subprocess.run([HOOK, *words], input=text.encode() if isinstance(text, str) else text, env=daemon.environment, capture_output=True,
                          timeout=60)


def container(daemon: Daemon, tree: Tree, path: str) -> int:  # noqa: F811
    """The first process of a container that has not begun; its pid."""
    tree.make(path)
    init = tree.start(path, "sleep", "600", environment=dict(os.environ))
    daemon.children.append(init)
    wait_for("it is there", lambda: str(init.pid) in (tree.folder(path) / "cgroup.procs").read_text().split())
    return init.pid


def test_all_that_runs_in_the_container_is_in_its_vgpu(running: Daemon, tree: Tree) -> None:  # noqa: F811
    """Also what an exec starts; a second call changes nothing; after the container the cgroup is bound no longer."""
    assert running.ask("vgpu-create", vgpu="web", min_ppm=300000)["ok"]
    pid = container(running, tree, "/ctr")
    for _ in range(2):
        done = hook(running, state(pid), "--vgpu", "web")
        assert (done.returncode, done.stderr) == (0, b"")
    assert running.ask("vgpu-list", vgpu="web")["vgpus"][0]["cgroups"] == [tree.name + "/ctr"]
    program = device(running, tree, "/ctr")
    assert vgpu_of(running, program.pid) == "web"
    for child in running.children:
        child.kill()
        child.wait()
    wait_for("it is empty", lambda: not (tree.folder("/ctr") / "cgroup.procs").read_text())
    tree.folder("/ctr").rmdir()
    assert hook(running, state(status="stopped"), "--vgpu", "web").returncode == 0
    keep = running.device("-u", "1", "-n", "1", "-q")
    assert vgpu_of(running, keep.pid) == "default"  # samples are taken while a task is open
    wait_for("it is bound no longer", lambda: running.ask("vgpu-list", vgpu="web")["vgpus"][0]["cgroups"] == [])


def test_a_vgpu_of_its_own_goes_with_the_container(running: Daemon, tree: Tree) -> None:  # noqa: F811
    """Named by the annotation, made with the share that the hook says; twice is once."""
    pid = container(running, tree, "/ctr")
    for _ in range(2):
        done = hook(running, state(pid, annotations={"io.rtxg.vgpu": "job-17"}), "--min", "25%", "--max", "50%")
        assert done.returncode == 0, done.stderr
    made = running.ask("vgpu-list", vgpu="job-17")["vgpus"][0]
    assert (made["min_ppm"], made["max_ppm"], made["origin"], made["cgroups"]) == (250000, 500000, "transient", [tree.name + "/ctr"])
    running.children[0].kill()
    running.children[0].wait()
    wait_for("it has gone", lambda: not running.ask("vgpu-list", vgpu="job-17")["ok"])


@pytest.mark.parametrize(("text", "says"), [
    ("", "nothing came on standard input"), ("{", "is not JSON"), ("[]", "no object"), (b"\xff\xfe", "is not JSON"), ("{}", '"ociVersion" is missing'),
    (state(4242, id=""), '"id" is ""'), (state(4242, id=7), '"id" is 7'), (state(4242, status="paused"), '"status" is "paused"'),
    (state(), '"pid" is missing'), (state(pid="12"), '"pid" is "12"'), (state(pid=-4), '"pid" is -4'), (state(pid=99999999), '"pid" is 99999999'),
    (state(4194303), "there is no process 4194303"), (state(4242, annotations={"io.rtxg.vgpu": "x" * 99}), "longer than 63"),
    ('{"id": 1, "id": 2}', "is not JSON"), ("x" * 1100000, "longer than 1048576 bytes")])
def test_garbage_is_refused_with_the_value(running: Daemon, text: str | bytes, says: str) -> None:
    """And the container does not start; with --fail open it does, and that is said."""
    assert running.ask("vgpu-create", vgpu="web")["ok"]
    done = hook(running, text, "--vgpu", "web")
    assert done.returncode == 1 and says in done.stderr.decode(), done.stderr
    done = hook(running, text, "--vgpu", "web", "--fail", "open")
    assert done.returncode == 0 and "UNMANAGED" in done.stderr.decode()


def test_a_vgpu_that_is_not_there_and_one_that_does_not_fit(running: Daemon, tree: Tree) -> None:  # noqa: F811
    """Both name the container and the vGPU, and leave nothing behind; without a name, and without a host, too."""
    pid = container(running, tree, "/ctr")
    assert running.ask("vgpu-create", vgpu="most", min_ppm=900000)["ok"]
    for words, says in ((("--vgpu", "absent"), "there is no vGPU absent"), (("--vgpu", "own", "--min", "20%"), "10%"), ((), "no vGPU is named")):
        done = hook(running, state(pid), *words)
        assert done.returncode == 1 and says in done.stderr.decode() and "c" * 64 in done.stderr.decode(), done.stderr
    assert [v["vgpu"] for v in running.ask("vgpu-list")["vgpus"]] == ["default", "most"]
    running.environment["RTXG_SOCKET"] = "/nonexistent/rtxgd.sock"
    assert hook(running, state(pid), "--vgpu", "most").returncode == 1
    running.environment["RTXG_SOCKET"] = str(running.socket)
    assert hook(running, "", "--fail", "ajar").returncode == 2


def test_the_specification_has_a_device_for_each_vgpu(running: Daemon) -> None:
    """As CDI 0.5 wants it; a name that CDI does not accept is left out, and that is said."""
    for name in ("web", "a@b"):
        assert running.ask("vgpu-create", vgpu=name)["ok"]
    done = hook(running, "", "--print-spec")
    spec = json.loads(done.stdout)
    assert (spec["cdiVersion"], spec["kind"]) == ("0.5.0", "rtxg.io/vgpu")
    assert [d["name"] for d in spec["devices"]] == ["default", "web"] and b"a@b" in done.stderr
    edit = spec["devices"][1]["containerEdits"]["hooks"][0]
    assert (edit["hookName"], edit["path"], edit["args"]) == ("createRuntime", str(HOOK), ["rtxg-cdi-hook", "--vgpu", "web"])
