#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a critical CPU task loses to others' GPU interrupts, and what placement gives back.

usage: irq_place.py [--product] [--seconds S] [--rounds N] [--others N] [--json FILE]
       irq_place.py --dry --irq NAME [...]    without a GPU, by any interrupt: the loads sleep

A SCHED_FIFO 90 task does a job of about 1 ms in every 2 ms on the CPU that the GPU's interrupts go
to, while N PyTorch programs on other CPUs wait for small kernels by blocking events. Four cases:

    alone           the others stand still
    theirs          they run
    placed          they run; `rtxg latency --irq NAME=CPUS` has sent the interrupts elsewhere.
                    With --product: rtxgd does, by KeepOffInterrupts= and KeepOffCPUs=
    elsewhere       they run, and the task is on a CPU without interrupts of the GPU

With --product the task has a task of an rtxgd in all four cases, and the daemon is told of
interrupts and CPUs in the third alone. It sees the task within 0.1 s; a second passes before the
first job.

A job reads the clock over and over. Where two readings are more than 2 us apart, something else had
the CPU. Printed and written for each case: what was taken from a second of work, gaps by length,
how long jobs took and how late they began, and which interrupts came on that CPU. Needs root.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import platform
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
DAEMON = Path(os.environ.get("RTXG_DAEMON", TOP / "build/release/daemon/rtxgd"))
LATENCY = Path(os.environ.get("RTXG_LATENCY", TOP / "build/release/latency/rtxg-latency"))
PRIORITY = 90
#: until programs on the GPU are warm, and beyond a case's own seconds, until its task has ended
WARM_S, TASK_S = 60, 20
PERIOD_NS = 2_000_000
WORK_NS = 1_000_000
GAP_NS = 2_000
BINS_US = (5, 10, 20, 50, 100, 200, 500)

LOAD = """
import sys, torch
a = torch.randn(512, 512, device="cuda")
done = torch.cuda.Event(blocking=True)
n = 0
def once():
    for _ in range(2):
        torch.mm(a, a)
    done.record()
    done.synchronize()
for _ in range(50):
    once()
open(sys.argv[1] + ".warm", "w").close()
while True:
    for _ in range(100):
        once()
    n += 100
    with open(sys.argv[1], "w") as out:
        out.write(str(n))
"""
DRY = "import sys, time; open(sys.argv[1] + '.warm', 'w').close(); time.sleep(1e6)"


def ask(path: str, **request: object) -> tuple[socket.socket, dict]:
    """One request to rtxgd; the connection, and the answer."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(10)
    connection.connect(path)
    connection.send(json.dumps(request).encode())
    data, fds, _, _ = socket.recv_fds(connection, 1 << 17, 4)
    answer = json.loads(data)
    if "memfd" in answer:
        answer = json.loads(os.pread(fds[0], answer["memfd"], 0))
    if not answer["ok"]:
        raise SystemExit(f"irq_place.py: rtxgd refuses {request}: {answer}")
    return connection, answer


def task(cpu: int, seconds: float, rtxgd: str) -> dict[str, object]:
    """The critical task, in this process: what its jobs lost."""
    os.sched_setaffinity(0, {cpu})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    gc.disable()
    said: dict[str, object] = {}
    # ends with this process
    opened = ask(rtxgd, op="open") if rtxgd else None
    if opened:
        time.sleep(1)
        checks = ask(rtxgd, op="doctor")[1]["checks"]
        said = {"doctor": [c["detail"] for c in checks if c["check"] == "interrupts"]}
    now = time.perf_counter_ns
    gaps: list[int] = []

    def job(steps: int) -> None:
        last = now()
        for _ in range(steps):
            t = now()
            if t - last > GAP_NS:
                gaps.append(t - last)
            last = t

    began = now()
    job(20_000)
    steps = 20_000 * WORK_NS // (now() - began)
    gaps.clear()
    took, late = [], []
    due = now() + PERIOD_NS
    end = due + int(seconds * 1e9)
    while due < end:
        left = due - now()
        if left > 0:
            time.sleep(left / 1e9)
        start = now()
        job(steps)
        took.append(now() - start)
        late.append(start - due)
        due = max(due + PERIOD_NS, now())
    took.sort()
    late.sort()

    def at(values: list[int], q: float) -> float:
        return round(values[min(len(values) - 1, int(len(values) * q))] / 1e3, 1)

    counts = [0] * (len(BINS_US) + 1)
    for gap in gaps:
        counts[sum(gap >= us * 1000 for us in BINS_US)] += 1
    return said | {
        "jobs": len(took),
        "taken_us_per_s": round(sum(gaps) / 1e3 / (sum(took) / 1e9), 1),
        "gaps": len(gaps),
        "longest_gap_us": round(max(gaps, default=0) / 1e3, 1),
        "gaps_below_us": dict(zip([*map(str, BINS_US), "more"], counts, strict=True)),
        "job_us": {
            "p1": at(took, 0.01),
            "p50": at(took, 0.5),
            "p99": at(took, 0.99),
            "max": at(took, 1),
        },
        "late_us": {"p50": at(late, 0.5), "p99": at(late, 0.99), "max": at(late, 1)},
        "faults": resource.getrusage(resource.RUSAGE_SELF).ru_majflt,
    }


def interrupts() -> dict[str, tuple[str, list[int]]]:
    """/proc/interrupts: what stands before the colon -> (name, counts in the head's order)."""
    lines = Path("/proc/interrupts").read_text().splitlines()
    cpus = len(lines[0].split())
    found = {}
    for line in lines[1:]:
        number, _, rest = line.partition(":")
        words = rest.split()
        counts = [int(w) for w in words[:cpus] if w.isdigit()]
        if len(counts) == cpus:
            found[number.strip()] = (" ".join(words[cpus:]), counts)
    return found


def columns() -> list[int]:
    """The CPUs of the columns of /proc/interrupts."""
    head = Path("/proc/interrupts").read_text().splitlines()[0]
    return [int(n) for n in re.findall(r"CPU(\d+)", head)]


def grown(before: dict, after: dict, cpu: int) -> dict[str, int]:
    """Interrupts that came on a CPU between two readings, by number and name."""
    column = columns().index(cpu)
    came = {}
    for number, (name, counts) in after.items():
        old = before.get(number, (name, [0] * len(counts)))[1]
        if counts[column] > old[column]:
            came[f"{number} {name}".strip()] = counts[column] - old[column]
    return came


def busiest(name: str, seconds: float) -> tuple[int, int, float]:
    """The interrupt of this name that comes most often now, its CPU, and how often a second."""
    before = interrupts()
    time.sleep(seconds)
    best = (0, -1, 0.0)
    for number, (words, counts) in interrupts().items():
        if not number.isdigit() or name not in words:
            continue
        more = [b - a for a, b in zip(before[number][1], counts, strict=True)]
        rate = sum(more) / seconds
        if best[1] < 0 or rate > best[2]:
            best = (int(number), columns()[more.index(max(more))], rate)
    return best


def listed(cpus: list[int]) -> str:
    """CPUs as the kernel takes them."""
    return ",".join(map(str, cpus))


def affinity(irq: int) -> str:
    """Where an interrupt is sent, and where it may be."""
    read = {}
    for file in ("smp_affinity_list", "effective_affinity_list"):
        try:
            read[file] = Path(f"/proc/irq/{irq}/{file}").read_text().strip()
        except OSError as error:
            read[file] = str(error)
    return f"{read['smp_affinity_list']} (effective {read['effective_affinity_list']})"


def effective(irq: int) -> list[int]:
    """The CPUs on which an interrupt comes."""
    try:
        text = Path(f"/proc/irq/{irq}/effective_affinity_list").read_text()
    except OSError:
        return []
    ranges = [part.split("-") for part in text.strip().split(",") if part]
    return [cpu for r in ranges for cpu in range(int(r[0]), int(r[-1]) + 1)]


class Others:
    """Programs of others on the GPU, on CPUs of their own; they can be halted."""

    def __init__(self, count: int, cpus: list[int], dry: bool) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.files = [Path(self.folder.name) / f"n{i}" for i in range(count)]
        self.programs = []
        for i, file in enumerate(self.files):
            command = [
                "taskset",
                "-c",
                listed([cpus[i % len(cpus)]]),
                sys.executable,
                "-c",
                DRY if dry else LOAD,
                str(file),
            ]
            self.programs.append(subprocess.Popen(command))

    def await_warm(self) -> None:
        """Until each has had its first kernels."""
        end = time.monotonic() + WARM_S
        while not all(Path(f"{file}.warm").exists() for file in self.files):
            if any(program.poll() is not None for program in self.programs):
                raise SystemExit(
                    "irq_place.py: a load ended before it was warm; is PyTorch with CUDA here?"
                )
            if time.monotonic() > end:
                raise SystemExit(f"irq_place.py: the loads are not warm after {WARM_S} s")
            time.sleep(0.05)

    def halt(self, on: bool) -> None:
        """Stops them, or lets them go on."""
        for program in self.programs:
            program.send_signal(signal.SIGSTOP if on else signal.SIGCONT)
        time.sleep(0.3)

    def move(self, cpus: list[int]) -> None:
        """Puts each of their threads on one of these CPUs, the last first."""
        for i, program in enumerate(self.programs):
            command = ["taskset", "-apc", str(cpus[-1 - i % len(cpus)]), str(program.pid)]
            subprocess.run(command, capture_output=True, check=False)

    def rounds(self) -> int:
        """How often they have waited, all together."""
        return sum(int(file.read_text() or 0) for file in self.files if file.exists())

    def close(self) -> None:
        """Ends them."""
        for program in self.programs:
            program.send_signal(signal.SIGCONT)
            program.kill()
            program.wait()
        self.folder.cleanup()


class Product:
    """An rtxgd of our own, on CPUs of its own."""

    def __init__(self, cpus: list[int]) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.socket = f"{self.folder.name}/rtxgd.sock"
        root = Path(self.folder.name) / "root"
        self.config = root / "etc/rtxg/rtxg.conf"
        self.config.parent.mkdir(parents=True)
        self.config.write_text("")
        arguments = ["--user", "--host", "daemon", "--idle-exit", "0", "--socket", self.socket]
        self.program = subprocess.Popen(
            ["taskset", "-c", listed(cpus), DAEMON, *arguments, "--config-root", root]
        )

    def await_socket(self) -> None:
        """Until it answers."""
        end = time.monotonic() + 10
        while not Path(self.socket).exists():
            if self.program.poll() is not None or time.monotonic() > end:
                raise SystemExit("irq_place.py: rtxgd does not start")
            time.sleep(0.05)

    def keep_off(self, name: str, cpus: list[int]) -> None:
        """These interrupts off these CPUs, while a critical task is there."""
        self.config.write_text(
            f"[Daemon]\nKeepOffInterrupts={name}\nKeepOffCPUs={listed(cpus)}\n"
        )
        ask(self.socket, op="reload")

    def close(self) -> None:
        """Ends it."""
        self.program.terminate()
        try:
            self.program.wait(timeout=10)
        except subprocess.TimeoutExpired:
            # its guard puts the interrupts back
            self.program.kill()
            self.program.wait()
        self.folder.cleanup()


def measure(
    cpu: int, seconds: float, others: Others, product: Product | None = None
) -> dict[str, object]:
    """One case: the task in a process of its own, and the interrupts on its CPU meanwhile."""
    before, rounds, began = interrupts(), others.rounds(), time.monotonic()
    rtxgd = product.socket if product else ""
    try:
        done = subprocess.run(
            [sys.executable, __file__, "--task", str(cpu), str(seconds), rtxgd],
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds + TASK_S,
        )
    except subprocess.TimeoutExpired as error:
        return {"cpu": cpu, "not_done": str(error)}
    if done.returncode:
        return {"cpu": cpu, "not_done": done.stderr.strip()[-300:]}
    span = time.monotonic() - began
    came = grown(before, interrupts(), cpu)
    return {
        "cpu": cpu,
        **json.loads(done.stdout),
        "interrupts_per_s": {
            k: round(n / span, 1)
            for k, n in sorted(came.items(), key=lambda i: -i[1])
            if n / span > 1
        },
        "others_waits_per_s": round((others.rounds() - rounds) / span),
    }


class Placed:
    """`rtxg latency --irq` holds the interrupts elsewhere while this lasts, and puts them back."""

    def __init__(self, name: str, cpus: list[int]) -> None:
        self.program = subprocess.Popen(
            [
                LATENCY,
                "-q",
                "--user-only",
                "--laptop",
                "-p",
                "0",
                "-i",
                "100000",
                "-a",
                str(cpus[0]),
                "--irq",
                f"{name}={listed(cpus)}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        time.sleep(1)

    def end(self) -> str:
        """Puts them back; what the program said."""
        if self.program.poll() is None:
            self.program.send_signal(signal.SIGINT)
        try:
            said = self.program.communicate(timeout=10)[1].strip()
        except subprocess.TimeoutExpired:
            self.program.kill()
            said = self.program.communicate()[1].strip() + " (killed: its guardian puts them back)"
        time.sleep(0.5)
        return said


class Watch(threading.Thread):
    """Notes where an interrupt is sent, while this lasts."""

    def __init__(self, irq: int) -> None:
        super().__init__(daemon=True)
        self.irq, self.seen, self.over = irq, [affinity(irq)], threading.Event()
        self.start()

    def run(self) -> None:
        """Looks ten times a second."""
        while not self.over.wait(0.1):
            now = affinity(self.irq)
            if now != self.seen[-1]:
                self.seen.append(now)

    def end(self) -> str:
        """All that it was."""
        time.sleep(0.5)
        self.over.set()
        self.join()
        return ", then ".join(self.seen)


def machine() -> dict[str, object]:
    """What the figures depend on."""
    ask = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        gpu = subprocess.run(ask, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        gpu = "none"
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return {
        "gpu": gpu,
        "cpu": model.group(1) if model else platform.machine(),
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
    }


def show(name: str, case: dict) -> None:
    """One case in a line."""
    if "not_done" in case:
        print(f"{name:10} not done: {case['not_done']}", flush=True)
        return
    gpu = {k: v for k, v in case["interrupts_per_s"].items() if k.split()[0].isdigit()}
    job, late = case["job_us"], case["late_us"]
    print(
        f"{name:10} CPU {case['cpu']:3}: {case['taken_us_per_s']:9.1f} us of a second taken,"
        f" longest {case['longest_gap_us']:7.1f} us;"
        f" job p50 {job['p50']:7.1f} p99 {job['p99']:7.1f} max {job['max']:7.1f};"
        f" late p99 {late['p99']:6.1f} max {late['max']:6.1f};"
        f" others {case['others_waits_per_s']}/s; devices' {gpu}",
        flush=True,
    )


def one_round(
    options: argparse.Namespace, cpus: list[int], others: Others, product: Product | None
) -> dict[str, object]:
    """The four cases; empty: no interrupt of that name comes."""
    # put back, interrupts may go to another of the CPUs that they are sent to
    irq, target, rate = busiest(options.irq, 1.0)
    if target not in cpus or (rate < 1 and not options.dry):
        print(f"irq_place.py: no interrupt of '{options.irq}' comes", file=sys.stderr)
        return {}
    rest = [c for c in cpus if c != target]
    others.move(rest)
    cases: dict[str, object] = {
        "irq": {"number": irq, "cpu": target, "per_s": round(rate), "sent_to": affinity(irq)}
    }
    print(f"interrupt {irq}: {rate:.0f}/s on CPU {target}, sent to {affinity(irq)}", flush=True)
    others.halt(True)
    cases["alone"] = measure(target, options.seconds, others, product)
    others.halt(False)
    cases["theirs"] = measure(target, options.seconds, others, product)
    if product:
        product.keep_off(f"*{options.irq}*", [target])
        watch = Watch(irq)
        cases["placed"] = measure(target, options.seconds, others, product)
        where, said = watch.end(), str(cases["placed"].get("doctor"))
        product.keep_off("", [])
    else:
        placed = Placed(options.irq, rest)
        where = affinity(irq)
        cases["placed"] = measure(target, options.seconds, others)
        said = placed.end()
    cases["placed"] |= {"sent_to": where, "said": said, "sent_to_afterwards": affinity(irq)}
    # put back, they may come on another of their CPUs
    quiet = [c for c in rest if c not in effective(irq)] or rest
    cases["elsewhere"] = measure(quiet[0], options.seconds, others, product)
    for name in ("alone", "theirs", "placed", "elsewhere"):
        show(name, cases[name])
    print(f"placed: sent to {where}; afterwards {affinity(irq)}; {said}", flush=True)
    return cases


def main() -> int:
    """Runs the cases; the exit status."""
    if len(sys.argv) == 5 and sys.argv[1] == "--task":
        print(json.dumps(task(int(sys.argv[2]), float(sys.argv[3]), sys.argv[4])))
        return 0
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--others", type=int, default=3)
    parser.add_argument("--irq", default="nvidia")
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--product", action="store_true", help="rtxgd moves the interrupts")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    # so that what runs beside it ends with it, however it is ended
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        print("irq_place.py: one CPU: there is nowhere to place anything", file=sys.stderr)
        return 2
    record: dict[str, object] = {
        "machine": machine(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "command": "bench/gpu/irq_place.py " + " ".join(sys.argv[1:]),
        "task": {
            "policy": f"FIFO {PRIORITY}",
            "period_us": PERIOD_NS // 1000,
            "work_us": WORK_NS // 1000,
            "gap_us": GAP_NS // 1000,
        },
        "others": options.others,
        "rounds": [],
    }
    with contextlib.ExitStack() as ends:
        others = Others(options.others, cpus[-options.others :], options.dry)
        ends.callback(others.close)
        product = Product(cpus[-options.others :]) if options.product else None
        if product:
            ends.callback(product.close)
            product.await_socket()
        others.await_warm()
        for _ in range(options.rounds):
            cases = one_round(options, cpus, others, product)
            if not cases:
                return 1
            record["rounds"].append(cases)
            if options.json:
                options.json.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
