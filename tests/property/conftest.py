# SPDX-License-Identifier: MIT
"""Property tests run over the core as compiled from this tree; see lab/rtxg/core."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "lab"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
os.environ.setdefault("RTXG_SOURCE", str(ROOT))

hypothesis = pytest.importorskip("hypothesis", reason="python3-hypothesis is not installed")
pytest.importorskip("cffi", reason="python3-cffi is not installed")
if not any(map(shutil.which, ("cc", "gcc", "clang"))):
    pytest.skip("no C compiler: the core cannot be compiled", allow_module_level=True)

# RTXG_TIER=full searches twenty times as long. No deadlines: no test may depend on how fast this machine is.
hypothesis.settings.register_profile(
    "quick", max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(hypothesis.HealthCheck)
)
# As quick, but content with the first failure: for tests that are meant to fail.
hypothesis.settings.register_profile(
    "unshrunk",
    hypothesis.settings.get_profile("quick"),
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
)
hypothesis.settings.register_profile("full", max_examples=3000, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
hypothesis.settings.load_profile(os.environ.get("RTXG_TIER", "quick"))
