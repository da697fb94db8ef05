# SPDX-License-Identifier: MIT
"""Every API: 30 % for 30 %, whatever a program speaks."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from harness import Setup, progress, work_in
from product import Product, Programs, daemon_and_programs

LIBRARIES = ("/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib")


@dataclass
class Speaker:
    """A program that speaks one API (under MPS: two), held still while others are measured."""

    name: str
    pids: list[int]
    outputs: list[Path]
    rates: dict[str, float] = field(default_factory=dict)
    why_not: str = ""

    def let(self, run: bool) -> None:
        """Goes on, or is held still: its work on the GPU ends within some milliseconds."""
        for pid in self.pids:
            try:
                os.kill(pid, signal.SIGCONT if run else signal.SIGSTOP)
            except ProcessLookupError:
                self.why_not = "it has ended"

    def rate(self, begin: int, end: int) -> float:
        """Its work a second."""
        tracks = [[progress(o) for o in self.outputs]]
        return float(work_in(tracks, begin, end).sum() / (end - begin) * 1e9)


def opencl_vendors(setup: Setup) -> dict[str, str]:
    """Where the OpenCL loader finds NVIDIA's driver, if the machine does not say so itself."""
    if list(Path("/etc/OpenCL/vendors").glob("nvidia*.icd")):
        return {}
    for place in LIBRARIES:
        if (Path(place) / "libnvidia-opencl.so.1").exists():
            vendors = setup.work / "vendors"
            vendors.mkdir(exist_ok=True)
            icd = vendors / "nvidia.icd"
            icd.write_text(f"{place}/libnvidia-opencl.so.1\n", encoding="ascii")
            return {"OCL_ICD_VENDORS": str(vendors)}
    return {}


def settings(setup: Setup) -> dict[str, dict[str, str]]:
    """The environment that each API needs where its loader is not set up."""
    share = Path("/usr/local/nvidia/share")
    vulkan, egl = (
        share / "vulkan/icd.d/nvidia_icd.json",
        share / "glvnd/egl_vendor.d/10_nvidia.json",
    )
    return {
        "opencl": opencl_vendors(setup),
        "vulkan": {"VK_DRIVER_FILES": str(vulkan)} if vulkan.exists() else {},
        "egl": {"__EGL_VENDOR_LIBRARY_FILENAMES": str(egl)} if egl.exists() else {},
    }


def begin(setup: Setup, programs: Programs, product: Product, api: str, seconds: float) -> Speaker:
    """Starts the program of an API and waits until it works; `why_not` says what went wrong."""
    out, said = setup.work / f"api-{api}.txt", setup.work / f"api-{api}-said.txt"
    if api == "cuda":
        command = programs.load("hog", setup.turns_of(1000), seconds, out)
    else:
        program = setup.bin / f"api_{api}"
        if not program.exists():
            return Speaker(api, [], [], why_not=f"{program.name} was not built here")
        command = [str(program), str(seconds), str(out)]
    more = settings(setup).get(api, {})
    p = programs.begin(command, None, product, api, said=said, **more)
    speaker = Speaker(api, [p.pid], [out])
    wait_for_work(speaker, p, said)
    return speaker


def wait_for_work(speaker: Speaker, p: subprocess.Popen[bytes], said: Path) -> None:
    """Until each of its outputs has some lines."""
    end = time.monotonic() + 15
    while time.monotonic() < end:
        if p.poll() is not None:
            break
        if all(o.exists() and o.read_bytes().count(b"\n") > 4 for o in speaker.outputs):
            return
        time.sleep(0.02)
    words = said.read_text(errors="replace").strip()[-200:] if said.exists() else ""
    speaker.why_not = f"it does not work here (status {p.poll()}): {words}"
    if p.poll() is None:
        p.kill()
    speaker.pids = []


@contextmanager
def mps(setup: Setup, programs: Programs, product: Product, seconds: float) -> Iterator[Speaker]:
    """An MPS server and two clients of it: one context to the GPU, one tenant to rtxg."""
    control = shutil.which("nvidia-cuda-mps-control")
    if not control:
        yield Speaker("mps", [], [], why_not="nvidia-cuda-mps-control is not installed")
        return
    env = {
        k: str(setup.work / f"mps-{k[9:12]}")
        for k in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
    }
    for place in env.values():
        Path(place).mkdir(exist_ok=True)
    said = setup.work / "api-mps-said.txt"
    daemon = programs.begin([control, "-f"], None, product, "mps", said=said, **env)
    try:
        time.sleep(0.5)
        outs = [setup.work / f"api-mps-{i}.txt" for i in range(2)]
        clients = [
            programs.begin(
                programs.load("hog", setup.turns_of(1000), seconds, out),
                None,
                product,
                "mps",
                said=said,
                **env,
            )
            for out in outs
        ]
        speaker = Speaker("mps", [c.pid for c in clients], outs)
        wait_for_work(speaker, clients[-1], said)
        yield speaker
        speaker.let(True)  # a client that is killed faults the server: it ends by itself
        for c in clients:
            try:
                c.wait(seconds)
            except subprocess.TimeoutExpired:
                c.kill()
    finally:
        subprocess.run(
            [control], input=b"quit -t 2\n", env={**os.environ, **env}, check=False, timeout=20
        )
        try:
            daemon.wait(5)
        except subprocess.TimeoutExpired:
            daemon.kill()


def measure(
    speaker: Speaker, rival: Speaker | None, what: str, settle: float, length: float
) -> None:
    """Its rate alone or beside the rival; both are held still afterwards."""
    speaker.let(True)
    if rival:
        rival.let(True)
    time.sleep(settle)
    start = time.monotonic_ns()
    time.sleep(length)
    end = time.monotonic_ns() - 30_000_000
    speaker.rates[what] = speaker.rate(start, end)
    if rival:
        rival.rates[f"{what} {speaker.name}"] = rival.rate(start, end)
        rival.let(False)
    speaker.let(False)
    time.sleep(0.1)


def share(speaker: Speaker, rival: Speaker, what: str) -> float:
    """Its part of the work that was done, percent: each program counted by what it does alone."""
    mine = speaker.rates[what] / speaker.rates["alone"]
    its = rival.rates[f"{what} {speaker.name}"] / rival.rates["alone"]
    return 100 * mine / (mine + its)


def case_apis(setup: Setup) -> None:
    """30 % for 30 %: CUDA, OpenCL, Vulkan, OpenGL over EGL, and MPS as one tenant."""
    settle, length = 0.8, setup.seconds(2, 5)
    life = setup.seconds(60, 150)
    speakers: list[Speaker] = []
    listed: dict[str, object] = {}
    with daemon_and_programs(setup) as (product, programs):
        product.vgpu("rival", min="70%")
        for api in ("cuda", "opencl", "vulkan", "egl", "mps"):
            product.vgpu(api)  # its 30 % come when it is measured, and go with it
            if api != "mps":
                speaker = begin(setup, programs, product, api, life)
                speakers.append(speaker)
                speaker.let(False)
        out = setup.work / "api-rival.txt"
        hog = programs.begin(
            programs.load("hog", setup.turns_of(1000), life, out), None, product, "rival"
        )
        rival = Speaker("rival", [hog.pid], [out])
        wait_for_work(rival, hog, setup.work / "none")
        measure(rival, None, "alone", 0.3, length / 2)

        def both(speaker: Speaker) -> None:
            if speaker.why_not:
                return
            product.vgpu(speaker.name, min="30%")
            measure(speaker, None, "alone", 0.3, length / 2)
            measure(speaker, rival, "beside", settle, length)
            tasks = product.tasks()
            listed[speaker.name] = [
                {k: t.get(k) for k in ("comm", "vgpu", "managed", "mps", "channels", "remedy")}
                for t in tasks.values()
                if t.get("vgpu") == speaker.name or t["pid"] in speaker.pids
            ]
            product.vgpu(speaker.name, min="0%")

        for speaker in speakers:
            both(speaker)
        with mps(setup, programs, product, setup.seconds(7, 14)) as together:
            speakers.append(together)
            both(together)
        product.stop()
        for speaker in speakers:
            if not speaker.why_not and speaker.name != "mps":
                measure(speaker, rival, "stock", 0.3, length / 2)
    for speaker in speakers:
        name = f"{speaker.name}: 30 % beside a CUDA program with 70 %"
        if speaker.why_not or "beside" not in speaker.rates:
            setup.record(
                name, "% of the work", None, None, "30 +- 1.5", None, skipped=speaker.why_not
            )
            continue
        shares = {w: share(speaker, rival, w) for w in ("beside", "stock") if w in speaker.rates}
        got = shares["beside"]
        setup.record(
            name,
            "% of the work",
            shares.get("stock"),
            got,
            "30 +- 1.5",
            abs(got - 30) <= 1.5,
            listed=listed.get(speaker.name),
            of_its_speed_alone=100 * speaker.rates["beside"] / speaker.rates["alone"],
            rates=speaker.rates,
            rival={k: v for k, v in rival.rates.items() if k == "alone" or speaker.name in k},
        )
