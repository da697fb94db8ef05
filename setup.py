# SPDX-License-Identifier: MIT
"""Compiles the scheduler core into the wheel, so that an installed simulator hosts it as it is.
Everything else about the package is in pyproject.toml."""

import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent


class BuildCore(build_ext):
    """A source tree that is installed in place compiles the core when it is used: it changes."""

    def run(self) -> None:
        if not self.editable_mode:
            super().run()

    def get_outputs(self) -> list[str]:
        return [] if self.editable_mode else super().get_outputs()

    def get_output_mapping(self) -> dict[str, str]:
        return {} if self.editable_mode else super().get_output_mapping()


def core_extension() -> list:
    """The extension, from the module that also describes it in a source tree."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("rtxg_core_build", ROOT / "lab" / "rtxg" / "core" / "build.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    scratch = ROOT / "build" / "core-wheel"
    scratch.mkdir(parents=True, exist_ok=True)
    return [module.extension(ROOT, scratch)]


setup(cmdclass={"build_ext": BuildCore}, ext_modules=core_extension())
