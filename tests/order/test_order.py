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


# status_line passes now and then under the order of a run that failed: a fault of the replay that is
# not found yet. The full tier shows it; the quick one does not fail by chance.
@pytest.mark.parametrize(
    "name",
    [pytest.param("status_line", marks=pytest.mark.slow), "early_thread", "access_log"],
)
def test_each_known_bug_strikes_under_one_order_and_never_under_another(tmp_path, name):
    """Every time, of twenty each: the order of a run that failed, and that of a run that passed."""
    program = build("gcc", EXAMPLES / f"{name}.c", tmp_path / name)
    for fate in ("fail", "pass"):
        for _ in range(20):
            done = rtxg("run", EXAMPLES / f"{name}-{fate}.order", "--", program, cwd=tmp_path)
            assert "given up" not in done.stderr
            assert (done.returncode == 0) == (fate == "pass"), (fate, done)


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
    "others busy\n{}": "1: others 'busy': free is accepted",
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


def test_a_record_of_a_crash_holds_what_came_before(tmp_path):
    (tmp_path / "crash.c").write_text("static int *p; int q; int main(void) { q = 1; q = 2; return *p; }\n")
    program = build(compilers()[0], tmp_path / "crash.c", tmp_path / "crash")
    done = rtxg("record", "-v", "q", "-o", tmp_path / "crash.order", "--", program)
    assert done.returncode == 128 + 11
    assert "thread 1 main accesses 2" in (tmp_path / "crash.order").read_text()


def test_room_that_ends_is_said(bank, tmp_path):
    done = rtxg("record", "-v", "balance", "--accesses", "7", "-o", tmp_path / "short.order", "--", bank)
    assert done.returncode == 0
    assert "the program made 21 accesses, the record holds the first 7" in done.stderr
    assert rtxg("check", tmp_path / "short.order").returncode == 0
