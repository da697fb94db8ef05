#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Experiments behind docs/nvidia.md: bringing a context onto the GPU ahead of time, the cost of stopping several processes by each means of
the driver, and the effect of copies on other programs.

    bench/gpu/experiments.py [--bin DIR] [--out DIR] [NAME...]

Needs what tests/gpu/run.py needs, and rtxg-nvlab in --bin. Prints one JSON object an experiment and writes them to
OUT/experiments.json. The numbers explain; `make gpu` measures rtxg's promises.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "gpu"))

import harness  # noqa: E402


def lab(setup: Any, *words: str) -> list[str]:
    """The lines that rtxg-nvlab prints; its complaints go to stderr."""
    done = subprocess.run([setup.bin / "rtxg-nvlab", *words], check=False, capture_output=True, text=True, timeout=60)
    sys.stderr.write(done.stderr)
    return done.stdout.splitlines()


def idle_program(setup: Any, loads: Any) -> str:
    """A program with a context and no work; its pid."""
    out = setup.work / f"idle-{time.monotonic_ns()}.txt"
    command = [str(setup.bin / "load"), "rt", str(setup.turns[100]), "30000000", "0", "2", str(out)]
    p = loads.start(command, None, stdout=subprocess.DEVNULL)
    time.sleep(3.5)
    return str(p.pid)


def exp_warm(setup: Any) -> dict[str, Any]:
    """Can another program than its own make the hardware load its context?"""
    found: dict[str, Any] = {}
    with harness.Loads(setup) as loads:
        pid = idle_program(setup, loads)
        loads.hog(20000, 12)
        loads.wait_working()
        hog = str(loads.processes[1].pid)
        for kind in ("none", "doorbell", "preempt", "restart", "cycle"):
            for name, others in (("others stopped", [hog]), ("others running", [])):
                lines = lab(setup, "warm", kind, pid, "12", *others)
                found[f"{kind}, {name}"] = {
                    "result": json.loads(lines[-1]) if lines else None,
                    "log": lines[:-1][:14],
                }
    return found


def exp_stop(setup: Any) -> dict[str, Any]:
    """The cost of each way to stop three processes, and whether the processes stand still."""
    found: dict[str, Any] = {}
    with harness.Loads(setup) as loads:
        for _ in range(3):
            loads.hog(20000, 17)
        loads.wait_working()
        pids = [str(p.pid) for p in loads.processes]
        rounds: dict[str, Any] = {}
        for kind in ("all", "only", "preempt", "everything"):
            for n in (1, 2, 3):
                lines = lab(setup, "stop", kind, "12", *pids[:n])
                rounds[f"{kind} {n}"] = json.loads(lines[-1])
        loads.wait()
        for name, v in rounds.items():
            n = v["processes"]
            t = np.array(v["rounds"], dtype=np.float64)
            moved = []
            for _, t1, t2, _ in t:
                for o in loads.outputs[:n]:
                    p = harness.progress(o)
                    a, b = np.interp([t1 + 6e6, t2], p[:, 0], p[:, 1])
                    moved.append(float(b - a))
            found[name] = {
                "channels": v["channels"],
                "stop_us": [round(float(x), 1) for x in np.percentile((t[:, 1] - t[:, 0]) / 1e3, [10, 50, 90])],
                "go_us": [round(float(x), 1) for x in np.percentile((t[:, 3] - t[:, 2]) / 1e3, [10, 50, 90])],
                "chunks_while_stopped": max(moved),
            }
    return found


def exp_parts(setup: Any) -> dict[str, Any]:
    """What the time from a periodic job's release to its end is made of: the whole log of context switches."""
    log = setup.out / "experiments-log.txt"
    with harness.Governor(setup) as gov:
        harness.standard_vgpus(gov, [34, 33, 33])
        with harness.Loads(setup) as loads:
            harness.three_hogs(setup, loads, 12, gov)
            time.sleep(0.5)
            out = setup.work / "rt-parts.txt"
            command = [str(setup.bin / "load"), "rt", str(setup.turns[100]), "10000", "0", "400", str(out)]
            p = loads.start(command, None, gov, 9, stdout=subprocess.DEVNULL)
            time.sleep(4)
            lab(setup, "log", "2", str(log))
            p.wait()
            loads.wait()
        gov.stats()  # and so the timeline is written out
        (setup.out / "experiments-log-actions.txt").write_text(gov.timeline.read_text())
    jobs = np.loadtxt(out, ndmin=2)
    rows = np.array([[float(w[0]), float(int(w[1], 16)), float(w[2])] for w in (x.split() for x in log.open())])
    parts: dict[str, list[float]] = {}
    first, last = rows[0, 0], rows[-1, 0]
    samples: list[Any] = []
    for release, latency, kernel in jobs:
        if not first < release < last - 1e6:
            continue
        near = rows[(rows[:, 0] > release - 1.2e6) & (rows[:, 0] < release + 0.4e6)]
        if len(samples) < 4:
            samples.append([[round((r[0] - release) / 1e3, 1), hex(int(r[1])), int(r[2])] for r in near])
        after = near[near[:, 0] > release]
        for tag in np.unique(after[:, 1]):
            parts.setdefault(hex(int(tag)), []).append(float(after[after[:, 1] == tag][0, 0] - release) / 1e3)
        parts.setdefault("latency", []).append(latency / 1e3)
        parts.setdefault("kernel", []).append(kernel / 1e3)
    return {
        "p50_us_after_release": {k: round(float(np.median(v)), 1) for k, v in parts.items()},
        "jobs": len(parts.get("latency", [])),
        "samples": samples,
        "rt_pid": p.pid,
    }


Rows = NDArray[np.float64]


def switch_parts(jobs: Rows, log: Rows, pid: int) -> dict[str, Rows]:
    """What each job's time is made of, in us, by the context-switch log.

    jobs: (n, 3) release, latency and kernel in ns. log: (m, 3) time in ns, tag, pid, in order. Of a
    job that came while another program was on the engine: `leave`, from its release until that
    program's context was saved (what is left of its slice, and the saving); `restore`, from then
    until the job's context was on the engine; `rest`, from then to the end of its kernel.
    """
    start, end = 6, 7  # tags: a context came onto the engine; it was saved
    parts: dict[str, list[float]] = {"leave": [], "restore": [], "rest": [], "latency": []}
    mine = log[(log[:, 1] == start) & (log[:, 2] == pid)][:, 0]
    others = log[(log[:, 1] == end) & (log[:, 2] != pid)][:, 0]
    for release, latency, _ in jobs:
        on = mine[(mine > release) & (mine < release + latency)]
        off = others[(others > release) & (others < (on[0] if on.size else release))]
        if not off.size:
            continue
        left = float(off[-1])
        parts["leave"].append((left - release) / 1e3)
        parts["restore"].append((float(on[0]) - left) / 1e3)
        parts["rest"].append((release + latency - float(on[0])) / 1e3)
        parts["latency"].append(latency / 1e3)
    return {name: np.array(values) for name, values in parts.items()}


def spread(values: Rows) -> dict[str, float]:
    """Of some times: the shortest, the median, the 99th percentile, the longest."""
    if not values.size:
        return {"jobs": 0}
    least, p50, p99, most = (float(np.percentile(values, q)) for q in (0, 50, 99, 100))
    return {"min": least, "p50": p50, "p99": p99, "max": most, "jobs": int(values.size)}


def exp_switch(setup: Any) -> dict[str, Any]:
    """What a sporadic job's time is made of, and what shorter slices of the others would give.

    Each length has 1500 jobs, in three turns: fifteen of them are above the 99th percentile.
    """
    found: dict[str, Any] = {}
    log = setup.work / "switch-log.txt"
    lengths = (30, 16, 8)
    seen: dict[int, list[Rows]] = {us: [] for us in lengths}
    rates: dict[int, list[float]] = {us: [] for us in lengths}
    parts: dict[int, list[dict[str, Rows]]] = {us: [] for us in lengths}
    alone: list[dict[str, float]] = []
    for turn in range(3):
        alone.append(harness.critical(setup, 1000, 250)[0])
        for us in lengths[turn:] + lengths[:turn]:
            with harness.Governor(setup, "--set", f"slice_sole={us * 1000}") as gov:
                harness.standard_vgpus(gov, [34, 33, 33])
                with harness.Loads(setup) as loads:
                    harness.three_hogs(setup, loads, 9, gov)
                    time.sleep(0.5)
                    out = setup.work / f"rt-switch-{us}-{turn}.txt"
                    words = ["rt", str(setup.turns[100]), "10000", "1000", "550", str(out)]
                    command = [str(setup.bin / "load"), *words]
                    p = loads.start(command, None, gov, 8, stdout=subprocess.DEVNULL)
                    time.sleep(1.5)
                    lab(setup, "log", "3", str(log))
                    p.wait()
                    jobs = np.loadtxt(out, ndmin=2)[50:]
                    rates[us].append(harness.rates(loads, float(jobs[0, 0]), float(jobs[-1, 0])))
                    loads.wait()
            lines = (x.split() for x in log.read_text(encoding="ascii").splitlines())
            rows = np.array([[float(w[0]), float(int(w[1], 16)), float(w[2])] for w in lines])
            logged = jobs[(jobs[:, 0] > rows[0, 0]) & (jobs[:, 0] < rows[-1, 0] - 1e6)]
            seen[us].append(jobs)
            parts[us].append(switch_parts(logged, rows, p.pid))
    found["alone"] = alone
    for us in lengths:
        found[f"slices of {us} us"] = {
            "all": harness.percentiles(np.concatenate(seen[us])[:, 1] / 1e3),
            "p99 of each turn": [float(np.percentile(j[:, 1] / 1e3, 99)) for j in seen[us]],
            "parts": {
                name: spread(np.concatenate([one[name] for one in parts[us]]))
                for name in parts[us][0]
            },
            "chunks_per_s_of_the_others": float(np.mean(rates[us])),
        }
    return found


def exp_small(setup: Any) -> dict[str, Any]:
    """A kernel of 50 us each millisecond beside one program that always has work."""
    found: dict[str, Any] = {}

    def measured(gov: Any, vgpu: int | None) -> dict[str, Any]:
        with harness.Loads(setup) as loads:
            loads.hog(20000, 7.0, gov, 1 if gov else None)
            loads.wait_working()
            out = setup.work / f"rt-small-{time.monotonic_ns()}.txt"
            words = ["rt", str(setup.turns_of(50)), "1000", "0", "1200", str(out)]
            p = loads.start(
                [str(setup.bin / "load"), *words], None, gov, vgpu, stdout=subprocess.DEVNULL
            )
            p.wait()
            jobs = np.loadtxt(out, ndmin=2)[200:]
            rate = harness.rates(loads, float(jobs[0, 0]), float(jobs[-1, 0]))
            loads.wait()
        seconds = float(jobs[-1, 0] - jobs[0, 0]) / 1e9
        return {
            "jobs_per_s": len(jobs) / seconds,
            "latency": harness.percentiles(jobs[:, 1] / 1e3),
            "chunks_per_s_of_the_other": rate,
        }

    found["stock"] = measured(None, None)
    with harness.Governor(setup) as gov:
        harness.standard_vgpus(gov, [30, 30])
        found["30 % for each"] = measured(gov, 2)
        found["critical"] = measured(gov, 8)
    return found


def exp_warmed(setup: Any) -> dict[str, Any]:
    """The periodic case when the program itself does something small ahead of each release."""
    found: dict[str, Any] = {}
    with harness.Governor(setup) as gov:
        harness.standard_vgpus(gov, [34, 33, 33])
        with harness.Loads(setup) as loads:
            harness.three_hogs(setup, loads, 42, gov)
            time.sleep(0.5)
            for kind, us in (("", 0), ("kernel", 200), ("write", 200), ("event", 200), ("memset", 200), ("kernel", 400)):
                out = setup.work / f"rt-{kind}-{us}.txt"
                command = [str(setup.bin / "load"), "rt", str(setup.turns[100]), "10000", "0", "330", str(out)]
                env = {**os.environ, **({"LOAD_WARM_US": str(us), "LOAD_WARM_KIND": kind} if us else {})}
                subprocess.run(gov.wrap(9, command), check=True, stdout=subprocess.DEVNULL, env=env)
                found[f"{kind or 'nothing'} {us} us ahead"] = harness.percentiles(np.loadtxt(out, ndmin=2)[60:, 1] / 1e3)
    return found


def mib_per_s(path: Path, begin: float, end: float) -> float:
    """Of a copier's output."""
    p = harness.progress(path)
    a, b = np.interp([begin, end], p[:, 0], p[:, 1])
    return float((b - a) / (end - begin) * 1e9)


def exp_copies(setup: Any) -> dict[str, Any]:
    """A tenant that only copies: what it costs a computing one, and whether stopping copy channels works."""
    found: dict[str, Any] = {}

    def copier(loads: Any, kind: str, mib: str, seconds: float) -> Path:
        out = setup.work / f"copy-{time.monotonic_ns()}.txt"
        loads.start([str(setup.bin / "load"), "copy", kind, mib, str(seconds), str(out)], None)
        loads.outputs.append(out)
        return out

    with harness.Loads(setup) as loads:
        hog = loads.hog(1000, 32)
        loads.wait_working()
        time.sleep(0.5)
        t = time.monotonic_ns()
        time.sleep(1)
        alone = harness.work_in([[harness.progress(hog)]], t, time.monotonic_ns() - 2e7)[0] / (time.monotonic_ns() - 2e7 - t)
        for kind, mib in (("in", "16"), ("out", "16"), ("device", "256"), ("in", "0.0625"), ("device", "0.0625")):
            with harness.Loads(setup) as more:
                out = copier(more, kind, mib, 4.0)
                more.wait_working()
                time.sleep(0.2)
                t0 = time.monotonic_ns()
                time.sleep(1)
                t1 = time.monotonic_ns() - 20_000_000
                rate = harness.work_in([[harness.progress(hog)]], t0, t1)[0] / (t1 - t0)
                key = f"{kind} {mib} MiB"
                found[key] = {"hog_percent_of_alone": 100 * float(rate / alone), "mib_per_s": mib_per_s(out, t0, t1)}
                if mib == "16":
                    v = json.loads(lab(setup, "stop", "copies", "8", str(more.processes[0].pid))[-1])
                    more.wait()
                    s = np.array(v["rounds"], dtype=np.float64)
                    still = [mib_per_s(out, b + 6e6, c) for _, b, c, _ in s]
                    found[key]["copies stopped"] = {
                        "channels": v["channels"],
                        "stop_us": float(np.median((s[:, 1] - s[:, 0]) / 1e3)),
                        "go_us": float(np.median((s[:, 3] - s[:, 2]) / 1e3)),
                        "mib_per_s_meanwhile": float(np.max(still)),
                        "error": v["error"],
                    }
    for kind in ("in", "device"):
        with harness.Loads(setup) as loads:
            outs = [copier(loads, kind, "16", 4.5) for _ in range(2)]
            loads.wait_working()
            t0 = time.monotonic_ns()
            time.sleep(1)
            t1 = time.monotonic_ns() - 20_000_000
            found[f"two copiers {kind}"] = [mib_per_s(o, t0, t1) for o in outs]
    return found


EXPERIMENTS: dict[str, Callable[[Any], dict[str, Any]]] = {
    name[4:]: fn for name, fn in list(globals().items()) if name.startswith("exp_")
}


def main() -> int:
    """Runs those named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, default=ROOT / "build" / "gpu")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    name = harness.identify()
    if not name:
        print("skipped: no NVIDIA GPU here")
        return harness.SKIPPED
    results: dict[str, Any] = {"machine": name}
    with tempfile.TemporaryDirectory(prefix="rtxg-lab-") as work:
        setup = harness.Setup(args.bin.resolve(), args.out.resolve(), Path(work), name=name)
        setup.out.mkdir(parents=True, exist_ok=True)
        setup.current = "experiments"
        harness.calibrate(setup)
        harness.allow_real_time()
        for chosen in args.names or list(EXPERIMENTS):
            began = time.monotonic()
            try:
                results[chosen] = harness.rounded(EXPERIMENTS[chosen](setup))
            except Exception as e:
                results[chosen] = {"error": f"{type(e).__name__}: {e}"}
            print(f"{chosen} ({time.monotonic() - began:.1f} s): {json.dumps(results[chosen])}", flush=True)
            (setup.out / "experiments.json").write_text(json.dumps(results, indent=1) + "\n", encoding="ascii")
        results["xids"] = harness.xids()
        print(f"xids: {results['xids']}")
    (setup.out / "experiments.json").write_text(json.dumps(results, indent=1) + "\n", encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main())
