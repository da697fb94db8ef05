#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The experiments of the klmirqd paper (Elliott and Anderson, ECRTS 2012) on live kernels.

usage: python3 bench/klmirqd.py [--section V|VI] [--keep LABEL] [KERNEL...]
       6.1 and 6.1-rt by default; needs QEMU

Task sets run as threads on one emulated CPU whose time is counted in instructions
(tests/vm/guest/i_klmirqd.c): with several CPUs QEMU cannot count.  A twelfth of the paper's machine
is what one CPU gets, and bottom halves are ten times as long as the paper's, as are a switch and a
top half at 4 ns an instruction; periods are the paper's.

V: 41 task sets of utilisation 7.5/12 to 11.5/12, GPU work queued ahead, priorities by period.
Priority inversions as rtxg-irq -i finds them, and in the simulator: on 6.1 under Linux's own handling,
process-aware handling and klmirqd's, on 6.1-rt under the kernel's and klmirqd's.
VI: one urgent task and one relaxed share a GPU, three others lie between them.  Deadlines missed in
the configurations of table II: (a) and (b) on PREEMPT_RT, (c) with no module, (d) to (h) with the
module, and klmirqd's on PREEMPT_RT.  Then the three others take longer, up to what the CPU has, and
all is scheduled by the same fixed priorities, so that the handling of interrupts alone differs.

Prints tables, writes build/bench/klmirqd.json, and with --keep bench/results/LABEL.json.  Exit
status 1 if a run failed, 77 without QEMU.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from fractions import Fraction
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP / "lab"))

from rtxg.generate import Recipe, Utilizations, random_batch  # noqa: E402
from rtxg.inversions import KINDS, summary  # noqa: E402
from rtxg.model import Platform, Task, TaskSet  # noqa: E402
from rtxg.overheads import Overheads  # noqa: E402
from rtxg.simulate import Handling, Options, simulate  # noqa: E402

#: of a bottom half; the paper's is 30
BOTTOM_US = 300
TOP_US = 10
#: from a timer's interrupt to the wake-up, and from that to the task's own code: what the simulator
#: is given of it
WAKE_US, SWITCH_US = 10, 20
#: what 5 us are on a machine that is ten times as slow
SHORT_NS = 50_000
CALLS = 3
LENGTH_V_US, LENGTH_VI_US = 400_000, 4_000_000
#: of a kernel in section V: how interrupts are handled, its name, and what the simulator calls it
METHODS = {
    "6.1": {
        "stock": ("Linux", Handling.SLIH),
        "aware": ("process-aware", Handling.PAI),
        "owner": ("klmirqd", Handling.KLMIRQD),
    },
    "6.1-rt": {
        "stock": ("PREEMPT_RT", Handling.THREAD_HIGH),
        "owner": ("klmirqd", Handling.KLMIRQD),
    },
}
#: kernel, and of each configuration its column, how interrupts are handled, and the policy
TABLE_II = {
    "6.1-rt": (
        ("a", "2", "fifo"), ("b", "95", "fifo"), ("as the kernel sets them, 50", "stock", "fifo"),
        ("klmirqd on PREEMPT_RT", "owner", "rm"),
    ),
    "6.1": (
        ("c", "stock", "fifo"), ("d", "kept", "rm"), ("e", "owner", "rm"), ("f", "aware", "rm"),
        ("g", "owner", "edf"), ("h", "aware", "edf"),
    ),
}  # fmt: skip

#: what each of the three CPU-only tasks takes in 20 ms; at 4.9 ms the CPU has no more
COST_US = 4500
LOADED_US = (4700, 4800, 4900)
LENGTH_LOADED_US = 2_000_000
LOADED = {
    "6.1-rt": (("a", "2"), ("b", "95"), ("klmirqd on PREEMPT_RT", "owner")),
    "6.1": (
        ("c", "stock"),
        ("module alone", "kept"),
        ("klmirqd", "owner"),
        ("process-aware", "aware"),
    ),
}


def call_us(task: Task) -> Fraction:
    """What the GPU works in one call. A task's GPU time has its interrupts' handling in it, too."""
    return task.gpu_time / task.gpu_calls - TOP_US - BOTTOM_US


def sets_v() -> list[TaskSet]:
    """41 sets for one CPU; each has one or two GPU-using tasks, each with a GPU of its own.

    A set is left out if its calls had no GPU time at all: their handling takes longer than that.
    """
    recipe = Recipe(
        Utilizations("exponential", 0.5 / 4), (0.2, 0.3), gpu_share=0.64, section_share=0.8
    )
    one_cpu = Platform(1, 1, 2, "RM")
    found = []
    for step in range(41):
        utilization = (7.5 + step / 10) / 12
        for seed in range(1000):
            made = random_batch(recipe, utilization, 1, [step, seed]).taskset(0, one_cpu, CALLS)
            using = [t for t in made.tasks if t.uses_gpu]
            if 1 <= len(using) <= 2 and 4 <= len(made.tasks) <= 16:
                if all(call_us(t) >= 1 for t in using):
                    found.append(made)
                    break
    return found


def text_v(sets: list[TaskSet], how: str) -> str:
    lines = ["meter"]
    for number, one in enumerate(sets):
        lines.append(f"run {number} {how} fifo {LENGTH_V_US} {BOTTOM_US}")
        order = sorted(one.tasks, key=lambda t: t.period, reverse=True)
        devices = iter((0, 1))
        for priority, t in enumerate(order, 10):
            device = next(devices) if t.uses_gpu else -1
            held = t.held - t.gpu_time if t.uses_gpu else 0
            working = call_us(t) * t.gpu_calls if t.uses_gpu else 0
            lines.append(
                f"task {t.name} {priority} {int(t.cost)} {int(held)} {int(working)} "
                f"{t.gpu_calls or 1} {int(t.period)} {device}"
            )
        lines.append("end")
    return "\n".join([*lines, f"told {how}", ""])


def text_vi(
    column: str, how: str, policy: str, cost_us: int = COST_US, length_us: int = LENGTH_VI_US
) -> str:
    tasks = [("urgent", 40, 2000, 0, 1000, 1, 19_900, 0)]
    tasks += [(f"cpu{i}", 32 - i, cost_us, 0, 0, 1, 20_000, -1) for i in range(3)]
    tasks += [("relaxed", 20, 2000, 0, 1000, 1, 20_100, 0)]
    name = re.sub("[^a-z0-9]+", "-", column.lower())
    lines = [f"run {name} {how} {policy} {length_us} {BOTTOM_US}"]
    lines += [f"task {' '.join(map(str, t))}" for t in tasks]
    return "\n".join([*lines, "end", ""])


def in_guest(kernel: str, text: str) -> str:
    """The console of a guest that carried out the text."""
    with tempfile.NamedTemporaryFile("w", suffix=".sets") as file:
        file.write(text)
        file.flush()
        command = [
            TOP / "tests/vm/run", "--slow", kernel, "i_klmirqd", "--add", f"w_sets={file.name}",
            "--limit", "1800",
        ]  # fmt: skip
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        print(done.stdout[-3000:], file=sys.stderr)
        sys.exit(1)
    return done.stdout


def joined(rows: list[dict]) -> dict:
    """All inversions of a kind and of all owners."""
    slots = [sum(column) for column in zip(*(r["slots"] for r in rows), strict=True)]
    return {
        "count": sum(r["count"] for r in rows),
        "sum_ns": sum(r["sum_ns"] for r in rows),
        "longest_ns": max((r["longest_ns"] for r in rows), default=0),
        "below_5us": sum(r["below_5us"] for r in rows),
        "slots": slots,
    }


def share_below(found: dict, limit_ns: int) -> float:
    """Share of inversions below a limit, as if a histogram's slot were filled evenly."""
    count = 0.0
    for slot, n in enumerate(found["slots"]):
        low, high = 1 << slot, 2 << slot
        count += n * min(1.0, max(0.0, (limit_ns - low) / (high - low)))
    return count / found["count"] if found["count"] else 1.0


def below_which(found: dict, share: float) -> float:
    """The length in ns below which that share of the inversions is."""
    left = share * found["count"]
    for slot, n in enumerate(found["slots"]):
        if n and left <= n:
            # no slot is filled beyond the longest
            return min((1 << slot) * (1 + left / n), found["longest_ns"])
        left -= n
    return float(found["longest_ns"])


def simulated(sets: list[TaskSet], handling: Handling, *, preemptible: bool) -> dict:
    """The same sets in the simulator.

    :param preemptible: bottom halves in threads are left for urgent jobs.
    """
    lengths: dict[str, list[int]] = {kind: [] for kind in KINDS}
    for one in sets:
        trace = simulate(
            one,
            Options(
                Fraction(LENGTH_V_US),
                asynchronous=True,
                shift_releases=True,
                whole_halves=not preemptible,
                meter=True,
            ),
            handling=handling,
            overheads=Overheads(
                th=Fraction(TOP_US),
                bh=Fraction(BOTTOM_US),
                rel=Fraction(WAKE_US),
                cxs=Fraction(SWITCH_US),
            ),
        )
        for (_, kind), found in trace.metered.items():
            lengths[kind] += found
    return {kind: summary(found) for kind, found in lengths.items()}


def section_v(kernel: str) -> dict:
    sets, methods = sets_v(), METHODS[kernel]
    console = in_guest(kernel, "".join(text_v(sets, how) for how in methods))
    runs = [json.loads(line) for line in re.findall(r"^\s+# run (\{.*\})$", console, re.M)]
    result: dict[str, object] = {
        "sets": len(sets), "length_us": LENGTH_V_US, "bottom_half_us": BOTTOM_US
    }  # fmt: skip
    print(f"\nSection V on {kernel}: {len(sets)} sets, {LENGTH_V_US / 1e6:g} s each\n")
    print("| | inversions | of them waits | sum | of them waits | 90 % below | longest ", end="")
    print("| below 50 us | the simulator's sum |\n" + "|---" * 9 + "|")
    for how, (title, handling) in methods.items():
        text = re.search(rf"^\s+# meter {how} (\{{.*\}})$", console, re.M)[1]
        tasks = {t["tid"] for r in runs if r["how"] == how for t in r["tasks"] if t["gpu"]}
        # the program that begins the sets is woken by what it makes, and owns nothing
        owners = [row for row in json.loads(text)["owners"] if row["owner"] in tasks]
        found = {kind: joined([row[kind] for row in owners]) for kind in KINDS}
        both = joined([found["bottom_halves"], found["waits"]])
        model = simulated(sets, handling, preemptible="rt" in kernel)
        sum_ns = model["bottom_halves"]["sum_ns"] + model["waits"]["sum_ns"]
        result[how] = {**found, "simulated": model}
        print(
            f"| {title} | {both['count']} | {found['waits']['count']} | "
            f"{both['sum_ns'] / 1e6:.2f} ms | {found['waits']['sum_ns'] / 1e6:.2f} ms | "
            f"{below_which(both, 0.9) / 1e3:.0f} us | {both['longest_ns'] / 1e3:.0f} us | "
            f"{share_below(both, SHORT_NS):.1%} | {sum_ns / 1e6:.2f} ms |"
        )
    return result


def shares_of(run: dict) -> tuple[list[float], list[float], float]:
    """Of CPU-only, urgent and relaxed tasks: deadlines missed, mean response; and the longest."""
    groups = [
        [t for t in run["tasks"] if t["name"].startswith(name)]
        for name in ("cpu", "urgent", "relaxed")
    ]
    missed = [1 - sum(t["met"] for t in g) / sum(t["released"] for t in g) for g in groups]
    # of the jobs that were completed, as in the paper
    mean = [
        sum(t["response_ns"] / max(1, t["completed"]) / t["period_us"] / 1e3 for t in g) / len(g)
        for g in groups
    ]
    return missed, mean, max(t["longest_ns"] / t["period_us"] / 1e3 for t in groups[0])


def runs_of(console: str) -> list[dict]:
    runs = [json.loads(line) for line in re.findall(r"^\s+# run (\{.*\})$", console, re.M)]
    return [r for r in runs if r["set"] != "small"]


def section_vi(kernel: str) -> list[dict]:
    configurations = TABLE_II[kernel]
    runs = runs_of(in_guest(kernel, "".join(text_vi(*c) for c in configurations)))
    print(f"\nSection VI on {kernel}, {LENGTH_VI_US / 1e6:g} s each\n")
    print("| | missed: CPU-only | urgent | relaxed | response, of the period: CPU-only ", end="")
    print("| urgent | relaxed | longest, CPU-only |\n" + "|---" * 8 + "|")
    for (column, how, policy), run in zip(configurations, runs, strict=True):
        run["column"] = column
        missed, mean, longest = shares_of(run)
        cells = [f"{x:.1%}" for x in (*missed, *mean, longest)]
        print(f"| ({column}) {how}, {policy} | {' | '.join(cells)} |", flush=True)
    return runs


def section_vi_loaded(kernel: str) -> list[dict]:
    """The same set with ever longer CPU-only tasks, by fixed priorities."""
    asked = [(cost, *c) for cost in LOADED_US for c in LOADED[kernel]]
    runs = runs_of(
        in_guest(
            kernel,
            "".join(
                text_vi(f"{column} {cost}", how, "fifo", cost, LENGTH_LOADED_US)
                for cost, column, how in asked
            ),
        )
    )
    print(f"\nSection VI on {kernel}, longer CPU-only tasks, {LENGTH_LOADED_US / 1e6:g} s each\n")
    print("| CPU-only | | missed: CPU-only | urgent | relaxed ", end="")
    print("| response, of the period: CPU-only | urgent | relaxed |\n" + "|---" * 8 + "|")
    for (cost, column, how), run in zip(asked, runs, strict=True):
        run |= {"column": column, "cost_us": cost}
        missed, mean, _ = shares_of(run)
        cells = [f"{x:.1%}" for x in (*missed, *mean)]
        print(f"| {cost / 1e3:g} ms | ({column}) {how} | {' | '.join(cells)} |", flush=True)
    return runs


def text_of(value: object, depth: int = 3) -> str:
    """JSON with a line for each run and each kind of inversion."""
    if not depth or not isinstance(value, dict | list):
        return json.dumps(value)
    margin = " " * (4 - depth)
    if isinstance(value, list):
        lines = [text_of(one, depth - 1) for one in value]
        begin, end = "[]"
    else:
        lines = [f"{json.dumps(k)}: {text_of(one, depth - 1)}" for k, one in value.items()]
        begin, end = "{}"
    return begin + ",".join(f"\n{margin}{line}" for line in lines) + f"\n{margin[1:]}{end}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kernels", nargs="*", default=["6.1", "6.1-rt"], metavar="KERNEL")
    parser.add_argument("--section", choices=("V", "VI"), help="only this one")
    parser.add_argument("--keep", metavar="LABEL", help="also write bench/results/LABEL.json")
    options = parser.parse_args()
    for kernel in options.kernels:
        if kernel not in TABLE_II:
            parser.error(
                f"no experiment is for kernel {kernel}: give some of {', '.join(TABLE_II)}"
            )
    if not shutil.which("qemu-system-x86_64"):
        print("skipped: qemu-system-x86_64 is not installed")
        return 77
    out = Path(os.environ.get("RTXG_BENCH_DIR", TOP / "build/bench"))
    out.mkdir(parents=True, exist_ok=True)
    path = out / "klmirqd.json"
    record: dict[str, dict] = {}
    if options.section and path.exists():
        record = json.loads(path.read_text())
    for kernel in options.kernels:
        mine = record.setdefault(kernel, {})
        if options.section != "VI":
            mine["section_v"] = section_v(kernel)
        if options.section != "V":
            mine["section_vi"] = section_vi(kernel)
            mine["section_vi_loaded"] = section_vi_loaded(kernel)
        # there since a guest has run
        cache = Path(os.environ.get("RTXG_VM_CACHE", TOP / "build/vm"))
        mine["release"] = (cache / kernel / "release").read_text().strip()
        path.write_text(text_of(record) + "\n")
    if options.keep:
        (TOP / f"bench/results/{options.keep}.json").write_text(text_of(record) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
