# SPDX-License-Identifier: MIT
"""Puts the scheduler core's sources beside the Python package, so that an installed simulator can compile and host them.
Everything else about the package is in pyproject.toml."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithCore(build_py):
    """Copies core/ to rtxg/core/core, where rtxg.core.build looks when there is no source tree."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        core = Path(__file__).parent / "core"
        for source in [core / "sources", *sorted(core.glob("*/*.[ch]"))]:
            target = Path(self.build_lib) / "rtxg" / "core" / "core" / source.relative_to(core)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)


setup(cmdclass={"build_py": BuildWithCore})
