# SPDX-License-Identifier: MIT
"""`rtxg order` from end to end: programs are built with its flags, recorded and replayed; orders that are wrong are named."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("RTXG_BUILD", ROOT / "build/release")).resolve()
RTXG = BUILD / "cli/rtxg"
EXAMPLES = ROOT / "examples/order"
BENCH = ROOT / "bench/order"

#: two threads that each add 1 to balance five times, by a read and a write
BANK = """
#include <pthread.h>
#include <stdio.h>
static long balance;
static void *add(void *unused)
{
    for (int i = 0; i < 5; i++)
        balance = balance + 1;
    return unused;
}
int main(void)
{
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, add, NULL);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    printf("%ld\\n", balance);
    return 0;
}
"""

#: a queue behind a mutex and a condition; says in which order the numbers of two makers came out
QUEUE = """
#include <pthread.h>
#include <stdio.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static int queue[64], head, tail;
static void *make(void *first)
{
    for (int i = 0; i < 12; i++) {
        pthread_mutex_lock(&lock);
        queue[tail++] = (int)(long)first + i;
        pthread_cond_signal(&filled);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}
static void *take(void *unused)
{
    for (int i = 0; i < 12; i++) {
        pthread_mutex_lock(&lock);
        while (head == tail)
            pthread_cond_wait(&filled, &lock);
        printf("%d ", queue[head++]);
        pthread_mutex_unlock(&lock);
    }
    return unused;
}
int main(void)
{
    pthread_t threads[4];
    pthread_create(&threads[0], NULL, take, NULL);
    pthread_create(&threads[1], NULL, take, NULL);
    pthread_create(&threads[2], NULL, make, (void *)100);
    pthread_create(&threads[3], NULL, make, (void *)200);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    printf("\\n");
    return 0;
}
"""


def rtxg(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A subcommand of `rtxg order`."""
    command = [RTXG, "order", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, timeout=120)


def compilers() -> list[str]:
    return [c for c in ("gcc", "clang") if shutil.which(c)]


def build(compiler: str, source: Path, program: Path) -> Path:
    """The program with the flags that rtxg prints."""
    flags = rtxg("flags", compiler).stdout.split()
    subprocess.run([compiler, "-O0", *flags, "-o", program, source, "-pthread"], check=True, timeout=120)
    return program


@pytest.fixture(scope="module", params=compilers())
def bank(request, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "bank.c").write_text(BANK)
    return build(request.param, folder / "bank.c", folder / "bank")


def order_file(folder: Path, text: str) -> Path:
    path = folder / "some.order"
    path.write_text(text)
    return path


def test_a_lost_update_is_had_at_will(bank, tmp_path):
    """Both read before one writes, in each of their rounds: half of the updates are lost, each time. And none is, under an
    order that keeps the threads apart."""
    entries = []
    for r in range(5):
        entries += [f"(2,[{2 * r + 1}:{2 * r}])", f"(1,[{2 * r + 1}:{2 * r + 1}])", f"(2,[{2 * r + 2}:{2 * r + 1}])"]
        if r < 4:
            entries.append(f"(1,[{2 * r + 2}:{2 * r + 2}])")
    lost = order_file(tmp_path, "variables balance\n{" + ",\n".join(entries) + "}\n")
    for _ in range(10):
        done = rtxg("run", lost, "--", bank)
        assert (done.returncode, done.stdout, done.stderr) == (0, "5\n", "")
    apart = order_file(tmp_path, "variables balance\n{(2,[10:0])}\n")
    for _ in range(10):
        assert rtxg("run", apart, "--", bank).stdout == "10\n"


@pytest.mark.parametrize("host", ["futex", "shared", "opt"])
def test_each_host_in_user_space_keeps_the_order(bank, tmp_path, host):
    lost = order_file(tmp_path, "variables balance\n{(2,[1:0]),(1,[1:1]),(2,[10:1])}\n")
    assert rtxg("run", "--host", host, lost, "--", bank).stdout == "5\n"


def test_a_record_replays_and_says_names_and_lines(bank, tmp_path):
    order = tmp_path / "bank.order"
    done = rtxg("record", "-v", "balance", "-o", order, "--", bank)
    assert done.returncode == 0, done.stderr
    text = order.read_text()
    assert re.search(r"^program bank\nvariables balance\nlocks\nthread 1 main", text, re.M)
    assert re.search(r"# read balance, bank\.c:8$", text, re.M)
    for _ in range(5):
        again = rtxg("run", order, "--", bank)
        assert (again.returncode, again.stdout, again.stderr) == (0, done.stdout, "")
    shown = rtxg("show", order).stdout
    assert re.search(r"^main: access 0 \(read balance, bank\.c:18\) comes after access 9 of main\.[12]", shown, re.M)


def test_a_record_of_a_record_is_the_same(bank, tmp_path):
    """What an order leaves free does not matter: a run under it has the same order."""
    first, text = tmp_path / "first", []
    assert rtxg("record", "-v", "balance", "-o", first, "--", bank).returncode == 0
    less = rtxg("relax", first)
    assert less.returncode == 0
    small = order_file(tmp_path, less.stdout)
    assert rtxg("run", small, "--", bank).returncode == 0
    for path in (first, small):
        again = rtxg("relax", path)
        text.append(again.stdout)
    assert text[0] == text[1]


def test_steps_of_locks_and_conditions_replay(tmp_path):
    """Which of two takers gets which of two makers' numbers is chance; under the record it is not."""
    (tmp_path / "queue.c").write_text(QUEUE)
    program = build(compilers()[0], tmp_path / "queue.c", tmp_path / "queue")
    for _ in range(5):
        order = tmp_path / "queue.order"
        first = rtxg("record", "-v", "queue", "-v", "head", "-v", "tail", "-o", order, "--", program)
        assert first.returncode == 0, first.stderr
        for _ in range(3):
            again = rtxg("run", order, "--", program)
            assert (again.returncode, again.stdout, again.stderr) == (0, first.stdout, "")


KNOWN_BUGS = ["status_line", "early_thread", "access_log"]


def follow_known_bug(folder: Path, name: str, fate: str, runs: int) -> None:
    """Runs under the order of a run that failed, or of one that passed: each ends as that one did."""
    program = build("gcc", EXAMPLES / f"{name}.c", folder / name)
    for _ in range(runs):
        done = rtxg("run", EXAMPLES / f"{name}-{fate}.order", "--", program, cwd=folder)
        assert "given up" not in done.stderr
        assert (done.returncode == 0) == (fate == "pass"), (fate, done)


@pytest.mark.parametrize("fate", ["fail", "pass"])
@pytest.mark.parametrize("name", KNOWN_BUGS)
def test_each_known_bug_strikes_under_one_order_and_never_under_another(tmp_path, name, fate):
    """Every time, of twenty."""
    follow_known_bug(tmp_path, name, fate, 20)


@pytest.mark.slow
@pytest.mark.parametrize("fate", ["fail", "pass"])
@pytest.mark.parametrize("name", KNOWN_BUGS)
def test_each_known_bug_strikes_each_of_a_thousand_times_or_never(tmp_path, name, fate):
    follow_known_bug(tmp_path, name, fate, 1000)


@pytest.mark.parametrize("path", sorted(BENCH.glob("*.order")) + sorted(EXAMPLES.glob("*.order")), ids=lambda p: p.name)
def test_the_orders_of_the_tree_can_be_followed(path):
    done = rtxg("check", path)
    assert done.returncode == 0, done.stderr


def test_fibonacci_has_the_accesses_and_the_entries_of_the_paper():
    """75 accesses for each thread; 98, 44 and 24 entries, of which 44 and 24 are beginnings of the 98."""
    program = BUILD / "bench/order/fibonacci"
    if not program.exists():
        pytest.skip("bench/order is built with GCC only")
    bodies = []
    for number, entries in (1, 98), (2, 44), (3, 24):
        order = BENCH / f"fibonacci-{number}.order"
        done = rtxg("run", "--counts", order, "--", program)
        assert f"150 accesses, {entries} restricted," in done.stderr, done.stderr
        bodies.append(re.findall(r"^\(\d,\[[\d:]+\]\)", order.read_text(), re.M))
    assert bodies[0][:44] == bodies[1] and bodies[1][:24] == bodies[2]


#: threads, their variable and its places, entries of the orders: of the paper's three larger programs
LARGER = {
    "last_zero": (16, "array", 16, [15, 12, 5, 1]),
    "indexer": (15, "table", 128, [16, 8]),
    "philosophers": (16, "chopsticks", 16, [24, 16, 8]),
}


@pytest.mark.parametrize("name", LARGER)
def test_the_larger_programs_have_the_sizes_of_the_paper(tmp_path, name):
    """A run that follows no order shows the threads; each order has its entries."""
    program = BUILD / "bench/order" / name
    if not program.exists():
        pytest.skip("bench/order is built with GCC only")
    threads, variable, places, entries = LARGER[name]
    symbols = subprocess.run(["nm", "-S", program], capture_output=True, text=True, check=True).stdout
    assert int(re.search(rf"^\w+ (\w+) \w {variable}$", symbols, re.M)[1], 16) == 4 * places
    order = tmp_path / "free.order"
    assert rtxg("record", "-v", variable, "-o", order, "--", program).returncode == 0
    assert set(re.findall(r"^thread \d+ (main\.\d+) accesses", order.read_text(), re.M)) == {
        f"main.{n}" for n in range(1, threads + 1)
    }
    for number, count in enumerate(entries, 1):
        done = rtxg("run", "--counts", BENCH / f"{name}-{number}.order", "--", program)
        assert (done.returncode, f" accesses, {count} restricted," in done.stderr) == (0, True), done.stderr


def test_last_zero_has_46_accesses_at_most_and_makes_them_where_it_looks_last():
    program = BUILD / "bench/order/last_zero"
    if not program.exists():
        pytest.skip("bench/order is built with GCC only")
    for number, accesses in (1, range(46, 47)), (4, range(31, 47)):
        done = rtxg("run", "--counts", BENCH / f"last_zero-{number}.order", "--", program)
        assert int(re.search(r"^(\d+) accesses,", done.stderr, re.M)[1]) in accesses, done.stderr


def test_one_class_of_neighbouring_philosophers_eats_at_a_time():
    """A philosopher begins a round, of five accesses, when both neighbours have ended theirs."""
    for path in BENCH.glob("philosophers-*.order"):
        for thread, clocks in re.findall(r"^\((\d+),\[([\d:]+)\]\)", path.read_text(), re.M):
            at, needs = int(thread) - 1, [int(c) for c in clocks.split(":")]
            assert {n for n, clock in enumerate(needs) if clock} - {at} == {(at - 1) % 16, (at + 1) % 16}
            assert all(clock % 5 == 0 for clock in needs)


WRONG = {
    "{(1,[0:3)}": "1: ')}': ']' is expected behind the clocks, as in (2,[4:0:7])",
    "{(1,[0:3])\n(2,[0:3])}": "2: '(2,[0:3])}': ',' or '}' is expected behind an entry",
    "{(3,[0:3])}": "1: thread 3; 1 to 2 are accepted",
    "{(0,[0:3])}": "1: thread 0; 1 to 2 are accepted",
    "{(1,[0:3]),\n\n(1,[1:2:3])}": "3: 3 clocks; the order has 2 threads, so each entry has 2",
    "{(1,[0:99999999999])}": "1: a clock is too great; 0 to 4294967293 are accepted",
    "{(1,[x:3])}": "1: 'x:3])}': a clock is expected, a number from 0 to 4294967293",
    "": "1: the end of the file: '{' is expected before the entries",
    "{}": "1: the order has no thread and no entry",
    "{(1,[0:3])} more": "1: 'more' stands behind the order's end",
    "threat 1 main\n{}": "1: 'threat': rtxg-order, program, variables, locks, others, thread or '{' is expected",
    "rtxg-order 2\n{}": "1: version 2 is not known; 1 is",
    "others busy\n{}": "1: others 'busy': free and last are accepted",
    "thread 1 a accesses 5 off\n{}": "1: 'off': cut is accepted here, or the end of the line",
    "thread 1 a accesses 5 cut\nthread 2 b\n{(1,[6:1])}":
        "3: access 6 of thread 1 never comes: its record was cut short before access 5",
    "thread 2 main\n{}": "1: thread 2: the next thread is 1",
    "thread 1 a\nthread 2 a\n{}": "2: thread 2 is called a, as thread 1 is",
    "{(1,[5:1]),\n(1,[3:1])}": "2: access 3 of thread 1 stands behind a later one of that thread (line 1)",
    "{(1,[5:1]),\n(1,[5:2])}": "2: access 5 of thread 1 has an entry in line 1 already",
    "thread 1 a accesses 5\nthread 2 b\n{(1,[5:1])}": "3: access 5 of thread 1 never comes: the thread makes 5 accesses, from 0",
    "thread 1 a accesses 5\nthread 2 b\n{(2,[6:1])}": "3: access 1 of thread 2 needs clock 6 of thread 1, which makes 5 accesses",
    "{(1,[1:5]),\n(2,[3:2])}": "1: a circle of 2 entries: access 1 of thread 1 (line 1) needs clock 5 of thread 2, "
                               "access 2 of thread 2 (line 2) needs clock 3 of thread 1",
}


@pytest.mark.parametrize("text", WRONG, ids=lambda t: repr(t)[:40])
def test_what_is_wrong_with_a_file_is_named_with_its_line(tmp_path, text):
    path = order_file(tmp_path, text)
    for command in ("check", "relax", "show", "run"):
        done = rtxg(command, path, *(["--", "true"] if command == "run" else []))
        assert done.returncode == (125 if command == "run" else 1)
        assert done.stderr.startswith(f"rtxg order {command}: {path}:{WRONG[text]}"), done.stderr


def test_an_order_that_cannot_be_followed_is_given_up_and_said(bank, tmp_path):
    """The program ends as it would; nobody waits for ever."""
    for text, said in {
        "{(1,[2:30])}": "thread 2 (main.2) ended after 10 accesses; access 2 of thread 1 (main.1) (line 2) needs 30 of them",
        "thread 1 main.1\nthread 2 main.9\n{(1,[2:30])}": "thread main.2 made an access, and the order has no such thread",
        "others free\nthread 1 main.1\nthread 2 main.9\n{(1,[2:30])}":
            "nothing moved: access 2 of thread 1 (main.1) (line 5) needs 30 accesses of thread 2 (main.9), which made 0",
    }.items():
        path = order_file(tmp_path, "variables balance\n" + text)
        done = rtxg("run", "--patience", "200ms", path, "--", bank)
        assert done.returncode == 125
        assert int(done.stdout) in range(1, 11)
        assert f"was given up: {said}" in done.stderr


def test_programs_that_cannot_be_recorded_are_named(bank, tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\nexit 0\n")
    script.chmod(0o755)
    for arguments, status, said in (
        (["record", "/bin/true"], 125, "/bin/true has no calls around its accesses; build it with the flags"),
        (["record", "./nothing"], 127, "./nothing: there is no such program"),
        (["record", script], 126, "is no program that a compiler made, but a script"),
        (["record", "-v", "balanc", bank], 125, "has no variable 'balanc', did you mean 'balance'?"),
        (["record"], 125, "which program?"),
        (["record", "--accesses", "0", bank], 125, "--accesses"),
        (["run", "--host", "futx", "x", bank], 125, "'futx' is not accepted; accepted: futex, proto-1"),
        (["run", "--patience", "1us", "x", bank], 125, "1ms to 1h are accepted"),
        (["run", tmp_path / "none", bank], 125, "No such file"),
    ):
        done = rtxg(*arguments, cwd=tmp_path)
        assert done.returncode == status, done
        assert said in done.stderr


def small_program(folder: Path, name: str, work: str, main: str = "") -> Path:
    """A program of threads a and b over x, y and z, which prints their sum at its end. work has both threads, main what stands
    between their starts."""
    (folder / f"{name}.c").write_text(f"""
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
static int x, y, z, ends[2];
{work}
int main(void)
{{
    pthread_t threads[2];
    if (pipe(ends))
        return 1;
    pthread_create(&threads[0], NULL, a, NULL);
    {main}
    pthread_create(&threads[1], NULL, b, NULL);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    printf("%d\\n", x + y + z);
    return 0;
}}
""")
    return build("gcc", folder / f"{name}.c", folder / name)


def test_a_record_of_a_crash_holds_what_came_before(tmp_path):
    (tmp_path / "crash.c").write_text("static int *p; int q; int main(void) { q = 1; q = 2; return *p; }\n")
    program = build(compilers()[0], tmp_path / "crash.c", tmp_path / "crash")
    done = rtxg("record", "-v", "q", "-o", tmp_path / "crash.order", "--", program)
    assert done.returncode == 128 + 11
    text = (tmp_path / "crash.order").read_text()
    assert "others last\nthread 1 main accesses 2 cut\n" in text
    assert rtxg("run", tmp_path / "crash.order", "--", program).returncode == 128 + 11


def test_what_the_crash_came_before_does_not_overtake_it_in_a_replay(tmp_path):
    """Thread a goes on for ever, b dies by what it reads. Under the record b reads the same, each time."""
    program = small_program(tmp_path, "race", """
static void *a(void *unused) { for (;;) x = x + 1; return unused; }
static void *b(void *unused) { usleep(3000); if (x) { y = x; abort(); } return unused; }
""")
    order = tmp_path / "race.order"
    assert rtxg("record", "-v", "x", "-v", "y", "-o", order, "--", program).returncode == 128 + 6
    text = order.read_text()
    ends = [int(n) for n in re.findall(r"^thread \d main\.\d accesses (\d+) cut$", text, re.M)]
    assert len(ends) == 2 and "others last\n" in text
    # the entry at each thread's end: what it would have done next comes after all that the other one did
    assert re.search(rf"^\(\d,\[{ends[0]}:{ends[1]}\]\),?\t# the record ends before it$", text, re.M)
    for path in (order, order_file(tmp_path, rtxg("relax", order).stdout)):
        for _ in range(5):
            done = rtxg("run", "--counts", path, "--", program)
            assert done.returncode == 128 + 6 and "given up" not in done.stderr


def test_a_thread_that_a_cut_record_lacks_comes_last(tmp_path):
    """b begins while a sleeps before its only access, and would be first."""
    program = small_program(tmp_path, "late", """
static void *a(void *unused) { usleep(20000); x = 1; return unused; }
static void *b(void *unused) { x = 2; return unused; }
""")
    for others, last in (("free", "1"), ("last", "2")):
        path = order_file(tmp_path, f"variables x\nothers {others}\nthread 1 main.1 accesses 1 cut\n{{}}\n")
        done = rtxg("run", path, "--", program)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{last}\n", "")


def test_what_does_not_come_is_not_waited_for_at_the_end_of_a_cut_record(tmp_path):
    program = small_program(tmp_path, "never", """
static void *a(void *unused) { x = 1; char byte; return read(ends[0], &byte, 1) ? unused : NULL; }
static void *b(void *unused) { x = 2; return write(ends[1], "", 1) ? unused : NULL; }
""")
    path = order_file(tmp_path, "variables x\nothers last\nthread 1 main.1 accesses 2 cut\n{}\n")
    done = rtxg("run", "--patience", "100ms", path, "--", program)
    assert done.returncode == 125
    assert "nothing moved: thread main.2, which the order does not have, comes after all 2 accesses of thread 1 (main.1)" \
        in done.stderr


def test_an_access_whose_thread_sleeps_afterwards_counts_once(tmp_path):
    """a says nothing between its write and read(): b finds out that the write was made. a's next accesses keep their numbers."""
    program = small_program(tmp_path, "sleeper", """
static void *a(void *unused)
{
    int end = ends[0];
    char byte;
    x = 1;
    if (read(end, &byte, 1) != 1)
        return unused;
    y = 2;
    z = 3;
    return unused;
}
static void *b(void *unused)
{
    int first = x, second;
    if (write(ends[1], "", 1) != 1)
        return unused;
    second = y;
    printf("%d %d %d\\n", first, second, z);
    return unused;
}
""")
    path = order_file(tmp_path, "variables x y z\nothers free\nthread 1 main.1 accesses 3\nthread 2 main.2 accesses 3\n"
                                "{(2,[1:0]),\n(2,[2:1]),\n(1,[2:3])}\n")
    for _ in range(5):
        done = rtxg("run", "--counts", path, "--", program)
        # main reads each once more: its accesses are not the order's
        assert (done.returncode, done.stdout) == (0, "1 2 0\n6\n"), done
        assert done.stderr.startswith("6 accesses, 3 restricted,"), done


def test_a_thread_that_dies_inside_a_restricted_access_lets_the_others_go(tmp_path):
    """By a call of the kernel that no library sees. The access that it made counts; what it does not make breaks the order."""
    program = small_program(tmp_path, "dies", """
static void *a(void *unused) { x = 10; syscall(SYS_exit, 0); return unused; }
static void *b(void *unused) { y = 1; z = x; return unused; }
""")
    head = "variables x y z\nothers free\nthread 1 main.1\nthread 2 main.2\n"
    done = rtxg("run", order_file(tmp_path, head + "{(1,[0:1]),\n(2,[1:1])}\n"), "--", program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "21\n", "")
    done = rtxg("run", order_file(tmp_path, head + "{(1,[0:1]),\n(2,[4:1])}\n"), "--", program)
    assert (done.returncode, done.stdout) == (125, "21\n")
    said = "thread 1 (main.1) ended after 1 accesses; access 1 of thread 2 (main.2) (line 6) needs 4 of them"
    assert f"given up: {said}" in done.stderr


def test_a_thread_that_is_cancelled_inside_a_restricted_access_lets_the_others_go(tmp_path):
    program = small_program(tmp_path, "cancelled", """
static void *a(void *unused) { x = 10; for (;;) pause(); return unused; }
static void *b(void *unused) { y = 1; z = x; return unused; }
""", "usleep(5000); pthread_cancel(threads[0]);")
    path = order_file(tmp_path, "variables x y z\nothers free\nthread 1 main.1\nthread 2 main.2\n{(2,[4:1])}\n")
    done = rtxg("run", path, "--", program)
    assert done.returncode == 125
    assert "given up: thread 1 (main.1) ended after 1 accesses" in done.stderr


def test_a_program_that_dies_half_way_ends_the_run_with_its_signal(tmp_path):
    """One thread waits for its turn, for ever by the order; the other one kills the process."""
    program = small_program(tmp_path, "killed", """
static void *a(void *unused) { x = 1; y = 1; raise(SIGKILL); return unused; }
static void *b(void *unused) { z = 1; return unused; }
""")
    path = order_file(tmp_path, "variables x y z\nothers free\nthread 1 main.1\nthread 2 main.2\n{(2,[9:0])}\n")
    done = rtxg("run", path, "--", program)
    assert done.returncode == 128 + 9
    assert "ended by signal 9" in done.stderr


def test_threads_beyond_what_an_order_holds_are_said(tmp_path):
    (tmp_path / "many.c").write_text("""
#include <pthread.h>
static int x;
static void *one(void *unused) { x = 1; return unused; }
int main(void)
{
    for (int i = 0; i < 260; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, one, NULL);
        pthread_join(thread, NULL);
    }
    return 0;
}
""")
    program = build("gcc", tmp_path / "many.c", tmp_path / "many")
    order = tmp_path / "many.order"
    done = rtxg("record", "-v", "x", "-o", order, "--", program)
    assert done.returncode == 0
    assert "more than 256 threads made accesses; those of the others are free" in done.stderr
    assert rtxg("check", order).returncode == 0
    head = "".join(f"thread {t + 1} t{t}\n" for t in range(257))
    done = rtxg("check", order_file(tmp_path, head + "{}\n"))
    assert done.stderr.endswith("some.order:257: the thread's number is too great; 0 to 256 are accepted\n"), done.stderr


@pytest.mark.skipif(os.path.exists("/dev/rtxg"), reason="rtxg.ko is loaded here")
@pytest.mark.parametrize("number", range(1, 7))
def test_a_prototype_without_the_module_is_refused_before_the_program_begins(tmp_path, number):
    program = small_program(tmp_path, "begun", """
static void *a(void *unused) { x = 1; return unused; }
static void *b(void *unused) { fclose(fopen("ran", "w")); return unused; }
""")
    path = order_file(tmp_path, "variables x\nothers free\nthread 1 main.1\nthread 2 main.2\n{(2,[1:0])}\n")
    done = rtxg("run", "--host", f"proto-{number}", path, "--", program, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr == (f"rtxg order run: proto-{number} needs rtxg.ko, which is not loaded: `modprobe rtxg` loads it, "
                           "`rtxg doctor` says what is missing, and the hosts futex, shared and opt work without it\n")
    assert not (tmp_path / "ran").exists()


def test_room_that_ends_is_said(bank, tmp_path):
    done = rtxg("record", "-v", "balance", "--accesses", "7", "-o", tmp_path / "short.order", "--", bank)
    assert done.returncode == 0
    assert "the program made 21 accesses, the record holds the first 7" in done.stderr
    assert "others last\n" in (tmp_path / "short.order").read_text()
    again = rtxg("run", tmp_path / "short.order", "--", bank)
    assert (again.returncode, again.stderr) == (0, "")
