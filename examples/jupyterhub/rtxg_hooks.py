# SPDX-License-Identifier: MIT
"""Hooks for JupyterHub with the systemd spawner: a vGPU for each user, bound to the unit of the user's server."""

from __future__ import annotations

import re
import subprocess

#: group of the hub -> reserved share; the first group that a user is in counts
SHARES = {"staff": "30%", "students": "5%"}


def rtxg_names(spawner) -> tuple[str, str]:  # noqa: ANN001
    """The vGPU and the unit of a user: letters, digits and . _ - only, as both accept them."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", spawner.user.name)
    return f"jupyter-{name}"[:63], f"jupyter-{name}-singleuser.service"


def rtxg_pre_spawn(spawner) -> None:  # noqa: ANN001
    """Make the vGPU, or bind the unit to the one that is there."""
    vgpu, unit = rtxg_names(spawner)
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
    subprocess.run(["rtxg", "vgpu", "rm", rtxg_names(spawner)[0]], capture_output=True, check=False)
