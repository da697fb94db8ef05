# SPDX-License-Identifier: MIT
"""Interrupts off the CPUs of critical tasks (KeepOffInterrupts=, KeepOffCPUs=).

Files stand in for the kernel's, in a name space of the daemon's own, so that no machine's
interrupts matter; two tests take interrupts of the machine's own. Root is needed for both.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import BUILD, Daemon, wait_for

STAND_INS = """
mount --bind "$1/proc" /proc/irq && mount --bind "$1/irq" /sys/kernel/irq &&
mount --bind "$1/online" /sys/devices/system/cpu/online &&
if test -d /sys/bus/pci/devices; then mount --bind "$1/pci" /sys/bus/pci/devices; fi || exit 77
shift
exec "$@"
"""


class Machine:
    """Eight CPUs and interrupts 7 and 8 of a GPU, 9 of a disk."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon, self.folder = daemon, daemon.folder / "machine"
        self.online = self.folder / "online"
        for name in ("proc", "irq", "pci"):
            (self.folder / name).mkdir(parents=True)
        self.add(7, "gpu-work", "0-7")
        self.add(8, "other,gpu-copy", "5")
        self.add(9, "disk", "0-7")
        self.online.write_text("0-7\n")
        self.prefix = (
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            STAND_INS,
            "sh",
            str(self.folder),
        )

    def add(self, number: int, name: str, cpus: str) -> None:
        """An interrupt."""
        for folder, file, text in (("proc", "smp_affinity_list", cpus), ("irq", "actions", name)):
            path = self.folder / folder / str(number)
            path.mkdir(exist_ok=True)
            (path / file).write_text(text + "\n")

    def path(self, number: int) -> Path:
        """Where it is sent."""
        return self.folder / f"proc/{number}/smp_affinity_list"

    def remove(self, number: int) -> None:
        """Its driver frees it."""
        (self.folder / f"irq/{number}/actions").unlink()
        (self.folder / f"irq/{number}").rmdir()
        self.path(number).unlink()
        self.path(number).parent.rmdir()

    def sent(self, *cpus: str) -> bool:
        """Whether these are the CPUs of 7, 8 and 9."""
        return tuple(self.path(number).read_text().strip() for number in (7, 8, 9)) == cpus

    def configure(self, names: str = "gpu-*", cpus: str = "4-7") -> None:
        """The daemon's configuration."""
        self.daemon.write_config(f"[Daemon]\nKeepOffInterrupts={names}\nKeepOffCPUs={cpus}\n")

    def start(self, names: str = "gpu-*", cpus: str = "4-7") -> None:
        """The daemon, on this machine."""
        self.configure(names, cpus)
        self.daemon.start(prefix=self.prefix)

    def reload(self, names: str = "gpu-*", cpus: str = "4-7") -> None:
        """Another configuration."""
        self.configure(names, cpus)
        assert self.daemon.ask("reload")["ok"]


BEFORE = ("0-7", "5", "0-7")
AWAY = ("0-3", "0-3", "0-7")


@pytest.fixture(name="machine")
def _machine(daemon: Daemon) -> Machine:
    machine = Machine(daemon)
    probe = subprocess.run([*machine.prefix, "true"], capture_output=True, text=True, check=False)
    if probe.returncode:
        pytest.skip(f"no file can be mounted over another here: {probe.stderr.strip()}")
    return machine


def _doctor(daemon: Daemon) -> dict[str, Any]:
    (row,) = [c for c in daemon.ask("doctor")["checks"] if c["check"] == "interrupts"]
    return row


def test_kept_off_while_a_critical_program_is_there(daemon: Daemon, machine: Machine) -> None:
    """One that has CPUs left stays on these, another goes to all others; a disk's stays."""
    machine.start()
    assert _doctor(daemon)["ok"] and "2 interrupts are named" in _doctor(daemon)["detail"]
    assert machine.sent(*BEFORE)
    with daemon.critical(30):
        wait_for("they are moved", lambda: machine.sent(*AWAY))
        row = _doctor(daemon)
        assert row["ok"] and "2 are kept off CPUs 4-7 now" in row["detail"], row
    wait_for("they are where they were", lambda: machine.sent(*BEFORE))
    daemon.healthy()


def test_stay_for_an_ordinary_program(daemon: Daemon, machine: Machine) -> None:
    """And where no CPU or no interrupt is named, or none of that name is there."""
    machine.start()
    program = daemon.device("-u", "1000", "-s", "-d", "120")
    wait_for("it works", lambda: any(t["engines"][0]["launches"] > 200 for t in daemon.tasks()))
    assert machine.sent(*BEFORE)
    program.kill()
    with daemon.critical(30):
        for names, cpus in (("gpu-*", ""), ("", "4-7"), ("no_such", "4-7"), ("gpu-*", "0-7")):
            machine.reload(names, cpus)
            (pid,) = [t["pid"] for t in daemon.tasks() if t["pid"] != program.pid]
            before = daemon.tasks()[0]["engines"][0]["launches"]
            wait_for(
                "it works",
                lambda before=before: daemon.tasks()[0]["engines"][0]["launches"] > before + 200,
            )
            assert pid and machine.sent(*BEFORE)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_set_back_when_the_daemon_ends(daemon: Daemon, machine: Machine, number: int) -> None:
    """In order, or by the guard."""
    machine.start()
    with daemon.critical(30):
        wait_for("they are moved", lambda: machine.sent(*AWAY))
        daemon.kill(number)
        wait_for("they are where they were", lambda: machine.sent(*BEFORE))


def test_set_back_by_the_next_daemon(daemon: Daemon, machine: Machine) -> None:
    """Where the guard was killed, too."""
    machine.start()
    with daemon.critical(30):
        wait_for("they are moved", lambda: machine.sent(*AWAY))
        (guard,) = daemon.guards()
        os.kill(guard, signal.SIGKILL)
        daemon.kill(signal.SIGKILL)
    assert machine.sent(*AWAY)
    machine.start("", "")
    assert machine.sent(*BEFORE)


def test_a_reload_sets_back_and_moves_again(daemon: Daemon, machine: Machine) -> None:
    """Other CPUs, then none."""
    machine.start()
    with daemon.critical(30):
        wait_for("they are moved", lambda: machine.sent(*AWAY))
        machine.reload(cpus="0-1,7")
        wait_for("they are moved", lambda: machine.sent("2-6", "5", "0-7"))
        machine.reload(names="disk")
        wait_for("the other is moved", lambda: machine.sent("0-7", "5", "0-3"))
        machine.reload(names="")
        assert machine.sent(*BEFORE)


@pytest.mark.parametrize("number", [0, signal.SIGTERM, signal.SIGKILL])
def test_what_another_has_set_stays(daemon: Daemon, machine: Machine, number: int) -> None:
    """As irqbalance or an administrator has while they were moved; that is said."""
    machine.start()
    with daemon.critical(30):
        wait_for("they are moved", lambda: machine.sent(*AWAY))
        machine.path(7).write_text("1\n")
        wait_for("it is seen", lambda: "set them 1 times" in _doctor(daemon)["detail"])
        machine.path(8).write_text("7\n")
        wait_for("it is seen", lambda: "set them 2 times" in _doctor(daemon)["detail"])
        wait_for("it is moved again", lambda: machine.sent("1", "0-3", "0-7"))
        if number:
            daemon.kill(number)
    wait_for("the last is their own", lambda: machine.sent("1", "7", "0-7"))


def test_interrupts_that_come_and_go(daemon: Daemon, machine: Machine) -> None:
    """The driver frees one, another driver gets its number, and one appears."""
    machine.start()
    with daemon.critical(30):
        wait_for("they are moved", lambda: machine.sent(*AWAY))
        machine.remove(8)
        wait_for("it is gone", lambda: "1 interrupts are named" in _doctor(daemon)["detail"])
        machine.add(8, "disk2", "0-3")
        machine.add(10, "gpu-new", "6-7")
        wait_for("the new one is moved", lambda: machine.path(10).read_text().strip() == "0-3")
        (machine.folder / "irq/7/actions").write_text("disk3\n")
        wait_for("7 is another's", lambda: "1 interrupts are named" in _doctor(daemon)["detail"])
    wait_for("it is back", lambda: machine.path(10).read_text().strip() == "6-7")
    assert machine.sent("0-3", "0-3", "0-7")
    daemon.healthy()


def test_another_drivers_interrupt_is_not_set_back_by_the_guard(
    daemon: Daemon, machine: Machine
) -> None:
    """It has got the number since, and the same CPUs."""
    machine.start()
    with daemon.critical(30):
        wait_for("they are moved", lambda: machine.sent(*AWAY))
        os.kill(daemon.process.pid if daemon.process else 0, signal.SIGSTOP)
        (machine.folder / "irq/7/actions").write_text("disk3\n")
        daemon.kill(signal.SIGKILL)
        wait_for("the other is back", lambda: machine.sent("0-3", "5", "0-7"))


@pytest.mark.parametrize("file", ["proc/7/smp_affinity_list", "irq/7/actions"])
def test_one_that_cannot_be_read_for_a_while_is_set_back(
    daemon: Daemon, machine: Machine, file: str
) -> None:
    """As where the daemon is out of descriptors: it is not taken for gone, and is told of."""
    machine.start()
    path = machine.folder / file
    aside = path.with_suffix(".aside")
    with daemon.critical(30):
        wait_for("they are moved", lambda: machine.sent(*AWAY))
        path.rename(aside)
        path.mkdir()
        wait_for("it is told", lambda: "7 (gpu-work) could not" in _doctor(daemon)["detail"])
        assert not _doctor(daemon)["ok"]
        path.rmdir()
        aside.rename(path)
        wait_for("the doctor has nothing to say", lambda: _doctor(daemon)["ok"])
    wait_for("they are where they were", lambda: machine.sent(*BEFORE))


@pytest.mark.parametrize("number", [0, signal.SIGTERM, signal.SIGKILL])
def test_a_second_driver_on_the_line(daemon: Daemon, machine: Machine, number: int) -> None:
    """Or one that leaves it: the interrupt is the same, and is set back."""
    machine.start()
    with daemon.critical(30):
        wait_for("they are moved", lambda: machine.sent(*AWAY))
        (machine.folder / "irq/7/actions").write_text("gpu-work,sound\n")
        (machine.folder / "irq/8/actions").write_text("gpu-copy\n")
        machine.add(10, "gpu-new", "6-7")
        wait_for("a pass has ended", lambda: machine.path(10).read_text().strip() == "0-3")
        assert machine.sent(*AWAY) and _doctor(daemon)["ok"]
        if number:
            daemon.kill(number)
    wait_for("they are where they were", lambda: machine.sent(*BEFORE))


def test_the_named_driver_leaves_the_line(daemon: Daemon, machine: Machine) -> None:
    """The interrupt that is left is none that the configuration names: it is set back."""
    machine.start()
    with daemon.critical(30):
        wait_for("they are moved", lambda: machine.sent(*AWAY))
        (machine.folder / "irq/8/actions").write_text("other\n")
        wait_for("it is back", lambda: machine.sent("0-3", "5", "0-7"))
        wait_for("it is not known", lambda: "1 interrupts are named" in _doctor(daemon)["detail"])
    wait_for("they are where they were", lambda: machine.sent(*BEFORE))


@pytest.mark.parametrize("content", ["", "x\n"])
def test_cpus_that_cannot_be_read(daemon: Daemon, machine: Machine, content: str) -> None:
    """What is away stays away: no CPU online is not what that means."""
    machine.start()
    with daemon.critical(30):
        wait_for("they are moved", lambda: machine.sent(*AWAY))
        machine.online.write_text(content)
        wait_for("it is told", lambda: "cannot be looked for" in _doctor(daemon)["detail"])
        assert machine.sent(*AWAY) and not _doctor(daemon)["ok"]
        machine.online.write_text("0-7\n")
        wait_for("the doctor has nothing to say", lambda: _doctor(daemon)["ok"])
        assert machine.sent(*AWAY)
    wait_for("they are where they were", lambda: machine.sent(*BEFORE))


def test_cpus_that_are_not_online(daemon: Daemon, machine: Machine) -> None:
    """Nothing is sent to these alone, and what was before comes back with them in it."""
    machine.online.write_text("3-7\n")
    machine.path(7).write_text("0,4\n")
    machine.start()
    with daemon.critical(30):
        wait_for("they are moved", lambda: machine.sent("3", "3", "0-7"))
        machine.online.write_text("0-7\n")
    wait_for("they are where they were", lambda: machine.sent("0,4", "5", "0-7"))


def test_by_the_device(daemon: Daemon, machine: Machine) -> None:
    """Its address names all of its interrupts, whichever driver handles them."""
    if not Path("/sys/bus/pci/devices").is_dir():
        pytest.skip("there is no PCI bus here")
    device = machine.folder / "pci/0000:41:00.0"
    (device / "msi_irqs").mkdir(parents=True)
    (device / "msi_irqs/9").write_text("msix\n")
    (machine.folder / "pci/0000:42:00.0").mkdir()
    (machine.folder / "pci/0000:42:00.0/irq").write_text("7\n")
    machine.start("0000:41:00.0 0000:42:00.0 ../0000:41:00.0 0000:43:00.0")
    with daemon.critical(30):
        wait_for("they are moved", lambda: machine.sent("0-3", "5", "0-3"))
    wait_for("they are where they were", lambda: machine.sent(*BEFORE))


def test_one_that_could_not_be_moved_is_moved_later(daemon: Daemon, machine: Machine) -> None:
    """Nothing could set it back at first, as a link has the journal's name."""
    machine.start()
    journal = Path(f"{daemon.socket}.raised")
    journal.symlink_to("nowhere")
    with daemon.critical(30):
        wait_for("it cannot be moved", lambda: "could not be moved" in _doctor(daemon)["detail"])
        assert machine.sent(*BEFORE) and not _doctor(daemon)["ok"]
        journal.unlink()
        wait_for("they are moved", lambda: machine.sent(*AWAY))
        wait_for("the doctor has nothing to say", lambda: _doctor(daemon)["ok"])


@pytest.mark.parametrize(
    "content", ["", "x", "7-4", "1,,2", "4-", "99999999999999999999", "0-1024", "5 6", "\xff"]
)
def test_strange_content(daemon: Daemon, machine: Machine, content: str) -> None:
    """An interrupt whose CPUs cannot be read stays as it is."""
    machine.path(7).write_bytes(content.encode("latin-1"))
    machine.start()
    with daemon.critical(30):
        wait_for("the other is moved", lambda: machine.path(8).read_text().strip() == "0-3")
        assert machine.path(7).read_bytes() == content.encode("latin-1")
    wait_for("it is back", lambda: machine.path(8).read_text().strip() == "5")
    daemon.healthy()


@pytest.mark.parametrize(
    "records", [b"\xff" * 8192, b"1 " * 4096, b"7 " + b"f" * 5000], ids=["bytes", "numbers", "long"]
)
def test_a_journal_that_makes_no_sense(daemon: Daemon, machine: Machine, records: bytes) -> None:
    """Nothing is moved by it."""
    journal = Path(f"{daemon.socket}.raised")
    journal.touch(mode=0o600)
    with journal.open("r+b") as file:
        file.seek((4096 + 256) * 80)
        file.write(records)
    machine.start()
    assert machine.sent(*BEFORE)
    daemon.healthy()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("KeepOffInterrupts=" + "x" * 32, "at most 8 names"),
        ("KeepOffInterrupts=" + " ".join("abcdefghi"), "at most 8 names"),
        ("KeepOffCPUs=7-4", "as 2,4-7"),
        ("KeepOffCPUs=1024", "as 2,4-7"),
        ("KeepOffCPUs=4294967296", "as 2,4-7"),
        ("KeepOffCPUs=all", "as 2,4-7"),
        ("KeepOffCPUs=1,", "as 2,4-7"),
        ("KeepOffCPUs=-1", "as 2,4-7"),
        ("KeepOffCPUs=0 1", "as 2,4-7"),
    ],
)
def test_bad_lines(daemon: Daemon, line: str, said: str) -> None:
    """The line is wrong, and said to be."""
    path = daemon.write_config(f"[Daemon]\n{line}\n")
    done = subprocess.run(
        [BUILD / "daemon/rtxgd", "--check-config", "--config-root", daemon.folder / "root"],
        env=daemon.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1 and f"{path}:2: {line.split('=')[0]}=" in done.stderr, done.stderr
    assert said in done.stderr


# --- the machine's own ----------------------------------------------------------------------------


def _interrupts() -> Iterator[tuple[int, str, Path]]:
    """Number, name and file of those that a driver handles alone."""
    for entry in sorted(Path("/sys/kernel/irq").glob("[0-9]*"), key=lambda p: -int(p.name)):
        name = (entry / "actions").read_text().strip()
        path = Path(f"/proc/irq/{entry.name}/smp_affinity_list")
        if re.fullmatch(r"[\w.-]{1,31}", name) and path.exists():
            yield int(entry.name), name, path


def _cpus() -> list[int]:
    if os.getuid() or (os.cpu_count() or 1) < 2:
        pytest.skip("interrupts can be moved by root, among two CPUs or more")
    return sorted(os.sched_getaffinity(0))


def _found(wanted: bool) -> tuple[int, str, Path] | None:
    """One that may be moved, or one that may not."""
    for number, name, path in _interrupts():
        try:
            path.write_text(path.read_text())
        except OSError as error:
            if not wanted and error.errno in (errno.EIO, errno.EPERM):
                return number, name, path
        else:
            if wanted:
                return number, name, path
    return None


@pytest.mark.parametrize("number", [0, signal.SIGTERM, signal.SIGKILL])
def test_a_real_interrupt(daemon: Daemon, number: int) -> None:
    """The kernel sends it elsewhere, and where it was before afterwards."""
    cpus = _cpus()
    found = _found(True)
    if not found:
        pytest.skip("the kernel lets none be moved here")
    _, name, path = found
    own, free = path.read_text(), cpus[-1]
    try:
        path.write_text(f"{cpus[0]},{free}")
        before = path.read_text()
        daemon.write_config(f"[Daemon]\nKeepOffInterrupts={name}\nKeepOffCPUs={free}\n")
        daemon.start()
        with daemon.critical(30):
            wait_for("it is moved", lambda: path.read_text() == f"{cpus[0]}\n")
            if number:
                daemon.kill(number)
        wait_for("it is where it was", lambda: path.read_text() == before)
    finally:
        path.write_text(own)


def test_a_real_interrupt_that_the_kernel_refuses_to_move(daemon: Daemon) -> None:
    """As a disk's queue with a CPU of its own: it is said, and stays."""
    _cpus()
    found = _found(False)
    if not found:
        pytest.skip("the kernel lets all be moved here")
    number, name, path = found
    own = path.read_text()
    free = own.replace("-", ",").split(",")[0].strip()
    daemon.write_config(f"[Daemon]\nKeepOffInterrupts={name}\nKeepOffCPUs={free}\n")
    daemon.start()
    with daemon.critical(30):
        wait_for("it is said", lambda: f"as {number} ({name})" in _doctor(daemon)["detail"])
        row = _doctor(daemon)
        assert (
            not row["ok"] and "the kernel refuses to move 1" in row["detail"] and row["remedy"]
        ), row
        assert path.read_text() == own
    assert daemon.log.read_text().count(f"interrupt {number} ({name}) stays where it is") == 1
