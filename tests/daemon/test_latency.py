# SPDX-License-Identifier: MIT
"""Bounds on latency: asked for, admitted with numbers or refused, shown, taken back; on a fake NVIDIA GPU and under the gate."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest
from conftest import BUILD, ROOT, Daemon, Gpu, Reply, wait_for

sys.path.insert(0, str(ROOT / "tests" / "gpu"))

from cases.admitted import Card, Periodic, plain, promised  # noqa: E402
from harness import Setup  # noqa: E402
from product import Product, Programs, long_waits  # noqa: E402

MS = 1_000_000


def rtxg(daemon: Daemon, *words: str) -> subprocess.CompletedProcess[str]:
    """The command-line tool."""
    return subprocess.run([BUILD / "cli/rtxg", *words], env=daemon.environment, capture_output=True, text=True, timeout=60, check=False)


def vgpu(daemon: Daemon, name: str) -> Reply:
    """One of the list."""
    return dict(daemon.ask("vgpu-list", vgpu=name)["vgpus"][0])


def stats(daemon: Daemon, name: str, device: str = "nvidia0") -> Reply:
    """What "stats" has of a vGPU."""
    (one,) = daemon.ask("stats", gpu=device)["gpus"]
    return next(v for v in one["vgpus"] if v["vgpu"] == name)


# --- values -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("member", "value", "least"), [
    ("latency_ns", 0, 100_000), ("latency_ns", 99_999, 100_000), ("latency_ns", 10**11, 100_000), ("latency_ns", "5ms", 100_000),
    ("quantum_ns", 0, MS), ("quantum_ns", MS - 1, MS), ("quantum_ns", 10**10, MS), ("quantum_ns", 1.5, MS),
])
def test_a_value_out_of_range_is_refused_with_the_range(running: Daemon, member: str, value: object, least: int) -> None:
    """Zero is no bound and no quantum: `null` is what takes one back."""
    refused = running.ask("vgpu-create", vgpu="a", **{member: value})
    assert refused["error"] == "EINVAL" and member in refused["message"] and str(least) in refused["message"]
    assert len(running.ask("vgpu-list")["vgpus"]) == 1


@pytest.mark.parametrize(("option", "value"), [("--latency", "0ms"), ("--latency", "5"), ("--latency", "99us"), ("--latency", "11s"),
                                               ("--quantum", "0ms"), ("--quantum", "999us"), ("--quantum", "2s"), ("--quantum", "-1ms")])
@pytest.mark.parametrize("command", [["vgpu", "create"], ["vgpu", "set"], ["run"], ["set", "-p", "1"]], ids=" ".join)
def test_the_command_line_names_what_is_accepted(running: Daemon, command: list[str], option: str, value: str) -> None:
    """Before any request is sent."""
    done = rtxg(running, *command, option, value, "x")
    assert done.returncode in (2, 125) and f"{option}: '{value}'" in done.stderr and "accepted:" in done.stderr


# --- where no lever can stop ------------------------------------------------------------------------


def test_under_the_gate_a_bound_is_refused_with_what_was_seen(running: Daemon) -> None:
    """No launch is taken back there: the sentence says what work waits for, and what to do. A quantum is a wish, and no promise."""
    done = rtxg(running, "vgpu", "create", "chat", "--latency", "5ms")
    assert done.returncode == 1
    for words in ("vGPU chat", "5 ms", "no lever can stop what runs", "none was seen as yet", "leave --latency out"):
        assert words in done.stderr
    program = running.device("-g", "0", "-u", "3000", "-s", "-n", "5")
    assert program.wait(60) == 0
    refused = running.ask("vgpu-create", vgpu="chat", gpu="0", latency_ns=5 * MS)
    assert refused["error"] == "EOPNOTSUPP" and "GPU 0" in refused["message"] and "in the mean of" in refused["message"]
    assert [v["vgpu"] for v in running.ask("vgpu-list")["vgpus"]] == ["default"]
    assert running.ask("vgpu-create", vgpu="batch", quantum_ns=20 * MS)["ok"]
    assert vgpu(running, "batch")["quantum_ns"] == 20 * MS
    refused = running.ask("vgpu-set", vgpu="batch", latency_ns=5 * MS, quantum_ns=None)
    assert not refused["ok"] and vgpu(running, "batch")["quantum_ns"] == 20 * MS
    assert rtxg(running, "run", "--no-layer", "--latency", "5ms", "--", "true").returncode == 125


def test_a_configured_bound_that_no_lever_keeps_does_not_stop_the_daemon(daemon: Daemon) -> None:
    """It starts, and says which vGPU and why. A reload says the same and is no error, and what else
    the file says comes into force: files that rtxgd has started with are not refused later."""
    daemon.write_config("[VGPU chat]\nGPULatencySec=5ms\nGPUQuantumSec=20ms\nGPUWeight=200\n")
    daemon.start()
    assert (vgpu(daemon, "chat")["latency_ns"], vgpu(daemon, "chat")["quantum_ns"]) == (5 * MS, 20 * MS)
    assert "vGPU chat: a latency of 5 ms cannot be kept" in daemon.log.read_text()
    daemon.write_config("[VGPU chat]\nGPULatencySec=5ms\nGPUQuantumSec=20ms\nGPUWeight=300\n")
    reply = daemon.ask("reload")
    assert any("chat" in m and "no lever can stop" in m for m in reply["messages"]), reply
    assert reply["errors"] == 0
    assert (vgpu(daemon, "chat")["latency_ns"], vgpu(daemon, "chat")["weight"]) == (5 * MS, 300)
    # Who asks for a bound can read the answer: to a request it is a promise, and refused.
    assert daemon.ask("vgpu-set", vgpu="chat", latency_ns=6 * MS)["error"] == "EOPNOTSUPP"
    daemon.write_config("[VGPU chat]\nGPULatencySec=default\nGPUQuantumSec=default\nGPUWeight=default\n")
    assert not daemon.ask("reload")["messages"]
    assert {"latency_ns", "quantum_ns", "weight"}.isdisjoint(vgpu(daemon, "chat"))
    daemon.write_config("[VGPU chat]\nGPULatencySec=0\n[VGPU b]\nGPUQuantumSec=0\n")
    messages = daemon.ask("reload")["messages"]
    assert any("GPULatencySec=0" in m and "100us" in m for m in messages) and any("GPUQuantumSec=0" in m and "1ms" in m for m in messages)
    daemon.healthy()


# --- on a GPU whose lever stops ---------------------------------------------------------------------


def test_a_bound_is_admitted_shown_and_taken_back(gpu: Gpu) -> None:
    """In vgpu ls, ps, get and top; "default" takes back the bound, the quantum, the weight and the cap."""
    gpu.start()
    done = rtxg(gpu.daemon, "vgpu", "create", "chat", "--min", "30%", "--latency", "50ms", "--quantum", "10ms", "--weight", "50",
                "--max", "80%")
    assert (done.returncode, done.stderr) == (0, "")
    pid = gpu.process()
    wait_for("it is governed", lambda: gpu.of(pid))
    assert gpu.daemon.ask("task-set", pid=pid, vgpu="chat")["ok"]
    row = json.loads(gpu.rtxg("vgpu", "ls", "-J", "-o", "+QUANTUM", "chat"))["vgpus"][0]
    assert (row["latency_seconds"], row["quantum_seconds"], row["weight"], row["max"]) == (0.05, 0.01, 50, 0.8)
    assert "50ms" in gpu.rtxg("vgpu", "ls", "chat")
    assert json.loads(gpu.rtxg("ps", "-m", "-J", "-o", "PID,LATENCY"))["tasks"][0]["latency_seconds"] == 0.05
    assert json.loads(gpu.rtxg("get", "-J", "-o", "PID,LATENCY", str(pid)))["processes"][0]["latency_seconds"] == 0.05
    one = stats(gpu.daemon, "chat")
    assert one["mechanism"] in ("slices", "arrival", "turns") and 0 < one["bound_ns"] <= 50 * MS and one["best_ns"] <= one["bound_ns"]
    assert one["broken"] == [] and one["broken_by"] is None and one["ungoverned"] == 0
    screen = gpu.rtxg("top", "-b", "-n", "1")
    assert "latency 50ms, longest wait" in screen and f"by {one['mechanism']}" in screen
    # One program is alone in its vGPU: the bound can be changed by its number.
    gpu.rtxg("set", "-p", str(pid), "--latency", "80ms")
    assert vgpu(gpu.daemon, "chat")["latency_ns"] == 80 * MS
    gpu.rtxg("vgpu", "set", "chat", "--latency", "default", "--quantum", "default", "--weight", "default", "--max", "default")
    assert {"latency_ns", "quantum_ns", "weight"}.isdisjoint(vgpu(gpu.daemon, "chat")) and vgpu(gpu.daemon, "chat")["max_ppm"] == 10**6
    assert "latency_ns" not in stats(gpu.daemon, "chat") and "latency" not in gpu.rtxg("top", "-b", "-n", "1")


def test_a_bound_below_what_the_card_can_do_is_refused_with_the_best(gpu: Gpu) -> None:
    """The number in the refusal is one that is accepted, and the sentence says what limits it."""
    gpu.start()
    others = [gpu.process() for _ in range(3)]
    wait_for("all are governed", lambda: all(gpu.of(pid) for pid in others))
    refused = gpu.daemon.ask("vgpu-create", vgpu="chat", latency_ns=100_000)
    assert refused["error"] == "ERANGE" and refused["value"] == 100_000 and refused["limit"] > 100_000
    assert "100us" in refused["message"] and "the best that is possible" in refused["message"] and "nvidia0" in refused["message"]
    assert "chat" not in {v["vgpu"] for v in gpu.daemon.ask("vgpu-list")["vgpus"]}
    done = rtxg(gpu.daemon, "vgpu", "create", "chat", "--latency", "100us")
    best = done.stderr.split("ask for --latency ")[1].split(",")[0]
    assert done.returncode == 1 and rtxg(gpu.daemon, "vgpu", "create", "chat", "--latency", best).returncode == 0
    refused = gpu.daemon.ask("vgpu-set", vgpu="chat", latency_ns=100_000)
    assert refused["error"] == "ERANGE"
    assert vgpu(gpu.daemon, "chat")["latency_ns"] >= refused["limit"]


def test_a_file_that_breaks_the_bound_of_another_says_whose(gpu: Gpu) -> None:
    """A request is refused then. A file comes into force, and the reload names who loses by it."""
    gpu.start()
    others = [gpu.process() for _ in range(3)]
    wait_for("all are governed", lambda: all(gpu.of(pid) for pid in others))
    best = gpu.daemon.ask("vgpu-create", vgpu="chat", latency_ns=100_000)["limit"]
    best += -best % 10_000
    assert gpu.daemon.ask("vgpu-create", vgpu="chat", latency_ns=best)["ok"]
    refused = gpu.daemon.ask("vgpu-create", vgpu="voice", latency_ns=10 * best)
    assert refused["error"] == "EBUSY" and "vGPU chat would lose its bound" in refused["message"]
    gpu.daemon.write_config(f"[VGPU voice]\nGPULatencySec={best // 100}us\n")
    reply = gpu.daemon.ask("reload")
    said = reply["messages"]
    assert any("voice" in m and "vGPU chat would lose its bound" in m for m in said), reply
    assert reply["errors"] == 0 and vgpu(gpu.daemon, "voice")["latency_ns"] == 10 * best


def test_a_bound_for_one_run_and_by_number_only_where_it_is_alone(gpu: Gpu) -> None:
    """`rtxg run --latency` makes a vGPU for the run; `rtxg set -p --latency` refuses where others would be changed too."""
    gpu.start(RTXG_FAKE_ASSIGNED=str(gpu.daemon.folder / "assigned"))
    run = subprocess.Popen([BUILD / "cli/rtxg", "run", "--no-layer", "--latency", "50ms", "--quantum", "5ms", "--", "sleep", "600"],
                           env=gpu.daemon.environment)
    try:
        gpu.process(pid=run.pid)
        name = f"run-{run.pid}"
        wait_for("it is governed there", lambda: [t["vgpu"] for t in gpu.of(run.pid)] == [name])
        assert (vgpu(gpu.daemon, name)["latency_ns"], vgpu(gpu.daemon, name)["quantum_ns"]) == (50 * MS, 5 * MS)
        other = gpu.process()
        wait_for("the other is governed", lambda: gpu.of(other))
        refused = rtxg(gpu.daemon, "set", "-p", str(other), "--latency", "50ms")
        assert refused.returncode == 1 and "rtxg vgpu set default" in refused.stderr
        assert gpu.daemon.ask("task-set", pid=other, vgpu=name)["ok"]
        refused = rtxg(gpu.daemon, "set", "-p", str(run.pid), "--latency", "default")
        assert refused.returncode == 1 and f"rtxg vgpu set {name}" in refused.stderr
        assert vgpu(gpu.daemon, name)["latency_ns"] == 50 * MS
    finally:
        run.kill()
        run.wait()


def test_a_bound_outlives_a_killed_daemon_and_a_reboot(gpu: Gpu) -> None:
    """By the file beside the socket, and by a drop-in."""
    gpu.start()
    assert gpu.daemon.ask("vgpu-create", vgpu="a", latency_ns=50 * MS, quantum_ns=10 * MS)["ok"]
    assert gpu.daemon.ask("vgpu-create", vgpu="b", latency_ns=60 * MS, quantum_ns=12_500_000, persist=True)["ok"]
    pid = gpu.process()
    wait_for("it is governed", lambda: gpu.of(pid))
    for how in (signal.SIGKILL, signal.SIGTERM):
        gpu.daemon.kill(how)
        gpu.start()
        for name, latency, quantum in (("a", 50, 10), ("b", 60, 12.5)):
            assert (vgpu(gpu.daemon, name)["latency_ns"], vgpu(gpu.daemon, name)["quantum_ns"]) == (latency * MS, quantum * MS)
        assert stats(gpu.daemon, "a")["latency_ns"] == 50 * MS
    gpu.daemon.kill()
    gpu.daemon.socket.with_suffix(".sock.state").unlink()
    gpu.start()
    assert (vgpu(gpu.daemon, "b")["latency_ns"], vgpu(gpu.daemon, "b")["quantum_ns"]) == (60 * MS, 12_500_000)


def test_how_the_gpu_is_shared_is_shown(gpu: Gpu) -> None:
    """The mode, the idle time while stopped work waited, and what cannot be governed: stats, top and doctor."""
    gpu.start()
    for name in ("one", "two"):
        assert gpu.daemon.ask("vgpu-create", vgpu=name, min_ppm=400000)["ok"]
        pid = gpu.process()
        wait_for("it is governed", lambda pid=pid: gpu.of(pid))
        assert gpu.daemon.ask("task-set", pid=pid, vgpu=name)["ok"]
    wait_for("work of both", lambda: all(v["busy_ns"] > 10**8 for n, v in gpu.stats().items() if n != "default"))
    (one,) = gpu.daemon.ask("stats", gpu="nvidia0")["gpus"]
    assert one["policy"] in ("spread", "batch") and one["ungoverned"] == one["retried"] == 0
    assert 0 <= one["idle_1s_ppm"] <= 10**6 and one["idle_ns"] >= 0
    words = {"spread": "policy spread (proportional slices)", "batch": "policy batch (long turns)"}
    assert any(w in gpu.rtxg("top", "-b", "-n", "1") for w in words.values())
    detail = next(c for c in gpu.daemon.ask("doctor")["checks"] if c["check"] == "nvidia0")["detail"]
    assert "while a stopped process had work" in detail
    alien = gpu.process("alien")
    wait_for("it is seen", lambda: gpu.of(alien))
    checks = {c["check"]: c for c in gpu.daemon.ask("doctor")["checks"]}
    assert not checks[f"process {alien}"]["ok"] and "restart" in checks[f"process {alien}"]["remedy"]


def test_a_promise_that_is_broken_names_the_program_that_broke_it(gpu: Gpu) -> None:
    """Beside a program that cannot be stopped 90 % are not kept: stats, top, ps, the doctor and `rtxg run --strict` say so, and by which."""
    gpu.start(RTXG_FAKE_ASSIGNED=str(gpu.daemon.folder / "assigned"))
    for name, share in (("good", 900000), ("bad", 50000)):
        assert gpu.daemon.ask("vgpu-create", vgpu=name, min_ppm=share)["ok"]
    strict = subprocess.Popen([BUILD / "cli/rtxg", "run", "--strict", "--no-layer", "-v", "good", "--", "sh", "-c",
                               "echo $$; read x; exit 0"], env=gpu.daemon.environment, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    gpu.daemon.children.append(strict)
    assert strict.stdin and strict.stdout
    good, bad = gpu.process(pid=int(strict.stdout.readline())), gpu.process("stubborn")
    wait_for("both are seen", lambda: gpu.of(good) and gpu.of(bad))
    assert gpu.of(good)[0]["vgpu"] == "good"
    assert gpu.daemon.ask("task-set", pid=bad, vgpu="bad")["ok"]
    wait_for("it is broken", lambda: "share" in stats(gpu.daemon, "good")["broken"])
    wait_for("it is counted", lambda: stats(gpu.daemon, "good")["broken_ns"]["share"] > 0)
    assert stats(gpu.daemon, "good")["broken_by"] == bad
    assert f"BROKEN: share (by {bad})" in gpu.rtxg("top", "-b", "-n", "1")
    remedy = gpu.of(bad)[0]["remedy"]
    assert "INSUFFICIENT_PERMISSIONS" in remedy
    assert {p["pid"]: p["uses"] for p in json.loads(gpu.rtxg("ps", "-J"))["tasks"]}[bad] == remedy
    checks = {c["check"]: c for c in gpu.daemon.ask("doctor")["checks"]}
    check = checks["vGPU good"]
    assert not check["ok"] and f"process {bad} sleep" in check["detail"] and "90%" in check["detail"]
    assert not checks[f"process {bad}"]["ok"] and checks[f"process {bad}"]["remedy"] == remedy
    _, error = strict.communicate("\n", timeout=60)
    assert strict.returncode == 123 and "vGPU good on GPU nvidia0: its share was not kept" in error, error


def test_a_bound_that_is_broken_is_named(gpu: Gpu) -> None:
    """Work that arrives waits for programs that cannot be stopped: stats, top and the doctor say for how long, and for which."""
    gpu.start()
    assert gpu.daemon.ask("vgpu-create", vgpu="chat", min_ppm=300000, latency_ns=3 * MS)["ok"]
    chat = gpu.process("bursty")
    wait_for("it is governed", lambda: gpu.of(chat))
    assert gpu.daemon.ask("task-set", pid=chat, vgpu="chat")["ok"]
    bad = [gpu.process("stubborn") for _ in range(3)]
    wait_for("all are seen", lambda: all(gpu.of(p) for p in bad))
    wait_for("it is broken", lambda: "latency" in stats(gpu.daemon, "chat")["broken"])
    wait_for("it is counted", lambda: stats(gpu.daemon, "chat")["broken_ns"]["latency"] > 0)
    wait_for("it is known by which", lambda: stats(gpu.daemon, "chat")["broken_by"] in bad)
    assert "BROKEN: latency (by" in gpu.rtxg("top", "-b", "-n", "1")
    details = [c["detail"] for c in gpu.daemon.ask("doctor")["checks"] if c["check"] == "vGPU chat" and not c["ok"]]
    assert any("its work waited for" in d and "the bound is 3ms" in d for d in details), details
    # As the measurements on a card read it: of each vGPU with a bound, and of no other.

    def counted() -> dict[str, int]:
        return long_waits(gpu.daemon.ask("metrics"), "nvidia0", 3 * MS)

    wait_for("its waits are counted", lambda: counted().get("chat"))
    assert list(counted()) == ["chat"]


def test_measurements_on_two_gpus_find_programs_and_counts_of_each(gpu: Gpu) -> None:
    """Shares that one GPU has no room for fit on two, and what runs on one counts there alone."""
    gpu.start(RTXG_FAKE_GPUS="2", RTXG_FAKE_ASSIGNED=str(gpu.daemon.folder / "assigned"))
    setup = Setup(BUILD / "cli", gpu.daemon.folder, gpu.daemon.folder)
    product = Product(setup)
    product.socket, product.env = gpu.daemon.socket, gpu.daemon.environment
    cards = [Card(setup, product, number, 2) for number in range(2)]
    tasks = [Periodic(15_000, 40_000)]
    with Programs(setup) as programs:
        for card in cards:
            card.check_governed()
            card.make_vgpus()
            plain(card)
            assert promised(card, tasks) == ""
        for n in range(2):
            assert vgpu(gpu.daemon, f"task0-nvidia{n}")["min_ppm"] == 10_000 * tasks[0].share
        assert 2 * tasks[0].share > 100
        for number, card in enumerate(cards):
            hog = card.begin(programs, ["sleep", "600"], "hog0").pid
            task = card.begin(programs, ["sleep", "600"], "task0").pid
            gpu.process(gpu=number, pid=hog)
            gpu.process("bursty", gpu=number, pid=task)
            card.check_placed([hog, task])
            due = {hog: f"hog0-{card.gpu}", task: f"task0-{card.gpu}"}

            def where(gpu: str = card.gpu) -> dict[int, str]:
                return {pid: one["vgpu"] for pid, one in product.tasks(gpu).items()}

            wait_for("each is in its vGPU", lambda where=where, due=due: where() == due)
            assert list(card.long_waits(5 * MS)) == ["task0"]
    with pytest.raises(RuntimeError, match="does not govern nvidia2"):
        Card(setup, product, 2, 3).check_governed()


def test_a_cap_that_is_broken_is_named(gpu: Gpu) -> None:
    """A program that cannot be stopped gets more than its vGPU may have, and is the one that is named."""
    gpu.start()
    assert gpu.daemon.ask("vgpu-create", vgpu="small", max_ppm=200000)["ok"]
    bad = gpu.process("stubborn")
    wait_for("it is seen", lambda: gpu.of(bad))
    assert gpu.daemon.ask("task-set", pid=bad, vgpu="small")["ok"]
    wait_for("it is broken", lambda: "cap" in stats(gpu.daemon, "small")["broken"])
    wait_for("it is counted", lambda: stats(gpu.daemon, "small")["broken_ns"]["cap"] > 0)
    assert stats(gpu.daemon, "small")["broken_by"] == bad
    checks = {c["check"]: c for c in gpu.daemon.ask("doctor")["checks"]}
    assert "more than the 20% that it may have" in checks["vGPU small"]["detail"]


def test_programs_that_are_not_governed_are_counted(gpu: Gpu) -> None:
    """How many there are of a vGPU and of a GPU, and for how long; none when they have ended."""
    gpu.start()
    assert stats(gpu.daemon, "default")["ungoverned"] == 0
    alien = gpu.process("alien")
    wait_for("it is seen", lambda: stats(gpu.daemon, "default")["ungoverned"] == 1)
    (one,) = gpu.daemon.ask("stats", gpu="nvidia0")["gpus"]
    assert one["ungoverned"] == 1
    wait_for("it is counted", lambda: stats(gpu.daemon, "default")["broken_ns"]["ungoverned"] > 0)
    gpu.process("gone", pid=alien)
    wait_for("it has ended", lambda: stats(gpu.daemon, "default")["ungoverned"] == 0)
