# SPDX-License-Identifier: MIT
"""Fetch a stock Debian kernel and its headers into build/vm, or build one that looks for mistakes; nothing else.

apt is used with a private state directory and private sources, so that the
machine's own configuration is neither read nor changed.  What was fetched is
kept and reused; delete build/vm/KERNEL to fetch the newest again.

Debian ships no kernel with lockdep or KASAN.  Those named *-debug are built
once from Debian's source package with the configuration in tests/vm/debug.
"""

from __future__ import annotations

import fcntl
import json
import lzma
import os
import re
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
CACHE = Path(os.environ.get("RTXG_VM_CACHE", REPOSITORY / "build" / "vm"))
MIRROR = os.environ.get("RTXG_DEBIAN_MIRROR", "http://deb.debian.org")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"

#: configurations of the kernels that are built here
FRAGMENTS = REPOSITORY / "tests" / "vm" / "debug"

#: beside a kernel that was built here: what that took
BUILT = "built.json"

#: packages that a kernel's image and headers may pull in; all others are left out
WANTED = re.compile(r"^linux-(headers|kbuild|image|binary|modules|base)-[0-9]")


@dataclass(frozen=True)
class Series:
    """A kernel that `run` knows by name."""

    name: str
    #: where apt looks: lines of a sources.list without options
    sources: tuple[str, ...]
    #: release of the newest image: a pattern with one group, the version sorted on
    image: str
    #: True when the headers need the compiler of a newer Debian (a chroot)
    chroot: bool = False
    #: not stock: built from the source package of this name ...
    source: str = ""
    #: ... with these files of tests/vm/debug as its configuration
    fragments: tuple[str, ...] = ()
    #: how many times longer than a stock kernel it may take
    slower: float = 1.0
    #: MiB of memory that its guest needs
    memory_mib: int = 512
    #: tests i_*: an instruction takes 2**icount ns; less where checks multiply the instructions
    icount: int = 2
    #: words of its command line
    append: str = ""

    @property
    def stock(self) -> bool:
        """True if Debian built it."""
        return not self.source

    @property
    def finds_races(self) -> bool:
        """True if it looks for data races, and not for the other mistakes."""
        return "races" in self.fragments


_BOOKWORM = (
    f"{MIRROR}/debian bookworm main",
    f"{MIRROR}/debian-security bookworm-security main",
)
_BACKPORTS = (
    f"{MIRROR}/debian-security bookworm-security main",
    f"{MIRROR}/debian bookworm-backports main",
)
_SID = (f"{MIRROR}/debian sid main",)



def _debug(
    name: str, sources: tuple[str, ...], source: str, preemption: str,
    checks: str = "checks", append: str = "",
) -> Series:
    """A kernel with lockdep, KASAN and the like: several times slower, and larger."""
    return Series(name, sources, "", source=source, fragments=("base", checks, preemption),
                  slower=8.0, memory_mib=1536, icount=0, append=append)


SERIES = {
    s.name: s
    for s in (
        Series("6.1", _BOOKWORM, r"linux-image-(6\.1\.0-\d+-amd64)"),
        Series("6.1-rt", _BOOKWORM, r"linux-image-(6\.1\.0-\d+-rt-amd64)"),
        Series("6.12", _BACKPORTS, r"linux-image-(6\.12\.[0-9.]+\+deb12(?:\.\d+)?-amd64)"),
        Series("6.12-rt", _BACKPORTS, r"linux-image-(6\.12\.[0-9.]+\+deb12(?:\.\d+)?-rt-amd64)"),
        Series("7.2", _SID, r"linux-image-(7\.2\.[0-9.]+\+deb\d+-amd64)", chroot=True),
        Series("7.2-rt", _SID, r"linux-image-(7\.2\.[0-9.]+\+deb\d+-rt-amd64)", chroot=True),
        _debug("6.1-debug", _BOOKWORM, "linux-source-6.1", "preempt"),
        _debug("6.12-debug", _BACKPORTS, "linux-source-6.12", "preempt"),
        _debug("6.12-rt-debug", _BACKPORTS, "linux-source-6.12", "preempt-rt"),
        _debug("7.2-debug", _SID, "linux-source-7.2", "preempt"),
        # KCSAN and KASAN exclude each other. By itself it looks at one of 4000 accesses, which is
        # few for a test of minutes
        _debug("6.12-kcsan", _BACKPORTS, "linux-source-6.12", "preempt", "races",
               "kcsan.skip_watch=300"),
    )
}


def system_tool(name: str) -> str:
    """Path of a tool that may lie in a folder of root's PATH only; any user may run it."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if not found:
        raise FetchError(f"{name} is missing: apt-get install kmod")
    return found


class FetchError(RuntimeError):
    """A kernel, its headers or its compiler could not be had."""


def _unpack(image: bytes) -> bytes | None:
    """The ELF file in a bzImage (Documentation/arch/x86/boot.rst); None: packed in a way that is not known here."""
    sectors = image[0x1F1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    payload, size = image[(sectors + 1) * 512 + offset :][: length - 4], image[(sectors + 1) * 512 + offset + length - 4 :][:4]
    if payload.startswith(b"\xfd7zXZ"):
        unpacked = lzma.LZMADecompressor().decompress(payload)
    elif payload.startswith(b"\x28\xb5\x2f\xfd") and shutil.which("zstd"):
        unpacked = subprocess.run(["zstd", "-dc"], input=payload, capture_output=True, check=False).stdout
    else:
        return None
    return unpacked if unpacked.startswith(b"\x7fELF") and len(unpacked) == int.from_bytes(size, "little") else None


@dataclass(frozen=True)
class Kernel:
    """A kernel unpacked under build/vm."""

    series: Series
    #: `uname -r` of the kernel
    release: str
    #: where its packages are unpacked
    root: Path

    @property
    def image(self) -> Path:
        """The bootable image."""
        boot = self.root / "boot" / f"vmlinuz-{self.release}"
        return boot if boot.exists() else self.modules / f"lib/modules/{self.release}/vmlinuz"

    @property
    def boots(self) -> Path:
        """What QEMU is given: the kernel unpacked, where it can be entered so (PVH), since emulated it unpacks slowly."""
        configuration = self.root / "boot" / f"config-{self.release}"
        if not configuration.exists() or "CONFIG_PVH=y" not in configuration.read_text().splitlines():
            return self.image
        target = self.root.parent / f"vmlinux-{self.release}"
        if not target.exists():
            unpacked = _unpack(self.image.read_bytes())
            if unpacked is None:
                return self.image
            # Two guests start at once: each writes a file of its own, and either name is whole.
            with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as part:
                part.write(unpacked)
            Path(part.name).rename(target)
        return target

    @property
    def modules(self) -> Path:
        """A root for modprobe -d: holds lib/modules/RELEASE."""
        return self.root

    @property
    def headers(self) -> Path:
        """The directory for make -C."""
        if not self.series.stock:
            return self.root.parent / "build"
        return self.root / "usr" / "src" / f"linux-headers-{self.release}"

    @property
    def built(self) -> dict[str, int]:
        """Seconds that building it took, and of processors; empty: Debian did, or not noted."""
        note = self.root.parent / BUILT
        return json.loads(note.read_text()) if note.exists() else {}

    @property
    def chroot(self) -> Path | None:
        """The Debian whose compiler built this kernel, or None: the machine's own."""
        return CACHE / "sid-root" if self.series.chroot else None


class _Apt:
    """apt with a private state directory."""

    def __init__(self, series: Series) -> None:
        tag = re.sub(r"\W+", "-", " ".join(series.sources))
        self.state = CACHE / "apt" / tag
        for part in ("lists/partial", "cache/archives/partial", "parts"):
            (self.state / part).mkdir(parents=True, exist_ok=True)
        (self.state / "status").touch()
        signed = f"[arch=amd64 signed-by={KEYRING}]"
        (self.state / "sources.list").write_text(
            "".join(f"deb {signed} {line}\n" for line in series.sources)
        )
        self.options = [
            f"-oDir::State={self.state}",
            f"-oDir::State::Lists={self.state}/lists",
            f"-oDir::State::status={self.state}/status",
            f"-oDir::Cache={self.state}/cache",
            f"-oDir::Etc::sourcelist={self.state}/sources.list",
            f"-oDir::Etc::sourceparts={self.state}/parts",
            f"-oDir::Etc::preferencesparts={self.state}/parts",
            "-oAPT::Architecture=amd64",
            "-oAPT::Architectures=amd64",
            "-oAPT::Sandbox::User=",
            "-oAcquire::Languages=none",
            "-oAcquire::Retries=3",
        ]

    def __call__(self, tool: str, *words: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            [tool, *self.options, *words], cwd=cwd, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise FetchError(
                f"{tool} {' '.join(words)} failed: {done.stderr.strip()[-400:]}; "
                f"is {MIRROR} reachable? (RTXG_DEBIAN_MIRROR names another)"
            )
        return done.stdout


def _version_key(release: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", release)]


def _depends(apt: _Apt, package: str) -> list[str]:
    """Names in the Depends of the newest version of package."""
    for line in apt("apt-cache", "show", "--no-all-versions", package).splitlines():
        if line.startswith("Depends:"):
            return re.findall(r"(linux-[^\s,|(]+)", line)
    return []


def _closure(apt: _Apt, start: list[str]) -> list[str]:
    todo, seen = list(start), []
    while todo:
        name = todo.pop()
        if name in seen or not WANTED.match(name) or name.endswith("-unsigned"):
            continue
        seen.append(name)
        todo += _depends(apt, name)
    return sorted(seen)


def _fetch_sid() -> None:
    """A minimal sid with gcc, kept: the compiler that built the newest kernels."""
    root = CACHE / "sid-root"
    tools = all((root / "usr/bin" / tool).exists() for tool in ("gcc-16", "make"))
    if tools and not (root / "debootstrap").exists():
        return
    if not shutil.which("debootstrap"):
        raise FetchError("debootstrap is missing: apt-get install debootstrap")
    if os.geteuid() != 0:
        raise FetchError("a chroot with gcc 16 is needed for 7.2; making one needs root")
    shutil.rmtree(root, ignore_errors=True)
    print("vm: making a sid chroot with gcc-16 (once)", file=sys.stderr)
    done = subprocess.run(
        ["debootstrap", "--variant=minbase", "--include=gcc-16,make,libelf1t64,xz-utils",
         "sid", str(root), f"{MIRROR}/debian"],
        capture_output=True, text=True, check=False,
    )
    if done.returncode != 0:
        raise FetchError(f"debootstrap sid failed: {done.stdout[-400:]}{done.stderr[-400:]}")


def _download(series: Series, root: Path) -> str:
    """Unpack the newest kernel of the series under root; its release."""
    apt = _Apt(series)
    apt("apt-get", "update")
    names = apt("apt-cache", "pkgnames", "linux-").split()
    releases = [m.group(1) for n in names if (m := re.fullmatch(series.image, n))]
    releases = [r for r in releases if f"linux-headers-{r}" in names]
    if not releases:
        raise FetchError(f"no kernel {series.name} with headers at {MIRROR}; see {apt.state}")
    release = max(releases, key=_version_key)
    packages = _closure(apt, [f"linux-image-{release}", f"linux-headers-{release}"])
    print(f"vm: fetching {release}: {' '.join(packages)}", file=sys.stderr)
    archive = root.parent / f"{root.name}.deb"
    shutil.rmtree(archive, ignore_errors=True)
    archive.mkdir(parents=True)
    apt("apt-get", "download", *packages, cwd=archive)
    for package in sorted(archive.glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", str(package), str(root)], check=True)
    shutil.rmtree(archive)
    return release


def _make_relocatable(root: Path, release: str) -> None:
    """Point what the packages say of /usr and /lib into root."""
    # merged-/usr packages ship usr/lib/modules: modprobe -d wants lib/modules
    if (root / "usr/lib/modules").exists() and not (root / "lib").exists():
        (root / "lib").symlink_to("usr/lib")
    headers = root / "usr/src" / f"linux-headers-{release}"
    for makefile in (headers / "Makefile", headers / ".kernelvariables"):
        if makefile.exists():
            text = makefile.read_text()
            makefile.write_text(re.sub(r"(?<![\w$)/])/usr/(src|lib)/", rf"{root}/usr/\1/", text))
    for link in list(headers.rglob("*")) + list((root / "usr/src").glob("*/*")):
        if link.is_symlink():
            target = os.readlink(link)
            if target.startswith(("/usr/", "/lib/")):
                link.unlink()
                link.symlink_to(f"{root}{target}")
    subprocess.run([system_tool("depmod"), "-b", str(root), release], check=True)


def _run_make(command: list[str], what: str, log: Path) -> None:
    with log.open("ab") as file:
        done = subprocess.run(["nice", *command], stdin=subprocess.DEVNULL, stdout=file, stderr=file, check=False)
    if done.returncode != 0:
        raise FetchError(f"{what} failed; the end of {log}:\n{log.read_text(errors='replace')[-2000:]}")


def _source_tree(series: Series) -> Path:
    """Debian's kernel source, unpacked once for all kernels made of it."""
    place = CACHE / "source" / series.source.removeprefix("linux-source-")
    tree = place / series.source
    stamp = place / "unpacked"
    if not stamp.exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        print(f"vm: fetching {series.source} (once, 150 MB)", file=sys.stderr)
        apt = _Apt(series)
        apt("apt-get", "update")
        apt("apt-get", "download", series.source, cwd=place)
        for package in place.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", str(package), str(place)], check=True)
            package.unlink()
        archive = place / "usr" / "src" / f"{series.source}.tar.xz"
        subprocess.run(["tar", "-xf", str(archive), "-C", str(place)], check=True)
        shutil.rmtree(place / "usr")
        # a tree that was ever configured in place refuses to be built elsewhere
        _run_make(["make", "-s", "-C", str(tree), "mrproper"], f"cleaning {tree}", place / "mrproper.log")
        stamp.touch()
    return tree


def _configure(series: Series, tree: Path, build: Path, log: Path) -> None:
    """A configuration of the fragments and defaults; every line of the fragments must have got in."""
    wanted = "".join((FRAGMENTS / f"{name}.config").read_text() for name in series.fragments)
    (build / "fragments").write_text(wanted)
    _run_make(["make", "-s", "-C", str(tree), f"O={build}", f"KCONFIG_ALLCONFIG={build}/fragments", "alldefconfig"],
              f"configuring {series.name}", log)
    got = set((build / ".config").read_text().splitlines())
    lost = [line for line in wanted.splitlines() if re.match(r"(# )?CONFIG_", line) and line not in got]
    # an option that does not exist in this version is off, too
    lost = [line for line in lost if not (line.endswith("is not set") and
                                          not any(g.startswith(line.split()[1] + "=") for g in got))]
    if lost:
        raise FetchError(f"{series.name}: not in the configuration of {tree.name}: {'; '.join(lost)}; see {FRAGMENTS}")


def _processor_seconds() -> float:
    """What the processes that were awaited so far have used, their own among them."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _build(series: Series, tree: Path, root: Path) -> str:
    """Build a kernel and its modules, install them under root; its release."""
    build, log = root.parent / "build", root.parent / "build-kernel.log"
    began, used = time.monotonic(), _processor_seconds()
    build.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    _configure(series, tree, build, log)
    print(f"vm: building {series.name} (once; it takes long; {log})", file=sys.stderr)
    make = ["make", "-C", str(tree), f"O={build}", f"-j{os.environ.get('JOBS') or os.cpu_count() or 1}"]
    _run_make([*make, "bzImage", "modules"], f"building {series.name}", log)
    release = (build / "include/config/kernel.release").read_text().strip()
    _run_make([*make, f"INSTALL_MOD_PATH={root}", "INSTALL_MOD_STRIP=1", "modules_install"],
              f"installing the modules of {series.name}", log)
    (root / "boot").mkdir(exist_ok=True)
    shutil.copy(build / "arch/x86/boot/bzImage", root / "boot" / f"vmlinuz-{release}")
    took = {"seconds": round(time.monotonic() - began),
            "cpu_seconds": round(_processor_seconds() - used)}
    (root.parent / BUILT).write_text(json.dumps(took) + "\n")
    return release


def fetch(name: str) -> Kernel:
    """The kernel called name, fetched or built when it is not there yet."""
    if name not in SERIES:
        raise FetchError(f"unknown kernel '{name}': one of {', '.join(SERIES)}")
    series = SERIES[name]
    CACHE.mkdir(parents=True, exist_ok=True)
    root, stamp = CACHE / name / "root", CACHE / name / "release"
    root.mkdir(parents=True, exist_ok=True)
    # One at a time downloads; building one kernel does not hold up the others.
    with (CACHE / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if series.chroot:
            _fetch_sid()
        if series.stock and not stamp.exists():
            shutil.rmtree(root, ignore_errors=True)
            root.mkdir(parents=True)
            release = _download(series, root)
            _make_relocatable(root, release)
            stamp.write_text(release + "\n")
        tree = None if series.stock else _source_tree(series)
    if tree is not None:
        with (CACHE / name / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not stamp.exists():
                stamp.write_text(_build(series, tree, root) + "\n")
    return Kernel(series, stamp.read_text().strip(), root)
