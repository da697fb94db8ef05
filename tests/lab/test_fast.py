# SPDX-License-Identifier: MIT
"""The compiled batch analysis against the exact one, and the generators behind it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from hashlib import sha256

import numpy as np
import pytest

from rtxg import TABLE_III, Interrupts, Platform, analyze
from rtxg.fast import HARD_TESTS, schedulable
from rtxg.generate import Recipe, Utilizations, rand_fixed_sum, random_batch

MACHINE = Platform(12, 2, 8)
METHODS = [Interrupts.KLMIRQD, Interrupts.PAI, Interrupts.SLIH, Interrupts.NONE]
CALLS = [1, 3, 6]


def compare(
    recipe, cap, sets, *, lock="capped", bound="best", hard=HARD_TESTS, inflate=False, platform=MACHINE, seed=1, over=TABLE_III
):
    """How many of the verdicts differ, and how many sets were schedulable under each curve."""
    batch = random_batch(recipe, cap, sets, seed)
    fast = schedulable(
        batch, platform, METHODS, CALLS, over, lock=lock, bound=bound, hard_first=bool(hard), inflate_sections=inflate
    )
    for row in range(sets):
        for a, method in enumerate(METHODS):
            for b, calls in enumerate(CALLS):
                exact = analyze(
                    batch.taskset(row, platform, calls),
                    interrupts=method,
                    overheads=over,
                    lock=lock,
                    bound=bound,
                    inflate_sections=inflate,
                    hard_tests=hard,
                    suspensions="oblivious",
                )
                assert exact.schedulable == fast[row, a, b], (row, method, calls)
    return fast.sum(axis=0)


# Caps are chosen so that both verdicts occur.
@pytest.mark.parametrize(
    ("utilizations", "cap", "sets"),
    [(Utilizations("uniform", 0.5, 0.9), 9.0, 8), (Utilizations("exponential", 0.5), 5.5, 8)],
)
def test_fast_equals_exact(utilizations, cap, sets):
    counts = compare(Recipe(utilizations, (0.5, 0.6)), cap, sets)
    assert 0 < counts.sum() < counts.size * sets


@pytest.mark.parametrize(("bound", "hard"), [("compliant", HARD_TESTS), ("devi-anderson", HARD_TESTS), ("compliant", ())])
def test_fast_equals_exact_with_other_bounds(bound, hard):
    counts = compare(Recipe(Utilizations("uniform", 0.5, 0.9), (0.5, 0.6)), 9.5, 5, bound=bound, hard=hard)
    assert 0 < counts.sum() < counts.size * 5


def test_fast_equals_exact_with_calls_shorter_than_their_own_interrupts():
    long = replace(TABLE_III, th=Fraction(100), bh=Fraction(700))
    counts = compare(Recipe(Utilizations("uniform", 0.1, 0.4), (0.3, 0.4)), 5.0, 5, inflate=True, over=long)
    assert 0 < counts.sum() < counts.size * 5


def test_fast_equals_exact_with_long_hand_overs_of_bottom_halves():
    """On single CPUs, where hardly another task's interrupt strikes, the own ones decide."""
    long = replace(TABLE_III, krel=Fraction(1000), pairel=Fraction(1000))
    recipe = Recipe(Utilizations("uniform", 0.1, 0.4), (0.3, 0.4))
    counts = compare(recipe, 2.0, 10, inflate=True, over=long, platform=Platform(4, 4, 4))
    assert 0 < counts.sum() < counts.size * 10


@pytest.mark.parametrize("lock", ["oblivious", "aware"])
def test_fast_equals_exact_with_other_locks(lock):
    compare(Recipe(Utilizations("uniform", 0.3, 0.6), (0.3, 0.4)), 4.5, 6, lock=lock)


def test_fast_equals_exact_with_inflated_sections():
    recipe = Recipe(Utilizations("uniform", 0.4, 0.7), (0.5, 0.6), section_share=0.8)
    counts = compare(recipe, 7.5, 8, inflate=True)
    assert 0 < counts.sum() < counts.size * 8


def test_fast_equals_exact_on_single_cpus():
    compare(Recipe(Utilizations("uniform", 0.1, 0.4), (0.5, 0.5)), 2.0, 6, platform=Platform(4, 4, 4))


@pytest.mark.slow
@pytest.mark.parametrize("block", [0, 3, 9])
@pytest.mark.parametrize(
    ("utilizations", "cap"),
    [
        (Utilizations("uniform", 0.1, 0.4), 5.0),
        (Utilizations("uniform", 0.5, 0.9), 8.0),
        (Utilizations("uniform", 0.5, 0.9), 10.0),
        (Utilizations("exponential", 0.1), 3.5),
        (Utilizations("exponential", 0.25), 4.5),
        (Utilizations("bimodal", 0.6), 6.0),
    ],
)
def test_fast_equals_exact_widely(utilizations, cap, block):
    compare(Recipe(utilizations, (block / 10, block / 10 + 0.1)), cap, 25, seed=block)


def test_order_of_methods_does_not_matter():
    batch = random_batch(Recipe(Utilizations("uniform", 0.5, 0.9), (0.5, 0.6)), 8.5, 200, 3)
    one = schedulable(batch, MACHINE, METHODS, CALLS, TABLE_III)
    other = schedulable(batch, MACHINE, METHODS[::-1], CALLS, TABLE_III)
    alone = schedulable(batch, MACHINE, [Interrupts.PAI], CALLS, TABLE_III)
    assert (one == other[:, ::-1]).all()
    assert (one[:, 1:2] == alone).all()


def test_fast_refuses_what_it_cannot_do():
    batch = random_batch(Recipe(Utilizations("uniform", 0.5, 0.9)), 2, 1, 1)
    with pytest.raises(ValueError, match="RM"):
        schedulable(batch, Platform(2, scheduler="RM"), METHODS, CALLS, TABLE_III)
    with pytest.raises(ValueError, match="exact"):
        schedulable(batch, MACHINE, METHODS, CALLS, TABLE_III, lock="exact")
    with pytest.raises(ValueError, match="rtxg"):
        schedulable(batch, MACHINE, [Interrupts.RTXG], CALLS, TABLE_III)
    with pytest.raises(ValueError, match="ascending"):
        schedulable(batch, MACHINE, METHODS, [3, 1], TABLE_III)


def test_batches_obey_their_recipe():
    recipe = Recipe(Utilizations("uniform", 0.1, 0.4), (0.2, 0.3), gpu_share=0.5, section_share=0.6)
    batch = random_batch(recipe, 6.0, 500, 11)
    member = batch.period > 0
    assert (member.sum(axis=1) == batch.count).all()
    assert ((batch.period[member] >= 15_000) & (batch.period[member] <= 60_000)).all()
    total = batch.utilization()
    assert (total <= 6.0 + 0.001).all()
    assert (total > 6.0 - 0.4 - 0.001).all()
    users = batch.uses_gpu.sum(axis=1)
    assert (np.abs(users - 0.25 * batch.count) <= 0.05 * batch.count + 0.5).all()
    gpu = batch.uses_gpu == 1
    demand = (batch.cost + batch.gpu_time)[gpu]
    assert np.allclose(batch.gpu_time[gpu], 0.5 * demand, atol=1)
    assert np.allclose(batch.section[gpu], 0.6 * demand, atol=1)
    assert (batch.section[gpu] <= demand).all()


def test_effective_utilization_counts_gpu_time_r_times():
    recipe = Recipe(Utilizations("uniform", 0.5, 0.9), (0.5, 0.6))
    batch = random_batch(recipe, 6.0, 20, 5)
    for row in range(20):
        taskset = batch.taskset(row, MACHINE)
        assert float(taskset.utilization) == pytest.approx(batch.utilization()[row])
        assert float(taskset.effective_utilization(16)) == pytest.approx(batch.utilization(16)[row])


def test_seeds_reproduce_bit_for_bit():
    recipe = Recipe(Utilizations("exponential", 0.25), (0.5, 0.6))
    one, same, other = (random_batch(recipe, 6.0, 100, seed) for seed in ([1, 2], [1, 2], [1, 3]))
    assert all(getattr(one, f).tobytes() == getattr(same, f).tobytes() for f in ("cost", "gpu_time", "section", "period"))
    assert one.cost.tobytes() != other.cost.tobytes()


@pytest.mark.parametrize(
    ("kind", "digest"), [(("uniform", 0.5, 0.9), "ea5aecd70d937c4e"), (("exponential", 0.25), "eb84109de3992da3")]
)
def test_seeds_reproduce_for_ever(kind, digest):
    """What this seed gave when it was first used; published counts rest on it."""
    batch = random_batch(Recipe(Utilizations(*kind), (0.5, 0.6)), 6.0, 100, [2012, 2, 5, 11, 0])
    found = sha256()
    for field in ("count", "cost", "gpu_time", "section", "period", "uses_gpu"):
        found.update(getattr(batch, field).astype("<i8").tobytes())
    assert found.hexdigest()[:16] == digest


@pytest.mark.parametrize("kind", [("uniform", 0.01, 0.1), ("exponential", 0.1), ("exponential", 0.5), ("bimodal", 0.7)])
def test_distributions_have_their_mean(kind):
    distribution = Utilizations(*kind)
    draws = np.random.Generator(np.random.PCG64(1)).random(200_000)
    values = distribution.transform(draws)
    assert values.min() > 0
    assert values.max() <= 1
    assert values.mean() == pytest.approx(distribution.mean, rel=0.01)


def test_rand_fixed_sum():
    values = rand_fixed_sum(8, 3.0, 2000, 4)
    assert values.shape == (2000, 8)
    assert np.allclose(values.sum(axis=1), 3.0)
    assert ((values >= 0) & (values <= 1)).all()
    assert np.allclose(values.mean(axis=0), 3 / 8, atol=0.03)
    bounded = rand_fixed_sum(4, 2.0, 500, 4, low=0.3, high=0.7)
    assert ((bounded >= 0.3 - 1e-12) & (bounded <= 0.7 + 1e-12)).all()
    with pytest.raises(ValueError, match="cannot sum"):
        rand_fixed_sum(2, 3.0, 1, 1)
