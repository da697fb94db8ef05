# SPDX-License-Identifier: MIT
"""How many examples a test draws: as many as the profile says, or fewer in the quick one where each example is a long run."""

from __future__ import annotations

from hypothesis import settings


def quick(examples: int) -> settings:
    """So many in the quick tier; in the full one all of the profile's."""
    if settings.get_current_profile_name() == "full":
        return settings()
    return settings(max_examples=examples)
