# SPDX-License-Identifier: MIT
"""The stage of every attack: see users.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from users import stage

__all__ = ["stage"]
