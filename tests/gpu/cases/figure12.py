# SPDX-License-Identifier: MIT
"""Four detectors with and without a CPU load (Linux-RTXG, figure 12)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from harness import Governor, Loads, Setup, can_fifo, progress, standard_vgpus


def threads(pid: int) -> dict[int, tuple[str, str, int, float]]:
    """Threads of a process: name, CPU policy, priority, and the milliseconds that it has waited for a CPU."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            stat = (task / "stat").read_text(encoding="utf-8", errors="replace")
            name, rest = stat[stat.index("(") + 1 : stat.rindex(")")], stat[stat.rindex(")") + 2 :].split()
            waited = float((task / "schedstat").read_text(encoding="ascii").split()[1]) / 1e6
        except OSError:  # it has ended
            continue
        policy = {0: "other", 1: "fifo", 2: "rr", 3: "batch", 6: "deadline"}.get(int(rest[38]), rest[38])
        found[int(task.name)] = name, policy, int(rest[37]), waited
    return found


def late_threads(
    before: dict[int, tuple[str, str, int, float]], after: dict[int, tuple[str, str, int, float]]
) -> list[str]:
    """The five threads that waited longest for a CPU in between."""
    waits = [(v[3] - before[t][3] if t in before else v[3], *v[:3]) for t, v in after.items()]
    return [f"{name} ({policy} {level}): {ms:.1f} ms" for ms, name, policy, level in sorted(waits, reverse=True)[:5]]


def case_figure12(setup: Setup) -> None:
    """Four detectors 60/20/10/10, with and without a CPU load in turn, CPU side FIFO (Linux-RTXG, figure 12)."""
    due = [60.0, 20.0, 10.0, 10.0]
    settle_s, window_s, rounds = 0.7, 3.5, 2
    frames: dict[str, list[float]] = {}
    spread: dict[str, list[list[float]]] = {}
    detail: dict[str, list[dict[str, Any]]] = {}
    # The same programs with and without the load, twice in turn: what differs from start to start falls out.
    for mode, fifo in (("stock", 0), ("rtxg", 10)):
        with Governor(setup) as gov, Loads(setup) as loads:
            standard_vgpus(gov, due)
            if not fifo:
                gov.ctl("off")
            assert gov.process
            for i in range(4):
                loads.torch("detect", 2 * rounds * (settle_s + window_s) + 3, gov, i + 1, fifo=fifo)
            loads.wait_working()
            time.sleep(1)
            windows: list[tuple[str, int, int]] = []
            for _ in range(rounds):
                for name in (mode, f"{mode}, CPU load"):
                    hack = None
                    if name != mode:
                        hack = loads.start([str(setup.bin / "hackload"), "4", "60"], None)
                    time.sleep(settle_s)
                    pids = [loads.processes[0].pid, gov.process.pid]
                    before, work = [threads(p) for p in pids], gov.stats()["vgpus"]
                    t0 = time.monotonic_ns()
                    time.sleep(window_s)
                    windows.append((name, t0, time.monotonic_ns()))
                    after, done = [threads(p) for p in pids], gov.stats()["vgpus"]
                    used = [b["work_ns"] - a["work_ns"] for a, b in zip(work, done, strict=True) if 1 <= a["vgpu"] <= 4]
                    detail.setdefault(name, []).append(
                        {
                            "gpu_time_percent": [100 * u / max(sum(used), 1) for u in used],
                            "gpu_busy_percent": sum(used) / window_s / 1e7,
                            "policies_of_the_first": sorted({f"{p} {n}" for _, p, n, _ in after[0].values()}),
                            "waited_for_a_cpu_first": late_threads(before[0], after[0]),
                            "waited_for_a_cpu_lever": late_threads(before[1], after[1]),
                        }
                    )
                    if hack:
                        hack.kill()
                        hack.wait()
            for p in loads.processes[:4]:
                p.wait(timeout=120)
            rows = [progress(o) for o in loads.outputs]
        for name, t0, t1 in windows:
            counts = [np.interp([t0, t1], r[:, 0], np.arange(len(r))) for r in rows]
            spread.setdefault(name, []).append([float(c[1] - c[0]) / (t1 - t0) * 1e9 for c in counts])
        for name in (mode, f"{mode}, CPU load"):
            frames[name] = [float(np.mean(column)) for column in zip(*spread[name], strict=True)]
            inside = [np.any([(r[:, 0] >= a) & (r[:, 0] < b) for n, a, b in windows if n == name], axis=0) for r in rows]
            setup.plots.setdefault("figure12", {})[name] = [r[i][:, 1] for r, i in zip(rows, inside, strict=True)]
    kept = [b / a if a else 0.0 for a, b in zip(frames["rtxg"], frames["rtxg, CPU load"], strict=True)]
    lost = [b / a if a else 0.0 for a, b in zip(frames["stock"], frames["stock, CPU load"], strict=True)]
    limit = Path("/proc/sys/kernel/sched_rt_runtime_us")
    setup.record(
        "four detectors 60/20/10/10: frame rate kept under a CPU load, first one",
        "%",
        100 * lost[0],
        100 * kept[0],
        "95",
        kept[0] >= 0.95,
        frames_per_s=frames,
        frames_per_s_of_each_window=spread,
        kept=kept,
        stock_kept=lost,
        cpu_policy="SCHED_FIFO 10" if can_fifo() else "SCHED_OTHER: no real-time runtime in this cgroup",
        sched_rt_runtime_us=int(limit.read_text(encoding="ascii")) if limit.exists() else None,
        windows=detail,
    )
