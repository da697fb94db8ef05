# SPDX-License-Identifier: MIT
"""Measuring: decoding of the kernel's ring buffer, reading of events, the reasons for unseen overheads,
and running a task set.  No test depends on the speed of this machine."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
from pathlib import Path

import pytest
from small_sets import task as make_task
from small_sets import taskset

from rtxg import Overheads, analyze, loads
from rtxg.commands import measure as command
from rtxg.measure import (
    Distribution,
    Measurement,
    bottom_halves,
    find_interrupts,
    find_ticks,
    from_timeline,
    ipi_latencies,
    measure,
    thread_releases,
    timer_calls,
    top_halves,
)
from rtxg.replay import choose_policy, replay, reservation
from rtxg.tracefs import Event, Recording, Unavailable, decode_page, find_tracefs, parse_format

TIMELINE = [
    {"kind": "stay", "gpu": "nvidia0", "pid": 1, "start_ns": 0, "end_ns": 2_000_000},
    {"kind": "stop", "gpu": "nvidia0", "pid": 1, "start_ns": 2_000_000, "end_ns": 2_650_000},
    {"kind": "stay", "gpu": "nvidia0", "pid": 2, "start_ns": 2_180_000, "end_ns": 2_400_000},
    {"kind": "stay", "gpu": "nvidia0", "pid": 2, "start_ns": 2_500_000, "end_ns": 2_600_000},
    {"kind": "stay", "gpu": "nvidia1", "pid": 3, "start_ns": 2_700_000, "end_ns": 9_000_000},
    {"kind": "resume", "gpu": "nvidia0", "pid": 1, "start_ns": 5_000_000, "end_ns": 5_400_000},
    {"kind": "stay", "gpu": "nvidia0", "pid": 1, "start_ns": 9_000_000, "end_ns": 9_100_000},
]


def test_the_levers_acts_are_read_from_its_timeline():
    assert from_timeline(TIMELINE) == {"suspend": [650.0], "resume": [400.0], "slice_switch": [180.0]}


@pytest.mark.parametrize("long", [False, True])
def test_a_running_daemon_says_what_its_lever_takes(tmp_path, monkeypatch, long):
    """Also where the list is too long for a message, and comes in a memory file."""
    path = tmp_path / "rtxgd.sock"
    monkeypatch.setenv("RTXG_SOCKET", str(path))
    assert "no rtxgd listens" in measure(0.01, tracepoints=False, batches=2).unseen["suspend"]
    text = json.dumps({"ok": True, "events": TIMELINE}).encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(str(path))
        server.listen()

        def answer():
            connection, _ = server.accept()
            with connection:
                assert json.loads(connection.recv(1000)) == {"op": "timeline"}
                if not long:
                    connection.send(text)
                    return
                fd = os.memfd_create("reply")
                os.write(fd, text)
                reply = json.dumps({"ok": True, "memfd": len(text)}).encode()
                socket.send_fds(connection, [reply], [fd])
                os.close(fd)

        thread = threading.Thread(target=answer)
        thread.start()
        found = measure(0.01, tracepoints=False, batches=2)
        thread.join()
    assert found.to_json()["overheads"]["suspend"] == 650
    assert Overheads.from_mapping(found.to_json()["overheads"]).slice_switch == 180
    assert not {"suspend", "resume", "slice_switch"} & set(found.unseen)


def test_a_daemon_that_refuses_is_quoted(tmp_path, monkeypatch):
    path = tmp_path / "rtxgd.sock"
    monkeypatch.setenv("RTXG_SOCKET", str(path))
    for said, why in ((b'{"ok": false, "message": "for root"}', "for root"), (b"hello", "is not JSON")):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
            path.unlink(missing_ok=True)
            server.bind(str(path))
            server.listen()

            def answer(server=server, said=said):
                connection, _ = server.accept()
                with connection:
                    connection.recv(1000)
                    connection.send(said)

            thread = threading.Thread(target=answer)
            thread.start()
            found = measure(0.01, tracepoints=False, batches=2)
            thread.join()
        assert why in found.unseen["resume"]


FORMAT = """\
name: irq_handler_entry
ID: 173
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:int irq;\toffset:8;\tsize:4;\tsigned:1;
\tfield:__data_loc char[] name;\toffset:12;\tsize:4;\tsigned:0;
\tfield:char comm[8];\toffset:16;\tsize:8;\tsigned:0;

print fmt: "irq=%d name=%s", REC->irq, __get_str(name)
"""


def record(irq, name=b"gpu", comm=b"task"):
    body = (
        struct.pack("<HBBi", 173, 0, 0, 1)
        + struct.pack("<iI", irq, (len(name) + 1) << 16 | 24)
        + comm.ljust(8, b"\0")
        + name
        + b"\0"
    )
    return body.ljust(-(-len(body) // 4) * 4, b"\0")


def entry(delta, body):
    """A ring-buffer event: 27 bits of time, 5 bits of length in words."""
    return struct.pack("<I", delta << 5 | len(body) // 4) + body


def page(start, *entries):
    data = b"".join(entries)
    return (struct.pack("<QQ", start, len(data)) + data).ljust(4096, b"\0")


@pytest.fixture
def formats():
    number, fields = parse_format(FORMAT)
    return {number: ("irq_handler_entry", fields)}


def test_format():
    number, fields = parse_format(FORMAT)
    assert number == 173
    assert [(f.name, f.offset, f.size, f.kind) for f in fields] == [
        ("irq", 8, 4, "number"),
        ("name", 12, 4, "dynamic"),
        ("comm", 16, 8, "text"),
    ]


def test_page(formats):
    long_record = record(9, b"x" * 200)
    data = page(
        1000,
        entry(0, record(7)),
        struct.pack("<II", 5 << 5 | 30, 3),  # 3 * 2^27 + 5 later
        entry(10, record(-1, comm=b"other")),
        struct.pack("<III", 20 << 5, len(long_record) + 4, 0)[:8] + long_record,  # length in a separate word
        struct.pack("<II", 4 << 5 | 31, 100),  # absolute time
        entry(1, record(8)),
    )
    events = list(decode_page(data, 2, formats))
    later = 1000 + (3 << 27) + 5 + 10
    assert [e.time for e in events] == [1000, later, later + 20, (100 << 27) + 5]
    assert [e.fields["irq"] for e in events] == [7, -1, 9, 8]
    assert events[0].fields == {"irq": 7, "name": "gpu", "comm": "task"}
    assert events[1].fields["comm"] == "other"
    assert events[2].fields["name"] == "x" * 200
    assert all(e.cpu == 2 for e in events)


@pytest.mark.parametrize("cut", range(0, 80, 3))
def test_damaged_pages_do_no_harm(cut, formats):
    whole = page(1000, entry(0, record(7)), entry(5, record(8)))
    assert len(list(decode_page(whole[:cut], 0, formats))) <= 2
    assert list(decode_page(bytes(4096), 0, formats)) == []
    assert len(list(decode_page(b"\xff" * 4096, 0, formats))) <= 4096


def at(time, name, cpu=0, **fields):
    return Event(time, cpu, name, fields)


def test_top_halves_of_the_chosen_interrupt_only():
    events = [
        at(0, "irq_handler_entry", irq=5), at(1, "irq_handler_entry", cpu=1, irq=9), at(2000, "irq_handler_exit", irq=5),
        at(3000, "irq_handler_exit", cpu=1, irq=9), at(4000, "irq_handler_entry", irq=5), at(4500, "irq_handler_exit", irq=5),
    ]  # fmt: skip
    assert top_halves(events, {5}) == [2.0, 0.5]


def test_bottom_halves_are_softirqs_and_threads():
    events = [
        at(0, "irq_handler_entry", irq=5), at(100, "softirq_entry", vec=6), at(1100, "softirq_exit", vec=6),
        at(2000, "irq_handler_entry", irq=9), at(2100, "softirq_entry", vec=3), at(2200, "softirq_exit", vec=3),
        at(3000, "sched_switch", next_comm="irq/5-nvidia"), at(7000, "sched_switch", next_comm="swapper"),
        at(8000, "sched_switch", next_comm="irq/59-other"), at(9000, "sched_switch", next_comm="swapper"),
        at(9100, "softirq_entry", vec=1), at(9200, "softirq_exit", vec=1),
    ]  # fmt: skip
    assert bottom_halves(events, {5}) == [1.0, 4.0]


def test_the_release_of_an_interrupts_thread():
    events = [
        at(0, "irq_handler_entry", irq=5), at(1000, "irq_handler_exit", irq=5),
        at(1200, "sched_wakeup", cpu=1, comm="irq/5-nvidia"),  # by another CPU, for another reason
        at(2500, "sched_wakeup", comm="irq/5-nvidia"), at(2600, "sched_wakeup", comm="irq/5-nvidia"),
        at(3000, "irq_handler_exit", irq=5), at(3100, "irq_handler_exit", irq=9), at(3200, "sched_wakeup", comm="irq/5-nvidia"),
        at(4000, "irq_handler_exit", irq=5), at(4100, "sched_wakeup", comm="irq/59-other"),
    ]  # fmt: skip
    assert thread_releases(events, {5}) == [1.5]


def test_timers_and_ipis():
    events = [
        at(0, "hrtimer_expire_entry", function=77), at(10, "hrtimer_expire_entry", cpu=1, function=78),
        at(900, "hrtimer_expire_exit"), at(950, "hrtimer_expire_exit", cpu=1),
        Event(1000, 0, "ipi_send_cpu", {"cpu": 1}),
        at(1500, "reschedule_entry", cpu=0), at(1700, "reschedule_entry", cpu=1),
    ]  # fmt: skip
    assert timer_calls(events, {77}) == [0.9]
    assert ipi_latencies(events) == [0.7]


def test_interquartile_mean_and_whole_mean():
    samples = (1.0, 2.0, 2.0, 3.0, 100.0)
    assert Distribution(samples, "").value == pytest.approx((2 + 2 + 3) / 3)
    assert Distribution(samples, "", whole=True).value == pytest.approx(108 / 5)
    found = Measurement()
    found.add("th", samples, "")
    found.add("sch", samples, "")
    found.add("rel", [], "")
    assert found.seen["th"].whole
    assert not found.seen["sch"].whole
    assert "rel" not in found.seen


def test_interrupts_are_found_by_number_or_name():
    text = "      CPU0 CPU1\n 24:  1  0  IO-APIC 5-edge  ACPI:Ged\n 99: 12 7 PCI-MSIX-0000:01:00.0 0-edge nvidia\n"
    text += "LOC: 5 5 Local timer\n"
    assert find_interrupts("nvidia", text) == {99: "nvidia"}
    assert find_interrupts("24", text) == {24: "ACPI:Ged"}
    assert find_interrupts("LOC", text) == {}


def test_ticks_are_told_from_noise():
    ticks = [(4000.0 * i + 123, 5.0) for i in range(100)]
    noise = [(4000.0 * i + (i * 617) % 4000, 50.0) for i in range(60)]
    assert sum(x == 5.0 for x in find_ticks(sorted(ticks + noise), 4000)) == 100
    assert find_ticks(noise, 4000) == []
    assert find_ticks([], 4000) == []


def test_what_cannot_be_seen_is_said():
    found = measure(0.05, "no-such-device", tracepoints=False, batches=20)
    named = set(found.seen) | set(found.unseen)
    assert {"sch", "cxs", "ipi", "rel", "th", "bh", "krel", "pairel", "paisch", "tck", "quantum"} <= named
    assert {"th", "bh", "rel"} <= set(found.unseen)
    assert all(found.unseen.values())
    assert all(d.value >= 0 for d in found.seen.values())
    data = found.to_json()
    Overheads.from_mapping(data["overheads"])  # can be analysed with
    assert set(data["overheads"]).isdisjoint(found.unseen)


def test_recording():
    try:
        root = find_tracefs()
    except Unavailable as error:
        pytest.skip(str(error))
    before = set((root / "instances").iterdir())
    with Recording(["sched/sched_switch", "no/such_event"], root) as recording:
        for _ in range(50):
            child = os.fork()
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
        recording.collect()
    assert recording.missing == ["no/such_event"]
    assert recording.events
    assert [e.time for e in recording.events] == sorted(e.time for e in recording.events)
    assert all(e.name == "sched_switch" and e.fields["next_comm"] for e in recording.events)
    assert set((root / "instances").iterdir()) == before


def test_events_are_decoded_when_the_recording_has_ended(tmp_path):
    """A slow CPU decodes no faster than events come: reading would have no end."""
    recording = Recording([], tmp_path)
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    recording._pipes = [(0, reader)]
    os.write(writer, bytes(os.sysconf("SC_PAGE_SIZE")))
    recording.collect()
    assert [cpu for cpu, _ in recording._pages] == [0]
    assert not recording.events
    recording.close()
    os.close(writer)


def test_no_tracefs_is_said(tmp_path):
    with pytest.raises(Unavailable, match="no trace instance"), Recording([], tmp_path):
        pass


SMALL = """
[platform]
cpus = 1
gpus = 1
[[task]]
name = "gpu"
run = "1ms"
period = "50ms"
gpu = { calls = 2, time = "4ms", section = "4.5ms" }
[[task]]
name = "cpu"
run = "2ms"
period = "30ms"
"""


def test_a_task_set_is_run():
    problem = loads(SMALL)
    found = analyze(problem.taskset, **problem.options)
    policy, observed = replay(found, 0.3, "other")
    assert policy == "other"
    assert [o.task for o in observed] == ["gpu", "cpu"]
    for seen, task in zip(observed, problem.taskset, strict=True):
        # A job may be released at either end; 0.3 / 0.05 is a little less than 6 in binary.
        assert 1 <= len(seen.responses) <= round(0.3 / (float(task.period) / 1e6), 6) + 1
        assert min(seen.responses) > float(task.gpu_time)  # no job is done before its work is
        late = max(seen.responses) - float(task.deadline)
        assert seen.max_tardiness == pytest.approx(max(0.0, late), abs=1)
        assert seen.missed == sum(r > float(task.deadline) for r in seen.responses)


def test_too_few_cpus_are_refused():
    problem = loads(SMALL.replace("cpus = 1", "cpus = 4096"))
    with pytest.raises(ValueError, match="4096 CPUs"):
        replay(analyze(problem.taskset, **problem.options), 0.1)
    assert choose_policy(loads(SMALL).taskset) in ("deadline", "fifo", "other")


def test_command_measures(tmp_path, capsys):
    out = tmp_path / "here.json"
    assert command.main(["--seconds", "0.05", "--no-tracepoints", "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert "not seen: th" in text
    assert "sch" in json.loads(out.read_text())["overheads"]


def test_command_refuses_and_runs(tmp_path: Path, capsys):
    path = tmp_path / "t.toml"
    path.write_text(SMALL.replace('"2ms"', '"31ms"'))
    assert command.main(["--run", str(path)]) == 2
    assert "refused" in capsys.readouterr().out
    path.write_text(SMALL)
    status = command.main(["--run", str(path), "--seconds", "0.2", "--policy", "other", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert status == (2 if found["later_than_promised"] else 0)
    assert [t["name"] for t in found["tasks"]] == ["gpu", "cpu"]


def test_reservations_have_a_margin():
    """The kernel charges for more than a thread's own time: a reservation of just that was throttled at
    the end of every job, and each was a period late."""
    found = analyze(taskset(make_task("a", 15_000, 100_000), make_task("b", 4000, 40_000, 2, 6000, 7000)), interrupts="none")
    assert reservation(found["a"]) == pytest.approx(15_000 * 1.02 + 500)
    assert reservation(found["b"]) == pytest.approx(4000 * 1.02 + 500)  # suspensions do not count
