# SPDX-License-Identifier: MIT
"""Read what a guest said: KTAP results and trouble in the kernel log."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

#: what makes a kernel log dirty, as the kernel spells it
TROUBLE = re.compile(
    r"\bBUG\b|\bWARNING: |INFO: possible|possible (?:circular|recursive|irq lock)"
    r"|rcu[_a-z]*: (?:INFO: )?.*(?:detected|self-detected) stall|blocked for more than"
    r"|Kernel panic|Oops|general protection|soft lockup|hard LOCKUP|scheduling while atomic"
    r"|sleeping function called|refcount_t: |UBSAN|KASAN|nobody cared|Call Trace|=+ *BUG"
    r"|bad: scheduling|stack guard|NMI backtrace|ODEBUG|list_(?:add|del) (?:corruption|double add)"
    # once lockdep has given up it finds nothing more: a run after that shows less than it seems
    r"|KCSAN|INFO: lockdep is turned off|turning off the locking correctness validator|non-static key"
)
#: said by stock kernels under emulation without any module of ours; each with its reason
HARMLESS = (
    # Debian signs its own modules only: loading ours says so once
    re.compile(r"module verification failed|loading out-of-tree module|taints kernel"),
    # the emulated CPU lacks mitigations' features
    re.compile(r"RETBleed: WARNING: |Spectre V2 : WARNING: |unknown (?:CPU|microcode)"),
    # races of two functions of the kernel, which has many; those with one of our modules' are ours
    re.compile(r"BUG: KCSAN: (?!.*\[rtxg)"),
    # how it was configured, which it says as it begins
    re.compile(r"kcsan: (?:non-)?strict mode configured"),
)

#: faults of stock kernels that KASAN reports without any module of ours, by the first line; each
#: with its reason
OTHERS = (
    # A flip reads its CRTC's new state after it has said that the hardware is done
    # (drm_atomic_helper_commit_tail), and the next flip may then free it. It does if the kernel's
    # worker is interrupted in between. docs/kernel-module.md has what was seen of that on kernels
    # without a module of ours, and tests/vm/guest/w_flips.c shows it again.
    re.compile(r"BUG: KASAN: (?:slab-)?use-after-free in "
               r"drm_atomic_helper_wait_for_vblanks(?:\.part\.\d+)?\+\S+ \[drm_kms_helper\]"),
)
#: the line that begins and ends a report of KASAN
_RULE = re.compile(r"={60,}$")
#: one of our modules or its threads; the kernels that are built here have it in their own name
_OURS = re.compile(r"rtxg(?!-debug)")


@dataclass
class Report:
    """Counts of one guest run."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: list[str] = field(default_factory=list)
    skips: list[str] = field(default_factory=list)
    #: values that tests reported with "# value NAME NUMBER UNIT"
    values: dict[str, tuple[float, str]] = field(default_factory=dict)
    #: seconds, and of them QEMU's processor time, of "PROGRAM", "PROGRAM: CASE" and "boot (MACHINE)"
    seconds: dict[str, tuple[float, float]] = field(default_factory=dict)
    finished: bool = False
    trouble: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """True if the run ended, something passed, nothing failed and the log is clean."""
        return self.finished and self.passed > 0 and self.failed == 0 and not self.trouble

    def add(self, other: Report) -> None:
        """Take another guest's run in: both must be good for the whole to be."""
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.failures += other.failures
        self.skips += other.skips
        self.values |= other.values
        self.seconds |= other.seconds
        self.finished = self.finished and other.finished
        self.trouble += other.trouble


_RESULT = re.compile(r"^\s+(ok|not ok) (\d+)(?: - )?\s*(.*)$")
_PLAN = re.compile(r"^\s+1\.\.(\d+)\s*(?:# (SKIP|slow) ?(.*))?$")
#: put into the console by guest.Stopwatch
_SECONDS = re.compile(r"^\s*# seconds ([0-9.]+) cpu ([0-9.]+) (.+)$")
_END = re.compile(r"^(ok|not ok) (\d+) - (\S+)")


def read_console(text: str) -> Report:
    """Count the results of every subtest; a program that broke off its plan is a failure."""
    report = Report()
    planned: int | None = None
    seen = 0
    program = ""

    def skip(case: str, reason: str) -> None:
        report.skipped += 1
        words = [program, case, reason.strip() or "no reason given"]
        report.skips.append(": ".join(w for w in words if w))

    for line in text.splitlines():
        if m := _PLAN.match(line):
            planned, seen = int(m.group(1)), 0
            # with nothing but slow cases, a program has nothing to do in the quick tier
            if planned == 0 and m.group(2) != "slow":
                skip("", m.group(3) or "")
        elif m := _RESULT.match(line):
            seen += 1
            if "# SKIP" in m.group(3):
                case, _, reason = m.group(3).partition("# SKIP")
                skip(case.strip(), reason)
            elif m.group(1) == "ok":
                report.passed += 1
            else:
                report.failed += 1
                report.failures.append(m.group(3))
        elif m := _END.match(line):
            if m.group(1) == "not ok" and planned == seen and not report.failed:
                report.failed += 1
                report.failures.append(f"{m.group(3)}: exit status")
            if planned is None or (planned and planned != seen):
                report.failed += 1
                report.failures.append(f"{m.group(3)}: planned {planned} results, gave {seen}")
            planned = None
        elif m := re.match(r"^\s*# value (\S+) (-?[0-9.eE+]+) ?(\S*)", line):
            report.values[m.group(1)] = (float(m.group(2)), m.group(3))
        elif m := _SECONDS.match(line):
            name = m.group(3) if line.startswith("#") else f"{program}: {m.group(3)}"
            report.seconds[name] = (float(m.group(1)), float(m.group(2)))
        elif m := re.match(r"^# start (\S+)$", line):
            program = m.group(1)
        elif line.strip() == "# rtxg-vm: end":
            report.finished = True
    return report


#: mistakes of tests/vm/provoke, and how the check that is made for it reports each. In order: lockdep is off after its
#: first finding and after KASAN's; the last may kill who made it and leave the module half loaded.
PROVOKED = {
    "rcu-unlocked": "suspicious RCU usage",
    "lock-order": "possible circular locking dependency",
    "use-after-free": "KASAN: .*use-after-free",
    "out-of-bounds": "KASAN: slab-out-of-bounds",
    "shift": "UBSAN: shift-out-of-bounds",
    "sleep-in-atomic": "scheduling while atomic|sleeping function called",
    "free-active": "ODEBUG: free active",
    "list-twice": "list_add (?:double add|corruption)",
}
#: the same of a kernel that looks for data races
PROVOKED_RACES = {"data-race": r"KCSAN: data-race in .*\[rtxg_provoke\]"}


def search_provoked(text: str, provoked: dict[str, str] = PROVOKED) -> list[str]:
    """Mistakes that were provoked and not found in this kernel log, each with the fault."""
    sections = re.split(r"rtxg-vm: provoke (\S+)", text)
    said = dict(zip(sections[1::2], sections[2::2], strict=True))
    wrong = []
    for name, pattern in provoked.items():
        if name not in said:
            wrong.append(f"{name}: was not made")
        elif not any(re.search(pattern, line) for line in search_log(said[name])):
            wrong.append(f"{name}: the search of the log does not find it")
    return wrong


def _of_others(lines: list[str]) -> set[int]:
    """Numbers of lines that are troubles of OTHERS: a report's first line and its trace.

    A report that has no end, or in which one of our modules occurs, is not theirs.
    """
    numbers = set()
    for first, line in enumerate(lines):
        if not any(fault.search(line) for fault in OTHERS):
            continue
        end = next((n for n in range(first + 1, len(lines)) if _RULE.search(lines[n])), first)
        report = range(first, end)
        if report and not any(_OURS.search(lines[n]) for n in report):
            numbers.add(first)
            numbers.update(n for n in report if lines[n].endswith("Call Trace:"))
    return numbers


def search_log(text: str) -> list[str]:
    """Lines of a kernel log that mean trouble."""
    lines = text.splitlines()
    others = _of_others(lines)
    return [
        line
        for number, line in enumerate(lines)
        if number not in others
        and TROUBLE.search(line)
        and not any(h.search(line) for h in HARMLESS)
    ]
