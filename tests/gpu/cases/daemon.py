# SPDX-License-Identifier: MIT
"""The lever inside rtxgd, used as people use it."""

from __future__ import annotations

import os
import subprocess
import time

from harness import Loads, Setup, progress, worst_window


def case_daemon(setup: Setup) -> None:
    """rtxgd, "rtxg vgpu create", "rtxg run" and "rtxg set -p" by hand: 60/20/20."""
    programs = {n: setup.program(n, built) for n, built in (("rtxgd", "daemon"), ("rtxg", "cli"))}
    socket = setup.work / "rtxgd.sock"
    env = {**os.environ, "RTXG_SOCKET": str(socket), "PATH": f"{setup.bin}:{os.environ['PATH']}"}
    if (setup.bin / "lib").exists():
        env["LD_LIBRARY_PATH"] = f"{setup.bin / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    log = setup.out / "last-rtxgd.log"

    def rtxg(*words: str) -> str:
        done = subprocess.run([programs["rtxg"], *words], env=env, check=False, capture_output=True, text=True)
        if done.returncode and words[0] != "doctor":
            raise RuntimeError(f"rtxg {' '.join(words)}: {done.stderr}")
        return done.stdout

    with log.open("wb") as f:
        daemon = subprocess.Popen([programs["rtxgd"], "--system", "--socket", socket], env=env, stderr=f)
    try:
        for _ in range(600):
            if socket.exists() or daemon.poll() is not None:
                break
            time.sleep(0.05)
        time.sleep(1)
        for name, share in (("a", "60%"), ("b", "20%"), ("c", "20%")):
            rtxg("vgpu", "create", name, "--min", share)
        with Loads(setup) as loads:
            hog = [str(setup.bin / "load"), "hog", str(setup.turns[20000]), "11"]
            for name in ("a", "b"):
                out = setup.work / f"hog-daemon-{name}.txt"
                loads.start(
                    [str(programs["rtxg"]), "run", "--no-layer", "-v", name, "--", *hog, str(out)], out, env=env
                )
            out = setup.work / "hog-daemon-c.txt"
            stranger = loads.start([*hog, str(out)], out)
            loads.wait_working()
            rtxg("set", "-p", str(stranger.pid), "-v", "c")
            t0 = time.monotonic_ns() + 1_000_000_000
            doctor = [line for line in rtxg("doctor").splitlines() if "nvidia" in line]
            loads.wait()
            tracks = [[progress(o)] for o in loads.outputs]
            t1 = min(t[0][-1, 0] for t in tracks) - 200_000_000
            worst, shares = worst_window(tracks, [60.0, 20.0, 20.0], t0, t1)
    finally:
        daemon.terminate()
        daemon.wait(10)
    setup.record(
        "60/20/20 by rtxgd, rtxg run and rtxg set -p: worst 1 s window",
        "points",
        None,
        worst,
        "1",
        worst <= 1,
        shares=shares,
        doctor=doctor,
    )
