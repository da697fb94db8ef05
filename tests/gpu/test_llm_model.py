# SPDX-License-Identifier: MIT
"""The model of two LLM engines: bench/llm_model.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import llm_model as model  # noqa: E402


def test_an_engine_alone_makes_all_tokens_at_full_speed() -> None:
    """A step is never shorter, and longer only by the prompts between two of them."""
    alone, other = model.run(None, 20, 1)
    assert not other.tokens
    assert min(alone.between) == pytest.approx(model.STEP_MS)
    assert min(alone.first) >= model.PROMPT_MS - 1e-6
    assert alone.tokens > 0.95 * model.TOKENS * alone.asked


def test_who_has_all_of_the_gpu_is_as_if_alone() -> None:
    """The other gets what is left."""
    alone, _ = model.run(None, 20, 3)
    first, second = model.run(lambda _: 1.0, 20, 3)
    assert first.first == pytest.approx(alone.first)
    assert first.between == pytest.approx(alone.between)
    assert 0 < second.tokens < first.tokens / 2


def test_halves_serve_all_that_is_asked_for_with_later_tokens() -> None:
    """90 % of the capacity is asked for, and nothing is lost by switching."""
    first_token, between, tokens = model.measured(lambda _: 0.5, 40, 2)
    assert tokens > 0.97
    assert between > 1.5
    assert first_token > 2


def test_the_document_holds_what_the_model_prints() -> None:
    """docs/results.md has its table."""
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, str(root / "bench" / "llm_model.py")]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    held = (root / "docs" / "results.md").read_text(encoding="utf-8")
    assert len(printed.splitlines()) > 10
    assert [line for line in printed.splitlines() if line not in held] == []


def test_the_gpu_is_not_given_twice() -> None:
    """Both together never work for longer than there is time."""
    for part in model.policies().values():
        one, two = model.run(part, 10, 5)
        steps = (one.steps + two.steps) * model.STEP_MS
        prompts = (len(one.first) + len(two.first)) * model.PROMPT_MS
        assert 9_000 < steps + prompts < 10_000 + model.PROMPT_MS
