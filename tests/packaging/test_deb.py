# SPDX-License-Identifier: MIT
"""Debian packages: built twice they are equal, lintian is silent, and a clean Debian 12 installs,
upgrades and purges them.
"""

from __future__ import annotations

import filecmp
import re
import subprocess
from pathlib import Path

import pytest
from conftest import NEWER, ROOT, Make, build

PACKAGES = ["librtxg-dev", "librtxg0", "rtxg", "rtxg-dkms", "rtxg-nvidia", "rtxg-opencl"]


def test_the_versions_of_the_tree_are_one() -> None:
    """meson.build, the changelogs, the Python package, the library's header, the module, the chart
    and the manual pages say the same.
    """
    version = re.search(r"^  version: '([0-9.]+)'", (ROOT / "meson.build").read_text(), re.M)
    assert version
    number = version.group(1)
    assert (ROOT / "packaging/debian/changelog").read_text().startswith(f"rtxg ({number})")
    assert re.search(
        rf'^version = "{re.escape(number)}"$', (ROOT / "pyproject.toml").read_text(), re.M
    )
    assert f'\n__version__ = "{number}"\n' in (ROOT / "lab/rtxg/__init__.py").read_text()
    assert f'\nPACKAGE_VERSION="{number}"\n' in (ROOT / "kmod/dkms.conf").read_text()
    assert f'\nMODULE_VERSION("{number}");\n' in (ROOT / "kmod/main.c").read_text()
    chart = (ROOT / "kubernetes/chart/Chart.yaml").read_text()
    assert f'\nversion: {number}\nappVersion: "{number}"\n' in chart
    header = re.findall(
        r"^#define RTX_VERSION_(?:MAJOR|MINOR) (\d+)$", (ROOT / "include/rtxg.h").read_text(), re.M
    )
    assert header == number.split(".")[:2]
    assert f"\n## {number} " in (ROOT / "CHANGELOG.md").read_text()
    for page in (ROOT / "man").glob("*.[1-8]"):
        assert f'"rtxg {number}"' in page.read_text().splitlines()[1], page.name


def test_the_library_keeps_its_soversion() -> None:
    """The package is named after it."""
    assert (
        "soversion: '0'" in (ROOT / "lib/meson.build").read_text()
        and (ROOT / "packaging/debian/librtxg0.install").exists()
    )


def test_the_package_of_the_library_lists_what_it_exports() -> None:
    """A function that its list lacks fails the build of the packages."""
    node, exported = "", set()
    for line in (ROOT / "lib/librtxg.map").read_text().splitlines():
        if found := re.match(r"(RTXG_[0-9.]+) \{", line):
            node = found[1]
            exported.add(f"{node}@{node}")
        elif found := re.match(r"\s+(rtx_\w+);", line):
            exported.add(f"{found[1]}@{node}")
    listed = (ROOT / "packaging/debian/librtxg0.symbols").read_text()
    assert set(re.findall(r"^ (\S+@\S+) ", listed, re.M)) == exported


def test_the_source_for_dkms_has_all_that_kbuild_compiles(tmp_path: Path) -> None:
    """Each object that Kbuild names has its source there, and each header that one includes by
    its name.
    """
    subprocess.run(
        ["make", "-s", "-C", ROOT / "kmod", "dkms-tree", f"DESTDIR={tmp_path}"], check=True
    )
    (tree,) = (tmp_path / "usr/src").iterdir()
    kbuild = (tree / "kmod/Kbuild").read_text()
    folders = re.search(r"\$\(filter ([^,]+),", kbuild)
    assert folders
    core = [
        f"core/{line}"
        for line in (tree / "core/sources").read_text().split()
        if line.endswith(".c") and f"{line.split('/')[0]}/%.c" in folders[1].split()
    ]
    own = [
        f"kmod/{name}.c"
        for name in re.findall(r"\b(?!CFLAGS_)(\w+)\.o\b", kbuild.split("addprefix")[0])
        if name != "rtxg"
    ]
    own += [
        f"kmod/cpu/{name}.c" for name in re.findall(r"\b(?!CFLAGS_)(\w+)\.o\b", kbuild.split("addprefix")[1])
    ]
    assert len(core) > 20 and len(own) > 20
    assert [name for name in core + own if not (tree / name).exists()] == []
    headers = {path.name for path in tree.rglob("*.h")}
    include = re.compile(r'^#include (?:"|<rtxg/)([^">]+)[">]', re.M)
    named = {
        Path(name).name
        for path in tree.rglob("*.[ch]")
        for name in include.findall(path.read_text())
    }
    assert named - headers == set()


@pytest.mark.slow
def test_all_packages_are_built(built: Path) -> None:
    """Each of them, and none beside."""
    assert sorted(p.name.split("_")[0] for p in built.glob("*.deb")) == PACKAGES


@pytest.mark.slow
def test_two_builds_are_equal(built: Path, tmp_path: Path) -> None:
    """Byte by byte: another folder, time zone, language, user's name and number of compilers at
    once change nothing.
    """
    build(
        tmp_path,
        TZ="Pacific/Kiritimati",
        LC_ALL="C",
        LANG="C",
        JOBS="1",
        HOME=str(tmp_path),
        LOGNAME="another",
        TMPDIR=str(tmp_path),
    )
    names = [p.name for p in built.glob("*.deb")]
    assert sorted(filecmp.cmpfiles(built, tmp_path, names, shallow=False)[0]) == sorted(names)


@pytest.mark.slow
def test_a_clean_debian_installs_upgrades_and_purges_them(
    built: Path, newer: Path, make_chroot: Make
) -> None:
    """Programs run; group, folder and units are there; an upgrade keeps the configuration, and a
    purge leaves nothing else.
    """
    inside = make_chroot("bookworm")
    inside.take(built, "debs")
    inside.take(newer, "newer")
    names = ("rtxg", "librtxg0", "rtxg-opencl", "rtxg-nvidia", "librtxg-dev")

    def install(folder: str) -> str:
        return f"apt-get install -y --no-install-recommends {' '.join(f'/{folder}/{name}_*.deb' for name in names)}"

    inside(f"apt-get update; {install('debs')}")
    assert inside("rtxg --version").startswith("rtxg 0.")
    inside("rtxgd --check-config")
    assert inside("getent group rtxg").startswith("rtxg:")
    assert (
        inside("systemd-tmpfiles --create rtxg.conf; stat -c %a:%U:%G /run/rtxg").strip()
        == "755:root:root"
    )
    assert inside("systemctl is-enabled rtxgd.socket").strip() == "enabled"
    for unit in ("rtxg-metrics.socket", "rtxg-textfile.timer", "rtxg-latency.service"):
        assert inside(f"systemctl is-enabled {unit} || true").strip() == "disabled", unit
    # a user's own daemon is that user's choice
    assert inside("systemctl --global is-enabled rtxgd.socket || true").strip() == "disabled"
    inside(
        "systemd-analyze verify --man=no /lib/systemd/system/rtxgd.service /lib/systemd/system/rtxg-metrics.service"
    )
    inside(
        "test -s /usr/share/bash-completion/completions/rtxg -a -s /usr/share/zsh/vendor-completions/_rtxg"
    )
    # Each program has its page. (A minimal Debian leaves pages out when it installs.)
    listed = inside("dpkg-deb -c /debs/rtxg_*.deb; dpkg-deb -c /debs/rtxg-nvidia_*.deb")
    for program in re.findall(r" \./usr/(?:bin|libexec/rtxg)/(\S+)\n", listed):
        assert re.search(rf"/man/man[18]/{re.escape(program)}\.[18]\.gz\n", listed), program
    # No library is missing, and a daemon of the package's own hosts a vGPU.
    assert "not found" not in inside(
        "ldd /usr/bin/rtxg* /usr/libexec/rtxg/* /usr/lib/*/librtxg*.so* /usr/lib/*/rtxg/*.so"
    )
    assert "camera" in inside("rtxg vgpu create camera --min 40% && rtxg vgpu ls; rtxg host stop")
    # What an administrator wrote, and what rtxg did for one.
    inside("mkdir -p /etc/rtxg && echo '[VGPU kept]' > /etc/rtxg/rtxg.conf")
    inside(
        "rtxgd --system & until [ -S /run/rtxg/rtxgd.sock ]; do sleep 0.1; done; "
        "rtxg vgpu create made --min 10% --persist; rtxg host stop"
    )
    inside("test -s /etc/rtxg/rtxg.conf.d/50-vgpu-made.conf")
    inside(install("newer"))
    assert set(inside(f"dpkg-query -W -f '${{Version}}\\n' {' '.join(names)}").split()) == {NEWER}
    inside(
        "grep -q kept /etc/rtxg/rtxg.conf; test -s /etc/rtxg/rtxg.conf.d/50-vgpu-made.conf; rtxgd --check-config"
    )
    inside(f"apt-get purge -y {' '.join(names)}")
    left = inside(
        "find / -xdev \\( -path /debs -o -path /newer -o -path /proc -o -path /tmp -o -path /var/cache/apt "
        "-o -path /var/lib/apt -o -path /var/log \\) -prune -o -name '*rtxg*' -print"
    ).split()
    assert left == ["/etc/rtxg", "/etc/rtxg/rtxg.conf"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "suite, line, kernel",
    [
        ("bookworm", "", r"6\.1\."),
        ("bookworm", "deb http://deb.debian.org/debian bookworm-backports main", r"6\.12\."),
        ("sid", "", r"[7-9]\.\d+"),
    ],
)
def test_dkms_builds_the_module(
    built: Path, make_chroot: Make, suite: str, line: str, kernel: str
) -> None:
    """The package's source is compiled when it is installed, for the kernel whose headers are
    there, and goes with it.
    """
    inside = make_chroot(suite)
    inside.take(built, "debs")
    if line:
        inside(f"echo '{line}' >> /etc/apt/sources.list")
    inside("apt-get update")
    which = "-t bookworm-backports " if line else ""
    inside(f"apt-get install -y --no-install-recommends {which}linux-headers-amd64")
    inside("apt-get install -y --no-install-recommends /debs/rtxg-dkms_*.deb", timeout=1800)
    (release,) = inside("ls /lib/modules").split()
    assert re.match(kernel, release), release
    assert re.search(
        rf"rtxg/0\.1\.0, {re.escape(release)}, x86_64: installed", inside("dkms status")
    ), inside("dkms status")
    built_one = inside(f"find /lib/modules/{release} -name 'rtxg.ko*'").split()
    assert len(built_one) == 1
    assert inside(f"modinfo -F vermagic {built_one[0]}").split()[0] == release
    print(f"built for {release}")
    inside("apt-get purge -y rtxg-dkms")
    assert inside("find /lib/modules /var/lib/dkms /usr/src -name '*rtxg*'").split() == []
