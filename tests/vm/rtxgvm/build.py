# SPDX-License-Identifier: MIT
"""Build the module, the test driver and the guest programs; pack an initramfs.

Sources are mirrored into build/vm/KERNEL/src first (only what changed), so that
six kernels never share an object file and the tree itself stays clean.
"""

from __future__ import annotations

import fcntl
import lzma
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .kernels import CACHE, REPOSITORY, FetchError, Kernel, system_tool

#: what the modules are made of, relative to the repository
MODULE_SOURCES = ("kmod", "core", "include", "tests/vm/edu_drv", "tests/vm/plant_drv")
#: a module that makes the mistakes which a debug kernel finds, and the script that loads it
PROVOKE = REPOSITORY / "tests" / "vm" / "provoke"
#: stock guest drivers, with the modules that they need
GUEST_MODULES = ("e1000e", "nvme", "virtio_pci", "virtio_rng", "virtio_blk")
#: loaded by the test that wants fences
GPU_MODULES = ("virtio_gpu",)
GUEST = REPOSITORY / "tests" / "vm" / "guest"
#: a test of the OpenCL layer is left out without these
OPENCL = Path("/usr/include/CL/cl_layer.h")
#: the machine's own compiler for guest programs: static, they run on every kernel
CC = os.environ.get("CC", "gcc")
#: no warnings of the linker: librtxg asks for CUDA by dlopen, which a static program cannot have, and need not here
CFLAGS = ("-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Wno-unused-parameter",
          "-Wno-missing-field-initializers",
          "-static", "-pthread", "-D_GNU_SOURCE", "-Wl,--no-warnings")
INCLUDE = tuple(f"-I{REPOSITORY}/{folder}" for folder in (
    "include", "include/uapi", "core/launch", "core/cpu", "core/gate", "core/order", "lib", "nvidia", "tests/vm/edu_drv"))


class BuildError(RuntimeError):
    """A compiler said no; its output is the message."""


def _mirror(source: Path, target: Path) -> None:
    """Make target's sources equal source's: copy what changed, delete what is gone."""
    target.mkdir(parents=True, exist_ok=True)
    names = set()
    for entry in sorted(source.iterdir()):
        if entry.is_dir():
            _mirror(entry, target / entry.name)
            names.add(entry.name)
        elif entry.suffix in {".c", ".h", ".S"} or entry.name in {"Kbuild", "Makefile", "sources"}:
            names.add(entry.name)
            copy = target / entry.name
            if not copy.exists() or copy.read_bytes() != entry.read_bytes():
                shutil.copy(entry, copy)
    for entry in target.iterdir():
        if entry.suffix in {".c", ".h", ".S"} and not entry.name.endswith(".mod.c"):
            if entry.name not in names:
                entry.unlink()


def _run(command: list[str], what: str, log: Path) -> None:
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    log.write_text(done.stdout)
    if done.returncode != 0:
        raise BuildError(f"{what} failed (all of it in {log}):\n{done.stdout[-6000:]}")
    # librtxg asks whether a program has loaded CUDA: a static one has not
    warnings = [line for line in done.stdout.splitlines()
                if ": warning: " in line and "Using 'dlopen' in statically linked" not in line]
    if warnings:
        raise BuildError(f"{what} gave warnings (all of them in {log}):\n" + "\n".join(warnings))


def modules(kernel: Kernel, provoke: bool = False, jobs: int = 2) -> list[Path]:
    """rtxg.ko and the test drivers (with provoke, that module alone), built out of tree against the kernel's headers."""
    work = CACHE / kernel.series.name
    source = work / "src"
    wanted = (("tests/vm/provoke", "rtxg_provoke"),) if provoke else (
        ("kmod", "rtxg"), ("tests/vm/edu_drv", "rtxg_edu"), ("tests/vm/plant_drv", "rtxg_plant"),
        ("tests/vm/plant_drv", "rtxg_window"))
    for part in ("tests/vm/provoke",) if provoke else MODULE_SOURCES:
        _mirror(REPOSITORY / part, source / part)
    built = []
    for part, module in wanted:
        command = ["nice", "make", "-C", str(kernel.headers), f"M={source / part}",
                   f"-j{jobs}", "KCFLAGS=-Werror",
                   # type information for BPF would need pahole and the kernel's own vmlinux
                   "CONFIG_DEBUG_INFO_BTF_MODULES=", "modules"]
        if kernel.chroot is not None:
            if os.geteuid() != 0:
                raise FetchError("building for 7.2 happens in a chroot and needs root")
            # the chroot sees build/vm under the same name; the mount ends with the command
            inside = f"{kernel.chroot}{CACHE}"
            Path(inside).mkdir(parents=True, exist_ok=True)
            command = ["unshare", "-m", "sh", "-ec",
                       'mount --bind "$1" "$2"; mount -t proc proc "$3/proc"; r=$3; shift 3; '
                       'exec chroot "$r" "$@"',
                       "sh", str(CACHE), inside, str(kernel.chroot), *command]
        _run(command, f"building {module}.ko for {kernel.release}", work / f"build-{module}.log")
        built.append(source / part / f"{module}.ko")
    return built


def _library() -> list[Path]:
    """The sources of librtxg, and those of other folders that it takes in (lib/meson.build)."""
    library = [s for s in sorted((REPOSITORY / "lib").glob("*.c")) if OPENCL.exists() or s.stem != "device_name"]
    return [*library, *sorted((REPOSITORY / "core/order").glob("*.c")),
            *sorted((REPOSITORY / "core/cpu").glob("*.c")), *sorted((REPOSITORY / "nvidia").glob("*.c"))]


def _layer() -> list[Path]:
    """The OpenCL layer's sources (layers/opencl/meson.build) but for lib/device_name.c, with what
    decides of them; none without OpenCL's headers."""
    places = ("layers/opencl", "core/gate")
    found = sorted(source for place in places for source in (REPOSITORY / place).glob("*.c"))
    return found if OPENCL.exists() else []


def _objects(place: Path, sources: list[Path], newest: float, jobs: int) -> list[Path]:
    """A library, compiled once for all programs; again what is older than a source or header."""
    place.mkdir(exist_ok=True)
    objects = {place / f"{source.parent.name}-{source.stem}.o": source for source in sources}
    for old in set(place.glob("*.o")) - set(objects):
        old.unlink()

    def compile_one(target: Path) -> None:
        source = objects[target]
        if not target.exists() or target.stat().st_mtime < max(newest, source.stat().st_mtime):
            _run([CC, *CFLAGS, *INCLUDE, "-c", "-o", str(target), str(source)],
                 f"compiling {source.name}",
                 target.with_suffix(".log"))

    with ThreadPoolExecutor(max_workers=jobs) as pool:
        list(pool.map(compile_one, objects))
    return list(objects)


def programs(jobs: int = 2) -> list[Path]:
    """The guest's programs, one a C file in tests/vm/guest: tests t_*.c and i_*.c, tools w_*.c."""
    out = CACHE / "guest"
    out.mkdir(parents=True, exist_ok=True)
    places = ("lib", "nvidia", "core", "include")
    shared = [h for place in places for h in (REPOSITORY / place).rglob("*.h")]
    newest = max(h.stat().st_mtime for h in shared)
    library = _objects(out / "librtxg.o", _library(), newest, jobs)
    newest = max(newest, *(h.stat().st_mtime for h in (REPOSITORY / "layers/opencl").glob("*.h")))
    layer = _objects(out / "opencl.o", _layer(), newest, jobs)
    headers = [*GUEST.glob("*.h"), *shared, *(REPOSITORY / "tests/vm/edu_drv").glob("*.h"),
               *library, *layer]
    newest = max(h.stat().st_mtime for h in headers)

    def compile_one(source: Path) -> Path:
        target = out / source.stem
        if not target.exists() or target.stat().st_mtime < max(newest, source.stat().st_mtime):
            # programs of GPU tasks and of thread order speak through librtxg, those of OpenCL
            # through the layer
            text = source.read_text()
            headers = ("gpu", "deadline", "meter", "order_fibonacci")
            speaks = any(f'"{header}.h"' in text for header in headers)
            _run([CC, *CFLAGS, "-s", *INCLUDE, "-o", str(target), str(source),
                  *(map(str, layer) if "<CL/" in text else []),
                  *([*map(str, library), "-ljansson"] if speaks else []), "-lm"],
                 f"compiling {source.name}", out / f"{source.stem}.log")
        return target

    with ThreadPoolExecutor(max_workers=jobs) as pool:
        wanted = [s for s in sorted(GUEST.glob("[tiw]_*.c"))
                  if OPENCL.exists() or "<CL/" not in s.read_text()]
        built = list(pool.map(compile_one, wanted))
    for old in out.iterdir():
        if not old.suffix and old not in built and old.name != "w_conform":
            old.unlink()
    return built


def conform() -> Path | None:
    """tests/conform against librtxg, linked dynamically as cmocka has no static library; None without cmocka."""
    source, out = REPOSITORY / "tests/conform/conform.c", CACHE / "guest"
    if not source.exists() or not Path("/usr/include/cmocka.h").exists():
        return None
    library = sorted((out / "librtxg.o").glob("*.o"))  # programs() has made them
    target = out / "w_conform"
    newest = max(f.stat().st_mtime
                 for f in [source, *library, *(REPOSITORY / "include").rglob("*.h")])
    if not target.exists() or target.stat().st_mtime < newest:
        flags = [f for f in CFLAGS if f not in {"-static", "-Wextra"}]
        _run([CC, *flags, *INCLUDE, "-o", str(target), str(source), *map(str, library), "-lcmocka",
              "-ljansson"],
             "compiling the conformance suite", out / "w_conform.log")
    return target


def daemon() -> Path | None:
    """rtxgd as "make" builds it, or the one that RTXG_DAEMON names; None if it is not built."""
    path = Path(os.environ.get("RTXG_DAEMON", REPOSITORY / "build/release/daemon/rtxgd"))
    return path if path.exists() else None


def irq_program() -> Path | None:
    """rtxg-irq from the build that rtxgd is taken from; None if it is not built."""
    path = Path(os.environ.get("RTXG_IRQ", REPOSITORY / "build/release/bpf/rtxg-irq"))
    return path if path.exists() else None


def latency_program() -> Path | None:
    """rtxg-latency from the same build; None if it is not built."""
    path = Path(os.environ.get("RTXG_LATENCY", REPOSITORY / "build/release/latency/rtxg-latency"))
    return path if path.exists() else None


def channels_program() -> Path | None:
    """rtxg-channels from the same build; None if it is not built."""
    path = Path(os.environ.get("RTXG_CHANNELS", REPOSITORY / "build/release/levers/nvidia/rtxg-channels"))
    return path if path.exists() else None


def cli() -> Path | None:
    """The command rtxg as "make" builds it, or the one that RTXG_CLI names; None if it is not built."""
    path = Path(os.environ.get("RTXG_CLI", REPOSITORY / "build/release/cli/rtxg"))
    return path if path.exists() else None


def _libraries(program: Path) -> list[Path]:
    """The shared libraries of a program, its loader included."""
    done = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True)
    words = (w for line in done.stdout.splitlines() for w in line.split())
    return [Path(w) for w in words if w.startswith("/")]


class _Cpio:
    """A newc archive: what a kernel unpacks as its first root file system."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.inode = 0
        self.directories: set[str] = set()

    def _entry(self, name: str, mode: int, data: bytes = b"", device: tuple[int, int] = (0, 0)) -> None:
        self.inode += 1
        encoded = name.encode() + b"\0"
        fields = (self.inode, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(encoded), 0)
        head = b"070701" + b"".join(b"%08X" % f for f in fields) + encoded
        self.parts.append(head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4))

    def directory(self, name: str) -> None:
        path = ""
        for part in name.strip("/").split("/"):
            path = f"{path}/{part}" if path else part
            if path not in self.directories:
                self.directories.add(path)
                self._entry(path, 0o040755)

    def file(self, name: str, data: bytes, mode: int = 0o755) -> None:
        if "/" in name:
            self.directory(name.rsplit("/", 1)[0])
        self._entry(name, 0o100000 | mode, data)

    def link(self, name: str, target: str) -> None:
        self._entry(name, 0o120777, target.encode())

    def device(self, name: str, major: int, minor: int) -> None:
        self._entry(name, 0o020600, device=(major, minor))

    def bytes(self) -> bytes:
        self._entry("TRAILER!!!", 0)
        return b"".join(self.parts)


def _guest_modules(kernel: Kernel, names: tuple[str, ...]) -> list[Path]:
    """Paths of the modules and all they need, in loading order; built-in ones are left out."""
    order: list[Path] = []
    for name in names:
        done = subprocess.run(
            [system_tool("modprobe"), "-d", str(kernel.modules), "-S", kernel.release, "--show-depends", name],
            capture_output=True, text=True, check=False,
        )
        for line in done.stdout.splitlines():
            if line.startswith("insmod "):
                path = Path(line.split()[1])
                if path not in order:
                    order.append(path)
    return order


def _skeleton(kernel: Kernel, init: Path, modules_wanted: tuple[str, ...]) -> _Cpio:
    """busybox, an init, and Debian's modules with their order in /modules/order."""
    busybox = Path(shutil.which("busybox") or "/bin/busybox")
    if not busybox.exists():
        raise BuildError("busybox is missing: apt-get install busybox-static")
    archive = _Cpio()
    for name in ("bin", "dev", "proc", "sys", "tmp", "modules", "tests", "run", "root"):
        archive.directory(name)
    archive.device("dev/console", 5, 1)
    archive.device("dev/null", 1, 3)
    archive.file("bin/busybox", busybox.read_bytes())
    archive.link("bin/sh", "busybox")
    archive.file("init", init.read_bytes())
    _add_modules(archive, _guest_modules(kernel, modules_wanted), "order")
    return archive


def _add_modules(archive: _Cpio, paths: list[Path], order: str) -> None:
    """The modules, and their names in loading order."""
    names = []
    for path in paths:
        data = path.read_bytes()
        if path.suffix == ".xz":
            data = lzma.decompress(data)
        name = path.name.split(".")[0] + ".ko"
        archive.file(f"modules/{name}", data, 0o644)
        names.append(name)
    archive.file(f"modules/{order}", "".join(f"{n}\n" for n in names).encode(), 0o644)


def first_root(kernel: Kernel, init: Path, modules_wanted: tuple[str, ...], target: Path) -> Path:
    """An initramfs with nothing but an init and modules."""
    target.write_bytes(_skeleton(kernel, init, modules_wanted).bytes())
    return target


def provoking(kernel: Kernel) -> Path:
    """An initramfs that makes mistakes and tests nothing else."""
    archive = _skeleton(kernel, GUEST / "init", ())
    for module in modules(kernel, provoke=True):
        archive.file(f"modules/{module.name}", module.read_bytes(), 0o644)
    archive.file("tests/p_provoke", (PROVOKE / "p_provoke.sh").read_bytes())
    target = CACHE / kernel.series.name / "initramfs-provoke.cpio"
    target.write_bytes(archive.bytes())
    return target


def initramfs(kernel: Kernel, extra: dict[str, Path]) -> tuple[Path, list[str]]:
    """Everything the guest needs, with extra programs by name; also the names of the tests in it."""
    archive = _skeleton(kernel, GUEST / "init", GUEST_MODULES)
    loaded = _guest_modules(kernel, GUEST_MODULES)
    _add_modules(archive, [m for m in _guest_modules(kernel, GPU_MODULES) if m not in loaded], "order.gpu")
    for module in modules(kernel):
        archive.file(f"modules/{module.name}", module.read_bytes(), 0o644)
    names = []
    # dynamic programs bring their libraries: the conformance suite, and the daemon to compare the module with
    libraries: set[Path] = set()
    # runs of several kernels at a time share the guest's programs: one compiles, and takes what it has compiled
    with (CACHE / ".guest.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for program in programs():
            archive.file(f"tests/{program.name}", program.read_bytes())
            if not program.name.startswith("w_"):
                names.append(program.name)
        suite = conform()
        if suite is not None:
            archive.file(f"tests/{suite.name}", suite.read_bytes())
            libraries.update(_libraries(suite))
    for script in sorted(GUEST.glob("t_*.sh")):
        archive.file(f"tests/{script.stem}", script.read_bytes())
        names.append(script.stem)
    for name, program in (("w_rtxgd", daemon()), ("w_rtxg", cli()), ("w_rtxg_irq", irq_program()),
                          ("w_rtxg_latency", latency_program()), ("w_rtxg_channels", channels_program())):
        if program is not None:
            archive.file(f"tests/{name}", program.read_bytes())
            libraries.update(_libraries(program))
    for file in sorted((REPOSITORY / "bpf/maps").glob("*.json")):
        archive.file(f"tests/maps/{file.name}", file.read_bytes(), 0o644)
    for library in sorted(libraries):
        # our own is sought beside the programs, as in a build directory
        name = f"lib/{library.name}" if library.name.startswith("librtxg") else str(library).lstrip("/")
        archive.file(name, library.read_bytes())
    for name, path in extra.items():
        archive.file(f"tests/{name}", path.read_bytes())
        if name.startswith(("t_", "i_")):
            names.append(name)
    target = CACHE / kernel.series.name / "initramfs.cpio"
    target.write_bytes(archive.bytes())
    return target, sorted(names)
