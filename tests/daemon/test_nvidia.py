# SPDX-License-Identifier: MIT
"""The lists of processes that the NVIDIA lever governs: rtxgd on a fake driver and a fake GPU (tests/levers/fake_rtxgd.c)."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import BUILD, Gpu, wait_for, wait_for_share


def test_processes_are_listed_with_what_they_used(gpu: Gpu) -> None:
    """ps, get and top show pid, vGPU, GPU time and state; the parts of a vGPU add up; what cannot be governed says what to do."""
    gpu.start()
    for name, share in (("perception", 700000), ("train", 300000)):
        assert gpu.daemon.ask("vgpu-create", vgpu=name, min_ppm=share)["ok"]
    first, second = gpu.process(), gpu.process()
    wait_for("both are governed", lambda: len(gpu.of(first)) == 1 and len(gpu.of(second)) == 1)
    reply = gpu.daemon.ask("task-set", pid=first, vgpu="perception")
    assert [t["pid"] for t in reply["tasks"]] == [first]
    assert gpu.daemon.ask("task-set", pid=second, vgpu="train")["ok"]
    wait_for("a second of work", lambda: gpu.of(first)[0]["engines"][0]["busy_ns"] > 10**9)
    task = gpu.of(first)[0]
    assert task["lever"] == "nvidia" and task["task"] is None and task["managed"] and not task["mps"]
    assert (task["comm"], task["vgpu"], task["gpu"], task["channels"]) == ("sleep", "perception", "nvidia0", 8)
    assert task["memory"] == first * 2**20 + 4096  # as the fake driver counts it (fake_memory)
    assert task["exe"].endswith("sleep")
    assert task["slice_ns"] == 0  # alone on the engine in its turn, with the driver's own slice
    engine = task["engines"][0]
    assert engine["state"] in ("running", "waiting", "stopped", "idle") and engine["grants"] > 100
    assert engine["busy_ns"] <= engine["device_ns"]
    # The second one was stopped again and again: that is what keeps the shares.
    assert gpu.of(second)[0]["engines"][0]["wait_ns"] > 10**8
    v = gpu.stats()
    total = v["perception"]["busy_ns"] + v["train"]["busy_ns"]
    assert 0.6 < v["perception"]["busy_ns"] / total < 0.8
    assert v["perception"]["tasks"] == 1 and v["default"]["tasks"] == 0
    assert 300000 < v["perception"]["used_1s_ppm"] < 800000
    assert v["train"]["expelled"] > 10
    again = gpu.of(first)[0]["engines"][0]["busy_ns"]
    # What is counted ahead of the driver's log is taken back where the log says otherwise.
    slack = 10**7
    assert again + slack >= v["perception"]["busy_ns"] - v["default"]["busy_ns"] > 0
    rows = {p["pid"]: p for p in json.loads(gpu.rtxg("ps", "-m", "-J"))["tasks"]}
    assert rows[first]["vgpu"] == "perception" and rows[first]["busy_seconds"] > 1 and rows[first]["launches"] is None
    assert "nvidia0" in gpu.rtxg("get", "-p", str(first)) and "perception" in gpu.rtxg("get", "-p", str(first))
    screen = gpu.rtxg("top", "-b", "-n", "1", "-t")
    assert "GPU nvidia0  policy batch" in screen and f"{first} sleep" in screen and "turns" in screen
    listed = gpu.daemon.ask("gpu-list")["gpus"]
    assert [(g["gpu"], g["levers"], g["reserved_ppm"]) for g in listed if g["gpu"] == "nvidia0"] == [("nvidia0", ["nvidia"], 1000000)]
    assert [t["pid"] for t in gpu.daemon.tasks(vgpu="train")] == [second]
    assert gpu.daemon.tasks(gpu="0") == []
    assert {t["pid"] for t in gpu.daemon.tasks(gpu="nvidia0")} == {first, second}


def test_fifty_processes_that_come_at_once_are_all_governed(gpu: Gpu) -> None:
    """Five of each of ten vGPUs: each is governed, has its turns, and the daemon answers meanwhile."""
    gpu.start()
    names = [f"burst{i}" for i in range(10)]
    for name in names:
        assert gpu.daemon.ask("vgpu-create", vgpu=name, min_ppm=100000)["ok"]
    pids = [gpu.process() for _ in range(50)]
    wait_for("all are known", lambda: len(gpu.daemon.tasks(gpu="nvidia0")) == 50)
    for i, pid in enumerate(pids):
        assert gpu.daemon.ask("task-set", pid=pid, vgpu=names[i % 10])["ok"]
    wait_for(
        "each has worked in its vGPU",
        lambda: all(
            t["managed"] and t["vgpu"] in names and t["engines"][0]["busy_ns"] > 2 * 10**7
            for t in gpu.daemon.tasks(gpu="nvidia0")
        ),
    )
    assert {t["pid"] for t in gpu.daemon.tasks(gpu="nvidia0")} == set(pids)
    assert {t["tasks"] for name, t in gpu.stats().items() if name in names} == {5}


def test_top_says_where_a_bound_is_not_promised(gpu: Gpu) -> None:
    """A program of the vGPU on a GPU that the gate shares; elsewhere the mechanism is named."""
    gpu.start()
    assert gpu.daemon.ask("vgpu-create", vgpu="chat", min_ppm=100000, latency_ns=10**8)["ok"]
    nowhere = gpu.rtxg("top", "-b", "-n", "1", "-g", "nvidia0")
    assert "latency 100ms, longest wait 0ns, by " in nowhere and "not promised" not in nowhere
    program = gpu.daemon.device("-v", "chat", "-u", "1", "-n", "1", "-q")
    wait_for("it has a task", lambda: gpu.of(program.pid))
    assert "latency 100ms is not promised on this GPU\n" in gpu.rtxg("top", "-b", "-n", "1", "-g", "0")


def wait_for_shares_by_weight(gpu: Gpu, large: int, other: str, weight: int | None) -> None:
    """Two busy vGPUs, "large" with one weight and another with the other, come to 3 : 1."""
    gpu.start()
    pids = {}
    for name, value in (("large", large), (other, weight)):
        given = {} if value is None else {"weight": value}
        assert gpu.daemon.ask("vgpu-create", vgpu=name, **given)["ok"]
        pids[name] = gpu.process()
    wait_for("all are governed", lambda: all(gpu.of(pid) for pid in pids.values()))
    for name, pid in pids.items():
        assert gpu.daemon.ask("task-set", pid=pid, vgpu=name)["ok"]

    def work() -> dict[str, int]:
        stats = gpu.stats()
        return {name: stats[name]["busy_ns"] for name in pids}

    wait_for_share("large", 0.75, 0.04, work)


def test_weights_of_300_and_100_share_the_gpu_three_to_one(gpu: Gpu) -> None:
    """A weight of 100 that was given is not read as none."""
    wait_for_shares_by_weight(gpu, 300, "small", 100)


def test_a_weight_that_was_not_given_is_shown_as_such_and_counts_100(gpu: Gpu) -> None:
    """The weight is absent from the lists. A vGPU without a reservation shares as if it had 100."""
    wait_for_shares_by_weight(gpu, 300, "silent", None)
    listed = {v["vgpu"]: v for v in gpu.daemon.ask("vgpu-list")["vgpus"]}
    assert listed["large"]["weight"] == 300
    assert "weight" not in listed["silent"] and "weight" not in listed["default"]


def test_what_cannot_be_governed_is_said(gpu: Gpu) -> None:
    """UNMANAGED with the remedy, in ps, top and doctor; an MPS server by its name; the end of a process."""
    gpu.start()
    alien, mps = gpu.process("alien"), gpu.process("mps")
    wait_for("both are seen", lambda: gpu.of(alien) and gpu.of(mps))
    assert gpu.of(alien)[0]["managed"] is False and gpu.of(alien)[0]["vgpu"] is None
    assert "restart" in gpu.of(alien)[0]["remedy"]
    assert gpu.of(mps)[0]["mps"] is True
    rows = {p["pid"]: p for p in json.loads(gpu.rtxg("ps", "-J"))["tasks"]}
    assert rows[alien]["vgpu"] == "UNMANAGED" and "restart" in rows[alien]["uses"]
    assert rows[mps]["uses"] == "mps"
    assert f"UNMANAGED: {alien} sleep (it has a context" in gpu.rtxg("top", "-b", "-n", "1")
    checks = {c["check"]: c for c in gpu.daemon.ask("doctor")["checks"]}
    assert not checks["nvidia processes"]["ok"] and "1 of them UNMANAGED; MPS" in checks["nvidia processes"]["detail"]
    assert checks["nvidia0"]["ok"]
    gpu.process("gone", pid=mps)
    wait_for("it is gone", lambda: not gpu.of(mps))


def test_clients_of_mps_are_governed_with_their_server(gpu: Gpu) -> None:
    """A client is listed in its server's vGPU and keeps no accounts; one that was put elsewhere is told what to do."""
    gpu.start()
    for name, share in (("served", 300000), ("other", 200000)):
        assert gpu.daemon.ask("vgpu-create", vgpu=name, min_ppm=share)["ok"]
    server = gpu.process("mps")
    wait_for("the server is seen", lambda: gpu.of(server))
    assert gpu.daemon.ask("task-set", pid=server, vgpu="served")["ok"]
    client = gpu.process("client")
    wait_for("the client is seen", lambda: gpu.of(client))
    task = gpu.of(client)[0]
    assert (task["managed"], task["mps"], task["mps_server"], task["vgpu"]) == (True, False, server, "served")
    assert task["channels"] == 2 and task["engines"][0]["busy_ns"] == 0 and task["remedy"] == ""
    assert gpu.of(server)[0]["mps_server"] is None
    rows = {p["pid"]: p for p in json.loads(gpu.rtxg("ps", "-J"))["tasks"]}
    assert rows[client]["uses"] == f"mps of {server}" and rows[client]["vgpu"] == "served"
    assert {t["pid"] for t in gpu.daemon.tasks(vgpu="served")} == {server, client}
    checks = {c["check"]: c for c in gpu.daemon.ask("doctor")["checks"]}
    assert checks["nvidia processes"]["ok"] and "2 with contexts, 0 of them UNMANAGED; MPS" in checks["nvidia processes"]["detail"]
    assert gpu.stats()["served"]["tasks"] == 1  # one context
    assert gpu.daemon.ask("task-set", pid=client, vgpu="other")["ok"]
    assert "move the server" in gpu.of(client)[0]["remedy"] and gpu.of(client)[0]["vgpu"] == "served"
    gpu.process("gone", pid=client)
    wait_for("the client is gone", lambda: not gpu.of(client))
    assert gpu.of(server)


def test_history_and_trace(gpu: Gpu, tmp_path: Path) -> None:
    """history gives each vGPU's GPU time slot by slot, and a trace that Perfetto reads. No two stays overlap in the trace."""
    gpu.start()
    assert gpu.daemon.ask("vgpu-create", vgpu="a", min_ppm=500000)["ok"]
    one, two = gpu.process(), gpu.process()
    wait_for("governed", lambda: gpu.of(one) and gpu.of(two))
    assert gpu.daemon.ask("task-set", pid=one, vgpu="a")["ok"]

    def slots() -> list[dict[str, str]]:
        return [r for r in csv.DictReader(io.StringIO(gpu.rtxg("history", "-g", "nvidia0"))) if float(r["busy"]) > 0]

    wait_for("ten slots", lambda: len([r for r in slots() if r["vgpu"] == "a"]) >= 10)
    rows = slots()
    assert {r["vgpu"] for r in rows} == {"a", "default"} and {r["gpu"] for r in rows} == {"nvidia0"}
    for r in rows:
        assert 0 < float(r["busy"]) <= float(r["device"]) + 1e-9
    # A slot holds the stays whose ends were read in it: only over several is that bounded by time.
    for name in ("a", "default"):
        own = [r for r in rows if r["vgpu"] == name]
        for column in ("device", "backlogged"):
            assert sum(float(r[column]) for r in own) <= sum(float(r["seconds"]) for r in own) * 1.2 + 0.1
    # What the slots hold is what was charged.
    before = gpu.daemon.ask("history", gpu="nvidia0")
    charged = gpu.stats()["a"]["busy_ns"]
    assert sum(next(s for s in before["series"] if s["vgpu"] == "a")["busy_ns"]) <= charged
    trace = tmp_path / "trace"
    gpu.rtxg("history", "--trace", trace, "-d", "1s")
    tracks, stays = perfetto(trace.read_bytes())
    assert any(f"on nvidia0 sleep {one}" == name for name in tracks.values())
    assert any(name.startswith("lever nvidia0") for name in tracks.values())
    on = sorted((b, e, n) for t, spans in stays.items() if tracks[t].startswith("on ") for b, e, n in spans)
    assert len(on) > 50 and {n for _, _, n in on} == {"vGPU a", "vGPU default"}
    for (_, end, _), (begin, _, _) in itertools.pairwise(on):
        assert begin >= end
    published(trace, tracks, stays)
    reply = gpu.daemon.ask("timeline")
    assert reply["next"] == reply["first"] + len(reply["events"])
    assert gpu.daemon.ask("timeline", since=reply["next"])["first"] == reply["next"]


def test_a_transient_vgpu_stays_for_programs_that_outlive_its_creator(gpu: Gpu) -> None:
    """What `rtxg run --min` makes goes with the last program that works in it: a child may, when the first one has ended."""
    gpu.start(RTXG_FAKE_ASSIGNED=str(gpu.daemon.folder / "assigned"))
    run = subprocess.Popen([BUILD / "cli/rtxg", "run", "--no-layer", "--min", "40%", "--", "sh", "-c", "echo $$; read x"],
                           env=gpu.daemon.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    gpu.daemon.children.append(run)
    assert run.stdin and run.stdout
    first = gpu.process(pid=int(run.stdout.readline()))
    wait_for("it is governed", lambda: gpu.of(first))
    name = gpu.of(first)[0]["vgpu"]
    assert name.startswith("run-")
    second, third = gpu.process(), gpu.process()
    wait_for("the others are governed", lambda: gpu.of(second) and gpu.of(third))
    for pid in (second, third):
        assert gpu.daemon.ask("task-set", pid=pid, vgpu=name)["ok"]
    gpu.process("gone", pid=first)
    run.communicate("\n", timeout=60)
    wait_for("the first has ended", lambda: not gpu.of(first))
    assert gpu.of(second)[0]["vgpu"] == name and gpu.daemon.ask("vgpu-list", vgpu=name)["ok"]
    gpu.process("gone", pid=third)
    wait_for("the third has ended", lambda: not gpu.of(third))
    assert gpu.daemon.ask("vgpu-list", vgpu=name)["ok"]
    # moved away or ended: either way nothing stays reserved
    assert gpu.daemon.ask("task-set", pid=second, vgpu="default")["ok"]
    wait_for("the vGPU is gone", lambda: not gpu.daemon.ask("vgpu-list", vgpu=name)["ok"])
    assert gpu.of(second)[0]["vgpu"] == "default"


def test_two_gpus(gpu: Gpu) -> None:
    """A process on both is listed on both; a vGPU of one GPU is that GPU's alone; one in MIG mode is left alone, and that is said."""
    gpu.start(RTXG_FAKE_GPUS="2")
    assert gpu.daemon.ask("vgpu-create", vgpu="here", gpu="nvidia1", min_ppm=800000)["ok"]
    both = gpu.process(gpu=0)
    gpu.process(gpu=1, pid=both)
    other = gpu.process(gpu=1)
    wait_for("all are governed", lambda: len(gpu.of(both)) == 2 and len(gpu.of(other)) == 1)
    assert gpu.daemon.ask("task-set", pid=both, vgpu="here")["ok"]
    assert {(t["gpu"], t["vgpu"]) for t in gpu.of(both)} == {("nvidia0", "default"), ("nvidia1", "here")}
    wait_for("work on both", lambda: all(t["engines"][0]["busy_ns"] > 5 * 10**8 for t in gpu.of(both)))
    assert "here" not in gpu.stats("nvidia0") and gpu.stats("nvidia1")["here"]["tasks"] == 1
    assert gpu.daemon.ask("stats", gpu="nvidia2")["error"] == "ENOENT"
    assert gpu.daemon.ask("vgpu-create", vgpu="there", gpu="0")["ok"]
    refused = gpu.daemon.ask("task-set", pid=other, vgpu="there")
    assert not refused["ok"] and "NVIDIA lever" in refused["message"]


def test_a_daemon_that_governs_does_not_leave(gpu: Gpu) -> None:
    """The daemon ends when idle, but not while the lever governs a process."""
    pid = gpu.process("idle")
    gpu.start("--idle-exit", "1")
    assert gpu.daemon.process is not None
    wait_for("governed", lambda: gpu.of(pid))
    with pytest.raises(subprocess.TimeoutExpired):
        gpu.daemon.process.wait(3)
    gpu.process("gone", pid=pid)
    assert gpu.daemon.process.wait(60) == 0


def test_assignments_survive_a_restart(gpu: Gpu) -> None:
    """After a kill -9, processes and the children forked since are where `rtxg run` and `rtxg set -p` had put them, and periods hold."""
    state = gpu.daemon.folder / "assigned"
    gpu.daemon.write_config("[VGPU kept]\nGPUMin=40%\n[VGPU urgent]\nGPUPriority=60\n")
    gpu.start(RTXG_FAKE_ASSIGNED=str(state))
    assert gpu.daemon.ask("vgpu-create", vgpu="late", min_ppm=100000)["ok"]
    shell = subprocess.Popen(
        [BUILD / "cli/rtxg", "run", "--no-layer", "-v", "kept", "--", "sh", "-c", "while read x; do sleep 600 & echo $!; done"],
        env=gpu.daemon.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert shell.stdin and shell.stdout
    forked: list[int] = []
    try:
        def fork() -> int:
            assert shell.stdin and shell.stdout
            print(file=shell.stdin, flush=True)
            forked.append(int(shell.stdout.readline()))
            return forked[-1]

        first, stays, urgent, late = fork(), gpu.process(), gpu.process(), gpu.process()
        for pid in (shell.pid, first):
            gpu.process(pid=pid)
        wait_for("all are governed", lambda: all(gpu.of(p) for p in (shell.pid, first, stays, urgent, late)))
        gpu.rtxg("set", "-p", str(urgent), "-v", "urgent", "--period", "10ms")
        gpu.rtxg("set", "-p", str(late), "-v", "late")
        gpu.rtxg("set", "-p", str(stays), "-v", "kept")
        gpu.rtxg("set", "-p", str(stays), "-v", "default")
        where = {p: gpu.of(p)[0]["vgpu"] for p in (shell.pid, first, stays, urgent, late)}
        assert where == {shell.pid: "kept", first: "kept", stays: "default", urgent: "urgent", late: "late"}
        assert state.stat().st_mode & 0o777 == 0o600
        gpu.daemon.kill()
        born = fork()
        gpu.process(pid=born)
        gpu.start()
        wait_for("all are governed again", lambda: all(gpu.of(p) for p in (*where, born)))
        assert {p: gpu.of(p)[0]["vgpu"] for p in where} == where
        assert gpu.of(born)[0]["vgpu"] == "kept"
        assert gpu.of(urgent)[0]["period_ns"] == 10**7
        # A vGPU that the next daemon does not find is missing until a request makes it again.
        gpu.daemon.kill()
        gpu.daemon.socket.with_suffix(".sock.state").unlink()
        gpu.start()
        wait_for("all are governed again", lambda: all(gpu.of(p) for p in (*where, born)))
        assert {p: gpu.of(p)[0]["vgpu"] for p in where} == where | {late: "default"}
        assert gpu.daemon.ask("vgpu-create", vgpu="late", min_ppm=100000)["ok"]
        assert gpu.of(late)[0]["vgpu"] == "late"
        assert gpu.daemon.ask("vgpu-remove", vgpu="late")["ok"]
        # Once more, in order. A removed vGPU's processes do not enter the next vGPU of the same number.
        assert gpu.daemon.kill(signal.SIGTERM) == 0
        gpu.start()
        wait_for("all are governed again", lambda: all(gpu.of(p) for p in (*where, born)))
        assert gpu.of(born)[0]["vgpu"] == "kept" and gpu.of(late)[0]["vgpu"] == "default"
        state.unlink()
        gpu.daemon.kill()
        gpu.start()
        wait_for("all are governed again", lambda: all(gpu.of(p) for p in (*where, born)))
        assert {gpu.of(p)[0]["vgpu"] for p in (*where, born)} == {"default"}
    finally:
        shell.kill()
        shell.wait()
        for pid in forked:
            os.kill(pid, signal.SIGKILL)
        for stream in (shell.stdin, shell.stdout):
            stream.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="BPF needs root")
def test_what_a_program_that_forks_without_end_leaves_is_kept(gpu: Gpu) -> None:
    """The real discovery program sees its children; one that lives is in the file with its birth, and those that ended are not."""
    state = gpu.daemon.folder / "assigned"
    gpu.start(RTXG_FAKE_ASSIGNED=str(state), RTXG_FAKE_DISCOVERY="1")
    if all(g["gpu"] != "nvidia0" for g in gpu.daemon.ask("gpu-list")["gpus"]):
        pytest.skip(gpu.daemon.log.read_text())
    assert gpu.daemon.ask("vgpu-create", vgpu="forks", min_ppm=100000)["ok"]
    script = "read go; n=0; while [ $n -lt 4000 ]; do (:); n=$((n+1)); done; sleep 600 & echo $!; read end"
    shell = subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    gpu.daemon.children.append(shell)
    assert shell.stdin and shell.stdout
    assert gpu.daemon.ask("task-set", pid=shell.pid, vgpu="forks")["ok"]
    shell.stdin.write("go\n")
    shell.stdin.flush()
    child = int(shell.stdout.readline())
    try:
        birth = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[19]

        def rows() -> list[list[str]]:
            return sorted(line.split() for line in state.read_text().splitlines()[1:])

        wait_for("the two that live are kept", lambda: {int(row[0]) for row in rows()} == {shell.pid, child})
        assert [row for row in rows() if int(row[0]) == child] == [[str(child), birth, birth, "0", "forks"]]
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.skipif(os.geteuid() != 0, reason="priorities are root's to take")
def test_it_governs_at_a_high_priority(gpu: Gpu) -> None:
    """While the daemon governs a process it runs above the programs' real-time threads (or as nice as it may), and only then."""
    gpu.start()
    assert gpu.daemon.process is not None
    own = gpu.daemon.process.pid

    def priority() -> tuple[int, int, int]:
        return (os.sched_getscheduler(own) & ~os.SCHED_RESET_ON_FORK, os.sched_getparam(own).sched_priority,
                os.getpriority(os.PRIO_PROCESS, own))

    wait_for("it stands", lambda: priority()[1] == 1 or priority()[2] == -11)
    before = priority()
    pid = gpu.process()
    if before[0] == os.SCHED_FIFO:
        wait_for("it is urgent", lambda: priority()[1] == 40)
    else:
        wait_for("it is urgent", lambda: priority()[2] == -20)
    locked = next(line for line in Path(f"/proc/{own}/status").read_text().splitlines() if line.startswith("VmLck"))
    check = next(c for c in gpu.daemon.ask("doctor")["checks"] if c["check"] == "nvidia real-time")
    said = "memory is locked" in check["detail"]
    assert check["ok"] == (said and before[0] == os.SCHED_FIFO)
    assert said or not int(locked.split()[1])  # under the address sanitizer locking does nothing, and says that it did
    gpu.process("gone", pid=pid)
    wait_for("it is no longer", lambda: priority() == before)


def test_mig_is_left_alone(gpu: Gpu) -> None:
    """The doctor says why nothing is governed on a GPU in MIG mode."""
    gpu.start(RTXG_FAKE_GPUS="2", RTXG_FAKE_MIG="1")
    checks = {c["check"]: c for c in gpu.daemon.ask("doctor")["checks"]}
    assert not checks["nvidia0"]["ok"] and "MIG mode" in checks["nvidia0"]["detail"] and "-mig 0" in checks["nvidia0"]["detail"]
    assert checks["nvidia1"]["ok"]
    policies = {g["gpu"]: g["policy"] for g in gpu.daemon.ask("gpu-list")["gpus"]}
    assert policies["nvidia0"] == "none" and policies["nvidia1"] == "batch"


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of a protocol buffer message: numbers, and bytes."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = number()
        if key & 7 == 0:
            yield key >> 3, number()
        else:
            assert key & 7 == 2
            size = number()
            yield key >> 3, data[at : at + size]
            at += size


def published(
    file: Path, tracks: dict[int, str], stays: dict[int, list[tuple[int, int, str]]]
) -> None:
    """The same by Perfetto's published protobufs: no field is unknown to them, and none missing."""
    pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    trace = pb2.Trace.FromString(file.read_bytes())
    # What a schema does not know is left out when the message is written again.
    whole = pb2.Trace.FromString(trace.SerializeToString())
    whole.DiscardUnknownFields()
    assert whole.SerializeToString() == trace.SerializeToString()
    assert len(trace.SerializeToString()) == file.stat().st_size
    first = trace.packet[0].clock_snapshot
    assert first.primary_trace_clock == pb2.BUILTIN_CLOCK_MONOTONIC
    assert {c.clock_id for c in first.clocks} >= {
        pb2.BUILTIN_CLOCK_MONOTONIC,
        pb2.BUILTIN_CLOCK_BOOTTIME,
    }
    names: dict[int, str] = {}
    begun: dict[int, int] = {}
    for packet in trace.packet[1:]:
        assert packet.trusted_packet_sequence_id == 1
        if packet.HasField("track_descriptor"):
            names[packet.track_descriptor.uuid] = packet.track_descriptor.name
            continue
        event = packet.track_event
        assert packet.timestamp_clock_id == pb2.BUILTIN_CLOCK_MONOTONIC
        assert event.track_uuid in names, "a track is described before its first event"
        if event.type == pb2.TrackEvent.TYPE_SLICE_BEGIN:
            begun[event.track_uuid] = packet.timestamp
            assert event.name
        else:
            assert event.type == pb2.TrackEvent.TYPE_SLICE_END
            assert packet.timestamp >= begun.pop(event.track_uuid)
    assert names == tracks and not begun


def perfetto(data: bytes) -> tuple[dict[int, str], dict[int, list[tuple[int, int, str]]]]:
    """Names of tracks, and the spans (begin, end, name) on each."""
    tracks: dict[int, str] = {}
    spans: dict[int, list[tuple[int, int, str]]] = {}
    begun: dict[int, tuple[int, str]] = {}
    for number, packet in fields(data):
        assert number == 1
        p = dict(fields(packet))
        assert p[10] == 1
        if 6 in p:
            continue  # clocks: see published()
        if 60 in p:
            descriptor = dict(fields(p[60]))
            tracks[descriptor[1]] = descriptor[2].decode()
            continue
        assert p[58] == 3
        event = dict(fields(p[11]))
        if event[9] == 1:
            begun[event[11]] = (p[8], event[23].decode())
        else:
            begin, name = begun.pop(event[11])
            spans.setdefault(event[11], []).append((begin, p[8], name))
    return tracks, spans
