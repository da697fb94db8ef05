#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`rtxg latency` in QEMU: the table of loads, and the program beside cyclictest and rtla.

usage: latency_vm.py [KERNEL...] [--seconds S] [--rounds N] [--cycles N] [--limit S]
                     [--only peers|table]

Each kernel (6.1 and 6.12-rt by default) boots twice, with one CPU.

All tools measure it in turns, without load and beside a load. What measuring costs is
the time in which the CPU is not idle while a tool measures, so it holds what interrupts and kernel
threads do for it, and not what it does before and after that.

Then `rtxg latency` measures it under memory loads, a graphics load, and both together, as `rtxg latency
table` does. The graphics load gives work to virtio-gpu. There are no rows with the load on another
core: an emulator that counts instructions runs the CPUs in turns, so each stands still while another
works. A row has few cycles: an emulator needs minutes for seconds of a processor.
Its loads begin at its first cycle and are ended at its last: to load BPF programs and to write
results takes longer than the cycles do, and a load beside that tells nothing. A memory load has
filled its memory before that, and is stopped until then.
A row that does not end is stopped. It is named in the record, as the rows are for which the whole
boot had no time.

An instruction takes 4 ns, and nothing outside the guest takes time. So two runs differ little,
and a maximum has a cause in the guest's kernel. A CPU of 250 million instructions a second is
slow: look at the tools beside one another. There are no caches and there is no memory bus: a
memory load takes instructions, and its rate says how many were left.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP / "lab"))

from rtxg.lateness import table as tables  # noqa: E402
from rtxg.lateness.verdict import Row  # noqa: E402

BUILD = Path(os.environ.get("RTXG_BUILD", TOP / "build/release"))
KERNELS = ("6.1", "6.12-rt")
PEERS, TABLE = "i_latency_peers", "i_latency_table"
INTERVAL_US = 200
#: name, and command with the seconds in it; rtla's tracer is in rt kernels alone. Both others print
#: nanoseconds: they cut down to whole microseconds else, and the mean too. -b is a threshold that
#: is never passed. rtla's thread returns to user space since 6.7, as those of the others do, and
#: its last column is that; with -k it is one of the kernel. Since then it names what made it late,
#: too.
TOOLS = {
    "nothing": "sleep {s}",
    "cyclictest": "/tests/w_cyclictest -N -m -p 95 -i 200 -t 1 -a 0 -D {s} -q",
    "rtxg latency --user-only": "/tests/w_rtxg_latency -m -p 95 -i 200 -t 1 -a 0 -D {s} -q --user-only --json",
    "rtxg latency": "/tests/w_rtxg_latency -m -p 95 -i 200 -t 1 -a 0 -D {s} -q --json",
    "rtxg latency -b": "/tests/w_rtxg_latency -m -p 95 -i 200 -t 1 -a 0 -D {s} -q --json -b 1000000",
    "rtla timerlat": "/tests/w_rtla timerlat top -n -q -c 0 -p 200 -P f:95 -d {s}s",
    "rtla timerlat -k": "/tests/w_rtla timerlat top -k -n -q -c 0 -p 200 -P f:95 -d {s}s",
}
BESIDE = {"": "", "memory": "/tests/w_rtxg_latency_load 1000000"}

HEAD = """#!/bin/busybox sh
export LD_LIBRARY_PATH=/tests:/lib
mkdir -p /tmp
cd /tmp || exit 1
"""
#: BPF programs are loaded, and a tool works, so many seconds after its start
BEGUN_S = 6
#: of the guest: a row has as long for its cycles and all else, and its loads end then in any case
ROW_S, LOAD_S = 30, 60
#: the guest measures no busy time by itself: a clock and the idle time of its CPU, twice within a run
PEER = """
peer() { # NAME LOAD COMMAND-OF-LOAD BEGUN SECONDS COMMAND...
	name=$1 of=$2 load=$3 begun=$4 seconds=$5
	shift 5
	[ -z "$load" ] || { $load >/tmp/load & pid=$!; sleep 1; }
	"$@" >/tmp/out 2>/tmp/err &
	tool=$!
	sleep "$begun"
	read -r up idle </proc/uptime
	sleep "$seconds"
	read -r up_end idle_end </proc/uptime
	wait "$tool"
	echo "# peer $?|$up $idle $up_end $idle_end|$of|$name"
	[ -z "$load" ] || { kill "$pid"; wait "$pid"; }
	sed 's/^/# out /' /tmp/out
	sed 's/^/# err /' /tmp/err
}
"""
ROW = """
while read -r m; do
	o=
	[ "$m" != drm_kms_helper.ko ] || o=fbdev_emulation=0
	insmod "/modules/$m" $o
done </modules/order.gpu
irq=$(sed -n 's/.* \\(virtio[0-9]*\\)-control$/\\1-control/p' /proc/interrupts | tail -n 1)

measures() { grep -qs rtxg-late/ /proc/"$1"/task/*/comm; }
row() { # MEMORY BYTES DEVICE CYCLES
	pids= words=
	: >/tmp/memory
	: >/tmp/device
	rm -f /tmp/row
	[ "$3" != graphics ] || words="--irq $irq=0"
	if [ "$2" != 0 ]; then
		timeout -k 1 "$LOAD_S" /tests/w_rtxg_latency_load "$2" >/tmp/memory &
		pids=$!
		until grep -q filled /tmp/memory || ! kill -0 $pids; do usleep 10000; done
		kill -STOP $pids
	fi
	timeout -k 1 "$ROW_S" /tests/w_rtxg_latency -q --json=/tmp/row -m -a 0 -p 99 -i 200 -l "$4" \\
		$words >/dev/null 2>/tmp/err &
	tool=$!
	# without loads nothing looks: that would be one
	until [ "$2$3" = 0 ] || measures $tool || ! kill -0 $tool; do usleep 10000; done
	[ -z "$pids" ] || kill -CONT $pids
	if [ "$3" = graphics ]; then
		timeout -k 1 "$LOAD_S" /tests/w_fences >/tmp/device &
		pids="$pids $!"
	fi
	while [ -n "$pids" ] && measures $tool; do usleep 50000; done
	[ -z "$pids" ] || kill $pids
	wait $tool
	status=$?
	wait
	echo "# row $1|$3|$(sed -n 's/ in .*//p' /tmp/memory)|$(cat /tmp/device)"
	if [ -s /tmp/row ]; then
		echo "# json $(cat /tmp/row)"
	else
		echo "# none status $status: $(tr '\\n' ' ' </tmp/err | cut -c 1-200)"
	fi
}
"""
END = """
printf '    KTAP version 1\\n    1..1\\n    ok 1 - all were measured\\n'
"""


def words(text: str) -> str:
    """A name as one word of the guest's shell."""
    return "'" + text + "'"


def peers_script(seconds: int, rounds: int) -> str:
    """All tools in turn, so many times, without and beside the load."""
    lines = []
    for _ in range(rounds):
        for load, of in BESIDE.items():
            # beside a load no CPU is idle, and nothing is to be learned from when it was
            begun, window, all_s = (
                (0, 0, seconds) if load else (BEGUN_S, seconds, BEGUN_S + seconds + 1)
            )
            lines += [
                f"peer {words(name)} {words(load)} {words(of)} {begun} {window} {command.format(s=all_s)}"
                for name, command in TOOLS.items()
                if not (load and name == "nothing")
            ]
    return HEAD + PEER + "\n".join(lines) + END


def table_script(cycles: int) -> str:
    """The rows of lab/rtxg/lateness/table.py."""
    sizes = {
        "": 0,
        "L3": 1 << 20,
        "above L3": 16 << 20,
    }  # no caches: the larger one misses more of the TLB
    lines = [
        f"row {words(memory)} {sizes[memory]} {words(device)} {cycles}"
        for memory, device, _ in tables.combinations(["graphics"], ["same"])
    ]
    # the first row has what only a first run has
    lines.insert(0, f"row '' 0 '' {cycles // 10} >/dev/null")
    return f"{HEAD}LOAD_S={LOAD_S} ROW_S={ROW_S}\n{ROW}" + "\n".join(lines) + END


def needed(program: Path) -> list[Path]:
    """The shared libraries that it needs, and the one that libc loads to end a thread."""
    done = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
    found = [
        Path(w) for line in done.stdout.splitlines() for w in line.split() if w.startswith("/")
    ]
    unwinds = [p.with_name("libgcc_s.so.1") for p in found if p.name == "libc.so.6"]
    return [*found, *(p for p in unwinds if p.exists())]


def boot(
    kernel: str, name: str, script: str, programs: dict[str, Path], cpus: int, limit_s: int
) -> tuple[str, bool]:
    """What the guest said, and whether it ended.

    :raises RuntimeError: if it did not begin.
    """
    files = {n: p for n, p in programs.items() if p.exists()}
    for program in list(files.values()):
        files |= {
            library.name: library
            for library in needed(program)
            if not library.name.startswith("ld-")
        }
    with tempfile.TemporaryDirectory() as folder:
        guest = Path(folder) / name
        guest.write_text(script)
        command = [
            TOP / "tests/vm/run",
            kernel,
            name,
            "--limit",
            str(limit_s),
            "--counted-cpus",
            str(cpus),
            "--append",
            "slub_debug=- page_poison=0",
            "--add",
            f"{name}={guest}",
            *(w for n, f in files.items() for w in ("--add", f"{n}={f}")),
        ]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if f"# start {name}" not in done.stdout:
        raise RuntimeError(
            f"tests/vm/run {kernel} did not begin: {(done.stdout + done.stderr)[-1500:]}"
        )
    return done.stdout, "# rtxg-vm: end" in done.stdout


def seen_by(name: str, said: str) -> dict | None:
    """Cycles and latencies from what a tool printed, and the parts of the worst; None if none."""
    if name.startswith("rtxg"):
        try:
            seen = json.loads(said)["threads"][0]["observed"]
        except (json.JSONDecodeError, KeyError):
            return None
        found = {
            "cycles": seen["count"],
            "min_us": seen["min_us"],
            "avg_us": seen["avg_us"],
            "max_us": seen["max_us"],
        }
        for worst in (json.loads(said).get("worst") or {}).get("own", []):
            found["worst"] = [
                f"{part['us']:.1f} us {part['what']}: {' < '.join(part['stack'][:3])}"
                for part in worst["parts"]
            ]
        return found
    pattern = r"C: *(\d+) Min: *(\d+) Act: *\d+ Avg: *(\d+) Max: *(\d+)"
    if name.startswith("rtla timerlat"):
        # CPU COUNT | cur min avg max (timer interrupt) | the same of the thread | and of its return
        pattern = r"^ *0 +#(\d+) .*\| +\d+ +(\d+) +(\d+) +(\d+) *$"
    found = re.search(pattern, said, re.M)
    if not found:
        return None
    cycles, *ns = map(float, found.groups())
    return dict(
        zip(("cycles", "min_us", "avg_us", "max_us"), (cycles, *(n / 1e3 for n in ns)), strict=True)
    )


def read_peers(console: str) -> tuple[dict[str, dict[str, list[dict]]], dict[str, str]]:
    """Runs by load and tool; and what was left out, with the tool's own words."""
    runs: dict[str, dict[str, list[dict]]] = {load: {} for load in BESIDE}
    left_out: dict[str, str] = {}
    for block in re.split(r"^# peer ", console, flags=re.M)[1:]:
        head, *lines = block.splitlines()
        status, times, load, name = head.split("|")
        up, idle, up_end, idle_end = map(float, times.split())
        measured = up_end - up
        said = "\n".join(line[6:] for line in lines if line.startswith("# out "))
        busy = 100 * (1 - (idle_end - idle) / measured) if measured >= 0.5 else 100
        one = {"busy_percent": round(busy, 3)}
        if name != "nothing":
            seen = seen_by(name, said)
            if status != "0" or not seen:
                error = " ".join(line[6:] for line in lines if line.startswith("# err "))
                left_out[name] = f"status {status}: {error or said}"[:300]
                continue
            one |= seen
        runs[load].setdefault(name, []).append(one)
    return runs, left_out


def show_peers(
    kernel: str, runs: dict[str, dict[str, list[dict]]], left_out: dict[str, str]
) -> None:
    """A table in Markdown."""
    print(
        f"\n{kernel}\n\n| tool | beside | cycles | min us | mean us | max us, median of the runs (least to most) | CPU busy, % |"
    )
    print("|---" * 7 + "|")
    for load, tools in runs.items():
        for name, ones in tools.items():
            busy = f"{statistics.median(o['busy_percent'] for o in ones):.2f}" if not load else "-"
            if name == "nothing":
                print(f"| {name} | - | - | - | - | - | {busy} |")
                continue
            most = [o["max_us"] for o in ones]
            print(
                f"| {name} | {load or '-'} | {ones[0]['cycles']:.0f} | {min(o['min_us'] for o in ones):.1f} | "
                f"{statistics.mean(o['avg_us'] for o in ones):.1f} | {statistics.median(most):.0f} "
                f"({min(most):.0f} to {max(most):.0f}) | {busy} |"
            )
    for name, reason in left_out.items():
        print(f"\n{name} was left out: {reason}")


def read_table(console: str, cycles: int) -> tables.Table:
    """What `rtxg latency table` would have made of it.

    :raises RuntimeError: if not one row was measured.
    """
    rows, machine, left_out, seconds = [], {}, [], 0.0
    missing = tables.combinations(["graphics"], ["same"])
    for head, kind, text in re.findall(r"^# row (.*)\n# (json|none) (.*)$", console, re.M):
        memory, device, rate, device_rate = head.split("|")
        place = "same" if device else ""
        missing.remove((memory, device, place))
        rates = {k: v for k, v in ((memory, rate), (device, device_rate)) if k and v}
        row = Row(memory, device, place, rates=rates)
        if kind == "none":
            left_out.append(f"{tables.title(row)}: {text}")
            continue
        result = json.loads(text)
        tables.fill(row, result)
        if row.cycles < cycles:
            left_out.append(
                f"{tables.title(row)}: stopped after {ROW_S} s of the guest, with {row.cycles} cycles"
            )
        rows.append(row)
        seconds = max(seconds, result["seconds"])
        machine = result["machine"]
        left_out += [t for t in result["not_done"] if t not in left_out]
    if not rows:
        raise RuntimeError(f"no row was measured: {console[-1500:]}")
    left_out += [f"{tables.title(Row(*one))}: the boot ended before it" for one in missing]
    options = ["-m", "-a", "0", "-p", "99", "-i", str(INTERVAL_US), "-l", str(cycles)]
    return tables.Table(machine, round(seconds, 3), 0, options, rows, left_out)


def write(record: dict[str, dict], seconds: int) -> None:
    """What there is so far: a boot takes minutes, and the next one may not end."""
    out = Path(os.environ.get("RTXG_BENCH_DIR", TOP / "build/bench"))
    out.mkdir(parents=True, exist_ok=True)
    whole = {
        "bench": "latency_vm",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "seconds": seconds,
        "interval_us": INTERVAL_US,
        "kernels": record,
    }
    (out / "latency_vm.json").write_text(json.dumps(whole, indent=1) + "\n")


def main() -> int:
    """Boot, read, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kernels", nargs="*", default=KERNELS, metavar="KERNEL")
    parser.add_argument(
        "--seconds", type=int, default=2, help="of the guest's time for each run (2)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="of the tools in turn (3)")
    parser.add_argument("--cycles", type=int, default=2500, help="of each row of the table (2500)")
    parser.add_argument(
        "--limit", type=int, default=1500, help="seconds for a boot of this machine's time (1500)"
    )
    parser.add_argument("--only", choices=("peers", "table"), help="one of the two")
    options = parser.parse_args()
    if not shutil.which("qemu-system-x86_64"):
        print("skipped: qemu-system-x86_64 is not installed")
        return 77
    programs = {"w_rtxg_latency_load": BUILD / "latency/rtxg-latency-load"}
    programs |= {f"w_{n}": Path(shutil.which(n) or "/nonexistent") for n in ("cyclictest", "rtla")}
    record: dict[str, dict] = {}
    for kernel in options.kernels:
        found = record.setdefault(kernel, {})
        if options.only != "table":
            script = peers_script(options.seconds, options.rounds)
            console, ended = boot(kernel, PEERS, script, programs, 1, options.limit)
            runs, left_out = read_peers(console)
            if not ended:
                left_out["others"] = f"the boot did not end within {options.limit} s"
            show_peers(kernel, runs, left_out)
            found["peers"] = {"runs": runs, "left_out": left_out}
            write(record, options.seconds)
        if options.only != "peers":
            script = table_script(options.cycles)
            begun = time.monotonic()
            console, _ = boot(kernel, TABLE, script, programs, 1, options.limit)
            table = read_table(console, options.cycles)
            print(f"\n{kernel}\n\n{tables.as_text(table)}", flush=True)
            found["table"] = table.as_dict() | {
                "cycles": options.cycles,
                "wall_s": round(time.monotonic() - begun),
            }
            write(record, options.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
