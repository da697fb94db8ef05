# SPDX-License-Identifier: MIT
"""`rtxg metrics`: what Prometheus reads, by lines, by a file and by HTTP; what it tells and what it does not tell."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from conftest import BUILD, PATIENCE_S, ROOT, Daemon, Gpu, wait_for

LINE = re.compile(r'^([a-z_]+)(?:\{((?:[A-Za-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (-?[0-9.]+)$')
LABEL = re.compile(r'([A-Za-z_]+)="((?:[^"\\]|\\.)*)"')
Samples = dict[str, list[tuple[dict[str, str], float]]]


def parse(text: str) -> Samples:
    """All samples by name. Each line has the form that the format asks for; families are whole, with their type before them."""
    samples: Samples = {}
    types: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    last = ""
    for line in text.removesuffix("# EOF\n").splitlines():
        if line.startswith("# "):
            _, what, name, rest = line.split(" ", 3)
            if what == "TYPE":
                assert name not in types, f"{name} has two types"
                types[name] = rest
                last = name
            continue
        found = LINE.match(line)
        assert found, line
        name, labels, value = found.group(1), found.group(2) or "", float(found.group(3))
        assert name.startswith(last), f"{name} stands in the family {last}"
        assert (name, labels) not in seen, f"{line} twice"
        seen.add((name, labels))
        samples.setdefault(name, []).append((dict(LABEL.findall(labels)), value))
    return samples


def one(samples: Samples, name: str, **labels: str) -> float:
    """The value of the only sample with these labels."""
    found = [v for have, v in samples.get(name, []) if labels.items() <= have.items()]
    assert len(found) == 1, (name, labels, samples.get(name))
    return found[0]


def run(daemon: Daemon, *words: str | Path, **kw: object) -> subprocess.CompletedProcess[str]:
    """rtxg metrics."""
    return subprocess.run([BUILD / "cli/rtxg", "metrics", *words], env=daemon.environment, capture_output=True, text=True, timeout=60,
                          **kw)  # type: ignore[call-overload,no-any-return]


def metrics(daemon: Daemon, *words: str | Path) -> Samples:
    """Its samples."""
    done = run(daemon, *words)
    assert done.returncode == 0, done.stderr
    return parse(done.stdout)


def test_entitled_and_received_seconds_of_the_gate(running: Daemon) -> None:
    """A vGPU that wants the engine all the time is entitled to its share of that time; what it received is what the programs were charged."""
    assert running.ask("vgpu-create", vgpu="camera", min_ppm=400000, max_ppm=600000)["ok"]
    program = running.device("-v", "camera", "-u", "1000", "-s", "-d", "600")
    wait_for("a second of wanting", lambda: any(v > 1 for have, v in metrics(running).get("rtxg_vgpu_wanted_seconds_total", [])
                                                if have["vgpu"] == "camera"))
    s = metrics(running)
    of = {"gpu": "0", "vgpu": "camera", "engine": "compute"}
    wanted, entitled, received = (one(s, f"rtxg_vgpu_{what}_seconds_total", **of) for what in ("wanted", "entitled", "received"))
    assert entitled == pytest.approx(0.4 * wanted, rel=0.01)
    assert received > 0
    assert (one(s, "rtxg_vgpu_share_reserved_ratio", **of), one(s, "rtxg_vgpu_share_limit_ratio", **of)) == (0.4, 0.6)
    assert one(s, "rtxg_vgpu_tasks", **of) == 1
    assert one(s, "rtxg_process_received_seconds_total", pid=str(program.pid), comm="device", vgpu="camera") <= received
    assert (one(s, "rtxg_up"), one(s, "rtxg_unmanaged_processes"), one(s, "rtxg_refused_processes")) == (1, 0, 0)
    assert one(s, "rtxg_build_info", host="daemon", scope="user") == 1
    # A share that is changed counts from then on.
    assert running.ask("vgpu-set", vgpu="camera", min_ppm=0)["ok"]
    before = one(metrics(running), "rtxg_vgpu_entitled_seconds_total", **of)
    running.ask("hello")
    wait_for("more was wanted", lambda: one(metrics(running), "rtxg_vgpu_wanted_seconds_total", **of) > wanted + 0.5)
    assert one(metrics(running), "rtxg_vgpu_entitled_seconds_total", **of) <= before + 0.06  # at most one sample's


def test_labels_are_escaped_and_openmetrics_ends(running: Daemon) -> None:
    """A GPU's name may have quotes and backslashes; both forms have the same samples, and counters their suffix as each form wants it."""
    name = 'a"b\\c{d}=,'
    task = running.task(gpu=name)
    task.launch()
    task.complete()
    text, openmetrics = run(running).stdout, run(running, "--openmetrics").stdout
    found = [have for have, _ in parse(text)["rtxg_vgpu_received_seconds_total"]]
    assert 'a\\"b\\\\c{d}=,' in {have["gpu"] for have in found}
    assert openmetrics.endswith("\n# EOF\n") and "# EOF" not in text
    assert "# TYPE rtxg_vgpu_received_seconds counter\n" in openmetrics and "# TYPE rtxg_vgpu_received_seconds_total counter\n" in text
    assert "# TYPE rtxg_build info\n" in openmetrics and "# TYPE rtxg_build_info gauge\n" in text
    assert {k: len(v) for k, v in parse(text).items()} == {k: len(v) for k, v in parse(openmetrics).items()}


def test_without_a_host_the_only_metric_says_so(daemon: Daemon) -> None:
    """A scrape during a restart is no error of the scrape: rtxg_up is 0."""
    done = run(daemon)
    assert done.returncode == 1 and "no host of rtxg answers" in done.stderr
    assert parse(done.stdout) == {"rtxg_up": [({}, 0)]}


def answered(daemon: Daemon, reply: dict[str, object]) -> str:
    """The page that is made of a host's reply, whatever that is."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(daemon.socket))
        listener.listen()
        with subprocess.Popen(
            [BUILD / "cli/rtxg", "metrics"],
            env=daemon.environment,
            stdout=subprocess.PIPE,
            text=True,
        ) as child:
            connection, _ = listener.accept()
            connection.recv(65536)
            connection.send(json.dumps({"ok": True} | reply).encode())
            text = child.communicate(timeout=60)[0]
            connection.close()
    daemon.socket.unlink()
    assert child.returncode == 0
    return text


def test_a_guardian_that_watches_is_up(daemon: Daemon) -> None:
    """And failures that will not pass are a kind of their own."""
    lever = {"lever": "nvidia", "guarded": True, "failures": 5, "final": 2}
    s = parse(answered(daemon, {"levers": [lever]}))
    assert one(s, "rtxg_guardian_up") == 1
    assert one(s, "rtxg_lever_failures_total", kind="passing") == 3
    assert one(s, "rtxg_lever_failures_total", kind="final") == 2


def test_rows_that_are_none_do_no_harm(daemon: Daemon) -> None:
    """Of a host that is newer, or broken: what is missing has no line, and no cell begins one."""
    columns = ["gpu", "vgpu", "engine", "received_ns", "later", "more"]
    rows = ["0/a/compute/1000000001/x/-", "0/b", "", 7, None, ["0"]]
    rows += ["0/c/compute/1\n2/x/99", "0/d/compute/-5/x/0", "/".join("0" * 40)]
    reply = {"gpus": [{"gpu": "0", "lever": "gate"}, 3], "vgpu_columns": columns, "vgpus": rows}
    reply |= {"more": [{"latency_ns": 5 * 10**8}], "process_columns": [], "processes": ["1/2"]}
    text = answered(daemon, reply)
    s = parse(text)
    assert one(s, "rtxg_vgpu_received_seconds_total", vgpu="a") == 1.000000001
    assert one(s, "rtxg_vgpu_received_seconds_total", vgpu="c") == 0
    assert one(s, "rtxg_vgpu_latency_limit_seconds", vgpu="d") == 0.5
    assert all(line.startswith(("#", "rtxg_")) for line in text.splitlines())
    assert "b" not in {have.get("vgpu") for have, _ in s["rtxg_vgpu_received_seconds_total"]}


def test_the_text_file_is_replaced_in_one_step(running: Daemon) -> None:
    """Nothing but the file is left in the folder, readable by the node exporter's user; a folder that is not there is named."""
    folder = running.folder / "textfile"
    folder.mkdir()
    for _ in range(2):
        assert run(running, "--textfile", folder / "rtxg.prom").returncode == 0
        assert [p.name for p in folder.iterdir()] == ["rtxg.prom"]
    assert (folder / "rtxg.prom").stat().st_mode & 0o777 == 0o644
    assert one(parse((folder / "rtxg.prom").read_text()), "rtxg_up") == 1
    before = (folder / "rtxg.prom").stat().st_ino
    assert run(running, "--textfile", folder / "rtxg.prom").returncode == 0
    assert (folder / "rtxg.prom").stat().st_ino != before
    done = run(running, "--textfile", folder / "none/rtxg.prom")
    assert done.returncode == 1 and "none/rtxg.prom cannot be written: No such file" in done.stderr


def test_a_user_sees_no_command_line_of_others(daemon: Daemon) -> None:
    """The program's name as ps shows it to everybody, and no argument, path or user of it."""
    if os.geteuid() != 0:
        pytest.skip("another user is needed")
    daemon.start(mode="--system")
    for folder in (daemon.folder, *daemon.folder.parents):
        if folder not in (Path("/"), Path("/tmp")) and folder.stat().st_uid == 0:
            folder.chmod(folder.stat().st_mode | 0o011)
    daemon.socket.chmod(0o666)
    daemon.device("-g", "0", "-q", "-l", "/tmp/rtxg-secret-argument", "-d", "1")
    wait_for("it is there", lambda: daemon.tasks())
    account = pwd.getpwnam("nobody")
    exe = daemon.folder / "rtxg"
    shutil.copy(BUILD / "cli/rtxg", exe)
    library = next(BUILD.glob("lib/librtxg.so.*"))
    for lib in (library, library.resolve()):
        shutil.copy(lib, daemon.folder / lib.name)
    done = subprocess.run([exe, "metrics"], env=daemon.environment | {"LD_LIBRARY_PATH": str(daemon.folder)}, user=account.pw_uid,
                          group=account.pw_gid, extra_groups=[], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert 'comm="device"' in done.stdout
    assert "secret" not in done.stdout and "conform" not in done.stdout and "root" not in done.stdout


# --- HTTP -----------------------------------------------------------------------------------------


class Service:
    """rtxg metrics at a socket of the test's, as the service manager starts it."""

    def __init__(self, daemon: Daemon, listener: socket.socket, form: str) -> None:
        self.listener = listener
        program = (
            "import os, sys\nfd = int(sys.argv[1])\nos.dup2(fd, 3, inheritable=True)\n"
            "os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()))\n"
            "os.execv(sys.argv[2], sys.argv[2:])\n"
        )
        words = ["python3", "-c", program, str(listener.fileno())]
        self.process = subprocess.Popen(
            [*words, BUILD / "cli/rtxg", "metrics", form],
            env=daemon.environment,
            pass_fds=[listener.fileno()],
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self.listener.close()


class Exporter(Service):
    """By HTTP."""

    def __init__(self, daemon: Daemon, listener: socket.socket | None = None) -> None:
        super().__init__(daemon, listener or socket.create_server(("127.0.0.1", 0)), "--http")
        self.port = self.listener.getsockname()[1]

    def ask(self, request: bytes) -> tuple[int, dict[str, str], str]:
        """Send bytes; status, headers and body of the answer."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S) as s:
            s.sendall(request)
            answer = b""
            while piece := s.recv(1 << 16):
                answer += piece
        head, _, body = answer.partition(b"\r\n\r\n")
        status, *headers = head.decode().split("\r\n")
        return int(status.split()[1]), dict(h.split(": ", 1) for h in headers), body.decode()


@pytest.fixture
def exporter(running: Daemon) -> Iterator[Exporter]:
    """An exporter."""
    with Exporter(running) as one:
        yield one


def test_http_answers_what_a_scrape_asks_for(exporter: Exporter) -> None:
    """The form that the client accepts, with the length; HEAD without a body."""
    status, headers, body = exporter.ask(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert len(body) == int(headers["Content-Length"]) and one(parse(body), "rtxg_up") == 1
    status, headers, body = exporter.ask(b"GET /metrics?x=1 HTTP/1.1\r\nAccept: application/openmetrics-text; version=1.0.0\r\n\r\n")
    assert status == 200 and headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0") and body.endswith("# EOF\n")
    status, headers, body = exporter.ask(b"HEAD / HTTP/1.0\r\n\r\n")
    assert status == 200 and int(headers["Content-Length"]) > 0 and not body


@pytest.mark.parametrize(("request_", "status"), [
    (b"GET /etc/passwd HTTP/1.1\r\n\r\n", 404), (b"GET /metrics/../x HTTP/1.1\r\n\r\n", 404), (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
    (b"\r\n\r\n", 400), (b"GET\r\n\r\n", 400), (b"G\0T /metrics HTTP/1.1\r\n\r\n", 400), (b"A" * 9000, 431),
    (b"GET /" + b"a" * 4000 + b" HTTP/1.1\r\n\r\n", 404), (b"\x16\x03\x01\x02\x00\n\n", 400)])
def test_http_refuses_other_requests_and_goes_on(exporter: Exporter, request_: bytes, status: int) -> None:
    """Each with its status; the next scrape is answered."""
    assert exporter.ask(request_)[0] == status
    assert exporter.ask(b"GET /metrics HTTP/1.1\r\n\r\n")[0] == 200


def test_http_does_not_wait_for_a_client_that_says_nothing(exporter: Exporter) -> None:
    """Its connection is ended, and others are answered; so is one that goes away in the middle."""
    with socket.create_connection(("127.0.0.1", exporter.port), timeout=PATIENCE_S) as silent:
        silent.sendall(b"GET /metrics")
        assert exporter.ask(b"GET /metrics HTTP/1.1\r\n\r\n")[0] == 200
        assert silent.recv(4096).startswith(b"HTTP/1.1 408 ")
    with socket.create_connection(("127.0.0.1", exporter.port), timeout=PATIENCE_S) as rude:
        rude.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
    assert exporter.ask(b"GET /metrics HTTP/1.1\r\n\r\n")[0] == 200


@pytest.mark.parametrize("count", [60, 300])
def test_http_answers_beside_clients_that_say_nothing(exporter: Exporter, count: int) -> None:
    """A scrape waits for none of them; of more than are kept the oldest make room."""
    here = ("127.0.0.1", exporter.port)

    def scraped_before_they_are_over() -> bool:
        with contextlib.ExitStack() as stack:
            silent = [
                stack.enter_context(socket.create_connection(here, timeout=PATIENCE_S))
                for _ in range(count)
            ]
            for one_ in silent[::2]:
                with contextlib.suppress(OSError):  # it has made room
                    one_.sendall(b"GET /metrics")
            assert exporter.ask(b"GET /metrics HTTP/1.1\r\n\r\n")[0] == 200
            return not select.select([silent[-1]], [], [], 0)[0]

    # On a machine that starves the test, their second may be over before the scrape begins.
    wait_for("a scrape before the silent are over", scraped_before_they_are_over)


def test_http_says_so_while_the_host_hangs(exporter: Exporter, running: Daemon) -> None:
    """Scrapes that come at one time do not wait for the host one after the other."""
    assert running.process
    here, scrape = ("127.0.0.1", exporter.port), b"GET /metrics HTTP/1.1\r\n\r\n"
    running.process.send_signal(signal.SIGSTOP)
    try:
        with contextlib.ExitStack() as stack:
            scrapes = [
                stack.enter_context(socket.create_connection(here, timeout=PATIENCE_S))
                for _ in range(8)
            ]
            end = time.monotonic() + PATIENCE_S
            for one_ in scrapes:
                one_.sendall(scrape)
            for one_ in scrapes:
                one_.settimeout(max(end - time.monotonic(), 0.01))
                answer = b"".join(iter(lambda one_=one_: one_.recv(1 << 16), b"")).decode()
                assert answer.startswith("HTTP/1.1 200 ")
                assert parse(answer.partition("\r\n\r\n")[2]) == {"rtxg_up": [({}, 0)]}
    finally:
        running.process.send_signal(signal.SIGCONT)
    wait_for("it is up", lambda: one(parse(exporter.ask(scrape)[2]), "rtxg_up"))


def test_http_goes_on_while_the_host_is_away(exporter: Exporter, running: Daemon) -> None:
    """A scrape during a restart says rtxg_up 0, and the next one has everything again."""
    running.kill()
    assert parse(exporter.ask(b"GET /metrics HTTP/1.1\r\n\r\n")[2]) == {"rtxg_up": [({}, 0)]}
    running.start()
    assert one(parse(exporter.ask(b"GET /metrics HTTP/1.1\r\n\r\n")[2]), "rtxg_up") == 1


def test_http_ends_between_two_answers(daemon: Daemon) -> None:
    """SIGTERM while a scrape waits for the host: its whole answer comes, then the exporter ends, and
    a client that has connected since is answered by the next exporter.
    """
    daemon.socket.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as host:
        host.bind(str(daemon.socket))
        host.listen()
        exporter = Exporter(daemon)
        here = ("127.0.0.1", exporter.port)
        try:
            with socket.create_connection(here) as scrape, socket.socket() as late:
                scrape.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
                asked, _ = host.accept()
                exporter.process.terminate()
                late.connect(here)
                asked.close()
                host.close()
                answer = b"".join(iter(lambda: scrape.recv(1 << 16), b""))
                assert answer.startswith(b"HTTP/1.1 200 ") and parse(
                    answer.partition(b"\r\n\r\n")[2].decode()
                ) == {"rtxg_up": [({}, 0)]}
                scrape.close()
                assert exporter.process.wait() == 0
                late.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
                exporter = Exporter(daemon, exporter.listener)
                assert late.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        finally:
            exporter.process.kill()
            exporter.process.wait()
            exporter.listener.close()


def test_http_without_a_socket_says_how_to_start_it(daemon: Daemon) -> None:
    """An error with the unit, and one for options that do not go together."""
    done = run(daemon, "--http")
    assert done.returncode == 1 and "rtxg-metrics.socket" in done.stderr
    assert run(daemon, "--http", "--openmetrics").returncode == 2


# --- io.systemd.Metrics ---------------------------------------------------------------------------


class Reporter(Service):
    """By varlink."""

    def __init__(self, daemon: Daemon) -> None:
        self.path = str(daemon.folder / "io.rtxg")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.path)
        listener.listen()
        super().__init__(daemon, listener, "--varlink")

    def raw(self, data: bytes) -> list[Any]:
        """The messages that come back until the connection ends."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(PATIENCE_S)
            s.connect(self.path)
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            answer = b""
            while piece := s.recv(1 << 16):
                answer += piece
        assert not answer or answer.endswith(b"\0")
        return [json.loads(m) for m in answer.split(b"\0")[:-1]]

    def call(self, method: str, more: bool = True, **parameters: Any) -> list[Any]:
        """The replies to one call."""
        return self.raw(
            json.dumps({"method": method, "parameters": parameters, "more": more}).encode() + b"\0"
        )


@pytest.fixture
def reporter(running: Daemon) -> Iterator[Reporter]:
    """A reporter."""
    with Reporter(running) as one:
        yield one


def test_varlink_lists_and_describes_what_prometheus_gets(
    reporter: Reporter, running: Daemon
) -> None:
    """Each metric of the page once, with its name, object, fields and number; each family."""
    name = 'a"\\,}b'
    running.device("-g", name, "-q", "-d", "600")
    wait_for("it is there", lambda: running.tasks())
    replies = reporter.call("io.systemd.Metrics.List")
    assert [r.get("continues", False) for r in replies] == [True] * (len(replies) - 1) + [False]
    found = [r["parameters"] for r in replies]
    page = metrics(running)
    assert len(found) == sum(len(lines) for lines in page.values())
    assert {"name": "io.rtxg.Up", "value": 1} in found
    (vgpu,) = [m for m in found if m["name"] == "io.rtxg.VgpuTasks" and m["fields"]["gpu"] == name]
    assert vgpu["object"] == "default" and vgpu["value"] == 1
    assert vgpu["fields"] == {"gpu": name, "engine": "compute"}
    (process,) = [m for m in found if m["name"] == "io.rtxg.ProcessReceivedSecondsTotal"]
    assert process["object"] == str(running.children[0].pid) and process["value"] >= 0.0
    assert all(isinstance(v, str) for m in found for v in m.get("fields", {}).values())
    assert len({json.dumps([m["name"], m.get("object"), m.get("fields")]) for m in found}) == len(
        found
    )
    described = reporter.call("io.systemd.Metrics.Describe")
    families = {r["parameters"]["name"]: r["parameters"] for r in described}
    assert {m["name"] for m in found} == set(families)
    assert families["io.rtxg.VgpuReceivedSecondsTotal"]["type"] == "counter"
    assert families["io.rtxg.VgpuTasks"] == {
        "name": "io.rtxg.VgpuTasks", "description": "Programs in the vGPU.", "type": "gauge",
    }  # fmt: skip


def test_varlink_describes_itself_and_refuses_other_calls(reporter: Reporter) -> None:
    """As org.varlink.service says; several calls on one connection; garbage ends it."""
    (info,) = reporter.call("org.varlink.service.GetInfo", more=False)
    assert info["parameters"]["interfaces"] == ["org.varlink.service", "io.systemd.Metrics"]
    get = "org.varlink.service.GetInterfaceDescription"
    (text,) = reporter.call(get, interface="io.systemd.Metrics")
    assert "method List()" in text["parameters"]["description"]
    for method, more, parameters, error in (
        (get, True, {"interface": "x.y"}, "org.varlink.service.InterfaceNotFound"),
        (get, True, {}, "org.varlink.service.InvalidParameter"),
        ("io.systemd.Metrics.List", False, {}, "org.varlink.service.ExpectedMore"),
        ("io.systemd.Metrics.Set", True, {}, "org.varlink.service.MethodNotFound"),
    ):
        (refused,) = reporter.call(method, more, **parameters)
        assert refused["error"] == error and isinstance(refused["parameters"], dict)
    one_call = b'{"method":"org.varlink.service.GetInfo"}\0'
    assert len(reporter.raw(one_call * 3)) == 3
    wrong = (b"\0", b"{}\0", b"[]\0", b"{\0", b'{"method": 1}\0', b"x" * 60000, b"\xff\0", b"")
    for garbage in wrong:
        assert reporter.raw(garbage) == []
    assert len(reporter.raw(one_call + b"nonsense\0" + one_call)) == 1
    assert len(reporter.raw(one_call)) == 1


def test_varlink_answers_beside_clients_that_say_nothing(reporter: Reporter) -> None:
    """And beside one whose request is never whole."""
    ask = b'{"method": "org.varlink.service.GetInfo"}\0'

    def told_before_they_are_over() -> bool:
        with contextlib.ExitStack() as stack:
            silent = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(60)]
            for one_ in silent:
                one_.connect(reporter.path)
                one_.send(ask[:-1])
            assert len(reporter.raw(ask)) == 1
            return not select.select([silent[-1]], [], [], 0)[0]

    wait_for("an answer before the silent are over", told_before_they_are_over)


def test_varlink_says_that_there_is_no_host(reporter: Reporter, running: Daemon) -> None:
    """During a restart the only metric is that, and then all are there again."""
    running.kill()
    (only,) = reporter.call("io.systemd.Metrics.List")
    assert only == {"parameters": {"name": "io.rtxg.Up", "value": 0}}
    running.start()
    assert len(reporter.call("io.systemd.Metrics.List")) > 5


# --- the NVIDIA lever -----------------------------------------------------------------------------


def test_the_lever_its_programs_and_their_memory(gpu: Gpu) -> None:
    """Labels as dcgm-exporter spells them, entitled and received seconds, UNMANAGED programs, actions, the guardian, waits against the bound."""
    gpu.start()
    assert gpu.daemon.ask("vgpu-create", vgpu="perception", min_ppm=600000, gpu="nvidia0")["ok"]
    first, second, alien = gpu.process(), gpu.process(), gpu.process("alien")
    wait_for("all are seen", lambda: gpu.of(first) and gpu.of(second) and gpu.of(alien))
    assert gpu.daemon.ask("task-set", pid=first, vgpu="perception")["ok"]
    wait_for("a second of work", lambda: gpu.of(first)[0]["engines"][0]["busy_ns"] > 10**9)
    pci = next(g["pci"] for g in gpu.daemon.ask("stats")["gpus"] if g["gpu"] == "nvidia0")
    proc = gpu.daemon.folder / "proc"
    (proc / f"driver/nvidia/gpus/{pci}").mkdir(parents=True)
    (proc / f"driver/nvidia/gpus/{pci}/information").write_text("Model: \t\t X\nGPU UUID: \t GPU-12345678-abcd\n")
    (proc / str(first)).mkdir()
    uid, container = "0f6bd3f7_8d3b_4a55_9a0c_3f6e2a4b1c2d", "ab" * 32
    (proc / f"{first}/cgroup").write_text(
        f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice/cri-containerd-{container}.scope\n")
    s = metrics(gpu.daemon, "--proc", proc)
    of = {"gpu": "0", "device": "nvidia0", "UUID": "GPU-12345678-abcd", "pci_bus_id": f"0000{pci}"}
    mine = of | {"vgpu": "perception", "engine": "compute"}
    assert one(s, "rtxg_gpu_governed", **of) == 1
    wanted = one(s, "rtxg_vgpu_wanted_seconds_total", **mine)
    assert one(s, "rtxg_vgpu_entitled_seconds_total", **mine) == pytest.approx(0.6 * wanted, rel=0.05)
    assert one(s, "rtxg_vgpu_received_seconds_total", **mine) > 0
    assert one(s, "rtxg_vgpu_memory_bytes", **mine) == first * 2**20 + 4096
    assert one(s, "rtxg_process_memory_bytes", pid=str(first), pod_uid=uid.replace("_", "-"), container_id=container) == first * 2**20 + 4096
    assert one(s, "rtxg_unmanaged_processes") == 1
    assert one(s, "rtxg_process_managed", pid=str(alien)) == 0 and one(s, "rtxg_process_managed", pid=str(second)) == 1
    assert one(s, "rtxg_lever_actions_total", action="suspend") > 0 and one(s, "rtxg_lever_action_seconds_total", action="suspend") >= 0
    assert one(s, "rtxg_guardian_up") == 0  # the stand has none
    assert one(s, "rtxg_lever_failures_total", kind="final") >= 0
    assert all(have["vgpu"] != "perception" or have["device"] == "nvidia0" for have, _ in s["rtxg_vgpu_wanted_seconds_total"])
    assert "rtxg_vgpu_wait_seconds_bucket" not in s  # of vGPUs with a bound only
    assert gpu.daemon.ask("vgpu-create", vgpu="urgent", min_ppm=100000, gpu="nvidia0", latency_ns=10**9)["ok"]
    s = metrics(gpu.daemon, "--proc", proc)
    buckets = [(have["le"], v) for have, v in s["rtxg_vgpu_wait_seconds_bucket"] if have["vgpu"] == "urgent"]
    assert [le for le, _ in buckets] == ["0.0001", "0.00025", "0.0005", "0.001", "0.0025", "0.005", "0.01", "0.025", "0.05", "0.1", "1.0", "+Inf"]
    assert buckets[-1][1] == one(s, "rtxg_vgpu_wait_seconds_count", vgpu="urgent")
    assert one(s, "rtxg_vgpu_latency_limit_seconds", vgpu="urgent") == 1


# --- Prometheus itself ------------------------------------------------------------------------------

FOLDER = ROOT / "metrics"


def program(name: str) -> str:
    """A program of Debian's package prometheus."""
    found = shutil.which(name)
    if not found:
        pytest.skip(f"{name} is not installed (apt-get install prometheus)")
    return found


def test_the_dashboard_and_the_rules_name_metrics_that_exist() -> None:
    """Each name in an expression is one that the exporter has."""
    source = (ROOT / "cli/metrics_write.c").read_text()
    families = {m.group(1): m.group(2) for m in re.finditer(r'"(rtxg_[a-z_]+)",\s*(COUNTER|GAUGE|INFO|HISTOGRAM)', source)}
    names = {n + {"COUNTER": "_total", "INFO": "_info"}.get(t, "") for n, t in families.items()}
    names |= {n + s for n, t in families.items() if t == "HISTOGRAM" for s in ("_bucket", "_count", "_sum")}
    dashboard = json.loads((FOLDER / "grafana-rtxg.json").read_text())
    expressions = [t["expr"] for p in dashboard["panels"] for t in p.get("targets", [])]
    rules = (FOLDER / "rtxg.rules.yml").read_text()
    used = set(re.findall(r"\brtxg_[a-z_]+", " ".join(expressions) + rules))
    assert len(expressions) >= 8 and used <= names, used - names
    assert len({p["id"] for p in dashboard["panels"]}) == len(dashboard["panels"])


@pytest.mark.slow
def test_promtool_accepts_the_metrics_the_rules_and_their_test(running: Daemon) -> None:
    """promtool of Debian's package: the lines, the rules, and what the alerts say of series that are written by hand."""
    promtool = program("promtool")
    running.device("-v", "default", "-u", "1000", "-s", "-d", "600")
    wait_for("it is there", lambda: running.tasks())
    text = run(running).stdout
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    for words in (["check", "rules", "rtxg.rules.yml"], ["test", "rules", "rtxg.rules.test.yml"]):
        done = subprocess.run([promtool, *words], cwd=FOLDER, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_prometheus_scrapes_the_exporter_and_loads_the_rules(exporter: Exporter, running: Daemon, tmp_path: Path) -> None:
    """Debian's Prometheus: the target is up, a sample is there, the rules are loaded."""
    prometheus = program("prometheus")
    running.device("-v", "default", "-u", "1000", "-s", "-d", "600")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "prometheus.yml").write_text(
        f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{FOLDER}/rtxg.rules.yml]\n"
        f"scrape_configs:\n- job_name: rtxg\n  static_configs: [{{targets: ['127.0.0.1:{exporter.port}']}}]\n")
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen([prometheus, f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data",
                                   f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log, cwd=tmp_path)
    running.children.append(server)  # type: ignore[arg-type]

    def ask(path: str) -> object:
        from urllib.error import URLError
        from urllib.request import urlopen

        try:
            with urlopen(f"http://127.0.0.1:{port}/api/v1/{path}", timeout=PATIENCE_S) as reply:
                return json.load(reply)["data"]
        except (URLError, ConnectionError):
            return None

    def query(expression: str) -> list[dict[str, object]]:
        data = ask(f"query?query={expression}")
        return data["result"] if isinstance(data, dict) else []

    wait_for("the target is up", lambda: [r["value"][1] for r in query("rtxg_up")] == ["1"])  # type: ignore[index]
    wait_for("a counter grows", lambda: query("rtxg_vgpu_received_seconds_total>0"))
    groups = wait_for("the rules are loaded", lambda: (ask("rules") or {}).get("groups"))  # type: ignore[attr-defined]
    assert {rule["health"] for g in groups for rule in g["rules"]} <= {"ok", "unknown"}
