# SPDX-License-Identifier: MIT
"""`rtxg report`: one page of HTML that needs nothing else, and that a real browser draws."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import BUILD, Daemon, Gpu, wait_for

NAME = "a</script><script>alert(1)</script>"


def report(daemon: Daemon, path: Path, *words: str) -> str:
    """The page."""
    done = subprocess.run([BUILD / "cli/rtxg", "report", "-d", "2s", "-o", path, *words], env=daemon.environment, capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 0, done.stderr
    return path.read_text()


def data_of(page: str) -> dict[str, object]:
    """What the page draws."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found
    return dict(json.loads(found.group(1)))


def test_the_page_needs_nothing_else(running: Daemon, tmp_path: Path) -> None:
    """No address, no command line; a name that looks like markup stays a name; the slots are those of the time."""
    program = running.device("-g", NAME.replace("/", "_"), "-u", "1000", "-s", "-d", "600", "-l", str(tmp_path / "secret"))
    wait_for("it is there", lambda: running.tasks(pid=program.pid))
    page = report(running, tmp_path / "page.html")
    assert set(re.findall(r"https?://[^\"' ]+", page)) == {"http://www.w3.org/2000/svg"}
    assert "secret" not in page and page.count("<script") == 2
    data = data_of(page)
    assert {row.split("/")[0] for row in data["after"]["vgpus"]} >= {NAME.replace("/", "_")}  # type: ignore[index]
    times = data["history"]["times_ns"]  # type: ignore[index]
    assert 1.5e9 < times[-1] - times[0] < 10e9


def test_a_time_without_programs_and_a_file_that_cannot_be_written(running: Daemon, tmp_path: Path) -> None:
    """Both are said, and are failures."""
    for words, says in ((("-d", "1s"), "no program used a GPU"), (("-o", str(tmp_path / "none/page")), "cannot be written")):
        done = subprocess.run([BUILD / "cli/rtxg", "report", *words], env=running.environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and says in done.stderr


def waited(page: Path, vgpu: str, soon: int, late: int) -> None:
    """Writes into a page how often work waited: so many times little, and so many times long."""
    data: Any = data_of(page.read_text())
    after = data["after"]
    (row,) = (r.split("/") for r in after["vgpus"] if r.startswith(f"nvidia0/{vgpu}/"))
    waits = after["more"][int(row[-1])]["waits"]
    assert set(waits) == {"limits_ns", "counts", "sum_ns"}
    waits["counts"][2], waits["counts"][-1] = soon, late
    # What was broken before the page's time is no part of it.
    for when, ns in (("before", 7 * 10**9), ("after", 9 * 10**9)):
        (row,) = (r.split("/") for r in data[when]["vgpus"] if r.startswith(f"nvidia0/{vgpu}/"))
        data[when]["more"][int(row[-1])]["broken_ns"] = {"share": ns, "latency": 7 * 10**9}
    pattern = r'(<script type="application/json" id="data">).*?(</script>)'
    text = re.sub(pattern, lambda m: m[1] + json.dumps(data) + m[2], page.read_text(), flags=re.S)
    page.write_text(text)


@pytest.mark.slow
def test_a_browser_draws_it(gpu: Gpu, tmp_path: Path) -> None:
    """Debian's Chromium: shares, the timeline and no error."""
    chromium = shutil.which("chromium")
    if not chromium:
        pytest.skip("chromium is not installed (apt-get install chromium)")
    gpu.start()
    assert gpu.daemon.ask("vgpu-create", vgpu="perception", min_ppm=600000)["ok"]
    assert gpu.daemon.ask("vgpu-create", vgpu="chat", min_ppm=100000, latency_ns=10**9)["ok"]
    first, second = gpu.process(), gpu.process()
    wait_for("both are governed", lambda: gpu.of(first) and gpu.of(second))
    assert gpu.daemon.ask("task-set", pid=first, vgpu="perception")["ok"]
    page = tmp_path / "page.html"
    assert len(data_of(report(gpu.daemon, page))["timeline"]["events"]) > 100  # type: ignore[index]
    waited(page, "chat", 3, 12)
    browser = [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile", "--window-size=1200,1400"]
    done = subprocess.run([*browser, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=300)
    assert 'data-drawn="yes"' in done.stdout, done.stderr[-2000:]
    # The GPU that nothing used has no place; what the driver says of memory stands in the row.
    (mine,) = re.findall(r"perception</span></td>(.*?)</tr>", done.stdout)
    assert f"<td>{(first + 4096 / 2**20) / 1024:.1f} GiB</td>" in mine
    assert "share 2.0 s" in done.stdout and "latency 7.0 s" not in done.stdout
    assert "perception" in done.stdout and done.stdout.count("<path") >= 2 and "Who held nvidia0" in done.stdout
    assert "Waits of work of chat, which is to wait no longer than 1 s" in done.stdout
    subprocess.run([*browser, f"--screenshot={tmp_path}/page.png", page.as_uri()], capture_output=True, timeout=300)
    assert (tmp_path / "page.png").stat().st_size > 10000
