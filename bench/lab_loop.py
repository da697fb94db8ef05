#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The loop of docs/analysis.md on live kernels: measure the machine, analyse with what was found,
run, and hold what was seen against what was promised.

usage: python3 bench/lab_loop.py [--sets N] [--seconds S] [--seed N] [--scale F] [--policies A,B]
                                 [--keep FILE] [KERNEL...]
       python3 bench/lab_loop.py --here [...]   this machine instead of QEMU's; needs root

Without --here each kernel (6.1 and 6.12-rt by default) boots with one CPU whose time is the number
of instructions (4 ns each), so that what else this machine does does not count; rtxg.ko is loaded.
Such a CPU is some ten times slower than a real one: --scale makes all periods longer (3 there).
The guest's own interpreter runs `rtxg measure` and the task sets, under SCHED_DEADLINE, SCHED_FIFO
and the module's edf, rm and module-deadline.  Half of the sets use a GPU, which is a sleep.  Sets
that the analysis refuses because they need more CPUs than there are run with it overruled: they
are to be late.  A guest measures the hand-over of a permit too, by bench/handover with rtxg.ko as
the host.  With --sets 0 nothing is run: the measurement alone is wanted.

Prints a line a run, and exits with 1 if a job was later than promised; 77 without QEMU.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import py_compile
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from datetime import date
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ.get("RTXG_BUILD", TOP / "build" / "release"))
sys.path.insert(0, str(TOP / "lab"))

POLICIES = ("deadline", "fifo", "edf", "rm", "module-deadline")
#: In the guest: loads the module, unpacks the interpreter, keeps a disk busy while it measures.
GUEST = """#!/bin/busybox sh
mkdir -p /tmp && cd / && tar xf /tests/w_python.tar || exit 1
insmod /modules/rtxg.ko || exit 1
export PYTHONHOME=/usr PYTHONPATH=/lab RTXG_LIBRARY=/lab/librtxg.so.0 HOME=/tmp
export LD_LIBRARY_PATH=/lab RTXG_BENCH_DIR=/tmp PYTHONDONTWRITEBYTECODE=1 OPENBLAS_NUM_THREADS=1
(while [ ! -e /tmp/measured ]; do
	dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=16 iflag=direct 2>/dev/null
	sleep 0.05
done) &
/usr/bin/python3 /lab/lab_loop.pyc --in-guest --irq nvme @OPTIONS@
status=$?
rmmod rtxg
[ $status = 0 ] && printf '    KTAP version 1\\n    1..1\\n    ok 1 - ran\\n'
exit $status
"""


def stage(what: str) -> None:
    """In a guest: how far it is, by its own clock."""
    with open("/proc/uptime", encoding="ascii") as file:
        print(f"# stage {file.read().split()[0]} s: {what}", flush=True)


def measured(seconds: float, irq: str, batches: int = 100) -> dict:
    """What `rtxg measure` finds here."""
    from rtxg.measure import measure

    return measure(seconds, irq, batches=batches).to_json()


#: Why a guest cannot see them.
NOT_IN_A_GUEST = {
    "ipi": "one CPU has no other to interrupt, and where instructions are the time two take turns",
    **dict.fromkeys(
        ("suspend", "resume", "slice_switch"),
        "an act of the NVIDIA lever, or of that GPU's own scheduler: the guest has no such GPU",
    ),
}


def add_permit(found: dict) -> None:
    """In a guest: the hand-over of a permit, with the module as the host."""
    subprocess.run(["/lab/handover"], check=True)
    with open("/tmp/handover.json", encoding="utf-8") as file:
        (told,) = json.load(file)
    found["overheads"]["permit"] = round(told["rtxg"], 4)
    found["distributions"]["permit"] = {
        "median": told["rtxg"],
        "futex": told["alternative"],
        "source": "bench/handover: from a completion to the other process's start, by rtxg.ko",
    }
    found["unseen"].pop("permit")
    found["unseen"] |= NOT_IN_A_GUEST
    found["machine"]["time"] = "emulated: an instruction takes 4 ns"


def draw(rng: random.Random, cpus: int, utilization: float, gpu: bool, scale: float = 1) -> str:
    """A task file: tasks whose periods differ, of that utilisation in all; periods of 40 to 195 ms,
    times the scale."""
    count = rng.randint(2, 4) + cpus - 1
    cuts = sorted(rng.uniform(0.1, 1) for _ in range(count))
    shares = [c / sum(cuts) * utilization for c in cuts]
    periods = [int(p * scale) for p in rng.sample(range(40, 200, 5), count)]
    lines = ["[platform]", f"cpus = {cpus}", f"gpus = {int(gpu)}", 'lock = "capped"']
    for number, (share, period) in enumerate(zip(shares, periods, strict=True)):
        work = max(3000, int(min(share, 0.9) * period * 1000))
        lines += ["[[task]]", f'name = "t{number}"', f'period = "{period}ms"']
        if gpu and number < 2:
            on_gpu = work // 3
            lines += [
                f"run = {work - on_gpu}",
                f"gpu = {{ calls = 2, requests = {1 + number}, time = {on_gpu},",
            ]
            lines[-1] += f" section = {(on_gpu + 600) // (1 + number)} }}"
        else:
            lines += [f"run = {work}"]
    return "\n".join(lines)


def runs(overheads: dict, options: argparse.Namespace) -> int:
    """Run random sets here, each under all policies that can promise something; the sets that broke
    a promise.  Prints a line of JSON a run."""
    from dataclasses import replace

    from rtxg import Overheads, analyze, loads, periodic
    from rtxg.late import stolen_of
    from rtxg.overheads import NO_OVERHEADS
    from rtxg.replay import as_run, replay, why_not_promised

    lent = os.sched_getaffinity(0)
    cpus = len(lent)
    rng = random.Random(options.seed)
    costs = Overheads.from_mapping(overheads, NO_OVERHEADS)
    broken = 0
    for number in range(options.sets):
        overload = number % 4 == 3
        gpu = number % 2 == 1
        share = rng.uniform(1.15, 1.3) if overload else rng.uniform(0.3, 0.85)
        text = draw(rng, cpus, share * cpus, gpu and not overload, options.scale)
        for policy in options.policies.split(","):
            if policy in periodic.SCHEDULERS and not periodic.available():
                continue
            if overload and policy in ("deadline", "module-deadline"):
                continue  # the kernel's own admission refuses them
            problem = loads(text)
            taskset = as_run(problem.taskset, policy)
            if policy == "rm":
                taskset = replace(taskset, platform=replace(taskset.platform, scheduler="RM"))
            if why_not_promised(taskset, policy):
                continue
            found = analyze(taskset, **{**problem.options, "overheads": costs})
            said = {
                "set": number,
                "policy": policy,
                "gpu": gpu and not overload,
                "cpus": cpus,
                "utilization": round(float(taskset.utilization), 3),
                "admitted": found.schedulable,
            }
            if not found.schedulable and not overload:
                print("# loop " + json.dumps(said), flush=True)
                continue
            before = stolen_of(lent)
            _, observed = replay(found, options.seconds, policy)
            bounds = [found[o.task].tardiness for o in observed]
            deadlines = [float(found[o.task].task.deadline) for o in observed]
            said |= {
                "jobs": sum(len(o.responses) for o in observed),
                "stolen_ms": round((stolen_of(lent) - before) / 1000, 1),
                "missed": sum(o.missed for o in observed),
                "passed": [
                    {
                        "task": job.task,
                        "late": job.late,
                        "bound": float(b),
                        "denied": job.denied,
                        "stolen": job.stolen,
                        "cause": job.cause,
                    }
                    for o, b in zip(observed, bounds, strict=True)
                    for job in o.late
                    if b is not None and job.late > b
                ],
                "closest": max(
                    (
                        o.max_response / (d + float(b))
                        for o, b, d in zip(observed, bounds, deadlines, strict=True)
                        if b is not None
                    ),
                    default=None,
                ),
                "late_ms": round(max(o.max_tardiness for o in observed) / 1000, 3),
            }
            broken += bool(said["passed"]) and found.schedulable
            print("# loop " + json.dumps(said), flush=True)
    return broken


def loaded() -> list[str]:
    """The files that this interpreter loads for a measurement and a run."""
    probe = (
        f"import random, sys; sys.path[:0] = [{str(TOP / 'lab')!r}, {str(TOP / 'bench')!r}];"
        "import rtxg, rtxg.measure, rtxg.periodic, rtxg.replay, lab_loop;"
        "text = lab_loop.draw(random.Random(1), 1, 0.5, True);"
        "rtxg.analyze(rtxg.loads(text).taskset, lock='capped');"
        "files = {getattr(m, '__file__', None) for m in list(sys.modules.values())};"
        "maps = [line.split()[-1] for line in open('/proc/self/maps') if '.so' in line];"
        "print('FILES', *sorted(f for f in {*files, *maps} if f and f[0] == '/'), sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    files = done.stdout.split("FILES\n")[1].splitlines()
    shared = [file for file in files if ".so" in Path(file).name]
    linked = subprocess.run(
        ["ldd", os.path.realpath(sys.executable), BUILD / "bench" / "handover", *shared],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    files += [word for word in linked.split() if word.startswith("/") and not word.endswith(":")]
    encodings = (Path(os.__file__).parent / "encodings").glob("*.py")
    return sorted({*map(os.path.normpath, files), *map(str, encodings)})


def place(file: str) -> str:
    """Where a file of this interpreter lies in the guest."""
    path, stdlib = Path(file), Path(os.__file__).parent
    if path == TOP / "bench" / "lab_loop.py":
        return "lab/lab_loop.py"
    if path.is_relative_to(TOP / "lab"):
        return f"lab/{path.relative_to(TOP / 'lab')}"
    packages = [
        i for i, part in enumerate(path.parts) if part in ("site-packages", "dist-packages")
    ]
    if packages:
        return "lab/" + "/".join(path.parts[packages[-1] + 1 :])
    if path.is_relative_to(stdlib):
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        return f"usr/lib/{version}/{path.relative_to(stdlib)}"
    return file.lstrip("/")


def interpreter(target: Path) -> None:
    """A tar of this interpreter with exactly the files that a measurement and a run load.

    Modules are in it as compiled ones without a source: to compile numpy's takes the guest minutes.
    """
    with tarfile.open(target, "w") as tar, tempfile.TemporaryDirectory() as folder:
        tar.add(os.path.realpath(sys.executable), "usr/bin/python3")
        for number, file in enumerate(loaded()):
            name = place(file)
            if not os.path.isfile(file):
                continue
            if name.endswith(".py"):
                compiled = f"{folder}/{number}.pyc"
                py_compile.compile(file, compiled, f"/{name}", doraise=True)
                tar.add(compiled, f"{name}c")
            else:
                tar.add(os.path.realpath(file), name)
        tar.add(os.path.realpath(BUILD / "lib" / "librtxg.so"), "lab/librtxg.so.0")
        tar.add(BUILD / "bench" / "handover", "lab/handover")


def in_guest(kernel: str, options: argparse.Namespace, tar: Path) -> tuple[dict, list[dict], bool]:
    """What a guest measured, its runs, and whether it came to its end."""
    words = (
        f"--sets {options.sets} --seconds {options.seconds} --seed {options.seed} "
        f"--scale {options.scale} --policies {options.policies}"
    )
    with tempfile.NamedTemporaryFile("w", suffix=".sh") as script:
        script.write(GUEST.replace("@OPTIONS@", words))
        script.flush()
        # Without the kernel's own checks of memory: what things cost is measured.
        command = [TOP / "tests/vm/run", kernel, "i_loop", "--limit", str(options.limit)]
        command += ["--append", "threadirqs slub_debug=- page_poison=0", "--memory", "1024"]
        command += ["--add", f"i_loop={script.name}", "--add", f"w_python.tar={tar}"]
        said = []
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as guest:
            for line in guest.stdout:
                said.append(line)
                if line.startswith(("# loop ", "# stage ", "# seconds ")):
                    print(f"  {kernel}: {line[2:]}", end="", file=sys.stderr, flush=True)
    table = [json.loads(line.partition("d ")[2]) for line in said if line.startswith("# measured ")]
    lines = [
        json.loads(line.removeprefix("# loop ")) for line in said if line.startswith("# loop ")
    ]
    if not table or guest.returncode:
        print("".join(said)[-4000:], file=sys.stderr)
    return table[0] if table else {}, lines, guest.returncode == 0


def tell(where: str, table: dict, lines: list[dict]) -> dict:
    """Print and return what one kernel or machine did."""
    print(f"{where}: {table.get('overheads')}")
    for name, why in table.get("unseen", {}).items():
        print(f"  not seen: {name}: {why}")
    summary = {}
    for policy in POLICIES:
        mine = [one for one in lines if one["policy"] == policy]
        admitted = [one for one in mine if one["admitted"] and "jobs" in one]
        over = [one for one in mine if not one["admitted"] and "jobs" in one]
        if not mine:
            continue
        summary[policy] = {
            "admitted_sets": len(admitted),
            "jobs": sum(one["jobs"] for one in admitted),
            "passed_bounds": sum(len(one["passed"]) for one in admitted),
            "stolen_ms": sum(one["stolen_ms"] for one in admitted),
            "closest": max((one["closest"] for one in admitted if one["closest"]), default=None),
            "refused_sets": sum(not one["admitted"] for one in mine),
            "overloads_run": len(over),
            "overloads_late": sum(one["missed"] > 0 for one in over),
        }
        print(f"  {policy:15s} {summary[policy]}")
    return {"table_iii": table, "policies": summary, "runs": lines}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "kernels", nargs="*", metavar="KERNEL", help="kernels of tests/vm/run (6.1 6.12-rt)"
    )
    parser.add_argument("--here", action="store_true", help="on this machine, not in QEMU")
    parser.add_argument("--sets", type=int, default=12, help="task sets (12)")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each runs (2)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1, help="how much longer periods are (1)")
    parser.add_argument("--limit", type=int, default=3000, help="seconds for each guest (3000)")
    parser.add_argument(
        "--policies", default=",".join(POLICIES), help="policies, with commas (all)"
    )
    parser.add_argument("--irq", default="nvidia", help="interrupt to measure")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="write what was found as JSON")
    parser.add_argument("--in-guest", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args([w for w in sys.argv[1:] if w])
    if options.in_guest:
        stage("rtxg measure begins")
        found = measured(0.5, options.irq, batches=30)
        Path("/tmp/measured").touch()
        stage("the hand-over begins")
        add_permit(found)
        print("# measured " + json.dumps(found), flush=True)
        stage("the sets begin")
        runs(found["overheads"], options)
        stage("all sets have run")
        return 0
    record: dict = {"date": date.today().isoformat(), "command": "bench/lab_loop.py", "where": {}}
    good = True
    if options.here:
        table = measured(3.0, options.irq)
        with tempfile.TemporaryFile("w+") as said:
            kept = os.dup(1)
            os.dup2(said.fileno(), 1)
            try:
                runs(table["overheads"], options)
            finally:
                sys.stdout.flush()
                os.dup2(kept, 1)
            said.seek(0)
            lines = [
                json.loads(line.removeprefix("# loop "))
                for line in said
                if line.startswith("# loop ")
            ]
        record["where"][f"{platform.release()}, {os.cpu_count()} CPUs"] = tell("here", table, lines)
    else:
        if not shutil.which("qemu-system-x86_64"):
            print("lab_loop.py: qemu-system-x86_64 is missing")
            return 77
        with tempfile.TemporaryDirectory() as folder:
            tar = Path(folder) / "python.tar"
            interpreter(tar)
            for kernel in options.kernels or ["6.1", "6.12-rt"]:
                began = time.monotonic()
                table, lines, ended = in_guest(kernel, options, tar)
                good &= ended
                record["where"][kernel] = tell(
                    f"{kernel} ({time.monotonic() - began:.0f} s)", table, lines
                )
    passed = sum(
        p["passed_bounds"] for w in record["where"].values() for p in w["policies"].values()
    )
    print(f"{passed} bounds passed")
    if options.keep:
        options.keep.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0 if good and not passed else 1


if __name__ == "__main__":
    sys.exit(main())
