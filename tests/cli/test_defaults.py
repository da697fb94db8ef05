# SPDX-License-Identifier: MIT
"""The defaults in --help and in the manual pages equal the values of a fresh object."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from conftest import ROOT, Rtxg

#: option of `rtxg gpu set`: column of `rtxg gpu ls`
GPU = {
    "--policy": "POLICY",
    "--period": "PERIOD",
    "--window": "WINDOW",
    "--band-wait": "BANDWAIT",
    "--think": "THINK",
    "--revoke-timeout": "REVOKE",
    "--switch-cost": "SWITCH",
}
#: option of `rtxg vgpu create`: column of `rtxg vgpu ls`
VGPU = {
    "--min": "MIN",
    "--max": "MAX",
    "--priority": "PRIO",
    "--period": "PERIOD",
    "--policy": "POLICY",
    "--task-priority": "TASKPRIO",
}


def plain(value: str) -> str:
    """0.0% and 0% and 0 are one value."""
    return re.sub(r"(\d)\.0\b", r"\1", value).removesuffix("%")


def in_help(text: str) -> dict[str, str]:
    """The default that the paragraph of each option names."""
    found = {}
    for part in re.split(r"\n(?= {1,5}-)", text):
        option, default = re.search(r"(--[a-z-]+)", part), re.search(r"\(default\s+'?([^)']+)", part)
        if option and default:
            found[option[1]] = plain(default[1].strip())
        elif option and (chosen := re.search(r"(\w+)'? \(default\)", part)):
            found[option[1]] = chosen[1]
    return found


def in_manual(page: str) -> dict[str, str]:
    """The default that the paragraph of each option names."""
    made = Path(os.environ.get("RTXG_BUILD") or ROOT / "build/release") / "man" / page
    path = made if made.exists() else ROOT / "man" / page
    text = path.read_text().replace("\\-", "-")
    found = {}
    for part in re.split(r"^\.TP\n", text, flags=re.MULTILINE):
        heading, _, body = part.partition("\n")
        option = re.search(r"(--[a-z-]+)", heading)
        body = re.sub(r"\n\.[A-Z]+ ", " ", "\n" + body).replace("\n", " ")
        body = body.replace('"', "").replace("\\fB", "").replace("\\fR", "")
        default = re.search(r"Default (\w+(?:\.\d+)?%?)", body)
        if option and default:
            found.setdefault(option[1], plain(default[1]))
    return found


@pytest.mark.parametrize(
    ("command", "page", "options"),
    [("gpu", "rtxg-gpu.1", GPU), ("vgpu", "rtxg-vgpu.1", VGPU)],
    ids=["gpu", "vgpu"],
)
def test_defaults_are_those_of_the_code(
    rtxg: Rtxg, command: str, page: str, options: dict[str, str]
) -> None:
    """Help, manual and a fresh object, option by option."""
    if command == "gpu":
        rtxg.ok("gpu", "set", "--new", "fresh", "--overrun", "charge")
        said = in_help(rtxg.ok("gpu", "set", "--help"))
        shown = rtxg.ok("gpu", "ls", "-o", ",".join(["GPU", *options.values()]))
    else:
        rtxg.ok("vgpu", "create", "fresh")
        said = in_help(rtxg.ok("vgpu", "create", "--help"))
        shown = rtxg.ok("vgpu", "ls", "-o", ",".join(["VGPU", *options.values()]))
    row = next(line.split() for line in shown.splitlines() if line.split()[0] == "fresh")
    code = dict(zip(options, map(plain, row[1:]), strict=True))
    assert {option: said.get(option) for option in options} == code, "--help"
    manual = in_manual(page)
    assert {option: manual.get(option) for option in options} == code, page
