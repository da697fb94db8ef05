# SPDX-License-Identifier: MIT
"""The properties of promises.py can fail: each way of breaking the analysis falls to one of them.

A mutation is not caught by a hand-worked number here, but by a simulated job that is later than the
broken analysis said.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest

from rtxg import analysis, hard
from rtxg.overheads import Term

pytest.importorskip(
    "rtxg.core",
    reason="the scheduler core could not be compiled (cffi and a C compiler are needed)",
)

import promises

Patch = Callable[[pytest.MonkeyPatch], None]


def scaled_bound(share: str) -> Patch:
    """Every tardiness bound times ``share``."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        right = analysis.best_tardiness

        def wrong(*arguments: object) -> list[Fraction] | None:
            bounds = right(*arguments)
            return None if bounds is None else [Fraction(share) * x for x in bounds]

        monkeypatch.setattr(analysis, "best_tardiness", wrong)

    return patch


def scaled_report(share: str) -> Patch:
    """Only what is reported, after the fixed point."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        right = analysis._analyze_cluster

        def wrong(*arguments: object) -> analysis.ClusterResult:
            found = right(*arguments)
            results = tuple(
                replace(r, tardiness=None if r.tardiness is None else Fraction(share) * r.tardiness)
                for r in found.results
            )
            return replace(found, results=results)

        monkeypatch.setattr(analysis, "_analyze_cluster", wrong)

    return patch


def scaled_interrupts(share: str) -> Patch:
    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        right = analysis.interfering_interrupts
        monkeypatch.setattr(
            analysis,
            "interfering_interrupts",
            lambda tasks, late: {
                name: int(Fraction(share) * hits) for name, hits in right(tasks, late).items()
            },
        )

    return patch


def scaled_blocking(share: str) -> Patch:
    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        right = analysis.blocking_bounds
        monkeypatch.setattr(
            analysis,
            "blocking_bounds",
            lambda *arguments: {name: Fraction(share) * b for name, b in right(*arguments).items()},
        )

    return patch


def scaled_term(symbol: str, share: str) -> Patch:
    """One summand of the inflated execution time."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        right = analysis.inflation

        def wrong(*arguments: object) -> list[Term]:
            return [
                replace(t, value=Fraction(share) * t.value) if t.symbol == symbol else t
                for t in right(*arguments)
            ]

        monkeypatch.setattr(analysis, "inflation", wrong)

    return patch


def sections_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    right = analysis.analyze
    monkeypatch.setattr(
        analysis, "analyze", lambda *a, **how: right(*a, **how, inflate_sections=False)
    )


def lateness_not_fed_back(monkeypatch: pytest.MonkeyPatch) -> None:
    right = analysis._Inflator.at
    monkeypatch.setattr(
        analysis._Inflator, "at", lambda self, late: right(self, dict.fromkeys(late, Fraction(0)))
    )


def never_late_by(name: str) -> Patch:
    """A hard test that says yes to every set that its CPUs can bear."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        def always(costs: list, periods: list, deadlines: list, m: int) -> bool:
            return True

        monkeypatch.setitem(hard.GLOBAL_EDF_TESTS, name, always)

    return patch


MUTATIONS: dict[str, Patch] = {
    **{
        f"bound x {share}": scaled_bound(share)
        for share in ("0.9", "0.8", "0.7", "0.5", "0.25", "0")
    },
    **{f"reported bound x {share}": scaled_report(share) for share in ("0.9", "0.7")},
    **{f"interrupts x {share}": scaled_interrupts(share) for share in ("0.9", "0.5", "0")},
    **{f"blocking x {share}": scaled_blocking(share) for share in ("0.7", "0")},
    "GPU time halved": scaled_term("s_i", "0.5"),
    "top halves free": scaled_term("H_i th", "0"),
    "bottom halves free": scaled_term("H_i bh", "0"),
    "own hand-overs to threads free": scaled_term("eta_i krel", "0"),
    "own queueing of bottom halves free": scaled_term("eta_i pairel", "0"),
    "ticks free": scaled_term("ceil((d_i + x_i) / Q) tck", "0"),
    "sections not inflated": sections_as_they_are,
    "lateness not fed back": lateness_not_fed_back,
    **{f"{name} always says yes": never_late_by(name) for name in hard.GLOBAL_EDF_TESTS},
}


def test_the_analysis_as_it_is_passes():
    for check in promises.CHECKS:
        check()


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_analysis_is_caught(name, monkeypatch):
    MUTATIONS[name](monkeypatch)
    caught = []
    for check in promises.CHECKS:
        try:
            check()
        except promises.BrokenPromiseError as broken:
            caught.append(f"{check.__name__}: {broken}")
            break
        except AssertionError:
            pass  # the check found that it cannot see enough; another one must catch it
    assert caught, f"{name}: no simulated job was later than promised"
