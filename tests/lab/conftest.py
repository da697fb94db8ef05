# SPDX-License-Identifier: MIT
"""Fixtures and settings of the lab's tests."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import HealthCheck, settings

from rtxg import Overheads

# The machine may be busy: no example fails for being slow.
settings.register_profile("lab", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("lab")


@pytest.fixture
def distinct() -> Overheads:
    """Overheads from which every sum can be told apart."""
    return Overheads(
        sch=Fraction(1),
        cxs=Fraction(2),
        ipi=Fraction(4),
        rel=Fraction(8),
        th=Fraction(16),
        bh=Fraction(32),
        krel=Fraction(64),
        paisch=Fraction(128),
        pairel=Fraction(256),
        tck=Fraction(512),
        quantum=Fraction(1000),
        permit=Fraction(1024),
        suspend=Fraction(2048),
        resume=Fraction(4096),
        slice_switch=Fraction(8192),
        slice_length=Fraction(300),
    )
