# SPDX-License-Identifier: MIT
"""Unmodified programs under a daemon that is killed: each is back in its vGPU, made at run time, and the shares are right again."""

from __future__ import annotations

import os
import subprocess

import pytest
from conftest import BUILD, Daemon, Gpu, wait_for, wait_for_share

NBODY = BUILD / "demo/nbody"
LAYER = BUILD / "layers/opencl/librtxg-opencl.so"


def test_programs_of_a_gpu_are_governed_again_as_before(gpu: Gpu) -> None:
    """70 and 30 % by vGPUs that no file has, and one program in a vGPU of `rtxg run`; killed three times, once right after a change."""
    gpu.start(RTXG_FAKE_ASSIGNED=str(gpu.daemon.folder / "assigned"))
    for name, share in (("a", 700000), ("b", 250000)):
        assert gpu.daemon.ask("vgpu-create", vgpu=name, min_ppm=share)["ok"]
    pids = {"a": gpu.process(), "b": gpu.process()}
    run = subprocess.Popen([BUILD / "cli/rtxg", "run", "--no-layer", "--max", "20%", "--", "sleep", "600"], env=gpu.daemon.environment)
    gpu.programs.append(run)
    own = f"run-{run.pid}"
    wait_for("its vGPU is made", lambda: gpu.daemon.ask("vgpu-list", vgpu=own)["ok"])
    gpu.process("idle", pid=run.pid)
    wait_for("all are governed", lambda: all(gpu.of(pid) for pid in (*pids.values(), run.pid)))
    # It is put there by a request of its own, after that for the vGPU.
    wait_for("it is in its vGPU", lambda: gpu.of(run.pid)[0]["vgpu"] == own)
    for name, pid in pids.items():
        assert gpu.daemon.ask("task-set", pid=pid, vgpu=name)["ok"]

    def busy() -> dict[str, int]:
        return {name: gpu.of(pid)[0]["engines"][0]["busy_ns"] for name, pid in pids.items()}

    for turn in range(3):
        if turn == 2:
            assert gpu.daemon.ask("vgpu-set", vgpu="b", min_ppm=300000)["ok"]
        gpu.daemon.kill()
        gpu.start()
        wait_for("all are governed again", lambda: all(gpu.of(pid) for pid in (*pids.values(), run.pid)))
        assert {name: gpu.of(pid)[0]["vgpu"] for name, pid in pids.items()} == {"a": "a", "b": "b"}
        assert gpu.of(run.pid)[0]["vgpu"] == own
        assert gpu.daemon.ask("vgpu-list", vgpu=own)["vgpus"][0]["max_ppm"] == 200000
        # 70 to 25, and what is left over in proportion: 0.737; then 70 to 30.
        wait_for_share("a", 0.7 if turn == 2 else 0.737, 0.025, busy)


@pytest.mark.skipif(not NBODY.exists() or not LAYER.exists(), reason="built without OpenCL")
def test_opencl_programs_are_managed_again_as_before(daemon: Daemon) -> None:
    """Two programs that know nothing of rtxg, 70 and 30 % by vGPUs that no file has, one of them moved there while it ran."""
    if os.cpu_count() == 1:
        pytest.skip("the device and what drives it need two CPUs")
    daemon.environment |= {"POCL_MAX_PTHREAD_COUNT": "1", "POCL_AFFINITY": "1", "RTXG_OPENCL_LAYER": str(LAYER),
                           "RTXG_LOG": "1"}
    daemon.start()
    for name, share in (("a", 700000), ("b", 300000)):
        assert daemon.ask("vgpu-create", vgpu=name, min_ppm=share, max_ppm=share)["ok"]
    programs = {}
    for name in ("a", "b"):
        log = (daemon.folder / f"{name}.log").open("wb")
        programs[name] = subprocess.Popen([BUILD / "cli/rtxg", "run", "-v", "a", "--", NBODY, "--seconds", "600"],
                                          env=daemon.environment, stdout=log, stderr=log)
        log.close()
    try:
        for name, program in programs.items():
            def there(program: subprocess.Popen[bytes] = program, name: str = name) -> bool:
                if program.poll() is not None:
                    pytest.skip(f"no usable OpenCL device: {(daemon.folder / f'{name}.log').read_text()[-300:]}")
                return bool(daemon.tasks(pid=program.pid))

            wait_for("it is managed", there)
        assert daemon.ask("task-set", pid=programs["b"].pid, vgpu="b")["ok"]

        def busy() -> dict[str, int]:
            return {name: sum(t["engines"][0]["busy_ns"] for t in daemon.tasks(pid=p.pid)) for name, p in programs.items()}

        def said(name: str) -> list[str]:
            return (daemon.folder / f"{name}.log").read_text(errors="replace").splitlines()

        def told(name: str, what: str) -> int:
            return sum(f"host of this task is {what}" in line for line in said(name))

        for turn in range(2):
            before = {name: len(said(name)) for name in programs}
            daemon.kill()
            # An attempt has failed: the programs are unmanaged, and always have work in flight.
            for name in programs:
                wait_for(
                    "it has tried in vain",
                    lambda name=name, turn=turn, before=before: (
                        told(name, "gone") == turn + 1
                        and any("no rtxgd listens" in line for line in said(name)[before[name] :])
                    ),
                )
            daemon.start()
            wait_for(
                "both are back",
                lambda turn=turn: all(told(name, "back") == turn + 1 for name in programs),
            )
            assert {name: {t["vgpu"] for t in daemon.tasks(pid=p.pid)} for name, p in programs.items()} == {"a": {"a"}, "b": {"b"}}
            wait_for_share("a", 0.7, 0.1, busy)
        daemon.healthy()
        for name in programs:
            # Each time that it went, why it is not there yet, and that it is back.
            lines = [line for line in said(name) if line.startswith("librtxg: ")]
            assert (told(name, "gone"), told(name, "back")) == (2, 2), lines
            assert 4 <= len(lines) < 20, lines
    finally:
        for program in programs.values():
            program.kill()
            program.wait()
