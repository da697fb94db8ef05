# SPDX-License-Identifier: MIT
"""This machine's own Table III.

Three ways of looking: kernel tracepoints, which need root; probes from user space, which need
nothing and see less; and a running rtxgd, which says what its lever's acts took.  Each overhead is
kept as a distribution; the number taken from it is the mean between the quartiles, as in the
klmirqd paper, except for the halves of a GPU interrupt, which do different things every time and
are averaged whole.  An overhead that could not be seen is listed with the reason and is never
guessed.  Microseconds throughout.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import itertools
import json
import os
import platform
import re
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from .tracefs import Event, Recording, Unavailable, kernel_symbols

#: Overheads averaged whole: their variation is their nature, not noise.
WHOLE = frozenset(("th", "bh"))

#: Tracepoints that the measurement uses.
TRACEPOINTS = (
    "irq/irq_handler_entry", "irq/irq_handler_exit", "irq/softirq_entry", "irq/softirq_exit",
    "sched/sched_switch", "sched/sched_wakeup",
    "timer/hrtimer_expire_entry", "timer/hrtimer_expire_exit",
    "ipi/ipi_send_cpu", "irq_vectors/reschedule_entry", "irq_vectors/call_function_single_entry",
)  # fmt: skip

_TICK = ("tick_nohz_handler", "tick_sched_timer", "tick_sched_handle")
_SLEEP = ("hrtimer_wakeup",)


@dataclass(frozen=True, slots=True)
class Distribution:
    """Samples of one overhead, microseconds."""

    samples: tuple[float, ...]
    source: str  #: how it was seen
    whole: bool = False  #: averaged whole, not between the quartiles

    def quantile(self, q: float) -> float:
        """Value at share q of the sorted samples."""
        ordered = sorted(self.samples)
        return ordered[min(len(ordered) - 1, int(q * len(ordered)))]

    @property
    def value(self) -> float:
        """The value in the table."""
        if self.whole:
            return statistics.fmean(self.samples)
        low, high = self.quantile(0.25), self.quantile(0.75)
        return statistics.fmean(s for s in self.samples if low <= s <= high)


@dataclass(slots=True)
class Measurement:
    """The overheads seen on this machine, and the reasons for those not seen."""

    seen: dict[str, Distribution] = field(default_factory=dict)
    unseen: dict[str, str] = field(default_factory=dict)  #: overhead -> why
    notes: list[str] = field(default_factory=list)

    def add(self, name: str, samples: Iterable[float], source: str) -> None:
        """Keep a distribution, unless there are no samples."""
        kept = tuple(samples)
        if kept:
            self.seen[name] = Distribution(kept, source, name in WHOLE)
            self.unseen.pop(name, None)

    def to_json(self) -> dict:
        """Plain data; ``overheads`` can be given to ``rtxg analyze --overheads``."""
        return {
            "machine": {
                "node": platform.node(),
                "kernel": platform.release(),
                "cpus": os.cpu_count(),
            },
            "overheads": {name: round(d.value, 4) for name, d in self.seen.items()},
            "distributions": {
                name: {
                    "samples": len(d.samples),
                    "min": min(d.samples),
                    "q1": d.quantile(0.25),
                    "median": d.quantile(0.5),
                    "q3": d.quantile(0.75),
                    "p99": d.quantile(0.99),
                    "max": max(d.samples),
                    "source": d.source,
                }
                for name, d in self.seen.items()
            },
            "unseen": self.unseen,
            "notes": self.notes,
        }


# From tracepoints --------------------------------------------------------------------------------


def _spans(
    events: Sequence[Event], entry: str, leave: str, wanted: Callable[[Event], bool]
) -> list[float]:
    """Lengths from the entries that are wanted to the next exit on the same CPU."""
    opened: dict[int, int] = {}
    lengths = []
    for e in events:
        if e.name == entry and wanted(e):
            opened[e.cpu] = e.time
        elif e.name == leave and e.cpu in opened:
            lengths.append((e.time - opened.pop(e.cpu)) / 1000)
    return lengths


def top_halves(events: Sequence[Event], irqs: set[int]) -> list[float]:
    """irq_handler_entry to irq_handler_exit of the chosen interrupts."""
    return _spans(
        events, "irq_handler_entry", "irq_handler_exit", lambda e: e.fields["irq"] in irqs
    )


def bottom_halves(events: Sequence[Event], irqs: set[int]) -> list[float]:
    """What the chosen interrupts leave to be done: the softirqs run on the way out of the
    interrupt, and the turns of their threads (``irq/NUMBER-name``)."""
    lengths = []
    after: dict[int, bool] = {}  # this CPU left one of the interrupts, and nothing else began since
    opened: dict[int, int] = {}
    turns: dict[int, int] = {}
    threads = tuple(f"irq/{irq}-" for irq in irqs)
    for e in events:
        if e.name == "irq_handler_entry":
            after[e.cpu] = e.fields["irq"] in irqs
        elif e.name == "softirq_entry" and after.get(e.cpu):
            opened[e.cpu] = e.time
        elif e.name == "softirq_exit" and e.cpu in opened:
            lengths.append((e.time - opened.pop(e.cpu)) / 1000)
        elif e.name == "sched_switch":
            after[e.cpu] = False
            if e.cpu in turns:
                lengths.append((e.time - turns.pop(e.cpu)) / 1000)
            if str(e.fields["next_comm"]).startswith(threads):
                turns[e.cpu] = e.time
    return lengths


def thread_releases(events: Sequence[Event], irqs: set[int]) -> list[float]:
    """The release of an interrupt's thread: from its top half's end to the thread on a run queue.

    What klmirqd's threads cost here, too: rtxg.ko gives the kernel's own threads of an interrupt
    the priority of its owner (docs/interrupts.md)."""
    ended: dict[int, int] = {}
    threads = tuple(f"irq/{irq}-" for irq in irqs)
    lengths = []
    for e in events:
        if e.name == "irq_handler_exit":
            ended.pop(e.cpu, None)
            if e.fields["irq"] in irqs:
                ended[e.cpu] = e.time
        elif (
            e.name == "sched_wakeup"
            and e.cpu in ended
            and str(e.fields["comm"]).startswith(threads)
        ):
            lengths.append((e.time - ended.pop(e.cpu)) / 1000)
    return lengths


def timer_calls(events: Sequence[Event], functions: set[int]) -> list[float]:
    """hrtimer_expire_entry to hrtimer_expire_exit of the given functions."""
    return _spans(
        events,
        "hrtimer_expire_entry",
        "hrtimer_expire_exit",
        lambda e: e.fields["function"] in functions,
    )


def ipi_latencies(events: Sequence[Event]) -> list[float]:
    """ipi_send_cpu to the next interrupt of its kind on the CPU addressed."""
    sent: dict[int, int] = {}
    lengths = []
    for e in events:
        if e.name == "ipi_send_cpu":
            sent.setdefault(int(e.fields["cpu"]), e.time)
        elif e.name in ("reschedule_entry", "call_function_single_entry") and e.cpu in sent:
            lengths.append((e.time - sent.pop(e.cpu)) / 1000)
    return lengths


def find_interrupts(pattern: str, text: str | None = None) -> dict[int, str]:
    """Numbers and names of the interrupts in /proc/interrupts of that number or part of a name."""
    if text is None:
        with open("/proc/interrupts", encoding="utf-8", errors="replace") as file:
            text = file.read()
    found = {}
    for line in text.splitlines():
        match = re.match(r"\s*(\d+):((?:\s+\d+)+)\s+(.*)", line)
        if match and (pattern == match[1] or pattern in match[3]):
            found[int(match[1])] = match[3].split()[-1]
    return found


def _from_tracepoints(
    found: Measurement, seconds: float, irq_pattern: str, progress: Callable[[str], None]
) -> None:
    irqs = find_interrupts(irq_pattern)
    with Recording(TRACEPOINTS) as recording, _provoke():
        stop = time.monotonic() + seconds
        while (left := stop - time.monotonic()) > 0:
            time.sleep(0.05)
            recording.collect()
            progress(f"{seconds - left:.0f} of {seconds:g} s of tracepoints recorded")
    events = recording.events
    if recording.lost:
        found.notes.append(f"{recording.lost} events were lost: the buffer was full")
    if recording.missing:
        found.notes.append(f"this kernel lacks {', '.join(recording.missing)}")
    if irqs:
        named = ", ".join(f"{n} ({name})" for n, name in list(irqs.items())[:2])
        named += f" and {len(irqs) - 2} more" if len(irqs) > 2 else ""
        found.add(
            "th", top_halves(events, set(irqs)), f"irq_handler_entry to exit of interrupts {named}"
        )
        found.add(
            "bh", bottom_halves(events, set(irqs)), f"softirqs and threads after interrupts {named}"
        )
        found.add(
            "krel",
            thread_releases(events, set(irqs)),
            f"irq_handler_exit to the wake-up of the thread of {named}",
        )
        if "krel" not in found.seen:
            found.unseen["krel"] = (
                f"interrupts {named} woke no thread of theirs: "
                "their driver has none, or had nothing to do"
            )
        for half in ("th", "bh"):
            if half not in found.seen:
                found.unseen[half] = (
                    f"interrupts {named} did not leave any within {seconds:g} s: "
                    "put load on the device"
                )
    else:
        for half in ("th", "bh"):
            found.unseen[half] = (
                f"no interrupt in /proc/interrupts matches {irq_pattern!r}: choose one with --irq"
            )
    symbols = kernel_symbols(_TICK + _SLEEP)
    for name, functions, what in (("tck", _TICK, "tick"), ("rel", _SLEEP, "sleeper's timer")):
        addresses = {address for address, symbol in symbols.items() if symbol in functions}
        found.add(
            name, timer_calls(events, addresses), f"hrtimer_expire_entry to exit of the {what}"
        )
        if name not in found.seen:
            found.unseen[name] = (
                "no such timer was seen"
                if symbols
                else "kernel addresses are hidden (kptr_restrict)"
            )
    found.add("ipi", ipi_latencies(events), "ipi_send_cpu to entry on the CPU addressed")
    if "ipi" not in found.seen:
        found.unseen["ipi"] = "no inter-processor interrupt was seen"


@contextlib.contextmanager
def _provoke():
    """Keep timers and wake-ups across CPUs coming while tracepoints are recorded."""
    stop = threading.Event()
    there, back = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
            os.close(there[1])
            while os.read(there[0], 1):
                os.write(back[1], b"x")
        os._exit(0)
    os.close(there[0])

    def sleepers() -> None:
        while not stop.is_set():
            time.sleep(0.0005)
            os.write(there[1], b"x")
            os.read(back[0], 1)

    thread = threading.Thread(target=sleepers)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        os.close(there[1])
        os.waitpid(child, 0)
        for fd in (back[0], back[1]):
            os.close(fd)


# From user space ---------------------------------------------------------------------------------


def _batches(call: Callable[[], object], calls: int, batches: int) -> list[float]:
    """Mean time of a call, one number a batch."""
    times = []
    for _ in range(batches):
        begin = time.perf_counter_ns()
        for _ in range(calls):
            call()
        times.append((time.perf_counter_ns() - begin) / calls / 1000)
    return times


@contextlib.contextmanager
def _pinned(cpu: int):
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def _real_time():
    """SCHED_FIFO if we may; yields whether we may."""
    policy, parameter = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        granted = True
    except PermissionError:
        granted = False
    try:
        yield granted
    finally:
        if granted:
            os.sched_setscheduler(0, policy, parameter)


def _scheduling(found: Measurement, batches: int) -> None:
    """One scheduling decision, and one context switch.

    A yield without another runnable thread is a decision.  The cost of a bare system call is
    subtracted.  Two processes of equal real-time priority that yield to each other on one CPU
    switch at every call.
    """
    cpu = min(os.sched_getaffinity(0))
    with _pinned(cpu), _real_time() as real_time:
        plain = min(_batches(os.getppid, 200, 30))
        alone = [max(0.0, t - plain) for t in _batches(os.sched_yield, 100, batches)]
        found.add("sch", alone, "sched_yield without another runnable thread, less a system call")
        if not real_time:
            found.unseen["cxs"] = (
                "needs real-time priority (root, or RLIMIT_RTPRIO): "
                "yields switch for certain only then"
            )
            return
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                parent = os.getppid()
                while os.getppid() == parent:
                    os.sched_yield()
            os._exit(0)
        try:
            rounds = _batches(os.sched_yield, 100, batches)
        finally:
            os.kill(child, 9)
            os.waitpid(child, 0)
        # One round: two decisions, two switches, and the other's loop, which asks for its parent.
        decision = statistics.median(alone) + plain
        loop = 2 * decision + plain
        found.add(
            "cxs",
            [max(0.0, (t - loop) / 2) for t in rounds],
            "two processes that yield to each other, less the yields",
        )


_MEMBARRIER = {"x86_64": 324, "aarch64": 283}


def _membarrier(found: Measurement, batches: int) -> None:
    """An IPI from user space: an expedited membarrier interrupts the CPU of another running thread
    and waits for it; half the round trip is counted.  Where the other thread is not running just
    then there is no interrupt, and the call is as short as without any other thread; such calls are
    left out."""
    number = _MEMBARRIER.get(platform.machine())
    cpus = sorted(os.sched_getaffinity(0))
    if number is None or len(cpus) < 2:
        found.unseen.setdefault(
            "ipi", "needs a second CPU" if number else f"not known how on {platform.machine()}"
        )
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, 16, 0, 0) < 0:
        found.unseen.setdefault("ipi", "the kernel has no expedited membarrier")
        return
    stop = threading.Event()

    def occupy() -> None:
        os.sched_setaffinity(0, {cpus[-1]})
        while not stop.is_set():
            hashlib.pbkdf2_hmac("sha256", b"x", b"y", 20_000)  # runs without the interpreter's lock

    with _pinned(cpus[0]):
        alone = sorted(_batches(lambda: libc.syscall(number, 8, 0, 0), 1, batches))
        quick = alone[len(alone) * 9 // 10] * 2
        thread = threading.Thread(target=occupy)
        thread.start()
        try:
            time.sleep(0.02)
            trips = _batches(lambda: libc.syscall(number, 8, 0, 0), 1, 10 * batches)
        finally:
            stop.set()
            thread.join()
    found.add(
        "ipi",
        [t / 2 for t in trips if t > quick],
        "half an expedited membarrier to another CPU (upper bound)",
    )
    if "ipi" not in found.seen:
        found.unseen.setdefault(
            "ipi", "the other CPU was never ours while we looked: the machine is too busy"
        )


def find_ticks(gaps: Sequence[tuple[float, float]], quantum: float) -> list[float]:
    """Of gaps (when, how long) in a thread's execution, those that come once a tick period.

    The times are folded over the period; ticks gather in one place, everything else is spread.
    """
    bins: dict[int, list[float]] = {}
    width = quantum / 50
    for when, length in gaps:
        bins.setdefault(int(when % quantum / width), []).append(length)
    if not bins:
        return []
    place = max(bins, key=lambda b: len(bins[b]))
    # Ticks may straddle two bins; a crowd is only one if it beats what chance would put there.
    near = [x for b in (place - 1, place, place + 1) for x in bins.get(b % 50, [])]
    return near if len(near) > 3 * 3 * len(gaps) / 50 else []


def _gaps(found: Measurement, seconds: float, quantum: float) -> None:
    """A tick from user space: the pauses of a busy loop that come once a period (upper bound)."""
    gaps = []
    with _pinned(min(os.sched_getaffinity(0))):
        clock = time.perf_counter_ns
        end = clock() + int(seconds * 1e9)
        before = clock()
        while before < end:
            now = clock()
            if now - before > 800:
                gaps.append((before / 1000, (now - before) / 1000))
            before = now
    found.add(
        "tck",
        find_ticks(gaps, quantum),
        "pauses of a busy loop that come once a tick (upper bound)",
    )
    if "tck" not in found.seen:
        found.unseen.setdefault(
            "tck", "pauses of a busy loop show no period: the machine is too noisy, or has no tick"
        )


# From a running rtxgd -----------------------------------------------------------------------------


def daemon_sockets() -> list[str]:
    """Where a daemon may listen, in the order in which rtxg's programs look."""
    if named := os.environ.get("RTXG_SOCKET"):
        return [named]
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    own = f"{runtime}/rtxg" if runtime else f"/tmp/rtxg-{os.getuid()}"
    return ["/run/rtxg/rtxgd.sock", f"{own}/rtxgd.sock"]


def ask_daemon(path: str, op: str) -> dict:
    """One request to the daemon at that socket, and its reply (docs/reference/protocol.md).

    :raises OSError: it does not answer, or refuses.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(10)
        connection.connect(path)
        connection.send(json.dumps({"op": op}).encode())
        data, fds, _, _ = socket.recv_fds(connection, 1 << 17, 16)
    try:
        reply = json.loads(data)
        if "memfd" in reply:  # too long for a message
            reply = json.loads(os.pread(fds[0], reply["memfd"], 0))
    except ValueError as error:
        raise OSError(f"the answer of {path} is not JSON: {error}") from None
    finally:
        for fd in fds:
            os.close(fd)
    if not reply.get("ok"):
        raise OSError(f"rtxgd refuses {op}: {reply.get('message', 'without a reason')}")
    return reply


def from_timeline(events: Sequence[dict]) -> dict[str, list[float]]:
    """What the lever's acts took, and the time between two programs' stays on a GPU that follow
    each other within a millisecond: suspend, resume and slice_switch in microseconds."""
    lengths: dict[str, list[float]] = {"suspend": [], "resume": [], "slice_switch": []}
    names = {"stop": "suspend", "resume": "resume"}
    stays: dict[str, list[dict]] = {}
    for e in events:
        if e["kind"] in names:
            lengths[names[e["kind"]]].append((e["end_ns"] - e["start_ns"]) / 1000)
        elif e["kind"] == "stay":
            stays.setdefault(e["gpu"], []).append(e)
    for mine in stays.values():
        mine.sort(key=lambda e: e["start_ns"])
        for before, after in itertools.pairwise(mine):
            gap = after["start_ns"] - before["end_ns"]
            if before["pid"] != after["pid"] and 0 <= gap < 1_000_000:
                lengths["slice_switch"].append(gap / 1000)
    return lengths


def _from_daemon(found: Measurement) -> None:
    why = "no rtxgd listens: start it with a GPU's lever, and let programs contend"
    for path in daemon_sockets():
        try:
            events = ask_daemon(path, "timeline")["events"]
        except FileNotFoundError:
            continue
        except OSError as error:
            why = f"{path}: {error.strerror or error}"
            continue
        for name, samples in from_timeline(events).items():
            found.add(name, samples, f"timeline of rtxgd at {path}")
        why = "rtxgd's lever did not do it lately: let programs contend for a GPU"
        break
    for name in ("suspend", "resume", "slice_switch"):
        if name not in found.seen:
            found.unseen[name] = why


def measure(
    seconds: float = 3.0,
    irq: str = "nvidia",
    *,
    tracepoints: bool = True,
    batches: int = 300,
    progress: Callable[[str], None] = lambda what: None,
) -> Measurement:
    """Measure this machine.

    :param seconds: how long tracepoints are recorded, and a busy loop watched.
    :param irq: number, or part of the name, of the interrupt whose halves are wanted.
    :param tracepoints: use them if we may.
    :param batches: samples of each probe from user space.
    :param progress: called now and then with how far it is.
    """
    found = Measurement()
    for name, why in (
        ("krel", "only tracepoints show it: the release of an interrupt's thread"),
        ("pairel", "belongs to PAI, which this kernel does not have"),
        ("paisch", "belongs to PAI, which this kernel does not have"),
        ("permit", "belongs to rtxg: give the hand-over that bench/run handover prints"),
    ):
        found.unseen[name] = why
    _from_daemon(found)
    coarse = getattr(time, "CLOCK_MONOTONIC_COARSE", 6)
    quantum = time.clock_getres(coarse) * 1e6
    found.add("quantum", [quantum], "resolution of CLOCK_MONOTONIC_COARSE")
    _scheduling(found, batches)
    why = "not asked for"
    if tracepoints:
        try:
            _from_tracepoints(found, seconds, irq, progress)
        except Unavailable as error:
            why = str(error)
        except PermissionError as error:
            why = f"tracefs needs root ({error.strerror})"
        else:
            why = ""
    if why:
        found.notes.append(f"no tracepoints: {why}")
        for name in ("th", "bh", "rel"):
            found.unseen[name] = f"only tracepoints show it, and there are none: {why}"
    if "ipi" not in found.seen:
        _membarrier(found, batches)
    if "tck" not in found.seen:
        progress(f"a busy loop is watched for {seconds:g} s")
        _gaps(found, seconds, quantum)
    return found
