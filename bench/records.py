#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Keep what the benchmarks printed, and write the tables of documents from it.

usage: records.py keep LABEL        build/bench/*.json -> bench/results/LABEL-DATE.json
       records.py keep-kernels [LABEL KERNEL...]
                                    build/vm/*/result.json -> bench/results/kernels-[LABEL-]DATE.json;
                                    of a kernel that is named, also a run of some programs
       records.py tables [--check]  rewrite the tables of docs/results.md and
                                    docs/latency.md from the records

A table stands between two lines, `<!-- table: RECORD.json -->` and `<!-- end -->`. Nothing between
them is written by hand, so no figure there lacks its record. Exit status: 0; 1 with --check if a
table differs from its record; 2 wrong usage, or a record is missing.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from datetime import date
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
RESULTS = TOP / "bench" / "results"
DOCUMENTS = (TOP / "docs" / "results.md", TOP / "docs" / "latency.md")
BUILD = Path(os.environ.get("RTXG_BENCH_DIR", TOP / "build" / "bench"))

TABLE = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.S)


def machine() -> dict[str, object]:
    """What the figures depend on: processor, CPUs, kernel, and the commit that was measured."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    return {
        "cpu": model.group(1) if model else platform.machine(),
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "commit": commit,
    }


def keep(label: str) -> int:
    """Gather the benchmarks' files into one record."""
    files = sorted(BUILD.glob("*.json"))
    if not files:
        print(f"records.py: {BUILD} holds no results: run bench/run first", file=sys.stderr)
        return 2
    record = {
        "machine": machine(),
        "date": date.today().isoformat(),
        "command": "bench/run",
        "results": {file.stem: json.loads(file.read_text()) for file in files},
    }
    path = RESULTS / f"{label}-{record['date']}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(path.relative_to(TOP))
    return 0


def keep_kernels(label: str, names: list[str]) -> int:
    """Gather what `make vm-all`, or a part of it, found in each kernel."""
    paths = sorted((TOP / "build" / "vm").glob("*/result.json"))
    if names:
        folders = [TOP / "build" / "vm" / name for name in names]
        paths = [
            max(f.glob("result*.json"), key=lambda p: p.stat().st_mtime, default=f / "result.json")
            for f in folders
        ]
        if missing := [str(p) for p in paths if not p.exists()]:
            print(f"records.py: {', '.join(missing)}: no result", file=sys.stderr)
            return 2
    found = [json.loads(p.read_text()) for p in paths]
    if not found:
        print("records.py: build/vm holds no results: run make vm-all first", file=sys.stderr)
        return 2
    record = {
        "machine": machine(),
        "date": date.today().isoformat(),
        "command": "tests/vm/run KERNEL [TEST...]" if names else "make vm-all",
        "kernels": found,
    }
    path = RESULTS / f"kernels-{label}{record['date']}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(path.relative_to(TOP))
    return 0


def number(value: object) -> str:
    """A figure as people read it: four significant digits; nothing for None."""
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) and abs(value) < 1000 else f"{value:.0f}"


def verdict(met: object) -> str:
    """The last column."""
    return "-" if met is None else "yes" if met else "no"


def gpu_rows(record: list[dict]) -> list[str]:
    """A record of tests/gpu/run: stock driver beside rtxg."""
    rows = ["| case | unit | stock | rtxg | aim | met |", "|---|---|---|---|---|---|"]
    for entry in record:
        if entry["stock"] is None and entry["rtxg"] is None:
            continue  # the case could not run on that machine
        rows.append(
            f"| {entry['case']} | {entry['unit']} | {number(entry['stock'])} | "
            f"{number(entry['rtxg'])} | {entry['aim']} | {verdict(entry['met'])} |"
        )
    return rows


def host_rows(record: dict) -> list[str]:
    """A record of bench/run: a figure and its aim."""
    rows = ["| benchmark | case | figure | | aim | met |", "|---|---|---|---|---|---|"]
    for name, entries in sorted(record["results"].items()):
        for entry in entries:
            # An aim of 0 says that there is none.
            aim, met = (number(entry["aim"]), entry["met"]) if entry["aim"] else ("-", None)
            rows.append(
                f"| `{name}` | {entry['name']} | {entry['figure_name']} | "
                f"{number(entry['figure'])} | {aim} | {verdict(met)} |"
            )
    return rows


def kernel_rows(record: dict) -> list[str]:
    """A record of `make vm-all`: one row a kernel; of those built here, what that took, too."""
    built = any(entry.get("built") for entry in record["kernels"])
    rows = [
        "| kernel | release | passed | failed | skipped | log clean |",
        "|---|---|---|---|---|---|",
    ]
    if built:
        rows[0] += " run, s | built in, s | of them on a CPU, s |"
        rows[1] += "---|---|---|"
    for entry in record["kernels"]:
        took = entry.get("built") or {}
        part = "" if entry["tests"] == "all" else f": {', '.join(entry['tests'])}"
        rows.append(
            f"| {entry['kernel']}{part} | {entry['release']} | {entry['passed']} | {entry['failed']} | "
            f"{entry['skipped']} | {verdict(entry['log_clean'])} |"
            + (
                f" {entry['seconds']:.0f} | {took.get('seconds', '-')} | "
                f"{took.get('cpu_seconds', '-')} |"
                if built
                else ""
            )
        )
    return rows


def tool(name: str) -> str:
    """As a user types it, or in words."""
    return f"`{name}`" if name.startswith(("rtxg", "rtla")) and "before" not in name else name


def latency_rows(record: dict) -> list[str]:
    """A record of bench/latency_peers.py: ratios to cyclictest, and to it with ftrace."""
    sys.path.insert(0, str(TOP / "bench"))
    from latency_peers import RATIOS, ratios

    ours, traced = "rtxg latency", "cyclictest with ftrace"
    rows = [
        "| tool | min us | mean, ratio | max, ratio | CPU, ratio |",
        "|---|---|---|---|---|",
    ]
    summary = {tool(name): one for name, one in record["summary"].items() if name != "cyclictest"}
    if record["runs"].get(traced):
        summary[f"{tool(ours)} to {traced}"] = ratios(record["runs"][ours], record["runs"][traced])
    for name, one in summary.items():
        cells = [
            f"{one[key]:.2f} ({one[key + '_interval'][0]:.2f} to {one[key + '_interval'][1]:.2f})"
            for key in RATIOS
        ]
        least = f"{one['min_us']:.1f}" if "min_us" in one else ""
        rows.append(f"| {name} | {least} | {' | '.join(cells)} |")
    return rows


def latency_vm_rows(record: dict) -> list[str]:
    """The tools of a record of bench/latency_vm.py with one run of each."""
    rows = [
        "| kernel | tool | beside | min us | mean us | max us | CPU busy, % |",
        "|---|---|---|---|---|---|---|",
    ]
    for kernel, one in record["kernels"].items():
        for load, tools in one["peers"]["runs"].items():
            for name, (run,) in tools.items():
                if name == "nothing":
                    continue
                busy = f" {run['busy_percent']:.1f} |" if not load else " |"
                rows.append(
                    f"| {kernel} | {tool(name)} | {load or 'nothing'} | {run['min_us']:.1f} | "
                    f"{run['avg_us']:.1f} | {run['max_us']:.0f} |{busy}"
                )
    return rows


def rows_of(record: list | dict) -> list[str]:
    """The rows that the kind of record asks for."""
    if isinstance(record, list):
        return gpu_rows(record)
    if record.get("bench") == "latency_peers":
        return latency_rows(record)
    if record.get("bench") == "latency_vm":
        return latency_vm_rows(record)
    return kernel_rows(record) if "kernels" in record else host_rows(record)


def tables(check: bool) -> int:
    """Rewrite the documents, or say which differ."""

    def table(match: re.Match[str]) -> str:
        path = RESULTS / match.group(2)
        if not path.is_file():
            print(f"records.py: {path.relative_to(TOP)} is missing", file=sys.stderr)
            raise SystemExit(2)
        rows = rows_of(json.loads(path.read_text()))
        return match.group(1) + "\n".join(rows) + "\n" + match.group(3)

    ret = 0
    for document in DOCUMENTS:
        text = document.read_text()
        wanted = TABLE.sub(table, text)
        if not check:
            document.write_text(wanted)
        elif wanted != text:
            name = document.relative_to(TOP)
            print(f"{name} differs from its records: run bench/records.py tables", file=sys.stderr)
            ret = 1
    return ret


def main() -> int:
    """Choose what to do."""
    arguments = sys.argv[1:]
    if len(arguments) == 2 and arguments[0] == "keep":
        return keep(arguments[1])
    if arguments[:1] == ["keep-kernels"] and len(arguments) != 2:
        return keep_kernels("".join(f"{label}-" for label in arguments[1:2]), arguments[2:])
    if arguments in (["tables"], ["tables", "--check"]):
        return tables("--check" in arguments)
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
