# SPDX-License-Identifier: MIT
"""Hooks for JupyterHub with the systemd spawner: a vGPU for each user, bound to the unit of the user's server."""

from __future__ import annotations

import re
import subprocess

#: group of the hub -> reserved share; the first group that a user is in counts
SHARES = {"staff": "30%", "students": "5%"}


def rtxg_unit(name: str) -> str:
    """The unit of that name: systemd-run writes what is no letter of a unit's name as \\xNN."""
    plain = r"[A-Za-z0-9:_.@-]"
    letters = (
        c if re.match(plain, c) else "".join(f"\\x{b:02x}" for b in c.encode())
        for c in name.replace("/", "-")
    )
    return "".join(letters) + ".service"


def rtxg_vgpu(user) -> str:  # noqa: ANN001
    """The vGPU of a user. Of two whose names differ in letters that it cannot have, each has one.
    """
    name = re.sub(r"[^A-Za-z0-9._@-]", "_", user.name)[:40]
    return f"jupyter-{name}" if name == user.name else f"jupyter-{name}-{user.id}"


def rtxg_pre_spawn(spawner) -> None:  # noqa: ANN001
    """Make the vGPU, or bind the unit to the one that is there."""
    vgpu, unit = rtxg_vgpu(spawner.user), rtxg_unit(spawner.unit_name)
    groups = [group.name for group in getattr(spawner.user, "groups", [])]
    share = next((SHARES[group] for group in groups if group in SHARES), "0%")
    bind = ["--cgroup", unit]
    for attempt in (["create", vgpu, "--min", share, *bind], ["create", vgpu, *bind], ["set", vgpu, *bind]):
        done = subprocess.run(["rtxg", "vgpu", *attempt], capture_output=True, text=True, check=False)
        if not done.returncode:
            return
        spawner.log.warning("rtxg: %s", done.stderr.strip())


def rtxg_post_stop(spawner) -> None:  # noqa: ANN001
    """The vGPU goes with the server."""
    subprocess.run(
        ["rtxg", "vgpu", "rm", rtxg_vgpu(spawner.user)], capture_output=True, check=False
    )
