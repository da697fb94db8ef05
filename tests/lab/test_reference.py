# SPDX-License-Identifier: MIT
"""What others read: the reference made from docstrings, and the notebook among the examples."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import rtxg

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "lab" / "examples" / "notebook.ipynb"
#: Modules that others may import; commands are read by their --help.
MODULES = sorted(
    f"rtxg.{module.name}"
    for module in pkgutil.iter_modules(rtxg.__path__)
    if module.name not in ("commands", "core")
)


def public(module):
    """Functions and classes that a module defines for others, and the classes' public functions."""
    for name, thing in vars(module).items():
        mine = getattr(thing, "__module__", None) == module.__name__
        if name.startswith("_") or not mine or not (inspect.isclass(thing) or inspect.isfunction(thing)):
            continue
        yield f"{module.__name__}.{name}", thing


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_says_what_it_is(name):
    module = pytest.importorskip(name)
    assert (module.__doc__ or "").strip()
    bare = [full for full, thing in public(module) if not (thing.__doc__ or "").strip()]
    assert not bare, f"without a docstring: {', '.join(bare)}"


def test_the_reference_builds_without_a_warning(tmp_path):
    pytest.importorskip("pdoc", reason="pdoc is not installed (tools/setup check)")
    command = [sys.executable, "-m", "pdoc", "-o", str(tmp_path), "rtxg", *MODULES]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"RTXG_SOURCE": str(ROOT)}
    )
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if line.lower().startswith(("warn", "error"))]
    if importlib.util.find_spec("pandas") is None:  # types that only a checker imports beside it
        said = [line for line in said if "type annotation" not in line]
    assert not said, done.stderr
    page = (tmp_path / "rtxg" / "tardiness.html").read_text(encoding="utf-8")
    assert "suspension_aware_tardiness" in page


def test_the_notebook_runs(tmp_path):
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed (tools/setup check)")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed (tools/setup check)")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3").execute(cwd=str(tmp_path))
    last = json.dumps(notebook.cells[-1].outputs)
    assert "image/png" in last, last[:300]


def test_the_notebook_is_kept_without_outputs():
    kept = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in kept["cells"])
