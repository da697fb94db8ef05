# SPDX-License-Identifier: MIT
"""Run one guest in QEMU, by software emulation, and collect what it said."""

from __future__ import annotations

import os
import re
import selectors
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .kernels import CACHE, Kernel

#: A kernel boots by looking for ten ticks of its timer within a moment of the processor's clock, and panics where it sees fewer
#: ("IO-APIC + timer doesn't work!"). An emulator that a busy host lets wait has none to show.
NO_TIMER_CHECK = "no_timer_check"


@dataclass(frozen=True)
class Machine:
    """What the guest is made of."""

    cpus: int = 2
    memory_mib: int = 512
    #: seconds of wall time after which the run counts as hung
    limit_s: float = 300.0
    #: deterministic time: one instruction is 2**shift ns of guest time (None = host time)
    icount: int | None = None
    #: words appended to the kernel's command line
    command_line: str = ""
    #: slow cases and many repetitions too
    slow: bool = False
    #: CPUs run at the same time, as two must for a data race to be seen (see boot())
    parallel: bool = False


class Stopwatch:
    """What each case and each program of a guest took: seconds of the host, and of its processor time for QEMU.

    Where the machine is busy with other things, the second says what the first would be without them.
    """

    _START = re.compile(r"^# start \S+$")
    _CASE = re.compile(r"^(\s+)(?:ok|not ok) \d+(?: - )?\s*(.*?)(?: # SKIP.*)?$")
    _PROGRAM = re.compile(r"^(?:ok|not ok) \d+ - (\S+)$")

    def __init__(self, name: str) -> None:
        self.name = name
        self.pid = 0
        self.began = self.case = self.program = (time.monotonic(), 0.0)
        self.booted = False

    def _now(self) -> tuple[float, float]:
        try:
            words = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
            used = (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
        except (OSError, IndexError):
            used = 0.0
        return time.monotonic(), used

    @staticmethod
    def _said(since: tuple[float, float], now: tuple[float, float]) -> str:
        return f"# seconds {now[0] - since[0]:.1f} cpu {max(0.0, now[1] - since[1]):.1f}"

    def after(self, line: str) -> str | None:
        """What to add to the console after this line, as ktap reads it: "# seconds 1.2 cpu 0.7 NAME"."""
        if self._START.match(line):
            now = self._now()
            boot = None if self.booted else f"{self._said(self.began, now)} boot ({self.name})"
            self.booted = True
            self.case = self.program = now
            return boot
        if m := self._PROGRAM.match(line):
            return f"{self._said(self.program, self._now())} {m.group(1)}"
        if m := self._CASE.match(line):
            now = self._now()
            said, self.case = self._said(self.case, now), now
            return f"{m.group(1)}{said} {m.group(2)}"
        return None


class GuestError(RuntimeError):
    """QEMU is missing or would not start."""


def boot(
    kernel: Kernel, initramfs: Path, machine: Machine, tests: list[str], echo: Callable[[str], None] | None
) -> tuple[str, str, float]:
    """Boot, run tests, wait for power-off; (console, kernel log, seconds).  A hang is a log without an end."""
    work = CACHE / kernel.series.name
    log = work / ("kernel.log" if machine.icount is None else "kernel-counted.log")
    log.unlink(missing_ok=True)
    disk = work / "disk.img"
    with disk.open("ab") as f:  # another guest may have it open: nothing is written
        f.truncate(16 << 20)
    # slub_debug: the stock kernels' own red zones and poison, in place of KASAN
    # A slow guest on a busy host is not a hung one: the watchdogs of a kernel with checks wait longer.
    memory = ("slub_debug=FZPU page_poison=1 rcupdate.rcu_cpu_stall_timeout=60 " if kernel.series.stock else
              "kasan_multi_shot watchdog_thresh=60 rcupdate.rcu_cpu_stall_timeout=240 workqueue.watchdog_thresh=240 "
              "sysctl.kernel.hung_task_timeout_secs=240 ")
    line = (f"console=ttyS1,115200 panic=-1 oops=panic {NO_TIMER_CHECK} tsc=reliable clocksource=tsc nokaslr "
            f"{memory}mitigations=off random.trust_cpu=on cryptomgr.notests "
            f"rtxg.tests={','.join(tests)} rtxg.counted={int(machine.icount is not None)} "
            f"rtxg.checks={int(not kernel.series.stock)} rtxg.slow={int(machine.slow)} "
            + machine.command_line)
    # On a CPU with five levels of page tables 7.2-debug did not get beyond the start: KASAN called
    # interrupts' accesses to common memory wild, without end, while the kernel was still finding
    # out what the CPU has. Without them it boots.
    cpu = "max" if kernel.series.stock else "max,la57=off"
    # One emulation thread for all virtual CPUs: with one each, a CPU may run a breakpoint of the kernel's text patching
    # that has been withdrawn already ("Oops: int3" where a tracepoint was switched on under an interrupt storm; seen on
    # 7.2-rt and 6.12-rt).
    command = [
        _qemu(), "-M", "q35", "-accel",
        "tcg" if machine.icount is not None else f"tcg,thread={'multi' if machine.parallel else 'single'}",
        "-cpu", cpu, "-smp", str(machine.cpus), "-m", str(machine.memory_mib),
        "-display", "none", "-no-reboot", "-nodefaults", "-net", "none",
        "-kernel", str(kernel.boots), "-initrd", str(initramfs), "-append", line,
        "-serial", "stdio", "-serial", f"file:{log}",
        # The pins of devices four or eight places apart are on one line: without MSI, they share an interrupt.
        "-device", "edu,addr=0x1", "-device", "edu,addr=0x9",
        "-device", "e1000e,netdev=n0", "-netdev", "user,id=n0,restrict=on",
        "-drive", f"file={disk},if=none,id=d0,format=raw,snapshot=on",
        "-device", "nvme,drive=d0,serial=rtxg",
        "-device", "virtio-rng-pci", "-device", "virtio-gpu-pci",
    ]
    if machine.icount is not None:
        command += ["-icount", f"shift={machine.icount},sleep=off"]
    watch = Stopwatch("counted" if machine.icount is not None else f"{machine.cpus} CPUs")
    console, seconds = _talk(command, machine.limit_s, echo, watch)
    kernel_log = log.read_text(errors="replace") if log.exists() else ""
    return console, kernel_log, seconds


def boot_disk(
    kernel: Kernel, initramfs: Path, image: Path, work: Path, limit_s: float, echo: bool
) -> tuple[str, str, float]:
    """Boot a disk whose first process reports on ttyS0 and powers off; (console, kernel log, seconds)."""
    log = work / "kernel.log"
    log.unlink(missing_ok=True)
    command = [
        _qemu(), "-M", "q35", "-accel", "tcg,thread=single", "-cpu", "max", "-smp", "2", "-m", "1024",
        "-display", "none", "-no-reboot", "-nodefaults", "-net", "none",
        "-kernel", str(kernel.image), "-initrd", str(initramfs),
        "-append", f"console=ttyS1,115200 panic=-1 {NO_TIMER_CHECK} tsc=reliable mitigations=off random.trust_cpu=on "
                   "systemd.show_status=false systemd.log_target=kmsg",
        "-serial", "stdio", "-serial", f"file:{log}",
        "-drive", f"file={image},if=none,id=d0,format=raw", "-device", "virtio-blk-pci,drive=d0",
        "-device", "virtio-rng-pci",
    ]
    console, seconds = _talk(command, limit_s, (lambda line: print(line, flush=True)) if echo else None, None)
    return console, log.read_text(errors="replace") if log.exists() else "", seconds


def _qemu() -> str:
    qemu = shutil.which("qemu-system-x86_64")
    if qemu is None:
        raise GuestError("qemu-system-x86_64 is missing: apt-get install qemu-system-x86")
    return qemu


def _talk(
    command: list[str], limit_s: float, echo: Callable[[str], None] | None, watch: Stopwatch | None
) -> tuple[str, float]:
    """Run QEMU until it ends or the limit; what it said on its first serial line, and the seconds."""
    start = time.monotonic()
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", bufsize=1,
    ) as process:
        assert process.stdout is not None
        if watch:
            watch.pid = process.pid
        lines: list[str] = []
        try:
            selector = selectors.DefaultSelector()
            selector.register(process.stdout, selectors.EVENT_READ)
            pending = ""
            fd = process.stdout.fileno()
            while True:
                left = limit_s - (time.monotonic() - start)
                if left <= 0:
                    lines.append(f"# rtxg-vm: no end after {limit_s:.0f} s, stopped")
                    break
                if not selector.select(timeout=min(left, 1.0)):
                    continue
                data = os.read(fd, 65536)
                if not data:
                    break
                pending += data.decode(errors="replace").replace("\r", "")
                *done, pending = pending.split("\n")
                for text in done:
                    extra = watch.after(text) if watch else None
                    for line in (text, extra):
                        if line is None:
                            continue
                        lines.append(line)
                        if echo:
                            echo(line)
            if pending:
                lines.append(pending)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
    if lines and lines[-1].startswith("# rtxg-vm: no end"):
        print(lines[-1], file=sys.stderr)
    return "\n".join(lines) + "\n", time.monotonic() - start
