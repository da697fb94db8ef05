# SPDX-License-Identifier: MIT
"""Names: one struct of a name in a binary, a prefix for each global, a definition for each."""

from __future__ import annotations

import re

import pytest
from sources import code, in_folders, judge, symbols, text, tracked, without_strings

#: folders whose files end up in one binary
BINARIES = {
    "daemon": ("core/", "daemon/", "levers/nvidia/", "lib/", "nvidia/", "include/"),
    "kmod": ("core/launch/", "core/cpu/", "core/order/", "kmod/", "include/uapi/"),
    "cli": ("cli/", "lib/", "include/"),
    "latency": ("latency/", "include/"),
    "opencl layer": ("core/gate/", "layers/opencl/", "lib/", "include/"),
    "order library": ("layers/order/", "lib/", "core/order/", "include/"),
}

#: what a global may begin with; STEM stands for the noun of its file and those before an underscore
PREFIXES = {
    "core/launch/": r"rtxg_|core_|permit_|policy_|queue_|{stem}_|\w+_policy$",
    "core/slice/": r"rtxg_slice_|slice_",
    "core/cpu/": r"rtxg_|cpu_",
    "core/gate/": r"lane_",
    "core/order/": r"rtxg_order_|order_",
    "daemon/": r"{stem}_",
    "levers/nvidia/": r"lever_nvidia_|nv_|warm_",
    "nvidia/": r"nv_",
    "lib/": r"rtx_",
    "layers/opencl/": r"layer_|{stem}_",
    "layers/cuda/": r"inject_",
    "layers/order/": r"{stem}_",
    "cli/": r"{stem}_|cmd_",
    "latency/": r"{stem}_",
}

#: functions of this library have the names that the compiler and the C library give them
GIVEN = re.compile(
    r"layers/order/\w+\.c: (__tsan_\w+|pthread_\w+|sem_\w+|u?sleep|(clock_)?nanosleep|sched_yield)"
)

PROGRAMS = ("core/", "daemon/", "nvidia/", "levers/", "lib/", "layers/", "cli/", "latency/", "bpf/")


@pytest.mark.parametrize("binary", BINARIES)
def test_no_two_structs_of_one_name_in_a_binary(binary: str) -> None:
    """A debugger, ctags and a reader would take one for the other."""
    places: dict[str, list[str]] = {}
    for name in in_folders(BINARIES[binary], ".c", ".h"):
        if binary == "daemon" and name.startswith("lib/") and name.endswith(".c"):
            continue  # another binary
        for match in re.finditer(r"^(?:static )?(?:const )?struct (\w+) \{", code(name), re.M):
            places.setdefault(match[1], []).append(name)
    findings = {
        f"{binary}: struct {struct}": ", ".join(files)
        for struct, files in places.items()
        if len(files) > 1
    }
    judge(f"structs of {binary}", findings)


def test_a_global_begins_with_its_files_or_folders_prefix() -> None:
    """A name says where it is defined."""
    findings = {}
    for source, found in symbols().items():
        for folder, pattern in PREFIXES.items():
            if not source.startswith(folder):
                continue
            stem = source.rsplit("/", 1)[-1].removesuffix(".c")
            nouns = "|".join({stem, stem.split("_")[0], stem.rstrip("s")})
            accepted = pattern.replace("{stem}", f"(?:{nouns})")
            for name in found.defined - {"main"}:
                if GIVEN.fullmatch(f"{source}: {name}"):
                    continue
                if not re.match(accepted, name) and name not in nouns.split("|"):
                    findings[f"{source}: {name}"] = f"{accepted} is accepted"
    judge("prefixes", findings)


def declarations(name: str) -> dict[str, int]:
    """Functions that a header declares without defining them, with their lines."""
    body = without_strings(name)
    body = re.sub(r"^#.*?(?<!\\)$", lambda m: "\n" * m[0].count("\n"), body, flags=re.M | re.S)
    body = re.sub(r"__attribute__\(\(.*?\)\)(?=;)", "", body)
    found = {}
    pattern = r"^(?!static|typedef|return|else)[a-z][\w \t*]*?\**(\w+)\((?:[^;{}()]|\([^()]*\))*\)"
    for match in re.finditer(pattern + r"[^;{}=]*;", body, re.M):
        found[match[1]] = body.count("\n", 0, match.start()) + 1
    return found


def test_each_function_that_a_header_declares_is_defined() -> None:
    """A prototype without a function is left over."""
    every = [n for n in tracked("*.c", "*.h") if not n.startswith("build/")]
    bodies = "\n".join(without_strings(n) for n in every)
    defined = set(re.findall(r"\b(\w+)\((?:[^;{}()]|\([^()]*\))*\)[^;{}()]*\n?\{", bodies))
    defined |= {name for found in symbols().values() for name in found.defined}
    findings = {}
    for name in in_folders((*PROGRAMS, "kmod/", "include/", "demo/"), ".h"):
        for function, line in declarations(name).items():
            if function not in defined and function.islower() and function != "typeof":
                findings[f"{name}: {function}"] = f"line {line} declares it, no file defines it"
    judge("declared", findings)


def test_each_global_function_is_declared_in_a_header() -> None:
    """So that its users and its definition agree."""
    declared = set()
    for name in in_folders((*PROGRAMS, "include/", "demo/"), ".h"):
        declared |= set(declarations(name))
        declared |= set(re.findall(r"\bextern [^;]*?\b(\w+)(?:\[[^]]*\])?;", code(name)))
    findings = {}
    for source, found in symbols().items():
        if not source.startswith(PROGRAMS):
            continue
        for name in found.defined - declared - {"main"}:
            if re.fullmatch(r"core/launch/policy_\w+\.c: \w+_policy", f"{source}: {name}"):
                continue  # declared by its registration in policy.c
            if GIVEN.fullmatch(f"{source}: {name}"):
                continue
            findings[f"{source}: {name}"] = "no header declares it"
    judge("headers", findings)


def test_no_global_could_be_static() -> None:
    """A global has a user in another file; a test is one, and so are programs that link librtxg."""
    users: dict[str, set[str]] = {}
    for source, found in symbols().items():
        for name in found.undefined:
            users.setdefault(name, set()).add(source)
    public = set()
    for name in in_folders(("include/",), ".h"):
        public |= set(declarations(name))
    # the module and the simulator compile the core too, and the fuzz targets are built apart
    others = in_folders(("kmod/", "lab/", "tests/fuzz/"), ".c", ".py")
    public |= {word for other in others for word in re.findall(r"\w+", text(other))}
    findings = {}
    for source, found in symbols().items():
        if not source.startswith(PROGRAMS):
            continue
        for name in found.defined - {"main"} - public:
            if not users.get(name, set()) - {source} and not GIVEN.fullmatch(f"{source}: {name}"):
                findings[f"{source}: {name}"] = "no other file uses it"
    judge("static", findings)


def test_no_library_reads_the_environment_of_a_weaker_caller() -> None:
    """What runs inside a program asks by secure_getenv(): a set-user-ID program's environment is
    its caller's.
    """
    sources = {
        source: found
        for source, found in symbols().items()
        if source.startswith(("core/", "lib/", "layers/"))
    }
    assert any("secure_getenv" in found.undefined for found in sources.values())
    findings = {
        source: "takes secure_getenv()"
        for source, found in sources.items()
        if "getenv" in found.undefined
    }
    judge("environment", findings)


def test_names_in_the_glossary_are_in_the_code() -> None:
    """A word that the code has lost, or never had, defines nothing."""
    every = in_folders((*PROGRAMS, "kmod/", "include/"), ".c", ".h")
    known = {word for name in every for word in re.findall(r"\w+", text(name))}
    known |= set(re.findall(r"--[a-z-]+", "\n".join(text(name) for name in every)))
    findings = {}
    for line in text("docs/reference/glossary.md").splitlines():
        if not line.startswith("| **"):
            continue
        for name in re.findall(r"`([^`]+)`", line.rsplit("|", 2)[1]):
            exists = name in known or f"{name[2:]}" in known or any(tracked(name, f"*/{name}"))
            if name.endswith("*"):
                exists = any(k.startswith(name[:-1]) for k in known) or any(tracked(name))
            elif name.endswith("/"):
                exists = any(n.startswith(name) for n in every) or name == "lab/"
            if not exists and not name.startswith("rtxg "):
                findings[f"docs/reference/glossary.md: {name}"] = line.split("|")[1].strip()
    judge("glossary", findings)
