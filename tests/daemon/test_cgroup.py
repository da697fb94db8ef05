# SPDX-License-Identifier: MIT
"""Programs belong to a vGPU by the cgroup that they are in: real cgroups, for the gate's tasks and for the NVIDIA lever's processes."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import BUILD, Daemon, Gpu, wait_for

HIERARCHIES = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))


class Tree:
    """A cgroup of the test's own, and those below it."""

    def __init__(self) -> None:
        self.root = next((h for h in HIERARCHIES if (h / "cgroup.procs").exists()), None)
        if self.root is None:
            pytest.skip("there is no cgroup2 hierarchy here")
        # Below the cgroup of this process, where that is not the root.
        own = next(line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
        self.name = f"{own.rstrip('/')}/rtxg-test-{os.getpid()}"
        try:
            (self.root / self.name[1:]).mkdir()
        except OSError as error:
            pytest.skip(f"no cgroup can be made here: {error}")

    def folder(self, path: str) -> Path:
        """The folder of a cgroup below the test's own."""
        assert self.root is not None
        return self.root / f"{self.name}{path}"[1:]

    def make(self, path: str) -> str:
        """A cgroup below the test's own; its path from the root of the hierarchy."""
        self.folder(path).mkdir(parents=True, exist_ok=True)
        return self.name + path

    def enter(self, path: str, pid: int | None = None) -> None:
        """Put a process (this one, if none is named) into a cgroup."""
        (self.folder(path) / "cgroup.procs").write_text(str(os.getpid() if pid is None else pid))

    def start(self, path: str, *words: str | Path, environment: dict[str, str]) -> subprocess.Popen[str]:
        """Start a program in a cgroup, as a service or a container does."""
        return subprocess.Popen(["sh", "-c", 'echo $$ > "$0" && exec "$@"', self.folder(path) / "cgroup.procs", *words], env=environment,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def remove(self) -> None:
        """All of them; processes that are left in them go back to where the tests run."""
        top = self.folder("")
        for folder in sorted((top, *(p for p in top.rglob("*") if p.is_dir())), key=lambda p: -len(p.parts)):
            end = time.monotonic() + 20
            while time.monotonic() < end:
                for pid in (folder / "cgroup.procs").read_text().split():
                    try:
                        (top.parent / "cgroup.procs").write_text(pid)
                    except OSError:
                        pass  # it has ended
                try:
                    folder.rmdir()
                    break
                except OSError:
                    time.sleep(0.02)  # one that has just ended is there still


@pytest.fixture
def tree() -> Iterator[Tree]:
    """Cgroups of the test's own."""
    if os.geteuid() != 0:
        pytest.skip("making cgroups needs root")
    one = Tree()
    yield one
    one.remove()


def device(daemon: Daemon, tree: Tree, path: str, *words: str) -> subprocess.Popen[str]:
    """A program of the gate's in a cgroup, which stays until the daemon's fixture ends it."""
    child = tree.start(path, BUILD / "tests/conform/device", *(words or ("-u", "1", "-n", "1", "-q")), environment=daemon.environment)
    daemon.children.append(child)
    return child


def vgpu_of(daemon: Daemon, pid: int) -> str:
    """The vGPU of a program's task, as soon as it has one."""
    return wait_for("it has a task", lambda: daemon.tasks(pid=pid))[0]["vgpu"]


def moves(daemon: Daemon, pid: int, vgpu: str) -> None:
    """Wait until a program is in that vGPU."""
    wait_for(f"it is in {vgpu}", lambda: [t["vgpu"] for t in daemon.tasks(pid=pid)] == [vgpu])


def test_a_program_in_a_bound_cgroup_or_below_it_is_in_its_vgpu(running: Daemon, tree: Tree) -> None:
    """Also one that an exec of a container starts there, without a wrapper; the deepest cgroup counts; a program that names a vGPU has that."""
    web, deep = tree.make("/web"), tree.make("/web/gpu")
    tree.make("/other")
    assert running.ask("vgpu-create", vgpu="web", min_ppm=300000, cgroup=web + "/")["ok"]
    assert running.ask("vgpu-create", vgpu="deep")["ok"]
    assert running.ask("cgroup-bind", vgpu="deep", cgroup="/sys/fs/cgroup" + deep)["vgpu"]["cgroups"] == [deep]
    assert vgpu_of(running, device(running, tree, "/web").pid) == "web"
    assert vgpu_of(running, device(running, tree, "/web/gpu").pid) == "deep"
    tree.make("/web/side")
    assert vgpu_of(running, device(running, tree, "/web/side").pid) == "web"
    assert vgpu_of(running, device(running, tree, "/other").pid) == "default"
    listed = {v["vgpu"]: v["cgroups"] for v in running.ask("vgpu-list")["vgpus"]}
    assert listed == {"default": [], "web": [web], "deep": [deep]}
    running.environment["RTXG_VGPU"] = "deep"
    assert vgpu_of(running, device(running, tree, "/web").pid) == "deep"


def test_programs_that_run_already_are_moved_when_their_cgroup_is_bound(running: Daemon, tree: Tree) -> None:
    """And back when it is unbound; one that was put somewhere by hand stays there."""
    web = tree.make("/web")
    for name in ("web", "hand"):
        assert running.ask("vgpu-create", vgpu=name)["ok"]
    first, second = device(running, tree, "/web"), device(running, tree, "/web")
    assert vgpu_of(running, first.pid) == vgpu_of(running, second.pid) == "default"
    assert running.ask("task-set", pid=second.pid, vgpu="hand")["ok"]
    moves(running, second.pid, "hand")
    assert running.ask("cgroup-bind", vgpu="web", cgroup=web)["ok"]
    moves(running, first.pid, "web")
    assert running.ask("cgroup-unbind", vgpu="web", cgroup=web)["vgpu"]["cgroups"] == []
    moves(running, first.pid, "default")
    moves(running, second.pid, "hand")


def test_a_program_that_is_put_into_another_cgroup_changes_over(running: Daemon, tree: Tree) -> None:
    """As a job that its scheduler adopts; when the cgroup is removed and made again its name still counts."""
    for name in ("a", "b"):
        assert running.ask("vgpu-create", vgpu=name, cgroup=tree.make("/" + name))["ok"]
    program = device(running, tree, "/a")
    assert vgpu_of(running, program.pid) == "a"
    tree.enter("/b", program.pid)
    moves(running, program.pid, "b")
    wait_for("it is empty", lambda: not (tree.folder("/a") / "cgroup.procs").read_text())
    tree.folder("/a").rmdir()
    assert running.ask("vgpu-list", vgpu="a")["vgpus"][0]["cgroups"] == [tree.name + "/a"]
    moves(running, program.pid, "b")
    tree.make("/a")
    assert vgpu_of(running, device(running, tree, "/a").pid) == "a"


def test_cgroups_are_found_again_after_a_restart(daemon: Daemon, tree: Tree) -> None:
    """The next daemon, after kill -9, has the bindings of the one before; a binding made with --persist is in the configuration."""
    daemon.start()
    web, kept = tree.make("/web"), tree.make("/kept")
    assert daemon.ask("vgpu-create", vgpu="web", cgroup=web)["ok"]
    assert daemon.ask("vgpu-create", vgpu="kept", persist=True)["ok"]
    assert daemon.ask("cgroup-bind", vgpu="kept", cgroup=kept, persist=True)["ok"]
    dropin = next((daemon.folder / "root/etc/rtxg/rtxg.conf.d").glob("50-vgpu-kept.conf"))
    assert f"Cgroup={kept}\n" in dropin.read_text()
    program = device(daemon, tree, "/web", "-u", "1000", "-s", "-p", "20000", "-d", "600")
    assert vgpu_of(daemon, program.pid) == "web"
    daemon.kill()
    daemon.start()
    moves(daemon, program.pid, "web")
    assert vgpu_of(daemon, device(daemon, tree, "/kept").pid) == "kept"
    # The configuration says it no longer: it is gone with the next reading, and the other one is not.
    dropin.write_text(dropin.read_text().replace(f"Cgroup={kept}\n", ""))
    assert daemon.ask("reload")["errors"] == 0
    assert vgpu_of(daemon, device(daemon, tree, "/kept").pid) == "default"
    moves(daemon, program.pid, "web")
    daemon.healthy()


def test_the_configuration_names_cgroups_by_path_pattern_and_unit(daemon: Daemon, tree: Tree) -> None:
    """[VGPU] Cgroup= and [Match] Cgroup=; conditions of one rule hold together; a unit's name is that of a cgroup of the system's."""
    for path in ("/exact", "/pods/pod1/app", "/pods/pod2/app", "/x/rtxg-camera.service/inner"):
        tree.make(path)
    daemon.write_config(f"""\
[VGPU exact]
Cgroup={tree.name}/exact
Cgroup=rtxg-camera.service
[VGPU pods]
[VGPU none]
[Match]
Cgroup={tree.name}/pods/*/app
Exec=another
VGPU=none
[Match]
Cgroup={tree.name}/pods/pod[1]/*
VGPU=pods
""")
    daemon.start()
    assert vgpu_of(daemon, device(daemon, tree, "/exact").pid) == "exact"
    assert vgpu_of(daemon, device(daemon, tree, "/pods/pod1/app").pid) == "pods"
    assert vgpu_of(daemon, device(daemon, tree, "/pods/pod2/app").pid) == "default"
    assert vgpu_of(daemon, device(daemon, tree, "/x/rtxg-camera.service/inner").pid) == "exact"
    # A user that calls a cgroup of its own so does not get the unit's vGPU.
    nobody = pwd.getpwnam("nobody").pw_uid
    os.chown(tree.folder("/x/rtxg-camera.service"), nobody, -1)
    assert vgpu_of(daemon, device(daemon, tree, "/x/rtxg-camera.service/inner").pid) == "default"
    daemon.healthy()


def test_a_slice_is_the_systems_and_no_users(daemon: Daemon, tree: Tree) -> None:
    """[Match] Slice=: a user that calls a cgroup of its own so is not in it, nor one that has the
    mark of another hierarchy in its name.
    """
    for path in ("/robot.slice/inner", "/x/robot.slice/inner", "/:name=systemd:/robot.slice/inner"):
        tree.make(path)
    daemon.write_config("[VGPU robot]\n[Match]\nSlice=robot.sl*\nVGPU=robot\n")
    daemon.start()
    assert vgpu_of(daemon, device(daemon, tree, "/robot.slice/inner").pid) == "robot"
    nobody = pwd.getpwnam("nobody").pw_uid
    for path in ("/x/robot.slice", "/:name=systemd:/robot.slice"):
        os.chown(tree.folder(path), nobody, -1)
        assert vgpu_of(daemon, device(daemon, tree, f"{path}/inner").pid) == "default"
    daemon.healthy()


def test_a_service_that_is_started_again_is_found_by_its_name(
    running: Daemon, tree: Tree
) -> None:
    """Its cgroup goes and another one of the name comes: what is bound need not be there."""
    assert running.ask("vgpu-create", vgpu="web", cgroup=tree.make("/web"))["ok"]
    for _ in range(3):
        program = device(running, tree, "/web")
        assert vgpu_of(running, program.pid) == "web"
        program.kill()
        program.wait()
        wait_for("it is empty", lambda: not (tree.folder("/web") / "cgroup.procs").read_text())
        tree.folder("/web").rmdir()
        keep = running.device("-u", "1", "-n", "1", "-q")
        assert vgpu_of(running, keep.pid) == "default"
        (bound,) = running.ask("vgpu-list", vgpu="web")["vgpus"]
        assert bound["cgroups"] == [tree.name + "/web"]
        tree.make("/web")


def test_a_program_that_changed_its_cgroup_is_found_again_there(
    running: Daemon, tree: Tree
) -> None:
    """It named no vGPU: to the next daemon it does not name the one that it was in at first."""
    assert running.ask("vgpu-create", vgpu="web", cgroup=tree.make("/web"))["ok"]
    program = running.device("-u", "1000", "-s", "-p", "20000", "-d", "600")
    assert vgpu_of(running, program.pid) == "default"
    tree.enter("/web", program.pid)
    moves(running, program.pid, "web")
    running.kill()
    running.start()
    moves(running, program.pid, "web")


@pytest.mark.slow
def test_an_opencl_program_is_in_the_vgpu_of_its_cgroup(running: Daemon, tree: Tree) -> None:
    """Under the layer: started there, put there later as by docker exec, and after a restart."""
    program = BUILD / "demo/nbody"
    if not program.exists():
        pytest.skip("built without the OpenCL headers and loader")
    layered = running.environment | {
        "OPENCL_LAYERS": str(BUILD / "layers/opencl/librtxg-opencl.so"),
        "POCL_MAX_PTHREAD_COUNT": "1",
    }
    words = (program, "--work", "20", "--seconds", "600")
    assert running.ask("vgpu-create", vgpu="web", cgroup=tree.make("/web"))["ok"]
    tree.make("/web/deep")
    inside = tree.start("/web/deep", *words, environment=layered)
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    outside = subprocess.Popen(words, env=layered, text=True, **pipes)
    running.children += [inside, outside]

    def ready() -> bool:
        for child in (inside, outside):
            if child.poll() is not None:
                pytest.skip(f"no OpenCL device: {child.communicate()[1][-300:]}")
        return bool(running.tasks(pid=inside.pid) and running.tasks(pid=outside.pid))

    wait_for("both have tasks", ready)
    moves(running, inside.pid, "web")
    moves(running, outside.pid, "default")
    tree.enter("/web/deep", outside.pid)
    moves(running, outside.pid, "web")
    running.kill()
    running.start()
    moves(running, inside.pid, "web")
    moves(running, outside.pid, "web")


@pytest.mark.parametrize(("cgroup", "says"), [
    ("", "1 to 511 bytes"), ("robot", "begins with /"), ("a/b.slice", "begins with /"), ("/", "every process"), ("/a//b", "empty component"),
    ("/a/../b", ".."), ("/a\nb", "control character"), ("/" + "x" * 511, "511"), ("/a\0b", "JSON"), (7, "must be a string")])
def test_names_that_are_no_cgroup_are_refused(running: Daemon, cgroup: object, says: str) -> None:
    """With what is accepted; a vGPU that was to be made with it is not made."""
    for op in ("vgpu-create", "cgroup-bind"):
        reply = running.ask(op, vgpu="default" if op == "cgroup-bind" else "new", cgroup=cgroup)
        assert not reply["ok"] and says in reply["message"], reply
    assert [v["vgpu"] for v in running.ask("vgpu-list")["vgpus"]] == ["default"]
    assert "has no cgroup /none" in running.ask("cgroup-unbind", vgpu="default", cgroup="/none")["message"]
    assert running.ask("cgroup-bind", vgpu="absent", cgroup="/a")["error"] == "ENOENT"


def rtxg(daemon: Daemon, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """The command-line tool."""
    return subprocess.run([BUILD / "cli/rtxg", *words], env=daemon.environment, capture_output=True, text=True, timeout=60)


def test_the_command_line_binds_and_starts_in_cgroups(running: Daemon, tree: Tree) -> None:
    """create and set take several; a refused one leaves no vGPU; run starts in a cgroup and binds that for the run only."""
    a, b, job = tree.make("/a"), tree.make("/b"), tree.make("/job")
    tree.make("/job/below")
    done = rtxg(running, "vgpu", "create", "web", "--min", "30%", "--cgroup", a, "--cgroup", b, "--persist")
    assert done.returncode == 0, done.stderr
    assert f"Cgroup={a}\nCgroup={b}\n" in next((running.folder / "root/etc/rtxg/rtxg.conf.d").glob("50-*")).read_text()
    assert rtxg(running, "vgpu", "set", "web", "--no-cgroup", b, "--max", "60%").returncode == 0
    web = json.loads(rtxg(running, "vgpu", "ls", "-J", "-o", "+CGROUPS", "web").stdout)["vgpus"][0]
    assert (web["cgroups"], web["max"]) == (a, 0.6)
    done = rtxg(running, "vgpu", "create", "bad", "--cgroup", a + "/x", "--cgroup", "bad")
    assert done.returncode == 1 and "begins with /" in done.stderr
    assert [v["vgpu"] for v in running.ask("vgpu-list")["vgpus"]] == ["default", "web"]
    for words, says in ((("none",), "path of a cgroup"), (("/none",), "there is no cgroup")):
        done = rtxg(running, "run", "--no-layer", "--cgroup", *words, "--", "true")
        assert done.returncode == 125 and says in done.stderr
    program = subprocess.Popen([BUILD / "cli/rtxg", "run", "--no-layer", "--cgroup", f"/sys/fs/cgroup{job}", "--min", "20%", "--",
                                BUILD / "tests/conform/device", "-u", "1", "-n", "1", "-q"], env=running.environment,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    running.children.append(program)
    own = vgpu_of(running, program.pid)
    assert own == f"run-{program.pid}" and str(program.pid) in (tree.folder("/job") / "cgroup.procs").read_text().split()
    other = device(running, tree, "/job/below")
    assert vgpu_of(running, other.pid) == own
    for one in (program, other):
        one.kill()
        one.wait()
    wait_for("the vGPU has gone", lambda: own not in [v["vgpu"] for v in running.ask("vgpu-list")["vgpus"]])


def test_a_process_names_its_cgroup(running: Daemon, tree: Tree) -> None:
    """By a pid, as the hook of a container does; without one it is the client's own; no process, and the root, are refused."""
    tree.make("/job")
    assert running.ask("vgpu-create", vgpu="job")["ok"]
    sleeper = tree.start("/job", "sleep", "600", environment=dict(os.environ))
    running.children.append(sleeper)
    wait_for("it is there", lambda: str(sleeper.pid) in (tree.folder("/job") / "cgroup.procs").read_text().split())
    assert running.ask("cgroup-bind", vgpu="job", pid=sleeper.pid)["vgpu"]["cgroups"] == [tree.name + "/job"]
    assert "not both" in running.ask("cgroup-bind", vgpu="job", pid=1, cgroup="/a")["message"]
    assert "no process" in running.ask("cgroup-bind", vgpu="job", pid=2**22 - 1)["message"]
    if tree.name.count("/") == 1:  # this process is in the root
        assert "in the root" in running.ask("cgroup-bind", vgpu="job")["message"]


def as_nobody(daemon: Daemon, requests: list[dict[str, object]]) -> list[dict[str, object]]:
    """What an ordinary user's requests are answered."""
    account = pwd.getpwnam("nobody")
    program = ("import json, socket, sys\n"
               "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(sys.argv[1])\n"
               "for r in json.loads(sys.argv[2]):\n"
               "    s.send(json.dumps(r).encode()); print(s.recv(1 << 17).decode())\n")
    done = subprocess.run(["python3", "-c", program, daemon.socket, json.dumps(requests)], user=account.pw_uid, group=account.pw_gid,
                          extra_groups=[], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def public(daemon: Daemon) -> Daemon:
    """A system daemon that other users reach."""
    for folder in (daemon.folder, *daemon.folder.parents):
        if folder != Path("/") and folder.stat().st_uid == os.geteuid() and folder != Path("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o011)
    daemon.start(mode="--system")
    daemon.socket.chmod(0o666)
    return daemon


def test_a_user_binds_its_own_cgroups_only_and_only_for_itself(public: Daemon, tree: Tree) -> None:
    """Others' cgroups, units, vGPUs that are not open to it and others' bindings are refused. Processes of other users stay where they were."""
    nobody = pwd.getpwnam("nobody").pw_uid
    own, others = tree.make("/own"), tree.make("/others")
    os.chown(tree.folder("/own"), nobody, -1)
    assert public.ask("vgpu-create", vgpu="open")["ok"]
    public.write_config("[VGPU closed]\nUsers=root\n")
    assert public.ask("reload")["errors"] == 0
    bind = {"op": "cgroup-bind", "vgpu": "open"}
    replies = as_nobody(public, [bind | {"cgroup": others}, bind | {"cgroup": "camera.service"}, bind | {"vgpu": "closed", "cgroup": own},
                                 bind | {"cgroup": own + "/absent"}, bind | {"cgroup": own, "persist": True}, bind | {"cgroup": own},
                                 {"op": "vgpu-create", "vgpu": "x", "cgroup": own}])
    assert [r.get("error") for r in replies] == ["EPERM", "EPERM", "EACCES", "ENOENT", "EPERM", None, "EPERM"], replies
    assert "belongs to user 0" in str(replies[0]["message"])
    # What the user bound holds for that user's processes: root's in the same cgroup are not taken along.
    assert vgpu_of(public, device(public, tree, "/own").pid) == "default"
    program = subprocess.Popen(["sleep", "600"], user=nobody)
    public.children.append(program)  # type: ignore[arg-type]
    tree.enter("/own", program.pid)
    assert public.ask("cgroup-bind", vgpu="open", cgroup=others)["ok"]
    replies = as_nobody(public, [{"op": "cgroup-unbind", "vgpu": "open", "cgroup": others}, bind | {"vgpu": "default", "cgroup": others},
                                 {"op": "cgroup-unbind", "vgpu": "open", "cgroup": own}])
    assert [r.get("error") for r in replies] == ["EACCES", "EPERM", None], replies


def test_what_one_user_binds_is_bounded(public: Daemon, tree: Tree) -> None:
    """The next cgroup is refused with the limit; it is shown, also once the user has gone; another
    user still binds.
    """
    nobody = pwd.getpwnam("nobody").pw_uid
    paths = [tree.make(f"/many/{i}") for i in range(65)]
    for i in range(65):
        os.chown(tree.folder(f"/many/{i}"), nobody, -1)
    replies = as_nobody(public, [{"op": "cgroup-bind", "vgpu": "default", "cgroup": p} for p in paths])
    assert [r["ok"] for r in replies] == [True] * 64 + [False]
    assert "64" in str(replies[-1]["message"])
    assert public.ask("cgroup-bind", vgpu="default", cgroup="/another")["ok"]
    used = {u["uid"]: u["cgroups"] for u in public.ask("limits")["users"]}
    assert used[nobody] == {"used": 64, "max": 64} and used[0]["used"] == 0
    checks = {c["check"]: c for c in public.ask("doctor")["checks"]}
    assert (
        not checks[f"user {nobody}"]["ok"]
        and "64 of 64 cgroups" in checks[f"user {nobody}"]["detail"]
    )
    assert public.ask("cgroup-unbind", vgpu="default", cgroup=paths[0])["ok"]
    used = {u["uid"]: u["cgroups"] for u in public.ask("limits")["users"]}
    assert used[nobody]["used"] == 63


def test_what_users_bind_leaves_cgroups_for_others_and_for_root(daemon: Daemon) -> None:
    """However many users take what they can: here by what a daemon before kept of sixteen."""
    lines = [
        {
            "op": "cgroup",
            "vgpu": "default",
            "cgroup": f"/u{uid}/{i}",
            "uid": uid,
            "transient": False,
        }
        for uid in range(62000, 62016)
        for i in range(64)
    ]
    head = {
        "rtxg-state": 1,
        "boot": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "lines": len(lines),
    }
    state = Path(f"{daemon.socket}.state")
    state.write_text("".join(json.dumps(line) + "\n" for line in (head, *lines)))
    state.chmod(0o600)
    daemon.start()
    used = {u["uid"]: u["cgroups"]["used"] for u in daemon.ask("limits")["users"] if u["uid"]}
    assert max(used.values()) == 64 and 768 - 64 < sum(used.values()) <= 768, used
    for i in range(256):
        assert daemon.ask("cgroup-bind", vgpu="default", cgroup=f"/of-root/{i}")["ok"]


def test_a_client_in_another_cgroup_namespace_names_processes_not_paths(running: Daemon, tree: Tree) -> None:
    """A path means another cgroup there, so it is refused with what to say instead; a pid is bound as the host calls its cgroup."""
    tree.make("/ctr/inner")
    if subprocess.run(["unshare", "--cgroup", "true"], capture_output=True).returncode:
        pytest.skip("no cgroup namespace can be made here")
    program = ("import json, os, socket, sys\n"
               "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(sys.argv[1])\n"
               "for r in ({'cgroup': '/inner'}, {'pid': os.getpid()}):\n"
               "    s.send(json.dumps({'op': 'cgroup-bind', 'vgpu': 'default'} | r).encode()); print(s.recv(1 << 17).decode())\n")
    done = tree.start("/ctr", "unshare", "--cgroup", "python3", "-c", program, running.socket, environment=running.environment)
    out, err = done.communicate(timeout=60)
    refused, bound = [json.loads(line) for line in out.splitlines()]
    assert refused["error"] == "EXDEV" and "by its pid" in refused["message"], err
    assert bound["vgpu"]["cgroups"] == [tree.name + "/ctr"]


# --- the NVIDIA lever ---------------------------------------------------------------------------


@pytest.fixture
def governed(gpu: Gpu, tree: Tree) -> Callable[[str], int]:
    """A function that starts a process with a context in a cgroup; its pid."""

    def start(path: str) -> int:
        program = subprocess.Popen(["sleep", "600"])
        gpu.programs.append(program)  # type: ignore[arg-type]
        wait_for("it runs", lambda: Path(f"/proc/{program.pid}/comm").read_text() == "sleep\n")
        tree.enter(path, program.pid)
        return gpu.process(pid=program.pid)

    return start


def is_in(gpu: Gpu, pid: int, vgpu: str) -> None:
    """Wait until a process is in that vGPU."""
    wait_for(f"it is in {vgpu}", lambda: [t["vgpu"] for t in gpu.of(pid)] == [vgpu])


def test_a_cuda_program_is_in_the_vgpu_of_its_cgroup(gpu: Gpu, tree: Tree, governed: Callable[[str], int]) -> None:
    """From its first context on, or as soon as its cgroup is bound; it changes over with its cgroup; what was put by hand stays."""
    gpu.start()
    for name in ("a", "b"):
        assert gpu.daemon.ask("vgpu-create", vgpu=name, min_ppm=300000, cgroup=tree.make("/" + name))["ok"]
    tree.make("/late")
    first, late, hand = governed("/a"), governed("/late"), governed("/a")
    is_in(gpu, first, "a")
    is_in(gpu, late, "default")
    assert gpu.daemon.ask("task-set", pid=hand, vgpu="default")["ok"]
    assert gpu.daemon.ask("cgroup-bind", vgpu="b", cgroup=tree.name + "/late")["ok"]
    is_in(gpu, late, "b")
    tree.enter("/b", first)
    is_in(gpu, first, "b")
    # The vGPU goes: what was in it by its cgroup belongs elsewhere, also when there is such a vGPU again.
    assert gpu.daemon.ask("vgpu-remove", vgpu="b")["ok"]
    is_in(gpu, first, "default")
    assert gpu.daemon.ask("vgpu-create", vgpu="b", cgroup=tree.name + "/b")["ok"]
    is_in(gpu, first, "b")
    is_in(gpu, late, "default")


def test_cuda_programs_are_found_again_by_their_cgroup_after_a_restart(gpu: Gpu, tree: Tree, governed: Callable[[str], int]) -> None:
    """The next daemon adopts them into the vGPUs of their cgroups; [Match] rules hold for CUDA programs, too."""
    gpu.daemon.write_config("[VGPU sleepers]\n[Match]\nExec=sleep\nVGPU=sleepers\n")
    gpu.start()
    assert gpu.daemon.ask("vgpu-create", vgpu="a", cgroup=tree.make("/a"))["ok"]
    tree.make("/other")
    first, other = governed("/a"), governed("/other")
    is_in(gpu, first, "a")
    is_in(gpu, other, "sleepers")
    gpu.daemon.kill()
    gpu.start()
    is_in(gpu, first, "a")
    is_in(gpu, other, "sleepers")


def test_a_program_runs_with_a_limit_on_its_memory_or_not_at_all(gpu: Gpu, tree: Tree, tmp_path: Path) -> None:
    """run --memory limits its cgroup for the run; where no driver limits memory, or no cgroup is given, nothing is started."""
    told = tmp_path / "nvml"
    told.write_text("")
    gpu.daemon.environment |= {"LD_LIBRARY_PATH": str(BUILD / "tests/levers"), "RTXG_FAKE_NVML": str(told)}
    gpu.start()
    job = tree.make("/job")
    words = ["run", "--no-layer", "-g", "nvidia0", "--memory", "4G"]
    done = rtxg(gpu.daemon, *words, "--", "true")
    assert done.returncode == 125 and "--memory goes with --cgroup" in done.stderr
    words += ["--cgroup", job, "--", "sh", "-c", "echo started; read x"]
    program = subprocess.Popen([BUILD / "cli/rtxg", *words], env=gpu.daemon.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               text=True)
    gpu.daemon.children.append(program)
    assert program.stdin and program.stdout and program.stdout.readline() == "started\n"
    (one,) = gpu.daemon.ask("vgpu-list", vgpu=f"run-{program.pid}")["vgpus"]
    assert one["memory_bytes"] == 4 << 30 and one["memory_limit"]["state"] == "held", one
    assert str(tree.folder("/job")) in told.read_text() and str(4 << 30) in told.read_text()
    program.communicate("\n", timeout=60)
    told.with_suffix(".fail").write_text("3")
    gpu.daemon.kill()
    gpu.start()
    done = rtxg(gpu.daemon, *words)
    assert done.returncode == 125 and "started" not in done.stdout and "memory" in done.stderr, done
